"""Positions, outputs, unset variables and errors that all generated readers of bodies share."""

from __future__ import annotations

from typing import NamedTuple

from binlogtool.formats.bodies import cut
from binlogtool.formats.fields import SHORT, MalformedError
from binlogtool.schema.operations import Ahead, Choose, Many, Op, Rest, Skip, Span, defined_paths, used_paths, walk


class Place(NamedTuple):
    """A position in the body: a variable ("" = the start of the body) and an offset from it."""

    base: str
    offset: int

    def __str__(self) -> str:
        if not self.base:
            return str(self.offset)
        return f"{self.base} + {self.offset}" if self.offset else self.base

    def behind(self, size: int) -> Place:
        """Return the position `size` bytes further."""
        return Place(self.base, self.offset + size)

    @property
    def term(self) -> str:
        """The position as an operand of a subtraction."""
        return f"({self})" if self.base and self.offset else str(self)


def sets(op: Op) -> tuple[str, ...]:
    """Return the paths of the variables, bytes and lists that an operation gives."""
    return (*defined_paths(op), *([op.path] if isinstance(op, Skip | Rest | Span | Many) else []))


def unset(ops: tuple[Op, ...], elsewhere: set[str]) -> set[str]:
    """Return the variables that are used although the case that sets them may not be taken; they are 0 then.

    Args:
        used_elsewhere: Variables that are used beside these operations, set or not.
    """
    found: set[str] = set()
    ops = tuple(one for op in ops for one in (op.ops if isinstance(op, Ahead | Span) else (op,)))
    for index, op in enumerate(ops):
        if isinstance(op, Choose):
            others = elsewhere | used_paths((*ops[:index], *ops[index + 1 :]))
            found |= {path for one in walk((op,)) for path in defined_paths(one)} & others
            for branch in (*(arm for _, arm in op.arms), op.other):
                found |= unset(branch, others)
    return found


def short(sizes: tuple[tuple[str, int], ...], left: int) -> MalformedError:
    """Return the error for the first of neighbouring fields (name, size) that does not fit into `left` bytes."""
    for name, size in sizes:
        if not 0 <= size <= left:
            return cut(name, size, left)
        left -= size
    raise AssertionError(sizes)


def wrong(name: str, why: int, left: int) -> MalformedError:
    """Return the error for a value that its kernel refused with this code."""
    if why == SHORT:
        return MalformedError(f"{name} is cut off, {max(left, 0):,} bytes left", finding_id="length-out-of-bounds")
    return MalformedError(f"{name} is no value of its type")
