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

from binlogtool.formats.replay_rules import ReplayRules
from binlogtool.log import detect
from binlogtool.pipeline.fleet import LogTask, SparkJobRunner, make_log_tasks, result_or_raise, run_each
from binlogtool.recovery.digest import KeyEntry, ObjectState, Patch, ReplayState, hash_final_row, merge_entries
from binlogtool.recovery.replay import find_logs_to_replay, replay_log
from binlogtool.recovery.replay_result import ReplayResult, add_state, max_objects
from binlogtool.recovery.until import find_end_positions
from binlogtool.recovery.wish import ReplayOptions

RowKey = tuple[int, str, str, bytes]
"""Number of the log, its format, object, key."""

ObjectBases = dict[str, tuple[int, ObjectState]]


class LogDecision(NamedTuple):
    """A log after its decisions. bases: see `State.bases`; None = it leaves no state. spilled: see `with_state`."""

    replayed: ReplayResult
    bases: ObjectBases | None = None
    spilled: int = 0


class KeySums(NamedTuple):
    """Sum of the rows of one task, by object and its epoch."""

    log: int
    name: str
    epoch: int
    state: ObjectState


def replay_on_spark(
    paths: Iterable[str], format: str, options: ReplayOptions, runner: SparkJobRunner
) -> list[ReplayResult]:
    """Replay logs on Spark; return one result per log, as `recovery.replay` does.

    Raises:
        UnknownFormatError, InputOutputError, UsageError, LimitError, MissingExtraError, KeyboardInterrupt.
    """
    logs = [(number, path, group) for number, path in enumerate(paths) for group in find_logs_to_replay(path, format)]
    units = [unit for number, path, group in logs for unit in make_log_tasks(number, path, [group])]
    ends = find_end_positions(options.until, [group for _, _, group in logs])
    decide = partial(_decide_logs, options=options, ends=ends, home=os.getcwd())

    def distribute(spread: Any, tasks: int) -> Any:
        return spread.mapPartitions(decide).groupByKey(tasks).mapPartitions(_fold_keys)

    rows = runner.run("replay", units, distribute)
    runner.report_job_stats()
    decided = {row[0]: row[1] for row in rows if not isinstance(row, KeySums)}
    sums = defaultdict[int, list[KeySums]](list)
    for row in rows:
        if isinstance(row, KeySums):
            sums[row.log].append(row)
    return [_combine_result(result_or_raise(decided[number]), sums[number], options) for number in range(len(units))]


# -- on executors --------------------------------------------------------------------------------------------------


def _decide_logs(
    units: Iterable[tuple[int, LogTask]], *, options: ReplayOptions, ends: Sequence[str | None], home: str
) -> Iterator[tuple[RowKey, tuple[int, Any]]]:
    """Replay each log; yield its entries with their order, then its decisions. ends: see `untils`."""
    for number, unit in units:
        states: list[ReplayState] = []
        own_options = replace(options, until=ends[number])
        ((_, decision),) = run_each(
            [(number, unit)], work=partial(_replay_log, options=own_options, states=states), home=home
        )
        try:
            if isinstance(decision, Exception) or decision.bases is None:
                yield (number, "", "", b""), (-1, decision)
                continue
            for order, ((name, key), entry) in enumerate(states[0].iter_entries()):
                yield (number, decision.replayed.format, name, key), (order, entry)
            yield (number, "", "", b""), (-1, decision._replace(spilled=states[0].spilled))
        finally:
            for state in states:
                state.close()


def _replay_log(unit: LogTask, *, options: ReplayOptions, states: list[ReplayState]) -> LogDecision:
    """Replay one log; its row changes go to a state that is appended to `states`."""

    def create_state(patch: Patch | None) -> Any:
        states.append(ReplayState(options.limits.max_memory, patch))
        return states[0].apply_changes

    replayed = replay_log(unit.to_group(), options, make_change_sink=create_state)
    stateless = _replay_rules(replayed.format).effects is None or not options.digest
    return LogDecision(replayed, None if stateless else states[0].base_states())


@lru_cache
def _replay_rules(format: str) -> ReplayRules:
    rules = detect.find_format(format).replay
    assert rules is not None
    return rules


def _fold_keys(groups: Iterable[tuple[RowKey, Iterable[tuple[int, Any]]]]) -> Iterator[Any]:
    """Fold the entries of every key, and yield sums of the rows by object; values without a key pass unchanged."""
    sums: dict[tuple[int, str, int], ObjectState] = {}
    for (log, format, name, key), values in groups:
        if not format:
            yield from ((log, value) for _, value in values)
            continue
        patch = _replay_rules(format).patch
        row = hash_final_row(name, key, _join_entries(values, patch), patch)
        total = sums.setdefault((log, name, 0 if row is None else row[0]), ObjectState())
        if row is not None:
            total.add(row[1])
    yield from (KeySums(*place, state) for place, state in sums.items())


def _join_entries(values: Iterable[tuple[int, KeyEntry]], patch: Patch | None) -> KeyEntry:
    """Join the entries of one key in log order."""
    (_, first), *later = sorted(values, key=lambda value: value[0])
    for _, entry in later:
        first = merge_entries(first, entry, patch)
    return first


# -- on the driver -------------------------------------------------------------------------------------------------


def _combine_result(decided: LogDecision, sums: list[KeySums], options: ReplayOptions) -> ReplayResult:
    """Return the result with its state; rows of an object that was truncated later do not count."""
    if decided.bases is None:
        return decided.replayed
    state = {name: rows for name, (_, rows) in decided.bases.items()}
    for _, name, epoch, task_state in sums:
        total = state.setdefault(name, ObjectState())
        if epoch == decided.bases.get(name, (0, None))[0]:
            total.add(task_state.total, 1, task_state.keys)
    return add_state(decided.replayed, dict(sorted(state.items())), decided.spilled, max_objects(options.limits))
