"""Prepare the source text of kernels for a generated module.

Names are made unique, integer constants are inlined, annotations and decorators are removed, and every byte that is
loaded from an array becomes a 64-bit integer, so that no kernel has to care about small unsigned types. The types of
arrays are those that parameters declare (`signatures`).
"""

from __future__ import annotations

import ast
import builtins
import inspect
import textwrap
from collections.abc import Callable
from types import FunctionType
from typing import Any

from binlogtool.formats.kernel_types import ArrayType
from binlogtool.schema.signatures import KernelError, Signature, StructType, is_struct, read_signature, struct_of

_ALLOWED_BUILTINS = {"range", "min", "max", "abs", "int", "bool", "divmod"}


class KernelSources:
    """Collects kernels with all kernels that they call, each once.

    Attributes:
        trees: Syntax tree by kernel name.
        signatures: Declared types by kernel name.
    """

    def __init__(self, name_of: Callable[[Callable[..., Any]], str]) -> None:
        self.trees: dict[str, ast.FunctionDef] = {}
        self.signatures: dict[str, Signature] = {}
        self._name_of = name_of
        self._names: dict[Callable[..., Any], str] = {}

    def add(self, function: Callable[..., Any]) -> str:
        """Add a kernel; return its name in the text.

        Raises:
            KernelError: the kernel or one that it calls has no compiled form.
        """
        if function not in self._names:
            name = self._name_of(function)
            if name in self.signatures:
                raise KernelError(f"{function.__module__} has two kernels called {function.__qualname__}")
            self.signatures[name] = read_signature(function)
            self._names[function] = name
            if not function.__dict__.get("kernel_native"):  # the runtime has its own implementation
                self.trees[name] = ast.fix_missing_locations(self._rewrite(function, name))
        return self._names[function]

    def _rewrite(self, function: Callable[..., Any], name: str) -> ast.FunctionDef:
        if not isinstance(function, FunctionType) or function.__code__.co_freevars:
            raise KernelError(f"{function!r} is not a plain module-level function")
        tree = ast.parse(textwrap.dedent(inspect.getsource(function))).body[0]
        if not isinstance(tree, ast.FunctionDef):
            raise KernelError(f"{function.__qualname__} is not a plain function")
        signature = self.signatures[name]
        tree.name, tree.decorator_list, tree.returns = name, [], None
        if ast.get_docstring(tree) is not None:
            tree.body = tree.body[1:] or [ast.Pass()]
        structs = _Structs(function, signature)
        tree = structs.visit(tree)
        tree.args.args = [ast.arg(one) for one in structs.parameters]
        arrays = dict(zip(structs.parameters, signature.passed, strict=True))
        names = {*function.__code__.co_varnames, *function.__code__.co_cellvars, *structs.parameters}
        rewritten = _KernelRewriter(self, function, {k: v for k, v in arrays.items() if v is not None}, names).visit(
            tree
        )
        assert isinstance(rewritten, ast.FunctionDef)
        return rewritten


class _Structs(ast.NodeTransformer):
    """Replaces structs by their fields. parameters: the names of all that is passed then."""

    def __init__(self, function: FunctionType, signature: Signature) -> None:
        self._function = function
        self._structs = {name: kind for name, kind in signature.parameters.items() if isinstance(kind, StructType)}
        self._fields: dict[tuple[str, str], str] = {}
        self.parameters: list[str] = []
        for name, kind in signature.parameters.items():
            if not isinstance(kind, StructType):
                self.parameters.append(name)
                continue
            for field in kind.fields:
                self._fields[name, field] = self._unused(f"{name}_{field}")
                self.parameters.append(self._fields[name, field])

    def _unused(self, name: str) -> str:
        while name in self._function.__code__.co_varnames or name in self.parameters:
            name += "_"
        return name

    def _error(self, text: str) -> KernelError:
        return KernelError(f"{self._function.__module__}.{self._function.__qualname__} {text}")

    def visit_Name(self, node: ast.Name) -> ast.expr:
        if node.id in self._structs:
            raise self._error(f"uses the struct {node.id} other than by a field or as an argument")
        return node

    def visit_Attribute(self, node: ast.Attribute) -> ast.expr:
        """A field of a parameter."""
        owner = node.value.id if isinstance(node.value, ast.Name) else ""
        if (owner, node.attr) not in self._fields or not isinstance(node.ctx, ast.Load):
            raise self._error(f"uses {ast.unparse(node)}, which is no field of a struct, or writes to it")
        return ast.Name(self._fields[owner, node.attr], ast.Load())

    def visit_Call(self, node: ast.Call) -> ast.expr:
        """A struct that is passed becomes its fields; one that is made for a call, its values."""
        called: Any = self._function.__globals__.get(node.func.id) if isinstance(node.func, ast.Name) else None
        kinds = list(read_signature(called).parameters.values()) if hasattr(called, "kernel_uses") else []
        kinds += [None] * (len(node.args) - len(kinds))
        arguments: list[ast.expr] = []
        for value, kind in zip(node.args, kinds, strict=False):
            arguments += self._argument(value, kind)
        node.args = arguments
        return node

    def _argument(self, value: ast.expr, kind: ArrayType | StructType | None) -> list[ast.expr]:
        if not isinstance(kind, StructType):
            return [self.visit(value)]
        if isinstance(value, ast.Name) and self._structs.get(value.id) == kind:
            return [ast.Name(self._fields[value.id, field], ast.Load()) for field in kind.fields]
        if isinstance(value, ast.Call) and isinstance(value.func, ast.Name) and not value.keywords:
            made: Any = self._function.__globals__.get(value.func.id)
            if is_struct(made) and struct_of(made) == kind and len(value.args) == len(kind.fields):
                return [self.visit(one) for one in value.args]
        raise self._error(f"passes {ast.unparse(value)} where {kind.name} is declared")


class _KernelRewriter(ast.NodeTransformer):
    def __init__(
        self, texts: KernelSources, function: FunctionType, arrays: dict[str, ArrayType], names: set[str]
    ) -> None:
        self._texts = texts
        self._function = function
        self._arrays = arrays
        self._locals = names

    def _make_error(self, text: str) -> KernelError:
        return KernelError(f"{self._function.__module__}.{self._function.__qualname__} {text}")

    def visit_Name(self, node: ast.Name) -> ast.expr:
        if node.id in self._arrays:
            raise self._make_error(f"uses the array {node.id} other than by an index or as an argument")
        if node.id in self._locals:
            return node
        if node.id not in self._function.__globals__:
            if node.id in _ALLOWED_BUILTINS and hasattr(builtins, node.id):
                return node
            raise self._make_error(f"uses {node.id}, which is unknown")
        return self._rewrite_global(node.id, self._function.__globals__[node.id])

    def _rewrite_global(self, name: str, value: Any) -> ast.expr:
        if isinstance(value, int):
            return _parse_expression(repr(int(value)))
        if callable(value) and hasattr(value, "kernel_uses"):
            if value not in self._function.__dict__.get("kernel_uses", ()) and value is not self._function:
                raise self._make_error(f"calls {name} without naming it in @kernel()")
            return ast.Name(self._texts.add(value), ast.Load())
        raise self._make_error(f"uses {name}, which is neither a kernel nor an integer")

    def visit_Call(self, node: ast.Call) -> ast.expr:
        """Rewrite a call; arrays are passed on by name, to parameters that declare the same elements."""
        if not isinstance(node.func, ast.Name) or node.keywords or node.func.id in self._locals:
            raise self._make_error(f"calls other than by a name and by positions: {ast.unparse(node)}")
        node.func = self.visit_Name(node.func)
        called = self._texts.signatures.get(node.func.id) if isinstance(node.func, ast.Name) else None
        kinds = [None] * len(node.args) if called is None else called.passed
        if len(kinds) != len(node.args):
            raise self._make_error(
                f"passes {len(node.args)} arguments where {len(kinds)} are declared: {ast.unparse(node)}"
            )
        node.args = [self._rewrite_argument(value, kind) for value, kind in zip(node.args, kinds, strict=True)]
        return node

    def _rewrite_argument(self, value: ast.expr, kind: ArrayType | None) -> ast.expr:
        array_type = self._arrays.get(value.id) if isinstance(value, ast.Name) else None
        if kind is None:
            return self.visit(value)  # type: ignore[no-any-return]
        if array_type is None:
            raise self._make_error(f"passes {ast.unparse(value)} where an array is declared")
        if array_type.size != kind.size or kind.mutable > array_type.mutable:
            raise self._make_error(
                f"passes the array {ast.unparse(value)} where another type is declared: {array_type}, {kind}"
            )
        return value

    def visit_Subscript(self, node: ast.Subscript) -> ast.expr:
        array = self._find_array_type(node)
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
        if isinstance(node.ctx, ast.Load) and array.size == 1:
            return _parse_expression(f"load_u1({ast.unparse(node.value)} + ({ast.unparse(node.slice)}))")
        return node

    def _find_array_type(self, node: ast.expr) -> ArrayType | None:
        """Return the type of the array of `name[...]`; None for anything else."""
        is_named = isinstance(node, ast.Subscript) and isinstance(node.value, ast.Name)
        return self._arrays.get(node.value.id) if is_named else None  # type: ignore[attr-defined]

    def visit_Assign(self, node: ast.Assign) -> Any:
        self.generic_visit(node)
        target = node.targets[0]
        if len(node.targets) > 1 and any(map(self._is_byte_element, node.targets)):
            raise self._make_error("stores one value in several places")
        if isinstance(target, ast.Tuple) and any(map(self._is_byte_element, target.elts)):
            return self._rewrite_unpacking(target, node.value)
        return self._make_store(target, node.value) if self._is_byte_element(target) else node

    def visit_AugAssign(self, node: ast.AugAssign) -> Any:
        if not self._is_byte_element(node.target):
            self.generic_visit(node)
            return node
        old = _parse_expression(ast.unparse(node.target))
        return self.visit_Assign(ast.Assign([node.target], ast.BinOp(old, node.op, node.value)))

    def _is_byte_element(self, target: ast.expr) -> bool:
        """Return True for an element of an array of bytes; those of integers are stored by the emitter."""
        array = self._find_array_type(target)
        return array is not None and array.size == 1

    def _make_store(self, target: ast.expr, value: ast.expr) -> ast.stmt:
        assert isinstance(target, ast.Subscript)
        where = f"{ast.unparse(target.value)} + ({ast.unparse(target.slice)})"
        return ast.Expr(_parse_expression(f"store_u1({where}, {ast.unparse(value)})"))

    def _rewrite_unpacking(self, target: ast.Tuple, value: ast.expr) -> list[ast.stmt]:
        """Rewrite `out[i], p = call()` with a local name."""
        plain: list[ast.expr] = []
        stores: list[ast.stmt] = []
        assigned = {element.id for element in target.elts if isinstance(element, ast.Name)}
        for number, element in enumerate(target.elts):
            if not self._is_byte_element(element):
                plain.append(element)
                continue
            if assigned & {node.id for node in ast.walk(element) if isinstance(node, ast.Name)}:
                raise self._make_error("stores at an index that the same line changes")
            name = self._make_unused_name(f"stored_{number}")
            plain.append(ast.Name(name, ast.Store()))
            stores.append(self._make_store(element, ast.Name(name, ast.Load())))
        return [ast.Assign([ast.Tuple(plain, ast.Store())], value), *stores]

    def _make_unused_name(self, name: str) -> str:
        while name in self._locals:
            name += "_"
        return name

    def visit_AnnAssign(self, node: ast.AnnAssign) -> ast.stmt | None:
        if node.value is None:
            return None
        plain = ast.Assign([node.target], node.value)
        return self.visit_Assign(plain)  # type: ignore[no-any-return]


def _parse_expression(text: str) -> ast.expr:
    return ast.parse(text, mode="eval").body
