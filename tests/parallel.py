"""How the tests are shared among the workers of a parallel run (`pytest -n 2 --dist loadgroup`)."""

from __future__ import annotations

import gc
import warnings
from contextlib import suppress
from importlib import import_module
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
READERS_OF_SOURCES = ("test_layers", "test_references", "test_spellings")
"""Test files that parse all modules: one worker runs them, and parses each module once."""


@pytest.hookimpl(tryfirst=True)
def pytest_configure(config: pytest.Config) -> None:
    """Start groups in the order of their first tests, not the one with most tests first."""
    config.option.loadscopereorder = False


def pytest_sessionstart(session: pytest.Session) -> None:
    """Let each worker import the test files from another one on.

    pytest's rewriting of assertions takes twice as long as all else in a new checkout; each file is rewritten once and
    found by the other workers. Errors of imports are left to the collection, which reports them.
    """
    worker = getattr(session.config, "workerinput", None)
    if worker is None:
        return
    files = [
        path
        for one in _arguments(session.config)
        for path in ([one] if one.is_file() else sorted(one.rglob("test_*.py")))
    ]
    first = len(files) * int(worker["workerid"].removeprefix("gw")) // worker["workercount"]
    with warnings.catch_warnings(action="error"):
        for path in files[first:] + files[:first]:
            with suppress(Exception, pytest.skip.Exception):
                import_module(".".join(path.relative_to(ROOT).with_suffix("").parts))


def _arguments(config: pytest.Config) -> list[Path]:
    """The folders and files that were asked for."""
    return [Path(name.partition("::")[0]).resolve() for name in config.args]


@pytest.hookimpl(tryfirst=True)  # xdist looks for the groups in this hook, too
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Give each test its group, and put long groups first, so that no worker is left with one at the end."""
    for item in items:
        group = _group(item)
        if group is not None:
            item.add_marker(pytest.mark.xdist_group(group))
    items.sort(key=lambda item: (_shares_spark(item), _order(item)))


def pytest_collection_finish() -> None:
    """Keep the garbage collector from looking through thousands of collected tests again and again."""
    gc.freeze()


def _shares_spark(item: pytest.Item) -> bool:
    """Whether the test uses the Spark session that all have in common; such tests come last in their group, since no
    other session can be started beside it."""
    return "spark_session" in getattr(item, "fixturenames", ())


def _group(item: pytest.Item) -> str | None:
    """The group of tests that one worker must run; None: any worker.

    A process can have one Spark, so tests that start it in their own process are one group. Tests of a file are one
    group, since what one of them makes or reads once is kept for the next; long tests (`full`) are not.
    """
    spark = item.get_closest_marker("spark")
    if _shares_spark(item) or (spark and not spark.kwargs.get("alone")):
        return "spark"
    if item.get_closest_marker("server"):
        return f"server-{item.path.stem}"
    if item.path.stem in READERS_OF_SOURCES:
        return "sources"
    return None if item.get_closest_marker("full") else item.nodeid.partition("::")[0]


def _order(item: pytest.Item) -> int:
    return next((n for n, name in enumerate(("spark", "server", "full")) if item.get_closest_marker(name)), 3)
