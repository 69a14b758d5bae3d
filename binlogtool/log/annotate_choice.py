"""Selection of the parts of a file that an annotated dump shows: one position, selected records, or the whole file."""

from __future__ import annotations

import re
from bisect import bisect_left, bisect_right
from collections.abc import Container, Iterator
from dataclasses import dataclass, field

import msgspec
from msgspec.structs import replace

from binlogtool.formats.layouts import Batch
from binlogtool.log.blocks import Blocks
from binlogtool.log.filters import Filter
from binlogtool.log.opened_file import LogFile
from binlogtool.log.places import Position, shares
from binlogtool.log.scan import Scan
from binlogtool.log.segments import Damage
from binlogtool.log.select import Selection

Runs = list[tuple[int, int]] | None
"""The wanted records of a frame, as runs `[first, last)` of records of the batch; None = all."""

_INDEX = re.compile(r"(\w+)\[(\d+)\]")
_BY_PLACE = {"start": None, "stop": None, "on_damage": "skip", "live": False}


class Wanted(msgspec.Struct, frozen=True):
    """The part of a file to show; all None = the whole file.

    Args:
        at: the frame (header, damaged range) that contains this position; for an offset, all that overlap the
            `length`
            bytes from there on.
        selection: only what holds selected records (not together with `at`); its `tail` is ignored.
        field: only rows at or below this path, which may leave out the frame (`header.crc32c`).
        damage_only: damaged ranges with `context` bytes of fields around them.
    """

    at: Position | None = None
    length: int = 1
    field: str | None = None
    damage_only: bool = False
    context: int = 64
    selection: Selection | None = None

    @property
    def one(self) -> bool:
        """True for a single position."""
        return self.at is not None

    def touches(self, start: int, end: int) -> bool:
        """Return True if the range overlaps the selected bytes."""
        at = self.at
        return at is not None and at.kind == "offset" and start < at.value + self.length and at.value < end


@dataclass(slots=True)
class Choice:
    """Decide for each part of a file, in file order, whether it is shown.

    context_end: end of the context of the last damage.
    """

    file: LogFile
    wanted: Wanted
    scan: Scan
    until: int = 0
    _found: bool = False
    _running: bool = False
    _frame: int | None = field(init=False, default=None)
    _filter: Filter | None = field(init=False, default=None)

    def __post_init__(self) -> None:
        match = _INDEX.match(self.wanted.field or "")
        if self.wanted.at is None and match and match[1] == self.file.layout.frame.name:
            self._frame = int(match[2])
        if self.wanted.selection is not None:
            self._filter = Filter(self.wanted.selection)
            (share,) = shares(self.wanted.selection, [self.file.path])
            self._filter.begin(share, self.file.size, self.file.format.output, self.file.layout.page)

    def covers(self, start: int, end: int) -> bool:
        """Return True if a range without records is shown: the header, a damaged range, a gap."""
        at = self.wanted.at
        if self._frame is not None:
            return False
        if at is not None:
            return self.wanted.touches(start, end)
        return self._filter is None or self._in_selection(self._filter, start, end)

    def _in_selection(self, chosen: Filter, start: int, end: int) -> bool:
        """Return True if a range without records is inside a selection by position; other selections have none."""
        if chosen.transactions or replace(chosen.selection, **_BY_PLACE) != Selection():
            return False
        first, last = chosen.start, chosen.stop
        if any(place is not None and place.kind != "offset" for place in (first, last)):
            return self._running
        return (first is None or end > first.value) and (last is None or start < last.value)

    def damage(self, damage: Damage) -> bool:
        """Return True if a damaged range is shown; it may be a whole frame, or a record that is selected by number."""
        if self._frame is not None:
            return damage.payload and self._frame == self.scan.frames - 1
        at = self.wanted.at
        if at is not None and at.kind == "record":  # the record number of its findings
            return any(found.record == at.value for found in damage.findings)
        return self.covers(damage.start, damage.end)

    def stops(self, damage: Damage) -> bool:
        """Return True if the selection ends at this damage."""
        selection = self.wanted.selection
        return selection is not None and selection.on_damage == "stop" and damage.tail == "damaged"

    def past(self, reached: int) -> bool:
        """Return True if everything selected has been found."""
        at = self.wanted.at
        if self._frame is not None and self.scan.frames > self._frame:
            return True
        if self._filter is not None:
            return self._filter.done or self._behind(self._filter.stop, reached)
        return self._found if at is not None and at.kind == "seq" else self._behind(at, reached, self.wanted.length)

    def _behind(self, place: Position | None, reached: int, length: int = 1) -> bool:
        if place is None or place.kind == "seq":
            return False
        return reached >= place.value + length if place.kind == "offset" else self.scan.records > place.value

    # -- frames --------------------------------------------------------------------------------------------------

    def frames(self, batch: Batch) -> Iterator[tuple[int, Runs]]:
        """Yield the selected frames of a batch as indexes in it, with the selected records of each."""
        if self.wanted.at is not None:
            yield from self._at(batch, self.wanted.at)
        elif self._filter is None:
            yield from ((frame, None) for frame in self._frames(batch))
        else:
            frames: Container[int] = self._frames(batch)
            yield from (found for found in self._selected(batch, self._filter) if found[0] in frames)

    def _frames(self, batch: Batch) -> range | dict[int, None]:
        """Return the frames that the options other than the selection leave."""
        count = batch.frames.count
        if self.wanted.damage_only:
            return self._at_the_rims(batch)
        if self._frame is not None:
            first = self._frame - batch.first_frame
            return range(max(first, 0), min(first + 1, count))
        return range(count)

    def _at_the_rims(self, batch: Batch) -> dict[int, None]:
        """Return the frames after the last damage, and those that may precede the next one."""
        offsets, ends, count = batch.frames["offset"], batch.frames["end"], batch.frames.count
        first = bisect_left(offsets, self.until - batch.base, 0, count)
        last = bisect_right(ends, int(ends[count - 1]) - self.wanted.context, 0, count)
        return dict.fromkeys([*range(first), *range(max(first, last), count)])

    def _selected(self, batch: Batch, chosen: Filter) -> Iterator[tuple[int, list[tuple[int, int]]]]:
        maker = Blocks(self.file.path, self.file.format, self.file.layout, self.scan.limits)
        frame = -1
        runs: list[tuple[int, int]] = []
        self._running = False
        for first, last, _ in maker.chosen(batch, chosen):
            self._running = last == batch.records.count
            for index in range(batch.frame_of(first), batch.frame_of(last - 1) + 1):
                if index != frame and runs:
                    yield frame, runs
                    runs = []
                frame = index
                runs.append((first, last))
        if runs:
            yield frame, runs

    def _at(self, batch: Batch, at: Position) -> Iterator[tuple[int, Runs]]:
        if at.kind == "offset":
            first, count = at.value - batch.base, batch.frames.count
            start = bisect_right(batch.frames["end"], first, 0, count)
            stop = bisect_left(batch.frames["offset"], first + self.wanted.length, 0, count)
            yield from ((frame, None) for frame in range(start, stop))
            return
        record = self._record(batch, at)
        if record is not None:
            self._found = True
            yield batch.frame_of(record), [(record, record + 1)]

    def _record(self, batch: Batch, at: Position) -> int | None:
        """Return the record at a position, as an index in the batch."""
        if at.kind == "seq":
            layout = self.file.layout
            numbers = self.file.format.output.describe(layout.context, batch, 0, batch.records.count).seq
            return next((i for i, number in enumerate(numbers) if number == at.value), None)
        index = at.value - batch.first_record
        return index if 0 <= index < batch.records.count else None
