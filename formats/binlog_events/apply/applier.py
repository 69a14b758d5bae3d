"""Simulated applier of a server: transactions by their GTIDs, and the outcome of each.

The order is that of `mysqlbinlog FILES | mysql`: statements and rows take effect when their transaction
ends. Nothing here knows about files; events of an engine binlog are applied in the same way.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from binlogtool.formats.binlog_events.apply.executed import told
from binlogtool.formats.binlog_events.apply.transactions import Transactions
from binlogtool.formats.binlog_events.apply.verdicts import (
    COMMITTED,
    CONTROL,
    INCOMPLETE,
    NO_MAP,
    ROLLED_BACK,
    SAVED,
    STATEMENT,
    Lost,
)
from binlogtool.formats.binlog_events.apply.words import bytes_of, kind_of, text_of, xa_text
from binlogtool.formats.binlog_events.codes import GTIDS, ROWS
from binlogtool.formats.binlog_events.ddl.tables import engine_of, names_any
from binlogtool.formats.binlog_events.groups.kinds import QueryKind
from binlogtool.formats.binlog_events.groups.open_group import MOST_PARTS, Open, Part
from binlogtool.formats.binlog_events.groups.xa import XaId
from binlogtool.formats.binlog_events.gtid.bodies import ROLLBACK_ALTER, START_ALTER
from binlogtool.formats.binlog_events.gtid.sets import domain_of, split
from binlogtool.formats.replay_rules import APPLIED, REJECTED, SKIPPED, Records, Ruling

MOST_PREPARED = 100_000
"""XA transactions that may wait at a time."""

_STANDALONE = 1
_STMT_END = 1
_IGNORABLE, _RELAY_LOG = 0x80, 0x40
_DUMMY = 0xFFFFFF
_XA = re.compile(r"XA\s+(COMMIT|ROLLBACK)\s+X'([0-9a-f]*)',X'([0-9a-f]*)',(-?\d+)\s*(?:ONE PHASE\s*)?\Z", re.I)
_SAVEPOINT = re.compile(r"(ROLLBACK\s+TO|SAVEPOINT|RELEASE)\s*(?:SAVEPOINT\s+)?(.*)", re.I | re.S)


class Applier(Transactions):
    """Applies events to a simulated server, one after the other."""

    def feed(self, first: int, records: Records, start: int, stop: int) -> Iterator[Ruling]:
        """Apply the records `[start, stop)` of a run whose record 0 has the number `first`."""
        types, take = records.envelope.type, _TAKE
        for i in range(start, stop):
            yield from take.get(types[i], _other)(self, first + i, records, i)
            if self.failure is not None:
                return

    # -- events ------------------------------------------------------------------------------------------------------

    def _control(self, number: int, records: Records, i: int) -> Iterator[Ruling]:
        """Apply an event outside of transactions; inside of one (a rotated relay log) it gets its own verdict."""
        if self._open is None:
            yield Ruling(number, number + 1, *CONTROL)
        elif len(self._open.parts) < MOST_PARTS:
            self._open.parts.append(Part(number, number + 1, CONTROL))

    def _description(self, number: int, records: Records, i: int) -> Iterator[Ruling]:
        """Apply FORMAT_DESCRIPTION: after a server start the previous transaction has no end."""
        body = records.bodies[i] or {}
        if body.get("create_timestamp") and not _flags(records, i) & _RELAY_LOG:
            yield from self._close(number, INCOMPLETE)
        yield from self._control(number, records, i)

    def _list(self, number: int, records: Records, i: int) -> Iterator[Ruling]:
        """Apply PREVIOUS_GTIDS or GTID_LIST."""
        if self._ordered:
            for domain, (_, last) in told(records.bodies[i]).domains.items():
                self._starts.setdefault(domain, last)
                self._lasts.setdefault(domain, last)
        yield from self._control(number, records, i)

    def _gtid(self, number: int, records: Records, i: int) -> Iterator[Ruling]:
        """Apply a GTID event, which begins a transaction."""
        gtid = records.envelope.txn[i]
        if self._open is not None:
            if self._open.begun and self._open.doom is None:
                why = f"transaction {gtid} begins inside {self._open.gtid or 'another one'}"
                if not self._goes_on:
                    yield from self._fail(number, records, i, "group-open", why)
                    return
                self._open.doom = REJECTED, "group-open"
            yield from self._close(number, INCOMPLETE)
        self._adrift = False
        body = records.bodies[i]
        if body is None:
            yield from self._fail(number, records, i, "undecodable", "the GTID event cannot be read")
            self._adrift = True
            return
        group = self._begin(number, records, i)
        group.gtid = gtid if isinstance(gtid, str) else None
        flags, extra = body.get("flags2"), body.get("flags_extra", 0)
        group.standalone = flags is not None and bool(flags & _STANDALONE)
        group.begun = flags is not None and not group.standalone
        if group.gtid is not None:
            yield from self._known(number, records, i, group)
        if self._open is group and group.doom is None and extra & (START_ALTER | ROLLBACK_ALTER):
            group.doom = SKIPPED, "start-alter"

    def _known(self, number: int, records: Records, i: int, group: Open) -> Iterator[Ruling]:
        """Check whether a GTID was executed before, or is out of order."""
        gtid = group.gtid or ""
        source, sequence = split(gtid)
        domain = domain_of(source)
        if gtid in self._had or (domain is None and gtid in self.executed):
            group.doom = SKIPPED, "executed"
        elif domain is not None and self._ordered:
            start, last = self._starts.setdefault(domain, sequence), self._lasts.get(domain)
            if last is not None and start <= sequence <= last:
                self._open = None
                yield from self._out_of_order(number, records, i, group, last)
            self._lasts[domain] = sequence

    def _forget(self, group: Open) -> None:
        """Release the sequence number of a transaction without an end."""
        source, sequence = split(group.gtid) if group.gtid is not None else ("", 0)
        domain = domain_of(source)
        if domain is not None and self._ordered and self._lasts.get(domain) == sequence:
            self._lasts[domain] = sequence - 1

    def _out_of_order(self, number: int, records: Records, i: int, group: Open, last: int) -> Iterator[Ruling]:
        """Handle a GTID whose number does not grow in its domain."""
        if self._goes_on:  # --skip-gtid-strict-mode; transactions applied before fail on their own rows
            self._open = group
            if (group.gtid or "") in self.executed:
                group.doom = REJECTED, "out-of-order"
            return
        yield from self._fail(number, records, i, "out-of-order", f"{group.gtid} stands behind number {last}")

    def _query(self, number: int, records: Records, i: int) -> Iterator[Ruling]:
        """Apply a QUERY or EXECUTE_LOAD_QUERY event."""
        body = records.bodies[i]
        if body is None:
            yield from self._undecodable(number, records, i)
            return
        sql = text_of(body.get("sql"))
        kind = kind_of(sql)
        if self._adrift and kind in (QueryKind.BEGIN, QueryKind.XA_START):
            self._adrift = False
        if self._adrift:
            self._adrift = kind not in (QueryKind.COMMIT, QueryKind.ROLLBACK)
            yield Ruling(number, number + 1, REJECTED, "adrift")
        elif kind is QueryKind.STATEMENT:
            yield from self._statement(number, records, i, sql, text_of(body.get("db")))
        else:
            yield from _KINDS[kind](self, number, records, i, sql)

    def _statement(self, number: int, records: Records, i: int, sql: str, db: str) -> Iterator[Ruling]:
        """Apply a statement other than BEGIN, COMMIT and the like."""
        self._learn(sql, db)
        if self._open is None or not self._open.begun:
            yield from self._ends(number, records, i, STATEMENT)
        elif self._stays and names_any(sql, db, self._stays):
            self._open.keep(number)

    def _learn(self, sql: str, db: str) -> None:
        """Note tables that a rollback does not affect."""
        known = engine_of(sql, db)
        if known is not None and len(self._stays) < MOST_PARTS:
            (self._stays.discard if known.transactional else self._stays.add)(known.table)

    def _opens(self, number: int, records: Records, i: int, sql: str) -> Iterator[Ruling]:
        """Apply BEGIN or XA START."""
        group = self._open
        if group is not None and group.begun and group.gtid is None:
            self._open = None
            self._done(group, records, max(i - 1, 0))
            yield from group.rulings(number, (APPLIED, "implicit-commit"))
            group = None
        group = group or self._begin(number, records, i)
        group.begun, group.standalone = True, False

    def _commits(self, number: int, records: Records, i: int, sql: str) -> Iterator[Ruling]:
        """Apply COMMIT."""
        yield from self._ends(number, records, i, COMMITTED if self._open is not None else STATEMENT)

    def _rolls_back(self, number: int, records: Records, i: int, sql: str) -> Iterator[Ruling]:
        """Apply ROLLBACK."""
        group = self._open
        if group is not None and group.begun and group.doom is None:
            group.undo(group.first, number + 1, ROLLED_BACK)
        yield from self._ends(number, records, i, ROLLED_BACK if group is not None else STATEMENT)

    def _saves(self, number: int, records: Records, i: int, sql: str) -> Iterator[Ruling]:
        """Apply SAVEPOINT, ROLLBACK TO or RELEASE."""
        group = self._open
        if group is None:
            yield Ruling(number, number + 1, *STATEMENT)
            return
        parts = _SAVEPOINT.match(sql)
        if parts is None or len(group.savepoints) >= MOST_PARTS:
            return
        name = parts[2].strip().strip("`").lower()
        if parts[1].upper() == "SAVEPOINT":
            group.savepoints[name] = number
        elif parts[1][:8].upper() == "ROLLBACK" and name in group.savepoints:
            group.undo(group.savepoints[name] + 1, number, SAVED)

    def _stays_open(self, number: int, records: Records, i: int, sql: str) -> Iterator[Ruling]:
        """Apply XA END, which leaves the transaction open."""
        if self._open is None:
            yield Ruling(number, number + 1, *STATEMENT)

    # -- XA ----------------------------------------------------------------------------------------------------------

    def _prepares(self, number: int, records: Records, i: int) -> Iterator[Ruling]:
        """Apply XA_PREPARE."""
        body, group = records.bodies[i], self._open
        if body is None or group is None:
            yield from self._undecodable(number, records, i) if body is None else self._stray(number)
            return
        if body.get("one_phase"):
            yield from self._ends(number, records, i, COMMITTED)
            return
        self._open = None
        if group.doom is not None:
            yield from group.rulings(number + 1, group.doom)
            return
        self._done(group, records, i)
        name = XaId(body["format_id"], bytes_of(body["gtrid"]), bytes_of(body["bqual"]))
        if name in self._prepared or len(self._prepared) >= MOST_PREPARED:
            group.doom = REJECTED, "xa-twice"
            yield from group.rulings(number + 1, group.doom)
        else:
            self._prepared[name] = group, number + 1

    def _finishes(self, number: int, records: Records, i: int, sql: str) -> Iterator[Ruling]:
        """Apply XA COMMIT or XA ROLLBACK of a transaction that was prepared before."""
        parts = _XA.match(sql.strip())
        group = self._open or self._begin(number, records, i)
        if parts is None or len(parts[2]) % 2 or len(parts[3]) % 2:
            yield from self._fail(number, records, i, "xa-unknown", "no XA identifier can be read")
        elif group.doom is None:
            name = XaId(int(parts[4]), bytes.fromhex(parts[2]), bytes.fromhex(parts[3]))
            yield from self._resolve(number, records, i, name, parts[1].upper() == "COMMIT")
        if self.failure is None:
            yield from self._ends(number, records, i, STATEMENT)

    def _resolve(self, number: int, records: Records, i: int, name: XaId, commit: bool) -> Iterator[Ruling]:
        """Commit or roll back a prepared transaction."""
        kept = self._prepared.pop(name, None)
        if kept is not None:
            group, stop = kept
            if not commit:
                group.undo(group.first, stop, ROLLED_BACK)
            yield from group.rulings(stop, (APPLIED, "xa-committed") if commit else ROLLED_BACK)
        elif not self._trusting:
            why = f"XA transaction {xa_text(name)} is not prepared"
            yield from self._fail(number, records, i, "xa-unknown", why)

    # -- rows --------------------------------------------------------------------------------------------------------

    def _inside(self, number: int, records: Records, i: int) -> Iterator[Ruling]:
        """Apply an event that belongs to a transaction and does not end it."""
        if self._open is None:
            if self._adrift:
                yield Ruling(number, number + 1, REJECTED, "adrift")
                return
            self._begin(number, records, i)
        elif self._stays and records.envelope.object[i] in self._stays:
            self._open.keep(number)

    def _rows(self, number: int, records: Records, i: int) -> Iterator[Ruling]:
        """Apply a row event."""
        yield from self._inside(number, records, i)
        group, body = self._open, records.bodies[i]
        if group is None:
            return
        if body is None:
            yield from self._undecodable(number, records, i)
            return
        lost = "table" not in body or records.offset[i] in self.unmapped
        if lost and body.get("table_id") != _DUMMY and group.doom is None:
            group.parts.append(Part(number, number + 1, NO_MAP))
            if len(self.lost) < MOST_PARTS:
                self.lost.append(Lost(records.offset[i], records.size[i], records.record[i], group.gtid))
        if not group.begun and body.get("flags", 0) & _STMT_END:
            yield from self._ends(number, records, i, STATEMENT)

    # -- what cannot be applied --------------------------------------------------------------------------------------

    def _undecodable(self, number: int, records: Records, i: int) -> Iterator[Ruling]:
        """Fail at an event that cannot be decoded."""
        found = records.findings.get(i, ())
        why = found[0].message if found else f"{records.envelope.type[i]} cannot be read"
        yield from self._fail(number, records, i, "undecodable", why)

    def _stray(self, number: int) -> Iterator[Ruling]:
        """Rule on an end without a transaction."""
        yield Ruling(number, number + 1, *((REJECTED, "adrift") if self._adrift else STATEMENT))

    def _xid(self, number: int, records: Records, i: int) -> Iterator[Ruling]:
        """Apply XID."""
        if self._open is None:
            yield from self._stray(number)
            self._adrift = False
        else:
            yield from self._ends(number, records, i, COMMITTED)

    def _incident(self, number: int, records: Records, i: int) -> Iterator[Ruling]:
        """Fail at INCIDENT."""
        message = text_of((records.bodies[i] or {}).get("message"))
        yield from self._fail(number, records, i, "incident", f"the server that wrote the log lost events: {message}")

    def _unknown(self, number: int, records: Records, i: int) -> Iterator[Ruling]:
        """Apply an event of unknown type: skip it if it is ignorable, fail otherwise."""
        if not _flags(records, i) & _IGNORABLE:
            name = records.envelope.type[i]
            yield from self._fail(number, records, i, "unknown-event", f"{name} is not known and not ignorable")
        elif self._open is None:
            yield Ruling(number, number + 1, SKIPPED, "ignorable")
        else:
            self._open.parts.append(Part(number, number + 1, (SKIPPED, "ignorable")))


def _flags(records: Records, i: int) -> int:
    """Return the flags of an event's header."""
    extra = records.extras[i] if records.extras is not None else None
    header: Mapping[str, Any] = (extra or {}).get("header", {})
    return int(header.get("flags", 0))


_KINDS: Mapping[QueryKind, Callable[[Applier, int, Records, int, str], Iterator[Ruling]]] = {
    QueryKind.BEGIN: Applier._opens,
    QueryKind.XA_START: Applier._opens,
    QueryKind.COMMIT: Applier._commits,
    QueryKind.ROLLBACK: Applier._rolls_back,
    QueryKind.SAVEPOINT: Applier._saves,
    QueryKind.XA_END: Applier._stays_open,
    QueryKind.XA_FINISH: Applier._finishes,
}
_ROWS = tuple(kind.name for kind in ROWS)
_CONTROLS = (
    "ROTATE", "STOP", "BINLOG_CHECKPOINT", "START_ENCRYPTION", "HEARTBEAT", "HEARTBEAT_V2", "START_V3",
)  # fmt: skip
_INSIDE = (
    "TABLE_MAP", "ANNOTATE_ROWS", "ROWS_QUERY", "INTVAR", "RAND", "USER_VAR", "BEGIN_LOAD_QUERY", "APPEND_BLOCK",
    "DELETE_FILE", "TRANSACTION_PAYLOAD", "TRANSACTION_CONTEXT", "VIEW_CHANGE", "PARTIAL_ROW_DATA",
)  # fmt: skip
_Take = Callable[[Applier, int, Records, int], Iterator[Ruling]]
_TAKE: Mapping[str, _Take] = {
    **dict.fromkeys(_CONTROLS, Applier._control),
    **dict.fromkeys(_INSIDE, Applier._inside),
    **dict.fromkeys(_ROWS, Applier._rows),
    **dict.fromkeys(("QUERY", "QUERY_COMPRESSED", "EXECUTE_LOAD_QUERY"), Applier._query),
    **dict.fromkeys((kind.name for kind in GTIDS), Applier._gtid),
    **dict.fromkeys(("PREVIOUS_GTIDS", "GTID_LIST"), Applier._list),
    "FORMAT_DESCRIPTION": Applier._description,
    "XID": Applier._xid,
    "XA_PREPARE": Applier._prepares,
    "INCIDENT": Applier._incident,
}
_other = Applier._unknown
