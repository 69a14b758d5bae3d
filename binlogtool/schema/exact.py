"""Interpreter: execute one frame operation by operation; slow, and the authority.

The generated scanners only run through good frames. A frame with anything else, or with an encoding that they do not
speculate on, goes to this interpreter, which either finds it good or says exactly why it is not. So the reasons,
positions and field names of a `Stop` do not depend on the backend.
"""

from __future__ import annotations

from typing import Any

import msgspec

from binlogtool.formats.fields import SHORT
from binlogtool.schema.expressions import evaluate, signed
from binlogtool.schema.operations import (
    Choose,
    Let,
    Literal,
    Load,
    OneOf,
    Op,
    Position,
    Program,
    Record,
    Require,
    Scalar,
    Skip,
    Verify,
)
from binlogtool.schema.scanner import Stop, StopReason


class Frame(msgspec.Struct):
    """A good frame.

    Attributes:
        checksum: As in the scanner's column of that name.
    """

    end: int
    checksum: int
    values: dict[str, int]


class _Bad(Exception):
    """Raised inside this module to end a frame."""

    def __init__(self, reason: StopReason, path: str, need: int = -1) -> None:
        super().__init__()
        self.reason, self.path, self.need = reason, path, need


def run(program: Program, buf: Any, at: int, end: int) -> Frame | Stop:
    """Return the frame that starts at `position`, or why it is not good. Nothing at or after `end` is read."""
    state = _State(memoryview(buf), at, at, end, dict.fromkeys(program.variables, 0))
    try:
        state.execute(program.ops)
    except _Bad as bad:
        return Stop(bad.reason, at, bad.path, bad.need)
    if state.mismatch is not None:
        return Stop(StopReason.CHECKSUM, at, state.mismatch, state.position)
    if state.position == at:
        return Stop(StopReason.EMPTY, at)
    return Frame(state.position, state.checksum, state.values)


class _State(msgspec.Struct):
    view: memoryview
    start: int
    position: int
    end: int
    values: dict[str, int]
    checksum: int = 0
    mismatch: str | None = msgspec.field(default=None)

    def execute(self, ops: tuple[Op, ...]) -> None:
        for op in ops:
            self.step(op)

    def step(self, op: Op) -> None:
        match op:
            case Load(path, width, big, is_signed):
                data = self.take(width, path)
                self.values[path] = signed(int.from_bytes(data, "big" if big else "little", signed=is_signed))
            case Literal(path, value):
                if self.take(len(value), path) != value:
                    raise _Bad(StopReason.CONSTANT, path)
            case Skip(path, length):
                self.take(evaluate(length, self.values), path)
            case OneOf(path, values):
                if self.values[path] not in values:
                    raise _Bad(StopReason.CONSTANT, path)
            case Require(path, test):
                if not evaluate(test, self.values):
                    raise _Bad(StopReason.BOUNDS, path)
            case Let(path, expr):
                self.values[path] = evaluate(expr, self.values)
            case Position(path):
                self.values[path] = self.position
            case Scalar(path, kernel):
                number, following = kernel.read(self.view, self.position, self.end)
                self.advance(following, path)
                self.values[path] = signed(number)
            case Record():
                self.record(op)
            case Verify():
                self.verify(op)
            case Choose(_, arms, other):
                taken = (branch for test, branch in arms if evaluate(test, self.values))
                self.execute(next(taken, other))

    def take(self, count: int, path: str) -> memoryview:
        if count < 0:
            raise _Bad(StopReason.BOUNDS, path)
        if count > self.end - self.position:
            raise _Bad(StopReason.SHORT, path, self.position + count)
        self.position += count
        return self.view[self.position - count : self.position]

    def advance(self, following: int, path: str) -> None:
        """Move to where a kernel says that its value ends."""
        if not self.position <= following <= self.end:
            raise _Bad(StopReason.SHORT if following == SHORT else StopReason.MALFORMED, path)
        self.position = following

    def record(self, op: Record) -> None:
        out = [0] * len(op.columns)
        self.advance(op.kernel.read(self.view, self.position, self.end, op.kernel.table, out, 0), op.path)
        self.values.update(zip(op.columns, map(signed, out), strict=True))

    def verify(self, op: Verify) -> None:
        stored, start, end = (evaluate(part, self.values) for part in (op.stored, op.start, op.end))
        if not self.start <= start <= end:
            raise _Bad(StopReason.BOUNDS, op.path)
        if end > self.end:
            raise _Bad(StopReason.SHORT, op.path, end)
        right = op.checksum(self.view[start:end]) == stored
        if not right and stored != op.absent:
            self.mismatch = self.mismatch or op.path
        self.checksum = max(self.checksum, 1 if right else 2)
