"""Closed files of a log: all before the last one that was written to. A server never continues such a file.

A record that a crash left unfinished at the end of a closed file is lost: it counts as damage, not as a note, in tables
and in streams.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterable
from os.path import basename, dirname

from binlogtool.errors import BinlogtoolError
from binlogtool.findings import ENCRYPTED, Finding, Severity
from binlogtool.log.open import LogReader
from binlogtool.log.parts import FilePart
from binlogtool.log.records import RecordBlock
from binlogtool.log.select import Selection
from binlogtool.pipeline.stream_offset import has_resume_point, has_split_points
from binlogtool.pipeline.tasks import TaskFile

_NUMBER = re.compile(r"\d+")
_TORN_TAIL = "torn-tail"


def log_key(name: str) -> str:
    """Return the path with its file numbers replaced by '#', which is the same for all files of one log."""
    return os.path.join(dirname(name), _NUMBER.sub("#", basename(name)))


def sequence_numbers(name: str) -> list[int]:
    """Return the numbers in a file's name, by which the files of one log are ordered."""
    return [int(text) for text in _NUMBER.findall(basename(name))]


def has_records_before(log: LogReader, end: int) -> bool:
    """Return True if the file has a record before offset `end`, followed by a point where no transaction is open."""
    if has_split_points(log):
        return has_resume_point(log, end)
    blocks = log.blocks(Selection(limit=1), decode="frame", part=FilePart(None, end))
    return any(isinstance(one, RecordBlock) for one in blocks)


def is_closed(member: TaskFile, members: Iterable[TaskFile], open_file: Callable[[TaskFile], LogReader]) -> bool:
    """Return True if a later file of the same log was written to.

    Args:
        members: all files that exist.
        open_file: opens one of them.
    """
    log, number = log_key(member.path), sequence_numbers(member.path)
    later_members = [one for one in members if log_key(one.path) == log and sequence_numbers(one.path) > number]
    return any(
        _has_records(one, open_file)
        for one in sorted(later_members, key=lambda one: sequence_numbers(one.path), reverse=True)
    )


def _has_records(member: TaskFile, open_file: Callable[[TaskFile], LogReader]) -> bool:
    try:
        with open_file(member) as log:
            return has_records_before(log, log.files[0].size or 0)
    except BinlogtoolError:
        return False


def is_damage(finding: Finding, is_file_closed: Callable[[], bool]) -> bool:
    """Return True if a finding about bytes of a file means that they could not be read as they should be.

    is_file_closed: returns True if the file is closed; only called if the answer depends on it.
    """
    if finding.severity is not Severity.NOTE or finding.id == ENCRYPTED:
        return True
    return finding.id == _TORN_TAIL and is_file_closed()
