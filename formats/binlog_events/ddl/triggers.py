"""Tables with triggers, from the CREATE TRIGGER and DROP TRIGGER statements of a log."""

from __future__ import annotations

import re

import msgspec

from binlogtool.formats.binlog_events.ddl.tables import TABLE_PATTERN, qualify_table_name
from binlogtool.formats.binlog_events.ddl.words import QUOTED_NAME, skip_gap
from binlogtool.formats.table_names import split_name

_EXISTS = r"(?:IF\s+(?:NOT\s+)?EXISTS\s+)?"
_QUOTED_ANY = rf"{QUOTED_NAME}|'[^']*'|\"[^\"]*\""
_CREATE = re.compile(r"CREATE\b", re.IGNORECASE)
_CREATE_OPTIONS = re.compile(rf"OR\s+REPLACE\b|DEFINER\s*=\s*(?:[^\s`'\"*]|{_QUOTED_ANY})+", re.IGNORECASE)
_TRIGGER = re.compile(
    rf"TRIGGER\s+{_EXISTS}{TABLE_PATTERN.replace('table', 'name')}\s+(?:BEFORE|AFTER)\s+(?:INSERT|UPDATE|DELETE)"
    rf"(?:\s+OR\s+(?:INSERT|UPDATE|DELETE))*\s+ON\s+{TABLE_PATTERN}",
    re.IGNORECASE,
)
_DROP = re.compile(rf"DROP\s+TRIGGER\s+{_EXISTS}{TABLE_PATTERN}", re.IGNORECASE)
MAX_TRIGGERS = 100_000


class Triggers(msgspec.Struct):
    """Triggers by name ("database.trigger") with their tables ("database.table")."""

    tables: dict[str, str] = msgspec.field(default_factory=dict)

    def apply_statement(self, sql: str, database: str) -> None:
        """Apply a statement of the log that ran in this default database."""
        start = skip_gap(sql, 0)
        if (matched := _match_create_trigger(sql, start)) is not None:
            table = qualify_table_name(matched["table"], database)
            name = qualify_table_name(matched["name"], split_name(table)[0])
            if len(self.tables) < MAX_TRIGGERS:
                self.tables[name] = table
        elif (matched := _DROP.match(sql, start)) is not None:
            self.tables.pop(qualify_table_name(matched["table"], database), None)

    def list_triggers(self, table: str) -> list[str]:
        """Return the triggers of "database.table"."""
        return [name for name, owner in self.tables.items() if owner == table] if self.tables else []

    def drop_table(self, table: str) -> None:
        """Drop the triggers of a table, or of a whole database if the name ends with a dot."""
        is_database = table.endswith(".")
        for name, owner in list(self.tables.items()):
            if owner == table or (is_database and owner.startswith(table)):
                del self.tables[name]

    def rename_table(self, old_name: str, new_name: str) -> None:
        """Follow the rename of a table."""
        for name, owner in self.tables.items():
            if owner == old_name:
                self.tables[name] = new_name


def _match_create_trigger(sql: str, at: int) -> re.Match[str] | None:
    """Match the name and the table of a CREATE TRIGGER."""
    matched = _CREATE.match(sql, at)
    while matched is not None:
        at = skip_gap(sql, matched.end())
        matched = _CREATE_OPTIONS.match(sql, at)
    return _TRIGGER.match(sql, at)
