"""Report row changes by foreign keys that have no events: InnoDB applies them inside the engine, without logging.

So does MariaDB. MySQL 9.7 applies them in SQL (unless innodb_native_foreign_keys is on): a flag of its row events
says
so, and the rows of the other tables have events. Another flag says that the session checked no keys.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import msgspec

from binlogtool.findings import DIVERGES, Finding, finding
from binlogtool.formats.binlog_events.codes import DELETES, UPDATES
from binlogtool.formats.binlog_events.ddl.foreign_keys import ForeignKeys
from binlogtool.formats.binlog_events.ddl.words import after_gap
from binlogtool.formats.binlog_events.events.event import Event

_CHECKS_OFF, _IN_SQL = 0x02, 0x10
_CHANGES = re.compile(r"(DELETE|REPLACE|UPDATE)\b", re.IGNORECASE)
Rows = Callable[[], Sequence[Mapping[str, Any]]]


class Cascades(msgspec.Struct):
    """Reports foreign-key cascades once for each table whose rows may change.

    Attributes:
        reported: tables that were reported.
    """

    said: set[str] = msgspec.field(default_factory=set)

    def watches(self, keys: ForeignKeys, table: str) -> bool:
        """Check if deleting or updating rows of a table may change rows of a table that is not yet reported."""
        return bool(keys.keys) and any(
            key.child not in self.said for changed in (None, _all(keys)) for key, _ in keys.reached(table, changed)
        )

    def of_event(self, keys: ForeignKeys, event: Event, id_size: int, table: str, rows: Rows) -> Iterator[Finding]:
        """Report cascades of a row event.

        Args:
            id_size: bytes of the table id.
            get_rows: returns the event's rows; called only if needed.
        """
        if event.code not in DELETES | UPDATES or not self.watches(keys, table):
            return
        if event.body[id_size] & (_CHECKS_OFF | _IN_SQL):
            return
        changed = None if event.code in DELETES else frozenset(_changed(rows()))
        yield from self.of_change(keys, event, table, changed)

    def of_change(
        self, keys: ForeignKeys, event: Event, table: str, changed: frozenset[str] | None
    ) -> Iterator[Finding]:
        """Report cascades of a change to a table.

        Args:
            changed_columns: updated columns, in lower case; None = rows are deleted.
        """
        for key, action in keys.reached(table, changed):
            if key.child in self.said:
                continue
            self.said.add(key.child)
            text = f"rows of {key.child} may change by its foreign key to {key.parent} ({action}): no event tells which"
            yield finding(DIVERGES, event.start, event.end - event.start, text, record=event.record, table=key.child)

    def of_statement(self, keys: ForeignKeys, event: Event, table: str | None, sql: str) -> Iterator[Finding]:
        """Report cascades of a statement that changes rows of one table, and may delete some."""
        matched = _CHANGES.match(sql, after_gap(sql)) if keys.keys and table is not None else None
        if table is not None and matched is not None:
            updates = matched[1].upper() == "UPDATE"
            yield from self.of_change(keys, event, table, _all(keys) if updates else None)


def _all(keys: ForeignKeys) -> frozenset[str]:
    return frozenset(name for key in keys.keys for name in key.references)


def _changed(rows: Sequence[Mapping[str, Any]]) -> Iterator[str]:
    """Iterate over the columns that an event changes; a partial after image has only changed columns."""
    for row in rows:
        before, after = row.get("before") or {}, row.get("after") or {}
        yield from (name.lower() for name, value in after.items() if name not in before or before[name] != value)
