"""H6: closed pipes, full disks, foreign locales, no terminal, bad options: the right status and no traceback."""

from __future__ import annotations

import os
import resource
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tests.cli.invoke import ROOT, invoke, program
from tests.cli.samples import plain_log

COMMANDS = [
    ["--help"],
    ["--version"],
    ["verify", "FILE"],
    ["dump", "FILE"],
    ["dump", "-O", "jsonl", "FILE"],
    ["dump", "-O", "table", "FILE"],
    ["hexdump-annotate", "FILE"],
    ["truncate-to-durable", "FILE"],
    ["explain"],
    ["man", "verify"],
]


@pytest.fixture
def log(tmp_path: Path) -> Path:
    """500 records: more than a pipe's or a stream's buffer."""
    path = tmp_path / "x.log"
    path.write_bytes(plain_log(500))
    return path


def line(words: list[str], log: Path) -> list[str]:
    return [str(log) if w == "FILE" else w for w in words]


@pytest.mark.full
@pytest.mark.parametrize("words", COMMANDS, ids=" ".join)
def test_a_full_disk_is_status_4_and_one_line(words: list[str], log: Path) -> None:
    with open("/dev/full", "wb") as full:
        done = program(*line(words, log), stdout=full)
    assert done.returncode == 4
    assert done.stderr.count(b"\n") == 1 and b"No space left" in done.stderr


@pytest.mark.parametrize("words", [["dump", "FILE"], ["verify", "FILE"], ["dump", "-O", "raw", "FILE"]], ids=" ".join)
def test_a_full_output_device_is_status_4(words: list[str], log: Path) -> None:
    done = program(*line(words, log), "-o", "/dev/full")
    assert done.returncode == 4 and b"No space left" in done.stderr


def test_a_full_disk_leaves_no_half_output(log: Path, tmp_path: Path) -> None:
    def small_files() -> None:
        signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
        resource.setrlimit(resource.RLIMIT_FSIZE, (4096, 4096))

    done = program("dump", "-O", "jsonl", "-o", str(tmp_path / "out"), str(log), preexec_fn=small_files)
    assert done.returncode == 4
    assert done.stderr.count(b"\n") == 1
    assert [p.name for p in tmp_path.iterdir()] == ["x.log"]


@pytest.mark.full
@pytest.mark.parametrize("words", COMMANDS, ids=" ".join)
def test_a_closed_pipe_ends_quietly(words: list[str], log: Path) -> None:
    reading, writing = os.pipe()
    os.close(reading)
    done = program(*line(words, log), stdout=writing)
    os.close(writing)
    assert done.returncode == 0
    assert done.stderr == b""


def test_head_gets_its_line_and_the_writer_ends_quietly(log: Path) -> None:
    command = f"{sys.executable} -m binlogtool dump {log} | head -1; echo ${{PIPESTATUS[0]}}"
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    done = subprocess.run(["bash", "-c", command], capture_output=True, timeout=60, check=True, env=environment)
    assert done.stdout.splitlines()[0].startswith(b"0x00000000")
    assert done.stdout.splitlines()[1] == b"0"
    assert done.stderr == b""


def test_a_closed_pipe_keeps_the_status_of_findings(tmp_path: Path) -> None:
    path = tmp_path / "bad.log"
    data = bytearray(plain_log(3))
    data[100] ^= 1
    path.write_bytes(data)
    reading, writing = os.pipe()
    os.close(reading)
    done = program("verify", str(path), stdout=writing)
    os.close(writing)
    assert done.returncode == 1


@pytest.mark.parametrize("words", [["dump", "FILE"], ["verify", "FILE"], ["--help"]], ids=" ".join)
def test_a_closed_standard_output_is_no_traceback(words: list[str], log: Path) -> None:
    command = " ".join([sys.executable, "-m", "binlogtool", *line(words, log), ">&-"])
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    done = subprocess.run(["bash", "-c", command], capture_output=True, timeout=60, check=False, env=environment)
    assert done.returncode in (0, 4)
    assert b"Traceback" not in done.stderr


@pytest.mark.parametrize("words", [["verify", "gone"], ["dump", "FILE"], ["--nothing"]], ids=" ".join)
def test_a_closed_standard_error_changes_nothing(words: list[str], log: Path) -> None:
    command = " ".join([sys.executable, "-m", "binlogtool", *line(words, log), "2>&-"])
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    done = subprocess.run(["bash", "-c", command], capture_output=True, timeout=60, check=False, env=environment)
    assert done.returncode == {"gone": 4, "--nothing": 2}.get(words[-1], 0)


LOCALES = [
    {"LC_ALL": "C", "PYTHONCOERCECLOCALE": "0", "PYTHONUTF8": "0"},
    {"PYTHONIOENCODING": "latin-1"},
    {"PYTHONIOENCODING": "ascii"},
]


@pytest.mark.full
@pytest.mark.parametrize("environment", LOCALES, ids=lambda e: " ".join(f"{k}={v}" for k, v in e.items()))
@pytest.mark.parametrize("words", COMMANDS, ids=" ".join)
def test_foreign_locales_work(words: list[str], environment: dict[str, str], log: Path) -> None:
    done = program(*line(words, log), env=environment)
    assert done.returncode == 0, done.stderr
    assert done.stdout
    assert done.stderr == b""


def test_json_is_utf_8_in_every_locale(tmp_path: Path) -> None:
    path = tmp_path / "é.log"
    path.write_bytes(plain_log(1))
    done = program("dump", "-O", "jsonl", str(path), env={"PYTHONIOENCODING": "latin-1"})
    assert "é.log" in done.stdout.decode("utf-8")


@pytest.mark.parametrize(
    "words",
    [
        ["nothing"],
        ["verify"],
        ["dump"],
        ["hexdump-annotate"],
        ["truncate-to-durable"],
        ["convert"],
        ["verify", "--nothing"],
        ["--nothing"],
        ["verify", "--depth"],
        ["verify", "--depth", "x", "y"],
        ["hexdump-annotate", "a", "b"],
        ["completion"],
        ["completion", "tcsh"],
        ["convert", "a", "--to", "pdf"],
        ["convert", "a"],
        ["hexdump-annotate", "--record", "-1", "a"],
        ["--jobs", "0", "verify", "a"],
        ["--color", "blue", "verify", "a"],
        ["truncate-to-durable", "--plan", "p", "a", "b"],
    ],
    ids=" ".join,
)
def test_bad_command_lines_are_status_2_and_one_line(words: list[str]) -> None:
    done = invoke(*words)
    assert (done.code, done.out) == (2, b"")
    assert done.err.startswith("binlogtool: ") and done.err.count("\n") == 1


def test_a_bug_is_one_line_with_a_report(log: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(*_: object, **__: object) -> None:
        raise ZeroDivisionError("\x1b[31mno")

    monkeypatch.setattr("binlogtool.verify", broken)
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    done = invoke("verify", str(log))
    assert done.code == 70
    assert done.err.count("\n") == 1 and "\x1b" not in done.err
    (report,) = tmp_path.glob("binlogtool-*.crash.txt")
    assert str(report) in done.err
    assert "ZeroDivisionError" in report.read_text()


def test_a_bug_whose_words_are_gone_is_one_line_as_well(
    log: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    class OfASession(Exception):
        def __str__(self) -> str:
            raise AssertionError("the session is gone")

    def broken(*_: object, **__: object) -> None:
        raise OfASession

    monkeypatch.setattr("binlogtool.verify", broken)
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    done = invoke("verify", str(log))
    assert done.code == 70 and done.err.count("\n") == 1
    assert "OfASession: its message was lost with its Spark session" in done.err and ".crash.txt" in done.err


def test_debug_shows_the_traceback(log: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(*_: object, **__: object) -> None:
        raise ZeroDivisionError

    monkeypatch.setattr("binlogtool.verify", broken)
    done = invoke("verify", "--debug", str(log))
    assert done.code == 70 and "Traceback" in done.err


def test_out_of_memory_is_status_6(log: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def greedy(*_: object, **__: object) -> None:
        raise MemoryError

    monkeypatch.setattr("binlogtool.verify", greedy)
    assert invoke("verify", str(log)).code == 6


@pytest.mark.full
def test_a_timeout_ends_with_status_6(tmp_path: Path) -> None:
    fifo = tmp_path / "x.log"
    os.mkfifo(fifo)
    holder = os.open(fifo, os.O_RDWR)
    try:
        done = program("dump", "--timeout", "1s", "-f", "drizzle", "-", stdin=holder)
    finally:
        os.close(holder)
    assert done.returncode == 6
    assert done.stderr.count(b"\n") == 1


@pytest.mark.parametrize(
    ("make", "code"),
    [("directory", 3), ("empty directory", 3), ("unreadable", 4), ("link to nothing", 4), ("zeros", 3), ("empty", 3)],
)
def test_what_is_no_log_is_one_line(make: str, code: int, tmp_path: Path) -> None:
    target = tmp_path / "x"
    match make:
        case "directory":
            (target / "in").mkdir(parents=True)
            (target / "in" / "notes.txt").write_text("notes")
        case "empty directory":
            target.mkdir()
        case "unreadable":
            target.write_bytes(plain_log())
            target.chmod(0)
            if os.geteuid() == 0:
                pytest.skip("root reads everything")
        case "link to nothing":
            target.symlink_to(tmp_path / "gone")
        case "zeros":
            target.write_bytes(bytes(100_000))
        case "empty":
            target.write_bytes(b"")
    for command in ("verify", "dump", "hexdump-annotate", "truncate-to-durable"):
        done = invoke(command, str(target))
        assert done.code == code, (command, done.err)
        assert done.err.count("\n") == 1
