"""Resolve names of fields and lower construct's `this` expressions while a schema is lowered.

With `lower` and `lower_bodies` the only code that knows construct's classes.
"""

from __future__ import annotations

import operator
from collections.abc import Iterator, Mapping
from typing import Any

import msgspec
from construct import expr as cexpr

from binlogtool.formats.bodies import Flagged, Given, Leaf, Marked
from binlogtool.schema.expressions import (
    ARITHMETIC,
    COMPARISONS,
    I64_MIN,
    U64,
    Expr,
    Not,
    Num,
    Ref,
    binary,
)


class Unlowerable(Exception):
    """A field of a schema cannot be compiled for a generated scanner; the message starts with its dotted path."""

    def __init__(self, path: str, why: str) -> None:
        super().__init__(f"{path or 'schema'}: {why}")
        self.path = path


class Opaque(msgspec.Struct, frozen=True):
    """A name whose value is not an integer, so no expression may use it."""

    why: str


class Named(msgspec.Struct, frozen=True):
    """The value of an Enum: an integer that expressions compare by name."""

    ref: Ref
    numbers: Mapping[str, int]


class Raw(msgspec.Struct, frozen=True):
    """The bytes of the operation at `path`.

    Attributes:
        leaf: How they are shown; None = as bytes.
        given: See `LeafFormat`.
    """

    path: str
    leaf: Leaf | None = None
    given: tuple[Ref | Raw | Row, ...] = ()


class Flags(msgspec.Struct, frozen=True):
    """An integer whose bits have names."""

    ref: Ref
    masks: Mapping[str, int]


class Bitten(msgspec.Struct, frozen=True):
    """An integer without its highest bits, which are `mark`."""

    ref: Ref
    mark: Ref


class Row(msgspec.Struct, frozen=True):
    """A list.

    Attributes:
        element: What each element is bound to, inside of the operation at `path`.
    """

    path: str
    element: Binding


class Maybe(msgspec.Struct, frozen=True):
    """A field that is there if `test` is not 0."""

    inner: Binding
    test: Expr


class Aside(msgspec.Struct, frozen=True):
    """A field that is not shown."""

    inner: Binding


class Titled(msgspec.Struct, frozen=True):
    """A field that is shown under another name."""

    inner: Binding
    title: str


class Scope(msgspec.Struct):
    """The names that `this` offers inside one Struct (or in the columns of a record kernel)."""

    prefix: str
    parent: Scope | None = None
    names: dict[str, Binding] = msgspec.field(default_factory=dict)


Binding = Ref | Named | Scope | Opaque | Raw | Flags | Bitten | Row | Maybe | Aside | Titled

NOTHING = Opaque("it has no value")
_WHY: Mapping[type, str] = {
    Named: "an Enum is compared by name", Scope: "it is a group of fields", Raw: "its value is bytes",
}  # fmt: skip
_OPERATORS: Mapping[Any, str] = {function: name for name, function in {**ARITHMETIC, **COMPARISONS}.items()}


def merged(left: Binding, right: Binding) -> Binding:
    """Return what a name is bound to after a choice between two cases; a value that a case lacks is 0."""
    if isinstance(left, Scope) or isinstance(right, Scope):
        sides = [side for side in (left, right) if isinstance(side, Scope)]
        names = dict.fromkeys(name for side in sides for name in side.names)
        both = {name: merged(*(_name_in(side, name) for side in (left, right))) for name in names}
        return Scope(sides[0].prefix, sides[0].parent, both)
    if isinstance(left, Aside) and isinstance(right, Aside):
        return Aside(merged(left.inner, right.inner))
    refs = [side for side in (left, right) if isinstance(side, Ref)]
    if len(refs) + sum(side is NOTHING for side in (left, right)) < 2 or not refs:
        return left if left == right else Opaque("its value differs from case to case")
    return Ref(refs[0].path, min(0, *(r.lo for r in refs)), max(0, *(r.hi for r in refs)))


def _name_in(binding: Binding, name: str) -> Binding:
    return binding.names.get(name, NOTHING) if isinstance(binding, Scope) else NOTHING


def expression(value: Any, path: str, scope: Scope) -> Expr:
    """Lower an expression of construct at `path`.

    Raises:
        UnlowerableError: it cannot be lowered.
        InexactError: 64 bits cannot give the result that Python would give.
    """
    if isinstance(value, cexpr.BinExpr):
        return _binary(value, path, scope)
    if isinstance(value, cexpr.UniExpr):
        return _unary(value, path, scope)
    if isinstance(value, cexpr.Path):
        return _number(_resolve(value, path, scope), value, path)
    if isinstance(value, Given | Marked | Flagged):
        return _condition(value, path, scope)
    if isinstance(value, int) and I64_MIN <= value <= U64:
        return Num(int(value))
    if isinstance(value, cexpr.FuncPath | cexpr.Path2):
        raise Unlowerable(path, f"{value!r} cannot be lowered")
    if callable(value):
        raise Unlowerable(path, "a Python function is opaque to the scanner: write it with `this`")
    raise Unlowerable(path, f"{value!r} is no 64-bit integer")


def _condition(value: Given | Marked | Flagged, path: str, scope: Scope) -> Expr:
    found = scope.names.get(value.name)
    inner = None if found is None else bare(found)
    match value:
        case Given() if isinstance(found, Maybe):
            return found.test
        case Marked() if isinstance(inner, Bitten):
            return inner.mark
        case Flagged(flags=flags) if isinstance(inner, Flags) and inner.masks.keys() >= set(flags):
            return binary("&", inner.ref, Num(sum(inner.masks[flag] for flag in flags)))
    raise Unlowerable(path, f"{value!r} is not said of such a field before this one")


def bare(binding: Binding) -> Binding:
    """Return what a name is bound to, without conditions, titles and hiding."""
    while isinstance(binding, Maybe | Aside | Titled):
        binding = binding.inner
    return binding


def _number(binding: Binding, source: Any, path: str) -> Ref:
    binding = bare(binding)
    if isinstance(binding, Flags | Bitten):
        return binding.ref
    if isinstance(binding, Ref):
        return binding
    why = {Named: "an Enum is compared by name", Scope: "it is a group of fields", Raw: "its value is bytes"}.get(
        type(binding)
    )
    raise Unlowerable(path, f"{source!r} cannot be used in an expression: {why or getattr(binding, 'why', '')}")


def _unary(value: Any, path: str, scope: Scope) -> Expr:
    operand = expression(value.operand, path, scope)
    if value.op is operator.not_:
        return Not(operand)
    return binary("-", Num(0), operand) if value.op is operator.neg else operand


def _binary(value: Any, path: str, scope: Scope) -> Expr:
    op = _OPERATORS.get(value.op)
    if op is None:
        raise Unlowerable(path, f"the operator of {value!r} cannot be lowered")
    sides = (value.lhs, value.rhs)
    if op in ("==", "!="):
        for this, that in (sides, sides[::-1]):
            named = bare(_resolve(this, path, scope)) if isinstance(this, cexpr.Path) else None
            if isinstance(named, Named):
                return binary(op, named.ref, _number_of(named, that, path))
    return binary(op, *(expression(side, path, scope) for side in sides))


def _number_of(named: Named, name: Any, path: str) -> Num:
    if not isinstance(name, str) or str(name) not in named.numbers:
        raise Unlowerable(path, f"{name!r} is no name of the Enum {named.ref.path}")
    return Num(named.numbers[str(name)])


def _names(value: Any) -> Iterator[str]:
    """Yield the names of a `this` path, from left to right."""
    parent = value._Path__parent
    if parent is not None:
        yield from _names(parent)
        yield value._Path__field
    elif value._Path__name != "this":
        yield f"<{value._Path__name}>"


def _resolve(value: Any, path: str, scope: Scope) -> Binding:
    here: Binding | None = scope
    for name in _names(value):
        here = here if here is None else bare(here)
        if not isinstance(here, Scope):
            break
        here = _step(here, name)
    if here is None:
        raise Unlowerable(path, f"{value!r} is not a field before this one")
    return here


def _step(scope: Scope, name: str) -> Binding | None:
    if name == "_":
        return scope.parent
    if name == "_root":
        # The first scope stands for construct's outermost context, which has no fields.
        while scope.parent is not None and scope.parent.parent is not None:
            scope = scope.parent
        return scope
    return scope.names.get(name)
