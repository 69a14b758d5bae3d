"""Tables with triggers, from the CREATE TRIGGER and DROP TRIGGER statements of a log."""

from __future__ import annotations

import re

import msgspec

from binlogtool.formats.binlog_events.ddl.tables import TABLE, qualified
from binlogtool.formats.binlog_events.ddl.words import QUOTED, after_gap
from binlogtool.formats.table_names import parts_of

_EXISTS = r"(?:IF\s+(?:NOT\s+)?EXISTS\s+)?"
_MARKED = rf"{QUOTED}|'[^']*'|\"[^\"]*\""
_CREATE = re.compile(r"CREATE\b", re.IGNORECASE)
_BEFORE = re.compile(rf"OR\s+REPLACE\b|DEFINER\s*=\s*(?:[^\s`'\"*]|{_MARKED})+", re.IGNORECASE)
_TRIGGER = re.compile(
    rf"TRIGGER\s+{_EXISTS}{TABLE.replace('table', 'name')}\s+(?:BEFORE|AFTER)\s+(?:INSERT|UPDATE|DELETE)"
    rf"(?:\s+OR\s+(?:INSERT|UPDATE|DELETE))*\s+ON\s+{TABLE}",
    re.IGNORECASE,
)
_DROP = re.compile(rf"DROP\s+TRIGGER\s+{_EXISTS}{TABLE}", re.IGNORECASE)
MOST_TRIGGERS = 100_000


class Triggers(msgspec.Struct):
    """Triggers by name ("database.trigger") with their tables ("database.table")."""

    tables: dict[str, str] = msgspec.field(default_factory=dict)

    def learn(self, sql: str, database: str) -> None:
        """Apply a statement of the log that ran in this default database."""
        start = after_gap(sql, 0)
        if (matched := _created(sql, start)) is not None:
            table = qualified(matched["table"], database)
            name = qualified(matched["name"], parts_of(table)[0])
            if len(self.tables) < MOST_TRIGGERS:
                self.tables[name] = table
        elif (matched := _DROP.match(sql, start)) is not None:
            self.tables.pop(qualified(matched["table"], database), None)

    def of(self, table: str) -> list[str]:
        """Return the triggers of "database.table"."""
        return [name for name, owner in self.tables.items() if owner == table] if self.tables else []

    def dropped(self, table: str) -> None:
        """Drop the triggers of a table, or of a whole database if the name ends with a dot."""
        is_one = table.endswith(".")
        for name, owner in list(self.tables.items()):
            if owner == table or (is_one and owner.startswith(table)):
                del self.tables[name]

    def renamed(self, one: str, other: str) -> None:
        """Follow the rename of a table."""
        for name, owner in self.tables.items():
            if owner == one:
                self.tables[name] = other


def _created(sql: str, at: int) -> re.Match[str] | None:
    """Match the name and the table of a CREATE TRIGGER."""
    matched = _CREATE.match(sql, at)
    while matched is not None:
        at = after_gap(sql, matched.end())
        matched = _BEFORE.match(sql, at)
    return _TRIGGER.match(sql, at)
