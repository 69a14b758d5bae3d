"""Field types of single events: post-header lengths by event type, and the fields before a payload."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from construct import Construct, stream_read, stream_write

from binlogtool.formats.binlog_events.codes import EVENT_TYPE_NAMES
from binlogtool.formats.binlog_events.wire.description import supports_checksums
from binlogtool.formats.binlog_events.wire.fields import read_lenenc
from binlogtool.formats.bodies import count_bytes_left, make_truncation_error
from binlogtool.formats.fields import MalformedError, TracePart
from binlogtool.limits import Limits


class PostHeaderLengths(Construct):  # type: ignore[misc]
    """Construct of post_header_len: a byte for each event type from 1 on, up to checksum_alg or the end."""

    def _parse(self, stream: Any, context: Any, path: str) -> bytes:
        name = context.server_version
        version = name if isinstance(name, str) else name.decode("utf-8", "backslashreplace")
        size = count_bytes_left(stream) - supports_checksums(version)
        if size < 0:
            raise MalformedError("no room for checksum_alg", path, "length-out-of-bounds")
        data: bytes = stream_read(stream, size, path)
        return data

    def _build(self, obj: bytes, stream: Any, context: Any, path: str) -> bytes:
        stream_write(stream, obj, len(obj), path)
        return obj

    def trace_rows(self, data: bytes, start: int, end: int, limits: Limits) -> Iterator[TracePart]:
        """Trace one row for each type."""
        for offset in range(start, end):
            yield TracePart(
                f"[{offset - start}]", 1, offset, offset + 1, data[offset], EVENT_TYPE_NAMES.get(offset - start + 1, "")
            )


PAYLOAD_FIELDS = {1: "payload_size", 2: "compression", 3: "uncompressed_size"}
COMPRESSIONS = {0: "ZSTD", 255: "NONE"}


class PayloadFieldValues(dict[str, int]):
    """The fields before a payload by name.

    Attributes:
        raw_bytes: their stored bytes.
    """

    raw_bytes: bytes


class PayloadFields(Construct):  # type: ignore[misc]
    """Construct of the fields of TRANSACTION_PAYLOAD before the payload: type, length, value each; type 0 ends them."""

    def _parse(self, stream: Any, context: Any, path: str) -> PayloadFieldValues:
        start, data = stream.tell(), stream.read()
        values, size = PayloadFieldValues(), 0
        for part in trace_payload_fields(data, 0, len(data)):
            name = part.path[1:]
            if name.endswith(".value"):
                values[name[:-6]] = part.value
            size = part.end or size
        values.raw_bytes = data[:size]
        stream.seek(start + size)
        return values

    def _build(self, obj: PayloadFieldValues, stream: Any, context: Any, path: str) -> PayloadFieldValues:
        stream_write(stream, obj.raw_bytes, len(obj.raw_bytes), path)
        return obj

    def trace_rows(self, data: bytes, start: int, end: int, limits: Limits) -> Iterator[TracePart]:
        """Trace each field: type, length and value."""
        return trace_payload_fields(data, start, end)


def trace_payload_fields(data: bytes, offset: int, end: int) -> Iterator[TracePart]:
    """Trace the fields before a payload; an unknown field is named `field_TYPE`.

    Raises:
        MalformedError: a length or value is more than what is left.
    """
    while True:
        kind, type_end = read_lenenc(data, offset, end)
        if kind == 0:
            yield TracePart(".end_mark", 1, offset, type_end, kind)
            return
        name = PAYLOAD_FIELDS.get(kind, f"field_{kind}")
        yield TracePart(f".{name}", 1, offset, None)
        yield TracePart(f".{name}.type", 2, offset, type_end, kind)
        size, value_start = read_lenenc(data, type_end, end)
        value_end = value_start + size
        if value_end > end:
            raise make_truncation_error(f"field {kind}", size, end - value_start)
        value: Any = data[value_start:value_end]
        if kind in PAYLOAD_FIELDS:
            value, number_end = read_lenenc(data, value_start, value_end)
            if number_end != value_end:
                raise MalformedError(f"field {kind} has {size} bytes, its number {number_end - value_start}")
        yield TracePart(f".{name}.length", 2, type_end, value_start, size)
        if size:
            yield TracePart(
                f".{name}.value", 2, value_start, value_end, value, COMPRESSIONS.get(value, "") if kind == 2 else ""
            )
        offset = value_end
