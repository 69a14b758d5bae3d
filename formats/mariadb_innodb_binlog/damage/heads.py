"""Repair a header page with one flipped bit, which its two CRCs identify.

See docs/spec/mariadb-innodb-binlog.md#3-header-page-page-0.
"""

from __future__ import annotations

from collections.abc import Iterator

from binlogtool.formats.checksums import CRC32C
from binlogtool.formats.detecting import Head
from binlogtool.formats.heads import HeadFlip, by_checksum, corrected
from binlogtool.formats.mariadb_innodb_binlog.codes import CRC_SIZE, MAGIC, SHIFTS, SHORT_HEADER
from binlogtool.formats.mariadb_innodb_binlog.records.context import page_crc_right, parse_header, short_crc_right

MAGIC_SIZE = 4


def heads(head: Head) -> Iterator[HeadFlip]:
    """Yield the flipped bit of a header page, if both CRCs are right after it is corrected. See `formats.heads`."""
    short = head.data[:SHORT_HEADER]
    if head.peek is None or len(short) < SHORT_HEADER or not any(short):
        return
    unused = short_crc_right(short)
    if not unused:
        found = by_checksum(CRC32C, short, SHORT_HEADER - CRC_SIZE, 0)
    else:
        page = _page(head)
        found = None if page_crc_right(page) else by_checksum(CRC32C, page, len(page) - CRC_SIZE, 0)
    if found is None:
        return
    flip = HeadFlip(*found, "both CRCs of the page prove it", 0, SHORT_HEADER, diagnosis="header-damaged")
    right = corrected(head, flip)
    page = _page(right)
    if not short_crc_right(right.data) or not page_crc_right(page):
        return
    if unused:
        flip = flip._replace(length=len(page), id="checksum-mismatch", diagnosis="header-tail-damaged")
    elif flip.byte < MAGIC_SIZE:
        flip = flip._replace(length=MAGIC_SIZE, id="bad-magic")
    yield flip


def _page(head: Head) -> bytes:
    """Return the whole header page; b"" if its size is unknown."""
    header = parse_header(head.data)
    if header is None or header.magic != MAGIC or header.page_size_shift not in SHIFTS or head.peek is None:
        return b""
    return head.peek(0, 1 << header.page_size_shift)
