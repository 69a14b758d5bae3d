"""`dump --follow`: what is appended to files, and what new files bring, by name.

Each look reads a changed file from its start, because only a whole chain of records is proven; unchanged files are not
opened at all.
"""

from __future__ import annotations

import os
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

import binlogtool
from binlogtool.log.records import Block, Trouble

if TYPE_CHECKING:
    from binlogtool.cli.run import Run
    from binlogtool.log.select import Selection


@dataclass(slots=True)
class Place:
    """How far a file has been printed. stamp: size, modification time, inode at the last look."""

    stamp: tuple[int, int, int] = (-1, -1, -1)
    records: int = 0


def follow(
    run: Run,
    paths: Sequence[str],
    wanted: Selection,
    *,
    decode: str,
    raw: bool,
    poll: float,
    hints: binlogtool.Hints | None = None,
) -> Iterator[Block]:
    """Blocks of new records, for ever (or until `--limit` or `--timeout`)."""
    places: dict[str, Place] = {}
    told: set[tuple[str, str, int | None]] = set()
    deadline = None if run.settings.timeout is None else time.monotonic() + run.settings.timeout
    left = wanted.limit
    while left != 0 and (deadline is None or time.monotonic() < deadline):
        for file in _files(run, paths):
            chosen = replace(wanted, live=True, limit=left)
            for part in _new(run, file, places.setdefault(file, Place()), chosen, decode, raw, hints):
                if isinstance(part, Trouble):
                    _tell(run, part, told)
                    continue
                left = None if left is None else left - len(part)
                yield part
        time.sleep(poll)


def _files(run: Run, paths: Sequence[str]) -> Iterator[str]:
    for path in paths:
        if not os.path.isdir(path):
            yield path
            continue
        with binlogtool.open(path, format=run.settings.format, limits=run.settings.limits) as log:
            names = [file.path for file in log.files]
        yield from names


def _new(
    run: Run, file: str, place: Place, wanted: Selection, decode: str, raw: bool, hints: binlogtool.Hints | None
) -> Iterator[Block | Trouble]:
    status = Path(file).stat()
    stamp = (status.st_size, status.st_mtime_ns, status.st_ino)
    if stamp == place.stamp:
        return
    if stamp[2] != place.stamp[2] or stamp[0] < place.stamp[0]:
        place.records = 0
    place.stamp = stamp
    s, seen = run.settings, place.records
    start = replace(wanted, start=f"record:{seen}") if seen else wanted
    with binlogtool.open(file, format=s.format, limits=s.limits, backend=s.backend, hints=hints) as log:
        for part in log.blocks(start, decode=decode, raw=raw):
            if isinstance(part, Block) and len(part):
                place.records = part.record[-1] + 1
            yield part


def _tell(run: Run, trouble: Trouble, told: set[tuple[str, str, int | None]]) -> None:
    found = trouble.finding
    key = (trouble.file, found.id, found.offset)
    if key not in told and found.id != "changed-while-read":  # that it grows is what we are here for
        told.add(key)
        run.say(f"{trouble.file}: {found.severity.label} {found.id}: {found.message}", level=0 if found.severity else 1)
