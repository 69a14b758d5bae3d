"""Salvage a damaged file: the provable ranges, with an exact account of what is left out."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, NamedTuple

from binlogtool.formats.layouts import Batch
from binlogtool.formats.repair_rules import Mending
from binlogtool.limits import MIB, Limits
from binlogtool.log.opened_file import LogFile
from binlogtool.log.scan import Scan
from binlogtool.log.segments import Damage
from binlogtool.log.source import read_range
from binlogtool.recovery.plan import Piece
from binlogtool.schema import backends

MOST_MENDED = 16 * MIB
"""Longer damaged ranges are not searched for frames that lack only their head."""


class Salvage(NamedTuple):
    """The provable content of a file.

    Attributes:
        pieces: Header, good frames and, if the file has one, the end mark; a single empty piece if there is none of
            these.
        left_out: The ranges that are left out, described as JSON.
        holes: How many of these have good frames after them.
        fixed_frames: Frames that got a correct header, described as JSON.
    """

    pieces: tuple[Piece, ...] = ()
    left_out: tuple[dict[str, Any], ...] = ()
    holes: int = 0
    mended: tuple[dict[str, Any], ...] = ()


def salvage(file: LogFile, limits: Limits, backend: str) -> Salvage:
    """Salvage a file in one pass."""
    scan = Scan(file.source, file.format, file.layout, backends.choose(backend), limits)
    made = _Making(file, Piece(0, file.layout.frames_at))
    for segment in scan.segments():
        if isinstance(segment, Damage):
            made.damage(segment)
        else:
            made.frames(segment)
    holes = sum(one["offset"] < made.last for one in made.left_out)
    mark = file.layout.frame.end_mark
    if scan.closed and mark:
        made.close(mark)
    pieces = tuple(p for p in made.ranges if p.size) or (Piece(0, 0),)
    return Salvage(pieces, tuple(made.left_out), holes, tuple(made.mended))


class _Making:
    """Collects the content of a salvaged file.

    Attributes:
        last_frame_start: Offset of the last kept frame in the file.
    """

    def __init__(self, file: LogFile, head: Piece) -> None:
        self.ranges = [head]
        self.left_out: list[dict[str, Any]] = []
        self.mended: list[dict[str, Any]] = []
        self.last = 0
        self._file = file

    def frames(self, batch: Batch) -> None:
        """Keep good frames."""
        offsets, ends = batch.frames["offset"], batch.frames["end"]
        for index in range(batch.frames.count):
            self._keep(batch.base + int(offsets[index]), batch.base + int(ends[index]))

    def damage(self, damage: Damage) -> None:
        """Keep what can be proven of a damaged range; leave the rest out."""
        place = damage.start
        for one in self._proven(damage):
            start, end = damage.start + one.start, damage.start + one.end
            if start > place:
                self.left_out.append(_told(damage, place, start))
            self.ranges.append(Piece(data=one.head))
            self._keep(start + len(one.head), end)
            text = "a new head; all that follows it is proven by the stored checksum"
            self.mended.append({"offset": start, "length": end - start, "message": text})
            place = end
        if place < damage.end:
            self.left_out.append(_told(damage, place, damage.end))

    def close(self, mark: bytes) -> None:
        """Append the end mark: from the file if it follows the last frame directly, else as new bytes."""
        last = self.ranges[-1]
        if last.kept and read_range(self._file.source, last.end, len(mark)) == mark:
            self.ranges[-1] = Piece(last.start, last.end + len(mark))
        else:
            self.ranges.append(Piece(data=mark))

    def _proven(self, damage: Damage) -> Iterable[Mending]:
        mend = self._file.format.repair.mend_frames
        if mend is None or damage.payload or damage.end - damage.start > MOST_MENDED:
            return ()
        return mend(self._file.layout, read_range(self._file.source, damage.start, damage.end - damage.start))

    def _keep(self, start: int, end: int) -> None:
        before = self.ranges[-1]
        if before.kept and before.end == start:
            self.ranges[-1] = Piece(before.start, end)
        else:
            self.ranges.append(Piece(start, end))
        self.last = start


def _told(damage: Damage, start: int, end: int) -> dict[str, Any]:
    first = damage.findings[0] if damage.findings else None
    return {
        "offset": start,
        "length": end - start,
        "id": first.id if first else "damaged-range",
        "message": first.message if first else "nothing provable",
    }
