"""Effects of committed messages: row changes by the key of their table, definitions, opaque statements."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any

import msgspec

from binlogtool.errors import LimitError
from binlogtool.formats.drizzle.codes import StatementType
from binlogtool.formats.drizzle.meaning import name_text
from binlogtool.formats.replay_rules import (
    ADD,
    DELETE,
    DROP,
    PATCH,
    PUT,
    Change,
    Effects,
    Records,
    canonical,
)

DATA_PARTS: Mapping[str, str] = MappingProxyType(
    {"INSERT": "insert_data", "UPDATE": "update_data", "DELETE": "delete_data"}
)
"""The member with the rows, which may go on in the next message."""

STATEMENTS = "(sql)"
"""The object of statements whose effect is not in the log: RAW_SQL, SET_VARIABLE, unknown types."""

_MAX_HELD = 1_000_000
_MAX_TABLES = 100_000
_ROLLBACK_STATEMENT = StatementType.ROLLBACK_STATEMENT.name
Row = dict[str, Any]


@dataclass(slots=True)
class RowEffects(Effects):
    """Row changes of a replay (implements `replay_rules.Effects`).

    Attributes:
        keys: table -> names of its key fields, from its definition or from an UPDATE or DELETE.
        held: changes of a statement that continues in the next message: it may still be rolled back.
    """

    keys: dict[str, tuple[str, ...]] = field(default_factory=dict)
    held: list[Change] = field(default_factory=list)

    def of(self, records: Records, i: int) -> Iterable[Change]:
        """Return the changes of one message, in order."""
        out: list[Change] = []
        for statement in (records.bodies[i] or {}).get("statement", ()):
            kind = str(statement.get("type"))
            if kind == _ROLLBACK_STATEMENT:
                self.held.clear()
                continue
            data = statement.get(DATA_PARTS.get(kind, ""))
            if data is None or data.get("segment_id", 1) == 1:
                out += self._released()
            self.held += self._statement(kind, statement)
            if len(self.held) > _MAX_HELD:
                raise LimitError(f"a statement over several messages changes more than {_MAX_HELD:,} rows")
            if data is None or data.get("end_segment", True):
                out += self._released()
        return out

    def _released(self) -> list[Change]:
        held, self.held = self.held, []
        return held

    def _statement(self, kind: str, statement: Mapping[str, Any]) -> Iterable[Change]:
        make = _KINDS.get(kind)
        if make is not None:
            return make(self, statement)
        opaque = {name: value for name, value in statement.items() if not name.endswith("_timestamp")}
        return (Change(STATEMENTS, ADD, b"", canonical(opaque)),)

    def learn(self, table: str, names: Sequence[str]) -> tuple[str, ...]:
        """Return the key fields of a table: those that are known, else these, which are then remembered."""
        if table not in self.keys and names and len(self.keys) < _MAX_TABLES:
            self.keys[table] = tuple(sorted(names))
        return self.keys.get(table, ())

    # -- rows ------------------------------------------------------------------------------------------------------

    def insert(self, statement: Mapping[str, Any]) -> Iterator[Change]:
        """Yield the inserted rows; rows of a table whose key is not known are a multiset."""
        header = statement.get("insert_header", {})
        table, names = _table(header), _names(header.get("field_metadata"))
        key = self.keys.get(table, ())
        for record in statement.get("insert_data", {}).get("record", ()):
            row = _row(names, record.get("insert_value", ()), record.get("is_null", ()))
            if key and row.keys() >= set(key):
                yield Change(table, PUT, _key(row, key), canonical(row))
            else:
                yield Change(table, ADD, b"", canonical(row))

    def update(self, statement: Mapping[str, Any]) -> Iterator[Change]:
        """Yield changes of fields by key. For a row whose key changes the other fields are not known."""
        header = statement.get("update_header", {})
        table, names = _table(header), _names(header.get("key_field_metadata"))
        sets, key = _names(header.get("set_field_metadata")), self.learn(table, names)
        for record in statement.get("update_data", {}).get("record", ()):
            old = _row(names, record.get("key_value", ()), ())
            new = _row(sets, record.get("after_value", ()), record.get("is_null", ()))
            if old.keys() != set(key):
                yield Change(table, ADD, b"", canonical(["update", old, new]))
            elif all(old[name] == new.get(name, old[name]) for name in key):
                yield Change(table, PATCH, _key(old, key), canonical(new))
            else:
                yield Change(table, DELETE, _key(old, key), b"")
                yield Change(table, PUT, _key(old | new, key), canonical(old | new))

    def delete(self, statement: Mapping[str, Any]) -> Iterator[Change]:
        """Yield the deletions of rows by key."""
        header = statement.get("delete_header", {})
        table, names = _table(header), _names(header.get("key_field_metadata"))
        key = self.learn(table, names)
        for record in statement.get("delete_data", {}).get("record", ()):
            old = _row(names, record.get("key_value", ()), ())
            if old.keys() == set(key):
                yield Change(table, DELETE, _key(old, key), b"")
            else:
                yield Change(table, ADD, b"", canonical(["delete", old]))

    # -- definitions -----------------------------------------------------------------------------------------------

    def create_table(self, statement: Mapping[str, Any]) -> Iterator[Change]:
        """Yield an empty table, and learn its key."""
        table = statement.get("create_table_statement", {}).get("table", {})
        name = f"{name_text(table.get('schema', ''))}.{name_text(table.get('name', ''))}"
        self.keys.pop(name, None)
        self.learn(name, _defined_key(table))
        yield Change(name, DROP, b"", b"")

    def alter_table(self, statement: Mapping[str, Any]) -> Iterator[Change]:
        """Yield the change of a definition; its effect on the rows is not in the log."""
        altered = statement.get("alter_table_statement", {})
        before, after = altered.get("before", {}), altered.get("after", {})
        name = f"{name_text(after.get('schema', ''))}.{name_text(after.get('name', ''))}"
        self.keys.pop(name, None)
        self.learn(name, _defined_key(after))
        yield Change(name, ADD, b"", canonical(["altered from", before.get("schema"), before.get("name"), after]))

    def truncate(self, statement: Mapping[str, Any]) -> Iterator[Change]:
        """Yield the removal of all rows."""
        yield Change(_table(statement.get("truncate_table_statement", {})), DROP, b"", b"")

    def drop_table(self, statement: Mapping[str, Any]) -> Iterator[Change]:
        """Yield the removal of all rows, and forget the key."""
        name = _table(statement.get("drop_table_statement", {}))
        self.keys.pop(name, None)
        yield Change(name, DROP, b"", b"")

    def schema(self, statement: Mapping[str, Any]) -> Iterator[Change]:
        """Yield a schema that is created or changed."""
        made = statement.get("create_schema_statement", {}).get("schema")
        after = made or statement.get("alter_schema_statement", {}).get("after", {})
        yield Change(name_text(after.get("name", "")), PUT, b"", canonical(after))

    def drop_schema(self, statement: Mapping[str, Any]) -> Iterator[Change]:
        """Yield the removal of a schema, and of all its tables that are known."""
        name = name_text(statement.get("drop_schema_statement", {}).get("schema_name", ""))
        for table in [one for one in self.keys if one.startswith(f"{name}.")]:
            del self.keys[table]
            yield Change(table, DROP, b"", b"")
        yield Change(name, DROP, b"", b"")


_KINDS: Mapping[str, Callable[[RowEffects, Mapping[str, Any]], Iterator[Change]]] = MappingProxyType(
    {
        "INSERT": RowEffects.insert, "UPDATE": RowEffects.update, "DELETE": RowEffects.delete,
        "CREATE_TABLE": RowEffects.create_table, "ALTER_TABLE": RowEffects.alter_table,
        "TRUNCATE_TABLE": RowEffects.truncate, "DROP_TABLE": RowEffects.drop_table,
        "CREATE_SCHEMA": RowEffects.schema, "ALTER_SCHEMA": RowEffects.schema, "DROP_SCHEMA": RowEffects.drop_schema,
    }
)  # fmt: skip


def patch(image: bytes, operation: bytes) -> bytes | None:
    """Return a row with some fields changed; None if there is no row."""
    try:
        row, changed = msgspec.msgpack.decode(image), msgspec.msgpack.decode(operation)
    except (msgspec.DecodeError, ValueError):
        return None
    both = isinstance(row, dict) and isinstance(changed, dict)
    return canonical(row | changed) if both else None


def _table(header: Mapping[str, Any]) -> str:
    metadata = header.get("table_metadata", {})
    return f"{name_text(metadata.get('schema_name', ''))}.{name_text(metadata.get('table_name', ''))}"


def _names(fields: Any) -> list[str]:
    return [name_text(one.get("name", "")) for one in fields or ()]


def _row(names: Sequence[str], values: Sequence[Any], nulls: Sequence[bool]) -> Row:
    """Create a row of values by name; a list of NULL flags may be shorter than the values."""
    row = dict(zip(names, values, strict=False))
    if True in nulls:
        row |= {name: None for name, null in zip(names, nulls, strict=False) if null}
    return row


def _key(row: Row, key: tuple[str, ...]) -> bytes:
    return canonical([row[name] for name in key])


def _defined_key(table: Mapping[str, Any]) -> list[str]:
    """Return the names of the fields of the primary index; [] if there is none."""
    fields = _names(table.get("field"))
    for index in table.get("indexes", ()):
        if index.get("is_primary"):
            parts = [one.get("fieldnr", 0) for one in index.get("index_part", ())]
            return [fields[number] for number in parts if number < len(fields)]
    return []
