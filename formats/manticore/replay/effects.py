"""Effects of applied transactions: changes of documents and stored queries, by id.

A commit holds rows in a form that only the table's schema explains; so the image of a document is not its values but
what identifies them: the checksum of the payload that added it, its place in there, and later updates.
"""

from __future__ import annotations

import zlib
from collections.abc import Iterable, Iterator, Mapping
from functools import lru_cache
from typing import Any

import msgspec

from binlogtool.formats.manticore.payloads.zint import build_zint
from binlogtool.formats.manticore.replay.replay import TableReplay
from binlogtool.formats.manticore.schema import OldOp, Op, PayloadOp
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

_POLYNOMIAL = 0xEDB88320
_ONE = 1 << 31
_OPS = {op.name: op.value for op in OldOp} | {op.name: op.value for op in Op}
_COMMIT, _UPDATE = PayloadOp.COMMIT.name, PayloadOp.UPDATE_ATTRS.name


class TableEffects(Effects):
    """Row changes of all versions (implements `replay_rules.Effects`)."""

    def __init__(self) -> None:
        self._replayer: TableReplay | None = None
        self._seen: set[str] = set()

    def follow(self, replayer: Any) -> None:
        """Take over the replayer, which knows what tables had saved before the start."""
        self._replayer = replayer if isinstance(replayer, TableReplay) else None

    def of(self, records: Records, i: int) -> Iterable[Change]:
        """Return the changes of one transaction. A table without a saved TID is empty before its first one."""
        table = records.envelope.object[i] or ""
        changes = self._changes(table, records, i)
        if table in self._seen or self._replayer is None:
            return changes
        self._seen.add(table)
        known = self._replayer.tables.get(table)
        return changes if known is None or known.saved else (Change(table, DROP, b"", b""), *changes)

    def _changes(self, table: str, records: Records, i: int) -> Iterable[Change]:
        body = records.bodies[i]
        if body is not None and "payload" not in body:
            return ()
        content = _content(records, i)
        if body is None:
            return (Change(table, ADD, b"", canonical(content)),)
        payload = body["payload"]
        kind = body.get("payload_op") or records.envelope.type[i]
        if kind == _COMMIT:
            return _commit(table, payload, content)
        if kind == _UPDATE:
            return _update(table, payload, content)
        if isinstance(payload, bytes):  # RECONFIGURE: settings of the table
            return (Change(table, PUT, b"settings", payload),)
        return _queries(table, payload if "n_new" in payload or "n_del_ids" in payload else {"new": [payload]})


def patch(image: bytes, operation: bytes) -> bytes | None:
    """Return the image of a document after an update; None if there is no such document, or it cannot be determined."""
    if not image or not operation:
        return None
    try:
        *origin, values = msgspec.msgpack.decode(image)
        changed = msgspec.msgpack.decode(operation)
    except (msgspec.DecodeError, ValueError):
        return None
    if not isinstance(values, dict) or not isinstance(changed, dict):
        return None
    for name in changed:  # a whole JSON document replaces earlier updates of its parts
        for part in [one for one in values if one.startswith(f"{name}.")]:
            del values[part]
    return canonical([*origin, values | changed])


def _commit(table: str, payload: Mapping[str, Any], content: list[int]) -> Iterator[Change]:
    """Yield the changes of a commit: deletions first, then additions; an id is normally in both."""
    segment = payload.get("segment") or {}
    docids = segment.get("docids")
    if payload["rows"] and (docids is None or len(docids) != payload["rows"]):
        yield from (Change(table, DELETE, canonical(docid), b"") for docid in payload["killed"])
        yield Change(table, ADD, b"", canonical(content))
        return
    added = set(docids or ())
    yield from (Change(table, DELETE, canonical(docid), b"") for docid in payload["killed"] if docid not in added)
    for row, docid in enumerate(docids or ()):
        yield Change(table, PUT, canonical(docid), canonical([*content, row, {}]))


def _update(table: str, payload: Mapping[str, Any], content: list[int]) -> Iterator[Change]:
    if "documents" not in payload:
        yield Change(table, ADD, b"", canonical(content))
        return
    for document in payload["documents"]:
        yield Change(table, PATCH, canonical(document["docid"]), canonical(document["values"]))


def _queries(table: str, payload: Mapping[str, Any]) -> Iterator[Change]:
    """Yield the changes of stored queries. A deletion by tag is stored unresolved: the log has only the tag's hash."""
    for number in payload.get("del_ids", ()):
        yield Change(table, DELETE, canonical(number), b"")
    tags = payload.get("del_tags") or payload.get("tags")
    if tags:
        yield Change(table, ADD, b"", canonical(["tags", tags]))
    for query in payload.get("new", ()):
        yield Change(table, PUT, canonical(query["id"]), canonical(query))


# -- the payload's own checksum ----------------------------------------------------------------------------------------


def _content(records: Records, i: int) -> list[int]:
    """Return TID, bytes and CRC-32 of the payload: the frame's checksum without what differs from file to file."""
    e, body = records.envelope, records.bodies[i] or {}
    checked = records.checksum
    stored = 0 if checked is None or checked[i] is None else checked[i].stored
    tid, table = e.seq[i] or 0, body.get("id")
    if table is None:
        return [tid, records.size[i], stored]
    head = bytes((_OPS[e.type[i]],)) + build_zint(table) + build_zint(tid)
    head += body["uSize"].to_bytes(4, "little") if "uSize" in body else build_zint(body["time"])
    size = records.size[i] - 8 - len(head)
    return [tid, size, stored ^ _times(zlib.crc32(head), _zeros(size))]


@lru_cache(4096)
def _zeros(size: int) -> int:
    """Return the factor by which `size` zero bytes change a CRC-32: x to the power of 8 * size, modulo the
    polynomial.
    """
    result, power = _ONE, 1 << 23  # 1, and x to the power of 8, the lowest power in the highest bit
    while size > 0:
        if size & 1:
            result = _times(power, result)
        power = _times(power, power)
        size >>= 1
    return result


def _times(one: int, other: int) -> int:
    """Multiply two polynomials modulo that of CRC-32."""
    product = 0
    while other:
        if other & _ONE:
            product ^= one
        other = other << 1 & 0xFFFFFFFF
        one = one >> 1 ^ _POLYNOMIAL if one & 1 else one >> 1
    return product
