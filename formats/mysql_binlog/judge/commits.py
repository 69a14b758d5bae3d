"""Commit marks and prepared transactions: each XID once, XA in order, as MySQL's recovery requires."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

from binlogtool.formats.binlog_events.events.bodies import XA_PREPARE
from binlogtool.formats.binlog_events.events.event import Event, EventFault
from binlogtool.formats.binlog_events.groups.xa import XaId
from binlogtool.formats.derived import make_tuple_decoder
from binlogtool.formats.fields import MalformedError
from binlogtool.formats.mysql_binlog.judge import folds

MAX_XA_STATES = 100_000
"""XA transactions whose state is remembered."""

_XA_TEXT = re.compile(rb"XA\s+(?:COMMIT|ROLLBACK)\s+X'([0-9a-f]*)',X'([0-9a-f]*)',(-?\d+)\s*(?:ONE PHASE\s*)?\Z", re.I)
_read_xa_prepare = make_tuple_decoder(XA_PREPARE, "one_phase", "format_id", "gtrid", "bqual")


class CommitRules:
    """Rules about the XIDs of the last few thousand transactions and the XA transactions of the file."""

    def __init__(self, state: Any) -> None:
        self._state = state
        self._prepared: dict[XaId, bool] = {}

    def check_xid(self, number: int, subject: str) -> Iterator[EventFault]:
        """Yield a fault if another transaction has this XID; remember it."""
        state = self._state
        signed = number - (1 << 64) if number >> 63 else number
        if 0 < signed <= state[folds.HIGHEST_XID] and signed in self._recent_xids():
            text = f"{subject} with XID {number}, which another transaction has already"
            yield EventFault("duplicate-sequence", text, "xid-twice", None, {"xid": number})
        state[folds.HIGHEST_XID] = max(state[folds.HIGHEST_XID], signed)
        state[folds.XID_RING + (state[folds.XID_COUNT] & folds.XID_RING_SIZE - 1)] = signed
        state[folds.XID_COUNT] += 1

    def _recent_xids(self) -> Any:
        """Return the remembered XIDs."""
        count = min(self._state[folds.XID_COUNT], folds.XID_RING_SIZE)
        return self._state[folds.XID_RING : folds.XID_RING + count]

    def check_prepare(self, event: Event) -> Iterator[EventFault]:
        """Yield faults of an XA_PREPARE event."""
        try:
            one_phase, *xid_parts = _read_xa_prepare(bytes(event.body))
        except MalformedError as error:
            yield EventFault("payload-undecodable", f"XA_PREPARE: {error.args[0]}", "xa-id")
            return
        xa_id = XaId(*xid_parts)
        if self._prepared.get(xa_id):
            text = f"XA transaction {_format_xid(xa_id)} is prepared twice"
            yield EventFault("duplicate-sequence", text, "xa-prepared-twice")
        self._remember(xa_id, not one_phase)

    def check_finish(self, sql: bytes) -> Iterator[EventFault]:
        """Yield faults of XA COMMIT or XA ROLLBACK of a prepared transaction."""
        xa_id = parse_xa_finish(sql)
        if xa_id is None:
            text = f"no XA identifier: {sql[:80].decode('utf-8', 'backslashreplace')}"
            yield EventFault("payload-undecodable", text, "xa-id")
            return
        if self._prepared.get(xa_id) is False:
            text = f"XA transaction {_format_xid(xa_id)} is finished twice"
            yield EventFault("duplicate-sequence", text, "xa-finished-twice")
        self._remember(xa_id, False)

    def _remember(self, xa_id: XaId, is_prepared: bool) -> None:
        """Remember the state of an XA transaction."""
        if len(self._prepared) >= MAX_XA_STATES:
            self._prepared.clear()
        self._prepared[xa_id] = is_prepared


def parse_xa_finish(sql: bytes) -> XaId | None:
    """Return the transaction that an XA COMMIT or XA ROLLBACK names; None if it names none."""
    match = _XA_TEXT.match(sql.strip())
    if match is None or len(match[1]) % 2 or len(match[2]) % 2:
        return None
    return XaId(int(match[3]), bytes.fromhex(match[1].decode()), bytes.fromhex(match[2].decode()))


def _format_xid(xa_id: XaId) -> str:
    """Return the name of an XA transaction as servers log it."""
    return f"X'{xa_id.gtrid.hex()}',X'{xa_id.bqual.hex()}',{xa_id.format_id}"
