"""Records of Tarantool have the names of their spaces, whichever file or run defines them: those that dump prints."""

from __future__ import annotations

import csv
import json
import shutil
from collections import Counter
from pathlib import Path

import pytest

from tests.cli.invoke import ROOT, invoke

LATER = "00000000000000001188"
"""The snapshot with which the second run begins."""


@pytest.fixture
def rotated(corpus: Path) -> Path:
    return corpus / "tarantool" / "generated" / "rotated"


def names_in(lines: str) -> Counter[str | None]:
    return Counter(json.loads(line)["object"] for line in lines.splitlines())


def test_runs_of_append_know_what_earlier_files_define(rotated: Path, tmp_path: Path) -> None:
    log, out = tmp_path / "log", tmp_path / "out"
    log.mkdir()
    files = sorted(path for path in rotated.iterdir() if path.suffix in (".snap", ".xlog"))
    for chosen in ([one for one in files if one.stem < LATER], files):
        for path in chosen:
            shutil.copy(path, log)
        assert invoke("convert", "--to", "jsonl", "--append", "-o", str(out), str(log)).code == 0
    found = names_in("".join(path.read_text() for path in sorted(out.glob("*.jsonl"))))
    assert found["big"] == 3560 and not [name for name in found if name is not None and name.isdigit()]
    assert found == names_in(invoke("dump", "-O", "jsonl", str(log)).text)


def test_a_run_after_the_older_files_were_removed_knows_them_from_the_snapshot(rotated: Path, tmp_path: Path) -> None:
    log, out = tmp_path / "log", tmp_path / "out"
    log.mkdir()
    for path in rotated.iterdir():
        if path.suffix in (".snap", ".xlog") and path.stem >= LATER:
            shutil.copy(path, log)
    assert invoke("convert", "--to", "jsonl", "--append", "-o", str(out), str(log)).code == 0
    found = names_in("".join(path.read_text() for path in sorted(out.glob("*.jsonl"))))
    assert found["big"] == 845 + 401 + 1246 + 109 + 91  # of the snapshots and xlogs from there on
    assert not [name for name in found if name is not None and name.isdigit()]


@pytest.mark.full
def test_tables_of_records_have_the_names_and_find_them(rotated: Path, tmp_path: Path) -> None:
    out = tmp_path / "out"
    assert invoke("convert", "--to", "csv", "-o", str(out), str(rotated)).code == 0
    csv.field_size_limit(1 << 24)
    with next(out.glob("*.csv")).open() as file:
        found = Counter(row["object"] for row in csv.DictReader(file))
    assert found["big"] == 3560 and not [name for name in found if name.isdigit()]


def test_a_run_without_news_makes_no_commit(tmp_path: Path) -> None:
    log, out = ROOT / "tests" / "corpus" / "guides" / "mariadb", tmp_path / "out"
    for _ in range(3):
        assert invoke("convert", "--to", "jsonl", "--append", "-o", str(out), str(log)).code == 0
    assert [path.name for path in (out / "_binlogtool").glob("*.json")] == ["1.json"]
