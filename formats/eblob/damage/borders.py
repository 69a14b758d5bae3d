"""What stands before and behind a damaged range: without a checksum a border can be misleading (section 10)."""

from __future__ import annotations

import re
from typing import Any

import msgspec

from binlogtool.findings import Finding, Severity, finding
from binlogtool.formats.eblob.damage.damage import NO_HEADER
from binlogtool.formats.eblob.layout.dialects import Dialect
from binlogtool.formats.eblob.layout.layout import Unread
from binlogtool.formats.layouts import Batch

MAX_KEPT = 1 << 16
"""Bytes of the last record of a batch that are kept for a look into it."""

MAX_FINDINGS = 100
STALE = "bytes after the last record are not zero; older records follow"


class Borders(msgspec.Struct):
    """Looks at the last record before each damaged range, and at the records behind it.

    durable_end: where the last record before the first damage begins, if its own size is proven to be wrong.
    """

    durable_end: int | None = None
    _start: int = 0
    _number: int = 0
    _bytes: bytes = b""
    _dialect: Dialect | None = None
    _waiting: tuple[int, int] | None = None
    _found: list[Finding] = msgspec.field(default_factory=list)
    _damages: int = 0

    def records(self, batch: Batch, dialect: Dialect) -> None:
        """A batch of good records."""
        if self._waiting is not None:
            self._older(*self._waiting)
            self._waiting = None
        last = batch.frames.count - 1
        start, end = int(batch.frames["offset"][last]), int(batch.frames["end"][last])
        self._start, self._number = batch.base + start, batch.first_record + last
        self._bytes = bytes(batch.window[start : min(end, start + MAX_KEPT)])
        self._dialect = dialect

    def damage(self, start: int, end: int, unread: Unread | None) -> None:
        """`[start, end)` holds nothing provable. unread: what stands at `start`, if it was a record header's place."""
        self._damages += 1
        record, self._bytes = self._bytes, b""
        if unread is None or unread.offset != start or unread.diagnosis != NO_HEADER:
            return
        inner = None if self._dialect is None or not record else _header_inside(self._dialect, record, unread.head)
        if inner is not None:
            self._swallowed(inner, start)
        elif record:
            self._waiting = (start, end)

    def _swallowed(self, inner: int, end: int) -> None:
        """The record before the damage holds a record header: its own size is wrong."""
        if self._damages == 1:
            self.durable_end = self._start
        place = self._start + inner
        text = f"{NO_HEADER}: the sizes of the record before the damage reach over the record header at {place:#x}"
        facts: dict[str, Any] = {"diagnosis": NO_HEADER, "swallowed_header": place, "detected_at": end}
        self._add(finding("bad-header", self._start, end - self._start, text, record=self._number, **facts))

    def _older(self, start: int, end: int) -> None:
        """Good records follow although the one before the damage is whole: an older log may lie below a newer one."""
        text = (
            "records behind the damaged range may be older than those before it: eblob appends over what it cannot "
            "read; never replay them unseen"
        )
        self._add(
            finding(
                "sequence-regression", start, end - start, text, severity=Severity.WARNING, record=self._number + 1,
                diagnosis=STALE,
            )
        )  # fmt: skip

    def _add(self, found: Finding) -> None:
        if len(self._found) < MAX_FINDINGS:
            self._found.append(found)

    def findings(self) -> list[Finding]:
        """One per damaged range, as far as something is to be said."""
        return self._found


def _header_inside(dialect: Dialect, record: bytes, behind: bytes) -> int | None:
    """Where in a record, behind its own header, another record header begins. behind: the bytes behind the record."""
    data = record + behind if len(record) < MAX_KEPT else record
    for match in re.compile(dialect.sync, re.DOTALL).finditer(data, dialect.head):
        at = match.start()
        if at < len(record) and not any(data[at + 96 : at + dialect.head]):
            return at
    return None
