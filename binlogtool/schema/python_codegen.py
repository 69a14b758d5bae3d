"""Generate the source text of the Python walk.

Neighbouring fixed fields are read by one `struct` unpack, bounds are checked once for all operations of a bounded
run, and
scalars in their common encodings (`fields.ScalarForm`) are decoded inline. Rare cases (an odd encoding, the last
bytes
before the end, anything bad) leave the loop by `break` for the interpreter.
"""

from __future__ import annotations

import struct
from collections.abc import Mapping
from typing import Any

from binlogtool.formats.fields import Form, Shape
from binlogtool.schema.expressions import I64_MAX, PYTHON, Expr, Ref, test_source, value_source
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
    has_checksum,
    least_size,
    used_paths,
    walk,
)
from binlogtool.schema.python_pieces import (
    Pure,
    Static,
    code_bytes,
    code_of,
    greatest,
    is_ordered,
    range_test,
    set_inside,
    stretch_of,
)
from binlogtool.schema.source_text import Lines, variable_names


def walk_source(program: Program, columns: tuple[str, ...], spans: bool) -> tuple[str, dict[str, Any]]:
    """Return the text of a function `walk` and the globals that it needs."""
    return _Writer(program, columns, spans).write()


def keeps_verdicts(program: Program) -> bool:
    """Return True if the checksum verdict can differ from frame to frame; then the walk fills a column for it."""
    checks = [op for op in walk(program.ops) if isinstance(op, Verify)]
    return any(op.absent is not None or op not in program.ops for op in checks)


def flat_records(program: Program) -> list[Record]:
    """Return the records without declared forms: their kernel writes into a flat list, whose slices are the columns."""
    return [op for op in walk(program.ops) if isinstance(op, Record) and not op.kernel.shapes]


def constant_verdict(program: Program) -> int:
    """Return the checksum verdict of all frames, where it cannot differ."""
    return int(has_checksum(program.ops))


class _Writer:
    def __init__(self, program: Program, columns: tuple[str, ...], spans: bool) -> None:
        self.program, self.columns, self.spans = program, columns, spans
        self.names = variable_names(program.variables)
        self.records = flat_records(program)
        from_records = {path for op in self.records for path in op.columns}
        self.stored = [path for path in columns if path not in from_records]
        self.computed_with = used_paths(program.ops)
        self.used = {*self.computed_with, *self.stored}
        self.verdicts = keeps_verdicts(program)
        checks = [op for op in walk(program.ops) if isinstance(op, Verify)]
        self.one_check = len(checks) == 1 and checks[0] in program.ops
        self.lines = Lines()
        self.globals: dict[str, Any] = {}
        self.positions: list[str] = []

    def write(self) -> tuple[str, dict[str, Any]]:
        line = self.lines
        lists = ["end", *(["offset", "span"] if self.spans else []), *(["verdict"] if self.verdicts else [])]
        lists += [f"c{i}" for i in range(len(self.stored))]
        line("def walk(buf, view, starts, ends, span, count, p, room, columns, records):")
        with line.indented():
            line("ends_found = columns[0]")
            for i, name in enumerate(lists):
                line(f"put_{name} = columns[{i}].append")
            for i in range(len(self.records)):
                line(f"r{i} = records[{i}]")
            line("while span < count:")
            with line.indented():
                self._span()
            line("return span, p")
        return self.lines.text(), self.globals

    def _span(self) -> None:
        line = self.lines
        line("limit = ends[span]")
        for i, record in enumerate(self.records):
            line(f"del r{i}[len(ends_found) * {len(record.columns)}:]")
            line(f"at{i} = len(r{i})")
        line("for _ in range(room - len(ends_found)):")
        with line.indented():
            self._frame()
        line("else:")
        with line.indented():
            line("o = p")
        line("if o != limit: return span, o")
        line("span += 1")
        line("if span < count: p = starts[span]")

    def _frame(self) -> None:
        line = self.lines
        line("o = p")
        if not sum(map(greatest, stretch_of(self.program.ops))):
            line("if p >= limit: break")
        self._defaults()
        for i, record in enumerate(self.records):
            self.globals[f"ZEROS{i}"] = [0] * len(record.columns)
            line(f"r{i} += ZEROS{i}")
        if self.verdicts and not self.one_check:
            line("ok = 0")
        self._ops(self.program.ops)
        if not least_size(self.program.ops):
            line("if p == o: break")
        line("put_end(p)")
        if self.spans:
            line("put_offset(o); put_span(span)")
        if self.verdicts:
            line("put_verdict(ok)")
        for i, path in enumerate(self.stored):
            line(f"put_c{i}({self.names[path]})")
        for i, record in enumerate(self.records):
            line(f"at{i} += {len(record.columns)}")

    def _defaults(self) -> None:
        """Set the variables of cases that may not be taken to 0."""
        inner = {path for op in walk(self.program.ops) if isinstance(op, Choose) for path in set_inside(op)}
        for path in sorted(inner & self.used):
            self.lines(f"{self.names[path]} = 0")

    def _ops(self, ops: tuple[Op, ...]) -> None:
        index = 0
        while index < len(ops):
            stretch = list(stretch_of(ops[index:]))
            if stretch:
                self._stretch(stretch)
                index += len(stretch)
            else:
                self._dynamic(ops[index])
                index += 1

    def _stretch(self, ops: list[Op]) -> None:
        """Emit operations of bounded size: one bounds check for all, then runs that each end at a field with known
        forms.
        """
        left = sum(map(greatest, ops))
        if left:
            self.lines(f"if limit - p < {left}: break")
        run: list[Static | Pure] = []
        for op in ops:
            left -= greatest(op)
            if isinstance(op, Scalar | Record):
                self._run(run, tag="t")
                self._speculate(op, left)
                run = []
            else:
                run.append(op)  # type: ignore[arg-type]
        self._run(run, tag=None)

    def _speculate(self, op: Scalar | Record, left: int) -> None:
        if isinstance(op, Scalar):
            self._scalar(op, left)
        else:
            self._shaped(op, left)

    def _run(self, run: list[Static | Pure], tag: str | None) -> None:
        """Emit fixed fields as one unpack; computations come after it, with the position that they had in between."""
        pieces: list[tuple[int, str, str, bool]] = []
        after: list[tuple[Pure | Literal | Load, int]] = []
        offset = 0
        for op in run:
            if isinstance(op, Load) and op.path in self.used:
                pieces.append((offset, self.names[op.path], code_of(op), op.big))
                after += [(op, offset)] if code_of(op).endswith("s") else []
            elif isinstance(op, Literal):
                pieces.append((offset, f"s{offset}", f"{len(op.value)}s", False))
                after.append((op, offset))
            elif isinstance(op, Pure):
                after.append((op, offset))
            offset += greatest(op)
        if tag:
            pieces.append((offset, tag, "B", False))
        self._unpack(pieces)
        for op, where in after:
            self._after(op, where)
        if offset:
            self.lines(f"p += {offset}")

    def _unpack(self, pieces: list[tuple[int, str, str, bool]]) -> None:
        """Emit one unpack for each row of fields of the same byte order."""
        while pieces:
            order = next((big for _, _, code, big in pieces if is_ordered(code)), False)
            fits = [is_ordered(code) and big != order for _, _, code, big in pieces]
            cut = fits.index(True) if True in fits else len(pieces)
            self._unpack_row(pieces[:cut], order)
            pieces = pieces[cut:]

    def _unpack_row(self, pieces: list[tuple[int, str, str, bool]], big: bool) -> None:
        start = pieces[0][0]
        where = f"p + {start}" if start else "p"
        if len(pieces) == 1 and pieces[0][2] == "B":
            self.lines(f"{pieces[0][1]} = buf[{where}]")
            return
        layout, offset = "", start
        for at, _, code, _ in pieces:
            layout += (f"{at - offset}x" if at > offset else "") + code
            offset = at + code_bytes(code)
        name = self._struct((">" if big else "<") + layout)
        self.lines(f"{', '.join(target for _, target, _, _ in pieces)}, = {name}(buf, {where})")

    def _struct(self, layout: str) -> str:
        name = f"unpack_{len(self.globals)}"
        for known, value in self.globals.items():
            if isinstance(value, struct.Struct) and value.format == layout:
                return known + "_from"
        self.globals[name] = struct.Struct(layout)
        self.globals[name + "_from"] = self.globals[name].unpack_from
        return name + "_from"

    def _after(self, op: Pure | Literal | Load, offset: int) -> None:
        line, names = self.lines, self.names
        match op:
            case Load(path, _, big, is_signed):
                order = "big" if big else "little"
                line(f"{names[path]} = int.from_bytes({names[path]}, {order!r}, signed={is_signed or op.width == 8})")
            case Literal(_, value):
                line(f"if s{offset} != {value!r}: break")
            case OneOf(path, (value,)):
                line(f"if {names[path]} != {value}: break")
            case OneOf(path, values):
                line(f"if {names[path]} not in {values!r}: break")
            case Require(_, test):
                line(f"if not ({self._test(test)}): break")
            case Let(path, value):
                line(f"{names[path]} = {self._value(value)}")
            case Position(path):
                self.positions.append(path)
                if path in self.used:
                    line(f"{names[path]} = p + {offset}" if offset else f"{names[path]} = p")

    def _scalar(self, op: Scalar, left: int) -> None:
        """Emit a scalar with known forms, whose first byte is in `t`.

        Args:
            left: Bytes that the bounded run still needs after it.
        """
        line, target = self.lines, self.names[op.path] if op.path in self.used else None
        for index, form in enumerate(op.kernel.forms):
            line(f"{'el' if index else ''}if {range_test(form)}:")
            with line.indented():
                self._form(form, target)
        line("else:")
        with line.indented():
            self._call(op)
            if left:
                line(f"if limit - p < {left}: break")

    def _shaped(self, op: Record, left: int) -> None:
        """Emit a record with known forms, whose first byte is in `t`."""
        line, targets = self.lines, dict(zip(op.kernel.columns, op.columns, strict=True))
        line("q = -1")
        for index, shape in enumerate(op.kernel.shapes):
            line(f"{'el' if index else ''}if {range_test(shape)}:")
            with line.indented():
                self._shape(shape, targets)
        line("if q < 0:")
        with line.indented():
            number = len(self.globals)
            self.globals[f"record{number}"] = op.kernel.read
            line(f"scratch = [0] * {len(op.columns)}")
            line(f"q = record{number}(buf, p, limit, {op.kernel.table!r}, scratch, 0)")
            line(f"if not p <= q <= limit - {left}: break")
            for i, path in enumerate(op.columns):
                if path in self.used:
                    line(f"{self.names[path]} = {PYTHON.wrap.format(f'scratch[{i}]')}")
        line("p = q")

    def _shape(self, shape: Shape, targets: Mapping[str, str]) -> None:
        line = self.lines
        values, tests = [], []
        for index, item in enumerate(shape.items):
            if isinstance(item, str):
                values.append(self.names[targets[item]])
            else:
                values.append(f"s{index}")
                tests.append(f"s{index} == {item!r}")
        layout = shape.layout.replace("Q", "q")
        line(f"{', '.join(values)}, = {self._struct(layout)}(buf, p)")
        line(f"if {' and '.join(tests) or 'True'}:")
        with line.indented():
            line(f"q = p + {shape.size}")
            for name, value in shape.fixed:
                if targets[name] in self.used:
                    line(f"{self.names[targets[name]]} = {value}")

    def _form(self, form: Form, target: str | None) -> None:
        if target and form.layout is not None:
            self.lines(f"{target}, = {self._struct(form.layout.replace('Q', 'q'))}(buf, p + 1)")
        elif target:
            self.lines(f"{target} = t - {form.base}" if form.base else f"{target} = t")
        self.lines(f"p += {form.size('t')}")

    def _call(self, op: Scalar) -> None:
        line, name = self.lines, self.names[op.path]
        kernel = f"read_{name}"
        self.globals[kernel] = op.kernel.read
        line(f"{name}, q = {kernel}(buf, p, limit)")
        line("if not p <= q <= limit: break")
        line("p = q")
        line(f"if not {-I64_MAX - 1} <= {name} <= {I64_MAX}: {name} = {PYTHON.wrap.format(name)}")

    def _dynamic(self, op: Op) -> None:
        match op:
            case Scalar():
                self._call(op)
            case Skip(_, length):
                self._skip(length)
            case Record():
                self._record(op)
            case Verify():
                self._verify(op)
            case Choose():
                self._choose(op)

    def _skip(self, length: Expr) -> None:
        line, size = self.lines, self._value(length)
        if length.lo >= 0 and length.hi <= I64_MAX:
            line(f"p += {size}")
            line("if p > limit: break")
            return
        if not isinstance(length, Ref):
            line(f"n = {size}")
            size = "n"
        line(f"if {size} < 0: break")
        line(f"p += {size}")
        line("if p > limit: break")

    def _record(self, op: Record) -> None:
        index = self.records.index(op)
        self.globals[f"record{index}"], self.globals[f"TABLE{index}"] = op.kernel.read, op.kernel.table
        line = self.lines
        line(f"q = record{index}(buf, p, limit, TABLE{index}, r{index}, at{index})")
        line("if not p <= q <= limit: break")
        line("p = q")
        for i, path in enumerate(op.columns):
            if path in self.computed_with:
                line(f"{self.names[path]} = {PYTHON.wrap.format(f'r{index}[at{index} + {i}]')}")

    def _verify(self, op: Verify) -> None:
        line, start, end = self.lines, self._value(op.start), self._value(op.end)
        if not self._in_order(op.start, op.end):
            line(f"if not o <= {start} <= {end} <= limit: break")
        kernel = f"crc_{op.checksum.poly:x}"
        self.globals[kernel] = op.checksum.kernel
        right = f"{self._value(op.stored)} ^ {op.checksum.final}" if op.checksum.final else self._value(op.stored)
        arguments = f"view[{start}:{end}]" + (f", {op.checksum.start}" if op.checksum.start else "")
        line(f"if {kernel}({arguments}) == {right}:")
        with line.indented():
            line("pass" if not self.verdicts else "ok = 1" if self.one_check else "if ok < 1: ok = 1")
        if op.absent is not None:
            line(f"elif {self._value(op.stored)} == {op.absent}: ok = 2")
        line("else: break")

    def _in_order(self, start: Expr, end: Expr) -> bool:
        """Return True if both are positions that the walk has passed, in this order; then they need no check."""
        paths = [side.path for side in (start, end) if isinstance(side, Ref) and side.path in self.positions]
        return len(paths) == 2 and self.positions.index(paths[0]) <= self.positions.index(paths[1])

    def _choose(self, op: Choose) -> None:
        line, before = self.lines, list(self.positions)
        for index, (test, branch) in enumerate(op.arms):
            line(f"{'el' if index else ''}if {self._test(test)}:")
            self._branch(branch)
            self.positions = list(before)
        line("else:")
        self._branch(op.other)
        self.positions = before

    def _branch(self, ops: tuple[Op, ...]) -> None:
        with self.lines.indented():
            self._ops(ops)
            self.lines("pass")

    def _value(self, expr: Expr) -> str:
        return value_source(expr, self.names, PYTHON)

    def _test(self, expr: Expr) -> str:
        return test_source(expr, self.names, PYTHON)
