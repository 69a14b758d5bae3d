"""Two commands about one log must not contradict each other: what keeps a server from starting is an error."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

import binlogtool
from binlogtool.errors import BinlogtoolError
from binlogtool.findings import Severity
from binlogtool.report.finding_policy import compute_exit_code
from tests.sampling import EXHAUSTIVE, take_sample

_NO_LOGS = (".json", ".jsonl", ".gz", ".txt", ".md", ".sql", ".tsv", ".py")
HOMES = {
    "manticore": ["manticore/generated/v14", "manticore/generated/v15", "manticore/generated/v16", "sphinx/generated"],
    "tarantool": ["tarantool/generated"],
    "drizzle": ["drizzle/generated"],
    "eblob": ["eblob/generated"],
    "mariadb-innodb-binlog": ["mariadb-innodb-binlog/generated"],
    "mysql-binlog": ["mysql-binlog/generated"],
}
LEAST = {"manticore": 80, "tarantool": 100, "drizzle": 30, "eblob": 45, "mariadb-innodb-binlog": 49}
REFUSED = {"manticore": 12, "tarantool": 15, "eblob": 5}


def logs(home: Path) -> Iterator[Path]:
    """Every directory with logs below a place, and every file in it alone."""
    for folder, _, names in os.walk(home):
        files = [Path(folder, name) for name in sorted(names) if not name.endswith(_NO_LOGS)]
        yield from ([Path(folder), *files] if files else [])


@pytest.mark.full
@pytest.mark.parametrize("format_", [*HOMES, pytest.param("auto", marks=pytest.mark.full_corpus)])
def test_verify_has_an_error_wherever_a_replay_says_that_the_server_does_not_start(corpus: Path, format_: str) -> None:
    seen = refused = 0
    for path in take_sample((one for home in HOMES.get(format_, ["found"]) for one in logs(corpus / home)), 3):
        try:
            replays = binlogtool.replay([path], format=format_, backend="python", digest=False)
            report = binlogtool.verify([path], format=format_, backend="python")
        except BinlogtoolError:
            continue
        seen += 1
        if any(one.starts is False for one in replays):
            refused += 1
            assert compute_exit_code(report, Severity.ERROR), f"{path}: {[one.stop for one in replays]}"
    share = 1 if EXHAUSTIVE else 6
    least = LEAST.get(format_, 3) // share, REFUSED.get(format_, 0) // share
    assert seen >= least[0] and refused >= least[1], (seen, refused)


@pytest.mark.parametrize(
    "name", ["torn-in-magic", "torn-after-magic", "torn-mid-txn", "torn-last-byte", "zero-tail", "log-magic"]
)
def test_a_tail_at_which_manticore_refuses_to_start_is_an_error_and_an_ordinary_cut(corpus: Path, name: str) -> None:
    """The manifest holds what the real server did: `server_started` is false."""
    path = corpus / "manticore/generated/v16/damaged" / name
    report = binlogtool.verify([path])
    assert report.count_findings(Severity.ERROR) >= 1
    if name != "log-magic":
        plan = binlogtool.plan_truncate(path)
        assert not plan.refused and sum(one.cut_bytes for one in plan.files) > 0
