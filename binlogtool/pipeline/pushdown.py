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
    from binlogtool.pipeline.datasource import ReadRequest

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MICROSECOND = timedelta(microseconds=1)
_LOWER = (EqualTo, GreaterThan, GreaterThanOrEqual)
_UPPER = (EqualTo, LessThan, LessThanOrEqual)


def narrow_request(request: ReadRequest, filters: Iterable[Filter]) -> ReadRequest:
    """Return the request without what the conditions exclude, as far as that is known before reading."""
    if not can_split(request.selection):  # counts must apply before Spark's conditions
        return request
    for condition in filters:
        column: Sequence[str] = getattr(condition, "attribute", ())
        narrow = _NARROWERS.get(column[0]) if len(column) == 1 else None
        request = request if narrow is None else narrow(request, condition)
    return request


def _allowed_texts(condition: Filter) -> tuple[str, ...] | None:
    """Return the texts that a condition allows; None if it does not list texts."""
    values: Any = (
        condition.value if isinstance(condition, In) else (condition.value,) if isinstance(condition, EqualTo) else ()
    )
    return tuple(values) if values and all(isinstance(value, str) for value in values) else None


def _narrow_files(request: ReadRequest, condition: Filter) -> ReadRequest:
    names = _allowed_texts(condition)
    if names is None:
        return request
    members = tuple(m for m in request.members if rows.printable_path(m.name) in names)
    return replace(request, members=members, cuts=())


def _narrow_types(request: ReadRequest, condition: Filter) -> ReadRequest:
    names = _allowed_texts(condition)
    if names is None or request.selection.types:
        return request
    return _with_selection(request, types=names)


def _narrow_objects(request: ReadRequest, condition: Filter) -> ReadRequest:
    names = _allowed_texts(condition)
    if names is None or request.selection.objects:
        return request
    return _with_selection(request, objects=tuple(glob.escape(name) for name in names))


def _narrow_time(request: ReadRequest, condition: Filter) -> ReadRequest:
    value = getattr(condition, "value", None)
    if not isinstance(value, datetime) or value.tzinfo is None:
        return request
    microseconds, selection = (value - _EPOCH) // _MICROSECOND, request.selection
    if isinstance(condition, _LOWER):
        request = _with_selection(
            request,
            start_time=microseconds if selection.start_time is None else max(microseconds, selection.start_time),
        )
    if isinstance(condition, _UPPER):
        request = _with_selection(
            request,
            stop_time=microseconds + 1 if selection.stop_time is None else min(microseconds + 1, selection.stop_time),
        )
    return request


def _narrow_sequence(request: ReadRequest, condition: Filter) -> ReadRequest:
    value, selection = getattr(condition, "value", None), request.selection
    if type(value) is not int or value < 0:
        return request
    if isinstance(condition, _LOWER) and selection.start is None:
        request = _with_selection(request, start=f"seq:{value}")
    if isinstance(condition, _UPPER) and selection.stop is None:
        request = _with_selection(request, stop=f"seq:{value + 1}")
    return request


def _with_selection(request: ReadRequest, **changes: Any) -> ReadRequest:
    selection: Selection = replace(request.selection, **changes)
    return replace(request, selection=selection)


_NARROWERS: Mapping[str, Callable[[ReadRequest, Filter], ReadRequest]] = {
    "file": _narrow_files,
    "type": _narrow_types,
    "object": _narrow_objects,
    "time": _narrow_time,
    "seq": _narrow_sequence,
}
