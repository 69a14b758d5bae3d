"""Copy a schema into one whose fields add rows while they parse; the schema itself stays unchanged."""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterator
from functools import lru_cache
from itertools import groupby
from typing import Any

import construct
from construct import Construct, Renamed
from construct.lib import bytes2bits

from binlogtool.formats import fields
from binlogtool.schema import trace_lists as lists
from binlogtool.schema import trace_nodes as nodes
from binlogtool.schema.trace_fixed import Fixed, FixedMagic, FixedRun
from binlogtool.schema.trace_quick import Members, quick
from binlogtool.schema.trace_shapes import Shapes, Spoils
from binlogtool.schema.trace_state import Trace
from binlogtool.schema.trace_words import condition, names_in

Memo = dict[int, tuple[Construct, Construct]]
"""id of an original -> the original (kept alive, so that its id stays its own) and its copy."""

_SILENT = (
    construct.Computed, construct.Check, construct.StopIf, fields.CrcCheck, type(construct.Tell), type(construct.Pass),
    type(construct.Terminated), type(construct.Error), type(construct.Index), construct.Seek,
)  # fmt: skip

_REPLACED: dict[type, type] = {
    construct.Array: lists.Elements,
    construct.GreedyRange: lists.Open,
    construct.RepeatUntil: lists.Until,
    construct.Peek: nodes.Glance,
    construct.Pointer: nodes.Elsewhere,
    construct.Select: nodes.Choice,
    construct.FlagsEnum: nodes.FlagBits,
    construct.IfThenElse: nodes.Branch,
    construct.Check: nodes.Condition,
    construct.StringEncoded: nodes.Encoded,
    fields.Magic: nodes.NamedMagic,
    fields.CrcCheck: nodes.Verdict,
    fields.Expanded: nodes.Inside,
    fields.Unpacked: nodes.Packed,
}

_OWN = (
    nodes.Node, nodes.Leaf, nodes.Here, nodes.Silent, nodes.Unnamed, lists.Elements, lists.Open, nodes.Branch,
    nodes.FlagBits, nodes.NamedMagic, nodes.Condition, nodes.Inside, Fixed, FixedMagic, Members, construct.Switch,
)  # fmt: skip
"""Parts of which it is known what they look at; in all others nothing is learned (`trace_shapes`)."""

_OPAQUE = (construct.Transformed, construct.Restreamed, construct.RestreamData, construct.Union, construct.Tunnel,
           construct.ProcessXor, construct.ProcessRotateLeft, construct.LazyStruct, construct.LazyArray,
           construct.Lazy)  # fmt: skip


@lru_cache(maxsize=256)
def traced(schema: Construct) -> Construct:
    """Return the traced copy of a schema, made once. Parts without fields are shared with the original."""
    return _copy(schema, {})


def _copy(subcon: Construct, memo: Memo) -> Construct:
    known = memo.get(id(subcon))
    if known is None:
        made = _make(subcon, memo)
        if made is not subcon and type(made) not in _OWN:
            made = Spoils(made)
            made.ends = getattr(subcon, "looks_for_end", False)
        known = memo[id(subcon)] = subcon, made
    return known[1]


def _make(subcon: Construct, memo: Memo) -> Construct:
    if hasattr(type(subcon), "trace_rows"):
        return nodes.Parts(subcon)
    special = next((make for kind, make in _SPECIAL if isinstance(subcon, kind)), None)
    if special is not None:
        return special(subcon, memo)
    return _generic(subcon, memo)


def _generic(subcon: Construct, memo: Memo) -> Construct:
    """Return the same object if nothing in it is traced, else a copy with traced parts."""
    replaced = _REPLACED.get(type(subcon))
    old = {name: value for name, value in vars(subcon).items() if name != "_subcons"}
    new = {name: _attribute(value, memo) for name, value in old.items()}
    if replaced is None and all(new[name] is old[name] for name in old):
        return subcon
    extra: dict[str, Any] = {}
    if isinstance(subcon, fields.CrcCheck):
        extra = {"stored_names": next(iter(names_in(subcon.stored)), [])}
    elif isinstance(subcon, construct.Check):
        extra = {"said": condition(subcon.func), "about": names_in(subcon.func)}
    elif isinstance(subcon, fields.Magic):
        extra = {"known": nodes.named(subcon.names)}
    elif isinstance(subcon, construct.FlagsEnum):
        extra = {"seen": {}}
    elif isinstance(subcon, construct.IfThenElse):
        extra = {"reads": (_reader(new["elsesubcon"]), _reader(new["thensubcon"]))}
    elif isinstance(subcon, fields.Expanded):
        extra = {"read": _reader(subcon.subcon)}
    return _instance(replaced or type(subcon), {**_quick(vars(subcon)), **_quick(new), **extra})


def _quick(attributes: dict[str, Any]) -> dict[str, Any]:
    return {name: quick(value) for name, value in attributes.items()}


def _instance(kind: type, attributes: dict[str, Any]) -> Any:
    made: Any = object.__new__(kind)
    made.__dict__.update(attributes)
    return made


def _attribute(value: Any, memo: Memo) -> Any:
    if isinstance(value, Construct):
        return _copy(value, memo)
    if isinstance(value, list | tuple) and any(isinstance(item, Construct) for item in value):
        copied = [_attribute(item, memo) for item in value]
        return value if all(a is b for a, b in zip(copied, value, strict=True)) else type(value)(copied)
    if isinstance(value, dict) and any(isinstance(item, Construct) for item in value.values()):
        cases = {key: _attribute(item, memo) for key, item in value.items()}
        return value if all(cases[key] is value[key] for key in value) else cases
    return value


def _renamed(subcon: Renamed, memo: Memo) -> Construct:
    inner = _peel(subcon)
    copied = _copy(inner, memo)
    if subcon.name is None:  # a marker inside of another part
        return subcon if copied is inner else copied
    attributes = {**vars(subcon), "subcon": copied, "read": _reader(copied)}
    if inner is construct.Tell:
        return _instance(nodes.Here, attributes)
    if _silent(inner):
        return _instance(nodes.Silent, attributes)
    if type(inner) is construct.FormatField and inner.parsed is None:
        return _instance(Fixed, {**attributes, **_layout(inner)})
    if type(inner) is fields.Magic and type(inner.subcon) is construct.FormatField and inner.subcon.parsed is None:
        return _instance(FixedMagic, {**attributes, **_layout(inner.subcon), "known": copied.known})
    if copied is inner or type(inner) in (construct.FlagsEnum, fields.Magic) or _untraced(inner, copied):
        return _instance(nodes.Leaf, {**attributes, "local": _local(inner)})
    if isinstance(inner, construct.Padded | construct.Aligned):
        attributes["filler"] = "padding"
    return _instance(nodes.Node, attributes)


def _local(subcon: Construct) -> bool:
    """Return True if the part reads its own bytes only."""
    if type(subcon) in (construct.Enum, construct.FlagsEnum, fields.Magic):
        return _local(subcon.subcon)
    if type(subcon) is construct.IfThenElse:
        return _local(_peel(subcon.thensubcon)) and _local(_peel(subcon.elsesubcon))
    return subcon is construct.Pass or type(subcon) in (construct.FormatField, construct.Bytes, construct.Computed)


def _untraced(subcon: Construct, copied: Construct) -> bool:
    """Return True for a choice between two parts without rows of their own."""
    if not isinstance(subcon, construct.IfThenElse):
        return False
    return copied.thensubcon is subcon.thensubcon and copied.elsesubcon is subcon.elsesubcon


def _silent(subcon: Construct) -> bool:
    """Return True if the part never takes a byte, so that it has no row."""
    if isinstance(subcon, construct.IfThenElse):
        return _silent(_peel(subcon.thensubcon)) and _silent(_peel(subcon.elsesubcon))
    return isinstance(subcon, _SILENT)


def _layout(number: construct.FormatField) -> dict[str, Any]:
    layout = struct.Struct(number.fmtstr)
    code = number.fmtstr[1:] if number.fmtstr[0] == "<" or layout.size == 1 else ""
    return {"unpack": layout.unpack, "size": layout.size, "code": code}


def _peel(subcon: Construct) -> Construct:
    while isinstance(subcon, Renamed):
        subcon = subcon.subcon
    return subcon


def _reader(subcon: Construct) -> Callable[..., Any]:
    """Return the parser of a part, with compiled expressions."""
    if isinstance(subcon, construct.Computed) and type(subcon) is not construct.Computed:
        subcon = Spoils(subcon)
    old = vars(subcon)
    new = _quick(old)
    if any(new[name] is not old[name] for name in old):
        subcon = _instance(type(subcon), new)
    return subcon._parse if subcon.parsed is None else subcon._parsereport  # type: ignore[no-any-return]


def _members(subcon: Construct, memo: Memo) -> Construct:
    """Copy a structure; members without a name get one."""
    focus = getattr(subcon, "parsebuildfrom", None)
    labels: dict[str, int] = {}
    copied = [_member(member, focus, labels, memo) for member in subcon.subcons]
    attributes = {**vars(subcon), "subcons": copied}
    if type(subcon) is construct.Struct:
        attributes["steps"] = tuple(_steps(copied))
        attributes["shapes"] = Shapes()
        return _instance(Members, attributes)
    return _instance(type(subcon), attributes)


def _steps(members: list[Construct]) -> Iterator[tuple[str | tuple[str, ...] | None, Any]]:
    """Yield the steps of a `TracedStruct`; neighbouring numbers are read at once."""
    for order, some in groupby(members, _byte_order):
        run = list(some)
        if order and len(run) > 1:
            layout = struct.Struct(order + "".join(member.subcon.fmtstr[1:] for member in run))
            yield tuple(member.name for member in run), FixedRun(run, layout)
        else:
            yield from ((member.name, _reader(member)) for member in run)


def _byte_order(member: Construct) -> str:
    """Return the byte order of a named number as `struct` writes it; "" for anything else."""
    return str(member.subcon.fmtstr[0]) if type(member) is Fixed else ""


def _member(member: Construct, focus: Any, labels: dict[str, int], memo: Memo) -> Construct:
    if member.name is not None and member.name == focus:
        return _unnamed(_copy(_peel(member), memo), "value", member.name)
    if member.name is not None or isinstance(member, _SILENT):
        return _copy(member, memo)
    label = _label(member)
    labels[label] = count = labels.get(label, 0) + 1
    return _unnamed(_copy(member, memo), label if count == 1 else f"{label}{count}")


def _label(member: Construct) -> str:
    if isinstance(member, construct.Padded | construct.Aligned):
        return "padding"
    return "constant" if isinstance(member, construct.Const) else "unnamed"


def _unnamed(subcon: Construct, label: str, name: str | None = None) -> Construct:
    made: Construct = nodes.Unnamed(subcon)
    made.label, made.name = label, name
    return made


def _prefixed(subcon: construct.Prefixed, memo: Memo) -> Construct:
    read = _reader(subcon.lengthfield)
    length = _instance(nodes.Leaf, {**vars(Renamed(subcon.lengthfield, newname="length")), "read": read})
    content = _unnamed(_copy(subcon.subcon, memo), "value")
    return _instance(type(subcon), {**vars(subcon), "lengthfield": length, "subcon": content})


def _opaque(subcon: Construct, memo: Memo) -> Construct:
    if type(subcon) is construct.Transformed and subcon.decodefunc is bytes2bits and subcon.decodeamount is not None:
        bits = nodes.Bits(_copy(subcon.subcon, memo))
        bits.size, bits.decode = subcon.decodeamount, subcon.decodefunc
        return bits
    return nodes.Opaque(subcon)


class _Bound(construct.LazyBound):  # type: ignore[misc]
    """A reference that is resolved on first use; it counts the depth, because the schema may have no names."""

    memo: Memo
    target: Construct | None

    def _parse(self, stream: Any, context: Any, path: Any) -> Any:
        if self.target is None:
            self.target = _copy(self.subconfunc(), self.memo)
        if path.__class__ is not Trace:
            return self.target._parsereport(stream, context, path)
        path.depth += 1
        try:
            if path.depth > path.limits.max_depth:
                raise fields.MalformedError(f"nested more than {path.limits.max_depth} deep", None, "nesting-too-deep")
            return self.target._parsereport(stream, context, path)
        finally:
            path.depth -= 1


def _bound(subcon: construct.LazyBound, memo: Memo) -> Construct:
    return _instance(_Bound, {**vars(subcon), "memo": memo, "target": None})


_SPECIAL: tuple[tuple[Any, Callable[[Any, Memo], Construct]], ...] = (
    (Renamed, _renamed),
    (construct.Struct | construct.Sequence | construct.FocusedSeq, _members),
    (construct.Prefixed, _prefixed),
    (construct.LazyBound, _bound),
    (_OPAQUE, _opaque),
)
