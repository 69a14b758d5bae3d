"""Field types of the format: counted vectors, and parts whose end only a kernel finds."""

from __future__ import annotations

import struct
import sys
from array import array
from collections.abc import Callable, Iterator
from typing import Any

from construct import Construct, Subconstruct, stream_read, stream_seek, stream_tell, stream_write

from binlogtool.format_api.lazy_import import LazyRef
from binlogtool.format_api.schema_fields import SHORT, LeafFormat, MalformedError, RecordKernel, ScalarKernel, TracePart
from binlogtool.format_api.varint import Varint, varint_size
from binlogtool.formats.manticore.payloads.kernels import (
    Zint,
    find_settings_end,
    read_low_vector1,
    read_low_vector4,
    read_low_vector8,
    read_vector1,
    read_vector4,
    read_vector8,
)
from binlogtool.limits import Limits

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
