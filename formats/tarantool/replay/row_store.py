"""Rows of memtx spaces by their keys, as the server holds them while it replays, with a rollback log.

memtx keeps the primary keys while it reads logs and builds the others at the end; with force_recovery, and for its own
spaces, it keeps all of them from the beginning (`memtx_engine.c`: MEMTX_FINAL_RECOVERY, MEMTX_OK).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import msgspec

from binlogtool.errors import LimitError
from binlogtool.formats.replay_rules import encode_canonical
from binlogtool.formats.tarantool.codes import BOX_SYSTEM_ID_MAX
from binlogtool.formats.tarantool.replay.tuple_check import (
    encode_key,
    encode_unique_key,
    extract_key_values,
    is_in_range,
)
from binlogtool.formats.tarantool.spaces.definitions import IndexDefinition, SpaceDefinition

ROW_OVERHEAD_BYTES = 400
"""What a row costs in memory beside its bytes, about."""
MAX_SYSTEM_BYTES = 16 << 20
"""Memory that the rows of the system spaces may take, however low --max-memory is."""

_decode_row = msgspec.msgpack.Decoder().decode


class DuplicateError(Exception):
    """Another row has this key in `index`."""

    def __init__(self, index: IndexDefinition) -> None:
        super().__init__(index.name)
        self.index = index


class SpaceRows(msgspec.Struct):
    """Rows of one space.

    Attributes:
        rows: primary key -> canonical bytes.
        unique: number of a secondary unique index -> key -> primary key; None = not built yet.
    """

    rows: dict[bytes, bytes] = msgspec.field(default_factory=dict)
    unique: dict[int, dict[bytes, bytes]] | None = None


RollbackEntry = tuple[int, bytes, bytes | None]
"""Space, key, what it had before."""


class MemtxRowStore(msgspec.Struct):
    """Rows of all spaces.

    System spaces are always kept, because their rows define the others.

    Attributes:
        user_bytes: memory that rows of users take.
        is_full: it exceeded `max_memory`, and rows of users are no longer kept.
    """

    max_memory: int
    user_bytes: int = 0
    system_bytes: int = 0
    is_full: bool = False
    spaces: dict[int, SpaceRows] = msgspec.field(default_factory=dict)
    rollback_log: list[RollbackEntry] = msgspec.field(default_factory=list)

    def is_discarded(self, space: int) -> bool:
        """Return True if the rows of a space are no longer kept."""
        return self.is_full and space > BOX_SYSTEM_ID_MAX

    def get_rows(self, space: int) -> SpaceRows:
        """Return the rows of a space."""
        rows = self.spaces.get(space)
        return self.spaces.setdefault(space, SpaceRows()) if rows is None else rows

    def get_row(self, space: int, key: bytes) -> list[Any] | None:
        """Return the row with this key, or None."""
        image = self.get_rows(space).rows.get(key)
        return None if image is None else _decode_row(image)

    def put_row(self, space: SpaceDefinition, key: bytes, row: Sequence[Any] | None) -> None:
        """Set or delete (None) a row.

        Raises:
            DuplicateError: a secondary unique index that is built has its key.
        """
        rows = self.get_rows(space.number)
        before = rows.rows.get(key)
        if rows.unique is not None:
            self._reindex(space, rows, key, before, row)
        self.rollback_log.append((space.number, key, before))
        self._set_image(space.number, key, None if row is None else encode_canonical(row))

    def _set_image(self, space: int, key: bytes, image: bytes | None) -> None:
        rows = self.get_rows(space)
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
        """Discard the rows of users, and keep none from now on: they need more memory than allowed."""
        self.is_full = True
        self.user_bytes = 0
        self.spaces = {number: rows for number, rows in self.spaces.items() if number <= BOX_SYSTEM_ID_MAX}
        self.rollback_log = [
            change if change[0] <= BOX_SYSTEM_ID_MAX else (*change[:2], None) for change in self.rollback_log
        ]

    def _reindex(
        self, space: SpaceDefinition, rows: SpaceRows, key: bytes, before: bytes | None, row: Sequence[Any] | None
    ) -> None:
        assert rows.unique is not None
        indexes = [index for index in list_secondary_indexes(space) if index.number in rows.unique]
        for index in indexes:
            keys = rows.unique[index.number]
            for unique_key in encode_unique_key(index, row) if row is not None else ():
                if keys.get(unique_key, key) != key:
                    raise DuplicateError(index)
        for index in indexes:
            keys = rows.unique[index.number]
            for unique_key in encode_unique_key(index, _decode_row(before)) if before is not None else ():
                keys.pop(unique_key, None)
            for unique_key in encode_unique_key(index, row) if row is not None else ():
                keys[unique_key] = key

    def build_indexes(self, space: SpaceDefinition, *, only: IndexDefinition | None = None) -> None:
        """Build the secondary unique indexes of a space, or only one of them.

        Raises:
            DuplicateError: two rows have the same key.
        """
        rows = self.get_rows(space.number)
        rows.unique = {} if rows.unique is None else rows.unique
        for index in list_secondary_indexes(space):
            if only is not None and index.number != only.number:
                continue
            keys = rows.unique[index.number] = {}
            for key, image in rows.rows.items():
                for unique_key in encode_unique_key(index, _decode_row(image)):
                    if keys.setdefault(unique_key, key) != key:
                        raise DuplicateError(index)

    def rekey(self, space: SpaceDefinition) -> None:
        """Store all rows under the keys of another primary index.

        Raises:
            DuplicateError: two rows have the same key.
        """
        rows, index = self.get_rows(space.number), space.indexes[0]
        rekeyed: dict[bytes, bytes] = {}
        for image in rows.rows.values():
            if rekeyed.setdefault(encode_primary_key(index, _decode_row(image)), image) is not image:
                raise DuplicateError(index)
        rows.rows = rekeyed

    def find_range(self, space: SpaceDefinition, begin: Sequence[Any], end: Sequence[Any]) -> list[bytes]:
        """Return the primary keys of the rows from `begin` up to `end` (exclusive)."""
        index, keys = space.indexes[0], []
        for key, image in self.get_rows(space.number).rows.items():
            values = extract_key_values(index.parts, _decode_row(image))
            if values is not None and is_in_range(index, values, begin, end):
                keys.append(key)
        return keys

    def iterate_rows(self, space: int) -> Iterator[list[Any]]:
        """Yield all rows of a space."""
        return map(_decode_row, self.get_rows(space).rows.values())

    def clear(self, space: int) -> None:
        """Remove all rows of a space; not in the rollback log."""
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
        """Roll changes back, the last one first."""
        for number, key, image in reversed(entries):
            if self.is_discarded(number):
                continue
            space = definitions.get(number)
            rows = self.get_rows(number)
            if space is not None and rows.unique is not None:
                before = rows.rows.get(key)
                self._reindex(space, rows, key, before, None if image is None else _decode_row(image))
            self._set_image(number, key, image)


def encode_primary_key(index: IndexDefinition, row: Sequence[Any]) -> bytes:
    """Encode the key of a row in the primary index."""
    return encode_key(extract_key_values(index.parts, row) or [])


def list_secondary_indexes(space: SpaceDefinition) -> Iterator[IndexDefinition]:
    """Yield the secondary unique indexes whose keys can be compared here."""
    return (index for index in space.indexes.values() if index.number and index.unique and not index.unchecked_reason)
