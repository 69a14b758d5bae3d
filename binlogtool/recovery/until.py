"""End positions of a replay (`--until`), in one log and over several, and its time limit."""

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
    """Return the selection of a log's records before a position.

    Args:
        paths: The files of the log.
        base: Those of them that the server loads as a whole (snapshots).

    Raises:
        UsageError: the position is in a file of `base`.
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
    """Return the end position for each log: a position in a file applies to the last log, None to the others.

    Raises:
        UsageError: the file that it names is in none of the logs, or not in the last one.
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
    """The time limit of a replay: at most half for verifying the whole log, the rest for its records.

    Attributes:
        is_over: The limit ended the work.
    """

    limits: Limits
    over: bool = False
    _end: float | None = field(init=False)

    def __post_init__(self) -> None:
        self._end = None if self.limits.timeout is None else time.monotonic() + self.limits.timeout

    @property
    def for_the_look(self) -> Limits:
        """The limits for verifying: half of the time."""
        timeout = self.limits.timeout
        return self.limits if timeout is None else replace(self.limits, timeout=timeout / 2)

    @property
    def for_records(self) -> Limits:
        """The limits for reading records, without a timeout: the replay checks the time between two blocks."""
        return replace(self.limits, timeout=None)

    def ended(self) -> bool:
        """Return True if no time is left."""
        late = self._end is not None and time.monotonic() >= self._end
        self.over = self.over or late
        return late

    def left_at(self, seen: Examination) -> Stop | None:
        """Return where the time limit ended the verification; the records after it are not known well enough to be
        replayed.
        """
        for one in seen.files:
            if "unread" in one.report.details:
                self.over = True
                return Stop(one.member.name, one.report.size - one.report.details["unread"], TIME)
        self.over = any(failure.exit_code == LimitError.exit_code for failure in seen.failures)
        return None
