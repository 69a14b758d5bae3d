"""Restore the original of a repaired file as a new file that takes its name, never as a mix of the two."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from contextlib import ExitStack
from types import SimpleNamespace

from binlogtool.errors import RefusedError
from binlogtool.recovery.fileio import TemporaryFile, get_directory, hash_chunks, path_exists, read_chunks, zero_chunks
from binlogtool.recovery.system import READ, SystemCalls
from binlogtool.recovery.undofile import UndoEntry, UndoFile

ORIGINAL, RESULT, OTHER = "original", "result", "other"


def find_file_state(system: SystemCalls, entry: UndoEntry) -> str:
    """Return whether the file is the ORIGINAL, the RESULT of the repair, or OTHER.

    A missing file is the result of a removal, and the original of a file that was created.

    Raises:
        OSError.
    """
    if (entry.removed or entry.created) and not path_exists(system, entry.path):
        return RESULT if entry.removed else ORIGINAL
    states = {} if entry.removed else {(entry.result_size, entry.result_sha256): RESULT}
    if not entry.created:
        states[entry.size, entry.sha256] = ORIGINAL
    fd = system.open(entry.path, READ)
    try:
        size = system.fstat(fd).st_size
        if all(size != wanted for wanted, _ in states):
            return OTHER
        digest = hash_chunks(read_chunks(system, fd, 0, size))
    finally:
        system.close(fd)
    return states.get((size, digest), OTHER)


def restore_file(system: SystemCalls, undo: UndoFile, entry: UndoEntry) -> bool:
    """Restore content, mode, owner and times of a file, or remove it if there was none; return False if nothing had
    to change.

    Raises:
        RefusedError: it is neither the original nor the result. OSError.
    """
    state = find_file_state(system, entry)
    if state == ORIGINAL:
        return False
    if state == OTHER:
        raise RefusedError(f"{entry.path}: changed since the repair; nothing was changed")
    if entry.created:
        system.unlink(entry.path)
        system.fsync_directory(get_directory(entry.path))
        return True
    with ExitStack() as held:
        undo_fd = _open_file(system, undo.path, held)
        source = None if entry.removed else _open_file(system, entry.path, held)
        _write_original(system, undo, entry, source, undo_fd)
    return True


def prove_original(system: SystemCalls, undo: UndoFile, entry: UndoEntry) -> None:
    """Check, without writing, that the undo file gives the original of a file.

    Raises:
        RefusedError: it does not; nothing was changed. OSError.
    """
    if entry.created:
        return
    with ExitStack() as held:
        undo_fd = _open_file(system, undo.path, held)
        source = None if entry.removed else _open_file(system, entry.path, held)
        if hash_chunks(_read_original(system, undo, entry, source, undo_fd)) != entry.sha256:
            raise RefusedError(f"{undo.path}: does not give the original of {entry.path}; nothing was changed")


def _open_file(system: SystemCalls, path: str, held: ExitStack) -> int:
    fd = system.open(path, READ)
    held.callback(system.close, fd)
    return fd


def _write_original(system: SystemCalls, undo: UndoFile, entry: UndoEntry, source: int | None, undo_fd: int) -> None:
    with TemporaryFile(system, entry.path) as file:
        if file.append(_read_original(system, undo, entry, source, undo_fd)) != entry.sha256:
            raise RefusedError(f"{undo.path}: does not give the original of {entry.path}; nothing was changed")
        system.set_attributes(file.fd, {name: bytes.fromhex(value) for name, value in entry.attributes.items()})
        restore_owner_and_mode(system, file.fd, entry)
        system.set_times(file.fd, entry.atime_ns, entry.mtime_ns)
        file.publish(replace=True)


def copy_owner_and_mode(system: SystemCalls, fd: int, path: str, like: os.stat_result) -> None:
    """Give the new file for a path the owner and mode of another one.

    Raises:
        RefusedError: this user may not. OSError.
    """
    try:
        system.copy_owner_and_mode(fd, like)
    except PermissionError as error:
        whose = f"belongs to user {like.st_uid}, group {like.st_gid}"
        text = f"{path}: {whose}, and a new file in its place would not: run this as that user or as root"
        raise RefusedError(f"{text}; nothing was changed") from error


def make_recorded_status(entry: UndoEntry) -> os.stat_result:
    """Return the owner and mode that the undo file records."""
    return SimpleNamespace(st_uid=entry.uid, st_gid=entry.gid, st_mode=entry.mode)  # type: ignore[return-value]


def refuse_unsettable_owner(system: SystemCalls, entries: Iterable[UndoEntry]) -> None:
    """Check, with a temporary file each, that new files can get the owner that the undo file records.

    Raises:
        RefusedError: they cannot; nothing was changed. OSError.
    """
    for entry in entries:
        with TemporaryFile(system, entry.path) as trial:
            copy_owner_and_mode(system, trial.fd, entry.path, make_recorded_status(entry))


def restore_owner_and_mode(system: SystemCalls, fd: int, entry: UndoEntry) -> None:
    """Give a file the recorded owner and mode; a file that cannot be given away stays with this user."""
    like = make_recorded_status(entry)
    try:
        system.copy_owner_and_mode(fd, like)
    except PermissionError:
        own = system.fstat(fd)
        system.copy_owner_and_mode(fd, SimpleNamespace(st_uid=own.st_uid, st_gid=own.st_gid, st_mode=like.st_mode))  # type: ignore[arg-type]


def _read_original(
    system: SystemCalls, undo: UndoFile, entry: UndoEntry, source: int | None, undo_fd: int
) -> Iterator[bytes]:
    for source_name, start, end in entry.restore:
        if source_name == "zero":
            yield from zero_chunks(end - start)
        elif source_name == "result" and source is not None:
            yield from read_chunks(system, source, start, end)
        else:
            yield from read_chunks(system, undo_fd, undo.body_offset + start, undo.body_offset + end)
