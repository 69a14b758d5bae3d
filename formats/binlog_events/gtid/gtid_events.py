"""GTID events of MySQL and MariaDB: schemas, values, JSON.

Each reader raises `MalformedError` if the body is not valid for its type. In GTID_TAGGED_LOG the number of trailing
1-bits in a number's first byte is the number of further bytes; the bits above them and the next 0-bit are its value. A
first byte of 0xff means that eight further bytes hold the whole value. Source: docs/spec/mysql_binlog.md#event-bodies.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any, NamedTuple

from construct import (
    Array,
    Bytes,
    BytesInteger,
    Computed,
    Construct,
    FlagsEnum,
    GreedyBytes,
    If,
    IfThenElse,
    Int8ul,
    Int32sl,
    Int32ul,
    Int64sl,
    Int64ul,
    Struct,
    stream_read,
    stream_write,
    this,
)

from binlogtool.format_api.schema_fields import (
    BoundedCount,
    FieldPresent,
    HiddenField,
    HighBitInt,
    HighBitSet,
    IfBytesLeft,
    MalformedError,
    PeekInt,
    ScalarKernel,
    SplitInt,
    TextField,
    TracePart,
    Uuid,
    ZeroMeansAbsent,
    decode_text,
    format_uuid,
    get_fixed_field_offset,
    make_fields_decoder,
    make_fields_kernel,
    make_flag_condition,
    make_integer_decoder,
    make_list_decoder,
    make_truncation_error,
    make_tuple_decoder,
    uuid_of,
)
from binlogtool.formats.binlog_events.wire_format import EventType, Lenenc, load_lenenc
from binlogtool.limits import Limits

# --- GTID_TAGGED_LOG ---

FIELD_NAMES = (
    "flags", "uuid", "gno", "tag", "last_committed", "sequence_number", "immediate_commit_timestamp",
    "original_commit_timestamp", "transaction_length", "immediate_server_version", "original_server_version",
    "commit_group_ticket",
)  # fmt: skip
"""Field names by field id."""

UUID, GNO, TAG = 1, 2, 3
_LAST_FIELD = len(FIELD_NAMES) - 1
SIGNED_FIELDS = (2, 4, 5)
"""Ids of zig-zag numbers, whose lowest bit is the sign."""
HEADER_FIELDS = ("format_version", "message_size", "last_non_ignorable_field")
MAX_TAG_SIZE = 32
"""Maximum number of characters of a tag."""

_NUMBER_SIZES = tuple(9 if byte == 0xFF else (~byte & byte + 1).bit_length() for byte in range(256))
"""Size of a number in bytes, by its first byte."""


def read_unsigned_varint(data: bytes, at: int, end: int) -> tuple[int, int]:
    """Read the unsigned number at `data[at]`; return (value, end position).

    Raises:
        MalformedError: the number is cut off by `end`.
    """
    if at >= end:
        raise make_truncation_error("a number", 1, 0)
    first = data[at]
    if not first & 1:
        return first >> 1, at + 1
    size = _NUMBER_SIZES[first]
    stop = at + size
    if stop > end:
        raise make_truncation_error("a number", size, end - at)
    if size == 9:
        return int.from_bytes(data[at + 1 : stop], "little"), stop
    return int.from_bytes(data[at:stop], "little") >> size, stop


def read_uuid_of_varints(data: bytes, at: int, end: int) -> tuple[bytes, int]:
    """Read a UUID stored as 16 numbers of at most 255 each; return (bytes, end position)."""
    sid = bytearray()
    for _ in range(16):
        if at < end and not data[at] & 1:
            sid.append(data[at] >> 1)
            at += 1
            continue
        value, at = read_unsigned_varint(data, at, end)
        if value > 255:
            raise MalformedError(f"{value} is not a byte of a UUID", finding_id="varint-overlong")
        sid.append(value)
    return bytes(sid), at


def read_gtid_tag_size(data: bytes, at: int, end: int) -> tuple[int, int]:
    """Read the length of a tag. Raises MalformedError: it is cut off by `end`, or greater than a tag may be."""
    size, at = read_unsigned_varint(data, at, end)
    if size > MAX_TAG_SIZE:
        raise MalformedError(f"a tag of {size:,} characters", finding_id="length-out-of-bounds")
    return size, at


def read_gtid_tag(data: bytes, at: int, end: int) -> tuple[bytes, int]:
    """Read a tag: its length, then its characters."""
    size, at = read_gtid_tag_size(data, at, end)
    if at + size > end:
        raise make_truncation_error("a tag", size, end - at)
    return data[at : at + size], at + size


def read_tagged_gtid_message(message: bytes) -> list[Any]:
    """Read the values by field id, None for missing fields: numbers, `uuid` as 16 bytes, `tag` as bytes.

    Fields after an unknown, ignorable field are omitted.

    Raises:
        MalformedError: the bytes are not such a message.
    """
    values: list[Any] = [None] * len(FIELD_NAMES)
    *_, (_, at, last) = _iter_message_header(message, 0, len(message))
    for id_, _, value, _ in _iter_message_fields(message, at, len(message), last):
        if id_ <= _LAST_FIELD:
            values[id_] = value
    return values


def _iter_message_header(data: bytes, start: int, end: int) -> Iterator[tuple[str, int, int]]:
    """Yield (name, end position, value) of the numbers before the fields."""
    at = start
    for name in HEADER_FIELDS:
        value, at = read_unsigned_varint(data, at, end)
        yield name, at, value
        if name == "message_size" and value != end - start:
            text_ = f"the message declares {value:,} bytes, the event has {end - start:,}"
            raise MalformedError(text_, finding_id="length-out-of-bounds")


def _iter_message_fields(
    data: bytes, at: int, end: int, last_required_field: int
) -> Iterator[tuple[int, int, Any, int]]:
    """Yield (id, position of the value, value, end position) of each field.

    The last one may be unknown: its value is all bytes from its id on. Fields up to `last_required_field` must be
    known.
    """
    before = -1
    while at < end:
        first = data[at]
        id_, start = read_unsigned_varint(data, at, end) if first & 1 else (first >> 1, at + 1)
        if id_ <= before:
            raise MalformedError(f"field {id_} follows field {before}")
        if id_ > _LAST_FIELD:
            if id_ <= last_required_field:
                raise MalformedError(
                    f"field {id_} is unknown, and marked as not ignorable", finding_id="unsupported-version"
                )
            yield id_, start, data[at:end], end
            return
        value: Any
        if id_ == UUID:
            value, at = read_uuid_of_varints(data, start, end)
        elif id_ == TAG:
            value, at = read_gtid_tag(data, start, end)
        else:
            value, at = read_unsigned_varint(data, start, end)
            value = value >> 1 ^ -(value & 1) if id_ in SIGNED_FIELDS else value
        yield id_, start, value, at
        before = id_


class TaggedGtidMessage(Construct):  # type: ignore[misc]
    """Construct of the body of GTID_TAGGED_LOG; its value is a dictionary of fields, `bytes_` keeps the message."""

    def _parse(self, stream: Any, context: Any, path: str) -> TaggedGtidFields:
        data = stream.read()
        values = read_tagged_gtid_message(data)
        named = TaggedGtidFields(
            {
                FIELD_NAMES[id_]: _field_value_for_display(id_, value)
                for id_, value in enumerate(values)
                if value is not None
            }
        )
        named.bytes_ = data
        return named

    def _build(self, obj: TaggedGtidFields, stream: Any, context: Any, path: str) -> TaggedGtidFields:
        stream_write(stream, obj.bytes_, len(obj.bytes_), path)
        return obj

    def trace_rows(self, data: bytes, start: int, end: int, limits: Limits) -> Iterator[TracePart]:
        """Yield the header fields, then each field with its id and value."""
        at, last = start, 0
        for name, stop, last in _iter_message_header(data, start, end):
            yield TracePart(f".{name}", 1, at, stop, last)
            at = stop
        for id_, value_at, value, stop in _iter_message_fields(data, at, end, last):
            if id_ > _LAST_FIELD:
                yield TracePart(".ignorable", 1, at, stop, value)
                return
            name = FIELD_NAMES[id_]
            yield TracePart(f".{name}", 1, at, None)
            yield TracePart(f".{name}.id", 2, at, value_at, id_)
            yield TracePart(f".{name}.value", 2, value_at, stop, _field_value_for_display(id_, value))
            at = stop


class TaggedGtidFields(dict[str, Any]):
    """Fields of a message by name, in order; `bytes_`: the message."""

    bytes_: bytes


def _field_value_for_display(field_id: int, value: Any) -> Any:
    """Return a field value for display."""
    if field_id == UUID:
        return format_uuid(value)
    return decode_text(value) if field_id == TAG else value


class UnsignedVarint(Construct):  # type: ignore[misc]
    """Construct of one unsigned number of this encoding; it builds the shortest form."""

    scan = ScalarKernel(read_unsigned_varint)

    def _parse(self, stream: Any, context: Any, path: str) -> int:
        data = stream_read(stream, 1, path)
        data += stream_read(stream, _NUMBER_SIZES[data[0]] - 1, path)
        return self.scan.read(data, 0, len(data))[0]

    def _build(self, obj: int, stream: Any, context: Any, path: str) -> int:
        data = encode_unsigned_varint(obj)
        stream_write(stream, data, len(data), path)
        return obj


class GtidTagSize(UnsignedVarint):
    """Construct of the length of a tag."""

    scan = ScalarKernel(read_gtid_tag_size)


def encode_unsigned_varint(value: int) -> bytes:
    """Return the shortest form of an unsigned number."""
    size = max(1, (value.bit_length() + 6) // 7)
    if size > 8:
        return b"\xff" + value.to_bytes(8, "little")
    return (value << size | (1 << size - 1) - 1).to_bytes(size, "little")


# --- Schemas of the GTID events ---

# -- GTIDs of MySQL ----------------------------------------------------------------------------------------------------


def _original_or_immediate(immediate: str, original: Construct) -> Construct:
    """Return the field of the original server, which is only stored if it differs from the immediate one."""
    return If(FieldPresent(immediate), IfThenElse(HighBitSet(immediate), original, Computed(this[immediate])))


GTID_LOG = Struct(
    "flags" / FlagsEnum(Int8ul, MAY_HAVE_SBR=1),
    "sid" / Uuid(),
    "gno" / Int64sl,
    "lt_type" / IfBytesLeft(Int8ul),
    "last_committed" / If(FieldPresent("lt_type"), Int64sl),
    "sequence_number" / If(FieldPresent("lt_type"), Int64sl),
    "immediate_commit_timestamp" / IfBytesLeft(HighBitInt(7)),
    "original_commit_timestamp" / _original_or_immediate("immediate_commit_timestamp", BytesInteger(7, swapped=True)),
    "transaction_length" / IfBytesLeft(Lenenc()),
    "immediate_server_version" / IfBytesLeft(HighBitInt(4)),
    "original_server_version" / _original_or_immediate("immediate_server_version", Int32ul),
    "commit_group_ticket" / IfBytesLeft(Int64ul),
)
"""GTID_LOG: in MySQL 5.6 it ends after gno, in 5.7 after sequence_number, in 8.0 after a server version."""

GTID_TAGGED_LOG = Struct("message" / TaggedGtidMessage())


_SOURCE = Struct(
    "sid" / Uuid(),
    "tag_len" / HiddenField(IfThenElse(this._.tagged, GtidTagSize(), Computed(0))),
    "tag" / TextField(Bytes(this.tag_len)),
    "n_intervals" / BoundedCount(Int64ul, 16, "intervals"),
    "intervals" / Array(this.n_intervals, Struct("start" / Int64sl, "end" / Int64sl)),
)

PREVIOUS_GTIDS = Struct(
    "head" / PeekInt(Int64ul),
    "tagged" / HiddenField(Computed((this.head & 0xFF == 1) & (this.head >> 56 == 1))),
    "format" / HiddenField(If(this.tagged, Int8ul)),
    "n_sids"
    / IfThenElse(
        this.tagged, BoundedCount(BytesInteger(6, swapped=True), 25, "sources"), BoundedCount(Int64ul, 24, "sources")
    ),
    "format_end" / HiddenField(If(this.tagged, Int8ul)),
    "sids" / Array(this.n_sids, _SOURCE),
)
"""PREVIOUS_GTIDS: with tags, the number of sources has six bytes, with a byte 1 before and after it."""

# -- GTIDs of MariaDB --------------------------------------------------------------------------------------------------


GTID = Struct(
    "seq_no" / Int64ul,
    "domain_id" / Int32ul,
    "flags2"
    / FlagsEnum(
        Int8ul, STANDALONE=1, GROUP_COMMIT_ID=2, TRANSACTIONAL=4, ALLOW_PARALLEL=8, WAITED=16, DDL=32,
        PREPARED_XA=64, COMPLETED_XA=128,
    ),
    "commit_id" / If(make_flag_condition("flags2", "GROUP_COMMIT_ID"), Int64ul),
    "xid"
    / If(
        make_flag_condition("flags2", "PREPARED_XA", "COMPLETED_XA"),
        Struct(
            "format_id" / Int32sl,
            "gtrid_len" / HiddenField(Int8ul),
            "bqual_len" / HiddenField(Int8ul),
            "gtrid" / TextField(Bytes(this.gtrid_len)),
            "bqual" / TextField(Bytes(this.bqual_len)),
        ),
    ),
    "flags_extra"
    / ZeroMeansAbsent(
        IfBytesLeft(FlagsEnum(Int8ul, MULTI_ENGINE=1, START_ALTER=2, COMMIT_ALTER=4, ROLLBACK_ALTER=8, THREAD_ID=16))
    ),
    "extra_engines" / If(make_flag_condition("flags_extra", "MULTI_ENGINE"), Int8ul),
    "start_alter_seq" / If(make_flag_condition("flags_extra", "COMMIT_ALTER", "ROLLBACK_ALTER"), Int64ul),
    "thread_id" / If(make_flag_condition("flags_extra", "THREAD_ID"), Int32ul),
    "padding" / HiddenField(IfBytesLeft(GreedyBytes)),
)  # fmt: skip

_LISTED = Struct("domain_id" / Int32ul, "server_id" / Int32ul, "seq_no" / Int64ul)

_COUNT_BITS = 28

GTID_LIST = Struct(
    "head" / PeekInt(Int32ul),
    "flags" / Computed(this.head >> _COUNT_BITS),
    "count" / BoundedCount(SplitInt(4, _COUNT_BITS), 16, "GTIDs"),
    "list" / Array(this.count, _LISTED),
    "padding" / HiddenField(IfBytesLeft(GreedyBytes)),
)


# --- Readers of the bodies of GTID events for kernels ---

SEQ_NO, DOMAIN_ID, FLAGS2, COMMIT_ID = (
    get_fixed_field_offset(GTID, name) for name in ("seq_no", "domain_id", "flags2", "commit_id")
)
"""Offsets in MariaDB's GTID."""

load_mariadb_gtid = make_fields_kernel(GTID, "seq_no", "domain_id", "flags2", "commit_id")
load_mariadb_gtid_flags = make_fields_kernel(GTID, "flags2", "flags_extra", "thread_id")
load_mysql_gtid = make_fields_kernel(GTID_LOG, "sid", "gno")
load_logical_clock = make_fields_kernel(
    GTID_LOG, "lt_type", "last_committed", "sequence_number", "transaction_length", uses=(load_lenenc,)
)
load_commit_time = make_fields_kernel(GTID_LOG, "original_commit_timestamp", "commit_group_ticket", uses=(load_lenenc,))
"""It refuses a body that is not complete up to its last field."""
load_server_versions = make_fields_kernel(
    GTID_LOG, "original_commit_timestamp", "immediate_server_version", "original_server_version", uses=(load_lenenc,)
)


# --- GTID event bodies and GTID sets as values ---

GROUP_COMMIT_ID, ALLOW_PARALLEL, DDL, PREPARED_XA, COMPLETED_XA = 2, 8, 32, 64, 128
_MARIADB_CODE, _PLAIN_CODE, _TAGGED_CODE = (
    EventType.GTID.value,
    EventType.GTID_LOG.value,
    EventType.GTID_TAGGED_LOG.value,
)
_new_tuple = tuple.__new__


class MysqlGtid(NamedTuple):
    """Fields of GTID_LOG, ANONYMOUS_GTID or GTID_TAGGED_LOG; None if the server did not write the field.

    Times are microseconds. `sid`: the UUID's 16 bytes. `original_commit_timestamp`, `original_server_version`: equal to
    the immediate values if only those are stored. `transaction_length`: bytes from the start of this event to the end
    of the transaction.
    """

    flags: int
    sid: bytes
    gno: int
    tag: bytes = b""
    lt_type: int | None = None
    last_committed: int | None = None
    sequence_number: int | None = None
    immediate_commit_timestamp: int | None = None
    original_commit_timestamp: int | None = None
    transaction_length: int | None = None
    immediate_server_version: int | None = None
    original_server_version: int | None = None
    commit_group_ticket: int | None = None

    @property
    def source(self) -> str:
        """Source as text: `uuid` or `uuid:tag`."""
        return format_gtid_source(self.sid, self.tag)


class MariadbGtid(NamedTuple):
    """Fields of MariaDB's GTID event; None if the flags say that a field is absent."""

    seq_no: int
    domain_id: int
    flags2: int
    commit_id: int | None = None
    format_id: int | None = None
    gtrid: bytes | None = None
    bqual: bytes | None = None
    flags_extra: int | None = None
    extra_engines: int | None = None
    start_alter_seq: int | None = None
    thread_id: int | None = None


class PreviousGtidsOfSource(NamedTuple):
    """Numbers of one source in PREVIOUS_GTIDS, as half-open intervals."""

    sid: bytes
    tag: bytes
    intervals: tuple[tuple[int, int], ...]


class ListedGtid(NamedTuple):
    """One entry of GTID_LIST."""

    domain_id: int
    server_id: int
    seq_no: int


def format_gtid_source(sid: bytes, tag: bytes) -> str:
    """Return `uuid` or `uuid:tag`."""
    return f"{uuid_of(sid)}:{tag.decode('utf-8', 'backslashreplace')}" if tag else uuid_of(sid)


# -- MySQL -------------------------------------------------------------------------------------------------------------


_read_mysql_gtid = make_fields_decoder(GTID_LOG, MysqlGtid)


def read_mysql_gtid(type_code: int, body: bytes) -> MysqlGtid:
    """Read the fields of GTID_LOG, ANONYMOUS_GTID and GTID_TAGGED_LOG.

    Raises:
        MalformedError: the body is truncated or is not such an event.
    """
    return read_tagged_gtid(body) if type_code == _TAGGED_CODE else _read_mysql_gtid(body)


def read_tagged_gtid(body: bytes) -> MysqlGtid:
    """Read the fields of GTID_TAGGED_LOG. Raises MalformedError: the body is not such a message, or has no GTID."""
    flags, sid, gno, tag, last, number, immediate, original, length, version, first, ticket = read_tagged_gtid_message(
        body
    )
    if sid is None or gno is None:
        raise MalformedError("the message has no GTID")
    return _new_tuple(
        MysqlGtid,
        (flags or 0, sid, gno, tag or b"", None, last, number, immediate, immediate if original is None else original,
         length, version, version if first is None else first, ticket),
    )  # fmt: skip


read_previous_gtids = make_list_decoder(PREVIOUS_GTIDS, "sids", PreviousGtidsOfSource)
"""Reads the set in a PREVIOUS_GTIDS event, in stored order."""


def find_impossible_interval(sources: Iterable[PreviousGtidsOfSource]) -> tuple[str, tuple[int, int]] | None:
    """Return the source and the first interval that MySQL does not decode (`Gtid_set::add_gtid_encoding`); or None.

    Numbers begin with 1, and the intervals of a source ascend with a gap between them.
    """
    for source in sources:
        last = 0
        for interval in source.intervals:
            if interval[0] <= last or interval[1] <= interval[0]:
                return format_gtid_source(source.sid, source.tag), interval
            last = interval[1]
    return None


def format_previous_gtids(sources: Iterable[PreviousGtidsOfSource]) -> str:
    """Return a set in MySQL's form "uuid:1-5:7, uuid:tag:1-3"; intervals include their last number."""
    return ", ".join(
        ":".join([format_gtid_source(one.sid, one.tag), *(format_range(*interval) for interval in one.intervals)])
        for one in sources
    )


def format_range(start: int, stop: int, separator: str = "-") -> str:
    """Return the half-open interval `[start, stop)` as "1-5" or "7"."""
    return str(start) if stop == start + 1 else f"{start}{separator}{stop - 1}"


# -- MariaDB -----------------------------------------------------------------------------------------------------------


read_mariadb_gtid = make_fields_decoder(GTID, MariadbGtid)
read_gtid_list_flags = make_integer_decoder(GTID_LIST, "flags")
read_gtid_list = make_list_decoder(GTID_LIST, "list", ListedGtid)
"""Reads the entries of a GTID_LIST event, in stored order."""


# -- MySQL and MariaDB -------------------------------------------------------------------------------------------------


_read_mysql_number = make_tuple_decoder(GTID_LOG, "sid", "gno")
read_mariadb_number = make_tuple_decoder(GTID, "domain_id", "seq_no")


def read_gtid_source_and_number(type_code: int, server_id: int, body: bytes) -> tuple[str, int] | None:
    """Return (source, number): ("uuid", 7), ("uuid:tag", 7) or ("0-1", 42); None for ANONYMOUS_GTID and other types.

    Args:
        server_id: from the common header; MariaDB's GTID takes its middle number from it.

    Raises:
        MalformedError: the body is truncated.
    """
    if type_code == _MARIADB_CODE:
        domain_id, seq_no = read_mariadb_number(body)
        return f"{domain_id}-{server_id}", seq_no
    if type_code == _PLAIN_CODE:
        sid, gno = _read_mysql_number(body)
        return uuid_of(sid), gno
    if type_code == _TAGGED_CODE:
        fields = read_tagged_gtid(body)
        return fields.source, fields.gno
    return None


def read_gtid_text(type_code: int, server_id: int, body: bytes) -> str | None:
    """Return `0-1-42`, `uuid:7` or `uuid:tag:7`; None for ANONYMOUS_GTID and other types.

    Raises:
        MalformedError: the body is truncated.
    """
    numbers = read_gtid_source_and_number(type_code, server_id, body)
    return None if numbers is None else format_gtid(type_code, *numbers)


def format_gtid(type_code: int, source: str, number: int) -> str:
    """Return the text of a GTID from its source and number."""
    return f"{source}-{number}" if type_code == _MARIADB_CODE else f"{source}:{number}"


# --- GTID events as JSON values ---


def decode_tagged_gtid(body: bytes) -> dict[str, Any]:
    """Decode GTID_TAGGED_LOG; fields that the server did not write are omitted."""
    flags, sid, gno, tag, _, last, number, immediate, original, length, version, first, ticket = read_tagged_gtid(body)
    result: dict[str, Any] = {
        "gtid": f"{format_gtid_source(sid, tag)}:{gno}",
        "flags": flags,
        "sid": uuid_of(sid),
        "gno": gno,
    }
    if tag:
        result["tag"] = decode_text(tag)
    if last is not None:
        result["last_committed"], result["sequence_number"] = last, number
    if immediate is not None:
        result["immediate_commit_timestamp"], result["original_commit_timestamp"] = immediate, original
    if length is not None:
        result["transaction_length"] = length
    if version is not None:
        result["immediate_server_version"], result["original_server_version"] = version, first
    if ticket is not None:
        result["commit_group_ticket"] = ticket
    return result


def decode_previous_gtids(body: bytes) -> dict[str, Any]:
    """Decode PREVIOUS_GTIDS: the set as text, and its sources with half-open intervals."""
    sources = read_previous_gtids(body)
    listed = []
    for sid, tag, intervals in sources:
        entry: dict[str, Any] = {"sid": uuid_of(sid)}
        if tag:
            entry["tag"] = decode_text(tag)
        listed.append(entry | {"intervals": [list(interval) for interval in intervals]})
    return {"gtids": format_previous_gtids(sources), "sids": listed}


def decode_gtid_list(body: bytes) -> dict[str, Any]:
    """Decode GTID_LIST: the list as text, and its entries."""
    entries = read_gtid_list(body)
    return {
        "gtids": ",".join(f"{domain}-{server}-{number}" for domain, server, number in entries),
        "flags": read_gtid_list_flags(body),
        "list": [{"domain_id": domain, "server_id": server, "seq_no": number} for domain, server, number in entries],
    }
