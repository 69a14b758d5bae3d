"""Salvage a damaged file: the provable ranges, with an exact account of what is left out."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, NamedTuple

from binlogtool.formats.layouts import Batch
from binlogtool.formats.repair_rules import FrameHeaderFix
from binlogtool.limits import MIB, Limits
from binlogtool.log.opened_file import LogFile
from binlogtool.log.scan import Scan
from binlogtool.log.segments import DamagedRange
from binlogtool.log.source import read_range
from binlogtool.recovery.plan import ResultPiece
from binlogtool.schema import backends

MAX_SEARCHED_DAMAGE = 16 * MIB
"""Longer damaged ranges are not searched for frames that lack only their head."""


class SalvagedContent(NamedTuple):
    """The provable content of a file.

    Attributes:
        pieces: Header, good frames and, if the file has one, the end mark; a single empty piece if there is none of
            these.
        left_out: The ranges that are left out, described as JSON.
        holes: How many of these have good frames after them.
        fixed_frames: Frames that got a correct header, described as JSON.
    """

    pieces: tuple[ResultPiece, ...] = ()
    left_out: tuple[dict[str, Any], ...] = ()
    holes: int = 0
    fixed_frames: tuple[dict[str, Any], ...] = ()


def salvage_file(file: LogFile, limits: Limits, backend: str) -> SalvagedContent:
    """Salvage a file in one pass."""
    scan = Scan(file.source, file.format, file.layout, backends.choose_backend(backend), limits)
    builder = _SalvageBuilder(file, ResultPiece(0, file.layout.frames_at))
    for segment in scan.segments():
        if isinstance(segment, DamagedRange):
            builder.add_damage(segment)
        else:
            builder.add_frames(segment)
    holes = sum(one["offset"] < builder.last_frame_start for one in builder.left_out)
    end_mark = file.layout.frame.end_mark
    if scan.closed and end_mark:
        builder.add_end_mark(end_mark)
    pieces = tuple(p for p in builder.pieces if p.size) or (ResultPiece(0, 0),)
    return SalvagedContent(pieces, tuple(builder.left_out), holes, tuple(builder.fixed_frames))


class _SalvageBuilder:
    """Collects the content of a salvaged file.

    Attributes:
        last_frame_start: Offset of the last kept frame in the file.
    """

    def __init__(self, file: LogFile, header: ResultPiece) -> None:
        self.pieces = [header]
        self.left_out: list[dict[str, Any]] = []
        self.fixed_frames: list[dict[str, Any]] = []
        self.last_frame_start = 0
        self._file = file

    def add_frames(self, batch: Batch) -> None:
        """Keep good frames."""
        offsets, ends = batch.frames["offset"], batch.frames["end"]
        for index in range(batch.frames.count):
            self._keep_range(batch.base + int(offsets[index]), batch.base + int(ends[index]))

    def add_damage(self, damage: DamagedRange) -> None:
        """Keep what can be proven of a damaged range; leave the rest out."""
        position = damage.start
        for frame in self._find_provable_frames(damage):
            start, end = damage.start + frame.start, damage.start + frame.end
            if start > position:
                self.left_out.append(_describe_omission(damage, position, start))
            self.pieces.append(ResultPiece(data=frame.head))
            self._keep_range(start + len(frame.head), end)
            text = "a new head; all that follows it is proven by the stored checksum"
            self.fixed_frames.append({"offset": start, "length": end - start, "message": text})
            position = end
        if position < damage.end:
            self.left_out.append(_describe_omission(damage, position, damage.end))

    def add_end_mark(self, end_mark: bytes) -> None:
        """Append the end mark: from the file if it follows the last frame directly, else as new bytes."""
        last = self.pieces[-1]
        if last.is_original and read_range(self._file.source, last.end, len(end_mark)) == end_mark:
            self.pieces[-1] = ResultPiece(last.start, last.end + len(end_mark))
        else:
            self.pieces.append(ResultPiece(data=end_mark))

    def _find_provable_frames(self, damage: DamagedRange) -> Iterable[FrameHeaderFix]:
        find_frames = self._file.format.repair.fix_frames
        if find_frames is None or damage.payload or damage.end - damage.start > MAX_SEARCHED_DAMAGE:
            return ()
        return find_frames(self._file.layout, read_range(self._file.source, damage.start, damage.end - damage.start))

    def _keep_range(self, start: int, end: int) -> None:
        before = self.pieces[-1]
        if before.is_original and before.end == start:
            self.pieces[-1] = ResultPiece(before.start, end)
        else:
            self.pieces.append(ResultPiece(start, end))
        self.last_frame_start = start


def _describe_omission(damage: DamagedRange, start: int, end: int) -> dict[str, Any]:
    first = damage.findings[0] if damage.findings else None
    return {
        "offset": start,
        "length": end - start,
        "id": first.id if first else "damaged-range",
        "message": first.message if first else "nothing provable",
    }
