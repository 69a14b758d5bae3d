"""Repair real damaged logs on the model disk, and check each state in which a power cut may leave them."""

from __future__ import annotations

import copy
import os
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

from msgspec.structs import replace

from binlogtool.repair import execute_plan as transaction
from binlogtool.repair.execute_plan import execute_plan
from binlogtool.repair.plan_types import FilePlan, RepairPlan
from binlogtool.repair.undo_repair import apply_undo, finish_interrupted
from tests.crash.disk import Disk

HOME = "/disk"


class Real:
    """A plan for files of a directory, and the same files on a disk that loses power.

    The expected files are put together here from the pieces of the plan.
    """

    def __init__(self, folder: Path, plan: RepairPlan) -> None:
        assert not plan.refused and plan.changes, plan.reasons
        self.disk, self.before = Disk(), {}
        for path in sorted(p for p in folder.iterdir() if p.is_file()):
            self.before[f"{HOME}/{path.name}"] = path.read_bytes()
            self.disk.add(f"{HOME}/{path.name}", path.read_bytes())
        changes = tuple(self._move_to_disk(file) for file in plan.changes)
        self.plan = replace(plan, files=changes, target=changes[0].path)
        self.after: dict[str, bytes | None] = dict(self.before)
        for file in changes:
            self.after[file.path] = None if file.action == "remove" else self._build(file)
        assert self.after != self.before

    def _move_to_disk(self, file: FilePlan) -> FilePlan:
        path = f"{HOME}/{os.path.basename(file.path)}"
        like = file.made_like and f"{HOME}/{os.path.basename(file.made_like)}"
        if path not in self.before:
            return replace(file, path=path, made_like=like)
        inode = self.disk.inode(path)
        return replace(file, path=path, made_like=like, inode=inode.number, mtime_ns=inode.mtime_ns)

    def _build(self, file: FilePlan) -> bytes:
        data = self.before.get(file.path, b"")
        parts = [data[p.start : p.end] if p.is_original else p.data or bytes(p.zeros) for p in file.pieces]
        return b"".join(parts)

    def run(self, *, undo: bool) -> list[Disk]:
        """Return the disk after each call of the repair, or of its undo, that changes something."""
        disk = copy.deepcopy(self.disk)
        if not undo:
            disk.snapshots = []
        done = execute_plan(self.plan, check_result=list, system=disk)  # type: ignore[arg-type]
        assert done.undo is not None and self.state(disk) == "after"
        if undo:
            disk.snapshots = []
            apply_undo(done.undo, system=disk)  # type: ignore[arg-type]
            assert self.state(disk) == "before"
        assert disk.snapshots is not None
        return disk.snapshots

    def state(self, disk: Disk) -> str:
        """Return before, after, or between: some files are old and some are new, and none is a mix."""
        found = {path: disk.content(path) for path in {*self.before, *self.after}}
        if found == {path: self.before.get(path) for path in found}:
            return "before"
        if found == self.after:
            return "after"
        wrong = [p for p, data in found.items() if data not in (self.before.get(p), self.after[p])]
        assert not wrong, f"a mix of old and new: {wrong}"
        return "between"

    def hold(self, disk: Disk) -> str:
        """Check that the files are old or new, that the next run finishes half a repair, and that undo is exact."""
        found = self.state(disk)
        guard = transaction.find_intent_path(self.plan.target)
        if transaction.read_intent(disk, guard) is not None:  # type: ignore[arg-type]
            finish_interrupted(self.plan.target, system=disk)  # type: ignore[arg-type]
            assert transaction.read_intent(disk, guard) is None  # type: ignore[arg-type]
        assert self.state(disk) != "between", "some of the files, and nothing says so"
        if self.state(disk) == "after":
            (undo,) = [
                name for name in disk.list_directory(HOME) if ".binlogtool-undo-" in name and not name.startswith(".")
            ]
            apply_undo(f"{HOME}/{undo}", system=disk)  # type: ignore[arg-type]
            assert self.state(disk) == "before"
        return found

    def cuts(self, *, undo: bool, most: int) -> Counter[str]:
        """Count the states after a power cut after every call; of each call at most `most` disks, spread over all."""
        ends: Counter[str] = Counter()
        for number, snapshot in enumerate(self.run(undo=undo)):
            for disk in spread(list(snapshot.after_power_cut(number)), most):
                ends[self.hold(disk)] += 1
        return ends


def spread(disks: list[Disk], most: int) -> Iterator[Disk]:
    """Choose at most `most` disks, the first and the last among them."""
    step = max(1, -(-(len(disks) - 1) // max(1, most - 1)))
    yield from disks[::step]
    if (len(disks) - 1) % step:
        yield disks[-1]


class Partial(Disk):
    """A disk on which a write writes at most `most` bytes."""

    most = 1

    def pwrite(self, fd: int, data: memoryview, offset: int) -> int:
        return super().pwrite(fd, data[: self.most], offset)


def partial(disk: Disk, most: int) -> Partial:
    """Copy a disk and let it write at most `most` bytes at once."""
    found = copy.deepcopy(Partial(inodes=disk.inodes, folders=disk.folders, clock=disk.clock))
    found.most = most
    return found
