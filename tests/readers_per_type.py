"""Count who reads each value type of MySQL's row images: `python -m tests.readers_per_type [--at COMMIT]`.

A compiled reader is a kernel that compares `kind` with the type (`column_types.ValueKind`), by its name or its number.
A Python reader is another function, or a table of a module, that names it.
"""

from __future__ import annotations

import argparse
import ast
import sys
from collections.abc import Iterator
from contextlib import ExitStack
from typing import NamedTuple

from binlogtool.formats.binlog_events.values.column_types import ValueKind
from tests.package_figures.modules import ROOT, Code, checkout, tree

NAMES = {f"ValueKind.{kind.name}" for kind in ValueKind}
FOLDERS = ("changes", "rows", "sql", "values")
DECORATORS = {"kernel", "kernel_template"}
SAME_TYPE = {
    "typed_column_kernels.DATETIME": ValueKind.DATETIME2,
    "typed_column_kernels.TIMESTAMP": ValueKind.TIMESTAMP2,
}
SAME_TYPE |= {"typed_column_kernels.TIME": ValueKind.TIME2, "typed_column_kernels.SINGLE_BYTE_TEXT": ValueKind.TEXT}
SAME_TYPE |= {"typed_column_kernels.BITS": ValueKind.BIT, "typed_column_kernels.REAL": ValueKind.DOUBLE}
"""Names that cells had for types before they were a sink."""


class Readers(NamedTuple):
    """Functions that read one value type, by module and name."""

    compiled: set[str]
    python: set[str]


def count_readers(code: Code) -> dict[ValueKind, Readers]:
    """Find the readers of each value type."""
    found = {kind: Readers(set(), set()) for kind in ValueKind}
    folder = code.root / "formats/binlog_events"
    for path in sorted(one for name in FOLDERS for one in (folder / name).rglob("*.py")):
        module = path.stem
        for node in tree(path).body:
            name = f"{path.parent.name}.{module}.{_name_of(node)}"
            if _is_compiled(node):
                for kind in _iter_compared(node, module):
                    found[kind].compiled.add(name)
            elif not (isinstance(node, ast.ClassDef) and node.name == "ValueKind"):
                for kind in _iter_named(node):
                    found[kind].python.add(name)
    return found


def _name_of(node: ast.stmt) -> str:
    if isinstance(node, ast.FunctionDef | ast.ClassDef):
        return node.name
    targets = node.targets if isinstance(node, ast.Assign) else [getattr(node, "target", node)]
    return ast.unparse(targets[0]).splitlines()[0]


def _is_compiled(node: ast.stmt) -> bool:
    decorators = node.decorator_list if isinstance(node, ast.FunctionDef) else []
    return any(isinstance(one, ast.Call) and getattr(one.func, "id", "") in DECORATORS for one in decorators)


def _iter_compared(node: ast.AST, module: str) -> Iterator[ValueKind]:
    """Yield the types that `kind` is compared with for equality."""
    for one in ast.walk(node):
        if isinstance(one, ast.Compare) and ast.unparse(one.left) == "kind" and isinstance(one.ops[0], ast.Eq):
            [side] = one.comparators
            name = ast.unparse(side)
            if isinstance(side, ast.Constant) and side.value in set(ValueKind):
                yield ValueKind(side.value)
            elif f"{module}.{name}" in SAME_TYPE and module == "fill_columns":
                yield SAME_TYPE[f"{module}.{name}"]
            elif (name := name.removeprefix("ValueKind.")) in ValueKind.__members__:
                yield ValueKind[name]


def _iter_named(node: ast.AST) -> Iterator[ValueKind]:
    """Yield the types that are named as members of `ValueKind`, other than to make a constant of them."""
    if isinstance(node, ast.Assign) and ast.unparse(node).endswith(".value"):
        return
    for one in ast.walk(node):
        if isinstance(one, ast.Attribute) and ast.unparse(one) in NAMES:
            yield ValueKind[one.attr]


def table(columns: dict[str, dict[ValueKind, Readers]]) -> Iterator[str]:
    """Yield the table in Markdown: compiled and Python readers of each type, for each checkout."""
    yield "| value type | " + " | ".join(f"{name}: compiled | {name}: Python" for name in columns) + " |"
    yield "|---|" + "---|---|" * len(columns)
    for kind in ValueKind:
        figures = [f"{len(found[kind].compiled)} | {len(found[kind].python)}" for found in columns.values()]
        yield f"| {kind.name} | {' | '.join(figures)} |"
    sums = [
        f"{sum(len(one.compiled) for one in found.values())} | {sum(len(one.python) for one in found.values())}"
        for found in columns.values()
    ]
    yield f"| all | {' | '.join(sums)} |"


def main(words: list[str]) -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(prog="python -m tests.readers_per_type", description=__doc__)
    parser.add_argument("--at", metavar="COMMIT", action="append", default=[], help="as it was there; several times")
    parser.add_argument("--names", action="store_true", help="the readers by name, of this checkout")
    options = parser.parse_args(words)
    with ExitStack() as held:
        columns = {commit: count_readers(held.enter_context(checkout(commit))) for commit in options.at}
    today = count_readers(Code(ROOT))
    sys.stdout.writelines(f"{line}\n" for line in table({**columns, "today": today}))
    if options.names:
        for kind, readers in today.items():
            sys.stdout.write(
                f"{kind.name}: {', '.join(sorted(readers.compiled))}; {', '.join(sorted(readers.python))}\n"
            )


if __name__ == "__main__":
    main(sys.argv[1:])
