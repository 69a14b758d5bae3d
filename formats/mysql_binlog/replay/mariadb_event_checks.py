"""Check damaged events as MariaDB's reader does: `Log_event::read_log_event` and `is_valid` of each event class.

Crash recovery ends at the first event that the reader does not accept. The rules are those that SHOW BINLOG EVENTS of
MariaDB 10.11 and 11.8 shows for made events.
"""

from __future__ import annotations

import zlib

from binlogtool.format_api.schema_fields import DecompressionError, MalformedError
from binlogtool.formats.binlog_events.event_schemas import decode_body, parse_load_file, parse_load_query
from binlogtool.formats.binlog_events.rows.rows_event import parse_rows_head
from binlogtool.formats.binlog_events.rows.table_map import get_metadata_size
from binlogtool.formats.binlog_events.values.column_types import ColumnType
from binlogtool.formats.binlog_events.wire_format import (
    COMPRESSED_ROW_EVENTS,
    EventType,
    FormatDescription,
    load_compressed_block_head,
    read_lenenc,
)
from binlogtool.formats.binlog_events.write_mariadb_binlog import POST_HEADER_SIZES
from binlogtool.formats.mysql_binlog.validate.event_rules import XA_PREPARE_FIXED_SIZE, explain_unreadable_xa_id
from binlogtool.limits import Limits

_T = EventType
_ALWAYS_ACCEPTED = frozenset({_T.INTVAR, _T.RAND, _T.ANNOTATE_ROWS})
"""Events whose bodies MariaDB does not check."""

_CHECKED_BY_DECODER = frozenset(
    {
        _T.QUERY, _T.ROTATE, _T.BEGIN_LOAD_QUERY, _T.EXECUTE_LOAD_QUERY, _T.INCIDENT, _T.GTID,
        _T.GTID_LIST, _T.WRITE_ROWS_V1, _T.UPDATE_ROWS_V1, _T.DELETE_ROWS_V1, _T.WRITE_ROWS_COMPRESSED_V1,
        _T.UPDATE_ROWS_COMPRESSED_V1, _T.DELETE_ROWS_COMPRESSED_V1,
    }
)  # fmt: skip
"""Events that MariaDB refuses if their fields exceed the event."""

_LAST_GTID_FIELDS = ("extra_engines", "start_alter_seq", "thread_id")
"""Last fields of a GTID event. If they exceed the event, MariaDB 10.11 was seen to read on, and 11.8 to stop."""
_GTID_SIZE, _LISTED_GTID_SIZE, _GTID_COUNT_MASK = 19, 16, (1 << 28) - 1
_PIECE_BYTES = 1 << 20
_MAX_DUP_HANDLING = 2
_UNCHECKED_METADATA = frozenset((ColumnType.BLOB_COMPRESSED, ColumnType.VARCHAR_COMPRESSED, ColumnType.VECTOR))
"""Types of columns whose metadata MariaDB's reader does not count."""


def is_event_accepted(type_code: int, body: bytes, description: FormatDescription) -> bool | None:
    """Return whether MariaDB's reader accepts a damaged event of a type that it knows; None if that is uncertain."""
    accepted = is_fixed_size_accepted(type_code, body, description)
    if not accepted or type_code in _ALWAYS_ACCEPTED:
        return accepted
    if type_code == _T.BINLOG_CHECKPOINT:
        return len(body) >= 4 and 4 + int.from_bytes(body[:4], "little") <= len(body)
    if type_code == _T.XA_PREPARE:
        return len(body) >= XA_PREPARE_FIXED_SIZE and explain_unreadable_xa_id(body) is None
    if type_code == _T.TABLE_MAP:
        return _is_table_map_accepted(body, description)
    try:
        decode_body(type_code, body, description)
        if type_code in COMPRESSED_ROW_EVENTS:
            images_at = parse_rows_head(type_code, body, description.table_id_size).images_at
            return _is_unpackable(body[images_at:], Limits().max_inflate)
    except DecompressionError:
        return None
    except MalformedError as error:
        if type_code == _T.GTID and str(error).startswith(_LAST_GTID_FIELDS):
            return None
        return False if type_code in _CHECKED_BY_DECODER else None
    if type_code == _T.GTID:
        return len(body) >= _GTID_SIZE and any(body[:8])
    if type_code == _T.INCIDENT:
        return body[:2] == b"\1\0"
    return type_code != _T.EXECUTE_LOAD_QUERY or _is_load_file_name_accepted(body)


def is_fixed_size_accepted(type_code: int, body: bytes, description: FormatDescription) -> bool | None:
    """Return whether the reader accepts an event whose fixed part has the size that FORMAT_DESCRIPTION declares.

    None if the size is not the usual one, and the reader may accept it.
    """
    size, usual_size = description.get_post_header_bytes(type_code), POST_HEADER_SIZES.get(type_code, 0)
    if size == usual_size or type_code in _ALWAYS_ACCEPTED or type_code == _T.FORMAT_DESCRIPTION:
        return True  # FORMAT_DESCRIPTION has one byte for each type that its version knows
    if type_code in (_T.GTID, _T.BINLOG_CHECKPOINT, _T.GTID_LIST) and not usual_size <= size <= len(body):
        return False
    if type_code == _T.GTID:
        return True
    if type_code == _T.BINLOG_CHECKPOINT:
        return int.from_bytes(body[:4], "little") <= len(body) - size
    if type_code == _T.GTID_LIST:
        count = int.from_bytes(body[:4], "little") & _GTID_COUNT_MASK
        return count * _LISTED_GTID_SIZE <= len(body) - size
    return None


def _is_table_map_accepted(body: bytes, description: FormatDescription) -> bool:
    """Return whether the names and types of a TABLE_MAP, and its metadata if it has any, are inside the event.

    Neither the zero bytes after the names nor the optional metadata are checked.
    """
    at = description.table_id_size + 2
    for _ in ("database", "table"):
        if at >= len(body):
            return False
        at += body[at] + 2
    try:
        count, at = read_lenenc(body, at, len(body))
        types = body[at : at + count]
        at += count
        if at >= len(body):
            return at == len(body)
        size, at = read_lenenc(body, at, len(body))
    except MalformedError:
        return False
    needed = sum(get_metadata_size(one) for one in types if one not in _UNCHECKED_METADATA)
    return needed <= size and at + size + (count + 7) // 8 <= len(body)


def _is_load_file_name_accepted(body: bytes) -> bool:
    """Return whether the file name of an EXECUTE_LOAD_QUERY is inside its text, and its way of duplicates is known."""
    text_size = len(parse_load_query(body).sql)
    _, start, end, duplicates = parse_load_file(body)
    return bool(start <= text_size and end <= text_size and duplicates <= _MAX_DUP_HANDLING)


def _is_unpackable(block: bytes, max_bytes: int) -> bool | None:
    """Return whether zlib unpacks a block to at most its declared size; bytes after the stream are ignored.

    None if it declares more than a limit.
    """
    declared, at = load_compressed_block_head(block, 0, len(block))
    if at < 0:
        return False
    if declared > max_bytes:
        return None
    unpacker, size, packed = zlib.decompressobj(), 0, block[at:]
    try:
        while not unpacker.eof and size <= declared:
            piece = unpacker.decompress(packed, _PIECE_BYTES)
            size, packed = size + len(piece), unpacker.unconsumed_tail
            if not piece and not packed:
                return False
    except zlib.error:
        return False
    return size <= declared
