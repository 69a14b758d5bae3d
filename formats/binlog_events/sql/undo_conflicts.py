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

from binlogtool.findings import CHANGED_LATER, Finding, make_finding
from binlogtool.formats.binlog_events.codes import DELETE_ROW_EVENTS, UPDATE_ROW_EVENTS
from binlogtool.formats.binlog_events.rows.table_map import TableMap
from binlogtool.formats.binlog_events.sql.rows import (
    Image,
    ImageValue,
    find_changed_values,
    iter_row_images,
    merge_images,
)
from binlogtool.formats.binlog_events.values.columns import ValueKind
from binlogtool.formats.binlog_events.values.decoding import DecodeBudget
from binlogtool.formats.fields import MalformedError
from binlogtool.formats.layouts import DecompressionError
from binlogtool.limits import Limits

_HASH_BYTES = 150
"""Memory of one row that is remembered."""
_MEMORY_DIVISOR = 4
"""The part of the ceiling of memory that may go there: one of so many."""
_MAX_EXAMPLES = 5
"""Rows and statements that a message names."""
_MAX_VALUE_CHARACTERS = 64
ALL_COLUMNS = -1
"""The bits of all columns."""

_TEXT_KINDS = (ValueKind.TEXT, ValueKind.UTF8)


class LaterChanges(msgspec.Struct):
    """Later changes to the selected rows of one table.

    `rows` are hashes of their keys, `examples` the first ones in words. `others` describes statements that
    change the table as a whole, or rows that cannot be identified.
    """

    rows: set[int] = msgspec.field(default_factory=set)
    examples: list[str] = msgspec.field(default_factory=list)
    others: list[str] = msgspec.field(default_factory=list)


class FlashbackConflicts(msgspec.Struct):
    """Selected rows so far and the later changes to them.

    `selected` maps the full name of a table to hash -> bitmap of the columns that flashback sets. `is_full`: no
    further rows are remembered. `unchecked` describes what could not be checked.
    """

    selected: dict[str, dict[int, int]] = msgspec.field(default_factory=dict)
    later_changes: dict[str, LaterChanges] = msgspec.field(default_factory=dict)
    unchecked: list[str] = msgspec.field(default_factory=list)
    count: int = 0
    is_full: bool = False

    def add_rows(
        self,
        location: str,
        table: TableMap,
        event: tuple[int, memoryview],
        selection: bool | Sequence[bool],
        limits: Limits,
        *,
        sets_all: bool,
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
        if selection is False and name not in self.selected:
            return
        hashes, budget = self.selected.setdefault(name, {}), DecodeBudget(limits)
        rows = iter_row_images(*event, table, limits)
        for row, is_selected in zip(
            rows, repeat(selection) if isinstance(selection, bool) else selection, strict=False
        ):
            row_hashes, is_keyless = _hash_row(table, row, budget), not table.primary_key
            columns = ALL_COLUMNS if row_hashes[0] != row_hashes[1] or is_keyless else _changed_columns(code, row)
            if is_selected:
                self._remember_row(hashes, row_hashes, ALL_COLUMNS if sets_all else columns, limits)
            elif conflicting := [
                one for one in row_hashes[: 1 if is_keyless else 2] if one is not None and hashes.get(one, 0) & columns
            ]:
                self._add_conflict(name, conflicting, _describe_row(table, row, budget, code, location))

    def _remember_row(
        self, hashes: dict[int, int], row_hashes: Iterable[int | None], columns: int, limits: Limits
    ) -> None:
        """Remember the hashes of a selected row, as long as memory permits."""
        for row_hash in row_hashes:
            if row_hash is None or self.is_full:
                continue
            self.count += row_hash not in hashes
            hashes[row_hash] = hashes.get(row_hash, 0) | columns
        self.is_full = self.is_full or self.count * _HASH_BYTES * _MEMORY_DIVISOR > limits.max_memory

    def _add_conflict(self, name: str, row_hashes: Sequence[int], text: str) -> None:
        """Note that a selected row was changed again."""
        changes = self.later_changes.setdefault(name, LaterChanges())
        if changes.rows.isdisjoint(row_hashes) and len(changes.examples) < _MAX_EXAMPLES:
            changes.examples.append(text)
        if changes.rows.isdisjoint(row_hashes):
            changes.rows.add(row_hashes[0])

    def note_rows(self, location: str, table: TableMap, event: tuple[int, memoryview], limits: Limits) -> None:
        """Note the rows of an event none of which is selected, see `add_rows`."""
        try:
            self.add_rows(location, table, event, False, limits, sets_all=False)
        except (MalformedError, DecompressionError) as error:
            self.note_unchecked(f"{table.qualified_name} {location}: {error.args[0]}")

    def note_statement(self, name: str, text: str) -> None:
        """Note a later statement about a table with selected rows.

        Args:
            name: the full name of the table.
            text: the statement, in words.
        """
        if self.selected.get(name):
            others = self.later_changes.setdefault(name, LaterChanges()).others
            if len(others) <= _MAX_EXAMPLES:
                others.append(text)

    def note_unchecked(self, text: str) -> None:
        """Note what cannot be checked, in words."""
        if len(self.unchecked) <= _MAX_EXAMPLES:
            self.unchecked.append(text)

    @property
    def tables(self) -> list[str]:
        """The full names of the tables with selected rows."""
        return [name for name, marks in self.selected.items() if marks]

    def iter_findings(self) -> Iterator[Finding]:
        """Yield the findings at the end of the script."""
        for name, changes in self.later_changes.items():
            if changes.rows:
                count = len(changes.rows)
                message = (
                    f"{name}: {count:,} {'row was' if count == 1 else 'rows were'} changed again later by what is not"
                )
                message += (
                    f" chosen: {_join_examples(changes.examples, count)}: the undo does not find such "
                    f"a row, or gives it"
                )
                yield make_finding(
                    CHANGED_LATER, None, 0, message + " values from before that change; choose it as well"
                )
            if changes.others:
                message = (
                    f"{name}: {_join_examples(changes.others, len(changes.others))} came later and is "
                    f"not chosen: the undo"
                )
                message += " meets a table that is not as the chosen changes left it"
                yield make_finding(CHANGED_LATER, None, 0, message)
        if self.unchecked:
            message = "not checked: whether the chosen rows were changed again later by "
            yield make_finding(CHANGED_LATER, None, 0, message + _join_examples(self.unchecked, len(self.unchecked)))
        if self.is_full:
            message = (
                f"more than {self.count:,} rows are taken back: it was not noticed of all whether they were changed "
            )
            message += "again later by what is not chosen; --max-memory raises the ceiling"
            yield make_finding(CHANGED_LATER, None, 0, message)


def _join_examples(texts: Sequence[str], count: int) -> str:
    """Return the first texts joined by commas, with an ellipsis if there are more."""
    more = ", …" if count > min(len(texts), _MAX_EXAMPLES) else ""
    return ", ".join(texts[:_MAX_EXAMPLES]) + more


def _identifying_columns(table: TableMap) -> Sequence[int]:
    """Return the columns that identify a row; for a table without a primary key all stored ones."""
    key = [index for index, _ in table.primary_key or ()]
    return key or [index for index, column in enumerate(table.columns) if not column.generated]


def _hash_row(table: TableMap, row: tuple[Image, Image], budget: DecodeBudget) -> list[int | None]:
    """Return the hashes of a row before and after its change; None where the image is missing or lacks columns."""
    before, after = row
    return [_hash_image(table, image, budget) for image in (before, merge_images(before, after))]


def _hash_image(table: TableMap, image: Image, budget: DecodeBudget) -> int | None:
    """Return the hash of the identifying columns of an image; None if it lacks some."""
    values = {value.column_index: value for value in image}
    key_values = [values.get(place) for place in _identifying_columns(table)]
    if table.primary_key:
        return (
            None
            if None in key_values
            else hash(tuple(_normalize_key_value(one, budget) for one in key_values if one is not None))
        )
    return hash(tuple(None if one is None else one.raw for one in key_values)) if image else None


def _normalize_key_value(value: ImageValue, budget: DecodeBudget) -> object:
    """Return a key value in a form that is equal for values that a collation may treat as equal."""
    if value.raw is None or value.cell.kind.kind not in _TEXT_KINDS:
        return value.raw
    text = value.cell.convert(value.raw, budget)
    if not isinstance(text, str):
        return value.raw
    if not text.isascii():
        text = "".join(one for one in unicodedata.normalize("NFKD", text) if not unicodedata.combining(one))
    return text.casefold().rstrip(" ")


def _changed_columns(code: int, row: tuple[Image, Image]) -> int:
    """Return the bitmap of the columns that a row event changes."""
    return (
        sum(1 << value.column_index for value in find_changed_values(*row))
        if code in UPDATE_ROW_EVENTS
        else ALL_COLUMNS
    )


def _describe_row(table: TableMap, row: tuple[Image, Image], budget: DecodeBudget, code: int, location: str) -> str:
    """Return the row's identity, what happened to it, and where."""
    image, columns = row[0] or row[1], _identifying_columns(table)[:_MAX_EXAMPLES]
    texts = []
    for value in image:
        if value.column_index in columns:
            text = "NULL" if value.raw is None else str(value.cell.convert(value.raw, budget))
            texts.append(f"{value.cell.key}={text[:_MAX_VALUE_CHARACTERS]}")
    effect = "DELETE" if code in DELETE_ROW_EVENTS else "UPDATE" if code in UPDATE_ROW_EVENTS else "INSERT"
    return f"{' '.join(texts)} ({effect} {location})"
