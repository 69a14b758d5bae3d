"""Compile a construct schema to operations.

This module and `schema.lower_body_schema` are the only code that lowers construct's classes.

Supported are: Struct, named fields, integers of 1..8 bytes (also signed; floats as their bit pattern), Bytes, Padding,
Const, Tell, Check, Computed, If, IfThenElse, Switch, Enum and other adapters over integers (the raw value), Magic,
CrcCheck, nested schemas (their bytes) and every class with a kernel in its attribute `scan` or `kernel`. Expressions
are construct's `this` objects; Python functions are opaque and refused.
"""

from __future__ import annotations

import operator
import struct
import sys
from collections.abc import Callable, Iterator, Mapping
from functools import lru_cache
from typing import Any, NamedTuple

import construct
import msgspec
from construct import expr as cexpr

from binlogtool.format_api.layout import Checksum
from binlogtool.format_api.schema_fields import (
    AnyFlagSet,
    CrcCheck,
    FieldPresent,
    HighBitSet,
    LeafFormat,
    Magic,
    NestedSchema,
    RecordKernel,
    ScalarKernel,
)
from binlogtool.schema.schema_operations import (
    ARITHMETIC,
    COMPARISONS,
    I64_MAX,
    I64_MIN,
    U64,
    Assign,
    AssignPosition,
    ChooseCase,
    ExpectBytes,
    Expr,
    InexactError,
    LoadInteger,
    LogicalNot,
    Num,
    Op,
    Program,
    ReadRecord,
    ReadScalar,
    Ref,
    Require,
    RequireOneOf,
    SkipBytes,
    VerifyChecksum,
    iter_operations,
    iter_references,
    list_defined_paths,
    make_binary,
    wrap_int64,
)

# --- Field names and `this` expressions ---


class UnlowerableError(Exception):
    """Raised for a field that cannot be compiled for a generated scanner; the message starts with its dotted path."""

    def __init__(self, path: str, why: str) -> None:
        super().__init__(f"{path or 'schema'}: {why}")
        self.path = path


class NoInteger(msgspec.Struct, frozen=True):
    """Binding of a name whose value is not an integer, so no expression may use it."""

    why: str


class NamedInteger(msgspec.Struct, frozen=True):
    """Binding of an Enum: an integer that expressions compare by name."""

    ref: Ref
    numbers: Mapping[str, int]


class ByteRangeField(msgspec.Struct, frozen=True):
    """Binding of bytes of the operation at `path`. leaf: their shown form; None = as bytes. given: see `LeafFormat`."""

    path: str
    leaf: LeafFormat | None = None
    given: tuple[Ref | ByteRangeField | ListField, ...] = ()


class FlagInteger(msgspec.Struct, frozen=True):
    """Binding of an integer whose bits have names."""

    ref: Ref
    masks: Mapping[str, int]


class MaskedInt(msgspec.Struct, frozen=True):
    """Binding of an integer without its highest bits, which are `mark`."""

    ref: Ref
    mark: Ref


class ListField(msgspec.Struct, frozen=True):
    """Binding of a list. element: binding of each element, inside the operation at `path`."""

    path: str
    element: Binding


class Conditional(msgspec.Struct, frozen=True):
    """Binding of a field that exists if `test` is not 0."""

    inner: Binding
    test: Expr


class HiddenBinding(msgspec.Struct, frozen=True):
    """Binding of a field that is not shown."""

    inner: Binding


class TitledField(msgspec.Struct, frozen=True):
    """Binding of a field that is shown under another name."""

    inner: Binding
    title: str


class StructScope(msgspec.Struct):
    """Names that `this` has inside one Struct (or in the columns of a record kernel)."""

    prefix: str
    parent: StructScope | None = None
    names: dict[str, Binding] = msgspec.field(default_factory=dict)


Binding = (
    Ref
    | NamedInteger
    | StructScope
    | NoInteger
    | ByteRangeField
    | FlagInteger
    | MaskedInt
    | ListField
    | Conditional
    | HiddenBinding
    | TitledField
)

NO_VALUE = NoInteger("it has no value")
_OPERATORS: Mapping[Any, str] = {function: name for name, function in {**ARITHMETIC, **COMPARISONS}.items()}


def merge_bindings(left: Binding, right: Binding) -> Binding:
    """Return the binding of a name after a choice between two cases; a value that a case lacks is 0."""
    if isinstance(left, StructScope) or isinstance(right, StructScope):
        sides = [side for side in (left, right) if isinstance(side, StructScope)]
        names = dict.fromkeys(name for side in sides for name in side.names)
        names_in_both = {name: merge_bindings(*(_get_binding(side, name) for side in (left, right))) for name in names}
        return StructScope(sides[0].prefix, sides[0].parent, names_in_both)
    if isinstance(left, HiddenBinding) and isinstance(right, HiddenBinding):
        return HiddenBinding(merge_bindings(left.inner, right.inner))
    refs = [side for side in (left, right) if isinstance(side, Ref)]
    if len(refs) + sum(side is NO_VALUE for side in (left, right)) < 2 or not refs:
        return left if left == right else NoInteger("its value differs from case to case")
    return Ref(refs[0].path, min(0, *(r.lo for r in refs)), max(0, *(r.hi for r in refs)))


def _get_binding(binding: Binding, name: str) -> Binding:
    return binding.names.get(name, NO_VALUE) if isinstance(binding, StructScope) else NO_VALUE


def lower_expression(value: Any, path: str, scope: StructScope) -> Expr:
    """Lower an expression of construct at `path`.

    Raises:
        UnlowerableError: it cannot be lowered.
        InexactError: the 64-bit result would differ from Python's.
    """
    if isinstance(value, cexpr.BinExpr):
        return _lower_binary(value, path, scope)
    if isinstance(value, cexpr.UniExpr):
        return _lower_unary(value, path, scope)
    if isinstance(value, cexpr.Path):
        return _require_integer(_resolve_path(value, path, scope), value, path)
    if isinstance(value, FieldPresent | HighBitSet | AnyFlagSet):
        return _lower_condition(value, path, scope)
    if isinstance(value, int) and I64_MIN <= value <= U64:
        return Num(int(value))
    if isinstance(value, cexpr.FuncPath | cexpr.Path2):
        raise UnlowerableError(path, f"{value!r} cannot be lowered")
    if callable(value):
        raise UnlowerableError(path, "a Python function is opaque to the scanner: write it with `this`")
    raise UnlowerableError(path, f"{value!r} is not a 64-bit integer")


def _lower_condition(value: FieldPresent | HighBitSet | AnyFlagSet, path: str, scope: StructScope) -> Expr:
    binding = scope.names.get(value.name)
    inner = None if binding is None else unwrap_binding(binding)
    match value:
        case FieldPresent() if isinstance(binding, Conditional):
            return binding.test
        case HighBitSet() if isinstance(inner, MaskedInt):
            return inner.mark
        case AnyFlagSet(flags=flags) if isinstance(inner, FlagInteger) and inner.masks.keys() >= set(flags):
            return make_binary("&", inner.ref, Num(sum(inner.masks[flag] for flag in flags)))
    raise UnlowerableError(path, f"{value!r} does not refer to a suitable field before this one")


def unwrap_binding(binding: Binding) -> Binding:
    """Return the binding of a name without conditions, titles and hiding."""
    while isinstance(binding, Conditional | HiddenBinding | TitledField):
        binding = binding.inner
    return binding


def _require_integer(binding: Binding, source: Any, path: str) -> Ref:
    binding = unwrap_binding(binding)
    if isinstance(binding, FlagInteger | MaskedInt):
        return binding.ref
    if isinstance(binding, Ref):
        return binding
    reason = {
        NamedInteger: "an Enum is compared by name",
        StructScope: "it is a group of fields",
        ByteRangeField: "its value is bytes",
    }.get(type(binding))
    raise UnlowerableError(path, f"{source!r} cannot be used in an expression: {reason or getattr(binding, 'why', '')}")


def _lower_unary(value: Any, path: str, scope: StructScope) -> Expr:
    operand = lower_expression(value.operand, path, scope)
    if value.op is operator.not_:
        return LogicalNot(operand)
    return make_binary("-", Num(0), operand) if value.op is operator.neg else operand


def _lower_binary(value: Any, path: str, scope: StructScope) -> Expr:
    op = _OPERATORS.get(value.op)
    if op is None:
        raise UnlowerableError(path, f"the operator of {value!r} cannot be lowered")
    sides = (value.lhs, value.rhs)
    if op in ("==", "!="):
        for enum_side, other_side in (sides, sides[::-1]):
            enum = unwrap_binding(_resolve_path(enum_side, path, scope)) if isinstance(enum_side, cexpr.Path) else None
            if isinstance(enum, NamedInteger):
                return make_binary(op, enum.ref, _enum_number(enum, other_side, path))
    return make_binary(op, *(lower_expression(side, path, scope) for side in sides))


def _enum_number(enum: NamedInteger, name: Any, path: str) -> Num:
    if not isinstance(name, str) or str(name) not in enum.numbers:
        raise UnlowerableError(path, f"{name!r} is not a name of the Enum {enum.ref.path}")
    return Num(enum.numbers[str(name)])


def _iter_path_names(value: Any) -> Iterator[str]:
    """Yield the names of a `this` path, from left to right."""
    parent = value._Path__parent
    if parent is not None:
        yield from _iter_path_names(parent)
        yield value._Path__field
    elif value._Path__name != "this":
        yield f"<{value._Path__name}>"


def _resolve_path(value: Any, path: str, scope: StructScope) -> Binding:
    binding: Binding | None = scope
    for name in _iter_path_names(value):
        binding = binding if binding is None else unwrap_binding(binding)
        if not isinstance(binding, StructScope):
            break
        binding = _resolve_name(binding, name)
    if binding is None:
        raise UnlowerableError(path, f"{value!r} is not a field before this one")
    return binding


def _resolve_name(scope: StructScope, name: str) -> Binding | None:
    if name == "_":
        return scope.parent
    if name == "_root":
        # The first scope represents construct's outermost context, which has no fields.
        while scope.parent is not None and scope.parent.parent is not None:
            scope = scope.parent
        return scope
    return scope.names.get(name)


# --- Lowering of construct schemas ---

SCANNER_COLUMNS = ("offset", "end", "checksum", "span")

POSITION_MAX = 1 << 56
"""Largest position; far beyond any file, but sums of positions stay within 64 bits."""


_TRANSPARENT = (NestedSchema, construct.Rebuild, construct.Default, construct.Hex, construct.HexDump)


def lower_schema(schema: construct.Construct, columns: tuple[str, ...] = ()) -> Program:
    """Lower a schema to a program that produces these columns.

    Raises:
        UnlowerableError: a field cannot be compiled, or a column is no integer field; the message names it.
    """
    lowering = Lowering()
    while isinstance(schema, construct.Renamed):
        schema = schema.subcon
    lowering.lower_node(schema, "", StructScope(""))
    ops = tuple(lowering.ops)
    variables = tuple(dict.fromkeys(path for op in iter_operations(ops) for path in list_defined_paths(op)))
    for column in columns:
        if column not in variables:
            raise UnlowerableError(column, "there is no integer field of this name")
        if column in SCANNER_COLUMNS:
            raise UnlowerableError(column, "the scanner has a column of its own with this name")
    return Program(ops, variables)


def _get_read_kernel(node: Any) -> ScalarKernel | RecordKernel | None:
    """Return the kernel of a leaf, from its attribute `scan` or `kernel`; members of a Struct do not count."""
    for name in ("scan", "kernel"):
        kernel = getattr(node, name) if name in node.__dict__ or hasattr(type(node), name) else None
        if isinstance(kernel, ScalarKernel | RecordKernel):
            return kernel
    return None


def join_path(prefix: str, name: str) -> str:
    """Return the path of a field of a structure."""
    return f"{prefix}.{name}" if prefix else name


LoweringRule = Callable[[Any, Any, str, StructScope], Binding]


class Lowering:
    """Collector of operations; each rule lowers one class of construct and returns the binding of the field's name."""

    rules: tuple[tuple[Any, LoweringRule], ...] = ()
    rule_by_class: dict[type, LoweringRule | None] = {}
    """Cache: class -> its lowering rule."""

    def __init__(self) -> None:
        self.ops: list[Op] = []

    def lower_node(self, node: Any, path: str, scope: StructScope) -> Binding:
        """Lower the construct at `path`."""
        if isinstance(node, construct.Renamed):
            return self.lower_node(node.subcon, path, scope)
        kernel = _get_read_kernel(node)
        if isinstance(kernel, ScalarKernel):
            self.ops.append(ReadScalar(path or "value", kernel))
            return Ref(path or "value", 0, U64) if kernel.unsigned else Ref(path or "value", I64_MIN, I64_MAX)
        if isinstance(kernel, RecordKernel):
            return self._lower_record(kernel, path)
        kind = type(node)
        if kind not in self.rule_by_class:
            self.rule_by_class[kind] = next((rule for known, rule in self.rules if issubclass(kind, known)), None)
        rule = self.rule_by_class[kind]
        if rule is not None:
            return rule(self, node, path, scope)
        raise UnlowerableError(path, f"{type(node).__name__} cannot be lowered")

    def _lower_record(self, kernel: RecordKernel, path: str) -> Binding:
        columns = tuple(join_path(path, name) for name in kernel.columns)
        self.ops.append(ReadRecord(path, kernel, columns))
        return StructScope(
            path, None, {n: Ref(c, I64_MIN, I64_MAX) for n, c in zip(kernel.columns, columns, strict=True)}
        )

    def _lower_struct(self, node: Any, path: str, outer: StructScope) -> StructScope:
        scope = StructScope(path, outer)
        for index, sub in enumerate(node.subcons):
            name = sub.name or f"{type(sub).__name__.lower()}{index}"
            binding = self.lower_node(sub, join_path(path, name), scope)
            if sub.name:
                scope.names[sub.name] = binding
        return scope

    def _lower_integer(self, path: str, width: int, big: bool, signed: bool) -> Binding:
        self.ops.append(LoadInteger(path or "value", width, big, signed))
        bits = 8 * width
        return Ref(path or "value", *((-1 << bits - 1, (1 << bits - 1) - 1) if signed else (0, (1 << bits) - 1)))

    def _lower_format_field(self, node: Any, path: str, scope: StructScope) -> Binding:
        order, code = node.fmtstr
        if code == "?":
            raise UnlowerableError(path, "a Flag cannot be lowered: use an integer")
        big = order == ">" or (order == "=" and sys.byteorder == "big")
        value = self._lower_integer(path, struct.calcsize("<" + code), big, code in "bhlq")
        return NoInteger("a float has no exact integer value") if code in "efd" else value

    def _lower_bytes_integer(self, node: Any, path: str, scope: StructScope) -> Binding:
        if not isinstance(node.length, int) or not 1 <= node.length <= 8 or callable(node.swapped):
            raise UnlowerableError(
                path, "an integer must have a constant width of 1..8 bytes and a constant byte order"
            )
        return self._lower_integer(path, node.length, not node.swapped, bool(node.signed))

    def _lower_bytes(self, node: Any, path: str, scope: StructScope) -> Binding:
        self._add_skip(node.length, path, scope)
        return ByteRangeField(path)

    def _lower_padded(self, node: Any, path: str, scope: StructScope) -> Binding:
        if node.subcon is not construct.Pass:
            raise UnlowerableError(path, "Padded around a field cannot be lowered")
        self._add_skip(node.length, path, scope)
        return NO_VALUE

    def _add_skip(self, length: Any, path: str, scope: StructScope) -> None:
        size = self.lower_expression(length, path, scope)
        if isinstance(size, Num) and not 0 <= size.value <= POSITION_MAX:
            raise UnlowerableError(path, f"a length of {size.value} bytes is impossible")
        self.ops.append(SkipBytes(path, size))

    def _lower_const(self, node: Any, path: str, scope: StructScope) -> Binding:
        if isinstance(node.value, bytes) and isinstance(node.subcon, construct.Bytes):
            if node.subcon.length != len(node.value):
                raise UnlowerableError(path, "the constant does not have the length of its field")
            self.ops.append(ExpectBytes(path, node.value))
            return ByteRangeField(path)
        if not isinstance(node.value, int):
            raise UnlowerableError(path, "a constant must be bytes or an integer")
        return self._lower_one_of(node.subcon, (int(node.value),), path, scope)

    def _lower_magic(self, node: Any, path: str, scope: StructScope) -> Binding:
        return self._lower_one_of(node.subcon, tuple(node.names), path, scope)

    def _lower_one_of(self, subcon: Any, values: tuple[int, ...], path: str, scope: StructScope) -> Binding:
        value = self.lower_node(subcon, path, scope)
        if not isinstance(value, Ref):
            raise UnlowerableError(path, "a constant integer needs an integer field")
        top = U64 if value.lo == I64_MIN else value.hi
        self.ops.append(RequireOneOf(value.path, tuple(wrap_int64(v) for v in values if value.lo <= v <= top)))
        return value

    def _lower_adapter(self, node: Any, path: str, scope: StructScope) -> Binding:
        value = self.lower_node(node.subcon, path, scope)
        if isinstance(node, construct.Enum) and isinstance(value, Ref):
            return NamedInteger(value, dict(node.encmapping))
        return NoInteger("an adapter changes its value")

    def _lower_transparent(self, node: Any, path: str, scope: StructScope) -> Binding:
        return self.lower_node(node.subcon, path, scope)

    def _refuse(self, node: Any, path: str, scope: StructScope) -> Binding:
        raise UnlowerableError(path, f"{type(node).__name__} cannot be lowered")

    def _lower_pass(self, node: Any, path: str, scope: StructScope) -> Binding:
        return NO_VALUE

    def _lower_tell(self, node: Any, path: str, scope: StructScope) -> Binding:
        self.ops.append(AssignPosition(path))
        return Ref(path, 0, POSITION_MAX)

    def _lower_check(self, node: Any, path: str, scope: StructScope) -> Binding:
        test = self.lower_expression(node.func, path, scope)
        self.ops.append(Require(next(iter_references(test), path), test))
        return NO_VALUE

    def _lower_computed(self, node: Any, path: str, scope: StructScope) -> Binding:
        value = self.lower_expression(node.func, path, scope)
        self.ops.append(Assign(path, value))
        return Ref(path, value.lo, value.hi)

    def _lower_crc_check(self, node: Any, path: str, scope: StructScope) -> Binding:
        if not isinstance(node.checksum, Checksum):
            raise UnlowerableError(path, f"{node.checksum!r} is not a Checksum")
        stored, start, end = (self.lower_expression(part, path, scope) for part in (node.stored, node.start, node.end))
        if not isinstance(node.without, int) or node.without:
            stored = make_binary("^", stored, self.lower_expression(node.without, path, scope))
        absent = None if node.absent is None else wrap_int64(node.absent)
        self.ops.append(VerifyChecksum(path, node.checksum, stored, start, end, absent))
        return NoInteger("its value is a verdict")

    def _lower_if(self, node: Any, path: str, scope: StructScope) -> Binding:
        test = self.lower_expression(node.condfunc, path, scope)
        return self._lower_cases([(test, node.thensubcon)], node.elsesubcon, path, scope)

    def _lower_switch(self, node: Any, path: str, scope: StructScope) -> Binding:
        arms = [(self._make_equals(node.keyfunc, key, path, scope), case) for key, case in node.cases.items()]
        return self._lower_cases(arms, node.default, path, scope)

    def _make_equals(self, left: Any, right: Any, path: str, scope: StructScope) -> Expr:
        return self.lower_expression(cexpr.BinExpr(operator.eq, left, right), path, scope)

    def _lower_cases(self, arms: list[tuple[Expr, Any]], other: Any, path: str, scope: StructScope) -> Binding:
        branches = [self._lower_branch(case, path, scope) for case in [*(case for _, case in arms), other]]
        tests = [test for test, _ in arms]
        lowered_arms = tuple((test, ops) for test, (ops, _) in zip(tests, branches[:-1], strict=True))
        self.ops.append(ChooseCase(path, lowered_arms, branches[-1][0]))
        merged_binding = branches[-1][1]
        for _, binding in branches[:-1]:
            merged_binding = merge_bindings(merged_binding, binding)
        return merged_binding

    def _lower_branch(self, node: Any, path: str, scope: StructScope) -> tuple[tuple[Op, ...], Binding]:
        outer_ops, self.ops = self.ops, []
        binding = self.lower_node(node, path, scope)
        ops, self.ops = tuple(self.ops), outer_ops
        return ops, binding

    def lower_expression(self, value: Any, path: str, scope: StructScope) -> Expr:
        """Lower an expression of construct at `path`."""
        try:
            return lower_expression(value, path, scope)
        except InexactError as error:
            raise UnlowerableError(path, str(error)) from None


LOWERING_RULES: tuple[tuple[Any, LoweringRule], ...] = (
    (CrcCheck, Lowering._lower_crc_check),
    (Magic, Lowering._lower_magic),
    (_TRANSPARENT, Lowering._lower_transparent),
    (construct.Struct, Lowering._lower_struct),
    (construct.FormatField, Lowering._lower_format_field),
    (construct.BytesInteger, Lowering._lower_bytes_integer),
    (construct.Bytes, Lowering._lower_bytes),
    (construct.Const, Lowering._lower_const),
    (construct.Validator, Lowering._refuse),
    (construct.Adapter, Lowering._lower_adapter),
    (construct.Check, Lowering._lower_check),
    (construct.Computed, Lowering._lower_computed),
    (construct.IfThenElse, Lowering._lower_if),
    (construct.Switch, Lowering._lower_switch),
    (construct.Padded, Lowering._lower_padded),
    (type(construct.Tell), Lowering._lower_tell),
    (type(construct.Pass), Lowering._lower_pass),
)
Lowering.rules = LOWERING_RULES


# --- Numbers among the first fields of a frame ---


class LeadingNumber(NamedTuple):
    """Position of an unsigned number, relative to the frame's first byte."""

    start: int
    end: int
    big: bool

    def read_from(self, buf: Any, frame_start: int) -> int:
        """Return the number's value in the frame at `buf[frame_start]`; the buffer must contain the whole number."""
        return int.from_bytes(buf[frame_start + self.start : frame_start + self.end], "big" if self.big else "little")


@lru_cache(maxsize=64)
def find_leading_number(schema: Any, path: str) -> LeadingNumber:
    """Return the position of the field `path` of a lowerable schema.

    Raises:
        KeyError: fields other than integers come before it.
        UnlowerableError: there is no integer with this name.
    """
    position = 0
    for op in lower_schema(schema, (path,)).ops:
        if isinstance(op, LoadInteger):
            if op.path == path:
                return LeadingNumber(position, position + op.width, op.big)
            position += op.width
        elif not isinstance(op, (Assign, RequireOneOf, AssignPosition, Require)):
            break
    raise KeyError(path)
