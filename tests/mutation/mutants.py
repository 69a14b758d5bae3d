"""Make the mutants of a module: its syntax tree with one small mistake in it."""

from __future__ import annotations

import ast
import copy
from collections import Counter
from collections.abc import Iterator
from typing import NamedTuple

COMPARISON_CHANGES: dict[type[ast.cmpop], tuple[type[ast.cmpop], ...]] = {
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
OPERATOR_CHANGES: dict[type[ast.operator], type[ast.operator]] = {
    ast.Add: ast.Sub,
    ast.Sub: ast.Add,
    ast.Mult: ast.FloorDiv,
    ast.FloorDiv: ast.Mult,
    ast.Mod: ast.FloorDiv,
    ast.BitOr: ast.BitAnd,
    ast.BitAnd: ast.BitOr,
    ast.LShift: ast.RShift,
}
REMOVABLE_STATEMENTS = (ast.Expr, ast.Assign, ast.AugAssign, ast.Raise, ast.Break, ast.Continue, ast.Delete)


NodePath = tuple[tuple[str, int | None], ...]
"""From the root of a tree to a node: the field of each node on the way, and the index if the field is a list."""


class Mutant(NamedTuple):
    """One mistake in one function.

    function: its `__qualname__`. lines: a test that runs one of them runs the mistake. text: the code before and after.
    path: the place of the node `new` in the tree of the module.
    """

    function: str
    lines: range
    text: str
    path: NodePath
    new: ast.AST

    def build_tree(self, source: str) -> ast.Module:
        """Build the tree of the whole module with the mistake."""
        tree = ast.parse(source)
        _replace_node(tree, self.path, self.new)
        return ast.fix_missing_locations(tree)

    @property
    def name(self) -> str:
        """The function and the change, with a number if the same change can be made again: lines may move."""
        return f"{self.function}: {self.text}"


def iter_mutants(source: str) -> Iterator[Mutant]:
    """Make all mutants in the bodies and defaults of functions. Texts of messages and annotations stay."""
    tree = ast.parse(source)
    counts: Counter[tuple[str, str]] = Counter()
    for path, function, lines in list(_iter_nodes(tree, (), ())):
        node = _get_node(tree, path)
        for new in _make_changes(node):
            text = f"{_to_source(node)} -> {_to_source(new)}"
            counts[function, text] += 1
            number = counts[function, text]
            yield Mutant(function, lines, text if number == 1 else f"{text} ({number})", path, new)


def _iter_nodes(
    tree: ast.AST, path: NodePath, names: tuple[str, ...], lines: range = range(0)
) -> Iterator[tuple[NodePath, str, range]]:
    """List the nodes inside functions: path, name of the function, and lines whose run reaches the node."""
    for field, value in ast.iter_fields(tree):
        if field in ("annotation", "returns", "decorator_list", "type_comment"):
            continue
        is_list = isinstance(value, list)
        for index, node in enumerate(value if is_list else [value]):
            if not isinstance(node, ast.AST) or _is_text(node):
                continue
            node_path, inner, reach = (*path, (field, index if is_list else None)), names, lines
            if isinstance(node, (ast.FunctionDef, ast.ClassDef)):
                inner = (*names, node.name, *(("<locals>",) if isinstance(node, ast.FunctionDef) else ()))
            if isinstance(node, ast.stmt):
                reach = _header_lines(node)
            elif isinstance(node, ast.arguments) and isinstance(tree, ast.FunctionDef):
                reach = range(tree.lineno, (tree.end_lineno or tree.lineno) + 1)  # a default is not a line of its own
            if "<locals>" in names:
                yield node_path, ".".join(names[:-1] if names[-1] == "<locals>" else names), reach
            yield from _iter_nodes(node, node_path, inner, reach)


def _header_lines(node: ast.stmt) -> range:
    """Return the lines of a statement without those of the statements in it."""
    body = getattr(node, "body", None)
    last = body[0].lineno - 1 if isinstance(body, list) and body else node.end_lineno or node.lineno
    return range(node.lineno, max(last, node.lineno) + 1)


def _is_text(node: ast.AST) -> bool:
    """Whether the node is a docstring, a message, or part of one."""
    if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant):
        return True
    return isinstance(node, ast.JoinedStr) or (isinstance(node, ast.Constant) and isinstance(node.value, str))


def _make_changes(node: ast.AST) -> Iterator[ast.AST]:
    """Make each possible mistake in one node."""
    if isinstance(node, ast.Compare):
        for index, operator in enumerate(node.ops):
            for other in COMPARISON_CHANGES[type(operator)]:
                new = copy.deepcopy(node)
                new.ops[index] = other()
                yield new
    elif isinstance(node, ast.BoolOp):
        yield ast.BoolOp(ast.And() if isinstance(node.op, ast.Or) else ast.Or(), node.values)
    elif isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.Not):
        yield node.operand
    elif isinstance(node, (ast.BinOp, ast.AugAssign)) and type(node.op) in OPERATOR_CHANGES:
        new = copy.deepcopy(node)
        new.op = OPERATOR_CHANGES[type(node.op)]()
        yield new
    elif isinstance(node, ast.Constant):
        yield from _change_constant(node)
    elif isinstance(node, (ast.If, ast.While, ast.IfExp)) and not isinstance(node.test, (ast.Compare, ast.UnaryOp)):
        new = copy.deepcopy(node)
        new.test = ast.UnaryOp(ast.Not(), node.test)
        yield new
    elif isinstance(node, ast.Return) and node.value is not None and not _is_none(node.value):
        yield ast.Return(ast.Constant(None))
    if isinstance(node, REMOVABLE_STATEMENTS):
        yield ast.Pass()


def _change_constant(node: ast.Constant) -> Iterator[ast.AST]:
    value = node.value
    if isinstance(value, bool):
        yield ast.Constant(not value)
    elif isinstance(value, int):
        yield ast.Constant(value + 1)
        yield ast.Constant(value - 1)


def _is_none(node: ast.AST) -> bool:
    return isinstance(node, ast.Constant) and node.value is None


def _to_source(node: ast.AST) -> str:
    """Write the code of a node; of a compound statement only the first line."""
    return ast.unparse(ast.fix_missing_locations(copy.deepcopy(node))).split("\n")[0]


def _get_node(tree: ast.AST, path: NodePath) -> ast.AST:
    for field, index in path:
        value = getattr(tree, field)
        tree = value if index is None else value[index]
    return tree


def _replace_node(tree: ast.AST, path: NodePath, new: ast.AST) -> None:
    parent, (field, index) = _get_node(tree, path[:-1]), path[-1]
    if index is None:
        setattr(parent, field, new)
    else:
        getattr(parent, field)[index] = new
