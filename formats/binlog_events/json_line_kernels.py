"""Write frequent events as JSON lines, in compiled kernels.

They return the new output position; -1 if the output buffer is full, -2 if the general Python writer must take over.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any, NamedTuple

from binlogtool.format_api.format import JsonBodies, JsonEncoder, JsonLine, JsonMember
from binlogtool.format_api.json_text_kernels import (
    build_text_table,
    write_entry_of_text_table,
    write_json_null,
    write_json_time,
    write_json_unsigned,
    write_text_member,
    write_unsigned_member,
)
from binlogtool.format_api.layout import Batch, Column, Kernel
from binlogtool.format_api.schema_fields import Int64s, MutableUInt8s, UInt8s, kernel
from binlogtool.formats.binlog_events.decode import BinlogFileContext, OwningTransaction
from binlogtool.formats.binlog_events.event_schemas import SHOWN_BODIES
from binlogtool.formats.binlog_events.rows.table_map import (
    TableMap,
    encode_json_kernel_table_map,
    join_json_kernel_table_maps,
)
from binlogtool.formats.binlog_events.rows.write_rows_json_kernels import (
    copy_text,
    find_table_template,
    load_word,
    write_json_rows_event,
)
from binlogtool.formats.binlog_events.transactions.transaction_kernels import MAX_CACHED, CompiledEventTracker
from binlogtool.formats.binlog_events.wire_format import (
    DELETE_ROWS_V1,
    DELETE_ROWS_V2,
    EVENT_TYPE_NAMES,
    TABLE_MAP,
    WRITE_ROWS_V1,
    WRITE_ROWS_V2,
    EventType,
)

# --- Kernels that write table maps and row events as JSON ---


@kernel(copy_text, load_word)
def copy_prepared_table_map_body(
    texts: UInt8s, map_record_offset: int, out: MutableUInt8s, out_pos: int, out_limit: int
) -> int:
    """Write a TABLE_MAP body: the prepared text in the record of its map."""
    size = load_word(texts, map_record_offset + 20)
    if size == 0:
        return -2
    if out_limit - out_pos < size + 8:
        return -1
    return copy_text(texts, map_record_offset + load_word(texts, map_record_offset + 16), size, out, out_pos)


class EventBodyRange(NamedTuple):
    """Event with the position of its body, and the number of its table map."""

    code: int
    server: int
    p: int
    n: int
    number: int


@kernel(copy_prepared_table_map_body, write_json_rows_event, find_table_template)
def write_json_body_member(
    buf: UInt8s,
    text_table: UInt8s,
    scratch: Int64s,
    out: MutableUInt8s,
    out_pos: int,
    out_limit: int,
    event: EventBodyRange,
) -> int:
    """Write the body of an event that needs a table map."""
    is_rows_v1 = event.code >= WRITE_ROWS_V1 and event.code <= DELETE_ROWS_V1
    is_rows_v2 = event.code >= WRITE_ROWS_V2 and event.code <= DELETE_ROWS_V2
    if event.code == TABLE_MAP or is_rows_v1 or is_rows_v2:
        record = find_table_template(text_table, 0, event.number)
        if record == 0:
            return -2
        if event.code == TABLE_MAP:
            return copy_prepared_table_map_body(text_table, record, out, out_pos, out_limit)
        return write_json_rows_event(buf, event.p, event.n, event.code, text_table, record, out, out_pos, out_limit)
    return -2


# --- Kernels that write the JSON lines of frequent events ---

JSON_DEPTH = 8
_MAX_TABLE_BYTES = 1 << 25
_BODY_COLUMNS = ("type_code", "server_id", "body_start", "body_end", "map")
_FREQUENT_EVENTS = (
    EventType.QUERY, EventType.XID, EventType.GTID, EventType.GTID_LOG, EventType.ANONYMOUS_GTID,
    EventType.ANNOTATE_ROWS, EventType.ROWS_QUERY, EventType.INTVAR, EventType.RAND, EventType.XA_PREPARE,
    EventType.ROTATE, EventType.STOP, EventType.BINLOG_CHECKPOINT, EventType.BEGIN_LOAD_QUERY,
    EventType.APPEND_BLOCK, EventType.EXECUTE_LOAD_QUERY, EventType.DELETE_FILE, EventType.INCIDENT,
    EventType.HEARTBEAT, EventType.START_ENCRYPTION,
)  # fmt: skip
_FREQUENT_BODIES = JsonBodies(
    tuple((kind.value, SHOWN_BODIES[kind]) for kind in _FREQUENT_EVENTS),
    code="type_code", start="body_start", end="body_end", parameters=(("server_id", "server_id"),),
)  # fmt: skip
_HEADER_COLUMNS = ("timestamp", "type_code", "server_id", "event_size", "end_log_pos", "flags")


class EventGtid(NamedTuple):
    """GTID of an event's transaction: the number of its source (negative: none), and the sequence number."""

    source: int
    number: int


@kernel(write_json_null, write_json_unsigned)
def write_seq_member(
    buf: UInt8s, text_table: UInt8s, scratch: Int64s, out: MutableUInt8s, out_pos: int, out_limit: int, gtid: EventGtid
) -> int:
    """Write the sequence number in the transaction's GTID."""
    if gtid.source < 0:
        return write_json_null(out, out_pos, out_limit)
    return -2 if gtid.number < 0 else write_json_unsigned(gtid.number, out, out_pos, out_limit)


@kernel(write_entry_of_text_table, write_json_null, write_json_unsigned)
def write_txn_member(
    buf: UInt8s, text_table: UInt8s, scratch: Int64s, out: MutableUInt8s, out_pos: int, out_limit: int, gtid: EventGtid
) -> int:
    """Write the GTID of the transaction: the text of its source, then the number."""
    if gtid.source < 0:
        return write_json_null(out, out_pos, out_limit)
    if gtid.number < 0:
        return -2
    out_pos = write_entry_of_text_table(text_table, 0, gtid.source, out, out_pos, out_limit)
    if out_pos < 0:
        return out_pos
    if out_limit - out_pos < 32:
        return -1
    out_pos = write_json_unsigned(gtid.number, out, out_pos, out_limit)
    out[out_pos] = 34
    return out_pos + 1


@kernel(write_json_null, write_json_time)
def write_time_member(
    buf: UInt8s, text_table: UInt8s, scratch: Int64s, out: MutableUInt8s, out_pos: int, out_limit: int, seconds: int
) -> int:
    """Write the timestamp of the header; null for 0."""
    return (
        write_json_null(out, out_pos, out_limit)
        if seconds == 0
        else write_json_time(seconds * 1000000, out, out_pos, out_limit)
    )


@kernel(copy_text, write_json_null, find_table_template, load_word)
def write_object_member(
    buf: UInt8s, text_table: UInt8s, scratch: Int64s, out: MutableUInt8s, out_pos: int, out_limit: int, map_number: int
) -> int:
    """Write the name of the table."""
    if map_number < 0:
        return write_json_null(out, out_pos, out_limit)
    record = find_table_template(text_table, 0, map_number)
    if record == 0:
        return -2
    size = load_word(text_table, record + 12)
    if out_limit - out_pos < size + 8:
        return -1
    return copy_text(text_table, record + load_word(text_table, record + 8), size, out, out_pos)


class EventHeader(NamedTuple):
    """Common header of an event."""

    timestamp: int
    code: int
    server_id: int
    size: int
    end_log_pos: int
    flags: int


@kernel(write_json_unsigned, copy_text)
def write_header_member(
    buf: UInt8s,
    text_table: UInt8s,
    scratch: Int64s,
    out: MutableUInt8s,
    out_pos: int,
    out_limit: int,
    header: EventHeader,
) -> int:
    """Write the common header."""
    if out_limit - out_pos < 256:
        return -1
    out_pos = write_json_unsigned(header.timestamp, out, copy_text(text_table, 0, 13, out, out_pos), out_limit)
    out_pos = write_json_unsigned(header.code, out, copy_text(text_table, 13, 13, out, out_pos), out_limit)
    out_pos = write_json_unsigned(header.server_id, out, copy_text(text_table, 26, 13, out, out_pos), out_limit)
    out_pos = write_json_unsigned(header.size, out, copy_text(text_table, 39, 14, out, out_pos), out_limit)
    out_pos = write_json_unsigned(header.end_log_pos, out, copy_text(text_table, 53, 15, out, out_pos), out_limit)
    out_pos = write_json_unsigned(header.flags, out, copy_text(text_table, 68, 9, out, out_pos), out_limit)
    out[out_pos] = 125
    return out_pos + 1


_HEADER_TEXTS = b'{"timestamp":,"type_code":,"server_id":,"event_size":,"end_log_pos":,"flags":' + bytes(8)


class EventKernelTables:
    """Tables and columns that the kernels need in addition to the frames, updated from batch to batch.

    `get_context`: function that returns the context of the file.
    """

    def __init__(self, get_context: Callable[[], BinlogFileContext]) -> None:
        self._get_context = get_context
        self._follower: CompiledEventTracker | None = None
        self._maps = GrowingTextTable(_encode_map_record, join_json_kernel_table_maps)
        self._sources = GrowingTextTable(_quote_source, lambda texts: build_text_table(dict(enumerate(texts))))

    def get_tracking_columns(
        self, batch: Batch, compile_kernel: Callable[[Kernel], Kernel]
    ) -> Mapping[str, Column] | None:
        """Return the columns source, number and map; None if there are too many table maps."""
        tracker = self._get_context().tracker
        if len(tracker.maps.by_id) > MAX_CACHED:
            self._follower = tracker.compiled_tracker = None
            return None
        if self._follower is None or self._follower is not tracker.compiled_tracker:
            other_follower = tracker.compiled_tracker  # of another JSON line for the same file
            self._follower = (
                other_follower
                if isinstance(other_follower, CompiledEventTracker)
                else CompiledEventTracker(tracker, compile_kernel)
            )
            tracker.compiled_tracker = self._follower
        return self._follower.get_tracking_columns(tracker.track_batch(batch))

    def build_table_map_texts(self, quote: JsonEncoder) -> bytes:
        """Return the texts of the table maps as a table for the kernels."""
        return self._maps.update_table([] if self._follower is None else self._follower.table_maps, quote)

    def make_narrow_body_member(self, column_names: frozenset[str], rows_only: bool) -> JsonMember:
        """Return a `body` member for queries that only need these columns (`JsonLine.narrow`)."""
        growing_table = GrowingTextTable(
            partial(_encode_map_record, names=column_names, rows_only=rows_only), join_json_kernel_table_maps
        )

        def narrow_map_table(quote: JsonEncoder) -> bytes:
            return growing_table.update_table([] if self._follower is None else self._follower.table_maps, quote)

        return JsonMember(write_json_body_member, _BODY_COLUMNS, table=narrow_map_table, bodies=_FREQUENT_BODIES)

    def build_gtid_source_texts(self, quote: JsonEncoder) -> bytes:
        """Return the texts before the number of a GTID as a table for the kernels, each after a quote."""
        return self._sources.update_table([] if self._follower is None else self._follower.sources, quote)


def _encode_map_record(
    table_map: TableMap, quote: JsonEncoder, names: frozenset[str] | None = None, *, rows_only: bool = False
) -> bytes:
    """Encode the record of a map; a TABLE_MAP that does not match the user's schema is left to the general writer."""
    return encode_json_kernel_table_map(table_map, quote, not table_map.uncertain, names, rows_only=rows_only)


def _quote_source(source: str | OwningTransaction, quote: JsonEncoder) -> bytes:
    return quote(source)[:-1] if isinstance(source, str) else b""


class GrowingTextTable:
    """Text table with the entries of a list that grows, and is sometimes replaced by another list.

    `encode_entry`: encodes an item of the list. `join_entries`: joins the entries into a table.
    """

    def __init__(
        self, encode_entry: Callable[[Any, JsonEncoder], bytes], join_entries: Callable[[list[bytes]], bytes]
    ) -> None:
        self._encode_entry, self._join_entries = encode_entry, join_entries
        self._source: list[Any] | None = None
        self._entries: list[bytes] = []
        self._bytes_left = 0
        self._table = b""

    def update_table(self, entries: list[Any], quote: JsonEncoder) -> bytes:
        """Return the updated table; entries beyond the memory limit are empty."""
        if entries is not self._source:
            self._source, self._entries, self._bytes_left, self._table = entries, [], _MAX_TABLE_BYTES, b""
        if len(self._entries) < len(entries) or not self._table:
            for item in entries[len(self._entries) :]:
                entry = self._encode_entry(item, quote) if self._bytes_left > 0 else b""
                self._bytes_left -= len(entry)
                self._entries.append(entry)
            self._table = self._join_entries(self._entries)
        return self._table


def make_log_json_line(context: BinlogFileContext) -> JsonLine | None:
    """Return the writer of JSON lines for a log; None if its events are encrypted and no key was given."""
    return None if context.encrypted_without_key else make_event_json_line(lambda: context)


def make_event_json_line(get_context: Callable[[], BinlogFileContext], *, inside: bool = False) -> JsonLine:
    """Create the writer of JSON lines for events.

    Args:
        get_context: function that returns the context of the file.
        inside: see `JsonLine`.
    """
    tables = EventKernelTables(get_context)
    return JsonLine(
        type=JsonMember(write_text_member, ("type_code",), texts=EVENT_TYPE_NAMES),
        seq=JsonMember(write_seq_member, ("source", "number")),
        time=JsonMember(write_time_member, ("timestamp",)),
        object=JsonMember(write_object_member, ("map",), table=tables.build_table_map_texts),
        origin=JsonMember(write_unsigned_member, ("server_id",)),
        txn=JsonMember(write_txn_member, ("source", "number"), table=tables.build_gtid_source_texts),
        body=JsonMember(
            write_json_body_member, _BODY_COLUMNS, table=tables.build_table_map_texts, bodies=_FREQUENT_BODIES
        ),
        extras=(("header", JsonMember(write_header_member, _HEADER_COLUMNS, table=lambda _quote: _HEADER_TEXTS)),),
        depth=JSON_DEPTH,
        narrow=tables.make_narrow_body_member,
        derive=tables.get_tracking_columns,
        inside=inside,
    )
