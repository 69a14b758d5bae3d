"""The parts of the figures that are not measured: the fit of the cost model, and the parser of the server's text."""

from __future__ import annotations

import io
from pathlib import Path

import pytest

from bench import scale
from bench.scale_model import fitted, model_of
from bench.scale_report import sections


def line(job: str, shape: str, gib: float, cores: int, cpu: float, **facts: float) -> dict[str, object]:
    """A point with 10 ms for each log to be listed."""
    size = int(gib * scale.GIB)
    files = max(1, size >> 20)
    return {
        "name": f"{job}-{shape}-{gib:g}-{cores}", "job": job, "shape": shape, "amount": gib, "cores": cores,
        "start_cpu": 10.0, "start_wall": 5.0, "cpu": cpu, "wall": 0.01 * files + (cpu - 0.01 * files) / cores,
        "peak": 1e8, "bytes": size, "files": files, "rows": 1000, "tasks": 8, "list": 0.01 * files, "reports": 500,
        "shuffle": 0, **facts,
    }  # fmt: skip


def test_a_fit_finds_the_coefficients_that_made_the_points() -> None:
    rows = [{"job": 1.0, "rows": float(n), "bytes": float(size)} for n in (10, 1000, 50_000) for size in (7, 9e6)]
    measured = [2.0 + 0.003 * row["rows"] + 4e-6 * row["bytes"] for row in rows]
    found = fitted(rows, measured)
    assert found.coefficients == pytest.approx({"job": 2.0, "rows": 0.003, "bytes": 4e-6})
    assert found.worst < 1e-9
    assert found.at({"rows": 2.0}) == pytest.approx(0.006)


def test_no_coefficient_of_a_fit_is_negative() -> None:
    rows = [{"job": 1.0, "rows": float(n)} for n in (1, 2, 3)]
    found = fitted(rows, [5.0, 4.0, 3.0]).coefficients
    assert found["rows"] == 0.0
    assert 3.0 < found["job"] < 5.0


def test_the_model_gives_the_clock_of_points_that_it_was_made_of() -> None:
    lines = [
        line("verify", shape, gib, cores, 1.0 + 20 * gib * factor, rows=1e6 * gib * factor)
        for shape, factor in (("small", 4), ("wide", 1)) for gib in (0.25, 1.0, 8.0) for cores in (1, 2)
    ]  # fmt: skip
    model = model_of(lines)
    assert model.serial["list"].coefficients["files"] == pytest.approx(0.01)
    assert [model.wall(one) for one in lines] == pytest.approx([one["wall"] for one in lines], rel=1e-3)
    made = sections(lines)
    assert "list the logs: one hour on the driver | 380 GB" in made["ends"]  # 3,600 s are 360,000 logs of 1 MiB
    assert len(made["points"].splitlines()) == len(lines) + 2


def test_a_document_gets_its_tables_between_the_marks_and_keeps_the_rest() -> None:
    text = "a\n<!-- scale:model -->\nold\n<!-- /scale:model -->\nb\n"
    assert scale.put(text, {"model": "| new |"}) == text.replace("old", "| new |")
    assert scale.put(scale.put(text, {"model": ""}), {"model": "old"}) == text


def test_points_are_named_once_and_chosen_by_name(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    names = [point.name for point in scale.points(scale.SIZES)]
    assert len(names) == len(set(names))
    assert scale.main([str(tmp_path / "none"), "convert-small-8*", "--list"]) == 0
    assert capsys.readouterr().out.split() == ["convert-small-8-1", "convert-small-8-2"]


TEXT = b"""\
DELIMITER /*!*/;
# at 423
# at 521
#261121  3:40:27 server id 2  end_log_pos 0 CRC32 0xf6bf277f \tAnnotate_rows:
#Q> update t set a=a+1
#261121 13:40:27 server id 2  end_log_pos 584 CRC32 0x13e51170 \tTable_map: `d`.`t` mapped to number 18
# at 584
#261121 13:40:27 server id 2  end_log_pos 647 CRC32 0x473c486c \tUpdate_rows: table id 18 flags: STMT_END_F
### UPDATE `d`.`t`
### WHERE
###   @1=17
### SET
###   @1='### SET'
### UPDATE `d`.`t`
### WHERE
###   @1=18
### SET
###   @1=19
# Number of rows: 2
"""


def test_the_text_of_the_servers_tool_becomes_rows(tmp_path: Path) -> None:
    parquet = pytest.importorskip("pyarrow.parquet")
    from bench import text_parse

    done = text_parse.parse(io.BytesIO(TEXT), tmp_path / "rows")
    assert (done.events, done.select_rows) == (3, 2)
    rows = parquet.read_table(tmp_path / "rows").to_pylist()
    assert [(row["offset"], row["type"], row["object"]) for row in rows] == [
        (423, "Annotate_rows", None), (521, "Table_map", None),
        (584, "Update_rows", "`d`.`t`"), (584, "Update_rows", "`d`.`t`"),
    ]  # fmt: skip
    assert [row["time"].hour for row in rows] == [3, 13, 13, 13]
    assert rows[2]["row"].split("\n")[-1] == "###   @1='### SET'"
    assert {row["server_id"] for row in rows} == {2} and rows[1]["end_log_pos"] == 584
