"""Predict what servers do with a log: apply it, or restart with it.

The rules for applying are those of `mariadb-binlog` (`chunk_reader_mysqlbinlog::read_data`;
docs/spec/mariadb_innodb_binlog.md#chunks-and-records, #defects-of-the-server-and-its-reader and
#the-servers-own-reader): a type byte of 0 or a page of zeros silently ends a file, and a record continues in whatever
file comes next.

For restarts see docs/spec/mariadb_innodb_binlog.md#restart-without-a-crash and #crash-recovery (`class
binlog_recovery`, `innodb_binlog_discover`, `find_pos_in_binlog`).

A record is an event of a group; its outcome is about applying. The effects of a restart are reported separately. If the
redo log is available, the server recovers first: groups that recovery truncates are never applied.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Generator, Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import msgspec
from msgspec.structs import replace

from binlogtool.errors import UsageError
from binlogtool.findings import Finding, Severity, make_finding
from binlogtool.format_api.replay_rules import (
    NOT_REACHED,
    REJECTED,
    SKIPPED,
    ExaminedFile,
    ReadPlan,
    RecordOutcome,
    ReplayOutcome,
    ReplaySituation,
    ReplayStop,
)
from binlogtool.format_api.schema_fields import MalformedError
from binlogtool.formats.binlog_events.gtid.gtid_sets import split_gtid
from binlogtool.formats.binlog_events.replay import simulated_applier as applier_module
from binlogtool.formats.binlog_events.replay.simulated_applier import (
    ExecutedGtids,
    SimulatedApplier,
    SkippedRows,
    parse_executed_gtids,
)
from binlogtool.formats.binlog_events.transactions.boundaries import XaId
from binlogtool.formats.innodb.redo_log import RedoLog, iter_page_writes, summarize_redo_log
from binlogtool.formats.mariadb_innodb_binlog.records.parse_records import (
    GtidStateRecord,
    IbbPosition,
    PageStore,
    UnreadableError,
    parse_gtid_state,
)
from binlogtool.formats.mariadb_innodb_binlog.redo_recovery import (
    PAGE_SIZE,
    BinlogRecovery,
    RecoveryFile,
    RecoveryOutcome,
    make_recovery_file,
)
from binlogtool.formats.mariadb_innodb_binlog.schema import (
    CHUNK_HEAD_SIZE,
    CRC_SIZE,
    FILLER_BYTE,
    LAST_CHUNK_FLAG,
    NESTABLE_TYPES,
    TYPE_MASK,
    IbbFileContext,
    IbbRecordType,
    file_name,
    file_number,
)
from binlogtool.formats.mariadb_innodb_binlog.validate.log_set import LogValidationState
from binlogtool.limits import MIB

if TYPE_CHECKING:
    from binlogtool.format_api.format import DecodedRecords
    from binlogtool.format_api.layout import RangeReader

# --- Prediction of readers ---

_HEADER_DIAGNOSES = ("header-damaged", "header-lost", "unsupported-version", "unsupported-page-size")
_MALFORMED_DIAGNOSES = ("commit-malformed", "event-misaligned", "record-too-long", "page-order")
_OOB_DIAGNOSES = ("oob-missing", "oob-wrong-type", "oob-shape", "oob-too-large")
_MORE_FOLLOWS = "and more follows in later files"
_MAX_STATE_BYTES = 64 * MIB


class ReaderStop(NamedTuple):
    """Offset at which a reader stops, and the reason.

    `is_conditional`: the reader stops only if the group at this offset could not be assembled.
    """

    offset: int
    reason: str
    is_conditional: bool = False


class FileSeenByReader(msgspec.Struct, frozen=True):
    """File of the log as a reader sees it.

    `context`: None if it could not be opened. `stops`: places where a reader stops, ascending. `reader_end`: offset at
    which the reader considers the file ended although more follows; None = at its end of data. `is_short`: it is
    shorter than it should be. `open_type`: type of the record that is incomplete where the reader's part ends; 0 =
    none. `leading_type`: type of the record that continues at the start. `is_blank`: the reader sees no record in it.
    `is_exactly_full`: FLUSH BINARY LOGS found it full (`flush-exact-end`).
    """

    file: ExaminedFile
    number: int
    context: IbbFileContext | None
    stops: tuple[ReaderStop, ...] = ()
    reader_end: int | None = None
    is_short: bool = False
    open_type: int = 0
    leading_type: int = 0
    is_blank: bool = False
    is_exactly_full: bool = False

    @property
    def page_size(self) -> int:
        """Page size in bytes; 0 if the file could not be opened."""
        return 0 if self.context is None else self.context.page_size

    def read_gtid_state_at_start(self) -> GtidStateRecord | None:
        """Read the full GTID state at the start of the file; None if there is no readable state."""
        if self.context is None:
            return None
        store = PageStore(replace(self.context, read=None))
        try:
            record = store.read_record(
                IbbPosition(self.number, self.page_size), IbbRecordType.GTID_STATE, _MAX_STATE_BYTES
            )
            return parse_gtid_state(record)
        except (UnreadableError, MalformedError):
            return None


class ReadableFiles(msgspec.Struct, frozen=True):
    """Files that are read, in order, and the reasons why others are not; `skipped`: name -> reason."""

    files: tuple[FileSeenByReader, ...]
    skipped: Mapping[str, str] = msgspec.field(default_factory=dict)


def select_files(situation: ReplaySituation, recovered_from: tuple[int, int] | None = None) -> ReadableFiles:
    """Select the files of the log that a reader reads.

    `recovered_from`: (file number, offset) from which recovery rewrites all pages before any reader; None = no
    recovery.
    """
    skipped: dict[str, str] = {}
    read: list[FileSeenByReader] = []
    empty: list[ExaminedFile] = []
    for file in situation.files:
        number = file_number(file.name)
        if situation.is_directory and (number is None or file.name.rsplit("/", 1)[-1] != file_name(number)):
            skipped[file.name] = "not-a-log"
        elif _is_preallocated(file):
            empty.append(file)
        else:
            read.append(_examine_file_as_reader(file, situation, recovered_from))
    last = read[-1].number if read else -1
    for file in empty:
        number = file_number(file.name) or 0
        if number > last:
            skipped[file.name] = "reserve"
        else:
            read.append(
                FileSeenByReader(
                    file,
                    number,
                    _get_context(file),
                    (ReaderStop(0, "the file is all zeros, but files with data follow"),),
                )
            )
    return ReadableFiles(tuple(sorted(read, key=lambda one: one.number)), skipped)


def _get_context(file: ExaminedFile) -> IbbFileContext | None:
    context = None if file.layout is None else file.layout.context
    return context if isinstance(context, IbbFileContext) else None


def _is_preallocated(file: ExaminedFile) -> bool:
    context = _get_context(file)
    return context is not None and context.starts_with_zeros and context.is_preallocated


def _examine_file_as_reader(
    file: ExaminedFile, situation: ReplaySituation, recovered_from: tuple[int, int] | None
) -> FileSeenByReader:
    context = _get_context(file)
    number = file_number(file.name)
    if context is None:
        return FileSeenByReader(file, number or 0, None, (ReaderStop(0, "it cannot be read"),))
    number = context.number or 0 if number is None else number
    summary, findings = context.scan_summary, file.findings
    if recovered_from is not None and number >= recovered_from[0]:
        start = recovered_from[1] if number == recovered_from[0] else 0
        findings = tuple(one for one in findings if (one.offset or 0) < start)
    end = _find_reader_end(findings, context)
    read = None if situation.read_sibling is None else situation.read_sibling(file.name)
    stops: dict[int, ReaderStop] = {}
    for item in _iter_stops(findings):
        stops.setdefault(item.offset, item)
    return FileSeenByReader(
        file, number, context,
        stops=tuple(stops[at] for at in sorted(stops) if end is None or at < end),
        reader_end=end,
        is_short=any(_is_short_file(one) for one in findings),
        open_type=summary.open_type if end is None else _find_incomplete_record_type(read, end, context.page_size),
        leading_type=summary.leading_type,
        is_blank=not summary.leading_type and (not file.records or (end is not None and end <= context.page_size)),
        is_exactly_full=any(one.facts.get("diagnosis") == "flush-exact-end" for one in findings),
    )  # fmt: skip


# -- obstacles ---------------------------------------------------------------------------------------------------------


def _find_reader_end(findings: Sequence[Finding], context: IbbFileContext) -> int | None:
    """Find the offset at which readers see an end of data and ignore the rest of the file."""
    ends = []
    for problem in findings:
        diagnosis, offset = problem.facts.get("diagnosis"), problem.offset or 0
        if diagnosis == "hole":
            data_end = context.scan_summary.data_end
            ends.append(offset if data_end is None else min(offset, data_end))
        elif diagnosis == "garbage-after-end" and problem.severity is Severity.ERROR:
            ends.append(offset - offset % context.page_size)
    return min(ends, default=None)


def _iter_stops(findings: Sequence[Finding]) -> Iterator[ReaderStop]:
    """Yield the places where readers stop with an error."""
    for problem in findings:
        diagnosis, offset = str(problem.facts.get("diagnosis")), problem.offset or 0
        if diagnosis in _HEADER_DIAGNOSES:
            yield ReaderStop(0, problem.message)
        elif diagnosis == "torn-tail-page" or (
            problem.severity is Severity.ERROR and _is_reader_stopped_by(problem, diagnosis)
        ):
            yield ReaderStop(offset, problem.message)
        elif (
            diagnosis in _OOB_DIAGNOSES and problem.severity is Severity.ERROR and problem.facts.get("gtid") is not None
        ):
            yield ReaderStop(offset, problem.message, is_conditional=True)


def _is_reader_stopped_by(problem: Finding, diagnosis: str) -> bool:
    """Return whether a problem is a page with a wrong CRC, or an impossible chunk or record."""
    if problem.id in ("checksum-mismatch", "damaged-range"):
        return diagnosis not in ("hole", "header-tail-damaged")
    if diagnosis == "bad-chunk":
        return problem.id in ("bad-header", "length-out-of-bounds")
    return diagnosis in _MALFORMED_DIAGNOSES or (
        diagnosis == "missing-end-chunk" and not problem.message.endswith(_MORE_FOLLOWS)
    )


def _is_short_file(problem: Finding) -> bool:
    """Return whether the file is shorter than its header says, or ends inside a record although more follows."""
    is_truncated = problem.facts.get("diagnosis") == "truncated-file"
    return problem.severity is Severity.ERROR and (is_truncated or problem.message.endswith(_MORE_FOLLOWS))


def _find_incomplete_record_type(read: RangeReader | None, reader_end: int, page_size: int) -> int:
    """Return the type of the record that is incomplete at `reader_end`, where a reader sees an end of data; 0 =
    none.
    """
    number = (reader_end - 1) // page_size
    if read is None or number < 1:
        return 0
    page, offset, open_type = read(number * page_size, page_size), 0, 0
    limit = min(reader_end - number * page_size, len(page) - CRC_SIZE)
    while offset < limit - CHUNK_HEAD_SIZE and page[offset] not in (0, FILLER_BYTE):
        if page[offset] & TYPE_MASK not in NESTABLE_TYPES:
            open_type = 0 if page[offset] & LAST_CHUNK_FLAG else page[offset] & TYPE_MASK
        offset += CHUNK_HEAD_SIZE + int.from_bytes(page[offset + 1 : offset + CHUNK_HEAD_SIZE], "little")
    return open_type


# --- Prediction of a server's start with its own log ---

_MAX_SHOWN = 100


class RecoveryPrediction(msgspec.Struct, frozen=True):
    """Predicted effects of recovery by the redo log.

    `starts`: the server starts; None = unknown. `reason`: why it does not start, or why that is unknown. `durable_lsn`:
    the last durable LSN. `new_end`: (file number, offset) where the log ends afterwards; None = unchanged.
    `recovered_from`: (file number, offset) of the first page that is written. `removed`: numbers of the files that are
    deleted. `lost`, `gained`: (number of groups, GTIDs of the first ones). `new_log_finding`: the finding that the
    server considers the log new and ignores the records of the redo log.
    """

    starts: bool | None
    reason: str | None = None
    durable_lsn: int | None = None
    new_end: tuple[int, int] | None = None
    recovered_from: tuple[int, int] | None = None
    removed: tuple[int, ...] = ()
    lost: tuple[int, tuple[str, ...]] = (0, ())
    gained: tuple[int, tuple[str, ...]] = (0, ())
    new_log_finding: Finding | None = None

    def details(self) -> dict[str, Any]:
        """Return the details for the report."""
        new_end = None if self.new_end is None else {"file": file_name(self.new_end[0]), "offset": self.new_end[1]}
        details: dict[str, Any] = {"starts": self.starts, "durable_lsn": self.durable_lsn, "cut": new_end}
        details |= {"removed": [file_name(number) for number in self.removed]}
        for name, (count, gtids) in (("lost", self.lost), ("gained", self.gained)):
            details |= {f"groups_{name}": count, f"gtids_{name}": list(gtids)}
        return details if self.reason is None else {**details, "why": self.reason}


def predict_recovery(situation: ReplaySituation) -> RecoveryPrediction | None:
    """Simulate recovery; None without a redo log, or if not all files are known."""
    contexts = [one.layout.context for one in situation.files if one.layout is not None]
    redo = next((one.redo for one in contexts if isinstance(one, IbbFileContext)), None)
    if redo is None or not situation.is_directory:
        return None
    log = RedoLog(redo.read, redo.size)
    summary = summarize_redo_log(log)
    if log.is_encrypted:
        return RecoveryPrediction(None, "the redo log is encrypted and no key is available", summary.end_lsn)
    if not summary.is_acceptable:
        message = next((one.message for one in summary.findings if one.severity is Severity.ERROR), "it has no end")
        return RecoveryPrediction(False, f"redo log: {message}", summary.end_lsn)
    recovery = BinlogRecovery(iter_page_writes(log), _list_recovery_files(situation))
    recovered_from: tuple[int, int] | None = None
    for page in recovery.iter_pages():
        recovered_from = recovered_from or (page.file_no, page.page_no * PAGE_SIZE)
    return _make_prediction(situation, recovery.outcome, recovered_from, summary.end_lsn)


def _list_recovery_files(situation: ReplaySituation) -> list[RecoveryFile]:
    recovery_files = []
    for file in situation.files:
        number, read = file_number(file.name), situation.read_sibling and situation.read_sibling(file.name)
        if number is not None and read:
            recovery_files.append(make_recovery_file(number, read(0, PAGE_SIZE), file.size))
    return recovery_files


def _make_prediction(
    situation: ReplaySituation,
    outcome: RecoveryOutcome,
    recovered_from: tuple[int, int] | None,
    durable_lsn: int | None,
) -> RecoveryPrediction:
    if not outcome.succeeds:
        return RecoveryPrediction(False, outcome.findings[0].message, durable_lsn)
    new_end = None
    if outcome.file_no is not None and outcome.page_no is not None:
        new_end = outcome.file_no, outcome.page_no * PAGE_SIZE + (outcome.offset or 0)
    findings = [one for file in situation.files for one in file.findings]
    return RecoveryPrediction(
        True,
        None,
        durable_lsn,
        new_end,
        recovered_from,
        outcome.removed,
        _read_group_counts_from_findings(findings, "redo-cut", "lost"),
        _read_group_counts_from_findings(findings, "redo-apply", "gained"),
        next(iter(outcome.findings), None),
    )


def _read_group_counts_from_findings(
    findings: Sequence[Finding], diagnosis: str, fact_suffix: str
) -> tuple[int, tuple[str, ...]]:
    """Return (number of groups that recovery removes or adds, the first of them) from the findings of `verify`."""
    for item in findings:
        if item.facts.get("diagnosis") == diagnosis:
            return int(item.facts[f"groups_{fact_suffix}"]), tuple(item.facts[f"gtids_{fact_suffix}"])
    return 0, ()


# -- the end of the log ------------------------------------------------------------------------------------------------


class RestartPrediction:
    """Predicts where a restarting server finds the end of the log, and the GTID state there.

    `files`: the files that are read, in order. `recovery`: what recovery does; None = no redo log.
    """

    def __init__(
        self, situation: ReplaySituation, files: Sequence[FileSeenByReader], recovery: RecoveryPrediction | None
    ) -> None:
        self._situation, self.recovery = situation, recovery
        self._files = files
        self.last_file = _find_newest_file_with_data(files, recovery)
        self._executed = ExecutedGtids()
        self._state_known = False

    def open_file(self, file: FileSeenByReader, state: GtidStateRecord | None) -> None:
        """Process the start of a file; the server trusts the GTID state at the start of the last file."""
        if self._is_part_of_log(file) and (state is not None or (not self._state_known and file.number == 0)):
            self._state_known, self._executed = True, ExecutedGtids()
            for gtid in state.gtids if state is not None else ():
                self._executed.add_gtid(str(gtid))

    def add_group(self, file: FileSeenByReader, gtid: str) -> None:
        """Add a group before the end of data."""
        if self._is_part_of_log(file):
            self._executed.add_gtid(gtid)

    def _is_part_of_log(self, file: FileSeenByReader) -> bool:
        return self.last_file is not None and file.number <= self.last_file.number

    def server_starts(self) -> bool | None:
        """Predict whether the server starts, as far as its log is concerned; None = unknown."""
        if self._list_other_entries():
            return None
        if self.recovery is not None and (self.recovery.starts is not True or self.recovery.new_end is not None):
            return self.recovery.starts
        if self.last_file is None:
            return True
        has_stop = any(one.offset > 0 and not one.is_conditional for one in self.last_file.stops)
        return None if has_stop else True

    def report_details(self) -> dict[str, Any]:
        """Return the details for the report."""
        recovery, details = self.recovery, dict[str, Any]()
        if recovery is not None:
            details["redo"] = recovery.details()
        if unchecked := self._list_other_entries():
            details["startup"] = {"starts": None, "not_checked": unchecked}
        if self._situation.is_directory and self.server_starts() is not False:
            details["restart"] = self._describe_end()
        return details

    def _list_other_entries(self) -> list[str]:
        """List the entries that are named like files of the log and are none; what a server does with them is open."""
        entries = self._situation.other_entries.items()
        return [
            f"not checked: {name} is a {kind}, not a file" for name, kind in entries if file_number(name) is not None
        ]

    def _describe_end(self) -> dict[str, Any]:
        recovery, last_file = self.recovery, self.last_file
        if last_file is None or last_file.context is None or self._is_newest_header_invalid():
            number = 0 if last_file is None else self._files[-1].number + 1
            return {"new_log": file_name(number), "gtid": None}
        new_end = None if recovery is None else recovery.new_end
        number, offset = new_end or (last_file.number, self._end_offset(last_file, last_file.context))
        ends_inside = new_end is None and bool(self._open_record_type())
        details = {
            "file": file_name(number),
            "offset": offset,
            "inside_record": ends_inside,
            "gtid": self._compute_gtid_binlog_state(),
        }
        if new_end is not None:
            return details | {"xa_prepared": None}
        return details | {
            "xa_prepared": self._list_prepared_xa(),
            "xa_known_as": self._list_prepared_xa(as_server_misreads=True),
        }

    def _is_newest_header_invalid(self) -> bool:
        """Return whether the newest file has an invalid header: the server starts the next file, with a warning."""
        is_recovered = self.recovery is not None and self.recovery.new_end is not None
        newest = self._files[-1]
        return (
            not is_recovered
            and any(one.offset == 0 for one in newest.stops)
            and newest.context is not None
            and (newest.context.header is not None or not newest.context.starts_with_zeros)
        )

    @staticmethod
    def _end_offset(last_file: FileSeenByReader, context: IbbFileContext) -> int:
        summary = context.scan_summary
        end = last_file.reader_end if last_file.reader_end is not None else summary.data_end
        return max(summary.end, context.page_size) if end is None else end

    def _open_record_type(self) -> int:
        """Return the type of the record in which the log ends; 0 = none."""
        for file in reversed(self._files):
            if self._is_part_of_log(file) and (file.open_type or not file.is_blank):
                return file.open_type
        return 0

    def _compute_gtid_binlog_state(self) -> str | None:
        """Return gtid_binlog_state (the last GTID of each domain); None if not all groups are known."""
        if not self._state_known or (self.server_starts() is None):
            return None
        count, gained = (0, ()) if self.recovery is None else self.recovery.gained
        if count > len(gained):
            return None
        executed = self._executed.copy()
        for gtid in gained:
            executed.add_gtid(gtid)
        return executed.gtid_set_text

    def _list_prepared_xa(self, as_server_misreads: bool = False) -> list[str]:
        """List prepared XA transactions; `as_server_misreads`: as the server knows them after it read them from its
        log.
        """
        context = self._files[-1].context
        shared_values = () if context is None else context.shared.values()
        log_state = next((one for one in shared_values if isinstance(one, LogValidationState)), LogValidationState())
        prepared = list(log_state.pending)[:_MAX_SHOWN]
        return [one.text for one in (map(_misread_xa_id, prepared) if as_server_misreads else prepared)]

    # -- losses --------------------------------------------------------------------------------------------------------

    def iter_silent_loss_findings(self) -> Iterator[tuple[str, Finding]]:
        """Yield findings about what the server loses without an error."""
        if not self._situation.is_directory:
            return
        recovery = self.recovery
        if recovery is not None and recovery.new_log_finding is not None:
            yield file_name(0), _report_loss(None, 0, recovery.new_log_finding.message)
        elif not self._files and any(file_number(file.name) for file in self._situation.files):
            text = "there are only files of zeros; the server considers this a new log and restarts with file 0"
            yield file_name(0), _report_loss(None, 0, text)
        if recovery is not None and recovery.lost[0] and recovery.new_end is not None:
            number, offset = recovery.new_end
            text = (
                f"recovery truncates the log here: {recovery.lost[0]:,} groups after it never became "
                f"durable, not in any table either"
            )
            facts = {"groups_lost": recovery.lost[0], "gtids_lost": list(recovery.lost[1])}
            yield file_name(number), _report_loss(offset, 0, text, Severity.WARNING, **facts)
        last_file = self.last_file
        if (
            last_file is not None
            and last_file.reader_end is not None
            and (recovery is None or recovery.new_end is None)
        ):
            text = "the server considers this the end of the log and overwrites what follows when it starts"
            yield (
                last_file.file.name,
                _report_loss(last_file.reader_end, last_file.file.size - last_file.reader_end, text),
            )
        newest = self._files[-1] if self._files else None
        if (
            newest is not None
            and newest is not last_file
            and (recovery is None or recovery.new_end is None)
            and not newest.is_blank
        ):
            text = "the header page is zero; the server considers the file empty and overwrites it when it starts"
            yield newest.file.name, _report_loss(0, newest.file.size, text)


def _misread_xa_id(name: XaId) -> XaId:
    """Return an XA id as the server misreads it: it takes bqual from offset `bqual_length` instead of `gtrid_length`.

    See docs/spec/mariadb_innodb_binlog.md#defects-of-the-server-and-its-reader.
    """
    size = len(name.bqual)
    return XaId(name.format_id, name.gtrid, (name.gtrid + name.bqual)[size : 2 * size])


def _find_newest_file_with_data(
    files: Sequence[FileSeenByReader], recovery: RecoveryPrediction | None
) -> FileSeenByReader | None:
    """Return the newest file that the server does not consider empty."""
    for file in reversed(files):
        is_removed = recovery is not None and recovery.new_end is not None and file.number > recovery.new_end[0]
        if not is_removed and not (file.context is not None and file.context.starts_with_zeros):
            return file
    return None


def _report_loss(offset: int | None, size: int, text: str, severity: Severity | None = None, **facts: Any) -> Finding:
    return make_finding("silent-loss", offset, size, text, severity=severity, situation="restart", **facts)


# --- Prediction of servers ---

_MAX_SOURCES = 100_000


class _UnseenEvents(msgspec.Struct):
    """Events of a file that the reader does not see.

    `records`: number of events. `groups`: GTIDs of the first of them.
    """

    offset: int
    reason: str
    records: int = 0
    groups: list[str] = msgspec.field(default_factory=list)


class IbbReplayer:
    """Replayer of the log (`format_api.replay_rules.Replayer`)."""

    def __init__(self, situation: ReplaySituation) -> None:
        self._force = situation.policy == "force"
        self._recovery = predict_recovery(situation)
        recovered_from = None if self._recovery is None else self._recovery.recovered_from
        selection = select_files(situation, recovered_from)
        self._new_end = None if self._recovery is None else self._recovery.new_end
        self._recovered_file = None if recovered_from is None else recovered_from[0]
        self._files, self._skipped = selection.files, selection.skipped
        self._file_indexes = {one.file.name: place for place, one in enumerate(self._files)}
        self._restart = RestartPrediction(situation, self._files, self._recovery)
        start_position = situation.start_position or {}
        executed = parse_executed_gtids(str(start_position.get("gtid") or ""))
        self._refusal = self._find_start_refusal(executed) if start_position.get("gtid") and not self._force else None
        self._applier = SimulatedApplier(
            executed, ordered=True, trusts_prepared=bool(start_position), skip_failures=self._force
        )
        self._stop: ReplayStop | None = None
        self._file_index, self._stop_index, self._next_record = -1, 0, 0
        self._open_type = 0
        self._bad_offset: int | None = None
        self._unseen_file: str | None = None
        self._unseen_events: dict[str, _UnseenEvents] = {}
        self._lost_rows: list[tuple[str, SkippedRows]] = []
        self._findings: list[tuple[str, Finding]] = []
        self._seen_numbers: dict[str, int] = {}

    def plan_reads(self) -> ReadPlan:
        """Return all files with data, in order; groups are assembled from all of them."""
        read = () if self._refusal is not None else tuple(self._file_indexes)
        return ReadPlan(read, self._skipped, self._refusal)

    def _find_start_refusal(self, executed: ExecutedGtids) -> ReplayStop | None:
        """Return the stop with which the server refuses a replica that lacks transactions before the log (error 1236);
        None = accepted.
        """
        first = self._files[0] if self._files else None
        state = None if first is None else first.read_gtid_state_at_start()
        if first is None or state is None:
            return None
        missing_gtids = [str(one) for one in state.gtids if one.seq_no > executed.domains.get(one.domain_id, (0, 0))[1]]
        if not missing_gtids:
            return None
        text = f"the log begins after {', '.join(missing_gtids[:5])}, which the server lacks: files are missing"
        return ReplayStop(first.file.name, None, text)

    # -- records -----------------------------------------------------------------------------------------------------

    def decide_records(self, name: str, first: int, records: DecodedRecords) -> Iterator[RecordOutcome]:
        """Rule on the events up to the next place where a reader stops, and on the events after it."""
        yield from self._advance_to_file(self._file_indexes[name], first)
        index, record_count = 0, len(records)
        self._next_record = first + record_count
        file = self._files[self._file_index]
        visible = self._record_groups_and_count_visible(file, records)
        while index < record_count and self._stop is None:
            if index >= visible:
                yield from self._skip_unseen_records(first, records, index, file)
                return
            stop = min(visible, self._records_before_stop(file, records))
            if self._bad_offset is not None and records.offset[index] == self._bad_offset:
                stop = bisect_right(records.offset, self._bad_offset)
                yield RecordOutcome(first + index, first + stop, REJECTED, "damaged")
                index = stop
            elif index < stop:
                index = yield from self._apply_records(first, records, index, stop)
            else:
                yield from self._stop_reading_or_roll_back(first + index, records.offset[index])
        if index < record_count:
            yield RecordOutcome(first + index, first + record_count, SKIPPED, NOT_REACHED)

    def _record_groups_and_count_visible(self, file: FileSeenByReader, records: DecodedRecords) -> int:
        """Record the groups of a run; return how many of its records the reader sees."""
        offsets = records.offset
        durable = visible = len(records)
        if self._new_end is not None and file.number >= self._new_end[0]:
            durable = bisect_left(offsets, self._new_end[1]) if file.number == self._new_end[0] else 0
        if self._unseen_file == file.file.name:
            visible = 0
        elif file.reader_end is not None and not self._force:
            visible = bisect_left(offsets, file.reader_end)
        for i, type_name in enumerate(records.envelope.type[:durable]):
            if type_name == "GTID" and isinstance(gtid := records.envelope.txn[i], str):
                source, number = split_gtid(gtid)
                if source in self._seen_numbers or len(self._seen_numbers) < _MAX_SOURCES:
                    self._seen_numbers[source] = number
                if file.reader_end is None or offsets[i] < file.reader_end:
                    self._restart.add_group(file, gtid)
        return min(durable, visible)

    def _skip_unseen_records(
        self, first: int, records: DecodedRecords, index: int, file: FileSeenByReader
    ) -> Iterator[RecordOutcome]:
        """Rule on the rest of a run that recovery truncated or the reader does not see."""
        record_count, truncated_from = len(records), len(records)
        if self._new_end is not None and file.number >= self._new_end[0]:
            truncated_from = (
                index if file.number > self._new_end[0] else max(index, bisect_left(records.offset, self._new_end[1]))
            )
        if truncated_from > index:
            self._record_unseen_events(file, records, index, truncated_from)
            yield RecordOutcome(first + index, first + truncated_from, SKIPPED, "unseen")
        if record_count > truncated_from:
            yield RecordOutcome(first + truncated_from, first + record_count, SKIPPED, "never-durable")

    def _record_unseen_events(self, file: FileSeenByReader, records: DecodedRecords, start: int, stop: int) -> None:
        reason = "FLUSH BINARY LOGS found the previous file exactly full; mariadb-binlog skips this one"
        if self._unseen_file != file.file.name:
            reason = "readers see zeros, or a type byte of 0, as the end of the file"
        offset = file.reader_end if file.reader_end is not None else 0
        unseen = self._unseen_events.setdefault(file.file.name, _UnseenEvents(offset, reason))
        unseen.records += stop - start
        for i in range(start, stop):
            if records.envelope.type[i] == "GTID" and len(unseen.groups) < _MAX_SHOWN:
                unseen.groups.append(str(records.envelope.txn[i]))

    def _apply_records(
        self, first: int, records: DecodedRecords, index: int, stop: int
    ) -> Generator[RecordOutcome, None, int]:
        """Pass the records `[index, stop)` to the applier; return the index to continue at."""
        applier, name = self._applier, self._files[self._file_index].file.name
        lost_before = len(applier.skipped_rows)
        yield from applier.apply_records(first, records, index, stop)
        self._lost_rows += [(name, one) for one in applier.skipped_rows[lost_before:]]
        if applier.failure is None:
            return stop
        self._stop = ReplayStop(name, applier.failure.offset, applier.failure.reason)
        return applier.failure.number - first + 1

    # -- files and damage --------------------------------------------------------------------------------------------

    def _advance_to_file(self, file_index: int, number: int) -> Iterator[RecordOutcome]:
        """Finish all files before this one."""
        while self._file_index < file_index:
            if self._file_index >= 0:
                yield from self._finish_file(number)
            self._file_index, self._stop_index, self._bad_offset = self._file_index + 1, 0, None
            file = self._files[self._file_index]
            state = file.read_gtid_state_at_start()
            self._restart.open_file(file, state)
            if self._file_index and self._stop is None:
                yield from self._cross_file_boundary(self._files[self._file_index - 1], file, state, number)

    def _cross_file_boundary(
        self, previous: FileSeenByReader, following: FileSeenByReader, state: GtidStateRecord | None, number: int
    ) -> Iterator[RecordOutcome]:
        """Go from the end of a file to the start of the next: readers join two records of the same type there."""
        if self._recovered_file is not None and following.number >= self._recovered_file:
            return
        has_gap = following.number != previous.number + 1 or previous.reader_end is not None or previous.is_short
        self._open_type = self._open_type if previous.is_blank and not previous.open_type else previous.open_type
        if following.stops and following.stops[0].offset < following.page_size:
            return  # the reader gets to this stop before anything else
        if previous.is_exactly_full and not self._force:
            self._unseen_file = following.file.name
        elif not following.is_blank and self._open_type != following.leading_type and not self._force:
            problem = (
                "ends inside a record that does not continue"
                if self._open_type
                else "does not begin the record that continues"
            )
            yield from self._stop_reader(
                number, ReplayStop(following.file.name, following.page_size, f"{previous.file.name} {problem} here")
            )
        elif has_gap:
            self._report_missing_groups(previous, following, state)

    def _report_missing_groups(
        self, previous: FileSeenByReader, following: FileSeenByReader, state: GtidStateRecord | None
    ) -> None:
        """Report that groups are missing between two files although the reader continues."""
        missing: dict[str, list[list[int]]] = {}
        for gtid in state.gtids if state is not None else ():
            last_seq_no = self._seen_numbers.get(f"{gtid.domain_id}-{gtid.server_id}", 0)
            if gtid.seq_no > last_seq_no and len(missing) < _MAX_SHOWN:
                missing[f"{gtid.domain_id}-{gtid.server_id}"] = [[last_seq_no + 1, gtid.seq_no]]
        text = (
            f"after {previous.file.name} the reader continues with {following.file.name}, although transactions "
            f"between them are missing"
        )
        if self._open_type == int(IbbRecordType.COMMIT):
            text += "; it joins parts of two groups into one wrong group"
        facts: dict[str, Any] = {"situation": "apply", "missing_gtids": missing}
        offset = previous.reader_end if previous.reader_end is not None else previous.file.size
        if following.number == previous.number + 1:
            self._findings.append(
                (previous.file.name, make_finding("silent-loss", offset, previous.file.size - offset, text, **facts))
            )
        else:
            self._findings.append((file_name(previous.number + 1), make_finding("silent-loss", None, 0, text, **facts)))

    def _finish_file(self, number: int) -> Iterator[RecordOutcome]:
        """Process the stops after the last group of a file."""
        while self._stop is None and self._has_stops_left():
            yield from self._stop_reading_or_roll_back(number, None)

    def _has_stops_left(self) -> bool:
        return self._stop_index < len(self._files[self._file_index].stops)

    def _records_before_stop(self, file: FileSeenByReader, records: DecodedRecords) -> int:
        """Return how many records of this run are before the next stop."""
        return (
            bisect_left(records.offset, file.stops[self._stop_index].offset) if self._has_stops_left() else len(records)
        )

    def _stop_reading_or_roll_back(self, record_number: int, offset: int | None) -> Iterator[RecordOutcome]:
        """Process a stop before record `record_number`, which is at `offset`."""
        file = self._files[self._file_index]
        reader_stop = file.stops[self._stop_index]
        self._stop_index += 1
        if reader_stop.is_conditional and offset == reader_stop.offset:
            return  # readers do not reach this problem
        self._bad_offset = reader_stop.offset
        if self._force:
            yield from self._applier.roll_back_open_transaction(record_number)
        elif not self._is_file_not_read_by_server(file):
            yield from self._stop_reader(
                record_number, ReplayStop(file.file.name, reader_stop.offset, reader_stop.reason)
            )

    def _is_file_not_read_by_server(self, file: FileSeenByReader) -> bool:
        """Return whether recovery removed the file, or readers skip it."""
        is_removed = self._new_end is not None and file.number > self._new_end[0]
        return is_removed or self._unseen_file == file.file.name

    def _stop_reader(self, number: int, stop: ReplayStop) -> Iterator[RecordOutcome]:
        yield from self._applier.roll_back_open_transaction(number)
        self._stop = stop

    # -- the end -----------------------------------------------------------------------------------------------------

    def finish(self) -> tuple[Iterable[RecordOutcome], ReplayOutcome]:
        """Roll back the open transaction, and return the outcome."""
        record_outcomes: list[RecordOutcome] = []
        if self._refusal is None:
            record_outcomes += self._advance_to_file(len(self._files) - 1, self._next_record)
            record_outcomes += self._finish_file(self._next_record) if self._files else ()
        record_outcomes += self._applier.finish_at_end_of_log(self._next_record)
        position = {"gtid": self._applier.executed.gtid_set_text}
        findings = (*self._iter_silent_losses(), *self._restart.iter_silent_loss_findings())
        return record_outcomes, ReplayOutcome(
            self._restart.server_starts(), self._stop, position, findings, self._restart.report_details()
        )

    def _iter_silent_losses(self) -> Iterator[tuple[str, Finding]]:
        """Yield findings about what the reader skips without an error."""
        yield from self._findings
        for name, lost_rows in self._lost_rows[:_MAX_SHOWN]:
            text = (
                "the TABLE_MAP of these rows is missing; the server treats the table as filtered out and skips the rows"
            )
            offset, size, record, gtid = lost_rows
            yield name, make_finding("silent-loss", offset, size, text, record=record, situation="apply", gtid=gtid)
        for name, unseen in self._unseen_events.items():
            size = self._files[self._file_indexes[name]].file.size - unseen.offset
            facts: dict[str, Any] = {"lost_records": unseen.records, "gtids": unseen.groups}
            text = f"{unseen.reason}; {unseen.records:,} events after it are not applied"
            yield name, make_finding("silent-loss", unseen.offset, size, text, situation="apply", **facts)


def parse_server_state(name: str, data: bytes) -> Mapping[str, Any] | None:
    """Parse the state of a server: a GTID position as text, or MariaDB's `BASE.state`."""
    try:
        executed = parse_executed_gtids(data.decode("utf-8", "replace"))
    except UsageError:
        return None
    return {"gtid": executed.gtid_set_text} if executed.domains and not executed.sources else None


_SHARED_REASONS = (
    "committed", "statement", "implicit-commit", "not-transactional", "xa-committed", "control", "incomplete",
    "rolled-back", "rolled-back-to-savepoint", "xa-prepared", "start-alter", "no-table-map", "ignorable", "group-open",
    "out-of-order", "xa-unknown", "xa-twice", "incident", "unknown-event", "undecodable", "adrift",
)  # fmt: skip

REASONS: Mapping[str, str] = {
    **{name: applier_module.REASONS[name] for name in _SHARED_REASONS},
    "executed": "The server already has it: its GTID is not newer than the position of its domain (gtid_slave_pos).",
    "never-durable": "Recovery with this redo log truncates the log before the group: it never became "
    "durable, not in any "
    "table either (docs/spec/mariadb_innodb_binlog.md#crash-recovery, `class binlog_recovery`).",
    "unseen": "Readers silently take a type byte of 0 or a page of zeros for the end of the file; after a file "
    "that FLUSH BINARY LOGS found exactly full, mariadb-binlog skips the next one "
    "(docs/spec/mariadb_innodb_binlog.md#the-servers-own-reader).",
    "damaged": "The group cannot be assembled, or its events do not fill it exactly "
    "(docs/spec/mariadb_innodb_binlog.md#chunks-and-records).",
    "reserve": "A file of zeros at the end of the log, preallocated (docs/spec/mariadb_innodb_binlog.md#files).",
    "not-a-log": "Servers do not open a file with this name (docs/spec/mariadb_innodb_binlog.md#files).",
}


def count_events(details: Mapping[str, Any]) -> int:
    """Return the number of events of a file from the validator's details."""
    return int(details["events"])
