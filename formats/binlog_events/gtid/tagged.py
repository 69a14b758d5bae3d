"""GTID_TAGGED_LOG: a message of self-describing fields (mysql::serialization).

A number has as many further bytes as its first byte ends with 1-bits; its value is what is above these bits
and the 0-bit after them. A first byte of 0xff means eight further bytes that hold the whole value.
Source: docs/spec/mysql_binlog.md#event-bodies.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from construct import Construct, stream_read, stream_write

from binlogtool.formats.bodies import decode_text, format_uuid, make_truncation_error
from binlogtool.formats.fields import MalformedError, ScalarKernel, TracePart
from binlogtool.limits import Limits

FIELD_NAMES = (
    "flags", "uuid", "gno", "tag", "last_committed", "sequence_number", "immediate_commit_timestamp",
    "original_commit_timestamp", "transaction_length", "immediate_server_version", "original_server_version",
    "commit_group_ticket",
)  # fmt: skip
"""Names of the fields by their ids."""

UUID, GNO, TAG = 1, 2, 3
_LAST_FIELD = len(FIELD_NAMES) - 1
SIGNED_FIELDS = (2, 4, 5)
HEADER_FIELDS = ("format_version", "message_size", "last_non_ignorable_field")
MAX_TAG_SIZE = 32
"""Characters of the longest tag."""

_NUMBER_SIZES = tuple(9 if byte == 0xFF else (~byte & byte + 1).bit_length() for byte in range(256))
"""Bytes of a number by its first byte."""


def read_number(data: bytes, at: int, end: int) -> tuple[int, int]:
    """Read the unsigned number at `data[at]`; return it and its end.

    Raises:
        MalformedError: it is cut off by `end`.
    """
    if at >= end:
        raise make_truncation_error("a number", 1, 0)
    first = data[at]
    if not first & 1:
        return first >> 1, at + 1
    size = _NUMBER_SIZES[first]
    stop = at + size
    if stop > end:
        raise make_truncation_error("a number", size, end - at)
    if size == 9:
        return int.from_bytes(data[at + 1 : stop], "little"), stop
    return int.from_bytes(data[at:stop], "little") >> size, stop


def decode_zigzag(value: int) -> int:
    """Decode a zig-zag number, whose lowest bit is the sign."""
    return value >> 1 ^ -(value & 1)


def read_uuid(data: bytes, at: int, end: int) -> tuple[bytes, int]:
    """Read 16 numbers of at most 255 each, as bytes."""
    sid = bytearray()
    for _ in range(16):
        if at < end and not data[at] & 1:
            sid.append(data[at] >> 1)
            at += 1
            continue
        value, at = read_number(data, at, end)
        if value > 255:
            raise MalformedError(f"{value} is no byte of a UUID", finding_id="varint-overlong")
        sid.append(value)
    return bytes(sid), at


def read_tag_size(data: bytes, at: int, end: int) -> tuple[int, int]:
    """Read the length of a tag.

    Raises:
        MalformedError: it is cut off by `end`, or longer than a tag may be.
    """
    size, at = read_number(data, at, end)
    if size > MAX_TAG_SIZE:
        raise MalformedError(f"a tag of {size:,} characters", finding_id="length-out-of-bounds")
    return size, at


def read_tag(data: bytes, at: int, end: int) -> tuple[bytes, int]:
    """Read a tag: its length, then its characters."""
    size, at = read_tag_size(data, at, end)
    if at + size > end:
        raise make_truncation_error("a tag", size, end - at)
    return data[at : at + size], at + size


def read_message(data: bytes) -> list[Any]:
    """Read the values by field id, None for missing ones: numbers, `uuid` as 16 bytes, `tag` as bytes.

    Fields after an unknown one that may be ignored are left out.

    Raises:
        MalformedError: the bytes are not such a message.
    """
    try:
        return _read_fields(data, len(data))
    except IndexError:
        raise make_truncation_error("the message", len(data) + 1, len(data)) from None


def _read_fields(data: bytes, end: int) -> list[Any]:
    """Read numbers in place: this runs once for each transaction of a log."""
    _, at = read_number(data, 0, end)
    size, at = read_number(data, at, end)
    last, at = read_number(data, at, end)
    if size != end:
        raise _size_error(size, end)
    values: list[Any] = [None] * len(FIELD_NAMES)
    previous_id, sizes, from_bytes = -1, _NUMBER_SIZES, int.from_bytes
    while at < end:
        id_ = data[at] >> 1
        if data[at] & 1 or id_ > _LAST_FIELD:
            _check_ignorable(read_number(data, at, end)[0], last)
            break
        if id_ <= previous_id:
            raise _order_error(id_, previous_id)
        previous_id = id_
        at += 1
        first = data[at]
        if id_ == UUID:
            values[1], at = _read_uuid_cached(data, at, end)
        elif id_ == TAG:
            values[3], at = read_tag(data, at, end)
        elif first & 1:
            start, width = at, sizes[first]
            at += width
            values[id_] = from_bytes(data[start + width // 9 : at], "little") >> width % 9
        else:
            at += 1
            values[id_] = first >> 1
    if at > end:
        raise make_truncation_error("a number", at - end, 0)
    for id_ in SIGNED_FIELDS:
        if values[id_] is not None:
            values[id_] = values[id_] >> 1 ^ -(values[id_] & 1)
    return values


_uuid_cache: dict[bytes, tuple[bytes, bytes]] = {}
"""The first 16 bytes of a stored UUID -> all its bytes as stored, the UUID."""
_MAX_CACHED_UUIDS = 1024


def _read_uuid_cached(data: bytes, at: int, end: int) -> tuple[bytes, int]:
    """Read a UUID, looking first among those read before."""
    key = data[at : at + 16]
    cached = _uuid_cache.get(key)
    if cached is not None and data.startswith(cached[0], at):
        return cached[1], at + len(cached[0])
    sid, stop = read_uuid(data, at, end)
    if len(_uuid_cache) >= _MAX_CACHED_UUIDS:
        _uuid_cache.clear()
    _uuid_cache[key] = data[at:stop], sid
    return sid, stop


def read_value(data: bytes, at: int, end: int, id_: int) -> tuple[Any, int]:
    """Read the value of a field; return it and its end."""
    if id_ == UUID:
        return read_uuid(data, at, end)
    if id_ == TAG:
        return read_tag(data, at, end)
    value, at = read_number(data, at, end)
    return (decode_zigzag(value) if id_ in SIGNED_FIELDS else value), at


def _size_error(size: int, end: int) -> MalformedError:
    """Return the error for a wrong message size."""
    text_ = f"the message says {size:,} bytes, the event has {end:,}"
    return MalformedError(text_, finding_id="length-out-of-bounds")


def _order_error(id_: int, before: int) -> MalformedError:
    """Return the error for fields that are not in ascending order."""
    return MalformedError(f"field {id_} stands behind field {before}")


def _check_ignorable(id_: int, last: int) -> None:
    """Check that an unknown field may be ignored: fields up to `last_non_ignorable_field` must be known."""
    if id_ <= last:
        raise MalformedError(f"field {id_} is unknown and must not be ignored", finding_id="unsupported-version")


class TaggedMessage(Construct):  # type: ignore[misc]
    """Construct of the body of GTID_TAGGED_LOG; its value is the dictionary of its fields, `bytes_` keeps the
    message.
    """

    def _parse(self, stream: Any, context: Any, path: str) -> TaggedFields:
        data = stream.read()
        values = read_message(data)
        named = TaggedFields(
            {FIELD_NAMES[id_]: _display_value(id_, value) for id_, value in enumerate(values) if value is not None}
        )
        named.bytes_ = data
        return named

    def _build(self, obj: TaggedFields, stream: Any, context: Any, path: str) -> TaggedFields:
        stream_write(stream, obj.bytes_, len(obj.bytes_), path)
        return obj

    def trace_rows(self, data: bytes, start: int, end: int, limits: Limits) -> Iterator[TracePart]:
        """Yield the header fields, then each field with its id and value."""
        at, last = start, 0
        for name in HEADER_FIELDS:
            last, stop = read_number(data, at, end)
            yield TracePart(f".{name}", 1, at, stop, last)
            if name == "message_size" and last != end - start:
                raise _size_error(last, end - start)
            at = stop
        yield from _trace_fields(data, at, end, last)


class TaggedFields(dict[str, Any]):
    """Fields of a message by name, in order; `bytes_`: the message."""

    bytes_: bytes


def _display_value(id_: int, value: Any) -> Any:
    """Return a field value for display."""
    if id_ == UUID:
        return format_uuid(value)
    return decode_text(value) if id_ == TAG else value


def _trace_fields(data: bytes, at: int, end: int, last: int) -> Iterator[TracePart]:
    """Yield the trace of the fields."""
    before = -1
    while at < end:
        id_, stop = read_number(data, at, end)
        if id_ <= before:
            raise _order_error(id_, before)
        if id_ >= len(FIELD_NAMES):
            _check_ignorable(id_, last)
            yield TracePart(".ignorable", 1, at, end, data[at:end])
            return
        before, name = id_, FIELD_NAMES[id_]
        yield TracePart(f".{name}", 1, at, None)
        yield TracePart(f".{name}.id", 2, at, stop, id_)
        value, at = read_value(data, stop, end, id_)
        yield TracePart(f".{name}.value", 2, stop, at, _display_value(id_, value))


class TaggedNumber(Construct):  # type: ignore[misc]
    """Construct of one unsigned number of this encoding; it builds the shortest form."""

    scan = ScalarKernel(read_number)

    def _parse(self, stream: Any, context: Any, path: str) -> int:
        data = stream_read(stream, 1, path)
        data += stream_read(stream, _NUMBER_SIZES[data[0]] - 1, path)
        return self.scan.read(data, 0, len(data))[0]

    def _build(self, obj: int, stream: Any, context: Any, path: str) -> int:
        data = build_number(obj)
        stream_write(stream, data, len(data), path)
        return obj


class TaggedTagSize(TaggedNumber):
    """Construct of the length of a tag."""

    scan = ScalarKernel(read_tag_size)


def build_number(value: int) -> bytes:
    """Return the shortest form of an unsigned number."""
    size = max(1, (value.bit_length() + 6) // 7)
    if size > 8:
        return b"\xff" + value.to_bytes(8, "little")
    return (value << size | (1 << size - 1) - 1).to_bytes(size, "little")
