"""Verify the logs that paths name, each in turn, also while a server writes them."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from typing import NamedTuple

from binlogtool.errors import BinlogtoolError, UsageError
from binlogtool.log.left import READABLE_COMPRESSED_SUFFIXES, is_compressed_log
from binlogtool.log.named import LogGroup, resolve_path
from binlogtool.recovery.report import Report, merge_reports, report_failure, report_skipped_files
from binlogtool.recovery.steady import verify_until_stable
from binlogtool.recovery.verify import LogVerifyOptions, verify_log


def verify_paths(
    paths: Iterable[str | os.PathLike[str]],
    format: str,
    options: LogVerifyOptions,
) -> Report:
    """See `binlogtool.verify`."""
    return merge_reports(part for path in paths for part in _verify_path(os.fspath(path), format, options))


class LogAtPath(NamedTuple):
    """A log to verify.

    Attributes:
        path: The PATH argument, or the compressed file of a directory, that named it.
    """

    path: str
    group: LogGroup


def find_logs(path: str, format: str) -> Iterator[LogAtPath | Report]:
    """List the logs at a path, compressed files of a directory included, and report what is not read.

    Raises:
        UsageError.
    """
    try:
        resolved = resolve_path(path, format)
    except UsageError:
        raise
    except BinlogtoolError as error:
        yield report_failure(path, error)
        return
    yield from (LogAtPath(path, group) for group in resolved.groups)
    compressed = [
        file
        for file in resolved.skipped
        if is_compressed_log(file) and file.name.endswith(READABLE_COMPRESSED_SUFFIXES)
    ]
    for file in compressed:
        yield from find_logs(os.path.join(path, file.name), format)
    yield report_skipped_files(path, [file for file in resolved.skipped if file not in compressed])


def _verify_path(path: str, format: str, options: LogVerifyOptions) -> Iterator[Report]:
    for entry in find_logs(path, format):
        if isinstance(entry, Report):
            yield entry
        elif options.live:
            yield verify_live_log(entry.group, entry.path, format, options)
        else:
            yield verify_log(entry.group, options)


def verify_live_log(group: LogGroup, path: str, format: str, options: LogVerifyOptions) -> Report:
    """Verify one of the logs at a path, which a server may be writing."""

    def relist() -> LogGroup | None:
        groups = resolve_path(path, format).groups
        return next((one for one in groups if (one.path, one.format) == (group.path, group.format)), None)

    return verify_until_stable(group, relist, options)
