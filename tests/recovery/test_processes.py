"""Who has a file open or mapped is seen by a user who is not root as well."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from binlogtool.repair.file_io import find_holders

LIKE_A_USER = """
import ctypes, mmap, os, sys
from binlogtool.repair.file_io import find_holders
path = sys.argv[1]
status = os.stat(path)
if {mapped}:
    with open(path, "rb") as file:
        mapping = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
if os.geteuid() == 0:
    os.setgroups([]), os.setgid(65534), os.setuid(65534)
    ctypes.CDLL(None).prctl(4, 1)  # PR_SET_DUMPABLE: else /proc belongs to root behind a change of the user
"""


def test_a_file_that_is_only_mapped_is_held(tmp_path: Path) -> None:
    path = tmp_path / "log"
    path.write_bytes(bytes(4096))
    code = LIKE_A_USER.format(mapped=True) + "print('ready', flush=True)\nsys.stdin.read()"
    holder = subprocess.Popen([sys.executable, "-c", code, path], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    assert holder.stdout is not None
    assert holder.stdout.readline() == b"ready\n"
    try:
        assert _seen_by_a_user(path).endswith(f"(process {holder.pid})']")
        assert len(list(find_holders(os.stat(path)))) == 1
    finally:
        holder.communicate(timeout=20)
    assert _seen_by_a_user(path) == "[]"


def _seen_by_a_user(path: Path) -> str:
    code = LIKE_A_USER.format(mapped=False) + "print(list(find_holders(status)))"
    return subprocess.check_output([sys.executable, "-c", code, path], text=True, timeout=20).strip()
