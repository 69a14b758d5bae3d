"""Arithmetic of schemas, independent of construct: lengths, checks and conditions of cases.

Every value is a signed 64-bit integer, in all scanners alike. An unsigned 64-bit field is its bit pattern. Each node
has bounds of its true value, so that

* comparisons, divisions and right shifts of unsigned 64-bit values are done unsigned, hence exactly;
* a result that may leave the 64 bits (`this.u64 + 80`) wraps. A schema that must not be fooled by such a sum checks
  the
  field itself first: `Check(this.u64 < 2**62)` is exact.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Iterator, Mapping

import msgspec

U64 = (1 << 64) - 1
I64_MAX = (1 << 63) - 1
I64_MIN = -(1 << 63)


def wrap_int64(value: int) -> int:
    """Return the signed 64-bit integer with the same low 64 bits."""
    return value if I64_MIN <= value <= I64_MAX else ((value - I64_MIN) & U64) + I64_MIN


class Num(msgspec.Struct, frozen=True):
    """A constant."""

    value: int

    @property
    def lo(self) -> int:
        """Least value."""
        return self.value

    @property
    def hi(self) -> int:
        """Greatest value."""
        return self.value


class Ref(msgspec.Struct, frozen=True):
    """The value of a field, by its dotted path; `lo` and `hi` bound its true value."""

    path: str
    lo: int
    hi: int


class Binary(msgspec.Struct, frozen=True):
    """`left op right`. unsigned: both are taken as unsigned 64-bit; wraps: the result may leave the signed 64 bits."""

    op: str
    left: Expr
    right: Expr
    lo: int
    hi: int
    unsigned: bool = False
    wraps: bool = False


class LogicalNot(msgspec.Struct, frozen=True):
    """1 if the operand is 0, else 0."""

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
    """The operation cannot be done in 64 bits with the result that Python would give."""


def is_boolean(expr: Expr) -> bool:
    """Return True if the value is always 0 or 1."""
    return isinstance(expr, LogicalNot) or (isinstance(expr, Binary) and (expr.op in COMPARISONS or expr.op in LOGIC))


def make_binary(op: str, left: Expr, right: Expr) -> Expr:
    """Return the node for `left op right`, with its bounds.

    Raises:
        InexactError: 64 bits cannot give the result that Python would give.
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
    """Return the value of an expression.

    Args:
        values: Signed 64-bit integers by path.
    """
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
    """Templates for operations that Python's integers and 64-bit machine integers do differently.

    Attributes:
        unsigned: The operand as an unsigned 64-bit integer.
        wrap: The operand wrapped to a signed 64-bit integer.
    """

    unsigned: str
    wrap: str


PYTHON = SourceDialect(f"({{}} & {U64:#x})", f"((({{}}) + {1 << 63:#x} & {U64:#x}) - {1 << 63:#x})")
MACHINE = SourceDialect("uint64({})", "int64({})")


def format_value_source(expr: Expr, names: Mapping[str, str], dialect: SourceDialect) -> str:
    """Return the source text of a value.

    Args:
        names: Path -> variable.
    """
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
    """Return the source text of a condition that is true where the value is not 0."""
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
