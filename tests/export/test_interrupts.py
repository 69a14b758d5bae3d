"""Test that Ctrl-C ends a conversion in every stage within three seconds and leaves nothing half-written."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tests.harness.slowness import scale_limit
from tests.sampling import take_sample

ROOT = Path(__file__).resolve().parents[2]
LOGS = {"drizzle": "drizzle/basic-checksum.log", "mysql": "mysql_binlog/sets/mariadb/rot-bin.000003"}

SCRIPT = """
import sys, time
import binlogtool
from binlogtool.export import convert_logs as convert_module
to, log, out, stage, master = sys.argv[1:]

def report(current_stage):
    if current_stage == stage:
        print("there", flush=True)
        time.sleep(600)  # until the signal comes

stamp, calls = convert_module.read_stamp, []
def read_and_report(path):
    calls.append(path)
    report("written" if len(calls) == 2 else "")
    return stamp(path)

convert_module.read_stamp = read_and_report
try:
    binlogtool.convert(
        [log], to, out, master=master or None, on_step=lambda step: report(step.stage),
        lines=(lambda block: bytes(len(block))) if to == "jsonl" else None,
    )
except KeyboardInterrupt:
    sys.exit(130)
print("finished")
"""


def interrupt_conversion(to: str, stage: str, log: Path, tmp_path: Path, master: str = "") -> None:
    """Send SIGINT when the conversion reports the stage; check its end and that no file is left."""
    work = tmp_path / "work"
    work.mkdir()
    env = {**os.environ, "PYTHONPATH": str(ROOT), "TMPDIR": str(tmp_path)}
    command = [sys.executable, "-c", SCRIPT, to, str(log), str(work / "out"), stage, master]
    with subprocess.Popen(command, env=env, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None and process.stderr is not None
        assert process.stdout.readline() == "there\n", process.stderr.read()
        sent = time.monotonic()
        process.send_signal(signal.SIGINT)
        out, err = process.communicate(timeout=120)
        took = time.monotonic() - sent
    assert "finished" not in out, "the conversion was over before the signal"
    assert (process.returncode, err) == (130, "")
    assert took < scale_limit(3)
    assert os.listdir(work) == []
    assert [name for name in os.listdir(tmp_path) if name.startswith("binlogtool-")] == []


@pytest.mark.parametrize(("to", "stage", "log"), [
    ("jsonl", "converting", "drizzle"),
    ("raw", "converting", "drizzle"),
    ("sql", "converting", "mysql"),
    ("sql", "written", "mysql"),
    ("mysql-binlog", "written", "mysql"),
])  # fmt: skip
def test_an_ordered_conversion_that_is_interrupted_leaves_nothing(
    to: str, stage: str, log: str, samples: Path, tmp_path: Path
) -> None:
    interrupt_conversion(to, stage, samples / LOGS[log], tmp_path)


@pytest.mark.full
@pytest.mark.spark(alone=True)
@pytest.mark.parametrize("stage", take_sample(["converting", "starting Spark"], 2))
def test_a_conversion_in_spark_that_is_interrupted_leaves_nothing(stage: str, samples: Path, tmp_path: Path) -> None:
    interrupt_conversion("parquet", stage, samples / LOGS["drizzle"], tmp_path, "local[2]")


@pytest.mark.parametrize(("to", "stage"), [
    pytest.param("orc", "reading headers", marks=pytest.mark.full),
    ("csv", "converting"),
    pytest.param("json", "written", marks=pytest.mark.full),
    pytest.param("avro", "converting", marks=pytest.mark.full),
])  # fmt: skip
def test_a_table_that_is_interrupted_leaves_nothing(to: str, stage: str, samples: Path, tmp_path: Path) -> None:
    interrupt_conversion(to, stage, samples / LOGS["drizzle"], tmp_path)
