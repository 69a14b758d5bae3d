"""Field types of event bodies: length-encoded integers, text, fields that older servers do not write."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from construct import Adapter, Construct, Subconstruct, stream_read, stream_write

from binlogtool.formats.fields import MalformedError

_LENENC = {0xFC: 2, 0xFD: 3, 0xFE: 8}


def cut(what: str, needed: int, left: int) -> MalformedError:
    """The error of a field that the body is too short for."""
    text = f"{what} needs {needed:,} bytes, {max(left, 0):,} left"
    return MalformedError(text, finding_id="length-out-of-bounds")


def too_many(what: str, count: int, left: int) -> MalformedError:
    """The error of a count that cannot be true."""
    text = f"{count:,} {what} cannot fit into {max(left, 0):,} bytes"
    return MalformedError(text, finding_id="count-out-of-bounds")


def read_lenenc(data: bytes, at: int, end: int) -> tuple[int, int]:
    """The length-encoded integer at `data[at]` and where it ends.

    Raises:
        MalformedError: cut off by `end`, or the first byte is 0xfb (NULL) or 0xff.
    """
    if at >= end:
        raise cut("a length-encoded integer", 1, end - at)
    first = data[at]
    if first < 0xFB:
        return first, at + 1
    size = _LENENC.get(first)
    if size is None:
        raise MalformedError(f"0x{first:02x} does not start a length-encoded integer")
    if at + 1 + size > end:
        raise cut("a length-encoded integer", 1 + size, end - at)
    return int.from_bytes(data[at + 1 : at + 1 + size], "little"), at + 1 + size


def lenenc_code(value: int) -> int:
    """The first byte of the shortest form of a length-encoded integer."""
    if value < 0xFB:
        return value
    return 0xFC + (value > 0xFFFF) + (value > 0xFFFFFF)


def build_lenenc(value: int) -> bytes:
    """The shortest form, or the one that a `Wide` says."""
    code = getattr(value, "code", lenenc_code(value))
    return bytes([code]) + int(value).to_bytes(_LENENC[code], "little") if code >= 0xFB else bytes([code])


class Wide(int):
    """A length-encoded integer that was not stored in its shortest form; `code` is the first byte it had."""

    code: int

    def __new__(cls, value: int, code: int) -> Wide:  # noqa: D102 - see the class
        number = super().__new__(cls, value)
        number.code = code
        return number


class Lenenc(Construct):  # type: ignore[misc]
    """A length-encoded integer; a longer form than needed is kept (`Wide`)."""

    def _parse(self, stream: Any, context: Any, path: str) -> int:
        data = stream_read(stream, 1, path)
        if data[0] in _LENENC:
            data += stream_read(stream, _LENENC[data[0]], path)
        value, _ = read_lenenc(data, 0, len(data))
        return value if data[0] == lenenc_code(value) else Wide(value, data[0])

    def _build(self, obj: Any, stream: Any, context: Any, path: str) -> Any:
        data = build_lenenc(obj)
        stream_write(stream, data, len(data), path)
        return obj


def text(value: bytes) -> str | bytes:
    """Text where the bytes are valid UTF-8 (encoding gives them back), else the bytes as they are."""
    try:
        return value.decode()
    except UnicodeDecodeError:
        return value


class Text(Adapter):  # type: ignore[misc]
    """Bytes that are text, mostly UTF-8; others stay bytes."""

    def _decode(self, obj: bytes, context: Any, path: str) -> str | bytes:
        return text(obj)

    def _encode(self, obj: str | bytes, context: Any, path: str) -> bytes:
        return obj.encode() if isinstance(obj, str) else obj


class IfMore(Subconstruct):  # type: ignore[misc]
    """A field that is there when bytes are left; older servers do not write it. Its value is None without them."""

    def _parse(self, stream: Any, context: Any, path: Any) -> Any:
        here = stream.tell()
        more = bool(stream.read(1))
        stream.seek(here)
        return self.subcon._parsereport(stream, context, path) if more else None

    def _build(self, obj: Any, stream: Any, context: Any, path: Any) -> Any:
        return obj if obj is None else self.subcon._build(obj, stream, context, path)


class Marked(int):
    """A number whose highest bit means something else; `marked` says if it was set."""

    marked: bool

    def __new__(cls, value: int, marked: bool) -> Marked:  # noqa: D102 - see the class
        number = super().__new__(cls, value)
        number.marked = marked
        return number


class MarkedInt(Construct):  # type: ignore[misc]
    """A little-endian integer of `size` bytes whose highest bit says that another number follows."""

    def __init__(self, size: int) -> None:
        super().__init__()
        self.size, self.mark = size, 1 << 8 * size - 1

    def _parse(self, stream: Any, context: Any, path: str) -> Marked:
        value = int.from_bytes(stream_read(stream, self.size, path), "little")
        return Marked(value & self.mark - 1, value >= self.mark)

    def _build(self, obj: Any, stream: Any, context: Any, path: str) -> Any:
        value = int(obj) | (self.mark if getattr(obj, "marked", False) else 0)
        stream_write(stream, value.to_bytes(self.size, "little"), self.size, path)
        return obj


def uuid_text(sid: bytes) -> str:
    """16 bytes as a UUID is written."""
    digits = sid.hex()
    return f"{digits[:8]}-{digits[8:12]}-{digits[12:16]}-{digits[16:20]}-{digits[20:]}"


class Uuid(Construct):  # type: ignore[misc]
    """16 bytes, shown as a UUID."""

    def _parse(self, stream: Any, context: Any, path: str) -> str:
        return uuid_text(stream_read(stream, 16, path))

    def _build(self, obj: str, stream: Any, context: Any, path: str) -> str:
        stream_write(stream, bytes.fromhex(obj.replace("-", "")), 16, path)
        return obj


class Count(Subconstruct):  # type: ignore[misc]
    """The number of elements that follow; each takes `smallest` bytes or more, so it cannot exceed what is left."""

    def __init__(self, subcon: Construct, smallest: int, what: str) -> None:
        super().__init__(subcon)
        self.smallest, self.what = smallest, what

    def _parse(self, stream: Any, context: Any, path: Any) -> int:
        count: int = self.subcon._parsereport(stream, context, path)
        left = bytes_left(stream)
        if count * self.smallest > left:
            raise too_many(self.what, count, left)
        return count


def bytes_left(stream: Any) -> int:
    """Bytes of a stream from here to its end."""
    here = stream.tell()
    left = stream.seek(0, 2) - here
    stream.seek(here)
    return int(left)


class Ahead(Construct):  # type: ignore[misc]
    """No bytes: what `tells` finds in the next `size` bytes (fewer at the end)."""

    def __init__(self, size: int, tells: Callable[[bytes], Any]) -> None:
        super().__init__()
        self.size, self.tells = size, tells

    def _parse(self, stream: Any, context: Any, path: str) -> Any:
        here = stream.tell()
        data = stream.read(self.size)
        stream.seek(here)
        return self.tells(data)

    def _build(self, obj: Any, stream: Any, context: Any, path: str) -> Any:
        return obj


class NulPadded(Adapter):  # type: ignore[misc]
    """Text in a field of fixed size that is filled up with NULs."""

    def _decode(self, obj: bytes, context: Any, path: str) -> str | bytes:
        return text(obj.rstrip(b"\0"))

    def _encode(self, obj: str | bytes, context: Any, path: str) -> bytes:
        data = obj.encode() if isinstance(obj, str) else obj
        return data.ljust(self.subcon.sizeof(), b"\0")


def flag_words(value: int, names: Mapping[int, str]) -> str:
    """`STMT_END|0x40`: the names of the bits that are set, then the rest as a number."""
    words = [name for mask, name in names.items() if value & mask]
    rest = value & ~sum(names)
    return "|".join([*words, hex(rest)] if rest else words)
