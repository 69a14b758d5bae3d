"""Filter pushdown: conditions of a query exclude files, and records before they are decoded.

They only narrow what is read; Spark applies every condition again, so only the time depends on them.
"""

from __future__ import annotations

import glob
from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

from msgspec.structs import replace
from pyspark.sql.datasource import (
    EqualTo,
    Filter,
    GreaterThan,
    GreaterThanOrEqual,
    In,
    LessThan,
    LessThanOrEqual,
)

from binlogtool.log.select import Selection
from binlogtool.pipeline import rows
from binlogtool.pipeline.tasks import can_split

if TYPE_CHECKING:
    from binlogtool.pipeline.datasource import Request

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MICROSECOND = timedelta(microseconds=1)
_LOWER = (EqualTo, GreaterThan, GreaterThanOrEqual)
_UPPER = (EqualTo, LessThan, LessThanOrEqual)


def narrowed(request: Request, filters: Iterable[Filter]) -> Request:
    """Return the request without what the conditions exclude, as far as that is known before reading."""
    if not can_split(request.selection):  # counts must apply before Spark's conditions
        return request
    for one in filters:
        column: Sequence[str] = getattr(one, "attribute", ())
        narrow = _NARROW.get(column[0]) if len(column) == 1 else None
        request = request if narrow is None else narrow(request, one)
    return request


def _values(one: Filter) -> tuple[str, ...] | None:
    """Return the texts that a condition allows; None if it does not list texts."""
    given: Any = one.value if isinstance(one, In) else (one.value,) if isinstance(one, EqualTo) else ()
    return tuple(given) if given and all(isinstance(value, str) for value in given) else None


def _file(request: Request, one: Filter) -> Request:
    names = _values(one)
    if names is None:
        return request
    kept = tuple(m for m in request.members if rows.file_name(m.name) in names)
    return replace(request, members=kept, cuts=())


def _type(request: Request, one: Filter) -> Request:
    names = _values(one)
    if names is None or request.selection.types:
        return request
    return _selecting(request, types=names)


def _object(request: Request, one: Filter) -> Request:
    names = _values(one)
    if names is None or request.selection.objects:
        return request
    return _selecting(request, objects=tuple(glob.escape(name) for name in names))


def _time(request: Request, one: Filter) -> Request:
    value = getattr(one, "value", None)
    if not isinstance(value, datetime) or value.tzinfo is None:
        return request
    at, old = (value - _EPOCH) // _MICROSECOND, request.selection
    if isinstance(one, _LOWER):
        request = _selecting(request, start_time=at if old.start_time is None else max(at, old.start_time))
    if isinstance(one, _UPPER):
        request = _selecting(request, stop_time=at + 1 if old.stop_time is None else min(at + 1, old.stop_time))
    return request


def _seq(request: Request, one: Filter) -> Request:
    value, old = getattr(one, "value", None), request.selection
    if type(value) is not int or value < 0:
        return request
    if isinstance(one, _LOWER) and old.start is None:
        request = _selecting(request, start=f"seq:{value}")
    if isinstance(one, _UPPER) and old.stop is None:
        request = _selecting(request, stop=f"seq:{value + 1}")
    return request


def _selecting(request: Request, **changes: Any) -> Request:
    selection: Selection = replace(request.selection, **changes)
    return replace(request, selection=selection)


_NARROW: Mapping[str, Callable[[Request, Filter], Request]] = {
    "file": _file,
    "type": _type,
    "object": _object,
    "time": _time,
    "seq": _seq,
}
