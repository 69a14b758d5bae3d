"""Predict what servers do with a log: apply it (`mariadb-binlog FILES | mariadb`, a replica), and start with it.

A record is an event of a group; its decision is about applying. What a restart does is reported in addition. If the
redo log is available, the server recovers first: groups that recovery truncates are never applied.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Generator, Iterable, Iterator, Mapping
from typing import Any

import msgspec

from binlogtool.errors import UsageError
from binlogtool.findings import Finding, make_finding
from binlogtool.formats.binlog_events.apply import reasons as events
from binlogtool.formats.binlog_events.apply.applier import EventApplier
from binlogtool.formats.binlog_events.apply.executed import ExecutedGtids, parse_executed
from binlogtool.formats.binlog_events.apply.verdicts import SkippedRows
from binlogtool.formats.binlog_events.gtid.sets import split_gtid
from binlogtool.formats.mariadb_innodb_binlog.codes import IbbRecordType, file_name
from binlogtool.formats.mariadb_innodb_binlog.records.records import GtidStateRecord
from binlogtool.formats.mariadb_innodb_binlog.replay.readers import ReadFile, select_files
from binlogtool.formats.mariadb_innodb_binlog.replay.restart import RestartPrediction, predict_recovery
from binlogtool.formats.replay_rules import (
    NOT_REACHED,
    REJECTED,
    SKIPPED,
    DecodedRecords,
    ReadPlan,
    ReplayOutcome,
    ReplaySituation,
    ReplayStop,
    Ruling,
)

_MAX_SHOWN = 100
_MAX_SOURCES = 100_000


class _UnseenEvents(msgspec.Struct):
    """Events of a file that its reader does not see.

    Attributes:
        records: number of events.
        groups: GTIDs of the first of them.
    """

    offset: int
    reason: str
    records: int = 0
    groups: list[str] = msgspec.field(default_factory=list)


class IbbReplayer:
    """`formats.replay_rules.Replayer`"""

    def __init__(self, situation: ReplaySituation) -> None:
        self._force = situation.policy == "force"
        self._recovery = predict_recovery(situation)
        recovered_from = None if self._recovery is None else self._recovery.recovered_from
        selection = select_files(situation, recovered_from)
        self._new_end = None if self._recovery is None else self._recovery.new_end
        self._recovered_file = None if recovered_from is None else recovered_from[0]
        self._files, self._skipped = selection.files, selection.skipped
        self._file_indexes = {one.file.name: place for place, one in enumerate(self._files)}
        self._restart = RestartPrediction(situation, self._files, self._recovery)
        start_position = situation.start_position or {}
        executed = parse_executed(str(start_position.get("gtid") or ""))
        self._refusal = self._check_start_position(executed) if start_position.get("gtid") and not self._force else None
        self._applier = EventApplier(
            executed, ordered=True, trusts_prepared=bool(start_position), skip_failures=self._force
        )
        self._stop: ReplayStop | None = None
        self._file_index, self._stop_index, self._next_record = -1, 0, 0
        self._open_type = 0
        self._bad_offset: int | None = None
        self._unseen_file: str | None = None
        self._unseen_events: dict[str, _UnseenEvents] = {}
        self._lost_rows: list[tuple[str, SkippedRows]] = []
        self._findings: list[tuple[str, Finding]] = []
        self._seen_numbers: dict[str, int] = {}

    def plan_reads(self) -> ReadPlan:
        """Return all files with data, in order; groups are assembled from all of them."""
        read = () if self._refusal is not None else tuple(self._file_indexes)
        return ReadPlan(read, self._skipped, self._refusal)

    def _check_start_position(self, executed: ExecutedGtids) -> ReplayStop | None:
        """Refuse a replica that has less than what precedes the log (error 1236, `gtid_search::find_gtid_pos`)."""
        first = self._files[0] if self._files else None
        state = None if first is None else first.read_state()
        if first is None or state is None:
            return None
        missing_gtids = [str(one) for one in state.gtids if one.seq_no > executed.domains.get(one.domain_id, (0, 0))[1]]
        if not missing_gtids:
            return None
        text = f"the log begins behind {', '.join(missing_gtids[:5])}, which the server lacks: files are missing"
        return ReplayStop(first.file.name, None, text)

    # -- records -----------------------------------------------------------------------------------------------------

    def feed(self, name: str, first: int, records: DecodedRecords) -> Iterator[Ruling]:
        """Decide on the events up to the next place where a reader stops, and on those after it."""
        yield from self._advance_to_file(self._file_indexes[name], first)
        index, record_count = 0, len(records)
        self._next_record = first + record_count
        file = self._files[self._file_index]
        visible = self._note_groups(file, records)
        while index < record_count and self._stop is None:
            if index >= visible:
                yield from self._skip_rest(first, records, index, file)
                return
            stop = min(visible, self._records_before_stop(file, records))
            if self._bad_offset is not None and records.offset[index] == self._bad_offset:
                stop = bisect_right(records.offset, self._bad_offset)
                yield Ruling(first + index, first + stop, REJECTED, "damaged")
                index = stop
            elif index < stop:
                index = yield from self._apply_records(first, records, index, stop)
            else:
                yield from self._process_stop(first + index, records.offset[index])
        if index < record_count:
            yield Ruling(first + index, first + record_count, SKIPPED, NOT_REACHED)

    def _note_groups(self, file: ReadFile, records: DecodedRecords) -> int:
        """Record the groups of a run; returns how many of its records the reader sees."""
        offsets = records.offset
        durable = visible = len(records)
        if self._new_end is not None and file.number >= self._new_end[0]:
            durable = bisect_left(offsets, self._new_end[1]) if file.number == self._new_end[0] else 0
        if self._unseen_file == file.file.name:
            visible = 0
        elif file.reader_end is not None and not self._force:
            visible = bisect_left(offsets, file.reader_end)
        for i, type_name in enumerate(records.envelope.type[:durable]):
            if type_name == "GTID" and isinstance(gtid := records.envelope.txn[i], str):
                source, number = split_gtid(gtid)
                if source in self._seen_numbers or len(self._seen_numbers) < _MAX_SOURCES:
                    self._seen_numbers[source] = number
                if file.reader_end is None or offsets[i] < file.reader_end:
                    self._restart.add_group(file, gtid)
        return min(durable, visible)

    def _skip_rest(self, first: int, records: DecodedRecords, index: int, file: ReadFile) -> Iterator[Ruling]:
        """Decide on the rest of a run that recovery truncated or the reader does not see."""
        record_count, truncated_from = len(records), len(records)
        if self._new_end is not None and file.number >= self._new_end[0]:
            truncated_from = (
                index if file.number > self._new_end[0] else max(index, bisect_left(records.offset, self._new_end[1]))
            )
        if truncated_from > index:
            self._add_unseen(file, records, index, truncated_from)
            yield Ruling(first + index, first + truncated_from, SKIPPED, "unseen")
        if record_count > truncated_from:
            yield Ruling(first + truncated_from, first + record_count, SKIPPED, "never-durable")

    def _add_unseen(self, file: ReadFile, records: DecodedRecords, start: int, stop: int) -> None:
        reason = "FLUSH BINARY LOGS found the file before exactly full: mariadb-binlog passes over this one"
        if self._unseen_file != file.file.name:
            reason = "zeros, or a type byte of 0, are the end of the file for its readers"
        offset = file.reader_end if file.reader_end is not None else 0
        unseen = self._unseen_events.setdefault(file.file.name, _UnseenEvents(offset, reason))
        unseen.records += stop - start
        for i in range(start, stop):
            if records.envelope.type[i] == "GTID" and len(unseen.groups) < _MAX_SHOWN:
                unseen.groups.append(str(records.envelope.txn[i]))

    def _apply_records(
        self, first: int, records: DecodedRecords, index: int, stop: int
    ) -> Generator[Ruling, None, int]:
        """Pass the records `[index, stop)` to the applier; returns where to continue."""
        applier, name = self._applier, self._files[self._file_index].file.name
        lost_before = len(applier.skipped_rows)
        yield from applier.feed(first, records, index, stop)
        self._lost_rows += [(name, one) for one in applier.skipped_rows[lost_before:]]
        if applier.failure is None:
            return stop
        self._stop = ReplayStop(name, applier.failure.offset, applier.failure.reason)
        return applier.failure.number - first + 1

    # -- files and damage --------------------------------------------------------------------------------------------

    def _advance_to_file(self, file_index: int, number: int) -> Iterator[Ruling]:
        """Finish all files before this one."""
        while self._file_index < file_index:
            if self._file_index >= 0:
                yield from self._finish_file(number)
            self._file_index, self._stop_index, self._bad_offset = self._file_index + 1, 0, None
            file = self._files[self._file_index]
            state = file.read_state()
            self._restart.open_file(file, state)
            if self._file_index and self._stop is None:
                yield from self._cross_file_boundary(self._files[self._file_index - 1], file, state, number)

    def _cross_file_boundary(
        self, previous: ReadFile, following: ReadFile, state: GtidStateRecord | None, number: int
    ) -> Iterator[Ruling]:
        """Go from the end of a file to the start of the next one: readers join records of the same type."""
        if self._recovered_file is not None and following.number >= self._recovered_file:
            return
        has_gap = following.number != previous.number + 1 or previous.reader_end is not None or previous.is_short
        self._open_type = self._open_type if previous.is_blank and not previous.open_type else previous.open_type
        if following.stops and following.stops[0].offset < following.page_size:
            return  # the reader gets to it before anything else
        if previous.is_exactly_full and not self._force:
            self._unseen_file = following.file.name
        elif not following.is_blank and self._open_type != following.leading_type and not self._force:
            problem = (
                "ends inside a record that does not go on"
                if self._open_type
                else "does not begin the record that goes on"
            )
            yield from self._stop_reader(
                number, ReplayStop(following.file.name, following.page_size, f"{previous.file.name} {problem} here")
            )
        elif has_gap:
            self._report_missing_groups(previous, following, state)

    def _report_missing_groups(self, previous: ReadFile, following: ReadFile, state: GtidStateRecord | None) -> None:
        """Report that groups are missing between two files although the reader continues."""
        missing: dict[str, list[list[int]]] = {}
        for gtid in state.gtids if state is not None else ():
            last_seq_no = self._seen_numbers.get(f"{gtid.domain_id}-{gtid.server_id}", 0)
            if gtid.seq_no > last_seq_no and len(missing) < _MAX_SHOWN:
                missing[f"{gtid.domain_id}-{gtid.server_id}"] = [[last_seq_no + 1, gtid.seq_no]]
        text = (
            f"from {previous.file.name} the reader goes on to {following.file.name}, though what is "
            f"between them is missing"
        )
        if self._open_type == int(IbbRecordType.COMMIT):
            text += "; it joins the ends of two groups to a wrong one"
        facts: dict[str, Any] = {"situation": "apply", "missing_gtids": missing}
        offset = previous.reader_end if previous.reader_end is not None else previous.file.size
        if following.number == previous.number + 1:
            self._findings.append(
                (previous.file.name, make_finding("silent-loss", offset, previous.file.size - offset, text, **facts))
            )
        else:
            self._findings.append((file_name(previous.number + 1), make_finding("silent-loss", None, 0, text, **facts)))

    def _finish_file(self, number: int) -> Iterator[Ruling]:
        """Process the stops after the last group of a file."""
        while self._stop is None and self._has_stops_left():
            yield from self._process_stop(number, None)

    def _has_stops_left(self) -> bool:
        return self._stop_index < len(self._files[self._file_index].stops)

    def _records_before_stop(self, file: ReadFile, records: DecodedRecords) -> int:
        """Return how many records of this run are before the next stop."""
        return (
            bisect_left(records.offset, file.stops[self._stop_index].offset) if self._has_stops_left() else len(records)
        )

    def _process_stop(self, number: int, offset: int | None) -> Iterator[Ruling]:
        """Process a stop before record `number`, which is at `offset`."""
        file = self._files[self._file_index]
        reader_stop = file.stops[self._stop_index]
        self._stop_index += 1
        if reader_stop.is_conditional and offset == reader_stop.offset:
            return  # readers do not reach this problem
        self._bad_offset = reader_stop.offset
        if self._force:
            yield from self._applier.roll_back(number)
        elif not self._is_file_unread(file):
            yield from self._stop_reader(number, ReplayStop(file.file.name, reader_stop.offset, reader_stop.reason))

    def _is_file_unread(self, file: ReadFile) -> bool:
        """Check if recovery removed the file, or readers skip it."""
        is_removed = self._new_end is not None and file.number > self._new_end[0]
        return is_removed or self._unseen_file == file.file.name

    def _stop_reader(self, number: int, stop: ReplayStop) -> Iterator[Ruling]:
        yield from self._applier.roll_back(number)
        self._stop = stop

    # -- the end -----------------------------------------------------------------------------------------------------

    def finish(self) -> tuple[Iterable[Ruling], ReplayOutcome]:
        """Roll back what is open, and return the outcome."""
        rulings: list[Ruling] = []
        if self._refusal is None:
            rulings += self._advance_to_file(len(self._files) - 1, self._next_record)
            rulings += self._finish_file(self._next_record) if self._files else ()
        rulings += self._applier.finish(self._next_record)
        position = {"gtid": self._applier.executed.text}
        findings = (*self._iter_silent_losses(), *self._restart.iter_findings())
        return rulings, ReplayOutcome(
            self._restart.server_starts(), self._stop, position, findings, self._restart.report_details()
        )

    def _iter_silent_losses(self) -> Iterator[tuple[str, Finding]]:
        """Iterate over what the reader skips without an error."""
        yield from self._findings
        for name, lost_rows in self._lost_rows[:_MAX_SHOWN]:
            text = "the TABLE_MAP of these rows is missing: the server takes the table for one that is filtered out"
            offset, size, record, gtid = lost_rows
            yield name, make_finding("silent-loss", offset, size, text, record=record, situation="apply", gtid=gtid)
        for name, unseen in self._unseen_events.items():
            size = self._files[self._file_indexes[name]].file.size - unseen.offset
            facts: dict[str, Any] = {"lost_records": unseen.records, "gtids": unseen.groups}
            text = f"{unseen.reason}; {unseen.records:,} events behind it are not applied"
            yield name, make_finding("silent-loss", unseen.offset, size, text, situation="apply", **facts)


def parse_server_state(name: str, data: bytes) -> Mapping[str, Any] | None:
    """Parse what a server has: a GTID position as text, or MariaDB's `BASE.state`."""
    try:
        executed = parse_executed(data.decode("utf-8", "replace"))
    except UsageError:
        return None
    return {"gtid": executed.text} if executed.domains and not executed.sources else None


_SHARED_REASONS = (
    "committed", "statement", "implicit-commit", "not-transactional", "xa-committed", "control", "incomplete",
    "rolled-back", "rolled-back-to-savepoint", "xa-prepared", "start-alter", "no-table-map", "ignorable", "group-open",
    "out-of-order", "xa-unknown", "xa-twice", "incident", "unknown-event", "undecodable", "adrift",
)  # fmt: skip

REASONS: Mapping[str, str] = {
    **{name: events.REASONS[name].replace("(specification", "(mysql-binlog specification") for name in _SHARED_REASONS},
    "executed": "The server has it already: its GTID is not behind the position of its domain (gtid_slave_pos).",
    "never-durable": "Recovery with this redo log cuts the log in front of the group: it never became durable, in no "
    "table either (specification sections 12 and 13, `class binlog_recovery`).",
    "unseen": "Readers take a type byte of 0 or a page of zeros for the end of the file, without a word; after a file "
    "that FLUSH BINARY LOGS found exactly full, mariadb-binlog passes over the next one (specification section 16).",
    "damaged": "The group cannot be put together, or its events do not tile it (specification sections 5 to 7).",
    "reserve": "A file of zeros at the end of the log, held in reserve (specification section 1).",
    "not-a-log": "No server opens a file of this name (specification section 1).",
}


def count_events(details: Mapping[str, Any]) -> int:
    """Return the number of events of a file from the validator's details."""
    return int(details["events"])
