"""The content of a record as people read it, in one shape for every format: row changes, statements, a few members.

A row change is a mapping with some of these members: `before` and `after` (row images: a mapping of columns, or a
list), `key` and `operations` (of a change that the log has without images).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

RowChange = Mapping[str, Any]

_NOTHING: Mapping[str, Any] = {}


class RowChanges(NamedTuple):
    """Row changes of one table.

    Args:
        table: its name, where a record may be about several; "" = that of the record.
        key: columns of the primary key, in the key's order; () = not known.
        numbers: columns whose values are numbers, although they are texts here (DECIMAL).
    """

    rows: Sequence[RowChange]
    table: str = ""
    key: tuple[str, ...] = ()
    numbers: frozenset[str] = frozenset()


class RecordText(NamedTuple):
    """The content of one record.

    Args:
        members: members of the body that people read.
        note: a word or two after the record's name.
        statements: SQL texts.
        is_noise: the record says nothing about data; it is left out unless everything is requested.
    """

    members: Mapping[str, Any] = _NOTHING
    note: str = ""
    changes: Sequence[RowChanges] = ()
    statements: Sequence[Any] = ()
    is_noise: bool = False


RecordDescriber = Callable[[str, Mapping[str, Any], bool], RecordText]
"""Describe a record: its type, its body, and if all members are requested. Records are described in log order."""


def select_members(body: Mapping[str, Any], hidden: frozenset[str]) -> dict[str, Any]:
    """Return the members of a body that are neither hidden nor empty."""
    return {name: value for name, value in body.items() if name not in hidden and not _is_empty(value)}


def _is_empty(value: Any) -> bool:
    return value is None or (isinstance(value, str | bytes | list | tuple | Mapping) and not value)
