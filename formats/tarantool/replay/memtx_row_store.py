"""Rows of memtx spaces by key while a server replays, checked against the format of their space.

While it reads logs, memtx maintains only primary indexes, and it builds the others at the end. With force_recovery, and
for system spaces, it maintains all of them from the beginning (`memtx_engine.c`: MEMTX_FINAL_RECOVERY, MEMTX_OK).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import msgspec

from binlogtool.errors import LimitError
from binlogtool.format_api.replay_rules import encode_canonical
from binlogtool.formats.tarantool.codes import BOX_SYSTEM_ID_MAX
from binlogtool.formats.tarantool.replay.update_operations import PathStep
from binlogtool.formats.tarantool.spaces.definitions import (
    FieldCheck,
    IndexDefinition,
    KeyPart,
    SpaceDefinition,
    get_server_type_name,
    get_type_check,
    to_comparable,
    to_sort_value,
)

# --- Checks of rows and keys (`tuple_format.c`, `index.cc`) ---

_MISSING = object()


def check_row(space: SpaceDefinition, row: Sequence[Any], *, is_version_3: bool) -> str | None:
    """Return the server's message about a row that does not fit the format of its space; None if it fits."""
    count = len(row)
    if space.exact and count != space.exact:
        return f"Tuple field count {count} does not match space field count {space.exact}"
    for field_check in space.checks:
        if field_check.number >= count:
            break
        value = row[field_check.number]
        if field_check.path:
            fault = _check_nested_value(field_check, value, is_version_3=is_version_3)
            if fault is not None:
                return fault
        elif value is None:
            if not field_check.nullable:
                return _format_type_error(
                    str(field_check.number + 1), field_check.type, value, is_version_3=is_version_3
                )
        elif not field_check.check(value):  # type: ignore[misc]
            return _format_type_error(str(field_check.number + 1), field_check.type, value, is_version_3=is_version_3)
    for number in space.required:
        if number >= count:
            return f"Tuple field {number + 1} required by space format is missing"
    return None


def _format_type_error(field: str, expected_type: str, value: Any, *, is_version_3: bool) -> str:
    text = f"Tuple field {field} type does not match one required by operation: expected {expected_type}"
    return f"{text}, got {get_server_type_name(value)}" if is_version_3 else text


def _check_nested_value(check: FieldCheck, value: Any, *, is_version_3: bool) -> str | None:
    """Check the value at the path of a field; each step of the path must lead into an array or a map."""
    for step in check.path:
        container = list if isinstance(step, int) else dict
        if not isinstance(value, container):
            if value is None and check.nullable:
                return None
            expected_type = "array" if container is list else "map"
            return _format_type_error(str(check.number + 1), expected_type, value, is_version_3=is_version_3)
        value = _follow_step(value, step)
        if value is _MISSING:
            text = f"Tuple field {_format_field_path(check)} required by space format is missing"
            return None if check.nullable else text
    if value is None:
        return (
            None
            if check.nullable
            else _format_type_error(_format_field_path(check), check.type, value, is_version_3=is_version_3)
        )
    is_valid = check.check is None or check.check(value)
    return (
        None
        if is_valid
        else _format_type_error(_format_field_path(check), check.type, value, is_version_3=is_version_3)
    )


def _follow_step(value: Any, step: PathStep) -> Any:
    if isinstance(step, int):
        return value[step] if isinstance(value, list) and step < len(value) else _MISSING
    return value.get(step, _MISSING) if isinstance(value, dict) else _MISSING


def _format_field_path(check: FieldCheck) -> str:
    """Format the path of a field as the server prints it."""
    steps = (f"[{step + 1}]" if isinstance(step, int) else f'["{step}"]' for step in check.path)
    return f"[{check.number + 1}]" + "".join(steps)


# -- keys --------------------------------------------------------------------------------------------------------------


def check_key(
    index: IndexDefinition, key: Sequence[Any], *, is_version_3: bool, allows_partial: bool = False
) -> str | None:
    """Return the server's message about the key of a request; None if it is a valid key of this index.

    Args:
        allows_partial: the key may have fewer parts than the index, and nulls in nullable parts.
    """
    parts = index.parts
    if allows_partial and len(key) > len(parts):
        return f"Invalid key part count (expected [0..{len(parts)}], got {len(key)})"
    if not allows_partial and len(key) != len(parts):
        return f"Invalid key part count in an exact match (expected {len(parts)}, got {len(key)})"
    for number, (part, value) in enumerate(zip(parts, key, strict=False)):
        if value is None and allows_partial and part.nullable:
            continue
        check = get_type_check(part.type, is_version_3=is_version_3)
        if check is not None and (value is None or not check(value)):
            return f"Supplied key type of part {number} does not match index part type: expected {part.type}"
    return None


def extract_key_values(parts: Sequence[KeyPart], row: Sequence[Any]) -> list[Any] | None:
    """Return the values of a key's parts in a row, None for a missing value; None as a whole for a `[*]` path."""
    values = []
    for part in parts:
        value = row[part.field] if part.field < len(row) else None
        if part.path is None:
            return None
        for step in part.path:
            value = _follow_step(value, step)
            if value is _MISSING:
                value = None
                break
        values.append(value)
    return values


def encode_key(values: Sequence[Any]) -> bytes:
    """Encode a key; keys that compare equal have equal bytes."""
    return encode_canonical([to_comparable(value) for value in values])


def make_sortable_key(index: IndexDefinition, key_values: Sequence[Any]) -> list[Any]:
    """Convert a key to values that Python sorts like the index; descending parts are wrapped to reverse their order."""
    pairs = zip(index.parts, key_values, strict=False)
    return [
        _DescendingValue(to_sort_value(value)) if part.descending else to_sort_value(value) for part, value in pairs
    ]


class _DescendingValue:
    """Value with reversed order."""

    __slots__ = ("value",)

    def __init__(self, value: tuple[int, Any]) -> None:
        self.value = value

    def __lt__(self, other: _DescendingValue) -> bool:
        return other.value < self.value

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _DescendingValue) and self.value == other.value

    def __hash__(self) -> int:
        return hash(self.value)


def is_in_range(index: IndexDefinition, values: Sequence[Any], begin: Sequence[Any], end: Sequence[Any]) -> bool:
    """Return whether `begin` <= key < `end`. Both limits may have fewer parts; an empty limit is open."""
    key = make_sortable_key(index, values)
    if key[: len(begin)] < make_sortable_key(index, begin):
        return False
    return not end or key[: len(end)] < make_sortable_key(index, end)


def encode_unique_key_without_null(index: IndexDefinition, row: Sequence[Any]) -> Iterator[bytes]:
    """Yield the key of a row in a unique index; nothing if it has a null, since such keys are never equal."""
    values = extract_key_values(index.parts, row)
    if values is not None and not any(value is None for value in values):
        yield encode_key(values)


# --- Rows of memtx spaces, with a rollback log ---

ROW_OVERHEAD_BYTES = 400
"""Approximate memory of a row in addition to its own bytes."""
MAX_SYSTEM_BYTES = 16 << 20
"""Memory that rows of system spaces may use even if --max-memory is lower, in bytes."""

_decode_row = msgspec.msgpack.Decoder().decode


class DuplicateError(Exception):
    """Error: another row has the same key in `index`."""

    def __init__(self, index: IndexDefinition) -> None:
        super().__init__(index.name)
        self.index = index


class SpaceRows(msgspec.Struct):
    """Rows of one space.

    Attributes:
        rows: primary key -> canonical bytes.
        unique: number of a secondary unique index -> (key -> primary key); None = not built yet.
    """

    rows: dict[bytes, bytes] = msgspec.field(default_factory=dict)
    unique: dict[int, dict[bytes, bytes]] | None = None


RollbackEntry = tuple[int, bytes, bytes | None]
"""(space, key, previous image); None = there was no row."""


class MemtxRowStore(msgspec.Struct):
    """Rows of all spaces.

    Rows of system spaces are always kept, because they define the other spaces.

    Attributes:
        user_bytes: memory used by rows of user spaces.
        is_full: `user_bytes` exceeded `max_memory`, so rows of user spaces are no longer kept.
    """

    max_memory: int
    user_bytes: int = 0
    system_bytes: int = 0
    is_full: bool = False
    spaces: dict[int, SpaceRows] = msgspec.field(default_factory=dict)
    rollback_log: list[RollbackEntry] = msgspec.field(default_factory=list)

    def is_discarded(self, space: int) -> bool:
        """Return whether the rows of a space are no longer kept."""
        return self.is_full and space > BOX_SYSTEM_ID_MAX

    def get_or_create_space_rows(self, space: int) -> SpaceRows:
        """Return the rows of a space; create an empty entry if there is none."""
        rows = self.spaces.get(space)
        return self.spaces.setdefault(space, SpaceRows()) if rows is None else rows

    def get_row(self, space: int, key: bytes) -> list[Any] | None:
        """Return the row with this key, or None."""
        image = self.get_or_create_space_rows(space).rows.get(key)
        return None if image is None else _decode_row(image)

    def set_or_delete_row(self, space: SpaceDefinition, key: bytes, row: Sequence[Any] | None) -> None:
        """Set or delete (None) a row. Raises DuplicateError: a secondary unique index already has the key."""
        rows = self.get_or_create_space_rows(space.number)
        before = rows.rows.get(key)
        if rows.unique is not None:
            self._update_unique_indexes(space, rows, key, before, row)
        self.rollback_log.append((space.number, key, before))
        self._set_image(space.number, key, None if row is None else encode_canonical(row))

    def _set_image(self, space: int, key: bytes, image: bytes | None) -> None:
        """Set or delete (None) the stored bytes of a row, and account for its memory; drop the rows of user spaces
        when they exceed the limit.
        """
        rows = self.get_or_create_space_rows(space)
        before = rows.rows.get(key)
        growth = (0 if image is None else len(image) + ROW_OVERHEAD_BYTES) - (
            0 if before is None else len(before) + ROW_OVERHEAD_BYTES
        )
        if image is None:
            rows.rows.pop(key, None)
        else:
            rows.rows[key] = image
        if space > BOX_SYSTEM_ID_MAX:
            self.user_bytes += growth
            if self.user_bytes > self.max_memory:
                self.discard_user_rows()
            return
        self.system_bytes += growth
        if self.system_bytes > max(self.max_memory, MAX_SYSTEM_BYTES):
            raise LimitError("the rows of the system spaces need more memory than --max-memory allows; raise it")

    def discard_user_rows(self) -> None:
        """Discard the rows of user spaces, and keep none from now on: they need more memory than allowed."""
        self.is_full = True
        self.user_bytes = 0
        self.spaces = {number: rows for number, rows in self.spaces.items() if number <= BOX_SYSTEM_ID_MAX}
        self.rollback_log = [
            change if change[0] <= BOX_SYSTEM_ID_MAX else (*change[:2], None) for change in self.rollback_log
        ]

    def _update_unique_indexes(
        self, space: SpaceDefinition, rows: SpaceRows, key: bytes, before: bytes | None, row: Sequence[Any] | None
    ) -> None:
        """Move a row's entries in the unique indexes from its old to its new image.

        Raises DuplicateError: another row has the key.
        """
        assert rows.unique is not None
        indexes = [index for index in list_secondary_unique_indexes(space) if index.number in rows.unique]
        for index in indexes:
            keys = rows.unique[index.number]
            for unique_key in encode_unique_key_without_null(index, row) if row is not None else ():
                if keys.get(unique_key, key) != key:
                    raise DuplicateError(index)
        for index in indexes:
            keys = rows.unique[index.number]
            for unique_key in encode_unique_key_without_null(index, _decode_row(before)) if before is not None else ():
                keys.pop(unique_key, None)
            for unique_key in encode_unique_key_without_null(index, row) if row is not None else ():
                keys[unique_key] = key

    def build_unique_indexes(self, space: SpaceDefinition, *, only_index: IndexDefinition | None = None) -> None:
        """Build the secondary unique indexes of a space, or only the index `only_index`.

        Raises:
            DuplicateError: two rows have the same key.
        """
        rows = self.get_or_create_space_rows(space.number)
        rows.unique = {} if rows.unique is None else rows.unique
        for index in list_secondary_unique_indexes(space):
            if only_index is not None and index.number != only_index.number:
                continue
            keys = rows.unique[index.number] = {}
            for key, image in rows.rows.items():
                for unique_key in encode_unique_key_without_null(index, _decode_row(image)):
                    if keys.setdefault(unique_key, key) != key:
                        raise DuplicateError(index)

    def rebuild_primary_keys(self, space: SpaceDefinition) -> None:
        """Store all rows under the keys of a new primary index. Raises DuplicateError: two rows have the same key."""
        rows, index = self.get_or_create_space_rows(space.number), space.indexes[0]
        rekeyed: dict[bytes, bytes] = {}
        for image in rows.rows.values():
            if rekeyed.setdefault(encode_primary_key(index, _decode_row(image)), image) is not image:
                raise DuplicateError(index)
        rows.rows = rekeyed

    def find_keys_in_range(self, space: SpaceDefinition, begin: Sequence[Any], end: Sequence[Any]) -> list[bytes]:
        """Return the primary keys of the rows from `begin` up to `end` (exclusive)."""
        index, keys = space.indexes[0], []
        for key, image in self.get_or_create_space_rows(space.number).rows.items():
            values = extract_key_values(index.parts, _decode_row(image))
            if values is not None and is_in_range(index, values, begin, end):
                keys.append(key)
        return keys

    def iterate_rows(self, space: int) -> Iterator[list[Any]]:
        """Yield all rows of a space."""
        return map(_decode_row, self.get_or_create_space_rows(space).rows.values())

    def clear(self, space: int) -> None:
        """Remove all rows of a space, without an entry in the rollback log."""
        rows = self.spaces.pop(space, None)
        if rows is not None:
            freed = sum(len(image) + ROW_OVERHEAD_BYTES for image in rows.rows.values())
            if space > BOX_SYSTEM_ID_MAX:
                self.user_bytes -= freed
            else:
                self.system_bytes -= freed
            self.spaces[space] = SpaceRows(unique=None if rows.unique is None else {})

    # -- undo ----------------------------------------------------------------------------------------------------------

    def roll_back(self, entries: Sequence[RollbackEntry], definitions: dict[int, SpaceDefinition]) -> None:
        """Roll back changes, the last one first."""
        for number, key, image in reversed(entries):
            if self.is_discarded(number):
                continue
            space = definitions.get(number)
            rows = self.get_or_create_space_rows(number)
            if space is not None and rows.unique is not None:
                before = rows.rows.get(key)
                self._update_unique_indexes(space, rows, key, before, None if image is None else _decode_row(image))
            self._set_image(number, key, image)


def encode_primary_key(index: IndexDefinition, row: Sequence[Any]) -> bytes:
    """Encode the key of a row in the primary index."""
    return encode_key(extract_key_values(index.parts, row) or [])


def list_secondary_unique_indexes(space: SpaceDefinition) -> Iterator[IndexDefinition]:
    """Yield the secondary unique indexes whose keys can be compared here."""
    return (index for index in space.indexes.values() if index.number and index.unique and not index.unchecked_reason)
