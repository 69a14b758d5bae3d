"""Which records are wanted: positions, times, objects, types, origins, transactions."""

from __future__ import annotations

from dataclasses import dataclass

from binlogtool.errors import UsageError


@dataclass(frozen=True, slots=True)
class Selection:
    """The options of cli.md 6.2. Positions are the POS texts; times are microseconds since 1970-01-01 UTC.

    start_time is inclusive, stop_time exclusive. tail keeps the last N of what the other options left. whole: paths of
    files in which a `stop` that names no file means no place.
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


def proven_only(selection: Selection, what: str) -> None:
    """For outputs that have no place for a mark.

    Raises:
        UsageError: records that are not proven are asked for.
    """
    if selection.on_damage == "salvage":
        raise UsageError(f"--on-damage salvage: {what} cannot mark what is not proven; use skip")
