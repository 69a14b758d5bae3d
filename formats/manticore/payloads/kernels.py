"""Integers and texts of variable length in payloads, and walks over whole payloads, as kernels.

Source: `docs/spec/manticore.md#zint`.

Document ids take 8 bytes, or 4 where binlog.meta says id64=0 (`DocID_t` of that
build). Source: Sphinx 2.0.9, `BinlogWriter_c::ZipOffset`, `RtBinlog_c`.

Each returns the position after the value, SHORT or MALFORMED. Every count is compared with the remaining bytes before
it is used.
"""

from __future__ import annotations

import struct
import sys
from array import array
from collections.abc import Callable, Iterator
from typing import Any

from construct import Construct, Subconstruct, stream_read, stream_seek, stream_tell, stream_write

from binlogtool.format_api.lazy_import import LazyRef
from binlogtool.format_api.schema_fields import (
    MAX_VARINT_SIZE,
    SHORT,
    UINT64_MASK,
    Int64s,
    LeafFormat,
    MalformedError,
    MutableInt64s,
    RecordKernel,
    ScalarForm,
    ScalarKernel,
    TracePart,
    UInt8s,
    Varint,
    WideVarint,
    kernel,
    read_varint,
    varint_size,
)
from binlogtool.limits import Limits

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


# --- Field types ---

MAX_PARTS = 4096
"""Most elements of one vector that get separate rows in the annotated hexdump."""

_CODES = {4: "I", 8: "q"}
_VECTOR_KERNELS = {1: ScalarKernel(read_vector1), 4: ScalarKernel(read_vector4), 8: ScalarKernel(read_vector8)}
_LOW_VECTOR_KERNELS = {
    1: ScalarKernel(read_low_vector1),
    4: ScalarKernel(read_low_vector4),
    8: ScalarKernel(read_low_vector8),
}
_ZINT, _LOW_ZINT = Zint(), Varint()


_TEXT_TABLE = LazyRef("manticore.payloads.json_lines:words")


def _create_leaf(put: str, *given: str, members: bool = False, table: LazyRef | None = _TEXT_TABLE) -> LeafFormat:
    return LeafFormat(
        None,
        LazyRef(f"manticore.payloads.json_lines:{put}"),
        text_table=table,
        context_fields=given,
        writes_members=members,
    )


DWORDS, QWORDS = _create_leaf("put_dwords", table=None), _create_leaf("put_qwords", table=None)
"""The elements of a vec(4) and of a vec(8)."""

ROWS, STORED = _create_leaf("put_rows", "rows", members=True), _create_leaf("put_stored")
"""Dwords of rows: how many, how many in a row, and the document ids. Stored documents: their number and size."""

KIND = _create_leaf("put_kind", members=True)
"""The type of an attribute, and its name."""

_UPDATE_FIELDS = ("count", "attributes", "pool", "docids")
BLOBS = _create_leaf("put_blobs", *_UPDATE_FIELDS, "row_offsets", members=True)
OLD_BLOBS = _create_leaf("put_old_blobs", *_UPDATE_FIELDS, "row_offsets", members=True)
LAST_OFFSETS = _create_leaf("put_last_offsets", *_UPDATE_FIELDS, members=True)
"""The last field of an update (also before versions 15 and 10), followed by the new values of each document."""


class Vector(Construct):  # type: ignore[misc]
    """Construct type of vec(width): a zint count, then the elements (`docs/spec/manticore.md#strings-and-vectors`).

    The value is bytes for width 1, else an array of unsigned dwords or signed qwords. `low`: the count is written as
    versions 2 to 4 do.
    """

    def __init__(self, width: int, *, low: bool = False) -> None:
        super().__init__()
        self.width = width
        self.count = _LOW_ZINT if low else _ZINT
        self.kernel = _LOW_VECTOR_KERNELS[width] if low else _VECTOR_KERNELS[width]

    def _parse(self, stream: Any, context: Any, path: str) -> Any:
        count = self.count._parse(stream, context, path)
        position = stream_tell(stream, path)
        bytes_left = stream_seek(stream, 0, 2, path) - position
        stream_seek(stream, position, 0, path)
        if count > bytes_left // self.width:
            text = f"{count:,} elements of {self.width} bytes declared, {bytes_left:,} bytes left"
            raise MalformedError(text, path, "count-out-of-bounds")
        data = stream_read(stream, count * self.width, path)
        if self.width == 1:
            return VectorBytes.with_count(data, count)
        return VectorValues.with_count(_CODES[self.width], data, count)

    def _build(self, obj: Any, stream: Any, context: Any, path: str) -> Any:
        data = bytes(obj) if self.width == 1 else struct.pack(f"<{len(obj)}{_CODES[self.width]}", *obj)
        self.count._build(getattr(obj, "declared", len(obj)), stream, context, path)
        stream_write(stream, data, len(data), path)
        return obj

    def trace_rows(self, data: bytes, start: int, end: int, limits: Limits) -> Iterator[TracePart]:
        """Yield the count, then the elements; bytes, or very many elements, are one row."""
        position = start
        while position < end - 1 and data[position] >= 128 and position - start < 9:
            position += 1
        count = self.count.parse(data[start : position + 1])
        yield TracePart(".count", 1, start, position + 1, int(count))
        position += 1
        if count > (end - position) // self.width:
            text = f"{count:,} elements of {self.width} bytes declared, {end - position:,} bytes left"
            raise MalformedError(text, None, "count-out-of-bounds")
        if self.width == 1 or count > MAX_PARTS:
            yield TracePart(".data", 1, position, end, data[position:end])
            return
        for index, (value,) in enumerate(struct.iter_unpack("<" + _CODES[self.width], data[position:end])):
            yield TracePart(f"[{index}]", 1, position + index * self.width, position + (index + 1) * self.width, value)


class VectorValues(array):  # type: ignore[type-arg]
    """Elements of a vector; `declared` is the count as it was written."""

    declared: int

    @classmethod
    def with_count(cls, code: str, data: bytes, declared: int) -> VectorValues:
        """Create the elements with their count."""
        values = cls(code, data)
        if sys.byteorder == "big":
            values.byteswap()
        values.declared = declared
        return values


class VectorBytes(bytes):
    """Bytes of a vec(1); `declared` is the count as it was written."""

    declared: int

    @classmethod
    def with_count(cls, data: bytes, declared: int) -> VectorBytes:
        """Create the bytes with their count."""
        values = cls(data)
        values.declared = declared
        return values


class KernelScanned(Subconstruct):  # type: ignore[misc]
    """A part that is parsed by its schema, and skipped by a kernel where only its end is needed."""

    def __init__(self, subcon: Construct, kernel_: RecordKernel | ScalarKernel) -> None:
        super().__init__(subcon)
        self.kernel = kernel_


class KernelSkipped(Construct):  # type: ignore[misc]
    """Construct type of bytes whose end a kernel finds.

    Args:
        skip: skip(buf, p, n, *given) returns the end, or a negative number.
        given: the version, or other arguments of the kernel.
        scan: kernel for scanners, where they do not skip the whole body with a kernel of their own.
    """

    def __init__(self, skip: Callable[..., int], *given: int, scan: ScalarKernel | None = None) -> None:
        super().__init__()
        self.skip, self.given = skip, given
        self.kernel = scan

    def _parse(self, stream: Any, context: Any, path: str) -> bytes:
        position = stream_tell(stream, path)
        data = stream.read()
        end = self.skip(data, 0, len(data), *self.given)
        if end < 0:
            stream_seek(stream, position, 0, path)
            problem = "ends after the available bytes" if end == SHORT else "is not what the format allows"
            raise MalformedError(f"the payload {problem}", path)
        stream_seek(stream, position + end, 0, path)
        return bytes(data[:end])

    def _build(self, obj: Any, stream: Any, context: Any, path: str) -> Any:
        stream_write(stream, obj, len(obj), path)
        return obj


class ReconfigureSettings(Construct):  # type: ignore[misc]
    """Construct type of the opaque bytes of RECONFIGURE: up to a right checksum followed by a record (or the end).

    In the schema it must follow the zints `id`, `tid` and `time`, which come after the op byte.
    """

    def _parse(self, stream: Any, context: Any, path: str) -> bytes:
        position = stream_tell(stream, path)
        size = 1 + sum(getattr(value, "width", varint_size(value)) for value in (context.id, context.tid, context.time))
        stream_seek(stream, position - size, 0, path)
        data = stream.read()
        end = find_settings_end(data, 0, size, len(data))
        if end < 0:
            stream_seek(stream, position, 0, path)
            raise MalformedError("no end of the settings with a right checksum", path)
        stream_seek(stream, position - size + end, 0, path)
        return bytes(data[size:end])

    def _build(self, obj: Any, stream: Any, context: Any, path: str) -> Any:
        stream_write(stream, obj, len(obj), path)
        return obj
