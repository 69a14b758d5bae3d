"""Splits of a big file into parts that give the same records, numbers and findings as one pass over it.

They are planned by one pass over the frames: a part begins at a split point (`formats.cuts`), with the state that holds
there. After the first damage there are no splits.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, cast

import msgspec
from msgspec.structs import replace

from binlogtool.findings import Finding
from binlogtool.formats.base import Format
from binlogtool.formats.cuts import SplitFinder, SplitPoint
from binlogtool.formats.layouts import Batch, LogFileLayout
from binlogtool.limits import KIB, MIB
from binlogtool.log.opened_file import LogFile
from binlogtool.log.scan import Scan
from binlogtool.log.segments import ByteAccount, DamagedRange
from binlogtool.log.source import HEAD_BYTES, TruncatedSource, is_url
from binlogtool.log.window import Window

if TYPE_CHECKING:
    from binlogtool.formats.cuts import CarryingSplitFinder

_READS_PER_PART = 8
"""So many times in a part its end can be found."""

MIN_READ_BYTES = 16 * KIB


class ResumePoint(msgspec.Struct, frozen=True):
    """Where reading can start: file offset, number of the next record and of the next frame, and the state there."""

    offset: int
    record: int
    frame: int
    carried: Any = None


class FilePart(msgspec.Struct, frozen=True):
    """The bytes `[start, end)` of a file.

    start: None = its beginning, with the findings about its header. end: None = all that is there.
    """

    start: ResumePoint | None = None
    end: int | None = None

    def find_change(self, file: LogFile) -> Finding | None:
        """Return a finding if these bytes changed while they were read; growth of a local file is no change."""
        change = file.find_change()
        if change is None or self.end is None or is_url(file.source.name):
            return change
        before, after = (change.facts.get(name, -1) for name in ("size_before", "size_after"))
        return None if after > before >= self.end else change

    def make_scan(self, full_scan: Scan, format_: Format, layout: LogFileLayout) -> Scan:
        """Create the pass over this part; restores the state of its start into the layout's context."""
        source = full_scan.source if self.end is None else TruncatedSource(full_scan.source, self.end)
        if self.start is None:
            return replace(full_scan, source=source)
        split_finder = None if format_.reading.split_finder is None else format_.reading.split_finder(layout)
        assert split_finder is not None  # it made the resume point
        level = split_finder.resume(self.start.carried, self.start.record)
        return replace(
            full_scan, source=source, begin=self.start.offset, account=ByteAccount(), records=self.start.record,
            frames=self.start.frame, layout=full_scan.layout if level is None else replace(full_scan.layout,
            frame=level),
        )  # fmt: skip


WHOLE_FILE = FilePart()


class ResumePointFinder(msgspec.Struct):
    """Find the resume points of one file in one pass.

    Args:
        read_bytes: bytes that are read at a time.
        skips_damage: continue after damage.
    """

    full_scan: Scan
    read_bytes: int = MIB
    begin: ResumePoint | None = None
    skips_damage: bool = False

    def find_all(self) -> Iterator[ResumePoint]:
        """Yield every resume point at the end of a batch of frames; none where the format cannot split this file."""
        format_, layout, source = self.full_scan.format, self.full_scan.layout, self.full_scan.source
        split_finder = (
            None
            if format_.reading.split_finder is None or source.size is None
            else format_.reading.split_finder(layout)
        )
        if split_finder is None:
            return
        max_record = self.full_scan.limits.max_record
        read_bytes = max(
            1, self.read_bytes if max_record is None else min(self.read_bytes, max(max_record, HEAD_BYTES))
        )
        full_scan = replace(self.full_scan, window=Window(source, read_bytes), layout=split_finder.layout)
        scan = FilePart(self.begin).make_scan(full_scan, format_, layout)
        if self.begin is not None:
            split_finder.resume(self.begin.carried, self.begin.record)
        for segment in scan.segments():
            if isinstance(segment, DamagedRange):
                if not self.skips_damage or not segment.is_followed:
                    return
                split_finder.skip_damage()
            elif (split_point := split_finder.feed(segment, scan.backend.compile_kernel)) is not None:
                yield _make_resume_point(segment, split_point, split_finder)


def _make_resume_point(batch: Batch, split_point: SplitPoint, split_finder: SplitFinder) -> ResumePoint:
    frames = split_point.frame_count
    records = batch.records.count if frames == batch.frames.count else frames
    return ResumePoint(
        split_point.offset, batch.first_record + records, batch.first_frame + frames, split_finder.export_state()
    )


def compute_carried_state(full_scan: Scan, part: FilePart = WHOLE_FILE) -> Any:
    """Return the state after the last record of a file that continues in the next file; None if there is none.

    Reads the bytes of `part`, the last one of the file.
    """
    format_, layout = full_scan.format, full_scan.layout
    finder = (
        None
        if format_.reading.split_finder is None or not format_.reading.carries_state
        else format_.reading.split_finder(layout)
    )
    if finder is None:
        return None
    split_finder = cast("CarryingSplitFinder", finder)
    scan = part.make_scan(replace(full_scan, layout=split_finder.layout), format_, layout)
    if part.start is not None:
        split_finder.resume(part.start.carried, part.start.record)
    for segment in scan.segments():
        if isinstance(segment, DamagedRange):
            if segment.tail == "damaged":
                split_finder.skip_damage()
        else:
            split_finder.feed(segment, full_scan.backend.compile_kernel)
    return split_finder.export_state_for_next_file()


def split_file(full_scan: Scan, size: int) -> list[FilePart]:
    """Return parts of at least `size` bytes each except the last; one part for a file that cannot be split."""
    return split_range(full_scan, size, None, None)


def split_range(full_scan: Scan, size: int, begin: ResumePoint | None, end: int | None) -> list[FilePart]:
    """Split `[begin, end)`. begin: None = the beginning of the file; end: None = all that is there."""
    stop = full_scan.source.size if end is None else end
    first = full_scan.layout.frames_at if begin is None else begin.offset
    if stop is None or stop - first <= size:
        return [FilePart(begin, end)]
    resume_points: list[ResumePoint] = []
    next_offset = first + size
    for resume_point in ResumePointFinder(
        full_scan, min(MIB, max(MIN_READ_BYTES, size // _READS_PER_PART)), begin
    ).find_all():
        if resume_point.offset >= stop:
            break
        if resume_point.offset >= next_offset:
            resume_points.append(resume_point)
            next_offset = resume_point.offset + size
    return [
        FilePart(start, end if behind is None else behind.offset)
        for start, behind in zip([begin, *resume_points], [*resume_points, None], strict=True)
    ]
