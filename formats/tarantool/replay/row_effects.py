"""Effects of applied rows: row changes by primary key; the keys are defined by the log's own system spaces."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import msgspec

from binlogtool.format_api.format import DecodedRecords
from binlogtool.format_api.replay_rules import (
    ADD,
    DELETE,
    DROP,
    PATCH,
    PUT,
    RENAME,
    EffectReader,
    StateChange,
    encode_canonical,
)
from binlogtool.formats.tarantool.codes import BOX_SYSTEM_ID_MAX
from binlogtool.formats.tarantool.replay import update_operations
from binlogtool.formats.tarantool.spaces.catalog import (
    BOX_INDEX_ID,
    BOX_SPACE_ID,
    BOX_TRUNCATE_ID,
    DEFINITION_SPACES,
    CatalogKeyPart,
    SpaceCatalog,
)
from binlogtool.formats.tarantool.spaces.definitions import to_comparable

if TYPE_CHECKING:
    from binlogtool.formats.tarantool.replay.replayer import TarantoolReplayer


_WRITE_TYPES = frozenset(("INSERT", "REPLACE", "UPDATE", "UPSERT", "DELETE", "DELETE_RANGE"))
_UPDATE_PATCH, _UPSERT_PATCH = 0, 1
_UNKNOWN_KEY = (CatalogKeyPart(0, exact=False),)
_new_tuple = tuple.__new__  # half the cost of a NamedTuple's own constructor
_decode_msgpack = msgspec.msgpack.Decoder().decode


class TarantoolEffectReader(EffectReader):
    """Row changes of a replay. Learns the primary keys from the rows of `_space` and `_index`.

    An object has the name of its space, and keeps its rows when the space is renamed. If the key of a space is not
    known, its rows and the keys deleted from it are counted as whole rows.
    """

    def __init__(self) -> None:
        self._catalog = SpaceCatalog()
        self._names: dict[int, str] = {}
        self._plain_keys: dict[int, tuple[str, tuple[int, ...]]] = {}
        self._has_snapshot = False
        self._is_3 = False
        self._deleted_keys: Mapping[tuple[int, int], Sequence[bytes]] = {}
        self._doubts: dict[str, str] = {}

    def attach_replayer(self, replayer: TarantoolReplayer) -> None:
        """Get the server version, and the keys that each DELETE_RANGE deletes, from the replayer."""
        self._is_3, self._deleted_keys = replayer.version.is_version_3, replayer.deleted_keys

    def get_reasons_of_unknown_objects(self) -> Mapping[str, str]:
        """Return objects whose rows may differ from the server's -> reason as text; to be called at the end."""
        collated = {
            self._names[one]: "a collation compares its keys" for one in self._catalog.collated & set(self._names)
        }
        return {**collated, **self._doubts}

    @property
    def plain_keys(self) -> Mapping[int, tuple[str, tuple[int, ...]]]:
        """Spaces whose keys are whole fields that are compared byte by byte -> (object name, key fields)."""
        return self._plain_keys

    def read_changes(self, records: DecodedRecords, index: int) -> Iterable[StateChange]:
        """Return the changes made by one applied row."""
        if records.envelope.type[index] == "DELETE_RANGE":
            return self._decode_range_delete(records, index)
        return self.decode_row_changes(
            records.envelope.type[index], records.bodies[index], is_from_snapshot=records.envelope.txn[index] is None
        )

    def decode_row_changes(self, kind: str, body: Any, *, is_from_snapshot: bool) -> Iterable[StateChange]:
        """Return the changes of a row from its type and body. is_from_snapshot: the row is from a snapshot."""
        space = body.get("space_id") if body else None
        if space is None:
            return ()
        plain = self._plain_keys.get(space)
        if plain is not None and (kind == "REPLACE" or kind == "INSERT"):
            row = body.get("tuple")
            try:
                key = encode_canonical([row[n] for n in plain[1]])
            except (IndexError, TypeError):
                key = encode_canonical(row)
            return (_new_tuple(StateChange, (plain[0], PUT, key, encode_canonical(row))),)
        return self._decode_general_change(space, kind, body, is_from_snapshot)

    def _decode_range_delete(self, records: DecodedRecords, i: int) -> Iterator[StateChange]:
        """Yield the deletions of a DELETE_RANGE."""
        space = records.bodies[i].get("space_id", 0)
        name = self._names.get(space) or self._names.setdefault(space, self._get_object_name(space))
        keys = self._deleted_keys.get((records.envelope.origin[i] or 0, records.envelope.seq[i] or 0))
        if keys is None:
            self._doubts[name] = "the rows that a DELETE_RANGE deletes are not known"
        yield from (StateChange(name, DELETE, key, b"") for key in keys or ())

    def _decode_general_change(
        self, space: int, kind: str, body: Mapping[str, Any], snapshot: bool
    ) -> Iterator[StateChange]:
        """Yield the changes of a row in the general case."""
        if kind not in _WRITE_TYPES or space in self._catalog.blackhole:
            return
        name = self._names.get(space)
        if name is None:
            name = self._names[space] = self._get_object_name(space)
            self._has_snapshot = self._has_snapshot or snapshot
            if space <= BOX_SYSTEM_ID_MAX and self._has_snapshot:
                yield StateChange(name, DROP, b"", b"")  # a snapshot contains all rows of a system space
        yield from self._decode_write(space, name, kind, body)
        if space in DEFINITION_SPACES or space == BOX_TRUNCATE_ID:
            self._plain_keys.clear()
            yield from self._decode_effect_on_target_space(space, kind, body, snapshot=snapshot)
        elif all(part.exact and not part.path for part in self._catalog.keys.get(space) or _UNKNOWN_KEY):
            self._plain_keys[space] = name, tuple(part.field for part in self._catalog.keys[space])

    def _decode_write(self, space: int, name: str, kind: str, body: Mapping[str, Any]) -> Iterator[StateChange]:
        parts = self._catalog.keys.get(space) or None
        row, key = body.get("tuple"), body.get("key")
        if kind in ("INSERT", "REPLACE"):
            yield (
                StateChange(name, ADD, b"", encode_canonical(row))
                if parts is None
                else self._create_put(name, parts, row)
            )
        elif parts is None:
            changes = {kind: key if kind == "DELETE" else [key, row, body.get("ops"), body.get("index_base", 0)]}
            yield StateChange(name, ADD, b"", encode_canonical(changes))
        elif kind == "DELETE":
            yield StateChange(name, DELETE, _encode_request_key(parts, key), b"")
        elif kind == "UPDATE":
            yield StateChange(
                name, PATCH, _encode_request_key(parts, key), self._encode_patch(space, _UPDATE_PATCH, None, row, body)
            )
        else:
            yield StateChange(
                name,
                PATCH,
                _encode_row_key(parts, row),
                self._encode_patch(space, _UPSERT_PATCH, row, body.get("ops"), body),
            )

    def _create_put(self, name: str, parts: tuple[CatalogKeyPart, ...], row: Any) -> StateChange:
        return StateChange(name, PUT, _encode_row_key(parts, row), encode_canonical(row))

    def _encode_patch(self, space: int, kind: int, row: Any, operations: Any, body: Mapping[str, Any]) -> bytes:
        """Encode the operations for `apply_patch`; in their stored form if they cannot be parsed."""
        definition = self._catalog.spaces.get(space)
        base = body.get("index_base", 0)
        keys = [part.field for part in self._catalog.keys.get(space) or ()] if kind == _UPSERT_PATCH else []
        parsed = update_operations.parse_operations(operations, base, definition.fields if definition else {})
        return encode_canonical([kind, row, parsed, operations if parsed is None else None,
        base if parsed is None else None,
                          self._is_3, keys])  # fmt: skip

    def _decode_effect_on_target_space(
        self, space: int, kind: str, body: Mapping[str, Any], *, snapshot: bool
    ) -> Iterator[StateChange]:
        """Yield the effect of a row of a system space on other spaces."""
        target = _get_target_space(body)
        is_emptied = (
            target is not None
            and target > BOX_SYSTEM_ID_MAX
            and self._is_target_space_emptied(space, kind, body, target, snapshot)
        )
        before = self._get_object_name(target) if target is not None else ""
        if space in DEFINITION_SPACES:
            self._catalog.apply_definition_row(space, kind, body)
        if target is None:
            return
        if not is_emptied:
            if space == BOX_SPACE_ID and target in self._names:
                yield from self._rename_object(target)
            return
        if space == BOX_SPACE_ID and kind == "DELETE":
            self._names.pop(target, None)
        elif space == BOX_SPACE_ID:
            before = self._names[target] = self._get_object_name(target)
        yield StateChange(before, DROP, b"", b"")

    def _rename_object(self, space: int) -> Iterator[StateChange]:
        """Rename the object of a space whose name has changed."""
        before = self._names[space]
        name = self._names[space] = self._create_object_name(space)
        if name != before:
            yield StateChange(before, RENAME, b"", name.encode(errors="surrogatepass"))

    def _is_target_space_emptied(
        self, space: int, kind: str, body: Mapping[str, Any], target: int, snapshot: bool
    ) -> bool:
        """Return whether a row creates, drops or truncates a space, or drops its primary index."""
        if space == BOX_TRUNCATE_ID:
            return kind != "DELETE" and not snapshot
        if space == BOX_SPACE_ID:
            return kind == "DELETE" or (kind in ("INSERT", "REPLACE") and target not in self._catalog.spaces)
        return space == BOX_INDEX_ID and kind == "DELETE" and body.get("key") == [target, 0]

    def _get_object_name(self, space: int) -> str:
        """Return the object name of a space."""
        name = self._names.get(space)
        return self._create_object_name(space) if name is None else name

    def _create_object_name(self, space: int) -> str:
        """Return the name of a space, followed by its number if another space has the same name."""
        name = self._catalog.get_name(space)
        is_taken = any(used == name for other, used in self._names.items() if other != space)
        return f"{name}#{space}" if is_taken else name


def _get_target_space(body: Mapping[str, Any]) -> int | None:
    """Return the space that a row of a system space describes (its first field); None if it has none."""
    row = body.get("tuple") if body.get("key") is None else body["key"]
    return row[0] if isinstance(row, list) and row and type(row[0]) is int else None


# -- keys --------------------------------------------------------------------------------------------------------------


def _encode_row_key(parts: tuple[CatalogKeyPart, ...], row: Any) -> bytes:
    """Encode the primary key of a row."""
    if not isinstance(row, list):
        return encode_canonical(row)
    try:
        return encode_canonical([row[p.field] if p.exact and not p.path else _extract_part(row, p) for p in parts])
    except IndexError:
        return encode_canonical(row)


def _extract_part(row: list[Any], part: CatalogKeyPart) -> Any:
    value = row[part.field]
    for step in update_operations.parse_path(part.path.lstrip(".")) or () if part.path else ():
        if isinstance(step, int) and isinstance(value, list) and step < len(value):
            value = value[step]
        else:
            value = value.get(step if isinstance(step, str) else str(step + 1)) if isinstance(value, dict) else None
    return value if part.exact else to_comparable(value)


def _encode_request_key(parts: tuple[CatalogKeyPart, ...], key: Any) -> bytes:
    """Encode the key of a request: the values of its parts."""
    if not isinstance(key, list) or len(key) != len(parts):
        return encode_canonical(key)
    return encode_canonical(
        [value if part.exact else to_comparable(value) for part, value in zip(parts, key, strict=True)]
    )


# -- operations --------------------------------------------------------------------------------------------------------


def apply_patch(row_image: bytes, patch: bytes) -> bytes | None:
    """Return the row after an UPDATE or UPSERT (`ReplayRules.patch`), or None; b"" = the row does not exist."""
    try:
        kind, row, operations, _, _, *rules = _decode_msgpack(patch)
        is_version_3, keys = rules or (False, ())
        if not row_image:
            return encode_canonical(row) if kind == _UPSERT_PATCH else None
        before = _decode_msgpack(row_image)
    except (msgspec.DecodeError, ValueError, TypeError):
        return None
    if operations is None or not isinstance(before, list):
        return None
    parsed_operations = [(name, path, arguments) for name, path, arguments in operations]
    if kind == _UPDATE_PATCH:
        after = update_operations.try_update(before, parsed_operations, is_version_3=is_version_3)
        return None if after is None else encode_canonical(after)
    after = update_operations.apply_upsert(before, parsed_operations, is_version_3=is_version_3)
    if after is None:
        return None
    key_changed = any(_get_comparable_field(before, key) != _get_comparable_field(after, key) for key in keys)
    return row_image if key_changed else encode_canonical(after)  # an UPSERT that changes the key does nothing


def _get_comparable_field(row: list[Any], number: int) -> Any:
    return to_comparable(row[number]) if number < len(row) else None
