"""Commit marks and prepared transactions: each XID once, XA in order, as MySQL's recovery requires."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

from binlogtool.formats.binlog_events.events.bodies import XA_PREPARE
from binlogtool.formats.binlog_events.events.event import Event, Fault
from binlogtool.formats.binlog_events.groups.xa import XaId
from binlogtool.formats.derived import tuple_of
from binlogtool.formats.fields import MalformedError
from binlogtool.formats.mysql_binlog.judge import folds

MOST_STATES = 100_000
"""XA transactions whose state is remembered."""

_XA_TEXT = re.compile(rb"XA\s+(?:COMMIT|ROLLBACK)\s+X'([0-9a-f]*)',X'([0-9a-f]*)',(-?\d+)\s*(?:ONE PHASE\s*)?\Z", re.I)
_prepared = tuple_of(XA_PREPARE, "one_phase", "format_id", "gtrid", "bqual")


class Commits:
    """Rules about the XIDs of the last few thousand transactions and the XA transactions of the file."""

    def __init__(self, state: Any) -> None:
        self._state = state
        self._prepared: dict[XaId, bool] = {}

    def xid(self, number: int, what: str) -> Iterator[Fault]:
        """Yield a fault if another transaction has this XID; remember it."""
        state = self._state
        signed = number - (1 << 64) if number >> 63 else number
        if 0 < signed <= state[folds.XID] and signed in self._recent():
            text = f"{what} with XID {number}, which another transaction has already"
            yield Fault("duplicate-sequence", text, "xid-twice", None, {"xid": number})
        state[folds.XID] = max(state[folds.XID], signed)
        state[folds.RING + (state[folds.XIDS] & folds.RING_SIZE - 1)] = signed
        state[folds.XIDS] += 1

    def _recent(self) -> Any:
        """Return the remembered XIDs."""
        count = min(self._state[folds.XIDS], folds.RING_SIZE)
        return self._state[folds.RING : folds.RING + count]

    def prepare(self, event: Event) -> Iterator[Fault]:
        """Yield faults of an XA_PREPARE event."""
        try:
            one_phase, *name = _prepared(bytes(event.body))
        except MalformedError as error:
            yield Fault("payload-undecodable", f"XA_PREPARE: {error.args[0]}", "xa-id")
            return
        found = XaId(*name)
        if self._prepared.get(found):
            text = f"XA transaction {_text(found)} is prepared twice"
            yield Fault("duplicate-sequence", text, "xa-prepared-twice")
        self._note(found, not one_phase)

    def finish(self, sql: bytes) -> Iterator[Fault]:
        """Yield faults of XA COMMIT or XA ROLLBACK of a prepared transaction."""
        found = named_xa(sql)
        if found is None:
            text = f"no XA identifier: {sql[:80].decode('utf-8', 'backslashreplace')}"
            yield Fault("payload-undecodable", text, "xa-id")
            return
        if self._prepared.get(found) is False:
            text = f"XA transaction {_text(found)} is finished twice"
            yield Fault("duplicate-sequence", text, "xa-finished-twice")
        self._note(found, False)

    def _note(self, name: XaId, prepared: bool) -> None:
        """Remember the state of an XA transaction."""
        if len(self._prepared) >= MOST_STATES:
            self._prepared.clear()
        self._prepared[name] = prepared


def named_xa(sql: bytes) -> XaId | None:
    """Return the transaction that an XA COMMIT or XA ROLLBACK names; None if it names none."""
    parts = _XA_TEXT.match(sql.strip())
    if parts is None or len(parts[1]) % 2 or len(parts[2]) % 2:
        return None
    return XaId(int(parts[3]), bytes.fromhex(parts[1].decode()), bytes.fromhex(parts[2].decode()))


def _text(name: XaId) -> str:
    """Return the name of an XA transaction as servers log it."""
    return f"X'{name.gtrid.hex()}',X'{name.bqual.hex()}',{name.format_id}"
