"""Describe a log to its format's replay rules before the replay."""

from __future__ import annotations

import os
from collections.abc import Callable
from functools import partial

from binlogtool.errors import UsageError
from binlogtool.formats.base import Format
from binlogtool.formats.layouts import Read
from binlogtool.formats.replay_rules import Examined, Replay, Situation
from binlogtool.log import detect
from binlogtool.log.named import Group
from binlogtool.log.opened_file import read_beside
from binlogtool.log.source import is_url, reopened
from binlogtool.recovery.against import position_of
from binlogtool.recovery.reading import raised
from binlogtool.recovery.verify import Examination, Judged
from binlogtool.recovery.wish import Wish


def format_of(group: Group, examination: Examination) -> Format:
    """Return the format of a log, from its files if it was not named.

    Raises:
        BinlogtoolError: no file could be read.
    """
    if group.format is not None:
        return group.format
    if examination.failures:
        raise raised(examination.failures[0])
    return detect.by_name(examination.files[0].report.format)


def rules_of(format_: Format) -> Replay:
    """Return the replay rules of a format.

    Raises:
        UsageError: it has none.
    """
    if format_.replay is None:
        raise UsageError(f"nothing replays a log of the format {format_.name}, or its rules are not known")
    return format_.replay


def situation(group: Group, examination: Examination, wish: Wish, rules: Replay, cut: Callable[[], bool]) -> Situation:
    """Build the view of a log that the rules get.

    Args:
        is_cut: Returns True if `--until` ended the reading before the log's end.
    """
    files = tuple(examined(one, rules) for one in examination.files)
    unread = tuple(
        Examined(os.path.relpath(f.path, group.path) if group.is_set else f.path, f.path, 0, 0, None, None, None)
        for f in examination.failures
    )
    beside = partial(_read_member, group)
    own = examination.set.findings if examination.set is not None else ()
    known = position_of(wish.against, rules)
    return Situation(
        files + unread,
        group.is_set,
        wish.policy,
        known,
        own,
        beside,
        wish.hints.redo,
        cut,
        server_version=wish.server_version,
        max_memory=wish.limits.max_memory,
    )


def _read_member(group: Group, name: str) -> Read | None:
    """Return a reader of a member in a folder below the log, or of another file in the directory of the log."""
    if group.is_set and name in group.names and os.path.dirname(name) and not is_url(group.path):
        return reopened(group.member_path(name))
    return read_beside(os.path.join(group.path, "_") if group.is_set else group.path, name)


def examined(one: Judged, rules: Replay) -> Examined:
    """Describe one file, with the number of records that a replay finds in it."""
    report, member = one.report, one.member
    counted = None if member.verdict is None else rules.count
    records = report.records or 0 if counted is None else counted(report.details)
    return Examined(
        member.name, report.path, report.size, records, member.layout, member.verdict, member.tail, report.findings
    )
