"""Validate a log file, the meta file and a binlog directory.

Source: `docs/spec/manticore.md#replay-of-a-file`, `#invariants`.
"""

from __future__ import annotations

from array import array
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any, NamedTuple

import msgspec
from construct import ConstructError

from binlogtool.findings import Finding, Severity, make_finding
from binlogtool.format_api.format import (
    FileTail,
    ValidationResult,
    Validator,
    is_header_correction,
)
from binlogtool.format_api.layout import Batch, Kernel, LogFileLayout, to_int_list
from binlogtool.format_api.schema_fields import (
    Int64s,
    MutableInt64s,
    UInt8s,
    WideVarint,
    decode_text,
    kernel,
    read_varint,
)
from binlogtool.formats.manticore import schema
from binlogtool.formats.manticore.decode import (
    U64,
    ManticoreLogContext,
    MetaContext,
    parse_table_id_and_name,
    report_too_large,
    report_undecodable,
)
from binlogtool.formats.manticore.payload_kernels import (
    LAST_LOW_VERSION,
    KernelSkipped,
    read_number,
    read_vector_count_and_skip,
    read_zint,
    skip_fields_by_program,
    skip_numbers,
    skip_vector,
)
from binlogtool.formats.manticore.schema import OldOp, PayloadOp, load_add_txn
from binlogtool.limits import Limits

# --- Kernels of the validator ---

# State of `skip_ordered_v15_transactions`: an array of 64-bit integers.
MAX_KERNEL_TABLES = 1024
"""Number of tables that the kernel tracks, by id; the validator tracks the others itself."""
NEXT_TIDS = 0
"""[0, 1024): TID that must come next; 0 = the validator must check it."""
TRANSACTION_COUNTS = 1024
"""[1024, 2048): number of transactions that the kernel skipped."""
MAX_TIMES = 2048
"""[2048, 3072): latest time."""
PAYLOAD_COUNTS = 3072
"""[3072, 3075): number of transactions by payload op, version 15 and later."""
STATE_SIZE = 3075
MAX_WORD_SIZE = 130
"""Bytes of a keyword (`SPH_MAX_KEYWORD_LEN`)."""
MAX_DOCUMENTS_PER_BYTE = 1 << 20
"""Bound of the number of documents that a word states, so that sums do not overflow."""

PAYLOAD_SKIPPER = KernelSkipped(schema.PAYLOAD)


@kernel()
def skip_complete_zints_if_canonical(buf: UInt8s, p: int, count: int) -> int:
    """Return the end of `count` complete zints; -1 if one starts with the byte 80, as no writer does."""
    for _ in range(count):
        if buf[p] == 128:
            return -1
        while buf[p] >= 128:
            p += 1
        p += 1
    return p


@kernel(read_varint)
def skip_varints(buf: UInt8s, pos: int, limit: int, count: int) -> int:
    """Skip `count` varints; -1 if one is not whole."""
    for _ in range(count):
        _value, pos = read_varint(buf, pos, limit)
        if pos < 0:
            return -1
    return pos


@kernel(read_varint, skip_varints)
def count_word_documents(buf: UInt8s, pos: int, limit: int, has_keywords: int) -> int:
    """Count the documents of all words of a segment; -1 if the words do not parse.

    Args:
        has_keywords: 1 = dict=keywords, each word without what it shares with the one before; 0 = dict=crc.
    """
    total = 0
    length = 0
    while pos < limit:
        if has_keywords == 1:
            packed = int(buf[pos])
            pos += 1
            if packed >= 128:
                rest = ((packed >> 4) & 7) + 1
                shared = packed & 15
            else:
                if pos >= limit:
                    return -1
                rest = packed
                shared = int(buf[pos])
                pos += 1
            if shared > length or shared + rest > MAX_WORD_SIZE or rest > limit - pos:
                return -1
            length = shared + rest
            pos += rest
        else:
            pos = skip_varints(buf, pos, limit, 1)
            if pos < 0:
                return -1
        documents, pos = read_varint(buf, pos, limit)
        if pos < 0 or documents < 1 or documents > limit * MAX_DOCUMENTS_PER_BYTE:
            return -1
        total += documents
        pos = skip_varints(buf, pos, limit, 2)
        if pos < 0:
            return -1
    return total


@kernel(read_varint, skip_varints)
def count_document_list_entries(buf: UInt8s, pos: int, limit: int, hits_size: int) -> int:
    """Count the entries in the document lists of a segment; -1 if they do not parse."""
    total = 0
    while pos < limit:
        pos = skip_varints(buf, pos, limit, 2)
        if pos < 0:
            return -1
        hits, pos = read_varint(buf, pos, limit)
        if pos < 0:
            return -1
        place, pos = read_varint(buf, pos, limit)
        if pos < 0:
            return -1
        if hits == 1:
            pos = skip_varints(buf, pos, limit, 1)
            if pos < 0:
                return -1
        elif hits < 1 or place < 0 or place >= hits_size:
            return -1
        total += 1
    return total


@kernel(
    read_number,
    read_vector_count_and_skip,
    skip_vector,
    skip_numbers,
    count_word_documents,
    count_document_list_entries,
)
def find_commit_fault_code(buf: UInt8s, pos: int, limit: int, version: int) -> int:
    """Return the code of the contradiction in a commit that is known to parse: 0 none, 1 rows, 2 docstore, 3
    checkpoints, 4 words.

    The words are checked in versions 5 to 7.
    """
    rows, pos = read_number(buf, pos, limit, version)
    if rows == 0:
        return 0
    if version >= 13:
        pos = skip_numbers(buf, pos, limit, 1, version)
    size, pos = read_vector_count_and_skip(buf, pos, limit, 1, version)
    words_end = pos
    count, pos = read_number(buf, pos, limit, version)
    for _ in range(count):
        offset, pos = read_number(buf, pos, limit, version)
        if offset < 0 or offset >= size:
            return 3
        pos = skip_numbers(buf, pos, limit, 1, version)
    documents_size, pos = read_vector_count_and_skip(buf, pos, limit, 1, version)
    documents_end = pos
    hits_size, pos = read_vector_count_and_skip(buf, pos, limit, 1, version)
    if version >= 5 and version <= 7:
        documents = count_document_list_entries(buf, documents_end - documents_size, documents_end, hits_size)
        if documents < 0:
            return 4
        if (
            count_word_documents(buf, words_end - size, words_end, 1) != documents
            and count_word_documents(buf, words_end - size, words_end, 0) != documents
        ):
            return 4
    words, pos = read_vector_count_and_skip(buf, pos, limit, 4, version)
    if rows < 0 or words % rows != 0:
        return 1
    pos = skip_vector(buf, pos, limit, 1, version)
    if version >= 3 and version < 8:
        pos = skip_vector(buf, pos, limit, 4, version)
    if version >= 4:
        pos = skip_vector(buf, pos, limit, 1, version)
    if version >= 9 and buf[pos] != 0:
        count, pos = read_number(buf, pos + 1, limit, version)
        if count != rows:
            return 2
    return 0


@kernel(find_commit_fault_code, load_add_txn, skip_complete_zints_if_canonical, skip_fields_by_program)
def skip_ordered_v15_transactions(
    start: int, stop: int, ops: Int64s, ids: Int64s, tids: Int64s, covered_starts: Int64s, ends: Int64s, buf: UInt8s,
    payload_skip_table: Int64s, state: MutableInt64s,
) -> int:  # fmt: skip
    """Skip ADD_TXN of version 15 on that are in order.

    In order: a known table, the next TID, canonical numbers, a payload that ends where uSize says.

    Args:
        payload_skip_table: the skip table of payloads.

    Returns:
        Index of the first transaction that is not, or `stop`.
    """
    for i in range(start, stop):
        table = ids[i]
        if ops[i] != 2 or table < 0 or table >= 1024 or state[table] == 0 or tids[i] != state[table]:
            return i
        if skip_complete_zints_if_canonical(buf, covered_starts[i] + 1, 2) < 0:
            return i
        payload, _end = load_add_txn(buf, covered_starts[i] + 1, ends[i])
        if skip_fields_by_program(buf, payload, ends[i], payload_skip_table, payload_skip_table[0] + 0) != ends[i]:
            return i
        operation = buf[payload] + 0
        payload += 1
        if operation == 1 and find_commit_fault_code(buf, payload, ends[i], 15) != 0:
            return i
        state[table] += 1
        state[1024 + table] += 1
        state[3072 + operation] += 1
    return stop


class OldTransactions(NamedTuple):
    """Columns with one entry per transaction of versions 2 to 14."""

    ops: Int64s
    ids: Int64s
    tids: Int64s
    times: Int64s
    covered: Int64s
    ends: Int64s


@kernel(skip_complete_zints_if_canonical, find_commit_fault_code)
def skip_ordered_v2_to_v14_transactions(
    start: int, stop: int, version: int, transactions: OldTransactions, buf: UInt8s, state: MutableInt64s
) -> int:
    """Skip transactions of versions 2 to 14 that are in order; here times must not fall either.

    Their payload was already parsed to find its end.

    Returns:
        Index of the first transaction that is not in order, or `stop`.
    """
    for i in range(start, stop):
        table = transactions.ids[i]
        if transactions.ops[i] == 3 or transactions.ops[i] == 4 or table < 0 or table >= 1024:
            return i
        if state[table] == 0 or transactions.tids[i] != state[table] or transactions.times[i] < state[2048 + table]:
            return i
        if version > 4:  # in older versions numbers are stored lowest bits first: any first byte may be 0
            p = skip_complete_zints_if_canonical(buf, transactions.covered[i] + 1, 3)
            if p < 0 or (
                transactions.ops[i] == 1 and find_commit_fault_code(buf, p, transactions.ends[i], version) != 0
            ):
                return i
        state[table] += 1
        state[1024 + table] += 1
        state[2048 + table] = transactions.times[i]
    return stop


# --- State of the tables of a file ---


class ManticoreTableState(msgspec.Struct):
    """State of one table of a file.

    Attributes:
        name: None if its ADD_INDEX is in a damaged range.
        first, last: first and last TID.
        damage: number of damaged ranges before its last transaction.
    """

    id: int
    name: bytes | None
    first: int | None = None
    last: int = -1
    txns: int = 0
    offset: int = 0
    time: int = 0
    damage: int = 0

    @property
    def title(self) -> str:
        """Name of the table in messages."""
        return f"table id {self.id}" if self.name is None else f"table {decode_text(self.name)!s}"


class ManticoreLogFacts(msgspec.Struct, frozen=True):
    """Facts about one file for the rules of the directory.

    Attributes:
        tables: name -> (first TID, last TID, transactions, offset of the first).
        stop: offset where the server's replay ends before the end of the file, or None.
        action: what the server does with the file.
    """

    version: int
    size: int
    tables: Mapping[bytes, tuple[int | None, int, int, int]]
    closed: bool
    damaged: bool
    commits: int
    stop: int | None
    action: str


# --- Validator of a meta file ---


class ManticoreMetaValidator(msgspec.Struct, frozen=True):
    """Validator of a meta file, which has no records."""

    context: MetaContext

    def validate_batch(self, batch: Batch) -> Sequence[Finding]:
        """Return no findings: there are no records."""
        return ()

    def skip_damage(self, start: int, end: int) -> None:
        """Ignore bytes after the part that was read."""

    def finish(self, tail: FileTail) -> ValidationResult:
        """Return the result: the files that the meta file lists."""
        context = self.context
        has_digits = (context.version or schema.NEW_FRAME_VERSION) >= schema.NEW_FRAME_VERSION
        details = {
            "version": context.version, "count": context.count, "files": list(context.numbers),
            "digits" if has_digits else "id64": context.setting,
        }  # fmt: skip
        return ValidationResult(0, {}, details=MappingProxyType(details))


# --- Validator of one log file ---

CHECKSUM_STATE_ABSENT = 2
_COMMIT_FAULTS = (
    "",
    "the length of its row vector is not a multiple of the number of rows",
    "its number of documents differs from its number of rows",
    "a checkpoint is outside the dictionary",
    "its words do not match its lists of documents",
)
MAX_TABLES = 100_000
"""Maximum number of tables of one file that are remembered."""


@dataclass(slots=True)
class ManticoreLogValidator:
    """Validator of one log file (implements `format_api.format.Validator`).

    Attributes:
        tables: tables by id.
        op_counts: transactions by operation, in all batches before the current one.
        names: table names -> id.
        damage_count: number of damaged ranges so far.
        blocked_offset: offset of the first transaction at which the server cannot continue.
        is_refused: the order of TIDs or times makes the server refuse the file.
        first_damage: start of the first damaged range.
        cache_end: end of the ADD_CACHE, if it is the last transaction so far.
        counts_before_stop: numbers of transactions with a payload, and of tables, before the server stops.
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
    payloads: array[int] = field(init=False)
    state: Any = field(init=False)
    _findings: list[Finding] = field(default_factory=list)
    _batch_ops: list[int] = field(default_factory=list)

    def __post_init__(self) -> None:
        kernel = skip_ordered_v15_transactions if self.context.has_new_frames else skip_ordered_v2_to_v14_transactions
        self.skip_kernel = self.compile_kernel(kernel)
        self.payloads = array("q", PAYLOAD_SKIPPER.table)
        self.state = [0] * STATE_SIZE if self.skip_kernel is kernel else array("q", bytes(8 * STATE_SIZE))

    @property
    def context(self) -> ManticoreLogContext:
        """Context from the layout."""
        context: ManticoreLogContext = self.layout.context
        return context

    def _count_transactions_and_tables_until(self, index: int = 0) -> tuple[int, int]:
        """Count transactions with a payload, and tables declared, before record `index` of the current batch."""
        counts = self.op_counts + Counter(self._batch_ops[:index])
        tables = counts[self.context.ops.ADD_INDEX]
        return counts.total() - tables - counts[self.context.ops.ADD_CACHE], tables

    def validate_batch(self, batch: Batch) -> Sequence[Finding]:
        """Validate the transactions of one batch."""
        self._findings = []
        ops, index = to_int_list(batch.frames["op"], 0, batch.frames.count), 0
        self._batch_ops = ops
        while (index := self._skip_ordered(batch, index)) < len(ops):
            if self.cache_end is not None:
                message = "a transaction after ADD_CACHE, which must be the last of a file"
                self._report(batch, index, "meta-mismatch", message, "ADD_CACHE is not last")
                self.cache_end = None
            if ops[index] == self.context.ops.ADD_INDEX:
                self._check_and_store_declared_table(batch, index)
            elif ops[index] == self.context.ops.ADD_CACHE:
                self._check_cache(batch, index)
            else:
                self._check_transaction(batch, index)
            index += 1
        self.op_counts.update(ops)
        self._batch_ops = []
        return self._findings

    def _skip_ordered(self, batch: Batch, start: int) -> int:
        """Return the first transaction from `start` on that must be checked individually."""
        frames, count = batch.frames, batch.frames.count
        if self.cache_end is not None or start >= count:
            return start
        columns = (frames["op"], frames["body.id"], frames["body.tid"])
        covered = (frames["covered_start"], frames["covered_end"])
        if self.context.has_new_frames:
            return int(self.skip_kernel(start, count, *columns, *covered, batch.window, self.payloads, self.state))
        old = OldTransactions(*columns, frames["body.time"], *covered)
        return int(self.skip_kernel(start, count, self.context.version, old, batch.window, self.state))

    def _check_payload(self, batch: Batch, index: int) -> None:
        """Check that the payload is consumed exactly (version 15 and later)."""
        high, low = int(batch.frames["covered_end"][index]), self._find_payload_start(batch, index, 2) + 4
        if skip_fields_by_program(batch.window, low, high, self.payloads, self.payloads[0]) == high:
            self.state[PAYLOAD_COUNTS + batch.window[low]] += 1
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
        """Record that the server cannot continue at this transaction; everything before it is durable."""
        if self.blocked_offset is None:
            self.blocked_offset = batch.base + int(batch.frames["offset"][index])
            self.context.actions.setdefault(self.blocked_offset, "refuse")
            self.counts_before_stop = self.counts_before_stop or self._count_transactions_and_tables_until(index)

    def _find_payload_start(self, batch: Batch, index: int, zints: int) -> int:
        position, end = int(batch.frames["covered_start"][index]) + 1, int(batch.frames["covered_end"][index])
        for _ in range(zints):
            position = read_zint(batch.window, position, end)[1]
        return position

    def _check_commit(self, batch: Batch, index: int, start: int) -> None:
        """Report numbers of a commit that contradict each other (invariants C1 to C4); not checked before version 5."""
        if self.context.version <= LAST_LOW_VERSION:
            return
        fault = find_commit_fault_code(
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

    def _check_and_store_declared_table(self, batch: Batch, index: int) -> None:
        body = self._read_body(batch, index)
        number, name = parse_table_id_and_name(self.context, body)
        if body[:1] == b"\x80":
            self._report_overlong(batch, index)
        expected = len(self.tables)
        if number in self.tables and self.tables[number].name is None:
            self.tables[number].name = name
        elif number != expected and not (self.damage_count and number > expected):
            message = f"table {decode_text(name)!s} is declared as id {number:,}, expected {expected:,}"
            self._report(batch, index, "dangling-reference", message, "table ids out of order", server="refuse")
            self._stop_replay(batch, index)
        elif name in self.names:
            message = f"table {decode_text(name)!s} is declared again"
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
        table = self._get_or_report_table(batch, index, number)
        if table.first is None:
            table.first, table.offset = tid, batch.base + int(frames["offset"][index])
        elif tid > table.last + 1:
            self._report_gap(batch, index, table, tid)
        elif tid <= table.last:
            self._report_not_rising(batch, index, table, tid)
        self._check_time(batch, index, table, time)
        if (
            skip_complete_zints_if_canonical(batch.window, int(frames["covered_start"][index]) + 1, 2 if is_new else 3)
            < 0
        ):
            self._report_overlong(batch, index)
        if is_new:
            self._check_payload(batch, index)
        elif self._batch_ops[index] == OldOp.COMMIT:
            self._check_commit(batch, index, self._find_payload_start(batch, index, 3))
        table.last, table.damage = max(tid, table.last), self.damage_count
        table.txns += 1
        if number < MAX_KERNEL_TABLES and 0 < table.last + 1 < 1 << 63 and table.time < 1 << 63:
            self.state[NEXT_TIDS + number], self.state[MAX_TIMES + number] = table.last + 1, table.time

    def _get_or_report_table(self, batch: Batch, index: int, number: int) -> ManticoreTableState:
        """Return the table with this id and the kernel's counts; report an undeclared id once."""
        table = self.tables.get(number)
        if table is None:
            hint = " (its ADD_INDEX may be in the damaged range)" if self.damage_count else ""
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
        """Copy the kernel's state of a table into the table."""
        if table.id < MAX_KERNEL_TABLES and self.state[NEXT_TIDS + table.id]:
            table.last = self.state[NEXT_TIDS + table.id] - 1
            table.txns += self.state[TRANSACTION_COUNTS + table.id]
            table.time = self.state[MAX_TIMES + table.id]
            self.state[NEXT_TIDS + table.id] = self.state[TRANSACTION_COUNTS + table.id] = 0

    def _report_gap(self, batch: Batch, index: int, table: ManticoreTableState, tid: int) -> None:
        if table.damage != self.damage_count:
            return  # the tables may be in the damaged range
        message = f"{table.title}: TID {tid}, expected {table.last + 1}: transactions are missing; the server continues"
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
            message = f"{table.title}: the time is earlier than before; the server refuses that by default"
            self.is_refused = True
            self._report(batch, index, "time-regression", message, "descending time", server="refuse")
        table.time = max(time, table.time)

    # -- the end ---------------------------------------------------------------------------------------------------

    def _check_cache(self, batch: Batch, index: int) -> None:
        """Check that the ADD_CACHE, which summarizes the file, agrees with the file."""
        self.cache_end = batch.base + int(batch.frames["end"][index])
        if batch.frames["checksum"][index] == CHECKSUM_STATE_ABSENT:
            message = (
                "ADD_CACHE has the checksum 0, a known defect of the writer: the server warns about it and continues"
            )
            self._report(batch, index, "checksum-absent", message, "known writer defect", server="replay")
        for table in self.tables.values():
            self._load_kernel_state(table)
        listing = (
            schema.CACHE if self.context.has_new_frames else schema.create_v2_to_v14_cache_schema(self.context.version)
        )
        try:
            parsed = listing.parse(self._read_body(batch, index))
        except ConstructError:
            self._findings.append(report_too_large(batch, index))
            return
        for unnamed_table in self.tables.values():
            if unnamed_table.name is None and unnamed_table.id < parsed.count:
                unnamed_table.name = bytes(parsed.tables[unnamed_table.id].name.text)
        differences = self._compare_table_cache(parsed)
        if differences:
            message = f"ADD_CACHE does not agree with the file: {'; '.join(differences[:5])}"
            self._report(
                batch, index, "meta-mismatch", message, "cache mismatch", severity=Severity.WARNING, server="replay"
            )
        numbers = [n for entry in parsed.tables for n in entry.values() if isinstance(n, int)]
        if any(isinstance(n, WideVarint) for n in numbers):
            self._report_overlong(batch, index)

    def _compare_table_cache(self, parsed: Any) -> list[str]:
        differences = []
        if len(self.tables) != parsed.count and not self.damage_count:
            differences.append(f"{parsed.count:,} tables, the file has {len(self.tables):,}")
        for number, entry in enumerate(parsed.tables[: len(self.tables)]):
            table = self.tables.get(number)
            if table is None:
                continue
            if table.name != entry.name.text:
                differences.append(f"table {number} is {decode_text(entry.name.text)!s}, the file says {table.title}")
            if table.first is not None and not self.damage_count:
                cached_tids, actual_tids = (int(entry.min_tid), int(entry.max_tid)), (table.first, table.last)
                if cached_tids != actual_tids:
                    differences.append(
                        f"{table.title}: TIDs {cached_tids[0]} to {cached_tids[1]}, the file has "
                        f"{actual_tids[0]} to {actual_tids[1]}"
                    )
        return differences

    def skip_damage(self, start: int, end: int) -> None:
        """Record that transactions of any table may be lost in `[start, end)`."""
        self.damage_count += 1
        for table in self.tables.values():
            self._load_kernel_state(table)
        if self.first_damage is None:
            self.first_damage = start
            self.counts_before_stop = self.counts_before_stop or self._count_transactions_and_tables_until()

    def finish(self, tail: FileTail) -> ValidationResult:
        """Return the result at the end of the file."""
        for table in self.tables.values():
            self._load_kernel_state(table)
        stop = min((at for at in (self.blocked_offset, self.first_damage) if at is not None), default=None)
        if self.context.header in ("bad magic", "torn", "empty"):
            stop = 0 if tail.size else None
        action = self._predict_action(stop, tail)
        durable = min(tail.end, stop) if stop is not None else tail.end
        total_counts = self._count_transactions_and_tables_until()
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
            counts = self.state[PAYLOAD_COUNTS:]
            details["payloads"] = {op.name: counts[op] for op in PayloadOp if counts[op]}
        names = self.context.ops
        types = {names(op).name: count for op, count in self.op_counts.items()}
        early_ops = () if self.context.has_new_frames else self._report_ops_newer_than_version()
        return ValidationResult(
            total_counts[0], types, early_ops, durable_end=durable, facts=facts, details=MappingProxyType(details)
        )

    def _report_ops_newer_than_version(self) -> tuple[Finding, ...]:
        """Report operations that do not exist in the version of the header: the version itself may be wrong."""
        findings = []
        for op, since in schema.OP_SINCE_VERSION.items():
            if self.op_counts[op] and self.context.version < since:
                message = f"{op.name} is in the file, but came with version {since} only"
                findings.append(
                    make_finding("unknown-record-type", 4, 4, message, diagnosis="op newer than the version")
                )
        return tuple(findings)

    def _predict_action(self, stop: int | None, tail: FileTail) -> str:
        """Predict what a server of this version does with the file (`docs/spec/manticore.md#replay-of-a-file`)."""
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
