"""What is shown of a lowered body: members in order, each with the condition that it is there."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping

import msgspec

from binlogtool.formats.bodies import Leaf, Shown
from binlogtool.schema.expressions import Expr, Ref, references
from binlogtool.schema.lower_bodies import Body
from binlogtool.schema.scopes import Aside, Binding, Bitten, Flags, Maybe, Named, Raw, Row, Scope, Titled, Unlowerable


class Number(msgspec.Struct, frozen=True):
    """An integer: the variable `path`."""

    path: str
    signed: bool


class Choice(msgspec.Struct, frozen=True):
    """An integer with names for some of its values."""

    path: str
    signed: bool
    names: tuple[tuple[int, str], ...]


class Piece(msgspec.Struct, frozen=True):
    """The bytes of the operation at `path`.

    Attributes:
        given: What its leaf format takes: (variable, True), or (bytes or list, False), of which it takes the start.
    """

    path: str
    leaf: Leaf | None
    given: tuple[tuple[str, bool], ...] = ()


class Group(msgspec.Struct, frozen=True):
    """Nested members."""

    members: tuple[Member, ...]


class Items(msgspec.Struct, frozen=True):
    """A list, whose elements the operation at `path` makes.

    Attributes:
        element: How each of them is shown.
    """

    path: str
    element: Value


class Title(msgspec.Struct, frozen=True):
    """A text made of others; None = null. Strings are constant; `ArgumentNumber` is a number that is not in the
    body.
    """

    parts: tuple[str | Number | Piece | Outside, ...] | None


class Outside(msgspec.Struct, frozen=True):
    """A number that the reader of the body gets as an argument."""

    name: str


Value = Number | Choice | Piece | Group | Items | Title


class Member(msgspec.Struct, frozen=True):
    """A named value.

    Attributes:
        test: It is there if this is not 0; None = always.
    """

    name: str
    value: Value
    test: Expr | None


def members_of(shown: Shown, body: Body) -> tuple[Member, ...]:
    """Return what is shown of a body.

    Raises:
        UnlowerableError: something of it cannot be compiled.
    """
    members = tuple(_members(body.fields, ""))
    if shown.title is None:
        return members
    name, template = shown.title
    known = {member.name: member.value for member in _members(body.fields, "", hidden=True)}
    return Member(
        name, Title(None if template is None else tuple(_parts(template, known, shown.given))), None
    ), *members


def _parts(
    template: str, known: Mapping[str, Value], given: tuple[str, ...]
) -> Iterator[str | Number | Piece | Outside]:
    for index, part in enumerate(re.split(r"\{(\w+)\}", template)):
        value = known.get(part)
        if not index % 2:
            yield part
        elif part in given:
            yield Outside(part)
        elif isinstance(value, Number | Piece):
            yield value
        else:
            raise Unlowerable(part, "it is no number and no text")


def _members(fields: Mapping[str, Binding], prefix: str, *, hidden: bool = False) -> Iterator[Member]:
    for name, field in fields.items():
        test: Expr | None = None
        inner = field
        title = name
        while isinstance(inner, Maybe | Aside | Titled):
            if isinstance(inner, Aside) and not hidden:
                break
            test = inner.test if isinstance(inner, Maybe) else test
            title = inner.title if isinstance(inner, Titled) else title
            inner = inner.inner
        if not isinstance(inner, Aside):
            yield Member(title, value_of(inner, f"{prefix}{name}"), test)


def value_of(field: Binding, path: str) -> Value:
    """Return how a field is shown.

    Raises:
        UnlowerableError: it cannot be compiled.
    """
    match field:
        case Ref(path=at, lo=lo) | Flags(ref=Ref(path=at, lo=lo)) | Bitten(ref=Ref(path=at, lo=lo)):
            return Number(at, lo < 0)
        case Named(ref=Ref(path=at, lo=lo), numbers=numbers):
            return Choice(at, lo < 0, tuple((number, str(name)) for name, number in numbers.items()))
        case Raw(path=at, leaf=leaf, given=given):
            return Piece(at, leaf, tuple((one.path, isinstance(one, Ref)) for one in given))
        case Scope(names=names):
            return Group(tuple(_members(names, f"{path}.")))
        case Row(path=at, element=element):
            return Items(at, value_of(element, path))
    raise Unlowerable(path, getattr(field, "why", "it cannot be shown"))


def everything(fields: dict[str, Binding]) -> Iterator[tuple[str, Member]]:
    """Yield all fields that are not groups, by their own names; a field inside of a group is there when the group
    is.
    """
    for name, field in fields.items():
        test: Expr | None = None
        inner = field
        while isinstance(inner, Maybe | Aside):
            test = inner.test if isinstance(inner, Maybe) else test
            inner = inner.inner
        if isinstance(inner, Scope):
            for below, member in everything(inner.names):
                yield below, Member(below, member.value, test if member.test is None else member.test)
            continue
        try:
            yield name, Member(name, value_of(inner, name), test)
        except Unlowerable:
            continue


def needed(members: tuple[Member, ...]) -> set[str]:
    """Return the variables and byte ranges that are used to show the members."""
    found = tests_of(members)
    for member in members:
        match member.value:
            case Group(members=inner):
                found |= needed(inner)
            case Title(parts=parts):
                found |= {part.path for part in parts or () if isinstance(part, Number | Piece)}
            case Items(path=path, element=element):
                found |= {path} | needed((Member("", element, None),))
            case Piece(path=path, given=given):
                found |= {path, *(name for name, _ in given)}
            case Number(path=path) | Choice(path=path):
                found.add(path)
    return found


def tests_of(members: Iterable[Member]) -> set[str]:
    """Return the variables that decide which members are there, nested ones included."""
    found: set[str] = set()
    for member in members:
        found |= set(references(member.test)) if member.test is not None else set()
        match member.value:
            case Group(members=inner) | Items(element=Group(members=inner)):
                found |= tests_of(inner)
    return found


def lists_of(members: Iterable[Member]) -> Iterator[Items]:
    """Yield all lists, nested ones included."""
    for member in members:
        match member.value:
            case Items(element=element) as items:
                yield items
                yield from lists_of((Member("", element, None),))
            case Group(members=inner):
                yield from lists_of(inner)
