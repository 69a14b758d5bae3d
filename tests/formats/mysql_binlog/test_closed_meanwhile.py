"""A server clears LOG_EVENT_BINLOG_IN_USE_F of a log when it rotates: that is no change of what was read.

Expected values: `sql/binlog.cc: MYSQL_BIN_LOG::close` writes the flags of the FORMAT_DESCRIPTION event (byte 21) in
place and nothing else; its checksum leaves the flag out.
"""

from __future__ import annotations

import json
from pathlib import Path

import pytest

import binlogtool
from binlogtool.core.open_file import FileSource
from tests.cli.invoke import invoke

MYSQL_LOG = Path(__file__).parents[2] / "corpus" / "mysql_binlog" / "undo" / "one-column.000001"
IN_USE_AT, SERVER_VERSION_AT = 21, 30


@pytest.fixture
def log(tmp_path: Path) -> Path:
    path = tmp_path / "logs" / "bin.000001"
    path.parent.mkdir()
    data = bytearray(MYSQL_LOG.read_bytes())
    data[IN_USE_AT] |= 1
    path.write_bytes(data)
    return path


def written_meanwhile(monkeypatch: pytest.MonkeyPatch, path: Path, at: int, value: int) -> None:
    """Lets a server write one byte behind the last read of a file, before anything looks whether it changed."""
    real = FileSource.find_change_or_cut

    def changed(source: FileSource) -> object:
        if source.name == str(path):
            with path.open("r+b") as file:
                file.seek(at)
                file.write(bytes([value]))
        return real(source)

    monkeypatch.setattr(FileSource, "find_change_or_cut", changed)


def test_clearing_the_flag_while_the_log_is_read_is_no_finding(log: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    before = [one.id for one in binlogtool.verify(log).findings]
    written_meanwhile(monkeypatch, log, IN_USE_AT, 0)
    assert [one.id for one in binlogtool.verify(log).findings] == before
    assert log.read_bytes()[IN_USE_AT] == 0


def test_another_byte_that_changes_meanwhile_is_a_finding(log: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    written_meanwhile(monkeypatch, log, SERVER_VERSION_AT, 0x39)
    assert "changed-while-read" in [one.id for one in binlogtool.verify(log).findings]


@pytest.mark.parametrize("command", [["dump", "-O", "jsonl"], ["convert", "--append", "--to", "jsonl"], ["verify"]])
def test_commands_end_with_status_0(
    log: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, command: list[str]
) -> None:
    written_meanwhile(monkeypatch, log, IN_USE_AT, 0)
    done = invoke(*command, "-o", str(tmp_path / "out"), str(log))
    assert done.code == 0, done.err + done.text


def test_state_remembers_a_log_that_was_closed_since(log: Path, tmp_path: Path) -> None:
    words = ["verify", "-O", "json", "--state", str(tmp_path / "state"), str(log)]
    assert invoke(*words).code == 0
    data = bytearray(log.read_bytes())
    data[IN_USE_AT] &= 0xFE
    log.write_bytes(data)
    done = invoke(*words)
    found = [one["id"] for file in json.loads(done.out)["files"] for one in file["findings"]]
    assert done.code == 0 and "changed-since-run" not in found


def test_state_tells_another_change_of_the_beginning(log: Path, tmp_path: Path) -> None:
    words = ["verify", "-O", "json", "--state", str(tmp_path / "state"), str(log)]
    invoke(*words)
    data = bytearray(log.read_bytes())
    data[SERVER_VERSION_AT] ^= 1
    log.write_bytes(data)
    found = [one["id"] for file in json.loads(invoke(*words).out)["files"] for one in file["findings"]]
    assert "changed-since-run" in found
