"""A server goes on writing while a part of its log is read: what came behind the part is no damage of it."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

import binlogtool
from binlogtool.core.divide_file import WHOLE_FILE, FilePart
from binlogtool.core.record_and_selection_types import RecordBlock


def told(path: Path, part: FilePart, meanwhile: Callable[[Path], object]) -> tuple[int, list[str]]:
    """How many records a part has, and what else is said, when something happens to the file after the first look."""
    with binlogtool.open(path) as log:
        found = log.blocks(part=part)
        first = next(found)
        meanwhile(path)
        rest = [first, *found]
    records = sum(len(list(one)) for one in rest if isinstance(one, RecordBlock))
    return records, [one.finding.id for one in rest if not isinstance(one, RecordBlock)]


def grow(path: Path) -> None:
    with path.open("ab") as file:
        file.write(b"\x05 more to come")


def shorten(path: Path) -> None:
    with path.open("r+b") as file:
        file.truncate(100)


def change(path: Path) -> None:
    with path.open("r+b") as file:
        file.write(b"X")


@pytest.mark.parametrize(
    ("meanwhile", "whole", "part"),
    [
        (grow, ["changed-while-read"], []),
        (shorten, ["changed-while-read"], ["changed-while-read"]),
        (change, ["changed-while-read"], ["changed-while-read"]),
        (Path.unlink, ["changed-while-read"], ["changed-while-read"]),
    ],
)
def test_growth_behind_a_part_is_none_of_its_business(
    meanwhile: Callable[[Path], object], whole: list[str], part: list[str], samples: Path, tmp_path: Path
) -> None:
    path = tmp_path / "basic-checksum.log"
    for wanted, ids in ((WHOLE_FILE, whole), (FilePart(None, (samples / "drizzle" / path.name).stat().st_size), part)):
        shutil.copy(samples / "drizzle" / path.name, path)
        records, found = told(path, wanted, meanwhile)
        assert (records, found) == (67, ids)
