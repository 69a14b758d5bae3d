"""Rows of memtx spaces by their keys, as the server holds them while it replays, with a rollback log.

memtx keeps the primary keys while it reads logs and builds the others at the end; with force_recovery, and for its
own
spaces, it keeps all of them from the beginning (`memtx_engine.c`: MEMTX_FINAL_RECOVERY, MEMTX_OK).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import msgspec

from binlogtool.errors import LimitError
from binlogtool.formats.replay_rules import canonical
from binlogtool.formats.tarantool.codes import LAST_SYSTEM_SPACE
from binlogtool.formats.tarantool.replay.tuple_check import in_range, key_bytes, key_values, unique_keys
from binlogtool.formats.tarantool.spaces.definitions import Index, SpaceDefinition

ROW_BYTES = 400
"""What a row costs in memory beside its bytes, about."""
SYSTEM_BYTES = 16 << 20
"""Memory that the rows of the system spaces may take, however low --max-memory is."""

_decode = msgspec.msgpack.Decoder().decode


class DuplicateError(Exception):
    """Another row has this key in `index`."""

    def __init__(self, index: Index) -> None:
        super().__init__(index.name)
        self.index = index


class Rows(msgspec.Struct):
    """Rows of one space.

    Attributes:
        rows: primary key -> canonical bytes.
        unique: number of a secondary unique index -> key -> primary key; None = not built yet.
    """

    rows: dict[bytes, bytes] = msgspec.field(default_factory=dict)
    unique: dict[int, dict[bytes, bytes]] | None = None


Undo = tuple[int, bytes, bytes | None]
"""Space, key, what it had before."""


class RowStore(msgspec.Struct):
    """Rows of all spaces.

    System spaces are always kept, because their rows define the others.

    Attributes:
        user_bytes: memory that rows of users take.
        is_full: it exceeded `max_memory`, and rows of users are no longer kept.
    """

    max_memory: int
    cost: int = 0
    system_cost: int = 0
    full: bool = False
    spaces: dict[int, Rows] = msgspec.field(default_factory=dict)
    log: list[Undo] = msgspec.field(default_factory=list)

    def lacks(self, space: int) -> bool:
        """Return True if the rows of a space are no longer kept."""
        return self.full and space > LAST_SYSTEM_SPACE

    def of(self, space: int) -> Rows:
        """Return the rows of a space."""
        found = self.spaces.get(space)
        return self.spaces.setdefault(space, Rows()) if found is None else found

    def get(self, space: int, key: bytes) -> list[Any] | None:
        """Return the row with this key, or None."""
        image = self.of(space).rows.get(key)
        return None if image is None else _decode(image)

    def put(self, space: SpaceDefinition, key: bytes, row: Sequence[Any] | None) -> None:
        """Set or delete (None) a row.

        Raises:
            DuplicateError: a secondary unique index that is built has its key.
        """
        rows = self.of(space.number)
        before = rows.rows.get(key)
        if rows.unique is not None:
            self._reindex(space, rows, key, before, row)
        self.log.append((space.number, key, before))
        self._set(space.number, key, None if row is None else canonical(row))

    def _set(self, space: int, key: bytes, image: bytes | None) -> None:
        rows = self.of(space)
        before = rows.rows.get(key)
        growth = (0 if image is None else len(image) + ROW_BYTES) - (0 if before is None else len(before) + ROW_BYTES)
        if image is None:
            rows.rows.pop(key, None)
        else:
            rows.rows[key] = image
        if space > LAST_SYSTEM_SPACE:
            self.cost += growth
            if self.cost > self.max_memory:
                self.forget()
            return
        self.system_cost += growth
        if self.system_cost > max(self.max_memory, SYSTEM_BYTES):
            raise LimitError("the rows of the system spaces need more memory than --max-memory allows; raise it")

    def forget(self) -> None:
        """Discard the rows of users, and keep none from now on: they need more memory than allowed."""
        self.full = True
        self.cost = 0
        self.spaces = {number: rows for number, rows in self.spaces.items() if number <= LAST_SYSTEM_SPACE}
        self.log = [change if change[0] <= LAST_SYSTEM_SPACE else (*change[:2], None) for change in self.log]

    def _reindex(
        self, space: SpaceDefinition, rows: Rows, key: bytes, before: bytes | None, row: Sequence[Any] | None
    ) -> None:
        assert rows.unique is not None
        indexes = [index for index in secondary(space) if index.number in rows.unique]
        for index in indexes:
            keys = rows.unique[index.number]
            for one in unique_keys(index, row) if row is not None else ():
                if keys.get(one, key) != key:
                    raise DuplicateError(index)
        for index in indexes:
            keys = rows.unique[index.number]
            for one in unique_keys(index, _decode(before)) if before is not None else ():
                keys.pop(one, None)
            for one in unique_keys(index, row) if row is not None else ():
                keys[one] = key

    def build(self, space: SpaceDefinition, *, only: Index | None = None) -> None:
        """Build the secondary unique indexes of a space, or only one of them.

        Raises:
            DuplicateError: two rows have the same key.
        """
        rows = self.of(space.number)
        rows.unique = {} if rows.unique is None else rows.unique
        for index in secondary(space):
            if only is not None and index.number != only.number:
                continue
            keys = rows.unique[index.number] = {}
            for key, image in rows.rows.items():
                for one in unique_keys(index, _decode(image)):
                    if keys.setdefault(one, key) != key:
                        raise DuplicateError(index)

    def rekey(self, space: SpaceDefinition) -> None:
        """Store all rows under the keys of another primary index.

        Raises:
            DuplicateError: two rows have the same key.
        """
        rows, index = self.of(space.number), space.indexes[0]
        made: dict[bytes, bytes] = {}
        for image in rows.rows.values():
            if made.setdefault(primary_key(index, _decode(image)), image) is not image:
                raise DuplicateError(index)
        rows.rows = made

    def range(self, space: SpaceDefinition, begin: Sequence[Any], end: Sequence[Any]) -> list[bytes]:
        """Return the primary keys of the rows from `begin` up to `end` (exclusive)."""
        index, found = space.indexes[0], []
        for key, image in self.of(space.number).rows.items():
            values = key_values(index.parts, _decode(image))
            if values is not None and in_range(index, values, begin, end):
                found.append(key)
        return found

    def images(self, space: int) -> Iterator[list[Any]]:
        """Yield all rows of a space."""
        return map(_decode, self.of(space).rows.values())

    def clear(self, space: int) -> None:
        """Remove all rows of a space; not in the rollback log."""
        rows = self.spaces.pop(space, None)
        if rows is not None:
            freed = sum(len(image) + ROW_BYTES for image in rows.rows.values())
            if space > LAST_SYSTEM_SPACE:
                self.cost -= freed
            else:
                self.system_cost -= freed
            self.spaces[space] = Rows(unique=None if rows.unique is None else {})

    # -- undo ----------------------------------------------------------------------------------------------------------

    def undo(self, entries: Sequence[Undo], definitions: dict[int, SpaceDefinition]) -> None:
        """Roll changes back, the last one first."""
        for number, key, image in reversed(entries):
            if self.lacks(number):
                continue
            space = definitions.get(number)
            rows = self.of(number)
            if space is not None and rows.unique is not None:
                before = rows.rows.get(key)
                self._reindex(space, rows, key, before, None if image is None else _decode(image))
            self._set(number, key, image)


def primary_key(index: Index, row: Sequence[Any]) -> bytes:
    """Encode the key of a row in the primary index."""
    return key_bytes(key_values(index.parts, row) or [])


def secondary(space: SpaceDefinition) -> Iterator[Index]:
    """Yield the secondary unique indexes whose keys can be compared here."""
    return (index for index in space.indexes.values() if index.number and index.unique and not index.doubt)
