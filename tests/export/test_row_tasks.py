"""Typed rows and messages as tables: the same rows and manifest in one task, in many, in worker processes, on Spark."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as parquet
import pytest

import binlogtool
from binlogtool.core.record_and_selection_types import Selection
from binlogtool.errors import UsageError
from binlogtool.export import convert_logs as convert_module
from binlogtool.export import read_one_table_as_arrow, task_planning
from binlogtool.export.manifest import parse_data_source_options
from binlogtool.export.read_rows_of_one_file import add_carried_states
from binlogtool.export.run_tasks import JobOptions, LocalRunner
from binlogtool.spark.data_source import BinlogReader
from binlogtool.spark.session import SparkJobSession
from tests.cli.invoke import invoke
from tests.harness.mysql_writer import MARIADB, Made, binlog, query, rows, table_map, transaction
from tests.sampling import take_sample

SKIP = Selection(on_damage="skip")
LOGS = (
    "mysql-binlog/generated/mysql-9.7/mixed-ddl",
    "mysql-binlog/generated/mariadb-10.11/mixed-ddl",
    "mysql-binlog/generated/mariadb-11.8/mixed-ddl",
    "tarantool/generated/chain",
    "drizzle/generated",
)
KINDS = [
    (name, kind)
    for name in LOGS
    for kind in ("rows", "debezium", "maxwell", "canal")
    if kind == "rows" or name.startswith("mysql")
]


def tables_of(folder: Path) -> dict[str, pa.Table]:
    """The rows of each table, in the order of its files."""
    names = {path.parent for path in folder.rglob("part-*.parquet")}
    return {
        str(name.relative_to(folder)): pa.concat_tables(
            [parquet.ParquetFile(path).read() for path in sorted(name.glob("part-*.parquet"))]
        )
        for name in names
    }


def facts_of(manifest: binlogtool.Manifest) -> dict[str, Any]:
    """A manifest without the names, sizes and hashes of the outputs, and without the way in which rows were decoded."""
    facts = manifest.to_dict()
    details = {name: value for name, value in facts["details"].items() if name not in ("general_rows", "spark")}
    return {**facts, "outputs": sum(one["rows"] for one in facts["outputs"]), "output": None, "details": details}


@contextlib.contextmanager
def open_many_tasks(options: JobOptions, jobs: int) -> Iterator[LocalRunner]:
    """A runner that asks for many tasks and runs them in this process."""
    yield LocalRunner(64, options.on_step)


@pytest.fixture
def many_tasks(monkeypatch: pytest.MonkeyPatch) -> Any:
    """Makes the next conversions consist of many tasks."""

    def start() -> None:
        monkeypatch.setattr(convert_module, "open_local_runner", open_many_tasks)
        monkeypatch.setattr(task_planning, "MIN_SPLIT_SIZE", 256)

    return start


def convert_both(paths: list[Path], folder: Path, many_tasks: Any, **options: Any) -> list[binlogtool.Manifest]:
    """Convert in one task and in many, and compare; return both manifests."""
    options = {"selection": SKIP, "per_table": True, **options}
    one = binlogtool.convert(paths, "parquet", folder / "one", **options)
    many_tasks()
    many = binlogtool.convert(paths, "parquet", folder / "many", **options)
    assert facts_of(many) == facts_of(one)
    assert tables_of(folder / "many") == tables_of(folder / "one")
    return [one, many]


@pytest.mark.full
@pytest.mark.parametrize(("name", "kind"), take_sample(KINDS, 3))
def test_many_tasks_write_the_rows_of_one(name: str, kind: str, corpus: Path, tmp_path: Path, many_tasks: Any) -> None:
    options = {} if kind == "rows" else {"envelope": {"envelope": kind}}
    convert_both([corpus / name], tmp_path, many_tasks, **options)


@pytest.mark.full
@pytest.mark.spark
@pytest.mark.parametrize(("name", "kind"), take_sample([pair for pair in KINDS if pair[1] in ("rows", "debezium")], 3))
def test_processes_and_spark_write_the_rows_of_this_process(
    name: str, kind: str, corpus: Path, tmp_path: Path, spark_session: SparkJobSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    options: dict[str, Any] = {"per_table": True, "selection": SKIP}
    if kind != "rows":
        options["envelope"] = {"envelope": kind}
    here = binlogtool.convert([corpus / name], "parquet", tmp_path / "here", **options)
    monkeypatch.setattr(task_planning, "MIN_SPLIT_SIZE", 1024)
    for runner, chosen in (("jobs", {"jobs": 2}), ("spark", {"session": spark_session})):
        done = binlogtool.convert([corpus / name], "parquet", tmp_path / runner, **options, **chosen)
        assert facts_of(done) == facts_of(here)
        assert tables_of(tmp_path / runner) == tables_of(tmp_path / "here")
    assert here.rows


# --- What a task must know that lies before its part ---


def rows_event(*images: bytes, columns: int = 1) -> Made:
    """A WRITE_ROWS event of rows without NULL."""
    return rows(b"".join(b"\0" + image for image in images), columns)


def int32(*values: int) -> bytes:
    return b"".join(value.to_bytes(4, "little") for value in values)


def write_log(folder: Path, *parts: list[Made]) -> list[Path]:
    """One log file for each part."""
    paths = [folder / f"log.{number:06}" for number in range(1, len(parts) + 1)]
    for path, part in zip(paths, parts, strict=True):
        path.write_bytes(binlog(part, MARIADB))
    return paths


ONE, TWO = table_map(b"\3"), table_map(b"\3\3")


def test_columns_that_a_later_task_finds_are_in_the_files_of_earlier_ones(tmp_path: Path, many_tasks: Any) -> None:
    first = [query(b"create table d.t (a int)"), *transaction(ONE, rows_event(int32(1)), number=1)]
    second = [query(b"alter table d.t add b int"), *transaction(TWO, rows_event(int32(2, 3), columns=2), number=2)]
    one, _ = convert_both(write_log(tmp_path, first, second), tmp_path, many_tasks)
    (table,) = tables_of(tmp_path / "many").values()
    assert table.select(["a", "b"]).to_pylist() == [{"a": 1, "b": None}, {"a": 2, "b": 3}]
    assert [change.partition(": ")[2] for change in one.details["tables"][0]["changes"]] == [
        "the column b (int) is new"
    ]


def test_a_type_that_contradicts_an_earlier_one_is_unfit_in_every_task(tmp_path: Path, many_tasks: Any) -> None:
    """The column is binary; numbers of a later file do not fit, although a task that began there would take them."""
    text = table_map(b"\xfc", b"\2")
    first = [query(b"create table d.t (a blob)"), *transaction(text, rows_event(b"\2\0ab"), number=1)]
    second = [query(b"alter table d.t modify a int"), *transaction(ONE, rows_event(int32(5)), number=2)]
    convert_both(write_log(tmp_path, first, second), tmp_path, many_tasks)
    (table,) = tables_of(tmp_path / "many").values()
    assert table.select(["a", "unfit"]).to_pylist() == [
        {"a": b"ab", "unfit": None},
        {"a": None, "unfit": '{"after.a":5}'},
    ]


def test_a_record_without_rows_is_in_the_table_that_had_rows_in_an_earlier_task(
    tmp_path: Path, many_tasks: Any
) -> None:
    """Not in DAMAGE: there is the first one, whose table had no rows yet."""
    unreadable = rows(b"\0\1")
    first = [*transaction(ONE, unreadable, number=1), *transaction(ONE, rows_event(int32(1)), number=2)]
    second = [*transaction(ONE, unreadable, number=3)]
    convert_both(write_log(tmp_path, first, second), tmp_path, many_tasks)
    tables = tables_of(tmp_path / "many")
    assert {name: table["op"].to_pylist() for name, table in tables.items()} == {
        "DAMAGE": ["WRITE_ROWS_V2"],
        "d.t": ["INSERT", "WRITE_ROWS_V2"],
    }


def test_two_tables_of_one_name_are_refused_whichever_tasks_find_them(tmp_path: Path, many_tasks: Any) -> None:
    plain = table_map(b"\3", name=b"b.c")
    other = Made(plain.code, plain.body.replace(b"\1d\0\3b.c\0", b"\3d.b\0\1c\0"))
    parts = [
        [*transaction(table, rows_event(int32(1)), number=number)] for number, table in enumerate((plain, other), 1)
    ]
    paths = write_log(tmp_path, *parts)
    for name in ("one", "many"):
        with pytest.raises(UsageError, match="two tables of this name"):
            binlogtool.convert(paths, "parquet", tmp_path / name, selection=Selection(objects=("d.b.c",)))
        many_tasks()


@pytest.mark.parametrize("words", [("--limit", "2"), ("--skip", "1"), ("--include-gtids", "0-1-2")])
def test_a_selection_that_counts_is_the_same_in_worker_processes(
    samples: Path, tmp_path: Path, words: tuple[str, ...]
) -> None:
    log = str(samples / "guides" / "mariadb" / "mariadb-bin.000001")
    for name, more in (("one", ()), ("two", ("--jobs", "2"))):
        command = ("convert", "--to", "parquet", "--per-table", *words, *more, "-o", str(tmp_path / name), log)
        assert invoke(*command).code == 0
    assert tables_of(tmp_path / "one") == tables_of(tmp_path / "two")


def test_a_task_knows_the_tables_of_statements_before_it(tmp_path: Path, many_tasks: Any) -> None:
    """A statement about another table is a note, not an unlogged change of the selected one."""
    first = [query(b"create table d.u (a int)"), *transaction(ONE, rows_event(int32(1)), number=1)]
    second = [*transaction(query(b"insert into d.u values (1)"), number=2)]
    third = [*transaction(ONE, rows_event(int32(2)), number=3)]
    selection = Selection(objects=("d.t",), on_damage="skip")
    paths = write_log(tmp_path, first, second, third)
    one, _ = convert_both(paths, tmp_path, many_tasks, selection=selection, per_table=None)
    assert "rows-not-logged" not in one.finding_counts
    (table,) = tables_of(tmp_path / "many").values()
    assert table["@1"].to_pylist() == [1, 2]


@pytest.mark.parametrize("kind", ["rows", "maxwell"])
def test_a_foreign_key_before_a_task_is_reported_once(kind: str, tmp_path: Path, many_tasks: Any) -> None:
    create = b"create table d.c (a int, foreign key (a) references d.t (a) on delete cascade)"
    first = [query(b"create table d.t (a int)"), query(create), *transaction(ONE, rows_event(int32(1)), number=1)]
    deletes = [[*transaction(ONE, rows(b"\0" + int32(number), code=32), number=number)] for number in (2, 3)]
    paths = write_log(tmp_path, first, *deletes)
    options: dict[str, Any] = {"selection": SKIP, "per_table": True}
    if kind != "rows":
        options["envelope"] = {"envelope": kind}
    for name in ("one", "many"):
        manifest = binlogtool.convert(paths, "parquet", tmp_path / name, **options)
        assert manifest.finding_counts["rows-diverge"] == 1
        many_tasks()
    if kind == "rows":
        assert tables_of(tmp_path / "many") == tables_of(tmp_path / "one")
        assert tables_of(tmp_path / "one")["d.t"]["commit"].to_pylist() == [True] * 3


def test_a_trigger_before_a_task_makes_its_statements_unlogged(tmp_path: Path, many_tasks: Any) -> None:
    """A statement about a table with a trigger may change the selected one, too."""
    first = [
        query(b"create table d.u (a int)"), query(b"create trigger g after insert on d.u for each row set @a = 1"),
        *transaction(ONE, rows_event(int32(1)), number=1),
    ]  # fmt: skip
    second = [*transaction(query(b"insert into d.u values (1)"), number=2)]
    selection = Selection(objects=("d.t",), on_damage="skip")
    one, _ = convert_both(write_log(tmp_path, first, second), tmp_path, many_tasks, selection=selection, per_table=None)
    assert one.finding_counts["rows-not-logged"] == 1


# --- InnoDB binlogs ---

IBB_LOGS = ("basic", "dbase", "edges", "oob", "page4k", "xa")


@pytest.mark.full
@pytest.mark.parametrize("kind", ["rows", "debezium", "one table"])
@pytest.mark.parametrize("name", IBB_LOGS)
def test_many_tasks_write_the_rows_of_one_for_innodb_binlogs(
    name: str, kind: str, corpus: Path, tmp_path: Path, many_tasks: Any
) -> None:
    options: dict[str, Any] = {"envelope": {"envelope": kind}} if kind == "debezium" else {}
    if kind == "one table":
        options = {"selection": Selection(objects=("app1.t1",), on_damage="skip"), "per_table": None}
    convert_both([corpus / "mariadb-innodb-binlog" / "generated" / name], tmp_path, many_tasks, **options)


@pytest.mark.full
@pytest.mark.parametrize("name", IBB_LOGS)
def test_the_data_source_splits_innodb_binlogs_into_the_rows_of_this_process(
    name: str, corpus: Path, tmp_path: Path
) -> None:
    """Also the column `commit`: groups whose out-of-band data is in another file are whole."""
    folder = corpus / "mariadb-innodb-binlog" / "generated" / name
    options = {"path": str(folder), "object": "app1.t1", "splitSize": "16384"}
    request = add_carried_states(parse_data_source_options(options))
    layout = read_one_table_as_arrow.search_table(request).make_layout()
    kind = read_one_table_as_arrow.build_single_table_options("app1.t1", request.selection, "both")
    reader = BinlogReader(request, read_one_table_as_arrow.TableRowReader(kind, layout, request.limits))
    found = [row for part in reader.partitions() for batch in reader.read(part) for row in batch.to_pylist()]
    selection = Selection(objects=("app1.t1",), on_damage="skip")
    binlogtool.convert([folder], "parquet", tmp_path / "here", selection=selection, image="both")
    (here,) = tables_of(tmp_path / "here").values()
    expected = here.to_pylist()
    names = ("record", "row", "op", "commit", "txn", "before", "after")
    changes = {"INSERT", "UPDATE", "DELETE"}
    assert [[row[one] for one in names] for row in found if row["op"] in changes] == [
        [row[one] for one in names] for row in expected if row["op"] in changes
    ]


def test_messages_after_a_transaction_without_end_are_those_of_one_task(tmp_path: Path, many_tasks: Any) -> None:
    """The second file does not know the transactions of the first one, whose last one has no end."""
    first = [*transaction(ONE, rows_event(int32(1)), number=1), *transaction(ONE, rows_event(int32(2)), number=2)[:-1]]
    paths = write_log(
        tmp_path, [query(b"create table d.t (a int)"), *first], transaction(ONE, rows_event(int32(3)), number=3)
    )
    convert_both(paths, tmp_path, many_tasks, per_table=False, envelope={"envelope": "maxwell"})
    found = [(row["gtid"], row["xid"], row["commit"]) for row in tables_of(tmp_path / "one")["."].to_pylist()[1:]]
    assert found == [("0-1-1", 1, True), ("0-1-2", None, None), ("0-1-3", 3, True)]


def test_a_script_has_the_first_transaction_after_a_broken_link(tmp_path: Path) -> None:
    paths = write_log(
        tmp_path,
        [query(b"create table d.t (a int)"), *transaction(ONE, rows_event(int32(1)), number=1)],
        transaction(ONE, rows_event(int32(3)), number=3),
    )
    done = invoke("dump", "-O", "sql", "--on-damage", "skip", *map(str, paths))
    assert done.text.count("COMMIT") == 2 and "gtid_seq_no=3" in done.text


# --- Messages as lines ---

LINE_KINDS = [(name, kind) for name, kind in KINDS if kind != "rows"]


def write_lines(paths: list[Path], output: Path, kind: str, **options: Any) -> tuple[bytes, dict[str, Any]]:
    options = {"selection": SKIP, "envelope": {"envelope": kind}, **options}
    facts = facts_of(binlogtool.convert(paths, "jsonl", output, **options))
    return output.read_bytes(), {**facts, "details": {n: v for n, v in facts["details"].items() if n != "spark"}}


@pytest.mark.full
@pytest.mark.parametrize(("name", "kind"), LINE_KINDS)
def test_processes_write_the_lines_of_this_process(
    name: str, kind: str, corpus: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, many_tasks: Any
) -> None:
    alone = write_lines([corpus / name], tmp_path / "one", kind)
    many_tasks()
    assert write_lines([corpus / name], tmp_path / "many", kind, jobs=2) == alone
    assert alone[1]["rows"] and not list(tmp_path.glob("*.tmp-*"))


@pytest.mark.full
@pytest.mark.spark
@pytest.mark.parametrize("kind", ["debezium", "maxwell"])
def test_spark_writes_the_lines_of_this_process(
    kind: str, corpus: Path, tmp_path: Path, spark_session: SparkJobSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    alone = write_lines([corpus / LOGS[1]], tmp_path / "one", kind)
    monkeypatch.setattr(task_planning, "MIN_SPLIT_SIZE", 1024)
    assert write_lines([corpus / LOGS[1]], tmp_path / "spark", kind, session=spark_session) == alone
    assert write_lines([corpus / LOGS[1]], tmp_path / "jobs", kind, jobs=2) == alone


def test_lines_of_many_tasks_are_those_of_one(tmp_path: Path, many_tasks: Any) -> None:
    """Also what is wrong: names that the log does not have, damage that stops the work."""
    first = [query(b"create table d.t (a int)"), *transaction(ONE, rows_event(int32(1)), number=1)]
    paths = write_log(tmp_path, first, transaction(ONE, rows_event(int32(3)), number=2))
    alone = write_lines(paths, tmp_path / "one", "maxwell")
    many_tasks()
    assert write_lines(paths, tmp_path / "many", "maxwell", jobs=2) == alone and alone[0].count(b"\n") == 3
    with pytest.raises(UsageError, match="no such object"):
        write_lines(paths, tmp_path / "none", "maxwell", jobs=2, selection=Selection(objects=("d.no",)))
    paths[1].write_bytes(paths[1].read_bytes()[:-40] + bytes(40))
    stopped = binlogtool.convert(paths, "jsonl", tmp_path / "stopped", jobs=2, envelope={"envelope": "maxwell"})
    assert stopped.exit_code == 1 and not stopped.complete and not (tmp_path / "stopped").exists()
