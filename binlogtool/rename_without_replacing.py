"""Give a finished file or directory its final name without replacing anything that already has it."""

from __future__ import annotations

import errno
import os

_AT_CURRENT_DIRECTORY = -100
_NO_REPLACE = 1
"""AT_FDCWD of fcntl.h and RENAME_NOREPLACE of linux/fs.h."""


def rename_without_replacing(source: str | os.PathLike[str], target: str | os.PathLike[str]) -> None:
    """Rename `source` to `target`, which must not exist.

    Raises:
        FileExistsError: the target exists.
        OSError.
    """
    if _try_rename_exclusively(os.fsencode(source), os.fsencode(target)):
        return
    if os.path.isdir(source):
        if os.path.lexists(target):
            raise FileExistsError(errno.EEXIST, os.strerror(errno.EEXIST), os.fspath(target))
        os.rename(source, target)
        return
    os.link(source, target, follow_symlinks=False)
    os.unlink(source)


def _try_rename_exclusively(source: bytes, target: bytes) -> bool:
    """Rename with renameat2(2); return False where the system or the file system does not support it."""
    import ctypes

    try:
        call = ctypes.CDLL(None, use_errno=True).renameat2
    except (AttributeError, OSError):
        return False
    if call(_AT_CURRENT_DIRECTORY, source, _AT_CURRENT_DIRECTORY, target, _NO_REPLACE) == 0:
        return True
    error_number = ctypes.get_errno()
    if error_number in (errno.ENOSYS, errno.EINVAL, errno.EPERM):  # a sandbox answers EPERM
        return False
    raise OSError(error_number, os.strerror(error_number), os.fsdecode(target))


def fsync_path(path: str | os.PathLike[str]) -> None:
    """Wait until a file or directory is on the disk."""
    handle = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
