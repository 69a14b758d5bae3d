"""Repairs of several files that broke off behind their intent: what the next run finishes, and what it refuses."""

from __future__ import annotations

import errno
from copy import deepcopy
from dataclasses import fields
from typing import Any

import pytest
from msgspec.structs import replace

from binlogtool.errors import RefusedError
from binlogtool.format_api.format import ResultPiece
from binlogtool.repair import execute_plan as transaction
from binlogtool.repair.execute_plan import finish_repair
from binlogtool.repair.plan_types import RepairResult, WrittenFile
from binlogtool.repair.undo_file import APPLIED, read_undo_file, restore_file_if_changed, write_state, write_undo_file
from tests.crash.disk import Disk
from tests.crash.runs import LAST, LOG, META, NEXT, Case, file_plan
from tests.crash.world import World, carried, sha, world

GUARD = transaction.find_intent_path(LOG)


def broken_off(name: str, case: Case | None = None) -> tuple[Case, World, str]:
    """A repair that ended behind its intent, before the first change; and its undo file."""
    case = case or Case(name)
    disk = world(case)

    kept: list[Disk] = []
    disk.when = {".binlogtool-intent": lambda disk: kept.append(disk.after_kill())}
    carried(case, disk)
    (found,) = kept
    after = World(**{one.name: getattr(found, one.name) for one in fields(Disk)})
    undo = next(f"/disk/{name}" for name in after.list_directory("/disk") if "binlogtool-undo" in name)
    return case, after, undo


SEVERAL = pytest.mark.parametrize("name", ["several", "removal", "creation"])


@SEVERAL
def test_what_broke_off_is_finished_and_told_like_the_repair(name: str) -> None:
    case, disk, undo = broken_off(name)
    done = finish_repair(undo, GUARD, system=disk)  # type: ignore[arg-type]
    assert set(case.states(disk)) == {"after"}
    assert disk.content(GUARD) is None and disk.open_files == {}
    found = read_undo_file(disk, undo)  # type: ignore[arg-type]
    assert found.state == APPLIED
    assert done == RepairResult(
        tuple(WrittenFile(e.path, e.size, e.sha256, e.result_size, e.result_sha256) for e in found.entries), undo
    )
    assert disk.inode(LOG).mode == 0o640


@SEVERAL
def test_of_what_was_marked_as_applied_only_the_intent_is_removed(name: str) -> None:
    case, disk, undo = broken_off(name)
    write_state(disk, undo, APPLIED)  # type: ignore[arg-type]
    finish_repair(undo, GUARD, system=disk)  # type: ignore[arg-type]
    assert set(case.states(disk)) == {"before"} and disk.content(GUARD) is None
    assert "ftruncate" not in disk.log


@SEVERAL
def test_what_broke_off_is_not_finished_where_a_file_was_changed_since(name: str) -> None:
    _, disk, undo = broken_off(name)
    disk.inode(LOG).seen += b"x"
    with pytest.raises(RefusedError, match=f"^{LOG}: changed since the repair was interrupted; see {undo}$"):
        finish_repair(undo, GUARD, system=disk)  # type: ignore[arg-type]
    assert disk.content(GUARD) is not None


@SEVERAL
def test_what_broke_off_is_not_finished_under_others(name: str) -> None:
    case, disk, undo = broken_off(name)
    for changes, words in (
        ({"busy": {LOG}}, "locked by another process"),
        ({"record_busy": {LOG}}, "locked by another process"),
        ({"held_by": ["mysqld"]}, "in use: open in mysqld"),
        ({"who": 5}, "belongs to user 0|other user"),
    ):
        now = World(**vars_of(disk) | changes)
        if "who" in changes:
            now.inode(undo).owner = (7, 7)
        with pytest.raises(RefusedError, match="belongs to user 7" if "who" in changes else words):
            finish_repair(undo, GUARD, system=now)  # type: ignore[arg-type]
        assert set(case.states(now)) == {"before"} and now.open_files == {}
    disk.folders["/disk"].seen["second"] = disk.inode(LOG).number
    with pytest.raises(RefusedError, match="2 names"):
        finish_repair(undo, GUARD, system=disk)  # type: ignore[arg-type]


def vars_of(disk: World) -> dict[str, Any]:
    return {one.name: deepcopy(getattr(disk, one.name)) for one in fields(World)}


@SEVERAL
def test_what_broke_off_is_not_finished_under_a_server_that_runs(name: str) -> None:
    case = Case(name)
    case.plan = replace(case.plan, format="manticore")
    case.disk.add("/disk/binlog.lock", b"")
    case, disk, undo = broken_off(name, case)
    disk.record_busy = {"/disk/binlog.lock"}
    with pytest.raises(RefusedError, match="the server is running"):
        finish_repair(undo, GUARD, system=disk)  # type: ignore[arg-type]
    assert set(case.states(disk)) == {"before"}
    disk.record_busy = set()
    finish_repair(undo, GUARD, system=disk)  # type: ignore[arg-type]


@pytest.mark.parametrize("replaced", [True, False])
def test_who_cannot_keep_the_owner_of_a_file_that_is_replaced_does_not_finish_what_broke_off(replaced: bool) -> None:
    """A file that is cut or that goes keeps it by itself."""
    case = Case("several")
    if not replaced:
        case.plan = replace(case.plan, files=(case.plan.files[0], file_plan(case.disk, META, ())))
        case.after[META] = None
    case, disk, undo = broken_off("several", case)

    def refused(fd: int, like: Any) -> None:
        raise PermissionError(errno.EPERM, "Operation not permitted")

    disk.copy_owner_and_mode = refused  # type: ignore[method-assign]
    if not replaced:
        finish_repair(undo, GUARD, system=disk)  # type: ignore[arg-type]
        assert set(case.states(disk)) == {"after"}
        return
    before = disk.list_directory("/disk")
    with pytest.raises((RefusedError, PermissionError)):
        finish_repair(undo, GUARD, system=disk)  # type: ignore[arg-type]
    assert set(case.states(disk)) == {"before"} and disk.list_directory("/disk") == before


@SEVERAL
def test_a_result_that_is_not_the_planned_one_gets_no_name(name: str) -> None:
    case, disk, undo = broken_off(name)
    found = read_undo_file(disk, undo)  # type: ignore[arg-type]
    entries = [replace(e, result_sha256=sha(b"?")) if not e.cut and not e.removed else e for e in found.entries]
    other = f"{LOG}.binlogtool-undo-20260101T000000Z-00000000"
    write_undo_file(disk, other, found.made, case.plan.to_json_value(), entries, [])  # type: ignore[arg-type]
    with pytest.raises(RefusedError, match="does not give the planned result"):
        finish_repair(other, GUARD, system=disk)  # type: ignore[arg-type]
    (wrong,) = (e for e in entries if e.result_sha256 == sha(b"?"))
    assert disk.content(wrong.path) == case.before[wrong.path]
    assert disk.content(GUARD) is not None and disk.open_files == {}


def test_the_intent_is_in_the_directory_that_all_of_the_files_are_below() -> None:
    case = Case("several")
    case.disk.add("/disk/below/other.log", b"old list of files")
    other = file_plan(case.disk, "/disk/below/other.log", (ResultPiece(data=b"new list"),))
    case.plan = replace(case.plan, files=(case.plan.files[0], other))
    seen: set[str] = set()
    done = carried(case, world(case, when={"": lambda disk: seen.update(disk.list_directory("/disk"))}))
    assert done.undo is not None and done.undo.startswith(f"{LOG}.binlogtool-undo-")
    assert ".binlogtool-intent" in seen


def test_a_file_that_is_replaced_gets_its_attributes_and_owner_also_when_the_repair_is_finished_later() -> None:
    case = Case("removal")
    disk = world(case)
    number = disk.inode(NEXT).number
    disk.has[number] = {"user.note": b"kept"}
    disk.inode(NEXT).owner, disk.inode(NEXT).mode = (21, 22), 0o604
    kept: list[Disk] = []
    disk.when = {".binlogtool-intent": lambda disk: kept.append(disk.after_kill())}
    carried(case, disk)
    now = World(**{one.name: getattr(kept[0], one.name) for one in fields(Disk)})
    undo = next(f"/disk/{name}" for name in now.list_directory("/disk") if "binlogtool-undo" in name)
    finish_repair(undo, GUARD, system=now)  # type: ignore[arg-type]
    made = now.inode(NEXT)
    assert (made.owner, made.mode, now.has[made.number]) == ((21, 22), 0o604, {"user.note": b"kept"})
    assert now.content(LAST) is None


@pytest.mark.parametrize("name", ["cut", "several", "removal", "creation"])
def test_restoring_a_file_reports_whether_it_changed_anything(name: str) -> None:
    case = Case(name)
    disk = deepcopy(case.disk)
    undo = read_undo_file(disk, case.apply(disk))  # type: ignore[arg-type]
    assert len(undo.entries) == len(case.plan.changes)
    assert [restore_file_if_changed(disk, undo, entry) for entry in undo.entries] == [True] * len(undo.entries)  # type: ignore[arg-type]
    assert set(case.states(disk)) == {"before"}
    assert [restore_file_if_changed(disk, undo, entry) for entry in undo.entries] == [False] * len(undo.entries)  # type: ignore[arg-type]
