"""Input files of a request, and whether they are unchanged at the end."""

from __future__ import annotations

import hashlib
import os
from collections import Counter
from collections.abc import Iterable, Sequence
from os import PathLike

from binlogtool.errors import InputOutputError, MissingExtraError, UsageError
from binlogtool.formats.detecting import FileHead
from binlogtool.log import detect
from binlogtool.log.how import ReadOptions
from binlogtool.log.named import resolve_logs
from binlogtool.log.open import LogReader, open_log
from binlogtool.log.select import Selection
from binlogtool.log.source import base_name, is_url, open_source, read_head
from binlogtool.pipeline.manifest import ManifestInput

FileStamp = tuple[int, int, int, int]

_NEEDS_FILES = "convert needs files, which it can read again and hash; use `dump` for streams"


def find_inputs(paths: Iterable[str | PathLike[str]], format: str, *, lenient: bool = False) -> list[ManifestInput]:
    """Return every file once, directories as their members in the log's own order, without `sha256` and `records`.

    lenient: a file that cannot be read becomes an input with its `trouble`.

    Raises:
        UsageError: standard input, the same file twice, or no path at all.
        UnknownFormatError, InputOutputError.
    """
    inputs = [one for path in paths for one in _expand_path(os.fspath(path), format, lenient=lenient)]
    if not inputs:
        raise UsageError("name at least one file or directory")
    duplicates = [path for path, times in Counter(one.path for one in inputs).items() if times > 1]
    if duplicates:
        raise UsageError(f"{min(duplicates)} is named twice")
    return inputs


def _expand_path(path: str, format: str, *, lenient: bool) -> list[ManifestInput]:
    if path == "-":
        raise UsageError(f"standard input: {_NEEDS_FILES}")
    return [_describe_input(name, known, lenient=lenient) for name, known in list_files(path, format)]


def list_files(path: str, format: str) -> list[tuple[str, str]]:
    """Return each file that a path names, in the log's own order, with its format ("auto" = not detected yet).

    Raises:
        UnknownFormatError, InputOutputError, UsageError.
    """
    return [
        (log.member_path(name), format if log.format is None else log.format.spec)
        for log in resolve_logs(path, format)
        for name in log.names
    ]


def check_columns_exist(files: Sequence[str], where: str | None, read_options: ReadOptions) -> None:
    """Check that some table has the columns that a condition names, after it selected nothing.

    Raises:
        UsageError: no table has such a column.
    """
    if where is not None and files:
        with open_log(files, read_options, LogReader) as log:
            log.require_columns(where)


def check_names_exist(files: Sequence[str], selection: Selection, read_options: ReadOptions) -> None:
    """Check that the names in a selection exist in these files, after it selected nothing.

    Raises:
        UsageError: a name does not exist.
    """
    if files:
        with open_log(files, read_options, LogReader) as log:
            log.find_unmatched(selection, 0).require_none()


def _describe_input(path: str, format: str, *, lenient: bool) -> ManifestInput:
    if not is_url(path) and os.path.exists(path) and not os.path.isfile(path):
        raise UsageError(f"{path}: {_NEEDS_FILES}")
    try:
        return ManifestInput(path, resolve_format(path, format), read_stamp(path)[0], "", 0)
    except InputOutputError as error:
        if not lenient or isinstance(error, MissingExtraError):
            raise
        return ManifestInput(path, "", 0, "", 0, str(error))


def resolve_format(path: str, format: str) -> str:
    """Return the name of a file's format. format: as the user named it, or "auto" to detect it.

    Raises:
        UnknownFormatError, InputOutputError, UsageError.
    """
    if format != "auto":
        return detect.find_format(format).spec
    source = open_source(path)
    try:
        return detect.detect_format(FileHead(read_head(source), base_name(path), source.size)).name
    finally:
        source.close()


def absolute_path(path: str) -> str:
    """Return a path that other processes understand; URLs are unchanged."""
    return path if is_url(path) else os.path.abspath(path)


def read_stamp(path: str) -> FileStamp:
    """Return values that change when the file does: size, modification time in ns, device, inode (0 if unknown)."""
    if is_url(path):
        from binlogtool.pipeline.remote import read_remote_stamp

        return read_remote_stamp(path)
    try:
        stat = os.stat(path)
    except OSError as error:
        raise InputOutputError(f"{path}: cannot be read: {error.strerror}") from error
    return stat.st_size, stat.st_mtime_ns, stat.st_dev, stat.st_ino


def hash_file(path: str) -> str:
    """Return the SHA-256 of a file's bytes as stored, as hexadecimal text."""
    if is_url(path):
        from binlogtool.pipeline.remote import hash_remote_file

        return hash_remote_file(path)
    try:
        with open(path, "rb") as file:
            return hashlib.file_digest(file, "sha256").hexdigest()
    except OSError as error:
        raise InputOutputError(f"{path}: cannot be read: {error.strerror}") from error
