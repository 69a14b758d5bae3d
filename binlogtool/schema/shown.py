"""What is shown of a lowered body: members in order, each with the condition that it is there."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping

import msgspec

from binlogtool.formats.bodies import BodySchema, LeafFormat
from binlogtool.schema.expressions import Expr, Ref, iter_references
from binlogtool.schema.lower_bodies import LoweredBody
from binlogtool.schema.scopes import (
    Binding,
    ByteRangeField,
    Conditional,
    FlagInteger,
    HiddenBinding,
    ListField,
    MaskedInt,
    NamedInteger,
    StructScope,
    TitledField,
    Unlowerable,
)


class ShownNumber(msgspec.Struct, frozen=True):
    """An integer: the variable `path`."""

    path: str
    signed: bool


class ShownEnum(msgspec.Struct, frozen=True):
    """An integer with names for some of its values."""

    path: str
    signed: bool
    names: tuple[tuple[int, str], ...]


class ShownBytes(msgspec.Struct, frozen=True):
    """The bytes of the operation at `path`.

    Attributes:
        given: What its leaf format takes: (variable, True), or (bytes or list, False), of which it takes the start.
    """

    path: str
    leaf: LeafFormat | None
    given: tuple[tuple[str, bool], ...] = ()


class ShownGroup(msgspec.Struct, frozen=True):
    """Nested members."""

    members: tuple[ShownMember, ...]


class ShownList(msgspec.Struct, frozen=True):
    """A list, whose elements the operation at `path` makes.

    Attributes:
        element: How each of them is shown.
    """

    path: str
    element: ShownValue


class ShownTitle(msgspec.Struct, frozen=True):
    """A text made of others; None = null. Strings are constant; `ArgumentNumber` is a number that is not in the
    body.
    """

    parts: tuple[str | ShownNumber | ShownBytes | ArgumentNumber, ...] | None


class ArgumentNumber(msgspec.Struct, frozen=True):
    """A number that the reader of the body gets as an argument."""

    name: str


ShownValue = ShownNumber | ShownEnum | ShownBytes | ShownGroup | ShownList | ShownTitle


class ShownMember(msgspec.Struct, frozen=True):
    """A named value.

    Attributes:
        test: It is there if this is not 0; None = always.
    """

    name: str
    value: ShownValue
    test: Expr | None


def list_shown_members(body_schema: BodySchema, body: LoweredBody) -> tuple[ShownMember, ...]:
    """Return what is shown of a body.

    Raises:
        UnlowerableError: something of it cannot be compiled.
    """
    members = tuple(_iter_members(body.fields, ""))
    if body_schema.title is None:
        return members
    name, template = body_schema.title
    value_by_name = {member.name: member.value for member in _iter_members(body.fields, "", include_hidden=True)}
    return ShownMember(
        name,
        ShownTitle(None if template is None else tuple(_parse_title(template, value_by_name, body_schema.parameters))),
        None,
    ), *members


def _parse_title(
    template: str, value_by_name: Mapping[str, ShownValue], arguments: tuple[str, ...]
) -> Iterator[str | ShownNumber | ShownBytes | ArgumentNumber]:
    for index, part in enumerate(re.split(r"\{(\w+)\}", template)):
        value = value_by_name.get(part)
        if not index % 2:
            yield part
        elif part in arguments:
            yield ArgumentNumber(part)
        elif isinstance(value, ShownNumber | ShownBytes):
            yield value
        else:
            raise Unlowerable(part, "it is no number and no text")


def _iter_members(fields: Mapping[str, Binding], prefix: str, *, include_hidden: bool = False) -> Iterator[ShownMember]:
    for name, field in fields.items():
        test: Expr | None = None
        inner = field
        title = name
        while isinstance(inner, Conditional | HiddenBinding | TitledField):
            if isinstance(inner, HiddenBinding) and not include_hidden:
                break
            test = inner.test if isinstance(inner, Conditional) else test
            title = inner.title if isinstance(inner, TitledField) else title
            inner = inner.inner
        if not isinstance(inner, HiddenBinding):
            yield ShownMember(title, make_shown_value(inner, f"{prefix}{name}"), test)


def make_shown_value(field: Binding, path: str) -> ShownValue:
    """Return how a field is shown.

    Raises:
        UnlowerableError: it cannot be compiled.
    """
    match field:
        case (
            Ref(path=variable, lo=lo)
            | FlagInteger(ref=Ref(path=variable, lo=lo))
            | MaskedInt(ref=Ref(path=variable, lo=lo))
        ):
            return ShownNumber(variable, lo < 0)
        case NamedInteger(ref=Ref(path=variable, lo=lo), numbers=numbers):
            return ShownEnum(variable, lo < 0, tuple((number, str(name)) for name, number in numbers.items()))
        case ByteRangeField(path=variable, leaf=leaf, given=given):
            return ShownBytes(variable, leaf, tuple((one.path, isinstance(one, Ref)) for one in given))
        case StructScope(names=names):
            return ShownGroup(tuple(_iter_members(names, f"{path}.")))
        case ListField(path=variable, element=element):
            return ShownList(variable, make_shown_value(element, path))
    raise Unlowerable(path, getattr(field, "why", "it cannot be shown"))


def iter_all_fields(fields: dict[str, Binding]) -> Iterator[tuple[str, ShownMember]]:
    """Yield all fields that are not groups, by their own names; a field inside of a group is there when the group
    is.
    """
    for name, field in fields.items():
        test: Expr | None = None
        inner = field
        while isinstance(inner, Conditional | HiddenBinding):
            test = inner.test if isinstance(inner, Conditional) else test
            inner = inner.inner
        if isinstance(inner, StructScope):
            for inner_name, member in iter_all_fields(inner.names):
                yield inner_name, ShownMember(inner_name, member.value, test if member.test is None else member.test)
            continue
        try:
            yield name, ShownMember(name, make_shown_value(inner, name), test)
        except Unlowerable:
            continue


def find_needed_paths(members: tuple[ShownMember, ...]) -> set[str]:
    """Return the variables and byte ranges that are used to show the members."""
    paths = find_test_paths(members)
    for member in members:
        match member.value:
            case ShownGroup(members=inner):
                paths |= find_needed_paths(inner)
            case ShownTitle(parts=parts):
                paths |= {part.path for part in parts or () if isinstance(part, ShownNumber | ShownBytes)}
            case ShownList(path=path, element=element):
                paths |= {path} | find_needed_paths((ShownMember("", element, None),))
            case ShownBytes(path=path, given=given):
                paths |= {path, *(name for name, _ in given)}
            case ShownNumber(path=path) | ShownEnum(path=path):
                paths.add(path)
    return paths


def find_test_paths(members: Iterable[ShownMember]) -> set[str]:
    """Return the variables that decide which members are there, nested ones included."""
    paths: set[str] = set()
    for member in members:
        paths |= set(iter_references(member.test)) if member.test is not None else set()
        match member.value:
            case ShownGroup(members=inner) | ShownList(element=ShownGroup(members=inner)):
                paths |= find_test_paths(inner)
    return paths


def iter_lists(members: Iterable[ShownMember]) -> Iterator[ShownList]:
    """Yield all lists, nested ones included."""
    for member in members:
        match member.value:
            case ShownList(element=element) as items:
                yield items
                yield from iter_lists((ShownMember("", element, None),))
            case ShownGroup(members=inner):
                yield from iter_lists(inner)
