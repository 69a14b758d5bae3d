"""Resolve a PATH argument to a file or to the logs in a directory."""

from __future__ import annotations

import os
from typing import NamedTuple

import msgspec

from binlogtool.formats.base import Format
from binlogtool.log import detect, watch
from binlogtool.log.left import Left
from binlogtool.log.logset import members, members_among
from binlogtool.log.source import is_url, names_at


class Group(msgspec.Struct, frozen=True):
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


class Named(NamedTuple):
    """The logs that a path names, and the files of a directory that belong to none of them."""

    groups: list[Group]
    left: list[Left]


def named(path: str, format_name: str) -> Named:
    """Return the logs that a path names.

    Raises:
        InputOutputError, UnknownFormatError, UsageError.
    """
    wanted = None if format_name == "auto" else detect.by_name(format_name)
    if is_url(path):
        names = names_at(path)
        found = None if names is None else members_among(path.rstrip("/"), names, wanted)
    else:
        found = members(path, wanted) if path != "-" and os.path.isdir(path) else None
    if found is None:
        return Named([Group(path, wanted, (path,), False)], [])
    logs = [Group(log.home, log.format, tuple(log.names), True, tuple(log.strays)) for log in found.logs]
    return Named(logs, found.left)


def groups(path: str, format_name: str) -> list[Group]:
    """Return the logs that a path names; report skipped files to the progress listener. Raises as `resolve_path`."""
    found = named(path, format_name)
    watch.left(path, found.left)
    return found.groups
