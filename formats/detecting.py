"""What a format sees of a file before it is read: its head, and what the user added; how well the head fits."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import msgspec

from binlogtool.formats.layouts import Read


class Match(NamedTuple):
    """How well a file's head fits a format: 0 = not at all, 100 = certain, with the reason in words.

    From 50 on a head or a record is proven; from 20 on a server may leave it so, torn in its head.
    """

    score: int
    reason: str

    @property
    def proven(self) -> bool:
        """Is it by its content?"""
        return self.score >= 50


class Readable(NamedTuple):
    """A file that is read in parts: how, and its size in bytes."""

    read: Read
    size: int


class Hints(msgspec.Struct, frozen=True):
    """What the user knows and the log does not say: contents of files that were named, None = not given.

    keyfile: keys of encrypted logs (a key file or a keyring). keyfile_secret: what the key file itself is encrypted
    with. schema: CREATE TABLE statements, for names and types of columns. level: what is to be a record, by the name
    of one of the format's `levels`. redo: the path of the redo log that recovery would use. objects: records are asked
    for by their object, or as statements, so that, where `level` is not given, they are those that have one. as_stored:
    what the log's statements say of its columns is not applied: a state is the same wherever they were lost or never
    stood. earlier: what the files before the first one carry over, as JSON ({"name": of the last one, "carried": …}).
    """

    keyfile: bytes | None = None
    keyfile_secret: bytes | None = None
    schema: str | None = None
    level: str | None = None
    redo: str | None = None
    objects: bool = False
    as_stored: bool = False
    earlier: str | None = None


class Earlier(msgspec.Struct, frozen=True):
    """What the files before a file of a log carry over to it. name: of the last one of them. carried: computes it, as
    `formats.cuts.Cutter.carried` gives it at the end of that file."""

    name: str
    carried: Callable[[], Any]


class Head(msgspec.Struct, frozen=True):
    """What `layout` and `detect` may look at: the first bytes of a file (at most 4 KiB), its name and its size.

    `size` is None for a stream. `whole` says that `data` is all there is. `shared` is one dictionary for all files of a
    log, in the log's order: what a format learns in one file and needs in the next (names of spaces, table maps).
    `peek` reads `[offset, offset + size)` anywhere in the file, shorter at its end; None for a stream. It is meant for
    few and small reads. hints: what the user added. beside: name of a file in the same directory -> its bytes, or None
    if there is none (links are not followed); None where the file has no directory. redo: the redo log
    that the user named. earlier: what the files before this one of its log carry over, see `Earlier`.
    """

    data: bytes
    name: str
    size: int | None
    shared: dict[str, Any] = msgspec.field(default_factory=dict)
    peek: Callable[[int, int], bytes] | None = None
    hints: Hints = Hints()
    beside: Callable[[str], Read | None] | None = None
    redo: Readable | None = None
    earlier: Earlier | None = None

    @property
    def whole(self) -> bool:
        """True when the file is not longer than `data`."""
        return self.size is not None and self.size <= len(self.data)
