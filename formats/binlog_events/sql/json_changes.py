"""Changes inside of a JSON value (PARTIAL_UPDATE_ROWS) as an expression of MySQL's JSON functions."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import groupby

from binlogtool.formats.binlog_events.sql.literals import format_json, quote_string
from binlogtool.formats.binlog_events.values.binary_json import JsonChange, iter_json_changes
from binlogtool.formats.binlog_events.values.decoding import DecodeBudget

_MAX_NESTED_CALLS = 50
"""Functions inside each other; a server's stack takes some hundreds."""


def format_changed_json(column: bytes, changes: bytes, budget: DecodeBudget) -> bytes | None:
    """Return the value of a column with its changes; None if no expression has exactly this value.

    Args:
        column: its quoted name.

    Raises:
        MalformedError: the changes do not fit.
    """
    calls = [(function, list(ones)) for function, ones in groupby(iter_json_changes(changes), _json_function)]
    if len(calls) > _MAX_NESTED_CALLS:
        return None
    expression = column
    for function, grouped_changes in calls:
        arguments = [expression]
        for change in grouped_changes:
            parts = list(_iter_arguments(change, budget))
            if None in parts:
                return None
            arguments += [part for part in parts if part is not None]
        expression = function + b"(" + b", ".join(arguments) + b")"
    return expression


def _json_function(change: JsonChange) -> bytes:
    """Return the JSON function for a change; an INSERT whose path ends in an index moves the elements after it."""
    is_element = change.operation == "INSERT" and change.path.endswith(b"]")
    return b"JSON_ARRAY_INSERT" if is_element else f"JSON_{change.operation}".encode()


def _iter_arguments(change: JsonChange, budget: DecodeBudget) -> Iterator[bytes | None]:
    """Yield the arguments for a change; None for one that has no exact literal."""
    try:
        yield quote_string(change.path.decode())
    except UnicodeDecodeError:
        yield None
    if change.value is not None:
        text = format_json(change.value, budget)
        yield None if text is None else b"CAST(" + text + b" AS JSON)"
