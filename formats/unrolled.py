"""The records of a batch with those inside of them, in the order of the log."""

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
    """The records `[first, stop)` of a batch. at: number of the first one in its run."""

    batch: Batch
    first: int
    stop: int
    at: int


class Unrolled(msgspec.Struct, frozen=True):
    """A run of records, counted from 0 whether they are inside of others or not. batch: the one that holds all."""

    batch: Batch
    parts: Sequence[Part]

    @property
    def count(self) -> int:
        """How many records it has."""
        last = self.parts[-1]
        return last.at + last.stop - last.first

    def part_of(self, index: int) -> Part:
        """The part that a record is in."""
        return self.parts[bisect_right(self.parts, index, key=_at) - 1]

    def column(self, name: str) -> memoryview:
        """A column of the frames of all parts as 64-bit integers; a copy."""
        pieces: list[Any] = [batch.frames[name][first:stop] for batch, first, stop, _ in self.parts]
        whole = bytearray().join(array("q", piece) if isinstance(piece, list) else piece for piece in pieces)
        return memoryview(whole).cast("q")

    def records(self, start: int, stop: int) -> list[int]:
        """The numbers in the file of the records `[start, stop)`; of one inside of another, the number of that one."""
        made = list[int]()
        for batch, first, last, at in self.parts:
            low, high = max(start, at) - at + first, min(stop, at + last - first) - at + first
            made += batch.numbers(low, max(low, high))
        return made


def _at(part: Part) -> int:
    return part.at


def alone(batch: Batch) -> Unrolled:
    """A whole batch as a run."""
    return Unrolled(batch, [Part(batch, 0, batch.frames.count, 0)])


def unrolled(batch: Batch) -> Iterator[Unrolled]:
    """All records of a batch, in runs that are bounded in memory."""
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
