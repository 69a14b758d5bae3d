"""Where a replay ends: the position of `--until`, in a log and over several of them."""

from __future__ import annotations

import os
import time
from collections.abc import Collection, Sequence
from dataclasses import dataclass, field

from msgspec.structs import replace

from binlogtool.errors import LimitError, UsageError
from binlogtool.formats.replay_rules import Stop
from binlogtool.limits import Limits
from binlogtool.log.named import Group
from binlogtool.log.places import by_gtid, by_sequence, named, shares
from binlogtool.log.select import Selection
from binlogtool.recovery.verify import Examination


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


TIME = "the time limit ended the work (--timeout)"


@dataclass(slots=True)
class Clock:
    """The time that a replay has: up to one half for the look at the whole log, the rest for its records.

    over: did it end the work?
    """

    limits: Limits
    over: bool = False
    _end: float | None = field(init=False)

    def __post_init__(self) -> None:
        self._end = None if self.limits.timeout is None else time.monotonic() + self.limits.timeout

    @property
    def for_the_look(self) -> Limits:
        """The limits of the first half."""
        timeout = self.limits.timeout
        return self.limits if timeout is None else replace(self.limits, timeout=timeout / 2)

    @property
    def for_records(self) -> Limits:
        """The limits of reading: it is ended from outside, between two blocks."""
        return replace(self.limits, timeout=None)

    def ended(self) -> bool:
        """Is no time left?"""
        late = self._end is not None and time.monotonic() >= self._end
        self.over = self.over or late
        return late

    def left_at(self, seen: Examination) -> Stop | None:
        """Where the look was ended: what is behind is not known well enough to be replayed."""
        for one in seen.files:
            if "unread" in one.report.details:
                self.over = True
                return Stop(one.member.name, one.report.size - one.report.details["unread"], TIME)
        self.over = any(failure.exit_code == LimitError.exit_code for failure in seen.failures)
        return None
