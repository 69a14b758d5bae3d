"""Commit marks as MySQL's recovery reads them: each XID once, XA in order, regardless of checksums.

It verifies checksums only with `source_verify_checksum`, which is off by default, so that an event with a
wrong checksum counts like any other (`binlog::Binlog_recovery`).
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from typing import Any

import msgspec

from binlogtool.findings import Severity
from binlogtool.formats.binlog_events.apply.words import as_bytes, as_text, format_xid
from binlogtool.formats.binlog_events.codes import EventType
from binlogtool.formats.binlog_events.events.decoding import decode_body
from binlogtool.formats.binlog_events.groups.xa import XaId
from binlogtool.formats.binlog_events.wire.description import FormatDescription
from binlogtool.formats.fields import MalformedError
from binlogtool.formats.layouts import DecompressionError, RangeReader
from binlogtool.formats.mysql_binlog.judge.commits import parse_xa_finish
from binlogtool.formats.replay_rules import ExaminedFile

MAX_REMEMBERED = 65_536
"""XIDs, and XA transactions, that are remembered: they come in about the order of their numbers."""

_MAX_UNVERIFIED_EVENTS = 100
_MAX_EVENT_BYTES = 1 << 20
"""Events with wrong checksums that are looked at, and of each."""

_MARK_EVENTS = frozenset({EventType.QUERY, EventType.XID, EventType.XA_PREPARE})
_FINISH = re.compile(r"XA\s+(?:COMMIT|ROLLBACK)\b", re.IGNORECASE)


class CommitMark(msgspec.Struct, frozen=True):
    """Event from which recovery takes a commit mark; `body`: its fields by the names of the specification."""

    offset: int
    kind: str
    body: Any


class CommitMarks(msgspec.Struct):
    """All marks so far, in file order; `first_fault`: offset and message of the first one that stops recovery."""

    first_fault: tuple[int, str] | None = None
    _xids: dict[int, None] = msgspec.field(default_factory=dict)
    _prepared: dict[XaId, bool] = msgspec.field(default_factory=dict)

    def add_mark(self, mark: CommitMark) -> None:
        """Add the next mark."""
        if self.first_fault is not None:
            return
        reason = next(self._iter_faults(mark), None)
        if reason is not None:
            self.first_fault = mark.offset, reason

    def _iter_faults(self, mark: CommitMark) -> Iterator[str]:
        """Yield what stops recovery at a mark."""
        body = mark.body
        if mark.kind == "XID":
            yield from self._check_xid(body.get("xid"))
        elif mark.kind == "XA_PREPARE":
            xa_id = XaId(body.get("format_id", 0), as_bytes(body.get("gtrid", "")), as_bytes(body.get("bqual", "")))
            if self._prepared.get(xa_id):
                yield f"XA transaction {format_xid(xa_id)} is prepared twice"
            self._remember(xa_id, not body.get("one_phase"))
        else:
            status = body.get("status_vars") or {}
            yield from self._check_xid(status.get("xid", status.get("ddl_logged_with_xid")))
            yield from self._check_finish(as_text(body.get("sql")).strip())

    def _check_xid(self, number: Any) -> Iterator[str]:
        """Check and remember an XID."""
        if not isinstance(number, int) or not number:
            return
        if number in self._xids:
            yield f"the XID {number} stands in the log twice"
        self._xids[number] = None
        if len(self._xids) > MAX_REMEMBERED:
            del self._xids[next(iter(self._xids))]

    def _check_finish(self, sql: str) -> Iterator[str]:
        """Check and remember XA COMMIT or XA ROLLBACK."""
        if not _FINISH.match(sql):
            return
        xa_id = parse_xa_finish(sql.encode("utf-8", "replace"))
        if xa_id is None:
            yield f"no XA identifier: {sql[:80]}"
            return
        if self._prepared.get(xa_id) is False:
            yield f"XA transaction {format_xid(xa_id)} is finished twice"
        self._remember(xa_id, False)

    def _remember(self, xa_id: XaId, is_prepared: bool) -> None:
        """Remember the state of an XA transaction."""
        if len(self._prepared) >= MAX_REMEMBERED:
            self._prepared.clear()
        self._prepared[xa_id] = is_prepared


def find_unverified_marks(file: ExaminedFile, read_range: RangeReader | None) -> Sequence[CommitMark]:
    """Return the marks of events with wrong checksums before the first damage that ends recovery.

    Args:
        read_range: the bytes of the file; None if it cannot be read.
    """
    if read_range is None or file.layout is None or file.layout.decrypt is not None:
        return ()
    errors = sorted((one.offset or 0, one.length, one.id) for one in file.findings if one.severity is Severity.ERROR)
    marks: list[CommitMark] = []
    for offset, size, id_ in errors:
        if id_ in _FATAL_DAMAGE:
            break
        if id_ == "checksum-mismatch" and size <= _MAX_EVENT_BYTES and len(marks) < _MAX_UNVERIFIED_EVENTS:
            marks += _decode_mark(offset, read_range(offset, size), file.layout.context.description)
    return marks


_FATAL_DAMAGE = frozenset({"length-out-of-bounds", "bad-header", "bad-magic", "torn-tail", "zero-tail", "garbage-tail"})
"""Damage at which a reader without checks ends, too."""

_HEADER_SIZE, _CHECKSUM_SIZE = 19, 4


def _decode_mark(offset: int, event: bytes, description: FormatDescription) -> Iterator[CommitMark]:
    """Yield the mark of an event, if it has one."""
    if len(event) < _HEADER_SIZE + _CHECKSUM_SIZE or event[4] not in _MARK_EVENTS:
        return
    try:
        body = decode_body(event[4], event[_HEADER_SIZE:-_CHECKSUM_SIZE], description)
    except (MalformedError, DecompressionError):
        return
    yield CommitMark(offset, EventType(event[4]).name, body)
