"""MariaDB's GTID index next to each log file, `NAME.NNNNNN.idx`.

It is a tree of pages of one size: leaves hold (offset in the log, GTID state there), the pages above them
the first key of each leaf and its page number. A node that needs more than one page continues in the next
one. The server preallocates the file, writes it while it writes the log, and rebuilds it if it does not
trust it: faults in it lose no data.
Source: docs/spec/mysql-mariadb-binlog.md#10-mariadb-gtid-index-idx-v-header-s-rest.
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

from binlogtool.findings import Finding, Severity, finding
from binlogtool.formats.checksums import CRC32
from binlogtool.formats.detecting import Head, Match
from binlogtool.formats.fields import CrcCheck, Magic, Part
from binlogtool.formats.layouts import Layout
from binlogtool.formats.mysql_binlog.members.index import NOTHING
from binlogtool.formats.mysql_binlog.members.names import GTID_INDEX
from binlogtool.limits import MIB, Limits

MAGIC = b"\xfe\xfe\x0c\x01"
MAGIC_NUMBER = int.from_bytes(MAGIC, "little")
FIRST_PAGE_AT = 12
"""Bytes of the file header; they are a part of the first page."""
SMALLEST_PAGE, LARGEST_PAGE = 64, 1 << 24
LEAF, CONTINUED, LAST, ROOT = 1, 2, 4, 8

MAX_FILE = 64 * MIB
"""Bytes whose checksums are compared."""
SHOWN = MIB
"""Bytes of a file that the annotated hexdump shows page by page (a log of 1 GiB has an index of about 400 KiB)."""

_COUNT = 4
_KEY = 8
_GTID = 16
_GTID_PARTS = (("domain_id", 0, 4), ("server_id", 4, 8), ("seq_no", 8, 16))
_FLAGS = 4
_CRC = 4


class Owed(NamedTuple):
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
    root: bool = False
    owed: dict[int, Owed] = msgspec.field(default_factory=dict)


# -- one page ----------------------------------------------------------------------------------------------------------


class Item(NamedTuple):
    """One part of a page's content; `key`: number of the key in the page that it belongs to, or -1."""

    what: str
    start: int
    end: int
    key: int


def walk(data: bytes, start: int, end: int, leaf: bool, owed: Owed) -> Iterator[Item | Owed]:
    """Yield the parts of the page content `data[start:end]`, and at last what continues in the next page."""
    at, key, gtids, child = start, -1, owed.gtids, owed.child
    while True:
        while gtids and end - at >= _GTID:
            yield Item("gtid", at, at + _GTID, key)
            at, gtids = at + _GTID, gtids - 1
        if gtids:
            yield from _unused(at, end)
            yield Owed(gtids, not leaf)
            return
        if child and end - at < _COUNT:
            yield from _unused(at, end)
            yield Owed(0, True)
            return
        if child:
            yield Item("child", at, at + _COUNT, key)
            at, child = at + _COUNT, False
        count = int.from_bytes(data[at : at + _COUNT], "little") if end - at >= _COUNT else 0
        if not count or end - at < _KEY:
            if end - at >= _COUNT and not count:
                yield Item("end", at, at + _COUNT, -1)
                at += _COUNT
            yield from _unused(at, end)
            return
        key += 1
        yield Item("count", at, at + _COUNT, key)
        yield Item("offset", at + _COUNT, at + _KEY, key)
        at, gtids, child = at + _KEY, count - 1, not leaf


def _unused(at: int, end: int) -> Iterator[Item]:
    """Yield the unused bytes at the end of a page."""
    if at < end:
        yield Item("unused", at, end, -1)


class Content(Construct):  # type: ignore[misc]
    """Construct of the keys of a page.

    Args:
        size: an expression of their size in bytes.
        find_remainder: page content offset -> what continues in this page.
    """

    def __init__(self, size: Any, owed: Callable[[int], Owed]) -> None:
        super().__init__()
        self.size, self.owed = size, owed

    def _parse(self, stream: Any, context: Any, path: str) -> bytes:
        return bytes(stream_read(stream, evaluate(self.size, context), path))

    def _build(self, obj: bytes, stream: Any, context: Any, path: str) -> Any:
        stream.write(obj)
        return obj

    def trace_rows(self, data: bytes, start: int, end: int, limits: Limits) -> Iterator[Part]:
        """Yield the keys with their parts, GTIDs of a key of the previous page, and unused bytes."""
        leaf = bool(data[start - _FLAGS] & LEAF)
        shown, number = -1, 0
        for item in walk(data, start, end, leaf, self.owed(start)):
            if isinstance(item, Owed):
                return
            if item.key > shown:
                shown, number = item.key, 0
                yield Part(f".key[{shown}]", 1, item.start, None)
            inside = f".key[{shown}]" if item.key >= 0 else ""
            yield from _parts(item, data, inside, 2 if inside else 1, number)
            number += item.what == "gtid"


def _parts(item: Item, data: bytes, inside: str, depth: int, number: int) -> Iterator[Part]:
    """Yield the trace of one part."""
    raw = data[item.start : item.end]
    if item.what == "gtid":
        path = f"{inside}.gtid[{number}]"
        values = [int.from_bytes(raw[low:high], "little") for _, low, high in _GTID_PARTS]
        yield Part(path, depth, item.start, None, None, "-".join(map(str, values)))
        for (name, low, high), part in zip(_GTID_PARTS, values, strict=True):
            yield Part(f"{path}.{name}", depth + 1, item.start + low, item.start + high, part)
        return
    value = int.from_bytes(raw, "little")
    if item.what == "count":
        yield Part(f"{inside}.count", depth, item.start, item.end, value, f"{value - 1:,} GTIDs")
    elif item.what == "child":
        yield Part(f"{inside}.child", depth, item.start, item.end, value, "number of a page, from 1")
    elif item.what == "offset":
        yield Part(f"{inside}.offset", depth, item.start, item.end, value, "in the log file")
    elif item.what == "end":
        yield Part(".end", 1, item.start, item.end, value, "no more keys")
    else:
        yield Part(".unused", 1, item.start, item.end, raw)


# -- schema ------------------------------------------------------------------------------------------------------------


def _nothing_owed(start: int) -> Owed:
    """Return that nothing continues in a page."""
    return Owed()


def _page(size: Any, start: Any, before: int, owed: Callable[[int], Owed]) -> list[Construct]:
    """Return the fields of a page.

    Args:
        before: bytes of the page that precede them.
    """
    return [
        "flags" / FlagsEnum(Int8ul, leaf=LEAF, continued=CONTINUED, last=LAST, root=ROOT),
        "pad" / Bytes(3),
        "content" / Content(size - (before + _FLAGS + _CRC), owed),
        "covered_end" / Tell,
        "crc32" / Int32ul,
        "checksum" / CrcCheck(CRC32, stored=this.crc32, start=start, end=this.covered_end),
    ]


def gtid_index_schema(owed: Callable[[int], Owed] = _nothing_owed) -> Construct:
    """Return the schema of the whole file: header and first page, the other pages, and an incomplete rest."""
    page = Struct("start" / Tell, *_page(this._.page_size, this.start, 0, owed))
    return Struct(
        "magic" / Magic(Int32ul, GTID_INDEX=MAGIC_NUMBER),
        "major" / Int8ul,
        "minor" / Int8ul,
        "reserved" / Int16ul,
        "page_size" / Int32ul,
        Check(this.page_size >= SMALLEST_PAGE),
        Check(this.page_size <= LARGEST_PAGE),
        *_page(this.page_size, 0, FIRST_PAGE_AT, owed),
        "page" / GreedyRange(page),
    )


GTID_INDEX_FILE = gtid_index_schema()
_EMPTY = Struct("rest" / GreedyBytes)


# -- detection and layout ----------------------------------------------------------------------------------------------


def is_gtid_index(head: Head) -> bool:
    """Return whether it is a GTID index by its magic or its name."""
    return head.data.startswith(MAGIC) or GTID_INDEX.fullmatch(head.name.rpartition("/")[2]) is not None


def detect_gtid_index(head: Head) -> Match:
    """Detect a GTID index by its magic, else by its name."""
    if head.data.startswith(MAGIC):
        return Match(100, "it starts with fe fe 0c 01 (GTID index)")
    if is_gtid_index(head):
        return Match(30 if not head.data else 20, "the name of a GTID index" + ("" if head.data else ", and empty"))
    return Match(0, "no GTID index")


def gtid_index_layout(head: Head) -> Layout:
    """Return the layout: the whole file is its header, and faults are warnings at most."""
    context = GtidIndexContext()
    size = len(head.data) if head.size is None else head.size
    if not size:
        text = "empty: the server has not written it yet; it does not need it"
        note = finding("unclean-close", 0, 0, text, severity=Severity.NOTE)
        return Layout("GTID index, empty", 0, NOTHING, context=context, findings=(note,), records=False)
    found = list(_head_findings(head.data, context))
    if found:
        return Layout("GTID index, not readable", size, NOTHING, _EMPTY, None, context, tuple(found), records=False)
    found = list(_page_findings(head, size, context))
    major, minor = head.data[4], head.data[5]
    schema = gtid_index_schema(_lookup(context.owed))
    if size > SHOWN:
        schema = Struct("shown" / Bytes(SHOWN), "more" / GreedyBytes)
    return Layout(f"GTID index v{major}.{minor}", size, NOTHING, schema, None, context, tuple(found), records=False)


def _lookup(owed: Mapping[int, Owed]) -> Callable[[int], Owed]:
    """Return a function that looks up what continues in a page."""

    def find(start: int) -> Owed:
        return owed.get(start, Owed())

    return find


def _head_findings(data: bytes, context: GtidIndexContext) -> Iterator[Finding]:
    """Yield findings about the file header."""
    if not data.startswith(MAGIC):
        shown = data[:4].hex(" ")
        text = f"starts with {shown}, expected {MAGIC.hex(' ')}: the server makes the index anew"
        yield finding("bad-magic", 0, min(4, len(data)), text, severity=Severity.WARNING)
        return
    context.page_size = int.from_bytes(data[8:12], "little") if len(data) >= FIRST_PAGE_AT else 0
    if not SMALLEST_PAGE <= context.page_size <= LARGEST_PAGE:
        text = f"pages of {context.page_size:,} bytes cannot be: the server makes the index anew"
        yield finding("bad-header", 8, 4, text, severity=Severity.WARNING)
    elif data[4] != 1:
        text = f"version {data[4]}.{data[5]}; 1.0 is known"
        yield finding("unsupported-version", 4, 2, text, severity=Severity.WARNING)


def _page_findings(head: Head, size: int, context: GtidIndexContext) -> Iterator[Finding]:
    """Yield findings about page checksums and the end of the file, and note what continues in each page."""
    flags, owed = 0, Owed()
    whole = min(size, MAX_FILE) // context.page_size
    bad: list[Finding] = []
    for number, page in enumerate(_pages(head, context.page_size, whole)):
        start = number * context.page_size
        if number and not any(page):
            context.pages = number
            text = f"{size - start:,} zero bytes that were made room for"
            yield finding("preallocated-tail", start, size - start, text, severity=Severity.NOTE)
            break
        stored, computed = int.from_bytes(page[-_CRC:], "little"), zlib.crc32(page[:-_CRC])
        if stored != computed:
            context.bad_pages += 1
            if len(bad) < 20:
                bad.append(_wrong_page(number, start, context.page_size, stored, computed))
        flags, owed = _follow(page, start, FIRST_PAGE_AT if not number else 0, owed, context)
        context.pages = number + 1
    yield from bad
    context.root = bool(flags & ROOT)
    rest = size % context.page_size
    if rest and size <= MAX_FILE:
        text = f"the last page is cut off: {rest:,} of {context.page_size:,} bytes; the server makes the index anew"
        yield finding("torn-tail", size - rest, rest, text)
    elif not context.root:
        text = "no root page: the index was not finished; the server makes it anew"
        yield finding("unclean-close", size, 0, text, severity=Severity.NOTE)


def _pages(head: Head, page_size: int, whole: int) -> Iterator[bytes]:
    """Yield the complete pages."""
    step = max(1, MIB // page_size)
    for first in range(0, whole, step):
        count = min(step, whole - first)
        offset, size = first * page_size, count * page_size
        data = head.data[offset : offset + size] if head.peek is None else head.peek(offset, size)
        for at in range(0, len(data) - page_size + 1, page_size):
            yield data[at : at + page_size]


def _wrong_page(number: int, start: int, size: int, stored: int, computed: int) -> Finding:
    """Return the finding about a wrong page checksum."""
    text = f"page {number + 1}: stored {stored:08x}, computed {computed:08x}; the server makes the index anew"
    return finding(
        "checksum-mismatch", start, size, text, severity=Severity.WARNING, stored=f"{stored:08x}",
        computed=f"{computed:08x}",
    )  # fmt: skip


def _follow(page: bytes, start: int, at: int, owed: Owed, context: GtidIndexContext) -> tuple[int, Owed]:
    """Return the flags of a page, and what continues in the next one."""
    flags = page[at]
    content = at + _FLAGS
    leaf = bool(flags & LEAF)
    given = owed if flags & CONTINUED else Owed(0, not leaf)
    if given != Owed():
        context.owed[start + content] = given
    left = Owed()
    for item in walk(page, content, len(page) - _CRC, leaf, given):
        if isinstance(item, Owed):
            left = item
    return flags, left
