"""One log, one number of records: what `verify`, `dump`, `stats` and `convert` say of every log of the corpora."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests.cli.invoke import invoke
from tests.core.corpus_logs import logs


def lines(data: bytes) -> list[dict[str, Any]]:
    """Records of JSON lines, without those that stand for damage."""
    return [one for one in map(json.loads, data.splitlines()) if one["type"] != "DAMAGE"]


def key(record: dict[str, Any]) -> str:
    """A record without its number and what is said of it: with salvage there may be others in front of it."""
    return json.dumps({name: value for name, value in record.items() if name not in ("record", "findings")})


def unmarked(salvaged: list[dict[str, Any]], proven: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """What salvage gives beyond the proven records, which it must have all, without a word on why."""
    left = [key(one) for one in reversed(proven)]
    extra = [one for one in salvaged if not (left and key(one) == left[-1] and left.pop())]
    assert not left, "salvage: a proven record is not there"
    return [one for one in extra if not one["findings"]]


def counted(path: Path, format: str, scratch: Path) -> int | None:
    """Holds the commands against each other; the number of records, None of what is no log.

    In logs of MySQL the events of a compressed payload are lines beyond the records.
    """
    named = ("--format", format, str(path))
    verified = invoke("verify", "-O", "json", *named)
    if verified.code in (3, 4):
        return None
    (file,) = json.loads(verified.out)["files"]
    dumped = lines(invoke("dump", "-O", "jsonl", "--on-damage", "skip", *named).out)
    outer = [one for one in dumped if format != "mysql-binlog" or "inner" not in one]
    assert len(outer) == file["records"], "dump"
    assert [one["record"] for one in outer] == list(range(len(outer))), "numbers"
    offsets = [one["offset"] for one in dumped]
    assert offsets == sorted(offsets), "offsets"
    salvaged = lines(invoke("dump", "-O", "jsonl", "--on-damage", "salvage", *named).out)
    assert not unmarked(salvaged, dumped), "salvage"
    stats = json.loads(invoke("stats", "-O", "json", *named).out)
    assert sum(one["records"] for one in stats["groups"]) == len(dumped), "stats"
    output = scratch / "out.jsonl"
    invoke("convert", "--to", "jsonl", "--on-damage", "skip", "--overwrite", "-o", str(output), *named)
    converted = lines(output.read_bytes()) if output.exists() else []
    output.unlink(missing_ok=True)
    assert [json.dumps(one) for one in converted] == [json.dumps(one) for one in dumped], "convert"
    return len(dumped)


def test_all_commands_count_the_same_records_in_every_sample(samples: Path, tmp_path: Path) -> None:
    all_count_the_same(samples, tmp_path, 90)


@pytest.mark.nightly
def test_all_commands_count_the_same_records_in_every_log_of_the_corpora(corpus: Path, tmp_path: Path) -> None:
    all_count_the_same(corpus, tmp_path, 900)


def all_count_the_same(folder: Path, scratch: Path, least: int) -> None:
    seen, wrong, records = 0, [], 0
    for path, format in logs(folder):
        try:
            found = counted(path, format.name, scratch)
        except AssertionError as error:
            wrong.append(f"{path}: {str(error).splitlines()[0]}")
            continue
        seen, records = seen + (found is not None), records + (found or 0)
    print(f"\ncounts: {seen} logs, {records:,} records, {len(wrong)} in which the commands differ")
    assert not wrong, wrong
    assert seen >= least
