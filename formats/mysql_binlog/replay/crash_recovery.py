"""Prediction of crash recovery: at its next start a server uses its own log to decide over prepared
transactions.

MySQL truncates the newest file after the last complete transaction; MariaDB leaves it and starts a new one.
Both commit what is prepared in the engines if its XID is in the log, and roll back the rest.
Source: docs/spec/mysql-mariadb-binlog.md#8-transactions-durability-truncation.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from binlogtool.findings import Finding, Severity, finding
from binlogtool.formats.binlog_events.apply.executed import Executed, told
from binlogtool.formats.binlog_events.apply.words import bytes_of, text_of, xa_text
from binlogtool.formats.binlog_events.groups.xa import XaId
from binlogtool.formats.layouts import Read
from binlogtool.formats.mysql_binlog.judge.facts import LogFacts
from binlogtool.formats.mysql_binlog.members.names import LogName, log_name
from binlogtool.formats.mysql_binlog.replay.marks import Mark, Marks, unchecked
from binlogtool.formats.mysql_binlog.replay.recovery_reader import RecoveryRead
from binlogtool.formats.mysql_binlog.replay.replayed_logs import base_name
from binlogtool.formats.replay_rules import Examined, Records

SHOWN = 100
"""XIDs that are shown."""

MALFORMED = ("nesting", "xid-twice", "xa-id", "xa-prepared-twice", "xa-finished-twice")
"""What stops MySQL's recovery: events that cannot follow each other (`binlog::Binlog_recovery`)."""

_GTIDS = ("GTID", "GTID_LOG", "GTID_TAGGED_LOG")
_LISTS = ("PREVIOUS_GTIDS", "GTID_LIST")
_MARKS = ("XID", "XA_PREPARE", "QUERY", "QUERY_COMPRESSED")
_XA_ENDS = ("XA COMMIT", "XA ROLLBACK")


class CrashRecovery:
    """Prediction of crash recovery, from the records of the files that it reads.

    `files`: all of one log, in order; the last one is the newest. `read_sibling`: opens one of them by name;
    None if they cannot be read again. `extent`: how far recovery reads the newest one.
    """

    def __init__(
        self,
        files: Sequence[Examined],
        beside: Callable[[str], Read | None] | None = None,
        reading: RecoveryRead | None = None,
    ) -> None:
        self.newest = files[-1] if files else None
        self.facts = _facts(self.newest)
        self.needed = self.facts is not None and self.facts.in_use and not self.facts.relay
        self._reading = reading
        self.executed = Executed()
        self._read = _scanned(files, self.facts) if self.needed else {}
        self._xids = 0
        self._last: deque[int] = deque(maxlen=SHOWN)
        self._prepared: dict[XaId, None] = {}
        self._rolled_back: str | None = None
        self._marks: Marks | None = None
        self._unchecked: deque[Mark] = deque()
        if self.needed and self.newest is not None and self.facts is not None and not self.facts.is_mariadb:
            self._marks = Marks()
            self._unchecked.extend(unchecked(self.newest, None if beside is None else beside(self.newest.name)))

    def see(self, name: str, records: Records) -> None:
        """Note the records of a file, in order; files that recovery does not read are ignored."""
        end = self._read.get(name)
        if end is None or self.newest is None or not len(records):
            return
        newest, offsets = name == self.newest.name, records.offset
        for i, kind in enumerate(records.envelope.type):
            if newest and kind in _MARKS:
                self._mark(Mark(offsets[i], kind.removesuffix("_COMPRESSED"), records.bodies[i] or {}))
            if offsets[i] >= end:
                self._behind(kind, records, i)
            elif kind in _MARKS:
                self._commits(kind, records.bodies[i] or {})
            elif newest and kind in _GTIDS and isinstance(records.envelope.txn[i], str):
                self.executed.add(records.envelope.txn[i])  # type: ignore[arg-type]
            elif newest and kind in _LISTS:
                self.executed = told(records.bodies[i])

    def _mark(self, mark: Mark | None) -> None:
        """Add the next commit mark of the newest file, after preceding ones with wrong checksums; None for its end."""
        if self._marks is None:
            return
        while self._unchecked and (mark is None or self._unchecked[0].offset < mark.offset):
            self._marks.see(self._unchecked.popleft())
        if mark is not None:
            self._marks.see(mark)

    def _behind(self, kind: str, records: Records, i: int) -> None:
        """Note a record after the end of what recovery reads."""
        if kind in _GTIDS and self.facts is not None and records.offset[i] == self.facts.open_group:
            self._rolled_back = str(records.envelope.txn[i])

    def _commits(self, kind: str, body: Any) -> None:
        """Note a commit mark of what recovery reads."""
        if kind == "XID":
            self._xid(body.get("xid"))
        elif kind == "XA_PREPARE":
            name = XaId(body.get("format_id", 0), bytes_of(body.get("gtrid", "")), bytes_of(body.get("bqual", "")))
            if not body.get("one_phase") and len(self._prepared) < SHOWN:
                self._prepared[name] = None
        else:
            status = body.get("status_vars") or {}
            self._xid(status.get("xid", status.get("ddl_logged_with_xid")))
            sql = text_of(body.get("sql"))
            if sql[:12].upper().startswith(_XA_ENDS):
                self._prepared = {name: None for name in self._prepared if xa_text(name) not in sql}

    def _xid(self, number: Any) -> None:
        """Note an XID."""
        if isinstance(number, int) and number:
            self._xids += 1
            self._last.append(number)

    # -- the end -----------------------------------------------------------------------------------------------------

    def starts(self) -> bool | None:
        """Return whether the server comes up; None if it was shut down, so that recovery is not needed."""
        return None if not self.needed else self._malformed() is None

    def _malformed(self) -> tuple[int | None, str] | None:
        """Return (offset, reason) of what MySQL refuses; nothing after the first unreadable event matters."""
        if self.newest is None or self.facts is None or self.facts.is_mariadb:
            return None
        self._mark(None)
        if self._marks is not None and self._marks.wrong is not None:
            return self._marks.wrong
        tail = self.newest.tail
        end = tail.first_damage if tail is not None and tail.first_damage is not None else self.newest.size
        wrong = (one for one in self.newest.findings if one.facts.get("diagnosis") in MALFORMED)
        found = next((one for one in wrong if one.severity is Severity.ERROR and (one.offset or 0) < end), None)
        return None if found is None else (found.offset, found.message)

    def details(self) -> dict[str, Any]:
        """Return the prediction for the report."""
        file, facts = self.newest, self.facts
        if file is None or facts is None:
            return {"needed": False}
        details: dict[str, Any] = {"file": base_name(file.name), "server": facts.server_version, "needed": self.needed}
        if not self.needed:
            return details
        refused = self._malformed()
        details["starts"] = refused is None
        if refused is not None:
            return details | {"why": refused[1], "at": refused[0]}
        end = self._end()
        details |= {"cut_at": None if facts.is_mariadb else end, "torn_bytes": file.size - end}
        name = log_name(file.name)
        details["goes_on_in"] = name.sibling(name.number + 1) if name is not None else None
        details |= {"gtid": self.executed.text, "xids": self._xids, "last_xids": list(self._last)}
        details["xa_prepared"] = [xa_text(one) for one in self._prepared]
        return details | {"rolled_back": self._rolled_back, "verifies_checksums": self._checked()}

    def _checked(self) -> bool | None:
        """Return whether recovery stops only if it verifies checksums (off by default); None without damage."""
        tail = self.newest.tail if self.newest is not None else None
        if self.newest is None or tail is None or tail.first_damage is None:
            return None
        return any(one.id == "checksum-mismatch" and one.offset == tail.first_damage for one in self.newest.findings)

    def _end(self) -> int:
        """Return the offset after what recovery reads as the log."""
        return _end(self.newest) if self.newest is not None else 0

    def findings(self) -> Iterator[tuple[str, Finding]]:
        """Yield findings about silent losses."""
        if not self.needed or self.newest is None or self.facts is None or self._malformed() is not None:
            return
        end = self._end() if self._reading is None else self._reading.end
        doubt = None if self._reading is None else self._reading.doubt
        ends = [
            one.offset + one.length for one in self.newest.findings if one.id == "valid-after-damage" and one.offset
        ]
        whole = max(ends, default=0)  # end of the last provable event after damage
        at = end if whole > end else doubt
        if at is None or whole <= at:
            return
        rolls_back = self.facts.is_mariadb
        what = "leaves it, and rolls back what is prepared for" if rolls_back else "cuts off"
        does = f"at its next start the server {what} all from {at:#x} on, also the whole events after the damage"
        if whole <= end:
            does = f"if the server cannot decode the damaged event at {at:#x}, {does}"
        severity = Severity.ERROR if whole > end else Severity.WARNING
        size = self.newest.size - at
        found = finding("silent-loss", at, size, does, severity=severity, situation="crash-recovery", lost_bytes=size)
        yield self.newest.name, found


def _facts(file: Examined | None) -> LogFacts | None:
    """Return the validator's facts about a file; None if it was not read."""
    facts = file.verdict.facts if file is not None and file.verdict is not None else None
    return facts if isinstance(facts, LogFacts) else None


def _end(file: Examined) -> int:
    """Return the durable end of a file."""
    durable = file.verdict.durable_end if file.verdict is not None else None
    return file.size if durable is None else min(durable, file.size)


def _scanned(files: Sequence[Examined], facts: LogFacts | None) -> dict[str, int]:
    """Return the files that recovery reads, each with the end of what it reads.

    MariaDB begins with the last BINLOG_CHECKPOINT.
    """
    newest = files[-1]
    read = {newest.name: _end(newest)}
    named = log_name(facts.checkpoints[-1].name) if facts is not None and facts.checkpoints else None
    for file in files[:-1] if named is not None else ():
        name = log_name(file.name)
        if isinstance(name, LogName) and named is not None and name.number >= named.number:
            read[file.name] = _end(file)
    return read
