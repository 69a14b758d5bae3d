"""Puts a mutant in the place of a module that is imported already, without a new import."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from types import CodeType, FunctionType, ModuleType
from typing import Any


def plant(module: ModuleType, tree: ast.Module) -> None:
    """Gives every function of the module, its methods and what is wrapped in decorators, the code of the mutant.

    All references to the functions stay what they are. Defaults of parameters are taken over, too.
    """
    code = compile(tree, module.__file__ or "mutant", "exec", dont_inherit=True)
    new = dict(_codes(code))
    given = dict(_definitions(tree, ()))
    for function in functions(module):
        function.__code__ = new[function.__qualname__]
        _defaults(function, given[function.__qualname__].args, module)


def functions(module: ModuleType) -> Iterator[FunctionType]:
    """The functions that a module itself defines."""
    for value in vars(module).values():
        yield from _of(value, module.__name__)


def _of(value: Any, name: str) -> Iterator[FunctionType]:
    if isinstance(value, type):
        if value.__module__ == name:
            for one in vars(value).values():
                yield from _of(one, name)
        return
    for inner in (getattr(value, "fget", None), getattr(value, "__wrapped__", None), getattr(value, "__func__", None)):
        if inner is not None:
            yield from _of(inner, name)
            return
    if isinstance(value, FunctionType) and value.__module__ == name and "<" not in value.__qualname__:
        yield value


def _codes(code: CodeType) -> Iterator[tuple[str, CodeType]]:
    for one in code.co_consts:
        if isinstance(one, CodeType):
            yield one.co_qualname, one
            yield from _codes(one)


def _definitions(tree: ast.AST, names: tuple[str, ...]) -> Iterator[tuple[str, ast.FunctionDef]]:
    for node in ast.iter_child_nodes(tree):
        if isinstance(node, ast.FunctionDef):
            yield ".".join((*names, node.name)), node
        elif isinstance(node, ast.ClassDef):
            yield from _definitions(node, (*names, node.name))


def _defaults(function: FunctionType, arguments: ast.arguments, module: ModuleType) -> None:
    def value(node: ast.expr) -> Any:
        return eval(compile(ast.Expression(node), "default", "eval"), vars(module))

    if function.__defaults__ and all(isinstance(one, ast.Constant) for one in arguments.defaults):
        function.__defaults__ = tuple(value(one) for one in arguments.defaults)
    for argument, node in zip(arguments.kwonlyargs, arguments.kw_defaults, strict=True):
        if isinstance(node, ast.Constant) and function.__kwdefaults__:
            function.__kwdefaults__[argument.arg] = value(node)
