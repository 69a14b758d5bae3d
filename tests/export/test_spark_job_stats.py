"""What befell a job on a cluster: executors that were killed, what ran the kernels, and how far it was told to be."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import sysconfig
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest

import binlogtool
from bench.mysql_log import synthetic
from binlogtool.errors import InputOutputError
from binlogtool.export.manifest import ProgressStep, WeightedProgress, describe_job_stats
from binlogtool.export.spark_settings import SparkMaster, format_spark_job_name, summarize_input_paths
from binlogtool.limits import MIB
from binlogtool.spark import session
from binlogtool.spark.session import ExecutorWatch, SparkJobSession, configured_executors, write_package_zip
from tests.export.cluster import executors, find_writer

PATIENCE_S = 300.0


def test_stages_are_parts_of_one_whole_that_never_gets_less() -> None:
    said: list[ProgressStep] = []
    tell = WeightedProgress(said.append, {"first": 0.25, "second": 0.75}, 1000)
    for step in (
        ProgressStep("starting", 0, 40), ProgressStep("first", 20, 40), ProgressStep("first", 40, 40),
        ProgressStep("waiting", 0, 7),
        ProgressStep("second", 0, 8), ProgressStep("second", 2, 8), ProgressStep("first", 1, 40),
        ProgressStep("second", 8, 8, 3),
    ):  # fmt: skip
        tell(step)
    assert [one.done for one in said] == [0, 125, 250, 250, 250, 437, 437, 1000]
    assert {one.total for one in said} == {1000} and said[3].stage == "waiting" and said[-1].records == 3


def test_only_what_a_user_wants_to_know_becomes_a_line() -> None:
    assert list(describe_job_stats({"tried_again": 0, "lost": [], "engines": ["native"]})) == []
    assert list(describe_job_stats({"tried_again": 1, "lost": [], "engines": []})) == [
        "1 task was tried again; no executors lost"
    ]
    assert list(
        describe_job_stats({"tried_again": 2000, "lost": ["executor 1 on a:1: x"], "engines": ["native", "python"]})
    ) == [
        "2,000 tasks were tried again; 1 executor lost",
        "lost executor 1 on a:1: x",
        "executors had no native code and read with python, which is slower",
    ]


@pytest.mark.parametrize(
    ("settings", "count"),
    [
        ({}, None),
        ({"spark.executor.instances": "3"}, 3),
        ({"spark.executor.instances": "3", "spark.dynamicAllocation.enabled": "true"}, None),
        ({"spark.cores.max": "9", "spark.executor.cores": "2"}, 4),
        ({"spark.cores.max": "9"}, None),
        ({"spark.cores.max": "x", "spark.executor.cores": "0"}, None),
    ],
)
def test_what_the_settings_promise_is_what_is_waited_for(settings: dict[str, str], count: int | None) -> None:
    assert configured_executors(settings.get) == count


class Context:
    """A Spark context with so many block managers at each look, the driver's among them; the last number stays."""

    def __init__(self, *counts: int) -> None:
        self.counts = list(counts)

    def __getattr__(self, name: str) -> Any:
        return lambda: self

    def size(self) -> int:
        return self.counts.pop(0) if len(self.counts) > 1 else self.counts[0]


def test_a_job_is_shared_out_when_no_more_executors_come(monkeypatch: pytest.MonkeyPatch) -> None:
    now = [0.0]
    monkeypatch.setattr(session.time, "monotonic", lambda: now[0])
    monkeypatch.setattr(session.time, "sleep", lambda seconds: now.__setitem__(0, now[0] + seconds))
    for promise, counts, expected in ((None, (1, 1, 2, 3), 3.25), (2, (1, 2, 3), 0.75), (5, (1, 2, 3), 30.75)):
        now[0] = 0.0
        context: Any = Context(*counts)
        context._jsc = context
        watch = ExecutorWatch(context, 120.0, promise)
        watch.wait_until_registered()
        assert now[0] == pytest.approx(expected, abs=0.6), promise
        watch.wait_until_registered()
        assert watch.waiting_text == f"waiting for executors: 0 of {max(promise or 0, 2)}"


@pytest.mark.parametrize(
    ("paths", "name"),
    [
        (["/fleet/a/bin.1"], "/fleet/a/bin.1"),
        (["/fleet/a/bin.1", "/fleet/a/bin.2"], "/fleet/a"),
        (["/fleet/a1/bin.1", "/fleet/a2/bin.2"], "/fleet"),
        (["fleet/bin.1", "fleet/b/bin.2"], "fleet"),
        (["s3://logs/fleet/1", "s3://logs/fleet/2"], "s3://logs/fleet"),
        (["s3://logs/1", "s3://others/2"], "s3://logs/1 and 1 more"),
        (["/a/1", "/b/2", "/c/3"], "/a/1 and 2 more"),
        (["bin.1", "bin.2"], "bin.1 and 1 more"),
    ],
)
def test_the_files_of_a_job_are_called_like_their_folder(paths: list[str], name: str) -> None:
    assert summarize_input_paths(paths) == name


def test_an_application_is_named_after_its_work() -> None:
    assert format_spark_job_name("verify", ["/a", "/b", "/c"]) == "verify /a and 2 more"
    assert SparkMaster("local").named_for("verify /a").name == "binlogtool verify /a"


def test_an_executor_that_changed_its_directory_finds_the_native_code_in_the_zip(tmp_path: Path) -> None:
    if binlogtool.resolve_backend() != "native":
        pytest.skip("no native code on this machine")
    write_package_zip(tmp_path / "b.zip")
    program = (
        "import sys; sys.path[0] = './b.zip'\n"
        "import os, binlogtool.schema, binlogtool.spark.session as package\n"
        "package.make_module_paths_absolute(); os.chdir('/'); package.make_module_paths_absolute()\n"
        "import binlogtool; print(binlogtool.resolve_backend(), binlogtool.__file__)"
    )
    environment = {**os.environ, "PYTHONPATH": sysconfig.get_path("purelib")}
    environment.pop("PYTHONSAFEPATH", None)  # a session that other tests share sets it; sys.path[0] is then no folder
    words = [sys.executable, "-S", "-c", program]
    done = subprocess.run(words, cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=60)
    assert done.stdout.split() == ["native", f"{tmp_path}/b.zip/binlogtool/__init__.py"], done.stderr


def kill_when_writing(folder: Path, output: Path, count: int, killed: list[int], workers: list[int]) -> None:
    """Kill so many executors, first one whose task is half written: it is held there until its executor is gone.

    workers: processes held up before, so that they start no other executors.
    """
    end, writer = time.monotonic() + PATIENCE_S, None
    while time.monotonic() < end and writer is None:
        time.sleep(0.02)
        if found := find_writer(folder, output):
            os.kill(found[0], signal.SIGSTOP)
            if find_writer(folder, output) == found:
                writer = found
            else:  # it closed its file before it stopped
                os.kill(found[0], signal.SIGCONT)
    assert writer is not None, "no task wrote"
    for process in workers:
        os.kill(process, signal.SIGSTOP)
    others = [process for process in executors(folder) if process != writer[1]]
    for process in [writer[1], *others][:count]:
        os.kill(process, signal.SIGKILL)
        killed.append(process)
    os.kill(writer[0], signal.SIGKILL)


@pytest.fixture(scope="module")
def big_log(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return synthetic(tmp_path_factory.mktemp("log"), 48 * MIB, 1)


class ClusterSession(NamedTuple):
    """A session on a cluster. folder: where its workers work."""

    folder: Path
    session: SparkJobSession


@pytest.fixture(scope="module")
def running(cluster_of_two: tuple[Path, str]) -> Iterator[ClusterSession]:
    folder, url = cluster_of_two
    with session.open_session(SparkMaster(url, wait_executors=20.0)) as opened:
        yield ClusterSession(folder, opened)


@pytest.mark.full
@pytest.mark.spark
@pytest.mark.parametrize("kind", ["records", pytest.param("rows", marks=pytest.mark.nightly)])
def test_a_killed_executor_is_told_and_nothing_is_missing(
    running: ClusterSession, big_log: Path, tmp_path: Path, kind: str
) -> None:
    """The rows are those of this process; nothing of the lost attempts is left."""
    here, out, killed = tmp_path / "here", tmp_path / "out", list[int]()
    options: dict[str, Any] = {"per_table": kind == "rows"}
    expected = binlogtool.convert([big_log], "parquet", here, **options)
    said: list[ProgressStep] = []
    killer = threading.Thread(target=kill_when_writing, args=(running.folder, out, 1, killed, []), daemon=True)
    killer.start()
    done = binlogtool.convert([big_log], "parquet", out, session=running.session, on_step=said.append, **options)
    killer.join()
    spark = done.details["spark"]
    assert len(killed) == 1 and len(spark["lost"]) == 1 and "code 137" in spark["lost"][0]
    assert spark["tried_again"] >= 1 and spark["engines"] == [binlogtool.resolve_backend()]
    assert done.complete and done.rows == expected.rows == done.inputs[0].records
    assert not list(tmp_path.glob("*.tmp-*")) and not list(out.rglob("_tasks"))
    sums = [f"select count(*), sum(hash(t)) from read_parquet('{one}/**/part-*') t" for one in (here, out)]
    import duckdb

    assert duckdb.sql(sums[0]).fetchall() == duckdb.sql(sums[1]).fetchall()
    far = [step.done for step in said]
    assert far == sorted(far) and far[-1] <= said[-1].total
    stages = list(dict.fromkeys(step.stage for step in said if not step.stage.startswith("waiting")))
    assert stages[:2] == ["reading headers", "converting"]


@pytest.mark.full
@pytest.mark.spark
def test_a_cluster_that_loses_all_its_workers_ends_the_work_with_one_line(
    running: ClusterSession, big_log: Path, tmp_path: Path
) -> None:
    out = tmp_path / "out"
    words = ["pgrep", "-P", str(os.getpid()), "-f", "worker.Worker"]
    workers = [int(one) for one in subprocess.run(words, capture_output=True, text=True).stdout.split()]
    killed: list[int] = []
    killer = threading.Thread(target=kill_when_writing, args=(running.folder, out, 2, killed, workers), daemon=True)
    killer.start()
    said: list[ProgressStep] = []
    with pytest.raises(InputOutputError, match=r"^no executor for 20 seconds: [^\n]*$"):
        binlogtool.convert([big_log], "parquet", out, session=running.session, on_step=said.append)
    killer.join()
    for process in workers:
        os.kill(process, signal.SIGCONT)
    assert len(killed) == len(workers) == 2
    assert any(step.stage == "waiting for executors: 0 of 2" for step in said), said
    assert not out.exists() and not list(tmp_path.glob("out.tmp-*"))
