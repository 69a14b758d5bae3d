"""Open and lock the files that a plan changes, and prove that they are the planned ones."""

from __future__ import annotations

import errno
import os
import stat
from contextlib import ExitStack
from typing import NoReturn

import msgspec

from binlogtool.errors import RefusedError
from binlogtool.recovery.fileio import directory_of, exists, three_hashes
from binlogtool.recovery.live import take_file_locks
from binlogtool.recovery.plan import FilePlan
from binlogtool.recovery.system import CHANGE, READ, System

_READ_ONLY = (errno.EROFS, errno.EACCES, errno.EPERM, errno.ETXTBSY)


class Target(msgspec.Struct, frozen=True):
    """A file that is open, locked and proven to be the planned one.

    For a file that is to be created, descriptor and status are those of the file whose mode and owner it gets.
    """

    plan: FilePlan
    path: str
    fd: int
    status: os.stat_result
    sha256: str

    @property
    def is_cut(self) -> bool:
        """True if the file is only shortened."""
        pieces = self.plan.pieces
        return len(pieces) == 1 and pieces[0].kept and pieces[0].start == 0

    @property
    def is_removed(self) -> bool:
        """True if the file is removed."""
        return self.plan.action == "remove"

    @property
    def is_new(self) -> bool:
        """True if the file does not exist yet."""
        return self.plan.made_like is not None

    @property
    def is_replaced(self) -> bool:
        """True if a new file takes its name."""
        return not self.is_cut and not self.is_removed


def open_target(system: System, file: FilePlan, held: ExitStack) -> Target:
    """Open and lock one file, and prove that it is what the plan was made for.

    Raises:
        RefusedError: it is not, is in use, or must not be written. OSError.
    """
    path = os.path.join(os.path.realpath(directory_of(file.path)), os.path.basename(file.path))
    if file.made_like is not None:
        return _open_model(system, file, path, os.path.realpath(file.made_like), held)
    refuse_odd(system, path)
    fd = open_for_change(system, path, held)
    take_file_locks(system, path, fd)
    status = system.fstat(fd)
    named = system.lstat(path)
    found = (status.st_size, status.st_ino, status.st_mtime_ns)
    planned = (file.size, file.inode or status.st_ino, file.mtime_ns or status.st_mtime_ns)
    if (named.st_dev, named.st_ino) != (status.st_dev, status.st_ino) or found != planned:
        _differs(path)
    whole = _proved(system, fd, file)
    return Target(file, path, fd, status, whole)


def _open_model(system: System, file: FilePlan, path: str, like: str, held: ExitStack) -> Target:
    """Open the model of a file that does not exist yet."""
    if exists(system, path):
        _differs(path)
    fd = system.open(like, READ)
    held.callback(system.close, fd)
    _proved(system, fd, file)
    return Target(file, path, fd, system.fstat(fd), "")


def refuse_odd(system: System, path: str) -> None:
    """Refuse links, special files and files with several names.

    Raises:
        RefusedError, OSError.
    """
    status = system.lstat(path)
    if stat.S_ISLNK(status.st_mode):
        raise RefusedError(f"{path}: is a symbolic link; name the file itself; nothing was changed")
    if not stat.S_ISREG(status.st_mode):
        raise RefusedError(f"{path}: is not a regular file; nothing was changed")
    if status.st_nlink > 1:
        names = f"has {status.st_nlink} names (hard links); --to-file writes a copy"
        raise RefusedError(f"{path}: {names}; nothing was changed")


def open_for_change(system: System, path: str, held: ExitStack) -> int:
    """Open a file for reading and writing; it is closed with `held`.

    Raises:
        RefusedError: it must not be written. OSError.
    """
    try:
        fd = system.open(path, CHANGE)
    except OSError as error:
        if error.errno in _READ_ONLY:
            text = f"{path}: cannot be written: {error.strerror} (--to-file writes a copy); nothing was changed"
            raise RefusedError(text) from error
        raise
    held.callback(system.close, fd)
    return fd


def _proved(system: System, fd: int, file: FilePlan) -> str:
    """Compare the hashes of the kept and the cut part; return that of the whole file."""
    kept = [p for p in file.pieces if p.kept]
    found = three_hashes(system, fd, kept, file.size)
    if found[:2] != (file.sha256_kept, file.sha256_cut):
        _differs(file.path)
    return found[2]


def _differs(path: str) -> NoReturn:
    raise RefusedError(f"{path}: is not what the plan was made for: it changed since; plan again; nothing was changed")


def still(system: System, target: Target) -> None:
    """Check that nothing happened to the file while its undo file was written.

    Raises:
        RefusedError: it changed. OSError.
    """
    if target.is_new:
        if exists(system, target.path):
            _differs(target.path)
        return
    now, named = system.fstat(target.fd), system.lstat(target.path)
    before = target.status
    if (now.st_size, now.st_mtime_ns) != (before.st_size, before.st_mtime_ns) or named.st_ino != before.st_ino:
        _differs(target.path)
