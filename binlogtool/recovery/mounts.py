"""Detect the type of the file system that a path is on, from the kernel's mount table.

On a network file system, locks and the processes of other machines cannot be seen, and a write is not always durable
when the call returns: a repair is refused there unless it is allowed explicitly.
"""

from __future__ import annotations

import os
import re

from binlogtool.errors import RefusedError
from binlogtool.recovery.system import SystemCalls

ALLOW_OPTION = "--allow-network-file-system"

NETWORK_TYPES = frozenset((
    "9p", "acfs", "afs", "auristorfs", "beegfs", "ceph", "cifs", "coda", "davfs", "dfs", "fhgfs", "gfs2",
    "glusterfs", "gpfs", "lustre", "mvfs", "ncpfs", "nfs", "nfs4", "ocfs2", "orangefs", "panfs", "prl_fs", "pvfs2",
    "shfs", "smb2", "smb3", "smbfs", "vboxsf", "virtiofs", "vmhgfs",
))  # fmt: skip
"""Types whose files other machines can change (shared disks and folders of a host included)."""

LOCAL_FUSE_TYPES = frozenset((
    "bindfs", "cryfs", "encfs", "exfat", "ext2", "fuse-overlayfs", "fuse2fs", "gocryptfs", "lxcfs", "mergerfs",
    "ntfs", "ntfs-3g", "securefs", "squashfuse", "unionfs", "unionfs-fuse", "zfs",
))  # fmt: skip
"""What is behind `fuse.`; every other program there may reach over the network."""

_ESCAPE = re.compile(r"\\([0-7]{3})")


def find_filesystem_type(table: str, path: str) -> str | None:
    """Return the file system type of an absolute path without links; None if the table has no entry for it.

    Args:
        table: Text of /proc/self/mountinfo (proc(5)). Of several mounts on one mount point, the last one counts.
    """
    best: tuple[int, str] | None = None
    for line in table.splitlines():
        left, mark, right = line.partition(" - ")
        fields, kinds = left.split(" "), right.split(" ")
        if not mark or len(fields) < 5 or not kinds[0]:
            continue
        mount_point = _ESCAPE.sub(lambda match: chr(int(match[1], 8)), fields[4])
        if _is_below(path, mount_point) and (best is None or len(mount_point) >= best[0]):
            best = (len(mount_point), kinds[0])
    return None if best is None else best[1]


def _is_below(path: str, mount_point: str) -> bool:
    return path == mount_point or path.startswith(mount_point if mount_point.endswith("/") else mount_point + "/")


def is_network(kind: str) -> bool:
    """Return True if other machines can change the files of a file system of this type."""
    main, _, program = kind.partition(".")
    if main == "fuse":
        return program not in LOCAL_FUSE_TYPES
    return main in NETWORK_TYPES


def refuse_network(system: SystemCalls, directories: list[str], allowed: bool) -> None:
    """Refuse to change files, or keep an undo file, on a network file system.

    Raises:
        RefusedError: one of the directories is on such a file system, and that was not allowed.
    """
    if allowed:
        return
    table = system.read_mount_table()
    for directory in dict.fromkeys(directories):
        kind = find_filesystem_type(table, os.path.realpath(directory))
        if kind is not None and is_network(kind):
            text = f"is on a network file system ({kind}): who else uses it cannot be seen"
            raise RefusedError(f"{directory}: {text}; {ALLOW_OPTION} repairs it nevertheless; nothing was changed")
