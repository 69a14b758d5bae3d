"""The table binary log of Manticore Search and of Sphinx, its ancestor: `binlog.meta` and the log files.

Source: `docs/spec/manticore-binlog.md`, made from running servers (versions 5, 14, 15, 16) and from the source (2 to
13).
"""

from __future__ import annotations

import enum
from functools import cache

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

from binlogtool.formats.bodies import Called, Sole, Text, Told, Unwritten
from binlogtool.formats.checksums import CRC32
from binlogtool.formats.fields import CrcCheck, Expanded, Magic, RecordKernel, ScalarKernel
from binlogtool.formats.manticore.payloads.leaves import (
    BLOBS,
    DWORDS,
    KIND,
    LAST_OFFSETS,
    OLD_BLOBS,
    QWORDS,
    ROWS,
    STORED,
    Scanned,
    Settings,
    Skipped,
    Vector,
)
from binlogtool.formats.manticore.payloads.sphinx4 import (
    LAST_LOWEST_FIRST,
    LowZint,
    read_low_body,
    skip_low_cache,
    skip_low_commit,
    skip_low_update,
)
from binlogtool.formats.manticore.payloads.walk import (
    read_body,
    read_cache,
    skip_cache,
    skip_commit_of,
    skip_pq,
    skip_pq_delete,
    skip_query,
    skip_update_of,
)
from binlogtool.formats.manticore.payloads.zint import Zint

META_MAGIC = 0x494C5053
"""`SPLI`."""
LOG_MAGIC = 0x4C425053
"""`SPBL`."""
TXN_MAGIC = 0x214E5854
"""`TXN!`."""

SYNC = rb"TXN!"
START = SYNC + rb"(?:[\x01-\x03]|\Z)"
"""Where a transaction of version 15 on can start: the magic, and an operation (`Op`)."""
FIRST_VERSION, LAST_VERSION = 2, 16
NEW_FRAME = 15
"""The version from which on the frame is that of section 5."""
HEADER_SIZE = 8
ID32, ID64 = 4, 8
"""Bytes of a document id: binlog.meta of versions 2 to 14 says which (`id64`)."""
MAX_TEXT = 1 << 31


class Op(enum.IntEnum):
    """Operation of a transaction, version 15 on
    (`docs/spec/manticore-binlog.md#5-transaction-frame-version-15-and-16`).
    """

    ADD_INDEX = 1
    ADD_TXN = 2
    ADD_CACHE = 3


class OldOp(enum.IntEnum):
    """Operation of a transaction, versions 2 to 14
    (`docs/spec/manticore-binlog.md#10-versions-2---14-the-old-frame`).
    """

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


ZSTRING = Sole(Struct("length" / Zint(), Check(this.length < MAX_TEXT), "text" / Bytes(this.length)), "text", Text.leaf)
LOWSTRING = Sole(
    Struct("length" / LowZint(), Check(this.length < MAX_TEXT), "text" / Bytes(this.length)), "text", Text.leaf
)
"""The text of versions 2 to 4."""
DSTRING = Sole(Struct("length" / Int32ul, "text" / Bytes(this.length)), "text", Text.leaf)

META = Struct(
    "magic" / Magic(Int32ul, SPLI=META_MAGIC),
    "version" / Int32ul,
    "settings" / IfThenElse(this.version >= NEW_FRAME, Struct("digits" / Int8ul), Struct("id64" / Int8ul)),
    "count" / Zint(),
    "ext" / Array(this.count, Zint()),
    "trailing" / GreedyBytes,
)
"""`binlog.meta` (section 3). `trailing` is what the server does not look at."""

LOG_HEADER = Struct("magic" / Magic(Int32ul, SPBL=LOG_MAGIC), "version" / Int32ul)
"""Head of a log file (section 4)."""

# -- payloads --------------------------------------------------------------------------------------

MAX_ELEMENTS = 1 << 18
"""Elements of one list that are decoded one by one; a longer list is valid, and shown by its size."""


def _list(name: str, element: Construct, count: Construct | None = None, most: int = MAX_ELEMENTS) -> list[Construct]:
    """Create the members of a structure that is a count and as many elements."""
    return ["count" / (count or Zint()), Check(this.count <= most), name / Array(this.count, element)]


DOCSTORE = Struct(
    *_list("documents", Struct("length" / Zint(), Check(this.length < MAX_TEXT), "data" / Bytes(this.length)))
)


def _dwords(element: Construct) -> Struct:
    return Struct(*_list("values", element, Int32ul))


_MASKED = Struct("mask" / Int64ul, "data" / _dwords(Int32ul))
_ENDS = _dwords(Int32ul)
COLUMN = Struct(
    "type" / Magic(
        Int32ul, INTEGER=1, TIMESTAMP=2, BOOL=4, FLOAT=5, BIGINT=6, STRING=7, TOKENCOUNT=11, FLOAT_VECTOR=15,
        FLOAT_VECTOR_ARRAY=16, MVA32=0x40000001, MVA64=0x40000002,
    ),
    "data" / Switch(
        this.type,
        {
            **dict.fromkeys((1, 2, 5, 11), _MASKED),
            4: Struct("mask" / Int64ul, "data" / _dwords(Int8ul)),
            6: Struct("mask" / Int64ul, "data" / _dwords(Int64sl)),
            7: Struct("ends" / _dwords(Int64ul), "count" / Int32ul, "data" / Bytes(this.count)),
            **dict.fromkeys((15, 16, 0x40000001), Struct("ends" / _ENDS, "data" / _dwords(Int32ul))),
            0x40000002: Struct("ends" / _ENDS, "data" / _dwords(Int64sl)),
        },
    ),
)  # fmt: skip
"""One columnar attribute (section 7.6)."""


def _is_low(version: int) -> bool:
    """Check that a version writes numbers with their lowest bits first."""
    return version <= LAST_LOWEST_FIRST


def _zint(version: int) -> Construct:
    return LowZint() if _is_low(version) else Zint()


def _vector(version: int, width: int) -> Vector:
    return Vector(width, low=_is_low(version))


def _docids(version: int, ids: int) -> Construct:
    """Create the field of document ids, which have 4 bytes where binlog.meta says id64=0."""
    return Told(_vector(version, ids), QWORDS) if ids == ID64 else _vector(version, ids)


@cache
def commit(version: int, ids: int = ID64) -> Struct:
    """Create the schema of an RT commit.

    Source: `docs/spec/manticore-binlog.md#62-rt-commit-1-one-segment-of-new-rows--list-of-killed-ids`.
    """

    def sized(name: str) -> Construct:
        return name / Called(f"{name}_bytes", _vector(version, 1))

    number = _zint(version)
    segment = [
        sized("dictionary"),
        "checkpoints" / Struct(*_list("entries", Struct("offset" / number, "word" / number), number)),
        sized("doclists"),
        sized("hitlists"),
        "row_data" / Told(_vector(version, 4), ROWS),
    ]  # fmt: skip
    if version >= 13:
        segment.insert(0, "added_bytes" / Zint())
    segment.append(sized("blobs" if version >= 8 else "strings"))
    if 3 <= version < 8:
        segment.append("mva" / Called("mva_words", _vector(version, 4)))
    if version >= 4:
        segment.append(sized("keyword_checkpoints"))
    if version >= 9:
        segment += ["has_docstore" / Int8ul, "docstore" / If(this.has_docstore != 0, Told(DOCSTORE, STORED))]
    if version >= 11:
        columnar = Unwritten(Struct(*_list("attributes", COLUMN, Int32ul)))
        segment += ["has_columnar" / Int8ul, "columnar" / If(this.has_columnar != 0, columnar)]
    killed = "killed" / _docids(version, ids)
    return Struct("rows" / number, "segment" / If(this.rows != 0, Struct(*segment)), killed)


@cache
def update(version: int, ids: int = ID64) -> Struct:
    """Create the schema of an attribute update (`docs/spec/manticore-binlog.md#61-update-attributes-0`)."""
    number = _zint(version)
    attribute = Struct("name" / _text(version), "type" / Told(number, KIND))
    parts = [
        *_list("attributes", attribute, number),
        "pool" / Told(_vector(version, 4), DWORDS), "docids" / _docids(version, ids),
        "row_offsets" / Told(_vector(version, 4), DWORDS if version >= 10 else LAST_OFFSETS),
    ]  # fmt: skip
    blobs = "blobs" / Told(Vector(1), BLOBS if version >= NEW_FRAME else OLD_BLOBS)
    return Struct(*parts, *([blobs] if version >= 10 else []))


def _text(version: int) -> Sole:
    return LOWSTRING if _is_low(version) else ZSTRING if version >= NEW_FRAME else DSTRING


@cache
def query(version: int) -> Struct:
    """Create the schema of one stored query (`docs/spec/manticore-binlog.md#63-percolate-adddelete-2`)."""
    text = _text(version)
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
def pq_add_delete(version: int) -> Struct:
    """Create the schema of a percolate add/delete (`docs/spec/manticore-binlog.md#63-percolate-adddelete-2`)."""
    return Struct(
        "n_del_tags" / Zint(), Check(this.n_del_tags <= MAX_ELEMENTS), "del_tags" / Array(this.n_del_tags, Zint()),
        "n_del_ids" / Zint(), Check(this.n_del_ids <= MAX_ELEMENTS), "del_ids" / Array(this.n_del_ids, Zint()),
        "n_new" / Zint(), Check(this.n_new <= MAX_ELEMENTS), "new" / Array(this.n_new, query(version)),
    )  # fmt: skip


@cache
def pq_delete(version: int) -> Struct:
    """Create the schema of a percolate delete of versions 7 to 14."""
    ids = ["n_del_ids" / Zint(), Check(this.n_del_ids <= MAX_ELEMENTS), "del_ids" / Array(this.n_del_ids, Zint())]
    return Struct(*ids, "tags" / _text(version))


PAYLOAD = Struct(
    "op" / Magic(Int8ul, **{op.name: op.value for op in PayloadOp}),
    "body" / Switch(
        this.op,
        {
            PayloadOp.UPDATE_ATTRS.value: update(NEW_FRAME),
            PayloadOp.COMMIT.value: commit(NEW_FRAME),
            PayloadOp.PQ_ADD_DELETE.value: pq_add_delete(NEW_FRAME),
        },
    ),
)  # fmt: skip
"""Payload of an ADD_TXN, version 15 on."""

# -- frames ----------------------------------------------------------------------------------------

ADD_INDEX = Struct("id" / Zint(), "name" / ZSTRING)
ADD_TXN = Struct(
    "id" / Zint(),
    "tid" / Zint(),
    "uSize" / Int32ul,
    "payload" / Expanded(Bytes(this.uSize), PAYLOAD),
)
CACHE = Struct(
    *_list("tables", Struct("name" / ZSTRING, "min_tid" / Zint(), "max_tid" / Zint(), "flushed_tid" / Zint()))
)
ADD_CACHE = Expanded(Skipped(skip_cache, NEW_FRAME, scan=ScalarKernel(read_cache)), CACHE)


def _checked(absent: int | None) -> Struct:
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
    "check" / IfThenElse(this.op != Op.ADD_CACHE.value, _checked(None), _checked(0)),
)  # fmt: skip
"""One transaction of versions 15 and 16. The writer leaves 0 as the checksum of ADD_CACHE (section 2.3)."""

COLUMNS = ("op", "body.id", "body.tid", "covered_start", "covered_end", "check.crc32")

SINCE = {OldOp.RECONFIGURE: 5, OldOp.PQ_ADD: 7, OldOp.PQ_DELETE: 7, OldOp.PQ_ADD_DELETE: 12}
"""The version that brought an operation; the schemas accept them all, since a version may be what is damaged."""


@cache
def old_cache(version: int) -> Struct:
    """Create the schema of the body of an ADD_CACHE of versions 2 to 14."""
    number = _zint(version)
    tids = ["min_tid" / number, "max_tid" / number, "flushed_tid" / number]
    times = ["min_time" / number, "max_time" / number]
    return Struct(*_list("tables", Struct("name" / _text(version), *_generation(version), *tids, *times), number))


def _generation(version: int) -> list[Construct]:
    return ["generation" / Zint()] if version == 14 else []


@cache
def old_payload(version: int, op: OldOp, ids: int = ID64) -> Construct:
    """Create the schema of the payload of a transaction of versions 2 to 14.

    Args:
        id_size: bytes of a document id.
    """
    if op is OldOp.RECONFIGURE:
        return GreedyBytes
    if op in (OldOp.COMMIT, OldOp.UPDATE_ATTRS):
        return (commit if op is OldOp.COMMIT else update)(version, ids)
    payloads = {OldOp.PQ_ADD: query, OldOp.PQ_DELETE: pq_delete, OldOp.PQ_ADD_DELETE: pq_add_delete}
    return payloads[op](version)


_SKIP_QUERIES = {OldOp.PQ_ADD: skip_query, OldOp.PQ_DELETE: skip_pq_delete, OldOp.PQ_ADD_DELETE: skip_pq}


def _skipped(version: int, op: OldOp, ids: int) -> Skipped:
    """Create the field that finds the end of a transaction's payload, or of the table of an ADD_CACHE."""
    low = _is_low(version)
    if op is OldOp.ADD_CACHE:
        return Skipped(skip_low_cache, ids) if low else Skipped(skip_cache, version)
    if op is OldOp.COMMIT:
        return Skipped(skip_low_commit if low else skip_commit_of, version, ids)
    if op is OldOp.UPDATE_ATTRS:
        return Skipped(skip_low_update, ids) if low else Skipped(skip_update_of, version, ids)
    return Skipped(_SKIP_QUERIES[op], version)


@cache
def old_body(version: int, op: OldOp, ids: int = ID64) -> Construct:
    """Create the schema of the body of a transaction of versions 2 to 14.

    Source: `docs/spec/manticore-binlog.md#10-versions-2---14-the-old-frame`.
    """
    if op is OldOp.ADD_CACHE:
        return Expanded(_skipped(version, op, ids), old_cache(version))
    number = _zint(version)
    times = ["tid" / number, "time" / number]
    if op is OldOp.ADD_INDEX:
        return Struct("id" / number, "name" / _text(version), *_generation(version), *times)
    if op is OldOp.RECONFIGURE:
        return Struct("id" / number, *times, "payload" / Settings())
    payload = Expanded(_skipped(version, op, ids), old_payload(version, op, ids))
    return Struct("id" / number, *times, "payload" / payload)


@cache
def old_frame(version: int, ids: int = ID64) -> Struct:
    """Create the schema of one transaction of versions 2 to 14, which does not store its length."""
    bodies = Switch(this.op, {op.value: old_body(version, op, ids) for op in OldOp})
    read = read_low_body if _is_low(version) else read_body
    columns = RecordKernel(read, ("id", "tid", "time"), (version, ids))
    return Struct(
        "magic" / Magic(Int32ul, TXN=TXN_MAGIC),
        "covered_start" / Tell,
        "op" / Magic(Int8ul, **{op.name: op.value for op in OldOp}),
        "body" / Scanned(bodies, columns),
        "covered_end" / Tell,
        "crc32" / Int32ul,
        "checksum" / CrcCheck(CRC32, stored=this.crc32, start=this.covered_start, end=this.covered_end),
    )


OLD_COLUMNS = ("op", "body.id", "body.tid", "body.time", "covered_start", "covered_end", "crc32")


def frame(version: int, ids: int = ID64) -> Struct:
    """Return the frame schema of a known version.

    Args:
        ids: bytes of a document id, in versions 2 to 14.
    """
    return FRAME if version >= NEW_FRAME else old_frame(version, ids)
