"""Sparse files: what is a hole takes no reading, however long it is."""

from __future__ import annotations

import hashlib
import os
from pathlib import Path

import pytest

import binlogtool
from binlogtool.repair.system_calls import SystemCalls, read_chunks
from tests.cli.samples import plain_log

GIB = 1 << 30


@pytest.fixture
def sparse(tmp_path: Path) -> Path:
    """A log and two GiB of hole."""
    path = tmp_path / "transaction.log"
    path.write_bytes(plain_log())
    os.truncate(path, 2 * GIB)
    with path.open("rb") as file:
        if os.lseek(file.fileno(), 1 << 20, os.SEEK_HOLE) != 1 << 20:
            pytest.skip("this file system has no holes")
    return path


@pytest.mark.full
def test_a_plan_does_not_read_a_hole_at_the_end(sparse: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[int] = []
    reading, vector = os.pread, os.preadv
    monkeypatch.setattr(os, "pread", lambda fd, size, at: asked.append(size) or reading(fd, size, at))
    monkeypatch.setattr(os, "preadv", lambda fd, views, at: asked.append(len(views[0])) or vector(fd, views, at))
    plan = binlogtool.plan_truncate(sparse)
    assert sum(asked) < 1 << 28
    (file,) = plan.files
    assert (file.cut_bytes, plan.refused) == (2 * GIB - len(plain_log()), False)
    assert file.sha256_kept == hashlib.sha256(plain_log()).hexdigest()


def test_bytes_around_holes_are_what_they_are(tmp_path: Path) -> None:
    """Holes at the start, in the middle and at the end; borders that are none of a block."""
    path, size = tmp_path / "x", (5 << 20) + 77
    with path.open("wb") as file:
        for at in (2 << 20, (3 << 20) + 4099):
            file.seek(at)
            file.write(b"data" * 100)
        file.truncate(size)
    fd = os.open(path, os.O_RDONLY)
    for start, end in ((0, size), (1, size - 1), (2 << 20, (2 << 20) + 400), ((2 << 20) + 399, 4 << 20)):
        assert b"".join(read_chunks(SystemCalls(), fd, start, end)) == path.read_bytes()[start:end]
    with pytest.raises(OSError, match="shorter"):
        list(read_chunks(SystemCalls(), fd, 0, size + 1))
    os.close(fd)
