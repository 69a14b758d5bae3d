"""Row batches: many rows of one table as columns, by compiled code where a format has it, else one by one."""

from __future__ import annotations

from collections.abc import Iterator

from binlogtool.formats.layouts import Batch
from binlogtool.formats.tables import EventReader
from binlogtool.log.blocks import Blocks
from binlogtool.log.filters import Filter
from binlogtool.log.records import Block, Crowd
from binlogtool.log.stretches import Stretch, widened

_FEW = 32
"""So many records at once do not pay for the change of the hand."""


class Crowds:
    """The splitter of one file (`log.open.Splitter`)."""

    def __init__(self) -> None:
        self._run = 1

    def of(self, maker: Blocks, batch: Batch, wanted: Filter) -> Iterator[Crowd | Block]:
        """Yield the selected records of a batch."""
        if not isinstance(maker.reader, EventReader):
            yield from maker.of(batch, wanted)
            return
        for part in maker.stretches(batch, wanted):
            if isinstance(part, Stretch):
                yield from self._told(part, maker.reader)
            else:
                yield part

    def _told(self, stretch: Stretch, reader: EventReader) -> Iterator[Crowd | Block]:
        at, stop, maker, batch = stretch.start, stretch.stop, stretch.maker, stretch.batch
        while at < stop:
            told, reached = reader.events(maker.layout.context, batch, at, stop, maker.limits)
            if told is not None:
                end = batch.base + int(batch.frames["end"][reached - 1])
                yield Crowd(maker.file, maker.format.name, batch.first_record, batch.base, end, told)
            if reached < stop:
                self._run = widened(self._run, reached - at, _FEW)
                after = min(reached + self._run, stop)
                yield from stretch.blocks(reached, after)
                reached = after
            at = reached
