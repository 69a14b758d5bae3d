"""Input files of a request, and whether they are unchanged at the end."""

from __future__ import annotations

import hashlib
import os
from collections import Counter
from collections.abc import Iterable, Sequence
from os import PathLike

from binlogtool.errors import InputOutputError, MissingExtraError, UsageError
from binlogtool.formats.detecting import Head
from binlogtool.log import detect
from binlogtool.log.how import How
from binlogtool.log.named import groups
from binlogtool.log.open import Log, open_log
from binlogtool.log.select import Selection
from binlogtool.log.source import base_name, is_url, open_source, read_head
from binlogtool.pipeline.manifest import Input

Stamp = tuple[int, int, int, int]

_AGAIN = "convert needs files, which it can read again and hash; use `dump` for streams"


def find_inputs(paths: Iterable[str | PathLike[str]], format: str, *, lenient: bool = False) -> list[Input]:
    """Return every file once, directories as their members in the log's own order, without `sha256` and `records`.

    lenient: a file that cannot be read becomes an input with its `trouble`.

    Raises:
        UsageError: standard input, the same file twice, or no path at all.
        UnknownFormatError, InputOutputError.
    """
    found = [one for path in paths for one in _expanded(os.fspath(path), format, lenient=lenient)]
    if not found:
        raise UsageError("name at least one file or directory")
    twice = [path for path, times in Counter(one.path for one in found).items() if times > 1]
    if twice:
        raise UsageError(f"{min(twice)} is named twice")
    return found


def _expanded(path: str, format: str, *, lenient: bool) -> list[Input]:
    if path == "-":
        raise UsageError(f"standard input: {_AGAIN}")
    return [_input(name, known, lenient=lenient) for name, known in files_of(path, format)]


def files_of(path: str, format: str) -> list[tuple[str, str]]:
    """Return each file that a path names, in the log's own order, with its format ("auto" = not detected yet).

    Raises:
        UnknownFormatError, InputOutputError, UsageError.
    """
    return [
        (log.member_path(name), format if log.format is None else log.format.spec)
        for log in groups(path, format)
        for name in log.names
    ]


def demand_columns(files: Sequence[str], where: str | None, how: How) -> None:
    """Check that some table has the columns that a condition names, after it selected nothing.

    Raises:
        UsageError: no table has such a column.
    """
    if where is not None and files:
        with open_log(files, how, Log) as log:
            log.demand_columns(where)


def demand_names(files: Sequence[str], selection: Selection, how: How) -> None:
    """Check that the names in a selection exist in these files, after it selected nothing.

    Raises:
        UsageError: a name does not exist.
    """
    if files:
        with open_log(files, how, Log) as log:
            log.unmatched(selection, 0).demand_none()


def _input(path: str, format: str, *, lenient: bool) -> Input:
    if not is_url(path) and os.path.exists(path) and not os.path.isfile(path):
        raise UsageError(f"{path}: {_AGAIN}")
    try:
        return Input(path, format_of(path, format), stamp(path)[0], "", 0)
    except InputOutputError as error:
        if not lenient or isinstance(error, MissingExtraError):
            raise
        return Input(path, "", 0, "", 0, str(error))


def format_of(path: str, format: str) -> str:
    """Return the name of a file's format. format: as the user named it, or "auto" to detect it.

    Raises:
        UnknownFormatError, InputOutputError, UsageError.
    """
    if format != "auto":
        return detect.by_name(format).spec
    source = open_source(path)
    try:
        return detect.detect(Head(read_head(source), base_name(path), source.size)).name
    finally:
        source.close()


def full_path(path: str) -> str:
    """Return a path that other processes understand; URLs are unchanged."""
    return path if is_url(path) else os.path.abspath(path)


def stamp(path: str) -> Stamp:
    """Return values that change when the file does: size, modification time in ns, device, inode (0 if unknown)."""
    if is_url(path):
        from binlogtool.pipeline.remote import remote_stamp

        return remote_stamp(path)
    try:
        stat = os.stat(path)
    except OSError as error:
        raise InputOutputError(f"{path}: cannot be read: {error.strerror}") from error
    return stat.st_size, stat.st_mtime_ns, stat.st_dev, stat.st_ino


def sha256(path: str) -> str:
    """Return the SHA-256 of a file's bytes as stored, as hexadecimal text."""
    if is_url(path):
        from binlogtool.pipeline.remote import remote_sha256

        return remote_sha256(path)
    try:
        with open(path, "rb") as file:
            return hashlib.file_digest(file, "sha256").hexdigest()
    except OSError as error:
        raise InputOutputError(f"{path}: cannot be read: {error.strerror}") from error
