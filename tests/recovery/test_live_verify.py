"""`verify --live`: what a server is about to put right is no finding; what is wrong stays one."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

import binlogtool
from binlogtool.core import open_file as open_file_module
from binlogtool.findings import Severity
from binlogtool.verification import verify_logs


@pytest.fixture
def data(samples: Path, tmp_path: Path) -> Path:
    """The data directory of a MySQL server."""
    return Path(shutil.copytree(samples / "mysql_binlog/sets/mysql", tmp_path / "data"))


def wrong(path: Path, *, live: bool = True) -> list[str]:
    report = binlogtool.verify([path], live=live)
    return sorted(
        [f.id for f in report.findings if f.severity > Severity.NOTE]
        + [f"status {f.exit_code}" for f in report.failures]
    )


def between_looks(monkeypatch: pytest.MonkeyPatch, *works: Any) -> None:
    """Lets a server do something between one look and the next."""
    todo = list(works)

    def sleep(_seconds: float) -> None:
        if todo:
            todo.pop(0)()

    monkeypatch.setattr(verify_logs.time, "sleep", sleep)


def test_a_file_that_the_log_names_and_that_is_made_a_moment_later_is_no_finding(
    data: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    newest = data / "rot-bin.000007"
    content = newest.read_bytes()
    newest.unlink()
    assert wrong(data, live=False) == ["missing-member"]
    between_looks(monkeypatch, lambda: newest.write_bytes(content))
    assert wrong(data) == []


HOLDS = "import sys; file = open(sys.argv[1], sys.argv[2]); print('ready', flush=True); sys.stdin.read()"


@pytest.mark.parametrize(("mode", "expected"), [("ab", []), ("rb", ["missing-member"])])
def test_a_rotation_to_a_file_that_the_server_has_not_created_yet_is_no_finding(
    data: Path, monkeypatch: pytest.MonkeyPatch, mode: str, expected: list[str]
) -> None:
    """MariaDB writes ROTATE and closes the log and its index before it creates the next file, at times seconds later.

    Only a process with another file of the directory open for writing shows that the server runs.
    """
    for number in (5, 6, 7):
        (data / f"rot-bin.00000{number}").unlink()
    index = data / "rot-bin.index"
    index.write_bytes(b"".join(index.read_bytes().splitlines(keepends=True)[:2]))
    (data / "ibdata1").write_bytes(bytes(100))
    between_looks(monkeypatch)
    assert wrong(data) == ["missing-member"]
    command = [sys.executable, "-c", HOLDS, str(data / "ibdata1"), mode]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as holder:
        assert holder.stdout is not None and holder.stdout.readline() == b"ready\n"
        assert (wrong(data), wrong(data, live=False)) == (expected, ["missing-member"])
        assert holder.stdin is not None
        holder.stdin.close()


def test_a_file_that_stays_missing_is_told(data: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (data / "rot-bin.000005").unlink()
    between_looks(monkeypatch)
    assert wrong(data) == wrong(data, live=False) != []


def test_a_purge_between_two_reads_is_no_finding(data: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The index was read before the oldest files went, and is written anew without them."""
    oldest, index = data / "rot-bin.000003", data / "rot-bin.index"
    lines = index.read_bytes().splitlines(keepends=True)
    oldest.unlink()
    between_looks(monkeypatch, lambda: index.write_bytes(b"".join(lines[1:])))
    assert wrong(data) == []


def test_another_file_missing_each_time_is_no_finding(data: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    kept = {path: path.read_bytes() for path in sorted(data.glob("rot-bin.00000?"))}

    def only_missing(path: Path) -> None:
        for one, content in kept.items():
            one.write_bytes(content)
        path.unlink()

    only_missing(list(kept)[1])
    between_looks(monkeypatch, *(lambda path=list(kept)[1 + n % 3]: only_missing(path) for n in range(1, 20)))
    assert wrong(data) == []


@pytest.mark.parametrize("live", [True, False])
def test_a_file_that_vanished_since_it_was_listed_is_no_failure_while_the_server_runs(
    data: Path, monkeypatch: pytest.MonkeyPatch, live: bool
) -> None:
    (data / "rot-bin.~rec~").write_bytes(b"")
    real = open_file_module.open_file

    def opened(path: str, *rest: Any, **more: Any) -> Any:
        if path.endswith("~rec~"):
            Path(path).unlink(missing_ok=True)
        return real(path, *rest, **more)

    monkeypatch.setattr(verify_logs.examine_log, "__defaults__", (opened, verify_logs.examine_log.__defaults__[1]))
    assert wrong(data, live=live) == ([] if live else ["status 4"])


def test_a_file_that_is_named_must_be_there(tmp_path: Path) -> None:
    assert wrong(tmp_path / "nothing") == ["status 4"]


def test_damage_is_found_while_the_server_runs(data: Path) -> None:
    log = data / "rot-bin.000004"
    broken = bytearray(log.read_bytes())
    broken[200] ^= 1
    log.write_bytes(broken)
    assert "checksum-mismatch" in wrong(data)
