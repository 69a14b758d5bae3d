"""Produce row changes from the events of a log's groups (`formats.binlog_events.changes.changes`)."""

from __future__ import annotations

from collections.abc import Iterator

import msgspec

from binlogtool.errors import UsageError
from binlogtool.formats.binlog_events.changes.changes import make_row_changes as changes_of_events
from binlogtool.formats.changes import ChangeReader, RecordChanges
from binlogtool.formats.layouts import Batch
from binlogtool.formats.mariadb_innodb_binlog.records.context import IbbFileContext
from binlogtool.limits import Limits


class GroupChanges(msgspec.Struct):
    """`formats.changes.ChangeReader` of batches of events."""

    reader: ChangeReader

    def read_records(
        self, context: IbbFileContext, batch: Batch, start: int, stop: int, limits: Limits
    ) -> Iterator[RecordChanges]:
        """See `ChangeReader`.

        Raises:
            UsageError: the records are not events.
        """
        if context.events is None:
            raise UsageError(f"--level {context.level}: such records tell no changes; --level event has them")
        return self.reader.read_records(context.events.context, batch, start, stop, limits)

    def note_gap(self) -> None:
        """See `formats.changes.ChangeReader`."""
        self.reader.note_gap()


def make_group_changes() -> GroupChanges:
    """See `formats.base.OutputRules.start_changes`."""
    return GroupChanges(changes_of_events())
