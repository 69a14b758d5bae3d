"""Parse MessagePack: scan kernels, tokens, trees.

Integers of any width are accepted and their width is kept, so that `build(parse(x)) == x` even if the writer did not
use the shortest form (`docs/spec/tarantool.md#blocks`: "all mp uint widths are legal").
"""

from __future__ import annotations

import enum
import io
import struct
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from construct import Construct, stream_read

from binlogtool.format_api.schema_fields import MalformedError, ScalarForm, ScalarKernel, UInt8s, kernel
from binlogtool.limits import Limits

# --- Scan kernels over MessagePack ---

FIX_MAP, FIX_ARRAY, FIX_STR, NIL, STR_8, ARRAY_16, MAP_16, MAP_32 = 0x80, 0x90, 0xA0, 0xC0, 0xD9, 0xDC, 0xDE, 0xDF
"""First bytes of values; the first byte of a short map, array or string also contains the size."""

ODD_SEEN = 4
"""Mark of `skip_value_and_count` (1 = bin, 2 = known extension): only a tree is exact (NaN, infinity, unknown
extensions).
"""


@kernel()
def load_big_endian_uint16(buf: UInt8s, p: int) -> int:
    """Load two bytes, big-endian."""
    return buf[p] * 256 + buf[p + 1]


@kernel(load_big_endian_uint16)
def load_big_endian_uint32(buf: UInt8s, p: int) -> int:
    """Load four bytes, big-endian."""
    return load_big_endian_uint16(buf, p) * 65536 + load_big_endian_uint16(buf, p + 2)


@kernel(load_big_endian_uint32)
def load_big_endian_int64(buf: UInt8s, p: int) -> int:
    """Load eight bytes, big-endian, as a signed number with the same bits."""
    high = load_big_endian_uint32(buf, p)
    if high >= 0x80000000:
        high -= 0x100000000
    return high * 0x100000000 + load_big_endian_uint32(buf, p + 4)


@kernel(load_big_endian_uint16, load_big_endian_uint32, load_big_endian_int64)
def load_big_endian_number(buf: UInt8s, p: int, size: int) -> int:
    """Load an unsigned number of 1, 2 or 4 bytes, or a signed one of 8 bytes, big-endian."""
    if size == 1:
        return buf[p] + 0
    if size == 2:
        return load_big_endian_uint16(buf, p)
    return load_big_endian_uint32(buf, p) if size == 4 else load_big_endian_int64(buf, p)


@kernel(load_big_endian_number)
def load_mp_integer(buf: UInt8s, p: int, code: int) -> int:
    """Load the mp integer at `buf[p]` with first byte 0xcc..0xd3; unsigned ones above the signed range are negative."""
    size = 1 << (code & 3)
    value = load_big_endian_number(buf, p + 1, size)
    if code >= 0xD0 and size < 8:
        sign = 1 << (8 * size - 1)
        value = (value ^ sign) - sign
    return value


@kernel(load_big_endian_number)
def read_uint(buf: UInt8s, pos: int, limit: int) -> tuple[int, int]:
    """Read one mp uint of any width: (value, position after it); position -1 = truncated, -2 = not an uint."""
    if pos >= limit:
        return 0, -1
    code = buf[pos] + 0
    if code < 0x80:
        return code, pos + 1
    if code < 0xCC or code > 0xCF:
        return 0, -2
    size = 1 << (code & 3)
    if limit - pos <= size:
        return 0, -1
    return load_big_endian_number(buf, pos + 1, size), pos + 1 + size


@kernel(read_uint)
def read_mp_uint_low_32_bits(buf: UInt8s, pos: int, limit: int) -> tuple[int, int]:
    """Read one mp uint of any width, and keep its low 32 bits as the server does."""
    value, pos = read_uint(buf, pos, limit)
    return value & 0xFFFFFFFF, pos


@kernel(load_big_endian_number)
def read_length(buf: UInt8s, pos: int, limit: int, code: int) -> tuple[int, int]:
    """Read the length after a first byte 0xc4..0xc9 or 0xd9..0xdf: (length, position); position -1 = truncated."""
    size = 4
    if code == 0xC4 or code == 0xC7 or code == 0xD9:
        size = 1
    elif code == 0xC5 or code == 0xC8 or code == 0xDA or code == 0xDC or code == 0xDE:
        size = 2
    if limit - pos < size:
        return 0, -1
    return load_big_endian_number(buf, pos, size), pos + size


@kernel(read_length)
def read_map_head(buf: UInt8s, pos: int, limit: int) -> tuple[int, int]:
    """Read the head of a map; return (number of pairs, position after the head)."""
    if pos >= limit:
        return 0, -1
    code = buf[pos] + 0
    if code >= FIX_MAP and code < FIX_ARRAY:
        return code - FIX_MAP, pos + 1
    if code >= MAP_16 and code <= MAP_32:
        return read_length(buf, pos + 1, limit, code)
    return 0, -2


@kernel(read_length)
def read_container_head(buf: UInt8s, pos: int, limit: int, code: int) -> tuple[int, int]:
    """Read the head of an array or map: (number of values or pairs, position after it); (-1, p) for other values."""
    if code >= FIX_MAP and code < FIX_STR:
        return code & 15, pos + 1
    if code < ARRAY_16 or code > MAP_32:
        return -1, pos
    count, after = read_length(buf, pos + 1, limit, code)
    return (count, after) if after >= 0 else (-1, pos)


@kernel(read_length)
def find_text_bounds(buf: UInt8s, pos: int, limit: int) -> tuple[int, int]:
    """Return start and end of the text of the mp str at `buf[pos]`; (0, -2) if there is no str."""
    if pos >= limit:
        return 0, -2
    code = buf[pos] + 0
    size = code - FIX_STR
    start = pos + 1
    if code >= STR_8 and code < ARRAY_16:
        size, start = read_length(buf, start, limit, code)
    elif code < FIX_STR or code >= NIL:
        return 0, -2
    if start < 0 or size > limit - start:
        return 0, -2
    return start, start + size


@kernel()
def skip_number(buf: UInt8s, pos: int, limit: int, code: int) -> tuple[int, int]:
    """Skip the content of a number (0xca..0xd3); return (next position, marks)."""
    size = 1 << (code & 3)
    if code > 0xCB:
        return pos + size, 0
    if pos + size > limit:
        return -1, 0
    infinite = 0x80 if code == 0xCA else 0xF0
    if buf[pos] & 0x7F == 0x7F and buf[pos + 1] >= infinite:
        return pos + size, 4
    return pos + size, 0


@kernel()
def skip_extension(buf: UInt8s, pos: int, limit: int, size: int) -> tuple[int, int]:
    """Skip the type and content of an extension; return (next position, marks)."""
    if pos >= limit:
        return -1, 0
    if buf[pos] >= 1 and buf[pos] <= 8:
        return pos + 1 + size, 2
    return pos + 1 + size, 4


@kernel(read_length, skip_extension, skip_number)
def skip_value_and_count(buf: UInt8s, pos: int, limit: int) -> tuple[int, int, int, int]:
    """Skip one value of any kind; return (next position, marks, pairs in all its maps, number of its arrays and maps).

    Iterative: `pending` counts the values still to come, and each of them needs at least one byte.
    """
    pending = 1
    marks = 0
    pairs = 0
    nested = 0
    while pending > 0:
        if pending > limit - pos:
            return -1, 0, 0, 0
        code = buf[pos] + 0
        pos += 1
        pending -= 1
        new_marks = 0
        if code < 0x80 or code >= 0xE0:
            continue
        if code >= 0xA0 and code < 0xC0:
            pos += code - 0xA0
        elif code < 0xA0 or code >= 0xDC:
            size = code & 15
            if code >= 0xDC:
                size, pos = read_length(buf, pos, limit, code)
            if code >= 0xDE or code < 0x90:
                pairs += size
                pending += size
            pending += size
            nested += 1
        elif code >= 0xCA and code <= 0xD3:
            pos, new_marks = skip_number(buf, pos, limit, code)
        elif code >= 0xD4 and code <= 0xD8:
            pos, new_marks = skip_extension(buf, pos, limit, 1 << (code - 0xD4))
        elif code >= 0xC4:
            size, pos = read_length(buf, pos, limit, code)
            if code >= 0xC7 and code <= 0xC9 and pos >= 0:
                pos, new_marks = skip_extension(buf, pos, limit, size)
            elif pos >= 0:
                pos += size
            if code <= 0xC6:
                new_marks = 1
        elif code == 0xC1:
            return -2, 0, 0, 0
        if pos < 0 or pos > limit:
            return -1, 0, 0, 0
        marks |= new_marks
    return pos, marks, pairs, nested


@kernel(skip_value_and_count)
def read_filler_size(buf: UInt8s, pos: int, limit: int) -> tuple[int, int]:
    """Skip one value of any kind; its value as a field is its size without the first byte."""
    after, _, _, _ = skip_value_and_count(buf, pos, limit)
    return after - pos - 1, after


# --- MessagePack as Tarantool stores it ---

MAX_DEPTH = 200
"""Maximum nesting that is decoded, whatever the limits allow; far below the interpreter's recursion limit."""


# -- tokens ------------------------------------------------------------------------------------------------------------


class MpKind(enum.IntEnum):
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


class ExtValue(NamedTuple):
    """Content of an extension value: its type and raw bytes."""

    code: int
    data: bytes


class MpToken(NamedTuple):
    """One value, or the head of an array or map (then `value` is the count and `end` is after the head).

    Attributes:
        body: where the content of a string or ext starts; for other types the same as `start`.
    """

    code: int
    kind: MpKind
    value: Any
    start: int
    body: int
    end: int


_NUMBERS = {
    0xCA: (MpKind.FLOAT, struct.Struct(">f")),
    0xCB: (MpKind.DOUBLE, struct.Struct(">d")),
    0xCC: (MpKind.UINT, struct.Struct(">B")),
    0xCD: (MpKind.UINT, struct.Struct(">H")),
    0xCE: (MpKind.UINT, struct.Struct(">I")),
    0xCF: (MpKind.UINT, struct.Struct(">Q")),
    0xD0: (MpKind.INT, struct.Struct(">b")),
    0xD1: (MpKind.INT, struct.Struct(">h")),
    0xD2: (MpKind.INT, struct.Struct(">i")),
    0xD3: (MpKind.INT, struct.Struct(">q")),
}
_TYPES_WITH_LENGTH = {
    0xC4: (MpKind.BIN, 1), 0xC5: (MpKind.BIN, 2), 0xC6: (MpKind.BIN, 4),
    0xC7: (MpKind.EXT, 1), 0xC8: (MpKind.EXT, 2), 0xC9: (MpKind.EXT, 4),
    0xD9: (MpKind.STR, 1), 0xDA: (MpKind.STR, 2), 0xDB: (MpKind.STR, 4),
    0xDC: (MpKind.ARRAY, 2), 0xDD: (MpKind.ARRAY, 4),
    0xDE: (MpKind.MAP, 2), 0xDF: (MpKind.MAP, 4),
}  # fmt: skip


_NIL, _BOOL, _UINT, _INT, _STR, _EXT, _ARRAY, _MAP = (
    MpKind.NIL, MpKind.BOOL, MpKind.UINT, MpKind.INT, MpKind.STR, MpKind.EXT, MpKind.ARRAY, MpKind.MAP,
)  # fmt: skip
_new_tuple = tuple.__new__  # half the cost of a NamedTuple's own constructor


def _truncated_error(value_name: str) -> MalformedError:
    """Create the error for bytes that end inside a value."""
    return MalformedError(f"the bytes end inside {value_name}")


def read_token(data: Any, start: int, end: int) -> MpToken:
    """Read the token at `data[start:end]`. Raises MalformedError: the bytes end inside it, or begin with 0xc1."""
    if start >= end:
        raise _truncated_error("a MessagePack value")
    code = data[start]
    if code < 0x80:
        return _new_tuple(MpToken, (code, _UINT, code, start, start, start + 1))
    if code < 0xA0:
        return _create_container_token(code, _ARRAY if code >= 0x90 else _MAP, code & 15, start, start + 1, end)
    if code < 0xC0:
        return _read_string_or_extension_token(data, code, _STR, code - 0xA0, start, start + 1, end)
    if code in _NUMBERS:
        kind, number_format = _NUMBERS[code]
        stop = start + 1 + number_format.size
        if stop > end:
            raise _truncated_error("a number")
        return _new_tuple(MpToken, (code, kind, number_format.unpack_from(data, start + 1)[0], start, start, stop))
    if code >= 0xE0:
        return _new_tuple(MpToken, (code, _INT, code - 256, start, start, start + 1))
    return _read_token_with_length(data, code, start, end)


def _read_token_with_length(data: Any, code: int, start: int, end: int) -> MpToken:
    """Read a token with a length field, or a single-byte token (nil, false, true)."""
    if 0xD4 <= code <= 0xD8:
        return _read_string_or_extension_token(data, code, _EXT, 1 << (code - 0xD4), start, start + 1, end)
    if code not in _TYPES_WITH_LENGTH:
        if code == 0xC1:
            raise MalformedError("0xc1 is not a MessagePack value")
        value = None if code == 0xC0 else code == 0xC3
        return MpToken(code, _NIL if code == 0xC0 else _BOOL, value, start, start, start + 1)
    kind, width = _TYPES_WITH_LENGTH[code]
    body = start + 1 + width
    if body > end:
        raise _truncated_error("a length")
    size = int.from_bytes(data[start + 1 : body], "big")
    if kind >= _ARRAY:
        return _create_container_token(code, kind, size, start, body, end)
    return _read_string_or_extension_token(data, code, kind, size, start, body, end)


def _create_container_token(code: int, kind: MpKind, size: int, start: int, body: int, end: int) -> MpToken:
    if size * (2 if kind is _MAP else 1) > end - body:
        unit = "pairs" if kind is _MAP else "elements"
        raise MalformedError(f"{size} {unit} cannot fit into {end - body} bytes", finding_id="count-out-of-bounds")
    return _new_tuple(MpToken, (code, kind, size, start, body, body))


def _read_string_or_extension_token(
    data: Any, code: int, kind: MpKind, size: int, start: int, body: int, end: int
) -> MpToken:
    """Create the token of a str, bin or ext of `size` bytes. Raises MalformedError: cut short."""
    content = body + 1 if kind is _EXT else body
    stop = content + size
    if stop > end:
        raise _truncated_error(f"a {kind.name.lower()} of {size} bytes")
    raw = bytes(data[content:stop])
    if kind is not _EXT:
        return _new_tuple(MpToken, (code, kind, raw, start, body, stop))
    number = data[body] - 256 if data[body] > 127 else data[body]
    return MpToken(code, kind, ExtValue(number, raw), start, content, stop)


# -- trees -------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class MpNode:
    """One MessagePack value with its encoding.

    Attributes:
        value: a Python number, bool or None; `bytes` for str and bin; `ExtValue`; a tuple of nodes for an array; a
            tuple of pairs of nodes for a map.
        start, end: position in the stream it was read from.
    """

    code: int
    kind: MpKind
    value: Any
    start: int = field(default=0, compare=False)
    end: int = field(default=0, compare=False)

    def get(self, key: int) -> MpNode | None:
        """Return the value of an integer key of a map (the last one if it occurs twice), or None."""
        result = None
        for name, value in self.value:
            if name.kind is MpKind.UINT and name.value == key:
                result = value
        return result


def decode_value(data: Any, start: int, end: int, max_depth: int | None = None) -> MpNode:
    """Decode the value that starts at `data[start]` to a tree; it may end before `end`. Iterative.

    Raises:
        MalformedError: no value, cut short, or nested deeper than `max_depth` (None = any).
    """
    stack: list[tuple[MpToken, list[MpNode]]] = []
    position = start
    while True:
        token = read_token(data, position, end)
        position = token.end
        if token.kind >= MpKind.ARRAY:
            if max_depth is not None and len(stack) >= max_depth:
                raise nesting_error()
            stack.append((token, []))
        else:
            value = MpNode(token.code, token.kind, token.value, token.start, position)
            if not stack:
                return value
            stack[-1][1].append(value)
        while len(stack[-1][1]) == _count_items(stack[-1][0]):
            head, items = stack.pop()
            pairs = zip(items[::2], items[1::2], strict=True) if head.kind is MpKind.MAP else items
            value = MpNode(head.code, head.kind, tuple(pairs), head.start, position)
            if not stack:
                return value
            stack[-1][1].append(value)


def _count_items(head: MpToken) -> int:
    return int(head.value) * (2 if head.kind is MpKind.MAP else 1)


def nesting_error() -> MalformedError:
    """Create the error for values nested too deep."""
    return MalformedError("values are nested too deep", finding_id="nesting-too-deep")


def get_max_nesting_depth(limits: Limits) -> int:
    """Return the nesting limit to use: that of `limits`, but at most MAX_DEPTH."""
    return max(1, min(limits.max_depth, MAX_DEPTH))


def encode_value(value: MpNode) -> bytes:
    """Encode a tree to bytes, in exactly its stored encoding."""
    out = bytearray()
    pending = [value]
    while pending:
        item = pending.pop()
        _write_node_without_children(item, out)
        if item.kind is MpKind.ARRAY:
            pending += reversed(item.value)
        elif item.kind is MpKind.MAP:
            pending += [part for pair in reversed(item.value) for part in reversed(pair)]
    return bytes(out)


def _write_node_without_children(value: MpNode, out: bytearray) -> None:
    """Write a value, or only the head of an array or map."""
    code = value.code
    out.append(code)
    if code in _NUMBERS:
        out += _NUMBERS[code][1].pack(value.value)
    if value.kind < MpKind.STR:
        return
    content = value.value.data if value.kind is MpKind.EXT else value.value
    if code in _TYPES_WITH_LENGTH:
        out += len(content).to_bytes(_TYPES_WITH_LENGTH[code][1], "big")
    if value.kind is MpKind.EXT:
        out += struct.pack("b", value.value.code) + content
    elif value.kind < MpKind.EXT:
        out += content


# -- construct types ---------------------------------------------------------------------------------------------------


def get_buffer_and_position(stream: Any) -> tuple[Any, int, int, int]:
    """Return the rest of a construct stream without copying it.

    Returns:
        (bytes, position in the bytes, end of the bytes, stream position minus position in the bytes).
    """
    if isinstance(stream, io.BytesIO):
        position = io.BytesIO.tell(stream)
        data = stream.getbuffer()
        return data, position, len(data), stream.tell() - position
    position_before = stream.tell()
    rest = stream.read()
    stream.seek(position_before)
    return rest, 0, len(rest), position_before


class WideUint(int):
    """Unsigned number that was not stored in its shortest form; `code` is its first byte."""

    code: int

    def __new__(cls, value: int, code: int) -> WideUint:
        """Create the number with its first byte."""
        number = super().__new__(cls, value)
        number.code = code
        return number


def get_shortest_first_byte(value: int) -> int:
    """Return the first byte of the shortest encoding of an unsigned number."""
    if value < 0x80:
        return value
    return 0xCC + (value > 0xFF) + (value > 0xFFFF) + (value > 0xFFFFFFFF)


def encode_uint(value: int, first_byte: int) -> bytes:
    """Encode an unsigned number with this first byte."""
    return bytes([first_byte]) if first_byte < 0x80 else bytes([first_byte]) + _NUMBERS[first_byte][1].pack(value)


class MpUint(Construct):  # type: ignore[misc]
    """Construct type of an unsigned integer of any width."""

    kernel = ScalarKernel(
        read_uint,
        (
            ScalarForm(0x00, 0x7F),
            ScalarForm(0xCE, 0xCE, ">I"),
            ScalarForm(0xCD, 0xCD, ">H"),
            ScalarForm(0xCC, 0xCC, ">B"),
            ScalarForm(0xCF, 0xCF, ">Q"),
        ),
    )

    def _parse(self, stream: Any, context: Any, path: str) -> int:
        first: int = stream_read(stream, 1, path)[0]
        if first < 0x80:
            return first
        kind, form = _NUMBERS.get(first, (None, None))
        if kind is not MpKind.UINT:
            raise MalformedError(f"0x{first:02x} does not start an unsigned integer", path, "bad-header")
        assert form is not None
        value: int = form.unpack(stream_read(stream, form.size, path))[0]
        return value if first == get_shortest_first_byte(value) else WideUint(value, first)

    def _build(self, obj: Any, stream: Any, context: Any, path: str) -> Any:
        stream.write(encode_uint(int(obj), obj.code if isinstance(obj, WideUint) else get_shortest_first_byte(obj)))
        return obj


class MpUint32(MpUint):
    """Construct type of an unsigned integer of any width, of which the server keeps 32 bits."""

    kernel = ScalarKernel(read_mp_uint_low_32_bits, tuple(form for form in MpUint.kernel.forms if form.first != 0xCF))

    def _parse(self, stream: Any, context: Any, path: str) -> int:
        value = super()._parse(stream, context, path)
        return value if value < 1 << 32 else WideUint(value & 0xFFFFFFFF, 0xCF)


class MpFiller(Construct):  # type: ignore[misc]
    """Construct type of one value of any kind that only fills space, parsed as its bytes. Kernels return its size."""

    kernel = ScalarKernel(read_filler_size, (ScalarForm(0xA0, 0xBF, base=0xA0, skips=True),))

    def _parse(self, stream: Any, context: Any, path: str) -> bytes:
        here = stream.tell()
        head: bytes = stream.read(1)
        if head and 0xA0 <= head[0] <= 0xBF:
            size = head[0] - 0xA0
            text: bytes = stream.read(size)
            if len(text) == size:
                return head + text
        stream.seek(here)
        data, start, end, base = get_buffer_and_position(stream)
        after, _, _, _ = skip_value_and_count(data, start, end)
        if after < 0:
            raise MalformedError("the filler is not a MessagePack value", path, "bad-header")
        stream.seek(after + base)
        return bytes(data[start:after])

    def _build(self, obj: bytes | None, stream: Any, context: Any, path: str) -> Any:
        stream.write(obj or b"")
        return obj
