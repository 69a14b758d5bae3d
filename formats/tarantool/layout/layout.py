"""Detection, and the layout of one file from its text header (`docs/spec/tarantool-xlog.md#11-text-header`)."""

from __future__ import annotations

import re
from collections.abc import Iterator
from types import MappingProxyType
from typing import Any

import msgspec
from msgspec.structs import replace

from binlogtool.findings import Finding, Severity, finding
from binlogtool.formats.checksums import CRC32C_RAW
from binlogtool.formats.detecting import Head, Match
from binlogtool.formats.layouts import FrameLevel, Layout, RowLevel
from binlogtool.formats.tarantool import codes, schema
from binlogtool.formats.tarantool.codes import FileKind
from binlogtool.formats.tarantool.layout.compression import unpack_zstd
from binlogtool.formats.tarantool.layout.header import HeaderText, Line, is_uuid, parse_vclock, read_lines, write_vclock
from binlogtool.formats.tarantool.rows import rows
from binlogtool.formats.tarantool.rows.names import SpaceNames
from binlogtool.limits import MIB, Limits

VERSIONS = ("0.12", "0.13")
PASSING = ("*.inprogress",)
"""The server renames them when they are whole."""

VCLOCK_LOST = ("bad_vclock", "vclock_name_mismatch", "unknown_header_key")
"""Diagnoses of a header after which its VClock cannot be used."""

_NAME = re.compile(r"(\d+)\.(xlog|snap|vylog|run|index)(\.inprogress|\.corrupted)?")
_SIGNED = ("xlog", "snap", "vylog")
_LOOKS_LIKE = re.compile(
    rb"[^\n]{1,9}\n0\.1[23]\n|.{0,200}\n(?:VClock: \{|(?:Instance|Server): [0-9a-f]{8}-)", re.DOTALL
)

FRAME = FrameLevel(
    name="block",
    schema=schema.BLOCK,
    columns=("magic", "header.length", "header.crc32p", "header.crc32c", "header.end", "payload_start", "payload_end"),
    sync=codes.START,
    min_size=codes.FIXED_SIZE,
    max_size=64 * MIB,
    end_mark=codes.END_MARK,
    checksum=CRC32C_RAW,
    stored="header.crc32c",
    covered=("payload_start", "payload_end"),
)

ROWS = RowLevel(
    schema=schema.ROW,
    columns=rows.COLUMNS,
    start="payload_start",
    end="payload_end",
    selector="magic",
    codecs=MappingProxyType({codes.ZSTD: unpack_zstd}),
    framed=rows.FramedRow(),
)


class FileContext(msgspec.Struct):
    """Format-specific facts about one file.

    Attributes:
        kind: kind by which the file is validated: that of the name where it contradicts the first line.
        text: the header's lines.
        number: the digits of the name, or None.
        suffix: "", ".inprogress" or ".corrupted".
        has_valid_vclock: the VClock of the header can be used.
        spaces: names by space id; shared by all files of a log, and extended while records are described.
    """

    kind: FileKind | None
    text: HeaderText
    vclock: dict[int, int] = msgspec.field(default_factory=dict)
    prev_vclock: dict[int, int] | None = None
    instance: str | None = None
    version: str | None = None
    number: int | None = None
    suffix: str = ""
    believed: bool = True
    spaces: SpaceNames = msgspec.field(default_factory=SpaceNames)

    @property
    def signature(self) -> int:
        """The sum of all vclock components, which names the file."""
        return sum(self.vclock.values())

    def soften(self, found: Finding) -> Finding:
        """Lower the severity of a finding about a file that the server does not read."""
        ceiling = {".inprogress": Severity.NOTE, ".corrupted": Severity.WARNING}.get(self.suffix, Severity.ERROR)
        return found if found.severity <= ceiling else found.raised_to(ceiling)


def apart(context: FileContext) -> FileContext:
    """Copy a context: it knows the same space names, but shares none that either learns later."""
    own = SpaceNames()
    own.update(context.spaces)
    return replace(context, spaces=own)


def detect(head: Head) -> Match:
    """Match a file by its text header; a file whose header is lost still matches weakly by its name."""
    first, _, rest = head.data[:64].partition(b"\n")
    if first.decode("latin-1") in FileKind.__members__:
        known = rest[:5] in (b"0.12\n", b"0.13\n")
        return Match(
            100 if known else 95, f"starts with {first.decode()!r}" + (f" {rest[:4].decode()}" if known else "")
        )
    if _LOOKS_LIKE.match(head.data[:300]):
        return Match(60, "has the lines of a Tarantool header, with an unknown type")
    if _NAME.fullmatch(head.name) or head.name.endswith((".xlog", ".vylog", ".xlog.inprogress")):
        torn = any(kind.encode().startswith(head.data) for kind in FileKind.__members__)
        unread = head.name.endswith(
            (".inprogress", ".corrupted")
        )  # the server did not finish the file, or set it aside
        return Match(20 if torn or unread else 10, f"is named like a Tarantool file ({head.name})")
    return Match(0, "no Tarantool header")


def stem(name: str) -> str | None:
    """Return "" for a file named by a signature: all such files of a directory are one log. None for other names."""
    return "" if _NAME.fullmatch(name) else None


def layout(head: Head, limits: Limits) -> Layout:
    """Read the layout of a file from its header. Never raises: errors in the header become findings."""
    text = read_lines(head.data)
    context = _context(head.name, text)
    context.spaces = head.shared.setdefault("tarantool.spaces", context.spaces)
    found = list(_findings(head, text, context))
    context.believed = not any(f.facts.get("diagnosis") in VCLOCK_LOST and f.severity is Severity.ERROR for f in found)
    first = text.lines[0].value[:9] if text.lines else "empty"
    version = text.lines[1].value[:9] if len(text.lines) > 1 else "?"
    readable = context.kind is not None and text.end is not None and version in VERSIONS
    return Layout(
        variant=f"{first} {version}" if context.kind else f"unknown ({first!r})",
        frames_at=text.end or 0,
        frame=FRAME,
        header=schema.HEADER,
        rows=ROWS,
        context=context,
        findings=tuple(map(context.soften, found)) + tuple(_unread_member(context)),
        readable=readable,
        final=context.kind is FileKind.XLOG,  # the server reopens a log without rows, and a VYLOG
    )


def _context(name: str, text: HeaderText) -> FileContext:
    """Create the context of a file from its name and header lines."""
    kind = text.lines[0].value if text.lines else ""
    context = FileContext(FileKind(kind) if kind in FileKind.__members__ else None, text)
    matched = _NAME.fullmatch(name)
    if matched:
        context.number, context.suffix = int(matched[1]), matched[3] or ""
        context.kind = context.kind and FileKind(matched[2].upper())
    if text.end is None:
        return context
    context.instance, context.version = text.value("instance"), text.value("version")
    for attribute in ("vclock", "prev_vclock"):
        words = text.value(attribute)
        if words is not None:
            try:
                setattr(context, attribute, parse_vclock(words))
            except ValueError:
                continue
    return context


def _unread_member(context: FileContext) -> Iterator[Finding]:
    """Report a file that the server does not read."""
    if context.suffix == ".inprogress":
        text = "a file that the server had not finished making; it does not read it"
        yield finding("extra-member", 0, 0, text, diagnosis="inprogress_left")
    elif context.suffix == ".corrupted":
        text = "a file that the server put aside because it could not go on with it"
        yield finding("extra-member", 0, 0, text, diagnosis="corrupted_left")


def _findings(head: Head, text: HeaderText, context: FileContext) -> Iterator[Finding]:
    """Report everything that is wrong with a header."""
    yield from _type_findings(head, text, context)
    if text.end is None:
        size = min(len(head.data), 1858)
        what = "the file is empty" if not head.data else "no empty line ends the header"
        yield finding("bad-header", 0, size, what, diagnosis="bad_header")
        return
    lost_vclock = text.line("vclock") is None and context.kind in (FileKind.XLOG, FileKind.SNAP, FileKind.VYLOG)
    suspects = [line for line in text.lines[2:] if line.key is None or line.name.startswith("unknown")]
    for line in text.lines[2:]:
        yield from _line_findings(line, text, lost_vclock)
    if not (lost_vclock and suspects):
        yield from _name_findings(head, text, context)


def _type_findings(head: Head, text: HeaderText, context: FileContext) -> Iterator[Finding]:
    """Check the first two lines: type and format version."""
    if not text.lines:
        return
    first = text.lines[0]
    if context.kind is None and text.end is not None:
        words = f"type {first.value[:40]!r} is none of {', '.join(FileKind)}"
        yield finding("bad-header", 0, first.end, words, diagnosis="bad_header_type")
    if context.kind and first.value != context.kind:
        words = f"a file named .{context.kind.lower()} has the type {first.value}"
        yield finding("bad-header", 0, first.end, words, diagnosis="bad_header_type")
    if len(text.lines) > 1 and text.lines[1].value not in VERSIONS and text.end is not None:
        line = text.lines[1]
        words = f"format version {line.value[:40]!r}; known are {' and '.join(VERSIONS)}"
        yield finding("unsupported-version", line.start, line.end - line.start, words, diagnosis="bad_header_version")


def _line_findings(line: Line, text: HeaderText, lost_vclock: bool) -> Iterator[Finding]:
    """Check one `key: value` line."""
    place = (line.start, line.end - line.start)
    if line.key is None:
        yield finding("bad-header", *place, f"no colon in {line.value[:60]!r}", diagnosis="bad_header")
    elif line.name == "instance" and not is_uuid(line.value):
        yield finding("bad-header", *place, f"{line.value[:60]!r} is no uuid", diagnosis="bad_uuid")
    elif line.name in ("vclock", "prev_vclock"):
        try:
            parse_vclock(line.value)
        except ValueError as error:
            yield finding("bad-header", *place, str(error)[:200], diagnosis="bad_vclock")
    elif line.name.startswith("unknown"):
        yield _unknown_key(line, text, lost_vclock)


def _unknown_key(line: Line, text: HeaderText, lost_vclock: bool) -> Finding:
    """Report an unknown key: a warning, as newer servers add keys; an error where the VClock line is missing."""
    facts: dict[str, Any] = {
        "diagnosis": "unknown_header_key",
        "key": line.key,
        "value": line.value[:200],
        "line_offset": line.start,
    }
    if lost_vclock:
        words = f"unknown key {line.key!r}, and there is no VClock"
        return finding("bad-header", line.start, line.end - line.start, words, **facts)
    words = f"unknown key {line.key!r} in the header (line at {line.start:#x})"
    return finding("bad-header", 0, text.end or 0, words, severity=Severity.WARNING, **facts)


def _name_findings(head: Head, text: HeaderText, context: FileContext) -> Iterator[Finding]:
    """Check the number in a file's name against the sum of its VClock."""
    matched = _NAME.fullmatch(head.name)
    line = text.line("vclock")
    if not matched or matched[2] not in _SIGNED or any(_line_findings(line, text, False)) if line else not matched:
        return
    assert matched is not None
    if line is None and matched[2] in _SIGNED:
        words = f"the header has no VClock, the name says {int(matched[1])}"
        yield finding("meta-mismatch", 0, text.end or 0, words, diagnosis="vclock_name_mismatch")
    elif line is not None and int(matched[1]) != context.signature:
        start, end = line.start, line.end
        words = (
            f"the name says {int(matched[1])}, the sum of VClock {write_vclock(context.vclock)} is {context.signature}"
        )
        yield finding(
            "meta-mismatch", start, end - start, words, diagnosis="vclock_name_mismatch", signature=context.signature
        )
