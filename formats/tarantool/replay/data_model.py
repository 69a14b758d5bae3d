"""State of the server's spaces during replay, and the rows that it refuses: requests, formats, keys, definitions.

The rules are those of `xrow_decode_dml`, `space_execute_dml`, `memtx_space.c` and of the triggers of system spaces in
`alter.cc`; the messages are the server's.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import msgspec

from binlogtool.formats.tarantool.codes import LAST_SYSTEM_SPACE
from binlogtool.formats.tarantool.replay import update_ops
from binlogtool.formats.tarantool.replay.row_store import DuplicateError, RowStore, primary_key, secondary
from binlogtool.formats.tarantool.replay.server_version import ServerVersion
from binlogtool.formats.tarantool.replay.tuple_check import check_key, check_row, key_bytes, key_values, ordered
from binlogtool.formats.tarantool.rows.names import TYPE_NAMES
from binlogtool.formats.tarantool.spaces.definitions import (
    CrashError,
    Index,
    KeyPart,
    RefusedError,
    SpaceDefinition,
    check_altered,
    read_index,
    read_space,
    tuple_format,
)

DEFERRED_DELETE, SCHEMA, COLLATION, SPACE, SEQUENCE, INDEX = 257, 272, 276, 280, 284, 288
FUNC, USER, PRIV, CLUSTER, TRIGGER, TRUNCATE, SPACE_SEQUENCE = 296, 304, 312, 320, 328, 330, 340
FK_CONSTRAINT, CK_CONSTRAINT, FUNC_INDEX, SESSION_SETTINGS, SEQUENCE_DATA = 356, 364, 372, 380, 285

_BUILT_IN: Mapping[int, tuple[str, tuple[str, ...]]] = {
    SCHEMA: ("_schema", ("string",)), COLLATION: ("_collation", ("unsigned",)), SPACE: ("_space", ("unsigned",)),
    TRUNCATE: ("_truncate", ("unsigned",)), SEQUENCE: ("_sequence", ("unsigned",)),
    SEQUENCE_DATA: ("_sequence_data", ("unsigned",)), SPACE_SEQUENCE: ("_space_sequence", ("unsigned",)),
    USER: ("_user", ("unsigned",)), FUNC: ("_func", ("unsigned",)), PRIV: ("_priv", ("unsigned",)),
    CLUSTER: ("_cluster", ("unsigned",)), TRIGGER: ("_trigger", ("string",)),
    INDEX: ("_index", ("unsigned", "unsigned")),
    FK_CONSTRAINT: ("_fk_constraint", ("string", "unsigned")),
    CK_CONSTRAINT: ("_ck_constraint", ("unsigned", "string")), FUNC_INDEX: ("_func_index", ("unsigned", "unsigned")),
}  # fmt: skip
"""Spaces that the server has before it reads a snapshot (`schema_init`): their names and the types of their keys."""

_FIELDS: Mapping[str, tuple[str, ...]] = {
    "SELECT": ("space_id", "limit", "key"), "INSERT": ("space_id", "tuple"), "REPLACE": ("space_id", "tuple"),
    "UPDATE": ("space_id", "key", "tuple"), "DELETE": ("space_id", "key"), "UPSERT": ("space_id", "tuple", "ops"),
    "INSERT_ARROW": ("space_id", "arrow"), "DELETE_RANGE": ("space_id", "begin_key", "end_key"),
}  # fmt: skip
"""The fields that a request must have, in the order of their numbers (`iproto_body_key_map`)."""

_NO_EFFECT = frozenset(TYPE_NAMES[number] for number in (0, 6, 7, 8, 10, 11, 13))
_NO_EFFECT_3 = _NO_EFFECT | frozenset(TYPE_NAMES[number] for number in (14, 15, 16))
"""Types without mandatory fields, which change nothing."""


def request_fault(kind: str, body: Any, version: ServerVersion) -> str | None:
    """Return the server's message about a request that lacks a mandatory field (`xrow_decode_dml`): the lowest; else
    None.

    For types that it does not know the server reads beyond the end of its table, and finds a field that no row has.
    """
    if kind == "NOP":
        return None
    if kind not in _FIELDS or (not version.is_3 and kind in ("INSERT_ARROW", "DELETE_RANGE")):
        known = kind in (_NO_EFFECT_3 if version.is_3 else _NO_EFFECT)
        return None if known else "Missing mandatory field in request: the server does not know this type"
    for name in _FIELDS[kind]:
        if not isinstance(body, Mapping) or name not in body:
            text = name.upper() if version.is_3 else name.replace("_", " ")
            return f"Missing mandatory field '{text}' in request"
    return None


class Doubts(msgspec.Struct):
    """Checks that could not be made: a reason for each space or index."""

    found: dict[str, str] = msgspec.field(default_factory=dict)

    def add(self, place: str, why: str) -> None:
        """Remember an item, with the first reason given for it."""
        self.found.setdefault(place, why)


class DataModel:
    """The spaces of one start. With force_recovery (`force`) all indexes are kept from the beginning."""

    def __init__(self, version: ServerVersion, *, force: bool, max_memory: int) -> None:
        self._is_3, self._version, self._force = version.is_3, version, force
        self.spaces: dict[int, SpaceDefinition] = {}
        self.store = RowStore(max_memory)
        self.doubts = Doubts()
        self.deleted: list[bytes] = []
        self.unordered: set[str] = set()
        self.duplicates: dict[str, str] = {}
        self.crashes = False
        self._last: dict[int, list[Any]] = {}
        self._last_space = -1
        self._loading = False
        self._undo_spaces: list[tuple[int, SpaceDefinition | None]] = []
        for number, (name, types) in _BUILT_IN.items():
            parts = tuple(KeyPart(n, type_) for n, type_ in enumerate(types))
            made = SpaceDefinition(number, name, "memtx")
            self.spaces[number] = made.with_index(Index(0, "primary", "tree", True, parts), 0, is_3=self._is_3)
            self.store.of(number).unique = {}
        self.spaces[DEFERRED_DELETE] = SpaceDefinition(
            DEFERRED_DELETE, "_vinyl_deferred_delete", "blackhole", local=True
        )
        self._triggers: Mapping[int, Callable[..., None]] = {
            SPACE: self._space_changed, INDEX: self._index_changed, TRUNCATE: self._truncated,
            SCHEMA: self._schema_changed, CLUSTER: self._cluster_changed,
        }  # fmt: skip

    @property
    def schema_version(self) -> Any:
        """Version of the system spaces as `_schema` states it; None if it states none."""
        row = self.store.get(SCHEMA, key_bytes(["version"]))
        return None if row is None else row[1:]

    # -- undo ----------------------------------------------------------------------------------------------------------

    def mark(self) -> tuple[int, int]:
        """Return a savepoint for `roll_back`."""
        return len(self.store.log), len(self._undo_spaces)

    def undo(self, mark: tuple[int, int], stop: tuple[int, int] | None = None) -> None:
        """Roll back the changes since a savepoint, up to another one (None = up to now)."""
        rows, spaces = mark
        end, last = stop or (None, None)
        for number, before in reversed(self._undo_spaces[spaces:last]):
            if before is None:
                self.spaces.pop(number, None)
            else:
                self.spaces[number] = before
        entries = self.store.log[rows:end]
        if stop is None:
            del self._undo_spaces[spaces:]
            del self.store.log[rows:]
            self.store.undo(entries, self.spaces)
            del self.store.log[rows:]
            return
        self.store.undo(entries, self.spaces)

    def settle(self) -> None:
        """Make all changes final: nothing can be rolled back any more."""
        self.store.log.clear()
        self._undo_spaces.clear()

    def _define(self, number: int, made: SpaceDefinition | None) -> None:
        self._undo_spaces.append((number, self.spaces.get(number)))
        if made is None:
            self.spaces.pop(number, None)
        else:
            self.spaces[number] = made

    # -- requests ------------------------------------------------------------------------------------------------------

    def apply(self, kind: str, body: Any, *, snapshot: bool = False) -> str | None:
        """Apply one row; return the server's message if it refuses the row (then nothing has changed), else None."""
        mark = self.mark()
        self.deleted, self._loading = [], snapshot
        try:
            self._apply(kind, body if isinstance(body, Mapping) else {}, snapshot)
        except CrashError as error:
            self.crashes = True
            return str(error)
        except RefusedError as error:
            self.undo(mark)
            return str(error)
        except DuplicateError as error:
            self.undo(mark)
            return self._duplicate(error.index, body)
        return None

    def _duplicate(self, index: Index, body: Any) -> str:
        space = self.spaces.get(body.get("space_id", 0)) if isinstance(body, Mapping) else None
        return self.duplicate(index, space.name if space is not None else "?")

    def duplicate(self, index: Index, space: str) -> str:
        """Format the server's message about a key that exists already."""
        quote = '"' if self._is_3 else "'"
        return f"Duplicate key exists in unique index {quote}{index.name}{quote} in space {quote}{space}{quote}"

    def _apply(self, kind: str, body: Mapping[str, Any], snapshot: bool) -> None:
        fault = request_fault(kind, body, self._version)
        if fault is not None:
            raise RefusedError(fault)
        if kind == "NOP":
            return
        number = body.get("space_id", 0)
        space = self.spaces.get(number)
        if space is None:
            raise RefusedError(f"Space '{number}' does not exist")
        if kind not in _FIELDS or kind == "SELECT":  # `space_execute_dml` ignores them
            return
        self._check_engine(space, kind, snapshot=snapshot)
        if space.engine == "memtx":
            self._execute(space, kind, body, snapshot)
        elif kind in ("INSERT", "REPLACE", "UPSERT"):
            self._check_row(space, _row(body))

    def _check_engine(self, space: SpaceDefinition, kind: str, *, snapshot: bool) -> None:
        if space.engine == "sysview":
            raise RefusedError(f"View '{space.name}' is read-only")
        if space.engine == "service":
            raise RefusedError(f"{space.name} space does not support replace()")
        if kind == "INSERT_ARROW":
            raise RefusedError("CE version does not support arrow format")
        if snapshot and space.engine != "memtx":
            text = f"Alien engine '{space.engine}'" if self._is_3 else _CROSS_ENGINE
            raise RefusedError(text)
        if space.engine == "blackhole" and kind not in ("INSERT", "REPLACE"):
            raise RefusedError(f"Blackhole does not support {kind.lower()}()")
        if space.engine == "vinyl" and kind == "DELETE_RANGE":
            raise RefusedError("Engine 'vinyl' does not support delete_range()")
        if space.number > LAST_SYSTEM_SPACE and space.engine in ("memtx", "vinyl") and 0 not in space.indexes:
            raise RefusedError(f"No index #0 is defined in space '{space.name}'")

    def _execute(self, space: SpaceDefinition, kind: str, body: Mapping[str, Any], snapshot: bool) -> None:
        if kind in ("INSERT", "REPLACE"):
            self._put(space, _row(body), new=kind == "INSERT", kind=kind)
        elif kind == "UPSERT":
            self._upsert(space, body)
        elif kind == "DELETE_RANGE":
            self._delete_range(space, body)
        else:
            index = self._unique_index(space, body.get("index_id", 0))
            fault = check_key(index, body["key"], is_3=self._is_3)
            if fault is not None:
                raise RefusedError(fault)
            key = self._found(space, index, body["key"])
            before = None if key is None else self.store.get(space.number, key)
            if key is not None and before is not None:
                if kind == "DELETE":
                    self._change(space, key, before, None, kind)
                else:
                    self._update(space, key, before, body)

    def _check_row(self, space: SpaceDefinition, row: Sequence[Any]) -> None:
        fault = check_row(space, row, is_3=self._is_3)
        if fault is not None:
            raise RefusedError(fault)
        if space.doubt:
            self.doubts.add(space.name, space.doubt)
        for index in space.indexes.values():
            if index.doubt and index.unique:
                self.doubts.add(f"index '{index.name}' of {space.name}", index.doubt)

    def _put(self, space: SpaceDefinition, row: Sequence[Any], *, new: bool, kind: str) -> None:
        self._check_row(space, row)
        primary = space.indexes.get(0)
        if primary is None:
            raise RefusedError(f"No index #0 is defined in space '{space.name}'")
        if self.store.lacks(space.number) or primary.doubt:
            return
        key = primary_key(primary, row)
        before = self.store.get(space.number, key)
        if self._loading and space.number > LAST_SYSTEM_SPACE and not self._force:
            self._check_order(space, primary, row)
        elif new and before is not None:
            raise DuplicateError(primary)
        self._change(space, key, before, row, kind)

    def _check_order(self, space: SpaceDefinition, primary: Index, row: Sequence[Any]) -> None:
        """Check that rows of a snapshot are ordered by their keys: the server assumes it, and looks for no
        duplicates.
        """
        before = self._last.pop(space.number, None)
        interrupted = self._is_3 and before is not None and self._last_space != space.number
        key = self._last[space.number] = ordered(primary, key_values(primary.parts, row) or [])
        self._last_space = space.number
        if primary.type == "tree" and not primary.doubt and before is not None:
            try:
                if interrupted or not before < key:
                    self.unordered.add(space.name)
            except TypeError:
                self.doubts.add(space.name, "the order of its keys")

    def _change(
        self, space: SpaceDefinition, key: bytes, before: list[Any] | None, row: Sequence[Any] | None, kind: str
    ) -> None:
        """Set or delete a row, and run the trigger of a system space."""
        self.store.put(space, key, row)
        trigger = self._triggers.get(space.number)
        if trigger is not None:
            trigger(before, row, kind)

    def _unique_index(self, space: SpaceDefinition, number: int) -> Index:
        index = space.indexes.get(number)
        if index is None:
            raise RefusedError(f"No index #{number} is defined in space '{space.name}'")
        if not index.unique:
            raise RefusedError("Get() doesn't support partial keys and non-unique indexes")
        return index

    def _found(self, space: SpaceDefinition, index: Index, key: Sequence[Any]) -> bytes | None:
        """Return the primary key of the row that a key of an index finds, or None."""
        if index.number == 0:
            return None if index.doubt else key_bytes(key)
        unique = self.store.of(space.number).unique
        return None if unique is None else unique.get(index.number, {}).get(key_bytes(key))

    # -- changes of rows -----------------------------------------------------------------------------------------------

    def _update(self, space: SpaceDefinition, key: bytes, before: list[Any], body: Mapping[str, Any]) -> None:
        operations = self._operations(space, body["tuple"], body)
        if operations is None:
            return
        try:
            row = update_ops.updated(before, operations, is_3=self._is_3, fills=self._version >= (2, 8))
        except update_ops.FailsError as error:
            raise RefusedError(str(error)) from None
        except update_ops.UnknownError:
            self.doubts.add(space.name, "an update that cannot be computed")
            return
        self._check_row(space, row)
        primary = space.indexes[0]
        changed = primary_key(primary, row)
        if changed != key:
            if self.store.get(space.number, changed) is not None:
                raise DuplicateError(primary)
            text = f"Attempt to modify a tuple field which is part of index '{primary.name}' in space '{space.name}'"
            if self._is_3:
                text = text.replace("'", '"').replace("index", "primary index")
            raise RefusedError(text)
        self._change(space, key, before, row, "UPDATE")

    def _operations(
        self, space: SpaceDefinition, stored: Any, body: Mapping[str, Any]
    ) -> list[update_ops.Operation] | None:
        """Parse the operations; None if they cannot be parsed here, although the server may."""
        base, names = body.get("index_base", 0), space.names
        fault = update_ops.fault_of(stored, base, names)
        if fault is not None:
            raise RefusedError(fault)
        operations = update_ops.read_operations(stored, base, names)
        if operations is None:
            self.doubts.add(space.name, "an update that cannot be computed")
        return operations

    def _upsert(self, space: SpaceDefinition, body: Mapping[str, Any]) -> None:
        row, primary = _row(body), self._unique_index(space, 0)
        fault = check_row(space, row, is_3=self._is_3)
        if fault is not None:
            raise RefusedError(fault)
        if self.store.lacks(space.number) or primary.doubt:
            return
        key = primary_key(primary, row)
        before = self.store.get(space.number, key)
        operations = self._operations(space, body["ops"], body)
        if before is None:
            self._change(space, key, None, row, "UPSERT")
            return
        after = None if operations is None else update_ops.upsert(before, operations, is_3=self._is_3)
        if after is None:
            self.doubts.add(space.name, "an upsert that cannot be computed")
            return
        self._check_row(space, after)
        if primary_key(primary, after) == key:
            self._change(space, key, before, after, "UPSERT")

    def _delete_range(self, space: SpaceDefinition, body: Mapping[str, Any]) -> None:
        if body.get("index_id", 0) != 0:
            raise RefusedError("Engine 'memtx' does not support delete_range() on secondary index")
        primary, begin, end = space.indexes[0], body["begin_key"], body["end_key"]
        for key in (begin, end):
            fault = check_key(primary, key, is_3=self._is_3, partial=True)
            if fault is not None:
                raise RefusedError(fault)
        if self.store.lacks(space.number) or primary.doubt:
            return
        found = self.store.range(space, begin, end)
        for key in found:
            self._change(space, key, self.store.get(space.number, key), None, "DELETE")
        self.deleted = found

    # -- system spaces -------------------------------------------------------------------------------------------------

    def _space_changed(self, before: list[Any] | None, row: list[Any] | None, kind: str) -> None:
        """Apply a change of `_space` (`on_replace_dd_space`)."""
        number = (before if before is not None else row or [0])[0]
        old = self.spaces.get(number)
        if row is not None:
            made = read_space(row, old, is_3=self._is_3)
            if old is not None:
                check_altered(old, made)
            made.checks, made.required = tuple_format(made, is_3=self._is_3)
            if old is not None:
                if (made.checks, made.required, made.exact) != (old.checks, old.required, old.exact):
                    self._check_rows(made)
            elif made.engine == "memtx":
                self.store.clear(number)
                if self._all_indexes(number):
                    self.store.of(number).unique = {}
            self._define(number, made)
            return
        if old is None:
            return
        failed = f"Can't drop space '{old.name}': the space has "
        if old.indexes:
            raise RefusedError(failed + "indexes")
        if any(len(one) > 3 and one[2] == "space" and one[3] == number for one in self.store.images(PRIV)):
            raise RefusedError(failed + "grants")
        if self.store.get(TRUNCATE, key_bytes([number])) is not None:
            raise RefusedError(failed + "truncate record")
        if any(one[0] == number for one in self.store.images(CK_CONSTRAINT) if one):
            raise RefusedError(failed + "check constraints")
        if any(number == one[1] for one in self.store.images(FK_CONSTRAINT) if len(one) > 1):
            raise RefusedError(failed + "foreign key constraints")
        self._define(number, None)

    def _check_rows(self, space: SpaceDefinition) -> None:
        """Check the rows of a space against a new format (`CheckSpaceFormat`)."""
        if space.engine == "memtx" and not self.store.lacks(space.number):
            for row in self.store.images(space.number):
                self._check_row(space, row)

    def _all_indexes(self, space: int) -> bool:
        return self._force or space <= LAST_SYSTEM_SPACE

    def _index_changed(self, before: list[Any] | None, row: list[Any] | None, kind: str) -> None:
        """Apply a change of `_index` (`on_replace_dd_index`)."""
        number, which = (before if before is not None else row or [0, 0])[:2]
        space = self.spaces.get(number)
        if space is None:
            raise RefusedError(f"Space '{number}' does not exist")
        failed = f"Can't modify space '{space.name}': "
        if space.view:
            raise RefusedError(failed + "can not add index on a view")
        if which == 0 and row is None:
            self._check_primary_dropped(space, failed)
        if which != 0 and 0 not in space.indexes:
            raise RefusedError(failed + "can not add a secondary key before primary")
        if row is None:
            self._define(number, space.with_index(None, which, is_3=self._is_3))
            if which == 0:
                self.store.clear(number)
            return
        made = read_index(row, space, is_3=self._is_3)
        self._check_unique_name(space, made)
        after = space.with_index(made, which, is_3=self._is_3)
        self._define(number, after)
        self._rebuild(space, after, made)

    def _check_primary_dropped(self, space: SpaceDefinition, failed: str) -> None:
        if space.number <= LAST_SYSTEM_SPACE:
            raise RefusedError(f"Can't drop the primary key in a system space, space '{space.name}'")
        if len(space.indexes) > 1:
            raise RefusedError(f"Can't drop primary key in space '{space.name}' while secondary keys exist")
        if self.store.get(SPACE_SEQUENCE, key_bytes([space.number])) is not None:
            raise RefusedError(failed + "can not drop primary key while space sequence exists")

    def _check_unique_name(self, space: SpaceDefinition, made: Index) -> None:
        """Check that a unique index does not have the name of another one: their names are those of constraints."""
        for index in space.indexes.values():
            if index.number != made.number and index.unique and made.unique and index.name == made.name:
                kind = "PRIMARY KEY" if made.number == 0 else "UNIQUE"
                raise RefusedError(f"{kind} constraint '{made.name}' already exists in space '{space.name}'")

    def _rebuild(self, before: SpaceDefinition, after: SpaceDefinition, index: Index) -> None:
        """Check existing rows against a new or changed index, and rebuild it."""
        old = before.indexes.get(index.number)
        if (
            after.engine != "memtx"
            or self.store.lacks(after.number)
            or (old is not None and old.parts == index.parts and old.unique == index.unique)
        ):
            return
        for row in self.store.images(after.number):
            self._check_row(after, row)
        if index.number == 0 and old is not None:
            self.store.rekey(after)
        elif index.number and index.unique and not index.doubt and self.store.of(after.number).unique is not None:
            self.store.build(after, only=index)

    def _truncated(self, before: list[Any] | None, row: list[Any] | None, kind: str) -> None:
        """Apply a change of `_truncate` (`on_replace_dd_truncate`)."""
        if row is None:
            return
        space = self.spaces.get(row[0])
        if space is None:
            raise RefusedError(f"Space '{row[0]}' does not exist")
        if kind == "INSERT":
            return
        if space.number <= LAST_SYSTEM_SPACE:
            raise RefusedError(f"Can't truncate a system space, space '{space.name}'")
        for key in list(self.store.of(space.number).rows):
            self.store.put(space, key, None)

    def _schema_changed(self, before: list[Any] | None, row: list[Any] | None, kind: str) -> None:
        """Check a change of `_schema` (`on_replace_dd_schema`)."""
        key = (row if row is not None else before or [""])[0]
        if key in ("cluster", "replicaset_uuid"):
            given = row[1] if row is not None and len(row) > 1 else None
            if row is None or (self._is_3 and before is not None and before[1:2] != [given]):
                raise RefusedError("Can't reset replica set UUID: it is already assigned")
            if not _is_uuid(given):
                raise RefusedError("Invalid UUID")

    def _cluster_changed(self, before: list[Any] | None, row: list[Any] | None, kind: str) -> None:
        """Check a change of `_cluster` (`on_replace_dd_cluster`)."""
        if row is None:
            return
        if not 0 < row[0] < 32:
            raise RefusedError("Can't initialize replica id with a reserved value" if row[0] == 0 else
                               "Replica count limit reached: 32")  # fmt: skip
        if len(row) < 2 or not _is_uuid(row[1]) or not row[1].strip("0-"):
            raise RefusedError(f"Invalid UUID: {row[1] if len(row) > 1 else ''}")
        if before is not None and before[1:2] != row[1:2] and not self._is_3:
            raise RefusedError("Space _cluster does not support updates of instance uuid")

    # -- the end of recovery -------------------------------------------------------------------------------------------

    def finish(self) -> str | None:
        """Build all secondary indexes; return the server's message if a key is in a hash index twice, else None.

        Trees are built in bulk, without a check for duplicates (`memtx_tree_index_end_build`; run on 2.6.0).
        """
        if self.store.full:
            return None
        for space in self.spaces.values():
            if space.engine != "memtx" or self.store.of(space.number).unique is not None or not any(secondary(space)):
                continue
            try:
                self.store.build(space)
            except DuplicateError as error:
                if error.index.type == "hash":
                    return self.duplicate(error.index, space.name)
                self.duplicates[space.name] = error.index.name
        return None


_CROSS_ENGINE = "A multi-statement transaction can not use multiple storage engines"


def _row(body: Mapping[str, Any]) -> list[Any]:
    row = body.get("tuple")
    if not isinstance(row, list):
        raise RefusedError("Invalid MsgPack - packet body")
    return row


def _is_uuid(value: Any) -> bool:
    digits = value.replace("-", "") if isinstance(value, str) else ""
    return len(digits) == 32 and all(one in "0123456789abcdefABCDEF" for one in digits)
