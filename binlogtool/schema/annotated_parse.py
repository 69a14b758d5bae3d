"""Parse a record with annotations: return every field as path, start, end and value.

The schema is copied once to one whose fields add rows while they parse (`schema.annotated_parse_nodes`); the rows are
collected in a `Trace` (`schema.annotated_parse_state`).
"""

from __future__ import annotations

import io
import struct
from collections.abc import Callable, Iterable, Iterator
from functools import lru_cache
from itertools import groupby
from typing import Any

import construct
import msgspec
from construct import CancelParsing, Construct, Container, Renamed
from construct.lib import bytes2bits

from binlogtool.format_api import schema_fields
from binlogtool.limits import Limits
from binlogtool.schema import annotated_parse_nodes
from binlogtool.schema.annotated_parse_nodes import (
    TracedMagic,
    TracedNumber,
    TracedNumberRun,
    TracedStruct,
    compile_this_expression,
)
from binlogtool.schema.annotated_parse_state import (
    ROW_BYTES,
    FoldedRow,
    LearningStopper,
    ShapeCache,
    Trace,
    TraceError,
    find_field_paths,
    format_condition,
    unfold_rows,
)
from binlogtool.schema.annotation_types import AddressSpace, FieldRow

__all__ = ["ROW_BYTES", "AddressSpace", "TraceError", "TraceResult", "add_unmapped_rows", "parse_to_field_rows"]


# --- Schemas whose fields add rows ---

TracedCopies = dict[int, tuple[Construct, Construct]]
"""id of an original -> (the original, kept alive so that its id is not reused; its copy)."""

_BYTELESS_CLASSES = (
    construct.Computed, construct.Check, construct.StopIf, schema_fields.CrcCheck, type(construct.Tell),
    type(construct.Pass),
    type(construct.Terminated), type(construct.Error), type(construct.Index), construct.Seek,
)  # fmt: skip

_TRACED_CLASSES: dict[type, type] = {
    construct.Array: annotated_parse_nodes.TracedArray,
    construct.GreedyRange: annotated_parse_nodes.TracedGreedyRange,
    construct.RepeatUntil: annotated_parse_nodes.TracedRepeatUntil,
    construct.Peek: annotated_parse_nodes.UntracedPeek,
    construct.Pointer: annotated_parse_nodes.UntracedPointer,
    construct.Select: annotated_parse_nodes.TracedSelect,
    construct.FlagsEnum: annotated_parse_nodes.TracedFlags,
    construct.IfThenElse: annotated_parse_nodes.TracedBranch,
    construct.Check: annotated_parse_nodes.TracedCheck,
    construct.StringEncoded: annotated_parse_nodes.TracedString,
    schema_fields.Magic: annotated_parse_nodes.TracedNamedMagic,
    schema_fields.CrcCheck: annotated_parse_nodes.TracedCrcCheck,
    schema_fields.NestedSchema: annotated_parse_nodes.TracedNested,
    schema_fields.CompressedSchema: annotated_parse_nodes.TracedCompressed,
}

_PREDICTABLE_CLASSES = (
    annotated_parse_nodes.TracedNode, annotated_parse_nodes.TracedLeaf,
    annotated_parse_nodes.TracedByteless, annotated_parse_nodes.TracedUnnamed,
    annotated_parse_nodes.TracedArray, annotated_parse_nodes.TracedGreedyRange, annotated_parse_nodes.TracedBranch,
    annotated_parse_nodes.TracedFlags, annotated_parse_nodes.TracedNamedMagic,
    annotated_parse_nodes.TracedCheck, annotated_parse_nodes.TracedNested, TracedNumber, TracedMagic,
    TracedStruct, construct.Switch,
)  # fmt: skip
"""Parts that read only their own bytes and known fields; other parts prevent learning of element shapes."""

_UNTRACEABLE_CLASSES = (construct.Transformed, construct.Restreamed, construct.RestreamData, construct.Union,
construct.Tunnel,
           construct.ProcessXor, construct.ProcessRotateLeft, construct.LazyStruct, construct.LazyArray,
           construct.Lazy)  # fmt: skip


@lru_cache(maxsize=256)
def make_traced_copy(schema: Construct) -> Construct:
    """Return the traced copy of a schema, which is made once. Parts without fields are shared with the original."""
    return _copy_traced_part_once(schema, {})


def _copy_traced_part_once(subcon: Construct, memo: TracedCopies) -> Construct:
    """Return the traced copy of a part, made once; wrap parts that depend on other bytes in a `LearningStopper`."""
    entry = memo.get(id(subcon))
    if entry is None:
        copied = _make_traced_part(subcon, memo)
        if copied is not subcon and type(copied) not in _PREDICTABLE_CLASSES:
            copied = LearningStopper(copied)
            copied.ends = getattr(subcon, "looks_for_end", False)
        entry = memo[id(subcon)] = subcon, copied
    return entry[1]


def _make_traced_part(subcon: Construct, memo: TracedCopies) -> Construct:
    if hasattr(type(subcon), "trace_rows"):
        return annotated_parse_nodes.TracedParts(subcon)
    special = next((make for kind, make in _SPECIAL_COPIES if isinstance(subcon, kind)), None)
    if special is not None:
        return special(subcon, memo)
    return _copy_part_generically(subcon, memo)


def _copy_part_generically(subcon: Construct, memo: TracedCopies) -> Construct:
    """Return the part itself if nothing in it is traced, else a copy with traced parts."""
    replaced = _TRACED_CLASSES.get(type(subcon))
    old = {name: value for name, value in vars(subcon).items() if name != "_subcons"}
    new = {name: _copy_parts_in_attribute(value, memo) for name, value in old.items()}
    if replaced is None and all(new[name] is old[name] for name in old):
        return subcon
    extra: dict[str, Any] = {}
    if isinstance(subcon, schema_fields.CrcCheck):
        extra = {"stored_names": next(iter(find_field_paths(subcon.stored)), [])}
    elif isinstance(subcon, construct.Check):
        extra = {"said": format_condition(subcon.func), "about": find_field_paths(subcon.func)}
    elif isinstance(subcon, schema_fields.Magic):
        extra = {"known": annotated_parse_nodes.make_named_values(subcon.names)}
    elif isinstance(subcon, construct.FlagsEnum):
        extra = {"seen": {}}
    elif isinstance(subcon, construct.IfThenElse):
        extra = {"reads": (_make_parser(new["elsesubcon"]), _make_parser(new["thensubcon"]))}
    elif isinstance(subcon, schema_fields.NestedSchema):
        extra = {"read": _make_parser(subcon.subcon)}
    return _make_instance(
        replaced or type(subcon), {**_compile_attributes(vars(subcon)), **_compile_attributes(new), **extra}
    )


def _compile_attributes(attributes: dict[str, Any]) -> dict[str, Any]:
    return {name: compile_this_expression(value) for name, value in attributes.items()}


def _make_instance(kind: type, attributes: dict[str, Any]) -> Any:
    instance: Any = object.__new__(kind)
    instance.__dict__.update(attributes)
    return instance


def _copy_parts_in_attribute(value: Any, memo: TracedCopies) -> Any:
    if isinstance(value, Construct):
        return _copy_traced_part_once(value, memo)
    if isinstance(value, list | tuple) and any(isinstance(item, Construct) for item in value):
        copied = [_copy_parts_in_attribute(item, memo) for item in value]
        return value if all(a is b for a, b in zip(copied, value, strict=True)) else type(value)(copied)
    if isinstance(value, dict) and any(isinstance(item, Construct) for item in value.values()):
        cases = {key: _copy_parts_in_attribute(item, memo) for key, item in value.items()}
        return value if all(cases[key] is value[key] for key in value) else cases
    return value


def _copy_renamed(subcon: Renamed, memo: TracedCopies) -> Construct:
    inner = _unwrap_renamed(subcon)
    copied = _copy_traced_part_once(inner, memo)
    if subcon.name is None:  # a marker inside another part
        return subcon if copied is inner else copied
    attributes = {**vars(subcon), "subcon": copied, "read": _make_parser(copied)}
    if _is_byteless(inner):
        return _make_instance(annotated_parse_nodes.TracedByteless, attributes)
    if type(inner) is construct.FormatField and inner.parsed is None:
        return _make_instance(TracedNumber, {**attributes, **_make_number_layout(inner)})
    if (
        type(inner) is schema_fields.Magic
        and type(inner.subcon) is construct.FormatField
        and inner.subcon.parsed is None
    ):
        return _make_instance(TracedMagic, {**attributes, **_make_number_layout(inner.subcon), "known": copied.known})
    if (
        copied is inner
        or type(inner) in (construct.FlagsEnum, schema_fields.Magic)
        or _is_untraced_branch(inner, copied)
    ):
        return _make_instance(
            annotated_parse_nodes.TracedLeaf, {**attributes, "local": _is_reading_own_bytes_only(inner)}
        )
    if isinstance(inner, construct.Padded | construct.Aligned):
        attributes["filler"] = "padding"
    return _make_instance(annotated_parse_nodes.TracedNode, attributes)


def _is_reading_own_bytes_only(subcon: Construct) -> bool:
    """Return True if the part reads only its own bytes."""
    if type(subcon) in (construct.Enum, construct.FlagsEnum, schema_fields.Magic):
        return _is_reading_own_bytes_only(subcon.subcon)
    if type(subcon) is construct.IfThenElse:
        return _is_reading_own_bytes_only(_unwrap_renamed(subcon.thensubcon)) and _is_reading_own_bytes_only(
            _unwrap_renamed(subcon.elsesubcon)
        )
    return subcon is construct.Pass or type(subcon) in (construct.FormatField, construct.Bytes, construct.Computed)


def _is_untraced_branch(subcon: Construct, copied: Construct) -> bool:
    """Return True for a choice between two parts without rows."""
    if not isinstance(subcon, construct.IfThenElse):
        return False
    return copied.thensubcon is subcon.thensubcon and copied.elsesubcon is subcon.elsesubcon


def _is_byteless(subcon: Construct) -> bool:
    """Return True if the part occupies no bytes, so that it has no row."""
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
    """Return the parse function of a part, with compiled expressions."""
    if isinstance(subcon, construct.Computed) and type(subcon) is not construct.Computed:
        subcon = LearningStopper(subcon)
    old = vars(subcon)
    new = _compile_attributes(old)
    if any(new[name] is not old[name] for name in old):
        subcon = _make_instance(type(subcon), new)
    return subcon._parse if subcon.parsed is None else subcon._parsereport  # type: ignore[no-any-return]


def _copy_struct(subcon: Construct, memo: TracedCopies) -> Construct:
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
    """Yield the steps of a `TracedStruct`; neighbouring numbers are read together."""
    for order, some in groupby(members, _get_byte_order):
        run = list(some)
        if order and len(run) > 1:
            layout = struct.Struct(order + "".join(member.subcon.fmtstr[1:] for member in run))
            yield tuple(member.name for member in run), TracedNumberRun(run, layout)
        else:
            yield from ((member.name, _make_parser(member)) for member in run)


def _get_byte_order(member: Construct) -> str:
    """Return the byte order character of `struct` for a named number; "" for anything else."""
    return str(member.subcon.fmtstr[0]) if type(member) is TracedNumber else ""


def _copy_member(member: Construct, focus: Any, labels: dict[str, int], memo: TracedCopies) -> Construct:
    if member.name is not None and member.name == focus:
        return _make_unnamed(_copy_traced_part_once(_unwrap_renamed(member), memo), "value", member.name)
    if member.name is not None or isinstance(member, _BYTELESS_CLASSES):
        return _copy_traced_part_once(member, memo)
    label = _choose_label(member)
    labels[label] = count = labels.get(label, 0) + 1
    return _make_unnamed(_copy_traced_part_once(member, memo), label if count == 1 else f"{label}{count}")


def _choose_label(member: Construct) -> str:
    if isinstance(member, construct.Padded | construct.Aligned):
        return "padding"
    return "constant" if isinstance(member, construct.Const) else "unnamed"


def _make_unnamed(subcon: Construct, label: str, name: str | None = None) -> Construct:
    unnamed: Construct = annotated_parse_nodes.TracedUnnamed(subcon)
    unnamed.label, unnamed.name = label, name
    return unnamed


def _copy_prefixed(subcon: construct.Prefixed, memo: TracedCopies) -> Construct:
    read = _make_parser(subcon.lengthfield)
    length = _make_instance(
        annotated_parse_nodes.TracedLeaf, {**vars(Renamed(subcon.lengthfield, newname="length")), "read": read}
    )
    content = _make_unnamed(_copy_traced_part_once(subcon.subcon, memo), "value")
    return _make_instance(type(subcon), {**vars(subcon), "lengthfield": length, "subcon": content})


def _copy_untraceable(subcon: Construct, memo: TracedCopies) -> Construct:
    if type(subcon) is construct.Transformed and subcon.decodefunc is bytes2bits and subcon.decodeamount is not None:
        bits = annotated_parse_nodes.TracedBits(_copy_traced_part_once(subcon.subcon, memo))
        bits.size, bits.decode = subcon.decodeamount, subcon.decodefunc
        return bits
    return annotated_parse_nodes.UntracedField(subcon)


class _TracedLazyBound(construct.LazyBound):  # type: ignore[misc]
    """Reference to a schema, resolved on first use; it counts the depth, because the schema may have no names."""

    memo: TracedCopies
    target: Construct | None

    def _parse(self, stream: Any, context: Any, path: Any) -> Any:
        if self.target is None:
            self.target = _copy_traced_part_once(self.subconfunc(), self.memo)
        if path.__class__ is not Trace:
            return self.target._parsereport(stream, context, path)
        path.depth += 1
        try:
            if path.depth > path.limits.max_depth:
                raise schema_fields.MalformedError(
                    f"nested more than {path.limits.max_depth} deep", None, "nesting-too-deep"
                )
            return self.target._parsereport(stream, context, path)
        finally:
            path.depth -= 1


def _copy_lazy_bound(subcon: construct.LazyBound, memo: TracedCopies) -> Construct:
    return _make_instance(_TracedLazyBound, {**vars(subcon), "memo": memo, "target": None})


_SPECIAL_COPIES: tuple[tuple[Any, Callable[[Any, TracedCopies], Construct]], ...] = (
    (Renamed, _copy_renamed),
    (construct.Struct | construct.Sequence | construct.FocusedSeq, _copy_struct),
    (construct.Prefixed, _copy_prefixed),
    (construct.LazyBound, _copy_lazy_bound),
    (_UNTRACEABLE_CLASSES, _copy_untraceable),
)


# --- Annotated parse ---


class TraceResult(msgspec.Struct, frozen=True):
    """Rows of one parse in file order, parents before children; the leaves of a container tile it.

    Attributes:
        errors: Errors in the order of the parse; a broken payload does not hide the fields after it.
        spaces: The address spaces that the rows refer to, `data` first.
        end: Absolute position where the parse ended.
    """

    rows: list[FieldRow]
    errors: list[TraceError]
    spaces: list[AddressSpace]
    end: int

    @property
    def error(self) -> TraceError | None:
        """The first error, or None."""
        return self.errors[0] if self.errors else None


def parse_to_field_rows(
    schema: Construct,
    data: bytes,
    base: int,
    limits: Limits,
    root: str = "",
    *,
    fold_rows: bool = False,
    decompress: bool = True,
) -> TraceResult:
    """Parse `data`, which begins at position `base`, and name every byte that the schema covers. Bad bytes never raise.

    Args:
        root: Path of the record itself, such as "frame[3]"; its row comes first. Without it the fields are at the top.
        fold_rows: Rows may be `schema.annotated_parse_state.FoldedRow`.
        decompress: False = compressed bytes stay one row, for callers that only need rows of the file.

    Raises:
        MemoryError: there is not enough memory.
    """
    state = Trace(data, base, limits, fold_rows, decompress)
    stream = io.BytesIO(data)
    try:
        _parse_traced(make_traced_copy(schema), stream, state, root)
    except Exception as error:
        if not state.rows:
            state.add_failed_row(error, root or "value", 0, stream.tell())
        state.record_error_and_continue(error, stream.tell())
        error.__traceback__ = None  # the traceback refers to the frames of all callers and their variables
    _restore_rows_of_abandoned_element(state, stream.tell(), root)
    return TraceResult(state.rows, state.errors, state.spaces, base + stream.tell())


def _parse_traced(schema: Construct, stream: io.BytesIO, state: Trace, root: str) -> None:
    context = Container(_parsing=True, _building=False, _sizing=False)
    context["_params"] = context
    try:
        if root:
            state.parse_node(root, schema._parsereport, stream, context)
        else:
            schema._parsereport(stream, context, state)
    except CancelParsing:
        pass
    finally:
        context.clear()  # the state refers to itself


def _restore_rows_of_abandoned_element(state: Trace, end: int, root: str) -> None:
    """Restore the rows of the element that was abandoned where the parse ended.

    For a schema without names, add a row for the bytes that it consumed.
    """
    given_up = state.abandoned is not None and state.abandoned[:2] == ("", state.base + end)
    if given_up and end < len(state.data):
        end = len(state.data)
    elif root:
        return
    if root and not (state.rows and state.rows[0].path == root):
        state.rows.insert(0, FieldRow(root, state.base, state.base, None, leaf=False))
    state.depth = 0 if root else -1
    state._add_rows_after_last_child(root, end, "unmapped" if state.rows else "value")
    state.depth = 0
    if root:
        state.rows[0] = state.rows[0]._replace(end=state.base + end, leaf=False, ok=False)


def add_unmapped_rows(rows: Iterable[FieldRow], start: int, end: int, space: AddressSpace) -> list[FieldRow]:
    """Return the rows, with an `unmapped` row for each range of `[start, end)` that no leaf of `space` covers."""
    rows = list(rows)
    return (
        rows
        if _is_tiled(rows, start, end, space.name)
        else list(_insert_unmapped(unfold_rows(rows), start, end, space))
    )


def _is_tiled(rows: list[FieldRow], start: int, end: int, space: str) -> bool:
    """Return True if the leaves tile `[start, end)` of the space without gaps."""
    for row in rows:
        _, row_start, row_end, _, _, _, name, _, _, leaf, _ = row
        if (leaf or row.__class__ is FoldedRow) and name == space:
            if row_start != start:
                return False
            start = row_end
    return start == end


def _insert_unmapped(rows: Iterable[FieldRow], start: int, end: int, space: AddressSpace) -> Iterator[FieldRow]:
    reached = start
    parents: list[FieldRow] = []

    def close_parents(until: int) -> Iterator[FieldRow]:
        nonlocal reached
        while parents and parents[-1].end <= until:
            parent = parents.pop()
            yield from add_unmapped(parent.end, parent)
        yield from add_unmapped(until, parents[-1] if parents else None)

    def add_unmapped(until: int, parent: FieldRow | None) -> Iterator[FieldRow]:
        nonlocal reached
        if until <= reached:
            return
        path, depth = (f"{parent.path}.unmapped", parent.depth + 1) if parent else ("unmapped", 0)
        unit = "decompressed" if space.name else "file"
        yield FieldRow(
            path, reached, until, space.slice_bytes(reached, until), unit=unit, space=space.name, depth=depth
        )
        reached = until

    for row in rows:
        if row.space == space.name:
            yield from close_parents(min(row.start, end))
            if row.leaf:
                reached = max(reached, row.end)
            else:
                parents.append(row)
        yield row
    yield from close_parents(end)
