"""`convert --append` of typed rows: what grows is appended once, with the columns of its table."""

from __future__ import annotations

import gzip
import json
import random
import shutil
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as parquet
import pytest

import binlogtool
from binlogtool.core.record_and_selection_types import Selection
from binlogtool.export.output_options import COMPRESSIONS
from binlogtool.export.table_files import read_tables
from tests.cli.invoke import invoke
from tests.export.test_row_tasks import ONE, TWO, int32, rows_event, write_log
from tests.harness.mysql_writer import query, transaction
from tests.sampling import EXHAUSTIVE

COMMAND = [sys.executable, "-m", "binlogtool", "convert", "--append", "--per-table", "--to", "parquet"]


def committed(out: Path) -> dict[str, Any]:
    newest = max((out / "_binlogtool").glob("[0-9]*.json"), key=lambda path: int(path.stem))
    commit: dict[str, Any] = json.loads(newest.read_text())
    return commit


def rows_of(out: Path) -> dict[str, list[dict[str, Any]]]:
    """The rows that the newest commit lists, by table, without their generation and the folder of the log."""
    tables: dict[str, list[dict[str, Any]]] = {}
    for one in committed(out)["outputs"]:
        rows = parquet.ParquetFile(out / one["path"]).read().to_pylist()
        assert len(rows) == one["rows"] and {row.pop("generation") for row in rows} == {0}
        tables.setdefault(str(Path(one["path"]).parent), []).extend(rows)
    return {name: [{**row, "file": Path(row["file"]).name} for row in rows] for name, rows in tables.items()}


def rows_at_once(log: Path, out: Path) -> dict[str, list[dict[str, Any]]]:
    binlogtool.convert(log, "parquet", out, per_table=True, selection=Selection(on_damage="skip"))
    return {
        folder.name: [
            {**row, "file": Path(row["file"]).name}
            for path in sorted(folder.glob("part-*"))
            for row in parquet.ParquetFile(path).read().to_pylist()
        ]
        for folder in out.iterdir()
        if folder.is_dir()
    }


def without_nulls(tables: dict[str, list[dict[str, Any]]]) -> dict[str, list[dict[str, Any]]]:
    """Rows of files that were written before a column was added have no such column."""
    return {name: [{k: v for k, v in row.items() if v is not None} for row in rows] for name, rows in tables.items()}


@pytest.mark.parametrize("seed", [1, 2])
@pytest.mark.parametrize("kind", ["guides/mariadb", "mysql_binlog/sets/mysql"])
def test_a_log_that_grows_in_torn_pieces_has_the_rows_of_one_conversion(
    kind: str, seed: int, samples: Path, tmp_path: Path
) -> None:
    log, out, choose = tmp_path / "log", tmp_path / "out", random.Random(seed)
    log.mkdir()
    for source in sorted(path for path in (samples / kind).iterdir() if path.suffix[1:].isdigit()):
        data, end = source.read_bytes(), 0
        while end < len(data):
            end = min(len(data), end + choose.randrange(1, max(2, len(data) // 2)))
            (log / source.name).write_bytes(data[:end])
            done = invoke("convert", "--append", "--per-table", "--to", "parquet", "-o", str(out), str(log))
            assert done.code == 0, done.err
    invoke("convert", "--append", "--final", "--per-table", "--to", "parquet", "-o", str(out), str(log))
    assert committed(out)["number"] > 2
    assert without_nulls(rows_of(out)) == without_nulls(rows_at_once(log, tmp_path / "once"))


@pytest.mark.parametrize("to", COMPRESSIONS)
def test_every_table_format_is_appended_and_proven(to: str, samples: Path, tmp_path: Path) -> None:
    out = tmp_path / "out"
    words = ("convert", "--append", "--final", "--object", "shop.orders", "--to", to, "-o", str(out))
    done = invoke(*words, str(samples / "guides" / "mariadb"))
    assert done.code == 0, done.err
    (output,) = committed(out)["outputs"]
    assert "/" not in output["path"]
    (found,) = list(read_tables(to, out / output["path"], pa.schema([("op", pa.string()), ("record", pa.int64())])))
    assert found.num_rows == output["rows"] == committed(out)["rows"] == 9
    assert found["op"].to_pylist() == ["INSERT"] * 4 + ["DELETE"] * 4 + ["INSERT"]


def test_other_options_another_kind_and_no_such_table_are_refused(samples: Path, tmp_path: Path) -> None:
    log, out = str(samples / "guides" / "mariadb"), str(tmp_path / "out")
    done = invoke("convert", "--append", "--to", "parquet", "--object", "shop.none", "-o", out, log)
    assert done.code == 2 and "the log contains no such table" in done.err
    assert invoke("convert", "--append", "--to", "parquet", "--per-table", "-o", out, log).code == 0
    for words in ((), ("--per-table", "--image", "both"), ("--object", "shop.orders")):
        done = invoke("convert", "--append", "--to", "parquet", *words, "-o", out, log)
        assert done.code == 5 and "other options" in done.err
    shutil.rmtree(out)
    done = invoke("convert", "--append", "--to", "parquet", "--per-table", "--partition-by", "op", "-o", out, log)
    assert done.code == 2 and "--partition-by" in done.err


@pytest.mark.full
def test_runs_that_are_killed_add_every_row_once(samples: Path, tmp_path: Path) -> None:
    log, out, choose, killed = tmp_path / "log", tmp_path / "out", random.Random(3), 0
    shutil.copytree(samples / "guides" / "mariadb", log)
    sizes = {path: path.stat().st_size for path in sorted(log.glob("mariadb-bin.0*"))}
    whole = {path: path.read_bytes() for path in sizes}
    for path in sizes:
        path.unlink()
    for path, data in whole.items():
        for end in (len(data) // 3, len(data) // 2, len(data)):
            path.write_bytes(data[:end])
            for _ in range(4 if EXHAUSTIVE else 1):
                with subprocess.Popen([*COMMAND, "-o", str(out), str(log)], stdout=-3, stderr=-3) as process:
                    try:
                        process.communicate(timeout=choose.uniform(0.3, 1.2))
                    except subprocess.TimeoutExpired:
                        process.send_signal(signal.SIGKILL)
                        killed += 1
    done = subprocess.run([*COMMAND, "--final", "-o", str(out), str(log)], capture_output=True, check=False)
    assert done.returncode == 0 and killed > (2 if EXHAUSTIVE else 0)
    assert without_nulls(rows_of(out)) == without_nulls(rows_at_once(log, tmp_path / "once"))
    listed = {one["path"] for one in committed(out)["outputs"]}
    assert {str(path.relative_to(out)) for path in out.rglob("part-*")} == listed


def test_columns_that_come_in_a_later_run_are_in_its_files_and_the_commit_knows_them(
    samples: Path, tmp_path: Path
) -> None:
    """Changes of tests/workloads/ddl-mysql.sql to the table `e`, one event more in each run."""
    out, log = tmp_path / "out", tmp_path / "log"
    log.mkdir()
    packed, source = (
        samples / "mysql_binlog" / "workloads" / "mysql-9" / "ddl-mysql.row.000001.gz",
        tmp_path / "b.000001",
    )
    source.write_bytes(data := gzip.decompress(packed.read_bytes()))
    with binlogtool.open(source) as opened:
        ends = [*[record.offset for record in opened.records()][1:], len(data)]
    for end in ends[len(ends) // 2 :: 3]:
        (log / source.name).write_bytes(data[:end])
        done = invoke("convert", "--append", "--per-table", "--to", "parquet", "-o", str(out), str(log))
        assert done.code == 0, done.err
    (log / source.name).write_bytes(data)
    invoke("convert", "--append", "--final", "--per-table", "--to", "parquet", "-o", str(out), str(log))
    shown = [(row["op"], row["id"], row.get("v"), row.get("w"), row.get("w w")) for row in rows_of(out)["w.e"]]
    assert shown == [
        ("INSERT", 1, 1, None, None), ("INSERT", 2, -1, None, None), ("INSERT", 3, 3, 3, None),
        ("UPDATE", 1, None, 8, None), ("INSERT", 4, None, None, 4),
    ]  # fmt: skip
    (known,) = [one for one in committed(out)["tables"] if one["name"] == "w.e"]
    assert [name for name, _ in known["columns"]] == ["id", "v", "w", "w w"] and known["directory"] == "w.e"


@pytest.mark.parametrize("runs", [1, 2])
def test_changes_of_tables_are_shown_as_in_a_plain_run(runs: int, tmp_path: Path) -> None:
    """Also a change to a column that an earlier run has written."""
    first = [query(b"create table d.t (a int)"), *transaction(ONE, rows_event(int32(1)), number=1)]
    second = [query(b"alter table d.t add b int"), *transaction(TWO, rows_event(int32(2, 3), columns=2), number=2)]
    folder, out = tmp_path / "log", tmp_path / "out"
    folder.mkdir()
    paths = write_log(folder, first, second)
    command = ("convert", "--on-damage", "skip", "--per-table", "--to", "parquet", "-o")
    plain = invoke(*command, str(tmp_path / "plain"), *map(str, paths))
    if runs == 2:
        done = invoke(*command, str(out), "--append", "--final", str(paths[0]))
        assert done.code == 0 and "note " not in done.text
    done = invoke(*command, str(out), "--append", "--final", *map(str, paths))
    notes = [line for line in plain.text.splitlines() if line.startswith("note ")]
    assert len(notes) == 1 and notes[0].endswith(": the column b (int) is new")
    assert [line for line in done.text.splitlines() if line.startswith("note ")] == notes
