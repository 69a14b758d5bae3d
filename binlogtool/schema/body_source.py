"""What all generated functions of bodies have in common: positions, runs of fixed size, cases, and what is used."""

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
    """The lines of a function that reads a body. end: the variable that says where the body ends.

    wanted: variables and pieces that are the result; used: with those that are only needed on the way.
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
        """Variables of cases that may not be taken begin with 0."""
        for path in sorted(unset(ops, self._tests) & self.used):
            self.line(f"{self.names[path]} = 0")

    def read(self, ops: tuple[Op, ...]) -> None:
        """Reads what these operations say."""
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
        """Source of an expression."""
        return value_source(value, self.names, self.dialect)

    def test_of(self, test: Expr) -> str:
        """Source of a condition."""
        return test_source(test, self.names, self.dialect)

    def variable(self) -> str:
        """A new one, for a position."""
        self._variables += 1
        return f"p{self._variables}"

    # -- what differs ------------------------------------------------------------------------------------------------

    @abstractmethod
    def fixed(self, run: list[Fixed]) -> None:
        """Neighbours of a fixed size."""

    @abstractmethod
    def skip(self, path: str, length: Expr) -> None:
        """Bytes of a size that other fields say."""

    @abstractmethod
    def scalar(self, op: Scalar) -> None:
        """The value of a kernel."""

    @abstractmethod
    def piece(self, path: str, start: Place, end: Place) -> None:
        """These bytes are a field."""

    @abstractmethod
    def fit(self, op: Fit) -> None:
        """Refuses a count that cannot be true."""

    def special(self, op: Op) -> None:
        """What only some functions can do.

        Raises:
            Unlowerable: not this one.
        """
        raise Unlowerable(op.path, f"{type(op).__name__} in a body")
