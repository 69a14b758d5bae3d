"""A disk for thousands of repairs of one run: what only a crash or another process could tell has tests of its own."""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from binlogtool.repair.system_calls import SystemCalls
from tests.recovery.cut_logs import Quick


@pytest.fixture
def folder(tmp_path: Path) -> Iterator[Path]:
    """A directory in memory where there is one."""
    memory = Path("/dev/shm")
    if not memory.is_dir() or not os.access(memory, os.W_OK):
        yield tmp_path
        return
    made = Path(tempfile.mkdtemp(dir=memory))
    yield made
    shutil.rmtree(made)


@pytest.fixture
def quick_folder(folder: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The same, where no repair waits for the disk or looks through the other processes (`Quick`)."""
    for name in ("fsync", "fsync_directory", "list_holders"):
        monkeypatch.setattr(SystemCalls, name, getattr(Quick, name))
    return folder
