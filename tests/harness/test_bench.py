"""The files that the benchmarks make are real logs: the harness' own readers, and the real tool, read them whole."""

from __future__ import annotations

import json
import shutil
import subprocess
from pathlib import Path

import pytest

from bench import make, mysql_cases, mysql_log, sql_cases, sql_logs
from bench.__main__ import CASES as CASES_BY_NAME
from bench.__main__ import line, main
from bench.cases import CASES, Figure, Result, Setting, Skipped
from bench.measure import Series
from tests.harness import oracle
from tests.harness.oracle_mysql import durable_end, mysql_binlog


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return tmp_path


def test_small_blocks_are_76_bytes_long_and_right(folder: Path) -> None:
    path = folder / make.xlog_name()
    blocks = make.tarantool_small(path, 300_000)
    walk = oracle.tarantool(path.read_bytes())
    assert walk.clean
    assert walk.mark
    assert [frame.records for frame in walk.frames] == [1] * blocks
    assert 74 < path.stat().st_size / blocks < 78


def test_mixed_files_hold_both_kinds_of_blocks(folder: Path) -> None:
    path = folder / make.xlog_name()
    rows = make.tarantool_mixed(path, 300_000)
    data = path.read_bytes()
    walk = oracle.tarantool(data)
    assert walk.clean
    assert sum(frame.records for frame in walk.frames) == rows
    assert {data[frame.start + 3] for frame in walk.frames} == {0xAB, 0xBA}
    assert oracle.durable_ends(walk)[-1] == walk.frames[-1].end


def test_drizzle_entries_are_50_to_500_bytes_long_and_right(corpus: Path, folder: Path) -> None:
    path = folder / "transaction.log"
    entries = make.drizzle(path, 300_000, [corpus / "drizzle/generated/basic-checksum.log"])
    walk = oracle.drizzle(path.read_bytes())
    assert walk.clean
    assert len(walk.frames) == entries
    assert all(50 <= frame.end - frame.start <= 500 for frame in walk.frames)
    assert not any(field.name.startswith("no checksum") for frame in walk.frames for field in frame.fields)


@pytest.mark.full
@pytest.mark.parametrize(
    ("size", "rows", "smallest", "largest"),
    [(300_000, 1, 40, 80), (300_000, 80, 1000, 3000), (2_097_300, 1, 40, 80)],  # the last: few events in its last part
)
def test_made_binary_logs_hold_whole_transactions(
    folder: Path, size: int, rows: int, smallest: int, largest: int
) -> None:
    path = mysql_log.synthetic(folder, size, rows)
    data = path.read_bytes()
    walk = mysql_binlog(data)
    assert walk.clean
    assert durable_end(data) == len(data)
    assert smallest < len(data) / len(walk.frames) < largest
    assert (len(walk.frames) - 1) % 4 == 0
    assert mysql_log.counted(path) == (len(walk.frames), (len(walk.frames) - 1) // 4 * rows)


@pytest.mark.server
@pytest.mark.skipif(not mysql_log.installed(), reason="no MariaDB server is installed")
def test_a_server_writes_binary_logs_of_both_shapes(folder: Path) -> None:
    for number, (make_log, largest) in enumerate(((mysql_log.small, 300), (mysql_log.wide, 8300))):
        (folder / str(number)).mkdir()
        made = make_log(folder / str(number), 1_000_000)
        walk = mysql_binlog(made.path.read_bytes())
        assert walk.clean and made.real
        assert len(walk.frames) == made.events
        assert largest / 3 < made.size / made.events < largest


@pytest.mark.server
@pytest.mark.skipif(shutil.which("tarantoolctl") is None, reason="tarantoolctl is not installed")
@pytest.mark.parametrize("generator", [make.tarantool_small, make.tarantool_mixed])
def test_the_real_tool_prints_every_row(folder: Path, generator: make.Generator) -> None:
    path = folder / make.xlog_name()
    rows = generator(path, 400_000)
    done = subprocess.run(
        ["tarantoolctl", "cat", str(path), "--format=json"], capture_output=True, text=True, check=True, timeout=60
    )
    printed = [json.loads(text) for text in done.stdout.splitlines()]
    assert [row["HEADER"]["lsn"] for row in printed] == list(range(make.FIRST_LSN, make.FIRST_LSN + rows))


def test_figures_tell_whether_the_promise_was_kept() -> None:
    assert line(Figure("speed", Series((1.0, 3.0, 2.0)), "x", 2.5)).endswith("[1 .. 3]  >= 2.5: MISSED")
    assert line(Figure("time", Series((0.1,)), "s", 0.25, at_least=False)).endswith("<= 0.25: kept")
    assert all(case.__doc__ for case in (CASES | mysql_cases.CASES | sql_cases.CASES).values())


def test_scripts_run_to_their_end_without_any_server(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sql_logs, "servers", lambda: dict.fromkeys(sql_logs.ABSENT))
    for case in sql_cases.CASES.values():
        seen = list(case(Setting(folder, 1 / 16, 1)))
        assert seen
        assert all(isinstance(one, Skipped) and one.reason for one in seen)


def test_folders_of_big_files_and_of_logs_are_made(
    folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    big, logs = folder / "x/big", folder / "x/logs"

    def case(setting: Setting) -> Result:
        yield Skipped(str(setting.directory.parent), str(setting.logs))

    monkeypatch.setitem(CASES_BY_NAME, "start", case)
    assert main(["--quick", "--directory", str(big), "--logs", str(logs), "start"]) == 0
    assert big.is_dir() and logs.is_dir()
    assert str(big) in capsys.readouterr().out
