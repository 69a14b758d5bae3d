"""Instruction set of compiled schemas: expressions, and operations that parse one frame.

Every value is a signed 64-bit integer, in all scanners. An unsigned 64-bit field is represented by its bit pattern.
Each node has bounds of its true value, so that

* comparisons, divisions and right shifts of unsigned 64-bit values are done unsigned, hence exactly;
* a result that may leave the 64 bits (`this.u64 + 80`) wraps. A schema that must not be fooled by such a sum checks the
  field itself first: `Check(this.u64 < 2**62)` is exact.

Operations run in order at a position that starts at the frame's first byte. Variables are the dotted paths of fields
("header.lsn"); all are signed 64-bit integers. Fields of a case that was not taken are 0.
"""

from __future__ import annotations

import operator
import re
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager

import msgspec

from binlogtool.format_api.layout import Checksum
from binlogtool.format_api.schema_fields import RecordKernel, ScalarKernel

# --- Arithmetic of schemas, independent of construct ---

U64 = (1 << 64) - 1
I64_MAX = (1 << 63) - 1
I64_MIN = -(1 << 63)


def wrap_int64(value: int) -> int:
    """Return the signed 64-bit integer with the same low 64 bits."""
    return value if I64_MIN <= value <= I64_MAX else ((value - I64_MIN) & U64) + I64_MIN


class Num(msgspec.Struct, frozen=True):
    """Constant."""

    value: int

    @property
    def lo(self) -> int:
        """Lower bound: the value itself."""
        return self.value

    @property
    def hi(self) -> int:
        """Upper bound: the value itself."""
        return self.value


class Ref(msgspec.Struct, frozen=True):
    """Value of a field, given by its dotted path; `lo` and `hi` bound its true value."""

    path: str
    lo: int
    hi: int


class Binary(msgspec.Struct, frozen=True):
    """`left op right`. unsigned: both operands are unsigned 64-bit. wraps: the result may exceed signed 64 bits."""

    op: str
    left: Expr
    right: Expr
    lo: int
    hi: int
    unsigned: bool = False
    wraps: bool = False


class LogicalNot(msgspec.Struct, frozen=True):
    """Logical `not`: 1 if the operand is 0, else 0."""

    operand: Expr
    lo: int = 0
    hi: int = 1


Expr = Num | Ref | Binary | LogicalNot

COMPARISONS: Mapping[str, Callable[[int, int], bool]] = {
    "<": operator.lt,
    "<=": operator.le,
    ">": operator.gt,
    ">=": operator.ge,
    "==": operator.eq,
    "!=": operator.ne,
}
ARITHMETIC: Mapping[str, Callable[[int, int], int]] = {
    "+": operator.add,
    "-": operator.sub,
    "*": operator.mul,
    "//": operator.floordiv,
    "%": operator.mod,
    ">>": operator.rshift,
    "<<": operator.lshift,
    "&": operator.and_,
    "|": operator.or_,
    "^": operator.xor,
}
LOGIC: Mapping[str, Callable[[int, int], bool]] = {
    "and": lambda left, right: bool(left) and bool(right),
    "or": lambda left, right: bool(left) or bool(right),
}
_OPERATOR_FUNCTIONS: Mapping[str, Callable[[int, int], int]] = {**COMPARISONS, **ARITHMETIC, **LOGIC}


class InexactError(ValueError):
    """Raised for an operation whose 64-bit result would differ from Python's."""


def is_boolean(expr: Expr) -> bool:
    """Return True if the value is always 0 or 1."""
    return isinstance(expr, LogicalNot) or (isinstance(expr, Binary) and (expr.op in COMPARISONS or expr.op in LOGIC))


def make_binary(op: str, left: Expr, right: Expr) -> Expr:
    """Return the node for `left op right`, with its bounds.

    Raises:
        InexactError: the 64-bit result would differ from Python's.
    """
    if op in "&|" and is_boolean(left) and is_boolean(right):
        return Binary("and" if op == "&" else "or", left, right, 0, 1)
    if op in COMPARISONS:
        return Binary(op, left, right, 0, 1, unsigned=_needs_unsigned_compare(left, right))
    if op in ("//", "%", ">>", "<<"):
        _require_constant(op, right)
    unsigned = op in ("//", "%", ">>") and left.hi > I64_MAX
    lo, hi = _compute_bounds(op, left, right)
    wraps = lo < I64_MIN or hi > I64_MAX
    if wraps and not (lo >= 0 and hi <= U64):
        lo, hi = I64_MIN, I64_MAX
    if isinstance(left, Num) and isinstance(right, Num):
        value = _OPERATOR_FUNCTIONS[op](left.value, right.value)
        return Num(value if 0 <= value <= U64 else wrap_int64(value))
    return Binary(op, left, right, lo, hi, unsigned, wraps)


def _needs_unsigned_compare(left: Expr, right: Expr) -> bool:
    if max(left.hi, right.hi) <= I64_MAX:
        return False
    if min(left.lo, right.lo) < 0:
        raise InexactError("an unsigned 64-bit value is compared with one that may be negative")
    return True


def _require_constant(op: str, right: Expr) -> None:
    min_value, max_value = (0, 63) if op in ("<<", ">>") else (1, I64_MAX)
    if not isinstance(right, Num) or not min_value <= right.value <= max_value:
        raise InexactError(f"the right side of {op} must be a constant in {min_value}..{max_value}")


def _compute_bounds(op: str, left: Expr, right: Expr) -> tuple[int, int]:
    if op == "%":
        return 0, right.hi - 1
    if op in "&|^":
        return _compute_bit_bounds(op, left, right)
    apply = _OPERATOR_FUNCTIONS[op]
    corners = [apply(a, b) for a in (left.lo, left.hi) for b in (right.lo, right.hi)]
    return min(corners), max(corners)


def _compute_bit_bounds(op: str, left: Expr, right: Expr) -> tuple[int, int]:
    if op == "&" and (left.lo >= 0 or right.lo >= 0):
        return 0, min(side.hi for side in (left, right) if side.lo >= 0)
    if left.lo >= 0 and right.lo >= 0:
        return 0, (1 << max(left.hi.bit_length(), right.hi.bit_length())) - 1
    if max(left.hi, right.hi) > I64_MAX:
        raise InexactError("an unsigned 64-bit value meets one that may be negative")
    return I64_MIN, I64_MAX


def evaluate_expression(expr: Expr, values: Mapping[str, int]) -> int:
    """Return the value of an expression. values: signed 64-bit integers by path."""
    if isinstance(expr, Num):
        return wrap_int64(expr.value)
    if isinstance(expr, Ref):
        return values[expr.path]
    if isinstance(expr, LogicalNot):
        return int(not evaluate_expression(expr.operand, values))
    left, right = evaluate_expression(expr.left, values), evaluate_expression(expr.right, values)
    if expr.unsigned:
        left, right = left & U64, right & U64
    return wrap_int64(int(_OPERATOR_FUNCTIONS[expr.op](left, right)))


def iter_references(expr: Expr) -> Iterator[str]:
    """Yield the paths of the fields that an expression uses, from left to right."""
    if isinstance(expr, Ref):
        yield expr.path
    elif isinstance(expr, LogicalNot):
        yield from iter_references(expr.operand)
    elif isinstance(expr, Binary):
        yield from iter_references(expr.left)
        yield from iter_references(expr.right)


class SourceDialect(msgspec.Struct, frozen=True):
    """Templates for operations in which Python's integers and 64-bit machine integers differ.

    Attributes:
        unsigned: The operand as an unsigned 64-bit integer.
        wrap: The operand wrapped to a signed 64-bit integer.
    """

    unsigned: str
    wrap: str


PYTHON = SourceDialect(f"({{}} & {U64:#x})", f"((({{}}) + {1 << 63:#x} & {U64:#x}) - {1 << 63:#x})")
MACHINE = SourceDialect("uint64({})", "int64({})")


def format_value_source(expr: Expr, names: Mapping[str, str], dialect: SourceDialect) -> str:
    """Return the source text of a value. names: path -> variable."""
    if isinstance(expr, Num):
        value = wrap_int64(expr.value)
        return str(value) if value > I64_MIN else f"({value + 1} - 1)"
    if isinstance(expr, Ref):
        return names[expr.path]
    if is_boolean(expr):
        return f"(1 if {format_test_source(expr, names, dialect)} else 0)"
    assert isinstance(expr, Binary)
    left, right = (format_value_source(side, names, dialect) for side in (expr.left, expr.right))
    if expr.unsigned:
        left, right = dialect.unsigned.format(left), dialect.unsigned.format(right)
    text = f"({left} {expr.op} {right})"
    wraps = expr.wraps or (expr.unsigned and (dialect is MACHINE or expr.hi > I64_MAX))
    return dialect.wrap.format(text) if wraps else text


def format_test_source(expr: Expr, names: Mapping[str, str], dialect: SourceDialect) -> str:
    """Return the source text of a condition that is true if the value is not 0."""
    if isinstance(expr, LogicalNot):
        return f"not ({format_test_source(expr.operand, names, dialect)})"
    if not is_boolean(expr):
        return f"{format_value_source(expr, names, dialect)} != 0"
    assert isinstance(expr, Binary)
    if expr.op in LOGIC:
        return (
            f"({format_test_source(expr.left, names, dialect)} {expr.op} "
            f"{format_test_source(expr.right, names, dialect)})"
        )
    left, right = (format_value_source(side, names, dialect) for side in (expr.left, expr.right))
    if expr.unsigned:
        left, right = dialect.unsigned.format(left), dialect.unsigned.format(right)
    return f"{left} {expr.op} {right}"


# --- Helpers for generated source text ---


class SourceLines:
    """Collector of lines of Python source with the current indentation."""

    def __init__(self) -> None:
        self._lines: list[str] = []
        self._depth = 0

    def __call__(self, line: str) -> None:
        """Add one line."""
        self._lines.append("    " * self._depth + line)

    @contextmanager
    def indent(self) -> Iterator[None]:
        """Indent the lines inside the `with` block one level deeper."""
        self._depth += 1
        yield
        self._depth -= 1

    def join(self) -> str:
        """Return all lines."""
        return "\n".join(self._lines) + "\n"


def make_variable_names(paths: tuple[str, ...]) -> dict[str, str]:
    """Return a Python variable for each field path, unique and readable."""
    return {path: f"v{index}_{re.sub('[^A-Za-z0-9]', '_', path)}" for index, path in enumerate(paths)}


# --- Operations on one frame that a schema is lowered to ---


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
    """Skip `length` bytes, which must exist."""

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
    """Set a variable to the current position."""

    path: str


class AssignRemaining(msgspec.Struct, frozen=True):
    """Set a variable to the number of remaining bytes. Only in bodies."""

    path: str


class TakeRest(msgspec.Struct, frozen=True):
    """Consume all remaining bytes. Only in bodies."""

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
        absent: The stored value that means "not computed", unless it is the computed checksum.
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
    """Execute the operations, then restore the position. Only in bodies."""

    path: str
    ops: tuple[Op, ...]


class CaptureBytes(msgspec.Struct, frozen=True):
    """Execute the operations; the bytes that they consume are one value. Only in bodies."""

    path: str
    ops: tuple[Op, ...]


class CheckCount(msgspec.Struct, frozen=True):
    """Require that `count` elements of at least `smallest` bytes fit into the remaining bytes. Only in bodies."""

    path: str
    count: Expr
    smallest: int
    what: str


class Repeat(msgspec.Struct, frozen=True):
    """Execute the operations of an element `count` times; each takes at least a byte. Only in bodies."""

    path: str
    count: Expr
    ops: tuple[Op, ...]


class RepeatToEnd(msgspec.Struct, frozen=True):
    """Repeat the operations until no byte is left; each pass takes at least one byte. Only in bodies."""

    path: str
    ops: tuple[Op, ...]


Op = (
    LoadInteger | ExpectBytes | SkipBytes | RequireOneOf | Require | Assign | AssignPosition | AssignRemaining
        | TakeRest | ReadScalar | ReadRecord | VerifyChecksum | ChooseCase
    | Peek | CaptureBytes | CheckCount | Repeat | RepeatToEnd
)  # fmt: skip


class Program(msgspec.Struct, frozen=True):
    """Lowered schema. variables: every path that a scanner can emit as a column."""

    ops: tuple[Op, ...]
    variables: tuple[str, ...]


def iter_operations(ops: tuple[Op, ...]) -> Iterator[Op]:
    """Yield all operations, including those inside cases and elements."""
    for op in ops:
        yield op
        if isinstance(op, Peek | CaptureBytes | Repeat | RepeatToEnd):
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
    """Return the size in bytes of an operation; None if the size is not constant."""
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
