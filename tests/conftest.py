"""The samples that tests read, and which tests a run chooses: see the table of tiers in CONTRIBUTING.md."""

from __future__ import annotations

import os
import signal
from pathlib import Path
from typing import cast

import pytest
from hypothesis import HealthCheck, settings

from tests.generated.packing import unpacked
from tests.sampling import EXHAUSTIVE, choose_cases

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


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Skip what needs the full corpus where it is missing; leave cases of long tests to the nightly run."""
    missing = pytest.mark.skip(reason="the full corpus is not beside this checkout")
    cases: dict[str, list[pytest.Function]] = {}
    for item in items:
        marks = {mark.name for mark in item.iter_markers()}
        if "full_corpus" in marks and not FULL_CORPUS.is_dir():
            item.add_marker(missing)
        if marks & {"full", "full_corpus", "server"} and "nightly" not in marks and hasattr(item, "callspec"):
            cases.setdefault(item.nodeid.partition("[")[0], []).append(cast(pytest.Function, item))
    left_out = set[pytest.Item]()
    for test, functions in cases.items():
        chosen = choose_cases(test, [function.callspec.params for function in functions])
        left_out.update(function for index, function in enumerate(functions) if index not in chosen)
    items[:] = [item for item in items if item not in left_out]
    config.hook.pytest_deselected(items=list(left_out))


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
