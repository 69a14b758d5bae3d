"""From a construct schema to operations: the only place that knows construct's classes.

What can be lowered: Struct, named fields, integers of 1..8 bytes (also signed; floats as their bit pattern), Bytes,
Padding, Const, Tell, Check, Computed, If, IfThenElse, Switch, Enum and other adapters over integers (the raw value),
Magic, CrcCheck, Expanded (its bytes) and every class with a kernel in its attribute `scan` or `kernel`. Expressions are
construct's `this` objects; a Python function is opaque and refused.
"""

from __future__ import annotations

import operator
import struct
import sys
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import construct
import msgspec
from construct import expr as cexpr

from binlogtool.formats.checksums import Checksum
from binlogtool.formats.fields import CrcCheck, Expanded, Magic, RecordKernel, ScalarKernel
from binlogtool.schema.expressions import (
    ARITHMETIC,
    COMPARISONS,
    I64_MAX,
    I64_MIN,
    U64,
    Expr,
    InexactError,
    Not,
    Num,
    Ref,
    binary,
    references,
    signed,
)
from binlogtool.schema.operations import (
    Choose,
    Let,
    Literal,
    Load,
    OneOf,
    Op,
    Position,
    Program,
    Record,
    Require,
    Scalar,
    Skip,
    Verify,
    defined_paths,
    walk,
)

OWN_COLUMNS = ("offset", "end", "checksum", "span")

POSITION_MAX = 1 << 56
"""No position is greater: far beyond any file, and sums of positions stay inside 64 bits."""


class Unlowerable(Exception):
    """A field of a schema has no form that a generated scanner can run; the message starts with its dotted path."""

    def __init__(self, path: str, why: str) -> None:
        super().__init__(f"{path or 'schema'}: {why}")
        self.path = path


class Opaque(msgspec.Struct, frozen=True):
    """A name whose value is no integer, so no expression may use it."""

    why: str


class Named(msgspec.Struct, frozen=True):
    """The value of an Enum: an integer that expressions see by its names."""

    ref: Ref
    numbers: Mapping[str, int]


class Scope(msgspec.Struct):
    """What `this` offers inside one Struct (or in the columns of a record kernel)."""

    prefix: str
    parent: Scope | None = None
    names: dict[str, Binding] = msgspec.field(default_factory=dict)


Binding = Ref | Named | Scope | Opaque

_NOTHING = Opaque("it has no value")
_OPERATORS: Mapping[Any, str] = {function: name for name, function in {**ARITHMETIC, **COMPARISONS}.items()}
_TRANSPARENT = (Expanded, construct.Rebuild, construct.Default, construct.Hex, construct.HexDump)


def lower(schema: construct.Construct, columns: tuple[str, ...] = ()) -> Program:
    """The operations of a schema that is to give these columns.

    Raises:
        Unlowerable: naming the field, or the column that is no integer field.
    """
    lowering = _Lowering()
    while isinstance(schema, construct.Renamed):
        schema = schema.subcon
    lowering.node(schema, "", Scope(""))
    ops = tuple(lowering.ops)
    variables = tuple(dict.fromkeys(path for op in walk(ops) for path in defined_paths(op)))
    for column in columns:
        if column not in variables:
            raise Unlowerable(column, "there is no integer field of this name")
        if column in OWN_COLUMNS:
            raise Unlowerable(column, "the scanner has a column of its own with this name")
    return Program(ops, variables)


def _kernel_of(node: Any) -> ScalarKernel | RecordKernel | None:
    """The kernel of a leaf, in its attribute `scan` or `kernel`. Not by `getattr`: a Struct answers for its members."""
    for name in ("scan", "kernel"):
        found = node.__dict__.get(name, getattr(type(node), name, None))
        if isinstance(found, ScalarKernel | RecordKernel):
            return found
    return None


def _join(prefix: str, name: str) -> str:
    return f"{prefix}.{name}" if prefix else name


class _Lowering:
    """Collects operations; each rule handles one class of construct and returns what its name is bound to."""

    def __init__(self) -> None:
        self.ops: list[Op] = []

    def node(self, node: Any, path: str, scope: Scope) -> Binding:
        """Lowers one construct that stands at `path`."""
        if isinstance(node, construct.Renamed):
            return self.node(node.subcon, path, scope)
        kernel = _kernel_of(node)
        if isinstance(kernel, ScalarKernel):
            self.ops.append(Scalar(path or "value", kernel))
            return Ref(path or "value", I64_MIN, I64_MAX)
        if isinstance(kernel, RecordKernel):
            return self._record(kernel, path)
        for kind, rule in _RULES:
            if isinstance(node, kind):
                return rule(self, node, path, scope)
        raise Unlowerable(path, f"{type(node).__name__} cannot be lowered")

    def _record(self, kernel: RecordKernel, path: str) -> Binding:
        columns = tuple(_join(path, name) for name in kernel.columns)
        self.ops.append(Record(path, kernel, columns))
        return Scope(path, None, {n: Ref(c, I64_MIN, I64_MAX) for n, c in zip(kernel.columns, columns, strict=True)})

    def _struct(self, node: Any, path: str, outer: Scope) -> Binding:
        scope = Scope(path, outer)
        for index, sub in enumerate(node.subcons):
            name = sub.name or f"{type(sub).__name__.lower()}{index}"
            binding = self.node(sub, _join(path, name), scope)
            if sub.name:
                scope.names[sub.name] = binding
        return scope

    def _integer(self, path: str, width: int, big: bool, signed: bool) -> Binding:
        self.ops.append(Load(path or "value", width, big, signed))
        bits = 8 * width
        return Ref(path or "value", *((-1 << bits - 1, (1 << bits - 1) - 1) if signed else (0, (1 << bits) - 1)))

    def _format_field(self, node: Any, path: str, scope: Scope) -> Binding:
        order, code = node.fmtstr
        if code == "?":
            raise Unlowerable(path, "a Flag cannot be lowered: use an integer")
        big = order == ">" or (order == "=" and sys.byteorder == "big")
        value = self._integer(path, struct.calcsize("<" + code), big, code in "bhlq")
        return Opaque("a float has no exact integer value") if code in "efd" else value

    def _bytes_integer(self, node: Any, path: str, scope: Scope) -> Binding:
        if not isinstance(node.length, int) or not 1 <= node.length <= 8 or callable(node.swapped):
            raise Unlowerable(path, "an integer must have a constant width of 1..8 bytes and a constant byte order")
        return self._integer(path, node.length, not node.swapped, bool(node.signed))

    def _bytes(self, node: Any, path: str, scope: Scope) -> Binding:
        self._skip(node.length, path, scope)
        return Opaque("its value is bytes")

    def _padded(self, node: Any, path: str, scope: Scope) -> Binding:
        if node.subcon is not construct.Pass:
            raise Unlowerable(path, "Padded around a field cannot be lowered")
        self._skip(node.length, path, scope)
        return _NOTHING

    def _skip(self, length: Any, path: str, scope: Scope) -> None:
        size = self._expression(length, path, scope)
        if isinstance(size, Num) and not 0 <= size.value <= POSITION_MAX:
            raise Unlowerable(path, f"a length of {size.value} bytes is impossible")
        self.ops.append(Skip(path, size))

    def _const(self, node: Any, path: str, scope: Scope) -> Binding:
        if isinstance(node.value, bytes) and isinstance(node.subcon, construct.Bytes):
            if node.subcon.length != len(node.value):
                raise Unlowerable(path, "the constant does not have the length of its field")
            self.ops.append(Literal(path, node.value))
            return Opaque("its value is bytes")
        if not isinstance(node.value, int):
            raise Unlowerable(path, "a constant must be bytes or an integer")
        return self._one_of(node.subcon, (int(node.value),), path, scope)

    def _magic(self, node: Any, path: str, scope: Scope) -> Binding:
        return self._one_of(node.subcon, tuple(node.names), path, scope)

    def _one_of(self, subcon: Any, values: tuple[int, ...], path: str, scope: Scope) -> Binding:
        value = self.node(subcon, path, scope)
        if not isinstance(value, Ref):
            raise Unlowerable(path, "a constant integer needs an integer field")
        top = U64 if value.lo == I64_MIN else value.hi
        self.ops.append(OneOf(value.path, tuple(signed(v) for v in values if value.lo <= v <= top)))
        return value

    def _adapter(self, node: Any, path: str, scope: Scope) -> Binding:
        value = self.node(node.subcon, path, scope)
        if isinstance(node, construct.Enum) and isinstance(value, Ref):
            return Named(value, dict(node.encmapping))
        return Opaque("an adapter changes its value")

    def _transparent(self, node: Any, path: str, scope: Scope) -> Binding:
        return self.node(node.subcon, path, scope)

    def _refuse(self, node: Any, path: str, scope: Scope) -> Binding:
        raise Unlowerable(path, f"{type(node).__name__} cannot be lowered")

    def _pass(self, node: Any, path: str, scope: Scope) -> Binding:
        return _NOTHING

    def _tell(self, node: Any, path: str, scope: Scope) -> Binding:
        self.ops.append(Position(path))
        return Ref(path, 0, POSITION_MAX)

    def _check(self, node: Any, path: str, scope: Scope) -> Binding:
        test = self._expression(node.func, path, scope)
        self.ops.append(Require(next(references(test), path), test))
        return _NOTHING

    def _computed(self, node: Any, path: str, scope: Scope) -> Binding:
        value = self._expression(node.func, path, scope)
        self.ops.append(Let(path, value))
        return Ref(path, value.lo, value.hi)

    def _crc_check(self, node: Any, path: str, scope: Scope) -> Binding:
        if not isinstance(node.checksum, Checksum):
            raise Unlowerable(path, f"{node.checksum!r} is not a Checksum")
        stored, start, end = (self._expression(part, path, scope) for part in (node.stored, node.start, node.end))
        if not isinstance(node.without, int) or node.without:
            stored = binary("^", stored, self._expression(node.without, path, scope))
        absent = None if node.absent is None else signed(node.absent)
        self.ops.append(Verify(path, node.checksum, stored, start, end, absent))
        return Opaque("its value is a verdict")

    def _if(self, node: Any, path: str, scope: Scope) -> Binding:
        test = self._expression(node.condfunc, path, scope)
        return self._choose([(test, node.thensubcon)], node.elsesubcon, path, scope)

    def _switch(self, node: Any, path: str, scope: Scope) -> Binding:
        arms = [(self._equals(node.keyfunc, key, path, scope), case) for key, case in node.cases.items()]
        return self._choose(arms, node.default, path, scope)

    def _equals(self, left: Any, right: Any, path: str, scope: Scope) -> Expr:
        return self._expression(cexpr.BinExpr(operator.eq, left, right), path, scope)

    def _choose(self, arms: list[tuple[Expr, Any]], other: Any, path: str, scope: Scope) -> Binding:
        branches = [self._branch(case, path, scope) for case in [*(case for _, case in arms), other]]
        tests = [test for test, _ in arms]
        taken = tuple((test, ops) for test, (ops, _) in zip(tests, branches[:-1], strict=True))
        self.ops.append(Choose(path, taken, branches[-1][0]))
        merged = branches[-1][1]
        for _, binding in branches[:-1]:
            merged = _merge(merged, binding)
        return merged

    def _branch(self, node: Any, path: str, scope: Scope) -> tuple[tuple[Op, ...], Binding]:
        before, self.ops = self.ops, []
        binding = self.node(node, path, scope)
        ops, self.ops = tuple(self.ops), before
        return ops, binding

    def _expression(self, value: Any, path: str, scope: Scope) -> Expr:
        try:
            return _expression(value, path, scope)
        except InexactError as error:
            raise Unlowerable(path, str(error)) from None


_RULES: tuple[tuple[Any, Callable[[_Lowering, Any, str, Scope], Binding]], ...] = (
    (CrcCheck, _Lowering._crc_check),
    (Magic, _Lowering._magic),
    (_TRANSPARENT, _Lowering._transparent),
    (construct.Struct, _Lowering._struct),
    (construct.FormatField, _Lowering._format_field),
    (construct.BytesInteger, _Lowering._bytes_integer),
    (construct.Bytes, _Lowering._bytes),
    (construct.Const, _Lowering._const),
    (construct.Validator, _Lowering._refuse),
    (construct.Adapter, _Lowering._adapter),
    (construct.Check, _Lowering._check),
    (construct.Computed, _Lowering._computed),
    (construct.IfThenElse, _Lowering._if),
    (construct.Switch, _Lowering._switch),
    (construct.Padded, _Lowering._padded),
    (type(construct.Tell), _Lowering._tell),
    (type(construct.Pass), _Lowering._pass),
)


def _merge(left: Binding, right: Binding) -> Binding:
    """What a name is bound to after a choice between two cases; a value that a case lacks is 0."""
    if isinstance(left, Scope) or isinstance(right, Scope):
        sides = [side for side in (left, right) if isinstance(side, Scope)]
        names = dict.fromkeys(name for side in sides for name in side.names)
        merged = {name: _merge(*(_name_in(side, name) for side in (left, right))) for name in names}
        return Scope(sides[0].prefix, sides[0].parent, merged)
    refs = [side for side in (left, right) if isinstance(side, Ref)]
    if len(refs) + sum(side is _NOTHING for side in (left, right)) < 2 or not refs:
        return left if left == right else Opaque("its value differs from case to case")
    return Ref(refs[0].path, min(0, *(r.lo for r in refs)), max(0, *(r.hi for r in refs)))


def _name_in(binding: Binding, name: str) -> Binding:
    return binding.names.get(name, _NOTHING) if isinstance(binding, Scope) else _NOTHING


def _expression(value: Any, path: str, scope: Scope) -> Expr:
    if isinstance(value, cexpr.BinExpr):
        return _binary(value, path, scope)
    if isinstance(value, cexpr.UniExpr):
        return _unary(value, path, scope)
    if isinstance(value, cexpr.Path):
        return _number(_resolve(value, path, scope), value, path)
    if isinstance(value, int) and I64_MIN <= value <= U64:
        return Num(int(value))
    if isinstance(value, cexpr.FuncPath | cexpr.Path2):
        raise Unlowerable(path, f"{value!r} cannot be lowered")
    if callable(value):
        raise Unlowerable(path, "a Python function is opaque to the scanner: write it with `this`")
    raise Unlowerable(path, f"{value!r} is no 64-bit integer")


def _number(binding: Binding, source: Any, path: str) -> Ref:
    if isinstance(binding, Ref):
        return binding
    why = {Named: "an Enum is compared by name", Scope: "it is a group of fields"}.get(type(binding))
    raise Unlowerable(path, f"{source!r} cannot be used in an expression: {why or getattr(binding, 'why', '')}")


def _unary(value: Any, path: str, scope: Scope) -> Expr:
    operand = _expression(value.operand, path, scope)
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
            named = _resolve(this, path, scope) if isinstance(this, cexpr.Path) else None
            if isinstance(named, Named):
                return binary(op, named.ref, _number_of(named, that, path))
    return binary(op, *(_expression(side, path, scope) for side in sides))


def _number_of(named: Named, name: Any, path: str) -> Num:
    if not isinstance(name, str) or str(name) not in named.numbers:
        raise Unlowerable(path, f"{name!r} is no name of the Enum {named.ref.path}")
    return Num(named.numbers[str(name)])


def _names(value: Any) -> Iterator[str]:
    """The steps of a `this` path, from left to right."""
    parent = value._Path__parent
    if parent is not None:
        yield from _names(parent)
        yield value._Path__field
    elif value._Path__name != "this":
        yield f"<{value._Path__name}>"


def _resolve(value: Any, path: str, scope: Scope) -> Binding:
    here: Binding | None = scope
    for name in _names(value):
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
