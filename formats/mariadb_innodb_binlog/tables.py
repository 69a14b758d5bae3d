"""Tables and row changes of the events in groups."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator

import msgspec

from binlogtool.errors import UsageError
from binlogtool.format_api.layout import Batch
from binlogtool.format_api.outputs import ChangeReader, RecordChanges, RecordTableRows, TableSchema, TableSupport
from binlogtool.formats.binlog_events.changes.row_changes import make_row_changes as changes_of_events
from binlogtool.formats.binlog_events.changes.row_tables import RowTables, make_compiled_reader
from binlogtool.formats.mariadb_innodb_binlog.schema import IbbFileContext
from binlogtool.limits import Limits

# --- Produce row changes from the events of a log's groups (`formats.binlog_events.changes.changes`) ---


class GroupChanges(msgspec.Struct):
    """`format_api.outputs.ChangeReader` of batches of events."""

    reader: ChangeReader

    def read_records(
        self, context: IbbFileContext, batch: Batch, start: int, stop: int, limits: Limits
    ) -> Iterator[RecordChanges]:
        """See `ChangeReader`.

        Raises:
            UsageError: the records are not events.
        """
        if context.events is None:
            raise UsageError(f"--level {context.level}: records of this level have no row changes; use --level event")
        return self.reader.read_records(context.events.context, batch, start, stop, limits)

    def note_gap(self) -> None:
        """See `format_api.outputs.ChangeReader`."""
        self.reader.note_gap()


def make_group_changes() -> GroupChanges:
    """See `format_api.format.OutputRules.start_changes`."""
    return GroupChanges(changes_of_events())


# --- Produce the tables of the events inside a log's groups (`formats.binlog_events.changes.row_tables`) ---


class GroupTables(msgspec.Struct):
    """`format_api.outputs.TableReader` of batches of events."""

    reader: RowTables = msgspec.field(default_factory=RowTables)

    def read_records(
        self, context: IbbFileContext, batch: Batch, start: int, stop: int, limits: Limits
    ) -> Iterator[RecordTableRows]:
        """See `format_api.outputs.TableReader`.

        Raises:
            UsageError: the records are not events.
        """
        if context.events is None:
            raise UsageError(f"--level {context.level}: records of this level have no table rows; use --level event")
        return self.reader.read_records(context.events.context, batch, start, stop, limits)

    def add_known_tables(self, tables: Iterable[TableSchema]) -> None:
        """See `format_api.outputs.TableReader`."""
        self.reader.add_known_tables(tables)

    def limit_to(self, is_selected: Callable[[TableSchema], bool]) -> None:
        """See `format_api.outputs.TableReader`."""
        self.reader.limit_to(is_selected)

    def note_gap(self) -> None:
        """See `format_api.outputs.TableReader`."""
        self.reader.note_gap()


def make_group_tables() -> TableSupport:
    """See `format_api.format.Format.tables`."""
    return TableSupport(
        GroupTables,
        types=("TABLE_MAP",),
        make_compiled_reader=lambda compile_: GroupTables(make_compiled_reader(compile_)),
    )
