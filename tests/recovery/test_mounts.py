"""Network file systems: recognised by the kernel's table of mounts, and refused unless they are asked for."""

from __future__ import annotations

import copy

import pytest

from binlogtool.errors import RefusedError
from binlogtool.repair.system_calls import find_filesystem_type, is_network_filesystem_type
from binlogtool.repair.undo_repair import apply_undo
from tests.crash.disk import Disk
from tests.crash.runs import Case

# As printed by Linux: proc(5) names the members; paths have blanks as \040.
TABLE = r"""22 1 8:2 / / rw,relatime shared:1 - ext4 /dev/sda2 rw,errors=remount-ro
30 22 0:26 / /proc rw,nosuid - proc proc rw
41 22 0:35 / /var/lib/db rw,relatime shared:9 master:2 - nfs4 files.example.org:/export rw,vers=4.2,addr=10.0.0.2
42 41 8:17 / /var/lib/db/local rw - xfs /dev/sdb1 rw
43 22 0:36 / /mnt/with\040blank rw - cifs //server/share rw,vers=3.0
44 22 0:37 / /mnt/user rw,nosuid shared:12 - fuse.sshfs me@host: rw,user_id=1000
45 22 0:38 / /mnt/ntfs rw - fuseblk /dev/sdc1 rw
46 22 8:33 / /mnt/twice rw - ext4 /dev/sdd1 rw
47 46 0:39 / /mnt/twice rw - 9p share rw,trans=virtio
48 22 0:40 /sub /mnt/bound rw - btrfs /dev/sde1 rw,subvol=/sub
"""


@pytest.mark.parametrize(
    ("path", "kind", "network"),
    [
        ("/", "ext4", False),
        ("/var/lib", "ext4", False),
        ("/var/lib/db", "nfs4", True),
        ("/var/lib/db/logs", "nfs4", True),
        ("/var/lib/dbx", "ext4", False),
        ("/var/lib/db/local", "xfs", False),
        ("/var/lib/db/local/deep/er", "xfs", False),
        ("/mnt/with blank/log", "cifs", True),
        ("/mnt/with", "ext4", False),
        ("/mnt/user", "fuse.sshfs", True),
        ("/mnt/ntfs/log", "fuseblk", False),
        ("/mnt/twice", "9p", True),
        ("/mnt/bound/x", "btrfs", False),
    ],
)
def test_the_last_mount_that_a_path_is_below_says_its_type(path: str, kind: str, network: bool) -> None:
    assert find_filesystem_type(TABLE, path) == kind
    assert is_network_filesystem_type(kind) == network


@pytest.mark.parametrize("table", ["", "\n\n", "garbage", "1 2 3 / / rw", "1 2 3 / / rw - ", "1 2 - ext4 x rw", " - "])
def test_a_table_that_says_nothing_gives_no_type(table: str) -> None:
    assert find_filesystem_type(table, "/var/lib") is None


@pytest.mark.parametrize(
    ("kind", "network"),
    [("nfs", True), ("nfs4", True), ("cifs", True), ("smb3", True), ("9p", True), ("virtiofs", True), ("ceph", True),
     ("lustre", True), ("glusterfs", True), ("fuse", True), ("fuse.glusterfs", True), ("fuse.s3fs", True),
     ("fuse.unknown-program", True), ("fuse.ntfs-3g", False), ("fuseblk", False), ("fusectl", False), ("ext4", False),
     ("xfs", False), ("btrfs", False), ("zfs", False), ("tmpfs", False), ("overlay", False)],
)  # fmt: skip
def test_types_that_other_machines_can_change(kind: str, network: bool) -> None:
    assert is_network_filesystem_type(kind) == network


def remote(disk: Disk) -> Disk:
    disk = copy.deepcopy(disk)
    disk.table = "1 0 0:1 / / rw - ext4 a rw\n2 1 0:2 / /disk rw - nfs4 server:/ rw\n"
    return disk


def test_a_repair_there_is_refused_unless_it_is_asked_for() -> None:
    case = Case("several")
    disk = remote(case.disk)
    with pytest.raises(RefusedError, match=r"/disk: is on a network file system \(nfs4\).*--allow-network-file-system"):
        case.apply(disk)
    assert (disk.list_directory("/disk"), set(case.states(disk))) == (case.disk.list_directory("/disk"), {"before"})
    case.apply(disk, allow_network=True)
    assert set(case.states(disk)) == {"after"}


def test_an_undo_there_is_refused_unless_it_is_asked_for() -> None:
    case = Case("cut")
    repaired = copy.deepcopy(case.disk)
    undo = case.apply(repaired)
    disk = remote(repaired)
    with pytest.raises(RefusedError, match="network file system"):
        apply_undo(undo, system=disk)  # type: ignore[arg-type]
    assert set(case.states(disk)) == {"after"}
    apply_undo(undo, allow_network=True, system=disk)  # type: ignore[arg-type]
    assert set(case.states(disk)) == {"before"}


def test_undo_files_are_not_kept_there() -> None:
    case = Case("cut")
    disk = copy.deepcopy(case.disk)
    disk.table = "1 0 0:1 / / rw - ext4 a rw\n2 1 0:2 / /backup rw - cifs //server/share rw\n"
    with pytest.raises(RefusedError, match="/backup: is on a network file system"):
        case.apply(disk, undo_dir="/backup")
