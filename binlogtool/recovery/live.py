"""Detect that a log is in use: the engine's own locks, file locks, and processes that have it open."""

from __future__ import annotations

import os
from contextlib import ExitStack

from binlogtool import formats
from binlogtool.errors import RefusedError
from binlogtool.formats.repair_rules import EngineLock
from binlogtool.recovery.system import CHANGE, READ, SystemCalls
from binlogtool.recovery.undofile import UndoFile


def take_engine_locks(system: SystemCalls, directory: str, locks: tuple[EngineLock, ...], held: ExitStack) -> None:
    """Take the locks that a running server would hold, until `held` is closed.

    Raises:
        RefusedError: the server holds one. OSError.
    """
    for lock in locks:
        path = os.path.join(directory, lock.name) if lock.name else directory
        flags = READ if lock.kind == "flock" else CHANGE
        try:
            fd = system.open(path, flags)
        except FileNotFoundError:
            continue  # no server ever started here; do not leave a lock file
        except PermissionError as error:
            raise RefusedError(f"{path}: the server's lock cannot be looked at: {error.strerror}") from error
        held.callback(system.close, fd)
        if not (system.flock(fd) if lock.kind == "flock" else system.lock_record(fd)):
            raise RefusedError(f"{path}: locked: the server is running; stop it first; nothing was changed")


def take_undo_locks(system: SystemCalls, undo: UndoFile, held: ExitStack) -> None:
    """Take the engine locks for the files of an undo file.

    Raises:
        RefusedError: the server holds one. OSError.
    """
    locks = formats.load_format(undo.format).repair.locks if undo.format in formats.list_names() else ()
    for directory in dict.fromkeys(os.path.dirname(entry.path) for entry in undo.entries):
        take_engine_locks(system, directory, locks, held)


def take_file_locks(system: SystemCalls, path: str, fd: int) -> None:
    """Take both kinds of lock of a file that is open for writing, and check that no other process has it open.

    Raises:
        RefusedError: the file is in use. OSError.
    """
    if not (system.flock(fd) and system.lock_record(fd)):
        raise RefusedError(f"{path}: locked by another process, perhaps another repair; nothing was changed")
    holders = system.list_holders(system.fstat(fd))
    if holders:
        raise RefusedError(f"{path}: in use: open in {', '.join(holders[:5])}; stop it first; nothing was changed")
