"""Restore the original of a repaired file as a new file that takes its name, never as a mix of the two."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from contextlib import ExitStack
from types import SimpleNamespace

from binlogtool.errors import RefusedError
from binlogtool.recovery.fileio import Temporary, chunks, directory_of, exists, sha256, zeros
from binlogtool.recovery.system import READ, System
from binlogtool.recovery.undofile import Entry, Undo

ORIGINAL, RESULT, OTHER = "original", "result", "other"


def state_of(system: System, entry: Entry) -> str:
    """Return whether the file is the ORIGINAL, the RESULT of the repair, or OTHER.

    A missing file is the result of a removal, and the original of a file that was created.

    Raises:
        OSError.
    """
    if (entry.removed or entry.created) and not exists(system, entry.path):
        return RESULT if entry.removed else ORIGINAL
    known = {} if entry.removed else {(entry.result_size, entry.result_sha256): RESULT}
    if not entry.created:
        known[entry.size, entry.sha256] = ORIGINAL
    fd = system.open(entry.path, READ)
    try:
        size = system.fstat(fd).st_size
        if all(size != wanted for wanted, _ in known):
            return OTHER
        found = sha256(chunks(system, fd, 0, size))
    finally:
        system.close(fd)
    return known.get((size, found), OTHER)


def restore(system: System, undo: Undo, entry: Entry) -> bool:
    """Restore content, mode, owner and times of a file, or remove it if there was none; return False if nothing had
    to change.

    Raises:
        RefusedError: it is neither the original nor the result. OSError.
    """
    state = state_of(system, entry)
    if state == ORIGINAL:
        return False
    if state == OTHER:
        raise RefusedError(f"{entry.path}: changed since the repair; nothing was changed")
    if entry.created:
        system.unlink(entry.path)
        system.fsync_directory(directory_of(entry.path))
        return True
    with ExitStack() as held:
        body = _opened(system, undo.path, held)
        source = None if entry.removed else _opened(system, entry.path, held)
        _replace(system, undo, entry, source, body)
    return True


def prove_original(system: System, undo: Undo, entry: Entry) -> None:
    """Check, without writing, that the undo file gives the original of a file.

    Raises:
        RefusedError: it does not; nothing was changed. OSError.
    """
    if entry.created:
        return
    with ExitStack() as held:
        body = _opened(system, undo.path, held)
        source = None if entry.removed else _opened(system, entry.path, held)
        if sha256(_original(system, undo, entry, source, body)) != entry.sha256:
            raise RefusedError(f"{undo.path}: does not give the original of {entry.path}; nothing was changed")


def _opened(system: System, path: str, held: ExitStack) -> int:
    fd = system.open(path, READ)
    held.callback(system.close, fd)
    return fd


def _replace(system: System, undo: Undo, entry: Entry, source: int | None, body: int) -> None:
    with Temporary(system, entry.path) as file:
        if file.append(_original(system, undo, entry, source, body)) != entry.sha256:
            raise RefusedError(f"{undo.path}: does not give the original of {entry.path}; nothing was changed")
        system.set_attributes(file.fd, {name: bytes.fromhex(value) for name, value in entry.attributes.items()})
        dress_as_noted(system, file.fd, entry)
        system.set_times(file.fd, entry.atime_ns, entry.mtime_ns)
        file.publish(replace=True)


def dress(system: System, fd: int, path: str, like: os.stat_result) -> None:
    """Give the new file for a path the owner and mode of another one.

    Raises:
        RefusedError: this user may not. OSError.
    """
    try:
        system.dress(fd, like)
    except PermissionError as error:
        whose = f"belongs to user {like.st_uid}, group {like.st_gid}"
        text = f"{path}: {whose}, and a new file in its place would not: run this as that user or as root"
        raise RefusedError(f"{text}; nothing was changed") from error


def noted(entry: Entry) -> os.stat_result:
    """Return the owner and mode that the undo file records."""
    return SimpleNamespace(st_uid=entry.uid, st_gid=entry.gid, st_mode=entry.mode)  # type: ignore[return-value]


def refuse_other_owner(system: System, entries: Iterable[Entry]) -> None:
    """Check, with a temporary file each, that new files can get the owner that the undo file records.

    Raises:
        RefusedError: they cannot; nothing was changed. OSError.
    """
    for entry in entries:
        with Temporary(system, entry.path) as trial:
            dress(system, trial.fd, entry.path, noted(entry))


def dress_as_noted(system: System, fd: int, entry: Entry) -> None:
    """Give a file the recorded owner and mode; a file that cannot be given away stays with this user."""
    like = noted(entry)
    try:
        system.dress(fd, like)
    except PermissionError:
        own = system.fstat(fd)
        system.dress(fd, SimpleNamespace(st_uid=own.st_uid, st_gid=own.st_gid, st_mode=like.st_mode))  # type: ignore[arg-type]


def _original(system: System, undo: Undo, entry: Entry, source: int | None, body: int) -> Iterator[bytes]:
    for which, start, end in entry.restore:
        if which == "zero":
            yield from zeros(end - start)
        elif which == "result" and source is not None:
            yield from chunks(system, source, start, end)
        else:
            yield from chunks(system, body, undo.body_at + start, undo.body_at + end)
