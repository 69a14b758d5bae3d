"""The source text of kernels, made ready for a generated module.

Names are made unique, integer constants are written out, annotations and decorators fall away, and every byte that is
loaded from `buf` becomes a 64-bit integer: so no kernel has to think about the types of small unsigned numbers.
"""

from __future__ import annotations

import ast
import builtins
import inspect
import textwrap
from collections.abc import Callable, Mapping
from types import FunctionType
from typing import Any

_BUILTINS = {"range", "min", "max", "abs", "int", "bool", "divmod"}


class KernelError(ValueError):
    """A function uses something that a kernel may not use."""


class KernelTexts:
    """Collects kernels with all that they call, each once. trees: by their names.

    loads, stores: by the name of an array parameter, how an element is loaded (template of the index) and stored
    (template of the index and the value); all others are left to the emitter. name_of: what a kernel is called.
    """

    def __init__(
        self, loads: Mapping[str, str], stores: Mapping[str, str], name_of: Callable[[Callable[..., Any]], str]
    ) -> None:
        self.loads = loads
        self.stores = stores
        self.trees: dict[str, ast.FunctionDef] = {}
        self._name_of = name_of
        self._names: dict[Callable[..., Any], str] = {}

    def add(self, function: Callable[..., Any]) -> str:
        """The name under which a kernel stands in the text.

        Raises:
            KernelError: see there.
        """
        if function not in self._names:
            name = self._names[function] = self._name_of(function)
            if not function.__dict__.get("kernel_native"):  # its text says what the runtime does in its place
                self.trees[name] = ast.fix_missing_locations(self._rewritten(function, name))
        return self._names[function]

    def _rewritten(self, function: Callable[..., Any], name: str) -> ast.FunctionDef:
        if not isinstance(function, FunctionType) or function.__code__.co_freevars:
            raise KernelError(f"{function!r} is not a plain module-level function")
        tree = ast.parse(textwrap.dedent(inspect.getsource(function))).body[0]
        if not isinstance(tree, ast.FunctionDef):
            raise KernelError(f"{function.__qualname__} is not a plain function")
        tree.name, tree.decorator_list, tree.returns = name, [], None
        for argument in tree.args.args:
            argument.annotation = None
        if ast.get_docstring(tree) is not None:
            tree.body = tree.body[1:] or [ast.Pass()]
        rewritten = _Rewriter(self, function).visit(tree)
        assert isinstance(rewritten, ast.FunctionDef)
        return rewritten


class _Rewriter(ast.NodeTransformer):
    def __init__(self, texts: KernelTexts, function: FunctionType) -> None:
        self._texts = texts
        self._function = function
        code = function.__code__
        self._locals = {*code.co_varnames, *code.co_cellvars}

    def visit_Name(self, node: ast.Name) -> ast.expr:
        if node.id in self._locals:
            return node
        if node.id not in self._function.__globals__:
            if node.id in _BUILTINS and hasattr(builtins, node.id):
                return node
            raise KernelError(f"{self._function.__qualname__} uses {node.id}, which is unknown")
        return self._global(node.id, self._function.__globals__[node.id])

    def _global(self, name: str, value: Any) -> ast.expr:
        if isinstance(value, int):
            return _parsed(repr(int(value)))
        if callable(value) and hasattr(value, "kernel_uses"):
            if value not in self._function.__dict__.get("kernel_uses", ()) and value is not self._function:
                raise KernelError(f"{self._function.__qualname__} calls {name} without naming it in @kernel()")
            return ast.Name(self._texts.add(value), ast.Load())
        raise KernelError(f"{self._function.__qualname__} uses {name}, which is neither a kernel nor an integer")

    def visit_Subscript(self, node: ast.Subscript) -> ast.expr:
        self.generic_visit(node)
        if not isinstance(node.ctx, ast.Load) or _array(node) not in self._texts.loads:
            return node
        return _parsed(self._texts.loads[_array(node)].format(ast.unparse(node.slice)))

    def visit_Assign(self, node: ast.Assign) -> Any:
        self.generic_visit(node)
        target = node.targets[0]
        if len(node.targets) > 1 and any(map(self._is_stored, node.targets)):
            raise KernelError(f"{self._function.__qualname__} stores one value in several places")
        if isinstance(target, ast.Tuple) and any(map(self._is_stored, target.elts)):
            return self._unpacked(target, node.value)
        return self._store(target, node.value) if self._is_stored(target) else node

    def visit_AugAssign(self, node: ast.AugAssign) -> Any:
        if not self._is_stored(node.target):
            self.generic_visit(node)
            return node
        old = _parsed(ast.unparse(node.target))
        return self.visit_Assign(ast.Assign([node.target], ast.BinOp(old, node.op, node.value)))

    def _is_stored(self, target: ast.expr) -> bool:
        return _array(target) in self._texts.stores

    def _store(self, target: ast.expr, value: ast.expr) -> ast.stmt:
        assert isinstance(target, ast.Subscript)
        text = self._texts.stores[_array(target)].format(ast.unparse(target.slice), ast.unparse(value))
        return ast.Expr(_parsed(text))

    def _unpacked(self, target: ast.Tuple, value: ast.expr) -> list[ast.stmt]:
        """`out[i], p = call()` by way of a local name."""
        plain: list[ast.expr] = []
        stores: list[ast.stmt] = []
        assigned = {element.id for element in target.elts if isinstance(element, ast.Name)}
        for number, element in enumerate(target.elts):
            if not self._is_stored(element):
                plain.append(element)
                continue
            if assigned & {node.id for node in ast.walk(element) if isinstance(node, ast.Name)}:
                raise KernelError(f"{self._function.__qualname__} stores at an index that the same line changes")
            plain.append(ast.Name(f"stored_{number}", ast.Store()))
            stores.append(self._store(element, ast.Name(f"stored_{number}", ast.Load())))
        return [ast.Assign([ast.Tuple(plain, ast.Store())], value), *stores]

    def visit_AnnAssign(self, node: ast.AnnAssign) -> ast.stmt | None:
        if node.value is None:
            return None
        plain = ast.Assign([node.target], node.value)
        return self.generic_visit(plain)  # type: ignore[return-value]


def _array(node: ast.expr) -> str:
    """The name of the array of `name[...]`, else an empty string."""
    return node.value.id if isinstance(node, ast.Subscript) and isinstance(node.value, ast.Name) else ""


def _parsed(text: str) -> ast.expr:
    return ast.parse(text, mode="eval").body
