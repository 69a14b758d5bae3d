"""Plan the repair of a log's files: up to the end that the redo log proves, else that of the last record.

See docs/spec/mariadb-innodb-binlog.md#13-truncate-to-durable-offline.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from typing import NamedTuple

import msgspec
from msgspec.structs import replace

from binlogtool.findings import Finding, Severity
from binlogtool.formats.detecting import Readable
from binlogtool.formats.mariadb_innodb_binlog.codes import (
    CHUNK_HEAD,
    CRC_SIZE,
    KIND,
    SHIFTS,
    RecordType,
    file_name,
    file_number,
)
from binlogtool.formats.mariadb_innodb_binlog.records.context import (
    FileHeader,
    page_crc_right,
    parse_header,
    short_crc_right,
)
from binlogtool.formats.mariadb_innodb_binlog.redo.recovery import (
    PAGE_SIZE,
    BinlogRecovery,
    PageRelation,
    RecoveredPage,
    RecoveryOutcome,
    binlog_file,
    compare_page,
)
from binlogtool.formats.mariadb_innodb_binlog.redo.redo import RedoLog, RedoSummary, page_writes, redo_summary
from binlogtool.formats.mariadb_innodb_binlog.repair.pages import Rebuilt, content, cut_page, written_pages
from binlogtool.formats.repair_rules import EngineLock, Remade, Repair, Settled, Stand
from binlogtool.limits import MIB

MOST_NEW = 8 * MIB
"""Bytes that a repair takes from the redo log; a disk that is further behind is left to the server."""

LARGEST_FILE = 1 << 30
"""The largest max_binlog_size: no file is made longer than this."""

_LEAST_ROOM = 8
"""A page with fewer bytes left, the CRC among them, has no room for a chunk: it is full."""

_DERIVED = frozenset({RecordType.GTID_STATE.name, RecordType.DUMMY.name})
_NEVER = ("gap-in-sequence", "missing-member", "changed-while-read")


class _File(NamedTuple):
    """A file of the log.

    Attributes:
        header: None if it cannot be trusted.
        is_preallocated: it is all zeros.
    """

    stand: Stand
    number: int
    header: FileHeader | None
    reserve: bool

    @property
    def page_size(self) -> int:
        """Page size from the header, else the default."""
        return PAGE_SIZE if self.header is None else 1 << self.header.page_size_shift

    @property
    def full_size(self) -> int:
        """Size in bytes that the header declares."""
        return self.stand.size if self.header is None else self.header.page_count * self.page_size


def settle(stands: Sequence[Stand], redo: Readable | None, discard: bool) -> Settled:
    """Plan the joint repair of a log's files (`RepairRules.plan_joint_repair`)."""
    files = [_file(one) for one in stands]
    named = [one.stand.name for one in files if one.stand.name != file_name(one.number)]
    if named:
        return Settled(reasons=tuple(f"{name}: no server opens a file of this name" for name in named))
    if redo is None:
        return _by_records(files, discard)
    log = RedoLog(redo.read, redo.size)
    if log.encrypted:
        made = _by_records(files, discard)
        note = "the redo log is encrypted and proves nothing; the end is that of the last whole record"
        return Settled(made.files, made.reasons, (note, *made.notes))
    return _by_redo(files, log, discard)


def _file(stand: Stand) -> _File:
    head = stand.read(0, PAGE_SIZE)
    header = parse_header(head) if short_crc_right(head) else None
    if header is not None and (header.page_size_shift not in SHIFTS or not header.page_count):
        header = None
    if header is not None and not stand.record_types and not page_crc_right(stand.read(0, 1 << header.page_size_shift)):
        header = None  # the server considers such a file empty, and it has no records
    reserve = not stand.durable_end and not stand.record_types and not any(head)
    return _File(stand, file_number(stand.name) or 0, header, reserve)


# -- by the records ----------------------------------------------------------------------------------------------------


def _by_records(files: Sequence[_File], discard: bool) -> Settled:
    """Plan without a redo log: the log ends after the last complete record before the first damage.

    See docs/spec/mariadb-innodb-binlog.md#b-without-ib_logfile0.
    """
    full = [one for one in files if not one.reserve]
    last = full[-1] if full else None
    first = next((one for one in full if _wants_cut(one, one is last, discard)), None)
    if first is None or last is None:
        return Settled()
    later = [one for one in files if one.number > first.number]
    reasons = [text for one in (first, *later) for text in _barred(one, first, one is last, discard)]
    if first.header is None:
        made: tuple[Remade, ...] = ()
        gone = [first, *later]
        if first.number == full[0].number:
            what = "header page is not whole" if first.stand.size < first.page_size else "header is damaged"
            reasons.append(f"{first.stand.name}: the {what}, and no file is before it: nothing would be left")
    else:
        rebuilt, why = _cut(first, discard)
        reasons += why
        made = () if why else _remade(first, rebuilt, first.stand.durable_end or 0)
        gone = later if any(not one.reserve for one in later) else []
    reasons += [text for one in gone for text in _too_long(one)]
    if not discard:
        reasons += [f"{one.stand.name}: it holds complete records" for one in gone if _records(one)]
    if reasons:
        return Settled(reasons=tuple(reasons))
    changed = (*made, *(_removed(one) for one in gone))
    return Settled(changed, (), tuple(_doubts((first, *later))) if changed else ())


def _doubts(files: Sequence[_File]) -> Iterator[str]:
    """Iterate over notes on what is unknown without the redo log."""
    yield (
        "without the redo log this is the end of the last whole record; the tables may have less than that: "
        "--redo ib_logfile0 finds the end that is proven durable"
    )
    if any(found.facts.get("diagnosis") == "torn-tail-page" for one in files for found in one.stand.findings):
        yield "the redo log has what belongs into the torn page: with --redo nothing durable of it is lost"


def _wants_cut(file: _File, is_last: bool, discard: bool) -> bool:
    """Check if something after the last complete record does not belong there."""
    return any(
        _is_tail(found) or (is_last and _is_short(found)) or (discard and _is_error_behind(found, file))
        for found in file.stand.findings
    )


def _is_tail(found: Finding) -> bool:
    usual = not str(found.facts.get("diagnosis")).startswith("redo-")
    return usual and found.id in ("torn-tail", "garbage-tail")


def _is_short(found: Finding) -> bool:
    return found.facts.get("diagnosis") == "truncated-file"


def _is_error_behind(found: Finding, file: _File) -> bool:
    end = (found.offset or 0) + max(found.length, 1)
    return found.severity is Severity.ERROR and end > (file.stand.durable_end or 0)


def _barred(file: _File, first: _File, is_last: bool, discard: bool) -> Iterator[str]:
    """Iterate over damage after the new end that is not the tail of a crash: it may hide records."""
    for found in file.stand.findings:
        behind = file is not first or _is_error_behind(found, file)
        if found.severity is not Severity.ERROR or not behind or (is_last and _is_short(found)):
            continue
        if found.id in _NEVER:
            yield f"{file.stand.name}: {found.id}: {found.message}; cutting would hide that"
        elif not discard:
            flip = "flipped_bit" in found.facts
            why = "a crash leaves no such damage" if flip else "damage that is not at the end, and is no torn page"
            yield f"{file.stand.name}: {found.id}: {found.message}; {why}"


def _records(file: _File) -> int:
    return sum(count for name, count in file.stand.record_types.items() if name not in _DERIVED)


def _cut(file: _File, discard: bool) -> tuple[Rebuilt, list[str]]:
    """Return the file with zeros after its durable end, as long as its header says, and the reasons against it."""
    stand, size = file.stand, file.page_size
    rebuilt, why = Rebuilt(file.full_size), _too_long(file)
    number, used = divmod(max(stand.durable_end or 0, size), size)
    page = stand.read(number * size, size) if used else b""
    if used and not page_crc_right(page):
        why.append(f"{stand.name}: page {number} is not proven by its CRC; no other is made for it")
    if used and not discard and _hides_chunks(page, used):
        why.append(
            f"{stand.name}: page {number} goes on with records behind a type byte of 0; cutting would discard them"
        )
    if why:
        return rebuilt, why
    if used and used <= size - _LEAST_ROOM and cut_page(page, used) != page:
        rebuilt.put(number, page, cut_page(page, used))
    rebuilt.clear(stand.read, number + bool(used), stand.size, size)
    return rebuilt, []


def _hides_chunks(page: bytes, used: int) -> bool:
    """Check if the bytes after the end of data would be valid chunks if their first byte were not 0."""
    end = len(page) - CRC_SIZE
    at = used
    while at <= len(page) - _LEAST_ROOM and (page[at] or at == used):
        length = int.from_bytes(page[at + 1 : at + CHUNK_HEAD], "little")
        known = at == used or page[at] & KIND in tuple(RecordType)
        if not length or not known or at + CHUNK_HEAD + length > end:
            return False
        at += CHUNK_HEAD + length
    return page[used] == 0 and not any(page[at:end].strip(b"\xff"))


def _too_long(file: _File) -> list[str]:
    most = max(file.full_size, file.stand.size - file.page_size)
    if most <= LARGEST_FILE:
        return []
    return [f"{file.stand.name}: {most:,} bytes, or so the header says; no server writes so many"]


def _remade(file: _File, rebuilt: Rebuilt, end: int, **proof: object) -> tuple[Remade, ...]:
    """Return the rewritten file; nothing if it does not change."""
    stand = file.stand
    if not rebuilt.pages and rebuilt.size == stand.size:
        return ()
    pieces = rebuilt.pieces(stand.read, stand.size, file.page_size)
    return (Remade(stand.name, "rewrite" if rebuilt.news else "zero-fill", pieces, end, rebuilt.lost, proof),)


def _removed(file: _File) -> Remade:
    size = file.page_size
    pages = written_pages(file.stand.read, 0, file.stand.size, size)
    lost = sum(content(page.ljust(size, b"\0")) for _, page in pages)
    return Remade(file.stand.name, "remove", (), None, lost)


# -- by the redo log ---------------------------------------------------------------------------------------------------


def _by_redo(files: Sequence[_File], log: RedoLog, discard: bool) -> Settled:
    """Plan what the server's recovery does to the files (docs/spec/mariadb-innodb-binlog.md#a-with-ib_logfile0)."""
    summary = redo_summary(log)
    if not summary.durable:
        said = [one.message for one in summary.findings if one.severity is Severity.ERROR]
        return Settled(reasons=tuple(f"the redo log proves nothing: {text}" for text in said or ["it has no end"]))
    if any(one.header is not None and one.page_size != PAGE_SIZE for one in files):
        return Settled(reasons=(f"recovery knows only pages of {PAGE_SIZE:,} bytes",))
    run = _Run({one.number: one for one in files})
    outcome = run.recover(log)
    made = [] if run.reasons or not outcome.succeeds else [*run.made(outcome, summary)]
    reasons = [*run.reasons, *(one.message for one in outcome.findings if not (outcome.succeeds and discard))]
    if run.reasons or not outcome.succeeds:
        return Settled(reasons=tuple(reasons))
    made += [_removed(run.files[number]) for number in outcome.removed]
    return Settled(tuple(made), tuple(reasons), tuple(_notes(files, outcome, summary)), proven=True)


def _notes(files: Sequence[_File], outcome: RecoveryOutcome, summary: RedoSummary) -> Iterator[str]:
    inside = any(_is_tail(found) for one in files for found in one.stand.findings)
    if not outcome.writes and inside:
        yield (
            "the redo log has no binlog record behind its checkpoint: the server changes nothing, and nothing is "
            "changed here; without --redo the incomplete record at the end is cut"
        )
    elif outcome.applied or outcome.removed:
        yield (
            f"this is what the server does when it starts with this redo log (durable LSN {summary.end_lsn}); "
            "start it with the same one, so that tables and binlog agree"
        )


class _Run(msgspec.Struct):
    """Recovery, compared with the files on disk.

    Attributes:
        reasons: why its result cannot or must not be written.
        created: files that are created from the redo log -> the file whose owner and mode they get.
    """

    files: dict[int, _File]
    reasons: list[str] = msgspec.field(default_factory=list)
    changed: dict[int, Rebuilt] = msgspec.field(default_factory=dict)
    ends: dict[int, int] = msgspec.field(default_factory=dict)
    relations: Counter[PageRelation] = msgspec.field(default_factory=Counter)
    new: dict[int, str] = msgspec.field(default_factory=dict)

    def recover(self, log: RedoLog) -> RecoveryOutcome:
        """Run recovery to its end, or until too much would have to be written."""
        known = [binlog_file(one.number, one.stand.read(0, PAGE_SIZE), one.stand.size) for one in self.files.values()]
        recovery = BinlogRecovery(page_writes(log), known)
        for page in recovery.pages():
            self.ends[page.file_no] = page.page_no * PAGE_SIZE + page.used
            if page.file_no not in self.files:
                self._create(page.file_no)
            self._page(self.files[page.file_no].stand, page)
            if sum(one.news for one in self.changed.values()) > MOST_NEW:
                self.reasons.append(f"more than {MOST_NEW:,} bytes are only in the redo log; the server writes them")
                break
        return recovery.outcome

    def _create(self, number: int) -> None:
        """Add a file that only the redo log has: recovery writes it from its header page on."""
        self.new[number] = self.files[max(self.files)].stand.name
        self.files[number] = _File(Stand(file_name(number), 0, None, {}, (), _nothing), number, None, False)
        self.changed[number] = Rebuilt(0)

    def _page(self, stand: Stand, page: RecoveredPage) -> None:
        old = stand.read(page.page_no * PAGE_SIZE, PAGE_SIZE)
        relation = compare_page(old, page)
        self.relations[relation] += 1
        if relation is PageRelation.CONFLICT:
            text = "holds other bytes than the redo log proves: damage, or the redo log of another server"
            self.reasons.append(f"{stand.name}: page {page.page_no} {text}")
        elif relation is not PageRelation.EQUAL:
            rebuilt = self.changed.setdefault(page.file_no, Rebuilt(stand.size))
            rebuilt.put(page.page_no, old, page.data)
            if page.file_no in self.new:
                rebuilt.size = (page.page_no + 1) * PAGE_SIZE

    def made(self, outcome: RecoveryOutcome, summary: RedoSummary) -> Iterator[Remade]:
        """Iterate over the files that recovery changes."""
        if outcome.file_no is not None and outcome.page_no is not None and outcome.page_count is not None:
            stand = self.files[outcome.file_no].stand
            last = self.changed.setdefault(outcome.file_no, Rebuilt(stand.size))
            last.size = outcome.page_count * PAGE_SIZE
            last.clear(stand.read, outcome.page_no + 1, stand.size, PAGE_SIZE)
            if last.size > max(LARGEST_FILE, stand.size):
                self.reasons.append(
                    f"{stand.name}: {last.size:,} bytes, as its header says, is more than servers write"
                )
        pages = {str(relation): count for relation, count in sorted(self.relations.items())}
        for number, rebuilt in sorted(self.changed.items()):
            end, lsn = self.ends[number], summary.end_lsn
            for one in _remade(self.files[number], rebuilt, end, durable_lsn=lsn, pages=pages):
                yield replace(one, like=self.new.get(number))


def _nothing(offset: int, size: int) -> bytes:
    """Read a file that does not exist."""
    return b""


REPAIR = Repair(
    locks=(EngineLock("aria_log_control", "record"), EngineLock("ibdata1", "record")),
    salvage="references between records are places in files: no record can move",
    derived=_DERIVED,
    settle=settle,
    redo=(
        "ib_logfile0",
        "../ib_logfile0",
    ),  # --binlog-directory: a separate directory, usually below the data directory
)
