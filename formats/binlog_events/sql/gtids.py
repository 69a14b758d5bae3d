"""The identity of a transaction as SET statements that precede it."""

from __future__ import annotations

from binlogtool.formats.binlog_events.codes import EventFlag, EventType
from binlogtool.formats.binlog_events.events.event import Event
from binlogtool.formats.binlog_events.gtid.bodies import MariadbGtid, MysqlGtid
from binlogtool.formats.binlog_events.sql.session import Session
from binlogtool.formats.binlog_events.wire.description import FormatDescription

AUTOMATIC = b"SET @@session.gtid_next='AUTOMATIC'"
_ONLY_ROWS = b"/*!50718 SET TRANSACTION ISOLATION LEVEL READ COMMITTED*/"
_MAY_HAVE_STATEMENTS = 1
"""Bit of the flags of a GTID event."""

_GTIDS_SINCE = (5, 6, 5)
_NO_TIME, _NO_VERSION = 36028797018963968, 999999
"""Values of MySQL's session variables that mean: not known."""


def knows_gtids(described: FormatDescription) -> bool:
    """Return whether a server of this version has @@gtid_next."""
    return not described.is_mariadb and described.version >= _GTIDS_SINCE


def mariadb_gtid(event: Event, gtid: MariadbGtid, session: Session) -> list[bytes]:
    """Return the SET statements for the domain, server and sequence number of the next transaction in MariaDB."""
    session.known.pop("@@session.gtid_seq_no", None)  # a server resets it after each transaction
    skip = "1" if event.flags & EventFlag.SKIP_REPLICATION else "0"
    wanted = {
        "@@session.gtid_domain_id": str(gtid.domain_id),
        "@@session.server_id": str(event.server),
        "@@session.gtid_seq_no": str(gtid.seq_no),
    }
    if skip != session.known.get("@@session.skip_replication", "0"):
        wanted["@@session.skip_replication"] = skip
    session.known.pop("@@session.gtid_seq_no", None)  # the server resets it with each transaction
    return session.change(wanted)


def parallel(session: Session, *, allowed: bool) -> list[bytes]:
    """Return the SET statement that says whether the target's replicas may run the next transaction in parallel."""
    return session.change({"@@session.skip_parallel_replication": "0" if allowed else "1"})


def mysql_gtid(event: Event, gtid: MysqlGtid, name: str | None, session: Session) -> list[bytes]:
    """Return the SET statements for the GTID of the next transaction in MySQL, and for its origin.

    Args:
        gtid_text: the GTID; None if there is none.
    """
    made = [] if gtid.flags & _MAY_HAVE_STATEMENTS else [_ONLY_ROWS]
    made += _origin(gtid, session)
    nameless = event.code == EventType.ANONYMOUS_GTID or name is None
    chosen = "AUTOMATIC" if nameless else str(name)  # servers with gtid_mode=ON refuse ANONYMOUS
    if chosen != session.gtid_next or not nameless:
        session.gtid_next = chosen
        made.append(b"SET @@session.gtid_next='" + chosen.encode() + b"'")
    return made


def _origin(gtid: MysqlGtid, session: Session) -> list[bytes]:
    """Return the SET statements for the servers' versions and the commit time, if the event has them."""
    wanted = {
        "@@session.original_commit_timestamp": gtid.original_commit_timestamp,
        "@@session.original_server_version": gtid.original_server_version,
        "@@session.immediate_server_version": gtid.immediate_server_version,
    }
    unknown = (_NO_TIME, _NO_VERSION, _NO_VERSION)
    texts = {n: str(v if v is not None else u) for (n, v), u in zip(wanted.items(), unknown, strict=True)}
    if gtid.original_commit_timestamp is None and "@@session.original_commit_timestamp" not in session.known:
        return []
    return [b"/*!80014 " + one + b"*/" for one in session.change(texts)]
