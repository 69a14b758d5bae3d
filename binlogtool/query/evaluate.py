"""Evaluate `--where` conditions: first on members that are known without bodies, then on the bodies.

A record with row changes is selected when there is a row for which the whole condition is true: `before` and `after`
are the images of that one row. Members that a record or row lacks are NULL. A body that cannot be decoded could match:
the record is selected, with its finding, unless the rest of the condition rules it out.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from decimal import Decimal
from itertools import product
from math import prod
from typing import Any

import msgspec

from binlogtool.errors import LimitError
from binlogtool.query.conditions import (
    BODY_MEMBERS,
    FALSE,
    MEMBERS,
    TRUE,
    AndTerm,
    Comparison,
    Constant,
    MemberPath,
    NotTerm,
    Operand,
    Term,
    Timestamp,
    compare_column_with_number,
    compare_column_with_text,
    compare_columns_pairwise,
)

_ROW_MEMBERS = ("rows", "before", "after")
MAX_PAIRS = 1 << 24

ColumnValues = Mapping[Any, Sequence[Any]]
"""Values of some records: member names and column paths -> one value per record or row."""

_ColumnEvaluator = Callable[[ColumnValues, int], Sequence[int]]
_RowEvaluator = Callable[[Mapping[str, Any]], int]


class Condition(msgspec.Struct, frozen=True):
    """A compiled condition.

    Args:
        members: names of the envelope members that it uses.
        columns: names of the table columns that it uses.
        needs_body: it uses the content of bodies.
        paths: the paths into bodies that it uses.
    """

    members: frozenset[str]
    columns: frozenset[str]
    needs_body: bool
    _without_bodies: _ColumnEvaluator
    _by_object: _ColumnEvaluator
    _by_row: _RowEvaluator
    _by_columns: _ColumnEvaluator
    paths: frozenset[tuple[str | int, ...]]

    def mark_possible_matches(self, columns: ColumnValues, record_count: int) -> list[bool]:
        """Return for each record if the condition could be true, without its body. columns: values of `members`."""
        return [truth == TRUE for truth in self._without_bodies(columns, record_count)]

    def can_match_object(self, name: str) -> bool:
        """Return True if the condition could be true for a record with this object."""
        return self._by_object({"object": [name]}, 1)[0] == TRUE

    @property
    def is_simple(self) -> bool:
        """True if it uses only envelope members, table columns and top-level members of bodies, no nested values."""
        return all(len(path) == 2 and (path[0] != "body" or path[1] not in _ROW_MEMBERS) for path in self.paths)

    def evaluate_columns(self, columns: ColumnValues, row_count: int) -> list[bool]:
        """Return for each row whether the condition is true. columns: values of `members` and `paths`."""
        return [truth == TRUE for truth in self._by_columns(columns, row_count)]

    def is_true_for_record(self, members: Mapping[str, Any], body: Any) -> bool:
        """Return True if the condition is true for this record."""
        return any(self._by_row({**members, **row}) == TRUE for row in _iter_row_members(body))

    def mark_matching_rows(self, members: Mapping[str, Any], body: Any) -> list[bool]:
        """Return for each row of this record whether the condition is true."""
        return [self._by_row({**members, **row}) == TRUE for row in _iter_row_members(body)]


def compile_condition(text: str) -> Condition:
    """Compile an expression. Raises UsageError: it is invalid; the message names the column."""
    from binlogtool.query.parse_where import parse_expression  # imports pyparsing

    term = parse_expression(text)
    names = frozenset(str(field.path[0]) for field in _iter_fields(term))
    paths = frozenset(field.path for field in _iter_fields(term) if len(field.path) > 1)
    return Condition(
        members=names & frozenset(MEMBERS),
        columns=frozenset(str(path[1]) for path in paths if path[0] in ("before", "after")),
        needs_body=not names <= frozenset(MEMBERS),
        _without_bodies=_compile_column_filter(term, False, MEMBERS),
        _by_object=_compile_column_filter(term, False, ("object",)),
        _by_row=_compile_row(term),
        _by_columns=_compile_column_filter(term, False, (*MEMBERS, *BODY_MEMBERS)),
        paths=paths,
    )


def to_timestamps(times: Sequence[int | None]) -> list[Timestamp | None]:
    """Convert the member `time` to timestamps."""
    return [None if time is None else Timestamp(time) for time in times]


def _iter_row_members(body: Any) -> Iterator[dict[str, Any]]:
    """Yield the values of `body`, `before` and `after` for each row."""
    rows = body.get("rows") if isinstance(body, Mapping) else None
    images = [row for row in rows if isinstance(row, Mapping)] if isinstance(rows, list) else []
    for row in images or [body if isinstance(body, Mapping) else {}]:
        yield {"body": body, "before": row.get("before"), "after": row.get("after")}


def _iter_fields(term: Term) -> Iterator[MemberPath]:
    if isinstance(term, Comparison):
        yield from (one for one in term.operands if isinstance(one, MemberPath))
    elif isinstance(term, NotTerm):
        yield from _iter_fields(term.term)
    else:
        for item in term.terms:
            yield from _iter_fields(item)


# -- without bodies: whole columns ------------------------------------------------------------------------------------


def _compile_column_filter(term: Term, negated: bool, known_members: Sequence[str]) -> _ColumnEvaluator:
    """Compile a term to a filter that keeps every record that may match, given only these columns; NOT is pushed down
    to the comparisons.
    """
    if isinstance(term, NotTerm):
        return _compile_column_filter(term.term, not negated, known_members)
    if isinstance(term, Comparison):
        is_known = all(field.path[0] in known_members for field in _iter_fields(term))
        return _compile_column_test(term, negated) if is_known else _always_true
    parts = [_compile_column_filter(one, negated, known_members) for one in term.terms]
    combine: Any = min if isinstance(term, AndTerm) is not negated else max
    return lambda columns, count: _combine_truths(combine, [part(columns, count) for part in parts])


def _combine_truths(combine: Any, truths: Sequence[Sequence[int]]) -> Sequence[int]:
    return truths[0] if len(truths) == 1 else list(map(combine, *truths))


def _always_true(_columns: ColumnValues, count: int) -> Sequence[int]:
    return [TRUE] * count


def _compile_column_test(test: Comparison, negated: bool) -> _ColumnEvaluator:
    """Compile a test of columns: whole columns at once where possible, else each distinct set of values once."""
    evaluate, constants = test.evaluate, [one.value for one in test.operands[1:] if isinstance(one, Constant)]
    has_one_field = isinstance(test.operands[0], MemberPath) and len(constants) == len(test.operands) - 1

    def evaluate_column(columns: ColumnValues, count: int) -> Sequence[int]:
        operand_values = [_operand_values(one, columns, count) for one in test.operands[: 1 if has_one_field else None]]
        results = _compare_columns(test, operand_values, constants) if count > _MIN_COLUMN_SIZE else None
        if results is None:
            values = operand_values[0] if has_one_field else list(zip(*operand_values, strict=True))
            truth_by_value = {
                each: evaluate(each, *constants) if has_one_field else evaluate(*each) for each in set(values)
            }
            results = [truth_by_value[each] for each in values]
        return [TRUE - truth for truth in results] if negated else results

    return evaluate_column


_MIN_COLUMN_SIZE = 16
"""Minimum number of values for comparing a whole column at once."""


def _compare_columns(
    test: Comparison, operand_values: Sequence[Sequence[Any]], constants: Sequence[Any]
) -> list[int] | None:
    if test.holds is None:
        return None
    if len(constants) == 1:
        compare: Any = compare_column_with_text if type(constants[0]) is str else compare_column_with_number
        return (
            compare(test.holds, operand_values[0], constants[0]) if type(constants[0]) in (str, int, Decimal) else None
        )
    return compare_columns_pairwise(test.holds, *operand_values) if len(operand_values) == 2 and not constants else None


def _operand_values(operand: Operand, columns: ColumnValues, count: int) -> Sequence[Any]:
    if isinstance(operand, Constant):
        return [operand.value] * count
    return columns[operand.path if len(operand.path) > 1 else operand.path[0]]


# -- with bodies: one row after the other -----------------------------------------------------------------------------


def _compile_row(term: Term) -> _RowEvaluator:
    if isinstance(term, NotTerm):
        part = _compile_row(term.term)
        return lambda members: TRUE - part(members)
    if isinstance(term, Comparison):
        return _compile_row_test(term)
    parts = [_compile_row(one) for one in term.terms]
    is_and, deciding_truth = isinstance(term, AndTerm), FALSE if isinstance(term, AndTerm) else TRUE

    def evaluate_parts(members: Mapping[str, Any]) -> int:
        result = TRUE - deciding_truth
        for part in parts:
            truth = part(members)
            if truth == deciding_truth:
                return deciding_truth
            result = min(result, truth) if is_and else max(result, truth)
        return result

    return evaluate_parts


def _compile_row_test(test: Comparison) -> _RowEvaluator:
    """Compile a test of one row; if an operand has several values (paths through lists), one match is enough."""
    evaluate = test.evaluate
    readers = [_make_reader(one) for one in test.operands]

    def evaluate_pairs(members: Mapping[str, Any]) -> int:
        values = [read(members) for read in readers]
        if prod(map(len, values)) > MAX_PAIRS:
            raise LimitError(f"--where: lists with more than {MAX_PAIRS:,} pairs of values are compared")
        return max(evaluate(*each) for each in product(*values))

    return evaluate_pairs


def _make_reader(operand: Operand) -> Callable[[Mapping[str, Any]], Sequence[Any]]:
    """Return a function that reads all values of an operand; an operand without values gives one NULL."""
    if isinstance(operand, Constant):
        constant = (operand.value,)
        return lambda _members: constant
    path = operand.path
    return lambda members: _read_path(members, path) or (None,)


def _read_path(value: Any, path: Sequence[str | int]) -> Sequence[Any]:
    for at, name in enumerate(path):
        if isinstance(value, Mapping):
            value = value.get(name)
        elif isinstance(value, list | tuple) and isinstance(name, int):
            value = value[name] if name < len(value) else None
        elif isinstance(value, list | tuple):
            return [found for one in value for found in _read_path(one, path[at:])]
        else:
            return (None,)
    return value if isinstance(value, list | tuple) and value else (value,)
