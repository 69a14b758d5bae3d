"""Predict what the server does with its own log at a start: recovery by the redo log, then finding the end of the
log.

See docs/spec/mariadb-innodb-binlog.md, sections 10 and 12 (`class binlog_recovery`, `innodb_binlog_discover`,
`find_pos_in_binlog`).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import msgspec

from binlogtool.findings import Finding, Severity, finding
from binlogtool.formats.binlog_events.apply.executed import Executed
from binlogtool.formats.binlog_events.apply.words import xa_text
from binlogtool.formats.binlog_events.groups.xa import XaId
from binlogtool.formats.mariadb_innodb_binlog.codes import file_name, file_number
from binlogtool.formats.mariadb_innodb_binlog.judge.carried import LogFold
from binlogtool.formats.mariadb_innodb_binlog.records.context import FileContext
from binlogtool.formats.mariadb_innodb_binlog.records.records import State
from binlogtool.formats.mariadb_innodb_binlog.redo.recovery import (
    PAGE_SIZE,
    BinlogFile,
    BinlogRecovery,
    RecoveryOutcome,
    binlog_file,
)
from binlogtool.formats.mariadb_innodb_binlog.redo.redo import RedoLog, page_writes, redo_summary
from binlogtool.formats.mariadb_innodb_binlog.replay.readers import ReadFile
from binlogtool.formats.replay_rules import Situation

_SHOWN = 100


class Recovered(msgspec.Struct, frozen=True):
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
    why: str | None = None
    durable_lsn: int | None = None
    cut: tuple[int, int] | None = None
    healed: tuple[int, int] | None = None
    removed: tuple[int, ...] = ()
    lost: tuple[int, tuple[str, ...]] = (0, ())
    gained: tuple[int, tuple[str, ...]] = (0, ())
    anew: Finding | None = None

    def details(self) -> dict[str, Any]:
        """Return the details for the report."""
        cut = None if self.cut is None else {"file": file_name(self.cut[0]), "offset": self.cut[1]}
        shown: dict[str, Any] = {"starts": self.starts, "durable_lsn": self.durable_lsn, "cut": cut}
        shown |= {"removed": [file_name(number) for number in self.removed]}
        for name, (count, gtids) in (("lost", self.lost), ("gained", self.gained)):
            shown |= {f"groups_{name}": count, f"gtids_{name}": list(gtids)}
        return shown if self.why is None else {**shown, "why": self.why}


def recovered(situation: Situation) -> Recovered | None:
    """Simulate recovery; None without a redo log, or if only some of the files are known."""
    contexts = [one.layout.context for one in situation.files if one.layout is not None]
    redo = next((one.redo for one in contexts if isinstance(one, FileContext)), None)
    if redo is None or not situation.whole:
        return None
    log = RedoLog(redo.read, redo.size)
    summary = redo_summary(log)
    if log.encrypted:
        return Recovered(None, "the redo log is encrypted, and there is no key", summary.end_lsn)
    if not summary.durable:
        said = next((one.message for one in summary.findings if one.severity is Severity.ERROR), "it has no end")
        return Recovered(False, f"redo log: {said}", summary.end_lsn)
    recovery = BinlogRecovery(page_writes(log), _known(situation))
    healed: tuple[int, int] | None = None
    for page in recovery.pages():
        healed = healed or (page.file_no, page.page_no * PAGE_SIZE)
    return _told(situation, recovery.outcome, healed, summary.end_lsn)


def _known(situation: Situation) -> list[BinlogFile]:
    found = []
    for file in situation.files:
        number, read = file_number(file.name), situation.beside and situation.beside(file.name)
        if number is not None and read:
            found.append(binlog_file(number, read(0, PAGE_SIZE), file.size))
    return found


def _told(
    situation: Situation, outcome: RecoveryOutcome, healed: tuple[int, int] | None, durable: int | None
) -> Recovered:
    if not outcome.succeeds:
        return Recovered(False, outcome.findings[0].message, durable)
    cut = None
    if outcome.file_no is not None and outcome.page_no is not None:
        cut = outcome.file_no, outcome.page_no * PAGE_SIZE + (outcome.offset or 0)
    found = [one for file in situation.files for one in file.findings]
    return Recovered(
        True,
        None,
        durable,
        cut,
        healed,
        outcome.removed,
        _groups(found, "redo-cut", "lost"),
        _groups(found, "redo-apply", "gained"),
        next(iter(outcome.findings), None),
    )


def _groups(found: Sequence[Finding], diagnosis: str, name: str) -> tuple[int, tuple[str, ...]]:
    """Return the number of groups that recovery removes or adds, and the first ones, from `verify`'s findings."""
    for one in found:
        if one.facts.get("diagnosis") == diagnosis:
            return int(one.facts[f"groups_{name}"]), tuple(one.facts[f"gtids_{name}"])
    return 0, ()


# -- the end of the log ------------------------------------------------------------------------------------------------


class Restart:
    """Predicts the end of the log as the server finds it, and the GTID state there.

    Args:
        files: the files that are read, in order.
        recovery: what recovery does; None = no redo log.
    """

    def __init__(self, situation: Situation, files: Sequence[ReadFile], made: Recovered | None) -> None:
        self._situation, self.made = situation, made
        self._files = files
        self.last = _last(files, made)
        self._executed = Executed()
        self._known = False

    def opened(self, file: ReadFile, state: State | None) -> None:
        """Process the start of a file; the server trusts the state at the start of the last one."""
        if self._counts(file) and (state is not None or (not self._known and file.number == 0)):
            self._known, self._executed = True, Executed()
            for gtid in state.gtids if state is not None else ():
                self._executed.add(str(gtid))

    def committed(self, file: ReadFile, gtid: str) -> None:
        """Add a group before the end of data."""
        if self._counts(file):
            self._executed.add(gtid)

    def _counts(self, file: ReadFile) -> bool:
        return self.last is not None and file.number <= self.last.number

    def starts(self) -> bool | None:
        """Predict whether the server starts, as far as its log is concerned; None = unknown."""
        if self.made is not None and (self.made.starts is not True or self.made.cut is not None):
            return self.made.starts
        if self.last is None:
            return True
        torn = any(one.offset > 0 and not one.perhaps for one in self.last.damages)
        return None if torn else True

    def details(self) -> dict[str, Any]:
        """Return the details for the report."""
        made, shown = self.made, dict[str, Any]()
        if made is not None:
            shown["redo"] = made.details()
        if self._situation.whole and self.starts() is not False:
            shown["restart"] = self._end()
        return shown

    def _end(self) -> dict[str, Any]:
        made, last = self.made, self.last
        if last is None or last.context is None or self._begins_anew():
            number = 0 if last is None else self._files[-1].number + 1
            return {"new_log": file_name(number), "gtid": None}
        cut = None if made is None else made.cut
        number, offset = cut or (last.number, self._offset(last, last.context))
        inside = cut is None and bool(self._open())
        shown = {"file": file_name(number), "offset": offset, "inside_record": inside, "gtid": self._gtid()}
        if cut is not None:
            return shown | {"xa_prepared": None}
        return shown | {"xa_prepared": self._pending(), "xa_known_as": self._pending(misread=True)}

    def _begins_anew(self) -> bool:
        """Check for an invalid header in the newest file: the server then starts the next file, with a warning."""
        healed = self.made is not None and self.made.cut is not None
        newest = self._files[-1]
        return (
            not healed
            and any(one.offset == 0 for one in newest.damages)
            and newest.context is not None
            and (newest.context.header is not None or not newest.context.empty)
        )

    @staticmethod
    def _offset(last: ReadFile, context: FileContext) -> int:
        seen = context.seen
        end = last.end if last.end is not None else seen.data_end
        return max(seen.end, context.page_size) if end is None else end

    def _open(self) -> int:
        """Return the type of the record in which the log ends; 0 = none."""
        for file in reversed(self._files):
            if self._counts(file) and (file.open or not file.blank):
                return file.open
        return 0

    def _gtid(self) -> str | None:
        """Return gtid_binlog_state, the last GTID of each domain; None if not all groups are known."""
        if not self._known or (self.starts() is None):
            return None
        count, gained = (0, ()) if self.made is None else self.made.gained
        if count > len(gained):
            return None
        found = self._executed.copy()
        for gtid in gained:
            found.add(gtid)
        return found.text

    def _pending(self, misread: bool = False) -> list[str]:
        """List prepared XA transactions.

        Args:
            misread: as the server knows them after it has read them from its log.
        """
        known = self._files[-1].context
        folds = () if known is None else known.shared.values()
        log = next((one for one in folds if isinstance(one, LogFold)), LogFold())
        return [xa_text(_misread(XaId(*one)) if misread else XaId(*one)) for one in list(log.pending)[:_SHOWN]]

    # -- losses --------------------------------------------------------------------------------------------------------

    def findings(self) -> Iterator[tuple[str, Finding]]:
        """Iterate over what the server loses without an error."""
        if not self._situation.whole:
            return
        made = self.made
        if made is not None and made.anew is not None:
            yield file_name(0), _loss(None, 0, made.anew.message)
        elif not self._files and any(file_number(file.name) for file in self._situation.files):
            text = "only files of zeros are here: the server takes this for a new log, and begins again with file 0"
            yield file_name(0), _loss(None, 0, text)
        if made is not None and made.lost[0] and made.cut is not None:
            number, at = made.cut
            text = f"recovery cuts the log here: {made.lost[0]:,} groups behind it never became durable, in no table"
            facts = {"groups_lost": made.lost[0], "gtids_lost": list(made.lost[1])}
            yield file_name(number), _loss(at, 0, text, Severity.WARNING, **facts)
        last = self.last
        if last is not None and last.end is not None and (made is None or made.cut is None):
            text = "the server takes the log for ended here, and writes over what follows when it starts"
            yield last.file.name, _loss(last.end, last.file.size - last.end, text)
        newest = self._files[-1] if self._files else None
        if newest is not None and newest is not last and (made is None or made.cut is None) and not newest.blank:
            text = "the header page is zero: the server takes the file for empty, and writes over it when it starts"
            yield newest.file.name, _loss(0, newest.file.size, text)


def _misread(name: XaId) -> XaId:
    """Return an XA id as the server reads it: it takes bqual from `bqual_length` on instead of `gtrid_length`.

    See docs/spec/mariadb-innodb-binlog.md#16-seed-text-and-project-documentation-versus-code.
    """
    size = len(name.bqual)
    return XaId(name.format_id, name.gtrid, (name.gtrid + name.bqual)[size : 2 * size])


def _last(files: Sequence[ReadFile], made: Recovered | None) -> ReadFile | None:
    """Return the newest file that the server does not consider empty."""
    for file in reversed(files):
        gone = made is not None and made.cut is not None and file.number > made.cut[0]
        if not gone and not (file.context is not None and file.context.empty):
            return file
    return None


def _loss(offset: int | None, size: int, text: str, severity: Severity | None = None, **facts: Any) -> Finding:
    return finding("silent-loss", offset, size, text, severity=severity, situation="restart", **facts)
