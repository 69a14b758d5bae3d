"""A condition on columns of rows and plain members of bodies, by compiled code.

Of the lines that compiled code writes only what the condition names is read.

What it does not write goes the general way, and so do values that are no single ones or have no exact form in JSON.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from functools import cached_property
from itertools import chain, islice, repeat
from typing import Any

import msgspec

from binlogtool.formats.base import Batch
from binlogtool.log.blocks import Blocks
from binlogtool.log.bodies import quoted
from binlogtool.log.where import Columns, Where
from binlogtool.schema.jsonlines import LineWriter
from binlogtool.schema.jsonmembers import Places

_SINGLE = frozenset({str, int, float, bool, type(None)})


class RowLines:
    """A condition on the records of one file; to be made by `row_lines`."""

    def __init__(self, condition: Where, maker: Blocks) -> None:
        self._condition = condition
        self._maker = maker
        self._names: dict[Any, str] = {path: f"c{i}" for i, path in enumerate(condition.paths)}
        self._decoder: Any = msgspec.json.Decoder(_line(self._names))
        self._places: tuple[Batch, Places | None] | None = None

    @cached_property
    def _writer(self) -> LineWriter | None:
        """None = the file is none for compiled code."""
        declared, maker = self._maker.format.json, self._maker
        line = None if declared is None else declared(maker.layout.context)
        fits = line is not None and line.depth <= maker.limits.max_depth
        return LineWriter(line, maker.layout, b'{"offset":', quoted) if line is not None and fits else None

    def true(self, batch: Batch, start: int, stop: int, columns: Columns, first: int) -> tuple[list[bool], bool]:
        """Is it true of the records from `start` on? And: is the record behind these none for compiled code?

        columns: members of the records from `first` on.
        """
        writer = self._writer
        if writer is None or batch.inner or batch.holder is not None:
            return [], True
        if self._places is None or self._places[0] is not batch:
            self._places = batch, writer.places(batch)
        places = self._places[1]
        if places is None:
            return [], True
        data, reached, refused = writer.write(places, start, stop)
        made = {name: columns[name][start - first : reached - first] for name in self._condition.members}
        truths = self._truths(data, made) if reached > start else []
        return ([], True) if truths is None else (truths, refused)

    def _truths(self, data: memoryview, columns: Columns) -> list[bool] | None:
        """One for each line; None = the general way knows."""
        try:
            lines = self._decoder.decode_lines(data)
        except msgspec.DecodeError:
            return None
        rows = [line.body.rows or (line.body,) for line in lines]
        counts = list(map(len, rows))
        given = self._values(list(chain.from_iterable(rows)), list(_spread([line.body for line in lines], counts)))
        if given is None:
            return None
        given |= {name: list(_spread(column, counts)) for name, column in columns.items()}
        truths = iter(self._condition.of_columns(given, sum(counts)))
        return [True in list(islice(truths, count)) for count in counts]

    def _values(self, rows: list[Any], bodies: list[Any]) -> dict[Any, Sequence[Any]] | None:
        """Each column of the rows, and of their bodies; None = some values are not what they are in the log."""
        given: dict[Any, Sequence[Any]] = {}
        for path, name in self._names.items():
            images = bodies if path[0] == "body" else [getattr(row, path[0]) for row in rows]
            values = given[path] = [getattr(image, name) for image in images]
            kinds = set(map(type, values))
            if not kinds <= _SINGLE or (float in kinds and not kinds <= {float, type(None)}):
                return None
        return given


def row_lines(maker: Blocks, condition: Where | None) -> RowLines | None:
    """The condition by compiled code; None = it needs no bodies, or more of them than columns."""
    simple = condition is not None and condition.needs_body and condition.is_simple
    return RowLines(condition, maker) if condition is not None and simple else None


def _line(names: Mapping[Any, str]) -> type[msgspec.Struct]:
    """The type of a line with these columns. An image that is not there has NULL in all of them."""
    fields: dict[str, list[Any]] = {}
    for path, name in names.items():
        fields.setdefault(path[0], []).append((name, Any, msgspec.field(name=path[1], default=None)))
    own = fields.pop("body", [])
    images = {side: _made(side, columns) for side, columns in fields.items()}
    sides: list[Any] = [(side, image, image()) for side, image in images.items()]
    rows: Any = ("rows", list[_made("row", sides)], msgspec.field(default_factory=list))  # type: ignore[misc]
    return _made("line", [("body", _made("body", [rows, *sides, *own]))])


def _made(name: str, fields: list[Any]) -> type[msgspec.Struct]:
    """There are many of each, and none holds itself."""
    return msgspec.defstruct(name, fields, frozen=True, gc=False)


def _spread(values: Sequence[Any], counts: Sequence[int]) -> Iterator[Any]:
    return chain.from_iterable(map(repeat, values, counts))
