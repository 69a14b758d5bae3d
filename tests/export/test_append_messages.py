"""`convert --append --envelope`: the messages of a log that grows are those of one conversion, each once."""

from __future__ import annotations

import json
import random
from pathlib import Path

import pytest

from tests.cli.invoke import invoke

LOGS = ("guides/mariadb", "mysql_binlog/sets/mysql", "mysql_binlog/sets/mariadb")


def lines_of(out: Path) -> list[bytes]:
    newest = max((out / "_binlogtool").glob("[0-9]*.json"), key=lambda path: int(path.stem))
    outputs = json.loads(newest.read_text())["outputs"]
    lines = [(out / one["path"]).read_bytes().splitlines() for one in outputs]
    assert [len(part) for part in lines] == [one["rows"] for one in outputs]
    return [line for part in lines for line in part]


@pytest.mark.full
@pytest.mark.parametrize("envelope", ["debezium", "maxwell", "canal"])
@pytest.mark.parametrize("kind", LOGS)
def test_messages_of_a_log_that_grows_are_those_of_one_conversion(
    kind: str, envelope: str, samples: Path, tmp_path: Path
) -> None:
    log, out, choose = tmp_path / "log", tmp_path / "out", random.Random(7)
    log.mkdir()
    words = ("convert", "--to", "jsonl", "--envelope", envelope, "--on-damage", "skip")
    for source in sorted(path for path in (samples / kind).iterdir() if path.suffix[1:].isdigit()):
        data, end = source.read_bytes(), 0
        while end < len(data):
            end = min(len(data), end + choose.randrange(1, max(2, len(data) // 2)))
            (log / source.name).write_bytes(data[:end])
            assert invoke(*words, "--append", "-o", str(out), str(log)).code in (0, 1)
    invoke(*words, "--append", "--final", "-o", str(out), str(log))
    invoke(*words, "-o", str(tmp_path / "once"), str(log))
    assert lines_of(out) == (tmp_path / "once").read_bytes().splitlines()
    assert len(lines_of(out)) >= (13 if kind == "guides/mariadb" else 0)  # rows that its statements changed
    other = "canal" if envelope != "canal" else "maxwell"
    refused = invoke("convert", "--to", "jsonl", "--envelope", other, "--append", "-o", str(out), str(log))
    assert refused.code == 5 and "other options" in refused.err
