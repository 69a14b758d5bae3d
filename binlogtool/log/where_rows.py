"""Which rows of a script's records a condition is true for (`formats.scripting.RowChoice`)."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import msgspec
from msgspec.structs import replace

from binlogtool.formats.scripting import Wording
from binlogtool.log.records import Block
from binlogtool.log.where import Columns, Where, timed, where


class RowWhere(msgspec.Struct):
    """The choice of one script. It is told of the records before their statements are asked for.

    text: its expression. found: was it true of any row?
    """

    text: str
    condition: Where
    found: bool = False
    _start: int = 0
    _members: Columns = msgspec.field(default_factory=dict)
    _marks: Sequence[bool] = ()

    @property
    def columns(self) -> frozenset[str]:
        """See `formats.scripting.RowChoice`."""
        return self.condition.columns

    def worded(self, wording: Wording) -> Wording:
        """The script with this choice: of tables that the condition rules out no row is written."""
        tables, concerns = wording.tables, self.condition.concerns
        return replace(wording, where=self, tables=lambda name: (tables is None or tables(name)) and concerns(name))

    def look(self, start: int, stop: int, members: Columns) -> None:
        """The records `[start, stop)` of a batch are next, with these members."""
        self._start, self._members = start, members
        self._marks = self.condition.candidates(members, stop - start)

    def look_at(self, block: Block) -> None:
        """The same of a block whose records are next, counted from 0."""
        e, names = block.envelope, self.condition.members
        own = {"offset": block.offset, "size": block.size, "record": block.record, "time": timed(e.time)}
        self.look(0, len(block), {name: own[name] if name in own else getattr(e, name) for name in names})

    def rows(self, index: int, body: Callable[[], Any]) -> bool | Sequence[bool]:
        """See `formats.scripting.RowChoice`."""
        at = index - self._start
        if not self._marks[at] or not self.condition.needs_body:
            self.found = self.found or self._marks[at]
            return self._marks[at]
        members = {name: column[at] for name, column in self._members.items()}
        marks = self.condition.of_rows(members, body())
        self.found = self.found or True in marks
        return marks


def row_choice(text: str) -> RowWhere:
    """The choice that an expression means.

    Raises:
        UsageError: it means none; the column says where.
    """
    return RowWhere(text, where(text))
