"""What a repair refuses, keeps, and says while it is carried out: on the model disk, with things that happen to it."""

from __future__ import annotations

import errno
import stat
from collections.abc import Callable
from typing import Any

import pytest
from msgspec.structs import replace

from binlogtool.errors import InputOutputError, RefusedError, RepairFailedError
from binlogtool.format_api.format import EngineLock
from binlogtool.limits import MIB
from binlogtool.repair import execute_plan as transaction
from binlogtool.repair.execute_plan import execute_plan
from binlogtool.repair.plan_types import RepairResult, WrittenFile
from binlogtool.repair.undo_file import APPLIED, read_undo_file
from tests.crash.disk import Fault
from tests.crash.runs import LOG, META, Case
from tests.crash.world import World, carried, sha, whole, world

CASES = ("cut", "rewrite", "several", "removal", "creation")
LOCK = "/disk/server.lock"
ENGINE = (EngineLock("server.lock", "flock"),)
GUARD = transaction.find_intent_path(LOG)


@pytest.fixture(params=CASES)
def case(request: pytest.FixtureRequest) -> Case:
    return Case(request.param)


# -- what is refused


def test_a_plan_that_something_forbids_is_not_carried_out(case: Case) -> None:
    plan = replace(case.plan, refused=True, reasons=("it is too large", "and old"))
    with pytest.raises(RefusedError, match=r"^it is too large; nothing was changed$"):
        execute_plan(plan, check_result=list, system=case.disk)  # type: ignore[arg-type]
    assert case.disk.log == []


def test_where_nothing_is_to_do_nothing_is_done(case: Case) -> None:
    plan = replace(case.plan, files=tuple(replace(one, action="none") for one in case.plan.files))
    assert execute_plan(plan, check_result=list, system=case.disk) == RepairResult((), None)  # type: ignore[arg-type]
    assert case.disk.log == []


@pytest.mark.parametrize("place", ["/disk", "/undo"])
def test_files_that_other_machines_can_change_are_changed_only_if_that_is_allowed(case: Case, place: str) -> None:
    case.disk.add("/undo/other", b"")
    disk = world(case, table=f"36 35 0:42 / {place} rw shared:1 - nfs server:/logs rw\n")
    with pytest.raises(RefusedError, match="--allow-network-file-system"):
        carried(case, disk, undo_dir="/undo")
    whole(case, disk)
    if place == "/undo":
        disk.table += "37 36 0:43 / /elsewhere rw - nfs server:/x rw\n"
    assert carried(case, disk, undo_dir="/undo", allow_network=True).undo is not None


@pytest.mark.parametrize("how", ["busy", "record_busy"])
def test_a_file_that_somebody_has_locked_is_left_alone(case: Case, how: str) -> None:
    disk = world(case, **{how: {LOG}})
    with pytest.raises(RefusedError, match="locked by another process"):
        carried(case, disk)
    whole(case, disk)


def test_a_file_that_somebody_has_open_is_left_alone(case: Case) -> None:
    disk = world(case, held_by=["mysqld (process 7)"])
    with pytest.raises(RefusedError, match=r"in use: open in mysqld \(process 7\)"):
        carried(case, disk)
    whole(case, disk)


def test_under_a_server_that_runs_nothing_is_changed(case: Case) -> None:
    case.disk.add(LOCK, b"")
    disk = world(case, busy={LOCK})
    with pytest.raises(RefusedError, match="the server is running"):
        carried(case, disk, locks=ENGINE)
    whole(case, disk)
    carried(case, world(case), locks=ENGINE)


def test_a_path_that_is_no_plain_file_is_left_alone(case: Case) -> None:
    class Link(World):
        def lstat(self, path: str) -> Any:
            found = super().lstat(path)
            found.st_mode = stat.S_IFLNK | 0o777
            return found

    disk = Link(**vars(world(case)))
    with pytest.raises(RefusedError, match="symbolic link"):
        carried(case, disk)
    whole(case, disk)


def test_a_file_with_two_names_is_left_alone(case: Case) -> None:
    disk = world(case)
    disk.folders["/disk"].seen["second"] = disk.inode(LOG).number
    with pytest.raises(RefusedError, match=r"has 2 names \(hard links\)"):
        carried(case, disk)
    whole(case, disk)


@pytest.mark.parametrize("number", [errno.EROFS, errno.EACCES, errno.EPERM, errno.ETXTBSY])
def test_a_file_that_must_not_be_written_is_told_from_one_that_cannot_be_read(case: Case, number: int) -> None:
    with pytest.raises(RefusedError, match=r"cannot be written: .*--to-file writes a copy"):
        carried(case, world(case, breaks={"open transaction.log": number}))
    disk = world(case, breaks={"open transaction.log": errno.EIO})
    with pytest.raises(InputOutputError, match=f"^{LOG}: Input/output error; nothing was changed$"):
        carried(case, disk)
    whole(case, disk)


def test_an_error_with_a_name_is_told_with_this_name(case: Case) -> None:
    disk = world(case)
    disk.folders["/disk"].seen.pop("transaction.log")
    with pytest.raises(InputOutputError, match=f"^{LOG}: No such file or directory; nothing was changed$"):
        execute_plan(replace(case.plan, target="/elsewhere"), check_result=list, system=disk)  # type: ignore[arg-type]


# -- a plan is about one state of the files


def altered(case: Case, **values: Any) -> Case:
    """The same, with another plan for its first file."""
    case.plan = replace(case.plan, files=(replace(case.plan.files[0], **values), *case.plan.files[1:]))
    return case


@pytest.mark.parametrize("value", ["inode", "mtime_ns"])
def test_a_plan_binds_what_it_names(case: Case, value: str) -> None:
    carried(altered(case, **{value: None}), world(Case(case.name)))
    with pytest.raises(RefusedError, match="changed since the plan was made; plan again"):
        carried(altered(case, **{value: 77}), case.disk)
    whole(case, case.disk)


@pytest.mark.parametrize("value", ["size", "sha256_kept", "sha256_cut"])
def test_a_plan_that_was_made_of_other_bytes_is_refused(case: Case, value: str) -> None:
    plan = case.plan.files[0]
    with pytest.raises(RefusedError, match="changed since the plan was made; plan again"):
        carried(altered(case, **{value: plan.size - 1 if value == "size" else sha(b"other")}), case.disk)
    whole(case, case.disk)


def test_a_name_that_another_file_has_by_now_is_refused(case: Case) -> None:
    class Moved(World):
        def lstat(self, path: str) -> Any:
            found = super().lstat(path)
            if path == LOG and "open transaction.log" in self.log:
                found.st_ino += 100
            return found

    disk = Moved(**vars(world(case)))
    with pytest.raises(RefusedError, match="changed since the plan was made; plan again"):
        carried(case, disk)
    whole(case, disk)


def test_a_file_that_is_to_be_made_must_not_be_there_and_its_plan_must_be_whole() -> None:
    case = Case("creation")
    case.disk.add(META, b"")
    with pytest.raises(RefusedError, match=f"^{META}: changed since the plan was made; plan again"):
        carried(case, case.disk)
    assert not any("binlogtool" in call for call in case.disk.log)
    case = Case("creation")
    made = replace(case.plan.files[1], sha256_kept=sha(b"x"))
    case.plan = replace(case.plan, files=(case.plan.files[0], made))
    with pytest.raises(RefusedError, match=f"^{META}: changed since the plan was made; plan again"):
        carried(case, case.disk)
    whole(case, case.disk)


def longer(disk: World) -> None:
    disk.inode(LOG).seen += b"x"


def newer(disk: World) -> None:
    disk.inode(LOG).mtime_ns += 1


def another(disk: World) -> None:
    disk.inodes[99] = replace_inode(disk)
    disk.folders["/disk"].seen["transaction.log"] = 99


def replace_inode(disk: World) -> Any:
    from copy import deepcopy

    found = deepcopy(disk.inode(LOG))
    found.number = 99
    return found


@pytest.mark.parametrize("happens", [longer, newer, another])
def test_what_changes_while_the_undo_file_is_written_is_noticed(case: Case, happens: Callable[[World], None]) -> None:
    disk = world(case, when={"transaction.log.binlogtool-undo": happens})
    with pytest.raises(RefusedError, match=f"^{LOG}: changed since the plan was made; plan again"):
        carried(case, disk)
    assert [name for name in disk.list_directory("/disk") if "binlogtool" in name] == []
    assert disk.open_files == {}


def test_a_file_that_appears_while_the_undo_file_is_written_is_not_replaced() -> None:
    case = Case("creation")
    disk = world(case, when={"transaction.log.binlogtool-undo": lambda disk: disk.add(META, b"a server's")})
    with pytest.raises(RefusedError, match=f"^{META}: changed since the plan was made; plan again"):
        carried(case, disk)
    assert disk.content(META) == b"a server's" and disk.content(LOG) == case.before[LOG]


# -- room


def needed(case: Case, full: bool) -> dict[str, int]:
    """By hand: one MiB to spare, what the undo file keeps, and the files that are written anew."""
    log = len(case.before[LOG] or b"")
    kept = log if full else log - 190
    made = 0
    if case.name == "rewrite":
        made = len(case.after[LOG] or b"")
    if case.name in ("several", "creation"):
        made = len(b"new list")
    if case.name == "several":
        kept += len(b"old list of files")
    if case.name == "removal":
        kept += (600 if full else 596) + len(b"reserve" * 3) + (700 if full else 0)  # of zeros nothing is kept
        made = 600
    return {"/undo": MIB + kept} | ({"/disk": MIB + made} if made else {})


@pytest.mark.parametrize("backup", ["tail", "full"])
def test_as_much_room_is_needed_as_will_be_written(case: Case, backup: str) -> None:
    case.disk.add("/undo/other", b"")
    room = needed(case, backup == "full")
    for folder, size in room.items():
        disk = world(case, room={**room, folder: size - 1})
        with pytest.raises(RefusedError) as raised:
            carried(case, disk, undo_dir="/undo", backup=backup)
        assert str(raised.value) == f"{folder}: {size:,} bytes are needed, {size - 1:,} are free; nothing was changed"
        whole(case, disk)
    assert carried(case, world(case, room=room), undo_dir="/undo", backup=backup).undo is not None


def test_where_undo_file_and_result_share_a_directory_both_need_their_room() -> None:
    case = Case("rewrite")
    size = needed(case, False)["/undo"] + needed(case, False)["/disk"] - MIB
    with pytest.raises(RefusedError, match=f"{size:,} bytes are needed"):
        carried(case, world(case, room={"/disk": size - 1}))
    carried(case, world(case, room={"/disk": size}))


# -- what is kept and told


@pytest.mark.parametrize("backup", ["tail", "full"])
def test_the_undo_file_has_everything_that_the_files_were(case: Case, backup: str) -> None:
    disk = world(case)
    number = disk.inode(LOG).number
    disk.has[number] = {"user.note": b"kept"}
    disk.inode(LOG).mode, disk.inode(LOG).owner, disk.inode(LOG).atime_ns = 0o604, (11, 12), 13
    done = carried(case, disk, backup=backup)
    assert disk.open_files == {}
    assert done.undo is not None and done.notes == ()
    undo = read_undo_file(disk, done.undo)  # type: ignore[arg-type]
    assert (undo.state, undo.format) == (APPLIED, "drizzle")
    assert [one.path for one in undo.entries] == [one.path for one in case.plan.files]
    first = undo.entries[0]
    assert (first.mode, first.uid, first.gid, first.atime_ns, first.mtime_ns) == (0o604, 11, 12, 13, 10**18)
    assert first.attributes == {"user.note": b"kept".hex()}
    for entry, file in zip(undo.entries, case.plan.files, strict=True):
        before, after = case.before[entry.path], case.after[entry.path]
        assert (entry.size, entry.result_size) == (len(before or b""), len(after or b""))
        assert entry.result_sha256 == ("" if after is None else sha(after))
        assert entry.sha256 == ("" if before is None else sha(before))
        assert (entry.removed, entry.created) == (after is None, before is None)
        assert entry.cut is (after is not None and before is not None and before.startswith(after))
        assert entry.pieces == file.pieces
        assert disk.content(entry.path) == after
    if case.after[LOG] is not None:
        assert (disk.inode(LOG).mode, disk.inode(LOG).owner) == (0o604, (11, 12))
    assert done.files == tuple(
        WrittenFile(one.path, one.size, one.sha256, one.result_size, one.result_sha256) for one in undo.entries
    )
    size = len(disk.content(done.undo) or b"") - undo.body_offset
    assert size == needed(case, backup == "full")["/undo"] - MIB


def test_the_undo_file_stands_beside_the_first_file_or_where_it_was_asked(case: Case) -> None:
    case.disk.add("/undo/other", b"")
    beside, elsewhere = carried(case, world(case)).undo, _elsewhere(case.name).undo
    assert beside is not None and beside.startswith(f"{LOG}.binlogtool-undo-")
    assert elsewhere is not None and elsewhere.startswith("/undo/transaction.log.binlogtool-undo-")


def _elsewhere(name: str) -> RepairResult:
    case = Case(name)
    case.disk.add("/undo/other", b"")
    return carried(case, case.disk, undo_dir="/undo")


def test_attributes_that_cannot_be_given_are_told_and_the_others_are_given() -> None:
    case = Case("rewrite")
    wanted = {"user.b": b"2", "security.b": b"3", "security.a": b"1"}
    disk = world(case, refused={"security.a", "security.b"})
    disk.has[disk.inode(LOG).number] = wanted
    done = carried(case, disk)
    text = f"{LOG}: the new file could not be given the extended attribute security."
    assert done.notes == (f"{text}a", f"{text}b")
    assert disk.has[disk.inode(LOG).number] == {"user.b": b"2"}
    disk = world(Case("cut"))
    disk.has[disk.inode(LOG).number] = wanted
    assert carried(Case("cut"), disk).notes == ()


def test_what_an_earlier_run_left_beside_the_files_and_the_undo_file_is_cleared_and_told(case: Case) -> None:
    left = [f"{folder}/.transaction.log.binlogtool-tmp-{'0' * 12}" for folder in ("/disk", "/undo")]
    for path in left:
        case.disk.add(path, b"half")
    done = carried(case, world(case), undo_dir="/undo")
    assert [note.split(":")[0] for note in done.notes] == left
    assert all(world(case).content(path) is None for path in left)


# -- what goes wrong, and what broke off


def test_of_what_is_wrong_with_the_result_the_first_three_are_told(case: Case) -> None:
    disk = world(case)
    with pytest.raises(RepairFailedError) as raised:
        execute_plan(case.plan, check_result=lambda: ["one", "two", "three", "four"], system=disk)  # type: ignore[arg-type]
    assert str(raised.value) == "the repaired files did not verify (one; two; three); the original was restored"
    whole(case, disk)


@pytest.mark.parametrize("name", ["several", "removal", "creation"])
def test_an_intent_that_cannot_be_written_leaves_nothing_unless_it_cannot_be_removed(name: str) -> None:
    case = Case(name)
    disk = world(case, when={".binlogtool-intent": lambda disk: _fail()})
    with pytest.raises(InputOutputError, match="nothing was changed"):
        carried(case, disk)
    whole(case, disk)
    case = Case(name)
    disk = world(case, when={".binlogtool-intent": lambda disk: _fail()}, breaks={"unlink .binlogtool-intent": 5})
    with pytest.raises(InputOutputError, match="nothing was changed"):
        carried(case, disk)
    left = [name for name in disk.list_directory("/disk") if "binlogtool" in name]
    assert len(left) == 2, "the intent stays, and so must the undo file that it names"
    assert set(case.states(disk)) == {"before"}


def _fail() -> None:
    raise Fault(errno.EIO, "Input/output error")


def test_one_file_needs_no_intent() -> None:
    for name, wanted in (("cut", False), ("rewrite", False), ("several", True), ("removal", True), ("creation", True)):
        case = Case(name)
        carried(case, case.disk)
        assert any("binlogtool-intent" in call for call in case.disk.log) is wanted
        assert case.disk.content(GUARD) is None


@pytest.mark.parametrize("name", ["several", "removal", "creation"])
def test_an_intent_that_cannot_be_removed_keeps_the_undo_file_of_what_was_taken_back(name: str) -> None:
    case = Case(name)
    disk = world(case, breaks={"unlink .binlogtool-intent": errno.EIO})
    with pytest.raises(RepairFailedError, match="the original was restored"):
        execute_plan(case.plan, check_result=lambda: ["wrong"], system=disk)  # type: ignore[arg-type]
    assert len([name for name in disk.list_directory("/disk") if "binlogtool-undo" in name]) == 1
    assert disk.content(GUARD) is not None
