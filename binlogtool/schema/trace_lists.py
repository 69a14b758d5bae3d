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

STILL = 1024
"""Elements without a byte that an array may have."""


def _element(subcon: Construct, index: int, stream: Any, context: Any, path: Any) -> Any:
    context._index = index
    if path.__class__ is Trace:
        return path.element(index, subcon, stream, context)
    return subcon._parsereport(stream, context, path)


class Elements(Array):  # type: ignore[misc]
    """A counted array; the number of successive elements without bytes is limited."""

    def _parse(self, stream: Any, context: Any, path: Any) -> Any:
        count = evaluate(self.count, context)
        if not count >= 0:
            raise RangeError(f"invalid count {count}")
        values, still = ListContainer(), 0
        for index in range(count):
            before = stream.tell()
            value = _element(self.subcon, index, stream, context, path)
            if not self.discard:
                values.append(value)
            still = still + 1 if stream.tell() == before else 0
            if still > STILL:
                raise MalformedError(f"{count:,} elements without bytes", None, "count-out-of-bounds")
        return values


class Until(RepeatUntil):  # type: ignore[misc]
    """An array that ends with a marked element; each element must take bytes."""

    def _parse(self, stream: Any, context: Any, path: Any) -> Any:
        values, index = ListContainer(), 0
        while True:
            before = stream.tell()
            value = _element(self.subcon, index, stream, context, path)
            values.append(value)
            if self.predicate(value, values, context) if callable(self.predicate) else self.predicate:
                return values
            if stream.tell() == before:
                raise MalformedError("an element takes no bytes", None, "count-out-of-bounds")
            index += 1


class Open(GreedyRange):  # type: ignore[misc]
    """As many elements as parse; each must take bytes."""

    def _parse(self, stream: Any, context: Any, path: Any) -> Any:
        values, index, mark = ListContainer(), 0, 0
        traced = path.__class__ is Trace
        if traced and path.recorder is not None and not path.recorder.inside:  # it reads to the end, wherever that is
            path.recorder.spoiled = True
        while _left(stream):
            before = stream.tell()
            if traced:
                mark = len(path.rows)
            try:
                value = _element(self.subcon, index, stream, context, path)
            except (StopFieldError, ExplicitError) as stop:
                if isinstance(stop, ExplicitError):
                    raise
                break
            except Exception as error:
                stream.seek(before)
                if traced:
                    path.give_up(error, mark, before)
                break
            if stream.tell() == before:
                break
            values.append(value)
            index += 1
        return values


def _left(stream: Any) -> bool:
    here = stream.tell()
    more = bool(stream.read(1))
    stream.seek(here)
    return more
