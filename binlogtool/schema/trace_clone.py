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
from binlogtool.schema.trace_fixed import TracedMagic, TracedNumber, TracedNumberRun
from binlogtool.schema.trace_quick import TracedStruct, compile_expression
from binlogtool.schema.trace_shapes import LearningStopper, ShapeCache
from binlogtool.schema.trace_state import Trace
from binlogtool.schema.trace_words import find_field_paths, format_condition

CopyMemo = dict[int, tuple[Construct, Construct]]
"""id of an original -> the original (kept alive, so that its id stays its own) and its copy."""

_BYTELESS_CLASSES = (
    construct.Computed, construct.Check, construct.StopIf, fields.CrcCheck, type(construct.Tell), type(construct.Pass),
    type(construct.Terminated), type(construct.Error), type(construct.Index), construct.Seek,
)  # fmt: skip

_TRACED_CLASSES: dict[type, type] = {
    construct.Array: lists.TracedArray,
    construct.GreedyRange: lists.TracedGreedyRange,
    construct.RepeatUntil: lists.TracedRepeatUntil,
    construct.Peek: nodes.UntracedPeek,
    construct.Pointer: nodes.UntracedPointer,
    construct.Select: nodes.TracedSelect,
    construct.FlagsEnum: nodes.TracedFlags,
    construct.IfThenElse: nodes.TracedBranch,
    construct.Check: nodes.TracedCheck,
    construct.StringEncoded: nodes.TracedString,
    fields.Magic: nodes.TracedNamedMagic,
    fields.CrcCheck: nodes.TracedCrcCheck,
    fields.NestedSchema: nodes.TracedNested,
    fields.CompressedSchema: nodes.TracedCompressed,
}

_PREDICTABLE_CLASSES = (
    nodes.TracedNode, nodes.TracedLeaf, nodes.TracedTell, nodes.TracedByteless, nodes.TracedUnnamed,
    lists.TracedArray, lists.TracedGreedyRange, nodes.TracedBranch,
    nodes.TracedFlags, nodes.TracedNamedMagic, nodes.TracedCheck, nodes.TracedNested, TracedNumber, TracedMagic,
    TracedStruct, construct.Switch,
)  # fmt: skip
"""Parts of which it is known what they look at; in all others nothing is learned (`trace_shapes`)."""

_UNTRACEABLE_CLASSES = (construct.Transformed, construct.Restreamed, construct.RestreamData, construct.Union,
construct.Tunnel,
           construct.ProcessXor, construct.ProcessRotateLeft, construct.LazyStruct, construct.LazyArray,
           construct.Lazy)  # fmt: skip


@lru_cache(maxsize=256)
def make_traced_copy(schema: Construct) -> Construct:
    """Return the traced copy of a schema, made once. Parts without fields are shared with the original."""
    return _copy_part(schema, {})


def _copy_part(subcon: Construct, memo: CopyMemo) -> Construct:
    entry = memo.get(id(subcon))
    if entry is None:
        copied = _make_copy(subcon, memo)
        if copied is not subcon and type(copied) not in _PREDICTABLE_CLASSES:
            copied = LearningStopper(copied)
            copied.ends = getattr(subcon, "looks_for_end", False)
        entry = memo[id(subcon)] = subcon, copied
    return entry[1]


def _make_copy(subcon: Construct, memo: CopyMemo) -> Construct:
    if hasattr(type(subcon), "trace_rows"):
        return nodes.TracedParts(subcon)
    special = next((make for kind, make in _SPECIAL_COPIES if isinstance(subcon, kind)), None)
    if special is not None:
        return special(subcon, memo)
    return _copy_generic(subcon, memo)


def _copy_generic(subcon: Construct, memo: CopyMemo) -> Construct:
    """Return the same object if nothing in it is traced, else a copy with traced parts."""
    replaced = _TRACED_CLASSES.get(type(subcon))
    old = {name: value for name, value in vars(subcon).items() if name != "_subcons"}
    new = {name: _copy_attribute(value, memo) for name, value in old.items()}
    if replaced is None and all(new[name] is old[name] for name in old):
        return subcon
    extra: dict[str, Any] = {}
    if isinstance(subcon, fields.CrcCheck):
        extra = {"stored_names": next(iter(find_field_paths(subcon.stored)), [])}
    elif isinstance(subcon, construct.Check):
        extra = {"said": format_condition(subcon.func), "about": find_field_paths(subcon.func)}
    elif isinstance(subcon, fields.Magic):
        extra = {"known": nodes.make_named_values(subcon.names)}
    elif isinstance(subcon, construct.FlagsEnum):
        extra = {"seen": {}}
    elif isinstance(subcon, construct.IfThenElse):
        extra = {"reads": (_make_parser(new["elsesubcon"]), _make_parser(new["thensubcon"]))}
    elif isinstance(subcon, fields.NestedSchema):
        extra = {"read": _make_parser(subcon.subcon)}
    return _make_instance(
        replaced or type(subcon), {**_compile_attributes(vars(subcon)), **_compile_attributes(new), **extra}
    )


def _compile_attributes(attributes: dict[str, Any]) -> dict[str, Any]:
    return {name: compile_expression(value) for name, value in attributes.items()}


def _make_instance(kind: type, attributes: dict[str, Any]) -> Any:
    instance: Any = object.__new__(kind)
    instance.__dict__.update(attributes)
    return instance


def _copy_attribute(value: Any, memo: CopyMemo) -> Any:
    if isinstance(value, Construct):
        return _copy_part(value, memo)
    if isinstance(value, list | tuple) and any(isinstance(item, Construct) for item in value):
        copied = [_copy_attribute(item, memo) for item in value]
        return value if all(a is b for a, b in zip(copied, value, strict=True)) else type(value)(copied)
    if isinstance(value, dict) and any(isinstance(item, Construct) for item in value.values()):
        cases = {key: _copy_attribute(item, memo) for key, item in value.items()}
        return value if all(cases[key] is value[key] for key in value) else cases
    return value


def _copy_renamed(subcon: Renamed, memo: CopyMemo) -> Construct:
    inner = _unwrap_renamed(subcon)
    copied = _copy_part(inner, memo)
    if subcon.name is None:  # a marker inside of another part
        return subcon if copied is inner else copied
    attributes = {**vars(subcon), "subcon": copied, "read": _make_parser(copied)}
    if inner is construct.Tell:
        return _make_instance(nodes.TracedTell, attributes)
    if _is_byteless(inner):
        return _make_instance(nodes.TracedByteless, attributes)
    if type(inner) is construct.FormatField and inner.parsed is None:
        return _make_instance(TracedNumber, {**attributes, **_make_number_layout(inner)})
    if type(inner) is fields.Magic and type(inner.subcon) is construct.FormatField and inner.subcon.parsed is None:
        return _make_instance(TracedMagic, {**attributes, **_make_number_layout(inner.subcon), "known": copied.known})
    if copied is inner or type(inner) in (construct.FlagsEnum, fields.Magic) or _is_untraced_branch(inner, copied):
        return _make_instance(nodes.TracedLeaf, {**attributes, "local": _is_local(inner)})
    if isinstance(inner, construct.Padded | construct.Aligned):
        attributes["filler"] = "padding"
    return _make_instance(nodes.TracedNode, attributes)


def _is_local(subcon: Construct) -> bool:
    """Return True if the part reads its own bytes only."""
    if type(subcon) in (construct.Enum, construct.FlagsEnum, fields.Magic):
        return _is_local(subcon.subcon)
    if type(subcon) is construct.IfThenElse:
        return _is_local(_unwrap_renamed(subcon.thensubcon)) and _is_local(_unwrap_renamed(subcon.elsesubcon))
    return subcon is construct.Pass or type(subcon) in (construct.FormatField, construct.Bytes, construct.Computed)


def _is_untraced_branch(subcon: Construct, copied: Construct) -> bool:
    """Return True for a choice between two parts without rows of their own."""
    if not isinstance(subcon, construct.IfThenElse):
        return False
    return copied.thensubcon is subcon.thensubcon and copied.elsesubcon is subcon.elsesubcon


def _is_byteless(subcon: Construct) -> bool:
    """Return True if the part never takes a byte, so that it has no row."""
    if isinstance(subcon, construct.IfThenElse):
        return _is_byteless(_unwrap_renamed(subcon.thensubcon)) and _is_byteless(_unwrap_renamed(subcon.elsesubcon))
    return isinstance(subcon, _BYTELESS_CLASSES)


def _make_number_layout(number: construct.FormatField) -> dict[str, Any]:
    layout = struct.Struct(number.fmtstr)
    code = number.fmtstr[1:] if number.fmtstr[0] == "<" or layout.size == 1 else ""
    return {"unpack": layout.unpack, "size": layout.size, "code": code}


def _unwrap_renamed(subcon: Construct) -> Construct:
    while isinstance(subcon, Renamed):
        subcon = subcon.subcon
    return subcon


def _make_parser(subcon: Construct) -> Callable[..., Any]:
    """Return the parser of a part, with compiled expressions."""
    if isinstance(subcon, construct.Computed) and type(subcon) is not construct.Computed:
        subcon = LearningStopper(subcon)
    old = vars(subcon)
    new = _compile_attributes(old)
    if any(new[name] is not old[name] for name in old):
        subcon = _make_instance(type(subcon), new)
    return subcon._parse if subcon.parsed is None else subcon._parsereport  # type: ignore[no-any-return]


def _copy_struct(subcon: Construct, memo: CopyMemo) -> Construct:
    """Copy a structure; members without a name get one."""
    focus = getattr(subcon, "parsebuildfrom", None)
    labels: dict[str, int] = {}
    copied = [_copy_member(member, focus, labels, memo) for member in subcon.subcons]
    attributes = {**vars(subcon), "subcons": copied}
    if type(subcon) is construct.Struct:
        attributes["steps"] = tuple(_make_steps(copied))
        attributes["shapes"] = ShapeCache()
        return _make_instance(TracedStruct, attributes)
    return _make_instance(type(subcon), attributes)


def _make_steps(members: list[Construct]) -> Iterator[tuple[str | tuple[str, ...] | None, Any]]:
    """Yield the steps of a `TracedStruct`; neighbouring numbers are read at once."""
    for order, some in groupby(members, _get_byte_order):
        run = list(some)
        if order and len(run) > 1:
            layout = struct.Struct(order + "".join(member.subcon.fmtstr[1:] for member in run))
            yield tuple(member.name for member in run), TracedNumberRun(run, layout)
        else:
            yield from ((member.name, _make_parser(member)) for member in run)


def _get_byte_order(member: Construct) -> str:
    """Return the byte order of a named number as `struct` writes it; "" for anything else."""
    return str(member.subcon.fmtstr[0]) if type(member) is TracedNumber else ""


def _copy_member(member: Construct, focus: Any, labels: dict[str, int], memo: CopyMemo) -> Construct:
    if member.name is not None and member.name == focus:
        return _make_unnamed(_copy_part(_unwrap_renamed(member), memo), "value", member.name)
    if member.name is not None or isinstance(member, _BYTELESS_CLASSES):
        return _copy_part(member, memo)
    label = _choose_label(member)
    labels[label] = count = labels.get(label, 0) + 1
    return _make_unnamed(_copy_part(member, memo), label if count == 1 else f"{label}{count}")


def _choose_label(member: Construct) -> str:
    if isinstance(member, construct.Padded | construct.Aligned):
        return "padding"
    return "constant" if isinstance(member, construct.Const) else "unnamed"


def _make_unnamed(subcon: Construct, label: str, name: str | None = None) -> Construct:
    unnamed: Construct = nodes.TracedUnnamed(subcon)
    unnamed.label, unnamed.name = label, name
    return unnamed


def _copy_prefixed(subcon: construct.Prefixed, memo: CopyMemo) -> Construct:
    read = _make_parser(subcon.lengthfield)
    length = _make_instance(nodes.TracedLeaf, {**vars(Renamed(subcon.lengthfield, newname="length")), "read": read})
    content = _make_unnamed(_copy_part(subcon.subcon, memo), "value")
    return _make_instance(type(subcon), {**vars(subcon), "lengthfield": length, "subcon": content})


def _copy_untraceable(subcon: Construct, memo: CopyMemo) -> Construct:
    if type(subcon) is construct.Transformed and subcon.decodefunc is bytes2bits and subcon.decodeamount is not None:
        bits = nodes.TracedBits(_copy_part(subcon.subcon, memo))
        bits.size, bits.decode = subcon.decodeamount, subcon.decodefunc
        return bits
    return nodes.UntracedField(subcon)


class _TracedLazyBound(construct.LazyBound):  # type: ignore[misc]
    """A reference that is resolved on first use; it counts the depth, because the schema may have no names."""

    memo: CopyMemo
    target: Construct | None

    def _parse(self, stream: Any, context: Any, path: Any) -> Any:
        if self.target is None:
            self.target = _copy_part(self.subconfunc(), self.memo)
        if path.__class__ is not Trace:
            return self.target._parsereport(stream, context, path)
        path.depth += 1
        try:
            if path.depth > path.limits.max_depth:
                raise fields.MalformedError(f"nested more than {path.limits.max_depth} deep", None, "nesting-too-deep")
            return self.target._parsereport(stream, context, path)
        finally:
            path.depth -= 1


def _copy_lazy_bound(subcon: construct.LazyBound, memo: CopyMemo) -> Construct:
    return _make_instance(_TracedLazyBound, {**vars(subcon), "memo": memo, "target": None})


_SPECIAL_COPIES: tuple[tuple[Any, Callable[[Any, CopyMemo], Construct]], ...] = (
    (Renamed, _copy_renamed),
    (construct.Struct | construct.Sequence | construct.FocusedSeq, _copy_struct),
    (construct.Prefixed, _copy_prefixed),
    (construct.LazyBound, _copy_lazy_bound),
    (_UNTRACEABLE_CLASSES, _copy_untraceable),
)
