"""Find the processes that have a file open or mapped, in `/proc` (proc(5)); not every server takes a lock."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from contextlib import suppress


def find_holders(status: os.stat_result) -> Iterator[str]:
    """Yield the names of other processes that have this file open or mapped, as far as this user can see them."""
    try:
        processes = [name for name in os.listdir("/proc") if name.isdigit() and int(name) != os.getpid()]
    except OSError:
        return  # no /proc on this system: only the locks protect
    device, inode = status.st_dev, status.st_ino
    for process in processes:
        with suppress(OSError):  # it ended, or belongs to somebody else
            if _has_open(process, device, inode) or _has_mapped(process, device, inode):
                yield _describe_process(process)


def _has_open(process: str, device: int, inode: int) -> bool:
    folder = f"/proc/{process}/fd"
    return any(_is_same_file(f"{folder}/{name}", device, inode) for name in os.listdir(folder))


def _has_mapped(process: str, device: int, inode: int) -> bool:
    """Return True if the process maps the file.

    The maps file lists the inodes of all mappings; the entries of map_files are readable by root only. Its device
    numbers are those of the underlying file system, not what `stat` returns on btrfs or an overlay: there the path is
    compared.
    """
    with open(f"/proc/{process}/maps", "rb") as file:
        text = file.read()
    if b" %d " % inode not in text:
        return False
    lines = re.findall(rb"^\S+ \S+ \S+ (\S+) %d +(.*)$" % inode, text, re.MULTILINE)
    device_text = b"%02x:%02x" % (os.major(device), os.minor(device))
    root = os.fsencode(f"/proc/{process}/root")
    return any(name == device_text or _is_same_file(root + path, device, inode) for name, path in lines)


def _is_same_file(path: str | bytes, device: int, inode: int) -> bool:
    try:
        status = os.stat(path)
    except OSError:
        return False
    return (status.st_dev, status.st_ino) == (device, inode)


def _describe_process(process: str) -> str:
    try:
        with open(f"/proc/{process}/comm", "rb") as file:
            return f"{file.read(64).decode('utf-8', 'replace').strip()} (process {process})"
    except OSError:
        return f"process {process}"
