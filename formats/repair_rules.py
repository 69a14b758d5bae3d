"""What a format tells the engine about repairs, beyond the end of its durable part."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, NamedTuple

import msgspec

from binlogtool.findings import Finding

if TYPE_CHECKING:
    from binlogtool.formats.detecting import ReadableFile
    from binlogtool.formats.layouts import LogFileLayout, RangeReader


class EngineLock(msgspec.Struct, frozen=True):
    """A lock that a running server holds. name: relative to the directory of the log ("" = that directory itself).

    kind: "flock", or "record" (the POSIX write lock).
    """

    name: str
    kind: str


class ByteEdit(NamedTuple):
    """A replacement of a few bytes at a file offset; `old` and `new` have the same length."""

    offset: int
    old: bytes
    new: bytes


class ResultPiece(NamedTuple):
    """One run of bytes of a repaired file: `[start, end)` of the original, or new bytes: `data`, or so many zeros."""

    start: int = 0
    end: int = 0
    data: bytes | None = None
    zeros: int = 0

    @property
    def is_original(self) -> bool:
        """True if these are bytes of the original file."""
        return self.data is None and not self.zeros

    @property
    def size(self) -> int:
        """Size in bytes."""
        return self.end - self.start if self.is_original else self.zeros or len(self.data or b"")


class FrameHeaderFix(NamedTuple):
    """A frame in a damaged range that is proven except for its header: `head` replaces as many bytes at `start`.

    start, end: of the frame, from the start of the range. No checksum is recomputed.
    """

    start: int
    head: bytes
    end: int


class VerifiedFile(msgspec.Struct, frozen=True):
    """One file of a log as `verify` found it. record_types: complete records by type. read: reads its bytes."""

    name: str
    size: int
    durable_end: int | None
    record_types: Mapping[str, int]
    findings: tuple[Finding, ...]
    read: RangeReader


class RewrittenFile(msgspec.Struct, frozen=True):
    """The planned change of one file of a log.

    Args:
        action: "zero-fill", "rewrite" or "remove" (then there are no pieces).
        durable_end: offset in the file; None = nothing of it is durable.
        lost: bytes of content, not zeros or padding, that are discarded.
        proof: what the plan adds to its usual proof.
        like: for a file that does not exist yet: the one whose mode and owner it gets.
    """

    name: str
    action: str
    pieces: tuple[ResultPiece, ...]
    durable_end: int | None
    lost: int
    proof: Mapping[str, Any] = msgspec.field(default_factory=lambda: MappingProxyType({}))
    like: str | None = None


class JointRepair(msgspec.Struct, frozen=True):
    """The repair of a log whose files change together.

    Args:
        files: those that change.
        reasons: why it must not be done.
        proven: a redo log proves that what is discarded was never durable; otherwise no complete record is discarded
            without the user's consent.
    """

    files: tuple[RewrittenFile, ...] = ()
    reasons: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()
    proven: bool = False


JointRepairPlanner = Callable[[Sequence[VerifiedFile], "ReadableFile | None", bool], JointRepair]
"""All files of a log in its order, the redo log that the user named, may complete records behind damage go? -> what
becomes of the log. What the result would have of damage is found by the engine."""


class FileFix(msgspec.Struct, frozen=True):
    """A file without records in the log's directory, and the content that it should have.

    Args:
        content: None = the file is removed; the undo file keeps its bytes.
        reason: the reason, as the plan shows it.
        like: for a file that does not exist yet: the one whose mode and owner it gets.
    """

    name: str
    content: bytes | None
    reason: str
    like: str | None = None


class RepairRules(msgspec.Struct, frozen=True):
    """What the engine of a format needs for a repair beyond truncation to the durable end.

    Args:
        locks: those of a running server.
        close_mark: layout -> the bytes that close a file of this kind where it ends after a whole record, or None.
        head_edits: layout, reader of the file -> what `--fix-meta` changes in the file itself.
        edits_note: what the user should know about these edits.
        fix_files: names of the log's files, reader by name -> files that `--fix-meta` makes consistent with the log.
        gaps: what missing records in the middle mean to the server, shown with a salvaged log.
        numbered: every record has a number, without gaps: where `verify` finds no gap, nothing is missing.
        salvage_obstacle: why a log cannot be written without some records, or None; a function of the layout where it
            depends on the file.
        fix_frames: layout, a damaged range -> frames of it that are whole except for their header, in order.
        derived: types of records that only repeat others and that a server writes again: inside an unfinished record
            they are not counted as lost.
        transactions: where whole records of an unfinished transaction are durable: the member of the validator's
            details with the end of the last record, before any damage, that belongs to no such transaction;
            `--transactions` truncates after it.
        plan_joint_repair: for logs whose files must change together: plans the change of every file; no file is then
            truncated at its own durable end.
        redo: where the redo log that recovers a log may be, relative to the log's directory, the most common one
            first.
    """

    locks: tuple[EngineLock, ...] = ()
    close_mark: Callable[[LogFileLayout], bytes | None] | None = None
    head_edits: Callable[[LogFileLayout, RangeReader], Sequence[ByteEdit]] | None = None
    edits_note: str = ""
    fix_files: Callable[[Sequence[str], Callable[[str], RangeReader]], Iterable[FileFix]] | None = None
    gaps: str = ""
    numbered: bool = False
    salvage_obstacle: str | Callable[[LogFileLayout], str | None] | None = None
    fix_frames: Callable[[LogFileLayout, bytes], Iterable[FrameHeaderFix]] | None = None
    derived: frozenset[str] = frozenset()
    transactions: str | None = None
    plan_joint_repair: JointRepairPlanner | None = None
    redo: tuple[str, ...] = ()

    def find_salvage_obstacle(self, layout: LogFileLayout | None = None) -> str | None:
        """Return why no record may be left out of a file with this layout (None: of a log as a whole), or None."""
        if not callable(self.salvage_obstacle):
            return self.salvage_obstacle
        return None if layout is None else self.salvage_obstacle(layout)


TRUNCATION_USELESS = "whole_or_nothing"
"""Fact of a finding: no cut makes a file of this kind that its server takes; another copy of it is needed."""
SERVER_TRUNCATES = "server_cuts_tail"
"""Member of the judge's details: True = the server itself cuts whatever stands behind the durable end, if it holds no
complete record."""

DEFAULT_REPAIR = RepairRules()
"""Nothing beyond the cut."""
