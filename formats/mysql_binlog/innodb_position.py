"""Read the binary log position of InnoDB's last commit from its rollback segment headers.

MariaDB writes name and offset of the binary log into the header page of the rollback segment with each commit
(storage/innobase/trx/trx0rseg.cc: trx_rseg_update_binlog_offset); at start it takes the greatest one. MySQL 8 and later
store no position there. Pages on disk may be older than the redo log, so the position is a lower bound.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple

import msgspec
from construct import Array, Bytes, Int16ub, Int32ub, Int64ub, Struct

from binlogtool.findings import Finding, make_finding
from binlogtool.format_api.layout import CRC32C, RangeReader
from binlogtool.format_api.replay import ExaminedFile
from binlogtool.formats.mysql_binlog.companion_files import LogName, parse_log_name

_TRX_SYS_PAGE, _SLOT_COUNT = 5, 128
_TYPE_SYS, _TYPE_TRX_SYS = 6, 7
_NO_PAGE = 0xFFFFFFFF
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


def make_rollback_segment(page_size: int) -> Struct[Any, Any]:
    """Return the structure of the header page of a rollback segment (trx0rseg.h)."""
    return Struct(
        "page" / PAGE_HEADER, "format" / Int32ub, "history_size" / Int32ub, "history" / Bytes(16),
        "file_segment" / Bytes(10), "undo_slots" / Array(page_size // 16, Int32ub), "max_trx_id" / Int64ub,
        "binlog_offset" / Int64ub, "binlog_name" / Bytes(512),
    )  # fmt: skip


OpenSibling = Callable[[str], RangeReader | None]


class InnodbPosition(NamedTuple):
    """Position in the binary log at which InnoDB has committed at least."""

    log: LogName
    offset: int

    @property
    def text(self) -> str:
        """The position as FILE:OFFSET."""
        return f"{self.log.name}:{self.offset}"


class _Tablespace(NamedTuple):
    read: RangeReader
    page_size: int
    is_full_crc32: bool

    def read_page(self, number: int, space_id: int, page_type: int) -> bytes | None:
        """Return a page if it is whole, not encrypted, and what it should be."""
        page = bytes(self.read(number * self.page_size, self.page_size))
        if len(page) < self.page_size or not self._is_valid(page):
            return None
        header = PAGE_HEADER.parse(page)
        is_encrypted = self.is_full_crc32 and header.key_version != 0
        identity = header.page_number, header.space_id, header.type
        return None if is_encrypted or identity != (number, space_id, page_type) else page

    def _is_valid(self, page: bytes) -> bool:
        """Return whether the checksum of a page is right: full_crc32, or crc32 with its two parts."""
        if self.is_full_crc32:
            return bool(CRC32C(page[:-4]) == Int32ub.parse(page[-4:]))
        header_size = PAGE_HEADER.sizeof()
        return bool(CRC32C(page[4:26]) ^ CRC32C(page[header_size:-8]) == PAGE_HEADER.parse(page).checksum)


def read_innodb_position(open_sibling: OpenSibling) -> InnodbPosition | None:
    """Return the greatest position in the rollback segment headers of `ibdata1` and its undo tablespaces.

    Args:
        open_sibling: name -> reader of a file in the data directory; None = it does not exist.
    """
    system = _open_tablespace(open_sibling("ibdata1"))
    page = None if system is None else system.read_page(_TRX_SYS_PAGE, 0, _TYPE_TRX_SYS)
    if system is None or page is None:
        return None
    spaces = {0: system, **dict(_open_undo_tablespaces(open_sibling))}
    positions = []
    for slot in TRANSACTION_SYSTEM.parse(page).slots:
        space = None if slot.page_number == _NO_PAGE else spaces.get(slot.space_id)
        header = None if space is None else space.read_page(slot.page_number, slot.space_id, _TYPE_SYS)
        position = None if space is None or header is None else _parse_position(header, space.page_size)
        positions += [] if position is None else [position]
    return max(positions, key=lambda one: (one.log.number, one.offset), default=None)


def _open_tablespace(read: RangeReader | None) -> _Tablespace | None:
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
    return _Tablespace(read, page_size, is_full_crc32)


def _open_undo_tablespaces(open_sibling: OpenSibling) -> Iterator[tuple[int, _Tablespace]]:
    """Yield the undo tablespaces of the data directory by their numbers."""
    for number in range(1, _MAX_UNDO_TABLESPACES + 1):
        read = open_sibling(f"undo{number:03}")
        space = _open_tablespace(read)
        if read is None or space is None:
            return
        yield PAGE_HEADER.parse(bytes(read(0, PAGE_HEADER.sizeof()))).space_id, space


def _parse_position(page: bytes, page_size: int) -> InnodbPosition | None:
    """Return the position in the header page of a rollback segment; None if it has none, or is older than 10.3."""
    header = make_rollback_segment(page_size).parse(page)
    name = header.binlog_name.partition(b"\0")[0]
    log = parse_log_name(name) if name and name.isascii() else None
    return InnodbPosition(log, header.binlog_offset) if log is not None and header.format == 0 else None


# --- Comparison with the binary log ---

_TORN_IDS = ("torn-tail", "zero-tail", "garbage-tail")


class InnodbComparison(msgspec.Struct, frozen=True):
    """Position of InnoDB and what the binary log has of it.

    Attributes:
        missing: Name of the log that is needed and does not exist; None if it exists.
        missing_bytes: Number of bytes between the end of the log and the position; 0 if it reaches the position.
        is_certain: The logs were not started anew: the first one has another number than 1.
    """

    position: InnodbPosition
    missing: str | None = None
    missing_bytes: int = 0
    is_certain: bool = False

    def as_details(self) -> dict[str, object]:
        """Return the JSON value."""
        return {"committed_to": self.position.text, "missing": self.missing, "missing_bytes": self.missing_bytes,
                "text": self.describe()}  # fmt: skip

    def describe(self) -> str:
        """Return one sentence about it."""
        text = f"InnoDB has committed at least up to {self.position.text} (its pages may be older than its redo log)"
        if self.missing is None and not self.missing_bytes:
            return text
        what = (
            f"the log ends {self.missing_bytes:,} bytes before that"
            if self.missing is None
            else f"{self.missing} is missing"
        )
        loss = "the transactions there are lost for replicas and point-in-time recovery, although InnoDB has them"
        doubt = "" if self.is_certain else "no loss if the logs were reset (RESET MASTER) since; else "
        return f"{text}; {what}: {doubt}{loss}"

    def make_finding(self) -> Finding | None:
        """Return the finding about a certain loss, else None."""
        if not self.is_certain or not (self.missing or self.missing_bytes):
            return None
        return make_finding("silent-loss", None, 0, self.describe(), situation="apply")


def compare_with_innodb(files: Sequence[ExaminedFile], open_sibling: OpenSibling) -> InnodbComparison | None:
    """Compare the logs of a data directory with the position of InnoDB; None if it stores none for these logs."""
    position = read_innodb_position(open_sibling)
    logs = {name: file for file in files if (name := parse_log_name(file.name)) is not None}
    if position is None or not any(name.base == position.log.base for name in logs):
        return None
    numbers = [name.number for name in logs if name.base == position.log.base]
    is_certain = min(numbers) > 1
    log_file = next((file for name, file in logs.items() if name == position.log), None)
    if log_file is None:
        is_purged = position.log.number < min(numbers)
        return InnodbComparison(position, None if is_purged else position.log.name, 0, is_certain)
    end = min((one.offset for one in log_file.findings if one.id in _TORN_IDS and one.offset is not None),
              default=log_file.size)  # fmt: skip
    return InnodbComparison(position, None, max(0, position.offset - min(end, log_file.size)), is_certain)
