"""Which files form one log, in which order. Links are not followed; depth and number of entries are bounded."""

from __future__ import annotations

import fnmatch
import os
from collections.abc import Iterator

from binlogtool import formats
from binlogtool.errors import InputOutputError, UnknownFormatError
from binlogtool.formats.base import Format, Head
from binlogtool.log.source import FileSource, read_head

MAX_DEPTH = 3
MAX_ENTRIES = 200_000


def members(directory: str, wanted: Format | None) -> list[tuple[Format, list[str]]]:
    """The logs in a directory: each format found there, with its members' names in the log's own order.

    wanted: only this format. Names are relative to the directory.

    Raises:
        InputOutputError: the directory cannot be read. UnknownFormatError: there is no log in it.
    """
    candidates = [wanted] if wanted else [formats.get(name) for name in formats.names()]
    names = list(_files(directory))
    found = [(format_, _own(directory, names, format_, sure=wanted is not None)) for format_ in candidates]
    found = [(format_, own) for format_, own in found if own]
    if not found:
        raise UnknownFormatError(f"{directory}: no log files of a known format in this directory")
    return [(format_, (format_.order or sorted)(own)) for format_, own in found]


def _own(directory: str, names: list[str], format_: Format, *, sure: bool) -> list[str]:
    """The names that match the format's patterns, if at least one of them holds its content."""
    own = [n for n in names if any(fnmatch.fnmatchcase(os.path.basename(n), p) for p in format_.members)]
    return own if sure or any(_fits(os.path.join(directory, name), format_) for name in own) else []


def _fits(path: str, format_: Format) -> bool:
    try:
        source = FileSource(path)
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
            raise InputOutputError(f"{os.path.join(directory, below)}: cannot be listed: {error.strerror}") from error
        for entry in entries:
            seen += 1
            if seen > MAX_ENTRIES:
                raise InputOutputError(f"{directory}: more than {MAX_ENTRIES:,} entries; name the files instead")
            name = os.path.join(below, entry.name)
            if entry.is_dir(follow_symlinks=False):
                if depth < MAX_DEPTH:
                    pending.append((name, depth + 1))
            elif entry.is_file(follow_symlinks=False):
                yield name
