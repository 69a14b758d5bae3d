"""Changes inside of a JSON value (PARTIAL_UPDATE_ROWS) as an expression of MySQL's JSON functions."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import groupby

from binlogtool.formats.binlog_events.sql.literals import json_text, quoted
from binlogtool.formats.binlog_events.values.binary_json import Change, changes_of
from binlogtool.formats.binlog_events.values.decoding import Budget

_MOST = 50
"""Functions inside each other; a server's stack takes some hundreds."""


def changed_json(column: bytes, changes: bytes, budget: Budget) -> bytes | None:
    """Return the value of a column with its changes; None if no expression has exactly this value.

    Args:
        column: its quoted name.

    Raises:
        MalformedError: the changes do not fit.
    """
    calls = [(function, list(ones)) for function, ones in groupby(changes_of(changes), _function)]
    if len(calls) > _MOST:
        return None
    made = column
    for function, ones in calls:
        arguments = [made]
        for one in ones:
            parts = list(_arguments(one, budget))
            if None in parts:
                return None
            arguments += [part for part in parts if part is not None]
        made = function + b"(" + b", ".join(arguments) + b")"
    return made


def _function(change: Change) -> bytes:
    """Return the JSON function for a change; an INSERT whose path ends in an index moves the elements after it."""
    is_element = change.operation == "INSERT" and change.path.endswith(b"]")
    return b"JSON_ARRAY_INSERT" if is_element else f"JSON_{change.operation}".encode()


def _arguments(change: Change, budget: Budget) -> Iterator[bytes | None]:
    """Yield the arguments for a change; None for one that has no exact literal."""
    try:
        yield quoted(change.path.decode())
    except UnicodeDecodeError:
        yield None
    if change.value is not None:
        text = json_text(change.value, budget)
        yield None if text is None else b"CAST(" + text + b" AS JSON)"
