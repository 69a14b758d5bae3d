"""The judges' inner loops as kernels: they run through what is in order and stop at the first row that is not.

A row where a fold stops is looked at by the judge itself, which knows every exception and has the words for them.
"""

from __future__ import annotations

from typing import Any

from binlogtool.formats.fields import kernel
from binlogtool.formats.tarantool.mp_kernels import load16, load32, load64, skip_value

# State of `fold_log` and `fold_snapshot`: an array of 64-bit integers.
LSN = 0
"""[0, 32): the current component of each replica."""
TIME = 32
"""[32, 64): bit pattern of the last timestamp of each replica."""
TRANSACTIONS = 64
OPEN = 65
"""1 while a transaction is open, 2 while several are (then the fold stops at every row)."""
OPEN_REPLICA = 66
"""-1 as long as it has local rows only."""
OPEN_TSN = 67
OPEN_FRAME = 68
OPEN_FIRST = 69
"""LSN of its first row."""
LAST_SPACE = 70
OPEN_RECORD = 71
"""Of a snapshot: the space that the last row belongs to."""
TYPES = 128
"""[128, 256): rows by type; the last one for all types that are greater."""
SPACES = 256
"""[256, 4352): id + 1 of spaces seen, at the place that the id's low bits say."""
SIZE = 256 + 4096


@kernel()
def fold_log(
    start: int, stop: int, first_frame: int, first_record: int, types: Any, replicas: Any, lsns: Any, tsns: Any, times: Any, flags: Any,
    header_keys: Any, body_keys: Any, spaces: Any, spans: Any, state: Any,
) -> int:  # fmt: skip
    """Rows of a log: LSNs rise by one per replica, times do not fall, bodies have their keys, transactions end.

    Returns the first row that is not in order, or `stop`.
    """
    for i in range(start, stop):
        if state[65] > 1:
            return i
        keys = header_keys[i]
        replica = replicas[i]
        lsn = lsns[i]
        if keys & ~0x39D != 0 or replica < 0 or replica > 31 or lsn < 0 or lsn != state[replica] + 1:
            return i
        time = times[i]
        if time < state[32 + replica]:
            return i
        row_type = types[i]
        body = body_keys[i]
        if row_type == 12:
            if body != 0:
                return i
        else:
            if row_type == 2 or row_type == 3:
                need = 0x200010000
            elif row_type == 4:
                need = 0x300010000
            elif row_type == 5:
                need = 0x100010000
            elif row_type == 9:
                need = 0x10200010000
            else:
                return i
            if body & need != need or body >= 0x800000000000000:
                return i
            space = spaces[i]
            if space == 280 or space < 0 or state[256 + (space & 4095)] != space + 1:
                return i
        if keys & 0x100 == 0:
            if state[65] != 0:
                return i
            state[64] += 1
        else:
            tsn = lsn - tsns[i]
            if tsn < 0 or tsn > 9223372036854775807:
                return i
            if state[65] == 0:
                if replica != 0 and tsn != lsn:
                    return i
                state[65] = 1
                state[66] = replica if replica != 0 else -1
                state[67] = tsn
                state[68] = first_frame + spans[i]
                state[69] = lsn
                state[71] = first_record + i
            else:
                if tsn != state[67] or first_frame + spans[i] != state[68]:
                    return i
                if replica != 0 and replica != state[66]:
                    if state[66] != -1 or tsn != lsn:
                        return i
                    state[66] = replica
            if flags[i] & 1 != 0:
                if state[66] == -1 and state[67] != state[69]:
                    return i
                state[65] = 0
                state[64] += 1
        state[replica] = lsn
        state[32 + replica] = time
        state[128 + row_type] += 1
    return stop


@kernel()
def fold_snapshot(
    start: int, stop: int, types: Any, replicas: Any, lsns: Any, header_keys: Any, body_keys: Any, spaces: Any,
    state: Any,
) -> int:  # fmt: skip
    """Rows of a snapshot as long as they are INSERTs into one space with the next number.

    Returns the first row that is not, or `stop`.
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
def odd_frame(
    start: int, stop: int, magics: Any, lengths: Any, previous: Any, header_ends: Any, payload_starts: Any, buf: Any,
) -> int:  # fmt: skip
    """The first block with a previous crc, a filler that is not zero, or 2 KiB and more of plain rows; or `stop`."""
    for i in range(start, stop):
        if previous[i] != 0:
            return i
        if lengths[i] >= 2029 and magics[i] == 0xD5BA0BAB:
            return i
        at = header_ends[i]
        end = payload_starts[i]
        if at < end and (buf[at] < 0xA0 or buf[at] > 0xBF):
            return i
        for place in range(at + 1, end):
            if buf[place] != 0:
                return i
    return stop


@kernel(skip_value)
def field_at(buf: Any, p: int, n: int, number: int) -> int:
    """Position of field `number` of the array at `p`, or -1."""
    if p < 0 or p >= n:
        return -1
    code = buf[p] + 0
    if code >= 0x90 and code < 0xA0:
        count = code - 0x90
        p += 1
    elif code == 0xDC:
        count = buf[p + 1] * 256 + buf[p + 2]
        p += 3
    else:
        return -1
    if number >= count:
        return -1
    for _ in range(number):
        p, marks, pairs, nested = skip_value(buf, p, n)
        if p < 0:
            return -1
    return p


@kernel(load16, load32, load64)
def compare_integers(buf: Any, a: int, b: int) -> int:
    """-1, 0 or 1 for the mp integers at `a` and `b`; 0 if one of them is none."""
    rank_a = 0
    rank_b = 0
    value_a = 0
    value_b = 0
    for turn in range(2):
        p = a if turn == 0 else b
        code = buf[p] + 0
        rank = 1
        value = 0
        if code < 0x80:
            value = code
        elif code >= 0xE0:
            value = code - 256
        elif code == 0xCC:
            value = buf[p + 1] + 0
        elif code == 0xCD:
            value = load16(buf, p + 1)
        elif code == 0xCE:
            value = load32(buf, p + 1)
        elif code == 0xCF or code == 0xD3:
            value = load64(buf, p + 1)
            if code == 0xCF and value < 0:
                rank = 2
        elif code == 0xD0:
            value = buf[p + 1] + 0
            if value >= 128:
                value -= 256
        elif code == 0xD1:
            value = load16(buf, p + 1)
            if value >= 32768:
                value -= 65536
        elif code == 0xD2:
            value = load32(buf, p + 1)
            if value >= 2147483648:
                value -= 4294967296
        else:
            return 0
        if turn == 0:
            rank_a = rank
            value_a = value
        else:
            rank_b = rank
            value_b = value
    if rank_a != rank_b:
        return -1 if rank_a < rank_b else 1
    if value_a == value_b:
        return 0
    return -1 if value_a < value_b else 1


@kernel(load16, load32)
def compare_strings(buf: Any, a: int, b: int) -> int:
    """-1, 0 or 1 for the mp strings at `a` and `b`, byte by byte; 0 if one of them is none."""
    start_a = 0
    start_b = 0
    size_a = 0
    size_b = 0
    for turn in range(2):
        p = a if turn == 0 else b
        code = buf[p] + 0
        size = 0
        if code >= 0xA0 and code < 0xC0:
            size = code - 0xA0
            p += 1
        elif code == 0xD9:
            size = buf[p + 1] + 0
            p += 2
        elif code == 0xDA:
            size = load16(buf, p + 1)
            p += 3
        elif code == 0xDB:
            size = load32(buf, p + 1)
            p += 5
        else:
            return 0
        if turn == 0:
            start_a = p
            size_a = size
        else:
            start_b = p
            size_b = size
    least = size_a if size_a < size_b else size_b
    for i in range(least):
        if buf[start_a + i] != buf[start_b + i]:
            return -1 if buf[start_a + i] < buf[start_b + i] else 1
    if size_a == size_b:
        return 0
    return -1 if size_a < size_b else 1


@kernel(field_at, compare_integers, compare_strings)
def falling_key(start: int, stop: int, buf: Any, tuples: Any, ends: Any, parts: Any) -> int:
    """The first row in (start, stop) whose key is less than the one before it, or `stop`.

    parts: pairs of field number and kind (0 = integer, 1 = string).
    """
    for i in range(start + 1, stop):
        for part in range(0, len(parts), 2):
            a = field_at(buf, tuples[i - 1], ends[i - 1], parts[part])
            b = field_at(buf, tuples[i], ends[i], parts[part])
            if a < 0 or b < 0:
                break
            if parts[part + 1] == 0:
                order = compare_integers(buf, a, b)
            else:
                order = compare_strings(buf, a, b)
            if order > 0:
                return i
            if order < 0:
                break
    return stop
