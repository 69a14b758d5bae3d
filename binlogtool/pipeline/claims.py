"""Lock files for temporary outputs: a later run recognises and removes what a killed run left.

Each temporary output has a lock file beside it that its writer keeps locked. Only an output whose lock file names this
program, machine and user, and which no process holds locked, is removed. Other files with such names are reported and
kept.
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import re
import shutil
import socket
import stat
import tempfile
from collections.abc import Iterator
from pathlib import Path

SCHEMA = "binlogtool/stage/1"
_MAX_LOCK_FILE_BYTES = 4096
_PREFIX = "binlogtool-"
_WORK_FOLDER_NAME = re.compile(rf"{_PREFIX}[a-z0-9_]{{8}}")


def _lock_path(stage: Path) -> Path:
    return stage.with_name(f".{stage.name}.binlogtool")


@contextlib.contextmanager
def hold_lock_file(stage: Path) -> Iterator[None]:
    """Keep the lock file of `stage` for the duration of a block.

    Raises:
        OSError: it cannot be created.
    """
    path = _lock_path(stage)
    handle = os.open(path, os.O_CREAT | os.O_EXCL | os.O_RDWR | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
    try:
        with contextlib.suppress(OSError):  # not every file system has locks
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        os.write(handle, json.dumps({"schema": SCHEMA, "stage": stage.name, "host": socket.gethostname()}).encode())
        yield
    finally:
        path.unlink(missing_ok=True)
        os.close(handle)


def remove_dead_stages(output: Path) -> list[str]:
    """Remove what killed runs left of this output; return messages about what was removed and what was kept."""
    messages = []
    names = re.compile(rf"{re.escape(output.name)}\.(tmp|old)-[0-9a-f]{{8}}")
    try:
        present = set(os.listdir(output.parent))
    except OSError:
        return []
    for name in sorted(filter(names.fullmatch, present)):
        path = output.with_name(name)
        if f"{output.name}.old-" in name:
            messages.append(f"{path}: the output that a run was about to replace when it broke off; kept")
        elif _is_dead(path) and _try_remove(path):
            messages.append(f"{path}: removed: left by a conversion that broke off")
        else:
            messages.append(f"{path}: kept: another conversion writes it, or it is not provably ours")
    return [*messages, *_remove_orphaned_locks(output, names, present)]


def _remove_orphaned_locks(output: Path, names: re.Pattern[str], present: set[str]) -> Iterator[str]:
    """Remove lock files of dead runs that ended before they created their output."""
    for lock_name in sorted(present):
        name = lock_name[1:].removesuffix(".binlogtool")
        if (
            not names.fullmatch(name)
            or name in present
            or lock_name != _lock_path(stage := output.with_name(name)).name
        ):
            continue
        with contextlib.suppress(OSError):
            if _is_unlocked(stage):
                _lock_path(stage).unlink()
                yield f"{_lock_path(stage)}: removed: left by a conversion that broke off"


@contextlib.contextmanager
def create_work_folder() -> Iterator[Path]:
    """Create a temporary directory for the duration of a block; first remove those of killed runs."""
    temp_root = Path(tempfile.gettempdir())
    with contextlib.suppress(OSError):
        for name in os.listdir(temp_root):
            if _WORK_FOLDER_NAME.fullmatch(name) and _is_dead(temp_root / name):
                _try_remove(temp_root / name)
    folder = Path(tempfile.mkdtemp(prefix=_PREFIX))
    try:
        with hold_lock_file(folder):
            yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _is_dead(stage: Path) -> bool:
    """Return True if this program made it, for this user, on this machine, and its writer is gone."""
    try:
        return _is_own_file(os.lstat(stage)) and _is_unlocked(stage)
    except OSError:
        return False


def _is_unlocked(stage: Path) -> bool:
    """Return True if its lock file is from this program, user and machine, and no process holds it locked."""
    try:
        handle = os.open(_lock_path(stage), os.O_RDWR | os.O_NOFOLLOW | os.O_CLOEXEC)
    except OSError:
        return False
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        content = json.loads(os.read(handle, _MAX_LOCK_FILE_BYTES))
        expected = {"schema": SCHEMA, "stage": stage.name, "host": socket.gethostname()}
        return content == expected and _is_own_file(os.fstat(handle))
    except (OSError, ValueError):
        return False
    finally:
        os.close(handle)


def _is_own_file(status: os.stat_result) -> bool:
    has_single_link = stat.S_ISDIR(status.st_mode) or (stat.S_ISREG(status.st_mode) and status.st_nlink == 1)
    return has_single_link and status.st_uid == os.geteuid()


def _try_remove(stage: Path) -> bool:
    try:
        shutil.rmtree(stage) if stage.is_dir() else stage.unlink()
        _lock_path(stage).unlink()
    except OSError:
        return False
    return True
