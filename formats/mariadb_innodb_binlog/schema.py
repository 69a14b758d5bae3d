"""The InnoDB binlog on disk: header page, data pages of chunks, and the contents of records. All little-endian.

Source: MariaDB `storage/innobase/fsp/fsp_binlog.cc` (`fsp_binlog_write_rec`), `handler/innodb_binlog.cc`
(`ibb_write_header_page`). See docs/spec/mariadb_innodb_binlog.md.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from typing import Any

from construct import (
    Array,
    Bytes,
    Check,
    Computed,
    Construct,
    Enum,
    GreedyBytes,
    GreedyRange,
    If,
    IfThenElse,
    Int8ul,
    Int16ul,
    Int32ul,
    Int64ul,
    Struct,
    Switch,
    Tell,
    this,
)

from binlogtool.formats.binlog_events.events.schema import EVENTS, EventForm
from binlogtool.formats.checksums import CRC32C
from binlogtool.formats.fields import CompressedSchema, CrcCheck, Magic, NestedSchema
from binlogtool.formats.mariadb_innodb_binlog.codes import (
    CONTINUATION_FLAG,
    CRC_SIZE,
    HEADER_FIELDS_SIZE,
    LAST_CHUNK_FLAG,
    MAGIC,
    SHORT_HEADER_SIZE,
    TYPE_MASK,
    IbbRecordType,
)
from binlogtool.formats.mariadb_innodb_binlog.records.integers import ComprInt

HEADER = Struct(
    "start" / Tell,
    "magic" / Magic(Int32ul, ibb=MAGIC),
    "page_size_shift" / Int32ul,
    "version_major" / Int32ul,
    "version_minor" / Int32ul,
    "file_no" / Int64ul,
    "page_count" / Int64ul,
    "start_lsn" / Int64ul,
    "diff_state_interval" / Int64ul,
    "oob_ref_file_no" / Int64ul,
    "xa_ref_file_no" / Int64ul,
    "zero" / Bytes(SHORT_HEADER_SIZE - CRC_SIZE - HEADER_FIELDS_SIZE),
    "short_end" / Tell,
    "short_crc32c" / Int32ul,
    "short_checksum" / CrcCheck(CRC32C, this.short_crc32c, this.start, this.short_end),
)
"""The first 512 bytes of the header page (docs/spec/mariadb_innodb_binlog.md#header-page). diff_state_interval is
in pages.
"""


def header_page_construct(page_size: int) -> Construct:
    """Return the construct of the header page: its first 512 bytes, zeros, and the CRC of every page."""
    rest = page_size - SHORT_HEADER_SIZE - CRC_SIZE
    if rest < 0:  # a page of 512 bytes has one CRC for both
        return HEADER
    return Struct(
        "page_start" / Tell,
        "header" / HEADER,
        "unused" / Bytes(rest),
        "page_end" / Tell,
        "crc32c" / Int32ul,
        "checksum" / CrcCheck(CRC32C, this.crc32c, this.page_start, this.page_end),
    )


_INT = ComprInt()

POSITION = Struct("file_no" / _INT, "offset" / _INT)
"""Where a record starts: its file, and the offset of its first chunk's type byte in it; (0, 0) = none."""

REFERENCE = Struct("first" / POSITION, "last" / POSITION)
"""Out-of-band data: the records with node index 0 and with the highest one."""

EVENT = EVENTS[EventForm.PLAIN]
"""Events have no checksum of their own, FORMAT_DESCRIPTION apart: the page's CRC replaces it
(docs/spec/mariadb_innodb_binlog.md#payload-events).
"""

COMMIT = Struct(
    "n1" / _INT,
    "reference1" / If(this.n1 != 0, REFERENCE),
    "n2" / IfThenElse(this.n1 != 0, _INT, Computed(0)),
    "reference2" / If(this.n2 != 0, REFERENCE),
    "event" / GreedyRange(EVENT),
    "unmapped" / GreedyBytes,
)
"""An event group (docs/spec/mariadb_innodb_binlog.md#commit): its events, as far as they are not out of band."""

GTID_STATE = Struct(
    "count" / _INT,
    "xa_ref_plus_1" / _INT,
    "gtid" / Array(this.count, Struct("domain_id" / _INT, "server_id" / _INT, "seq_no" / _INT)),
    "unmapped" / GreedyBytes,
)
"""The binlog state (docs/spec/mariadb_innodb_binlog.md#gtid_state)."""

OOB_DATA = Struct("node_index" / _INT, "left" / POSITION, "right" / POSITION, "data" / GreedyBytes)
"""A node of a forest of out-of-band data (docs/spec/mariadb_innodb_binlog.md#oob_data and #out-of-band-data)."""

DUMMY = Struct("filler" / GreedyBytes)

XID = Struct(
    "format_id" / Int32ul,
    "gtrid_length" / Int8ul,
    Check(this.gtrid_length <= 64),
    "bqual_length" / Int8ul,
    Check(this.bqual_length <= 64),
    "xid" / Bytes(this.gtrid_length + this.bqual_length),
)

XA_PREPARE = Struct(
    "engine_count" / Int8ul, *XID.subcons, "num_nodes" / _INT, "reference" / REFERENCE, "unmapped" / GreedyBytes
)
XA_COMPLETE = Struct("flags" / Int8ul, *XID.subcons, "unmapped" / GreedyBytes)

RECORDS: Mapping[int, Construct] = {
    IbbRecordType.COMMIT.value: COMMIT,
    IbbRecordType.GTID_STATE.value: GTID_STATE,
    IbbRecordType.OOB_DATA.value: OOB_DATA,
    IbbRecordType.DUMMY.value: DUMMY,
    IbbRecordType.XA_PREPARE.value: XA_PREPARE,
    IbbRecordType.XA_COMPLETE.value: XA_COMPLETE,
}

_CHUNK_ROLES = {
    "": LAST_CHUNK_FLAG,
    "_FIRST": 0,
    "_MIDDLE": CONTINUATION_FLAG,
    "_LAST": CONTINUATION_FLAG | LAST_CHUNK_FLAG,
}
_CHUNK_TYPES = {f"{kind.name}{role}": kind | bits for kind in IbbRecordType for role, bits in _CHUNK_ROLES.items()}
_CHUNK_CONTENTS: Mapping[str, Construct] = {
    name: RECORDS[code & TYPE_MASK] if code & ~TYPE_MASK == LAST_CHUNK_FLAG else GreedyBytes
    for name, code in _CHUNK_TYPES.items()
}


def chunk_construct(contents: Mapping[str, Construct]) -> Construct:
    """Return the construct of a chunk; a type without suffix is a whole record, the data of others is a part of one.

    See docs/spec/mariadb_innodb_binlog.md#chunks-and-records.
    """
    return Struct(
        "type" / Enum(Int8ul, **_CHUNK_TYPES),
        "length" / Int16ul,
        Check(this.length > 0),
        "data" / NestedSchema(Bytes(this.length), Switch(this.type, dict(contents))),
    )


CHUNK = chunk_construct(_CHUNK_CONTENTS)

SCAN_COLUMNS = ("crc32c", "data_end")


def _build_page_construct(page_size: int, content: Construct) -> Construct:
    """Return the construct of a page of chunks; zeros, or up to three bytes ff, follow the last chunk."""
    chunks = Struct("chunk" / GreedyRange(content), "unused" / GreedyBytes)
    return Struct(
        "start" / Tell,
        "data" / NestedSchema(Bytes(page_size - CRC_SIZE), chunks),
        "data_end" / Tell,
        "crc32c" / Int32ul,
        "checksum" / CrcCheck(CRC32C, this.crc32c, this.start, this.data_end),
    )


@cache
def page_construct(page_size: int) -> Construct:
    """Return the construct of a data page (docs/spec/mariadb_innodb_binlog.md#page-layout)."""
    return _build_page_construct(page_size, CHUNK)


def joined_page_construct(page_size: int, join_codec: Any) -> Construct:
    """Return the construct of a data page for the annotated hexdump, which shows whole records at their first chunk.

    Args:
        join_codec: a codec with `located` (see `Unpacked`) that returns the whole record.
    """
    first_chunks = {
        f"{kind.name}_FIRST": CompressedSchema(RECORDS[kind], join_codec, "the first of several chunks")
        for kind in IbbRecordType
    }
    return _build_page_construct(page_size, chunk_construct({**_CHUNK_CONTENTS, **first_chunks}))
