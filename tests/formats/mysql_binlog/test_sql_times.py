"""Times choose parts of a script as the servers' own tools do: they are passed once, even if the clock goes back."""

from __future__ import annotations

from pathlib import Path

import pytest

from binlogtool.formats.binlog_events.wire_format import EventType
from tests.cli.invoke import invoke
from tests.formats.mysql_binlog import make_log as make

_T = EventType
_TIMES = (100, 110, 105, 120, 108, 130)


@pytest.fixture
def log(tmp_path: Path) -> Path:
    """Transactions of one statement, `insert 0` to `insert 5`, at times that go back twice."""
    events = []
    for number, time in enumerate(_TIMES):
        bodies = (
            (_T.GTID, make.mariadb_gtid(number + 1, flags=12)),
            (_T.QUERY, make.query(b"insert into t values (%d)" % number)),
            (_T.XID, bytes(8)),
        )
        events += [make.event(code, body, time=make.TIME + time) for code, body in bodies]
    path = tmp_path / "bin.000001"
    path.write_bytes(make.log(events))
    return path


def _numbers(log: Path, *options: str) -> list[int]:
    text = invoke("dump", "-O", "sql", *options, str(log)).out.decode()
    return [n for n in range(len(_TIMES)) if f"insert into t values ({n})" in text]


@pytest.mark.parametrize(
    ("start", "stop", "expected"),
    [
        (None, 110, [0]),
        (None, 106, [0]),
        (None, 120, [0, 1, 2]),
        (110, None, [1, 2, 3, 4, 5]),
        (106, 125, [1, 2, 3, 4]),
        (131, None, []),
        (None, 100, []),
    ],
)
def test_a_time_is_passed_once(log: Path, start: int | None, stop: int | None, expected: list[int]) -> None:
    options = [f"--{n}-datetime={make.TIME + t}" for n, t in (("start", start), ("stop", stop)) if t is not None]
    assert _numbers(log, *options) == expected


def test_records_are_chosen_one_by_one_where_no_server_runs_them(log: Path) -> None:
    out = invoke("dump", "-O", "jsonl", "--type", "QUERY", f"--stop-datetime={make.TIME + 110}", str(log)).out.decode()
    assert [n for n in range(len(_TIMES)) if f"insert into t values ({n})" in out] == [0, 2, 4]
