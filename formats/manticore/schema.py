"""The table binary log of Manticore Search and of its ancestor Sphinx: `binlog.meta` and the log files.

Source: `docs/spec/manticore.md`, written from running servers (versions 5, 14, 15, 16) and from source code (2 to 13).
"""

from __future__ import annotations

import enum
from functools import cache, partial

from construct import (
    Array,
    Bytes,
    Check,
    Construct,
    GreedyBytes,
    If,
    IfThenElse,
    Int8ul,
    Int32ul,
    Int64sl,
    Int64ul,
    Struct,
    Switch,
    Tell,
    this,
)

from binlogtool.format_api.layout import CRC32
from binlogtool.format_api.schema_fields import (
    CrcCheck,
    InterpretedOnly,
    Magic,
    NestedSchema,
    OpaqueLeaf,
    RecordKernel,
    RenamedField,
    SingleField,
    TextField,
    Varint,
    make_fields_kernel,
)
from binlogtool.formats.manticore.payload_kernels import (
    BLOBS,
    DWORDS,
    KIND,
    LAST_LOW_VERSION,
    LAST_OFFSETS,
    OLD_BLOBS,
    QWORDS,
    ROWS,
    STORED,
    KernelScanned,
    KernelSkipped,
    ReconfigureSettings,
    SkipTable,
    Vector,
    Zint,
    read_v2_to_v14_body_columns,
    read_zint,
)

META_MAGIC = 0x494C5053
"""`SPLI`."""
LOG_MAGIC = 0x4C425053
"""`SPBL`."""
TXN_MAGIC = 0x214E5854
"""`TXN!`."""

TXN_PATTERN = rb"TXN!"
TXN_START_PATTERN = TXN_PATTERN + rb"(?:[\x01-\x03]|\Z)"
"""Start of a transaction of version 15 or later: the magic, and an operation (`Op`)."""
FIRST_VERSION, LAST_VERSION = 2, 16
NEW_FRAME_VERSION = 15
"""First version with the frame of docs/spec/manticore.md#transaction-frame."""
HEADER_SIZE = 8
ID32_SIZE, ID64_SIZE = 4, 8
"""Sizes of a document id in bytes, selected by `id64` in binlog.meta of versions 2 to 14."""
MAX_TEXT_SIZE = 1 << 31


class Op(enum.IntEnum):
    """Operation of a transaction of version 15 or later (`docs/spec/manticore.md#transaction-frame`)."""

    ADD_INDEX = 1
    ADD_TXN = 2
    ADD_CACHE = 3


class OldOp(enum.IntEnum):
    """Operation of a transaction of versions 2 to 14 (`docs/spec/manticore.md#frame-of-versions-2-to-14`)."""

    COMMIT = 1
    UPDATE_ATTRS = 2
    ADD_INDEX = 3
    ADD_CACHE = 4
    RECONFIGURE = 5
    PQ_ADD = 6
    PQ_DELETE = 7
    PQ_ADD_DELETE = 8


class PayloadOp(enum.IntEnum):
    """First byte of the payload of an ADD_TXN."""

    UPDATE_ATTRS = 0
    COMMIT = 1
    PQ_ADD_DELETE = 2


ZSTRING = SingleField(
    Struct("length" / Zint(), Check(this.length < MAX_TEXT_SIZE), "text" / Bytes(this.length)), "text", TextField.leaf
)
LOW_STRING = SingleField(
    Struct("length" / Varint(), Check(this.length < MAX_TEXT_SIZE), "text" / Bytes(this.length)),
    "text",
    TextField.leaf,
)
"""Text of versions 2 to 4."""
DSTRING = SingleField(Struct("length" / Int32ul, "text" / Bytes(this.length)), "text", TextField.leaf)

META = Struct(
    "magic" / Magic(Int32ul, SPLI=META_MAGIC),
    "version" / Int32ul,
    "settings" / IfThenElse(this.version >= NEW_FRAME_VERSION, Struct("digits" / Int8ul), Struct("id64" / Int8ul)),
    "count" / Zint(),
    "ext" / Array(this.count, Zint()),
    "trailing" / GreedyBytes,
)
"""`binlog.meta` (docs/spec/manticore.md#binlogmeta). `trailing`: bytes that the server ignores."""

LOG_HEADER = Struct("magic" / Magic(Int32ul, SPBL=LOG_MAGIC), "version" / Int32ul)
"""Head of a log file (docs/spec/manticore.md#log-file)."""

# -- payloads --------------------------------------------------------------------------------------

MAX_ELEMENTS = 1 << 18
"""Maximum number of elements of one list that are decoded; a longer list is valid but shown by its size."""


def _create_list(
    name: str, element: Construct, count: Construct | None = None, max_count: int = MAX_ELEMENTS
) -> list[Construct]:
    """Create the members of a structure: a count, and that many elements."""
    return ["count" / (count or Zint()), Check(this.count <= max_count), name / Array(this.count, element)]


DOCSTORE = Struct(
    *_create_list(
        "documents", Struct("length" / Zint(), Check(this.length < MAX_TEXT_SIZE), "data" / Bytes(this.length))
    )
)


def _create_dwords(element: Construct) -> Struct:
    return Struct(*_create_list("values", element, Int32ul))


_MASKED_COLUMN = Struct("mask" / Int64ul, "data" / _create_dwords(Int32ul))
_END_OFFSETS = _create_dwords(Int32ul)
COLUMN = Struct(
    "type" / Magic(
        Int32ul, INTEGER=1, TIMESTAMP=2, BOOL=4, FLOAT=5, BIGINT=6, STRING=7, TOKENCOUNT=11, FLOAT_VECTOR=15,
        FLOAT_VECTOR_ARRAY=16, MVA32=0x40000001, MVA64=0x40000002,
    ),
    "data" / Switch(
        this.type,
        {
            **dict.fromkeys((1, 2, 5, 11), _MASKED_COLUMN),
            4: Struct("mask" / Int64ul, "data" / _create_dwords(Int8ul)),
            6: Struct("mask" / Int64ul, "data" / _create_dwords(Int64sl)),
            7: Struct("ends" / _create_dwords(Int64ul), "count" / Int32ul, "data" / Bytes(this.count)),
            **dict.fromkeys((15, 16, 0x40000001), Struct("ends" / _END_OFFSETS, "data" / _create_dwords(Int32ul))),
            0x40000002: Struct("ends" / _END_OFFSETS, "data" / _create_dwords(Int64sl)),
        },
    ),
)  # fmt: skip
"""One columnar attribute (docs/spec/manticore.md#columnar-data)."""


def _is_lowest_first(version: int) -> bool:
    """Return whether a version writes numbers with their lowest bits first."""
    return version <= LAST_LOW_VERSION


def _create_zint(version: int) -> Construct:
    return Varint() if _is_lowest_first(version) else Zint()


def _create_vector(version: int, width: int) -> Vector:
    return Vector(width, low=_is_lowest_first(version))


def _create_docids(version: int, id_size: int) -> Construct:
    """Create the field of document ids, which have 4 bytes if binlog.meta has id64=0."""
    return (
        OpaqueLeaf(_create_vector(version, id_size), QWORDS)
        if id_size == ID64_SIZE
        else _create_vector(version, id_size)
    )


@cache
def create_commit_schema(version: int, id_size: int = ID64_SIZE) -> Struct:
    """Create the schema of an RT commit. Source: `docs/spec/manticore.md#rt-commit`."""

    def create_sized(name: str) -> Construct:
        return name / RenamedField(f"{name}_bytes", _create_vector(version, 1))

    number = _create_zint(version)
    segment = [
        create_sized("dictionary"),
        "checkpoints" / Struct(*_create_list("entries", Struct("offset" / number, "word" / number), number)),
        create_sized("doclists"),
        create_sized("hitlists"),
        "row_data" / OpaqueLeaf(_create_vector(version, 4), ROWS),
    ]  # fmt: skip
    if version >= 13:
        segment.insert(0, "added_bytes" / Zint())
    segment.append(create_sized("blobs" if version >= 8 else "strings"))
    if 3 <= version < 8:
        segment.append("mva" / RenamedField("mva_words", _create_vector(version, 4)))
    if version >= 4:
        segment.append(create_sized("keyword_checkpoints"))
    if version >= 9:
        segment += ["has_docstore" / Int8ul, "docstore" / If(this.has_docstore != 0, OpaqueLeaf(DOCSTORE, STORED))]
    if version >= 11:
        columnar = InterpretedOnly(Struct(*_create_list("attributes", COLUMN, Int32ul)))
        segment += ["has_columnar" / Int8ul, "columnar" / If(this.has_columnar != 0, columnar)]
    killed = "killed" / _create_docids(version, id_size)
    return Struct("rows" / number, "segment" / If(this.rows != 0, Struct(*segment)), killed)


@cache
def create_update_schema(version: int, id_size: int = ID64_SIZE) -> Struct:
    """Create the schema of an attribute update (`docs/spec/manticore.md#update-of-attributes`)."""
    number = _create_zint(version)
    attribute = Struct("name" / _select_text(version), "type" / OpaqueLeaf(number, KIND))
    parts = [
        *_create_list("attributes", attribute, number),
        "pool" / OpaqueLeaf(_create_vector(version, 4), DWORDS), "docids" / _create_docids(version, id_size),
        "row_offsets" / OpaqueLeaf(_create_vector(version, 4), DWORDS if version >= 10 else LAST_OFFSETS),
    ]  # fmt: skip
    blobs = "blobs" / OpaqueLeaf(Vector(1), BLOBS if version >= NEW_FRAME_VERSION else OLD_BLOBS)
    return Struct(*parts, *([blobs] if version >= 10 else []))


def _select_text(version: int) -> SingleField:
    return LOW_STRING if _is_lowest_first(version) else ZSTRING if version >= NEW_FRAME_VERSION else DSTRING


@cache
def create_query_schema(version: int) -> Struct:
    """Create the schema of one stored query (`docs/spec/manticore.md#percolate-changes`)."""
    text = _select_text(version)
    filter_ = Struct(
        "attribute" / text, "exclude" / Zint(), "has_equal_min" / Zint(), "has_equal_max" / Zint(),
        "open_left" / Zint(), "open_right" / Zint(), "is_null" / Zint(), "type" / Zint(), "mva_func" / Zint(),
        "min" / Zint(signed=True), "max" / Zint(signed=True), "n_values" / Zint(), "n_strings" / Zint(),
        Check(this.n_values <= MAX_ELEMENTS), Check(this.n_strings <= MAX_ELEMENTS),
        "values" / Array(this.n_values, Zint(signed=True)), "strings" / Array(this.n_strings, text),
    )  # fmt: skip
    node = Struct(
        "left" / Zint(32, True), "right" / Zint(32, True), "filter_item" / Zint(32, True), "is_or" / Zint(),
    )  # fmt: skip
    return Struct(
        "id" / Zint(), "is_ql" / Zint(), "query" / text, "tags" / text, "n_filters" / Zint(), "n_tree" / Zint(),
        Check(this.n_filters <= MAX_ELEMENTS), Check(this.n_tree <= MAX_ELEMENTS),
        "filters" / Array(this.n_filters, filter_), "tree" / Array(this.n_tree, node),
    )  # fmt: skip


@cache
def create_pq_add_delete_schema(version: int) -> Struct:
    """Create the schema of a percolate add/delete (`docs/spec/manticore.md#percolate-changes`)."""
    return Struct(
        "n_del_tags" / Zint(), Check(this.n_del_tags <= MAX_ELEMENTS), "del_tags" / Array(this.n_del_tags, Zint()),
        "n_del_ids" / Zint(), Check(this.n_del_ids <= MAX_ELEMENTS), "del_ids" / Array(this.n_del_ids, Zint()),
        "n_new" / Zint(), Check(this.n_new <= MAX_ELEMENTS), "new" / Array(this.n_new, create_query_schema(version)),
    )  # fmt: skip


@cache
def create_pq_delete_schema(version: int) -> Struct:
    """Create the schema of a percolate delete of versions 7 to 14."""
    ids = ["n_del_ids" / Zint(), Check(this.n_del_ids <= MAX_ELEMENTS), "del_ids" / Array(this.n_del_ids, Zint())]
    return Struct(*ids, "tags" / _select_text(version))


PAYLOAD = Struct(
    "op" / Magic(Int8ul, **{op.name: op.value for op in PayloadOp}),
    "body" / Switch(
        this.op,
        {
            PayloadOp.UPDATE_ATTRS.value: create_update_schema(NEW_FRAME_VERSION),
            PayloadOp.COMMIT.value: create_commit_schema(NEW_FRAME_VERSION),
            PayloadOp.PQ_ADD_DELETE.value: create_pq_add_delete_schema(NEW_FRAME_VERSION),
        },
    ),
)  # fmt: skip
"""Payload of an ADD_TXN of version 15 or later."""

# -- frames ----------------------------------------------------------------------------------------

ADD_INDEX = Struct("id" / Zint(), "name" / ZSTRING)
ADD_TXN = Struct(
    "id" / Zint(),
    "tid" / Zint(),
    "uSize" / Int32ul,
    "payload" / NestedSchema(Bytes(this.uSize), PAYLOAD),
)
load_add_txn = make_fields_kernel(ADD_TXN, "payload", uses=(read_zint,))
"""Reader for kernels: the start of the payload."""
CACHE = Struct(
    *_create_list("tables", Struct("name" / ZSTRING, "min_tid" / Zint(), "max_tid" / Zint(), "flushed_tid" / Zint()))
)
ADD_CACHE = NestedSchema(KernelSkipped(CACHE), CACHE)


def _create_check(absent: int | None) -> Struct:
    covered = {"start": this._.covered_start, "end": this._.covered_end}
    return Struct("crc32" / Int32ul, "checksum" / CrcCheck(CRC32, stored=this.crc32, absent=absent, **covered))


FRAME = Struct(
    "magic" / Magic(Int32ul, TXN=TXN_MAGIC),
    "covered_start" / Tell,
    "op" / Magic(Int8ul, **{op.name: op.value for op in Op}),
    "body" / Switch(
        this.op, {Op.ADD_TXN.value: ADD_TXN, Op.ADD_INDEX.value: ADD_INDEX, Op.ADD_CACHE.value: ADD_CACHE}
    ),
    "covered_end" / Tell,
    "check" / IfThenElse(this.op != Op.ADD_CACHE.value, _create_check(None), _create_check(0)),
)  # fmt: skip
"""One transaction of versions 15 and 16. The writer leaves 0 as the checksum of ADD_CACHE
(docs/spec/manticore.md#checksum).
"""

FRAME_COLUMNS = ("op", "body.id", "body.tid", "covered_start", "covered_end", "check.crc32")

OP_SINCE_VERSION = {OldOp.RECONFIGURE: 5, OldOp.PQ_ADD: 7, OldOp.PQ_DELETE: 7, OldOp.PQ_ADD_DELETE: 12}
"""First version with an operation; the schemas accept all operations, since the version may be damaged."""


@cache
def create_v2_to_v14_cache_schema(version: int) -> Struct:
    """Create the schema of the body of an ADD_CACHE of versions 2 to 14."""
    number = _create_zint(version)
    tids = ["min_tid" / number, "max_tid" / number, "flushed_tid" / number]
    times = ["min_time" / number, "max_time" / number]
    return Struct(
        *_create_list(
            "tables", Struct("name" / _select_text(version), *_create_generation(version), *tids, *times), number
        )
    )


def _create_generation(version: int) -> list[Construct]:
    return ["generation" / Zint()] if version == 14 else []


@cache
def create_v2_to_v14_payload_schema(version: int, op: OldOp, id_size: int = ID64_SIZE) -> Construct:
    """Create the schema of a payload of versions 2 to 14. id_size: size of a document id in bytes."""
    if op is OldOp.RECONFIGURE:
        return GreedyBytes
    if op in (OldOp.COMMIT, OldOp.UPDATE_ATTRS):
        return (create_commit_schema if op is OldOp.COMMIT else create_update_schema)(version, id_size)
    payloads = {
        OldOp.PQ_ADD: create_query_schema,
        OldOp.PQ_DELETE: create_pq_delete_schema,
        OldOp.PQ_ADD_DELETE: create_pq_add_delete_schema,
    }
    return payloads[op](version)


@cache
def create_v2_to_v14_body_kernel(version: int, id_size: int) -> RecordKernel:
    """Create the kernel that skips a body of versions 2 to 14, with its table."""
    table = SkipTable([version, *[0] * len(OldOp)])
    places = table.numbers
    name = Struct("name" / _select_text(version), *_create_generation(version))
    places[OldOp.ADD_INDEX] = table.add_schema_program(name)
    places[OldOp.ADD_CACHE] = table.add_schema_program(create_v2_to_v14_cache_schema(version))
    for op in OldOp:
        if not places[op] and op is not OldOp.RECONFIGURE and (op < OldOp.RECONFIGURE or not _is_lowest_first(version)):
            places[op] = table.add_schema_program(create_v2_to_v14_payload_schema(version, op, id_size))
    return RecordKernel(read_v2_to_v14_body_columns, ("id", "tid", "time"), tuple(places))


@cache
def create_v2_to_v14_body_schema(version: int, op: OldOp, id_size: int = ID64_SIZE) -> Construct:
    """Create the schema of the body of a transaction of versions 2 to 14.

    Source: `docs/spec/manticore.md#frame-of-versions-2-to-14`.
    """
    if op is OldOp.ADD_CACHE:
        cache_ = create_v2_to_v14_cache_schema(version)
        return NestedSchema(KernelSkipped(cache_), cache_)
    number = _create_zint(version)
    times = ["tid" / number, "time" / number]
    if op is OldOp.ADD_INDEX:
        return Struct("id" / number, "name" / _select_text(version), *_create_generation(version), *times)
    if op is OldOp.RECONFIGURE:
        return Struct("id" / number, *times, "payload" / ReconfigureSettings())
    payload = create_v2_to_v14_payload_schema(version, op, id_size)
    return Struct("id" / number, *times, "payload" / NestedSchema(KernelSkipped(payload), payload))


@cache
def create_v2_to_v14_frame_schema(version: int, id_size: int = ID64_SIZE) -> Struct:
    """Create the schema of one transaction of versions 2 to 14, which do not store its length."""
    bodies = Switch(this.op, {op.value: create_v2_to_v14_body_schema(version, op, id_size) for op in OldOp})
    return Struct(
        "magic" / Magic(Int32ul, TXN=TXN_MAGIC),
        "covered_start" / Tell,
        "op" / Magic(Int8ul, **{op.name: op.value for op in OldOp}),
        "body" / KernelScanned(bodies, partial(create_v2_to_v14_body_kernel, version, id_size)),
        "covered_end" / Tell,
        "crc32" / Int32ul,
        "checksum" / CrcCheck(CRC32, stored=this.crc32, start=this.covered_start, end=this.covered_end),
    )


OLD_FRAME_COLUMNS = ("op", "body.id", "body.tid", "body.time", "covered_start", "covered_end", "crc32")


def get_frame_schema(version: int, id_size: int = ID64_SIZE) -> Struct:
    """Return the frame schema of a known version. id_size: size of a document id in bytes, in versions 2 to 14."""
    return FRAME if version >= NEW_FRAME_VERSION else create_v2_to_v14_frame_schema(version, id_size)
