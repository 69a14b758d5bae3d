"""Compile the schema of a body to operations and to the members that `dump` shows.

The size of a body is known, so more can be lowered than for a scanner: fields that extend to the end, fields that exist
only if bytes are left, and arrays. Bindings keep what `dump` needs to know about fields: texts, flags, marker bits.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from functools import lru_cache
from typing import Any, NamedTuple

import construct
import msgspec

from binlogtool.format_api.schema_fields import (
    SHORT,
    BodySchema,
    BoundedCount,
    FieldsByCode,
    HiddenField,
    IfBytesLeft,
    InterpretedOnly,
    LeafFormat,
    MalformedError,
    NestedSchema,
    PeekInt,
    RenamedField,
    SingleField,
    SplitInt,
    ZeroMeansAbsent,
    make_truncation_error,
)
from binlogtool.schema import schema_operations
from binlogtool.schema.lower_frame_schema import (
    LOWERING_RULES,
    NO_VALUE,
    POSITION_MAX,
    Binding,
    ByteRangeField,
    Conditional,
    FlagInteger,
    HiddenBinding,
    ListField,
    Lowering,
    LoweringRule,
    MaskedInt,
    NamedInteger,
    StructScope,
    TitledField,
    UnlowerableError,
    join_path,
    merge_bindings,
    unwrap_binding,
)
from binlogtool.schema.schema_operations import (
    Assign,
    AssignRemaining,
    Binary,
    CaptureBytes,
    CheckCount,
    ChooseCase,
    Expr,
    LoadInteger,
    LogicalNot,
    Num,
    Op,
    Peek,
    ReadScalar,
    Ref,
    Repeat,
    RepeatToEnd,
    Require,
    SkipBytes,
    TakeRest,
    compute_min_size,
    find_used_paths,
    is_boolean,
    iter_operations,
    iter_references,
    list_defined_paths,
    make_binary,
)

# --- Common parts of generated body readers ---


class BodyPosition(NamedTuple):
    """Position in a body: a variable ("" = the start of the body) and an offset from it."""

    base: str
    offset: int

    def __str__(self) -> str:
        if not self.base:
            return str(self.offset)
        return f"{self.base} + {self.offset}" if self.offset else self.base

    def advance(self, size: int) -> BodyPosition:
        """Return the position `size` bytes further."""
        return BodyPosition(self.base, self.offset + size)

    @property
    def term(self) -> str:
        """Source of the position as an operand of a subtraction."""
        return f"({self})" if self.base and self.offset else str(self)


def list_outputs(op: Op) -> tuple[str, ...]:
    """Return the paths of the variables, bytes and lists that an operation produces."""
    return (
        *list_defined_paths(op),
        *([op.path] if isinstance(op, SkipBytes | TakeRest | CaptureBytes | Repeat) else []),
    )


def find_possibly_unset_variables(ops: tuple[Op, ...], used_elsewhere: set[str]) -> set[str]:
    """Return the variables that are used although the case that sets them may not be taken; then they are 0.

    Args:
        used_elsewhere: Variables that are also used outside these operations, set or not.
    """
    unset_paths: set[str] = set()
    ops = tuple(one for op in ops for one in (op.ops if isinstance(op, Peek | CaptureBytes | RepeatToEnd) else (op,)))
    for index, op in enumerate(ops):
        if isinstance(op, ChooseCase):
            used_by_others = used_elsewhere | find_used_paths((*ops[:index], *ops[index + 1 :]))
            unset_paths |= {path for one in iter_operations((op,)) for path in list_defined_paths(one)} & used_by_others
            for branch in (*(arm for _, arm in op.arms), op.other):
                unset_paths |= find_possibly_unset_variables(branch, used_by_others)
    return unset_paths


def make_missing_bytes_error(sizes: tuple[tuple[str, int], ...], bytes_left: int) -> MalformedError:
    """Return the error for the first of neighbouring fields (name, size) that does not fit into `bytes_left` bytes."""
    for name, size in sizes:
        if not 0 <= size <= bytes_left:
            return make_truncation_error(name, size, bytes_left)
        bytes_left -= size
    raise AssertionError(sizes)


def make_refused_value_error(name: str, code: int, bytes_left: int) -> MalformedError:
    """Return the error for a value that its kernel refused with this code."""
    if code == SHORT:
        return MalformedError(
            f"{name} is cut off, {max(bytes_left, 0):,} bytes left", finding_id="length-out-of-bounds"
        )
    return MalformedError(f"{name} is not a value of its type")


# --- Lowering of body schemas ---


class LoweredBody(msgspec.Struct, frozen=True):
    """Lowered body. fields: name -> its binding, in order."""

    ops: tuple[Op, ...]
    fields: dict[str, Binding]


@lru_cache(maxsize=64)
def lower_body(schema: construct.Construct) -> LoweredBody:
    """Lower the schema of a body. Raises UnlowerableError: a field cannot be compiled; the message names it."""
    lowering = _BodyLowering()
    while isinstance(schema, construct.Renamed):
        schema = schema.subcon
    binding = lowering.lower_node(schema, "", StructScope(""))
    if not isinstance(binding, StructScope):
        raise UnlowerableError("", "a body is a structure")
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


def _get_leaf_format(node: Any) -> LeafFormat | None:
    """Return the attribute `leaf`, without `getattr`, which also finds members of a Struct."""
    leaf = node.__dict__.get("leaf", getattr(type(node), "leaf", None))
    return leaf if isinstance(leaf, LeafFormat) else None


class SequenceScope(StructScope):
    """Names of the parts of a Sequence, which is shown as a list."""


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
        leaf = _get_leaf_format(node)
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
        """Return the field with this name in the enclosing structures."""
        outer_scope: StructScope | None = scope
        while outer_scope is not None and name not in outer_scope.names:
            outer_scope = outer_scope.parent
        binding = None if outer_scope is None else unwrap_binding(outer_scope.names[name])
        if not isinstance(binding, Ref | ByteRangeField | ListField):
            raise UnlowerableError(path, f"{name} is not a number, bytes or list of an enclosing structure")
        return binding

    def _lower_single_field(self, node: Any, path: str, scope: StructScope) -> Binding:
        binding = self.lower_node(node.subcon, path, scope)
        shown_field = binding.names.get(node.shown) if isinstance(binding, StructScope) else None
        if not isinstance(shown_field, ByteRangeField):
            raise UnlowerableError(path, f"{node.shown} is not a bytes field in it")
        return ByteRangeField(shown_field.path, node.as_leaf)

    def _lower_unless_zero(self, node: Any, path: str, scope: StructScope) -> Binding:
        binding = self.lower_node(node.subcon, path, scope)
        inner = unwrap_binding(binding)
        number = inner.ref if isinstance(inner, FlagInteger) else inner
        if not isinstance(number, Ref):
            raise UnlowerableError(path, "only an integer can be 0")
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
            raise UnlowerableError(path, "flags need an integer")
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
        self.ops.append(schema_operations.Peek(path, (AssignRemaining(left), ChooseCase(path, ((enough, ops),), ()))))
        return HiddenBinding(binding)

    def _lower_count(self, node: Any, path: str, scope: StructScope) -> Binding:
        binding = self.lower_node(node.subcon, path, scope)
        number = unwrap_binding(binding)
        number = number.ref if isinstance(number, MaskedInt) else number
        if not isinstance(number, Ref):
            raise UnlowerableError(path, "a count is an integer")
        self.ops.append(CheckCount(path, number, node.smallest, node.what))
        return HiddenBinding(binding)

    def _lower_array(self, node: Any, path: str, scope: StructScope) -> Binding:
        count = self.lower_expression(node.count, path, scope)
        has_names = isinstance(node.subcon, construct.Struct | construct.Sequence)
        element_path = path if has_names else join_path(path, "element")
        ops, element_binding = self._lower_branch(node.subcon, element_path, scope)
        if not compute_min_size(ops) and not any(isinstance(op, ReadScalar) for op in ops):
            raise UnlowerableError(path, "its elements may be empty")
        self.ops.append(Repeat(path, count, _merge_cases(ops)))
        return ListField(path, element_binding)

    def _lower_sequence(self, node: Any, path: str, outer: StructScope) -> Binding:
        return SequenceScope(path, outer, self._lower_struct(node, path, outer).names)

    def _lower_fields_by_code(self, node: Any, path: str, outer: StructScope) -> Binding:
        scope, code = StructScope(path, outer), Ref(join_path(path, "code"), 0, 255)
        arms = [
            (make_binary("==", code, Num(number)), self._lower_chosen_field(field, path, scope))
            for number, field in node.fields.items()
        ]
        look = schema_operations.Peek(code.path, (LoadInteger(code.path, 1, False, False),))
        choice = ChooseCase(path, tuple(arms), self._lower_chosen_field(node.other, path, scope))
        self.ops.append(RepeatToEnd(path, (look, choice)))
        return scope

    def _lower_chosen_field(self, field: Any, path: str, scope: StructScope) -> tuple[Op, ...]:
        """Lower a field that its code chooses, and add it to the scope; return its operations."""
        ops, binding = self._lower_branch(field, join_path(path, field.name), scope)
        is_present = Ref(join_path(path, f"{field.name}.is_present"), 0, 1)
        test, names = make_binary("!=", is_present, Num(0)), binding.names if isinstance(binding, StructScope) else {}
        scope.names[field.name] = _make_conditional(test, names.get("value", binding))
        for name, inner in names.items() if "value" in names else ():
            scope.names.setdefault(name, HiddenBinding(_make_conditional(test, inner)))
        return (*ops, Assign(is_present.path, Num(1)))

    def _lower_nested_schema(self, node: Any, path: str, scope: StructScope) -> Binding:
        binding, leaf = self.lower_node(node.subcon, path, scope), _get_leaf_format(node.detail)
        return ByteRangeField(path, leaf) if isinstance(binding, ByteRangeField) and leaf is not None else binding


def _make_conditional(test: Expr, binding: Binding) -> Binding:
    """Make a binding conditional; if it already has a condition, both must be met."""
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
    (FieldsByCode, _BodyLowering._lower_fields_by_code),
    (construct.Array, _BodyLowering._lower_array),
    (construct.Sequence, _BodyLowering._lower_sequence),
    (construct.IfThenElse, _BodyLowering._lower_if),
    *LOWERING_RULES,
)


# --- What is shown of a lowered body ---


class OutputNumber(msgspec.Struct, frozen=True):
    """Integer that `dump` shows, from the variable `path`."""

    path: str
    signed: bool


class OutputEnum(msgspec.Struct, frozen=True):
    """Shown integer with names for some of its values."""

    path: str
    signed: bool
    names: tuple[tuple[int, str], ...]


class OutputBytes(msgspec.Struct, frozen=True):
    """Shown bytes, from the operation at `path`.

    Attributes:
        given: Arguments of its leaf format: (variable, True), or (bytes or list, False) for the start of these.
    """

    path: str
    leaf: LeafFormat | None
    given: tuple[tuple[str, bool], ...] = ()


class OutputGroup(msgspec.Struct, frozen=True):
    """Shown group of nested members; `is_list`: only their values are shown."""

    members: tuple[OutputMember, ...]
    is_list: bool = False


class OutputList(msgspec.Struct, frozen=True):
    """Shown list, whose elements the operation at `path` produces. element: form of each element."""

    path: str
    element: ShownValue


class OutputTitle(msgspec.Struct, frozen=True):
    """Text composed of other values; None = null. Strings are constant; an `ArgumentNumber` is not in the body."""

    parts: tuple[str | OutputNumber | OutputBytes | ArgumentNumber, ...] | None


class ArgumentNumber(msgspec.Struct, frozen=True):
    """Number that the reader of the body receives as an argument."""

    name: str


ShownValue = OutputNumber | OutputEnum | OutputBytes | OutputGroup | OutputList | OutputTitle


class OutputMember(msgspec.Struct, frozen=True):
    """Named shown value. test: the value exists if this is not 0; None = always."""

    name: str
    value: ShownValue
    test: Expr | None


def list_shown_members(body_schema: BodySchema, body: LoweredBody) -> tuple[OutputMember, ...]:
    """Return the members that are shown of a body. Raises UnlowerableError: a member cannot be compiled."""
    members = tuple(_iter_members(body.fields, ""))
    if body_schema.title is None:
        return members
    name, template = body_schema.title
    value_by_name = {member.name: member.value for member in _iter_members(body.fields, "", include_hidden=True)}
    return OutputMember(
        name,
        OutputTitle(None if template is None else tuple(_parse_title(template, value_by_name, body_schema.parameters))),
        None,
    ), *members


def _parse_title(
    template: str, value_by_name: Mapping[str, ShownValue], arguments: tuple[str, ...]
) -> Iterator[str | OutputNumber | OutputBytes | ArgumentNumber]:
    for index, part in enumerate(re.split(r"\{(\w+)\}", template)):
        value = value_by_name.get(part)
        if not index % 2:
            yield part
        elif part in arguments:
            yield ArgumentNumber(part)
        elif isinstance(value, OutputNumber | OutputBytes):
            yield value
        else:
            raise UnlowerableError(part, "it is neither a number nor a text")


def _iter_members(
    fields: Mapping[str, Binding], prefix: str, *, include_hidden: bool = False
) -> Iterator[OutputMember]:
    for name, field in fields.items():
        inner, test, title = _unwrap_member(field, name, include_hidden)
        if not isinstance(inner, HiddenBinding):
            yield OutputMember(title, make_output_value(inner, f"{prefix}{name}"), test)


def _unwrap_member(field: Binding, name: str, include_hidden: bool) -> tuple[Binding, Expr | None, str]:
    """Return (the field without marks, the condition that it exists, its title); a hidden one stays hidden."""
    test: Expr | None = None
    while isinstance(field, Conditional | TitledField) or (include_hidden and isinstance(field, HiddenBinding)):
        test = field.test if isinstance(field, Conditional) else test
        name = field.title if isinstance(field, TitledField) else name
        field = field.inner
    return field, test, name


def make_output_value(field: Binding, path: str) -> ShownValue:
    """Return the shown form of a field. Raises UnlowerableError: it cannot be compiled."""
    match field:
        case (
            Ref(path=variable, lo=lo)
            | FlagInteger(ref=Ref(path=variable, lo=lo))
            | MaskedInt(ref=Ref(path=variable, lo=lo))
        ):
            return OutputNumber(variable, lo < 0)
        case NamedInteger(ref=Ref(path=variable, lo=lo), numbers=numbers):
            return OutputEnum(variable, lo < 0, tuple((number, str(name)) for name, number in numbers.items()))
        case ByteRangeField(path=variable, leaf=leaf, given=given):
            return OutputBytes(variable, leaf, tuple((one.path, isinstance(one, Ref)) for one in given))
        case StructScope(names=names):
            return OutputGroup(tuple(_iter_members(names, f"{path}.")), isinstance(field, SequenceScope))
        case ListField(path=variable, element=element):
            return OutputList(variable, make_output_value(element, path))
    raise UnlowerableError(path, getattr(field, "why", "it cannot be shown"))


def iter_all_fields(fields: dict[str, Binding]) -> Iterator[tuple[str, OutputMember]]:
    """Yield (name, field) of all fields except groups and renamed ones; those of a group exist if the group does."""
    for name, field in fields.items():
        inner, test, title = _unwrap_member(field, name, include_hidden=True)
        if title != name:
            continue
        if isinstance(inner, StructScope):
            for inner_name, member in iter_all_fields(inner.names):
                yield inner_name, OutputMember(inner_name, member.value, test if member.test is None else member.test)
            continue
        try:
            yield name, OutputMember(name, make_output_value(inner, name), test)
        except UnlowerableError:
            continue


def iter_shown(members: Iterable[OutputMember]) -> Iterator[OutputMember]:
    """Yield the members and all nested ones; the form of the elements of a list is a member without a name."""
    for member in members:
        yield member
        match member.value:
            case OutputGroup(members=inner):
                yield from iter_shown(inner)
            case OutputList(element=element):
                yield from iter_shown((OutputMember("", element, None),))


def find_paths_needed_by_members(members: Iterable[OutputMember]) -> set[str]:
    """Return the variables and byte ranges that are used to show the members."""
    paths = find_paths_of_member_tests(members)
    for member in iter_shown(members):
        match member.value:
            case OutputTitle(parts=parts):
                paths |= {part.path for part in parts or () if isinstance(part, OutputNumber | OutputBytes)}
            case OutputBytes(path=path, given=given):
                paths |= {path, *(name for name, _ in given)}
            case OutputNumber(path=path) | OutputEnum(path=path) | OutputList(path=path):
                paths.add(path)
    return paths


def find_paths_of_member_tests(members: Iterable[OutputMember]) -> set[str]:
    """Return the variables that determine which members exist, including nested members."""
    tests = (member.test for member in iter_shown(members))
    return {path for test in tests if test is not None for path in iter_references(test)}
