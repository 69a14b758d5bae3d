"""Replay prediction of a binary log: applying it (`mysqlbinlog FILES | mysql`), and crash recovery.

The outcomes of records predict applying, as point-in-time recovery and replicas do it. What a restart would do with the
newest file is reported separately (`crash_recovery` in the details of the report).
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Generator, Iterable, Iterator, Mapping
from typing import Any

from binlogtool.errors import UsageError
from binlogtool.findings import Finding, Severity, make_finding
from binlogtool.format_api.format import DecodedRecords
from binlogtool.format_api.replay_rules import (
    NOT_REACHED,
    REJECTED,
    SKIPPED,
    ReadPlan,
    RecordOutcome,
    ReplayOutcome,
    ReplaySituation,
    ReplayStop,
)
from binlogtool.formats.binlog_events.replay.simulated_applier import (
    SimulatedApplier,
    SkippedRows,
    parse_executed_gtids,
)
from binlogtool.formats.mysql_binlog.index_and_state_files import INFO_NAME
from binlogtool.formats.mysql_binlog.innodb_position import InnodbComparison, compare_with_innodb
from binlogtool.formats.mysql_binlog.replay.crash_recovery import (
    CrashRecoveryPrediction,
    RecoveryExtent,
    read_newest_log_for_recovery,
)
from binlogtool.formats.mysql_binlog.replay.logs_to_apply import ReplaySelection, get_base_name, select_log_to_apply
from binlogtool.formats.mysql_binlog.replay.startup import predict_server_start

MAX_LOSSES = 100
"""Maximum number of losses of one kind that are reported one by one."""


class BinlogReplayer:
    """Simulates applying a log (`Replayer`).

    Damage stops the replay. In a file that was not closed it counts as the end of the file instead.
    """

    def __init__(self, situation: ReplaySituation) -> None:
        self._situation = situation
        self._skips_failures = situation.policy == "force"
        self._start_position = situation.start_position or {}
        executed = parse_executed_gtids(str(self._start_position.get("gtid") or ""))
        self._selection: ReplaySelection = select_log_to_apply(
            situation, executed if self._start_position.get("gtid") and not self._skips_failures else None
        )
        self._logs = self._selection.logs
        self._log_indexes = {one.file.name: place for place, one in enumerate(self._logs)}
        self._recovery = CrashRecoveryPrediction(self._logs, situation.read_sibling, self._read_for_recovery())
        self._startup = predict_server_start(situation, self._logs)
        self._applied_up_to = _find_start_position(self._start_position, self._log_indexes)
        self._applier = SimulatedApplier(
            executed,
            ordered=bool(self._logs) and self._logs[-1].is_mariadb and not self._logs[-1].is_relay,
            trusts_prepared=bool(self._start_position),
            skip_failures=self._skips_failures,
        )
        self._replay_stop: ReplayStop | None = None
        self._last_position: tuple[str, int] | None = None
        self._log_index = -1
        self._next_damage = 0
        self._is_file_ended = False
        self._after_damage: dict[str, tuple[int, int]] = {}
        self._skipped_rows: list[tuple[str, SkippedRows]] = []
        self._next_number = 0

    def _read_for_recovery(self) -> RecoveryExtent | None:
        """Return how far crash recovery reads the newest log; None if it is not needed."""
        newest = self._logs[-1] if self._logs else None
        read_sibling = self._situation.read_sibling
        if newest is None or read_sibling is None or not newest.in_use or newest.is_relay:
            return None
        return read_newest_log_for_recovery(newest, read_sibling(newest.file.name))

    def plan_reads(self) -> ReadPlan:
        """Return all files of the log in order; files next to it are not read."""
        read = () if self._selection.refusal else tuple(self._log_indexes)
        starts = None if self._startup is None else self._startup.starts
        return ReadPlan(read, self._selection.skipped, self._selection.refusal, starts=starts)

    # -- records -----------------------------------------------------------------------------------------------------

    def decide_records(self, name: str, first: int, records: DecodedRecords) -> Iterator[RecordOutcome]:
        """Rule on the next records: those up to the next damage, and those after it."""
        self._recovery.track_commit_marks(name, records)
        yield from self._enter_log(self._log_indexes[name], first)
        index, count = 0, len(records)
        self._next_number = first + count
        while index < count and self._replay_stop is None and not self._is_file_ended:
            applied_count = self._count_already_applied(records)
            if index < applied_count:
                yield RecordOutcome(first + index, first + applied_count, SKIPPED, "executed")
                index = applied_count
                continue
            damage_index = self._count_before_damage(records)
            if index < damage_index:
                index = yield from self._apply_until_failure(first, records, index, damage_index)
            else:
                index += yield from self._handle_damage_at_record(first + index, records, index)
        if index < count and self._replay_stop is not None:
            yield RecordOutcome(first + index, first + count, SKIPPED, NOT_REACHED)
        elif index < count:
            offset, count_so_far = self._after_damage.get(name, (records.offset[index], 0))
            self._after_damage[name] = offset, count_so_far + count - index
            yield RecordOutcome(first + index, first + count, SKIPPED, "behind-damage")

    def _apply_until_failure(
        self, first: int, records: DecodedRecords, start: int, stop: int
    ) -> Generator[RecordOutcome, None, int]:
        """Apply the records `[start, stop)`; return the index to continue at."""
        applier, name = self._applier, self._logs[self._log_index].file.name
        applier.applied_end, lost_before = None, len(applier.skipped_rows)
        yield from applier.apply_records(first, records, start, stop)
        if applier.applied_end is not None:
            self._last_position = name, applier.applied_end
        self._skipped_rows += [(name, one) for one in applier.skipped_rows[lost_before:]]
        if applier.failure is None:
            return stop
        self._replay_stop = ReplayStop(name, applier.failure.offset, applier.failure.reason)
        return applier.failure.number - first + 1

    def _count_already_applied(self, records: DecodedRecords) -> int:
        """Return how many of these records precede the start position, and so were applied before."""
        if self._applied_up_to is None or self._log_index > self._applied_up_to[0]:
            return 0
        return (
            len(records)
            if self._log_index < self._applied_up_to[0]
            else bisect_left(records.offset, self._applied_up_to[1])
        )

    # -- files and damage --------------------------------------------------------------------------------------------

    def _enter_log(self, log_index: int, record_number: int) -> Iterator[RecordOutcome]:
        """Leave all files before this one (some may have no records), and enter it."""
        while self._log_index < log_index:
            yield from self._handle_damage_at_file_end(record_number)
            self._log_index, self._next_damage, self._is_file_ended = self._log_index + 1, 0, False
            self._skip_damage_before_start()
            self._applier.events_without_map = self._logs[self._log_index].events_without_map

    def _handle_damage_at_file_end(self, record_number: int) -> Iterator[RecordOutcome]:
        """Handle damage after the last record of a file."""
        while self._log_index >= 0 and self._replay_stop is None and self._has_damage_left():
            yield from self._handle_damage_before_record(record_number)

    def _has_damage_left(self) -> bool:
        """Return whether the file has damage that was not reached yet."""
        return not self._is_file_ended and self._next_damage < len(self._logs[self._log_index].damages)

    def _skip_damage_before_start(self) -> None:
        """Skip damage before the start position."""
        damages = self._logs[self._log_index].damages
        if self._applied_up_to is not None and self._log_index <= self._applied_up_to[0]:
            end = (
                self._applied_up_to[1]
                if self._log_index == self._applied_up_to[0]
                else self._logs[self._log_index].file.size + 1
            )
            self._next_damage = bisect_left(damages, (end, ""))

    def _count_before_damage(self, records: DecodedRecords) -> int:
        """Return how many of these records precede the next damage."""
        damages = self._logs[self._log_index].damages
        return (
            bisect_left(records.offset, damages[self._next_damage].offset) if self._has_damage_left() else len(records)
        )

    def _handle_damage_at_record(
        self, record_number: int, records: DecodedRecords, index: int
    ) -> Generator[RecordOutcome, None, int]:
        """Handle damage at or before record `record_number`; return 1 if that record is the damaged one and was ruled
        on.
        """
        damage = self._logs[self._log_index].damages[self._next_damage]
        yield from self._handle_damage_before_record(record_number)
        if self._skips_failures and records.offset[index] == damage.offset and not self._is_file_ended:
            yield RecordOutcome(record_number, record_number + 1, REJECTED, "damaged")
            return 1
        return 0

    def _handle_damage_before_record(self, record_number: int) -> Iterator[RecordOutcome]:
        """Handle damage before record `record_number`."""
        log = self._logs[self._log_index]
        damage = log.damages[self._next_damage]
        self._next_damage += 1
        if self._skips_failures:
            yield from self._applier.abandon_transaction_at_damage(record_number, (REJECTED, "damaged"))
        elif log.in_use:
            self._is_file_ended = True
            yield from self._applier.roll_back_open_transaction(record_number)
        else:
            yield from self._applier.abandon_transaction_at_damage(record_number, (SKIPPED, "incomplete"))
            self._replay_stop = ReplayStop(log.file.name, damage.offset, damage.reason)

    # -- the end -----------------------------------------------------------------------------------------------------

    def finish(self) -> tuple[Iterable[RecordOutcome], ReplayOutcome]:
        """Roll back the open transaction, and return the outcome."""
        record_outcomes: list[RecordOutcome] = []
        ended_early = self._situation.ended_early()
        if self._selection.refusal is None and not ended_early:
            record_outcomes += self._enter_log(len(self._logs) - 1, self._next_number)
            record_outcomes += self._handle_damage_at_file_end(self._next_number)
        open_at = None if ended_early else self._applier.open_transaction_offset
        record_outcomes += self._applier.finish_at_end_of_log(self._next_number)
        findings = [
            *self._iter_silent_losses(open_at),
            *(() if self._skips_newest else self._recovery.iter_silent_loss_findings()),
        ]
        findings += () if self._startup is None else self._startup.findings
        comparison = self._compare_with_innodb()
        lost = None if comparison is None else comparison.make_loss_finding()
        if comparison is not None and lost is not None:
            findings.append((comparison.position.log.name, lost))
        return record_outcomes, ReplayOutcome(
            self._predict_server_start(),
            self._replay_stop,
            self._make_last_applied_position(),
            tuple(findings),
            self._make_details() | ({} if comparison is None else {"storage_engine": comparison.as_details()}),
        )

    def _compare_with_innodb(self) -> InnodbComparison | None:
        """Compare the end of the logs with InnoDB's last commit; None while the logs still grow."""
        read_sibling, logs = self._situation.read_sibling, self._logs
        if read_sibling is None or not self._situation.is_directory or not logs or logs[-1].is_relay:
            return None
        newest = logs[-1].file
        read_newest = read_sibling(get_base_name(newest.name))
        if read_newest is None or read_newest(newest.size, 1):
            return None
        comparison = compare_with_innodb([log.file for log in logs], read_sibling, after_crash=logs[-1].in_use)
        return None if read_newest(newest.size, 1) else comparison  # it may have grown while InnoDB's files were read

    @property
    def _skips_newest(self) -> bool:
        return self._startup is not None and self._startup.skips_newest

    def _predict_server_start(self) -> bool | None:
        """Return whether the server starts; both crash recovery and the files that it opens before may prevent it."""
        if self._startup is not None and self._skips_newest:
            return self._startup.starts
        recovery_starts = self._recovery.predict_start()
        if self._recovery.explain_uncertainty() is not None:
            return None
        if self._startup is None or recovery_starts is False:
            return recovery_starts
        return self._startup.starts

    def _make_last_applied_position(self) -> dict[str, Any]:
        """Return the last applied position."""
        position = {key: self._start_position[key] for key in ("file", "offset") if key in self._start_position}
        if self._last_position is not None:
            position = {"file": get_base_name(self._last_position[0]), "offset": self._last_position[1]}
        return position | {"gtid": self._applier.executed.gtid_set_text}

    def _make_details(self) -> dict[str, Any]:
        """Return the details of the report."""
        pending = [one.text for one in self._applier.prepared_xids]
        recovery = {"needed": False} if self._skips_newest else self._recovery.make_details()
        if self._startup is not None and not self._startup.counts_newest and "gtid" in recovery:
            recovery |= {"gtid": None}
        details: dict[str, Any] = {"crash_recovery": recovery, "xa_prepared": pending}
        earlier_gtids = self._logs[0].earlier_gtids_text if self._logs else ""
        if self._startup is not None:
            details["startup"] = self._startup.report_details
        elif not any(log.is_relay for log in self._logs):
            details["startup"] = {"undetermined": "no .index file is among the files; name the data directory"}
        doubt = None if self._skips_newest else self._recovery.explain_uncertainty()
        if doubt is not None:
            details["startup"] = {"starts": None, "not_checked": [doubt]}
        return details | ({"begins_behind": earlier_gtids} if earlier_gtids else {})

    def _iter_silent_losses(self, open_at: int | None) -> Iterator[tuple[str, Finding]]:
        """Yield findings about rows, records and files that are skipped silently."""
        for name, skipped in self._skipped_rows[:MAX_LOSSES]:
            text = "the TABLE_MAP of these rows is missing: the server treats the table as filtered out"
            at, size, record, gtid = skipped
            found = make_finding("silent-loss", at, size, text, record=record, situation="apply", gtid=gtid)
            yield name, found
        for name, (offset, count) in self._after_damage.items():
            text = (
                f"{count:,} records after the damage: the file was not closed, so its reader treats the "
                f"damage as the end"
            )
            size = self._logs[self._log_indexes[name]].file.size - offset
            yield name, make_finding("silent-loss", offset, size, text, situation="apply", lost_records=count)
        yield from self._iter_missing_file_losses()
        last = self._logs[-1] if self._logs else None
        if (
            open_at is not None
            and last is not None
            and self._replay_stop is None
            and not (last.in_use or last.is_relay)
        ):
            text = "the transaction has no end and is rolled back, although the file was closed"
            yield (
                last.file.name,
                make_finding("silent-loss", open_at, last.file.size - open_at, text, situation="apply"),
            )

    def _iter_missing_file_losses(self) -> Iterator[tuple[str, Finding]]:
        """Yield findings about missing files and removed events before the end of the reading."""
        for item in self._situation.findings:
            if item.id == "missing-member" and item.severity is Severity.ERROR and "missing_gtids" in item.facts:
                text = (
                    f"{item.facts.get('missing')} is missing; replaying the other files skips its "
                    f"transactions without an error"
                )
                gtids = item.facts["missing_gtids"]
                result = make_finding("silent-loss", None, 0, text, situation="apply", missing_gtids=gtids)
                yield str(item.facts.get("missing")), result
        for log_index, log in enumerate(self._logs):
            for item in log.removal_findings:
                if self._is_offset_reached(log_index, item.offset or 0):
                    text = f"events were removed from the file: {item.message}"
                    yield log.file.name, make_finding("silent-loss", item.offset, 0, text, situation="apply")

    def _is_offset_reached(self, log_index: int, offset: int) -> bool:
        """Return whether the reading reached an offset."""
        if self._replay_stop is None:
            return True
        return (log_index, offset) < (self._log_indexes.get(self._replay_stop.file, 0), self._replay_stop.offset or 0)


# -- positions ---------------------------------------------------------------------------------------------------------


def _find_start_position(start_position: Mapping[str, Any], log_indexes: Mapping[str, int]) -> tuple[int, int] | None:
    """Return the (log index, offset) up to which the log was applied; None if the position names no file here."""
    by_base_name = {get_base_name(name): place for name, place in log_indexes.items()}
    for name, offset in (("file", "offset"), ("source_file", "source_offset")):
        log_index, offset_value = by_base_name.get(str(start_position.get(name))), start_position.get(offset)
        if log_index is not None and isinstance(offset_value, int) and not start_position.get("gtid"):
            return log_index, offset_value
    return None


def parse_server_state(name: str, data: bytes) -> Mapping[str, Any] | None:
    """Return the applied position that a server file holds: `BASE.state`, relay-log.info, or a GTID set as text."""
    text = data.decode("utf-8", "replace")
    lines = [line.strip() for line in text.split("\n")]
    if INFO_NAME.fullmatch(name):
        return _parse_relay_log_info(lines)
    try:
        executed = parse_executed_gtids(text)
    except UsageError:
        return None
    return {"gtid": executed.gtid_set_text} if executed.sources or executed.domains or not text.strip() else None


def _parse_relay_log_info(lines: list[str]) -> Mapping[str, Any] | None:
    """Parse relay-log.info; newer servers write the number of lines first."""
    rows = lines[1:5] if lines and lines[0].isdecimal() else lines[:4]
    if len(rows) < 2 or not rows[1].isdecimal():
        return None
    position: dict[str, Any] = {"file": get_base_name(rows[0]), "offset": int(rows[1])}
    if len(rows) == 4 and rows[2] and rows[3].isdecimal():
        position |= {"source_file": get_base_name(rows[2]), "source_offset": int(rows[3])}
    return position
