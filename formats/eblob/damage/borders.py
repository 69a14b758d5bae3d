"""Check the records before and after damaged ranges: without checksums, the boundary of damage can be misleading.

See docs/spec/eblob-binlog.md#10-resync.
"""

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
    """Inspects the last record before each damaged range, and the records after it.

    Attributes:
        durable_end: where the last record before the first damage begins, if its own size is proven wrong.
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
        """Add a batch of good records."""
        if self._waiting is not None:
            self._older(*self._waiting)
            self._waiting = None
        last = batch.frames.count - 1
        start, end = int(batch.frames["offset"][last]), int(batch.frames["end"][last])
        self._start, self._number = batch.base + start, batch.first_record + last
        self._bytes = bytes(batch.window[start : min(end, start + MAX_KEPT)])
        self._dialect = dialect

    def damage(self, start: int, end: int, unread: Unread | None) -> None:
        """Add the damaged range `[start, end)`.

        Args:
            unread: what is at `start`, if a record header should be there.
        """
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
        """Report that the record before the damage contains a record header, so its own size is wrong."""
        if self._damages == 1:
            self.durable_end = self._start
        place = self._start + inner
        text = f"{NO_HEADER}: the sizes of the record before the damage reach over the record header at {place:#x}"
        facts: dict[str, Any] = {"diagnosis": NO_HEADER, "swallowed_header": place, "detected_at": end}
        self._add(finding("bad-header", self._start, end - self._start, text, record=self._number, **facts))

    def _older(self, start: int, end: int) -> None:
        """Report good records after damage although the record before it is whole: they may belong to an older log."""
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
        """List the findings, at most one per damaged range."""
        return self._found


def _header_inside(dialect: Dialect, record: bytes, behind: bytes) -> int | None:
    """Find where another record header begins inside a record, after its own header; None = nowhere.

    Args:
        following: the bytes after the record.
    """
    data = record + behind if len(record) < MAX_KEPT else record
    for match in re.compile(dialect.sync, re.DOTALL).finditer(data, dialect.head):
        at = match.start()
        if at < len(record) and not any(data[at + 96 : at + dialect.head]):
            return at
    return None
