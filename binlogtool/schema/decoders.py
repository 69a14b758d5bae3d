"""Make readers of bodies: the dictionary that `dump` shows, or some fields as a tuple."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Any

from construct import Construct

from binlogtool.formats.bodies import BodySchema
from binlogtool.schema.body_ops import list_outputs
from binlogtool.schema.body_reader import PythonBodyGenerator
from binlogtool.schema.expressions import Expr
from binlogtool.schema.lower_bodies import lower_body
from binlogtool.schema.operations import (
    AssignRemaining,
    ChooseCase,
    Op,
    TakeRest,
    find_used_paths,
    iter_operations,
    list_defined_paths,
)
from binlogtool.schema.shown import (
    ShownBytes,
    ShownEnum,
    ShownGroup,
    ShownList,
    ShownMember,
    ShownNumber,
    ShownTitle,
    iter_all_fields,
    list_shown_members,
)


def make_decoder(body_schema: BodySchema) -> Callable[..., dict[str, Any]]:
    """Return a function of a body, as bytes, and of the numbers that it is given, that returns what `dump` shows of
    it.

    Raises:
        UnlowerableError: the schema, or what is to be shown, cannot be compiled.
    """
    body = lower_body(body_schema.schema)
    members = list_shown_members(body_schema, body)
    generator = _DictionaryGenerator(body, members, body_schema.parameters)
    generator.emit_operations(generator.drop_useless_tail())
    generator.emit_result(members)
    return generator.compile_function()


FieldsKind = type[tuple[Any, ...]] | tuple[str, ...] | str


def make_fields_reader(schema: Construct, kind: FieldsKind, element: FieldsKind = ()) -> Callable[[bytes], Any]:
    """Return a function of a body, as bytes, that returns a named tuple, a tuple of fields, or one field.

    Names of a named tuple are those of fields at any depth; a name that the schema does not have gets its default.
    Codes and flags are numbers, text is bytes, absent fields are None. Arrays are tuples; their elements are of the
    kind `element`, or tuples of what is shown of them, as are those of nested arrays.

    Args:
        kind: A named tuple class, a tuple of field names, or one field name.
        element: The kind of the elements of arrays.

    Raises:
        UnlowerableError: see `make_decoder`.
    """
    body = lower_body(schema)
    fields = dict(iter_all_fields(body.fields))
    names = (kind,) if isinstance(kind, str) else _field_names(kind)
    wanted = {name: fields[name] for name in names if name in fields}
    generator = _FieldsGenerator(body, tuple(wanted.values()))
    generator.kinds = {member.value.path: element for member in wanted.values() if isinstance(member.value, ShownList)}
    generator.emit_absent_values(tuple(wanted.values()))
    generator.emit_operations(generator.take_needed_operations())
    generator.line(f"return {generator.format_fields(kind, wanted)}")
    return generator.compile_function()


class _DictionaryGenerator(PythonBodyGenerator):
    """Generates a function that returns what `dump` shows."""

    def drop_useless_tail(self) -> tuple[Op, ...]:
        """Return the operations without last ones that can neither fail nor give anything wanted."""
        ops = self.body.ops
        while ops and all(
            isinstance(op, AssignRemaining | TakeRest | ChooseCase) and not {*list_outputs(op)} & self.used
            for op in iter_operations(ops[-1:])
        ):
            ops = ops[:-1]
        return ops

    def emit_result(self, members: tuple[ShownMember, ...]) -> None:
        """Emit the dictionary and the return."""
        self._decode_shared_leaves(members)
        first_conditional = next((i for i, member in enumerate(members) if member.test is not None), len(members))
        dictionary = self.format_dictionary(members[:first_conditional])
        if first_conditional == len(members):
            self.line(f"return {dictionary}")
            return
        self.line(f"out = {dictionary}")
        last_test: Expr | None = None
        for member in members[first_conditional:]:
            if member.test is None:
                self.line(f"out[{member.name!r}] = {self.format_shown(member.value)}")
            else:
                if member.test != last_test:
                    self.line(f"if {self.format_test(member.test)}:")
                with self.line.indent():
                    self.line(f"out[{member.name!r}] = {self.format_shown(member.value)}")
            last_test = member.test
        self.line("return out")

    def _decode_shared_leaves(self, members: tuple[ShownMember, ...]) -> None:
        """Decode a value once that both the title and a member show."""
        title = members[0].value if members else None
        for part in title.parts or () if isinstance(title, ShownTitle) else ():
            if isinstance(part, ShownBytes) and any(member.value == part for member in members[1:]):
                name = self.names[part.path]
                self.line(f"{name} = {self.format_leaf(part.leaf, name)}")
                self.decoded_paths.add(part.path)


class _FieldsGenerator(PythonBodyGenerator):
    """Generates a function that returns plain fields.

    Attributes:
        kinds: The kinds of the elements of lists, by path; elements of other lists are tuples.
    """

    kinds: Mapping[str, FieldsKind] = MappingProxyType({})

    def take_needed_operations(self) -> tuple[Op, ...]:
        """Return the operations up to the last one that gives something wanted."""
        ops, last = self.body.ops, 0
        for index, op in enumerate(ops):
            outputs = {path for one in iter_operations((op,)) for path in (*list_defined_paths(one), one.path)}
            if outputs & self.wanted:
                last = index + 1
        return ops[:last]

    def emit_absent_values(self, wanted: tuple[ShownMember, ...]) -> None:
        """Set fields that may be absent to None, unless something is computed with their 0."""
        computed = find_used_paths(self.body.ops)
        for member in wanted:
            path = _member_path(member)
            if member.test is not None and path not in computed and self._find_set_conditions(path) == {member.test}:
                self.line(f"{self.names[path]} = None")
                self.decoded_paths.add(path)

    def _find_set_conditions(self, path: str) -> set[Expr | None]:
        """Return the conditions of the cases that set a variable; None = it is also set otherwise."""
        conditions: set[Expr | None] = set()
        for op in self.body.ops:
            if isinstance(op, ChooseCase):
                arms = [(test, arm) for test, arm in op.arms] + [(None, op.other)]
                conditions |= {
                    test for test, arm in arms if any(path in list_outputs(one) for one in iter_operations(arm))
                }
            elif path in list_outputs(op):
                conditions.add(None)
        return conditions

    def format_fields(self, kind: FieldsKind, members: dict[str, ShownMember]) -> str:
        """Return the source of fields as a named tuple, a tuple, or one field."""
        values = {name: self._format_plain(member) for name, member in members.items()}
        if isinstance(kind, str):
            return values[kind]
        if isinstance(kind, tuple):
            return f"({', '.join(values[name] for name in kind)},)"
        defaults: dict[str, Any] = kind._field_defaults  # type: ignore[attr-defined]
        arguments = [values[n] if n in values else repr(defaults[n]) for n in _field_names(kind)]
        return (
            f"{self.add_constant('new', tuple.__new__)}({self.add_constant('kind', kind)}, ({', '.join(arguments)},))"
        )

    def format_element(self, items: ShownList) -> str:
        """Return the source of one element of a list."""
        if not isinstance(items.element, ShownGroup):
            return self._format_plain(ShownMember("", items.element, None))
        members = {member.name: member for member in items.element.members}
        return self.format_fields(self.kinds.get(items.path) or tuple(members), members)

    def format_list(self, source: str) -> str:
        """Return the source of a tuple of what an expression yields."""
        return f"tuple({source})"

    def _format_plain(self, member: ShownMember) -> str:
        name = self.names[_member_path(member)]
        if member.test is None or _member_path(member) in self.decoded_paths:
            return name
        return f"{name} if {self.format_test(member.test)} else None"


def _field_names(kind: Any) -> tuple[str, ...]:
    names: tuple[str, ...] = kind if type(kind) is tuple else kind._fields
    return names


def _member_path(member: ShownMember) -> str:
    assert isinstance(member.value, ShownNumber | ShownEnum | ShownBytes | ShownList)
    return member.value.path
