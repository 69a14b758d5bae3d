"""Predict what the server does with its own log at a start: recovery by the redo log, then finding the end of the
log.

See docs/spec/mariadb_innodb_binlog.md#restart-without-a-crash and #crash-recovery (`class binlog_recovery`,
`innodb_binlog_discover`, `find_pos_in_binlog`).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import msgspec

from binlogtool.findings import Finding, Severity, make_finding
from binlogtool.formats.binlog_events.apply.executed import ExecutedGtids
from binlogtool.formats.binlog_events.apply.words import format_xid
from binlogtool.formats.binlog_events.groups.xa import XaId
from binlogtool.formats.mariadb_innodb_binlog.codes import file_name, file_number
from binlogtool.formats.mariadb_innodb_binlog.judge.carried import LogValidationState
from binlogtool.formats.mariadb_innodb_binlog.records.context import IbbFileContext
from binlogtool.formats.mariadb_innodb_binlog.records.records import GtidStateRecord
from binlogtool.formats.mariadb_innodb_binlog.redo.recovery import (
    PAGE_SIZE,
    BinlogRecovery,
    RecoveryFile,
    RecoveryOutcome,
    make_recovery_file,
)
from binlogtool.formats.mariadb_innodb_binlog.redo.redo import RedoLog, iter_page_writes, summarize_redo_log
from binlogtool.formats.mariadb_innodb_binlog.replay.readers import ReadFile
from binlogtool.formats.replay_rules import ReplaySituation

_MAX_SHOWN = 100


class RecoveryPrediction(msgspec.Struct, frozen=True):
    """What recovery by the redo log does.

    Attributes:
        starts: whether the server starts; None = unknown.
        reason: reason, if it does not start or that is unknown.
        durable_lsn: the last durable LSN.
        new_end: (file number, offset) where the log ends afterwards; None = unchanged.
        recovered_from: (file number, offset) of the first page that is written.
        removed: numbers of the files that are deleted.
        lost, gained: (number of groups, GTIDs of the first ones).
        new_log_finding: finding that the server considers the log new and ignores the redo log's records.
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
    """Simulate recovery; None without a redo log, or if only some of the files are known."""
    contexts = [one.layout.context for one in situation.files if one.layout is not None]
    redo = next((one.redo for one in contexts if isinstance(one, IbbFileContext)), None)
    if redo is None or not situation.is_directory:
        return None
    log = RedoLog(redo.read, redo.size)
    summary = summarize_redo_log(log)
    if log.is_encrypted:
        return RecoveryPrediction(None, "the redo log is encrypted, and there is no key", summary.end_lsn)
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
        _groups_from_findings(findings, "redo-cut", "lost"),
        _groups_from_findings(findings, "redo-apply", "gained"),
        next(iter(outcome.findings), None),
    )


def _groups_from_findings(findings: Sequence[Finding], diagnosis: str, name: str) -> tuple[int, tuple[str, ...]]:
    """Return the number of groups that recovery removes or adds, and the first ones, from `verify`'s findings."""
    for item in findings:
        if item.facts.get("diagnosis") == diagnosis:
            return int(item.facts[f"groups_{name}"]), tuple(item.facts[f"gtids_{name}"])
    return 0, ()


# -- the end of the log ------------------------------------------------------------------------------------------------


class RestartPrediction:
    """Predicts the end of the log as the server finds it, and the GTID state there.

    Args:
        files: the files that are read, in order.
        recovery: what recovery does; None = no redo log.
    """

    def __init__(
        self, situation: ReplaySituation, files: Sequence[ReadFile], recovery: RecoveryPrediction | None
    ) -> None:
        self._situation, self.recovery = situation, recovery
        self._files = files
        self.last_file = _find_last_file(files, recovery)
        self._executed = ExecutedGtids()
        self._state_known = False

    def open_file(self, file: ReadFile, state: GtidStateRecord | None) -> None:
        """Process the start of a file; the server trusts the state at the start of the last one."""
        if self._is_part_of_log(file) and (state is not None or (not self._state_known and file.number == 0)):
            self._state_known, self._executed = True, ExecutedGtids()
            for gtid in state.gtids if state is not None else ():
                self._executed.add(str(gtid))

    def add_group(self, file: ReadFile, gtid: str) -> None:
        """Add a group before the end of data."""
        if self._is_part_of_log(file):
            self._executed.add(gtid)

    def _is_part_of_log(self, file: ReadFile) -> bool:
        return self.last_file is not None and file.number <= self.last_file.number

    def server_starts(self) -> bool | None:
        """Predict whether the server starts, as far as its log is concerned; None = unknown."""
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
        if self._situation.is_directory and self.server_starts() is not False:
            details["restart"] = self._describe_end()
        return details

    def _describe_end(self) -> dict[str, Any]:
        recovery, last_file = self.recovery, self.last_file
        if last_file is None or last_file.context is None or self._starts_next_file():
            number = 0 if last_file is None else self._files[-1].number + 1
            return {"new_log": file_name(number), "gtid": None}
        new_end = None if recovery is None else recovery.new_end
        number, offset = new_end or (last_file.number, self._end_offset(last_file, last_file.context))
        ends_inside = new_end is None and bool(self._open_record_type())
        details = {
            "file": file_name(number),
            "offset": offset,
            "inside_record": ends_inside,
            "gtid": self._gtid_position(),
        }
        if new_end is not None:
            return details | {"xa_prepared": None}
        return details | {"xa_prepared": self._prepared_xa(), "xa_known_as": self._prepared_xa(misread=True)}

    def _starts_next_file(self) -> bool:
        """Check for an invalid header in the newest file: the server then starts the next file, with a warning."""
        is_recovered = self.recovery is not None and self.recovery.new_end is not None
        newest = self._files[-1]
        return (
            not is_recovered
            and any(one.offset == 0 for one in newest.stops)
            and newest.context is not None
            and (newest.context.header is not None or not newest.context.starts_with_zeros)
        )

    @staticmethod
    def _end_offset(last_file: ReadFile, context: IbbFileContext) -> int:
        summary = context.scan_summary
        end = last_file.reader_end if last_file.reader_end is not None else summary.data_end
        return max(summary.end, context.page_size) if end is None else end

    def _open_record_type(self) -> int:
        """Return the type of the record in which the log ends; 0 = none."""
        for file in reversed(self._files):
            if self._is_part_of_log(file) and (file.open_type or not file.is_blank):
                return file.open_type
        return 0

    def _gtid_position(self) -> str | None:
        """Return gtid_binlog_state, the last GTID of each domain; None if not all groups are known."""
        if not self._state_known or (self.server_starts() is None):
            return None
        count, gained = (0, ()) if self.recovery is None else self.recovery.gained
        if count > len(gained):
            return None
        executed = self._executed.copy()
        for gtid in gained:
            executed.add(gtid)
        return executed.text

    def _prepared_xa(self, misread: bool = False) -> list[str]:
        """List prepared XA transactions.

        Args:
            misread: as the server knows them after it has read them from its log.
        """
        context = self._files[-1].context
        shared_values = () if context is None else context.shared.values()
        log_state = next((one for one in shared_values if isinstance(one, LogValidationState)), LogValidationState())
        return [
            format_xid(_misread_xa_id(XaId(*one)) if misread else XaId(*one))
            for one in list(log_state.pending)[:_MAX_SHOWN]
        ]

    # -- losses --------------------------------------------------------------------------------------------------------

    def iter_findings(self) -> Iterator[tuple[str, Finding]]:
        """Iterate over what the server loses without an error."""
        if not self._situation.is_directory:
            return
        recovery = self.recovery
        if recovery is not None and recovery.new_log_finding is not None:
            yield file_name(0), _report_loss(None, 0, recovery.new_log_finding.message)
        elif not self._files and any(file_number(file.name) for file in self._situation.files):
            text = "only files of zeros are here: the server takes this for a new log, and begins again with file 0"
            yield file_name(0), _report_loss(None, 0, text)
        if recovery is not None and recovery.lost[0] and recovery.new_end is not None:
            number, offset = recovery.new_end
            text = (
                f"recovery cuts the log here: {recovery.lost[0]:,} groups behind it never became durable, in no table"
            )
            facts = {"groups_lost": recovery.lost[0], "gtids_lost": list(recovery.lost[1])}
            yield file_name(number), _report_loss(offset, 0, text, Severity.WARNING, **facts)
        last_file = self.last_file
        if (
            last_file is not None
            and last_file.reader_end is not None
            and (recovery is None or recovery.new_end is None)
        ):
            text = "the server takes the log for ended here, and writes over what follows when it starts"
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
            text = "the header page is zero: the server takes the file for empty, and writes over it when it starts"
            yield newest.file.name, _report_loss(0, newest.file.size, text)


def _misread_xa_id(name: XaId) -> XaId:
    """Return an XA id as the server reads it: it takes bqual from `bqual_length` on instead of `gtrid_length`.

    See docs/spec/mariadb_innodb_binlog.md#defects-of-the-server-and-its-reader.
    """
    size = len(name.bqual)
    return XaId(name.format_id, name.gtrid, (name.gtrid + name.bqual)[size : 2 * size])


def _find_last_file(files: Sequence[ReadFile], recovery: RecoveryPrediction | None) -> ReadFile | None:
    """Return the newest file that the server does not consider empty."""
    for file in reversed(files):
        is_removed = recovery is not None and recovery.new_end is not None and file.number > recovery.new_end[0]
        if not is_removed and not (file.context is not None and file.context.starts_with_zeros):
            return file
    return None


def _report_loss(offset: int | None, size: int, text: str, severity: Severity | None = None, **facts: Any) -> Finding:
    return make_finding("silent-loss", offset, size, text, severity=severity, situation="restart", **facts)
