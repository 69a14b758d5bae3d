"""Decode the value of USER_VAR (docs/spec/mysql_binlog.md#event-bodies)."""

from __future__ import annotations

import enum
import struct
from typing import Any

from construct import Subconstruct, stream_write

from binlogtool.formats.binlog_events.values.decimals import make_decimal_reader
from binlogtool.formats.bodies import LeafFormat, decode_text, make_truncation_error
from binlogtool.formats.fields import MalformedError


class UserVarType(enum.IntEnum):
    """Type of a user variable (`Item_result`)."""

    STRING = 0
    REAL = 1
    INT = 2
    DECIMAL = 4


UNSIGNED = 1


class RawValue:
    """Mixin: a decoded value that keeps its stored bytes."""

    raw: bytes


class RawDecimalText(str, RawValue):
    """A DECIMAL as text, with its bytes."""


def decode_user_value(kind: int, data: bytes, flags: int | None) -> Any:
    """Decode the value of a user variable: int, float, text of a decimal number, or text (bytes if not UTF-8).

    Raises:
        MalformedError: the size does not fit the type.
    """
    if kind == UserVarType.INT or kind == UserVarType.REAL:
        if len(data) != 8:
            raise make_truncation_error("the number", 8, len(data))
        if kind == UserVarType.REAL:
            return struct.unpack("<d", data)[0]
        return int.from_bytes(data, "little", signed=not (flags or 0) & UNSIGNED)
    return decode_decimal_text(data) if kind == UserVarType.DECIMAL else decode_text(data)


def decode_decimal_text(data: bytes) -> str:
    """Decode a DECIMAL: precision, scale, packed digits.

    Raises:
        MalformedError: precision and scale do not fit each other or the number of bytes.
    """
    if len(data) < 2:
        raise make_truncation_error("precision and scale", 2, len(data))
    precision, scale = data[0], data[1]
    if not scale <= precision or not 1 <= precision <= 81:
        raise MalformedError(f"DECIMAL({precision},{scale}) is not possible")
    return make_decimal_reader(precision, scale)(data[2:])


class UserValue(Subconstruct):  # type: ignore[misc]
    """Construct of `value`: its type is in an earlier field, and the byte after it says if an INT is unsigned."""

    leaf = LeafFormat(bytes)

    def _parse(self, stream: Any, context: Any, path: str) -> Any:
        data = self.subcon._parsereport(stream, context, path)
        offset = stream.tell()
        flags_byte = stream.read(1)
        stream.seek(offset)
        value = decode_user_value(int(context.type), data, flags_byte[0] if flags_byte else None)
        if int(context.type) == UserVarType.DECIMAL:
            value = RawDecimalText(value)
            value.raw = data
        return value

    def _build(self, obj: Any, stream: Any, context: Any, path: str) -> Any:
        data = _encode_user_value(int(context.type), obj)
        stream_write(stream, data, len(data), path)
        return obj


def _encode_user_value(kind: int, value: Any) -> bytes:
    if kind == UserVarType.INT:
        return int(value & (1 << 64) - 1).to_bytes(8, "little")
    if kind == UserVarType.REAL:
        return struct.pack("<d", value)
    if kind == UserVarType.DECIMAL:
        return bytes(value.raw)
    return value.encode() if isinstance(value, str) else bytes(value)
