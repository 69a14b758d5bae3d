"""Which files form one log, in which order. Links are not followed; depth and number of entries are bounded."""

from __future__ import annotations

import fnmatch
import os
from collections.abc import Iterator
from typing import NamedTuple

from binlogtool import formats
from binlogtool.errors import InputOutputError, UnknownFormatError
from binlogtool.formats.base import Format, Head
from binlogtool.log.source import FileSource, Source, is_url, open_source, read_head

MAX_DEPTH = 3
MAX_ENTRIES = 200_000
OWN_FILES = ".binlogtool-"
"""What repairs leave beside a log (undo files) has this in its name, and is no member of it."""


class Members(NamedTuple):
    """One log: its directory, and the names of its files relative to it, in the log's own order."""

    format: Format
    home: str
    names: list[str]


def members(directory: str, wanted: Format | None) -> list[Members]:
    """The logs in a directory and below it, those of one format together. wanted: only this format.

    Raises:
        InputOutputError: the directory cannot be read. UnknownFormatError: there is no log in it.
    """
    candidates = _candidates(wanted)  # loaded before the names are read: files come and go
    return _among(directory, list(_files(directory)), candidates, sure=wanted is not None)


def members_among(directory: str, names: list[str], wanted: Format | None) -> list[Members]:
    """The same, of a directory (or its URL) where the files with these names are."""
    return _among(directory, names, _candidates(wanted), sure=wanted is not None)


def _candidates(wanted: Format | None) -> list[Format]:
    return [wanted] if wanted else [formats.get(name) for name in formats.names()]


def _among(directory: str, names: list[str], candidates: list[Format], *, sure: bool) -> list[Members]:
    found = [log for format_ in candidates for log in _logs(directory, names, format_, sure=sure)]
    if not found:
        raise UnknownFormatError(f"{directory}: no log files of a known format in this directory")
    return found


def _logs(directory: str, names: list[str], format_: Format, *, sure: bool) -> list[Members]:
    """The logs of one format, by the directory that each of its files says it belongs to.

    A log has at least one file that holds the format's content, unless the user named the format.
    """
    homes: dict[str, list[str]] = {}
    for name in names:
        if any(fnmatch.fnmatchcase(os.path.basename(name), pattern) for pattern in format_.members):
            home = (format_.home or os.path.dirname)(name)
            homes.setdefault(home, []).append(os.path.relpath(name, home) if home else name)
    order = format_.order or sorted
    logs = []
    for home in sorted(homes):
        top = os.path.join(directory, home) if home else directory
        if sure or any(_fits(os.path.join(top, name), format_) for name in homes[home]):
            logs.append(Members(format_, top, order(homes[home])))
    return logs


def _fits(path: str, format_: Format) -> bool:
    source: Source
    try:
        source = open_source(path) if is_url(path) else FileSource(path)
    except InputOutputError:
        return False
    try:
        return format_.detect(Head(read_head(source), os.path.basename(path), source.size)).score > 0
    finally:
        source.close()


def _files(directory: str) -> Iterator[str]:
    seen = 0
    pending = [("", 0)]
    while pending:
        below, depth = pending.pop()
        try:
            entries = sorted(os.scandir(os.path.join(directory, below)), key=lambda entry: entry.name)
        except OSError as error:
            if below and isinstance(error, FileNotFoundError):  # a directory of the log that is gone meanwhile
                continue
            raise InputOutputError(f"{os.path.join(directory, below)}: cannot be listed: {error.strerror}") from error
        for entry in entries:
            seen += 1
            if seen > MAX_ENTRIES:
                raise InputOutputError(f"{directory}: more than {MAX_ENTRIES:,} entries; name the files instead")
            name = os.path.join(below, entry.name)
            if entry.is_dir(follow_symlinks=False):
                if depth < MAX_DEPTH:
                    pending.append((name, depth + 1))
            elif entry.is_file(follow_symlinks=False) and OWN_FILES not in entry.name:
                yield name
