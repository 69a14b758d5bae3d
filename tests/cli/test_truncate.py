"""`binlogtool truncate-to-durable`: this version plans, and says so."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path

import pytest

from tests.cli.invoke import invoke


def test_the_plan_is_bound_to_the_bytes(torn: Path) -> None:
    before = torn.read_bytes()
    done = invoke("truncate-to-durable", "-O", "json", str(torn))
    value = json.loads(done.out)
    (file,) = value["files"]
    assert done.code == 0
    assert list(value) == ["schema", "format", "refused", "reasons", "files"]
    assert (file["action"], file["size"], file["durable_end"], file["cut_bytes"]) == ("truncate", 275, 190, 85)
    assert file["sha256_kept"] == hashlib.sha256(before[:190]).hexdigest()
    assert file["sha256_cut"] == hashlib.sha256(before[190:]).hexdigest()
    assert torn.read_bytes() == before


def test_the_text_says_that_nothing_was_changed(torn: Path) -> None:
    shown = invoke("truncate-to-durable", str(torn)).text.splitlines()
    assert shown[0].startswith(f"plan   {torn}: cut 85 of 275 bytes at 0x000000be")
    assert shown[-1].startswith("nothing was changed")


def test_valid_records_behind_damage_are_refused(damaged: Path) -> None:
    done = invoke("truncate-to-durable", str(damaged))
    assert done.code == 1 and "refused; nothing was changed" in done.text


def test_an_intact_log_needs_no_cut(plain: Path) -> None:
    done = invoke("truncate-to-durable", str(plain))
    assert done.code == 0 and "nothing to do" in done.text


def test_the_plan_can_be_saved(torn: Path, tmp_path: Path) -> None:
    saved = tmp_path / "plan.json"
    shown = invoke("truncate-to-durable", "-O", "json", "--plan", str(saved), str(torn))
    assert saved.read_bytes() == shown.out
    assert invoke("truncate-to-durable", "--plan", str(saved), str(torn)).code == 5
    assert invoke("truncate-to-durable", "--plan", str(torn), "--overwrite", str(torn)).code == 5
    assert torn.stat().st_size == 275


@pytest.mark.parametrize(
    "words",
    [
        ["--apply"],
        ["--apply", "--yes"],
        ["--apply-plan", "p"],
        ["--to-file", "n"],
        ["--undo-dir", "d"],
        ["--fix-meta"],
        ["--backup", "full"],
        ["--max-loss", "1kB"],
        ["--max-loss-records", "0"],
        ["--allow-discard-valid"],
        ["-y"],
    ],
)
def test_what_would_change_a_file_is_refused(torn: Path, tmp_path: Path, words: list[str]) -> None:
    before = torn.read_bytes()
    done = invoke("truncate-to-durable", *words, str(torn))
    assert (done.code, done.out) == (5, b"")
    assert done.err.endswith("not in this version; nothing was changed\n") and done.err.count("\n") == 1
    assert torn.read_bytes() == before
    assert [p.name for p in tmp_path.iterdir()] == ["torn.log"]
