"""Predict what a data-sort does with each record when it applies the log to the sorted copy of its blob.

See docs/spec/eblob-binlog.md#6-how-the-library-reads-to-predict-its-behaviour-all-seen. No server reads a log that it
finds: it is truncated when its blob is sorted again. So this is what the library's own reader would have passed on,
  and
what the callback of the data-sort would have done with it.
"""

from __future__ import annotations

import posixpath
import struct
from bisect import bisect_left
from collections.abc import Iterable, Mapping
from types import MappingProxyType
from typing import Any, NamedTuple

import msgspec

from binlogtool.errors import LimitError, UsageError
from binlogtool.findings import Finding, Severity, finding
from binlogtool.formats.eblob.damage.borders import STALE
from binlogtool.formats.eblob.groups.grouping import Kind
from binlogtool.formats.eblob.layout.layout import Log
from binlogtool.formats.eblob.meaning import RAW_DATA
from binlogtool.formats.eblob.schema import CONTROL_SIZE, RECORD_HEADER, ControlFlag
from binlogtool.formats.layouts import Read
from binlogtool.formats.replay_rules import (
    APPLIED,
    NOT_REACHED,
    PUT,
    SKIPPED,
    Change,
    Effects,
    Examined,
    Itinerary,
    Outcome,
    Records,
    Ruling,
    Situation,
    Stop,
    canonical,
    runs,
)

REASONS: Mapping[str, str] = MappingProxyType(
    {
        "applied": "The record is written to the sorted blob at the place of its target offset (section 6). Without "
        "the index of the base (--against) every record is taken to have a place there.",
        "delivered": "The reader hands the record over; its metadata is no target offset, so no data-sort wrote it, "
        "and what its caller would do is not known (sections 4 and 6).",
        "key-not-in-base": "The sorted base does not have the key, for instance because it was removed before it was "
        "copied: skipped, with success (section 6).",
        "other-incarnation": "The target lies outside the record that the base has for the key: it was that of "
        "another incarnation of the key; skipped, with success (section 6).",
        "done": "The record lies before the position that --against names.",
        "behind-gap": "For the reader the log ends before this record, at a header that it cannot read; it says "
        "nothing, and its next append overwrites what follows. Such a record can be older than those before the gap, "
        "and is never replayed (sections 6 and 10).",
        "refused": "The library does not open the file, because of its header (section 3).",
        "dialect": "The final library cannot read logs of this dialect, and their own did not replay all of them "
        "(section 5).",
    }
)
FOREIGN = "written by a big-endian machine (version reads as 0x0100)"
_REFUSALS = {
    "bad magic": "EINVAL",
    "unknown header flags": "EINVAL",
    "unsupported version": "EOPNOTSUPP",
    FOREIGN: "EOPNOTSUPP",
    "file shorter than its header": "EINTR",
    "empty file": "EINTR",
}
_SIZES = struct.Struct("<QQQQ")
_CONTROL = struct.Struct("<64s4Q")
_WORD, _SIGNED = 1 << 64, 1 << 63
_MAX_STEPS = 4096
_BASE = '--against: {"base": {KEY: [old start, disk_size, new start]}} is meant, keys in hexadecimal'


class Place(NamedTuple):
    """Where a key's record of the data file was before the sort, its size, and where the sort has put it."""

    start: int
    disk_size: int
    moved: int


class Reading(msgspec.Struct):
    """State of reading the current file.

    Attributes:
        damage_at: offset of the first bytes that are not a record.
        walk_end: where the library's walk over the headers ends; None = never.
        failure: why the library fails at `damage_at`; "" = it does not.
        record_count: number of records before `damage_at` that were seen.
        records_end: end of the last of them.
    """

    file: Examined
    bad: int | None
    position: int | None
    why: str = ""
    taken: int = 0
    reached: int = 0

    @property
    def end(self) -> int:
        """Offset from which no record is passed on; 0 = none at all, because the walk comes first."""
        return 0 if self.position is None else min(self.position, self.bad or self.position)


class DataSort:
    """`replays.Replayer` of one log, or of several independent ones."""

    def __init__(self, situation: Situation) -> None:
        self.situation = situation
        self.base, self.done = _against(situation.against or {})
        self.stop: Stop | None = None
        self.findings: list[tuple[str, Finding]] = []
        self.reading: Reading | None = None
        self.positions: dict[str, int | None] = {}
        self.opened: set[str] = set()

    def itinerary(self) -> Itinerary:
        """Return the files that the library opens."""
        passed = {file.name: why for file in self.situation.files if (why := self._refused(file)) is not None}
        read = tuple(file.name for file in self.situation.files if file.name not in passed)
        own = all(why == "dialect" or self._foreign(name) for name, why in passed.items())
        starts = None if own else False  # the library that wrote it reads it, on the same kind of machine
        return Itinerary(read, passed, self.stop if not read else None, starts=starts)

    def _foreign(self, name: str) -> bool:
        """Check for a sound file of a machine with another byte order."""
        found = [one for file in self.situation.files if file.name == name for one in file.findings]
        return any(one.facts.get("diagnosis") == FOREIGN for one in found)

    def _refused(self, file: Examined) -> str | None:
        context = None if file.layout is None else file.layout.context
        for found in file.findings:
            error = _REFUSALS.get(found.facts.get("diagnosis", ""))
            if error is not None:
                self.stop = self.stop or Stop(file.name, found.offset, f"{found.message}; open fails with {error}")
                return "refused"
        if not isinstance(context, Log):
            return "refused"
        if not context.dialect.grouped:
            text = f"a log of dialect {context.dialect.name}: the final library cannot read it"
            self.stop = self.stop or Stop(file.name, None, text)
            return "dialect"
        return None

    # -- reading ---------------------------------------------------------------------------------------------------

    def feed(self, name: str, first: int, records: Records) -> Iterable[Ruling]:
        """Decide on one run of records."""
        reading = self.reading
        if reading is None or reading.file.name != name:
            self._close()
            reading = self.reading = self._open(name)
        cut = len(records) if reading.bad is None else bisect_left(records.offset, reading.end)
        reading.taken += cut
        if cut:
            reading.reached = records.offset[cut - 1] + records.size[cut - 1]
        gap = SKIPPED, NOT_REACHED if reading.why else "behind-gap"
        return [*self._rules(records, first, cut), *runs([gap] * (len(records) - cut), first + cut)]

    def _rules(self, records: Records, first: int, cut: int) -> Iterable[Ruling]:
        done = self.done.get(self._key(self.reading.file), 0) if self.reading else 0
        if self.base is None and not done and records.envelope.type.count(Kind.RECORD.name) == 0:
            return (Ruling(first, first + cut, APPLIED, "applied"),) if cut else ()
        return runs((self._rule(records, i, done) for i in range(cut)), first)

    def _rule(self, records: Records, i: int, done: int) -> tuple[str, str]:
        if records.offset[i] < done:
            return SKIPPED, "done"
        if records.envelope.type[i] == Kind.RECORD.name:
            return APPLIED, "delivered"
        if self.base is None:
            return APPLIED, "applied"
        place = self.base.get(records.envelope.object[i] or "")
        if place is None:
            return SKIPPED, "key-not-in-base"
        target = (records.bodies[i] or {}).get("target_offset", -1)
        inside = place.start <= target < place.start + place.disk_size
        return (APPLIED, "applied") if inside else (SKIPPED, "other-incarnation")

    # -- where the log ends for the library ------------------------------------------------------------------------

    def _open(self, name: str) -> Reading:
        """Follow the library's walk over the headers, from the first offset that is not a record."""
        file = next(one for one in self.situation.files if one.name == name)
        bad = _damage_at(file)
        if bad is None:
            return Reading(file, None, file.tail.end if file.tail else file.size)
        if any(found.offset == bad and "ceiling" in found.facts for found in file.findings):
            raise LimitError(f"{file.path}: a record at {bad:#x} is larger than --max-record: it hides what is behind")
        beside = self.situation.beside
        read = None if beside is None else beside(name)
        if read is None:
            return Reading(file, bad, bad)
        position = walk(read, bad)
        reading = Reading(file, bad, position)
        if position is None:
            reading.why = "the sizes of this record lead back to it: the library's open never ends"
        elif position > bad:
            reading.why = "the body of this record is not in the file: apply fails with EIO"
        return reading

    def _key(self, file: Examined) -> str:
        return file.name if self.situation.whole else posixpath.basename(file.name)

    def _close(self) -> None:
        """Finish the current file."""
        reading, self.reading = self.reading, None
        if reading is None:
            return
        file, bad, key = reading.file, reading.bad, self._key(reading.file)
        self.opened.add(file.name)
        self.positions[key] = reading.position
        if bad is None or not _seen_all(reading):
            self.positions[key] = reading.reached or reading.position
        elif reading.why:
            self.stop = self.stop or Stop(file.name, bad, reading.why)
            self.positions[key] = bad if reading.position else None
        elif (behind := file.records - reading.taken) > 0:
            self.findings.append((file.name, _lost(file, bad, behind)))

    def finish(self) -> tuple[Iterable[Ruling], Outcome]:
        """Open files without records too, and return the outcome."""
        self._close()
        for file in self.situation.files:
            if file.name not in self.opened and not file.records and self._refused(file) is None:
                self.reading = self._open(file.name)
                self._close()
        position = {"lsn": dict(self.positions)}
        return (), Outcome(None, self.stop, position, tuple(self.findings), {"base_known": self.base is not None})


def walk(read: Read, start: int) -> int | None:
    """Return where the library's walk over record headers ends that starts here; None = never.

    See docs/spec/eblob-binlog.md#6-how-the-library-reads-to-predict-its-behaviour-all-seen: nothing but headers is
    read.
    """
    at, seen = start, {start}
    while True:
        head = read(at, RECORD_HEADER) if 0 <= at < _SIGNED else b""
        if len(head) < RECORD_HEADER:
            return at
        kind, meta_size, data_size, flags = _SIZES.unpack_from(head)
        if kind != RAW_DATA or flags:
            return at
        at = (at + RECORD_HEADER + meta_size + data_size) % _WORD
        if at in seen or len(seen) > _MAX_STEPS:
            return None if at in seen else at
        seen.add(at)


def _damage_at(file: Examined) -> int | None:
    """Return the offset of the first bytes that are neither a record nor the zeros of a clean end; None = none."""
    tail = file.tail
    if tail is None:
        return None
    if tail.first_damage is not None:
        return tail.first_damage
    return tail.end if tail.end < tail.size else None


def _seen_all(reading: Reading) -> bool:
    """Check if all records before the damage were seen (and not only those before some `--until`)."""
    at = [found.record for found in reading.file.findings if found.offset == reading.bad and found.record is not None]
    return reading.taken >= min(at, default=0) or reading.end < (reading.bad or 0)


def _lost(file: Examined, bad: int, behind: int) -> Finding:
    """Report records after the offset that the library considers the end."""
    stale = any(found.facts.get("diagnosis") == STALE for found in file.findings)
    text = f"for the library the log ends here: {behind:,} whole records behind are not applied, and nothing is said"
    text += "; they may be older than those before" if stale else ""
    severity = Severity.WARNING if stale else Severity.ERROR
    return finding("silent-loss", bad, file.size - bad, text, severity=severity, lost_records=behind, stale=stale)


def _against(given: Mapping[str, Any]) -> tuple[dict[str, Place] | None, dict[str, int]]:
    """Return (index of the base or None, offset where the replay of each file begins).

    Raises:
        UsageError: the position is malformed.
    """
    base, done = given.get("base"), given.get("lsn", {})
    if not isinstance(done, Mapping) or not all(value is None or type(value) is int for value in done.values()):
        raise UsageError('--against: {"lsn": {FILE: offset}} is meant')
    known = {name: value for name, value in done.items() if value is not None}
    if base is None:
        return None, known
    if not isinstance(base, Mapping):
        raise UsageError(_BASE)
    for value in base.values():
        if not isinstance(value, list | tuple) or len(value) != 3 or any(type(one) is not int for one in value):
            raise UsageError(_BASE)
    return {key.lower(): Place(*value) for key, value in base.items()}, known


def index_of(name: str, data: bytes) -> Mapping[str, Any] | None:
    """Parse the base from an index file of the blob (`data-0.0.index`): consecutive control blocks.

    It says where the records are now; where a sort would put them does not matter for what is applied.
    """
    if ".index" not in name or not data or len(data) % CONTROL_SIZE:
        return None
    base = {}
    for key, flags, data_size, disk_size, position in _CONTROL.iter_unpack(data):
        if disk_size < CONTROL_SIZE + data_size or position >= _SIGNED:
            return None
        if not flags & ControlFlag.REMOVE:
            base[key.hex()] = [position, disk_size, position]
    return {"base": base}


class BlobEffects(Effects):
    """`replays.Effects`: bytes of the data file, by the offset where they were written."""

    def of(self, records: Records, i: int) -> Iterable[Change]:
        """Return the one write of a record."""
        body = records.bodies[i] or {}
        where = body.get("target_offset", body.get("metadata", b""))
        content = {key: value for key, value in body.items() if key not in _FRAMING}
        return (Change(records.envelope.object[i] or "", PUT, canonical(where), canonical(content)),)


_FRAMING = ("type", "meta_size", "target_offset", "metadata", "relative_offset")
