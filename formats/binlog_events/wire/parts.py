"""Field types of single events: post-header lengths by event type, and the fields before a payload."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from construct import Construct, stream_read, stream_write

from binlogtool.formats.binlog_events.codes import TYPES
from binlogtool.formats.binlog_events.wire.description import knows_checksums
from binlogtool.formats.binlog_events.wire.fields import read_lenenc
from binlogtool.formats.bodies import bytes_left, cut
from binlogtool.formats.fields import MalformedError, Part
from binlogtool.limits import Limits


class PostHeaderLengths(Construct):  # type: ignore[misc]
    """Construct of post_header_len: a byte for each event type from 1 on, up to checksum_alg or the end."""

    def _parse(self, stream: Any, context: Any, path: str) -> bytes:
        name = context.server_version
        version = name if isinstance(name, str) else name.decode("utf-8", "backslashreplace")
        size = bytes_left(stream) - knows_checksums(version)
        if size < 0:
            raise MalformedError("no room for checksum_alg", path, "length-out-of-bounds")
        data: bytes = stream_read(stream, size, path)
        return data

    def _build(self, obj: bytes, stream: Any, context: Any, path: str) -> bytes:
        stream_write(stream, obj, len(obj), path)
        return obj

    def trace_rows(self, data: bytes, start: int, end: int, limits: Limits) -> Iterator[Part]:
        """Trace one row for each type."""
        for at in range(start, end):
            yield Part(f"[{at - start}]", 1, at, at + 1, data[at], TYPES.get(at - start + 1, ""))


PAYLOAD_FIELDS = {1: "payload_size", 2: "compression", 3: "uncompressed_size"}
COMPRESSIONS = {0: "ZSTD", 255: "NONE"}


class PayloadHead(dict[str, int]):
    """The fields before a payload by name.

    Attributes:
        raw_bytes: their stored bytes.
    """

    bytes_: bytes


class PayloadFields(Construct):  # type: ignore[misc]
    """Construct of the fields of TRANSACTION_PAYLOAD before the payload: type, length, value each; type 0 ends them."""

    def _parse(self, stream: Any, context: Any, path: str) -> PayloadHead:
        here, data = stream.tell(), stream.read()
        head, at = PayloadHead(), 0
        for part in payload_parts(data, 0, len(data)):
            name = part.path[1:]
            if name.endswith(".value"):
                head[name[:-6]] = part.value
            at = part.end or at
        head.bytes_ = data[:at]
        stream.seek(here + at)
        return head

    def _build(self, obj: PayloadHead, stream: Any, context: Any, path: str) -> PayloadHead:
        stream_write(stream, obj.bytes_, len(obj.bytes_), path)
        return obj

    def trace_rows(self, data: bytes, start: int, end: int, limits: Limits) -> Iterator[Part]:
        """Trace each field: type, length and value."""
        return payload_parts(data, start, end)


def payload_parts(data: bytes, at: int, end: int) -> Iterator[Part]:
    """Trace the fields before a payload; an unknown field is named `field_TYPE`.

    Raises:
        MalformedError: a length or value is more than what is left.
    """
    while True:
        kind, stop = read_lenenc(data, at, end)
        if kind == 0:
            yield Part(".end_mark", 1, at, stop, kind)
            return
        name = PAYLOAD_FIELDS.get(kind, f"field_{kind}")
        yield Part(f".{name}", 1, at, None)
        yield Part(f".{name}.type", 2, at, stop, kind)
        size, low = read_lenenc(data, stop, end)
        high = low + size
        if high > end:
            raise cut(f"field {kind}", size, end - low)
        value: Any = data[low:high]
        if kind in PAYLOAD_FIELDS:
            value, reached = read_lenenc(data, low, high)
            if reached != high:
                raise MalformedError(f"field {kind} has {size} bytes, its number {reached - low}")
        yield Part(f".{name}.length", 2, stop, low, size)
        if size:
            yield Part(f".{name}.value", 2, low, high, value, COMPRESSIONS.get(value, "") if kind == 2 else "")
        at = high
