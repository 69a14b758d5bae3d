"""Closed files of a log: all before the last one that was written to. A server never continues such a file.

A record that a crash left unfinished at the end of a closed file is lost: it counts as damage, not as a note, in
tables
and in streams.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterable
from os.path import basename, dirname

from binlogtool.errors import BinlogtoolError
from binlogtool.findings import ENCRYPTED, Finding, Severity
from binlogtool.log.open import Log
from binlogtool.log.parts import Part
from binlogtool.log.records import Block
from binlogtool.log.select import Selection
from binlogtool.pipeline.stream_offset import has_place, is_cut
from binlogtool.pipeline.tasks import Member

_NUMBER = re.compile(r"\d+")
_BROKEN_OFF = "torn-tail"


def log_of(name: str) -> str:
    """Return the path with its file numbers replaced by '#', which is the same for all files of one log."""
    return os.path.join(dirname(name), _NUMBER.sub("#", basename(name)))


def numbers(name: str) -> list[int]:
    """Return the numbers in a file's name, by which the files of one log are ordered."""
    return [int(text) for text in _NUMBER.findall(basename(name))]


def is_written(log: Log, end: int) -> bool:
    """Return True if the file has a record before offset `end`, followed by a point where no transaction is open."""
    if is_cut(log):
        return has_place(log, end)
    found = log.blocks(Selection(limit=1), decode="frame", part=Part(None, end))
    return any(isinstance(one, Block) for one in found)


def is_closed(member: Member, known: Iterable[Member], opened: Callable[[Member], Log]) -> bool:
    """Return True if a later file of the same log was written to.

    Args:
        known: all files that exist.
        opened: opens one of them.
    """
    log, number = log_of(member.path), numbers(member.path)
    later = [one for one in known if log_of(one.path) == log and numbers(one.path) > number]
    return any(_holds(one, opened) for one in sorted(later, key=lambda one: numbers(one.path), reverse=True))


def _holds(member: Member, opened: Callable[[Member], Log]) -> bool:
    try:
        with opened(member) as log:
            return is_written(log, log.files[0].size or 0)
    except BinlogtoolError:
        return False


def is_damage(found: Finding, closed: Callable[[], bool]) -> bool:
    """Return True if a finding about bytes of a file means that they could not be read as they should be.

    closed: returns True if the file is closed; only called if the answer depends on it.
    """
    if found.severity is not Severity.NOTE or found.id == ENCRYPTED:
        return True
    return found.id == _BROKEN_OFF and closed()
