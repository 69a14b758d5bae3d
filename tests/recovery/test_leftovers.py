"""What broken-off runs left: told of, and removed only where it is provably of no use to anybody."""

from __future__ import annotations

import copy
import fcntl
import os
from collections import Counter
from pathlib import Path

import pytest

import binlogtool
from binlogtool.repair.execute_plan import describe_leftovers, remove_temporaries
from binlogtool.repair.system_calls import SYSTEM
from tests.cli.samples import plain_log
from tests.crash.disk import Disk
from tests.crash.runs import Case

TORN = plain_log()[:-10]
TEMPORARY = ".torn.log.binlogtool-tmp-0123456789ab"
UNDO = "torn.log.binlogtool-undo-20260101T000000Z-01234567"


@pytest.fixture
def torn(tmp_path: Path) -> Path:
    path = tmp_path / "torn.log"
    path.write_bytes(TORN)
    return path


def told(disk: Disk, case: Case) -> list[str]:
    names = [os.path.basename(path) for path in case.before]
    return describe_leftovers(disk, "/disk", names)  # type: ignore[arg-type]


@pytest.mark.parametrize("name", ["cut", "rewrite", "several"])
def test_after_any_crash_nothing_is_left_that_the_next_run_does_not_tell_of(name: str) -> None:
    """Killed and without power: every name is the log's, told of, or the undo file of a repair that was done."""
    case = Case(name)
    disk = copy.deepcopy(case.disk)
    disk.snapshots = []
    case.apply(disk)
    seen: Counter[str] = Counter()
    for number, snapshot in enumerate(disk.snapshots or []):
        for found in [snapshot.after_kill(), *snapshot.after_power_cut(number)]:
            seen.update(_all_told(case, found))
    print(f"\norphans, {name}: {dict(seen)}")
    assert seen["temporary file"] > 10 and seen["undo file, nothing changed"] > 3


def _all_told(case: Case, disk: Disk) -> list[str]:
    state = case.hold(disk)  # finishes a repair of several files, as the next run does
    lines = told(disk, case)
    kinds = []
    undo_files = [one for one in disk.list_directory("/disk") if one.startswith("transaction.log.binlogtool-undo-")]
    for one in [one for one in disk.list_directory("/disk") if "binlogtool" in one]:
        mine = [line for line in lines if line.startswith(f"/disk/{one}: ")]
        if one in undo_files and state == "after" and not mine:
            kinds.append("undo file, marked as done")
            continue
        assert len(mine) == 1, (one, lines)
        text = mine[0]
        if one in undo_files:
            assert ("before it changed anything" in text) == (state == "before"), text
            kinds.append("undo file, nothing changed" if state == "before" else "undo file, not marked")
        else:
            assert "a temporary file" in text
            kinds.append("temporary file")
    names = [os.path.basename(path) for path in case.before]
    remove_temporaries(disk, "/disk", names)  # type: ignore[arg-type]
    assert [one for one in disk.list_directory("/disk") if "binlogtool" in one] == undo_files
    assert set(case.states(disk)) == {state}
    return kinds


def test_a_plan_tells_and_a_repair_removes(torn: Path) -> None:
    left = torn.with_name(TEMPORARY)
    left.write_bytes(b"half")
    plan = binlogtool.plan_truncate(torn)
    assert plan.notes == (f"{left}: a temporary file of an aborted run; --apply removes it",)
    assert left.exists()
    done = binlogtool.apply_plan(plan)
    assert done.notes == (f"{left}: removed: a temporary file of an aborted run",)
    assert not left.exists()


@pytest.mark.parametrize(
    "name",
    [
        ".other.log.binlogtool-tmp-0123456789ab",
        "torn.log.binlogtool-tmp-0123456789ab",
        ".torn.log.binlogtool-tmp-0123456789a",
        ".torn.log.binlogtool-tmp-0123456789abc",
        ".torn.log.binlogtool-tmp-0123456789aB",
        ".torn.log.binlogtool-tmp",
        ".torn.log",
        UNDO,
    ],
)
def test_other_files_are_not_touched(torn: Path, name: str) -> None:
    other = torn.with_name(name)
    other.write_bytes(b"mine")
    assert describe_leftovers(SYSTEM, str(torn.parent), [torn.name]) == []
    done = binlogtool.apply_plan(binlogtool.plan_truncate(torn))
    assert (other.read_bytes(), done.notes) == (b"mine", ())


def test_a_temporary_file_in_use_or_with_another_name_stays(torn: Path) -> None:
    used, linked, link = (torn.with_name(TEMPORARY[:-1] + last) for last in "123")
    for path in (used, linked):
        path.write_bytes(b"half")
    os.link(linked, torn.with_name("keep"))
    link.symlink_to(torn)
    held = os.open(used, os.O_RDWR)
    fcntl.flock(held, fcntl.LOCK_EX)
    try:
        assert remove_temporaries(SYSTEM, str(torn.parent), [torn.name]) == []
    finally:
        os.close(held)
    assert remove_temporaries(SYSTEM, str(torn.parent), [torn.name]) == [
        f"{used}: removed: a temporary file of an aborted run"
    ]
    assert linked.exists() and link.is_symlink()


def test_temporary_files_of_undo_files_and_of_long_names_are_known(tmp_path: Path) -> None:
    torn = tmp_path / ("long" * 50)
    names = [f".{torn.name[:150]}.binlogtool-tmp-0123456789ab", ".binlogtool-intent"]
    short = tmp_path / "torn.log"
    names += [f".{UNDO}.binlogtool-tmp-0123456789ab", "..binlogtool-intent.binlogtool-tmp-0123456789ab"]
    for name in names:
        (tmp_path / name).write_bytes(b"half")
    removed = remove_temporaries(SYSTEM, str(tmp_path), [torn.name, short.name])
    assert len(removed) == 3
    assert [p.name for p in tmp_path.iterdir()] == [".binlogtool-intent"]


def test_an_undo_file_of_a_repair_that_never_was_is_told_of_and_stays(torn: Path) -> None:
    done = binlogtool.apply_plan(binlogtool.plan_truncate(torn))
    assert done.undo is not None
    undo = Path(done.undo)
    assert binlogtool.plan_truncate(torn).notes == ()
    whole = undo.read_bytes()
    undo.write_bytes(whole[:8] + b"prepared" + whole[16:])
    assert "was aborted after all files were changed; it undoes the repair" in binlogtool.plan_truncate(torn).notes[0]
    torn.write_bytes(TORN)
    assert "was aborted before it changed anything; it is not needed" in binlogtool.plan_truncate(torn).notes[0]
    torn.write_bytes(TORN + b"more")
    assert "the files changed since" in binlogtool.plan_truncate(torn).notes[0]
    undo.write_bytes(whole[:8] + b"prepared" + whole[16:-1])
    assert "an incomplete undo file; it cannot undo anything" in binlogtool.plan_truncate(torn).notes[0]
    assert undo.exists()


def test_a_saved_plan_holds_although_something_was_left_since(torn: Path) -> None:
    from binlogtool.format_api.encode_json import encode_document
    from binlogtool.report.verify_and_plan_text import plan_to_json

    file = torn.parent / "plan.json"
    file.write_bytes(encode_document(plan_to_json(binlogtool.plan_truncate(torn))))
    torn.with_name(TEMPORARY).write_bytes(b"half")
    binlogtool.apply_plan(binlogtool.load_plan(file))
    assert not torn.with_name(TEMPORARY).exists()


def test_a_copy_removes_what_an_earlier_copy_left(torn: Path, tmp_path: Path) -> None:
    left = tmp_path / ".new.log.binlogtool-tmp-0123456789ab"
    left.write_bytes(b"half")
    done = binlogtool.write_repaired_copy(binlogtool.plan_truncate(torn), tmp_path / "new.log")
    assert not left.exists() and len(done.notes) == 1
