"""Who has a file open or mapped is seen by a user who is not root as well."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from binlogtool.core.open_file_holders import find_holders

SPHINX = Path(__file__).parent.parent / "corpus/manticore/sphinx-mixed"
LIKE_A_USER = """
import ctypes, mmap, os, sys
from binlogtool.core.open_file_holders import find_holders
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
        holder.communicate(timeout=120)
    assert _seen_by_a_user(path) == "[]"


def _seen_by_a_user(path: Path) -> str:
    code = LIKE_A_USER.format(mapped=False) + "print(list(find_holders(status)))"
    return subprocess.check_output([sys.executable, "-c", code, path], text=True, timeout=120).strip()


@pytest.mark.parametrize(
    ("mode", "mapping", "writes"),
    [("rb", None, False), ("r+b", None, True), ("rb", "ACCESS_READ", False), ("r+b", "ACCESS_COPY", True)],
)
def test_a_process_that_only_reads_a_file_is_no_writer(
    tmp_path: Path, mode: str, mapping: str | None, writes: bool
) -> None:
    path = tmp_path / "log"
    path.write_bytes(bytes(4096))
    code = f"import mmap, sys\nfile = open(sys.argv[1], {mode!r})\n"
    if mapping is not None:
        code += f"mapping = mmap.mmap(file.fileno(), 0, access=mmap.{mapping})\n"
    holder = subprocess.Popen(
        [sys.executable, "-c", code + "print('ready', flush=True)\nsys.stdin.read()", path],
        stdin=subprocess.PIPE, stdout=subprocess.PIPE,
    )  # fmt: skip
    assert holder.stdout is not None
    assert holder.stdout.readline() == b"ready\n"
    try:
        assert len(list(find_holders(os.stat(path)))) == 1
        assert len(list(find_holders(os.stat(path), writers_only=True))) == writes
    finally:
        holder.communicate(timeout=120)


def test_a_diagnosis_beside_a_reader_is_that_of_a_stopped_server(tmp_path: Path) -> None:
    for name in ("binlog.001", "binlog.meta"):
        shutil.copy(SPHINX / name, tmp_path)
    with (tmp_path / "binlog.001").open("rb"):
        code = f"import binlogtool\nprint([one.holder for one in binlogtool.diagnose([{str(tmp_path)!r}]).logs])"
        found = subprocess.check_output([sys.executable, "-c", code], text=True, timeout=60)
    assert found == "[None]\n"
    with (tmp_path / "binlog.001").open("r+b"):
        found = subprocess.check_output([sys.executable, "-c", code], text=True, timeout=60)
    assert f"(process {os.getpid()})" in found


@pytest.mark.full
def test_a_torn_end_of_an_older_file_stops_no_server_that_writes_the_newest(corpus: Path, tmp_path: Path) -> None:
    """Sphinx 2.2 started on this directory; a torn end is no finding while a server writes."""
    folder = shutil.copytree(corpus / "sphinx/generated/damaged/cache-torn", tmp_path / "log")
    code = f"import binlogtool\nprint([one.start for one in binlogtool.diagnose([{str(folder)!r}]).logs])"
    os.chmod(folder / "binlog.004", 0o600)
    with (folder / "binlog.004").open("r+b"):
        assert subprocess.check_output([sys.executable, "-c", code], text=True, timeout=60) == "['yes']\n"
