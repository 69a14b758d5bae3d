"""Open and lock the files that a plan changes, and prove that they are the planned ones."""

from __future__ import annotations

import errno
import os
import stat
from contextlib import ExitStack
from typing import NoReturn

import msgspec

from binlogtool.errors import RefusedError
from binlogtool.recovery.fileio import get_directory, hash_parts, path_exists
from binlogtool.recovery.live import take_file_locks
from binlogtool.recovery.plan import FilePlan
from binlogtool.recovery.system import CHANGE, READ, SystemCalls

_READ_ONLY = (errno.EROFS, errno.EACCES, errno.EPERM, errno.ETXTBSY)


class RepairTarget(msgspec.Struct, frozen=True):
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
        return len(pieces) == 1 and pieces[0].is_original and pieces[0].start == 0

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


def open_target(system: SystemCalls, file: FilePlan, held: ExitStack) -> RepairTarget:
    """Open and lock one file, and prove that it is what the plan was made for.

    Raises:
        RefusedError: it is not, is in use, or must not be written. OSError.
    """
    path = os.path.join(os.path.realpath(get_directory(file.path)), os.path.basename(file.path))
    if file.made_like is not None:
        return _open_new_target(system, file, path, os.path.realpath(file.made_like), held)
    refuse_special_file(system, path)
    fd = open_for_change(system, path, held)
    take_file_locks(system, path, fd)
    status = system.fstat(fd)
    named = system.lstat(path)
    actual = (status.st_size, status.st_ino, status.st_mtime_ns)
    planned = (file.size, file.inode or status.st_ino, file.mtime_ns or status.st_mtime_ns)
    if (named.st_dev, named.st_ino) != (status.st_dev, status.st_ino) or actual != planned:
        _refuse_changed(path)
    digest = _check_hashes(system, fd, file)
    return RepairTarget(file, path, fd, status, digest)


def _open_new_target(system: SystemCalls, file: FilePlan, path: str, like: str, held: ExitStack) -> RepairTarget:
    """Open the model of a file that does not exist yet."""
    if path_exists(system, path):
        _refuse_changed(path)
    fd = system.open(like, READ)
    held.callback(system.close, fd)
    _check_hashes(system, fd, file)
    return RepairTarget(file, path, fd, system.fstat(fd), "")


def refuse_special_file(system: SystemCalls, path: str) -> None:
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


def open_for_change(system: SystemCalls, path: str, held: ExitStack) -> int:
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


def _check_hashes(system: SystemCalls, fd: int, file: FilePlan) -> str:
    """Compare the hashes of the kept and the cut part; return that of the whole file."""
    kept = [p for p in file.pieces if p.is_original]
    hashes = hash_parts(system, fd, kept, file.size)
    if hashes[:2] != (file.sha256_kept, file.sha256_cut):
        _refuse_changed(file.path)
    return hashes[2]


def _refuse_changed(path: str) -> NoReturn:
    raise RefusedError(f"{path}: is not what the plan was made for: it changed since; plan again; nothing was changed")


def check_unchanged(system: SystemCalls, target: RepairTarget) -> None:
    """Check that nothing happened to the file while its undo file was written.

    Raises:
        RefusedError: it changed. OSError.
    """
    if target.is_new:
        if path_exists(system, target.path):
            _refuse_changed(target.path)
        return
    status, named = system.fstat(target.fd), system.lstat(target.path)
    old_status = target.status
    if (status.st_size, status.st_mtime_ns) != (
        old_status.st_size,
        old_status.st_mtime_ns,
    ) or named.st_ino != old_status.st_ino:
        _refuse_changed(target.path)
