"""The samples that tests read, and which tests a run chooses: see the table of tiers in CONTRIBUTING.md."""

from __future__ import annotations

import os
import signal
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings

from tests.generated.packing import unpacked
from tests.sampling import EXHAUSTIVE

pytest_plugins = ("tests.parallel",)

settings.register_profile(  # the same examples in every run, new ones each night; no limits of time: cores are shared
    "repeatable", deadline=None, derandomize=not EXHAUSTIVE, suppress_health_check=[HealthCheck.too_slow]
)
settings.load_profile("repeatable")

if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:  # a run in the background, whose commands would inherit it
    signal.signal(signal.SIGINT, signal.default_int_handler)

ROOT = Path(__file__).resolve().parent.parent
os.environ.setdefault("SPARK_CONF_DIR", str(ROOT / "tests" / "spark_conf"))  # also of commands that a test starts
FULL_CORPUS = Path(os.environ.get("BINLOGTOOL_CORPUS", ROOT.parent / "shared" / "corpus"))
"""Beside the project, or where BINLOGTOOL_CORPUS says."""


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Skip what needs the full corpus where it is missing."""
    missing = pytest.mark.skip(reason="the full corpus is not beside this checkout")
    for item in items:
        if item.get_closest_marker("full_corpus") and not FULL_CORPUS.is_dir():
            item.add_marker(missing)


@pytest.fixture(scope="session")
def samples() -> Path:
    """The small real samples that ship with the project."""
    return ROOT / "tests" / "corpus"


@pytest.fixture(scope="session")
def corpus(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The whole corpus; without it, that part of it which the project made itself and brings along."""
    if FULL_CORPUS.is_dir():
        return FULL_CORPUS
    base = tmp_path_factory.getbasetemp()
    return unpacked((base.parent if "PYTEST_XDIST_WORKER" in os.environ else base) / "corpus")


@pytest.fixture(autouse=True)
def _tools_of_servers_leave_files_among_those_of_tests(request: pytest.FixtureRequest) -> None:
    """mariadb-binlog writes the file of each LOAD DATA to TMPDIR, and leaves it there."""
    if request.node.get_closest_marker("server") or request.node.get_closest_marker("nightly"):
        folder: Path = request.getfixturevalue("tmp_path_factory").getbasetemp() / "tools"
        folder.mkdir(exist_ok=True)
        request.getfixturevalue("monkeypatch").setenv("TMPDIR", str(folder))
