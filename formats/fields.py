"""Bounded field types: construct classes (parse, build, trace) that also name their scan kernel.

A *kernel* is a plain module-level function over integers: it indexes `buf` (bytes or a uint8 array), calls only other
kernels, uses only literals and the constants below, and never loops without consuming a byte. The Python scanner calls
it directly; the build of the package turns its source into C and compiles it. Values are int64: the bit pattern of
unsigned 64-bit fields.

    scalar kernel   read(buf, p, n) -> (value, next)
    record kernel   read(buf, p, n, table, out, at) -> next      writes len(columns) values to out[at:]

`n` is the end of the readable bytes; `next` < 0 says why there is no value: SHORT or MALFORMED.
"""

from __future__ import annotations

import re
import struct
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple, Protocol, TypeVar, runtime_checkable

import msgspec
from construct import Construct, ConstructError, Subconstruct, evaluate, stream_read, stream_seek, stream_tell

from binlogtool.limits import Limits

SHORT = -1
MALFORMED = -2

F = TypeVar("F", bound=Callable[..., Any])


def kernel(*uses: Callable[..., Any], native: str = "") -> Callable[[F], F]:
    """Mark a function as a kernel and list the kernels that it calls.

    native: the equivalent function of `schema/runtime.c`, used in place of the translated source.
    """

    def mark(function: F) -> F:
        function.__dict__["kernel_uses"] = uses
        if native:
            function.__dict__["kernel_native"] = native
        return function

    return mark


class MalformedError(ConstructError):  # type: ignore[misc]
    """The bytes are not a value of this field type; `finding_id` is the id of the finding."""

    def __init__(self, message: str, path: str | None = None, finding_id: str = "payload-undecodable") -> None:
        super().__init__(message, path=path)
        self.finding_id = finding_id


class ScalarForm(msgspec.Struct, frozen=True):
    """One common encoding of a scalar, selected by its first byte; the Python scanner reads it inline, without a
    call.

    Args:
        first, last: the range of first bytes with this encoding, both included.
        layout: byte order and `struct` code (`>I`) of the value after the first byte; None: the value is the first
            byte
            minus `base`.
        skips: (only without layout) that many bytes follow and belong to the field.
    """

    first: int
    last: int
    layout: str | None = None
    base: int = 0
    skips: bool = False

    def size_expression(self, first_byte: str) -> str:
        """Return the source text of the field's size; `first_byte`: the variable that holds the first byte."""
        if self.layout is not None:
            return str(1 + struct.calcsize(self.layout))
        return f"1 + {first_byte} - {self.base}" if self.skips else "1"

    @property
    def max_size(self) -> int:
        """The largest size in bytes."""
        if self.layout is not None:
            return 1 + struct.calcsize(self.layout)
        return 1 + (self.last - self.base if self.skips else 0)


class ScalarKernel(msgspec.Struct, frozen=True):
    """Scan rule of a field type with one value. `forms` must agree with `read`, the most frequent first.

    unsigned: the value is the bit pattern of an unsigned number.
    """

    read: Callable[..., tuple[int, int]]
    forms: tuple[ScalarForm, ...] = ()
    unsigned: bool = False


class RecordForm(msgspec.Struct, frozen=True):
    """One common encoding of a record, selected by its first byte; the Python scanner reads it with one unpack.

    Args:
        first, last: the range of first bytes that can have this encoding, both included.
        layout: byte order and `struct` codes of the whole record, its first byte included.
        items: meaning of each value of the layout: the name of a column, or the required constant (an integer, or
            bytes
            for an `s` code); for any other value the kernel is called.
        fixed: the values of all other columns.
    """

    first: int
    last: int
    layout: str
    items: tuple[str | int | bytes, ...]
    fixed: tuple[tuple[str, int], ...] = ()

    @property
    def size(self) -> int:
        """Size of the record in bytes."""
        return struct.calcsize(self.layout)

    def iter_items(self) -> Iterator[tuple[str | int | bytes, str, int]]:
        """Yield each item with its struct code and its offset."""
        offset = 0
        for item, code in zip(self.items, re.findall(r"\d*s|[a-zA-Z]", self.layout), strict=True):
            yield item, code, offset
            offset += struct.calcsize(self.layout[0] + code)


class RecordKernel(msgspec.Struct, frozen=True):
    """Scan rule of a field type with several named values, driven by a constant table of integers.

    Args:
        columns: names relative to the field (`lsn` becomes `header.lsn` for a field called header).
        shapes: must agree with `read`; their first bytes must not overlap.
    """

    read: Callable[..., int]
    columns: tuple[str, ...]
    table: tuple[int, ...] = ()
    shapes: tuple[RecordForm, ...] = ()


class ChecksumResult(NamedTuple):
    """The result of a checksum check. ok is None where the stored value means "not computed"."""

    algorithm: str
    stored: int
    computed: int
    ok: bool | None
    start: int
    end: int


class CrcCheck(Construct):  # type: ignore[misc]
    """Zero-width field: compares a stored checksum with the bytes `[start, end)` of the same stream.

    Never raises on a mismatch: its value is a `ChecksumResult`.

    Args:
        start, end: expressions for stream positions (`Tell` fields).
        absent: a stored value that means "not computed", unless the computed value is the same.
        without: expression for the effect of bits that the writer leaves out of the checksum, xored in; 0 = none.
    """

    def __init__(
        self, checksum: Any, stored: Any, start: Any, end: Any, absent: int | None = None, without: Any = 0
    ) -> None:
        super().__init__()
        self.checksum = checksum
        self.stored = stored
        self.start = start
        self.end = end
        self.absent = absent
        self.without = without

    def _parse(self, stream: Any, context: Any, path: str) -> ChecksumResult:
        start, end = evaluate(self.start, context), evaluate(self.end, context)
        position = stream_tell(stream, path)
        stream_seek(stream, start, 0, path)
        data = stream_read(stream, end - start, path)
        stream_seek(stream, position, 0, path)
        return self.compare(context, data, start, end)

    def compare(self, context: Any, data: Any, start: int, end: int) -> ChecksumResult:
        """Compare the stored checksum with that of `data`, the bytes `[start, end)`."""
        stored, computed = evaluate(self.stored, context), self.checksum(data) ^ evaluate(self.without, context)
        ok = None if stored == self.absent and computed != stored else computed == stored
        return ChecksumResult(self.checksum.name, stored, computed, ok, start, end)

    def _build(self, obj: Any, stream: Any, context: Any, path: str) -> Any:
        return obj

    def _sizeof(self, context: Any, path: str) -> int:
        return 0


class Magic(Subconstruct):  # type: ignore[misc]
    """An integer that must be one of a few named constants; its value is the integer."""

    def __init__(self, subcon: Construct, **names: int) -> None:
        super().__init__(subcon)
        self.names = {value: name for name, value in names.items()}

    def _parse(self, stream: Any, context: Any, path: str) -> int:
        value = int(self.subcon._parsereport(stream, context, path))
        if value not in self.names:
            width = 2 * self.subcon.sizeof()
            expected = " or ".join(f"{known:0{width}x}" for known in self.names)
            raise MalformedError(f"magic is {value:0{width}x}, expected {expected}", path, "bad-magic")
        return value


class NestedSchema(Subconstruct):  # type: ignore[misc]
    """A sized field whose bytes have a schema of their own.

    The scanner and plain parsing see `subcon` (its bytes); the annotated parse continues into `detail`, over exactly
    these bytes.
    """

    def __init__(self, subcon: Construct, detail: Construct) -> None:
        super().__init__(subcon)
        self.detail = detail


class CompressedSchema(Subconstruct):  # type: ignore[misc]
    """Inside `NestedSchema`: compressed bytes; `subcon` describes the unpacked bytes, a new address space.

    codec: `formats.layouts.Decompressor`; one with `located = True` also gets the file offset of the packed bytes.
    """

    def __init__(self, subcon: Construct, codec: Any, name: str) -> None:
        super().__init__(subcon)
        self.codec = codec
        self.codec_name = name


class TracePart(NamedTuple):
    """One row below a `Traceable` field, in file order, parents before their children.

    Args:
        path: from the field on, with its own separator: ".lsn", ".tuple[0]", "[3].name".
        depth: 1 = child of the field.
        start, end: positions in the given bytes; end None = a container, which ends where its last part ends (the
            leaves
            must tile it: its own header bytes are a leaf too, such as ".tuple.count").
    """

    path: str
    depth: int
    start: int
    end: int | None
    value: Any = None
    meaning: str = ""


PlainPart = tuple[str, int, int, int | None, Any, str]
"""The members of a `Part`, in their order."""


@runtime_checkable
class Traceable(Protocol):
    """A construct class that can list the parts of its value: messages, nested values, compressed integers.

    The annotated parse calls `_parse` first and then `trace_rows`, over exactly the bytes that were consumed. A class
    without it is one row with its parsed value. A class whose value is all that is left of its stream, and that no
    other field refers to, may set `fills_stream = True`: then only its parts are requested, which saves a second
    decoding. A class with very many parts may offer `trace_parts`: the same as plain tuples, which takes half the time.
    """

    def trace_rows(self, data: bytes, start: int, end: int, limits: Limits) -> Iterator[TracePart]:
        """Yield the parts of the value at `data[start:end]`; the leaves tile this range, a plain value has none.

        Must keep its own stack or count the depth against `limits.max_depth`. Each part that is not a container takes
        at least one byte. After a failed `_parse`, `end` is the furthest possible end of the value: yields the good
        parts and raises `MalformedError` at the bad one.
        """
