"""Check the records before and after damaged ranges: without checksums, the boundary of damage can be misleading.

See docs/spec/eblob.md#resynchronization.
"""

from __future__ import annotations

import re
from typing import Any

import msgspec

from binlogtool.findings import Finding, Severity, make_finding
from binlogtool.formats.eblob.damage.damage import NO_HEADER
from binlogtool.formats.eblob.layout.dialects import EblobDialect
from binlogtool.formats.eblob.layout.layout import UnreadableHeader
from binlogtool.formats.layouts import Batch

MAX_KEPT_BYTES = 1 << 16
"""Bytes of the last record of a batch that are kept for a look into it."""

MAX_FINDINGS = 100
STALE = "bytes after the last record are not zero; older records follow"


class DamageBoundaryChecker(msgspec.Struct):
    """Inspects the last record before each damaged range, and the records after it.

    Attributes:
        durable_end: where the last record before the first damage begins, if its own size is proven wrong.
    """

    durable_end: int | None = None
    _record_start: int = 0
    _record_number: int = 0
    _record_bytes: bytes = b""
    _dialect: EblobDialect | None = None
    _pending_range: tuple[int, int] | None = None
    _findings: list[Finding] = msgspec.field(default_factory=list)
    _damage_count: int = 0

    def add_records(self, batch: Batch, dialect: EblobDialect) -> None:
        """Add a batch of good records."""
        if self._pending_range is not None:
            self._report_stale_records(*self._pending_range)
            self._pending_range = None
        last = batch.frames.count - 1
        start, end = int(batch.frames["offset"][last]), int(batch.frames["end"][last])
        self._record_start, self._record_number = batch.base + start, batch.first_record + last
        self._record_bytes = bytes(batch.window[start : min(end, start + MAX_KEPT_BYTES)])
        self._dialect = dialect

    def add_damage(self, start: int, end: int, unread: UnreadableHeader | None) -> None:
        """Add the damaged range `[start, end)`.

        Args:
            unread: what is at `start`, if a record header should be there.
        """
        self._damage_count += 1
        record, self._record_bytes = self._record_bytes, b""
        if unread is None or unread.offset != start or unread.diagnosis != NO_HEADER:
            return
        inner_offset = (
            None if self._dialect is None or not record else _find_inner_header(self._dialect, record, unread.head)
        )
        if inner_offset is not None:
            self._report_wrong_size(inner_offset, start)
        elif record:
            self._pending_range = (start, end)

    def _report_wrong_size(self, inner_offset: int, end: int) -> None:
        """Report that the record before the damage contains a record header, so its own size is wrong."""
        if self._damage_count == 1:
            self.durable_end = self._record_start
        header_at = self._record_start + inner_offset
        text = f"{NO_HEADER}: the sizes of the record before the damage reach over the record header at {header_at:#x}"
        facts: dict[str, Any] = {"diagnosis": NO_HEADER, "swallowed_header": header_at, "detected_at": end}
        self._add_finding(
            make_finding(
                "bad-header", self._record_start, end - self._record_start, text, record=self._record_number, **facts
            )
        )

    def _report_stale_records(self, start: int, end: int) -> None:
        """Report good records after damage although the record before it is whole: they may belong to an older log."""
        text = (
            "records behind the damaged range may be older than those before it: eblob appends over what it cannot "
            "read; never replay them unseen"
        )
        self._add_finding(
            make_finding(
                "sequence-regression", start, end - start, text, severity=Severity.WARNING,
                record=self._record_number + 1,
                diagnosis=STALE,
            )
        )  # fmt: skip

    def _add_finding(self, problem: Finding) -> None:
        if len(self._findings) < MAX_FINDINGS:
            self._findings.append(problem)

    def list_findings(self) -> list[Finding]:
        """List the findings, at most one per damaged range."""
        return self._findings


def _find_inner_header(dialect: EblobDialect, record: bytes, following: bytes) -> int | None:
    """Find where another record header begins inside a record, after its own header; None = nowhere.

    Args:
        following: the bytes after the record.
    """
    data = record + following if len(record) < MAX_KEPT_BYTES else record
    for match in re.compile(dialect.sync, re.DOTALL).finditer(data, dialect.record_header_size):
        offset = match.start()
        if offset < len(record) and not any(data[offset + 96 : offset + dialect.record_header_size]):
            return offset
    return None
