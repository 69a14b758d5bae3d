"""Decode the records of a mini-transaction.

See docs/spec/mariadb_innodb_binlog.md#redo-records. Source: MariaDB `storage/innobase/include/mtr0types.h`,
`log/log0recv.cc` (`log_parse_start`, `recv_sys_t::parse_tail`, `log_phys_t::apply`).
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from binlogtool.formats.fields import MalformedError, kernel
from binlogtool.formats.kernel_types import UInt8s
from binlogtool.formats.mariadb_innodb_binlog.redo.codes import (
    FIL_PAGE_TYPE,
    PAGE_SIZE_MAX,
    SAME_PAGE,
    TYPE_MASK,
    ExtendedType,
    RedoRecordType,
)
from binlogtool.formats.mariadb_innodb_binlog.redo.varint import read_varint

_NO_OFFSET = -1
"""In place of the current byte offset: the next record must not be same_page."""


@kernel(read_varint)
def find_record_end(buf: UInt8s, pos: int, limit: int) -> int:
    """Find the end of the record at `pos`; -1 = not before `limit`, -2 = an impossible length.

    `buf[pos]` must be greater than 1 (0 and 1 are the end byte of the mini-transaction).
    """
    size: int = buf[pos] & 15
    pos += 1
    if size == 0:
        start = pos
        extra, pos = read_varint(buf, pos, limit)
        if pos < 0:
            return pos
        if pos - start > 3 or extra >= 1048576:
            return -2
        size = extra + 15 - (pos - start)
    if size > limit - pos:
        return -1
    return pos + size


@kernel(find_record_end)
def find_records_end(buf: UInt8s, pos: int, limit: int) -> tuple[int, int]:
    """Return (number of records at `pos`, position of the end byte after them).

    The position is -1 if the end byte is not before `limit`, -2 for a bad length, no record, or MTR_SIZE_MAX bytes of
    them.
    """
    start = pos
    count = 0
    while pos < limit:
        if buf[pos] <= 1:
            if count == 0:
                return 0, -2
            return count, pos
        pos = find_record_end(buf, pos, limit)
        if pos < 0:
            return count, pos
        if pos - start >= 1048576:
            return count, -2
        count += 1
    return count, -1


class RedoRecord(NamedTuple):
    """One record; fields that its type does not have are None (numbers) or empty.

    Attributes:
        lsn: of its first byte.
        size: in bytes.
        offset, length: range of the page that it changes; the offset counts from the start of the page.
        data: WRITE: the bytes; MEMSET: the pattern, repeated over the range; EXTENDED and OPTION: what follows the
            subtype; file records: the name or names.
        source: MEMMOVE: offset in the page that the bytes come from.
        checkpoint_lsn: of a FILE_CHECKPOINT, None for its padding form.
        problem: why the server would consider the record corrupted; "" = nothing.
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
        """File names of a file record: one, two for FILE_RENAME (old, new)."""
        if self.type not in FILE_TYPES:
            return ()
        return tuple(name.decode("utf-8", "backslashreplace") for name in self.data.split(b"\0") if name)

    @property
    def subtype_name(self) -> str | None:
        """Name of an EXTENDED record's subtype, or its number."""
        if self.type is not RedoRecordType.EXTENDED or self.subtype is None:
            return None
        is_known = self.subtype in ExtendedType.__members__.values()
        return ExtendedType(self.subtype).name if is_known else str(self.subtype)


FILE_TYPES = frozenset(
    {RedoRecordType.FILE_CREATE, RedoRecordType.FILE_DELETE, RedoRecordType.FILE_RENAME, RedoRecordType.FILE_MODIFY}
)
_RANGE_TYPES = (RedoRecordType.WRITE, RedoRecordType.MEMSET, RedoRecordType.MEMMOVE)
_TYPES = {int(type_): type_ for type_ in RedoRecordType}


def decode_redo_records(body: bytes, lsn: int) -> Iterator[RedoRecord]:
    """Decode the records of one mini-transaction.

    A record whose content is wrong has a `problem`; the next one is found by its length. Ends early only where a length
    cannot be decoded (never after `find_records_end` accepted the bytes).

    Args:
        body: all its bytes before the end byte.
        lsn: of the first byte.
    """
    offset, decoder = 0, _PageRecordDecoder()
    while offset < len(body) and body[offset] > 1:
        end = find_record_end(body, offset, len(body))
        if end < 0:
            return
        yield decoder.decode_record(body, offset, end, lsn + offset)
        offset = end


class _PageRecordDecoder:
    """State that one record passes to the next: the page, and the end of the last write."""

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
                self.space_id, self.page_no, content_at = _read_page_id(body, content_at, end)
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
            _require(not head.same_page and content_at == end, f"{record_type.name} with more than a page id")
            self.offset = FIL_PAGE_TYPE if record_type is RedoRecordType.INIT_PAGE else _NO_OFFSET
            return RedoRecord(*head)
        _require(record_type is not RedoRecordType.RESERVED, "a record of the reserved type")
        if record_type is RedoRecordType.EXTENDED:
            _require(content_at < end, "EXTENDED without a subtype")
            self.offset = _NO_OFFSET if body[content_at] == ExtendedType.TRIM_PAGES else FIL_PAGE_TYPE
        return RedoRecord(*head, body[content_at] if content_at < end else None, data=body[content_at + 1 : end])

    def _decode_range_change(self, head: _RedoRecordHead, body: bytes, pos: int, end: int) -> RedoRecord:
        """Decode a WRITE, MEMSET or MEMMOVE, which change a range of the page."""
        _require(self.offset != _NO_OFFSET, "same_page behind a record that ends its page")
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
        _require(max(offset, source or 0) + length <= PAGE_SIZE_MAX, "a write behind the end of the page")
        self.offset = offset + length
        return RedoRecord(*head, None, offset, length, source, body[pos:end])


class _RedoRecordHead(NamedTuple):
    """The first members of a `RedoRecord`."""

    type: RedoRecordType
    lsn: int
    size: int
    space_id: int | None
    page_no: int | None
    same_page: bool


def _decode_file_record(body: bytes, first_byte: int, pos: int, end: int, lsn: int, size: int) -> RedoRecord:
    """Decode a record of the group that comes before any page record."""
    record_type = _TYPES.get(first_byte & 0xF0)
    if record_type is None:
        return RedoRecord(
            RedoRecordType.RESERVED, lsn, size, same_page=True, problem=f"{first_byte:#04x} is no file record"
        )
    record = RedoRecord(record_type, lsn, size, same_page=True)
    if record_type is RedoRecordType.FILE_CHECKPOINT and not any(body[pos:end]):
        return record  # padding
    try:
        space_id, page_no, pos = _read_page_id(body, pos, end)
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


def _read_page_id(body: bytes, pos: int, end: int) -> tuple[int, int, int]:
    space_id, pos = _read_number(body, pos, end, 5)
    page_no, pos = _read_number(body, pos, end, 5)
    return space_id, page_no, pos


def _read_number(body: bytes, pos: int, end: int, max_bytes: int = 3) -> tuple[int, int]:
    value, number_end = read_varint(body, pos, end)
    _require(0 <= number_end <= pos + max_bytes, "a number that is cut or too long")
    return value, number_end


def _require(condition: bool, text: str) -> None:
    if not condition:
        raise MalformedError(text)
