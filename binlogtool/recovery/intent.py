"""The mark that a repair of several files is under way: names its undo file until all of them are changed."""

from __future__ import annotations

import json
import os
from contextlib import suppress

from binlogtool.errors import RefusedError
from binlogtool.recovery.fileio import Temporary, directory_of
from binlogtool.recovery.system import READ, System

NAME = ".binlogtool-intent"
MAX_SIZE = 1 << 16


def path_for(log: str) -> str:
    """Where the intent of a repair stands: in the directory of its first file."""
    return os.path.join(directory_of(log), NAME)


def write(system: System, path: str, undo: str, direction: str, *, replace: bool = False) -> None:
    """Publishes an intent, durably. direction: apply or undo. replace: in place of the one that is there.

    Raises:
        OSError: FileExistsError, if there is one that may not be replaced.
    """
    with Temporary(system, path) as file:
        file.append([json.dumps({"undo": undo, "direction": direction}).encode()])
        file.publish(replace=replace)


def read(system: System, path: str) -> tuple[str, str] | None:
    """The undo file and the direction of an intent; None if there is none.

    Raises:
        RefusedError: it is damaged. OSError.
    """
    try:
        fd = system.open(path, READ)
    except FileNotFoundError:
        return None
    try:
        value = json.loads(system.pread(fd, MAX_SIZE, 0))
        return str(value["undo"]), str(value["direction"])
    except (ValueError, KeyError, TypeError, RecursionError) as error:
        raise RefusedError(f"{path}: is damaged; see what the undo file beside it says; nothing was changed") from error
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
