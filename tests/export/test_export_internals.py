"""Test the locks, the staging and the proofs of exports, one rule at a time."""

from __future__ import annotations

import errno
import fcntl
import hashlib
import json
import os
import socket
import struct
from collections import Counter
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any, NamedTuple

import fastavro
import msgspec
import numpy as np
import pyarrow as pa
import pyarrow.parquet as parquet
import pytest

import binlogtool
from binlogtool.core.divide_file import FilePart, ResumePoint
from binlogtool.core.record_and_selection_types import Selection, SqlFragment
from binlogtool.errors import InputOutputError, RefusedError, UsageError
from binlogtool.export import append_new_records as append_module
from binlogtool.export import (
    atomic_output,
    copy_to_mariadb_binlog,
    incremental_positions,
    table_files,
    table_router,
    write_record_tables,
    write_typed_tables,
)
from binlogtool.export.append_new_records import ContentHashes, hash_and_verify_prefix
from binlogtool.export.atomic_output import hold_lock_file, stage_log_set
from binlogtool.export.envelopes import debezium, maxwell
from binlogtool.export.incremental_positions import CommittedInput
from binlogtool.export.manifest import (
    FindingTally,
    ManifestInput,
    ManifestOutput,
    ProgressStep,
    ReadRequest,
    SparkJobStats,
    TaskFile,
    TaskPiece,
    pack_tasks,
)
from binlogtool.export.output_options import TableFileOptions
from binlogtool.export.records_to_arrow import _OversizedNumbers
from binlogtool.export.sql_script_output import SidecarFolder
from binlogtool.export.table_files import AvroTableFile, TableFileSink
from binlogtool.export.table_spool import SpooledTable
from binlogtool.export.typed_columns import PartialImages, find_common_wider_type
from binlogtool.export.write_json_sql_raw import StreamJob
from binlogtool.export.write_record_tables import EventContiguityCheck, ReadBackCounts, RecordRows
from binlogtool.export.write_spooled_rows_to_table_files import FinishedFile, FinishTask, TableFinisher, publish_files
from binlogtool.export.write_typed_tables import SpoolTask, TaskReader
from binlogtool.findings import Severity, make_finding
from tests.cli.samples import damaged_log
from tests.export.ibb_writer import IbbWriter

# -- locks and stages --------------------------------------------------------------------------------------------------


def test_a_lock_file_is_locked_names_its_stage_and_machine_and_goes_with_the_block(tmp_path: Path) -> None:
    stage, lock = tmp_path / "out.tmp-0123abcd", tmp_path / ".out.tmp-0123abcd.binlogtool"
    with hold_lock_file(stage):
        assert json.loads(lock.read_bytes()).items() >= {"stage": stage.name, "host": socket.gethostname()}.items()
        assert lock.stat().st_mode & 0o777 == 0o600
        with lock.open("rb") as other, pytest.raises(BlockingIOError):
            fcntl.flock(other, fcntl.LOCK_EX | fcntl.LOCK_NB)
    assert os.listdir(tmp_path) == []


@pytest.mark.parametrize("host", ["here", "elsewhere"])
def test_looking_at_lock_files_leaves_none_open(tmp_path: Path, host: str) -> None:
    stage, lock = tmp_path / "out.tmp-0123abcd", tmp_path / ".out.tmp-0123abcd.binlogtool"
    with hold_lock_file(stage):
        content = json.loads(lock.read_bytes())
    lock.write_text(json.dumps(content if host == "here" else content | {"host": "elsewhere"}))
    before = len(os.listdir("/proc/self/fd"))
    assert [atomic_output._is_own_lock_file_free(stage) for _ in range(3)] == [host == "here"] * 3
    assert len(os.listdir("/proc/self/fd")) == before


@pytest.mark.parametrize("name", ["/logs/binlog.000002", None])
def test_a_log_file_that_appears_meanwhile_is_named_or_else_the_output(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str | None
) -> None:
    def fail(stage: Path, target: Path) -> None:
        raise FileExistsError(errno.EEXIST, "File exists", name)

    monkeypatch.setattr(atomic_output, "rename_without_replacing", fail)
    with (
        pytest.raises(RefusedError) as raised,
        stage_log_set(f"{tmp_path}/new/", [r"\d{6}"]) as (stage, _),
    ):
        stage.mkdir()
    shown = name or f"{tmp_path}/new/"
    assert str(raised.value) == f"{shown} was created by another process meanwhile; it is not replaced"
    assert os.listdir(tmp_path) == []


# -- copies of transactions --------------------------------------------------------------------------------------------


def event(code: int, body: bytes) -> bytes:
    """Build an event as it is in a group of an InnoDB binlog."""
    return struct.pack("<IBIIIH", 1_700_000_000, code, 1, 19 + len(body), 0, 0) + body


@pytest.fixture
def log(tmp_path: Path) -> Path:
    """Three transactions of one statement: 0-1-1, 0-1-2, 0-1-3."""
    writer = IbbWriter(tmp_path / "log")
    for number in (1, 2, 3):
        statement = struct.pack("<IIBHH", 1, 0, 1, 0, 0) + b"d\0insert into t values (%d)" % number
        gtid = struct.pack("<QIB6x", number, 0, 12)
        writer.group((0, 1, number), [event(162, gtid), event(2, statement), event(16, bytes(8))])
    writer.close()
    return tmp_path / "log"


def copy_log(log: Path, output: Path, **options: Any) -> binlogtool.Manifest:
    return binlogtool.convert([log], "mysql-binlog", f"{output}/", **options)


def test_the_manifest_of_a_copied_log_counts_its_transactions(log: Path, tmp_path: Path) -> None:
    done = copy_log(log, tmp_path / "new")
    checks = {check.name: check.detail for check in done.checks}
    assert checks["groups-in-equal-groups-out"] == "3 read, 3 read back"
    assert checks["gtids-in-equal-gtids-out"] == "0-1-1..3"
    assert " of 9 events; " in checks["event-bodies-equal"]
    assert checks["verified"] == "errors 0, warnings 0, notes 0"
    assert (done.complete, done.rows, done.damage) == (True, 3, 0)
    assert [one.rows for one in done.outputs] == [3] and sum(one.records or 0 for one in done.inputs) == 3


def test_transactions_before_the_first_selected_one_are_the_state_of_the_new_log(log: Path, tmp_path: Path) -> None:
    done = copy_log(log, tmp_path / "new", selection=Selection(on_damage="stop", start="gtid:0-1-2"))
    checks = {check.name: check.detail for check in done.checks}
    assert checks["groups-in-equal-groups-out"] == "1 read, 1 read back; excluded by the selection: 2"
    with binlogtool.open(tmp_path / "new") as new:
        (gtid_list,) = [record for record in new.records() if record.type == "GTID_LIST"]
        assert "0-1-2" in json.dumps(gtid_list.body)


def test_findings_of_the_new_log_are_counted_by_severity_and_repeated_unless_they_are_notes(
    log: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    verify = copy_to_mariadb_binlog.BinlogCopyJob._iter_verify_findings

    def verify_and_add(self: Any, paths: Any, options: Any) -> Any:
        yield from verify(self, paths, options)
        if options.format == "mysql-binlog":
            for severity in (Severity.NOTE, Severity.WARNING, Severity.WARNING):
                finding = make_finding("torn-tail", 7, 1, "text", severity=severity)
                yield "/x/binlog.000001", finding

    monkeypatch.setattr(copy_to_mariadb_binlog.BinlogCopyJob, "_iter_verify_findings", verify_and_add)
    done = copy_log(log, tmp_path / "new")
    assert {check.name: check.detail for check in done.checks}["verified"] == "errors 0, warnings 2, notes 1"
    assert done.finding_counts["torn-tail"] == 2
    assert [one["file"] for one in done.findings if one["id"] == "torn-tail"] == ["binlog.000001"] * 2


def test_a_new_log_that_reads_back_with_fewer_transactions_is_refused(
    log: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Forgetful(copy_to_mariadb_binlog.TransactionDigest):
        def add_transaction(self, group: Any) -> None:
            pass

    made = copy_to_mariadb_binlog.BinlogCopyJob._compare_read_back_transactions

    def read_back(self: Any, writer: Any) -> Any:
        with monkeypatch.context() as patched:
            patched.setattr(copy_to_mariadb_binlog, "TransactionDigest", Forgetful)
            yield from made(self, writer)

    monkeypatch.setattr(copy_to_mariadb_binlog.BinlogCopyJob, "_compare_read_back_transactions", read_back)
    with pytest.raises(InputOutputError, match="0 groups of 0 events were read back, but 3 of 9 were read"):
        copy_log(log, tmp_path / "new")
    assert sorted(os.listdir(tmp_path)) == ["log"]


# -- files beside scripts, options, changed inputs ---------------------------------------------------------------------


def test_a_sidecar_file_grows_by_each_piece_and_its_directory_must_be_new_or_empty(tmp_path: Path) -> None:
    folder = SidecarFolder(tmp_path / "files")
    for name, data in (("a", b"1"), ("b", b"2"), ("a", b"3")):
        folder.add(name, data)
    assert {path.name: path.read_bytes() for path in (tmp_path / "files").iterdir()} == {"a": b"13", "b": b"2"}
    with pytest.raises(RefusedError, match="is not empty; name another directory"):
        SidecarFolder(tmp_path / "files").add("c", b"4")
    (tmp_path / "empty").mkdir()
    SidecarFolder(tmp_path / "empty").add("c", b"4")
    assert (tmp_path / "empty" / "c").read_bytes() == b"4"


def test_the_first_option_that_does_not_fit_the_output_is_named(log: Path, tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"^--compression is for tables .*, not for raw$"):
        binlogtool.convert([log], "raw", tmp_path / "out", compression="zstd", csv_safe=True)


def test_inputs_that_changed_while_they_were_read_are_named(samples: Path, tmp_path: Path) -> None:
    logs = [tmp_path / "a", tmp_path / "b", tmp_path / "c"]
    for path in logs:
        path.write_bytes((samples / "drizzle" / "basic-checksum.log").read_bytes())

    def change(step: ProgressStep) -> None:
        for path in logs[:2]:
            os.utime(path, ns=(1, 1))

    with pytest.raises(RefusedError, match=f"^{logs[0]} and 1 more changed while it was read"):
        binlogtool.convert(logs, "raw", tmp_path / "out", on_step=change)
    assert sorted(os.listdir(tmp_path)) == ["a", "b", "c"]


# -- tasks and executors -----------------------------------------------------------------------------------------------


def test_empty_files_are_one_task_and_the_rest_is_shared_by_bytes() -> None:
    def pack(sizes: list[int], tasks: int) -> list[list[int]]:
        files = [TaskFile(f"/{size}", str(size), "drizzle", size) for size in sizes]
        return [[piece.member.size for piece in task] for task in pack_tasks(files, [None] * len(files), tasks)]

    assert pack([0, 0], 3) == [[0, 0]]
    assert pack([10, 10, 10, 10], 2) == [[10, 10], [10, 10]]
    assert pack([30, 5, 5], 2) == [[30], [5, 5]]
    assert pack([1], 0) == [[1]]
    assert pack([10, 0], 2) == [[10, 0]]  # the middle of the empty file is the end of the last task


def test_an_executor_is_lost_if_it_was_removed_since_the_start_for_no_normal_reason() -> None:
    """Spark gives times in milliseconds."""

    def option(value: Any) -> SimpleNamespace:
        return SimpleNamespace(isDefined=lambda: value is not None, get=lambda: value)

    def executor(number: int, removed_ms: int | None, reason: str | None) -> SimpleNamespace:
        time = option(SimpleNamespace(getTime=lambda: removed_ms))
        return SimpleNamespace(
            id=lambda: str(number),
            hostPort=lambda: "host:1",
            isActive=lambda: removed_ms is None,
            removeTime=lambda: time,
            removeReason=lambda: option(reason),
        )

    found = [
        executor(1, None, None),
        executor(2, 9_999, "too early"),
        executor(3, 10_000, "killed by driver."),
        executor(4, 10_000, "lost\nnetwork"),
        executor(5, 20_000, None),
    ]
    executors = SimpleNamespace(size=lambda: len(found), apply=lambda index: found[index])
    store = SimpleNamespace(executorList=lambda active: executors)
    context = SimpleNamespace(_jsc=SimpleNamespace(sc=lambda: SimpleNamespace(statusStore=lambda: store)))
    stats = SparkJobStats()
    stats._start_time = 10.0
    assert list(stats._find_lost_executors(context)) == [
        "executor 4 on host:1: lost network",
        "executor 5 on host:1: no reason is known",
    ]


# -- growing logs ------------------------------------------------------------------------------------------------------


def test_only_what_was_read_is_hashed_of_a_file_that_grew(tmp_path: Path) -> None:
    """The server rewrites [4, 8) later; the last run read 40 bytes of 100, this one reads 70."""
    path, rewritten = tmp_path / "log", (4, 8)
    data = bytes(range(100))
    path.write_bytes(data)
    steady = hashlib.sha256(data[:4] + data[8:40]).hexdigest()
    previous = CommittedInput(str(path), "drizzle", 0, "", 0, 40, "", False, False, {}, steady=steady)
    expected = ContentHashes(
        all=hashlib.sha256(data[:70]).hexdigest(), steady=hashlib.sha256(data[:4] + data[8:70]).hexdigest()
    )
    assert (
        hash_and_verify_prefix(str(path), 70, rewritten, None)
        == hash_and_verify_prefix(str(path), 70, rewritten, previous)
        == expected
    )
    path.write_bytes(b"other" + data[5:])
    with pytest.raises(RefusedError, match="its first 40 bytes differ from those that were read before"):
        hash_and_verify_prefix(str(path), 70, rewritten, previous)


@pytest.mark.parametrize(
    ("name", "path", "format", "temporary"),
    [
        ("/wal/1.xlog.inprogress", "/wal", "tarantool", True),
        ("/wal/1.xlog.inprogress", "/wal/1.xlog.inprogress", "tarantool", False),
        ("/wal/1.xlog.inprogress", "/wal", "auto", False),
        ("/wal/1.xlog", "/wal", "tarantool", False),
    ],
)
def test_a_temporary_file_of_a_server_is_left_out_unless_it_was_named(
    name: str, path: str, format: str, temporary: bool
) -> None:
    assert incremental_positions._is_temporary(name, path, format) is temporary


def test_the_last_file_that_was_written_to_is_found_from_the_end() -> None:
    calls: list[tuple[str, str, Any]] = []

    def find(written: str) -> int:
        def is_written(name: str, format: str, reached: Any) -> bool:
            calls.append((name, format, reached))
            return name == written

        calls.clear()
        return incremental_positions.IncrementalInput._find_last_written_index(
            SimpleNamespace(_is_written=is_written), log, positions
        )  # type: ignore[arg-type]

    log, positions = [("a", "f"), ("b", "f"), ("c", "f")], {"b": "position of b"}
    assert (find("b"), calls) == (1, [("c", "f", None), ("b", "f", "position of b")])
    assert (find("c"), calls) == (2, [("c", "f", None)])
    assert (find("a"), len(calls)) == (0, 2)


def test_an_append_of_urls_is_refused(log: Path, tmp_path: Path) -> None:
    for paths, output in (([log], "s3://bucket/out"), (["s3://bucket/log"], tmp_path / "out")):
        with pytest.raises(UsageError, match="--append works with local files only, not with URLs"):
            binlogtool.convert(paths, "parquet", output, append=True)


def test_other_options_than_in_earlier_runs_are_named(tmp_path: Path) -> None:
    check = append_module._check_same_options
    check({}, {"typed": {"a": 1}}, tmp_path)
    check({"skip": 1}, {"skip": 1}, tmp_path)
    for earlier, now, text in (
        ({"typed": {"a": 1}}, {"typed": None}, "it has typed rows, with --object or --per-table"),
        ({"typed": None, "compression": "zstd"}, {"typed": {"a": 1}}, "it has records, without"),
        ({"csv_safe": True}, {"csv_safe": False}, "--csv-safe was true, now false"),
        ({}, {}, None),
        ({"compression": "zstd"}, {}, '--compression was "zstd", now null'),
    ):
        if text is None:
            check(earlier, now, tmp_path)
            continue
        with pytest.raises(RefusedError) as raised:
            check(earlier, now, tmp_path)
        assert str(raised.value).startswith(f"{tmp_path}: was written with other options: {text}")
    with pytest.raises(RefusedError, match="was written with another --schema file, or without one"):
        check({"schema": "a"}, {"schema": "b"}, tmp_path)


# -- files of tables ---------------------------------------------------------------------------------------------------


def test_a_sink_has_at_most_so_many_files_open(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(table_files, "_MAX_OPEN_FILES", 2)
    schema = pa.schema([("type", pa.string()), ("n", pa.int64())])
    options = TableFileOptions("csv", partition_by=("type",))
    sink = TableFileSink(tmp_path, options, schema, 1)  # so little memory that each row is written at once
    for number, name in enumerate("abcabca"):
        sink.add(pa.record_batch([pa.array([name]), pa.array([number])], schema=schema))
        assert len(sink._open) <= 2
    assert len(sink._open) == 2 and len(sink.files) == 7
    sink.close()
    rows = [line for file in sink.files for line in file.path.read_text().splitlines()[1:]]
    assert sorted(row.rpartition(",")[2] for row in rows) == ["0", "1", "2", "3", "4", "5", "6"]


@pytest.mark.parametrize("to", ["parquet", "orc", "csv", "json", "avro"])
def test_a_group_of_rows_is_small_enough_to_be_written(
    to: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """ORC needs 16 times the memory of the rows: all rows of a log of 50 MB were refused as too large at once."""
    max_memory, needed = 1 << 20, list[int]()
    monkeypatch.setattr(table_files.limits, "require_free_memory", needed.append)
    schema = pa.schema([("text", pa.string())])
    sink = TableFileSink(tmp_path, TableFileOptions(to), schema, max_memory)
    for _ in range(256):
        sink.add(pa.table([["x" * 1024]], schema=schema))
    sink.close()
    assert max(needed) < max_memory and sum(file.rows for file in sink.files) == 256


@pytest.mark.parametrize("to", ["parquet", "csv"])
def test_texts_of_a_spooled_file_are_compared_with_those_that_were_written(to: str, tmp_path: Path) -> None:
    """A file of the spool that is also one of the output was compared with itself."""
    schema, options = pa.schema([("text", pa.string())]), TableFileOptions(to)
    sink = TableFileSink(tmp_path, options, schema, 1 << 20)
    sink.add(pa.table([["one", "three"]], schema=schema))
    sink.close()
    spooled = SpooledTable("t", 2, (), (), tuple(sink.files), options)
    finisher = TableFinisher(options, str(tmp_path), 1 << 20)
    (done,) = finisher.execute(FinishTask(0, spooled, schema))
    assert (done.output.rows, done.text_bytes) == (2, 8)
    file = table_files.create_table_file(options, sink.files[0].path, schema)
    file.write(pa.table([["one", "3"]], schema=schema))
    file.close()
    with pytest.raises(InputOutputError, match="rows with 8 bytes of text were read and 4 written"):
        finisher.execute(FinishTask(0, spooled, schema))


def test_many_small_rows_share_a_block_of_avro(tmp_path: Path) -> None:
    schema = pa.schema([("n", pa.int64())])
    file = AvroTableFile(tmp_path / "a.avro", schema, "none")
    file.write(pa.table({"n": list(range(1000))}, schema=schema))
    file.close()
    with (tmp_path / "a.avro").open("rb") as stream:
        assert [block.num_records for block in fastavro.block_reader(stream)] == [1000]


# -- tasks that depend on earlier ones ---------------------------------------------------------------------------------


class Task(msgspec.Struct, frozen=True):
    """A task whose result is its text; a task that begins with a capital letter depends on the one before it."""

    text: str
    table: str = ""


class Before(NamedTuple):
    table: str


def test_tasks_that_depend_on_earlier_ones_are_joined_and_run_again(monkeypatch: pytest.MonkeyPatch) -> None:
    runs: list[list[str]] = []

    def run_tasks(stage: str, tasks: list[Task], execute: Any) -> list[Any]:
        assert stage == "converting"
        runs.append([task.text for task in tasks])
        return [execute(task) for task in tasks]

    known: dict[int, Before] = {}
    monkeypatch.setattr(write_typed_tables, "join_tasks", lambda tasks: Task("".join(task.text for task in tasks)))
    monkeypatch.setattr(write_typed_tables, "merge_tables_and_find_repeats", lambda results, kind: ({}, known))
    kind = SimpleNamespace(is_transaction_split_between=lambda earlier, later: later[0].isupper())
    job = SimpleNamespace(kind=kind)
    spooler = SimpleNamespace(execute=lambda task: SimpleNamespace(outcome=task.text + task.table))

    def spool(texts: str) -> list[str]:
        runs.clear()
        tasks = [Task(text) for text in texts]
        runner = SimpleNamespace(run_tasks=run_tasks)
        return [
            one.outcome
            for one in write_typed_tables.RowTableJob._run_spool_tasks_until_consistent(job, runner, spooler, tasks)
        ]  # type: ignore[arg-type]

    assert (spool("abc"), runs) == (["a", "b", "c"], [["a", "b", "c"]])
    assert (spool("aBcdEF"), runs) == (["aB", "c", "dEF"], [["a", "B", "c", "d", "E", "F"], ["aB", "dEF"]])
    known[1] = Before("+table")
    assert (spool("aBc"), runs) == (["aB", "c+table"], [["a", "B", "c"], ["aB"], ["c"]])


# -- columns of typed rows ---------------------------------------------------------------------------------------------


def test_values_that_an_update_does_not_contain_come_from_its_before_image() -> None:
    absent = pa.array([["after.x"], None, ["before.x"], ["after.x", "before.y"]], pa.list_(pa.string()))
    update = pa.array([True, True, True, False])
    images = PartialImages(absent, update)
    old, new = pa.array([1, 2, 3, 4]), pa.array([None, 20, 30, None], pa.int64())
    assert images.fill_absent_after_values("x", old, new).to_pylist() == [1, 20, 30, None]
    assert images.fill_absent_after_values("y", old, new).to_pylist() == [None, 20, 30, None]
    differs = pa.array([True, False, False, True])
    assert images.mask_updates_setting_column("x", differs).to_pylist() == [False, False, True, True]
    assert images.mask_updates_setting_column("y", differs).to_pylist() == [True, False, False, True]


@pytest.mark.parametrize(
    ("first", "second", "wider"),
    [
        ("int", "int", "int"),
        ("int", "bigint", "bigint"),
        ("float", "double", "double"),
        ("double", "float", "double"),
        ("date", "int", "string"),
    ],
)
def test_a_column_gets_the_type_that_holds_the_values_of_both(first: str, second: str, wider: str) -> None:
    assert find_common_wider_type(first, second) == wider


def test_a_number_beyond_64_bits_is_null_with_a_finding() -> None:
    block = SimpleNamespace(offset=[100, 200, 300], size=[10, 20, 30], record=[7, 8, 9])
    findings: dict[int, tuple[Any, ...]] = {}
    numbers = _OversizedNumbers(block, range(3), findings)  # type: ignore[arg-type]
    largest = (1 << 63) - 1
    assert numbers.replace_oversized("seq", [largest, None, -(1 << 63)]) == [largest, None, -(1 << 63)]
    assert findings == {}
    assert numbers.replace_oversized("seq", [1, largest + 1, None]) == [1, None, None]
    (finding,) = findings.pop(1)
    assert findings == {}
    assert (finding.id, finding.offset, finding.length, finding.record) == ("count-out-of-bounds", 200, 20, 8)
    assert finding.facts == {"column": "seq", "value": largest + 1}


# -- tables of records -------------------------------------------------------------------------------------------------


def test_events_of_a_group_follow_each_other_from_its_first_byte_on() -> None:
    names = ("file", "record", *write_record_tables._EVENT_RANGE_COLUMNS)

    def add(ranges: EventContiguityCheck, *rows: tuple[Any, ...]) -> None:
        ranges.check_next_rows(pa.table({name: [row[i] for row in rows] for i, name in enumerate(names)}))

    whole = EventContiguityCheck()
    add(whole, ("a", 1, 0, 10), ("a", 1, 10, 5), ("a", None, None, None), ("a", 2, 0, 7))
    add(whole, ("a", 2, 7, 1), ("b", 3, 0, 2))
    assert (whole.groups, whole.events, whole.broken) == (3, 5, {})
    gaps = EventContiguityCheck()
    add(gaps, ("a", 1, 0, 10), ("a", 1, 11, 5), ("a", 2, 3, 1), ("b", 4, 0, 1), ("b", 5, 1, 1))
    assert (gaps.groups, gaps.events, gaps.broken) == (2, 5, {"a": 1, "b": 5})
    whole.merge(gaps)
    assert (whole.groups, whole.events, whole.broken) == (5, 10, {"a": 1, "b": 5})


def test_counts_of_tasks_are_added_and_the_last_record_of_a_file_is_the_highest() -> None:
    counts, other = ReadBackCounts(), ReadBackCounts()
    counts.last_records.update({"a": 5, "b": 1})
    other.last_records.update({"a": 3, "b": 4, "c": 0})
    counts.records.update({"a": 6})
    other.records.update({"a": 1, "c": 1})
    counts.merge(other)
    assert (counts.last_records, counts.records) == ({"a": 5, "b": 4, "c": 0}, {"a": 7, "c": 1})


def test_a_file_that_a_task_wrote_and_that_is_not_there_is_an_error(tmp_path: Path) -> None:
    file = FinishedFile(f"{tmp_path}/task/part-00000.parquet", ManifestOutput("part-00000.parquet", 1, 100))
    with pytest.raises(InputOutputError) as raised:
        publish_files([file], tmp_path / "out")
    text = "a task wrote this file, but it no longer exists; the output is incomplete, delete it"
    assert str(raised.value) == f"{tmp_path}/task/part-00000.parquet: {text}"


# -- messages ----------------------------------------------------------------------------------------------------------


def test_collections_of_geometries_are_read_to_a_depth_of_32() -> None:
    point = b"\1" + struct.pack("<I2d", 1, 1.5, -2)
    collection = b"\1" + struct.pack("<II", 7, 1)
    assert maxwell.wkb_to_wkt(point) == "POINT (1.5 -2)"
    assert maxwell.wkb_to_wkt(collection + point) == "GEOMETRYCOLLECTION (POINT (1.5 -2))"
    deepest = maxwell.wkb_to_wkt(collection * 31 + point)
    assert deepest == "GEOMETRYCOLLECTION (" * 31 + "POINT (1.5 -2)" + ")" * 31
    assert maxwell.wkb_to_wkt(collection * 32 + point) is None
    assert maxwell.wkb_to_wkt(point + b"\0") is None
    long, tiny = 0.12345678901234568, 1e-17
    text = maxwell.wkb_to_wkt(b"\1" + struct.pack("<I2d", 1, long, tiny))
    assert text == "POINT (0.1234567890123457 0)"


def test_messages_of_a_long_transaction_are_written_before_its_end_with_their_numbers(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A message has 13 bytes without its number; 30 bytes may wait."""
    monkeypatch.setattr(maxwell, "MAX_HELD_BYTES", 30)
    monkeypatch.setattr(maxwell, "_build_members_after_commit", lambda change, table: {"t": 1})
    monkeypatch.setattr(
        maxwell.MaxwellEncoder, "_build_members_before_commit", lambda self, change, table: {"n": change}
    )
    encoder = maxwell.MaxwellEncoder(False)
    written = [[line for line, _ in encoder._hold_row_until_commit(n, None)] for n in range(1, 7)]  # type: ignore[arg-type]

    def message(n: int) -> bytes:
        return b'{"n":%d,"xoffset":%d,"t":1}' % (n, n - 1)

    assert written == [[], [], [message(1), message(2)], [], [], [message(3), message(4), message(5)]]
    assert [line for line, _ in encoder.release_uncommitted_messages()] == [message(6)]
    assert (encoder.held_messages, encoder.held_bytes, encoder.written_rows) == ([], 0, 0)


@pytest.mark.parametrize(
    ("action", "statement", "text"),
    [
        ("drop", "DROP TABLE a, b", "DROP TABLE `shop`.`a`"),
        ("rename", "RENAME TABLE a TO b, c TO d", "RENAME TABLE a TO b"),
        ("create", "CREATE TABLE a (n INT) START TRANSACTION", "CREATE TABLE a (n INT)"),
        ("alter", "ALTER TABLE a ADD m INT", "ALTER TABLE a ADD m INT"),
    ],
)
def test_the_ddl_of_a_message_is_the_part_about_its_table(action: str, statement: str, text: str) -> None:
    table, new = (SimpleNamespace(database="shop", name=name) for name in "ab")
    change = SimpleNamespace(table=table, becomes=new, action=action, statement=statement)
    assert debezium._ddl_text(change) == text  # type: ignore[arg-type]


# -- rows of many tables -----------------------------------------------------------------------------------------------


def test_the_transaction_of_a_row_is_the_text_of_its_source_and_its_serial_number() -> None:
    """A source is the text before the number, and the sequence number if there is no serial number (-1)."""
    columns = table_router._transaction_columns
    sources = [("0-1-", None), ("xid ", 7)]
    seqs, texts = columns(sources, np.array([0, 0, 1]), np.array([0, 5, 6]))
    assert (seqs.to_pylist(), texts.to_pylist()) == ([0, 5, 6], ["0-1-0", "0-1-5", "xid 6"])
    seqs, texts = columns(sources, np.array([0, 1, 1, -1]), np.array([0, -1, 9, -1]))
    assert (seqs.to_pylist(), texts.to_pylist()) == ([0, 7, 9, None], ["0-1-0", "xid ", "xid 9", None])


@pytest.mark.parametrize(("ends", "rows", "earlier"), [(True, 0, True), (True, 1, False), (False, 0, False)])
def test_an_end_before_any_row_belongs_to_an_earlier_row(ends: bool, rows: int, earlier: bool) -> None:
    summary = table_router.RouterSummary()
    if rows:
        summary.rows_by_file["a"] += rows
    summary.record_transaction_boundary(ends=ends)
    assert (summary.ends_earlier, summary.has_begun) == (earlier, True)
    summary.record_transaction_boundary(ends=not ends)
    assert (summary.ends_earlier, summary.has_begun) == (earlier, True)


@pytest.mark.parametrize(("pending", "too_many", "flushed"), [(50, False, False), (51, False, True), (0, True, True)])
def test_pending_rows_are_flushed_beyond_the_limit_of_bytes_or_names(
    pending: int, too_many: bool, flushed: bool
) -> None:
    calls: list[str] = []
    router = SimpleNamespace(
        _add_tables_of_log=lambda tables: None,
        _pending_memory=SimpleNamespace(bytes=pending),
        _event_bytes=50,
        _max_total_bytes=100,
        _names=SimpleNamespace(has_too_many=too_many),
        flush_settled=lambda: calls.append("flushed"),
    )
    events = SimpleNamespace(described=(), closes=False, begins=False, runs=())
    table_router.TableRouter._add_row_batch(router, SimpleNamespace(rows=events))  # type: ignore[arg-type]
    assert bool(calls) is flushed


class Pending:
    """Pending rows of a table."""

    def __init__(self, filled: object = None) -> None:
        self.filled, self.flushes, self.names = filled, 0, None

    def build_and_pass_batch(self) -> None:
        self.flushes += 1

    def set_names(self, names: object) -> None:
        self.names = names  # type: ignore[assignment]


@pytest.mark.parametrize("filled", [None, "cells"])
def test_the_table_of_the_last_row_is_not_flushed_with_the_others(filled: str | None) -> None:
    tables = {"a": Pending(), "b": Pending(filled), "c": Pending()}
    router = SimpleNamespace(_last=SimpleNamespace(pending=tables["b"]), _tables=tables, _event_bytes=5, _names="old")
    table_router.TableRouter.flush_settled(router)  # type: ignore[arg-type]
    assert [one.flushes for one in tables.values()] == [1, 0, 1] and router._event_bytes == 0
    renewed = [one.names is router._names for one in tables.values()]
    assert renewed == [filled is None] * 3 and (router._names == "old") is (filled is not None)
    router._last = None
    table_router.TableRouter.flush_settled(router)  # type: ignore[arg-type]
    assert [one.flushes for one in tables.values()] == [2, 1, 2] and router._names != "old"


def test_a_transaction_that_another_one_follows_without_its_end_is_named() -> None:
    """Group 0 continues the open transaction; an event is the last of its group."""

    def note(found: list[tuple[int, int | None]], has_begun: bool = True, is_full: bool = False) -> list[str]:
        texts: list[str] = []
        summary = SimpleNamespace(
            has_begun=has_begun,
            add_unfinished=texts.append,
            record_transaction_boundary=lambda ends: texts.append(f"ends {ends}"),
        )
        router = SimpleNamespace(summary=summary, is_full=is_full, _describe_open=lambda: "open")
        columns = SimpleNamespace(
            find_unfinished_transactions=lambda commits, is_last_open: found, offsets=[100, 2000], groups=[0],
            format_transaction_of_event=lambda event: f"0-1-{event}",
        )  # fmt: skip
        batch = SimpleNamespace(rows=SimpleNamespace(commits=(), open=True), file="log")
        table_router.TableRouter._record_unfinished_transactions(router, batch, columns)  # type: ignore[arg-type]
        return texts

    assert (note([(0, None)]), note([(1, None)])) == (["open"], [])
    assert note([(0, 0), (1, 1)]) == ["log at 100: transaction 0-1-0", "log at 2,000: transaction 0-1-1"]
    assert note([(0, 0), (1, 1)], has_begun=False) == ["log at 2,000: transaction 0-1-1"]
    assert note([(0, 0), (1, 1)], is_full=True) == []


# -- progress, findings, empty tables ----------------------------------------------------------------------------------


@pytest.mark.parametrize("is_script", [False, True])
def test_progress_of_messages_counts_the_bytes_of_earlier_files(is_script: bool) -> None:
    """The job of a script reports its progress where it writes the statements."""
    steps: list[tuple[int, int | None, int]] = []
    job = SimpleNamespace(
        _is_script=is_script,
        on_step=lambda step: steps.append((step.done, step.total, step.records)),
        records_by_file=Counter(),
        script_ends=[],
        on_read=None,
        finding_tally=FindingTally(),
    )
    job._count_records = partial(StreamJob._count_records, job)  # type: ignore[arg-type]
    inputs = [ManifestInput("a", "drizzle", 1000, "", 0), ManifestInput("b", "drizzle", 500, "", 0)]
    parts = [SqlFragment("a", [1, 2], (400,), b""), SqlFragment("b", [1], (30,), b"")]
    assert list(StreamJob.count_parts_and_drop_damage(job, parts, inputs)) == parts  # type: ignore[arg-type]
    assert job.records_by_file == {"a": 2, "b": 1}
    assert steps == ([] if is_script else [(400, 1500, 2), (1030, 1500, 3)])


def test_a_run_of_append_counts_the_findings_in_its_rows(tmp_path: Path) -> None:
    (tmp_path / "transaction.log").write_bytes(damaged_log(5))
    options = {"append": True, "final": True, "selection": Selection(on_damage="skip")}
    done = binlogtool.convert([tmp_path / "transaction.log"], "parquet", tmp_path / "out", **options)
    assert done.finding_counts == {"checksum-mismatch": 1, "damaged-range": 1}


def test_a_table_without_rows_has_a_file_with_its_columns(log: Path, tmp_path: Path) -> None:
    selection = Selection(on_damage="stop", types=("ROTATE",))
    done = binlogtool.convert([log], "parquet", tmp_path / "out", selection=selection)
    (part,) = (tmp_path / "out").glob("part-*")
    assert (done.rows, parquet.read_table(part).num_rows) == (0, 0)
    assert parquet.read_schema(part).names[:3] == ["file", "format", "record"]


def test_limits_are_checked_with_the_bytes_up_to_the_last_record_of_each_batch(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The first piece has 1,000 bytes; of the second file the part from byte 100 on is read."""

    def batch(*offsets: int) -> pa.RecordBatch:
        numbers = pa.array(offsets, pa.int64())
        return pa.record_batch([numbers, numbers, numbers], names=["offset", "record", "size"])

    batches = {"a": [batch(10, 500, 900), batch()], "b": [batch(100, 350)]}
    monkeypatch.setattr(
        write_record_tables, "read_file_rows", lambda member, *arguments, **options: iter(batches[member.name])
    )
    calls: list[tuple[int, int]] = []
    pieces = (
        TaskPiece(TaskFile("/a", "a", "drizzle", 1000)),
        TaskPiece(TaskFile("/b", "b", "drizzle", 600), FilePart(ResumePoint(100, 2, 0), 600)),
    )
    limits = SimpleNamespace(check_deadline_and_report=lambda size, rows: calls.append((size, rows)))
    task, options = SpoolTask(number=0, pieces=pieces), TableFileOptions("parquet")
    reader = TaskReader(task, ReadRequest(()), options, Path(), limits)  # type: ignore[arg-type]
    assert len(list(RecordRows(options)._read_batches(reader, ReadBackCounts()))) == 3
    assert calls == [(900, 3), (0, 3), (1250, 5)]
