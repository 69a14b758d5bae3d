"""What the head of a file says, and what is known of a file while it is read."""

from __future__ import annotations

import struct
from collections.abc import Callable
from typing import Any, NamedTuple

import msgspec

from binlogtool.formats.checksums import CRC32C
from binlogtool.formats.detecting import Hints, Readable
from binlogtool.formats.layouts import Read
from binlogtool.formats.mariadb_innodb_binlog.codes import (
    CRC_SIZE,
    FIELDS_SIZE,
    MAGIC,
    SHORT_HEADER,
)

_FIELDS = struct.Struct("<IIIIQQQQQQ")
MAGIC_BYTES = MAGIC.to_bytes(4, "little")
_CRC_AT = SHORT_HEADER - CRC_SIZE


class FileHeader(NamedTuple):
    """The fields of a header page. start_lsn: every redo record of this file has a mini-transaction from it on.

    diff_state_interval: in pages. oob_ref_file_no, xa_ref_file_no: see section 3; NO_FILE = none.
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


def parse_header(data: bytes | memoryview) -> FileHeader | None:
    """The fields, right or wrong; None if there are fewer bytes."""
    return FileHeader(*_FIELDS.unpack_from(data)) if len(data) >= FIELDS_SIZE else None


def short_crc_right(data: bytes | memoryview) -> bool:
    """Is the CRC of the first 512 bytes right?"""
    stored = bytes(data[_CRC_AT:SHORT_HEADER])
    return len(stored) == CRC_SIZE and CRC32C(data[:_CRC_AT]) == int.from_bytes(stored, "little")


def page_crc_right(data: bytes | memoryview) -> bool:
    """Is the CRC at the end of these bytes, a whole page, right?"""
    end = len(data) - CRC_SIZE
    return end > 0 and CRC32C(data[:end]) == int.from_bytes(data[end:], "little")


class Seen(msgspec.Struct):
    """What one pass over the records of a file finds. end: behind the last chunk; data_end: offset of the end mark.

    leading: type of the record that goes on at the start; leading_end: where it ends, 0 = not seen. open: type of the
    one that goes on in the next file. zeros: pages of zeros (or damaged ones) stand at the end.
    """

    end: int = 0
    data_end: int | None = None
    leading: int = 0
    leading_end: int = 0
    open: int = 0
    zeros: bool = False


class FileContext(msgspec.Struct):
    """What is known of one file.

    number: from its name, or else its header. header: its fields; None if it is empty or cannot be trusted. empty: all
    zero at its start, as a server leaves it in reserve; reserve: and no data in its first pages. read: the file itself,
    None for a stream. beside: other files. shared, hints, redo: see `Head`. events: what decodes the events of the
    groups, at level `event`. seen: filled by the pass over the records. first_record: number of the first one, where
    the pass begins in the middle; declared: the definitions of tables that hold there. earlier: those that
    the files before this one carry over (see `ddl.table_history`).
    """

    number: int | None
    page_size: int
    header: FileHeader | None
    empty: bool
    size: int | None
    level: str
    name: str
    max_record: int
    max_group: int
    read: Read | None = None
    beside: Callable[[str], Read | None] | None = None
    shared: dict[str, Any] = msgspec.field(default_factory=dict)
    hints: Hints = Hints()
    redo: Readable | None = None
    reserve: bool = False
    events: Any = None
    seen: Seen = msgspec.field(default_factory=lambda: Seen())
    first_record: int = 0
    declared: Any = None
    earlier: Callable[[], Any] | None = None
