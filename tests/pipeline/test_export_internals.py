"""Test the locks, the staging and the proofs of exports, one rule at a time."""

from __future__ import annotations

import errno
import fcntl
import json
import os
import socket
import struct
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

import binlogtool
from binlogtool.core.record_selection import Selection
from binlogtool.errors import InputOutputError, RefusedError, UsageError
from binlogtool.export import atomic_output, copy_transactions
from binlogtool.export.atomic_output import hold_lock_file, stage_log_set
from binlogtool.export.manifest import ProgressStep, SparkJobStats, TaskFile, pack_tasks
from binlogtool.export.sql_scripts import SidecarFolder
from binlogtool.findings import Severity, make_finding
from tests.pipeline.ibb_writer import IbbWriter

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
    assert [atomic_output._is_unlocked(stage) for _ in range(3)] == [host == "here"] * 3
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
    verify = copy_transactions.BinlogJob._verify_log

    def verify_and_add(self: Any, paths: Any, format: str, hints: Any) -> Any:
        yield from verify(self, paths, format, hints)
        if format == "mysql-binlog":
            for severity in (Severity.NOTE, Severity.WARNING, Severity.WARNING):
                finding = make_finding("torn-tail", 7, 1, "text", severity=severity)
                yield "/x/binlog.000001", finding

    monkeypatch.setattr(copy_transactions.BinlogJob, "_verify_log", verify_and_add)
    done = copy_log(log, tmp_path / "new")
    assert {check.name: check.detail for check in done.checks}["verified"] == "errors 0, warnings 2, notes 1"
    assert done.finding_counts["torn-tail"] == 2
    assert [one["file"] for one in done.findings if one["id"] == "torn-tail"] == ["binlog.000001"] * 2


def test_a_new_log_that_reads_back_with_fewer_transactions_is_refused(
    log: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Forgetful(copy_transactions.TransactionDigest):
        def add(self, group: Any) -> None:
            pass

    made = copy_transactions.BinlogJob._read_back

    def read_back(self: Any, writer: Any) -> Any:
        with monkeypatch.context() as patched:
            patched.setattr(copy_transactions, "TransactionDigest", Forgetful)
            yield from made(self, writer)

    monkeypatch.setattr(copy_transactions.BinlogJob, "_read_back", read_back)
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
