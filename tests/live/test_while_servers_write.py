"""Reading while real servers write, rotate, purge, collect and crash: nothing is lost, nothing is called damaged."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from itertools import zip_longest
from pathlib import Path
from typing import Any

import pytest

import binlogtool
from binlogtool.findings import Severity
from tests.cli.invoke import ROOT, program
from tests.formats.mysql_binlog.server import Server
from tests.formats.tarantool.server import program as tarantool
from tests.live.writers import BINLOG, SETUP, Tarantool, Writing

pytestmark = pytest.mark.server
SHORT, LONG, LOOKS = 6, 60, 200
Lines = dict[str, list[dict[str, Any]]]


@pytest.fixture
def folder() -> Iterator[Path]:
    """Short enough for the path of a socket."""
    with tempfile.TemporaryDirectory(prefix="bt") as name:
        yield Path(name)


@pytest.fixture
def writing(request: pytest.FixtureRequest, folder: Path) -> Iterator[tuple[Path, Callable[[], None]]]:
    """The data directory of a server that writes, for as many seconds at most, and what makes it stop."""
    kind, seconds = request.param
    if kind == "tarantool":
        if tarantool() is None:
            pytest.skip("tarantool is not installed")
        server = Tarantool(folder / "data", seconds)
        there(folder / "data", "*.xlog")
        try:
            yield folder / "data", server.kill
        finally:
            server.kill()
        return
    if Server.program() is None:
        pytest.skip("mariadbd is not installed")
    with Server(folder, *BINLOG) as mariadb, Writing(mariadb) as writer:
        wait_until(lambda: writer.purged > 0)
        yield folder / "data", writer.stop
    assert writer.wrong == ""


def there(folder: Path, pattern: str) -> None:
    wait_until(lambda: bool(list(folder.glob(pattern))))


def wait_until(is_reached: Callable[[], bool], seconds: float = 120) -> None:
    deadline = time.monotonic() + seconds
    while not is_reached():
        assert time.monotonic() < deadline
        time.sleep(0.02)


def both(seconds: int) -> pytest.MarkDecorator:
    kinds = ("tarantool", "mariadb")
    return pytest.mark.parametrize("writing", [(kind, seconds) for kind in kinds], indirect=True, ids=kinds)


@contextmanager
def following(data: Path, out: Path) -> Iterator[subprocess.Popen[bytes]]:
    """A follower that writes lines of JSON into a file."""
    command = [sys.executable, "-m", "binlogtool", "dump", "-F", "--poll", "100ms", "-O", "jsonl", str(data)]
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "XDG_CONFIG_HOME": "/nonexistent"}
    with out.open("wb") as file:
        process = subprocess.Popen(command, stdout=file, stderr=subprocess.PIPE, env=environment)
    try:
        yield process
    finally:
        process.kill()
        process.wait()
        assert process.stderr is not None
        process.stderr.close()


def removes_files(data: Path, out: Path, count: int) -> Callable[[], bool]:
    """Return True if the server removed so many logs since the follower printed its first line."""
    seen = set[Path]()

    def has_removed() -> bool:
        now = {path for pattern in ("*.xlog", "bin.0*") for path in data.glob(pattern)}
        if out.stat().st_size:
            seen.update(now)
        return len(seen - now) >= count

    return has_removed


def wait_for_lines(out: Path, plain: Lines) -> None:
    """Wait until a follower has printed as many lines of each log as a dump."""

    def has_printed() -> bool:
        text = out.read_bytes()
        followed = by_file(text[: text.rfind(b"\n") + 1])
        return all(len(followed.get(name, ())) >= len(lines) for name, lines in plain.items())

    wait_until(has_printed)


def by_file(text: bytes) -> Lines:
    """Records by the name of their file; a flag that the server clears when it closes a file is left out."""
    found: Lines = {}
    for line in text.splitlines():
        one = json.loads(line)
        if one["record"] == 0 and isinstance(header := one.get("header"), dict):
            header.pop("flags", None)
        found.setdefault(one["file"], []).append(one)
    return found


def stop(process: subprocess.Popen[bytes]) -> list[str]:
    """Ends a follower; returns what it said."""
    process.terminate()
    _, err = process.communicate(timeout=60)
    assert process.returncode == 143
    return err.decode().splitlines()[:-1]


def dump_all_records(data: Path, out: Path) -> Lines:
    """Return the lines of a dump that has all records of a follower: MariaDB writes a BINLOG_CHECKPOINT some time after
    the last transaction.
    """
    for _ in range(20):
        plain = by_file(program("dump", "-O", "jsonl", str(data), timeout=300).stdout)
        wait_for_lines(out, plain)
        time.sleep(1)
        text = out.read_bytes()
        followed = by_file(text[: text.rfind(b"\n") + 1])
        if all(len(followed[name]) == len(lines) for name, lines in plain.items()):
            break
    return plain


def follow_for(data: Path, seconds: float, out: Path, quiet: Any) -> None:
    """What a follower prints of each file that is there in the end is what a dump prints."""
    with following(data, out) as process:
        began = time.monotonic()
        wait_until(removes_files(data, out, 3))
        time.sleep(max(0.0, began + seconds - time.monotonic()))
        quiet()
        plain = dump_all_records(data, out)
        assert process.poll() is None
        assert stop(process) == []
    followed = by_file(out.read_bytes())
    assert sum(map(len, plain.values())) > 100
    assert {name: len(records) for name, records in plain.items()} == {name: len(followed[name]) for name in plain}
    assert_same(followed, plain)
    assert len(followed) > len(plain)
    for records in followed.values():
        assert [one["record"] for one in records] == list(range(len(records)))


def follow_mariadb(folder: Path, seconds: float) -> None:
    if Server.program() is None:
        pytest.skip("mariadbd is not installed")
    with Server(folder, *BINLOG) as server:
        start_behind_create_table(server, folder)
        with Writing(server) as writer:
            follow_for(folder / "data", seconds, folder / "out", writer.stop)
    assert writer.wrong == ""


def follow_tarantool(folder: Path, seconds: float) -> None:
    if tarantool() is None:
        pytest.skip("tarantool is not installed")
    server = Tarantool(folder / "data", seconds + 4 * LONG)
    there(folder / "data", "*.xlog")
    follow_for(folder / "data", seconds, folder / "out", server.end)


def test_a_follower_of_mariadb_prints_what_a_dump_prints(folder: Path) -> None:
    follow_mariadb(folder, SHORT)


def test_a_follower_of_tarantool_prints_what_a_dump_prints(folder: Path) -> None:
    follow_tarantool(folder, SHORT)


@pytest.mark.nightly
def test_a_follower_of_mariadb_goes_on_for_a_minute(folder: Path) -> None:
    follow_mariadb(folder, LONG)


@pytest.mark.nightly
def test_a_follower_of_tarantool_goes_on_for_a_minute(folder: Path) -> None:
    follow_tarantool(folder, LONG)


def test_a_follower_goes_on_behind_a_crash_of_the_server(folder: Path) -> None:
    if Server.program() is None:
        pytest.skip("mariadbd is not installed")
    with Server(folder, *BINLOG) as server:
        start_behind_create_table(server, folder)
        with following(folder / "data", folder / "out") as process:
            with Writing(server) as writer:
                wait_until(lambda: writer.purged > 0 and (folder / "out").stat().st_size > 0)
                server.kill()
                wait_until(lambda: writer.wrong != "")
            with Server(folder, *BINLOG) as again:
                with Writing(again) as more:
                    wait_until(lambda: more.purged > 0)
                plain = by_file(program("dump", "-O", "jsonl", str(folder / "data")).stdout)
                wait_for_lines(folder / "out", plain)
                assert (more.wrong, stop(process)) == ("", [])
                followed = by_file((folder / "out").read_bytes())
                assert_same(followed, plain)


def start_behind_create_table(server: Server, folder: Path) -> None:
    """Make the table and purge the log that names its columns: else only the follower may have read it."""
    assert not server.run(SETUP + b"FLUSH BINARY LOGS;\n")
    deadline = time.monotonic() + 60
    while (folder / "data" / "bin.000001").exists():  # PURGE keeps a log that InnoDB's checkpoint may still need
        assert time.monotonic() < deadline
        assert not server.run(b"PURGE BINARY LOGS TO 'bin.000002';\n")


def assert_same(followed: Lines, plain: Lines) -> None:
    """The records of each file in `plain` are those that the follower printed; else show the first that differ."""
    different = {name: _first_difference(followed[name], plain[name]) for name in plain}
    assert not any(different.values()), json.dumps(next(filter(None, different.values())))


def _first_difference(left: list[dict[str, Any]], right: list[dict[str, Any]]) -> tuple[object, ...] | None:
    """Return the members that differ of the first two records that differ, or None."""
    for one, other in zip_longest(left, right, fillvalue={}):
        if one != other:
            return tuple(
                {key: record.get(key) for key in one | other if one.get(key) != other.get(key)}
                for record in (one, other)
            )
    return None


def looks(data: Path, seconds: float, count: int) -> int:
    """Verifies again and again; returns how often. Whatever is told is false."""
    end, done = time.monotonic() + seconds, 0
    while time.monotonic() < end or done < count:
        report = binlogtool.verify([data], live=True)
        wrong = [f for f in report.findings if f.severity > Severity.NOTE]
        assert (wrong, report.failures) == ([], ())
        done += 1
    return done


@both(4 * LONG)
def test_verify_finds_nothing_wrong_while_a_server_writes(writing: Any) -> None:
    assert looks(writing[0], SHORT - 2, 3) >= 3


@pytest.mark.nightly
@both(20 * LONG)
def test_verify_finds_nothing_wrong_in_200_looks(writing: Any) -> None:
    print(f"{looks(writing[0], LONG, LOOKS)} looks, 0 false findings")


@pytest.mark.parametrize("writing", [("mariadb", LONG)], indirect=True, ids=["mariadb"])
def test_a_diagnosis_beside_a_running_server_is_no_alarm_and_names_it(
    writing: tuple[Path, Callable[[], None]],
) -> None:
    data, stop = writing
    try:
        for _ in range(5):
            (one,) = binlogtool.diagnose([data]).logs
            assert one.is_healthy, (one.incomplete_reason, one.report.failures, [replay.stop for replay in one.replays])
            assert one.start == ("yes" if one.unstable_reason is None else "open") and "mariadbd" in (one.holder or "")
            time.sleep(0.3)
    finally:
        stop()
