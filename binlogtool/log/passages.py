"""SQL fragments: script text of many records by compiled code where a format has it, else record by record."""

from __future__ import annotations

from collections.abc import Iterator

from binlogtool.formats.layouts import Batch
from binlogtool.formats.unrolled import FlatRecords, flatten_batch
from binlogtool.log.blocks import BlockDecoder
from binlogtool.log.filters import RecordFilter
from binlogtool.log.records import RecordBlock, SqlFragment
from binlogtool.log.stretches import MAX_BLOCK_RECORDS, RecordRange
from binlogtool.schema.scanner import Backend

MIN_COMPILED_RUN = 32
"""So many records by compiled code do not pay for the change of the hand."""


class SqlFragmentSplitter:
    """The splitter of one file (`log.open.Splitter`)."""

    def __init__(self, backend: Backend) -> None:
        self._backend = backend
        self._python_run = 1

    def split_batch(
        self, decoder: BlockDecoder, batch: Batch, record_filter: RecordFilter
    ) -> Iterator[SqlFragment | RecordBlock]:
        """Yield the selected records of a batch."""
        if batch.inner and record_filter.selects_all:
            for run in flatten_batch(batch):
                yield from self._write_flat(decoder, run)
            return
        for part in decoder.split_batch(batch, record_filter, inside=True):
            if isinstance(part, RecordRange):
                yield from self._write_range(part)
            else:
                yield part

    def _write_flat(self, decoder: BlockDecoder, run: FlatRecords) -> Iterator[SqlFragment | RecordBlock]:
        """Yield a run of records with those inside them; part by part where it cannot be written as a whole."""
        position, script = 0, decoder.script
        assert script is not None
        while position < run.count:
            start, context = position, decoder.layout.context
            data, position = script.write_compiled(
                context, run, start, run.count, decoder.limits, self._backend.compile_kernel
            )
            if position > start:
                batch, first, _, part_start = run.find_part(position - 1)
                container = batch.container_position(first + position - 1 - part_start)
                yield SqlFragment(decoder.file, run.record_numbers(start, position), (container.offset,), data)
            if position < run.count:
                batch, first, stop, part_start = run.find_part(position)
                yield from self._write_range(RecordRange(decoder, batch, first + position - part_start, stop))
                position = part_start + stop - first

    def _write_range(self, record_range: RecordRange) -> Iterator[SqlFragment | RecordBlock]:
        position, stop, decoder, batch = record_range.start, record_range.stop, record_range.decoder, record_range.batch
        script = decoder.script
        assert script is not None
        while position < stop:
            data, reached = script.write_compiled(
                decoder.layout.context, batch, position, stop, decoder.limits, self._backend.compile_kernel
            )
            if reached > position:
                container = batch.container_position(reached - 1)
                yield SqlFragment(decoder.file, batch.record_numbers(position, reached), (container.offset,), data)
            if reached < stop:
                self._python_run = (
                    min(2 * self._python_run + 1, MAX_BLOCK_RECORDS) if reached - position < MIN_COMPILED_RUN else 1
                )
                after = min(reached + self._python_run, stop)
                yield from record_range.decode_blocks(reached, after)
                reached = after
            position = reached
