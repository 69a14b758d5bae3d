"""Mutants of a module: its syntax tree with one small mistake in it."""

from __future__ import annotations

import ast
import copy
from collections.abc import Iterator
from typing import NamedTuple

COMPARED: dict[type[ast.cmpop], tuple[type[ast.cmpop], ...]] = {
    ast.Lt: (ast.LtE, ast.GtE),
    ast.LtE: (ast.Lt, ast.Gt),
    ast.Gt: (ast.GtE, ast.LtE),
    ast.GtE: (ast.Gt, ast.Lt),
    ast.Eq: (ast.NotEq,),
    ast.NotEq: (ast.Eq,),
    ast.Is: (ast.IsNot,),
    ast.IsNot: (ast.Is,),
    ast.In: (ast.NotIn,),
    ast.NotIn: (ast.In,),
}
CALCULATED: dict[type[ast.operator], type[ast.operator]] = {
    ast.Add: ast.Sub,
    ast.Sub: ast.Add,
    ast.Mult: ast.FloorDiv,
    ast.FloorDiv: ast.Mult,
    ast.Mod: ast.FloorDiv,
    ast.BitOr: ast.BitAnd,
    ast.BitAnd: ast.BitOr,
    ast.LShift: ast.RShift,
}
SIMPLE = (ast.Expr, ast.Assign, ast.AugAssign, ast.Raise, ast.Break, ast.Continue, ast.Delete)


Path = tuple[tuple[str, int | None], ...]
"""From the root of a tree to a node: the field of each node on the way, and where in it if it is a list."""


class Mutant(NamedTuple):
    """One mistake. function: where it is, as in `__qualname__`. lines: those that reach it when they are run.

    text: what was, and what is there now. path: where the node `new` goes in the tree of the module.
    """

    function: str
    lines: range
    text: str
    path: Path
    new: ast.AST

    def tree(self, source: str) -> ast.Module:
        """The whole module with the mistake."""
        tree = ast.parse(source)
        _put(tree, self.path, self.new)
        return ast.fix_missing_locations(tree)

    @property
    def name(self) -> str:
        """The same as long as the statement and its function are, wherever the line goes."""
        return f"{self.function}: {self.text}"


def mutants(source: str) -> Iterator[Mutant]:
    """All of a module: in the bodies of functions and their defaults. Words of messages and types are left alone."""
    tree = ast.parse(source)
    places = list(_places(tree, (), ()))
    for path, function, lines in places:
        node = _at(tree, path)
        for new in _changes(node):
            yield Mutant(function, lines, f"{_words(node)} -> {_words(new)}", path, new)


Place = tuple[Path, str, range]


def _places(tree: ast.AST, path: Path, names: tuple[str, ...], lines: range = range(0)) -> Iterator[Place]:
    """The nodes inside functions, and the lines that are run when they are."""
    for field, value in ast.iter_fields(tree):
        if field in ("annotation", "returns", "decorator_list", "type_comment"):
            continue
        many = isinstance(value, list)
        for at, node in enumerate(value if many else [value]):
            if not isinstance(node, ast.AST) or _is_text(node):
                continue
            here, inner, reach = (*path, (field, at if many else None)), names, lines
            if isinstance(node, (ast.FunctionDef, ast.ClassDef)):
                inner = (*names, node.name, *(("<locals>",) if isinstance(node, ast.FunctionDef) else ()))
            if isinstance(node, ast.stmt):
                reach = _header(node)
            elif isinstance(node, ast.arguments) and isinstance(tree, ast.FunctionDef):
                reach = range(tree.lineno, (tree.end_lineno or tree.lineno) + 1)  # a default is not a line of its own
            if "<locals>" in names:
                yield here, ".".join(names[:-1] if names[-1] == "<locals>" else names), reach
            yield from _places(node, here, inner, reach)


def _header(node: ast.stmt) -> range:
    """The lines of a statement without those of the statements in it."""
    body = getattr(node, "body", None)
    last = body[0].lineno - 1 if isinstance(body, list) and body else node.end_lineno or node.lineno
    return range(node.lineno, max(last, node.lineno) + 1)


def _is_text(node: ast.AST) -> bool:
    """A docstring, a message, or part of one."""
    if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant):
        return True
    return isinstance(node, ast.JoinedStr) or (isinstance(node, ast.Constant) and isinstance(node.value, str))


def _changes(node: ast.AST) -> Iterator[ast.AST]:
    """The mistakes that can be made in one node."""
    if isinstance(node, ast.Compare):
        for at, operator in enumerate(node.ops):
            for other in COMPARED[type(operator)]:
                new = copy.deepcopy(node)
                new.ops[at] = other()
                yield new
    elif isinstance(node, ast.BoolOp):
        yield ast.BoolOp(ast.And() if isinstance(node.op, ast.Or) else ast.Or(), node.values)
    elif isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.Not):
        yield node.operand
    elif isinstance(node, (ast.BinOp, ast.AugAssign)) and type(node.op) in CALCULATED:
        new = copy.deepcopy(node)
        new.op = CALCULATED[type(node.op)]()
        yield new
    elif isinstance(node, ast.Constant):
        yield from _constants(node)
    elif isinstance(node, (ast.If, ast.While, ast.IfExp)) and not isinstance(node.test, (ast.Compare, ast.UnaryOp)):
        new = copy.deepcopy(node)
        new.test = ast.UnaryOp(ast.Not(), node.test)
        yield new
    elif isinstance(node, ast.Return) and node.value is not None and not _is_none(node.value):
        yield ast.Return(ast.Constant(None))
    if isinstance(node, SIMPLE):
        yield ast.Pass()


def _constants(node: ast.Constant) -> Iterator[ast.AST]:
    value = node.value
    if isinstance(value, bool):
        yield ast.Constant(not value)
    elif isinstance(value, int):
        yield ast.Constant(value + 1)
        yield ast.Constant(value - 1)


def _is_none(node: ast.AST) -> bool:
    return isinstance(node, ast.Constant) and node.value is None


def _words(node: ast.AST) -> str:
    """The code of a node, of compound statements only the first line."""
    return ast.unparse(ast.fix_missing_locations(copy.deepcopy(node))).split("\n")[0]


def _at(tree: ast.AST, path: Path) -> ast.AST:
    for field, at in path:
        value = getattr(tree, field)
        tree = value if at is None else value[at]
    return tree


def _put(tree: ast.AST, path: Path, new: ast.AST) -> None:
    parent, (field, at) = _at(tree, path[:-1]), path[-1]
    if at is None:
        setattr(parent, field, new)
    else:
        getattr(parent, field)[at] = new
