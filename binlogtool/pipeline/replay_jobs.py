"""Replays on Spark: each log is decided on one executor; the row states of all logs are then folded by object and
key.

Decisions about a log need its order, so one task makes them, with bounded memory. The changes of its records become
entries of keys: the last image, or operations on a row that is not known there. Spark groups them by log, object and
key; each group is folded in log order, and each live row becomes a number. The sum of the numbers modulo 2^256 is the
digest: the same as that of a replay in one process.
"""

from __future__ import annotations

import os
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from functools import lru_cache, partial
from typing import Any, NamedTuple

from msgspec.structs import replace

from binlogtool.formats.replay_rules import Replay
from binlogtool.log import detect
from binlogtool.pipeline.fleet import Fleet, Unit, demanded, each, units_of
from binlogtool.recovery.digest import Entry, ObjectState, Patch, State, final_row, join
from binlogtool.recovery.replay import logs_of, replay_group
from binlogtool.recovery.replay_result import Replayed, most_objects, with_state
from binlogtool.recovery.until import untils
from binlogtool.recovery.wish import Wish

Place = tuple[int, str, str, bytes]
"""Number of the log, its format, object, key."""

Bases = dict[str, tuple[int, ObjectState]]


class Decided(NamedTuple):
    """A log after its decisions. bases: see `State.bases`; None = it leaves no state. spilled: see `with_state`."""

    found: Replayed
    bases: Bases | None = None
    spilled: int = 0


class Sums(NamedTuple):
    """Sum of the rows of one task, by object and its epoch."""

    log: int
    name: str
    epoch: int
    state: ObjectState


def replay_fleet(paths: Iterable[str], format: str, wish: Wish, fleet: Fleet) -> list[Replayed]:
    """Replay logs on Spark; return one result per log, as `recovery.replay` does.

    Raises:
        UnknownFormatError, InputOutputError, UsageError, LimitError, MissingExtraError, KeyboardInterrupt.
    """
    logs = [(number, path, group) for number, path in enumerate(paths) for group in logs_of(path, format)]
    units = [unit for number, path, group in logs for unit in units_of(number, path, [group])]
    ends = untils(wish.until, [group for _, _, group in logs])
    decide = partial(_decided, wish=wish, ends=ends, home=os.getcwd())

    def job(spread: Any, tasks: int) -> Any:
        return spread.mapPartitions(decide).groupByKey(tasks).mapPartitions(_folded)

    rows = fleet.run("replay", units, job)
    fleet.tell_record()
    decided = {row[0]: row[1] for row in rows if not isinstance(row, Sums)}
    sums = defaultdict[int, list[Sums]](list)
    for row in rows:
        if isinstance(row, Sums):
            sums[row.log].append(row)
    return [_whole(demanded(decided[number]), sums[number], wish) for number in range(len(units))]


# -- on executors --------------------------------------------------------------------------------------------------


def _decided(
    units: Iterable[tuple[int, Unit]], *, wish: Wish, ends: Sequence[str | None], home: str
) -> Iterator[tuple[Place, tuple[int, Any]]]:
    """Replay each log; yield its entries with their order, then its decisions. ends: see `untils`."""
    for number, unit in units:
        states: list[State] = []
        own = replace(wish, until=ends[number])
        ((_, found),) = each([(number, unit)], work=partial(_replayed, wish=own, states=states), home=home)
        try:
            if isinstance(found, Exception) or found.bases is None:
                yield (number, "", "", b""), (-1, found)
                continue
            for order, ((name, key), entry) in enumerate(states[0].entries()):
                yield (number, found.found.format, name, key), (order, entry)
            yield (number, "", "", b""), (-1, found._replace(spilled=states[0].spilled))
        finally:
            for state in states:
                state.close()


def _replayed(unit: Unit, *, wish: Wish, states: list[State]) -> Decided:
    """Replay one log; its row changes go to a state that is appended to `states`."""

    def begin(patch: Patch | None) -> Any:
        states.append(State(wish.limits.max_memory, patch))
        return states[0].take

    found = replay_group(unit.group(), wish, fold=begin)
    stateless = _rules(found.format).effects is None or not wish.digest
    return Decided(found, None if stateless else states[0].bases())


@lru_cache
def _rules(format: str) -> Replay:
    rules = detect.by_name(format).replay
    assert rules is not None
    return rules


def _folded(groups: Iterable[tuple[Place, Iterable[tuple[int, Any]]]]) -> Iterator[Any]:
    """Fold the entries of every key, and yield sums of the rows by object; values without a key pass unchanged."""
    sums: dict[tuple[int, str, int], ObjectState] = {}
    for (log, format, name, key), values in groups:
        if not format:
            yield from ((log, value) for _, value in values)
            continue
        patch = _rules(format).patch
        row = final_row(name, key, _joined(values, patch), patch)
        one = sums.setdefault((log, name, 0 if row is None else row[0]), ObjectState())
        if row is not None:
            one.add(row[1])
    yield from (Sums(*place, state) for place, state in sums.items())


def _joined(values: Iterable[tuple[int, Entry]], patch: Patch | None) -> Entry:
    """Join the entries of one key in log order."""
    (_, first), *later = sorted(values, key=lambda value: value[0])
    for _, entry in later:
        first = join(first, entry, patch)
    return first


# -- on the driver -------------------------------------------------------------------------------------------------


def _whole(decided: Decided, sums: list[Sums], wish: Wish) -> Replayed:
    """Return the result with its state; rows of an object that was truncated later do not count."""
    if decided.bases is None:
        return decided.found
    state = {name: rows for name, (_, rows) in decided.bases.items()}
    for _, name, epoch, part in sums:
        one = state.setdefault(name, ObjectState())
        if epoch == decided.bases.get(name, (0, None))[0]:
            one.add(part.total, 1, part.keys)
    return with_state(decided.found, dict(sorted(state.items())), decided.spilled, most_objects(wish.limits))
