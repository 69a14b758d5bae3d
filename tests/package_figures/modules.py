"""The modules of a checkout: their names, what they import, and the circles in that."""

from __future__ import annotations

import ast
import io
import subprocess
import tarfile
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from functools import cache, cached_property
from pathlib import Path

from tests.archives import extract

ROOT = Path(__file__).resolve().parents[2]
PACKAGE = "binlogtool"
Edges = Mapping[str, Mapping[str, bool]]
"""Who imports whom; True: when it is loaded itself, False: later, inside functions only."""


def tree(path: Path) -> ast.Module:
    """Return the syntax tree of a module; parsed once, by whatever link its path leads to it."""
    return _parse(path.resolve())


@cache
def _parse(path: Path) -> ast.Module:
    return ast.parse(path.read_text("utf-8"))


def for_types(code: ast.Module) -> set[ast.AST]:
    """What only a type checker reads."""
    tests = [node for node in ast.walk(code) if isinstance(node, ast.If) and isinstance(node.test, ast.Name)]
    blocks = [node for node in tests if ast.unparse(node.test) == "TYPE_CHECKING"]
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


class Code:
    """One checkout. `root`: its folder."""

    def __init__(self, root: Path) -> None:
        self.root = root

    @cached_property
    def modules(self) -> list[Path]:
        """Every module of the package, the formats by way of the link."""
        package = self.root / PACKAGE
        found = {*package.rglob("*.py"), *(package / "formats").rglob("*.py")}
        return sorted(path for path in found if "__pycache__" not in path.parts)

    def name_of(self, path: Path) -> str:
        """What a module is imported as."""
        parts = path.relative_to(self.root).with_suffix("").parts
        return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)

    @cached_property
    def edges(self) -> dict[str, dict[str, bool]]:
        """What each module imports of the package."""
        known = {self.name_of(path) for path in self.modules}
        found = {self.name_of(path): imported(tree(path), known) for path in self.modules}
        return {name: {other: top for other, top in needed.items() if other != name} for name, needed in found.items()}

    @cached_property
    def loaded(self) -> dict[str, dict[str, bool]]:
        """The same without what is imported inside functions."""
        return {name: {other: True for other, top in needed.items() if top} for name, needed in self.edges.items()}

    def closing(self) -> set[str]:
        """Modules that close a circle by an import inside a function."""
        return {
            name
            for circle in circles(self.edges)
            for name in circle
            for other, top in self.edges[name].items()
            if other in circle and not top
        }


@contextmanager
def checkout(commit: str) -> Iterator[Code]:
    """What a commit holds, in a folder that goes again."""
    packed = subprocess.run(["git", "-C", str(ROOT), "archive", commit], capture_output=True, check=True).stdout
    with tempfile.TemporaryDirectory() as folder, tarfile.open(fileobj=io.BytesIO(packed)) as archive:
        wanted = [one for one in archive.getmembers() if one.issym() or one.name.endswith((".py", ".md"))]
        extract(archive, folder, wanted)
        yield Code(Path(folder))
