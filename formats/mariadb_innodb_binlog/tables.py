"""Produce the tables of the events inside a log's groups (`formats.binlog_events.changes.row_tables`)."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator

import msgspec

from binlogtool.errors import UsageError
from binlogtool.formats.binlog_events.changes.row_tables import RowTables, make_compiled_reader
from binlogtool.formats.layouts import Batch
from binlogtool.formats.mariadb_innodb_binlog.records.context import IbbFileContext
from binlogtool.formats.tables import RecordTableRows, TableSchema, TableSupport
from binlogtool.limits import Limits


class GroupTables(msgspec.Struct):
    """`formats.tables.TableReader` of batches of events."""

    reader: RowTables = msgspec.field(default_factory=RowTables)

    def read_records(
        self, context: IbbFileContext, batch: Batch, start: int, stop: int, limits: Limits
    ) -> Iterator[RecordTableRows]:
        """See `formats.tables.TableReader`.

        Raises:
            UsageError: the records are not events.
        """
        if context.events is None:
            raise UsageError(f"--level {context.level}: such records have no rows of tables; --level event has them")
        return self.reader.read_records(context.events.context, batch, start, stop, limits)

    def add_known_tables(self, tables: Iterable[TableSchema]) -> None:
        """See `formats.tables.TableReader`."""
        self.reader.add_known_tables(tables)

    def limit_to(self, is_selected: Callable[[TableSchema], bool]) -> None:
        """See `formats.tables.TableReader`."""
        self.reader.limit_to(is_selected)

    def note_gap(self) -> None:
        """See `formats.tables.TableReader`."""
        self.reader.note_gap()


def make_group_tables() -> TableSupport:
    """See `formats.base.Format.tables`."""
    return TableSupport(
        GroupTables,
        types=("TABLE_MAP",),
        make_compiled_reader=lambda compile_: GroupTables(make_compiled_reader(compile_)),
    )
