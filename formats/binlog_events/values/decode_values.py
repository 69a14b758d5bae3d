"""Decode column values: numbers, DECIMAL, dates and times, binary JSON, text.

See docs/spec/mysql_binlog.md#row-events. Text forms: DATE "YYYY-MM-DD", TIME "[-]HH:MM:SS[.f]", DATETIME and TIMESTAMP
"YYYY-MM-DD HH:MM:SS[.f]", with as many digits of the fraction as the column declares. Zero and impossible dates stay as
they are stored. TIMESTAMP is UTC.

In a damaged JSON value, parts may overlap or point back into the value itself. So every byte that is read is deducted
from a budget of the value's size: in a valid value no byte belongs to two parts.
"""

from __future__ import annotations

import struct
import time
import uuid
from collections.abc import Callable, Iterator, Mapping
from functools import cache, partial
from itertools import accumulate
from types import MappingProxyType
from typing import Any, NamedTuple

from binlogtool.format_api.schema_fields import MalformedError, decode_text
from binlogtool.formats.binlog_events.values.column_types import (
    DIGIT_BYTES,
    ColumnEncoding,
    ColumnType,
    TableMapColumn,
    ValueKind,
    get_charset_decoder,
    keep_bytes,
    packed_decimal_size,
)
from binlogtool.formats.binlog_events.wire_format import BoundedReader, unpack_compressed_column_value
from binlogtool.limits import Limits

# --- NEWDECIMAL values ---


@cache
def make_decimal_formatter(precision: int, scale: int) -> Callable[[bytes], str]:
    """Create a function that formats the bytes of a DECIMAL(precision, scale) as text.

    The text has at least one digit before the point and exactly `scale` digits after it. The function raises
    `MalformedError` if the bytes are not a packed decimal.
    """
    size = packed_decimal_size(precision, scale)
    whole = precision - scale
    digits = [count for count in (whole % 9, *(9,) * (whole // 9 + scale // 9), scale % 9) if count]
    ends = list(accumulate(DIGIT_BYTES[count] for count in digits))
    groups = list(zip([0, *ends], ends, strict=False))
    pattern = "".join(f"%0{count}d" for count in digits)
    negative_mask = (1 << 8 * size) - 1
    sign_bit = 1 << (8 * size - 1)

    def read(raw: bytes) -> str:
        if len(raw) != size:
            raise MalformedError(f"a DECIMAL({precision},{scale}) of {len(raw)} bytes, not {size}")
        number = int.from_bytes(raw, "big") ^ sign_bit
        sign = ""
        if number & sign_bit:
            sign, number = "-", number ^ negative_mask
        plain = number.to_bytes(size, "big")
        text = pattern % tuple([int.from_bytes(plain[start:end], "big") for start, end in groups])
        if len(text) != precision:
            raise MalformedError(f"{plain.hex()} are not decimal digits")
        integer = sign + (text[:whole].lstrip("0") or "0")
        return f"{integer}.{text[whole:]}" if scale else integer

    return read


# --- Dates and times of row images and binary JSON ---

_MAX_CACHED_DATES = 1 << 16


class _DateTexts(dict[int, str]):
    """Texts of dates by (year * 13 + month) * 32 + day, formatted on first use."""

    def __missing__(self, packed: int) -> str:
        if len(self) >= _MAX_CACHED_DATES:
            self.clear()
        year, month = divmod(packed >> 5, 13)
        self[packed] = text = f"{year:04d}-{month:02d}-{packed & 31:02d}"
        return text


class _TimeTexts(dict[int, str]):
    """Texts of times by (hour * 64 + minute) * 64 + second below 2 ** 17, formatted on first use."""

    def __missing__(self, packed: int) -> str:
        self[packed] = text = f" {packed >> 12:02d}:{packed >> 6 & 63:02d}:{packed & 63:02d}"
        return text


_dates = _DateTexts()
_times = _TimeTexts()


def format_packed_date(raw: bytes) -> str:
    """Format a DATE of 3 bytes: day 5 bits, month 4 bits, year 15 bits."""
    packed = int.from_bytes(raw, "little")
    return f"{packed >> 9:04d}-{packed >> 5 & 15:02d}-{packed & 31:02d}"


def format_stored_fraction(units: int, stored_bytes: int, digits: int) -> str:
    """Format a fraction stored in `stored_bytes` bytes; with more digits than declared if it is out of range."""
    text = f"{units:0{2 * stored_bytes}d}"
    return "." + (text[:digits] if len(text) == 2 * stored_bytes else text)


def format_packed_datetime(packed: int) -> str:
    """Format year * 13 + month, day, hour, minute, second packed in 40 bits."""
    return _dates[packed >> 17] + _times[packed & 0x1FFFF]


def format_packed_time(packed: int) -> str:
    """Format hour, minute, second packed in 24 bits."""
    return f"{packed >> 12 & 1023:02d}:{packed >> 6 & 63:02d}:{packed & 63:02d}"


def _split_sign(packed: int) -> tuple[str, int]:
    """Return the sign as text, and the absolute value."""
    return ("-", -packed) if packed < 0 else ("", packed)


@cache
def _make_packed_formatter(format_seconds: Callable[[int], str], size: int, digits: int) -> Callable[[bytes], str]:
    """Create a function that formats `size` bytes and a fraction of `digits` digits.

    Both are one number, which is stored with an inverted sign bit.
    """
    width = (digits + 1) // 2
    shift, mask = 8 * width, (1 << 8 * width) - 1
    zero = 1 << 8 * (size + width) - 1

    def read(raw: bytes) -> str:
        sign, packed = _split_sign(int.from_bytes(raw, "big") - zero)
        text = sign + format_seconds(packed >> shift)
        return text + format_stored_fraction(packed & mask, width, digits) if digits else text

    return read


make_datetime2_formatter = partial(_make_packed_formatter, format_packed_datetime, 5)
"""Create a function that formats a DATETIME2 with this number of digits of a fraction."""
make_time2_formatter = partial(_make_packed_formatter, format_packed_time, 3)
"""Create a function that formats a TIME2 with this number of digits of a fraction."""


@cache
def make_timestamp2_formatter(fraction_digits: int) -> Callable[[bytes], str]:
    """Create a function that formats a TIMESTAMP2."""
    width = (fraction_digits + 1) // 2

    def read(raw: bytes) -> str:
        text = format_timestamp(int.from_bytes(raw[:4], "big"))
        return (
            text + format_stored_fraction(int.from_bytes(raw[4:], "big"), width, fraction_digits)
            if fraction_digits
            else text
        )

    return read


def format_timestamp(seconds: int) -> str:
    """Format seconds since 1970 as UTC; 0 is the zero date."""
    if not seconds:
        return "0000-00-00 00:00:00"
    year, month, day, hour, minute, second, *_ = time.gmtime(seconds)
    return f"{year:04d}-{month:02d}-{day:02d} {hour:02d}:{minute:02d}:{second:02d}"


def format_old_timestamp(raw: bytes) -> str:
    """Format a TIMESTAMP of MySQL before 5.6: 4 bytes, little-endian."""
    return format_timestamp(int.from_bytes(raw, "little"))


def format_old_time(raw: bytes) -> str:
    """Format a TIME of MySQL before 5.6: HHMMSS as a signed decimal number of 3 bytes."""
    sign, packed = _split_sign(int.from_bytes(raw, "little", signed=True))
    return f"{sign}{packed // 10000:02d}:{packed // 100 % 100:02d}:{packed % 100:02d}"


def format_old_datetime(raw: bytes) -> str:
    """Format a DATETIME of MySQL before 5.6: YYYYMMDDhhmmss as a decimal number of 8 bytes."""
    day, clock = divmod(int.from_bytes(raw, "little"), 1_000_000)
    date_ = f"{day // 10000:04d}-{day // 100 % 100:02d}-{day % 100:02d}"
    return f"{date_} {clock // 10000:02d}:{clock // 100 % 100:02d}:{clock % 100:02d}"


def _format_json_temporal(format_seconds: Callable[[int], str], packed: int) -> str:
    """Format a temporal value in binary JSON: signed, with 24 bits of microseconds."""
    sign, packed = _split_sign(packed)
    return f"{sign}{format_seconds(packed >> 24)}.{packed & 0xFFFFFF:06d}"


def _format_json_date(packed: int) -> str:
    """Format a DATE in binary JSON: a DATETIME whose time is ignored."""
    sign, packed = _split_sign(packed)
    return sign + _dates[packed >> 41]


@cache
def make_old_mariadb_timestamp_formatter(fraction_digits: int) -> Callable[[bytes], str]:
    """Create a function that formats a TIMESTAMP of MariaDB before 10.1.2 with a fraction.

    The value is the seconds in 4 bytes, then the fraction, big-endian.
    """

    def read(raw: bytes) -> str:
        return (
            f"{format_timestamp(int.from_bytes(raw[:4], 'big'))}.{int.from_bytes(raw[4:], 'big'):0{fraction_digits}d}"
        )

    return read


@cache
def make_old_mariadb_datetime_formatter(fraction_digits: int) -> Callable[[bytes], str]:
    """Create a function that formats a DATETIME of MariaDB before 10.1.2 with a fraction.

    The value is one number, ((((year * 13 + month) * 32 + day) * 24 + hour) * 60 + ...) with the fraction.
    """
    unit = 10**fraction_digits

    def read(raw: bytes) -> str:
        seconds, part = divmod(int.from_bytes(raw, "big"), unit)
        days, clock = divmod(seconds, 86400)
        return f"{_dates[days]} {clock // 3600:02d}:{clock // 60 % 60:02d}:{clock % 60:02d}.{part:0{fraction_digits}d}"

    return read


@cache
def make_old_mariadb_time_formatter(fraction_digits: int) -> Callable[[bytes], str]:
    """Create a function that formats a TIME of MariaDB before 10.1.2 with a fraction.

    The value is seconds plus fraction as one number, shifted by 839 hours.
    """
    unit = 10**fraction_digits
    zero = 839 * 3600 * unit

    def read(raw: bytes) -> str:
        sign, packed = _split_sign(int.from_bytes(raw, "big") - zero)
        seconds, part = divmod(packed, unit)
        return f"{sign}{seconds // 3600:02d}:{seconds // 60 % 60:02d}:{seconds % 60:02d}.{part:0{fraction_digits}d}"

    return read


# --- MySQL's binary JSON and its partial updates ---

_LARGE_OBJECT, _LARGE_ARRAY, _LITERAL = 1, 3, 4
_INT16, _UINT16, _INT32, _UINT32, _INT64, _UINT64, _JSON_DOUBLE, _STRING = range(5, 13)
_OPAQUE = 15
_LITERALS = {0: None, 1: True, 2: False}
_NUMBERS = {
    _INT16: struct.Struct("<h"),
    _UINT16: struct.Struct("<H"),
    _INT32: struct.Struct("<i"),
    _UINT32: struct.Struct("<I"),
    _INT64: struct.Struct("<q"),
    _UINT64: struct.Struct("<Q"),
    _JSON_DOUBLE: struct.Struct("<d"),
}
_INLINE_SMALL = frozenset({_LITERAL, _INT16, _UINT16})
_INLINE_LARGE = _INLINE_SMALL | {_INT32, _UINT32}
JSON_NULL: Mapping[str, None] = MappingProxyType({"$json": None})
"""JSON null in a column, as opposed to SQL's NULL."""
_OPERATIONS = ("REPLACE", "INSERT", "REMOVE")


def decode_binary_json(binary_json: bytes, max_depth: int) -> Any:
    """Decode a binary JSON value.

    The result is None, bool, int, float, str, list or dict; decimals are {"$decimal": "1.50"}, temporal values
    {"$date": …}, {"$time": …}, {"$datetime": …} and {"$timestamp": …}; other opaque values, and text that is not UTF-8,
    are bytes. An object whose keys are not distinct texts, or begin with "$" like the members above, is {"$map": [[key,
    value], ...]}.

    Raises:
        MalformedError: offsets, sizes or types that do not fit; nested deeper than `max_depth` (id nesting-too-deep).
    """
    if not binary_json:
        return None
    return _JsonDecoder(binary_json, max_depth).read_value(binary_json[0], 1, len(binary_json), max_depth)


def has_opaque_json_value(binary_json: bytes, max_depth: int) -> bool:
    """Return whether JSON text would lose the type of a decimal, temporal or other opaque value in it.

    Raises:
        MalformedError: see `decode_binary_json`.
    """
    decoder = _JsonDecoder(binary_json, max_depth)
    if binary_json:
        decoder.read_value(binary_json[0], 1, len(binary_json), max_depth)
    return decoder.has_opaque


class JsonDiff(NamedTuple):
    """One change of a partial update.

    `operation`: REPLACE, INSERT or REMOVE. `path`: JSON path. `value`: binary JSON; None for REMOVE.
    """

    operation: str
    path: bytes
    value: bytes | None


def iter_json_diffs(json_diff_bytes: bytes) -> Iterator[JsonDiff]:
    """Yield the changes of a partial update, in the order in which they are applied.

    Raises:
        MalformedError: a change does not fit.
    """
    reader = BoundedReader(json_diff_bytes, "JSON diff")
    while reader.bytes_left:
        code = reader.read_uint(1, "an operation")
        if code >= len(_OPERATIONS):
            raise MalformedError(f"JSON diff: operation {code} at byte {reader.offset - 1} is unknown")
        path, operation = reader.read_length_and_bytes("a path"), _OPERATIONS[code]
        yield JsonDiff(operation, path, None if operation == "REMOVE" else reader.read_length_and_bytes("a value"))


def decode_json_diffs(json_diff_bytes: bytes, max_depth: int) -> list[dict[str, Any]]:
    """Decode a partial update to one {"op", "path", "value"} per change; REMOVE has no value.

    Raises:
        MalformedError: see `decode_binary_json`; or a change does not fit.
    """
    changes = []
    for operation, path, value in iter_json_diffs(json_diff_bytes):
        change: dict[str, Any] = {"op": operation, "path": path.decode("utf-8", "backslashreplace")}
        if value is not None:
            change["value"] = decode_binary_json(value, max_depth)
        changes.append(change)
    return changes


class _JsonDecoder:
    """Decoder of one value. All offsets count from the start of `data`.

    `max_depth`: allowed nesting. `bytes_left`: number of bytes that may still be read. `has_opaque`: a value was
    opaque.
    """

    __slots__ = ("bytes_left", "data", "has_opaque", "max_depth")

    def __init__(self, data: bytes, max_depth: int) -> None:
        self.data = data
        self.max_depth = max_depth
        self.bytes_left = len(data)
        self.has_opaque = False

    def consume_bytes(self, start: int, size: int, end: int, label: str) -> int:
        """Deduct a part from the bytes that may be read; return its end, which must not be after `end`."""
        if start + size > end:
            raise MalformedError(f"JSON: {label} of {size:,} bytes at byte {start:,} goes beyond byte {end:,}")
        self.bytes_left -= size
        if self.bytes_left < 0:
            raise MalformedError(f"JSON: parts overlap (at byte {start:,})")
        return start + size

    def read_uint(self, offset: int, width: int, end: int, label: str) -> int:
        return int.from_bytes(self.data[offset : self.consume_bytes(offset, width, end, label)], "little")

    def read_value(self, json_type: int, offset: int, end: int, depth: int) -> Any:
        if json_type <= _LARGE_ARRAY:
            return self.read_container(json_type, offset, end, depth)
        if json_type in _NUMBERS:
            layout = _NUMBERS[json_type]
            self.consume_bytes(offset, layout.size, end, "a number")
            return layout.unpack_from(self.data, offset)[0]
        if json_type == _LITERAL:
            return self.read_literal(self.read_uint(offset, 1, end, "a literal"), offset)
        if json_type == _STRING:
            return decode_text(self.read_length_and_bytes(offset, end, "a string"))
        if json_type == _OPAQUE:
            self.has_opaque = True
            code = self.read_uint(offset, 1, end, "an opaque type")
            return _decode_opaque_json_value(code, self.read_length_and_bytes(offset + 1, end, "an opaque value"))
        raise MalformedError(f"JSON: value type 0x{json_type:02x} is unknown (before byte {offset:,})")

    def read_literal(self, literal_code: int, offset: int) -> bool | None:
        if literal_code not in _LITERALS:
            raise MalformedError(f"JSON: literal {literal_code} at byte {offset:,} is unknown")
        return _LITERALS[literal_code]

    def read_length_and_bytes(self, offset: int, end: int, label: str) -> bytes:
        """Read a length in groups of 7 bits, lowest group first, and that many bytes."""
        length = shift = 0
        while True:
            byte = self.read_uint(offset, 1, end, f"the length of {label}")
            offset += 1
            length |= (byte & 0x7F) << shift
            if byte < 0x80:
                return self.data[offset : self.consume_bytes(offset, length, end, label)]
            shift += 7
            if shift > 28:
                text = f"JSON: the length of {label} before byte {offset:,} has no end"
                raise MalformedError(text, finding_id="varint-overlong")

    def read_container(self, json_type: int, offset: int, end: int, depth: int) -> Any:
        if depth <= 0:
            raise MalformedError(f"JSON: nested deeper than {self.max_depth} levels", finding_id="nesting-too-deep")
        width = 4 if json_type in (_LARGE_OBJECT, _LARGE_ARRAY) else 2
        is_object = json_type <= _LARGE_OBJECT
        count = self.read_uint(offset, width, end, "the number of elements")
        size = self.read_uint(offset + width, width, end, "the size")
        if offset + size > end:
            raise MalformedError(f"JSON: a container of {size:,} bytes at byte {offset:,} goes beyond byte {end:,}")
        end = offset + size
        keys_at = offset + 2 * width
        values_at = keys_at + count * (width + 2) if is_object else keys_at
        if values_at + count * (width + 1) > end:
            text = f"JSON: {count:,} elements in a container of {size:,} bytes at byte {offset:,}"
            raise MalformedError(text, finding_id="count-out-of-bounds")
        keys = (
            [self.read_object_key(keys_at + index * (width + 2), width, offset, end) for index in range(count)]
            if is_object
            else []
        )
        values = [
            self.read_value_entry(values_at + index * (width + 1), width, offset, end, depth) for index in range(count)
        ]
        return _make_json_object(keys, values) if is_object else values

    def read_object_key(self, entry_at: int, width: int, container_start: int, container_end: int) -> str | bytes:
        offset = self.read_uint(entry_at, width, container_end, "a key's offset")
        length = self.read_uint(entry_at + width, 2, container_end, "a key's length")
        key_at = container_start + offset
        return decode_text(self.data[key_at : self.consume_bytes(key_at, length, container_end, "a key")])

    def read_value_entry(self, entry_at: int, width: int, container_start: int, container_end: int, depth: int) -> Any:
        type_ = self.read_uint(entry_at, 1, container_end, "a value's type")
        entry_at += 1
        if type_ in (_INLINE_SMALL if width == 2 else _INLINE_LARGE):
            after = self.consume_bytes(entry_at, width, container_end, "an inlined value")
            if type_ == _LITERAL:
                return self.read_literal(self.data[entry_at], entry_at)
            signed = type_ in (_INT16, _INT32)
            size = 2 if type_ in (_INT16, _UINT16) else 4
            return int.from_bytes(self.data[entry_at : min(entry_at + size, after)], "little", signed=signed)
        offset = self.read_uint(entry_at, width, container_end, "a value's offset")
        if offset < 2 * width:
            raise MalformedError(
                f"JSON: the value's offset {offset} at byte {entry_at:,} points to the container's head"
            )
        return self.read_value(type_, container_start + offset, container_end, depth - 1)


def _make_json_object(keys: list[str | bytes], values: list[Any]) -> Any:
    """Return a dictionary, or {"$map": pairs} if keys repeat, are not text or begin with "$"."""
    named = dict(zip(keys, values, strict=True))
    is_plain = len(named) == len(keys) and all(type(key) is str and key[:1] != "$" for key in keys)
    return named if is_plain else {"$map": [list(pair) for pair in zip(keys, values, strict=True)]}


_format_json_datetime, _format_json_time = (
    partial(_format_json_temporal, one) for one in (format_packed_datetime, format_packed_time)
)
_TEMPORAL_FORMATS: Mapping[int, tuple[str, Callable[[int], str]]] = {
    **dict.fromkeys((ColumnType.TIMESTAMP, ColumnType.TIMESTAMP2), ("$timestamp", _format_json_datetime)),
    **dict.fromkeys((ColumnType.DATETIME, ColumnType.DATETIME2), ("$datetime", _format_json_datetime)),
    **dict.fromkeys((ColumnType.DATE, ColumnType.NEWDATE), ("$date", _format_json_date)),
    **dict.fromkeys((ColumnType.TIME, ColumnType.TIME2), ("$time", _format_json_time)),
}
"""Column type -> (member name in the JSON output, function that formats the value)."""


def _decode_opaque_json_value(column_type: int, raw: bytes) -> Any:
    """Decode a value of a column type inside binary JSON."""
    if column_type == ColumnType.NEWDECIMAL and len(raw) > 2:
        precision, scale = raw[0], raw[1]
        if not 0 < precision <= 65 or scale > precision:
            raise MalformedError(f"JSON: a decimal of precision {precision} and scale {scale}")
        return {"$decimal": make_decimal_formatter(precision, scale)(raw[2:])}
    if column_type in _TEMPORAL_FORMATS and len(raw) == 8:
        member, format_value = _TEMPORAL_FORMATS[column_type]
        return {member: format_value(int.from_bytes(raw, "little", signed=True))}
    return raw


# --- Decoders of values by column ---


class DecodeBudget:
    """Memory and nesting that the values of one event may still use.

    `inflate`: number of bytes to which compressed columns may still unpack; at first an eighth of the limit, because a
    value is copied several times on its way to the output. `max_depth`: allowed nesting of JSON.
    """

    __slots__ = ("inflate", "max_depth")

    def __init__(self, limits: Limits) -> None:
        self.inflate = limits.max_inflate // 8
        self.max_depth = limits.max_depth


ValueConverter = Callable[[bytes, DecodeBudget], Any]
"""Bytes of a value (without length) -> value. Raises `MalformedError` or `DecompressionError`."""

_FLOAT = struct.Struct("<f")
_SMALLEST_NORMAL = 2.0**-126
_DOUBLE = struct.Struct("<d")


def shortest_float(value: float) -> float:
    """Return the number with the fewest decimal digits that still is this 32-bit float.

    Six digits always survive in a normal float, so fewer digits are only tried for smaller numbers.
    """
    for digits in range(6 if abs(value) >= _SMALLEST_NORMAL else 1, 9):
        shorter = float(f"{value:.{digits}g}")
        try:
            if _FLOAT.unpack(_FLOAT.pack(shorter))[0] == value:
                return shorter
        except OverflowError:
            continue
    return float(f"{value:.9g}")


def _read_float(raw: bytes) -> float:
    return shortest_float(_FLOAT.unpack(raw)[0])


def _read_double(raw: bytes) -> float:
    value: float = _DOUBLE.unpack(raw)[0]
    return value


def _read_year(raw: bytes) -> int:
    return 1900 + raw[0] if raw[0] else 0


def _read_nothing(_raw: bytes) -> None:
    return None


_read_unsigned = partial(int.from_bytes, byteorder="little")


def _read_geometry(raw: bytes) -> Any:
    """Decode a geometry to {"srid", "wkb"}; the empty value of a column that was never set stays bytes."""
    return {"srid": int.from_bytes(raw[:4], "little"), "wkb": raw[4:]} if len(raw) > 4 else raw


def _read_vector(raw: bytes) -> Any:
    """Decode a list of 32-bit floats; bytes that are not such a list stay unchanged."""
    if len(raw) % 4:
        return raw
    return [shortest_float(value) for (value,) in _FLOAT.iter_unpack(raw)]


def _read_padded(size: int, read: Callable[[bytes], str], raw: bytes) -> str | bytes:
    """Decode a value whose trailing zero bytes are not stored."""
    return read(raw.ljust(size, b"\0")) if len(raw) <= size else raw


def _read_uuid(raw: bytes) -> str:
    return str(uuid.UUID(bytes=raw))


def _read_inet4(raw: bytes) -> str:
    from ipaddress import IPv4Address  # a large module that few tables need

    return str(IPv4Address(raw))


def _read_inet6(raw: bytes) -> str:
    """Format an IPv6 address, with the last four bytes as an IPv4 address if it embeds one."""
    head, tail = raw[:12], _read_inet4(raw[12:])
    if head == bytes(10) + b"\xff\xff":
        return f"::ffff:{tail}"
    if head == bytes(12) and raw[12:14] != b"\0\0":
        return f"::{tail}"
    from ipaddress import IPv6Address

    return str(IPv6Address(raw))


def _read_enum(values: tuple[str, ...], raw: bytes) -> str | int:
    """Return the text of an ENUM; its number if it has no text; "" for 0, the value of a rejected insert."""
    ordinal = int.from_bytes(raw, "little")
    if not ordinal:
        return ""
    return values[ordinal - 1] if ordinal <= len(values) else ordinal


def _read_set(values: tuple[str, ...], raw: bytes) -> list[str] | int:
    """Return the texts of a SET; its mask if a bit has no text."""
    mask = int.from_bytes(raw, "little")
    if mask >> len(values):
        return mask
    return [text for bit, text in enumerate(values) if mask >> bit & 1]


def _read_json(raw: bytes, budget: DecodeBudget) -> Any:
    """Decode JSON; JSON null becomes `JSON_NULL`, to distinguish it from SQL's NULL."""
    value = decode_binary_json(raw, budget.max_depth)
    return JSON_NULL if value is None else value


def _uncompress_column_value(decode: Callable[[bytes], str | bytes], raw: bytes, budget: DecodeBudget) -> str | bytes:
    unpacked = unpack_compressed_column_value(raw, budget.inflate)
    budget.inflate -= len(unpacked)
    return decode(unpacked)


_READERS: Mapping[int, Callable[[bytes], Any]] = MappingProxyType(
    {
        ValueKind.NOTHING: _read_nothing,
        ValueKind.SIGNED: partial(int.from_bytes, byteorder="little", signed=True),
        ValueKind.UNSIGNED: _read_unsigned,
        ValueKind.FLOAT: _read_float,
        ValueKind.DOUBLE: _read_double,
        ValueKind.BIT: partial(int.from_bytes, byteorder="big"),
        ValueKind.YEAR: _read_year,
        ValueKind.DATE: format_packed_date,
        ValueKind.TIME: format_old_time,
        ValueKind.DATETIME: format_old_datetime,
        ValueKind.TIMESTAMP: format_old_timestamp,
        ValueKind.BYTES: keep_bytes,
        ValueKind.GEOMETRY: _read_geometry,
        ValueKind.VECTOR: _read_vector,
        ValueKind.UUID: partial(_read_padded, 16, _read_uuid),
        ValueKind.INET4: partial(_read_padded, 4, _read_inet4),
        ValueKind.INET6: partial(_read_padded, 16, _read_inet6),
    }
)
_PARAMETER_READERS: Mapping[int, Callable[[int], Callable[[bytes], str]]] = MappingProxyType(
    {
        ValueKind.DECIMAL: lambda parameter: make_decimal_formatter(parameter >> 8, parameter & 0xFF),
        ValueKind.TIME: make_old_mariadb_time_formatter,
        ValueKind.DATETIME: make_old_mariadb_datetime_formatter,
        ValueKind.TIMESTAMP: make_old_mariadb_timestamp_formatter,
        ValueKind.TIME2: make_time2_formatter,
        ValueKind.DATETIME2: make_datetime2_formatter,
        ValueKind.TIMESTAMP2: make_timestamp2_formatter,
    }
)
"""Kind -> function that creates the reader for a parameter; a kind that is in `_READERS`, too, may have none."""


def get_value_decoder(column: TableMapColumn, encoding: ColumnEncoding) -> Callable[[bytes], Any] | None:
    """Return the function that decodes a value from its bytes; None if it needs a budget (JSON, compressed)."""
    if encoding.kind in _PARAMETER_READERS and (encoding.parameter or encoding.kind not in _READERS):
        return _PARAMETER_READERS[encoding.kind](encoding.parameter)
    if encoding.kind in _READERS:
        return _READERS[encoding.kind]
    if encoding.kind in (ValueKind.ENUM, ValueKind.SET):
        if column.values is None:
            return _read_unsigned
        return partial(_read_enum if encoding.kind == ValueKind.ENUM else _read_set, column.values)
    if encoding.kind in (ValueKind.TEXT, ValueKind.UTF8, ValueKind.GUESS):
        return get_charset_decoder(column.charset)
    return None


def get_budgeted_value_decoder(column: TableMapColumn, encoding: ColumnEncoding) -> ValueConverter:
    """Return the function that decodes the values of a column from their bytes and a budget."""
    read = get_value_decoder(column, encoding)
    if read is not None:
        return _ignore_budget(read)
    if encoding.kind == ValueKind.JSON:
        return _read_json
    if encoding.kind == ValueKind.COMPRESSED:
        return partial(_uncompress_column_value, get_charset_decoder(column.charset))
    raise MalformedError(f"columns of kind {encoding.kind} cannot be read")


def _ignore_budget(read: Callable[[bytes], Any]) -> ValueConverter:
    def convert(raw: bytes, _budget: DecodeBudget) -> Any:
        return read(raw)

    return convert
