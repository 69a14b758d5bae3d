"""Plan the repair of the files of a log: what stays, what becomes zero, and what is restored from the redo log.

See docs/spec/mariadb_innodb_binlog.md#truncation.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple

import msgspec
from msgspec.structs import replace

from binlogtool.findings import Finding, Severity
from binlogtool.format_api.format import (
    EngineLock,
    JointRepair,
    ReadableFile,
    RepairRules,
    ResultPiece,
    RewrittenFile,
    VerifiedFile,
)
from binlogtool.format_api.layout import CRC32C, RangeReader
from binlogtool.formats.innodb.redo_log import (
    RedoLog,
    RedoSummary,
    iter_page_writes,
    summarize_redo_log,
)
from binlogtool.formats.mariadb_innodb_binlog.redo_recovery import (
    PAGE_SIZE,
    BinlogRecovery,
    PageRelation,
    RecoveredPage,
    RecoveryOutcome,
    compare_page_with_recovered,
    make_recovery_file,
)
from binlogtool.formats.mariadb_innodb_binlog.schema import (
    CHUNK_HEAD_SIZE,
    CRC_SIZE,
    PAGE_SIZE_SHIFTS,
    TYPE_MASK,
    IbbFileHeader,
    IbbRecordType,
    file_name,
    file_number,
    is_page_crc_right,
    is_short_header_crc_right,
    parse_header,
)
from binlogtool.limits import MIB

# --- Pages of a repaired file ---


def rebuild_page_with_zero_tail(page: bytes, used_bytes: int) -> bytes:
    """Return a page with zeros after its first `used_bytes` bytes, which must be proven by its old CRC."""
    end = len(page) - CRC_SIZE
    payload = page[:used_bytes].ljust(end, b"\0")
    return payload + CRC32C(payload).to_bytes(CRC_SIZE, "little")


def content_size(page: bytes) -> int:
    """Return the number of bytes of a page up to the last nonzero byte, without the CRC."""
    return len(page[:-CRC_SIZE].rstrip(b"\0")) if any(page) else 0


def iter_nonzero_pages(read: RangeReader, first: int, size: int, page_size: int) -> Iterator[tuple[int, bytes]]:
    """Yield (number, page) of the pages from `first` on that are not all zero; the last page may be shorter."""
    step = max(MIB // page_size, 1) * page_size
    for start in range(first * page_size, size, step):
        data = read(start, min(step, size - start))
        if any(data):
            for offset in range(0, len(data), page_size):
                page = data[offset : offset + page_size]
                if any(page):
                    yield (start + offset) // page_size, page


class RebuiltFile(msgspec.Struct):
    """Planned new content of a file.

    `size`: new size in bytes. `pages`: changed pages, by number; None = zeros. `lost_bytes`: number of content bytes
    that are removed. `new_bytes`: number of bytes that come from the redo log.
    """

    size: int
    lost_bytes: int = 0
    new_bytes: int = 0
    pages: dict[int, bytes | None] = msgspec.field(default_factory=dict)

    def replace_page(self, number: int, old: bytes, new: bytes) -> None:
        """Replace a page, which may be incomplete or absent in the file."""
        common = _common_prefix_size(old, new)
        self.pages[number] = new
        self.lost_bytes += max(content_size(old.ljust(len(new), b"\0")) - common, 0)
        self.new_bytes += len(new[common:-CRC_SIZE].rstrip(b"\0"))

    def clear_pages(self, read: RangeReader, first: int, size: int, page_size: int) -> None:
        """Replace all pages from `first` on by zeros; `size`: current size of the file."""
        for number, page in iter_nonzero_pages(read, first, size, page_size):
            self.pages[number] = None
            self.lost_bytes += content_size(page.ljust(page_size, b"\0"))

    def to_pieces(self, read: RangeReader, size: int, page_size: int) -> tuple[ResultPiece, ...]:
        """Return the whole new content as pieces; `size`: current size of the file."""
        return tuple(_merge_pieces(_iter_rebuilt_file_pieces(self.pages, read, size, self.size, page_size)))


def _common_prefix_size(old: bytes, new: bytes) -> int:
    """Return the number of bytes at the start in which two pages agree."""
    low, high = 0, min(len(old), len(new) - CRC_SIZE)
    while low < high:
        middle = (low + high + 1) // 2
        low, high = (middle, high) if old[:middle] == new[:middle] else (low, middle - 1)
    return low


def _iter_rebuilt_file_pieces(
    changed_pages: Mapping[int, bytes | None], read: RangeReader, old_size: int, new_size: int, page_size: int
) -> Iterator[ResultPiece]:
    offset = 0
    for number in sorted(changed_pages):
        start = number * page_size
        if start >= new_size:
            break
        yield from _unchanged_pieces(offset, start, old_size)
        new = changed_pages[number]
        yield from [ResultPiece(zeros=page_size)] if new is None else _page_pieces(start, read(start, page_size), new)
        offset = start + page_size
    yield from _unchanged_pieces(offset, new_size, old_size)


def _unchanged_pieces(start: int, end: int, size: int) -> Iterator[ResultPiece]:
    """Yield an unchanged range of the file; zeros after the end of the file."""
    yield ResultPiece(start, max(start, min(end, size)))
    yield ResultPiece(zeros=max(0, end - max(start, size)))


def _page_pieces(start: int, old: bytes, new: bytes) -> Iterator[ResultPiece]:
    """Yield a page: the common prefix stays, then new bytes, zeros, and the CRC."""
    common, end = _common_prefix_size(old, new), len(new) - CRC_SIZE
    data = new[common:end].rstrip(b"\0")
    yield ResultPiece(start, start + common)
    yield ResultPiece(data=data)
    yield ResultPiece(zeros=end - common - len(data))
    yield ResultPiece(data=new[end:])


def _merge_pieces(pieces: Iterator[ResultPiece]) -> Iterator[ResultPiece]:
    """Drop empty pieces, and merge adjacent pieces of the same kind."""
    last: ResultPiece | None = None
    for piece in pieces:
        if not piece.size:
            continue
        merged = None if last is None else _merge_pair(last, piece)
        if last is not None and merged is None:
            yield last
        last = merged or piece
    if last is not None:
        yield last


def _merge_pair(first: ResultPiece, second: ResultPiece) -> ResultPiece | None:
    if first.is_original and second.is_original and first.end == second.start:
        return ResultPiece(first.start, second.end)
    return ResultPiece(zeros=first.zeros + second.zeros) if first.zeros and second.zeros else None


# --- Repair of a log's files ---

MAX_REDO_BYTES = 8 * MIB
"""Maximum number of bytes that a repair takes from the redo log; larger differences are left to the server."""

MAX_FILE_SIZE = 1 << 30
"""Highest max_binlog_size: no file is made larger than this."""

_MIN_FREE_BYTES = 8
"""Minimum free space for another chunk, in bytes, CRC included; a page with less is full."""

_DERIVED_TYPES = frozenset({IbbRecordType.GTID_STATE.name, IbbRecordType.DUMMY.name})
_BLOCKING_FINDINGS = ("gap-in-sequence", "missing-member", "changed-while-read")


class _RepairFile(NamedTuple):
    """A file of the log.

    `header`: None if it cannot be trusted. `is_preallocated`: the file is all zeros.
    """

    verified: VerifiedFile
    number: int
    header: IbbFileHeader | None
    is_preallocated: bool

    @property
    def page_size(self) -> int:
        """Page size from the header, or the default."""
        return PAGE_SIZE if self.header is None else 1 << self.header.page_size_shift

    @property
    def full_size(self) -> int:
        """Size in bytes that the header declares."""
        return self.verified.size if self.header is None else self.header.page_count * self.page_size


def plan_log_repair(verified_files: Sequence[VerifiedFile], redo: ReadableFile | None, discard: bool) -> JointRepair:
    """Plan the joint repair of a log's files (`RepairRules.plan_joint_repair`)."""
    files = [_make_repair_file(one) for one in verified_files]
    misnamed = [one.verified.name for one in files if one.verified.name != file_name(one.number)]
    if misnamed:
        return JointRepair(reasons=tuple(f"{name}: servers do not open a file with this name" for name in misnamed))
    if redo is None:
        return _plan_by_records(files, discard)
    log = RedoLog(redo.read, redo.size)
    if log.is_encrypted:
        repair = _plan_by_records(files, discard)
        note = "the redo log is encrypted and proves nothing; the log ends after the last complete record"
        return JointRepair(repair.files, repair.reasons, (note, *repair.notes))
    return _plan_by_redo_log(files, log, discard)


def _make_repair_file(verified: VerifiedFile) -> _RepairFile:
    head = verified.read(0, PAGE_SIZE)
    header = parse_header(head) if is_short_header_crc_right(head) else None
    if header is not None and (header.page_size_shift not in PAGE_SIZE_SHIFTS or not header.page_count):
        header = None
    if (
        header is not None
        and not verified.record_types
        and not is_page_crc_right(verified.read(0, 1 << header.page_size_shift))
    ):
        header = None  # the server considers such a file empty, and it has no records
    is_preallocated = not verified.durable_end and not verified.record_types and not any(head)
    return _RepairFile(verified, file_number(verified.name) or 0, header, is_preallocated)


# -- plan by the records -----------------------------------------------------------------------------------------------


def _plan_by_records(files: Sequence[_RepairFile], discard: bool) -> JointRepair:
    """Plan without a redo log: the log ends after the last complete record before the first damage.

    See docs/spec/mariadb_innodb_binlog.md#without-the-redo-log.
    """
    data_files = [one for one in files if not one.is_preallocated]
    last = data_files[-1] if data_files else None
    first = next((one for one in data_files if _needs_truncation(one, one is last, discard)), None)
    if first is None or last is None:
        return JointRepair()
    later = [one for one in files if one.number > first.number]
    reasons = [text for one in (first, *later) for text in _iter_truncation_barriers(one, first, one is last, discard)]
    if first.header is None:
        rewritten: tuple[RewrittenFile, ...] = ()
        removed_files = [first, *later]
        if first.number == data_files[0].number:
            defect = "header page is not whole" if first.verified.size < first.page_size else "header is damaged"
            reasons.append(f"{first.verified.name}: the {defect}, and there is no earlier file; nothing would be left")
    else:
        rebuilt, problems = _plan_file_truncation(first, discard)
        reasons += problems
        rewritten = () if problems else _make_rewritten_file_if_changed(first, rebuilt, first.verified.durable_end or 0)
        removed_files = later if any(not one.is_preallocated for one in later) else []
    reasons += [text for one in removed_files for text in _list_size_problems(one)]
    if not discard:
        reasons += [f"{one.verified.name}: it has complete records" for one in removed_files if _count_records(one)]
    if reasons:
        return JointRepair(reasons=tuple(reasons))
    changed = (*rewritten, *(_make_removed_file(one) for one in removed_files))
    return JointRepair(changed, (), tuple(_iter_notes_without_redo_log((first, *later))) if changed else ())


def _iter_notes_without_redo_log(files: Sequence[_RepairFile]) -> Iterator[str]:
    """Yield notes on what is unknown without the redo log."""
    yield (
        "without the redo log the log ends after the last complete record; the tables may have less than that: "
        "--redo ib_logfile0 finds the end that is proven durable"
    )
    if any(found.facts.get("diagnosis") == "torn-tail-page" for one in files for found in one.verified.findings):
        yield "the redo log has the contents of the torn page; with --redo nothing durable of it is lost"


def _needs_truncation(file: _RepairFile, is_last: bool, discard: bool) -> bool:
    """Return whether data after the last complete record must be removed."""
    return any(
        _is_tail_finding(found)
        or (is_last and _is_truncated_file(found))
        or (discard and _is_error_after_end(found, file))
        for found in file.verified.findings
    )


def _is_tail_finding(problem: Finding) -> bool:
    is_own = not str(problem.facts.get("diagnosis")).startswith("redo-")
    return is_own and problem.id in ("torn-tail", "garbage-tail")


def _is_truncated_file(problem: Finding) -> bool:
    return problem.facts.get("diagnosis") == "truncated-file"


def _is_error_after_end(problem: Finding, file: _RepairFile) -> bool:
    end = (problem.offset or 0) + max(problem.length, 1)
    return problem.severity is Severity.ERROR and end > (file.verified.durable_end or 0)


def _iter_truncation_barriers(file: _RepairFile, first: _RepairFile, is_last: bool, discard: bool) -> Iterator[str]:
    """Yield the damage after the new end that is not the tail of a crash, and so may hide records."""
    for problem in file.verified.findings:
        is_after_end = file is not first or _is_error_after_end(problem, file)
        if problem.severity is not Severity.ERROR or not is_after_end or (is_last and _is_truncated_file(problem)):
            continue
        if problem.id in _BLOCKING_FINDINGS:
            yield f"{file.verified.name}: {problem.id}: {problem.message}; truncating would hide that"
        elif not discard:
            is_bit_flip = "flipped_bit" in problem.facts
            reason = (
                "a crash does not cause such damage"
                if is_bit_flip
                else "damage that is not at the end and is not a torn page"
            )
            yield f"{file.verified.name}: {problem.id}: {problem.message}; {reason}"


def _count_records(file: _RepairFile) -> int:
    return sum(count for name, count in file.verified.record_types.items() if name not in _DERIVED_TYPES)


def _plan_file_truncation(file: _RepairFile, discards_records: bool) -> tuple[RebuiltFile, list[str]]:
    """Return the file, at its full size, with zeros after its durable end, and the reasons against truncation."""
    verified, size = file.verified, file.page_size
    rebuilt, problems = RebuiltFile(file.full_size), _list_size_problems(file)
    number, used = divmod(max(verified.durable_end or 0, size), size)
    page = verified.read(number * size, size) if used else b""
    if used and not is_page_crc_right(page):
        problems.append(f"{verified.name}: page {number} is not proven by its CRC, so it gets no new CRC")
    if used and not discards_records and _has_chunks_after_zero_byte(page, used):
        problems.append(
            f"{verified.name}: page {number} has more records after a type byte of 0; truncating would discard them"
        )
    if problems:
        return rebuilt, problems
    if used and used <= size - _MIN_FREE_BYTES and rebuild_page_with_zero_tail(page, used) != page:
        rebuilt.replace_page(number, page, rebuild_page_with_zero_tail(page, used))
    rebuilt.clear_pages(verified.read, number + bool(used), verified.size, size)
    return rebuilt, []


def _has_chunks_after_zero_byte(page: bytes, used_bytes: int) -> bool:
    """Return whether the bytes after the end of data would be valid chunks if their first byte were not 0."""
    end = len(page) - CRC_SIZE
    offset = used_bytes
    while offset <= len(page) - _MIN_FREE_BYTES and (page[offset] or offset == used_bytes):
        length = int.from_bytes(page[offset + 1 : offset + CHUNK_HEAD_SIZE], "little")
        is_known_type = offset == used_bytes or page[offset] & TYPE_MASK in tuple(IbbRecordType)
        if not length or not is_known_type or offset + CHUNK_HEAD_SIZE + length > end:
            return False
        offset += CHUNK_HEAD_SIZE + length
    return page[used_bytes] == 0 and not any(page[offset:end].strip(b"\xff"))


def _list_size_problems(file: _RepairFile) -> list[str]:
    """Return a reason against the repair if the file would be larger than servers write; else an empty list."""
    needed_size = max(file.full_size, file.verified.size - file.page_size)
    if needed_size <= MAX_FILE_SIZE:
        return []
    return [
        f"{file.verified.name}: {needed_size:,} bytes according to its header; servers do not write such large files"
    ]


def _make_rewritten_file_if_changed(
    file: _RepairFile, rebuilt: RebuiltFile, new_end: int, **proof: object
) -> tuple[RewrittenFile, ...]:
    """Return the rewritten file as a tuple; empty if it does not change."""
    verified = file.verified
    if not rebuilt.pages and rebuilt.size == verified.size:
        return ()
    pieces = rebuilt.to_pieces(verified.read, verified.size, file.page_size)
    return (
        RewrittenFile(
            verified.name, "rewrite" if rebuilt.new_bytes else "zero-fill", pieces, new_end, rebuilt.lost_bytes, proof
        ),
    )


def _make_removed_file(file: _RepairFile) -> RewrittenFile:
    size = file.page_size
    pages = iter_nonzero_pages(file.verified.read, 0, file.verified.size, size)
    lost = sum(content_size(page.ljust(size, b"\0")) for _, page in pages)
    return RewrittenFile(file.verified.name, "remove", (), None, lost)


# -- plan by the redo log ----------------------------------------------------------------------------------------------


def _plan_by_redo_log(files: Sequence[_RepairFile], log: RedoLog, discard: bool) -> JointRepair:
    """Plan the changes that the server's recovery makes (docs/spec/mariadb_innodb_binlog.md#with-the-redo-log)."""
    summary = summarize_redo_log(log)
    if not summary.is_acceptable:
        messages = [one.message for one in summary.findings if one.severity is Severity.ERROR]
        return JointRepair(
            reasons=tuple(f"the redo log proves nothing: {text}" for text in messages or ["it has no end"])
        )
    if any(one.header is not None and one.page_size != PAGE_SIZE for one in files):
        return JointRepair(reasons=(f"recovery supports only pages of {PAGE_SIZE:,} bytes",))
    run = _RecoveryPlan({one.number: one for one in files})
    outcome = run.run_recovery(log)
    rewritten = [] if run.reasons or not outcome.succeeds else [*run.iter_rewritten_files(outcome, summary)]
    reasons = [*run.reasons, *(one.message for one in outcome.findings if not (outcome.succeeds and discard))]
    if run.reasons or not outcome.succeeds:
        return JointRepair(reasons=tuple(reasons))
    rewritten += [_make_removed_file(run.files[number]) for number in outcome.removed]
    return JointRepair(
        tuple(rewritten), tuple(reasons), tuple(_iter_recovery_notes(files, outcome, summary)), proven=True
    )


def _iter_recovery_notes(files: Sequence[_RepairFile], outcome: RecoveryOutcome, summary: RedoSummary) -> Iterator[str]:
    ends_inside = any(_is_tail_finding(found) for one in files for found in one.verified.findings)
    if not outcome.writes and ends_inside:
        yield (
            "the redo log has no binlog record after its checkpoint; the server changes nothing, and nothing is "
            "changed here; without --redo the incomplete record at the end is removed"
        )
    elif outcome.applied or outcome.removed:
        yield (
            f"this is what the server does when it starts with this redo log (durable LSN {summary.end_lsn}); "
            "start it with the same redo log, so that tables and binlog agree"
        )


class _RecoveryPlan(msgspec.Struct):
    """Recovery, compared with the files on disk.

    `reasons`: why the result of recovery cannot or must not be written. `created`: files created from the redo log ->
    the file whose owner and mode they get.
    """

    files: dict[int, _RepairFile]
    reasons: list[str] = msgspec.field(default_factory=list)
    changed: dict[int, RebuiltFile] = msgspec.field(default_factory=dict)
    file_ends: dict[int, int] = msgspec.field(default_factory=dict)
    relations: Counter[PageRelation] = msgspec.field(default_factory=Counter)
    created: dict[int, str] = msgspec.field(default_factory=dict)

    def run_recovery(self, log: RedoLog) -> RecoveryOutcome:
        """Run recovery to its end, or until too much would have to be written."""
        recovery_files = [
            make_recovery_file(one.number, one.verified.read(0, PAGE_SIZE), one.verified.size)
            for one in self.files.values()
        ]
        recovery = BinlogRecovery(iter_page_writes(log), recovery_files)
        for page in recovery.iter_pages():
            self.file_ends[page.file_no] = page.page_no * PAGE_SIZE + page.used
            if page.file_no not in self.files:
                self._add_file_created_by_recovery(page.file_no)
            self._compare_and_replace_page(self.files[page.file_no].verified, page)
            if sum(one.new_bytes for one in self.changed.values()) > MAX_REDO_BYTES:
                self.reasons.append(
                    f"more than {MAX_REDO_BYTES:,} bytes are only in the redo log; the server writes them"
                )
                break
        return recovery.outcome

    def _add_file_created_by_recovery(self, file_no: int) -> None:
        """Add a file that exists only in the redo log: recovery writes it from its header page on."""
        self.created[file_no] = self.files[max(self.files)].verified.name
        self.files[file_no] = _RepairFile(
            VerifiedFile(file_name(file_no), 0, None, {}, (), _read_nothing), file_no, None, False
        )
        self.changed[file_no] = RebuiltFile(0)

    def _compare_and_replace_page(self, verified: VerifiedFile, recovered_page: RecoveredPage) -> None:
        old = verified.read(recovered_page.page_no * PAGE_SIZE, PAGE_SIZE)
        relation = compare_page_with_recovered(old, recovered_page)
        self.relations[relation] += 1
        if relation is PageRelation.CONFLICT:
            text = "has other bytes than the redo log proves; it is damaged, or this is the redo log of another server"
            self.reasons.append(f"{verified.name}: page {recovered_page.page_no} {text}")
        elif relation is not PageRelation.EQUAL:
            rebuilt = self.changed.setdefault(recovered_page.file_no, RebuiltFile(verified.size))
            rebuilt.replace_page(recovered_page.page_no, old, recovered_page.data)
            if recovered_page.file_no in self.created:
                rebuilt.size = (recovered_page.page_no + 1) * PAGE_SIZE

    def iter_rewritten_files(self, outcome: RecoveryOutcome, summary: RedoSummary) -> Iterator[RewrittenFile]:
        """Yield the files that recovery changes."""
        if outcome.file_no is not None and outcome.page_no is not None and outcome.page_count is not None:
            verified = self.files[outcome.file_no].verified
            last_file = self.changed.setdefault(outcome.file_no, RebuiltFile(verified.size))
            last_file.size = outcome.page_count * PAGE_SIZE
            last_file.clear_pages(verified.read, outcome.page_no + 1, verified.size, PAGE_SIZE)
            if last_file.size > max(MAX_FILE_SIZE, verified.size):
                self.reasons.append(
                    f"{verified.name}: {last_file.size:,} bytes, as its header says, is more than servers write"
                )
        pages = {str(relation): count for relation, count in sorted(self.relations.items())}
        for number, rebuilt in sorted(self.changed.items()):
            end, lsn = self.file_ends[number], summary.end_lsn
            for rewritten in _make_rewritten_file_if_changed(
                self.files[number], rebuilt, end, durable_lsn=lsn, pages=pages
            ):
                yield replace(rewritten, like=self.created.get(number))


def _read_nothing(offset: int, size: int) -> bytes:
    """Return no bytes, as the content of a file that does not exist."""
    return b""


REPAIR = RepairRules(
    locks=(EngineLock("aria_log_control", "record"), EngineLock("ibdata1", "record")),
    salvage_obstacle="references between records are file offsets, so no record can move",
    derived=_DERIVED_TYPES,
    plan_joint_repair=plan_log_repair,
    redo=(
        "ib_logfile0",
        "../ib_logfile0",
    ),  # --binlog-directory: a separate directory, usually below the data directory
)
