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
from binlogtool.formats.detecting import Earlier, Head, Hints, Readable
from binlogtool.formats.heads import corrected, unveiled
from binlogtool.formats.layouts import Layout, Read
from binlogtool.limits import Limits
from binlogtool.log import detect
from binlogtool.log.source import (
    HEAD_BYTES,
    BytesSource,
    FileSource,
    Source,
    base_name,
    is_url,
    open_source,
    read_range,
    reopened,
)
from binlogtool.log.window import Window

_MIB = 1 << 20


class LogFile(msgspec.Struct, frozen=True):
    """One file of a log. `name` is relative to the set's directory (the path itself when there is no set)."""

    path: str
    name: str
    format: Format
    layout: Layout
    source: Source
    window: Window
    head: bytes = b""
    """The first bytes of the file, up to those that its server changes later, as they were at opening."""

    def changed(self) -> Finding | None:
        """Return a finding if the file changed since it was opened, other than by its server closing it."""
        found = self.source.changed()
        if found is None or not self.head or found.facts.get("size_before") != found.facts.get("size_after"):
            return found
        first, last = self.format.files.rewritten
        now = read_range(self.source, 0, len(self.head))
        same = now[:first] + now[last:] == self.head[:first] + self.head[last:]
        return None if same and now != self.head else found

    @property
    def size(self) -> int | None:
        """Size in bytes; None for a stream."""
        return self.source.size


class Around(msgspec.Struct, frozen=True):
    """What is known about the other files of a log.

    Args:
        shared: the same dictionary for all of them (see `FileHead`).
        read_sibling: reader of other files of the directory, where they are not those on the disk.
        preceding: see `FileHead`.
    """

    shared: dict[str, Any] | None = None
    beside: Callable[[str], Read | None] | None = None
    earlier: Earlier | None = None


_ALONE = Around()


def open_file(
    path: str,
    name: str,
    format_: Format | None,
    limits: Limits,
    source: Source | None = None,
    around: Around = _ALONE,
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
        beside, shared = around.beside, {} if around.shared is None else around.shared
        if beside is None and source.size is not None and not isinstance(source, BytesSource):
            beside = partial(read_beside, path)
        redo = None if hints.redo is None else readable(hints.redo)
        earlier = around.earlier
        if earlier is None and hints.earlier is not None:
            known = msgspec.json.decode(hints.earlier)
            earlier = Earlier(known["name"], partial(known.get, "carried"))
        head = Head(data, base_name(path), size, shared, peek, hints, beside, redo, earlier)
        chosen = format_ or detect.detect(head)
        _check_level(chosen, hints)
        if hints.objects and hints.level is None:
            head = replace(head, hints=replace(hints, level=chosen.reading.event_level))
        layout = _layout(chosen, head, limits)
        if layout.unveil is not None:
            source = _unveiled(source, layout)
            window = Window(source, _MIB)
        return LogFile(path, name, chosen, layout, source, window, data[: chosen.files.rewritten[1]])
    except BaseException:
        source.close()
        raise


def _layout(format_: Format, head: Head, limits: Limits) -> Layout:
    """Return the layout of the file; for a damaged header that one flipped bit explains, that of the corrected one."""
    flips = () if format_.reading.heads is None or head.size is None else format_.reading.heads(head)
    for flip in flips:
        made = format_.reading.layout(corrected(head, flip), limits)
        if made.readable and made.unveil is None:
            return unveiled(made, flip)
    return format_.reading.layout(head, limits)


def volume(paths: Iterable[str]) -> int:
    """Return the total size of these files in bytes; files that are not local count as 0."""
    return sum(map(_size_of, paths))


def _size_of(path: str) -> int:
    try:
        status = os.stat(path)
    except OSError:  # it may have vanished meanwhile
        return 0
    return status.st_size if stat.S_ISREG(status.st_mode) else 0


def read_beside(path: str, name: str) -> Read | None:
    """Return a reader of another file in the directory of `path`; it opens the file for each read."""
    if is_url(path):
        return _beside_url(path, os.path.basename(name))
    other = os.path.join(os.path.dirname(os.path.realpath(path)), os.path.basename(name))
    return reopened(other) if os.path.isfile(other) and not os.path.islink(other) else None


def _beside_url(url: str, name: str) -> Read | None:
    place, mark, query = url.partition("?")
    other = f"{os.path.dirname(place)}/{name}{mark}{query}"
    try:
        source = open_source(other)
    except InputOutputError:
        return None
    return partial(read_range, source)


def readable(path: str) -> Readable:
    """Return a file that the user named; it is opened for each read.

    Raises:
        InputOutputError: it cannot be opened.
    """
    source = FileSource(path)
    source.close()
    return Readable(reopened(path), source.size or 0)


def _check_level(format_: Format, hints: Hints) -> None:
    level = hints.level
    if level is not None and level not in format_.reading.levels:
        known = ", ".join(format_.reading.levels) or "only one"
        raise UsageError(f"--level {level}: {format_.name} has {known}")
    if level is not None and hints.objects and format_.reading.event_level not in (None, level):
        text = f"--level {level}: such records of {format_.name} have no object, and are no statements"
        raise UsageError(f"{text}; --level {format_.reading.event_level} has these")


def _unveiled(source: Source, layout: Layout) -> Source:
    """Return the decrypted bytes of an encrypted file."""
    from binlogtool.log.veiled import VeiledSource

    if source.size is None:
        raise InputOutputError(f"{source.name}: an encrypted log cannot be read from a stream; name the file")
    assert layout.unveil is not None
    return VeiledSource(source, layout.unveil)
