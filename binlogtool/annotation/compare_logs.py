"""Compare two logs: find equal records, differing fields, and records that only one log has.

Ranges that were already compared are skipped without decoding their frames.

In the logs of two servers that ran the same statements, each record has another number and time. So the content of
records is searched for far ahead, and only a run of records that occurs once counts.

Bytes are compared first; only where they differ, the surrounding frames are aligned in windows: by their bytes, by the
content of their records, by their types. A record that one side lacks is reported as missing; the records after it are
not affected.
"""

from __future__ import annotations

import re
from bisect import bisect_left, bisect_right
from collections import Counter, deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import ExitStack, closing
from difflib import SequenceMatcher
from functools import partial
from itertools import islice
from typing import TYPE_CHECKING, Any

import msgspec

from binlogtool.annotation.annotate_file import AnnotationTarget, AnnotationWalker, make_walker
from binlogtool.core.open_file import LogFile, Source, open_source, read_range
from binlogtool.errors import InputOutputError, LimitError, UsageError
from binlogtool.findings import Finding
from binlogtool.format_api.format import BodyWithFindings
from binlogtool.format_api.layout import Batch
from binlogtool.limits import KIB, MIB, Limits

if TYPE_CHECKING:
    from binlogtool.core.open_log import LogReader
    from binlogtool.core.scan_file import DamagedRange
    from binlogtool.schema.annotation_types import AnnotatedPiece, FieldRow

# --- Units of a log file for comparison, in order ---

_MAX_COMPARED_RECORDS = 256
"""Maximum number of records that are decoded to recognise a frame."""


class DiffUnit(msgspec.Struct, frozen=True):
    """Unit of a comparison, `[start, end)` of the file.

    Args:
        kind: header, frame, damage or gap.
        number: number of the frame.
        data: its bytes; None if there are too many.
        record, record_count: number of the first record in it, and number of records.
        content: (type, object, content) of the records, without time and place of writing.
    """

    kind: str
    start: int
    end: int
    number: int
    data: bytes | None
    record: int = 0
    record_count: int = 0
    content: tuple[tuple[str, str | None, str], ...] = ()
    damage: DamagedRange | None = None

    @property
    def content_kind(self) -> tuple[Any, ...]:
        """The content reduced to types and objects."""
        return (self.kind, *((type_, object_) for type_, object_, _ in self.content))


class DiffUnits:
    """Units of one file in order; those that end at or before `known` are only counted, in `skipped_records`."""

    def __init__(self, walk: AnnotationWalker) -> None:
        self._walk = walk
        self._scan = walk.scan
        self.known_end = 0
        self.skipped_records = 0
        self._units = self._iter_units()

    def __iter__(self) -> Iterator[DiffUnit]:
        return self._units

    def annotate_unit(self, unit: DiffUnit) -> AnnotatedPiece:
        """Return a unit with its fields."""
        match unit.kind:
            case "header":
                return self._walk.annotate_header(unit.end)
            case "frame":
                assert unit.data is not None
                return self._walk.annotate_frame(unit.start, unit.data, unit.number)
            case "damage":
                assert unit.damage is not None
                return self._walk.annotate_damage(unit.damage, unit.number)
        return self._walk.annotate_gap(unit.start, unit.end)

    def _iter_units(self) -> Iterator[DiffUnit]:
        reached, layout = 0, self._walk.file.layout
        if (layout.readable or layout.encrypted_without_key) and layout.frames_at:
            reached = layout.frames_at
            yield from self._make_plain_unit("header", 0, reached)
        for segment in self._scan.segments():
            start, end = self._walk.get_segment_bounds(segment)
            yield from self._make_plain_unit("gap", reached, start)
            reached = end
            if isinstance(segment, Batch):
                yield from self._make_frame_units(segment)
            else:
                yield from self._make_plain_unit("damage", start, end, segment)
        yield from self._make_plain_unit("gap", reached, self._scan.end)

    def _make_plain_unit(
        self, kind: str, start: int, end: int, damage: DamagedRange | None = None
    ) -> Iterator[DiffUnit]:
        if end > max(start, self.known_end):
            is_small = end - start <= MIB
            data = read_range(self._walk.file.source, start, end - start) if is_small else None
            yield DiffUnit(kind, start, end, self._scan.frames - 1, data, self._scan.records, damage=damage)

    def _make_frame_units(self, batch: Batch) -> Iterator[DiffUnit]:
        self._walk.decode_envelopes_if_needed(batch)
        ends, count, frame = batch.frames["end"], batch.frames.count, 0
        while frame < count:
            if int(ends[frame]) + batch.base <= self.known_end:
                first_unknown = bisect_right(ends, self.known_end - batch.base, frame, count)
                self.skipped_records += self._first_record(batch, first_unknown) - self._first_record(batch, frame)
                frame = first_unknown
            else:
                yield self._make_frame_unit(batch, frame)
                frame += 1

    def _make_frame_unit(self, batch: Batch, frame: int) -> DiffUnit:
        start, data = batch.base + int(batch.frames["offset"][frame]), batch.frame_bytes(frame)
        first, stop = self._first_record(batch, frame), self._first_record(batch, frame + 1)
        content = self._decode_content(batch, first, min(stop, first + _MAX_COMPARED_RECORDS))
        number, record = batch.first_frame + frame, batch.first_record + first
        return DiffUnit("frame", start, start + len(data), number, data, record, stop - first, content)

    def _decode_content(self, batch: Batch, first: int, stop: int) -> tuple[tuple[str, str | None, str], ...]:
        if first == stop:
            return ()
        file, limits = self._walk.file, self._walk.limits
        envelopes = file.format.output.decode_envelopes(file.layout.context, batch, first, stop)
        bodies = file.format.output.decode_bodies(file.layout.context, batch, first, stop, limits)
        own_values = zip(envelopes.seq, envelopes.time, envelopes.txn, envelopes.origin, strict=True)
        content = (
            repr(_strip_server_specific_values(_unwrap_body(body), when))
            for body, when in zip(bodies, own_values, strict=True)
        )
        return tuple(zip(envelopes.type, envelopes.object, content, strict=True))

    @staticmethod
    def _first_record(batch: Batch, frame: int) -> int:
        """Return the index in the batch of a frame's first record."""
        return frame if batch.rows is None else bisect_left(batch.rows["span"], frame, 0, batch.rows.count)


def _strip_server_specific_values(value: Any, server_specific_values: tuple[Any, ...]) -> Any:
    """Return a body without the numbers and times that differ between servers for the same record."""
    if isinstance(value, dict):
        return {
            name: _strip_server_specific_values(inner, server_specific_values)
            for name, inner in value.items()
            if "timestamp" not in str(name) and (isinstance(inner, dict | list) or inner not in server_specific_values)
        }
    return (
        [_strip_server_specific_values(inner, server_specific_values) for inner in value]
        if isinstance(value, list)
        else value
    )


def _unwrap_body(body: Any) -> Any:
    body = body.body if isinstance(body, BodyWithFindings) else body
    return None if isinstance(body, Finding) else body


# --- Look-ahead of a comparison ---

_RUN_LENGTH = 8
"""Number of consecutive units that must have the same content."""
_MAX_UNITS = 200_000
"""Maximum number of units that are read in one search."""
_MAX_MISSES = 2
"""Number of searches without a result after which the logs count as having nothing in common."""


class DiffLookahead:
    """Search ahead in one log; each search reads the log from its start. begin: function that restarts the reading."""

    def __init__(self, begin: Callable[[], DiffUnits]) -> None:
        self._begin = begin
        self._misses = 0

    def find_matching_run_offset(self, reference_units: Sequence[DiffUnit], min_offset: int) -> int:
        """Return the offset, at or after `min_offset`, of units with the same content as some of `reference_units`; 0
        = none.
        """
        content_hashes = [hash(unit.content) for unit in reference_units]
        runs = Counter(tuple(content_hashes[i : i + _RUN_LENGTH]) for i in range(len(content_hashes) - _RUN_LENGTH + 1))
        unique_runs = {run for run, times in runs.items() if times == 1}
        if not unique_runs or self._misses >= _MAX_MISSES:
            return 0
        units = self._begin()
        units.known_end = min_offset
        recent: deque[tuple[int, int]] = deque(maxlen=_RUN_LENGTH)
        for unit in islice(units, _MAX_UNITS):
            recent.append((hash(unit.content), unit.start))
            if tuple(said for said, _ in recent) in unique_runs:
                return recent[0][1]
        self._misses += 1
        return 0


# --- Comparison of two logs ---

_SMALL_WINDOW, _LARGE_WINDOWS = 32, (256, 4096)
"""Number of units of each side that are aligned at once; a larger window is used if no units match."""
_MAX_WINDOW_BYTES = 8 * MIB
"""Maximum bytes of a window, unless a single unit has more."""
_MAX_PROBES, _MIN_PROBE_BYTES, _MAX_LOOKAHEAD_BYTES = 3, 24, 64 * MIB
"""Maximum number of units that are searched for far ahead, minimum bytes of such a unit, search distance in bytes."""
_FIRST_READ, _MAX_READ = 4 * KIB, MIB


class EqualRange(msgspec.Struct, frozen=True):
    """Range `[start, end)` of A that equals the bytes of B from `other_start` on. record_count: records in it."""

    start: int
    end: int
    other_start: int
    record_count: int


class DiffSide(msgspec.Struct, frozen=True):
    """Unit of one side; its fields are decoded on request."""

    unit: DiffUnit
    make_piece: Callable[[DiffUnit], AnnotatedPiece]

    def piece(self) -> AnnotatedPiece:
        """Return the unit with its fields."""
        return self.make_piece(self.unit)


class UnitDiff(msgspec.Struct, frozen=True):
    """Unit of A, and the matching unit of B; None = this side has no such unit.

    ends_at: size of the side without this unit, if that file ends in the middle of it.
    """

    a: DiffSide | None
    b: DiffSide | None
    ends_at: int | None = None

    @property
    def end(self) -> int | None:
        """End of the unit in A."""
        return None if self.a is None else self.a.unit.end


DiffPart = EqualRange | UnitDiff


class LogComparison(msgspec.Struct, frozen=True):
    """Comparison of two files; `parts`, the differences from the first to the second, can be consumed once.

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
            f"{a.path} is {a.format.name}, {b.path} is {b.format.name}: only logs of the same format can be compared"
        )
    return LogComparison(
        a,
        b,
        _compare_unchanged_files([partial(make_walker, file, AnnotationTarget(), limits, backend) for file in (a, b)]),
    )


def _make_units(begin: Callable[[], AnnotationWalker]) -> DiffUnits:
    return DiffUnits(begin())


_DUMP_COMMAND = "binlogtool dump -O jsonl --fields offset,type,txn,object,body"
"""Prints equal lines for equal records of two directories, because it prints no path."""


def _get_single_file(log: LogReader) -> LogFile:
    if len(log.files) != 1:
        raise UsageError(
            "--diff compares two files; name one file of each set, or compare their records: "
            f"diff <({_DUMP_COMMAND} OLD) <({_DUMP_COMMAND} NEW)"
        )
    if log.files[0].size is None:
        raise UsageError(
            f"{log.files[0].path}: --diff needs a file that can be read at any offset; unpack or save it first"
        )
    return log.files[0]


def _compare_unchanged_files(walker_makers: Sequence[Callable[[], AnnotationWalker]]) -> Iterator[DiffPart]:
    walks = [one() for one in walker_makers]
    with ExitStack() as opened:
        scouts = (DiffLookahead(partial(_make_units, one)) for one in walker_makers)
        sources = (_open_stored(walk.file, opened) for walk in walks)
        yield from _compare_cursors(*map(_DiffCursor, map(DiffUnits, walks), sources, scouts))
    for walk in walks:
        if walk.scan.incomplete:
            raise LimitError(f"{walk.file.path}: {walk.scan.incomplete}")
        if changed := walk.file.find_change_since_open():
            raise InputOutputError(f"{walk.file.path}: {changed.message}")


def _open_stored(file: LogFile, opened: ExitStack) -> Source:
    """Return the bytes as stored in the file, even if the log is read decrypted or with a corrected bit."""
    if file.layout.decrypt is None:
        return file.source
    return opened.enter_context(closing(open_source(file.path)))


class _DiffCursor:
    """Cursor of one side of the comparison: the units in the window, and the units after them."""

    def __init__(self, units: DiffUnits, source: Source, lookahead: DiffLookahead) -> None:
        self.units, self.source, self.lookahead = units, source, lookahead
        self.window: list[DiffUnit] = []
        self.reported_end = 0
        """End offset of the units that have been reported."""
        self.is_at_end = False
        self.cut: tuple[int, int] | None = None
        """Offset in a unit at which the other side ends, and the size of that side."""
        self._remaining = iter(units)

    def fill_window(self, max_units: int) -> None:
        """Read units until the window has `max_units` units."""
        held = sum(len(unit.data or b"") for unit in self.window)
        while not self.is_at_end and len(self.window) < max_units and held < _MAX_WINDOW_BYTES:
            unit = next(self._remaining, None)
            if unit is None:
                self.is_at_end = True
            else:
                self.window.append(unit)
                held += len(unit.data or b"")

    def skip_to_and_count_records(self, offset: int) -> int:
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
            self.fill_window(1)
            self.reported_end = self.window[0].start if self.window else max(self.reported_end, offset)
        return records + self.units.skipped_records

    def note_other_end_inside_next_unit(self, offset: int, other: _DiffCursor, other_offset: int) -> None:
        """Note whether the other side ends at the equal bytes up to here, in the middle of the next unit."""
        is_inside = bool(self.window) and self.window[0].start < offset < self.window[0].end
        self.cut = (offset, other_offset) if is_inside and not other.window else None

    def get_other_size_if_cut_inside(self, unit: DiffUnit) -> int | None:
        """Return the size of the other side if it ends in the middle of this unit."""
        return self.cut[1] if self.cut is not None and unit.start < self.cut[0] < unit.end else None

    def remove_next_units(self, count: int) -> list[DiffUnit]:
        """Remove and return the next units, which then count as reported."""
        taken = self.window[:count]
        del self.window[:count]
        self.reported_end = taken[-1].end if taken else self.reported_end
        return taken

    def iter_units_before(self, offset: int) -> Iterator[DiffSide]:
        """Yield the units that begin before an offset."""
        while self.window and self.window[0].start < offset:
            yield self.make_side(self.remove_next_units(1)[0])
            self.fill_window(1)

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
            records = left.skip_to_and_count_records(start + equal_bytes)
            right.skip_to_and_count_records(right_start + equal_bytes)
            left.note_other_end_inside_next_unit(start + equal_bytes, right, right_start + equal_bytes)
            right.note_other_end_inside_next_unit(right_start + equal_bytes, left, start + equal_bytes)
            sizes = (left.reported_end - start, right.reported_end - right_start)
            # if only one side can be read, the files differ
            if reported_bytes := min(sizes) if left.cut or right.cut else max(sizes):
                yield EqualRange(start, start + reported_bytes, right_start, records)
        pairs = _align_windows(left, right)
        if not left.window and not right.window:
            return
        if not pairs and (target := _find_match_offset_far_ahead(right, left)):
            yield from (UnitDiff(side, None) for side in left.iter_units_before(target))
        elif not pairs and (target := _find_match_offset_far_ahead(left, right)):
            yield from (UnitDiff(None, side) for side in right.iter_units_before(target))
        else:
            yield from _iter_window_differences(left, right, pairs)


def _align_windows(left: _DiffCursor, right: _DiffCursor) -> list[tuple[int, int]]:
    """Return the index pairs of matching units in the windows, in order; the windows grow until units match."""
    pairs: list[tuple[int, int]] = []
    for window_size in (_SMALL_WINDOW, *_LARGE_WINDOWS):
        left.fill_window(window_size)
        right.fill_window(window_size)
        pairs = (
            _find_nearest_pair(left.window, right.window)
            if window_size == _SMALL_WINDOW
            else _pair_units(left.window, right.window)
        )
        if pairs:
            break
    return pairs


def _find_nearest_pair(left_units: Sequence[DiffUnit], right_units: Sequence[DiffUnit]) -> list[tuple[int, int]]:
    """Return the nearest pair of units that, together with the next units, have the same bytes on both sides."""
    for skipped in range(_SMALL_WINDOW):
        for i in sorted(range(skipped + 1), key=lambda i: abs(2 * i - skipped)):
            left_pair, right_pair = left_units[i : i + 2], right_units[skipped - i : skipped - i + 2]
            if len(left_pair) == len(right_pair) == 2 and all(
                a.data == b.data is not None for a, b in zip(left_pair, right_pair, strict=True)
            ):
                return [(i, skipped - i)]
    return []


def _find_match_offset_far_ahead(reference: _DiffCursor, searched: _DiffCursor) -> int:
    """Return the offset far ahead in one side where the next units of the other side occur; 0 = not found."""
    for unit in reference.window[:: max(1, len(reference.window) // _MAX_PROBES)]:
        mark = unit.data or b""
        found = _find_bytes(searched.source, searched.reported_end + 1, mark) if len(mark) >= _MIN_PROBE_BYTES else 0
        if (begin := found - (unit.start - reference.reported_end)) > searched.reported_end:
            return begin
    return (
        searched.lookahead.find_matching_run_offset(reference.window, searched.window[-1].end) if searched.window else 0
    )


def _find_bytes(source: Source, start: int, searched_bytes: bytes) -> int:
    """Return the first offset of these bytes from `start` on; 0 = not found in the searched range."""
    for at in range(start, start + _MAX_LOOKAHEAD_BYTES, MIB):
        data = read_range(source, at, MIB + len(searched_bytes))
        if (found := data.find(searched_bytes)) >= 0:
            return at + found
        if len(data) < MIB:
            break
    return 0


def _count_equal_bytes(left: Source, start: int, right: Source, right_start: int) -> int:
    """Return the number of equal bytes from these offsets on."""
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
    """Return the index pairs of matching units, in order: with the same bytes, else with the same content."""
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


def _iter_window_differences(
    left_cursor: _DiffCursor, right_cursor: _DiffCursor, pairs: Sequence[tuple[int, int]]
) -> Iterator[DiffPart]:
    """Yield the differences in the windows, up to the last pair; without pairs, all units."""
    ends = [] if pairs else [(len(left_cursor.window), len(right_cursor.window))]
    low, right_low = 0, 0
    for first, second in [*pairs, *ends]:
        yield from _diff_unpaired(
            left_cursor,
            right_cursor,
            left_cursor.remove_next_units(first - low),
            right_cursor.remove_next_units(second - right_low),
        )
        if left_cursor.window and right_cursor.window:
            (left_unit,), (right_unit,) = left_cursor.remove_next_units(1), right_cursor.remove_next_units(1)
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

    Pair units with the same position and size, or units of the same kind in order, whichever gives more pairs; else
    pair the first units.
    """
    by_position = _match_sequences(_relative_positions(left), _relative_positions(right))
    by_kind = _match_sequences([unit.content_kind for unit in left], [unit.content_kind for unit in right])
    fallback = [(0, 0)] if left and right else []
    low, right_low = 0, 0
    for first, second in [*(max(by_position, by_kind, key=len) or fallback), (len(left), len(right))]:
        for unit in left[low:first]:
            yield UnitDiff(left_cursor.make_side(unit), None, left_cursor.get_other_size_if_cut_inside(unit))
        for unit in right[right_low:second]:
            yield UnitDiff(None, right_cursor.make_side(unit), right_cursor.get_other_size_if_cut_inside(unit))
        if first < len(left):
            yield UnitDiff(left_cursor.make_side(left[first]), right_cursor.make_side(right[second]))
        low, right_low = first + 1, second + 1


def _relative_positions(units: Sequence[DiffUnit]) -> list[tuple[int, int]]:
    """Return (offset from the first unit, size) of each unit."""
    return [(unit.start - units[0].start, unit.end - unit.start) for unit in units]


# --- Field differences of two logs ---

_ROOT = re.compile(r"^(?:(?:damaged|torn_tail)\.)?\w+\[\d+\]\.?")
"""Pattern of the prefix of a field path that names its frame."""
_MAX_RANGES = 256
"""Maximum number of separate differing byte ranges of one field; further ranges are joined."""

Ranges = tuple[tuple[int, int], ...]


class FieldDiff(msgspec.Struct, frozen=True):
    """Field of A and the matching field of B; None = this side has no such field. ranges: differing byte ranges."""

    a: FieldRow | None
    b: FieldRow | None
    same: bool = False
    ranges: Ranges = ()

    @property
    def is_checksum_verdict_only(self) -> bool:
        """True if both sides have the same bytes, a checksum that matches on one side only."""
        a, b = self.a, self.b
        has_both = not self.same and a is not None and b is not None and not self.ranges
        return has_both and a.ok != b.ok and a.value == b.value  # type: ignore[union-attr]


def match_fields(a: AnnotatedPiece, b: AnnotatedPiece) -> list[FieldDiff]:
    """Match the leaves of both pieces by name, in file order."""
    left_rows, right_rows = [row for row in a.rows if row.leaf], [row for row in b.rows if row.leaf]
    diffs: list[FieldDiff] = []
    names = SequenceMatcher(
        None, [path_in_record(row) for row in left_rows], [path_in_record(row) for row in right_rows], autojunk=False
    )
    for kind, i, j, k, m in names.get_opcodes():
        if kind == "equal":
            diffs += (
                _compare_field(left, a, right, b) for left, right in zip(left_rows[i:j], right_rows[k:m], strict=True)
            )
        else:
            diffs += (FieldDiff(row, None) for row in left_rows[i:j])
            diffs += (FieldDiff(None, row) for row in right_rows[k:m])
    return diffs


def path_in_record(row: FieldRow) -> str:
    """Return the path of a field relative to its record."""
    return _ROOT.sub("", row.path)


def _compare_field(left: FieldRow, a: AnnotatedPiece, right: FieldRow, b: AnnotatedPiece) -> FieldDiff:
    left_bytes, right_bytes = row_bytes(left, a), row_bytes(right, b)
    is_complete = len(left_bytes) == left.end - left.start and len(right_bytes) == right.end - right.start
    is_equal = left_bytes == right_bytes and left.end - left.start == right.end - right.start
    if left.bits or right.bits or not is_complete:
        is_equal = is_equal and left.value == right.value if not left.bits else left.value == right.value
    if is_equal and left.ok == right.ok:
        return FieldDiff(left, right, same=True)
    return FieldDiff(
        left,
        right,
        ranges=tuple(_find_differing_ranges(left_bytes, right_bytes)) if len(left_bytes) == len(right_bytes) else (),
    )


def row_bytes(row: FieldRow, piece: AnnotatedPiece) -> bytes:
    """Return the bytes of a row, as far as the piece contains them."""
    for space in piece.spaces:
        if space.name == row.space and space.base <= row.start <= space.base + len(space.data):
            return space.slice_bytes(row.start, row.end)
    return b""


def _find_differing_ranges(left_bytes: Sequence[int], right_bytes: Sequence[int]) -> Iterator[tuple[int, int]]:
    """Yield the ranges of bytes that differ."""
    differing = [i for i, (left, right) in enumerate(zip(left_bytes, right_bytes, strict=True)) if left != right]
    ranges: list[tuple[int, int]] = []
    for i in differing:
        if ranges and (ranges[-1][1] == i or len(ranges) == _MAX_RANGES):
            ranges[-1] = (ranges[-1][0], i + 1)
        else:
            ranges.append((i, i + 1))
    return iter(ranges)


def join_equal_ranges(parts: Iterable[DiffPart]) -> list[EqualRange]:
    """Join equal ranges that are adjacent in both logs."""
    merged: list[EqualRange] = []
    for part in parts:
        assert isinstance(part, EqualRange)
        last = merged[-1] if merged else None
        if last is not None and (last.end, last.end - last.start + last.other_start) == (part.start, part.other_start):
            merged[-1] = EqualRange(last.start, part.end, last.other_start, last.record_count + part.record_count)
        else:
            merged.append(part)
    return merged


def diff_sign(part: DiffPart) -> str:
    """Return the sign of a part: `=`, `~`, `-` or `+`."""
    if isinstance(part, EqualRange):
        return "="
    return "-" if part.b is None else "+" if part.a is None else "~"
