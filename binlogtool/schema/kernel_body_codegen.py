"""Generate kernels that parse a record body or extract some of its fields.

The text of a kernel runs as Python, too, with functions of `schema.backends` for those of `runtime.c`.
"""

from __future__ import annotations

from collections.abc import Callable

from construct import Construct

from binlogtool.format_api.layout import Kernel
from binlogtool.schema.backends import compile_generated_function
from binlogtool.schema.frame_scan_loop import format_load, format_scalar_form
from binlogtool.schema.lower_body_schema import (
    BodyPosition,
    LoweredBody,
    OutputBytes,
    OutputMember,
    iter_all_fields,
    lower_body,
)
from binlogtool.schema.lower_frame_schema import UnlowerableError
from binlogtool.schema.native_library import KernelNames
from binlogtool.schema.python_body_codegen import BodyCodeGenerator, FixedSizeOp, get_member_path
from binlogtool.schema.schema_operations import (
    MACHINE,
    CheckCount,
    Expr,
    LoadInteger,
    Op,
    ReadScalar,
    Repeat,
    Require,
    RequireOneOf,
    SkipBytes,
    get_fixed_size,
)


class MachineBodyGenerator(BodyCodeGenerator):
    """Generator of code that reads the body `buf[p:n]`.

    Attributes:
        refusal: What the function returns for a body that is too short or not what the schema allows.
    """

    dialect = MACHINE
    end = "n"
    refusal = "-2"

    def __init__(self, body: LoweredBody, members: tuple[OutputMember, ...], kernels: KernelNames) -> None:
        super().__init__(body, members, BodyPosition("p", 0))
        self.kernels = kernels

    def emit_fixed_size_loads(self, run: list[FixedSizeOp]) -> None:
        """Emit code that loads each used field of the run."""
        total = sum(get_fixed_size(op) or 0 for op in run)
        self.emit_refuse_if(f"n - {self.position.base} < {self.position.offset + total}")
        for op in run:
            if isinstance(op, LoadInteger) and op.path in self.used:
                self.line(f"{self.names[op.path]} = {format_load(op, f'buf + {self.position}')}")
            elif isinstance(op, SkipBytes):
                self.emit_bytes_field(op.path, self.position, self.position.advance(get_fixed_size(op) or 0))
            elif not isinstance(op, LoadInteger):
                raise UnlowerableError(op.path, "a constant in a body")
            self.position = self.position.advance(get_fixed_size(op) or 0)

    def emit_skip(self, path: str, length: Expr) -> None:
        """Skip bytes whose size is in other fields."""
        size, end = self.make_position_variable(), self.make_position_variable()
        self.line(f"{size} = {self.format_value(length)}")
        self.emit_refuse_if(f"{size} < 0 or {size} > {self.left_source}")
        self.line(f"{end} = {self.position} + {size}")
        self.emit_bytes_field(path, self.position, BodyPosition(end, 0))
        self.position = BodyPosition(end, 0)

    def emit_scalar(self, op: ReadScalar) -> None:
        """Decode the frequent forms inline, all others by the kernel."""
        line, name, end = self.line, self.names[op.path], self.make_position_variable()
        line(f"t = load_u1(buf + {self.position}) if {self.position} < n else -1")
        for index, form in enumerate(op.kernel.forms):
            test = f"{form.first} <= t <= {form.last} and {self.left_source} >= {form.size_expression('t')}"
            line(f"{'el' if index else ''}if {test}:")
            with line.indent():
                line(f"{name} = {format_scalar_form(form, f'buf + {self.position}')}")
                line(f"{end} = {self.position} + {form.size_expression('t')}")
        line("else:" if op.kernel.forms else "if True:")
        with line.indent():
            arguments = op.kernel.format_arguments("buf", self.position, "n")
            line(f"{name}, {end} = {self.kernels.add_kernel(op.kernel.read)}({arguments})")
            self.emit_refuse_if(f"{end} < 0")
        self.position = BodyPosition(end, 0)

    def emit_bytes_field(self, path: str, start: BodyPosition, end: BodyPosition) -> None:
        """Emit code that keeps the start and the end of the bytes."""
        if path in self.wanted:
            self.line(f"{self.names[path]}_a = {start}")
            self.line(f"{self.names[path]}_z = {end}")

    def emit_count_check(self, op: CheckCount) -> None:
        """Refuse a count whose elements cannot fit."""
        count = self.format_value(op.count)
        self.emit_refuse_if(f"{count} < 0 or {count} > ({self.left_source}) // {op.smallest}")

    def emit_special(self, op: Op) -> None:
        """Emit code that checks the elements of a list, keeping its start and count, or that checks constants."""
        if isinstance(op, RequireOneOf):
            return self.emit_refuse_if(" and ".join(f"{self.names[op.path]} != {value}" for value in op.values))
        if isinstance(op, Require):
            return self.emit_refuse_if(f"not ({self.format_test(op.test)})")
        if not isinstance(op, Repeat):
            return super().emit_special(op)
        name = self.names[op.path]
        self.line(f"{name}_a = {self.position}")
        self.line(f"{name}_n = {self.format_value(op.count)}")
        return self.emit_elements(op)

    def emit_elements(self, op: Repeat, emit_element: Callable[[], None] | None = None) -> None:
        """Emit code that reads all elements; `emit_element` adds code for each.

        Each element takes at least a byte, so the end of the body bounds the count.
        """
        position, name = self.make_position_variable(), self.names[op.path]
        self.line(f"{position} = {name}_a")
        self.line(f"for _ in range({name}_n):")
        with self.line.indent():
            self.position = BodyPosition(position, 0)
            self.emit_zeros(op.ops)
            self.emit_operations(op.ops)
            self.line(f"{position} = {self.position}")
            if emit_element is not None:
                emit_element()
        self.position = BodyPosition(position, 0)

    def emit_refuse_if(self, test: str) -> None:
        """Emit code that refuses the body."""
        self.emit_return_if(test, self.refusal)

    def emit_return_if(self, test: str, result: str) -> None:
        """Emit code that returns a result if a test is true."""
        self.line(f"if {test}:")
        with self.line.indent():
            self.line(f"return {result}")


# --- Kernels that read fields ---


class _FieldsKernelGenerator(MachineBodyGenerator):
    """Generator of the lines of a kernel that returns fields."""

    def __init__(self, body: LoweredBody, members: tuple[OutputMember, ...], kernels: KernelNames) -> None:
        super().__init__(body, members, kernels)
        values = [self._get_member_variable(member) for member in members]
        self.refusal = ", ".join([*("0" for _ in values), "-2"])
        for member, value in zip(members, values, strict=True):
            if member.test is not None:
                self.line(f"{value} = 0")
        self.emit_operations(self.list_operations_up_to_last_needed())
        self.line(f"return {', '.join(values)}, {self.position}")

    def _get_member_variable(self, member: OutputMember) -> str:
        """Return the variable with the number, or with the start of the bytes."""
        name = self.names[get_member_path(member)]
        return f"{name}_a" if isinstance(member.value, OutputBytes) else name


def generate_fields_kernel(schema: Construct, names: tuple[str, ...], kernels: KernelNames) -> str:
    """Return the text of the kernel of these fields (`schema_fields.make_fields_kernel`).

    Raises:
        UnlowerableError: a field is not in the schema, or cannot be compiled.
    """
    body = lower_body(schema)
    fields = dict(iter_all_fields(body.fields))
    missing = [name for name in names if name not in fields]
    if missing:
        raise UnlowerableError(", ".join(missing), "no such field")
    generator = _FieldsKernelGenerator(body, tuple(fields[name] for name in names), kernels)
    lines = "".join(f"    {line}\n" for line in generator.line.join().splitlines())
    return f"def read(buf, p, n):\n{lines}"


def make_fields_function(schema: Construct, names: tuple[str, ...]) -> Kernel:
    """Return the kernel of these fields as a Python function."""
    return compile_generated_function(lambda kernels: generate_fields_kernel(schema, names, kernels), "read")
