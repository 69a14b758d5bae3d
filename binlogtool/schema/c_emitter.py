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

from binlogtool.schema.expressions import I64_MAX, I64_MIN, U64, signed

_INTRINSICS = {
    f"load_{kind}{size}{order}"
    for kind in "ui" for size in (1, 2, 4, 8) for order in ("", "_little", "_big", "_native")
} | {"crc_run"}  # fmt: skip
_STORES = {"store_u1", "store_i8_native", "store_i8_little", "copy"}
_PLAIN: dict[type[ast.AST], str] = {
    ast.Add: "+", ast.Sub: "-", ast.Mult: "*", ast.BitAnd: "&", ast.BitOr: "|", ast.BitXor: "^",
    ast.Lt: "<", ast.LtE: "<=", ast.Gt: ">", ast.GtE: ">=", ast.Eq: "==", ast.NotEq: "!=",
}  # fmt: skip
_HELPERS: dict[type[ast.AST], str] = {
    ast.FloorDiv: "floor_div", ast.Mod: "floor_mod", ast.LShift: "shift_left", ast.RShift: "shift_right",
}  # fmt: skip
_UNSIGNED: dict[type[ast.AST], str] = {ast.FloorDiv: "/", ast.Mod: "%", ast.RShift: ">>"}


class EmitError(ValueError):
    """The text uses something that has no C of the same meaning."""


class Known(msgspec.Struct, frozen=True):
    """What callers must know of a function.

    Attributes:
        arity: How many values it returns.
        stores: It writes to memory.
    """

    arity: int
    stores: bool


class Emitter:
    """Turns functions into C, callees first.

    Attributes:
        emitted: The functions that are done, by name.
    """

    def __init__(self) -> None:
        self.known: dict[str, Known] = {}

    def function(self, tree: ast.FunctionDef, name: str, tables: dict[str, str] | None = None) -> str:
        """Return one function as C text.

        Args:
            tables: Constant arrays that it may name -> their names in C.

        Raises:
            EmitError: it has no C of the same meaning.
        """
        writer = _Writer(tree, name, self.known, tables or {})
        text = writer.text()
        self.known[name] = Known(writer.arity, writer.stores)
        return text

    def given(self, name: str, native: str, parameters: int) -> str:
        """Return the C text of a function that calls one of the runtime; it stores, and returns one value."""
        self.known[name] = Known(1, True)
        taken, passed = (", ".join(f"{kind}a{i}" for i in range(parameters)) for kind in ("int64_t ", ""))
        return f"static int64_t {name}({taken}) {{ return {native}({passed}); }}\n"

    def entry(self, name: str, symbol: str, parameters: int) -> str:
        """Return the exported form of a function: it takes its arguments from one array and leaves its results in
        another.
        """
        given = ", ".join(f"a[{i}]" for i in range(parameters))
        arity = self.known[name].arity
        if arity == 1:
            return f"EXPORT void {symbol}(const int64_t *a, int64_t *r) {{ r[0] = {name}({given}); }}\n"
        kept = " ".join(f"r[{i}] = t.v[{i}];" for i in range(arity))
        return f"EXPORT void {symbol}(const int64_t *a, int64_t *r) {{ values{arity} t = {name}({given}); {kept} }}\n"


class _Writer:
    def __init__(self, tree: ast.FunctionDef, name: str, known: dict[str, Known], tables: dict[str, str]) -> None:
        self.tree, self.name, self.known, self.tables = tree, name, known, tables
        self.parameters = [argument.arg for argument in tree.args.args]
        self.arity = self._arity_of(tree)
        self.stores = any(self._stores(node) for node in ast.walk(tree))
        self._numbers = count()
        self._lines: list[str] = []

    def text(self) -> str:
        body = self.tree.body
        self._block(body)
        head = (
            f"static {self._kind()} {self.name}({', '.join(f'int64_t {_local(p)}' for p in self.parameters) or 'void'})"
        )
        names = {
            node.id for node in ast.walk(self.tree) if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store)
        }
        own = sorted(names - set(self.parameters))
        declared = [f"int64_t {', '.join(f'{_local(n)} = 0' for n in own)};"] if own else []
        return "\n".join([f"{head} {{", *declared, *self._lines, "}", ""])

    def _kind(self) -> str:
        return "int64_t" if self.arity == 1 else f"values{self.arity}"

    # -- facts ---------------------------------------------------------------------------------------------------

    def _arity_of(self, tree: ast.FunctionDef) -> int:
        found = {self._values(node.value) for node in ast.walk(tree) if isinstance(node, ast.Return)} - {0}
        if len(found) > 1:
            raise EmitError(f"{self.name} returns {sorted(found)} values")
        return found.pop() if found else 1

    def _values(self, node: ast.expr | None) -> int:
        """Return how many values an expression has; 0 for a recursive call, which the other returns determine."""
        if isinstance(node, ast.Tuple):
            return len(node.elts)
        if isinstance(node, ast.IfExp):
            return self._values(node.body) or self._values(node.orelse)
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name):
            if node.func.id == self.tree.name:
                return 0
            return self.known[node.func.id].arity if node.func.id in self.known else 1
        return 1

    def _stores(self, node: ast.AST) -> bool:
        if isinstance(node, ast.Subscript):
            return isinstance(node.ctx, ast.Store)
        if not isinstance(node, ast.Call) or not isinstance(node.func, ast.Name):
            return False
        known = self.known.get(node.func.id)
        return node.func.id in _STORES or (known is not None and known.stores)

    def _in_order(self, nodes: Sequence[ast.expr]) -> tuple[str, list[str]]:
        """Return statements to run first, and the values of the nodes, computed from left to right if one of them
        stores.
        """
        values = [self._value(node) for node in nodes]
        if len(nodes) < 2 or not any(self._stores(one) for node in nodes for one in ast.walk(node)):
            return "", values
        names = [f"c{next(self._numbers)}" for _ in nodes]
        kept = " ".join(f"int64_t {name} = {value};" for name, value in zip(names, values, strict=True))
        return kept, names

    # -- statements ----------------------------------------------------------------------------------------------

    def _line(self, text: str) -> None:
        self._lines.append(text)

    def _block(self, statements: list[ast.stmt]) -> None:
        for statement in statements:
            self._statement(statement)

    def _statement(self, node: ast.stmt) -> None:
        match node:
            case ast.Assign(targets=targets, value=value):
                self._assign(targets, value)
            case ast.AugAssign(target=target, op=op, value=value):
                old = ast.parse(ast.unparse(target), mode="eval").body
                self._assign([target], ast.BinOp(old, op, value))
            case ast.If(test=test, body=body, orelse=orelse):
                self._if(test, body, orelse)
            case ast.While(test=test, body=body, orelse=[]):
                self._line(f"while ({self._test(test)}) {{")
                self._block(body)
                self._line("}")
            case ast.For(target=ast.Name(id=name), iter=ast.Call() as over, body=body, orelse=[]):
                self._for(name, over, body)
            case ast.Return(value=value):
                self._return(value)
            case ast.Expr(value=ast.Call() as value):
                self._line(f"{self._value(value)};")
            case ast.Pass() | ast.Expr(value=ast.Constant()):
                self._line(";")
            case ast.Break():
                self._line("break;")
            case ast.Continue():
                self._line("continue;")
            case _:
                raise EmitError(f"{self.name}: {ast.unparse(node)}")

    def _if(self, test: ast.expr, body: list[ast.stmt], orelse: list[ast.stmt]) -> None:
        self._line(f"if ({self._test(test)}) {{")
        self._block(body)
        if orelse:
            self._line("} else {")
            self._block(orelse)
        self._line("}")

    def _for(self, name: str, over: ast.Call, body: list[ast.stmt]) -> None:
        """Emit a loop; the range is computed once, and the variable keeps its last value."""
        if not isinstance(over.func, ast.Name) or over.func.id != "range" or over.keywords:
            raise EmitError(f"{self.name}: a loop goes over a range only")
        given = [self._value(argument) for argument in over.args]
        start, stop = ("0", given[0]) if len(given) == 1 else given[:2]
        step = 1 if len(given) < 3 else ast.literal_eval(over.args[2])
        here, end, compare = f"c{next(self._numbers)}", f"c{next(self._numbers)}", "<" if step > 0 else ">"
        self._line(f"for (int64_t {here} = {start}, {end} = {stop}; {here} {compare} {end}; {here} += {step}) {{")
        self._line(f"{_local(name)} = {here};")
        self._block(body)
        self._line("}")

    def _return(self, value: ast.expr | None) -> None:
        if value is None:
            self._line("return 0;")
        elif self.arity == 1:
            self._line(f"return {self._value(value)};")
        else:
            self._line(f"return {self._several(value)};")

    def _several(self, value: ast.expr) -> str:
        if isinstance(value, ast.Tuple):
            before, values = self._in_order(value.elts)
            return _after(before, f"(values{len(values)}){{{{{', '.join(values)}}}}}")
        if isinstance(value, ast.IfExp):
            test, body, orelse = self._test(value.test), self._several(value.body), self._several(value.orelse)
            return f"({test} ? {body} : {orelse})"
        return self._value(value)

    def _assign(self, targets: list[ast.expr], value: ast.expr) -> None:
        if len(targets) == 1 and isinstance(targets[0], ast.Tuple):
            self._unpack(targets[0], value)
            return
        if len(targets) == 1 and isinstance(targets[0], ast.Name):
            self._store(targets[0], self._value(value))
            return
        first = f"s{next(self._numbers)}"
        self._line(f"{{ int64_t {first} = {self._value(value)};")
        for target in targets:
            self._store(target, first)
        self._line("}")

    def _unpack(self, target: ast.Tuple, value: ast.expr) -> None:
        kept = f"s{next(self._numbers)}"
        self._line(f"{{ values{len(target.elts)} {kept} = {self._several(value)};")
        for index, element in enumerate(target.elts):
            self._store(element, f"{kept}.v[{index}]")
        self._line("}")

    def _store(self, target: ast.expr, value: str) -> None:
        if isinstance(target, ast.Name):
            self._line(f"{_local(target.id)} = {value};")
        elif isinstance(target, ast.Subscript) and isinstance(target.value, ast.Name):
            self._line(f"store_i8_native({self._name(target.value)} + 8 * ({self._value(target.slice)}), {value});")
        else:
            raise EmitError(f"{self.name}: {ast.unparse(target)}")

    # -- expressions ---------------------------------------------------------------------------------------------

    def _test(self, node: ast.expr) -> str:
        """Return a condition."""
        match node:
            case ast.BoolOp(op=op, values=values):
                return "(" + (" && " if isinstance(op, ast.And) else " || ").join(map(self._test, values)) + ")"
            case ast.UnaryOp(op=ast.Not(), operand=operand):
                return f"!({self._test(operand)})"
            case ast.Compare():
                return self._compare(node)
        return f"({self._value(node)}) != 0"

    def _compare(self, node: ast.Compare) -> str:
        nodes = [node.left, *node.comparators]
        operators = [_PLAIN[type(op)] for op in node.ops]
        if len(nodes) > 2 and any(self._stores(one) for one in ast.walk(node)):
            raise EmitError(f"{self.name}: a chain of comparisons stores in `{ast.unparse(node)}`")
        before, sides = self._in_order(nodes)
        tests = " && ".join(f"{a} {op} {b}" for a, op, b in zip(sides, operators, sides[1:], strict=False))
        return _after(before, f"({tests})")

    def _value(self, node: ast.expr) -> str:
        match node:
            case ast.Constant(value=value) if isinstance(value, int):
                return _number(int(value))
            case ast.Name():
                return self._name(node)
            case ast.BinOp():
                return self._binary(node)
            case ast.UnaryOp(op=ast.USub(), operand=ast.Constant(value=value)) if isinstance(value, int):
                return _number(-int(value))
            case ast.UnaryOp(op=ast.USub(), operand=operand):
                return f"(-({self._value(operand)}))"
            case ast.UnaryOp(op=ast.UAdd(), operand=operand):
                return self._value(operand)
            case ast.UnaryOp(op=ast.Invert(), operand=operand):
                return f"(~({self._value(operand)}))"
            case ast.UnaryOp(op=ast.Not()) | ast.Compare():
                return f"((int64_t)({self._test(node)}))"
            case ast.IfExp(test=test, body=body, orelse=orelse):
                return f"({self._test(test)} ? {self._value(body)} : {self._value(orelse)})"
            case ast.BoolOp():
                return self._either(node)
            case ast.Call(func=ast.Name(id=name), args=args, keywords=[]):
                return self._call(node, name, args)
            case ast.Subscript():
                return self._subscript(node)
        raise EmitError(f"{self.name}: {ast.unparse(node)}")

    def _name(self, node: ast.Name) -> str:
        return f"(int64_t)(intptr_t){self.tables[node.id]}" if node.id in self.tables else _local(node.id)

    def _binary(self, node: ast.BinOp) -> str:
        before, (left, right) = self._in_order([node.left, node.right])
        if type(node.op) in _PLAIN:
            return _after(before, f"({left} {_PLAIN[type(node.op)]} {right})")
        if _is_unsigned(node.left) and type(node.op) in _UNSIGNED:
            return _after(before, f"({left} {_UNSIGNED[type(node.op)]} {right})")
        if type(node.op) in _HELPERS:
            return _after(before, f"{_HELPERS[type(node.op)]}({left}, {right})")
        raise EmitError(f"{self.name}: {ast.unparse(node)}")

    def _either(self, node: ast.BoolOp) -> str:
        """Return the value of `a and b`, `a or b`: the operand that decides."""
        text = self._value(node.values[-1])
        for operand in node.values[-2::-1]:
            kept = f"c{next(self._numbers)}"
            pick = f"{kept} ? {text} : {kept}" if isinstance(node.op, ast.And) else f"{kept} ? {kept} : {text}"
            text = f"({{ int64_t {kept} = {self._value(operand)}; {pick}; }})"
        return text

    def _call(self, node: ast.Call, name: str, args: list[ast.expr]) -> str:
        if name in _STORES:
            self._stored_last(node, args)
        before, given = self._in_order(args)
        return _after(before, self._called(name, args, given))

    def _stored_last(self, node: ast.Call, args: list[ast.expr]) -> None:
        """Refuse a store whose address and value both have effects: Python computes the value before the address."""
        reads = any(isinstance(one, ast.Call) for one in ast.walk(args[0]))
        if reads and any(self._stores(one) for one in ast.walk(args[-1])):
            raise EmitError(f"{self.name}: {ast.unparse(node)}")

    def _called(self, name: str, args: list[ast.expr], given: list[str]) -> str:
        if name in ("int64", "int", "uint64"):
            return f"((uint64_t)({given[0]}))" if name == "uint64" else f"((int64_t)({given[0]}))"
        if name == "bool":
            return f"((int64_t)({self._test(args[0])}))"
        if name in ("min", "max"):
            text = given[0]
            for other in given[1:]:
                text = f"{name}_of({text}, {other})"
            return text
        if name == "abs":
            return f"abs_of({given[0]})"
        if name in _INTRINSICS or name in _STORES or name in self.known:
            return f"{name}({', '.join(given)})"
        if name == self.tree.name:
            return f"{self.name}({', '.join(given)})"
        raise EmitError(f"{self.name} calls {name}, which is unknown")

    def _subscript(self, node: ast.Subscript) -> str:
        if isinstance(node.value, ast.Call) and isinstance(node.slice, ast.Constant):
            return f"{self._value(node.value)}.v[{node.slice.value!r}]"
        if isinstance(node.value, ast.Name):
            return f"load_i8_native({self._name(node.value)} + 8 * ({self._value(node.slice)}))"
        raise EmitError(f"{self.name}: {ast.unparse(node)}")


def _after(before: str, text: str) -> str:
    """Return a value that needs statements to run first."""
    return f"({{ {before} {text}; }})" if before else text


def _is_unsigned(node: ast.expr) -> bool:
    return isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "uint64"


def _local(name: str) -> str:
    return f"{name}_"


def _number(value: int) -> str:
    if not I64_MIN <= value <= U64:
        raise EmitError(f"{value} has more than 64 bits")
    if value > I64_MAX:
        value = signed(value)
    return "INT64_MIN" if value == I64_MIN else f"INT64_C({value})" if value >= 0 else f"(-INT64_C({-value}))"
