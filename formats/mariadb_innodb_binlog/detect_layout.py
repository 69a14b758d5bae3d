"""Detect files of the InnoDB binlog, and create the layout of a file from its header page.

See docs/spec/mariadb_innodb_binlog.md#header-page.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import cache, partial
from typing import Any

from construct import Construct
from msgspec.structs import replace

from binlogtool.findings import Finding, Severity, make_finding
from binlogtool.format_api.format import FileHead, FormatMatch
from binlogtool.format_api.layout import (
    CRC32C,
    Assembler,
    FrameCorrector,
    FrameLevel,
    Kernel,
    LogFileLayout,
    SalvageAssembler,
)
from binlogtool.format_api.lazy_import import LazyRef
from binlogtool.formats.binlog_events.ddl.table_history import find_earlier_state
from binlogtool.formats.mariadb_innodb_binlog.records.assemble import RecordAssembler
from binlogtool.formats.mariadb_innodb_binlog.records.records import ChunkJoinCodec
from binlogtool.formats.mariadb_innodb_binlog.schema import (
    DEFAULT_PAGE_SIZE_SHIFT,
    MAGIC,
    MAGIC_BYTES,
    NO_FILE,
    PAGE_SIZE_SHIFTS,
    SCAN_COLUMNS,
    SHORT_HEADER_SIZE,
    VERSION_MAJOR,
    IbbFileContext,
    IbbFileHeader,
    IbbScanSummary,
    file_number,
    header_page_construct,
    is_page_crc_right,
    is_short_crc_right,
    joined_page_construct,
    page_construct,
    parse_header,
)
from binlogtool.limits import MIB, Limits

DEFAULT_MAX_RECORD = 256 * MIB
"""Default limit for the size of one record, in bytes."""


def detect_format(head: FileHead) -> FormatMatch:
    """Detect the format by magic and CRC, or by the name if the file is damaged or empty."""
    data, has_log_name = head.data, file_number(head.name) is not None
    header = parse_header(data)
    if data.startswith(MAGIC_BYTES):
        return FormatMatch(100, "it starts with fe fe 0d 01")
    if header is not None and is_short_crc_right(data) and has_log_name:
        return FormatMatch(90, "a log's name, and the CRC of the header is right")
    if has_log_name and data and not any(data[:SHORT_HEADER_SIZE]):
        return FormatMatch(60, "a log's name, and zeros at the start, as in a preallocated file")
    if has_log_name and MAGIC_BYTES.startswith(data[:4]):
        return FormatMatch(30, "a log's name, and the beginning of its magic")
    if has_log_name:
        return FormatMatch(10, "a log's name")
    return FormatMatch(0, "neither magic nor name")


def make_layout(head: FileHead, limits: Limits) -> LogFileLayout:
    """Read the header and page size of a file, and report problems of the header."""
    data = head.data[:SHORT_HEADER_SIZE]
    empty = not any(data)
    header = None if empty else parse_header(data)
    is_trusted = header is not None and is_short_crc_right(data) and header.magic == MAGIC
    shift = _find_page_size_shift(head, header, is_trusted)
    name_number = file_number(head.name)
    context = IbbFileContext(
        number=header.file_no if name_number is None and is_trusted and header is not None else name_number,
        page_size=1 << shift,
        header=header if is_trusted else None,
        starts_with_zeros=empty,
        size=head.size,
        level=head.hints.level or "record",
        name=head.name,
        max_record=limits.max_record or DEFAULT_MAX_RECORD,
        max_group=limits.max_inflate,
        read=head.peek,
        open_sibling=head.read_sibling,
        shared=head.shared,
        hints=head.hints,
        redo=head.redo,
        earlier=find_earlier_state(head, "mariadb-innodb-binlog", _is_next_file),
    )
    findings = [] if empty else list(_check_header(head, header, context, shift, is_trusted))
    if empty and not _has_hidden_data(head, context):
        context.is_preallocated = True
        return _build_layout(context, 0, "held in reserve", findings)
    if empty:
        text = "the header page is zero, but data follows; readers consider the file empty"
        size = context.page_size if context.size is None else min(context.page_size, context.size)
        findings = [_make_finding("bad-header", 0, size, text, "header-lost")]
    if is_trusted and not findings:
        head.shared["mariadb-innodb-binlog.page_size"] = context.page_size
    return _build_layout(context, context.page_size, _variant_name(header if is_trusted else None), findings)


def _variant_name(header: IbbFileHeader | None) -> str:
    return "header damaged" if header is None else f"ibb {header.version_major}.{header.version_minor}"


def _build_layout(context: IbbFileContext, frames_at: int, variant: str, findings: list[Finding]) -> LogFileLayout:
    level = make_page_level(context.page_size)
    if context.size is not None and frames_at > context.size:
        frames_at = context.size
    header = header_page_construct(context.page_size)
    return LogFileLayout(
        variant,
        frames_at,
        level,
        header if frames_at else None,
        None,
        context,
        tuple(findings),
        make_assembler=_choose_assembler(context),
        make_salvage_assembler=_choose_salvage_assembler(context),
        page_size=context.page_size,
    )


def _choose_assembler(context: IbbFileContext) -> Callable[[Callable[[Kernel], Kernel]], Assembler] | None:
    """Return the factory of the assembler for the level that the user chose."""
    if context.level == "page":
        return None
    if context.level == "record":
        return partial(RecordAssembler, context)
    from binlogtool.formats.mariadb_innodb_binlog.event_groups import EventAssembler

    return partial(EventAssembler, context)


def _choose_salvage_assembler(
    context: IbbFileContext,
) -> Callable[[Any, Callable[[Kernel], Kernel], FrameCorrector], SalvageAssembler] | None:
    """Return the factory of the salvage reader for the level that the user chose."""
    if context.level == "page":
        return None
    class_name = "IbbSalvagedEvents" if context.level == "event" else "IbbSalvagedRecords"
    return LazyRef(f"mariadb_innodb_binlog.records.salvage:{class_name}")


def _is_next_file(before: str, name: str) -> bool:
    """Return whether a file is the next one of the same log."""
    numbers = file_number(before), file_number(name)
    return None not in numbers and numbers[0] + 1 == numbers[1]  # type: ignore[operator]


def fork_context(context: IbbFileContext) -> IbbFileContext:
    """Return an independent copy of a context."""
    events = None if context.events is None else context.events.fork()
    return replace(context, shared=dict(context.shared), events=events, scan_summary=IbbScanSummary())


@cache
def make_page_level(page_size: int) -> FrameLevel:
    """Return the frame level of data pages."""
    return FrameLevel(
        name="page",
        schema=page_construct(page_size),
        columns=SCAN_COLUMNS,
        sync=None,
        min_size=page_size,
        max_size=page_size,
        align=page_size,
        checksum=CRC32C,
        stored="crc32c",
        covered=("offset", "data_end"),
        annotated_schema=_annotated_page,
        prove=LazyRef("mariadb_innodb_binlog.records.salvage:is_whole_page"),
    )


def _annotated_page(context: IbbFileContext) -> Construct:
    return joined_page_construct(context.page_size, ChunkJoinCodec(context))


# -- page size ---------------------------------------------------------------------------------------------------------


def _find_page_size_shift(head: FileHead, header: IbbFileHeader | None, is_trusted: bool) -> int:
    """Return log2 of the page size: from the header, unless the pages contradict it."""
    shared_page_size: int | None = head.shared.get("mariadb-innodb-binlog.page_size")
    header_shift = header.page_size_shift if header is not None and header.page_size_shift in PAGE_SIZE_SHIFTS else None
    preferred = (
        header_shift
        if header_shift is not None
        else shared_page_size.bit_length() - 1
        if shared_page_size
        else DEFAULT_PAGE_SIZE_SHIFT
    )
    if (is_trusted and header_shift == DEFAULT_PAGE_SIZE_SHIFT) or _is_proven_page_size(head, preferred):
        return preferred
    others = (DEFAULT_PAGE_SIZE_SHIFT, *(shift for shift in PAGE_SIZE_SHIFTS if shift != DEFAULT_PAGE_SIZE_SHIFT))
    return next((shift for shift in others if _is_proven_page_size(head, shift)), preferred)


def _is_proven_page_size(head: FileHead, shift: int) -> bool:
    """Return whether the header page, or the page after it, ends with a right CRC for this page size.

    The first 512 bytes are no proof, because they always have their own CRC.
    """
    size = 1 << shift
    pages = [head.data[:size]] if head.peek is None else [head.peek(0, size), head.peek(size, size)]
    if size == SHORT_HEADER_SIZE:
        del pages[0]
    return any(len(one) == size and any(one) and is_page_crc_right(one) for one in pages)


# -- findings about the header -----------------------------------------------------------------------------------------


def _check_header(
    head: FileHead, header: IbbFileHeader | None, context: IbbFileContext, shift: int, is_trusted: bool
) -> Iterator[Finding]:
    if header is None or not is_trusted:
        yield _report_damaged_header(head, header)
        return
    if header.version_major > VERSION_MAJOR:
        text = f"version {header.version_major}.{header.version_minor}; {VERSION_MAJOR}.x is known"
        yield _make_finding("unsupported-version", 8, 4, text, "unsupported-version")
    if header.page_size_shift != shift or shift != DEFAULT_PAGE_SIZE_SHIFT:
        yield _report_page_size(header, shift)
    header_bytes = head.data[: 1 << shift] if head.peek is None else head.peek(0, 1 << shift)
    if len(header_bytes) == 1 << shift and not is_page_crc_right(header_bytes):
        text = (
            "the CRC of the header page is wrong, but that of its first 512 bytes is right; the unused part is damaged"
        )
        yield _make_finding("checksum-mismatch", 0, len(header_bytes), text, "header-tail-damaged", algorithm="crc32c")
    yield from _check_header_fields(header, context)


def _check_header_fields(header: IbbFileHeader, context: IbbFileContext) -> Iterator[Finding]:
    if context.number is not None and header.file_no != context.number:
        text = f"the header says file {header.file_no}, the name says {context.number}"
        yield _make_finding("meta-mismatch", 16, 8, text, "file-renamed", file_no=header.file_no)
    interval = header.diff_state_interval
    if interval & (interval - 1):
        yield _make_finding(
            "bad-header", 40, 8, f"diff_state_interval {interval} is not a power of two", "bad-interval"
        )
    for field_offset, name in ((48, "oob_ref_file_no"), (56, "xa_ref_file_no")):
        value = getattr(header, name)
        if value > header.file_no and value != NO_FILE:
            text = f"{name} {value} is a later file than {header.file_no}"
            yield _make_finding("bad-header", field_offset, 8, text, "bad-oob-ref")


def _report_damaged_header(head: FileHead, header: IbbFileHeader | None) -> Finding:
    if header is None:
        return _make_finding("bad-header", 0, len(head.data), f"a file of {len(head.data)} bytes", "header-damaged")
    if header.magic != MAGIC:
        text = f"magic is {header.magic:08x}, expected {MAGIC:08x}"
        return _make_finding("bad-magic", 0, 4, text, "header-damaged")
    text = "the CRC of the first 512 bytes is wrong; the server considers the file invalid and starts a new binlog"
    return _make_finding("bad-header", 0, min(SHORT_HEADER_SIZE, len(head.data)), text, "header-damaged")


def _report_page_size(header: IbbFileHeader, shift: int) -> Finding:
    field_text = f"page_size_shift {header.page_size_shift}"
    if header.page_size_shift == shift:
        text = f"{field_text}: pages of {1 << shift:,} bytes; servers support only {1 << DEFAULT_PAGE_SIZE_SHIFT:,}"
        return _make_finding("unsupported-version", 4, 4, text, "unsupported-page-size", Severity.NOTE)
    text = f"{field_text}, but the pages have {1 << shift:,} bytes"
    return _make_finding("unsupported-version", 4, 4, text, "unsupported-page-size")


def _has_hidden_data(head: FileHead, context: IbbFileContext) -> bool:
    """Return whether a page with data follows zeros at the start of the file."""
    if head.peek is None or head.size is None:
        return any(head.data)
    size = context.page_size
    return any(any(head.peek(number * size, size)) for number in range(min(2, -(-head.size // size))))


def _make_finding(
    finding_id: str, offset: int, length: int, text: str, diagnosis: str, severity: Severity | None = None, **facts: Any
) -> Finding:
    return make_finding(finding_id, offset, length, text, severity=severity, diagnosis=diagnosis, **facts)
