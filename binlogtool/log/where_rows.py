"""Selection of rows of a script's records by a condition (`formats.scripting.RowFilter`)."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import msgspec
from msgspec.structs import replace

from binlogtool.formats.scripting import Wording
from binlogtool.log.records import Block
from binlogtool.log.where import Columns, Where, timed, where


class RowWhere(msgspec.Struct):
    """The row condition of one script; it gets the members of records before their statements are requested.

    text: its expression. found: it was true of some row.
    """

    text: str
    condition: Where
    found: bool = False
    _start: int = 0
    _members: Columns = msgspec.field(default_factory=dict)
    _marks: Sequence[bool] = ()

    @property
    def columns(self) -> frozenset[str]:
        """The columns that the condition refers to."""
        return self.condition.columns

    def worded(self, wording: Wording) -> Wording:
        """Return the script options with this condition: no row is written of tables that it rules out."""
        tables, concerns = wording.tables, self.condition.concerns
        return replace(wording, where=self, tables=lambda name: (tables is None or tables(name)) and concerns(name))

    def look(self, start: int, stop: int, members: Columns) -> None:
        """Set the members of the next records, `[start, stop)` of a batch."""
        self._start, self._members = start, members
        self._marks = self.condition.candidates(members, stop - start)

    def look_at(self, block: Block) -> None:
        """Set the members of the next records, those of a block, counted from 0."""
        e, names = block.envelope, self.condition.members
        own = {"offset": block.offset, "size": block.size, "record": block.record, "time": timed(e.time)}
        self.look(0, len(block), {name: own[name] if name in own else getattr(e, name) for name in names})

    def rows(self, index: int, body: Callable[[], Any]) -> bool | Sequence[bool]:
        """Return for each row of a record whether it is selected; see `RowFilter.select_rows`."""
        at = index - self._start
        if not self._marks[at] or not self.condition.needs_body:
            self.found = self.found or self._marks[at]
            return self._marks[at]
        members = {name: column[at] for name, column in self._members.items()}
        marks = self.condition.of_rows(members, body())
        self.found = self.found or True in marks
        return marks


def row_choice(text: str) -> RowWhere:
    """Create the row condition of an expression.

    Raises:
        UsageError: it is invalid; the message names the column.
    """
    return RowWhere(text, where(text))
