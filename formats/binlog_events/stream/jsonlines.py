"""Kernels that write the JSON lines of frequent events; all others are left to the general writer."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

from binlogtool.formats.binlog_events.codes import TYPES, EventType
from binlogtool.formats.binlog_events.events.bodies import SHOWN
from binlogtool.formats.binlog_events.events.body_kernels import body_member, record_of
from binlogtool.formats.binlog_events.groups.following import MOST, Follower
from binlogtool.formats.binlog_events.groups.tracking import Owner
from binlogtool.formats.binlog_events.rows.table_map import TableMap
from binlogtool.formats.binlog_events.rows.table_map_bytes import map_record, map_table
from binlogtool.formats.binlog_events.stream.context import FileContext
from binlogtool.formats.binlog_events.values.kernels import copy_text, word_at
from binlogtool.formats.fields import kernel
from binlogtool.formats.jsonline import JsonBodies, JsonLine, JsonMember, Quote
from binlogtool.formats.jsonnumbers import put_null, put_time, put_unsigned
from binlogtool.formats.jsontext import put_entry, text_member, text_table, unsigned_member
from binlogtool.formats.kernel_types import Int64s, MutableUInt8s, UInt8s
from binlogtool.formats.layouts import Batch, Column, Kernel

DEPTH = 8
_MOST_BYTES = 1 << 25
_BODY = ("type_code", "server_id", "body_start", "body_end", "map")
_FREQUENT = (
    EventType.QUERY, EventType.XID, EventType.GTID, EventType.GTID_LOG, EventType.ANONYMOUS_GTID,
    EventType.ANNOTATE_ROWS, EventType.ROWS_QUERY, EventType.INTVAR, EventType.RAND, EventType.XA_PREPARE,
    EventType.ROTATE, EventType.STOP, EventType.BINLOG_CHECKPOINT, EventType.BEGIN_LOAD_QUERY,
    EventType.APPEND_BLOCK, EventType.EXECUTE_LOAD_QUERY, EventType.DELETE_FILE, EventType.INCIDENT,
    EventType.HEARTBEAT, EventType.START_ENCRYPTION,
)  # fmt: skip
_BODIES = JsonBodies(
    tuple((kind.value, SHOWN[kind]) for kind in _FREQUENT),
    code="type_code", start="body_start", end="body_end", given=(("server_id", "server_id"),),
)  # fmt: skip
_HEADER = ("timestamp", "type_code", "server_id", "event_size", "end_log_pos", "flags")


@kernel(put_null, put_unsigned)
def seq_member(
    buf: UInt8s, texts: UInt8s, notes: Int64s, out: MutableUInt8s, o: int, z: int, source: int, number: int
) -> int:
    """Write the sequence number in the GTID of the transaction."""
    if source < 0:
        return put_null(out, o, z)
    return -2 if number < 0 else put_unsigned(number, out, o, z)


@kernel(put_entry, put_null, put_unsigned)
def txn_member(
    buf: UInt8s, texts: UInt8s, notes: Int64s, out: MutableUInt8s, o: int, z: int, source: int, number: int
) -> int:
    """Write the GTID of the transaction: the text of its source, and the number."""
    if source < 0:
        return put_null(out, o, z)
    if number < 0:
        return -2
    o = put_entry(texts, 0, source, out, o, z)
    if o < 0:
        return o
    if z - o < 32:
        return -1
    o = put_unsigned(number, out, o, z)
    out[o] = 34
    return o + 1


@kernel(put_null, put_time)
def time_member(buf: UInt8s, texts: UInt8s, notes: Int64s, out: MutableUInt8s, o: int, z: int, seconds: int) -> int:
    """Write the timestamp of the header; null for 0."""
    return put_null(out, o, z) if seconds == 0 else put_time(seconds * 1000000, out, o, z)


@kernel(copy_text, put_null, record_of, word_at)
def object_member(buf: UInt8s, texts: UInt8s, notes: Int64s, out: MutableUInt8s, o: int, z: int, number: int) -> int:
    """Write the name of the table."""
    if number < 0:
        return put_null(out, o, z)
    record = record_of(texts, number)
    if record == 0:
        return -2
    size = word_at(texts, record + 12)
    if z - o < size + 8:
        return -1
    return copy_text(texts, record + word_at(texts, record + 8), size, out, o)


class EventHeader(NamedTuple):
    """The common header of an event."""

    timestamp: int
    code: int
    server: int
    size: int
    position: int
    flags: int


@kernel(put_unsigned, copy_text)
def header_member(
    buf: UInt8s, texts: UInt8s, notes: Int64s, out: MutableUInt8s, o: int, z: int, header: EventHeader
) -> int:
    """Write the common header."""
    if z - o < 256:
        return -1
    o = put_unsigned(header.timestamp, out, copy_text(texts, 0, 13, out, o), z)
    o = put_unsigned(header.code, out, copy_text(texts, 13, 13, out, o), z)
    o = put_unsigned(header.server, out, copy_text(texts, 26, 13, out, o), z)
    o = put_unsigned(header.size, out, copy_text(texts, 39, 14, out, o), z)
    o = put_unsigned(header.position, out, copy_text(texts, 53, 15, out, o), z)
    o = put_unsigned(header.flags, out, copy_text(texts, 68, 9, out, o), z)
    out[o] = 125
    return o + 1


_HEADER_TEXTS = b'{"timestamp":,"type_code":,"server_id":,"event_size":,"end_log_pos":,"flags":' + bytes(8)


def header_texts(_quote: Quote) -> bytes:
    """Return the text table of `put_header_member`."""
    return _HEADER_TEXTS


class Tables:
    """Tables and columns that the kernels need in addition to the frames, updated from batch to batch.

    Args:
        get_context: returns the context of the file.
    """

    def __init__(self, current: Callable[[], FileContext]) -> None:
        self._current = current
        self._follower: Follower | None = None
        self._maps = Grown(self._map_record, self._map_table)
        self._sources = Grown(_source_text, self._source_table)

    def derive(self, batch: Batch, compile_: Callable[[Kernel], Kernel]) -> Mapping[str, Column] | None:
        """Return the columns source, number and map; None if there are too many table maps."""
        tracker = self._current().tracker
        if len(tracker.maps.by_id) > MOST:
            self._follower = tracker.follower = None
            return None
        if self._follower is None or self._follower is not tracker.follower:
            shared = tracker.follower  # of another line for the same file
            self._follower = shared if isinstance(shared, Follower) else Follower(tracker, compile_)
            tracker.follower = self._follower
        return self._follower.columns(tracker.notes(batch))

    def maps(self, quote: Quote) -> bytes:
        """Return the table of the maps."""
        return self._maps.table([] if self._follower is None else self._follower.maps, quote)

    def narrow(self, names: frozenset[str], rows_only: bool) -> JsonMember:
        """See `JsonLine.narrow`."""

        def record(known: TableMap, quote: Quote) -> bytes:
            return map_record(known, quote, self._is_fit(known), names, rows_only=rows_only)

        grown = Grown(record, self._map_table)

        def maps(quote: Quote) -> bytes:
            return grown.table([] if self._follower is None else self._follower.maps, quote)

        return JsonMember(body_member, _BODY, table=maps, bodies=_BODIES)

    def sources(self, quote: Quote) -> bytes:
        """Return the table of the texts before the number of a GTID, each after a quote."""
        return self._sources.table([] if self._follower is None else self._follower.sources, quote)

    def _map_record(self, known: TableMap, quote: Quote) -> bytes:
        """Encode the record of a map; the general writer reports a map that does not match the user's schema."""
        return map_record(known, quote, self._is_fit(known))

    def _is_fit(self, known: TableMap) -> bool:
        return not known.uncertain

    @staticmethod
    def _map_table(records: list[bytes]) -> bytes:
        return map_table(records)

    @staticmethod
    def _source_table(texts: list[bytes]) -> bytes:
        return text_table(dict(enumerate(texts)))


def _source_text(source: str | Owner, quote: Quote) -> bytes:
    return quote(source)[:-1] if isinstance(source, str) else b""


class Grown:
    """A text table of the entries of a list that grows, and is sometimes replaced by another list.

    Args:
        encode_entry: encodes an item of the list.
        join_entries: joins the entries to a table.
    """

    def __init__(self, entry: Callable[[Any, Quote], bytes], joined: Callable[[list[bytes]], bytes]) -> None:
        self._entry, self._joined = entry, joined
        self._source: list[Any] | None = None
        self._entries: list[bytes] = []
        self._room = 0
        self._table = b""

    def table(self, source: list[Any], quote: Quote) -> bytes:
        """Return the table; entries beyond the memory limit are empty."""
        if source is not self._source:
            self._source, self._entries, self._room, self._table = source, [], _MOST_BYTES, b""
        if len(self._entries) < len(source) or not self._table:
            for one in source[len(self._entries) :]:
                entry = self._entry(one, quote) if self._room > 0 else b""
                self._room -= len(entry)
                self._entries.append(entry)
            self._table = self._joined(self._entries)
        return self._table


def json_line(context: FileContext) -> JsonLine | None:
    """Return the JSON line of a log; None if its events are encrypted and no key was given."""
    return None if context.sealed else event_line(lambda: context)


def event_line(current: Callable[[], FileContext], *, inside: bool = False) -> JsonLine:
    """Create the JSON line of events.

    Args:
        get_context: returns the context of the file.
        inside: see `JsonLine`.
    """
    tables = Tables(current)
    return JsonLine(
        type=JsonMember(text_member, ("type_code",), texts=TYPES),
        seq=JsonMember(seq_member, ("source", "number")),
        time=JsonMember(time_member, ("timestamp",)),
        object=JsonMember(object_member, ("map",), table=tables.maps),
        origin=JsonMember(unsigned_member, ("server_id",)),
        txn=JsonMember(txn_member, ("source", "number"), table=tables.sources),
        body=JsonMember(body_member, _BODY, table=tables.maps, bodies=_BODIES),
        extras=(("header", JsonMember(header_member, _HEADER, table=header_texts)),),
        depth=DEPTH,
        narrow=tables.narrow,
        derive=tables.derive,
        inside=inside,
    )
