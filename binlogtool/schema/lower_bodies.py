"""Lower the schema of a body to operations and to what is shown of it.

A body is all of its bytes, so more can be lowered than for a scanner: fields that reach to the end, fields that are
only
there if bytes are left, and arrays. Bindings keep what `dump` needs of fields: texts, flags, marker bits.
"""

from __future__ import annotations

from collections.abc import Iterable
from functools import lru_cache
from typing import Any

import construct
import msgspec

from binlogtool.formats.bodies import Ahead, Called, Count, IfMore, Leaf, Sole, SplitInt, UnlessZero, Unshown, Unwritten
from binlogtool.formats.fields import Expanded
from binlogtool.schema import operations
from binlogtool.schema.expressions import Binary, Expr, Not, Num, Ref, binary, is_truth
from binlogtool.schema.lower import POSITION_MAX, RULES, Lowering, Rule, joined
from binlogtool.schema.operations import (
    Choose,
    Fit,
    Left,
    Let,
    Load,
    Many,
    Op,
    Require,
    Rest,
    Scalar,
    Skip,
    Span,
    least_size,
)
from binlogtool.schema.scopes import (
    NOTHING,
    Aside,
    Binding,
    Bitten,
    Flags,
    Maybe,
    Raw,
    Row,
    Scope,
    Titled,
    Unlowerable,
    bare,
    merged,
)


class Body(msgspec.Struct, frozen=True):
    """A lowered body.

    Attributes:
        fields: Name -> what it is bound to, in order.
    """

    ops: tuple[Op, ...]
    fields: dict[str, Binding]


@lru_cache(maxsize=64)
def lower_body(schema: construct.Construct) -> Body:
    """Return the operations of a body.

    Raises:
        UnlowerableError: with the field.
    """
    lowering = _BodyLowering()
    while isinstance(schema, construct.Renamed):
        schema = schema.subcon
    found = lowering.node(schema, "", Scope(""))
    if not isinstance(found, Scope):
        raise Unlowerable("", "a body is a structure")
    return Body(_cases_joined(lowering.ops), found.names)


def _cases_joined(ops: Iterable[Op]) -> tuple[Op, ...]:
    """Merge neighbouring cases of the same condition into one; a case never changes its own condition."""
    done: list[Op] = []
    for op in ops:
        before = done[-1] if done else None
        if isinstance(op, Choose) and isinstance(before, Choose) and not op.other and not before.other:
            (test, arm), *more = op.arms
            if not more and len(before.arms) == 1 and before.arms[0][0] == test:
                done[-1] = Choose(before.path, ((test, (*before.arms[0][1], *arm)),), ())
                continue
        done.append(op)
    return tuple(
        Choose(op.path, tuple((test, _cases_joined(arm)) for test, arm in op.arms), _cases_joined(op.other))
        if isinstance(op, Choose) else op
        for op in done
    )  # fmt: skip


def _leaf_of(node: Any) -> Leaf | None:
    """Return the attribute `leaf`; not by `getattr`, which finds members of a Struct."""
    found = node.__dict__.get("leaf", getattr(type(node), "leaf", None))
    return found if isinstance(found, Leaf) else None


class _BodyLowering(Lowering):
    known: dict[type, Rule | None] = {}

    def node(self, node: Any, path: str, scope: Scope) -> Binding:
        if isinstance(node, Unshown):
            return Aside(self.node(node.subcon, path, scope))
        if isinstance(node, Unwritten):
            self.ops.append(Require(path, Num(0)))
            return Aside(NOTHING)
        if isinstance(node, Sole):
            return self._sole(node, path, scope)
        if isinstance(node, Called):
            return Titled(self.node(node.subcon, path, scope), node.title)
        if isinstance(node, UnlessZero):
            return self._unless_zero(node, path, scope)
        leaf = _leaf_of(node)
        return super().node(node, path, scope) if leaf is None else self._leaf(node, leaf, path, scope)

    def _leaf(self, node: Any, leaf: Leaf, path: str, scope: Scope) -> Binding:
        if isinstance(node, construct.Subconstruct):
            ops, found = self._branch(node.subcon, path, scope)
            self.ops += ops if isinstance(found, Raw) else (Span(path, ops),)
        else:
            self.ops.append(Skip(path, Num(node.size)))
        return Raw(path, leaf, tuple(self._around(name, path, scope) for name in leaf.given))

    def _around(self, name: str, path: str, scope: Scope) -> Ref | Raw | Row:
        """Return the field of this name in the enclosing structures."""
        around: Scope | None = scope
        while around is not None and name not in around.names:
            around = around.parent
        found = None if around is None else bare(around.names[name])
        if not isinstance(found, Ref | Raw | Row):
            raise Unlowerable(path, f"{name} is no number, bytes or list of a structure around it")
        return found

    def _sole(self, node: Any, path: str, scope: Scope) -> Binding:
        found = self.node(node.subcon, path, scope)
        shown = found.names.get(node.shown) if isinstance(found, Scope) else None
        if not isinstance(shown, Raw):
            raise Unlowerable(path, f"{node.shown} is no field of bytes in it")
        return Raw(shown.path, node.as_leaf)

    def _unless_zero(self, node: Any, path: str, scope: Scope) -> Binding:
        found = self.node(node.subcon, path, scope)
        inner = bare(found)
        number = inner.ref if isinstance(inner, Flags) else inner
        if not isinstance(number, Ref):
            raise Unlowerable(path, "only an integer can be 0")
        return Maybe(inner, binary("!=", number, Num(0)))

    def _greedy(self, node: Any, path: str, scope: Scope) -> Binding:
        self.ops.append(Rest(path))
        return Raw(path)

    def _end(self, node: Any, path: str, scope: Scope) -> Binding:
        left = joined(path, "left")
        self.ops += [Left(left), Require(path, binary("==", Ref(left, 0, POSITION_MAX), Num(0)))]
        return NOTHING

    def _if_more(self, node: Any, path: str, scope: Scope) -> Binding:
        left = joined(path, "left")
        self.ops.append(Left(left))
        test = binary(">", Ref(left, 0, POSITION_MAX), Num(0))
        ops, found = self._branch(node.subcon, path, scope)
        self.ops.append(Choose(path, ((test, ops),), ()))
        return _there_if(test, found)

    def _if(self, node: Any, path: str, scope: Scope) -> Binding:
        if node.elsesubcon is not construct.Pass:
            return super()._if(node, path, scope)
        test = self.expression(node.condfunc, path, scope)
        ops, found = self._branch(node.thensubcon, path, scope)
        self.ops.append(Choose(path, ((test, ops),), ()))
        return _there_if(test, merged(found, NOTHING) if isinstance(found, Ref) else found)

    def _flags(self, node: Any, path: str, scope: Scope) -> Binding:
        value = self.node(node.subcon, path, scope)
        if not isinstance(value, Ref):
            raise Unlowerable(path, "flags need an integer")
        return Flags(value, {str(name): int(mask) for name, mask in node.flags.items()})

    def _split(self, node: Any, path: str, scope: Scope) -> Binding:
        stored, high, size = joined(path, "stored"), joined(path, "high"), node.size
        self.ops.append(Load(stored, size, False, False))
        whole = Ref(stored, 0, (1 << 8 * size) - 1)
        self.ops.append(Let(path, binary("&", whole, Num((1 << node.bits) - 1))))
        self.ops.append(Let(high, binary(">>", whole, Num(node.bits))))
        return Bitten(Ref(path, 0, (1 << node.bits) - 1), Ref(high, 0, (1 << 8 * size - node.bits) - 1))

    def _ahead(self, node: Any, path: str, scope: Scope) -> Binding:
        left = joined(path, "left")
        ops, found = self._branch(node.subcon, path, scope)
        enough = binary(">=", Ref(left, 0, POSITION_MAX), Num(node.subcon.sizeof()))
        self.ops.append(operations.Ahead(path, (Left(left), Choose(path, ((enough, ops),), ()))))
        return Aside(found)

    def _count(self, node: Any, path: str, scope: Scope) -> Binding:
        found = self.node(node.subcon, path, scope)
        number = bare(found)
        number = number.ref if isinstance(number, Bitten) else number
        if not isinstance(number, Ref):
            raise Unlowerable(path, "a count is an integer")
        self.ops.append(Fit(path, number, node.smallest, node.what))
        return Aside(found)

    def _array(self, node: Any, path: str, scope: Scope) -> Binding:
        count = self.expression(node.count, path, scope)
        ops, found = self._branch(node.subcon, path, scope)
        if not least_size(ops) and not any(isinstance(op, Scalar) for op in ops):
            raise Unlowerable(path, "its elements may be empty")
        self.ops.append(Many(path, count, _cases_joined(ops)))
        return Row(path, found)

    def _expanded(self, node: Any, path: str, scope: Scope) -> Binding:
        found, leaf = self.node(node.subcon, path, scope), _leaf_of(node.detail)
        return Raw(path, leaf) if isinstance(found, Raw) and leaf is not None else found


def _there_if(test: Expr, found: Binding) -> Binding:
    """Make a binding conditional; if it has a condition already, it is there when both are met."""
    if not isinstance(found, Maybe):
        return Maybe(found, test)
    both = [one if is_truth(one) else Not(Not(one)) for one in (test, found.test)]
    return Maybe(found.inner, Binary("and", both[0], both[1], 0, 1))


_BodyLowering.rules = (
    (Expanded, _BodyLowering._expanded),
    (type(construct.GreedyBytes), _BodyLowering._greedy),
    (type(construct.Terminated), _BodyLowering._end),
    (IfMore, _BodyLowering._if_more),
    (construct.FlagsEnum, _BodyLowering._flags),
    (SplitInt, _BodyLowering._split),
    (Ahead, _BodyLowering._ahead),
    (Count, _BodyLowering._count),
    (construct.Array, _BodyLowering._array),
    (construct.IfThenElse, _BodyLowering._if),
    *RULES,
)
