"""Predict what a server does with a log: apply the format's rules to every record, count the decisions, digest the
rows.
"""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import cached_property
from itertools import chain
from typing import Any

from msgspec.structs import replace

from binlogtool import memory
from binlogtool.errors import LimitError, UsageError
from binlogtool.findings import Finding, Severity
from binlogtool.formats.base import Format
from binlogtool.formats.replay_rules import (
    APPLIED,
    LIMIT,
    NOT_REACHED,
    SKIPPED,
    UNTIL,
    VERBS,
    Itinerary,
    Outcome,
    Ran,
    Replay,
    Replayer,
    Ruling,
    Stop,
    joined,
)
from binlogtool.log.bodied import BodiedBlocks
from binlogtool.log.named import Group, groups
from binlogtool.log.open import Log
from binlogtool.log.places import by_sequence
from binlogtool.log.records import Block, Trouble
from binlogtool.log.stretches import Stretch
from binlogtool.recovery.digest import OTHERS, State
from binlogtool.recovery.quick import LEAST_MEMORY, QuickRuns, quick_runs
from binlogtool.recovery.replay_result import OnDecision, Replayed, Tally, decision_of, most_objects, with_state
from binlogtool.recovery.situation import format_of, rules_of, situation
from binlogtool.recovery.until import TIME, Clock, before, untils
from binlogtool.recovery.verify import Examination, Options, examine
from binlogtool.recovery.waiting import Waiting
from binlogtool.recovery.wish import FoldElsewhere, Wish

_UNPACKED_PART = 16
"""Records that wait for the end of their transaction are packed where they take more than this part of the memory."""

Look = Callable[[Group, Options], Examination]


def replay_paths(
    paths: Iterable[str | os.PathLike[str]],
    format: str,
    wish: Wish,
    on_decision: OnDecision | None = None,
) -> list[Replayed]:
    """See `binlogtool.replay`."""
    logs = [group for path in paths for group in logs_of(os.fspath(path), format)]
    return [
        replay_group(group, replace(wish, until=until), on_decision)
        for group, until in zip(logs, untils(wish.until, logs), strict=True)
    ]


def replay_group(
    group: Group,
    wish: Wish,
    on_decision: OnDecision | None = None,
    fold: FoldElsewhere | None = None,
    look: Look = examine,
) -> Replayed:
    """Replay one log.

    Args:
        make_change_sink: Folds the state elsewhere; the result is then without state.
        verify: Verifies the whole log first.
    """
    return _Fold(group, wish, on_decision, fold, look).result()


def logs_of(path: str, format: str) -> list[Group]:
    """Return the logs that a path names.

    Raises:
        UsageError, UnknownFormatError, InputOutputError.
    """
    if path == "-":
        raise UsageError("replay-dry-run needs files: the rules look at the whole log first")
    return groups(path, format)


class _Fold:
    """One replay of one log."""

    def __init__(
        self, group: Group, wish: Wish, on_decision: OnDecision | None, fold: FoldElsewhere | None, look: Look
    ) -> None:
        self._group = group
        self._wish = wish
        self._tell = on_decision
        self._clock = Clock(wish.limits)
        examination = look(group, Options(limits=self._clock.for_the_look, backend=wish.backend, hints=wish.hints))
        for report in (one.report for one in examination.files):
            for found in report.findings:
                _demand_within_limits(report.path, found)
        self._left = self._clock.left_at(examination)
        self._format = format_of(group, examination)
        self._replay = rules_of(self._format)
        self._situation = situation(group, examination, wish, self._replay, self._is_cut)
        del examination  # it has a report on every file, and there may be very many
        self._replayer: Replayer = self._replay.begin(self._situation)
        self._undecided = Waiting(wish.limits.max_memory // _UNPACKED_PART)
        self._files: tuple[str, ...] = ()
        self._records: list[int] = []
        self._whole = 0
        self._seen = 0
        self._last = ("", 0)
        self._reached: Counter[str] = Counter()
        self._decisions: Counter[str] = Counter()
        self._reasons: Counter[str] = Counter()
        self._objects: dict[str, Tally] = {}
        self._most = most_objects(wish.limits)
        self._effects = self._replay.effects() if self._replay.effects is not None and wish.digest else None
        if self._effects is not None:
            self._effects.follow(self._replayer)
        self._state = State(wish.limits.max_memory, self._replay.patch)
        self._change = self._state.take if fold is None else fold(self._replay.patch)
        self._folded = self._effects is not None and fold is None
        self._stop: Stop | None = None
        self._quick = self._quick_of(fold)

    def _quick_of(self, fold: FoldElsewhere | None) -> QuickRuns | None:
        """Return compiled code for most records; None if decisions are listened to, or the replay may end between two
        records.
        """
        wanted, wish = self._replay.quick, self._wish
        ends = wish.until is not None or wish.policy == "strict" or self._left is not None
        here = self._effects is None or (fold is None and wish.limits.max_memory >= LEAST_MEMORY)
        if wanted is None or ends or not here or self._tell is not None:
            return None
        return quick_runs(wanted(self._replayer, self._effects, wish.limits), wish.backend, self._effects, self._state)

    def result(self) -> Replayed:
        """Run the replay; return its result."""
        try:
            with memory.few_collections():
                return self._run()
        finally:
            self._state.close()

    def _run(self) -> Replayed:
        itinerary = self._replayer.itinerary()
        self._stop, self._files = itinerary.refusal, itinerary.read
        self._read(itinerary.base)
        rulings, outcome = self._replayer.finish()
        for ruling in rulings:
            self._late(ruling)
        self._stop = self._stop or outcome.stop
        self._rest(itinerary)
        return self._report(itinerary, outcome)

    # -- reading ---------------------------------------------------------------------------------------------------

    def _read(self, base: frozenset[str]) -> None:
        known = {file.name: file for file in self._situation.files}
        self._records = [known[name].records for name in self._files]
        end = self._strict_end() if self._wish.policy == "strict" else self._left
        format_ = self._format
        if self._replay.extras is not None:
            format_ = replace(format_, output=replace(format_.output, extras=self._replay.extras))
        paths: list[tuple[str, str, Format | None]] = [(known[name].path, name, format_) for name in self._files]
        by_path = {path: name for path, name, _ in paths}
        if not paths:
            return
        hints = replace(self._wish.hints, level=self._replay.level or self._wish.hints.level, as_stored=True)
        log = Log(paths, self._clock.for_records, self._wish.backend, hints)
        try:
            chosen = before(self._wish.until, list(by_path), {known[name].path for name in base})
            del known, paths  # there may be very many files
            for part in self._looked_at(log.stretches(chosen), by_path):
                if self._clock.ended():
                    break
                name = by_path[part.file]
                if end is not None and name == end.file:
                    part = _before(part, end.offset or 0)
                if len(part) == 0 or self._is_over(name, end) or self._leaps(part):
                    break
                self._take(name, part)
        finally:
            log.close()

    def _looked_at(self, parts: Iterable[Stretch | Block | Trouble], by_path: Mapping[str, str]) -> Iterator[Block]:
        """Yield the blocks that have to be ruled on in Python; count the others."""
        bodied, files = BodiedBlocks(), memory.FileByFile()
        for part in parts:
            if isinstance(part, Stretch):
                files.at(part.maker.file)
                yield from (
                    bodied.of(part)
                    if self._quick is None
                    else self._quick.blocks(part, by_path[part.maker.file], self._booked)
                )
            elif isinstance(part, Block):
                yield part

    def _booked(self, name: str, ran: Ran, count: int) -> None:
        self._seen += count
        self._reached[name] += count
        self._decisions[ran.verb] += count
        self._reasons[ran.reason] += count
        for one in ran.counted:
            if one.object is not None:
                tally = self._tally(one.object)
                tally.counts[ran.verb] += one.records
                tally.first_seq = one.first_seq if tally.first_seq is None else tally.first_seq
                tally.last_seq = one.last_seq

    def _is_over(self, name: str, end: Stop | None) -> bool:
        """Return True if the replay ended in a file before this one."""
        if name in self._reached or (end is None and self._wish.until is None):
            return False
        place = self._places[name]
        return (end is not None and self._places.get(end.file, place) < place) or self._is_cut(place)

    @cached_property
    def _places(self) -> dict[str, int]:
        """File name -> position in the reading order."""
        return {name: place for place, name in enumerate(self._files)}

    def _leaps(self, block: Block) -> bool:
        """Return True if a record before this block has the sequence number that `--until` names, or a higher one.

        Numbers of several origins need not rise together; the replay ends at the first such record.
        """
        before, self._last = self._last, (block.file, block.record[-1])
        if not by_sequence(self._wish.until):
            return False
        return block.record[0] > (before[1] + 1 if before[0] == block.file else 0)

    def _is_cut(self, stop: int | None = None) -> bool:
        """Return True if the position of `--until` kept records of the files before position `stop` from being read.

        Args:
            stop: Position in the reading order; None = all files.

        The first `_complete_files` files were read completely, and stay so.
        """
        if self._wish.until is None:
            return False
        stop = len(self._files) if stop is None else stop
        while self._whole < stop and self._reached[self._files[self._whole]] >= self._records[self._whole]:
            self._whole += 1
        return self._whole < stop

    def _strict_end(self) -> Stop | None:
        """Return the first error, where policy strict stops; errors of the set as a whole come first."""
        places = [("", found) for found in self._situation.findings]
        for file in self._situation.files:
            places += [(file.name, found) for found in sorted(file.findings, key=lambda one: one.offset or 0)]
        for name, found in places:
            if found.severity is Severity.ERROR:
                self._stop = self._stop or Stop(name or self._group.path, found.offset, f"{found.id}: {found.message}")
                return Stop(name or self._files[0], found.offset, "") if self._files else None
        return None

    def _take(self, name: str, block: Block) -> None:
        for found in chain.from_iterable(block.findings.values()):
            _demand_within_limits(block.file, found)
        first, self._seen = self._seen, self._seen + len(block)
        self._reached[name] += len(block)
        decided = bytearray(len(block))
        for ruling in joined(self._replayer.feed(name, first, block)):
            if ruling.first < first:
                self._late(ruling._replace(stop=min(ruling.stop, first)))
            start, stop = max(ruling.first - first, 0), ruling.stop - first
            if start < stop:
                decided[start:stop] = b"\1" * (stop - start)
                self._decide(block, start, stop, ruling.verb, ruling.reason)
        if 0 in decided:
            self._undecided.add(first, block, decided)
        if self._undecided.bytes > self._wish.limits.max_memory:
            count = f"{self._undecided.count:,} records"
            raise LimitError(f"{block.file}: {count} wait for the end of their transaction; raise --max-memory")

    # -- booking ---------------------------------------------------------------------------------------------------

    def _late(self, ruling: Ruling) -> None:
        """Apply a ruling on records that were fed before."""
        for number in range(ruling.first, ruling.stop):
            block, i = self._undecided.pop(number)
            self._decide(block, i, i + 1, ruling.verb, ruling.reason)

    def _decide(self, block: Block, start: int, stop: int, verb: str, reason: str) -> None:
        self._decisions[verb] += stop - start
        self._reasons[reason] += stop - start
        names = block.envelope.object[start:stop]
        for name, count in Counter(names).items():
            if name is not None:
                self._tally(name).counts[verb] += count
        if verb == APPLIED:
            self._applied(block, start, stop, names)
        if self._tell is not None:
            for i in range(start, stop):
                self._tell(decision_of(block, i, verb, reason))

    def _applied(self, block: Block, start: int, stop: int, names: list[str | None]) -> None:
        seqs = block.envelope.seq[start:stop]
        first = dict(zip(reversed(names), reversed(seqs), strict=True))
        for name, last in dict(zip(names, seqs, strict=True)).items():
            if name is not None and last is not None:
                tally = self._tally(name)
                tally.first_seq = first[name] if tally.first_seq is None else tally.first_seq
                tally.last_seq = last
        if self._effects is not None:
            of = self._effects.of
            self._change(chain.from_iterable(of(block, i) for i in range(start, stop)))

    def _tally(self, name: str) -> Tally:
        tally = self._objects.get(name)
        if tally is None:
            name = name if len(self._objects) < self._most else OTHERS
            tally = self._objects.setdefault(name, Tally(name))
        return tally

    def _rest(self, itinerary: Itinerary) -> None:
        """Skip the records that nobody ruled on: after the stop, after `--until`, or in files that were not read."""
        reason = NOT_REACHED if self._stop is not None or self._wish.until is None else UNTIL
        reason = LIMIT if self._clock.over else reason
        for number in list(self._undecided.numbers()):
            self._late(Ruling(number, number + 1, SKIPPED, reason))
        for file in self._situation.files:
            missing = file.records - self._reached[file.name]
            if missing > 0:
                why = itinerary.passed.get(file.name, reason)
                self._decisions[SKIPPED] += missing
                self._reasons[why] += missing

    # -- result ----------------------------------------------------------------------------------------------------

    def _report(self, itinerary: Itinerary, outcome: Outcome) -> Replayed:
        paths = {file.name: file.path for file in self._situation.files}
        stop = self._stop
        verified = [(file.path, found) for file in self._situation.files for found in file.findings]
        verified += [(self._group.path, found) for found in self._situation.findings]
        found = Replayed(
            path=self._group.path,
            format=self._format.name,
            policy=self._wish.policy,
            starts=None if self._clock.over else itinerary.starts if itinerary.refusal is not None else outcome.starts,
            decisions={verb: self._decisions[verb] for verb in VERBS},
            reasons=dict(sorted(self._reasons.items())),
            objects=tuple(self._objects[name] for name in sorted(self._objects)),
            stop=None if stop is None else stop._replace(file=paths.get(stop.file, stop.file)),
            position=outcome.position,
            digest=None,
            read=tuple(paths[name] for name in itinerary.read),
            findings=(*verified, *((paths.get(name, name), found) for name, found in outcome.findings)),
            rules={reason: _rule(self._replay, reason) for reason in sorted(self._reasons)},
            details={**self._told_policy(), **outcome.details, **self._doubted(), **self._limited()},
            unknown=outcome.unknown,
        )
        if not self._folded or self._clock.over:
            return found
        return with_state(found, self._state.objects(self._most), self._state.spilled, self._most)

    def _told_policy(self) -> dict[str, str]:
        """Return what policy force does in this format, as details."""
        return {"force": self._replay.force} if self._wish.policy == "force" and self._replay.force else {}

    def _limited(self) -> dict[str, str]:
        """Return why the replay is incomplete, as details."""
        return {"incomplete": TIME} if self._clock.over else {}

    def _doubted(self) -> dict[str, Any]:
        """Return the objects whose digest is not that of the server's rows, as details."""
        doubts = {} if self._effects is None else self._effects.doubts()
        return {"not_comparable": dict(sorted(doubts.items()))} if doubts else {}


_OPTIONS = {"inflate-limit": "--max-inflate", "nesting-too-deep": "--max-depth"}
"""Findings that are about a limit of this program alone, and the option that raises it."""


def _demand_within_limits(file: str, found: Finding) -> None:
    """Raise if a finding is about a limit of this program, which says nothing about the server.

    Raises:
        LimitError: the finding is about one.
    """
    if (option := _OPTIONS.get(found.id)) is not None:
        text = f"{found.message}; this is a limit of this program, not the server's: raise {option}"
        raise LimitError(f"{file} at {found.offset or 0:,}: {text}")


_GENERAL = {
    NOT_REACHED: "The server has given up before it gets here.",
    UNTIL: "The record is at or behind the position of --until.",
    LIMIT: "A limit ended the work before this record.",
}


def _rule(rules: Replay, reason: str) -> str:
    return rules.reasons.get(reason) or _GENERAL[reason]


def _before(block: Block, offset: int) -> Block:
    """Return the records of a block that start before an offset of the file."""
    return block.part(0, sum(1 for at in block.offset if at < offset))
