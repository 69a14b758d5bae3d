"""Where the samples are."""

from __future__ import annotations

import gc
import os
import warnings
from contextlib import suppress
from importlib import import_module
from pathlib import Path
from subprocess import Popen

import pytest
from hypothesis import settings

from tests.generated.packing import unpacked
from tests.pipeline.kept_java import PATIENCE_S, begin

settings.register_profile("unhurried", deadline=None)  # a first call may compile, and other workers take their share
settings.load_profile("unhurried")

ROOT = Path(__file__).resolve().parent.parent
FULL_CORPUS = Path(os.environ.get("BINLOGTOOL_CORPUS", ROOT.parent / "shared" / "corpus"))
"""Beside the project, or where BINLOGTOOL_CORPUS says."""

_MAKING = pytest.StashKey[Popen[bytes] | None]()
"""What Java learns for all, see `tests.pipeline.kept_java`."""


@pytest.hookimpl(tryfirst=True)
def pytest_configure(config: pytest.Config) -> None:
    """A parallel run takes the groups in the order of their first tests, not the one with most tests first."""
    config.option.loadscopereorder = False


def pytest_unconfigure(config: pytest.Config) -> None:
    making = config.stash.get(_MAKING, None)
    if making is not None:
        making.wait(PATIENCE_S)


def pytest_sessionstart(session: pytest.Session) -> None:
    """Each worker of a parallel run imports the tests from another one on: what pytest makes of their assertions, which
    takes twice as long as all else in a new checkout, is then made once and found by the others.

    What fails is left to pytest, which tells it when it collects.
    """
    worker = getattr(session.config, "workerinput", None)
    if worker is None:
        whole = {Path(__file__).parent / "pipeline", Path(__file__).parent, ROOT}  # or it would not pay
        if getattr(session.config.option, "numprocesses", None) and not whole.isdisjoint(places_of(session.config)):
            session.config.stash[_MAKING] = begin(session.config)
        return
    paths = [
        path
        for one in places_of(session.config)
        for path in ([one] if one.is_file() else sorted(one.rglob("test_*.py")))
    ]
    first = len(paths) * int(worker["workerid"].removeprefix("gw")) // worker["workercount"]
    with warnings.catch_warnings(action="error"):
        for path in paths[first:] + paths[:first]:
            with suppress(Exception, pytest.skip.Exception):
                import_module(".".join(path.relative_to(ROOT).with_suffix("").parts))


def places_of(config: pytest.Config) -> list[Path]:
    """The folders and files that were asked for."""
    return [Path(name.partition("::")[0]).resolve() for name in config.args]


@pytest.hookimpl(tryfirst=True)  # xdist looks for the groups in this hook, too
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Which tests need the same worker of a parallel run, and what is long first: no worker is left with it at the end.

    A process can have one Spark: the tests that start it in their own process are one group, in which those that share
    a session come last, as no other can be started beside it. Other tests of a file are one group, since what one of
    them makes or reads once is kept for the next; those that are long each by itself are not.
    """
    for item in items:
        group = group_of(item)
        if group is not None:
            item.add_marker(pytest.mark.xdist_group(group))
        if item.get_closest_marker("full_corpus") and not FULL_CORPUS.is_dir():
            item.add_marker(pytest.mark.skip(reason="the full corpus is not beside this checkout"))
    items.sort(key=lambda item: (shares_spark(item), patience_of(item)))


def pytest_collection_finish() -> None:
    """Twelve thousand tests are no garbage, and are not looked through for it again and again."""
    gc.freeze()


def shares_spark(item: pytest.Item) -> bool:
    """Does it use the session that all have in common?"""
    return "spark_session" in getattr(item, "fixturenames", ())


def group_of(item: pytest.Item) -> str | None:
    """Whose worker it has to be; None: anyone's."""
    spark = item.get_closest_marker("spark")
    if shares_spark(item) or (spark and not spark.kwargs.get("alone")):
        return "spark"
    if item.get_closest_marker("server"):
        return f"server-{item.path.stem}"
    return None if item.get_closest_marker("slow") else item.location[0]


def patience_of(item: pytest.Item) -> int:
    """How late it may begin: the long groups first."""
    return next((n for n, name in enumerate(("spark", "server", "slow")) if item.get_closest_marker(name)), 3)


@pytest.fixture(scope="session")
def corpus(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The full corpus; without it, that part of it which the project made itself and brings along."""
    if FULL_CORPUS.is_dir():
        return FULL_CORPUS
    base = tmp_path_factory.getbasetemp()
    return unpacked((base.parent if "PYTEST_XDIST_WORKER" in os.environ else base) / "corpus")


@pytest.fixture(scope="session")
def samples() -> Path:
    """The small real samples that ship with the project."""
    return ROOT / "tests" / "corpus"
