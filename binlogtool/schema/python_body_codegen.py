"""Generate Python functions that decode bodies to a dictionary, or some of their fields to a tuple."""

from __future__ import annotations

import re
import struct
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Any, ClassVar

from construct import Construct

from binlogtool.format_api.schema_fields import BodySchema, LeafFormat, ScalarForm, make_count_error
from binlogtool.schema.lower_body_schema import (
    ArgumentNumber,
    BodyPosition,
    LoweredBody,
    OutputBytes,
    OutputEnum,
    OutputGroup,
    OutputList,
    OutputMember,
    OutputNumber,
    OutputTitle,
    ShownValue,
    find_paths_needed_by_members,
    find_paths_of_member_tests,
    find_possibly_unset_variables,
    iter_all_fields,
    iter_shown,
    list_outputs,
    list_shown_members,
    lower_body,
    make_missing_bytes_error,
    make_refused_value_error,
)
from binlogtool.schema.lower_frame_schema import UnlowerableError
from binlogtool.schema.schema_operations import (
    PYTHON,
    U64,
    Assign,
    AssignPosition,
    AssignRemaining,
    CaptureBytes,
    CheckCount,
    ChooseCase,
    ExpectBytes,
    Expr,
    LoadInteger,
    Op,
    Peek,
    ReadScalar,
    Repeat,
    RepeatToEnd,
    SkipBytes,
    SourceDialect,
    SourceLines,
    TakeRest,
    find_used_paths,
    format_test_source,
    format_value_source,
    get_fixed_size,
    iter_operations,
    list_defined_paths,
    make_variable_names,
)

# --- Common part of the generators of body readers ---

FixedSizeOp = LoadInteger | ExpectBytes | SkipBytes


class BodyCodeGenerator(ABC):
    """Generator of the lines of a function that reads a body.

    Attributes:
        end: The variable that holds the end of the body.
        wanted: Variables and byte ranges of the result.
        used: Those of `wanted`, and all that are needed to compute them.
        position: The current position.
    """

    dialect: ClassVar[SourceDialect]
    end: ClassVar[str]

    def __init__(self, body: LoweredBody, members: tuple[OutputMember, ...], start: BodyPosition) -> None:
        self.body, self.wanted, self.position = body, find_paths_needed_by_members(members), start
        self.used = self.wanted | find_used_paths(body.ops)
        self.line = SourceLines()
        paths = dict.fromkeys(op.path for op in iter_operations(body.ops) if not isinstance(op, ChooseCase))
        self.names = make_variable_names(tuple(paths))
        self._variables, self._tests = 0, find_paths_of_member_tests(members)
        self.emit_zeros(body.ops)

    def emit_zeros(self, ops: tuple[Op, ...]) -> None:
        """Emit code that sets to 0 the variables of cases that may be skipped."""
        for path in sorted(find_possibly_unset_variables(ops, self._tests) & self.used):
            self.line(f"{self.names[path]} = 0")

    def emit_operations(self, ops: tuple[Op, ...]) -> None:
        """Emit the code for these operations."""
        index = 0
        while index < len(ops):
            run: list[FixedSizeOp] = []
            while index + len(run) < len(ops) and get_fixed_size(one := ops[index + len(run)]) is not None:
                run.append(one)  # type: ignore[arg-type]
            if run:
                self.emit_fixed_size_loads(run)
            else:
                self._emit_operation(ops[index])
            index += len(run) or 1

    def _emit_operation(self, op: Op) -> None:
        match op:
            case SkipBytes(path=path, length=length):
                self.emit_skip(path, length)
            case TakeRest(path=path):
                self.emit_bytes_field(path, self.position, BodyPosition(self.end, 0))
                self.position = BodyPosition(self.end, 0)
            case AssignRemaining(path=path):
                self.line(f"{self.names[path]} = {self.left_source}")
            case AssignPosition(path=path):
                self.line(f"{self.names[path]} = {self.position}")
            case Assign(path=path, value=value):
                if path in self.used:
                    self.line(f"{self.names[path]} = {self.format_value(value)}")
            case ReadScalar():
                self.emit_scalar(op)
            case ChooseCase():
                self._emit_choice(op)
            case Peek(ops=ops):
                start = self.position
                self.emit_operations(ops)
                self.position = start
            case CaptureBytes(path=path, ops=ops):
                start = self.position
                self.emit_operations(ops)
                self.emit_bytes_field(path, start, self.position)
            case CheckCount():
                self.emit_count_check(op)
            case RepeatToEnd(ops=ops):
                self._emit_repeat_to_end(ops)
            case _:
                self.emit_special(op)

    def _emit_repeat_to_end(self, ops: tuple[Op, ...]) -> None:
        position = self.make_position_variable()
        self.line(f"{position} = {self.position}")
        self.line(f"while {position} < {self.end}:")
        with self.line.indent():
            self.position = BodyPosition(position, 0)
            self.emit_operations(ops)
            self.line(f"{position} = {self.position}")
        self.position = BodyPosition(position, 0)

    def _emit_choice(self, op: ChooseCase) -> None:
        end, start = self.make_position_variable(), self.position
        for index, (test, arm) in enumerate(op.arms):
            self.line(f"{'el' if index else ''}if {self.format_test(test)}:")
            self._emit_branch(arm, start, end)
        self.line("else:")
        self._emit_branch(op.other, start, end)
        self.position = BodyPosition(end, 0)

    def _emit_branch(self, ops: tuple[Op, ...], start: BodyPosition, end: str) -> None:
        self.position = start
        with self.line.indent():
            self.emit_operations(ops)
            self.line(f"{end} = {self.position}")

    def list_operations_up_to_last_needed(self) -> tuple[Op, ...]:
        """Return the operations up to the last one that contributes to the result."""
        ops, last = self.body.ops, 0
        for index, op in enumerate(ops):
            outputs = {path for one in iter_operations((op,)) for path in (*list_defined_paths(one), one.path)}
            if outputs & self.wanted:
                last = index + 1
        return ops[:last]

    @property
    def left_source(self) -> str:
        """Source of the number of remaining bytes."""
        return f"{self.end} - {self.position.term}"

    def format_value(self, value: Expr) -> str:
        """Return the source of an expression."""
        return format_value_source(value, self.names, self.dialect)

    def format_test(self, test: Expr) -> str:
        """Return the source of a condition."""
        return format_test_source(test, self.names, self.dialect)

    def make_position_variable(self) -> str:
        """Return a new variable for a position."""
        self._variables += 1
        return f"p{self._variables}"

    # -- abstract methods --------------------------------------------------------------------------------------------

    @abstractmethod
    def emit_fixed_size_loads(self, run: list[FixedSizeOp]) -> None:
        """Emit code that reads neighbouring fields of fixed size."""

    @abstractmethod
    def emit_skip(self, path: str, length: Expr) -> None:
        """Skip bytes whose size is in other fields."""

    @abstractmethod
    def emit_scalar(self, op: ReadScalar) -> None:
        """Emit code that reads a value with a kernel."""

    @abstractmethod
    def emit_bytes_field(self, path: str, start: BodyPosition, end: BodyPosition) -> None:
        """Emit code that makes the bytes `[start, end)` a field."""

    @abstractmethod
    def emit_count_check(self, op: CheckCount) -> None:
        """Refuse a count whose elements cannot fit."""

    def emit_special(self, op: Op) -> None:
        """Emit an operation that only some generators support. Raises UnlowerableError: this one does not."""
        raise UnlowerableError(op.path, f"{type(op).__name__} in a body")


# --- Python code that reads bodies ---

_STRUCT_CODES = {1: "B", 2: "H", 4: "I", 8: "Q"}


class PythonBodyGenerator(BodyCodeGenerator):
    """Generator of a Python function of `data`.

    Attributes:
        constants: The globals of the function.
        decoded_paths: Variables that already hold decoded values.
    """

    dialect = PYTHON
    end = "limit"

    def __init__(
        self, body: LoweredBody, members: tuple[OutputMember, ...], arguments: tuple[str, ...] = (), start: str = ""
    ) -> None:
        super().__init__(body, members, BodyPosition(start, 0))
        self.constants: dict[str, Any] = {
            "short": make_missing_bytes_error,
            "wrong": make_refused_value_error,
            "too_many": make_count_error,
        }
        self.decoded_paths: set[str] = set()
        self.lists = {one.value.path: one.value for one in iter_shown(members) if isinstance(one.value, OutputList)}
        self._arguments = arguments

    def compile_function(self) -> Callable[..., Any]:
        """Compile the generated source, and return its function."""
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

    def emit_fixed_size_loads(self, run: list[FixedSizeOp]) -> None:
        """Emit code that unpacks the used fields of the run together."""
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
        """Return the `struct` layout, its target variables, and the integers that it unpacks as bytes."""
        layout, targets, byte_integers = "<", list[str](), list[LoadInteger]()
        for op in run:
            size = get_fixed_size(op) or 0
            if isinstance(op, ExpectBytes):
                raise UnlowerableError(op.path, "a constant in a body")
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
        """Skip bytes whose size is in other fields."""
        start, end, size = self.position, self.make_position_variable(), self.format_value(length)
        self.line(f"{end} = {start} + {size}")
        wrong_size = f"limit < {end}" if length.lo >= 0 else f"not {start} <= {end} <= limit"
        self._emit_raise_if(wrong_size, f"short((({path!r}, {size}),), {self.left_source})")
        self.position = BodyPosition(end, 0)
        self.emit_bytes_field(path, start, self.position)

    def emit_scalar(self, op: ReadScalar) -> None:
        """Decode the frequent forms inline, all others by the kernel."""
        line, name, end = self.line, self.names[op.path], self.make_position_variable()
        line(f"t = data[{self.position}] if {self.position} < limit else -1")
        for form in (form for form in op.kernel.forms if not form.skips):
            room = "" if form.layout is None else f" and {self.left_source} >= {form.max_size}"
            line(f"{'if' if form is op.kernel.forms[0] else 'elif'} {form.first} <= t <= {form.last}{room}:")
            with line.indent():
                line(f"{name} = {self._format_scalar_form(form)}")
                line(f"{end} = {self.position.advance(form.max_size)}")
        line("else:" if op.kernel.forms else "if True:")
        with line.indent():
            arguments = op.kernel.format_arguments("data", self.position, "limit")
            line(f"{name}, {end} = {self.add_constant('kernel', op.kernel.read)}({arguments})")
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
        """Emit code that slices the bytes where they are read, because a case that is not taken has none."""
        if path in self.wanted:
            self.line(f"{self.names[path]} = data[{start}:{'' if str(end) == self.end else end}]")

    def emit_count_check(self, op: CheckCount) -> None:
        """Refuse a count whose elements cannot fit."""
        count = self.format_value(op.count)
        self._emit_raise_if(
            f"{count} > ({self.left_source}) // {op.smallest}", f"too_many({op.what!r}, {count}, {self.left_source})"
        )

    def emit_special(self, op: Op) -> None:
        """Emit code that reads lists."""
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

    def _emit_number_list(self, op: Repeat, items: OutputList, size: int) -> None:
        """Emit code that reads a list whose elements are numbers of fixed sizes."""
        start, end, count = self.position, self.make_position_variable(), self.format_value(op.count)
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

    def _emit_element_loop(self, op: Repeat, items: OutputList | None) -> None:
        """Emit a loop that reads any elements; each takes at least a byte, which bounds the number of iterations."""
        position, list_name, line = self.make_position_variable(), self.names[op.path], self.line
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
        """Return the source of a list of the values that an expression yields."""
        return source if source.startswith("[") or source.isidentifier() else f"list({source})"

    def format_element(self, items: OutputList) -> str:
        """Return the source of one element of a list."""
        return self.format_shown(items.element)

    def _emit_raise_if(self, test: str, error: str) -> None:
        self.line(f"if {test}: raise {error}")

    # -- values ------------------------------------------------------------------------------------------------------

    def format_dictionary(self, members: tuple[OutputMember, ...]) -> str:
        """Return the source of a dictionary of members."""
        pairs = ((member.test, f"{member.name!r}: {self.format_shown(member.value)}") for member in members)
        parts = [
            pair if test is None else f"**({{{pair}}} if {self.format_test(test)} else {{}})" for test, pair in pairs
        ]
        return "{" + ", ".join(parts) + "}"

    def format_shown(self, value: ShownValue | ArgumentNumber) -> str:
        """Return the source of a value as `dump` shows it."""
        match value:
            case OutputNumber(path=path) | OutputList(path=path):
                return self.names[path]
            case OutputEnum(path=path, names=names):
                return f"{self.add_constant('names', dict(names))}.get({self.names[path]}, {self.names[path]})"
            case OutputBytes(path=path, leaf=leaf):
                name = self.names[path]
                return name if path in self.decoded_paths else self.format_leaf(leaf, name)
            case OutputGroup(members=members, is_list=True):
                return f"[{', '.join(self.format_shown(member.value) for member in members)}]"
            case OutputGroup(members=members):
                return self.format_dictionary(members)
            case OutputTitle(parts=parts):
                return "None" if parts is None else "f'" + "".join(map(self._format_title_part, parts)) + "'"
            case ArgumentNumber(name=name):
                return name

    def _format_title_part(self, part: str | OutputNumber | OutputBytes | ArgumentNumber) -> str:
        return repr(part)[1:-1] if isinstance(part, str) else f"{{{self.format_shown(part)}}}"

    def format_leaf(self, leaf: LeafFormat | None, data: str) -> str:
        """Return the source of the value that a leaf format shows for bytes."""
        if leaf is not None and leaf.decode is None:
            raise UnlowerableError(data, "only compiled code writes it")
        return data if leaf is None else f"{self.add_constant('leaf', leaf.decode)}({data})"


# --- Readers of bodies ---


def make_decoder(body_schema: BodySchema) -> Callable[..., dict[str, Any]]:
    """Return a function (body as bytes, parameters of the schema) -> the dictionary that `dump` shows.

    Raises:
        UnlowerableError: the schema, or a value to show, cannot be compiled.
    """
    body = lower_body(body_schema.schema)
    members = list_shown_members(body_schema, body)
    generator = _DictionaryGenerator(body, members, body_schema.parameters)
    generator.emit_operations(generator.drop_useless_tail())
    generator.emit_result(members)
    return generator.compile_function()


FieldsKind = type[tuple[Any, ...]] | tuple[str, ...] | str


def make_fields_reader(schema: Construct, kind: FieldsKind, element: FieldsKind = ()) -> Callable[[bytes], Any]:
    """Return a function from a body, as bytes, to a named tuple, a tuple of fields, or one field.

    The members of a named tuple are fields at any depth; a member that is not in the schema gets its default. Codes and
    flags are numbers, text is bytes, absent fields are None. Arrays are tuples; their elements are of the kind
    `element`, or tuples of their shown fields, like the elements of nested arrays.

    Args:
        kind: A named tuple class, a tuple of field names, or one field name.
        element: The kind of the elements of arrays.

    Raises:
        UnlowerableError: see `make_decoder`.
    """
    body = lower_body(schema)
    fields = dict(iter_all_fields(body.fields))
    names = (kind,) if isinstance(kind, str) else _field_names(kind)
    wanted = {name: fields[name] for name in names if name in fields}
    generator = _FieldsGenerator(body, tuple(wanted.values()))
    generator.kinds = {member.value.path: element for member in wanted.values() if isinstance(member.value, OutputList)}
    generator.emit_absent_values(tuple(wanted.values()))
    generator.emit_operations(generator.list_operations_up_to_last_needed())
    generator.line(f"return {generator.format_fields(kind, wanted)}")
    return generator.compile_function()


class _DictionaryGenerator(PythonBodyGenerator):
    """Generator of a function that returns the dictionary that `dump` shows."""

    def drop_useless_tail(self) -> tuple[Op, ...]:
        """Return the operations, without the last ones if they can neither fail nor contribute to the result."""
        ops = self.body.ops
        while ops and all(
            isinstance(op, AssignRemaining | TakeRest | ChooseCase) and not {*list_outputs(op)} & self.used
            for op in iter_operations(ops[-1:])
        ):
            ops = ops[:-1]
        return ops

    def emit_result(self, members: tuple[OutputMember, ...]) -> None:
        """Emit code that builds and returns the dictionary."""
        self._emit_shared_leaf_values(members)
        first_conditional = next((i for i, member in enumerate(members) if member.test is not None), len(members))
        dictionary = self.format_dictionary(members[:first_conditional])
        if first_conditional == len(members):
            self.line(f"return {dictionary}")
            return
        self.line(f"out = {dictionary}")
        last_test: Expr | None = None
        for member in members[first_conditional:]:
            if member.test is None:
                self.line(f"out[{member.name!r}] = {self.format_shown(member.value)}")
            else:
                if member.test != last_test:
                    self.line(f"if {self.format_test(member.test)}:")
                with self.line.indent():
                    self.line(f"out[{member.name!r}] = {self.format_shown(member.value)}")
            last_test = member.test
        self.line("return out")

    def _emit_shared_leaf_values(self, members: tuple[OutputMember, ...]) -> None:
        """Emit code that decodes a value only once if both the title and a member show it."""
        title = members[0].value if members else None
        for part in title.parts or () if isinstance(title, OutputTitle) else ():
            if isinstance(part, OutputBytes) and any(member.value == part for member in members[1:]):
                name = self.names[part.path]
                self.line(f"{name} = {self.format_leaf(part.leaf, name)}")
                self.decoded_paths.add(part.path)


class _FieldsGenerator(PythonBodyGenerator):
    """Generator of a function that returns plain fields.

    Attributes:
        kinds: Path of a list -> the kind of its elements; elements of other lists are tuples.
    """

    kinds: Mapping[str, FieldsKind] = MappingProxyType({})

    def emit_absent_values(self, wanted: tuple[OutputMember, ...]) -> None:
        """Emit code that sets fields that may be absent to None, unless their value 0 is used in a computation."""
        computed = find_used_paths(self.body.ops)
        for member in wanted:
            path = get_member_path(member)
            if member.test is not None and path not in computed and self._find_set_conditions(path) == {member.test}:
                self.line(f"{self.names[path]} = None")
                self.decoded_paths.add(path)

    def _find_set_conditions(self, path: str) -> set[Expr | None]:
        """Return the conditions of the cases that set a variable; None = it is also set unconditionally."""
        conditions: set[Expr | None] = set()
        for op in self.body.ops:
            if isinstance(op, ChooseCase):
                arms = [(test, arm) for test, arm in op.arms] + [(None, op.other)]
                conditions |= {
                    test for test, arm in arms if any(path in list_outputs(one) for one in iter_operations(arm))
                }
            elif path in list_outputs(op):
                conditions.add(None)
        return conditions

    def format_fields(self, kind: FieldsKind, members: dict[str, OutputMember]) -> str:
        """Return the source of fields as a named tuple, a tuple, or one field."""
        values = {name: self._format_plain(member) for name, member in members.items()}
        if isinstance(kind, str):
            return values[kind]
        if isinstance(kind, tuple):
            return f"({', '.join(values[name] for name in kind)},)"
        defaults: dict[str, Any] = kind._field_defaults  # type: ignore[attr-defined]
        arguments = [values[n] if n in values else repr(defaults[n]) for n in _field_names(kind)]
        return (
            f"{self.add_constant('new', tuple.__new__)}({self.add_constant('kind', kind)}, ({', '.join(arguments)},))"
        )

    def format_element(self, items: OutputList) -> str:
        """Return the source of one element of a list."""
        if not isinstance(items.element, OutputGroup):
            return self._format_plain(OutputMember("", items.element, None))
        members = {member.name: member for member in items.element.members}
        return self.format_fields(self.kinds.get(items.path) or tuple(members), members)

    def format_list(self, source: str) -> str:
        """Return the source of a tuple of the values that an expression yields."""
        return f"tuple({source})"

    def _format_plain(self, member: OutputMember) -> str:
        name = self.names[get_member_path(member)]
        if member.test is None or get_member_path(member) in self.decoded_paths:
            return name
        return f"{name} if {self.format_test(member.test)} else None"


def _field_names(kind: Any) -> tuple[str, ...]:
    names: tuple[str, ...] = kind if type(kind) is tuple else kind._fields
    return names


def get_member_path(member: OutputMember) -> str:
    """Return the variable, byte range or list of a member."""
    assert isinstance(member.value, OutputNumber | OutputEnum | OutputBytes | OutputList)
    return member.value.path
