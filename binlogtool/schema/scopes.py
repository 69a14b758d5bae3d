"""Resolve names of fields and lower construct's `this` expressions while a schema is lowered.

With `lower` and `lower_bodies` the only code that knows construct's classes.
"""

from __future__ import annotations

import operator
from collections.abc import Iterator, Mapping
from typing import Any

import msgspec
from construct import expr as cexpr

from binlogtool.formats.bodies import AnyFlagSet, FieldPresent, HighBitSet, LeafFormat
from binlogtool.schema.expressions import (
    ARITHMETIC,
    COMPARISONS,
    I64_MIN,
    U64,
    Expr,
    LogicalNot,
    Num,
    Ref,
    make_binary,
)


class Unlowerable(Exception):
    """A field of a schema cannot be compiled for a generated scanner; the message starts with its dotted path."""

    def __init__(self, path: str, why: str) -> None:
        super().__init__(f"{path or 'schema'}: {why}")
        self.path = path


class NoInteger(msgspec.Struct, frozen=True):
    """A name whose value is not an integer, so no expression may use it."""

    why: str


class NamedInteger(msgspec.Struct, frozen=True):
    """The value of an Enum: an integer that expressions compare by name."""

    ref: Ref
    numbers: Mapping[str, int]


class ByteRangeField(msgspec.Struct, frozen=True):
    """The bytes of the operation at `path`.

    Attributes:
        leaf: How they are shown; None = as bytes.
        given: See `LeafFormat`.
    """

    path: str
    leaf: LeafFormat | None = None
    given: tuple[Ref | ByteRangeField | ListField, ...] = ()


class FlagInteger(msgspec.Struct, frozen=True):
    """An integer whose bits have names."""

    ref: Ref
    masks: Mapping[str, int]


class MaskedInt(msgspec.Struct, frozen=True):
    """An integer without its highest bits, which are `mark`."""

    ref: Ref
    mark: Ref


class ListField(msgspec.Struct, frozen=True):
    """A list.

    Attributes:
        element: What each element is bound to, inside of the operation at `path`.
    """

    path: str
    element: Binding


class Conditional(msgspec.Struct, frozen=True):
    """A field that is there if `test` is not 0."""

    inner: Binding
    test: Expr


class HiddenBinding(msgspec.Struct, frozen=True):
    """A field that is not shown."""

    inner: Binding


class TitledField(msgspec.Struct, frozen=True):
    """A field that is shown under another name."""

    inner: Binding
    title: str


class StructScope(msgspec.Struct):
    """The names that `this` offers inside one Struct (or in the columns of a record kernel)."""

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
_REFUSAL_TEXTS: Mapping[type, str] = {
    NamedInteger: "an Enum is compared by name", StructScope: "it is a group of fields",
    ByteRangeField: "its value is bytes",
}  # fmt: skip
_OPERATORS: Mapping[Any, str] = {function: name for name, function in {**ARITHMETIC, **COMPARISONS}.items()}


def merge_bindings(left: Binding, right: Binding) -> Binding:
    """Return what a name is bound to after a choice between two cases; a value that a case lacks is 0."""
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
        InexactError: 64 bits cannot give the result that Python would give.
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
        raise Unlowerable(path, f"{value!r} cannot be lowered")
    if callable(value):
        raise Unlowerable(path, "a Python function is opaque to the scanner: write it with `this`")
    raise Unlowerable(path, f"{value!r} is no 64-bit integer")


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
    raise Unlowerable(path, f"{value!r} is not said of such a field before this one")


def unwrap_binding(binding: Binding) -> Binding:
    """Return what a name is bound to, without conditions, titles and hiding."""
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
    raise Unlowerable(path, f"{source!r} cannot be used in an expression: {reason or getattr(binding, 'why', '')}")


def _lower_unary(value: Any, path: str, scope: StructScope) -> Expr:
    operand = lower_expression(value.operand, path, scope)
    if value.op is operator.not_:
        return LogicalNot(operand)
    return make_binary("-", Num(0), operand) if value.op is operator.neg else operand


def _lower_binary(value: Any, path: str, scope: StructScope) -> Expr:
    op = _OPERATORS.get(value.op)
    if op is None:
        raise Unlowerable(path, f"the operator of {value!r} cannot be lowered")
    sides = (value.lhs, value.rhs)
    if op in ("==", "!="):
        for enum_side, other_side in (sides, sides[::-1]):
            enum = unwrap_binding(_resolve_path(enum_side, path, scope)) if isinstance(enum_side, cexpr.Path) else None
            if isinstance(enum, NamedInteger):
                return make_binary(op, enum.ref, _enum_number(enum, other_side, path))
    return make_binary(op, *(lower_expression(side, path, scope) for side in sides))


def _enum_number(enum: NamedInteger, name: Any, path: str) -> Num:
    if not isinstance(name, str) or str(name) not in enum.numbers:
        raise Unlowerable(path, f"{name!r} is no name of the Enum {enum.ref.path}")
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
        raise Unlowerable(path, f"{value!r} is not a field before this one")
    return binding


def _resolve_name(scope: StructScope, name: str) -> Binding | None:
    if name == "_":
        return scope.parent
    if name == "_root":
        # The first scope stands for construct's outermost context, which has no fields.
        while scope.parent is not None and scope.parent.parent is not None:
            scope = scope.parent
        return scope
    return scope.names.get(name)
