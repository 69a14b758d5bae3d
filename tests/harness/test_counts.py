"""One log, one number of records: what `verify`, `dump`, `stats` and `convert` say of every log of the corpora."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests.cli.invoke import invoke
from tests.log.test_one_walk import logs


def lines(data: bytes) -> list[dict[str, Any]]:
    """Records of JSON lines, without those that stand for damage."""
    return [one for one in map(json.loads, data.splitlines()) if one["type"] != "DAMAGE"]


def is_unproven(record: dict[str, Any]) -> bool:
    """Is it there only because salvage was asked for?"""
    return any("unproven" in one["facts"] for one in record["findings"])


def counted(path: Path, format: str, scratch: Path) -> int | None:
    """Holds the commands against each other; the number of records, None of what is no log."""
    named = ("--format", format, str(path))
    verified = invoke("verify", "-O", "json", *named)
    if verified.code in (3, 4):
        return None
    (file,) = json.loads(verified.out)["files"]
    dumped = lines(invoke("dump", "-O", "jsonl", "--on-damage", "skip", *named).out)
    assert len(dumped) == file["records"], "dump"
    assert [one["record"] for one in dumped] == list(range(len(dumped))), "numbers"
    offsets = [one["offset"] for one in dumped]
    assert offsets == sorted(offsets), "offsets"
    salvaged = lines(invoke("dump", "-O", "jsonl", "--on-damage", "salvage", *named).out)
    proven = [one for one in salvaged if not is_unproven(one)]
    assert [one["offset"] for one in proven] == offsets, "salvage"
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


@pytest.mark.corpus
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
