"""What a schema comes down to: a list of operations on one frame, which every scanner executes alike.

Operations run in order at a position that starts at the frame's first byte. Variables are the dotted paths of fields
("header.lsn"); all are signed 64-bit integers (see `expressions`). Fields of a case that was not taken are 0.
"""

from __future__ import annotations

from collections.abc import Iterator

import msgspec

from binlogtool.formats.checksums import Checksum
from binlogtool.formats.fields import RecordKernel, ScalarKernel
from binlogtool.schema.expressions import Expr, Num, references


class Load(msgspec.Struct, frozen=True):
    """Reads an integer of `width` bytes (1..8)."""

    path: str
    width: int
    big: bool
    signed: bool


class Literal(msgspec.Struct, frozen=True):
    """These bytes must come next."""

    path: str
    value: bytes


class Skip(msgspec.Struct, frozen=True):
    """Passes over `length` bytes, which must be there."""

    path: str
    length: Expr


class OneOf(msgspec.Struct, frozen=True):
    """The variable `path` must have one of these values: a magic or a constant."""

    path: str
    values: tuple[int, ...]


class Require(msgspec.Struct, frozen=True):
    """The frame cannot be true unless `test` is."""

    path: str
    test: Expr


class Let(msgspec.Struct, frozen=True):
    """Sets a variable."""

    path: str
    value: Expr


class Position(msgspec.Struct, frozen=True):
    """Sets a variable to the position."""

    path: str


class Left(msgspec.Struct, frozen=True):
    """Sets a variable to the number of bytes that are left. Only of bodies."""

    path: str


class Rest(msgspec.Struct, frozen=True):
    """Takes all that is left. Only of bodies."""

    path: str


class Scalar(msgspec.Struct, frozen=True):
    """Reads one value with a kernel."""

    path: str
    kernel: ScalarKernel


class Record(msgspec.Struct, frozen=True):
    """Reads the variables `columns` (paths, in the kernel's order) with a kernel."""

    path: str
    kernel: RecordKernel
    columns: tuple[str, ...]


class Verify(msgspec.Struct, frozen=True):
    """Compares `stored` with the checksum of `[start, end)`, which lies inside the frame's start and the scan's end.

    absent: the stored value that means "not computed", unless it is the right one.
    """

    path: str
    checksum: Checksum
    stored: Expr
    start: Expr
    end: Expr
    absent: int | None


class Choose(msgspec.Struct, frozen=True):
    """Executes the operations of the first arm whose test is true, else `other`."""

    path: str
    arms: tuple[tuple[Expr, tuple[Op, ...]], ...]
    other: tuple[Op, ...]


class Ahead(msgspec.Struct, frozen=True):
    """Executes the operations, and goes back to where they began. Only of bodies."""

    path: str
    ops: tuple[Op, ...]


class Span(msgspec.Struct, frozen=True):
    """Executes the operations; what they pass over are the bytes of one value. Only of bodies."""

    path: str
    ops: tuple[Op, ...]


class Fit(msgspec.Struct, frozen=True):
    """So many elements, of `smallest` bytes or more each, must fit into what is left. Only of bodies."""

    path: str
    count: Expr
    smallest: int
    what: str


class Many(msgspec.Struct, frozen=True):
    """Executes the operations of an element, which takes a byte at least, so many times. Only of bodies."""

    path: str
    count: Expr
    ops: tuple[Op, ...]


Op = (
    Load | Literal | Skip | OneOf | Require | Let | Position | Left | Rest | Scalar | Record | Verify | Choose
    | Ahead | Span | Fit | Many
)  # fmt: skip


class Program(msgspec.Struct, frozen=True):
    """A lowered schema. variables: every path that a scanner can emit as a column."""

    ops: tuple[Op, ...]
    variables: tuple[str, ...]


def walk(ops: tuple[Op, ...]) -> Iterator[Op]:
    """All operations, those inside of cases and of elements too."""
    for op in ops:
        yield op
        if isinstance(op, Ahead | Span | Many):
            yield from walk(op.ops)
        if isinstance(op, Choose):
            for _, arm in op.arms:
                yield from walk(arm)
            yield from walk(op.other)


def expressions(op: Op) -> tuple[Expr, ...]:
    """The expressions of one operation."""
    match op:
        case Skip(length=expr) | Require(test=expr) | Let(value=expr) | Fit(count=expr) | Many(count=expr):
            return (expr,)
        case Verify(stored=stored, start=start, end=end):
            return (stored, start, end)
        case Choose(arms=arms):
            return tuple(test for test, _ in arms)
    return ()


def used_paths(ops: tuple[Op, ...]) -> set[str]:
    """Variables that some operation needs."""
    used = {path for op in walk(ops) for expr in expressions(op) for path in references(expr)}
    return used | {op.path for op in walk(ops) if isinstance(op, OneOf)}


def defined_paths(op: Op) -> tuple[str, ...]:
    """Variables that one operation sets."""
    match op:
        case Record(columns=columns):
            return columns
        case Load(path=path) | Let(path=path) | Position(path=path) | Left(path=path) | Scalar(path=path):
            return (path,)
    return ()


def size_of(op: Op) -> int | None:
    """Bytes of an operation that always has the same size; None = it has not."""
    match op:
        case Load(width=width):
            return width
        case Literal(value=value):
            return len(value)
        case Skip(length=Num(value=size)):
            return size
    return None


def least_size(ops: tuple[Op, ...]) -> int:
    """No frame is shorter than this many bytes; kernels count as 0."""
    return sum(size_of(op) or 0 for op in ops)


def has_checksum(ops: tuple[Op, ...]) -> bool:
    """Is any checksum verified?"""
    return any(isinstance(op, Verify) for op in walk(ops))
