"""Read and examine the logs of a repair: in the same way for the plan and for the check of its result."""

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
    """A log with what `verify` found in it."""

    log: Group
    found: Examination


class Seen(NamedTuple):
    """The logs that a path names, and the files of a directory that are not logs."""

    logs: list[Examined]
    left: tuple[LeftOut, ...]

    @property
    def report(self) -> Report:
        """The report on all logs of the path."""
        return replace(joined(one.found.report for one in self.logs), left=self.left)


class Reading(How, frozen=True):
    """Read options with the calls that examine logs by them."""

    @classmethod
    def of(cls, how: How) -> Reading:
        """Create an examiner from read options."""
        return cls(how.format, how.limits, how.backend, how.hints)

    @property
    def options(self) -> Options:
        """The options for `verify`."""
        return Options(limits=self.limits, backend=self.backend, hints=self.hints or Hints())

    def examined(self, path: str) -> Seen:
        """Verify the logs that a path names.

        Raises:
            BinlogtoolError: the path cannot be read.
        """
        there = named(path, self.format)
        found = [Examined(log, examine(log, self.options)) for log in there.groups]
        for failure in (one for log in found for one in log.found.failures):
            raise raised(failure)
        return Seen(found, left_of(path, there.left).left)

    def report(self, path: str) -> Report:
        """Verify the logs that a path names; return one report."""
        return self.examined(path).report

    def format_of(self, name: str) -> Format:
        """Return the format of this name, in the variant that the user chose."""
        return formats.get(name) if self.format == "auto" else by_name(self.format)


def raised(failure: Failure) -> Exception:
    """Return the exception for a failure where there is nothing else to work on."""
    message = failure.message if failure.path in failure.message else f"{failure.path}: {failure.message}"
    kinds = (errors.UnknownFormatError, errors.RefusedError, errors.LimitError)
    return next((kind(message) for kind in kinds if kind.exit_code == failure.exit_code), InputOutputError(message))


def raw(path: str) -> Read:
    """Return a function that reads the bytes of a file; it opens the file for each read because a log may have
    thousands.
    """
    return reopened(os.path.realpath(path))


def same_file(one: str, other: str) -> bool:
    """Return True if two paths name the same file."""
    return os.path.realpath(one) == os.path.realpath(other)
