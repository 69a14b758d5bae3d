"""Kernel that walks the chunks of good pages and knows where records begin, continue and end.

See docs/spec/mariadb_innodb_binlog.md#chunks-and-records.
"""

# ruff: noqa: SIM109 - kernels have no `in`
from __future__ import annotations

import enum
from array import array
from collections.abc import Callable

from binlogtool.formats.fields import kernel
from binlogtool.formats.kernel_types import MutableInt64s, UInt8s
from binlogtool.formats.layouts import Kernel
from binlogtool.formats.mariadb_innodb_binlog.codes import (
    CHUNK_HEAD_SIZE,
    CONTINUATION_FLAG,
    CRC_SIZE,
    FILLER_BYTE,
    LAST_CHUNK_FLAG,
    TYPE_MASK,
    IbbRecordType,
)
from binlogtool.formats.room import zeroed_int64
from binlogtool.limits import KIB

WALK_BYTES = 256 * KIB
"""Bytes of pages that are walked at once."""


class ChunkStep(enum.IntEnum):
    """Role of a chunk in its record; from ORPHAN on: faults, and the end of data."""

    WHOLE = 0
    """A record in one chunk, not nested."""
    BEGIN = 1
    CONTINUE = 2
    FINISH = 3
    NESTED_WHOLE = 4
    NESTED_BEGIN = 5
    NESTED_CONTINUE = 6
    NESTED_FINISH = 7
    FOREIGN = 8
    """Goes on with a record that began in the file before, or in a damaged range; its type has LAST at its end."""
    ORPHAN = 9
    """A chunk that goes on with a record that was not begun."""
    BROKEN = 10
    """The open record lacks its end; the chunk itself comes again as the next step."""
    BAD_TYPE = 11
    BAD_LENGTH = 12
    BAD_FILLER = 13
    END = 14
    """A type byte of 0: the data of the file ends here."""
    GARBAGE = 15
    """Bytes behind the end, in the same page."""
    AFTER_END = 16
    """A page with data behind the end of data."""
    TOO_MANY_CHUNKS = 17
    """Far more pieces of records than a page can have: chunks are cut by the ends of pages only."""


# State of the walk: an array of 64-bit integers.
OPEN_TYPE, NESTED_TYPE, END_SEEN, ROW_COUNT, SPECIAL_COUNT, STATE_SIZE = 0, 1, 2, 3, 4, 5
"""Type of the open record and of the one nested in it (0 = none); was the end seen; rows and special rows written."""

FOREIGN_BIT = 64
"""Of OPEN: the record began where it was not seen."""
UNKNOWN_TYPE = 127
"""OPEN at the start of a file and behind damage: a record of unknown type may go on here."""


(
    _WHOLE, _OPENS, _MORE, _CLOSES, _NESTED_WHOLE, _NESTED_OPENS, _NESTED_MORE, _NESTED_CLOSES, _FOREIGN, _ORPHAN,
    _BROKEN, _BAD_TYPE, _BAD_LENGTH, _BAD_FILLER, _END, _GARBAGE, _AFTER_END, _TOO_MANY_CHUNKS,
) = (int(step) for step in ChunkStep)  # fmt: skip
_STATE, _DUMMY, _LAST_TYPE = IbbRecordType.GTID_STATE.value, IbbRecordType.DUMMY.value, IbbRecordType.XA_COMPLETE.value
_MAX_SPECIAL_ROWS = 64
"""Special rows that a page can have at most."""


@kernel()
def append_row(
    step: int,
    record_type: int,
    start: int,
    end: int,
    state: MutableInt64s,
    rows: MutableInt64s,
    specials: MutableInt64s,
) -> int:
    """Append a row; all but whole records are special."""
    row = state[ROW_COUNT]
    rows[4 * row] = step
    rows[4 * row + 1] = record_type
    rows[4 * row + 2] = start
    rows[4 * row + 3] = end
    state[ROW_COUNT] = row + 1
    if step != _WHOLE:
        specials[state[SPECIAL_COUNT]] = row
        state[SPECIAL_COUNT] += 1
    return 0


@kernel()
def find_nonzero_byte(buf: UInt8s, pos: int, limit: int) -> int:
    """Return the position of the first byte in `[pos, limit)` that is not zero, or `limit`."""
    while pos < limit and buf[pos] == 0:
        pos += 1
    return pos


@kernel(append_row)
def process_chunk(
    flags: int,
    record_type: int,
    start: int,
    end: int,
    state: MutableInt64s,
    rows: MutableInt64s,
    specials: MutableInt64s,
) -> int:
    """Process a chunk with valid type and length.

    Args:
        flags: the two upper bits of its type byte.
    """
    if state[NESTED_TYPE] != 0:
        if record_type == state[NESTED_TYPE] and flags & CONTINUATION_FLAG:
            append_row(
                _NESTED_CLOSES if flags & LAST_CHUNK_FLAG else _NESTED_MORE,
                record_type,
                start,
                end,
                state,
                rows,
                specials,
            )
            if flags & LAST_CHUNK_FLAG:
                state[NESTED_TYPE] = 0
            return 0
        append_row(_BROKEN, state[NESTED_TYPE], start, start, state, rows, specials)
        state[OPEN_TYPE] = 0
        state[NESTED_TYPE] = 0
    if state[OPEN_TYPE] != 0:
        if flags & CONTINUATION_FLAG and (
            state[OPEN_TYPE] == UNKNOWN_TYPE or record_type == state[OPEN_TYPE] & TYPE_MASK
        ):
            if state[OPEN_TYPE] & FOREIGN_BIT:
                append_row(_FOREIGN, record_type | flags & LAST_CHUNK_FLAG, start, end, state, rows, specials)
            else:
                append_row(
                    _CLOSES if flags & LAST_CHUNK_FLAG else _MORE, record_type, start, end, state, rows, specials
                )
            if flags & LAST_CHUNK_FLAG:
                state[OPEN_TYPE] = 0
            elif state[OPEN_TYPE] == UNKNOWN_TYPE:
                state[OPEN_TYPE] = record_type | FOREIGN_BIT
            return 0
        if (record_type == _STATE or record_type == _DUMMY) and not flags & CONTINUATION_FLAG:
            append_row(
                _NESTED_WHOLE if flags & LAST_CHUNK_FLAG else _NESTED_OPENS,
                record_type,
                start,
                end,
                state,
                rows,
                specials,
            )
            if not flags & LAST_CHUNK_FLAG:
                state[NESTED_TYPE] = record_type
            return 0
        if state[OPEN_TYPE] != UNKNOWN_TYPE:
            append_row(_BROKEN, state[OPEN_TYPE] & TYPE_MASK, start, start, state, rows, specials)
        state[OPEN_TYPE] = 0
    if flags & CONTINUATION_FLAG:
        append_row(_ORPHAN, record_type, start, end, state, rows, specials)
        if not flags & LAST_CHUNK_FLAG:
            state[OPEN_TYPE] = record_type | FOREIGN_BIT
    elif flags & LAST_CHUNK_FLAG:
        append_row(_WHOLE, record_type, start, end, state, rows, specials)
    else:
        append_row(_OPENS, record_type, start, end, state, rows, specials)
        state[OPEN_TYPE] = record_type
    return 0


@kernel(append_row, find_nonzero_byte)
def process_end(
    buf: UInt8s,
    page_at: int,
    end_at: int,
    limit: int,
    origin: int,
    state: MutableInt64s,
    rows: MutableInt64s,
    specials: MutableInt64s,
) -> int:
    """Process a type byte of 0 at `buf[end_at]` in the page at `buf[page_at]`: only zeros may follow."""
    if state[END_SEEN] == 0:
        append_row(_END, 0, end_at - origin, end_at - origin, state, rows, specials)
    state[END_SEEN] = 1
    nonzero_at = find_nonzero_byte(buf, end_at, limit)
    if nonzero_at < limit:
        append_row(_GARBAGE, 1 if end_at == page_at else 0, nonzero_at - origin, limit - origin, state, rows, specials)
    return 0


@kernel(append_row, process_chunk, process_end)
def walk_pages(
    buf: UInt8s,
    page_at: int,
    pages: int,
    page_size: int,
    origin: int,
    state: MutableInt64s,
    rows: MutableInt64s,
    specials: MutableInt64s,
) -> int:
    """Walk the chunks of the pages from `buf[page_at]` on.

    Writes rows of (step, type, start, end of data), with positions relative to `origin`; returns their number.
    """
    state[ROW_COUNT] = 0
    state[SPECIAL_COUNT] = 0
    for _ in range(pages):
        limit = page_at + page_size - CRC_SIZE
        at = page_at
        specials_before = state[SPECIAL_COUNT]
        if state[END_SEEN] != 0 and buf[page_at] != 0:
            append_row(_AFTER_END, 0, page_at - origin, limit - origin, state, rows, specials)
            state[OPEN_TYPE] = UNKNOWN_TYPE
            state[NESTED_TYPE] = 0
            state[END_SEEN] = 0
        while at <= limit - CHUNK_HEAD_SIZE - 1:
            byte = buf[at]
            record_type = byte & TYPE_MASK
            if byte == 0:
                process_end(buf, page_at, at, limit, origin, state, rows, specials)
                break
            if record_type == 0 or record_type > _LAST_TYPE:
                append_row(_BAD_TYPE, byte, at - origin, limit - origin, state, rows, specials)
                state[OPEN_TYPE] = UNKNOWN_TYPE
                state[NESTED_TYPE] = 0
                break
            if state[SPECIAL_COUNT] - specials_before > _MAX_SPECIAL_ROWS:
                append_row(_TOO_MANY_CHUNKS, record_type, at - origin, limit - origin, state, rows, specials)
                state[OPEN_TYPE] = UNKNOWN_TYPE
                state[NESTED_TYPE] = 0
                break
            end = at + CHUNK_HEAD_SIZE + (buf[at + 1] | buf[at + 2] << 8)
            if end == at + CHUNK_HEAD_SIZE or end > limit:
                append_row(_BAD_LENGTH, record_type, at - origin, limit - origin, state, rows, specials)
                state[OPEN_TYPE] = UNKNOWN_TYPE
                state[NESTED_TYPE] = 0
                break
            process_chunk(
                byte & (CONTINUATION_FLAG | LAST_CHUNK_FLAG),
                record_type,
                at + CHUNK_HEAD_SIZE - origin,
                end - origin,
                state,
                rows,
                specials,
            )
            at = end
        if at > limit - CHUNK_HEAD_SIZE - 1 and at < limit:
            if buf[at] == 0:
                process_end(buf, page_at, at, limit, origin, state, rows, specials)
            else:
                for i in range(at, limit):
                    if buf[i] != FILLER_BYTE:
                        append_row(_BAD_FILLER, buf[i], at - origin, limit - origin, state, rows, specials)
                        break
        page_at += page_size
    count: int = state[ROW_COUNT]
    return count


class ChunkWalker:
    """Runs `walk_pages`.

    Attributes:
        rows: four numbers per row.
        specials: rows that are not whole records.
        pages: maximum number of pages per call.
    """

    def __init__(self, page_size: int, compile_kernel: Callable[[Kernel], Kernel]) -> None:
        self.page_size = page_size
        self.pages = max(1, WALK_BYTES // page_size)
        max_rows = self.pages * (page_size // 4 + 3) * 2
        self.rows = zeroed_int64(4 * max_rows)
        self.specials = zeroed_int64(max_rows)
        self.state = array("q", bytes(8 * STATE_SIZE))
        self.state[OPEN_TYPE] = UNKNOWN_TYPE
        self._run = compile_kernel(walk_pages)

    def __call__(self, window: memoryview, start: int, pages: int, origin: int) -> int:
        """Walk at most `self.pages` pages from `window[start]` on; returns the number of rows."""
        return int(self._run(window, start, pages, self.page_size, origin, self.state, self.rows, self.specials))
