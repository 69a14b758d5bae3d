"""Write plain rows as JSON lines, in compiled kernels.

Negative positions that are returned: -1 = not enough room in `out`, -2 = the value is not plain.
"""

from __future__ import annotations

from typing import NamedTuple

from binlogtool.format_api.format import JsonLine, JsonMember
from binlogtool.format_api.json_kernels import (
    put_bool,
    put_double,
    put_name,
    put_null,
    put_null_member,
    put_signed,
    put_string,
    put_text,
    put_text_member,
    put_time,
    put_unsigned,
    put_unsigned_member,
    widen_float,
)
from binlogtool.format_api.row_store_kernels import are_bytes_equal
from binlogtool.format_api.schema_fields import Int64s, MutableInt64s, MutableUInt8s, UInt8s, kernel
from binlogtool.formats.tarantool.codes import BODY_NAMES, HEADER_NAMES, TYPE_NAMES, FileKind
from binlogtool.formats.tarantool.layout import TarantoolContext
from binlogtool.formats.tarantool.msgpack.messages import (
    find_text,
    load_integer,
    load_number,
    read_container_head,
    read_map_head,
    read_uint,
    skip_value,
)

# --- Kernels that write rows as JSON lines ---

MAX_DEPTH = 16


# -- values ------------------------------------------------------------------------------------------------------------


@kernel(are_bytes_equal, skip_value, find_text)
def has_distinct_keys(buf: UInt8s, p: int, n: int, count: int, notes: MutableInt64s) -> int:
    """Return 1 if the keys of the map whose first pair is at `buf[p]` are at most 32 distinct texts, else 0.

    Uses `notes[64:]`.
    """
    if count > 32:
        return 0
    for i in range(count):
        start, end = find_text(buf, p, n)
        if end < 0:
            return 0
        for j in range(i):
            other = notes[64 + 2 * j]
            size = end - start
            if notes[65 + 2 * j] - other == size and are_bytes_equal(buf, other, buf, start, size) != 0:
                return 0
        notes[64 + 2 * i] = start
        notes[65 + 2 * i] = end
        p = skip_value(buf, end, n)[0]
        if p < 0:
            return 0
    return 1


@kernel(
    find_text,
    load_integer,
    load_number,
    put_bool,
    put_double,
    put_null,
    put_signed,
    put_string,
    put_unsigned,
    widen_float,
)
def put_scalar(buf: UInt8s, p: int, n: int, code: int, out: MutableUInt8s, o: int, z: int) -> tuple[int, int]:
    """Write the value at `buf[p]`, which is not an array or map: (position after it, position after the output)."""
    if code < 0x80:
        return p + 1, put_unsigned(code, out, o, z)
    if code >= 0xE0:
        return p + 1, put_signed(code - 256, out, o, z)
    if code < 0xC0 or (code >= 0xD9 and code <= 0xDB):
        start, end = find_text(buf, p, n)
        if end < 0:
            return p, -2
        return end, put_string(buf, start, end, out, o, z)
    if code == 0xC0:
        return p + 1, put_null(out, o, z)
    if code == 0xC2 or code == 0xC3:
        return p + 1, put_bool(code - 0xC2, out, o, z)
    if code < 0xCA or code > 0xD3:
        return p, -2
    size = 1 << (code & 3)
    if n - p <= size:
        return p, -2
    value = load_number(buf, p + 1, size) if code < 0xCC else load_integer(buf, p, code)
    p += 1 + size
    if code == 0xCA:
        return p, put_double(widen_float(value), out, o, z)
    if code == 0xCB:
        return p, put_double(value, out, o, z)
    if code < 0xD0:
        return p, put_unsigned(value, out, o, z)
    return p, put_signed(value, out, o, z)


@kernel(put_string, find_text)
def put_map_key(buf: UInt8s, p: int, n: int, out: MutableUInt8s, o: int, z: int) -> tuple[int, int]:
    """Write a key of a map and a colon; -2 for a key that begins with "$", which could be taken for a mark."""
    start, end = find_text(buf, p, n)
    if end < 0 or (end > start and buf[start] == 0x24):
        return p, -2
    o = put_string(buf, start, end, out, o, z)
    if o < 0:
        return p, o
    if z - o < 1:
        return p, -1
    out[o] = 58
    return end, o + 1


@kernel(read_container_head, has_distinct_keys, put_map_key, put_scalar)
def put_value(buf: UInt8s, p: int, n: int, notes: MutableInt64s, out: MutableUInt8s, o: int, z: int) -> tuple[int, int]:
    """Write one value that is plain JSON: (position after it, position after the output, or -1 or -2).

    Keeps a stack in `notes`: the number of remaining items of each open array (2 * count) and map (2 * count + 1).
    """
    depth = 0
    left = 0
    while True:
        if p >= n:
            return p, -2
        code = buf[p] + 0
        count, q = read_container_head(buf, p, n, code)
        if count >= 0:
            is_map = 1 if code < 0x90 or code >= 0xDE else 0
            if depth == 16 or count > n - q or (is_map == 1 and has_distinct_keys(buf, q, n, count, notes) == 0):
                return p, -2
            if z - o < 2:
                return p, -1
            out[o] = 123 if is_map == 1 else 91
            o += 1
            notes[depth] = left
            depth += 1
            left = 2 * count + is_map
            p = q
        else:
            p, o = put_scalar(buf, p, n, code, out, o, z)
            if o < 0:
                return p, o
        while depth > 0 and left < 2:
            if z - o < 1:
                return p, -1
            out[o] = 125 if left == 1 else 93
            o += 1
            depth -= 1
            left = notes[depth]
            count = -1
        if depth == 0:
            return p, o
        if z - o < 2:
            return p, -1
        if count < 0:
            out[o] = 44
            o += 1
        if left & 1 == 1:
            p, o = put_map_key(buf, p, n, out, o, z)
            if o < 0:
                return p, o
        left -= 2


# -- members -----------------------------------------------------------------------------------------------------------


@kernel(put_null, put_time)
def put_time_member(
    buf: UInt8s, texts: UInt8s, notes: Int64s, out: MutableUInt8s, o: int, z: int, bits: int, keys: int
) -> int:
    """Write a time in seconds, rounded to the nearest microsecond, ties to even; from 2**30 seconds (year 2004) on."""
    if keys & 16 == 0:
        return put_null(out, o, z)
    exponent = bits >> 52
    if exponent < 1053 or exponent > 1060:
        return -2
    number = (bits & 0xFFFFFFFFFFFFF) + 0x10000000000000
    k = 1075 - exponent
    one = 1 << k
    fraction = (number & (one - 1)) * 1000000
    micros = fraction >> k
    rest = fraction & (one - 1)
    if 2 * rest > one or (2 * rest == one and micros & 1 == 1):
        micros += 1
    return put_time((number >> k) * 1000000 + micros, out, o, z)


@kernel(put_name, put_unsigned)
def put_space_member(buf: UInt8s, texts: UInt8s, notes: Int64s, out: MutableUInt8s, o: int, z: int, space: int) -> int:
    """Write the name of a space, or its number in quotes; -2 for rows of `_space`, which define names."""
    if space == 280:
        return -2
    p = put_name(texts, space, out, o, z)
    if p != -2:
        return p
    if z - o < 24:
        return -1
    out[o] = 34
    o = put_unsigned(space, out, o + 1, z)
    out[o] = 34
    return o + 1


@kernel(put_unsigned)
def put_transaction_member(
    buf: UInt8s,
    texts: UInt8s,
    notes: Int64s,
    out: MutableUInt8s,
    o: int,
    z: int,
    replica: int,
    lsn: int,
    difference: int,
) -> int:
    """Write the transaction id "replica:tsn"."""
    if z - o < 48:
        return -1
    out[o] = 34
    o = put_unsigned(replica, out, o + 1, z)
    out[o] = 58
    o = put_unsigned(lsn - difference, out, o + 1, z)
    out[o] = 34
    return o + 1


@kernel(put_text, put_value, read_map_head, read_uint)
def put_body_member(
    buf: UInt8s,
    texts: UInt8s,
    notes: MutableInt64s,
    out: MutableUInt8s,
    o: int,
    z: int,
    kind: int,
    body: int,
    keys: int,
    end: int,
) -> int:
    """Write the body of a row that changes data, or {} for a NOP."""
    if kind != 2 and kind != 3 and kind != 4 and kind != 5 and kind != 9 and kind != 12:
        return -2
    if z - o < 4:
        return -1
    out[o] = 123
    o += 1
    count = 0
    p = end
    if body >= 0:
        if keys >= 0x800000000000000 or keys < 0:
            return -2
        count, p = read_map_head(buf, body, end)
        if p < 0:
            return -2
    for i in range(count):
        if z - o < 4:
            return -1
        if i > 0:
            out[o] = 44
            o += 1
        key, p = read_uint(buf, p, end)
        if p < 0:
            return -2
        o = put_text(texts, key, out, o, z)
        if o < 0:
            return o
        if z - o < 4:
            return -1
        out[o] = 58
        p, o = put_value(buf, p, end, notes, out, o + 1, z)
        if o < 0:
            return o
    if p != end:
        return -2
    if z - o < 4:
        return -1
    out[o] = 125
    return o + 1


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


@kernel(put_double, put_text, put_unsigned)
def put_header_member(
    buf: UInt8s, texts: UInt8s, notes: Int64s, out: MutableUInt8s, o: int, z: int, header: RowHeader
) -> int:
    """Write the header keys that are shown, with their exact stored values."""
    mark = 123
    for key in range(10):
        if header.keys & (1 << key) == 0 or key == 1 or key == 5 or key == 6:
            continue
        if z - o < 64:
            return -1
        out[o] = mark
        mark = 44
        o = put_text(texts, key, out, o + 1, z)
        if o < 0:
            return o
        if z - o < 64:
            return -1
        out[o] = 58
        o += 1
        if key == 4:
            o = put_double(header.timestamp, out, o, z)
            if o < 0:
                return o
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
        o = put_unsigned(value, out, o, z)
        if o < 0:
            return o
    if z - o < 2 or mark == 123:
        return -1 if mark == 44 else -2
    out[o] = 125
    return o + 1


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
        type=JsonMember(put_text_member, ("type",), texts=TYPE_NAMES),
        seq=JsonMember(put_unsigned_member, ("lsn",)),
        time=JsonMember(put_time_member, ("timestamp", "header_keys")),
        object=JsonMember(put_space_member, ("space_id",), names=context.spaces),
        origin=JsonMember(put_unsigned_member, ("replica_id",)),
        txn=JsonMember(put_transaction_member, ("replica_id", "lsn", "tsn")) if is_log else JsonMember(put_null_member),
        body=JsonMember(put_body_member, ("type", "body", "body_keys", "end"), texts=BODY_NAMES),
        extras=(
            (
                "header",
                JsonMember(
                    put_header_member,
                    ("header_keys", "type", "replica_id", "lsn", "timestamp", "group_id", "tsn", "flags"),
                    texts=HEADER_NAMES,
                ),
            ),
        ),
        depth=MAX_DEPTH,
    )
