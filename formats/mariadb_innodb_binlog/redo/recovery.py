"""Simulate crash recovery of the binlog files: the pages it writes, the end of the log, the files it removes.

Source: MariaDB `storage/innobase/handler/innodb_binlog.cc`, class `binlog_recovery`; see
docs/spec/mariadb-innodb-binlog.md#12-crash-recovery-of-the-server-class-binlog_recovery. Pages are built from the
redo
log alone, never from the content of the file.
"""

from __future__ import annotations

import enum
import struct
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, NamedTuple

import msgspec

from binlogtool.findings import Finding, finding
from binlogtool.formats.checksums import CRC32C
from binlogtool.formats.mariadb_innodb_binlog.redo.codes import BINLOG_SPACES, BINLOG_WRITE_END, RecordType
from binlogtool.formats.mariadb_innodb_binlog.redo.redo import PageWrite

PAGE_SIZE = 16384
"""The only page size that servers write today."""

_CRC = 4
_SHORT_HEADER = 512
"""The header page has a second CRC, as if it were a page of this size."""

_HEADER = struct.Struct("<IIIIQQQ")
_MAGIC = 0x010DFEFE
_VERSION = 1


class BinlogFile(msgspec.Struct, frozen=True):
    """A binlog file as recovery sees it.

    Attributes:
        size: in bytes, on disk.
        start_lsn, page_count: of its header; None = the header page is empty or damaged, so the file counts as empty.
    """

    file_no: int
    size: int
    start_lsn: int | None = None
    page_count: int | None = None

    @property
    def empty(self) -> bool:
        """True if it has no usable header."""
        return self.start_lsn is None


def binlog_file(file_no: int, header_page: bytes, size: int, page_size: int = PAGE_SIZE) -> BinlogFile:
    """Create a `RecoveryFile` from the header page; a wrong page CRC, as of a half-written page, makes it empty."""
    payload = header_page[: page_size - _CRC]
    stored = header_page[page_size - _CRC : page_size]
    if len(stored) < _CRC or CRC32C(payload) != int.from_bytes(stored, "little"):
        return BinlogFile(file_no, size)
    fields = _header_fields(payload)
    return BinlogFile(file_no, size) if fields is None else BinlogFile(file_no, size, fields.start_lsn, fields.pages)


class RecoveredPage(NamedTuple):
    """A whole page as recovery writes it.

    Attributes:
        used: bytes from the start of the page that the redo log proves.
    """

    file_no: int
    page_no: int
    used: int
    data: bytes


class RecoveryOutcome(msgspec.Struct, frozen=True):
    """Result of recovery besides the pages.

    Attributes:
        succeeds: the server starts, as far as its binlog is concerned. If not, no file is removed or resized, but the
            pages before the failure are written.
        writes: redo records that were read.
        applied: redo records that were put into pages; the others were durable already.
        file_no, page_no, offset: end of the last durable binlog write; None if no record was applied.
        page_count: pages that file `file_no` gets, according to its header (to be bounded before use); those after
            `page_no` become zero. None = its size does not change.
        removed: existing files that are deleted.
        findings: why it fails, or warnings.
    """

    succeeds: bool = True
    writes: int = 0
    applied: int = 0
    file_no: int | None = None
    page_no: int | None = None
    offset: int | None = None
    page_count: int | None = None
    removed: tuple[int, ...] = ()
    findings: tuple[Finding, ...] = ()


class PageRelation(enum.StrEnum):
    """Relation of a page on disk to the recovered one.

    See docs/spec/mariadb-innodb-binlog.md#13-truncate-to-durable-offline.
    """

    EQUAL = "equal"
    AHEAD = "disk ahead"
    BEHIND = "disk behind"
    TORN = "torn"
    CONFLICT = "conflict"


def compare_page(disk: bytes, page: RecoveredPage) -> PageRelation:
    """Compare a page on disk (b"" = absent) with a recovered one.

    AHEAD: it continues after the proven bytes, which recovery truncates. BEHIND: zero or an older prefix, recovery
    completes it. TORN: its CRC is wrong. CONFLICT: other bytes with a right CRC: damage, or the redo log of another
    server.
    """
    if disk == page.data:
        return PageRelation.EQUAL
    payload = disk[: len(page.data) - _CRC]
    if any(disk) and CRC32C(payload) != int.from_bytes(disk[len(payload) :], "little"):
        return PageRelation.TORN
    if payload[: page.used] == page.data[: page.used]:
        return PageRelation.AHEAD
    older = payload.rstrip(b"\0")
    return PageRelation.BEHIND if page.data.startswith(older) else PageRelation.CONFLICT


class BinlogRecovery:
    """One run of recovery over the binlog writes of a redo log: exhaust `iter_pages`, then read `outcome`.

    Holds one page at a time.

    Args:
        writes: `iter_page_writes(log)`.
        files: the binlog files that exist, in any order.
    """

    def __init__(self, writes: Iterable[PageWrite], files: Sequence[BinlogFile], page_size: int = PAGE_SIZE) -> None:
        self.outcome = RecoveryOutcome()
        self._writes = writes
        self._files = {file.file_no: file for file in files}
        self._size = page_size

    def pages(self) -> Iterator[RecoveredPage]:
        """Iterate over the pages that recovery writes, in order; each one once."""
        run, count = _Run(self._files, self._size), 0
        try:
            for write in self._writes:
                count += 1
                yield from run.apply(write)
            if count:
                yield from run.flush()
                self.outcome = run.finished(count)
        except _Refused as refused:
            self.outcome = RecoveryOutcome(False, count, run.applied, findings=(refused.finding,))


class _Refused(Exception):
    def __init__(self, found: Finding) -> None:
        super().__init__(found.message)
        self.finding = found


class _Start(NamedTuple):
    """Where recovery starts.

    Attributes:
        file_no: None = all files are empty, so every record is ignored.
        lsn: start of the file.
        first: the first redo record.
    """

    file_no: int | None
    lsn: int
    first: PageWrite


class _Run:
    """State of `binlog_recovery`: the current page and its position."""

    def __init__(self, files: dict[int, BinlogFile], page_size: int) -> None:
        self.files, self.size = files, page_size
        self.start: _Start | None = None
        self.file_no = self.page_no = self.used = self.applied = 0
        self.page = bytearray(page_size)
        self.end: tuple[int, int, int] | None = None
        self.opened: int | None = None
        self.headers = {file.file_no: file.page_count for file in files.values() if file.page_count is not None}
        self.early = False
        """Do the records still belong to files older than the one where recovery starts?"""
        self.partial = True
        """Is the first record at the start of a page still to come?"""
        self.previous: tuple[int, int, int, int] | None = None

    def apply(self, write: PageWrite) -> Iterator[RecoveredPage]:
        """Put one record into its page; first yields the previous page, if that one is complete now."""
        space, page_no, offset = self._checked(write)
        if self._durable(write, space, page_no, offset):
            return
        yield from self._move(write, space, page_no, offset)
        self._put(write, offset)

    def _durable(self, write: PageWrite, space: int, page_no: int, offset: int) -> bool:
        """Check if a record is skipped: it is a repetition, or its bytes are in the files already."""
        if self.start is None:
            start = self._begin(write, space, page_no, offset)
            if self.early:
                return True
        else:
            start = self.start
            if self._repeated(write.end_lsn, space, page_no, offset):
                return True
        if start.file_no is None or (self.partial and offset > 0):
            return True
        self.partial = False
        if self.early:
            if write.start_lsn < start.lsn or space != self.file_no & 1:
                return True
            self.page_no, self.early = page_no, False
        if write.start_lsn < start.lsn:
            raise _refused(write, f"it is older than the start of file {self.file_no}, LSN {start.lsn}")
        return False

    def _begin(self, write: PageWrite, space: int, page_no: int, offset: int) -> _Start:
        self.start = _first_file(self.files, write, space, page_no, offset)
        if self.start.file_no is not None:
            self.file_no, self.page_no = self.start.file_no, page_no
            self.early = write.start_lsn < self.start.lsn
        return self.start

    def _checked(self, write: PageWrite) -> tuple[int, int, int]:
        """Return (parity of the file, page number, offset) of a record that may be applied.

        See docs/spec/mariadb-innodb-binlog.md#116-binlog-records-in-the-redo-log.
        """
        record = write.record
        problem = record.problem
        if not problem and (record.type is not RecordType.WRITE or record.same_page or record.space_id is None):
            problem = f"{record.type.name}{' with same_page' if record.same_page else ''} on a binlog file"
        end = (record.offset or 0) + record.length
        if not problem and (end >= BINLOG_WRITE_END or end > self.size - _CRC):
            problem = f"bytes up to {end} of a page of {self.size}"
        if problem or record.space_id is None or record.page_no is None or record.offset is None:
            raise _refused(write, problem)
        return record.space_id & 1, record.page_no, record.offset

    def _repeated(self, end_lsn: int, space: int, page_no: int, offset: int) -> bool:
        """Check if a record belongs to the same mini-transaction as the previous one and does not advance."""
        here, before = (page_no, offset), self.previous
        if before is not None and before[0] == end_lsn:
            same = space == before[1]
            if (same and here <= before[2:]) or (not same and here > before[2:]):
                return True
        self.previous = (end_lsn, space, page_no, offset)
        return False

    def _move(self, write: PageWrite, space: int, page_no: int, offset: int) -> Iterator[RecoveredPage]:
        """Advance to the next page or file if the record belongs there; yields the finished page."""
        full = self.used in (0, self.size - _CRC)
        if space != self.file_no & 1:
            if not full or self.page_no + (self.used > 0) < self._physical_pages():
                raise _refused(write, f"records are missing at the end of file {self.file_no}, page {self.page_no}")
            if page_no or offset:
                raise _refused(write, f"records are missing at the start of file {self.file_no + 1}")
            yield from self.flush()
            self.file_no, self.page_no = self.file_no + 1, 0
        elif page_no != self.page_no:
            if not full or page_no != self.page_no + 1 or offset:
                raise _refused(write, f"records are missing in file {self.file_no} behind page {self.page_no}")
            yield from self.flush()
            self.page_no += 1
        elif offset not in (0, self.used):
            raise _refused(write, f"records are missing in file {self.file_no}, page {page_no}")

    def _physical_pages(self) -> int:
        """Return the pages of the current file on disk; 0 until recovery wrote one of its pages, as in the server."""
        if self.opened != self.file_no or self.file_no not in self.files:
            return 0
        return self.files[self.file_no].size // self.size

    def _put(self, write: PageWrite, offset: int) -> None:
        data = write.record.data
        self.page[offset : offset + len(data)] = data
        self.used = offset + len(data)
        self.applied += 1
        if self.page_no == 0 and offset == 0:
            self._header(write, len(data))
        self.end = (self.file_no, self.page_no, self.used)

    def _header(self, write: PageWrite, length: int) -> None:
        """Complete a header page: the record has its fields only; the rest is zero except for the extra CRC."""
        page, at = self.page, _SHORT_HEADER - _CRC
        page[length:] = bytes(self.size - length)
        page[at:_SHORT_HEADER] = CRC32C(page[:at]).to_bytes(_CRC, "little")
        self.used = self.size - _CRC
        fields = _header_fields(bytes(page))
        if fields is None:
            raise _refused(write, f"no valid header for file {self.file_no}")
        if fields.file_no != self.file_no:
            raise _refused(write, f"the header of file {fields.file_no} comes where that of {self.file_no} is expected")
        self.headers[self.file_no] = fields.pages

    def flush(self) -> Iterator[RecoveredPage]:
        """Yield the current page with its CRC, if it has any bytes; the next page starts as zeros."""
        at = self.size - _CRC
        if not self.used:
            return
        if self.opened != self.file_no and self.file_no not in self.files and self.page_no:
            raise _Refused(_missing(self.file_no, self.page_no))
        self.opened = self.file_no
        self.page[at:] = CRC32C(self.page[:at]).to_bytes(_CRC, "little")
        done = RecoveredPage(self.file_no, self.page_no, self.used, bytes(self.page))
        self.page, self.used = bytearray(self.size), 0
        yield done

    def finished(self, writes: int) -> RecoveryOutcome:
        """Return the outcome after the last record: size, and files to be removed."""
        assert self.start is not None
        if self.start.file_no is None:
            gone = tuple(sorted(self.files))
            return RecoveryOutcome(writes=writes, removed=gone, findings=(_only_empty(gone, self.start.first),))
        removed = tuple(sorted(number for number in self.files if number > self.file_no))
        pages = self.headers.get(self.file_no) if self.opened == self.file_no else None
        file_no, page_no, offset = self.end or (None, None, None)
        return RecoveryOutcome(True, writes, self.applied, file_no, page_no, offset, pages, removed)


class _Fields(NamedTuple):
    file_no: int
    pages: int
    start_lsn: int


def _header_fields(page: bytes) -> _Fields | None:
    """Parse the fields of a header page; None if it is empty or not valid (`fsp_binlog_extract_header_page`)."""
    at = _SHORT_HEADER - _CRC
    if CRC32C(page[:at]) != int.from_bytes(page[at:_SHORT_HEADER], "little"):
        return None
    magic, _, major, _, file_no, pages, start_lsn = _HEADER.unpack_from(page)
    return _Fields(file_no, pages, start_lsn) if magic == _MAGIC and major <= _VERSION else None


def _first_file(files: dict[int, BinlogFile], write: PageWrite, space: int, page_no: int, offset: int) -> _Start:
    """Find the file that the first record belongs to, or the one whose start the records have still to reach.

    Only the two newest files that are not empty can need recovery. See
    docs/spec/mariadb-innodb-binlog.md#12-crash-recovery-of-the-server-class-binlog_recovery.
    """
    last = max(files, default=0)
    for newest in (last, last - 1):
        two, one = files.get(newest), files.get(newest - 1)
        if two is None or (one is None and two.empty and (newest == last or newest == min(files))):
            return _Start(None, 0, write)
        if two.start_lsn is None and (one is None or one.start_lsn is None):
            continue  # two empty files: the newest is skipped, and deleted at the end
        known = two if one is None or not two.empty else one
        assert known.start_lsn is not None
        begins_next = space != known.file_no & 1 and write.start_lsn >= known.start_lsn and not page_no and not offset
        if one is None or two.empty:
            return _Start(known.file_no + begins_next, known.start_lsn, write)
        if space == two.file_no & 1 and write.start_lsn >= known.start_lsn:
            return _Start(two.file_no, known.start_lsn, write)
        return _Start(one.file_no, one.start_lsn or 0, write)
    raise _refused(write, "the last three binlog files are all empty")


def _refused(write: PageWrite, why: str) -> _Refused:
    text = f"the server cannot recover the binlog: the redo record {_place(write)} does not fit: {why}"
    return _Refused(finding("gap-in-sequence", None, 0, text, diagnosis="redo-does-not-fit", **_facts(write)))


def _place(write: PageWrite) -> str:
    record = write.record
    parity = "an even" if record.space_id == BINLOG_SPACES[0] else "an odd"
    return f"at LSN {record.lsn} (file with {parity} number, page {record.page_no}, offset {record.offset})"


def _facts(write: PageWrite) -> dict[str, Any]:
    record = write.record
    place = {"page_no": record.page_no, "offset_in_page": record.offset}
    return {"lsn": record.lsn, "space_id": record.space_id, **place}


def _missing(file_no: int, page_no: int) -> Finding:
    text = f"binlog file {file_no} is missing, and the redo log has it only from page {page_no} on"
    return finding("missing-member", None, 0, text, diagnosis="missing-file", file_no=file_no, page_no=page_no)


def _only_empty(files: tuple[int, ...], first: PageWrite) -> Finding:
    text = (
        "the redo log holds binlog records, but no binlog file is there that is not empty: the server takes this for a "
        f"new binlog, ignores the records and deletes the empty files. The first record is {_place(first)}. Unless "
        "RESET MASTER was the last thing that happened, the active file is missing"
    )
    facts = {"files": list(files), **_facts(first)}
    return finding("missing-member", None, 0, text, diagnosis="missing-file", **facts)
