"""Flat view of a batch: its records and those inside them, in log order."""

from __future__ import annotations

from array import array
from bisect import bisect_right
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import msgspec

from binlogtool.formats.layouts import Batch
from binlogtool.limits import MIB

_MOST = MIB
"""Unpacked bytes of a run, unless a single record has more."""


class Part(NamedTuple):
    """The records `[first, stop)` of a batch. at: index of the first one in its run."""

    batch: Batch
    first: int
    stop: int
    at: int


class Unrolled(msgspec.Struct, frozen=True):
    """A run of records, counted from 0 whether they are inside others or not. batch: the outermost one."""

    batch: Batch
    parts: Sequence[Part]

    @property
    def count(self) -> int:
        """Number of records."""
        last = self.parts[-1]
        return last.at + last.stop - last.first

    def part_of(self, index: int) -> Part:
        """Return the part that contains a record."""
        return self.parts[bisect_right(self.parts, index, key=_at) - 1]

    def column(self, name: str) -> memoryview:
        """Return a column of the frames of all parts as 64-bit integers; a copy."""
        pieces: list[Any] = [batch.frames[name][first:stop] for batch, first, stop, _ in self.parts]
        whole = bytearray().join(array("q", piece) if isinstance(piece, list) else piece for piece in pieces)
        return memoryview(whole).cast("q")

    def records(self, start: int, stop: int) -> list[int]:
        """Return the numbers in the file of the records `[start, stop)`; for one inside another, its container's."""
        made = list[int]()
        for batch, first, last, at in self.parts:
            low, high = max(start, at) - at + first, min(stop, at + last - first) - at + first
            made += batch.numbers(low, max(low, high))
        return made


def _at(part: Part) -> int:
    return part.at


def alone(batch: Batch) -> Unrolled:
    """Return a batch without inner records as one run."""
    return Unrolled(batch, [Part(batch, 0, batch.frames.count, 0)])


def unrolled(batch: Batch) -> Iterator[Unrolled]:
    """Yield all records of a batch, inner ones included, in runs with bounded memory."""
    parts, reached, at, size = list[Part](), 0, 0, 0
    for holder, inner in batch.inner.items():
        parts.append(Part(batch, reached, holder + 1, at))
        at += holder + 1 - reached
        reached = holder + 1
        if inner.frames.count:
            parts.append(Part(inner, 0, inner.frames.count, at))
            at += inner.frames.count
        size += len(inner.window)
        if size >= _MOST:
            yield Unrolled(batch, parts)
            parts, at, size = [], 0, 0
    if reached < batch.frames.count:
        parts.append(Part(batch, reached, batch.frames.count, at))
    if parts:
        yield Unrolled(batch, parts)
