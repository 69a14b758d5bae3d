"""Classify operations for the Python walk: which ones share a bounds check, and how `struct` reads fields."""

from __future__ import annotations

from collections.abc import Iterator

from binlogtool.formats.fields import RecordForm, ScalarForm
from binlogtool.schema.expressions import Num
from binlogtool.schema.operations import (
    Assign,
    AssignPosition,
    ChooseCase,
    ExpectBytes,
    LoadInteger,
    Op,
    ReadRecord,
    ReadScalar,
    Require,
    RequireOneOf,
    SkipBytes,
    get_fixed_size,
    iter_operations,
    list_defined_paths,
)

FixedOp = LoadInteger | ExpectBytes | SkipBytes
ComputedOp = RequireOneOf | Require | Assign | AssignPosition

STRUCT_CODES = {1: "b", 2: "h", 4: "i", 8: "q"}
_CODE_SIZES = {"b": 1, "h": 2, "i": 4, "l": 4, "q": 8}


def take_bounded_run(ops: tuple[Op, ...]) -> Iterator[Op]:
    """Yield the first operations whose bounds one test can check, and the computations among them."""
    for op in ops:
        constant = isinstance(op, LoadInteger | ExpectBytes) or (
            isinstance(op, SkipBytes) and isinstance(op.length, Num)
        )
        if not constant and not isinstance(op, ComputedOp) and not is_speculative(op):
            return
        yield op


def is_speculative(op: Op) -> bool:
    """Return True if the kernel of this field declares its common encodings."""
    return (isinstance(op, ReadScalar) and bool(op.kernel.forms)) or (
        isinstance(op, ReadRecord) and bool(op.kernel.shapes)
    )


def compute_max_size(op: Op) -> int:
    """Return the most bytes that an operation of a bounded run takes (a scalar: in one of its forms)."""
    match op:
        case ReadScalar(kernel=kernel):
            return max((form.max_size for form in kernel.forms), default=0)
        case ReadRecord(kernel=kernel):
            return max((shape.size for shape in kernel.shapes), default=0)
    return get_fixed_size(op) or 0


def format_range_test(form: ScalarForm | RecordForm) -> str:
    """Return the source of the test that the first byte `t` belongs to this form."""
    if form.first == form.last:
        return f"t == {form.first}"
    return f"t <= {form.last}" if form.first == 0 else f"{form.first} <= t <= {form.last}"


def get_struct_code(op: LoadInteger) -> str:
    """Return the `struct` code of an integer; "Ns" = read as bytes."""
    code = STRUCT_CODES.get(op.width)
    if code is None:
        return f"{op.width}s"
    return code if op.signed or op.width == 8 else code.upper()


def get_code_size(code: str) -> int:
    """Return the number of bytes of a code."""
    return int(code[:-1]) if code.endswith("s") else _CODE_SIZES[code.lower()]


def has_byte_order(code: str) -> bool:
    """Return True if the byte order matters to this code."""
    return not code.endswith("s") and get_code_size(code) > 1


def find_case_variables(op: ChooseCase) -> set[str]:
    """Return the variables that the cases set."""
    return {path for each in iter_operations((op,)) for path in list_defined_paths(each)}
