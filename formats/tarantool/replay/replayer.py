"""Predict what the server does with a data directory when it starts.

Servers like 2.6 apply row by row (`recover_xlog`, `apply_wal_row`). Servers from 2.8.1 on apply whole transactions, and
refuse logs that contain a transaction without an end. Source: `docs/spec/tarantool.md#reading-and-durable-end`.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable, Iterator, Mapping, Sequence, Set
from typing import Any, NamedTuple

from binlogtool.findings import Finding, Severity, make_finding
from binlogtool.format_api.format import DecodedRecords
from binlogtool.format_api.layout import Batch
from binlogtool.format_api.replay_rules import (
    APPLIED,
    DANGLING_LINK,
    NOT_REACHED,
    REJECTED,
    SKIPPED,
    ReadPlan,
    RecordOutcome,
    ReplayOutcome,
    ReplaySituation,
    ReplayStop,
)
from binlogtool.formats.tarantool.codes import BOX_SYSTEM_ID_MAX, FileKind
from binlogtool.formats.tarantool.replay.apply_transactions import (
    CONFIRM_TYPES,
    ROLLBACK_TYPES,
    SYNCHRO_TYPES,
    ReplayRow,
    TransactionLimbo,
    TransactionStream,
    check_synchro_request,
    read_wait_flags,
    to_signed,
)
from binlogtool.formats.tarantool.replay.loss_findings import (
    RESTORED,
    ReplayLosses,
    list_remedies,
    list_vylogs_to_restore,
)
from binlogtool.formats.tarantool.replay.simulated_xlog_reader import ServerVersion
from binlogtool.formats.tarantool.replay.space_state import ReplayedSpaces, find_request_field_error
from binlogtool.formats.tarantool.replay.startup import (
    CandidateFile,
    TarantoolStartup,
    VinylFault,
    find_spaces_in_runs,
    format_path,
    is_same_vclock,
    is_vclock_at_most,
    plan_startup,
)
from binlogtool.formats.tarantool.schema import format_vclock, parse_header_lines, parse_vclock
from binlogtool.formats.tarantool.spaces.catalog import BOX_INDEX_ID, BOX_TRUNCATE_ID, DEFINITION_SPACES, SpaceCatalog
from binlogtool.formats.tarantool.validate.xlog_and_snap import XlogFacts

# --- Positions of a replay ---


def parse_vclock_position(position: Mapping[str, Any]) -> dict[int, int]:
    """Convert a position `{"vclock": {"1": 61}}` to a vclock; invalid components are omitted."""
    stored = position.get("vclock")
    pairs = stored.items() if isinstance(stored, Mapping) else ()
    return {int(r): lsn for r, lsn in pairs if str(r).isdecimal() and type(lsn) is int and lsn >= 0}


def read_header_position(name: str, data: bytes) -> Mapping[str, Any] | None:
    """Read the position from the header of a snapshot or log (`ReplayRules.parse_state`); None if it has none."""
    text = parse_header_lines(data)
    vclock_text = text.get_value("vclock")
    if text.end is None or vclock_text is None or not text.lines or text.lines[0].value not in FileKind.__members__:
        return None
    try:
        return {"vclock": {str(replica): lsn for replica, lsn in parse_vclock(vclock_text).items()}}
    except ValueError:
        return None


# --- Prediction for a data directory ---

_ROLLBACK_ONLY = ("ROLLBACK",)
"""Types that roll back from their LSN on; other ROLLBACK_TYPES confirm up to it first (`txn_limbo_read_promote`)."""

_WRITE_TYPES = frozenset(("INSERT", "REPLACE", "UPDATE", "DELETE", "UPSERT", "INSERT_ARROW", "DELETE_RANGE"))
_CONTROL_TYPES = frozenset(("NOP", "RAFT", *CONFIRM_TYPES, *ROLLBACK_TYPES))
_SNAPSHOT_CONTROL_TYPES = ("RAFT", "RAFT_PROMOTE")
_SYNC_FLAGS = 6  # wait_sync, wait_ack
_TYPE_NUMBERS = {"REPLACE": 3, "UPDATE": 4, "DELETE": 5, "UPSERT": 9, "NOP": 12}

_MAX_FAST_LSN = 1 << 62
MAX_CHECKED_ROWS = 200_000
"""Maximum number of rows of a replay for which each row is checked against the state of its space."""

_MAX_LISTED = 3

Decision = tuple[str, str]
_APPLY_NEW, _SKIP_OLD, _APPLY_SNAPSHOT = (APPLIED, "new"), (SKIPPED, "already-applied"), (APPLIED, "snapshot")
_APPLY_CONTROL = (APPLIED, "control")
_SKIP_NOT_REACHED = (SKIPPED, NOT_REACHED)


class UncheckedRows(NamedTuple):
    """Rows of one replica that are applied without a check.

    Attributes:
        first_lsn: LSN of the first row; -1 = rows of a snapshot.
    """

    replica: int
    first_lsn: int
    reason: str


class TarantoolReplayer:
    """Replay rules over one start (implements `format_api.replay_rules.Replayer`)."""

    def __init__(self, situation: ReplaySituation) -> None:
        self._situation = situation
        self._force = situation.policy == "force"
        against = None if situation.start_position is None else parse_vclock_position(situation.start_position)
        self._plan: TarantoolStartup = plan_startup(situation, against)
        self._vclock: dict[int, int] = dict(self._plan.start)
        self._catalog = SpaceCatalog()
        self._limbo = TransactionLimbo()
        self._transaction_stream = (
            TransactionStream(self, force=self._force) if self._plan.version.is_transactional else None
        )
        self._model = self._create_replayed_spaces(situation)
        if self._model is not None and self._plan.vinyl is not None:
            self._plan.vinyl.rows_by_space = {}
        self._losses = ReplayLosses()
        self._pending_logs = list(self._plan.logs)
        self._current_log: CandidateFile | None = None
        self._stop: ReplayStop | None = None
        self._is_anonymous = False
        self._index_fault: VinylFault | None = None
        self._deleted_keys: dict[tuple[int, int], Sequence[bytes]] = {}
        self._in_system_rows = True
        self._simple_spaces: set[int] = set()
        self._loaded_vinyl: frozenset[int] | None = None
        self._first_user_row: tuple[int, int] | None = None  # record number and offset

    def _create_replayed_spaces(self, situation: ReplaySituation) -> ReplayedSpaces | None:
        """Create the state of all spaces; None if their initial state is unknown, or there are too many rows."""
        rows = sum(file.records for file in situation.files)
        if self._plan.snapshot is None or rows > MAX_CHECKED_ROWS:
            return None
        return ReplayedSpaces(self._plan.version, force=self._force, max_memory=situation.max_memory)

    def plan_reads(self) -> ReadPlan:
        """Return the files in the server's reading order: metadata log of vinyl, snapshot, logs."""
        return self._plan.itinerary

    def decide_records(self, name: str, first: int, records: DecodedRecords) -> Iterable[RecordOutcome]:
        """Rule on all rows of the run except those waiting in the queue of synchronous transactions."""
        if self._stop is not None or self._plan.itinerary.refusal is not None:
            return [RecordOutcome(first, first + len(records), *_SKIP_NOT_REACHED)]
        startup = self._plan
        if startup.vylog is not None and name == startup.vylog.name:
            return [RecordOutcome(first, first + len(records), APPLIED, "vinyl-metadata")]
        if startup.snapshot is not None and name == startup.snapshot.name:
            if self._first_user_row is None:
                self._find_first_user_row(name, records)
            if self._stop is not None:
                return [RecordOutcome(first, first + len(records), *_SKIP_NOT_REACHED)]
            if self._is_plain_snapshot(name, records):
                return [RecordOutcome(first, first + len(records), *_APPLY_SNAPSHOT)]
            return list(self._merge_decisions(self._decide_snapshot_rows(name, records), name, first, records))
        self._open_logs_until(name)
        if self._stop is not None:
            return [RecordOutcome(first, first + len(records), *_SKIP_NOT_REACHED)]
        if self._try_advance_over_plain_log_run(name, records):
            return [RecordOutcome(first, first + len(records), *_APPLY_NEW)]
        if self._transaction_stream is not None:
            return list(self._replay_whole_transactions(self._transaction_stream, name, first, records))
        return list(self._merge_decisions(self._decide_log_rows(name, first, records), name, first, records))

    def finish(self) -> tuple[Iterable[RecordOutcome], ReplayOutcome]:
        """Open the remaining logs (also those without rows), then do the last checks of the start."""
        outcomes: list[RecordOutcome] = []
        if self._plan.itinerary.refusal is None and not self._plan.bootstraps:
            if not self._situation.ended_early():
                self._open_logs_until(None)
            outcomes = [*self._refuse_unfinished_transactions(), *self._limbo.release_unconfirmed()]
            if not self._situation.ended_early():
                self._compare_vclock_with_newest_log()
                self._check_secondary_keys()
                self._check_instance_is_registered()
                self._check_next_log_name()
        return outcomes, self._create_outcome()

    def _refuse_unfinished_transactions(self) -> list[RecordOutcome]:
        """Rule on the rows of a transaction without an end."""
        if (
            self._stop is not None
            or self._transaction_stream is None
            or self._current_log is None
            or self._situation.ended_early()
        ):
            return []
        outcomes, self._stop = self._transaction_stream.refuse_unfinished_transaction(self._current_log.name)
        return outcomes

    # -- files -----------------------------------------------------------------------------------------------------

    def _open_logs_until(self, name: str | None) -> None:
        """Open logs up to this name (None = all), as `recover_remaining_wals` does."""
        if self._current_log is None and self._plan.snapshot is not None:
            self._loaded_vinyl = frozenset(self._catalog.vinyl)
            self._collect_read_result(self._plan.snapshot)
            self._check_snapshot_end(self._plan.snapshot)
        while self._stop is None and (self._current_log is None or self._current_log.name != name):
            if self._current_log is not None:
                self._collect_read_result(self._current_log)
            if self._stop is not None or not self._pending_logs:
                return
            self._open_log(self._pending_logs.pop(0))

    def _open_log(self, log: CandidateFile) -> None:
        """Open the next log (`recovery_open_log`): check that it continues the chain, move the vclock to its start."""
        before, self._current_log = self._current_log, log
        previous = log.context.prev_vclock
        if before is None:
            gap = not is_vclock_at_most(log.vclock, self._vclock)
        else:
            gap = previous is not None and not is_same_vclock(previous, before.vclock)
        if gap:
            text = (
                f"Missing .xlog file between LSN {_format_vclock_with_signature(self._vclock)} and "
                f"{_format_vclock_with_signature(log.vclock)}"
            )
            self._losses.add_server_message(log.name, text)
            if not self._force:
                self._stop = ReplayStop(log.name, None, text)
                return
        if is_vclock_at_most(self._vclock, log.vclock):
            if not gap and before is not None:
                self._losses.add_gap_between_logs(before, self._vclock, log, self._plan.read_results[before.name])
            self._vclock = dict(log.vclock)

    def _collect_read_result(self, file: CandidateFile) -> None:
        """Close a file at its end: collect the server's messages, and where it stops in the file."""
        read_result = self._plan.read_results[file.name]
        self._losses.add_losses_of_read_file(file, read_result)
        if read_result.stop is not None and self._stop is None:
            self._stop = ReplayStop(file.name, *read_result.stop)

    def _check_snapshot_end(self, snapshot: CandidateFile) -> None:
        """Check the end of a snapshot.

        From 3.x on, force_recovery does not tolerate errors in system spaces, and does not require the end mark.
        """
        read_result = self._plan.read_results[snapshot.name]
        lenient = self._force and self._plan.version.is_version_3
        if self._stop is None and lenient:
            limit = snapshot.file.size if self._first_user_row is None else self._first_user_row[1]
            first_message = next((one for one in read_result.messages if one.offset < limit), None)
            self._stop = None if first_message is None else ReplayStop(snapshot.name, *first_message)
        if self._stop is None and not read_result.closed:
            text = f"snapshot `{format_path(snapshot.name)}' has no EOF marker"
            if lenient:
                self._losses.add_server_message(snapshot.name, text, snapshot.file.size)
            else:
                self._stop = ReplayStop(snapshot.name, snapshot.file.size, text)

    def _find_first_user_row(self, name: str, records: DecodedRecords) -> None:
        """Find the first row of a user space in the snapshot (`memtx_engine_recover_snapshot` of 3.x)."""
        spaces = [body.get("space_id") if body else None for body in records.bodies]
        for i, (kind, space) in enumerate(zip(records.envelope.type, spaces, strict=True)):
            if kind != "INSERT" or not isinstance(space, int) or space > BOX_SYSTEM_ID_MAX:
                self._first_user_row = records.record[i], records.offset[i]
                if i == 0 and records.record[0] == 0 and self._plan.version.is_version_3:
                    self._stop = ReplayStop(name, records.offset[0], "Snapshot has no system spaces")
                return

    def _compare_vclock_with_newest_log(self) -> None:
        """Stop the start (3.x) if the vclock that was reached differs from the one that verification found at the end
        of the newest log (`local_recovery`).
        """
        log = self._plan.logs[-1] if self._plan.logs else None
        verdict = None if log is None else log.file.verdict
        facts = None if verdict is None else verdict.facts
        if (
            self._stop is not None
            or self._force
            or not self._plan.version.is_version_3
            or not isinstance(facts, XlogFacts)
        ):
            return
        if log is None or facts.damaged or not is_vclock_at_most(self._plan.start, log.vclock):
            return
        if not is_same_vclock(facts.vclock, self._vclock):
            scanned, read = (format_vclock(_drop_zero_components(one)) for one in (facts.vclock, self._vclock))
            text = f"Can't proceed. Replicaset vclock {scanned} doesn't match recovered data {read}."
            self._stop = ReplayStop(log.name, None, text)

    def _check_secondary_keys(self) -> None:
        """Check the secondary indexes, which are built at the end (`memtx_engine_end_recovery`)."""
        if self._stop is None and self._model is not None and self._current_log is not None:
            text = self._model.build_secondary_indexes()
            if text is not None:
                self._stop = ReplayStop(self._current_log.name, None, text)

    def _check_instance_is_registered(self) -> None:
        """Stop the start if the instance is not in `_cluster` (`box_cfg_xc`); note whether it could start as an
        anonymous replica.
        """
        snapshot = self._plan.snapshot
        if self._stop is not None or snapshot is None or not self._situation.is_directory:
            return
        own_uuid = (snapshot.context.instance or "").lower()
        if self._plan.version.is_version_3 and self._model is not None and self._model.schema_version is None:
            self._stop = ReplayStop(
                snapshot.name, None, "the schema has no version: fatal error, exiting the event loop"
            )
        elif own_uuid not in self._catalog.instances:
            registered = {0, *self._catalog.instances.values()}
            no_file_skipped = "bad-header" not in self._plan.itinerary.skipped.values()
            all_registered = all(replica in registered for replica, lsn in self._vclock.items() if lsn)
            self._is_anonymous = bool(own_uuid) and no_file_skipped and all_registered
            text = f"Replica {own_uuid} is not registered with replica set {self._catalog.replicaset}"
            if self._plan.version.is_version_3:
                text = "'replication_anon' cfg didn't work"
            if self._is_anonymous:
                text += ": an anonymous replica starts with replication_anon = true and read_only = true"
            self._stop = ReplayStop(snapshot.name, None, text)

    def _check_next_log_name(self) -> None:
        """Stop the start if the name of the log that the server writes next is taken by something that is not a file
        (`wal_open`).
        """
        name = f"{sum(self._vclock.values()):020d}.xlog"
        kind = self._situation.other_entries.get(name, DANGLING_LINK)
        if self._stop is None and kind != DANGLING_LINK:
            self._stop = ReplayStop(name, None, f"failed to open file './{name}'")

    # -- runs of similar rows --------------------------------------------------------------------------------------

    def _is_plain_snapshot(self, name: str, records: DecodedRecords) -> bool:
        """Return whether a run has only rows of known spaces, and no row that defines a space."""
        insert = records.envelope.type.count("INSERT") == len(records)
        return insert and self._is_run_read_completely(name, records) and self._are_simple(_collect_spaces(records))

    def _try_advance_over_plain_log_run(self, name: str, records: DecodedRecords) -> bool:
        """Apply a run of a log without a check if it is plain (one replica, consecutive LSNs, nothing waits); return
        whether it was, and if so move the vclock over it.

        Moves the vclock if so.
        """
        envelope, count = records.envelope, len(records)
        replica = envelope.origin[0] or 0
        first_lsn = self._vclock.get(replica, 0) + 1
        is_plain = (
            not self._limbo
            and (self._transaction_stream is None or not (self._transaction_stream.is_open or records.extras))
            and envelope.seq == list(range(first_lsn, first_lsn + count))
            and envelope.origin.count(replica) == count
            and _WRITE_TYPES.issuperset(envelope.type)
            and self._is_run_read_completely(name, records)
            and self._are_simple(_collect_spaces(records))
            and not _find_synchronous_rows(records)
        )
        if is_plain:
            self._vclock[replica] = first_lsn + count - 1
        return is_plain

    def _is_run_read_completely(self, name: str, records: DecodedRecords) -> bool:
        """Return whether the server reads all rows of a run."""
        limit = self._plan.read_results[name].limit
        return limit is None or records.offset[-1] < limit

    def _are_simple(self, spaces: set[int | None]) -> bool:
        """Return whether nothing depends on the rows of these spaces, and the rows can be applied."""
        return all(space in self._simple_spaces or self._is_simple(space) for space in spaces)

    def _is_simple(self, space: int | None) -> bool:
        """Return whether nothing else depends on the rows of a space; store its id if so."""
        if space is None or self._model is not None or space in DEFINITION_SPACES:
            return False
        if space == BOX_TRUNCATE_ID and self._catalog.vinyl:
            return False
        if space in self._catalog.synchronous or (
            self._plan.snapshot and self._catalog.find_missing_space_or_index(space, {})
        ):
            return False
        self._simple_spaces.add(space)
        return True

    # -- runs for compiled code ----------------------------------------------------------------------------

    @property
    def version(self) -> ServerVersion:
        """Version of the server that starts."""
        return self._plan.version

    @property
    def deleted_keys(self) -> Mapping[tuple[int, int], Sequence[bytes]]:
        """Replica and LSN of each DELETE_RANGE -> the keys that it deleted."""
        return self._deleted_keys

    @property
    def simple_spaces(self) -> Set[int]:
        """Ids of spaces whose rows do not define or affect anything else."""
        return self._simple_spaces

    def get_unchecked_rows(self, name: str, batch: Batch, start: int) -> UncheckedRows | None:
        """Return the rows from `start` on that are applied without a check; None if each row must be checked."""
        startup = self._plan
        if self._stop is not None or startup.itinerary.refusal is not None or self._limbo:
            return None
        if self._transaction_stream is not None and self._transaction_stream.is_open:
            return None
        if startup.read_results[name].limit is not None or (startup.vylog is not None and name == startup.vylog.name):
            return None
        if startup.snapshot is not None and name == startup.snapshot.name:
            return UncheckedRows(0, -1, _APPLY_SNAPSHOT[1])
        replica = batch.records["replica_id"][start]
        first_lsn = self._vclock.get(replica, 0) + 1
        is_open = self._current_log is not None and self._current_log.name == name
        return (
            UncheckedRows(replica, first_lsn, _APPLY_NEW[1])
            if is_open and replica >= 0 and first_lsn < _MAX_FAST_LSN
            else None
        )

    def advance_vclock_over_rows(self, unchecked_rows: UncheckedRows, row_count: int) -> None:
        """Move the vclock over `row_count` rows that were applied as expected."""
        if unchecked_rows.first_lsn >= 0:
            self._vclock[unchecked_rows.replica] = unchecked_rows.first_lsn + row_count - 1

    # -- rows ------------------------------------------------------------------------------------------------------

    def _merge_decisions(
        self, decisions: Iterator[Decision | None], name: str, first: int, records: DecodedRecords
    ) -> Iterator[RecordOutcome]:
        """Merge one decision per row (None: later) into outcomes, with those of the queue, in application order."""
        limit = self._plan.read_results[name].limit
        reached = len(records) if limit is None else bisect_left(records.offset, limit)
        run_decision: Decision | None = None
        run_start = number = first
        for number, decision in zip(range(first, first + reached), decisions, strict=False):
            if decision != run_decision or self._limbo.released:
                if run_decision is not None and run_start < number:
                    yield RecordOutcome(run_start, number, *run_decision)
                yield from self._limbo.remove_released_outcomes()
                run_start, run_decision = number, decision
            if self._stop is not None:
                break
        if run_decision is not None and reached:
            yield RecordOutcome(run_start, number + 1, *run_decision)
        if self._stop is not None and number + 1 < first + reached:
            yield RecordOutcome(number + 1, first + len(records), *_SKIP_NOT_REACHED)
        elif reached < len(records) and (self._stop is not None or self._plan.read_results[name].stop is not None):
            yield RecordOutcome(first + reached, first + len(records), *_SKIP_NOT_REACHED)
        if reached < len(records) and self._stop is None and self._plan.read_results[name].stop is None:
            if records.offset[reached] >= self._get_verified_end(name):
                yield RecordOutcome(first + reached, first + len(records), *_SKIP_NOT_REACHED)
                return
            self._losses.add_unread_rows(name, records, reached)
            yield RecordOutcome(first + reached, first + len(records), SKIPPED, "behind-silent-end")

    def _replay_whole_transactions(
        self, stream: TransactionStream, name: str, first: int, records: DecodedRecords
    ) -> Iterator[RecordOutcome]:
        """Rule on the rows of a log as servers that apply whole transactions do."""
        read_result = self._plan.read_results[name]
        reached = len(records) if read_result.limit is None else bisect_left(records.offset, read_result.limit)
        yield from stream.replay_rows(name, first, records, reached)
        self._stop = stream.stop
        if reached < len(records) and self._stop is None:
            if read_result.stop is not None or records.offset[reached] >= self._get_verified_end(name):
                yield RecordOutcome(first + reached, first + len(records), *_SKIP_NOT_REACHED)
            else:
                self._losses.add_unread_rows(name, records, reached)
                yield RecordOutcome(first + reached, first + len(records), SKIPPED, "behind-silent-end")

    def _get_verified_end(self, name: str) -> int:
        """Return the end of the last good block at verification; later rows were written after it."""
        tails = (file.tail for file in self._situation.files if file.name == name and file.tail is not None)
        return next((tail.end for tail in tails), 0)

    def _decide_snapshot_rows(self, name: str, records: DecodedRecords) -> Iterator[Decision]:
        catalog = self._catalog
        for i, (kind, body) in enumerate(zip(records.envelope.type, records.bodies, strict=True)):
            space = body.get("space_id") if body else None
            if self._in_system_rows and self._plan.version.is_version_3 and not self._is_system_row(kind, space):
                self._in_system_rows = False
            if kind == "INSERT":
                refused = self._apply_or_refuse(name, records, i, snapshot=True)
                if space in DEFINITION_SPACES and refused is None:
                    catalog.apply_definition_row(space, kind, body)
                    self._simple_spaces.clear()
                yield refused or _APPLY_SNAPSHOT
            elif kind in _SNAPSHOT_CONTROL_TYPES:
                if kind == "RAFT_PROMOTE":
                    self._limbo.owner = body.get("replica_id", 0) if body else 0
                yield _APPLY_CONTROL
            else:
                text = f"Unknown request type {_TYPE_NUMBERS.get(kind, kind)}"
                yield self._refuse_row(name, records.offset[i], text, "not-an-insert")

    def _is_system_row(self, kind: str, space: int | None) -> bool:
        """Return whether a row is one of the system rows in a snapshot, of which force_recovery skips none (3.x)."""
        return kind == "INSERT" and space is not None and space <= BOX_SYSTEM_ID_MAX

    def _decide_log_rows(self, name: str, first: int, records: DecodedRecords) -> Iterator[Decision | None]:
        """Yield one decision per row; None for rows that wait."""
        limbo = self._limbo
        envelope, flags = records.envelope, _find_synchronous_rows(records)
        rows = zip(envelope.type, envelope.seq, envelope.origin, records.bodies, strict=True)
        for i, (kind, lsn, replica, body) in enumerate(rows):
            lsn, replica = lsn or 0, replica or 0
            decision = self.advance_vclock_or_skip(name, records, i, replica, to_signed(lsn))
            if decision is not None:
                yield decision
                continue
            if kind in _CONTROL_TYPES:
                fault = self._apply_control(kind, body)
                yield (
                    _APPLY_CONTROL
                    if fault is None
                    else self._refuse_row(name, records.offset[i], fault, "refused-request")
                )
                continue
            space = body.get("space_id") if body else None
            is_simple = space in self._simple_spaces or self._is_simple(space)
            savepoint = (0, 0) if self._model is None else self._model.create_savepoint()
            refused = None if is_simple else self._apply_row_and_definition(name, records, i, space)
            if refused is not None:
                yield refused
                continue
            sync = (not is_simple and space in self._catalog.synchronous) or i in flags
            if sync or limbo:
                limbo.add_transaction((first + i,), lsn, savepoint, needs_own_confirm=sync)
                yield None
            else:
                if self._model is not None:
                    self._model.discard_savepoints()
                yield _APPLY_NEW

    def _apply_row_and_definition(
        self, name: str, records: DecodedRecords, i: int, space: int | None
    ) -> Decision | None:
        """Apply a row and store the definition in it; return the decision if the server refuses it, else None."""
        refused = self._apply_or_refuse(name, records, i)
        if refused is not None:
            return refused
        self._remember_vinyl_row(records.envelope.type[i], space)
        if space in DEFINITION_SPACES:
            self._catalog.apply_definition_row(space, records.envelope.type[i], records.bodies[i])
            self._simple_spaces.clear()
        return None

    def _refuse_index_row(self, name: str, offset: int, fault: VinylFault) -> Decision:
        """Refuse a row of `_index` whose index cannot be recovered: the file at fault is reported, not the row."""
        self._index_fault = fault
        return self._refuse_row(name, offset, fault.why, "vinyl-index")

    def _remember_vinyl_row(self, kind: str, space: int | None) -> None:
        """Record a row of a vinyl space: the server applies it unless the runs already contain it."""
        vinyl = self._plan.vinyl
        if (
            vinyl is not None
            and self._model is not None
            and space in self._catalog.vinyl
            and self._current_log is not None
        ):
            vinyl.record_row(space or 0, sum(self._vclock.values()), is_delete=kind == "DELETE")

    def _open_vinyl_indexes(self, kind: str, body: Any) -> VinylFault | None:
        """Recover the vinyl indexes that a row of `_index` or `_truncate` creates; return why that fails, else None."""
        space = body.get("space_id") if body else None
        if space not in (BOX_INDEX_ID, BOX_TRUNCATE_ID):
            return None
        vinyl, row, key = self._plan.vinyl, body.get("tuple"), body.get("key")
        index_key = row if isinstance(row, list) and kind != "UPDATE" else key
        if vinyl is None or not isinstance(index_key, list) or not index_key or index_key[0] not in self._catalog.vinyl:
            return None
        snapshot = self._current_log is None
        indexes = index_key[1:2] if space == BOX_INDEX_ID else vinyl.list_indexes(index_key[0])
        if space == BOX_INDEX_ID and kind == "DELETE":
            vinyl.close_indexes(index_key[0], *indexes)
            return None
        signature = sum(self._vclock.values())
        for index in indexes if kind != "UPDATE" else ():
            fault = vinyl.recover_index(index_key[0], index, signature, from_snapshot=snapshot)
            if fault is not None:
                return fault
        return None

    def _apply_or_refuse(
        self, name: str, records: DecodedRecords, i: int, *, snapshot: bool = False
    ) -> Decision | None:
        """Apply a row to the model; return the decision if the server refuses it, else None."""
        kind, body = records.envelope.type[i], records.bodies[i]
        index_fault = self._open_vinyl_indexes(kind, body)
        if index_fault is not None:
            return self._refuse_index_row(name, records.offset[i], index_fault)
        fault = self._apply_to_model(kind, body, snapshot=snapshot)
        return (
            None
            if fault is None
            else self._refuse_row(name, records.offset[i], fault, _get_refusal_reason(fault, body))
        )

    def _apply_to_model(self, kind: str, body: Any, *, snapshot: bool = False) -> str | None:
        """Apply a row to the model; return the server's message if it refuses the row, else None."""
        if self._model is not None:
            return self._model.apply_row(kind, body, snapshot=snapshot)
        fault = find_request_field_error(kind, body, self._plan.version)
        space = body.get("space_id") if body else None
        if fault is None and space is not None and self._plan.snapshot is not None:
            fault = self._catalog.find_missing_space_or_index(space, body)
        return fault

    def _refuse_row(self, name: str, offset: int, text: str, reason: str) -> Decision:
        """Refuse a row that the server cannot apply: it gives up, or skips the row (force_recovery)."""
        self._stop = self.stop_or_log_refusal(name, offset, text)
        return REJECTED, reason

    def _apply_control(self, kind: str, body: Any, origin: int | None = None) -> str | None:
        """Apply a row without data; return the server's message if it refuses the row, else None.

        Args:
            origin: replica of the row; None = servers before 3.x.
        """
        fault = (
            check_synchro_request(kind, body)
            if kind in SYNCHRO_TYPES or (kind == "RAFT" and origin is not None)
            else None
        )
        if fault is not None:
            return fault
        lsn = body.get("lsn", 0 if origin is not None else None) if isinstance(body, dict) else None
        is_from_owner = (
            origin is None or kind not in ("CONFIRM", "ROLLBACK") or body.get("replica_id", 0) == self._limbo.owner
        )
        if isinstance(lsn, int) and is_from_owner:
            if kind in CONFIRM_TYPES:
                self._limbo.confirm_up_to(lsn)
            if kind in ROLLBACK_TYPES:
                savepoint = self._limbo.roll_back_from(lsn + (kind not in _ROLLBACK_ONLY))
                if savepoint is not None and self._model is not None:
                    self._model.roll_back(savepoint)
        if origin is not None and kind in ("RAFT_PROMOTE", "RAFT_DEMOTE"):
            self._limbo.owner = origin if kind == "RAFT_PROMOTE" else 0
        if (
            not self._limbo
            and self._model is not None
            and not (self._transaction_stream is not None and self._transaction_stream.is_open)
        ):
            self._model.discard_savepoints()
        return None

    # -- interface of a row applier ------------------------------------------------------------------------------------
    # -------------------------------------------------------------

    def advance_vclock_or_skip(
        self, file_name: str, records: DecodedRecords, row_index: int, replica: int, lsn: int
    ) -> Decision | None:
        """Move the vclock to a row; return the decision if the vclock is there already, else None."""
        current = self._vclock.get(replica, 0)
        if lsn <= current:
            return self._losses.skip_out_of_order_row(file_name, records, row_index, replica, lsn) or _SKIP_OLD
        if lsn > current + 1:
            self._losses.add_lsn_gap(replica, current + 1, lsn - 1)
        self._vclock[replica] = lsn
        return None

    def apply_row(self, row: ReplayRow) -> tuple[str, str] | None:
        """Apply a row of a transaction; return the server's message and the reason if it refuses the row, else None."""
        space = row.body.get("space_id") if row.body else None
        if space in self._simple_spaces or self._is_simple(space):
            return None
        self._index_fault = self._open_vinyl_indexes(row.kind, row.body)
        if self._index_fault is not None:
            return self._index_fault.why, "vinyl-index"
        fault = self._apply_to_model(row.kind, row.body)
        if fault is not None:
            return fault, _get_refusal_reason(fault, row.body)
        self._remember_vinyl_row(row.kind, space)
        if row.kind == "DELETE_RANGE" and self._model is not None and not self._model.store.is_full:
            self._deleted_keys[row.replica, row.lsn] = self._model.deleted_keys
        if space in DEFINITION_SPACES:
            self._catalog.apply_definition_row(space, row.kind, row.body)
            self._simple_spaces.clear()
        return None

    def apply_control_row(self, row: ReplayRow) -> str | None:
        """Move the vclock to a row; return the decision if the vclock has already reached it, else None."""
        return self._apply_control(row.kind, row.body, row.replica if self._plan.version.is_version_3 else None)

    def commit_or_queue_transaction(
        self, rows: Sequence[ReplayRow], savepoint: tuple[int, int]
    ) -> str | Decision | None:
        """Commit a transaction. Return the decision about its rows, None if they wait for a CONFIRM, or the server's
        message.
        """
        if sum(self._vclock.values()) >= 1 << 63:  # the signature is negative: a failed write to the server
            self.roll_back_to(savepoint)
            return REJECTED, "transaction-dropped"
        wait, sync = read_wait_flags(rows)
        if not self._plan.version.is_version_3:
            spaces = {row.body.get("space_id") for row in rows if row.body}
            sync = sync or wait or not self._catalog.synchronous.isdisjoint(spaces)
            wait = sync or bool(self._limbo)
        elif wait:
            fault = self._check_queue_owner(rows)
            if fault is not None:
                return fault
        if not wait:
            if self._model is not None and not self._limbo:
                self._model.discard_savepoints()
            return _APPLY_NEW
        lsn = max((row.lsn for row in rows if row.replica), default=rows[-1].lsn)
        self._limbo.add_transaction(
            (row.number for row in rows if not row.done), lsn, savepoint, needs_own_confirm=sync
        )
        return None

    def _check_queue_owner(self, rows: Sequence[ReplayRow]) -> str | None:
        """Check that the queue belongs to the origin of a transaction that waits in it (`txn_limbo_queue_submit`)."""
        owner, origin = self._limbo.owner, next((row.replica for row in rows if row.replica), 0)
        if not owner:
            return "The synchronous transaction queue doesn't belong to any instance"
        if origin not in (0, owner):
            uncommitted_text = "Found uncommitted sync transactions from other instance with id"
            foreign_text = "The synchronous transaction queue belongs to other instance with id"
            return f"{uncommitted_text if self._limbo else foreign_text} {owner}"
        return None

    def get_own_replica_id(self) -> int:
        """Return the id of this instance; 0 if it is not registered."""
        snapshot = self._plan.snapshot
        own = None if snapshot is None else snapshot.context.instance
        return self._catalog.instances.get((own or "").lower(), 0)

    def create_savepoint(self) -> tuple[int, int]:
        """Return a savepoint of the state before a row."""
        return (0, 0) if self._model is None else self._model.create_savepoint()

    def roll_back_to(self, savepoint: tuple[int, int]) -> None:
        """Roll the state back to a savepoint."""
        if self._model is not None:
            self._model.roll_back(savepoint)

    def stop_or_log_refusal(self, file_name: str, offset: int, server_message: str) -> ReplayStop | None:
        """Report a refused row: return where the server stops, or None if it continues (force_recovery)."""
        in_system_rows = self._in_system_rows and self._plan.version.is_version_3 and self._current_log is None
        crashes = self._model is not None and self._model.is_crashed
        if self._force and not in_system_rows and not crashes:
            self._losses.add_server_message(file_name, server_message, offset)
            self._index_fault = None
            return None
        index_fault = self._index_fault
        return (
            ReplayStop(file_name, offset, server_message)
            if index_fault is None
            else ReplayStop(index_fault.file or file_name, index_fault.offset, server_message)
        )

    def remove_released_outcomes(self) -> list[RecordOutcome]:
        """Return the outcomes on rows that no longer wait for a CONFIRM."""
        return self._limbo.remove_released_outcomes()

    # -- the end ---------------------------------------------------------------------------------------------------

    def _create_outcome(self) -> ReplayOutcome:
        startup, stop = self._plan, self._plan.itinerary.refusal or self._stop
        doubts = self._explain_undetermined() if stop is None else []
        is_decided = (
            self._situation.is_directory and self._can_determine_start() and not self._is_anonymous and not doubts
        )
        starts = stop is None if is_decided else None
        vclock = {} if startup.bootstraps else {str(r): lsn for r, lsn in sorted(self._vclock.items()) if lsn}
        findings = [*self._losses.create_findings(), *self._report_unread_logs()]
        if stop is None and startup.vinyl is not None and not startup.bootstraps:
            findings += startup.vinyl.report_lost_vinyl_rows(
                {space: self._catalog.get_name(space) for space in self._catalog.vinyl}
            )
        details: dict[str, Any] = {"snapshot": None if startup.snapshot is None else startup.snapshot.name}
        if steps := list_remedies(stop, self._situation):
            details["startup"] = {"remedy": steps}
        if self._losses.server_messages:
            details["server_says"] = self._losses.server_messages
        if self._losses.partly_applied:
            details["rows_not_counted"] = self._losses.partly_applied
        if not_checked := self._list_unchecked_rows() | self._list_unchecked_files():
            details["not_checked"] = not_checked
        if stop is None and (doubts or not_checked):
            details["startup"] = {"not_checked": doubts or [f"not checked: {_format_unchecked(not_checked)}"]}
        is_undecided = (
            starts is None and stop is None and self._situation.is_directory and not self._can_determine_start()
        )
        if is_undecided and "startup" not in details:
            details["startup"] = {"undetermined": "no snapshot (.snap) and no log (.xlog) is in this directory"}
            if vylogs := list_vylogs_to_restore(self._situation):
                text = f"restore {RESTORED}, or move them to the directory (memtx_dir) that has it, to diagnose both"
                details["startup"]["remedy"] = [*vylogs, {"what": text, "command": None}]
        if self._catalog.vinyl:
            details["vinyl"] = sorted(map(self._catalog.get_name, self._catalog.vinyl))
        verdict = None if startup.vylog is None else startup.vylog.file.verdict
        unknown = find_spaces_in_runs(
            self._catalog, self._loaded_vinyl or (), None if verdict is None else verdict.facts
        )
        if self._model is not None and startup.snapshot is not None:
            for space, index in sorted(self._model.duplicates.items()):
                text = (
                    f"a key occurs twice in the unique index '{index}' of {space}: the server builds it without a check"
                )
                findings.append(
                    (startup.snapshot.name, make_finding("silent-loss", None, 0, text, severity=Severity.WARNING))
                )
            for space in sorted(self._model.unordered_spaces):
                unknown = {**unknown, space: "its rows are not in the order of their keys in the snapshot"}
                text = f"rows of {space} are not in the order of their keys: the server finds only a part of them"
                findings.append((startup.snapshot.name, make_finding("silent-loss", None, 0, text)))
        return ReplayOutcome(starts, stop, {"vclock": vclock}, tuple(findings), details, unknown)

    def _explain_undetermined(self) -> list[str]:
        """Explain why it cannot be determined whether the server starts; [] if it can."""
        vinyl = self._plan.vinyl
        return [] if vinyl is None or vinyl.undetermined is None else [vinyl.undetermined]

    def _list_unchecked_rows(self) -> dict[str, str]:
        """List checks of rows that were not made although they could stop the server: place -> reason."""
        if self._model is None:
            is_checkable = self._plan.snapshot is not None and self._situation.is_directory
            return {"rows against formats and keys": "too many rows"} if is_checkable else {}
        doubts = dict(sorted(self._model.doubts.reasons.items()))
        if self._model.store.is_full:
            doubts["duplicate keys"] = "more rows than --max-memory"
        return doubts

    def _list_unchecked_files(self) -> dict[str, str]:
        """List files that were not checked although they could stop the server: place -> reason."""
        startup = self._plan
        vinyl = None if startup.vinyl is None or not self._catalog.vinyl else startup.vinyl.unchecked
        unchecked = {} if vinyl is None else {"indexes of vinyl": vinyl}
        beside, snapshot = self._situation.read_sibling, startup.snapshot
        if beside is not None and snapshot is not None and startup.version.is_version_3:
            name = snapshot.name.removesuffix(".snap") + ".sortdata"
            if beside(name) is not None:
                unchecked[name] = "read only with memtx_use_sort_data = true; it may be deleted"
        return unchecked

    def _can_determine_start(self) -> bool:
        """Return whether these files determine whether a server starts."""
        startup = self._plan
        return bool(
            startup.snapshot or startup.bootstraps or startup.itinerary.refusal or self._situation.start_position
        )

    def _report_unread_logs(self) -> Iterator[tuple[str, Finding]]:
        """Report the logs in a directory in which the server creates a new instance."""
        if self._plan.bootstraps:
            logs = [
                file for file in self._situation.files if file.name in self._plan.itinerary.skipped and file.records
            ]
            text = (
                "no snapshot in this directory: the server creates a new, empty instance, and reads none of these rows"
            )
            for file in logs:
                yield file.name, make_finding("silent-loss", None, 0, text, records=file.records, restore=RESTORED)


def _get_refusal_reason(server_message: str, body: Any) -> str:
    """Return the replay reason for the server's message about a row."""
    if server_message.startswith("Space '") and server_message.endswith("does not exist"):
        return "no-such-space"
    if server_message.startswith("No index #"):
        return "no-such-index"
    if server_message.startswith("Missing mandatory field"):
        return "refused-request"
    space = body.get("space_id", 0) if isinstance(body, Mapping) else 0
    return "refused-definition" if space in DEFINITION_SPACES else "refused-row"


def _format_unchecked(not_checked: Mapping[str, str]) -> str:
    """Format the unchecked items as one line."""
    texts = [f"{place} ({why})" for place, why in not_checked.items()]
    rest = [f"{len(texts) - _MAX_LISTED} more"] if len(texts) > _MAX_LISTED else []
    return ", ".join(texts[:_MAX_LISTED] + rest)


def _format_vclock_with_signature(vclock: Mapping[int, int]) -> str:
    """Format a vclock as the server prints it: the sum, then the components."""
    stored = _drop_zero_components(vclock)
    return f"{sum(stored.values())} {format_vclock(stored)}"


def _drop_zero_components(vclock: Mapping[int, int]) -> dict[int, int]:
    return {replica: lsn for replica, lsn in sorted(vclock.items()) if lsn}


def _collect_spaces(records: DecodedRecords) -> set[int | None]:
    return {body.get("space_id") if body else None for body in records.bodies}


def _find_synchronous_rows(records: DecodedRecords) -> frozenset[int]:
    """Return the indexes of rows whose header marks their transaction as synchronous (2.11 and newer)."""
    extras = records.extras or ()
    return frozenset(i for i, one in enumerate(extras) if one and one["flags"] & _SYNC_FLAGS)


# -- positions ---------------------------------------------------------------------------------------------------------
