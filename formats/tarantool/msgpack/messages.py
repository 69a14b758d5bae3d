"""MessagePack as Tarantool stores it: tokens, a tree that builds the same bytes again, and construct types.

Every width of every type is accepted and kept, so that `build(parse(x)) == x` also where the writer did not use the
shortest form (`docs/spec/tarantool-xlog.md#12-block-tx-in-the-sources`: "all mp uint widths are legal").
"""

from __future__ import annotations

import enum
import io
import struct
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from construct import Construct, stream_read

from binlogtool.formats.fields import Form, MalformedError, ScalarKernel
from binlogtool.formats.tarantool.msgpack.kernels import read_filler, read_uint, read_uint32, skip_value
from binlogtool.limits import Limits

MAX_DEPTH = 200
"""Values nested deeper are never decoded, whatever the limits say: recursion stays far from the interpreter's end."""


# -- tokens ------------------------------------------------------------------------------------------------------------


class Kind(enum.IntEnum):
    """The MessagePack types."""

    NIL = 0
    BOOL = 1
    UINT = 2
    INT = 3
    FLOAT = 4
    DOUBLE = 5
    STR = 6
    BIN = 7
    EXT = 8
    ARRAY = 9
    MAP = 10


class Ext(NamedTuple):
    """The raw content of an extension value."""

    code: int
    data: bytes


class Token(NamedTuple):
    """One value, or the head of an array or map (then `value` is the count and `end` is after the head).

    Attributes:
        body: where the content starts (strings, ext); for others the same as `start`.
    """

    code: int
    kind: Kind
    value: Any
    start: int
    body: int
    end: int


_NUMBERS = {
    0xCA: (Kind.FLOAT, struct.Struct(">f")),
    0xCB: (Kind.DOUBLE, struct.Struct(">d")),
    0xCC: (Kind.UINT, struct.Struct(">B")),
    0xCD: (Kind.UINT, struct.Struct(">H")),
    0xCE: (Kind.UINT, struct.Struct(">I")),
    0xCF: (Kind.UINT, struct.Struct(">Q")),
    0xD0: (Kind.INT, struct.Struct(">b")),
    0xD1: (Kind.INT, struct.Struct(">h")),
    0xD2: (Kind.INT, struct.Struct(">i")),
    0xD3: (Kind.INT, struct.Struct(">q")),
}
_SIZED = {
    0xC4: (Kind.BIN, 1), 0xC5: (Kind.BIN, 2), 0xC6: (Kind.BIN, 4),
    0xC7: (Kind.EXT, 1), 0xC8: (Kind.EXT, 2), 0xC9: (Kind.EXT, 4),
    0xD9: (Kind.STR, 1), 0xDA: (Kind.STR, 2), 0xDB: (Kind.STR, 4),
    0xDC: (Kind.ARRAY, 2), 0xDD: (Kind.ARRAY, 4),
    0xDE: (Kind.MAP, 2), 0xDF: (Kind.MAP, 4),
}  # fmt: skip


_NIL, _BOOL, _UINT, _INT, _STR, _EXT, _ARRAY, _MAP = (
    Kind.NIL, Kind.BOOL, Kind.UINT, Kind.INT, Kind.STR, Kind.EXT, Kind.ARRAY, Kind.MAP,
)  # fmt: skip
_new = tuple.__new__  # half the cost of a NamedTuple's own constructor


def _cut(what: str) -> MalformedError:
    """Create the error for bytes that end inside a value."""
    return MalformedError(f"the bytes end inside {what}")


def read_token(data: Any, start: int, end: int) -> Token:
    """Read the token at `data[start:end]`.

    Raises:
        MalformedError: the bytes end inside it, or it begins with 0xc1.
    """
    if start >= end:
        raise _cut("a MessagePack value")
    code = data[start]
    if code < 0x80:
        return _new(Token, (code, _UINT, code, start, start, start + 1))
    if code < 0xA0:
        return _head(code, _ARRAY if code >= 0x90 else _MAP, code & 15, start, start + 1, end)
    if code < 0xC0:
        return _content(data, code, _STR, code - 0xA0, start, start + 1, end)
    if code in _NUMBERS:
        kind, form = _NUMBERS[code]
        stop = start + 1 + form.size
        if stop > end:
            raise _cut("a number")
        return _new(Token, (code, kind, form.unpack_from(data, start + 1)[0], start, start, stop))
    if code >= 0xE0:
        return _new(Token, (code, _INT, code - 256, start, start, start + 1))
    return _sized(data, code, start, end)


def _sized(data: Any, code: int, start: int, end: int) -> Token:
    """Read a token with a length, or one of the three that are a single byte (nil, false, true)."""
    if 0xD4 <= code <= 0xD8:
        return _content(data, code, _EXT, 1 << (code - 0xD4), start, start + 1, end)
    if code not in _SIZED:
        if code == 0xC1:
            raise MalformedError("0xc1 is no MessagePack value")
        value = None if code == 0xC0 else code == 0xC3
        return Token(code, _NIL if code == 0xC0 else _BOOL, value, start, start, start + 1)
    kind, width = _SIZED[code]
    body = start + 1 + width
    if body > end:
        raise _cut("a length")
    size = int.from_bytes(data[start + 1 : body], "big")
    if kind >= _ARRAY:
        return _head(code, kind, size, start, body, end)
    return _content(data, code, kind, size, start, body, end)


def _head(code: int, kind: Kind, size: int, start: int, body: int, end: int) -> Token:
    if size * (2 if kind is _MAP else 1) > end - body:
        what = "pairs" if kind is _MAP else "elements"
        raise MalformedError(f"{size} {what} cannot fit into {end - body} bytes", finding_id="count-out-of-bounds")
    return _new(Token, (code, kind, size, start, body, body))


def _content(data: Any, code: int, kind: Kind, size: int, start: int, body: int, end: int) -> Token:
    content = body + 1 if kind is _EXT else body
    stop = content + size
    if stop > end:
        raise _cut(f"a {kind.name.lower()} of {size} bytes")
    raw = bytes(data[content:stop])
    if kind is not _EXT:
        return _new(Token, (code, kind, raw, start, body, stop))
    number = data[body] - 256 if data[body] > 127 else data[body]
    return Token(code, kind, Ext(number, raw), start, content, stop)


# -- trees -------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Mp:
    """One MessagePack value with its encoding.

    Attributes:
        value: a Python number, bool or None; `bytes` for str and bin; `ExtValue`; a tuple of nodes for an array; a
            tuple of pairs of nodes for a map.
        start, end: position in the stream it was read from.
    """

    code: int
    kind: Kind
    value: Any
    start: int = field(default=0, compare=False)
    end: int = field(default=0, compare=False)

    def get(self, key: int) -> Mp | None:
        """Return the value of an integer key of a map (the last one if it occurs twice), or None."""
        found = None
        for name, value in self.value:
            if name.kind is Kind.UINT and name.value == key:
                found = value
        return found


def decode(data: Any, start: int, end: int, depth: int | None = None) -> Mp:
    """Decode the value that starts at `data[start]` to a tree; it may end before `end`. Iterative.

    Raises:
        MalformedError: no value, cut short, or nested deeper than `depth` (None = any).
    """
    open_: list[tuple[Token, list[Mp]]] = []
    position = start
    while True:
        token = read_token(data, position, end)
        position = token.end
        if token.kind >= Kind.ARRAY:
            if depth is not None and len(open_) >= depth:
                raise too_deep()
            open_.append((token, []))
        else:
            value = Mp(token.code, token.kind, token.value, token.start, position)
            if not open_:
                return value
            open_[-1][1].append(value)
        while len(open_[-1][1]) == _size(open_[-1][0]):
            head, items = open_.pop()
            pairs = zip(items[::2], items[1::2], strict=True) if head.kind is Kind.MAP else items
            value = Mp(head.code, head.kind, tuple(pairs), head.start, position)
            if not open_:
                return value
            open_[-1][1].append(value)


def _size(head: Token) -> int:
    return int(head.value) * (2 if head.kind is Kind.MAP else 1)


def too_deep() -> MalformedError:
    """Create the error for values nested too deep."""
    return MalformedError("values are nested too deep", finding_id="nesting-too-deep")


def bounded(limits: Limits) -> int:
    """Return the nesting limit to use: that of `limits`, but at most MAX_DEPTH."""
    return max(1, min(limits.max_depth, MAX_DEPTH))


def encode(value: Mp) -> bytes:
    """Encode a tree to bytes, in exactly its stored encoding."""
    out = bytearray()
    pending = [value]
    while pending:
        item = pending.pop()
        _write(item, out)
        if item.kind is Kind.ARRAY:
            pending += reversed(item.value)
        elif item.kind is Kind.MAP:
            pending += [part for pair in reversed(item.value) for part in reversed(pair)]
    return bytes(out)


def _write(value: Mp, out: bytearray) -> None:
    """Write a value, or only the head of an array or map."""
    code = value.code
    out.append(code)
    if code in _NUMBERS:
        out += _NUMBERS[code][1].pack(value.value)
    if value.kind < Kind.STR:
        return
    content = value.value.data if value.kind is Kind.EXT else value.value
    if code in _SIZED:
        out += len(content).to_bytes(_SIZED[code][1], "big")
    if value.kind is Kind.EXT:
        out += struct.pack("b", value.value.code) + content
    elif value.kind < Kind.EXT:
        out += content


# -- construct types ---------------------------------------------------------------------------------------------------


def remaining(stream: Any) -> tuple[Any, int, int, int]:
    """Return the rest of a construct stream without copying.

    Returns:
        (bytes, position in them, their end, stream position minus position in the bytes).
    """
    if isinstance(stream, io.BytesIO):
        raw = io.BytesIO.tell(stream)
        data = stream.getbuffer()
        return data, raw, len(data), stream.tell() - raw
    here = stream.tell()
    rest = stream.read()
    stream.seek(here)
    return rest, 0, len(rest), here


class Wide(int):
    """An unsigned number that was not stored in its shortest form; `code` is its first byte."""

    code: int

    def __new__(cls, value: int, code: int) -> Wide:
        """Create the number with its first byte."""
        number = super().__new__(cls, value)
        number.code = code
        return number


def shortest(value: int) -> int:
    """Return the first byte of the shortest encoding of an unsigned number."""
    if value < 0x80:
        return value
    return 0xCC + (value > 0xFF) + (value > 0xFFFF) + (value > 0xFFFFFFFF)


def write_uint(value: int, code: int) -> bytes:
    """Encode an unsigned number with this first byte."""
    return bytes([code]) if code < 0x80 else bytes([code]) + _NUMBERS[code][1].pack(value)


class MpUint(Construct):  # type: ignore[misc]
    """Construct type of an unsigned integer of any width."""

    kernel = ScalarKernel(
        read_uint,
        (
            Form(0x00, 0x7F),
            Form(0xCE, 0xCE, ">I"),
            Form(0xCD, 0xCD, ">H"),
            Form(0xCC, 0xCC, ">B"),
            Form(0xCF, 0xCF, ">Q"),
        ),
    )

    def _parse(self, stream: Any, context: Any, path: str) -> int:
        first: int = stream_read(stream, 1, path)[0]
        if first < 0x80:
            return first
        kind, form = _NUMBERS.get(first, (None, None))
        if kind is not Kind.UINT:
            raise MalformedError(f"0x{first:02x} does not start an unsigned integer", path, "bad-header")
        assert form is not None
        value: int = form.unpack(stream_read(stream, form.size, path))[0]
        return value if first == shortest(value) else Wide(value, first)

    def _build(self, obj: Any, stream: Any, context: Any, path: str) -> Any:
        stream.write(write_uint(int(obj), obj.code if isinstance(obj, Wide) else shortest(obj)))
        return obj


class MpUint32(MpUint):
    """Construct type of an unsigned integer of any width, of which the server keeps 32 bits."""

    kernel = ScalarKernel(read_uint32, tuple(form for form in MpUint.kernel.forms if form.first != 0xCF))

    def _parse(self, stream: Any, context: Any, path: str) -> int:
        value = super()._parse(stream, context, path)
        return value if value < 1 << 32 else Wide(value & 0xFFFFFFFF, 0xCF)


class MpFiller(Construct):  # type: ignore[misc]
    """Construct type of one value of any kind that only fills space, as its bytes. The scanner's number is its size."""

    kernel = ScalarKernel(read_filler, (Form(0xA0, 0xBF, base=0xA0, skips=True),))

    def _parse(self, stream: Any, context: Any, path: str) -> bytes:
        here = stream.tell()
        head: bytes = stream.read(1)
        if head and 0xA0 <= head[0] <= 0xBF:
            size = head[0] - 0xA0
            text: bytes = stream.read(size)
            if len(text) == size:
                return head + text
        stream.seek(here)
        data, start, end, base = remaining(stream)
        after, _, _, _ = skip_value(data, start, end)
        if after < 0:
            raise MalformedError("the filler is no MessagePack value", path, "bad-header")
        stream.seek(after + base)
        return bytes(data[start:after])

    def _build(self, obj: bytes | None, stream: Any, context: Any, path: str) -> Any:
        stream.write(obj or b"")
        return obj
