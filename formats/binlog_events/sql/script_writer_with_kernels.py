"""Write the frequent events of a script in compiled code.

Reassembled events have a checksum if the events of the log do. Their type and offset are those in the log.

The script's sessions are numbered. A request is what an event needs from its session: the status block of a QUERY, or
the flags of a row event. For each session and request, a cell says which session follows and which assignments lead to
it.

    table    number of BEGIN requests, of all requests, offset of the cells, 0; then per request three
             numbers; then per session and request one cell
    request  of a QUERY: offset and size of its status block, and one number: offset of the
             microseconds in the block plus one (0: none), 1 << 16 if it is inside of a transaction
             (else it is a BEGIN), 1 << 17 if a backslash in its strings begins an escape, and from
             1 << 18 on the size of the text after its status block that sets sql_mode again;
             of rows: the flags of their event
    cell     the next session plus one (0: none), offset and size of the assignments
    template  number of columns, offset and size of the table's name, number of key columns, offset
              and size of the TABLE_MAP body (0: its rows are written as statements), then per column:
              kind, parameter, width, bytes of the length, (offset, size) of its name, offset and size
              of its texts (or of what precedes its hexadecimal digits), and flags

All numbers are 32 bits, big-endian; offsets count from the start of the table or template.
"""

from __future__ import annotations

import struct
import zlib
from array import array
from collections.abc import Callable
from mmap import mmap
from typing import TYPE_CHECKING, Any

import msgspec
from msgspec.structs import replace

from binlogtool.format_api.json_text_kernels import build_text_table
from binlogtool.format_api.layout import Batch, FlatRecords, Kernel, wrap_batch
from binlogtool.format_api.schema_fields import DecompressionError, MalformedError
from binlogtool.formats.binlog_events.ddl.split_sql_statements import NO_BACKSLASH_ESCAPES
from binlogtool.formats.binlog_events.decode import NO_TRANSACTION, BinlogFileContext, OwningTransaction, TrackedBatch
from binlogtool.formats.binlog_events.event_schemas import parse_query
from binlogtool.formats.binlog_events.rows.table_map import (
    COLUMN_SIZE,
    MAX_COMPILED_COLUMNS,
    PAD,
    RECORD_HEAD,
    TableMap,
    TextPool,
    build_row_event_template,
    get_column_encodings,
    join_json_kernel_table_maps,
)
from binlogtool.formats.binlog_events.rows.write_rows_json_kernels import (
    CAST,
    GENERATED,
    HEX,
    KEY,
    NO_CONDITION,
    NUMBER,
    STAMPED,
)
from binlogtool.formats.binlog_events.sql import client_safe_statements
from binlogtool.formats.binlog_events.sql.client_safe_statements import DELIMITER, UTF8MB4
from binlogtool.formats.binlog_events.sql.format_literals import (
    UTF8MB4_COMPATIBLE_CHARSETS,
    UTF8MB4_SAFE_CHARSETS,
    quote_identifier,
    quote_string,
)
from binlogtool.formats.binlog_events.sql.kernels import event_script_kernels as statements
from binlogtool.formats.binlog_events.sql.kernels import row_statement_kernels
from binlogtool.formats.binlog_events.sql.kernels.script_kernel_structs import EventColumns, EventSpans, ScriptMemory
from binlogtool.formats.binlog_events.sql.row_statements import (
    AUTO_UPDATED_TYPES,
    HAS_TRIGGERS,
    RowEventWriter,
    explain_why_no_statements,
)
from binlogtool.formats.binlog_events.sql.session_statements import (
    SQL_MODE,
    QuerySession,
    ScriptSession,
    explain_different_effect,
    explain_refused_session,
    get_row_check_variables,
)
from binlogtool.formats.binlog_events.status_variables import decode_status_variables, find_microseconds
from binlogtool.formats.binlog_events.transactions.transaction_kernels import (
    MAX_CACHED,
    CompiledEventTracker,
    NestedTableMapNumbers,
    as_int_column,
)
from binlogtool.formats.binlog_events.values.column_types import (
    HEX_KINDS,
    UNSUPPORTED_KIND,
    ColumnEncoding,
    ColumnType,
    TableMapColumn,
    ValueKind,
    adapt_encoding_for_kernels,
)
from binlogtool.formats.binlog_events.wire_format import (
    COMPRESSED_ROW_EVENTS,
    EVENT_TYPE_NAMES,
    ROW_EVENTS,
    EventType,
    FormatDescription,
)
from binlogtool.limits import MIB, Limits

if TYPE_CHECKING:
    from binlogtool.formats.binlog_events.sql.script import SqlScript


# --- Events of a batch in the form that the script kernels read ---

_COLUMN_NAMES = ("type_code", "timestamp", "server_id", "flags", "body_start", "body_end", "offset", "end")
_UNPACKED_OFFSET_COLUMNS = ("body_start", "body_end", "offset", "end")
_MAX_BYTES = 8 * MIB
"""Maximum total size of events that are reassembled at a time, in bytes."""

_PADDING = 16
"""Number of bytes that kernels may read after the last event."""

NamedColumns = dict[str, Any]


class ScriptEvents(msgspec.Struct, frozen=True):
    """Columns in the order of `kernels.row_statement_kernels.write_script_events`, and the bytes to which they
    refer.
    """

    columns: EventColumns
    window: Any


def load_batch_events(
    batch: Batch, tracked_batch: TrackedBatch, table_tracker: CompiledEventTracker, description: FormatDescription,
    limits: Limits, compile_: Callable[[Kernel], Kernel],
) -> ScriptEvents:  # fmt: skip
    """Return the events of a batch; MariaDB's compressed row events come last, in uncompressed form."""
    count = batch.frames.count
    columns: NamedColumns = {name: as_int_column(batch.frames[name], count) for name in _COLUMN_NAMES}
    maps, codes, offsets = (
        table_tracker.get_tracking_columns(tracked_batch)["map"],
        columns["type_code"],
        columns["offset"],
    )
    window: memoryview | bytearray = batch.window
    if description.is_mariadb and not COMPRESSED_ROW_EVENTS.isdisjoint(codes[:count]):
        for name in ("type_code", *_UNPACKED_OFFSET_COLUMNS):  # the reassembled events have other columns
            columns[name] = array("q", bytes(memoryview(columns[name])[:count]))
        window = _append_uncompressed_rows(batch, columns, description, limits, compile_)
    holders = array("q", [-1]) * count
    return ScriptEvents(EventColumns._make((*columns.values(), maps, codes, offsets, holders)), window)


def _append_uncompressed_rows(
    batch: Batch, columns: NamedColumns, description: FormatDescription, limits: Limits,
    compile_: Callable[[Kernel], Kernel],
) -> bytearray:  # fmt: skip
    """Return the window, followed by its compressed row events in uncompressed form.

    Events that cannot be uncompressed are left to the general writer, which reports the reason.
    """
    count, window, checksum_size = batch.frames.count, batch.window, 4 if description.has_checksums else 0
    block_offsets, sizes = array("q", bytes(8 * count)), array("q", bytes(8 * count))
    arrays = EventSpans._make(columns[name] for name in ("type_code", *_UNPACKED_OFFSET_COLUMNS))
    sizes_of_format = (description.table_id_size, checksum_size)
    compile_(row_statement_kernels.find_compressed_blocks)(
        count, arrays, window, *sizes_of_format, limits.max_inflate, block_offsets, sizes
    )
    data = _inflate_blocks(window, block_offsets, columns["body_end"], sizes)
    buffer = bytearray(2 * len(window) + len(data))  # reassembled events copy their header from the window
    buffer[: len(window)] = window
    compile_(row_statement_kernels.write_uncompressed_events)(
        count, arrays, sizes, window, data, *sizes_of_format, buffer, len(window)
    )
    return buffer


def _inflate_blocks(window: memoryview, starts: array[int], ends: Any, sizes: array[int]) -> bytes:
    """Return the uncompressed blocks, concatenated; the size of an invalid block becomes -1."""
    blocks, bytes_left = list[bytes](), _MAX_BYTES
    for i, size in enumerate(sizes):
        if size < 0:
            continue
        unpacker = zlib.decompressobj()
        try:
            block = unpacker.decompress(window[starts[i] : ends[i]], size + 1) if size <= bytes_left else b""
        except zlib.error:
            block = b""
        if len(block) == size and unpacker.eof and not unpacker.unused_data:
            blocks.append(block)
            bytes_left -= size
        else:
            sizes[i] = -1
    return b"".join([*blocks, bytes(_PADDING)])


def load_nested_events(
    run: FlatRecords, find_map_numbers: Callable[[NamedColumns, Any, Any], Any], description: FormatDescription,
    compile_: Callable[[Kernel], Kernel],
) -> ScriptEvents | None:  # fmt: skip
    """Return the events of a run that has nested events; None if they are too large or one is invalid.

    `find_map_numbers`: returns the table maps, given the kernel columns, the container offsets and the bytes.
    """
    named_columns = {name: run.copy_column(name) for name in _COLUMN_NAMES}
    window, bases, holders = _concatenate_event_parts(run, named_columns)
    checksum_size = 4 if description.has_checksums else 0
    if len(window) > _MAX_BYTES:
        return None
    codes, offsets = named_columns["type_code"], run.copy_column("offset")
    data = memoryview(bytearray(len(window) + checksum_size * run.count + _PADDING))
    columns = EventSpans(codes, *(named_columns[name] for name in _UNPACKED_OFFSET_COLUMNS))
    if (
        compile_(row_statement_kernels.concatenate_events)(
            run.count, columns, holders, bases, window, data, checksum_size
        )
        < run.count
    ):
        return None
    return ScriptEvents(
        EventColumns._make(
            (*named_columns.values(), find_map_numbers(named_columns, holders, data), codes, offsets, holders)
        ),
        data,
    )


def _concatenate_event_parts(run: FlatRecords, columns: NamedColumns) -> tuple[bytes, array[int], array[int]]:
    """Return (bytes of all events, offset of each event's part in them, offset of each event's container)."""
    parts, bases, holders, size = list[memoryview](), array("q"), array("q"), 0
    for batch, first, stop, at in run.parts:
        is_file, count = batch.container is None, stop - first
        start, end = (columns["offset"][at], columns["end"][at + count - 1]) if is_file else (0, len(batch.window))
        parts.append(batch.window[start:end])
        bases += array("q", [size - start]) * count
        holders += array("q", [-1 if batch.container is None else batch.container.offset]) * count
        size += end - start
    return b"".join([*parts, bytes(_PADDING)]), bases, holders


# --- Session transitions of a script ---

TRANSACTION_VARIABLES = frozenset(
    {
        "TIMESTAMP", "@@session.pseudo_thread_id", "@@session.gtid_domain_id", "@@session.server_id",
        "@@session.gtid_seq_no", "@@session.skip_parallel_replication", "@@session.skip_replication",
        "@@session.original_commit_timestamp", "@@session.original_server_version",
        "@@session.immediate_server_version",
    }
)  # fmt: skip
"""Variables that change with each transaction and are not part of a numbered session."""

_MAX_QUERY_REQUESTS, _MAX_ROW_REQUESTS, _MAX_SESSIONS = 24, 8, 64
_MAX_ASSIGNMENT_BYTES = 2000
_PAD = bytes(16)

SessionState = tuple[tuple[tuple[str, str], ...], str | None, int]
"""(variables of a session, character set of the next statement, sql_mode)."""


class QuerySessionRequest(msgspec.Struct, frozen=True):
    """Session that a QUERY needs, by its status block.

    `microseconds_at`: offset of its microseconds, -1 if it has none. `is_in_transaction`: it is a change inside a
    transaction, not
    a BEGIN. `has_escapes`: a backslash begins an escape in its strings. `set_mode`: text that sets sql_mode again
    before a statement whose reading by clients depends on it.
    """

    block: bytes
    microseconds_at: int
    is_in_transaction: bool = False
    has_escapes: bool = False
    set_mode: bytes = b""

    @property
    def packed_flags(self) -> int:
        """Third number of a request in the request table (see the module docstring)."""
        return (
            self.microseconds_at + 1 | self.is_in_transaction << 16 | self.has_escapes << 17 | len(self.set_mode) << 18
        )


class SessionTransitions:
    """Sessions of one script, and the assignments that lead from one session to another.

    `sessions`: the sessions by number. `data`: the table, see the module docstring.
    """

    def __init__(self, described: FormatDescription) -> None:
        self._description = described
        self.sessions: list[SessionState] = []
        self._numbers: dict[SessionState, int] = {}
        self._query_requests: list[QuerySessionRequest] = []
        self._row_flags: list[int] = []
        self._build_transition_table()

    def get_session_number(self, session: ScriptSession) -> int:
        """Return the number of a session; -1 if the kernels do not know it."""
        if session.client_charset != UTF8MB4:
            return -1
        before = len(self.sessions)
        number = self._assign_number(_get_session_state(session))
        if len(self.sessions) > before:
            self._build_transition_table()
        return number

    def try_add_query_request(self, body: bytes, *, is_in_transaction: bool) -> bool:
        """Register the status block of a QUERY as a request; return False if it is already known or cannot be one.

        Args:
            body: the event's body.
            is_in_transaction: whether it is inside of a transaction.
        """
        try:
            parts = parse_query(body)
            status = decode_status_variables(parts.status_vars)
            offsets = [at for at in find_microseconds(parts.status_vars) if at is not None]
        except (MalformedError, DecompressionError):
            return False
        is_supported = "charset" in status and len(offsets) < 2
        if is_in_transaction:
            is_supported = (
                is_supported
                and "invoker" not in status
                and "sql_mode" in status
                and statements.has_row_change_verb(parts.sql, 0, len(parts.sql))
            )
        elif parts.sql != b"BEGIN":
            return False
        if (
            not is_supported
            or explain_different_effect(status, parts.sql) is not None
            or explain_refused_session(status) is not None
        ):
            return False
        gap = offsets[0] if offsets else -1
        block = parts.status_vars if gap < 0 else parts.status_vars[:gap] + bytes(3) + parts.status_vars[gap + 3 :]
        request = QuerySessionRequest(block, gap, is_in_transaction)
        if is_in_transaction:
            session = ScriptSession(variables={SQL_MODE: str(status["sql_mode"])})
            set_mode = b"".join(map(client_safe_statements.append_statement_end, session.write_sql_mode_again()))
            request = replace(request, has_escapes=not status["sql_mode"] & NO_BACKSLASH_ESCAPES, set_mode=set_mode)
        if request in self._query_requests or len(self._query_requests) == _MAX_QUERY_REQUESTS:
            return False
        self._query_requests.append(request)
        self._build_transition_table()
        return True

    def try_add_row_flags(self, flags: int) -> bool:
        """Register the flags of a row event as a request; return False if they are already known."""
        if flags in self._row_flags or len(self._row_flags) == _MAX_ROW_REQUESTS:
            return False
        self._row_flags.append(flags)
        self._build_transition_table()
        return True

    # -- the table -----------------------------------------------------------------------------------------------------

    def _assign_number(self, state: SessionState) -> int:
        """Return the number of a session, assigning one if needed; -1 if there are too many."""
        number = self._numbers.get(state, -1)
        if number < 0 and len(self.sessions) < _MAX_SESSIONS:
            number = self._numbers[state] = len(self.sessions)
            self.sessions.append(state)
        return number

    def _build_transition_table(self) -> None:
        """Build the table of all transitions from all sessions; transitions may lead to further sessions."""
        transitions = list[tuple[int, bytes]]()
        requests: list[QuerySessionRequest | int] = [*self._query_requests, *self._row_flags]
        index = 0
        while index < len(self.sessions):
            transitions += [self._build_transition(self.sessions[index], wish) for wish in requests]
            index += 1
        cells_at = 16 + 12 * len(requests)
        at = cells_at + 12 * len(transitions)
        numbers, texts = [len(self._query_requests), len(requests), cells_at, 0], list[bytes]()
        for begin in self._query_requests:
            numbers += [at, len(begin.block), begin.packed_flags]
            texts += [begin.block, begin.set_mode]
            at += len(begin.block) + len(begin.set_mode)
        numbers += [number for flags in self._row_flags for number in (flags, 0, 0)]
        for target, text in transitions:
            numbers += [target + 1, at, len(text)]
            texts.append(text)
            at += len(text)
        self.data = struct.pack(f">{len(numbers)}I", *numbers) + b"".join(texts) + _PAD

    def _build_transition(self, state: SessionState, request: QuerySessionRequest | int) -> tuple[int, bytes]:
        """Return (session after a request, assignments); session -1 = not supported by the kernels."""
        variables, charset, sql_mode = state
        session = ScriptSession(variables=dict(variables), charset=charset, sql_mode=sql_mode)
        if isinstance(request, int):
            statements = session.write_session_for_rows(request, 0, self._description)
        else:
            session.variables[_THREAD] = "0"
            statements = session.write_session_for_query(
                QuerySession(decode_status_variables(request.block), 0, 0, request.is_in_transaction), self._description
            )
            is_plain = client_safe_statements.terminate_statement(
                b"BEGIN", session.charset
            ) == client_safe_statements.append_statement_end(b"BEGIN")
            if (
                not is_plain
                or client_safe_statements.make_client_safe_or_explain(b"BEGIN", session.charset, session.sql_mode)[1]
                is not None
            ):
                return -1, b""
        text = statements[0][len(_SET) :] if statements else b""
        if (
            session.client_charset != UTF8MB4
            or len(statements) > 1
            or (statements and not statements[0].startswith(_SET))
            or len(text) > _MAX_ASSIGNMENT_BYTES
        ):
            return -1, b""
        return self._assign_number(_get_session_state(session)), text


_SET = b"SET "
_THREAD = "@@session.pseudo_thread_id"


def _get_session_state(session: ScriptSession) -> SessionState:
    """Return the state of a session without the variables that change with each transaction."""
    variables_set = tuple(
        sorted((name, value) for name, value in session.variables.items() if name not in TRANSACTION_VARIABLES)
    )
    return variables_set, session.charset, session.sql_mode


def restore_session_state(session: ScriptSession, state: SessionState) -> None:
    """Set the script's session to this state."""
    transaction_variables = {name: value for name, value in session.variables.items() if name in TRANSACTION_VARIABLES}
    variables, session.charset, session.sql_mode = state
    session.variables = dict(variables) | transaction_variables
    session.forget_last_query()


# --- Templates of row statements ---

_MAX_PAD = 255
_MAX_TEMPLATE_BYTES = 1 << 25


class TableTemplates:
    """Templates of all known table maps; rebuilt when more facts about tables become known or were reported."""

    def __init__(self, texts: bytes) -> None:
        self._state: tuple[object, tuple[int, ...]] = (None, ())
        self._texts = self._prefix = texts

    def get_kernel_texts(
        self, table_maps: list[TableMap], rows: RowEventWriter, description: FormatDescription
    ) -> bytes:
        """Return all texts for the kernels; `table_maps`: the table maps, as a list that only grows or is replaced."""
        state = (len(table_maps), rows.knowledge.version, len(rows.reported))
        if self._state[0] is not table_maps or self._state[1] != state:
            self._state, bytes_left, records = (table_maps, state), _MAX_TEMPLATE_BYTES, list[bytes]()
            for table in table_maps:
                record = build_table_template(table, rows, description) if bytes_left > 0 else b""
                bytes_left -= len(record)
                records.append(record)
            self._texts = self._prefix + join_json_kernel_table_maps(records)
        return self._texts


def build_table_template(table: TableMap, rows: RowEventWriter, description: FormatDescription) -> bytes:
    """Return the template of a table; empty if the kernels do not write its rows or a finding about it is due."""
    knowledge = rows.knowledge
    keyed_table = knowledge.add_known_facts_and_key(table)
    if rows.options.rows == "exact":
        return _memoize(table, "events", build_row_event_template)
    reason = knowledge.explain_why_not_as_statements(keyed_table, description) or explain_why_no_statements(keyed_table)
    if reason is not None:
        is_reported = keyed_table.flags & HAS_TRIGGERS or not rows.is_unreported(keyed_table, reason)
        return _memoize(table, "events", build_row_event_template) if is_reported else b""
    if rows.is_unreported(keyed_table, knowledge.explain_possible_inexactness(keyed_table)):
        return b""
    return _memoize(keyed_table, "plan", _build_statement_template)


def _memoize(table: TableMap, memo_key: str, build: Callable[[TableMap], bytes]) -> bytes:
    """Return the result of `build` for a table, cached in the table's memo under a key."""
    template: bytes | None = table.memo.get(memo_key)
    if template is None:
        template = table.memo[memo_key] = build(table)
    return template


def _build_statement_template(table: TableMap) -> bytes:
    """Build the template of a table whose rows are written as statements."""
    try:
        kinds = get_column_encodings(table)
    except MalformedError:
        return b""
    if len(kinds) > MAX_COMPILED_COLUMNS:
        return b""
    key_columns = {index for index, _ in table.primary_key or ()}
    texts = TextPool(RECORD_HEAD + COLUMN_SIZE * len(kinds))
    target = texts.add(quote_identifier(table.database) + b"." + quote_identifier(table.table))
    numbers = [len(kinds), *target, len(key_columns), 0, 0, 0, 0, 0, 0]
    for index, (column, kind) in enumerate(zip(table.columns, kinds, strict=True)):
        entry, text, flags = _make_column_entry(column, kind)
        numbers += [*entry, *texts.add(quote_identifier(column.name or ""))]
        numbers += [*(texts.add(text) if text else (0, 0)), flags | KEY * (index in key_columns), 0]
    return b"" if DELIMITER in texts.text else struct.pack(f">{len(numbers)}I", *numbers) + texts.text + PAD


def _make_column_entry(column: TableMapColumn, encoding: ColumnEncoding) -> tuple[ColumnEncoding, bytes, int]:
    """Return (kind of a column for the kernels, its texts, its flags)."""
    flags = (GENERATED if column.generated else 0) | (STAMPED if column.type in AUTO_UPDATED_TYPES else 0)
    unsupported = encoding._replace(kind=UNSUPPORTED_KIND)
    if encoding.kind in (ValueKind.ENUM, ValueKind.SET):
        return encoding, _encode_enum_literals(column, encoding.kind), flags | NUMBER
    if encoding.kind in (ValueKind.TEXT, ValueKind.UTF8) and column.charset is not None:
        flags |= CAST if column.charset in UTF8MB4_COMPATIBLE_CHARSETS else CAST | HEX
        if column.charset not in UTF8MB4_SAFE_CHARSETS:
            return encoding._replace(kind=ValueKind.BYTES, parameter=0), f"_{column.charset} ".encode(), flags
        return adapt_encoding_for_kernels(column, encoding), b"", flags
    if encoding.kind == ValueKind.BYTES:
        width = column.metadata if column.type == ColumnType.STRING else 0
        return (encoding._replace(parameter=width) if width <= _MAX_PAD else unsupported), b"", flags
    if encoding.kind in HEX_KINDS:
        unsupported = (
            encoding if encoding.kind == ValueKind.GEOMETRY else encoding._replace(kind=ValueKind.BYTES, parameter=0)
        )
        return unsupported, b"", flags | NO_CONDITION
    if encoding.kind in (ValueKind.SIGNED, ValueKind.UNSIGNED):
        return (encoding if column.unsigned is not None else unsupported), b"", flags
    return (unsupported if encoding.kind == ValueKind.GUESS else encoding), b"", flags


def _encode_enum_literals(column: TableMapColumn, kind: int) -> bytes:
    """Return the texts of an ENUM or SET as literals; the texts of a SET without quotation marks."""
    if column.values is None:
        return b""
    literals = [quote_string(text) for text in column.values]
    return build_text_table(dict(enumerate(literals if kind == ValueKind.ENUM else [text[1:-1] for text in literals])))


# --- Fast path of scripts ---

_OUTPUT_SIZE = 12 << 20
_MAX_BEGIN_BYTES = 4096
"""Maximum size of a BEGIN event in bytes."""

_UNKNOWN_STATE = 3
"""Transaction state that the kernel does not handle."""

_MAX_OPEN_MAPS = 64
_TYPE_COLUMN, _START_COLUMN, _END_COLUMN = 0, 4, 5
"""Indexes of columns in the script events."""

_OFFSET_COLUMNS = ("type_code", "body_start", "body_end", "offset", "end")


class CompiledScriptWriter:
    """Compiled writer for the events of one file."""

    def __init__(self, context: BinlogFileContext, compile_: Callable[[Kernel], Kernel]) -> None:
        self._context = context
        self._table_tracker = context.tracker.compiled_tracker = CompiledEventTracker(context.tracker, compile_)
        self._nested: NestedTableMapNumbers | None = None
        self._compile = compile_
        self._templates = TableTemplates(
            statements.build_constant_texts(dict(EVENT_TYPE_NAMES)) + row_statement_kernels.PIECES
        )
        self._output = memoryview(mmap(-1, _OUTPUT_SIZE))  # pages are allocated on first use
        self._state = array("q", bytes(8 * statements.STATE_SIZE))
        self._transitions = SessionTransitions(context.description)
        self._loaded_state = _UNKNOWN_STATE
        self._cached_events: tuple[Batch | FlatRecords, ScriptEvents | None] | None = None

    def write_events(
        self, script: SqlScript, batch: Batch | FlatRecords, start: int, stop: int, limits: Limits
    ) -> tuple[bytes | memoryview, int]:
        """Return the text of the first of these events, valid until the next call, and the index at which it ends."""
        if len(self._context.tracker.maps.by_id) > MAX_CACHED:
            return b"", start
        if not self._can_write_compiled(script):
            return b"", self._append_continuing_rows(script, batch, start, stop)
        notes = self._context.tracker.track_batch(batch.batch if isinstance(batch, FlatRecords) else batch)
        if self._cached_events is None or self._cached_events[0] is not batch:
            self._cached_events = None  # release its memory first
            self._cached_events = batch, self._load_events(batch, notes, limits)
        events = self._cached_events[1]
        if events is None:
            return b"", start
        kernel, texts = self._get_kernel(script)
        parts, base = list[bytes](), batch.batch.base if isinstance(batch, FlatRecords) else batch.base
        while start < stop:
            self._load_state_into_kernel(script, base)
            memory = ScriptMemory(
                events.window, texts, self._output, _OUTPUT_SIZE, self._transitions.data, self._state,
                script.session.database or b"",
            )  # fmt: skip
            next_index = kernel(start, stop, events.columns, memory)
            if next_index > start:
                self._store_state_in_script(script, batch)
            start, text = next_index, self._output[: self._state[statements.BYTES_WRITTEN]]
            if not self._state[statements.OUTPUT_FULL] and not self._try_register_stopping_event(events, start, stop):
                return (b"".join([*parts, text]) if parts else text), start
            parts.append(bytes(text))
        return b"".join(parts), start

    def _load_events(
        self, batch: Batch | FlatRecords, tracked_batch: TrackedBatch, limits: Limits
    ) -> ScriptEvents | None:
        """Load the events of a batch for the kernels; None if they cannot read them."""
        description, table_tracker = self._context.description, self._table_tracker
        if isinstance(batch, Batch) and batch.container is None:
            return load_batch_events(batch, tracked_batch, table_tracker, description, limits, self._compile)
        if isinstance(batch, Batch):
            numbers = table_tracker.get_map_numbers(tracked_batch.maps)
            return load_nested_events(wrap_batch(batch), lambda *_: numbers, description, self._compile)
        if self._nested is None:
            self._nested = NestedTableMapNumbers(self._context.tracker, table_tracker, self._compile)
        nested, maps = self._nested, array("q", bytes(8 * batch.count))
        outer = table_tracker.get_tracking_columns(tracked_batch)["map"]
        for part_batch, first, last, offset in batch.parts:
            if part_batch.container is None:
                maps[offset : offset + last - first] = array("q", outer[first:last])

        def fill_maps(columns: NamedColumns, holders: Any, window: Any) -> array[int]:
            """Fill in the table maps of nested events."""
            nested.fill_map_numbers(
                tuple(columns[name] for name in ("type_code", "body_start", "body_end")), holders, window, maps
            )
            return maps

        return load_nested_events(batch, fill_maps, description, self._compile)

    def _get_kernel(self, script: SqlScript) -> tuple[Kernel, bytes]:
        """Return the kernel for the script's options, and its texts."""
        description, is_exact = self._context.description, script.options.rows == "exact"
        texts = self._templates.get_kernel_texts(self._table_tracker.table_maps, script.rows, description)
        self._state[statements.ROWS_AS_STATEMENTS] = not is_exact
        return self._compile(row_statement_kernels.write_script_events), texts

    def _can_write_compiled(self, script: SqlScript) -> bool:
        """Return whether no option and no pending state needs the general writer."""
        wording = script.options
        needs_text = wording.comments or wording.rename_databases or wording.stop_before
        selects = wording.only_databases or wording.includes_table is not None
        return not (needs_text or selects or script.definitions.filling) and script.is_idle

    def _append_continuing_rows(self, script: SqlScript, batch: Batch | FlatRecords, start: int, stop: int) -> int:
        """Add row events in the middle of a statement; return the index at which they end."""
        if isinstance(batch, FlatRecords):
            return start
        pending, state, frames = script.rows.open_statement, self._state, batch.frames
        description = self._context.description
        is_unsupported = (
            script.transaction.is_damaged
            or script.stop_finding is not None
            or not description.has_checksums
            or batch.container is not None
        )
        if is_unsupported or pending is None or len(pending.table_maps) > _MAX_OPEN_MAPS:
            return start
        notes = self._context.tracker.track_batch(batch)  # the tracker must see every batch
        state[statements.CHECKSUM_BYTES], state[statements.TABLE_ID_SIZE] = 4, description.table_id_size
        state[statements.TEMPLATES] = row_statement_kernels.TEMPLATES_AT
        spans = EventSpans._make(as_int_column(frames[name], frames.count) for name in _OFFSET_COLUMNS)
        maps = self._table_tracker.get_tracking_columns(notes)["map"]
        texts = self._templates.get_kernel_texts(self._table_tracker.table_maps, script.rows, description)
        memory = ScriptMemory(batch.window, texts, self._output, _OUTPUT_SIZE, b"", state, b"")
        buffers = (array("q", pending.table_maps), len(pending.table_maps), pending.size)
        next_index: int = self._compile(row_statement_kernels.write_continuing_rows_as_base64)(
            start, stop, spans, maps, memory, *buffers
        )
        if next_index > start:
            first_start, last_start = int(frames["offset"][start]), int(frames["offset"][next_index - 1])
            last_end = int(frames["end"][next_index - 1])
            lines = bytes(self._output[: state[statements.BYTES_WRITTEN]])
            pending.append_base64_events(lines, bytes(batch.window[last_start:last_end]), last_end - first_start)
        return next_index

    def _load_state_into_kernel(self, script: SqlScript, batch_offset: int) -> None:
        """Load the script's state into the kernel's slots."""
        state, variables, description = self._state, script.session.variables, self._context.description
        rollback, transactions = script.transaction.rollback_statements, script.transaction.groups
        self._loaded_state = state[statements.TRANSACTION_STATE] = (
            _UNKNOWN_STATE
            if len(rollback) > 1
            else statements.IN_TRANSACTION
            if rollback
            else int(transactions.is_open)
        )
        state[statements.WINDOW_OFFSET], state[statements.IS_MARIADB] = batch_offset, description.is_mariadb
        state[statements.CHECKSUM_BYTES] = 4 if description.has_checksums else 0
        state[statements.SETS_GTIDS], state[statements.TABLE_ID_SIZE] = script.options.gtids, description.table_id_size
        for place, name in _SESSION_SLOTS:
            state[place] = _parse_slot_number(variables.get(f"@@session.{name}", ""))
        skips_parallel = variables.get("@@session.skip_parallel_replication")
        state[statements.PARALLEL_ALLOWED] = (
            -1 if skips_parallel is None or "@@session.skip_replication" in variables else int(skips_parallel == "0")
        )
        if variables.get("@@session.immediate_server_version") != variables.get("@@session.original_server_version"):
            state[statements.SERVER_VERSION] = -1
        state[statements.TEMPLATES] = row_statement_kernels.TEMPLATES_AT
        state[statements.ROW_FLAG_MASK] = sum(get_row_check_variables(description))
        state[statements.GTID_AUTOMATIC] = script.session.gtid_next == "AUTOMATIC"
        state[statements.THREAD_ID] = _parse_slot_number(variables.get("@@session.pseudo_thread_id", ""))
        seconds, _, part = variables.get("TIMESTAMP", "").partition(".")
        state[statements.TIMESTAMP_US] = (
            1_000_000 * int(seconds) + int(part or 0) if seconds.isdecimal() and len(part) <= 6 else -1
        )
        state[statements.SESSION_NUMBER] = self._transitions.get_session_number(script.session)
        state[statements.DATABASE_SIZE] = -1 if script.session.database is None else len(script.session.database)

    def _try_register_stopping_event(self, events: ScriptEvents, at: int, stop: int) -> bool:
        """Register the event at which the kernel stopped, so that it is accepted; return whether that was possible."""
        if at >= stop:
            return False
        codes, starts, ends = (events.columns[place] for place in (_TYPE_COLUMN, _START_COLUMN, _END_COLUMN))
        code, body = codes[at], events.window[starts[at] : ends[at]]
        if code == EventType.QUERY:
            return self._transitions.try_add_query_request(
                bytes(body[:_MAX_BEGIN_BYTES]),
                is_in_transaction=self._state[statements.TRANSACTION_STATE] == statements.IN_TRANSACTION,
            )
        if code in (EventType.INTVAR, EventType.RAND):
            return self._try_register_stopping_event(events, at + 1, stop)
        place = self._context.description.table_id_size
        if code not in ROW_EVENTS or len(body) < place + 2:
            return False
        return self._transitions.try_add_row_flags(
            int.from_bytes(body[place : place + 2], "little") & self._state[statements.ROW_FLAG_MASK]
        )

    def _store_state_in_script(self, script: SqlScript, batch: Batch | FlatRecords) -> None:
        """Store the values of the kernel's slots in the script's state."""
        state, variables = self._state, script.session.variables
        transaction_state, last_gtid = state[statements.TRANSACTION_STATE], state[statements.LAST_GTID_INDEX]
        if last_gtid >= 0 or transaction_state != self._loaded_state:
            script.transaction.rollback_statements = (b"ROLLBACK",) if transaction_state == 2 else ()
            transactions = script.transaction.groups
            transactions.group = transaction_state
        if last_gtid >= 0:
            script.transaction.current_transaction = self._get_transaction(batch, last_gtid)
            script.transaction.implied_transaction, script.skips_next = NO_TRANSACTION, False
        if state[statements.SEQUENCE_NUMBER] >= 0:
            variables["@@session.gtid_seq_no"] = str(state[statements.SEQUENCE_NUMBER])
        if last_gtid >= 0 and script.options.gtids and not state[statements.IS_MARIADB]:
            script.session.gtid_next = script.transaction.current_transaction.gtid or "AUTOMATIC"
            variables["@@session.original_commit_timestamp"] = str(state[statements.COMMIT_TIMESTAMP])
        if last_gtid >= 0 or transaction_state != self._loaded_state:
            has_unused_gtid = (
                transaction_state == statements.AFTER_GTID
                and script.options.gtids
                and script.session.gtid_next != "AUTOMATIC"
            )
            script.transaction.has_unused_gtid = has_unused_gtid
        if state[statements.SESSION_CHANGED]:
            self._store_session_in_script(script)

    def _get_transaction(self, batch: Batch | FlatRecords, index: int) -> OwningTransaction:
        """Return the transaction of event `index`."""
        if isinstance(batch, FlatRecords):
            batch, first, _, at = batch.find_part(index)
            index += first - at
        return self._context.tracker.track_batch(batch).transactions[index]

    def _store_session_in_script(self, script: SqlScript) -> None:
        """Store the kernel's session in the script's session."""
        state, variables = self._state, script.session.variables
        if state[statements.THREAD_ID] >= 0:
            variables["@@session.pseudo_thread_id"] = str(state[statements.THREAD_ID])
        if state[statements.TIMESTAMP_US] >= 0:
            seconds, microseconds = divmod(state[statements.TIMESTAMP_US], 1_000_000)
            variables["TIMESTAMP"] = f"{seconds}.{microseconds:06d}" if microseconds else str(seconds)
        restore_session_state(script.session, self._transitions.sessions[state[statements.SESSION_NUMBER]])


def _parse_slot_number(text: str) -> int:
    """Return the number in a text; -1 if it is not a number, or too large for a slot."""
    number = int(text) if text.isdecimal() else -1
    return number if number < 1 << 63 else -1


_SESSION_SLOTS = (
    (statements.DOMAIN_ID, "gtid_domain_id"), (statements.SERVER_ID, "server_id"), (statements.SEQUENCE_NUMBER,
    "gtid_seq_no"),
    (statements.SERVER_VERSION, "immediate_server_version"), (statements.COMMIT_TIMESTAMP, "original_commit_timestamp"),
)  # fmt: skip
