"""The system calls of a repair, behind one small object: tests replace it by a disk that can be cut from power."""

from __future__ import annotations

import errno
import fcntl
import os
import struct
from contextlib import suppress

from binlogtool.recovery.processes import holders

READ = os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK
CHANGE = os.O_RDWR | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK
CREATE = os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC | os.O_NOFOLLOW

_CLONE_RANGE = 0x4020940D
"""FICLONERANGE of linux/fs.h: source, place in it, size, place in the target."""


class System:
    """The calls as they are. Each may raise `OSError`; none is tried again."""

    def open(self, path: str, flags: int, mode: int = 0o600) -> int:
        """A descriptor; links are not followed."""
        return os.open(path, flags, mode)

    def close(self, fd: int) -> None:
        """Gives a descriptor back."""
        os.close(fd)

    def pread(self, fd: int, size: int, offset: int) -> bytes:
        """At most `size` bytes."""
        return os.pread(fd, size, offset)

    def next_data(self, fd: int, offset: int) -> int:
        """Where a hole that `offset` lies in ends; `offset` where there is none, or the file system does not say."""
        try:
            return os.lseek(fd, offset, os.SEEK_DATA)
        except OSError as error:  # ENXIO: nothing but a hole up to the end
            return max(offset, os.fstat(fd).st_size) if error.errno == errno.ENXIO else offset

    def pwrite(self, fd: int, data: memoryview, offset: int) -> int:
        """How many bytes were written."""
        return os.pwrite(fd, data, offset)

    def ftruncate(self, fd: int, size: int) -> None:
        """Sets the size."""
        os.ftruncate(fd, size)

    def clone(self, source: int, start: int, size: int, target: int, offset: int) -> bool:
        """Lets a part of a file share the bytes of another one until either is written; False = that is impossible."""
        try:
            fcntl.ioctl(target, _CLONE_RANGE, struct.pack("qQQQ", source, start, size, offset))
        except OSError:
            return False
        return True

    def fsync(self, fd: int) -> None:
        """Makes the bytes and the size durable."""
        os.fsync(fd)

    def fsync_directory(self, path: str) -> None:
        """Makes the names in a directory durable."""
        fd = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            os.fsync(fd)
        finally:
            os.close(fd)

    def rename(self, old: str, new: str) -> None:
        """Replaces `new`."""
        os.rename(old, new)

    def link(self, old: str, new: str) -> None:
        """A second name; fails if it exists."""
        os.link(old, new, follow_symlinks=False)

    def unlink(self, path: str) -> None:
        """Removes a name."""
        os.unlink(path)

    def lstat(self, path: str) -> os.stat_result:
        """About a name; links are not followed."""
        return os.lstat(path)

    def fstat(self, fd: int) -> os.stat_result:
        """About an open file."""
        return os.fstat(fd)

    def names(self, directory: str) -> list[str]:
        """What is in a directory."""
        return os.listdir(directory)

    def free(self, directory: str) -> int:
        """Bytes that can still be written there."""
        found = os.statvfs(directory)
        return found.f_bavail * found.f_frsize

    def mounts(self) -> str:
        """The table of what is mounted where; empty where the system has none."""
        try:
            with open("/proc/self/mountinfo", encoding="utf-8", errors="surrogateescape") as file:
                return file.read()
        except OSError:
            return ""

    def user(self) -> int:
        """Who this program runs as."""
        return os.geteuid()

    def dress(self, fd: int, like: os.stat_result) -> None:
        """Gives an open file the owner and the mode of another one."""
        now = os.fstat(fd)
        if (now.st_uid, now.st_gid) != (like.st_uid, like.st_gid):
            os.fchown(fd, like.st_uid, like.st_gid)
        os.fchmod(fd, like.st_mode & 0o7777)

    def attributes(self, fd: int) -> dict[str, bytes]:
        """The extended attributes (access lists, security labels, ...) that this user can see."""
        found = {}
        with suppress(OSError):  # the file system may have none
            for name in os.listxattr(fd):
                with suppress(OSError):  # some belong to the system
                    found[name] = os.getxattr(fd, name)
        return found

    def set_attributes(self, fd: int, wanted: dict[str, bytes]) -> None:
        """Gives a file these extended attributes and no others, as far as the system allows."""
        has = self.attributes(fd)
        for name in sorted(has.keys() - wanted.keys()):  # the directory may have given it some
            with suppress(OSError):
                os.removexattr(fd, name)
        for name, value in wanted.items():
            if has.get(name) != value:
                with suppress(OSError):
                    os.setxattr(fd, name, value)

    def set_times(self, fd: int, atime_ns: int, mtime_ns: int) -> None:
        """Sets the times of access and of modification."""
        os.utime(fd, ns=(atime_ns, mtime_ns))

    def flock(self, fd: int) -> bool:
        """Takes the exclusive lock of the open file, without waiting; False = somebody has it."""
        return _locked(fcntl.flock, fd)

    def record_lock(self, fd: int) -> bool:
        """Takes the POSIX write lock of the whole file, without waiting; False = somebody has it."""
        return _locked(fcntl.lockf, fd)

    def holders(self, status: os.stat_result) -> list[str]:
        """Other processes that have this file open or mapped, as far as they can be looked into."""
        return sorted(set(holders(status)))


def _locked(lock: object, fd: int) -> bool:
    try:
        lock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)  # type: ignore[operator]
    except (BlockingIOError, PermissionError):
        return False
    return True


SYSTEM = System()
