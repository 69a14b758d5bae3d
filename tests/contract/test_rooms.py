"""The rooms of the formats: the same names in each, and no way from one format into another."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

from binlogtool import formats

FORMATS = Path(__file__).resolve().parents[2] / "formats"
CONTAINERS = sorted(p.parent.name for p in FORMATS.glob("*/format.py"))
LIBRARIES = sorted(p.name for p in FORMATS.iterdir() if (p / "__init__.py").is_file() and p.name not in CONTAINERS)
ROOMS = {
    "__init__", "format", "native", "codes", "schema", "layout", "meaning", "judge", "members", "damage", "cuts",
    "repair", "replay", "tables", "changes", "bundles",
}  # fmt: skip
"""What a format is asked for, each a file or a folder; in a folder the file of that name is the door."""
NEEDED = {"__init__", "format", "schema", "layout", "meaning", "judge", "damage", "replay"}
OF_THE_EVENTS = {"mysql_binlog": {"meaning"}}
"""Rooms that are those of `binlog_events`."""
DECODING = {
    "drizzle": {"protobuf"},
    "eblob": {"groups"},
    "manticore": {"payloads"},
    "mariadb_innodb_binlog": {"records", "groups", "redo", "sql"},
    "mysql_binlog": set[str](),
    "tarantool": {"msgpack", "rows", "spaces"},
}
"""Folders named for what they decode."""
FLOORS = (
    "codes", "wire", "values", "gtid", "crypt", "rows", "events", "ddl", "groups", "stream", "sql", "apply", "changes",
)  # fmt: skip
"""Rooms of `binlog_events`, each built on those before it."""


def rooms(folder: Path) -> set[str]:
    """Files and folders of a package, without what is no Python."""
    packages = {p.name for p in folder.iterdir() if (p / "__init__.py").is_file()}
    return packages | {p.stem for p in folder.glob("*.py")}


def imported(path: Path) -> Iterator[tuple[str, ...]]:
    """Modules below `binlogtool.formats` that a file imports, at its top or later."""
    for node in ast.walk(ast.parse(path.read_text("utf-8"))):
        if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("binlogtool.formats"):
            parts = tuple((node.module or "").split(".")[2:])
            yield from ((*parts, alias.name) for alias in node.names)


def test_every_built_in_format_is_a_package_and_the_library_of_events_is_none() -> None:
    assert {name.replace("-", "_") for name in formats._BUILT_IN} == set(CONTAINERS)
    assert LIBRARIES == ["binlog_events"]


@pytest.mark.parametrize("name", CONTAINERS)
def test_a_format_has_the_rooms_that_all_have_and_folders_for_what_it_decodes(name: str) -> None:
    found = rooms(FORMATS / name)
    assert NEEDED - OF_THE_EVENTS.get(name, set()) <= found
    assert found <= ROOMS | DECODING[name]
    assert (FORMATS / name / "help.md").is_file()
    assert {p.suffix for p in (FORMATS / name).iterdir() if p.is_file()} == {".py", ".md"}


@pytest.mark.parametrize("name", CONTAINERS)
def test_the_door_of_a_room_that_is_a_folder_has_its_name(name: str) -> None:
    folders = [FORMATS / name / room for room in ROOMS if (FORMATS / name / room).is_dir()]
    assert all((folder / f"{folder.name}.py").is_file() for folder in folders)
    assert all(not ast.parse((p / "__init__.py").read_text("utf-8")).body[1:] for p in folders)


@pytest.mark.parametrize("name", [*CONTAINERS, *LIBRARIES])
def test_formats_know_each_other_only_by_their_libraries(name: str) -> None:
    for path in sorted((FORMATS / name).rglob("*.py")):
        others = {parts[0] for parts in imported(path) if parts[0] in CONTAINERS}
        assert others <= {name}, path


def test_the_rooms_of_the_events_stand_on_those_below() -> None:
    library = FORMATS / "binlog_events"
    assert rooms(library) == {"__init__", *FLOORS}
    upward = [
        (str(path.relative_to(library)), parts[1])
        for path in sorted(library.rglob("*.py"))
        for parts in imported(path)
        if parts[0] == "binlog_events"
        and path != library / "__init__.py"
        and FLOORS.index(parts[1]) > FLOORS.index(path.relative_to(library).with_suffix("").parts[0])
    ]
    assert upward == []


def test_native_code_is_made_for_each_format_that_says_for_what() -> None:
    from binlogtool.schema.enumerated import layouts

    made = {format_.name.replace("-", "_") for _, format_ in layouts()}
    assert made == {path.parent.name for path in FORMATS.glob("*/native.py")} != set()
