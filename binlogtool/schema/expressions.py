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


def signed(value: int) -> int:
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


class Not(msgspec.Struct, frozen=True):
    """1 if the operand is 0, else 0."""

    operand: Expr
    lo: int = 0
    hi: int = 1


Expr = Num | Ref | Binary | Not

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
_APPLY: Mapping[str, Callable[[int, int], int]] = {**COMPARISONS, **ARITHMETIC, **LOGIC}


class InexactError(ValueError):
    """The operation cannot be done in 64 bits with the result that Python would give."""


def is_truth(expr: Expr) -> bool:
    """Return True if the value is always 0 or 1."""
    return isinstance(expr, Not) or (isinstance(expr, Binary) and (expr.op in COMPARISONS or expr.op in LOGIC))


def binary(op: str, left: Expr, right: Expr) -> Expr:
    """Return the node for `left op right`, with its bounds.

    Raises:
        InexactError: 64 bits cannot give the result that Python would give.
    """
    if op in "&|" and is_truth(left) and is_truth(right):
        return Binary("and" if op == "&" else "or", left, right, 0, 1)
    if op in COMPARISONS:
        return Binary(op, left, right, 0, 1, unsigned=_compares_unsigned(left, right))
    if op in ("//", "%", ">>", "<<"):
        _require_constant(op, right)
    unsigned = op in ("//", "%", ">>") and left.hi > I64_MAX
    lo, hi = _bounds(op, left, right)
    wraps = lo < I64_MIN or hi > I64_MAX
    if wraps and not (lo >= 0 and hi <= U64):
        lo, hi = I64_MIN, I64_MAX
    if isinstance(left, Num) and isinstance(right, Num):
        value = _APPLY[op](left.value, right.value)
        return Num(value if 0 <= value <= U64 else signed(value))
    return Binary(op, left, right, lo, hi, unsigned, wraps)


def _compares_unsigned(left: Expr, right: Expr) -> bool:
    if max(left.hi, right.hi) <= I64_MAX:
        return False
    if min(left.lo, right.lo) < 0:
        raise InexactError("an unsigned 64-bit value is compared with one that may be negative")
    return True


def _require_constant(op: str, right: Expr) -> None:
    least, most = (0, 63) if op in ("<<", ">>") else (1, I64_MAX)
    if not isinstance(right, Num) or not least <= right.value <= most:
        raise InexactError(f"the right side of {op} must be a constant in {least}..{most}")


def _bounds(op: str, left: Expr, right: Expr) -> tuple[int, int]:
    if op == "%":
        return 0, right.hi - 1
    if op in "&|^":
        return _bit_bounds(op, left, right)
    apply = _APPLY[op]
    corners = [apply(a, b) for a in (left.lo, left.hi) for b in (right.lo, right.hi)]
    return min(corners), max(corners)


def _bit_bounds(op: str, left: Expr, right: Expr) -> tuple[int, int]:
    if op == "&" and (left.lo >= 0 or right.lo >= 0):
        return 0, min(side.hi for side in (left, right) if side.lo >= 0)
    if left.lo >= 0 and right.lo >= 0:
        return 0, (1 << max(left.hi.bit_length(), right.hi.bit_length())) - 1
    if max(left.hi, right.hi) > I64_MAX:
        raise InexactError("an unsigned 64-bit value meets one that may be negative")
    return I64_MIN, I64_MAX


def evaluate(expr: Expr, values: Mapping[str, int]) -> int:
    """Return the value of an expression.

    Args:
        values: Signed 64-bit integers by path.
    """
    if isinstance(expr, Num):
        return signed(expr.value)
    if isinstance(expr, Ref):
        return values[expr.path]
    if isinstance(expr, Not):
        return int(not evaluate(expr.operand, values))
    left, right = evaluate(expr.left, values), evaluate(expr.right, values)
    if expr.unsigned:
        left, right = left & U64, right & U64
    return signed(int(_APPLY[expr.op](left, right)))


def references(expr: Expr) -> Iterator[str]:
    """Yield the paths of the fields that an expression uses, from left to right."""
    if isinstance(expr, Ref):
        yield expr.path
    elif isinstance(expr, Not):
        yield from references(expr.operand)
    elif isinstance(expr, Binary):
        yield from references(expr.left)
        yield from references(expr.right)


class Dialect(msgspec.Struct, frozen=True):
    """Templates for operations that Python's integers and 64-bit machine integers do differently.

    Attributes:
        unsigned: The operand as an unsigned 64-bit integer.
        wrap: The operand wrapped to a signed 64-bit integer.
    """

    unsigned: str
    wrap: str


PYTHON = Dialect(f"({{}} & {U64:#x})", f"((({{}}) + {1 << 63:#x} & {U64:#x}) - {1 << 63:#x})")
MACHINE = Dialect("uint64({})", "int64({})")


def value_source(expr: Expr, names: Mapping[str, str], dialect: Dialect) -> str:
    """Return the source text of a value.

    Args:
        names: Path -> variable.
    """
    if isinstance(expr, Num):
        value = signed(expr.value)
        return str(value) if value > I64_MIN else f"({value + 1} - 1)"
    if isinstance(expr, Ref):
        return names[expr.path]
    if is_truth(expr):
        return f"(1 if {test_source(expr, names, dialect)} else 0)"
    assert isinstance(expr, Binary)
    left, right = (value_source(side, names, dialect) for side in (expr.left, expr.right))
    if expr.unsigned:
        left, right = dialect.unsigned.format(left), dialect.unsigned.format(right)
    text = f"({left} {expr.op} {right})"
    wraps = expr.wraps or (expr.unsigned and (dialect is MACHINE or expr.hi > I64_MAX))
    return dialect.wrap.format(text) if wraps else text


def test_source(expr: Expr, names: Mapping[str, str], dialect: Dialect) -> str:
    """Return the source text of a condition that is true where the value is not 0."""
    if isinstance(expr, Not):
        return f"not ({test_source(expr.operand, names, dialect)})"
    if not is_truth(expr):
        return f"{value_source(expr, names, dialect)} != 0"
    assert isinstance(expr, Binary)
    if expr.op in LOGIC:
        return f"({test_source(expr.left, names, dialect)} {expr.op} {test_source(expr.right, names, dialect)})"
    left, right = (value_source(side, names, dialect) for side in (expr.left, expr.right))
    if expr.unsigned:
        left, right = dialect.unsigned.format(left), dialect.unsigned.format(right)
    return f"{left} {expr.op} {right}"
