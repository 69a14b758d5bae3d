"""Bounded field types of schemas, the kernel decorator, kernels that load integers, readers generated from a schema.

A *kernel* is a plain module-level function over integers: it indexes `buf` (bytes or a uint8 array), calls only other
kernels and never loops without consuming a byte. It runs as Python, and the build turns its source into C. Values are
int64: the bit pattern of unsigned 64-bit fields. The compiler reads the annotations of parameters, not their names.

    scalar kernel   read(buf, p, n) -> (value, next)
    record kernel   read(buf, p, n, table, out, at) -> next      writes len(columns) values to out[at:]

`n` is the end of the readable bytes; `next` < 0 (SHORT, MALFORMED) says why there is no value. A value that a schema
cannot express is a *leaf*: the class of its field has an attribute `leaf`. A field only for layout is a `HiddenField`.
"""

from __future__ import annotations

import struct
import sys
from collections.abc import Callable, Iterator, Mapping, MutableSequence, Sequence
from functools import cache, lru_cache
from importlib import import_module
from types import FunctionType
from typing import Annotated, Any, Generic, NamedTuple, Protocol, TypeAlias, TypeVar, runtime_checkable

import msgspec
from construct import (
    Adapter,
    BytesInteger,
    Construct,
    ConstructError,
    FormatField,
    IfThenElse,
    Renamed,
    SizeofError,
    Subconstruct,
    evaluate,
    stream_read,
    stream_seek,
    stream_tell,
    stream_write,
)

from binlogtool.format_api.lazy_import import LazyRef
from binlogtool.limits import Limits

# --- Types of array parameters of kernels ---


class ArrayType(NamedTuple):
    """Element type of the array that a parameter points to.

    size: bytes of an element: 1, an unsigned byte; 8, a signed integer in the order of this machine.
    mutable: the kernel, or one that it calls, may write to it.
    """

    size: int
    mutable: bool


UInt8s: TypeAlias = Annotated["bytes | bytearray | memoryview[int]", ArrayType(1, False)]
"""Bytes that a kernel reads; each is a number from 0 to 255."""

MutableUInt8s: TypeAlias = Annotated["bytearray | memoryview[int]", ArrayType(1, True)]
"""Bytes that a kernel writes."""

Int64s: TypeAlias = Annotated[Sequence[int], ArrayType(8, False)]
"""Signed 64-bit integers that a kernel reads: a column of a batch, a table of constants."""

MutableInt64s: TypeAlias = Annotated["MutableSequence[int] | memoryview[int]", ArrayType(8, True)]
"""Signed 64-bit integers that a kernel writes."""


# --- Bounded field types ---

SHORT = -1
MALFORMED = -2

F = TypeVar("F", bound=Callable[..., Any])


def kernel(*uses: Callable[..., Any], native: str = "", inline: bool = False) -> Callable[[F], F]:
    """Compile the decorated function as a kernel. uses: kernels it calls. inline: copy its code into the callers.

    native: the equivalent function of `schema/runtime.c`, used instead of the translated source.
    """

    def mark(function: F) -> F:
        function.__dict__.update(kernel_uses=uses, kernel_inline=inline)
        if native:
            function.__dict__["kernel_native"] = native
        return function

    return mark


def kernel_template(*uses: Callable[..., Any]) -> Callable[[F], F]:
    """Mark a function as a template of kernels and list the kernels and templates that it calls.

    Its parameter `sink` is any struct whose methods are kernels; `bind_sink` makes the kernel for one class of them.
    """

    def mark(function: F) -> F:
        function.__dict__["template_uses"] = uses
        return function

    return mark


def bind_sink(template: F, sink: type, *, inline: bool = False) -> F:
    """Return the kernel that a template is for one class of sinks.

    It has the text of the template, so as Python both do the same; compiled, it calls the methods of the class by name.

    Args:
        inline: make it, with the templates and methods that it calls, a part of its callers.
    """
    return _bind_sink(template, sink, inline)  # type: ignore[return-value]


@cache
def _bind_sink(template: Any, sink: type, inline: bool) -> FunctionType:
    code, uses = template.__code__, template.__dict__["template_uses"]
    bound = FunctionType(code, template.__globals__, f"{template.__name__}_{sink.__name__}")
    bound.__qualname__, bound.__annotations__ = bound.__name__, {**template.__annotations__, "sink": sink}
    methods = [method for name in code.co_names if hasattr(method := getattr(sink, name, None), "kernel_uses")]
    called = [_bind_sink(one, sink, inline) if "template_uses" in one.__dict__ else one for one in uses]
    bound.__dict__.update(kernel_uses=(*called, *methods), kernel_sink=sink, kernel_inline=False)
    for one in (bound, *methods) if inline else ():
        one.__dict__["kernel_inline"] = True
    return bound


class MalformedError(ConstructError):  # type: ignore[misc]
    """Raised for bytes that are no value of a field type; `finding_id` is the id of the finding."""

    def __init__(self, message: str, path: str | None = None, finding_id: str = "payload-undecodable") -> None:
        super().__init__(message, path=path)
        self.finding_id = finding_id


class ScalarForm(msgspec.Struct, frozen=True):
    """One common encoding of a scalar, selected by its first byte; generated code reads it inline, without a call.

    Args:
        first, last: the range of first bytes with this encoding, inclusive.
        layout: byte order and `struct` code (`>I`) of the value after the first byte; None: the value is the first byte
            minus `base`.
        skips: (only without layout) number of following bytes that belong to the field.
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
        """Maximum size in bytes."""
        if self.layout is not None:
            return 1 + struct.calcsize(self.layout)
        return 1 + (self.last - self.base if self.skips else 0)


class ScalarKernel(msgspec.Struct, frozen=True):
    """Scan rule of a field type with one value. `forms` must agree with `read`, the most frequent first.

    unsigned: the value is the bit pattern of an unsigned number. arguments: constants for `read`, after its range.
    """

    read: Callable[..., tuple[int, int]]
    forms: tuple[ScalarForm, ...] = ()
    unsigned: bool = False
    arguments: tuple[int, ...] = ()

    def format_arguments(self, *places: object) -> str:
        """Return the source of the arguments: buffer, start, end, and the constants."""
        return ", ".join(map(str, (*places, *self.arguments)))


class RecordKernel(msgspec.Struct, frozen=True):
    """Scan rule of a field type with several named values, driven by a constant table of integers.

    Args:
        columns: names relative to the field (`lsn` becomes `header.lsn` for a field called header).
    """

    read: Callable[..., int]
    columns: tuple[str, ...]
    table: tuple[int, ...] = ()


class ChecksumResult(NamedTuple):
    """Result of a checksum check. ok: None = the stored value means "not computed"."""

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
        without: expression for the effect of bits that the writer excludes from the checksum, to be xored; 0 = none.
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
        return self.compare_with_stored(context, data, start, end)

    def compare_with_stored(self, context: Any, data: Any, start: int, end: int) -> ChecksumResult:
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
    """Sized field whose bytes have another schema.

    The scanner and plain parsing see `subcon` (its bytes); the annotated parse continues into `detail`, over exactly
    these bytes.
    """

    def __init__(self, subcon: Construct, detail: Construct) -> None:
        super().__init__(subcon)
        self.detail = detail


class CompressedSchema(Subconstruct):  # type: ignore[misc]
    """Compressed bytes inside a `NestedSchema`; `subcon` describes the unpacked bytes, a new address space.

    codec: `format_api.layout.Decompressor`; with `located = True` it also receives the file offset of the packed bytes.
    """

    def __init__(self, subcon: Construct, codec: Any, name: str) -> None:
        super().__init__(subcon)
        self.codec = codec
        self.codec_name = name


class TracePart(NamedTuple):
    """Row below a `Traceable` field; rows are in file order, parents before their children.

    Args:
        path: relative to the field, beginning with the separator: ".lsn", ".tuple[0]", "[3].name".
        depth: 1 = child of the field.
        start, end: positions in the given bytes; end None = a container, which ends where its last part ends (the
            leaves must tile it: its own header bytes are a leaf too, such as ".tuple.count").
    """

    path: str
    depth: int
    start: int
    end: int | None
    value: Any = None
    meaning: str = ""


PlainPart = tuple[str, int, int, int | None, Any, str]
"""The members of a `TracePart`, in order, as a plain tuple."""


@runtime_checkable
class Traceable(Protocol):
    """Construct class that can list the parts of its value: messages, nested values, compressed integers.

    The annotated parse calls `_parse` first and then `trace_rows`, over exactly the bytes that were consumed. A class
    without it is shown as one row with its parsed value. A class whose value is the rest of its stream, and to which no
    other field refers, may set `fills_stream = True`: then only its parts are requested, which saves a second decoding.
    A class with very many parts may define `trace_plain_parts`, which yields them as plain tuples in half the time.
    """

    def trace_rows(self, data: bytes, start: int, end: int, limits: Limits) -> Iterator[TracePart]:
        """Yield the parts of the value at `data[start:end]`; the leaves tile this range, a plain value has none.

        Must keep its own stack or count the depth against `limits.max_depth`. Each part that is not a container takes
        at least one byte. After a failed `_parse`, `end` is the furthest possible end of the value: yields the good
        parts and raises `MalformedError` at the bad one.
        """


# --- Kernels that load integers ---


@kernel()
def load_uint32(buf: UInt8s, p: int) -> int:
    """Load an unsigned 32-bit integer, little-endian."""
    return buf[p] | buf[p + 1] << 8 | buf[p + 2] << 16 | buf[p + 3] << 24


@kernel()
def load_uint48(buf: UInt8s, p: int) -> int:
    """Load an unsigned 48-bit integer, little-endian."""
    low = buf[p] | buf[p + 1] << 8 | buf[p + 2] << 16 | buf[p + 3] << 24
    return low | buf[p + 4] << 32 | buf[p + 5] << 40


@kernel()
def load_int64(buf: UInt8s, p: int) -> int:
    """Load 64 bits, little-endian; negative above the signed range."""
    low = buf[p] | buf[p + 1] << 8 | buf[p + 2] << 16 | buf[p + 3] << 24
    high = buf[p + 4] | buf[p + 5] << 8 | buf[p + 6] << 16
    top = buf[p + 7] + 0
    return low | high << 32 | (top - 256 if top >= 128 else top) << 56


@kernel()
def load_little_endian(buf: UInt8s, p: int, size: int) -> int:
    """Load an unsigned integer of up to 7 bytes, or a signed integer of 8 bytes, little-endian."""
    if size == 4:
        return buf[p] | buf[p + 1] << 8 | buf[p + 2] << 16 | buf[p + 3] << 24
    value = 0
    for i in range(min(size, 7)):
        value |= buf[p + i] << 8 * i
    if size == 8:
        top = buf[p + 7] + 0
        value += (top - 256 if top >= 128 else top) * 0x100000000000000
    return value


@kernel()
def load_big_endian(buf: UInt8s, p: int, size: int) -> int:
    """Load an unsigned integer of up to 7 bytes, or a signed integer of 8 bytes, big-endian."""
    value = 0
    first = 1 if size == 8 else 0
    for i in range(first, size):
        value = value << 8 | buf[p + i]
    if size == 8:
        top = buf[p] + 0
        value += (top - 256 if top >= 128 else top) * 0x100000000000000
    return value


# --- Field types of record bodies ---


def make_truncation_error(field_name: str, needed: int, bytes_remaining: int) -> MalformedError:
    """Create the error for a field that does not fit into the body."""
    text_ = f"{field_name} needs {needed:,} bytes, {max(bytes_remaining, 0):,} left"
    return MalformedError(text_, finding_id="length-out-of-bounds")


def make_count_error(element_name: str, count: int, bytes_remaining: int) -> MalformedError:
    """Create the error for a count that does not fit into the remaining bytes."""
    text_ = f"{count:,} {element_name} cannot fit into {max(bytes_remaining, 0):,} bytes"
    return MalformedError(text_, finding_id="count-out-of-bounds")


class LeafFormat(msgspec.Struct, frozen=True):
    """Output form of a value that is a whole range of bytes (a leaf).

    Args:
        decode: bytes -> the value that `dump` shows; None = only compiled code uses this leaf.
        json_kernel: name of the kernel `put(buf, p, n, out, o, z)` that writes the same value as JSON, see
            `format_api.json_text_kernels`; None = only the general writer writes it.
        unquoted: the kernel writes the text without its quotes.
        text_table: name of the table of texts that the kernel takes as an additional argument, before `out`.
        context_fields: fields of the enclosing structures whose integers (or start offsets) the kernel takes as
            additional arguments, before `out`.
        constant: an integer that the kernel takes before these fields.
        writes_members: the kernel writes JSON members with their names.
    """

    decode: Callable[[bytes], Any] | None
    json_kernel: LazyRef | None = None
    unquoted: bool = False
    text_table: LazyRef | None = None
    context_fields: tuple[str, ...] = ()
    constant: int | None = None
    writes_members: bool = False


class BodySchema(msgspec.Struct, frozen=True):
    """Body as `dump` shows it: the fields of a schema, optionally preceded by one field composed of them.

    Args:
        title: name and text of the composed field; `{name}` in the text is a field; text None = null.
        parameters: names in the text that are not fields: numbers that the reader of the body supplies.
    """

    schema: Construct
    title: tuple[str, str | None] | None = None
    parameters: tuple[str, ...] = ()


# -- marks -------------------------------------------------------------------------------------------------------------


class FieldMarker(Renamed):  # type: ignore[misc]
    """Marker that attaches information to a field without changing its parsing."""

    def _parse(self, stream: Any, context: Any, path: Any) -> Any:
        return self.subcon._parsereport(stream, context, path)

    def _build(self, obj: Any, stream: Any, context: Any, path: Any) -> Any:
        return self.subcon._build(obj, stream, context, path)

    def _sizeof(self, context: Any, path: Any) -> Any:
        return self.subcon._sizeof(context, path)


class HiddenField(FieldMarker):
    """Marker of a length, count or filler that is not shown."""


class InterpretedOnly(FieldMarker):
    """Marker of a field; compiled code leaves bodies that contain it to the general writer."""


class RenamedField(FieldMarker):
    """Marker of a field that `dump` shows under another name."""

    def __init__(self, title: str, subcon: Construct) -> None:
        super().__init__(subcon)
        self.title = title


class OpaqueLeaf(FieldMarker):
    """Marker of a field whose bytes are all one leaf."""

    def __init__(self, subcon: Construct, leaf: LeafFormat) -> None:
        super().__init__(subcon)
        self.leaf = leaf


class SingleField(FieldMarker):
    """Marker of a structure that is shown as a single value: its only bytes field."""

    def __init__(self, subcon: Construct, name: str, leaf: LeafFormat) -> None:
        super().__init__(subcon)
        self.shown, self.as_leaf = name, leaf


class ZeroMeansAbsent(FieldMarker):
    """Marker of a field whose value 0 means that it is absent."""


# -- conditions --------------------------------------------------------------------------------------------------------


class FieldPresent(msgspec.Struct, frozen=True):
    """Condition: the field `name` of the same structure is present."""

    name: str

    def __call__(self, this_: Any) -> bool:
        """Evaluate the condition for construct."""
        return this_[self.name] is not None


class HighBitSet(msgspec.Struct, frozen=True):
    """Condition: the highest bit of the field `name` (`HighBitInt`) of the same structure is set."""

    name: str

    def __call__(self, this_: Any) -> bool:
        """Evaluate the condition for construct."""
        return bool(getattr(this_[self.name], "high", 0))


class AnyFlagSet(msgspec.Struct, frozen=True):
    """Condition: the flags field `name` of the same structure is present, and one of these flags is set."""

    name: str
    flags: tuple[str, ...]

    def __call__(self, this_: Any) -> bool:
        """Evaluate the condition for construct."""
        field_flags = this_[self.name]
        return field_flags is not None and any(field_flags[flag] for flag in self.flags)


def make_flag_condition(name: str, *flags: str) -> AnyFlagSet:
    """Create an `AnyFlagSet` condition."""
    return AnyFlagSet(name, flags)


# -- fields ------------------------------------------------------------------------------------------------------------


class IfBytesLeft(Subconstruct):  # type: ignore[misc]
    """Field that is absent (None) if no bytes are left, because older servers do not write it."""

    looks_for_end = True

    def _parse(self, stream: Any, context: Any, path: Any) -> Any:
        position = stream.tell()
        more = bool(stream.read(1))
        stream.seek(position)
        return self.subcon._parsereport(stream, context, path) if more else None

    def _build(self, obj: Any, stream: Any, context: Any, path: Any) -> Any:
        return obj if obj is None else self.subcon._build(obj, stream, context, path)


class SplitNumber(int):
    """The low bits of an integer; `high`: the other bits."""

    high: int

    def __new__(cls, value: int, high: int) -> SplitNumber:  # noqa: D102 - see the class
        number = super().__new__(cls, value)
        number.high = high
        return number


class SplitInt(Construct):  # type: ignore[misc]
    """A little-endian integer of `size` bytes: the low `bits` are the number, the other bits have another meaning."""

    def __init__(self, size: int, bits: int) -> None:
        super().__init__()
        self.size, self.bits = size, bits

    def _parse(self, stream: Any, context: Any, path: str) -> SplitNumber:
        value = int.from_bytes(stream_read(stream, self.size, path), "little")
        return SplitNumber(value & (1 << self.bits) - 1, value >> self.bits)

    def _build(self, obj: Any, stream: Any, context: Any, path: str) -> Any:
        value = int(obj) | getattr(obj, "high", 0) << self.bits
        stream_write(stream, value.to_bytes(self.size, "little"), self.size, path)
        return obj


class HighBitInt(SplitInt):
    """A little-endian integer of `size` bytes whose highest bit means that another number follows."""

    def __init__(self, size: int) -> None:
        super().__init__(size, 8 * size - 1)


class PeekInt(Subconstruct):  # type: ignore[misc]
    """Integer at the current position that is not consumed and not shown; 0 if fewer bytes are left."""

    def _parse(self, stream: Any, context: Any, path: Any) -> int:
        position, value = stream.tell(), 0
        if count_bytes_left(stream) >= self.subcon.sizeof():
            value = self.subcon._parsereport(stream, context, path)
            stream.seek(position)
        return value

    def _build(self, obj: Any, stream: Any, context: Any, path: Any) -> Any:
        return obj

    def _sizeof(self, context: Any, path: Any) -> int:
        return 0


class BoundedCount(Subconstruct):  # type: ignore[misc]
    """Number of the following elements, not shown; it is checked, since each takes at least `smallest` bytes."""

    def __init__(self, subcon: Construct, smallest: int, what: str) -> None:
        super().__init__(subcon)
        self.smallest, self.what = smallest, what

    def _parse(self, stream: Any, context: Any, path: Any) -> int:
        count: int = self.subcon._parsereport(stream, context, path)
        bytes_remaining = count_bytes_left(stream)
        if count * self.smallest > bytes_remaining:
            raise make_count_error(self.what, count, bytes_remaining)
        return count


class FieldsByCode(Construct):  # type: ignore[misc]
    """Fields in any order up to the end of the stream; the first byte of each is its code.

    Args:
        fields: code -> named schema of a field, from its code on; a part `value` of it is shown as the field itself.
        other: named schema of all bytes from the first unknown code on.
    """

    def __init__(self, fields: Mapping[int, Construct], other: Construct) -> None:
        super().__init__()
        self.fields, self.other = fields, other

    def _parse(self, stream: Any, context: Any, path: Any) -> dict[str, Any]:
        values: dict[str, Any] = {}
        while code := stream.read(1):
            stream.seek(-1, 1)
            field = self.fields.get(code[0], self.other)
            values[field.name] = field._parsereport(stream, context, path)
        return values


def count_bytes_left(stream: Any) -> int:
    """Return the number of bytes from the current position to the end of a stream."""
    position = stream.tell()
    remaining = stream.seek(0, 2) - position
    stream.seek(position)
    return int(remaining)


# -- leaves ------------------------------------------------------------------------------------------------------------


def decode_text(value: bytes) -> str | bytes:
    """Decode UTF-8 so that encoding restores the bytes; return other bytes unchanged."""
    try:
        return value.decode()
    except UnicodeDecodeError:
        return value


class TextField(Adapter):  # type: ignore[misc]
    """Field of text, usually UTF-8; invalid text stays bytes."""

    leaf = LeafFormat(decode_text, LazyRef("binlogtool.format_api.json_text_kernels:write_json_text_or_bytes"))

    def _decode(self, obj: bytes, context: Any, path: str) -> str | bytes:
        return decode_text(obj)

    def _encode(self, obj: str | bytes, context: Any, path: str) -> bytes:
        return obj.encode() if isinstance(obj, str) else obj


def format_uuid(uuid_bytes: bytes) -> str:
    """Format 16 bytes as a UUID."""
    digits = uuid_bytes.hex()
    return f"{digits[:8]}-{digits[8:12]}-{digits[12:16]}-{digits[16:20]}-{digits[20:]}"


uuid_of = lru_cache(maxsize=4096)(format_uuid)
"""`format_uuid` with a cache, as a log repeats the same few UUIDs."""


@kernel()
def write_hex_digits(buf: UInt8s, pos: int, limit: int, out: MutableUInt8s, out_pos: int) -> int:
    """Write `buf[pos:limit]` in hexadecimal digits."""
    for i in range(pos, limit):
        high = buf[i] >> 4
        low = buf[i] & 15
        out[out_pos] = 48 + high + (39 if high > 9 else 0)
        out[out_pos + 1] = 48 + low + (39 if low > 9 else 0)
        out_pos += 2
    return out_pos


@kernel(write_hex_digits)
def write_uuid(buf: UInt8s, p: int, out: MutableUInt8s, out_pos: int) -> int:
    """Write 16 bytes as a UUID."""
    for i in range(16):
        if i == 4 or i == 6 or i == 8 or i == 10:
            out[out_pos] = 45
            out_pos += 1
        out_pos = write_hex_digits(buf, p + i, p + i + 1, out, out_pos)
    return out_pos


@kernel(write_uuid)
def write_uuid_text(buf: UInt8s, pos: int, limit: int, out: MutableUInt8s, out_pos: int, out_limit: int) -> int:
    """Write 16 bytes as a UUID, without quotes."""
    if limit - pos < 16:
        return -2
    return -1 if out_limit - out_pos < 36 else write_uuid(buf, pos, out, out_pos)


class Uuid(Construct):  # type: ignore[misc]
    """16 bytes, shown as a UUID."""

    size = 16
    leaf = LeafFormat(uuid_of, LazyRef("binlogtool.format_api.schema_fields:write_uuid_text"), unquoted=True)

    def _parse(self, stream: Any, context: Any, path: str) -> str:
        return format_uuid(stream_read(stream, self.size, path))

    def _build(self, obj: str, stream: Any, context: Any, path: str) -> str:
        stream_write(stream, bytes.fromhex(obj.replace("-", "")), self.size, path)
        return obj


# --- Decoders generated from a schema on first use ---

_GENERATOR_MODULES = {
    **dict.fromkeys(("make_decoder", "make_fields_reader"), "binlogtool.schema.python_body_codegen"),
    "make_fields_function": "binlogtool.schema.kernel_body_codegen",
    "make_json_function": "binlogtool.schema.json_body_codegen",
}

T = TypeVar("T")
K = TypeVar("K", bound=tuple[Any, ...])


class LazyDecoder(Generic[T]):
    """Decoder of the bytes of a body, generated at its first call."""

    __slots__ = ("_arguments", "_generator_name", "read")

    def __init__(self, generator_name: str, *arguments: Any) -> None:
        self._generator_name, self._arguments = generator_name, arguments
        self.read: Callable[..., T] = self._build_and_call

    def __call__(self, data: bytes) -> T:
        """Decode a body."""
        return self.read(data)

    def _build_and_call(self, *arguments: Any) -> T:
        return self.generate_decoder()(*arguments)

    def generate_decoder(self) -> Callable[..., T]:
        """Generate the decoder and return it."""
        self.read = getattr(import_module(_GENERATOR_MODULES[self._generator_name]), self._generator_name)(
            *self._arguments
        )
        return self.read


def make_body_decoder(body: BodySchema) -> LazyDecoder[dict[str, Any]]:
    """Return a decoder of a body (and its parameters) to the dictionary that `dump` shows.

    Raises:
        MalformedError: (when called) the body is too short for its declared content.
    """
    return LazyDecoder("make_decoder", body)


def make_fields_decoder(schema: Construct, result_type: type[K]) -> LazyDecoder[K]:
    """Return a decoder of some fields of a body into a named tuple, whose field names select them."""
    return LazyDecoder("make_fields_reader", schema, result_type)


def make_tuple_decoder(schema: Construct, *names: str) -> LazyDecoder[tuple[Any, ...]]:
    """Return a decoder of two or more fields of a body into a tuple."""
    return LazyDecoder("make_fields_reader", schema, names)


def make_integer_decoder(schema: Construct, name: str) -> LazyDecoder[int]:
    """Return a decoder of one integer field of a body."""
    return LazyDecoder("make_fields_reader", schema, name)


def make_list_decoder(schema: Construct, name: str, element_type: type[K]) -> LazyDecoder[tuple[K, ...]]:
    """Return a decoder of one array field: its elements are named tuples, and arrays in them tuples of tuples."""
    return LazyDecoder("make_fields_reader", schema, name, element_type)


def make_fields_kernel(
    schema: Construct, *names: str, uses: tuple[Callable[..., Any], ...] = ()
) -> Callable[[UInt8s, int, int], tuple[int, ...]]:
    """Return a kernel (buffer, start, end of a body) -> these fields, and the position after the last of them.

    Bytes are the position of their start; absent fields are 0. The position is negative if the body is too short, or is
    not what the schema allows. The text is generated when the library is built, and as Python at the first call.

    Call it in the module of the schema: the compiled kernel is found by a hash of the module's text.

    Args:
        uses: the kernels of the fields' types.
    """
    results: Any = tuple[(int,) * (len(names) + 1)]  # type: ignore[misc]
    arguments = ("make_fields_function", schema, names)
    return _make_generated_kernel(_call_fields_function, f"read_{'_'.join(names)}", arguments, results, uses)


def make_json_kernel(
    body: BodySchema, *uses: Callable[..., Any]
) -> Callable[[UInt8s, int, int, MutableUInt8s, int, int], int]:
    """Return a kernel that writes a body as JSON, for a `LeafFormat`; see `make_fields_kernel`."""
    return _make_generated_kernel(_call_json_function, "write_json", ("make_json_function", body), int, uses)


def _make_generated_kernel(
    call: F, name: str, arguments: tuple[Any, ...], results: Any, uses: tuple[Callable[..., Any], ...]
) -> F:
    """Return a copy of a function that calls the code generated from these arguments."""
    module = sys._getframe(2).f_globals["__name__"]
    values = {"__name__": module, "__builtins__": __builtins__, "GENERATED": LazyDecoder[Any](*arguments)}
    types = {"UInt8s": UInt8s, "MutableUInt8s": MutableUInt8s, "int": int}
    function = FunctionType(call.__code__, values, name)
    function.__annotations__ = {**{n: types.get(t) for n, t in call.__annotations__.items()}, "return": results}
    function.__dict__.update(kernel_uses=uses, kernel_schema=arguments)
    return function  # type: ignore[return-value]


GENERATED: LazyDecoder[Any] = LazyDecoder("make_fields_function")


def _call_fields_function(buf: UInt8s, pos: int, limit: int) -> tuple[int, ...]:
    fields: tuple[int, ...] = GENERATED.read(buf, pos, limit)
    return fields


def _call_json_function(buf: UInt8s, pos: int, limit: int, out: MutableUInt8s, out_pos: int, out_limit: int) -> int:
    end: int = GENERATED.read(buf, pos, limit, out, out_pos, out_limit)
    return end


def get_fixed_field_offset(schema: Construct, name: str) -> int:
    """Return the offset of a field in a body, if all fields before it are always present and of fixed size.

    Raises:
        ValueError: the field does not exist, or its offset is not fixed.
    """
    offset = 0
    for subcon in schema.subcons:
        if subcon.name == name:
            return offset
        offset += _fixed_size(subcon)
    raise ValueError(f"{name} is not a field of this body")


def make_unpacker(schema: Construct, *names: str) -> Callable[..., tuple[Any, ...]]:
    """Return a function (buffer, offset of the structure) -> these fields, in the order of the structure.

    It reads no further than the last of these fields; all fields up to it must have fixed sizes. Bytes stay bytes,
    codes stay numbers. The function raises `struct.error` where the buffer is too short.

    Raises:
        ValueError: a field does not exist, or has no fixed offset or no struct code.
    """
    remaining_names, byte_orders, struct_format = set(names), set[str](), ""
    for subcon in schema.subcons:
        if not remaining_names:
            break
        if subcon.name in remaining_names:
            remaining_names.remove(subcon.name)
            code = _struct_code(subcon)
            byte_orders |= set(code[:1]) & {"<", ">"} if code[-1] not in "bB" else set()
            struct_format += code.lstrip("<>=")
        else:
            struct_format += f"{_fixed_size(subcon)}x"
    if remaining_names or len(byte_orders) > 1:
        raise ValueError(f"{', '.join(sorted(remaining_names)) or schema}: not fields of one byte order in this body")
    return struct.Struct((byte_orders.pop() if byte_orders else "<") + struct_format).unpack_from


def _struct_code(subcon: Any) -> str:
    """Return the byte order and type code of a field, as `struct` writes them."""
    while isinstance(subcon, Subconstruct):
        subcon = subcon.subcon
    if isinstance(subcon, BytesInteger):
        raise ValueError(f"the struct module has no integer of {subcon.length} bytes")
    return str(subcon.fmtstr) if isinstance(subcon, FormatField) else f"{_fixed_size(subcon)}s"


def _fixed_size(subcon: Any) -> int:
    while isinstance(subcon, Renamed | IfBytesLeft | IfThenElse):
        subcon = subcon.thensubcon if isinstance(subcon, IfThenElse) else subcon.subcon
    size = getattr(subcon, "size", None)
    try:
        return size if isinstance(size, int) else int(subcon.sizeof())
    except SizeofError as error:
        raise ValueError(str(error)) from None


# --- Varints ---

MAX_VARINT_SIZE = 10
"""Size of the longest varint in bytes: 64 bits, seven per byte."""

UINT64_MASK = (1 << 64) - 1


class WideVarint(int):
    """Varint that was encoded in more bytes than needed (`width`), so that building it restores the same bytes."""

    width: int

    def __new__(cls, value: int, width: int) -> WideVarint:  # noqa: D102 - see the class
        self = super().__new__(cls, value)
        self.width = width
        return self


@kernel()
def read_varint(buf: UInt8s, pos: int, limit: int) -> tuple[int, int]:
    """Read a varint: its 64-bit pattern (as a signed value) and the next position, SHORT or MALFORMED."""
    value = 0
    shift = 0
    while pos < limit:
        byte = int(buf[pos])
        pos += 1
        if shift < 63:
            value |= (byte & 127) << shift
        elif byte & 1:
            value += -9223372036854775808
        if byte < 128:
            return value, pos
        shift += 7
        if shift > 63:
            return 0, -2
    return 0, -1


def parse_varint(data: bytes, p: int, end: int) -> tuple[int, int]:
    """Return the unsigned value at `p` (a `WideVarint` if it is longer than needed) and the next position.

    Raises:
        MalformedError: the varint has more than ten bytes, or is cut off by `end`.
    """
    if p < end and data[p] < 128:
        return data[p], p + 1
    value, q = read_varint(data, p, end)
    if q == MALFORMED:
        raise MalformedError(f"varint at byte {p} is longer than {MAX_VARINT_SIZE} bytes", None, "varint-overlong")
    if q == SHORT:
        raise MalformedError(f"varint at byte {p} is cut off")
    value &= UINT64_MASK
    return (value if q - p == varint_size(value) else WideVarint(value, q - p)), q


def varint_size(value: int) -> int:
    """Return the size in bytes of the shortest varint of a value (as 64-bit two's complement)."""
    return max(1, ((value & UINT64_MASK).bit_length() + 6) // 7)


def build_varint(value: int) -> bytes:
    """Encode a value as the shortest varint, or in the width of a `WideVarint`."""
    out = bytearray()
    rest = int(value) & UINT64_MASK
    for _ in range(getattr(value, "width", varint_size(rest)) - 1):
        out.append(rest & 127 | 128)
        rest >>= 7
    out.append(rest & 127)
    return bytes(out)


class Varint(Construct):  # type: ignore[misc]
    """Construct type of an unsigned varint of at most ten bytes; a longer form than needed is kept (`WideVarint`)."""

    kernel = ScalarKernel(read_varint, (ScalarForm(0, 127),), unsigned=True)

    def _parse(self, stream: Any, context: Any, path: str) -> int:
        data = bytearray()
        while not data or data[-1] >= 128:
            if len(data) == MAX_VARINT_SIZE:
                raise MalformedError(f"a number has at most {MAX_VARINT_SIZE} bytes", path, "varint-overlong")
            data += stream_read(stream, 1, path)
        return parse_varint(bytes(data), 0, len(data))[0]

    def _build(self, obj: Any, stream: Any, context: Any, path: str) -> Any:
        data = build_varint(obj)
        stream_write(stream, data, len(data), path)
        return obj


class DecompressionError(Exception):
    """Raised when a payload cannot be unpacked. `finding_id`: compression-error or inflate-limit."""

    def __init__(self, finding_id: str, message: str) -> None:
        super().__init__(message)
        self.finding_id = finding_id


@kernel(native="same_bytes")
def are_bytes_equal(buf: UInt8s, p: int, texts: UInt8s, q: int, size: int) -> int:
    """Return 1 if these bytes are equal, else 0."""
    for i in range(size):
        if buf[p + i] != texts[q + i]:
            return 0
    return 1
