"""Flat view of a batch: its records and those inside them, in log order."""

from __future__ import annotations

from array import array
from bisect import bisect_right
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import msgspec

from binlogtool.formats.layouts import Batch
from binlogtool.limits import MIB

_MAX_RUN_BYTES = MIB
"""Unpacked bytes of a run, unless a single record has more."""


class BatchPart(NamedTuple):
    """The records `[first, stop)` of a batch. run_index: index of the first one in its run."""

    batch: Batch
    first: int
    stop: int
    run_index: int


class FlatRecords(msgspec.Struct, frozen=True):
    """A run of records, counted from 0 whether they are inside others or not. batch: the outermost one."""

    batch: Batch
    parts: Sequence[BatchPart]

    @property
    def count(self) -> int:
        """Number of records."""
        last = self.parts[-1]
        return last.run_index + last.stop - last.first

    def find_part(self, index: int) -> BatchPart:
        """Return the part that contains a record."""
        return self.parts[bisect_right(self.parts, index, key=_run_index) - 1]

    def copy_column(self, name: str) -> memoryview:
        """Return a column of the frames of all parts as 64-bit integers; a copy."""
        pieces: list[Any] = [batch.frames[name][first:stop] for batch, first, stop, _ in self.parts]
        whole = bytearray().join(array("q", piece) if isinstance(piece, list) else piece for piece in pieces)
        return memoryview(whole).cast("q")

    def record_numbers(self, start: int, stop: int) -> list[int]:
        """Return the numbers in the file of the records `[start, stop)`; for one inside another, its container's."""
        numbers = list[int]()
        for batch, first, last, at in self.parts:
            low, high = max(start, at) - at + first, min(stop, at + last - first) - at + first
            numbers += batch.record_numbers(low, max(low, high))
        return numbers


def _run_index(part: BatchPart) -> int:
    return part.run_index


def wrap_batch(batch: Batch) -> FlatRecords:
    """Return a batch without inner records as one run."""
    return FlatRecords(batch, [BatchPart(batch, 0, batch.frames.count, 0)])


def flatten_batch(batch: Batch) -> Iterator[FlatRecords]:
    """Yield all records of a batch, inner ones included, in runs with bounded memory."""
    parts, reached, at, size = list[BatchPart](), 0, 0, 0
    for holder, inner in batch.inner.items():
        parts.append(BatchPart(batch, reached, holder + 1, at))
        at += holder + 1 - reached
        reached = holder + 1
        if inner.frames.count:
            parts.append(BatchPart(inner, 0, inner.frames.count, at))
            at += inner.frames.count
        size += len(inner.window)
        if size >= _MAX_RUN_BYTES:
            yield FlatRecords(batch, parts)
            parts, at, size = [], 0, 0
    if reached < batch.frames.count:
        parts.append(BatchPart(batch, reached, batch.frames.count, at))
    if parts:
        yield FlatRecords(batch, parts)
