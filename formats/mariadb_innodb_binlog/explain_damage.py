"""Explain damage in a file, and repair a header page that has one flipped bit.

See docs/spec/mariadb_innodb_binlog.md#header-page.
"""

from __future__ import annotations

from collections.abc import Iterator
from types import MappingProxyType
from typing import Any

from msgspec.structs import replace

from binlogtool.findings import Finding
from binlogtool.format_api.format import FileHead, HeaderFlip, correct_head, find_bit_flip_by_checksum
from binlogtool.format_api.layout import CRC32C, LogFileLayout
from binlogtool.formats.mariadb_innodb_binlog.schema import (
    CRC_SIZE,
    MAGIC,
    PAGE_SIZE_SHIFTS,
    SHORT_HEADER_SIZE,
    IbbFileContext,
    is_page_crc_right,
    is_short_header_crc_right,
    parse_header,
)

# --- Kinds of damage (docs/spec/mariadb_innodb_binlog.md#validation) ---


def explain_damage(layout: LogFileLayout, data: memoryview, offset: int, problem: Finding) -> Finding:
    """Return the finding with a `diagnosis` in its facts."""
    context: IbbFileContext = layout.context
    if problem.id == "zero-tail":
        cause = "the file is preallocated" if context.starts_with_zeros else "preallocated"
        return _with_diagnosis(problem, "preallocated", f"{problem.message}: {cause}", "preallocated-tail")
    if problem.id == "torn-tail":
        if len(data) >= context.page_size:
            return _with_diagnosis(problem, "torn-page", problem.message)
        return _with_diagnosis(problem, "truncated-file", f"part of a page: {problem.message}")
    if problem.id == "checksum-mismatch" and not any(data[: context.page_size]):
        text = "hole: a page of zeros before other data; readers stop here and miss everything after it"
        return _with_diagnosis(problem, "hole", text)
    if problem.id == "checksum-mismatch":
        return _with_diagnosis(problem, "page-corrupt", problem.message)
    return problem


def _with_diagnosis(
    problem: Finding, diagnosis: str, text: str, finding_id: str | None = None, **facts: Any
) -> Finding:
    all_facts = MappingProxyType({**problem.facts, "diagnosis": diagnosis, **facts})
    return replace(problem, id=finding_id or problem.id, message=text, facts=all_facts)


# --- Header repair by one flipped bit ---

MAGIC_SIZE = 4


def find_header_bit_flips(head: FileHead) -> Iterator[HeaderFlip]:
    """Yield the flipped bit of a header page, if both CRCs are right after its correction. See `format_api.format`."""
    short = head.data[:SHORT_HEADER_SIZE]
    if head.peek is None or len(short) < SHORT_HEADER_SIZE or not any(short):
        return
    short_crc_ok = is_short_header_crc_right(short)
    if not short_crc_ok:
        bit = find_bit_flip_by_checksum(CRC32C, short, SHORT_HEADER_SIZE - CRC_SIZE, 0)
    else:
        page = _read_header_page(head)
        bit = None if is_page_crc_right(page) else find_bit_flip_by_checksum(CRC32C, page, len(page) - CRC_SIZE, 0)
    if bit is None:
        return
    flip = HeaderFlip(*bit, "both CRCs of the page prove it", 0, SHORT_HEADER_SIZE, diagnosis="header-damaged")
    corrected_head = correct_head(head, flip)
    page = _read_header_page(corrected_head)
    if not is_short_header_crc_right(corrected_head.data) or not is_page_crc_right(page):
        return
    if short_crc_ok:
        flip = flip._replace(length=len(page), id="checksum-mismatch", diagnosis="header-tail-damaged")
    elif flip.byte < MAGIC_SIZE:
        flip = flip._replace(length=MAGIC_SIZE, id="bad-magic")
    yield flip


def _read_header_page(head: FileHead) -> bytes:
    """Return the whole header page; b"" if its size is unknown."""
    header = parse_header(head.data)
    if header is None or header.magic != MAGIC or header.page_size_shift not in PAGE_SIZE_SHIFTS or head.peek is None:
        return b""
    return head.peek(0, 1 << header.page_size_shift)
