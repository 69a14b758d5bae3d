"""Resolve a PATH argument to a file or to the logs in a directory."""

from __future__ import annotations

import os
from typing import NamedTuple

import msgspec

from binlogtool.formats.base import Format
from binlogtool.log import detect, watch
from binlogtool.log.left import SkippedFile
from binlogtool.log.logset import find_logs, find_logs_among
from binlogtool.log.source import is_url, list_remote_names


class LogGroup(msgspec.Struct, frozen=True):
    """One log that a PATH argument names: a set (directory) or a single file. Names are in the log's own order.

    strays: files with names of this log whose content does not belong to it; they are skipped.
    """

    path: str
    format: Format | None
    names: tuple[str, ...]
    is_set: bool
    strays: tuple[str, ...] = ()

    def member_path(self, name: str) -> str:
        """Return the path of a member."""
        return os.path.join(self.path, name) if self.is_set else self.path


class ResolvedPath(NamedTuple):
    """The logs that a path names, and the files of a directory that belong to none of them."""

    groups: list[LogGroup]
    skipped: list[SkippedFile]


def resolve_path(path: str, format_name: str) -> ResolvedPath:
    """Return the logs that a path names.

    Raises:
        InputOutputError, UnknownFormatError, UsageError.
    """
    only_format = None if format_name == "auto" else detect.find_format(format_name)
    if is_url(path):
        names = list_remote_names(path)
        listing = None if names is None else find_logs_among(path.rstrip("/"), names, only_format)
    else:
        listing = find_logs(path, only_format) if path != "-" and os.path.isdir(path) else None
    if listing is None:
        return ResolvedPath([LogGroup(path, only_format, (path,), False)], [])
    logs = [LogGroup(log.directory, log.format, tuple(log.names), True, tuple(log.strays)) for log in listing.logs]
    return ResolvedPath(logs, listing.skipped)


def resolve_logs(path: str, format_name: str) -> list[LogGroup]:
    """Return the logs that a path names; report skipped files to the progress listener. Raises as `resolve_path`."""
    resolved = resolve_path(path, format_name)
    watch.report_skipped_files(path, resolved.skipped)
    return resolved.groups
