"""Columns in a condition that no table of a log has: most likely misspelt, as they select no row."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from difflib import get_close_matches
from typing import Any

from msgspec.structs import replace

from binlogtool.errors import UsageError
from binlogtool.formats.layouts import Batch
from binlogtool.log.blocks import BlockDecoder
from binlogtool.log.filters import RecordFilter
from binlogtool.log.records import RecordBlock
from binlogtool.log.select import Selection
from binlogtool.log.where import compile_condition

_MAX_LISTED = 8
_UNNAMED_COLUMN = "@1"


class ColumnTracker:
    """Compare the columns that a condition names with those that the tables of a log have.

    Only formats whose records have row images describe columns; for others nothing is known.
    """

    def __init__(self, condition: str) -> None:
        self._condition_columns, self._table_columns = compile_condition(condition).columns, set[str]()

    @property
    def missing(self) -> frozenset[str]:
        """Columns that no table is known to have."""
        return self._condition_columns - self._table_columns

    def add_columns(self, names: Iterable[str]) -> None:
        """Add the columns of a table."""
        self._table_columns.update(names)

    def read_batch(
        self, decoder: BlockDecoder, batch: Batch, _record_filter: RecordFilter | None = None
    ) -> Iterator[RecordBlock]:
        """Yield the records of a batch that describe tables, fully decoded (a splitter of `log.open`)."""
        table_support = decoder.format.tables
        if table_support is None or decoder.format.output.start_changes is None or not self.missing:
            return
        plain_decoder = replace(decoder, decode="full", raw=False, script=None, row_condition=None, reader=None)
        for block in plain_decoder.decode_batch(batch, RecordFilter(Selection(types=table_support().types))):
            for body in block.bodies:
                self.add_columns(_iter_column_names(body))
            yield block

    def track_batch(self, decoder: BlockDecoder, batch: Batch) -> None:
        """Track the columns of a batch while a stream is read."""
        for _ in self.read_batch(decoder, batch):
            pass

    @property
    def unknown_message(self) -> str | None:
        """The message about a column that no table has; None = there is none, or no table is known."""
        return _make_message(min(self.missing), self._table_columns) if self.missing and self._table_columns else None

    def require_known(self) -> None:
        """Check that some table has each column that the condition names.

        Raises:
            UsageError: no table has one.
        """
        if self.unknown_message is not None:
            raise UsageError(self.unknown_message)


def _iter_column_names(body: Any) -> Iterator[str]:
    columns: Any = body.get("columns") if isinstance(body, dict) else None
    for number, column in enumerate(columns if isinstance(columns, list) else (), 1):
        yield column.get("name") or f"@{number}"


def _make_message(name: str, table_columns: set[str]) -> str:
    nameless = _UNNAMED_COLUMN in table_columns
    similar_names = get_close_matches(name, sorted(table_columns), 3)
    more = ", …" if len(table_columns) > _MAX_LISTED else ""
    suggestion = (
        f"is it {' or '.join(similar_names)}?"
        if similar_names
        else f"they have {', '.join(sorted(table_columns)[:_MAX_LISTED])}{more}"
    )
    if nameless:
        suggestion += (
            " (some have no names in the log: --schema FILE.sql gives them, or name one by its place: after.`@1`)"
        )
    return f"--where: no table of the log has a column {name}: {suggestion}"
