"""Produce row changes from the events of a log's groups (`formats.binlog_events.changes.changes`)."""

from __future__ import annotations

from collections.abc import Iterator

import msgspec

from binlogtool.errors import UsageError
from binlogtool.formats.binlog_events.changes.changes import changes as changes_of_events
from binlogtool.formats.changes import Changes, Told
from binlogtool.formats.layouts import Batch
from binlogtool.formats.mariadb_innodb_binlog.records.context import FileContext
from binlogtool.limits import Limits


class GroupChanges(msgspec.Struct):
    """`formats.changes.Changes` of batches of events."""

    reader: Changes

    def records(self, context: FileContext, batch: Batch, start: int, stop: int, limits: Limits) -> Iterator[Told]:
        """See `ChangeReader`.

        Raises:
            UsageError: the records are not events.
        """
        if context.events is None:
            raise UsageError(f"--level {context.level}: such records tell no changes; --level event has them")
        return self.reader.records(context.events.context, batch, start, stop, limits)

    def lost(self) -> None:
        """See `formats.changes.Changes`."""
        self.reader.lost()


def changes() -> GroupChanges:
    """See `formats.base.Output.changes`."""
    return GroupChanges(changes_of_events())
