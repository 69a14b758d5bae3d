"""Readers of bodies as generated Python: what `dump` shows of one as a dictionary, or some of its fields as a tuple.

Neighbouring fields of fixed size are one `struct` unpack behind one test of what is left.
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from typing import Any

from construct import Construct

from binlogtool.formats.bodies import Leaf, Shown
from binlogtool.formats.fields import Form
from binlogtool.schema.body_ops import Place, sets, short, unset, wrong
from binlogtool.schema.expressions import PYTHON, U64, Expr, references, test_source, value_source
from binlogtool.schema.lower_bodies import Body, lower_body
from binlogtool.schema.operations import (
    Choose,
    Left,
    Let,
    Literal,
    Load,
    Op,
    Rest,
    Scalar,
    Skip,
    defined_paths,
    size_of,
    used_paths,
    walk,
)
from binlogtool.schema.scopes import Unlowerable
from binlogtool.schema.shown import (
    Choice,
    Group,
    Member,
    Number,
    Outside,
    Piece,
    Title,
    Value,
    everything,
    members_of,
    needed,
)
from binlogtool.schema.source import Lines, variable_names

_CODES = {1: "B", 2: "H", 4: "I", 8: "Q"}
Fixed = Load | Literal | Skip


def decoder(shown: Shown) -> Callable[..., dict[str, Any]]:
    """A function of a body, as bytes, and of the numbers that are given: what `dump` shows of it.

    Raises:
        Unlowerable: the schema, or what is to be shown, has no form here.
    """
    body = lower_body(shown.schema)
    members = members_of(shown, body)
    source = _Source(body, members, shown.given)
    source.read(source.without_end())
    source.result(members)
    return source.function()


Kind = type[tuple[Any, ...]] | tuple[str, ...] | str


def fields_reader(schema: Construct, kind: Kind) -> Callable[[bytes], Any]:
    """A function of a body, as bytes: a named tuple of this kind, a tuple of these fields, or the one field.

    A name of a named tuple is that of a field, wherever it stands; one that the schema does not have gets its default.
    Codes and flags are numbers, what is shown as text is bytes, what is not there is None.

    Raises:
        Unlowerable: see `decoder`.
    """
    body = lower_body(schema)
    known = dict(everything(body.fields))
    names = (kind,) if isinstance(kind, str) else kind if isinstance(kind, tuple) else _names_of(kind)
    wanted = {name: known[name] for name in names if name in known}
    source = _Source(body, tuple(wanted.values()))
    source.absent(tuple(wanted.values()))
    source.read(source.as_far_as_needed())
    source.plain(kind, wanted)
    return source.function()


class _Source:
    """The lines of a function. names: what they refer to."""

    def __init__(self, body: Body, members: tuple[Member, ...], given: tuple[str, ...] = ()) -> None:
        self.body, self.wanted = body, needed(members)
        tests = {path for member in members if member.test is not None for path in references(member.test)}
        self.used = self.wanted | used_paths(body.ops)
        paths = tuple(dict.fromkeys(op.path for op in walk(body.ops) if not isinstance(op, Choose)))
        self.names = variable_names(paths)
        self.space: dict[str, Any] = {"short": short, "wrong": wrong}
        self.at = Place("", 0)
        self.line = Lines()
        self._variables = 0
        self._given = given
        self._made: set[str] = set()
        for path in sorted(unset(body.ops, tests) & self.used):
            self.line(f"{self.names[path]} = 0")

    def function(self) -> Callable[..., Any]:
        """The compiled function."""
        head = f"def read(data{''.join(f', {name}' for name in self._given)}):\n    limit = len(data)\n"
        text = head + "".join(f"    {line}\n" for line in self.line.text().splitlines())
        space = dict(self.space)
        exec(compile(text, "<body>", "exec"), space)
        made: Callable[..., Any] = space["read"]
        made.__doc__ = text
        return made

    def constant(self, prefix: str, value: Any) -> str:
        """A name for a value."""
        name = f"{prefix}{len(self.space)}"
        self.space[name] = value
        return name

    # -- operations --------------------------------------------------------------------------------------------------

    def as_far_as_needed(self) -> tuple[Op, ...]:
        """The operations up to the last one that gives something wanted."""
        ops, last = self.body.ops, 0
        for index, op in enumerate(ops):
            given = {path for one in walk((op,)) for path in (*defined_paths(one), one.path)}
            if given & self.wanted:
                last = index + 1
        return ops[:last]

    def without_end(self) -> tuple[Op, ...]:
        """The operations without last ones that neither fail nor give anything wanted."""
        ops = self.body.ops
        while ops and all(
            isinstance(op, Left | Rest | Choose) and not {*sets(op)} & self.used for op in walk(ops[-1:])
        ):
            ops = ops[:-1]
        return ops

    def read(self, ops: tuple[Op, ...]) -> None:
        """Reads what these operations say."""
        index = 0
        while index < len(ops):
            run: list[Fixed] = []
            while index + len(run) < len(ops) and size_of(one := ops[index + len(run)]) is not None:
                run.append(one)  # type: ignore[arg-type]
            if run:
                self._run(run)
            else:
                self._one(ops[index])
            index += len(run) or 1

    def _run(self, run: list[Fixed]) -> None:
        sizes = [(op.path, (size_of(op) or 0)) for op in run]
        total = sum(size for _, size in sizes)
        end = self.at.behind(total)
        self._unless(f"limit < {end}", f"short({self.constant('sizes', tuple(sizes))}, limit - {_term(self.at)})")
        layout, targets = "<", list[str]()
        odd: list[Load | Literal] = []
        for op in run:
            if isinstance(op, Load) and op.path in self.used:
                targets.append(self.names[op.path])
                code = _CODES.get(op.width)
                layout += (code.lower() if op.signed else code) if code and not op.big else f"{op.width}s"
                odd += [] if code and not op.big else [op]
            elif isinstance(op, Literal):
                targets.append(f"c{len(targets)}")
                layout += f"{len(op.value)}s"
            else:
                if isinstance(op, Skip):
                    self._piece(op.path, self.at, self.at.behind(size_of(op) or 0))
                layout += f"{(size_of(op) or 0)}x"
            if isinstance(op, Literal):
                odd.append(op)
            self.at = self.at.behind(size_of(op) or 0)
        self.at = self.at.behind(-total)
        self._unpack(layout, targets, odd)
        self.at = end

    def _unpack(self, layout: str, targets: list[str], odd: list[Any]) -> None:
        if len(targets) == 1 and layout == "<B":
            self.line(f"{targets[0]} = data[{self.at}]")
        elif len(targets) == 1 and odd and not layout.endswith("x"):
            self.line(f"{targets[0]} = data[{self.at}:{self.at.behind(struct.calcsize(layout))}]")
        elif targets:
            unpack = self.constant("unpack", struct.Struct(layout).unpack_from)
            where = "" if str(self.at) == "0" else f", {self.at}"
            self.line(f"{', '.join(targets)}, = {unpack}(data{where})")
        for op in odd:
            if isinstance(op, Load):
                name, order = self.names[op.path], "big" if op.big else "little"
                self.line(f"{name} = int.from_bytes({name}, {order!r}, signed={op.signed})")
            else:
                raise Unlowerable(op.path, "a constant in a body")

    def _one(self, op: Op) -> None:
        line = self.line
        match op:
            case Skip(path=path, length=length):
                self._skip(path, length)
            case Rest(path=path):
                self._piece(path, self.at, None)
                self.at = Place("limit", 0)
            case Left(path=path):
                line(f"{self.names[path]} = limit - {_term(self.at)}")
            case Let(path=path, value=value):
                if path in self.used:
                    line(f"{self.names[path]} = {value_source(value, self.names, PYTHON)}")
            case Scalar():
                self._scalar(op)
            case Choose():
                self._choose(op)
            case _:
                raise Unlowerable(op.path, f"{type(op).__name__} in a body")

    def _skip(self, path: str, length: Expr) -> None:
        start, end = self.at, self._variable()
        size = value_source(length, self.names, PYTHON)
        self.line(f"{end} = {start} + {size}")
        wrong_size = f"limit < {end}" if length.lo >= 0 else f"not {start} <= {end} <= limit"
        self._unless(wrong_size, f"short((({path!r}, {size}),), limit - {_term(start)})")
        self.at = Place(end, 0)
        self._piece(path, start, self.at)

    def _scalar(self, op: Scalar) -> None:
        line, name, end = self.line, self.names[op.path], self._variable()
        line(f"t = data[{self.at}] if {self.at} < limit else -1")
        for form in (form for form in op.kernel.forms if not form.skips):
            room = "" if form.layout is None else f" and limit - {_term(self.at)} >= {form.largest}"
            line(f"{'if' if form is op.kernel.forms[0] else 'elif'} {form.first} <= t <= {form.last}{room}:")
            with line.indented():
                line(f"{name} = {self._form(form)}")
                line(f"{end} = {self.at.behind(form.largest)}")
        line("else:" if op.kernel.forms else "if True:")
        with line.indented():
            line(f"{name}, {end} = {self.constant('kernel', op.kernel.read)}(data, {self.at}, limit)")
            if op.kernel.unsigned:
                line(f"{name} &= {U64:#x}")
            self._unless(f"{end} < 0", f"wrong({op.path!r}, {end}, limit - {_term(self.at)})")
        self.at = Place(end, 0)

    def _form(self, form: Form) -> str:
        if form.layout is None:
            return f"t - {form.base}" if form.base else "t"
        order, code = form.layout[0], form.layout[1]
        where = f"data[{self.at.behind(1)}:{self.at.behind(form.largest)}]"
        return f"int.from_bytes({where}, {'big' if order == '>' else 'little'!r}, signed={code.islower()})"

    def _choose(self, op: Choose) -> None:
        line, end, start = self.line, self._variable(), self.at
        for index, (test, arm) in enumerate(op.arms):
            line(f"{'el' if index else ''}if {test_source(test, self.names, PYTHON)}:")
            self._branch(arm, start, end)
        line("else:")
        self._branch(op.other, start, end)
        self.at = Place(end, 0)

    def _branch(self, ops: tuple[Op, ...], start: Place, end: str) -> None:
        self.at = start
        with self.line.indented():
            self.read(ops)
            self.line(f"{end} = {self.at}")

    def _piece(self, path: str, start: Place, end: Place | None) -> None:
        """Bytes of a piece are taken where they are read: a case that is not taken has none."""
        if path in self.wanted:
            self.line(f"{self.names[path]} = data[{start}:{'' if end is None else end}]")

    def _unless(self, test: str, error: str) -> None:
        self.line(f"if {test}: raise {error}")

    def _variable(self) -> str:
        self._variables += 1
        return f"p{self._variables}"

    # -- results -----------------------------------------------------------------------------------------------------

    def result(self, members: tuple[Member, ...]) -> None:
        """Returns what is shown."""
        self._leaves_once(members)
        first = next((i for i, member in enumerate(members) if member.test is not None), len(members))
        shown = self._dictionary(members[:first])
        if first == len(members):
            self.line(f"return {shown}")
            return
        self.line(f"out = {shown}")
        before: Expr | None = None
        for member in members[first:]:
            if member.test is None:
                self.line(f"out[{member.name!r}] = {self._value(member.value)}")
            else:
                if member.test != before:
                    self.line(f"if {test_source(member.test, self.names, PYTHON)}:")
                with self.line.indented():
                    self.line(f"out[{member.name!r}] = {self._value(member.value)}")
            before = member.test
        self.line("return out")

    def _leaves_once(self, members: tuple[Member, ...]) -> None:
        """What the title and a member show is made once."""
        title = members[0].value if members else None
        for part in title.parts or () if isinstance(title, Title) else ():
            if isinstance(part, Piece) and any(member.value == part for member in members[1:]):
                name = self.names[part.path]
                self.line(f"{name} = {self._leaf(part.leaf, name)}")
                self._made.add(part.path)

    def _dictionary(self, members: tuple[Member, ...]) -> str:
        return "{" + ", ".join(f"{member.name!r}: {self._value(member.value)}" for member in members) + "}"

    def _value(self, value: Value | Outside) -> str:
        match value:
            case Number(path=path):
                return self.names[path]
            case Choice(path=path, names=names):
                return f"{self.constant('names', dict(names))}.get({self.names[path]}, {self.names[path]})"
            case Piece(path=path, leaf=leaf):
                name = self.names[path]
                return name if path in self._made else self._leaf(leaf, name)
            case Group(members=members):
                return self._dictionary(members)
            case Title(parts=parts):
                return "None" if parts is None else "f'" + "".join(map(self._part, parts)) + "'"
            case Outside(name=name):
                return name

    def _part(self, part: str | Number | Piece | Outside) -> str:
        return repr(part)[1:-1] if isinstance(part, str) else f"{{{self._value(part)}}}"

    def _leaf(self, leaf: Leaf | None, data: str) -> str:
        return data if leaf is None else f"{self.constant('leaf', leaf.read)}({data})"

    def absent(self, wanted: tuple[Member, ...]) -> None:
        """Fields that may not be there are None, unless something is computed with their 0."""
        computed = used_paths(self.body.ops)
        for member in wanted:
            path = _path_of(member)
            if member.test is not None and path not in computed and self._where_set(path) == {member.test}:
                self.line(f"{self.names[path]} = None")
                self._made.add(path)

    def _where_set(self, path: str) -> set[Expr | None]:
        """The conditions of the cases that set a variable; None = there is another way to it."""
        found: set[Expr | None] = set()
        for op in self.body.ops:
            if isinstance(op, Choose):
                arms = [(test, arm) for test, arm in op.arms] + [(None, op.other)]
                found |= {test for test, arm in arms if any(path in sets(one) for one in walk(arm))}
            elif path in sets(op):
                found.add(None)
        return found

    def plain(self, kind: Kind, wanted: dict[str, Member]) -> None:
        """Returns fields as they stand."""
        values = {name: self._plain(member) for name, member in wanted.items()}
        if isinstance(kind, str):
            self.line(f"return {values[kind]}")
        elif isinstance(kind, tuple):
            self.line(f"return {', '.join(values[name] for name in kind)}")
        else:
            defaults: dict[str, Any] = kind._field_defaults  # type: ignore[attr-defined]
            given = [values[n] if n in values else repr(defaults[n]) for n in _names_of(kind)]
            self.space |= {"new": tuple.__new__, "kind": kind}
            self.line(f"return new(kind, ({', '.join(given)},))")

    def _plain(self, member: Member) -> str:
        path = _path_of(member)
        name = self.names[path]
        if member.test is None or path in self._made:
            return name
        return f"{name} if {test_source(member.test, self.names, PYTHON)} else None"


def _names_of(kind: Any) -> tuple[str, ...]:
    names: tuple[str, ...] = kind._fields
    return names


def _path_of(member: Member) -> str:
    assert isinstance(member.value, Number | Choice | Piece)
    return member.value.path


def _term(place: Place) -> str:
    return f"({place})" if place.base and place.offset else str(place)
