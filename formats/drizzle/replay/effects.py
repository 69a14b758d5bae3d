"""Effects of committed messages: row changes by the key of their table, definitions, opaque statements."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any

import msgspec

from binlogtool.errors import LimitError
from binlogtool.formats.drizzle.codes import StatementType
from binlogtool.formats.drizzle.meaning import to_text
from binlogtool.formats.replay_rules import (
    ADD,
    DELETE,
    DROP,
    PATCH,
    PUT,
    DecodedRecords,
    EffectReader,
    StateChange,
    encode_canonical,
)

DATA_MEMBERS: Mapping[str, str] = MappingProxyType(
    {"INSERT": "insert_data", "UPDATE": "update_data", "DELETE": "delete_data"}
)
"""The member with the rows, which may go on in the next message."""

OPAQUE_OBJECT = "(sql)"
"""The object of statements whose effect is not in the log: RAW_SQL, SET_VARIABLE, unknown types."""

_MAX_HELD_CHANGES = 1_000_000
_MAX_TABLES = 100_000
_ROLLBACK_STATEMENT = StatementType.ROLLBACK_STATEMENT.name
RowValues = dict[str, Any]


@dataclass(slots=True)
class DrizzleEffects(EffectReader):
    """Row changes of a replay (implements `replay_rules.EffectReader`).

    Attributes:
        keys: table -> names of its key fields, from its definition or from an UPDATE or DELETE.
        held: changes of a statement that continues in the next message: it may still be rolled back.
    """

    keys: dict[str, tuple[str, ...]] = field(default_factory=dict)
    held: list[StateChange] = field(default_factory=list)

    def of(self, records: DecodedRecords, index: int) -> Iterable[StateChange]:
        """Return the changes of one message, in order."""
        changes: list[StateChange] = []
        for statement in (records.bodies[index] or {}).get("statement", ()):
            kind = str(statement.get("type"))
            if kind == _ROLLBACK_STATEMENT:
                self.held.clear()
                continue
            data = statement.get(DATA_MEMBERS.get(kind, ""))
            if data is None or data.get("segment_id", 1) == 1:
                changes += self._release_held()
            self.held += self._decode_statement(kind, statement)
            if len(self.held) > _MAX_HELD_CHANGES:
                raise LimitError(f"a statement over several messages changes more than {_MAX_HELD_CHANGES:,} rows")
            if data is None or data.get("end_segment", True):
                changes += self._release_held()
        return changes

    def _release_held(self) -> list[StateChange]:
        held, self.held = self.held, []
        return held

    def _decode_statement(self, kind: str, statement: Mapping[str, Any]) -> Iterable[StateChange]:
        decode = _CHANGE_DECODERS.get(kind)
        if decode is not None:
            return decode(self, statement)
        opaque = {name: value for name, value in statement.items() if not name.endswith("_timestamp")}
        return (StateChange(OPAQUE_OBJECT, ADD, b"", encode_canonical(opaque)),)

    def learn_key(self, table: str, names: Sequence[str]) -> tuple[str, ...]:
        """Return the key fields of a table: those that are known, else these, which are then remembered."""
        if table not in self.keys and names and len(self.keys) < _MAX_TABLES:
            self.keys[table] = tuple(sorted(names))
        return self.keys.get(table, ())

    # -- rows ------------------------------------------------------------------------------------------------------

    def decode_insert(self, statement: Mapping[str, Any]) -> Iterator[StateChange]:
        """Yield the inserted rows; rows of a table whose key is not known are a multiset."""
        header = statement.get("insert_header", {})
        table, names = _get_table_name(header), _list_field_names(header.get("field_metadata"))
        key = self.keys.get(table, ())
        for record in statement.get("insert_data", {}).get("record", ()):
            row = _create_row(names, record.get("insert_value", ()), record.get("is_null", ()))
            if key and row.keys() >= set(key):
                yield StateChange(table, PUT, _encode_key(row, key), encode_canonical(row))
            else:
                yield StateChange(table, ADD, b"", encode_canonical(row))

    def decode_update(self, statement: Mapping[str, Any]) -> Iterator[StateChange]:
        """Yield changes of fields by key. For a row whose key changes the other fields are not known."""
        header = statement.get("update_header", {})
        table, names = _get_table_name(header), _list_field_names(header.get("key_field_metadata"))
        set_names, key = _list_field_names(header.get("set_field_metadata")), self.learn_key(table, names)
        for record in statement.get("update_data", {}).get("record", ()):
            old = _create_row(names, record.get("key_value", ()), ())
            new = _create_row(set_names, record.get("after_value", ()), record.get("is_null", ()))
            if old.keys() != set(key):
                yield StateChange(table, ADD, b"", encode_canonical(["update", old, new]))
            elif all(old[name] == new.get(name, old[name]) for name in key):
                yield StateChange(table, PATCH, _encode_key(old, key), encode_canonical(new))
            else:
                yield StateChange(table, DELETE, _encode_key(old, key), b"")
                yield StateChange(table, PUT, _encode_key(old | new, key), encode_canonical(old | new))

    def decode_delete(self, statement: Mapping[str, Any]) -> Iterator[StateChange]:
        """Yield the deletions of rows by key."""
        header = statement.get("delete_header", {})
        table, names = _get_table_name(header), _list_field_names(header.get("key_field_metadata"))
        key = self.learn_key(table, names)
        for record in statement.get("delete_data", {}).get("record", ()):
            old = _create_row(names, record.get("key_value", ()), ())
            if old.keys() == set(key):
                yield StateChange(table, DELETE, _encode_key(old, key), b"")
            else:
                yield StateChange(table, ADD, b"", encode_canonical(["delete", old]))

    # -- definitions -----------------------------------------------------------------------------------------------

    def decode_create_table(self, statement: Mapping[str, Any]) -> Iterator[StateChange]:
        """Yield an empty table, and learn its key."""
        table = statement.get("create_table_statement", {}).get("table", {})
        name = f"{to_text(table.get('schema', ''))}.{to_text(table.get('name', ''))}"
        self.keys.pop(name, None)
        self.learn_key(name, _get_primary_key(table))
        yield StateChange(name, DROP, b"", b"")

    def decode_alter_table(self, statement: Mapping[str, Any]) -> Iterator[StateChange]:
        """Yield the change of a definition; its effect on the rows is not in the log."""
        altered = statement.get("alter_table_statement", {})
        before, after = altered.get("before", {}), altered.get("after", {})
        name = f"{to_text(after.get('schema', ''))}.{to_text(after.get('name', ''))}"
        self.keys.pop(name, None)
        self.learn_key(name, _get_primary_key(after))
        yield StateChange(
            name, ADD, b"", encode_canonical(["altered from", before.get("schema"), before.get("name"), after])
        )

    def decode_truncate(self, statement: Mapping[str, Any]) -> Iterator[StateChange]:
        """Yield the removal of all rows."""
        yield StateChange(_get_table_name(statement.get("truncate_table_statement", {})), DROP, b"", b"")

    def decode_drop_table(self, statement: Mapping[str, Any]) -> Iterator[StateChange]:
        """Yield the removal of all rows, and forget the key."""
        name = _get_table_name(statement.get("drop_table_statement", {}))
        self.keys.pop(name, None)
        yield StateChange(name, DROP, b"", b"")

    def decode_schema(self, statement: Mapping[str, Any]) -> Iterator[StateChange]:
        """Yield a schema that is created or changed."""
        created = statement.get("create_schema_statement", {}).get("schema")
        after = created or statement.get("alter_schema_statement", {}).get("after", {})
        yield StateChange(to_text(after.get("name", "")), PUT, b"", encode_canonical(after))

    def decode_drop_schema(self, statement: Mapping[str, Any]) -> Iterator[StateChange]:
        """Yield the removal of a schema, and of all its tables that are known."""
        name = to_text(statement.get("drop_schema_statement", {}).get("schema_name", ""))
        for table in [one for one in self.keys if one.startswith(f"{name}.")]:
            del self.keys[table]
            yield StateChange(table, DROP, b"", b"")
        yield StateChange(name, DROP, b"", b"")


_CHANGE_DECODERS: Mapping[str, Callable[[DrizzleEffects, Mapping[str, Any]], Iterator[StateChange]]] = MappingProxyType(
    {
        "INSERT": DrizzleEffects.decode_insert, "UPDATE": DrizzleEffects.decode_update,
        "DELETE": DrizzleEffects.decode_delete,
        "CREATE_TABLE": DrizzleEffects.decode_create_table, "ALTER_TABLE": DrizzleEffects.decode_alter_table,
        "TRUNCATE_TABLE": DrizzleEffects.decode_truncate, "DROP_TABLE": DrizzleEffects.decode_drop_table,
        "CREATE_SCHEMA": DrizzleEffects.decode_schema, "ALTER_SCHEMA": DrizzleEffects.decode_schema,
        "DROP_SCHEMA": DrizzleEffects.decode_drop_schema,
    }
)  # fmt: skip


def apply_patch(image: bytes, operation: bytes) -> bytes | None:
    """Return a row with some fields changed; None if there is no row."""
    try:
        row, new_values = msgspec.msgpack.decode(image), msgspec.msgpack.decode(operation)
    except (msgspec.DecodeError, ValueError):
        return None
    is_valid = isinstance(row, dict) and isinstance(new_values, dict)
    return encode_canonical(row | new_values) if is_valid else None


def _get_table_name(header: Mapping[str, Any]) -> str:
    metadata = header.get("table_metadata", {})
    return f"{to_text(metadata.get('schema_name', ''))}.{to_text(metadata.get('table_name', ''))}"


def _list_field_names(fields: Any) -> list[str]:
    return [to_text(one.get("name", "")) for one in fields or ()]


def _create_row(names: Sequence[str], values: Sequence[Any], nulls: Sequence[bool]) -> RowValues:
    """Create a row of values by name; a list of NULL flags may be shorter than the values."""
    row = dict(zip(names, values, strict=False))
    if True in nulls:
        row |= {name: None for name, null in zip(names, nulls, strict=False) if null}
    return row


def _encode_key(row: RowValues, key: tuple[str, ...]) -> bytes:
    return encode_canonical([row[name] for name in key])


def _get_primary_key(table: Mapping[str, Any]) -> list[str]:
    """Return the names of the fields of the primary index; [] if there is none."""
    fields = _list_field_names(table.get("field"))
    for index in table.get("indexes", ()):
        if index.get("is_primary"):
            parts = [one.get("fieldnr", 0) for one in index.get("index_part", ())]
            return [fields[number] for number in parts if number < len(fields)]
    return []
