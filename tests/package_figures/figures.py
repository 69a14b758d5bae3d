"""Figures of a checkout: sizes of packages, modules of formats, circles, what is long, and who reads bytes by hand."""

from __future__ import annotations

import ast
import tokenize
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import NamedTuple

from tests.package_figures.kernels import count_kernels, list_hand_readers, modules_of_formats
from tests.package_figures.modules import Code, circles, tree

Rows = list[tuple[str, str]]
"""What is measured, and the figure."""

LINES = 1000
FUNCTION_LINES = 80
ARGUMENTS = 10
LOADS = {"from_bytes", "unpack", "unpack_from", "iter_unpack"}
READER = "binlogtool.formats.binlog_events.wire_format"
_NO_CODE = {
    tokenize.COMMENT, tokenize.NL, tokenize.NEWLINE, tokenize.INDENT, tokenize.DEDENT, tokenize.ENDMARKER,
}  # fmt: skip
_REASONS = Path("tests/contract/test_spellings.py")


class Function(NamedTuple):
    """A function of the package, and where it is."""

    module: str
    name: str
    lines: int
    arguments: int
    kernel: bool


def is_kernel(node: ast.FunctionDef | ast.AsyncFunctionDef) -> bool:
    """A kernel is compiled as one piece: calls between its parts cost what the kernel exists to save."""
    return any(isinstance(d, ast.Call) and getattr(d.func, "id", "") == "kernel" for d in node.decorator_list)


def arguments(node: ast.FunctionDef | ast.AsyncFunctionDef) -> list[str]:
    """What a caller has to know of a function: its arguments, without the object that it belongs to."""
    given = node.args
    known = [one.arg for one in (*given.posonlyargs, *given.args, *given.kwonlyargs)]
    more = [f"*{given.vararg.arg}"] if given.vararg else []
    more += [f"**{given.kwarg.arg}"] if given.kwarg else []
    return [name for name in (*known, *more) if name not in ("self", "cls")]


def functions(code: Code) -> Iterator[Function]:
    """All functions and methods."""
    for path in code.modules:
        for node in ast.walk(tree(path)):
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
                lines = (node.end_lineno or 0) - node.lineno + 1
                yield Function(code.name_of(path), node.name, lines, len(arguments(node)), is_kernel(node))


def lines_of(path: Path) -> int:
    return path.read_bytes().count(b"\n")


def code_lines(path: Path) -> int:
    """Lines that a program has: neither blank, nor a comment, nor a string that stands by itself."""
    texts = (node.value for node in ast.walk(tree(path)) if isinstance(node, ast.Expr))
    texts = [node for node in texts if isinstance(node, ast.Constant) and isinstance(node.value, str)]
    explained = {line for node in texts for line in range(node.lineno, (node.end_lineno or 0) + 1)}
    with tokenize.open(path) as file:
        tokens = [one for one in tokenize.generate_tokens(file.readline) if one.type not in _NO_CODE]
    return len({line for one in tokens for line in range(one.start[0], one.end[0] + 1)} - explained)


def folders(code: Code) -> Rows:
    """Lines and files of each folder: formats, packages, and what is beside the package."""
    sizes: dict[str, list[int]] = {}
    beside = [path for name in ("tests", "bench", "examples") for path in sorted((code.root / name).rglob("*.py"))]
    for path in (*code.modules, *beside):
        sizes.setdefault(_folder(path.relative_to(code.root)), []).append(lines_of(path))
    rows = [(name, f"{sum(found):,} in {len(found)}") for name, found in sorted(sizes.items())]
    own = [lines_of(path) for path in code.modules]
    bare = sum(map(code_lines, code.modules))
    together = ("formats and binlogtool together", f"{sum(own):,} in {len(own)}")
    return [*rows, together, ("of these without blank lines, comments, and text that explains", f"{bare:,}")]


def _folder(path: Path) -> str:
    parts = path.parts[1:] if path.parts[:2] == ("binlogtool", "formats") else path.parts
    deep = 2 if parts[0] in ("formats", "binlogtool") else 1
    return "/".join(parts[: min(deep, len(parts) - 1)])


def modules_of_packages(code: Code) -> Rows:
    """Count the modules and packages directly in the folder of each format."""
    formats = code.root / "formats"
    rows: Rows = []
    for folder in sorted(path.parent for path in formats.glob("*/__init__.py")):
        files = [path for path in folder.glob("*.py") if path.stem != "__init__"]
        inner = [path.parent for path in folder.glob("*/__init__.py")]
        rows.append((folder.name, f"{len(files) + len(inner)} ({len(inner)} folders)"))
    return rows


def circles_of(code: Code) -> Rows:
    """Circles of modules, and how many close one by an import inside a function."""
    later = circles(code.edges)
    return [
        ("circles when modules are loaded", str(len(circles(code.loaded)))),
        ("circles with imports inside functions", str(len(later))),
        ("modules in the largest", str(max(map(len, later), default=0))),
        ("modules that close one", str(len(code.closing()))),
        ("imports between modules", f"{sum(map(len, code.edges.values())):,}"),
    ]


def long_ones(code: Code) -> Rows:
    """Files, functions and kernels that are longer, or have more arguments, than the rules say."""
    files = [lines_of(path) for path in code.modules]
    rows = [(f"files of more than {LINES} lines", _many(files, LINES))]
    for name, kernel in (("functions", False), ("kernels", True)):
        found = [one for one in functions(code) if one.kernel == kernel]
        rows += [
            (f"{name} of more than {FUNCTION_LINES} lines", _many((one.lines for one in found), FUNCTION_LINES)),
            (f"{name} of more than {ARGUMENTS} arguments", _many((one.arguments for one in found), ARGUMENTS)),
        ]
    return rows


def _many(sizes: Iterable[int], limit: int) -> str:
    found = list(sizes)
    return f"{sum(size > limit for size in found)} (the longest: {max(found, default=0)})"


def by_hand(path: Path) -> bool:
    """Does a module take a number out of bytes?"""
    calls = (node.func for node in ast.walk(tree(path)) if isinstance(node, ast.Call))
    return any(isinstance(called, ast.Attribute) and called.attr in LOADS for called in calls)


def by_reader(path: Path) -> bool:
    """Return True if a module takes numbers out of bytes through the `BoundedReader` of binary log events?"""
    nodes = (node for node in ast.walk(tree(path)) if isinstance(node, ast.ImportFrom) and node.module == READER)
    return any(alias.name == "BoundedReader" for node in nodes for alias in node.names)


def readers(code: Code) -> Rows:
    """Modules of formats that take numbers out of bytes by hand, by the reasons that the contract test lists."""
    known = modules_of_formats(code.root)
    found = {name for name, path in known.items() if by_hand(path)}
    reasons = _reasons(code.root / _REASONS)
    rows = [(why, str(len(found.intersection(names)))) for why, names in reasons.items()]
    named = {name for names in reasons.values() for name in names}
    rows += [("no reason is said", str(len(found - named))), ("all", str(len(found)))]
    return [*rows, ("and through `BoundedReader`", str(sum(map(by_reader, known.values()))))]


def _reasons(path: Path) -> dict[str, tuple[str, ...]]:
    """`BY_HAND` of the contract test, read without running it; nothing where there is none."""
    if not path.is_file():
        return {}
    words: dict[str, str] = {}
    for node in tree(path).body:
        if isinstance(node, ast.Assign) and isinstance(node.value, ast.Constant):
            words |= {ast.unparse(target): str(node.value.value) for target in node.targets}
        if (
            isinstance(node, ast.AnnAssign)
            and ast.unparse(node.target) == "BY_HAND"
            and isinstance(node.value, ast.Dict)
        ):
            pairs = zip(node.value.keys, node.value.values, strict=True)
            return {words[ast.unparse(key)]: ast.literal_eval(names) for key, names in pairs if key is not None}
    return {}


def kernels_of(code: Code) -> Rows:
    """Kernels: how many, how long, and how many take numbers out of bytes by hand."""
    count, lines = count_kernels(code)
    by_hand_ = sum(map(len, list_hand_readers(code).values()))
    return [("kernels", str(count)), ("their lines", str(lines)), ("read bytes by offsets of their own", str(by_hand_))]


SECTIONS = {
    "Lines and files": folders,
    "Modules and packages of a format": modules_of_packages,
    "Circles": circles_of,
    "What is long": long_ones,
    "Numbers taken out of bytes by hand, modules": readers,
    "Kernels": kernels_of,
}


def _kind(function: Function) -> str:
    return "kernel" if function.kernel else "function"


def longest(code: Code, count: int) -> Iterator[str]:
    """By name: the longest files and functions, the functions with too many arguments, the circles."""
    files = sorted(((lines_of(path), code.name_of(path)) for path in code.modules), reverse=True)[:count]
    yield from (f"file {lines:4} lines  {name}" for lines, name in files)
    found = sorted(functions(code), key=lambda one: -one.lines)
    yield from (f"{_kind(one)} {one.lines:3} lines  {one.module}.{one.name}" for one in found[:count])
    many = sorted((one for one in found if one.arguments > ARGUMENTS), key=lambda one: -one.arguments)
    yield from (f"{_kind(one)} {one.arguments:2} arguments  {one.module}.{one.name}" for one in many)
    for circle in circles(code.edges):
        yield f"circle of {len(circle)}: {' '.join(sorted(circle))}"
    yield from (f"closes a circle by a later import: {name}" for name in sorted(code.closing()))
