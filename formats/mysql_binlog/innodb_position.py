"""Read the binary log position of InnoDB's last commit from its rollback segment headers.

MariaDB writes name and offset of the binary log into the header page of the rollback segment with each commit
(storage/innobase/trx/trx0rseg.cc: trx_rseg_update_binlog_offset); at start it takes the greatest one. MySQL 8 and later
store no position there. Pages on disk may be older than the redo log, so the position is a lower bound.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple

import msgspec

from binlogtool.findings import Finding, make_finding
from binlogtool.format_api.layout import CRC32C, RangeReader
from binlogtool.format_api.replay import ExaminedFile
from binlogtool.formats.mysql_binlog.companion_files import LogName, parse_log_name

# Offsets in pages: fil0fil.h, fsp0fsp.h, trx0sys.h, trx0rseg.h
_SPACE_ID_AT, _TYPE_AT, _KEY_VERSION_AT, _DATA_AT = 34, 24, 26, 38
_FLAGS_AT = _DATA_AT + 16
_TRX_SYS_PAGE, _SLOTS_AT, _SLOT_COUNT = 5, _DATA_AT + 18, 128
_UNDO_SLOTS_SIZE = 34 + 1024 * 4
_OFFSET_AT = _DATA_AT + _UNDO_SLOTS_SIZE + 8
_NAME_AT, _NAME_SIZE = _OFFSET_AT + 8, 512
_TYPE_SYS, _TYPE_TRX_SYS = 6, 7
_NO_PAGE = 0xFFFFFFFF
_FULL_CRC32 = 1 << 4
_DEFAULT_PAGE_SIZE, _MIN_PAGE_SIZE, _MAX_PAGE_SIZE = 16384, 4096, 65536
_MAX_UNDO_TABLESPACES = 127

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
        identity = _get_number(page, 4, 4), _get_number(page, _SPACE_ID_AT, 4), _get_number(page, _TYPE_AT, 2)
        is_encrypted = self.is_full_crc32 and _get_number(page, _KEY_VERSION_AT, 4) != 0
        return None if is_encrypted or identity != (number, space_id, page_type) else page

    def _is_valid(self, page: bytes) -> bool:
        """Return whether the checksum of a page is right: full_crc32, or crc32 with its two parts."""
        if self.is_full_crc32:
            return CRC32C(page[:-4]) == _get_number(page, self.page_size - 4, 4)
        return CRC32C(page[4:26]) ^ CRC32C(page[_DATA_AT:-8]) == _get_number(page, 0, 4)


def _get_number(data: bytes, at: int, size: int) -> int:
    return int.from_bytes(data[at : at + size], "big")


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
    for number in range(_SLOT_COUNT):
        at = _SLOTS_AT + 8 * number
        space_id, page_number = _get_number(page, at, 4), _get_number(page, at + 4, 4)
        space = None if page_number == _NO_PAGE else spaces.get(space_id)
        header = None if space is None else space.read_page(page_number, space_id, _TYPE_SYS)
        position = None if header is None else _parse_position(header)
        positions += [] if position is None else [position]
    return max(positions, key=lambda one: (one.log.number, one.offset), default=None)


def _open_tablespace(read: RangeReader | None) -> _Tablespace | None:
    """Return a tablespace by the flags in its first page; None if they are not known."""
    first = b"" if read is None else bytes(read(0, _FLAGS_AT + 4))
    if read is None or len(first) < _FLAGS_AT + 4:
        return None
    flags = _get_number(first, _FLAGS_AT, 4)
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
        yield _get_number(bytes(read(_SPACE_ID_AT, 4)), 0, 4), space


def _parse_position(header: bytes) -> InnodbPosition | None:
    """Return the position in the header page of a rollback segment; None if it has none, or is older than 10.3."""
    name = header[_NAME_AT : _NAME_AT + _NAME_SIZE].partition(b"\0")[0]
    log = parse_log_name(name) if name and name.isascii() else None
    is_new_format = _get_number(header, _DATA_AT, 4) == 0
    return InnodbPosition(log, _get_number(header, _OFFSET_AT, 8)) if log is not None and is_new_format else None


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
