"""Rows that an undo takes back and that were changed again later, by what is not chosen: it would not find them as they
are, or give them values from before that change."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import repeat
from typing import Any

import msgspec

from binlogtool.findings import CHANGED_LATER, Finding, finding
from binlogtool.formats.binlog_events.rows.table_map import TableMap
from binlogtool.limits import Limits

_MARK_BYTES = 100
"""Memory of one row that is remembered."""
_SHARE = 4
"""The part of the ceiling of memory that may go there: one of so many."""


class Changed(msgspec.Struct):
    """What came later to the chosen rows of one table. place: of the first such change, in words."""

    place: str
    rows: int = 0


class Histories(msgspec.Struct):
    """The rows that were chosen so far, by table. full: no more rows are remembered."""

    known: dict[str, set[int]] = msgspec.field(default_factory=dict)
    later: dict[str, Changed] = msgspec.field(default_factory=dict)
    count: int = 0
    full: bool = False

    def see(
        self, place: str, table: TableMap, wanted: bool | Sequence[bool], body: Callable[[], Any], limits: Limits
    ) -> None:
        """The rows of an event. place: where it is, in words. wanted: which of them are chosen. body: decodes it.

        Raises:
            MalformedError, CodecError: they cannot be decoded.
        """
        name = table.full_name
        if wanted is False and name not in self.known:
            return
        known, keys = self.known.setdefault(name, set()), _keys(table)
        for row, chosen in zip(body()["rows"], repeat(wanted) if isinstance(wanted, bool) else wanted, strict=False):
            if chosen:
                self._remember(known, row, keys, limits)
            elif not known.isdisjoint(_marks(row, ("before", "after") if table.primary_key else ("before",), keys)):
                self.later.setdefault(name, Changed(place)).rows += 1

    def _remember(self, known: set[int], row: Mapping[str, Any], keys: Sequence[str], limits: Limits) -> None:
        if self.full:
            return
        before = len(known)
        known.update(_marks(row, ("before", "after"), keys))
        self.count += len(known) - before
        self.full = self.count * _MARK_BYTES * _SHARE > limits.max_memory

    def remarks(self) -> Iterator[Finding]:
        """What is to be said at the end."""
        for name, later in self.later.items():
            what = "row was changed" if later.rows == 1 else "rows were changed"
            text = f"{name}: {later.rows:,} {what} again later by what is not chosen, first at {later.place}: "
            text += "the undo does not find such a row, or gives it values from before that change; choose it as well"
            yield finding(CHANGED_LATER, None, 0, text)
        if self.full:
            text = f"more than {self.count:,} rows are taken back: it was not noticed of all whether they were changed "
            text += "again later by what is not chosen; --max-memory raises the ceiling"
            yield finding(CHANGED_LATER, None, 0, text)


def _keys(table: TableMap) -> Sequence[str]:
    """The columns that say which row it is; of a table without a primary key all of them."""
    return [table.keys[index] for index, _ in table.primary_key] if table.primary_key else table.keys


def _marks(row: Mapping[str, Any], sides: Sequence[str], keys: Sequence[str]) -> Iterator[int]:
    """The row before and after its change; nothing of an image that does not have the columns."""
    for side in sides:
        image = row.get(side)
        if image is not None and all(key in image for key in keys):
            yield hash(repr([image[key] for key in keys]))
