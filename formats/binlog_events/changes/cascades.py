"""Report row changes by foreign keys that have no events: InnoDB applies them inside the engine, without logging.

So does MariaDB. MySQL 9.7 applies them in SQL (unless innodb_native_foreign_keys is on): a flag of its row events says
so, and the rows of the other tables have events. Another flag says that the session checked no keys.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import msgspec

from binlogtool.findings import ROWS_DIVERGE, Finding, make_finding
from binlogtool.formats.binlog_events.codes import DELETE_ROW_EVENTS, UPDATE_ROW_EVENTS
from binlogtool.formats.binlog_events.ddl.foreign_keys import ForeignKeys
from binlogtool.formats.binlog_events.ddl.words import skip_gap
from binlogtool.formats.binlog_events.events.event import Event

_NO_FOREIGN_KEY_CHECKS, _USE_SQL_FOREIGN_KEY = 0x02, 0x10
_CHANGING_STATEMENT = re.compile(r"(DELETE|REPLACE|UPDATE)\b", re.IGNORECASE)
RowsGetter = Callable[[], Sequence[Mapping[str, Any]]]


class CascadeReporter(msgspec.Struct):
    """Reports foreign-key cascades once for each table whose rows may change.

    Attributes:
        reported: tables that were reported.
    """

    reported: set[str] = msgspec.field(default_factory=set)

    def has_unreported(self, keys: ForeignKeys, table: str) -> bool:
        """Check if deleting or updating rows of a table may change rows of a table that is not yet reported."""
        return bool(keys.keys) and any(
            key.child not in self.reported
            for changed in (None, _referenced_columns(keys))
            for key, _ in keys.iter_affected(table, changed)
        )

    def check_event(
        self, keys: ForeignKeys, event: Event, id_size: int, table: str, get_rows: RowsGetter
    ) -> Iterator[Finding]:
        """Report cascades of a row event.

        Args:
            id_size: bytes of the table id.
            get_rows: returns the event's rows; called only if needed.
        """
        if event.code not in DELETE_ROW_EVENTS | UPDATE_ROW_EVENTS or not self.has_unreported(keys, table):
            return
        if event.body[id_size] & (_NO_FOREIGN_KEY_CHECKS | _USE_SQL_FOREIGN_KEY):
            return
        changed_columns = None if event.code in DELETE_ROW_EVENTS else frozenset(_changed_columns(get_rows()))
        yield from self.check_change(keys, event, table, changed_columns)

    def check_change(
        self, keys: ForeignKeys, event: Event, table: str, changed_columns: frozenset[str] | None
    ) -> Iterator[Finding]:
        """Report cascades of a change to a table.

        Args:
            changed_columns: updated columns, in lower case; None = rows are deleted.
        """
        for key, action in keys.iter_affected(table, changed_columns):
            if key.child in self.reported:
                continue
            self.reported.add(key.child)
            text = f"rows of {key.child} may change by its foreign key to {key.parent} ({action}): no event tells which"
            yield make_finding(
                ROWS_DIVERGE, event.start, event.end - event.start, text, record=event.record, table=key.child
            )

    def check_statement(self, keys: ForeignKeys, event: Event, table: str | None, sql: str) -> Iterator[Finding]:
        """Report cascades of a statement that changes rows of one table, and may delete some."""
        matched = _CHANGING_STATEMENT.match(sql, skip_gap(sql)) if keys.keys and table is not None else None
        if table is not None and matched is not None:
            is_update = matched[1].upper() == "UPDATE"
            yield from self.check_change(keys, event, table, _referenced_columns(keys) if is_update else None)


def _referenced_columns(keys: ForeignKeys) -> frozenset[str]:
    return frozenset(name for key in keys.keys for name in key.references)


def _changed_columns(rows: Sequence[Mapping[str, Any]]) -> Iterator[str]:
    """Iterate over the columns that an event changes; a partial after image has only changed columns."""
    for row in rows:
        before, after = row.get("before") or {}, row.get("after") or {}
        yield from (name.lower() for name, value in after.items() if name not in before or before[name] != value)
