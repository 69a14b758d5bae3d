"""What a server would do with a log: the format's rules folded over the one record stream, tallied, with a digest."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any, NamedTuple

import msgspec

from binlogtool.errors import InputOutputError, LimitError, UsageError
from binlogtool.findings import Finding, Severity
from binlogtool.formats.base import Format, Hints
from binlogtool.formats.replays import (
    APPLIED,
    NOT_REACHED,
    POLICIES,
    SKIPPED,
    UNTIL,
    VERBS,
    Change,
    Examined,
    Itinerary,
    Outcome,
    Replay,
    Replayer,
    Ruling,
    Situation,
    Stop,
)
from binlogtool.limits import Limits
from binlogtool.log import detect
from binlogtool.log.open import Group, Log, groups, read_beside
from binlogtool.log.records import Block
from binlogtool.log.select import Selection
from binlogtool.recovery.state import State
from binlogtool.recovery.verify import Examination, Options, examine

SCHEMA = "binlogtool/replay/1"
_RECORD_BYTES = 1000
"""What an undecided record costs in memory, about."""


class Decision(NamedTuple):
    """What becomes of one record. file: its path; the rest as `dump` shows it."""

    file: str
    record: int
    offset: int
    size: int
    type: str
    seq: int | None
    time: int | None
    object: str | None
    txn: str | int | None
    verb: str
    reason: str


OnDecision = Callable[[Decision], None]
OnChanges = Callable[[Iterable[Change]], None]


@dataclass(slots=True)
class Tally:
    """The records of one object, by verb. first_seq, last_seq: of those that were applied."""

    name: str
    counts: dict[str, int] = field(default_factory=lambda: dict.fromkeys(VERBS, 0))
    first_seq: int | None = None
    last_seq: int | None = None
    keys: int | None = None
    digest: str | None = None


@dataclass(frozen=True, slots=True)
class Replayed:
    """The replay of one log (JSON shape binlogtool/replay/1, cli.md 6.19).

    starts: does the server come up; None = this log does not decide it. findings: (path, finding), those of `verify`
    first. digest: 64 hexadecimal digits, or None where the format has no state. digest_partial: some rows are known by
    their changes only. read: paths in the order in which the server reads them.
    """

    path: str
    format: str
    policy: str
    starts: bool | None
    decisions: Mapping[str, int]
    reasons: Mapping[str, int]
    objects: tuple[Tally, ...]
    stop: Stop | None
    position: Mapping[str, Any]
    digest: str | None
    read: tuple[str, ...]
    findings: tuple[tuple[str, Finding], ...]
    rules: Mapping[str, str]
    details: Mapping[str, Any]

    @property
    def clean(self) -> bool:
        """Everything that is in the log takes effect as it should."""
        bad = any(found.severity is Severity.ERROR for _, found in self.findings)
        return not bad and self.stop is None and self.starts is not False and not self.decisions["rejected"]


@dataclass(frozen=True, slots=True)
class Wish:
    """How to replay; see `binlogtool.replay`."""

    policy: str = "server"
    against: Mapping[str, Any] | str | None = None
    until: str | None = None
    limits: Limits = Limits()
    backend: str = "auto"
    hints: Hints = Hints()
    digest: bool = True

    def __post_init__(self) -> None:
        if self.policy not in POLICIES:
            raise UsageError(f"unknown policy {self.policy!r}; one of {', '.join(POLICIES)}")


def replay_paths(
    paths: Iterable[str | os.PathLike[str]],
    format: str,
    wish: Wish,
    on_decision: OnDecision | None = None,
    on_changes: OnChanges | None = None,
) -> list[Replayed]:
    """See `binlogtool.replay`. on_changes: gets the changes of each applied record, which are then not folded here."""
    return [
        _Fold(group, wish, on_decision, on_changes).result()
        for path in paths
        for group in _logs(os.fspath(path), format, wish)
    ]


def _logs(path: str, format: str, wish: Wish) -> list[Group]:
    if path == "-":
        raise UsageError("replay-dry-run needs files: the rules look at the whole log first")
    return groups(path, format)


class _Fold:
    """One replay of one log."""

    def __init__(self, group: Group, wish: Wish, on_decision: OnDecision | None, on_changes: OnChanges | None) -> None:
        self._group = group
        self._wish = wish
        self._tell = on_decision
        examination = examine(group, Options(limits=wish.limits, backend=wish.backend, hints=wish.hints))
        self._format = _format_of(group, examination)
        self._replay = _rules_of(self._format)
        self._situation = _situation(group, examination, wish, self._replay)
        self._replayer: Replayer = self._replay.begin(self._situation)
        self._undecided: dict[int, tuple[Block, int]] = {}
        self._seen = 0
        self._reached: Counter[str] = Counter()
        self._decisions: Counter[str] = Counter()
        self._reasons: Counter[str] = Counter()
        self._objects: dict[str, Tally] = {}
        self._effects = None if self._replay.effects is None or not wish.digest else self._replay.effects()
        self._state = State(wish.limits.max_memory, self._replay.patch)
        self._change = on_changes or self._state.take
        self._folded = self._effects is not None and on_changes is None
        self._stop: Stop | None = None

    def result(self) -> Replayed:
        """Runs it."""
        try:
            itinerary = self._replayer.itinerary()
            self._stop = itinerary.refusal
            self._read(itinerary)
            rulings, outcome = self._replayer.finish()
            for ruling in rulings:
                self._late(ruling)
            self._stop = self._stop or outcome.stop
            self._rest(itinerary)
            return self._report(itinerary, outcome)
        finally:
            self._state.close()

    # -- reading ---------------------------------------------------------------------------------------------------

    def _read(self, itinerary: Itinerary) -> None:
        known = {file.name: file for file in self._situation.files}
        end = self._strict_end() if self._wish.policy == "strict" else None
        paths: list[tuple[str, str, Format | None]] = [
            (known[name].path, name, self._format) for name in itinerary.read
        ]
        by_path = {path: name for path, name, _ in paths}
        if not paths:
            return
        hints = replace(self._wish.hints, level=self._replay.level or self._wish.hints.level)
        log = Log(paths, self._wish.limits, self._wish.backend, hints)
        try:
            for part in log.blocks(Selection(stop=self._wish.until)):
                if not isinstance(part, Block):
                    continue
                name = by_path[part.file]
                if end is not None and name == end.file:
                    part = _before(part, end.offset or 0)
                self._take(name, part)
                if end is not None and name == end.file and len(part) == 0:
                    break
        finally:
            log.close()

    def _strict_end(self) -> Stop | None:
        """The first thing that is wrong: policy strict stops there."""
        for file in self._situation.files:
            for found in sorted(file.findings, key=lambda one: one.offset or 0):
                if found.severity is Severity.ERROR:
                    self._stop = self._stop or Stop(file.name, found.offset, f"{found.id}: {found.message}")
                    return Stop(file.name, found.offset, "")
        return None

    def _take(self, name: str, block: Block) -> None:
        first, self._seen = self._seen, self._seen + len(block)
        self._reached[name] += len(block)
        decided = bytearray(len(block))
        for ruling in self._replayer.feed(name, first, block):
            start, stop = max(ruling.first - first, 0), ruling.stop - first
            if start < stop:
                decided[start:stop] = b"\1" * (stop - start)
                self._decide(block, start, stop, ruling.verb, ruling.reason)
            if ruling.first < first:
                self._late(ruling._replace(stop=min(ruling.stop, first)))
        if 0 in decided:
            self._undecided.update((first + i, (block, i)) for i, done in enumerate(decided) if not done)
        if len(self._undecided) * _RECORD_BYTES > self._wish.limits.max_memory:
            count = f"{len(self._undecided):,} records"
            raise LimitError(f"{block.file}: {count} wait for the end of their transaction; raise --max-memory")

    # -- booking ---------------------------------------------------------------------------------------------------

    def _late(self, ruling: Ruling) -> None:
        """A ruling on records that were fed before."""
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
                self._tell(_decision(block, i, verb, reason))

    def _applied(self, block: Block, start: int, stop: int, names: list[str | None]) -> None:
        seqs = block.envelope.seq[start:stop]
        first = dict(zip(reversed(names), reversed(seqs), strict=True))
        for name, last in dict(zip(names, seqs, strict=True)).items():
            if name is not None and last is not None:
                tally = self._tally(name)
                tally.first_seq = first[name] if tally.first_seq is None else tally.first_seq
                tally.last_seq = last
        if self._effects is not None:
            for i in range(start, stop):
                self._change(self._effects.of(block, i))

    def _tally(self, name: str) -> Tally:
        return self._objects.get(name) or self._objects.setdefault(name, Tally(name))

    def _rest(self, itinerary: Itinerary) -> None:
        """Records that nobody ruled on: behind the stop, behind `--until`, or in files that were not read."""
        reason = NOT_REACHED if self._stop is not None or self._wish.until is None else UNTIL
        for number in sorted(self._undecided):
            self._late(Ruling(number, number + 1, SKIPPED, reason))
        for file in self._situation.files:
            missing = file.records - self._reached[file.name] if self._counted else 0
            if missing > 0:
                why = itinerary.passed.get(file.name, reason)
                self._decisions[SKIPPED] += missing
                self._reasons[why] += missing

    @property
    def _counted(self) -> bool:
        """Verification counted the same records as the replay does."""
        return self._replay.level is None

    # -- result ----------------------------------------------------------------------------------------------------

    def _report(self, itinerary: Itinerary, outcome: Outcome) -> Replayed:
        paths = {file.name: file.path for file in self._situation.files}
        digest, details = None, dict(outcome.details)
        if self._folded:
            digest = self._digest()
            if self._state.spilled:
                details["keys_spilled"] = self._state.spilled
        stop = self._stop
        verified = [(file.path, found) for file in self._situation.files for found in file.findings]
        verified += [(self._group.path, found) for found in self._situation.findings]
        return Replayed(
            path=self._group.path,
            format=self._format.name,
            policy=self._wish.policy,
            starts=False if itinerary.refusal is not None else outcome.starts,
            decisions={verb: self._decisions[verb] for verb in VERBS},
            reasons=dict(sorted(self._reasons.items())),
            objects=tuple(self._objects[name] for name in sorted(self._objects)),
            stop=None if stop is None else stop._replace(file=paths.get(stop.file, stop.file)),
            position=outcome.position,
            digest=digest,
            read=tuple(paths[name] for name in itinerary.read),
            findings=(*verified, *((paths.get(name, name), found) for name, found in outcome.findings)),
            rules={reason: _rule(self._replay, reason) for reason in sorted(self._reasons)},
            details=details,
        )

    def _digest(self) -> str:
        total = 0
        for name, one in self._state.objects().items():
            tally = self._tally(name)
            tally.keys, tally.digest = one.keys, one.digest
            total += one.total
        return f"{total % (1 << 256):064x}"


def _decision(block: Block, i: int, verb: str, reason: str) -> Decision:
    e = block.envelope
    return Decision(
        block.file, block.record[i], block.offset[i], block.size[i], e.type[i], e.seq[i], e.time[i], e.object[i],
        e.txn[i], verb, reason,
    )  # fmt: skip


_GENERAL = {
    NOT_REACHED: "The server has given up before it gets here.",
    UNTIL: "The record is at or behind the position of --until.",
}


def _rule(rules: Replay, reason: str) -> str:
    return rules.reasons.get(reason) or _GENERAL[reason]


def _before(block: Block, offset: int) -> Block:
    """The records of a block that start before an offset of the file."""
    return block.part(0, sum(1 for at in block.offset if at < offset))


def _format_of(group: Group, examination: Examination) -> Format:
    if group.format is not None:
        return group.format
    if examination.failures:
        failure = examination.failures[0]
        raise InputOutputError(f"{failure.path}: {failure.message}")
    return detect.by_name(examination.files[0].report.format)


def _rules_of(format_: Format) -> Replay:
    if format_.replay is None:
        raise UsageError(f"nothing replays a log of the format {format_.name}, or its rules are not known")
    return format_.replay


def _situation(group: Group, examination: Examination, wish: Wish, rules: Replay) -> Situation:
    files = tuple(
        Examined(
            one.member.name,
            one.report.path,
            one.report.size,
            one.report.records or 0,
            one.member.layout,
            one.member.verdict,
            one.member.tail,
            one.report.findings,
        )
        for one in examination.files
    )
    unread = tuple(
        Examined(os.path.relpath(f.path, group.path) if group.is_set else f.path, f.path, 0, 0, None, None, None)
        for f in examination.failures
    )
    beside = partial(read_beside, os.path.join(group.path, "_") if group.is_set else group.path)
    own = examination.set.findings if examination.set is not None else ()
    return Situation(
        files + unread, group.is_set, wish.policy, _against(wish.against, rules), own, beside, wish.hints.redo
    )


def _against(given: Mapping[str, Any] | str | None, rules: Replay) -> Mapping[str, Any] | None:
    """The position that `--against` names: as JSON (also a whole report of a replay), or a file of the format's own.

    Raises:
        InputOutputError: the file cannot be read. UsageError: it holds no position.
    """
    if given is None or not isinstance(given, str):
        return given
    data = _read_state(given)
    if data.lstrip()[:1] == b"{":
        try:
            value = msgspec.json.decode(data)
        except msgspec.DecodeError as error:
            raise UsageError(f"--against {given}: no JSON: {error}") from None
        position = value.get("position", value) if isinstance(value, dict) else None
        if isinstance(position, dict):
            return position
    known = None if rules.state is None else rules.state(os.path.basename(given), data)
    if known is None:
        raise UsageError(f"--against {given}: neither a position as JSON nor a file of the server that holds one")
    return known


_MAX_STATE = 16 << 20


def _read_state(path: str) -> bytes:
    from binlogtool.log.source import FileSource, read_range

    source = FileSource(path)
    try:
        if (source.size or 0) > _MAX_STATE:
            return read_range(source, 0, _MAX_STATE)  # of a snapshot the head is enough
        return read_range(source, 0, source.size or 0)
    finally:
        source.close()
