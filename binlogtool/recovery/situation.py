"""Describe a log to its format's replay rules before the replay."""

from __future__ import annotations

import os
from collections.abc import Callable
from functools import partial

from binlogtool.errors import UsageError
from binlogtool.formats.base import Format
from binlogtool.formats.layouts import RangeReader
from binlogtool.formats.replay_rules import ExaminedFile, ReplayRules, ReplaySituation
from binlogtool.log import detect
from binlogtool.log.named import LogGroup
from binlogtool.log.opened_file import make_sibling_reader
from binlogtool.log.source import is_url, make_reopening_reader
from binlogtool.recovery.against import read_position
from binlogtool.recovery.reading import make_exception
from binlogtool.recovery.verify import LogExamination, VerifiedMember
from binlogtool.recovery.wish import ReplayOptions


def resolve_format(group: LogGroup, examination: LogExamination) -> Format:
    """Return the format of a log, from its files if it was not named.

    Raises:
        BinlogtoolError: no file could be read.
    """
    if group.format is not None:
        return group.format
    if examination.failures:
        raise make_exception(examination.failures[0])
    return detect.find_format(examination.files[0].report.format)


def get_replay_rules(format_: Format) -> ReplayRules:
    """Return the replay rules of a format.

    Raises:
        UsageError: it has none.
    """
    if format_.replay is None:
        raise UsageError(f"nothing replays a log of the format {format_.name}, or its rules are not known")
    return format_.replay


def build_situation(
    group: LogGroup, examination: LogExamination, options: ReplayOptions, rules: ReplayRules, is_cut: Callable[[], bool]
) -> ReplaySituation:
    """Build the view of a log that the rules get.

    Args:
        is_cut: Returns True if `--until` ended the reading before the log's end.
    """
    files = tuple(make_examined_file(one, rules) for one in examination.files)
    unread = tuple(
        ExaminedFile(os.path.relpath(f.path, group.path) if group.is_set else f.path, f.path, 0, 0, None, None, None)
        for f in examination.failures
    )
    read_sibling = partial(_make_member_reader, group)
    set_findings = examination.set.findings if examination.set is not None else ()
    position = read_position(options.against, rules)
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
    )


def _make_member_reader(group: LogGroup, name: str) -> RangeReader | None:
    """Return a reader of a member in a folder below the log, or of another file in the directory of the log."""
    if group.is_set and name in group.names and os.path.dirname(name) and not is_url(group.path):
        return make_reopening_reader(group.member_path(name))
    return make_sibling_reader(os.path.join(group.path, "_") if group.is_set else group.path, name)


def make_examined_file(verified: VerifiedMember, rules: ReplayRules) -> ExaminedFile:
    """Describe one file, with the number of records that a replay finds in it."""
    report, member = verified.report, verified.member
    count_records = None if member.verdict is None else rules.count_records
    records = report.records or 0 if count_records is None else count_records(report.details)
    return ExaminedFile(
        member.name, report.path, report.size, records, member.layout, member.verdict, member.tail, report.findings
    )
