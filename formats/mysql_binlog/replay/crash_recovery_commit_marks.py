"""Commit marks of a binary log as MySQL's crash recovery reads them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import partial
from typing import Any

import msgspec

from binlogtool.formats.binlog_events.replay.simulated_applier import decode_body_text, encode_body_text
from binlogtool.formats.binlog_events.transactions.boundaries import XaId, XaStates, parse_xa_finish

XA_FINISH = ("XA COMMIT", "XA ROLLBACK")
MAX_REMEMBERED = 65_536
"""Maximum number of XIDs and XA transactions that are remembered; they come in roughly ascending order."""

_INVALID_XID = (1 << 64) - 1
"""XID of a QUERY that is no atomic DDL."""


class TransactionEndEvent(msgspec.Struct, frozen=True):
    """Commit mark: an event that recovery takes as the end of a transaction; `body`: its fields, as in the spec."""

    offset: int
    kind: str
    body: Any


class LogSanitizer(msgspec.Struct):
    """All marks so far, in file order, as MySQL follows them (`binlog::Log_sanitizer`).

    `first_fault`: offset and message of the first one that stops recovery. `in_transaction`: a transaction is open
    after the last mark.
    """

    first_fault: tuple[int, str] | None = None
    in_transaction: bool = False
    _xids: dict[int, None] = msgspec.field(default_factory=dict)
    _xa_states: XaStates = msgspec.field(default_factory=partial(XaStates, MAX_REMEMBERED))

    def add_mark(self, mark: TransactionEndEvent) -> None:
        """Add the next mark."""
        if self.first_fault is not None:
            return
        reason = next(self._iter_stopping_faults(mark), None)
        if reason is not None:
            self.first_fault = mark.offset, reason

    def _iter_stopping_faults(self, mark: TransactionEndEvent) -> Iterator[str]:
        """Yield the messages about a mark that stop recovery."""
        body = mark.body
        if mark.kind == "XID":
            yield from self._end_transaction("XID")
            yield from self._check_and_remember_xid(body.get("xid"))
        elif mark.kind == "XA_PREPARE":
            yield from self._end_transaction("XA_PREPARE")
            fault = self._xa_states.record_prepare_and_find_fault(
                get_xa_id(body), one_phase=bool(body.get("one_phase"))
            )
            yield from () if fault is None else (fault,)
        else:
            yield from self._track_query(body)

    def _track_query(self, body: Mapping[str, Any]) -> Iterator[str]:
        """Follow a QUERY; the server compares its text exactly."""
        sql, status = decode_body_text(body.get("sql")).partition("\0")[0], body.get("status_vars") or {}
        if sql == "BEGIN" or sql.startswith("XA START"):
            yield from self._check_outside_transaction("BEGIN or XA START")
            self.in_transaction = True
        elif (xid := status.get("xid", status.get("ddl_logged_with_xid"))) is not None and xid != _INVALID_XID:
            yield from self._check_outside_transaction("DDL")
            yield from self._check_and_remember_xid(xid)
        elif sql in ("COMMIT", "ROLLBACK"):
            yield from self._end_transaction(sql)
        elif sql.startswith(XA_FINISH):
            yield from self._check_outside_transaction(" ".join(sql.split()[:2]))
            finish = parse_xa_finish(sql.encode("utf-8", "replace"))
            fault = (
                f"not an XA identifier: {sql[:80]}"
                if finish is None
                else self._xa_states.record_finish_and_find_fault(finish.xa_id)
            )
            yield from () if fault is None else (fault,)

    def _check_outside_transaction(self, event: str) -> Iterator[str]:
        if self.in_transaction:
            yield f"{event} inside a transaction"

    def _end_transaction(self, event: str) -> Iterator[str]:
        if not self.in_transaction:
            yield f"{event} outside a transaction"
        self.in_transaction = False

    def _check_and_remember_xid(self, number: Any) -> Iterator[str]:
        """Check an XID, and remember it."""
        if not isinstance(number, int):
            return
        if number in self._xids:
            yield f"the XID {number} is in the log twice"
        self._xids[number] = None
        if len(self._xids) > MAX_REMEMBERED:
            del self._xids[next(iter(self._xids))]


def get_xa_id(body: Mapping[str, Any]) -> XaId:
    """Return the id of the transaction that an XA_PREPARE event prepares."""
    return XaId(
        body.get("format_id", 0), encode_body_text(body.get("gtrid", "")), encode_body_text(body.get("bqual", ""))
    )
