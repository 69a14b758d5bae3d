"""Find and clear what aborted runs left: temporary files, and undo files of repairs that were never applied.

Undo files are only reported: they may be the last copy of something. A temporary file is removed before the next
repair
if it has the name that this program gives, belongs to this user, has no other name, and no process holds its lock.
"""

from __future__ import annotations

import os
import re
import stat
from collections.abc import Iterator, Sequence

from binlogtool.errors import BinlogtoolError
from binlogtool.recovery import intent
from binlogtool.recovery.fileio import remove
from binlogtool.recovery.restore import ORIGINAL, RESULT, state_of
from binlogtool.recovery.system import READ, System
from binlogtool.recovery.undofile import HEAD, MAGIC, PREPARED, STATE_AT, Undo, log_name, read_undo

_OURS = ".binlogtool-"
_TEMPORARY = re.compile(r"\.(.+)\.binlogtool-tmp-[0-9a-f]{12}", re.DOTALL)
_LONGEST = 150
"""Characters of a name that the name of a temporary file repeats."""


def leftovers(system: System, folder: str, names: Sequence[str]) -> list[str]:
    """Describe what aborted runs left in a directory for these files.

    Raises:
        OSError: the directory cannot be read.
    """
    there = [name for name in system.names(folder) if _OURS in name]
    if not there:
        return []
    known = set(names)
    told = "a temporary file of a run that broke off; --apply removes it"
    out = [f"{path}: {told}" for path in _temporaries(system, folder, known)]
    for name in sorted(there):
        path = os.path.join(folder, name)
        if log_name(name) in known and _is_prepared(system, path):
            out.append(f"{path}: {_undo_words(system, path)}")
    return out


def clear(system: System, folder: str, names: Sequence[str]) -> list[str]:
    """Remove the temporary files that nobody can need; return a line for each.

    Raises:
        OSError: the directory cannot be read.
    """
    paths = list(_temporaries(system, folder, set(names)))
    return [f"{path}: removed: a temporary file of a run that broke off" for path in paths if remove(system, path)]


def _temporaries(system: System, folder: str, names: set[str]) -> Iterator[str]:
    for name in sorted(name for name in system.names(folder) if _OURS in name):
        match = _TEMPORARY.fullmatch(name)
        path = os.path.join(folder, name)
        if match and _is_of(match[1], names) and _is_unused(system, path):
            yield path


def _is_of(name: str, names: set[str]) -> bool:
    """Return True for the name of one of the files, of an undo file of them, or of the intent file."""
    cut_short = len(name) == _LONGEST
    logs = {log_name(name) or name}
    return name == intent.NAME or bool(logs & names) or (cut_short and any(_begins_alike(name, one) for one in names))


def _begins_alike(name: str, log: str) -> bool:
    """Return True if the name is a prefix of the log's undo file names, or begins with their common prefix."""
    return f"{log}.binlogtool-undo-".startswith(name) or name.startswith(f"{log}.binlogtool-undo-")


def _is_unused(system: System, path: str) -> bool:
    """Return True for a plain file of this user that no process has locked or open; its writer locks it while it
    works.
    """
    try:
        status = system.lstat(path)
        if not stat.S_ISREG(status.st_mode) or status.st_nlink != 1 or status.st_uid != system.user():
            return False
        fd = system.open(path, READ)
        try:
            return system.flock(fd) and not system.holders(status)
        finally:
            system.close(fd)
    except OSError:
        return False


def _is_prepared(system: System, path: str) -> bool:
    """Return True for an undo file whose repair was never marked as applied; False for any other file."""
    try:
        fd = system.open(path, READ)
        try:
            head = system.pread(fd, HEAD.size, 0)
        finally:
            system.close(fd)
    except OSError:
        return False
    return head.startswith(MAGIC) and head[STATE_AT:].startswith(PREPARED.encode())


def _undo_words(system: System, path: str) -> str:
    try:
        states = _states(system, read_undo(system, path))
    except (BinlogtoolError, OSError):
        return "an undo file that is not whole; it takes nothing back"
    if states == {ORIGINAL}:
        return "an undo file of a repair that broke off before it changed anything; it is not needed"
    if states == {RESULT}:
        return "an undo file of a repair that broke off when all was changed; it takes it back"
    return "an undo file of a repair that broke off; the files changed since, or are not all repaired"


def _states(system: System, undo: Undo) -> set[str]:
    return {state_of(system, entry) for entry in undo.entries}
