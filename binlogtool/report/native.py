"""Encode records as lines of JSON in compiled code (`log.compiled`), and hand over the blocks that it cannot encode."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, NamedTuple, TypeVar

from binlogtool.formats.jsonline import JsonLine
from binlogtool.log.blocks import BlockDecoder
from binlogtool.log.body_json import to_json_bytes
from binlogtool.log.compiled import CompiledSplitter
from binlogtool.log.plain import DEFAULT_STYLE
from binlogtool.log.records import RecordBlock
from binlogtool.log.stretches import RecordRange

if TYPE_CHECKING:
    from binlogtool.schema.jsonlines import LineWriter

T = TypeVar("T")


class EncodedLines(NamedTuple):
    """Finished lines of some records of a file; the bytes are valid until the next lines are made.

    Attributes:
        record: Numbers of the records in the file, in order.
        offset: Of the frame of the last one, in the file.
    """

    file: str
    record: Sequence[int]
    offset: tuple[int]
    data: memoryview


class CompiledLineEncoder:
    """Encodes record ranges as lines, in the default style only."""

    def __init__(self) -> None:
        self._compiled = CompiledSplitter(_make_line_writer)

    def encode_ranges(self, parts: Iterable[RecordRange | T]) -> Iterator[EncodedLines | RecordBlock | T]:
        """Yield the same parts, with lines and blocks in place of record ranges."""
        for part in parts:
            if isinstance(part, RecordRange):
                yield from self.encode_range(part)
            else:
                yield part

    def encode_range(self, record_range: RecordRange) -> Iterator[EncodedLines | RecordBlock]:
        """Yield the range in order: finished lines, and blocks for the general encoder."""
        for part in self._compiled.split_range(record_range):
            if isinstance(part, RecordBlock):
                yield part
            else:
                place = record_range.batch.container_position(record_range.last_selected(part.start, part.stop))
                yield EncodedLines(
                    record_range.decoder.file,
                    record_range.selected_numbers(part.start, part.stop),
                    (place.offset,),
                    part.data,
                )


def _make_line_writer(json_line: JsonLine, blocks: BlockDecoder) -> LineWriter:
    from binlogtool.schema.jsonlines import LineWriter

    line_start = b'{"file":' + to_json_bytes(DEFAULT_STYLE.text_value(blocks.file)) + b',"offset":'
    return LineWriter(json_line, blocks.layout, line_start, to_json_bytes)
