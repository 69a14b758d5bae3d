"""Effects of applied rows: row changes by primary key, as the log's own system spaces define the keys."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import msgspec

from binlogtool.formats.replay_rules import ADD, DELETE, DROP, PATCH, PUT, RENAME, Change, Effects, Records, canonical
from binlogtool.formats.tarantool.codes import LAST_SYSTEM_SPACE
from binlogtool.formats.tarantool.replay import update_ops
from binlogtool.formats.tarantool.spaces.catalog import DEFINITIONS, INDEX, SPACE, TRUNCATE, Catalog, Part
from binlogtool.formats.tarantool.spaces.field_types import comparable

if TYPE_CHECKING:
    from binlogtool.formats.tarantool.replay.replay import TarantoolReplayer

_WRITES = frozenset(("INSERT", "REPLACE", "UPDATE", "UPSERT", "DELETE", "DELETE_RANGE"))
_UPDATE, _UPSERT = 0, 1
_UNKNOWN = (Part(0, exact=False),)
_new = tuple.__new__  # half the cost of a NamedTuple's own constructor
_decode = msgspec.msgpack.Decoder().decode


class TarantoolEffects(Effects):
    """Row changes of a replay. Learns the primary keys from the rows of `_space` and `_index`.

    An object has the name of its space, and keeps its rows when the space is renamed. Rows of a space whose key is
    not
    known are counted as whole rows, and so are the keys that are deleted from it.
    """

    def __init__(self) -> None:
        self._catalog = Catalog()
        self._names: dict[int, str] = {}
        self._plain: dict[int, tuple[str, tuple[int, ...]]] = {}
        self._loaded = False
        self._is_3 = False
        self._deleted: Mapping[tuple[int, int], Sequence[bytes]] = {}
        self._doubts: dict[str, str] = {}

    def follow(self, replayer: TarantoolReplayer) -> None:
        """Take over the server version and the keys that each DELETE_RANGE deletes, which the replayer determines."""
        self._is_3, self._deleted = replayer.version.is_3, replayer.deleted

    def doubts(self) -> Mapping[str, str]:
        """See `replay_rules.Effects`."""
        collated = {
            self._names[one]: "a collation compares its keys" for one in self._catalog.collated & set(self._names)
        }
        return {**collated, **self._doubts}

    @property
    def plain(self) -> Mapping[int, tuple[str, tuple[int, ...]]]:
        """Spaces whose keys are whole fields that compare by their bytes -> object name, key fields."""
        return self._plain

    def of(self, records: Records, i: int) -> Iterable[Change]:
        """Return the changes of one applied row."""
        if records.envelope.type[i] == "DELETE_RANGE":
            return self._range(records, i)
        return self.changes(records.envelope.type[i], records.bodies[i], snapshot=records.envelope.txn[i] is None)

    def changes(self, kind: str, body: Any, *, snapshot: bool) -> Iterable[Change]:
        """Return the changes of a row from its type and body.

        Args:
            snapshot: the row is from a snapshot.
        """
        space = body.get("space_id") if body else None
        if space is None:
            return ()
        plain = self._plain.get(space)
        if plain is not None and (kind == "REPLACE" or kind == "INSERT"):
            row = body.get("tuple")
            try:
                key = canonical([row[n] for n in plain[1]])
            except (IndexError, TypeError):
                key = canonical(row)
            return (_new(Change, (plain[0], PUT, key, canonical(row))),)
        return self._any(space, kind, body, snapshot)

    def _range(self, records: Records, i: int) -> Iterator[Change]:
        """Yield the deletions of a DELETE_RANGE."""
        space = records.bodies[i].get("space_id", 0)
        name = self._names.get(space) or self._names.setdefault(space, self._label(space))
        keys = self._deleted.get((records.envelope.origin[i] or 0, records.envelope.seq[i] or 0))
        if keys is None:
            self._doubts[name] = "which rows a DELETE_RANGE deletes is not known"
        yield from (Change(name, DELETE, key, b"") for key in keys or ())

    def _any(self, space: int, kind: str, body: Mapping[str, Any], snapshot: bool) -> Iterator[Change]:
        """Yield the changes of a row in the general case."""
        if kind not in _WRITES or space in self._catalog.blackhole:
            return
        name = self._names.get(space)
        if name is None:
            name = self._names[space] = self._label(space)
            self._loaded = self._loaded or snapshot
            if space <= LAST_SYSTEM_SPACE and self._loaded:
                yield Change(name, DROP, b"", b"")  # a snapshot contains all rows of a system space
        yield from self._write(space, name, kind, body)
        if space in DEFINITIONS or space == TRUNCATE:
            self._plain.clear()
            yield from self._system(space, kind, body, snapshot=snapshot)
        elif all(part.exact and not part.path for part in self._catalog.keys.get(space) or _UNKNOWN):
            self._plain[space] = name, tuple(part.field for part in self._catalog.keys[space])

    def _write(self, space: int, name: str, kind: str, body: Mapping[str, Any]) -> Iterator[Change]:
        parts = self._catalog.keys.get(space) or None
        row, key = body.get("tuple"), body.get("key")
        if kind in ("INSERT", "REPLACE"):
            yield Change(name, ADD, b"", canonical(row)) if parts is None else self._put(name, parts, row)
        elif parts is None:
            changes = {kind: key if kind == "DELETE" else [key, row, body.get("ops"), body.get("index_base", 0)]}
            yield Change(name, ADD, b"", canonical(changes))
        elif kind == "DELETE":
            yield Change(name, DELETE, _key_bytes(parts, key), b"")
        elif kind == "UPDATE":
            yield Change(name, PATCH, _key_bytes(parts, key), self._patch(space, _UPDATE, None, row, body))
        else:
            yield Change(name, PATCH, _key_of(parts, row), self._patch(space, _UPSERT, row, body.get("ops"), body))

    def _put(self, name: str, parts: tuple[Part, ...], row: Any) -> Change:
        return Change(name, PUT, _key_of(parts, row), canonical(row))

    def _patch(self, space: int, kind: int, row: Any, operations: Any, body: Mapping[str, Any]) -> bytes:
        """Encode the operations for `apply_patch`; with the stored form where they cannot be parsed."""
        known = self._catalog.spaces.get(space)
        base = body.get("index_base", 0)
        keys = [part.field for part in self._catalog.keys.get(space) or ()] if kind == _UPSERT else []
        read = update_ops.read_operations(operations, base, known.fields if known else {})
        return canonical([kind, row, read, operations if read is None else None, base if read is None else None,
                          self._is_3, keys])  # fmt: skip

    def _system(self, space: int, kind: str, body: Mapping[str, Any], *, snapshot: bool) -> Iterator[Change]:
        """Yield the effect of a row of a system space on other spaces."""
        target = _target(body)
        empties = (
            target is not None and target > LAST_SYSTEM_SPACE and self._empties(space, kind, body, target, snapshot)
        )
        before = self._label(target) if target is not None else ""
        if space in DEFINITIONS:
            self._catalog.learn(space, kind, body)
        if target is None:
            return
        if not empties:
            if space == SPACE and target in self._names:
                yield from self._renamed(target)
            return
        if space == SPACE and kind == "DELETE":
            self._names.pop(target, None)
        elif space == SPACE:
            before = self._names[target] = self._label(target)
        yield Change(before, DROP, b"", b"")

    def _renamed(self, space: int) -> Iterator[Change]:
        """Rename the object of a space whose name has changed."""
        before = self._names[space]
        name = self._names[space] = self._called(space)
        if name != before:
            yield Change(before, RENAME, b"", name.encode(errors="surrogatepass"))

    def _empties(self, space: int, kind: str, body: Mapping[str, Any], target: int, snapshot: bool) -> bool:
        """Check that a row creates, drops or truncates a space, or drops its primary index."""
        if space == TRUNCATE:
            return kind != "DELETE" and not snapshot
        if space == SPACE:
            return kind == "DELETE" or (kind in ("INSERT", "REPLACE") and target not in self._catalog.spaces)
        return space == INDEX and kind == "DELETE" and body.get("key") == [target, 0]

    def _label(self, space: int) -> str:
        """Return the object name of a space."""
        known = self._names.get(space)
        return self._called(space) if known is None else known

    def _called(self, space: int) -> str:
        """Return the name of a space, followed by its number where another space has that name."""
        name = self._catalog.name(space)
        taken = any(used == name for other, used in self._names.items() if other != space)
        return f"{name}#{space}" if taken else name


def _target(body: Mapping[str, Any]) -> int | None:
    """Return the space that a row of a system space is about, its first field; None if it has none."""
    row = body.get("tuple") if body.get("key") is None else body["key"]
    return row[0] if isinstance(row, list) and row and type(row[0]) is int else None


# -- keys --------------------------------------------------------------------------------------------------------------


def _key_of(parts: tuple[Part, ...], row: Any) -> bytes:
    """Encode the primary key of a row."""
    if not isinstance(row, list):
        return canonical(row)
    try:
        return canonical([row[p.field] if p.exact and not p.path else _extracted(row, p) for p in parts])
    except IndexError:
        return canonical(row)


def _extracted(row: list[Any], part: Part) -> Any:
    value = row[part.field]
    for step in update_ops.path_tokens(part.path.lstrip(".")) or () if part.path else ():
        if isinstance(step, int) and isinstance(value, list) and step < len(value):
            value = value[step]
        else:
            value = value.get(step if isinstance(step, str) else str(step + 1)) if isinstance(value, dict) else None
    return value if part.exact else comparable(value)


def _key_bytes(parts: tuple[Part, ...], key: Any) -> bytes:
    """Encode the key of a request: the values of its parts."""
    if not isinstance(key, list) or len(key) != len(parts):
        return canonical(key)
    return canonical([value if part.exact else comparable(value) for part, value in zip(parts, key, strict=True)])


# -- operations --------------------------------------------------------------------------------------------------------


def patch(image: bytes, operation: bytes) -> bytes | None:
    """Return the row after an UPDATE or UPSERT (`Replay.patch`), or None; b"" is a row that does not exist."""
    try:
        kind, row, operations, _, _, *rules = _decode(operation)
        is_3, keys = rules or (False, ())
        if not image:
            return canonical(row) if kind == _UPSERT else None
        before = _decode(image)
    except (msgspec.DecodeError, ValueError, TypeError):
        return None
    if operations is None or not isinstance(before, list):
        return None
    named = [(name, path, arguments) for name, path, arguments in operations]
    if kind == _UPDATE:
        after = update_ops.update(before, named, is_3=is_3)
        return None if after is None else canonical(after)
    after = update_ops.upsert(before, named, is_3=is_3)
    if after is None:
        return None
    changed = any(_field(before, key) != _field(after, key) for key in keys)
    return image if changed else canonical(after)  # an UPSERT that changes the key does nothing


def _field(row: list[Any], number: int) -> Any:
    return comparable(row[number]) if number < len(row) else None
