"""End positions of a replay (`--until`), in one log and over several, and its time limit."""

from __future__ import annotations

import os
import time
from collections.abc import Collection, Sequence
from dataclasses import dataclass, field

from msgspec.structs import replace

from binlogtool.errors import LimitError, UsageError
from binlogtool.formats.replay_rules import ReplayStop
from binlogtool.limits import Limits
from binlogtool.log.named import LogGroup
from binlogtool.log.places import is_gtid_position, is_sequence_position, split_file_prefix, split_selection
from binlogtool.log.select import Selection
from binlogtool.recovery.verify import LogExamination


def select_before(position: str | None, paths: Sequence[str], base: Collection[str]) -> Selection:
    """Return the selection of a log's records before a position.

    Args:
        paths: The files of the log.
        base: Those of them that the server loads as a whole (snapshots).

    Raises:
        UsageError: the position is in a file of `base`.
    """
    if position is not None and not is_gtid_position(position):
        name = split_file_prefix(position)[0]
        inside = [path for path in paths if name in (path, os.path.basename(path))]
        if name is None and not is_sequence_position(position):
            inside = list(paths[-1:])
        if any(path in base for path in inside):
            raise UsageError(f"--until {position}: the server loads this file whole or not at all")
    return Selection(stop=position, whole=frozenset(base))


def find_end_positions(position: str | None, logs: Sequence[LogGroup]) -> list[str | None]:
    """Return the end position for each log: a position in a file applies to the last log, None to the others.

    Raises:
        UsageError: the file that it names is in none of the logs, or not in the last one.
    """
    if position is None or is_gtid_position(position):
        return [position] * len(logs)
    file, position_in_file = split_file_prefix(position)
    if file is None and position_in_file.startswith("seq:"):
        return [position] * len(logs)
    paths = [group.member_path(name) for group in logs for name in group.names]
    reached_files = len(split_selection(Selection(stop=position), paths))
    if reached_files <= len(paths) - len(logs[-1].names):
        raise UsageError(f"--until {position}: leave out what comes behind this file; the replay ends there")
    return [*[None] * (len(logs) - 1), position]


TIME_LIMIT_TEXT = "the time limit ended the work (--timeout)"


@dataclass(slots=True)
class ReplayClock:
    """The time limit of a replay: at most half for verifying the whole log, the rest for its records.

    Attributes:
        is_over: The limit ended the work.
    """

    limits: Limits
    is_over: bool = False
    _deadline: float | None = field(init=False)

    def __post_init__(self) -> None:
        self._deadline = None if self.limits.timeout is None else time.monotonic() + self.limits.timeout

    @property
    def verify_limits(self) -> Limits:
        """The limits for verifying: half of the time."""
        timeout = self.limits.timeout
        return self.limits if timeout is None else replace(self.limits, timeout=timeout / 2)

    @property
    def read_limits(self) -> Limits:
        """The limits for reading records, without a timeout: the replay checks the time between two blocks."""
        return replace(self.limits, timeout=None)

    def has_expired(self) -> bool:
        """Return True if no time is left."""
        late = self._deadline is not None and time.monotonic() >= self._deadline
        self.is_over = self.is_over or late
        return late

    def find_verify_stop(self, examination: LogExamination) -> ReplayStop | None:
        """Return where the time limit ended the verification; the records after it are not known well enough to be
        replayed.
        """
        for one in examination.files:
            if "unread" in one.report.details:
                self.is_over = True
                return ReplayStop(one.member.name, one.report.size - one.report.details["unread"], TIME_LIMIT_TEXT)
        self.is_over = any(failure.exit_code == LimitError.exit_code for failure in examination.failures)
        return None
