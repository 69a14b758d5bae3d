"""Divide a file into parts that can be read alone, and find the points where its reading can resume."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import msgspec
from msgspec.structs import replace

from binlogtool.core.open_file import (
    HEAD_BYTES,
    LogFile,
    TruncatedSource,
    Window,
    is_url,
)
from binlogtool.core.scan_file import ByteAccount, DamagedRange, Scan
from binlogtool.findings import Finding
from binlogtool.format_api.format import Format
from binlogtool.format_api.layout import Batch, LogFileLayout, SplitFinder, SplitPoint
from binlogtool.limits import KIB, MIB

if TYPE_CHECKING:
    pass


_READS_PER_PART = 8
"""Number of reads per part: split points are looked for after each read, so near the end of the part."""

MIN_READ_BYTES = 16 * KIB


class ResumePoint(msgspec.Struct, frozen=True):
    """Position at which reading can start: file offset, numbers of the next record and frame, and reader state."""

    offset: int
    record: int
    frame: int
    carried: Any = None


class FilePart(msgspec.Struct, frozen=True):
    """The bytes `[start, end)` of a file.

    start: None = its beginning, with the findings about its header. end: None = the end of the file.
    """

    start: ResumePoint | None = None
    end: int | None = None

    def find_change_since_open(self, file: LogFile) -> Finding | None:
        """Return a finding if these bytes changed while they were read; growth of a local file is no change."""
        change = file.find_change_since_open()
        if change is None or self.end is None or is_url(file.source.name):
            return change
        before, after = (change.facts.get(name, -1) for name in ("size_before", "size_after"))
        return None if after > before >= self.end else change

    def make_scan(self, full_scan: Scan, format_: Format, layout: LogFileLayout) -> Scan:
        """Create the pass over this part; restore the state of its start into the layout's context."""
        source = full_scan.source if self.end is None else TruncatedSource(full_scan.source, self.end)
        if self.start is None:
            return replace(full_scan, source=source)
        split_finder = None if format_.reading.split_finder is None else format_.reading.split_finder(layout)
        assert split_finder is not None  # this file made the resume point
        level = split_finder.restore_state(self.start.carried, self.start.record)
        return replace(
            full_scan, source=source, begin=self.start.offset, account=ByteAccount(), records=self.start.record,
            frames=self.start.frame, layout=full_scan.layout if level is None else replace(full_scan.layout,
            frame=level),
        )  # fmt: skip


WHOLE_FILE = FilePart()


class ResumePointFinder(msgspec.Struct):
    """Find the resume points of one file in one pass.

    Args:
        read_bytes: number of bytes to read at a time.
        skips_damage: continue after damage; otherwise no resume points are found after it.
    """

    full_scan: Scan
    read_bytes: int = MIB
    begin: ResumePoint | None = None
    skips_damage: bool = False

    def iter_resume_points(self) -> Iterator[ResumePoint]:
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
            split_finder.restore_state(self.begin.carried, self.begin.record)
        for segment in scan.segments():
            if isinstance(segment, DamagedRange):
                if not self.skips_damage or not segment.is_followed:
                    return
                split_finder.skip_damage()
            elif (split_point := split_finder.find_split_point(segment, scan.backend.compile_kernel)) is not None:
                yield _make_resume_point(segment, split_point, split_finder)


def _make_resume_point(batch: Batch, split_point: SplitPoint, split_finder: SplitFinder) -> ResumePoint:
    frames = split_point.frame_count
    records = batch.records.count if frames == batch.frames.count else frames
    return ResumePoint(
        split_point.offset, batch.first_record + records, batch.first_frame + frames, split_finder.export_state()
    )


def compute_state_for_next_file(full_scan: Scan, part: FilePart = WHOLE_FILE) -> Any:
    """Return the state after the last record of a file that continues in the next file; None if there is none.

    Reads the bytes of `part`, which must be the last part of the file.
    """
    format_, layout = full_scan.format, full_scan.layout
    split_finder = (
        None
        if format_.reading.split_finder is None or not format_.reading.carries_state
        else format_.reading.split_finder(layout)
    )
    if split_finder is None:
        return None
    scan = part.make_scan(replace(full_scan, layout=split_finder.layout), format_, layout)
    if part.start is not None:
        split_finder.restore_state(part.start.carried, part.start.record)
    for segment in scan.segments():
        if isinstance(segment, DamagedRange):
            if segment.tail == "damaged":
                split_finder.skip_damage()
        else:
            split_finder.find_split_point(segment, full_scan.backend.compile_kernel)
    return split_finder.export_state_for_next_file()


def divide_file(full_scan: Scan, min_part_size: int) -> list[FilePart]:
    """Divide a file into parts of at least `min_part_size` bytes each except the last; one part if it cannot be
    divided.
    """
    return divide_range(full_scan, min_part_size, None, None)


def divide_range(full_scan: Scan, min_part_size: int, begin: ResumePoint | None, end: int | None) -> list[FilePart]:
    """Divide `[begin, end)` of a file into parts. begin, end: None = those of the file."""
    stop = full_scan.source.size if end is None else end
    first = full_scan.layout.frames_at if begin is None else begin.offset
    if stop is None or stop - first <= min_part_size:
        return [FilePart(begin, end)]
    resume_points: list[ResumePoint] = []
    next_offset = first + min_part_size
    for resume_point in ResumePointFinder(
        full_scan, min(MIB, max(MIN_READ_BYTES, min_part_size // _READS_PER_PART)), begin
    ).iter_resume_points():
        if resume_point.offset >= stop:
            break
        if resume_point.offset >= next_offset:
            resume_points.append(resume_point)
            next_offset = resume_point.offset + min_part_size
    return [
        FilePart(start, end if behind is None else behind.offset)
        for start, behind in zip([begin, *resume_points], [*resume_points, None], strict=True)
    ]
