"""MariaDB's GTID index next to each log file, `NAME.NNNNNN.idx`.

It is a tree of pages of one size: leaves hold (offset in the log, GTID state there), the pages above them
the first key of each leaf and its page number. A node that needs more than one page continues in the next
one. The server preallocates the file, writes it while it writes the log, and rebuilds it if it does not
trust it: faults in it lose no data.
Source: docs/spec/mysql_binlog.md#mariadb-gtid-index.
"""

from __future__ import annotations

import zlib
from collections.abc import Callable, Iterator, Mapping
from typing import Any, NamedTuple

import msgspec
from construct import (
    Bytes,
    Check,
    Construct,
    FlagsEnum,
    GreedyBytes,
    GreedyRange,
    Int8ul,
    Int16ul,
    Int32ul,
    Struct,
    Tell,
    evaluate,
    stream_read,
    this,
)

from binlogtool.findings import Finding, Severity, make_finding
from binlogtool.formats.checksums import CRC32
from binlogtool.formats.detecting import FileHead, FormatMatch
from binlogtool.formats.fields import CrcCheck, Magic, TracePart
from binlogtool.formats.layouts import LogFileLayout
from binlogtool.formats.mysql_binlog.members.index import EMPTY_LEVEL
from binlogtool.formats.mysql_binlog.members.names import GTID_INDEX_NAME
from binlogtool.limits import MIB, Limits

GTID_INDEX_MAGIC = b"\xfe\xfe\x0c\x01"
MAGIC_NUMBER = int.from_bytes(GTID_INDEX_MAGIC, "little")
FIRST_PAGE_AT = 12
"""Bytes of the file header; they are a part of the first page."""
MIN_PAGE_SIZE, MAX_PAGE_SIZE = 64, 1 << 24
LEAF_PAGE, CONTINUED_PAGE, LAST_PAGE, ROOT_PAGE = 1, 2, 4, 8

MAX_FILE = 64 * MIB
"""Bytes whose checksums are compared."""
MAX_ANNOTATED = MIB
"""Bytes of a file that the annotated hexdump shows page by page (a log of 1 GiB has an index of about 400 KiB)."""

_COUNT_SIZE = 4
_KEY_SIZE = 8
_GTID_SIZE = 16
_GTID_PARTS = (("domain_id", 0, 4), ("server_id", 4, 8), ("seq_no", 8, 16))
_FLAGS_SIZE = 4
_CRC_SIZE = 4


class PageRemainder(NamedTuple):
    """Rest of a node that continues in the next page: number of GTIDs, and whether a page number follows."""

    gtids: int = 0
    child: bool = False


class GtidIndexContext(msgspec.Struct):
    """State of one GTID index.

    `remainders`: by the offset of a page, what continues in it. `has_root`: the last page is a root, so the
    index is complete.
    """

    page_size: int = 0
    pages: int = 0
    bad_pages: int = 0
    has_root: bool = False
    remainders: dict[int, PageRemainder] = msgspec.field(default_factory=dict)


# -- one page ----------------------------------------------------------------------------------------------------------


class PageItem(NamedTuple):
    """One part of a page's content; `key`: number of the key in the page that it belongs to, or -1."""

    kind: str
    start: int
    end: int
    key: int


def iter_page_items(
    data: bytes, start: int, end: int, is_leaf: bool, remainder: PageRemainder
) -> Iterator[PageItem | PageRemainder]:
    """Yield the parts of the page content `data[start:end]`, and at last what continues in the next page."""
    at, key, gtids, has_child = start, -1, remainder.gtids, remainder.child
    while True:
        while gtids and end - at >= _GTID_SIZE:
            yield PageItem("gtid", at, at + _GTID_SIZE, key)
            at, gtids = at + _GTID_SIZE, gtids - 1
        if gtids:
            yield from _iter_unused(at, end)
            yield PageRemainder(gtids, not is_leaf)
            return
        if has_child and end - at < _COUNT_SIZE:
            yield from _iter_unused(at, end)
            yield PageRemainder(0, True)
            return
        if has_child:
            yield PageItem("child", at, at + _COUNT_SIZE, key)
            at, has_child = at + _COUNT_SIZE, False
        count = int.from_bytes(data[at : at + _COUNT_SIZE], "little") if end - at >= _COUNT_SIZE else 0
        if not count or end - at < _KEY_SIZE:
            if end - at >= _COUNT_SIZE and not count:
                yield PageItem("end", at, at + _COUNT_SIZE, -1)
                at += _COUNT_SIZE
            yield from _iter_unused(at, end)
            return
        key += 1
        yield PageItem("count", at, at + _COUNT_SIZE, key)
        yield PageItem("offset", at + _COUNT_SIZE, at + _KEY_SIZE, key)
        at, gtids, has_child = at + _KEY_SIZE, count - 1, not is_leaf


def _iter_unused(at: int, end: int) -> Iterator[PageItem]:
    """Yield the unused bytes at the end of a page."""
    if at < end:
        yield PageItem("unused", at, end, -1)


class PageContent(Construct):  # type: ignore[misc]
    """Construct of the keys of a page.

    Args:
        size: an expression of their size in bytes.
        find_remainder: page content offset -> what continues in this page.
    """

    def __init__(self, size: Any, find_remainder: Callable[[int], PageRemainder]) -> None:
        super().__init__()
        self.size, self.find_remainder = size, find_remainder

    def _parse(self, stream: Any, context: Any, path: str) -> bytes:
        return bytes(stream_read(stream, evaluate(self.size, context), path))

    def _build(self, obj: bytes, stream: Any, context: Any, path: str) -> Any:
        stream.write(obj)
        return obj

    def trace_rows(self, data: bytes, start: int, end: int, limits: Limits) -> Iterator[TracePart]:
        """Yield the keys with their parts, GTIDs of a key of the previous page, and unused bytes."""
        is_leaf = bool(data[start - _FLAGS_SIZE] & LEAF_PAGE)
        last_key, number = -1, 0
        for item in iter_page_items(data, start, end, is_leaf, self.find_remainder(start)):
            if isinstance(item, PageRemainder):
                return
            if item.key > last_key:
                last_key, number = item.key, 0
                yield TracePart(f".key[{last_key}]", 1, item.start, None)
            parent = f".key[{last_key}]" if item.key >= 0 else ""
            yield from _trace_item(item, data, parent, 2 if parent else 1, number)
            number += item.kind == "gtid"


def _trace_item(item: PageItem, data: bytes, parent: str, depth: int, number: int) -> Iterator[TracePart]:
    """Yield the trace of one part."""
    raw = data[item.start : item.end]
    if item.kind == "gtid":
        path = f"{parent}.gtid[{number}]"
        values = [int.from_bytes(raw[low:high], "little") for _, low, high in _GTID_PARTS]
        yield TracePart(path, depth, item.start, None, None, "-".join(map(str, values)))
        for (name, low, high), part in zip(_GTID_PARTS, values, strict=True):
            yield TracePart(f"{path}.{name}", depth + 1, item.start + low, item.start + high, part)
        return
    value = int.from_bytes(raw, "little")
    if item.kind == "count":
        yield TracePart(f"{parent}.count", depth, item.start, item.end, value, f"{value - 1:,} GTIDs")
    elif item.kind == "child":
        yield TracePart(f"{parent}.child", depth, item.start, item.end, value, "number of a page, from 1")
    elif item.kind == "offset":
        yield TracePart(f"{parent}.offset", depth, item.start, item.end, value, "in the log file")
    elif item.kind == "end":
        yield TracePart(".end", 1, item.start, item.end, value, "no more keys")
    else:
        yield TracePart(".unused", 1, item.start, item.end, raw)


# -- schema ------------------------------------------------------------------------------------------------------------


def _no_remainder(start: int) -> PageRemainder:
    """Return that nothing continues in a page."""
    return PageRemainder()


def _page_fields(size: Any, start: Any, before: int, find_remainder: Callable[[int], PageRemainder]) -> list[Construct]:
    """Return the fields of a page.

    Args:
        before: bytes of the page that precede them.
    """
    return [
        "flags" / FlagsEnum(Int8ul, leaf=LEAF_PAGE, continued=CONTINUED_PAGE, last=LAST_PAGE, root=ROOT_PAGE),
        "pad" / Bytes(3),
        "content" / PageContent(size - (before + _FLAGS_SIZE + _CRC_SIZE), find_remainder),
        "covered_end" / Tell,
        "crc32" / Int32ul,
        "checksum" / CrcCheck(CRC32, stored=this.crc32, start=start, end=this.covered_end),
    ]


def create_schema(find_remainder: Callable[[int], PageRemainder] = _no_remainder) -> Construct:
    """Return the schema of the whole file: header and first page, the other pages, and an incomplete rest."""
    page = Struct("start" / Tell, *_page_fields(this._.page_size, this.start, 0, find_remainder))
    return Struct(
        "magic" / Magic(Int32ul, GTID_INDEX=MAGIC_NUMBER),
        "major" / Int8ul,
        "minor" / Int8ul,
        "reserved" / Int16ul,
        "page_size" / Int32ul,
        Check(this.page_size >= MIN_PAGE_SIZE),
        Check(this.page_size <= MAX_PAGE_SIZE),
        *_page_fields(this.page_size, 0, FIRST_PAGE_AT, find_remainder),
        "page" / GreedyRange(page),
    )


GTID_INDEX_FILE = create_schema()
_EMPTY = Struct("rest" / GreedyBytes)


# -- detection and layout ----------------------------------------------------------------------------------------------


def is_gtid_index(head: FileHead) -> bool:
    """Return whether it is a GTID index by its magic or its name."""
    return head.data.startswith(GTID_INDEX_MAGIC) or GTID_INDEX_NAME.fullmatch(head.name.rpartition("/")[2]) is not None


def detect_gtid_index(head: FileHead) -> FormatMatch:
    """Detect a GTID index by its magic, else by its name."""
    if head.data.startswith(GTID_INDEX_MAGIC):
        return FormatMatch(100, "it starts with fe fe 0c 01 (GTID index)")
    if is_gtid_index(head):
        return FormatMatch(
            30 if not head.data else 20, "the name of a GTID index" + ("" if head.data else ", and empty")
        )
    return FormatMatch(0, "no GTID index")


def create_gtid_index_layout(head: FileHead) -> LogFileLayout:
    """Return the layout: the whole file is its header, and faults are warnings at most."""
    context = GtidIndexContext()
    size = len(head.data) if head.size is None else head.size
    if not size:
        text = "empty: the server has not written it yet; it does not need it"
        note = make_finding("unclean-close", 0, 0, text, severity=Severity.NOTE)
        return LogFileLayout("GTID index, empty", 0, EMPTY_LEVEL, context=context, findings=(note,), has_records=False)
    findings = list(_check_header(head.data, context))
    if findings:
        return LogFileLayout(
            "GTID index, not readable", size, EMPTY_LEVEL, _EMPTY, None, context, tuple(findings), has_records=False
        )
    findings = list(_check_pages(head, size, context))
    major, minor = head.data[4], head.data[5]
    schema = create_schema(_make_lookup(context.remainders))
    if size > MAX_ANNOTATED:
        schema = Struct("shown" / Bytes(MAX_ANNOTATED), "more" / GreedyBytes)
    return LogFileLayout(
        f"GTID index v{major}.{minor}", size, EMPTY_LEVEL, schema, None, context, tuple(findings), has_records=False
    )


def _make_lookup(remainders: Mapping[int, PageRemainder]) -> Callable[[int], PageRemainder]:
    """Return a function that looks up what continues in a page."""

    def find(start: int) -> PageRemainder:
        return remainders.get(start, PageRemainder())

    return find


def _check_header(data: bytes, context: GtidIndexContext) -> Iterator[Finding]:
    """Yield findings about the file header."""
    if not data.startswith(GTID_INDEX_MAGIC):
        shown = data[:4].hex(" ")
        text = f"starts with {shown}, expected {GTID_INDEX_MAGIC.hex(' ')}: the server makes the index anew"
        yield make_finding("bad-magic", 0, min(4, len(data)), text, severity=Severity.WARNING)
        return
    context.page_size = int.from_bytes(data[8:12], "little") if len(data) >= FIRST_PAGE_AT else 0
    if not MIN_PAGE_SIZE <= context.page_size <= MAX_PAGE_SIZE:
        text = f"pages of {context.page_size:,} bytes cannot be: the server makes the index anew"
        yield make_finding("bad-header", 8, 4, text, severity=Severity.WARNING)
    elif data[4] != 1:
        text = f"version {data[4]}.{data[5]}; 1.0 is known"
        yield make_finding("unsupported-version", 4, 2, text, severity=Severity.WARNING)


def _check_pages(head: FileHead, size: int, context: GtidIndexContext) -> Iterator[Finding]:
    """Yield findings about page checksums and the end of the file, and note what continues in each page."""
    flags, remainder = 0, PageRemainder()
    page_count = min(size, MAX_FILE) // context.page_size
    wrong_pages: list[Finding] = []
    for number, page in enumerate(_iter_pages(head, context.page_size, page_count)):
        start = number * context.page_size
        if number and not any(page):
            context.pages = number
            text = f"{size - start:,} zero bytes that were made room for"
            yield make_finding("preallocated-tail", start, size - start, text, severity=Severity.NOTE)
            break
        stored, computed = int.from_bytes(page[-_CRC_SIZE:], "little"), zlib.crc32(page[:-_CRC_SIZE])
        if stored != computed:
            context.bad_pages += 1
            if len(wrong_pages) < 20:
                wrong_pages.append(_page_checksum_finding(number, start, context.page_size, stored, computed))
        flags, remainder = _read_page(page, start, FIRST_PAGE_AT if not number else 0, remainder, context)
        context.pages = number + 1
    yield from wrong_pages
    context.has_root = bool(flags & ROOT_PAGE)
    rest = size % context.page_size
    if rest and size <= MAX_FILE:
        text = f"the last page is cut off: {rest:,} of {context.page_size:,} bytes; the server makes the index anew"
        yield make_finding("torn-tail", size - rest, rest, text)
    elif not context.has_root:
        text = "no root page: the index was not finished; the server makes it anew"
        yield make_finding("unclean-close", size, 0, text, severity=Severity.NOTE)


def _iter_pages(head: FileHead, page_size: int, page_count: int) -> Iterator[bytes]:
    """Yield the complete pages."""
    step = max(1, MIB // page_size)
    for first in range(0, page_count, step):
        count = min(step, page_count - first)
        offset, size = first * page_size, count * page_size
        data = head.data[offset : offset + size] if head.peek is None else head.peek(offset, size)
        for at in range(0, len(data) - page_size + 1, page_size):
            yield data[at : at + page_size]


def _page_checksum_finding(number: int, start: int, size: int, stored: int, computed: int) -> Finding:
    """Return the finding about a wrong page checksum."""
    text = f"page {number + 1}: stored {stored:08x}, computed {computed:08x}; the server makes the index anew"
    return make_finding(
        "checksum-mismatch", start, size, text, severity=Severity.WARNING, stored=f"{stored:08x}",
        computed=f"{computed:08x}",
    )  # fmt: skip


def _read_page(
    page: bytes, start: int, at: int, remainder: PageRemainder, context: GtidIndexContext
) -> tuple[int, PageRemainder]:
    """Return the flags of a page, and what continues in the next one."""
    flags = page[at]
    content = at + _FLAGS_SIZE
    is_leaf = bool(flags & LEAF_PAGE)
    own_remainder = remainder if flags & CONTINUED_PAGE else PageRemainder(0, not is_leaf)
    if own_remainder != PageRemainder():
        context.remainders[start + content] = own_remainder
    next_remainder = PageRemainder()
    for item in iter_page_items(page, content, len(page) - _CRC_SIZE, is_leaf, own_remainder):
        if isinstance(item, PageRemainder):
            next_remainder = item
    return flags, next_remainder
