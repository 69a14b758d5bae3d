"""One file opened for reading: its source, its format, and its layout."""

from __future__ import annotations

import os
import stat
from collections.abc import Callable, Iterable
from functools import partial
from typing import Any

import msgspec
from msgspec.structs import replace

from binlogtool.errors import InputOutputError, UsageError
from binlogtool.findings import Finding
from binlogtool.formats.base import Format
from binlogtool.formats.detecting import FileHead, Hints, PrecedingFiles, ReadableFile
from binlogtool.formats.heads import correct_head, make_correcting_layout
from binlogtool.formats.layouts import LogFileLayout, RangeReader
from binlogtool.limits import Limits
from binlogtool.log import detect
from binlogtool.log.source import (
    HEAD_BYTES,
    BytesSource,
    FileSource,
    Source,
    base_name,
    is_url,
    make_reopening_reader,
    open_source,
    read_range,
)
from binlogtool.log.window import Window

_MIB = 1 << 20


class LogFile(msgspec.Struct, frozen=True):
    """One file of a log. `name` is relative to the set's directory (the path itself when there is no set)."""

    path: str
    name: str
    format: Format
    layout: LogFileLayout
    source: Source
    window: Window
    head: bytes = b""
    """The first bytes of the file, up to those that its server changes later, as they were at opening."""

    def find_change(self) -> Finding | None:
        """Return a finding if the file changed since it was opened, other than by its server closing it."""
        change = self.source.find_change()
        if change is None or not self.head or change.facts.get("size_before") != change.facts.get("size_after"):
            return change
        first, last = self.format.files.mutable_header
        current_head = read_range(self.source, 0, len(self.head))
        is_same = current_head[:first] + current_head[last:] == self.head[:first] + self.head[last:]
        return None if is_same and current_head != self.head else change

    @property
    def size(self) -> int | None:
        """Size in bytes; None for a stream."""
        return self.source.size


class SiblingFiles(msgspec.Struct, frozen=True):
    """What is known about the other files of a log.

    Args:
        shared: the same dictionary for all of them (see `FileHead`).
        read_sibling: reader of other files of the directory, where they are not those on the disk.
        preceding: see `FileHead`.
    """

    shared: dict[str, Any] | None = None
    read_sibling: Callable[[str], RangeReader | None] | None = None
    preceding: PrecedingFiles | None = None


_NO_SIBLINGS = SiblingFiles()


def open_file(
    path: str,
    name: str,
    format_: Format | None,
    limits: Limits,
    source: Source | None = None,
    siblings: SiblingFiles = _NO_SIBLINGS,
    hints: Hints = Hints(),
) -> LogFile:
    """Open one file and read its head.

    Raises:
        InputOutputError, UnknownFormatError.
    """
    source = source or open_source(path)
    try:
        window = Window(source, _MIB)
        window.load(0, HEAD_BYTES)
        size = source.size if source.size is not None else (window.end if window.ended else None)
        peek = None if source.size is None else partial(read_range, source)
        data = bytes(window.view(0, HEAD_BYTES))
        read_sibling, shared = siblings.read_sibling, {} if siblings.shared is None else siblings.shared
        if read_sibling is None and source.size is not None and not isinstance(source, BytesSource):
            read_sibling = partial(make_sibling_reader, path)
        redo = None if hints.redo is None else make_readable_file(hints.redo)
        preceding = siblings.preceding
        if preceding is None and hints.earlier is not None:
            state = msgspec.json.decode(hints.earlier)
            preceding = PrecedingFiles(state["name"], partial(state.get, "carried"))
        head = FileHead(data, base_name(path), size, shared, peek, hints, read_sibling, redo, preceding)
        detected = format_ or detect.detect_format(head)
        _check_level(detected, hints)
        if hints.objects and hints.level is None:
            head = replace(head, hints=replace(hints, level=detected.reading.event_level))
        layout = _make_layout(detected, head, limits)
        if layout.decrypt is not None:
            source = _decrypt_source(source, layout)
            window = Window(source, _MIB)
        return LogFile(path, name, detected, layout, source, window, data[: detected.files.mutable_header[1]])
    except BaseException:
        source.close()
        raise


def _make_layout(format_: Format, head: FileHead, limits: Limits) -> LogFileLayout:
    """Return the layout of the file; for a damaged header that one flipped bit explains, that of the corrected one."""
    flips = (
        ()
        if format_.reading.find_header_flips is None or head.size is None
        else format_.reading.find_header_flips(head)
    )
    for flip in flips:
        layout = format_.reading.layout(correct_head(head, flip), limits)
        if layout.readable and layout.decrypt is None:
            return make_correcting_layout(layout, flip)
    return format_.reading.layout(head, limits)


def total_size(paths: Iterable[str]) -> int:
    """Return the total size of these files in bytes; files that are not local count as 0."""
    return sum(map(_file_size, paths))


def _file_size(path: str) -> int:
    try:
        status = os.stat(path)
    except OSError:  # it may have vanished meanwhile
        return 0
    return status.st_size if stat.S_ISREG(status.st_mode) else 0


def make_sibling_reader(path: str, name: str) -> RangeReader | None:
    """Return a reader of another file in the directory of `path`; it opens the file for each read."""
    if is_url(path):
        return _make_url_sibling_reader(path, os.path.basename(name))
    sibling_path = os.path.join(os.path.dirname(os.path.realpath(path)), os.path.basename(name))
    return (
        make_reopening_reader(sibling_path)
        if os.path.isfile(sibling_path) and not os.path.islink(sibling_path)
        else None
    )


def _make_url_sibling_reader(url: str, name: str) -> RangeReader | None:
    base, mark, query = url.partition("?")
    sibling_url = f"{os.path.dirname(base)}/{name}{mark}{query}"
    try:
        source = open_source(sibling_url)
    except InputOutputError:
        return None
    return partial(read_range, source)


def make_readable_file(path: str) -> ReadableFile:
    """Return a file that the user named; it is opened for each read.

    Raises:
        InputOutputError: it cannot be opened.
    """
    source = FileSource(path)
    source.close()
    return ReadableFile(make_reopening_reader(path), source.size or 0)


def _check_level(format_: Format, hints: Hints) -> None:
    level = hints.level
    if level is not None and level not in format_.reading.levels:
        known_levels = ", ".join(format_.reading.levels) or "only one"
        raise UsageError(f"--level {level}: {format_.name} has {known_levels}")
    if level is not None and hints.objects and format_.reading.event_level not in (None, level):
        text = f"--level {level}: such records of {format_.name} have no object, and are no statements"
        raise UsageError(f"{text}; --level {format_.reading.event_level} has these")


def _decrypt_source(source: Source, layout: LogFileLayout) -> Source:
    """Return the decrypted bytes of an encrypted file."""
    from binlogtool.log.veiled import DecryptedSource

    if source.size is None:
        raise InputOutputError(f"{source.name}: an encrypted log cannot be read from a stream; name the file")
    assert layout.decrypt is not None
    return DecryptedSource(source, layout.decrypt)
