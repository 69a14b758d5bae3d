"""Make readers of bodies: the dictionary that `dump` shows, or some fields as a tuple."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Any

from construct import Construct

from binlogtool.formats.bodies import Shown
from binlogtool.schema.body_ops import sets
from binlogtool.schema.body_reader import BodyReader
from binlogtool.schema.expressions import Expr
from binlogtool.schema.lower_bodies import lower_body
from binlogtool.schema.operations import Choose, Left, Op, Rest, defined_paths, used_paths, walk
from binlogtool.schema.shown import Choice, Group, Items, Member, Number, Piece, Title, everything, members_of


def decoder(shown: Shown) -> Callable[..., dict[str, Any]]:
    """Return a function of a body, as bytes, and of the numbers that it is given, that returns what `dump` shows of
    it.

    Raises:
        UnlowerableError: the schema, or what is to be shown, cannot be compiled.
    """
    body = lower_body(shown.schema)
    members = members_of(shown, body)
    source = _Dictionary(body, members, shown.given)
    source.read(source.without_end())
    source.result(members)
    return source.function()


Kind = type[tuple[Any, ...]] | tuple[str, ...] | str


def fields_reader(schema: Construct, kind: Kind, element: Kind = ()) -> Callable[[bytes], Any]:
    """Return a function of a body, as bytes, that returns a named tuple, a tuple of fields, or one field.

    Names of a named tuple are those of fields at any depth; a name that the schema does not have gets its default.
    Codes and
    flags are numbers, text is bytes, absent fields are None. Arrays are tuples; their elements are of the kind
    `element`, or
    tuples of what is shown of them, as are those of nested arrays.

    Args:
        kind: A named tuple class, a tuple of field names, or one field name.
        element: The kind of the elements of arrays.

    Raises:
        UnlowerableError: see `make_decoder`.
    """
    body = lower_body(schema)
    known = dict(everything(body.fields))
    names = (kind,) if isinstance(kind, str) else _names_of(kind)
    wanted = {name: known[name] for name in names if name in known}
    source = _Fields(body, tuple(wanted.values()))
    source.kinds = {member.value.path: element for member in wanted.values() if isinstance(member.value, Items)}
    source.absent(tuple(wanted.values()))
    source.read(source.as_far_as_needed())
    source.line(f"return {source.made_of(kind, wanted)}")
    return source.function()


class _Dictionary(BodyReader):
    """Generates a function that returns what `dump` shows."""

    def without_end(self) -> tuple[Op, ...]:
        """Return the operations without last ones that can neither fail nor give anything wanted."""
        ops = self.body.ops
        while ops and all(
            isinstance(op, Left | Rest | Choose) and not {*sets(op)} & self.used for op in walk(ops[-1:])
        ):
            ops = ops[:-1]
        return ops

    def result(self, members: tuple[Member, ...]) -> None:
        """Emit the dictionary and the return."""
        self._leaves_once(members)
        first = next((i for i, member in enumerate(members) if member.test is not None), len(members))
        shown = self.dictionary(members[:first])
        if first == len(members):
            self.line(f"return {shown}")
            return
        self.line(f"out = {shown}")
        before: Expr | None = None
        for member in members[first:]:
            if member.test is None:
                self.line(f"out[{member.name!r}] = {self.shown(member.value)}")
            else:
                if member.test != before:
                    self.line(f"if {self.test_of(member.test)}:")
                with self.line.indented():
                    self.line(f"out[{member.name!r}] = {self.shown(member.value)}")
            before = member.test
        self.line("return out")

    def _leaves_once(self, members: tuple[Member, ...]) -> None:
        """Decode a value once that both the title and a member show."""
        title = members[0].value if members else None
        for part in title.parts or () if isinstance(title, Title) else ():
            if isinstance(part, Piece) and any(member.value == part for member in members[1:]):
                name = self.names[part.path]
                self.line(f"{name} = {self.leaf(part.leaf, name)}")
                self.made.add(part.path)


class _Fields(BodyReader):
    """Generates a function that returns plain fields.

    Attributes:
        kinds: The kinds of the elements of lists, by path; elements of other lists are tuples.
    """

    kinds: Mapping[str, Kind] = MappingProxyType({})

    def as_far_as_needed(self) -> tuple[Op, ...]:
        """Return the operations up to the last one that gives something wanted."""
        ops, last = self.body.ops, 0
        for index, op in enumerate(ops):
            given = {path for one in walk((op,)) for path in (*defined_paths(one), one.path)}
            if given & self.wanted:
                last = index + 1
        return ops[:last]

    def absent(self, wanted: tuple[Member, ...]) -> None:
        """Set fields that may be absent to None, unless something is computed with their 0."""
        computed = used_paths(self.body.ops)
        for member in wanted:
            path = _path_of(member)
            if member.test is not None and path not in computed and self._where_set(path) == {member.test}:
                self.line(f"{self.names[path]} = None")
                self.made.add(path)

    def _where_set(self, path: str) -> set[Expr | None]:
        """Return the conditions of the cases that set a variable; None = it is also set otherwise."""
        found: set[Expr | None] = set()
        for op in self.body.ops:
            if isinstance(op, Choose):
                arms = [(test, arm) for test, arm in op.arms] + [(None, op.other)]
                found |= {test for test, arm in arms if any(path in sets(one) for one in walk(arm))}
            elif path in sets(op):
                found.add(None)
        return found

    def made_of(self, kind: Kind, members: dict[str, Member]) -> str:
        """Return the source of fields as a named tuple, a tuple, or one field."""
        values = {name: self._plain(member) for name, member in members.items()}
        if isinstance(kind, str):
            return values[kind]
        if isinstance(kind, tuple):
            return f"({', '.join(values[name] for name in kind)},)"
        defaults: dict[str, Any] = kind._field_defaults  # type: ignore[attr-defined]
        given = [values[n] if n in values else repr(defaults[n]) for n in _names_of(kind)]
        return f"{self.constant('new', tuple.__new__)}({self.constant('kind', kind)}, ({', '.join(given)},))"

    def element(self, items: Items) -> str:
        """Return the source of one element of a list."""
        if not isinstance(items.element, Group):
            return self._plain(Member("", items.element, None))
        members = {member.name: member for member in items.element.members}
        return self.made_of(self.kinds.get(items.path) or tuple(members), members)

    def listed(self, source: str) -> str:
        """Return the source of a tuple of what an expression yields."""
        return f"tuple({source})"

    def _plain(self, member: Member) -> str:
        name = self.names[_path_of(member)]
        if member.test is None or _path_of(member) in self.made:
            return name
        return f"{name} if {self.test_of(member.test)} else None"


def _names_of(kind: Any) -> tuple[str, ...]:
    names: tuple[str, ...] = kind if type(kind) is tuple else kind._fields
    return names


def _path_of(member: Member) -> str:
    assert isinstance(member.value, Number | Choice | Piece | Items)
    return member.value.path
