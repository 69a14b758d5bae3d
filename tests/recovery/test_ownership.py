"""Files of a log that its server, the owner of the directory, cannot open."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import pytest

import binlogtool
from binlogtool.report.diagnosis_and_replay import describe_whether_server_starts
from tests.formats.mysql_binlog.starts import LOGS

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="only root can give files away")


def words(folder: Path) -> str:
    (one,) = binlogtool.diagnose([folder]).logs
    assert one.is_healthy
    return describe_whether_server_starts(one)


@pytest.mark.parametrize(
    ("file_owner", "mode", "told"),
    [(4711, 0o660, False), (0, 0o640, True), (0, 0o644, True), (0, 0o666, False), (4711, 0o440, True)],
)
def test_a_log_that_the_owner_of_the_directory_cannot_open_is_told(
    tmp_path: Path, file_owner: int, mode: int, told: bool
) -> None:
    """MariaDB 10.11 as that user: `File './bin.000003' not found (Errcode: 13 "Permission denied")`."""
    folder = Path(shutil.copytree(LOGS / "mariadb-10.11/closed", tmp_path / "log"))
    for path in folder.iterdir():
        os.chown(path, 4711, 4711)
        path.chmod(0o660)
    os.chown(folder, 4711, 4711)
    os.chown(folder / "bin.000003", file_owner, file_owner)
    (folder / "bin.000003").chmod(mode)
    said = words(folder)
    assert said.startswith("yes")
    assert ("not checked: a server that runs as the owner of the directory (uid 4711)" in said) is told
