"""Why work cannot go on. Bad *data* is never an exception: it is a `Finding`."""

from __future__ import annotations


class BinlogtoolError(Exception):
    """Base of every error that a user may meet; `exit_code` is what the command ends with (cli.md 6.11)."""

    exit_code = 70


class UnknownFormatError(BinlogtoolError):
    """Not a known log, or a known format in an unsupported version."""

    exit_code = 3


class InputOutputError(BinlogtoolError):
    """The file, directory, stream or environment cannot be used."""

    exit_code = 4


class VanishedError(InputOutputError):
    """There is no file of this name, or no longer."""


class RefusedError(BinlogtoolError):
    """A safety rule forbids the work (live file, plan mismatch, loss bound, existing output)."""

    exit_code = 5


class LimitError(BinlogtoolError):
    """A limit (memory, time, record size) ended the work early."""

    exit_code = 6


class RestoredError(BinlogtoolError):
    """A repair was made but did not hold; the message says whether the original could be restored."""

    exit_code = 7


class UsageError(BinlogtoolError):
    """The request contradicts itself or names something that does not exist."""

    exit_code = 2


class MissingExtraError(InputOutputError):
    """An optional part of the installation is needed; the message names the command that installs it."""
