"""Positions, outputs, unset variables and errors that all generated readers of bodies share."""

from __future__ import annotations

from typing import NamedTuple

from binlogtool.formats.bodies import make_truncation_error
from binlogtool.formats.fields import SHORT, MalformedError
from binlogtool.schema.operations import (
    CaptureBytes,
    ChooseCase,
    Op,
    Peek,
    Repeat,
    SkipBytes,
    TakeRest,
    find_used_paths,
    iter_operations,
    list_defined_paths,
)


class BodyPosition(NamedTuple):
    """A position in the body: a variable ("" = the start of the body) and an offset from it."""

    base: str
    offset: int

    def __str__(self) -> str:
        if not self.base:
            return str(self.offset)
        return f"{self.base} + {self.offset}" if self.offset else self.base

    def advance(self, size: int) -> BodyPosition:
        """Return the position `size` bytes further."""
        return BodyPosition(self.base, self.offset + size)

    @property
    def term(self) -> str:
        """The position as an operand of a subtraction."""
        return f"({self})" if self.base and self.offset else str(self)


def list_outputs(op: Op) -> tuple[str, ...]:
    """Return the paths of the variables, bytes and lists that an operation gives."""
    return (
        *list_defined_paths(op),
        *([op.path] if isinstance(op, SkipBytes | TakeRest | CaptureBytes | Repeat) else []),
    )


def find_unset_variables(ops: tuple[Op, ...], used_elsewhere: set[str]) -> set[str]:
    """Return the variables that are used although the case that sets them may not be taken; they are 0 then.

    Args:
        used_elsewhere: Variables that are used beside these operations, set or not.
    """
    unset_paths: set[str] = set()
    ops = tuple(one for op in ops for one in (op.ops if isinstance(op, Peek | CaptureBytes) else (op,)))
    for index, op in enumerate(ops):
        if isinstance(op, ChooseCase):
            used_by_others = used_elsewhere | find_used_paths((*ops[:index], *ops[index + 1 :]))
            unset_paths |= {path for one in iter_operations((op,)) for path in list_defined_paths(one)} & used_by_others
            for branch in (*(arm for _, arm in op.arms), op.other):
                unset_paths |= find_unset_variables(branch, used_by_others)
    return unset_paths


def make_short_error(sizes: tuple[tuple[str, int], ...], left: int) -> MalformedError:
    """Return the error for the first of neighbouring fields (name, size) that does not fit into `left` bytes."""
    for name, size in sizes:
        if not 0 <= size <= left:
            return make_truncation_error(name, size, left)
        left -= size
    raise AssertionError(sizes)


def make_value_error(name: str, code: int, left: int) -> MalformedError:
    """Return the error for a value that its kernel refused with this code."""
    if code == SHORT:
        return MalformedError(f"{name} is cut off, {max(left, 0):,} bytes left", finding_id="length-out-of-bounds")
    return MalformedError(f"{name} is no value of its type")
