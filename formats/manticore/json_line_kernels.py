"""Write transactions as JSON lines, in compiled kernels.

The schemas have already measured the bytes. Negative positions that are returned: -1 = not enough room, -2 = left to
the general writer.
"""

from __future__ import annotations

from array import array
from collections.abc import Callable, Iterator, Mapping
from functools import cache
from typing import NamedTuple

from construct import Construct, Enum, Int8ul, Struct, Terminated

from binlogtool.format_api.format import JsonBodies, JsonLine, JsonMember
from binlogtool.format_api.json_text_kernels import (
    build_text_table,
    widen_float_bits_to_double,
    write_json_bytes,
    write_json_double,
    write_json_null,
    write_json_signed,
    write_json_string,
    write_json_text_or_bytes,
    write_json_time,
    write_json_unsigned,
    write_null_member,
    write_text_member,
    write_text_of_number,
    write_text_of_table,
)
from binlogtool.format_api.layout import Batch, Column, Kernel, to_int_list
from binlogtool.format_api.schema_fields import (
    BodySchema,
    HiddenField,
    Int64s,
    MutableInt64s,
    MutableUInt8s,
    UInt8s,
    are_bytes_equal,
    kernel,
    load_int64,
    load_uint32,
)
from binlogtool.formats.manticore import schema
from binlogtool.formats.manticore.decode import (
    MEMORY_FACTOR,
    SCALAR_TYPES,
    VECTOR_TYPES,
    VERIFIED_VERSIONS,
    ManticoreLogContext,
    store_table_names,
)
from binlogtool.formats.manticore.payload_kernels import LAST_LOW_VERSION, read_zint, skip_text
from binlogtool.formats.manticore.schema import (
    NEW_FRAME_VERSION,
    OldOp,
    Op,
    PayloadOp,
    create_v2_to_v14_body_schema,
    load_add_txn,
)

# --- Kernels that write parts of payloads as JSON ---

WORDS, STRIDE, IDS, COUNT, BYTES, TYPE, NAME, BLOBS, OFFSETS, DOCUMENTS, DOCID, VALUES = range(32, 44)
INTEGER, TIMESTAMP, BOOL, FLOAT, BIGINT, STRING = SCALAR_TYPES
FIRST_VECTOR, LAST_VECTOR, MVA = 15, 16, 0x40000000
"""Numbers of vector types: from the first to the last one, and the two numbers above `MVA`."""

MVA_TEXT_OFFSET = 20
"""Index, in the table of texts, of the names of the types above `MVA`."""

MAX_ATTRIBUTES = 64
"""Maximum number of attributes of an update that these kernels handle."""

words = build_text_table(
    {
        WORDS: b'"row_words":', STRIDE: b',"stride":', IDS: b',"docids":', COUNT: b'{"count":', BYTES: b',"bytes":',
        TYPE: b'"type":', NAME: b',"type_name":"', BLOBS: b'"blobs":', OFFSETS: b'"row_offsets":',
        DOCUMENTS: b',"documents":[', DOCID: b'{"docid":', VALUES: b',"values":{',
    }
    | {kind if kind < MVA else kind - MVA + MVA_TEXT_OFFSET: name.encode() for kind, name in {**SCALAR_TYPES,
    **VECTOR_TYPES}.items()}
)  # fmt: skip
"""Texts for these kernels, and the names of attribute types."""


@kernel(write_json_signed, write_json_unsigned, load_uint32, load_int64)
def write_json_integer_list(
    buf: UInt8s, pos: int, count: int, element_size: int, step: int, out: MutableUInt8s, out_pos: int, out_limit: int
) -> int:
    """Write `count` unsigned dwords (size 4) or signed qwords (size 8) as a list, one element every `step` bytes."""
    if out_limit - out_pos < 2 or count > (out_limit - out_pos) // 25:
        return -1
    out[out_pos] = 91
    out_pos += 1
    for i in range(count):
        at = pos + step * i
        out_pos = (
            write_json_unsigned(load_uint32(buf, at), out, out_pos, out_limit)
            if element_size == 4
            else write_json_signed(load_int64(buf, at), out, out_pos, out_limit)
        )
        if out_pos < 0:
            return out_pos
        out[out_pos] = 44
        out_pos += 1
    if count > 0:
        out_pos -= 1
    out[out_pos] = 93
    return out_pos + 1


@kernel(write_json_integer_list, read_zint)
def write_json_vector(
    buf: UInt8s, pos: int, limit: int, width: int, out: MutableUInt8s, out_pos: int, out_limit: int
) -> int:
    """Write a vec(width) as a list."""
    count, pos = read_zint(buf, pos, limit)
    return write_json_integer_list(buf, pos, count, width, width, out, out_pos, out_limit)


# -- commits -----------------------------------------------------------------------------------------------------------


@kernel(write_json_integer_list, write_text_of_table, write_json_unsigned, read_zint)
def write_json_row_document_ids(
    buf: UInt8s,
    pos: int,
    limit: int,
    text_table: UInt8s,
    row_count: int,
    out: MutableUInt8s,
    out_pos: int,
    out_limit: int,
) -> int:
    """Write sizes and document ids of rows, stored as a vec(4); dwords 0 and 1 of a row are its document id."""
    count, pos = read_zint(buf, pos, limit)
    stride = count // row_count if row_count > 0 else 0
    if out_limit - out_pos < 128:
        return -1
    out_pos = write_json_unsigned(
        count, out, write_text_of_table(text_table, WORDS, out, out_pos, out_limit), out_limit
    )
    out_pos = write_json_unsigned(
        stride, out, write_text_of_table(text_table, STRIDE, out, out_pos, out_limit), out_limit
    )
    if stride < 2 or stride * row_count != count:
        return out_pos
    return write_json_integer_list(
        buf,
        pos,
        row_count,
        8,
        4 * stride,
        out,
        write_text_of_table(text_table, IDS, out, out_pos, out_limit),
        out_limit,
    )


@kernel(write_text_of_table, write_json_unsigned, read_zint)
def write_json_docstore_size(
    buf: UInt8s, pos: int, limit: int, text_table: UInt8s, out: MutableUInt8s, out_pos: int, out_limit: int
) -> int:
    """Write the number of stored documents, and the sum of their sizes."""
    count, pos = read_zint(buf, pos, limit)
    total = 0
    while pos < limit:
        size, pos = read_zint(buf, pos, limit)
        total += size
        pos += size
    if out_limit - out_pos < 128:
        return -1
    out_pos = write_json_unsigned(
        count, out, write_text_of_table(text_table, COUNT, out, out_pos, out_limit), out_limit
    )
    out_pos = write_json_unsigned(
        total, out, write_text_of_table(text_table, BYTES, out, out_pos, out_limit), out_limit
    )
    out[out_pos] = 125
    return out_pos + 1


# -- updates -----------------------------------------------------------------------------------------------------------


@kernel(write_text_of_table, write_json_unsigned, read_zint)
def write_json_attribute_type(
    buf: UInt8s, pos: int, limit: int, text_table: UInt8s, out: MutableUInt8s, out_pos: int, out_limit: int
) -> int:
    """Write the type of an attribute: its number, and its name (or the number as text)."""
    kind, pos = read_zint(buf, pos, limit)
    if out_limit - out_pos < 128:
        return -1
    out_pos = write_json_unsigned(kind, out, write_text_of_table(text_table, TYPE, out, out_pos, out_limit), out_limit)
    out_pos = write_text_of_table(text_table, NAME, out, out_pos, out_limit)
    name_end = -2
    if 0 <= kind < MVA_TEXT_OFFSET:
        name_end = write_text_of_table(text_table, kind, out, out_pos, out_limit)
    elif MVA < kind <= MVA + 2:
        name_end = write_text_of_table(text_table, kind - MVA + MVA_TEXT_OFFSET, out, out_pos, out_limit)
    out_pos = name_end if name_end > 0 else write_json_unsigned(kind, out, out_pos, out_limit)
    out[out_pos] = 34
    return out_pos + 1


@kernel(are_bytes_equal, read_zint, skip_text)
def has_duplicate_names(buf: UInt8s, pos: int, limit: int, version: int, count: int) -> bool:
    """Return whether two of `count` attributes have the same name."""
    first = pos
    for i in range(count):
        end = skip_text(buf, pos, limit, version)
        other = first
        for _ in range(i):
            other_end = skip_text(buf, other, limit, version)
            if other_end - other == end - pos and are_bytes_equal(buf, pos, buf, other, end - pos) != 0:
                return True
            _kind, other = read_zint(buf, other_end, limit)
        _kind, pos = read_zint(buf, end, limit)
    return False


@kernel(write_json_double, widen_float_bits_to_double)
def write_json_float(bits: int, out: MutableUInt8s, out_pos: int, out_limit: int) -> int:
    """Write the float with these 32 bits as a double."""
    return write_json_double(widen_float_bits_to_double(bits), out, out_pos, out_limit)


@kernel(load_uint32)
def get_value_size_in_dwords(buf: UInt8s, kind: int, value_at: int, dwords_left: int) -> int:
    """Return the number of dwords of the value of this type at `buf[value_at]`, of which `dwords_left` remain."""
    if MVA < kind <= MVA + 2:
        return 1 + load_uint32(buf, value_at) if dwords_left > 0 else 1
    return 1 + (BIGINT <= kind <= STRING)


@kernel(
    write_json_text_or_bytes,
    write_json_float,
    write_json_integer_list,
    write_json_signed,
    write_json_unsigned,
    get_value_size_in_dwords,
    load_uint32,
    load_int64,
)
def write_json_attribute_value(
    buf: UInt8s,
    kind: int,
    value_at: int,
    dwords_left: int,
    blobs_start: int,
    blobs_size: int,
    out: MutableUInt8s,
    out_pos: int,
    out_limit: int,
) -> int:
    """Write the value of this type at `buf[value_at]`, `dwords_left` dwords remain; -3 = it is incomplete."""
    width = get_value_size_in_dwords(buf, kind, value_at, dwords_left)
    if FIRST_VECTOR <= kind <= LAST_VECTOR:
        return -2
    if not (INTEGER <= kind <= TIMESTAMP or BOOL <= kind <= STRING or MVA < kind <= MVA + 2) or width > dwords_left:
        return -3
    if kind > MVA:
        return write_json_integer_list(buf, value_at + 4, (width - 1) // 2, 8, 8, out, out_pos, out_limit)
    if kind == FLOAT:
        return write_json_float(load_uint32(buf, value_at), out, out_pos, out_limit)
    if kind == STRING:
        start = load_uint32(buf, value_at)
        length = load_uint32(buf, value_at + 4)
        return (
            write_json_text_or_bytes(buf, blobs_start + start, blobs_start + start + length, out, out_pos, out_limit)
            if start + length <= blobs_size
            else -3
        )
    return (
        write_json_signed(load_int64(buf, value_at), out, out_pos, out_limit)
        if width == 2
        else write_json_unsigned(load_uint32(buf, value_at), out, out_pos, out_limit)
    )


class UpdatePositions(NamedTuple):
    """Positions in an update: number of attributes, and where their names, the values and the documents start."""

    names: int
    attributes: int
    pool: int
    docids: int


class BlobPool(NamedTuple):
    """Positions of an update's texts: their start, their size in bytes, and the end of the update."""

    start: int
    size: int
    end: int


@kernel(write_json_string, write_json_attribute_value, read_zint, skip_text, get_value_size_in_dwords)
def write_json_attribute_values(
    buf: UInt8s,
    version: int,
    attribute_count: int,
    names_at: int,
    value_at: int,
    dwords_left: int,
    blobs: BlobPool,
    out: MutableUInt8s,
    out_pos: int,
    out_limit: int,
) -> int:
    """Write the new values of a document under the attribute names from `names_at` on, without braces."""
    for k in range(attribute_count):
        end = skip_text(buf, names_at, blobs.end, version)
        low = names_at + 4
        if version >= 15:
            _size, low = read_zint(buf, names_at, blobs.end)
        out_pos = write_json_string(buf, low, end, out, out_pos, out_limit - 64)
        if out_pos < 0:
            return out_pos
        out[out_pos] = 58
        kind, names_at = read_zint(buf, end, blobs.end)
        out_pos = write_json_attribute_value(
            buf, kind, value_at, dwords_left, blobs.start, blobs.size, out, out_pos + 1, out_limit - 64
        )
        if out_pos < 0:
            return out_pos
        if k < attribute_count - 1:
            out[out_pos] = 44
            out_pos += 1
        width = get_value_size_in_dwords(buf, kind, value_at, dwords_left)
        value_at += 4 * width
        dwords_left -= width
    return out_pos


@kernel(
    has_duplicate_names,
    write_json_signed,
    write_text_of_table,
    write_json_attribute_values,
    read_zint,
    load_uint32,
    load_int64,
)
def write_json_updated_documents(
    buf: UInt8s,
    text_table: UInt8s,
    version: int,
    lists: UpdatePositions,
    offsets_at: int,
    blobs_at: int,
    update_end: int,
    out: MutableUInt8s,
    out_pos: int,
    out_limit: int,
) -> int:
    """Write the new values of each document; nothing if the pool lacks bytes that the attributes need."""
    dwords, pool = read_zint(buf, lists.pool, update_end)
    documents, docids = read_zint(buf, lists.docids, update_end)
    places, offsets_at = read_zint(buf, offsets_at, update_end)
    size = 0
    if blobs_at >= 0:
        size, blobs_at = read_zint(buf, blobs_at, update_end)
    if places != 0 and places != documents:
        return out_pos
    if lists.names > MAX_ATTRIBUTES or has_duplicate_names(buf, lists.attributes, update_end, version, lists.names):
        return -2
    output_start = out_pos
    if out_limit - out_pos < 64:
        return -1
    out_pos = write_text_of_table(text_table, DOCUMENTS, out, out_pos, out_limit)
    for i in range(documents):
        if out_limit - out_pos < 128:
            return -1
        at = load_uint32(buf, offsets_at + 4 * i) if places != 0 else 0
        out_pos = write_json_signed(
            load_int64(buf, docids + 8 * i),
            out,
            write_text_of_table(text_table, DOCID, out, out_pos, out_limit),
            out_limit,
        )
        out_pos = write_text_of_table(text_table, VALUES, out, out_pos, out_limit)
        out_pos = write_json_attribute_values(
            buf,
            version,
            lists.names,
            lists.attributes,
            pool + 4 * at,
            dwords - at,
            BlobPool(blobs_at, size, update_end),
            out,
            out_pos,
            out_limit,
        )
        if out_pos == -3:
            return output_start
        if out_pos < 0:
            return out_pos
        out[out_pos] = 125
        out[out_pos + 1] = 125
        out[out_pos + 2] = 44
        out_pos += 3
    if documents > 0:
        out_pos -= 1
    out[out_pos] = 93
    return out_pos + 1


@kernel(write_json_bytes, write_json_updated_documents, write_text_of_table, read_zint)
def write_json_blobs_and_documents(
    buf: UInt8s,
    pos: int,
    limit: int,
    text_table: UInt8s,
    version: int,
    lists: UpdatePositions,
    offsets_at: int,
    out: MutableUInt8s,
    out_pos: int,
    out_limit: int,
) -> int:
    """Write a vec(1), and the documents of the update that ends with it."""
    _size, low = read_zint(buf, pos, limit)
    if out_limit - out_pos < 64:
        return -1
    out_pos = write_json_bytes(
        buf, low, limit, out, write_text_of_table(text_table, BLOBS, out, out_pos, out_limit), out_limit
    )
    return (
        out_pos
        if out_pos < 0
        else write_json_updated_documents(
            buf, text_table, version, lists, offsets_at, pos, limit, out, out_pos, out_limit
        )
    )


@kernel(write_json_updated_documents, write_json_vector, write_text_of_table)
def write_json_offsets_and_documents(
    buf: UInt8s,
    pos: int,
    limit: int,
    text_table: UInt8s,
    lists: UpdatePositions,
    out: MutableUInt8s,
    out_pos: int,
    out_limit: int,
) -> int:
    """Write the end of an update of versions 2 to 9."""
    if out_limit - out_pos < 64:
        return -1
    out_pos = write_json_vector(
        buf, pos, limit, 4, out, write_text_of_table(text_table, OFFSETS, out, out_pos, out_limit), out_limit
    )
    return (
        out_pos
        if out_pos < 0
        else write_json_updated_documents(buf, text_table, 9, lists, pos, -1, limit, out, out_pos, out_limit)
    )


# --- The JSON line of a transaction in compiled code ---

_SIGN_BIT = 1 << 63
_MAX_DEPTH = 10
ADD_CACHE_KIND, ADD_INDEX_KIND, PAYLOAD_KIND = -2, -1, 16
"""Kinds of transactions besides the operations of old versions. For an ADD_TXN it is PAYLOAD_KIND plus the first byte
of its payload. The negative kinds have no TID.
"""


@kernel(write_json_null, write_json_time)
def write_time_member(
    buf: UInt8s,
    text_table: UInt8s,
    scratch: Int64s,
    out: MutableUInt8s,
    out_pos: int,
    out_limit: int,
    kind: int,
    time: int,
) -> int:
    """Write the time of a transaction, in versions that store it."""
    return (
        write_json_null(out, out_pos, out_limit)
        if kind == ADD_CACHE_KIND
        else write_json_time(time, out, out_pos, out_limit)
    )


@kernel(write_text_of_number, write_json_null)
def write_table_member(
    buf: UInt8s,
    text_table: UInt8s,
    scratch: Int64s,
    out: MutableUInt8s,
    out_pos: int,
    out_limit: int,
    kind: int,
    table_id: int,
) -> int:
    """Write the name of the table with this id; null if it is unknown."""
    if kind == ADD_CACHE_KIND:
        return write_json_null(out, out_pos, out_limit)
    name_end = write_text_of_number(text_table, table_id, out, out_pos, out_limit)
    return write_json_null(out, out_pos, out_limit) if name_end == -2 else name_end


@kernel(write_json_null, write_json_unsigned)
def write_tid_member(
    buf: UInt8s,
    text_table: UInt8s,
    scratch: Int64s,
    out: MutableUInt8s,
    out_pos: int,
    out_limit: int,
    kind: int,
    tid: int,
) -> int:
    """Write the TID of a transaction."""
    return write_json_null(out, out_pos, out_limit) if kind < 0 else write_json_unsigned(tid, out, out_pos, out_limit)


@kernel(load_add_txn)
def write_transaction_kinds(
    buf: UInt8s,
    count: int,
    ops: Int64s,
    starts: Int64s,
    ends: Int64s,
    add_txn: int,
    add_index: int,
    add_cache: int,
    out: MutableInt64s,
) -> int:
    """Classify transactions by kind. add_txn, add_index, add_cache: codes of these operations in the version."""
    for i in range(count):
        out[i] = ops[i]
        if ops[i] == add_index:
            out[i] = ADD_INDEX_KIND
        elif ops[i] == add_cache:
            out[i] = ADD_CACHE_KIND
        elif ops[i] == add_txn:
            payload, end = load_add_txn(buf, starts[i] + 1, ends[i])
            out[i] = PAYLOAD_KIND + buf[payload] if end > payload else PAYLOAD_KIND - 1
    return count


class TableNames(Mapping[int, str]):
    """Names of a file's tables by table id; a live view that grows while records are read."""

    def __init__(self, names: Mapping[int, bytes]) -> None:
        self._names = names

    def __getitem__(self, number: int) -> str:
        return self._names[number % (2 * _SIGN_BIT)].decode("utf-8", "backslashreplace")

    def __iter__(self) -> Iterator[int]:
        return ((number ^ _SIGN_BIT) - _SIGN_BIT for number in self._names)

    def __len__(self) -> int:
        return len(self._names)


def _create_body(*fields: Construct) -> BodySchema:
    """Create the schema of a body, from the operation up to the checksum."""
    return BodySchema(Struct("op" / HiddenField(Int8ul), *fields, Terminated))


def _create_v15_bodies() -> Iterator[tuple[int, BodySchema]]:
    operation = "payload_op" / Enum(Int8ul, PayloadOp)
    for op, payload in (
        (PayloadOp.COMMIT, schema.create_commit_schema), (PayloadOp.UPDATE_ATTRS, schema.create_update_schema),
        (PayloadOp.PQ_ADD_DELETE, schema.create_pq_add_delete_schema),
    ):  # fmt: skip
        yield (
            PAYLOAD_KIND + op.value,
            _create_body(*schema.ADD_TXN.subcons[:-1], operation, "payload" / payload(NEW_FRAME_VERSION)),
        )
    yield ADD_INDEX_KIND, _create_body(*schema.ADD_INDEX.subcons)
    yield ADD_CACHE_KIND, _create_body(*schema.CACHE.subcons)


def _create_v2_to_v14_bodies(version: int) -> Iterator[tuple[int, BodySchema]]:
    ops = [op for op in OldOp if op not in (OldOp.ADD_INDEX, OldOp.ADD_CACHE, OldOp.RECONFIGURE)]
    for op in ops:
        yield (
            op.value,
            _create_body(
                *create_v2_to_v14_body_schema(version, op).subcons[:-1],
                "payload" / schema.create_v2_to_v14_payload_schema(version, op),
            ),
        )
    yield ADD_INDEX_KIND, _create_body(*create_v2_to_v14_body_schema(version, OldOp.ADD_INDEX).subcons)
    yield ADD_CACHE_KIND, _create_body(*schema.create_v2_to_v14_cache_schema(version).subcons)


@cache
def _create_json_bodies(version: int) -> JsonBodies:
    bodies = _create_v15_bodies() if version >= NEW_FRAME_VERSION else _create_v2_to_v14_bodies(version)
    return JsonBodies(tuple(bodies), code="kind", start="covered_start", end="covered_end")


class TransactionClassifier:
    """Derives the kinds of a batch's transactions; None if one of them is too large to be decoded."""

    def __init__(self, context: ManticoreLogContext) -> None:
        self._context, self._max_size = context, context.max_memory // MEMORY_FACTOR
        self._out = array("q")

    def __call__(self, batch: Batch, compile_: Callable[[Kernel], Kernel]) -> Mapping[str, Column] | None:
        """Return the derived columns of a batch (`JsonLine.derive`)."""
        count, ops = batch.frames.count, self._context.ops
        arguments = [batch.frames[name] for name in ("op", "covered_start", "covered_end")]
        if len(batch.window) > self._max_size:
            starts, ends = (to_int_list(column, 0, count) for column in arguments[1:])
            if any(end - start > self._max_size for start, end in zip(starts, ends, strict=True)):
                return None
        store_table_names(self._context, batch, count)
        if len(self._out) < count:
            self._out = array("q", bytes(8 * count))
        add_txn = Op.ADD_TXN.value if self._context.has_new_frames else -1
        compile_(write_transaction_kinds)(
            batch.window, count, *arguments, add_txn, ops.ADD_INDEX.value, ops.ADD_CACHE.value, self._out
        )
        return {"kind": self._out}


def create_json_line(context: object) -> JsonLine | None:
    """Return the writer of JSON lines for transactions; None for versions that were not verified."""
    if (
        not isinstance(context, ManticoreLogContext)
        or context.version not in VERIFIED_VERSIONS
        or context.id_size != schema.ID64_SIZE
    ):
        return None
    if context.version <= LAST_LOW_VERSION:
        return None
    bodies = _create_json_bodies(min(context.version, NEW_FRAME_VERSION))
    null = JsonMember(write_null_member)
    return JsonLine(
        type=JsonMember(write_text_member, ("op",), texts={op.value: op.name for op in context.ops}),
        seq=JsonMember(write_tid_member, ("kind", "body.tid")),
        time=null if context.has_new_frames else JsonMember(write_time_member, ("kind", "body.time")),
        object=JsonMember(write_table_member, ("kind", "body.id"), names=TableNames(context.names)),
        origin=null,
        txn=null,
        body=JsonMember(None, ("kind", "covered_start", "covered_end"), bodies=bodies),
        depth=_MAX_DEPTH,
        derive=TransactionClassifier(context),
    )
