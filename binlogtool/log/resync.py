"""Resynchronization: find the next proven frame after damage. Always moves forward, with bounded work."""

from __future__ import annotations

import re
from collections.abc import Iterator

import msgspec

from binlogtool.formats.layouts import Layout, Table
from binlogtool.log.window import Window
from binlogtool.schema.leading import Leading, leading
from binlogtool.schema.scanner import Backend, Scanner, StopReason

_PIECE = 1 << 20
_WORK_PER_BYTE = 64
_WORK_FLOOR = 1 << 28
_CANDIDATE_COST = 64
_OVERLAP = 64
CHECKSUM_RIGHT = 1


class Landing(msgspec.Struct, frozen=True):
    """Where the chain continues: at a proven frame, or (`closing`) at the end mark that is the file's last bytes."""

    offset: int
    closing: bool = False


class Resync:
    """Find the next provable frame of one file. `exhausted`: the work bound was reached."""

    def __init__(self, layout: Layout, backend: Backend, window: Window, max_frame: int) -> None:
        self._frame = layout.frame
        self._frames_at = layout.frames_at
        self._context = layout.context
        self._window = window
        self._max_frame = max_frame
        self._probe: Scanner = backend.scanner(self._frame.schema, self._frame.columns, 1)
        self._pattern = None if self._frame.sync is None else re.compile(self._frame.sync, re.DOTALL)
        self._declared = None if self._frame.declared is None else leading(self._frame.schema, self._frame.declared)
        self._work = 0
        self.exhausted = False
        self.data_end = 0
        """Behind the last byte that is not zero, among those that the last search saw."""

    def inside(self, start: int, end: int) -> int | None:
        """Return the first offset in `[start, end)` with a proven frame, among those completely in memory."""
        return next((offset for offset in self._candidates(start, end) if self._here(offset)), None)

    def _here(self, offset: int) -> bool:
        """Return what `is_proven` does, without reading bytes that are not in memory."""
        start = offset - self._window.base
        self._spend(0)
        table, _ = self._probe.scan(self._window.buffer, start, self._window.length)
        return self._accepts(table, start)

    def proven(self, offset: int) -> bool:
        """Return True if the bytes at `offset` form a frame beyond doubt (checksum, or the format's own proof)."""
        window = self._window
        start = offset - window.base
        if start < 0 or start >= window.length:
            return False
        self._spend(0)
        table, stop = self._probe.scan(window.buffer, start, window.length)
        if table.count == 0 and stop.reason == StopReason.SHORT and not window.ended:
            return self._grown(start, stop.need) and self.proven(offset)
        if table.count == 0 and stop.reason == StopReason.CHECKSUM:
            self._spend(stop.need - start)
        return self._accepts(table, start)

    def _grown(self, start: int, need: int) -> bool:
        """Read more for the frame at `buffer[start]`, if allowed. need: up to where; -1 = twice as much."""
        window = self._window
        has = window.length - start
        wanted = need - start if need >= 0 else min(2 * has, self._max_frame)
        if not has < wanted <= self._max_frame:
            return False
        window.load(window.base, window.base + start + wanted)
        return True

    def _accepts(self, table: Table, start: int) -> bool:
        """Return True if the frame of the table, which begins at `buffer[start]`, is beyond doubt."""
        if table.count == 0:
            return False
        end = int(table["end"][0])
        self._spend(end - start)
        if int(table["checksum"][0]) == CHECKSUM_RIGHT:
            return True
        prove = self._frame.prove
        if prove is None or not prove(bytes(memoryview(self._window.buffer)[start:end]), self._context):
            return False
        return self._plausible_border(self._window.base + end)

    def _plausible_border(self, offset: int) -> bool:
        """Return True if the file ends here or another frame can start: required of a frame without a checksum."""
        window = self._window
        window.load(window.base, offset + _OVERLAP)
        rest = bytes(window.view(offset, offset + _OVERLAP))
        if not rest or self._pattern is None:
            return True
        return not rest.strip(b"\0") or self._pattern.match(rest) is not None or self._is_mark(offset)

    def _is_mark(self, offset: int) -> bool:
        mark = self._frame.end_mark
        return mark is not None and bytes(self._window.view(offset, offset + len(mark))) == mark

    def _is_closing_mark(self, offset: int) -> bool:
        if not self._is_mark(offset):
            return False
        assert self._frame.end_mark is not None
        self._window.load(self._window.base, offset + len(self._frame.end_mark) + 1)
        return self._window.ended and offset + len(self._frame.end_mark) == self._window.end

    def _spend(self, size: int) -> None:
        self._work += size + _CANDIDATE_COST
        bound = _WORK_FLOOR + _WORK_PER_BYTE * self._window.end
        self.exhausted = self._work > bound

    def find(self, damage: int, declared_end: int = -1) -> Landing | None:
        """Return the first resync point after the damage at `damage`.

        declared_end: where the damaged frame ends by its own length, all of it in memory (-1 = unknown). A good frame
        there does
        not prove the length: other frames may precede it, and end there at the latest.
        """
        if declared_end > damage and self._lands(declared_end):
            inside = self._within(damage + 1, declared_end)
            return Landing(declared_end, self._is_closing_mark(declared_end)) if inside is None else Landing(inside)
        return self._search(damage)

    def _lands(self, offset: int) -> bool:
        """Return True if there is a proven frame, or the final end mark, at this offset."""
        if offset - self._window.base > self._max_frame:
            return False
        self._window.load(self._window.base, offset + self._frame.min_size)
        return self._is_closing_mark(offset) or self.proven(offset)

    def _within(self, start: int, end: int) -> int | None:
        """Return the first proven frame among bytes in memory that ends at `end` at the latest; with bounded work."""
        window, before = self._window, self._work
        bound = before + _WORK_FLOOR + _WORK_PER_BYTE * (end - start)
        found = None
        for offset in self._candidates(start, end, end):
            at = offset - window.base
            table, stop = self._probe.scan(window.buffer, at, end - window.base)
            self._work += _CANDIDATE_COST + (stop.need - at if stop.reason == StopReason.CHECKSUM else 0)
            if self._work > bound:
                break
            if self._accepts(table, at):
                found = offset
                break
        self._work, self.exhausted = before, False
        return found

    def _search(self, damage: int) -> Landing | None:
        """Try every offset after `damage` where the sync pattern matches; a final end mark is the last resort."""
        window = self._window
        position = damage + 1
        self.data_end = damage
        self._note_data(damage)
        while not self.exhausted:
            window.load(position - 1, position + _PIECE)  # of a stream, small damage stays in memory
            self._note_data(position)
            piece_end = window.end if window.ended else window.end - _OVERLAP
            for offset in self._candidates(position, piece_end):
                if self.proven(offset):
                    return Landing(offset)
                if self.exhausted:
                    return None
            if window.ended:
                return self._closing_mark(damage)
            position = piece_end
            if self.data_end < window.base:
                position = max(position, window.skip_hole(window.end) - _OVERLAP)
        return None

    def _note_data(self, start: int) -> None:
        """Update `data_end` from the non-zero bytes between `start` and the end of what is in memory."""
        data = bytes(self._window.view(start, self._window.end)).rstrip(b"\0")
        if data:
            self.data_end = max(start, self._window.base) + len(data)

    def _candidates(self, start: int, end: int, limit: int | None = None) -> Iterator[int]:
        """Yield offsets in `[start, end)` where a frame may begin. limit: the frame ends there at the latest."""
        if self._frame.align > 1:
            yield from range(start + (self._frames_at - start) % self._frame.align, end, self._frame.align)
        elif self._pattern is not None:
            found = self._matches(self._pattern, start, end)
            yield from found if self._declared is None else self._fitting(self._declared, found, limit)

    def _fitting(self, declared: Leading, found: Iterator[int], limit: int | None) -> Iterator[int]:
        """Yield the offsets whose frame, by its length field, fits: into memory, or into what may be read for it."""
        window = self._window
        for offset in found:
            bound = limit
            if bound is None:
                behind = offset + self._max_frame
                bound = max(window.end, behind if window.size is None else min(behind, window.size))
            if declared.read(window.buffer, offset - window.base) <= bound - offset:
                yield offset

    def _matches(self, pattern: re.Pattern[bytes], start: int, end: int) -> Iterator[int]:
        """Yield offsets in `[start, end)` where the pattern matches, also inside another match."""
        window = self._window
        base = window.base
        low = start - base
        while low < end - base:
            found = pattern.search(window.buffer, low, window.length)
            if found is None or found.start() >= end - base:
                return
            low = found.start() + 1
            del found  # releases the buffer
            yield base + low - 1

    def _closing_mark(self, damage: int) -> Landing | None:
        mark = self._frame.end_mark
        if mark is None:
            return None
        offset = self._window.end - len(mark)
        return Landing(offset, closing=True) if offset > damage and self._is_closing_mark(offset) else None
