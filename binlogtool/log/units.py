"""Units of a log file for comparison, in order: header, frames, damaged ranges, gaps.

Ranges that are known already are skipped without decoding their frames.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterator
from typing import Any

import msgspec

from binlogtool.findings import Finding
from binlogtool.formats.described import Noted
from binlogtool.formats.layouts import Batch
from binlogtool.limits import MIB
from binlogtool.log.annotate_walk import Walk
from binlogtool.log.segments import Damage
from binlogtool.log.source import read_range
from binlogtool.schema.annotation import Piece

_MOST_RECORDS = 256
"""Records of a frame that are looked at to know it again."""


class Unit(msgspec.Struct, frozen=True):
    """One unit, `[start, end)` of the file.

    Args:
        kind: header, frame, damage or gap.
        number: of the frame.
        mark: its bytes; None if they are too many.
        record, records: number of the first record in it, and how many it has.
        says: (type, object, content) of the records, without when and where they were written.
    """

    kind: str
    start: int
    end: int
    number: int
    mark: bytes | None
    record: int = 0
    records: int = 0
    says: tuple[tuple[str, str | None, str], ...] = ()
    damage: Damage | None = None

    @property
    def sort(self) -> tuple[Any, ...]:
        """Types and objects alone."""
        return (self.kind, *((type_, object_) for type_, object_, _ in self.says))


class Units:
    """The units of one file in order; those that end at or before `known` are only counted, in `skipped_records`."""

    def __init__(self, walk: Walk) -> None:
        self._walk = walk
        self._scan = walk.scan
        self.known = 0
        self.passed = 0
        self._units = self._each()

    def __iter__(self) -> Iterator[Unit]:
        return self._units

    def piece(self, unit: Unit) -> Piece:
        """Return a unit with its fields."""
        match unit.kind:
            case "header":
                return self._walk.header(unit.end)
            case "frame":
                assert unit.mark is not None
                return self._walk.frame(unit.start, unit.mark, unit.number)
            case "damage":
                assert unit.damage is not None
                return self._walk.damage(unit.damage, unit.number)
        return self._walk.gap(unit.start, unit.end)

    def _each(self) -> Iterator[Unit]:
        reached, layout = 0, self._walk.file.layout
        if (layout.readable or layout.sealed) and layout.frames_at:
            reached = layout.frames_at
            yield from self._other("header", 0, reached)
        for segment in self._scan.segments():
            start, end = self._walk.bounds(segment)
            yield from self._other("gap", reached, start)
            reached = end
            if isinstance(segment, Batch):
                yield from self._frames(segment)
            else:
                yield from self._other("damage", start, end, segment)
        yield from self._other("gap", reached, self._scan.end)

    def _other(self, kind: str, start: int, end: int, damage: Damage | None = None) -> Iterator[Unit]:
        if end > max(start, self.known):
            few = end - start <= MIB
            mark = read_range(self._walk.file.source, start, end - start) if few else None
            yield Unit(kind, start, end, self._scan.frames - 1, mark, self._scan.records, damage=damage)

    def _frames(self, batch: Batch) -> Iterator[Unit]:
        self._walk.learn(batch)
        ends, count, frame = batch.frames["end"], batch.frames.count, 0
        while frame < count:
            if int(ends[frame]) + batch.base <= self.known:
                behind = bisect_right(ends, self.known - batch.base, frame, count)
                self.passed += self._first(batch, behind) - self._first(batch, frame)
                frame = behind
            else:
                yield self._frame(batch, frame)
                frame += 1

    def _frame(self, batch: Batch, frame: int) -> Unit:
        start, data = batch.base + int(batch.frames["offset"][frame]), batch.frame_bytes(frame)
        first, behind = self._first(batch, frame), self._first(batch, frame + 1)
        says = self._says(batch, first, min(behind, first + _MOST_RECORDS))
        number, record = batch.first_frame + frame, batch.first_record + first
        return Unit("frame", start, start + len(data), number, data, record, behind - first, says)

    def _says(self, batch: Batch, first: int, behind: int) -> tuple[tuple[str, str | None, str], ...]:
        if first == behind:
            return ()
        file, limits = self._walk.file, self._walk.limits
        told = file.format.output.describe(file.layout.context, batch, first, behind)
        bodies = file.format.output.bodies(file.layout.context, batch, first, behind, limits)
        own = zip(told.seq, told.time, told.txn, told.origin, strict=True)
        content = (repr(_lasting(_plain(body), when)) for body, when in zip(bodies, own, strict=True))
        return tuple(zip(told.type, told.object, content, strict=True))

    @staticmethod
    def _first(batch: Batch, frame: int) -> int:
        """Return the first record of a frame, as an index in the batch."""
        return frame if batch.rows is None else bisect_left(batch.rows["span"], frame, 0, batch.rows.count)


def _lasting(value: Any, own: tuple[Any, ...]) -> Any:
    """Return a body without the numbers and times that another server would have given the same record."""
    if isinstance(value, dict):
        return {
            name: _lasting(inner, own)
            for name, inner in value.items()
            if "timestamp" not in str(name) and (isinstance(inner, dict | list) or inner not in own)
        }
    return [_lasting(inner, own) for inner in value] if isinstance(value, list) else value


def _plain(body: Any) -> Any:
    body = body.body if isinstance(body, Noted) else body
    return None if isinstance(body, Finding) else body
