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
    assert list(value) == ["schema", "format", "refused", "reasons", "files", "target"]
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


def test_the_plan_can_be_saved_and_carried_out(torn: Path, tmp_path: Path) -> None:
    saved = tmp_path / "plan.json"
    shown = invoke("truncate-to-durable", "-O", "json", "--plan", str(saved), str(torn))
    assert saved.read_bytes() == shown.out
    assert invoke("truncate-to-durable", "--plan", str(saved), str(torn)).code == 5
    assert invoke("truncate-to-durable", "--plan", str(torn), "--overwrite", str(torn)).code == 5
    assert torn.stat().st_size == 275
    done = invoke("truncate-to-durable", "--apply-plan", str(saved), "--yes")
    assert done.code == 0 and torn.stat().st_size == 190
    again = invoke("truncate-to-durable", "--apply-plan", str(saved), "--yes")
    assert again.code == 5 and again.err.endswith("nothing was changed\n")


def test_apply_prints_before_after_and_the_way_back(torn: Path) -> None:
    before = torn.read_bytes()
    done = invoke("truncate-to-durable", "--apply", "--yes", str(torn))
    (undo,) = [p for p in torn.parent.iterdir() if "binlogtool-undo" in p.name]
    assert done.code == 0
    assert done.text.splitlines()[-4:] == [
        f"wrote  {torn}",
        f"before 275 bytes, sha256 {hashlib.sha256(before).hexdigest()}",
        f"after  190 bytes, sha256 {hashlib.sha256(before[:190]).hexdigest()}",
        f"undo   binlogtool undo --apply {undo}",
    ]
    assert torn.read_bytes() == before[:190]


def test_apply_as_json_says_what_was_done(torn: Path) -> None:
    value = json.loads(invoke("truncate-to-durable", "-O", "json", "--apply", "-y", str(torn)).out)
    assert value["applied"] is True and Path(value["undo"]).exists()
    assert [(w["size_before"], w["size_after"]) for w in value["written"]] == [(275, 190)]


def test_an_intact_log_is_left_alone_by_apply(plain: Path) -> None:
    before = plain.stat()
    done = invoke("truncate-to-durable", "--apply", "--yes", str(plain))
    assert done.code == 0 and "nothing to do" in done.text
    assert plain.stat().st_mtime_ns == before.st_mtime_ns and len(list(plain.parent.iterdir())) == 1


@pytest.mark.parametrize("words", [["--apply"], ["--apply-plan", "PLAN"]])
def test_without_a_terminal_and_without_yes_nothing_is_done(torn: Path, tmp_path: Path, words: list[str]) -> None:
    saved = tmp_path / "plan.json"
    invoke("truncate-to-durable", "--plan", str(saved), str(torn))
    words = [str(saved) if w == "PLAN" else w for w in words]
    done = invoke("truncate-to-durable", *words, str(torn))
    assert (done.code, done.out) == (5, b"") and "--yes" in done.err
    assert torn.stat().st_size == 275


@pytest.mark.parametrize(("answer", "code", "size"), [(b"y\n", 0, 190), (b"n\n", 5, 275), (b"\n", 5, 275)])
def test_on_a_terminal_the_user_is_asked(torn: Path, answer: bytes, code: int, size: int) -> None:
    import os
    import subprocess
    import sys

    from tests.cli.invoke import ROOT
    from tests.cli.terminal import open_terminal

    master, slave = open_terminal()
    command = [sys.executable, "-m", "binlogtool", "truncate-to-durable", "--apply", str(torn)]
    child = subprocess.Popen(
        command, stdin=slave, stderr=slave, stdout=subprocess.PIPE, env={**os.environ, "PYTHONPATH": str(ROOT)}
    )
    os.close(slave)
    os.write(master, answer)
    out, _ = child.communicate(timeout=60)
    asked = os.read(master, 4096)
    os.close(master)
    assert b"as planned? [y/N]" in asked
    assert b"plan   " in out
    assert (child.returncode, torn.stat().st_size) == (code, size)


def test_a_repaired_copy_is_written(torn: Path, tmp_path: Path) -> None:
    new = tmp_path / "new.log"
    done = invoke("truncate-to-durable", "--to-file", str(new), str(torn))
    assert done.code == 0 and new.read_bytes() == torn.read_bytes()[:190] and torn.stat().st_size == 275
    assert invoke("truncate-to-durable", "--to-file", str(new), str(torn)).code == 5
    assert invoke("truncate-to-durable", "--to-file", str(torn), str(torn)).code == 5


def test_a_salvaged_copy_has_an_account(damaged: Path, tmp_path: Path) -> None:
    new = tmp_path / "new.log"
    done = invoke("truncate-to-durable", "--to-file", str(new), "--keep-after-damage", str(damaged))
    assert done.code == 0
    assert any(line.startswith("left out 0x0000005f") for line in done.text.splitlines()), done.text
    assert invoke("verify", str(new)).code == 0


@pytest.mark.parametrize(
    "words",
    [
        ["--apply", "--plan", "p"],
        ["--apply", "--to-file", "n"],
        ["--apply-plan", "p", "--apply"],
        ["--apply-plan", "p", "--max-loss", "1"],
        ["--keep-after-damage"],
        ["--keep-after-damage", "--apply"],
    ],
)
def test_options_that_contradict_each_other_are_usage_errors(torn: Path, words: list[str]) -> None:
    assert invoke("truncate-to-durable", *words, str(torn)).code == 2
    assert torn.stat().st_size == 275 and len(list(torn.parent.iterdir())) == 1


@pytest.mark.parametrize(
    ("words", "code"),
    [(["--max-loss", "84B"], 5), (["--max-loss", "1kB"], 0), (["--max-loss-records", "0"], 0),
     (["--backup", "full"], 0),
     (["--fix-meta"], 0), (["--write-close-marker"], 0), (["--undo-dir", "/nonexistent"], 4)],
)  # fmt: skip
def test_allowances(torn: Path, words: list[str], code: int) -> None:
    done = invoke("truncate-to-durable", "--apply", "--yes", *words, str(torn))
    assert done.code == code, done.err
    assert torn.stat().st_size == (190 if code == 0 else 275)


def test_valid_records_are_cut_only_with_consent(damaged: Path) -> None:
    size = damaged.stat().st_size
    refused = invoke("truncate-to-durable", "--apply", "--yes", str(damaged))
    assert refused.code == 5 and damaged.stat().st_size == size
    assert "3 complete records follow the damage; truncating would discard them; nothing was changed" in refused.err
    done = invoke("truncate-to-durable", "--apply", "--yes", "--allow-discard-valid", str(damaged))
    assert done.code == 0 and damaged.stat().st_size == size // 5


def test_every_log_named_is_repaired(torn: Path, tmp_path: Path) -> None:
    other = tmp_path / "other.log"
    other.write_bytes(torn.read_bytes())
    done = invoke("truncate-to-durable", "-O", "json", "--apply", "--yes", str(torn), str(other))
    assert [json.loads(line)["applied"] for line in done.out.splitlines()] == [True, True]
    assert torn.read_bytes() == other.read_bytes() and torn.stat().st_size == 190
