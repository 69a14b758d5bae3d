"""Explain damage in a log, including the records before and after a damaged range.

See docs/spec/eblob.md#resynchronization.
"""

from __future__ import annotations

import re
import struct
from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

import msgspec
from msgspec.structs import replace

from binlogtool.findings import Finding, Severity, make_finding
from binlogtool.format_api.layout import Batch, LogFileLayout
from binlogtool.formats.eblob.decode import EblobDialect, UnreadableHeader
from binlogtool.formats.eblob.schema import MAX_SIZE, RECORD_HEADER_SIZE

# --- Kinds of damage (docs/spec/eblob.md#validation) ---

BAD_TYPE = "bad record type"
TYPE_ZERO = "end of records inside the data: type 0 with valid records after it"
FLAGS_SET = "record flags not zero"
PAST_THE_END = "record runs past the end of the file"
SIZE_ABOVE_INT64 = "size above 2^63"
SIZE_OVERFLOW = "meta_size + data_size overflows"
SIZE_TOO_LARGE = "size larger than any file"
NO_HEADER = "next record header is not valid"
HOLE = "broken record, resync needed"
METADATA_TOO_LARGE = "metadata larger than the record"

_UINT64_LIMIT = 1 << 64
_INT64_LIMIT = 1 << 63
_TAILS: Mapping[str, str] = MappingProxyType({"torn-tail": "torn tail", "garbage-tail": "garbage tail"})
_CLEAN_ZEROS = "clean (preallocated zeros after the last record)"
_ZERO_TAIL = "clean or zero tail"


def explain_damage(layout: LogFileLayout, damaged_bytes: memoryview, damage_offset: int, damage: Finding) -> Finding:
    """Return the finding with a `diagnosis` in its facts, and whether eblob itself stops here."""
    if damage.id in _TAILS:
        return _copy_with_diagnosis(damage, _TAILS[damage.id])
    if damage.id == "zero-tail":
        whole_header = damage.length >= layout.context.dialect.record_header_size
        diagnosis = _CLEAN_ZEROS if whole_header else _ZERO_TAIL
        return _copy_with_diagnosis(damage, diagnosis, "preallocated-tail" if layout.context.is_preallocated else None)
    if damage.id not in ("bad-magic", "length-out-of-bounds", "bad-header") or "ceiling" in damage.facts:
        return damage
    dialect: EblobDialect = layout.context.dialect
    head = bytes(damaged_bytes[: dialect.record_header_size])
    if len(head) < dialect.record_header_size or dialect.record_header_size != RECORD_HEADER_SIZE:
        return _copy_with_diagnosis(damage, PAST_THE_END if damage.id == "length-out-of-bounds" else BAD_TYPE)
    explained = _classify_record_header(dialect, head, damage)
    layout.context.unreadable_header = UnreadableHeader(damage_offset, head, explained.facts["diagnosis"])
    return explained


def _copy_with_diagnosis(damage: Finding, diagnosis: str, finding_id: str | None = None, **facts: Any) -> Finding:
    text = damage.message
    if diagnosis.replace(" ", "-") != damage.id:
        text = f"{diagnosis}: {text}"
    all_facts = MappingProxyType({**damage.facts, "diagnosis": diagnosis, **facts})
    return replace(damage, id=finding_id or damage.id, message=text, facts=all_facts)


def _classify_record_header(dialect: EblobDialect, head: bytes, damage: Finding) -> Finding:
    """Classify a bad record header by the first rule that it violates."""
    order = ">" if dialect.byte_order == "big" else "<"
    record_type, first, second, fourth = struct.unpack_from(f"{order}QQQQ", head)
    flags, sizes = (second, (first,)) if dialect.name == "a0" else (fourth, (first, second))
    if not any(head):
        return _copy_with_diagnosis(damage, HOLE, stops_here=True)
    if record_type not in dialect.types:
        plausible = not flags and max(sizes) <= MAX_SIZE and not any(head[96:])
        return _copy_with_diagnosis(
            damage, (BAD_TYPE if record_type else TYPE_ZERO) if plausible else NO_HEADER, stops_here=True
        )
    if flags:
        has_valid_sizes = max(sizes) <= MAX_SIZE
        return _copy_with_diagnosis(damage, FLAGS_SET if has_valid_sizes else NO_HEADER, "bad-header", stops_here=True)
    return _copy_with_diagnosis(damage, _diagnose_sizes(dialect, sizes))


def _diagnose_sizes(dialect: EblobDialect, sizes: tuple[int, ...]) -> str:
    total = RECORD_HEADER_SIZE + (sizes[0] if dialect.name in ("a", "a0") else sum(sizes))
    if total >= _UINT64_LIMIT:
        return SIZE_OVERFLOW
    if max(sizes) >= _INT64_LIMIT:
        return SIZE_ABOVE_INT64
    if dialect.name == "a" and sizes[1] > sizes[0]:
        return METADATA_TOO_LARGE
    return SIZE_TOO_LARGE if max(sizes) > MAX_SIZE else PAST_THE_END


# --- Records around damaged ranges ---

MAX_KEPT_BYTES = 1 << 16
"""Number of bytes of a batch's last record that are kept for inspection."""

MAX_FINDINGS = 100
STALE = "bytes after the last record are not zero; older records follow"


class DamageBoundaryChecker(msgspec.Struct):
    """Inspects the last record before each damaged range, and the records after it.

    Attributes:
        durable_end: start of the last record before the first damage, if its own size is proven wrong.
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

    def add_damage(self, start: int, end: int, unread_header: UnreadableHeader | None) -> None:
        """Add the damaged range `[start, end)`.

        unread_header: the bytes at `start`, if a record header should be there.
        """
        self._damage_count += 1
        record, self._record_bytes = self._record_bytes, b""
        if unread_header is None or unread_header.offset != start or unread_header.diagnosis != NO_HEADER:
            return
        inner_offset = (
            None
            if self._dialect is None or not record
            else _find_header_inside_record(self._dialect, record, unread_header.head)
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
        text = f"{NO_HEADER}: the sizes of the record before the damage extend over the record header at {header_at:#x}"
        facts: dict[str, Any] = {"diagnosis": NO_HEADER, "swallowed_header": header_at, "detected_at": end}
        self._add_finding(
            make_finding(
                "bad-header", self._record_start, end - self._record_start, text, record=self._record_number, **facts
            )
        )

    def _report_stale_records(self, start: int, end: int) -> None:
        """Report good records after damage although the record before it is complete: they may be of an older log."""
        text = (
            "records after the damaged range may be older than those before it, because eblob overwrites "
            "what it cannot "
            "read; check them before you replay them"
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


def _find_header_inside_record(dialect: EblobDialect, record: bytes, following: bytes) -> int | None:
    """Return where another record header begins inside a record, after its own header; None = nowhere.

    Args:
        following: the bytes after the record.
    """
    data = record + following if len(record) < MAX_KEPT_BYTES else record
    for match in re.compile(dialect.sync, re.DOTALL).finditer(data, dialect.record_header_size):
        offset = match.start()
        if offset < len(record) and not any(data[offset + 96 : offset + dialect.record_header_size]):
            return offset
    return None
