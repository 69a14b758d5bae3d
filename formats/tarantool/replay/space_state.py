"""State of the server's spaces during replay, and the rows that it refuses: requests, formats, keys, definitions.

The rules are those of `xrow_decode_dml`, `space_execute_dml`, `memtx_space.c` and of the triggers of system spaces in
`alter.cc`; the messages are the server's.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import msgspec

from binlogtool.formats.tarantool.codes import BOX_SYSTEM_ID_MAX, TYPE_NAMES
from binlogtool.formats.tarantool.replay import update_operations
from binlogtool.formats.tarantool.replay.memtx_row_store import (
    DuplicateError,
    MemtxRowStore,
    check_key,
    check_row,
    encode_key,
    encode_primary_key,
    extract_key_values,
    list_secondary_unique_indexes,
    make_sortable_key,
)
from binlogtool.formats.tarantool.replay.simulated_xlog_reader import ServerVersion
from binlogtool.formats.tarantool.spaces.definitions import (
    IndexDefinition,
    KeyPart,
    RowRefusedError,
    ServerCrashError,
    SpaceDefinition,
    check_space_change,
    create_tuple_format,
    parse_index,
    parse_space,
)

BOX_VINYL_DEFERRED_DELETE_ID, BOX_SCHEMA_ID, BOX_COLLATION_ID, BOX_SPACE_ID, BOX_SEQUENCE_ID, BOX_INDEX_ID = (
    257,
    272,
    276,
    280,
    284,
    288,
)
BOX_FUNC_ID, BOX_USER_ID, BOX_PRIV_ID, BOX_CLUSTER_ID, BOX_TRIGGER_ID, BOX_TRUNCATE_ID, BOX_SPACE_SEQUENCE_ID = (
    296,
    304,
    312,
    320,
    328,
    330,
    340,
)
BOX_FK_CONSTRAINT_ID, BOX_CK_CONSTRAINT_ID, BOX_FUNC_INDEX_ID, BOX_SESSION_SETTINGS_ID, BOX_SEQUENCE_DATA_ID = (
    356,
    364,
    372,
    380,
    285,
)

_SYSTEM_SPACE_KEYS: Mapping[int, tuple[str, tuple[str, ...]]] = {
    BOX_SCHEMA_ID: ("_schema", ("string",)), BOX_COLLATION_ID: ("_collation", ("unsigned",)),
    BOX_SPACE_ID: ("_space", ("unsigned",)),
    BOX_TRUNCATE_ID: ("_truncate", ("unsigned",)), BOX_SEQUENCE_ID: ("_sequence", ("unsigned",)),
    BOX_SEQUENCE_DATA_ID: ("_sequence_data", ("unsigned",)), BOX_SPACE_SEQUENCE_ID: ("_space_sequence", ("unsigned",)),
    BOX_USER_ID: ("_user", ("unsigned",)), BOX_FUNC_ID: ("_func", ("unsigned",)), BOX_PRIV_ID: ("_priv", ("unsigned",)),
    BOX_CLUSTER_ID: ("_cluster", ("unsigned",)), BOX_TRIGGER_ID: ("_trigger", ("string",)),
    BOX_INDEX_ID: ("_index", ("unsigned", "unsigned")),
    BOX_FK_CONSTRAINT_ID: ("_fk_constraint", ("string", "unsigned")),
    BOX_CK_CONSTRAINT_ID: ("_ck_constraint", ("unsigned", "string")), BOX_FUNC_INDEX_ID: ("_func_index",
    ("unsigned", "unsigned")),
}  # fmt: skip
"""Spaces that exist before the server reads a snapshot (`schema_init`): names, and types of their keys."""

_REQUIRED_FIELDS: Mapping[str, tuple[str, ...]] = {
    "SELECT": ("space_id", "limit", "key"), "INSERT": ("space_id", "tuple"), "REPLACE": ("space_id", "tuple"),
    "UPDATE": ("space_id", "key", "tuple"), "DELETE": ("space_id", "key"), "UPSERT": ("space_id", "tuple", "ops"),
    "INSERT_ARROW": ("space_id", "arrow"), "DELETE_RANGE": ("space_id", "begin_key", "end_key"),
}  # fmt: skip
"""Mandatory fields of requests, in the order of their numbers (`iproto_body_key_map`)."""

_TYPES_WITHOUT_EFFECT = frozenset(TYPE_NAMES[number] for number in (0, 6, 7, 8, 10, 11, 13))
_TYPES_WITHOUT_EFFECT_3 = _TYPES_WITHOUT_EFFECT | frozenset(TYPE_NAMES[number] for number in (14, 15, 16))
"""Request types of 3.x without mandatory fields; they change nothing."""


def find_request_field_error(kind: str, body: Any, version: ServerVersion) -> str | None:
    """Return the server's message about the lowest mandatory field that a request lacks (`xrow_decode_dml`); else None.

    For types that it does not know the server reads beyond the end of its table, and finds a field that no row has.
    """
    if kind == "NOP":
        return None
    if kind not in _REQUIRED_FIELDS or (not version.is_version_3 and kind in ("INSERT_ARROW", "DELETE_RANGE")):
        is_known = kind in (_TYPES_WITHOUT_EFFECT_3 if version.is_version_3 else _TYPES_WITHOUT_EFFECT)
        return None if is_known else "Missing mandatory field in request: the server does not know this type"
    for name in _REQUIRED_FIELDS[kind]:
        if not isinstance(body, Mapping) or name not in body:
            text = name.upper() if version.is_version_3 else name.replace("_", " ")
            return f"Missing mandatory field '{text}' in request"
    return None


class UncheckedItems(msgspec.Struct):
    """Checks that could not be made: a reason for each space or index."""

    reasons: dict[str, str] = msgspec.field(default_factory=dict)

    def add(self, item: str, why: str) -> None:
        """Record an item; the first reason given for it is kept."""
        self.reasons.setdefault(item, why)


class ReplayedSpaces:
    """Spaces during one start. With force_recovery (`force`) all indexes are maintained from the beginning."""

    def __init__(self, version: ServerVersion, *, force: bool, max_memory: int) -> None:
        self._is_3, self._version, self._force = version.is_version_3, version, force
        self.spaces: dict[int, SpaceDefinition] = {}
        self.store = MemtxRowStore(max_memory)
        self.doubts = UncheckedItems()
        self.deleted_keys: list[bytes] = []
        self.unordered_spaces: set[str] = set()
        self.duplicates: dict[str, str] = {}
        self.is_crashed = False
        self._last_keys: dict[int, list[Any]] = {}
        self._last_space = -1
        self._loads_snapshot = False
        self._undo_spaces: list[tuple[int, SpaceDefinition | None]] = []
        for number, (name, types) in _SYSTEM_SPACE_KEYS.items():
            parts = tuple(KeyPart(n, type_) for n, type_ in enumerate(types))
            definition = SpaceDefinition(number, name, "memtx")
            self.spaces[number] = definition.copy_with_index(
                IndexDefinition(0, "primary", "tree", True, parts), 0, is_version_3=self._is_3
            )
            self.store.get_or_create_space_rows(number).unique = {}
        self.spaces[BOX_VINYL_DEFERRED_DELETE_ID] = SpaceDefinition(
            BOX_VINYL_DEFERRED_DELETE_ID, "_vinyl_deferred_delete", "blackhole", local=True
        )
        self._triggers: Mapping[int, Callable[..., None]] = {
            BOX_SPACE_ID: self._on_replace_space, BOX_INDEX_ID: self._on_replace_index,
            BOX_TRUNCATE_ID: self._on_replace_truncate,
            BOX_SCHEMA_ID: self._check_replicaset_uuid_change, BOX_CLUSTER_ID: self._on_replace_cluster,
        }  # fmt: skip

    @property
    def schema_version(self) -> Any:
        """Version of the system spaces in `_schema`; None if there is no version."""
        row = self.store.get_row(BOX_SCHEMA_ID, encode_key(["version"]))
        return None if row is None else row[1:]

    # -- undo ----------------------------------------------------------------------------------------------------------

    def create_savepoint(self) -> tuple[int, int]:
        """Return a savepoint for `roll_back`."""
        return len(self.store.rollback_log), len(self._undo_spaces)

    def roll_back(self, savepoint: tuple[int, int], until_savepoint: tuple[int, int] | None = None) -> None:
        """Roll back the changes since a savepoint, up to another savepoint (None = up to now)."""
        rows, spaces = savepoint
        end, last = until_savepoint or (None, None)
        for number, before in reversed(self._undo_spaces[spaces:last]):
            if before is None:
                self.spaces.pop(number, None)
            else:
                self.spaces[number] = before
        entries = self.store.rollback_log[rows:end]
        if until_savepoint is None:
            del self._undo_spaces[spaces:]
            del self.store.rollback_log[rows:]
            self.store.roll_back(entries, self.spaces)
            del self.store.rollback_log[rows:]
            return
        self.store.roll_back(entries, self.spaces)

    def discard_savepoints(self) -> None:
        """Make all changes final: they can no longer be rolled back."""
        self.store.rollback_log.clear()
        self._undo_spaces.clear()

    def _set_definition(self, number: int, definition: SpaceDefinition | None) -> None:
        self._undo_spaces.append((number, self.spaces.get(number)))
        if definition is None:
            self.spaces.pop(number, None)
        else:
            self.spaces[number] = definition

    # -- requests ------------------------------------------------------------------------------------------------------

    def apply_row(self, kind: str, body: Any, *, snapshot: bool = False) -> str | None:
        """Apply one row. Return the server's message if it refuses the row (then nothing has changed), else None."""
        savepoint = self.create_savepoint()
        self.deleted_keys, self._loads_snapshot = [], snapshot
        try:
            self._apply_request(kind, body if isinstance(body, Mapping) else {}, snapshot)
        except ServerCrashError as error:
            self.is_crashed = True
            return str(error)
        except RowRefusedError as error:
            self.roll_back(savepoint)
            return str(error)
        except DuplicateError as error:
            self.roll_back(savepoint)
            return self._describe_duplicate(error.index, body)
        return None

    def _describe_duplicate(self, index: IndexDefinition, body: Any) -> str:
        space = self.spaces.get(body.get("space_id", 0)) if isinstance(body, Mapping) else None
        return self.format_duplicate_error(index, space.name if space is not None else "?")

    def format_duplicate_error(self, index: IndexDefinition, space: str) -> str:
        """Format the server's message about a key that already exists."""
        quote = '"' if self._is_3 else "'"
        return f"Duplicate key exists in unique index {quote}{index.name}{quote} in space {quote}{space}{quote}"

    def _apply_request(self, kind: str, body: Mapping[str, Any], snapshot: bool) -> None:
        fault = find_request_field_error(kind, body, self._version)
        if fault is not None:
            raise RowRefusedError(fault)
        if kind == "NOP":
            return
        number = body.get("space_id", 0)
        space = self.spaces.get(number)
        if space is None:
            raise RowRefusedError(f"Space '{number}' does not exist")
        if kind not in _REQUIRED_FIELDS or kind == "SELECT":  # `space_execute_dml` ignores them
            return
        self._check_engine(space, kind, snapshot=snapshot)
        if space.engine == "memtx":
            self._execute_in_memtx(space, kind, body)
        elif kind in ("INSERT", "REPLACE", "UPSERT"):
            self._check_row(space, _get_tuple(body))

    def _check_engine(self, space: SpaceDefinition, kind: str, *, snapshot: bool) -> None:
        """Raise RowRefusedError if the engine of a space does not support a request."""
        if space.engine == "sysview":
            raise RowRefusedError(f"View '{space.name}' is read-only")
        if space.engine == "service":
            raise RowRefusedError(f"{space.name} space does not support replace()")
        if kind == "INSERT_ARROW":
            raise RowRefusedError("CE version does not support arrow format")
        if snapshot and space.engine != "memtx":
            text = f"Alien engine '{space.engine}'" if self._is_3 else _CROSS_ENGINE_ERROR
            raise RowRefusedError(text)
        if space.engine == "blackhole" and kind not in ("INSERT", "REPLACE"):
            raise RowRefusedError(f"Blackhole does not support {kind.lower()}()")
        if space.engine == "vinyl" and kind == "DELETE_RANGE":
            raise RowRefusedError("Engine 'vinyl' does not support delete_range()")
        if space.number > BOX_SYSTEM_ID_MAX and space.engine in ("memtx", "vinyl") and 0 not in space.indexes:
            raise RowRefusedError(f"No index #0 is defined in space '{space.name}'")

    def _execute_in_memtx(self, space: SpaceDefinition, kind: str, body: Mapping[str, Any]) -> None:
        if kind in ("INSERT", "REPLACE"):
            self._insert_or_replace_row(space, _get_tuple(body), is_insert=kind == "INSERT", kind=kind)
        elif kind == "UPSERT":
            self._upsert_row(space, body)
        elif kind == "DELETE_RANGE":
            self._delete_range(space, body)
        else:
            index = self._get_unique_index(space, body.get("index_id", 0))
            fault = check_key(index, body["key"], is_version_3=self._is_3)
            if fault is not None:
                raise RowRefusedError(fault)
            key = self._find_primary_key(space, index, body["key"])
            before = None if key is None else self.store.get_row(space.number, key)
            if key is not None and before is not None:
                if kind == "DELETE":
                    self._set_row_and_run_trigger(space, key, before, None, kind)
                else:
                    self._update_row(space, key, before, body)

    def _check_row(self, space: SpaceDefinition, row: Sequence[Any]) -> None:
        """Raise RowRefusedError if a row does not fit the format of its space; record the rules that cannot be
        checked.
        """
        fault = check_row(space, row, is_version_3=self._is_3)
        if fault is not None:
            raise RowRefusedError(fault)
        if space.unchecked_reason:
            self.doubts.add(space.name, space.unchecked_reason)
        for index in space.indexes.values():
            if index.unchecked_reason and index.unique:
                self.doubts.add(f"index '{index.name}' of {space.name}", index.unchecked_reason)

    def _insert_or_replace_row(self, space: SpaceDefinition, row: Sequence[Any], *, is_insert: bool, kind: str) -> None:
        """Check a row of an INSERT or REPLACE and store it under its primary key.

        Raises DuplicateError: an INSERT, and the key exists.
        """
        self._check_row(space, row)
        primary = space.indexes.get(0)
        if primary is None:
            raise RowRefusedError(f"No index #0 is defined in space '{space.name}'")
        if self.store.is_discarded(space.number) or primary.unchecked_reason:
            return
        key = encode_primary_key(primary, row)
        before = self.store.get_row(space.number, key)
        if self._loads_snapshot and space.number > BOX_SYSTEM_ID_MAX and not self._force:
            self._record_unordered_snapshot_row(space, primary, row)
        elif is_insert and before is not None:
            raise DuplicateError(primary)
        self._set_row_and_run_trigger(space, key, before, row, kind)

    def _record_unordered_snapshot_row(
        self, space: SpaceDefinition, primary: IndexDefinition, row: Sequence[Any]
    ) -> None:
        """Record a space whose snapshot rows are not in the order of their keys (the server relies on the order, and
        refuses nothing).
        """
        before = self._last_keys.pop(space.number, None)
        interrupted = self._is_3 and before is not None and self._last_space != space.number
        key = self._last_keys[space.number] = make_sortable_key(primary, extract_key_values(primary.parts, row) or [])
        self._last_space = space.number
        if primary.type == "tree" and not primary.unchecked_reason and before is not None:
            try:
                if interrupted or not before < key:
                    self.unordered_spaces.add(space.name)
            except TypeError:
                self.doubts.add(space.name, "the order of its keys")

    def _set_row_and_run_trigger(
        self, space: SpaceDefinition, key: bytes, before: list[Any] | None, row: Sequence[Any] | None, kind: str
    ) -> None:
        """Set or delete a row, and run the trigger of a system space."""
        self.store.set_or_delete_row(space, key, row)
        trigger = self._triggers.get(space.number)
        if trigger is not None:
            trigger(before, row, kind)

    def _get_unique_index(self, space: SpaceDefinition, number: int) -> IndexDefinition:
        index = space.indexes.get(number)
        if index is None:
            raise RowRefusedError(f"No index #{number} is defined in space '{space.name}'")
        if not index.unique:
            raise RowRefusedError("Get() doesn't support partial keys and non-unique indexes")
        return index

    def _find_primary_key(self, space: SpaceDefinition, index: IndexDefinition, key: Sequence[Any]) -> bytes | None:
        """Return the primary key of the row that an index finds by a key, or None."""
        if index.number == 0:
            return None if index.unchecked_reason else encode_key(key)
        unique = self.store.get_or_create_space_rows(space.number).unique
        return None if unique is None else unique.get(index.number, {}).get(encode_key(key))

    # -- changes of rows -----------------------------------------------------------------------------------------------

    def _update_row(self, space: SpaceDefinition, key: bytes, before: list[Any], body: Mapping[str, Any]) -> None:
        operations = self._parse_operations(space, body["tuple"], body)
        if operations is None:
            return
        try:
            row = update_operations.apply_update(
                before, operations, is_version_3=self._is_3, fill_gaps_with_null=self._version >= (2, 8)
            )
        except update_operations.UpdateRefusedError as error:
            raise RowRefusedError(str(error)) from None
        except update_operations.UpdateUndeterminedError:
            self.doubts.add(space.name, "an update that cannot be computed")
            return
        self._check_row(space, row)
        primary = space.indexes[0]
        changed = encode_primary_key(primary, row)
        if changed != key:
            if self.store.get_row(space.number, changed) is not None:
                raise DuplicateError(primary)
            text = f"Attempt to modify a tuple field which is part of index '{primary.name}' in space '{space.name}'"
            if self._is_3:
                text = text.replace("'", '"').replace("index", "primary index")
            raise RowRefusedError(text)
        self._set_row_and_run_trigger(space, key, before, row, "UPDATE")

    def _parse_operations(
        self, space: SpaceDefinition, stored: Any, body: Mapping[str, Any]
    ) -> list[update_operations.UpdateOperation] | None:
        """Parse update operations; None if they cannot be parsed here, although the server may be able to."""
        base, names = body.get("index_base", 0), space.names
        fault = update_operations.check_operations(stored, base, names)
        if fault is not None:
            raise RowRefusedError(fault)
        operations = update_operations.parse_operations(stored, base, names)
        if operations is None:
            self.doubts.add(space.name, "an update that cannot be computed")
        return operations

    def _upsert_row(self, space: SpaceDefinition, body: Mapping[str, Any]) -> None:
        row, primary = _get_tuple(body), self._get_unique_index(space, 0)
        fault = check_row(space, row, is_version_3=self._is_3)
        if fault is not None:
            raise RowRefusedError(fault)
        if self.store.is_discarded(space.number) or primary.unchecked_reason:
            return
        key = encode_primary_key(primary, row)
        before = self.store.get_row(space.number, key)
        operations = self._parse_operations(space, body["ops"], body)
        if before is None:
            self._set_row_and_run_trigger(space, key, None, row, "UPSERT")
            return
        after = (
            None if operations is None else update_operations.apply_upsert(before, operations, is_version_3=self._is_3)
        )
        if after is None:
            self.doubts.add(space.name, "an upsert that cannot be computed")
            return
        self._check_row(space, after)
        if encode_primary_key(primary, after) == key:
            self._set_row_and_run_trigger(space, key, before, after, "UPSERT")

    def _delete_range(self, space: SpaceDefinition, body: Mapping[str, Any]) -> None:
        if body.get("index_id", 0) != 0:
            raise RowRefusedError("Engine 'memtx' does not support delete_range() on secondary index")
        primary, begin, end = space.indexes[0], body["begin_key"], body["end_key"]
        for key in (begin, end):
            fault = check_key(primary, key, is_version_3=self._is_3, allows_partial=True)
            if fault is not None:
                raise RowRefusedError(fault)
        if self.store.is_discarded(space.number) or primary.unchecked_reason:
            return
        deleted = self.store.find_keys_in_range(space, begin, end)
        for key in deleted:
            self._set_row_and_run_trigger(space, key, self.store.get_row(space.number, key), None, "DELETE")
        self.deleted_keys = deleted

    # -- system spaces -------------------------------------------------------------------------------------------------

    def _on_replace_space(self, before: list[Any] | None, row: list[Any] | None, kind: str) -> None:
        """Apply a change of `_space` (`on_replace_dd_space`)."""
        number = (before if before is not None else row or [0])[0]
        old = self.spaces.get(number)
        if row is not None:
            definition = parse_space(row, old, is_version_3=self._is_3)
            if old is not None:
                check_space_change(old, definition)
            definition.checks, definition.required = create_tuple_format(definition, is_version_3=self._is_3)
            if old is not None:
                if (definition.checks, definition.required, definition.exact) != (old.checks, old.required, old.exact):
                    self._check_rows(definition)
            elif definition.engine == "memtx":
                self.store.clear(number)
                if self._keeps_all_indexes(number):
                    self.store.get_or_create_space_rows(number).unique = {}
            self._set_definition(number, definition)
            return
        if old is None:
            return
        message = f"Can't drop space '{old.name}': the space has "
        if old.indexes:
            raise RowRefusedError(message + "indexes")
        if any(len(one) > 3 and one[2] == "space" and one[3] == number for one in self.store.iterate_rows(BOX_PRIV_ID)):
            raise RowRefusedError(message + "grants")
        if self.store.get_row(BOX_TRUNCATE_ID, encode_key([number])) is not None:
            raise RowRefusedError(message + "truncate record")
        if any(one[0] == number for one in self.store.iterate_rows(BOX_CK_CONSTRAINT_ID) if one):
            raise RowRefusedError(message + "check constraints")
        if any(number == one[1] for one in self.store.iterate_rows(BOX_FK_CONSTRAINT_ID) if len(one) > 1):
            raise RowRefusedError(message + "foreign key constraints")
        self._set_definition(number, None)

    def _check_rows(self, space: SpaceDefinition) -> None:
        """Check the rows of a space against a new format (`CheckSpaceFormat`)."""
        if space.engine == "memtx" and not self.store.is_discarded(space.number):
            for row in self.store.iterate_rows(space.number):
                self._check_row(space, row)

    def _keeps_all_indexes(self, space: int) -> bool:
        return self._force or space <= BOX_SYSTEM_ID_MAX

    def _on_replace_index(self, before: list[Any] | None, row: list[Any] | None, kind: str) -> None:
        """Apply a change of `_index` (`on_replace_dd_index`)."""
        number, index_number = (before if before is not None else row or [0, 0])[:2]
        space = self.spaces.get(number)
        if space is None:
            raise RowRefusedError(f"Space '{number}' does not exist")
        message = f"Can't modify space '{space.name}': "
        if space.view:
            raise RowRefusedError(message + "can not add index on a view")
        if index_number == 0 and row is None:
            self._check_drop_primary(space, message)
        if index_number != 0 and 0 not in space.indexes:
            raise RowRefusedError(message + "can not add a secondary key before primary")
        if row is None:
            self._set_definition(number, space.copy_with_index(None, index_number, is_version_3=self._is_3))
            if index_number == 0:
                self.store.clear(number)
            return
        index = parse_index(row, space, is_version_3=self._is_3)
        self._check_unique_name(space, index)
        after = space.copy_with_index(index, index_number, is_version_3=self._is_3)
        self._set_definition(number, after)
        self._rebuild_index(space, after, index)

    def _check_drop_primary(self, space: SpaceDefinition, message: str) -> None:
        if space.number <= BOX_SYSTEM_ID_MAX:
            raise RowRefusedError(f"Can't drop the primary key in a system space, space '{space.name}'")
        if len(space.indexes) > 1:
            raise RowRefusedError(f"Can't drop primary key in space '{space.name}' while secondary keys exist")
        if self.store.get_row(BOX_SPACE_SEQUENCE_ID, encode_key([space.number])) is not None:
            raise RowRefusedError(message + "can not drop primary key while space sequence exists")

    def _check_unique_name(self, space: SpaceDefinition, new_index: IndexDefinition) -> None:
        """Check that no other unique index has the same name, because these names are also names of constraints."""
        for index in space.indexes.values():
            if index.number != new_index.number and index.unique and new_index.unique and index.name == new_index.name:
                kind = "PRIMARY KEY" if new_index.number == 0 else "UNIQUE"
                raise RowRefusedError(f"{kind} constraint '{new_index.name}' already exists in space '{space.name}'")

    def _rebuild_index(self, before: SpaceDefinition, after: SpaceDefinition, index: IndexDefinition) -> None:
        """Check existing rows against a new or changed index, and rebuild it."""
        old = before.indexes.get(index.number)
        if (
            after.engine != "memtx"
            or self.store.is_discarded(after.number)
            or (old is not None and old.parts == index.parts and old.unique == index.unique)
        ):
            return
        for row in self.store.iterate_rows(after.number):
            self._check_row(after, row)
        if index.number == 0 and old is not None:
            self.store.rebuild_primary_keys(after)
        elif (
            index.number
            and index.unique
            and not index.unchecked_reason
            and self.store.get_or_create_space_rows(after.number).unique is not None
        ):
            self.store.build_unique_indexes(after, only_index=index)

    def _on_replace_truncate(self, before: list[Any] | None, row: list[Any] | None, kind: str) -> None:
        """Apply a change of `_truncate` (`on_replace_dd_truncate`)."""
        if row is None:
            return
        space = self.spaces.get(row[0])
        if space is None:
            raise RowRefusedError(f"Space '{row[0]}' does not exist")
        if kind == "INSERT":
            return
        if space.number <= BOX_SYSTEM_ID_MAX:
            raise RowRefusedError(f"Can't truncate a system space, space '{space.name}'")
        for key in list(self.store.get_or_create_space_rows(space.number).rows):
            self.store.set_or_delete_row(space, key, None)

    def _check_replicaset_uuid_change(self, before: list[Any] | None, row: list[Any] | None, kind: str) -> None:
        """Check a change of `_schema` (`on_replace_dd_schema`)."""
        key = (row if row is not None else before or [""])[0]
        if key in ("cluster", "replicaset_uuid"):
            new_uuid = row[1] if row is not None and len(row) > 1 else None
            if row is None or (self._is_3 and before is not None and before[1:2] != [new_uuid]):
                raise RowRefusedError("Can't reset replica set UUID: it is already assigned")
            if not _is_uuid(new_uuid):
                raise RowRefusedError("Invalid UUID")

    def _on_replace_cluster(self, before: list[Any] | None, row: list[Any] | None, kind: str) -> None:
        """Check a change of `_cluster` (`on_replace_dd_cluster`)."""
        if row is None:
            return
        if not 0 < row[0] < 32:
            raise RowRefusedError("Can't initialize replica id with a reserved value" if row[0] == 0 else
                               "Replica count limit reached: 32")  # fmt: skip
        if len(row) < 2 or not _is_uuid(row[1]) or not row[1].strip("0-"):
            raise RowRefusedError(f"Invalid UUID: {row[1] if len(row) > 1 else ''}")
        if before is not None and before[1:2] != row[1:2] and not self._is_3:
            raise RowRefusedError("Space _cluster does not support updates of instance uuid")

    # -- the end of recovery -------------------------------------------------------------------------------------------

    def build_secondary_indexes(self) -> str | None:
        """Build all secondary indexes; return the server's message if a hash index has a key twice, else None.

        Trees are built in bulk, without a check for duplicates (`memtx_tree_index_end_build`; observed on 2.6.0).
        """
        if self.store.is_full:
            return None
        for space in self.spaces.values():
            if (
                space.engine != "memtx"
                or self.store.get_or_create_space_rows(space.number).unique is not None
                or not any(list_secondary_unique_indexes(space))
            ):
                continue
            try:
                self.store.build_unique_indexes(space)
            except DuplicateError as error:
                if error.index.type == "hash":
                    return self.format_duplicate_error(error.index, space.name)
                self.duplicates[space.name] = error.index.name
        return None


_CROSS_ENGINE_ERROR = "A multi-statement transaction can not use multiple storage engines"


def _get_tuple(body: Mapping[str, Any]) -> list[Any]:
    row = body.get("tuple")
    if not isinstance(row, list):
        raise RowRefusedError("Invalid MsgPack - packet body")
    return row


def _is_uuid(value: Any) -> bool:
    digits = value.replace("-", "") if isinstance(value, str) else ""
    return len(digits) == 32 and all(one in "0123456789abcdefABCDEF" for one in digits)
