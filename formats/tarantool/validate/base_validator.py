"""Rules that the validators of all kinds of files share, and their kernels.

A kernel stops at a row that is not as expected; the validator then checks it: it has all exceptions and messages.
"""

from __future__ import annotations

from array import array
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import msgspec

from binlogtool.findings import Finding, Severity, make_finding
from binlogtool.format_api.format import FileTail, ValidationResult
from binlogtool.format_api.layout import U64, Batch, Kernel, LogFileLayout
from binlogtool.format_api.schema_fields import Int64s, MutableInt64s, UInt8s, kernel
from binlogtool.formats.tarantool.codes import (
    COMPRESS_THRESHOLD,
    FIXHEADER_SIZE,
    PLAIN_MAGIC,
    TYPE_NAMES,
    FileKind,
    RowType,
)
from binlogtool.formats.tarantool.decode import TarantoolContext, find_too_deep_rows
from binlogtool.formats.tarantool.msgpack.parse import (
    find_text_bounds,
    get_max_nesting_depth,
    load_mp_integer,
    read_container_head,
    skip_value_and_count,
)
from binlogtool.formats.tarantool.rows.parse_rows import DUPLICATE_KEY, UNKNOWN_KEY
from binlogtool.limits import Limits

__all__ = ["REQUIRED_KEYS", "UNKNOWN_KEY", "RowLocation", "TarantoolValidator", "create_kernel_state", "format_range"]


# --- Kernels of the validators ---

# State of `skip_ordered_log_rows` and `skip_ordered_snapshot_rows`: an array of 64-bit integers.
LSN_SLOTS = 0
"""[0, 32): the current component of each replica."""
TIME_SLOTS = 32
"""[32, 64): bit pattern of the last timestamp of each replica."""
TRANSACTIONS = 64
OPEN_COUNT = 65
"""Number of open transactions: 0, 1, or 2 for several (then the kernel stops at every row)."""
OPEN_REPLICA = 66
"""Replica of the open transaction; -1 as long as it has local rows only."""
OPEN_TSN = 67
OPEN_FRAME = 68
OPEN_FIRST_LSN = 69
"""LSN of the first row of the open transaction."""
LAST_SPACE = 70
OPEN_RECORD = 71
"""Number of the record that the open transaction's last row is."""
TYPE_COUNTS = 128
"""[128, 256): row counts by type; the last slot counts all higher types."""
SEEN_SPACES = 256
"""[256, 4352): id + 1 of each space seen, in the slot of the id's low 12 bits."""
STATE_SIZE = 256 + 4096


@kernel()
def has_required_keys_and_seen_space(row_type: int, body_keys: int, space: int, state: Int64s) -> bool:
    """Return whether a DML row has the required body keys, and a space that was seen before (and is not `_space`)."""
    if row_type == 12:
        return body_keys == 0
    if row_type == 2 or row_type == 3:
        required = 0x200010000
    elif row_type == 4:
        required = 0x300010000
    elif row_type == 5:
        required = 0x100010000
    elif row_type == 9:
        required = 0x10200010000
    else:
        return False
    if body_keys & required != required or body_keys >= 0x800000000000000:
        return False
    return space != 280 and space >= 0 and state[256 + (space & 4095)] == space + 1


@kernel()
def try_add_transaction_row(
    replica: int, lsn: int, tsn: int, commit: int, frame: int, record: int, state: MutableInt64s
) -> bool:
    """Add one row of a multi-statement transaction to the state; return False if anything about it is unusual."""
    if tsn < 0 or tsn > 9223372036854775807:
        return False
    if state[65] == 0:
        if (replica != 0 and tsn != lsn) or (commit != 0 and tsn != lsn):
            return False
        state[65] = 1
        state[66] = replica if replica != 0 else -1
        state[67] = tsn
        state[68] = frame
        state[69] = lsn
        state[71] = record
    else:
        if tsn != state[67] or frame != state[68]:
            return False
        if replica != 0 and replica != state[66] and (state[66] != -1 or tsn != lsn):
            return False
        if commit != 0 and replica == 0 and state[66] == -1 and tsn != state[69]:
            return False
        if replica != 0:
            state[66] = replica
    if commit != 0:
        state[65] = 0
        state[64] += 1
    return True


class LogRowColumns(NamedTuple):
    """Columns with one entry per row of a log."""

    types: Int64s
    replicas: Int64s
    lsns: Int64s
    tsns: Int64s
    times: Int64s
    flags: Int64s
    header_keys: Int64s
    body_keys: Int64s
    spaces: Int64s
    spans: Int64s


@kernel(has_required_keys_and_seen_space, try_add_transaction_row)
def skip_ordered_log_rows(
    start: int, stop: int, first_frame: int, first_record: int, rows: LogRowColumns, state: MutableInt64s
) -> int:
    """Skip rows of a log that are in order.

    In order: LSNs rise by one per replica, times do not fall, bodies have the required keys, transactions end.

    Returns:
        Index of the first row that is not in order, or `stop`.
    """
    for i in range(start, stop):
        keys = rows.header_keys[i]
        replica = rows.replicas[i]
        lsn = rows.lsns[i]
        if state[65] > 1 or keys & ~0x39D != 0 or replica < 0 or replica > 31:
            return i
        if lsn < 0 or lsn != state[replica] + 1 or rows.times[i] < state[32 + replica]:
            return i
        if not has_required_keys_and_seen_space(rows.types[i], rows.body_keys[i], rows.spaces[i], state):
            return i
        if keys & 0x100 != 0:
            frame = first_frame + rows.spans[i]
            if not try_add_transaction_row(
                replica, lsn, lsn - rows.tsns[i], rows.flags[i] & 1, frame, first_record + i, state
            ):
                return i
        elif state[65] != 0:
            return i
        else:
            state[64] += 1
        state[replica] = lsn
        state[32 + replica] = rows.times[i]
        state[128 + rows.types[i]] += 1
    return stop


@kernel()
def skip_ordered_snapshot_rows(
    start: int, stop: int, types: Int64s, replicas: Int64s, lsns: Int64s, header_keys: Int64s, body_keys: Int64s,
    spaces: Int64s, state: MutableInt64s,
) -> int:  # fmt: skip
    """Skip rows of a snapshot that are INSERTs into one space with consecutive LSNs.

    Returns:
        Index of the first other row, or `stop`.
    """
    for i in range(start, stop):
        if types[i] != 2 or replicas[i] != 0 or spaces[i] != state[70] or body_keys[i] != 0x200010000:
            return i
        if lsns[i] != state[0] + 1 or header_keys[i] & ~0x39D != 0:
            return i
        state[0] += 1
        state[64] += 1
        state[130] += 1
    return stop


@kernel()
def find_unusual_block(
    start: int, stop: int, magics: Int64s, lengths: Int64s, previous_crcs: Int64s, header_ends: Int64s,
    payload_starts: Int64s, buf: UInt8s,
) -> int:  # fmt: skip
    """Find the first unusual block: a previous crc, a nonzero filler, or uncompressed rows of 0 or at least 2029 bytes.

    Returns:
        Index of the block, or `stop`.
    """
    for i in range(start, stop):
        if previous_crcs[i] != 0:
            return i
        if (lengths[i] >= 2029 or lengths[i] == 0) and magics[i] == 0xD5BA0BAB:
            return i
        at = header_ends[i]
        end = payload_starts[i]
        if at < end and (buf[at] < 0xA0 or buf[at] > 0xBF):
            return i
        for place in range(at + 1, end):
            if buf[place] != 0:
                return i
    return stop


@kernel(read_container_head, skip_value_and_count)
def find_array_field_offset(buf: UInt8s, pos: int, limit: int, number: int) -> int:
    """Return the position of field `number` of the array at `pos`, or -1 if it has no such field."""
    if pos < 0 or pos >= limit:
        return -1
    code = buf[pos] + 0
    count, pos = read_container_head(buf, pos, limit, code)
    if code < 0x90 or code > 0xDD or number >= count:
        return -1
    for _ in range(number):
        pos, _, _, _ = skip_value_and_count(buf, pos, limit)
        if pos < 0:
            return -1
    return pos if pos < limit else -1


@kernel(load_mp_integer)
def read_sortable_integer(buf: UInt8s, p: int) -> tuple[int, int]:
    """Return (rank, value) of the mp integer at `p`; the pairs sort like the integers.

    rank 0: not an integer. rank 2: an unsigned number above the signed range.
    """
    code = buf[p] + 0
    if code < 0x80:
        return 1, code
    if code >= 0xE0:
        return 1, code - 256
    if code < 0xCC or code > 0xD3:
        return 0, 0
    value = load_mp_integer(buf, p, code)
    return (2, value) if code == 0xCF and value < 0 else (1, value)


@kernel(read_sortable_integer)
def compare_integers(buf: UInt8s, a: int, b: int) -> int:
    """Compare the mp integers at `a` and `b`: -1, 0 or 1; 0 if either is not an integer."""
    rank_a, value_a = read_sortable_integer(buf, a)
    rank_b, value_b = read_sortable_integer(buf, b)
    if rank_a == 0 or rank_b == 0 or (rank_a == rank_b and value_a == value_b):
        return 0
    if rank_a != rank_b:
        return -1 if rank_a < rank_b else 1
    return -1 if value_a < value_b else 1


@kernel(find_text_bounds)
def compare_strings(buf: UInt8s, a: int, end_a: int, b: int, end_b: int) -> int:
    """Compare the mp strings at `a` and `b` byte by byte: -1, 0 or 1; 0 if either is not a string."""
    a, last_a = find_text_bounds(buf, a, end_a)
    b, last_b = find_text_bounds(buf, b, end_b)
    if last_a < 0 or last_b < 0:
        return 0
    while a < last_a and b < last_b:
        if buf[a] != buf[b]:
            return -1 if buf[a] < buf[b] else 1
        a += 1
        b += 1
    if last_a - a == last_b - b:
        return 0
    return -1 if last_a - a < last_b - b else 1


@kernel(find_array_field_offset, compare_integers, compare_strings)
def find_unordered_key(
    start: int, stop: int, buf: UInt8s, tuples: Int64s, ends: Int64s, parts: Int64s, part_count: int
) -> int:
    """Find the first row in (start, stop) whose key is less than that of the row before; `stop` if there is none.

    Args:
        parts: `part_count` pairs of field number and kind (0 = integer, 1 = string).
    """
    for i in range(start + 1, stop):
        for part in range(0, 2 * part_count, 2):
            a = find_array_field_offset(buf, tuples[i - 1], ends[i - 1], parts[part])
            b = find_array_field_offset(buf, tuples[i], ends[i], parts[part])
            if a < 0 or b < 0:
                break
            if parts[part + 1] == 0:
                order = compare_integers(buf, a, b)
            else:
                order = compare_strings(buf, a, ends[i - 1], b, ends[i])
            if order > 0:
                return i
            if order < 0:
                break
    return stop


# --- Base of the validators of all five kinds of files ---

SPACE_ID, KEY, TUPLE, OPS = 0x10, 0x20, 0x21, 0x28
REQUIRED_KEYS: Mapping[int, tuple[int, ...]] = {
    RowType.INSERT: (SPACE_ID, TUPLE),
    RowType.REPLACE: (SPACE_ID, TUPLE),
    RowType.UPDATE: (SPACE_ID, KEY, TUPLE),
    RowType.DELETE: (SPACE_ID, KEY),
    RowType.UPSERT: (SPACE_ID, TUPLE, OPS),
    RowType.NOP: (),
    RowType.INSERT_ARROW: (SPACE_ID, 0x36),
    RowType.DELETE_RANGE: (SPACE_ID, 0x37, 0x38),
    RowType.RAFT: (),
    RowType.RAFT_PROMOTE: (2, 3),
    RowType.RAFT_DEMOTE: (2, 3),
    RowType.CONFIRM: (2, 3),
    RowType.ROLLBACK: (2, 3),
}
"""Body keys that a row of a log must have (docs/spec/tarantool.md#row-types)."""


class RowLocation(NamedTuple):
    """Location of a row: offset, size and index of its block, and the row's number in the file."""

    offset: int
    size: int
    frame: int
    record: int


class BlockNote(msgspec.Struct):
    """Unusual property of blocks, reported once per file with the number of blocks that have it."""

    location: RowLocation
    text: str
    id: str
    severity: Severity = Severity.WARNING
    count: int = 1


def create_kernel_state(compile_: Any) -> Any:
    """Create the state of a kernel: a list for the interpreter, an array of 64-bit integers for compiled code."""
    return (
        [0] * STATE_SIZE
        if compile_(skip_ordered_log_rows) is skip_ordered_log_rows
        else array("q", bytes(8 * STATE_SIZE))
    )


def format_range(numbers: Sequence[int]) -> str:
    """Format the first and last number as `5` or `5..9`."""
    return str(numbers[0]) if numbers[0] == numbers[-1] else f"{numbers[0]}..{numbers[-1]}"


class TarantoolValidator:
    """Base class of the validators. Each kind of file overrides `check_rows` and `check_end`."""

    def __init__(self, layout: LogFileLayout, compile_: Any, limits: Limits) -> None:
        self.context: TarantoolContext = layout.context
        self.frames_at = layout.frames_at
        self.max_depth = get_max_nesting_depth(limits)
        self.type_counts: Counter[str] = Counter()
        self.damaged_ranges: list[tuple[int, int]] = []
        self._block_notes: dict[str, BlockNote] = {}
        self._last_block = (-1, -1), 0, 0
        """Key, offset and size of the block that was located last: consecutive rows are often in the same block."""
        self._find_odd_block: Kernel = compile_(find_unusual_block)

    # -- interface of the engine ---------------------------------------------------------------------------------------
    # ----------------------------------------------------------------------

    def validate_batch(self, batch: Batch) -> Sequence[Finding]:
        """Return the findings of a batch."""
        # Count blocks that use unused fields, or that are large but not compressed
        frames = batch.frames
        names = ("magic", "header.length", "header.crc32p", "header.end", "payload_start")
        columns = (*(frames[name] for name in names), batch.window)
        index = 0
        while (index := self._find_odd_block(index, frames.count, *columns)) < frames.count:
            self._count_unusual_block_fields(batch, index)
            index += 1
        findings = [*self.check_rows(batch), *find_too_deep_rows(batch, self.max_depth)]
        return [self.context.cap_severity_for_unread_file(one) for one in findings]

    def skip_damage(self, start: int, end: int) -> None:
        """Record that a range of the file was skipped."""
        self.damaged_ranges.append((start, end))

    def finish(self, tail: FileTail) -> ValidationResult:
        """Return the result for the whole file."""
        return self.create_validation_result(
            tail,
            [
                self.context.cap_severity_for_unread_file(found)
                for found in (*self.report_block_notes(), *self.check_end(tail))
            ],
        )

    # -- overridden methods --------------------------------------------------------------------------------------------

    def check_rows(self, batch: Batch) -> list[Finding]:
        """Return the findings about the rows of a batch."""
        raise AssertionError("abstract")  # pragma: no cover

    def check_end(self, tail: FileTail) -> list[Finding]:
        """Return the findings that are only certain at the end of the file."""
        return []

    def create_validation_result(self, tail: FileTail, findings: list[Finding]) -> ValidationResult:
        """Combine counts, facts and findings into a result."""
        return ValidationResult(sum(self.type_counts.values()), dict(self.type_counts), tuple(findings))

    # -- shared methods --------------------------------------------------------------------------------------------

    def locate_row(self, batch: Batch, index: int) -> RowLocation:
        """Locate row `index` of a batch."""
        return self.locate_block(batch, batch.frame_index(index), batch.first_record + index)

    def locate_block(self, batch: Batch, frame: int, record: int) -> RowLocation:
        """Locate block `frame` of a batch; `record` is the number of the row in question."""
        key = (batch.base, batch.first_frame + frame)
        if self._last_block[0] != key:
            low, high = int(batch.frames["offset"][frame]), int(batch.frames["end"][frame])
            self._last_block = key, batch.base + low, high - low
        _, offset, size = self._last_block
        return RowLocation(offset, size, key[1], record)

    def create_finding(self, id_: str, location: RowLocation, text: str, diagnosis: str, **facts: Any) -> Finding:
        """Create a finding about the block of a row."""
        return make_finding(
            id_, location.offset, location.size, text, record=location.record, diagnosis=diagnosis, **facts
        )

    def check_body_keys(
        self, batch: Batch, index: int, location: RowLocation, required: Sequence[int]
    ) -> list[Finding]:
        """Report keys that occur twice, and required keys that are missing."""
        table = batch.records
        header, body = int(table["header_keys"][index]), int(table["body_keys"][index])
        findings = []
        if (header | body) & DUPLICATE_KEY:
            findings.append(
                self.create_finding("duplicate-key", location, "a key occurs twice in a row", "duplicate_key")
            )
        missing = [f"{key:#04x}" for key in required if not body >> key & 1]
        if missing:
            name = TYPE_NAMES[int(table["type"][index])]
            text = f"{name} without the body key {' and '.join(missing)}"
            findings.append(self.create_finding("payload-undecodable", location, text, "missing_body_key"))
        return findings

    def report_wrong_type(self, batch: Batch, index: int, location: RowLocation, diagnosis: str) -> Finding:
        """Report a row type that this kind of file must not contain: the server refuses it."""
        name = TYPE_NAMES[int(batch.records["type"][index]) & U64]
        text = f"a row of type {name} in a {self.context.kind} file"
        return self.create_finding("unknown-record-type", location, text, diagnosis, severity=Severity.ERROR)

    def count_unusual_block(
        self, diagnosis: str, id_: str, location: RowLocation, text: str, severity: Severity = Severity.WARNING
    ) -> None:
        """Count an unusual property of a block; `diagnosis` is its diagnosis."""
        note = self._block_notes.get(diagnosis)
        if note:
            note.count += 1
        else:
            self._block_notes[diagnosis] = BlockNote(location, text, id_, severity)

    def report_block_notes(self) -> list[Finding]:
        """Return one finding for each kind of unusual block."""
        return [
            self.create_finding(
                r.id, r.location, r.text + (f"; {r.count:,} blocks like this" if r.count > 1 else ""), kind,
                severity=r.severity, blocks=r.count,
            )
            for kind, r in self._block_notes.items()
        ]  # fmt: skip

    def _count_unusual_block_fields(self, batch: Batch, index: int) -> None:
        """Count each unusual property of a block: previous crc, filler, no rows, large but not compressed."""
        table = batch.frames
        location = self.locate_block(batch, index, batch.first_record)
        if int(table["header.crc32p"][index]):
            self.count_unusual_block(
                "previous_crc_used", "reserved-bits-set", location, "the unused field `previous crc` is not zero"
            )
        filler = bytes(batch.window[int(table["header.end"][index]) : int(table["payload_start"][index])])
        if (filler[1:].strip(b"\0") or not 0xA0 <= filler[0] <= 0xBF) and self._was_written_after_1_7():
            self.count_unusual_block(
                "padding_not_zero", "reserved-bits-set", location, "the filler of the block's header is not zero"
            )
        if not int(table["header.length"][index]) and table["magic"][index] == PLAIN_MAGIC:
            text = "a block without rows: the server cannot allocate 0 bytes for them, and does not start"
            self.count_unusual_block("empty_block", "length-out-of-bounds", location, text, Severity.ERROR)
        is_large = int(table["header.length"][index]) + FIXHEADER_SIZE >= COMPRESS_THRESHOLD
        if (
            is_large
            and table["magic"][index] == PLAIN_MAGIC
            and self.context.kind is FileKind.XLOG
            and self._was_written_after_1_7()
        ):
            text = "a block of 2 KiB or more is not compressed"
            self.count_unusual_block("plain_block_large", "length-out-of-bounds", location, text)

    def _was_written_after_1_7(self) -> bool:
        """True unless a server up to 1.7 wrote the file: those left garbage in the filler, and compressed less."""
        version = self.context.version or "1."
        return not version.startswith("1.")
