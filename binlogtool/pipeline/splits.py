"""What one task of a job reads: whole small files together, or one part of a big file."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from binlogtool.errors import BinlogtoolError
from binlogtool.formats.base import Hints
from binlogtool.limits import MIB, Limits
from binlogtool.log.filters import gtid_demand
from binlogtool.log.parts import WHOLE, Part, parts
from binlogtool.log.select import Selection
from binlogtool.pipeline.shares import balanced

SPLIT_SIZE = 64 * MIB


@dataclass(frozen=True, slots=True)
class Member:
    """One file: where to open it, the name its rows carry, its format and its size in bytes."""

    path: str
    name: str
    format: str
    size: int


@dataclass(frozen=True, slots=True)
class Piece:
    """What is read of one file."""

    member: Member
    part: Part = WHOLE


def can_split(selection: Selection) -> bool:
    """Does it not matter what the records before say? Counting does; so does a log that is searched for GTIDs."""
    counted = (selection.skip or None, selection.limit, selection.tail) != (None, None, None)
    return not counted and gtid_demand(selection) is None


def planned(
    members: Sequence[Member], groups: int, split_size: int, backend: str, limits: Limits, hints: Hints | None
) -> list[tuple[Piece, ...]]:
    """The tasks: each part of a file of more than `split_size` bytes is one; other files share at most `groups`."""
    small = [member for member in members if member.size <= split_size]
    tasks = [tuple(map(Piece, group)) for group in grouped(small, groups)]
    for member in members:
        if member.size > split_size:
            tasks += [(piece,) for piece in _pieces(member, split_size, backend, limits, hints)]
    return tasks


def grouped(members: Sequence[Member], groups: int) -> list[tuple[Member, ...]]:
    """The files of each of at most `groups` groups, in the order of the request."""
    shares = balanced([member.size for member in members], groups)
    return [tuple(members[i] for i in share) for share in sorted(shares, key=min)]


def _pieces(member: Member, size: int, backend: str, limits: Limits, hints: Hints | None) -> Iterator[Piece]:
    """The parts of one file; what cannot be opened is a piece all the same, which tells so when it is read."""
    import binlogtool

    try:
        with binlogtool.open(member.path, format=member.format, limits=limits, backend=backend, hints=hints) as log:
            found = parts(log.scan(log.files[0]), size)
    except BinlogtoolError:
        found = [WHOLE]
    return (Piece(member, part) for part in found)
