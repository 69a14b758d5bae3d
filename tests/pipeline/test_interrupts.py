"""Ctrl-C in every stage of a conversion: over within three seconds, nothing half-written."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tests.harness.slowness import stretch

ROOT = Path(__file__).resolve().parents[2]
LOGS = {"drizzle": "drizzle/basic-checksum.log", "mysql": "mysql_binlog/sets/mariadb/rot-bin.000003"}

SCRIPT = """
import sys, time
import binlogtool
from binlogtool.export import convert as convert_module
to, log, out, stage = sys.argv[1:]

def tell(now):
    if now == stage:
        print("there", flush=True)
        time.sleep(0.5)

stamp, calls = convert_module.read_stamp, []
def watched(path):
    calls.append(path)
    tell("written" if len(calls) == 2 else "")
    return stamp(path)

convert_module.read_stamp = watched
try:
    binlogtool.convert(
        [log], to, out, master="local[2]" if stage == "starting Spark" else None, on_step=lambda step: tell(step.stage),
        lines=(lambda block: bytes(len(block))) if to == "jsonl" else None,
    )
except KeyboardInterrupt:
    sys.exit(130)
print("finished")
"""


def interrupted(to: str, stage: str, log: Path, tmp_path: Path) -> None:
    work = tmp_path / "work"
    work.mkdir()
    env = {**os.environ, "PYTHONPATH": str(ROOT), "TMPDIR": str(tmp_path)}
    command = [sys.executable, "-c", SCRIPT, to, str(log), str(work / "out"), stage]
    with subprocess.Popen(command, env=env, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None and process.stderr is not None
        assert process.stdout.readline() == "there\n", process.stderr.read()
        sent = time.monotonic()
        process.send_signal(signal.SIGINT)
        out, err = process.communicate(timeout=30)
        took = time.monotonic() - sent
    assert "finished" not in out, "the conversion was over before the signal"
    assert (process.returncode, err) == (130, "")
    assert took < stretch(3)
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
    interrupted(to, stage, samples / LOGS[log], tmp_path)


@pytest.mark.parametrize(("to", "stage"), [
    pytest.param("parquet", "starting Spark", marks=[pytest.mark.spark(alone=True), pytest.mark.full]),
    ("orc", "reading headers"),
    ("csv", "converting"),
    ("json", "written"),
    ("avro", "converting"),
])  # fmt: skip
def test_a_table_that_is_interrupted_leaves_nothing(to: str, stage: str, samples: Path, tmp_path: Path) -> None:
    interrupted(to, stage, samples / LOGS["drizzle"], tmp_path)
