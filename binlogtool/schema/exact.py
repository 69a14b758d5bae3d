"""Interpreter: execute one frame operation by operation; slow, and the authority.

The generated scanners only run through good frames. A frame with anything else, or with an encoding that they do not
speculate on, goes to this interpreter, which either finds it good or says exactly why it is not. So the reasons,
positions and field names of a `Stop` do not depend on the backend.
"""

from __future__ import annotations

from typing import Any

import msgspec

from binlogtool.formats.fields import SHORT
from binlogtool.schema.expressions import evaluate_expression, wrap_int64
from binlogtool.schema.operations import (
    Assign,
    AssignPosition,
    ChooseCase,
    ExpectBytes,
    LoadInteger,
    Op,
    Program,
    ReadRecord,
    ReadScalar,
    Require,
    RequireOneOf,
    SkipBytes,
    VerifyChecksum,
)
from binlogtool.schema.scanner import ScanStop, StopReason


class InterpretedFrame(msgspec.Struct):
    """A good frame.

    Attributes:
        checksum: As in the scanner's column of that name.
    """

    end: int
    checksum: int
    values: dict[str, int]


class _BadFrame(Exception):
    """Raised inside this module to end a frame."""

    def __init__(self, reason: StopReason, path: str, need: int = -1) -> None:
        super().__init__()
        self.reason, self.path, self.need = reason, path, need


def interpret_frame(program: Program, buf: Any, position: int, end: int) -> InterpretedFrame | ScanStop:
    """Return the frame that starts at `position`, or why it is not good. Nothing at or after `end` is read."""
    state = _FrameState(memoryview(buf), position, position, end, dict.fromkeys(program.variables, 0))
    try:
        state.execute(program.ops)
    except _BadFrame as bad:
        return ScanStop(bad.reason, position, bad.path, bad.need)
    if state.mismatch is not None:
        return ScanStop(StopReason.CHECKSUM, position, state.mismatch, state.position)
    if state.position == position:
        return ScanStop(StopReason.EMPTY, position)
    return InterpretedFrame(state.position, state.checksum, state.values)


class _FrameState(msgspec.Struct):
    view: memoryview
    start: int
    position: int
    end: int
    values: dict[str, int]
    checksum: int = 0
    mismatch: str | None = msgspec.field(default=None)

    def execute(self, ops: tuple[Op, ...]) -> None:
        for op in ops:
            self.execute_one(op)

    def execute_one(self, op: Op) -> None:
        match op:
            case LoadInteger(path, width, big, is_signed):
                data = self.take_bytes(width, path)
                self.values[path] = wrap_int64(int.from_bytes(data, "big" if big else "little", signed=is_signed))
            case ExpectBytes(path, value):
                if self.take_bytes(len(value), path) != value:
                    raise _BadFrame(StopReason.CONSTANT, path)
            case SkipBytes(path, length):
                self.take_bytes(evaluate_expression(length, self.values), path)
            case RequireOneOf(path, values):
                if self.values[path] not in values:
                    raise _BadFrame(StopReason.CONSTANT, path)
            case Require(path, test):
                if not evaluate_expression(test, self.values):
                    raise _BadFrame(StopReason.BOUNDS, path)
            case Assign(path, expr):
                self.values[path] = evaluate_expression(expr, self.values)
            case AssignPosition(path):
                self.values[path] = self.position
            case ReadScalar(path, kernel):
                number, following = kernel.read(self.view, self.position, self.end)
                self.advance_to(following, path)
                self.values[path] = wrap_int64(number)
            case ReadRecord():
                self.read_record(op)
            case VerifyChecksum():
                self.verify_checksum(op)
            case ChooseCase(_, arms, other):
                taken = (branch for test, branch in arms if evaluate_expression(test, self.values))
                self.execute(next(taken, other))

    def take_bytes(self, count: int, path: str) -> memoryview:
        if count < 0:
            raise _BadFrame(StopReason.BOUNDS, path)
        if count > self.end - self.position:
            raise _BadFrame(StopReason.SHORT, path, self.position + count)
        self.position += count
        return self.view[self.position - count : self.position]

    def advance_to(self, following: int, path: str) -> None:
        """Move to where a kernel says that its value ends."""
        if not self.position <= following <= self.end:
            raise _BadFrame(StopReason.SHORT if following == SHORT else StopReason.MALFORMED, path)
        self.position = following

    def read_record(self, op: ReadRecord) -> None:
        numbers = [0] * len(op.columns)
        self.advance_to(op.kernel.read(self.view, self.position, self.end, op.kernel.table, numbers, 0), op.path)
        self.values.update(zip(op.columns, map(wrap_int64, numbers), strict=True))

    def verify_checksum(self, op: VerifyChecksum) -> None:
        stored, start, end = (evaluate_expression(part, self.values) for part in (op.stored, op.start, op.end))
        if not self.start <= start <= end:
            raise _BadFrame(StopReason.BOUNDS, op.path)
        if end > self.end:
            raise _BadFrame(StopReason.SHORT, op.path, end)
        right = op.checksum(self.view[start:end]) == stored
        if not right and stored != op.absent:
            self.mismatch = self.mismatch or op.path
        self.checksum = max(self.checksum, 1 if right else 2)
