"""A condition on members, columns of rows and plain members of bodies, by compiled code.

It writes what the condition names of each record as a JSON line, and equal lines are evaluated once. What it does not
write is evaluated by Python, as are values that are not single ones or have no exact form in JSON.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from functools import cached_property
from itertools import chain, islice, repeat
from operator import attrgetter
from typing import Any

import msgspec

from binlogtool.formats.jsonline import JsonLine
from binlogtool.formats.layouts import Batch
from binlogtool.log.blocks import Blocks
from binlogtool.log.body_json import quoted
from binlogtool.log.filters import GAP, spans
from binlogtool.log.where import Where
from binlogtool.log.where_terms import moment
from binlogtool.schema.jsonmembers import Places
from binlogtool.schema.jsonpicks import Picker

_SINGLE = frozenset({str, int, float, bool, type(None)})


class RowLines:
    """A condition on the records of one file; created by `compile_row_condition`."""

    def __init__(self, condition: Where, maker: Blocks) -> None:
        self._condition = condition
        self._maker = maker
        self._batch: Batch | None = None
        self._is_ours = False
        self._could: tuple[int, list[bool], bool] = 0, [], False

    @cached_property
    def _questions(self) -> tuple[_Question | None, _Question] | None:
        """Queries on members alone, and on the whole condition; None = compiled code does not support the file."""
        declared, maker, condition = self._maker.format.output.json, self._maker, self._condition
        line = None if declared is None else declared(maker.layout.context)
        if line is None or line.depth > maker.limits.max_depth:
            return None
        early = condition.members and condition.paths
        return _Question(condition, maker, line, early=True) if early else None, _Question(condition, maker, line)

    def takes(self, batch: Batch) -> bool:
        """Return True if compiled code supports the batch; `evaluate` then refers to it. Ask in file order."""
        if batch is not self._batch:
            ours = self._questions is not None and not batch.inner and batch.holder is None
            self._batch, self._could = batch, (0, [], False)
            self._is_ours = ours and all(one.takes(batch) for one in self._questions or () if one is not None)
        return self._is_ours

    def true(self, start: int, stop: int) -> tuple[list[bool], bool]:
        """Return truths of the records from `start` on, and whether compiled code refuses the record after them.

        There may be fewer answers than records before that one; at least one, where there is no such record.
        """
        assert self._questions is not None
        early, whole = self._questions
        if early is None:
            return whole.answers(start, stop)
        marks, refused = self._candidates(early, start, stop)
        for low, high in spans(marks, GAP):
            return ([False] * low, False) if low else whole.answers(start, start + high)
        return marks, refused

    def _candidates(self, early: _Question, start: int, stop: int) -> tuple[list[bool], bool]:
        """Return what members say of the records from `start` on; evaluated once."""
        first, marks, refused = self._could
        if not first <= start < first + len(marks):
            first, (marks, refused) = start, early.answers(start, stop)
            self._could = first, marks, refused
        return marks[start - first : stop - first], refused and first + len(marks) <= stop


class _Question:
    """A condition, or (early) what members say of it."""

    def __init__(self, condition: Where, maker: Blocks, line: JsonLine, *, early: bool = False) -> None:
        paths = () if early else condition.paths
        self._members = condition.members
        self._judge = condition.candidates if early else condition.of_columns
        self._names: dict[Any, str] = {path: f"c{i}" for i, path in enumerate(paths)}
        rows_only = all(path[0] != "body" for path in paths)
        body = line.body if line.narrow is None or early else line.narrow(condition.columns, rows_only)
        names = self._members | {"object"} | ({"body"} if paths else set())  # it refuses records that define objects
        self._picker = Picker(line, maker.layout, quoted, names, body)
        self._decoder: Any = msgspec.json.Decoder(_line(self._picker.order, self._names))
        self._places: Places | None = None

    def takes(self, batch: Batch) -> bool:
        """Prepare a batch; see `CompiledCondition.supports_batch`."""
        self._places = self._picker.places(batch)
        return self._places is not None

    def answers(self, start: int, stop: int) -> tuple[list[bool], bool]:
        """Return truths; see `CompiledCondition.evaluate`."""
        assert self._places is not None
        data, reached, refused = self._picker.write(self._places, start, stop)
        truths = self._truths(bytes(data).split(b"\n")[:-1]) if reached > start else []
        return ([], True) if truths is None else (truths, refused)

    def _truths(self, lines: list[bytes]) -> list[bool] | None:
        """Return one truth for each line; None = Python must evaluate them."""
        distinct = dict.fromkeys(lines)
        truths = self._judged(b"\n".join(distinct))
        if truths is None or len(distinct) == len(lines):
            return truths
        known = dict(zip(distinct, truths, strict=True))
        return [known[line] for line in lines]

    def _judged(self, data: bytes) -> list[bool] | None:
        try:
            lines = self._decoder.decode_lines(data)
        except msgspec.DecodeError:
            return None
        columns = {name: [getattr(line, name) for line in lines] for name in self._members}
        if "time" in columns:
            moments = {text: None if text is None else moment(text) for text in set(columns["time"])}
            columns["time"] = [moments[text] for text in columns["time"]]
        if not self._names:
            return self._judge(columns, len(lines))
        rows = [line.body.rows or (line.body,) for line in lines]
        counts = list(map(len, rows))
        given = self._values(list(chain.from_iterable(rows)), list(_spread([line.body for line in lines], counts)))
        if given is None:
            return None
        given |= {name: list(_spread(column, counts)) for name, column in columns.items()}
        truths = self._judge(given, sum(counts))
        if len(truths) == len(lines):
            return truths
        left = iter(truths)
        return [True in list(islice(left, count)) for count in counts]

    def _values(self, rows: list[Any], bodies: list[Any]) -> dict[Any, Sequence[Any]] | None:
        """Return each column of the rows, and of their bodies; None = some values are not exactly those of the log."""
        given: dict[Any, Sequence[Any]] = {}
        for path, name in self._names.items():
            own = path[0] == "body"
            values = given[path] = list(map(attrgetter(name if own else f"{path[0]}.{name}"), bodies if own else rows))
            kinds = set(map(type, values))
            if not kinds <= _SINGLE or (float in kinds and not kinds <= {float, type(None)}):
                return None
        return given


def row_lines(maker: Blocks, condition: Where | None) -> RowLines | None:
    """Compile a condition; None = it names nothing, or more of bodies than columns and plain members."""
    if condition is None or not condition.is_simple or not (condition.members or condition.paths):
        return None
    return RowLines(condition, maker)


def _line(order: Sequence[str], names: Mapping[Any, str]) -> type[msgspec.Struct]:
    """Return the type of a line with these members and columns; a missing image has NULL in all of them."""
    members: list[Any] = [(name, Any) if name != "body" else (name, _body(names)) for name in order]
    return _made("line", members, array_like=True)


def _body(names: Mapping[Any, str]) -> type[msgspec.Struct]:
    fields: dict[str, list[Any]] = {}
    for path, name in names.items():
        fields.setdefault(path[0], []).append((name, Any, msgspec.field(name=path[1], default=None)))
    own = fields.pop("body", [])
    images = {side: _made(side, columns) for side, columns in fields.items()}
    sides: list[Any] = [(side, image, image()) for side, image in images.items()]
    rows: Any = ("rows", list[_made("row", sides)], msgspec.field(default_factory=list))  # type: ignore[misc]
    return _made("body", [rows, *sides, *own])


def _made(name: str, fields: list[Any], *, array_like: bool = False) -> type[msgspec.Struct]:
    """Create a struct type without garbage collection: there are many instances, and none refers to itself."""
    return msgspec.defstruct(name, fields, frozen=True, gc=False, array_like=array_like)


def _spread(values: Sequence[Any], counts: Sequence[int]) -> Iterator[Any]:
    return chain.from_iterable(map(repeat, values, counts))
