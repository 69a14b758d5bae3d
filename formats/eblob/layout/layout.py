"""Detect eblob binlogs and their dialect, and validate the file header.

See docs/spec/eblob.md#file-header and docs/spec/eblob.md#validation.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from fnmatch import fnmatchcase
from itertools import islice
from typing import Any, NamedTuple

import msgspec

from binlogtool.findings import Finding, Severity, make_finding
from binlogtool.formats.detecting import FileHead, FormatMatch
from binlogtool.formats.eblob import FILE_PATTERNS
from binlogtool.formats.eblob.groups.grouping import EblobRecord
from binlogtool.formats.eblob.layout import dialects
from binlogtool.formats.eblob.layout.dialects import (
    DIALECT_A,
    DIALECT_A0,
    DIALECT_B,
    DIALECT_B4,
    DIALECT_B_BE,
    DIALECTS,
    PACKED_DIALECTS,
    EblobDialect,
    ReadRange,
)
from binlogtool.formats.eblob.schema import HEADER_SIZE, MAGIC, PACKED_MAGIC, RECORD_HEADER_SIZE, VERSION, HeaderFlag
from binlogtool.formats.layouts import FrameLevel, LogFileLayout
from binlogtool.limits import MIB, Limits

SCAN_COLUMNS = ("type", "meta_size", "data_size", "pad_bits")
"""Columns of a scan; where there is one type only, it is none of them."""


_ALIGNED_DIALECTS = (DIALECT_B4, DIALECT_A, DIALECT_A0)
"""b4 stands for b too: the layout is the same."""

_MAX_STARTS = 16
_FREEZE_FLAG = 8
"""A fourth flag bit: known from 2 to 5 November 2012, in dialect a (docs/spec/eblob.md#file-header)."""


class UnreadableHeader(NamedTuple):
    """An offset where a record should begin but does not: the bytes of a record header, and what is wrong with them."""

    offset: int
    head: bytes
    diagnosis: str


class EblobFileContext(msgspec.Struct):
    """What the format knows about one file.

    Attributes:
        flags: of the file header.
        last_records: the last records of a batch, by the number of the record after them, so that a group may begin
            in
            one batch and end in the next (`grouping`).
        unreadable_header: the last offset without a record that was classified (`damage`).
    """

    dialect: EblobDialect
    flags: int = 0
    last_records: dict[int, tuple[EblobRecord, ...]] = msgspec.field(default_factory=dict)
    unreadable_header: UnreadableHeader | None = None

    @property
    def is_preallocated(self) -> bool:
        """True if the header says that space is reserved in advance."""
        return bool(self.flags & HeaderFlag.PREALLOCATE)


def log_stem(name: str) -> str:
    """Return the name with numbers set to 0: the binlogs of the blobs of one base differ only in numbers."""
    return re.sub(r"\d+", "0", name)


def make_layout(head: FileHead, limits: Limits, variant: str | None = None) -> LogFileLayout:
    """Determine the dialect, and report problems of the header.

    Args:
        variant: the dialect that the user named.
    """
    dialect, findings, is_readable = _detect_dialect(head, variant)
    check_header = _check_packed_header if dialect in PACKED_DIALECTS else _check_header
    findings = [*check_header(head, dialect), *findings]
    flags = _read_flags(head.data, dialect)
    return LogFileLayout(
        variant=dialect.title,
        frames_at=dialect.frames_at,
        frame=make_frame_level(dialect),
        header=dialect.header,
        context=EblobFileContext(dialect, flags),
        findings=tuple(findings),
        readable=is_readable and len(head.data) >= dialect.frames_at,
    )


def make_frame_level(dialect: EblobDialect) -> FrameLevel:
    """Return the frame level of a dialect's records."""
    return FrameLevel(
        name="record",
        schema=dialect.schema,
        columns=SCAN_COLUMNS[1:] if dialect.is_grouped else SCAN_COLUMNS,
        sync=dialect.sync,
        min_size=dialect.record_header_size,
        max_size=1024 * MIB,
        prove=is_proven_record,
    )


def is_proven_record(frame: bytes, context: EblobFileContext) -> bool:
    """Check if bytes that fit the schema are certainly a record: the padding must also be zero.

    See docs/spec/eblob.md#resynchronization.
    """
    return context.dialect.record_header_size < RECORD_HEADER_SIZE or not any(frame[96:RECORD_HEADER_SIZE])


def make_range_reader(head: FileHead) -> ReadRange:
    """Return a function that reads bytes of the file, from its head and, if possible, from after the head."""

    def read(offset: int, size: int) -> bytes:
        if offset + size <= len(head.data) or head.is_whole or head.peek is None:
            return head.data[offset : offset + size]
        return head.peek(offset, size)

    return read


def _detect_dialect(head: FileHead, variant: str | None) -> tuple[EblobDialect, list[Finding], bool]:
    """Return (dialect, findings about the choice, whether records can be walked)."""
    if variant is not None:
        return DIALECTS[variant], [], True
    is_packed = head.data.startswith(PACKED_MAGIC[:2])
    candidates = (
        PACKED_DIALECTS
        if is_packed
        else (DIALECT_B_BE, *_ALIGNED_DIALECTS)
        if _is_big_endian(head.data)
        else (*_ALIGNED_DIALECTS, DIALECT_B_BE)
    )
    readable_size = head.size if head.peek is not None or head.is_whole else None
    choice = dialects.choose_dialect(candidates, make_range_reader(head), readable_size, _iter_chain_starts(head.data))
    dialect, doubt = choice.dialect, choice.doubt
    if dialect is DIALECT_B4:
        dialect, b4_doubt = _decide_b4(head, readable_size)
        doubt = doubt or b4_doubt
    findings = [_report_doubt(head, doubt, dialect)] if doubt else []
    return dialect, findings, _has_magic(head.data) or is_packed or choice.links > 0


def _decide_b4(head: FileHead, size: int | None) -> tuple[EblobDialect, str | None]:
    """Choose b4 only if several records have one of its own types: a single one is rather a damaged record of b."""
    b4_records = dialects.follow_records(DIALECT_B4, make_range_reader(head), size, DIALECT_B4.frames_at).b4_records
    if b4_records > 1:
        return DIALECT_B4, None
    return (
        DIALECT_B,
        "one record has a type that only b4 knows: it is damaged, or the log is of dialect b4" if b4_records else None,
    )


def _report_doubt(head: FileHead, reason: str, dialect: EblobDialect) -> Finding:
    text = f"the dialect is not certain: {reason}; read as {dialect.name}, --format eblob:DIALECT says otherwise"
    facts: dict[str, Any] = {"diagnosis": "dialect not certain", "dialect": dialect.name}
    return make_finding("bad-header", 0, min(len(head.data), HEADER_SIZE), text, severity=Severity.WARNING, **facts)


def _iter_chain_starts(data: bytes) -> Iterator[int]:
    """Iterate over offsets where a chain may start: the first record (0 = default), then apparent headers."""
    yield 0
    pattern = re.compile(DIALECT_B4.sync + rb"|[\x01-\x03]\0{7}.{6}\0\0\0{8}", re.DOTALL)
    yield from (match.start() for match in islice(pattern.finditer(data, HEADER_SIZE + 1), _MAX_STARTS))


def _has_magic(data: bytes) -> bool:
    return data.startswith(MAGIC)


def _is_big_endian(data: bytes) -> bool:
    return data[8:10] == VERSION.to_bytes(2, "big")


def _read_flags(data: bytes, dialect: EblobDialect) -> int:
    start = 7 if dialect in PACKED_DIALECTS else 16
    byte_order: Any = dialect.byte_order
    return int.from_bytes(data[start : start + 8], byte_order)


def _check_header(head: FileHead, dialect: EblobDialect) -> list[Finding]:
    """Validate the 256-byte header, each finding with the offset of its field."""
    data = head.data
    if len(data) < HEADER_SIZE:
        return [_report_short_file(len(data), HEADER_SIZE)]
    findings = []
    if not _has_magic(data):
        first_difference = next(i for i in range(8) if data[i] != MAGIC[i])
        offset = first_difference if first_difference == 7 else 0
        findings.append(_make_finding("bad-magic", offset, 8 - offset, "bad magic", f"magic is {data[:8].hex(' ')}"))
    findings += _check_version(data, dialect)
    unknown_flags = _read_flags(data, dialect) & ~(_known_flags(dialect))
    if unknown_flags:
        text = f"flags {_read_flags(data, dialect):#x}: {unknown_flags:#x} is unknown, eblob refuses the file"
        findings.append(_make_finding("bad-header", 16, 8, "unknown header flags", text))
    return [*findings, *_check_padding(data, ((10, 16), (24, HEADER_SIZE)))]


def _known_flags(dialect: EblobDialect) -> int:
    final = sum(flag.value for flag in HeaderFlag)
    return final if dialect.is_grouped else final | _FREEZE_FLAG


def _check_version(data: bytes, dialect: EblobDialect) -> list[Finding]:
    byte_order: Any = dialect.byte_order
    version = int.from_bytes(data[8:10], byte_order)
    if version == VERSION and dialect.byte_order == "little":
        return []
    if version == VERSION:
        text = "written by a big-endian machine (version reads as 0x0100); a little-endian eblob refuses the file"
        return [
            make_finding(
                "unsupported-version", 8, 2, text, severity=Severity.WARNING,
                diagnosis="written by a big-endian machine (version reads as 0x0100)",
            )
        ]  # fmt: skip
    return [
        _make_finding("unsupported-version", 8, 2, "unsupported version", f"version is {version}, known is {VERSION}")
    ]


def _check_packed_header(head: FileHead, dialect: EblobDialect) -> list[Finding]:
    """Validate the header of dialect p, which has no gaps."""
    data = head.data
    if len(data) < dialect.frames_at:
        return [_report_short_file(len(data), dialect.frames_at)]
    findings = []
    if not data.startswith(PACKED_MAGIC):
        findings.append(_make_finding("bad-magic", 0, 5, "bad magic", f"magic is {data[:5].hex(' ')}"))
    version = int.from_bytes(data[5:7], "little")
    if version != VERSION:
        findings.append(
            _make_finding(
                "unsupported-version", 5, 2, "unsupported version", f"version is {version}, known is {VERSION}"
            )
        )
    return [*findings, *_check_padding(data, ((15, dialect.frames_at),))]


def _make_finding(finding_id: str, offset: int, length: int, diagnosis: str, text: str) -> Finding:
    return make_finding(finding_id, offset, length, f"{diagnosis}: {text}", diagnosis=diagnosis)


def _report_short_file(size: int, header_size: int) -> Finding:
    diagnosis = "file shorter than its header" if size else "empty file"
    return make_finding(
        "bad-header",
        size,
        0,
        f"{diagnosis}: {size} of {header_size} bytes; eblob refuses to open it",
        diagnosis=diagnosis,
    )


def _check_padding(data: bytes, ranges: tuple[tuple[int, int], ...]) -> list[Finding]:
    """Report reserved bytes of the header that are not zero: written as 0, never checked by eblob."""
    nonzero = [i for start, end in ranges for i in range(start, end) if data[i]]
    if not nonzero:
        return []
    text = f"{len(nonzero)} reserved bytes of the header are not zero; eblob ignores them"
    return [
        make_finding(
            "reserved-bits-set", nonzero[0], nonzero[-1] + 1 - nonzero[0], text,
            diagnosis="reserved header bytes not zero (warning)",
        )
    ]  # fmt: skip


def detect_format(head: FileHead) -> FormatMatch:
    """Detect the format by the magic; else by name and a chain of records after a damaged header."""
    data = head.data
    has_log_name = any(fnmatchcase(head.name.rsplit("/", 1)[-1], pattern) for pattern in FILE_PATTERNS)
    if data.startswith((MAGIC, PACKED_MAGIC)):
        return FormatMatch(100, "the magic of an eblob binlog")
    if not data:
        return FormatMatch(
            15 if has_log_name else 0, "empty, and named like a binlog" if has_log_name else "empty file"
        )
    if data[: len(MAGIC) - 1] == MAGIC[:-1]:
        return FormatMatch(70, "the magic of an eblob binlog, damaged")
    if len(data) < 8 and MAGIC.startswith(data):
        return FormatMatch(30, "the magic of an eblob binlog, torn")
    choice = dialects.choose_dialect(
        _ALIGNED_DIALECTS, make_range_reader(head), head.size if head.is_whole else None, iter((0,))
    )
    if choice.links > 1:
        return FormatMatch(60, f"a damaged header, and {choice.links} records behind it")
    return FormatMatch(
        10 if has_log_name else 0, "only the file name fits" if has_log_name else "no magic of an eblob binlog"
    )
