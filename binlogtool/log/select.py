"""Which records are wanted: positions, times, objects, types, origins, transactions."""

from __future__ import annotations

import msgspec
from msgspec.structs import replace

from binlogtool.errors import UsageError
from binlogtool.formats.detecting import Hints


class Selection(msgspec.Struct, frozen=True):
    """The options of cli.md 6.2. Positions are the POS texts; times are microseconds since 1970-01-01 UTC.

    start_time is inclusive, stop_time exclusive. tail keeps the last N of what the other options left. whole: paths of
    files in which a `stop` that names no file means no place. once: times are passed once, as scripts need it: from the
    first record at start_time on all are taken, whatever their times, up to the first one at stop_time.
    where: a condition (`log.where`) on what the other options left; skip, limit and tail count what it leaves.
    """

    start: str | None = None
    stop: str | None = None
    start_time: int | None = None
    stop_time: int | None = None
    skip: int = 0
    limit: int | None = None
    tail: int | None = None
    types: tuple[str, ...] = ()
    objects: tuple[str, ...] = ()
    exclude_objects: tuple[str, ...] = ()
    origins: tuple[int, ...] = ()
    exclude_origins: tuple[int, ...] = ()
    include_gtids: str | None = None
    exclude_gtids: str | None = None
    xid: str | None = None
    on_damage: str = "skip"
    live: bool = False
    whole: frozenset[str] = frozenset()
    once: bool = False
    where: str | None = None


def proven_only(selection: Selection, what: str) -> None:
    """For outputs that have no place for a mark.

    Raises:
        UsageError: records that are not proven are asked for.
    """
    if selection.on_damage == "salvage":
        raise UsageError(f"--on-damage salvage: {what} cannot mark what is not proven; use skip")


def check_where(text: str) -> None:
    """Is it a condition (`Selection.where`)?

    Raises:
        UsageError: it is none; the column says where.
    """
    from binlogtool.log.where import where

    where(text)


def whole_only(selection: Selection, what: str) -> None:
    """For outputs that are made of whole transactions.

    Raises:
        UsageError: single records are asked for.
    """
    if selection.where is not None:
        raise UsageError(f"--where: {what} is made of whole transactions, and a condition chooses single records")


def is_partial(selection: Selection) -> bool:
    """Does it choose anything less than a whole log?"""
    return replace(selection, on_damage="", live=False, whole=frozenset(), once=False) != Selection(on_damage="")


def ends_early(selection: Selection) -> bool:
    """Can records come later than chosen ones, of the same objects, that are not chosen?"""
    s = selection
    by_name = (s.include_gtids, s.exclude_gtids, s.xid, s.stop, s.stop_time, s.where)
    return bool(s.origins or s.exclude_origins) or any(one is not None for one in by_name)


def whole_of(selection: Selection) -> Selection:
    """The selection without what lets a reader leave out parts of a file."""
    return replace(selection, start=None, stop=None, include_gtids=None)


def hints_for(selection: Selection, hints: Hints | None, *, script: bool = False) -> Hints | None:
    """The hints for what is selected: objects are looked for where records have one. script: statements are wanted."""
    if not (selection.objects or selection.exclude_objects or selection.where or script):
        return hints
    return replace(hints or Hints(), objects=True)
