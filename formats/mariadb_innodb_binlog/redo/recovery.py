"""Simulate crash recovery of the binlog files: the pages it writes, the end of the log, the files it removes.

Source: MariaDB `storage/innobase/handler/innodb_binlog.cc`, class `binlog_recovery`; see
docs/spec/mariadb_innodb_binlog.md#crash-recovery. Pages are built from the
redo
log alone, never from the content of the file.
"""

from __future__ import annotations

import enum
import struct
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, NamedTuple

import msgspec

from binlogtool.findings import Finding, make_finding
from binlogtool.formats.checksums import CRC32C
from binlogtool.formats.mariadb_innodb_binlog.redo.codes import BINLOG_SPACES, BINLOG_WRITE_END, RedoRecordType
from binlogtool.formats.mariadb_innodb_binlog.redo.redo import PageWrite

PAGE_SIZE = 16384
"""The only page size that servers write today."""

_CRC_SIZE = 4
_SHORT_HEADER = 512
"""The header page has a second CRC, as if it were a page of this size."""

_HEADER_FIELDS = struct.Struct("<IIIIQQQ")
_MAGIC = 0x010DFEFE
_VERSION = 1


class RecoveryFile(msgspec.Struct, frozen=True):
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
    def is_empty(self) -> bool:
        """True if it has no usable header."""
        return self.start_lsn is None


def make_recovery_file(file_no: int, header_page: bytes, size: int, page_size: int = PAGE_SIZE) -> RecoveryFile:
    """Create a `RecoveryFile` from the header page; a wrong page CRC, as of a half-written page, makes it empty."""
    payload = header_page[: page_size - _CRC_SIZE]
    stored = header_page[page_size - _CRC_SIZE : page_size]
    if len(stored) < _CRC_SIZE or CRC32C(payload) != int.from_bytes(stored, "little"):
        return RecoveryFile(file_no, size)
    fields = _parse_header_fields(payload)
    return (
        RecoveryFile(file_no, size) if fields is None else RecoveryFile(file_no, size, fields.start_lsn, fields.pages)
    )


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

    See docs/spec/mariadb_innodb_binlog.md#truncation.
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
    payload = disk[: len(page.data) - _CRC_SIZE]
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

    def __init__(self, writes: Iterable[PageWrite], files: Sequence[RecoveryFile], page_size: int = PAGE_SIZE) -> None:
        self.outcome = RecoveryOutcome()
        self._writes = writes
        self._files = {file.file_no: file for file in files}
        self._size = page_size

    def iter_pages(self) -> Iterator[RecoveredPage]:
        """Iterate over the pages that recovery writes, in order; each one once."""
        run, write_count = _RecoveryRun(self._files, self._size), 0
        try:
            for write in self._writes:
                write_count += 1
                yield from run.apply_write(write)
            if write_count:
                yield from run.flush_page()
                self.outcome = run.make_outcome(write_count)
        except _RecoveryFailure as refused:
            self.outcome = RecoveryOutcome(False, write_count, run.applied, findings=(refused.finding,))


class _RecoveryFailure(Exception):
    def __init__(self, failure: Finding) -> None:
        super().__init__(failure.message)
        self.finding = failure


class _RecoveryStart(NamedTuple):
    """Where recovery starts.

    Attributes:
        file_no: None = all files are empty, so every record is ignored.
        lsn: start of the file.
        first: the first redo record.
    """

    file_no: int | None
    lsn: int
    first: PageWrite


class _RecoveryRun:
    """State of `binlog_recovery`: the current page and its position."""

    def __init__(self, files: dict[int, RecoveryFile], page_size: int) -> None:
        self.files, self.size = files, page_size
        self.start: _RecoveryStart | None = None
        self.file_no = self.page_no = self.used = self.applied = 0
        self.page = bytearray(page_size)
        self.end: tuple[int, int, int] | None = None
        self.open_file_no: int | None = None
        self.headers = {file.file_no: file.page_count for file in files.values() if file.page_count is not None}
        self.before_start = False
        """Do the records still belong to files older than the one where recovery starts?"""
        self.before_first_page_start = True
        """Is the first record at the start of a page still to come?"""
        self.previous: tuple[int, int, int, int] | None = None

    def apply_write(self, write: PageWrite) -> Iterator[RecoveredPage]:
        """Put one record into its page; first yields the previous page, if that one is complete now."""
        space, page_no, offset = self._check_write(write)
        if self._is_skipped(write, space, page_no, offset):
            return
        yield from self._advance_page(write, space, page_no, offset)
        self._put_data(write, offset)

    def _is_skipped(self, write: PageWrite, file_parity: int, page_no: int, offset: int) -> bool:
        """Check if a record is skipped: it is a repetition, or its bytes are in the files already."""
        if self.start is None:
            start = self._begin_at(write, file_parity, page_no, offset)
            if self.before_start:
                return True
        else:
            start = self.start
            if self._is_repeated(write.end_lsn, file_parity, page_no, offset):
                return True
        if start.file_no is None or (self.before_first_page_start and offset > 0):
            return True
        self.before_first_page_start = False
        if self.before_start:
            if write.start_lsn < start.lsn or file_parity != self.file_no & 1:
                return True
            self.page_no, self.before_start = page_no, False
        if write.start_lsn < start.lsn:
            raise _make_failure(write, f"it is older than the start of file {self.file_no}, LSN {start.lsn}")
        return False

    def _begin_at(self, write: PageWrite, file_parity: int, page_no: int, offset: int) -> _RecoveryStart:
        self.start = _find_first_file(self.files, write, file_parity, page_no, offset)
        if self.start.file_no is not None:
            self.file_no, self.page_no = self.start.file_no, page_no
            self.before_start = write.start_lsn < self.start.lsn
        return self.start

    def _check_write(self, write: PageWrite) -> tuple[int, int, int]:
        """Return (parity of the file, page number, offset) of a record that may be applied.

        See docs/spec/mariadb_innodb_binlog.md#binlog-records-in-the-redo-log.
        """
        record = write.record
        problem = record.problem
        if not problem and (record.type is not RedoRecordType.WRITE or record.same_page or record.space_id is None):
            problem = f"{record.type.name}{' with same_page' if record.same_page else ''} on a binlog file"
        end = (record.offset or 0) + record.length
        if not problem and (end >= BINLOG_WRITE_END or end > self.size - _CRC_SIZE):
            problem = f"bytes up to {end} of a page of {self.size}"
        if problem or record.space_id is None or record.page_no is None or record.offset is None:
            raise _make_failure(write, problem)
        return record.space_id & 1, record.page_no, record.offset

    def _is_repeated(self, end_lsn: int, file_parity: int, page_no: int, offset: int) -> bool:
        """Check if a record belongs to the same mini-transaction as the previous one and does not advance."""
        position, previous = (page_no, offset), self.previous
        if previous is not None and previous[0] == end_lsn:
            is_same_file = file_parity == previous[1]
            if (is_same_file and position <= previous[2:]) or (not is_same_file and position > previous[2:]):
                return True
        self.previous = (end_lsn, file_parity, page_no, offset)
        return False

    def _advance_page(self, write: PageWrite, file_parity: int, page_no: int, offset: int) -> Iterator[RecoveredPage]:
        """Advance to the next page or file if the record belongs there; yields the finished page."""
        is_full = self.used in (0, self.size - _CRC_SIZE)
        if file_parity != self.file_no & 1:
            if not is_full or self.page_no + (self.used > 0) < self._pages_on_disk():
                raise _make_failure(
                    write, f"records are missing at the end of file {self.file_no}, page {self.page_no}"
                )
            if page_no or offset:
                raise _make_failure(write, f"records are missing at the start of file {self.file_no + 1}")
            yield from self.flush_page()
            self.file_no, self.page_no = self.file_no + 1, 0
        elif page_no != self.page_no:
            if not is_full or page_no != self.page_no + 1 or offset:
                raise _make_failure(write, f"records are missing in file {self.file_no} behind page {self.page_no}")
            yield from self.flush_page()
            self.page_no += 1
        elif offset not in (0, self.used):
            raise _make_failure(write, f"records are missing in file {self.file_no}, page {page_no}")

    def _pages_on_disk(self) -> int:
        """Return the pages of the current file on disk; 0 until recovery wrote one of its pages, as in the server."""
        if self.open_file_no != self.file_no or self.file_no not in self.files:
            return 0
        return self.files[self.file_no].size // self.size

    def _put_data(self, write: PageWrite, offset: int) -> None:
        data = write.record.data
        self.page[offset : offset + len(data)] = data
        self.used = offset + len(data)
        self.applied += 1
        if self.page_no == 0 and offset == 0:
            self._complete_header_page(write, len(data))
        self.end = (self.file_no, self.page_no, self.used)

    def _complete_header_page(self, write: PageWrite, length: int) -> None:
        """Complete a header page: the record has its fields only; the rest is zero except for the extra CRC."""
        page, crc_at = self.page, _SHORT_HEADER - _CRC_SIZE
        page[length:] = bytes(self.size - length)
        page[crc_at:_SHORT_HEADER] = CRC32C(page[:crc_at]).to_bytes(_CRC_SIZE, "little")
        self.used = self.size - _CRC_SIZE
        fields = _parse_header_fields(bytes(page))
        if fields is None:
            raise _make_failure(write, f"no valid header for file {self.file_no}")
        if fields.file_no != self.file_no:
            raise _make_failure(
                write, f"the header of file {fields.file_no} comes where that of {self.file_no} is expected"
            )
        self.headers[self.file_no] = fields.pages

    def flush_page(self) -> Iterator[RecoveredPage]:
        """Yield the current page with its CRC, if it has any bytes; the next page starts as zeros."""
        crc_at = self.size - _CRC_SIZE
        if not self.used:
            return
        if self.open_file_no != self.file_no and self.file_no not in self.files and self.page_no:
            raise _RecoveryFailure(_report_missing_file(self.file_no, self.page_no))
        self.open_file_no = self.file_no
        self.page[crc_at:] = CRC32C(self.page[:crc_at]).to_bytes(_CRC_SIZE, "little")
        recovered = RecoveredPage(self.file_no, self.page_no, self.used, bytes(self.page))
        self.page, self.used = bytearray(self.size), 0
        yield recovered

    def make_outcome(self, writes: int) -> RecoveryOutcome:
        """Return the outcome after the last record: size, and files to be removed."""
        assert self.start is not None
        if self.start.file_no is None:
            all_files = tuple(sorted(self.files))
            return RecoveryOutcome(
                writes=writes, removed=all_files, findings=(_report_only_empty_files(all_files, self.start.first),)
            )
        removed = tuple(sorted(number for number in self.files if number > self.file_no))
        pages = self.headers.get(self.file_no) if self.open_file_no == self.file_no else None
        file_no, page_no, offset = self.end or (None, None, None)
        return RecoveryOutcome(True, writes, self.applied, file_no, page_no, offset, pages, removed)


class _HeaderFields(NamedTuple):
    file_no: int
    pages: int
    start_lsn: int


def _parse_header_fields(page: bytes) -> _HeaderFields | None:
    """Parse the fields of a header page; None if it is empty or not valid (`fsp_binlog_extract_header_page`)."""
    crc_at = _SHORT_HEADER - _CRC_SIZE
    if CRC32C(page[:crc_at]) != int.from_bytes(page[crc_at:_SHORT_HEADER], "little"):
        return None
    magic, _, major, _, file_no, pages, start_lsn = _HEADER_FIELDS.unpack_from(page)
    return _HeaderFields(file_no, pages, start_lsn) if magic == _MAGIC and major <= _VERSION else None


def _find_first_file(
    files: dict[int, RecoveryFile], write: PageWrite, file_parity: int, page_no: int, offset: int
) -> _RecoveryStart:
    """Find the file that the first record belongs to, or the one whose start the records have still to reach.

    Only the two newest files that are not empty can need recovery. See
    docs/spec/mariadb_innodb_binlog.md#crash-recovery.
    """
    last = max(files, default=0)
    for newest in (last, last - 1):
        newer, older = files.get(newest), files.get(newest - 1)
        if newer is None or (older is None and newer.is_empty and (newest == last or newest == min(files))):
            return _RecoveryStart(None, 0, write)
        if newer.start_lsn is None and (older is None or older.start_lsn is None):
            continue  # two empty files: the newest is skipped, and deleted at the end
        usable = newer if older is None or not newer.is_empty else older
        assert usable.start_lsn is not None
        begins_next = (
            file_parity != usable.file_no & 1 and write.start_lsn >= usable.start_lsn and not page_no and not offset
        )
        if older is None or newer.is_empty:
            return _RecoveryStart(usable.file_no + begins_next, usable.start_lsn, write)
        if file_parity == newer.file_no & 1 and write.start_lsn >= usable.start_lsn:
            return _RecoveryStart(newer.file_no, usable.start_lsn, write)
        return _RecoveryStart(older.file_no, older.start_lsn or 0, write)
    raise _make_failure(write, "the last three binlog files are all empty")


def _make_failure(write: PageWrite, reason: str) -> _RecoveryFailure:
    text = f"the server cannot recover the binlog: the redo record {_describe_position(write)} does not fit: {reason}"
    return _RecoveryFailure(
        make_finding("gap-in-sequence", None, 0, text, diagnosis="redo-does-not-fit", **_write_facts(write))
    )


def _describe_position(write: PageWrite) -> str:
    record = write.record
    parity = "an even" if record.space_id == BINLOG_SPACES[0] else "an odd"
    return f"at LSN {record.lsn} (file with {parity} number, page {record.page_no}, offset {record.offset})"


def _write_facts(write: PageWrite) -> dict[str, Any]:
    record = write.record
    place = {"page_no": record.page_no, "offset_in_page": record.offset}
    return {"lsn": record.lsn, "space_id": record.space_id, **place}


def _report_missing_file(file_no: int, page_no: int) -> Finding:
    text = f"binlog file {file_no} is missing, and the redo log has it only from page {page_no} on"
    return make_finding("missing-member", None, 0, text, diagnosis="missing-file", file_no=file_no, page_no=page_no)


def _report_only_empty_files(files: tuple[int, ...], first: PageWrite) -> Finding:
    text = (
        "the redo log holds binlog records, but no binlog file is there that is not empty: the server takes this for a "
        f"new binlog, ignores the records and deletes the empty files. The first record is "
        f"{_describe_position(first)}. Unless "
        "RESET MASTER was the last thing that happened, the active file is missing"
    )
    facts = {"files": list(files), **_write_facts(first)}
    return make_finding("missing-member", None, 0, text, diagnosis="missing-file", **facts)
