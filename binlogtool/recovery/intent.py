"""The mark that a repair of several files is under way: names its undo file until all of them are changed."""

from __future__ import annotations

import json
import os
from contextlib import suppress

from binlogtool.recovery.fileio import Temporary, directory_of
from binlogtool.recovery.system import READ, System

NAME = ".binlogtool-intent"
MAX_SIZE = 1 << 16


def path_for(log: str) -> str:
    """Where the intent of a repair stands: in the directory of its first file."""
    return os.path.join(directory_of(log), NAME)


def write(system: System, path: str, undo: str, direction: str) -> None:
    """Publishes an intent, durably. direction: apply or undo.

    Raises:
        OSError: FileExistsError, if there is one.
    """
    with Temporary(system, path) as file:
        file.append([json.dumps({"undo": undo, "direction": direction}).encode()])
        file.publish(replace=False)


def read(system: System, path: str) -> tuple[str, str] | None:
    """The undo file and the direction of an intent; None if there is none.

    Raises:
        OSError, ValueError.
    """
    try:
        fd = system.open(path, READ)
    except FileNotFoundError:
        return None
    try:
        value = json.loads(system.pread(fd, MAX_SIZE, 0))
        return str(value["undo"]), str(value["direction"])
    finally:
        with suppress(OSError):
            system.close(fd)


def remove(system: System, path: str) -> None:
    """All files are changed.

    Raises:
        OSError.
    """
    system.unlink(path)
    system.fsync_directory(directory_of(path))
