"""A real standalone cluster on the loopback: the package travels in a zip, results are those of one process."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import binlogtool
from binlogtool.core.record_and_selection_types import Selection
from binlogtool.errors import InputOutputError
from binlogtool.export import task_planning
from binlogtool.report.diagnosis_and_replay import replay_to_json
from binlogtool.spark.session import SparkJobSession, open_session
from tests.export.cluster import bare_python
from tests.export.reports import as_json
from tests.export.store import keys_below, put
from tests.sampling import EXHAUSTIVE, take_sample

pytestmark = [pytest.mark.spark, pytest.mark.full]

MARIADB, MYSQL = (f"mysql-binlog/generated/{server}/mixed-ddl" for server in ("mariadb-11.8", "mysql-9.7"))
TARANTOOL = "tarantool/generated/chain"
CONVERSIONS = [
    (MARIADB, "records"), (MARIADB, "rows"), (MARIADB, "debezium"),
    (TARANTOOL, "records"), (TARANTOOL, "rows"), (MYSQL, "debezium"),
]  # fmt: skip
FLEET = 3000 if EXHAUSTIVE else 90


@pytest.fixture(scope="module")
def remote(store: Any, request: pytest.FixtureRequest) -> Iterator[SparkJobSession]:
    """A session on a cluster whose Python has no binlogtool. Its workers know where the store is."""
    folder, url = request.getfixturevalue("cluster_of_two")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PYSPARK_PYTHON", str(bare_python(folder)))
        with open_session(url) as session:
            yield session


def test_the_executors_use_the_package_from_the_zip(remote: SparkJobSession) -> None:
    def origin(_: int) -> tuple[str, str]:  # inside a function it is sent as it is: executors have no tests
        import os

        import binlogtool
        from binlogtool import formats

        return os.path.abspath(binlogtool.__file__), os.path.abspath(formats.__file__)

    found = set(
        remote.run_spark_action(lambda: remote.spark.sparkContext.parallelize(range(8), 8).map(origin).collect())
    )
    assert len({one[0] for one in found}) == 2  # two workers, each with its own copy
    for package, formats in found:
        assert package.endswith("/binlogtool.zip/binlogtool/__init__.py") and "/work/app-" in package
        assert formats.endswith("/binlogtool.zip/binlogtool/formats/__init__.py")


def test_a_conversion_on_the_cluster_is_whole(remote: SparkJobSession, samples: Path, tmp_path: Path) -> None:
    import pyarrow.parquet as parquet

    log = samples / "drizzle" / "basic-checksum.log"
    done = binlogtool.convert([log], "parquet", tmp_path / "rows", session=remote)
    assert done.complete and done.rows == 67
    tables = [parquet.read_table(path) for path in (tmp_path / "rows").glob("part-*")]
    assert sorted(number for table in tables for number in table["record"].to_pylist()) == list(range(67))


@pytest.mark.parametrize(("name", "kind"), take_sample(CONVERSIONS, 2))
def test_rows_of_two_executors_are_those_of_this_process(
    remote: SparkJobSession, corpus: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str, kind: str
) -> None:
    """Compared by DuckDB; the path is relative, and executors have other working directories."""
    import duckdb

    options: dict[str, Any] = {"selection": Selection(on_damage="skip"), "per_table": kind != "records"}
    if kind == "debezium":
        options["envelope"] = {"envelope": kind}
    shutil.copytree(corpus / name, tmp_path / "logs")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(task_planning, "MIN_SPLIT_SIZE", 1024)
    here = binlogtool.convert(["logs"], "parquet", "here", **options)
    there = binlogtool.convert(["logs"], "parquet", "there", **options, session=remote)
    assert there.complete and there.rows == here.rows and here.rows
    assert there.finding_counts == here.finding_counts
    folders = {path.parent.relative_to("here") for path in Path("here").rglob("part-*")}
    assert folders == {path.parent.relative_to("there") for path in Path("there").rglob("part-*")}
    for folder in folders:
        tables = [f"select * from read_parquet('{one / folder}/part-*')" for one in (Path("here"), Path("there"))]
        for first, second in (tables, reversed(tables)):
            assert duckdb.sql(f"{first} except all {second}").fetchall() == []


def test_an_input_that_is_not_there_is_a_row_and_a_line_on_the_cluster(
    remote: SparkJobSession, samples: Path, tmp_path: Path
) -> None:
    log, gone, out = samples / "drizzle" / "basic-checksum.log", tmp_path / "gone.log", tmp_path / "rows"
    with pytest.raises(InputOutputError, match=str(gone)):
        binlogtool.convert([log, gone], "parquet", out, session=remote)
    done = binlogtool.convert([log, gone], "parquet", out, session=remote, selection=Selection(on_damage="salvage"))
    assert done.rows == 68 and done.damage == 1 and done.exit_code == 1
    assert done.details["unreadable"] == [f"{gone}: cannot be opened: No such file or directory"]
    observed = done.details["spark"]["observed"]
    assert (observed["rows"], observed["records"], observed["damage"]) == (68, 67, 1)


def test_the_executors_read_and_the_driver_fills_a_store(remote: SparkJobSession, store: Any, samples: Path) -> None:
    import pyarrow.parquet as parquet

    data = (samples / "drizzle" / "basic-checksum.log").read_bytes()
    urls = [put(store, f"cluster/{number}.log", data) for number in range(4)]
    done = binlogtool.convert(urls, "parquet", "s3://logs/cluster.parquet", session=remote)
    assert done.complete and [i.records for i in done.inputs] == [67] * 4
    assert keys_below(store, "cluster.parquet") == sorted(["_SUCCESS", *(output.path for output in done.outputs)])
    assert parquet.read_table("logs/cluster.parquet", filesystem=store).num_rows == 67 * 4


def test_many_files_get_the_reports_that_each_gets_alone(
    remote: SparkJobSession, samples: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    originals = [
        samples / "drizzle" / "basic-checksum.log",
        samples / "drizzle" / "damaged" / "zero-hole.log",
        *sorted((samples / "tarantool").rglob("*.xlog"))[:6],
        samples / "eblob" / "api-sync.binlog",
    ]
    monkeypatch.chdir(tmp_path)  # relative paths must be found by executors, too
    paths = []
    for number in range(FLEET):
        original = originals[number % len(originals)]
        path = Path(f"{number:04d}") / original.name
        path.parent.mkdir()
        shutil.copyfile(original, path)
        paths.append(str(path))
    Path(paths[7]).unlink()
    here = [binlogtool.verify([path]) for path in paths]
    there = binlogtool.verify_fleet(paths, session=remote)
    assert [as_json(report) for report in there if report] == [as_json(report) for report in here]
    assert {report.status for report in here} == {"clean", "findings", "incomplete"}


def test_replays_on_the_cluster_leave_the_same_states(remote: SparkJobSession, samples: Path) -> None:
    paths = [samples / "drizzle" / "basic-checksum.log", samples / "mysql_binlog" / "sets"]
    paths += [path.parent for path in sorted((samples / "manticore").glob("*/binlog.meta"))]
    here: list[dict[str, Any]] = [replay_to_json(one) for one in binlogtool.replay(paths)]
    assert [replay_to_json(one) for one in binlogtool.replay(paths, session=remote)] == here
    assert len({one["digest"] for one in here}) > 4
