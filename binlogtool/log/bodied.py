"""Blocks whose bodies are decoded by compiled code: it writes them as JSON, and the JSON is parsed.

That is several times as fast as decoding events one by one. Bodies that plain JSON cannot express (bytes, and
everything else with a `$` marker) and records that compiled code refuses are decoded by Python.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import pairwise
from typing import TYPE_CHECKING, Any

from msgspec import json
from msgspec.structs import replace

from binlogtool import memory
from binlogtool.formats.jsonline import JsonLine
from binlogtool.log.blocks import BlockDecoder
from binlogtool.log.body_json import to_json_bytes
from binlogtool.log.compiled import CompiledRun, CompiledSplitter
from binlogtool.log.records import RecordBlock
from binlogtool.log.stretches import MAX_BLOCK_RECORDS, RecordRange

if TYPE_CHECKING:
    from binlogtool.schema.jsoncells import CellColumns, CellWriter

_MARKER_PREFIX = b'"$'
"""Begins the name of what JSON has no word for; as a text it is rare enough."""

MIN_COMPILED_RECORDS = 256
"""So many records by compiled code do not pay for its room, which each file needs anew."""

_decode_json_list = json.Decoder(list[Any]).decode


class CompiledBodyDecoder:
    """Make blocks of record ranges, file by file. min_records: fewer records of a file are decoded by Python."""

    def __init__(self, min_records: int = MIN_COMPILED_RECORDS) -> None:
        self._min_records = min_records
        self._compiled: CompiledSplitter[CellColumns] = CompiledSplitter(self._make_writer)
        self._header_decoder: tuple[BlockDecoder, BlockDecoder] | None = None

    def decode_range(self, record_range: RecordRange) -> Iterator[RecordBlock]:
        """Yield the records of a range, in order."""
        if record_range.stop - record_range.start < self._min_records and not self._compiled.is_current_file(
            record_range.decoder
        ):
            yield from record_range.decode_blocks(record_range.start, record_range.stop)
            return
        for part in self._compiled.split_range(record_range):
            yield self._make_block(part) if isinstance(part, CompiledRun) else part

    def _make_writer(self, line: JsonLine, decoder: BlockDecoder) -> CellWriter:
        from binlogtool.schema.jsoncells import CellWriter

        return CellWriter(line, decoder.layout, to_json_bytes, MAX_BLOCK_RECORDS, extras=False)

    def _make_block(self, run: CompiledRun[CellColumns]) -> RecordBlock:
        decoder, batch = run.record_range.decoder, run.record_range.batch
        if self._header_decoder is None or self._header_decoder[0] is not decoder:
            self._header_decoder = decoder, replace(decoder, decode="header")
        envelope = decoder.decode_envelopes(batch, run.start, run.stop)
        block = self._header_decoder[1].make_block(batch, run.start, run.stop, envelope)
        return replace(block, bodies=_parse_bodies(run))


def _parse_bodies(run: CompiledRun[CellColumns]) -> Sequence[Any]:
    data, ends = run.data.texts["body"]
    text, end_offsets = bytes(data[: ends[-1]]), ends.tolist()
    parts = [text[low:high] or b"null" for low, high in pairwise(end_offsets)]
    json_list = b"[" + b",".join(parts) + b"]"
    memory.require_json_memory(json_list)
    bodies: list[Any] = _decode_json_list(json_list)
    if _MARKER_PREFIX in text:
        decoder, batch = run.record_range.decoder, run.record_range.batch
        for i, part in enumerate(parts):
            if _MARKER_PREFIX in part:
                index = run.start + i
                bodies[i] = decoder.format.output.decode_bodies(
                    decoder.layout.context, batch, index, index + 1, decoder.limits
                )[0]
    return bodies
