"""Generate C from kernels and generated walks.

Names are made unique, integer constants are inlined, annotations and decorators are removed, and every byte that is
loaded from an array becomes a 64-bit integer, so that kernels need not handle small unsigned types. The types of arrays
are those that parameters declare (`Signature`).

Code with the same meaning in both languages is emitted unchanged; floor division, modulo, shifts and the values of
`and` and `or` use the runtime (`runtime.c`) or a conditional. C does not define the order in which the operands of an
expression are computed: if one of them stores to memory, each is assigned to a variable, from left to right.
"""

from __future__ import annotations

import ast
import builtins
import inspect
import sys
import textwrap
from collections.abc import Callable, Sequence
from enum import EnumType
from importlib.resources import files
from itertools import count
from types import FunctionType
from typing import Any, get_args, get_origin

import msgspec

from binlogtool.format_api.layout import Kernel
from binlogtool.format_api.schema_fields import ArrayType, bind_sink
from binlogtool.schema import native_library
from binlogtool.schema.json_body_codegen import generate_json_kernel
from binlogtool.schema.kernel_body_codegen import generate_fields_kernel
from binlogtool.schema.schema_operations import I64_MAX, I64_MIN, U64, wrap_int64

# --- Declared types of kernels ---


class KernelError(ValueError):
    """Raised for a function that uses something that is not allowed in a kernel."""


class StructType(msgspec.Struct, frozen=True):
    """Type of a struct parameter. fields: types of the fields in order; None = an integer or a truth value."""

    name: str
    fields: dict[str, ArrayType | None]
    type: type


class Signature(msgspec.Struct, frozen=True):
    """Parameter and result types of one kernel.

    Attributes:
        parameters: Types in order; None = an integer or a truth value.
        results: Number of integers that it returns.
    """

    parameters: dict[str, ArrayType | StructType | None]
    results: int

    @property
    def passed_argument_types(self) -> list[ArrayType | None]:
        """Types of the arguments that compiled code passes: the fields of a struct are separate arguments."""
        passed: list[ArrayType | None] = []
        for kind in self.parameters.values():
            passed += kind.fields.values() if isinstance(kind, StructType) else [kind]
        return passed


def read_signature(function: Callable[..., Any]) -> Signature:
    """Return the declared types of a kernel.

    Raises:
        KernelError: the function is not a plain function, or a type is missing or not allowed in a kernel.
    """
    if not isinstance(function, FunctionType) or function.__code__.co_freevars:
        raise KernelError(f"{function!r} is not a plain module-level function")
    code = function.__code__
    if code.co_kwonlyargcount or code.co_flags & 0x0C or function.__defaults__:
        raise KernelError(f"{_qualify_name(function)}: a kernel has positional parameters only, without defaults")
    names = code.co_varnames[: code.co_argcount]
    parameters = {name: _read_parameter_type(function, name) for name in names}
    return Signature(parameters, _count_results(function, _evaluate_annotation(function, "return")))


def get_struct_type(kind: type) -> StructType:
    """Return the declared types of the fields of a `NamedTuple`.

    Raises:
        KernelError: a field is neither an integer nor an array.
    """
    fields = {}
    [declaring] = [one for one in kind.__mro__ if "_fields" in vars(one)]
    for name, declared in declaring.__annotations__.items():
        text = getattr(declared, "__forward_arg__", None)
        meant = declared if text is None else eval(text, vars(sys.modules[kind.__module__]), vars(builtins))
        fields[name] = _find_array_type(meant, f"{kind.__module__}.{kind.__qualname__}: the type of field {name!r}")
    return StructType(f"{kind.__module__}.{kind.__qualname__}", fields, kind)


def is_struct(declared: Any) -> bool:
    """Return True if the type is a `NamedTuple` class."""
    return isinstance(declared, type) and issubclass(declared, tuple) and hasattr(declared, "_fields")


def _read_parameter_type(function: FunctionType, name: str) -> ArrayType | StructType | None:
    declared = _evaluate_annotation(function, name)
    if name == "self" and declared is None:
        declared = function.__globals__.get(function.__qualname__.rpartition(".")[0])
    if is_struct(declared):
        return get_struct_type(declared)
    return _find_array_type(declared, f"{_qualify_name(function)}: the type of parameter {name!r}")


def _find_array_type(declared: Any, what: str) -> ArrayType | None:
    if declared in (int, bool):
        return None
    for data in getattr(declared, "__metadata__", ()):
        if isinstance(data, ArrayType):
            return data
    raise KernelError(
        f"{what} is {declared!r}; declare it as int, bool, an array type of binlogtool.format_api.schema_fields, or a "
        "NamedTuple of these"
    )


def _count_results(function: FunctionType, declared: Any) -> int:
    if declared in (int, bool):
        return 1
    elements = get_args(declared)
    if get_origin(declared) is tuple and len(elements) > 1 and all(one in (int, bool) for one in elements):
        return len(elements)
    raise KernelError(
        f"{_qualify_name(function)}: the type of the result is {declared!r}; declare int, bool or tuple[int, …]"
    )


def _evaluate_annotation(function: FunctionType, name: str) -> Any:
    """Return the value of an annotation, in the module of the function; None if there is none."""
    text = function.__annotations__.get(name)
    if not isinstance(text, str):
        return text
    try:
        return eval(text, function.__globals__, vars(builtins))
    except (NameError, AttributeError, SyntaxError, TypeError) as error:
        raise KernelError(
            f"{_qualify_name(function)}: the type {text!r} of {name!r} is not known when the module is "
            f"imported: {error}"
        ) from None


def _qualify_name(function: FunctionType) -> str:
    return f"{function.__module__}.{function.__qualname__}"


# --- Source text of kernels for a generated module ---

GENERATORS: dict[str, Callable[..., str]] = {
    "make_fields_function": generate_fields_kernel,
    "make_json_function": generate_json_kernel,
}
"""Generators of kernels by the name of the function that makes the same as Python."""

_ALLOWED_BUILTINS = {"range", "min", "max", "abs", "int", "bool", "divmod"}


class KernelSources:
    """Collector of kernels and all kernels that they call, each once.

    Attributes:
        trees: Kernel name -> syntax tree.
        signatures: Kernel name -> declared types.
        bytes: Kernel name -> its parameters that are arrays of bytes.
    """

    def __init__(self) -> None:
        self.trees: dict[str, ast.FunctionDef] = {}
        self.signatures: dict[str, Signature] = {}
        self.bytes: dict[str, frozenset[str]] = {}
        self._names: dict[Callable[..., Any], str] = {}

    def add_kernel_and_callees(self, function: Callable[..., Any]) -> str:
        """Add a kernel; return its name in the text.

        Raises:
            KernelError: the kernel or one that it calls has no compiled form.
        """
        if function not in self._names:
            name = native_library.make_kernel_name(function)
            if name in self.signatures:
                raise KernelError(f"{function.__module__} has two kernels called {function.__qualname__}")
            self.signatures[name] = read_signature(function)
            self._names[function] = name
            if not function.__dict__.get("kernel_native"):  # implemented in the runtime
                self.trees[name] = ast.fix_missing_locations(self._make_kernel_tree(function, name))
        return self._names[function]

    def _make_kernel_tree(self, function: Callable[..., Any], name: str) -> ast.FunctionDef:
        if "kernel_schema" in function.__dict__:
            return self._generate_kernel_tree(function, name)
        if not isinstance(function, FunctionType) or function.__code__.co_freevars:
            raise KernelError(f"{function!r} is not a plain module-level function")
        tree = ast.parse(textwrap.dedent(inspect.getsource(function))).body[0]
        if not isinstance(tree, ast.FunctionDef):
            raise KernelError(f"{function.__qualname__} is not a plain function")
        tree.name, tree.decorator_list, tree.returns = name, [], None
        if ast.get_docstring(tree) is not None:
            tree.body = tree.body[1:] or [ast.Pass()]
        rewriter = _KernelRewriter(self, function, self.signatures[name])
        tree.args.args = [ast.arg(one) for one in rewriter.parameters]
        self.bytes[name] = frozenset(one for one, array in rewriter.arrays.items() if array.size == 1)
        rewritten = rewriter.visit(tree)
        assert isinstance(rewritten, ast.FunctionDef)
        return rewritten

    def _generate_kernel_tree(self, function: Callable[..., Any], name: str) -> ast.FunctionDef:
        """Return the kernel that `schema_fields.make_fields_kernel` or `make_json_kernel` generates from a schema."""
        kernels = native_library.KernelNames()
        generator, *arguments = function.__dict__["kernel_schema"]
        text = GENERATORS[generator](*arguments, kernels)
        for called in kernels.functions.values():
            if called not in function.__dict__["kernel_uses"]:
                raise KernelError(f"{name} calls {called.__qualname__}, which it does not name in `uses`")
            self.add_kernel_and_callees(called)
        tree = ast.parse(text).body[0]
        assert isinstance(tree, ast.FunctionDef)
        tree.name = name
        return tree


def _find_called(function: FunctionType, name: str) -> Any:
    """Return the global that a kernel names; of a template, the kernel for its own sink."""
    value: Any = function.__globals__.get(name)
    if "template_uses" in getattr(value, "__dict__", ()) and "kernel_sink" in function.__dict__:
        return bind_sink(value, function.__dict__["kernel_sink"], inline=function.__dict__["kernel_inline"])
    return value


class _KernelRewriter(ast.NodeTransformer):
    """Replaces structs by their fields, their methods by kernels, and names by kernels and integers; checks types.

    parameters: the names of all that is passed. arrays: those that are arrays.
    """

    def __init__(self, texts: KernelSources, function: FunctionType, signature: Signature) -> None:
        self._texts, self._function = texts, function
        self._locals = {*function.__code__.co_varnames, *function.__code__.co_cellvars}
        self._structs = {name: kind for name, kind in signature.parameters.items() if isinstance(kind, StructType)}
        self._fields: dict[tuple[str, str], str] = {}
        self._methods: dict[str, Kernel] = {}
        self.parameters: list[str] = []
        self.arrays: dict[str, ArrayType] = {}
        for name, kind in signature.parameters.items():
            if not isinstance(kind, StructType):
                self._add_parameter(name, kind)
                continue
            for field, array in kind.fields.items():
                unused = f"{name}_{field}"
                while unused in self._locals:
                    unused += "_"
                self._fields[name, field] = unused
                self._add_parameter(unused, array)

    def _add_parameter(self, name: str, array: ArrayType | None) -> None:
        self.parameters.append(name)
        self._locals.add(name)
        if array is not None:
            self.arrays[name] = array

    def _make_error(self, text: str) -> KernelError:
        return KernelError(f"{self._function.__module__}.{self._function.__qualname__} {text}")

    def visit_Name(self, node: ast.Name) -> ast.expr:
        if node.id in self._structs:
            raise self._make_error(f"uses the struct {node.id} other than by a field or as an argument")
        if node.id in self.arrays:
            raise self._make_error(f"uses the array {node.id} other than by an index or as an argument")
        if node.id in self._locals:
            return node
        if node.id in self._methods:
            return self._rewrite_global(node.id, self._methods[node.id])
        if node.id not in self._function.__globals__:
            if node.id in _ALLOWED_BUILTINS and hasattr(builtins, node.id):
                return node
            raise self._make_error(f"uses {node.id}, which is unknown")
        return self._rewrite_global(node.id, _find_called(self._function, node.id))

    def visit_Attribute(self, node: ast.Attribute) -> ast.expr:
        """Replace a field of a parameter by its name, and a member of an `IntEnum` by its number."""
        numbers = self._function.__globals__.get(node.value.id) if isinstance(node.value, ast.Name) else None
        if isinstance(numbers, EnumType) and isinstance(number := getattr(numbers, node.attr, None), int):
            return ast.Constant(int(number))
        field = self._replace_field_by_name(node)
        if not isinstance(field, ast.Name) or not isinstance(node.ctx, ast.Load):
            raise self._make_error(f"uses {ast.unparse(node)}, which is no field of a struct, or writes to it")
        return self.visit_Name(field)

    def _replace_field_by_name(self, node: ast.expr) -> ast.expr:
        """Return the name of a field of a parameter; any other expression unchanged."""
        if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name):
            name = self._fields.get((node.value.id, node.attr))
            return node if name is None else ast.Name(name, ast.Load())
        return node

    def _rewrite_global(self, name: str, value: Any) -> ast.expr:
        if isinstance(value, int):
            return _parse_expression(repr(int(value)))
        if callable(value) and hasattr(value, "kernel_uses"):
            if value not in self._function.__dict__.get("kernel_uses", ()) and value is not self._function:
                raise self._make_error(f"calls {name} without naming it in @kernel()")
            return ast.Name(self._texts.add_kernel_and_callees(value), ast.Load())
        raise self._make_error(f"uses {name}, which is neither a kernel nor an integer")

    def visit_Call(self, node: ast.Call) -> ast.expr:
        """Rewrite a call; arrays and structs must be passed to parameters that declare the same."""
        called = self._rewrite_method_call(node)
        if not isinstance(node.func, ast.Name) or node.keywords or node.func.id in self._locals:
            raise self._make_error(f"calls other than by a name and by positions: {ast.unparse(node)}")
        called = _find_called(self._function, node.func.id) if called is None else called
        node.func = self.visit_Name(node.func)
        is_kernel = hasattr(called, "kernel_uses")
        kinds = list(read_signature(called).parameters.values()) if is_kernel else [None] * len(node.args)
        if len(kinds) != len(node.args):
            raise self._make_error(
                f"passes {len(node.args)} arguments where {len(kinds)} are declared: {ast.unparse(node)}"
            )
        pairs = zip(node.args, kinds, strict=True)
        node.args = [passed for value, kind in pairs for passed in self._expand_argument(value, kind)]
        return node

    def _rewrite_method_call(self, node: ast.Call) -> Any:
        """Return the method that is called, and rewrite its call to one by a name; None if it is not a method."""
        if not isinstance(node.func, ast.Attribute) or not isinstance(node.func.value, ast.Name):
            return None
        owner, by_class = node.func.value, self._function.__globals__.get(node.func.value.id)
        struct: Any = self._structs[owner.id].type if owner.id in self._structs else by_class
        method: Any = getattr(struct, node.func.attr, None)
        if not is_struct(struct) or not hasattr(method, "kernel_uses"):
            return None
        if owner.id in self._structs:
            node.args = [owner, *node.args]
        node.func = ast.Name(f"{struct.__module__}.{struct.__qualname__}.{node.func.attr}", ast.Load())
        self._methods[node.func.id] = method
        return method

    def _expand_argument(self, value: ast.expr, kind: ArrayType | StructType | None) -> list[ast.expr]:
        """Return what is passed for an argument: of a struct, or of a struct that is made for the call, its fields."""
        if isinstance(kind, StructType):
            return self._expand_struct_argument(value, kind)
        value = self._replace_field_by_name(value)
        if kind is None:
            return [self.visit(value)]
        array_type = self.arrays.get(value.id) if isinstance(value, ast.Name) else None
        if array_type is None:
            raise self._make_error(f"passes {ast.unparse(value)} where an array is declared")
        if array_type.size != kind.size or kind.mutable > array_type.mutable:
            raise self._make_error(
                f"passes the array {ast.unparse(value)} where another type is declared: {array_type}, {kind}"
            )
        return [value]

    def _expand_struct_argument(self, value: ast.expr, kind: StructType) -> list[ast.expr]:
        passed = self._structs.get(value.id) if isinstance(value, ast.Name) else None
        if isinstance(value, ast.Name) and passed is not None and issubclass(passed.type, kind.type):
            return [ast.Name(self._fields[value.id, field], ast.Load()) for field in kind.fields]
        if isinstance(value, ast.Call) and isinstance(value.func, ast.Name) and not value.keywords:
            made: Any = self._function.__globals__.get(value.func.id)
            if is_struct(made) and get_struct_type(made) == kind and len(value.args) == len(kind.fields):
                pairs = zip(value.args, kind.fields.values(), strict=True)
                return [one for argument, array in pairs for one in self._expand_argument(argument, array)]
        raise self._make_error(f"passes {ast.unparse(value)} where {kind.name} is declared")

    def visit_Subscript(self, node: ast.Subscript) -> ast.expr:
        node.value = self._replace_field_by_name(node.value)
        array = self.arrays.get(node.value.id) if isinstance(node.value, ast.Name) else None
        node.slice = self.visit(node.slice)
        if array is None:
            if not isinstance(node.value, ast.Call):
                raise self._make_error(
                    f"takes an element of {ast.unparse(node.value)}, which is not declared as an array"
                )
            text = ast.unparse(node.value)
            node.value = self.visit(node.value)
            called = self._texts.signatures.get(ast.unparse(node.value.func))  # type: ignore[attr-defined]
            results = 1 if called is None else called.results
            if results == 1:
                raise self._make_error(f"takes an element of {text}, which returns 1 value")
            if not isinstance(node.slice, ast.Constant) or node.slice.value not in range(results):
                raise self._make_error(f"takes an element of {text} that is not there")
            return node
        if isinstance(node.ctx, ast.Store) and not array.mutable:
            raise self._make_error(f"writes to {ast.unparse(node.value)}, which is declared as read only")
        return node


def _parse_expression(text: str) -> ast.expr:
    return ast.parse(text, mode="eval").body


# --- C code of kernels and generated walks ---

_INTRINSICS = {
    f"load_{kind}{size}{order}"
    for kind in "ui" for size in (1, 2, 4, 8) for order in ("", "_little", "_big", "_native")
} | {"crc_run"}  # fmt: skip
_STORE_FUNCTIONS = {"store_u1", "store_i8_native", "store_i8_little", "copy"}
_SAME_OPERATORS: dict[type[ast.AST], str] = {
    ast.Add: "+", ast.Sub: "-", ast.Mult: "*", ast.BitAnd: "&", ast.BitOr: "|", ast.BitXor: "^",
    ast.Lt: "<", ast.LtE: "<=", ast.Gt: ">", ast.GtE: ">=", ast.Eq: "==", ast.NotEq: "!=",
}  # fmt: skip
_RUNTIME_FUNCTIONS: dict[type[ast.AST], str] = {
    ast.FloorDiv: "floor_div", ast.Mod: "floor_mod", ast.LShift: "shift_left", ast.RShift: "shift_right",
}  # fmt: skip
_UNSIGNED_OPERATORS: dict[type[ast.AST], str] = {ast.FloorDiv: "/", ast.Mod: "%", ast.RShift: ">>"}


class EmitError(ValueError):
    """Raised for source text that has no C equivalent."""


class EmittedFunction(msgspec.Struct, frozen=True):
    """Properties of an emitted function that its callers need.

    Attributes:
        arity: Number of values that it returns.
        stores: True if it writes to memory.
    """

    arity: int
    stores: bool


class _CFunctionWriter:
    def __init__(
        self,
        tree: ast.FunctionDef,
        name: str,
        emitted: dict[str, EmittedFunction],
        tables: dict[str, str],
        byte_arrays: frozenset[str],
    ) -> None:
        self.tree, self.name, self.emitted, self.tables, self.byte_arrays = tree, name, emitted, tables, byte_arrays
        self.parameters = [argument.arg for argument in tree.args.args]
        self.arity = self._count_returned_values(tree)
        self.stores = any(self._has_memory_writes(node) for node in ast.walk(tree))
        self._numbers = count()
        self._lines: list[str] = []

    def write(self) -> str:
        body = self.tree.body
        self._emit_block(body)
        header = (
            f"static {self._return_type()} "
            f"{self.name}({', '.join(f'int64_t {_c_local_name(p)}' for p in self.parameters) or 'void'})"
        )
        names = {
            node.id for node in ast.walk(self.tree) if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store)
        }
        local_names = sorted(names - set(self.parameters))
        declared = [f"int64_t {', '.join(f'{_c_local_name(n)} = 0' for n in local_names)};"] if local_names else []
        return "\n".join([f"{header} {{", *declared, *self._lines, "}", ""])

    def _return_type(self) -> str:
        return "int64_t" if self.arity == 1 else f"values{self.arity}"

    # -- facts ---------------------------------------------------------------------------------------------------

    def _count_returned_values(self, tree: ast.FunctionDef) -> int:
        arities = {self._count_values(node.value) for node in ast.walk(tree) if isinstance(node, ast.Return)} - {0}
        if len(arities) > 1:
            raise EmitError(f"{self.name} returns {sorted(arities)} values")
        return arities.pop() if arities else 1

    def _count_values(self, node: ast.expr | None) -> int:
        """Return the number of values of an expression; 0 for a recursive call, which other returns determine."""
        if isinstance(node, ast.Tuple):
            return len(node.elts)
        if isinstance(node, ast.IfExp):
            return self._count_values(node.body) or self._count_values(node.orelse)
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name):
            if node.func.id == self.tree.name:
                return 0
            return self.emitted[node.func.id].arity if node.func.id in self.emitted else 1
        return 1

    def _has_memory_writes(self, node: ast.AST) -> bool:
        if isinstance(node, ast.Subscript):
            return isinstance(node.ctx, ast.Store)
        if not isinstance(node, ast.Call) or not isinstance(node.func, ast.Name):
            return False
        function = self.emitted.get(node.func.id)
        return node.func.id in _STORE_FUNCTIONS or (function is not None and function.stores)

    def _emit_in_order(self, nodes: Sequence[ast.expr]) -> tuple[str, list[str]]:
        """Return statements to run first, and the values of the nodes, computed from left to right if one of them
        stores to memory.
        """
        values = [self._emit_value(node) for node in nodes]
        if len(nodes) < 2 or not any(self._has_memory_writes(one) for node in nodes for one in ast.walk(node)):
            return "", values
        names = [f"c{next(self._numbers)}" for _ in nodes]
        prelude = " ".join(f"int64_t {name} = {value};" for name, value in zip(names, values, strict=True))
        return prelude, names

    # -- statements ----------------------------------------------------------------------------------------------

    def _add_line(self, text: str) -> None:
        self._lines.append(text)

    def _emit_block(self, statements: list[ast.stmt]) -> None:
        for statement in statements:
            self._emit_statement(statement)

    def _emit_statement(self, node: ast.stmt) -> None:
        match node:
            case ast.Assign(targets=targets, value=value):
                self._emit_assign(targets, value)
            case ast.AnnAssign(target=target, value=ast.expr() as value):
                self._emit_assign([target], value)
            case ast.AugAssign(target=target, op=op, value=value):
                old = ast.parse(ast.unparse(target), mode="eval").body
                self._emit_assign([target], ast.BinOp(old, op, value))
            case ast.If(test=test, body=body, orelse=orelse):
                self._emit_if(test, body, orelse)
            case ast.While(test=test, body=body, orelse=[]):
                self._add_line(f"while ({self._emit_test(test)}) {{")
                self._emit_block(body)
                self._add_line("}")
            case ast.For(target=ast.Name(id=name), iter=ast.Call() as over, body=body, orelse=[]):
                self._emit_for(name, over, body)
            case ast.Return(value=value):
                self._emit_return(value)
            case ast.Expr(value=ast.Call() as value):
                self._add_line(f"{self._emit_value(value)};")
            case ast.Pass() | ast.AnnAssign() | ast.Expr(value=ast.Constant()):
                self._add_line(";")
            case ast.Break():
                self._add_line("break;")
            case ast.Continue():
                self._add_line("continue;")
            case _:
                raise EmitError(f"{self.name}: {ast.unparse(node)}")

    def _emit_if(self, test: ast.expr, body: list[ast.stmt], orelse: list[ast.stmt]) -> None:
        self._add_line(f"if ({self._emit_test(test)}) {{")
        self._emit_block(body)
        if orelse:
            self._add_line("} else {")
            self._emit_block(orelse)
        self._add_line("}")

    def _emit_for(self, name: str, range_call: ast.Call, body: list[ast.stmt]) -> None:
        """Emit a loop; the range is computed once, and the variable keeps its last value."""
        if not isinstance(range_call.func, ast.Name) or range_call.func.id != "range" or range_call.keywords:
            raise EmitError(f"{self.name}: a loop must be over a range")
        bounds = [self._emit_value(argument) for argument in range_call.args]
        start, stop = ("0", bounds[0]) if len(bounds) == 1 else bounds[:2]
        step = 1 if len(bounds) < 3 else ast.literal_eval(range_call.args[2])
        counter, end, compare = f"c{next(self._numbers)}", f"c{next(self._numbers)}", "<" if step > 0 else ">"
        self._add_line(
            f"for (int64_t {counter} = {start}, {end} = {stop}; {counter} {compare} {end}; {counter} += {step}) {{"
        )
        self._add_line(f"{_c_local_name(name)} = {counter};")
        self._emit_block(body)
        self._add_line("}")

    def _emit_return(self, value: ast.expr | None) -> None:
        if value is None:
            self._add_line("return 0;")
        elif self.arity == 1:
            self._add_line(f"return {self._emit_value(value)};")
        else:
            self._add_line(f"return {self._emit_values(value)};")

    def _emit_values(self, value: ast.expr) -> str:
        if isinstance(value, ast.Tuple):
            prelude, values = self._emit_in_order(value.elts)
            return _with_prelude(prelude, f"(values{len(values)}){{{{{', '.join(values)}}}}}")
        if isinstance(value, ast.IfExp):
            test, body, orelse = (
                self._emit_test(value.test),
                self._emit_values(value.body),
                self._emit_values(value.orelse),
            )
            return f"({test} ? {body} : {orelse})"
        return self._emit_value(value)

    def _emit_assign(self, targets: list[ast.expr], value: ast.expr) -> None:
        if len(targets) == 1 and isinstance(targets[0], ast.Tuple):
            self._emit_unpack(targets[0], value)
            return
        nodes = (one for target in (*targets, value) for one in ast.walk(target) if one is not target or one is value)
        if len(targets) == 1 and (isinstance(targets[0], ast.Name) or not any(map(self._has_memory_writes, nodes))):
            self._emit_store(targets[0], self._emit_value(value))
            return
        first = f"s{next(self._numbers)}"
        self._add_line(f"{{ int64_t {first} = {self._emit_value(value)};")
        for target in targets:
            self._emit_store(target, first)
        self._add_line("}")

    def _emit_unpack(self, target: ast.Tuple, value: ast.expr) -> None:
        unpacked = f"s{next(self._numbers)}"
        self._add_line(f"{{ values{len(target.elts)} {unpacked} = {self._emit_values(value)};")
        for index, element in enumerate(target.elts):
            self._emit_store(element, f"{unpacked}.v[{index}]")
        self._add_line("}")

    def _emit_store(self, target: ast.expr, value: str) -> None:
        if isinstance(target, ast.Name):
            self._add_line(f"{_c_local_name(target.id)} = {value};")
        elif isinstance(target, ast.Subscript) and isinstance(target.value, ast.Name):
            where = self._emit_address(target.value, target.slice)
            self._add_line(f"store_{'u1' if target.value.id in self.byte_arrays else 'i8_native'}({where}, {value});")
        else:
            raise EmitError(f"{self.name}: {ast.unparse(target)}")

    # -- expressions ---------------------------------------------------------------------------------------------

    def _emit_test(self, node: ast.expr) -> str:
        """Return the C text of a condition."""
        match node:
            case ast.BoolOp(op=op, values=values):
                return "(" + (" && " if isinstance(op, ast.And) else " || ").join(map(self._emit_test, values)) + ")"
            case ast.UnaryOp(op=ast.Not(), operand=operand):
                return f"!({self._emit_test(operand)})"
            case ast.Compare():
                return self._emit_compare(node)
        return f"({self._emit_value(node)}) != 0"

    def _emit_compare(self, node: ast.Compare) -> str:
        nodes = [node.left, *node.comparators]
        operators = [_SAME_OPERATORS[type(op)] for op in node.ops]
        if len(nodes) > 2 and any(self._has_memory_writes(one) for one in ast.walk(node)):
            raise EmitError(f"{self.name}: a chain of comparisons stores in `{ast.unparse(node)}`")
        prelude, sides = self._emit_in_order(nodes)
        tests = " && ".join(f"{a} {op} {b}" for a, op, b in zip(sides, operators, sides[1:], strict=False))
        return _with_prelude(prelude, f"({tests})")

    def _emit_value(self, node: ast.expr) -> str:
        match node:
            case ast.Constant(value=value) if isinstance(value, int):
                return _c_integer(int(value))
            case ast.Name():
                return self._emit_name(node)
            case ast.BinOp():
                return self._emit_binary(node)
            case ast.UnaryOp(op=ast.USub(), operand=ast.Constant(value=value)) if isinstance(value, int):
                return _c_integer(-int(value))
            case ast.UnaryOp(op=ast.USub(), operand=operand):
                return f"(-({self._emit_value(operand)}))"
            case ast.UnaryOp(op=ast.UAdd(), operand=operand):
                return self._emit_value(operand)
            case ast.UnaryOp(op=ast.Invert(), operand=operand):
                return f"(~({self._emit_value(operand)}))"
            case ast.UnaryOp(op=ast.Not()) | ast.Compare():
                return f"((int64_t)({self._emit_test(node)}))"
            case ast.IfExp(test=test, body=body, orelse=orelse):
                return f"({self._emit_test(test)} ? {self._emit_value(body)} : {self._emit_value(orelse)})"
            case ast.BoolOp():
                return self._emit_bool_op(node)
            case ast.Call(func=ast.Name(id=name), args=args, keywords=[]):
                return self._emit_call(node, name, args)
            case ast.Subscript():
                return self._emit_subscript(node)
        raise EmitError(f"{self.name}: {ast.unparse(node)}")

    def _emit_name(self, node: ast.Name) -> str:
        return f"(int64_t)(intptr_t){self.tables[node.id]}" if node.id in self.tables else _c_local_name(node.id)

    def _emit_binary(self, node: ast.BinOp) -> str:
        prelude, (left, right) = self._emit_in_order([node.left, node.right])
        if type(node.op) in _SAME_OPERATORS:
            return _with_prelude(prelude, f"({left} {_SAME_OPERATORS[type(node.op)]} {right})")
        if _is_uint64_call(node.left) and type(node.op) in _UNSIGNED_OPERATORS:
            return _with_prelude(prelude, f"({left} {_UNSIGNED_OPERATORS[type(node.op)]} {right})")
        if type(node.op) in _RUNTIME_FUNCTIONS:
            return _with_prelude(prelude, f"{_RUNTIME_FUNCTIONS[type(node.op)]}({left}, {right})")
        raise EmitError(f"{self.name}: {ast.unparse(node)}")

    def _emit_bool_op(self, node: ast.BoolOp) -> str:
        """Return the C text of `a and b` or `a or b`, whose value is the deciding operand."""
        text = self._emit_value(node.values[-1])
        for operand in node.values[-2::-1]:
            operand_name = f"c{next(self._numbers)}"
            pick = (
                f"{operand_name} ? {text} : {operand_name}"
                if isinstance(node.op, ast.And)
                else f"{operand_name} ? {operand_name} : {text}"
            )
            text = f"({{ int64_t {operand_name} = {self._emit_value(operand)}; {pick}; }})"
        return text

    def _emit_call(self, node: ast.Call, name: str, args: list[ast.expr]) -> str:
        if name in _STORE_FUNCTIONS:
            self._refuse_store_with_side_effects(node, args)
        prelude, values = self._emit_in_order(args)
        return _with_prelude(prelude, self._format_call(name, args, values))

    def _refuse_store_with_side_effects(self, node: ast.Call, args: list[ast.expr]) -> None:
        """Refuse a store whose address and value both have effects: Python computes the value before the address."""
        reads = any(isinstance(one, ast.Call) for one in ast.walk(args[0]))
        if reads and any(self._has_memory_writes(one) for one in ast.walk(args[-1])):
            raise EmitError(f"{self.name}: {ast.unparse(node)}")

    def _format_call(self, name: str, args: list[ast.expr], values: list[str]) -> str:
        if name in ("int64", "int", "uint64"):
            return f"((uint64_t)({values[0]}))" if name == "uint64" else f"((int64_t)({values[0]}))"
        if name == "bool":
            return f"((int64_t)({self._emit_test(args[0])}))"
        if name in ("min", "max"):
            text = values[0]
            for other in values[1:]:
                text = f"{name}_of({text}, {other})"
            return text
        if name == "abs":
            return f"abs_of({values[0]})"
        if name in _INTRINSICS or name in _STORE_FUNCTIONS or name in self.emitted:
            return f"{name}({', '.join(values)})"
        if name == self.tree.name:
            return f"{self.name}({', '.join(values)})"
        raise EmitError(f"{self.name} calls {name}, which is unknown")

    def _emit_subscript(self, node: ast.Subscript) -> str:
        if isinstance(node.value, ast.Call) and isinstance(node.slice, ast.Constant):
            return f"{self._emit_value(node.value)}.v[{node.slice.value!r}]"
        if isinstance(node.value, ast.Name):
            kind = "u1" if node.value.id in self.byte_arrays else "i8_native"
            return f"load_{kind}({self._emit_address(node.value, node.slice)})"
        raise EmitError(f"{self.name}: {ast.unparse(node)}")

    def _emit_address(self, array: ast.Name, index: ast.expr) -> str:
        size = "" if array.id in self.byte_arrays else "8 * "
        return f"{self._emit_name(array)} + {size}({self._emit_value(index)})"


def _with_prelude(prelude: str, text: str) -> str:
    """Return the C text of a value that needs statements to run first."""
    return f"({{ {prelude} {text}; }})" if prelude else text


def _is_uint64_call(node: ast.expr) -> bool:
    return isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "uint64"


def _c_local_name(name: str) -> str:
    return f"{name}_"


def _c_integer(value: int) -> str:
    if not I64_MIN <= value <= U64:
        raise EmitError(f"{value} has more than 64 bits")
    if value > I64_MAX:
        value = wrap_int64(value)
    return "INT64_MIN" if value == I64_MIN else f"INT64_C({value})" if value >= 0 else f"(-INT64_C({-value}))"


# --- C text of a library ---

_INLINE = "inline __attribute__((always_inline))"


class CLibrarySource:
    """Collector of the functions of a library; `write_text` returns its C text.

    Attributes:
        symbols: names of the exported functions.
    """

    def __init__(self) -> None:
        self._emitted: dict[str, EmittedFunction] = {}
        self._texts = KernelSources()
        self._parts: list[str] = []
        self.symbols: set[str] = set()

    def add_kernel(self, function: Kernel) -> None:
        """Add a kernel and export it."""
        name = self._emit_kernel(function)
        self._emit_export(name, f"entry_{name}", len(self._texts.signatures[name].passed_argument_types))

    def add_generated(self, symbol: str, text: str, kernels: native_library.KernelNames) -> None:
        """Add a generated function and export it, after the constant tables and the functions that it calls.

        The names of functions that it calls contain the hash of their text, so each is emitted once.
        """
        if symbol in self.symbols:
            return
        for function in kernels.functions.values():
            self._emit_kernel(function)
        tables: dict[str, str] = {}
        *prelude, main_function = ast.parse(text).body
        for node in prelude:
            if isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Name):
                self._add_table(node.targets[0].id, symbol, ast.literal_eval(node.value), tables)
            elif isinstance(node, ast.FunctionDef) and node.name not in self._emitted:
                self._emit_function(node, node.name, tables)
        assert isinstance(main_function, ast.FunctionDef)
        self._emit_function(main_function, f"own_{symbol}", tables)
        self._emit_export(f"own_{symbol}", symbol, len(main_function.args.args))

    def _add_table(self, name: str, symbol: str, numbers: list[int], tables: dict[str, str]) -> None:
        if name in tables:  # shared by two called functions
            return
        tables[name] = f"{name}_{symbol}"
        elements = ", ".join(map(str, numbers)) or "0"
        self._parts.append(f"static const int64_t {tables[name]}[] = {{{elements}}};\n")

    def write_text(self) -> str:
        """Return the whole C text."""
        runtime = files("binlogtool.schema").joinpath("runtime.c").read_text(encoding="utf-8")
        return "\n".join([runtime, *self._parts])

    def _emit_kernel(self, function: Kernel) -> str:
        """Emit a kernel after the kernels that it calls; return its name.

        Raises:
            KernelError: the kernel or one that it calls has no compiled form.
        """
        name = self._texts.add_kernel_and_callees(function)
        if name in self._emitted:
            return name
        signature, runtime_name = self._texts.signatures[name], function.__dict__.get("kernel_native")
        if runtime_name:
            self._emitted[name] = EmittedFunction(1, True)
            declared, passed = (
                ", ".join(f"{kind}a{i}" for i in range(len(signature.passed_argument_types)))
                for kind in ("int64_t ", "")
            )
            self._parts.append(f"static int64_t {name}({declared}) {{ return {runtime_name}({passed}); }}\n")
            return name
        for used in function.__dict__["kernel_uses"]:
            if used is not function:
                self._emit_kernel(used)
        inline = f"{_INLINE} " if function.__dict__.get("kernel_inline") else ""
        self._emit_function(
            self._texts.trees[name], name, byte_arrays=self._texts.bytes.get(name, frozenset()), prefix=inline
        )
        if signature.results != self._emitted[name].arity:
            title = f"{function.__module__}.{function.__qualname__}"
            raise KernelError(f"{title} returns {self._emitted[name].arity} values and declares {signature.results}")
        return name

    def _emit_function(
        self,
        tree: ast.FunctionDef,
        name: str,
        tables: dict[str, str] | None = None,
        *,
        byte_arrays: frozenset[str] = frozenset(),
        prefix: str = "",
    ) -> None:
        """Emit one function, whose callees were emitted before.

        Args:
            tables: Name of a constant array that it may use -> its name in C.
            byte_arrays: Parameters that are arrays of bytes; all other arrays have integers of 64 bits.
            prefix: what comes before the function.

        Raises:
            EmitError: it has no C equivalent.
        """
        writer = _CFunctionWriter(tree, name, self._emitted, tables or {}, byte_arrays)
        self._parts.append(prefix + writer.write())
        self._emitted[name] = EmittedFunction(writer.arity, writer.stores)

    def _emit_export(self, name: str, symbol: str, parameters: int) -> None:
        """Emit the exported form of a function: arguments are read from one array, results written to another."""
        if symbol in self.symbols:
            return
        self.symbols.add(symbol)
        call = f"{name}({', '.join(f'a[{i}]' for i in range(parameters))})"
        arity = self._emitted[name].arity
        results = " ".join(f"r[{i}] = t.v[{i}];" for i in range(arity))
        body = f"r[0] = {call};" if arity == 1 else f"values{arity} t = {call}; {results}"
        self._parts.append(f"EXPORT void {symbol}(const int64_t *a, int64_t *r) {{ {body} }}\n")
