"""Lower a construct schema to operations; with `lower_bodies` and `scopes` the only code that knows construct's
classes.

What can be lowered: Struct, named fields, integers of 1..8 bytes (also signed; floats as their bit pattern), Bytes,
Padding, Const, Tell, Check, Computed, If, IfThenElse, Switch, Enum and other adapters over integers (the raw value),
Magic, CrcCheck, nested schemas (their bytes) and every class with a kernel in its attribute `scan` or `kernel`.
Expressions are construct's `this` objects; a Python function is opaque and refused.
"""

from __future__ import annotations

import operator
import struct
import sys
from collections.abc import Callable
from typing import Any

import construct
from construct import expr as cexpr

from binlogtool.formats.checksums import Checksum
from binlogtool.formats.fields import CrcCheck, Expanded, Magic, RecordKernel, ScalarKernel
from binlogtool.schema.expressions import (
    I64_MAX,
    I64_MIN,
    U64,
    Expr,
    InexactError,
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
from binlogtool.schema.scopes import NOTHING, Binding, Named, Opaque, Raw, Scope, expression, merged
from binlogtool.schema.scopes import Unlowerable as Unlowerable

OWN_COLUMNS = ("offset", "end", "checksum", "span")

POSITION_MAX = 1 << 56
"""No position is greater: far beyond any file, and sums of positions stay inside 64 bits."""


_TRANSPARENT = (Expanded, construct.Rebuild, construct.Default, construct.Hex, construct.HexDump)


def lower(schema: construct.Construct, columns: tuple[str, ...] = ()) -> Program:
    """Return the operations of a schema that is to give these columns.

    Raises:
        UnlowerableError: with the field, or the column that is not an integer field.
    """
    lowering = Lowering()
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
    """Return the kernel of a leaf, from its attribute `scan` or `kernel`; not by `getattr`, which finds members of a
    Struct.
    """
    for name in ("scan", "kernel"):
        found = node.__dict__.get(name, getattr(type(node), name, None))
        if isinstance(found, ScalarKernel | RecordKernel):
            return found
    return None


def joined(prefix: str, name: str) -> str:
    """Return the path of a field of a structure."""
    return f"{prefix}.{name}" if prefix else name


Rule = Callable[[Any, Any, str, Scope], Binding]


class Lowering:
    """Collects operations; each rule lowers one class of construct and returns what the field's name is bound to."""

    rules: tuple[tuple[Any, Rule], ...] = ()
    known: dict[type, Rule | None] = {}
    """The rule of each class that was met."""

    def __init__(self) -> None:
        self.ops: list[Op] = []

    def node(self, node: Any, path: str, scope: Scope) -> Binding:
        """Lower the construct at `path`."""
        if isinstance(node, construct.Renamed):
            return self.node(node.subcon, path, scope)
        kernel = _kernel_of(node)
        if isinstance(kernel, ScalarKernel):
            self.ops.append(Scalar(path or "value", kernel))
            return Ref(path or "value", 0, U64) if kernel.unsigned else Ref(path or "value", I64_MIN, I64_MAX)
        if isinstance(kernel, RecordKernel):
            return self._record(kernel, path)
        kind = type(node)
        if kind not in self.known:
            self.known[kind] = next((rule for known, rule in self.rules if issubclass(kind, known)), None)
        rule = self.known[kind]
        if rule is not None:
            return rule(self, node, path, scope)
        raise Unlowerable(path, f"{type(node).__name__} cannot be lowered")

    def _record(self, kernel: RecordKernel, path: str) -> Binding:
        columns = tuple(joined(path, name) for name in kernel.columns)
        self.ops.append(Record(path, kernel, columns))
        return Scope(path, None, {n: Ref(c, I64_MIN, I64_MAX) for n, c in zip(kernel.columns, columns, strict=True)})

    def _struct(self, node: Any, path: str, outer: Scope) -> Binding:
        scope = Scope(path, outer)
        for index, sub in enumerate(node.subcons):
            name = sub.name or f"{type(sub).__name__.lower()}{index}"
            binding = self.node(sub, joined(path, name), scope)
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
        return Raw(path)

    def _padded(self, node: Any, path: str, scope: Scope) -> Binding:
        if node.subcon is not construct.Pass:
            raise Unlowerable(path, "Padded around a field cannot be lowered")
        self._skip(node.length, path, scope)
        return NOTHING

    def _skip(self, length: Any, path: str, scope: Scope) -> None:
        size = self.expression(length, path, scope)
        if isinstance(size, Num) and not 0 <= size.value <= POSITION_MAX:
            raise Unlowerable(path, f"a length of {size.value} bytes is impossible")
        self.ops.append(Skip(path, size))

    def _const(self, node: Any, path: str, scope: Scope) -> Binding:
        if isinstance(node.value, bytes) and isinstance(node.subcon, construct.Bytes):
            if node.subcon.length != len(node.value):
                raise Unlowerable(path, "the constant does not have the length of its field")
            self.ops.append(Literal(path, node.value))
            return Raw(path)
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
        return NOTHING

    def _tell(self, node: Any, path: str, scope: Scope) -> Binding:
        self.ops.append(Position(path))
        return Ref(path, 0, POSITION_MAX)

    def _check(self, node: Any, path: str, scope: Scope) -> Binding:
        test = self.expression(node.func, path, scope)
        self.ops.append(Require(next(references(test), path), test))
        return NOTHING

    def _computed(self, node: Any, path: str, scope: Scope) -> Binding:
        value = self.expression(node.func, path, scope)
        self.ops.append(Let(path, value))
        return Ref(path, value.lo, value.hi)

    def _crc_check(self, node: Any, path: str, scope: Scope) -> Binding:
        if not isinstance(node.checksum, Checksum):
            raise Unlowerable(path, f"{node.checksum!r} is not a Checksum")
        stored, start, end = (self.expression(part, path, scope) for part in (node.stored, node.start, node.end))
        if not isinstance(node.without, int) or node.without:
            stored = binary("^", stored, self.expression(node.without, path, scope))
        absent = None if node.absent is None else signed(node.absent)
        self.ops.append(Verify(path, node.checksum, stored, start, end, absent))
        return Opaque("its value is a verdict")

    def _if(self, node: Any, path: str, scope: Scope) -> Binding:
        test = self.expression(node.condfunc, path, scope)
        return self._choose([(test, node.thensubcon)], node.elsesubcon, path, scope)

    def _switch(self, node: Any, path: str, scope: Scope) -> Binding:
        arms = [(self._equals(node.keyfunc, key, path, scope), case) for key, case in node.cases.items()]
        return self._choose(arms, node.default, path, scope)

    def _equals(self, left: Any, right: Any, path: str, scope: Scope) -> Expr:
        return self.expression(cexpr.BinExpr(operator.eq, left, right), path, scope)

    def _choose(self, arms: list[tuple[Expr, Any]], other: Any, path: str, scope: Scope) -> Binding:
        branches = [self._branch(case, path, scope) for case in [*(case for _, case in arms), other]]
        tests = [test for test, _ in arms]
        taken = tuple((test, ops) for test, (ops, _) in zip(tests, branches[:-1], strict=True))
        self.ops.append(Choose(path, taken, branches[-1][0]))
        found = branches[-1][1]
        for _, binding in branches[:-1]:
            found = merged(found, binding)
        return found

    def _branch(self, node: Any, path: str, scope: Scope) -> tuple[tuple[Op, ...], Binding]:
        before, self.ops = self.ops, []
        binding = self.node(node, path, scope)
        ops, self.ops = tuple(self.ops), before
        return ops, binding

    def expression(self, value: Any, path: str, scope: Scope) -> Expr:
        """Lower an expression of construct at `path`."""
        try:
            return expression(value, path, scope)
        except InexactError as error:
            raise Unlowerable(path, str(error)) from None


RULES: tuple[tuple[Any, Rule], ...] = (
    (CrcCheck, Lowering._crc_check),
    (Magic, Lowering._magic),
    (_TRANSPARENT, Lowering._transparent),
    (construct.Struct, Lowering._struct),
    (construct.FormatField, Lowering._format_field),
    (construct.BytesInteger, Lowering._bytes_integer),
    (construct.Bytes, Lowering._bytes),
    (construct.Const, Lowering._const),
    (construct.Validator, Lowering._refuse),
    (construct.Adapter, Lowering._adapter),
    (construct.Check, Lowering._check),
    (construct.Computed, Lowering._computed),
    (construct.IfThenElse, Lowering._if),
    (construct.Switch, Lowering._switch),
    (construct.Padded, Lowering._padded),
    (type(construct.Tell), Lowering._tell),
    (type(construct.Pass), Lowering._pass),
)
Lowering.rules = RULES
