"""Prediction of crash recovery: at its next start a server uses its own log to decide over prepared
transactions.

MySQL truncates the newest file after the last complete transaction; MariaDB leaves it and starts a new one.
Both commit what is prepared in the engines if its XID is in the log, and roll back the rest.
Source: docs/spec/mysql_binlog.md#transactions-and-truncation.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from binlogtool.findings import Finding, Severity, make_finding
from binlogtool.formats.binlog_events.apply.executed import ExecutedGtids, read_listed_gtids
from binlogtool.formats.binlog_events.apply.words import as_bytes, as_text, format_xid
from binlogtool.formats.binlog_events.groups.xa import XaId
from binlogtool.formats.layouts import RangeReader
from binlogtool.formats.mysql_binlog.judge.facts import BinlogFacts
from binlogtool.formats.mysql_binlog.members.names import LogName, parse_log_name
from binlogtool.formats.mysql_binlog.replay.marks import CommitMark, CommitMarks, find_unverified_marks
from binlogtool.formats.mysql_binlog.replay.recovery_reader import RecoveryExtent
from binlogtool.formats.mysql_binlog.replay.replayed_logs import get_base_name
from binlogtool.formats.replay_rules import DecodedRecords, ExaminedFile

MAX_LISTED_XIDS = 100
"""XIDs that are shown."""

REFUSED_DIAGNOSES = ("nesting", "xid-twice", "xa-id", "xa-prepared-twice", "xa-finished-twice")
"""What stops MySQL's recovery: events that cannot follow each other (`binlog::Binlog_recovery`)."""

_GTID_EVENTS = ("GTID", "GTID_LOG", "GTID_TAGGED_LOG")
_GTID_LIST_EVENTS = ("PREVIOUS_GTIDS", "GTID_LIST")
_COMMIT_MARK_EVENTS = ("XID", "XA_PREPARE", "QUERY", "QUERY_COMPRESSED")
_XA_FINISH = ("XA COMMIT", "XA ROLLBACK")


class CrashRecovery:
    """Prediction of crash recovery, from the records of the files that it reads.

    `files`: all of one log, in order; the last one is the newest. `read_sibling`: opens one of them by name;
    None if they cannot be read again. `extent`: how far recovery reads the newest one.
    """

    def __init__(
        self,
        files: Sequence[ExaminedFile],
        read_sibling: Callable[[str], RangeReader | None] | None = None,
        extent: RecoveryExtent | None = None,
    ) -> None:
        self.newest = files[-1] if files else None
        self.newest_facts = _get_facts(self.newest)
        self.is_needed = self.newest_facts is not None and self.newest_facts.in_use and not self.newest_facts.is_relay
        self._extent = extent
        self.executed = ExecutedGtids()
        self._read_ends = _find_read_files(files, self.newest_facts) if self.is_needed else {}
        self._xid_count = 0
        self._last_xids: deque[int] = deque(maxlen=MAX_LISTED_XIDS)
        self._prepared: dict[XaId, None] = {}
        self._rolled_back_gtid: str | None = None
        self._marks: CommitMarks | None = None
        self._unverified_marks: deque[CommitMark] = deque()
        if (
            self.is_needed
            and self.newest is not None
            and self.newest_facts is not None
            and not self.newest_facts.is_mariadb
        ):
            self._marks = CommitMarks()
            self._unverified_marks.extend(
                find_unverified_marks(self.newest, None if read_sibling is None else read_sibling(self.newest.name))
            )

    def add_records(self, name: str, records: DecodedRecords) -> None:
        """Note the records of a file, in order; files that recovery does not read are ignored."""
        read_end = self._read_ends.get(name)
        if read_end is None or self.newest is None or not len(records):
            return
        is_newest, offsets = name == self.newest.name, records.offset
        for i, type_name in enumerate(records.envelope.type):
            if is_newest and type_name in _COMMIT_MARK_EVENTS:
                self._add_mark(CommitMark(offsets[i], type_name.removesuffix("_COMPRESSED"), records.bodies[i] or {}))
            if offsets[i] >= read_end:
                self._note_after_end(type_name, records, i)
            elif type_name in _COMMIT_MARK_EVENTS:
                self._note_commit(type_name, records.bodies[i] or {})
            elif is_newest and type_name in _GTID_EVENTS and isinstance(records.envelope.txn[i], str):
                self.executed.add(records.envelope.txn[i])  # type: ignore[arg-type]
            elif is_newest and type_name in _GTID_LIST_EVENTS:
                self.executed = read_listed_gtids(records.bodies[i])

    def _add_mark(self, mark: CommitMark | None) -> None:
        """Add the next commit mark of the newest file, after preceding ones with wrong checksums; None for its end."""
        if self._marks is None:
            return
        while self._unverified_marks and (mark is None or self._unverified_marks[0].offset < mark.offset):
            self._marks.add_mark(self._unverified_marks.popleft())
        if mark is not None:
            self._marks.add_mark(mark)

    def _note_after_end(self, type_name: str, records: DecodedRecords, i: int) -> None:
        """Note a record after the end of what recovery reads."""
        if (
            type_name in _GTID_EVENTS
            and self.newest_facts is not None
            and records.offset[i] == self.newest_facts.open_group
        ):
            self._rolled_back_gtid = str(records.envelope.txn[i])

    def _note_commit(self, type_name: str, body: Any) -> None:
        """Note a commit mark of what recovery reads."""
        if type_name == "XID":
            self._note_xid(body.get("xid"))
        elif type_name == "XA_PREPARE":
            xa_id = XaId(body.get("format_id", 0), as_bytes(body.get("gtrid", "")), as_bytes(body.get("bqual", "")))
            if not body.get("one_phase") and len(self._prepared) < MAX_LISTED_XIDS:
                self._prepared[xa_id] = None
        else:
            status = body.get("status_vars") or {}
            self._note_xid(status.get("xid", status.get("ddl_logged_with_xid")))
            sql = as_text(body.get("sql"))
            if sql[:12].upper().startswith(_XA_FINISH):
                self._prepared = {name: None for name in self._prepared if format_xid(name) not in sql}

    def _note_xid(self, number: Any) -> None:
        """Note an XID."""
        if isinstance(number, int) and number:
            self._xid_count += 1
            self._last_xids.append(number)

    # -- the end -----------------------------------------------------------------------------------------------------

    def predict_start(self) -> bool | None:
        """Return whether the server comes up; None if it was shut down, so that recovery is not needed."""
        return None if not self.is_needed else self._find_refusal() is None

    def _find_refusal(self) -> tuple[int | None, str] | None:
        """Return (offset, reason) of what MySQL refuses; nothing after the first unreadable event matters."""
        if self.newest is None or self.newest_facts is None or self.newest_facts.is_mariadb:
            return None
        self._add_mark(None)
        if self._marks is not None and self._marks.first_fault is not None:
            return self._marks.first_fault
        tail = self.newest.tail
        end = tail.first_damage if tail is not None and tail.first_damage is not None else self.newest.size
        faults = (one for one in self.newest.findings if one.facts.get("diagnosis") in REFUSED_DIAGNOSES)
        first_fault = next((one for one in faults if one.severity is Severity.ERROR and (one.offset or 0) < end), None)
        return None if first_fault is None else (first_fault.offset, first_fault.message)

    def details(self) -> dict[str, Any]:
        """Return the prediction for the report."""
        file, facts = self.newest, self.newest_facts
        if file is None or facts is None:
            return {"needed": False}
        details: dict[str, Any] = {
            "file": get_base_name(file.name),
            "server": facts.server_version,
            "needed": self.is_needed,
        }
        if not self.is_needed:
            return details
        refusal = self._find_refusal()
        details["starts"] = refusal is None
        if refusal is not None:
            return details | {"why": refusal[1], "at": refusal[0]}
        end = self._log_end()
        details |= {"cut_at": None if facts.is_mariadb else end, "torn_bytes": file.size - end}
        name = parse_log_name(file.name)
        details["goes_on_in"] = name.make_sibling(name.number + 1) if name is not None else None
        details |= {"gtid": self.executed.text, "xids": self._xid_count, "last_xids": list(self._last_xids)}
        details["xa_prepared"] = [format_xid(one) for one in self._prepared]
        return details | {"rolled_back": self._rolled_back_gtid, "verifies_checksums": self._depends_on_checksums()}

    def _depends_on_checksums(self) -> bool | None:
        """Return whether recovery stops only if it verifies checksums (off by default); None without damage."""
        tail = self.newest.tail if self.newest is not None else None
        if self.newest is None or tail is None or tail.first_damage is None:
            return None
        return any(one.id == "checksum-mismatch" and one.offset == tail.first_damage for one in self.newest.findings)

    def _log_end(self) -> int:
        """Return the offset after what recovery reads as the log."""
        return _get_log_end(self.newest) if self.newest is not None else 0

    def iter_findings(self) -> Iterator[tuple[str, Finding]]:
        """Yield findings about silent losses."""
        if not self.is_needed or self.newest is None or self.newest_facts is None or self._find_refusal() is not None:
            return
        end = self._log_end() if self._extent is None else self._extent.end
        uncertain_from = None if self._extent is None else self._extent.uncertain_from
        event_ends = [
            one.offset + one.length for one in self.newest.findings if one.id == "valid-after-damage" and one.offset
        ]
        provable_end = max(event_ends, default=0)  # end of the last provable event after damage
        loss_start = end if provable_end > end else uncertain_from
        if loss_start is None or provable_end <= loss_start:
            return
        rolls_back = self.newest_facts.is_mariadb
        action = "leaves it, and rolls back what is prepared for" if rolls_back else "cuts off"
        message = (
            f"at its next start the server {action} all from {loss_start:#x} on, also the whole events after the damage"
        )
        if provable_end <= end:
            message = f"if the server cannot decode the damaged event at {loss_start:#x}, {message}"
        severity = Severity.ERROR if provable_end > end else Severity.WARNING
        size = self.newest.size - loss_start
        result = make_finding(
            "silent-loss", loss_start, size, message, severity=severity, situation="crash-recovery", lost_bytes=size
        )
        yield self.newest.name, result


def _get_facts(file: ExaminedFile | None) -> BinlogFacts | None:
    """Return the validator's facts about a file; None if it was not read."""
    facts = file.verdict.facts if file is not None and file.verdict is not None else None
    return facts if isinstance(facts, BinlogFacts) else None


def _get_log_end(file: ExaminedFile) -> int:
    """Return the durable end of a file."""
    durable_end = file.verdict.durable_end if file.verdict is not None else None
    return file.size if durable_end is None else min(durable_end, file.size)


def _find_read_files(files: Sequence[ExaminedFile], facts: BinlogFacts | None) -> dict[str, int]:
    """Return the files that recovery reads, each with the end of what it reads.

    MariaDB begins with the last BINLOG_CHECKPOINT.
    """
    newest = files[-1]
    read = {newest.name: _get_log_end(newest)}
    checkpoint_name = parse_log_name(facts.checkpoints[-1].name) if facts is not None and facts.checkpoints else None
    for file in files[:-1] if checkpoint_name is not None else ():
        name = parse_log_name(file.name)
        if isinstance(name, LogName) and checkpoint_name is not None and name.number >= checkpoint_name.number:
            read[file.name] = _get_log_end(file)
    return read
