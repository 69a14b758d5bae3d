"""The files behind the words of a request, and whether they are still the same at the end."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterable
from os import PathLike
from pathlib import Path

from binlogtool.errors import InputOutputError, UsageError
from binlogtool.formats.base import Head
from binlogtool.log import detect
from binlogtool.log.logset import members
from binlogtool.log.source import base_name, is_url, open_source, open_urls_with, read_head
from binlogtool.pipeline.manifest import Input

Stamp = tuple[int, int, int, int]


def find_inputs(paths: Iterable[str | PathLike[str]], format: str) -> list[Input]:
    """Every file once, directories as their members in the log's own order. `records` is not known yet (0).

    Raises:
        UsageError: standard input, the same file twice, or no path at all.
        UnknownFormatError, InputOutputError.
    """
    found = [one for path in paths for one in _expanded(os.fspath(path), format)]
    if not found:
        raise UsageError("name at least one file or directory")
    twice = {p for p in (i.path for i in found) if sum(p == other.path for other in found) > 1}
    if twice:
        raise UsageError(f"{min(twice)} is named twice")
    return found


def _expanded(path: str, format: str) -> list[Input]:
    if path == "-":
        raise UsageError("convert needs files, which it can read again and hash; use `dump` for standard input")
    return [_input(name, _format_of(name, known)) for name, known in files_of(path, format)]


def files_of(path: str, format: str) -> list[tuple[str, str]]:
    """Each file that a path names, in the log's own order, with its format ("auto" = not looked at).

    Raises:
        UnknownFormatError, InputOutputError.
    """
    if is_url(path):
        from binlogtool.pipeline.remote import remote_files

        allow_urls()
        return remote_files(path, format)
    if not Path(path).is_dir():
        return [(path, format)]
    wanted = None if format == "auto" else detect.by_name(format)
    logs = members(path, wanted)
    return [(os.path.join(log.home, name), log.format.spec) for log in logs for name in log.names]


def allow_urls() -> None:
    """Lets URLs be opened in this process."""
    from binlogtool.pipeline.remote import open_remote

    open_urls_with(open_remote)


def _format_of(path: str, format: str) -> str:
    if format != "auto":
        return detect.by_name(format).spec
    if is_url(path):
        allow_urls()
    source = open_source(path)
    try:
        return detect.detect(Head(read_head(source), base_name(path), source.size)).name
    finally:
        source.close()


def _input(path: str, format: str) -> Input:
    return Input(path, format, stamp(path)[0], sha256(path), 0)


def full_path(path: str) -> str:
    """A path that other processes understand, too."""
    return path if is_url(path) else os.path.abspath(path)


def stamp(path: str) -> Stamp:
    """What changes when a file does: size in bytes, modification time in ns, device, inode (0 where there is none)."""
    if is_url(path):
        from binlogtool.pipeline.remote import remote_stamp

        return remote_stamp(path)
    try:
        stat = os.stat(path)
    except OSError as error:
        raise InputOutputError(f"{path}: cannot be read: {error.strerror}") from error
    return stat.st_size, stat.st_mtime_ns, stat.st_dev, stat.st_ino


def sha256(path: str) -> str:
    """The hash of a file's bytes as they are stored."""
    if is_url(path):
        from binlogtool.pipeline.remote import remote_sha256

        return remote_sha256(path)
    try:
        with open(path, "rb") as file:
            return hashlib.file_digest(file, "sha256").hexdigest()
    except OSError as error:
        raise InputOutputError(f"{path}: cannot be read: {error.strerror}") from error
