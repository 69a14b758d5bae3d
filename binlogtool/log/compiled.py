"""Compiled reading of records, with a transparent fallback to Python.

Compiled code writes records until it meets one that it does not support. That one is decoded by Python; where many are,
Python takes runs of growing length, since each switch costs as much as many records.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any, Generic, NamedTuple, Protocol, TypeVar

from binlogtool.formats.jsonline import JsonLine
from binlogtool.formats.layouts import Batch
from binlogtool.log.blocks import BlockDecoder
from binlogtool.log.records import RecordBlock
from binlogtool.log.stretches import MAX_BLOCK_RECORDS, RecordRange

if TYPE_CHECKING:
    from binlogtool.schema.jsonmembers import WrittenRecords

D = TypeVar("D")
D_co = TypeVar("D_co", covariant=True)

MIN_COMPILED_RUN = 32
"""So many records by compiled code do not pay for the changes of the hand."""


class CompiledWriter(Protocol[D_co]):
    """Compiled code for the records of one file."""

    def locate_batch(self, batch: Batch) -> Any:
        """Return what `write` needs of a batch, valid as long as the batch; None if the batch is not supported."""

    def write(self, prepared: Any, start: int, stop: int, mask: bytes | None = None) -> WrittenRecords[D_co]:
        """Write as many of the records `[start, stop)` of a batch as possible. mask: selected ones, from `start`."""


class CompiledRun(NamedTuple, Generic[D]):
    """The records `[start, stop)` of a batch, and the output for the selected ones; valid until the next run."""

    record_range: RecordRange
    start: int
    stop: int
    data: D


class CompiledSplitter(Generic[D]):
    """Turn record ranges into compiled runs. make_writer: creates the writer of a file whose format has kernels."""

    def __init__(self, make_writer: Callable[[JsonLine, BlockDecoder], CompiledWriter[D]]) -> None:
        self._make_writer = make_writer
        self._decoder: BlockDecoder | None = None
        self._writer: CompiledWriter[D] | None = None
        self._python_run = 1

    def is_current_file(self, decoder: BlockDecoder) -> bool:
        """Return True if the last records were those of this file."""
        return decoder is self._decoder

    def split_range(self, record_range: RecordRange) -> Iterator[CompiledRun[D] | RecordBlock]:
        """Yield the range in order: finished runs, and blocks decoded by Python."""
        writer = self._get_writer(record_range.decoder)
        if writer is None:
            yield from record_range.decode_blocks(record_range.start, record_range.stop)
        else:
            yield from self._write_range(record_range, writer)

    def _write_range(
        self, record_range: RecordRange, writer: CompiledWriter[D]
    ) -> Iterator[CompiledRun[D] | RecordBlock]:
        position, stop = record_range.start, record_range.stop
        if self._python_run > 1 and stop - position < MIN_COMPILED_RUN:  # the last records were refused
            yield from record_range.decode_blocks(position, stop)
            return
        prepared = writer.locate_batch(record_range.batch)
        if prepared is None:
            yield from record_range.decode_blocks(position, stop)
            return
        while position < stop:
            data, reached, refused = writer.write(prepared, position, stop, record_range.marks_from(position))
            if record_range.has_selected(position, reached):
                yield CompiledRun(record_range, position, reached, data)
            if refused:
                self._python_run = (
                    min(2 * self._python_run, MAX_BLOCK_RECORDS) if reached - position < MIN_COMPILED_RUN else 1
                )
                after = min(reached + self._python_run, stop)
                yield from record_range.decode_blocks(reached, after)
                reached = after
            position = reached

    def _get_writer(self, decoder: BlockDecoder) -> CompiledWriter[D] | None:
        """Return the compiled writer of a file; None if its format has none, or if it nests deeper than the limits."""
        if decoder is not self._decoder:
            self._decoder, self._python_run = decoder, 1
            make_line = decoder.format.output.json_line
            line = None if make_line is None else make_line(decoder.layout.context)
            fits = line is not None and line.depth <= decoder.limits.max_depth
            self._writer = self._make_writer(line, decoder) if line is not None and fits else None
        return self._writer
