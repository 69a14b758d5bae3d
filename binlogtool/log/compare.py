"""Comparison of two logs: what is the same, what differs, and what only one of them has.

Bytes are compared first; only where they differ, the frames around are aligned in windows: by their bytes, by the
content of their records, by their types. A record that one side lacks is reported as such, without the records after
it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, closing
from difflib import SequenceMatcher
from functools import partial
from typing import Any

import msgspec

from binlogtool.errors import InputOutputError, LimitError, UsageError
from binlogtool.limits import KIB, MIB, Limits
from binlogtool.log.annotate import make_walker
from binlogtool.log.annotate_choice import AnnotationTarget
from binlogtool.log.annotate_walk import AnnotationWalker
from binlogtool.log.open import LogReader
from binlogtool.log.opened_file import LogFile
from binlogtool.log.scouting import DiffLookahead
from binlogtool.log.source import Source, open_source, read_range
from binlogtool.log.units import DiffUnit, DiffUnits
from binlogtool.schema.annotation import AnnotatedPiece

_SMALL_WINDOW, _LARGE_WINDOWS = 32, (256, 4096)
"""Units of each side that are put side by side; more where nothing of the fewer ones fits."""
_MAX_WINDOW_BYTES = 8 * MIB
"""Bytes of a window, unless a single unit has more."""
_MAX_PROBES, _MIN_PROBE_BYTES, _MAX_LOOKAHEAD_BYTES = 3, 24, 64 * MIB
"""Units that are looked for far ahead, bytes that one must have for that, and how far."""
_FIRST_READ, _MAX_READ = 4 * KIB, MIB


class EqualRange(msgspec.Struct, frozen=True):
    """`[start, end)` of A equals the bytes of B from `other_start` on; record_count: number of records in it."""

    start: int
    end: int
    other_start: int
    record_count: int


class DiffSide(msgspec.Struct, frozen=True):
    """A unit of one side; its fields are decoded on request."""

    unit: DiffUnit
    make_piece: Callable[[DiffUnit], AnnotatedPiece]

    def piece(self) -> AnnotatedPiece:
        """Return the unit with its fields."""
        return self.make_piece(self.unit)


class UnitDiff(msgspec.Struct, frozen=True):
    """A unit of A, and the matching unit of B; None = this side has none."""

    a: DiffSide | None
    b: DiffSide | None

    @property
    def end(self) -> int | None:
        """End of the unit in A."""
        return None if self.a is None else self.a.unit.end


DiffPart = EqualRange | UnitDiff


class LogComparison(msgspec.Struct, frozen=True):
    """Two files, and the differences from the first to the second; `parts` can be consumed once.

    Iteration may raise InputOutputError, and LimitError (a limit ended the reading).
    """

    a: LogFile
    b: LogFile
    parts: Iterator[DiffPart]


def compare_logs(
    left: LogReader, right: LogReader, *, limits: Limits = Limits(), backend: str = "auto"
) -> LogComparison:
    """Compare two open logs of one file each.

    Raises:
        UsageError: a log has several files or is a stream, or the formats differ.
    """
    a, b = _get_single_file(left), _get_single_file(right)
    if a.format.name != b.format.name:
        raise UsageError(
            f"{a.path} is {a.format.name}, {b.path} is {b.format.name}: only logs of one format have the same fields"
        )
    return LogComparison(
        a, b, _compare_and_check([partial(make_walker, file, AnnotationTarget(), limits, backend) for file in (a, b)])
    )


def _make_units(begin: Callable[[], AnnotationWalker]) -> DiffUnits:
    return DiffUnits(begin())


def _get_single_file(log: LogReader) -> LogFile:
    if len(log.files) != 1:
        raise UsageError("--diff compares two files; name one file of the set")
    if log.files[0].size is None:
        raise UsageError(f"{log.files[0].path}: --diff reads files at any place; unpack it, or save it, before")
    return log.files[0]


def _compare_and_check(begin: Sequence[Callable[[], AnnotationWalker]]) -> Iterator[DiffPart]:
    walks = [one() for one in begin]
    with ExitStack() as opened:
        scouts = (DiffLookahead(partial(_make_units, one)) for one in begin)
        sources = (_open_stored(walk.file, opened) for walk in walks)
        yield from _compare_cursors(*map(_DiffCursor, map(DiffUnits, walks), sources, scouts))
    for walk in walks:
        if walk.scan.incomplete:
            raise LimitError(f"{walk.file.path}: {walk.scan.incomplete}")
        if changed := walk.file.find_change():
            raise InputOutputError(f"{walk.file.path}: {changed.message}")


def _open_stored(file: LogFile, opened: ExitStack) -> Source:
    """Return the bytes as stored in the file, where a log is read decrypted, or with a corrected bit."""
    if file.layout.decrypt is None:
        return file.source
    return opened.enter_context(closing(open_source(file.path)))


class _DiffCursor:
    """One side of the comparison: the units in the window, and those after them."""

    def __init__(self, units: DiffUnits, source: Source, lookahead: DiffLookahead) -> None:
        self.units, self.source, self.lookahead = units, source, lookahead
        self.window: list[DiffUnit] = []
        self.reported_end = 0
        """How far all is told."""
        self.is_at_end = False
        self._remaining = iter(units)

    def fill(self, most: int) -> None:
        """Read units until the window has `most`."""
        held = sum(len(unit.data or b"") for unit in self.window)
        while not self.is_at_end and len(self.window) < most and held < _MAX_WINDOW_BYTES:
            unit = next(self._remaining, None)
            if unit is None:
                self.is_at_end = True
            else:
                self.window.append(unit)
                held += len(unit.data or b"")

    def skip_to(self, offset: int) -> int:
        """Drop the units that end at or before `offset`; return the number of records in them."""
        self.units.known_end, self.units.skipped_records = offset, 0
        dropped = 0
        while dropped < len(self.window) and self.window[dropped].end <= offset:
            dropped += 1
        records = sum(unit.record_count for unit in self.window[:dropped])
        if dropped:
            self.reported_end = self.window[dropped - 1].end
        del self.window[:dropped]
        if not self.window:
            self.fill(1)
            self.reported_end = self.window[0].start if self.window else max(self.reported_end, offset)
        return records + self.units.skipped_records

    def take(self, count: int) -> list[DiffUnit]:
        """Remove and return the next units, as reported."""
        taken = self.window[:count]
        del self.window[:count]
        self.reported_end = taken[-1].end if taken else self.reported_end
        return taken

    def take_until(self, offset: int) -> Iterator[DiffSide]:
        """Yield the units that begin before an offset."""
        while self.window and self.window[0].start < offset:
            yield self.make_side(self.take(1)[0])
            self.fill(1)

    def stored_bytes(self, unit: DiffUnit) -> bytes:
        """Return the bytes of a unit as stored in the file."""
        return read_range(self.source, unit.start, unit.end - unit.start)

    def make_side(self, unit: DiffUnit) -> DiffSide:
        return DiffSide(unit, self.units.annotate_unit)


def _compare_cursors(left: _DiffCursor, right: _DiffCursor) -> Iterator[DiffPart]:
    """Yield the differences from the beginning to the end of both files, with bounded memory."""
    while True:
        start, right_start = left.reported_end, right.reported_end
        if equal_bytes := _count_equal_bytes(left.source, start, right.source, right_start):
            records = left.skip_to(start + equal_bytes)
            right.skip_to(right_start + equal_bytes)
            if reported_bytes := max(
                left.reported_end - start, right.reported_end - right_start
            ):  # if only one side can be read, they differ
                yield EqualRange(start, start + reported_bytes, right_start, records)
        pairs = _align_windows(left, right)
        if not left.window and not right.window:
            return
        if not pairs and (target := _find_far_ahead(right, left)):
            yield from (UnitDiff(side, None) for side in left.take_until(target))
        elif not pairs and (target := _find_far_ahead(left, right)):
            yield from (UnitDiff(None, side) for side in right.take_until(target))
        else:
            yield from _report_windows(left, right, pairs)


def _align_windows(left: _DiffCursor, right: _DiffCursor) -> list[tuple[int, int]]:
    """Return the index pairs of matching units in the windows, in order; the windows grow until there are some."""
    pairs: list[tuple[int, int]] = []
    for window_size in (_SMALL_WINDOW, *_LARGE_WINDOWS):
        left.fill(window_size)
        right.fill(window_size)
        pairs = (
            _find_nearest_pair(left.window, right.window)
            if window_size == _SMALL_WINDOW
            else _pair_units(left.window, right.window)
        )
        if pairs:
            break
    return pairs


def _find_nearest_pair(left_units: Sequence[DiffUnit], right_units: Sequence[DiffUnit]) -> list[tuple[int, int]]:
    """Return the nearest pair of units that, with the next ones, have the same bytes on both sides."""
    for skipped in range(_SMALL_WINDOW):
        for i in sorted(range(skipped + 1), key=lambda i: abs(2 * i - skipped)):
            left_pair, right_pair = left_units[i : i + 2], right_units[skipped - i : skipped - i + 2]
            if len(left_pair) == len(right_pair) == 2 and all(
                a.data == b.data is not None for a, b in zip(left_pair, right_pair, strict=True)
            ):
                return [(i, skipped - i)]
    return []


def _find_far_ahead(reference: _DiffCursor, searched: _DiffCursor) -> int:
    """Return where the next units of one side begin in the other one, far ahead; 0 = not found."""
    for unit in reference.window[:: max(1, len(reference.window) // _MAX_PROBES)]:
        mark = unit.data or b""
        found = _find_bytes(searched.source, searched.reported_end + 1, mark) if len(mark) >= _MIN_PROBE_BYTES else 0
        if (begin := found - (unit.start - reference.reported_end)) > searched.reported_end:
            return begin
    return searched.lookahead.find(reference.window, searched.window[-1].end) if searched.window else 0


def _find_bytes(source: Source, start: int, mark: bytes) -> int:
    """Return the first offset of these bytes from `start` on; 0 = not found in the searched range."""
    for at in range(start, start + _MAX_LOOKAHEAD_BYTES, MIB):
        data = read_range(source, at, MIB + len(mark))
        if (found := data.find(mark)) >= 0:
            return at + found
        if len(data) < MIB:
            break
    return 0


def _count_equal_bytes(left: Source, start: int, right: Source, right_start: int) -> int:
    """Return how many bytes from these offsets on are the same."""
    size, run = _FIRST_READ, 0
    while True:
        left_bytes, right_bytes = read_range(left, start + run, size), read_range(right, right_start + run, size)
        if left_bytes != right_bytes:
            return run + _common_prefix_size(left_bytes, right_bytes)
        if len(left_bytes) < size:
            return run + len(left_bytes)
        run += size
        size = min(2 * size, _MAX_READ)


def _common_prefix_size(left: bytes, right: bytes) -> int:
    """Return the length of the common prefix."""
    low, high = 0, min(len(left), len(right))
    while low < high:
        middle = (low + high + 1) // 2
        low, high = (middle, high) if left[low:middle] == right[low:middle] else (low, middle - 1)
    return low


def _pair_units(left: Sequence[DiffUnit], right: Sequence[DiffUnit]) -> list[tuple[int, int]]:
    """Return the index pairs of units that match, in order: by the same bytes, else by the same content."""
    exact = _match_sequences([u.data or u.start for u in left], [u.data or u.start for u in right])
    pairs: list[tuple[int, int]] = []
    low, right_low = 0, 0
    for first, second in [*exact, (len(left), len(right))]:
        inner = _match_sequences(
            *([u.content or u.data or u.start for u in some] for some in (left[low:first], right[right_low:second]))
        )
        pairs += [(low + i, right_low + j) for i, j in inner]
        if first < len(left) or second < len(right):
            pairs.append((first, second))
        low, right_low = first + 1, second + 1
    return pairs


def _match_sequences(left: Sequence[Any], right: Sequence[Any]) -> list[tuple[int, int]]:
    if not left or not right:
        return []
    blocks = SequenceMatcher(None, left, right).get_matching_blocks()
    return [(i + step, j + step) for i, j, size in blocks for step in range(size)]


def _report_windows(
    left_cursor: _DiffCursor, right_cursor: _DiffCursor, pairs: Sequence[tuple[int, int]]
) -> Iterator[DiffPart]:
    """Yield the differences in the windows, up to the last pair; all of it where there is none."""
    ends = [] if pairs else [(len(left_cursor.window), len(right_cursor.window))]
    low, right_low = 0, 0
    for first, second in [*pairs, *ends]:
        yield from _diff_unpaired(
            left_cursor, right_cursor, left_cursor.take(first - low), right_cursor.take(second - right_low)
        )
        if left_cursor.window and right_cursor.window:
            (left_unit,), (right_unit,) = left_cursor.take(1), right_cursor.take(1)
            yield _diff_pair(left_cursor, right_cursor, left_unit, right_unit)
        low, right_low = first + 1, second + 1


def _diff_pair(left_cursor: _DiffCursor, right_cursor: _DiffCursor, left: DiffUnit, right: DiffUnit) -> DiffPart:
    if (
        left.data is not None
        and left.data == right.data
        and left_cursor.stored_bytes(left) == right_cursor.stored_bytes(right)
    ):
        return EqualRange(left.start, left.end, right.start, left.record_count)
    return UnitDiff(left_cursor.make_side(left), right_cursor.make_side(right))


def _diff_unpaired(
    left_cursor: _DiffCursor, right_cursor: _DiffCursor, left: list[DiffUnit], right: list[DiffUnit]
) -> Iterator[DiffPart]:
    """Yield the differences of units without a sure match.

    Units of the same position and size, or of the same kind in order, are paired, whichever are more; else the first
    ones.
    """
    by_position = _match_sequences(_relative_positions(left), _relative_positions(right))
    by_kind = _match_sequences([unit.content_kind for unit in left], [unit.content_kind for unit in right])
    fallback = [(0, 0)] if left and right else []
    low, right_low = 0, 0
    for first, second in [*(max(by_position, by_kind, key=len) or fallback), (len(left), len(right))]:
        yield from (UnitDiff(left_cursor.make_side(unit), None) for unit in left[low:first])
        yield from (UnitDiff(None, right_cursor.make_side(unit)) for unit in right[right_low:second])
        if first < len(left):
            yield UnitDiff(left_cursor.make_side(left[first]), right_cursor.make_side(right[second]))
        low, right_low = first + 1, second + 1


def _relative_positions(units: Sequence[DiffUnit]) -> list[tuple[int, int]]:
    """Return the offset of each unit from the first one, and its size."""
    return [(unit.start - units[0].start, unit.end - unit.start) for unit in units]
