"""Common part of the generators of body readers: positions, runs of fixed size, cases, used variables."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import ClassVar

from binlogtool.schema.body_ops import Place, unset
from binlogtool.schema.expressions import Dialect, Expr, test_source, value_source
from binlogtool.schema.lower_bodies import Body
from binlogtool.schema.operations import (
    Ahead,
    Choose,
    Fit,
    Left,
    Let,
    Literal,
    Load,
    Op,
    Rest,
    Scalar,
    Skip,
    Span,
    size_of,
    used_paths,
    walk,
)
from binlogtool.schema.scopes import Unlowerable
from binlogtool.schema.shown import Member, needed, tests_of
from binlogtool.schema.source_text import Lines, variable_names

Fixed = Load | Literal | Skip


class BodySource(ABC):
    """Generates the lines of a function that reads a body.

    Attributes:
        end: The variable that says where the body ends.
        wanted: Variables and byte ranges that are the result.
        used: These, and the ones that are needed to compute them.
        position: The current position.
    """

    dialect: ClassVar[Dialect]
    end: ClassVar[str]

    def __init__(self, body: Body, members: tuple[Member, ...], start: Place) -> None:
        self.body, self.wanted, self.at = body, needed(members), start
        self.used = self.wanted | used_paths(body.ops)
        self.line = Lines()
        paths = dict.fromkeys(op.path for op in walk(body.ops) if not isinstance(op, Choose))
        self.names = variable_names(tuple(paths))
        self._variables, self._tests = 0, tests_of(members)
        self.zeros(body.ops)

    def zeros(self, ops: tuple[Op, ...]) -> None:
        """Set the variables of cases that may not be taken to 0."""
        for path in sorted(unset(ops, self._tests) & self.used):
            self.line(f"{self.names[path]} = 0")

    def read(self, ops: tuple[Op, ...]) -> None:
        """Emit the code for these operations."""
        index = 0
        while index < len(ops):
            run: list[Fixed] = []
            while index + len(run) < len(ops) and size_of(one := ops[index + len(run)]) is not None:
                run.append(one)  # type: ignore[arg-type]
            if run:
                self.fixed(run)
            else:
                self._one(ops[index])
            index += len(run) or 1

    def _one(self, op: Op) -> None:
        match op:
            case Skip(path=path, length=length):
                self.skip(path, length)
            case Rest(path=path):
                self.piece(path, self.at, Place(self.end, 0))
                self.at = Place(self.end, 0)
            case Left(path=path):
                self.line(f"{self.names[path]} = {self.left}")
            case Let(path=path, value=value):
                if path in self.used:
                    self.line(f"{self.names[path]} = {self.value_of(value)}")
            case Scalar():
                self.scalar(op)
            case Choose():
                self._choose(op)
            case Ahead(ops=ops):
                start = self.at
                self.read(ops)
                self.at = start
            case Span(path=path, ops=ops):
                start = self.at
                self.read(ops)
                self.piece(path, start, self.at)
            case Fit():
                self.fit(op)
            case _:
                self.special(op)

    def _choose(self, op: Choose) -> None:
        end, start = self.variable(), self.at
        for index, (test, arm) in enumerate(op.arms):
            self.line(f"{'el' if index else ''}if {self.test_of(test)}:")
            self._branch(arm, start, end)
        self.line("else:")
        self._branch(op.other, start, end)
        self.at = Place(end, 0)

    def _branch(self, ops: tuple[Op, ...], start: Place, end: str) -> None:
        self.at = start
        with self.line.indented():
            self.read(ops)
            self.line(f"{end} = {self.at}")

    @property
    def left(self) -> str:
        """Source of the number of bytes that are left."""
        return f"{self.end} - {self.at.term}"

    def value_of(self, value: Expr) -> str:
        """Return the source of an expression."""
        return value_source(value, self.names, self.dialect)

    def test_of(self, test: Expr) -> str:
        """Return the source of a condition."""
        return test_source(test, self.names, self.dialect)

    def variable(self) -> str:
        """Return a new variable for a position."""
        self._variables += 1
        return f"p{self._variables}"

    # -- to implement ------------------------------------------------------------------------------------------------

    @abstractmethod
    def fixed(self, run: list[Fixed]) -> None:
        """Read neighbouring fields of fixed size."""

    @abstractmethod
    def skip(self, path: str, length: Expr) -> None:
        """Pass over bytes whose size other fields give."""

    @abstractmethod
    def scalar(self, op: Scalar) -> None:
        """Read a value with a kernel."""

    @abstractmethod
    def piece(self, path: str, start: Place, end: Place) -> None:
        """Make the bytes `[start, end)` a field."""

    @abstractmethod
    def fit(self, op: Fit) -> None:
        """Refuse a count whose elements cannot fit."""

    def special(self, op: Op) -> None:
        """Emit an operation that only some generators support.

        Raises:
            UnlowerableError: not this one.
        """
        raise Unlowerable(op.path, f"{type(op).__name__} in a body")
