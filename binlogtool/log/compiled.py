"""Compiled reading of records, with a transparent fallback to Python.

Compiled code writes records until it meets one that it does not support. That one is decoded by Python; where many
are,
Python takes runs of growing length, since each switch costs as much as many records.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any, Generic, NamedTuple, Protocol, TypeVar

from binlogtool.formats.jsonline import JsonLine
from binlogtool.formats.layouts import Batch
from binlogtool.log.blocks import Blocks
from binlogtool.log.records import Block
from binlogtool.log.stretches import BLOCK, Stretch

if TYPE_CHECKING:
    from binlogtool.schema.jsonmembers import Written

D = TypeVar("D")
D_co = TypeVar("D_co", covariant=True)

_FEW = 32
"""So many records by compiled code do not pay for the changes of the hand."""


class Writer(Protocol[D_co]):
    """Compiled code for the records of one file."""

    def places(self, batch: Batch) -> Any:
        """Return what `write` needs of a batch, valid as long as the batch; None if the batch is not supported."""

    def write(self, places: Any, start: int, stop: int, marks: bytes | None = None) -> Written[D_co]:
        """Write as many of the records `[start, stop)` of a batch as possible. marks: selected ones, from `start`."""


class Run(NamedTuple, Generic[D]):
    """The records `[start, stop)` of a batch, and the output for the selected ones; valid until the next run."""

    stretch: Stretch
    start: int
    stop: int
    data: D


class Compiled(Generic[D]):
    """Turn record ranges into compiled runs. make: creates the writer of a file whose format has kernels."""

    def __init__(self, make: Callable[[JsonLine, Blocks], Writer[D]]) -> None:
        self._make = make
        self._maker: Blocks | None = None
        self._writer: Writer[D] | None = None
        self._run = 1

    def is_at(self, maker: Blocks) -> bool:
        """Return True if the last records were those of this file."""
        return maker is self._maker

    def parts(self, stretch: Stretch) -> Iterator[Run[D] | Block]:
        """Yield the range in order: finished runs, and blocks decoded by Python."""
        writer = self._writer_of(stretch.maker)
        if writer is None:
            yield from stretch.blocks(stretch.start, stretch.stop)
        else:
            yield from self._written(stretch, writer)

    def _written(self, stretch: Stretch, writer: Writer[D]) -> Iterator[Run[D] | Block]:
        at, stop = stretch.start, stretch.stop
        if self._run > 1 and stop - at < _FEW:  # the last records were refused
            yield from stretch.blocks(at, stop)
            return
        places = writer.places(stretch.batch)
        if places is None:
            yield from stretch.blocks(at, stop)
            return
        while at < stop:
            data, reached, refused = writer.write(places, at, stop, stretch.marks_from(at))
            if stretch.means_any(at, reached):
                yield Run(stretch, at, reached, data)
            if refused:
                self._run = min(2 * self._run, BLOCK) if reached - at < _FEW else 1
                after = min(reached + self._run, stop)
                yield from stretch.blocks(reached, after)
                reached = after
            at = reached

    def _writer_of(self, maker: Blocks) -> Writer[D] | None:
        """Return the compiled writer of a file; None if its format has none, or if it nests deeper than the limits."""
        if maker is not self._maker:
            self._maker, self._run = maker, 1
            declared = maker.format.output.json
            line = None if declared is None else declared(maker.layout.context)
            fits = line is not None and line.depth <= maker.limits.max_depth
            self._writer = self._make(line, maker) if line is not None and fits else None
        return self._writer
