"""Test `dump -F` as a program: what ends it, with which status, and changes of the directory meanwhile."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from binlogtool.core import follow_growing_logs
from binlogtool.errors import InputOutputError
from tests.cli.invoke import ROOT, invoke
from tests.cli.samples import insert


@contextmanager
def following(*words: str | Path, poll: str = "20ms") -> Iterator[subprocess.Popen[bytes]]:
    """Start a follower that prints lines of JSON; kill it at the end of the block."""
    command = [sys.executable, "-m", "binlogtool", "dump", "-F", "--poll", poll, "-O", "jsonl", *map(str, words)]
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "XDG_CONFIG_HOME": "/nonexistent"}
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=environment) as process:
        killer = threading.Timer(180, process.kill)
        killer.start()
        try:
            yield process
        finally:
            killer.cancel()
            process.kill()


def lines(process: subprocess.Popen[bytes], count: int) -> list[dict[str, object]]:
    assert process.stdout is not None
    return [json.loads(process.stdout.readline()) for _ in range(count)]


def test_a_closed_pipe_ends_it_also_where_nothing_is_written_any_more(plain: Path) -> None:
    with following(plain) as process:
        lines(process, 3)
        assert process.stdout is not None and process.stderr is not None
        process.stdout.close()
        assert process.wait(120) == 0
        assert process.stderr.read() == b""


def test_n_is_the_number_of_last_records_to_begin_with(tmp_path: Path) -> None:
    log = tmp_path / "transaction.log"
    log.write_bytes(b"".join(insert(number, b"a", b"b", b"c") for number in (1, 2, 3)))
    with following("-n", "2", tmp_path) as process:
        assert [record["seq"] for record in lines(process, 2)] == [2, 3]
        with log.open("ab") as appended:
            appended.write(insert(4, b"a", b"b", b"c") + insert(5, b"a", b"b", b"c"))
        assert [record["seq"] for record in lines(process, 2)] == [4, 5]


def test_a_closed_pipe_does_not_hide_damage(damaged: Path) -> None:
    with following(damaged) as process:
        lines(process, 4)
        assert process.stdout is not None
        process.stdout.close()
        assert process.wait(120) == 1


@pytest.mark.full
@pytest.mark.parametrize(("number", "status"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_a_signal_ends_it_between_two_records(plain: Path, number: int, status: int) -> None:
    with following(plain) as process:
        lines(process, 3)
        process.send_signal(number)
        out, err = process.communicate(timeout=120)
        assert (out, process.returncode) == (b"", status)
        assert err.count(b"\n") == 1


@pytest.mark.full
def test_the_time_ends_it(plain: Path, damaged: Path) -> None:
    assert invoke("dump", "-F", "--timeout", "4s", "--poll", "100ms", str(plain)).code == 0
    assert invoke("dump", "-F", "--timeout", "2s", "--poll", "100ms", str(damaged)).code == 1


def test_a_file_that_becomes_unreadable_is_reported_once_and_the_others_continue(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for number in (1, 2, 3):
        (tmp_path / f"transaction.log.{number}").write_bytes(insert(number, b"a", b"b", b"c"))
    real = follow_growing_logs.open_file

    def failing(path: str, *rest: Any) -> Any:
        if path.endswith("2"):
            raise InputOutputError(f"{path}: cannot be read at 0x0: Input/output error")
        return real(path, *rest)

    monkeypatch.setattr(follow_growing_logs, "open_file", failing)
    done = invoke("dump", "-F", "--timeout", "4s", "--poll", "50ms", "-O", "jsonl", str(tmp_path))
    assert [json.loads(line)["seq"] for line in done.out.splitlines()] == [1, 3]
    assert done.err == f"binlogtool: {tmp_path}/transaction.log.2: cannot be read at 0x0: Input/output error\n"
    assert done.code == 4


def test_what_is_named_must_be_there(tmp_path: Path) -> None:
    assert invoke("dump", "-F", str(tmp_path / "nothing")).code == 4
    assert invoke("dump", "-F", str(tmp_path)).code == 3
    assert invoke("dump", "-F", "-").code == 2


@pytest.mark.full
def test_the_file_that_a_rotation_makes_for_a_moment_does_no_harm(samples: Path, tmp_path: Path) -> None:
    """MySQL makes NAME.~rec~ at each rotation, and removes it."""
    real = samples / "mysql_binlog/sets/mysql"
    data = tmp_path / "data"
    data.mkdir()
    names = sorted(path.name for path in real.glob("rot-bin.00000?"))
    stop = threading.Event()

    def rotations() -> None:
        while not stop.is_set():
            (data / "rot-bin.~rec~").write_bytes(b"")
            time.sleep(0.005)
            (data / "rot-bin.~rec~").unlink()
            time.sleep(0.015)

    shutil.copyfile(real / names[0], data / names[0])
    maker = threading.Thread(target=rotations)
    maker.start()
    try:
        expected = [invoke("dump", "-O", "jsonl", "--fields", "record", str(real / name)).out for name in names]
        with following("--fields", "record", data, poll="5ms") as process:
            for name, records in zip(names, expected, strict=True):
                shutil.copyfile(real / name, data / name)
                assert process.stdout is not None
                assert b"".join(process.stdout.readline() for _ in range(records.count(b"\n"))) == records
            time.sleep(0.5)
            assert process.poll() is None
            process.terminate()
            out, err = process.communicate(timeout=120)
            assert (out, process.returncode) == (b"", 143)
            assert err == b"binlogtool: terminated; no partial output file was left\n"
    finally:
        stop.set()
        maker.join()


def test_a_purge_takes_nothing_away_that_was_listed(samples: Path, tmp_path: Path) -> None:
    """The index is written anew without the oldest names, and these files are removed."""
    data = tmp_path / "data"
    shutil.copytree(samples / "mysql_binlog/sets/mysql", data)
    index = (data / "rot-bin.index").read_bytes().splitlines(keepends=True)
    with following("--fields", "file,record", data) as process:
        first = lines(process, 1)
        for line in index[:3]:
            (data / line.decode().strip().rpartition("/")[2]).unlink()
        (data / "rot-bin.new").write_bytes(b"".join(index[3:]))
        (data / "rot-bin.new").rename(data / "rot-bin.index")
        expected = invoke("dump", "-O", "jsonl", "--fields", "record", str(samples / "mysql_binlog/sets/mysql"))
        rest = lines(process, expected.out.count(b"\n") - 1)
        process.terminate()
        _, err = process.communicate(timeout=120)
        assert [one["record"] for one in first + rest] == [json.loads(x)["record"] for x in expected.out.splitlines()]
        assert err == b"binlogtool: terminated; no partial output file was left\n"


def test_a_followed_log_can_begin_with_its_last_records(plain: Path) -> None:
    with following("--tail", "2", plain) as process:
        assert [record["seq"] for record in lines(process, 2)] == [2, 3]


def test_standard_input_is_not_followed() -> None:
    done = invoke("dump", "-F", "-")
    assert done.code == 2 and "standard input cannot be followed" in done.err
