"""Generate source, compiled to C, that writes bodies as JSON, with the members that `schema.decoders` gives.

A function `body(buf, p, n, …, out, o, z)` writes the body at `buf[p:n]` and returns what kernels that write JSON
return
(`formats.jsontext`). It refuses a truncated body; the general writer reports what is wrong with it. It first reads
all
fields, then writes them; a list is read once more for that, element by element, so that long lists take no memory.
Constant texts are stored eight bytes at a time.
"""

from __future__ import annotations

import json
from collections.abc import Iterable

from binlogtool.formats.bodies import Leaf, Shown
from binlogtool.formats.jsonnumbers import put_signed, put_unsigned
from binlogtool.formats.jsontext import put_bytes
from binlogtool.schema import identity
from binlogtool.schema.body_ops import Place
from binlogtool.schema.body_source import BodySource, Fixed
from binlogtool.schema.expressions import MACHINE, Expr, Num, signed, value_source
from binlogtool.schema.lower_bodies import lower_body
from binlogtool.schema.operations import Fit, Load, Many, OneOf, Op, Require, Scalar, Skip, size_of, walk
from binlogtool.schema.scopes import Unlowerable
from binlogtool.schema.shown import Choice, Group, Items, Member, Number, Outside, Piece, Title, Value, members_of
from binlogtool.schema.walk_source import form_source, load_source

_ROOM = 25
"""Bytes that a number takes at most, with room to work."""


def body_text(shown: Shown, kernels: identity.KernelNames) -> tuple[str, str]:
    """Return the name of the function, which has the hash of its text, and the text with the tables that it uses.

    Raises:
        UnlowerableError: something of the body has no compiled form.
    """
    source = _Source(shown, kernels)
    name = identity.symbol_of("body", source.line.text())
    parameters = ", ".join(["buf", "p", "n", *shown.given, "out", "o", "z"])
    inside = "".join(f"    {line}\n" for line in source.line.text().splitlines())
    tables = "".join(f"{table} = {words}\n" for table, words in source.tables.items())
    return name, f"{tables}def {name}({parameters}):\n{inside}"


class _Source(BodySource):
    """Generates the lines of the function."""

    dialect = MACHINE
    end = "n"

    def __init__(self, shown: Shown, kernels: identity.KernelNames) -> None:
        body = lower_body(shown.schema)
        members = members_of(shown, body)
        super().__init__(body, members, Place("p", 0))
        self.kernels = kernels
        self._pending: list[bytes | str] = []
        self._lists = {op.path: op for op in walk(body.ops) if isinstance(op, Many)}
        self.tables: dict[str, str] = {}
        self.read(body.ops)
        self._object(members)
        self._flush()
        self.line("return o")

    # -- reading -----------------------------------------------------------------------------------------------------

    def fixed(self, run: list[Fixed]) -> None:
        """Load each used field of the run."""
        total = sum(size_of(op) or 0 for op in run)
        self._refuse_if(f"n - {self.at.base} < {self.at.offset + total}")
        for op in run:
            if isinstance(op, Load) and op.path in self.used:
                self.line(f"{self.names[op.path]} = {load_source(op, f'buf + {self.at}')}")
            elif isinstance(op, Skip):
                self.piece(op.path, self.at, self.at.behind(size_of(op) or 0))
            elif not isinstance(op, Load):
                raise Unlowerable(op.path, "a constant in a body")
            self.at = self.at.behind(size_of(op) or 0)

    def skip(self, path: str, length: Expr) -> None:
        """Pass over bytes whose size other fields give."""
        size, end = self.variable(), self.variable()
        self.line(f"{size} = {self.value_of(length)}")
        self._refuse_if(f"{size} < 0 or {size} > {self.left}")
        self.line(f"{end} = {self.at} + {size}")
        self.piece(path, self.at, Place(end, 0))
        self.at = Place(end, 0)

    def scalar(self, op: Scalar) -> None:
        """Decode the frequent forms inline, all others by the kernel."""
        line, name, end = self.line, self.names[op.path], self.variable()
        line(f"t = load_u1(buf + {self.at}) if {self.at} < n else -1")
        for index, form in enumerate(op.kernel.forms):
            test = f"{form.first} <= t <= {form.last} and {self.left} >= {form.size('t')}"
            line(f"{'el' if index else ''}if {test}:")
            with line.indented():
                line(f"{name} = {form_source(form, f'buf + {self.at}')}")
                line(f"{end} = {self.at} + {form.size('t')}")
        line("else:" if op.kernel.forms else "if True:")
        with line.indented():
            line(f"{name}, {end} = {self.kernels.add(op.kernel.read)}(buf, {self.at}, n)")
            self._refuse_if(f"{end} < 0")
        self.at = Place(end, 0)

    def piece(self, path: str, start: Place, end: Place) -> None:
        """Keep the start and the end of the bytes."""
        if path in self.wanted:
            self.line(f"{self.names[path]}_a = {start}")
            self.line(f"{self.names[path]}_z = {end}")

    def fit(self, op: Fit) -> None:
        """Refuse a count whose elements cannot fit."""
        count = self.value_of(op.count)
        self._refuse_if(f"{count} < 0 or {count} > ({self.left}) // {op.smallest}")

    def special(self, op: Op) -> None:
        """Keep where a list begins and how many elements it has, and check that each is complete; check constants."""
        if isinstance(op, OneOf):
            return self._refuse_if(" and ".join(f"{self.names[op.path]} != {value}" for value in op.values))
        if isinstance(op, Require):
            return self._refuse_if(f"not ({self.test_of(op.test)})")
        if not isinstance(op, Many):
            return super().special(op)
        name = self.names[op.path]
        self.line(f"{name}_a = {self.at}")
        self.line(f"{name}_n = {self.value_of(op.count)}")
        return self._each(op, None)

    def _each(self, op: Many, element: Value | None) -> None:
        """Read all elements and, if wanted, write them; each takes at least a byte, so the end of the body bounds the
        count.
        """
        place, name = self.variable(), self.names[op.path]
        self.line(f"{place} = {name}_a")
        self.line(f"for _ in range({name}_n):")
        with self.line.indented():
            self.at = Place(place, 0)
            self.zeros(op.ops)
            self.read(op.ops)
            self.line(f"{place} = {self.at}")
            if element is not None:
                self._value(element)
                self._text(b",")
                self._flush()
        self.at = Place(place, 0)

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
            is_named = not (
                isinstance(member.value, Piece) and member.value.leaf is not None and member.value.leaf.members
            )
            name = before + (json.dumps(member.name).encode() + b":" if is_named else b"")
            before, opened = b",", True
            if test is None:
                self._text(name)
                self._value(member.value)
                continue
            self.line(f"if {self.test_of(test)}:")
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
            case Piece(path=path, leaf=leaf, given=given):
                self._leaf(self.names[path], leaf, given)
            case Group(members=members):
                self._object(members)
            case Title(parts=None):
                self._text(b"null")
            case Title(parts=parts):
                self._title(parts or ())
            case Items(path=path, element=element):
                self._list(self._lists[path], element)

    def _list(self, op: Many, element: Value) -> None:
        self._text(b"[")
        self._flush()
        self._each(op, element)
        self.line(f"if {self.names[op.path]}_n > 0:")
        with self.line.indented():
            self.line("o -= 1")  # the comma after the last one
        self._text(b"]")

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

    def _leaf(self, name: str, leaf: Leaf | None, given: tuple[tuple[str, bool], ...]) -> None:
        quote = b'"' if leaf is not None and leaf.bare else b""
        self._text(quote)
        self._put(name, leaf, given)
        self._text(quote)

    def _put(self, name: str, leaf: Leaf | None, given: tuple[tuple[str, bool], ...] = ()) -> None:
        if leaf is not None and leaf.put is None:
            raise Unlowerable(name, "only the general writer writes it")
        put = put_bytes if leaf is None or leaf.put is None else leaf.put.value
        self._flush()
        table = f"{self._table(leaf.table.value)}, " if leaf is not None and leaf.table is not None else ""
        values = "".join(f"{self.names[path]}{'' if is_number else '_a'}, " for path, is_number in given)
        self.line(f"o = {self.kernels.add(put)}(buf, {name}_a, {name}_z, {table}{values}out, o, z)")
        self._return_if("o < 0", "o")

    def _table(self, table: bytes) -> str:
        """Return the name of constant bytes, which are in memory as integers of eight bytes."""
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
        """Emit the pending texts and numbers after one check of the output space."""
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
