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
from binlogtool.log.annotate import walk_of
from binlogtool.log.annotate_choice import Wanted
from binlogtool.log.annotate_walk import Walk
from binlogtool.log.open import Log
from binlogtool.log.opened_file import LogFile
from binlogtool.log.scouting import Scout
from binlogtool.log.source import Source, open_source, read_range
from binlogtool.log.units import Unit, Units
from binlogtool.schema.annotation import Piece

_NEAR, _WINDOWS = 32, (256, 4096)
"""Units of each side that are put side by side; more where nothing of the fewer ones fits."""
_MOST_BYTES = 8 * MIB
"""Bytes of a window, unless a single unit has more."""
_PROBES, _SURE, _FAR = 3, 24, 64 * MIB
"""Units that are looked for far ahead, bytes that one must have for that, and how far."""
_FIRST_LOOK, _LONGEST_LOOK = 4 * KIB, MIB


class Same(msgspec.Struct, frozen=True):
    """`[start, end)` of A equals the bytes of B from `other` on; records: number of records in it."""

    start: int
    end: int
    other: int
    records: int


class Side(msgspec.Struct, frozen=True):
    """A unit of one side; its fields are decoded on request."""

    unit: Unit
    made: Callable[[Unit], Piece]

    def piece(self) -> Piece:
        """Return the unit with its fields."""
        return self.made(self.unit)


class Differs(msgspec.Struct, frozen=True):
    """A unit of A, and the matching unit of B; None = this side has none."""

    a: Side | None
    b: Side | None

    @property
    def end(self) -> int | None:
        """End of the unit in A."""
        return None if self.a is None else self.a.unit.end


Part = Same | Differs


class Compared(msgspec.Struct, frozen=True):
    """Two files, and the differences from the first to the second; `parts` can be consumed once.

    Iteration may raise InputOutputError, and LimitError (a limit ended the reading).
    """

    a: LogFile
    b: LogFile
    parts: Iterator[Part]


def compared(one: Log, two: Log, *, limits: Limits = Limits(), backend: str = "auto") -> Compared:
    """Compare two open logs of one file each.

    Raises:
        UsageError: a log has several files or is a stream, or the formats differ.
    """
    a, b = _only(one), _only(two)
    if a.format.name != b.format.name:
        raise UsageError(
            f"{a.path} is {a.format.name}, {b.path} is {b.format.name}: only logs of one format have the same fields"
        )
    return Compared(a, b, _checked([partial(walk_of, file, Wanted(), limits, backend) for file in (a, b)]))


def _units(begin: Callable[[], Walk]) -> Units:
    return Units(begin())


def _only(log: Log) -> LogFile:
    if len(log.files) != 1:
        raise UsageError("--diff compares two files; name one file of the set")
    if log.files[0].size is None:
        raise UsageError(f"{log.files[0].path}: --diff reads files at any place; unpack it, or save it, before")
    return log.files[0]


def _checked(begin: Sequence[Callable[[], Walk]]) -> Iterator[Part]:
    walks = [one() for one in begin]
    with ExitStack() as opened:
        scouts = (Scout(partial(_units, one)) for one in begin)
        sources = (_stored(walk.file, opened) for walk in walks)
        yield from compare(*map(_Cursor, map(Units, walks), sources, scouts))
    for walk in walks:
        if walk.scan.incomplete:
            raise LimitError(f"{walk.file.path}: {walk.scan.incomplete}")
        if changed := walk.file.changed():
            raise InputOutputError(f"{walk.file.path}: {changed.message}")


def _stored(file: LogFile, opened: ExitStack) -> Source:
    """Return the bytes as stored in the file, where a log is read decrypted, or with a corrected bit."""
    if file.layout.unveil is None:
        return file.source
    return opened.enter_context(closing(open_source(file.path)))


class _Cursor:
    """One side of the comparison: the units in the window, and those after them."""

    def __init__(self, units: Units, source: Source, scout: Scout) -> None:
        self.units, self.source, self.scout = units, source, scout
        self.ahead: list[Unit] = []
        self.at = 0
        """How far all is told."""
        self.ended = False
        self._more = iter(units)

    def fill(self, most: int) -> None:
        """Read units until the window has `most`."""
        held = sum(len(unit.mark or b"") for unit in self.ahead)
        while not self.ended and len(self.ahead) < most and held < _MOST_BYTES:
            unit = next(self._more, None)
            if unit is None:
                self.ended = True
            else:
                self.ahead.append(unit)
                held += len(unit.mark or b"")

    def pass_to(self, known: int) -> int:
        """Drop the units that end at or before `known`; return the number of records in them."""
        self.units.known, self.units.passed = known, 0
        left = 0
        while left < len(self.ahead) and self.ahead[left].end <= known:
            left += 1
        records = sum(unit.records for unit in self.ahead[:left])
        if left:
            self.at = self.ahead[left - 1].end
        del self.ahead[:left]
        if not self.ahead:
            self.fill(1)
            self.at = self.ahead[0].start if self.ahead else max(self.at, known)
        return records + self.units.passed

    def take(self, count: int) -> list[Unit]:
        """Remove and return the next units, as reported."""
        taken = self.ahead[:count]
        del self.ahead[:count]
        self.at = taken[-1].end if taken else self.at
        return taken

    def all_to(self, place: int) -> Iterator[Side]:
        """Yield the units that begin before an offset."""
        while self.ahead and self.ahead[0].start < place:
            yield self.side(self.take(1)[0])
            self.fill(1)

    def stored(self, unit: Unit) -> bytes:
        """Return the bytes of a unit as stored in the file."""
        return read_range(self.source, unit.start, unit.end - unit.start)

    def side(self, unit: Unit) -> Side:
        return Side(unit, self.units.piece)


def compare(one: _Cursor, two: _Cursor) -> Iterator[Part]:
    """Yield the differences from the beginning to the end of both files, with bounded memory."""
    while True:
        start, other = one.at, two.at
        if run := _alike(one.source, start, two.source, other):
            records = one.pass_to(start + run)
            two.pass_to(other + run)
            if passed := max(one.at - start, two.at - other):  # if only one side can be read, they differ
                yield Same(start, start + passed, other, records)
        pairs = _looked_at(one, two)
        if not one.ahead and not two.ahead:
            return
        if not pairs and (to := _further(two, one)):
            yield from (Differs(side, None) for side in one.all_to(to))
        elif not pairs and (to := _further(one, two)):
            yield from (Differs(None, side) for side in two.all_to(to))
        else:
            yield from _told(one, two, pairs)


def _looked_at(one: _Cursor, two: _Cursor) -> list[tuple[int, int]]:
    """Return the index pairs of matching units in the windows, in order; the windows grow until there are some."""
    pairs: list[tuple[int, int]] = []
    for most in (_NEAR, *_WINDOWS):
        one.fill(most)
        two.fill(most)
        pairs = _nearest(one.ahead, two.ahead) if most == _NEAR else _paired(one.ahead, two.ahead)
        if pairs:
            break
    return pairs


def _nearest(one: Sequence[Unit], two: Sequence[Unit]) -> list[tuple[int, int]]:
    """Return the nearest pair of units that, with the next ones, have the same bytes on both sides."""
    for passed in range(_NEAR):
        for i in sorted(range(passed + 1), key=lambda i: abs(2 * i - passed)):
            left, right = one[i : i + 2], two[passed - i : passed - i + 2]
            if len(left) == len(right) == 2 and all(
                a.mark == b.mark is not None for a, b in zip(left, right, strict=True)
            ):
                return [(i, passed - i)]
    return []


def _further(known: _Cursor, searched: _Cursor) -> int:
    """Return where the next units of one side begin in the other one, far ahead; 0 = not found."""
    for unit in known.ahead[:: max(1, len(known.ahead) // _PROBES)]:
        mark = unit.mark or b""
        found = _find(searched.source, searched.at + 1, mark) if len(mark) >= _SURE else 0
        if (begin := found - (unit.start - known.at)) > searched.at:
            return begin
    return searched.scout.find(known.ahead, searched.ahead[-1].end) if searched.ahead else 0


def _find(source: Source, start: int, mark: bytes) -> int:
    """Return the first offset of these bytes from `start` on; 0 = not found in the searched range."""
    for at in range(start, start + _FAR, MIB):
        data = read_range(source, at, MIB + len(mark))
        if (found := data.find(mark)) >= 0:
            return at + found
        if len(data) < MIB:
            break
    return 0


def _alike(one: Source, start: int, two: Source, other: int) -> int:
    """Return how many bytes from these offsets on are the same."""
    size, run = _FIRST_LOOK, 0
    while True:
        here, there = read_range(one, start + run, size), read_range(two, other + run, size)
        if here != there:
            return run + _prefix(here, there)
        if len(here) < size:
            return run + len(here)
        run += size
        size = min(2 * size, _LONGEST_LOOK)


def _prefix(one: bytes, two: bytes) -> int:
    """Return the length of the common prefix."""
    low, high = 0, min(len(one), len(two))
    while low < high:
        middle = (low + high + 1) // 2
        low, high = (middle, high) if one[low:middle] == two[low:middle] else (low, middle - 1)
    return low


def _paired(one: Sequence[Unit], two: Sequence[Unit]) -> list[tuple[int, int]]:
    """Return the index pairs of units that match, in order: by the same bytes, else by the same content."""
    exact = _matches([u.mark or u.start for u in one], [u.mark or u.start for u in two])
    pairs: list[tuple[int, int]] = []
    low, other = 0, 0
    for first, second in [*exact, (len(one), len(two))]:
        inner = _matches(*([u.says or u.mark or u.start for u in some] for some in (one[low:first], two[other:second])))
        pairs += [(low + i, other + j) for i, j in inner]
        if first < len(one) or second < len(two):
            pairs.append((first, second))
        low, other = first + 1, second + 1
    return pairs


def _matches(one: Sequence[Any], two: Sequence[Any]) -> list[tuple[int, int]]:
    if not one or not two:
        return []
    found = SequenceMatcher(None, one, two).get_matching_blocks()
    return [(i + step, j + step) for i, j, size in found for step in range(size)]


def _told(one: _Cursor, two: _Cursor, pairs: Sequence[tuple[int, int]]) -> Iterator[Part]:
    """Yield the differences in the windows, up to the last pair; all of it where there is none."""
    ends = [] if pairs else [(len(one.ahead), len(two.ahead))]
    low, other = 0, 0
    for first, second in [*pairs, *ends]:
        yield from _between(one, two, one.take(first - low), two.take(second - other))
        if one.ahead and two.ahead:
            (left,), (right,) = one.take(1), two.take(1)
            yield _pair(one, two, left, right)
        low, other = first + 1, second + 1


def _pair(one: _Cursor, two: _Cursor, left: Unit, right: Unit) -> Part:
    if left.mark is not None and left.mark == right.mark and one.stored(left) == two.stored(right):
        return Same(left.start, left.end, right.start, left.records)
    return Differs(one.side(left), two.side(right))


def _between(one: _Cursor, two: _Cursor, left: list[Unit], right: list[Unit]) -> Iterator[Part]:
    """Yield the differences of units without a sure match.

    Units of the same position and size, or of the same kind in order, are paired, whichever are more; else the first
    ones.
    """
    places = _matches(_places(left), _places(right))
    sorts = _matches([unit.sort for unit in left], [unit.sort for unit in right])
    nothing = [(0, 0)] if left and right else []
    low, other = 0, 0
    for first, second in [*(max(places, sorts, key=len) or nothing), (len(left), len(right))]:
        yield from (Differs(one.side(unit), None) for unit in left[low:first])
        yield from (Differs(None, two.side(unit)) for unit in right[other:second])
        if first < len(left):
            yield Differs(one.side(left[first]), two.side(right[second]))
        low, other = first + 1, second + 1


def _places(units: Sequence[Unit]) -> list[tuple[int, int]]:
    """Return the offset of each unit from the first one, and its size."""
    return [(unit.start - units[0].start, unit.end - unit.start) for unit in units]
