"""A real server's data directory after a crash: every command, and nothing but the torn log is changed."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.cli.invoke import invoke
from tests.formats.mysql_binlog.server import Server
from tests.recovery.copies import hashes

pytestmark = pytest.mark.server
OPTIONS = (
    "--log-bin=bin", "--skip-networking", "--slow-query-log", "--slow-query-log-file=slow.log", "--general-log",
    "--general-log-file=general.log", "--log-error=error.log", "--long-query-time=0", "--sync-binlog=1",
)  # fmt: skip
SCRIPT = b"CREATE DATABASE d; CREATE TABLE d.t (a INT PRIMARY KEY); INSERT INTO d.t VALUES (1),(2);"


@pytest.fixture
def crashed() -> Iterator[Path]:
    """The data directory of a server that was killed, with three logs and an empty slow log; the newest one is torn."""
    if Server.program() is None:
        pytest.skip("no MariaDB server is installed")
    with tempfile.TemporaryDirectory(prefix="bt") as folder:
        with Server(Path(folder), *OPTIONS) as server:
            assert server.run(SCRIPT + b"FLUSH LOGS; INSERT INTO d.t VALUES (3); FLUSH BINARY LOGS;") == ""
            assert server.run(b"INSERT INTO d.t VALUES (4); DELETE FROM d.t WHERE a = 1;") == ""
            server.kill()
        data = Path(folder) / "data"
        (data / "slow.log").write_bytes(b"")
        torn = max(data.glob("bin.0*[0-9]"))
        torn.write_bytes(torn.read_bytes()[:-7])
        yield data


def test_every_command_on_a_data_directory_changes_the_torn_log_and_nothing_else(crashed: Path, tmp_path: Path) -> None:
    torn = max(crashed.glob("bin.0*[0-9]"))
    before = hashes(crashed)
    assert {"slow.log", "error.log", "general.log", "ibdata1", "d/t.frm"} <= set(before)
    for words in (("verify",), ("truncate-to-durable",), ("replay-dry-run",), ("dump",), ("stats",)):
        assert invoke(*words, str(crashed)).code in (0, 1), words
    assert invoke("convert", "--to", "jsonl", "--output", str(tmp_path / "out"), str(crashed)).code in (0, 1)
    assert hashes(crashed) == before
    shown = invoke("truncate-to-durable", "--apply", "-y", str(crashed))
    assert shown.code == 0, shown
    assert {name for name, digest in hashes(crashed).items() if before.get(name) != digest} == {torn.name}
    assert not set(before) - set(hashes(crashed))
    others = [name for name in before if not name.startswith("bin.")]
    assert f"not logs: {len(others)} files" in shown.text
    again = invoke("verify", str(crashed))
    assert again.code == 0 and "torn-tail" not in again.text, again
    with Server(crashed.parent, *OPTIONS) as server:
        assert torn.name in [name for name, _ in server.logs()]
