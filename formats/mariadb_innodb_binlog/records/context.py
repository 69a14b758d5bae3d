"""The header of a file, and its context while it is read."""

from __future__ import annotations

import struct
from collections.abc import Callable
from typing import Any, NamedTuple

import msgspec

from binlogtool.formats.checksums import CRC32C
from binlogtool.formats.detecting import Hints, ReadableFile
from binlogtool.formats.layouts import RangeReader
from binlogtool.formats.mariadb_innodb_binlog.codes import (
    CRC_SIZE,
    HEADER_FIELDS_SIZE,
    MAGIC,
    SHORT_HEADER_SIZE,
)

_HEADER_FIELDS = struct.Struct("<IIIIQQQQQQ")
MAGIC_BYTES = MAGIC.to_bytes(4, "little")
_CRC_AT = SHORT_HEADER_SIZE - CRC_SIZE


class IbbFileHeader(NamedTuple):
    """The fields of a header page.

    Attributes:
        start_lsn: no redo record of this file has a mini-transaction before it.
        diff_state_interval: in pages.
        oob_ref_file_no, xa_ref_file_no: see docs/spec/mariadb_innodb_binlog.md#header-page; NO_FILE = none.
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
    """Parse the header fields without checking them; None if there are too few bytes."""
    return IbbFileHeader(*_HEADER_FIELDS.unpack_from(data)) if len(data) >= HEADER_FIELDS_SIZE else None


def is_short_crc_right(data: bytes | memoryview) -> bool:
    """Check the CRC of the first 512 bytes."""
    stored = bytes(data[_CRC_AT:SHORT_HEADER_SIZE])
    return len(stored) == CRC_SIZE and CRC32C(data[:_CRC_AT]) == int.from_bytes(stored, "little")


def is_page_crc_right(data: bytes | memoryview) -> bool:
    """Check the CRC at the end of a whole page."""
    end = len(data) - CRC_SIZE
    return end > 0 and CRC32C(data[:end]) == int.from_bytes(data[end:], "little")


class IbbScanSummary(msgspec.Struct):
    """What one pass over the records of a file finds.

    Attributes:
        end: offset after the last chunk.
        data_end: offset of the end mark.
        leading_type: type of the record that continues at the start.
        leading_end: where that record ends; 0 = not found.
        open_type: type of the record that continues in the next file.
        ends_with_zeros: the file ends with pages of zeros (or damaged ones).
    """

    end: int = 0
    data_end: int | None = None
    leading_type: int = 0
    leading_end: int = 0
    open_type: int = 0
    ends_with_zeros: bool = False


class IbbFileContext(msgspec.Struct):
    """What is known of one file.

    Attributes:
        number: from its name, or else its header.
        header: its fields; None if it is empty or cannot be trusted.
        starts_with_zeros: all zero at its start, as in a preallocated file.
        is_preallocated: it is empty, and its first pages have no data.
        read: reads the file itself; None for a stream.
        open_sibling: opens other files.
        shared, hints, redo: see `FileHead`.
        events: decodes the events of the groups, at level `event`.
        scan_summary: filled by the pass over the records.
        first_record: number of the first record, if the pass begins in the middle.
        declared: definitions of tables that apply there.
        earlier: returns the definitions that the files before this one carry over (see `ddl.table_history`).
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
    scan_summary: IbbScanSummary = msgspec.field(default_factory=lambda: IbbScanSummary())
    first_record: int = 0
    declared: Any = None
    earlier: Callable[[], Any] | None = None
