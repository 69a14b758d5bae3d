"""Decode transactions: operation, TID, table, time and body; split points between them."""

from __future__ import annotations

import struct
from array import array
from collections.abc import Iterable, Iterator, Mapping, Sequence
from types import MappingProxyType
from typing import Any

import msgspec
from construct import Construct, ConstructError
from msgspec.structs import replace

from binlogtool.findings import Finding, Severity, make_finding
from binlogtool.format_api.format import BodyWithFindings, EnvelopeColumns, RecordText, RowChanges, select_members
from binlogtool.format_api.layout import (
    Batch,
    EveryFrameSplitFinder,
    KernelCompiler,
    LogFileLayout,
    SplitPoint,
    make_split_point,
    to_int_list,
)
from binlogtool.format_api.schema_fields import decode_text
from binlogtool.format_api.tables_and_changes import (
    RecordTableRows,
    TableColumn,
    TableReader,
    TableRow,
    TableSchema,
)
from binlogtool.formats.manticore import schema
from binlogtool.formats.manticore.detect_layout import ManticoreLogContext
from binlogtool.formats.manticore.field_types import read_zint
from binlogtool.formats.manticore.schema import OldOp, Op, PayloadOp
from binlogtool.limits import Limits

# --- Decoded transactions ---

TYPE_NAMES: Mapping[int, str] = MappingProxyType(
    {op.value: op.name for op in Op} | {100 + op.value: op.name for op in OldOp if op.name not in Op.__members__}
)
"""Record types: operations of version 15 and later by number; those that only older versions have from 100 on."""

U64 = (1 << 64) - 1


def parse_table_name(context: ManticoreLogContext, body: bytes) -> tuple[int, bytes]:
    """Parse id and name of a table from the body of an ADD_INDEX."""
    parsed = (
        schema.ADD_INDEX if context.has_new_frames else schema.create_old_body_schema(context.version, OldOp.ADD_INDEX)
    ).parse(body)
    return int(parsed.id), bytes(parsed.name.text)


def describe_records(context: Any, batch: Batch, start: int, stop: int) -> EnvelopeColumns:
    """Describe transactions as envelope columns. A table is named by the last ADD_INDEX with its id before."""
    if not isinstance(context, ManticoreLogContext):
        return EnvelopeColumns([], [], [], [], [], [])
    frames, ops = batch.frames, context.ops
    kinds = to_int_list(frames["op"], start, stop)
    ids = [value & U64 for value in to_int_list(frames["body.id"], start, stop)]
    learn_table_names(context, batch, stop)
    raw_names = [
        context.names.get(number) if kind != ops.ADD_CACHE else None for kind, number in zip(kinds, ids, strict=True)
    ]
    names = [None if name is None else name.decode("utf-8", "backslashreplace") for name in raw_names]
    has_tid = [kind != ops.ADD_INDEX and kind != ops.ADD_CACHE for kind in kinds]
    tids = to_int_list(frames["body.tid"], start, stop)
    seq = [tid & U64 if has else None for tid, has in zip(tids, has_tid, strict=True)]
    no_values: list[Any] = [None] * len(kinds)
    times = no_values if context.has_new_frames else _select_times(to_int_list(frames["body.time"], start, stop), kinds)
    return EnvelopeColumns([ops(kind).name for kind in kinds], seq, times, names, no_values, no_values)


def learn_table_names(context: ManticoreLogContext, batch: Batch, stop: int) -> None:
    """Store the names in every ADD_INDEX of the batch before record `stop`, shown or not."""
    start = max(context.described - batch.first_record, 0)
    if start >= stop:
        return
    for index, kind in enumerate(to_int_list(batch.frames["op"], start, stop), start):
        if kind == context.ops.ADD_INDEX:
            number, name = parse_table_name(context, _read_body_bytes(batch, index))
            context.names.setdefault(number, name)
    context.described = batch.first_record + stop


def _select_times(times: list[int], kinds: list[int]) -> list[int | None]:
    return [None if kind == OldOp.ADD_CACHE else time for time, kind in zip(times, kinds, strict=True)]


def _read_body_bytes(batch: Batch, index: int) -> bytes:
    """Return the bytes after the op."""
    frames = batch.frames
    return bytes(batch.window[frames["covered_start"][index] + 1 : frames["covered_end"][index]])


def decode_bodies(
    context: Any, batch: Batch, start: int, stop: int, limits: Limits, *, stored: bool = False
) -> list[Any]:
    """Decode one body per transaction.

    Args:
        stored: include the stored fields of new documents, if the table stores fields.
    """
    return [_decode_body(context, batch, index, limits, stored) for index in range(start, stop)]


def _decode_body(context: ManticoreLogContext, batch: Batch, index: int, limits: Limits, stored: bool) -> Any:
    op, data = int(batch.frames["op"][index]), batch.frame_bytes(index)
    if len(data) > limits.max_memory // MEMORY_FACTOR:
        return report_too_large(batch, index)
    try:
        body = schema.get_frame_schema(context.version, context.id_size).parse(data).body
        if op == context.ops.ADD_CACHE:
            return to_plain(
                (schema.CACHE if context.has_new_frames else schema.create_old_cache_schema(context.version)).parse(
                    body
                )
            )
        if op == context.ops.ADD_INDEX:
            return to_plain(body)
        result = {key: to_plain(value) for key, value in body.items() if key not in _HIDDEN_KEYS}
        if not context.has_new_frames:
            return result | {"payload": decode_old_payload(context, OldOp(op), body.payload, stored=stored)}
        payload = parse_exactly(schema.PAYLOAD, body.payload)
        return result | {
            "payload_op": PayloadOp(payload.op).name,
            "payload": _decode_payload(PayloadOp(payload.op).name, payload.body, stored),
        }
    except (ConstructError, OverflowError) as error:
        return report_undecodable(batch, index, _format_error(error))


MEMORY_FACTOR = 16
"""Bytes of memory that a decoded transaction may use for each of its own bytes."""


def report_too_large(batch: Batch, index: int) -> Finding:
    """Report a valid transaction that is not decoded because of the memory that it would need."""
    low, high = int(batch.frames["offset"][index]), int(batch.frames["end"][index])
    message = f"{high - low:,} bytes are not decoded; raise --max-memory"
    return make_finding(
        "count-out-of-bounds", batch.base + low, high - low, message, record=batch.first_record + index,
        severity=Severity.NOTE, diagnosis="limit",
    )  # fmt: skip


def decode_old_payload(context: ManticoreLogContext, op: OldOp, data: bytes, *, stored: bool = False) -> Any:
    """Decode the payload of a transaction of versions 2 to 14. stored: see `decode_bodies`."""
    if op is OldOp.RECONFIGURE:
        return bytes(data)
    payload = parse_exactly(schema.create_old_payload_schema(context.version, op, context.id_size), data)
    return _decode_payload(op.name, payload, stored, context.id_size)


def _decode_payload(kind: str, payload: Any, stored: bool, id_size: int = schema.ID64_SIZE) -> Any:
    if kind == OldOp.COMMIT.name:
        return _decode_commit(payload, stored, id_size)
    return _decode_update(payload) if kind == OldOp.UPDATE_ATTRS.name else to_plain(payload)


def _format_error(error: Exception) -> str:
    """Return the last line of construct's message, shortened and without its path prefix."""
    return str(error).replace("Error in path (parsing)", "at").split("\n")[-1][:200] or type(error).__name__


def parse_exactly(payload: Construct, data: bytes) -> Any:
    """Parse a payload that must be consumed to the last byte.

    Raises:
        ConstructError: the payload is malformed, or bytes are left over.
    """
    from construct import StreamError, Struct, Tell

    parsed = Struct("value" / payload, "end" / Tell).parse(data)
    if parsed.end != len(data):
        raise StreamError(f"{len(data) - parsed.end} bytes of the payload are left over")
    return parsed.value


def report_undecodable(batch: Batch, index: int, reason: str) -> Finding:
    """Report a transaction with a right checksum whose payload does not fit its op."""
    low, high = int(batch.frames["offset"][index]), int(batch.frames["end"][index])
    return make_finding(
        "payload-undecodable", batch.base + low, high - low, reason, record=batch.first_record + index,
        diagnosis="payload does not parse", server="refuse",
    )  # fmt: skip


_HIDDEN_KEYS = frozenset({"_io", "payload"})


def to_plain(value: Any) -> Any:
    """Convert containers and lists of the schema to plain dicts and lists."""
    if isinstance(value, dict):
        if value.keys() - {"_io"} == {"length", "text"}:
            return decode_text(value["text"])
        return {key: to_plain(item) for key, item in value.items() if key != "_io"}
    if isinstance(value, list | array):
        return [to_plain(item) for item in value]
    return int(value) if isinstance(value, int) else value


def _decode_commit(payload: Any, stored: bool, id_size: int) -> dict[str, Any]:
    result: dict[str, Any] = {"rows": int(payload.rows)}
    if payload.segment is not None:
        result["segment"] = _decode_segment(payload.segment, int(payload.rows), id_size)
        store = payload.segment.get("docstore")
        if stored and store is not None:
            result["segment"]["fields"] = [_split_stored_fields(bytes(each.data)) for each in store.documents]
    return result | {"killed": list(payload.killed)}


def _split_stored_fields(data: bytes) -> list[bytes]:
    """Split a document into its stored fields, in the order of the table's schema; [] if the bytes are not such a list.

    Source: `docs/spec/manticore.md#rt-commit`.
    """
    fields, position = list[bytes](), 0
    while position < len(data):
        size, position = read_zint(data, position, len(data))
        if position < 0 or not 0 <= size <= len(data) - position:
            return []
        fields.append(data[position : position + size])
        position += size
    return fields


def _decode_segment(segment: Any, rows: int, id_size: int) -> dict[str, Any]:
    """Decode a segment to sizes and small parts (`docs/spec/manticore.md#inside-an-rt-commit`)."""
    result: dict[str, Any] = {}
    for key, value in segment.items():
        if isinstance(value, bytes):
            result[f"{key}_bytes"] = len(value)
        elif key == "row_data":
            result |= _decode_rows(value, rows, id_size)
        elif key == "mva":
            result["mva_words"] = len(value)
        elif key == "docstore" and value is not None:
            result[key] = {"count": int(value.count), "bytes": sum(len(each.data) for each in value.documents)}
        elif key != "_io" and value is not None:
            result[key] = to_plain(value)
    return result


def _decode_rows(words: array[int], rows: int, id_size: int) -> dict[str, Any]:
    """Decode the document ids of rows: dwords 0 and 1 of a row, or dword 0 alone if an id has 4 bytes.

    Source: `docs/spec/manticore.md#rows`.
    """
    stride = len(words) // rows if rows <= len(words) else 0
    result: dict[str, Any] = {"row_words": len(words), "stride": stride}
    if id_size == schema.ID32_SIZE and stride >= 1 and stride * rows == len(words):
        result["docids"] = list(words[::stride])
    elif stride >= 2 and stride * rows == len(words):
        pairs = (words[at : at + 2] for at in range(0, len(words), stride))
        result["docids"] = [struct.unpack("<q", struct.pack("<2I", *pair))[0] for pair in pairs]
    return result


SCALAR_TYPES = {1: "integer", 2: "timestamp", 4: "bool", 5: "float", 6: "bigint", 7: "string"}
VECTOR_TYPES = {0x40000001: "mva32", 0x40000002: "mva64", 15: "float_vector", 16: "float_vector_array"}
"""Attribute types (docs/spec/manticore.md#update-of-attributes), in the order of their numbers."""
_MISSING = object()


def _decode_update(payload: Any) -> dict[str, Any]:
    result = {key: to_plain(value) for key, value in payload.items() if key != "_io"}
    for attribute in result["attributes"]:
        kind = attribute["type"]
        attribute["type_name"] = SCALAR_TYPES.get(kind) or VECTOR_TYPES.get(kind) or str(kind)
    documents = list(_decode_documents(payload))
    if all(document is not None for document in documents):
        result["documents"] = documents
    return result


def _decode_documents(payload: Any) -> Iterator[dict[str, Any] | None]:
    """Yield the new values of each document; None if the pool lacks bytes that the attributes need.

    Source: `docs/spec/manticore.md#update-of-attributes`.
    """
    offsets = payload.row_offsets or array("I", bytes(4 * len(payload.docids)))
    if len(offsets) != len(payload.docids):
        yield None
        return
    for docid, position in zip(payload.docids, offsets, strict=True):
        values = {}
        for attribute in payload.attributes:
            value, position = _decode_value(int(attribute.type), payload.pool, position, payload.get("blobs", b""))
            if value is _MISSING:
                yield None
                return
            values[attribute.name.text.decode("utf-8", "backslashreplace")] = value
        yield {"docid": docid, "values": values}


def _decode_value(kind: int, pool: array[int], position: int, blobs: bytes) -> tuple[Any, int]:
    if kind in VECTOR_TYPES:
        if position >= len(pool) or pool[position] > len(pool) - position - 1:
            return _MISSING, position
        stop = position + 1 + pool[position]
        return _decode_vector(kind, pool[position + 1 : stop]), stop
    width = 2 if kind in (6, 7) else 1
    if kind not in SCALAR_TYPES or position + width > len(pool):
        return _MISSING, position
    words = pool[position : position + width]
    if kind == 7:
        start, length = words
        return (decode_text(blobs[start : start + length]) if start + length <= len(blobs) else _MISSING), position + 2
    layouts = {5: ("<I", "<f"), 6: ("<2I", "<q")}
    if kind not in layouts:
        return words[0], position + 1
    source, target = layouts[kind]
    return struct.unpack(target, struct.pack(source, *words))[0], position + width


def _decode_vector(kind: int, words: array[int]) -> list[Any]:
    data = struct.pack(f"<{len(words)}I", *words)
    if kind in (15, 16):
        return list(struct.unpack(f"<{len(words)}f", data))
    return list(struct.unpack(f"<{len(words) // 2}q", data[: len(words) // 2 * 8]))


# --- Split points ---


def make_split_point_finder(layout: LogFileLayout) -> TransactionSplitPoints | None:
    """Create the split-point finder of a log file; None for a meta file."""
    context = layout.context
    return (
        TransactionSplitPoints(layout, context)
        if layout.readable and isinstance(context, ManticoreLogContext)
        else None
    )


class TransactionSplitPoints(EveryFrameSplitFinder):
    """Split points of one file: every border between transactions (implements `format_api.layout.SplitFinder`)."""

    context: ManticoreLogContext

    def find_split_point(self, batch: Batch, compile_kernel: KernelCompiler) -> SplitPoint | None:
        """Return the border after the last transaction of a batch; learn the table names in it."""
        learn_table_names(self.context, batch, batch.frames.count)
        return make_split_point(batch, batch.frames.count)

    def export_state(self) -> dict[str, str]:
        """Return the table names, in hexadecimal, by table id (as text)."""
        return {str(number): name.hex() for number, name in self.context.names.items()}

    def resume(self, state: Any, record: int) -> None:
        """Restore the table names that were known at the border."""
        self.context.names.update({int(number): bytes.fromhex(name) for number, name in state.items()})
        self.context.described = record


# --- Text for people ---

_HIDDEN = frozenset({"id", "tid", "time", "name", "uSize", "payload", "payload_op", "count"})
_SHOWN_ELSEWHERE = frozenset({"killed", "documents", "new", "del_ids", "del_tags", "query"})
_QUERY_MEMBERS = ("id", "query", "tags", "filters", "tree")


def _name_documents(numbers: Sequence[Any]) -> dict[str, Any]:
    return {"document": numbers[0]} if len(numbers) == 1 else {"documents": numbers}


def make_record_text(_type_name: str, body: Mapping[str, Any], everything: bool) -> RecordText:
    """Return the content of a transaction as `dump` shows it to people."""
    payload = body.get("payload")
    members = select_members(body, frozenset({"payload"}) if everything else _HIDDEN)
    if not isinstance(payload, Mapping):
        return RecordText(members)
    if everything:
        members |= select_members(payload, _SHOWN_ELSEWHERE)
    note = body.get("payload_op", "")
    rows: list[dict[str, Any]] = []
    segment = payload.get("segment")
    documents = segment.get("docids", ()) if isinstance(segment, Mapping) else ()
    removed = [one for one in payload.get("killed", ()) if one not in set(documents)]
    for side, numbers in (("after", documents), ("key", removed)):
        rows += [{side: _name_documents(numbers), "count": len(numbers)}] if numbers else []
    for document in payload.get("documents", ()):
        rows.append({"key": {"document": document.get("docid")}, "after": document.get("values")})
    queries = payload.get("new", (payload,) if "query" in payload else ())
    rows += [{"after": {name: query[name] for name in _QUERY_MEMBERS if query.get(name)}} for query in queries]
    rows += [{"key": {"id": one}} for one in payload.get("del_ids", ())]
    rows += [{"key": {"tags": one}} for one in payload.get("del_tags", ())]
    return RecordText(members, note if isinstance(note, str) else "", (RowChanges(rows),) if rows else ())


# --- Table rows ---

ID_COLUMN = "id"
_MAX_FIELDS = 256
"""Maximum number of fields of a table."""
_COLUMN_TYPES = {"integer": "bigint", "timestamp": "bigint", "bool": "bigint", "bigint": "bigint", "float": "float"}
"""Column types of attributes; all others are text, and lists are JSON."""


class DocumentTables(msgspec.Struct, TableReader):
    """Table reader over the transactions of a log. tables: tables by name, with all attributes seen so far."""

    tables: dict[str, TableSchema] = msgspec.field(default_factory=dict)

    def read_records(
        self, context: Any, batch: Batch, start: int, stop: int, limits: Limits
    ) -> Iterator[RecordTableRows]:
        """Yield the rows of each of these records; to be consumed in order."""
        names = describe_records(context, batch, start, stop).object
        for name, body in zip(names, decode_bodies(context, batch, start, stop, limits, stored=True), strict=True):
            if isinstance(body, Finding):
                yield RecordTableRows(findings=(body,))
                continue
            body, findings = body if isinstance(body, BodyWithFindings) else (body, ())
            rows = list(self._decode_rows(name, body)) if name is not None and "payload" in body else []
            yield RecordTableRows(rows, findings, () if name is None else (self._get_table(name),), ends=bool(rows))

    def _get_table(self, name: str, attributes: Iterable[Mapping[str, Any]] = ()) -> TableSchema:
        """Return a table, extended by attributes that it does not have yet."""
        table = self.tables.get(name) or TableSchema(
            name, (TableColumn(ID_COLUMN, "bigint"),), (ID_COLUMN,), is_partial=True
        )
        present_names = {column.name for column in table.columns}
        new_columns = {
            one["name"]: TableColumn(one["name"], _COLUMN_TYPES.get(one["type_name"], "string"))
            for one in attributes
            if isinstance(one.get("name"), str) and one["name"] not in present_names
        }
        if new_columns or name not in self.tables:
            table = self.tables[name] = replace(table, columns=(*table.columns, *new_columns.values()))
        return table

    def _decode_rows(self, name: str, body: Mapping[str, Any]) -> Iterator[TableRow]:
        payload = body["payload"]
        kind = str(body.get("payload_op", ""))
        if not isinstance(payload, Mapping):
            return
        if "documents" in payload:
            table = self._get_table(name, payload["attributes"])
            for item in payload["documents"]:
                yield TableRow(table, "UPDATE", None, {ID_COLUMN: item["docid"], **item["values"]})
            return
        segment = payload.get("segment") or {}
        if "killed" not in payload or (payload.get("rows") and "docids" not in segment):
            yield TableRow(self._get_table(name), kind, None, None, operations=payload)
            return
        ids, fields = segment.get("docids", ()), segment.get("fields", ())
        documents = dict(zip(ids, fields, strict=True)) if len(ids) == len(fields) else {}
        names = [f"@{n}" for n in range(1, 1 + min(max(map(len, documents.values()), default=0), _MAX_FIELDS))]
        table = self._get_table(name, [{"name": one, "type_name": "string"} for one in names])
        added = {one: dict(zip(names, map(decode_text, documents.get(one, ())), strict=False)) for one in ids}
        yield from self._create_commit_rows(table, added, payload["killed"])

    @staticmethod
    def _create_commit_rows(
        table: TableSchema, added: Mapping[int, Mapping[str, Any]], killed: Iterable[int]
    ) -> Iterator[TableRow]:
        """Yield the rows of a commit. A document that is deleted and added in one transaction is replaced."""
        deleted = dict.fromkeys(killed)
        for docid in deleted:
            if docid not in added:
                yield TableRow(table, "DELETE", {ID_COLUMN: docid}, None)
        for docid, fields in added.items():
            yield TableRow(table, "REPLACE" if docid in deleted else "INSERT", None, {ID_COLUMN: docid, **fields})
