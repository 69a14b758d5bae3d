"""Options of a replay: server version, start and end position, reported state."""

from __future__ import annotations

import os
import re
import stat
import time
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Any

import msgspec
from msgspec.structs import replace

from binlogtool.core import open_file as open_file_module
from binlogtool.core.open_file import is_url, make_readable_file, make_reopening_reader, make_sibling_reader
from binlogtool.core.record_and_selection_types import (
    Selection,
    is_gtid_position,
    is_sequence_position,
    limit_selection_to_files,
    split_file_prefix,
)
from binlogtool.errors import LimitError, UsageError
from binlogtool.format_api.format import Format, Hints
from binlogtool.format_api.replay_rules import (
    DANGLING_LINK,
    DIRECTORY,
    FIFO,
    FILE_LINK,
    POLICIES,
    UNOPENABLE,
    ExaminedFile,
    ReplayRules,
    ReplaySituation,
    ReplayStop,
    StateChange,
)
from binlogtool.limits import Limits
from binlogtool.prediction.row_store import Patch
from binlogtool.verification.verify_report import make_exception_of_failure

if TYPE_CHECKING:
    from binlogtool.core.record_and_selection_types import ReadOptionArguments
    from binlogtool.core.resolve_paths import LogGroup
    from binlogtool.format_api.layout import RangeReader
    from binlogtool.verification.verify_logs import LogExamination, VerifiedMember


# --- The options of a replay ---

if TYPE_CHECKING:

    class ReplayKeywords(ReadOptionArguments, total=False):
        """The keyword arguments of `binlogtool.replay` that become `ReplayOptions`."""

        policy: str
        against: Mapping[str, Any] | str | os.PathLike[str] | None
        until: str | None
        digest: bool
        server_version: str | None


_SERVER_VERSION = re.compile(r"\d{1,4}\.\d{1,4}(?!\d)")

OnChanges = Callable[[Iterable[StateChange]], None]
MakeChangeSink = Callable[[Patch | None], OnChanges]
"""Function called for each log with `ReplayRules.patch`; it returns the receiver of the changes of applied records."""


class ReplayOptions(msgspec.Struct, frozen=True):
    """Options of a replay; they have the meaning of the parameters of `binlogtool.replay`."""

    policy: str = "server"
    against: Mapping[str, Any] | str | None = None
    until: str | None = None
    limits: Limits = Limits()
    backend: str = "auto"
    hints: Hints = Hints()
    digest: bool = True
    server_version: str | None = None

    def __post_init__(self) -> None:
        if self.policy not in POLICIES:
            raise UsageError(f"unknown policy {self.policy!r}; one of {', '.join(POLICIES)}")
        if self.server_version is not None and not _SERVER_VERSION.match(self.server_version):
            raise UsageError(f"not a server version: {self.server_version!r}; write it as 3.9 or 2.11.4")


# --- End positions of a replay (`--until`) ---


def select_records_before(position: str | None, paths: Sequence[str], snapshot_paths: Collection[str]) -> Selection:
    """Return the selection of a log's records before a position.

    Args:
        paths: The files of the log.
        snapshot_paths: The files that the server loads as a whole (snapshots).

    Raises:
        UsageError: the position is in a file of `snapshot_paths`.
    """
    if position is not None and not is_gtid_position(position):
        name = split_file_prefix(position)[0]
        inside = [path for path in paths if name in (path, os.path.basename(path))]
        if name is None and not is_sequence_position(position):
            inside = list(paths[-1:])
        if any(path in snapshot_paths for path in inside):
            raise UsageError(f"--until {position}: the server loads this file whole or not at all")
    return Selection(stop=position, whole=frozenset(snapshot_paths))


def assign_end_position_to_logs(position: str | None, logs: Sequence[LogGroup]) -> list[str | None]:
    """Return the end position for each log: a position in a file applies to the last log, None to the others.

    Raises:
        UsageError: the file in the position is in none of the logs, or not in the last log.
    """
    if position is None or is_gtid_position(position):
        return [position] * len(logs)
    file, position_in_file = split_file_prefix(position)
    if file is None and position_in_file.startswith("seq:"):
        return [position] * len(logs)
    paths = [group.member_path(name) for group in logs for name in group.names]
    reached_files = len(limit_selection_to_files(Selection(stop=position), paths))
    if reached_files <= len(paths) - len(logs[-1].names):
        raise UsageError(f"--until {position}: the replay ends there; do not name the files after it")
    return [*[None] * (len(logs) - 1), position]


TIME_LIMIT_TEXT = "the time limit ended the work (--timeout)"


@dataclass(slots=True)
class ReplayClock:
    """Clock for the time limit of a replay: at most half for verifying the whole log, the rest for its records.

    Attributes:
        is_over: True if the limit ended the work.
    """

    limits: Limits
    is_over: bool = False
    _deadline: float | None = field(init=False)

    def __post_init__(self) -> None:
        self._deadline = None if self.limits.timeout is None else time.monotonic() + self.limits.timeout

    @property
    def verify_limits(self) -> Limits:
        """Limits for verifying, with half of the time."""
        timeout = self.limits.timeout
        return self.limits if timeout is None else replace(self.limits, timeout=timeout / 2)

    @property
    def read_limits(self) -> Limits:
        """Limits for reading records, without a timeout: the replay checks the time between two blocks."""
        return replace(self.limits, timeout=None)

    def has_expired(self) -> bool:
        """Return True if no time is left."""
        late = self._deadline is not None and time.monotonic() >= self._deadline
        self.is_over = self.is_over or late
        return late

    def find_verify_stop(self, examination: LogExamination) -> ReplayStop | None:
        """Return where the time limit ended the verification.

        Records after that point are not verified, so they cannot be replayed.
        """
        for one in examination.files:
            if "unread" in one.report.details:
                self.is_over = True
                return ReplayStop(one.member.name, one.report.size - one.report.details["unread"], TIME_LIMIT_TEXT)
        self.is_over = any(failure.exit_code == LimitError.exit_code for failure in examination.failures)
        return None


# --- Start position of a replay (`--against`) ---

_MAX_STATE_BYTES = 16 << 20


def read_start_position(
    position_source: Mapping[str, Any] | str | None, rules: ReplayRules
) -> Mapping[str, Any] | None:
    """Return the position given by `--against`; None if it is not given.

    Args:
        position_source: A position, or the path of a JSON document (a position or a replay report) or of a state file
            of the server.
        rules: The format's replay rules, which know its state files.

    Raises:
        InputOutputError: the file cannot be read. UsageError: it contains no position.
    """
    if position_source is None or not isinstance(position_source, str):
        return position_source
    data = _read_file_head(position_source)
    position = None if rules.parse_state is None else rules.parse_state(os.path.basename(position_source), data)
    position = _parse_position_json(data) if position is None else position
    if position is None:
        raise UsageError(
            f"--against {position_source} holds no position: expected a position or replay report as JSON, or a state "
            f"file of the server"
        )
    return position


def _parse_position_json(data: bytes) -> Mapping[str, Any] | None:
    """Return the position in a JSON document: its member `position`, else the whole document; None if it is no JSON."""
    try:
        value = msgspec.json.decode(data)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return None
    position = value.get("position", value) if isinstance(value, dict) else None
    return position if isinstance(position, dict) else None


def _read_file_head(path: str) -> bytes:
    """Read the first `_MAX_STATE_BYTES` of a file, which suffice for a snapshot."""
    file = make_readable_file(path)
    return file.read(0, min(file.size, _MAX_STATE_BYTES))


# --- Input of the replay rules ---


def get_log_format(group: LogGroup, examination: LogExamination) -> Format:
    """Return the format of a log, from its files if it was not named. Raises BinlogtoolError: no file could be read."""
    if group.format is not None:
        return group.format
    if examination.failures:
        raise make_exception_of_failure(examination.failures[0])
    return open_file_module.find_format(examination.files[0].report.format)


def get_replay_rules(format_: Format) -> ReplayRules:
    """Return the replay rules of a format. Raises UsageError: the format has no rules."""
    if format_.replay is None:
        raise UsageError(
            f"logs of the format {format_.name} cannot be replayed: no server replays them, or its rules are not known"
        )
    return format_.replay


def refuse_unused_server_version(server_version: str | None, format_names: Iterable[str]) -> None:
    """Raise UsageError if a server version was given and the rules of none of these formats depend on it."""
    names = sorted(set(format_names))
    rules = [open_file_module.find_format(name).replay for name in names]
    if server_version is not None and names and not any(one is not None and one.uses_server_version for one in rules):
        raise UsageError(
            f"--server-version does not apply to {', '.join(names)}: the version in the log decides; leave it out"
        )


def build_situation(
    group: LogGroup, examination: LogExamination, options: ReplayOptions, rules: ReplayRules, is_cut: Callable[[], bool]
) -> ReplaySituation:
    """Build the view of a log that the replay rules receive.

    Args:
        is_cut: Function that returns True if `--until` ended the reading before the log's end.
    """
    files = tuple(make_examined_file(one, rules) for one in examination.files)
    unread = tuple(
        ExaminedFile(os.path.relpath(f.path, group.path) if group.is_set else f.path, f.path, 0, 0, None, None, None)
        for f in examination.failures
    )
    read_sibling = partial(_make_member_or_sibling_reader, group)
    set_findings = examination.set.findings if examination.set is not None else ()
    position = read_start_position(options.against, rules)
    return ReplaySituation(
        files + unread,
        group.is_set,
        options.policy,
        position,
        set_findings,
        read_sibling,
        options.hints.redo,
        is_cut,
        server_version=options.server_version,
        max_memory=options.limits.max_memory,
        other_entries=_list_other_entries(group.path) if group.is_set and not is_url(group.path) else {},
    )


def _list_other_entries(directory: str) -> dict[str, str]:
    """Return the entries of a directory that are no regular files, with their kinds; none if it cannot be listed."""
    try:
        with os.scandir(directory or os.curdir) as entries:
            return {one.name: _get_link_target_kind(one) for one in entries if not one.is_file(follow_symlinks=False)}
    except OSError:
        return {}


def _get_link_target_kind(entry: os.DirEntry[str]) -> str:
    try:
        mode = os.stat(entry.path).st_mode
    except FileNotFoundError:
        return DANGLING_LINK
    except OSError:
        return UNOPENABLE
    kinds = ((stat.S_ISDIR, DIRECTORY), (stat.S_ISREG, FILE_LINK), (stat.S_ISFIFO, FIFO))
    return next((kind for test, kind in kinds if test(mode)), UNOPENABLE)


def _make_member_or_sibling_reader(group: LogGroup, name: str) -> RangeReader | None:
    """Return a reader of a member in a folder below the log, or of another file in the directory of the log."""
    is_elsewhere = bool(os.path.dirname(name)) or name in group.compressed
    if group.is_set and name in group.names and is_elsewhere and not is_url(group.path):
        return make_reopening_reader(group.member_path(name))
    return make_sibling_reader(os.path.join(group.path, "_") if group.is_set else group.path, name)


def make_examined_file(verified: VerifiedMember, rules: ReplayRules) -> ExaminedFile:
    """Return the description of one file for the replay rules, with its number of records."""
    report, member = verified.report, verified.member
    count_records = None if member.verdict is None else rules.count_records
    records = report.records or 0 if count_records is None else count_records(report.details)
    return ExaminedFile(
        member.name, report.path, report.size, records, member.layout, member.verdict, member.tail, report.findings
    )
