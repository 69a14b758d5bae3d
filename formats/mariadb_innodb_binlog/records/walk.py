"""From good pages to chunks: one kernel, which also knows where a record begins, goes on and ends (section 5)."""

from __future__ import annotations

import enum
from array import array
from collections.abc import Callable
from typing import Any

from binlogtool.formats.fields import kernel
from binlogtool.formats.layouts import Kernel
from binlogtool.limits import KIB

GROUP = 256 * KIB
"""Bytes of pages that are walked at once."""


class Step(enum.IntEnum):
    """What a chunk is to the records; from ORPHAN on: what is wrong, and where data ends."""

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


@kernel()
def put(step: int, kind: int, start: int, end: int, state: Any, rows: Any, specials: Any) -> int:
    """Adds a row; all but whole records are special."""
    at = state[3]
    rows[4 * at] = step
    rows[4 * at + 1] = kind
    rows[4 * at + 2] = start
    rows[4 * at + 3] = end
    state[3] = at + 1
    if step != 0:
        specials[state[4]] = at
        state[4] += 1
    return 0


@kernel()
def first_byte(buf: Any, p: int, n: int) -> int:
    """Position of the first byte in `[p, n)` that is not zero, or n."""
    while p < n and buf[p] == 0:
        p += 1
    return p


@kernel(put)
def take_chunk(flags: int, kind: int, start: int, end: int, state: Any, rows: Any, specials: Any) -> int:
    """One chunk with sound type and length. flags: the two upper bits of its type byte."""
    if state[1] != 0:
        if kind == state[1] and flags & 128:
            put(7 if flags & 64 else 6, kind, start, end, state, rows, specials)
            if flags & 64:
                state[1] = 0
            return 0
        put(10, state[1], start, start, state, rows, specials)
        state[0] = 0
        state[1] = 0
    if state[0] != 0:
        if flags & 128 and (state[0] == 127 or kind == state[0] & 63):
            if state[0] & 64:
                put(8, kind | flags & 64, start, end, state, rows, specials)
            else:
                put(3 if flags & 64 else 2, kind, start, end, state, rows, specials)
            if flags & 64:
                state[0] = 0
            elif state[0] == 127:
                state[0] = kind | 64
            return 0
        if (kind == 2 or kind == 4) and not flags & 128:
            put(4 if flags & 64 else 5, kind, start, end, state, rows, specials)
            if not flags & 64:
                state[1] = kind
            return 0
        if state[0] != 127:
            put(10, state[0] & 63, start, start, state, rows, specials)
        state[0] = 0
    if flags & 128:
        put(9, kind, start, end, state, rows, specials)
        if not flags & 64:
            state[0] = kind | 64
    elif flags & 64:
        put(0, kind, start, end, state, rows, specials)
    else:
        put(1, kind, start, end, state, rows, specials)
        state[0] = kind
    return 0


@kernel(put, first_byte)
def take_end(buf: Any, p: int, at: int, limit: int, origin: int, state: Any, rows: Any, specials: Any) -> int:
    """A type byte of 0 at `buf[at]`, in the page at `buf[p]`: nothing but zeros may follow."""
    if state[2] == 0:
        put(14, 0, at - origin, at - origin, state, rows, specials)
    state[2] = 1
    found = first_byte(buf, at, limit)
    if found < limit:
        put(15, 1 if at == p else 0, found - origin, limit - origin, state, rows, specials)
    return 0


@kernel(put, take_chunk, take_end)
def walk(buf: Any, p: int, pages: int, page_size: int, origin: int, state: Any, rows: Any, specials: Any) -> int:
    """The chunks of the pages from `buf[p]` on: rows of (step, type, start, end of data), positions from `origin`."""
    state[3] = 0
    state[4] = 0
    for _ in range(pages):
        limit = p + page_size - 4
        at = p
        before = state[4]
        if state[2] != 0 and buf[p] != 0:
            put(16, 0, p - origin, limit - origin, state, rows, specials)
            state[0] = 127
            state[1] = 0
            state[2] = 0
        while at <= limit - 4:
            byte = buf[at]
            kind = byte & 63
            if byte == 0:
                take_end(buf, p, at, limit, origin, state, rows, specials)
                break
            if kind == 0 or kind > 6:
                put(11, byte, at - origin, limit - origin, state, rows, specials)
                state[0] = 127
                state[1] = 0
                break
            if state[4] - before > 64:
                put(17, kind, at - origin, limit - origin, state, rows, specials)
                state[0] = 127
                state[1] = 0
                break
            end = at + 3 + (buf[at + 1] | buf[at + 2] << 8)
            if end == at + 3 or end > limit:
                put(12, kind, at - origin, limit - origin, state, rows, specials)
                state[0] = 127
                state[1] = 0
                break
            take_chunk(byte & 192, kind, at + 3 - origin, end - origin, state, rows, specials)
            at = end
        if at > limit - 4 and at < limit:
            if buf[at] == 0:
                take_end(buf, p, at, limit, origin, state, rows, specials)
            else:
                for i in range(at, limit):
                    if buf[i] != 255:
                        put(13, buf[i], at - origin, limit - origin, state, rows, specials)
                        break
        p += page_size
    count: int = state[3]
    return count


class Walk:
    """The kernel with its buffers: `rows` holds four numbers a row, `specials` the rows that are not whole records."""

    def __init__(self, page_size: int, compile_: Callable[[Kernel], Kernel]) -> None:
        self.page_size = page_size
        self.pages = max(1, GROUP // page_size)
        most = self.pages * (page_size // 4 + 3) * 2
        self.rows = array("q", bytes(8 * 4 * most))
        self.specials = array("q", bytes(8 * most))
        self.state = array("q", bytes(8 * STATE_SIZE))
        self.state[OPEN] = PERHAPS
        self._run = compile_(walk)

    def __call__(self, window: memoryview, start: int, pages: int, origin: int) -> int:
        """Walks at most `self.pages` pages from `window[start]` on; returns the number of rows."""
        return int(self._run(window, start, pages, self.page_size, origin, self.state, self.rows, self.specials))
