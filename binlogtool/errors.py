"""Errors: reasons why the work cannot continue. Bad *data* is never an exception; it is a `Finding`."""

from __future__ import annotations


class BinlogtoolError(Exception):
    """Base of every error that a user may meet; `exit_code` is the exit status of the command."""

    exit_code = 70


class UnknownFormatError(BinlogtoolError):
    """The input is not a known log, or it is a version of a known format that is not supported."""

    exit_code = 3


class InputOutputError(BinlogtoolError):
    """A file, directory, stream or the environment cannot be used."""

    exit_code = 4


class FileVanishedError(InputOutputError):
    """The file does not exist, or no longer exists."""


class RefusedError(BinlogtoolError):
    """A safety rule forbids the work (live file, plan mismatch, loss bound, existing output)."""

    exit_code = 5


class LimitError(BinlogtoolError):
    """A limit (memory, time, record size) ended the work early."""

    exit_code = 6


class RepairFailedError(BinlogtoolError):
    """A repair was written but failed its check; the message says whether the original was restored."""

    exit_code = 7


class UsageError(BinlogtoolError):
    """The request contradicts itself or names something that does not exist."""

    exit_code = 2


class MissingExtraError(InputOutputError):
    """An optional dependency is missing; the message names the command that installs it."""
