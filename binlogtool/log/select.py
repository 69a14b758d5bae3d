"""Selection of records: positions, times, objects, types, origins, transactions."""

from __future__ import annotations

import msgspec
from msgspec.structs import replace

from binlogtool.errors import UsageError
from binlogtool.formats.detecting import Hints


class Selection(msgspec.Struct, frozen=True):
    """The records to read; all options must match.

    Args:
        start, stop: positions as in `--start-position` and `--stop-position`.
        start_time, stop_time: microseconds since 1970-01-01 UTC; start is inclusive, stop exclusive.
        skip, limit, tail: leave out the first records, end after so many, keep the last ones, of what the others
        leave.
        whole: paths of files in which a `stop` that names no file is ignored.
        once: apply times once, as scripts need it: take all records from the first one at start_time on, whatever
            their
            times, up to the first one at stop_time.
        where: a condition (`log.where`) on what the other options leave; skip, limit and tail count what it leaves.
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


def refuse_salvage(selection: Selection, output_name: str) -> None:
    """Check that no unproven records are requested, for outputs that cannot mark them.

    Raises:
        UsageError: they are.
    """
    if selection.on_damage == "salvage":
        raise UsageError(f"--on-damage salvage: {output_name} cannot mark what is not proven; use skip")


def check_where(text: str) -> None:
    """Check a condition (`Selection.where`).

    Raises:
        UsageError: it is invalid; the message names the column.
    """
    from binlogtool.log.where import compile_condition

    compile_condition(text)


def refuse_where(selection: Selection, output_name: str) -> None:
    """Check that no condition is given, for outputs that consist of whole transactions.

    Raises:
        UsageError: single records are requested.
    """
    if selection.where is not None:
        raise UsageError(
            f"--where: {output_name} is made of whole transactions, and a condition chooses single records"
        )


def is_partial(selection: Selection) -> bool:
    """Return True if the selection leaves out anything of a log."""
    return replace(selection, on_damage="", live=False, whole=frozenset(), once=False) != Selection(on_damage="")


def can_miss_later_changes(selection: Selection) -> bool:
    """Return True if later records of the same objects may be left out."""
    options = selection
    limiting_options = (
        options.include_gtids,
        options.exclude_gtids,
        options.xid,
        options.stop,
        options.stop_time,
        options.where,
    )
    return bool(options.origins or options.exclude_origins) or any(one is not None for one in limiting_options)


def read_everything(selection: Selection) -> Selection:
    """Return the selection without the options that let a reader skip parts of a file."""
    return replace(selection, start=None, stop=None, include_gtids=None)


def add_selection_hints(selection: Selection, hints: Hints | None, *, script: bool = False) -> Hints | None:
    """Return the hints for a selection: objects are matched at the level where records have one.

    script: statements are requested.
    """
    if not (selection.objects or selection.exclude_objects or selection.where or script):
        return hints
    return replace(hints or Hints(), objects=True)
