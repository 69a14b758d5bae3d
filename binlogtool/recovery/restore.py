"""Puts the original of a repaired file back, as a new file that takes its name: never a mix of the two."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import ExitStack
from types import SimpleNamespace

from binlogtool.errors import RefusedError
from binlogtool.recovery.fileio import Temporary, chunks, exists, sha256, zeros
from binlogtool.recovery.system import READ, System
from binlogtool.recovery.undofile import Entry, Undo

ORIGINAL, RESULT, OTHER = "original", "result", "other"


def state_of(system: System, entry: Entry) -> str:
    """Is the file the original, the result, or neither? The result of a removal is that there is no such file.

    Raises:
        OSError.
    """
    if entry.removed and not exists(system, entry.path):
        return RESULT
    fd = system.open(entry.path, READ)
    try:
        size = system.fstat(fd).st_size
        if size not in ((entry.size,) if entry.removed else (entry.size, entry.result_size)):
            return OTHER
        found = sha256(chunks(system, fd, 0, size))
    finally:
        system.close(fd)
    known = {} if entry.removed else {(entry.result_size, entry.result_sha256): RESULT}
    known[entry.size, entry.sha256] = ORIGINAL
    return known.get((size, found), OTHER)


def restore(system: System, undo: Undo, entry: Entry) -> bool:
    """Makes the file the original again, with mode, owner and times; False if it is the original.

    Raises:
        RefusedError: it is neither the original nor the result. OSError.
    """
    state = state_of(system, entry)
    if state == ORIGINAL:
        return False
    if state == OTHER:
        raise RefusedError(f"{entry.path}: changed since the repair; nothing was changed")
    with ExitStack() as held:
        body = _opened(system, undo.path, held)
        source = None if entry.removed else _opened(system, entry.path, held)
        _replace(system, undo, entry, source, body)
    return True


def _opened(system: System, path: str, held: ExitStack) -> int:
    fd = system.open(path, READ)
    held.callback(system.close, fd)
    return fd


def _replace(system: System, undo: Undo, entry: Entry, source: int | None, body: int) -> None:
    with Temporary(system, entry.path) as file:
        if file.append(_original(system, undo, entry, source, body)) != entry.sha256:
            raise RefusedError(f"{undo.path}: does not give the original of {entry.path}; nothing was changed")
        if source is not None:
            system.copy_attributes(source, file.fd)
        like = SimpleNamespace(st_uid=entry.uid, st_gid=entry.gid, st_mode=entry.mode)
        try:
            system.dress(file.fd, like)  # type: ignore[arg-type]
        except PermissionError:  # only the owner of all may give a file away
            like.st_uid, like.st_gid = os.getuid(), system.fstat(file.fd).st_gid
            system.dress(file.fd, like)  # type: ignore[arg-type]
        system.set_times(file.fd, entry.atime_ns, entry.mtime_ns)
        file.publish(replace=True)


def _original(system: System, undo: Undo, entry: Entry, source: int | None, body: int) -> Iterator[bytes]:
    for which, start, end in entry.restore:
        if which == "zero":
            yield from zeros(end - start)
        elif which == "result" and source is not None:
            yield from chunks(system, source, start, end)
        else:
            yield from chunks(system, body, undo.body_at + start, undo.body_at + end)
