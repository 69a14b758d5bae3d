"""Bodies as JSON, as generated source that becomes C: the same members that `schema.decoders` gives.

A function `body(buf, p, n, …, out, o, z)` writes the body at `buf[p:n]`. It returns what kernels that write JSON return
(`formats.jsontext`); a body that is cut short is not its own: the general writer says what is wrong with it. First it
reads all fields, then it writes them; constant texts are stored eight bytes at a time.
"""

from __future__ import annotations

import json
from collections.abc import Iterable

from binlogtool.formats.bodies import Leaf, Shown
from binlogtool.formats.jsonnumbers import put_signed, put_unsigned
from binlogtool.formats.jsontext import put_bytes
from binlogtool.schema import identity
from binlogtool.schema.body_ops import Place, unset
from binlogtool.schema.expressions import MACHINE, Expr, Num, references, signed, test_source, value_source
from binlogtool.schema.lower_bodies import lower_body
from binlogtool.schema.operations import (
    Choose,
    Left,
    Let,
    Load,
    Op,
    Rest,
    Scalar,
    Skip,
    size_of,
    used_paths,
    walk,
)
from binlogtool.schema.scopes import Unlowerable
from binlogtool.schema.shown import Choice, Group, Member, Number, Outside, Piece, Title, Value, members_of, needed
from binlogtool.schema.source import Lines, variable_names
from binlogtool.schema.walk_source import form_source, load_source

_ROOM = 25
"""Bytes that a number takes at most, with room to work."""


def body_text(shown: Shown, kernels: identity.KernelNames) -> tuple[str, str]:
    """The name of the function, which holds the hash of its text, and the text with the tables that it names.

    Raises:
        Unlowerable: something of the body has no compiled form.
    """
    source = _Source(shown, kernels)
    name = identity.symbol_of("body", source.line.text())
    parameters = ", ".join(["buf", "p", "n", *shown.given, "out", "o", "z"])
    inside = "".join(f"    {line}\n" for line in source.line.text().splitlines())
    tables = "".join(f"{table} = {words}\n" for table, words in source.tables.items())
    return name, f"{tables}def {name}({parameters}):\n{inside}"


class _Source:
    """The lines of a function."""

    def __init__(self, shown: Shown, kernels: identity.KernelNames) -> None:
        body = lower_body(shown.schema)
        members = members_of(shown, body)
        self.line, self.kernels = Lines(), kernels
        self.wanted = needed(members)
        self.used = self.wanted | used_paths(body.ops)
        self.names = variable_names(
            tuple(dict.fromkeys(op.path for op in walk(body.ops) if not isinstance(op, Choose)))
        )
        self.at = Place("p", 0)
        self._variables = 0
        self._pending: list[bytes | str] = []
        self.tables: dict[str, str] = {}
        tests = {path for member in members if member.test is not None for path in references(member.test)}
        for path in sorted(unset(body.ops, tests) & self.used):
            self.line(f"{self.names[path]} = 0")
        self._read(body.ops)
        self._object(members)
        self._flush()
        self.line("return o")

    # -- reading -----------------------------------------------------------------------------------------------------

    def _read(self, ops: tuple[Op, ...]) -> None:
        index = 0
        while index < len(ops):
            run: list[Load | Skip] = []
            while index + len(run) < len(ops) and size_of(one := ops[index + len(run)]) is not None:
                run.append(one)  # type: ignore[arg-type]
            if run:
                self._run(run)
            else:
                self._one(ops[index])
            index += len(run) or 1

    def _run(self, run: list[Load | Skip]) -> None:
        total = sum(size_of(op) or 0 for op in run)
        self._refuse_if(f"n - {self.at.base} < {self.at.offset + total}")
        for op in run:
            if isinstance(op, Load) and op.path in self.used:
                self.line(f"{self.names[op.path]} = {load_source(op, f'buf + {self.at}')}")
            elif isinstance(op, Skip):
                self._piece(op.path, str(self.at), str(self.at.behind(size_of(op) or 0)))
            elif not isinstance(op, Load):
                raise Unlowerable(op.path, "a constant in a body")
            self.at = self.at.behind(size_of(op) or 0)

    def _one(self, op: Op) -> None:
        match op:
            case Skip(path=path, length=length):
                size, end = self._variable(), self._variable()
                self.line(f"{size} = {value_source(length, self.names, MACHINE)}")
                self._refuse_if(f"{size} < 0 or {size} > n - ({self.at})")
                self.line(f"{end} = {self.at} + {size}")
                self._piece(path, str(self.at), end)
                self.at = Place(end, 0)
            case Rest(path=path):
                self._piece(path, str(self.at), "n")
                self.at = Place("n", 0)
            case Left(path=path):
                self.line(f"{self.names[path]} = n - ({self.at})")
            case Let(path=path, value=value):
                if path in self.used:
                    self.line(f"{self.names[path]} = {value_source(value, self.names, MACHINE)}")
            case Scalar():
                self._scalar(op)
            case Choose():
                self._choose(op)
            case _:
                raise Unlowerable(op.path, f"{type(op).__name__} in a body")

    def _scalar(self, op: Scalar) -> None:
        line, name, end = self.line, self.names[op.path], self._variable()
        line(f"t = load_u1(buf + {self.at}) if {self.at} < n else -1")
        for index, form in enumerate(op.kernel.forms):
            test = f"{form.first} <= t <= {form.last} and n - ({self.at}) >= {form.size('t')}"
            line(f"{'el' if index else ''}if {test}:")
            with line.indented():
                line(f"{name} = {form_source(form, f'buf + {self.at}')}")
                line(f"{end} = {self.at} + {form.size('t')}")
        line("else:" if op.kernel.forms else "if True:")
        with line.indented():
            line(f"{name}, {end} = {self.kernels.add(op.kernel.read)}(buf, {self.at}, n)")
            self._refuse_if(f"{end} < 0")
        self.at = Place(end, 0)

    def _choose(self, op: Choose) -> None:
        line, end, start = self.line, self._variable(), self.at
        for index, (test, arm) in enumerate(op.arms):
            line(f"{'el' if index else ''}if {test_source(test, self.names, MACHINE)}:")
            self._branch(arm, start, end)
        line("else:")
        self._branch(op.other, start, end)
        self.at = Place(end, 0)

    def _branch(self, ops: tuple[Op, ...], start: Place, end: str) -> None:
        self.at = start
        with self.line.indented():
            self._read(ops)
            self.line(f"{end} = {self.at}")

    def _piece(self, path: str, start: str, end: str) -> None:
        if path in self.wanted:
            self.line(f"{self.names[path]}_a = {start}")
            self.line(f"{self.names[path]}_z = {end}")

    def _variable(self) -> str:
        self._variables += 1
        return f"p{self._variables}"

    def _refuse_if(self, test: str) -> None:
        self._return_if(test, "-2")

    def _return_if(self, test: str, result: str) -> None:
        self.line(f"if {test}:")
        with self.line.indented():
            self.line(f"return {result}")

    # -- writing -----------------------------------------------------------------------------------------------------

    def _object(self, members: Iterable[Member]) -> None:
        before, opened = b"{", False
        test: Expr | None = None
        for member in members:
            if member.test is not None and not opened:
                raise Unlowerable(member.name, "a first member that may not be there")
            if member.test != test:
                self._flush()
            test = member.test
            name = before + json.dumps(member.name).encode() + b":"
            before, opened = b",", True
            if test is None:
                self._text(name)
                self._value(member.value)
                continue
            self.line(f"if {test_source(test, self.names, MACHINE)}:")
            with self.line.indented():
                self._text(name)
                self._value(member.value)
                self._flush()
        self._text(b"}" if opened else b"{}")

    def _value(self, value: Value | Outside) -> None:
        match value:
            case Number():
                self._pending.append(self._number(value))
            case Outside(name=name):
                self._pending.append(f"{self.kernels.add(put_unsigned)}({name}, out, o, z)")
            case Choice():
                self._choice(value)
            case Piece(path=path, leaf=leaf):
                self._leaf(self.names[path], leaf)
            case Group(members=members):
                self._object(members)
            case Title(parts=None):
                self._text(b"null")
            case Title(parts=parts):
                self._title(parts or ())

    def _number(self, value: Number | Choice) -> str:
        put = put_signed if value.signed else put_unsigned
        return f"{self.kernels.add(put)}({self.names[value.path]}, out, o, z)"

    def _choice(self, value: Choice) -> None:
        self._flush()
        for index, (number, name) in enumerate(value.names):
            self.line(f"{'el' if index else ''}if {self.names[value.path]} == {number}:")
            with self.line.indented():
                self._text(json.dumps(name).encode())
                self._flush()
        self.line("else:")
        with self.line.indented():
            self._pending.append(self._number(value))
            self._flush()

    def _title(self, parts: Iterable[str | Number | Piece | Outside]) -> None:
        self._text(b'"')
        for part in parts:
            if isinstance(part, str):
                self._text(json.dumps(part)[1:-1].encode())
            elif isinstance(part, Piece):
                if part.leaf is None or not part.leaf.bare:
                    raise Unlowerable(part.path, "it has no text without quotes")
                self._put(self.names[part.path], part.leaf)
            else:
                self._value(part)
        self._text(b'"')

    def _leaf(self, name: str, leaf: Leaf | None) -> None:
        quote = b'"' if leaf is not None and leaf.bare else b""
        self._text(quote)
        self._put(name, leaf)
        self._text(quote)

    def _put(self, name: str, leaf: Leaf | None) -> None:
        if leaf is not None and leaf.put is None:
            raise Unlowerable(name, "only the general writer writes it")
        put = put_bytes if leaf is None or leaf.put is None else leaf.put.value
        self._flush()
        table = f"{self._table(leaf.table.value)}, " if leaf is not None and leaf.table is not None else ""
        self.line(f"o = {self.kernels.add(put)}(buf, {name}_a, {name}_z, {table}out, o, z)")
        self._return_if("o < 0", "o")

    def _table(self, table: bytes) -> str:
        """The name of constant bytes, which lie in memory as integers of eight bytes."""
        words = memoryview(table + bytes(-len(table) % 8)).cast("q").tolist()
        name = identity.symbol_of("TABLE", repr(words))
        self.tables[name] = repr(words)
        return name

    def _text(self, text: bytes) -> None:
        if self._pending and isinstance(self._pending[-1], bytes):
            self._pending[-1] += text
        elif text:
            self._pending.append(text)

    def _flush(self) -> None:
        """Writes constant texts and numbers, behind one test of the room."""
        if not self._pending:
            return
        room = sum(len(one) if isinstance(one, bytes) else _ROOM for one in self._pending) + 8
        self._return_if(f"z - o < {room}", "-1")
        for one in self._pending:
            if isinstance(one, str):
                self.line(f"o = {one}")
                continue
            for k in range(0, len(one), 8):
                word = signed(int.from_bytes(one[k : k + 8], "little"))
                where = f"out + o + {k}" if k else "out + o"
                self.line(f"store_i8_little({where}, {value_source(Num(word), {}, MACHINE)})")
            self.line(f"o += {len(one)}")
        self._pending = []
