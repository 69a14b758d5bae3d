"""What one task of a job reads: whole small files together, or one part of a big file."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from binlogtool.errors import BinlogtoolError
from binlogtool.formats.detecting import Hints
from binlogtool.limits import MIB, Limits
from binlogtool.log.filters import gtid_demand
from binlogtool.log.parts import WHOLE, Part, parts
from binlogtool.log.select import Selection
from binlogtool.pipeline.balance import in_groups

SPLIT_SIZE = 64 * MIB


class Member(msgspec.Struct, frozen=True):
    """One file: where to open it, the name its rows carry, its format and its size in bytes.

    selection: what the request's selection means in this file, where positions make a difference (`places.shares`).
    trouble: why it was found to be unreadable before. earlier: which of `Request.histories` it begins with.
    """

    path: str
    name: str
    format: str
    size: int
    selection: Selection | None = None
    trouble: str = ""
    earlier: int | None = None


class Piece(msgspec.Struct, frozen=True):
    """What is read of one file."""

    member: Member
    part: Part = WHOLE


def can_split(selection: Selection) -> bool:
    """Does it not matter what the records before say? Counting does; so does a log that is searched for GTIDs."""
    counted = (selection.skip or None, selection.limit, selection.tail) != (None, None, None)
    return not counted and gtid_demand(selection) is None


Parts = tuple[Part, ...]


def planned(members: Sequence[Member], cuts: Sequence[Parts | None], groups: int) -> list[tuple[Piece, ...]]:
    """The tasks: each part of a file that is cut is one; other files (None) share at most `groups`."""
    pairs = list(zip(members, cuts, strict=True))
    tasks = [tuple(map(Piece, group)) for group in grouped([one for one, cut in pairs if cut is None], groups)]
    return tasks + [(Piece(one, part),) for one, cut in pairs for part in cut or ()]


def packed(members: Sequence[Member], cuts: Sequence[Parts | None], tasks: int) -> list[tuple[Piece, ...]]:
    """At most so many tasks of about the same number of bytes each, in the order of the request throughout."""
    pieces = [Piece(one, part) for one, cut in zip(members, cuts, strict=True) for part in cut or (WHOLE,)]
    total, before = sum(map(_size, pieces)), 0
    shares: list[list[Piece]] = [[] for _ in range(max(1, tasks))]
    for piece in pieces:
        middle = before + _size(piece) / 2
        shares[min(int(middle * len(shares) / max(1, total)), len(shares) - 1)].append(piece)
        before += _size(piece)
    return [tuple(share) for share in shares if share]


def _size(piece: Piece) -> int:
    """Bytes."""
    start = 0 if piece.part.start is None else piece.part.start.offset
    return max(0, (piece.member.size if piece.part.end is None else piece.part.end) - start)


def grouped(members: Sequence[Member], groups: int) -> list[tuple[Member, ...]]:
    """The files of each of at most `groups` groups, in the order of the request."""
    return list(map(tuple, in_groups(members, [member.size for member in members], groups)))


def parts_of(member: Member, size: int, backend: str, limits: Limits, hints: Hints | None) -> Parts:
    """The parts of one file; what cannot be opened is a part all the same, which tells so when it is read."""
    import binlogtool

    try:
        with binlogtool.open(member.path, format=member.format, limits=limits, backend=backend, hints=hints) as log:
            return tuple(parts(log.scan(log.files[0]), size))
    except BinlogtoolError:
        return (WHOLE,)
