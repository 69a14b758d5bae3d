"""How the logs of a repair are read: the same for the plan and for the check of its result."""

from __future__ import annotations

import os
from typing import NamedTuple

from msgspec.structs import replace

from binlogtool import errors, formats
from binlogtool.errors import InputOutputError
from binlogtool.formats.base import Format
from binlogtool.formats.detecting import Hints
from binlogtool.formats.layouts import Read
from binlogtool.log.detect import by_name
from binlogtool.log.how import How
from binlogtool.log.named import Group, named
from binlogtool.log.source import reopened
from binlogtool.recovery.report import Failure, LeftOut, Report, joined, left_of
from binlogtool.recovery.verify import Examination, Options, examine


class Examined(NamedTuple):
    """A log, and what `verify` found in it."""

    log: Group
    found: Examination


class Seen(NamedTuple):
    """What a path names: its logs, and the files of a directory that are none."""

    logs: list[Examined]
    left: tuple[LeftOut, ...]

    @property
    def report(self) -> Report:
        """All of it."""
        return replace(joined(one.found.report for one in self.logs), left=self.left)


class Reading(How, frozen=True):
    """How a log is read; the same for the plan and for the check of the result."""

    @classmethod
    def of(cls, how: How) -> Reading:
        """The same, able to examine."""
        return cls(how.format, how.limits, how.backend, how.hints)

    @property
    def options(self) -> Options:
        """The same for `verify`."""
        return Options(limits=self.limits, backend=self.backend, hints=self.hints or Hints())

    def examined(self, path: str) -> Seen:
        """Everything that `verify` finds in the logs that a path names.

        Raises:
            BinlogtoolError: the path cannot be worked on.
        """
        there = named(path, self.format)
        found = [Examined(log, examine(log, self.options)) for log in there.groups]
        for failure in (one for log in found for one in log.found.failures):
            raise raised(failure)
        return Seen(found, left_of(path, there.left).left)

    def report(self, path: str) -> Report:
        """The same as one report."""
        return self.examined(path).report

    def format_of(self, name: str) -> Format:
        """The description of a format, with the variant that the user fixed."""
        return formats.get(name) if self.format == "auto" else by_name(self.format)


def raised(failure: Failure) -> Exception:
    """What a path that cannot be worked on means where there is nothing else to work on."""
    message = failure.message if failure.path in failure.message else f"{failure.path}: {failure.message}"
    kinds = (errors.UnknownFormatError, errors.RefusedError, errors.LimitError)
    return next((kind(message) for kind in kinds if kind.exit_code == failure.exit_code), InputOutputError(message))


def raw(path: str) -> Read:
    """The bytes of a file as they are; it is opened for each read: a log may have thousands."""
    return reopened(os.path.realpath(path))


def same_file(one: str, other: str) -> bool:
    """Do two paths name the same file?"""
    return os.path.realpath(one) == os.path.realpath(other)
