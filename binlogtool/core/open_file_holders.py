"""Find the processes that have a file, or files of a directory, open."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from contextlib import suppress


def find_holders(status: os.stat_result, *, writers_only: bool = False) -> Iterator[str]:
    """Yield the names of other processes that have this file open or mapped, as far as this user can see them.

    Args:
        writers_only: Leave out processes that can only read it, such as a backup.
    """
    for process in _list_processes():
        with suppress(OSError):  # the process ended, or belongs to another user
            if _has_open(process, status, writers_only) or _has_mapped(process, status, writers_only):
                yield _describe_process(process)


def find_processes_writing_directory(directory: str) -> Iterator[str]:
    """Yield the names of other processes that have a file in this directory open for writing, as `find_holders`."""
    prefix = os.path.realpath(directory) + os.sep
    for process in _list_processes():
        folder = f"/proc/{process}/fd"
        with suppress(OSError):
            if any(
                os.path.dirname(os.readlink(f"{folder}/{name}")) + os.sep == prefix and not _is_read_only(process, name)
                for name in os.listdir(folder)
            ):
                yield _describe_process(process)


def _list_processes() -> list[str]:
    """Return the ids of the other processes; none on a system without /proc."""
    try:
        return [name for name in os.listdir("/proc") if name.isdigit() and int(name) != os.getpid()]
    except OSError:
        return []


def _has_open(process: str, status: os.stat_result, for_writing: bool) -> bool:
    folder = f"/proc/{process}/fd"
    return any(
        _is_same_file(f"{folder}/{name}", status) and not (for_writing and _is_read_only(process, name))
        for name in os.listdir(folder)
    )


def _is_read_only(process: str, descriptor: str) -> bool:
    """Return True if the process opened this descriptor only for reading (proc(5), fdinfo)."""
    with open(f"/proc/{process}/fdinfo/{descriptor}", "rb") as file:
        found = re.search(rb"^flags:\s*([0-7]+)", file.read(), re.MULTILINE)
    return found is not None and int(found[1], 8) & os.O_ACCMODE == os.O_RDONLY


def _has_mapped(process: str, status: os.stat_result, for_writing: bool) -> bool:
    """Return True if the process has the file mapped; with `for_writing`, only mappings that can change the file count.

    The maps file lists the inodes of all mappings; the entries of map_files are readable by root only. Its device
    numbers are those of the underlying file system, which differ from those of `stat` on btrfs and overlays: there the
    path is compared.
    """
    device, inode = status.st_dev, status.st_ino
    with open(f"/proc/{process}/maps", "rb") as file:
        text = file.read()
    if b" %d " % inode not in text:
        return False
    permissions = rb".w.s" if for_writing else rb"\S+"
    lines = re.findall(rb"^\S+ %s \S+ (\S+) %d +(.*)$" % (permissions, inode), text, re.MULTILINE)
    device_text = b"%02x:%02x" % (os.major(device), os.minor(device))
    root = os.fsencode(f"/proc/{process}/root")
    return any(name == device_text or _is_same_file(root + path, status) for name, path in lines)


def _is_same_file(path: str | bytes, status: os.stat_result) -> bool:
    try:
        found = os.stat(path)
    except OSError:
        return False
    return (found.st_dev, found.st_ino) == (status.st_dev, status.st_ino)


def _describe_process(process: str) -> str:
    try:
        with open(f"/proc/{process}/comm", "rb") as file:
            return f"{file.read(64).decode('utf-8', 'replace').strip()} (process {process})"
    except OSError:
        return f"process {process}"
