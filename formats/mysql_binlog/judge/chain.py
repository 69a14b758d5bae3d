"""Validation of a log set: the index against the files, and each log file against the next one.

One directory may hold several logs (a server's own and its relay log): files of one base name are one log.
Source: docs/spec/mysql-mariadb-binlog.md#11-invariants-for-verify (rule 12).
"""

from __future__ import annotations

from array import array
from bisect import bisect_left, bisect_right
from collections.abc import Iterator, Mapping, Sequence
from itertools import chain as chain_of
from itertools import groupby, islice, pairwise
from typing import Any

import msgspec
from msgspec.structs import replace

from binlogtool.findings import Finding, Severity, finding
from binlogtool.formats.binlog_events.gtid.states import ListState, spans_fact, spans_text
from binlogtool.formats.binlog_events.wire.description import version_numbers
from binlogtool.formats.judging import Member, SetFinding
from binlogtool.formats.mysql_binlog.judge.links import (
    Log,
    exchanged,
    exchanged_findings,
    follows_exactly,
    link_findings,
    lost_between,
)
from binlogtool.formats.mysql_binlog.members.gtid_index import GtidIndexContext
from binlogtool.formats.mysql_binlog.members.index import Listing, TextContext, TextKind
from binlogtool.formats.mysql_binlog.members.names import GTID_INDEX, LogName, log_name, printable

MAX_MISSING = 100
"""Missing files that are told one by one."""

_CLEARS_FLAG = (5, 6)
"""MySQL clears the in-use flag behind its recovery from this version on; MariaDB never does."""

_OPEN_ENDS = ("torn-tail", "incomplete-transaction")


class Listed:
    """Files of one log that an index lists; empty without an index."""

    def __init__(self, index: Member | None = None, listing: Listing | None = None) -> None:
        self.index = index
        self._listing = listing
        self._numbers = listing.ordered() if listing is not None else array("q")

    def __contains__(self, number: int) -> bool:
        at = bisect_left(self._numbers, number)
        return at < len(self._numbers) and self._numbers[at] == number

    def __len__(self) -> int:
        return len(self._numbers)

    def name(self, number: int) -> str:
        """Return the name that is listed for a number."""
        assert self._listing is not None
        return self._listing.name(number)

    @property
    def first(self) -> int:
        """The lowest number."""
        return self._numbers[0]

    @property
    def last(self) -> int:
        """The highest number."""
        return self._numbers[-1]

    def outside(self, low: int, high: int) -> tuple[int, Iterator[int]]:
        """Return the number of listed numbers below `low` or above `high`, and these numbers."""
        below, above = bisect_left(self._numbers, low), bisect_right(self._numbers, high)
        count = below + len(self._numbers) - above
        return count, chain_of(islice(self._numbers, below), islice(self._numbers, above, None))


class Chain(msgspec.Struct, frozen=True):
    """One log; `logs`: by number, no number twice; `listed`: what an index lists of it."""

    base: str
    logs: list[Log]
    listed: Listed


def judge_set(members: Sequence[Member]) -> list[SetFinding]:
    """Return all findings about the files together, log by log."""
    return list(_judged(members))


def _judged(members: Sequence[Member]) -> Iterator[SetFinding]:
    """Yield all findings about the files together."""
    logs = _logs(members)
    texts = [(member, context) for member in members if isinstance(context := _context(member), TextContext)]
    indexes = [(member, context) for member, context in texts if context.kind is TextKind.INDEX]
    listings = _listings(indexes)
    for base in sorted({*logs, *listings}):
        listed, own = listings.get(base, Listed()), logs.get(base, [])
        if own:
            yield from _doubles(own)
            yield from _judge_chain(Chain(base, _single(own), listed))
        elif listed.index is not None:
            yield _all_missing(listed.index, listed)
    for member, context in texts:
        yield from _text_member(member, context, logs)
    for member in members:
        matched = GTID_INDEX.fullmatch(member.name)
        if matched and isinstance(_context(member), GtidIndexContext) and _find(logs, matched["log"]) is None:
            text = f"the GTID index of {printable(matched['log'])}, which is not there"
            yield SetFinding(member.name, finding("extra-member", 0, 0, text))


def _context(member: Member) -> Any:
    """Return the layout context of a member."""
    return None if member.layout is None else member.layout.context


def _logs(members: Sequence[Member]) -> dict[str, list[Log]]:
    """Return the log files by base name, sorted by number."""
    logs: dict[str, list[Log]] = {}
    for member in members:
        name = log_name(member.name)
        if name is None or isinstance(_context(member), TextContext | GtidIndexContext):
            continue
        logs.setdefault(name.base, []).append(Log(member, name))
    for own in logs.values():
        own.sort(key=_by_number)
    return logs


def _by_number(log: Log) -> tuple[int, int, str]:
    """Return the sort key of a log file."""
    return _place(log.name)


def _place(name: LogName) -> tuple[int, int, str]:
    """Return the sort key of a log name."""
    return name.number, len(name.name), name.name


def _find(logs: Mapping[str, list[Log]], name: str) -> Log | None:
    """Return the log file with this name."""
    known = log_name(name)
    own = [] if known is None or known.name != name else logs.get(known.base, [])
    at = bisect_left(own, _place(known), key=_by_number) if known is not None else 0
    return own[at] if at < len(own) and own[at].name.name == name else None


def _listings(indexes: Sequence[tuple[Member, TextContext]]) -> dict[str, Listed]:
    """Return the listing of each base; of two indexes the one named like the base counts."""
    listings: dict[str, Listed] = {}
    for member, context in indexes:
        for base, listing in context.listings.items():
            if base not in listings or member.name == f"{base}.index":
                listings[base] = Listed(member, listing)
    return listings


def _all_missing(index: Member, listed: Listed) -> SetFinding:
    """Return the finding about an index of whose files none exists."""
    first, last = printable(listed.name(listed.first)), printable(listed.name(listed.last))
    if len(listed) > 1:
        text = f"none of the {len(listed):,} listed files is in this directory: {first} to {last}"
    else:
        text = f"the one listed file is not in this directory: {first}"
    return SetFinding(index.name, finding("missing-member", 0, 0, text, missing=len(listed)))


def _doubles(logs: list[Log]) -> Iterator[SetFinding]:
    """Yield findings about files with the same number."""
    for first, second in pairwise(logs):
        if first.name.number == second.name.number:
            text = f"{printable(first.name.name)} has the same number: only one of them can belong to the log"
            yield SetFinding(second.member.name, finding("duplicate-sequence", 0, 0, text))


def _single(logs: list[Log]) -> list[Log]:
    """Return one file for each number: the one with the fewest digits, as servers write it."""
    return [next(same) for _, same in groupby(logs, lambda log: log.name.number)]


# -- one log -----------------------------------------------------------------------------------------------------------


def _judge_chain(chain: Chain) -> Iterator[SetFinding]:
    """Yield the findings about one log."""
    yield from _missing(chain)
    yield from _extra(chain)
    pair = exchanged(chain.logs)
    if pair is not None:
        yield from exchanged_findings(chain.logs, pair)
    for before, after in pairwise(chain.logs):
        touched = pair is not None and any(log in pair for log in (before, after))
        if not touched and after.name.number == before.name.number + 1:
            yield from link_findings(before, after)
    yield from _last_rotation(chain)
    yield from _checkpoints(chain, pair or ())
    for log, after in pairwise(chain.logs):
        yield from _not_last(chain, log, after)
    yield from _groups(chain)


def _missing(chain: Chain) -> Iterator[SetFinding]:
    """Yield findings about files that the index names, or that a gap in the numbers shows."""
    newest = chain.logs[-1]
    holes = [(before, after) for before, after in pairwise(chain.logs) if after.name.number > before.name.number + 1]
    count, outside = chain.listed.outside(chain.logs[0].name.number, newest.name.number)
    total = count + sum(after.name.number - before.name.number - 1 for before, after in holes)
    told = 0
    for number in islice(outside, MAX_MISSING):
        told += 1
        last = newest if newest.name.number == number - 1 else None
        yield _absent(chain, number, last, [], total if told == MAX_MISSING else 0)
    for before, after in holes:
        spans = lost_between(before, after)
        for number in range(before.name.number + 1, after.name.number):
            if told == MAX_MISSING:
                return
            told += 1
            last = before if before.name.number == number - 1 else None
            yield _absent(chain, number, last, spans, total if told == MAX_MISSING else 0)
            spans = []


def _absent(chain: Chain, number: int, before: Log | None, spans: list[Any], total: int) -> SetFinding:
    """Return the finding about a missing file, with everything that shows that it should exist."""
    index = chain.listed.index
    named = index is not None and number in chain.listed
    known = chain.listed.name(number) if named else chain.logs[0].name.sibling(number)
    said = [f"listed in {printable(index.name)}"] if named and index is not None else []
    if before is not None and before.rotates_to(known):
        said.append(f"named by the ROTATE at the end of {printable(before.name.name)}")
    why = " and ".join(said) or "its number lies between those of other files"
    text = f"{printable(known)} is not there: {why}"
    facts: dict[str, Any] = {"missing": printable(known)}
    if chain.logs[0].name.number < number < chain.logs[-1].name.number:
        facts["between"] = True
    if spans:
        text += f"; transactions lost: {spans_text(spans)}"
        facts["missing_gtids"] = spans_fact(spans)
    if total > MAX_MISSING:
        text += f" ({total:,} files are missing in all)"
    return SetFinding(known, finding("missing-member", None, 0, text, **facts))


def _extra(chain: Chain) -> Iterator[SetFinding]:
    """Yield findings about files that the index does not list; replicas skip the transactions of those in the
    middle.
    """
    index, listed = chain.listed.index, chain.listed
    if index is None:
        return
    sound = getattr(_context(index), "sound", False)
    for before, log in zip([None, *chain.logs], chain.logs, strict=False):
        number = log.name.number
        if number in listed:
            continue
        text = f"not listed in {printable(index.name)}: the server does not know it"
        if before is not None and before.name.number == number - 1 and before.rotates_to(log.name.name):
            text += f", although {printable(before.name.name)} ends with a ROTATE to it"
        middle = len(listed) > 0 and listed.first < number < listed.last
        if middle:
            text += "; replicas would miss its transactions"
        severity = Severity.ERROR if middle and sound else Severity.WARNING
        found = finding("extra-member", 0, log.size, text, severity=severity, not_in_index=printable(log.name.name))
        yield SetFinding(log.member.name, found)


def _last_rotation(chain: Chain) -> Iterator[SetFinding]:
    """Yield a finding if the newest file names a newer one."""
    last = chain.logs[-1]
    rotation = last.rotation
    target = None if rotation is None else log_name(rotation.name)
    if rotation is None or target is None or last.name.number + 1 in chain.listed:
        return
    if target.number == last.name.number + 1:
        text = f"the log goes on in {printable(rotation.name)}, which is not there"
        found = finding("missing-member", rotation.offset, 0, text, severity=Severity.WARNING)
        yield SetFinding(last.member.name, found)


def _checkpoints(chain: Chain, exchanged_logs: Sequence[Log]) -> Iterator[SetFinding]:
    """Yield findings about BINLOG_CHECKPOINT events: each must name this file or an older one of the log."""
    first, last = chain.logs[0], chain.logs[-1]
    for log in chain.logs:
        if log.facts is None or log.facts.relay or log in exchanged_logs:
            continue
        for mark in dict.fromkeys(log.facts.checkpoints):
            name = log_name(mark.name)
            if name is None or (name.base == chain.base and name.number > log.name.number):
                text = f"BINLOG_CHECKPOINT names {printable(mark.name)}, which cannot be older than this file"
                found = finding("meta-mismatch", log.listed_at, 0, text)
                yield SetFinding(log.member.name, found)
    marks = last.facts.checkpoints if last.facts is not None and last.facts.in_use else ()
    needed = log_name(marks[-1].name) if marks else None
    if needed is not None and needed.base == chain.base and needed.number < first.name.number:
        text = f"the server needs {printable(needed.name)} for its recovery after a crash, and it is not there"
        found = finding("missing-member", last.listed_at, 0, text, missing=printable(needed.name))
        yield SetFinding(last.member.name, found)


def _not_last(chain: Chain, log: Log, after: Log) -> Iterator[SetFinding]:
    """Yield findings about a file that another one follows: it should have been closed."""
    facts, tail = log.facts, log.member.tail
    if facts is None or tail is None:
        return
    never_cleared = facts.maria or version_numbers(facts.told.server_version) < _CLEARS_FLAG
    severity = Severity.WARNING if never_cleared else Severity.ERROR
    if facts.in_use:
        durable = log.member.verdict.durable_end if log.member.verdict is not None else None
        torn = tail.size - (tail.end if durable is None else min(durable, tail.size))
        text = f"in-use flag set, and {printable(chain.logs[-1].name.name)} is newer: the server crashed; "
        if facts.maria:
            text += f"it left the file as it was and rolled back what is behind the last transaction ({torn:,} bytes)"
        elif never_cleared:
            text += "MySQL before 5.6 leaves the flag of such a file, and all behind its last transaction"
        else:
            text += "at its start a server repairs only the newest file"
        plain = Severity.WARNING if torn else Severity.NOTE
        found = finding(
            "unclean-close", facts.head_at, facts.head_size, text, severity=plain if never_cleared else severity,
            record=0, torn_bytes=torn,
        )  # fmt: skip
        yield SetFinding(log.member.name, found, ("unclean-close",))
    elif after.facts is not None and follows_exactly(log, after):
        text = f"neither ROTATE nor STOP at the end, and {printable(after.name.name)} goes on exactly there: "
        text += "the server cut the file in its recovery after a crash"
        for one in _own_findings(log):
            if one.id == "unclean-close":
                yield SetFinding(log.member.name, replace(one, severity=Severity.NOTE, message=text), (one.id,))
    raised = [one for one in _own_findings(log) if one.id in _OPEN_ENDS and one.severity is not severity]
    for one in raised:
        if one.id == "incomplete-transaction" and (facts.relay or not facts.in_use):
            continue
        yield SetFinding(log.member.name, one.raised_to(severity), (one.id,))


def _own_findings(log: Log) -> Sequence[Finding]:
    """Return the findings about one file."""
    tail = log.member.tail.findings if log.member.tail is not None else ()
    return (*tail, *(log.member.verdict.findings if log.member.verdict is not None else ()))


def _groups(chain: Chain) -> Iterator[SetFinding]:
    """Yield findings about MariaDB relay logs, where a group may continue in the next file."""
    for before, after in pairwise(chain.logs):
        first, second = before.facts, after.facts
        if first is None or second is None or not (second.relay and second.maria) or first.lost or second.lost:
            continue
        if after.name.number != before.name.number + 1:
            continue
        if second.carried and first.open_at is None:
            text = f"it begins inside a transaction, and {printable(before.name.name)} does not end inside one"
            yield SetFinding(after.member.name, finding("incomplete-transaction", second.head_at, 0, text))
        elif first.open_at is not None and not second.carried:
            text = f"a transaction is open at the end, and {printable(after.name.name)} does not go on with it"
            found = finding("incomplete-transaction", first.open_at, 0, text, severity=Severity.WARNING)
            yield SetFinding(before.member.name, found, ("incomplete-transaction",))


# -- the files beside the logs -----------------------------------------------------------------------------------------


def _text_member(member: Member, context: TextContext, logs: Mapping[str, list[Log]]) -> Iterator[SetFinding]:
    """Yield findings about a text file."""
    stem = member.name.rpartition(".")[0]
    if context.kind is TextKind.STATE:
        own = logs.get(stem)
        yield from _state(member, context, own[-1]) if own else _foreign(member)
    elif context.kind is TextKind.INDEX and not context.listings and stem not in logs:
        yield from _foreign(member)
    elif context.kind is TextKind.INFO and context.position is not None:
        yield from _position(member, context.position, logs)


def _foreign(member: Member) -> Iterator[SetFinding]:
    """Yield the finding about a text file of no log here."""
    text = "no log of this directory has its name: it is not looked at"
    found = finding("extra-member", 0, 0, text, severity=Severity.NOTE)
    yield SetFinding(member.name, found, ("bad-header", "torn-tail", "count-out-of-bounds"))


def _state(member: Member, context: TextContext, last: Log) -> Iterator[SetFinding]:
    """Yield findings about a state file, which is written at shutdown and deleted at start."""
    facts = last.facts
    if facts is None or not context.sound or not isinstance(facts.after, ListState) or facts.lost:
        return
    if facts.in_use:
        text = f"written at a clean shutdown, but {printable(last.name.name)} was not closed: from another moment"
        yield SetFinding(member.name, finding("meta-mismatch", 0, 0, text, severity=Severity.WARNING))
    elif facts.after.last != context.last:
        state = ListState(context.last)
        lacks, beyond = state.lacks(facts.after), facts.after.lacks(state)
        text = f"it does not tell the state at the end of {printable(last.name.name)}"
        text += f"; not in it: {spans_text(lacks)}" if lacks else ""
        text += f"; not in the log: {spans_text(beyond)}" if beyond else ""
        found = finding("meta-mismatch", 0, 0, text, state=dict(context.last), log=dict(facts.after.last))
        yield SetFinding(member.name, found)


def _position(member: Member, position: tuple[str, int], logs: Mapping[str, list[Log]]) -> Iterator[SetFinding]:
    """Yield findings about the position where the replica continues."""
    name, offset = position
    log, known = _find(logs, name), log_name(name)
    if log is None and known is not None and known.base in logs:
        text = f"the replica goes on in {printable(name)}, which is not there"
        yield SetFinding(member.name, finding("meta-mismatch", 0, 0, text))
    elif log is not None and log.member.tail is not None and offset > log.member.tail.size:
        text = f"the replica goes on at {offset:,} in {printable(name)}, which has {log.member.tail.size:,} bytes"
        yield SetFinding(member.name, finding("meta-mismatch", 0, 0, text))
