"""Tables whose names join alike, or differ by the case of letters, stay as many tables as a real server has."""

from __future__ import annotations

import json
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import binlogtool
from binlogtool import convert
from binlogtool.core.record_and_selection_types import Selection
from binlogtool.errors import UsageError
from binlogtool.export.write_spooled_rows_to_table_files import TableDirectories
from binlogtool.format_api.row_output_interfaces import qualify_name, split_table_name
from tests.cli.invoke import invoke
from tests.export.typed_logs import rows
from tests.formats.mysql_binlog.server import Server

_LONG = "表" * 40, "库" * 40
_SCRIPT = f"""
CREATE DATABASE `d`; CREATE DATABASE `d.x`; CREATE DATABASE `D`; CREATE DATABASE `{_LONG[1]}`;
CREATE TABLE `d.x`.`t` (a INT PRIMARY KEY, b TEXT); CREATE TABLE `d`.`x.t` (c INT PRIMARY KEY, e TEXT);
INSERT INTO `d.x`.`t` VALUES (1,'one'), (2,'two'); INSERT INTO `d`.`x.t` VALUES (3,'three');
CREATE TABLE d.`a``b/c` (i INT); INSERT INTO d.`a``b/c` VALUES (4);
CREATE TABLE d.t (i INT); CREATE TABLE D.t (i INT); CREATE TABLE D.T (i INT);
INSERT INTO d.t VALUES (5); INSERT INTO D.t VALUES (6); INSERT INTO D.T VALUES (7);
CREATE TABLE `{_LONG[1]}`.`{_LONG[0]}` (i INT); INSERT INTO `{_LONG[1]}`.`{_LONG[0]}` VALUES (8);
UPDATE `d.x`.`t` SET b = 'zwei' WHERE a = 2; DROP DATABASE `d.x`; INSERT INTO d.`x.t` VALUES (9, 'nine')
"""
_ROWS = {
    "`d.x`.t": [{"a": 1, "b": "one"}, {"a": 2, "b": "two"}, {"a": 2, "b": "zwei"}],
    "d.`x.t`": [{"c": 3, "e": "three"}, {"c": 9, "e": "nine"}],
    "d.a`b/c": [{"i": 4}],
    "d.t": [{"i": 5}],
    "D.t": [{"i": 6}],
    "D.T": [{"i": 7}],
    f"{_LONG[1]}.{_LONG[0]}": [{"i": 8}],
}


@pytest.fixture(scope="module", params=["FULL", "MINIMAL"])
def log(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """With the names of columns in its maps, and in its CREATE TABLEs alone."""
    options = (
        "--log-bin=bin",
        "--server-id=1",
        "--skip-networking",
        "--binlog-format=ROW",
        "--lower-case-table-names=0",
    )
    metadata = f"--binlog-row-metadata={request.param}"
    with tempfile.TemporaryDirectory(prefix="bt-") as home, Server(Path(home), *options, metadata) as server:
        assert server.run(_SCRIPT.encode()) == ""
        made = tmp_path_factory.mktemp("names") / "bin.000001"
        made.write_bytes((server.data / "bin.000001").read_bytes())
    yield made


def own(given: list[dict[str, Any]], like: list[dict[str, Any]]) -> list[dict[str, Any]]:
    return [{name: row[name] for name in like[0]} for row in given]


@pytest.mark.server
@pytest.mark.skipif(Server.program() is None, reason="no mariadbd")
@pytest.mark.parametrize("envelope", [None, "maxwell"])
def test_each_table_of_a_server_has_a_directory_that_no_other_has(
    log: Path, tmp_path: Path, envelope: str | None
) -> None:
    done = convert([log], "parquet", tmp_path / "out", per_table=True, envelope=envelope and {"envelope": envelope})
    found = {one["name"]: one["directory"] for one in done.details["tables"]}
    assert found.keys() == _ROWS.keys()
    assert len({one.casefold() for one in found.values()}) == len(_ROWS)
    assert max(len(one.encode()) for one in found.values()) <= 200
    for name, wanted in _ROWS.items():
        made = rows(tmp_path / "out" / found[name])
        assert own([row["data"] for row in made] if envelope else made, wanted) == wanted


@pytest.mark.server
@pytest.mark.skipif(Server.program() is None, reason="no mariadbd")
def test_a_name_that_two_tables_have_is_refused_and_their_full_names_are_not(log: Path, tmp_path: Path) -> None:
    told = "the log has two tables of this name: `d.x`.t and d.`x.t`; name one of them"
    for options in ([], ["--envelope", "maxwell"]):
        words = ["convert", str(log), "--to", "json", "-o", str(tmp_path / "no"), "--object", "d.x.t", *options]
        result = invoke(*words)
        assert result.code == 2 and told in result.err and not (tmp_path / "no").exists()
    with binlogtool.open(log) as opened:
        with pytest.raises(UsageError, match="the log has two tables of this name"):
            list(opened.rows("d.x.t"))
        for name in ("`d.x`.t", "d.`x.t`"):
            assert own(list(opened.rows(name)), _ROWS[name]) == _ROWS[name]
    for number, name in enumerate(("`d.x`.t", "d.`x.t`")):
        convert([log], "json", tmp_path / f"{number}", selection=Selection(objects=(name,)))
        (part,) = (tmp_path / f"{number}").glob("part-*")
        lines = list(map(json.loads, part.read_text().splitlines()))
        assert own(lines, _ROWS[name]) == _ROWS[name]


@pytest.mark.parametrize(
    "names", [("d", "t"), ("d.x", "t"), ("d", "x.t"), ("`d", "t"), ("d", "`"), ("d`.`x", "t"), ("", "t"), ("d`", "a`b")]
)
def test_a_full_name_is_taken_apart_again(names: tuple[str, str]) -> None:
    assert split_table_name(qualify_name(*names)) == names


def test_directories_differ_where_no_case_is_told_apart() -> None:
    names = [
        "a.B",
        "A.B",
        "a.b",
        "%41.b",
        ".a",
        ".A",
        "_a",
        "",
        "é.x",
        "É.x",
        "x" * 300,
        "X" * 300,
        "\udc80",
        "表" * 100,
    ]
    made = TableDirectories()
    found = [made.get_table_directory(name) for name in names]
    assert found[0] == "a.B" and len({one.casefold() for one in found}) == len(names)
    assert [made.get_table_directory(name) for name in names] == found
    assert all(0 < len(one) <= 200 and one[0] not in "._" and "/" not in one for one in found)
