"""Parse the records of mini-transactions in the InnoDB redo log.

See docs/spec/mariadb_innodb_binlog.md#redo-records. Source: MariaDB `storage/innobase/include/mtr0types.h`,
`log/log0recv.cc` (`log_parse_start`, `recv_sys_t::parse_tail`, `log_phys_t::apply`).
"""

from __future__ import annotations

import enum
from collections.abc import Iterator
from typing import NamedTuple

from binlogtool.format_api.schema_fields import MalformedError

# --- Constants and codes of the InnoDB redo log (MariaDB `log0log.h`, `mtr0types.h`) ---

HEADER_SIZE = 512
START_OFFSET = 12288
"""Offset of the ring of mini-transactions; also the lowest first_lsn (FIRST_LSN)."""

CHECKPOINT_OFFSETS = (4096, 8192)
CHECKPOINT_SIZE = 64

MTR_SIZE_MAX = 1 << 20
"""Upper limit (exclusive) for the size of a mini-transaction's records, and for the additional length of one record."""

CRC_SIZE = 4
NONCE_SIZE = 8
"""Bytes between the end byte and the CRC of a mini-transaction in an encrypted log."""

CHECKPOINT_RECORD_SIZE = 16
"""Size of a mini-transaction that consists of one FILE_CHECKPOINT (SIZE_OF_FILE_CHECKPOINT)."""

FIL_PAGE_TYPE = 24
"""Current byte offset in the page after INIT_PAGE and EXTENDED records."""

PAGE_SIZE_MAX = 65536

BINLOG_SPACES = (0xFFFFFFF0, 0xFFFFFFF1)
"""Tablespace ids of the binlog files with an even and an odd number (LOG_BINLOG_ID_0, LOG_BINLOG_ID_1)."""

BINLOG_WRITE_END = 65535
"""Page offset before which every binlog write ends."""

TYPE_MASK = 0x70
"""Bits of a record's first byte that hold its type; bit 7 is SAME_PAGE, bits 0..3 are the length."""

SAME_PAGE = 0x80


class RedoLogFormat(enum.IntEnum):
    """First field of the file. Formats before 10.8 are listed only to be rejected.

    See docs/spec/mariadb_innodb_binlog.md#redo-file-header.
    """

    FORMAT_3_23 = 0
    FORMAT_10_2 = 1
    FORMAT_10_3 = 103
    FORMAT_10_4 = 104
    FORMAT_10_5 = 0x50485953
    FORMAT_10_8 = 0x50687973
    FORMAT_ENC_11 = 0xF09F979D


FORMAT_ENCRYPTED = 1 << 31
"""Flag of an encrypted log in the formats 10.2 to 10.5."""

FORMAT_RELEASES = {
    RedoLogFormat.FORMAT_3_23: "MySQL 3.23 to 5.6 or MariaDB up to 10.1",
    RedoLogFormat.FORMAT_10_2: "MariaDB 10.2",
    RedoLogFormat.FORMAT_10_3: "MariaDB 10.3",
    RedoLogFormat.FORMAT_10_4: "MariaDB 10.4",
    RedoLogFormat.FORMAT_10_5: "MariaDB 10.5 to 10.7",
}
"""Releases that wrote the formats that cannot hold binlog records."""


class RedoRecordType(enum.IntEnum):
    """Record types: of page records by bits 4..6, of file records by bits 4..7 of the first byte.

    See docs/spec/mariadb_innodb_binlog.md#redo-records.
    """

    FREE_PAGE = 0x00
    INIT_PAGE = 0x10
    EXTENDED = 0x20
    WRITE = 0x30
    MEMSET = 0x40
    MEMMOVE = 0x50
    RESERVED = 0x60
    OPTION = 0x70
    FILE_CREATE = 0x80
    FILE_DELETE = 0x90
    FILE_RENAME = 0xA0
    FILE_MODIFY = 0xB0
    FILE_CHECKPOINT = 0xF0


TRIM_PAGES = 10
"""Subtype of an EXTENDED record; after it no page is current (`mrec_ext_t`)."""

# --- Varint of the redo log ---

_VARINT_SIZES = bytes([1] * 128 + [2] * 64 + [3] * 32 + [4] * 16 + [5] * 8 + [0] * 8)
"""Size of a varint in bytes, by its first byte; 0 = reserved."""
_BASES = (0, 128, 16512, 2113664, 270549120)
_PREFIXES = (0x00, 0x80, 0xC0, 0xE0, 0xF0)


def read_varint(data: bytes, pos: int, limit: int) -> tuple[int, int]:
    """Read a varint: (value, next position); position -1 = truncated, -2 = reserved first byte or over 32 bits."""
    if pos >= limit:
        return 0, -1
    size = _VARINT_SIZES[data[pos]]
    if size == 1:
        return data[pos], pos + 1
    end = pos + size
    if size == 0 or end > limit:
        return 0, -1 if size else -2
    stored = int.from_bytes(data[pos:end], "big")
    value = stored - (_PREFIXES[size - 1] << 8 * (size - 1)) + _BASES[size - 1]
    return (value, end) if value <= 0xFFFFFFFF else (0, -2)


def encode_varint(value: int) -> bytes:
    """Encode a value from 0 to 2**32 - 1; each value has only one encoding."""
    size = max(size for size, base in enumerate(_BASES, 1) if value >= base)
    data = bytearray((value - _BASES[size - 1]).to_bytes(size, "big"))
    data[0] |= _PREFIXES[size - 1]
    return bytes(data)


# --- Records of a mini-transaction ---

_NO_OFFSET = -1
"""Value of the current byte offset if the next record must not be same_page."""


def find_record_end(data: bytes, pos: int, limit: int) -> int:
    """Return the end of the record at `pos`; -1 = it does not end before `limit`, -2 = its length is impossible.

    `data[pos]` must be greater than 1 (0 and 1 are the end byte of the mini-transaction).
    """
    size = data[pos] & 15
    pos += 1
    if size == 0:
        start = pos
        extra, pos = read_varint(data, pos, limit)
        if pos < 0:
            return pos
        if pos - start > 3 or extra >= MTR_SIZE_MAX:
            return -2
        size = extra + 15 - (pos - start)
    return -1 if size > limit - pos else pos + size


def find_end_byte_after_records(data: bytes, pos: int, limit: int) -> int:
    """Return the position of the end byte after the records at `pos`.

    -1 = it is not before `limit`; -2 = a bad length, no record, or at least MTR_SIZE_MAX bytes of records.
    """
    start = pos
    while pos < limit:
        if data[pos] <= 1:
            return pos if pos > start else -2
        pos = find_record_end(data, pos, limit)
        if pos < 0:
            return pos
        if pos - start >= MTR_SIZE_MAX:
            return -2
    return -1


class RedoRecord(NamedTuple):
    """One redo record; fields that its type does not have are None (numbers) or empty.

    `lsn`: LSN of its first byte. `size`: in bytes. `offset`, `length`: range of the page that it changes; the offset
    counts from the start of the page. `data`: the bytes of a WRITE; the pattern of a MEMSET, repeated over the range;
    the bytes after the subtype of an EXTENDED or OPTION; the names in a file record. `source`: page offset that a
    MEMMOVE copies from. `checkpoint_lsn`: of a FILE_CHECKPOINT, None for its padding form. `problem`: why the server
    would consider the record corrupted; "" = sound.
    """

    type: RedoRecordType
    lsn: int
    size: int
    space_id: int | None = None
    page_no: int | None = None
    same_page: bool = False
    subtype: int | None = None
    offset: int | None = None
    length: int = 0
    source: int | None = None
    data: bytes = b""
    checkpoint_lsn: int | None = None
    problem: str = ""

    @property
    def file_names(self) -> tuple[str, ...]:
        """File names of a file record: one name, or two for FILE_RENAME (old, new)."""
        if self.type not in FILE_TYPES:
            return ()
        return tuple(name.decode("utf-8", "backslashreplace") for name in self.data.split(b"\0") if name)


FILE_TYPES = frozenset(
    {RedoRecordType.FILE_CREATE, RedoRecordType.FILE_DELETE, RedoRecordType.FILE_RENAME, RedoRecordType.FILE_MODIFY}
)
_RANGE_TYPES = (RedoRecordType.WRITE, RedoRecordType.MEMSET, RedoRecordType.MEMMOVE)
_TYPES = {int(type_): type_ for type_ in RedoRecordType}


def decode_redo_records(body: bytes, lsn: int) -> Iterator[RedoRecord]:
    """Decode the records of one mini-transaction.

    A record with wrong content has a `problem`; the next record is found by its length. Ends early only at a length
    that cannot be decoded (never after `find_end_byte_after_records` accepted the bytes).

    Args:
        body: all bytes of the mini-transaction before the end byte.
        lsn: LSN of the first byte.
    """
    offset, decoder = 0, _PageRecordDecoder()
    while offset < len(body) and body[offset] > 1:
        end = find_record_end(body, offset, len(body))
        if end < 0:
            return
        yield decoder.decode_record(body, offset, end, lsn + offset)
        offset = end


class _PageRecordDecoder:
    """Decoder of page records, with the state passed from record to record: the page, the end of the last write."""

    def __init__(self) -> None:
        self.space_id: int | None = None
        self.page_no: int | None = None
        self.offset = 0
        self.seen_page_record = False

    def decode_record(self, body: bytes, record_at: int, end: int, lsn: int) -> RedoRecord:
        """Decode the record at `body[record_at:end]`."""
        first_byte = body[record_at]
        content_at = record_at + 1 if first_byte & 15 else read_varint(body, record_at + 1, end)[1]
        is_same_page = first_byte >= SAME_PAGE
        if is_same_page and not self.seen_page_record:
            return _decode_file_record(body, first_byte, content_at, end, lsn, end - record_at)
        record_type = _TYPES[first_byte & TYPE_MASK]
        try:
            if not is_same_page:
                self.seen_page_record, self.offset, self.space_id, self.page_no = True, _NO_OFFSET, None, None
                self.space_id, self.page_no, content_at = _read_space_and_page_number(body, content_at, end)
                self.offset = 0
            head = _RedoRecordHead(record_type, lsn, end - record_at, self.space_id, self.page_no, is_same_page)
            return self._decode_page_record(head, body, content_at, end)
        except MalformedError as error:
            self.offset = _NO_OFFSET
            return RedoRecord(
                record_type, lsn, end - record_at, self.space_id, self.page_no, is_same_page, problem=str(error.args[0])
            )

    def _decode_page_record(self, head: _RedoRecordHead, body: bytes, content_at: int, end: int) -> RedoRecord:
        record_type = head.type
        if record_type in _RANGE_TYPES:
            return self._decode_range_change(head, body, content_at, end)
        if record_type is RedoRecordType.FREE_PAGE or record_type is RedoRecordType.INIT_PAGE:
            _require(not head.same_page and content_at == end, f"{record_type.name} has more than a page id")
            self.offset = FIL_PAGE_TYPE if record_type is RedoRecordType.INIT_PAGE else _NO_OFFSET
            return RedoRecord(*head)
        _require(record_type is not RedoRecordType.RESERVED, "a record of the reserved type")
        if record_type is RedoRecordType.EXTENDED:
            _require(content_at < end, "EXTENDED without a subtype")
            self.offset = _NO_OFFSET if body[content_at] == TRIM_PAGES else FIL_PAGE_TYPE
        return RedoRecord(*head, body[content_at] if content_at < end else None, data=body[content_at + 1 : end])

    def _decode_range_change(self, head: _RedoRecordHead, body: bytes, pos: int, end: int) -> RedoRecord:
        """Decode a WRITE, MEMSET or MEMMOVE record, which changes a range of the page."""
        _require(self.offset != _NO_OFFSET, "same_page after a record that ends its page")
        delta, pos = _read_number(body, pos, end)
        offset, length, source = self.offset + delta, end - pos, None
        if head.type is not RedoRecordType.WRITE:
            length, pos = _read_number(body, pos, end)
        if head.type is RedoRecordType.MEMMOVE:
            coded, pos = _read_number(body, pos, end)
            source = offset - (coded >> 1) - 1 if coded & 1 else offset + (coded >> 1) + 1
            _require(pos == end and source >= 0, "MEMMOVE with a bad source")
        else:
            _require(pos < end, "a write without data")
        _require(max(offset, source or 0) + length <= PAGE_SIZE_MAX, "a write beyond the end of the page")
        self.offset = offset + length
        return RedoRecord(*head, None, offset, length, source, body[pos:end])


class _RedoRecordHead(NamedTuple):
    """First fields of a `RedoRecord`."""

    type: RedoRecordType
    lsn: int
    size: int
    space_id: int | None
    page_no: int | None
    same_page: bool


def _decode_file_record(body: bytes, first_byte: int, pos: int, end: int, lsn: int, size: int) -> RedoRecord:
    """Decode a file record (they precede all page records of a mini-transaction)."""
    record_type = _TYPES.get(first_byte & 0xF0)
    if record_type is None:
        return RedoRecord(
            RedoRecordType.RESERVED, lsn, size, same_page=True, problem=f"{first_byte:#04x} is not a file record"
        )
    record = RedoRecord(record_type, lsn, size, same_page=True)
    if record_type is RedoRecordType.FILE_CHECKPOINT and not any(body[pos:end]):
        return record  # padding
    try:
        space_id, page_no, pos = _read_space_and_page_number(body, pos, end)
        record = record._replace(space_id=space_id, page_no=page_no, data=body[pos:end])
        _require(page_no == 0, f"{record_type.name} names a page")
        if record_type is RedoRecordType.FILE_CHECKPOINT:
            _require(space_id == 0 and end - pos == 8, "FILE_CHECKPOINT of another length")
            _require(end == len(body), "FILE_CHECKPOINT is not the last record of its mini-transaction")
            return record._replace(checkpoint_lsn=int.from_bytes(body[pos:end], "big"))
        name_count = 2 if record_type is RedoRecordType.FILE_RENAME else 1
        _require(
            space_id != 0 and len(record.data.split(b"\0")) == name_count, f"{record_type.name} with bad file names"
        )
    except MalformedError as error:
        return record._replace(problem=str(error.args[0]))
    return record


def _read_space_and_page_number(body: bytes, pos: int, end: int) -> tuple[int, int, int]:
    space_id, pos = _read_number(body, pos, end, 5)
    page_no, pos = _read_number(body, pos, end, 5)
    return space_id, page_no, pos


def _read_number(body: bytes, pos: int, end: int, max_bytes: int = 3) -> tuple[int, int]:
    value, number_end = read_varint(body, pos, end)
    _require(0 <= number_end <= pos + max_bytes, "a number that is truncated or too long")
    return value, number_end


def _require(condition: bool, text: str) -> None:
    if not condition:
        raise MalformedError(text)
