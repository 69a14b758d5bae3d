"""Evaluation of `--where`: first by what is known without bodies, then by these.

A record with row changes is selected when there is a row for which the whole condition is true: `before` and `after`
are the images of that one row. What a record or row does not have is NULL. A body that cannot be decoded could be
anything: the record is selected, with its finding, unless the rest of the condition rules it out.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from decimal import Decimal
from itertools import product
from math import prod
from typing import Any

import msgspec

from binlogtool.errors import LimitError
from binlogtool.log.where_columns import beside_each_other, beside_number, beside_text
from binlogtool.log.where_grammar import INSIDE, MEMBERS, parsed
from binlogtool.log.where_terms import FALSE, TRUE, Every, Field, Literal, Moment, Not, Operand, Term, Test

_ROWS = ("rows", "before", "after")
MOST_PAIRS = 1 << 24

Columns = Mapping[Any, Sequence[Any]]
"""The members of some records by name, and columns of rows by path."""

_Column = Callable[[Columns, int], Sequence[int]]
_Row = Callable[[Mapping[str, Any]], int]


class Where(msgspec.Struct, frozen=True):
    """A compiled condition.

    Args:
        members: envelope members in it.
        columns: columns of rows in it.
        needs_body: it refers to the content of bodies.
        paths: the paths that it refers to there.
    """

    members: frozenset[str]
    columns: frozenset[str]
    needs_body: bool
    _before: _Column
    _of_object: _Column
    _wholly: _Row
    _at_once: _Column
    paths: frozenset[tuple[str | int, ...]]

    def candidates(self, columns: Columns, count: int) -> list[bool]:
        """Return for each record whether the condition could be true, without bodies. columns: those of `members`."""
        return [truth == TRUE for truth in self._before(columns, count)]

    def concerns(self, name: str) -> bool:
        """Return True if the condition could be true of a record with this object."""
        return self._of_object({"object": [name]}, 1)[0] == TRUE

    @property
    def is_simple(self) -> bool:
        """True if it refers only to members, columns of rows and members of bodies, not to what is inside these."""
        return all(len(path) == 2 and (path[0] != "body" or path[1] not in _ROWS) for path in self.paths)

    def of_columns(self, columns: Columns, count: int) -> list[bool]:
        """Return for each row whether the condition is true. columns: members and `paths`, single values."""
        return [truth == TRUE for truth in self._at_once(columns, count)]

    def holds(self, members: Mapping[str, Any], body: Any) -> bool:
        """Return True if the condition is true of this record."""
        return any(self._wholly({**members, **row}) == TRUE for row in _rows(body))

    def of_rows(self, members: Mapping[str, Any], body: Any) -> list[bool]:
        """Return for each row of this record whether the condition is true."""
        return [self._wholly({**members, **row}) == TRUE for row in _rows(body)]


def where(text: str) -> Where:
    """Compile the condition of an expression.

    Raises:
        UsageError: it is invalid; the message names the column.
    """
    term = parsed(text)
    names = frozenset(str(field.path[0]) for field in _fields(term))
    paths = frozenset(field.path for field in _fields(term) if len(field.path) > 1)
    return Where(
        members=names & frozenset(MEMBERS),
        columns=frozenset(str(path[1]) for path in paths if path[0] in ("before", "after")),
        needs_body=not names <= frozenset(MEMBERS),
        _before=_column(term, False, MEMBERS),
        _of_object=_column(term, False, ("object",)),
        _wholly=_row(term),
        _at_once=_column(term, False, (*MEMBERS, *INSIDE)),
        paths=paths,
    )


def timed(times: Sequence[int | None]) -> list[Moment | None]:
    """Convert the member `time` to timestamps."""
    return [None if time is None else Moment(time) for time in times]


def _rows(body: Any) -> Iterator[dict[str, Any]]:
    """Yield the values of `body`, `before` and `after` for each row."""
    rows = body.get("rows") if isinstance(body, Mapping) else None
    images = [row for row in rows if isinstance(row, Mapping)] if isinstance(rows, list) else []
    for row in images or [body if isinstance(body, Mapping) else {}]:
        yield {"body": body, "before": row.get("before"), "after": row.get("after")}


def _fields(term: Term) -> Iterator[Field]:
    if isinstance(term, Test):
        yield from (one for one in term.operands if isinstance(one, Field))
    elif isinstance(term, Not):
        yield from _fields(term.term)
    else:
        for one in term.terms:
            yield from _fields(one)


# -- without bodies: whole columns ------------------------------------------------------------------------------------


def _column(term: Term, negated: bool, given: Sequence[str]) -> _Column:
    """Compile the greatest truth that a term can have with these members; `not` is moved down to the tests."""
    if isinstance(term, Not):
        return _column(term.term, not negated, given)
    if isinstance(term, Test):
        known = all(field.path[0] in given for field in _fields(term))
        return _tested(term, negated) if known else _anything
    parts = [_column(one, negated, given) for one in term.terms]
    pick: Any = min if isinstance(term, Every) is not negated else max
    return lambda columns, count: _joined(pick, [part(columns, count) for part in parts])


def _joined(pick: Any, truths: Sequence[Sequence[int]]) -> Sequence[int]:
    return truths[0] if len(truths) == 1 else list(map(pick, *truths))


def _anything(_columns: Columns, count: int) -> Sequence[int]:
    return [TRUE] * count


def _tested(test: Test, negated: bool) -> _Column:
    """Compile a test for columns: as a whole where possible, else each distinct combination of values once."""
    judge, rest = test.judge, [one.value for one in test.operands[1:] if isinstance(one, Literal)]
    alone = isinstance(test.operands[0], Field) and len(rest) == len(test.operands) - 1

    def column(columns: Columns, count: int) -> Sequence[int]:
        given = [_values(one, columns, count) for one in test.operands[: 1 if alone else None]]
        found = _at_once(test, given, rest) if count > _MANY else None
        if found is None:
            values = given[0] if alone else list(zip(*given, strict=True))
            truths = {each: judge(each, *rest) if alone else judge(*each) for each in set(values)}
            found = [truths[each] for each in values]
        return [TRUE - truth for truth in found] if negated else found

    return column


_MANY = 16
"""So many values are worth a look at their kinds."""


def _at_once(test: Test, given: Sequence[Sequence[Any]], rest: Sequence[Any]) -> list[int] | None:
    if test.holds is None:
        return None
    if len(rest) == 1:
        beside: Any = beside_text if type(rest[0]) is str else beside_number
        return beside(test.holds, given[0], rest[0]) if type(rest[0]) in (str, int, Decimal) else None
    return beside_each_other(test.holds, *given) if len(given) == 2 and not rest else None


def _values(operand: Operand, columns: Columns, count: int) -> Sequence[Any]:
    if isinstance(operand, Literal):
        return [operand.value] * count
    return columns[operand.path if len(operand.path) > 1 else operand.path[0]]


# -- with bodies: one row after the other -----------------------------------------------------------------------------


def _row(term: Term) -> _Row:
    if isinstance(term, Not):
        part = _row(term.term)
        return lambda members: TRUE - part(members)
    if isinstance(term, Test):
        return _judged(term)
    parts = [_row(one) for one in term.terms]
    every, end = isinstance(term, Every), FALSE if isinstance(term, Every) else TRUE

    def joined(members: Mapping[str, Any]) -> int:
        found = TRUE - end
        for part in parts:
            truth = part(members)
            if truth == end:
                return end
            found = min(found, truth) if every else max(found, truth)
        return found

    return joined


def _judged(test: Test) -> _Row:
    """Compile a test for rows; of several values (names below lists) one is enough."""
    judge = test.judge
    readers = [_reader(one) for one in test.operands]

    def judged(members: Mapping[str, Any]) -> int:
        values = [read(members) for read in readers]
        if prod(map(len, values)) > MOST_PAIRS:
            raise LimitError(f"--where: lists with more than {MOST_PAIRS:,} pairs of values are compared")
        return max(judge(*each) for each in product(*values))

    return judged


def _reader(operand: Operand) -> Callable[[Mapping[str, Any]], Sequence[Any]]:
    """Return a function that reads all values of an operand; one NULL where there is none."""
    if isinstance(operand, Literal):
        constant = (operand.value,)
        return lambda _members: constant
    path = operand.path
    return lambda members: _below(members, path) or (None,)


def _below(value: Any, path: Sequence[str | int]) -> Sequence[Any]:
    for at, name in enumerate(path):
        if isinstance(value, Mapping):
            value = value.get(name)
        elif isinstance(value, list | tuple) and isinstance(name, int):
            value = value[name] if name < len(value) else None
        elif isinstance(value, list | tuple):
            return [found for one in value for found in _below(one, path[at:])]
        else:
            return (None,)
    return value if isinstance(value, list | tuple) and value else (value,)
