"""An output that nobody takes: it may end a reading command, and never changes what a writing one does or says."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.cli.invoke import ROOT
from tests.cli.samples import damaged_log, insert, plain_log

WHOLE = len(insert(1, b"shop", b"t", b"1"))
FULL = Path("/dev/full")


@pytest.fixture
def here(tmp_path: Path) -> Path:
    """A torn log, a damaged one, a sound one."""
    (tmp_path / "torn.log").write_bytes(plain_log()[:-10])
    (tmp_path / "damaged.log").write_bytes(damaged_log())
    (tmp_path / "plain.log").write_bytes(plain_log())
    return tmp_path


@pytest.fixture(params=["", "1"], ids=["buffered", "unbuffered"])
def unbuffered(request: pytest.FixtureRequest) -> str:
    """Buffered output fails at its end, unbuffered output at its first line."""
    return str(request.param)


@pytest.fixture
def closed() -> Iterator[int]:
    """The writing end of a pipe that nobody reads."""
    reading, writing = os.pipe()
    os.close(reading)
    yield writing
    os.close(writing)


def run(here: Path, words: str, unbuffered: str, **streams: int) -> subprocess.CompletedProcess[bytes]:
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "XDG_CONFIG_HOME": "/nonexistent"}
    environment |= {"PYTHONUNBUFFERED": unbuffered}
    streams = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, **streams}
    args = [sys.executable, "-m", "binlogtool", *words.split()]
    return subprocess.run(args, cwd=here, env=environment, stdin=subprocess.DEVNULL, timeout=60, check=False, **streams)


def redirected(here: Path, words: str, unbuffered: str, how: str) -> int:
    """The same with a shell's words for the streams."""
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "PYTHONUNBUFFERED": unbuffered}
    line = f"{sys.executable} -m binlogtool {words} {how}"
    return subprocess.run(["sh", "-c", line], cwd=here, env=environment, timeout=60, check=False).returncode


def undo_files(here: Path) -> list[str]:
    return [path.name for path in here.iterdir() if "binlogtool-undo" in path.name]


@pytest.mark.full
def test_a_repair_is_made_although_nobody_reads_of_it(here: Path, unbuffered: str, closed: int) -> None:
    done = run(here, "truncate-to-durable --apply -y torn.log", unbuffered, stdout=closed)
    assert done.returncode == 0
    assert (here / "torn.log").stat().st_size == 2 * WHOLE
    (undo,) = undo_files(here)
    assert f"undo --apply {here / undo}" in done.stderr.decode()
    back = run(here, f"undo --apply -y {undo}", unbuffered, stdout=closed)
    assert (back.returncode, (here / "torn.log").read_bytes()) == (0, plain_log()[:-10])


@pytest.mark.full
@pytest.mark.parametrize(
    ("words", "status"),
    [
        ("truncate-to-durable --apply -y damaged.log", 5),
        ("truncate-to-durable damaged.log", 1),
        ("verify damaged.log", 1),
        ("replay-dry-run damaged.log", 1),
        ("convert --to jsonl -o out damaged.log", 1),
    ],
)
def test_a_closed_output_hides_no_status(here: Path, unbuffered: str, closed: int, words: str, status: int) -> None:
    assert run(here, words, unbuffered, stdout=closed).returncode == status
    assert (here / "damaged.log").read_bytes() == damaged_log() and not (here / "out").exists()


def test_a_conversion_is_whole_although_nobody_reads_of_it(here: Path, unbuffered: str, closed: int) -> None:
    assert run(here, "convert --to jsonl -o out plain.log", unbuffered, stdout=closed).returncode == 0
    assert len((here / "out").read_bytes().splitlines()) == 3


def test_a_reading_command_ends_quietly(here: Path, unbuffered: str, closed: int) -> None:
    done = run(here, "dump plain.log", unbuffered, stdout=closed)
    assert (done.returncode, done.stderr) == (0, b"")


@pytest.mark.skipif(not FULL.exists(), reason="there is no full device")
def test_a_full_disk_loses_the_report_of_a_repair_and_not_the_repair(here: Path, unbuffered: str) -> None:
    with FULL.open("wb") as full:
        done = run(here, "truncate-to-durable --apply -y torn.log", unbuffered, stdout=full.fileno())
    assert done.returncode == 4 and b"No space left" in done.stderr
    assert (here / "torn.log").stat().st_size == 2 * WHOLE
    assert undo_files(here)[0] in done.stderr.decode()


@pytest.mark.parametrize("words", ["truncate-to-durable --apply -y torn.log", "convert --to jsonl -o out plain.log"])
@pytest.mark.parametrize("how", [">&-", ">&- 2>&-", "<&- >&- 2>&-"])
def test_without_an_output_nothing_is_begun(here: Path, words: str, how: str) -> None:
    assert redirected(here, words, "", how) == 4
    assert (here / "torn.log").read_bytes() == plain_log()[:-10]
    assert not (here / "out").exists() and not undo_files(here)


@pytest.mark.full
@pytest.mark.parametrize("how", ["2>&-", "2>/dev/full"])
def test_diagnostics_that_cannot_be_written_change_no_status(here: Path, unbuffered: str, how: str) -> None:
    for words, status in (("dump damaged.log", 1), ("truncate-to-durable --apply -y damaged.log", 5)):
        assert redirected(here, words, unbuffered, f">/dev/null {how}") == status


def test_without_a_place_to_ask_nothing_is_changed(here: Path) -> None:
    assert redirected(here, "truncate-to-durable --apply torn.log", "", ">/dev/null 2>&-") == 5
    assert (here / "torn.log").read_bytes() == plain_log()[:-10]
