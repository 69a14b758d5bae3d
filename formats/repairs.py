"""What a format tells the engine about repairs, beyond where its durable part ends."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from binlogtool.formats.base import Layout, Read


@dataclass(frozen=True, slots=True)
class EngineLock:
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


@dataclass(frozen=True, slots=True)
class Mended:
    """A file of the log's directory without records, and what it should contain. why: said in the plan.

    solves: ids of findings about files that do not exist, which are no more true afterwards.
    """

    name: str
    content: bytes
    why: str
    solves: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Repair:
    """What the engine of a format needs for a repair beyond the cut to the durable end.

    locks: those of a running server. close_mark: layout -> the bytes that close a file of this kind where it ends
        behind a whole record, or None. head_edits: layout, the raw bytes of the file -> what `--fix-meta` changes in
        the file itself; edits_note: what the user should know of it. mend: names of the log's files, bytes of one of
        them -> files that `--fix-meta` brings in line with the log.
    cut: why a log of this format cannot be cut, or None. salvage: why a log with records left out cannot be made, or
        None. gaps: what missing records in the middle mean to the server, shown with a salvaged log.
    """

    locks: tuple[EngineLock, ...] = ()
    close_mark: Callable[[Layout], bytes | None] | None = None
    head_edits: Callable[[Layout, Read], Sequence[Edit]] | None = None
    edits_note: str = ""
    mend: Callable[[Sequence[str], Callable[[str], Read]], Iterable[Mended]] | None = None
    cut: str | None = None
    gaps: str = ""
    salvage: str | None = None


PLAIN = Repair()
"""Nothing beyond the cut."""
