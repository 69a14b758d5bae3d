"""The system calls of a repair, in one small object: tests replace it by a disk that can lose power."""

from __future__ import annotations

import errno
import fcntl
import os
import struct
from contextlib import suppress

from binlogtool.recovery.processes import find_holders

READ = os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK
CHANGE = os.O_RDWR | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK
CREATE = os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC | os.O_NOFOLLOW

_CLONE_RANGE = 0x4020940D
"""FICLONERANGE of linux/fs.h: source, place in it, size, place in the target."""


class SystemCalls:
    """The real system calls. Each may raise `OSError`; none is retried."""

    def open(self, path: str, flags: int, mode: int = 0o600) -> int:
        """Open a path without following links; return the descriptor."""
        return os.open(path, flags, mode)

    def close(self, fd: int) -> None:
        """Close a descriptor."""
        os.close(fd)

    def pread(self, fd: int, size: int, offset: int) -> bytes:
        """Read at most `size` bytes."""
        return os.pread(fd, size, offset)

    def find_next_data(self, fd: int, offset: int) -> int:
        """Return where the hole around `offset` ends; `offset` if there is none, or the file system does not say."""
        try:
            return os.lseek(fd, offset, os.SEEK_DATA)
        except OSError as error:  # ENXIO: nothing but a hole up to the end
            return max(offset, os.fstat(fd).st_size) if error.errno == errno.ENXIO else offset

    def pwrite(self, fd: int, data: memoryview, offset: int) -> int:
        """Write; return the number of bytes written."""
        return os.pwrite(fd, data, offset)

    def ftruncate(self, fd: int, size: int) -> None:
        """Set the size of a file."""
        os.ftruncate(fd, size)

    def clone_range(self, source: int, start: int, size: int, target: int, offset: int) -> bool:
        """Let a range of a file share the blocks of another file, copy on write; return False if that is impossible."""
        try:
            fcntl.ioctl(target, _CLONE_RANGE, struct.pack("qQQQ", source, start, size, offset))
        except OSError:
            return False
        return True

    def fsync(self, fd: int) -> None:
        """Make the bytes and the size durable."""
        os.fsync(fd)

    def fsync_directory(self, path: str) -> None:
        """Make the names in a directory durable."""
        fd = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            os.fsync(fd)
        finally:
            os.close(fd)

    def rename(self, old: str, new: str) -> None:
        """Rename; `new` is replaced."""
        os.rename(old, new)

    def link(self, old: str, new: str) -> None:
        """Give a file a second name; fail if the name exists."""
        os.link(old, new, follow_symlinks=False)

    def unlink(self, path: str) -> None:
        """Remove a name."""
        os.unlink(path)

    def lstat(self, path: str) -> os.stat_result:
        """Return the status of a path; links are not followed."""
        return os.lstat(path)

    def fstat(self, fd: int) -> os.stat_result:
        """Return the status of an open file."""
        return os.fstat(fd)

    def list_directory(self, directory: str) -> list[str]:
        """List the names in a directory."""
        return os.listdir(directory)

    def get_free_space(self, directory: str) -> int:
        """Return the bytes that this user can still write in the file system of a directory."""
        status = os.statvfs(directory)
        return status.f_bavail * status.f_frsize

    def read_mount_table(self) -> str:
        """Return the text of the mount table; empty where the system has none."""
        try:
            with open("/proc/self/mountinfo", encoding="utf-8", errors="surrogateescape") as file:
                return file.read()
        except OSError:
            return ""

    def get_user(self) -> int:
        """Return the effective user id."""
        return os.geteuid()

    def copy_owner_and_mode(self, fd: int, like: os.stat_result) -> None:
        """Give an open file the owner and the mode of another one."""
        status = os.fstat(fd)
        if (status.st_uid, status.st_gid) != (like.st_uid, like.st_gid):
            os.fchown(fd, like.st_uid, like.st_gid)
        os.fchmod(fd, like.st_mode & 0o7777)

    def read_attributes(self, fd: int) -> dict[str, bytes]:
        """Return the extended attributes (access lists, security labels, ...) that this user can see."""
        attributes = {}
        with suppress(OSError):  # the file system may have none
            for name in os.listxattr(fd):
                with suppress(OSError):  # some belong to the system
                    attributes[name] = os.getxattr(fd, name)
        return attributes

    def set_attributes(self, fd: int, attributes: dict[str, bytes]) -> None:
        """Give a file these extended attributes and no others, as far as the system allows."""
        present = self.read_attributes(fd)
        for name in sorted(present.keys() - attributes.keys()):  # it may have inherited some from the directory
            with suppress(OSError):
                os.removexattr(fd, name)
        for name, value in attributes.items():
            if present.get(name) != value:
                with suppress(OSError):
                    os.setxattr(fd, name, value)

    def set_times(self, fd: int, atime_ns: int, mtime_ns: int) -> None:
        """Set the access and modification times."""
        os.utime(fd, ns=(atime_ns, mtime_ns))

    def flock(self, fd: int) -> bool:
        """Take the exclusive flock lock of an open file without waiting; return False if another process holds it."""
        return _try_lock(fcntl.flock, fd)

    def lock_record(self, fd: int) -> bool:
        """Take the POSIX write lock of the whole file without waiting; return False if another process holds it."""
        return _try_lock(fcntl.lockf, fd)

    def list_holders(self, status: os.stat_result) -> list[str]:
        """Return the other processes that have this file open or mapped, as far as this user can see them."""
        return sorted(set(find_holders(status)))


def _try_lock(lock: object, fd: int) -> bool:
    try:
        lock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)  # type: ignore[operator]
    except (BlockingIOError, PermissionError):
        return False
    return True


SYSTEM = SystemCalls()
