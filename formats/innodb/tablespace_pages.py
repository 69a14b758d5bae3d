"""Read pages of InnoDB's system tablespace and its undo tablespaces, as they are on disk.

Source: MariaDB `storage/innobase/include` fil0fil.h, fsp0fsp.h, trx0sys.h, trx0rseg.h, trx0undo.h.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from struct import iter_unpack
from typing import Any, NamedTuple

from construct import Array, Bytes, Int8ub, Int16ub, Int32ub, Int64ub, Int64ul, Struct

from binlogtool.format_api.layout import CRC32C, RangeReader

TRX_SYS_PAGE, TYPE_UNDO_LOG, TYPE_SYS, TYPE_TRX_SYS = 5, 2, 6, 7
NO_PAGE = 0xFFFFFFFF
_SLOT_COUNT = 128
_FULL_CRC32 = 1 << 4
_DEFAULT_PAGE_SIZE, _MIN_PAGE_SIZE, _MAX_PAGE_SIZE = 16384, 4096, 65536
_MAX_UNDO_TABLESPACES = 127

PAGE_HEADER = Struct(
    "checksum" / Int32ub, "page_number" / Int32ub, "previous" / Int32ub, "next" / Int32ub, "lsn" / Int64ub,
    "type" / Int16ub, "key_version" / Int32ub, "key_checksum" / Int32ub, "space_id" / Int32ub,
)  # fmt: skip
"""Header of an InnoDB page (fil0fil.h)."""
FIRST_PAGE = Struct(
    "page" / PAGE_HEADER, "space_id" / Int32ub, "unused" / Int32ub, "size" / Int32ub, "free_limit" / Int32ub,
    "flags" / Int32ub,
)  # fmt: skip
"""Beginning of the first page of a tablespace (fsp0fsp.h)."""
TRANSACTION_SYSTEM = Struct(
    "page" / PAGE_HEADER, "max_trx_id" / Int64ub, "file_segment" / Bytes(10),
    "slots" / Array(_SLOT_COUNT, Struct("space_id" / Int32ub, "page_number" / Int32ub)),
)  # fmt: skip
"""Page of the transaction system: where the rollback segments are (trx0sys.h)."""
UNDO_SEGMENT = Struct(
    "page" / PAGE_HEADER, "undo_type" / Int16ub, "start" / Int16ub, "free" / Int16ub, "list_node" / Bytes(12),
    "state" / Int16ub, "last_log" / Int16ub,
)  # fmt: skip
"""Beginning of the first page of an undo log segment (trx0undo.h): `last_log`: offset of its last undo log header."""
UNDO_LOG_HEADER = Struct(
    "trx_id" / Int64ub, "trx_no" / Int64ub, "needs_purge" / Int16ub, "log_start" / Int16ub, "has_xid" / Int8ub,
    "is_dictionary" / Int8ub, "table_id" / Int64ub, "next_log" / Int16ub, "previous_log" / Int16ub,
    "history_node" / Bytes(12), "xa_format" / Int32ub, "gtrid_length" / Int32ub, "bqual_length" / Int32ub,
    "xid" / Bytes(128),
)  # fmt: skip
"""Header of an undo log with the XID of its transaction (trx0undo.h)."""

OWN_XID = Struct("prefix" / Bytes(8), "server_id" / Int64ul, "number" / Int64ul)
"""XID of a transaction that the server prepared for its binary log (`xid_t::set`)."""


def make_rollback_segment(page_size: int) -> Struct[Any, Any]:
    """Return the structure of the header page of a rollback segment (trx0rseg.h); see `iter_undo_slots`."""
    return Struct(
        "page" / PAGE_HEADER, "format" / Int32ub, "history_size" / Int32ub, "history" / Bytes(16),
        "file_segment" / Bytes(10), "undo_slots" / Bytes(page_size // 16 * 4), "max_trx_id" / Int64ub,
        "binlog_offset" / Int64ub, "binlog_name" / Bytes(512),
    )  # fmt: skip


def iter_undo_slots(slots: bytes) -> Iterator[int]:
    """Yield the numbers of the undo pages in the slots of a rollback segment."""
    if slots.strip(b"\xff"):
        yield from (number for (number,) in iter_unpack(">I", slots) if number != NO_PAGE)


OpenSibling = Callable[[str], RangeReader | None]
"""name -> reader of a file in the data directory; None = it does not exist."""


class Tablespace(NamedTuple):
    """A tablespace, which is one file."""

    read: RangeReader
    page_size: int
    is_full_crc32: bool

    def read_page(self, number: int, space_id: int, page_type: int) -> bytes | None:
        """Return a page if it is whole, not encrypted, and of this type."""
        page = self.read_valid_page(number, space_id)
        return page if page is not None and PAGE_HEADER.parse(page).type == page_type else None

    def read_valid_page(self, number: int, space_id: int) -> bytes | None:
        """Return a page of any type if it is whole and not encrypted."""
        page = bytes(self.read(number * self.page_size, self.page_size))
        if len(page) < self.page_size or not self._is_checksum_right(page):
            return None
        header = PAGE_HEADER.parse(page)
        is_encrypted = self.is_full_crc32 and header.key_version != 0
        return None if is_encrypted or (header.page_number, header.space_id) != (number, space_id) else page

    def _is_checksum_right(self, page: bytes) -> bool:
        """Return whether the checksum of a page is right: full_crc32, or crc32 with its two parts."""
        if self.is_full_crc32:
            return bool(CRC32C(page[:-4]) == Int32ub.parse(page[-4:]))
        header_size = PAGE_HEADER.sizeof()
        return bool(CRC32C(page[4:26]) ^ CRC32C(page[header_size:-8]) == PAGE_HEADER.parse(page).checksum)


def open_system_tablespaces(open_sibling: OpenSibling) -> dict[int, Tablespace]:
    """Return the system tablespace and the undo tablespaces by their ids; empty without the system tablespace."""
    system = _open_tablespace(open_sibling("ibdata1"))
    return {} if system is None else {0: system, **dict(_open_undo_tablespaces(open_sibling))}


def _open_tablespace(read: RangeReader | None) -> Tablespace | None:
    """Return a tablespace by the flags in its first page; None if they are not known."""
    first = b"" if read is None else bytes(read(0, FIRST_PAGE.sizeof()))
    if read is None or len(first) < FIRST_PAGE.sizeof():
        return None
    flags = FIRST_PAGE.parse(first).flags
    is_full_crc32 = bool(flags & _FULL_CRC32)
    size_code = flags & 15 if is_full_crc32 else flags >> 6 & 15
    page_size = 512 << size_code if size_code else _DEFAULT_PAGE_SIZE
    if not _MIN_PAGE_SIZE <= page_size <= _MAX_PAGE_SIZE:
        return None
    return Tablespace(read, page_size, is_full_crc32)


def _open_undo_tablespaces(open_sibling: OpenSibling) -> Iterator[tuple[int, Tablespace]]:
    """Yield the undo tablespaces of the data directory by their numbers."""
    for number in range(1, _MAX_UNDO_TABLESPACES + 1):
        read = open_sibling(f"undo{number:03}")
        space = _open_tablespace(read)
        if read is None or space is None:
            return
        yield PAGE_HEADER.parse(bytes(read(0, PAGE_HEADER.sizeof()))).space_id, space
