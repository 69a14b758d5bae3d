"""Predict what the server does with a data directory when it starts: a snapshot, then the chain of logs.

The rules of 2.6 go row by row (`recover_xlog`, `apply_wal_row`). Servers from 2.8.1 on apply whole transactions, and
refuse logs in which one has no end. Source:
`docs/spec/tarantool-xlog.md#6-how-the-server-reads-and-what-durable-end-means`.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable, Iterator, Mapping, Sequence, Set
from typing import Any, NamedTuple

from binlogtool.findings import Finding, Severity, finding
from binlogtool.formats.layouts import Batch
from binlogtool.formats.replay_rules import (
    APPLIED,
    NOT_REACHED,
    REJECTED,
    SKIPPED,
    Itinerary,
    Outcome,
    Records,
    Ruling,
    Situation,
    Stop,
)
from binlogtool.formats.tarantool.codes import LAST_SYSTEM_SPACE
from binlogtool.formats.tarantool.judge.log import LogFacts
from binlogtool.formats.tarantool.layout.header import write_vclock
from binlogtool.formats.tarantool.replay.data_model import DataModel, request_fault
from binlogtool.formats.tarantool.replay.limbo import Limbo
from binlogtool.formats.tarantool.replay.losses import Losses
from binlogtool.formats.tarantool.replay.position import vclock_of
from binlogtool.formats.tarantool.replay.remedies import remedies
from binlogtool.formats.tarantool.replay.server_version import ServerVersion
from binlogtool.formats.tarantool.replay.startup import Candidate, Startup, below, path_of, plan, same
from binlogtool.formats.tarantool.replay.transactions import (
    CONFIRMS,
    ROLLS_BACK,
    SYNCHRO,
    Row,
    TransactionStream,
    signed,
    synchro_fault,
    waits,
)
from binlogtool.formats.tarantool.replay.vinyl_start import Fault
from binlogtool.formats.tarantool.spaces.catalog import DEFINITIONS, INDEX, TRUNCATE, Catalog
from binlogtool.formats.tarantool.spaces.vinyl import untold

_ONLY_ROLLS_BACK = ("ROLLBACK",)
"""A change of the queue's owner confirms up to an LSN, and rolls back what is behind it (`txn_limbo_read_promote`)."""

_WRITES = frozenset(("INSERT", "REPLACE", "UPDATE", "DELETE", "UPSERT", "INSERT_ARROW", "DELETE_RANGE"))
_CONTROL = frozenset(("NOP", "RAFT", *CONFIRMS, *ROLLS_BACK))
_IN_SNAPSHOT = ("RAFT", "RAFT_PROMOTE")
_SYNC_FLAGS = 6  # wait_sync, wait_ack
_TYPE_NUMBERS = {"REPLACE": 3, "UPDATE": 4, "DELETE": 5, "UPSERT": 9, "NOP": 12}

_MOST_LSN = 1 << 62
MOST_CHECKED = 200_000
"""Rows of a log of which each is checked against the state of its space."""

_MOST_LISTED = 3

Decided = tuple[str, str]
_NEW, _OLD, _LOADED = (APPLIED, "new"), (SKIPPED, "already-applied"), (APPLIED, "snapshot")
_CONTROLS = (APPLIED, "control")
_NOT_REACHED = (SKIPPED, NOT_REACHED)


class Expected(NamedTuple):
    """Rows that are applied for one reason: all of one replica.

    Attributes:
        after: LSN of the first row; -1 = rows of a snapshot.
    """

    replica: int
    after: int
    reason: str


class TarantoolReplayer:
    """Replay rules over one start (implements `replay_rules.Replayer`)."""

    def __init__(self, situation: Situation) -> None:
        self._situation = situation
        self._force = situation.policy == "force"
        against = None if situation.against is None else vclock_of(situation.against)
        self._plan: Startup = plan(situation, against)
        self._clock: dict[int, int] = dict(self._plan.start)
        self._catalog = Catalog()
        self._limbo = Limbo()
        self._stream = TransactionStream(self, force=self._force) if self._plan.version.is_transactional else None
        self._model = self._model_of(situation)
        if self._model is not None and self._plan.vinyl is not None:
            self._plan.vinyl.written = {}
        self._losses = Losses()
        self._pending = list(self._plan.logs)
        self._current: Candidate | None = None
        self._stop: Stop | None = None
        self._anonymous = False
        self._lost_index: Fault | None = None
        self._deleted: dict[tuple[int, int], Sequence[bytes]] = {}
        self._in_system_rows = True
        self._simple: set[int] = set()
        self._loaded_vinyl: frozenset[int] | None = None
        self._user_rows: tuple[int, int] | None = None  # record number and offset

    def _model_of(self, situation: Situation) -> DataModel | None:
        """Create the state of all spaces if it is known from the beginning and there are not too many rows, else
        None.
        """
        rows = sum(file.records for file in situation.files)
        if self._plan.snapshot is None or rows > MOST_CHECKED:
            return None
        return DataModel(self._plan.version, force=self._force, max_memory=situation.max_memory)

    def itinerary(self) -> Itinerary:
        """Return the files in the server's order: metadata log of vinyl, snapshot, logs."""
        return self._plan.itinerary

    def feed(self, name: str, first: int, records: Records) -> Iterable[Ruling]:
        """Rule on all rows of the run except those that wait in the queue of synchronous transactions."""
        if self._stop is not None or self._plan.itinerary.refusal is not None:
            return [Ruling(first, first + len(records), *_NOT_REACHED)]
        plan_ = self._plan
        if plan_.vylog is not None and name == plan_.vylog.name:
            return [Ruling(first, first + len(records), APPLIED, "vinyl-metadata")]
        if plan_.snapshot is not None and name == plan_.snapshot.name:
            if self._user_rows is None:
                self._find_user_rows(name, records)
            if self._stop is not None:
                return [Ruling(first, first + len(records), *_NOT_REACHED)]
            if self._is_plain_snapshot(name, records):
                return [Ruling(first, first + len(records), *_LOADED)]
            return list(self._merged(self._snapshot_rows(name, records), name, first, records))
        self._reach(name)
        if self._stop is not None:
            return [Ruling(first, first + len(records), *_NOT_REACHED)]
        if self._is_plain_log(name, records):
            return [Ruling(first, first + len(records), *_NEW)]
        if self._stream is not None:
            return list(self._transactions(self._stream, name, first, records))
        return list(self._merged(self._log_rows(name, first, records), name, first, records))

    def finish(self) -> tuple[Iterable[Ruling], Outcome]:
        """Open the logs that are left (those without rows, too), then do the last checks of the start."""
        rulings: list[Ruling] = []
        if self._plan.itinerary.refusal is None and not self._plan.bootstraps:
            if not self._situation.cut():
                self._reach(None)
            rulings = [*self._unfinished(), *self._limbo.rest()]
            if not self._situation.cut():
                self._check_vclock()
                self._check_secondary_keys()
                self._check_registered()
        return rulings, self._outcome()

    def _unfinished(self) -> list[Ruling]:
        """Rule on a transaction without an end."""
        if self._stop is not None or self._stream is None or self._current is None or self._situation.cut():
            return []
        rulings, self._stop = self._stream.finish(self._current.name)
        return rulings

    # -- files -----------------------------------------------------------------------------------------------------

    def _reach(self, name: str | None) -> None:
        """Open logs up to this one (None = all), as `recover_remaining_wals` does."""
        if self._current is None and self._plan.snapshot is not None:
            self._loaded_vinyl = frozenset(self._catalog.vinyl)
            self._leave(self._plan.snapshot)
            self._check_snapshot(self._plan.snapshot)
        while self._stop is None and (self._current is None or self._current.name != name):
            if self._current is not None:
                self._leave(self._current)
            if self._stop is not None or not self._pending:
                return
            self._open(self._pending.pop(0))

    def _open(self, log: Candidate) -> None:
        """Open the next log: check that it continues the chain, and move the vclock to its start
        (`recovery_open_log`).
        """
        before, self._current = self._current, log
        previous = log.context.prev_vclock
        if before is None:
            gap = not below(log.vclock, self._clock)
        else:
            gap = previous is not None and not same(previous, before.vclock)
        if gap:
            text = f"Missing .xlog file between LSN {_position(self._clock)} and {_position(log.vclock)}"
            self._losses.told(log.name, text)
            if not self._force:
                self._stop = Stop(log.name, None, text)
                return
        if below(self._clock, log.vclock):
            if not gap and before is not None:
                self._losses.between(before, self._clock, log, self._plan.courses[before.name])
            self._clock = dict(log.vclock)

    def _leave(self, file: Candidate) -> None:
        """Close a file at its end: take over the server's messages, and the place where it stops."""
        course = self._plan.courses[file.name]
        self._losses.course(file, course)
        if course.stop is not None and self._stop is None:
            self._stop = Stop(file.name, *course.stop)

    def _check_snapshot(self, snapshot: Candidate) -> None:
        """Check the end of a snapshot. From 3.x on force_recovery does not help its system spaces, nor needs its end
        mark.
        """
        course = self._plan.courses[snapshot.name]
        lenient = self._force and self._plan.version.is_3
        if self._stop is None and lenient:
            limit = snapshot.file.size if self._user_rows is None else self._user_rows[1]
            early = next((one for one in course.complaints if one.offset < limit), None)
            self._stop = None if early is None else Stop(snapshot.name, *early)
        if self._stop is None and not course.closed:
            text = f"snapshot `{path_of(snapshot.name)}' has no EOF marker"
            if lenient:
                self._losses.told(snapshot.name, text, snapshot.file.size)
            else:
                self._stop = Stop(snapshot.name, snapshot.file.size, text)

    def _find_user_rows(self, name: str, records: Records) -> None:
        """Find the first row of users' spaces in the snapshot (`memtx_engine_recover_snapshot` of 3.x)."""
        spaces = [body.get("space_id") if body else None for body in records.bodies]
        for i, (kind, space) in enumerate(zip(records.envelope.type, spaces, strict=True)):
            if kind != "INSERT" or not isinstance(space, int) or space > LAST_SYSTEM_SPACE:
                self._user_rows = records.record[i], records.offset[i]
                if i == 0 and records.record[0] == 0 and self._plan.version.is_3:
                    self._stop = Stop(name, records.offset[0], "Snapshot has no system spaces")
                return

    def _check_vclock(self) -> None:
        """Compare the vclock with that of the newest log, which servers of 3.x scan first (`local_recovery`)."""
        log = self._plan.logs[-1] if self._plan.logs else None
        verdict = None if log is None else log.file.verdict
        facts = None if verdict is None else verdict.facts
        if self._stop is not None or self._force or not self._plan.version.is_3 or not isinstance(facts, LogFacts):
            return
        if log is None or facts.damaged or not below(self._plan.start, log.vclock):
            return
        if not same(facts.vclock, self._clock):
            scanned, read = (write_vclock(_stored(one)) for one in (facts.vclock, self._clock))
            text = f"Can't proceed. Replicaset vclock {scanned} doesn't match recovered data {read}."
            self._stop = Stop(log.name, None, text)

    def _check_secondary_keys(self) -> None:
        """Check the secondary indexes, which are built at the end (`memtx_engine_end_recovery`)."""
        if self._stop is None and self._model is not None and self._current is not None:
            text = self._model.finish()
            if text is not None:
                self._stop = Stop(self._current.name, None, text)

    def _check_registered(self) -> None:
        """Check that the instance is in `_cluster` (`box_cfg_xc`); one with replication_anon need not be."""
        snapshot = self._plan.snapshot
        if self._stop is not None or snapshot is None or not self._situation.whole:
            return
        own = (snapshot.context.instance or "").lower()
        if self._plan.version.is_3 and self._model is not None and self._model.schema_version is None:
            self._stop = Stop(snapshot.name, None, "the schema has no version: fatal error, exiting the event loop")
        elif own not in self._catalog.instances:
            registered = {0, *self._catalog.instances.values()}
            alone = "bad-header" not in self._plan.itinerary.passed.values()
            known = all(replica in registered for replica, lsn in self._clock.items() if lsn)
            self._anonymous = bool(own) and alone and known
            text = f"Replica {own} is not registered with replica set {self._catalog.replicaset}"
            if self._plan.version.is_3:
                text = "'replication_anon' cfg didn't work"
            if self._anonymous:
                text += ": an anonymous replica starts with replication_anon = true and read_only = true"
            self._stop = Stop(snapshot.name, None, text)

    # -- runs of rows that are all alike ---------------------------------------------------------------------------

    def _is_plain_snapshot(self, name: str, records: Records) -> bool:
        """Check that a run has only rows of known spaces, and none that defines a space."""
        insert = records.envelope.type.count("INSERT") == len(records)
        return insert and self._within(name, records) and self._are_simple(_spaces(records))

    def _is_plain_log(self, name: str, records: Records) -> bool:
        """Check that a run of a log is plain: one replica, each LSN the next one, nothing waits. Moves the vclock if
        so.
        """
        e, count = records.envelope, len(records)
        replica = e.origin[0] or 0
        after = self._clock.get(replica, 0) + 1
        plain = (
            not self._limbo
            and (self._stream is None or not (self._stream.is_open or records.extras))
            and e.seq == list(range(after, after + count))
            and e.origin.count(replica) == count
            and _WRITES.issuperset(e.type)
            and self._within(name, records)
            and self._are_simple(_spaces(records))
            and not _sync_flags(records)
        )
        if plain:
            self._clock[replica] = after + count - 1
        return plain

    def _within(self, name: str, records: Records) -> bool:
        """Check that the server reads all rows of a run."""
        limit = self._plan.courses[name].limit
        return limit is None or records.offset[-1] < limit

    def _are_simple(self, spaces: set[int | None]) -> bool:
        """Check that nothing depends on the rows of these spaces, and that they can be applied."""
        return all(space in self._simple or self._is_simple(space) for space in spaces)

    def _is_simple(self, space: int | None) -> bool:
        if space is None or self._model is not None or space in DEFINITIONS:
            return False
        if space == TRUNCATE and self._catalog.vinyl:
            return False
        if space in self._catalog.synchronous or (self._plan.snapshot and self._catalog.fault(space, {})):
            return False
        self._simple.add(space)
        return True

    # -- runs for compiled code (`quick`) ------------------------------------------------------------------

    @property
    def version(self) -> ServerVersion:
        """Version of the server that starts."""
        return self._plan.version

    @property
    def deleted(self) -> Mapping[tuple[int, int], Sequence[bytes]]:
        """Replica and LSN of each DELETE_RANGE -> the keys that it deleted."""
        return self._deleted

    @property
    def simple(self) -> Set[int]:
        """Spaces on whose rows nothing is known to depend."""
        return self._simple

    def expected(self, name: str, batch: Batch, start: int) -> Expected | None:
        """Describe the rows from `start` on that are applied without a check; None if each has to be checked."""
        plan_ = self._plan
        if self._stop is not None or plan_.itinerary.refusal is not None or self._limbo:
            return None
        if self._stream is not None and self._stream.is_open:
            return None
        if plan_.courses[name].limit is not None or (plan_.vylog is not None and name == plan_.vylog.name):
            return None
        if plan_.snapshot is not None and name == plan_.snapshot.name:
            return Expected(0, -1, _LOADED[1])
        replica = batch.records["replica_id"][start]
        after = self._clock.get(replica, 0) + 1
        opened = self._current is not None and self._current.name == name
        return Expected(replica, after, _NEW[1]) if opened and replica >= 0 and after < _MOST_LSN else None

    def ran(self, expected: Expected, count: int) -> None:
        """Note that `count` rows were as expected and are applied."""
        if expected.after >= 0:
            self._clock[expected.replica] = expected.after + count - 1

    # -- rows ------------------------------------------------------------------------------------------------------

    def _merged(self, decided: Iterator[Decided | None], name: str, first: int, records: Records) -> Iterator[Ruling]:
        """Merge one decision per row (None: later) into rulings, with those of the queue in the order of
        application.
        """
        limit = self._plan.courses[name].limit
        reached = len(records) if limit is None else bisect_left(records.offset, limit)
        last: Decided | None = None
        start = number = first
        for number, one in zip(range(first, first + reached), decided, strict=False):
            if one != last or self._limbo.released:
                if last is not None and start < number:
                    yield Ruling(start, number, *last)
                yield from self._limbo.take()
                start, last = number, one
            if self._stop is not None:
                break
        if last is not None and reached:
            yield Ruling(start, number + 1, *last)
        if self._stop is not None and number + 1 < first + reached:
            yield Ruling(number + 1, first + len(records), *_NOT_REACHED)
        elif reached < len(records) and (self._stop is not None or self._plan.courses[name].stop is not None):
            yield Ruling(first + reached, first + len(records), *_NOT_REACHED)
        if reached < len(records) and self._stop is None and self._plan.courses[name].stop is None:
            if records.offset[reached] >= self._verified_end(name):
                yield Ruling(first + reached, first + len(records), *_NOT_REACHED)
                return
            self._losses.unread(name, records, reached)
            yield Ruling(first + reached, first + len(records), SKIPPED, "behind-silent-end")

    def _transactions(self, stream: TransactionStream, name: str, first: int, records: Records) -> Iterator[Ruling]:
        """Rule on the rows of a log as a server does that applies whole transactions."""
        course = self._plan.courses[name]
        reached = len(records) if course.limit is None else bisect_left(records.offset, course.limit)
        yield from stream.rulings(name, first, records, reached)
        self._stop = stream.stop
        if reached < len(records) and self._stop is None:
            if course.stop is not None or records.offset[reached] >= self._verified_end(name):
                yield Ruling(first + reached, first + len(records), *_NOT_REACHED)
            else:
                self._losses.unread(name, records, reached)
                yield Ruling(first + reached, first + len(records), SKIPPED, "behind-silent-end")

    def _verified_end(self, name: str) -> int:
        """Return the end of the last good block when the file was verified; rows after it were written later."""
        tails = (file.tail for file in self._situation.files if file.name == name and file.tail is not None)
        return next((tail.end for tail in tails), 0)

    def _snapshot_rows(self, name: str, records: Records) -> Iterator[Decided]:
        catalog = self._catalog
        for i, (kind, body) in enumerate(zip(records.envelope.type, records.bodies, strict=True)):
            space = body.get("space_id") if body else None
            if self._in_system_rows and self._plan.version.is_3 and not self._is_system_row(kind, space):
                self._in_system_rows = False
            if kind == "INSERT":
                refused = self._refusal(name, records, i, snapshot=True)
                if space in DEFINITIONS and refused is None:
                    catalog.learn(space, kind, body)
                    self._simple.clear()
                yield refused or _LOADED
            elif kind in _IN_SNAPSHOT:
                if kind == "RAFT_PROMOTE":
                    self._limbo.owner = body.get("replica_id", 0) if body else 0
                yield _CONTROLS
            else:
                text = f"Unknown request type {_TYPE_NUMBERS.get(kind, kind)}"
                yield self._refused(name, records.offset[i], text, "not-an-insert")

    def _is_system_row(self, kind: str, space: int | None) -> bool:
        """Check for a row at the beginning of a snapshot, of which force_recovery skips none (3.x)."""
        return kind == "INSERT" and space is not None and space <= LAST_SYSTEM_SPACE

    def _log_rows(self, name: str, first: int, records: Records) -> Iterator[Decided | None]:
        """Yield one decision for each row; None for those that wait."""
        limbo = self._limbo
        e, flags = records.envelope, _sync_flags(records)
        rows = zip(e.type, e.seq, e.origin, records.bodies, strict=True)
        for i, (kind, lsn, replica, body) in enumerate(rows):
            lsn, replica = lsn or 0, replica or 0
            decided = self.moved(name, records, i, replica, signed(lsn))
            if decided is not None:
                yield decided
                continue
            if kind in _CONTROL:
                fault = self._control(kind, body)
                yield _CONTROLS if fault is None else self._refused(name, records.offset[i], fault, "refused-request")
                continue
            space = body.get("space_id") if body else None
            simple = space in self._simple or self._is_simple(space)
            mark = (0, 0) if self._model is None else self._model.mark()
            refused = None if simple else self._learned(name, records, i, space)
            if refused is not None:
                yield refused
                continue
            sync = (not simple and space in self._catalog.synchronous) or i in flags
            if sync or limbo:
                limbo.wait((first + i,), lsn, mark, sync=sync)
                yield None
            else:
                if self._model is not None:
                    self._model.settle()
                yield _NEW

    def _learned(self, name: str, records: Records, i: int, space: int | None) -> Decided | None:
        """Apply a row and learn its definition of a space; return the decision if the server refuses it, else None."""
        refused = self._refusal(name, records, i)
        if refused is not None:
            return refused
        self._note_vinyl(records.envelope.type[i], space)
        if space in DEFINITIONS:
            self._catalog.learn(space, records.envelope.type[i], records.bodies[i])
            self._simple.clear()
        return None

    def _unrecovered(self, name: str, offset: int, fault: Fault) -> Decided:
        """Refuse a row of `_index` whose index cannot be recovered: the file at fault is reported, not the row."""
        self._lost_index = fault
        return self._refused(name, offset, fault.why, "vinyl-index")

    def _note_vinyl(self, kind: str, space: int | None) -> None:
        """Note a row of a vinyl space: it is applied unless the runs have it."""
        vinyl = self._plan.vinyl
        if vinyl is not None and self._model is not None and space in self._catalog.vinyl and self._current is not None:
            vinyl.note_row(space or 0, sum(self._clock.values()), deletes=kind == "DELETE")

    def _opened(self, kind: str, body: Any) -> Fault | None:
        """Recover the indexes of vinyl that a row of `_index` or `_truncate` creates; return why that fails."""
        space = body.get("space_id") if body else None
        if space not in (INDEX, TRUNCATE):
            return None
        vinyl, row, key = self._plan.vinyl, body.get("tuple"), body.get("key")
        about = row if isinstance(row, list) and kind != "UPDATE" else key
        if vinyl is None or not isinstance(about, list) or not about or about[0] not in self._catalog.vinyl:
            return None
        snapshot = self._current is None
        indexes = about[1:2] if space == INDEX else vinyl.indexes_of(about[0])
        if space == INDEX and kind == "DELETE":
            vinyl.close(about[0], *indexes)
            return None
        signature = sum(self._clock.values())
        for index in indexes if kind != "UPDATE" else ():
            fault = vinyl.open(about[0], index, signature, from_snapshot=snapshot)
            if fault is not None:
                return fault
        return None

    def _refusal(self, name: str, records: Records, i: int, *, snapshot: bool = False) -> Decided | None:
        """Apply a row to the model; return the decision if the server refuses it, else None."""
        kind, body = records.envelope.type[i], records.bodies[i]
        lost = self._opened(kind, body)
        if lost is not None:
            return self._unrecovered(name, records.offset[i], lost)
        fault = self._fault(kind, body, snapshot=snapshot)
        return None if fault is None else self._refused(name, records.offset[i], fault, _reason_of(fault, body))

    def _fault(self, kind: str, body: Any, *, snapshot: bool = False) -> str | None:
        """Apply a row to the model; return the server's message if it refuses the row, else None."""
        if self._model is not None:
            return self._model.apply(kind, body, snapshot=snapshot)
        fault = request_fault(kind, body, self._plan.version)
        space = body.get("space_id") if body else None
        if fault is None and space is not None and self._plan.snapshot is not None:
            fault = self._catalog.fault(space, body)
        return fault

    def _refused(self, name: str, offset: int, text: str, reason: str) -> Decided:
        """Refuse a row that the server cannot apply: it gives up, or skips the row (force_recovery)."""
        self._stop = self.refused(name, offset, text)
        return REJECTED, reason

    def _control(self, kind: str, body: Any, origin: int | None = None) -> str | None:
        """Apply a row without data; return the server's message if it refuses the row, else None.

        Args:
            origin: replica of the row; None = servers before 3.x.
        """
        fault = synchro_fault(kind, body) if kind in SYNCHRO or (kind == "RAFT" and origin is not None) else None
        if fault is not None:
            return fault
        lsn = body.get("lsn", 0 if origin is not None else None) if isinstance(body, dict) else None
        owned = origin is None or kind not in ("CONFIRM", "ROLLBACK") or body.get("replica_id", 0) == self._limbo.owner
        if isinstance(lsn, int) and owned:
            if kind in CONFIRMS:
                self._limbo.confirm(lsn)
            if kind in ROLLS_BACK:
                mark = self._limbo.roll_back(lsn + (kind not in _ONLY_ROLLS_BACK))
                if mark is not None and self._model is not None:
                    self._model.undo(mark)
        if origin is not None and kind in ("RAFT_PROMOTE", "RAFT_DEMOTE"):
            self._limbo.owner = origin if kind == "RAFT_PROMOTE" else 0
        if not self._limbo and self._model is not None and not (self._stream is not None and self._stream.is_open):
            self._model.settle()
        return None

    # -- interface for transactions (`transactions.RowApplier`)
    # -------------------------------------------------------------

    def moved(self, name: str, records: Records, i: int, replica: int, lsn: int) -> Decided | None:
        """Move the vclock to a row; return the decision if the vclock is there already, else None."""
        current = self._clock.get(replica, 0)
        if lsn <= current:
            return self._losses.passed(name, records, i, replica, lsn) or _OLD
        if lsn > current + 1:
            self._losses.gap(replica, current + 1, lsn - 1)
        self._clock[replica] = lsn
        return None

    def applied(self, row: Row) -> tuple[str, str] | None:
        """Apply a row of a transaction; return the server's message and the reason if it refuses the row, else None."""
        space = row.body.get("space_id") if row.body else None
        if space in self._simple or self._is_simple(space):
            return None
        self._lost_index = self._opened(row.kind, row.body)
        if self._lost_index is not None:
            return self._lost_index.why, "vinyl-index"
        fault = self._fault(row.kind, row.body)
        if fault is not None:
            return fault, _reason_of(fault, row.body)
        self._note_vinyl(row.kind, space)
        if row.kind == "DELETE_RANGE" and self._model is not None and not self._model.store.full:
            self._deleted[row.replica, row.lsn] = self._model.deleted
        if space in DEFINITIONS:
            self._catalog.learn(space, row.kind, row.body)
            self._simple.clear()
        return None

    def controlled(self, row: Row) -> str | None:
        """Apply a row without data; return the server's message if it refuses the row, else None."""
        return self._control(row.kind, row.body, row.replica if self._plan.version.is_3 else None)

    def committed(self, rows: Sequence[Row], mark: tuple[int, int]) -> str | Decided | None:
        """Commit a transaction: return the decision about its rows, None if they wait for a CONFIRM, or the server's
        message.
        """
        if sum(self._clock.values()) >= 1 << 63:  # the signature is negative: the server takes that for a failed write
            self.undo(mark)
            return REJECTED, "transaction-dropped"
        wait, sync = waits(rows)
        if not self._plan.version.is_3:
            spaces = {row.body.get("space_id") for row in rows if row.body}
            sync = sync or wait or not self._catalog.synchronous.isdisjoint(spaces)
            wait = sync or bool(self._limbo)
        elif wait:
            fault = self._owner_fault(rows)
            if fault is not None:
                return fault
        if not wait:
            if self._model is not None and not self._limbo:
                self._model.settle()
            return _NEW
        lsn = max((row.lsn for row in rows if row.replica), default=rows[-1].lsn)
        self._limbo.wait((row.number for row in rows if not row.done), lsn, mark, sync=sync)
        return None

    def _owner_fault(self, rows: Sequence[Row]) -> str | None:
        """Check that the queue belongs to the origin of a transaction that waits in it (`txn_limbo_queue_submit`)."""
        owner, origin = self._limbo.owner, next((row.replica for row in rows if row.replica), 0)
        if not owner:
            return "The synchronous transaction queue doesn't belong to any instance"
        if origin not in (0, owner):
            found = "Found uncommitted sync transactions from other instance with id"
            foreign = "The synchronous transaction queue belongs to other instance with id"
            return f"{found if self._limbo else foreign} {owner}"
        return None

    def own_id(self) -> int:
        """Return the id of this instance; 0 if it is not registered."""
        snapshot = self._plan.snapshot
        own = None if snapshot is None else snapshot.context.instance
        return self._catalog.instances.get((own or "").lower(), 0)

    def mark(self) -> tuple[int, int]:
        """Return a savepoint of the state before a row."""
        return (0, 0) if self._model is None else self._model.mark()

    def undo(self, mark: tuple[int, int]) -> None:
        """Roll the state back to a savepoint."""
        if self._model is not None:
            self._model.undo(mark)

    def refused(self, name: str, offset: int, text: str) -> Stop | None:
        """Report a refused row: return where the server stops, or None if it continues (force_recovery)."""
        in_system_rows = self._in_system_rows and self._plan.version.is_3 and self._current is None
        crashes = self._model is not None and self._model.crashes
        if self._force and not in_system_rows and not crashes:
            self._losses.told(name, text, offset)
            self._lost_index = None
            return None
        lost = self._lost_index
        return Stop(name, offset, text) if lost is None else Stop(lost.file or name, lost.offset, text)

    def released(self) -> list[Ruling]:
        """Return the rulings on rows that no longer wait for a CONFIRM."""
        return self._limbo.take()

    # -- the end ---------------------------------------------------------------------------------------------------

    def _outcome(self) -> Outcome:
        plan_, stop = self._plan, self._plan.itinerary.refusal or self._stop
        doubts = self._undetermined() if stop is None else []
        decided = self._situation.whole and self._decides() and not self._anonymous and not doubts
        starts = stop is None if decided else None
        vclock = {} if plan_.bootstraps else {str(r): lsn for r, lsn in sorted(self._clock.items()) if lsn}
        found = [*self._losses.findings(), *self._forgotten()]
        if stop is None and plan_.vinyl is not None and not plan_.bootstraps:
            found += plan_.vinyl.losses({space: self._catalog.name(space) for space in self._catalog.vinyl})
        details: dict[str, Any] = {"snapshot": None if plan_.snapshot is None else plan_.snapshot.name}
        if steps := remedies(stop, self._situation):
            details["startup"] = {"remedy": steps}
        if self._losses.said:
            details["server_says"] = self._losses.said
        if self._losses.partly:
            details["rows_not_counted"] = self._losses.partly
        if not_checked := self._not_checked() | self._files_not_checked():
            details["not_checked"] = not_checked
        if stop is None and (doubts or not_checked):
            details["startup"] = {"not_checked": doubts or [f"not checked: {_listed(not_checked)}"]}
        if self._catalog.vinyl:
            details["vinyl"] = sorted(map(self._catalog.name, self._catalog.vinyl))
        verdict = None if plan_.vylog is None else plan_.vylog.file.verdict
        unknown = untold(self._catalog, self._loaded_vinyl or (), None if verdict is None else verdict.facts)
        if self._model is not None and plan_.snapshot is not None:
            for space, index in sorted(self._model.duplicates.items()):
                text = f"a key is twice in the unique index '{index}' of {space}: the server builds it without a check"
                found.append((plan_.snapshot.name, finding("silent-loss", None, 0, text, severity=Severity.WARNING)))
            for space in sorted(self._model.unordered):
                unknown = {**unknown, space: "its rows are not in the order of their keys in the snapshot"}
                text = f"rows of {space} are not in the order of their keys: the server finds only a part of them"
                found.append((plan_.snapshot.name, finding("silent-loss", None, 0, text)))
        return Outcome(starts, stop, {"vclock": vclock}, tuple(found), details, unknown)

    def _undetermined(self) -> list[str]:
        """Explain why no rule determines whether the server starts; [] if one does."""
        vinyl = self._plan.vinyl
        return [] if vinyl is None or vinyl.undetermined is None else [vinyl.undetermined]

    def _not_checked(self) -> dict[str, str]:
        """List checks of rows that were not made and could stop the server: place -> why."""
        if self._model is None:
            known = self._plan.snapshot is not None and self._situation.whole
            return {"rows against formats and keys": "too many rows"} if known else {}
        doubts = dict(sorted(self._model.doubts.found.items()))
        if self._model.store.full:
            doubts["duplicate keys"] = "more rows than --max-memory"
        return doubts

    def _files_not_checked(self) -> dict[str, str]:
        """List files that were not checked and could stop the server: place -> why."""
        plan_ = self._plan
        vinyl = None if plan_.vinyl is None or not self._catalog.vinyl else plan_.vinyl.unchecked
        found = {} if vinyl is None else {"indexes of vinyl": vinyl}
        beside, snapshot = self._situation.beside, plan_.snapshot
        if beside is not None and snapshot is not None and plan_.version.is_3:
            name = snapshot.name.removesuffix(".snap") + ".sortdata"
            if beside(name) is not None:
                found[name] = "read only with memtx_use_sort_data = true; it may be deleted"
        return found

    def _decides(self) -> bool:
        """Check that these files determine whether a server starts."""
        plan_ = self._plan
        return bool(plan_.snapshot or plan_.bootstraps or plan_.itinerary.refusal or self._situation.against)

    def _forgotten(self) -> Iterator[tuple[str, Finding]]:
        """Report the logs beside which the server creates a new instance."""
        if self._plan.bootstraps:
            logs = [file for file in self._situation.files if file.name in self._plan.itinerary.passed and file.records]
            text = "no snapshot in this directory: the server makes a new, empty instance, and reads none of these rows"
            for file in logs:
                yield file.name, finding("silent-loss", None, 0, text, records=file.records)


def _reason_of(fault: str, body: Any) -> str:
    """Return the replay reason for the server's message about a row."""
    if fault.startswith("Space '") and fault.endswith("does not exist"):
        return "no-such-space"
    if fault.startswith("No index #"):
        return "no-such-index"
    if fault.startswith("Missing mandatory field"):
        return "refused-request"
    space = body.get("space_id", 0) if isinstance(body, Mapping) else 0
    return "refused-definition" if space in DEFINITIONS else "refused-row"


def _listed(not_checked: Mapping[str, str]) -> str:
    """Format the unchecked items as one line."""
    texts = [f"{place} ({why})" for place, why in not_checked.items()]
    more = [f"{len(texts) - _MOST_LISTED} more"] if len(texts) > _MOST_LISTED else []
    return ", ".join(texts[:_MOST_LISTED] + more)


def _position(vclock: Mapping[int, int]) -> str:
    """Format a vclock as the server prints it: the sum, then the components."""
    stored = _stored(vclock)
    return f"{sum(stored.values())} {write_vclock(stored)}"


def _stored(vclock: Mapping[int, int]) -> dict[int, int]:
    return {replica: lsn for replica, lsn in sorted(vclock.items()) if lsn}


def _spaces(records: Records) -> set[int | None]:
    return {body.get("space_id") if body else None for body in records.bodies}


def _sync_flags(records: Records) -> frozenset[int]:
    """Return the positions of rows whose header marks their transaction as synchronous (2.11 and newer)."""
    extras = records.extras or ()
    return frozenset(i for i, one in enumerate(extras) if one and one["flags"] & _SYNC_FLAGS)


# -- positions ---------------------------------------------------------------------------------------------------------
