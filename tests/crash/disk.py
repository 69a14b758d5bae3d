"""Model a disk that can lose power: what is durable, and what was written but is not durable yet.

It replaces `binlogtool.repair.system_calls.SystemCalls`. A crash keeps any subset of the pending writes of a file
(torn at 512 bytes), in their order, and any beginning of the pending name changes of a directory. Shortening is one
operation: all or nothing, as on journaling file systems.
"""

from __future__ import annotations

import copy
import errno
import itertools
import os
import random
import stat
from collections.abc import Iterator
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any

SECTOR = 512
ALL_SUBSETS = 6
"""Number of pending operations up to which all subsets are tried; above it: none, all, some prefixes, random ones."""
SAMPLES = 24


@dataclass(frozen=True)
class Operation:
    """A pending change of a file: bytes at an offset, or a new size. Copies of a disk share it."""

    offset: int
    data: bytes | None

    def __deepcopy__(self, memo: object) -> Operation:
        return self

    def on(self, content: bytearray) -> None:
        if self.data is None:
            content[self.offset :] = bytes(max(0, self.offset - len(content)))
            return
        end = self.offset + len(self.data)
        content.extend(bytes(max(0, end - len(content))))
        content[self.offset : end] = self.data


@dataclass
class Inode:
    """A file: the visible bytes, the durable bytes, and the operations between them."""

    number: int
    seen: bytearray = field(default_factory=bytearray)
    durable: bytearray = field(default_factory=bytearray)
    pending: list[Operation] = field(default_factory=list)
    mode: int = 0o600
    owner: tuple[int, int] = (0, 0)
    atime_ns: int = 0
    mtime_ns: int = 0

    def do(self, operation: Operation) -> None:
        operation.on(self.seen)
        self.pending.append(operation)

    def settle(self) -> None:
        for operation in self.pending:
            operation.on(self.durable)
        self.pending = []


@dataclass
class Directory:
    """Names, and the changes of names that are not durable yet."""

    seen: dict[str, int] = field(default_factory=dict)
    durable: dict[str, int] = field(default_factory=dict)
    pending: list[tuple[tuple[str, int | None], ...]] = field(default_factory=list)

    def do(self, *changes: tuple[str, int | None]) -> None:
        self.pending.append(changes)
        _rename(self.seen, changes)

    def settle(self) -> None:
        for changes in self.pending:
            _rename(self.durable, changes)
        self.pending = []


def _rename(names: dict[str, int], changes: tuple[tuple[str, int | None], ...]) -> None:
    for name, number in changes:
        if number is None:
            names.pop(name, None)
        else:
            names[name] = number


class Fault(OSError):
    """An error that a test injects."""


@dataclass
class Disk:
    """Files in directories that exist from the start. log: calls so far. snapshots: the disk after each call."""

    inodes: dict[int, Inode] = field(default_factory=dict)
    folders: dict[str, Directory] = field(default_factory=dict)
    open_files: dict[int, int] = field(default_factory=dict)
    log: list[str] = field(default_factory=list)
    snapshots: list[Disk] | None = None
    fault: tuple[int, str] | None = None
    free_bytes: int = 1 << 40
    clock: int = 10**18
    held_by: list[str] = field(default_factory=list)
    failing: frozenset[str] = frozenset()
    table: str = ""

    def add(self, path: str, content: bytes, mode: int = 0o640) -> None:
        """Add a file that is durable."""
        number = len(self.inodes) + 1
        self.inodes[number] = Inode(number, bytearray(content), bytearray(content), mode=mode, mtime_ns=self.clock)
        folder = self.folders.setdefault(os.path.dirname(path), Directory())
        folder.seen[os.path.basename(path)] = folder.durable[os.path.basename(path)] = number

    def content(self, path: str) -> bytes | None:
        """Return the visible bytes of a file; None if there is no such name."""
        number = self._folder(path).seen.get(os.path.basename(path))
        return None if number is None else bytes(self.inodes[number].seen)

    def inode(self, path: str) -> Inode:
        """Return the file of a name."""
        return self.inodes[self._folder(path).seen[os.path.basename(path)]]

    # -- the calls

    def open(self, path: str, flags: int, mode: int = 0o600) -> int:
        self._call(f"open {os.path.basename(path)}", changes=bool(flags & os.O_CREAT))
        if path in self.folders:  # a server locks its directory
            fd = max(self.open_files, default=2) + 1
            self.open_files[fd] = 0
            return self._record_change(fd)
        folder, name = self._folder(path), os.path.basename(path)
        if flags & os.O_CREAT:
            if name in folder.seen:
                raise FileExistsError(errno.EEXIST, "File exists", path)
            number = max(self.inodes, default=0) + 1
            self.inodes[number] = Inode(number, mode=mode)
            folder.do((name, number))
        elif name not in folder.seen:
            raise FileNotFoundError(errno.ENOENT, "No such file or directory", path)
        fd = max(self.open_files, default=2) + 1
        self.open_files[fd] = folder.seen[name]
        return self._record_change(fd)

    def close(self, fd: int) -> None:
        del self.open_files[fd]

    def find_next_data(self, fd: int, offset: int) -> int:
        return offset

    def pread(self, fd: int, size: int, offset: int) -> bytes:
        self._call("pread")
        return bytes(self._file(fd).seen[offset : offset + size])

    def pwrite(self, fd: int, data: memoryview, offset: int) -> int:
        kind = self._call("pwrite", changes=True)
        part = bytes(data[: max(1, len(data) // 2)] if kind == "short" else data)
        self._touch(fd).do(Operation(offset, part))
        return self._record_change(len(part))

    def ftruncate(self, fd: int, size: int) -> None:
        self._call("ftruncate", changes=True)
        self._touch(fd).do(Operation(size, None))
        self._record_change()

    def fsync(self, fd: int) -> None:
        inode = self._file(fd)
        if self._call("fsync", changes=True, sync=True) == "fsync":
            inode.pending = []  # the system forgets what it could not write: a second fsync would "succeed"
            raise Fault(errno.EIO, "Input/output error")
        inode.settle()
        self._record_change()

    def fsync_directory(self, path: str) -> None:
        if self._call(f"fsync-directory {path}", changes=True, sync=True) == "fsync":
            raise Fault(errno.EIO, "Input/output error")
        self.folders[path].settle()
        self._record_change()

    def rename(self, old: str, new: str) -> None:
        self._call(f"rename to {os.path.basename(new)}", changes=True)
        folder = self._folder(old)
        assert folder is self._folder(new)
        number = folder.seen[os.path.basename(old)]
        folder.do((os.path.basename(old), None), (os.path.basename(new), number))
        self._record_change()

    def link(self, old: str, new: str) -> None:
        self._call(f"link {os.path.basename(new)}", changes=True)
        if os.path.basename(new) in self._folder(new).seen:
            raise FileExistsError(errno.EEXIST, "File exists", new)
        self._folder(new).do((os.path.basename(new), self._folder(old).seen[os.path.basename(old)]))
        self._record_change()

    def unlink(self, path: str) -> None:
        self._call(f"unlink {os.path.basename(path)}", changes=True)
        if os.path.basename(path) not in self._folder(path).seen:
            raise FileNotFoundError(errno.ENOENT, "No such file or directory", path)
        self._folder(path).do((os.path.basename(path), None))
        self._record_change()

    def lstat(self, path: str) -> Any:
        self._call("lstat")
        name = os.path.basename(path)
        if name not in self._folder(path).seen:
            raise FileNotFoundError(errno.ENOENT, "No such file or directory", path)
        return self._status(self._folder(path).seen[name])

    def fstat(self, fd: int) -> Any:
        self._call("fstat")
        return self._status(self.open_files[fd])

    def list_directory(self, directory: str) -> list[str]:
        return sorted(self.folders[directory].seen)

    def get_free_space(self, directory: str) -> int:
        return self.free_bytes

    def read_mount_table(self) -> str:
        return self.table

    def get_user(self) -> int:
        return 0

    def clone_range(self, source: int, start: int, size: int, target: int, offset: int) -> bool:
        return False

    def copy_owner_and_mode(self, fd: int, like: Any) -> None:
        self._call("dress", changes=True)
        inode = self._file(fd)
        inode.mode, inode.owner = stat.S_IMODE(like.st_mode), (like.st_uid, like.st_gid)
        self._record_change()

    def read_attributes(self, fd: int) -> dict[str, bytes]:
        self._call("attributes")
        return {}

    def set_attributes(self, fd: int, attributes: dict[str, bytes]) -> None:
        self._call("set attributes", changes=True)
        self._record_change()

    def set_times(self, fd: int, atime_ns: int, mtime_ns: int) -> None:
        self._call("utime", changes=True)
        inode = self._file(fd)
        inode.atime_ns, inode.mtime_ns = atime_ns, mtime_ns
        self._record_change()

    def flock(self, fd: int) -> bool:
        return True

    def lock_record(self, fd: int) -> bool:
        return True

    def list_holders(self, status: Any) -> list[str]:
        return self.held_by

    # -- crashes

    def after_power_cut(self, seed: int = 0) -> Iterator[Disk]:
        """List every disk that a power cut at this moment may leave."""
        choices = [list(_file_states(inode, seed)) for inode in self.inodes.values()]
        names = [list(_name_states(folder)) for folder in self.folders.values()]
        for contents in _product(choices, seed):
            for seen in itertools.product(*names):
                yield self._build(contents, seen)

    def after_kill(self) -> Disk:
        """Return the disk that remains when only the program is killed."""
        return self._build([bytes(i.seen) for i in self.inodes.values()], [dict(f.seen) for f in self.folders.values()])

    def _build(self, contents: Any, names: Any) -> Disk:
        disk = Disk(clock=self.clock + 10**9)
        for inode, content in zip(self.inodes.values(), contents, strict=True):
            disk.inodes[inode.number] = Inode(
                inode.number, bytearray(content), bytearray(content), [], inode.mode, inode.owner, inode.atime_ns,
                inode.mtime_ns,
            )  # fmt: skip
        for path, seen in zip(self.folders, names, strict=True):
            disk.folders[path] = Directory(dict(seen), dict(seen))
        return disk

    def _folder(self, path: str) -> Directory:
        return self.folders[os.path.dirname(path)]

    def _file(self, fd: int) -> Inode:
        return self.inodes[self.open_files[fd]]

    def _touch(self, fd: int) -> Inode:
        self.clock += 1
        inode = self._file(fd)
        inode.mtime_ns = self.clock
        return inode

    def _status(self, number: int) -> Any:
        inode = self.inodes[number]
        links = sum(n == number for folder in self.folders.values() for n in folder.seen.values())
        return SimpleNamespace(
            st_mode=stat.S_IFREG | inode.mode, st_nlink=links, st_dev=1, st_ino=number, st_size=len(inode.seen),
            st_uid=inode.owner[0], st_gid=inode.owner[1], st_atime_ns=inode.atime_ns, st_mtime_ns=inode.mtime_ns,
            st_blocks=-(-len(inode.seen) // 512),
        )  # fmt: skip

    def _call(self, call: str, *, changes: bool = False, sync: bool = False) -> str | None:
        """Count a call; raise the fault that is due, or return its kind if the call itself has to simulate it."""
        self.log.append(call)
        if self.fault is None:
            return None
        number, kind = self.fault
        due = len(self.log) == number or (len(self.log) > number and kind in self.failing)
        if not due or (kind == "short" and call != "pwrite") or (kind == "fsync" and not sync):
            return None
        if kind in ("short", "fsync"):
            return kind
        if kind == "SIGINT":
            raise KeyboardInterrupt
        if kind == "memory":
            raise MemoryError
        raise Fault(getattr(errno, kind), os.strerror(getattr(errno, kind)))

    def _record_change(self, value: Any = None) -> Any:
        """Record the disk after a change: a crash may happen now."""
        if self.snapshots is not None:
            snapshots, self.snapshots = self.snapshots, None
            self.snapshots = [*snapshots, copy.deepcopy(self)]
        return value


def _sectors(operation: Operation) -> list[Operation]:
    if operation.data is None:
        return [operation]
    out, at, end = [], operation.offset, operation.offset + len(operation.data)
    while at < end:
        stop = min(end, (at // SECTOR + 1) * SECTOR)
        out.append(Operation(at, operation.data[at - operation.offset : stop - operation.offset]))
        at = stop
    return out


def _file_states(inode: Inode, seed: int) -> Iterator[bytes]:
    pieces = [piece for operation in inode.pending for piece in _sectors(operation)]
    for chosen in _subsets(len(pieces), seed):
        content = bytearray(inode.durable)
        for index in chosen:
            pieces[index].on(content)
        yield bytes(content)


def _name_states(folder: Directory) -> Iterator[dict[str, int]]:
    for count in range(len(folder.pending) + 1):
        names = dict(folder.durable)
        for changes in folder.pending[:count]:
            _rename(names, changes)
        yield names


def _subsets(count: int, seed: int) -> list[tuple[int, ...]]:
    if count <= ALL_SUBSETS:
        return [c for size in range(count + 1) for c in itertools.combinations(range(count), size)]
    random_ = random.Random(seed)
    beginnings = [tuple(range(n)) for n in (0, count, count - 1, count // 2)]
    return beginnings + [tuple(i for i in range(count) if random_.random() < 0.5) for _ in range(SAMPLES)]


def _product(choices: list[list[bytes]], seed: int) -> Iterator[tuple[bytes, ...]]:
    total = 1
    for one in choices:
        total *= len(one)
    if total <= 1 << ALL_SUBSETS:
        yield from itertools.product(*choices)
        return
    random_ = random.Random(seed)
    yield tuple(one[0] for one in choices)
    yield tuple(one[-1] for one in choices)
    for _ in range(1 << ALL_SUBSETS):
        yield tuple(random_.choice(one) for one in choices)
