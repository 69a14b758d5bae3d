"""What a format tells the engine about repairs, beyond where its durable part ends."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, NamedTuple

import msgspec

from binlogtool.findings import Finding

if TYPE_CHECKING:
    from binlogtool.formats.detecting import Readable
    from binlogtool.formats.layouts import Layout, Read


class EngineLock(msgspec.Struct, frozen=True):
    """A lock that a running server has. name: relative to the directory of the log ("" = that directory itself).

    kind: "flock", or "record" (the POSIX write lock).
    """

    name: str
    kind: str


class Edit(NamedTuple):
    """A few bytes of a file that get another value, at a file offset; both have the same length."""

    offset: int
    old: bytes
    new: bytes


class Piece(NamedTuple):
    """One run of the bytes of a result: `[start, end)` of the file as it is, or new bytes: `data`, or so many zeros."""

    start: int = 0
    end: int = 0
    data: bytes | None = None
    zeros: int = 0

    @property
    def kept(self) -> bool:
        """Are these bytes of the file as it is?"""
        return self.data is None and not self.zeros

    @property
    def size(self) -> int:
        """Bytes."""
        return self.end - self.start if self.kept else self.zeros or len(self.data or b"")


class Mending(NamedTuple):
    """A frame in a damaged range that is proven but for its head: `head` takes the place of as many bytes at `start`.

    Both places count from the start of the range; `end`: of the frame. No checksum is made anew.
    """

    start: int
    head: bytes
    end: int


class Stand(msgspec.Struct, frozen=True):
    """One file of a log as `verify` found it. record_types: complete records by type. read: its bytes."""

    name: str
    size: int
    durable_end: int | None
    record_types: Mapping[str, int]
    findings: tuple[Finding, ...]
    read: Read


class Remade(msgspec.Struct, frozen=True):
    """What becomes of a file of a log. action: zero-fill, rewrite or remove (then there are no pieces).

    durable_end: offset in the file, None = nothing of it is durable. lost: bytes of content, not zeros or padding,
    that go. proof: what the plan says of it beyond the usual. like: where there is no such file: the one whose mode
    and owner it gets.
    """

    name: str
    action: str
    pieces: tuple[Piece, ...]
    durable_end: int | None
    lost: int
    proof: Mapping[str, Any] = msgspec.field(default_factory=lambda: MappingProxyType({}))
    like: str | None = None


class Settled(msgspec.Struct, frozen=True):
    """The repair of a log whose files change together. files: those that change. reasons: why it must not be done.

    proven: what goes was never durable, by a redo log; else no complete record goes without the user's consent.
    """

    files: tuple[Remade, ...] = ()
    reasons: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()
    proven: bool = False


Settle = Callable[[Sequence[Stand], "Readable | None", bool], Settled]
"""All files of a log in its order, the redo log that the user named, may complete records behind damage go? -> what
becomes of the log. What the result would have of damage is found by the engine."""


class Mended(msgspec.Struct, frozen=True):
    """A file of the log's directory without records, and what it should contain. why: said in the plan.

    like: where there is no such file: the one whose mode and owner it gets. content: None = the file goes; the undo
    file keeps its bytes.
    """

    name: str
    content: bytes | None
    why: str
    like: str | None = None


class Repair(msgspec.Struct, frozen=True):
    """What the engine of a format needs for a repair beyond the cut to the durable end.

    locks: those of a running server. close_mark: layout -> the bytes that close a file of this kind where it ends
        behind a whole record, or None. head_edits: layout, the raw bytes of the file -> what `--fix-meta` changes in
        the file itself; edits_note: what the user should know of it. mend: names of the log's files, bytes of one of
        them -> files that `--fix-meta` brings in line with the log.
    salvage: why a log with records left out cannot be made, or None; of a file, where it depends on that.
        gaps: what missing records in the middle mean to the server, shown with a salvaged log. numbered: each record
        has a number, and no number is left out: where `verify` finds no gap, nothing is missing. mend_frames: layout,
        a damaged range -> frames of it that are whole but for their head, in order.
    settle: for logs that are no file of records with an end: says itself what becomes of every file; then nothing is
        cut at a durable end of a file by itself.
    derived: types of records that only repeat what others say, as a server writes them anew: of those that stand inside
        an unfinished record none is lost with it.
    transactions: where whole records of an unfinished transaction are durable, the member of the judge's details with
        the end of the last record, before any damage, that belongs to no such transaction: what `--transactions` cuts
        behind.
    redo: where the redo log that recovers a log lies, from the log's directory, the usual place first.
    """

    locks: tuple[EngineLock, ...] = ()
    close_mark: Callable[[Layout], bytes | None] | None = None
    head_edits: Callable[[Layout, Read], Sequence[Edit]] | None = None
    edits_note: str = ""
    mend: Callable[[Sequence[str], Callable[[str], Read]], Iterable[Mended]] | None = None
    gaps: str = ""
    numbered: bool = False
    salvage: str | Callable[[Layout], str | None] | None = None
    mend_frames: Callable[[Layout, bytes], Iterable[Mending]] | None = None
    derived: frozenset[str] = frozenset()
    transactions: str | None = None
    settle: Settle | None = None
    redo: tuple[str, ...] = ()

    def no_salvage(self, layout: Layout | None = None) -> str | None:
        """Why nothing may be left out of a file with this layout (None: of a log as a whole)."""
        if not callable(self.salvage):
            return self.salvage
        return None if layout is None else self.salvage(layout)


HELPLESS = "whole_or_nothing"
"""Fact of a finding: no cut makes a file of this kind that its server takes; another copy of it is needed."""
SERVER_CUTS = "server_cuts_tail"
"""Member of the judge's details: True = the server itself cuts whatever stands behind the durable end, if it holds no
complete record."""

PLAIN = Repair()
"""Nothing beyond the cut."""
