"""The intent file: marks a repair of several files as under way, and names its undo file, until all are changed."""

from __future__ import annotations

import json
import os
from contextlib import suppress

from binlogtool.errors import RefusedError
from binlogtool.recovery.fileio import TemporaryFile, get_directory
from binlogtool.recovery.system import READ, SystemCalls

INTENT_NAME = ".binlogtool-intent"
MAX_INTENT_SIZE = 1 << 16


def find_intent_path(*logs: str) -> str:
    """Return the path of the intent of a repair: in the directory that all of its files are in or below."""
    return os.path.join(os.path.commonpath([get_directory(log) for log in logs]), INTENT_NAME)


def write_intent(system: SystemCalls, path: str, undo_path: str, direction: str, *, replace: bool = False) -> None:
    """Publish an intent, durably.

    Args:
        direction: apply or undo.
        replace: Overwrite the intent that is there.

    Raises:
        OSError: FileExistsError, if there is one that may not be replaced.
    """
    with TemporaryFile(system, path) as file:
        file.append([json.dumps({"undo": undo_path, "direction": direction}).encode()])
        file.publish(replace=replace)


def read_intent(system: SystemCalls, path: str) -> tuple[str, str] | None:
    """Return the undo file and the direction of an intent; None if there is no intent.

    Raises:
        RefusedError: it is damaged. OSError.
    """
    try:
        fd = system.open(path, READ)
    except FileNotFoundError:
        return None
    try:
        value = json.loads(system.pread(fd, MAX_INTENT_SIZE, 0))
        undo_path, direction = value["undo"], value["direction"]
        os.fsencode(undo_path)
        if direction not in ("apply", "undo") or not os.path.isabs(undo_path) or "\0" in undo_path:
            raise ValueError("not an intent")
        return undo_path, direction
    except (ValueError, KeyError, TypeError, RecursionError) as error:
        raise RefusedError(
            f"{path}: is damaged; see the undo file beside it, then remove it; nothing was changed"
        ) from error
    finally:
        with suppress(OSError):
            system.close(fd)


def remove_intent(system: SystemCalls, path: str) -> None:
    """Remove an intent once all files are changed.

    Raises:
        OSError.
    """
    system.unlink(path)
    system.fsync_directory(get_directory(path))
