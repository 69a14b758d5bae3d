"""Selection of rows of a script's records by a condition (`formats.scripting.RowFilter`)."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import msgspec
from msgspec.structs import replace

from binlogtool.formats.scripting import ScriptOptions
from binlogtool.log.records import RecordBlock
from binlogtool.log.where import ColumnValues, Condition, compile_condition, to_timestamps


class RowCondition(msgspec.Struct):
    """The row condition of one script; it gets the members of records before their statements are requested.

    text: its expression. found: it was true of some row.
    """

    text: str
    condition: Condition
    found: bool = False
    _start: int = 0
    _members: ColumnValues = msgspec.field(default_factory=dict)
    _marks: Sequence[bool] = ()

    @property
    def columns(self) -> frozenset[str]:
        """The columns that the condition refers to."""
        return self.condition.columns

    def apply_to(self, options: ScriptOptions) -> ScriptOptions:
        """Return the script options with this condition: no row is written of tables that it rules out."""
        includes_table, can_match_object = options.includes_table, self.condition.can_match_object
        return replace(
            options,
            row_filter=self,
            includes_table=lambda name: (includes_table is None or includes_table(name)) and can_match_object(name),
        )

    def set_records(self, start: int, stop: int, members: ColumnValues) -> None:
        """Set the members of the next records, `[start, stop)` of a batch."""
        self._start, self._members = start, members
        self._marks = self.condition.find_candidates(members, stop - start)

    def set_block(self, block: RecordBlock) -> None:
        """Set the members of the next records, those of a block, counted from 0."""
        envelope, names = block.envelope, self.condition.members
        block_columns = {
            "offset": block.offset,
            "size": block.size,
            "record": block.record,
            "time": to_timestamps(envelope.time),
        }
        self.set_records(
            0,
            len(block),
            {name: block_columns[name] if name in block_columns else getattr(envelope, name) for name in names},
        )

    def select_rows(self, index: int, body: Callable[[], Any]) -> bool | Sequence[bool]:
        """Return for each row of a record whether it is selected; see `RowFilter.select_rows`."""
        at = index - self._start
        if not self._marks[at] or not self.condition.needs_body:
            self.found = self.found or self._marks[at]
            return self._marks[at]
        members = {name: column[at] for name, column in self._members.items()}
        marks = self.condition.match_rows(members, body())
        self.found = self.found or True in marks
        return marks


def make_row_condition(text: str) -> RowCondition:
    """Create the row condition of an expression.

    Raises:
        UsageError: it is invalid; the message names the column.
    """
    return RowCondition(text, compile_condition(text))
