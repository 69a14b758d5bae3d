"""Exchange the code of an imported module for that of a mutant, without a new import."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from types import CodeType, FunctionType, ModuleType
from typing import Any


def plant_tree(module: ModuleType, tree: ast.Module) -> None:
    """Give every function of the module, its methods and what decorators wrap, the code and the defaults of the tree.

    All references to the functions stay valid.
    """
    code = compile(tree, module.__file__ or "mutant", "exec", dont_inherit=True)
    codes = dict(_iter_codes(code))
    definitions = dict(_iter_definitions(tree, ()))
    for function in iter_functions(module):
        function.__code__ = codes[function.__qualname__]
        _set_defaults(function, definitions[function.__qualname__].args, module)


def iter_functions(module: ModuleType) -> Iterator[FunctionType]:
    """List the functions that a module itself defines."""
    for value in vars(module).values():
        yield from _iter_functions_of(value, module.__name__)


def _iter_functions_of(value: Any, module_name: str) -> Iterator[FunctionType]:
    if isinstance(value, type):
        if value.__module__ == module_name:
            for member in vars(value).values():
                yield from _iter_functions_of(member, module_name)
        return
    for wrapped in (
        getattr(value, "fget", None),
        getattr(value, "__wrapped__", None),
        getattr(value, "__func__", None),
    ):
        if wrapped is not None:
            yield from _iter_functions_of(wrapped, module_name)
            return
    if (
        isinstance(value, FunctionType)
        and value.__module__ == module_name
        and "<" not in value.__qualname__ + value.__code__.co_filename  # neither local nor made by `dataclass`
    ):
        yield value


def _iter_codes(code: CodeType) -> Iterator[tuple[str, CodeType]]:
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            yield constant.co_qualname, constant
            yield from _iter_codes(constant)


def _iter_definitions(tree: ast.AST, names: tuple[str, ...]) -> Iterator[tuple[str, ast.FunctionDef]]:
    for node in ast.iter_child_nodes(tree):
        if isinstance(node, ast.FunctionDef):
            yield ".".join((*names, node.name)), node
        elif isinstance(node, ast.ClassDef):
            yield from _iter_definitions(node, (*names, node.name))


def _set_defaults(function: FunctionType, arguments: ast.arguments, module: ModuleType) -> None:
    def evaluate(node: ast.expr) -> Any:
        return eval(compile(ast.Expression(node), "default", "eval"), vars(module))

    if function.__defaults__ and all(isinstance(node, ast.Constant) for node in arguments.defaults):
        function.__defaults__ = tuple(evaluate(node) for node in arguments.defaults)
    for argument, node in zip(arguments.kwonlyargs, arguments.kw_defaults, strict=True):
        if isinstance(node, ast.Constant) and function.__kwdefaults__:
            function.__kwdefaults__[argument.arg] = evaluate(node)
