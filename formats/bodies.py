"""Field types of record bodies, and markers that tell generated readers how to show them.

A schema says where each field is; `dump` shows its named fields in order, flags as numbers and other codes by name.
A field that only lays out others is marked as `HiddenField`. A value that a schema cannot express is a *leaf*: the
class of its field has an attribute `leaf` of type `LeafFormat`.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache
from typing import Any

import msgspec
from construct import Adapter, Construct, Renamed, Subconstruct, stream_read, stream_write

from binlogtool.formats.fields import MalformedError, kernel
from binlogtool.formats.kernel_types import MutableUInt8s, UInt8s
from binlogtool.formats.later import LazyRef


def make_truncation_error(field_name: str, needed: int, bytes_remaining: int) -> MalformedError:
    """Create the error for a field that does not fit into the body."""
    text_ = f"{field_name} needs {needed:,} bytes, {max(bytes_remaining, 0):,} left"
    return MalformedError(text_, finding_id="length-out-of-bounds")


def make_count_error(element_name: str, count: int, bytes_remaining: int) -> MalformedError:
    """Create the error for a count that does not fit into the remaining bytes."""
    text_ = f"{count:,} {element_name} cannot fit into {max(bytes_remaining, 0):,} bytes"
    return MalformedError(text_, finding_id="count-out-of-bounds")


class LeafFormat(msgspec.Struct, frozen=True):
    """How a value is shown that takes all of some bytes.

    Args:
        decode: the bytes -> what `dump` shows; None = only compiled code uses this leaf.
        json_kernel: names the kernel `put(buf, p, n, out, o, z)` that writes the same as JSON, see
            `formats.jsontext`;
            None = only the general writer does.
        unquoted: the kernel writes the text without its quotes.
        text_table: names the table of texts that the kernel also takes, before `out`.
        context_fields: fields of the enclosing structures whose integers (or start offsets) the kernel takes, before
            `out`.
        writes_members: the kernel writes JSON members with their names.
    """

    decode: Callable[[bytes], Any] | None
    json_kernel: LazyRef | None = None
    unquoted: bool = False
    text_table: LazyRef | None = None
    context_fields: tuple[str, ...] = ()
    writes_members: bool = False


class BodySchema(msgspec.Struct, frozen=True):
    """A body as `dump` shows it: the fields of a schema, optionally after one field made of them.

    Args:
        title: name and text of that field; `{name}` in the text is a field; None as the text = null.
        parameters: names in the text that are not fields: numbers that the reader of the body supplies.
    """

    schema: Construct
    title: tuple[str, str | None] | None = None
    parameters: tuple[str, ...] = ()


# -- marks -------------------------------------------------------------------------------------------------------------


class FieldMarker(Renamed):  # type: ignore[misc]
    """Attach information to a field without changing how it is parsed."""

    def _parse(self, stream: Any, context: Any, path: Any) -> Any:
        return self.subcon._parsereport(stream, context, path)

    def _build(self, obj: Any, stream: Any, context: Any, path: Any) -> Any:
        return self.subcon._build(obj, stream, context, path)

    def _sizeof(self, context: Any, path: Any) -> Any:
        return self.subcon._sizeof(context, path)


class HiddenField(FieldMarker):
    """Mark a length, count or filler that is not shown."""


class InterpretedOnly(FieldMarker):
    """Mark a field whose bodies compiled code leaves to the general writer."""


class RenamedField(FieldMarker):
    """Mark a field that `dump` shows under another name."""

    def __init__(self, title: str, subcon: Construct) -> None:
        super().__init__(subcon)
        self.title = title


class OpaqueLeaf(FieldMarker):
    """Mark a field all of whose bytes are one leaf."""

    def __init__(self, subcon: Construct, leaf: LeafFormat) -> None:
        super().__init__(subcon)
        self.leaf = leaf


class SingleField(FieldMarker):
    """Mark a structure that is shown as its only bytes field, formatted by a leaf."""

    def __init__(self, subcon: Construct, name: str, leaf: LeafFormat) -> None:
        super().__init__(subcon)
        self.shown, self.as_leaf = name, leaf


class ZeroMeansAbsent(FieldMarker):
    """Mark a field whose value 0 means that it is absent."""


# -- conditions: `this` cannot say them, and functions cannot be looked into -------------------------------------------


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
    """A field that is present if bytes are left: older servers do not write it; its value is None then."""

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
    """The integer at the current position without consuming it, not shown; 0 where fewer bytes are left."""

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
    """The number of elements that follow, not shown; each takes `smallest` bytes or more, so it is checked against
    the
    remaining bytes.
    """

    def __init__(self, subcon: Construct, smallest: int, what: str) -> None:
        super().__init__(subcon)
        self.smallest, self.what = smallest, what

    def _parse(self, stream: Any, context: Any, path: Any) -> int:
        count: int = self.subcon._parsereport(stream, context, path)
        bytes_remaining = count_bytes_left(stream)
        if count * self.smallest > bytes_remaining:
            raise make_count_error(self.what, count, bytes_remaining)
        return count


def count_bytes_left(stream: Any) -> int:
    """Return the number of bytes from the current position to the end of a stream."""
    position = stream.tell()
    remaining = stream.seek(0, 2) - position
    stream.seek(position)
    return int(remaining)


# -- leaves ------------------------------------------------------------------------------------------------------------


def decode_text(value: bytes) -> str | bytes:
    """Decode UTF-8 (encoding gives the bytes back); return other bytes unchanged."""
    try:
        return value.decode()
    except UnicodeDecodeError:
        return value


class TextField(Adapter):  # type: ignore[misc]
    """Bytes that are text, usually UTF-8; others stay bytes."""

    leaf = LeafFormat(decode_text, LazyRef("jsontext:put_any_text"))

    def _decode(self, obj: bytes, context: Any, path: str) -> str | bytes:
        return decode_text(obj)

    def _encode(self, obj: str | bytes, context: Any, path: str) -> bytes:
        return obj.encode() if isinstance(obj, str) else obj


def format_uuid(uuid_bytes: bytes) -> str:
    """Format 16 bytes as a UUID."""
    digits = uuid_bytes.hex()
    return f"{digits[:8]}-{digits[8:12]}-{digits[12:16]}-{digits[16:20]}-{digits[20:]}"


uuid_of = lru_cache(maxsize=4096)(format_uuid)
"""The same; the same few come again and again."""


@kernel()
def put_uuid(buf: UInt8s, p: int, out: MutableUInt8s, o: int) -> int:
    """Write 16 bytes as a UUID."""
    for i in range(16):
        if i == 4 or i == 6 or i == 8 or i == 10:
            out[o] = 45
            o += 1
        high = buf[p + i] >> 4
        low = buf[p + i] & 15
        out[o] = 48 + high + (39 if high > 9 else 0)
        out[o + 1] = 48 + low + (39 if low > 9 else 0)
        o += 2
    return o


@kernel(put_uuid)
def put_uuid_text(buf: UInt8s, p: int, n: int, out: MutableUInt8s, o: int, z: int) -> int:
    """Write 16 bytes as a UUID, without quotes."""
    if n - p < 16:
        return -2
    return -1 if z - o < 36 else put_uuid(buf, p, out, o)


class Uuid(Construct):  # type: ignore[misc]
    """16 bytes, shown as a UUID."""

    size = 16
    leaf = LeafFormat(uuid_of, LazyRef("bodies:put_uuid_text"), unquoted=True)

    def _parse(self, stream: Any, context: Any, path: str) -> str:
        return format_uuid(stream_read(stream, self.size, path))

    def _build(self, obj: str, stream: Any, context: Any, path: str) -> str:
        stream_write(stream, bytes.fromhex(obj.replace("-", "")), self.size, path)
        return obj
