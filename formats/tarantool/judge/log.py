"""Validator of a write-ahead log (.xlog): LSNs, times, transactions, spaces.

Source: `docs/spec/tarantool-xlog.md#22-transactions`, `#3-xlog-sets`, `#61-verify-invariants`.
"""

from __future__ import annotations

from bisect import bisect_right
from typing import Any, NamedTuple

import msgspec

from binlogtool.findings import Finding, Severity
from binlogtool.formats.judging import Tail, Verdict
from binlogtool.formats.layouts import U64, Batch, Layout
from binlogtool.formats.tarantool.codes import LAST_SYSTEM_SPACE, REPLICAS, Flag, HeaderKey, RowType
from binlogtool.formats.tarantool.judge import folds
from binlogtool.formats.tarantool.judge.common import REQUIRED_KEYS, FileJudge, Place, new_state, ranges
from binlogtool.formats.tarantool.meaning import SPACE, learn_space
from binlogtool.formats.tarantool.rows.names import TYPE_NAMES
from binlogtool.formats.tarantool.rows.rows import DUPLICATE_KEY, UNKNOWN_KEY
from binlogtool.limits import Limits

_REQUIRED = {row_type: sum(1 << key for key in keys) for row_type, keys in REQUIRED_KEYS.items()}
_COMMIT, _HAS_TSN, _HAS_TIME = Flag.COMMIT.value, 1 << HeaderKey.TSN, 1 << HeaderKey.TIMESTAMP
_new = tuple.__new__
_STRETCH = 64
"""Rows that are looked at before the fold is tried again, at most."""
MAX_REMEMBERED = 10_000
"""Ceiling of gaps and of spaces that are remembered by one judge."""


class Row(NamedTuple):
    """Columns of one row that are checked, under the scanner's names."""

    type: int
    replica_id: int
    lsn: int
    tsn: int
    timestamp: int
    flags: int
    header_keys: int
    body_keys: int
    space_id: int
    span: int


_COLUMNS = Row._fields
_REPLICA = _COLUMNS.index("replica_id")


class Open(msgspec.Struct):
    """A transaction that has begun and not ended.

    Attributes:
        replica: -1 while it has local rows only.
        first: LSN of its first row.
        frame: index of the block of its last row.
        crossed: a continuation in another block was reported.
        mixed: rows of other transactions are between its rows.
        since: offset from which on some transaction has been open without a break, this one at last; -1 = its own
            place.
    """

    replica: int
    tsn: int
    first: int
    place: Place
    frame: int
    crossed: bool = False
    mixed: bool = False
    since: int = -1

    @property
    def began(self) -> int:
        """The last offset before it at which no transaction was open."""
        return self.place.offset if self.since < 0 else self.since


class Gap(msgspec.Struct):
    """LSNs `[first, last]` of a replica that were skipped at a location; `filled`: number of them that came later
    after
    all.
    """

    replica: int
    first: int
    last: int
    place: Place
    severity: Severity
    found: int = 0


class LogFacts(msgspec.Struct, frozen=True):
    """Facts about a log for the rules of a set.

    Attributes:
        vclock: state after its last row.
        used: space id -> location of the first row.
        defined: ids named by its own `_space` rows.
        lost: LSN ranges that are known to be lost: (replica, first, last).
    """

    vclock: dict[int, int]
    rows: int
    used: dict[int, Place]
    defined: frozenset[int]
    lost: tuple[tuple[int, int, int], ...]
    damaged: bool


class LogJudge(FileJudge):
    """Validator of the rows of one log."""

    def __init__(self, layout: Layout, compile_: Any, limits: Limits) -> None:
        super().__init__(layout, compile_, limits)
        self._fold = compile_(folds.fold_log)
        self.state = new_state(compile_)
        for replica, lsn in self.context.vclock.items() if self.context.believed else ():
            self.state[replica] = lsn
        self._open: dict[int, Open] = {}
        self._loose: set[int] = set() if self.context.believed else set(range(REPLICAS))
        self._gaps: list[Gap] = []
        self._gaps_of: dict[int, list[Gap]] = {}
        self._lost: list[tuple[int, int, int]] = []
        self._used: dict[int, Place] = {}
        self._defined: set[int] = set()
        self._seen = 0
        self._regressed = -1
        self._severed: int | None = None

    def damage(self, start: int, end: int) -> None:
        """Allow sequences to jump here; the transaction that was being read has lost its end."""
        super().damage(start, end)
        self._loose = set(range(REPLICAS))
        for open_ in self._opened().values():
            self._sever(open_)
        self._open = {}
        self.state[folds.OPEN] = 0

    def rows(self, batch: Batch) -> list[Finding]:
        """Return the findings of a batch: the kernel skips ordered rows, every row where it stops is checked here.

        Where it stops at once again, the next rows are checked here as well, ever more of them: most are unusual,
        too.
        """
        table = batch.records
        columns = [table[name] for name in _COLUMNS]
        found: list[Finding] = []
        index, odd = 0, 1
        places = (table.count, batch.first_frame, batch.first_record)
        while (reached := self._in_order(index, places, columns)) < table.count:
            odd = min(2 * odd, _STRETCH) if reached == index else 1
            index = min(reached + odd, table.count)
            self._keep_open(batch)
            for row, values in enumerate(zip(*(column[reached:index] for column in columns), strict=True), reached):
                self._row(batch, row, _new(Row, values), found)
            self._store_open()
        self._seen += table.count
        self._keep_open(batch)
        return found

    def _in_order(self, index: int, places: tuple[int, int, int], columns: list[Any]) -> int:
        """Return the first row from `index` on that is not in order. Replicas whose rows were skipped may not jump
        any
        more.
        """
        reached: int = self._fold(index, *places, folds.LogRows._make(columns), self.state)
        if self._loose:
            self._loose.difference_update(columns[_REPLICA][index:reached])
        return reached

    # -- one row that is not in order ------------------------------------------------------------------------------

    def _row(self, batch: Batch, index: int, row: Row, found: list[Finding]) -> None:
        place = self.place(batch, index)
        self.types[TYPE_NAMES[row.type]] += 1
        if row.type not in REQUIRED_KEYS:
            found.append(self.wrong_type(batch, index, place, "row_type_unknown"))
        if row.header_keys & UNKNOWN_KEY:
            text = "the row's header has a key without a meaning there: some versions of the server refuse the row"
            severity = Severity.WARNING
            found.append(self.tell("reserved-bits-set", place, text, "row_header_key_unknown", severity=severity))
        required = _REQUIRED.get(row.type, 0)
        if row.body_keys & required != required or (row.header_keys | row.body_keys) & DUPLICATE_KEY:
            found += self.check_body(batch, index, place, REQUIRED_KEYS.get(row.type, ()))
        replica, lsn = row.replica_id & U64, row.lsn & U64
        if replica >= REPLICAS or lsn >= 1 << 63:
            text = f"replica id {replica} or LSN {lsn} is out of range"
            found.append(self.tell("payload-undecodable", place, text, "row_out_of_range"))
            return
        if lsn > self.state[replica]:
            self._time(row, place, found)
        self._sequence(batch, index, place, replica, lsn, found)
        self._space(batch, index, row.space_id, place)
        self._transaction(row, place, found)

    def _sequence(self, batch: Batch, index: int, place: Place, replica: int, lsn: int, found: list[Finding]) -> None:
        current = self.state[replica]
        if lsn <= current:
            found += self._regression(place, replica, lsn, current)
            return
        if lsn > current + 1:
            if replica in self._loose:
                if self.damages:
                    self._lost.append((replica, current + 1, lsn - 1))
            elif len(self._gaps) < MAX_REMEMBERED:
                severity = self._gap_severity(batch, index, replica)
                self._gaps.append(Gap(replica, current + 1, lsn - 1, place, severity))
                self._gaps_of.setdefault(replica, []).append(self._gaps[-1])
        self._loose.discard(replica)
        self.state[replica] = lsn

    def _gap_severity(self, batch: Batch, index: int, replica: int) -> Severity:
        """Grade a gap: inside one block nothing can have been cut out, as its checksum is right."""
        span = batch.records["span"]
        if index and span[index] == span[index - 1]:
            return Severity.WARNING
        begun = replica in self.context.vclock or self.state[replica] or not (self._seen or index)
        return Severity.ERROR if begun else Severity.WARNING

    def _regression(self, place: Place, replica: int, lsn: int, current: int) -> list[Finding]:
        """Report a row whose LSN does not rise, once per block."""
        filled = self._gap_of(replica, lsn)
        if filled:
            filled.found += 1
        if self._regressed == place.frame:
            return []
        self._regressed = place.frame
        facts = {"replica": replica, "lsn": lsn, "after": current}
        if filled:
            text = f"LSN {lsn} of replica {replica} stands behind LSN {current}: blocks are out of order"
            return [self.tell("sequence-regression", place, text, "lsn_not_monotone", **facts)]
        id_ = "duplicate-sequence" if lsn > self.context.vclock.get(replica, 0) else "sequence-regression"
        text = f"LSN {lsn} of replica {replica} comes again, after LSN {current}"
        return [self.tell(id_, place, text, "lsn_not_monotone", **facts)]

    def _gap_of(self, replica: int, lsn: int) -> Gap | None:
        """Find the gap that an LSN belongs to (the gaps of a replica are in rising order), or None."""
        gaps = self._gaps_of.get(replica, [])
        at = bisect_right(gaps, lsn, key=lambda gap: gap.first) - 1
        return gaps[at] if at >= 0 and lsn <= gaps[at].last else None

    def _time(self, row: Row, place: Place, found: list[Finding]) -> None:
        if not row.header_keys & _HAS_TIME:
            return
        slot = folds.TIME + row.replica_id
        if row.timestamp < self.state[slot]:
            text = f"the time of LSN {row.lsn} of replica {row.replica_id} is earlier than the one before it"
            found.append(self.tell("time-regression", place, text, "time_falls"))
        self.state[slot] = row.timestamp

    def _space(self, batch: Batch, index: int, space: int, place: Place) -> None:
        if space == SPACE:
            defined = learn_space(self.context.spaces, batch, index)
            if defined is not None and len(self._defined) < MAX_REMEMBERED:
                self._defined.add(defined)
        if not 0 <= space < 1 << 62:
            return
        self.state[folds.SPACES + (space & 4095)] = space + 1
        if space > LAST_SYSTEM_SPACE and space not in self._used and len(self._used) < MAX_REMEMBERED:
            self._used[space] = place

    # -- transactions ----------------------------------------------------------------------------------------------

    def _transaction(self, row: Row, place: Place, found: list[Finding]) -> None:
        multi = row.header_keys & _HAS_TSN
        if not multi and not self._open:  # a transaction of one row
            self.state[folds.TRANSACTIONS] += 1
            return
        replica, lsn = row.replica_id, row.lsn
        tsn = lsn - row.tsn & U64 if multi else lsn
        commit = not multi or row.flags & _COMMIT
        open_ = self._joined(replica, tsn, lsn)  # the last row has no transaction number where that is its own LSN
        if open_ is None:
            open_ = self._begin(place, replica, tsn, lsn, found)
        elif open_.frame != place.frame and not open_.crossed:
            open_.crossed = True
            text = f"the transaction {max(open_.replica, 0)}:{tsn} goes on in the block at {place.offset:#x}"
            severity = Severity.WARNING
            found.append(self.tell("incomplete-transaction", open_.place, text, "tx_crosses_block", severity=severity))
        open_.frame = place.frame
        for other in self._open.values():
            other.mixed = other.mixed or other is not open_
        if commit:
            self._commit(open_, found)

    def _joined(self, replica: int, tsn: int, lsn: int) -> Open | None:
        """Find the open transaction that a row belongs to, or None."""
        if replica == 0:
            return next((open_ for open_ in self._open.values() if open_.tsn == tsn), None)
        own, local = self._open.get(replica), self._open.get(0)
        if own and own.tsn == tsn:
            return own
        if local and local.replica < 0 and local.tsn == tsn and lsn == tsn:
            del self._open[0]
            local.replica = replica
            self._open[replica] = local
            return local
        return None

    def _begin(self, place: Place, replica: int, tsn: int, lsn: int, found: list[Finding]) -> Open:
        before = self._open.pop(replica, None)
        if before:
            found.append(self._unfinished(before, f"before the transaction {replica}:{tsn} begins"))
        open_ = Open(replica or -1, tsn, lsn, place, place.frame)
        open_.since = min([place.offset, *(other.began for other in self._open.values())])
        if replica and tsn != lsn and not self.damages:
            text = f"the transaction {replica}:{tsn} begins with LSN {lsn}: its first rows are missing"
            found.append(self.tell("incomplete-transaction", place, text, "tx_head_missing"))
        self._open[replica] = open_
        return open_

    def _commit(self, open_: Open, found: list[Finding]) -> None:
        key = max(open_.replica, 0)
        del self._open[key]
        self.state[folds.TRANSACTIONS] += 1
        if open_.mixed:
            text = f"rows of other transactions stand between those of {key}:{open_.tsn}"
            found.append(self.tell("incomplete-transaction", open_.place, text, "tx_mixed"))
        if open_.replica < 0 and open_.tsn != open_.first and not self.damages:
            text = f"a transaction of local rows has the number {open_.tsn}, its first LSN is {open_.first}"
            found.append(self.tell("incomplete-transaction", open_.place, text, "tx_head_missing"))

    def _unfinished(self, open_: Open, when: str) -> Finding:
        self._sever(open_)
        text = f"the transaction {max(open_.replica, 0)}:{open_.tsn} has no commit row {when}"
        return self.tell("incomplete-transaction", open_.place, text, "tx_not_finished")

    def _sever(self, open_: Open) -> None:
        """Move the durable end before a transaction that never ends, and before those that are open with it."""
        if self._severed is None or open_.began < self._severed:
            self._severed = open_.began

    # -- the open transaction, here and in the kernel's state --------------------------------------------------------

    def _opened(self) -> dict[int, Open]:
        return dict(self._open) if self.state[folds.OPEN] else {}

    def _keep_open(self, batch: Batch) -> None:
        """Take over the transaction that the kernel has open, while the batch can still locate it."""
        state = self.state
        if state[folds.OPEN] == 0:
            self._open = {}
        if state[folds.OPEN] != 1:
            return
        record, replica = state[folds.OPEN_RECORD], state[folds.OPEN_REPLICA]
        known = next(iter(self._open.values()), None)
        if known and known.place.record == record:
            known.replica = replica
        else:
            known = Open(
                replica, state[folds.OPEN_TSN], state[folds.OPEN_FIRST], self.place(batch, record - batch.first_record),
                state[folds.OPEN_FRAME],
            )  # fmt: skip
        self._open = {max(replica, 0): known}

    def _store_open(self) -> None:
        state = self.state
        state[folds.OPEN] = min(len(self._open), 2)
        if len(self._open) == 1:
            open_ = next(iter(self._open.values()))
            if open_.tsn >= 1 << 63 or open_.mixed:
                state[folds.OPEN] = 2
                return
            state[folds.OPEN_REPLICA], state[folds.OPEN_TSN] = open_.replica, open_.tsn
            state[folds.OPEN_FRAME], state[folds.OPEN_FIRST] = open_.frame, open_.first
            state[folds.OPEN_RECORD] = open_.place.record

    # -- the end ---------------------------------------------------------------------------------------------------

    def end(self, tail: Tail) -> list[Finding]:
        """Report gaps that nothing filled, and transactions that never end."""
        found = [self._gap(gap) for gap in self._gaps if gap.found <= gap.last - gap.first]
        for open_ in self._opened().values():
            unfinished = self._unfinished(open_, "before the end of the file")
            found.append(unfinished if tail.closed else unfinished.raised_to(Severity.NOTE))
        return found

    def _gap(self, gap: Gap) -> Finding:
        missing = ranges((gap.first, gap.last))
        text = f"LSN {missing} of replica {gap.replica} {'are' if gap.last > gap.first else 'is'} missing"
        facts = {"replica": gap.replica, "first": gap.first, "last": gap.last}
        return self.tell("gap-in-sequence", gap.place, text, "lsn_gap", severity=gap.severity, **facts)

    def verdict(self, tail: Tail, findings: list[Finding]) -> Verdict:
        """Combine counts and the facts for the rules of a set."""
        types = self.types.copy()
        for row_type in RowType:
            types[row_type.name] += self.state[folds.TYPES + row_type]
        vclock = {replica: lsn for replica in range(REPLICAS) if (lsn := self.state[replica])}
        lost = (*self._lost, *((gap.replica, gap.first, gap.last) for gap in self._gaps if not gap.found))
        facts = LogFacts(vclock, self._seen, self._used, frozenset(self._defined), lost, bool(self.damages))
        before_damage = self._severed is not None and (tail.first_damage is None or self._severed < tail.first_damage)
        details = {"vclock": {str(replica): lsn for replica, lsn in vclock.items()}}
        return Verdict(
            transactions=self.state[folds.TRANSACTIONS],
            record_types={name: count for name, count in types.items() if count},
            findings=tuple(findings),
            durable_end=self._severed if before_damage else None,
            facts=facts,
            details=details | ({"lost": [list(one) for one in lost]} if lost else {}),
        )
