"""Generate the source text of a walk: framing and checksum in one pass over machine integers.

`c_codegen` turns the text into C, where arrays are addresses; `python_backend` runs it as Python.

Before every load, a test ensures that it ends before `limit`; sizes are compared as `size > limit - p`, which cannot
overflow because both positions are inside the buffer. A failed test leaves the loop by `break`: `o` is then the start
of the doubtful frame.
"""

from __future__ import annotations

import struct

from binlogtool.format_api.layout import Checksum
from binlogtool.format_api.schema_fields import ScalarForm
from binlogtool.schema.native_library import KernelNames
from binlogtool.schema.program import (
    MACHINE,
    Assign,
    AssignPosition,
    ChooseCase,
    ExpectBytes,
    Expr,
    LoadInteger,
    Num,
    Op,
    Program,
    ReadRecord,
    ReadScalar,
    Require,
    RequireOneOf,
    SkipBytes,
    SourceLines,
    VerifyChecksum,
    compute_min_size,
    find_used_paths,
    format_test_source,
    format_value_source,
    get_fixed_size,
    has_checksum,
    iter_operations,
    list_defined_paths,
    make_variable_names,
    wrap_int64,
)


def generate_walk(program: Program, columns: tuple[str, ...], kernels: KernelNames) -> str:
    """Return the text of the function `walk`, preceded by the tables that it uses; see `backends` for its arguments.

    Args:
        kernels: Collector of the kernels that the text calls.
    """
    return _WalkWriter(program, columns, kernels).write()


def compute_scratch_size(program: Program) -> int:
    """Return the number of integers that the record kernels write per frame."""
    return sum(len(op.columns) for op in iter_operations(program.ops) if isinstance(op, ReadRecord))


def find_checksums(program: Program) -> dict[int, Checksum]:
    """Return polynomial -> a checksum with it, in the order in which `walk` takes their tables."""
    return {op.checksum.poly: op.checksum for op in iter_operations(program.ops) if isinstance(op, VerifyChecksum)}


class _WalkWriter:
    def __init__(self, program: Program, columns: tuple[str, ...], kernels: KernelNames) -> None:
        self.program, self.columns = program, columns
        self.names = make_variable_names(program.variables)
        self.used = {*find_used_paths(program.ops), *columns}
        self.polynomials = list(find_checksums(program))
        self.kernels = kernels
        self.tables: list[str] = []
        self.scratch = 0
        self.lines = SourceLines()

    def write(self) -> str:
        line = self.lines
        line("def walk(base, starts, ends, span, count, p, k, room, out, stride, notes, tables):")
        with line.indent():
            for index in range(len(self.polynomials)):
                line(f"table{index} = tables[{index}]")
            line("o = p")
            line("while span < count:")
            with line.indent():
                self._emit_span()
            line("return k, span, o")
        return "\n".join([*self.tables, self.lines.join()])

    def _emit_span(self) -> None:
        line = self.lines
        line("limit = ends[span]")
        line("while p < limit and k < room:")
        with line.indent():
            self._emit_frame()
        line("if o != limit:")
        with line.indent():
            line("return k, span, o")
        line("span += 1")
        line("if span < count:")
        with line.indent():
            line("p = starts[span]")
            line("o = p")

    def _emit_frame(self) -> None:
        line = self.lines
        inner = {path for op in self.program.ops if isinstance(op, ChooseCase) for path in _find_case_variables(op)}
        for path in sorted(inner & self.used):
            line(f"{self.names[path]} = int64(0)")
        if has_checksum(self.program.ops):
            line("ok = int64(0)")
        self._emit_operations(self.program.ops)
        if not compute_min_size(self.program.ops):
            self._emit_stop_if("p == o")
        verdict = "ok" if has_checksum(self.program.ops) else "0"
        for row, value in enumerate(("p", "o", "span", verdict, *(self.names[path] for path in self.columns))):
            line(f"out[{row} * stride + k] = {value}")
        line("k += 1")
        line("o = p")

    def _emit_stop_if(self, test: str) -> None:
        self.lines(f"if {test}:")
        with self.lines.indent():
            self.lines("break")

    def _emit_operations(self, ops: tuple[Op, ...]) -> None:
        index = 0
        while index < len(ops):
            fixed = 0
            while index + fixed < len(ops) and get_fixed_size(ops[index + fixed]):
                fixed += 1
            if fixed:
                self._emit_fixed_run(ops[index : index + fixed])
            else:
                self._emit_operation(ops[index])
            index += fixed or 1

    def _emit_fixed_run(self, ops: tuple[Op, ...]) -> None:
        """Emit neighbouring fields of constant size after one bounds check."""
        self._emit_stop_if(f"limit - p < {sum(get_fixed_size(op) or 0 for op in ops)}")
        offset = 0
        for op in ops:
            if isinstance(op, LoadInteger) and op.path in self.used:
                self.lines(f"{self.names[op.path]} = {format_load(op, f'base + p + {offset}')}")
            elif isinstance(op, ExpectBytes):
                self._emit_literal(op.value, offset)
            offset += get_fixed_size(op) or 0
        self.lines(f"p += {offset}")

    def _emit_literal(self, value: bytes, offset: int) -> None:
        self._emit_stop_if(f"not ({_format_bytes_test(value, f'base + p + {offset}')})")

    def _emit_operation(self, op: Op) -> None:
        match op:
            case SkipBytes(_, length):
                self._emit_skip(length)
            case RequireOneOf(path, values):
                tests = [f"{self.names[path]} != {format_value_source(Num(value), {}, MACHINE)}" for value in values]
                self._emit_stop_if(" and ".join(tests) or "True")
            case Require(_, test):
                self._emit_stop_if(f"not ({format_test_source(test, self.names, MACHINE)})")
            case Assign(path, value):
                self.lines(f"{self.names[path]} = int64({self._format_value(value)})")
            case AssignPosition(path):
                self.lines(f"{self.names[path]} = p")
            case ReadScalar():
                self._emit_scalar(op)
            case ReadRecord():
                self._emit_record(op)
            case VerifyChecksum():
                self._emit_verify(op)
            case ChooseCase():
                self._emit_choice(op)

    def _emit_skip(self, length: Expr) -> None:
        if isinstance(length, Num):
            return
        self.lines(f"n = {self._format_value(length)}")
        self._emit_stop_if("n < 0 or n > limit - p")
        self.lines("p += n")

    def _emit_advance(self) -> None:
        self._emit_stop_if("q < p or q > limit")
        self.lines("p = q")

    def _emit_scalar(self, op: ReadScalar) -> None:
        """Emit the declared forms inline, which is faster than a kernel that has to handle all forms."""
        line, target = self.lines, self.names[op.path]
        line("t = load_u1(base + p) if p < limit else -1")
        for index, form in enumerate(op.kernel.forms):
            line(
                f"{'el' if index else ''}if {form.first} <= t <= {form.last} and limit - p >= "
                f"{form.size_expression('t')}:"
            )
            with line.indent():
                line(f"{target} = {format_scalar_form(form, 'base + p')}")
                line(f"p += {form.size_expression('t')}")
        line("else:" if op.kernel.forms else "if True:")
        with line.indent():
            line(f"value, q = {self.kernels.add(op.kernel.read)}({op.kernel.format_arguments('base', 'p', 'limit')})")
            self._emit_advance()
            line(f"{target} = int64(value)")

    def _emit_record(self, op: ReadRecord) -> None:
        line, name, at = self.lines, f"TABLE{len(self.tables)}", self.scratch
        self.tables.append(f"{name} = {list(op.kernel.table)!r}")
        self.scratch += len(op.columns)
        line(f"q = {self.kernels.add(op.kernel.read)}(base, p, limit, {name}, notes, {at})")
        self._emit_advance()
        for i, path in enumerate(op.columns):
            if path in self.used:
                line(f"{self.names[path]} = int64(notes[{at + i}])")

    def _emit_verify(self, op: VerifyChecksum) -> None:
        line, index = self.lines, self.polynomials.index(op.checksum.poly)
        line(f"a = {self._format_value(op.start)}")
        line(f"z = {self._format_value(op.end)}")
        self._emit_stop_if("a < o or z < a or z > limit")
        call = f"crc_run(table{index}, base + a, z - a, {op.checksum.init})"
        line(f"if {call} == {self._format_value(op.stored)} ^ {op.checksum.xorout}:")
        with line.indent():
            line("if ok == 0:")
            with line.indent():
                line("ok = int64(1)")
        if op.absent is not None:
            line(f"elif {self._format_value(op.stored)} == {format_value_source(Num(op.absent), {}, MACHINE)}:")
            with line.indent():
                line("ok = int64(2)")
        line("else:")
        with line.indent():
            line("break")

    def _emit_choice(self, op: ChooseCase) -> None:
        line = self.lines
        for index, (test, branch) in enumerate(op.arms):
            line(f"{'el' if index else ''}if {format_test_source(test, self.names, MACHINE)}:")
            self._emit_branch(branch)
        line("else:")
        self._emit_branch(op.other)

    def _emit_branch(self, ops: tuple[Op, ...]) -> None:
        with self.lines.indent():
            self._emit_operations(ops)
            self.lines("pass")

    def _format_value(self, expr: Expr) -> str:
        return format_value_source(expr, self.names, MACHINE)


def format_load(op: LoadInteger, where: str) -> str:
    """Return the source that loads an integer of any width."""
    if op.width in (1, 2, 4, 8):
        return _format_load_call(op.width, op.big, op.signed, where)
    places = range(op.width)[::-1] if op.big else range(op.width)
    value = " | ".join(f"load_u1({where} + {i}) << {8 * shift}" for shift, i in enumerate(places))
    unused = 64 - 8 * op.width
    return f"int64(({value}) << {unused}) >> {unused}" if op.signed else value


def _format_load_call(width: int, big: bool, signed: bool, where: str) -> str:
    sign = "i" if signed or width == 8 else "u"
    order = "" if width == 1 else "_big" if big else "_little"
    return f"load_{sign}{width}{order}({where})"


def _format_coded_load(layout: str, where: str) -> str:
    """Return the source that loads a number with one `struct` code."""
    code = layout[1]
    return _format_load_call(struct.calcsize(layout), layout[0] == ">", code.islower(), where)


def _format_bytes_test(value: bytes, where: str) -> str:
    """Return the source that compares bytes with a few wide loads."""
    tests, offset = [], 0
    while offset < len(value):
        width = next(w for w in (8, 4, 2, 1) if w <= len(value) - offset)
        number = wrap_int64(int.from_bytes(value[offset : offset + width], "little"))
        source = format_value_source(Num(number), {}, MACHINE)
        tests.append(f"{_format_load_call(width, False, False, f'{where} + {offset}')} == {source}")
        offset += width
    return " and ".join(tests) or "True"


def format_scalar_form(form: ScalarForm, where: str) -> str:
    """Return the source of a scalar in one of its forms, whose first byte is in `t`."""
    if form.layout is None:
        return f"t - {form.base}"
    return _format_coded_load(form.layout, f"{where} + 1")


def _find_case_variables(op: ChooseCase) -> set[str]:
    return {path for each in iter_operations((op,)) for path in list_defined_paths(each)}
