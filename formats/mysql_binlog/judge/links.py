"""Link between two neighbours of a log: the second file must continue where the first one ends."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import lru_cache
from itertools import combinations, pairwise
from typing import Any

import msgspec

from binlogtool.findings import Severity, finding
from binlogtool.formats.binlog_events.gtid.states import Span, spans_fact, spans_text
from binlogtool.formats.judging import Member, SetFinding
from binlogtool.formats.mysql_binlog.judge.file_facts import FileFacts, Named, file_facts
from binlogtool.formats.mysql_binlog.members.names import LogName, log_name, printable

MOST_SUSPECTS = 8
"""Files beside a broken link that are tried as exchanged."""


class Log(msgspec.Struct, frozen=True, eq=False):
    """One log file of a set."""

    member: Member
    name: LogName

    @property
    def facts(self) -> FileFacts | None:
        """The facts that the rules need; None if the file could not be read."""
        return _facts(self)

    @property
    def rotation(self) -> Named | None:
        """The ROTATE at its end."""
        return None if self.facts is None else self.facts.rotation

    @property
    def size(self) -> int:
        """Size in bytes."""
        return 0 if self.member.tail is None else self.member.tail.size

    def rotates_to(self, name: str) -> bool:
        """Return whether it ends with a ROTATE to this file."""
        return self.rotation is not None and self.rotation.name == name

    @property
    def listed_at(self) -> int:
        """Offset of the event that lists the GTIDs of earlier files."""
        return 0 if self.facts is None else self.facts.previous_at


@lru_cache(maxsize=8)
def _facts(log: Log) -> FileFacts | None:
    """Return the facts of a file, cached for a few: those of 100,000 files would need much memory."""
    facts = log.member.verdict.facts if log.member.verdict is not None else None
    return file_facts(facts, log.member.layout, log.name.base)


def target_fits(before: Log, name: LogName) -> bool:
    """Return whether `before` ends with a ROTATE to this name, or with none; files renamed together keep their
    numbers.
    """
    if before.rotation is None or before.rotates_to(name.name):
        return True
    target = log_name(before.rotation.name)
    return target is not None and target.base != name.base and target.number == name.number


def states_fit(before: Log, after: Log) -> bool:
    """Return whether `after` begins with the GTIDs that `before` ends with."""
    lost, more = _state_gap(before, after)
    return not lost and not more


def _state_gap(before: Log, after: Log) -> tuple[list[Span], list[Span]]:
    """Return GTIDs missing between two files, and GTIDs of the first one that the second does not list."""
    end = None if before.facts is None else before.facts.after
    start = None if after.facts is None else after.facts.previous
    if end is None or start is None or before.facts is None:
        return [], []
    more = start.lacks(end)
    if before.facts.open_at is not None and len(more) == 1 and more[0].first == more[0].last:
        more = []  # the transaction that is open at the end; the server rolled it back
    return end.lacks(start), more


def follows_exactly(before: Log, after: Log) -> bool:
    """Return whether it is proven that nothing is missing between two files."""
    known = before.facts is not None and before.facts.after is not None and after.facts is not None
    return known and after.facts is not None and after.facts.previous is not None and states_fit(before, after)


def lost_between(before: Log, after: Log) -> list[Span]:
    """Return the GTIDs of the files that are missing between two files."""
    return _state_gap(before, after)[0]


def _fits(before: Log, name: LogName, after: Log) -> bool:
    """Return whether `after`, under this name, can follow `before`."""
    return target_fits(before, name) and states_fit(before, after)


def broken(names: Sequence[LogName], logs: Sequence[Log], at: int) -> bool:
    """Return whether the link between file `index` and the next one is broken; never across a gap in numbers."""
    if at < 0 or at + 1 >= len(logs) or names[at + 1].number != names[at].number + 1:
        return False
    return not _fits(logs[at], names[at + 1], logs[at + 1])


def exchanged(logs: Sequence[Log]) -> tuple[Log, Log] | None:
    """Return two files whose names were exchanged: with the names swapped back every link at them is valid."""
    names = [log.name for log in logs]
    gaps = [at for at in range(len(logs) - 1) if broken(names, logs, at)]
    suspects = sorted({place for at in gaps for place in (at, at + 1)})[:MOST_SUSPECTS]
    for first, second in combinations(suspects, 2):
        places = {first - 1, first, second - 1, second}
        if len(places & set(gaps)) < 2:
            continue
        tried = list(logs)
        tried[first], tried[second] = tried[second], tried[first]
        if not any(broken(names, tried, at) for at in places):
            return logs[first], logs[second]
    return None


def exchanged_findings(logs: Sequence[Log], pair: tuple[Log, Log]) -> Iterator[SetFinding]:
    """Yield the findings about two exchanged files."""
    for own, other in (pair, pair[::-1]):
        words = f"exchanged with {printable(other.name.name)}: this file was written as that one"
        proofs = list(_proofs(logs, own))
        text = words + (f" ({'; '.join(proofs)})" if proofs else "")
        found = finding("meta-mismatch", own.listed_at, 0, text, exchanged_with=printable(other.name.name))
        yield SetFinding(own.member.name, found)


def _proofs(logs: Sequence[Log], own: Log) -> Iterator[str]:
    """Yield what proves that a file was exchanged."""
    at = logs.index(own)
    if at + 1 < len(logs) and own.rotation is not None and not target_fits(own, logs[at + 1].name):
        yield f"it ends with a ROTATE to {printable(own.rotation.name)}"
    for before, after in pairwise(logs[max(at - 1, 0) : at + 2]):
        if not states_fit(before, after):
            other = before if after is own else after
            yield f"its GTIDs and those of {printable(other.name.name)} do not follow each other"


def link_findings(before: Log, after: Log) -> Iterator[SetFinding]:
    """Yield findings about two files with consecutive numbers."""
    yield from _rotation(before, after)
    lost, more = _state_gap(before, after)
    place = None if before.member.tail is None else before.member.tail.first_damage
    if lost and place is not None:
        text = f"transactions lost in the damaged part: {spans_text(lost)}"
        yield SetFinding(before.member.name, finding("gap-in-sequence", place, 0, text, missing_gtids=spans_fact(lost)))
    elif lost:
        text = f"transactions are missing between {printable(before.name.name)} and this file: {spans_text(lost)}"
        yield _at_previous(after, "gap-in-sequence", text, lost)
    if more:
        text = f"transactions at the end of {printable(before.name.name)} are not known here: {spans_text(more)}"
        crashed = before.facts is not None and before.facts.maria and before.facts.in_use
        if crashed:
            text += (
                "; MariaDB writes an older list where its crash recovery read several files, and counts on from the log"
            )
        yield _at_previous(after, "sequence-regression", text, more, severity=Severity.NOTE if crashed else None)
    yield from _source_files(before, after)


def _at_previous(log: Log, id_: str, text: str, spans: list[Span], severity: Severity | None = None) -> SetFinding:
    """Return a finding at the event that lists the GTIDs of earlier files."""
    facts: dict[str, Any] = {"missing_gtids" if id_ == "gap-in-sequence" else "unknown_gtids": spans_fact(spans)}
    return SetFinding(log.member.name, finding(id_, log.listed_at, 0, text, severity=severity, **facts))


def _rotation(before: Log, after: Log) -> Iterator[SetFinding]:
    """Yield a finding if the ROTATE does not name the next file."""
    rotation = before.rotation
    if rotation is None or rotation.name == after.name.name:
        return
    fits = target_fits(before, after.name)
    text = f"ends with a ROTATE to {printable(rotation.name)}; the next file is {printable(after.name.name)}"
    found = finding(
        "meta-mismatch", rotation.offset, 0, text + (": renamed" if fits else ""),
        severity=Severity.NOTE if fits else Severity.ERROR, rotates_to=printable(rotation.name),
    )  # fmt: skip
    yield SetFinding(before.member.name, found)


def _source_files(before: Log, after: Log) -> Iterator[SetFinding]:
    """Yield findings about relay logs whose source files do not follow each other."""
    if before.facts is None or after.facts is None:
        return
    for old, new in pairwise((*before.facts.sources[-1:], *after.facts.sources)):
        first, second = log_name(old.name), log_name(new.name)
        if first is None or second is None or first.base != second.base:
            continue
        if second.number > first.number + 1 or second.number < first.number:
            id_ = "gap-in-sequence" if second.number > first.number else "sequence-regression"
            text = f"goes on with the source's file {printable(new.name)} after {printable(old.name)}"
            found = finding(id_, after.facts.head_at, 0, text, severity=Severity.WARNING)
            yield SetFinding(after.member.name, found)
