"""Operations on one frame that a schema is lowered to; every scanner executes them alike.

They run in order at a position that starts at the frame's first byte. Variables are the dotted paths of fields
("header.lsn"); all are signed 64-bit integers (see `expressions`). Fields of a case that was not taken are 0.
"""

from __future__ import annotations

from collections.abc import Iterator

import msgspec

from binlogtool.formats.checksums import Checksum
from binlogtool.formats.fields import RecordKernel, ScalarKernel
from binlogtool.schema.expressions import Expr, Num, iter_references


class LoadInteger(msgspec.Struct, frozen=True):
    """Load an integer of `width` bytes (1..8)."""

    path: str
    width: int
    big: bool
    signed: bool


class ExpectBytes(msgspec.Struct, frozen=True):
    """Require that these bytes come next."""

    path: str
    value: bytes


class SkipBytes(msgspec.Struct, frozen=True):
    """Pass over `length` bytes, which must be there."""

    path: str
    length: Expr


class RequireOneOf(msgspec.Struct, frozen=True):
    """Require that the variable `path` has one of these values: a magic or a constant."""

    path: str
    values: tuple[int, ...]


class Require(msgspec.Struct, frozen=True):
    """Require that `test` is true."""

    path: str
    test: Expr


class Assign(msgspec.Struct, frozen=True):
    """Set a variable to the value of an expression."""

    path: str
    value: Expr


class AssignPosition(msgspec.Struct, frozen=True):
    """Set a variable to the position."""

    path: str


class AssignRemaining(msgspec.Struct, frozen=True):
    """Set a variable to the number of bytes that are left. Only in bodies."""

    path: str


class TakeRest(msgspec.Struct, frozen=True):
    """Take all bytes that are left. Only in bodies."""

    path: str


class ReadScalar(msgspec.Struct, frozen=True):
    """Read one value with a kernel."""

    path: str
    kernel: ScalarKernel


class ReadRecord(msgspec.Struct, frozen=True):
    """Read the variables `columns` (paths, in the kernel's order) with a kernel."""

    path: str
    kernel: RecordKernel
    columns: tuple[str, ...]


class VerifyChecksum(msgspec.Struct, frozen=True):
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


class ChooseCase(msgspec.Struct, frozen=True):
    """Execute the operations of the first arm whose test is true, else `other`."""

    path: str
    arms: tuple[tuple[Expr, tuple[Op, ...]], ...]
    other: tuple[Op, ...]


class Peek(msgspec.Struct, frozen=True):
    """Execute the operations, then return to the position before them. Only in bodies."""

    path: str
    ops: tuple[Op, ...]


class CaptureBytes(msgspec.Struct, frozen=True):
    """Execute the operations; the bytes that they pass over are one value. Only in bodies."""

    path: str
    ops: tuple[Op, ...]


class CheckCount(msgspec.Struct, frozen=True):
    """Require that `count` elements of at least `smallest` bytes fit into what is left. Only in bodies."""

    path: str
    count: Expr
    smallest: int
    what: str


class Repeat(msgspec.Struct, frozen=True):
    """Execute the operations of an element `count` times; each takes at least a byte. Only in bodies."""

    path: str
    count: Expr
    ops: tuple[Op, ...]


Op = (
    LoadInteger | ExpectBytes | SkipBytes | RequireOneOf | Require | Assign | AssignPosition | AssignRemaining
        | TakeRest | ReadScalar | ReadRecord | VerifyChecksum | ChooseCase
    | Peek | CaptureBytes | CheckCount | Repeat
)  # fmt: skip


class Program(msgspec.Struct, frozen=True):
    """A lowered schema.

    Attributes:
        variables: Every path that a scanner can emit as a column.
    """

    ops: tuple[Op, ...]
    variables: tuple[str, ...]


def iter_operations(ops: tuple[Op, ...]) -> Iterator[Op]:
    """Yield all operations, also those inside of cases and elements."""
    for op in ops:
        yield op
        if isinstance(op, Peek | CaptureBytes | Repeat):
            yield from iter_operations(op.ops)
        if isinstance(op, ChooseCase):
            for _, arm in op.arms:
                yield from iter_operations(arm)
            yield from iter_operations(op.other)


def list_expressions(op: Op) -> tuple[Expr, ...]:
    """Return the expressions of one operation."""
    match op:
        case (
            SkipBytes(length=expr)
            | Require(test=expr)
            | Assign(value=expr)
            | CheckCount(count=expr)
            | Repeat(count=expr)
        ):
            return (expr,)
        case VerifyChecksum(stored=stored, start=start, end=end):
            return (stored, start, end)
        case ChooseCase(arms=arms):
            return tuple(test for test, _ in arms)
    return ()


def find_used_paths(ops: tuple[Op, ...]) -> set[str]:
    """Return the variables that the operations need."""
    used = {path for op in iter_operations(ops) for expr in list_expressions(op) for path in iter_references(expr)}
    return used | {op.path for op in iter_operations(ops) if isinstance(op, RequireOneOf)}


def list_defined_paths(op: Op) -> tuple[str, ...]:
    """Return the variables that one operation sets."""
    match op:
        case ReadRecord(columns=columns):
            return columns
        case (
            LoadInteger(path=path)
            | Assign(path=path)
            | AssignPosition(path=path)
            | AssignRemaining(path=path)
            | ReadScalar(path=path)
        ):
            return (path,)
    return ()


def get_fixed_size(op: Op) -> int | None:
    """Return the bytes of an operation that always has the same size; None if it has not."""
    match op:
        case LoadInteger(width=width):
            return width
        case ExpectBytes(value=value):
            return len(value)
        case SkipBytes(length=Num(value=size)):
            return size
    return None


def compute_min_size(ops: tuple[Op, ...]) -> int:
    """Return a lower bound of the size in bytes; kernels count as 0."""
    return sum(get_fixed_size(op) or 0 for op in ops)


def has_checksum(ops: tuple[Op, ...]) -> bool:
    """Return True if any checksum is verified."""
    return any(isinstance(op, VerifyChecksum) for op in iter_operations(ops))
