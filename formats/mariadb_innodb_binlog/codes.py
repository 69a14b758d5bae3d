"""Numbers and names of the InnoDB binlog, `binlog-NNNNNN.ibb` (docs/spec/mariadb_innodb_binlog.md#files)."""

from __future__ import annotations

import enum
import re
from collections.abc import Sequence
from typing import Final

MAGIC: Final = 0x010DFEFE
VERSION_MAJOR: Final = 1

PAGE_SIZE_SHIFTS: Final = range(9, 17)
"""log2 of the page sizes that the header can name."""
DEFAULT_PAGE_SIZE_SHIFT: Final = 14
"""The only one that servers write."""

CRC_SIZE: Final = 4
SHORT_HEADER_SIZE: Final = 512
"""The header page has a second CRC, as if it were a page of this size."""
HEADER_FIELDS_SIZE: Final = 64
CHUNK_HEAD_SIZE: Final = 3
NO_FILE: Final = (1 << 64) - 1
"""xa_ref_file_no: no file has a pending XA transaction."""

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
"""Records that may stand between two chunks of another one."""

_NAME = re.compile(r"binlog-(\d{1,20})\.ibb")


def file_number(name: str) -> int | None:
    """Return the number in a file's name (path ignored); None if it is not a name of a binlog file."""
    match = _NAME.fullmatch(name.rsplit("/", 1)[-1])
    return int(match[1]) if match and int(match[1]) < 1 << 64 else None


def log_stem(name: str) -> str | None:
    """Return the log that a file belongs to: "", because a directory has one log; None if it is not a binlog file."""
    return None if file_number(name) is None else ""


def file_name(number: int) -> str:
    """Return the name that a server gives to a file."""
    return f"binlog-{number:06d}.ibb"


def sort_file_names(names: Sequence[str]) -> list[str]:
    """Sort file names in the log's order."""
    return sorted(names, key=_order_key)


def _order_key(name: str) -> tuple[int, str]:
    number = file_number(name)
    return (-1 if number is None else number, name)
