"""Decode transactions: operation, TID, table, time, and the body with the specification's names."""

from __future__ import annotations

import struct
from array import array
from collections.abc import Iterator, Mapping
from types import MappingProxyType
from typing import Any

from construct import Construct, ConstructError

from binlogtool.findings import Finding, Severity, finding
from binlogtool.formats.columns import integers
from binlogtool.formats.described import Described
from binlogtool.formats.layouts import Batch
from binlogtool.formats.manticore import schema
from binlogtool.formats.manticore.layout import LogContext
from binlogtool.formats.manticore.payloads.zint import read_zint
from binlogtool.formats.manticore.schema import OldOp, Op, PayloadOp
from binlogtool.limits import Limits

TYPES: Mapping[int, str] = MappingProxyType(
    {op.value: op.name for op in Op} | {100 + op.value: op.name for op in OldOp if op.name not in Op.__members__}
)
"""Record types: operations of version 15 on by their number, those that only older versions have from 100 on."""

U64 = (1 << 64) - 1


def name_of(context: LogContext, body: bytes) -> tuple[int, bytes]:
    """Parse id and name of a table from the body of an ADD_INDEX."""
    parsed = (schema.ADD_INDEX if context.new else schema.old_body(context.version, OldOp.ADD_INDEX)).parse(body)
    return int(parsed.id), bytes(parsed.name.text)


def text(data: bytes) -> Any:
    """Decode UTF-8 text; return the bytes if it is not UTF-8."""
    try:
        return data.decode()
    except UnicodeDecodeError:
        return data


def describe(context: Any, batch: Batch, start: int, stop: int) -> Described:
    """Describe transactions as envelope columns. A table's name is that of the last ADD_INDEX with its id before it."""
    if not isinstance(context, LogContext):
        return Described([], [], [], [], [], [])
    frames, ops = batch.frames, context.ops
    kinds = integers(frames["op"], start, stop)
    ids = [value & U64 for value in integers(frames["body.id"], start, stop)]
    learn_names(context, batch, stop)
    known = [
        context.names.get(number) if kind != ops.ADD_CACHE else None for kind, number in zip(kinds, ids, strict=True)
    ]
    names = [None if name is None else name.decode("utf-8", "backslashreplace") for name in known]
    carries = [kind != ops.ADD_INDEX and kind != ops.ADD_CACHE for kind in kinds]
    tids = integers(frames["body.tid"], start, stop)
    seq = [tid & U64 if has else None for tid, has in zip(tids, carries, strict=True)]
    none: list[Any] = [None] * len(kinds)
    times = none if context.new else _times(integers(frames["body.time"], start, stop), kinds)
    return Described([ops(kind).name for kind in kinds], seq, times, names, none, none)


def learn_names(context: LogContext, batch: Batch, stop: int) -> None:
    """Learn the names in every ADD_INDEX of the batch before record `stop`, shown or not."""
    start = max(context.described - batch.first_record, 0)
    if start >= stop:
        return
    for index, kind in enumerate(integers(batch.frames["op"], start, stop), start):
        if kind == context.ops.ADD_INDEX:
            number, name = name_of(context, _body(batch, index))
            context.names.setdefault(number, name)
    context.described = batch.first_record + stop


def _times(times: list[int], kinds: list[int]) -> list[int | None]:
    return [None if kind == OldOp.ADD_CACHE else time for time, kind in zip(times, kinds, strict=True)]


def _body(batch: Batch, index: int) -> bytes:
    """Read the bytes after the op."""
    frames = batch.frames
    return bytes(batch.window[frames["covered_start"][index] + 1 : frames["covered_end"][index]])


def bodies(context: Any, batch: Batch, start: int, stop: int, limits: Limits, *, stored: bool = False) -> list[Any]:
    """Decode one body per transaction.

    Args:
        stored: include the stored fields of new documents, as far as the table keeps them.
    """
    return [_decoded(context, batch, index, limits, stored) for index in range(start, stop)]


def _decoded(context: LogContext, batch: Batch, index: int, limits: Limits, stored: bool) -> Any:
    op, data = int(batch.frames["op"][index]), batch.frame_bytes(index)
    if len(data) > limits.max_memory // MEMORY:
        return too_large(batch, index)
    try:
        body = schema.frame(context.version, context.ids).parse(data).body
        if op == context.ops.ADD_CACHE:
            return plain((schema.CACHE if context.new else schema.old_cache(context.version)).parse(body))
        if op == context.ops.ADD_INDEX:
            return plain(body)
        out = {key: plain(value) for key, value in body.items() if key not in _POSITIONS}
        if not context.new:
            return out | {"payload": old_payload(context, OldOp(op), body.payload, stored=stored)}
        payload = exact(schema.PAYLOAD, body.payload)
        return out | {
            "payload_op": PayloadOp(payload.op).name,
            "payload": _meant(PayloadOp(payload.op).name, payload.body, stored),
        }
    except (ConstructError, OverflowError) as error:
        return undecodable(batch, index, _words(error))


MEMORY = 16
"""Memory that a decoded transaction may take for each of its bytes."""


def too_large(batch: Batch, index: int) -> Finding:
    """Report a good transaction that is not decoded because of the memory that it would take."""
    low, high = int(batch.frames["offset"][index]), int(batch.frames["end"][index])
    words = f"{high - low:,} bytes are not decoded; --max-memory raises the ceiling"
    return finding(
        "count-out-of-bounds", batch.base + low, high - low, words, record=batch.first_record + index,
        severity=Severity.NOTE, diagnosis="limit",
    )  # fmt: skip


def old_payload(context: LogContext, op: OldOp, data: bytes, *, stored: bool = False) -> Any:
    """Decode the payload of a transaction of versions 2 to 14.

    Args:
        stored: see `decode_bodies`.
    """
    if op is OldOp.RECONFIGURE:
        return bytes(data)
    payload = exact(schema.old_payload(context.version, op, context.ids), data)
    return _meant(op.name, payload, stored, context.ids)


def _meant(kind: str, payload: Any, stored: bool, ids: int = schema.ID64) -> Any:
    if kind == OldOp.COMMIT.name:
        return _commit(payload, stored, ids)
    return _update(payload) if kind == OldOp.UPDATE_ATTRS.name else plain(payload)


def _words(error: Exception) -> str:
    """Return the last line of construct's message, shortened and without its path prefix."""
    return str(error).replace("Error in path (parsing)", "at").split("\n")[-1][:200] or type(error).__name__


def exact(payload: Construct, data: bytes) -> Any:
    """Parse a payload that must be consumed to the last byte.

    Raises:
        ConstructError: it is no such payload, or bytes are left.
    """
    from construct import StreamError, Struct, Tell

    parsed = Struct("value" / payload, "end" / Tell).parse(data)
    if parsed.end != len(data):
        raise StreamError(f"{len(data) - parsed.end} bytes of the payload are left over")
    return parsed.value


def undecodable(batch: Batch, index: int, why: str) -> Finding:
    """Report a transaction whose checksum is right and whose payload does not fit its op."""
    low, high = int(batch.frames["offset"][index]), int(batch.frames["end"][index])
    return finding(
        "payload-undecodable", batch.base + low, high - low, why, record=batch.first_record + index,
        diagnosis="payload does not parse", server="refuse",
    )  # fmt: skip


_POSITIONS = frozenset({"_io", "payload"})


def plain(value: Any) -> Any:
    """Convert containers and lists of the schema to plain dicts and lists."""
    if isinstance(value, dict):
        if value.keys() - {"_io"} == {"length", "text"}:
            return text(value["text"])
        return {key: plain(item) for key, item in value.items() if key != "_io"}
    if isinstance(value, list | array):
        return [plain(item) for item in value]
    return int(value) if isinstance(value, int) else value


def _commit(payload: Any, stored: bool, ids: int) -> dict[str, Any]:
    out: dict[str, Any] = {"rows": int(payload.rows)}
    if payload.segment is not None:
        out["segment"] = _segment(payload.segment, int(payload.rows), ids)
        store = payload.segment.get("docstore")
        if stored and store is not None:
            out["segment"]["fields"] = [_fields(bytes(each.data)) for each in store.documents]
    return out | {"killed": list(payload.killed)}


def _fields(data: bytes) -> list[bytes]:
    """Split a document into its stored fields, in the order of the table's schema; [] if it is no such list.

    Source: `docs/spec/manticore-binlog.md#62-rt-commit-1-one-segment-of-new-rows--list-of-killed-ids`.
    """
    found, at = list[bytes](), 0
    while at < len(data):
        size, at = read_zint(data, at, len(data))
        if at < 0 or not 0 <= size <= len(data) - at:
            return []
        found.append(data[at : at + size])
        at += size
    return found


def _segment(segment: Any, rows: int, ids: int) -> dict[str, Any]:
    """Decode a segment to sizes and small parts (`docs/spec/manticore-binlog.md#7-inside-an-rt-commit`)."""
    out: dict[str, Any] = {}
    for key, value in segment.items():
        if isinstance(value, bytes):
            out[f"{key}_bytes"] = len(value)
        elif key == "row_data":
            out |= _rows(value, rows, ids)
        elif key == "mva":
            out["mva_words"] = len(value)
        elif key == "docstore" and value is not None:
            out[key] = {"count": int(value.count), "bytes": sum(len(each.data) for each in value.documents)}
        elif key != "_io" and value is not None:
            out[key] = plain(value)
    return out


def _rows(words: array[int], rows: int, ids: int) -> dict[str, Any]:
    """Decode the document ids of rows: dwords 0 and 1 of a row, or dword 0 alone where an id has 4 bytes.

    Source: `docs/spec/manticore-binlog.md#74-rows`.
    """
    stride = len(words) // rows if rows <= len(words) else 0
    out: dict[str, Any] = {"row_words": len(words), "stride": stride}
    if ids == schema.ID32 and stride >= 1 and stride * rows == len(words):
        out["docids"] = list(words[::stride])
    elif stride >= 2 and stride * rows == len(words):
        pairs = (words[at : at + 2] for at in range(0, len(words), stride))
        out["docids"] = [struct.unpack("<q", struct.pack("<2I", *pair))[0] for pair in pairs]
    return out


SCALARS = {1: "integer", 2: "timestamp", 4: "bool", 5: "float", 6: "bigint", 7: "string"}
VECTORS = {0x40000001: "mva32", 0x40000002: "mva64", 15: "float_vector", 16: "float_vector_array"}
"""Types of attributes (section 6.1), in the order of their numbers."""
_UNTOLD = object()


def _update(payload: Any) -> dict[str, Any]:
    out = {key: plain(value) for key, value in payload.items() if key != "_io"}
    for attribute in out["attributes"]:
        kind = attribute["type"]
        attribute["type_name"] = SCALARS.get(kind) or VECTORS.get(kind) or str(kind)
    documents = list(_documents(payload))
    if all(document is not None for document in documents):
        out["documents"] = documents
    return out


def _documents(payload: Any) -> Iterator[dict[str, Any] | None]:
    """Yield the new values of each document; None where the pool does not hold what the attributes need.

    Source: `docs/spec/manticore-binlog.md#61-update-attributes-0`.
    """
    offsets = payload.row_offsets or array("I", bytes(4 * len(payload.docids)))
    if len(offsets) != len(payload.docids):
        yield None
        return
    for docid, at in zip(payload.docids, offsets, strict=True):
        values = {}
        for attribute in payload.attributes:
            value, at = _value(int(attribute.type), payload.pool, at, payload.get("blobs", b""))
            if value is _UNTOLD:
                yield None
                return
            values[attribute.name.text.decode("utf-8", "backslashreplace")] = value
        yield {"docid": docid, "values": values}


def _value(kind: int, pool: array[int], at: int, blobs: bytes) -> tuple[Any, int]:
    if kind in VECTORS:
        if at >= len(pool) or pool[at] > len(pool) - at - 1:
            return _UNTOLD, at
        stop = at + 1 + pool[at]
        return _vector(kind, pool[at + 1 : stop]), stop
    width = 2 if kind in (6, 7) else 1
    if kind not in SCALARS or at + width > len(pool):
        return _UNTOLD, at
    words = pool[at : at + width]
    if kind == 7:
        start, length = words
        return (text(blobs[start : start + length]) if start + length <= len(blobs) else _UNTOLD), at + 2
    layouts = {5: ("<I", "<f"), 6: ("<2I", "<q")}
    if kind not in layouts:
        return words[0], at + 1
    packed, meant = layouts[kind]
    return struct.unpack(meant, struct.pack(packed, *words))[0], at + width


def _vector(kind: int, words: array[int]) -> list[Any]:
    data = struct.pack(f"<{len(words)}I", *words)
    if kind in (15, 16):
        return list(struct.unpack(f"<{len(words)}f", data))
    return list(struct.unpack(f"<{len(words) // 2}q", data[: len(words) // 2 * 8]))
