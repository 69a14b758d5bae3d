"""Generated contents and damages, started on the real server: start yes or no, kind of message, rows of each space."""

from __future__ import annotations

import os
from collections.abc import Iterable
from pathlib import Path

import pytest

from tests.formats.tarantool.contents import OPEN, base, compare, compare_damaged, written
from tests.formats.tarantool.server import program

pytestmark = pytest.mark.server
SMALL, LARGE = (*range(1, 16), 710_003, 710_019), range(10_000, 10_400)
"""The last of the small ones: a request without effect on a space without indexes; another field count."""


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A directory that the server wrote."""
    if program() is None and os.environ.get("BINLOGTOOL_SERVER") != "1":
        pytest.skip("no tarantool is installed; BINLOGTOOL_SERVER=1 demands one")
    return base(tmp_path_factory.mktemp("contents"))


def test_starts_of_generated_contents_are_predicted(folder: Path) -> None:
    assert [one for one in compare(folder, SMALL) if one[2] and not one[2].startswith(OPEN)] == []


@pytest.mark.nightly
def test_starts_of_many_generated_contents_are_predicted(folder: Path) -> None:
    results = list(compare(folder, LARGE))
    wrong = [one for one in results if one[2] and not one[2].startswith(OPEN)]
    assert not [one for one in wrong if "rows of" in one[2] or "starts" in one[2]]
    assert len(wrong) <= len(results) // 100


@pytest.fixture(scope="module")
def intact(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A directory with two snapshots and rows after each, which the server wrote."""
    if program() is None and os.environ.get("BINLOGTOOL_SERVER") != "1":
        pytest.skip("no tarantool is installed; BINLOGTOOL_SERVER=1 demands one")
    return written(tmp_path_factory.mktemp("written"))


def _wrong(results: Iterable[tuple[str, str, str, bool]]) -> list[tuple[str, str, str, bool]]:
    """Those whose start or rows differ; the words of the server about a damaged header are often others."""
    return [one for one in results if "rows of" in one[2] or "starts" in one[2]]


def test_starts_with_damaged_files_are_predicted(intact: Path) -> None:
    assert _wrong(compare_damaged(intact, range(15))) == []


@pytest.mark.nightly
def test_starts_with_many_damaged_files_are_predicted(intact: Path) -> None:
    assert _wrong(compare_damaged(intact, range(100_000, 100_300))) == []
