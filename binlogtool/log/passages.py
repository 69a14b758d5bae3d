"""SQL fragments: script text of many records by compiled code where a format has it, else record by record."""

from __future__ import annotations

from collections.abc import Iterator

from binlogtool.formats.layouts import Batch
from binlogtool.formats.unrolled import Unrolled, unrolled
from binlogtool.log.blocks import Blocks
from binlogtool.log.filters import Filter
from binlogtool.log.records import Block, Passage
from binlogtool.log.stretches import BLOCK, Stretch
from binlogtool.schema.scanner import Backend

_FEW = 32
"""So many records by compiled code do not pay for the change of the hand."""


class Passages:
    """The splitter of one file (`log.open.Splitter`)."""

    def __init__(self, backend: Backend) -> None:
        self._backend = backend
        self._run = 1

    def of(self, maker: Blocks, batch: Batch, wanted: Filter) -> Iterator[Passage | Block]:
        """Yield the selected records of a batch."""
        if batch.inner and wanted.takes_all:
            for run in unrolled(batch):
                yield from self._unrolled(maker, run)
            return
        for part in maker.stretches(batch, wanted, inside=True):
            if isinstance(part, Stretch):
                yield from self._written(part)
            else:
                yield part

    def _unrolled(self, maker: Blocks, run: Unrolled) -> Iterator[Passage | Block]:
        """Yield a run of records with those inside them; part by part where it cannot be written as a whole."""
        at, script = 0, maker.script
        assert script is not None
        while at < run.count:
            start, context = at, maker.layout.context
            data, at = script.quick(context, run, start, run.count, maker.limits, self._backend.compile)
            if at > start:
                batch, first, _, number = run.part_of(at - 1)
                place = batch.place_of(first + at - 1 - number)
                yield Passage(maker.file, run.records(start, at), (place.offset,), data)
            if at < run.count:
                batch, first, stop, number = run.part_of(at)
                yield from self._written(Stretch(maker, batch, first + at - number, stop))
                at = number + stop - first

    def _written(self, stretch: Stretch) -> Iterator[Passage | Block]:
        at, stop, maker, batch = stretch.start, stretch.stop, stretch.maker, stretch.batch
        script = maker.script
        assert script is not None
        while at < stop:
            data, reached = script.quick(maker.layout.context, batch, at, stop, maker.limits, self._backend.compile)
            if reached > at:
                place = batch.place_of(reached - 1)
                yield Passage(maker.file, batch.numbers(at, reached), (place.offset,), data)
            if reached < stop:
                self._run = min(2 * self._run + 1, BLOCK) if reached - at < _FEW else 1
                after = min(reached + self._run, stop)
                yield from stretch.blocks(reached, after)
                reached = after
            at = reached
