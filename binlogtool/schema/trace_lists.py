"""Arrays that add rows while they parse; see `trace_nodes`."""

from __future__ import annotations

from typing import Any

from construct import (
    Array,
    Construct,
    ExplicitError,
    GreedyRange,
    ListContainer,
    RangeError,
    RepeatUntil,
    StopFieldError,
    evaluate,
)

from binlogtool.formats.fields import MalformedError
from binlogtool.schema.trace_state import Trace

MAX_EMPTY_ELEMENTS = 1024
"""Elements without a byte that an array may have."""


def _parse_element(subcon: Construct, index: int, stream: Any, context: Any, path: Any) -> Any:
    context._build_index = index
    if path.__class__ is Trace:
        return path.parse_element(index, subcon, stream, context)
    return subcon._parsereport(stream, context, path)


class TracedArray(Array):  # type: ignore[misc]
    """A counted array; the number of successive elements without bytes is limited."""

    def _parse(self, stream: Any, context: Any, path: Any) -> Any:
        count = evaluate(self.count, context)
        if not count >= 0:
            raise RangeError(f"invalid count {count}")
        values, empty_elements = ListContainer(), 0
        for index in range(count):
            element_start = stream.tell()
            value = _parse_element(self.subcon, index, stream, context, path)
            if not self.discard:
                values.append(value)
            empty_elements = empty_elements + 1 if stream.tell() == element_start else 0
            if empty_elements > MAX_EMPTY_ELEMENTS:
                raise MalformedError(f"{count:,} elements without bytes", None, "count-out-of-bounds")
        return values


class TracedRepeatUntil(RepeatUntil):  # type: ignore[misc]
    """An array that ends with a marked element; each element must take bytes."""

    def _parse(self, stream: Any, context: Any, path: Any) -> Any:
        values, index = ListContainer(), 0
        while True:
            element_start = stream.tell()
            value = _parse_element(self.subcon, index, stream, context, path)
            values.append(value)
            if self.predicate(value, values, context) if callable(self.predicate) else self.predicate:
                return values
            if stream.tell() == element_start:
                raise MalformedError("an element takes no bytes", None, "count-out-of-bounds")
            index += 1


class TracedGreedyRange(GreedyRange):  # type: ignore[misc]
    """As many elements as parse; each must take bytes."""

    def _parse(self, stream: Any, context: Any, path: Any) -> Any:
        values, index, row_count = ListContainer(), 0, 0
        is_traced = path.__class__ is Trace
        if (
            is_traced and path.recorder is not None and not path.recorder.inside
        ):  # it reads to the end, wherever that is
            path.recorder.spoiled = True
        while _has_bytes_left(stream):
            element_start = stream.tell()
            if is_traced:
                row_count = len(path.rows)
            try:
                value = _parse_element(self.subcon, index, stream, context, path)
            except (StopFieldError, ExplicitError) as stop:
                if isinstance(stop, ExplicitError):
                    raise
                break
            except Exception as error:
                stream.seek(element_start)
                if is_traced:
                    path.abandon_element(error, row_count, element_start)
                break
            if stream.tell() == element_start:
                break
            values.append(value)
            index += 1
        return values


def _has_bytes_left(stream: Any) -> bool:
    position = stream.tell()
    more = bool(stream.read(1))
    stream.seek(position)
    return more
