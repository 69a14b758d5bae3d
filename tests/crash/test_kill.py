"""Test real processes on a real disk: killed at every call (goal W1), two at once (goal W8)."""

from __future__ import annotations

import os
import signal
import threading
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import binlogtool
from binlogtool.errors import BinlogtoolError, RefusedError
from binlogtool.limits import Limits
from binlogtool.repair.apply_plan_or_salvage import apply_plan
from binlogtool.repair.plan_types import RepairPolicy
from binlogtool.repair.system_calls import SystemCalls
from binlogtool.repair.undo_file import read_undo_file
from binlogtool.repair.undo_repair import apply_undo
from tests.cli.samples import plain_log
from tests.formats.manticore.make import add_index, add_txn, killed, log, meta
from tests.sampling import EXHAUSTIVE, take_sample

TORN = plain_log()[:-10]
REPAIRED = plain_log()[:190]
READING: dict[str, Any] = {"format": "drizzle", "limits": Limits(), "backend": "python"}

CHANGES = ("open", "pwrite", "ftruncate", "clone_range", "fsync", "fsync_directory", "rename", "link", "unlink",
           "copy_owner_and_mode", "set_attributes", "set_times")  # fmt: skip
"""System calls after which a repair is killed: those that may change a file, its name or its durability."""

LOCKS = ("flock", "lock_record", "list_holders")
READS = ("close", "pread", "find_next_data", "lstat", "fstat", "list_directory", "get_free_space", "read_mount_table",
         "get_user", "read_attributes")  # fmt: skip


def test_every_system_call_is_a_change_a_lock_or_a_read() -> None:
    """A call that is renamed or added must not be left out of the kills."""
    assert sorted({*CHANGES, *LOCKS, *READS}) == sorted(name for name in vars(SystemCalls) if name[0] != "_")


@pytest.fixture(autouse=True)
def skip_fsync(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing here cuts the power: what a killed process has written is there."""
    monkeypatch.setattr(os, "fsync", lambda fd: None)


class Alone(SystemCalls):
    """The real calls without the search through all processes, which W8 and `test_processes` test."""

    def list_holders(self, status: os.stat_result) -> list[str]:
        return []


class Pausing(Alone):
    """System calls that stop after the N-th change, report it, and wait to be killed."""

    def __init__(self, stop: int, report_fd: int) -> None:
        self._left, self._say = stop, report_fd

    def __getattribute__(self, name: str) -> Any:
        value = super().__getattribute__(name)
        return value if name not in CHANGES else self._counted(value)

    def _counted(self, call: Callable[..., Any]) -> Callable[..., Any]:
        def counted(*arguments: Any) -> Any:
            value = call(*arguments)
            self._left -= 1
            if self._left == 0:
                os.write(self._say, b"here")
                while True:
                    signal.pause()
            return value

        return counted


def in_child(work: Callable[[int], None]) -> bool:
    """Run work in a child that is killed as soon as it reports; False if it ended before."""
    read, write = os.pipe()
    child = os.fork()
    if child == 0:
        status = 1
        try:
            work(write)
            status = 0
        finally:
            os._exit(status)
    os.close(write)
    report = os.read(read, 4)
    os.close(read)
    if report:
        os.kill(child, signal.SIGKILL)
    _, status = os.waitpid(child, 0)
    assert os.waitstatus_to_exitcode(status) == (-signal.SIGKILL if report else 0)
    return bool(report)


def undo_files(folder: Path) -> list[Path]:
    return [p for p in folder.iterdir() if p.name.startswith("torn.log.binlogtool-undo-")]


def test_w1_killed_after_every_call_of_a_repair(torn: Path) -> None:
    ends: Counter[str] = Counter()
    stop = 0
    while True:
        stop += 1
        for left in undo_files(torn.parent):
            left.unlink()
        torn.unlink()
        torn.write_bytes(TORN)
        plan = binlogtool.plan_truncate(torn, format="drizzle")
        if not in_child(lambda report_fd, n=stop, p=plan: apply_plan(p, **READING, system=Pausing(n, report_fd))):  # type: ignore[misc]
            break
        now = torn.read_bytes()
        assert now in (TORN, REPAIRED), stop
        whole = [read_undo_file(SystemCalls(), str(p)) for p in undo_files(torn.parent)]
        assert len(whole) in ((0, 1) if now == TORN else (1,)), stop
        ends["old" if now == TORN else "new"] += 1
    print(f"\nW1 SIGKILL: killed after {stop - 1} calls of a repair: {dict(ends)}")
    assert ends["old"] > 10 and ends["new"] > 2


@pytest.mark.full
def test_w1_killed_after_every_call_of_an_undo(torn: Path) -> None:
    ends: Counter[str] = Counter()
    done = apply_plan(binlogtool.plan_truncate(torn, format="drizzle"), **READING)
    assert done.undo is not None
    stop = 0
    while True:
        stop += 1
        if not in_child(lambda report_fd, n=stop: apply_undo(done.undo, system=Pausing(n, report_fd))):  # type: ignore[misc,arg-type]
            break
        now = torn.read_bytes()
        assert now in (TORN, REPAIRED), stop
        ends["old" if now == TORN else "new"] += 1
        binlogtool.undo(done.undo)
        assert torn.read_bytes() == TORN
        os.truncate(torn, 190)
    print(f"\nW1 SIGKILL: killed after {stop - 1} calls of an undo: {dict(ends)}")
    assert ends["old"] > 2 and ends["new"] > 5


Contents = dict[str, bytes]
LOG = log(add_index(0, b"t"), add_txn(0, 1, killed(1)), add_txn(0, 2, killed(2)))
LAST = len(add_txn(0, 2, killed(2)))
LOCK = {"binlog.lock": b""}
REPLACED, CREATED = pytest.param(True, id="replaced"), pytest.param(False, id="created")
"""True: the list of files is there before the repair."""

REPAIRED_FILES = {"binlog.0000": LOG[:-LAST], "binlog.meta": meta([0])} | LOCK


def contents(folder: Path) -> Contents:
    """Return the bytes of the log's files, without those of the repair."""
    return {p.name: p.read_bytes() for p in folder.iterdir() if "binlogtool" not in p.name}


def partly(now: Contents, before: Contents, after: Contents) -> bool:
    """Return True if each file is as before the repair or as after it; a missing file counts like a content."""
    return all(now.get(name) in (before.get(name), after.get(name)) for name in {*now, *before, *after})


@pytest.mark.full
@pytest.mark.parametrize("listed", take_sample([REPLACED, CREATED], 2))
def test_w1_killed_in_a_repair_of_several_files_the_next_run_finishes_it(tmp_path: Path, listed: bool) -> None:
    """A torn log of Manticore, and its list that names a file that is not there, or no list: both change, or none."""
    files = {"binlog.0000": LOG[:-3]} | ({"binlog.meta": meta([0, 1])} if listed else {}) | LOCK
    repaired = REPAIRED_FILES
    ends: Counter[str] = Counter()
    stop = 0
    while True:
        stop += 1
        folder = tmp_path / str(stop)
        folder.mkdir()
        for name, content in files.items():
            (folder / name).write_bytes(content)
        if not in_child(lambda report_fd, n=stop, d=folder: repair_directory(d, Pausing(n, report_fd))):  # type: ignore[misc]
            break
        now = contents(folder)
        assert partly(now, files, repaired), stop
        mixed = now not in (files, repaired)
        finished = binlogtool.finish_repair(folder)
        now = contents(folder)
        assert now in (files, repaired) and (finished is not None or not mixed), stop
        assert not (folder / ".binlogtool-intent").exists()
        if now == files:
            repair_directory(folder, Alone())
            now = contents(folder)
            ends["old, then repaired"] += 1
        else:
            ends["finished" if finished is not None else "new"] += 1
        assert now == repaired
    what = "one replaced" if listed else "one created"
    print(f"\nW1 SIGKILL, two files, {what}: killed after {stop - 1} calls: {dict(ends)}")
    assert min(ends["old, then repaired"], ends["finished"], ends["new"]) > 0


def repair_directory(folder: Path, system: SystemCalls, changes: int = 2) -> None:
    reading: dict[str, Any] = {**READING, "format": "manticore"}
    plan = binlogtool.plan_truncate(folder, policy=RepairPolicy(fix_meta=True), format="manticore", backend="python")
    assert len(plan.changes) == changes, plan
    apply_plan(plan, **reading, system=system)


@pytest.mark.full
def test_w1_killed_while_one_file_is_made_it_is_there_whole_or_not_at_all(tmp_path: Path) -> None:
    """The log is sound, its list is gone: nothing but the list changes, and no mark of several files is needed."""
    files, repaired = {"binlog.0000": LOG} | LOCK, {"binlog.0000": LOG, "binlog.meta": meta([0])} | LOCK
    ends: Counter[str] = Counter()
    stop = 0
    while True:
        stop += 1
        folder = tmp_path / str(stop)
        folder.mkdir()
        for name, content in files.items():
            (folder / name).write_bytes(content)
        if not in_child(lambda report_fd, n=stop, d=folder: repair_directory(d, Pausing(n, report_fd), 1)):  # type: ignore[misc]
            break
        now = contents(folder)
        assert now in (files, repaired), stop
        undone = [
            read_undo_file(SystemCalls(), str(p))
            for p in folder.glob("*binlogtool-undo-*")
            if not p.name.startswith(".")
        ]
        assert len(undone) in ((0, 1) if now == files else (1,)), stop
        ends["old" if now == files else "new"] += 1
        if now == files:
            repair_directory(folder, Alone(), 1)
        assert contents(folder) == repaired
    print(f"\nW1 SIGKILL, one file created: killed after {stop - 1} calls: {dict(ends)}")
    assert ends["old"] > 10 and ends["new"] > 2


@pytest.mark.full
@pytest.mark.parametrize("listed", take_sample([REPLACED, CREATED], 2, 1))
def test_w1_killed_while_several_files_are_restored_the_next_run_finishes_it(tmp_path: Path, listed: bool) -> None:
    files = {"binlog.0000": LOG[:-3]} | ({"binlog.meta": meta([0, 1])} if listed else {}) | LOCK
    ends: Counter[str] = Counter()
    stop = 0
    while True:
        stop += 1
        folder = tmp_path / str(stop)
        folder.mkdir()
        for name, content in files.items():
            (folder / name).write_bytes(content)
        repair_directory(folder, Alone())
        (undo,) = folder.glob("*binlogtool-undo-*")
        if not in_child(lambda report_fd, n=stop, u=undo: apply_undo(u, system=Pausing(n, report_fd))):  # type: ignore[misc]
            break
        now = contents(folder)
        assert partly(now, files, REPAIRED_FILES), stop
        mixed = now not in (files, REPAIRED_FILES)
        finished = binlogtool.finish_repair(folder)
        now = contents(folder)
        assert now in (files, REPAIRED_FILES) and (finished is not None or not mixed), stop
        ends["old" if now == files else "repaired"] += 1
        binlogtool.undo(undo)
        assert contents(folder) == files and not (folder / ".binlogtool-intent").exists()
    what = "one replaced" if listed else "one created"
    print(f"\nW1 SIGKILL, undo of two files, {what}: killed after {stop - 1} calls: {dict(ends)}")
    assert min(ends["old"], ends["repaired"]) > 3


@pytest.mark.full
def test_w8_of_two_repairs_at_once_one_wins(torn: Path) -> None:
    """Threads stand for processes: the locks belong to the open files, not to the process."""
    tries, outcomes = 40 if EXHAUSTIVE else 12, Counter[str]()
    for _ in range(tries):
        torn.unlink()
        torn.write_bytes(TORN)
        for left in undo_files(torn.parent):
            left.unlink()
        plan = binlogtool.plan_truncate(torn, format="drizzle")
        start, ends = threading.Barrier(2), []

        def work(plan: Any = plan, start: Any = start, ends: Any = ends) -> None:
            start.wait()
            try:
                apply_plan(plan, **READING)
                ends.append("won")
            except RefusedError as error:
                assert "nothing was changed" in str(error)
                ends.append("refused")
            except BinlogtoolError as error:
                ends.append(repr(error))

        threads = [threading.Thread(target=work) for _ in range(2)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert sorted(ends) == ["refused", "won"]
        assert torn.read_bytes() == REPAIRED and len(undo_files(torn.parent)) == 1
        outcomes.update(ends)
    print(f"\nW8: {tries} times two at once: {dict(outcomes)}")


def child(work: Callable[[], None], start: int) -> int:
    """A process that works as soon as `start` gives a byte; its exit status is 0, or 5 if it was refused."""
    pid = os.fork()
    if pid == 0:
        status = 1
        try:
            os.read(start, 1)
            work()
            status = 0
        except RefusedError as error:
            status = error.exit_code if "nothing was changed" in str(error) else 1
        finally:
            os._exit(status)
    return pid


def statuses(pids: list[int]) -> list[int]:
    return sorted(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) for pid in pids)


def renewed(torn: Path) -> Any:
    torn.unlink()
    torn.write_bytes(TORN)
    for left in undo_files(torn.parent):
        left.unlink()
    return binlogtool.plan_truncate(torn, format="drizzle", backend="python")


class Stepping(SystemCalls):
    """Stops after each call that concerns the file of a log, reports it, and waits to be let on."""

    def __init__(self, path: Path, report: int, permission: int) -> None:
        self._path, self._report, self._permission = str(path), report, permission
        self._fds = set[int]()

    def open(self, path: str, flags: int, mode: int = 0o600) -> int:
        fd = super().open(path, flags, mode)
        if path == self._path:
            self._fds.add(fd)
            self._stop("opened")
        return fd

    def flock(self, fd: int) -> bool:
        locked = super().flock(fd)
        if fd in self._fds:
            self._stop("locked" if locked else "lock refused")
        return locked

    def list_holders(self, status: os.stat_result) -> list[str]:
        holders = super().list_holders(status)
        if status.st_ino == os.lstat(self._path).st_ino:
            self._stop("in use" if holders else "in use by nobody else")
        return holders

    def close(self, fd: int) -> None:
        super().close(fd)
        if fd in self._fds:
            self._fds.remove(fd)
            self._stop("closed")

    def _stop(self, step: str) -> None:
        os.write(self._report, step.encode())
        os.read(self._permission, 1)


class SteppedRepair:
    """A repair in a process of its own that advances one step at a time."""

    def __init__(self, plan: Any, path: Path) -> None:
        self._reports, report = os.pipe()
        permission, self._permit = os.pipe()
        self.steps: list[str] = []
        self.status: int | None = None
        self._pid = os.fork()
        if self._pid == 0:
            status = 1
            try:
                os.read(permission, 1)
                apply_plan(plan, **READING, system=Stepping(path, report, permission))
                status = 0
            except RefusedError as error:
                status = error.exit_code if "nothing was changed" in str(error) else 1
            finally:
                os._exit(status)
        os.close(report)
        os.close(permission)

    def advance(self) -> None:
        """Wait for the next step, or for the end of the process."""
        if self.status is not None:
            return
        os.write(self._permit, b"1")
        step = os.read(self._reports, 100)
        if step:
            self.steps.append(step.decode())
            return
        self.status = os.waitstatus_to_exitcode(os.waitpid(self._pid, 0)[1])
        os.close(self._reports)
        os.close(self._permit)

    def finish(self) -> int:
        """Advance to the end, and return the exit status."""
        while self.status is None:
            self.advance()
        return self.status


@pytest.mark.full
def test_w8_of_two_processes_that_repair_at_once_one_wins_in_whatever_order_they_lock(torn: Path) -> None:
    """The first goes some steps, the second some, then the first to its end. The loser is refused (exit 5).

    A repair that finds the log open in another process is refused, too. Both are refused in the two orders in which
    each meets the other: one has the lock and sees the other, which was refused the lock. Nothing is changed then.
    """
    alone = SteppedRepair(renewed(torn), torn)
    assert alone.finish() == 0
    assert alone.steps[:3] == ["opened", "locked", "in use by nobody else"] and alone.steps[-1] == "closed"
    ends: Counter[str] = Counter()
    for first_steps in range(1, len(alone.steps) + 1):
        for second_steps in range(1, 5):
            plan = renewed(torn)
            first, second = SteppedRepair(plan, torn), SteppedRepair(plan, torn)
            for _ in range(first_steps):
                first.advance()
            for _ in range(second_steps):
                second.advance()
            statuses_ = first.finish(), second.finish()
            order = f"{first_steps} steps, {second_steps} steps: {first.steps}, {second.steps}"
            if 0 in statuses_:
                assert sorted(statuses_) == [0, RefusedError.exit_code], order
                assert torn.read_bytes() == REPAIRED and len(undo_files(torn.parent)) == 1, order
                ends["first won" if statuses_[0] == 0 else "second won"] += 1
            else:
                assert (first_steps, second_steps) in ((1, 3), (2, 2)), order
                assert torn.read_bytes() == TORN and undo_files(torn.parent) == [], order
                ends["both refused"] += 1
    print(f"\nW8: {ends.total()} orders of two repairs: {dict(ends)}")
    assert ends == {"both refused": 2, "second won": 3, "first won": 4 * len(alone.steps) - 5}


@pytest.mark.full
@pytest.mark.parametrize(("steps", "repaired"), [(0, False), (1, False), (2, False), (3, True), (4, True)])
def test_w8_a_process_that_opens_the_log_before_the_change_keeps_it_from_happening(
    torn: Path, steps: int, repaired: bool
) -> None:
    """The repair looks who holds the log in its third step; later changes are what this process finds or sees."""
    repair = SteppedRepair(renewed(torn), torn)
    for _ in range(steps):
        repair.advance()
    with torn.open("r+b") as holder:
        assert holder.read() == (REPAIRED if steps == 4 else TORN)
        assert repair.finish() == (0 if repaired else RefusedError.exit_code), repair.steps
    assert torn.read_bytes() == (REPAIRED if repaired else TORN)
    assert len(undo_files(torn.parent)) == repaired


TRIES = 250


@pytest.mark.nightly
def test_w8_of_two_processes_that_repair_at_once_one_wins(torn: Path) -> None:
    """Without steps, as fast as they can: one is refused (exit 5), or both are, and nothing is changed then."""
    both = 0
    for _ in range(TRIES):
        plan = renewed(torn)
        read, write = os.pipe()
        pids = [child(lambda p=plan: apply_plan(p, **READING) and None, read) for _ in range(2)]
        os.write(write, b"go")
        ends = statuses(pids)
        os.close(read)
        os.close(write)
        if ends == [RefusedError.exit_code] * 2:
            both += 1
            assert torn.read_bytes() == TORN and undo_files(torn.parent) == []
            continue
        assert ends == [0, RefusedError.exit_code]
        assert torn.read_bytes() == REPAIRED and len(undo_files(torn.parent)) == 1
    print(f"\nW8: {TRIES} times two repairs at once: one won, one was refused, but {both} times both were")


@pytest.mark.nightly
def test_w8_a_repair_never_meets_a_process_that_holds_the_file(torn: Path) -> None:
    """A process opens the log at the same time: it has it before the change, or finds the repaired log."""
    seen: Counter[str] = Counter()
    for number in range(TRIES):
        plan = renewed(torn)
        read, write = os.pipe()
        ready, report_fd = os.pipe()
        holder = os.fork()
        if holder == 0:
            if number % 2:  # from the start; else at any moment
                fd = os.open(torn, os.O_RDWR)
            os.write(report_fd, b"r")
            os.read(read, 1)
            if not number % 2:
                time.sleep(number % 40 / 500)  # a repair takes some hundredths of a second
                fd = os.open(torn, os.O_RDWR)
            first = os.pread(fd, 1000, 0)
            os.write(report_fd, b"t" if first == TORN else b"m" if first == REPAIRED else b"x")
            signal.pause()
        os.read(ready, 1)
        repair = child(lambda p=plan: apply_plan(p, **READING) and None, read)
        os.write(write, b"go")
        (status,), held = statuses([repair]), os.read(ready, 1)
        os.kill(holder, signal.SIGKILL)
        os.waitpid(holder, 0)
        for fd in (read, write, ready, report_fd):
            os.close(fd)
        now = torn.read_bytes()
        assert status in (0, RefusedError.exit_code)
        assert now == (TORN if status else REPAIRED), number
        assert held != b"x" and (status or not number % 2), number
        seen["refused" if status else "repaired"] += 1
    print(f"\nW8: {TRIES} times a repair and a process that opens the log: {dict(seen)}")
    assert seen["refused"] >= TRIES // 2


@pytest.fixture
def torn(tmp_path: Path) -> Path:
    path = tmp_path / "torn.log"
    path.write_bytes(TORN)
    return path
