"""Puts the original of a repaired file back, as a new file that takes its name: never a mix of the two."""

from __future__ import annotations

import os
from collections.abc import Iterator
from types import SimpleNamespace

from binlogtool.errors import RefusedError
from binlogtool.recovery.fileio import Temporary, chunks, sha256
from binlogtool.recovery.system import READ, System
from binlogtool.recovery.undofile import Entry, Undo

ORIGINAL, RESULT, OTHER = "original", "result", "other"


def state_of(system: System, entry: Entry) -> str:
    """Is the file the original, the result, or neither?

    Raises:
        OSError.
    """
    fd = system.open(entry.path, READ)
    try:
        size = system.fstat(fd).st_size
        if size not in (entry.size, entry.result_size):
            return OTHER
        found = sha256(chunks(system, fd, 0, size))
    finally:
        system.close(fd)
    known = {(entry.result_size, entry.result_sha256): RESULT, (entry.size, entry.sha256): ORIGINAL}
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
    source = system.open(entry.path, READ)
    try:
        body = system.open(undo.path, READ)
        try:
            _replace(system, undo, entry, source, body)
        finally:
            system.close(body)
    finally:
        system.close(source)
    return True


def _replace(system: System, undo: Undo, entry: Entry, source: int, body: int) -> None:
    with Temporary(system, entry.path) as file:
        if file.append(_original(system, undo, entry, source, body)) != entry.sha256:
            raise RefusedError(f"{undo.path}: does not give the original of {entry.path}; nothing was changed")
        system.copy_attributes(source, file.fd)
        like = SimpleNamespace(st_uid=entry.uid, st_gid=entry.gid, st_mode=entry.mode)
        try:
            system.dress(file.fd, like)  # type: ignore[arg-type]
        except PermissionError:  # only the owner of all may give a file away
            like.st_uid, like.st_gid = os.getuid(), system.fstat(file.fd).st_gid
            system.dress(file.fd, like)  # type: ignore[arg-type]
        system.set_times(file.fd, entry.atime_ns, entry.mtime_ns)
        file.publish(replace=True)


def _original(system: System, undo: Undo, entry: Entry, source: int, body: int) -> Iterator[bytes]:
    for which, start, end in entry.restore:
        if which == "result":
            yield from chunks(system, source, start, end)
        else:
            yield from chunks(system, body, undo.body_at + start, undo.body_at + end)
