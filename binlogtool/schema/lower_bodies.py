"""Lower the schema of a body to operations and to what is shown of it.

A body is all of its bytes, so more can be lowered than for a scanner: fields that reach to the end, fields that are
only there if bytes are left, and arrays. Bindings keep what `dump` needs of fields: texts, flags, marker bits.
"""

from __future__ import annotations

from collections.abc import Iterable
from functools import lru_cache
from typing import Any

import construct
import msgspec

from binlogtool.formats.bodies import (
    BoundedCount,
    HiddenField,
    IfBytesLeft,
    InterpretedOnly,
    LeafFormat,
    PeekInt,
    RenamedField,
    SingleField,
    SplitInt,
    ZeroMeansAbsent,
)
from binlogtool.formats.fields import NestedSchema
from binlogtool.schema import operations
from binlogtool.schema.expressions import Binary, Expr, LogicalNot, Num, Ref, is_boolean, make_binary
from binlogtool.schema.lower import LOWERING_RULES, POSITION_MAX, Lowering, LoweringRule, join_path
from binlogtool.schema.operations import (
    Assign,
    AssignRemaining,
    CaptureBytes,
    CheckCount,
    ChooseCase,
    LoadInteger,
    Op,
    ReadScalar,
    Repeat,
    Require,
    SkipBytes,
    TakeRest,
    compute_min_size,
)
from binlogtool.schema.scopes import (
    NO_VALUE,
    Binding,
    ByteRangeField,
    Conditional,
    FlagInteger,
    HiddenBinding,
    ListField,
    MaskedInt,
    StructScope,
    TitledField,
    Unlowerable,
    merge_bindings,
    unwrap_binding,
)


class LoweredBody(msgspec.Struct, frozen=True):
    """A lowered body.

    Attributes:
        fields: Name -> what it is bound to, in order.
    """

    ops: tuple[Op, ...]
    fields: dict[str, Binding]


@lru_cache(maxsize=64)
def lower_body(schema: construct.Construct) -> LoweredBody:
    """Return the operations of a body.

    Raises:
        UnlowerableError: with the field.
    """
    lowering = _BodyLowering()
    while isinstance(schema, construct.Renamed):
        schema = schema.subcon
    binding = lowering.lower_node(schema, "", StructScope(""))
    if not isinstance(binding, StructScope):
        raise Unlowerable("", "a body is a structure")
    return LoweredBody(_merge_cases(lowering.ops), binding.names)


def _merge_cases(ops: Iterable[Op]) -> tuple[Op, ...]:
    """Merge neighbouring cases of the same condition into one; a case never changes its own condition."""
    merged_ops: list[Op] = []
    for op in ops:
        previous = merged_ops[-1] if merged_ops else None
        if isinstance(op, ChooseCase) and isinstance(previous, ChooseCase) and not op.other and not previous.other:
            (test, arm), *other_arms = op.arms
            if not other_arms and len(previous.arms) == 1 and previous.arms[0][0] == test:
                merged_ops[-1] = ChooseCase(previous.path, ((test, (*previous.arms[0][1], *arm)),), ())
                continue
        merged_ops.append(op)
    return tuple(
        ChooseCase(op.path, tuple((test, _merge_cases(arm)) for test, arm in op.arms), _merge_cases(op.other))
        if isinstance(op, ChooseCase) else op
        for op in merged_ops
    )  # fmt: skip


def _find_leaf(node: Any) -> LeafFormat | None:
    """Return the attribute `leaf`; not by `getattr`, which finds members of a Struct."""
    leaf = node.__dict__.get("leaf", getattr(type(node), "leaf", None))
    return leaf if isinstance(leaf, LeafFormat) else None


class _BodyLowering(Lowering):
    rule_by_class: dict[type, LoweringRule | None] = {}

    def lower_node(self, node: Any, path: str, scope: StructScope) -> Binding:
        if isinstance(node, HiddenField):
            return HiddenBinding(self.lower_node(node.subcon, path, scope))
        if isinstance(node, InterpretedOnly):
            self.ops.append(Require(path, Num(0)))
            return HiddenBinding(NO_VALUE)
        if isinstance(node, SingleField):
            return self._lower_single_field(node, path, scope)
        if isinstance(node, RenamedField):
            return TitledField(self.lower_node(node.subcon, path, scope), node.title)
        if isinstance(node, ZeroMeansAbsent):
            return self._lower_unless_zero(node, path, scope)
        leaf = _find_leaf(node)
        return super().lower_node(node, path, scope) if leaf is None else self._lower_leaf(node, leaf, path, scope)

    def _lower_leaf(self, node: Any, leaf: LeafFormat, path: str, scope: StructScope) -> Binding:
        if isinstance(node, construct.Subconstruct):
            ops, binding = self._lower_branch(node.subcon, path, scope)
            self.ops += ops if isinstance(binding, ByteRangeField) else (CaptureBytes(path, ops),)
        else:
            self.ops.append(SkipBytes(path, Num(node.size)))
        return ByteRangeField(
            path, leaf, tuple(self._find_outer_field(name, path, scope) for name in leaf.context_fields)
        )

    def _find_outer_field(self, name: str, path: str, scope: StructScope) -> Ref | ByteRangeField | ListField:
        """Return the field of this name in the enclosing structures."""
        outer_scope: StructScope | None = scope
        while outer_scope is not None and name not in outer_scope.names:
            outer_scope = outer_scope.parent
        binding = None if outer_scope is None else unwrap_binding(outer_scope.names[name])
        if not isinstance(binding, Ref | ByteRangeField | ListField):
            raise Unlowerable(path, f"{name} is no number, bytes or list of a structure around it")
        return binding

    def _lower_single_field(self, node: Any, path: str, scope: StructScope) -> Binding:
        binding = self.lower_node(node.subcon, path, scope)
        shown_field = binding.names.get(node.shown) if isinstance(binding, StructScope) else None
        if not isinstance(shown_field, ByteRangeField):
            raise Unlowerable(path, f"{node.shown} is no field of bytes in it")
        return ByteRangeField(shown_field.path, node.as_leaf)

    def _lower_unless_zero(self, node: Any, path: str, scope: StructScope) -> Binding:
        binding = self.lower_node(node.subcon, path, scope)
        inner = unwrap_binding(binding)
        number = inner.ref if isinstance(inner, FlagInteger) else inner
        if not isinstance(number, Ref):
            raise Unlowerable(path, "only an integer can be 0")
        return Conditional(inner, make_binary("!=", number, Num(0)))

    def _lower_greedy_bytes(self, node: Any, path: str, scope: StructScope) -> Binding:
        self.ops.append(TakeRest(path))
        return ByteRangeField(path)

    def _lower_terminated(self, node: Any, path: str, scope: StructScope) -> Binding:
        left = join_path(path, "left")
        self.ops += [AssignRemaining(left), Require(path, make_binary("==", Ref(left, 0, POSITION_MAX), Num(0)))]
        return NO_VALUE

    def _lower_if_bytes_left(self, node: Any, path: str, scope: StructScope) -> Binding:
        left = join_path(path, "left")
        self.ops.append(AssignRemaining(left))
        test = make_binary(">", Ref(left, 0, POSITION_MAX), Num(0))
        ops, binding = self._lower_branch(node.subcon, path, scope)
        self.ops.append(ChooseCase(path, ((test, ops),), ()))
        return _make_conditional(test, binding)

    def _lower_if(self, node: Any, path: str, scope: StructScope) -> Binding:
        if node.elsesubcon is not construct.Pass:
            return super()._lower_if(node, path, scope)
        test = self.lower_expression(node.condfunc, path, scope)
        ops, binding = self._lower_branch(node.thensubcon, path, scope)
        self.ops.append(ChooseCase(path, ((test, ops),), ()))
        return _make_conditional(test, merge_bindings(binding, NO_VALUE) if isinstance(binding, Ref) else binding)

    def _lower_flags(self, node: Any, path: str, scope: StructScope) -> Binding:
        value = self.lower_node(node.subcon, path, scope)
        if not isinstance(value, Ref):
            raise Unlowerable(path, "flags need an integer")
        return FlagInteger(value, {str(name): int(mask) for name, mask in node.flags.items()})

    def _lower_split_integer(self, node: Any, path: str, scope: StructScope) -> Binding:
        stored, high, size = join_path(path, "stored"), join_path(path, "high"), node.size
        self.ops.append(LoadInteger(stored, size, False, False))
        whole = Ref(stored, 0, (1 << 8 * size) - 1)
        self.ops.append(Assign(path, make_binary("&", whole, Num((1 << node.bits) - 1))))
        self.ops.append(Assign(high, make_binary(">>", whole, Num(node.bits))))
        return MaskedInt(Ref(path, 0, (1 << node.bits) - 1), Ref(high, 0, (1 << 8 * size - node.bits) - 1))

    def _lower_peek(self, node: Any, path: str, scope: StructScope) -> Binding:
        left = join_path(path, "left")
        ops, binding = self._lower_branch(node.subcon, path, scope)
        enough = make_binary(">=", Ref(left, 0, POSITION_MAX), Num(node.subcon.sizeof()))
        self.ops.append(operations.Peek(path, (AssignRemaining(left), ChooseCase(path, ((enough, ops),), ()))))
        return HiddenBinding(binding)

    def _lower_count(self, node: Any, path: str, scope: StructScope) -> Binding:
        binding = self.lower_node(node.subcon, path, scope)
        number = unwrap_binding(binding)
        number = number.ref if isinstance(number, MaskedInt) else number
        if not isinstance(number, Ref):
            raise Unlowerable(path, "a count is an integer")
        self.ops.append(CheckCount(path, number, node.smallest, node.what))
        return HiddenBinding(binding)

    def _lower_array(self, node: Any, path: str, scope: StructScope) -> Binding:
        count = self.lower_expression(node.count, path, scope)
        ops, element_binding = self._lower_branch(node.subcon, path, scope)
        if not compute_min_size(ops) and not any(isinstance(op, ReadScalar) for op in ops):
            raise Unlowerable(path, "its elements may be empty")
        self.ops.append(Repeat(path, count, _merge_cases(ops)))
        return ListField(path, element_binding)

    def _lower_nested_schema(self, node: Any, path: str, scope: StructScope) -> Binding:
        binding, leaf = self.lower_node(node.subcon, path, scope), _find_leaf(node.detail)
        return ByteRangeField(path, leaf) if isinstance(binding, ByteRangeField) and leaf is not None else binding


def _make_conditional(test: Expr, binding: Binding) -> Binding:
    """Make a binding conditional; if it has a condition already, it is there when both are met."""
    if not isinstance(binding, Conditional):
        return Conditional(binding, test)
    both = [one if is_boolean(one) else LogicalNot(LogicalNot(one)) for one in (test, binding.test)]
    return Conditional(binding.inner, Binary("and", both[0], both[1], 0, 1))


_BodyLowering.rules = (
    (NestedSchema, _BodyLowering._lower_nested_schema),
    (type(construct.GreedyBytes), _BodyLowering._lower_greedy_bytes),
    (type(construct.Terminated), _BodyLowering._lower_terminated),
    (IfBytesLeft, _BodyLowering._lower_if_bytes_left),
    (construct.FlagsEnum, _BodyLowering._lower_flags),
    (SplitInt, _BodyLowering._lower_split_integer),
    (PeekInt, _BodyLowering._lower_peek),
    (BoundedCount, _BodyLowering._lower_count),
    (construct.Array, _BodyLowering._lower_array),
    (construct.IfThenElse, _BodyLowering._lower_if),
    *LOWERING_RULES,
)
