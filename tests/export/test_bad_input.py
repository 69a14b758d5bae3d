"""What a machine can lack: space, rights, memory, files that stay. One line, the right exit status, nothing left."""

from __future__ import annotations

import importlib.util
import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.cli.invoke import ROOT, invoke, program
from tests.sampling import take_sample

DRIZZLE, MYSQL = "drizzle/basic-checksum.log", "mysql_binlog/sets/mariadb/rot-bin.000003"
ORDERED = {"jsonl": DRIZZLE, "raw": DRIZZLE, "sql": MYSQL, "mysql-binlog": MYSQL}
TABLES = ("parquet", "orc", "csv", "json", "avro")


@pytest.fixture
def big(samples: Path, tmp_path: Path) -> Path:
    """A log of about 1 MB."""
    path = tmp_path / "logs" / "big.log"
    path.parent.mkdir()
    path.write_bytes((samples / DRIZZLE).read_bytes() * 45)
    return path


@pytest.fixture
def work(tmp_path: Path) -> Path:
    path = tmp_path / "work"
    path.mkdir()
    return path


# -- space -------------------------------------------------------------------------------------------------------------

LIMITED = """
import resource, sys
from binlogtool.cli import main
resource.setrlimit(resource.RLIMIT_FSIZE, (100, 100))
sys.exit(main(sys.argv[1:]))
"""


def limited(*words: str) -> subprocess.CompletedProcess[str]:
    """A command that cannot write more than 100 bytes to a file."""
    env = {**os.environ, "PYTHONPATH": str(ROOT), "PYTHONDONTWRITEBYTECODE": "1"}
    return subprocess.run(
        [sys.executable, "-c", LIMITED, *words], env=env, capture_output=True, text=True, timeout=60, check=False
    )


@pytest.mark.full
@pytest.mark.parametrize("to", ORDERED)
def test_a_file_that_must_not_grow_is_one_line(to: str, samples: Path, work: Path) -> None:
    done = limited("convert", "--to", to, "-o", str(work / "out"), str(samples / ORDERED[to]))
    assert done.returncode == 4, done.stderr
    assert done.stderr == f"binlogtool: {work / 'out'}: cannot be written: File too large\n"
    assert os.listdir(work) == []


def test_a_manifest_that_cannot_be_written_is_told(samples: Path, work: Path) -> None:
    words = ("convert", "--to", "raw", "-o", str(work / "out"), "--manifest", str(work / "m.json"), "--limit", "1")
    done = limited(*words, str(samples / DRIZZLE))
    assert (done.returncode, done.stderr) == (4, f"binlogtool: {work / 'm.json'}: cannot be written: File too large\n")
    assert os.listdir(work) == ["out"]


def test_a_device_is_never_replaced(samples: Path) -> None:
    for more in (("-o", "/dev/full"), ("-o", os.devnull)):
        done = invoke("convert", "--to", "raw", "--overwrite", *more, str(samples / DRIZZLE))
        assert (done.code, done.err) == (
            5,
            f"binlogtool: {more[1]} is not a regular file or directory; it is not replaced\n",
        )


FULL = """
import contextlib, os, subprocess, sys
from binlogtool.errors import BinlogtoolError
from binlogtool import convert
from binlogtool.spark.session import open_session
folder, log, *targets = sys.argv[1:]
with open_session("local[2]") as session:
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=64k", "tmpfs", folder], check=True)
    for to in targets:
        try:
            convert([log], to, os.path.join(folder, "out"), session=session, compression="none")
        except BinlogtoolError as error:
            print(to, error.exit_code, os.listdir(folder), str(error))
"""
"""In a mount namespace of its own, which ends with it. Spark's own files are elsewhere, and it starts before."""


@pytest.mark.spark(alone=True)
@pytest.mark.full
def test_a_full_disk_is_one_line_for_every_table(big: Path, work: Path) -> None:
    alone = ["unshare", "--map-root-user", "--mount"]
    try:
        subprocess.run([*alone, "mount", "-t", "tmpfs", "tmpfs", str(work)], check=True, capture_output=True)
    except (OSError, subprocess.CalledProcessError):
        pytest.skip("no mounts of one's own on this machine")
    targets = take_sample(TABLES, 2)
    command = [*alone, sys.executable, "-c", FULL, str(work), str(big), *targets]
    env = {**os.environ, "PYTHONPATH": str(ROOT)}
    done = subprocess.run(command, env=env, capture_output=True, text=True, timeout=300, check=False)
    assert (done.returncode, done.stderr) == (0, "")
    lines = done.stdout.splitlines()
    assert [line.split(" ")[:3] for line in lines] == [[to, "4", "[]"] for to in targets]
    assert all("No space left on device" in line for line in lines)


# -- rights ------------------------------------------------------------------------------------------------------------


def without_rights(*words: str) -> subprocess.CompletedProcess[str]:
    """A command of a user for whom the modes of files count."""
    env = {**os.environ, "PYTHONPATH": str(ROOT), "PYTHONDONTWRITEBYTECODE": "1"}
    plain = ["setpriv", "--bounding-set=-all", "--inh-caps=-all"] if os.geteuid() == 0 else []
    command = [*plain, sys.executable, "-m", "binlogtool", *words]
    return subprocess.run(command, env=env, capture_output=True, text=True, timeout=120, check=False)


@pytest.mark.full
@pytest.mark.parametrize("to", ORDERED)
def test_a_directory_without_permission_is_one_line(to: str, samples: Path, work: Path) -> None:
    work.chmod(0o500)
    try:
        done = without_rights("convert", "--to", to, "-o", str(work / "out"), str(samples / ORDERED[to]))
    finally:
        work.chmod(0o700)
    assert done.returncode == 4
    assert done.stderr == f"binlogtool: {work / 'out'}: cannot be written: Permission denied\n"
    assert os.listdir(work) == []


def test_one_unreadable_file_among_many_is_a_row(samples: Path, work: Path) -> None:
    for number in range(20):
        shutil.copy(samples / DRIZZLE, work / f"{number:02}.log")
    (work / "07.log").chmod(0)
    paths = [str(path) for path in sorted(work.iterdir())]
    done = without_rights("verify", "-O", "json", *paths)
    assert done.returncode == 4
    report = json.loads(done.stdout)
    assert [file["path"] for file in report["files"]] == [path for path in paths if not path.endswith("07.log")]
    assert f"binlogtool: {paths[7]}: cannot be opened: Permission denied\n" == done.stderr
    stopped = without_rights("convert", "--to", "raw", "-o", str(work / "out"), *paths)
    assert (stopped.returncode, stopped.stderr, stopped.stdout) == (4, done.stderr, "")
    assert not (work / "out").exists()


# -- files that are none -----------------------------------------------------------------------------------------------


def test_a_pipe_with_a_name_does_not_block_a_conversion(work: Path) -> None:
    os.mkfifo(work / "pipe")
    done = program("convert", "--to", "raw", "-o", str(work / "out"), str(work / "pipe"))
    assert done.returncode == 2 and b"convert needs regular files, which it reads twice" in done.stderr
    assert os.listdir(work) == ["pipe"]


@pytest.mark.parametrize(("make", "code", "words"), [
    (lambda path: path.write_bytes(b"no log at all, but long enough to be looked at" * 9), 3, "no known log format"),
    (lambda path: path.symlink_to(path), 4, "Too many levels of symbolic links"),
    (lambda path: None, 4, "No such file"),
])  # fmt: skip
def test_one_file_that_is_no_log_ends_a_conversion(make: Any, code: int, words: str, samples: Path, work: Path) -> None:
    make(work / "odd.log")
    before = os.listdir(work)
    words_ = ("convert", "--to", "raw", "-o", str(work / "out"), str(samples / DRIZZLE), str(work / "odd.log"))
    done = invoke(*words_)
    assert (done.code, done.err.count("\n"), done.out) == (code, 1, b"") and words in done.err, done.err
    assert os.listdir(work) == before


def test_an_empty_file_adds_nothing(samples: Path, work: Path) -> None:
    (work / "empty.log").touch()
    done = invoke("convert", "--to", "raw", "-o", str(work / "out"), str(samples / DRIZZLE), str(work / "empty.log"))
    assert done.code == 0 and f"read   {work / 'empty.log'}  0 B  0 records" in done.text
    assert (work / "out").read_bytes() == (samples / DRIZZLE).read_bytes()


def test_links_in_a_circle_below_a_directory_are_not_followed(samples: Path, work: Path) -> None:
    shutil.copy(samples / DRIZZLE, work / "transaction.log")
    (work / "again").symlink_to(work)
    os.mkfifo(work / "pipe.log")
    done = invoke("convert", "--to", "raw", "-o", str(work / "out"), str(work))
    assert done.code == 0, done.err
    assert (work / "out").read_bytes() == (samples / DRIZZLE).read_bytes()


# -- what must be installed, and where to ------------------------------------------------------------------------------


@pytest.mark.parametrize(("missing", "words"), [
    ("pyspark", ("--to", "parquet", "--master", "local[1]")), ("pyarrow", ("--to", "csv")),
    ("fastavro", ("--to", "avro")),
])  # fmt: skip
def test_a_missing_package_is_one_line_with_the_command(
    missing: str, words: tuple[str, ...], samples: Path, work: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    known = importlib.util.find_spec
    monkeypatch.setattr(importlib.util, "find_spec", lambda name, *a: None if name == missing else known(name, *a))
    done = invoke("convert", *words, "-o", str(work / "out"), str(samples / DRIZZLE))
    assert (done.code, done.err.count("\n")) == (4, 1)
    assert f"needs {missing}: run `pip install '.[{'spark' if missing == 'pyspark' else 'arrow'}]'`" in done.err
    assert os.listdir(work) == []


def test_a_url_without_pyarrow_is_one_line_with_the_command(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pyarrow.fs", None)
    for command in ("verify", "dump"):
        done = invoke(command, "s3://logs/x")
        assert (done.code, done.err.count("\n")) == (4, 1)
        assert "URLs need pyarrow: run `pip install '.[arrow]'` in a checkout" in done.err


@pytest.mark.parametrize("master", ["local[x]", "local[2", "local[0]", "", "nonsense", "sc://here", "spark://nowhere"])
def test_a_master_that_makes_no_sense_is_a_wrong_word(master: str, samples: Path, work: Path) -> None:
    for command in (("convert", "--to", "parquet", "-o", str(work / "out")), ("verify",)):
        done = invoke(*command, "--master", master, str(samples / DRIZZLE))
        assert (done.code, done.err.count("\n")) == (2, 1) and f"--master {master}: use " in done.err
    assert os.listdir(work) == []


@pytest.mark.spark(alone=True)
@pytest.mark.full
def test_too_little_memory_for_executors_is_one_line(samples: Path, work: Path, tmp_path: Path) -> None:
    (tmp_path / "spark-defaults.conf").write_text("spark.executor.memory 100m\n")
    words = ("convert", "--master", "local[1]", "--to", "parquet", "-o", str(work / "out"), str(samples / DRIZZLE))
    done = program(*words, env={"SPARK_CONF_DIR": str(tmp_path)}, timeout=120)
    assert (done.returncode, done.stdout, done.stderr.count(b"\n")) == (4, b"", 1)
    assert b"Spark cannot start: " in done.stderr and b"Executor memory 104857600 must be at least" in done.stderr
    assert os.listdir(work) == []


# -- processes that die ------------------------------------------------------------------------------------------------

DYING = """
import os, signal, sys
from binlogtool.errors import BinlogtoolError
from binlogtool import convert
from binlogtool.spark.session import open_session

once = []
with open_session("local[2]") as session:
    def kill(step):
        if step.stage == "converting" and not once:
            found = victims(session)
            once.extend(found)
            for pid in found:
                os.kill(pid, signal.SIGKILL)

    try:
        convert([sys.argv[1]], "parquet", sys.argv[2], session=session, on_step=kill)
        print("done", len(once))
    except BinlogtoolError as error:
        print(error.exit_code, len(once), str(error))
"""
WORKERS = """
def victims(session):
    found = []
    for name in os.listdir("/proc"):
        try:
            line = open(f"/proc/{name}/cmdline", "rb").read() if name.isdigit() else b""
            env = open(f"/proc/{name}/environ", "rb").read() if b"pyspark.daemon" in line else b""
        except OSError:
            continue
        if str(session.folder).encode() in env:
            found.append(int(name))
    return found if len(found) > 1 else []
"""
JAVA = """
def victims(session):
    return [session.spark.sparkContext._gateway.proc.pid]
"""


@pytest.mark.spark(alone=True)
@pytest.mark.nightly
@pytest.mark.parametrize("who", [pytest.param(WORKERS, id="workers"), pytest.param(JAVA, id="java")])
def test_a_process_that_is_killed_in_the_middle_costs_one_line_or_nothing(who: str, big: Path, work: Path) -> None:
    env = {**os.environ, "PYTHONPATH": str(ROOT)}
    command = [sys.executable, "-c", "import os\n" + who + DYING, str(big), str(work / "out")]
    done = subprocess.run(command, env=env, capture_output=True, text=True, timeout=120, check=False)
    assert (done.returncode, done.stdout.count("\n")) == (0, 1), done.stderr
    assert "Traceback" not in done.stderr
    status, killed = done.stdout.split(" ")[:2]
    assert int(killed) > 0, "the machine was faster than the test"
    if status == "done":
        import pyarrow.parquet as parquet

        assert parquet.read_table(work / "out").num_rows == 67 * 45
    else:
        assert status == "4" and os.listdir(work) == []
