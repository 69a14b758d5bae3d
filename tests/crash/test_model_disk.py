"""Test repairs on a disk that loses power, is killed, or fails, at every system call (goals W1 to W4)."""

from __future__ import annotations

import copy
from collections import Counter

import pytest

from binlogtool.errors import BinlogtoolError, InputOutputError, RefusedError, RepairFailedError
from binlogtool.repair.undo_repair import apply_undo
from tests.crash.disk import Disk, Operation
from tests.crash.runs import LOG, Case
from tests.sampling import take_sample

CASES = ("cut", "rewrite", "several", "removal", "creation")
KINDS = ("EIO", "ENOSPC", "EDQUOT", "EINTR", "EACCES", "short", "fsync", "memory")
"""memory: no room for the buffers of this call (W4)."""


@pytest.fixture(params=CASES)
def case(request: pytest.FixtureRequest) -> Case:
    return Case(request.param)


def run_recorded(case: Case, undo: bool) -> Disk:
    """Run the whole repair, or its undo, and record the disk after each call that changes something."""
    disk = copy.deepcopy(case.disk)
    if undo:
        name = case.apply(disk)
        disk.snapshots = []
        apply_undo(name, system=disk)  # type: ignore[arg-type]
    else:
        disk.snapshots = []
        case.apply(disk)
    assert disk.snapshots is not None
    return disk


@pytest.mark.parametrize("undo", [False, True], ids=["repair", "undo"])
def test_w1_killed_after_any_call_the_files_are_old_or_new(case: Case, undo: bool) -> None:
    disk = run_recorded(case, undo)
    ends = Counter(case.hold(snapshot.after_kill()) for snapshot in disk.snapshots or [])
    print(f"\nW1 {case.name} {'undo' if undo else 'repair'}: killed after {sum(ends.values())} calls: {dict(ends)}")
    assert set(ends) == {"before", "after"}
    assert case.hold(disk) == ("before" if undo else "after")


@pytest.mark.parametrize("undo", [False, True], ids=["repair", "undo"])
def test_w2_without_power_after_any_call_the_files_are_old_or_new(case: Case, undo: bool) -> None:
    disk = run_recorded(case, undo)
    ends: Counter[str] = Counter()
    for number, snapshot in enumerate(disk.snapshots or []):
        for crashed in snapshot.after_power_cut(number):
            ends[case.hold(crashed)] += 1
    print(
        f"\nW2 {case.name} {'undo' if undo else 'repair'}: {sum(ends.values())} disks after a power cut: {dict(ends)}"
    )
    assert set(ends) == {"before", "after"}


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("lasting", [False, True], ids=["once", "from-then-on"])
def test_w3_whatever_fails_the_original_is_intact_or_restored(case: Case, kind: str, lasting: bool) -> None:
    outcomes: Counter[str] = Counter()
    number = 0
    while True:
        number += 1
        disk = copy.deepcopy(case.disk)
        disk.fault, disk.failing = (number, kind), frozenset([kind] if lasting else [])
        outcome = _outcome(case, disk)
        if outcome == "done" and len(disk.log) < number:
            break
        outcomes[outcome] += 1
        disk.fault = None
        for crashed in [disk.after_kill(), *disk.after_power_cut(number)]:
            if outcome == "refused":
                assert set(case.states(crashed)) == {"before"}, number
            case.hold(crashed)
    print(f"\nW3 {case.name} {kind} {'from N on' if lasting else 'at N'}: {number - 1} places: {dict(outcomes)}")
    assert sum(outcomes.values()) == number - 1 > 20
    assert ("refused" in outcomes) == (kind != "short")  # a short write is followed by one of the rest


@pytest.mark.full
@pytest.mark.parametrize("kind", take_sample(KINDS, 2))
def test_w3_whatever_fails_in_an_undo_it_can_be_done_again(case: Case, kind: str) -> None:
    repaired = copy.deepcopy(case.disk)
    undo = case.apply(repaired)
    repaired.log = []
    outcomes: Counter[str] = Counter()
    number = 0
    while True:
        number += 1
        disk = copy.deepcopy(repaired)
        disk.fault = (number, kind)
        try:
            apply_undo(undo, system=disk)  # type: ignore[arg-type]
            outcome = "done"
        except InputOutputError as error:
            assert str(error).endswith("no file is half-written; try it again")
            outcome = "try again"
        except RefusedError as error:
            assert str(error).endswith("nothing was changed")
            assert set(case.states(disk)) == {"after"}
            outcome = "refused"
        disk.fault = None
        if outcome == "done" and len(disk.log) < number:
            break
        outcomes[outcome] += 1
        for crashed in [disk.after_kill(), *disk.after_power_cut(number)]:
            case.hold(crashed)
            apply_undo(undo, system=crashed)  # type: ignore[arg-type]
            assert set(case.states(crashed)) == {"before"}
    print(f"\nW3 undo of {case.name} {kind}: {number - 1} places: {dict(outcomes)}")
    expected = {"done", "try again", "refused"} if kind == "EACCES" else {"done", "try again"}
    assert set(outcomes) == ({"done"} if kind == "short" else expected)


def _outcome(case: Case, disk: Disk) -> str:
    """Apply the repair; return "done" or the kind of error, and check what must hold at once."""
    try:
        case.apply(disk)
    except RepairFailedError as error:
        restored = "original was restored" in str(error)
        if restored:
            assert set(case.states(disk)) == {"before"}
        else:
            assert "binlogtool undo --apply" in str(error)
        return "restored" if restored else "restore with undo"
    except (InputOutputError, RefusedError) as error:
        assert str(error).endswith("nothing was changed"), error
        assert set(case.states(disk)) == {"before"}
        return "refused"
    assert set(case.states(disk)) == {"after"}
    return "done"


def test_a_repair_that_does_not_verify_is_undone(case: Case) -> None:
    from binlogtool.repair.execute_plan import execute_plan

    disk = copy.deepcopy(case.disk)
    with pytest.raises(RepairFailedError, match="the original was restored") as raised:
        execute_plan(case.plan, check_result=lambda: ["it is worse now"], system=disk)  # type: ignore[arg-type]
    assert raised.value.exit_code == 7
    assert set(case.states(disk)) == {"before"}
    assert disk.inode(LOG).mtime_ns == case.disk.inode(LOG).mtime_ns
    assert [name for name in disk.list_directory("/disk") if "binlogtool" in name] == []


def test_w4_without_memory_to_verify_the_result_the_original_is_restored(case: Case) -> None:
    from binlogtool.repair.execute_plan import execute_plan

    def check() -> list[str]:
        raise MemoryError

    disk = copy.deepcopy(case.disk)
    with pytest.raises(RepairFailedError, match="the original was restored"):
        execute_plan(case.plan, check_result=check, system=disk)  # type: ignore[arg-type]
    assert set(case.states(disk)) == {"before"}
    assert [name for name in disk.list_directory("/disk") if "binlogtool" in name] == []


class Sharing(Disk):
    """A file system on which files can share their bytes. lies: zeros are shared instead."""

    lies = False

    def clone_range(self, source: int, start: int, size: int, target: int, offset: int) -> bool:
        self._call("clone", changes=True)
        part = bytes(self._file(source).seen[start : start + size])
        self._touch(target).do(Operation(offset, bytes(len(part)) if self.lies else part))
        return bool(self._record_change(True))


def sharing(disk: Disk) -> Sharing:
    crashed = Sharing(**{name: getattr(disk, name) for name in ("inodes", "folders", "clock")})
    return copy.deepcopy(crashed)


def test_a_whole_backup_that_shares_its_bytes_is_the_one_that_was_copied(case: Case) -> None:
    """A crash cannot damage it, as it cannot damage the copied one."""
    copied, shared = copy.deepcopy(case.disk), sharing(case.disk)
    copied_undo = copied.content(case.apply(copied, backup="full"))
    shared.snapshots = []
    shared_undo = shared.content(case.apply(shared, backup="full"))
    assert "clone" in shared.log and copied_undo is not None and shared_undo is not None
    assert shared_undo[4096:] == copied_undo[4096:] and case.before[LOG] in shared_undo
    ends: Counter[str] = Counter()
    for number, snapshot in enumerate(shared.snapshots or []):
        for crashed in [snapshot.after_kill(), *snapshot.after_power_cut(number)]:
            ends[case.hold(crashed)] += 1
    print(f"\nW1 W2 {case.name}, whole backup with shared bytes: {sum(ends.values())} disks: {dict(ends)}")
    assert set(ends) == {"before", "after"}


def test_a_backup_that_does_not_read_back_is_refused(case: Case) -> None:
    disk = sharing(case.disk)
    disk.lies = True
    with pytest.raises(RefusedError, match="its SHA-256 does not match"):
        case.apply(disk, backup="full")
    assert set(case.states(disk)) == {"before"}
    assert disk.list_directory("/disk") == case.disk.list_directory("/disk")


def test_ctrl_c_before_the_first_change_leaves_no_file(case: Case) -> None:
    whole = copy.deepcopy(case.disk)
    case.apply(whole)
    changing = (i for i, call in enumerate(whole.log) if call == "ftruncate" or ".binlogtool-intent." in call)
    first = next(changing, 0)
    if case.name == "rewrite":
        first = whole.log.index("rename to transaction.log") - 1  # the last fsync belongs to the change
    for number in range(1, first + 1):
        disk = copy.deepcopy(case.disk)
        disk.fault = (number, "SIGINT")
        with pytest.raises(KeyboardInterrupt):
            case.apply(disk)
        assert disk.list_directory("/disk") == case.disk.list_directory("/disk"), number
        assert set(case.states(disk)) == {"before"}
    print(f"\nCtrl-C {case.name}: at {first} calls before the first change")
    assert first > 10


def test_ctrl_c_between_two_states_takes_effect_after_them(case: Case) -> None:
    import signal

    from binlogtool.repair.execute_plan import execute_plan

    disk = copy.deepcopy(case.disk)

    def raise_interrupt() -> list[str]:
        signal.raise_signal(signal.SIGINT)
        return []

    with pytest.raises(KeyboardInterrupt):
        execute_plan(case.plan, check_result=raise_interrupt, system=disk)  # type: ignore[arg-type]
    assert case.hold(disk) == "after"
    left = [path.removeprefix("/disk/") for path, data in case.after.items() if data is not None]
    assert disk.list_directory("/disk") == sorted([*left, *[n for n in disk.list_directory("/disk") if "undo" in n]])


def test_no_space_is_refused_before_anything_is_written(case: Case) -> None:
    disk = copy.deepcopy(case.disk)
    disk.free_bytes = 1000
    with pytest.raises(RefusedError, match="bytes are needed"):
        case.apply(disk)
    assert disk.list_directory("/disk") == case.disk.list_directory("/disk")


def test_the_model_distinguishes_a_bad_order_of_steps_from_a_good_one() -> None:
    """Without fsync of the undo file the promise does not hold, and the model shows it."""

    class Careless(Disk):
        def fsync(self, fd: int) -> None:
            self._record_change()

    case = Case("cut")
    disk = Careless(case.disk.inodes, case.disk.folders, snapshots=[])
    case.apply(disk)
    broken = 0
    for snapshot in disk.snapshots or []:
        for crashed in snapshot.after_power_cut():
            try:
                case.hold(crashed)
            except (AssertionError, BinlogtoolError):
                broken += 1
    assert broken > 0
