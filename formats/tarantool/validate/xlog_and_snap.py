"""Validate write-ahead logs (.xlog) and snapshots (.snap): LSNs, times, transactions, order of spaces and keys.

Source: `docs/spec/tarantool.md#transactions`, `#log-sets`, `#snapshots`, `#validation`.
"""

from __future__ import annotations

from array import array
from bisect import bisect_right
from collections.abc import Iterator
from typing import Any, NamedTuple

import msgspec

from binlogtool.findings import Finding, Severity, make_finding
from binlogtool.format_api.format import FileTail, ValidationResult
from binlogtool.format_api.layout import U64, Batch, LogFileLayout
from binlogtool.formats.tarantool.codes import (
    BOX_SYSTEM_ID_MAX,
    TYPE_NAMES,
    VCLOCK_MAX,
    BodyKey,
    HeaderKey,
    RowFlag,
    RowType,
)
from binlogtool.formats.tarantool.decode import (
    BOX_SPACE_ID,
    cache_results_for_short_bodies,
    decode_tree,
    read_body_bytes,
    store_space_name_from_row,
)
from binlogtool.formats.tarantool.msgpack.decode_values import to_python
from binlogtool.formats.tarantool.rows.parse_rows import DUPLICATE_KEY, UNKNOWN_KEY
from binlogtool.formats.tarantool.validate import base_validator
from binlogtool.formats.tarantool.validate.base_validator import (
    REQUIRED_KEYS,
    RowLocation,
    TarantoolValidator,
    create_kernel_state,
    format_range,
)
from binlogtool.limits import Limits

# --- Validator of a write-ahead log (.xlog) ---

_REQUIRED = {row_type: sum(1 << key for key in keys) for row_type, keys in REQUIRED_KEYS.items()}
_COMMIT_FLAG, _HAS_TSN, _HAS_TIME = RowFlag.COMMIT.value, 1 << HeaderKey.TSN, 1 << HeaderKey.TIMESTAMP
_new_tuple = tuple.__new__
_MAX_CHECKED_RUN = 64
"""Maximum number of rows that are checked one by one before the kernel is tried again."""
MAX_REMEMBERED_IN_XLOG = 10_000
"""Maximum number of gaps, and of spaces, that one validator remembers."""


class LogRow(NamedTuple):
    """Values of one row that are checked, under the scanner's column names."""

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


_COLUMNS = LogRow._fields
_REPLICA_COLUMN = _COLUMNS.index("replica_id")


class OpenTransaction(msgspec.Struct):
    """A transaction that has begun and not ended.

    Attributes:
        replica: -1 while it has local rows only.
        first: LSN of its first row.
        frame: index of the block of its last row.
        crossed: a continuation in another block was reported.
        mixed: rows of other transactions are between its rows.
        since: offset since which transactions have been open without a break, up to this one; -1 = its own start.
    """

    replica: int
    tsn: int
    first: int
    location: RowLocation
    frame: int
    crossed: bool = False
    mixed: bool = False
    since: int = -1

    @property
    def last_closed_offset(self) -> int:
        """Last offset before the transaction at which no transaction was open."""
        return self.location.offset if self.since < 0 else self.since


class LsnGap(msgspec.Struct):
    """LSNs `[first, last]` of a replica that were skipped at a location.

    `filled`: number of these LSNs that came later.
    """

    replica: int
    first: int
    last: int
    location: RowLocation
    severity: Severity
    filled: int = 0


class XlogFacts(msgspec.Struct, frozen=True):
    """Facts about a log for the rules of a log set.

    Attributes:
        vclock: state after its last row.
        used: space id -> location of the first row.
        defined: ids named by its own `_space` rows.
        lost: LSN ranges that are known to be lost: (replica, first, last).
    """

    vclock: dict[int, int]
    rows: int
    used: dict[int, RowLocation]
    defined: frozenset[int]
    lost: tuple[tuple[int, int, int], ...]
    damaged: bool


class XlogValidator(TarantoolValidator):
    """Validator of the rows of one log."""

    def __init__(self, layout: LogFileLayout, compile_: Any, limits: Limits) -> None:
        super().__init__(layout, compile_, limits)
        self._skip_rows = compile_(base_validator.skip_ordered_log_rows)
        self.state = create_kernel_state(compile_)
        for replica, lsn in self.context.vclock.items() if self.context.has_valid_vclock else ():
            self.state[replica] = lsn
        self._open_transactions: dict[int, OpenTransaction] = {}
        self._replicas_that_may_jump: set[int] = set() if self.context.has_valid_vclock else set(range(VCLOCK_MAX))
        self._gaps: list[LsnGap] = []
        self._gaps_by_replica: dict[int, list[LsnGap]] = {}
        self._lost_ranges: list[tuple[int, int, int]] = []
        self._used_spaces: dict[int, RowLocation] = {}
        self._defined_spaces: set[int] = set()
        self._row_count = 0
        self._last_regressed_block = -1
        self._durable_limit: int | None = None

    def skip_damage(self, start: int, end: int) -> None:
        """Handle damage: sequences may jump here, and the transaction being read has lost its end."""
        super().skip_damage(start, end)
        self._replicas_that_may_jump = set(range(VCLOCK_MAX))
        for transaction in self._get_open_transactions().values():
            self._limit_durable_end(transaction)
        self._open_transactions = {}
        self.state[base_validator.OPEN_COUNT] = 0

    def check_rows(self, batch: Batch) -> list[Finding]:
        """Return the findings of a batch: the kernel skips ordered rows, the rows at which it stops are checked here.

        If it stops again immediately, a growing number of rows is checked here, because most of them are unusual too.
        """
        table = batch.records
        columns = [table[name] for name in _COLUMNS]
        findings: list[Finding] = []
        index, run_length = 0, 1
        bounds = (table.count, batch.first_frame, batch.first_record)
        while (reached := self._skip_ordered_rows(index, bounds, columns)) < table.count:
            run_length = min(2 * run_length, _MAX_CHECKED_RUN) if reached == index else 1
            index = min(reached + run_length, table.count)
            self._load_open_transaction(batch)
            for row, values in enumerate(zip(*(column[reached:index] for column in columns), strict=True), reached):
                self._check_row(batch, row, _new_tuple(LogRow, values), findings)
            self._store_open_transaction()
        self._row_count += table.count
        self._load_open_transaction(batch)
        return findings

    def _skip_ordered_rows(self, index: int, bounds: tuple[int, int, int], columns: list[Any]) -> int:
        """Return the first row from `index` on that is not in order.

        LSNs of replicas whose rows were skipped may no longer jump.
        """
        reached: int = self._skip_rows(index, *bounds, base_validator.LogRowColumns._make(columns), self.state)
        if self._replicas_that_may_jump:
            self._replicas_that_may_jump.difference_update(columns[_REPLICA_COLUMN][index:reached])
        return reached

    # -- row out of order ------------------------------------------------------------------------------------------

    def _check_row(self, batch: Batch, index: int, row: LogRow, findings: list[Finding]) -> None:
        location = self.locate_row(batch, index)
        self.type_counts[TYPE_NAMES[row.type]] += 1
        if row.type not in REQUIRED_KEYS:
            findings.append(self.report_wrong_type(batch, index, location, "row_type_unknown"))
        if row.header_keys & UNKNOWN_KEY:
            text = "the row's header has an unknown key: some versions of the server refuse the row"
            severity = Severity.WARNING
            findings.append(
                self.create_finding("reserved-bits-set", location, text, "row_header_key_unknown", severity=severity)
            )
        required = _REQUIRED.get(row.type, 0)
        if row.body_keys & required != required or (row.header_keys | row.body_keys) & DUPLICATE_KEY:
            findings += self.check_body_keys(batch, index, location, REQUIRED_KEYS.get(row.type, ()))
        replica, lsn = row.replica_id & U64, row.lsn & U64
        if replica >= VCLOCK_MAX or lsn >= 1 << 63:
            text = f"replica id {replica} or LSN {lsn} is out of range"
            findings.append(self.create_finding("payload-undecodable", location, text, "row_out_of_range"))
            return
        if lsn > self.state[replica]:
            self._check_time(row, location, findings)
        self._check_lsn(batch, index, location, replica, lsn, findings)
        self._record_used_or_defined_space(batch, index, row.space_id, location)
        self._track_transaction(row, location, findings)

    def _check_lsn(
        self, batch: Batch, index: int, location: RowLocation, replica: int, lsn: int, findings: list[Finding]
    ) -> None:
        current = self.state[replica]
        if lsn <= current:
            findings += self._report_regression(location, replica, lsn, current)
            return
        if lsn > current + 1:
            if replica in self._replicas_that_may_jump:
                if self.damaged_ranges:
                    self._lost_ranges.append((replica, current + 1, lsn - 1))
            elif len(self._gaps) < MAX_REMEMBERED_IN_XLOG:
                severity = self._grade_gap(batch, index, replica)
                self._gaps.append(LsnGap(replica, current + 1, lsn - 1, location, severity))
                self._gaps_by_replica.setdefault(replica, []).append(self._gaps[-1])
        self._replicas_that_may_jump.discard(replica)
        self.state[replica] = lsn

    def _grade_gap(self, batch: Batch, index: int, replica: int) -> Severity:
        """Choose the severity of an LSN gap: a warning inside one block, whose valid CRC proves that nothing was
        removed.
        """
        span = batch.records["span"]
        if index and span[index] == span[index - 1]:
            return Severity.WARNING
        has_begun = replica in self.context.vclock or self.state[replica] or not (self._row_count or index)
        return Severity.ERROR if has_begun else Severity.WARNING

    def _report_regression(self, location: RowLocation, replica: int, lsn: int, current: int) -> list[Finding]:
        """Report a row whose LSN does not rise, once per block."""
        gap = self._find_gap_with_lsn(replica, lsn)
        if gap:
            gap.filled += 1
        if self._last_regressed_block == location.frame:
            return []
        self._last_regressed_block = location.frame
        facts = {"replica": replica, "lsn": lsn, "after": current}
        if gap:
            text = f"LSN {lsn} of replica {replica} comes after LSN {current}: blocks are out of order"
            return [self.create_finding("sequence-regression", location, text, "lsn_not_monotone", **facts)]
        id_ = "duplicate-sequence" if lsn > self.context.vclock.get(replica, 0) else "sequence-regression"
        text = f"LSN {lsn} of replica {replica} is repeated, after LSN {current}"
        return [self.create_finding(id_, location, text, "lsn_not_monotone", **facts)]

    def _find_gap_with_lsn(self, replica: int, lsn: int) -> LsnGap | None:
        """Find the gap that an LSN belongs to (the gaps of a replica are in rising order), or None."""
        gaps = self._gaps_by_replica.get(replica, [])
        position = bisect_right(gaps, lsn, key=lambda gap: gap.first) - 1
        return gaps[position] if position >= 0 and lsn <= gaps[position].last else None

    def _check_time(self, row: LogRow, location: RowLocation, findings: list[Finding]) -> None:
        if not row.header_keys & _HAS_TIME:
            return
        slot = base_validator.TIME_SLOTS + row.replica_id
        if row.timestamp < self.state[slot]:
            text = f"the time of LSN {row.lsn} of replica {row.replica_id} is earlier than the one before it"
            findings.append(self.create_finding("time-regression", location, text, "time_falls"))
        self.state[slot] = row.timestamp

    def _record_used_or_defined_space(self, batch: Batch, index: int, space: int, location: RowLocation) -> None:
        if space == BOX_SPACE_ID:
            defined = store_space_name_from_row(self.context.spaces, batch, index)
            if defined is not None and len(self._defined_spaces) < MAX_REMEMBERED_IN_XLOG:
                self._defined_spaces.add(defined)
        if not 0 <= space < 1 << 62:
            return
        self.state[base_validator.SEEN_SPACES + (space & 4095)] = space + 1
        if (
            space > BOX_SYSTEM_ID_MAX
            and space not in self._used_spaces
            and len(self._used_spaces) < MAX_REMEMBERED_IN_XLOG
        ):
            self._used_spaces[space] = location

    # -- transactions ----------------------------------------------------------------------------------------------

    def _track_transaction(self, row: LogRow, location: RowLocation, findings: list[Finding]) -> None:
        """Add a row to its open transaction, begin one, or commit it; report what is wrong."""
        multi = row.header_keys & _HAS_TSN
        if not multi and not self._open_transactions:  # a transaction of one row
            self.state[base_validator.TRANSACTIONS] += 1
            return
        replica, lsn = row.replica_id, row.lsn
        tsn = lsn - row.tsn & U64 if multi else lsn
        commit = not multi or row.flags & _COMMIT_FLAG
        transaction = self._find_or_adopt_open_transaction(
            replica, tsn, lsn
        )  # the last row has no transaction number where that is its own LSN
        if transaction is None:
            transaction = self._begin_transaction(location, replica, tsn, lsn, findings)
        elif transaction.frame != location.frame and not transaction.crossed:
            transaction.crossed = True
            text = f"the transaction {max(transaction.replica, 0)}:{tsn} continues in the block at {location.offset:#x}"
            severity = Severity.WARNING
            findings.append(
                self.create_finding(
                    "incomplete-transaction", transaction.location, text, "tx_crosses_block", severity=severity
                )
            )
        transaction.frame = location.frame
        for other in self._open_transactions.values():
            other.mixed = other.mixed or other is not transaction
        if commit:
            self._commit_transaction(transaction, findings)

    def _find_or_adopt_open_transaction(self, replica: int, tsn: int, lsn: int) -> OpenTransaction | None:
        """Return the open transaction that a row belongs to, or None; a transaction of local rows becomes one of the
        row's replica.
        """
        if replica == 0:
            return next((open_ for open_ in self._open_transactions.values() if open_.tsn == tsn), None)
        own, local = self._open_transactions.get(replica), self._open_transactions.get(0)
        if own and own.tsn == tsn:
            return own
        if local and local.replica < 0 and local.tsn == tsn and lsn == tsn:
            del self._open_transactions[0]
            local.replica = replica
            self._open_transactions[replica] = local
            return local
        return None

    def _begin_transaction(
        self, location: RowLocation, replica: int, tsn: int, lsn: int, findings: list[Finding]
    ) -> OpenTransaction:
        before = self._open_transactions.pop(replica, None)
        if before:
            findings.append(self._report_unfinished(before, f"before the transaction {replica}:{tsn} begins"))
        transaction = OpenTransaction(replica or -1, tsn, lsn, location, location.frame)
        transaction.since = min(
            [location.offset, *(other.last_closed_offset for other in self._open_transactions.values())]
        )
        if replica and tsn != lsn and not self.damaged_ranges:
            text = f"the transaction {replica}:{tsn} begins with LSN {lsn}: its first rows are missing"
            findings.append(self.create_finding("incomplete-transaction", location, text, "tx_head_missing"))
        self._open_transactions[replica] = transaction
        return transaction

    def _commit_transaction(self, transaction: OpenTransaction, findings: list[Finding]) -> None:
        key = max(transaction.replica, 0)
        del self._open_transactions[key]
        self.state[base_validator.TRANSACTIONS] += 1
        if transaction.mixed:
            text = f"rows of other transactions are between those of {key}:{transaction.tsn}"
            findings.append(self.create_finding("incomplete-transaction", transaction.location, text, "tx_mixed"))
        if transaction.replica < 0 and transaction.tsn != transaction.first and not self.damaged_ranges:
            text = f"a transaction of local rows has the number {transaction.tsn}, its first LSN is {transaction.first}"
            findings.append(
                self.create_finding("incomplete-transaction", transaction.location, text, "tx_head_missing")
            )

    def _report_unfinished(self, transaction: OpenTransaction, end_text: str) -> Finding:
        self._limit_durable_end(transaction)
        text = f"the transaction {max(transaction.replica, 0)}:{transaction.tsn} has no commit row {end_text}"
        return self.create_finding("incomplete-transaction", transaction.location, text, "tx_not_finished")

    def _limit_durable_end(self, transaction: OpenTransaction) -> None:
        """Move the durable end before a transaction that never ends, and before those open at the same time."""
        if self._durable_limit is None or transaction.last_closed_offset < self._durable_limit:
            self._durable_limit = transaction.last_closed_offset

    # -- open transaction --------------------------------------------------------------------------------------------

    def _get_open_transactions(self) -> dict[int, OpenTransaction]:
        return dict(self._open_transactions) if self.state[base_validator.OPEN_COUNT] else {}

    def _load_open_transaction(self, batch: Batch) -> None:
        """Copy the open transaction from the kernel's state while the batch can still locate it."""
        state = self.state
        if state[base_validator.OPEN_COUNT] == 0:
            self._open_transactions = {}
        if state[base_validator.OPEN_COUNT] != 1:
            return
        record, replica = state[base_validator.OPEN_RECORD], state[base_validator.OPEN_REPLICA]
        transaction = next(iter(self._open_transactions.values()), None)
        if transaction and transaction.location.record == record:
            transaction.replica = replica
        else:
            transaction = OpenTransaction(
                replica, state[base_validator.OPEN_TSN], state[base_validator.OPEN_FIRST_LSN], self.locate_row(batch,
                record - batch.first_record),
                state[base_validator.OPEN_FRAME],
            )  # fmt: skip
        self._open_transactions = {max(replica, 0): transaction}

    def _store_open_transaction(self) -> None:
        state = self.state
        state[base_validator.OPEN_COUNT] = min(len(self._open_transactions), 2)
        if len(self._open_transactions) == 1:
            transaction = next(iter(self._open_transactions.values()))
            if transaction.tsn >= 1 << 63 or transaction.mixed:
                state[base_validator.OPEN_COUNT] = 2
                return
            state[base_validator.OPEN_REPLICA], state[base_validator.OPEN_TSN] = transaction.replica, transaction.tsn
            state[base_validator.OPEN_FRAME], state[base_validator.OPEN_FIRST_LSN] = (
                transaction.frame,
                transaction.first,
            )
            state[base_validator.OPEN_RECORD] = transaction.location.record

    # -- the end ---------------------------------------------------------------------------------------------------

    def check_end(self, tail: FileTail) -> list[Finding]:
        """Report gaps that were not filled, and transactions that never end."""
        findings = [self._report_gap(gap) for gap in self._gaps if gap.filled <= gap.last - gap.first]
        for transaction in self._get_open_transactions().values():
            unfinished = self._report_unfinished(transaction, "before the end of the file")
            findings.append(unfinished if tail.closed else unfinished.copy_with_severity(Severity.NOTE))
        return findings

    def _report_gap(self, gap: LsnGap) -> Finding:
        missing = format_range((gap.first, gap.last))
        text = f"LSN {missing} of replica {gap.replica} {'are' if gap.last > gap.first else 'is'} missing"
        facts = {"replica": gap.replica, "first": gap.first, "last": gap.last}
        return self.create_finding("gap-in-sequence", gap.location, text, "lsn_gap", severity=gap.severity, **facts)

    def create_validation_result(self, tail: FileTail, findings: list[Finding]) -> ValidationResult:
        """Combine counts and the facts for the rules of a log set into a result."""
        types = self.type_counts.copy()
        for row_type in RowType:
            types[row_type.name] += self.state[base_validator.TYPE_COUNTS + row_type]
        vclock = {replica: lsn for replica in range(VCLOCK_MAX) if (lsn := self.state[replica])}
        lost = (*self._lost_ranges, *((gap.replica, gap.first, gap.last) for gap in self._gaps if not gap.filled))
        facts = XlogFacts(
            vclock, self._row_count, self._used_spaces, frozenset(self._defined_spaces), lost, bool(self.damaged_ranges)
        )
        before_damage = self._durable_limit is not None and (
            tail.first_damage is None or self._durable_limit < tail.first_damage
        )
        details = {"vclock": {str(replica): lsn for replica, lsn in vclock.items()}}
        return ValidationResult(
            transactions=self.state[base_validator.TRANSACTIONS],
            record_types={name: count for name, count in types.items() if count},
            findings=tuple(findings),
            durable_end=self._durable_limit if before_damage else None,
            facts=facts,
            details=details | ({"lost": [list(one) for one in lost]} if lost else {}),
        )


# --- Validator of a checkpoint (.snap) ---

_ALLOWED_TYPES = (RowType.INSERT, RowType.RAFT, RowType.RAFT_PROMOTE)
_BOX_INDEX_ID = 288
_BOX_SCHEMA_ID = 272
_INTEGER_KEY, _STRING_KEY = 0, 1
_KEY_KINDS = {
    "unsigned": _INTEGER_KEY, "num": _INTEGER_KEY, "uint": _INTEGER_KEY, "integer": _INTEGER_KEY, "int": _INTEGER_KEY,
    "string": _STRING_KEY, "str": _STRING_KEY,
}  # fmt: skip
_SYSTEM_KEYS: dict[int, tuple[int, ...]] = {
    272: (0, _STRING_KEY), 276: (0, _INTEGER_KEY), 280: (0, _INTEGER_KEY), 284: (0, _INTEGER_KEY),
    288: (0, _INTEGER_KEY, 1, _INTEGER_KEY),
}  # fmt: skip
"""Primary keys of the system spaces whose rows come before those of `_index`: pairs of field and kind."""

MAX_REMEMBERED_IN_SNAP = 100_000


class SnapFacts(msgspec.Struct, frozen=True):
    """Facts about a snapshot for the rules of a log set: ids of the spaces it defines, and whether it is complete."""

    defined: frozenset[int]
    whole: bool


class SnapValidator(TarantoolValidator):
    """Validator of the rows of one snapshot."""

    def __init__(self, layout: LogFileLayout, compile_: Any, limits: Limits) -> None:
        super().__init__(layout, compile_, limits)
        self._skip_rows = compile_(base_validator.skip_ordered_snapshot_rows)
        self._find_falling_key = compile_(base_validator.find_unordered_key)
        self._is_compiled = self._skip_rows is not base_validator.skip_ordered_snapshot_rows
        self.state = create_kernel_state(compile_)
        self.state[base_validator.LSN_SLOTS] = self.state[base_validator.LAST_SPACE] = -1
        self._seen_spaces: set[int] = set()
        self._primary_keys: dict[int, Any] = {space: self._pack_parts(parts) for space, parts in _SYSTEM_KEYS.items()}
        self._defined_spaces: set[int] = set()
        self._last_tuple = b""
        self._last_reported_block = -1
        self._gap: tuple[RowLocation, int, int] | None = None
        self._may_jump = False
        self._row_count = 0

    def _pack_parts(self, parts: tuple[int, ...]) -> Any:
        return array("q", parts) if self._is_compiled else parts

    def skip_damage(self, start: int, end: int) -> None:
        """Handle damage: LSNs and spaces may be missing here."""
        super().skip_damage(start, end)
        self._may_jump = True
        self._last_tuple = b""

    def check_rows(self, batch: Batch) -> list[Finding]:
        """Return the findings of a batch: the kernel skips runs of one space, rows between runs are checked here."""
        table = batch.records
        names = ("type", "replica_id", "lsn", "header_keys", "body_keys", "space_id")
        columns = [table[name] for name in names]
        findings: list[Finding] = []
        index = run_start = 0
        while True:
            index = self._skip_rows(index, table.count, *columns, self.state)
            findings += self._check_key_order(batch, run_start, index)
            run_start = index
            if index >= table.count:
                break
            self._check_row(batch, index, findings)
            index += 1
        self._row_count += table.count
        return findings

    # -- row out of order -----------------------------------------------------------------------------------

    def _check_row(self, batch: Batch, index: int, findings: list[Finding]) -> None:
        table = batch.records
        location = self.locate_row(batch, index)
        row_type, space = int(table["type"][index]), int(table["space_id"][index])
        self.type_counts[TYPE_NAMES[row_type]] += 1
        if row_type not in _ALLOWED_TYPES:
            findings.append(self.report_wrong_type(batch, index, location, "snap_row_not_insert"))
        findings += self.check_body_keys(batch, index, location, REQUIRED_KEYS.get(row_type, ()))
        self._check_row_number(location, int(table["lsn"][index]), findings)
        if row_type in _ALLOWED_TYPES and space >= 0 and space != self.state[base_validator.LAST_SPACE]:
            findings += self._check_space_order(location, space)

    def _check_row_number(self, location: RowLocation, lsn: int, findings: list[Finding]) -> None:
        """Check the number of a row: rows are numbered from 0 (by 1.6 servers from 1)."""
        expected = self.state[base_validator.LSN_SLOTS] + 1
        if lsn == expected or self._may_jump or (expected == 0 and lsn == 1):
            self._may_jump = False
            self.state[base_validator.LSN_SLOTS] = max(lsn, self.state[base_validator.LSN_SLOTS])
        elif lsn > expected:
            self._gap = self._gap or (location, expected, lsn - 1)
            self.state[base_validator.LSN_SLOTS] = lsn
        else:
            self._gap = None
            findings += self._report_unsorted(location, f"row number {lsn} comes after {expected - 1}")

    def _report_unsorted(self, location: RowLocation, text: str) -> list[Finding]:
        """Report rows that are out of order, once per block."""
        if self._last_reported_block == location.frame:
            return []
        self._last_reported_block = location.frame
        return [self.create_finding("sequence-regression", location, text, "snap_not_sorted")]

    def _check_space_order(self, location: RowLocation, space: int) -> Iterator[Finding]:
        """Check the order of spaces at the first row of a new space."""
        before = self.state[base_validator.LAST_SPACE]
        self.state[base_validator.LAST_SPACE] = space
        self._last_tuple = b""
        if (
            not self._row_count
            and before < 0
            and location.record == 0
            and space != _BOX_SCHEMA_ID
            and not self.damaged_ranges
        ):
            text = f"the first row belongs to space {space}, not to _schema"
            yield self.create_finding("payload-undecodable", location, text, "snap_without_schema")
        if space in self._seen_spaces:
            yield from self._report_unsorted(location, f"rows of space {space} are in more than one place")
        elif space <= BOX_SYSTEM_ID_MAX and before > space:
            yield from self._report_unsorted(
                location, f"rows of system space {space} come after those of space {before}"
            )
        if len(self._seen_spaces) < MAX_REMEMBERED_IN_SNAP:
            self._seen_spaces.add(space)

    def _store_space_definition(self, batch: Batch, index: int, space: int) -> None:
        """Store the space or the primary key that a row of `_space` or `_index` defines."""
        if space == BOX_SPACE_ID:
            defined = store_space_name_from_row(self.context.spaces, batch, index)
            if defined is not None and len(self._defined_spaces) < MAX_REMEMBERED_IN_SNAP:
                self._defined_spaces.add(defined)
        if space == _BOX_INDEX_ID:
            self._store_primary_key(batch, index)

    def _store_primary_key(self, batch: Batch, index: int) -> None:
        """Store the primary key of a space if it is a tree over plain types."""
        body = read_body_bytes(batch, index)
        definition = None if body is None else _decode_primary_key(body)
        if definition is None:
            return
        space, parts = definition
        if parts and len(self._primary_keys) < MAX_REMEMBERED_IN_SNAP:
            self._primary_keys[space] = self._pack_parts(parts)
        else:
            self._primary_keys.pop(space, None)

    # -- the order of keys inside a space --------------------------------------------------------------------------

    def _check_key_order(self, batch: Batch, begin: int, end: int) -> list[Finding]:
        """Report rows of `[begin, end)`, all of one space, whose keys are not in ascending order."""
        table = batch.records
        if begin < end and int(table["space_id"][begin]) != self.state[base_validator.LAST_SPACE]:
            begin += 1
        if begin >= end:
            return []
        findings: list[Finding] = []
        if self.state[base_validator.LAST_SPACE] in (BOX_SPACE_ID, _BOX_INDEX_ID):
            for index in range(begin, end):
                self._store_space_definition(batch, index, self.state[base_validator.LAST_SPACE])
        parts = self._primary_keys.get(self.state[base_validator.LAST_SPACE])
        if parts is None:
            return []
        tuples, ends = table["tuple"], table["end"]
        if self._last_tuple and int(tuples[begin]) >= 0:
            findings += self._check_order_across_batches(batch, begin, parts)
        falling_row = self._find_falling_key(begin, end, batch.arena, tuples, ends, parts, len(parts) // 2)
        if falling_row < end:
            text = f"the key of row {batch.first_record + falling_row} is less than the one before it"
            findings += self._report_unsorted(
                self.locate_row(batch, falling_row), f"{text} (space {self.state[base_validator.LAST_SPACE]})"
            )
        last = int(tuples[end - 1])
        self._last_tuple = bytes(batch.arena[last : int(ends[end - 1])]) if last >= 0 else b""
        return findings

    def _check_order_across_batches(self, batch: Batch, begin: int, parts: Any) -> list[Finding]:
        """Compare the first key of a batch with the last key of the previous batch."""
        start, end = int(batch.records["tuple"][begin]), int(batch.records["end"][begin])
        both = self._last_tuple + bytes(batch.arena[start:end])
        size = len(self._last_tuple)
        if base_validator.find_unordered_key(0, 2, both, (0, size), (size, len(both)), parts, len(parts) // 2) == 2:
            return []
        text = f"the key of row {batch.first_record + begin} is less than the one before it"
        return self._report_unsorted(self.locate_row(batch, begin), text)

    # -- the end ---------------------------------------------------------------------------------------------------

    def check_end(self, tail: FileTail) -> list[Finding]:
        """Report missing rows."""
        findings = []
        if self._gap:
            location, first, last = self._gap
            text = f"rows {first} to {last} of the snapshot are missing"
            findings.append(self.create_finding("gap-in-sequence", location, text, "lsn_gap", first=first, last=last))
        if not self._row_count and tail.closed and not self.damaged_ranges:
            findings.append(
                make_finding("payload-undecodable", tail.end, 0, "no rows at all", diagnosis="snap_without_schema")
            )
        return findings

    def create_validation_result(self, tail: FileTail, findings: list[Finding]) -> ValidationResult:
        """Combine counts and the facts for the rules of a log set into a result."""
        types = self.type_counts.copy()
        types[RowType.INSERT.name] += self.state[base_validator.TYPE_COUNTS + RowType.INSERT]
        is_complete = (
            bool(tail.closed) and not self.damaged_ranges and all(f.severity < Severity.ERROR for f in findings)
        )
        return ValidationResult(
            self._row_count,
            {name: count for name, count in types.items() if count},
            tuple(findings),
            facts=SnapFacts(frozenset(self._defined_spaces), is_complete),
        )


@cache_results_for_short_bodies
def _decode_primary_key(body: bytes) -> tuple[int, tuple[int, ...] | None] | None:
    """Decode the body of a row of `_index`.

    Returns:
        (space, parts of its primary key, None if not plain); None if the row describes another index.
    """
    tree = decode_tree(body)
    values = tree.get(BodyKey.TUPLE) if tree else None
    row = to_python(values) if values else None
    if not isinstance(row, list) or len(row) < 6 or row[1] != 0 or type(row[0]) is not int:
        return None
    return row[0], decode_field_and_kind_pairs(row) if str(row[3]).lower() == "tree" else None


def decode_field_and_kind_pairs(row: list[Any]) -> tuple[int, ...] | None:
    """Decode the parts of an `_index` row to (field, kind, …); None if the order of a part's type is not plain.

    Parts are [[field, type], …], [{"field": …, "type": …, "collation": …}, …], or, before 1.7, the count and then field
    and type in turn.
    """
    stored_parts = row[5] if isinstance(row[5], list) else [row[i : i + 2] for i in range(6, len(row) - 1, 2)]
    parts: list[int] = []
    for part in stored_parts:
        number, kind = _parse_key_part(part)
        if type(number) is not int or number < 0 or kind not in _KEY_KINDS:
            return None
        parts += (number, _KEY_KINDS[kind])
    return tuple(parts) or None


def _parse_key_part(part: Any) -> tuple[Any, str | None]:
    if isinstance(part, dict):
        plain_order = "collation" not in part and part.get("sort_order", "asc") == "asc" and "path" not in part
        return part.get("field"), str(part.get("type")).lower() if plain_order else None
    if isinstance(part, list) and len(part) == 2:
        return part[0], str(part[1]).lower()
    return None, None
