"""Tasks of a Spark job: groups of whole small files, or one part of a big file."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from binlogtool.errors import BinlogtoolError
from binlogtool.formats.detecting import Hints
from binlogtool.limits import MIB, Limits
from binlogtool.log.filters import gtid_selection
from binlogtool.log.how import ReadOptions
from binlogtool.log.open import LogReader, open_log
from binlogtool.log.parts import WHOLE_FILE, FilePart, split_file
from binlogtool.log.select import Selection
from binlogtool.pipeline.balance import group_by_size

SPLIT_SIZE = 64 * MIB


class TaskFile(msgspec.Struct, frozen=True):
    """One input file of a Spark job.

    Args:
        path: where to open it.
        name: file name in its rows.
        size: bytes.
        selection: the request's selection as it applies to this file, if positions make a difference
            (`places.shares`).
        trouble: why it was found unreadable.
        earlier: index of its state in `ReadRequest.histories`.
    """

    path: str
    name: str
    format: str
    size: int
    selection: Selection | None = None
    trouble: str = ""
    earlier: int | None = None


class TaskPiece(msgspec.Struct, frozen=True):
    """Part of a file that a task reads."""

    member: TaskFile
    part: FilePart = WHOLE_FILE


def can_split(selection: Selection) -> bool:
    """Return True if records can be selected independently of earlier ones: no counting, no GTID filter."""
    counted = (selection.skip or None, selection.limit, selection.tail) != (None, None, None)
    return not counted and gtid_selection(selection) is None


Parts = tuple[FilePart, ...]


def plan_tasks(
    members: Sequence[TaskFile], parts_by_member: Sequence[Parts | None], groups: int
) -> list[tuple[TaskPiece, ...]]:
    """Return the tasks: one for each part of a split file; unsplit files (None in `parts_by_member`) share at
    most `groups`
    tasks.
    """
    pairs = list(zip(members, parts_by_member, strict=True))
    tasks = [tuple(map(TaskPiece, group)) for group in group_files([one for one, cut in pairs if cut is None], groups)]
    return tasks + [(TaskPiece(one, part),) for one, cut in pairs for part in cut or ()]


def pack_tasks(
    members: Sequence[TaskFile], parts_by_member: Sequence[Parts | None], tasks: int
) -> list[tuple[TaskPiece, ...]]:
    """Return at most `tasks` tasks with similar totals of bytes, keeping the order of the request."""
    pieces = [
        TaskPiece(one, part) for one, cut in zip(members, parts_by_member, strict=True) for part in cut or (WHOLE_FILE,)
    ]
    total, before = sum(map(_piece_size, pieces)), 0
    shares: list[list[TaskPiece]] = [[] for _ in range(max(1, tasks))]
    for piece in pieces:
        middle = before + _piece_size(piece) / 2
        shares[min(int(middle * len(shares) / max(1, total)), len(shares) - 1)].append(piece)
        before += _piece_size(piece)
    return [tuple(share) for share in shares if share]


def _piece_size(piece: TaskPiece) -> int:
    """Return the size of a piece in bytes."""
    start = 0 if piece.part.start is None else piece.part.start.offset
    return max(0, (piece.member.size if piece.part.end is None else piece.part.end) - start)


def group_files(members: Sequence[TaskFile], groups: int) -> list[tuple[TaskFile, ...]]:
    """Return the files of each of at most `groups` groups, in the order of the request."""
    return list(map(tuple, group_by_size(members, [member.size for member in members], groups)))


def find_parts(member: TaskFile, size: int, backend: str, limits: Limits, hints: Hints | None) -> Parts:
    """Return the parts of one file; a file that cannot be opened is one part, whose reader reports the error."""
    try:
        with open_log(
            member.path, ReadOptions(format=member.format, limits=limits, backend=backend, hints=hints), LogReader
        ) as log:
            return tuple(split_file(log.make_scan(log.files[0]), size))
    except BinlogtoolError:
        return (WHOLE_FILE,)
