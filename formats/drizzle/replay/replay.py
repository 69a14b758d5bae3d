"""Predict what an applier does with the transactions of the log, in the order of their final messages.

The server itself reads nothing of the log when it starts. The replay covers what the server's own reader reaches,
with
transactions assembled as the writer meant them; that reader prints a COMMIT too early where a transaction is split
between statements, and shows what was silently rolled back. Source:
`docs/spec/drizzle-transaction-log.md#4-transactions-segments-rollbacks`, `#8-replay-dry-run-and-convert`.
"""

from __future__ import annotations

import posixpath
from array import array
from collections.abc import Iterable, Mapping
from types import MappingProxyType
from typing import Any

import msgspec

from binlogtool.errors import UsageError
from binlogtool.formats.drizzle.codes import EntryType, EventType, StatementType
from binlogtool.formats.drizzle.judge.segments import MAX_OPEN, IdSet, Key
from binlogtool.formats.drizzle.replay.effects import DATA_PARTS
from binlogtool.formats.drizzle.replay.reader import Reached, reader_goes_on
from binlogtool.formats.replay_rules import (
    APPLIED,
    NOT_REACHED,
    REJECTED,
    SKIPPED,
    Examined,
    Itinerary,
    Outcome,
    Records,
    Ruling,
    Situation,
    Stop,
)

REASONS: Mapping[str, str] = MappingProxyType(
    {
        "committed": "The transaction is whole: its final message (end_segment true or absent) was met (section 4). "
        "Transactions are applied in the order of their final messages.",
        "rolled-back": "The transaction ends with ROLLBACK: all its earlier segments are void (section 4).",
        "unterminated": "The final message of the transaction never comes: it was rolled back silently, or a crash cut "
        "it off; either way it was not committed (section 4).",
        "segments-missing": "A segment of the transaction, or of one of its statements, is not in the log: it "
        "cannot be put together (section 5).",
        "unfinished-statement": "The final message ends inside a statement whose rest never comes (section 4).",
        "duplicate": "This transaction, or this segment of it, was there before in the same run of the server "
        "(section 5).",
        "event": "An event uses up a transaction id and changes nothing (section 3). STARTUP begins a new run of ids.",
        "blob": "An entry of type BLOB: declared and never written; the reader ends at it (sections 1 and 9).",
        "undecodable": "The message is no Transaction: the reader ends at it (section 9).",
        "before-position": "The final message of the transaction lies before the offset that --against names.",
        "given-up": f"More than {MAX_OPEN:,} transactions are open at the same time: the oldest is not followed.",
    }
)
_MAX_ORIGINS = 10_000
_WHOLE: Mapping[str, Any] = MappingProxyType({})
_ROLLBACK, _ROLLBACK_STATEMENT = StatementType.ROLLBACK.name, StatementType.ROLLBACK_STATEMENT.name
_AGAINST = '--against: {"offset": {FILE: bytes}} is meant, the offset behind the last entry that was applied'


class Open(msgspec.Struct):
    """A transaction without its final message.

    Attributes:
        numbers: its records.
        segment: last segment id.
        unfinished: data segment of a statement that continues in the next message, or None.
        broken: a segment is missing.
        void: it was rolled back.
    """

    numbers: array[int] = msgspec.field(default_factory=lambda: array("q"))
    segment: int = 0
    unfinished: int | None = None
    broken: bool = False
    void: bool = False

    def take(self, statements: Iterable[Mapping[str, Any]]) -> None:
        """Add the statements of the next message."""
        for statement in statements:
            kind = statement.get("type")
            if kind == _ROLLBACK:
                self.void, self.unfinished = True, None
                continue
            if kind == _ROLLBACK_STATEMENT:
                self.unfinished = None
                continue
            data = statement.get(DATA_PARTS.get(str(kind), "")) or _WHOLE
            self.broken |= data.get("segment_id", 1) != (self.unfinished or 0) + 1
            self.unfinished = None if data.get("end_segment", True) else data.get("segment_id", 1)

    def fate(self) -> tuple[str, str]:
        """Return the decision at its final message: verb and reason."""
        if self.void:
            return SKIPPED, "rolled-back"
        if self.broken:
            return REJECTED, "segments-missing"
        return (APPLIED, "committed") if self.unfinished is None else (REJECTED, "unfinished-statement")


class Rulings(list[Ruling]):
    """Rulings in the order in which they take effect; adjacent ones with one decision are merged."""

    def add(self, number: int, verb: str, reason: str) -> None:
        """Add the decision about one record."""
        last = self[-1] if self else None
        if last is not None and last.stop == number and last[2:] == (verb, reason):
            self[-1] = last._replace(stop=number + 1)
        else:
            self.append(Ruling(number, number + 1, verb, reason))


class LogReplay:
    """Replay rules of one log (implements `replay_rules.Replayer`); several files count as parts of one log."""

    def __init__(self, situation: Situation) -> None:
        self.situation = situation
        self.force = situation.policy == "force"
        self.before = _offsets(situation.against or {})
        self.stop: Stop | None = None
        self.open: dict[Key, Open] = {}
        self.done = IdSet()
        self.origins: dict[str, int] = {}
        self.counts = dict.fromkeys(("transactions", "rolled_back", "unterminated", "unchecked_entries"), 0)
        self.file: Examined | None = None
        self.at = 0
        self.ends: dict[str, int] = {}

    def itinerary(self) -> Itinerary:
        """Return all files, in order."""
        return Itinerary(tuple(file.name for file in self.situation.files))

    def feed(self, name: str, first: int, records: Records) -> Iterable[Ruling]:
        """Rule on one run of entries, and on earlier ones whose transactions end in it."""
        out = Rulings()
        if self.file is None or self.file.name != name:
            self._close()
            self.file = next(file for file in self.situation.files if file.name == name)
            self.at = 0
        for i, (offset, size) in enumerate(zip(records.offset, records.size, strict=True)):
            if offset != self.at and self.stop is None:
                self._damage(self.at, offset)
            if self.stop is not None:
                out.append(Ruling(first + i, first + len(records), SKIPPED, NOT_REACHED))
                break
            self._entry(records, i, first + i, offset + size, out)
            self.at = offset + size if self.stop is None else offset
        return out

    # -- one entry -------------------------------------------------------------------------------------------------

    def _entry(self, records: Records, i: int, number: int, end: int, out: Rulings) -> None:
        body = records.bodies[i]
        if records.envelope.type[i] == EntryType.BLOB.name:
            self._unreadable(records.offset[i], "a non-transaction message", number, "blob", out)
        elif not isinstance(body, Mapping) or "transaction_context" not in body:
            if records.findings.get(i) and records.envelope.txn[i] is None:
                self._unreadable(records.offset[i], "the message does not parse", number, "undecodable", out)
            else:
                out.add(number, REJECTED, "undecodable")
        else:
            self._message(body, number, end, out)

    def _unreadable(self, offset: int, why: str, number: int, reason: str, out: Rulings) -> None:
        out.add(number, SKIPPED if self.force else REJECTED, reason)
        if not self.force:
            self.stop = Stop(self._name, offset, f"{why}: the reader ends here with an error")

    @property
    def _name(self) -> str:
        return "" if self.file is None else self.file.name

    def _message(self, body: Mapping[str, Any], number: int, end: int, out: Rulings) -> None:
        context, event = body["transaction_context"], body.get("event")
        key = context.get("server_id", 0), context.get("transaction_id", 0)
        if event is not None and event.get("type") == EventType.STARTUP.name:
            self._new_run(out)
        statements = body.get("statement", ())
        if event is not None and not statements:
            self.done.add(key)
            out.add(number, SKIPPED, "event")
            return
        self._segment(key, body, statements, number, end, out)

    def _segment(self, key: Key, body: Mapping[str, Any], statements: Any, number: int, end: int, out: Rulings) -> None:
        group = self.open.get(key)
        segment, final = body.get("segment_id", 1), body.get("end_segment", True)
        if segment <= group.segment if group is not None else key in self.done:
            out.add(number, SKIPPED, "duplicate")
            return
        group = group or self._begin(key, out)
        group.broken |= segment != group.segment + 1
        group.segment = segment
        group.numbers.append(number)
        group.take(statements)
        if final:
            self._end(key, group, end, out)

    def _begin(self, key: Key, out: Rulings) -> Open:
        if len(self.open) >= MAX_OPEN:
            self._leave(next(iter(self.open)), "given-up", out)
        group = self.open[key] = Open()
        return group

    def _end(self, key: Key, group: Open, end: int, out: Rulings) -> None:
        """Rule on all records of a transaction at its final message."""
        del self.open[key]
        self.done.add(key)
        verb, reason = group.fate()
        if verb == APPLIED and end <= self.before.get(posixpath.basename(self._name), 0):
            verb, reason = SKIPPED, "before-position"
        for number in group.numbers:
            out.add(number, verb, reason)
        self.counts["rolled_back"] += reason == "rolled-back"
        if verb == APPLIED:
            self.counts["transactions"] += 1
            origin = str(key[0])
            if origin in self.origins or len(self.origins) < _MAX_ORIGINS:
                self.origins[origin] = key[1]

    def _new_run(self, out: Rulings) -> None:
        """Start a new run of the server: open transactions never end, and ids restart."""
        for key in list(self.open):
            self._leave(key, "unterminated", out)
        self.done.clear()

    def _leave(self, key: Key, reason: str, out: Rulings) -> None:
        self.counts["unterminated"] += reason == "unterminated"
        for number in self.open.pop(key).numbers:
            out.add(number, SKIPPED, reason)

    # -- damage ----------------------------------------------------------------------------------------------------

    def _damage(self, start: int, end: int) -> None:
        """Simulate the reader over `[start, end)`, which holds nothing provable; record where it ends."""
        if self.force or self.file is None:
            return
        beside = self.situation.beside
        read = None if beside is None else beside(self.file.name)
        reached = Reached(start, "what is here cannot be read") if read is None else reader_goes_on(read, start, end)
        self.counts["unchecked_entries"] += reached.entries
        if reached.why is not None:
            self.stop = Stop(self.file.name, reached.offset, f"{reached.why}: the reader ends here with an error")

    def _close(self) -> None:
        """Close the current file."""
        if self.file is None:
            return
        tail = self.file.tail
        if self.stop is None and tail is not None and self._seen_all(tail.end) and self.at < tail.size:
            self._damage(self.at, tail.size)
        self.ends[posixpath.basename(self.file.name)] = self.at

    def _seen_all(self, end: int) -> bool:
        """Check that the last entry of the file was read (and not only those before some `--until`)."""
        tail = None if self.file is None else self.file.tail
        return tail is not None and (self.at >= end if tail.first_damage is None else not self._behind())

    def _behind(self) -> bool:
        """Check that complete entries are known after the position that was reached."""
        findings = () if self.file is None else self.file.findings
        return any(one.id == "valid-after-damage" and (one.offset or 0) >= self.at for one in findings)

    def finish(self) -> tuple[Iterable[Ruling], Outcome]:
        """Rule on the transactions that are open at the end, which were not committed."""
        if self.file is None and self.situation.files:
            self.file = self.situation.files[-1] if not self.situation.files[-1].records else None
        self._close()
        out = Rulings()
        for key in list(self.open):
            self._leave(key, "unterminated", out)
        position = {"offset": self.ends, "origins": dict(sorted(self.origins.items()))}
        return out, Outcome(None, self.stop, position, (), dict(self.counts))


def _offsets(against: Mapping[str, Any]) -> dict[str, int]:
    """Parse the offsets where an earlier replay ended.

    Raises:
        UsageError: the position has another form.
    """
    known = against.get("offset", {})
    if not isinstance(known, Mapping) or any(type(value) is not int for value in known.values()):
        raise UsageError(_AGAINST)
    return dict(known)
