"""Losses of a start: `silent-loss` findings, and the server's messages about what it skips."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import msgspec

from binlogtool.findings import Finding, Severity, make_finding
from binlogtool.formats.replay_rules import SKIPPED, DecodedRecords
from binlogtool.formats.tarantool.judge.common import format_range
from binlogtool.formats.tarantool.layout.header import format_vclock
from binlogtool.formats.tarantool.replay.server_reader import ServerReadResult
from binlogtool.formats.tarantool.replay.startup import CandidateFile

MAX_REMEMBERED = 10_000
_MAX_SERVER_MESSAGES = 100

LsnRange = tuple[int, int, int]
"""Replica, first and last LSN."""


class _LostRows(msgspec.Struct):
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
    def lost_ranges(self) -> list[LsnRange]:
        """Lost LSN ranges by replica."""
        return [(replica, *span) for replica, span in sorted(self.lsns.items())]


class ReplayLosses(msgspec.Struct):
    """Losses of one start.

    Attributes:
        server_messages: what the server logs, as JSON.
        partly_applied: cut blocks of which it applies some rows, as JSON.
    """

    server_messages: list[dict[str, Any]] = msgspec.field(default_factory=list)
    partly_applied: list[dict[str, Any]] = msgspec.field(default_factory=list)
    _findings: list[tuple[str, Finding]] = msgspec.field(default_factory=list)
    _unread_rows: dict[str, _LostRows] = msgspec.field(default_factory=dict)
    _late_rows: dict[str, _LostRows] = msgspec.field(default_factory=dict)
    _gaps: list[LsnRange] = msgspec.field(default_factory=list)

    def add_server_message(self, name: str, text: str, offset: int | None = None) -> None:
        """Add an error that the server logs and tolerates."""
        if len(self.server_messages) < _MAX_SERVER_MESSAGES:
            self.server_messages.append({"file": name, "offset": offset, "text": text})

    def add_silent_loss(
        self, name: str, place: tuple[int | None, int], text: str, record: int | None = None, **facts: Any
    ) -> None:
        """Add a loss that the server does not report."""
        self._findings.append((name, make_finding("silent-loss", *place, text, record=record, **facts)))

    def add_read_result(self, file: CandidateFile, result: ServerReadResult) -> None:
        """Add the losses of one file that was read to its end."""
        for offset, text in result.messages:
            self.add_server_message(file.name, text, offset)
        for offset, rows in result.partly_applied:
            self.partly_applied.append({"file": file.name, "offset": offset, "rows": rows})
        for offset in result.dropped:
            text = "the block's crc is right, its content ends early: the server reads the rows that are left, no error"
            self.add_silent_loss(file.name, (offset, 0), text, diagnosis="zstd_frame_cut")
        for gap in file.file.findings:
            if _is_lsn_gap(gap) and (result.limit is None or (gap.offset or 0) < result.limit):
                facts = gap.facts
                lost = [(facts["replica"], facts["first"], facts["last"])]
                place = gap.offset, gap.length
                self.add_silent_loss(
                    file.name,
                    place,
                    f"{_format_ranges(lost)}: no row, and no error",
                    gap.record,
                    lost=_ranges_to_json(lost),
                )

    def add_unread_rows(self, name: str, records: DecodedRecords, start: int) -> None:
        """Add the rows from `start` on: they are after the place that the server takes for the end."""
        rows = self._unread_rows.setdefault(name, _LostRows(records.offset[start], records.record[start]))
        _add_rows(rows, records, start, len(records))

    def add_gap_between_logs(
        self, before: CandidateFile, vclock: Mapping[int, int], log: CandidateFile, result: ServerReadResult
    ) -> None:
        """Add the rows between the last row of a log and the next log: the server moves its vclock without an error."""
        lost = [(r, vclock.get(r, 0) + 1, lsn) for r, lsn in sorted(log.vclock.items()) if lsn > vclock.get(r, 0)]
        if not lost or result.messages or any(_is_lsn_gap(found) for found in before.file.findings):
            return
        unread = self._unread_rows.pop(before.name, None)
        end = result.silent_end if result.silent_end is not None else before.file.size
        text = f"{_format_ranges(lost)}: lost between here and VClock {format_vclock(dict(log.vclock))} of {log.name}"
        text += ", and the server says only that the file was not closed"
        facts = {"lost": _ranges_to_json(lost), **({"records": unread.count} if unread else {})}
        record = unread.record if unread else None
        self.add_silent_loss(before.name, (end, before.file.size - end), text, record, **facts)

    def add_lsn_gap(self, replica: int, first: int, last: int) -> None:
        """Add LSNs that are skipped; their rows may come later."""
        if len(self._gaps) < MAX_REMEMBERED:
            self._gaps.append((replica, first, last))

    def decide_late_row(
        self, name: str, records: DecodedRecords, i: int, replica: int, lsn: int
    ) -> tuple[str, str] | None:
        """Return the decision about a row whose LSN does not rise, if it was never applied; else None."""
        if not any(r == replica and first <= lsn <= last for r, first, last in self._gaps):
            return None
        rows = self._late_rows.setdefault(name, _LostRows(records.offset[i], records.record[i]))
        rows.add(replica, lsn)
        return SKIPPED, "out-of-order"

    def create_findings(self) -> Iterator[tuple[str, Finding]]:
        """Yield all findings, with the name of their file."""
        yield from self._findings
        for name, rows in self._unread_rows.items():
            text = (
                f"{rows.count:,} rows ({_format_ranges(rows.lost_ranges)}) stand behind a block that the "
                f"server takes for the end"
            )
            yield name, _create_rows_finding(rows, text)
        for name, rows in self._late_rows.items():
            text = (
                f"{_format_ranges(rows.lost_ranges)}: behind a later row, so the server passes over {rows.count:,} rows"
            )
            yield name, _create_rows_finding(rows, text)


def _create_rows_finding(rows: _LostRows, text: str) -> Finding:
    facts: dict[str, Any] = {"lost": _ranges_to_json(rows.lost_ranges), "records": rows.count}
    return make_finding("silent-loss", rows.offset, 0, text, record=rows.record, **facts)


def _add_rows(rows: _LostRows, records: DecodedRecords, start: int, stop: int) -> None:
    envelope = records.envelope
    for i in range(start, stop):
        rows.add(envelope.origin[i] or 0, envelope.seq[i] or 0)


def _is_lsn_gap(candidate: Finding) -> bool:
    """Check for a finding about LSNs of a file that no row has, and that are no failed write."""
    return candidate.id == "gap-in-sequence" and candidate.severity is Severity.ERROR and "replica" in candidate.facts


def _format_ranges(lost: list[LsnRange]) -> str:
    return ", ".join(f"LSN {format_range((first, last))} of replica {replica}" for replica, first, last in lost)


def _ranges_to_json(lost: list[LsnRange]) -> list[list[int]]:
    return [list(one) for one in lost]
