"""Resynchronize: find the next proven frame after damage. Always moves forward, with bounded work."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import TYPE_CHECKING

import msgspec

from binlogtool.schema.frame_scan_loop import Backend, Scanner, StopReason
from binlogtool.schema.lower_frame_schema import LeadingNumber, find_leading_number

if TYPE_CHECKING:
    from binlogtool.core.open_file import Window
    from binlogtool.format_api.layout import ColumnTable, LogFileLayout

_READ_BYTES = 1 << 20
_WORK_PER_BYTE = 64
_MIN_WORK = 1 << 28
_CANDIDATE_COST = 64
_OVERLAP_BYTES = 64
CHECKSUM_RIGHT = 1


class ResyncPoint(msgspec.Struct, frozen=True):
    """Offset after damage where the chain of frames continues.

    At this offset is a proven frame, or (`closing`) the end mark at the very end of the file.
    """

    offset: int
    closing: bool = False


class Resynchronizer:
    """Find the next provable frame of one file. `exhausted`: the work bound was reached."""

    def __init__(self, layout: LogFileLayout, backend: Backend, window: Window, max_frame: int) -> None:
        self._frame = layout.frame
        self._frames_at = layout.frames_at
        self._context = layout.context
        self._window = window
        self._max_frame = max_frame
        self._probe: Scanner = backend.make_scanner(self._frame.schema, self._frame.columns, 1)
        self._pattern = None if self._frame.sync is None else re.compile(self._frame.sync, re.DOTALL)
        self._length_field = (
            None
            if self._frame.length_field is None
            else find_leading_number(self._frame.schema, self._frame.length_field)
        )
        self._work = 0
        self.exhausted = False
        self.data_end = 0
        """End of the last non-zero byte that the last search saw."""

    def find_proven_frame_inside(self, start: int, end: int) -> int | None:
        """Return the first offset in `[start, end)` with a proven frame, among those completely in memory."""
        return next((offset for offset in self._iter_candidates(start, end) if self._is_proven_in_memory(offset)), None)

    def _is_proven_in_memory(self, offset: int) -> bool:
        """Return True if the bytes at `offset` are a proven frame that is completely in memory; reads nothing."""
        start = offset - self._window.base
        self._count_work(0)
        table, _ = self._probe.scan(self._window.buffer, start, self._window.length)
        return self._is_proven_frame(table, start)

    def is_proven(self, offset: int) -> bool:
        """Return True if the bytes at `offset` are a proven frame (by its checksum, or the format's own proof)."""
        window = self._window
        start = offset - window.base
        if start < 0 or start >= window.length:
            return False
        self._count_work(0)
        table, stop = self._probe.scan(window.buffer, start, window.length)
        if table.count == 0 and stop.reason == StopReason.SHORT and not window.ended:
            return self._read_more_of_frame(start, stop.need) and self.is_proven(offset)
        if table.count == 0 and stop.reason == StopReason.CHECKSUM:
            self._count_work(stop.need - start)
        return self._is_proven_frame(table, start)

    def _read_more_of_frame(self, start: int, needed_end: int) -> bool:
        """Read more bytes of the frame at `buffer[start]`, if allowed.

        needed_end: where to stop; -1 = double the bytes.
        """
        window = self._window
        available = window.length - start
        needed = needed_end - start if needed_end >= 0 else min(2 * available, self._max_frame)
        if not available < needed <= self._max_frame:
            return False
        window.load_range(window.base, window.base + start + needed)
        return True

    def _is_proven_frame(self, table: ColumnTable, start: int) -> bool:
        """Return True if the only frame of the table, which begins at `buffer[start]`, is proven."""
        if table.count == 0:
            return False
        end = int(table["end"][0])
        self._count_work(end - start)
        if int(table["checksum"][0]) == CHECKSUM_RIGHT:
            return True
        prove = self._frame.prove
        if prove is None or not prove(bytes(memoryview(self._window.buffer)[start:end]), self._context):
            return False
        return self._is_plausible_end(self._window.base + end)

    def _is_plausible_end(self, offset: int) -> bool:
        """Return True if the file ends or a frame can start at `offset`: required after a frame without a checksum."""
        window = self._window
        window.load_range(window.base, offset + _OVERLAP_BYTES)
        rest = bytes(window.view(offset, offset + _OVERLAP_BYTES))
        if not rest or self._pattern is None:
            return True
        return not rest.strip(b"\0") or self._pattern.match(rest) is not None or self._is_end_mark(offset)

    def _is_end_mark(self, offset: int) -> bool:
        mark = self._frame.end_mark
        return mark is not None and bytes(self._window.view(offset, offset + len(mark))) == mark

    def _is_final_end_mark(self, offset: int) -> bool:
        if not self._is_end_mark(offset):
            return False
        assert self._frame.end_mark is not None
        self._window.load_range(self._window.base, offset + len(self._frame.end_mark) + 1)
        return self._window.ended and offset + len(self._frame.end_mark) == self._window.end

    def _count_work(self, size: int) -> None:
        self._work += size + _CANDIDATE_COST
        bound = _MIN_WORK + _WORK_PER_BYTE * self._window.end
        self.exhausted = self._work > bound

    def find_resync_point(self, damage_offset: int, declared_end: int = -1) -> ResyncPoint | None:
        """Return the first resync point after the damage at `damage_offset`.

        declared_end: where the damaged frame ends by its own length, all of it in memory (-1 = unknown). A good frame
        at that offset does not prove the length: other frames may come before it, and end there at the latest.
        """
        if declared_end > damage_offset and self._is_resync_point(declared_end):
            inner_offset = self._find_proven_frame_within(damage_offset + 1, declared_end)
            return (
                ResyncPoint(declared_end, self._is_final_end_mark(declared_end))
                if inner_offset is None
                else ResyncPoint(inner_offset)
            )
        return self._search_resync_point(damage_offset)

    def _is_resync_point(self, offset: int) -> bool:
        """Return True if a proven frame, or the final end mark, is at this offset."""
        if offset - self._window.base > self._max_frame:
            return False
        self._window.load_range(self._window.base, offset + self._frame.min_size)
        return self._is_final_end_mark(offset) or self.is_proven(offset)

    def _find_proven_frame_within(self, start: int, end: int) -> int | None:
        """Return the offset of the first proven frame in memory that ends at or before `end`; the work is bounded."""
        window, work_before = self._window, self._work
        bound = work_before + _MIN_WORK + _WORK_PER_BYTE * (end - start)
        result = None
        for offset in self._iter_candidates(start, end, end):
            position = offset - window.base
            table, stop = self._probe.scan(window.buffer, position, end - window.base)
            self._work += _CANDIDATE_COST + (stop.need - position if stop.reason == StopReason.CHECKSUM else 0)
            if self._work > bound:
                break
            if self._is_proven_frame(table, position):
                result = offset
                break
        self._work, self.exhausted = work_before, False
        return result

    def _search_resync_point(self, damage_offset: int) -> ResyncPoint | None:
        """Try every offset after `damage_offset` where the sync pattern matches; a final end mark is the last
        resort.
        """
        window = self._window
        position = damage_offset + 1
        self.data_end = damage_offset
        self._update_data_end(damage_offset)
        while not self.exhausted:
            window.load_range(position - 1, position + _READ_BYTES)  # small damage in a stream stays in memory
            self._update_data_end(position)
            piece_end = window.end if window.ended else window.end - _OVERLAP_BYTES
            for offset in self._iter_candidates(position, piece_end):
                if self.is_proven(offset):
                    return ResyncPoint(offset)
                if self.exhausted:
                    return None
            if window.ended:
                return self._find_final_end_mark(damage_offset)
            position = piece_end
            if self.data_end < window.base:
                position = max(position, window.find_hole_end(window.end) - _OVERLAP_BYTES)
        return None

    def _update_data_end(self, start: int) -> None:
        """Update `data_end` from the last non-zero byte between `start` and the end of the bytes in memory."""
        data = bytes(self._window.view(start, self._window.end)).rstrip(b"\0")
        if data:
            self.data_end = max(start, self._window.base) + len(data)

    def _iter_candidates(self, start: int, end: int, limit: int | None = None) -> Iterator[int]:
        """Yield offsets in `[start, end)` where a frame may begin. limit: latest end of the frame."""
        if self._frame.align > 1:
            yield from range(start + (self._frames_at - start) % self._frame.align, end, self._frame.align)
        elif self._pattern is not None:
            offsets = self._iter_matches(self._pattern, start, end)
            yield from (
                offsets if self._length_field is None else self._filter_by_length(self._length_field, offsets, limit)
            )

    def _filter_by_length(
        self, length_field: LeadingNumber, offsets: Iterator[int], limit: int | None
    ) -> Iterator[int]:
        """Yield the offsets whose frame, by its length field, fits into memory or into the bytes that may be read."""
        window = self._window
        for offset in offsets:
            bound = limit
            if bound is None:
                max_end = offset + self._max_frame
                bound = max(window.end, max_end if window.size is None else min(max_end, window.size))
            if length_field.read_from(window.buffer, offset - window.base) <= bound - offset:
                yield offset

    def _iter_matches(self, pattern: re.Pattern[bytes], start: int, end: int) -> Iterator[int]:
        """Yield offsets in `[start, end)` where the pattern matches, including overlapping matches."""
        window = self._window
        base = window.base
        low = start - base
        while low < end - base:
            match = pattern.search(window.buffer, low, window.length)
            if match is None or match.start() >= end - base:
                return
            low = match.start() + 1
            del match  # releases the buffer
            yield base + low - 1

    def _find_final_end_mark(self, damage: int) -> ResyncPoint | None:
        mark = self._frame.end_mark
        if mark is None:
            return None
        offset = self._window.end - len(mark)
        return ResyncPoint(offset, closing=True) if offset > damage and self._is_final_end_mark(offset) else None
