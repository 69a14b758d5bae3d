"""Generate source, compiled to C, that writes bodies as JSON, with the members that `schema.decoders` gives.

A function `body(buf, p, n, …, out, o, z)` writes the body at `buf[p:n]` and returns what kernels that write JSON return
(`formats.jsontext`). It refuses a truncated body; the general writer reports what is wrong with it. It first reads all
fields, then writes them; a list is read once more for that, element by element, so that long lists take no memory.
Constant texts are stored eight bytes at a time.
"""

from __future__ import annotations

import json
from collections.abc import Iterable

from binlogtool.formats.bodies import BodySchema, LeafFormat
from binlogtool.formats.jsonnumbers import put_signed, put_unsigned
from binlogtool.formats.jsontext import put_bytes
from binlogtool.schema import identity
from binlogtool.schema.body_ops import BodyPosition
from binlogtool.schema.body_source import BodyCodeGenerator, FixedSizeOp
from binlogtool.schema.expressions import MACHINE, Expr, Num, format_value_source, wrap_int64
from binlogtool.schema.lower_bodies import lower_body
from binlogtool.schema.operations import (
    CheckCount,
    LoadInteger,
    Op,
    ReadScalar,
    Repeat,
    Require,
    RequireOneOf,
    SkipBytes,
    get_fixed_size,
    iter_operations,
)
from binlogtool.schema.scopes import Unlowerable
from binlogtool.schema.shown import (
    ArgumentNumber,
    ShownBytes,
    ShownEnum,
    ShownGroup,
    ShownList,
    ShownMember,
    ShownNumber,
    ShownTitle,
    ShownValue,
    list_shown_members,
)
from binlogtool.schema.walk_source import format_load, format_scalar_form

_MAX_NUMBER_SIZE = 25
"""Bytes that a number takes at most, with room to work."""


def generate_json_body(body_schema: BodySchema, kernels: identity.KernelNames) -> tuple[str, str]:
    """Return the name of the function, which has the hash of its text, and the text with the tables that it uses.

    Raises:
        UnlowerableError: something of the body has no compiled form.
    """
    generator = _JsonBodyGenerator(body_schema, kernels)
    name = identity.make_symbol("body", generator.line.join())
    parameters = ", ".join(["buf", "p", "n", *body_schema.parameters, "out", "o", "z"])
    function_body = "".join(f"    {line}\n" for line in generator.line.join().splitlines())
    tables = "".join(f"{table} = {words}\n" for table, words in generator.tables.items())
    return name, f"{tables}def {name}({parameters}):\n{function_body}"


class _JsonBodyGenerator(BodyCodeGenerator):
    """Generates the lines of the function."""

    dialect = MACHINE
    end = "n"

    def __init__(self, body_schema: BodySchema, kernels: identity.KernelNames) -> None:
        body = lower_body(body_schema.schema)
        members = list_shown_members(body_schema, body)
        super().__init__(body, members, BodyPosition("p", 0))
        self.kernels = kernels
        self._pending: list[bytes | str] = []
        self._lists = {op.path: op for op in iter_operations(body.ops) if isinstance(op, Repeat)}
        self.tables: dict[str, str] = {}
        self.emit_operations(body.ops)
        self._emit_object(members)
        self._emit_pending()
        self.line("return o")

    # -- reading -----------------------------------------------------------------------------------------------------

    def emit_fixed_run(self, run: list[FixedSizeOp]) -> None:
        """Load each used field of the run."""
        total = sum(get_fixed_size(op) or 0 for op in run)
        self._emit_refuse_if(f"n - {self.position.base} < {self.position.offset + total}")
        for op in run:
            if isinstance(op, LoadInteger) and op.path in self.used:
                self.line(f"{self.names[op.path]} = {format_load(op, f'buf + {self.position}')}")
            elif isinstance(op, SkipBytes):
                self.emit_bytes_field(op.path, self.position, self.position.advance(get_fixed_size(op) or 0))
            elif not isinstance(op, LoadInteger):
                raise Unlowerable(op.path, "a constant in a body")
            self.position = self.position.advance(get_fixed_size(op) or 0)

    def emit_skip(self, path: str, length: Expr) -> None:
        """Pass over bytes whose size other fields give."""
        size, end = self.new_variable(), self.new_variable()
        self.line(f"{size} = {self.format_value(length)}")
        self._emit_refuse_if(f"{size} < 0 or {size} > {self.left_source}")
        self.line(f"{end} = {self.position} + {size}")
        self.emit_bytes_field(path, self.position, BodyPosition(end, 0))
        self.position = BodyPosition(end, 0)

    def emit_scalar(self, op: ReadScalar) -> None:
        """Decode the frequent forms inline, all others by the kernel."""
        line, name, end = self.line, self.names[op.path], self.new_variable()
        line(f"t = load_u1(buf + {self.position}) if {self.position} < n else -1")
        for index, form in enumerate(op.kernel.forms):
            test = f"{form.first} <= t <= {form.last} and {self.left_source} >= {form.size_expression('t')}"
            line(f"{'el' if index else ''}if {test}:")
            with line.indent():
                line(f"{name} = {format_scalar_form(form, f'buf + {self.position}')}")
                line(f"{end} = {self.position} + {form.size_expression('t')}")
        line("else:" if op.kernel.forms else "if True:")
        with line.indent():
            line(f"{name}, {end} = {self.kernels.add(op.kernel.read)}(buf, {self.position}, n)")
            self._emit_refuse_if(f"{end} < 0")
        self.position = BodyPosition(end, 0)

    def emit_bytes_field(self, path: str, start: BodyPosition, end: BodyPosition) -> None:
        """Keep the start and the end of the bytes."""
        if path in self.wanted:
            self.line(f"{self.names[path]}_a = {start}")
            self.line(f"{self.names[path]}_z = {end}")

    def emit_count_check(self, op: CheckCount) -> None:
        """Refuse a count whose elements cannot fit."""
        count = self.format_value(op.count)
        self._emit_refuse_if(f"{count} < 0 or {count} > ({self.left_source}) // {op.smallest}")

    def emit_special(self, op: Op) -> None:
        """Keep where a list begins and how many elements it has, and check that each is complete; check constants."""
        if isinstance(op, RequireOneOf):
            return self._emit_refuse_if(" and ".join(f"{self.names[op.path]} != {value}" for value in op.values))
        if isinstance(op, Require):
            return self._emit_refuse_if(f"not ({self.format_test(op.test)})")
        if not isinstance(op, Repeat):
            return super().emit_special(op)
        name = self.names[op.path]
        self.line(f"{name}_a = {self.position}")
        self.line(f"{name}_n = {self.format_value(op.count)}")
        return self._emit_elements(op, None)

    def _emit_elements(self, op: Repeat, element: ShownValue | None) -> None:
        """Read all elements and, if wanted, write them; each takes at least a byte, so the end of the body bounds the
        count.
        """
        position, name = self.new_variable(), self.names[op.path]
        self.line(f"{position} = {name}_a")
        self.line(f"for _ in range({name}_n):")
        with self.line.indent():
            self.position = BodyPosition(position, 0)
            self.emit_zeros(op.ops)
            self.emit_operations(op.ops)
            self.line(f"{position} = {self.position}")
            if element is not None:
                self._emit_value(element)
                self._append_text(b",")
                self._emit_pending()
        self.position = BodyPosition(position, 0)

    def _emit_refuse_if(self, test: str) -> None:
        self._emit_return_if(test, "-2")

    def _emit_return_if(self, test: str, result: str) -> None:
        self.line(f"if {test}:")
        with self.line.indent():
            self.line(f"return {result}")

    # -- writing -----------------------------------------------------------------------------------------------------

    def _emit_object(self, members: Iterable[ShownMember]) -> None:
        separator, has_member = b"{", False
        test: Expr | None = None
        for member in members:
            if member.test is not None and not has_member:
                raise Unlowerable(member.name, "a first member that may not be there")
            if member.test != test:
                self._emit_pending()
            test = member.test
            is_named = not (
                isinstance(member.value, ShownBytes)
                and member.value.leaf is not None
                and member.value.leaf.writes_members
            )
            name = separator + (json.dumps(member.name).encode() + b":" if is_named else b"")
            separator, has_member = b",", True
            if test is None:
                self._append_text(name)
                self._emit_value(member.value)
                continue
            self.line(f"if {self.format_test(test)}:")
            with self.line.indent():
                self._append_text(name)
                self._emit_value(member.value)
                self._emit_pending()
        self._append_text(b"}" if has_member else b"{}")

    def _emit_value(self, value: ShownValue | ArgumentNumber) -> None:
        match value:
            case ShownNumber():
                self._pending.append(self._format_number_call(value))
            case ArgumentNumber(name=name):
                self._pending.append(f"{self.kernels.add(put_unsigned)}({name}, out, o, z)")
            case ShownEnum():
                self._emit_enum(value)
            case ShownBytes(path=path, leaf=leaf, given=given):
                self._emit_leaf(self.names[path], leaf, given)
            case ShownGroup(members=members):
                self._emit_object(members)
            case ShownTitle(parts=None):
                self._append_text(b"null")
            case ShownTitle(parts=parts):
                self._emit_title(parts or ())
            case ShownList(path=path, element=element):
                self._emit_list(self._lists[path], element)

    def _emit_list(self, op: Repeat, element: ShownValue) -> None:
        self._append_text(b"[")
        self._emit_pending()
        self._emit_elements(op, element)
        self.line(f"if {self.names[op.path]}_n > 0:")
        with self.line.indent():
            self.line("o -= 1")  # the comma after the last one
        self._append_text(b"]")

    def _format_number_call(self, value: ShownNumber | ShownEnum) -> str:
        put = put_signed if value.signed else put_unsigned
        return f"{self.kernels.add(put)}({self.names[value.path]}, out, o, z)"

    def _emit_enum(self, value: ShownEnum) -> None:
        self._emit_pending()
        for index, (number, name) in enumerate(value.names):
            self.line(f"{'el' if index else ''}if {self.names[value.path]} == {number}:")
            with self.line.indent():
                self._append_text(json.dumps(name).encode())
                self._emit_pending()
        self.line("else:")
        with self.line.indent():
            self._pending.append(self._format_number_call(value))
            self._emit_pending()

    def _emit_title(self, parts: Iterable[str | ShownNumber | ShownBytes | ArgumentNumber]) -> None:
        self._append_text(b'"')
        for part in parts:
            if isinstance(part, str):
                self._append_text(json.dumps(part)[1:-1].encode())
            elif isinstance(part, ShownBytes):
                if part.leaf is None or not part.leaf.unquoted:
                    raise Unlowerable(part.path, "it has no text without quotes")
                self._emit_put(self.names[part.path], part.leaf)
            else:
                self._emit_value(part)
        self._append_text(b'"')

    def _emit_leaf(self, name: str, leaf: LeafFormat | None, given: tuple[tuple[str, bool], ...]) -> None:
        quote = b'"' if leaf is not None and leaf.unquoted else b""
        self._append_text(quote)
        self._emit_put(name, leaf, given)
        self._append_text(quote)

    def _emit_put(self, name: str, leaf: LeafFormat | None, given: tuple[tuple[str, bool], ...] = ()) -> None:
        if leaf is not None and leaf.json_kernel is None:
            raise Unlowerable(name, "only the general writer writes it")
        put = put_bytes if leaf is None or leaf.json_kernel is None else leaf.json_kernel.value
        self._emit_pending()
        table = (
            f"{self._add_table(leaf.text_table.value)}, " if leaf is not None and leaf.text_table is not None else ""
        )
        values = "".join(f"{self.names[path]}{'' if is_number else '_a'}, " for path, is_number in given)
        self.line(f"o = {self.kernels.add(put)}(buf, {name}_a, {name}_z, {table}{values}out, o, z)")
        self._emit_return_if("o < 0", "o")

    def _add_table(self, table: bytes) -> str:
        """Return the name of constant bytes, which are in memory as integers of eight bytes."""
        words = memoryview(table + bytes(-len(table) % 8)).cast("q").tolist()
        name = identity.make_symbol("TABLE", repr(words))
        self.tables[name] = repr(words)
        return name

    def _append_text(self, text: bytes) -> None:
        if self._pending and isinstance(self._pending[-1], bytes):
            self._pending[-1] += text
        elif text:
            self._pending.append(text)

    def _emit_pending(self) -> None:
        """Emit the pending texts and numbers after one check of the output space."""
        if not self._pending:
            return
        needed = sum(len(one) if isinstance(one, bytes) else _MAX_NUMBER_SIZE for one in self._pending) + 8
        self._emit_return_if(f"z - o < {needed}", "-1")
        for one in self._pending:
            if isinstance(one, str):
                self.line(f"o = {one}")
                continue
            for k in range(0, len(one), 8):
                word = wrap_int64(int.from_bytes(one[k : k + 8], "little"))
                where = f"out + o + {k}" if k else "out + o"
                self.line(f"store_i8_little({where}, {format_value_source(Num(word), {}, MACHINE)})")
            self.line(f"o += {len(one)}")
        self._pending = []
