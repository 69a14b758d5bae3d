"""Run repairs on the model disk while other processes change and lock its files."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable
from dataclasses import dataclass, field, fields
from typing import Any

from binlogtool.repair.execute_plan import execute_plan
from binlogtool.repair.plan_types import RepairResult
from tests.crash.disk import Disk, Fault
from tests.crash.runs import Case


@dataclass
class World(Disk):
    """A disk that other processes use, too.

    busy: files that another process has locked. has: attributes by inode. refused: attributes that cannot be set.
    when: what another process does after a call. room: free bytes by directory. breaks: errors of calls that fail.
    """

    busy: set[str] = field(default_factory=set)
    record_busy: set[str] = field(default_factory=set)
    has: dict[int, dict[str, bytes]] = field(default_factory=dict)
    refused: set[str] = field(default_factory=set)
    when: dict[str, Callable[[World], None]] = field(default_factory=dict)
    room: dict[str, int] = field(default_factory=dict)
    breaks: dict[str, int] = field(default_factory=dict)
    who: int = 0

    def flock(self, fd: int) -> bool:
        return not any(self._is(fd, path) for path in self.busy)

    def lock_record(self, fd: int) -> bool:
        return not any(self._is(fd, path) for path in self.record_busy)

    def _is(self, fd: int, path: str) -> bool:
        return self.content(path) is not None and self.open_files[fd] == self.inode(path).number

    def read_attributes(self, fd: int) -> dict[str, bytes]:
        return dict(self.has.get(self.open_files[fd], {}))

    def set_attributes(self, fd: int, attributes: dict[str, bytes]) -> None:
        self.has[self.open_files[fd]] = {name: value for name, value in attributes.items() if name not in self.refused}

    def rename(self, old: str, new: str) -> None:
        super().rename(old, new)
        for part, happens in self.when.items():
            if part in new:
                happens(self)

    def link(self, old: str, new: str) -> None:
        super().link(old, new)
        for part, happens in self.when.items():
            if part in new:
                happens(self)

    def get_free_space(self, directory: str) -> int:
        return self.room.get(directory, self.free_bytes)

    def get_user(self) -> int:
        return self.who

    def _call(self, what: str, *, changes: bool = False, sync: bool = False) -> str | None:
        for part, number in self.breaks.items():
            if part in what:
                self.log.append(what)
                raise Fault(number, os.strerror(number))
        return super()._call(what, changes=changes, sync=sync)


def world(case: Case, **happening: Any) -> World:
    """Return the disk of a case with other processes."""
    return World(**{one.name: getattr(case.disk, one.name) for one in fields(Disk)} | happening)


def whole(case: Case, disk: Disk) -> None:
    """Check that no file was changed, left or is open."""
    assert set(case.states(disk)) == {"before"}
    assert [name for name in disk.list_directory("/disk") if "binlogtool" in name] == []
    assert disk.open_files == {}


def sha(data: bytes | None) -> str:
    return hashlib.sha256(data or b"").hexdigest()


def carried(case: Case, disk: Disk, **options: Any) -> RepairResult:
    return execute_plan(case.plan, check_result=list, system=disk, **options)  # type: ignore[arg-type]
