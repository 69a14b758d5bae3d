"""No Python that is started imports modules from the working directory, which may be that of somebody else's logs."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from binlogtool.export.spark_settings import build_settings
from binlogtool.spark.session import _worker_environment
from tests.cli.invoke import ROOT

NAMES = (
    "pyspark",
    "json",
    "socket",
    "zipfile",
    "multiprocessing",
    "numpy",
    "pyarrow",
    "sitecustomize",
    "usercustomize",
)
"""Modules that workers import; each leaves a file when it is run."""


@pytest.fixture
def hostile(tmp_path: Path) -> Path:
    for name in NAMES:
        (tmp_path / f"{name}.py").write_text(f"import os; open(os.path.join({str(tmp_path)!r}, 'RAN-{name}'), 'w')")
    logs = tmp_path / "d"
    logs.mkdir()
    for number in (1188, 2188):
        source = ROOT / "tests" / "corpus" / "readme" / "intact" / "00000000000000001188.xlog"
        (logs / f"{number}").mkdir()
        (logs / f"{number}" / source.name).write_bytes(source.read_bytes())
    return tmp_path


@pytest.mark.full
@pytest.mark.parametrize(
    "words",
    [
        ["--jobs", "2"],
        pytest.param(["--master", "local[2]"], marks=[pytest.mark.spark(alone=True), pytest.mark.nightly]),
    ],
)
def test_workers_import_nothing_from_the_working_directory(hostile: Path, words: list[str]) -> None:
    """The program itself is started as its script starts it: without the working directory in its path."""
    line = [sys.executable, "-P", "-m", "binlogtool", "verify", *words, "d/1188", "d/2188"]
    environment = {**os.environ, "PYTHONPATH": f"{os.pathsep}{ROOT}".lstrip(os.pathsep)}
    done = subprocess.run(line, cwd=hostile, env=environment, capture_output=True, timeout=300, check=False)
    assert done.returncode == 0 and b"565 records" in done.stdout, done.stderr
    assert list(hostile.glob("RAN-*")) == []


@pytest.mark.full
@pytest.mark.spark(alone=True)
def test_spark_and_its_workers_work_in_a_private_directory(hostile: Path) -> None:
    """Both Java and the Python that runs tasks; it is gone when they are. Tasks import nothing from elsewhere."""
    program = """
import os
import binlogtool
from binlogtool.spark.session import open_session
with open_session("local[1]") as session:
    reports = binlogtool.verify_fleet(["d/1188", "d/2188"], session=session)
    print(*(sum(file.records for file in report.files) for report in reports))
    context = session.spark.sparkContext
    java = os.readlink(f"/proc/{context._gateway.proc.pid}/cwd")
    print(session.folder, java, *context.parallelize([0], 1).map(lambda _: os.getcwd()).collect())
"""
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    line = [sys.executable, "-P", "-c", program]
    done = subprocess.run(line, cwd=hostile, env=environment, capture_output=True, text=True, timeout=300, check=False)
    *records, folder, java, worker = done.stdout.split()
    assert records == ["565", "565"], done.stderr
    assert java == worker == folder != str(hostile)
    assert not Path(folder).exists()
    assert list(hostile.glob("RAN-*")) == []


def test_files_that_settings_name_are_found_from_there(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    found = build_settings(tmp_path, {"spark.jars": "a.jar,/b.jar,hdfs://c/d.jar"}, loopback=True)["spark.jars"]
    assert found.split(",") == [str(tmp_path / "a.jar"), "/b.jar", "hdfs://c/d.jar"]


def test_the_environment_of_workers_names_no_working_directory(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join(["", "relative", "", "/absolute", ""]))
    monkeypatch.chdir(tmp_path)
    found = _worker_environment("local[2]")
    assert found["PYTHONSAFEPATH"] == "1"
    assert found["PYTHONPATH"].split(os.pathsep)[1:] == [str(tmp_path / "relative"), "/absolute"]


def test_executors_of_a_cluster_get_the_same(tmp_path: Path) -> None:
    user = {"spark.executorEnv.PYTHONSAFEPATH": ""}
    assert build_settings(tmp_path, user, loopback=False)["spark.executorEnv.PYTHONSAFEPATH"] == "1"
