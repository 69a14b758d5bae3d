"""Common part of the generators of body readers: positions, runs of fixed size, cases, used variables."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import ClassVar

from binlogtool.schema.body_ops import BodyPosition, find_unset_variables
from binlogtool.schema.expressions import Expr, SourceDialect, format_test_source, format_value_source
from binlogtool.schema.lower_bodies import LoweredBody
from binlogtool.schema.operations import (
    Assign,
    AssignRemaining,
    CaptureBytes,
    CheckCount,
    ChooseCase,
    ExpectBytes,
    LoadInteger,
    Op,
    Peek,
    ReadScalar,
    SkipBytes,
    TakeRest,
    find_used_paths,
    get_fixed_size,
    iter_operations,
)
from binlogtool.schema.scopes import Unlowerable
from binlogtool.schema.shown import ShownMember, find_needed_paths, find_test_paths
from binlogtool.schema.source_text import SourceLines, make_variable_names

FixedSizeOp = LoadInteger | ExpectBytes | SkipBytes


class BodyCodeGenerator(ABC):
    """Generates the lines of a function that reads a body.

    Attributes:
        end: The variable that says where the body ends.
        wanted: Variables and byte ranges that are the result.
        used: These, and the ones that are needed to compute them.
        position: The current position.
    """

    dialect: ClassVar[SourceDialect]
    end: ClassVar[str]

    def __init__(self, body: LoweredBody, members: tuple[ShownMember, ...], start: BodyPosition) -> None:
        self.body, self.wanted, self.position = body, find_needed_paths(members), start
        self.used = self.wanted | find_used_paths(body.ops)
        self.line = SourceLines()
        paths = dict.fromkeys(op.path for op in iter_operations(body.ops) if not isinstance(op, ChooseCase))
        self.names = make_variable_names(tuple(paths))
        self._variables, self._tests = 0, find_test_paths(members)
        self.emit_zeros(body.ops)

    def emit_zeros(self, ops: tuple[Op, ...]) -> None:
        """Set the variables of cases that may not be taken to 0."""
        for path in sorted(find_unset_variables(ops, self._tests) & self.used):
            self.line(f"{self.names[path]} = 0")

    def emit_operations(self, ops: tuple[Op, ...]) -> None:
        """Emit the code for these operations."""
        index = 0
        while index < len(ops):
            run: list[FixedSizeOp] = []
            while index + len(run) < len(ops) and get_fixed_size(one := ops[index + len(run)]) is not None:
                run.append(one)  # type: ignore[arg-type]
            if run:
                self.emit_fixed_run(run)
            else:
                self._emit_operation(ops[index])
            index += len(run) or 1

    def _emit_operation(self, op: Op) -> None:
        match op:
            case SkipBytes(path=path, length=length):
                self.emit_skip(path, length)
            case TakeRest(path=path):
                self.emit_bytes_field(path, self.position, BodyPosition(self.end, 0))
                self.position = BodyPosition(self.end, 0)
            case AssignRemaining(path=path):
                self.line(f"{self.names[path]} = {self.left_source}")
            case Assign(path=path, value=value):
                if path in self.used:
                    self.line(f"{self.names[path]} = {self.format_value(value)}")
            case ReadScalar():
                self.emit_scalar(op)
            case ChooseCase():
                self._emit_choice(op)
            case Peek(ops=ops):
                start = self.position
                self.emit_operations(ops)
                self.position = start
            case CaptureBytes(path=path, ops=ops):
                start = self.position
                self.emit_operations(ops)
                self.emit_bytes_field(path, start, self.position)
            case CheckCount():
                self.emit_count_check(op)
            case _:
                self.emit_special(op)

    def _emit_choice(self, op: ChooseCase) -> None:
        end, start = self.new_variable(), self.position
        for index, (test, arm) in enumerate(op.arms):
            self.line(f"{'el' if index else ''}if {self.format_test(test)}:")
            self._emit_branch(arm, start, end)
        self.line("else:")
        self._emit_branch(op.other, start, end)
        self.position = BodyPosition(end, 0)

    def _emit_branch(self, ops: tuple[Op, ...], start: BodyPosition, end: str) -> None:
        self.position = start
        with self.line.indent():
            self.emit_operations(ops)
            self.line(f"{end} = {self.position}")

    @property
    def left_source(self) -> str:
        """Source of the number of bytes that are left."""
        return f"{self.end} - {self.position.term}"

    def format_value(self, value: Expr) -> str:
        """Return the source of an expression."""
        return format_value_source(value, self.names, self.dialect)

    def format_test(self, test: Expr) -> str:
        """Return the source of a condition."""
        return format_test_source(test, self.names, self.dialect)

    def new_variable(self) -> str:
        """Return a new variable for a position."""
        self._variables += 1
        return f"p{self._variables}"

    # -- to implement ------------------------------------------------------------------------------------------------

    @abstractmethod
    def emit_fixed_run(self, run: list[FixedSizeOp]) -> None:
        """Read neighbouring fields of fixed size."""

    @abstractmethod
    def emit_skip(self, path: str, length: Expr) -> None:
        """Pass over bytes whose size other fields give."""

    @abstractmethod
    def emit_scalar(self, op: ReadScalar) -> None:
        """Read a value with a kernel."""

    @abstractmethod
    def emit_bytes_field(self, path: str, start: BodyPosition, end: BodyPosition) -> None:
        """Make the bytes `[start, end)` a field."""

    @abstractmethod
    def emit_count_check(self, op: CheckCount) -> None:
        """Refuse a count whose elements cannot fit."""

    def emit_special(self, op: Op) -> None:
        """Emit an operation that only some generators support.

        Raises:
            UnlowerableError: not this one.
        """
        raise Unlowerable(op.path, f"{type(op).__name__} in a body")
