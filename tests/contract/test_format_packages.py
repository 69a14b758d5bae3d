"""The packages of the formats: none imports another one, and those of the common events are layers."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

from binlogtool import formats

FORMATS = Path(__file__).resolve().parents[2] / "formats"
CONTAINERS = sorted(p.parent.name for p in FORMATS.glob("*/format.py"))
LIBRARIES = sorted(p.name for p in FORMATS.iterdir() if (p / "__init__.py").is_file() and p.name not in CONTAINERS)
LAYERS = (
    "wire_format", "values", "status_variables", "gtid", "crypt", "rows", "event_schemas", "write_mariadb_binlog",
    "transactions.boundaries", "ddl", "decode", "transactions", "json_line_kernels", "record_text", "sql",
    "replay", "changes",
)  # fmt: skip
"""Packages and modules of `binlog_events`; each imports only those before it. `transactions.boundaries` reads single
events, the rest of that package what `decode` keeps of many."""


def layer_of(parts: tuple[str, ...]) -> int:
    """The place of a module of `binlog_events` in the order."""
    inner = ".".join(parts[:2])
    return LAYERS.index(inner if inner in LAYERS else parts[0])


def imported(path: Path) -> Iterator[tuple[str, ...]]:
    """Modules below `binlogtool.formats` that a file imports, at its top or later."""
    for node in ast.walk(ast.parse(path.read_text("utf-8"))):
        if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("binlogtool.formats"):
            parts = tuple((node.module or "").split(".")[2:])
            yield from ((*parts, alias.name) for alias in node.names)


def test_every_built_in_format_is_a_package_and_the_libraries_are_none() -> None:
    assert {name.replace("-", "_") for name in formats._BUILT_IN} == set(CONTAINERS)
    assert LIBRARIES == ["binlog_events", "innodb"]


@pytest.mark.parametrize("name", [*CONTAINERS, *LIBRARIES])
def test_formats_know_each_other_only_by_their_libraries(name: str) -> None:
    for path in sorted((FORMATS / name).rglob("*.py")):
        others = {parts[0] for parts in imported(path) if parts[0] in CONTAINERS}
        assert others <= {name}, path


def test_the_packages_of_the_events_import_lower_ones_only() -> None:
    library = FORMATS / "binlog_events"
    upward = [
        (str(path.relative_to(library)), ".".join(parts[1:]))
        for path in sorted(library.rglob("*.py"))
        for parts in imported(path)
        if parts[0] == "binlog_events"
        and path != library / "__init__.py"
        and layer_of(parts[1:]) > layer_of(path.relative_to(library).with_suffix("").parts)
    ]
    assert upward == []


def test_every_package_and_module_of_the_events_has_a_layer() -> None:
    library = FORMATS / "binlog_events"
    found = {path.relative_to(library).with_suffix("").parts[0] for path in library.rglob("*.py")} - {"__init__"}
    assert found == {name for name in LAYERS if "." not in name}
    assert (library / "transactions" / "boundaries.py").is_file()


def test_native_code_is_made_for_every_built_in_format() -> None:
    from binlogtool.native_build.collect_kernels import iter_compiled_layouts

    assert {format_.name.replace("-", "_") for _, format_ in iter_compiled_layouts()} == set(CONTAINERS)
