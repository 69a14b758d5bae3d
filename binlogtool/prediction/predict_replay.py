"""Predict what the server of each log does with its records, with the results as values."""

from __future__ import annotations

import io
import os
import pickle
import zlib
from bisect import bisect_right
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import cached_property, partial
from itertools import chain
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, NamedTuple

import msgspec
from msgspec.structs import replace

from binlogtool import limits
from binlogtool.core import notify_progress_listener
from binlogtool.core.decode_batches import CompiledBodyDecoder
from binlogtool.core.open_file import find_format
from binlogtool.core.open_log import LogReader
from binlogtool.core.record_and_selection_types import FileFinding, RecordBlock, is_gtid_position, is_sequence_position
from binlogtool.core.record_filter import RecordRange, choose_python_record_count
from binlogtool.core.resolve_paths import LogGroup, NoLogFoundError, find_newest_files, unpack_compressed_members
from binlogtool.errors import InputOutputError, LimitError, UnknownFormatError, UsageError
from binlogtool.findings import ENCRYPTED, Finding, Severity, raise_if_limit
from binlogtool.format_api.replay_rules import (
    APPLIED,
    LIMIT,
    NOT_REACHED,
    SKIPPED,
    UNTIL,
    VERBS,
    BatchOutcome,
    CompiledReplay,
    EffectReader,
    ReadPlan,
    RecordOutcome,
    Replayer,
    ReplayOutcome,
    ReplayRules,
    ReplayStop,
    join_adjacent_outcomes,
)
from binlogtool.prediction.replay_options import (
    TIME_LIMIT_TEXT,
    MakeChangeSink,
    ReplayClock,
    ReplayOptions,
    assign_end_position_to_logs,
    build_situation,
    get_log_format,
    get_replay_rules,
    select_records_before,
)
from binlogtool.prediction.row_store import MODULUS, OTHERS, CompiledRowStore, ObjectState, ReplayState
from binlogtool.schema import backends
from binlogtool.verification.verify_logs import (
    LogExamination,
    LogVerifyOptions,
    examine_log,
    group_named_files,
    resolve_path_with_compressed,
)

if TYPE_CHECKING:
    from binlogtool.format_api.format import Format
    from binlogtool.format_api.layout import Kernel
    from binlogtool.limits import Limits

# --- Results of `replay-dry-run` (JSON shape binlogtool/replay/1) ---

SCHEMA = "binlogtool/replay/1"
_BYTES_PER_OBJECT = 1000


class ReplayDecision(NamedTuple):
    """Decision on one record.

    Attributes:
        file: Path of the record's file.
        verb: applied, skipped or rejected.
        reason: A key of `ReplayResult.rules`.

    The other members are those that `dump` shows.
    """

    file: str
    record: int
    offset: int
    size: int
    type: str
    seq: int | None
    time: int | None
    object: str | None
    txn: str | int | None
    verb: str
    reason: str


def make_decision(block: RecordBlock, index: int, verb: str, reason: str) -> ReplayDecision:
    """Return the decision on one record of a block."""
    envelope = block.envelope
    return ReplayDecision(
        block.file, block.record[index], block.offset[index], block.size[index], envelope.type[index],
        envelope.seq[index], envelope.time[index], envelope.object[index],
        envelope.txn[index], verb, reason,
    )  # fmt: skip


OnDecision = Callable[[ReplayDecision], None]


class ObjectTally(msgspec.Struct):
    """Numbers of the records of one object, by verb.

    Attributes:
        first_seq, last_seq: First and last sequence number of the applied records.
        keys, digest: Number of the live rows at the end, and their digest.
    """

    name: str
    counts: dict[str, int] = msgspec.field(default_factory=lambda: dict.fromkeys(VERBS, 0))
    first_seq: int | None = None
    last_seq: int | None = None
    keys: int | None = None
    digest: str | None = None


class ReplayResult(msgspec.Struct, frozen=True):
    """Result of the replay of one log (JSON shape binlogtool/replay/1).

    Attributes:
        starts: True if the server starts; None if that cannot be determined from this log.
        decisions, reasons: Verb, and reason -> number of records.
        stop: Where the server stops; None if it does not.
        position: The last applied position, as `--against` reads it.
        digest: 64 hexadecimal digits; None if the format has no state.
        read: Paths, in the order in which the server reads them.
        findings: (path, finding) pairs, those of `verify` first.
        rules: Reason -> text of the rule.
        details: What policy `force` does in this format, and what else the format reports.
        unknown: Objects whose rows are not all in the log -> why; their keys and digest, and the digest of the whole
            state, are None.
    """

    path: str
    format: str
    policy: str
    starts: bool | None
    decisions: Mapping[str, int]
    reasons: Mapping[str, int]
    objects: tuple[ObjectTally, ...]
    stop: ReplayStop | None
    position: Mapping[str, Any]
    digest: str | None
    read: tuple[str, ...]
    findings: tuple[tuple[str, Finding], ...]
    rules: Mapping[str, str]
    details: Mapping[str, Any]
    unknown: Mapping[str, str] = msgspec.field(default_factory=lambda: MappingProxyType({}))

    @property
    def is_encrypted(self) -> bool:
        """True if a file is encrypted and its key was not given; then its effects are unknown."""
        return any(found.id == ENCRYPTED for _, found in self.findings)

    @property
    def incomplete_reason(self) -> str | None:
        """Limit that ended the replay early; all other members are about the part before it. None = complete."""
        why: str | None = self.details.get("incomplete")
        return why

    @property
    def is_clean(self) -> bool:
        """True if every record (in an incomplete replay, every record that was reached) takes effect as it should."""
        has_errors = any(found.severity is Severity.ERROR for _, found in self.findings)
        return not has_errors and self.stop is None and self.starts is not False and not self.decisions["rejected"]


def max_objects(limits: Limits) -> int:
    """Return the maximum number of objects that are listed one by one."""
    return limits.max_memory // _BYTES_PER_OBJECT


def add_final_object_states(
    result: ReplayResult, state: Mapping[str, ObjectState], spilled_entries: int, max_listed: int
) -> ReplayResult:
    """Return the result with the final state of the objects.

    Args:
        spilled_entries: Number of entries that were written to temporary files.
        max_listed: Maximum number of objects that are listed one by one.
    """
    tallies, sums = {tally.name: tally for tally in result.objects}, dict[str, ObjectState]()
    for name, object_state in state.items():
        name = name if name in tallies or len(tallies) < max_listed else OTHERS
        tallies.setdefault(name, ObjectTally(name))
        sums.setdefault(name, ObjectState()).add_row_hash(object_state.total, 1, object_state.keys)
    for name, object_state in sums.items():
        if name not in result.unknown:
            tallies[name].keys, tallies[name].digest = object_state.keys, object_state.digest
    for name in result.unknown:
        tallies.setdefault(name, ObjectTally(name))
    digest = sum(one.total for one in state.values()) % MODULUS
    details = {**result.details, **({"keys_spilled": spilled_entries} if spilled_entries else {})}
    objects = tuple(tallies[name] for name in sorted(tallies))
    whole = None if result.unknown else f"{digest:064x}"
    return replace(result, objects=objects, digest=whole, details=details)


# --- Records that are decided later ---

_BYTES_PER_RECORD = 1000
"""Approximate memory of an undecided record in addition to its content, in bytes."""


class _WaitingBlock(msgspec.Struct):
    """Block with records that wait for their decision.

    Attributes:
        first: Number of its first record.
        pending: A byte per record, 1 for those that wait.
        count: Number of records that wait.
        cost: Approximate bytes of the block in memory.
        packed: The compressed block; None = not compressed yet.
    """

    first: int
    pending: bytearray
    count: int
    cost: int
    block: RecordBlock | None
    packed: bytes | None = None


class UndecidedRecords(msgspec.Struct):
    """Records that are not decided yet, by record number.

    Blocks of long transactions that would take more than `max_unpacked` bytes are compressed until they are decided.

    Attributes:
        bytes: Approximate memory of the records and of the blocks that hold them.
        count: Number of records.
    """

    max_unpacked: int
    bytes: int = 0
    count: int = 0
    _blocks: list[_WaitingBlock] = msgspec.field(default_factory=list)
    _firsts: list[int] = msgspec.field(default_factory=list)
    _unpacked: int = 0

    def add_undecided(self, first_number: int, block: RecordBlock, decided_mask: bytearray) -> None:
        """Add the records of a block that have no 1 in `decided_mask`; `first_number` is the number of its first
        record. Blocks must come in order.
        """
        pending = bytearray(0 if done else 1 for done in decided_mask)
        cost = _BYTES_PER_RECORD * len(block) + _estimate_content_cost(block)
        self._blocks.append(_WaitingBlock(first_number, pending, sum(pending), cost, block))
        self._firsts.append(first_number)
        self.count += self._blocks[-1].count
        self._add_cost(cost)
        if self._unpacked > self.max_unpacked:
            for waiting_block in self._blocks:
                self._compress_block(waiting_block)

    def remove_record(self, record_number: int) -> tuple[RecordBlock, int]:
        """Remove a record; return its block and its index in the block."""
        position = bisect_right(self._firsts, record_number) - 1
        waiting_block = self._blocks[position]
        index = record_number - waiting_block.first
        block = waiting_block.block or self._decompress_block(waiting_block)
        waiting_block.pending[index] = 0
        waiting_block.count -= 1
        self.count -= 1
        if not waiting_block.count:
            self._add_cost(-waiting_block.cost)
            self.bytes -= len(waiting_block.packed or b"")
            del self._blocks[position], self._firsts[position]
        return block, index

    def iter_numbers(self) -> Iterator[int]:
        """Yield the numbers of the waiting records, in order; records must not be removed meanwhile."""
        for waiting_block in self._blocks:
            yield from (waiting_block.first + i for i, waits in enumerate(waiting_block.pending) if waits)

    def _add_cost(self, cost: int) -> None:
        self._unpacked += cost
        self.bytes += cost

    def _compress_block(self, waiting_block: _WaitingBlock) -> None:
        if waiting_block.block is None:
            return
        if waiting_block.packed is None:
            waiting_block.packed = _pickle_and_compress_block(waiting_block.block)
            self.bytes += len(waiting_block.packed)
        waiting_block.block = None
        self._add_cost(-waiting_block.cost)

    def _decompress_block(self, waiting_block: _WaitingBlock) -> RecordBlock:
        if self._unpacked + waiting_block.cost > self.max_unpacked:
            for other in self._blocks:
                self._compress_block(other)
        assert waiting_block.packed is not None
        block: RecordBlock = pickle.loads(zlib.decompress(waiting_block.packed))
        waiting_block.block = block
        self._add_cost(waiting_block.cost)
        return block


def _estimate_content_cost(block: RecordBlock) -> int:
    """Estimate the memory of a block's content in bytes; records of a packed frame count with their unpacked size."""
    sizes = zip(block.size, block.inner, strict=True)
    return 4 * sum(size if inner is None else inner.size for size, inner in sizes)


class _Pickler(pickle.Pickler):
    dispatch_table = {MappingProxyType: lambda mapping: (MappingProxyType, (dict(mapping),))}


def _pickle_and_compress_block(block: RecordBlock) -> bytes:
    plain = io.BytesIO()
    _Pickler(plain, pickle.HIGHEST_PROTOCOL).dump(block)
    return zlib.compress(plain.getbuffer(), 1)


# --- Replay by compiled code ---

MIN_STORE_MEMORY = 1 << 20
"""Minimum memory, in bytes, for a row store of compiled code."""

_MIN_RULED_RUN, _MIN_KEPT_RUN = 32, 8
"""Minimum records of a compiled run that make up for the switch: for record outcomes, and for storing rows only."""

OnCompiledRun = Callable[[str, BatchOutcome, int], None]
"""Callback for compiled runs: (file name, compiled run, number of its records)."""


class CompiledReplayRunner(msgspec.Struct):
    """Runner of a format's compiled replay kernels over record ranges.

    Attributes:
        rows: The row store; None if the state is not requested.
    """

    compiled_replay: CompiledReplay
    compiled: Callable[[Kernel], Kernel]
    state: ReplayState
    rows: CompiledRowStore | None
    _ruling: int = 1
    _keeping: int = 1

    def replay_range(
        self, record_range: RecordRange, file_name: str, on_compiled_run: OnCompiledRun
    ) -> Iterator[RecordBlock]:
        """Replay a range of records; yield, in order, the blocks whose decisions Python must make."""
        position, stop, context = record_range.start, record_range.stop, record_range.decoder.layout.context
        while position < stop:
            compiled_run = self.compiled_replay.decide_batch(
                file_name, context, record_range.batch, position, stop, self.compiled
            )
            reached = position if compiled_run is None else compiled_run.stop
            if compiled_run is not None:
                on_compiled_run(file_name, compiled_run, reached - position)
                self._store_changed_rows(record_range, position, reached)
            if reached < stop:
                self._ruling = choose_python_record_count(self._ruling, reached - position, _MIN_RULED_RUN)
                batch_end = min(reached + self._ruling, stop)
                yield from record_range.decode_blocks(reached, batch_end)
                reached = batch_end
            position = reached

    def _store_changed_rows(self, record_range: RecordRange, position: int, stop: int) -> None:
        if self.rows is None:
            return
        while position < stop:
            reached = self.compiled_replay.store_changes_until_unsupported(
                self.rows, record_range.batch, position, stop
            )
            if reached < stop:
                self._keeping = choose_python_record_count(self._keeping, reached - position, _MIN_KEPT_RUN)
                batch_end = min(reached + self._keeping, stop)
                context = record_range.decoder.layout.context
                self.state.apply_changes(
                    self.compiled_replay.decode_changes(context, record_range.batch, reached, batch_end)
                )
                reached = batch_end
            position = reached


def make_compiled_replay_runner(
    compiled_replay: CompiledReplay, backend: str, effects: EffectReader | None, state: ReplayState
) -> CompiledReplayRunner | None:
    """Create the runner of a compiled replay; None if there is no compiled code for this machine."""
    chosen_backend = backends.choose_backend(backend)
    if chosen_backend.name != "native":
        return None
    rows = None if effects is None else state.get_compiled_row_store(chosen_backend.compile_kernel)
    return CompiledReplayRunner(compiled_replay, chosen_backend.compile_kernel, state, rows)


# --- Prediction for one log ---

_UNPACKED_DIVISOR = 16
"""Undecided records are packed when they take more than 1/_UNPACKED_DIVISOR of --max-memory."""

LogVerifier = Callable[[LogGroup, LogVerifyOptions], LogExamination]


def replay_paths(
    paths: Iterable[str | os.PathLike[str]],
    format: str,
    options: ReplayOptions,
    on_decision: OnDecision | None = None,
) -> list[ReplayResult]:
    """Predict the replay of each log below the paths, with the parameters of `binlogtool.replay`."""
    logs = list(_resolve_paths([os.fspath(path) for path in paths], format))
    plain_logs = [replace(group, compressed={}) for group in logs]
    return [
        replay_log_with_unpacked_files(group, replace(options, until=until), on_decision)
        for group, until in zip(logs, assign_end_position_to_logs(options.until, plain_logs), strict=True)
    ]


def _resolve_paths(paths: Sequence[str], format: str) -> Iterator[LogGroup]:
    """Yield the logs that the paths name, with their compressed files; several files of one log are one log."""
    for unit in group_named_files(paths, format):
        if isinstance(unit, LogGroup):
            yield from [unit] if _has_common_stem(unit) else map(partial(_make_single_log, unit), unit.names)
            continue
        _require_rereadable(unit)
        try:
            resolved = resolve_path_with_compressed(unit, format)
        except NoLogFoundError:
            if not _is_empty_log(unit, format):
                raise
            yield LogGroup(unit, find_format(format), (), True)
            continue
        notify_progress_listener.report_skipped_files(unit, resolved.skipped)
        yield from map(_drop_archived_files, resolved.groups)


def _is_empty_log(path: str, format: str) -> bool:
    """Return True if the named format's server starts with this directory, which has nothing but its lock files."""
    if format == "auto" or not os.path.isdir(path):
        return False
    named_format = find_format(format)
    starts = named_format.replay is not None and named_format.replay.starts_without_files
    return starts and set(os.listdir(path)) <= {lock.name for lock in named_format.repair.locks}


def _has_common_stem(group: LogGroup) -> bool:
    """Return True if at least two files have names of the same log."""
    assert group.format is not None
    stems = {group.format.files.name_stem(os.path.basename(name)) for name in group.names}
    return len(stems) < len(group.names)


def _make_single_log(group: LogGroup, name: str) -> LogGroup:
    """Return one file of a directory as a log of its own."""
    path = group.member_path(name)
    return LogGroup(path, group.format, (path,), False)


def _drop_archived_files(group: LogGroup) -> LogGroup:
    """Return the log as a server in its directory reads it: without compressed files older than a plain one."""
    plain = tuple(name for name in group.names if name not in group.compressed)
    if group.format is None or not any(
        _is_newer_than_compressed_files(name, group, group.format.files.name_stem) for name in plain
    ):
        return group
    count = len(group.compressed)
    text = f"{count:,} compressed files are not read" if count != 1 else "1 compressed file is not read"
    notify_progress_listener.report_note(
        f"{group.path}: {text}, as by a server; unpack the files, or name them, to include them"
    )
    return replace(group, names=plain, compressed={})


def _is_newer_than_compressed_files(name: str, group: LogGroup, name_stem: Callable[[str], str | None]) -> bool:
    """Return True if a plain file is newer than all compressed ones of its log: a server may be writing to it."""
    older = [one for one in group.compressed if one != name]
    if any(name == name_stem(one) for one in older):
        return True
    newest_by_kind = find_newest_files([name, *older])
    others = find_newest_files(older)
    return any(newest == name and kind in others for kind, (_, newest) in newest_by_kind.items())


def replay_log_with_unpacked_files(
    group: LogGroup,
    options: ReplayOptions,
    on_decision: OnDecision | None = None,
    make_change_sink: MakeChangeSink | None = None,
) -> ReplayResult:
    """Replay one log with the parameters of `replay_log`; read its compressed files from a temporary directory.

    Raises:
        InputOutputError: a compressed file is cut or damaged.
    """
    with unpack_compressed_members(group) as unpacked:
        if unpacked.damaged:
            name, failure = next(iter(unpacked.damaged.items()))
            raise InputOutputError(f"{group.member_path(name)}: {failure}")
        restore = unpacked.restore_path
        restored_decision = on_decision and (lambda one: on_decision(one._replace(file=restore(one.file))))
        try:
            result = replay_log(unpacked.group, options, restored_decision, make_change_sink)
        except UnknownFormatError as error:
            raise UnknownFormatError(unpacked.restore_paths_in_message(str(error))) from None
    return replace(
        result,
        path=restore(result.path),
        stop=None if result.stop is None else result.stop._replace(file=restore(result.stop.file)),
        read=tuple(map(restore, result.read)),
        findings=tuple((restore(path), found) for path, found in result.findings),
    )


def replay_log(
    group: LogGroup,
    options: ReplayOptions,
    on_decision: OnDecision | None = None,
    make_change_sink: MakeChangeSink | None = None,
    verify: LogVerifier = examine_log,
) -> ReplayResult:
    """Replay one log.

    Args:
        make_change_sink: Creates the receiver of the changes; the result then contains no state.
        verify: Function that verifies the whole log first.
    """
    return _LogReplay(group, options, on_decision, make_change_sink, verify).run()


def find_logs_to_replay(path: str, format: str) -> list[LogGroup]:
    """Return the logs that a path names, with their compressed files.

    Raises:
        UsageError, UnknownFormatError, InputOutputError.
    """
    return list(_resolve_paths([path], format))


def _require_rereadable(path: str) -> None:
    if path == "-":
        raise UsageError("replay-dry-run needs files, not standard input: the whole log is verified first")


class _LogReplay:
    """A replay of one log."""

    def __init__(
        self,
        group: LogGroup,
        options: ReplayOptions,
        on_decision: OnDecision | None,
        make_change_sink: MakeChangeSink | None,
        verify: LogVerifier,
    ) -> None:
        self._group = group
        self._options = options
        self._on_decision = on_decision
        self._clock = ReplayClock(options.limits)
        examination = verify(
            group, LogVerifyOptions(limits=self._clock.verify_limits, backend=options.backend, hints=options.hints)
        )
        for report in (one.report for one in examination.files):
            for finding in report.findings:
                raise_if_limit(report.path, finding)
        self._verify_stop = self._clock.find_verify_stop(examination)
        self._format = get_log_format(group, examination)
        self._rules = get_replay_rules(self._format)
        self._situation = build_situation(group, examination, options, self._rules, self._is_reading_cut_by_until)
        del examination  # it has a report on every file, and there may be very many
        self._replayer: Replayer = self._rules.begin(self._situation)
        self._undecided_records = UndecidedRecords(options.limits.max_memory // _UNPACKED_DIVISOR)
        self._files: tuple[str, ...] = ()
        self._record_counts: list[int] = []
        self._complete_files = 0
        self._records_fed = 0
        self._last_record = ("", 0)
        self._records_reached: Counter[str] = Counter()
        self._decisions: Counter[str] = Counter()
        self._reasons: Counter[str] = Counter()
        self._objects: dict[str, ObjectTally] = {}
        self._max_objects = max_objects(options.limits)
        self._effects = self._rules.effects() if self._rules.effects is not None and options.digest else None
        if self._effects is not None:
            self._effects.attach_replayer(self._replayer)
        self._state = ReplayState(options.limits.max_memory, self._rules.patch)
        self._apply_changes = (
            self._state.apply_changes if make_change_sink is None else make_change_sink(self._rules.patch)
        )
        self._has_state = self._effects is not None and make_change_sink is None
        self._stop: ReplayStop | None = None
        self._compiled_replay = self._make_compiled_runner(make_change_sink)

    def _make_compiled_runner(self, make_change_sink: MakeChangeSink | None) -> CompiledReplayRunner | None:
        """Return the runner of compiled code, which handles most records.

        None if there is a listener for decisions, or if the replay may end between two records.
        """
        make_kernels, options = self._rules.compiled, self._options
        may_end_early = options.until is not None or options.policy == "strict" or self._verify_stop is not None
        state_is_local = self._effects is None or (
            make_change_sink is None and options.limits.max_memory >= MIN_STORE_MEMORY
        )
        if make_kernels is None or may_end_early or not state_is_local or self._on_decision is not None:
            return None
        return make_compiled_replay_runner(
            make_kernels(self._replayer, self._effects, options.limits), options.backend, self._effects, self._state
        )

    def run(self) -> ReplayResult:
        """Run the replay; return its result."""
        try:
            with limits.relax_gc_temporarily():
                return self._replay_records()
        finally:
            self._state.close()

    def _replay_records(self) -> ReplayResult:
        itinerary = self._replayer.plan_reads()
        self._stop, self._files = itinerary.refusal, itinerary.read
        self._read_and_replay_files(itinerary.base)
        record_outcomes, outcome = self._replayer.finish()
        for record_outcome in record_outcomes:
            self._decide_waiting(record_outcome)
        self._stop = self._stop or outcome.stop
        self._skip_records_without_outcome(itinerary)
        return self._make_result(itinerary, outcome)

    # -- reading ---------------------------------------------------------------------------------------------------

    def _read_and_replay_files(self, snapshot_names: frozenset[str]) -> None:
        """Read the files of the read plan in order up to `--until`, the time limit or the first error, and replay
        their records.
        """
        members = {file.name: file for file in self._situation.files}
        self._record_counts = [members[name].records for name in self._files]
        end = self._find_first_error_stop() if self._options.policy == "strict" else self._verify_stop
        format_ = self._format
        if self._rules.decode_extras is not None:
            format_ = replace(format_, output=replace(format_.output, decode_extras=self._rules.decode_extras))
        paths: list[tuple[str, str, Format | None]] = [(members[name].path, name, format_) for name in self._files]
        by_path = {path: name for path, name, _ in paths}
        if not paths:
            return
        hints = replace(self._options.hints, level=self._rules.level or self._options.hints.level, as_stored=True)
        log = LogReader(paths, self._clock.read_limits, self._options.backend, hints)
        log.checks_links = False
        try:
            selection = select_records_before(
                self._options.until, list(by_path), {members[name].path for name in snapshot_names}
            )
            del members, paths  # there may be very many files
            for part in self._iter_blocks_for_python_rules(log.record_ranges(selection), by_path):
                if self._clock.has_expired():
                    break
                name = by_path[part.file]
                if end is not None and name == end.file:
                    part = _truncate_block(part, end.offset or 0)
                if len(part) == 0 or self._is_file_after_replay_end(name, end) or self._is_past_until_sequence(part):
                    break
                self._pass_block_to_rules(name, part)
            if is_gtid_position(self._options.until) and not self._clock.is_over:
                for text in log.find_unmatched_names(selection, self._records_fed).missing:
                    notify_progress_listener.report_note(
                        f"{self._group.path}: {text.replace('--stop-position', '--until')}"
                    )
        finally:
            log.close()

    def _iter_blocks_for_python_rules(
        self, segments: Iterable[RecordRange | RecordBlock | FileFinding], by_path: Mapping[str, str]
    ) -> Iterator[RecordBlock]:
        """Yield the blocks whose decisions Python must make; count the other records."""
        body_blocks, files = CompiledBodyDecoder(), limits.PerFileGarbageCollector()
        for segment in segments:
            if isinstance(segment, RecordRange):
                files.start_file(segment.decoder.file)
                yield from (
                    body_blocks.decode_range(segment)
                    if self._compiled_replay is None
                    else self._compiled_replay.replay_range(
                        segment, by_path[segment.decoder.file], self._count_compiled_run
                    )
                )
            elif isinstance(segment, RecordBlock):
                yield segment

    def _count_compiled_run(self, file_name: str, compiled_run: BatchOutcome, record_count: int) -> None:
        self._records_fed += record_count
        self._records_reached[file_name] += record_count
        self._decisions[compiled_run.verb] += record_count
        self._reasons[compiled_run.reason] += record_count
        for per_object in compiled_run.object_counts:
            if per_object.object is not None:
                tally = self._get_tally(per_object.object)
                tally.counts[compiled_run.verb] += per_object.records
                tally.first_seq = per_object.first_seq if tally.first_seq is None else tally.first_seq
                tally.last_seq = per_object.last_seq

    def _is_file_after_replay_end(self, file_name: str, end: ReplayStop | None) -> bool:
        """Return True if the replay ended in a file before this one."""
        if file_name in self._records_reached or (end is None and self._options.until is None):
            return False
        position = self._file_positions[file_name]
        if end is not None and self._file_positions.get(end.file, position) < position:
            return True
        return not is_gtid_position(self._options.until) and self._is_reading_cut_by_until(
            position
        )  # records without GTID are left out

    @cached_property
    def _file_positions(self) -> dict[str, int]:
        """File name -> position in the reading order."""
        return {name: place for place, name in enumerate(self._files)}

    def _is_past_until_sequence(self, block: RecordBlock) -> bool:
        """Return True if a record before this block has the sequence number of `--until` or a higher number.

        Numbers of several origins need not increase together; the replay ends at the first such record.
        """
        previous, self._last_record = self._last_record, (block.file, block.record[-1])
        if not is_sequence_position(self._options.until):
            return False
        return block.record[0] > (previous[1] + 1 if previous[0] == block.file else 0)

    def _is_reading_cut_by_until(self, stop_file_position: int | None = None) -> bool:
        """Return True if `--until` ended the reading before all records of the files before `stop_file_position` were
        read.

        Args:
            stop_file_position: Position of a file in the reading order; None = all files.

        The first `_complete_files` files are known to be read completely.
        """
        if self._options.until is None:
            return False
        stop_file_position = len(self._files) if stop_file_position is None else stop_file_position
        while (
            self._complete_files < stop_file_position
            and self._records_reached[self._files[self._complete_files]] >= self._record_counts[self._complete_files]
        ):
            self._complete_files += 1
        return self._complete_files < stop_file_position

    def _find_first_error_stop(self) -> ReplayStop | None:
        """Return the first error, at which policy `strict` stops; errors of the whole set come first."""
        located = [("", found) for found in self._situation.findings]
        for file in self._situation.files:
            located += [(file.name, found) for found in sorted(file.findings, key=lambda one: one.offset or 0)]
        for name, finding in located:
            if finding.severity is Severity.ERROR:
                self._stop = self._stop or ReplayStop(
                    name or self._group.path, finding.offset, f"{finding.id}: {finding.message}"
                )
                return ReplayStop(name or self._files[0], finding.offset, "") if self._files else None
        return None

    def _pass_block_to_rules(self, file_name: str, block: RecordBlock) -> None:
        """Pass a block to the replay rules, record the outcomes that they return, and keep the undecided records."""
        for finding in chain.from_iterable(block.findings.values()):
            raise_if_limit(block.file, finding)
        first, self._records_fed = self._records_fed, self._records_fed + len(block)
        self._records_reached[file_name] += len(block)
        decided = bytearray(len(block))
        for record_outcome in join_adjacent_outcomes(self._replayer.decide_records(file_name, first, block)):
            if record_outcome.first < first:
                self._decide_waiting(record_outcome._replace(stop=min(record_outcome.stop, first)))
            start, stop = max(record_outcome.first - first, 0), record_outcome.stop - first
            if start < stop:
                decided[start:stop] = b"\1" * (stop - start)
                self._record_decisions(block, start, stop, record_outcome.verb, record_outcome.reason)
        if 0 in decided:
            self._undecided_records.add_undecided(first, block, decided)
        if self._undecided_records.bytes > self._options.limits.max_memory:
            count = f"{self._undecided_records.count:,} records"
            raise LimitError(f"{block.file}: {count} wait for the end of their transaction; raise --max-memory")

    # -- accounting ------------------------------------------------------------------------------------------------

    def _decide_waiting(self, record_outcome: RecordOutcome) -> None:
        """Apply a record outcome to records that were passed to the rules earlier."""
        for number in range(record_outcome.first, record_outcome.stop):
            block, i = self._undecided_records.remove_record(number)
            self._record_decisions(block, i, i + 1, record_outcome.verb, record_outcome.reason)

    def _record_decisions(self, block: RecordBlock, start: int, stop: int, verb: str, reason: str) -> None:
        """Count the records under a verb and reason, apply their changes if applied, and call `on_decision` for
        each.
        """
        self._decisions[verb] += stop - start
        self._reasons[reason] += stop - start
        names = block.envelope.object[start:stop]
        for name, count in Counter(names).items():
            if name is not None:
                self._get_tally(name).counts[verb] += count
        if verb == APPLIED:
            self._apply_changes_of_records(block, start, stop, names)
        if self._on_decision is not None:
            for index in range(start, stop):
                self._on_decision(make_decision(block, index, verb, reason))

    def _apply_changes_of_records(self, block: RecordBlock, start: int, stop: int, names: list[str | None]) -> None:
        seqs = block.envelope.seq[start:stop]
        first = dict(zip(reversed(names), reversed(seqs), strict=True))
        for name, last in dict(zip(names, seqs, strict=True)).items():
            if name is not None and last is not None:
                tally = self._get_tally(name)
                tally.first_seq = first[name] if tally.first_seq is None else tally.first_seq
                tally.last_seq = last
        if self._effects is not None:
            changes_of = self._effects.read_changes
            self._apply_changes(chain.from_iterable(changes_of(block, i) for i in range(start, stop)))

    def _get_tally(self, name: str) -> ObjectTally:
        tally = self._objects.get(name)
        if tally is None:
            name = name if len(self._objects) < self._max_objects else OTHERS
            tally = self._objects.setdefault(name, ObjectTally(name))
        return tally

    def _skip_records_without_outcome(self, read_plan: ReadPlan) -> None:
        """Skip the records without an outcome: after the stop, after `--until`, or in files that were not read."""
        reason = NOT_REACHED if self._stop is not None or self._options.until is None else UNTIL
        reason = LIMIT if self._clock.is_over else reason
        for number in list(self._undecided_records.iter_numbers()):
            self._decide_waiting(RecordOutcome(number, number + 1, SKIPPED, reason))
        for file in self._situation.files:
            missing = file.records - self._records_reached[file.name]
            if missing > 0:
                why = read_plan.skipped.get(file.name, reason)
                self._decisions[SKIPPED] += missing
                self._reasons[why] += missing

    # -- result ----------------------------------------------------------------------------------------------------

    def _make_result(self, read_plan: ReadPlan, outcome: ReplayOutcome) -> ReplayResult:
        paths = {file.name: file.path for file in self._situation.files}
        stop = self._stop
        verified = [(file.path, found) for file in self._situation.files for found in file.findings]
        verified += [(self._group.path, found) for found in self._situation.findings]
        result = ReplayResult(
            path=self._group.path,
            format=self._format.name,
            policy=self._options.policy,
            starts=None
            if self._clock.is_over
            else read_plan.starts
            if read_plan.refusal is not None
            else outcome.starts,
            decisions={verb: self._decisions[verb] for verb in VERBS},
            reasons=dict(sorted(self._reasons.items())),
            objects=tuple(self._objects[name] for name in sorted(self._objects)),
            stop=None if stop is None else stop._replace(file=paths.get(stop.file, stop.file)),
            position=outcome.position,
            digest=None,
            read=tuple(paths[name] for name in read_plan.read),
            findings=(*verified, *((paths.get(name, name), found) for name, found in outcome.findings)),
            rules={reason: _describe_rule(self._rules, reason) for reason in sorted(self._reasons)},
            details={
                **self._policy_details(),
                **outcome.details,
                **self._make_incomparable_objects_detail(),
                **self._limit_details(),
            },
            unknown=outcome.unknown,
        )
        if not self._has_state or self._clock.is_over:
            return result
        return add_final_object_states(
            result, self._state.sum_object_states(self._max_objects), self._state.spilled, self._max_objects
        )

    def _policy_details(self) -> dict[str, str]:
        """Return the effects of policy `force` in this format, as details."""
        return {"force": self._rules.force} if self._options.policy == "force" and self._rules.force else {}

    def _limit_details(self) -> dict[str, str]:
        """Return the reason why the replay is incomplete, as details."""
        return {"incomplete": TIME_LIMIT_TEXT} if self._clock.is_over else {}

    def _make_incomparable_objects_detail(self) -> dict[str, Any]:
        """Return the objects whose digest may differ from that of the server's rows, as details."""
        doubts = {} if self._effects is None else self._effects.get_reasons_of_unknown_objects()
        return {"not_comparable": dict(sorted(doubts.items()))} if doubts else {}


_GENERAL_RULES = {
    NOT_REACHED: "The server stops before this record.",
    UNTIL: "The record is at or after the position of --until.",
    LIMIT: "A limit ended the work before this record.",
}


def _describe_rule(rules: ReplayRules, reason: str) -> str:
    return rules.reasons.get(reason) or _GENERAL_RULES[reason]


def _truncate_block(block: RecordBlock, offset: int) -> RecordBlock:
    """Return the records of a block that start before an offset of the file."""
    return block.part(0, sum(1 for at in block.offset if at < offset))
