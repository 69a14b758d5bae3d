"""Catalog of the spaces known to a server during replay: names, options, primary keys. Built from its system spaces."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import msgspec

from binlogtool.formats.tarantool.codes import BOX_SYSTEM_ID_MAX, MAX_SPACE_ID, SYSTEM_SPACES

BOX_VINYL_DEFERRED_DELETE_ID = 257
BOX_SCHEMA_ID, BOX_SPACE_ID, BOX_INDEX_ID, BOX_CLUSTER_ID, BOX_TRUNCATE_ID = 272, 280, 288, 320, 330
DEFINITION_SPACES = frozenset((BOX_SCHEMA_ID, BOX_SPACE_ID, BOX_INDEX_ID, BOX_CLUSTER_ID))
"""System spaces whose rows define spaces, indexes and instances."""

_OPTIONS_FIELD, _FORMAT_FIELD = 5, 6
_EXACT_TYPES = ("unsigned", "integer", "string", "boolean", "uuid", "varbinary", "num", "str", "int", "uint")
_SYSTEM_KEY_FIELDS = {272: (0,), 276: (0,), 280: (0,), 284: (0,), 288: (0, 1)}
"""Primary keys of the system spaces whose rows precede those of `_index` in a snapshot."""


_BINARY_COLLATIONS = (None, 0, 3)
"""Collations that compare texts byte by byte."""


class CatalogKeyPart(NamedTuple):
    """One part of a key: a field counted from 0, and a path below it ("" = the field itself).

    Attributes:
        exact: equal keys have equal values; False = numbers of different types may compare as equal.
    """

    field: int
    path: str = ""
    exact: bool = True


class CatalogSpace(msgspec.Struct):
    """One space. fields: field numbers by field name, from its format."""

    name: str
    fields: dict[str, int] = msgspec.field(default_factory=dict)


def _create_system_keys() -> dict[int, tuple[CatalogKeyPart, ...]]:
    return {space: tuple(map(CatalogKeyPart, fields)) for space, fields in _SYSTEM_KEY_FIELDS.items()}


class SpaceCatalog(msgspec.Struct):
    """Spaces and instances as the system spaces define them so far.

    Attributes:
        keys: space id -> parts of its primary key.
        synchronous, vinyl, blackhole: ids of the spaces with this property.
        collated: ids of spaces with a collation in their primary key.
        instances: registered instance uuids -> instance ids.
        replicaset: uuid of the replica set.
    """

    spaces: dict[int, CatalogSpace] = msgspec.field(
        default_factory=lambda: {n: CatalogSpace(name) for n, name in SYSTEM_SPACES.items()}
    )
    keys: dict[int, tuple[CatalogKeyPart, ...]] = msgspec.field(default_factory=_create_system_keys)
    synchronous: set[int] = msgspec.field(default_factory=set)
    vinyl: set[int] = msgspec.field(default_factory=set)
    blackhole: set[int] = msgspec.field(default_factory=lambda: {BOX_VINYL_DEFERRED_DELETE_ID})
    collated: set[int] = msgspec.field(default_factory=set)
    instances: dict[str, int] = msgspec.field(default_factory=dict)
    replicaset: str | None = None

    def has_space(self, space: int) -> bool:
        """Return whether a space was created."""
        return space in self.spaces or space <= BOX_SYSTEM_ID_MAX

    def find_missing_space_or_index(self, space: int, body: Mapping[str, Any]) -> str | None:
        """Return the server's message about a row that cannot be applied in this space, or None."""
        row = body.get("tuple")
        target = row[0] if space == BOX_INDEX_ID and isinstance(row, list) and row and _is_id(row[0]) else space
        if not self.has_space(target):
            return f"Space '{target}' does not exist"
        if space > BOX_SYSTEM_ID_MAX and space not in self.keys and space not in self.blackhole:
            return f"No index #0 is defined in space '{self.get_name(space)}'"
        return None

    def get_name(self, space: int) -> str:
        """Return the name of a space, or its number as text."""
        definition = self.spaces.get(space)
        return str(space) if definition is None else definition.name

    def apply_definition_row(self, space: int, kind: str, body: Mapping[str, Any]) -> None:
        """Apply a row of one of `DEFINITION_SPACES` to the catalog; rows of another shape are ignored."""
        row, key = body.get("tuple"), body.get("key")
        if not isinstance(row, list):
            row = []
        if kind in ("INSERT", "REPLACE"):
            self._apply_definition_insert(space, row)
        elif kind == "DELETE" and isinstance(key, list):
            self._apply_definition_delete(space, key)
        elif kind == "UPDATE" and space == BOX_SPACE_ID and isinstance(key, list):
            self._apply_definition_update(key, row, body.get("index_base", 0))

    def _apply_definition_insert(self, space: int, row: list[Any]) -> None:
        if space == BOX_SPACE_ID and len(row) > 3 and _is_id(row[0]) and isinstance(row[2], str):
            self.spaces[row[0]] = definition = CatalogSpace(row[2])
            self._set_options(row[0], row[_OPTIONS_FIELD] if len(row) > _OPTIONS_FIELD else None)
            if row[3] == "vinyl":
                self.vinyl.add(row[0])
            elif row[3] == "blackhole":
                self.blackhole.add(row[0])
            _set_fields(definition, row[_FORMAT_FIELD] if len(row) > _FORMAT_FIELD else None)
        elif space == BOX_INDEX_ID and len(row) > 5 and _is_id(row[0]) and row[1] == 0:
            self.keys[row[0]] = parse_key_parts(row[5])
            collated = any(
                isinstance(one, dict) and one.get("collation") not in _BINARY_COLLATIONS
                for one in (row[5] if isinstance(row[5], list) else [])
            )
            (self.collated.add if collated else self.collated.discard)(row[0])
        elif space == BOX_CLUSTER_ID and len(row) > 1 and isinstance(row[1], str):
            self.instances = {uuid: id_ for uuid, id_ in self.instances.items() if id_ != row[0]}
            self.instances[row[1].lower()] = row[0] if _is_id(row[0]) else 0
        elif space == BOX_SCHEMA_ID and len(row) > 1 and row[0] in ("cluster", "replicaset_uuid"):
            self.replicaset = str(row[1])

    def _apply_definition_delete(self, space: int, key: list[Any]) -> None:
        if not key or not _is_id(key[0]):
            return
        if space == BOX_SPACE_ID:
            self.spaces.pop(key[0], None)
            self.keys.pop(key[0], None)
            self.synchronous.discard(key[0])
            self.vinyl.discard(key[0])
            self.blackhole.discard(key[0])
        elif space == BOX_INDEX_ID and key[1:] == [0]:
            self.keys.pop(key[0], None)
        elif space == BOX_CLUSTER_ID:
            self.instances = {uuid: id_ for uuid, id_ in self.instances.items() if id_ != key[0]}

    def _apply_definition_update(self, key: list[Any], operations: Sequence[Any], base: Any) -> None:
        definition = self.spaces.get(key[0]) if key and _is_id(key[0]) else None
        if definition is None or not isinstance(base, int):
            return
        for operation in operations:
            if isinstance(operation, list) and len(operation) == 3 and operation[0] == "=":
                self._set_field(key[0], definition, operation[1], base, operation[2])

    def _set_field(self, space: int, definition: CatalogSpace, field: Any, base: int, value: Any) -> None:
        if field in (2 + base, "name") and isinstance(value, str):
            definition.name = value
        elif field in (_OPTIONS_FIELD + base, "flags"):
            self._set_options(space, value)
        elif field in (_FORMAT_FIELD + base, "format"):
            _set_fields(definition, value)

    def _set_options(self, space: int, options: Any) -> None:
        if isinstance(options, dict):
            (self.synchronous.add if options.get("is_sync") is True else self.synchronous.discard)(space)


def _is_id(value: Any) -> bool:
    """Return whether a value can be the id of a space or an instance, or the number of a field (int32)."""
    return type(value) is int and 0 <= value <= MAX_SPACE_ID


def _set_fields(space: CatalogSpace, fields: Any) -> None:
    if isinstance(fields, list):
        names = [one.get("name") if isinstance(one, dict) else None for one in fields]
        space.fields = {name: n for n, name in enumerate(names) if isinstance(name, str)}


def parse_key_parts(stored: Any) -> tuple[CatalogKeyPart, ...]:
    """Parse the parts of an index, `[field, type]` or `{field, type, path, ...}`; () if they have another shape."""
    parts = [_parse_part(one) for one in stored] if isinstance(stored, list) else []
    return tuple(one for one in parts if one is not None) if None not in parts else ()


def _parse_part(stored: Any) -> CatalogKeyPart | None:
    if isinstance(stored, list) and len(stored) > 1:
        stored = {"field": stored[0], "type": stored[1]}
    if not isinstance(stored, dict) or not _is_id(stored.get("field")):
        return None
    path = stored.get("path", "")
    exact = str(stored.get("type", "")).lower() in _EXACT_TYPES
    return CatalogKeyPart(stored["field"], path if isinstance(path, str) else "", exact)
