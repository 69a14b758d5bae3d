"""Assemble records from the chunks of pages.

See docs/spec/mariadb_innodb_binlog.md#chunks-and-records. A record in one chunk stays at its position in the window;
records of several chunks are joined in memory after the pages.
"""

from __future__ import annotations

import enum
from array import array
from collections.abc import Callable, Iterator
from itertools import chain
from typing import Any, NamedTuple

import msgspec

from binlogtool.findings import Finding, Severity, make_finding
from binlogtool.format_api.layout import Batch, ColumnTable, Kernel, RecordPositions, zeroed_int64
from binlogtool.format_api.schema_fields import MutableInt64s, UInt8s, kernel
from binlogtool.formats.mariadb_innodb_binlog.records.parse_records import (
    is_followed_by_crash_leftovers,
    iter_next_file_pages,
    iter_sound_pages_of_file,
)
from binlogtool.formats.mariadb_innodb_binlog.schema import (
    CHUNK_HEAD_SIZE,
    CONTINUATION_FLAG,
    CRC_SIZE,
    FILLER_BYTE,
    LAST_CHUNK_FLAG,
    TYPE_MASK,
    IbbFileContext,
    IbbRecordType,
    load_chunk_head,
)
from binlogtool.limits import KIB, MIB

# --- Kernel that walks the chunks of pages ---

# ruff: noqa: SIM109 - kernels have no `in`

WALK_BYTES = 256 * KIB
"""Number of bytes of pages that are walked at once."""


class ChunkStep(enum.IntEnum):
    """Role of a chunk in its record; the values from ORPHAN on are faults, or the end of data."""

    WHOLE = 0
    """A record of one chunk, not nested."""
    BEGIN = 1
    CONTINUE = 2
    FINISH = 3
    NESTED_WHOLE = 4
    NESTED_BEGIN = 5
    NESTED_CONTINUE = 6
    NESTED_FINISH = 7
    FOREIGN = 8
    """Continues a record that began in the previous file or in a damaged range; its last chunk has LAST_CHUNK_FLAG in
    the type.
    """
    ORPHAN = 9
    """Continues a record that was never begun."""
    BROKEN = 10
    """The open record lacks its end; the same chunk is also the next step."""
    BAD_TYPE = 11
    BAD_LENGTH = 12
    BAD_FILLER = 13
    END = 14
    """A type byte of 0: the data of the file ends here."""
    GARBAGE = 15
    """Bytes after the end, in the same page."""
    AFTER_END = 16
    """A page with data after the end of data."""
    TOO_MANY_CHUNKS = 17
    """Far more chunks than a page can have, because records are only split at the ends of pages."""


# State of the walk: an array of 64-bit integers.
OPEN_TYPE, NESTED_TYPE, END_SEEN, ROW_COUNT, SPECIAL_COUNT, STATE_SIZE = 0, 1, 2, 3, 4, 5
"""Types of the open record and of the one nested in it (0 = none); 1 if the end was seen; rows and special rows."""

FOREIGN_BIT = 64
"""Bit of OPEN_TYPE: the beginning of the open record was not read."""
UNKNOWN_TYPE = 127
"""OPEN_TYPE at the start of a file and after damage: a record of unknown type may continue here."""


(
    _WHOLE, _OPENS, _MORE, _CLOSES, _NESTED_WHOLE, _NESTED_OPENS, _NESTED_MORE, _NESTED_CLOSES, _FOREIGN, _ORPHAN,
    _BROKEN, _BAD_TYPE, _BAD_LENGTH, _BAD_FILLER, _END, _GARBAGE, _AFTER_END, _TOO_MANY_CHUNKS,
) = (int(step) for step in ChunkStep)  # fmt: skip
_STATE, _DUMMY, _LAST_TYPE = IbbRecordType.GTID_STATE.value, IbbRecordType.DUMMY.value, IbbRecordType.XA_COMPLETE.value
_MAX_SPECIAL_ROWS = 64
"""Maximum number of special rows of a page."""


class ChunkRows(NamedTuple):
    """Memory of the walk: its state, four numbers per row, and the indexes of special rows (not whole records)."""

    state: MutableInt64s
    rows: MutableInt64s
    specials: MutableInt64s


@kernel()
def append_chunk_row(chunk_role: int, record_type: int, start: int, end: int, out: ChunkRows) -> int:
    """Append a row; every row except a whole record is special."""
    row = out.state[ROW_COUNT]
    out.rows[4 * row] = chunk_role
    out.rows[4 * row + 1] = record_type
    out.rows[4 * row + 2] = start
    out.rows[4 * row + 3] = end
    out.state[ROW_COUNT] = row + 1
    if chunk_role != _WHOLE:
        out.specials[out.state[SPECIAL_COUNT]] = row
        out.state[SPECIAL_COUNT] += 1
    return 0


@kernel(append_chunk_row)
def append_fault(step: int, record_type: int, start: int, end: int, out: ChunkRows) -> int:
    """Append the row of a fault; a record of unknown type may continue after it."""
    append_chunk_row(step, record_type, start, end, out)
    out.state[OPEN_TYPE] = UNKNOWN_TYPE
    out.state[NESTED_TYPE] = 0
    return 0


@kernel()
def find_nonzero_byte(buf: UInt8s, pos: int, limit: int) -> int:
    """Return the position of the first byte in `[pos, limit)` that is not zero, or `limit`."""
    while pos < limit and buf[pos] == 0:
        pos += 1
    return pos


@kernel(append_chunk_row)
def classify_chunk_and_append_row(flags: int, record_type: int, start: int, end: int, out: ChunkRows) -> int:
    """Append the row of a chunk with its role (begin, continue, finish, nested, orphan, …), and update the open record
    types.
    """
    if out.state[NESTED_TYPE] != 0:
        if record_type == out.state[NESTED_TYPE] and flags & CONTINUATION_FLAG:
            append_chunk_row(_NESTED_CLOSES if flags & LAST_CHUNK_FLAG else _NESTED_MORE, record_type, start, end, out)
            if flags & LAST_CHUNK_FLAG:
                out.state[NESTED_TYPE] = 0
            return 0
        append_chunk_row(_BROKEN, out.state[NESTED_TYPE], start, start, out)
        out.state[OPEN_TYPE] = 0
        out.state[NESTED_TYPE] = 0
    if out.state[OPEN_TYPE] != 0:
        if flags & CONTINUATION_FLAG and (
            out.state[OPEN_TYPE] == UNKNOWN_TYPE or record_type == out.state[OPEN_TYPE] & TYPE_MASK
        ):
            if out.state[OPEN_TYPE] & FOREIGN_BIT:
                append_chunk_row(_FOREIGN, record_type | flags & LAST_CHUNK_FLAG, start, end, out)
            else:
                append_chunk_row(_CLOSES if flags & LAST_CHUNK_FLAG else _MORE, record_type, start, end, out)
            if flags & LAST_CHUNK_FLAG:
                out.state[OPEN_TYPE] = 0
            elif out.state[OPEN_TYPE] == UNKNOWN_TYPE:
                out.state[OPEN_TYPE] = record_type | FOREIGN_BIT
            return 0
        if (record_type == _STATE or record_type == _DUMMY) and not flags & CONTINUATION_FLAG:
            append_chunk_row(_NESTED_WHOLE if flags & LAST_CHUNK_FLAG else _NESTED_OPENS, record_type, start, end, out)
            if not flags & LAST_CHUNK_FLAG:
                out.state[NESTED_TYPE] = record_type
            return 0
        if out.state[OPEN_TYPE] != UNKNOWN_TYPE:
            append_chunk_row(_BROKEN, out.state[OPEN_TYPE] & TYPE_MASK, start, start, out)
        out.state[OPEN_TYPE] = 0
    if flags & CONTINUATION_FLAG:
        append_chunk_row(_ORPHAN, record_type, start, end, out)
        if not flags & LAST_CHUNK_FLAG:
            out.state[OPEN_TYPE] = record_type | FOREIGN_BIT
    elif flags & LAST_CHUNK_FLAG:
        append_chunk_row(_WHOLE, record_type, start, end, out)
    else:
        append_chunk_row(_OPENS, record_type, start, end, out)
        out.state[OPEN_TYPE] = record_type
    return 0


@kernel(append_chunk_row, find_nonzero_byte)
def append_end_of_data_rows(buf: UInt8s, page_at: int, end_at: int, limit: int, origin: int, out: ChunkRows) -> int:
    """Process a type byte of 0 at `buf[end_at]` in the page at `buf[page_at]`: only zeros may follow."""
    if out.state[END_SEEN] == 0:
        append_chunk_row(_END, 0, end_at - origin, end_at - origin, out)
    out.state[END_SEEN] = 1
    nonzero_at = find_nonzero_byte(buf, end_at, limit)
    if nonzero_at < limit:
        append_chunk_row(_GARBAGE, 1 if end_at == page_at else 0, nonzero_at - origin, limit - origin, out)
    return 0


@kernel(append_fault, append_chunk_row, load_chunk_head, classify_chunk_and_append_row, append_end_of_data_rows)
def write_and_count_chunk_rows(
    buf: UInt8s, page_at: int, page_count: int, page_size: int, origin: int, out: ChunkRows
) -> int:
    """Walk the chunks of the pages from `buf[page_at]` on.

    Writes rows (step, type, start of data, end of data) with positions relative to `origin`; returns their number.
    """
    out.state[ROW_COUNT] = 0
    out.state[SPECIAL_COUNT] = 0
    for _ in range(page_count):
        limit = page_at + page_size - CRC_SIZE
        at = page_at
        specials_before = out.state[SPECIAL_COUNT]
        if out.state[END_SEEN] != 0 and buf[page_at] != 0:
            append_fault(_AFTER_END, 0, page_at - origin, limit - origin, out)
            out.state[END_SEEN] = 0
        while at <= limit - CHUNK_HEAD_SIZE - 1:
            byte = buf[at]
            record_type = byte & TYPE_MASK
            if byte == 0:
                append_end_of_data_rows(buf, page_at, at, limit, origin, out)
                break
            if record_type == 0 or record_type > _LAST_TYPE:
                append_fault(_BAD_TYPE, byte, at - origin, limit - origin, out)
                break
            if out.state[SPECIAL_COUNT] - specials_before > _MAX_SPECIAL_ROWS:
                append_fault(_TOO_MANY_CHUNKS, record_type, at - origin, limit - origin, out)
                break
            _type, length, data = load_chunk_head(buf, at, limit)
            end = data + length
            if end == at + CHUNK_HEAD_SIZE or end > limit:
                append_fault(_BAD_LENGTH, record_type, at - origin, limit - origin, out)
                break
            flags = byte & (CONTINUATION_FLAG | LAST_CHUNK_FLAG)
            classify_chunk_and_append_row(flags, record_type, at + CHUNK_HEAD_SIZE - origin, end - origin, out)
            at = end
        if at > limit - CHUNK_HEAD_SIZE - 1 and at < limit:
            if buf[at] == 0:
                append_end_of_data_rows(buf, page_at, at, limit, origin, out)
            else:
                for i in range(at, limit):
                    if buf[i] != FILLER_BYTE:
                        append_chunk_row(_BAD_FILLER, buf[i], at - origin, limit - origin, out)
                        break
        page_at += page_size
    count: int = out.state[ROW_COUNT]
    return count


class ChunkWalker:
    """Runs `write_and_count_chunk_rows`.

    `rows`: four numbers per row. `specials`: indexes of rows that are not whole records. `pages`: maximum number of
    pages per call.
    """

    def __init__(self, page_size: int, compile_kernel: Callable[[Kernel], Kernel]) -> None:
        self.page_size = page_size
        self.pages = max(1, WALK_BYTES // page_size)
        max_rows = self.pages * (page_size // 4 + 3) * 2
        self.rows = zeroed_int64(4 * max_rows)
        self.specials = zeroed_int64(max_rows)
        self.state = array("q", bytes(8 * STATE_SIZE))
        self.state[OPEN_TYPE] = UNKNOWN_TYPE
        self._memory = ChunkRows(self.state, self.rows, self.specials)
        self._run = compile_kernel(write_and_count_chunk_rows)

    def __call__(self, window: memoryview, start: int, pages: int, origin: int) -> int:
        """Walk at most `self.pages` pages from `window[start]` on; return the number of rows."""
        return int(self._run(window, start, pages, self.page_size, origin, self._memory))


# --- Records assembled from the chunks of pages ---

RECORD_COLUMNS = ("offset", "end", "checksum", "type_code", "chunks", "nested", "place", "size", "stop")
"""Columns of records: bounds of the data in the window, type, number of chunks, 1 if nested; file offset of the first
chunk, total size of the chunks, file offset after the last chunk in this file. checksum is 1: the CRCs of the pages are
right."""

_FINDING_KINDS = {
    ChunkStep.BAD_TYPE: ("bad-header", "bad-chunk"),
    ChunkStep.BAD_LENGTH: ("length-out-of-bounds", "bad-chunk"),
    ChunkStep.TOO_MANY_CHUNKS: ("bad-header", "bad-chunk"),
    ChunkStep.BAD_FILLER: ("garbage-tail", "bad-chunk"),
    ChunkStep.GARBAGE: ("garbage-tail", "garbage-after-end"),
    ChunkStep.AFTER_END: ("gap-in-sequence", "hole"),
    ChunkStep.ORPHAN: ("gap-in-sequence", "page-order"),
    ChunkStep.BROKEN: ("gap-in-sequence", "missing-end-chunk"),
}


class PartialRecord(msgspec.Struct):
    """Record of several chunks, as far as they were read.

    `offset`: file offset of its first chunk. `size`: bytes of its chunks so far. `stop`: file offset after its last
    chunk so far. `too_long`: it exceeds the size limit; its data is incomplete.
    """

    kind: int
    offset: int
    size: int = 0
    chunks: int = 0
    stop: int = 0
    data: bytearray = msgspec.field(default_factory=bytearray)
    too_long: bool = False

    def add_chunk(self, data: memoryview, max_bytes: int, stop: int | None = None) -> None:
        """Add a chunk that ends at file offset `stop`; data beyond the limit is counted but not kept."""
        self.stop = self.stop if stop is None else stop
        self.size += len(data) + CHUNK_HEAD_SIZE
        self.chunks += 1
        self.too_long |= len(self.data) + len(data) > max_bytes
        if not self.too_long:
            self.data += data

    @property
    def size_in_file(self) -> int:
        """Number of bytes in the file of the record's beginning, without chunks in the next file."""
        return max(self.stop - self.offset, 0)

    def __str__(self) -> str:
        return f"{IbbRecordType(self.kind).name} at {self.offset:#x}"


class _RecordColumns:
    """Records of one part of the file: columns over `window`, which begins with the pages themselves."""

    def __init__(self, pages: memoryview, base: int) -> None:
        self.window = bytearray(pages)
        self.base = base
        self.columns = {name: array("q") for name in RECORD_COLUMNS}

    @property
    def count(self) -> int:
        """Number of records so far."""
        return len(self.columns["offset"])

    def add_single_chunk_records(self, rows: memoryview[int], first: int, last: int) -> None:
        """Add the rows `[first, last)` of the walk; each is a record of one chunk."""
        columns, count = self.columns, last - first
        starts, ends = rows[4 * first + 2 : 4 * last : 4], rows[4 * first + 3 : 4 * last : 4]
        columns["offset"].extend(starts)
        columns["end"].extend(ends)
        columns["type_code"].extend(rows[4 * first + 1 : 4 * last : 4])
        columns["checksum"].extend(_ONE * count)
        columns["chunks"].extend(_ONE * count)
        columns["nested"].extend(_ZERO * count)
        columns["place"].extend([start + self.base - CHUNK_HEAD_SIZE for start in starts])
        columns["size"].extend([end - start + CHUNK_HEAD_SIZE for start, end in zip(starts, ends, strict=True)])
        columns["stop"].extend([end + self.base for end in ends])

    def add_joined_record(self, part: PartialRecord, nested: bool) -> None:
        """Add a record of several chunks, or a nested one."""
        start = len(self.window)
        self.window += part.data
        values = (start, len(self.window), 1, part.kind, part.chunks, int(nested), part.offset, part.size, part.stop)
        for name, value in zip(RECORD_COLUMNS, values, strict=True):
            self.columns[name].append(value)


_BEGIN_STEPS = frozenset({ChunkStep.BEGIN, ChunkStep.NESTED_WHOLE, ChunkStep.NESTED_BEGIN})
_CONTINUE_STEPS = frozenset({ChunkStep.CONTINUE, ChunkStep.FINISH, ChunkStep.NESTED_CONTINUE, ChunkStep.NESTED_FINISH})

_NESTED_STEPS = frozenset(step for step in ChunkStep if step.name.startswith("NESTED"))
_STEPS_BEFORE_FINISH = _NESTED_STEPS | {ChunkStep.CONTINUE}
"""Steps that may come, in the next file, before the last chunk of a record that continues there."""
_LOSING_STEPS = frozenset(
    {ChunkStep.BROKEN, ChunkStep.BAD_TYPE, ChunkStep.BAD_LENGTH, ChunkStep.TOO_MANY_CHUNKS, ChunkStep.AFTER_END}
)
"""Steps after which the open record can no longer be completed."""

_MAX_HELD_BYTES = 16 * MIB
_PART_COST = 256

_ONE, _ZERO = array("q", [1]), array("q", [0])


class RecordAssembler:
    """Assembler of the page records of one file (`format_api.layout.Assembler`), in the order of their first chunks."""

    def __init__(self, context: IbbFileContext, compile_kernel: Callable[[Kernel], Kernel]) -> None:
        self.context = context
        self.next_number = context.first_record
        self.pages = 0
        self._walker = ChunkWalker(context.page_size, compile_kernel)
        self._open_record: PartialRecord | None = None
        self._nested_record: PartialRecord | None = None
        self._in_foreign_record = False
        self._held_records: list[PartialRecord] = []
        self._held_bytes = 0
        self._read_end = 0
        self._damage_count = 0
        self._leading_closed = False
        self._reported_pages: dict[ChunkStep, int] = {}
        self._damage: tuple[int, int] | None = None

    @property
    def first_pending_offset(self) -> int | None:
        """File offset of the first record that has begun but was not returned yet; None = no such record."""
        parts = (self._open_record, self._nested_record, *self._held_records[:1])
        return min((part.offset for part in parts if part is not None), default=None)

    def assemble(self, batch: Batch) -> Iterator[Batch | Finding]:
        """Yield the records that end in these pages, and findings about the chain of chunks."""
        if self._damage is not None:
            state, self._damage = self._walker.state, None
            state[OPEN_TYPE], state[NESTED_TYPE] = UNKNOWN_TYPE, 0
            self._open_record, self._nested_record, self._in_foreign_record = None, None, False
        window, size, pages_per_walk = batch.window, self.context.page_size, self._walker.pages
        first, count = int(batch.frames["offset"][0]), batch.frames.count
        self._read_end = batch.base + first + count * size
        for page in range(0, count, pages_per_walk):
            start, pages = first + page * size, min(pages_per_walk, count - page)
            yield from self._assemble_records_of_pages(window[start : start + pages * size], batch.base + start, pages)

    def _assemble_records_of_pages(
        self, page_bytes: memoryview, file_offset: int, page_count: int
    ) -> Iterator[Batch | Finding]:
        walker = self._walker
        count = walker(page_bytes, 0, page_count, 0)
        records, findings, row = _RecordColumns(page_bytes, file_offset), list[tuple[int, Finding]](), 0
        for special in (*walker.specials[: walker.state[SPECIAL_COUNT]], count):
            if special > row:
                self._add_held_records(records, nested=False)
                records.add_single_chunk_records(walker.rows, row, special)
            if special < count:
                for problem in self._process_special_row(
                    records, page_bytes, walker.rows[4 * special : 4 * special + 4].tolist()
                ):
                    findings.append((records.count, problem))
            row = special + 1
        seen = self.context.scan_summary
        seen.end = file_offset + (walker.rows[4 * count - 1] if count else 0)
        self.pages += page_count
        yield from self._interleave_records_and_findings(records, findings)

    def _interleave_records_and_findings(
        self, records: _RecordColumns, findings: list[tuple[int, Finding]]
    ) -> Iterator[Batch | Finding]:
        """Yield the records, each finding after the records that were assembled before it."""
        index = 0
        for before, problem in findings:
            yield from self._make_batch(records, index, before)
            index = before
            yield problem
        yield from self._make_batch(records, index, records.count)

    def _make_batch(self, records: _RecordColumns, start: int, stop: int) -> Iterator[Batch]:
        if stop <= start:
            return
        is_all = stop - start == records.count
        columns = records.columns if is_all else {name: column[start:stop] for name, column in records.columns.items()}
        window = memoryview(records.window)
        first, self.next_number = self.next_number, self.next_number + stop - start
        yield Batch(
            0, window, ColumnTable(stop - start, columns), window, None, (), (), first, first,
            positions=RecordPositions(columns["place"], columns["size"]),
        )  # fmt: skip

    # -- records of several chunks -------------------------------------------------------------------------------------

    def _process_special_row(self, records: _RecordColumns, data: memoryview, row: list[int]) -> Iterator[Finding]:
        step, type_byte, start, end = ChunkStep(row[0]), row[1], row[2], row[3]
        if step in _BEGIN_STEPS:
            if step is ChunkStep.BEGIN:
                self._add_held_records(records, nested=False)
            part = PartialRecord(type_byte, records.base + start - CHUNK_HEAD_SIZE)
            part.add_chunk(data[start:end], self.context.max_record, records.base + end)
            if step is ChunkStep.BEGIN:
                self._open_record, self._in_foreign_record = part, False
            elif step is ChunkStep.NESTED_BEGIN:
                self._nested_record = part
            else:
                yield from self._hold_nested_record(records, part)
        elif step in _CONTINUE_STEPS:
            partial = self._nested_record if step in _NESTED_STEPS else self._open_record
            if partial is None:
                return  # the record was dropped before
            partial.add_chunk(data[start:end], self.context.max_record, records.base + end)
            if step is ChunkStep.FINISH:
                yield from self._close_record(records, partial)
            elif step is ChunkStep.NESTED_FINISH:
                self._nested_record = None
                yield from self._hold_nested_record(records, partial)
        elif step is ChunkStep.FOREIGN:
            if not self._leading_closed and not self._damage_count:
                self._leading_closed = bool(type_byte & LAST_CHUNK_FLAG)
                seen = self.context.scan_summary
                seen.leading_type = seen.leading_type or type_byte & TYPE_MASK
                seen.leading_end = records.base + end if type_byte & LAST_CHUNK_FLAG else 0
            self._add_held_records(records, nested=True)
            self._in_foreign_record = not type_byte & LAST_CHUNK_FLAG
        else:
            yield from self._report_fault_and_drop_record(records, step, type_byte, start, end)

    def _hold_nested_record(self, records: _RecordColumns, part: PartialRecord) -> Iterator[Finding]:
        """Keep a nested record until the end of the record around it, up to a memory limit."""
        self._held_records.append(part)
        self._held_bytes += len(part.data) + _PART_COST
        if self._held_bytes > _MAX_HELD_BYTES:
            if self._open_record is not None:
                text = (
                    f"the {self._open_record} has no end: {len(self._held_records):,} records are nested in it so far"
                )
                yield self._make_finding(ChunkStep.BROKEN, self._open_record.offset, self._open_record.size, text)
            self._open_record = None
            self._walker.state[OPEN_TYPE] = UNKNOWN_TYPE
            self._add_held_records(records, nested=False)

    def _close_record(self, records: _RecordColumns, part: PartialRecord) -> Iterator[Finding]:
        """Complete the open record: add it, followed by the records nested in it."""
        self._open_record = None
        if part.too_long:
            yield self._report_too_long(part)
        else:
            records.add_joined_record(part, False)
        self._add_held_records(records, nested=True)

    def _add_held_records(self, records: _RecordColumns, nested: bool) -> None:
        for part in self._held_records:
            records.add_joined_record(part, nested)
        self._held_records.clear()
        self._held_bytes = 0

    def _report_too_long(self, part: PartialRecord) -> Finding:
        max_bytes = self.context.max_record
        text = f"{part}: {part.size:,} bytes in {part.chunks:,} chunks, over the ceiling of {max_bytes:,}"
        text += "; raise it with --max record=SIZE"
        return make_finding(
            "length-out-of-bounds", part.offset, part.size, text, ceiling=max_bytes, diagnosis="record-too-long"
        )

    def _report_fault_and_drop_record(
        self, records: _RecordColumns, step: ChunkStep, type_byte: int, start: int, end: int
    ) -> Iterator[Finding]:
        """Yield the findings about a fault, and drop the open record if the fault makes it incomplete."""
        offset = records.base + start
        page = offset // self.context.page_size
        if step is ChunkStep.END:
            self.context.scan_summary.data_end = offset
            return
        if step is ChunkStep.ORPHAN:
            offset -= CHUNK_HEAD_SIZE
            text = (
                f"a chunk continues a {IbbRecordType(type_byte).name} record that was "
                "not begun; pages are in a wrong order, or one is an old copy"
            )
            if self._reported_pages.get(step) != page:  # report a fault once per page
                yield self._make_finding(step, offset, records.base + end - offset, text)
            self._reported_pages[step] = page
        elif step is not ChunkStep.BROKEN:
            yield self._report_page_fault(step, type_byte, offset, records.base + end)
        if step not in _LOSING_STEPS:
            return
        lost = self._nested_record or self._open_record
        if lost is not None and self._reported_pages.get(ChunkStep.BROKEN) != page:
            self._reported_pages[ChunkStep.BROKEN] = page
            text = f"the {lost} has no last chunk; there is something else at {offset:#x}"
            yield self._make_finding(ChunkStep.BROKEN, lost.offset, max(offset - lost.offset, 1), text)
        is_nested = step is ChunkStep.BROKEN or self._has_open_record()
        self._open_record, self._nested_record, self._in_foreign_record = None, None, False
        self._add_held_records(records, nested=is_nested)

    def _report_page_fault(self, step: ChunkStep, type_byte: int, offset: int, end: int) -> Finding:
        texts = {
            ChunkStep.BAD_TYPE: f"chunk type byte {type_byte:#04x} is invalid; the rest of the page cannot be read",
            ChunkStep.BAD_LENGTH: "the length of a chunk is impossible; the rest of the page cannot be read",
            ChunkStep.TOO_MANY_CHUNKS: "more chunks than a page can have; the rest of the page is not read",
            ChunkStep.BAD_FILLER: "the last bytes of the page are not filler",
            ChunkStep.GARBAGE: "bytes after the end of data (a type byte of 0)",
            ChunkStep.AFTER_END: "data after the end of data; readers stop before this page and never reach it",
        }
        severity = Severity.ERROR if step is ChunkStep.GARBAGE and type_byte else None
        text = (
            "a page that is not empty although its first byte is 0; servers consider it empty"
            if severity
            else texts[step]
        )
        return self._make_finding(step, offset, end - offset, text, severity)

    def _make_finding(
        self, step: ChunkStep, offset: int, length: int, text: str, severity: Severity | None = None
    ) -> Finding:
        finding_id, diagnosis = _FINDING_KINDS[step]
        return make_finding(
            finding_id, offset, length, text, record=self.next_number, severity=severity, diagnosis=diagnosis
        )

    # -- damage and the end --------------------------------------------------------------------------------------------

    def skip_damage(self, start: int, end: int) -> Iterator[Batch]:
        """Handle skipped pages; if no pages follow, the log ends there."""
        self._damage_count += 1
        self._damage = (start, end) if self._damage is None else (self._damage[0], end)
        records = _RecordColumns(memoryview(b""), 0)
        self._add_held_records(records, nested=self._has_open_record())
        yield from self._make_batch(records, 0, records.count)

    def iter_following_pages(self) -> Iterator[bytes]:
        """Yield the pages, in this file and the next, in which the last record read may continue."""
        return chain(iter_sound_pages_of_file(self.context, self._read_end), iter_next_file_pages(self.context))

    def finish(self) -> Iterator[Batch | Finding]:
        """Yield the record that is open at the end: it continues in the next file, or the log ends inside it."""
        partial, is_nested, records = self._open_record, self._has_open_record(), _RecordColumns(memoryview(b""), 0)
        self.context.scan_summary.ends_with_zeros = self._damage is not None
        if partial is not None:
            self.context.scan_summary.open_type = partial.kind
            is_complete = (
                self._damage is None and not self._walker.state[END_SEEN] and self._try_complete_from_next_file(partial)
            )
            if not is_complete:
                yield self._report_incomplete(partial)
            elif partial.too_long:
                yield self._report_too_long(partial)
            else:
                records.add_joined_record(partial, False)
        self._open_record = self._nested_record = None
        self._add_held_records(records, nested=is_nested)
        yield from self._make_batch(records, 0, records.count)

    def _has_open_record(self) -> bool:
        """Return whether a record is open, even one whose beginning was not read."""
        return self._open_record is not None or self._in_foreign_record

    def _try_complete_from_next_file(self, partial: PartialRecord) -> bool:
        """Add the chunks of a record from the next file; return False if it is incomplete there."""
        walker = self._walker
        for page in self.iter_following_pages():
            if not page:
                return False
            data = memoryview(page)
            count = walker(data, 0, 1, 0)
            for row in range(count):
                step, _, start, end = walker.rows[4 * row : 4 * row + 4]
                if step in (ChunkStep.CONTINUE, ChunkStep.FINISH):
                    partial.add_chunk(data[start:end], self.context.max_record)
                if step == ChunkStep.FINISH:
                    return True
                if step not in _STEPS_BEFORE_FINISH:
                    return False
        return False

    def _report_incomplete(self, partial: PartialRecord) -> Finding:
        """Report that the log ends inside a record: after a crash, or because of damage if more data follows."""
        context = self.context
        is_unknown = context.open_sibling is None and self._damage is None and not self._walker.state[END_SEEN]
        if is_unknown:
            text = f"the {partial} continues in the next file, which was not read"
            facts: dict[str, Any] = {"severity": Severity.NOTE, "diagnosis": "goes-on-in-next-file"}
            return make_finding("torn-tail", partial.offset, partial.size_in_file, text, **facts)
        if is_followed_by_crash_leftovers(context):
            text = f"the log ends inside the {partial}; a server truncates it there if its redo log also ends there"
            facts = {"record": self.next_number, "diagnosis": "incomplete-tail-record"}
            return make_finding("torn-tail", partial.offset, partial.size_in_file, text, **facts)
        text = f"the {partial} has no last chunk, and more follows in later files"
        return self._make_finding(ChunkStep.BROKEN, partial.offset, partial.size_in_file, text)


def column_slices(batch: Batch, start: int, stop: int, *names: str) -> list[list[int]]:
    """Return a part of each column as a list of integers."""
    return [_as_list(batch.frames[name][start:stop]) for name in names]


def _as_list(part: Any) -> list[int]:
    return part.tolist() if hasattr(part, "tolist") else list(part)
