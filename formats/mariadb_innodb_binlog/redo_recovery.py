"""Predict the binlog files that exist after crash recovery with the redo log.

Source: MariaDB `storage/innobase/handler/innodb_binlog.cc`, class `binlog_recovery`; see
docs/spec/mariadb_innodb_binlog.md#crash-recovery and #with-the-redo-log. Recovered pages are built from the redo log
alone, never from the content of the file.
"""

from __future__ import annotations

import enum
import os
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import chain
from typing import Any, NamedTuple

import msgspec
from msgspec.structs import replace

from binlogtool.findings import Finding, Severity, make_finding
from binlogtool.format_api.format import SetFinding
from binlogtool.format_api.layout import CRC32C, Batch, ColumnTable, RangeReader
from binlogtool.formats.innodb.redo_log import (
    PageWrite,
    RedoLog,
    RedoSummary,
    iter_page_writes,
    summarize_redo_log,
)
from binlogtool.formats.innodb.redo_records import BINLOG_SPACES, BINLOG_WRITE_END, RedoRecordType
from binlogtool.formats.mariadb_innodb_binlog.event_groups import CommitScanner, read_commit_head
from binlogtool.formats.mariadb_innodb_binlog.records.join_chunks_to_records import RecordAssembler
from binlogtool.formats.mariadb_innodb_binlog.schema import (
    CONTINUATION_FLAG,
    CRC_SIZE,
    MAGIC,
    NESTABLE_TYPES,
    SHORT_HEADER_SIZE,
    TYPE_MASK,
    VERSION_MAJOR,
    IbbFileContext,
    IbbFileHeader,
    IbbRecordType,
    file_name,
    is_page_crc_right,
    is_short_header_crc_right,
    parse_header,
)

# --- Simulation of crash recovery ---

PAGE_SIZE = 16384
"""The only page size that servers write today, in bytes."""


class RecoveryFile(msgspec.Struct, frozen=True):
    """A binlog file as recovery sees it.

    `size`: on disk, in bytes. `start_lsn`, `page_count`: from its header; None = the header page is empty or damaged,
    so the file counts as empty.
    """

    file_no: int
    size: int
    start_lsn: int | None = None
    page_count: int | None = None

    @property
    def is_empty(self) -> bool:
        """True if the file has no usable header."""
        return self.start_lsn is None


def make_recovery_file(file_no: int, header_page: bytes, size: int, page_size: int = PAGE_SIZE) -> RecoveryFile:
    """Create a `RecoveryFile` from the header page; with a wrong page CRC (such as a torn page) it is empty."""
    is_whole = len(header_page) >= page_size and is_page_crc_right(header_page[:page_size])
    header = _parse_valid_header(header_page) if is_whole else None
    return RecoveryFile(file_no, size, *(() if header is None else (header.start_lsn, header.page_count)))


class RecoveredPage(NamedTuple):
    """Whole page as recovery writes it; `used`: number of bytes from the start of the page that the redo log proves."""

    file_no: int
    page_no: int
    used: int
    data: bytes


class RecoveryOutcome(msgspec.Struct, frozen=True):
    """Result of recovery apart from the pages.

    `succeeds`: the server starts, as far as its binlog is concerned. If not, no file is removed or resized, but the
    pages before the failure are written. `writes`: number of redo records that were read. `applied`: number of redo
    records that were put into pages; the others were already durable. `file_no`, `page_no`, `offset`: end of the last
    durable binlog write; None if no record was applied. `page_count`: pages that file `file_no` gets, according to its
    header (to be bounded before use); pages after `page_no` become zero. None = its size does not change. `removed`:
    existing files that are deleted. `findings`: why it fails, or warnings.
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


def compare_page_with_recovered(disk_page: bytes, recovered_page: RecoveredPage) -> PageRelation:
    """Compare a page on disk (b"" = absent) with a recovered one.

    AHEAD: the disk page continues after the proven bytes; recovery truncates it there. BEHIND: it is zero or an older
    prefix, and recovery completes it. TORN: its CRC is wrong. CONFLICT: it has other bytes and a right CRC: damage, or
    the redo log belongs to another server.
    """
    if disk_page == recovered_page.data:
        return PageRelation.EQUAL
    payload = disk_page[: len(recovered_page.data) - CRC_SIZE]
    if any(disk_page) and CRC32C(payload) != int.from_bytes(disk_page[len(payload) :], "little"):
        return PageRelation.TORN
    if payload[: recovered_page.used] == recovered_page.data[: recovered_page.used]:
        return PageRelation.AHEAD
    older = payload.rstrip(b"\0")
    return PageRelation.BEHIND if recovered_page.data.startswith(older) else PageRelation.CONFLICT


class BinlogRecovery:
    """One run of recovery over the binlog writes of a redo log: exhaust `iter_pages`, then read `outcome`.

    Holds one page at a time.

    `writes`: `iter_page_writes(log)`. `files`: the binlog files that exist, in any order.
    """

    def __init__(self, writes: Iterable[PageWrite], files: Sequence[RecoveryFile], page_size: int = PAGE_SIZE) -> None:
        self.outcome = RecoveryOutcome()
        self._writes = writes
        self._files = {file.file_no: file for file in files}
        self._size = page_size

    def iter_pages(self) -> Iterator[RecoveredPage]:
        """Yield the pages that recovery writes, in order; each page once."""
        run, write_count = _RecoveryRun(self._files, self._size), 0
        try:
            for write in self._writes:
                write_count += 1
                yield from run.apply_write(write)
            if write_count:
                yield from run.finish_current_page()
                self.outcome = run.make_outcome(write_count)
        except _RecoveryFailure as refused:
            self.outcome = RecoveryOutcome(False, write_count, run.applied, findings=(refused.finding,))


class _RecoveryFailure(Exception):
    def __init__(self, failure: Finding) -> None:
        super().__init__(failure.message)
        self.finding = failure


class _RecoveryStart(NamedTuple):
    """Start position of recovery.

    `file_no`: None = all files are empty, so every record is ignored. `lsn`: start of the file. `first`: the first redo
    record.
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
        """True while records belong to files before the file in which recovery starts."""
        self.before_first_page_start = True
        """True until the first record at the start of a page."""
        self.previous: tuple[int, int, int, int] | None = None

    def apply_write(self, write: PageWrite) -> Iterator[RecoveredPage]:
        """Put one record into its page; if the previous page is complete now, yield it first."""
        # (parity of the file, page number, offset) of a record that may be applied
        record = write.record
        problem = record.problem
        if not problem and (record.type is not RedoRecordType.WRITE or record.same_page or record.space_id is None):
            problem = f"{record.type.name}{' with same_page' if record.same_page else ''} on a binlog file"
        end = (record.offset or 0) + record.length
        if not problem and (end >= BINLOG_WRITE_END or end > self.size - CRC_SIZE):
            problem = f"bytes up to {end} of a page of {self.size}"
        if problem or record.space_id is None or record.page_no is None or record.offset is None:
            raise _make_failure(write, problem)
        space, page_no, offset = record.space_id & 1, record.page_no, record.offset
        if self._is_skipped(write, space, page_no, offset):
            return
        yield from self._advance_page(write, space, page_no, offset)
        data = write.record.data
        self.page[offset : offset + len(data)] = data
        self.used = offset + len(data)
        self.applied += 1
        if self.page_no == 0 and offset == 0:
            self._complete_header_page(write, len(data))
        self.end = (self.file_no, self.page_no, self.used)

    def _is_skipped(self, write: PageWrite, file_parity: int, page_no: int, offset: int) -> bool:
        """Return whether recovery skips a redo write; the first one also determines where recovery starts."""
        if self.start is None:
            self.start = _find_recovery_start(self.files, write, file_parity, page_no, offset)
            if self.start.file_no is not None:
                self.file_no, self.page_no = self.start.file_no, page_no
                self.before_start = write.start_lsn < self.start.lsn
            start = self.start
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
            raise _make_failure(write, f"it is older than the start LSN of file {self.file_no}, LSN {start.lsn}")
        return False

    def _is_repeated(self, end_lsn: int, file_parity: int, page_no: int, offset: int) -> bool:
        """Return whether a record repeats a position: same mini-transaction as the previous record, no later
        place in the log.
        """
        position, previous = (page_no, offset), self.previous
        if previous is not None and previous[0] == end_lsn:
            is_same_file = file_parity == previous[1]
            if (is_same_file and position <= previous[2:]) or (not is_same_file and position > previous[2:]):
                return True
        self.previous = (end_lsn, file_parity, page_no, offset)
        return False

    def _advance_page(self, write: PageWrite, file_parity: int, page_no: int, offset: int) -> Iterator[RecoveredPage]:
        """Advance to the next page or file if the record belongs there; yield the finished page."""
        is_full = self.used in (0, self.size - CRC_SIZE)
        if file_parity != self.file_no & 1:
            if not is_full or self.page_no + (self.used > 0) < self._count_pages_on_disk():
                raise _make_failure(
                    write, f"records are missing at the end of file {self.file_no}, page {self.page_no}"
                )
            if page_no or offset:
                raise _make_failure(write, f"records are missing at the start of file {self.file_no + 1}")
            yield from self.finish_current_page()
            self.file_no, self.page_no = self.file_no + 1, 0
        elif page_no != self.page_no:
            if not is_full or page_no != self.page_no + 1 or offset:
                raise _make_failure(write, f"records are missing in file {self.file_no} after page {self.page_no}")
            yield from self.finish_current_page()
            self.page_no += 1
        elif offset not in (0, self.used):
            raise _make_failure(write, f"records are missing in file {self.file_no}, page {page_no}")

    def _count_pages_on_disk(self) -> int:
        """Return the number of pages of the current file on disk; 0 until recovery wrote one, as in the server."""
        if self.open_file_no != self.file_no or self.file_no not in self.files:
            return 0
        return self.files[self.file_no].size // self.size

    def _complete_header_page(self, write: PageWrite, length: int) -> None:
        """Complete a header page: the record has only its fields; the rest is zero except for the additional CRC."""
        page, crc_at = self.page, SHORT_HEADER_SIZE - CRC_SIZE
        page[length:] = bytes(self.size - length)
        page[crc_at:SHORT_HEADER_SIZE] = CRC32C(page[:crc_at]).to_bytes(CRC_SIZE, "little")
        self.used = self.size - CRC_SIZE
        header = _parse_valid_header(bytes(page))
        if header is None:
            raise _make_failure(write, f"no valid header for file {self.file_no}")
        if header.file_no != self.file_no:
            raise _make_failure(
                write, f"the header of file {header.file_no} is where that of {self.file_no} is expected"
            )
        self.headers[self.file_no] = header.page_count

    def finish_current_page(self) -> Iterator[RecoveredPage]:
        """Yield the current page with its CRC, if it has any bytes; the next page starts with zeros."""
        crc_at = self.size - CRC_SIZE
        if not self.used:
            return
        if self.open_file_no != self.file_no and self.file_no not in self.files and self.page_no:
            raise _RecoveryFailure(_report_missing_file(self.file_no, self.page_no))
        self.open_file_no = self.file_no
        self.page[crc_at:] = CRC32C(self.page[:crc_at]).to_bytes(CRC_SIZE, "little")
        recovered = RecoveredPage(self.file_no, self.page_no, self.used, bytes(self.page))
        self.page, self.used = bytearray(self.size), 0
        yield recovered

    def make_outcome(self, writes: int) -> RecoveryOutcome:
        """Return the outcome after the last record: file size, and files to be removed."""
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


def _parse_valid_header(page: bytes) -> IbbFileHeader | None:
    """Parse the fields of a header page; None if it is empty or not valid (`fsp_binlog_extract_header_page`)."""
    header = parse_header(page) if is_short_header_crc_right(page) else None
    is_valid = header is not None and header.magic == MAGIC and header.version_major <= VERSION_MAJOR
    return header if is_valid else None


def _find_recovery_start(
    files: dict[int, RecoveryFile], write: PageWrite, file_parity: int, page_no: int, offset: int
) -> _RecoveryStart:
    """Return the start position: the file of the first record, or the file whose start later records must reach.

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
    text = (
        f"the server cannot recover the binlog: the redo record {_describe_redo_record_position(write)} is "
        f"inconsistent: {reason}"
    )
    return _RecoveryFailure(
        make_finding("gap-in-sequence", None, 0, text, diagnosis="redo-does-not-fit", **_build_redo_record_facts(write))
    )


def _describe_redo_record_position(write: PageWrite) -> str:
    record = write.record
    parity = "an even" if record.space_id == BINLOG_SPACES[0] else "an odd"
    return f"at LSN {record.lsn} (file with {parity} number, page {record.page_no}, offset {record.offset})"


def _build_redo_record_facts(write: PageWrite) -> dict[str, Any]:
    record = write.record
    place = {"page_no": record.page_no, "offset_in_page": record.offset}
    return {"lsn": record.lsn, "space_id": record.space_id, **place}


def _report_missing_file(file_no: int, page_no: int) -> Finding:
    text = f"binlog file {file_no} is missing, and the redo log only has it from page {page_no} on"
    return make_finding("missing-member", None, 0, text, diagnosis="missing-file", file_no=file_no, page_no=page_no)


def _report_only_empty_files(files: tuple[int, ...], first: PageWrite) -> Finding:
    text = (
        "the redo log has binlog records, but there is no binlog file with data; the server considers this a "
        f"new binlog, ignores the records and deletes the empty files. The first record is "
        f"{_describe_redo_record_position(first)}. Unless "
        "RESET MASTER was the last operation, the active file is missing"
    )
    facts = {"files": list(files), **_build_redo_record_facts(first)}
    return make_finding("missing-member", None, 0, text, diagnosis="missing-file", **facts)


# --- Report on recovery with the redo log ---

_MAX_LISTED_GTIDS = 100
_MAX_NAMED_GTIDS = 8
_MAX_GTIDS = 100_000
_MAX_PAGES_BACK = 4096
_COMMIT = int(IbbRecordType.COMMIT)
_Relation = PageRelation


class IbbLogFile(NamedTuple):
    """File of the log as recovery finds it.

    `is_empty`: the file is all zeros. `ends_in_record`: it ends inside a record.
    """

    name: str
    number: int
    context: IbbFileContext
    size: int
    is_empty: bool
    ends_in_record: bool


def _keep_uncompiled(function: Any) -> Any:
    return function


@dataclass(slots=True)
class _GtidCollector:
    """Collects the groups whose COMMIT records end in a run of pages."""

    context: IbbFileContext
    gtids: dict[str, None] = field(default_factory=dict)
    assembler: RecordAssembler = field(init=False)
    commit_scanner: CommitScanner = field(init=False)

    def __post_init__(self) -> None:
        isolated_context = replace(self.context, open_sibling=None, read=None)
        self.assembler, self.commit_scanner = (
            RecordAssembler(isolated_context, _keep_uncompiled),
            CommitScanner(_keep_uncompiled),
        )

    def collect_gtids_of_page(self, page: bytes) -> None:
        """Add the next page."""
        window = memoryview(page)
        frames = ColumnTable(1, {"offset": [0], "end": [len(page)]})
        for batch in self.assembler.assemble(Batch(0, window, frames, window, None, (), (), 0, 0)):
            if isinstance(batch, Batch):
                self._add_batch(batch)

    def _add_batch(self, batch: Batch) -> None:
        for numbers in self.commit_scanner.iter_commit_numbers(batch):
            gtid = numbers.gtid
            if gtid is None and numbers.payload_at < 0:
                gtid = _read_gtid(batch, numbers.record_index)
            if gtid is not None and len(self.gtids) < _MAX_GTIDS:
                self.gtids[str(gtid)] = None


def _read_gtid(batch: Batch, index: int) -> Any:
    return read_commit_head(batch.window[int(batch.frames["offset"][index]) : int(batch.frames["end"][index])]).gtid


def check_against_redo_log(files: Sequence[IbbLogFile]) -> Iterator[SetFinding]:
    """Report what a starting server would do with these files; nothing without a redo log."""
    redo = files[0].context.redo if files else None
    if redo is None:
        return
    name = os.path.basename(files[0].context.hints.redo or "ib_logfile0")
    log = RedoLog(redo.read, redo.size)
    summary = summarize_redo_log(log)
    yield from (SetFinding(name, replace(found, message=f"redo log: {found.message}")) for found in summary.findings)
    if summary.end_lsn is None or not summary.is_acceptable or log.is_encrypted:
        return
    yield from _RecoveryCheck(log, summary, files, name).iter_findings()


class _RecoveryCheck:
    """Dry run of recovery, compared with the files."""

    def __init__(self, log: RedoLog, summary: RedoSummary, files: Sequence[IbbLogFile], name: str) -> None:
        self.log, self.summary, self.files, self.name = log, summary, files, name
        self.by_number = {one.number: one for one in files}
        self.relations: Counter[PageRelation] = Counter()
        self.conflict: tuple[int, int] | None = None
        self.context = files[0].context
        self.gtids_after = _GtidCollector(self.context)
        self.gtids_before = _GtidCollector(self.context)
        self._reads: dict[int, RangeReader | None] = {}

    def iter_findings(self) -> Iterator[SetFinding]:
        """Report what recovery would change."""
        recovery_files = [
            make_recovery_file(one.number, self._read_page(one.number, 0), one.size) for one in self.files
        ]
        recovery = BinlogRecovery(iter_page_writes(self.log), recovery_files)
        pages = recovery.iter_pages()
        first = next((page for page in pages), None)
        if first is not None:
            start = self._find_page_where_record_starts(first)
            for page in self._iter_pages_on_disk(start, (first.file_no, first.page_no)):
                self.gtids_after.collect_gtids_of_page(page)
            self._compare_pages(chain((first,), pages))
            for page in self._iter_pages_on_disk(start, None):
                self.gtids_before.collect_gtids_of_page(page)
        outcome = recovery.outcome
        yield from (SetFinding(self._member_name(found), found) for found in outcome.findings)
        if self.conflict is not None:
            yield self._report_conflict(*self.conflict)
        if outcome.file_no is not None and outcome.page_no is not None:
            yield from self._report_lost_and_gained_groups(
                outcome.file_no, outcome.page_no * PAGE_SIZE + (outcome.offset or 0)
            )
        elif not outcome.applied and outcome.succeeds:
            yield from self._report_no_binlog_redo_records()
        yield from self._report_removed_files(outcome.removed)

    def _member_name(self, problem: Finding) -> str:
        number = problem.facts.get("file_no")
        return file_name(number) if isinstance(number, int) else self.name

    def _read_page(self, file_no: int, page_no: int) -> bytes:
        if file_no not in self._reads:
            log_file = self.by_number.get(file_no)
            beside = None if log_file is None else log_file.context.open_sibling
            self._reads[file_no] = None if log_file is None or beside is None else beside(log_file.name)
        read = self._reads[file_no]
        return b"" if read is None else read(page_no * PAGE_SIZE, PAGE_SIZE)

    def _compare_pages(self, pages: Iterable[RecoveredPage]) -> None:
        for page in pages:
            relation = compare_page_with_recovered(self._read_page(page.file_no, page.page_no), page)
            self.relations[relation] += 1
            if relation is _Relation.CONFLICT and self.conflict is None:
                self.conflict = (page.file_no, page.page_no)
            if page.page_no:
                self.gtids_after.collect_gtids_of_page(page.data)

    def _find_page_where_record_starts(self, first: RecoveredPage) -> tuple[int, int]:
        """Return (file, page) where the record that continues in the first page begins; that page if none continues."""
        place = (first.file_no, max(first.page_no, 1))
        data = first.data if first.page_no else b""
        for _ in range(_MAX_PAGES_BACK):
            if data and not _has_continued_record_at_start(data):
                break
            number, page_no = place
            previous = (number, page_no - 1) if page_no > 1 else self._last_page(number - 1)
            data = b"" if previous is None else self._read_page(*previous)
            if previous is None or len(data) < PAGE_SIZE or not is_page_crc_right(data):
                break
            place = previous
        return place

    def _last_page(self, number: int) -> tuple[int, int] | None:
        log_file = self.by_number.get(number)
        return None if log_file is None or log_file.size < 2 * PAGE_SIZE else (number, log_file.size // PAGE_SIZE - 1)

    def _iter_pages_on_disk(self, start: tuple[int, int], stop: tuple[int, int] | None) -> Iterator[bytes]:
        """Yield the data pages on disk from `start` on, before `stop`, as far as they are sound."""
        number, page_no = start
        while number in self.by_number:
            while stop is None or (number, page_no) < stop:
                data = self._read_page(number, page_no)
                if len(data) < PAGE_SIZE:
                    break
                if not is_page_crc_right(data):
                    return
                yield data
                page_no += 1
            if stop is not None and (number, page_no) >= stop:
                return
            number, page_no = number + 1, 1

    # -- reports --------------------------------------------------------------------------------------------------

    def _report_lost_and_gained_groups(self, file_no: int, new_log_end: int) -> Iterator[SetFinding]:
        lost = [gtid for gtid in self.gtids_before.gtids if gtid not in self.gtids_after.gtids]
        gained = [gtid for gtid in self.gtids_after.gtids if gtid not in self.gtids_before.gtids]
        log_file = self.by_number.get(file_no)
        size = log_file.size if log_file is not None else new_log_end
        facts = {"durable_lsn": self.summary.end_lsn, "file_no": file_no, "offset": new_log_end}
        counts = {str(relation): count for relation, count in self.relations.items()}
        if lost or self.relations[_Relation.AHEAD]:
            text = (
                f"at the next start the server truncates the log here (durable LSN {self.summary.end_lsn}); "
                f"{_describe_groups(lost)} after it never became durable"
            )
            all_facts = {**facts, "groups_lost": len(lost), "gtids_lost": lost[:_MAX_LISTED_GTIDS], "pages": counts}
            yield _make_finding(
                file_name(file_no),
                "torn-tail",
                (min(new_log_end, size), max(size - new_log_end, 0)),
                text,
                "redo-cut",
                Severity.WARNING,
                all_facts,
            )
        if gained or self.relations[_Relation.BEHIND] or self.relations[_Relation.TORN]:
            written = self.relations[_Relation.BEHIND] + self.relations[_Relation.TORN]
            end_text = "here" if new_log_end <= size else f"{new_log_end:#x}, beyond the end of this file"
            text = f"at the next start the server writes {written:,} pages up to {end_text}"
            text += f"; this adds {_describe_groups(gained)}"
            all_facts = {
                **facts,
                "groups_gained": len(gained),
                "gtids_gained": gained[:_MAX_LISTED_GTIDS],
                "pages": counts,
            }
            yield _make_finding(
                file_name(file_no),
                "torn-tail",
                (min(new_log_end, size), 0),
                text,
                "redo-apply",
                Severity.NOTE,
                all_facts,
            )

    def _report_conflict(self, number: int, page_no: int) -> SetFinding:
        text = (
            f"page {page_no} has other bytes than the redo log proves; it is damaged, or this "
            f"is the redo log of "
            "another server; do not truncate"
        )
        facts = {"page_no": page_no, "pages": self.relations[_Relation.CONFLICT]}
        return _make_finding(
            file_name(number), "meta-mismatch", (page_no * PAGE_SIZE, PAGE_SIZE), text, "redo-conflict", None, facts
        )

    def _report_no_binlog_redo_records(self) -> Iterator[SetFinding]:
        """Report that no binlog record follows the checkpoint: nothing is recovered, whatever the files contain."""
        data_files = [one for one in self.files if not one.is_empty]
        ends_inside = any(one.ends_in_record for one in data_files[-1:])
        if data_files and (ends_inside or not self.summary.is_clean_shutdown):
            reason = "the log ends inside a record" if ends_inside else "the server was not shut down cleanly"
            text = (
                f"{reason}, and the redo log has no binlog record after its checkpoint; recovery leaves the "
                "files unchanged, and nothing proves that the end of the log is durable"
            )
            facts = {"durable_lsn": self.summary.end_lsn}
            yield _make_finding(
                data_files[-1].name,
                "unclean-close",
                (data_files[-1].size, 0),
                text,
                "redo-gap",
                Severity.WARNING,
                facts,
            )

    def _report_removed_files(self, numbers: Sequence[int]) -> Iterator[SetFinding]:
        """Report files that recovery deletes, and files created by redo records that are lost."""
        durable = self.summary.end_lsn or 0
        for log_file in self.files:
            header = log_file.context.header
            if log_file.is_empty or header is None:
                continue
            if header.start_lsn > durable:
                text = f"start_lsn {header.start_lsn} is after the durable LSN {durable}"
            elif log_file.number in numbers:
                text = "the durable log ends in a file before this one"
            else:
                continue
            diagnosis = text.partition(":")[0]
            facts = {"start_lsn": header.start_lsn, "durable_lsn": durable}
            yield _make_finding(log_file.name, "extra-member", (0, log_file.size), text, diagnosis, None, facts)


def _has_continued_record_at_start(page: bytes) -> bool:
    """Return whether the first chunk that is not nested continues a record of the previous page."""
    offset = 0
    while (
        offset < len(page) - 8 and page[offset] & TYPE_MASK in NESTABLE_TYPES and not page[offset] & CONTINUATION_FLAG
    ):
        offset += 3 + int.from_bytes(page[offset + 1 : offset + 3], "little")
    return offset < len(page) - 8 and bool(page[offset] & CONTINUATION_FLAG) and page[offset] != 0xFF


def _describe_groups(gtids: Sequence[str]) -> str:
    ellipsis = "…" if len(gtids) > _MAX_NAMED_GTIDS else ""
    return f"{len(gtids):,} groups" + (f" ({', '.join(gtids[:_MAX_NAMED_GTIDS])}{ellipsis})" if gtids else "")


def _make_finding(
    name: str,
    finding_id: str,
    byte_range: tuple[int, int],
    text: str,
    diagnosis: str,
    severity: Severity | None,
    facts: dict[str, Any],
) -> SetFinding:
    """Create a finding about a member; `byte_range` is (offset, length)."""
    result = make_finding(finding_id, *byte_range, text, severity=severity)
    return SetFinding(name, replace(result, facts={"diagnosis": diagnosis, **facts}))
