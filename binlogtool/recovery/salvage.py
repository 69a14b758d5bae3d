"""What is provable of a damaged file, as ranges, with an exact account of what is left out."""

from __future__ import annotations

from typing import Any, NamedTuple

from binlogtool.formats.base import Batch
from binlogtool.limits import Limits
from binlogtool.log.open import LogFile
from binlogtool.log.scan import Damage, Scan
from binlogtool.recovery.plan import Piece
from binlogtool.schema import backends


class Salvage(NamedTuple):
    """pieces: header, good frames, and the end mark if the file has one. left_out: the damaged ranges, told.

    holes: of them, those with good frames behind.
    """

    pieces: tuple[Piece, ...]
    left_out: list[dict[str, Any]]
    holes: int


def salvage(file: LogFile, limits: Limits, backend: str) -> Salvage:
    """One pass over one file."""
    scan = Scan(file.source, file.format, file.layout, backends.choose(backend, file.size, "rows"), limits)
    ranges = [Piece(0, file.layout.frames_at)]
    left_out: list[dict[str, Any]] = []
    for segment in scan.segments():
        if isinstance(segment, Damage):
            left_out.append(_told(segment))
        elif segment.frames.count:
            _add(ranges, segment)
    holes = sum(one["offset"] < ranges[-1].start for one in left_out)
    mark = file.layout.frame.end_mark
    if scan.closed and mark:
        ranges.append(Piece(data=mark))  # it stands behind the last frame, perhaps with something between
    return Salvage(tuple(p for p in ranges if p.size), left_out, holes)


def _add(ranges: list[Piece], batch: Batch) -> None:
    offsets, ends = batch.frames["offset"], batch.frames["end"]
    for index in range(batch.frames.count):
        start, end = batch.base + int(offsets[index]), batch.base + int(ends[index])
        if ranges[-1].end == start:
            ranges[-1] = Piece(ranges[-1].start, end)
        else:
            ranges.append(Piece(start, end))


def _told(damage: Damage) -> dict[str, Any]:
    first = damage.findings[0] if damage.findings else None
    return {
        "offset": damage.start,
        "length": damage.end - damage.start,
        "id": first.id if first else "damaged-range",
        "message": first.message if first else "nothing provable",
    }
