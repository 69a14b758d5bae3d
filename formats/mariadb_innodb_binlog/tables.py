"""Produce the tables of the events inside a log's groups (`formats.binlog_events.changes.row_tables`)."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator

import msgspec

from binlogtool.errors import UsageError
from binlogtool.formats.binlog_events.changes.row_tables import RowTables, compiled
from binlogtool.formats.layouts import Batch
from binlogtool.formats.mariadb_innodb_binlog.records.context import FileContext
from binlogtool.formats.tables import Table, Tables, Told
from binlogtool.limits import Limits


class GroupTables(msgspec.Struct):
    """`formats.tables.TableReader` of batches of events."""

    reader: RowTables = msgspec.field(default_factory=RowTables)

    def records(self, context: FileContext, batch: Batch, start: int, stop: int, limits: Limits) -> Iterator[Told]:
        """See `formats.tables.TableReader`.

        Raises:
            UsageError: the records are not events.
        """
        if context.events is None:
            raise UsageError(f"--level {context.level}: such records have no rows of tables; --level event has them")
        return self.reader.records(context.events.context, batch, start, stop, limits)

    def know(self, tables: Iterable[Table]) -> None:
        """See `formats.tables.TableReader`."""
        self.reader.know(tables)

    def only(self, wants: Callable[[Table], bool]) -> None:
        """See `formats.tables.TableReader`."""
        self.reader.only(wants)

    def lost(self) -> None:
        """See `formats.tables.TableReader`."""
        self.reader.lost()


def tables() -> Tables:
    """See `formats.base.Format.tables`."""
    return Tables(GroupTables, types=("TABLE_MAP",), compiled=lambda compile_: GroupTables(compiled(compile_)))
