"""Detect files of the InnoDB binlog, and create the layout of a file from its header page.

See docs/spec/mariadb-innodb-binlog.md#3-header-page-page-0.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import cache
from typing import Any

from construct import Construct
from msgspec.structs import replace

from binlogtool.findings import Finding, Severity, finding
from binlogtool.formats.binlog_events.ddl.table_history import earlier_definitions
from binlogtool.formats.checksums import CRC32C
from binlogtool.formats.detecting import Head, Match
from binlogtool.formats.layouts import Assembler, Doubt, Doubtful, FrameLevel, Kernel, Layout
from binlogtool.formats.mariadb_innodb_binlog.codes import (
    MAGIC,
    NO_FILE,
    SHIFTS,
    SHORT_HEADER,
    USUAL_SHIFT,
    VERSION_MAJOR,
    file_number,
)
from binlogtool.formats.mariadb_innodb_binlog.records.context import (
    MAGIC_BYTES,
    FileContext,
    FileHeader,
    Seen,
    page_crc_right,
    parse_header,
    short_crc_right,
)
from binlogtool.formats.mariadb_innodb_binlog.schema import COLUMNS, header_page, joined_page, page
from binlogtool.limits import MIB, Limits

LARGEST = 256 * MIB
"""Default ceiling of one record in bytes."""


def detect(head: Head) -> Match:
    """Detect the format by magic and CRC; a damaged or empty file by its name."""
    data, named = head.data, file_number(head.name) is not None
    header = parse_header(data)
    if data.startswith(MAGIC_BYTES):
        return Match(100, "it starts with fe fe 0d 01")
    if header is not None and short_crc_right(data) and named:
        return Match(90, "a log's name, and the CRC of the header is right")
    if named and data and not any(data[:SHORT_HEADER]):
        return Match(60, "a log's name, and zeros at the start, as in a file held in reserve")
    if named and MAGIC_BYTES.startswith(data[:4]):
        return Match(30, "a log's name, and the beginning of its magic")
    if named:
        return Match(10, "a log's name")
    return Match(0, "neither magic nor name")


def layout(head: Head, limits: Limits) -> Layout:
    """Determine page size and header of a file, and report problems of the header."""
    data = head.data[:SHORT_HEADER]
    empty = not any(data)
    header = None if empty else parse_header(data)
    trusted = header is not None and short_crc_right(data) and header.magic == MAGIC
    shift = _shift(head, header, trusted)
    named = file_number(head.name)
    context = FileContext(
        number=header.file_no if named is None and trusted and header is not None else named,
        page_size=1 << shift,
        header=header if trusted else None,
        empty=empty,
        size=head.size,
        level=head.hints.level or "record",
        name=head.name,
        max_record=limits.max_record or LARGEST,
        max_group=limits.max_inflate,
        read=head.peek,
        beside=head.beside,
        shared=head.shared,
        hints=head.hints,
        redo=head.redo,
        earlier=earlier_definitions(head, _goes_on),
    )
    found = [] if empty else list(_findings(head, header, context, shift, trusted))
    if empty and not _hidden(head, context):
        context.reserve = True
        return _made(context, 0, "held in reserve", found)
    if empty:
        found = [_lost(context)]
    if trusted and not found:
        head.shared["mariadb-innodb-binlog.page_size"] = context.page_size
    return _made(context, context.page_size, _variant(header if trusted else None), found)


def _variant(header: FileHeader | None) -> str:
    return "header damaged" if header is None else f"ibb {header.version_major}.{header.version_minor}"


def _made(context: FileContext, frames_at: int, variant: str, found: list[Finding]) -> Layout:
    level = page_level(context.page_size)
    if context.size is not None and frames_at > context.size:
        frames_at = context.size
    header = header_page(context.page_size)
    return Layout(
        variant,
        frames_at,
        level,
        header if frames_at else None,
        None,
        context,
        tuple(found),
        assemble=_assembler(context),
        doubtful=_doubtful(context),
        page=context.page_size,
    )


def _assembler(context: FileContext) -> Callable[[Callable[[Kernel], Kernel]], Assembler] | None:
    """Return the factory of the assembler for the level that the user chose."""
    from binlogtool.formats.mariadb_innodb_binlog.records.assemble import assembler

    if context.level == "page":
        return None
    if context.level == "record":
        return assembler(context)
    from binlogtool.formats.mariadb_innodb_binlog.groups.events import event_assembler

    return event_assembler(context, assembler(context))


def _doubtful(context: FileContext) -> Callable[[Any, Callable[[Kernel], Kernel], Doubt], Doubtful] | None:
    """Return the factory of the salvage reader for the level that the user chose."""
    if context.level == "page":
        return None
    from binlogtool.formats.later import Later

    name = "groups.doubtful:doubtful_events" if context.level == "event" else "records.doubtful:doubtful_records"
    return Later(f"mariadb_innodb_binlog.{name}")


def _goes_on(before: str, name: str) -> bool:
    """Check if a file is the next one of the same log."""
    numbers = file_number(before), file_number(name)
    return None not in numbers and numbers[0] + 1 == numbers[1]  # type: ignore[operator]


def apart(context: FileContext) -> FileContext:
    """Return an independent copy of a context."""
    events = None if context.events is None else context.events.apart()
    return replace(context, shared=dict(context.shared), events=events, seen=Seen())


@cache
def page_level(page_size: int) -> FrameLevel:
    """Return the frame level of data pages."""
    return FrameLevel(
        name="page",
        schema=page(page_size),
        columns=COLUMNS,
        sync=None,
        min_size=page_size,
        max_size=page_size,
        align=page_size,
        checksum=CRC32C,
        stored="crc32c",
        covered=("offset", "data_end"),
        shown=_shown,
        prove=_whole_page,
    )


def _whole_page(page: bytes, context: FileContext) -> bool:
    """Check if a page with a wrong CRC consists of valid chunks."""
    from binlogtool.formats.mariadb_innodb_binlog.records.doubtful import whole_page

    return whole_page(page, context)


def _shown(context: FileContext) -> Construct:
    from binlogtool.formats.mariadb_innodb_binlog.records.store import Joined

    return joined_page(context.page_size, Joined(context))


# -- page size ---------------------------------------------------------------------------------------------------------


def _shift(head: Head, header: FileHeader | None, trusted: bool) -> int:
    """Return log2 of the page size: from the header, unless the pages contradict it."""
    known: int | None = head.shared.get("mariadb-innodb-binlog.page_size")
    said = header.page_size_shift if header is not None and header.page_size_shift in SHIFTS else None
    first = said if said is not None else known.bit_length() - 1 if known else USUAL_SHIFT
    if (trusted and said == USUAL_SHIFT) or _proven(head, first):
        return first
    others = (USUAL_SHIFT, *(shift for shift in SHIFTS if shift != USUAL_SHIFT))
    return next((shift for shift in others if _proven(head, shift)), first)


def _proven(head: Head, shift: int) -> bool:
    """Check if the header page, or the page after it, ends with a right CRC for this page size.

    The first 512 bytes always do, because they have a CRC of their own.
    """
    size = 1 << shift
    pages = [head.data[:size]] if head.peek is None else [head.peek(0, size), head.peek(size, size)]
    if size == SHORT_HEADER:
        del pages[0]
    return any(len(one) == size and any(one) and page_crc_right(one) for one in pages)


# -- findings about the header -----------------------------------------------------------------------------------------


def _findings(
    head: Head, header: FileHeader | None, context: FileContext, shift: int, trusted: bool
) -> Iterator[Finding]:
    if header is None or not trusted:
        yield _damaged(head, header)
        return
    if header.version_major > VERSION_MAJOR:
        text = f"version {header.version_major}.{header.version_minor}; {VERSION_MAJOR}.x is known"
        yield _about("unsupported-version", 8, 4, text, "unsupported-version")
    if header.page_size_shift != shift or shift != USUAL_SHIFT:
        yield _page_size(header, shift)
    whole = head.data[: 1 << shift] if head.peek is None else head.peek(0, 1 << shift)
    if len(whole) == 1 << shift and not page_crc_right(whole):
        text = "the CRC of the header page is wrong, that of its first 512 bytes is right: the unused part is damaged"
        yield _about("checksum-mismatch", 0, len(whole), text, "header-tail-damaged", algorithm="crc32c")
    yield from _fields(header, context)


def _fields(header: FileHeader, context: FileContext) -> Iterator[Finding]:
    if context.number is not None and header.file_no != context.number:
        text = f"the header says file {header.file_no}, the name says {context.number}"
        yield _about("meta-mismatch", 16, 8, text, "file-renamed", file_no=header.file_no)
    interval = header.diff_state_interval
    if interval & (interval - 1):
        yield _about("bad-header", 40, 8, f"diff_state_interval {interval} is no power of two", "bad-interval")
    for at, name in ((48, "oob_ref_file_no"), (56, "xa_ref_file_no")):
        value = getattr(header, name)
        if value > header.file_no and value != NO_FILE:
            text = f"{name} {value} is a later file than {header.file_no}"
            yield _about("bad-header", at, 8, text, "bad-oob-ref")


def _damaged(head: Head, header: FileHeader | None) -> Finding:
    if header is None:
        return _about("bad-header", 0, len(head.data), f"a file of {len(head.data)} bytes", "header-damaged")
    if header.magic != MAGIC:
        text = f"magic is {header.magic:08x}, expected {MAGIC:08x}"
        return _about("bad-magic", 0, 4, text, "header-damaged")
    text = "the CRC of the first 512 bytes is wrong: the server takes the file for invalid and starts a new binlog"
    return _about("bad-header", 0, min(SHORT_HEADER, len(head.data)), text, "header-damaged")


def _page_size(header: FileHeader, shift: int) -> Finding:
    said = f"page_size_shift {header.page_size_shift}"
    if header.page_size_shift == shift:
        text = f"{said}: pages of {1 << shift:,} bytes; servers know only {1 << USUAL_SHIFT:,}"
        return _about("unsupported-version", 4, 4, text, "unsupported-page-size", Severity.NOTE)
    text = f"{said}, but the pages have {1 << shift:,} bytes"
    return _about("unsupported-version", 4, 4, text, "unsupported-page-size")


def _hidden(head: Head, context: FileContext) -> bool:
    """Check if a page with data follows zeros at the start."""
    if head.peek is None or head.size is None:
        return any(head.data)
    size = context.page_size
    return any(any(head.peek(number * size, size)) for number in range(min(2, -(-head.size // size))))


def _lost(context: FileContext) -> Finding:
    text = "the header page is zero, and data follows: readers take the file for empty"
    size = context.page_size if context.size is None else min(context.page_size, context.size)
    return _about("bad-header", 0, size, text, "header-lost")


def _about(
    id_: str, offset: int, length: int, text: str, diagnosis: str, severity: Severity | None = None, **facts: Any
) -> Finding:
    return finding(id_, offset, length, f"{diagnosis}: {text}", severity=severity, diagnosis=diagnosis, **facts)
