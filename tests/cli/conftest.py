"""Logs to work on."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.cli.samples import damaged_log, plain_log


@pytest.fixture
def plain(tmp_path: Path) -> Path:
    """Three intact records."""
    path = tmp_path / "plain.log"
    path.write_bytes(plain_log())
    return path


@pytest.fixture
def damaged(tmp_path: Path) -> Path:
    """Five records, the second one damaged."""
    path = tmp_path / "damaged.log"
    path.write_bytes(damaged_log())
    return path


@pytest.fixture
def torn(tmp_path: Path) -> Path:
    """Two records and the beginning of a third."""
    path = tmp_path / "torn.log"
    path.write_bytes(plain_log()[:-10])
    return path
