"""Check what an undo file or an intent would write: both may have come with a directory from elsewhere.

Their SHA-256 proves that they are complete, not who made them. So only regular log files in the expected directory are
written, and none is given set-user-ID bits or capabilities.
"""

from __future__ import annotations

import os
import stat

from binlogtool import formats
from binlogtool.errors import RefusedError, UnknownFormatError
from binlogtool.limits import MIB
from binlogtool.recovery.fileio import get_directory
from binlogtool.recovery.system import SystemCalls
from binlogtool.recovery.undofile import UndoEntry, UndoFile, parse_log_name, read_undo_file, refuse_foreign_owner

_UNCHANGED = "nothing was changed"
_PRIVILEGES = "security.capability"


def read_intended_undo(system: SystemCalls, undo_path: str, intent_path: str) -> UndoFile:
    """Read the undo file that an intent names; refuse one that names anything but log files in and below its
    directory.

    Args:
        intent_path: The path of the intent.

    Raises:
        RefusedError: nothing was changed. OSError.
    """
    directory = os.path.realpath(get_directory(intent_path))
    advice = f"if it came with a copied directory, remove {intent_path}; {_UNCHANGED}"
    owner = parse_log_name(undo_path)
    if owner is None:
        raise RefusedError(f"{intent_path}: {undo_path} is not named like an undo file; {advice}")
    refuse_foreign_owner(system, undo_path)
    try:
        undo = read_undo_file(system, undo_path)
    except UnknownFormatError as error:
        raise RefusedError(f"{intent_path}: {undo_path} is not an undo file; {advice}") from error
    if owner not in {os.path.basename(entry.path) for entry in undo.entries}:
        raise RefusedError(f"{intent_path}: {undo_path} is not named like an undo file of its files; {advice}")
    for entry in undo.entries:
        folder = get_directory(entry.path)
        if not _is_within(folder, directory) or os.path.realpath(folder) != folder:
            raise RefusedError(f"{intent_path}: names a file outside of its directory, {entry.path}; {advice}")
        if not _is_log_name(entry.path):
            raise RefusedError(f"{intent_path}: names a file that is not a log, {entry.path}; {advice}")
    _refuse_unsafe_entries(system, undo)
    return undo


def refuse_unsafe_undo(system: SystemCalls, undo: UndoFile) -> None:
    """Refuse an undo file that would write anything but the log beside it, or log files in another directory.

    Raises:
        RefusedError: nothing was changed. OSError.
    """
    undo_directory, owner = os.path.realpath(get_directory(undo.path)), parse_log_name(undo.path)
    for entry in undo.entries:
        folder, name = os.path.split(entry.path)
        if os.path.realpath(folder) not in (folder, undo_directory):
            raise RefusedError(f"{undo.path}: {folder} is reached by a symbolic link; {_UNCHANGED}")
        if not _is_log_name(entry.path) and (folder, name) != (undo_directory, owner):
            advice = f"move the undo file into {folder} if that is right"
            raise RefusedError(f"{undo.path}: {entry.path} is not named like a log; {advice}; {_UNCHANGED}")
    _refuse_unsafe_entries(system, undo)


def refuse_without_space(system: SystemCalls, sizes: dict[str, int]) -> None:
    """Refuse to start where the file system lacks the space. sizes: directory -> bytes to be written there.

    Raises:
        RefusedError: nothing was changed. OSError.
    """
    for folder, size in sizes.items():
        free = system.get_free_space(folder)
        if free < size + MIB:
            raise RefusedError(f"{folder}: {size + MIB:,} bytes are needed, {free:,} are free; {_UNCHANGED}")


def _is_within(folder: str, directory: str) -> bool:
    return os.path.commonpath((folder, directory)) == directory


def _is_log_name(path: str) -> bool:
    name = os.path.basename(path)
    return not name.startswith(".") and next(formats.find_by_file_name(name), None) is not None


def _refuse_unsafe_entries(system: SystemCalls, undo: UndoFile) -> None:
    for entry in undo.entries:
        if entry.mode & ~0o777 and not _has_mode_and_owner(system, entry):
            text = f"{entry.path} would get mode {entry.mode:o}, which it does not have now"
            raise RefusedError(f"{undo.path}: {text}; {_UNCHANGED}")
        if _PRIVILEGES in entry.attributes:
            raise RefusedError(f"{undo.path}: {entry.path} would get file capabilities; {_UNCHANGED}")


def _has_mode_and_owner(system: SystemCalls, entry: UndoEntry) -> bool:
    """Return True if the file already has this very mode and owner, so that nothing is gained by them."""
    try:
        status = system.lstat(entry.path)
    except OSError:
        return False
    return (stat.S_IMODE(status.st_mode), status.st_uid, status.st_gid) == (entry.mode, entry.uid, entry.gid)
