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
from binlogtool.formats.manticore.replay.replay import ManticoreReplayer
from binlogtool.formats.manticore.schema import OldOp, Op, PayloadOp
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

_POLYNOMIAL = 0xEDB88320
_POLYNOMIAL_ONE = 1 << 31
_OP_NUMBERS = {op.name: op.value for op in OldOp} | {op.name: op.value for op in Op}
_COMMIT_NAME, _UPDATE_NAME = PayloadOp.COMMIT.name, PayloadOp.UPDATE_ATTRS.name


class ManticoreEffects(EffectReader):
    """Row changes of all versions (implements `replay_rules.EffectReader`)."""

    def __init__(self) -> None:
        self._replayer: ManticoreReplayer | None = None
        self._seen: set[str] = set()

    def attach_replayer(self, replayer: Any) -> None:
        """Take over the replayer, which knows what tables had saved before the start."""
        self._replayer = replayer if isinstance(replayer, ManticoreReplayer) else None

    def of(self, records: DecodedRecords, index: int) -> Iterable[StateChange]:
        """Return the changes of one transaction. A table without a saved TID is empty before its first one."""
        table = records.envelope.object[index] or ""
        changes = self._decode_changes(table, records, index)
        if table in self._seen or self._replayer is None:
            return changes
        self._seen.add(table)
        table_state = self._replayer.tables.get(table)
        return changes if table_state is None or table_state.saved else (StateChange(table, DROP, b"", b""), *changes)

    def _decode_changes(self, table: str, records: DecodedRecords, i: int) -> Iterable[StateChange]:
        body = records.bodies[i]
        if body is not None and "payload" not in body:
            return ()
        content = _identify_payload(records, i)
        if body is None:
            return (StateChange(table, ADD, b"", encode_canonical(content)),)
        payload = body["payload"]
        kind = body.get("payload_op") or records.envelope.type[i]
        if kind == _COMMIT_NAME:
            return _decode_commit(table, payload, content)
        if kind == _UPDATE_NAME:
            return _decode_update(table, payload, content)
        if isinstance(payload, bytes):  # RECONFIGURE: settings of the table
            return (StateChange(table, PUT, b"settings", payload),)
        return _decode_queries(table, payload if "n_new" in payload or "n_del_ids" in payload else {"new": [payload]})


def apply_patch(image: bytes, operation: bytes) -> bytes | None:
    """Return the image of a document after an update; None if there is no such document, or it cannot be determined."""
    if not image or not operation:
        return None
    try:
        *origin, values = msgspec.msgpack.decode(image)
        new_values = msgspec.msgpack.decode(operation)
    except (msgspec.DecodeError, ValueError):
        return None
    if not isinstance(values, dict) or not isinstance(new_values, dict):
        return None
    for name in new_values:  # a whole JSON document replaces earlier updates of its parts
        for part in [one for one in values if one.startswith(f"{name}.")]:
            del values[part]
    return encode_canonical([*origin, values | new_values])


def _decode_commit(table: str, payload: Mapping[str, Any], content: list[int]) -> Iterator[StateChange]:
    """Yield the changes of a commit: deletions first, then additions; an id is normally in both."""
    segment = payload.get("segment") or {}
    docids = segment.get("docids")
    if payload["rows"] and (docids is None or len(docids) != payload["rows"]):
        yield from (StateChange(table, DELETE, encode_canonical(docid), b"") for docid in payload["killed"])
        yield StateChange(table, ADD, b"", encode_canonical(content))
        return
    added = set(docids or ())
    yield from (
        StateChange(table, DELETE, encode_canonical(docid), b"") for docid in payload["killed"] if docid not in added
    )
    for row, docid in enumerate(docids or ()):
        yield StateChange(table, PUT, encode_canonical(docid), encode_canonical([*content, row, {}]))


def _decode_update(table: str, payload: Mapping[str, Any], content: list[int]) -> Iterator[StateChange]:
    if "documents" not in payload:
        yield StateChange(table, ADD, b"", encode_canonical(content))
        return
    for document in payload["documents"]:
        yield StateChange(table, PATCH, encode_canonical(document["docid"]), encode_canonical(document["values"]))


def _decode_queries(table: str, payload: Mapping[str, Any]) -> Iterator[StateChange]:
    """Yield the changes of stored queries. A deletion by tag is stored unresolved: the log has only the tag's hash."""
    for number in payload.get("del_ids", ()):
        yield StateChange(table, DELETE, encode_canonical(number), b"")
    tags = payload.get("del_tags") or payload.get("tags")
    if tags:
        yield StateChange(table, ADD, b"", encode_canonical(["tags", tags]))
    for query in payload.get("new", ()):
        yield StateChange(table, PUT, encode_canonical(query["id"]), encode_canonical(query))


# -- the payload's own checksum ----------------------------------------------------------------------------------------


def _identify_payload(records: DecodedRecords, i: int) -> list[int]:
    """Return TID, bytes and CRC-32 of the payload: the frame's checksum without what differs from file to file."""
    envelope, body = records.envelope, records.bodies[i] or {}
    checksums = records.checksum
    stored = 0 if checksums is None or checksums[i] is None else checksums[i].stored
    tid, table = envelope.seq[i] or 0, body.get("id")
    if table is None:
        return [tid, records.size[i], stored]
    head = bytes((_OP_NUMBERS[envelope.type[i]],)) + build_zint(table) + build_zint(tid)
    head += body["uSize"].to_bytes(4, "little") if "uSize" in body else build_zint(body["time"])
    size = records.size[i] - 8 - len(head)
    return [tid, size, stored ^ _multiply_polynomials(zlib.crc32(head), _compute_zeros_factor(size))]


@lru_cache(4096)
def _compute_zeros_factor(size: int) -> int:
    """Return the factor by which `size` zero bytes change a CRC-32: x to the power of 8 * size, modulo the
    polynomial.
    """
    result, power = _POLYNOMIAL_ONE, 1 << 23  # 1, and x to the power of 8, the lowest power in the highest bit
    while size > 0:
        if size & 1:
            result = _multiply_polynomials(power, result)
        power = _multiply_polynomials(power, power)
        size >>= 1
    return result


def _multiply_polynomials(left: int, right: int) -> int:
    """Multiply two polynomials modulo that of CRC-32."""
    product = 0
    while right:
        if right & _POLYNOMIAL_ONE:
            product ^= left
        right = right << 1 & 0xFFFFFFFF
        left = left >> 1 ^ _POLYNOMIAL if left & 1 else left >> 1
    return product
