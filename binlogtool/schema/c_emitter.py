"""Emit C for the restricted Python of kernels and generated walks: values are `int64_t`, arrays are addresses.

What means the same in both languages is emitted unchanged; floor division, modulo, shifts and the values of `and` and
`or` use the runtime (`runtime.c`) or a conditional. C leaves open in which order the operands of an expression are
computed: where one of them stores, each gets a variable of its own, from left to right.
"""

from __future__ import annotations

import ast
from collections.abc import Sequence
from itertools import count

import msgspec

from binlogtool.schema.expressions import I64_MAX, I64_MIN, U64, wrap_int64

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
    """The text uses something that has no C of the same meaning."""


class EmittedFunction(msgspec.Struct, frozen=True):
    """What callers must know of a function.

    Attributes:
        arity: How many values it returns.
        stores: It writes to memory.
    """

    arity: int
    stores: bool


class CEmitter:
    """Turns functions into C, callees first.

    Attributes:
        emitted: The functions that are done, by name.
    """

    def __init__(self) -> None:
        self.emitted: dict[str, EmittedFunction] = {}

    def emit_function(self, tree: ast.FunctionDef, name: str, tables: dict[str, str] | None = None) -> str:
        """Return one function as C text.

        Args:
            tables: Constant arrays that it may name -> their names in C.

        Raises:
            EmitError: it has no C of the same meaning.
        """
        writer = _CFunctionWriter(tree, name, self.emitted, tables or {})
        text = writer.write()
        self.emitted[name] = EmittedFunction(writer.arity, writer.stores)
        return text

    def emit_runtime_alias(self, name: str, runtime_name: str, parameters: int) -> str:
        """Return the C text of a function that calls one of the runtime; it stores, and returns one value."""
        self.emitted[name] = EmittedFunction(1, True)
        declared, passed = (", ".join(f"{kind}a{i}" for i in range(parameters)) for kind in ("int64_t ", ""))
        return f"static int64_t {name}({declared}) {{ return {runtime_name}({passed}); }}\n"

    def emit_export(self, name: str, symbol: str, parameters: int) -> str:
        """Return the exported form of a function: it takes its arguments from one array and leaves its results in
        another.
        """
        arguments = ", ".join(f"a[{i}]" for i in range(parameters))
        arity = self.emitted[name].arity
        if arity == 1:
            return f"EXPORT void {symbol}(const int64_t *a, int64_t *r) {{ r[0] = {name}({arguments}); }}\n"
        results = " ".join(f"r[{i}] = t.v[{i}];" for i in range(arity))
        return (
            f"EXPORT void {symbol}(const int64_t *a, int64_t *r) {{ values{arity} t = "
            f"{name}({arguments}); {results} }}\n"
        )


class _CFunctionWriter:
    def __init__(
        self, tree: ast.FunctionDef, name: str, emitted: dict[str, EmittedFunction], tables: dict[str, str]
    ) -> None:
        self.tree, self.name, self.emitted, self.tables = tree, name, emitted, tables
        self.parameters = [argument.arg for argument in tree.args.args]
        self.arity = self._find_arity(tree)
        self.stores = any(self._is_store(node) for node in ast.walk(tree))
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

    def _find_arity(self, tree: ast.FunctionDef) -> int:
        arities = {self._count_values(node.value) for node in ast.walk(tree) if isinstance(node, ast.Return)} - {0}
        if len(arities) > 1:
            raise EmitError(f"{self.name} returns {sorted(arities)} values")
        return arities.pop() if arities else 1

    def _count_values(self, node: ast.expr | None) -> int:
        """Return how many values an expression has; 0 for a recursive call, which the other returns determine."""
        if isinstance(node, ast.Tuple):
            return len(node.elts)
        if isinstance(node, ast.IfExp):
            return self._count_values(node.body) or self._count_values(node.orelse)
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name):
            if node.func.id == self.tree.name:
                return 0
            return self.emitted[node.func.id].arity if node.func.id in self.emitted else 1
        return 1

    def _is_store(self, node: ast.AST) -> bool:
        if isinstance(node, ast.Subscript):
            return isinstance(node.ctx, ast.Store)
        if not isinstance(node, ast.Call) or not isinstance(node.func, ast.Name):
            return False
        function = self.emitted.get(node.func.id)
        return node.func.id in _STORE_FUNCTIONS or (function is not None and function.stores)

    def _emit_in_order(self, nodes: Sequence[ast.expr]) -> tuple[str, list[str]]:
        """Return statements to run first, and the values of the nodes, computed from left to right if one of them
        stores.
        """
        values = [self._emit_value(node) for node in nodes]
        if len(nodes) < 2 or not any(self._is_store(one) for node in nodes for one in ast.walk(node)):
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
            case ast.Pass() | ast.Expr(value=ast.Constant()):
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
            raise EmitError(f"{self.name}: a loop goes over a range only")
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
        if len(targets) == 1 and isinstance(targets[0], ast.Name):
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
            self._add_line(
                f"store_i8_native({self._emit_name(target.value)} + 8 * ({self._emit_value(target.slice)}), {value});"
            )
        else:
            raise EmitError(f"{self.name}: {ast.unparse(target)}")

    # -- expressions ---------------------------------------------------------------------------------------------

    def _emit_test(self, node: ast.expr) -> str:
        """Return a condition."""
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
        if len(nodes) > 2 and any(self._is_store(one) for one in ast.walk(node)):
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
        """Return the value of `a and b`, `a or b`: the operand that decides."""
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
            self._check_store_order(node, args)
        prelude, values = self._emit_in_order(args)
        return _with_prelude(prelude, self._format_call(name, args, values))

    def _check_store_order(self, node: ast.Call, args: list[ast.expr]) -> None:
        """Refuse a store whose address and value both have effects: Python computes the value before the address."""
        reads = any(isinstance(one, ast.Call) for one in ast.walk(args[0]))
        if reads and any(self._is_store(one) for one in ast.walk(args[-1])):
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
            return f"load_i8_native({self._emit_name(node.value)} + 8 * ({self._emit_value(node.slice)}))"
        raise EmitError(f"{self.name}: {ast.unparse(node)}")


def _with_prelude(prelude: str, text: str) -> str:
    """Return a value that needs statements to run first."""
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
