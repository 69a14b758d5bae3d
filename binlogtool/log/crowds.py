"""Row batches: many rows of one table as columns, by compiled code where a format has it, else one by one."""

from __future__ import annotations

from collections.abc import Iterator

from binlogtool.formats.layouts import Batch
from binlogtool.formats.tables import CompiledTableReader
from binlogtool.log.blocks import BlockDecoder
from binlogtool.log.filters import RecordFilter
from binlogtool.log.records import RecordBlock, RowBatch
from binlogtool.log.stretches import RecordRange, next_python_run

MIN_COMPILED_RUN = 32
"""So many records at once do not pay for the change of the hand."""


class RowBatchSplitter:
    """The splitter of one file (`log.open.Splitter`)."""

    def __init__(self) -> None:
        self._python_run = 1

    def split_batch(
        self, decoder: BlockDecoder, batch: Batch, record_filter: RecordFilter
    ) -> Iterator[RowBatch | RecordBlock]:
        """Yield the selected records of a batch."""
        if not isinstance(decoder.reader, CompiledTableReader):
            yield from decoder.decode_batch(batch, record_filter)
            return
        for part in decoder.split_batch(batch, record_filter):
            if isinstance(part, RecordRange):
                yield from self._read_range(part, decoder.reader)
            else:
                yield part

    def _read_range(self, record_range: RecordRange, reader: CompiledTableReader) -> Iterator[RowBatch | RecordBlock]:
        position, stop, decoder, batch = record_range.start, record_range.stop, record_range.decoder, record_range.batch
        while position < stop:
            rows, reached = reader.read_events(decoder.layout.context, batch, position, stop, decoder.limits)
            if rows is not None:
                end = batch.base + int(batch.frames["end"][reached - 1])
                yield RowBatch(decoder.file, decoder.format.name, batch.first_record, batch.base, end, rows)
            if reached < stop:
                self._python_run = next_python_run(self._python_run, reached - position, MIN_COMPILED_RUN)
                after = min(reached + self._python_run, stop)
                yield from record_range.decode_blocks(reached, after)
                reached = after
            position = reached
