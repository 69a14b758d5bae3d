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
from binlogtool.formats.binlog_events.apply.words import bytes_of, text_of, xa_text
from binlogtool.formats.binlog_events.codes import EventType
from binlogtool.formats.binlog_events.events.decoding import decoded
from binlogtool.formats.binlog_events.groups.xa import XaId
from binlogtool.formats.binlog_events.wire.description import FormatDescription
from binlogtool.formats.fields import MalformedError
from binlogtool.formats.layouts import CodecError, Read
from binlogtool.formats.mysql_binlog.judge.commits import named_xa
from binlogtool.formats.replay_rules import Examined

MOST = 65_536
"""XIDs, and XA transactions, that are remembered: they come in about the order of their numbers."""

_MOST_EVENTS = 100
_MOST_BYTES = 1 << 20
"""Events with wrong checksums that are looked at, and of each."""

_CODES = frozenset({EventType.QUERY, EventType.XID, EventType.XA_PREPARE})
_FINISH = re.compile(r"XA\s+(?:COMMIT|ROLLBACK)\b", re.IGNORECASE)


class Mark(msgspec.Struct, frozen=True):
    """Event from which recovery takes a commit mark; `body`: its fields by the names of the specification."""

    offset: int
    kind: str
    body: Any


class Marks(msgspec.Struct):
    """All marks so far, in file order; `first_fault`: offset and message of the first one that stops recovery."""

    wrong: tuple[int, str] | None = None
    _xids: dict[int, None] = msgspec.field(default_factory=dict)
    _prepared: dict[XaId, bool] = msgspec.field(default_factory=dict)

    def see(self, mark: Mark) -> None:
        """Add the next mark."""
        if self.wrong is not None:
            return
        why = next(self._faults(mark), None)
        if why is not None:
            self.wrong = mark.offset, why

    def _faults(self, mark: Mark) -> Iterator[str]:
        """Yield what stops recovery at a mark."""
        body = mark.body
        if mark.kind == "XID":
            yield from self._xid(body.get("xid"))
        elif mark.kind == "XA_PREPARE":
            name = XaId(body.get("format_id", 0), bytes_of(body.get("gtrid", "")), bytes_of(body.get("bqual", "")))
            if self._prepared.get(name):
                yield f"XA transaction {xa_text(name)} is prepared twice"
            self._note(name, not body.get("one_phase"))
        else:
            status = body.get("status_vars") or {}
            yield from self._xid(status.get("xid", status.get("ddl_logged_with_xid")))
            yield from self._finish(text_of(body.get("sql")).strip())

    def _xid(self, number: Any) -> Iterator[str]:
        """Check and remember an XID."""
        if not isinstance(number, int) or not number:
            return
        if number in self._xids:
            yield f"the XID {number} stands in the log twice"
        self._xids[number] = None
        if len(self._xids) > MOST:
            del self._xids[next(iter(self._xids))]

    def _finish(self, sql: str) -> Iterator[str]:
        """Check and remember XA COMMIT or XA ROLLBACK."""
        if not _FINISH.match(sql):
            return
        name = named_xa(sql.encode("utf-8", "replace"))
        if name is None:
            yield f"no XA identifier: {sql[:80]}"
            return
        if self._prepared.get(name) is False:
            yield f"XA transaction {xa_text(name)} is finished twice"
        self._note(name, False)

    def _note(self, name: XaId, prepared: bool) -> None:
        """Remember the state of an XA transaction."""
        if len(self._prepared) >= MOST:
            self._prepared.clear()
        self._prepared[name] = prepared


def unchecked(file: Examined, read: Read | None) -> Sequence[Mark]:
    """Return the marks of events with wrong checksums before the first damage that ends recovery.

    Args:
        read_range: the bytes of the file; None if it cannot be read.
    """
    if read is None or file.layout is None or file.layout.unveil is not None:
        return ()
    errors = sorted((one.offset or 0, one.length, one.id) for one in file.findings if one.severity is Severity.ERROR)
    made: list[Mark] = []
    for offset, size, id_ in errors:
        if id_ in _ENDS:
            break
        if id_ == "checksum-mismatch" and size <= _MOST_BYTES and len(made) < _MOST_EVENTS:
            made += _marks(offset, read(offset, size), file.layout.context.description)
    return made


_ENDS = frozenset({"length-out-of-bounds", "bad-header", "bad-magic", "torn-tail", "zero-tail", "garbage-tail"})
"""Damage at which a reader without checks ends, too."""

_HEADER, _CHECKSUM = 19, 4


def _marks(offset: int, event: bytes, described: FormatDescription) -> Iterator[Mark]:
    """Yield the mark of an event, if it has one."""
    if len(event) < _HEADER + _CHECKSUM or event[4] not in _CODES:
        return
    try:
        body = decoded(event[4], event[_HEADER:-_CHECKSUM], described)
    except (MalformedError, CodecError):
        return
    yield Mark(offset, EventType(event[4]).name, body)
