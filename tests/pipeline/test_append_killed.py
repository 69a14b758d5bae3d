"""`convert --append`, killed anywhere while logs grow, rotate and are purged: every record is there once."""

from __future__ import annotations

import os
import random
import signal
import sys
from pathlib import Path
from types import FrameType
from typing import Any

import pytest

from tests.pipeline.appending import Server, append, commit, expected, keys, sources

PLACES = 3.8
"""A run has some thousand lines of these files; a place is a power of ten up to this, as what is first is done once."""

NEVER = 1 << 60

TRACED = ("pipeline/append.py", "pipeline/commits.py", "writers/growing.py", "pipeline/growing.py")


def killed_at(place: int, log: Path, out: Path) -> bool:
    """Runs in a process that is killed at a line of the code that appends; was it? (It may have come to its end.)"""
    child = os.fork()
    if not child:
        left = place

        def line(frame: FrameType, event: str, _: Any) -> Any:
            nonlocal left
            if event == "call":
                return line if frame.f_code.co_filename.endswith(TRACED) else None
            left -= 1
            if left <= 0:
                os.kill(os.getpid(), signal.SIGKILL)
            return line

        sys.settrace(line)
        try:
            append(log, out)
        except BaseException:
            os._exit(1)
        os._exit(0)
    status = os.waitpid(child, 0)[1]
    assert os.WIFSIGNALED(status) or os.WEXITSTATUS(status) == 0
    return os.WIFSIGNALED(status)


@pytest.mark.parametrize(
    ("kind", "tries"),
    [
        ("tarantool", 6),
        pytest.param("tarantool", 120, marks=pytest.mark.nightly),
        pytest.param("mariadb", 120, marks=pytest.mark.nightly),
    ],
)
def test_every_record_is_there_once_whatever_is_killed(kind: str, tries: int, samples: Path, tmp_path: Path) -> None:
    log, out, chance = tmp_path / "log", tmp_path / "out", random.Random(f"{kind} {tries}")
    files = sources(kind, samples)[:3]
    server, killed, commits = Server(log, files, chance, pieces=max(2, tries // 6)), 0, set[int]()
    for _ in range(tries):
        if server and chance.random() < 0.8:
            server.write()
        before = keys(kind, out)
        if any(log.iterdir()):
            killed += killed_at(chance.choice([NEVER, int(10 ** chance.uniform(0, PLACES))]), log, out)
        assert keys(kind, out)[: len(before)] == before
        commits.add(commit(out).get("number", 0))
        server.purge(out)
    while server:
        server.write()
    assert append(log, out, final=True).exit_code == 0
    assert killed >= tries // 6 and len(commits) > 1
    assert keys(kind, out) == [key for file in files for key in expected(kind, file)]
    listed = {one["path"] for one in commit(out)["outputs"]}
    assert {path.name for path in out.iterdir()} == {"_binlogtool", *listed}
