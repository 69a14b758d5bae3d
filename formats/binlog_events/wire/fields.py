"""Field types of event bodies: length-encoded integers, padded text, flags."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from construct import Adapter, Construct, stream_read, stream_write

from binlogtool.formats.bodies import LeafFormat, decode_text, make_truncation_error
from binlogtool.formats.fields import MALFORMED, MalformedError, ScalarForm, ScalarKernel, kernel
from binlogtool.formats.kernel_types import UInt8s
from binlogtool.formats.loads import load_little_endian

_LENENC = {0xFC: 2, 0xFD: 3, 0xFE: 8}
_U64 = (1 << 64) - 1


@kernel(load_little_endian)
def load_lenenc(buf: UInt8s, pos: int, limit: int) -> tuple[int, int]:
    """Load a length-encoded integer: (value, its end), or -1 = truncated, -2 = invalid as end."""
    if pos >= limit:
        return 0, -1
    first = buf[pos] + 0
    if first < 0xFB:
        return first, pos + 1
    size = 0
    if first == 0xFC:
        size = 2
    elif first == 0xFD:
        size = 3
    elif first == 0xFE:
        size = 8
    if size == 0:
        return 0, -2
    if size > limit - pos - 1:
        return 0, -1
    return load_little_endian(buf, pos + 1, size), pos + 1 + size


def read_lenenc(data: bytes, offset: int, end: int) -> tuple[int, int]:
    """Read the length-encoded integer at `data[offset]`; returns (value, its end).

    Raises:
        MalformedError: cut off by `end`, or the first byte is 0xfb (NULL) or 0xff.
    """
    value, stop = load_lenenc(data, offset, end)
    if stop >= 0:
        return value & _U64, stop
    if offset >= end:
        raise make_truncation_error("a length-encoded integer", 1, end - offset)
    if stop == MALFORMED:
        raise MalformedError(f"0x{data[offset]:02x} does not start a length-encoded integer")
    raise make_truncation_error("a length-encoded integer", 1 + _LENENC[data[offset]], end - offset)


def lenenc_first_byte(value: int) -> int:
    """Return the first byte of the shortest encoding of a length-encoded integer."""
    if value < 0xFB:
        return value
    return 0xFC + (value > 0xFFFF) + (value > 0xFFFFFF)


def encode_lenenc(value: int) -> bytes:
    """Encode a length-encoded integer in its shortest form, or in the stored form of a `WideLenenc`."""
    code = getattr(value, "code", lenenc_first_byte(value))
    return bytes([code]) + int(value).to_bytes(_LENENC[code], "little") if code >= 0xFB else bytes([code])


class WideLenenc(int):
    """A length-encoded integer that was not stored in its shortest form.

    Attributes:
        code: the first byte that it was stored with.
    """

    code: int

    def __new__(cls, value: int, code: int) -> WideLenenc:  # noqa: D102 - see the class
        number = super().__new__(cls, value)
        number.code = code
        return number


class Lenenc(Construct):  # type: ignore[misc]
    """Construct of a length-encoded integer; a longer form than needed is preserved (`WideLenenc`)."""

    scan = ScalarKernel(
        load_lenenc, (ScalarForm(0, 0xFA), ScalarForm(0xFC, 0xFC, "<H"), ScalarForm(0xFE, 0xFE, "<Q")), unsigned=True
    )

    def _parse(self, stream: Any, context: Any, path: str) -> int:
        data = stream_read(stream, 1, path)
        if data[0] in _LENENC:
            data += stream_read(stream, _LENENC[data[0]], path)
        value, _ = read_lenenc(data, 0, len(data))
        return value if data[0] == lenenc_first_byte(value) else WideLenenc(value, data[0])

    def _build(self, obj: Any, stream: Any, context: Any, path: str) -> Any:
        data = encode_lenenc(obj)
        stream_write(stream, data, len(data), path)
        return obj


def _strip_nul_padding(value: bytes) -> str | bytes:
    return decode_text(value.rstrip(b"\0"))


class NulPadded(Adapter):  # type: ignore[misc]
    """Construct of text in a field of fixed size, padded with NULs."""

    leaf = LeafFormat(_strip_nul_padding)

    def _decode(self, obj: bytes, context: Any, path: str) -> str | bytes:
        return _strip_nul_padding(obj)

    def _encode(self, obj: str | bytes, context: Any, path: str) -> bytes:
        data = obj.encode() if isinstance(obj, str) else obj
        return data.ljust(self.subcon.sizeof(), b"\0")


def describe_flags(value: int, names: Mapping[int, str]) -> str:
    """Describe flags as the names of the bits that are set, then the rest as a number: `STMT_END|0x40`."""
    words = [name for mask, name in names.items() if value & mask]
    rest = value & ~sum(names)
    return "|".join([*words, hex(rest)] if rest else words)
