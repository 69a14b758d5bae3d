"""Inputs that are not there, or vanish in a conversion: a row and a line, or the end where that is wanted."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow.parquet as parquet
import pytest

import binlogtool
from binlogtool.core.record_and_selection_types import Selection
from binlogtool.errors import InputOutputError
from binlogtool.export.manifest import Manifest, ProgressStep
from binlogtool.export.write_typed_tables import TableSpooler
from tests.cli.invoke import invoke, program

RECORDS = 67
SALVAGE = Selection(on_damage="salvage")


@pytest.fixture
def fleet(samples: Path, tmp_path: Path) -> list[Path]:
    """Three logs of 67 records each."""
    paths = [tmp_path / f"{number}.log" for number in range(3)]
    for path in paths:
        shutil.copyfile(samples / "drizzle" / "basic-checksum.log", path)
    return paths


def removing(path: Path, stage: str) -> Callable[[ProgressStep], None]:
    """Removes a file when a stage begins."""

    def tell(step: ProgressStep) -> None:
        if step.stage == stage:
            path.unlink(missing_ok=True)

    return tell


def rows_of(output: Path) -> list[tuple[str, str, str | None]]:
    """File, type and finding of each row."""
    tables = [parquet.read_table(path, columns=["file", "type", "findings"]) for path in output.glob("part-*")]
    rows = [row for table in tables for row in table.to_pylist()]
    return [(r["file"], r["type"], r["findings"] and json.loads(r["findings"])[0]["id"]) for r in rows]


def assert_lost(done: Manifest, output: Path, gone: Path, finding: str) -> None:
    rows = rows_of(output)
    assert [row for row in rows if row[0] == str(gone)] == [(str(gone), "DAMAGE", finding)]
    assert len(rows) == done.rows == 2 * RECORDS + 1 and done.damage == 1 and done.complete
    assert done.exit_code == 1 and done.finding_counts[finding] == 1
    assert [text.startswith(f"{gone}: ") for text in done.details["unreadable"]] == [True]
    assert [i.records for i in done.inputs] == [0 if i.path == str(gone) else RECORDS for i in done.inputs]
    assert json.loads(binlogtool.manifest_as_json(done))["details"]["unreadable"] == done.details["unreadable"]


@pytest.mark.full
def test_an_input_that_is_not_there_is_a_row_and_a_line(fleet: list[Path], tmp_path: Path) -> None:
    gone, out = fleet[1], tmp_path / "rows"
    gone.unlink()
    words = ("convert", "--to", "parquet", "-o", str(out), *map(str, fleet))
    strict = program(*words)
    assert strict.returncode == 4 and str(gone).encode() in strict.stderr and not out.exists()
    for how in ("skip", "salvage"):
        done = program(*words, "--on-damage", how, "--overwrite", timeout=300)
        said = f"lost   {gone}: cannot be opened: No such file or directory\n".encode()
        assert done.returncode == 1 and said in done.stdout
        assert len(rows_of(out)) == 2 * RECORDS + 1


@pytest.mark.full
@pytest.mark.parametrize(
    ("stage", "finding"), [("reading headers", "input-unreadable"), ("converting", "changed-while-read")]
)
def test_an_input_that_vanishes_in_the_middle_is_a_row_and_a_line(
    fleet: list[Path],
    tmp_path: Path,
    stage: str,
    finding: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    gone, out = fleet[1], tmp_path / "rows"
    execute = TableSpooler.execute

    def late(writer: TableSpooler, task: Any) -> Any:
        gone.unlink(missing_ok=True)  # no task reads yet
        return execute(writer, task)

    if stage == "converting":
        monkeypatch.setattr(TableSpooler, "execute", late)
    done = binlogtool.convert(fleet, "parquet", out, selection=SALVAGE, on_step=removing(gone, stage))
    assert_lost(done, out, gone, finding)


@pytest.mark.full
def test_where_damage_stops_the_work_a_lost_input_does_too(fleet: list[Path], tmp_path: Path) -> None:
    gone, out = fleet[2], tmp_path / "rows"
    with pytest.raises(InputOutputError, match=str(gone)):
        binlogtool.convert(fleet, "parquet", out, on_step=removing(gone, "reading headers"))
    assert not out.exists() and not list(tmp_path.glob("rows.tmp-*"))


def test_what_is_no_log_is_no_lost_input(fleet: list[Path], tmp_path: Path) -> None:
    (tmp_path / "notes.txt").write_text("no log")
    words = ("convert", "--to", "parquet", "-o", str(tmp_path / "rows"), "--on-damage", "salvage")
    assert invoke(*words, str(fleet[0]), str(tmp_path / "notes.txt")).code == 3
