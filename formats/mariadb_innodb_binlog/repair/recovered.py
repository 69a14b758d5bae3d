"""Report what recovery with the redo log would do to the files: apply, truncate, remove.

See docs/spec/mariadb-innodb-binlog.md#a-with-ib_logfile0.
"""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import chain
from typing import Any, NamedTuple

from msgspec.structs import replace

from binlogtool.findings import Finding, Severity, finding
from binlogtool.formats.judging import SetFinding
from binlogtool.formats.layouts import Batch, Read, Table
from binlogtool.formats.mariadb_innodb_binlog.codes import CONT, KIND, NESTED, RecordType, file_name
from binlogtool.formats.mariadb_innodb_binlog.groups.commits import Commits, commit_head
from binlogtool.formats.mariadb_innodb_binlog.records.assemble import Records
from binlogtool.formats.mariadb_innodb_binlog.records.context import FileContext, page_crc_right
from binlogtool.formats.mariadb_innodb_binlog.redo.recovery import (
    PAGE_SIZE,
    BinlogRecovery,
    PageRelation,
    RecoveredPage,
    binlog_file,
    compare_page,
)
from binlogtool.formats.mariadb_innodb_binlog.redo.redo import RedoLog, RedoSummary, page_writes, redo_summary

_LISTED = 100
_NAMED = 8
_MOST = 100_000
_BACK = 4096
_COMMIT = int(RecordType.COMMIT)
_R = PageRelation


class LogFile(NamedTuple):
    """A file of the log as recovery finds it.

    Attributes:
        is_empty: it is all zeros.
        ends_in_record: it ends inside a record.
    """

    name: str
    number: int
    context: FileContext
    size: int
    empty: bool
    open: bool


def _same(function: Any) -> Any:
    return function


@dataclass(slots=True)
class _Gtids:
    """Collects the groups whose COMMIT records end in a run of pages."""

    context: FileContext
    found: dict[str, None] = field(default_factory=dict)
    records: Records = field(init=False)
    commits: Commits = field(init=False)

    def __post_init__(self) -> None:
        alone = replace(self.context, beside=None, read=None)
        self.records, self.commits = Records(alone, _same), Commits(_same)

    def add(self, page: bytes) -> None:
        """Add the next page."""
        window = memoryview(page)
        frames = Table(1, {"offset": [0], "end": [len(page)]})
        for made in self.records.feed(Batch(0, window, frames, window, None, (), (), 0, 0)):
            if isinstance(made, Batch):
                self._take(made)

    def _take(self, batch: Batch) -> None:
        for numbers in self.commits.of(batch):
            gtid = numbers.gtid
            if gtid is None and numbers.payload < 0:
                gtid = _gtid_of(batch, numbers.at)
            if gtid is not None and len(self.found) < _MOST:
                self.found[str(gtid)] = None


def _gtid_of(batch: Batch, index: int) -> Any:
    return commit_head(batch.window[int(batch.frames["offset"][index]) : int(batch.frames["end"][index])]).gtid


def against_redo(files: Sequence[LogFile]) -> Iterator[SetFinding]:
    """Report what the server would do with these files when it starts; nothing without a redo log."""
    redo = files[0].context.redo if files else None
    if redo is None:
        return
    name = os.path.basename(files[0].context.hints.redo or "ib_logfile0")
    log = RedoLog(redo.read, redo.size)
    summary = redo_summary(log)
    yield from (SetFinding(name, _of_redo(found)) for found in summary.findings)
    if summary.end_lsn is None or not summary.durable or log.encrypted:
        return
    yield from _Recovery(log, summary, files, name).findings()


def _of_redo(found: Finding) -> Finding:
    return replace(found, message=f"redo log: {found.message}")


class _Recovery:
    """One dry run of recovery, compared with the files."""

    def __init__(self, log: RedoLog, summary: RedoSummary, files: Sequence[LogFile], name: str) -> None:
        self.log, self.summary, self.files, self.name = log, summary, files, name
        self.by_number = {one.number: one for one in files}
        self.relations: Counter[PageRelation] = Counter()
        self.conflict: tuple[int, int] | None = None
        self.context = files[0].context
        self.after = _Gtids(self.context)
        self.before = _Gtids(self.context)
        self._reads: dict[int, Read | None] = {}

    def findings(self) -> Iterator[SetFinding]:
        """Report what recovery would change."""
        known = [binlog_file(one.number, self._page(one.number, 0), one.size) for one in self.files]
        recovery = BinlogRecovery(page_writes(self.log), known)
        pages = recovery.pages()
        first = next((page for page in pages), None)
        if first is not None:
            start = self._start(first)
            for page in self._disk(start, (first.file_no, first.page_no)):
                self.after.add(page)
            self._compare(chain((first,), pages))
            for page in self._disk(start, None):
                self.before.add(page)
        outcome = recovery.outcome
        yield from (SetFinding(self._about(found), found) for found in outcome.findings)
        if self.conflict is not None:
            yield self._conflict(*self.conflict)
        if outcome.file_no is not None and outcome.page_no is not None:
            yield from self._changes(outcome.file_no, outcome.page_no * PAGE_SIZE + (outcome.offset or 0))
        elif not outcome.applied and outcome.succeeds:
            yield from self._nothing()
        yield from self._removed(outcome.removed)

    def _about(self, found: Finding) -> str:
        number = found.facts.get("file_no")
        return file_name(number) if isinstance(number, int) else self.name

    def _page(self, file_no: int, page_no: int) -> bytes:
        if file_no not in self._reads:
            known = self.by_number.get(file_no)
            beside = None if known is None else known.context.beside
            self._reads[file_no] = None if known is None or beside is None else beside(known.name)
        read = self._reads[file_no]
        return b"" if read is None else read(page_no * PAGE_SIZE, PAGE_SIZE)

    def _compare(self, pages: Iterable[RecoveredPage]) -> None:
        for page in pages:
            relation = compare_page(self._page(page.file_no, page.page_no), page)
            self.relations[relation] += 1
            if relation is _R.CONFLICT and self.conflict is None:
                self.conflict = (page.file_no, page.page_no)
            if page.page_no:
                self.after.add(page.data)

    def _start(self, first: RecoveredPage) -> tuple[int, int]:
        """Find the page where the record begins that continues in the first page; that page if there is none."""
        place = (first.file_no, max(first.page_no, 1))
        data = first.data if first.page_no else b""
        for _ in range(_BACK):
            if data and not _goes_on(data):
                break
            number, page_no = place
            before = (number, page_no - 1) if page_no > 1 else self._end_of(number - 1)
            data = b"" if before is None else self._page(*before)
            if before is None or len(data) < PAGE_SIZE or not page_crc_right(data):
                break
            place = before
        return place

    def _end_of(self, number: int) -> tuple[int, int] | None:
        known = self.by_number.get(number)
        return None if known is None or known.size < 2 * PAGE_SIZE else (number, known.size // PAGE_SIZE - 1)

    def _disk(self, start: tuple[int, int], stop: tuple[int, int] | None) -> Iterator[bytes]:
        """Iterate over the data pages on disk from `start` on, before `stop`, as far as they are sound."""
        number, page_no = start
        while number in self.by_number:
            while stop is None or (number, page_no) < stop:
                data = self._page(number, page_no)
                if len(data) < PAGE_SIZE:
                    break
                if not page_crc_right(data):
                    return
                yield data
                page_no += 1
            if stop is not None and (number, page_no) >= stop:
                return
            number, page_no = number + 1, 1

    # -- what is told --------------------------------------------------------------------------------------------------

    def _changes(self, number: int, cut: int) -> Iterator[SetFinding]:
        lost = [gtid for gtid in self.before.found if gtid not in self.after.found]
        gained = [gtid for gtid in self.after.found if gtid not in self.before.found]
        known = self.by_number.get(number)
        size = known.size if known is not None else cut
        facts = {"durable_lsn": self.summary.end_lsn, "file_no": number, "offset": cut}
        counts = {str(relation): count for relation, count in self.relations.items()}
        if lost or self.relations[_R.AHEAD]:
            text = (
                f"redo-cut: at the next start the server cuts the log here (durable LSN {self.summary.end_lsn}); "
                f"{_groups(lost)} behind it never became durable"
            )
            more = {**facts, "groups_lost": len(lost), "gtids_lost": lost[:_LISTED], "pages": counts}
            yield _found(
                file_name(number),
                "torn-tail",
                (min(cut, size), max(size - cut, 0)),
                text,
                "redo-cut",
                Severity.WARNING,
                more,
            )
        if gained or self.relations[_R.BEHIND] or self.relations[_R.TORN]:
            written = self.relations[_R.BEHIND] + self.relations[_R.TORN]
            where = "here" if cut <= size else f"{cut:#x}, behind the end of this file"
            text = f"redo-apply: at the next start the server writes {written:,} pages up to {where}"
            text += f"; this adds {_groups(gained)}"
            more = {**facts, "groups_gained": len(gained), "gtids_gained": gained[:_LISTED], "pages": counts}
            yield _found(file_name(number), "torn-tail", (min(cut, size), 0), text, "redo-apply", Severity.NOTE, more)

    def _conflict(self, number: int, page_no: int) -> SetFinding:
        text = (
            f"redo-conflict: page {page_no} holds other bytes than the redo log proves: damage, or the redo log of "
            "another server; nothing should be cut"
        )
        facts = {"page_no": page_no, "pages": self.relations[_R.CONFLICT]}
        return _found(
            file_name(number), "meta-mismatch", (page_no * PAGE_SIZE, PAGE_SIZE), text, "redo-conflict", None, facts
        )

    def _nothing(self) -> Iterator[SetFinding]:
        """Report that no binlog record follows the checkpoint: the server does nothing, whatever the files contain."""
        full = [one for one in self.files if not one.empty]
        inside = any(one.open for one in full[-1:])
        if full and (inside or not self.summary.clean_shutdown):
            why = "the log ends inside a record" if inside else "the server was not shut down cleanly"
            text = (
                f"redo-gap: {why}, and the redo log has no binlog record behind its checkpoint: recovery leaves the "
                "files as they are, and nothing proves the end of the log durable"
            )
            facts = {"durable_lsn": self.summary.end_lsn}
            yield _found(full[-1].name, "unclean-close", (full[-1].size, 0), text, "redo-gap", Severity.WARNING, facts)

    def _removed(self, numbers: Sequence[int]) -> Iterator[SetFinding]:
        """Report files that recovery deletes, and files created by redo records that are lost."""
        durable = self.summary.end_lsn or 0
        for one in self.files:
            header = one.context.header
            if one.empty or header is None:
                continue
            if header.start_lsn > durable:
                text = f"file-from-lost-redo: start_lsn {header.start_lsn} is behind the durable LSN {durable}"
            elif one.number in numbers:
                text = "removed-by-recovery: the durable log ends in a file before this one"
            else:
                continue
            diagnosis = text.partition(":")[0]
            facts = {"start_lsn": header.start_lsn, "durable_lsn": durable}
            yield _found(one.name, "extra-member", (0, one.size), text, diagnosis, None, facts)


def _goes_on(page: bytes) -> bool:
    """Check if the first chunk that is not nested continues a record of the page before."""
    at = 0
    while at < len(page) - 8 and page[at] & KIND in NESTED and not page[at] & CONT:
        at += 3 + int.from_bytes(page[at + 1 : at + 3], "little")
    return at < len(page) - 8 and bool(page[at] & CONT) and page[at] != 0xFF


def _groups(gtids: Sequence[str]) -> str:
    more = "…" if len(gtids) > _NAMED else ""
    return f"{len(gtids):,} groups" + (f" ({', '.join(gtids[:_NAMED])}{more})" if gtids else "")


def _found(
    name: str,
    id_: str,
    place: tuple[int, int],
    text: str,
    diagnosis: str,
    severity: Severity | None,
    facts: dict[str, Any],
) -> SetFinding:
    """Create a finding about a member; `byte_range` is (offset, length)."""
    made = finding(id_, *place, text, severity=severity)
    return SetFinding(name, replace(made, facts={"diagnosis": diagnosis, **facts}))
