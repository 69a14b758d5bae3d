"""Read and examine the logs of a repair: in the same way for the plan and for the check of its result."""

from __future__ import annotations

import os
from typing import NamedTuple

from msgspec.structs import replace

from binlogtool import errors, formats
from binlogtool.errors import InputOutputError
from binlogtool.formats.base import Format
from binlogtool.formats.detecting import Hints
from binlogtool.formats.layouts import RangeReader
from binlogtool.log.detect import find_format
from binlogtool.log.how import ReadOptions
from binlogtool.log.named import LogGroup, resolve_path
from binlogtool.log.source import make_reopening_reader
from binlogtool.recovery.report import PathFailure, Report, SkippedFiles, merge_reports, report_skipped_files
from binlogtool.recovery.verify import LogExamination, LogVerifyOptions, examine_log


class ExaminedLog(NamedTuple):
    """A log with what `verify` found in it."""

    log: LogGroup
    examination: LogExamination


class ExaminedPath(NamedTuple):
    """The logs that a path names, and the files of a directory that are not logs."""

    logs: list[ExaminedLog]
    skipped: tuple[SkippedFiles, ...]

    @property
    def report(self) -> Report:
        """The report on all logs of the path."""
        return replace(merge_reports(one.examination.report for one in self.logs), skipped=self.skipped)


class LogExaminer(ReadOptions, frozen=True):
    """Read options with the calls that examine logs by them."""

    @classmethod
    def from_read_options(cls, read_options: ReadOptions) -> LogExaminer:
        """Create an examiner from read options."""
        return cls(read_options.format, read_options.limits, read_options.backend, read_options.hints)

    @property
    def verify_options(self) -> LogVerifyOptions:
        """The options for `verify`."""
        return LogVerifyOptions(limits=self.limits, backend=self.backend, hints=self.hints or Hints())

    def examine_path(self, path: str) -> ExaminedPath:
        """Verify the logs that a path names.

        Raises:
            BinlogtoolError: the path cannot be read.
        """
        resolved = resolve_path(path, self.format)
        examined_logs = [ExaminedLog(log, examine_log(log, self.verify_options)) for log in resolved.groups]
        for failure in (one for log in examined_logs for one in log.examination.failures):
            raise make_exception(failure)
        return ExaminedPath(examined_logs, report_skipped_files(path, resolved.skipped).skipped)

    def make_report(self, path: str) -> Report:
        """Verify the logs that a path names; return one report."""
        return self.examine_path(path).report

    def get_format(self, name: str) -> Format:
        """Return the format of this name, in the variant that the user chose."""
        return formats.load_format(name) if self.format == "auto" else find_format(self.format)


def make_exception(failure: PathFailure) -> Exception:
    """Return the exception for a failure where there is nothing else to work on."""
    message = failure.message if failure.path in failure.message else f"{failure.path}: {failure.message}"
    kinds = (errors.UnknownFormatError, errors.RefusedError, errors.LimitError)
    return next((kind(message) for kind in kinds if kind.exit_code == failure.exit_code), InputOutputError(message))


def make_raw_reader(path: str) -> RangeReader:
    """Return a function that reads the bytes of a file; it opens the file for each read because a log may have
    thousands.
    """
    return make_reopening_reader(os.path.realpath(path))


def is_same_path(left: str, right: str) -> bool:
    """Return True if two paths name the same file."""
    return os.path.realpath(left) == os.path.realpath(right)
