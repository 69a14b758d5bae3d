"""`binlogtool undo`: says what it would do, and does it."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.cli.invoke import invoke


@pytest.fixture
def undo(torn: Path) -> Path:
    """The undo file of a repaired log."""
    return Path(json.loads(invoke("truncate-to-durable", "-O", "json", "--apply", "-y", str(torn)).out)["undo"])


def test_the_plan_changes_nothing(torn: Path, undo: Path) -> None:
    before = undo.read_bytes()
    done = invoke("undo", str(undo))
    assert done.code == 0
    assert f"plan   {torn}: restore, 190 bytes to 275 bytes" in done.text
    assert done.text.endswith("nothing was changed; use --apply to carry out the plan\n")
    assert torn.stat().st_size == 190 and undo.read_bytes() == before


def test_apply_brings_the_bytes_back(torn: Path, undo: Path) -> None:
    done = invoke("undo", "--apply", "--yes", str(undo))
    assert done.code == 0 and torn.stat().st_size == 275
    assert done.text.splitlines()[-3:][0] == f"wrote  {torn}"
    again = invoke("undo", "--apply", "--yes", str(undo))
    assert again.code == 0 and "nothing to do" in again.text


def test_json(torn: Path, undo: Path) -> None:
    value = json.loads(invoke("undo", "-O", "json", str(undo)).out)
    assert (value["schema"], value["refused"], value["state"]) == ("binlogtool/undo/1", False, "applied")
    assert [(f["action"], f["path"], f["size_after"]) for f in value["files"]] == [("restore", str(torn), 275)]
    assert "applied" not in value
    assert json.loads(invoke("undo", "-O", "json", "--apply", "-y", str(undo)).out)["applied"] is True


def test_without_a_terminal_and_without_yes_nothing_is_done(torn: Path, undo: Path) -> None:
    done = invoke("undo", "--apply", str(undo))
    assert (done.code, done.out) == (5, b"") and "--yes" in done.err
    assert torn.stat().st_size == 190


def test_a_log_that_changed_since_is_refused(torn: Path, undo: Path) -> None:
    with torn.open("ab") as file:
        file.write(b"x")
    assert invoke("undo", str(undo)).code == 1
    done = invoke("undo", "--apply", "--yes", str(undo))
    assert done.code == 5 and "changed since the repair" in done.err
    assert torn.stat().st_size == 191


@pytest.mark.parametrize("apply", [[], ["--apply", "--yes"]])
def test_another_file_is_told_in_one_line(torn: Path, undo: Path, apply: list[str]) -> None:
    short, folder = torn.parent / "short", torn.parent / "folder"
    short.write_bytes(b"x")
    folder.mkdir()
    for path, code in ((torn, 3), (short, 3), (torn.parent / "nothing", 4), (folder, 3)):
        done = invoke("undo", *apply, str(path))
        assert (done.code, done.out, done.err.count("\n")) == (code, b"", 1) and str(path) in done.err
    undo.write_bytes(undo.read_bytes()[:-1])
    assert invoke("undo", *apply, str(undo)).code == 5
    assert torn.stat().st_size == 190


def test_the_undo_file_must_be_named() -> None:
    assert invoke("undo").code == 2


def test_the_help_shows_examples() -> None:
    assert "binlogtool undo --apply" in invoke("undo", "--help").text


def test_of_several_undo_files_the_newest_that_is_not_undone_is_taken(torn: Path, undo: Path) -> None:
    """Repair, undo, repair: the first undo file is still there, and its repair is undone already."""
    assert invoke("undo", "--apply", "--yes", str(undo)).code == 0
    second = Path(json.loads(invoke("truncate-to-durable", "-O", "json", "--apply", "-y", str(torn)).out)["undo"])
    assert second != undo and torn.stat().st_size == 190
    for paths in ([str(undo), str(second)], [str(second), str(undo)], [str(torn.parent)]):
        assert f"undo   {second}: " in invoke("undo", *paths).text
    assert invoke("undo", "--apply", "--yes", *map(str, sorted((undo, second)))).code == 0
    assert torn.stat().st_size == 275


def test_a_directory_without_undo_files_is_named(tmp_path: Path) -> None:
    done = invoke("undo", str(tmp_path))
    assert done.code == 3 and "no undo file" in done.err
    assert invoke("undo").code == 2
