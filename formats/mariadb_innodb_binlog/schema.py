"""Codes and schemas of header pages, data pages and record contents, and the context of a file while it is read.

Source: MariaDB `storage/innobase/fsp/fsp_binlog.cc` (`fsp_binlog_write_rec`), `handler/innodb_binlog.cc`
(`ibb_write_header_page`), `mysys/my_compr_int.cc`. See docs/spec/mariadb_innodb_binlog.md.
"""

from __future__ import annotations

import enum
import re
import struct
from collections.abc import Callable, Mapping, Sequence
from functools import cache
from typing import Any, Final, NamedTuple

import msgspec
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
    stream_read,
    stream_write,
    this,
)

from binlogtool.format_api.format import Hints, ReadableFile
from binlogtool.format_api.layout import CRC32C, RangeReader
from binlogtool.format_api.schema_fields import (
    CompressedSchema,
    CrcCheck,
    Magic,
    MalformedError,
    NestedSchema,
    ScalarKernel,
    UInt8s,
    kernel,
    make_fields_kernel,
)
from binlogtool.formats.binlog_events.event_schemas import EVENTS, EventChecksumForm

# --- Compressed integers of InnoDB ---

MAX_SIZE = 9


@kernel()
def read_compressed_integer(buf: UInt8s, pos: int, limit: int) -> tuple[int, int]:
    """Read a compressed integer: (64-bit pattern, next position); position -1 = truncated, -2 = over 64 bits."""
    if pos >= limit:
        return 0, -1
    first = buf[pos]
    size = (first & 7) + 1
    if size > limit - pos:
        return 0, -1
    value = first >> 3
    if size == 1:
        return value, pos + 1
    if size == 8:
        if limit - pos < 9:
            return 0, -1
        if buf[pos + 8] > 7:
            return 0, -2
    for k in range(1, min(size, 8)):
        value |= buf[pos + k] << 8 * k - 3
    if size < 8:
        return value, pos + size
    value |= (buf[pos + 8] & 3) << 61
    if buf[pos + 8] & 4:
        value = value - 9223372036854775807 - 1
    return value, pos + 9


def compressed_integer_size(value: int) -> int:
    """Return the size in bytes of the shortest encoding."""
    size = (max(value.bit_length(), 1) + 3 + 7) // 8
    return size if size < 8 else MAX_SIZE


def encode_compressed_integer(value: int) -> bytes:
    """Encode a compressed integer in its shortest form, as the server does."""
    size = compressed_integer_size(value)
    return (value << 3 | min(size - 1, 7)).to_bytes(size, "little")


def parse_compressed_integer(data: bytes | memoryview, offset: int) -> tuple[int, int]:
    """Parse the integer at `data[offset]`; return (value, end position).

    Raises:
        MalformedError: the integer does not end inside the bytes, or has more than 64 bits.
    """
    value, end = read_compressed_integer(data, offset, len(data))
    if end < 0:
        reason = "does not end inside the record" if end == -1 else "has more than 64 bits"
        raise MalformedError(f"a compressed integer {reason}", finding_id="varint-overlong")
    return value & 0xFFFFFFFFFFFFFFFF, end


class CompressedInteger(Construct):  # type: ignore[misc]
    """Construct of a compressed integer."""

    scan = ScalarKernel(read_compressed_integer)

    def _parse(self, stream: Any, context: Any, path: str) -> int:
        first = stream_read(stream, 1, path)
        size = first[0] & 7
        data = first + stream_read(stream, MAX_SIZE - 1 if size == 7 else size, path)
        return parse_compressed_integer(data, 0)[0]

    def _build(self, obj: int, stream: Any, context: Any, path: str) -> int:
        data = encode_compressed_integer(obj)
        stream_write(stream, data, len(data), path)
        return obj


# --- Numbers and names of the InnoDB binlog ---

MAGIC: Final = 0x010DFEFE
VERSION_MAJOR: Final = 1

PAGE_SIZE_SHIFTS: Final = range(9, 17)
"""log2 of the page sizes that a header can declare."""
DEFAULT_PAGE_SIZE_SHIFT: Final = 14
"""log2 of the only page size that servers write today."""

CRC_SIZE: Final = 4
SHORT_HEADER_SIZE: Final = 512
"""Size of the part of the header page that has its own CRC, as if it were a page of this size."""
HEADER_FIELDS_SIZE: Final = 64
CHUNK_HEAD_SIZE: Final = 3
NO_FILE: Final = (1 << 64) - 1
"""Value of xa_ref_file_no if no file has a pending XA transaction."""

LAST_CHUNK_FLAG: Final = 0x40
CONTINUATION_FLAG: Final = 0x80
TYPE_MASK: Final = 0x3F
FILLER_BYTE: Final = 0xFF


class IbbRecordType(enum.IntEnum):
    """Bits 0 to 5 of the type byte of a chunk (docs/spec/mariadb_innodb_binlog.md#chunks-and-records)."""

    COMMIT = 1
    GTID_STATE = 2
    OOB_DATA = 3
    DUMMY = 4
    XA_PREPARE = 5
    XA_COMPLETE = 6


NESTABLE_TYPES: Final = frozenset({IbbRecordType.GTID_STATE, IbbRecordType.DUMMY})
"""Types of records that may be stored between two chunks of another record."""

_NAME = re.compile(r"binlog-(\d{1,20})\.ibb")


def file_number(name: str) -> int | None:
    """Return the number in a file's name (path ignored); None if it is not the name of a binlog file."""
    match = _NAME.fullmatch(name.rsplit("/", 1)[-1])
    return int(match[1]) if match and int(match[1]) < 1 << 64 else None


def log_stem(name: str) -> str | None:
    """Return the log that a file belongs to: always "", as a directory has one log; None for other files."""
    return None if file_number(name) is None else ""


def file_name(number: int) -> str:
    """Return the name that a server gives to a file."""
    return f"binlog-{number:06d}.ibb"


def sort_file_names(names: Sequence[str]) -> list[str]:
    """Sort file names in the order of the log."""
    return sorted(names, key=_order_key)


def _order_key(name: str) -> tuple[int, str]:
    number = file_number(name)
    return (-1 if number is None else number, name)


# --- The InnoDB binlog on disk ---

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
"""The first 512 bytes of the header page (docs/spec/mariadb_innodb_binlog.md#header-page). diff_state_interval is in
pages.
"""


def header_page_construct(page_size: int) -> Construct:
    """Return the construct of the header page: its first 512 bytes, zeros, and the CRC that every page has."""
    rest = page_size - SHORT_HEADER_SIZE - CRC_SIZE
    if rest < 0:  # a page of 512 bytes has only one CRC
        return HEADER
    return Struct(
        "page_start" / Tell,
        "header" / HEADER,
        "unused" / Bytes(rest),
        "page_end" / Tell,
        "crc32c" / Int32ul,
        "checksum" / CrcCheck(CRC32C, this.crc32c, this.page_start, this.page_end),
    )


_INT = CompressedInteger()

POSITION = Struct("file_no" / _INT, "offset" / _INT)
"""Position of the start of a record: file number, and offset of its first chunk's type byte; (0, 0) = none."""

REFERENCE = Struct("first" / POSITION, "last" / POSITION)
"""Reference to out-of-band data: the records of the first node (index 0) and the last node."""

EVENT = EVENTS[EventChecksumForm.PLAIN]
"""Event. Only FORMAT_DESCRIPTION has a checksum of its own; other events are protected by the page's CRC
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
"""Event group (docs/spec/mariadb_innodb_binlog.md#commit): its events, except for those stored out of band."""

GTID_STATE = Struct(
    "count" / _INT,
    "xa_ref_plus_1" / _INT,
    "gtid" / Array(this.count, Struct("domain_id" / _INT, "server_id" / _INT, "seq_no" / _INT)),
    "unmapped" / GreedyBytes,
)
"""Binlog state (docs/spec/mariadb_innodb_binlog.md#gtid_state)."""

OOB_DATA = Struct("node_index" / _INT, "left" / POSITION, "right" / POSITION, "data" / GreedyBytes)
"""Node of a forest of out-of-band data (docs/spec/mariadb_innodb_binlog.md#oob_data and #out-of-band-data)."""

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
    """Return the construct of a chunk; a type without suffix is a whole record, other types hold a part of one.

    See docs/spec/mariadb_innodb_binlog.md#chunks-and-records.
    """
    return Struct(
        "type" / Enum(Int8ul, **_CHUNK_TYPES),
        "length" / Int16ul,
        Check(this.length > 0),
        "data" / NestedSchema(Bytes(this.length), Switch(this.type, dict(contents))),
    )


CHUNK = chunk_construct(_CHUNK_CONTENTS)
load_chunk_head = make_fields_kernel(Struct(*CHUNK.subcons[:2]), "type", "length")
"""Reader for kernels."""

SCAN_COLUMNS = ("crc32c", "data_end")


def _build_page_construct(page_size: int, content: Construct) -> Construct:
    """Return the construct of a page of chunks; after the last chunk follow zeros, or up to three bytes ff."""
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

    `join_codec`: a codec with `located` (see `Unpacked`) that returns the whole record.
    """
    first_chunks = {
        f"{kind.name}_FIRST": CompressedSchema(RECORDS[kind], join_codec, "the first of several chunks")
        for kind in IbbRecordType
    }
    return _build_page_construct(page_size, chunk_construct({**_CHUNK_CONTENTS, **first_chunks}))


# --- The header of a file, and its context while it is read ---

_HEADER_FIELDS = struct.Struct("<IIIIQQQQQQ")
MAGIC_BYTES = MAGIC.to_bytes(4, "little")
_CRC_AT = SHORT_HEADER_SIZE - CRC_SIZE


class IbbFileHeader(NamedTuple):
    """Fields of a header page.

    `start_lsn`: all redo records of this file belong to mini-transactions from this LSN on. `diff_state_interval`: in
    pages. `oob_ref_file_no`, `xa_ref_file_no`: see docs/spec/mariadb_innodb_binlog.md#header-page; NO_FILE = none.
    """

    magic: int
    page_size_shift: int
    version_major: int
    version_minor: int
    file_no: int
    page_count: int
    start_lsn: int
    diff_state_interval: int
    oob_ref_file_no: int
    xa_ref_file_no: int


def parse_header(data: bytes | memoryview) -> IbbFileHeader | None:
    """Parse the header fields without validating them; None if there are too few bytes."""
    return IbbFileHeader(*_HEADER_FIELDS.unpack_from(data)) if len(data) >= HEADER_FIELDS_SIZE else None


def is_short_header_crc_right(data: bytes | memoryview) -> bool:
    """Return whether the CRC of the first 512 bytes is right."""
    stored = bytes(data[_CRC_AT:SHORT_HEADER_SIZE])
    return len(stored) == CRC_SIZE and CRC32C(data[:_CRC_AT]) == int.from_bytes(stored, "little")


def is_page_crc_right(data: bytes | memoryview) -> bool:
    """Return whether the CRC at the end of a whole page is right."""
    end = len(data) - CRC_SIZE
    return end > 0 and CRC32C(data[:end]) == int.from_bytes(data[end:], "little")


class IbbScanSummary(msgspec.Struct):
    """Results of one pass over the records of a file.

    `end`: offset after the last chunk. `data_end`: offset of the end mark. `leading_type`: type of the record that
    continues at the start. `leading_end`: offset at which that record ends; 0 = not found. `open_type`: type of the
    record that continues in the next file. `ends_with_zeros`: the file ends with pages of zeros (or damaged ones).
    """

    end: int = 0
    data_end: int | None = None
    leading_type: int = 0
    leading_end: int = 0
    open_type: int = 0
    ends_with_zeros: bool = False


class IbbFileContext(msgspec.Struct):
    """Context for the records of one file.

    `number`: from its name, else from its header. `header`: its header fields; None if the header is empty or cannot be
    trusted. `starts_with_zeros`: it starts with zeros, like a preallocated file. `is_preallocated`: the header is empty
    and the first pages have no data. `read`: reads the file itself; None for a stream. `open_sibling`: opens other
    files. `shared`, `hints`, `redo`: see `FileHead`. `events`: decodes the events of the groups, at level `event`.
    `scan_summary`: filled by the pass over the records. `first_record`: number of the first record, if the pass begins
    in the middle. `declared`: definitions of tables that apply there. `earlier`: returns the definitions that the files
    before this one carry over (see `ddl.table_history`).
    """

    number: int | None
    page_size: int
    header: IbbFileHeader | None
    starts_with_zeros: bool
    size: int | None
    level: str
    name: str
    max_record: int
    max_group: int
    read: RangeReader | None = None
    open_sibling: Callable[[str], RangeReader | None] | None = None
    shared: dict[str, Any] = msgspec.field(default_factory=dict)
    hints: Hints = Hints()
    redo: ReadableFile | None = None
    is_preallocated: bool = False
    events: Any = None
    scan_summary: IbbScanSummary = msgspec.field(default_factory=IbbScanSummary)
    first_record: int = 0
    declared: Any = None
    earlier: Callable[[], Any] | None = None
