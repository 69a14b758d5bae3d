"""A construct type of any MessagePack value: parsing, building and parts of values in tests."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from construct import Construct

from binlogtool.format_api.schema_fields import MalformedError, TracePart
from binlogtool.formats.tarantool.msgpack.decode_values import trace_value
from binlogtool.formats.tarantool.msgpack.parse import (
    MpKind,
    MpNode,
    decode_value,
    encode_value,
    get_buffer_and_position,
    get_max_nesting_depth,
    read_token,
)
from binlogtool.limits import Limits


class MpValue(Construct):  # type: ignore[misc]
    """Construct type of any value, as an `MpNode` tree."""

    def _parse(self, stream: Any, context: Any, path: str) -> MpNode:
        data, start, end, base = get_buffer_and_position(stream)
        try:
            value = decode_value(data, start, end)
        except MalformedError as error:
            raise MalformedError(error.args[0], path, error.finding_id) from None
        stream.seek(value.end + base)
        return value

    def _build(self, obj: MpNode, stream: Any, context: Any, path: str) -> MpNode:
        stream.write(encode_value(obj))
        return obj

    def trace_rows(self, data: bytes, start: int, end: int, limits: Limits) -> Iterator[TracePart]:
        """Yield nested values with their indexes and keys; a plain value has no parts."""
        if read_token(data, start, end).kind >= MpKind.EXT:
            yield from map(TracePart._make, trace_value(data, start, end, "", 0, get_max_nesting_depth(limits)))
