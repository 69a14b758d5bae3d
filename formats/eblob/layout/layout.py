"""Detect eblob binlogs and their dialect, and validate the file header.

See docs/spec/eblob-binlog.md#3-file-header-256-bytes-dialects-a-and-b and docs/spec/eblob-binlog.md#8-verify.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from fnmatch import fnmatchcase
from itertools import islice
from typing import Any, NamedTuple

import msgspec

from binlogtool.findings import Finding, Severity, finding
from binlogtool.formats.detecting import Head, Match
from binlogtool.formats.eblob import MEMBERS
from binlogtool.formats.eblob.groups.grouping import Record
from binlogtool.formats.eblob.layout import dialects
from binlogtool.formats.eblob.layout.dialects import A0, B4, B_BE, DIALECTS, PACKED, A, B, Dialect, Reader
from binlogtool.formats.eblob.schema import HEADER_SIZE, MAGIC, PACKED_MAGIC, RECORD_HEADER, VERSION, HeaderFlag
from binlogtool.formats.layouts import FrameLevel, Layout
from binlogtool.limits import MIB, Limits

COLUMNS = ("type", "meta_size", "data_size", "pad_bits")
"""Columns of a scan; where there is one type only, it is none of them."""


_ALIGNED = (B4, A, A0)
"""b4 stands for b too: the layout is the same."""

_MAX_STARTS = 16
_FREEZE = 8
"""A fourth flag bit: known from 2 to 5 November 2012, in dialect a (section 3)."""


class Unread(NamedTuple):
    """An offset where a record should begin but does not: the bytes of a record header, and what is wrong with them."""

    offset: int
    head: bytes
    diagnosis: str


class Log(msgspec.Struct):
    """What the format knows about one file.

    Attributes:
        flags: of the file header.
        last_records: the last records of a batch, by the number of the record after them, so that a group may begin
            in
            one batch and end in the next (`grouping`).
        unreadable_header: the last offset without a record that was classified (`damage`).
    """

    dialect: Dialect
    flags: int = 0
    tails: dict[int, tuple[Record, ...]] = msgspec.field(default_factory=dict)
    unread: Unread | None = None

    @property
    def preallocates(self) -> bool:
        """True if the header says that space is reserved in advance."""
        return bool(self.flags & HeaderFlag.PREALLOCATE)


def stem(name: str) -> str:
    """Return the name with numbers set to 0: the binlogs of the blobs of one base differ only in numbers."""
    return re.sub(r"\d+", "0", name)


def layout(head: Head, limits: Limits, variant: str | None = None) -> Layout:
    """Determine the dialect, and report problems of the header.

    Args:
        variant: the dialect that the user named.
    """
    dialect, found, readable = _dialect(head, variant)
    checks = _packed_findings if dialect in PACKED else _header_findings
    found = [*checks(head, dialect), *found]
    flags = _flags(head.data, dialect)
    return Layout(
        variant=dialect.title,
        frames_at=dialect.frames_at,
        frame=frame_level(dialect),
        header=dialect.header,
        context=Log(dialect, flags),
        findings=tuple(found),
        readable=readable and len(head.data) >= dialect.frames_at,
    )


def frame_level(dialect: Dialect) -> FrameLevel:
    """Return the frame level of a dialect's records."""
    return FrameLevel(
        name="record",
        schema=dialect.schema,
        columns=COLUMNS[1:] if dialect.grouped else COLUMNS,
        sync=dialect.sync,
        min_size=dialect.head,
        max_size=1024 * MIB,
        prove=prove,
    )


def prove(frame: bytes, context: Log) -> bool:
    """Check if bytes that fit the schema are certainly a record: the padding must also be zero.

    See docs/spec/eblob-binlog.md#10-resync.
    """
    return context.dialect.head < RECORD_HEADER or not any(frame[96:RECORD_HEADER])


def reader(head: Head) -> Reader:
    """Return a function that reads bytes of the file, from its head and, if possible, from after the head."""

    def read(offset: int, size: int) -> bytes:
        if offset + size <= len(head.data) or head.whole or head.peek is None:
            return head.data[offset : offset + size]
        return head.peek(offset, size)

    return read


def _dialect(head: Head, variant: str | None) -> tuple[Dialect, list[Finding], bool]:
    """Return (dialect, findings about the choice, whether records can be walked)."""
    if variant is not None:
        return DIALECTS[variant], [], True
    packed = head.data.startswith(PACKED_MAGIC[:2])
    candidates = PACKED if packed else (B_BE, *_ALIGNED) if _is_swapped(head.data) else (*_ALIGNED, B_BE)
    seen = head.size if head.peek is not None or head.whole else None
    choice = dialects.choose(candidates, reader(head), seen, _starts(head.data))
    dialect, doubt = choice.dialect, choice.doubt
    if dialect is B4:
        dialect, odd = _four_types(head, seen)
        doubt = doubt or odd
    found = [_doubt(head, doubt, dialect)] if doubt else []
    return dialect, found, _is_magic(head.data) or packed or choice.links > 0


def _four_types(head: Head, size: int | None) -> tuple[Dialect, str | None]:
    """Choose b4 only if several records have one of its own types: a single one is rather a damaged record of b."""
    odd = dialects.follow(B4, reader(head), size, B4.frames_at).odd
    if odd > 1:
        return B4, None
    return B, "one record has a type that only b4 knows: it is damaged, or the log is of dialect b4" if odd else None


def _doubt(head: Head, why: str, chosen: Dialect) -> Finding:
    text = f"the dialect is not certain: {why}; read as {chosen.name}, --format eblob:DIALECT says otherwise"
    facts: dict[str, Any] = {"diagnosis": "dialect not certain", "dialect": chosen.name}
    return finding("bad-header", 0, min(len(head.data), HEADER_SIZE), text, severity=Severity.WARNING, **facts)


def _starts(data: bytes) -> Iterator[int]:
    """Iterate over offsets where a chain may start: the first record (0 = default), then apparent headers."""
    yield 0
    pattern = re.compile(B4.sync + rb"|[\x01-\x03]\0{7}.{6}\0\0\0{8}", re.DOTALL)
    yield from (match.start() for match in islice(pattern.finditer(data, HEADER_SIZE + 1), _MAX_STARTS))


def _is_magic(data: bytes) -> bool:
    return data.startswith(MAGIC)


def _is_swapped(data: bytes) -> bool:
    return data[8:10] == VERSION.to_bytes(2, "big")


def _flags(data: bytes, dialect: Dialect) -> int:
    start = 7 if dialect in PACKED else 16
    order: Any = dialect.byte_order
    return int.from_bytes(data[start : start + 8], order)


def _header_findings(head: Head, dialect: Dialect) -> list[Finding]:
    """Validate the 256-byte header, each finding with the offset of its field."""
    data = head.data
    if len(data) < HEADER_SIZE:
        return [_short(len(data), HEADER_SIZE)]
    found = []
    if not _is_magic(data):
        same = next(i for i in range(8) if data[i] != MAGIC[i])
        at = same if same == 7 else 0
        found.append(_wrong("bad-magic", at, 8 - at, "bad magic", f"magic is {data[:8].hex(' ')}"))
    found += _version_findings(data, dialect)
    unknown = _flags(data, dialect) & ~(_known_flags(dialect))
    if unknown:
        text = f"flags {_flags(data, dialect):#x}: {unknown:#x} is unknown, eblob refuses the file"
        found.append(_wrong("bad-header", 16, 8, "unknown header flags", text))
    return [*found, *_padding(data, ((10, 16), (24, HEADER_SIZE)))]


def _known_flags(dialect: Dialect) -> int:
    final = sum(flag.value for flag in HeaderFlag)
    return final if dialect.grouped else final | _FREEZE


def _version_findings(data: bytes, dialect: Dialect) -> list[Finding]:
    order: Any = dialect.byte_order
    version = int.from_bytes(data[8:10], order)
    if version == VERSION and dialect.byte_order == "little":
        return []
    if version == VERSION:
        text = "written by a big-endian machine (version reads as 0x0100); a little-endian eblob refuses the file"
        return [
            finding(
                "unsupported-version", 8, 2, text, severity=Severity.WARNING,
                diagnosis="written by a big-endian machine (version reads as 0x0100)",
            )
        ]  # fmt: skip
    return [_wrong("unsupported-version", 8, 2, "unsupported version", f"version is {version}, known is {VERSION}")]


def _packed_findings(head: Head, dialect: Dialect) -> list[Finding]:
    """Validate the header of dialect p, which has no gaps."""
    data = head.data
    if len(data) < dialect.frames_at:
        return [_short(len(data), dialect.frames_at)]
    found = []
    if not data.startswith(PACKED_MAGIC):
        found.append(_wrong("bad-magic", 0, 5, "bad magic", f"magic is {data[:5].hex(' ')}"))
    version = int.from_bytes(data[5:7], "little")
    if version != VERSION:
        found.append(
            _wrong("unsupported-version", 5, 2, "unsupported version", f"version is {version}, known is {VERSION}")
        )
    return [*found, *_padding(data, ((15, dialect.frames_at),))]


def _wrong(id_: str, offset: int, length: int, diagnosis: str, text: str) -> Finding:
    return finding(id_, offset, length, f"{diagnosis}: {text}", diagnosis=diagnosis)


def _short(size: int, wanted: int) -> Finding:
    diagnosis = "file shorter than its header" if size else "empty file"
    return finding(
        "bad-header", size, 0, f"{diagnosis}: {size} of {wanted} bytes; eblob refuses to open it", diagnosis=diagnosis
    )


def _padding(data: bytes, ranges: tuple[tuple[int, int], ...]) -> list[Finding]:
    """Report reserved bytes of the header that are not zero: written as 0, never checked by eblob."""
    wrong = [i for start, end in ranges for i in range(start, end) if data[i]]
    if not wrong:
        return []
    text = f"{len(wrong)} reserved bytes of the header are not zero; eblob ignores them"
    return [
        finding(
            "reserved-bits-set", wrong[0], wrong[-1] + 1 - wrong[0], text,
            diagnosis="reserved header bytes not zero (warning)",
        )
    ]  # fmt: skip


def detect(head: Head) -> Match:
    """Detect the format by the magic; else by name and a chain of records after a damaged header."""
    data = head.data
    named = any(fnmatchcase(head.name.rsplit("/", 1)[-1], pattern) for pattern in MEMBERS)
    if data.startswith((MAGIC, PACKED_MAGIC)):
        return Match(100, "the magic of an eblob binlog")
    if not data:
        return Match(15 if named else 0, "empty, and named like a binlog" if named else "empty file")
    if data[: len(MAGIC) - 1] == MAGIC[:-1]:
        return Match(70, "the magic of an eblob binlog, damaged")
    if len(data) < 8 and MAGIC.startswith(data):
        return Match(30, "the magic of an eblob binlog, torn")
    choice = dialects.choose(_ALIGNED, reader(head), head.size if head.whole else None, iter((0,)))
    if choice.links > 1:
        return Match(60, f"a damaged header, and {choice.links} records behind it")
    return Match(10 if named else 0, "only the file name fits" if named else "no magic of an eblob binlog")
