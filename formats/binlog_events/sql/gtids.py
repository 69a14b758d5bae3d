"""The identity of a transaction as SET statements that precede it."""

from __future__ import annotations

from binlogtool.formats.binlog_events.codes import EventFlag, EventType
from binlogtool.formats.binlog_events.events.event import Event
from binlogtool.formats.binlog_events.gtid.bodies import MariadbGtid, MysqlGtid
from binlogtool.formats.binlog_events.sql.session import ScriptSession
from binlogtool.formats.binlog_events.wire.description import FormatDescription

SET_GTID_AUTOMATIC = b"SET @@session.gtid_next='AUTOMATIC'"
_SET_READ_COMMITTED = b"/*!50718 SET TRANSACTION ISOLATION LEVEL READ COMMITTED*/"
_MAY_HAVE_STATEMENTS = 1
"""Bit of the flags of a GTID event."""

_GTIDS_SINCE = (5, 6, 5)
_UNKNOWN_TIME, _UNKNOWN_VERSION = 36028797018963968, 999999
"""Values of MySQL's session variables that mean: not known."""


def has_gtids(description: FormatDescription) -> bool:
    """Return whether a server of this version has @@gtid_next."""
    return not description.is_mariadb and description.version >= _GTIDS_SINCE


def set_mariadb_gtid(event: Event, gtid: MariadbGtid, session: ScriptSession) -> list[bytes]:
    """Return the SET statements for the domain, server and sequence number of the next transaction in MariaDB."""
    session.variables.pop("@@session.gtid_seq_no", None)  # a server resets it after each transaction
    skip = "1" if event.flags & EventFlag.SKIP_REPLICATION else "0"
    variables = {
        "@@session.gtid_domain_id": str(gtid.domain_id),
        "@@session.server_id": str(event.server_id),
        "@@session.gtid_seq_no": str(gtid.seq_no),
    }
    if skip != session.variables.get("@@session.skip_replication", "0"):
        variables["@@session.skip_replication"] = skip
    session.variables.pop("@@session.gtid_seq_no", None)  # the server resets it with each transaction
    return session.set_variables(variables)


def set_parallel_replication(session: ScriptSession, *, allowed: bool) -> list[bytes]:
    """Return the SET statement that says whether the target's replicas may run the next transaction in parallel."""
    return session.set_variables({"@@session.skip_parallel_replication": "0" if allowed else "1"})


def set_mysql_gtid(event: Event, gtid: MysqlGtid, gtid_text: str | None, session: ScriptSession) -> list[bytes]:
    """Return the SET statements for the GTID of the next transaction in MySQL, and for its origin.

    Args:
        gtid_text: the GTID; None if there is none.
    """
    statements = [] if gtid.flags & _MAY_HAVE_STATEMENTS else [_SET_READ_COMMITTED]
    statements += _set_origin(gtid, session)
    is_anonymous = event.code == EventType.ANONYMOUS_GTID or gtid_text is None
    gtid_next = "AUTOMATIC" if is_anonymous else str(gtid_text)  # servers with gtid_mode=ON refuse ANONYMOUS
    if gtid_next != session.gtid_next or not is_anonymous:
        session.gtid_next = gtid_next
        statements.append(b"SET @@session.gtid_next='" + gtid_next.encode() + b"'")
    return statements


def _set_origin(gtid: MysqlGtid, session: ScriptSession) -> list[bytes]:
    """Return the SET statements for the servers' versions and the commit time, if the event has them."""
    values = {
        "@@session.original_commit_timestamp": gtid.original_commit_timestamp,
        "@@session.original_server_version": gtid.original_server_version,
        "@@session.immediate_server_version": gtid.immediate_server_version,
    }
    unknown = (_UNKNOWN_TIME, _UNKNOWN_VERSION, _UNKNOWN_VERSION)
    texts = {n: str(v if v is not None else u) for (n, v), u in zip(values.items(), unknown, strict=True)}
    if gtid.original_commit_timestamp is None and "@@session.original_commit_timestamp" not in session.variables:
        return []
    return [b"/*!80014 " + one + b"*/" for one in session.set_variables(texts)]
