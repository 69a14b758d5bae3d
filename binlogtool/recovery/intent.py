"""The intent file: marks a repair of several files as under way, and names its undo file, until all are changed."""

from __future__ import annotations

import json
import os
from contextlib import suppress

from binlogtool.errors import RefusedError
from binlogtool.recovery.fileio import Temporary, directory_of
from binlogtool.recovery.system import READ, System

NAME = ".binlogtool-intent"
MAX_SIZE = 1 << 16


def path_for(*logs: str) -> str:
    """Return the path of the intent of a repair: in the directory that all of its files are in or below."""
    return os.path.join(os.path.commonpath([directory_of(log) for log in logs]), NAME)


def write(system: System, path: str, undo: str, direction: str, *, replace: bool = False) -> None:
    """Publish an intent, durably.

    Args:
        direction: apply or undo.
        replace: Overwrite the intent that is there.

    Raises:
        OSError: FileExistsError, if there is one that may not be replaced.
    """
    with Temporary(system, path) as file:
        file.append([json.dumps({"undo": undo, "direction": direction}).encode()])
        file.publish(replace=replace)


def read(system: System, path: str) -> tuple[str, str] | None:
    """Return the undo file and the direction of an intent; None if there is no intent.

    Raises:
        RefusedError: it is damaged. OSError.
    """
    try:
        fd = system.open(path, READ)
    except FileNotFoundError:
        return None
    try:
        value = json.loads(system.pread(fd, MAX_SIZE, 0))
        undo, direction = value["undo"], value["direction"]
        os.fsencode(undo)
        if direction not in ("apply", "undo") or not os.path.isabs(undo) or "\0" in undo:
            raise ValueError("not an intent")
        return undo, direction
    except (ValueError, KeyError, TypeError, RecursionError) as error:
        raise RefusedError(
            f"{path}: is damaged; see the undo file beside it, then remove it; nothing was changed"
        ) from error
    finally:
        with suppress(OSError):
            system.close(fd)


def remove(system: System, path: str) -> None:
    """Remove an intent once all files are changed.

    Raises:
        OSError.
    """
    system.unlink(path)
    system.fsync_directory(directory_of(path))
