"""Classify operations for the Python walk: which ones share a bounds check, and how `struct` reads fields."""

from __future__ import annotations

from collections.abc import Iterator

from binlogtool.formats.fields import Form, Shape
from binlogtool.schema.expressions import Num
from binlogtool.schema.operations import (
    Choose,
    Let,
    Literal,
    Load,
    OneOf,
    Op,
    Position,
    Record,
    Require,
    Scalar,
    Skip,
    defined_paths,
    size_of,
    walk,
)

Static = Load | Literal | Skip
Pure = OneOf | Require | Let | Position

CODES = {1: "b", 2: "h", 4: "i", 8: "q"}
_BYTES = {"b": 1, "h": 2, "i": 4, "l": 4, "q": 8}


def stretch_of(ops: tuple[Op, ...]) -> Iterator[Op]:
    """Yield the first operations whose bounds one test can check, and the computations among them."""
    for op in ops:
        constant = isinstance(op, Load | Literal) or (isinstance(op, Skip) and isinstance(op.length, Num))
        if not constant and not isinstance(op, Pure) and not is_speculative(op):
            return
        yield op


def is_speculative(op: Op) -> bool:
    """Return True if the kernel of this field declares its common encodings."""
    return (isinstance(op, Scalar) and bool(op.kernel.forms)) or (isinstance(op, Record) and bool(op.kernel.shapes))


def greatest(op: Op) -> int:
    """Return the most bytes that an operation of a bounded run takes (a scalar: in one of its forms)."""
    match op:
        case Scalar(kernel=kernel):
            return max((form.largest for form in kernel.forms), default=0)
        case Record(kernel=kernel):
            return max((shape.size for shape in kernel.shapes), default=0)
    return size_of(op) or 0


def range_test(form: Form | Shape) -> str:
    """Return the source of the test that the first byte `t` belongs to this form."""
    if form.first == form.last:
        return f"t == {form.first}"
    return f"t <= {form.last}" if form.first == 0 else f"{form.first} <= t <= {form.last}"


def code_of(op: Load) -> str:
    """Return the `struct` code of an integer; "Ns" = read as bytes."""
    code = CODES.get(op.width)
    if code is None:
        return f"{op.width}s"
    return code if op.signed or op.width == 8 else code.upper()


def code_bytes(code: str) -> int:
    """Return the number of bytes of a code."""
    return int(code[:-1]) if code.endswith("s") else _BYTES[code.lower()]


def is_ordered(code: str) -> bool:
    """Return True if the byte order matters to this code."""
    return not code.endswith("s") and code_bytes(code) > 1


def set_inside(op: Choose) -> set[str]:
    """Return the variables that the cases set."""
    return {path for each in walk((op,)) for path in defined_paths(each)}
