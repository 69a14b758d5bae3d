"""Flashback conflicts: selected rows that later changes, which are not selected, changed again.

Flashback would not find such a row, or would give it values from before the later change. For each selected
row a hash of its key before and after the change is kept; for a table without a key a hash of the whole
row.
"""

from __future__ import annotations

import unicodedata
from collections.abc import Iterable, Iterator, Sequence
from itertools import repeat

import msgspec

from binlogtool.findings import CHANGED_LATER, Finding, finding
from binlogtool.formats.binlog_events.codes import DELETES, UPDATES
from binlogtool.formats.binlog_events.rows.table_map import TableMap
from binlogtool.formats.binlog_events.sql.rows import Image, Value, changed_values, completed, row_images
from binlogtool.formats.binlog_events.values.columns import Kind
from binlogtool.formats.binlog_events.values.decoding import Budget
from binlogtool.formats.fields import MalformedError
from binlogtool.formats.layouts import CodecError
from binlogtool.limits import Limits

_MARK_BYTES = 150
"""Memory of one row that is remembered."""
_SHARE = 4
"""The part of the ceiling of memory that may go there: one of so many."""
_SHOWN = 5
"""Rows and statements that a message names."""
_MOST_SHOWN_CHARACTERS = 64
ALL = -1
"""The bits of all columns."""

_TEXTS = (Kind.TEXT, Kind.UTF8)


class Conflicts(msgspec.Struct):
    """Later changes to the selected rows of one table.

    `rows` are hashes of their keys, `examples` the first ones in words. `others` describes statements that
    change the table as a whole, or rows that cannot be identified.
    """

    rows: set[int] = msgspec.field(default_factory=set)
    described: list[str] = msgspec.field(default_factory=list)
    others: list[str] = msgspec.field(default_factory=list)


class UndoConflicts(msgspec.Struct):
    """Selected rows so far and the later changes to them.

    `selected` maps the full name of a table to hash -> bitmap of the columns that flashback sets. `is_full`: no
    further rows are remembered. `unchecked` describes what could not be checked.
    """

    chosen: dict[str, dict[int, int]] = msgspec.field(default_factory=dict)
    later: dict[str, Conflicts] = msgspec.field(default_factory=dict)
    unread: list[str] = msgspec.field(default_factory=list)
    count: int = 0
    full: bool = False

    def take(
        self,
        place: str,
        table: TableMap,
        event: tuple[int, memoryview],
        wanted: bool | Sequence[bool],
        limits: Limits,
        *,
        whole: bool,
    ) -> None:
        """Add the rows of an event.

        Args:
            location: its location, in words.
            table: its table, with its key.
            event: type code and body.
            selection: which of its rows are selected.
            sets_all: whether flashback sets all columns of a row, not only those that the event changed.

        Raises:
            MalformedError, DecompressionError: the rows cannot be read.
        """
        name, code = table.full_name, event[0]
        if wanted is False and name not in self.chosen:
            return
        marks, budget = self.chosen.setdefault(name, {}), Budget(limits)
        rows = row_images(*event, table, limits)
        for row, chosen in zip(rows, repeat(wanted) if isinstance(wanted, bool) else wanted, strict=False):
            sides, keyless = _sides(table, row, budget), not table.primary_key
            bits = ALL if sides[0] != sides[1] or keyless else _bits(code, row)
            if chosen:
                self._remember(marks, sides, ALL if whole else bits, limits)
            elif known := [one for one in sides[: 1 if keyless else 2] if one is not None and marks.get(one, 0) & bits]:
                self._found(name, known, _described(table, row, budget, code, place))

    def _remember(self, marks: dict[int, int], sides: Iterable[int | None], bits: int, limits: Limits) -> None:
        """Remember the hashes of a selected row, as long as memory permits."""
        for side in sides:
            if side is None or self.full:
                continue
            self.count += side not in marks
            marks[side] = marks.get(side, 0) | bits
        self.full = self.full or self.count * _MARK_BYTES * _SHARE > limits.max_memory

    def _found(self, name: str, sides: Sequence[int], text: str) -> None:
        """Note that a selected row was changed again."""
        later = self.later.setdefault(name, Conflicts())
        if later.rows.isdisjoint(sides) and len(later.described) < _SHOWN:
            later.described.append(text)
        if later.rows.isdisjoint(sides):
            later.rows.add(sides[0])

    def see_rows(self, place: str, table: TableMap, event: tuple[int, memoryview], limits: Limits) -> None:
        """Note the rows of an event none of which is selected, see `add_rows`."""
        try:
            self.take(place, table, event, False, limits, whole=False)
        except (MalformedError, CodecError) as error:
            self.skip(f"{table.qualified_name} {place}: {error.args[0]}")

    def see_statement(self, name: str, text: str) -> None:
        """Note a later statement about a table with selected rows.

        Args:
            name: the full name of the table.
            text: the statement, in words.
        """
        if self.chosen.get(name):
            others = self.later.setdefault(name, Conflicts()).others
            if len(others) <= _SHOWN:
                others.append(text)

    def skip(self, text: str) -> None:
        """Note what cannot be checked, in words."""
        if len(self.unread) <= _SHOWN:
            self.unread.append(text)

    @property
    def tables(self) -> list[str]:
        """The full names of the tables with selected rows."""
        return [name for name, marks in self.chosen.items() if marks]

    def remarks(self) -> Iterator[Finding]:
        """Yield the findings at the end of the script."""
        for name, later in self.later.items():
            if later.rows:
                count = len(later.rows)
                text = (
                    f"{name}: {count:,} {'row was' if count == 1 else 'rows were'} changed again later by what is not"
                )
                text += f" chosen: {_listed(later.described, count)}: the undo does not find such a row, or gives it"
                yield finding(CHANGED_LATER, None, 0, text + " values from before that change; choose it as well")
            if later.others:
                text = f"{name}: {_listed(later.others, len(later.others))} came later and is not chosen: the undo"
                text += " meets a table that is not as the chosen changes left it"
                yield finding(CHANGED_LATER, None, 0, text)
        if self.unread:
            text = "not checked: whether the chosen rows were changed again later by "
            yield finding(CHANGED_LATER, None, 0, text + _listed(self.unread, len(self.unread)))
        if self.full:
            text = f"more than {self.count:,} rows are taken back: it was not noticed of all whether they were changed "
            text += "again later by what is not chosen; --max-memory raises the ceiling"
            yield finding(CHANGED_LATER, None, 0, text)


def _listed(texts: Sequence[str], count: int) -> str:
    """Return the first texts joined by commas, with an ellipsis if there are more."""
    more = ", …" if count > min(len(texts), _SHOWN) else ""
    return ", ".join(texts[:_SHOWN]) + more


def _places(table: TableMap) -> Sequence[int]:
    """Return the columns that identify a row; for a table without a primary key all stored ones."""
    key = [index for index, _ in table.primary_key or ()]
    return key or [index for index, column in enumerate(table.columns) if not column.generated]


def _sides(table: TableMap, row: tuple[Image, Image], budget: Budget) -> list[int | None]:
    """Return the hashes of a row before and after its change; None where the image is missing or lacks columns."""
    before, after = row
    return [_hash(table, image, budget) for image in (before, completed(before, after))]


def _hash(table: TableMap, image: Image, budget: Budget) -> int | None:
    """Return the hash of the identifying columns of an image; None if it lacks some."""
    values = {value.place: value for value in image}
    found = [values.get(place) for place in _places(table)]
    if table.primary_key:
        return None if None in found else hash(tuple(_compared(one, budget) for one in found if one is not None))
    return hash(tuple(None if one is None else one.raw for one in found)) if image else None


def _compared(value: Value, budget: Budget) -> object:
    """Return a key value in a form that is equal for values that a collation may treat as equal."""
    if value.raw is None or value.cell.kind.kind not in _TEXTS:
        return value.raw
    text = value.cell.convert(value.raw, budget)
    if not isinstance(text, str):
        return value.raw
    if not text.isascii():
        text = "".join(one for one in unicodedata.normalize("NFKD", text) if not unicodedata.combining(one))
    return text.casefold().rstrip(" ")


def _bits(code: int, row: tuple[Image, Image]) -> int:
    """Return the bitmap of the columns that a row event changes."""
    return sum(1 << value.place for value in changed_values(*row)) if code in UPDATES else ALL


def _described(table: TableMap, row: tuple[Image, Image], budget: Budget, code: int, place: str) -> str:
    """Return the row's identity, what happened to it, and where."""
    image, places = row[0] or row[1], _places(table)[:_SHOWN]
    texts = []
    for value in image:
        if value.place in places:
            text = "NULL" if value.raw is None else str(value.cell.convert(value.raw, budget))
            texts.append(f"{value.cell.key}={text[:_MOST_SHOWN_CHARACTERS]}")
    effect = "DELETE" if code in DELETES else "UPDATE" if code in UPDATES else "INSERT"
    return f"{' '.join(texts)} ({effect} {place})"
