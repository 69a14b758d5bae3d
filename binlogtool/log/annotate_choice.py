"""Selection of the parts of a file that an annotated dump shows: one position, selected records, or the whole file."""

from __future__ import annotations

import re
from bisect import bisect_left, bisect_right
from collections.abc import Container, Iterator
from dataclasses import dataclass, field

import msgspec
from msgspec.structs import replace

from binlogtool.formats.layouts import Batch
from binlogtool.log.blocks import BlockDecoder
from binlogtool.log.filters import RecordFilter
from binlogtool.log.opened_file import LogFile
from binlogtool.log.places import LogPosition, split_selection
from binlogtool.log.scan import Scan
from binlogtool.log.segments import DamagedRange
from binlogtool.log.select import Selection

RecordRuns = list[tuple[int, int]] | None
"""The wanted records of a frame, as runs `[first, last)` of records of the batch; None = all."""

_INDEX = re.compile(r"(\w+)\[(\d+)\]")
_POSITION_DEFAULTS = {"start": None, "stop": None, "on_damage": "skip", "live": False}


class AnnotationTarget(msgspec.Struct, frozen=True):
    """The part of a file to show; all None = the whole file.

    Args:
        at: the frame (header, damaged range) that contains this position; for an offset, all that overlap the
            `length`
            bytes from there on.
        selection: only what holds selected records (not together with `at`); its `tail` is ignored.
        field: only rows at or below this path, which may leave out the frame (`header.crc32c`).
        damage_only: damaged ranges with `context` bytes of fields around them.
    """

    at: LogPosition | None = None
    length: int = 1
    field: str | None = None
    damage_only: bool = False
    context: int = 64
    selection: Selection | None = None

    @property
    def is_single(self) -> bool:
        """True for a single position."""
        return self.at is not None

    def overlaps(self, start: int, end: int) -> bool:
        """Return True if the range overlaps the selected bytes."""
        at = self.at
        return at is not None and at.kind == "offset" and start < at.value + self.length and at.value < end


@dataclass(slots=True)
class AnnotationFilter:
    """Decide for each part of a file, in file order, whether it is shown.

    context_end: end of the context of the last damage.
    """

    file: LogFile
    target: AnnotationTarget
    scan: Scan
    context_end: int = 0
    _is_found: bool = False
    _is_in_run: bool = False
    _frame_number: int | None = field(init=False, default=None)
    _filter: RecordFilter | None = field(init=False, default=None)

    def __post_init__(self) -> None:
        match = _INDEX.match(self.target.field or "")
        if self.target.at is None and match and match[1] == self.file.layout.frame.name:
            self._frame_number = int(match[2])
        if self.target.selection is not None:
            self._filter = RecordFilter(self.target.selection)
            (share,) = split_selection(self.target.selection, [self.file.path])
            self._filter.start_file(share, self.file.size, self.file.format.output, self.file.layout.page_size)

    def includes_range(self, start: int, end: int) -> bool:
        """Return True if a range without records is shown: the header, a damaged range, a gap."""
        at = self.target.at
        if self._frame_number is not None:
            return False
        if at is not None:
            return self.target.overlaps(start, end)
        return self._filter is None or self._in_selection(self._filter, start, end)

    def _in_selection(self, record_filter: RecordFilter, start: int, end: int) -> bool:
        """Return True if a range without records is inside a selection by position; other selections have none."""
        if record_filter.transactions or replace(record_filter.selection, **_POSITION_DEFAULTS) != Selection():
            return False
        first, last = record_filter.start, record_filter.stop
        if any(place is not None and place.kind != "offset" for place in (first, last)):
            return self._is_in_run
        return (first is None or end > first.value) and (last is None or start < last.value)

    def includes_damage(self, damage: DamagedRange) -> bool:
        """Return True if a damaged range is shown; it may be a whole frame, or a record that is selected by number."""
        if self._frame_number is not None:
            return damage.payload and self._frame_number == self.scan.frames - 1
        at = self.target.at
        if at is not None and at.kind == "record":  # the record number of its findings
            return any(found.record == at.value for found in damage.findings)
        return self.includes_range(damage.start, damage.end)

    def stops_at(self, damage: DamagedRange) -> bool:
        """Return True if the selection ends at this damage."""
        selection = self.target.selection
        return selection is not None and selection.on_damage == "stop" and damage.tail == "damaged"

    def is_complete(self, reached: int) -> bool:
        """Return True if everything selected has been found."""
        at = self.target.at
        if self._frame_number is not None and self.scan.frames > self._frame_number:
            return True
        if self._filter is not None:
            return self._filter.is_done or self._is_after(self._filter.stop, reached)
        return (
            self._is_found if at is not None and at.kind == "seq" else self._is_after(at, reached, self.target.length)
        )

    def _is_after(self, position: LogPosition | None, reached: int, length: int = 1) -> bool:
        if position is None or position.kind == "seq":
            return False
        return reached >= position.value + length if position.kind == "offset" else self.scan.records > position.value

    # -- frames --------------------------------------------------------------------------------------------------

    def select_frames(self, batch: Batch) -> Iterator[tuple[int, RecordRuns]]:
        """Yield the selected frames of a batch as indexes in it, with the selected records of each."""
        if self.target.at is not None:
            yield from self._select_at(batch, self.target.at)
        elif self._filter is None:
            yield from ((frame, None) for frame in self._candidate_frames(batch))
        else:
            frames: Container[int] = self._candidate_frames(batch)
            yield from (found for found in self._select_by_filter(batch, self._filter) if found[0] in frames)

    def _candidate_frames(self, batch: Batch) -> range | dict[int, None]:
        """Return the frames that the options other than the selection leave."""
        count = batch.frames.count
        if self.target.damage_only:
            return self._frames_near_damage(batch)
        if self._frame_number is not None:
            first = self._frame_number - batch.first_frame
            return range(max(first, 0), min(first + 1, count))
        return range(count)

    def _frames_near_damage(self, batch: Batch) -> dict[int, None]:
        """Return the frames after the last damage, and those that may precede the next one."""
        offsets, ends, count = batch.frames["offset"], batch.frames["end"], batch.frames.count
        first = bisect_left(offsets, self.context_end - batch.base, 0, count)
        last = bisect_right(ends, int(ends[count - 1]) - self.target.context, 0, count)
        return dict.fromkeys([*range(first), *range(max(first, last), count)])

    def _select_by_filter(
        self, batch: Batch, record_filter: RecordFilter
    ) -> Iterator[tuple[int, list[tuple[int, int]]]]:
        decoder = BlockDecoder(self.file.path, self.file.format, self.file.layout, self.scan.limits)
        frame = -1
        runs: list[tuple[int, int]] = []
        self._is_in_run = False
        for first, last, _ in decoder.select_runs(batch, record_filter):
            self._is_in_run = last == batch.records.count
            for index in range(batch.frame_index(first), batch.frame_index(last - 1) + 1):
                if index != frame and runs:
                    yield frame, runs
                    runs = []
                frame = index
                runs.append((first, last))
        if runs:
            yield frame, runs

    def _select_at(self, batch: Batch, position: LogPosition) -> Iterator[tuple[int, RecordRuns]]:
        if position.kind == "offset":
            first, count = position.value - batch.base, batch.frames.count
            start = bisect_right(batch.frames["end"], first, 0, count)
            stop = bisect_left(batch.frames["offset"], first + self.target.length, 0, count)
            yield from ((frame, None) for frame in range(start, stop))
            return
        record = self._find_record(batch, position)
        if record is not None:
            self._is_found = True
            yield batch.frame_index(record), [(record, record + 1)]

    def _find_record(self, batch: Batch, position: LogPosition) -> int | None:
        """Return the record at a position, as an index in the batch."""
        if position.kind == "seq":
            layout = self.file.layout
            numbers = self.file.format.output.decode_envelopes(layout.context, batch, 0, batch.records.count).seq
            return next((i for i, number in enumerate(numbers) if number == position.value), None)
        index = position.value - batch.first_record
        return index if 0 <= index < batch.records.count else None
