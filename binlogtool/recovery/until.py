"""Where a replay ends: the position of `--until`, in a log and over several of them."""

from __future__ import annotations

import os
from collections.abc import Collection, Sequence

from binlogtool.errors import UsageError
from binlogtool.log.named import Group
from binlogtool.log.places import by_gtid, by_sequence, named, shares
from binlogtool.log.select import Selection


def before(position: str | None, paths: Sequence[str], base: Collection[str]) -> Selection:
    """The records of a log before a position. paths: its files. base: those of them that are loaded whole.

    Raises:
        UsageError: the position lies in one of these.
    """
    if position is not None and not by_gtid(position):
        name = named(position)[0]
        inside = [path for path in paths if name in (path, os.path.basename(path))]
        if name is None and not by_sequence(position):
            inside = list(paths[-1:])
        if any(path in base for path in inside):
            raise UsageError(f"--until {position}: the server loads this file whole or not at all")
    return Selection(stop=position, whole=frozenset(base))


def untils(position: str | None, logs: Sequence[Group]) -> list[str | None]:
    """Where the replay of each log ends: as in a selection (`places.shares`), a place counts in the last one.

    Raises:
        UsageError: the file that it names is in none of them, or not in the last one.
    """
    if position is None or by_gtid(position):
        return [position] * len(logs)
    file, place = named(position)
    if file is None and place.startswith("seq:"):
        return [position] * len(logs)
    paths = [group.member_path(name) for group in logs for name in group.names]
    reached = len(shares(Selection(stop=position), paths))
    if reached <= len(paths) - len(logs[-1].names):
        raise UsageError(f"--until {position}: leave out what comes behind this file; the replay ends there")
    return [*[None] * (len(logs) - 1), position]
