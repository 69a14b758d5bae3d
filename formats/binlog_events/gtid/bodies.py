"""Bodies of MySQL's and MariaDB's GTID events and of their GTID sets as values.

Source: docs/spec/mysql_binlog.md#event-bodies.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from binlogtool.formats.binlog_events.codes import EventType
from binlogtool.formats.binlog_events.gtid.schema import GTID, GTID_LIST, GTID_LOG, PREVIOUS_GTIDS
from binlogtool.formats.binlog_events.gtid.tagged import read_message
from binlogtool.formats.bodies import uuid_of
from binlogtool.formats.derived import make_fields_decoder, make_integer_decoder, make_list_decoder, make_tuple_decoder
from binlogtool.formats.fields import MalformedError

GROUP_COMMIT_ID, DDL, PREPARED_XA, COMPLETED_XA = 2, 32, 64, 128
MULTI_ENGINE, START_ALTER, COMMIT_ALTER, ROLLBACK_ALTER, THREAD_ID = 1, 2, 4, 8, 16
_MARIADB_CODE, _PLAIN_CODE, _TAGGED_CODE = (
    EventType.GTID.value,
    EventType.GTID_LOG.value,
    EventType.GTID_TAGGED_LOG.value,
)
_new_tuple = tuple.__new__


class MysqlGtid(NamedTuple):
    """Fields of GTID_LOG, ANONYMOUS_GTID or GTID_TAGGED_LOG; None if that server did not write one.

    Times are microseconds. `sid`: the UUID's 16 bytes. `original_commit_timestamp`, `original_server_version`:
    the immediate ones if only those are stored. `transaction_length`: bytes from the start of this event to the
    end of the transaction.
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
        return format_source(self.sid, self.tag)


class MariadbGtid(NamedTuple):
    """Fields of MariaDB's GTID event; None if the flags say that a field is not there."""

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
    """Numbers of one source in PREVIOUS_GTIDS, as half-open intervals."""

    sid: bytes
    tag: bytes
    intervals: tuple[tuple[int, int], ...]


class ListedGtid(NamedTuple):
    """One entry of GTID_LIST."""

    domain_id: int
    server_id: int
    seq_no: int


def format_source(sid: bytes, tag: bytes) -> str:
    """Return `uuid` or `uuid:tag`."""
    return f"{uuid_of(sid)}:{tag.decode('utf-8', 'backslashreplace')}" if tag else uuid_of(sid)


# -- MySQL -------------------------------------------------------------------------------------------------------------


_read_mysql_gtid = make_fields_decoder(GTID_LOG, MysqlGtid)


def read_mysql_gtid(type_code: int, body: bytes) -> MysqlGtid:
    """Read the fields of GTID_LOG, ANONYMOUS_GTID and GTID_TAGGED_LOG.

    Raises:
        MalformedError: the body is truncated or is not such a message.
    """
    return read_tagged_gtid(body) if type_code == _TAGGED_CODE else _read_mysql_gtid(body)


def read_tagged_gtid(body: bytes) -> MysqlGtid:
    """Read the fields of GTID_TAGGED_LOG.

    Raises:
        MalformedError: the body is not such a message, or has no GTID.
    """
    flags, sid, gno, tag, last, number, immediate, original, length, version, first, ticket = read_message(body)
    if sid is None or gno is None:
        raise MalformedError("the message has no GTID")
    return _new_tuple(
        MysqlGtid,
        (flags or 0, sid, gno, tag or b"", None, last, number, immediate, immediate if original is None else original,
         length, version, version if first is None else first, ticket),
    )  # fmt: skip


read_previous_gtids = make_list_decoder(PREVIOUS_GTIDS, "sids", PreviousGtids)
"""The set that PREVIOUS_GTIDS lists, in its order."""


def format_previous_gtids(sources: Iterable[PreviousGtids]) -> str:
    """Return the set in MySQL's form "uuid:1-5:7, uuid:tag:1-3"; intervals include their last number."""
    return ", ".join(
        ":".join([format_source(one.sid, one.tag), *map(_format_interval, one.intervals)]) for one in sources
    )


def _format_interval(interval: tuple[int, int]) -> str:
    """Return a half-open interval as "1-5" or "7"."""
    start, end = interval
    return str(start) if end == start + 1 else f"{start}-{end - 1}"


# -- MariaDB -----------------------------------------------------------------------------------------------------------


read_mariadb_gtid = make_fields_decoder(GTID, MariadbGtid)
read_gtid_list_flags = make_integer_decoder(GTID_LIST, "flags")
read_gtid_list = make_list_decoder(GTID_LIST, "list", ListedGtid)
"""The entries of GTID_LIST, in their order."""


# -- both --------------------------------------------------------------------------------------------------------------


_read_mysql_number = make_tuple_decoder(GTID_LOG, "sid", "gno")
read_mariadb_number = make_tuple_decoder(GTID, "domain_id", "seq_no")


def read_gtid_numbers(type_code: int, server_id: int, body: bytes) -> tuple[str, int] | None:
    """Return (source, number): ("uuid", 7), ("uuid:tag", 7) or ("0-1", 42); None for ANONYMOUS_GTID and other
    types.

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
    numbers = read_gtid_numbers(type_code, server_id, body)
    return None if numbers is None else format_gtid(type_code, *numbers)


def format_gtid(type_code: int, source: str, number: int) -> str:
    """Return the text of a GTID from its source and number."""
    return f"{source}-{number}" if type_code == _MARIADB_CODE else f"{source}:{number}"
