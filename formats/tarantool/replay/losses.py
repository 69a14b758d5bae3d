"""Losses of a start: `silent-loss` findings, and the server's messages about what it skips."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import msgspec

from binlogtool.findings import Finding, Severity, finding
from binlogtool.formats.replay_rules import SKIPPED, Records
from binlogtool.formats.tarantool.judge.common import ranges
from binlogtool.formats.tarantool.layout.header import write_vclock
from binlogtool.formats.tarantool.replay.server_reader import Course
from binlogtool.formats.tarantool.replay.startup import Candidate

MAX_REMEMBERED = 10_000
_MAX_SAID = 100

Range = tuple[int, int, int]
"""Replica, first and last LSN."""


class _Rows(msgspec.Struct):
    """Rows of one file that are lost, with the offset and number of the first one."""

    offset: int
    record: int
    count: int = 0
    lsns: dict[int, tuple[int, int]] = msgspec.field(default_factory=dict)

    def add(self, replica: int, lsn: int) -> None:
        """Add one row."""
        low, high = self.lsns.get(replica, (lsn, lsn))
        self.lsns[replica] = min(low, lsn), max(high, lsn)
        self.count += 1

    @property
    def lost(self) -> list[Range]:
        """Lost LSN ranges by replica."""
        return [(replica, *span) for replica, span in sorted(self.lsns.items())]


class Losses(msgspec.Struct):
    """Losses of one start.

    Attributes:
        server_messages: what the server logs, as JSON.
        partly_applied: cut blocks of which it applies some rows, as JSON.
    """

    said: list[dict[str, Any]] = msgspec.field(default_factory=list)
    partly: list[dict[str, Any]] = msgspec.field(default_factory=list)
    _found: list[tuple[str, Finding]] = msgspec.field(default_factory=list)
    _unread: dict[str, _Rows] = msgspec.field(default_factory=dict)
    _late: dict[str, _Rows] = msgspec.field(default_factory=dict)
    _gaps: list[Range] = msgspec.field(default_factory=list)

    def told(self, name: str, text: str, offset: int | None = None) -> None:
        """Add an error that the server logs and tolerates."""
        if len(self.said) < _MAX_SAID:
            self.said.append({"file": name, "offset": offset, "text": text})

    def tell(
        self, name: str, place: tuple[int | None, int], text: str, record: int | None = None, **facts: Any
    ) -> None:
        """Add a loss that the server does not report."""
        self._found.append((name, finding("silent-loss", *place, text, record=record, **facts)))

    def course(self, file: Candidate, course: Course) -> None:
        """Add the losses of one file that was read to its end."""
        for offset, text in course.complaints:
            self.told(file.name, text, offset)
        for offset, rows in course.partly:
            self.partly.append({"file": file.name, "offset": offset, "rows": rows})
        for offset in course.dropped:
            text = "the block's crc is right, its content ends early: the server reads the rows that are left, no error"
            self.tell(file.name, (offset, 0), text, diagnosis="zstd_frame_cut")
        for found in file.file.findings:
            if _is_gap(found) and (course.limit is None or (found.offset or 0) < course.limit):
                facts = found.facts
                lost = [(facts["replica"], facts["first"], facts["last"])]
                place = found.offset, found.length
                self.tell(file.name, place, f"{_words(lost)}: no row, and no error", found.record, lost=_json(lost))

    def unread(self, name: str, records: Records, start: int) -> None:
        """Add the rows from `start` on: they are after the place that the server takes for the end."""
        rows = self._unread.setdefault(name, _Rows(records.offset[start], records.record[start]))
        _add(rows, records, start, len(records))

    def between(self, before: Candidate, clock: Mapping[int, int], log: Candidate, course: Course) -> None:
        """Add the rows between the last row of a log and the next log: the server moves its vclock without an error."""
        lost = [(r, clock.get(r, 0) + 1, lsn) for r, lsn in sorted(log.vclock.items()) if lsn > clock.get(r, 0)]
        if not lost or course.complaints or any(_is_gap(found) for found in before.file.findings):
            return
        unread = self._unread.pop(before.name, None)
        end = course.ends if course.ends is not None else before.file.size
        text = f"{_words(lost)}: lost between here and VClock {write_vclock(dict(log.vclock))} of {log.name}"
        text += ", and the server says only that the file was not closed"
        facts = {"lost": _json(lost), **({"records": unread.count} if unread else {})}
        record = unread.record if unread else None
        self.tell(before.name, (end, before.file.size - end), text, record, **facts)

    def gap(self, replica: int, first: int, last: int) -> None:
        """Add LSNs that are skipped; their rows may come later."""
        if len(self._gaps) < MAX_REMEMBERED:
            self._gaps.append((replica, first, last))

    def passed(self, name: str, records: Records, i: int, replica: int, lsn: int) -> tuple[str, str] | None:
        """Return the decision about a row whose LSN does not rise, if it was never applied; else None."""
        if not any(r == replica and first <= lsn <= last for r, first, last in self._gaps):
            return None
        rows = self._late.setdefault(name, _Rows(records.offset[i], records.record[i]))
        rows.add(replica, lsn)
        return SKIPPED, "out-of-order"

    def findings(self) -> Iterator[tuple[str, Finding]]:
        """Yield all findings, with the name of their file."""
        yield from self._found
        for name, rows in self._unread.items():
            text = f"{rows.count:,} rows ({_words(rows.lost)}) stand behind a block that the server takes for the end"
            yield name, _rows_finding(rows, text)
        for name, rows in self._late.items():
            text = f"{_words(rows.lost)}: behind a later row, so the server passes over {rows.count:,} rows"
            yield name, _rows_finding(rows, text)


def _rows_finding(rows: _Rows, text: str) -> Finding:
    facts: dict[str, Any] = {"lost": _json(rows.lost), "records": rows.count}
    return finding("silent-loss", rows.offset, 0, text, record=rows.record, **facts)


def _add(rows: _Rows, records: Records, start: int, stop: int) -> None:
    e = records.envelope
    for i in range(start, stop):
        rows.add(e.origin[i] or 0, e.seq[i] or 0)


def _is_gap(found: Finding) -> bool:
    """Check for a finding about LSNs of a file that no row has, and that are no failed write."""
    return found.id == "gap-in-sequence" and found.severity is Severity.ERROR and "replica" in found.facts


def _words(lost: list[Range]) -> str:
    return ", ".join(f"LSN {ranges((first, last))} of replica {replica}" for replica, first, last in lost)


def _json(lost: list[Range]) -> list[list[int]]:
    return [list(one) for one in lost]
