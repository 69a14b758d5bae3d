"""Write plain rows as JSON lines, in compiled kernels.

Negative positions that are returned: -1 = not enough room in `out`, -2 = the value is not plain.
"""

from __future__ import annotations

from typing import NamedTuple

from binlogtool.format_api.format import JsonLine, JsonMember
from binlogtool.format_api.json_text_kernels import (
    widen_float_bits_to_double,
    write_json_bool,
    write_json_double,
    write_json_null,
    write_json_signed,
    write_json_string,
    write_json_time,
    write_json_unsigned,
    write_null_member,
    write_text_member,
    write_text_of_number,
    write_text_of_table,
    write_unsigned_member,
)
from binlogtool.format_api.schema_fields import Int64s, MutableInt64s, MutableUInt8s, UInt8s, are_bytes_equal, kernel
from binlogtool.formats.tarantool.codes import BODY_NAMES, HEADER_NAMES, TYPE_NAMES, FileKind
from binlogtool.formats.tarantool.decode import TarantoolContext
from binlogtool.formats.tarantool.msgpack.parse import (
    find_text_bounds,
    load_big_endian_number,
    load_mp_integer,
    read_container_head,
    read_map_head,
    read_uint,
    skip_value_and_count,
)

# --- Kernels that write rows as JSON lines ---

MAX_DEPTH = 16


# -- values ------------------------------------------------------------------------------------------------------------


@kernel(are_bytes_equal, skip_value_and_count, find_text_bounds)
def has_distinct_keys(buf: UInt8s, pos: int, limit: int, count: int, scratch: MutableInt64s) -> int:
    """Return 1 if the keys of the map whose first pair is at `buf[pos]` are at most 32 distinct texts, else 0.

    Uses `notes[64:]`.
    """
    if count > 32:
        return 0
    for i in range(count):
        start, end = find_text_bounds(buf, pos, limit)
        if end < 0:
            return 0
        for j in range(i):
            other = scratch[64 + 2 * j]
            size = end - start
            if scratch[65 + 2 * j] - other == size and are_bytes_equal(buf, other, buf, start, size) != 0:
                return 0
        scratch[64 + 2 * i] = start
        scratch[65 + 2 * i] = end
        pos = skip_value_and_count(buf, end, limit)[0]
        if pos < 0:
            return 0
    return 1


@kernel(
    find_text_bounds,
    load_mp_integer,
    load_big_endian_number,
    write_json_bool,
    write_json_double,
    write_json_null,
    write_json_signed,
    write_json_string,
    write_json_unsigned,
    widen_float_bits_to_double,
)
def write_json_scalar(
    buf: UInt8s, pos: int, limit: int, code: int, out: MutableUInt8s, out_pos: int, out_limit: int
) -> tuple[int, int]:
    """Write the value at `buf[pos]`, which is not an array or map: (position after it, position after the output)."""
    if code < 0x80:
        return pos + 1, write_json_unsigned(code, out, out_pos, out_limit)
    if code >= 0xE0:
        return pos + 1, write_json_signed(code - 256, out, out_pos, out_limit)
    if code < 0xC0 or (code >= 0xD9 and code <= 0xDB):
        start, end = find_text_bounds(buf, pos, limit)
        if end < 0:
            return pos, -2
        return end, write_json_string(buf, start, end, out, out_pos, out_limit)
    if code == 0xC0:
        return pos + 1, write_json_null(out, out_pos, out_limit)
    if code == 0xC2 or code == 0xC3:
        return pos + 1, write_json_bool(code - 0xC2, out, out_pos, out_limit)
    if code < 0xCA or code > 0xD3:
        return pos, -2
    size = 1 << (code & 3)
    if limit - pos <= size:
        return pos, -2
    value = load_big_endian_number(buf, pos + 1, size) if code < 0xCC else load_mp_integer(buf, pos, code)
    pos += 1 + size
    if code == 0xCA:
        return pos, write_json_double(widen_float_bits_to_double(value), out, out_pos, out_limit)
    if code == 0xCB:
        return pos, write_json_double(value, out, out_pos, out_limit)
    if code < 0xD0:
        return pos, write_json_unsigned(value, out, out_pos, out_limit)
    return pos, write_json_signed(value, out, out_pos, out_limit)


@kernel(write_json_string, find_text_bounds)
def write_json_map_key(
    buf: UInt8s, pos: int, limit: int, out: MutableUInt8s, out_pos: int, out_limit: int
) -> tuple[int, int]:
    """Write a key of a map and a colon; -2 for a key that begins with "$", which could be taken for a mark."""
    start, end = find_text_bounds(buf, pos, limit)
    if end < 0 or (end > start and buf[start] == 0x24):
        return pos, -2
    out_pos = write_json_string(buf, start, end, out, out_pos, out_limit)
    if out_pos < 0:
        return pos, out_pos
    if out_limit - out_pos < 1:
        return pos, -1
    out[out_pos] = 58
    return end, out_pos + 1


@kernel(read_container_head, has_distinct_keys, write_json_map_key, write_json_scalar)
def write_json_value(
    buf: UInt8s, pos: int, limit: int, scratch: MutableInt64s, out: MutableUInt8s, out_pos: int, out_limit: int
) -> tuple[int, int]:
    """Write one value that is plain JSON: (position after it, position after the output, or -1 or -2).

    Keeps a stack in `scratch`: the number of remaining items of each open array (2 * count) and map (2 * count + 1).
    """
    depth = 0
    left = 0
    while True:
        if pos >= limit:
            return pos, -2
        code = buf[pos] + 0
        count, q = read_container_head(buf, pos, limit, code)
        if count >= 0:
            is_map = 1 if code < 0x90 or code >= 0xDE else 0
            if (
                depth == 16
                or count > limit - q
                or (is_map == 1 and has_distinct_keys(buf, q, limit, count, scratch) == 0)
            ):
                return pos, -2
            if out_limit - out_pos < 2:
                return pos, -1
            out[out_pos] = 123 if is_map == 1 else 91
            out_pos += 1
            scratch[depth] = left
            depth += 1
            left = 2 * count + is_map
            pos = q
        else:
            pos, out_pos = write_json_scalar(buf, pos, limit, code, out, out_pos, out_limit)
            if out_pos < 0:
                return pos, out_pos
        while depth > 0 and left < 2:
            if out_limit - out_pos < 1:
                return pos, -1
            out[out_pos] = 125 if left == 1 else 93
            out_pos += 1
            depth -= 1
            left = scratch[depth]
            count = -1
        if depth == 0:
            return pos, out_pos
        if out_limit - out_pos < 2:
            return pos, -1
        if count < 0:
            out[out_pos] = 44
            out_pos += 1
        if left & 1 == 1:
            pos, out_pos = write_json_map_key(buf, pos, limit, out, out_pos, out_limit)
            if out_pos < 0:
                return pos, out_pos
        left -= 2


# -- members -----------------------------------------------------------------------------------------------------------


@kernel(write_json_null, write_json_time)
def write_time_member(
    buf: UInt8s,
    text_table: UInt8s,
    scratch: Int64s,
    out: MutableUInt8s,
    out_pos: int,
    out_limit: int,
    timestamp_bits: int,
    header_keys: int,
) -> int:
    """Write a time in seconds, rounded to the nearest microsecond, ties to even; from 2**30 seconds (year 2004) on."""
    if header_keys & 16 == 0:
        return write_json_null(out, out_pos, out_limit)
    exponent = timestamp_bits >> 52
    if exponent < 1053 or exponent > 1060:
        return -2
    number = (timestamp_bits & 0xFFFFFFFFFFFFF) + 0x10000000000000
    k = 1075 - exponent
    one = 1 << k
    fraction = (number & (one - 1)) * 1000000
    micros = fraction >> k
    rest = fraction & (one - 1)
    if 2 * rest > one or (2 * rest == one and micros & 1 == 1):
        micros += 1
    return write_json_time((number >> k) * 1000000 + micros, out, out_pos, out_limit)


@kernel(write_text_of_number, write_json_unsigned)
def write_space_member(
    buf: UInt8s, text_table: UInt8s, scratch: Int64s, out: MutableUInt8s, out_pos: int, out_limit: int, space: int
) -> int:
    """Write the name of a space, or its number in quotes; -2 for rows of `_space`, which define names."""
    if space == 280:
        return -2
    p = write_text_of_number(text_table, space, out, out_pos, out_limit)
    if p != -2:
        return p
    if out_limit - out_pos < 32:
        return -1
    out[out_pos] = 34
    out_pos = write_json_unsigned(space, out, out_pos + 1, out_limit)
    out[out_pos] = 34
    return out_pos + 1


@kernel(write_json_unsigned)
def write_transaction_member(
    buf: UInt8s,
    text_table: UInt8s,
    scratch: Int64s,
    out: MutableUInt8s,
    out_pos: int,
    out_limit: int,
    replica: int,
    lsn: int,
    lsn_minus_tsn: int,
) -> int:
    """Write the transaction id "replica:tsn"."""
    if out_limit - out_pos < 48:
        return -1
    out[out_pos] = 34
    out_pos = write_json_unsigned(replica, out, out_pos + 1, out_limit)
    out[out_pos] = 58
    out_pos = write_json_unsigned(lsn - lsn_minus_tsn, out, out_pos + 1, out_limit)
    out[out_pos] = 34
    return out_pos + 1


@kernel(write_text_of_table, write_json_value, read_map_head, read_uint)
def write_body_member(
    buf: UInt8s,
    text_table: UInt8s,
    scratch: MutableInt64s,
    out: MutableUInt8s,
    out_pos: int,
    out_limit: int,
    row_type: int,
    body_start: int,
    body_keys: int,
    body_end: int,
) -> int:
    """Write the body of a row that changes data, or {} for a NOP."""
    if row_type != 2 and row_type != 3 and row_type != 4 and row_type != 5 and row_type != 9 and row_type != 12:
        return -2
    if out_limit - out_pos < 4:
        return -1
    out[out_pos] = 123
    out_pos += 1
    count = 0
    p = body_end
    if body_start >= 0:
        if body_keys >= 0x800000000000000 or body_keys < 0:
            return -2
        count, p = read_map_head(buf, body_start, body_end)
        if p < 0:
            return -2
    for i in range(count):
        if out_limit - out_pos < 4:
            return -1
        if i > 0:
            out[out_pos] = 44
            out_pos += 1
        key, p = read_uint(buf, p, body_end)
        if p < 0:
            return -2
        out_pos = write_text_of_table(text_table, key, out, out_pos, out_limit)
        if out_pos < 0:
            return out_pos
        if out_limit - out_pos < 4:
            return -1
        out[out_pos] = 58
        p, out_pos = write_json_value(buf, p, body_end, scratch, out, out_pos + 1, out_limit)
        if out_pos < 0:
            return out_pos
    if p != body_end:
        return -2
    if out_limit - out_pos < 4:
        return -1
    out[out_pos] = 125
    return out_pos + 1


class RowHeader(NamedTuple):
    """Header of a row: its stored keys."""

    keys: int
    kind: int
    replica: int
    lsn: int
    timestamp: int
    group: int
    difference: int
    flags: int


@kernel(write_json_double, write_text_of_table, write_json_unsigned)
def write_header_member(
    buf: UInt8s,
    text_table: UInt8s,
    scratch: Int64s,
    out: MutableUInt8s,
    out_pos: int,
    out_limit: int,
    header: RowHeader,
) -> int:
    """Write the header keys that are shown, with their exact stored values."""
    mark = 123
    for key in range(10):
        if header.keys & (1 << key) == 0 or key == 1 or key == 5 or key == 6:
            continue
        if out_limit - out_pos < 64:
            return -1
        out[out_pos] = mark
        mark = 44
        out_pos = write_text_of_table(text_table, key, out, out_pos + 1, out_limit)
        if out_pos < 0:
            return out_pos
        if out_limit - out_pos < 64:
            return -1
        out[out_pos] = 58
        out_pos += 1
        if key == 4:
            out_pos = write_json_double(header.timestamp, out, out_pos, out_limit)
            if out_pos < 0:
                return out_pos
            continue
        value = header.kind
        if key == 2:
            value = header.replica
        elif key == 3:
            value = header.lsn
        elif key == 7:
            value = header.group
        elif key == 8:
            value = header.lsn - header.difference
        elif key == 9:
            value = header.flags
        out_pos = write_json_unsigned(value, out, out_pos, out_limit)
        if out_pos < 0:
            return out_pos
    if out_limit - out_pos < 2 or mark == 123:
        return -1 if mark == 44 else -2
    out[out_pos] = 125
    return out_pos + 1


# -- line --------------------------------------------------------------------------------------------------------------


# --- The JSON line of a row in compiled code ---


def create_json_line(context: TarantoolContext) -> JsonLine | None:
    """Return the writer of JSON lines for a log or snapshot.

    None for the vinyl engine's files, which are shown differently.
    """
    if context.kind not in (FileKind.XLOG, FileKind.SNAP):
        return None
    is_log = context.kind is FileKind.XLOG
    return JsonLine(
        type=JsonMember(write_text_member, ("type",), texts=TYPE_NAMES),
        seq=JsonMember(write_unsigned_member, ("lsn",)),
        time=JsonMember(write_time_member, ("timestamp", "header_keys")),
        object=JsonMember(write_space_member, ("space_id",), names=context.spaces),
        origin=JsonMember(write_unsigned_member, ("replica_id",)),
        txn=JsonMember(write_transaction_member, ("replica_id", "lsn", "tsn"))
        if is_log
        else JsonMember(write_null_member),
        body=JsonMember(write_body_member, ("type", "body", "body_keys", "end"), texts=BODY_NAMES),
        extras=(
            (
                "header",
                JsonMember(
                    write_header_member,
                    ("header_keys", "type", "replica_id", "lsn", "timestamp", "group_id", "tsn", "flags"),
                    texts=HEADER_NAMES,
                ),
            ),
        ),
        depth=MAX_DEPTH,
    )
