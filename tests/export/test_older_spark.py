"""The oldest PySpark that the extra `spark` allows does what the newest does."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
FILES = ("record_tables", "source_options", "streaming")
"""Tests of the ways that rows take through Spark: to its writer, from the reader, from a stream."""


def older(folder: Path) -> dict[str, str]:
    """An environment in which that PySpark is found first."""
    version = os.environ.get("BINLOGTOOL_OLDER_SPARK")
    if version is None:
        pytest.skip("BINLOGTOOL_OLDER_SPARK names no version, such as 4.2.1, to be installed for this")
    install = [sys.executable, "-m", "pip", "install", "--quiet", "--no-deps", "--target", str(folder)]
    subprocess.run([*install, f"pyspark=={version}"], check=True, timeout=600)
    not_its = ("PYTEST_", "PYTHON")
    made = {name: value for name, value in os.environ.items() if not name.startswith(not_its)}
    return {**made, "PYTHONPATH": str(folder)}


@pytest.mark.nightly
@pytest.mark.spark(alone=True)
def test_rows_take_the_same_ways_through_the_oldest_spark(tmp_path: Path) -> None:
    environment = older(tmp_path / "older")
    asked = [sys.executable, "-c", "import pyspark; print(pyspark.__version__, pyspark.__file__)"]
    said = subprocess.run(asked, env=environment, capture_output=True, text=True, check=True, cwd=ROOT).stdout
    assert said.startswith("4.2.") and str(tmp_path) in said
    files = [f"tests/export/test_{name}.py" for name in FILES]
    command = [
        sys.executable,
        "-m",
        "pytest",
        "-q",
        "-p",
        "no:cacheprovider",
        f"--basetemp={tmp_path / 'tests'}",
        *files,
    ]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=900, cwd=ROOT)
    last = done.stdout.strip().splitlines()[-1]
    assert done.returncode == 0 and "passed" in last and "skipped" not in last, done.stdout[-4000:]


@pytest.mark.nightly
@pytest.mark.spark(alone=True)
def test_a_delta_table_is_kept_as_the_example_does_it(tmp_path: Path) -> None:
    """The log's statements: five orders come, the first four are deleted. Its jars come from Maven Central."""
    environment = older(tmp_path / "older")
    words = ["tests/corpus/guides/mariadb", "shop.orders", "id", str(tmp_path / "orders")]
    for _ in range(2):
        done = subprocess.run(
            [sys.executable, "docs/examples/delta.py", *words],
            env=environment, capture_output=True, text=True, timeout=600, cwd=ROOT,
        )  # fmt: skip
        assert done.returncode == 0, done.stderr[-4000:]
        rows = [line.replace(" ", "") for line in done.stdout.splitlines() if line.startswith("|")]
        assert rows == ["|id|customer|total|state|", "|5|Egil|42.00|open|"]
