"""Operations on one frame that a schema is lowered to; every scanner executes them alike.

They run in order at a position that starts at the frame's first byte. Variables are the dotted paths of fields
("header.lsn"); all are signed 64-bit integers (see `expressions`). Fields of a case that was not taken are 0.
"""

from __future__ import annotations

from collections.abc import Iterator

import msgspec

from binlogtool.formats.checksums import Checksum
from binlogtool.formats.fields import RecordKernel, ScalarKernel
from binlogtool.schema.expressions import Expr, Num, references


class Load(msgspec.Struct, frozen=True):
    """Load an integer of `width` bytes (1..8)."""

    path: str
    width: int
    big: bool
    signed: bool


class Literal(msgspec.Struct, frozen=True):
    """Require that these bytes come next."""

    path: str
    value: bytes


class Skip(msgspec.Struct, frozen=True):
    """Pass over `length` bytes, which must be there."""

    path: str
    length: Expr


class OneOf(msgspec.Struct, frozen=True):
    """Require that the variable `path` has one of these values: a magic or a constant."""

    path: str
    values: tuple[int, ...]


class Require(msgspec.Struct, frozen=True):
    """Require that `test` is true."""

    path: str
    test: Expr


class Let(msgspec.Struct, frozen=True):
    """Set a variable to the value of an expression."""

    path: str
    value: Expr


class Position(msgspec.Struct, frozen=True):
    """Set a variable to the position."""

    path: str


class Left(msgspec.Struct, frozen=True):
    """Set a variable to the number of bytes that are left. Only in bodies."""

    path: str


class Rest(msgspec.Struct, frozen=True):
    """Take all bytes that are left. Only in bodies."""

    path: str


class Scalar(msgspec.Struct, frozen=True):
    """Read one value with a kernel."""

    path: str
    kernel: ScalarKernel


class Record(msgspec.Struct, frozen=True):
    """Read the variables `columns` (paths, in the kernel's order) with a kernel."""

    path: str
    kernel: RecordKernel
    columns: tuple[str, ...]


class Verify(msgspec.Struct, frozen=True):
    """Compare `stored` with the checksum of `[start, end)`, between the frame's start and the scan's end.

    Attributes:
        absent: The stored value that means "not computed", unless it is the right one.
    """

    path: str
    checksum: Checksum
    stored: Expr
    start: Expr
    end: Expr
    absent: int | None


class Choose(msgspec.Struct, frozen=True):
    """Execute the operations of the first arm whose test is true, else `other`."""

    path: str
    arms: tuple[tuple[Expr, tuple[Op, ...]], ...]
    other: tuple[Op, ...]


class Ahead(msgspec.Struct, frozen=True):
    """Execute the operations, then return to the position before them. Only in bodies."""

    path: str
    ops: tuple[Op, ...]


class Span(msgspec.Struct, frozen=True):
    """Execute the operations; the bytes that they pass over are one value. Only in bodies."""

    path: str
    ops: tuple[Op, ...]


class Fit(msgspec.Struct, frozen=True):
    """Require that `count` elements of at least `smallest` bytes fit into what is left. Only in bodies."""

    path: str
    count: Expr
    smallest: int
    what: str


class Many(msgspec.Struct, frozen=True):
    """Execute the operations of an element `count` times; each takes at least a byte. Only in bodies."""

    path: str
    count: Expr
    ops: tuple[Op, ...]


Op = (
    Load | Literal | Skip | OneOf | Require | Let | Position | Left | Rest | Scalar | Record | Verify | Choose
    | Ahead | Span | Fit | Many
)  # fmt: skip


class Program(msgspec.Struct, frozen=True):
    """A lowered schema.

    Attributes:
        variables: Every path that a scanner can emit as a column.
    """

    ops: tuple[Op, ...]
    variables: tuple[str, ...]


def walk(ops: tuple[Op, ...]) -> Iterator[Op]:
    """Yield all operations, also those inside of cases and elements."""
    for op in ops:
        yield op
        if isinstance(op, Ahead | Span | Many):
            yield from walk(op.ops)
        if isinstance(op, Choose):
            for _, arm in op.arms:
                yield from walk(arm)
            yield from walk(op.other)


def expressions(op: Op) -> tuple[Expr, ...]:
    """Return the expressions of one operation."""
    match op:
        case Skip(length=expr) | Require(test=expr) | Let(value=expr) | Fit(count=expr) | Many(count=expr):
            return (expr,)
        case Verify(stored=stored, start=start, end=end):
            return (stored, start, end)
        case Choose(arms=arms):
            return tuple(test for test, _ in arms)
    return ()


def used_paths(ops: tuple[Op, ...]) -> set[str]:
    """Return the variables that the operations need."""
    used = {path for op in walk(ops) for expr in expressions(op) for path in references(expr)}
    return used | {op.path for op in walk(ops) if isinstance(op, OneOf)}


def defined_paths(op: Op) -> tuple[str, ...]:
    """Return the variables that one operation sets."""
    match op:
        case Record(columns=columns):
            return columns
        case Load(path=path) | Let(path=path) | Position(path=path) | Left(path=path) | Scalar(path=path):
            return (path,)
    return ()


def size_of(op: Op) -> int | None:
    """Return the bytes of an operation that always has the same size; None if it has not."""
    match op:
        case Load(width=width):
            return width
        case Literal(value=value):
            return len(value)
        case Skip(length=Num(value=size)):
            return size
    return None


def least_size(ops: tuple[Op, ...]) -> int:
    """Return a lower bound of the size in bytes; kernels count as 0."""
    return sum(size_of(op) or 0 for op in ops)


def has_checksum(ops: tuple[Op, ...]) -> bool:
    """Return True if any checksum is verified."""
    return any(isinstance(op, Verify) for op in walk(ops))
