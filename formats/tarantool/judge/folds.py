"""Kernels of the validators: they skip rows that are in order and stop at the first row that is not.

The validator checks that row itself: it knows every exception and has the messages.
"""

from __future__ import annotations

from typing import NamedTuple

from binlogtool.formats.fields import kernel
from binlogtool.formats.kernel_types import Int64s, MutableInt64s, UInt8s
from binlogtool.formats.tarantool.msgpack.kernels import load16, load32, load64, read_length, skip_value

# State of `skip_ordered_log_rows` and `skip_ordered_snapshot_rows`: an array of 64-bit integers.
LSN_SLOTS = 0
"""[0, 32): the current component of each replica."""
TIME_SLOTS = 32
"""[32, 64): bit pattern of the last timestamp of each replica."""
TRANSACTIONS = 64
OPEN_COUNT = 65
"""1 while a transaction is open, 2 while several are (then the fold stops at every row)."""
OPEN_REPLICA = 66
"""-1 as long as it has local rows only."""
OPEN_TSN = 67
OPEN_FRAME = 68
OPEN_FIRST_LSN = 69
"""LSN of its first row."""
LAST_SPACE = 70
OPEN_RECORD = 71
"""Of a snapshot: the space that the last row belongs to."""
TYPE_COUNTS = 128
"""[128, 256): rows by type; the last one for all types that are greater."""
SEEN_SPACES = 256
"""[256, 4352): id + 1 of spaces seen, at the place that the id's low bits say."""
STATE_SIZE = 256 + 4096


@kernel()
def is_body_in_order(row_type: int, keys: int, space: int, state: Int64s) -> bool:
    """Check that a DML row has the body keys that it needs, and a space that was seen before (and is not `_space`)."""
    if row_type == 12:
        return keys == 0
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
    if keys & required != required or keys >= 0x800000000000000:
        return False
    return space != 280 and space >= 0 and state[256 + (space & 4095)] == space + 1


@kernel()
def advance_transaction(
    replica: int, lsn: int, tsn: int, commit: int, frame: int, record: int, state: MutableInt64s
) -> bool:
    """Add one row of a multi-statement transaction to the state; False if something about it is unusual."""
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


class LogRows(NamedTuple):
    """One entry for each row of a log."""

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


@kernel(is_body_in_order, advance_transaction)
def skip_ordered_log_rows(
    start: int, stop: int, first_frame: int, first_record: int, rows: LogRows, state: MutableInt64s
) -> int:
    """Skip rows of a log that are in order.

    In order: LSNs rise by one per replica, times do not fall, bodies have their keys, transactions end.

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
        if not is_body_in_order(rows.types[i], rows.body_keys[i], rows.spaces[i], state):
            return i
        if keys & 0x100 != 0:
            frame = first_frame + rows.spans[i]
            if not advance_transaction(
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
    """Skip rows of a snapshot that are INSERTs into one space with the next number.

    Returns:
        Index of the first row that is not, or `stop`.
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
def find_odd_block(
    start: int, stop: int, magics: Int64s, lengths: Int64s, previous: Int64s, header_ends: Int64s,
    payload_starts: Int64s, buf: UInt8s,
) -> int:  # fmt: skip
    """Find the first block with a previous crc, a filler that is not zero, or plain rows of 0 or at least 2029 bytes.

    Returns:
        Its index, or `stop`.
    """
    for i in range(start, stop):
        if previous[i] != 0:
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


@kernel(read_length, skip_value)
def find_array_field(buf: UInt8s, p: int, n: int, number: int) -> int:
    """Return the position of field `number` of the array at `p`, or -1."""
    if p < 0 or p >= n:
        return -1
    code = buf[p] + 0
    count = code - 0x90
    p += 1
    if code == 0xDC or code == 0xDD:
        count, p = read_length(buf, p, n, code)
    elif code < 0x90 or code > 0x9F:
        return -1
    if p < 0 or number >= count:
        return -1
    for _ in range(number):
        p, _, _, _ = skip_value(buf, p, n)
        if p < 0:
            return -1
    return p if p < n else -1


@kernel(load16, load32, load64)
def read_sortable_integer(buf: UInt8s, p: int) -> tuple[int, int]:
    """Return (rank, value) of the mp integer at `p`; the pairs sort like the integers.

    rank 0: no integer. rank 2: an unsigned number beyond the signed range.
    """
    code = buf[p] + 0
    if code < 0x80:
        return 1, code
    if code >= 0xE0:
        return 1, code - 256
    if code == 0xCC:
        return 1, buf[p + 1] + 0
    if code == 0xCD:
        return 1, load16(buf, p + 1)
    if code == 0xCE:
        return 1, load32(buf, p + 1)
    if code == 0xCF:
        value = load64(buf, p + 1)
        return (2, value) if value < 0 else (1, value)
    if code == 0xD0:
        value = buf[p + 1] + 0
        return 1, value - 256 if value >= 128 else value
    if code == 0xD1:
        value = load16(buf, p + 1)
        return 1, value - 65536 if value >= 32768 else value
    if code == 0xD2:
        value = load32(buf, p + 1)
        return 1, value - 4294967296 if value >= 2147483648 else value
    if code == 0xD3:
        return 1, load64(buf, p + 1)
    return 0, 0


@kernel(read_sortable_integer)
def compare_integers(buf: UInt8s, a: int, b: int) -> int:
    """Compare the mp integers at `a` and `b`: -1, 0 or 1; 0 if one of them is no integer."""
    rank_a, value_a = read_sortable_integer(buf, a)
    rank_b, value_b = read_sortable_integer(buf, b)
    if rank_a == 0 or rank_b == 0 or (rank_a == rank_b and value_a == value_b):
        return 0
    if rank_a != rank_b:
        return -1 if rank_a < rank_b else 1
    return -1 if value_a < value_b else 1


@kernel(read_length)
def find_string(buf: UInt8s, p: int, n: int) -> tuple[int, int]:
    """Return (start, end) of the text of the mp string at `p`; end -1 if there is no string."""
    code = buf[p] + 0
    if code >= 0xA0 and code < 0xC0:
        return p + 1, p + 1 + code - 0xA0
    if code >= 0xD9 and code <= 0xDB:
        size, start = read_length(buf, p + 1, n, code)
        return start, start + size
    return p, -1


@kernel(find_string)
def compare_strings(buf: UInt8s, a: int, end_a: int, b: int, end_b: int) -> int:
    """Compare the mp strings at `a` and `b` byte by byte: -1, 0 or 1; 0 if one of them is no string."""
    a, last_a = find_string(buf, a, end_a)
    b, last_b = find_string(buf, b, end_b)
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


@kernel(find_array_field, compare_integers, compare_strings)
def find_falling_key(
    start: int, stop: int, buf: UInt8s, tuples: Int64s, ends: Int64s, parts: Int64s, count: int
) -> int:
    """Find the first row in (start, stop) whose key is less than the one before it; `stop` if there is none.

    Args:
        parts: `count` pairs of field number and kind (0 = integer, 1 = string).
    """
    for i in range(start + 1, stop):
        for part in range(0, 2 * count, 2):
            a = find_array_field(buf, tuples[i - 1], ends[i - 1], parts[part])
            b = find_array_field(buf, tuples[i], ends[i], parts[part])
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
