"""Units of a log file for comparison, in order: header, frames, damaged ranges, gaps.

Ranges that are known already are skipped without decoding their frames.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterator
from typing import Any

import msgspec

from binlogtool.findings import Finding
from binlogtool.formats.described import BodyWithFindings
from binlogtool.formats.layouts import Batch
from binlogtool.limits import MIB
from binlogtool.log.annotate_walk import AnnotationWalker
from binlogtool.log.segments import DamagedRange
from binlogtool.log.source import read_range
from binlogtool.schema.annotation import AnnotatedPiece

_MAX_COMPARED_RECORDS = 256
"""Records of a frame that are looked at to know it again."""


class DiffUnit(msgspec.Struct, frozen=True):
    """One unit, `[start, end)` of the file.

    Args:
        kind: header, frame, damage or gap.
        number: of the frame.
        data: its bytes; None if they are too many.
        record, record_count: number of the first record in it, and how many it has.
        content: (type, object, content) of the records, without when and where they were written.
    """

    kind: str
    start: int
    end: int
    number: int
    data: bytes | None
    record: int = 0
    record_count: int = 0
    content: tuple[tuple[str, str | None, str], ...] = ()
    damage: DamagedRange | None = None

    @property
    def content_kind(self) -> tuple[Any, ...]:
        """Types and objects alone."""
        return (self.kind, *((type_, object_) for type_, object_, _ in self.content))


class DiffUnits:
    """The units of one file in order; those that end at or before `known` are only counted, in `skipped_records`."""

    def __init__(self, walk: AnnotationWalker) -> None:
        self._walk = walk
        self._scan = walk.scan
        self.known_end = 0
        self.skipped_records = 0
        self._units = self._iter_units()

    def __iter__(self) -> Iterator[DiffUnit]:
        return self._units

    def annotate_unit(self, unit: DiffUnit) -> AnnotatedPiece:
        """Return a unit with its fields."""
        match unit.kind:
            case "header":
                return self._walk.annotate_header(unit.end)
            case "frame":
                assert unit.data is not None
                return self._walk.annotate_frame(unit.start, unit.data, unit.number)
            case "damage":
                assert unit.damage is not None
                return self._walk.annotate_damage(unit.damage, unit.number)
        return self._walk.annotate_gap(unit.start, unit.end)

    def _iter_units(self) -> Iterator[DiffUnit]:
        reached, layout = 0, self._walk.file.layout
        if (layout.readable or layout.encrypted_without_key) and layout.frames_at:
            reached = layout.frames_at
            yield from self._make_plain_unit("header", 0, reached)
        for segment in self._scan.segments():
            start, end = self._walk.bounds(segment)
            yield from self._make_plain_unit("gap", reached, start)
            reached = end
            if isinstance(segment, Batch):
                yield from self._make_frame_units(segment)
            else:
                yield from self._make_plain_unit("damage", start, end, segment)
        yield from self._make_plain_unit("gap", reached, self._scan.end)

    def _make_plain_unit(
        self, kind: str, start: int, end: int, damage: DamagedRange | None = None
    ) -> Iterator[DiffUnit]:
        if end > max(start, self.known_end):
            is_small = end - start <= MIB
            data = read_range(self._walk.file.source, start, end - start) if is_small else None
            yield DiffUnit(kind, start, end, self._scan.frames - 1, data, self._scan.records, damage=damage)

    def _make_frame_units(self, batch: Batch) -> Iterator[DiffUnit]:
        self._walk.learn(batch)
        ends, count, frame = batch.frames["end"], batch.frames.count, 0
        while frame < count:
            if int(ends[frame]) + batch.base <= self.known_end:
                first_unknown = bisect_right(ends, self.known_end - batch.base, frame, count)
                self.skipped_records += self._first_record(batch, first_unknown) - self._first_record(batch, frame)
                frame = first_unknown
            else:
                yield self._make_frame_unit(batch, frame)
                frame += 1

    def _make_frame_unit(self, batch: Batch, frame: int) -> DiffUnit:
        start, data = batch.base + int(batch.frames["offset"][frame]), batch.frame_bytes(frame)
        first, stop = self._first_record(batch, frame), self._first_record(batch, frame + 1)
        content = self._decode_content(batch, first, min(stop, first + _MAX_COMPARED_RECORDS))
        number, record = batch.first_frame + frame, batch.first_record + first
        return DiffUnit("frame", start, start + len(data), number, data, record, stop - first, content)

    def _decode_content(self, batch: Batch, first: int, stop: int) -> tuple[tuple[str, str | None, str], ...]:
        if first == stop:
            return ()
        file, limits = self._walk.file, self._walk.limits
        envelopes = file.format.output.decode_envelopes(file.layout.context, batch, first, stop)
        bodies = file.format.output.decode_bodies(file.layout.context, batch, first, stop, limits)
        own_values = zip(envelopes.seq, envelopes.time, envelopes.txn, envelopes.origin, strict=True)
        content = (
            repr(_strip_own_values(_unwrap_body(body), when)) for body, when in zip(bodies, own_values, strict=True)
        )
        return tuple(zip(envelopes.type, envelopes.object, content, strict=True))

    @staticmethod
    def _first_record(batch: Batch, frame: int) -> int:
        """Return the first record of a frame, as an index in the batch."""
        return frame if batch.rows is None else bisect_left(batch.rows["span"], frame, 0, batch.rows.count)


def _strip_own_values(value: Any, own_values: tuple[Any, ...]) -> Any:
    """Return a body without the numbers and times that another server would have given the same record."""
    if isinstance(value, dict):
        return {
            name: _strip_own_values(inner, own_values)
            for name, inner in value.items()
            if "timestamp" not in str(name) and (isinstance(inner, dict | list) or inner not in own_values)
        }
    return [_strip_own_values(inner, own_values) for inner in value] if isinstance(value, list) else value


def _unwrap_body(body: Any) -> Any:
    body = body.body if isinstance(body, BodyWithFindings) else body
    return None if isinstance(body, Finding) else body
