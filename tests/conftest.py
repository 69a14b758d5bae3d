"""Where the samples are."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from hypothesis import settings

settings.register_profile("unhurried", deadline=None)  # a first call may compile, and other workers take their share
settings.load_profile("unhurried")

ROOT = Path(__file__).resolve().parent.parent


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """One Spark is enough: a parallel run gives all its tests to one worker, and those with a server to one."""
    for item in items:
        if item.get_closest_marker("server"):
            item.add_marker(pytest.mark.xdist_group("server"))
        if item.get_closest_marker("spark") or "spark_session" in getattr(item, "fixturenames", ()):
            item.add_marker(pytest.mark.xdist_group("spark"))


@pytest.fixture(scope="session")
def corpus() -> Path:
    """The full corpus beside the project (or where BINLOGTOOL_CORPUS says); its tests are skipped only without it."""
    root = Path(os.environ.get("BINLOGTOOL_CORPUS", ROOT.parent / "shared" / "corpus"))
    if not root.is_dir():
        pytest.skip("the full corpus is not beside this checkout")
    return root


@pytest.fixture(scope="session")
def samples() -> Path:
    """The small real samples that ship with the project."""
    return ROOT / "tests" / "corpus"
