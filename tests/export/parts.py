"""A log read in parts, cut at every border, against the log read at once."""

from __future__ import annotations

from collections.abc import Iterable
from itertools import pairwise
from pathlib import Path

import binlogtool
from binlogtool.core.divide_file import FilePart, ResumePoint
from binlogtool.format_api.format import Hints
from tests.export.reading import borders, facts


def chained(places: Iterable[ResumePoint]) -> list[FilePart]:
    ends = [None, *places, None]
    return [FilePart(start, None if stop is None else stop.offset) for start, stop in pairwise(ends)]


def one_by_one(path: Path, cut: list[FilePart], hints: Hints | None = None) -> list[object]:
    made = []
    for part in cut:
        with binlogtool.open(path, hints=hints) as log:  # what one part learns must not help the next one
            made += facts(log, part)
    return made


def every_border_holds(path: Path, hints: Hints | None = None) -> int:
    with binlogtool.open(path, hints=hints) as log:
        places = borders(log)
    with binlogtool.open(path, hints=hints) as log:
        whole = facts(log)
    for place in places:
        assert one_by_one(path, chained([place]), hints) == whole, place
    assert one_by_one(path, chained(places), hints) == whole
    return len(places)
