"""Fast path of scripts: frequent events by compiled code (`kernels.frequent`), with the text of `statements`."""

from __future__ import annotations

from array import array
from collections.abc import Callable
from functools import cache
from mmap import mmap
from typing import TYPE_CHECKING, Any

from binlogtool.formats.binlog_events.codes import EVENT_TYPE_NAMES, ROW_EVENTS, EventType
from binlogtool.formats.binlog_events.groups.following import MAX_CACHED, CompiledTracker, as_int_column
from binlogtool.formats.binlog_events.groups.nested import NestedTableMaps
from binlogtool.formats.binlog_events.groups.tracking import NO_OWNER, TrackedBatch, TransactionOwner
from binlogtool.formats.binlog_events.sql.events import NamedColumns, ScriptEvents, load_file_events, load_nested_events
from binlogtool.formats.binlog_events.sql.kernels import events as event_kernels
from binlogtool.formats.binlog_events.sql.kernels import frequent as kernels
from binlogtool.formats.binlog_events.sql.kernels import row_statements, slots
from binlogtool.formats.binlog_events.sql.kernels import rows as row_kernels
from binlogtool.formats.binlog_events.sql.kernels.columns import EventSpans, ScriptMemory
from binlogtool.formats.binlog_events.sql.kernels.slots import DATABASE_SIZE, DATABASE_SLOTS
from binlogtool.formats.binlog_events.sql.moves import SessionTransitions, enter_session
from binlogtool.formats.binlog_events.sql.plans import StatementTemplates
from binlogtool.formats.binlog_events.sql.session import row_check_variables
from binlogtool.formats.binlog_events.stream.context import BinlogFileContext
from binlogtool.formats.layouts import Batch, Kernel
from binlogtool.formats.unrolled import FlatRecords, wrap_batch
from binlogtool.limits import Limits

if TYPE_CHECKING:
    from binlogtool.formats.binlog_events.sql.statements import SqlScript

_OUTPUT_SIZE = 12 << 20
_MAX_BEGIN_BYTES = 4096
"""Bytes of a BEGIN, at most."""

_UNKNOWN_STATE = 3
"""A state that the kernel does not know."""

_MAX_OPEN_MAPS = 64
_TYPE_COLUMN, _START_COLUMN, _END_COLUMN = 0, 4, 5
"""Places of columns in `Events`."""

_OFFSET_COLUMNS = ("type_code", "body_start", "body_end", "offset", "end")


@cache
def _get_texts() -> bytes:
    """Return the constant texts of the kernel, cached."""
    return kernels.build_texts(dict(EVENT_TYPE_NAMES))


class FastScriptWriter:
    """Compiled writer for the events of one file."""

    def __init__(self, context: BinlogFileContext, compile_: Callable[[Kernel], Kernel]) -> None:
        self._context = context
        self._table_tracker = context.tracker.compiled_tracker = CompiledTracker(context.tracker, compile_)
        self._nested: NestedTableMaps | None = None
        self._compile = compile_
        self._texts = _get_texts()
        self._templates = StatementTemplates(self._texts + row_kernels.PIECES)
        self._output = memoryview(mmap(-1, _OUTPUT_SIZE))  # pages are allocated on first use
        self._state = array("q", bytes(8 * slots.STATE_SIZE))
        self._transitions = SessionTransitions(context.description)
        self._loaded_state = _UNKNOWN_STATE
        self._cached_events: tuple[Batch | FlatRecords, ScriptEvents | None] | None = None

    def write(
        self, script: SqlScript, batch: Batch | FlatRecords, start: int, stop: int, limits: Limits
    ) -> tuple[bytes | memoryview, int]:
        """Return the text of the first of these events, valid until the next call, and the index where it ends."""
        if len(self._context.tracker.maps.by_id) > MAX_CACHED:
            return b"", start
        if not self._can_write(script):
            return b"", self._continue_statement(script, batch, start, stop)
        notes = self._context.tracker.track_batch(batch.batch if isinstance(batch, FlatRecords) else batch)
        events = self._get_events(batch, notes, limits)
        if events is None:
            return b"", start
        kernel, texts = self._get_kernel(script, events)
        parts, base = list[bytes](), batch.batch.base if isinstance(batch, FlatRecords) else batch.base
        while start < stop:
            self._load_state(script, base)
            memory = ScriptMemory(events.window, texts, self._output, _OUTPUT_SIZE, self._transitions.data, self._state)
            next_index = kernel(start, stop, events.columns, memory)
            if next_index > start:
                self._store_state(script, batch)
            start, text = next_index, self._output[: self._state[slots.BYTES_WRITTEN]]
            if not self._state[slots.OUTPUT_FULL] and not self._learn_event(events, start, stop):
                return (b"".join([*parts, text]) if parts else text), start
            parts.append(bytes(text))
        return b"".join(parts), start

    def _get_events(self, batch: Batch | FlatRecords, notes: TrackedBatch, limits: Limits) -> ScriptEvents | None:
        """Return the events of a batch for the kernels, cached; None if kernels cannot read them."""
        if self._cached_events is None or self._cached_events[0] is not batch:
            self._cached_events = None  # release its memory first
            self._cached_events = batch, self._load_events(batch, notes, limits)
        return self._cached_events[1]

    def _load_events(self, batch: Batch | FlatRecords, notes: TrackedBatch, limits: Limits) -> ScriptEvents | None:
        """Load the events of a batch for the kernels; None if they cannot read them."""
        description, table_tracker = self._context.description, self._table_tracker
        if isinstance(batch, Batch) and batch.container is None:
            return load_file_events(batch, notes, table_tracker, description, self._texts, limits, self._compile)
        if isinstance(batch, Batch):
            numbers = table_tracker.map_numbers(notes.maps)
            return load_nested_events(wrap_batch(batch), lambda *_: numbers, description, self._texts, self._compile)
        if self._nested is None:
            self._nested = NestedTableMaps(self._context.tracker, table_tracker, self._compile)
        nested, maps = self._nested, array("q", bytes(8 * batch.count))
        outer = table_tracker.columns(notes)["map"]
        for part_batch, first, last, offset in batch.parts:
            if part_batch.container is None:
                maps[offset : offset + last - first] = array("q", outer[first:last])

        def fill_maps(columns: NamedColumns, holders: Any, window: Any) -> array[int]:
            """Fill in the table maps of nested events."""
            nested.fill_map_numbers(
                tuple(columns[name] for name in ("type_code", "body_start", "body_end")), holders, window, maps
            )
            return maps

        return load_nested_events(batch, fill_maps, description, self._texts, self._compile)

    def _get_kernel(self, script: SqlScript, events: ScriptEvents) -> tuple[Kernel, bytes]:
        """Return the kernel for the script's options, and its texts."""
        description, is_exact = self._context.description, script.options.rows == "exact"
        texts = self._templates.get_texts(self._table_tracker.table_maps, script.rows, description)
        return self._compile(kernels.write_events if is_exact else row_statements.write_statements), texts

    def _can_write(self, script: SqlScript) -> bool:
        """Return whether no option and no pending state needs the general writer."""
        wording = script.options
        is_plain = not (
            wording.comments
            or wording.flat
            or wording.rename_databases
            or wording.only_databases
            or wording.stop_before
            or script.definitions.filling
        )
        return is_plain and wording.includes_table is None and script.is_idle

    def _continue_statement(self, script: SqlScript, batch: Batch | FlatRecords, start: int, stop: int) -> int:
        """Add row events in the middle of a statement; return the index where they end."""
        if isinstance(batch, FlatRecords):
            return start
        pending, state, frames = script.rows.open_statement, self._state, batch.frames
        is_unsupported = (
            script.transaction.is_damaged
            or script.stop_finding is not None
            or not self._context.description.has_checksums
        )
        is_unsupported = is_unsupported or batch.container is not None
        if is_unsupported or pending is None or len(pending.table_maps) > _MAX_OPEN_MAPS:
            return start
        description = self._context.description
        notes = self._context.tracker.track_batch(batch)  # the tracker must see every batch
        state[slots.CHECKSUM_BYTES], state[slots.TABLE_ID_SIZE], state[slots.TEMPLATES] = (
            4,
            description.table_id_size,
            row_kernels.TEMPLATES_AT,
        )
        spans = EventSpans._make(as_int_column(frames[name], frames.count) for name in _OFFSET_COLUMNS)
        maps = self._table_tracker.columns(notes)["map"]
        texts = self._templates.get_texts(self._table_tracker.table_maps, script.rows, description)
        memory = ScriptMemory(batch.window, texts, self._output, _OUTPUT_SIZE, b"", state)
        buffers = (array("q", pending.table_maps), len(pending.table_maps), pending.size)
        next_index: int = self._compile(event_kernels.write_base64_lines)(start, stop, spans, maps, memory, *buffers)
        if next_index > start:
            first_start, last_start, last_end = (int(frames[name][i]) for name, i in _bound_columns(start, next_index))
            lines = bytes(self._output[: state[slots.BYTES_WRITTEN]])
            pending.extend(lines, bytes(batch.window[last_start:last_end]), last_end - first_start)
        return next_index

    def _load_state(self, script: SqlScript, base: int) -> None:
        """Store the script's state in the kernel's slots."""
        state, variables, description = self._state, script.session.variables, self._context.description
        rollback, transactions = script.transaction.rollback_statements, script.transaction.groups
        self._loaded_state = state[slots.TRANSACTION_STATE] = (
            _UNKNOWN_STATE if len(rollback) > 1 else slots.IN_TRANSACTION if rollback else int(transactions.is_open)
        )
        state[slots.WINDOW_OFFSET], state[slots.IS_MARIADB] = base, description.is_mariadb
        state[slots.CHECKSUM_BYTES] = 4 if description.has_checksums else 0
        state[slots.SETS_GTIDS], state[slots.TABLE_ID_SIZE] = script.sets_gtids, description.table_id_size
        for place, name in _SESSION_SLOTS:
            state[place] = _parse_number(variables.get(f"@@session.{name}", ""))
        skips_parallel = variables.get("@@session.skip_parallel_replication")
        state[slots.PARALLEL_ALLOWED] = (
            -1 if skips_parallel is None or "@@session.skip_replication" in variables else int(skips_parallel == "0")
        )
        if variables.get("@@session.immediate_server_version") != variables.get("@@session.original_server_version"):
            state[slots.SERVER_VERSION] = -1
        state[slots.TEMPLATES] = row_kernels.TEMPLATES_AT
        state[slots.ROW_FLAG_MASK] = sum(row_check_variables(description))
        state[slots.GTID_AUTOMATIC] = script.session.gtid_next == "AUTOMATIC"
        state[slots.THREAD_ID] = _parse_number(variables.get("@@session.pseudo_thread_id", ""))
        state[slots.TIMESTAMP_US] = _parse_microseconds(variables.get("TIMESTAMP", ""))
        state[slots.SESSION_NUMBER] = self._transitions.session_number(script.session)
        self._load_database(script.session.database)

    def _load_database(self, name: bytes | None) -> None:
        """Store the name of the session's database in the kernel's slots."""
        is_known = name is not None and len(name) < 8 * DATABASE_SLOTS - 8
        self._state[DATABASE_SIZE] = len(name or b"") if is_known else -1
        for place in range(0, len(name or b"") if is_known else 0, 8):
            word = (name or b"")[place : place + 8].ljust(8, b"\0")
            self._state[DATABASE_SIZE + 1 + place // 8] = int.from_bytes(word, "little", signed=True)

    def _learn_event(self, events: ScriptEvents, at: int, stop: int) -> bool:
        """Return whether the event at which the kernel stopped was registered, so that kernels accept it from
        now on.
        """
        if at >= stop:
            return False
        codes, starts, ends = (events.columns[place] for place in (_TYPE_COLUMN, _START_COLUMN, _END_COLUMN))
        code, body = codes[at], events.window[starts[at] : ends[at]]
        if code == EventType.QUERY:
            return self._transitions.add_query(
                bytes(body[:_MAX_BEGIN_BYTES]), inside=self._state[slots.TRANSACTION_STATE] == slots.IN_TRANSACTION
            )
        if code in (EventType.INTVAR, EventType.RAND):
            return self._learn_event(events, at + 1, stop)
        place = self._context.description.table_id_size
        if code not in ROW_EVENTS or len(body) < place + 2:
            return False
        return self._transitions.add_row_flags(
            int.from_bytes(body[place : place + 2], "little") & self._state[slots.ROW_FLAG_MASK]
        )

    def _store_state(self, script: SqlScript, batch: Batch | FlatRecords) -> None:
        """Store the kernel's slots in the script's state."""
        state, variables = self._state, script.session.variables
        transaction_state, last_gtid = state[slots.TRANSACTION_STATE], state[slots.LAST_GTID_INDEX]
        if last_gtid >= 0 or transaction_state != self._loaded_state:
            script.transaction.rollback_statements = (b"ROLLBACK",) if transaction_state == 2 else ()
            transactions = script.transaction.groups
            transactions.group = transaction_state
        if last_gtid >= 0:
            script.transaction.current_owner = self._get_owner(batch, last_gtid)
            script.transaction.implied_owner, script.skips_next = NO_OWNER, False
        if state[slots.SEQUENCE_NUMBER] >= 0:
            variables["@@session.gtid_seq_no"] = str(state[slots.SEQUENCE_NUMBER])
        if last_gtid >= 0 and script.sets_gtids and not state[slots.IS_MARIADB]:
            script.session.gtid_next = script.transaction.current_owner.gtid or "AUTOMATIC"
            variables["@@session.original_commit_timestamp"] = str(state[slots.COMMIT_TIMESTAMP])
        if last_gtid >= 0 or transaction_state != self._loaded_state:
            has_unused_gtid = (
                transaction_state == slots.AFTER_GTID and script.sets_gtids and script.session.gtid_next != "AUTOMATIC"
            )
            script.transaction.has_unused_gtid = has_unused_gtid
        if state[slots.SESSION_CHANGED]:
            self._store_session(script)

    def _get_owner(self, batch: Batch | FlatRecords, index: int) -> TransactionOwner:
        """Return the transaction of event `index`."""
        if isinstance(batch, FlatRecords):
            batch, first, _, at = batch.find_part(index)
            index += first - at
        return self._context.tracker.track_batch(batch).owners[index]

    def _store_session(self, script: SqlScript) -> None:
        """Store the kernel's session in the script's session."""
        state, variables = self._state, script.session.variables
        if state[slots.THREAD_ID] >= 0:
            variables["@@session.pseudo_thread_id"] = str(state[slots.THREAD_ID])
        if state[slots.TIMESTAMP_US] >= 0:
            seconds, microseconds = divmod(state[slots.TIMESTAMP_US], 1_000_000)
            variables["TIMESTAMP"] = f"{seconds}.{microseconds:06d}" if microseconds else str(seconds)
        enter_session(script.session, self._transitions.sessions[state[slots.SESSION_NUMBER]])


def _parse_number(text: str) -> int:
    """Return the number in a text; -1 if it is not one, or too large for a slot."""
    number = int(text) if text.isdecimal() else -1
    return number if number < 1 << 63 else -1


def _parse_microseconds(time: str) -> int:
    """Return a TIMESTAMP in microseconds; -1 if the session has none."""
    seconds, _, part = time.partition(".")
    return 1_000_000 * int(seconds) + int(part or 0) if seconds.isdecimal() and len(part) <= 6 else -1


def _bound_columns(start: int, stop: int) -> tuple[tuple[str, int], ...]:
    """Return (column, index) of the start of the first event, the start of the last one, and its end."""
    return ("offset", start), ("offset", stop - 1), ("end", stop - 1)


_SESSION_SLOTS = (
    (slots.DOMAIN_ID, "gtid_domain_id"), (slots.SERVER_ID, "server_id"), (slots.SEQUENCE_NUMBER, "gtid_seq_no"),
    (slots.SERVER_VERSION, "immediate_server_version"), (slots.COMMIT_TIMESTAMP, "original_commit_timestamp"),
)  # fmt: skip
