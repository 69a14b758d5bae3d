"""Report what recovery with the redo log would do to the files: apply, truncate, remove.

See docs/spec/mariadb_innodb_binlog.md#with-the-redo-log.
"""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import chain
from typing import Any, NamedTuple

from msgspec.structs import replace

from binlogtool.findings import Finding, Severity, make_finding
from binlogtool.formats.judging import SetFinding
from binlogtool.formats.layouts import Batch, ColumnTable, RangeReader
from binlogtool.formats.mariadb_innodb_binlog.codes import (
    CONTINUATION_FLAG,
    NESTABLE_TYPES,
    TYPE_MASK,
    IbbRecordType,
    file_name,
)
from binlogtool.formats.mariadb_innodb_binlog.groups.commits import CommitScanner, read_commit_head
from binlogtool.formats.mariadb_innodb_binlog.records.assemble import RecordAssembler
from binlogtool.formats.mariadb_innodb_binlog.records.context import IbbFileContext, is_page_crc_right
from binlogtool.formats.mariadb_innodb_binlog.redo.recovery import (
    PAGE_SIZE,
    BinlogRecovery,
    PageRelation,
    RecoveredPage,
    compare_page,
    make_recovery_file,
)
from binlogtool.formats.mariadb_innodb_binlog.redo.redo import (
    RedoLog,
    RedoSummary,
    iter_page_writes,
    summarize_redo_log,
)

_MAX_LISTED_GTIDS = 100
_MAX_NAMED_GTIDS = 8
_MAX_GTIDS = 100_000
_MAX_PAGES_BACK = 4096
_COMMIT = int(IbbRecordType.COMMIT)
_Relation = PageRelation


class IbbLogFile(NamedTuple):
    """A file of the log as recovery finds it.

    Attributes:
        is_empty: it is all zeros.
        ends_in_record: it ends inside a record.
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

    def add_page(self, page: bytes) -> None:
        """Add the next page."""
        window = memoryview(page)
        frames = ColumnTable(1, {"offset": [0], "end": [len(page)]})
        for batch in self.assembler.feed(Batch(0, window, frames, window, None, (), (), 0, 0)):
            if isinstance(batch, Batch):
                self._add_batch(batch)

    def _add_batch(self, batch: Batch) -> None:
        for numbers in self.commit_scanner.scan_batch(batch):
            gtid = numbers.gtid
            if gtid is None and numbers.payload_at < 0:
                gtid = _read_gtid(batch, numbers.record_index)
            if gtid is not None and len(self.gtids) < _MAX_GTIDS:
                self.gtids[str(gtid)] = None


def _read_gtid(batch: Batch, index: int) -> Any:
    return read_commit_head(batch.window[int(batch.frames["offset"][index]) : int(batch.frames["end"][index])]).gtid


def check_against_redo_log(files: Sequence[IbbLogFile]) -> Iterator[SetFinding]:
    """Report what the server would do with these files when it starts; nothing without a redo log."""
    redo = files[0].context.redo if files else None
    if redo is None:
        return
    name = os.path.basename(files[0].context.hints.redo or "ib_logfile0")
    log = RedoLog(redo.read, redo.size)
    summary = summarize_redo_log(log)
    yield from (SetFinding(name, _prefix_redo_finding(found)) for found in summary.findings)
    if summary.end_lsn is None or not summary.is_acceptable or log.is_encrypted:
        return
    yield from _RecoveryCheck(log, summary, files, name).iter_findings()


def _prefix_redo_finding(problem: Finding) -> Finding:
    return replace(problem, message=f"redo log: {problem.message}")


class _RecoveryCheck:
    """One dry run of recovery, compared with the files."""

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
            start = self._find_record_start(first)
            for page in self._iter_pages_on_disk(start, (first.file_no, first.page_no)):
                self.gtids_after.add_page(page)
            self._compare_pages(chain((first,), pages))
            for page in self._iter_pages_on_disk(start, None):
                self.gtids_before.add_page(page)
        outcome = recovery.outcome
        yield from (SetFinding(self._member_name(found), found) for found in outcome.findings)
        if self.conflict is not None:
            yield self._report_conflict(*self.conflict)
        if outcome.file_no is not None and outcome.page_no is not None:
            yield from self._report_changes(outcome.file_no, outcome.page_no * PAGE_SIZE + (outcome.offset or 0))
        elif not outcome.applied and outcome.succeeds:
            yield from self._report_no_records()
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
            relation = compare_page(self._read_page(page.file_no, page.page_no), page)
            self.relations[relation] += 1
            if relation is _Relation.CONFLICT and self.conflict is None:
                self.conflict = (page.file_no, page.page_no)
            if page.page_no:
                self.gtids_after.add_page(page.data)

    def _find_record_start(self, first: RecoveredPage) -> tuple[int, int]:
        """Find the page where the record begins that continues in the first page; that page if there is none."""
        place = (first.file_no, max(first.page_no, 1))
        data = first.data if first.page_no else b""
        for _ in range(_MAX_PAGES_BACK):
            if data and not _continues_record(data):
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
        """Iterate over the data pages on disk from `start` on, before `stop`, as far as they are sound."""
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

    # -- what is told --------------------------------------------------------------------------------------------------

    def _report_changes(self, number: int, new_end: int) -> Iterator[SetFinding]:
        lost = [gtid for gtid in self.gtids_before.gtids if gtid not in self.gtids_after.gtids]
        gained = [gtid for gtid in self.gtids_after.gtids if gtid not in self.gtids_before.gtids]
        log_file = self.by_number.get(number)
        size = log_file.size if log_file is not None else new_end
        facts = {"durable_lsn": self.summary.end_lsn, "file_no": number, "offset": new_end}
        counts = {str(relation): count for relation, count in self.relations.items()}
        if lost or self.relations[_Relation.AHEAD]:
            text = (
                f"redo-cut: at the next start the server cuts the log here (durable LSN {self.summary.end_lsn}); "
                f"{_describe_groups(lost)} behind it never became durable"
            )
            all_facts = {**facts, "groups_lost": len(lost), "gtids_lost": lost[:_MAX_LISTED_GTIDS], "pages": counts}
            yield _make_finding(
                file_name(number),
                "torn-tail",
                (min(new_end, size), max(size - new_end, 0)),
                text,
                "redo-cut",
                Severity.WARNING,
                all_facts,
            )
        if gained or self.relations[_Relation.BEHIND] or self.relations[_Relation.TORN]:
            written = self.relations[_Relation.BEHIND] + self.relations[_Relation.TORN]
            end_text = "here" if new_end <= size else f"{new_end:#x}, behind the end of this file"
            text = f"redo-apply: at the next start the server writes {written:,} pages up to {end_text}"
            text += f"; this adds {_describe_groups(gained)}"
            all_facts = {
                **facts,
                "groups_gained": len(gained),
                "gtids_gained": gained[:_MAX_LISTED_GTIDS],
                "pages": counts,
            }
            yield _make_finding(
                file_name(number), "torn-tail", (min(new_end, size), 0), text, "redo-apply", Severity.NOTE, all_facts
            )

    def _report_conflict(self, number: int, page_no: int) -> SetFinding:
        text = (
            f"redo-conflict: page {page_no} holds other bytes than the redo log proves: damage, or the redo log of "
            "another server; nothing should be cut"
        )
        facts = {"page_no": page_no, "pages": self.relations[_Relation.CONFLICT]}
        return _make_finding(
            file_name(number), "meta-mismatch", (page_no * PAGE_SIZE, PAGE_SIZE), text, "redo-conflict", None, facts
        )

    def _report_no_records(self) -> Iterator[SetFinding]:
        """Report that no binlog record follows the checkpoint: the server does nothing, whatever the files contain."""
        data_files = [one for one in self.files if not one.is_empty]
        ends_inside = any(one.ends_in_record for one in data_files[-1:])
        if data_files and (ends_inside or not self.summary.is_clean_shutdown):
            reason = "the log ends inside a record" if ends_inside else "the server was not shut down cleanly"
            text = (
                f"redo-gap: {reason}, and the redo log has no binlog record behind its checkpoint: recovery leaves the "
                "files as they are, and nothing proves the end of the log durable"
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
                text = f"file-from-lost-redo: start_lsn {header.start_lsn} is behind the durable LSN {durable}"
            elif log_file.number in numbers:
                text = "removed-by-recovery: the durable log ends in a file before this one"
            else:
                continue
            diagnosis = text.partition(":")[0]
            facts = {"start_lsn": header.start_lsn, "durable_lsn": durable}
            yield _make_finding(log_file.name, "extra-member", (0, log_file.size), text, diagnosis, None, facts)


def _continues_record(page: bytes) -> bool:
    """Check if the first chunk that is not nested continues a record of the page before."""
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
