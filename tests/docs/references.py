"""References in docstrings and documents: anchors of `docs/spec`, paths in backticks, dotted names in backticks.

A dotted name is checked if it begins with a package, module or class of this project; all other names are foreign
(`fcntl.flock`, `innodb_binlog.cc`) and ignored.
"""

from __future__ import annotations

import ast
import importlib
import re
from functools import cache
from pathlib import Path
from typing import NamedTuple

from tests.package_figures.modules import tree

ROOT = Path(__file__).resolve().parents[2]

SPEC = re.compile(r"docs/spec/([\w-]+(?:\.\w+)?)(?:#([\w-]*))?")
NAME = re.compile(r"`([A-Za-z_]\w*(?:\.[A-Za-z_]\w*)+)(?:\(\))?`")
PATH = re.compile(r"`((?:binlogtool|formats|docs|tests|bench|examples|man|\.ci)/[\w./-]+(?<!/\d))`")
PLACEHOLDERS = ("NAME", "FORMAT", "X.py")
FILE_ENDINGS = {
    "c",
    "cc",
    "cnf",
    "conf",
    "cpp",
    "csv",
    "deb",
    "gz",
    "h",
    "html",
    "idx",
    "index",
    "json",
    "jsonl",
    "log",
    "lua",
    "md",
    "meta",
    "new",
    "orc",
    "parquet",
    "proto",
    "py",
    "pyz",
    "snap",
    "sql",
    "state",
    "svg",
    "tar",
    "toml",
    "txt",
    "xlog",
    "xml",
    "xz",
    "yml",
    "zip",
    "zst",
}
TOP_FOLDERS = {"binlogtool": "binlogtool", "formats": "binlogtool.formats"}
"""Folders of the product, and the package that each of them is."""


class Class(NamedTuple):
    """Names of the members and of the bases of a class."""

    members: set[str]
    bases: list[str]


class Index(NamedTuple):
    """Modules with the names that they define, and classes by name."""

    modules: dict[str, set[str]]
    classes: dict[str, list[Class]]

    def has_member(self, name: str, member: str, seen: frozenset[str] = frozenset()) -> bool:
        """Return whether any class of this name, or a base of it, has the member."""
        if name in seen:
            return False
        return any(
            member in one.members or any(self.has_member(base, member, seen | {name}) for base in one.bases)
            for one in self.classes.get(name, ())
        )


def product_files() -> list[tuple[str, Path]]:
    """Return the modules of the product as (dotted name, path)."""
    files = []
    for folder, package in TOP_FOLDERS.items():
        for path in sorted((ROOT / folder).rglob("*.py")):
            parts = path.relative_to(ROOT / folder).with_suffix("").parts
            if folder == "binlogtool" and parts[0] == "formats" and (ROOT / "binlogtool" / "formats").is_symlink():
                continue
            files.append((".".join((package, *(p for p in parts if p != "__init__"))), path))
    return files


def documents() -> list[Path]:
    """Return the Markdown files of the project, without generated ones and the changelog."""
    docs = [p for p in (ROOT / "docs").rglob("*.md") if "reference" not in p.relative_to(ROOT / "docs").parts]
    return sorted([*docs, *ROOT.glob("[CRS]*.md"), *(ROOT / "formats").glob("*/help.md")])


def build_index() -> Index:
    """Read the names of all modules and classes of the product, and the modules of its tools."""
    index = Index({}, {})
    for name, path in product_files():
        _add_module(index, name, tree(path))
    for folder in ("bench", "docs", "tests", "examples"):
        for path in (ROOT / folder).rglob("*.py"):
            parts = [p for p in path.relative_to(ROOT).with_suffix("").parts if p != "__init__"]
            index.modules.setdefault(".".join(parts), set()).update(_defined_at_margin(path.read_text("utf-8")))
    for name in list(index.modules):
        while "." in name:
            name, _, child = name.rpartition(".")
            index.modules.setdefault(name, set()).add(child)
    return index


def _add_module(index: Index, name: str, tree: ast.Module) -> None:
    index.modules.setdefault(name, set()).update(_defined(tree.body))
    for node in ast.walk(tree):
        if isinstance(node, ast.ClassDef):
            members = _defined(node.body) | {
                target.attr
                for target in ast.walk(node)
                if isinstance(target, ast.Attribute)
                and isinstance(target.ctx, ast.Store)
                and isinstance(target.value, ast.Name)
                and target.value.id == "self"
            }
            bases = [_last_name(base) for base in node.bases]
            index.classes.setdefault(node.name, []).append(Class(members, [base for base in bases if base]))


def _last_name(node: ast.expr) -> str:
    if isinstance(node, ast.Subscript):
        node = node.value
    return node.attr if isinstance(node, ast.Attribute) else node.id if isinstance(node, ast.Name) else ""


def _defined(body: list[ast.stmt]) -> set[str]:
    """Return the names that statements define, also inside of `if` and `try`."""
    names: set[str] = set()
    for node in body:
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            names.add(node.name)
        elif isinstance(node, ast.Import | ast.ImportFrom):
            names.update((alias.asname or alias.name).split(".")[0] for alias in node.names)
        elif isinstance(node, ast.Assign | ast.AnnAssign | ast.AugAssign):
            for target in node.targets if isinstance(node, ast.Assign) else [node.target]:
                names.update(part.id for part in ast.walk(target) if isinstance(part, ast.Name))
        elif isinstance(node, ast.If | ast.Try | ast.With | ast.For):
            inner = [*node.body, *getattr(node, "orelse", []), *getattr(node, "finalbody", [])]
            inner += [statement for handler in getattr(node, "handlers", []) for statement in handler.body]
            names |= _defined(inner)
    return names


def _defined_at_margin(source: str) -> set[str]:
    """Return the names that a module of the tools defines, by its text: to parse them all takes seconds."""
    names = set(re.findall(r"^(?:async def|def|class) (\w+)", source, re.MULTILINE))
    for targets in re.findall(r"^(\w+(?:, \w+)*)(?:: [^=\n]+)? = ", source, re.MULTILINE):
        names.update(targets.split(", "))
    return names


@cache
def docstrings(path: Path) -> list[tuple[int, str]]:
    """Return (line, text) of every string that is a statement: docstrings, and texts below assignments."""
    return [
        (node.lineno, node.value.value)
        for node in ast.walk(tree(path))
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant) and isinstance(node.value.value, str)
    ]


def heading_slugs(text: str) -> set[str]:
    """Return the anchors of a Markdown text, as GitHub and the site make them."""
    slugs = set()
    for title in re.findall(r"^#+ (.+?)\s*$", re.sub(r"^```.*?^```", "", text, flags=re.M | re.S), re.MULTILINE):
        slugs.add(re.sub(r"[^\w\- ]", "", title.lower()).replace(" ", "-"))
    return slugs


def broken_spec_references(text: str, folder: Path = ROOT / "docs" / "spec") -> list[str]:
    """Return the references to `docs/spec` whose file or heading does not exist."""
    broken = []
    for match in SPEC.finditer(text):
        if match[1].startswith(PLACEHOLDERS):
            continue
        path = folder / match[1]
        if not path.is_file() or (match[2] is not None and match[2] not in heading_slugs(path.read_text("utf-8"))):
            broken.append(match[0])
    return broken


def missing_paths(text: str, root: Path = ROOT) -> list[str]:
    """Return the paths of this project in backticks that do not exist."""
    return [
        path
        for path in PATH.findall(text)
        if not any(word in path for word in PLACEHOLDERS) and not (root / path).exists() and "reference" not in path
    ]


def stale_names(text: str, module: str, index: Index) -> list[str]:
    """Return the dotted names in backticks that begin with a name of this project and lead to nothing.

    Args:
        text: A docstring, or the text of a document.
        module: The dotted name of the module around it, "" for a document.
    """
    return [name for name in NAME.findall(text) if _is_own(name, module, index) and not _exists(name, module, index)]


def _is_own(name: str, module: str, index: Index) -> bool:
    first, *rest = name.split(".")
    if rest[-1] in FILE_ENDINGS:
        return False
    if first == "spark":  # options of Spark begin like the package
        return f"binlogtool.spark.{rest[0]}" in index.modules
    is_package = f"binlogtool.{first}" in index.modules or f"binlogtool.formats.{first}" in index.modules
    if first in {"binlogtool", "tests", "bench"} or first in index.classes or is_package:
        return True
    # deeper modules have names such as `header` and `source`, as fields have: a class after the dot makes it a module
    return bool(module) and re.match(r"[A-Z]\w*[a-z]", rest[0]) is not None and bool(_modules_called(first, index))


def _modules_called(name: str, index: Index) -> list[str]:
    return [module for module in index.modules if module.startswith("binlogtool.") and module.endswith(f".{name}")]


def _exists(name: str, module: str, index: Index) -> bool:
    parts = name.split(".")
    if parts[0] in ("binlogtool", "tests", "bench", "docs"):
        return _is_absolute(parts, index) or _can_import(parts)
    scopes = [module.rsplit(".", depth)[0] for depth in range(module.count(".") + 1)]
    prefixes = [*(scope for scope in scopes if scope), "binlogtool", "binlogtool.formats"]
    starts = [[*prefix.split("."), *parts] for prefix in prefixes]
    starts += [[*called.split("."), *parts[1:]] for called in _modules_called(parts[0], index)]
    if any(_is_absolute(start, index) for start in starts):
        return True
    owner = parts[0] if parts[0] in index.classes else parts[0].title().replace("_", "")
    return index.has_member(owner, parts[1])


def _is_absolute(parts: list[str], index: Index) -> bool:
    """Return whether the longest module in front is there, and has the rest as a name or as a member of a class."""
    for end in range(len(parts), 0, -1):
        if (module := ".".join(parts[:end])) in index.modules:
            rest = parts[end:]
            if not rest:
                return True
            return rest[0] in index.modules[module] and (len(rest) == 1 or index.has_member(rest[0], rest[1]))
    return False


def _can_import(parts: list[str]) -> bool:
    """Return whether the name exists at run time: names that modules define when they are asked for them."""
    for end in range(len(parts), 0, -1):
        try:
            value: object = importlib.import_module(".".join(parts[:end]))
        except ImportError:
            continue
        for part in parts[end:]:
            if not hasattr(value, part):
                return False
            value = getattr(value, part)
        return True
    return False
