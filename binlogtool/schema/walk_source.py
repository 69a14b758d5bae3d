"""Generate the source text of the native walk: framing and checksum in one pass over machine integers.

The text is Python that `c_emitter` turns into C; it never runs as Python. Arrays are addresses.

Every load is proven to be before `limit` first; sizes are compared as `size > limit - p`, which cannot overflow
because
both positions are inside the buffer. Any doubt leaves the loop by `break`: `o` is then the frame that is not good.
"""

from __future__ import annotations

import struct
from collections.abc import Mapping

from binlogtool.formats.fields import Form, Shape
from binlogtool.schema.expressions import MACHINE, Expr, Num, signed, test_source, value_source
from binlogtool.schema.identity import KernelNames
from binlogtool.schema.operations import (
    Choose,
    Let,
    Literal,
    Load,
    OneOf,
    Op,
    Position,
    Program,
    Record,
    Require,
    Scalar,
    Skip,
    Verify,
    defined_paths,
    has_checksum,
    least_size,
    size_of,
    used_paths,
    walk,
)
from binlogtool.schema.source_text import Lines, variable_names

END, OFFSET, SPAN, VERDICT, FIRST = range(5)
"""Rows of the output matrix; the columns that were asked for follow."""


def walk_text(program: Program, columns: tuple[str, ...], kernels: KernelNames) -> str:
    """Return the function `walk`, after the tables that it uses; see `native_backend` for its arguments.

    Args:
        kernels: Collects the kernels that the text calls.
    """
    return _Writer(program, columns, kernels).write()


def scratch_size(program: Program) -> int:
    """Return the number of integers that the record kernels write per frame."""
    return sum(len(op.columns) for op in walk(program.ops) if isinstance(op, Record))


def polynomials(program: Program) -> list[int]:
    """Return the polynomials of all checksums, in the order in which `walk` takes their tables."""
    return list(dict.fromkeys(op.checksum.poly for op in walk(program.ops) if isinstance(op, Verify)))


class _Writer:
    def __init__(self, program: Program, columns: tuple[str, ...], kernels: KernelNames) -> None:
        self.program, self.columns = program, columns
        self.names = variable_names(program.variables)
        self.used = {*used_paths(program.ops), *columns}
        self.polynomials = polynomials(program)
        self.kernels = kernels
        self.tables: list[str] = []
        self.scratch = 0
        self.lines = Lines()

    def write(self) -> str:
        line = self.lines
        line("def walk(base, starts, ends, span, count, p, k, room, out, stride, notes, tables):")
        with line.indented():
            for index in range(len(self.polynomials)):
                line(f"table{index} = tables[{index}]")
            line("o = p")
            line("while span < count:")
            with line.indented():
                self._span()
            line("return k, span, o")
        return "\n".join([*self.tables, self.lines.text()])

    def _span(self) -> None:
        line = self.lines
        line("limit = ends[span]")
        line("while p < limit and k < room:")
        with line.indented():
            self._frame()
        line("if o != limit:")
        with line.indented():
            line("return k, span, o")
        line("span += 1")
        line("if span < count:")
        with line.indented():
            line("p = starts[span]")
            line("o = p")

    def _frame(self) -> None:
        line = self.lines
        inner = {path for op in self.program.ops if isinstance(op, Choose) for path in _set_inside(op)}
        for path in sorted(inner & self.used):
            line(f"{self.names[path]} = int64(0)")
        if has_checksum(self.program.ops):
            line("ok = int64(0)")
        self._ops(self.program.ops)
        if not least_size(self.program.ops):
            self._stop_if("p == o")
        verdict = "ok" if has_checksum(self.program.ops) else "0"
        for row, value in enumerate(("p", "o", "span", verdict, *(self.names[path] for path in self.columns))):
            line(f"out[{row} * stride + k] = {value}")
        line("k += 1")
        line("o = p")

    def _stop_if(self, test: str) -> None:
        self.lines(f"if {test}:")
        with self.lines.indented():
            self.lines("break")

    def _ops(self, ops: tuple[Op, ...]) -> None:
        index = 0
        while index < len(ops):
            fixed = 0
            while index + fixed < len(ops) and size_of(ops[index + fixed]):
                fixed += 1
            if fixed:
                self._fixed(ops[index : index + fixed])
            else:
                self._op(ops[index])
            index += fixed or 1

    def _fixed(self, ops: tuple[Op, ...]) -> None:
        """Emit neighbouring fields of constant size after one bounds check."""
        self._stop_if(f"limit - p < {sum(size_of(op) or 0 for op in ops)}")
        offset = 0
        for op in ops:
            if isinstance(op, Load) and op.path in self.used:
                self.lines(f"{self.names[op.path]} = {load_source(op, f'base + p + {offset}')}")
            elif isinstance(op, Literal):
                self._literal(op.value, offset)
            offset += size_of(op) or 0
        self.lines(f"p += {offset}")

    def _literal(self, value: bytes, offset: int) -> None:
        self._stop_if(f"not ({_equals_source(value, f'base + p + {offset}')})")

    def _op(self, op: Op) -> None:
        match op:
            case Skip(_, length):
                self._skip(length)
            case OneOf(path, values):
                tests = [f"{self.names[path]} != {value_source(Num(value), {}, MACHINE)}" for value in values]
                self._stop_if(" and ".join(tests) or "True")
            case Require(_, test):
                self._stop_if(f"not ({test_source(test, self.names, MACHINE)})")
            case Let(path, value):
                self.lines(f"{self.names[path]} = int64({self._value(value)})")
            case Position(path):
                self.lines(f"{self.names[path]} = p")
            case Scalar():
                self._scalar(op)
            case Record():
                self._record(op)
            case Verify():
                self._verify(op)
            case Choose():
                self._choose(op)

    def _skip(self, length: Expr) -> None:
        if isinstance(length, Num):
            return
        self.lines(f"n = {self._value(length)}")
        self._stop_if("n < 0 or n > limit - p")
        self.lines("p += n")

    def _advance(self) -> None:
        self._stop_if("q < p or q > limit")
        self.lines("p = q")

    def _scalar(self, op: Scalar) -> None:
        """Emit the declared forms inline, which is faster than a kernel that has to handle all forms."""
        line, target = self.lines, self.names[op.path]
        line("t = load_u1(base + p) if p < limit else -1")
        for index, form in enumerate(op.kernel.forms):
            line(f"{'el' if index else ''}if {form.first} <= t <= {form.last} and limit - p >= {form.size('t')}:")
            with line.indented():
                line(f"{target} = {form_source(form, 'base + p')}")
                line(f"p += {form.size('t')}")
        line("else:" if op.kernel.forms else "if True:")
        with line.indented():
            line(f"value, q = {self.kernels.add(op.kernel.read)}(base, p, limit)")
            self._advance()
            line(f"{target} = int64(value)")

    def _record(self, op: Record) -> None:
        line, name, at = self.lines, f"TABLE{len(self.tables)}", self.scratch
        self.tables.append(f"{name} = {list(op.kernel.table)!r}")
        self.scratch += len(op.columns)
        if op.kernel.shapes:
            line("t = load_u1(base + p) if p < limit else -1")
        for index, shape in enumerate(op.kernel.shapes):
            line(f"{'el' if index else ''}if {' and '.join(_shape_tests(shape))}:")
            with line.indented():
                self._shape(shape, dict(zip(op.kernel.columns, op.columns, strict=True)))
        line("else:" if op.kernel.shapes else "if True:")
        with line.indented():
            line(f"q = {self.kernels.add(op.kernel.read)}(base, p, limit, {name}, notes, {at})")
            self._advance()
            for i, path in enumerate(op.columns):
                if path in self.used:
                    line(f"{self.names[path]} = load_i8_native(notes + {8 * (at + i)})")

    def _shape(self, shape: Shape, paths: Mapping[str, str]) -> None:
        for item, code, offset in shape.places():
            if isinstance(item, str) and paths[item] in self.used:
                value = _coded_source(shape.layout[0] + code, f"base + p + {offset}")
                self.lines(f"{self.names[paths[item]]} = {value}")
        for name, number in shape.fixed:
            if paths[name] in self.used:
                self.lines(f"{self.names[paths[name]]} = int64({number})")
        self.lines(f"p += {shape.size}")

    def _verify(self, op: Verify) -> None:
        line, index = self.lines, self.polynomials.index(op.checksum.poly)
        line(f"a = {self._value(op.start)}")
        line(f"z = {self._value(op.end)}")
        self._stop_if("a < o or z < a or z > limit")
        call = f"crc_run(table{index}, base + a, z - a, {op.checksum.init})"
        line(f"if {call} == {self._value(op.stored)} ^ {op.checksum.xorout}:")
        with line.indented():
            line("if ok == 0:")
            with line.indented():
                line("ok = int64(1)")
        if op.absent is not None:
            line(f"elif {self._value(op.stored)} == {value_source(Num(op.absent), {}, MACHINE)}:")
            with line.indented():
                line("ok = int64(2)")
        line("else:")
        with line.indented():
            line("break")

    def _choose(self, op: Choose) -> None:
        line = self.lines
        for index, (test, branch) in enumerate(op.arms):
            line(f"{'el' if index else ''}if {test_source(test, self.names, MACHINE)}:")
            self._branch(branch)
        line("else:")
        self._branch(op.other)

    def _branch(self, ops: tuple[Op, ...]) -> None:
        with self.lines.indented():
            self._ops(ops)
            self.lines("pass")

    def _value(self, expr: Expr) -> str:
        return value_source(expr, self.names, MACHINE)


def load_source(op: Load, where: str) -> str:
    """Return the source that loads an integer of any width."""
    if op.width in (1, 2, 4, 8):
        return _load_call(op.width, op.big, op.signed, where)
    places = range(op.width)[::-1] if op.big else range(op.width)
    value = " | ".join(f"load_u1({where} + {i}) << {8 * shift}" for shift, i in enumerate(places))
    unused = 64 - 8 * op.width
    return f"(({value}) << {unused}) >> {unused}" if op.signed else value


def _load_call(width: int, big: bool, signed: bool, where: str) -> str:
    sign = "i" if signed or width == 8 else "u"
    order = "" if width == 1 else "_big" if big else "_little"
    return f"load_{sign}{width}{order}({where})"


def _coded_source(layout: str, where: str) -> str:
    """Return the source that loads what one `struct` code means."""
    code = layout[1]
    return _load_call(struct.calcsize(layout), layout[0] == ">", code.islower(), where)


def _equals_source(value: bytes, where: str) -> str:
    """Return the source that compares bytes by a few wide loads."""
    tests, offset = [], 0
    while offset < len(value):
        width = next(w for w in (8, 4, 2, 1) if w <= len(value) - offset)
        number = signed(int.from_bytes(value[offset : offset + width], "little"))
        source = value_source(Num(number), {}, MACHINE)
        tests.append(f"{_load_call(width, False, False, f'{where} + {offset}')} == {source}")
        offset += width
    return " and ".join(tests) or "True"


def form_source(form: Form, where: str) -> str:
    """Return the source of a scalar in one of its forms, whose first byte is in `t`."""
    if form.layout is None:
        return f"t - {form.base}"
    return _coded_source(form.layout, f"{where} + 1")


def _shape_tests(shape: Shape) -> list[str]:
    tests = [f"{shape.first} <= t <= {shape.last}", f"limit - p >= {shape.size}"]
    for item, code, offset in shape.places():
        where = f"base + p + {offset}"
        if isinstance(item, bytes):
            tests.append(_equals_source(item, where))
        elif isinstance(item, int):
            tests.append(f"{_coded_source(shape.layout[0] + code, where)} == {signed(item)}")
    return tests


def _set_inside(op: Choose) -> set[str]:
    return {path for each in walk((op,)) for path in defined_paths(each)}
