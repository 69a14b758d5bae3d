"""Decode the records of a mini-transaction.

See docs/spec/mariadb-innodb-binlog.md#115-record. Source: MariaDB `storage/innobase/include/mtr0types.h`,
`log/log0recv.cc` (`log_parse_start`, `recv_sys_t::parse_tail`, `log_phys_t::apply`).
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from binlogtool.formats.fields import MalformedError, kernel
from binlogtool.formats.kernel_types import UInt8s
from binlogtool.formats.mariadb_innodb_binlog.redo.codes import (
    FIL_PAGE_TYPE,
    LEVEL,
    PAGE_SIZE_MAX,
    SAME_PAGE,
    ExtendedType,
    RecordType,
)
from binlogtool.formats.mariadb_innodb_binlog.redo.varint import read_varint

_NOT_SAME = -1
"""In place of the current byte offset: the next record must not be same_page."""


@kernel(read_varint)
def next_record(buf: UInt8s, p: int, n: int) -> int:
    """Find the end of the record at `pos`; -1 = not before `limit`, -2 = an impossible length.

    `buf[pos]` must be greater than 1 (0 and 1 are the end byte of the mini-transaction).
    """
    size: int = buf[p] & 15
    p += 1
    if size == 0:
        start = p
        extra, p = read_varint(buf, p, n)
        if p < 0:
            return p
        if p - start > 3 or extra >= 1048576:
            return -2
        size = extra + 15 - (p - start)
    if size > n - p:
        return -1
    return p + size


@kernel(next_record)
def records_end(buf: UInt8s, p: int, n: int) -> tuple[int, int]:
    """Return (number of records at `pos`, position of the end byte after them).

    The position is -1 if the end byte is not before `limit`, -2 for a bad length, no record, or MTR_SIZE_MAX bytes of
    them.
    """
    start = p
    count = 0
    while p < n:
        if buf[p] <= 1:
            if count == 0:
                return 0, -2
            return count, p
        p = next_record(buf, p, n)
        if p < 0:
            return count, p
        if p - start >= 1048576:
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

    type: RecordType
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
    def names(self) -> tuple[str, ...]:
        """File names of a file record: one, two for FILE_RENAME (old, new)."""
        if self.type not in FILE_TYPES:
            return ()
        return tuple(name.decode("utf-8", "backslashreplace") for name in self.data.split(b"\0") if name)

    @property
    def subtype_name(self) -> str | None:
        """Name of an EXTENDED record's subtype, or its number."""
        if self.type is not RecordType.EXTENDED or self.subtype is None:
            return None
        known = self.subtype in ExtendedType.__members__.values()
        return ExtendedType(self.subtype).name if known else str(self.subtype)


FILE_TYPES = frozenset({RecordType.FILE_CREATE, RecordType.FILE_DELETE, RecordType.FILE_RENAME, RecordType.FILE_MODIFY})
_CHANGES = (RecordType.WRITE, RecordType.MEMSET, RecordType.MEMMOVE)
_TYPES = {int(type_): type_ for type_ in RecordType}


def decode_records(body: bytes, lsn: int) -> Iterator[RedoRecord]:
    """Decode the records of one mini-transaction.

    A record whose content is wrong has a `problem`; the next one is found by its length. Ends early only where a
    length
    cannot be decoded (never after `find_records_end` accepted the bytes).

    Args:
        body: all its bytes before the end byte.
        lsn: of the first byte.
    """
    at, page = 0, _Page()
    while at < len(body) and body[at] > 1:
        end = next_record(body, at, len(body))
        if end < 0:
            return
        yield page.record(body, at, end, lsn + at)
        at = end


class _Page:
    """State that one record passes to the next: the page, and the end of the last write."""

    def __init__(self) -> None:
        self.space_id: int | None = None
        self.page_no: int | None = None
        self.offset = 0
        self.pages = False

    def record(self, body: bytes, at: int, end: int, lsn: int) -> RedoRecord:
        """Decode the record at `body[record_at:end]`."""
        first = body[at]
        start = at + 1 if first & 15 else read_varint(body, at + 1, end)[1]
        same = first >= SAME_PAGE
        if same and not self.pages:
            return _file_record(body, first, start, end, lsn, end - at)
        kind = _TYPES[first & LEVEL]
        try:
            if not same:
                self.pages, self.offset, self.space_id, self.page_no = True, _NOT_SAME, None, None
                self.space_id, self.page_no, start = _page_id(body, start, end)
                self.offset = 0
            head = _Head(kind, lsn, end - at, self.space_id, self.page_no, same)
            return self._page_record(head, body, start, end)
        except MalformedError as error:
            self.offset = _NOT_SAME
            return RedoRecord(kind, lsn, end - at, self.space_id, self.page_no, same, problem=str(error.args[0]))

    def _page_record(self, head: _Head, body: bytes, at: int, end: int) -> RedoRecord:
        kind = head.type
        if kind in _CHANGES:
            return self._change(head, body, at, end)
        if kind is RecordType.FREE_PAGE or kind is RecordType.INIT_PAGE:
            _require(not head.same_page and at == end, f"{kind.name} with more than a page id")
            self.offset = FIL_PAGE_TYPE if kind is RecordType.INIT_PAGE else _NOT_SAME
            return RedoRecord(*head)
        _require(kind is not RecordType.RESERVED, "a record of the reserved type")
        if kind is RecordType.EXTENDED:
            _require(at < end, "EXTENDED without a subtype")
            self.offset = _NOT_SAME if body[at] == ExtendedType.TRIM_PAGES else FIL_PAGE_TYPE
        return RedoRecord(*head, body[at] if at < end else None, data=body[at + 1 : end])

    def _change(self, head: _Head, body: bytes, at: int, end: int) -> RedoRecord:
        """Decode a WRITE, MEMSET or MEMMOVE, which change a range of the page."""
        _require(self.offset != _NOT_SAME, "same_page behind a record that ends its page")
        delta, at = _number(body, at, end)
        offset, length, source = self.offset + delta, end - at, None
        if head.type is not RecordType.WRITE:
            length, at = _number(body, at, end)
        if head.type is RecordType.MEMMOVE:
            coded, at = _number(body, at, end)
            source = offset - (coded >> 1) - 1 if coded & 1 else offset + (coded >> 1) + 1
            _require(at == end and source >= 0, "MEMMOVE with a bad source")
        else:
            _require(at < end, "a write without data")
        _require(max(offset, source or 0) + length <= PAGE_SIZE_MAX, "a write behind the end of the page")
        self.offset = offset + length
        return RedoRecord(*head, None, offset, length, source, body[at:end])


class _Head(NamedTuple):
    """The first members of a `RedoRecord`."""

    type: RecordType
    lsn: int
    size: int
    space_id: int | None
    page_no: int | None
    same_page: bool


def _file_record(body: bytes, first: int, at: int, end: int, lsn: int, size: int) -> RedoRecord:
    """Decode a record of the group that comes before any page record."""
    kind = _TYPES.get(first & 0xF0)
    if kind is None:
        return RedoRecord(RecordType.RESERVED, lsn, size, same_page=True, problem=f"{first:#04x} is no file record")
    found = RedoRecord(kind, lsn, size, same_page=True)
    if kind is RecordType.FILE_CHECKPOINT and not any(body[at:end]):
        return found  # padding
    try:
        space_id, page_no, at = _page_id(body, at, end)
        found = found._replace(space_id=space_id, page_no=page_no, data=body[at:end])
        _require(page_no == 0, f"{kind.name} names a page")
        if kind is RecordType.FILE_CHECKPOINT:
            _require(space_id == 0 and end - at == 8, "FILE_CHECKPOINT of another length")
            _require(end == len(body), "FILE_CHECKPOINT is not the last record of its mini-transaction")
            return found._replace(checkpoint_lsn=int.from_bytes(body[at:end], "big"))
        halves = 2 if kind is RecordType.FILE_RENAME else 1
        _require(space_id != 0 and len(found.data.split(b"\0")) == halves, f"{kind.name} with bad file names")
    except MalformedError as error:
        return found._replace(problem=str(error.args[0]))
    return found


def _page_id(body: bytes, at: int, end: int) -> tuple[int, int, int]:
    space_id, at = _number(body, at, end, 5)
    page_no, at = _number(body, at, end, 5)
    return space_id, page_no, at


def _number(body: bytes, at: int, end: int, widest: int = 3) -> tuple[int, int]:
    value, after = read_varint(body, at, end)
    _require(0 <= after <= at + widest, "a number that is cut or too long")
    return value, after


def _require(condition: bool, text: str) -> None:
    if not condition:
        raise MalformedError(text)
