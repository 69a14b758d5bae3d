"""Kernel that walks the chunks of good pages and knows where records begin, continue and end.

See docs/spec/mariadb-innodb-binlog.md#5-chunks-and-records.
"""

# ruff: noqa: SIM109 - kernels have no `in`
from __future__ import annotations

import enum
from array import array
from collections.abc import Callable

from binlogtool.formats.fields import kernel
from binlogtool.formats.kernel_types import MutableInt64s, UInt8s
from binlogtool.formats.layouts import Kernel
from binlogtool.formats.mariadb_innodb_binlog.codes import CHUNK_HEAD, CONT, CRC_SIZE, FILLER, KIND, LAST, RecordType
from binlogtool.formats.room import words
from binlogtool.limits import KIB

GROUP = 256 * KIB
"""Bytes of pages that are walked at once."""


class Step(enum.IntEnum):
    """Role of a chunk in its record; from ORPHAN on: faults, and the end of data."""

    WHOLE = 0
    """A record in one chunk, not nested."""
    OPENS = 1
    MORE = 2
    CLOSES = 3
    NESTED_WHOLE = 4
    NESTED_OPENS = 5
    NESTED_MORE = 6
    NESTED_CLOSES = 7
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
    CROWD = 17
    """Far more pieces of records than a page can have: chunks are cut by the ends of pages only."""


# State of the walk: an array of 64-bit integers.
OPEN, NEST, ENDED, ROWS, SPECIALS, STATE_SIZE = 0, 1, 2, 3, 4, 5
"""Type of the open record and of the one nested in it (0 = none); was the end seen; rows and special rows written."""

FOREIGN_BIT = 64
"""Of OPEN: the record began where it was not seen."""
PERHAPS = 127
"""OPEN at the start of a file and behind damage: a record of unknown type may go on here."""


(
    _WHOLE, _OPENS, _MORE, _CLOSES, _NESTED_WHOLE, _NESTED_OPENS, _NESTED_MORE, _NESTED_CLOSES, _FOREIGN, _ORPHAN,
    _BROKEN, _BAD_TYPE, _BAD_LENGTH, _BAD_FILLER, _END, _GARBAGE, _AFTER_END, _CROWD,
) = (int(step) for step in Step)  # fmt: skip
_STATE, _DUMMY, _LAST_KIND = RecordType.GTID_STATE.value, RecordType.DUMMY.value, RecordType.XA_COMPLETE.value
_MOST_PIECES = 64
"""Special rows that a page can have at most."""


@kernel()
def put(
    step: int, kind: int, start: int, end: int, state: MutableInt64s, rows: MutableInt64s, specials: MutableInt64s
) -> int:
    """Append a row; all but whole records are special."""
    at = state[ROWS]
    rows[4 * at] = step
    rows[4 * at + 1] = kind
    rows[4 * at + 2] = start
    rows[4 * at + 3] = end
    state[ROWS] = at + 1
    if step != _WHOLE:
        specials[state[SPECIALS]] = at
        state[SPECIALS] += 1
    return 0


@kernel()
def first_byte(buf: UInt8s, p: int, n: int) -> int:
    """Return the position of the first byte in `[pos, limit)` that is not zero, or `limit`."""
    while p < n and buf[p] == 0:
        p += 1
    return p


@kernel(put)
def take_chunk(
    flags: int, kind: int, start: int, end: int, state: MutableInt64s, rows: MutableInt64s, specials: MutableInt64s
) -> int:
    """Process a chunk with valid type and length.

    Args:
        flags: the two upper bits of its type byte.
    """
    if state[NEST] != 0:
        if kind == state[NEST] and flags & CONT:
            put(_NESTED_CLOSES if flags & LAST else _NESTED_MORE, kind, start, end, state, rows, specials)
            if flags & LAST:
                state[NEST] = 0
            return 0
        put(_BROKEN, state[NEST], start, start, state, rows, specials)
        state[OPEN] = 0
        state[NEST] = 0
    if state[OPEN] != 0:
        if flags & CONT and (state[OPEN] == PERHAPS or kind == state[OPEN] & KIND):
            if state[OPEN] & FOREIGN_BIT:
                put(_FOREIGN, kind | flags & LAST, start, end, state, rows, specials)
            else:
                put(_CLOSES if flags & LAST else _MORE, kind, start, end, state, rows, specials)
            if flags & LAST:
                state[OPEN] = 0
            elif state[OPEN] == PERHAPS:
                state[OPEN] = kind | FOREIGN_BIT
            return 0
        if (kind == _STATE or kind == _DUMMY) and not flags & CONT:
            put(_NESTED_WHOLE if flags & LAST else _NESTED_OPENS, kind, start, end, state, rows, specials)
            if not flags & LAST:
                state[NEST] = kind
            return 0
        if state[OPEN] != PERHAPS:
            put(_BROKEN, state[OPEN] & KIND, start, start, state, rows, specials)
        state[OPEN] = 0
    if flags & CONT:
        put(_ORPHAN, kind, start, end, state, rows, specials)
        if not flags & LAST:
            state[OPEN] = kind | FOREIGN_BIT
    elif flags & LAST:
        put(_WHOLE, kind, start, end, state, rows, specials)
    else:
        put(_OPENS, kind, start, end, state, rows, specials)
        state[OPEN] = kind
    return 0


@kernel(put, first_byte)
def take_end(
    buf: UInt8s,
    p: int,
    at: int,
    limit: int,
    origin: int,
    state: MutableInt64s,
    rows: MutableInt64s,
    specials: MutableInt64s,
) -> int:
    """Process a type byte of 0 at `buf[end_at]` in the page at `buf[page_at]`: only zeros may follow."""
    if state[ENDED] == 0:
        put(_END, 0, at - origin, at - origin, state, rows, specials)
    state[ENDED] = 1
    found = first_byte(buf, at, limit)
    if found < limit:
        put(_GARBAGE, 1 if at == p else 0, found - origin, limit - origin, state, rows, specials)
    return 0


@kernel(put, take_chunk, take_end)
def walk(
    buf: UInt8s,
    p: int,
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
    state[ROWS] = 0
    state[SPECIALS] = 0
    for _ in range(pages):
        limit = p + page_size - CRC_SIZE
        at = p
        before = state[SPECIALS]
        if state[ENDED] != 0 and buf[p] != 0:
            put(_AFTER_END, 0, p - origin, limit - origin, state, rows, specials)
            state[OPEN] = PERHAPS
            state[NEST] = 0
            state[ENDED] = 0
        while at <= limit - CHUNK_HEAD - 1:
            byte = buf[at]
            kind = byte & KIND
            if byte == 0:
                take_end(buf, p, at, limit, origin, state, rows, specials)
                break
            if kind == 0 or kind > _LAST_KIND:
                put(_BAD_TYPE, byte, at - origin, limit - origin, state, rows, specials)
                state[OPEN] = PERHAPS
                state[NEST] = 0
                break
            if state[SPECIALS] - before > _MOST_PIECES:
                put(_CROWD, kind, at - origin, limit - origin, state, rows, specials)
                state[OPEN] = PERHAPS
                state[NEST] = 0
                break
            end = at + CHUNK_HEAD + (buf[at + 1] | buf[at + 2] << 8)
            if end == at + CHUNK_HEAD or end > limit:
                put(_BAD_LENGTH, kind, at - origin, limit - origin, state, rows, specials)
                state[OPEN] = PERHAPS
                state[NEST] = 0
                break
            take_chunk(byte & (CONT | LAST), kind, at + CHUNK_HEAD - origin, end - origin, state, rows, specials)
            at = end
        if at > limit - CHUNK_HEAD - 1 and at < limit:
            if buf[at] == 0:
                take_end(buf, p, at, limit, origin, state, rows, specials)
            else:
                for i in range(at, limit):
                    if buf[i] != FILLER:
                        put(_BAD_FILLER, buf[i], at - origin, limit - origin, state, rows, specials)
                        break
        p += page_size
    count: int = state[ROWS]
    return count


class Walk:
    """Runs `walk_pages`.

    Attributes:
        rows: four numbers per row.
        specials: rows that are not whole records.
        pages: maximum number of pages per call.
    """

    def __init__(self, page_size: int, compile_: Callable[[Kernel], Kernel]) -> None:
        self.page_size = page_size
        self.pages = max(1, GROUP // page_size)
        most = self.pages * (page_size // 4 + 3) * 2
        self.rows = words(4 * most)
        self.specials = words(most)
        self.state = array("q", bytes(8 * STATE_SIZE))
        self.state[OPEN] = PERHAPS
        self._run = compile_(walk)

    def __call__(self, window: memoryview, start: int, pages: int, origin: int) -> int:
        """Walk at most `self.pages` pages from `window[start]` on; returns the number of rows."""
        return int(self._run(window, start, pages, self.page_size, origin, self.state, self.rows, self.specials))
