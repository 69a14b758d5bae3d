"""Modules do not need each other in a circle, also not by an import inside a function."""

from __future__ import annotations

import ast
from collections.abc import Iterator, Mapping

from tests.contract.sources import modules, name_of, tree

Edges = Mapping[str, Mapping[str, bool]]
"""Who imports whom; True: when it is loaded itself, False: later, inside functions only."""

LATER = {
    "binlogtool.repairs": "calls of the library, of whose values some have methods that are such calls",
    "binlogtool.results": "the same: what values are as documents",
    "binlogtool.cli.completing": "words to complete are those of the commands",
    "binlogtool.cli.completion": "the same",
    "binlogtool.cli.run": "a command that is not known is looked for among all",
    "binlogtool.pipeline.opened": "the rows of a log are read as those of tables, which open the log",
    "binlogtool.formats.manticore.layout": "the file's head and what is judged of it",
    "binlogtool.formats.mariadb_innodb_binlog.layout": "pages, and the records that lie in several",
    "binlogtool.formats.mariadb_innodb_binlog.redo.records": "records, and the names of their parts",
    "binlogtool.formats.tarantool.msgpack.extensions": "values of MessagePack hold values",
    "binlogtool.formats.tarantool.msgpack.messages": "rows, and the names of their parts",
    "binlogtool.formats.tarantool.rows.rows": "the same",
}
"""Modules that close a circle by an import inside a function, and why. None may be added."""


def for_types(code: ast.Module) -> set[ast.AST]:
    """What only a type checker reads."""
    blocks = [node for node in ast.walk(code) if isinstance(node, ast.If) and ast.unparse(node.test) == "TYPE_CHECKING"]
    return {inside for block in blocks for part in block.body for inside in ast.walk(part)}


def inside_functions(code: ast.Module) -> set[ast.AST]:
    """What is not done before a function is called."""
    functions = [node for node in ast.walk(code) if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)]
    return {inside for function in functions for inside in ast.walk(function)}


def imported(code: ast.Module, known: set[str]) -> dict[str, bool]:
    """The modules of the package that one of them imports."""
    found: dict[str, bool] = {}
    ignored, late = for_types(code), inside_functions(code)
    for node in ast.walk(code):
        if node in ignored:
            continue
        names: list[str] = []
        if isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            inside = [f"{node.module}.{alias.name}" for alias in node.names]
            names = [name if name in known else node.module or "" for name in inside]
        for name in known.intersection(names):
            found[name] = found.get(name, False) or node not in late
    return found


def circles(edges: Edges) -> list[set[str]]:
    """Modules each of which needs all others (Tarjan's strongly connected components), where there is more than one."""
    order: dict[str, int] = {}
    low: dict[str, int] = {}
    stack: list[str] = []

    def visit(one: str) -> Iterator[set[str]]:
        order[one] = low[one] = len(order)
        stack.append(one)
        for other in edges[one]:
            if other not in order:
                yield from visit(other)
                low[one] = min(low[one], low[other])
            elif other in stack:
                low[one] = min(low[one], order[other])
        if low[one] == order[one]:
            at = stack.index(one)
            found = set(stack[at:])
            del stack[at:]
            if len(found) > 1:
                yield found

    return [found for one in edges if one not in order for found in visit(one)]


def package() -> dict[str, dict[str, bool]]:
    known = {name_of(path) for path in modules()}
    found = {name_of(path): imported(tree(path), known) for path in modules()}
    return {name: {other: top for other, top in needed.items() if other != name} for name, needed in found.items()}


def test_nothing_is_loaded_in_a_circle() -> None:
    edges = package()
    loaded = {name: {other: True for other, top in needed.items() if top} for name, needed in edges.items()}
    assert circles(loaded) == []


def test_no_module_closes_a_circle_by_a_later_import_but_those_that_are_known() -> None:
    edges = package()
    closing = {
        name
        for circle in circles(edges)
        for name in circle
        for other, top in edges[name].items()
        if other in circle and not top
    }
    assert closing == set(LATER)


def test_circles_are_found_also_through_functions() -> None:
    code = {
        "p.a": "from p import b\n",
        "p.b": "def f():\n    import p.c\n",
        "p.c": "from p.a import x\nif TYPE_CHECKING:\n    from p import d\n",
        "p.d": "import p.a\n",
    }
    edges = {name: imported(ast.parse(text), set(code)) for name, text in code.items()}
    assert circles(edges) == [{"p.a", "p.b", "p.c"}]
    assert edges["p.b"] == {"p.c": False} and edges["p.c"] == {"p.a": True}
