"""Validator of one log file: table ids, TIDs, payloads and the closing ADD_CACHE, in file order.

Source: `docs/spec/manticore.md#replay-of-a-file`, `#invariants`.
"""

from __future__ import annotations

from array import array
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any

from construct import ConstructError

from binlogtool.findings import Finding, Severity, make_finding
from binlogtool.formats.columns import to_int_list
from binlogtool.formats.heads import is_header_correction
from binlogtool.formats.judging import FileTail, ValidationResult, Validator
from binlogtool.formats.layouts import Batch, Kernel, LogFileLayout
from binlogtool.formats.manticore import schema
from binlogtool.formats.manticore.judge import folds
from binlogtool.formats.manticore.judge.meta import ManticoreMetaValidator
from binlogtool.formats.manticore.judge.tables import ManticoreLogFacts, ManticoreTableState
from binlogtool.formats.manticore.layout import ManticoreLogContext, MetaContext
from binlogtool.formats.manticore.meaning import (
    U64,
    decode_text,
    parse_table_name,
    report_too_large,
    report_undecodable,
)
from binlogtool.formats.manticore.payloads.sphinx4 import LAST_LOW_VERSION
from binlogtool.formats.manticore.payloads.walk import skip_payload
from binlogtool.formats.manticore.payloads.zint import WideZint, read_zint
from binlogtool.formats.manticore.schema import OldOp, PayloadOp
from binlogtool.limits import Limits

CHECKSUM_STATE_ABSENT = 2
_COMMIT_FAULTS = (
    "",
    "its row vector cannot be divided by the number of rows",
    "it does not store one document per row",
    "a checkpoint lies outside the dictionary",
)
MAX_TABLES = 100_000
"""Tables of one file that are remembered."""


@dataclass(slots=True)
class ManticoreLogValidator:
    """Validator of one log file (implements `formats.judging.Validator`).

    Attributes:
        tables: by id.
        op_counts: transactions by operation, of all batches before the current one.
        names: table names -> id.
        damage_count: damaged ranges so far.
        blocked_offset: first transaction at which the server cannot continue.
        is_refused: TIDs or times make the server refuse the file.
        first_damage: start of the first damaged range.
        cache_end: end of the ADD_CACHE, if it is the last transaction so far.
        counts_before_stop: transactions with a payload, and tables, before the place where the server stops.
    """

    layout: LogFileLayout
    compile_kernel: Callable[[Kernel], Kernel]
    tables: dict[int, ManticoreTableState] = field(default_factory=dict)
    op_counts: Counter[int] = field(default_factory=Counter)
    names: dict[bytes, int] = field(default_factory=dict)
    damage_count: int = 0
    blocked_offset: int | None = None
    is_refused: bool = False
    first_damage: int | None = None
    cache_end: int | None = None
    counts_before_stop: tuple[int, int] | None = None
    skip_kernel: Kernel = field(init=False)
    state: Any = field(init=False)
    _findings: list[Finding] = field(default_factory=list)
    _batch_ops: list[int] = field(default_factory=list)

    def __post_init__(self) -> None:
        kernel = folds.skip_ordered_transactions if self.context.has_new_frames else folds.skip_ordered_old_transactions
        self.skip_kernel = self.compile_kernel(kernel)
        self.state = [0] * folds.STATE_SIZE if self.skip_kernel is kernel else array("q", bytes(8 * folds.STATE_SIZE))

    @property
    def context(self) -> ManticoreLogContext:
        """Context of the layout."""
        context: ManticoreLogContext = self.layout.context
        return context

    def _count_until(self, index: int = 0) -> tuple[int, int]:
        """Count transactions with a payload, and tables declared, before record `index` of the current batch."""
        counts = self.op_counts + Counter(self._batch_ops[:index])
        tables = counts[self.context.ops.ADD_INDEX]
        return counts.total() - tables - counts[self.context.ops.ADD_CACHE], tables

    def feed(self, batch: Batch) -> Sequence[Finding]:
        """Validate the transactions of one batch."""
        self._findings = []
        ops, index = to_int_list(batch.frames["op"], 0, batch.frames.count), 0
        self._batch_ops = ops
        while (index := self._skip_ordered(batch, index)) < len(ops):
            if self.cache_end is not None:
                self._report_after_cache(batch, index)
            if ops[index] == self.context.ops.ADD_INDEX:
                self._declare_table(batch, index)
            elif ops[index] == self.context.ops.ADD_CACHE:
                self._check_cache(batch, index)
            else:
                self._check_transaction(batch, index)
            index += 1
        self.op_counts.update(ops)
        self._batch_ops = []
        return self._findings

    def _skip_ordered(self, batch: Batch, start: int) -> int:
        """Return the first transaction from `start` on that has to be checked individually."""
        frames, count = batch.frames, batch.frames.count
        if self.cache_end is not None or start >= count:
            return start
        columns = (frames["op"], frames["body.id"], frames["body.tid"])
        covered = (frames["covered_start"], frames["covered_end"])
        if self.context.has_new_frames:
            return int(self.skip_kernel(start, count, *columns, *covered, batch.window, self.state))
        old = folds.OldTransactions(*columns, frames["body.time"], *covered)
        return int(self.skip_kernel(start, count, self.context.version, old, batch.window, self.state))

    def _check_payload(self, batch: Batch, index: int) -> None:
        """Check, for version 15 on, that the payload is consumed exactly."""
        high, low = int(batch.frames["covered_end"][index]), self._find_payload_start(batch, index, 2) + 4
        if skip_payload(batch.window, low, high) == high:
            self.state[folds.PAYLOAD_COUNTS + batch.window[low]] += 1
            if batch.window[low] == PayloadOp.COMMIT:
                self._check_commit(batch, index, low + 1)
            return
        op = batch.window[low] if low < high else None
        if op is None or op in PayloadOp.__members__.values():
            self._findings.append(report_undecodable(batch, index, "the payload does not end where uSize says"))
        else:
            message = f"payload op {op} is unknown"
            self._report(
                batch, index, "payload-undecodable", message, "unknown payload op", server="refuse", payload_op=op
            )  # fmt: skip
        self._stop_replay(batch, index)

    def _report_overlong(self, batch: Batch, index: int) -> None:
        message = "a number has more bytes than it needs; no server writes that"
        self._report(batch, index, "varint-overlong", message, "zint not canonical", severity=Severity.NOTE)

    def _report(self, batch: Batch, index: int, id_: str, message: str, diagnosis: str, **facts: Any) -> None:
        if self.first_damage is not None:
            facts.pop("server", None)  # the server does not reach this place
        low, high = int(batch.frames["offset"][index]), int(batch.frames["end"][index])
        self._findings.append(
            make_finding(
                id_,
                batch.base + low,
                high - low,
                message,
                record=batch.first_record + index,
                diagnosis=diagnosis,
                **facts,
            )
        )

    def _stop_replay(self, batch: Batch, index: int) -> None:
        """Record that the server cannot continue at this transaction; what is before it is durable."""
        if self.blocked_offset is None:
            self.blocked_offset = batch.base + int(batch.frames["offset"][index])
            self.context.actions.setdefault(self.blocked_offset, "refuse")
            self.counts_before_stop = self.counts_before_stop or self._count_until(index)

    def _find_payload_start(self, batch: Batch, index: int, zints: int) -> int:
        position, end = int(batch.frames["covered_start"][index]) + 1, int(batch.frames["covered_end"][index])
        for _ in range(zints):
            position = read_zint(batch.window, position, end)[1]
        return position

    def _check_commit(self, batch: Batch, index: int, start: int) -> None:
        """Report numbers of a commit that contradict each other (invariants C1 to C3); not checked before version 5."""
        if self.context.version <= LAST_LOW_VERSION:
            return
        fault = folds.find_commit_fault(
            batch.window, start, int(batch.frames["covered_end"][index]), self.context.version
        )
        if fault:
            message = f"the commit parses, but {_COMMIT_FAULTS[fault]}"
            self._report(
                batch, index, "count-out-of-bounds", message, "commit contradicts itself", severity=Severity.WARNING
            )

    # -- tables ----------------------------------------------------------------------------------------------------

    def _read_body(self, batch: Batch, index: int) -> bytes:
        frames = batch.frames
        return bytes(batch.window[frames["covered_start"][index] + 1 : frames["covered_end"][index]])

    def _declare_table(self, batch: Batch, index: int) -> None:
        body = self._read_body(batch, index)
        number, name = parse_table_name(self.context, body)
        if body[:1] == b"\x80":
            self._report_overlong(batch, index)
        expected = len(self.tables)
        if number in self.tables and self.tables[number].name is None:
            self.tables[number].name = name
        elif number != expected and not (self.damage_count and number > expected):
            message = f"table {decode_text(name)} is declared as id {number:,}, expected {expected:,}"
            self._report(batch, index, "dangling-reference", message, "table ids out of order", server="refuse")
            self._stop_replay(batch, index)
        elif name in self.names:
            message = f"table {decode_text(name)} is declared again"
            self._report(batch, index, "duplicate-key", message, "table declared twice", severity=Severity.ERROR)
        if number not in self.tables and len(self.tables) < MAX_TABLES:
            for lost_id in range(expected, min(number, expected + 64)):
                self.tables.setdefault(lost_id, ManticoreTableState(lost_id, None, damage=self.damage_count))
            self.tables[number] = ManticoreTableState(number, name, damage=self.damage_count)
        self.names.setdefault(name, number)
        self.context.declared = len(self.tables)

    def _check_transaction(self, batch: Batch, index: int) -> None:
        """Check a transaction with a payload that the kernel did not skip."""
        frames, is_new = batch.frames, self.context.has_new_frames
        number, tid = (int(frames[name][index]) & U64 for name in ("body.id", "body.tid"))
        time = 0 if is_new else int(frames["body.time"][index]) & U64
        table = self._get_table(batch, index, number)
        if table.first is None:
            table.first, table.offset = tid, batch.base + int(frames["offset"][index])
        elif tid > table.last + 1:
            self._report_gap(batch, index, table, tid)
        elif tid <= table.last:
            self._report_not_rising(batch, index, table, tid)
        self._check_time(batch, index, table, time)
        if folds.skip_canonical_zints(batch.window, int(frames["covered_start"][index]) + 1, 2 if is_new else 3) < 0:
            self._report_overlong(batch, index)
        if is_new:
            self._check_payload(batch, index)
        elif self._batch_ops[index] == OldOp.COMMIT:
            self._check_commit(batch, index, self._find_payload_start(batch, index, 3))
        table.last, table.damage = max(tid, table.last), self.damage_count
        table.txns += 1
        if number < folds.MAX_KERNEL_TABLES and 0 < table.last + 1 < 1 << 63 and table.time < 1 << 63:
            self.state[folds.NEXT_TIDS + number], self.state[folds.MAX_TIMES + number] = table.last + 1, table.time

    def _get_table(self, batch: Batch, index: int, number: int) -> ManticoreTableState:
        """Return the table of an id with the kernel's counts; report an id that is not declared, once."""
        table = self.tables.get(number)
        if table is None:
            hint = " (its ADD_INDEX may lie in the damaged range)" if self.damage_count else ""
            message = f"table id {number} was not declared{hint}"
            self._report(
                batch, index, "dangling-reference", message, "unknown table id", server="refuse", table_id=number
            )
            self._stop_replay(batch, index)
            table = ManticoreTableState(number, None, damage=self.damage_count)
            if len(self.tables) < MAX_TABLES:
                self.tables[number] = table
        self._load_kernel_state(table)
        return table

    def _load_kernel_state(self, table: ManticoreTableState) -> None:
        """Move what the kernel knows about a table into it."""
        if table.id < folds.MAX_KERNEL_TABLES and self.state[folds.NEXT_TIDS + table.id]:
            table.last = self.state[folds.NEXT_TIDS + table.id] - 1
            table.txns += self.state[folds.TRANSACTION_COUNTS + table.id]
            table.time = self.state[folds.MAX_TIMES + table.id]
            self.state[folds.NEXT_TIDS + table.id] = self.state[folds.TRANSACTION_COUNTS + table.id] = 0

    def _report_gap(self, batch: Batch, index: int, table: ManticoreTableState, tid: int) -> None:
        if table.damage != self.damage_count:
            return  # they may be in the damaged range
        message = f"{table.title}: TID {tid}, expected {table.last + 1}: transactions are missing; the server goes on"
        self._report(
            batch, index, "gap-in-sequence", message, "TID gap", severity=Severity.WARNING, server="replay",
            table=table.title, first_missing=table.last + 1, last_missing=tid - 1,
        )  # fmt: skip

    def _report_not_rising(self, batch: Batch, index: int, table: ManticoreTableState, tid: int) -> None:
        is_repeated = tid == table.last
        is_new = self.context.has_new_frames
        consequence = (
            "the server silently ignores this transaction" if is_new or is_repeated else "the server refuses to start"
        )
        self.is_refused |= not (is_new or is_repeated)
        message = f"{table.title}: TID {tid} after {table.last}: {consequence}"
        self._report(
            batch, index, "duplicate-sequence" if is_repeated else "sequence-regression", message,
            "repeated TID" if is_repeated else "descending TID", server="replay" if is_new or is_repeated else "refuse",
        )  # fmt: skip

    def _check_time(self, batch: Batch, index: int, table: ManticoreTableState, time: int) -> None:
        if time < table.time:
            message = f"{table.title}: the time is earlier than before; the server refuses that unless told otherwise"
            self.is_refused = True
            self._report(batch, index, "time-regression", message, "descending time", server="refuse")
        table.time = max(time, table.time)

    # -- the end ---------------------------------------------------------------------------------------------------

    def _check_cache(self, batch: Batch, index: int) -> None:
        """Check the ADD_CACHE, which summarizes the file: it must agree with it, and nothing may follow."""
        self.cache_end = batch.base + int(batch.frames["end"][index])
        if batch.frames["checksum"][index] == CHECKSUM_STATE_ABSENT:
            message = (
                "ADD_CACHE has the checksum 0, a known defect of the writer: the server warns about it and goes on"
            )
            self._report(batch, index, "checksum-absent", message, "known writer defect", server="replay")
        for table in self.tables.values():
            self._load_kernel_state(table)
        listing = schema.CACHE if self.context.has_new_frames else schema.create_old_cache_schema(self.context.version)
        try:
            parsed = listing.parse(self._read_body(batch, index))
        except ConstructError:
            self._findings.append(report_too_large(batch, index))
            return
        for unnamed_table in self.tables.values():
            if unnamed_table.name is None and unnamed_table.id < parsed.count:
                unnamed_table.name = bytes(parsed.tables[unnamed_table.id].name.text)
        differences = self._compare_cache(parsed)
        if differences:
            message = f"ADD_CACHE does not agree with the file: {'; '.join(differences[:5])}"
            self._report(
                batch, index, "meta-mismatch", message, "cache mismatch", severity=Severity.WARNING, server="replay"
            )
        numbers = [n for entry in parsed.tables for n in entry.values() if isinstance(n, int)]
        if any(isinstance(n, WideZint) for n in numbers):
            self._report_overlong(batch, index)

    def _compare_cache(self, parsed: Any) -> list[str]:
        differences = []
        if len(self.tables) != parsed.count and not self.damage_count:
            differences.append(f"{parsed.count:,} tables, the file has {len(self.tables):,}")
        for number, entry in enumerate(parsed.tables[: len(self.tables)]):
            table = self.tables.get(number)
            if table is None:
                continue
            if table.name != entry.name.text:
                differences.append(f"table {number} is {decode_text(entry.name.text)}, the file says {table.title}")
            if table.first is not None and not self.damage_count:
                cached_tids, actual_tids = (int(entry.min_tid), int(entry.max_tid)), (table.first, table.last)
                if cached_tids != actual_tids:
                    differences.append(
                        f"{table.title}: TIDs {cached_tids[0]} to {cached_tids[1]}, the file has "
                        f"{actual_tids[0]} to {actual_tids[1]}"
                    )
        return differences

    def _report_after_cache(self, batch: Batch, index: int) -> None:
        message = "a transaction behind ADD_CACHE, which must be the last of a file"
        self._report(batch, index, "meta-mismatch", message, "ADD_CACHE is not last")
        self.cache_end = None

    def skip_damage(self, start: int, end: int) -> None:
        """Record that transactions of any table may be lost in `[start, end)`."""
        self.damage_count += 1
        for table in self.tables.values():
            self._load_kernel_state(table)
        if self.first_damage is None:
            self.first_damage = start
            self.counts_before_stop = self.counts_before_stop or self._count_until()

    def finish(self, tail: FileTail) -> ValidationResult:
        """Return the verdict at the end of the file."""
        for table in self.tables.values():
            self._load_kernel_state(table)
        stop = min((at for at in (self.blocked_offset, self.first_damage) if at is not None), default=None)
        if self.context.header in ("bad magic", "torn", "empty"):
            stop = 0 if tail.size else None
        action = self._predict_action(stop, tail)
        durable = min(tail.end, stop) if stop is not None else tail.end
        total_counts = self._count_until()
        commits, tables = self.counts_before_stop or total_counts
        facts = ManticoreLogFacts(
            self.context.version,
            tail.size,
            self._collect_named_tables(),
            self.cache_end == tail.size,
            stop is not None,
            commits,
            stop,
            action,
        )
        details = {
            "version": self.context.version,
            "tables": [self._table_to_json(table) for table in self.tables.values()],
            "server_start": {"action": action, "commits": commits, "tables": tables, "stops_at": stop},
        }
        if self.context.has_new_frames:
            counts = self.state[folds.PAYLOAD_COUNTS :]
            details["payloads"] = {op.name: counts[op] for op in PayloadOp if counts[op]}
        names = self.context.ops
        types = {names(op).name: count for op, count in self.op_counts.items()}
        early_ops = () if self.context.has_new_frames else self._report_early_ops()
        return ValidationResult(
            total_counts[0], types, early_ops, durable_end=durable, facts=facts, details=MappingProxyType(details)
        )

    def _report_early_ops(self) -> tuple[Finding, ...]:
        """Report operations that the version in the header does not have: the version may be what is wrong."""
        findings = []
        for op, since in schema.OP_SINCE_VERSION.items():
            if self.op_counts[op] and self.context.version < since:
                message = f"{op.name} stands in the file, and came with version {since} only"
                findings.append(
                    make_finding("unknown-record-type", 4, 4, message, diagnosis="op newer than the version")
                )
        return tuple(findings)

    def _predict_action(self, stop: int | None, tail: FileTail) -> str:
        """Predict what a server of this version does with the file
        (`docs/spec/manticore.md#replay-of-a-file`).
        """
        if tail.size == 0 or (tail.size == schema.HEADER_SIZE and self.context.header == "whole"):
            return "delete" if self.context.has_new_frames else "replay"
        if self.context.header in ("bad magic", "version not known") or any(
            map(is_header_correction, self.layout.findings)
        ):
            return "refuse"
        if stop is None:
            return "refuse" if self.is_refused else "replay"
        return "refuse" if stop == self.blocked_offset else self.context.actions.get(stop, "refuse")

    def _collect_named_tables(self) -> dict[bytes, tuple[int | None, int, int, int]]:
        return {t.name: (t.first, t.last, t.txns, t.offset) for t in self.tables.values() if t.name is not None}

    @staticmethod
    def _table_to_json(table: ManticoreTableState) -> dict[str, Any]:
        name = None if table.name is None else table.name.decode("utf-8", "backslashreplace")
        last = None if table.first is None else table.last
        return {"id": table.id, "name": name, "min_tid": table.first, "max_tid": last, "txns": table.txns}


def create_validator(layout: LogFileLayout, compile_kernel: Callable[[Kernel], Kernel], limits: Limits) -> Validator:
    """Create the validator for one file."""
    if isinstance(layout.context, MetaContext):
        return ManticoreMetaValidator(layout.context)
    return ManticoreLogValidator(layout, compile_kernel)
