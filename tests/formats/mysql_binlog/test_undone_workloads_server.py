"""The rows of workloads taken back (see `undone_workloads`): the tables are empty, as they were before."""

from __future__ import annotations

import gzip
import json
import os
import tempfile
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pytest

from binlogtool import convert
from binlogtool.core.record_and_selection_types import Selection
from binlogtool.format_api.format import Hints
from tests.formats.mysql_binlog.server import Server
from tests.formats.mysql_binlog.server_state import differences, state_of
from tests.formats.mysql_binlog.server_trees import programs_of
from tests.formats.mysql_binlog.undone_workloads import (
    BY_ITSELF,
    CASCADES,
    RECORD,
    SERVERS,
    chosen_cases,
    faults,
    undone,
)
from tests.formats.mysql_binlog.workloads import FOLDER, Pair, Recorded, Workload, pair
from tests.sampling import take_sample


def _servers(name: str) -> Iterator[Pair]:
    with tempfile.TemporaryDirectory(prefix="bt-") as folder, ExitStack() as stack:
        found = pair(name, Path(folder), stack)
        assert found is not None
        yield found


@pytest.fixture(scope="module")
def installed() -> Iterator[Pair]:
    if Server.program() is None and os.environ.get("BINLOGTOOL_SERVER") != "1":
        pytest.skip("no mariadbd is installed; BINLOGTOOL_SERVER=1 demands one")
    yield from _servers("mariadb")


@pytest.fixture(scope="module")
def mysql() -> Iterator[Pair]:
    if programs_of("mysql-9") is None:
        pytest.skip("make it with .ci/server-tree mysql-9")
    yield from _servers("mysql-9")


@pytest.mark.server
@pytest.mark.full
@pytest.mark.parametrize(
    ("load", "mode"), take_sample(chosen_cases("mariadb"), 3), ids=lambda one: getattr(one, "name", one)
)
def test_an_undo_leaves_tables_without_a_row(load: Workload, mode: str, installed: Pair) -> None:
    assert faults(load.name, undone(installed, load, mode)) == []


@pytest.mark.nightly
@pytest.mark.parametrize("server", SERVERS[1:])
def test_an_undo_leaves_tables_of_other_servers_without_a_row(server: str) -> None:
    if programs_of(server) is None:
        pytest.skip(f"make it with .ci/server-tree {server}")
    with contextmanager(_servers)(server) as here:
        cases = chosen_cases(server)
        found = {f"{load.name}/{mode}": faults(load.name, undone(here, load, mode)) for load, mode in cases}
    assert {case: one for case, one in found.items() if one} == {}


@pytest.mark.nightly
@pytest.mark.parametrize("way", ["exact", "statements"])
def test_changes_inside_of_json_are_taken_back(way: str, mysql: Pair, tmp_path: Path) -> None:
    """Up to a point between the rows and their changes: every value is what it was there."""
    server, text = mysql.logging, (FOLDER / "partial-json.sql").read_bytes()
    parts = [part for part in text.split(b";\n") if not part.startswith((b"BEGIN", b"ROLLBACK", b"SAVEPOINT"))]
    changes = [part for part in parts if part.lstrip().startswith((b"UPDATE", b"DELETE"))]
    mysql.clean(server)
    options = "binlog_format='ROW', GLOBAL binlog_row_image='FULL', GLOBAL binlog_row_metadata='FULL'"
    assert server.run(f"SET GLOBAL {options}, GLOBAL binlog_row_value_options='PARTIAL_JSON'".encode()) == ""
    assert server.run(b";\n".join(part for part in parts if part not in changes)) == ""
    before = state_of(server)
    assert server.run(b"FLUSH BINARY LOGS; USE w; " + b";\n".join(changes) + b"; FLUSH BINARY LOGS") == ""
    assert len(differences(before, state_of(server))) == 4
    log, out = server.data / "bin.000002", tmp_path / "undo.sql"
    assert sum(one.type == "Update_rows_partial" for one in server.events("bin.000002")) > 20
    defined = "".join(part.decode() + ";\n" for part in parts if part.startswith((b"CREATE", b"--")))
    done = convert(
        [log], "flashback", out, selection=Selection(on_damage="stop"), rows=way, hints=Hints(schema=defined)
    )
    assert done.complete and done.findings == ()
    assert server.run(out.read_bytes()) == ""
    assert differences(before, state_of(server)) == []


@pytest.mark.parametrize("server", SERVERS)
def test_undos_of_all_workloads_are_recorded(server: str) -> None:
    """Every table is empty that is defined once; what is refused is named above."""
    cases = json.loads(RECORD.read_text("utf-8"))[server]["cases"]
    assert list(cases) == [f"{load.name}/{mode}" for load, mode in chosen_cases(server)]
    ours = {f"{case} {run['way']}": run for case, runs in cases.items() for run in runs if run["way"] != "control"}
    assert {case.split("/")[0] for case, run in ours.items() if run["refused"]} <= {*BY_ITSELF}
    assert [case for case, run in ours.items() if not {*run["left"]} <= {*run["redefined"]}] == []
    errors = {case.split("/")[0] for case, run in ours.items() if run["errors"] and not run["redefined"]}
    assert errors <= {*CASCADES}
    assert sum(run["tables"] - len(run["left"]) for run in ours.values() if not run["refused"]) > 150


def _undo(case: str, tmp_path: Path) -> tuple[bool, list[str]]:
    log = tmp_path / "bin.000001"
    log.write_bytes(gzip.decompress((Recorded.folder / "mariadb" / f"{case}.000001.gz").read_bytes()))
    done = convert([log], "flashback", tmp_path / "u.sql", selection=Selection(on_damage="stop"), skip_ddl=True)
    return done.complete, [str(one["message"]) for one in done.findings]


def test_numbers_of_a_sequence_are_left_out_with_a_word(tmp_path: Path) -> None:
    complete, told = _undo("types-mariadb.row", tmp_path)
    assert complete
    assert (
        [line for line in told if "sequence" in line.lower() and "CREATE" not in line]
        == [line for line in told if line.endswith(": w.s is a sequence: the numbers that it issued are not reversed")]
        != []
    )
    assert b"`w`.`s`" not in (tmp_path / "u.sql").read_bytes()


def test_a_definition_in_another_sql_mode_is_one(tmp_path: Path) -> None:
    complete, told = _undo("events-quoted.row", tmp_path)
    assert complete
    names = ("w.t /*!*/;", "w.log", "w.kept", "w ;--.ソ")  # the last one in sjis
    assert [line.partition(": ")[2] for line in told if "CREATE TABLE" in line] == [
        f"CREATE TABLE ({name}) is not reversed because of --skip-ddl" for name in names
    ]
