"""Bodies of the GTID events as values (specification section 5): MySQL's and MariaDB's, and the sets."""

from __future__ import annotations

import struct
from collections.abc import Iterable
from typing import NamedTuple

from binlogtool.formats.binlog_events.codes import EventType
from binlogtool.formats.binlog_events.gtid.tagged import read_message, read_tag, uuid_of
from binlogtool.formats.binlog_events.wire.fields import cut, read_lenenc, too_many
from binlogtool.formats.fields import MalformedError

_PLAIN = struct.Struct("<B16sq")
_ORDER = struct.Struct("<B16sqBqq")
_MARIADB = struct.Struct("<QIB")
_XID = struct.Struct("<iBB")
_INTERVAL = struct.Struct("<qq")
_LISTED = struct.Struct("<IIQ")
_ORIGINAL = 1 << 55
_U55 = _ORIGINAL - 1
_U31 = (1 << 31) - 1

GROUP_COMMIT_ID, PREPARED_XA, COMPLETED_XA = 2, 64, 128
MULTI_ENGINE, START_ALTER, COMMIT_ALTER, ROLLBACK_ALTER, THREAD_ID = 1, 2, 4, 8, 16
_LIST_COUNT = (1 << 28) - 1
_MARIADB_CODE, _PLAIN_CODE, _TAGGED_CODE = (
    EventType.GTID.value,
    EventType.GTID_LOG.value,
    EventType.GTID_TAGGED_LOG.value,
)
_new = tuple.__new__


class MysqlGtid(NamedTuple):
    """GTID_LOG, ANONYMOUS_GTID or GTID_TAGGED_LOG; None = not written by that server. Times are microseconds.

    sid: the UUID's 16 bytes. original_commit_timestamp, original_server_version: the immediate ones where only they
    are stored. transaction_length: bytes from the start of this event to the end of the group.
    """

    flags: int
    sid: bytes
    tag: bytes
    gno: int
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
        """`uuid` or `uuid:tag`."""
        return source_text(self.sid, self.tag)


class MariadbGtid(NamedTuple):
    """GTID of MariaDB; None = not there, which the flags say."""

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


class PreviousGtids(NamedTuple):
    """The numbers of one source in PREVIOUS_GTIDS: intervals are half-open."""

    sid: bytes
    tag: bytes
    intervals: tuple[tuple[int, int], ...]


class ListedGtid(NamedTuple):
    """One entry of GTID_LIST."""

    domain_id: int
    server_id: int
    seq_no: int


def source_text(sid: bytes, tag: bytes) -> str:
    """`uuid` or `uuid:tag`."""
    return f"{uuid_of(sid)}:{tag.decode('utf-8', 'backslashreplace')}" if tag else uuid_of(sid)


# -- MySQL -------------------------------------------------------------------------------------------------------------


def mysql_gtid_fields(type_code: int, body: bytes) -> MysqlGtid:
    """The fields of GTID_LOG, ANONYMOUS_GTID and GTID_TAGGED_LOG.

    Raises:
        MalformedError: the body is cut short, or is no such message.
    """
    if type_code == _TAGGED_CODE:
        return _tagged(body)
    if len(body) < _ORDER.size:
        if len(body) < _PLAIN.size:
            raise cut("a GTID", _PLAIN.size, len(body))
        flags, sid, gno = _PLAIN.unpack_from(body)
        if len(body) > _PLAIN.size:
            raise cut("the logical time stamps", _ORDER.size, len(body))
        return MysqlGtid(flags, sid, b"", gno)
    flags, sid, gno, lt_type, last, number = _ORDER.unpack_from(body)
    return _new(MysqlGtid, (flags, sid, b"", gno, lt_type, last, number, *_tail(body)))


_NO_TAIL = (None, None, None, None, None, None)


def _tail(body: bytes) -> tuple[int | None, ...]:
    """What MySQL 8 writes behind the logical time stamps; each field may be the last one."""
    end, at = len(body), _ORDER.size
    if at == end:
        return _NO_TAIL
    immediate, at = _number(body, at, 7)
    original = immediate
    if immediate & _ORIGINAL:
        immediate &= _U55
        original, at = _number(body, at, 7)
    if at == end:
        return immediate, original, None, None, None, None
    length, at = read_lenenc(body, at, end)
    if at == end:
        return immediate, original, length, None, None, None
    version, at = _number(body, at, 4)
    first = version
    if version > _U31:
        version &= _U31
        first, at = _number(body, at, 4)
    ticket = _number(body, at, 8)[0] if at != end else None
    return immediate, original, length, version, first, ticket


def _number(body: bytes, at: int, size: int) -> tuple[int, int]:
    stop = at + size
    if stop > len(body):
        raise cut("a number", size, len(body) - at)
    return int.from_bytes(body[at:stop], "little"), stop


def _tagged(body: bytes) -> MysqlGtid:
    flags, sid, gno, tag, last, number, immediate, original, length, version, first, ticket = read_message(body)
    if sid is None or gno is None:
        raise MalformedError("the message has no GTID")
    return _new(
        MysqlGtid,
        (flags or 0, sid, tag or b"", gno, None, last, number, immediate, immediate if original is None else original,
         length, version, version if first is None else first, ticket),
    )  # fmt: skip


def previous_gtids(body: bytes) -> list[PreviousGtids]:
    """The set that PREVIOUS_GTIDS lists, in its order.

    Raises:
        MalformedError: a count or a number that the body is too short for.
    """
    if len(body) < 8:
        raise cut("the number of sources", 8, len(body))
    tagged = has_tags(body)
    count = int.from_bytes(body[1:7] if tagged else body[:8], "little")
    if count > (len(body) - 8) // (25 if tagged else 24):
        raise too_many("sources", count, len(body) - 8)
    found, at = [], 8
    for _ in range(count):
        one, at = _source(body, at, tagged)
        found.append(one)
    return found


def has_tags(body: bytes) -> bool:
    """Is it the form that has a tag for each source?"""
    return body[0] == 1 and body[7] == 1


def _source(body: bytes, at: int, tagged: bool) -> tuple[PreviousGtids, int]:
    end = len(body)
    if at + 16 > end:
        raise cut("a source's UUID", 16, end - at)
    sid, tag = bytes(body[at : at + 16]), b""
    at += 16
    if tagged:
        tag, at = read_tag(body, at, end)
    count, at = _number(body, at, 8)
    if count > (end - at) // 16:
        raise too_many("intervals", count, end - at)
    stop = at + 16 * count
    return PreviousGtids(sid, tag, tuple(_INTERVAL.iter_unpack(body[at:stop]))), stop


def previous_gtids_text(sources: Iterable[PreviousGtids]) -> str:
    """The set as MySQL writes it: "uuid:1-5:7, uuid:tag:1-3"; the last number of an interval is included."""
    return ", ".join(":".join([source_text(one.sid, one.tag), *map(_interval, one.intervals)]) for one in sources)


def _interval(interval: tuple[int, int]) -> str:
    start, end = interval
    return str(start) if end == start + 1 else f"{start}-{end - 1}"


# -- MariaDB -----------------------------------------------------------------------------------------------------------


def mariadb_gtid_fields(body: bytes) -> MariadbGtid:
    """The fields of MariaDB's GTID.

    Raises:
        MalformedError: the body is too short for what its flags say.
    """
    end = len(body)
    if end < _MARIADB.size:
        raise cut("a GTID", _MARIADB.size, end)
    seq_no, domain_id, flags2 = _MARIADB.unpack_from(body)
    at, commit_id, xid = _MARIADB.size, None, (None, None, None)
    if flags2 & GROUP_COMMIT_ID:
        commit_id, at = _number(body, at, 8)
    if flags2 & (PREPARED_XA | COMPLETED_XA):
        xid, at = _xid(body, at)  # type: ignore[assignment]
    extra = _extra(body, at, end) if at < end and body[at] else (0 if at < end else None, None, None, None)
    return _new(MariadbGtid, (seq_no, domain_id, flags2, commit_id, *xid, *extra))


def _xid(body: bytes, at: int) -> tuple[tuple[int, bytes, bytes], int]:
    start = at + _XID.size
    if start > len(body):
        raise cut("an XA identifier", _XID.size, len(body) - at)
    format_id, gtrid_len, bqual_len = _XID.unpack_from(body, at)
    middle, stop = start + gtrid_len, start + gtrid_len + bqual_len
    if stop > len(body):
        raise cut("an XA identifier", gtrid_len + bqual_len, len(body) - start)
    return (format_id, bytes(body[start:middle]), bytes(body[middle:stop])), stop


def _extra(body: bytes, at: int, end: int) -> tuple[int, int | None, int | None, int | None]:
    flags, at = body[at], at + 1
    engines = start_alter = thread = None
    if flags & MULTI_ENGINE:
        engines, at = _number(body, at, 1)
    if flags & (COMMIT_ALTER | ROLLBACK_ALTER):
        start_alter, at = _number(body, at, 8)
    if flags & THREAD_ID:
        thread, at = _number(body, at, 4)
    return flags, engines, start_alter, thread


def gtid_list_head(body: bytes) -> tuple[int, int]:
    """(flags in the high four bits, count) of GTID_LIST."""
    if len(body) < 4:
        raise cut("the number of GTIDs", 4, len(body))
    word = int.from_bytes(body[:4], "little")
    return word >> 28, word & _LIST_COUNT


def gtid_list(body: bytes) -> list[ListedGtid]:
    """The entries of GTID_LIST, in their order.

    Raises:
        MalformedError: more entries than the body has room for.
    """
    _, count = gtid_list_head(body)
    if count > (len(body) - 4) // _LISTED.size:
        raise too_many("GTIDs", count, len(body) - 4)
    return [_new(ListedGtid, one) for one in _LISTED.iter_unpack(body[4 : 4 + count * _LISTED.size])]


# -- both --------------------------------------------------------------------------------------------------------------


def gtid_numbers(type_code: int, server_id: int, body: bytes) -> tuple[str, int] | None:
    """(source, number): ("uuid", 7), ("uuid:tag", 7) or ("0-1", 42); None for ANONYMOUS_GTID and other types.

    server_id: from the common header, which MariaDB's GTID takes its middle number from.

    Raises:
        MalformedError: the body is cut short.
    """
    if type_code == _MARIADB_CODE:
        if len(body) < _MARIADB.size:
            raise cut("a GTID", _MARIADB.size, len(body))
        seq_no, domain_id, _ = _MARIADB.unpack_from(body)
        return f"{domain_id}-{server_id}", seq_no
    if type_code == _PLAIN_CODE:
        if len(body) < _PLAIN.size:
            raise cut("a GTID", _PLAIN.size, len(body))
        _, sid, gno = _PLAIN.unpack_from(body)
        return uuid_of(sid), gno
    if type_code == _TAGGED_CODE:
        fields = _tagged(body)
        return fields.source, fields.gno
    return None


def gtid_text(type_code: int, server_id: int, body: bytes) -> str | None:
    """`0-1-42`, `uuid:7` or `uuid:tag:7`; None for ANONYMOUS_GTID and other types.

    Raises:
        MalformedError: the body is cut short.
    """
    found = gtid_numbers(type_code, server_id, body)
    return None if found is None else joined(type_code, *found)


def joined(type_code: int, source: str, number: int) -> str:
    """The text of a GTID from what `gtid_numbers` gave."""
    return f"{source}-{number}" if type_code == _MARIADB_CODE else f"{source}:{number}"
