"""Validator of one log file: table ids, TIDs, payloads and the closing ADD_CACHE, in file order.

Source: `docs/spec/manticore-binlog.md#82-replay-of-one-file`, `#121-invariants-for-verify`.
"""

from __future__ import annotations

from array import array
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any

from construct import ConstructError

from binlogtool.findings import Finding, Severity, finding
from binlogtool.formats.columns import integers
from binlogtool.formats.heads import is_corrected
from binlogtool.formats.judging import Judge, Tail, Verdict
from binlogtool.formats.layouts import Batch, Kernel, Layout
from binlogtool.formats.manticore import schema
from binlogtool.formats.manticore.judge import folds
from binlogtool.formats.manticore.judge.meta import MetaJudge
from binlogtool.formats.manticore.judge.tables import LogFacts, Table
from binlogtool.formats.manticore.layout import LogContext, MetaContext
from binlogtool.formats.manticore.meaning import U64, name_of, text, too_large, undecodable
from binlogtool.formats.manticore.payloads.sphinx4 import LAST_LOWEST_FIRST
from binlogtool.formats.manticore.payloads.walk import skip_payload
from binlogtool.formats.manticore.payloads.zint import Wide, read_zint
from binlogtool.formats.manticore.schema import OldOp, PayloadOp
from binlogtool.limits import Limits

CHECKSUM_ABSENT = 2
_FAULTS = (
    "",
    "its row vector cannot be divided by the number of rows",
    "it does not store one document per row",
    "a checkpoint lies outside the dictionary",
)
MAX_TABLES = 100_000
"""Tables of one file that are remembered."""


@dataclass(slots=True)
class LogJudge:
    """Validator of one log file (implements `formats.judging.Judge`).

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

    layout: Layout
    compile: Callable[[Kernel], Kernel]
    tables: dict[int, Table] = field(default_factory=dict)
    kinds: Counter[int] = field(default_factory=Counter)
    names: dict[bytes, int] = field(default_factory=dict)
    damages: int = 0
    blocked: int | None = None
    refused: bool = False
    first_bad: int | None = None
    cache: int | None = None
    before_stop: tuple[int, int] | None = None
    fold: Kernel = field(init=False)
    state: Any = field(init=False)
    _found: list[Finding] = field(default_factory=list)
    _ops: list[int] = field(default_factory=list)

    def __post_init__(self) -> None:
        plain = folds.fold if self.context.new else folds.fold_old
        self.fold = self.compile(plain)
        self.state = [0] * folds.SIZE if self.fold is plain else array("q", bytes(8 * folds.SIZE))

    @property
    def context(self) -> LogContext:
        """Context of the layout."""
        context: LogContext = self.layout.context
        return context

    def _until(self, index: int = 0) -> tuple[int, int]:
        """Count transactions with a payload, and tables declared, before record `index` of the current batch."""
        kinds = self.kinds + Counter(self._ops[:index])
        tables = kinds[self.context.ops.ADD_INDEX]
        return kinds.total() - tables - kinds[self.context.ops.ADD_CACHE], tables

    def feed(self, batch: Batch) -> Sequence[Finding]:
        """Validate the transactions of one batch."""
        self._found = []
        ops, at = integers(batch.frames["op"], 0, batch.frames.count), 0
        self._ops = ops
        while (at := self._in_order(batch, at)) < len(ops):
            if self.cache is not None:
                self._behind_cache(batch, at)
            if ops[at] == self.context.ops.ADD_INDEX:
                self._declared(batch, at)
            elif ops[at] == self.context.ops.ADD_CACHE:
                self._closed(batch, at)
            else:
                self._transaction(batch, at)
            at += 1
        self.kinds.update(ops)
        self._ops = []
        return self._found

    def _in_order(self, batch: Batch, start: int) -> int:
        """Return the first transaction from `start` on that has to be checked individually."""
        f, count = batch.frames, batch.frames.count
        if self.cache is not None or start >= count:
            return start
        columns = (f["op"], f["body.id"], f["body.tid"])
        covered = (f["covered_start"], f["covered_end"])
        if self.context.new:
            return int(self.fold(start, count, *columns, *covered, batch.window, self.state))
        old = folds.OldTransactions(*columns, f["body.time"], *covered)
        return int(self.fold(start, count, self.context.version, old, batch.window, self.state))

    def _payload(self, batch: Batch, index: int) -> None:
        """Check, for version 15 on, that the payload is consumed exactly."""
        high, low = int(batch.frames["covered_end"][index]), self._payload_start(batch, index, 2) + 4
        if skip_payload(batch.window, low, high) == high:
            self.state[folds.PAYLOADS + batch.window[low]] += 1
            if batch.window[low] == PayloadOp.COMMIT:
                self._commit(batch, index, low + 1)
            return
        op = batch.window[low] if low < high else None
        if op is None or op in PayloadOp.__members__.values():
            self._found.append(undecodable(batch, index, "the payload does not end where uSize says"))
        else:
            words = f"payload op {op} is unknown"
            self._tell(
                batch, index, "payload-undecodable", words, "unknown payload op", server="refuse", payload_op=op
            )  # fmt: skip
        self._block(batch, index)

    def _overlong(self, batch: Batch, index: int) -> None:
        words = "a number has more bytes than it needs; no server writes that"
        self._tell(batch, index, "varint-overlong", words, "zint not canonical", severity=Severity.NOTE)

    def _tell(self, batch: Batch, index: int, id_: str, words: str, diagnosis: str, **more: Any) -> None:
        if self.first_bad is not None:
            more.pop("server", None)  # the server does not reach this place
        low, high = int(batch.frames["offset"][index]), int(batch.frames["end"][index])
        self._found.append(
            finding(
                id_, batch.base + low, high - low, words, record=batch.first_record + index, diagnosis=diagnosis, **more
            )
        )

    def _block(self, batch: Batch, index: int) -> None:
        """Record that the server cannot continue at this transaction; what is before it is durable."""
        if self.blocked is None:
            self.blocked = batch.base + int(batch.frames["offset"][index])
            self.context.actions.setdefault(self.blocked, "refuse")
            self.before_stop = self.before_stop or self._until(index)

    def _payload_start(self, batch: Batch, index: int, zints: int) -> int:
        at, end = int(batch.frames["covered_start"][index]) + 1, int(batch.frames["covered_end"][index])
        for _ in range(zints):
            at = read_zint(batch.window, at, end)[1]
        return at

    def _commit(self, batch: Batch, index: int, start: int) -> None:
        """Report numbers of a commit that contradict each other (invariants C1 to C3); not checked before version 5."""
        if self.context.version <= LAST_LOWEST_FIRST:
            return
        fault = folds.commit_fault(batch.window, start, int(batch.frames["covered_end"][index]), self.context.version)
        if fault:
            words = f"the commit parses, but {_FAULTS[fault]}"
            self._tell(
                batch, index, "count-out-of-bounds", words, "commit contradicts itself", severity=Severity.WARNING
            )

    # -- tables ----------------------------------------------------------------------------------------------------

    def _body(self, batch: Batch, index: int) -> bytes:
        frames = batch.frames
        return bytes(batch.window[frames["covered_start"][index] + 1 : frames["covered_end"][index]])

    def _declared(self, batch: Batch, index: int) -> None:
        body = self._body(batch, index)
        number, name = name_of(self.context, body)
        if body[:1] == b"\x80":
            self._overlong(batch, index)
        expected = len(self.tables)
        if number in self.tables and self.tables[number].name is None:
            self.tables[number].name = name
        elif number != expected and not (self.damages and number > expected):
            words = f"table {text(name)} is declared as id {number:,}, expected {expected:,}"
            self._tell(batch, index, "dangling-reference", words, "table ids out of order", server="refuse")
            self._block(batch, index)
        elif name in self.names:
            words = f"table {text(name)} is declared again"
            self._tell(batch, index, "duplicate-key", words, "table declared twice", severity=Severity.ERROR)
        if number not in self.tables and len(self.tables) < MAX_TABLES:
            for lost in range(expected, min(number, expected + 64)):
                self.tables.setdefault(lost, Table(lost, None, damage=self.damages))
            self.tables[number] = Table(number, name, damage=self.damages)
        self.names.setdefault(name, number)
        self.context.declared = len(self.tables)

    def _transaction(self, batch: Batch, index: int) -> None:
        """Check a transaction with a payload that the kernel did not skip."""
        frames, new = batch.frames, self.context.new
        number, tid = (int(frames[name][index]) & U64 for name in ("body.id", "body.tid"))
        time = 0 if new else int(frames["body.time"][index]) & U64
        table = self._table(batch, index, number)
        if table.first is None:
            table.first, table.offset = tid, batch.base + int(frames["offset"][index])
        elif tid > table.last + 1:
            self._gap(batch, index, table, tid)
        elif tid <= table.last:
            self._not_rising(batch, index, table, tid)
        self._time(batch, index, table, time)
        if folds.pass_zints(batch.window, int(frames["covered_start"][index]) + 1, 2 if new else 3) < 0:
            self._overlong(batch, index)
        if new:
            self._payload(batch, index)
        elif self._ops[index] == OldOp.COMMIT:
            self._commit(batch, index, self._payload_start(batch, index, 3))
        table.last, table.damage = max(tid, table.last), self.damages
        table.txns += 1
        if number < folds.TABLES and 0 < table.last + 1 < 1 << 63 and table.time < 1 << 63:
            self.state[folds.NEXT + number], self.state[folds.TIME + number] = table.last + 1, table.time

    def _table(self, batch: Batch, index: int, number: int) -> Table:
        """Return the table of an id with the kernel's counts; report an id that is not declared, once."""
        table = self.tables.get(number)
        if table is None:
            lost = " (its ADD_INDEX may lie in the damaged range)" if self.damages else ""
            words = f"table id {number} was not declared{lost}"
            self._tell(batch, index, "dangling-reference", words, "unknown table id", server="refuse", table_id=number)
            self._block(batch, index)
            table = Table(number, None, damage=self.damages)
            if len(self.tables) < MAX_TABLES:
                self.tables[number] = table
        self._take(table)
        return table

    def _take(self, table: Table) -> None:
        """Move what the kernel knows about a table into it."""
        if table.id < folds.TABLES and self.state[folds.NEXT + table.id]:
            table.last = self.state[folds.NEXT + table.id] - 1
            table.txns += self.state[folds.COUNT + table.id]
            table.time = self.state[folds.TIME + table.id]
            self.state[folds.NEXT + table.id] = self.state[folds.COUNT + table.id] = 0

    def _gap(self, batch: Batch, index: int, table: Table, tid: int) -> None:
        if table.damage != self.damages:
            return  # they may be in the damaged range
        words = f"{table.title}: TID {tid}, expected {table.last + 1}: transactions are missing; the server goes on"
        self._tell(
            batch, index, "gap-in-sequence", words, "TID gap", severity=Severity.WARNING, server="replay",
            table=table.title, first_missing=table.last + 1, last_missing=tid - 1,
        )  # fmt: skip

    def _not_rising(self, batch: Batch, index: int, table: Table, tid: int) -> None:
        same = tid == table.last
        new = self.context.new
        does = "the server silently ignores this transaction" if new or same else "the server refuses to start"
        self.refused |= not (new or same)
        words = f"{table.title}: TID {tid} after {table.last}: {does}"
        self._tell(
            batch, index, "duplicate-sequence" if same else "sequence-regression", words,
            "repeated TID" if same else "descending TID", server="replay" if new or same else "refuse",
        )  # fmt: skip

    def _time(self, batch: Batch, index: int, table: Table, time: int) -> None:
        if time < table.time:
            words = f"{table.title}: the time is earlier than before; the server refuses that unless told otherwise"
            self.refused = True
            self._tell(batch, index, "time-regression", words, "descending time", server="refuse")
        table.time = max(time, table.time)

    # -- the end ---------------------------------------------------------------------------------------------------

    def _closed(self, batch: Batch, index: int) -> None:
        """Check the ADD_CACHE, which summarizes the file: it must agree with it, and nothing may follow."""
        self.cache = batch.base + int(batch.frames["end"][index])
        if batch.frames["checksum"][index] == CHECKSUM_ABSENT:
            words = "ADD_CACHE has the checksum 0, a known defect of the writer: the server warns about it and goes on"
            self._tell(batch, index, "checksum-absent", words, "known writer defect", server="replay")
        for table in self.tables.values():
            self._take(table)
        listing = schema.CACHE if self.context.new else schema.old_cache(self.context.version)
        try:
            parsed = listing.parse(self._body(batch, index))
        except ConstructError:
            self._found.append(too_large(batch, index))
            return
        for lost in self.tables.values():
            if lost.name is None and lost.id < parsed.count:
                lost.name = bytes(parsed.tables[lost.id].name.text)
        wrong = self._cache_faults(parsed)
        if wrong:
            words = f"ADD_CACHE does not agree with the file: {'; '.join(wrong[:5])}"
            self._tell(
                batch, index, "meta-mismatch", words, "cache mismatch", severity=Severity.WARNING, server="replay"
            )
        numbers = [n for entry in parsed.tables for n in entry.values() if isinstance(n, int)]
        if any(isinstance(n, Wide) for n in numbers):
            self._overlong(batch, index)

    def _cache_faults(self, parsed: Any) -> list[str]:
        wrong = []
        if len(self.tables) != parsed.count and not self.damages:
            wrong.append(f"{parsed.count:,} tables, the file has {len(self.tables):,}")
        for number, entry in enumerate(parsed.tables[: len(self.tables)]):
            table = self.tables.get(number)
            if table is None:
                continue
            if table.name != entry.name.text:
                wrong.append(f"table {number} is {text(entry.name.text)}, the file says {table.title}")
            if table.first is not None and not self.damages:
                said, seen = (int(entry.min_tid), int(entry.max_tid)), (table.first, table.last)
                if said != seen:
                    wrong.append(f"{table.title}: TIDs {said[0]} to {said[1]}, the file has {seen[0]} to {seen[1]}")
        return wrong

    def _behind_cache(self, batch: Batch, index: int) -> None:
        words = "a transaction behind ADD_CACHE, which must be the last of a file"
        self._tell(batch, index, "meta-mismatch", words, "ADD_CACHE is not last")
        self.cache = None

    def damage(self, start: int, end: int) -> None:
        """Record that transactions of any table may be lost in `[start, end)`."""
        self.damages += 1
        for table in self.tables.values():
            self._take(table)
        if self.first_bad is None:
            self.first_bad = start
            self.before_stop = self.before_stop or self._until()

    def finish(self, tail: Tail) -> Verdict:
        """Return the verdict at the end of the file."""
        for table in self.tables.values():
            self._take(table)
        stop = min((at for at in (self.blocked, self.first_bad) if at is not None), default=None)
        if self.context.header in ("bad magic", "torn", "empty"):
            stop = 0 if tail.size else None
        action = self._action(stop, tail)
        durable = min(tail.end, stop) if stop is not None else tail.end
        everything = self._until()
        commits, tables = self.before_stop or everything
        facts = LogFacts(
            self.context.version,
            tail.size,
            self._named(),
            self.cache == tail.size,
            stop is not None,
            commits,
            stop,
            action,
        )
        details = {
            "version": self.context.version,
            "tables": [self._row(table) for table in self.tables.values()],
            "server_start": {"action": action, "commits": commits, "tables": tables, "stops_at": stop},
        }
        if self.context.new:
            counts = self.state[folds.PAYLOADS :]
            details["payloads"] = {op.name: counts[op] for op in PayloadOp if counts[op]}
        names = self.context.ops
        types = {names(op).name: count for op, count in self.kinds.items()}
        early = () if self.context.new else self._too_early()
        return Verdict(everything[0], types, early, durable_end=durable, facts=facts, details=MappingProxyType(details))

    def _too_early(self) -> tuple[Finding, ...]:
        """Report operations that the version in the header does not have: the version may be what is wrong."""
        found = []
        for op, since in schema.SINCE.items():
            if self.kinds[op] and self.context.version < since:
                words = f"{op.name} stands in the file, and came with version {since} only"
                found.append(finding("unknown-record-type", 4, 4, words, diagnosis="op newer than the version"))
        return tuple(found)

    def _action(self, stop: int | None, tail: Tail) -> str:
        """Predict what a server of this version does with the file
        (`docs/spec/manticore-binlog.md#82-replay-of-one-file`).
        """
        if tail.size == 0 or (tail.size == schema.HEADER_SIZE and self.context.header == "whole"):
            return "delete" if self.context.new else "replay"
        if self.context.header in ("bad magic", "version not known") or any(map(is_corrected, self.layout.findings)):
            return "refuse"
        if stop is None:
            return "refuse" if self.refused else "replay"
        return "refuse" if stop == self.blocked else self.context.actions.get(stop, "refuse")

    def _named(self) -> dict[bytes, tuple[int | None, int, int, int]]:
        return {t.name: (t.first, t.last, t.txns, t.offset) for t in self.tables.values() if t.name is not None}

    @staticmethod
    def _row(table: Table) -> dict[str, Any]:
        name = None if table.name is None else table.name.decode("utf-8", "backslashreplace")
        last = None if table.first is None else table.last
        return {"id": table.id, "name": name, "min_tid": table.first, "max_tid": last, "txns": table.txns}


def judge(layout: Layout, compile: Callable[[Kernel], Kernel], limits: Limits) -> Judge:
    """Create the validator for one file."""
    if isinstance(layout.context, MetaContext):
        return MetaJudge(layout.context)
    return LogJudge(layout, compile)
