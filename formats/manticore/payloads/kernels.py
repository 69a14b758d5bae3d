"""Integers and texts of variable length in payloads, and walks over whole payloads, as kernels.

Source: `docs/spec/manticore.md#zint`.

Document ids take 8 bytes, or 4 where binlog.meta says id64=0 (`DocID_t` of that
build). Source: Sphinx 2.0.9, `BinlogWriter_c::ZipOffset`, `RtBinlog_c`.

Each returns the position after the value, SHORT or MALFORMED. Every count is compared with the remaining bytes before
it is used.
"""

from __future__ import annotations

from typing import Any

from construct import Construct, stream_read, stream_write

from binlogtool.format_api.schema_fields import (
    Int64s,
    MalformedError,
    MutableInt64s,
    ScalarForm,
    ScalarKernel,
    UInt8s,
    kernel,
)
from binlogtool.format_api.varint import MAX_VARINT_SIZE, UINT64_MASK, WideVarint, read_varint, varint_size

# --- zint ---


@kernel()
def read_zint(buf: UInt8s, p: int, n: int) -> tuple[int, int]:
    """Read a zint: the low 64 bits and the next position, SHORT, or MALFORMED after ten bytes."""
    if n - p > 2:  # the frequent case: up to three bytes
        value = buf[p]
        if value < 128:
            return value, p + 1
        byte = buf[p + 1]
        if byte < 128:
            return (value & 127) << 7 | byte, p + 2
        third = buf[p + 2]
        if third < 128:
            return (value & 127) << 14 | (byte & 127) << 7 | third, p + 3
    value = 0
    stop = p + 10
    while p < n:
        byte = buf[p]
        p += 1
        value = (value & 0x1FFFFFFFFFFFFFF) << 7 | byte & 127
        if byte < 128:
            return value, p
        if p == stop:
            return 0, -2
    return 0, -1


@kernel(read_zint)
def read_zint32(buf: UInt8s, p: int, n: int) -> tuple[int, int]:
    """Read a zint as a signed number of 32 bits."""
    value, p = read_zint(buf, p, n)
    return ((value & 0xFFFFFFFF) ^ 0x80000000) - 0x80000000, p


def build_zint(value: int) -> bytes:
    """Encode a value as the shortest zint, or in the width of a `WideVarint`."""
    rest, width = int(value) & UINT64_MASK, getattr(value, "width", varint_size(value))
    groups = [rest >> 7 * at & 127 for at in range(width)]
    return bytes([group | 128 for group in groups[:0:-1]] + groups[:1])


class Zint(Construct):  # type: ignore[misc]
    """Construct type of a zint. A longer form than needed is kept (`WideVarint`).

    Args:
        bits: number of bits that are kept.
        signed: two's complement.
    """

    def __init__(self, bits: int = 64, signed: bool = False) -> None:
        super().__init__()
        self.bits, self.signed = bits, signed
        read = read_zint32 if bits == 32 else read_zint
        self.kernel = ScalarKernel(read, (ScalarForm(0, 127),), unsigned=not signed)

    def _parse(self, stream: Any, context: Any, path: str) -> int:
        data = bytearray()
        while not data or data[-1] >= 128:
            if len(data) == MAX_VARINT_SIZE:
                raise MalformedError(f"a zint has at most {MAX_VARINT_SIZE} bytes", path, "varint-overlong")
            data += stream_read(stream, 1, path)
        value = read_zint(data, 0, len(data))[0] & UINT64_MASK
        wide = len(data) != varint_size(value)
        if self.signed:
            value = ((value & (1 << self.bits) - 1) ^ 1 << self.bits - 1) - (1 << self.bits - 1)
        return WideVarint(value, len(data)) if wide else value

    def _build(self, obj: Any, stream: Any, context: Any, path: str) -> Any:
        is_negative = self.signed and obj < 0 and not isinstance(obj, WideVarint)
        data = build_zint(obj & (1 << self.bits) - 1 if is_negative else obj)
        stream_write(stream, data, len(data), path)
        return obj


# --- Numbers of versions 2 to 4 (Sphinx up to 2.0) ---

LAST_LOW_VERSION = 4
"""Last version whose numbers begin with their lowest bits."""


# --- Kernels of successive numbers and vectors ---


@kernel(read_zint, read_varint)
def read_number(buf: UInt8s, p: int, n: int, version: int) -> tuple[int, int]:
    """Read a number in the encoding of a version."""
    if version <= 4:
        return read_varint(buf, p, n)
    return read_zint(buf, p, n)


@kernel(read_number)
def skip_numbers(buf: UInt8s, p: int, n: int, count: int, version: int) -> int:
    """Skip `count` numbers."""
    for _ in range(count):
        _value, p = read_number(buf, p, n, version)
        if p < 0:
            return p
    return p


@kernel(read_number)
def read_vector(buf: UInt8s, p: int, n: int, width: int, version: int) -> tuple[int, int]:
    """Read the count of a vec(width) and skip its elements: the count and the end."""
    count, p = read_number(buf, p, n, version)
    if p < 0:
        return 0, p
    if count < 0 or count > (n - p) // width:
        return 0, -1
    return count, p + count * width


@kernel(read_vector)
def read_vector1(buf: UInt8s, p: int, n: int) -> tuple[int, int]:
    """Read a vec(1): the count and the end."""
    return read_vector(buf, p, n, 1, 15)


@kernel(read_vector)
def read_vector4(buf: UInt8s, p: int, n: int) -> tuple[int, int]:
    """Read a vec(4): the count and the end."""
    return read_vector(buf, p, n, 4, 15)


@kernel(read_vector)
def read_vector8(buf: UInt8s, p: int, n: int) -> tuple[int, int]:
    """Read a vec(8): the count and the end."""
    return read_vector(buf, p, n, 8, 15)


@kernel(read_vector)
def read_low_vector1(buf: UInt8s, p: int, n: int) -> tuple[int, int]:
    """Read a vec(1) of versions 2 to 4: the count and the end."""
    return read_vector(buf, p, n, 1, 4)


@kernel(read_vector)
def read_low_vector4(buf: UInt8s, p: int, n: int) -> tuple[int, int]:
    """Read a vec(4) of versions 2 to 4: the count and the end."""
    return read_vector(buf, p, n, 4, 4)


@kernel(read_vector)
def read_low_vector8(buf: UInt8s, p: int, n: int) -> tuple[int, int]:
    """Read a vec(8) of versions 2 to 4: the count and the end."""
    return read_vector(buf, p, n, 8, 4)


@kernel(read_vector)
def skip_vector(buf: UInt8s, p: int, n: int, width: int, version: int) -> int:
    """Skip a vec(width)."""
    _count, p = read_vector(buf, p, n, width, version)
    return p


# --- Kernels that skip whole payloads ---


@kernel()
def load_dword(buf: UInt8s, p: int, n: int) -> int:
    """Load the dword at `p`, or SHORT."""
    if n - p < 4:
        return -1
    value: int = buf[p] | buf[p + 1] << 8 | buf[p + 2] << 16 | buf[p + 3] << 24
    return value


@kernel(load_dword, skip_vector)
def skip_text(buf: UInt8s, p: int, n: int, version: int) -> int:
    """Skip a zstring (version 15 on, and up to 4) or a dstring."""
    if version >= 15 or version <= 4:
        return skip_vector(buf, p, n, 1, version)
    length = load_dword(buf, p, n)
    if length < 0 or length > n - p - 4:
        return -1
    return p + 4 + length


@kernel(read_number, skip_numbers, skip_text)
def skip_cache(buf: UInt8s, p: int, n: int, version: int) -> int:
    """Skip the table of an ADD_CACHE."""
    count, p = read_number(buf, p, n, version)
    if p >= 0 and (count < 0 or count > (n - p) // (6 if version <= 4 else 4)):
        return -1
    for _ in range(count):
        if p < 0:
            return p
        p = skip_text(buf, p, n, version)
        if p < 0:
            return p
        p = skip_numbers(buf, p, n, 3 if version >= 15 else 6 if version == 14 else 5, version)
    return p


@kernel(skip_cache)
def read_cache(buf: UInt8s, p: int, n: int) -> tuple[int, int]:
    """Skip the body of an ADD_CACHE, version 15 on, with the signature of a scalar kernel."""
    return 0, skip_cache(buf, p, n, 15)


@kernel(read_number, skip_numbers)
def skip_checkpoints(buf: UInt8s, p: int, n: int, version: int) -> int:
    """Skip a count of pairs of numbers."""
    count, p = read_number(buf, p, n, version)
    if p < 0:
        return p
    if count < 0 or count > (n - p) // 2:
        return -1
    return skip_numbers(buf, p, n, 2 * count, version)


@kernel(read_number, skip_vector)
def skip_docstore(buf: UInt8s, p: int, n: int, version: int) -> int:
    """Skip a flag and, if it is set, stored documents."""
    if p >= n:
        return -1
    if buf[p] == 0:
        return p + 1
    count, p = read_number(buf, p + 1, n, version)
    if p >= 0 and (count < 0 or count > n - p):
        return -1
    for _ in range(count):
        if p < 0:
            return p
        p = skip_vector(buf, p, n, 1, version)
    return p


@kernel(load_dword)
def skip_dwords(buf: UInt8s, p: int, n: int, width: int) -> int:
    """Skip a dword count and that many elements."""
    count = load_dword(buf, p, n)
    if count < 0 or count > (n - p - 4) // width:
        return -1
    return p + 4 + count * width


@kernel(load_dword, skip_dwords)
def skip_column(buf: UInt8s, p: int, n: int) -> int:
    """Skip one columnar attribute."""
    kind = load_dword(buf, p, n)
    if kind < 0:
        return -1
    p += 4
    if kind == 1 or kind == 2 or kind == 5 or kind == 11 or kind == 4 or kind == 6:
        p += 8
        if p > n:
            return -1
        return skip_dwords(buf, p, n, 1 if kind == 4 else 8 if kind == 6 else 4)
    if kind == 7:
        p = skip_dwords(buf, p, n, 8)
        return p if p < 0 else skip_dwords(buf, p, n, 1)
    if kind == 0x40000001 or kind == 15 or kind == 16 or kind == 0x40000002:
        p = skip_dwords(buf, p, n, 4)
        return p if p < 0 else skip_dwords(buf, p, n, 8 if kind == 0x40000002 else 4)
    return -2


@kernel(load_dword, skip_column)
def skip_columnar(buf: UInt8s, p: int, n: int) -> int:
    """Skip a flag and, if it is set, columnar attributes."""
    if p >= n:
        return -1
    if buf[p] == 0:
        return p + 1
    count = load_dword(buf, p + 1, n)
    if count < 0 or count > (n - p) // 8:
        return -1
    p += 5
    for _ in range(count):
        p = skip_column(buf, p, n)
        if p < 0:
            return p
    return p


@kernel(skip_numbers, skip_vector, skip_checkpoints, skip_docstore, skip_columnar)
def skip_segment(buf: UInt8s, p: int, n: int, version: int) -> int:
    """Skip the segment of new rows of a commit."""
    if version >= 13:
        p = skip_numbers(buf, p, n, 1, version)
    if p >= 0:
        p = skip_vector(buf, p, n, 1, version)
    if p >= 0:
        p = skip_checkpoints(buf, p, n, version)
    if p >= 0:
        p = skip_vector(buf, p, n, 1, version)
    if p >= 0:
        p = skip_vector(buf, p, n, 1, version)
    if p >= 0:
        p = skip_vector(buf, p, n, 4, version)
    if p >= 0:
        p = skip_vector(buf, p, n, 1, version)
    if p >= 0 and version >= 3 and version < 8:
        p = skip_vector(buf, p, n, 4, version)
    if p >= 0 and version >= 4:
        p = skip_vector(buf, p, n, 1, version)
    if p >= 0 and version >= 9:
        p = skip_docstore(buf, p, n, version)
    if p >= 0 and version >= 11:
        p = skip_columnar(buf, p, n)
    return p


@kernel(read_number, skip_segment, skip_vector)
def skip_commit(buf: UInt8s, p: int, n: int, version: int, ids: int) -> int:
    """Skip an RT commit with document ids of `ids` bytes."""
    rows, p = read_number(buf, p, n, version)
    if p >= 0 and rows != 0:
        p = skip_segment(buf, p, n, version)
    return p if p < 0 else skip_vector(buf, p, n, ids, version)


@kernel(read_number, skip_text, skip_numbers, skip_vector)
def skip_update(buf: UInt8s, p: int, n: int, version: int, ids: int) -> int:
    """Skip an attribute update with document ids of `ids` bytes."""
    count, p = read_number(buf, p, n, version)
    if p >= 0 and (count < 0 or count > (n - p) // 2):
        return -1
    for _ in range(count):
        if p >= 0:
            p = skip_text(buf, p, n, version)
        if p < 0:
            return p
        p = skip_numbers(buf, p, n, 1, version)
    if p >= 0:
        p = skip_vector(buf, p, n, 4, version)
    if p >= 0:
        p = skip_vector(buf, p, n, ids, version)
    if p >= 0:
        p = skip_vector(buf, p, n, 4, version)
    if p >= 0 and version >= 10:
        p = skip_vector(buf, p, n, 1, version)
    return p


@kernel(read_number, skip_text, skip_numbers)
def skip_filter(buf: UInt8s, p: int, n: int, version: int) -> int:
    """Skip one filter of a stored query."""
    p = skip_text(buf, p, n, version)
    if p >= 0:
        p = skip_numbers(buf, p, n, 10, version)
    if p < 0:
        return p
    values, p = read_number(buf, p, n, version)
    if p < 0:
        return p
    texts, p = read_number(buf, p, n, version)
    if p < 0:
        return p
    if values < 0 or values > n - p or texts < 0 or texts > n - p:
        return -1
    p = skip_numbers(buf, p, n, values, version)
    for _ in range(texts):
        if p < 0:
            return p
        p = skip_text(buf, p, n, version)
    return p


@kernel(read_number, skip_text, skip_numbers, skip_filter)
def skip_query(buf: UInt8s, p: int, n: int, version: int) -> int:
    """Skip one stored query."""
    p = skip_numbers(buf, p, n, 2, version)
    if p >= 0:
        p = skip_text(buf, p, n, version)
    if p >= 0:
        p = skip_text(buf, p, n, version)
    if p < 0:
        return p
    filters, p = read_number(buf, p, n, version)
    if p < 0:
        return p
    nodes, p = read_number(buf, p, n, version)
    if p < 0:
        return p
    if filters < 0 or filters > (n - p) // 12 or nodes < 0 or nodes > (n - p) // 4:
        return -1
    for _ in range(filters):
        p = skip_filter(buf, p, n, version)
        if p < 0:
            return p
    return skip_numbers(buf, p, n, 4 * nodes, version)


@kernel(read_number, skip_numbers)
def skip_zint_list(buf: UInt8s, p: int, n: int, version: int) -> int:
    """Skip a count and that many zints."""
    count, p = read_number(buf, p, n, version)
    if p < 0:
        return p
    if count < 0 or count > n - p:
        return -1
    return skip_numbers(buf, p, n, count, version)


@kernel(read_number, skip_zint_list, skip_query)
def skip_pq_add_delete(buf: UInt8s, p: int, n: int, version: int) -> int:
    """Skip a percolate add/delete."""
    p = skip_zint_list(buf, p, n, version)
    if p >= 0:
        p = skip_zint_list(buf, p, n, version)
    if p < 0:
        return p
    count, p = read_number(buf, p, n, version)
    if p >= 0 and (count < 0 or count > (n - p) // 6):
        return -1
    for _ in range(count):
        if p < 0:
            return p
        p = skip_query(buf, p, n, version)
    return p


@kernel(skip_zint_list, skip_text)
def skip_pq_delete(buf: UInt8s, p: int, n: int, version: int) -> int:
    """Skip a percolate delete of versions 7 to 14."""
    p = skip_zint_list(buf, p, n, version)
    return p if p < 0 else skip_text(buf, p, n, version)


@kernel(skip_update, skip_commit, skip_pq_add_delete)
def skip_payload(buf: UInt8s, p: int, n: int) -> int:
    """Skip the payload of an ADD_TXN, version 15 on."""
    if p >= n:
        return -1
    op = buf[p]
    if op == 0:
        return skip_update(buf, p + 1, n, 15, 8)
    if op == 1:
        return skip_commit(buf, p + 1, n, 15, 8)
    if op == 2:
        return skip_pq_add_delete(buf, p + 1, n, 15)
    return -2


@kernel(load_dword)
def find_settings_end(buf: UInt8s, start: int, p: int, n: int) -> int:
    """Find the end of opaque bytes from `p`: the place of a right checksum of `[start, end)`.

    In the first 4096 bytes every place is tried up to the next `TXN!`; after that only the first few places where a
    record could follow, so that no file makes this slow.
    """
    crc = 0xFFFFFFFF
    checked_end = start
    tries = 0
    last = n if n - p < 262144 else p + 262144
    for q in range(p, last - 3):
        record_follows = q + 8 <= n and buf[q + 4] == 84 and load_dword(buf, q + 4, n) == 0x214E5854
        if record_follows or q + 4 == n or (tries == 0 and q - p < 4096):
            while checked_end < q:
                crc ^= buf[checked_end]
                checked_end += 1
                for _ in range(8):
                    crc = crc >> 1 ^ 0xEDB88320 if crc & 1 else crc >> 1
            if crc ^ 0xFFFFFFFF == load_dword(buf, q, n):
                return q
            tries += record_follows
            if tries == 8:
                return -2
    return -1 if last == n else -2


@kernel(
    read_number,
    skip_text,
    skip_numbers,
    skip_cache,
    skip_commit,
    skip_update,
    skip_query,
    skip_pq_delete,
    skip_pq_add_delete,
    find_settings_end,
)
def read_body(buf: UInt8s, p: int, n: int, table: Int64s, out: MutableInt64s, at: int) -> int:
    """Read a body of versions 2 to 14 to the columns id, tid, time. The op is the byte before it.

    Args:
        table: version, and bytes of a document id.
    """
    op = int(buf[p - 1])
    version = table[0]
    start = p - 1
    out[at] = 0
    out[at + 1] = 0
    out[at + 2] = 0
    if op == 4:
        return skip_cache(buf, p, n, version)
    out[at], p = read_number(buf, p, n, version)
    if p >= 0 and op == 3:
        p = skip_text(buf, p, n, version)
        if p >= 0 and version == 14:
            p = skip_numbers(buf, p, n, 1, version)
    if p < 0:
        return p
    tid, p = read_number(buf, p, n, version)
    if p < 0:
        return p
    time, p = read_number(buf, p, n, version)
    if p < 0:
        return p
    out[at + 1] = tid
    out[at + 2] = time
    if op == 1:
        return skip_commit(buf, p, n, version, table[1])
    if op == 2:
        return skip_update(buf, p, n, version, table[1])
    if version <= 4:
        return p if op == 3 else -2
    if op == 5:
        return find_settings_end(buf, start, p, n)
    if op == 6:
        return skip_query(buf, p, n, version)
    if op == 7:
        return skip_pq_delete(buf, p, n, version)
    if op == 8:
        return skip_pq_add_delete(buf, p, n, version)
    return p
