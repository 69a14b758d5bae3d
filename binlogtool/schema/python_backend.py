"""The scanner as generated Python.

Neighbouring fixed fields are read by one `struct` unpack, bounds are checked once for all operations of a bounded run,
and scalars in their common encodings (`fields.ScalarForm`) are decoded inline. Rare cases (an odd encoding, the last
bytes before the end, anything bad) leave the loop by `break` for the interpreter.
"""

from __future__ import annotations

import struct
from bisect import bisect_left
from collections.abc import Iterator, Mapping
from functools import lru_cache
from typing import Any

from binlogtool.format_api.field_types import RecordForm, ScalarForm
from binlogtool.format_api.layout import Column, ColumnTable, Kernel
from binlogtool.schema import scanner
from binlogtool.schema.compile_schema import lower_schema
from binlogtool.schema.program import (
    I64_MAX,
    I64_MIN,
    PYTHON,
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
    Ref,
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
from binlogtool.schema.scanner import WalkScanner

# --- Kinds of operations in the Python walk ---

FixedOp = LoadInteger | ExpectBytes | SkipBytes
ComputedOp = RequireOneOf | Require | Assign | AssignPosition

STRUCT_CODES = {1: "b", 2: "h", 4: "i", 8: "q"}
_CODE_SIZES = {"b": 1, "h": 2, "i": 4, "l": 4, "q": 8}


def take_bounded_run(ops: tuple[Op, ...]) -> Iterator[Op]:
    """Yield the first operations whose bounds one test can check, and the computations among them."""
    for op in ops:
        constant = isinstance(op, LoadInteger | ExpectBytes) or (
            isinstance(op, SkipBytes) and isinstance(op.length, Num)
        )
        if not constant and not isinstance(op, ComputedOp) and not is_speculative(op):
            return
        yield op


def is_speculative(op: Op) -> bool:
    """Return True if the kernel of this field declares its common encodings."""
    return (isinstance(op, ReadScalar) and bool(op.kernel.forms)) or (
        isinstance(op, ReadRecord) and bool(op.kernel.shapes)
    )


def compute_max_size(op: Op) -> int:
    """Return the most bytes that an operation of a bounded run takes (a scalar: in one of its forms)."""
    match op:
        case ReadScalar(kernel=kernel):
            return max((form.max_size for form in kernel.forms), default=0)
        case ReadRecord(kernel=kernel):
            return max((shape.size for shape in kernel.shapes), default=0)
    return get_fixed_size(op) or 0


def format_range_test(form: ScalarForm | RecordForm) -> str:
    """Return the source of the test that the first byte `t` belongs to this form."""
    if form.first == form.last:
        return f"t == {form.first}"
    return f"t <= {form.last}" if form.first == 0 else f"{form.first} <= t <= {form.last}"


def get_struct_code(op: LoadInteger) -> str:
    """Return the `struct` code of an integer; "Ns" = read as bytes."""
    code = STRUCT_CODES.get(op.width)
    if code is None:
        return f"{op.width}s"
    return code if op.signed or op.width == 8 else code.upper()


def get_code_size(code: str) -> int:
    """Return the number of bytes of a code."""
    return int(code[:-1]) if code.endswith("s") else _CODE_SIZES[code.lower()]


def has_byte_order(code: str) -> bool:
    """Return True if the byte order matters to this code."""
    return not code.endswith("s") and get_code_size(code) > 1


def find_case_variables(op: ChooseCase) -> set[str]:
    """Return the variables that the cases set."""
    return {path for each in iter_operations((op,)) for path in list_defined_paths(each)}


# --- Source text of the Python walk ---


def generate_python_walk(program: Program, columns: tuple[str, ...], spans: bool) -> tuple[str, dict[str, Any]]:
    """Return the text of a function `walk` and the globals that it needs."""
    return _PythonWalkWriter(program, columns, spans).write()


def has_verdict_column(program: Program) -> bool:
    """Return True if the checksum verdict can differ from frame to frame; then the walk fills a column for it."""
    checks = [op for op in iter_operations(program.ops) if isinstance(op, VerifyChecksum)]
    return any(op.absent is not None or op not in program.ops for op in checks)


def list_flat_records(program: Program) -> list[ReadRecord]:
    """Return the records without declared forms: their kernel writes into a flat list, whose slices are the columns."""
    return [op for op in iter_operations(program.ops) if isinstance(op, ReadRecord) and not op.kernel.shapes]


def get_constant_verdict(program: Program) -> int:
    """Return the checksum verdict of all frames, where it cannot differ."""
    return int(has_checksum(program.ops))


class _PythonWalkWriter:
    def __init__(self, program: Program, columns: tuple[str, ...], spans: bool) -> None:
        self.program, self.columns, self.spans = program, columns, spans
        self.names = make_variable_names(program.variables)
        self.records = list_flat_records(program)
        from_records = {path for op in self.records for path in op.columns}
        self.list_columns = [path for path in columns if path not in from_records]
        self.needed_paths = find_used_paths(program.ops)
        self.used = {*self.needed_paths, *self.list_columns}
        self.has_verdicts = has_verdict_column(program)
        checks = [op for op in iter_operations(program.ops) if isinstance(op, VerifyChecksum)]
        self.has_single_check = len(checks) == 1 and checks[0] in program.ops
        self.lines = SourceLines()
        self.globals: dict[str, Any] = {}
        self.positions: list[str] = []

    def write(self) -> tuple[str, dict[str, Any]]:
        line = self.lines
        lists = ["end", *(["offset", "span"] if self.spans else []), *(["verdict"] if self.has_verdicts else [])]
        lists += [f"c{i}" for i in range(len(self.list_columns))]
        line("def walk(buf, view, starts, ends, span, count, p, room, columns, records):")
        with line.indent():
            line("ends_found = columns[0]")
            for i, name in enumerate(lists):
                line(f"put_{name} = columns[{i}].append")
            for i in range(len(self.records)):
                line(f"r{i} = records[{i}]")
            line("while span < count:")
            with line.indent():
                self._emit_span()
            line("return span, p")
        return self.lines.join(), self.globals

    def _emit_span(self) -> None:
        line = self.lines
        line("limit = ends[span]")
        for i, record in enumerate(self.records):
            line(f"del r{i}[len(ends_found) * {len(record.columns)}:]")
            line(f"at{i} = len(r{i})")
        line("for _ in range(room - len(ends_found)):")
        with line.indent():
            self._emit_frame()
        line("else:")
        with line.indent():
            line("o = p")
        line("if o != limit: return span, o")
        line("span += 1")
        line("if span < count: p = starts[span]")

    def _emit_frame(self) -> None:
        line = self.lines
        line("o = p")
        if not sum(map(compute_max_size, take_bounded_run(self.program.ops))):
            line("if p >= limit: break")
        self._emit_defaults()
        for i, record in enumerate(self.records):
            self.globals[f"ZEROS{i}"] = [0] * len(record.columns)
            line(f"r{i} += ZEROS{i}")
        if self.has_verdicts and not self.has_single_check:
            line("ok = 0")
        self._emit_operations(self.program.ops)
        if not compute_min_size(self.program.ops):
            line("if p == o: break")
        line("put_end(p)")
        if self.spans:
            line("put_offset(o); put_span(span)")
        if self.has_verdicts:
            line("put_verdict(ok)")
        for i, path in enumerate(self.list_columns):
            line(f"put_c{i}({self.names[path]})")
        for i, record in enumerate(self.records):
            line(f"at{i} += {len(record.columns)}")

    def _emit_defaults(self) -> None:
        """Set the variables of cases that may not be taken to 0."""
        inner = {
            path
            for op in iter_operations(self.program.ops)
            if isinstance(op, ChooseCase)
            for path in find_case_variables(op)
        }
        for path in sorted(inner & self.used):
            self.lines(f"{self.names[path]} = 0")

    def _emit_operations(self, ops: tuple[Op, ...]) -> None:
        index = 0
        while index < len(ops):
            bounded_run = list(take_bounded_run(ops[index:]))
            if bounded_run:
                self._emit_bounded_run(bounded_run)
                index += len(bounded_run)
            else:
                self._emit_unbounded(ops[index])
                index += 1

    def _emit_bounded_run(self, ops: list[Op]) -> None:
        """Emit operations of bounded size: one bounds check for all, then runs that each end at a field with known
        forms.
        """
        left = sum(map(compute_max_size, ops))
        if left:
            self.lines(f"if limit - p < {left}: break")
        run: list[FixedOp | ComputedOp] = []
        for op in ops:
            left -= compute_max_size(op)
            if isinstance(op, ReadScalar | ReadRecord):
                self._emit_fixed_run(run, tag="t")
                self._emit_speculative(op, left)
                run = []
            else:
                run.append(op)  # type: ignore[arg-type]
        self._emit_fixed_run(run, tag=None)

    def _emit_speculative(self, op: ReadScalar | ReadRecord, left: int) -> None:
        if isinstance(op, ReadScalar):
            self._emit_scalar(op, left)
        else:
            self._emit_record_forms(op, left)

    def _emit_fixed_run(self, run: list[FixedOp | ComputedOp], tag: str | None) -> None:
        """Emit fixed fields as one unpack; computations come after it, with the position that they had in between."""
        pieces: list[tuple[int, str, str, bool]] = []
        computations: list[tuple[ComputedOp | ExpectBytes | LoadInteger, int]] = []
        offset = 0
        for op in run:
            if isinstance(op, LoadInteger) and op.path in self.used:
                pieces.append((offset, self.names[op.path], get_struct_code(op), op.big))
                computations += [(op, offset)] if get_struct_code(op).endswith("s") else []
            elif isinstance(op, ExpectBytes):
                pieces.append((offset, f"s{offset}", f"{len(op.value)}s", False))
                computations.append((op, offset))
            elif isinstance(op, ComputedOp):
                computations.append((op, offset))
            offset += compute_max_size(op)
        if tag:
            pieces.append((offset, tag, "B", False))
        self._emit_unpacks(pieces)
        for op, op_offset in computations:
            self._emit_computation(op, op_offset)
        if offset:
            self.lines(f"p += {offset}")

    def _emit_unpacks(self, pieces: list[tuple[int, str, str, bool]]) -> None:
        """Emit one unpack for each row of fields of the same byte order."""
        while pieces:
            order = next((big for _, _, code, big in pieces if has_byte_order(code)), False)
            order_changes = [has_byte_order(code) and big != order for _, _, code, big in pieces]
            split_index = order_changes.index(True) if True in order_changes else len(pieces)
            self._emit_unpack(pieces[:split_index], order)
            pieces = pieces[split_index:]

    def _emit_unpack(self, pieces: list[tuple[int, str, str, bool]], big: bool) -> None:
        start = pieces[0][0]
        where = f"p + {start}" if start else "p"
        if len(pieces) == 1 and pieces[0][2] == "B":
            self.lines(f"{pieces[0][1]} = buf[{where}]")
            return
        layout, offset = "", start
        for at, _, code, _ in pieces:
            layout += (f"{at - offset}x" if at > offset else "") + code
            offset = at + get_code_size(code)
        name = self._add_struct((">" if big else "<") + layout)
        self.lines(f"{', '.join(target for _, target, _, _ in pieces)}, = {name}(buf, {where})")

    def _add_struct(self, layout: str) -> str:
        name = f"unpack_{len(self.globals)}"
        for struct_name, value in self.globals.items():
            if isinstance(value, struct.Struct) and value.format == layout:
                return struct_name + "_from"
        self.globals[name] = struct.Struct(layout)
        self.globals[name + "_from"] = self.globals[name].unpack_from
        return name + "_from"

    def _emit_computation(self, op: ComputedOp | ExpectBytes | LoadInteger, offset: int) -> None:
        line, names = self.lines, self.names
        match op:
            case LoadInteger(path, _, big, is_signed):
                order = "big" if big else "little"
                line(f"{names[path]} = int.from_bytes({names[path]}, {order!r}, signed={is_signed or op.width == 8})")
            case ExpectBytes(_, value):
                line(f"if s{offset} != {value!r}: break")
            case RequireOneOf(path, (value,)):
                line(f"if {names[path]} != {value}: break")
            case RequireOneOf(path, values):
                line(f"if {names[path]} not in {values!r}: break")
            case Require(_, test):
                line(f"if not ({self._format_test(test)}): break")
            case Assign(path, value):
                line(f"{names[path]} = {self._format_value(value)}")
            case AssignPosition(path):
                self.positions.append(path)
                if path in self.used:
                    line(f"{names[path]} = p + {offset}" if offset else f"{names[path]} = p")

    def _emit_scalar(self, op: ReadScalar, left: int) -> None:
        """Emit a scalar with known forms, whose first byte is in `t`.

        Args:
            left: Bytes that the bounded run still needs after it.
        """
        line, target = self.lines, self.names[op.path] if op.path in self.used else None
        for index, form in enumerate(op.kernel.forms):
            line(f"{'el' if index else ''}if {format_range_test(form)}:")
            with line.indent():
                self._emit_scalar_form(form, target)
        line("else:")
        with line.indent():
            self._emit_kernel_call(op)
            if left:
                line(f"if limit - p < {left}: break")

    def _emit_record_forms(self, op: ReadRecord, left: int) -> None:
        """Emit a record with known forms, whose first byte is in `t`."""
        line, targets = self.lines, dict(zip(op.kernel.columns, op.columns, strict=True))
        line("q = -1")
        for index, shape in enumerate(op.kernel.shapes):
            line(f"{'el' if index else ''}if {format_range_test(shape)}:")
            with line.indent():
                self._emit_record_form(shape, targets)
        line("if q < 0:")
        with line.indent():
            number = len(self.globals)
            self.globals[f"record{number}"] = op.kernel.read
            line(f"scratch = [0] * {len(op.columns)}")
            line(f"q = record{number}(buf, p, limit, {op.kernel.table!r}, scratch, 0)")
            line(f"if not p <= q <= limit - {left}: break")
            for i, path in enumerate(op.columns):
                if path in self.used:
                    line(f"{self.names[path]} = {PYTHON.wrap.format(f'scratch[{i}]')}")
        line("p = q")

    def _emit_record_form(self, shape: RecordForm, targets: Mapping[str, str]) -> None:
        line = self.lines
        values, tests = [], []
        for index, item in enumerate(shape.items):
            if isinstance(item, str):
                values.append(self.names[targets[item]])
            else:
                values.append(f"s{index}")
                tests.append(f"s{index} == {item!r}")
        layout = shape.layout.replace("Q", "q")
        line(f"{', '.join(values)}, = {self._add_struct(layout)}(buf, p)")
        line(f"if {' and '.join(tests) or 'True'}:")
        with line.indent():
            line(f"q = p + {shape.size}")
            for name, value in shape.fixed:
                if targets[name] in self.used:
                    line(f"{self.names[targets[name]]} = {value}")

    def _emit_scalar_form(self, form: ScalarForm, target: str | None) -> None:
        if target and form.layout is not None:
            self.lines(f"{target}, = {self._add_struct(form.layout.replace('Q', 'q'))}(buf, p + 1)")
        elif target:
            self.lines(f"{target} = t - {form.base}" if form.base else f"{target} = t")
        self.lines(f"p += {form.size_expression('t')}")

    def _emit_kernel_call(self, op: ReadScalar) -> None:
        line, name = self.lines, self.names[op.path]
        kernel = f"read_{name}"
        self.globals[kernel] = op.kernel.read
        line(f"{name}, q = {kernel}(buf, p, limit)")
        line("if not p <= q <= limit: break")
        line("p = q")
        line(f"if not {-I64_MAX - 1} <= {name} <= {I64_MAX}: {name} = {PYTHON.wrap.format(name)}")

    def _emit_unbounded(self, op: Op) -> None:
        match op:
            case ReadScalar():
                self._emit_kernel_call(op)
            case SkipBytes(_, length):
                self._emit_skip(length)
            case ReadRecord():
                self._emit_record(op)
            case VerifyChecksum():
                self._emit_verify(op)
            case ChooseCase():
                self._emit_choice(op)

    def _emit_skip(self, length: Expr) -> None:
        line, size = self.lines, self._format_value(length)
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

    def _emit_record(self, op: ReadRecord) -> None:
        index = self.records.index(op)
        self.globals[f"record{index}"], self.globals[f"TABLE{index}"] = op.kernel.read, op.kernel.table
        line = self.lines
        line(f"q = record{index}(buf, p, limit, TABLE{index}, r{index}, at{index})")
        line("if not p <= q <= limit: break")
        line("p = q")
        for i, path in enumerate(op.columns):
            if path in self.needed_paths:
                line(f"{self.names[path]} = {PYTHON.wrap.format(f'r{index}[at{index} + {i}]')}")

    def _emit_verify(self, op: VerifyChecksum) -> None:
        line, start, end = self.lines, self._format_value(op.start), self._format_value(op.end)
        if not self._are_passed_positions(op.start, op.end):
            line(f"if not o <= {start} <= {end} <= limit: break")
        kernel = f"crc_{op.checksum.poly:x}"
        self.globals[kernel] = op.checksum.kernel
        right = (
            f"{self._format_value(op.stored)} ^ {op.checksum.final}"
            if op.checksum.final
            else self._format_value(op.stored)
        )
        arguments = f"view[{start}:{end}]" + (f", {op.checksum.start}" if op.checksum.start else "")
        line(f"if {kernel}({arguments}) == {right}:")
        with line.indent():
            line("pass" if not self.has_verdicts else "ok = 1" if self.has_single_check else "if ok < 1: ok = 1")
        if op.absent is not None:
            line(f"elif {self._format_value(op.stored)} == {op.absent}: ok = 2")
        line("else: break")

    def _are_passed_positions(self, start: Expr, end: Expr) -> bool:
        """Return True if both are positions that the walk has passed, in this order; then they need no check."""
        paths = [side.path for side in (start, end) if isinstance(side, Ref) and side.path in self.positions]
        return len(paths) == 2 and self.positions.index(paths[0]) <= self.positions.index(paths[1])

    def _emit_choice(self, op: ChooseCase) -> None:
        line, outer_positions = self.lines, list(self.positions)
        for index, (test, branch) in enumerate(op.arms):
            line(f"{'el' if index else ''}if {self._format_test(test)}:")
            self._emit_branch(branch)
            self.positions = list(outer_positions)
        line("else:")
        self._emit_branch(op.other)
        self.positions = outer_positions

    def _emit_branch(self, ops: tuple[Op, ...]) -> None:
        with self.lines.indent():
            self._emit_operations(ops)
            self.lines("pass")

    def _format_value(self, expr: Expr) -> str:
        return format_value_source(expr, self.names, PYTHON)

    def _format_test(self, expr: Expr) -> str:
        return format_test_source(expr, self.names, PYTHON)


# --- The scanner without native code ---


class PythonBackend:
    """The backend that always works: no extra dependency, no start-up cost."""

    name = "python"

    def make_scanner(self, schema: Any, columns: tuple[str, ...], capacity: int = 65536) -> PythonScanner:
        """Create a scanner; the generated functions are shared.

        Raises:
            UnlowerableError: see `Backend.make_scanner`.
        """
        return PythonScanner(_lower_cached(schema, tuple(columns)), tuple(columns), capacity)

    def compile_kernel(self, function: Kernel) -> Kernel:
        """Return the function unchanged."""
        return function


@lru_cache(maxsize=256)
def _lower_cached(schema: Any, columns: tuple[str, ...]) -> Program:
    return lower_schema(schema, columns)


@lru_cache(maxsize=256)
def _compile_walk(program: Program, columns: tuple[str, ...], spans: bool) -> Any:
    text, names = generate_python_walk(program, columns, spans)
    exec(compile(text, "<generated scanner>", "exec"), names)
    return names["walk"]


class PythonScanner(WalkScanner):
    """A scanner whose columns are lists, which take several times the memory of arrays."""

    max_span_rows = 1 << 19

    def __init__(self, program: Program, columns: tuple[str, ...], capacity: int) -> None:
        super().__init__(program, columns, capacity)
        self._records = list_flat_records(program)
        self._record_positions = {
            path: (i, j) for i, op in enumerate(self._records) for j, path in enumerate(op.columns)
        }
        self._list_columns = [path for path in columns if path not in self._record_positions]
        self._has_verdicts = has_verdict_column(program)
        self._verdict = get_constant_verdict(program)
        self._functions: dict[bool, Any] = {}

    def _load_input(self, buf: Any, starts: Column, ends: Column, first: int, count: int, spans: bool) -> None:
        if spans not in self._functions:
            self._functions[spans] = _compile_walk(self._program, self.columns, spans)
        self._walk_function = self._functions[spans]
        self._start, self._spans = (int(starts[first]) if first < count else 0), spans
        if spans:
            starts, ends = _check_spans(buf, starts, ends, first, count)
        self._input = (buf, memoryview(buf), starts, ends)
        extra = 2 * spans + self._has_verdicts
        self._lists: list[list[int]] = [[] for _ in range(1 + extra + len(self._list_columns))]
        self._record_lists: list[list[int]] = [[] for _ in self._records]

    def _release_input(self) -> None:
        self._input[1].release()
        del self._input

    def _run_walk(self, span: int, count: int, position: int) -> tuple[int, int]:
        stopped: tuple[int, int] = self._walk_function(
            *self._input, span, count, position, self._capacity, self._lists, self._record_lists
        )
        return stopped

    def _count_rows(self) -> int:
        return len(self._lists[0])

    def _count_rows_before(self, span: int) -> int:
        return bisect_left(self._lists[2], span)

    def _resize_columns(self) -> None:
        """Lists grow by themselves."""

    def _append_row(self, span: int, position: int, frame: scanner.InterpretedFrame) -> None:
        rows = self._count_rows()
        extra = [position, span] if self._spans else []
        extra += [frame.checksum] if self._has_verdicts else []
        row = [frame.end, *extra, *(frame.values[path] for path in self._list_columns)]
        for column, value in zip(self._lists, row, strict=True):
            column.append(value)
        for flat, record in zip(self._record_lists, self._records, strict=True):
            flat[rows * len(record.columns) :] = [frame.values[path] for path in record.columns]

    def _make_table(self, rows: int) -> ColumnTable:
        end, *rest = (column[:rows] for column in self._lists)
        columns: dict[str, Column] = {"end": end}
        if self._spans:
            columns["offset"], columns["span"] = rest[0], rest[1]
            rest = rest[2:]
        else:
            columns["offset"] = [self._start, *end[:-1]] if rows else []
        columns["checksum"] = rest.pop(0) if self._has_verdicts else [self._verdict] * rows
        columns.update(zip(self._list_columns, rest, strict=True))
        columns.update(
            (path, self._slice_record_column(path, rows)) for path in self.columns if path in self._record_positions
        )
        return ColumnTable(rows, columns)

    def _slice_record_column(self, path: str, rows: int) -> Column:
        """Return a column of a record kernel.

        Kernels compute with unbounded integers, so values may have to be wrapped.
        """
        record, offset = self._record_positions[path]
        width = len(self._records[record].columns)
        values = self._record_lists[record][offset : rows * width : width]
        fits = not values or (max(values) <= I64_MAX and min(values) >= I64_MIN)
        return values if fits else [wrap_int64(value) for value in values]


def _check_spans(buf: Any, starts: Column, ends: Column, first: int, count: int) -> tuple[list[int], list[int]]:
    starts, ends = list(map(int, starts[:count])), list(map(int, ends[:count]))
    size = len(buf)
    for start, end in zip(starts[first:], ends[first:], strict=True):
        if not 0 <= start <= end <= size:
            raise ValueError(f"[{start}, {end}) is not inside a buffer of {size} bytes")
    return starts, ends
