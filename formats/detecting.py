"""Detection: the head of a file, the user's hints, and how well the head fits a format."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import msgspec

from binlogtool.formats.layouts import RangeReader


class FormatMatch(NamedTuple):
    """How well a file's head fits a format: score 0 = not at all, 100 = certain, with the reason as text.

    From 50 on a head or a record is proven; from 20 on a server may leave such a file, with a torn head.
    """

    score: int
    reason: str

    @property
    def is_proven(self) -> bool:
        """True if the content proves the format."""
        return self.score >= 50


class ReadableFile(NamedTuple):
    """A file that is read in parts: a read function, and its size in bytes."""

    read: RangeReader
    size: int


class Hints(msgspec.Struct, frozen=True):
    """What the user knows and the log does not contain: contents of files that were named; None = not given.

    Args:
        keyfile: keys of encrypted logs (a key file or a keyring).
        keyfile_secret: what the key file itself is encrypted with.
        schema: CREATE TABLE statements, for names and types of columns.
        level: what counts as a record, by the name of one of the format's `levels`.
        redo: path of the redo log that recovery would use.
        objects: records are selected by object, or as statements: if `level` is not given, use the one whose records
            have an object.
        as_stored: do not apply what the log's statements say about its columns, so that the state is the same
            wherever
            statements were lost or never present.
        earlier: the state that the files before the first one carry over, as JSON ({"name": of the last one,
            "carried":
            …}).
    """

    keyfile: bytes | None = None
    keyfile_secret: bytes | None = None
    schema: str | None = None
    level: str | None = None
    redo: str | None = None
    objects: bool = False
    as_stored: bool = False
    earlier: str | None = None


class PrecedingFiles(msgspec.Struct, frozen=True):
    """The files before a file of a log, and the state that they carry over.

    last_name: name of the last one. compute_state: computes `SplitFinder.export_state` at the end of that file.
    """

    last_name: str
    compute_state: Callable[[], Any]


class FileHead(msgspec.Struct, frozen=True):
    """What `layout` and `detect` may look at: the first bytes of a file (at most 4 KiB), its name and its size.

    Args:
        size: None for a stream.
        shared: one dictionary for all files of a log, in the log's order: what a format learns in one file and needs
            in
            the next (names of spaces, table maps).
        peek: reads `[offset, offset + size)` anywhere in the file, shorter at its end; None for a stream. For few and
            small reads.
        hints: from the user.
        read_sibling: name of a file in the same directory -> its reader, or None if there is none (links are not
            followed); None where the file has no directory.
        redo: the redo log that the user named.
        preceding: the files before this one, see `PrecedingFiles`.
    """

    data: bytes
    name: str
    size: int | None
    shared: dict[str, Any] = msgspec.field(default_factory=dict)
    peek: Callable[[int, int], bytes] | None = None
    hints: Hints = Hints()
    read_sibling: Callable[[str], RangeReader | None] | None = None
    redo: ReadableFile | None = None
    preceding: PrecedingFiles | None = None

    @property
    def is_whole(self) -> bool:
        """True when `data` is the whole file."""
        return self.size is not None and self.size <= len(self.data)
