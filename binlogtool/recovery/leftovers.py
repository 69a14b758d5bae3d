"""Find and clear what aborted runs left: temporary files, and undo files of repairs that were never applied.

Undo files are only reported: they may be the last copy of something. A temporary file is removed before the next repair
if it has the name that this program gives, belongs to this user, has no other name, and no process holds its lock.
"""

from __future__ import annotations

import os
import re
import stat
from collections.abc import Iterator, Sequence

from binlogtool.errors import BinlogtoolError
from binlogtool.recovery import intent
from binlogtool.recovery.fileio import remove_file
from binlogtool.recovery.restore import ORIGINAL, RESULT, find_file_state
from binlogtool.recovery.system import READ, SystemCalls
from binlogtool.recovery.undofile import (
    FIXED_HEADER,
    MAGIC,
    PREPARED,
    STATE_OFFSET,
    UndoFile,
    parse_log_name,
    read_undo_file,
)

_OWN_NAME_PART = ".binlogtool-"
_TEMPORARY = re.compile(r"\.(.+)\.binlogtool-tmp-[0-9a-f]{12}", re.DOTALL)
_MAX_NAME_LENGTH = 150
"""Characters of a name that the name of a temporary file repeats."""


def describe_leftovers(system: SystemCalls, folder: str, names: Sequence[str]) -> list[str]:
    """Describe what aborted runs left in a directory for these files.

    Raises:
        OSError: the directory cannot be read.
    """
    own_names = [name for name in system.list_directory(folder) if _OWN_NAME_PART in name]
    if not own_names:
        return []
    log_names = set(names)
    text = "a temporary file of a run that broke off; --apply removes it"
    lines = [f"{path}: {text}" for path in _find_temporaries(system, folder, log_names)]
    for name in sorted(own_names):
        path = os.path.join(folder, name)
        if parse_log_name(name) in log_names and _is_prepared(system, path):
            lines.append(f"{path}: {_describe_undo_file(system, path)}")
    return lines


def remove_temporaries(system: SystemCalls, folder: str, names: Sequence[str]) -> list[str]:
    """Remove the temporary files that nobody can need; return a line for each.

    Raises:
        OSError: the directory cannot be read.
    """
    paths = list(_find_temporaries(system, folder, set(names)))
    return [f"{path}: removed: a temporary file of a run that broke off" for path in paths if remove_file(system, path)]


def _find_temporaries(system: SystemCalls, folder: str, names: set[str]) -> Iterator[str]:
    for name in sorted(name for name in system.list_directory(folder) if _OWN_NAME_PART in name):
        match = _TEMPORARY.fullmatch(name)
        path = os.path.join(folder, name)
        if match and _is_name_for(match[1], names) and _is_unused(system, path):
            yield path


def _is_name_for(name: str, names: set[str]) -> bool:
    """Return True for the name of one of the files, of an undo file of them, or of the intent file."""
    cut_short = len(name) == _MAX_NAME_LENGTH
    logs = {parse_log_name(name) or name}
    return (
        name == intent.INTENT_NAME
        or bool(logs & names)
        or (cut_short and any(_has_undo_prefix(name, one) for one in names))
    )


def _has_undo_prefix(name: str, log_file_name: str) -> bool:
    """Return True if the name is a prefix of the log's undo file names, or begins with their common prefix."""
    return f"{log_file_name}.binlogtool-undo-".startswith(name) or name.startswith(f"{log_file_name}.binlogtool-undo-")


def _is_unused(system: SystemCalls, path: str) -> bool:
    """Return True for a plain file of this user that no process has locked or open; its writer locks it while it
    works.
    """
    try:
        status = system.lstat(path)
        if not stat.S_ISREG(status.st_mode) or status.st_nlink != 1 or status.st_uid != system.get_user():
            return False
        fd = system.open(path, READ)
        try:
            return system.flock(fd) and not system.list_holders(status)
        finally:
            system.close(fd)
    except OSError:
        return False


def _is_prepared(system: SystemCalls, path: str) -> bool:
    """Return True for an undo file whose repair was never marked as applied; False for any other file."""
    try:
        fd = system.open(path, READ)
        try:
            head = system.pread(fd, FIXED_HEADER.size, 0)
        finally:
            system.close(fd)
    except OSError:
        return False
    return head.startswith(MAGIC) and head[STATE_OFFSET:].startswith(PREPARED.encode())


def _describe_undo_file(system: SystemCalls, path: str) -> str:
    try:
        states = _collect_states(system, read_undo_file(system, path))
    except (BinlogtoolError, OSError):
        return "an undo file that is not whole; it takes nothing back"
    if states == {ORIGINAL}:
        return "an undo file of a repair that broke off before it changed anything; it is not needed"
    if states == {RESULT}:
        return "an undo file of a repair that broke off when all was changed; it takes it back"
    return "an undo file of a repair that broke off; the files changed since, or are not all repaired"


def _collect_states(system: SystemCalls, undo: UndoFile) -> set[str]:
    return {find_file_state(system, entry) for entry in undo.entries}
