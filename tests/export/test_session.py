"""Test that Spark starts, works and ends without output or leftover files, also after Ctrl-C."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from binlogtool.errors import InputOutputError, LimitError, MissingExtraError
from binlogtool.export.spark_settings import check_master_url
from binlogtool.spark import session
from binlogtool.spark.session import SparkJobSession, SparkProgress, open_session
from tests.harness.slowness import scale_limit
from tests.sampling import take_sample

ROOT = Path(__file__).resolve().parents[2]

SLEEPY = """
import sys, time
from binlogtool.spark.session import open_session

def slow(batches):
    for batch in batches:
        time.sleep(60)
        yield batch

print("starting", flush=True)
with open_session("local[2]") as session:
    def job():
        print("running", flush=True)
        return session.spark.sparkContext.parallelize([1, 2], 2).map(lambda n: time.sleep(60)).collect()
    session.run_spark_action(job)
"""

QUIET = """
from binlogtool.spark.session import open_session
with open_session("local[2]") as session:
    print(session.run_spark_action(lambda: session.spark.range(10).count()))
with open_session("local[1]") as session:
    print(session.run_spark_action(lambda: session.spark.range(20).count()))
"""


def start(script: str, tmp_path: Path) -> subprocess.Popen[str]:
    scratch = tmp_path / "tmp"
    scratch.mkdir()
    env = {**os.environ, "TMPDIR": str(scratch), "PYTHONPATH": str(ROOT)}
    command = [sys.executable, "-c", script]
    return subprocess.Popen(command, env=env, cwd=tmp_path, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def running_below(folder: Path) -> list[str]:
    """List the command lines of processes that mention the folder (Java has it in its options)."""
    found = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit() and int(entry.name) != os.getpid():
            try:
                line = (entry / "cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")
            except OSError:
                continue
            if str(folder / "tmp") in line:
                found.append(line)
    return found


def wait_until_gone(folder: Path, seconds: float) -> list[str]:
    end = time.monotonic() + seconds
    while (left := running_below(folder)) and time.monotonic() < end:
        time.sleep(0.1)
    return left


@pytest.mark.full
@pytest.mark.spark(alone=True)
def test_a_run_prints_nothing_and_leaves_no_files(tmp_path: Path) -> None:
    with start(QUIET, tmp_path) as process:
        out, err = process.communicate(timeout=180)
    assert (out, err, process.returncode) == ("10\n20\n", "", 0)
    assert wait_until_gone(tmp_path, 30) == []
    assert list((tmp_path / "tmp").iterdir()) == []
    assert [p.name for p in tmp_path.iterdir()] == ["tmp"]


@pytest.mark.full
@pytest.mark.spark(alone=True)
@pytest.mark.parametrize(("line", "delay"), take_sample([("starting", 1.5), ("starting", 4.0), ("running", 2.0)], 3))
def test_an_interrupt_ends_everything_within_three_seconds(tmp_path: Path, line: str, delay: float) -> None:
    with start(SLEEPY, tmp_path) as process:
        assert process.stdout is not None
        while process.stdout.readline() != f"{line}\n":
            assert process.poll() is None
        time.sleep(delay)
        sent = time.monotonic()
        process.send_signal(signal.SIGINT)
        _, err = process.communicate(timeout=60)
        took = time.monotonic() - sent
    assert process.returncode == -signal.SIGINT
    assert err.splitlines()[-1] == "KeyboardInterrupt"
    assert "py4j" not in err
    assert took < scale_limit(3)
    assert wait_until_gone(tmp_path, 30) == []
    assert list((tmp_path / "tmp").iterdir()) == []


@pytest.mark.spark
def test_a_session_gives_results_errors_and_progress(spark_session: SparkJobSession) -> None:
    seen: list[SparkProgress] = []
    context = spark_session.spark.sparkContext

    def job() -> list[int]:
        return context.parallelize(range(8), 8).map(lambda n: (time.sleep(0.5), n)[1]).collect()  # type: ignore[no-any-return]

    assert spark_session.run_spark_action(job, seen.append) == list(range(8))
    assert any(0 < p.done < p.total for p in seen)

    def fail() -> None:
        raise ValueError("the job failed")

    with pytest.raises(ValueError, match="the job failed"):
        spark_session.run_spark_action(fail)


@pytest.mark.full
@pytest.mark.spark
def test_a_job_that_takes_too_long_is_cancelled(spark_session: SparkJobSession) -> None:
    context = spark_session.spark.sparkContext

    def job() -> None:
        context.parallelize([1, 2], 2).map(lambda _: time.sleep(60)).collect()

    start = time.monotonic()
    with pytest.raises(LimitError, match="time limit"):
        spark_session.run_spark_action(job, timeout_seconds=1)
    assert time.monotonic() - start < scale_limit(5)
    assert spark_session.run_spark_action(lambda: spark_session.spark.range(3).count()) == 3


@pytest.mark.spark
def test_the_session_reads_with_this_python_and_in_utc(spark_session: SparkJobSession) -> None:
    spark: Any = spark_session.spark
    seen = spark.sparkContext.parallelize([0], 1).map(lambda _: sys.executable).collect()
    assert seen == [sys.executable]
    assert spark.sql("select cast(timestamp_micros(0) as string) t").collect()[0].t == "1970-01-01 00:00:00"


def test_a_missing_package_is_one_line_that_names_the_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    import importlib.util

    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    words = r"needs pyspark and pyarrow: run `pip install '\.\[spark\]'`"
    with pytest.raises(MissingExtraError, match=words) as caught, open_session():
        pytest.fail("must not start")
    assert "\n" not in str(caught.value)


@pytest.mark.full
@pytest.mark.spark(alone=True)
def test_a_java_that_dies_is_one_line_with_its_last_words(tmp_path: Path) -> None:
    program = tmp_path / "home" / "bin" / "java"
    program.parent.mkdir(parents=True)
    program.write_text(
        "#!/bin/sh\ncase $* in *-version*) echo 'version \"21\"' ;; *) echo 'no heap today' >&2; exit 3 ;; esac\n"
    )
    program.chmod(0o755)
    script = (
        "from binlogtool.spark.session import open_session\n"
        "from binlogtool.errors import InputOutputError\n"
        "try:\n    open_session().__enter__()\nexcept InputOutputError as error:\n    print(error)\n"
    )
    os_env = {**os.environ, "JAVA_HOME": str(tmp_path / "home"), "PYTHONPATH": str(ROOT)}
    done = subprocess.run([sys.executable, "-c", script], env=os_env, capture_output=True, text=True, timeout=120)
    assert "Spark cannot start" in done.stdout and "no heap today" in done.stdout
    assert done.stdout.count("\n") == 1
    assert done.stderr == ""


def test_the_last_words_of_a_start_leave_out_where_in_the_code_it_was(tmp_path: Path) -> None:
    log = tmp_path / "spark.log"
    log.write_text(
        "spark: ERROR SparkContext: Error initializing SparkContext.\n"
        "java.lang.IllegalArgumentException: System memory 5 must be at least 9.\n"
        "\tat org.apache.spark.memory.Manager.of(Manager.scala:9)\n\tat java.base/java.lang.Thread.run(Unknown)\n"
        "\t... 12 more\n\n"
    )
    words = "spark: ERROR SparkContext: Error initializing SparkContext. | System memory 5 must be at least 9."
    assert session._read_last_messages(tmp_path) == words
    log.write_text(
        log.read_text() + "Caused by: java.net.ConnectException: refused\n\tat java.net.Socket.x(Socket:1)\n"
    )
    assert session._read_last_messages(tmp_path) == "refused"
    log.unlink()
    assert session._read_last_messages(tmp_path) == ""


def test_the_cause_of_an_error_is_the_innermost_without_names_of_classes() -> None:
    text = "Failed\n\tat a.b(C.java:1)\nCaused by: a.b.Outer: first\nCaused by: java.io.IOException: disk: full\n"
    assert session.format_java_root_cause(ValueError(text)) == "disk: full"
    assert session.format_java_root_cause(ValueError("just this\nand that")) == "just this"
    assert session.format_java_root_cause(ValueError()) == "ValueError"


@pytest.mark.parametrize(
    "master",
    [
        "local",
        "local[*]",
        "local[12]",
        "local[2, 4]",
        "local[*,4]",
        "local-cluster[2,1,1024]",
        "yarn",
        "k8s://https://h",
    ],
)
def test_masters_of_all_kinds_make_sense(master: str) -> None:
    check_master_url(master)


@pytest.mark.nightly
@pytest.mark.spark
def test_executors_of_a_cluster_on_this_machine_say_what_one_process_says(samples: Path) -> None:
    words = [sys.executable, "-m", "binlogtool", "verify", "-O", "json", samples / "mysql_binlog" / "sets" / "mariadb"]
    here, there = (
        subprocess.run([*words, *more], capture_output=True, timeout=300)
        for more in ([], ["--master", "local-cluster[2,1,1024]"])
    )
    assert (there.returncode, there.stdout) == (here.returncode, here.stdout) and there.returncode == 0


def test_the_environment_is_put_back(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PRESENT", "1")
    monkeypatch.delenv("ABSENT", raising=False)
    with session._set_environment(PRESENT="2", ABSENT="3"):
        assert (os.environ["PRESENT"], os.environ["ABSENT"]) == ("2", "3")
    assert os.environ["PRESENT"] == "1" and "ABSENT" not in os.environ


def test_the_error_type_of_a_failed_start_is_an_environment_error() -> None:
    assert InputOutputError("x").exit_code == MissingExtraError("x").exit_code == 4
