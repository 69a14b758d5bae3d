"""Generate Python that reads bodies: neighbouring fields of fixed size are one `struct` unpack after one bounds
check.
"""

from __future__ import annotations

import re
import struct
from collections.abc import Callable
from typing import Any

from binlogtool.formats.bodies import LeafFormat, make_count_error
from binlogtool.formats.fields import ScalarForm
from binlogtool.schema.body_ops import BodyPosition, make_short_error, make_value_error
from binlogtool.schema.body_source import BodyCodeGenerator, FixedSizeOp
from binlogtool.schema.expressions import PYTHON, U64, Expr
from binlogtool.schema.lower_bodies import LoweredBody
from binlogtool.schema.operations import CheckCount, ExpectBytes, LoadInteger, Op, ReadScalar, Repeat, get_fixed_size
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
    iter_lists,
)

_STRUCT_CODES = {1: "B", 2: "H", 4: "I", 8: "Q"}


class PythonBodyGenerator(BodyCodeGenerator):
    """Generates a Python function of `data`.

    Attributes:
        constants: The globals of the function.
        decoded_paths: Variables that hold decoded values already.
    """

    dialect = PYTHON
    end = "limit"

    def __init__(self, body: LoweredBody, members: tuple[ShownMember, ...], arguments: tuple[str, ...] = ()) -> None:
        super().__init__(body, members, BodyPosition("", 0))
        self.constants: dict[str, Any] = {
            "short": make_short_error,
            "wrong": make_value_error,
            "too_many": make_count_error,
        }
        self.decoded_paths: set[str] = set()
        self.lists = {items.path: items for items in iter_lists(members)}
        self._arguments = arguments

    def compile_function(self) -> Callable[..., Any]:
        """Compile and return the function."""
        header = f"def read(data{''.join(f', {name}' for name in self._arguments)}):\n    limit = len(data)\n"
        text = header + "".join(f"    {line}\n" for line in self.line.join().splitlines())
        namespace = dict(self.constants)
        exec(compile(text, "<body>", "exec"), namespace)
        function: Callable[..., Any] = namespace["read"]
        function.__doc__ = text
        return function

    def add_constant(self, prefix: str, value: Any) -> str:
        """Add a constant; return its name."""
        name = f"{prefix}{len(self.constants)}"
        self.constants[name] = value
        return name

    # -- operations --------------------------------------------------------------------------------------------------

    def emit_fixed_run(self, run: list[FixedSizeOp]) -> None:
        """Unpack the used fields of the run at once."""
        sizes = tuple((op.path, get_fixed_size(op) or 0) for op in run)
        end = self.position.advance(sum(size for _, size in sizes))
        self._emit_raise_if(f"limit < {end}", f"short({self.add_constant('sizes', sizes)}, {self.left_source})")
        layout, targets, byte_integers = self._make_struct_layout(run)
        self._emit_unpack(layout, targets)
        for op in byte_integers:
            name = self.names[op.path]
            self.line(f"{name} = int.from_bytes({name}, {'big' if op.big else 'little'!r}, signed={op.signed})")
        self.position = end

    def _make_struct_layout(self, run: list[FixedSizeOp]) -> tuple[str, list[str], list[LoadInteger]]:
        """Return the `struct` layout, its target variables, and the integers that it gives as bytes."""
        layout, targets, byte_integers = "<", list[str](), list[LoadInteger]()
        for op in run:
            size = get_fixed_size(op) or 0
            if isinstance(op, ExpectBytes):
                raise Unlowerable(op.path, "a constant in a body")
            if op.path not in (self.used if isinstance(op, LoadInteger) else self.wanted):
                layout += f"{size}x"
                continue
            targets.append(self.names[op.path])
            code = _STRUCT_CODES.get(size) if isinstance(op, LoadInteger) and not op.big else None
            layout += (
                f"{size}s" if code is None else code.lower() if isinstance(op, LoadInteger) and op.signed else code
            )
            byte_integers += [op] if isinstance(op, LoadInteger) and code is None else []
        return layout, targets, byte_integers

    def _emit_unpack(self, layout: str, targets: list[str]) -> None:
        if layout == "<B":
            self.line(f"{targets[0]} = data[{self.position}]")
        elif len(targets) == 1 and re.fullmatch(r"<\d+s", layout):
            self.line(f"{targets[0]} = data[{self.position}:{self.position.advance(struct.calcsize(layout))}]")
        elif targets:
            unpack = self.add_constant("unpack", struct.Struct(layout).unpack_from)
            where = "" if str(self.position) == "0" else f", {self.position}"
            self.line(f"{', '.join(targets)}, = {unpack}(data{where})")

    def emit_skip(self, path: str, length: Expr) -> None:
        """Pass over bytes whose size other fields give."""
        start, end, size = self.position, self.new_variable(), self.format_value(length)
        self.line(f"{end} = {start} + {size}")
        wrong_size = f"limit < {end}" if length.lo >= 0 else f"not {start} <= {end} <= limit"
        self._emit_raise_if(wrong_size, f"short((({path!r}, {size}),), {self.left_source})")
        self.position = BodyPosition(end, 0)
        self.emit_bytes_field(path, start, self.position)

    def emit_scalar(self, op: ReadScalar) -> None:
        """Decode the frequent forms inline, all others by the kernel."""
        line, name, end = self.line, self.names[op.path], self.new_variable()
        line(f"t = data[{self.position}] if {self.position} < limit else -1")
        for form in (form for form in op.kernel.forms if not form.skips):
            room = "" if form.layout is None else f" and {self.left_source} >= {form.max_size}"
            line(f"{'if' if form is op.kernel.forms[0] else 'elif'} {form.first} <= t <= {form.last}{room}:")
            with line.indent():
                line(f"{name} = {self._format_scalar_form(form)}")
                line(f"{end} = {self.position.advance(form.max_size)}")
        line("else:" if op.kernel.forms else "if True:")
        with line.indent():
            line(f"{name}, {end} = {self.add_constant('kernel', op.kernel.read)}(data, {self.position}, limit)")
            if op.kernel.unsigned:
                line(f"{name} &= {U64:#x}")
            self._emit_raise_if(f"{end} < 0", f"wrong({op.path!r}, {end}, {self.left_source})")
        self.position = BodyPosition(end, 0)

    def _format_scalar_form(self, form: ScalarForm) -> str:
        if form.layout is None:
            return f"t - {form.base}" if form.base else "t"
        order, code = form.layout[0], form.layout[1]
        where = f"data[{self.position.advance(1)}:{self.position.advance(form.max_size)}]"
        return f"int.from_bytes({where}, {'big' if order == '>' else 'little'!r}, signed={code.islower()})"

    def emit_bytes_field(self, path: str, start: BodyPosition, end: BodyPosition) -> None:
        """Slice the bytes where they are read: a case that is not taken has none."""
        if path in self.wanted:
            self.line(f"{self.names[path]} = data[{start}:{'' if str(end) == self.end else end}]")

    def emit_count_check(self, op: CheckCount) -> None:
        """Refuse a count whose elements cannot fit."""
        count = self.format_value(op.count)
        self._emit_raise_if(
            f"{count} > ({self.left_source}) // {op.smallest}", f"too_many({op.what!r}, {count}, {self.left_source})"
        )

    def emit_special(self, op: Op) -> None:
        """Read lists."""
        if not isinstance(op, Repeat):
            return super().emit_special(op)
        items = self.lists.get(op.path)
        sizes = [get_fixed_size(one) for one in op.ops]
        if (
            all(isinstance(one, LoadInteger) and not one.big and one.width in _STRUCT_CODES for one in op.ops)
            and items is not None
        ):
            return self._emit_number_list(op, items, sum(size or 0 for size in sizes))
        return self._emit_element_loop(op, items)

    def _emit_number_list(self, op: Repeat, items: ShownList, size: int) -> None:
        """Read a list whose elements are numbers of fixed sizes."""
        start, end, count = self.position, self.new_variable(), self.format_value(op.count)
        self.line(f"{end} = {start} + {size} * {count}")
        self._emit_raise_if(
            f"not {start} <= {end} <= limit", f"short((({op.path!r}, {size} * {count}),), {self.left_source})"
        )
        layout, targets, _ = self._make_struct_layout(list(op.ops))  # type: ignore[arg-type]
        unpack, element = self.add_constant("unpack", struct.Struct(layout).iter_unpack), self.format_element(items)
        numbers = f"{', '.join(targets)},"
        source = f"{unpack}(data[{start}:{end}])"
        self.line(
            f"{self.names[op.path]} = "
            + self.format_list(source if element == f"({numbers})" else f"[{element} for {numbers} in {source}]")
        )
        self.position = BodyPosition(end, 0)

    def _emit_element_loop(self, op: Repeat, items: ShownList | None) -> None:
        """Read a list of any elements; each takes at least a byte, so there are never more rounds than bytes."""
        position, list_name, line = self.new_variable(), self.names[op.path], self.line
        line(f"{position} = {self.position}")
        line(f"{list_name} = []")
        line(f"for _ in range({self.format_value(op.count)}):")
        with line.indent():
            self.position = BodyPosition(position, 0)
            self.emit_zeros(op.ops)
            self.emit_operations(op.ops)
            if items is not None:
                line(f"{list_name}.append({self.format_element(items)})")
            line(f"{position} = {self.position}")
        line(f"{list_name} = {self.format_list(list_name)}")
        self.position = BodyPosition(position, 0)

    def format_list(self, source: str) -> str:
        """Return the source of a list of what an expression yields."""
        return source if source.startswith("[") or source.isidentifier() else f"list({source})"

    def format_element(self, items: ShownList) -> str:
        """Return the source of one element of a list."""
        return self.format_shown(items.element)

    def _emit_raise_if(self, test: str, error: str) -> None:
        self.line(f"if {test}: raise {error}")

    # -- values ------------------------------------------------------------------------------------------------------

    def format_dictionary(self, members: tuple[ShownMember, ...]) -> str:
        """Return the source of a dictionary of unconditional members.

        Raises:
            UnlowerableError: one of them may be absent.
        """
        if any(member.test is not None for member in members):
            raise Unlowerable(members[0].name, "what is inside of each other is there as a whole")
        return "{" + ", ".join(f"{member.name!r}: {self.format_shown(member.value)}" for member in members) + "}"

    def format_shown(self, value: ShownValue | ArgumentNumber) -> str:
        """Return the source of a value as `dump` shows it."""
        match value:
            case ShownNumber(path=path) | ShownList(path=path):
                return self.names[path]
            case ShownEnum(path=path, names=names):
                return f"{self.add_constant('names', dict(names))}.get({self.names[path]}, {self.names[path]})"
            case ShownBytes(path=path, leaf=leaf):
                name = self.names[path]
                return name if path in self.decoded_paths else self.format_leaf(leaf, name)
            case ShownGroup(members=members):
                return self.format_dictionary(members)
            case ShownTitle(parts=parts):
                return "None" if parts is None else "f'" + "".join(map(self._format_title_part, parts)) + "'"
            case ArgumentNumber(name=name):
                return name

    def _format_title_part(self, part: str | ShownNumber | ShownBytes | ArgumentNumber) -> str:
        return repr(part)[1:-1] if isinstance(part, str) else f"{{{self.format_shown(part)}}}"

    def format_leaf(self, leaf: LeafFormat | None, data: str) -> str:
        """Return the source of bytes as their leaf format shows them."""
        if leaf is not None and leaf.decode is None:
            raise Unlowerable(data, "only compiled code writes it")
        return data if leaf is None else f"{self.add_constant('leaf', leaf.decode)}({data})"
