"""Tables and row changes of the events in groups."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

import msgspec

from binlogtool.errors import UsageError
from binlogtool.formats.binlog_events.changes.row_changes import create_row_change_reader as changes_of_events
from binlogtool.formats.binlog_events.changes.row_event_table_reader import (
    RowEventTableReader,
    create_compiled_table_reader,
)
from binlogtool.formats.mariadb_innodb_binlog.decode import describe_records

if TYPE_CHECKING:
    from binlogtool.format_api.layout import Batch, KernelCompiler
    from binlogtool.format_api.row_output_interfaces import (
        ChangeReader,
        EventRows,
        RecordChanges,
        RecordTableRows,
    )
    from binlogtool.formats.mariadb_innodb_binlog.schema import IbbFileContext
    from binlogtool.limits import Limits


def _require_event_level_context(context: IbbFileContext, content_name: str) -> Any:
    """Return the context of the events. Raises UsageError: at this level the records are not events."""
    if context.events is None:
        raise UsageError(f"--level {context.level}: records of this level have no {content_name}; use --level event")
    return context.events.context


# --- Row changes of event groups ---


class GroupChanges(msgspec.Struct):
    """Change reader for batches of events (`format_api.row_output_interfaces.ChangeReader`)."""

    reader: ChangeReader

    def read_records(
        self, context: IbbFileContext, batch: Batch, start: int, stop: int, limits: Limits
    ) -> Iterator[RecordChanges]:
        """Yield the changes of each of these records; must be consumed in order.

        Raises:
            UsageError: the records are not events.
        """
        return self.reader.read_records(
            _require_event_level_context(context, "row changes"), batch, start, stop, limits
        )

    @property
    def open_transaction(self) -> str:
        """Name of the transaction whose end was not read; "" = there is none."""
        return self.reader.open_transaction

    def note_missing_records(self) -> None:
        """Handle a gap: records may be missing here, so the beginnings of open transactions are unknown afterwards."""
        self.reader.note_missing_records()


def make_group_changes() -> GroupChanges:
    """Create the reader of row changes (`format_api.format.OutputRules.start_changes`)."""
    return GroupChanges(changes_of_events())


# --- Tables of event groups ---


class GroupTables(RowEventTableReader):
    """Table reader for batches of events (`format_api.row_output_interfaces.TableReader`)."""

    def read_records(
        self, context: Any, batch: Batch, start: int, stop: int, limits: Limits
    ) -> Iterator[RecordTableRows]:
        """Yield the rows of each of these records; must be consumed in order.

        Raises:
            UsageError: the records are not events.
        """
        return super().read_records(_require_event_level_context(context, "table rows"), batch, start, stop, limits)

    def read_rows_until_unsupported(
        self, context: Any, batch: Batch, start: int, stop: int, limits: Limits, marks: bytes | None = None
    ) -> tuple[EventRows | None, int]:
        """Return the content of the first of these records, and the next record that needs `read_records`."""
        if context.events is None:
            return None, start
        return super().read_rows_until_unsupported(context.events.context, batch, start, stop, limits, marks)

    def read_column(self, context: Any, batch: Batch, name: str, start: int, stop: int) -> Sequence[Any]:
        """Return one column of the envelopes of these records."""
        column: Sequence[Any] = getattr(describe_records(context, batch, start, stop), name)
        return column


def make_compiled_group_reader(compile_kernel: KernelCompiler) -> GroupTables:
    """Create a reader that uses compiled code for rows where it can."""
    reader = create_compiled_table_reader(compile_kernel)
    return GroupTables(fillers=reader.fillers, runs=reader.runs)
