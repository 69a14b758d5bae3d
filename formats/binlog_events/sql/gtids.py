"""The identity of a transaction as SET statements, before it begins."""

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
    """Does a server of this version have @@gtid_next?"""
    return not described.is_mariadb and described.version >= _GTIDS_SINCE


def mariadb_gtid(event: Event, gtid: MariadbGtid, session: Session) -> list[bytes]:
    """The domain, server and number that MariaDB gives the next transaction."""
    session.known.pop("@@session.gtid_seq_no", None)  # a server forgets it behind each transaction
    skip = "1" if event.flags & EventFlag.SKIP_REPLICATION else "0"
    wanted = {
        "@@session.gtid_domain_id": str(gtid.domain_id),
        "@@session.server_id": str(event.server),
        "@@session.gtid_seq_no": str(gtid.seq_no),
    }
    if skip != session.known.get("@@session.skip_replication", "0"):
        wanted["@@session.skip_replication"] = skip
    session.known.pop("@@session.gtid_seq_no", None)  # the server forgets it with each transaction
    return session.change(wanted)


def parallel(session: Session, *, allowed: bool) -> list[bytes]:
    """What tells replicas of the target whether they may run the next transaction beside others."""
    return session.change({"@@session.skip_parallel_replication": "0" if allowed else "1"})


def mysql_gtid(event: Event, gtid: MysqlGtid, name: str | None, session: Session) -> list[bytes]:
    """The GTID that MySQL gives the next transaction, and who committed it when. name: None = it has none."""
    made = [] if gtid.flags & _MAY_HAVE_STATEMENTS else [_ONLY_ROWS]
    made += _origin(gtid, session)
    nameless = event.code == EventType.ANONYMOUS_GTID or name is None
    chosen = "AUTOMATIC" if nameless else str(name)  # ANONYMOUS is refused where all transactions have GTIDs
    if chosen != session.gtid_next or not nameless:
        session.gtid_next = chosen
        made.append(b"SET @@session.gtid_next='" + chosen.encode() + b"'")
    return made


def _origin(gtid: MysqlGtid, session: Session) -> list[bytes]:
    """The versions of the servers and the time of the commit, where a server of today wrote them."""
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
