"""Detect a journal file and read its layout from the text header."""

from __future__ import annotations

import re
from collections.abc import Iterator
from types import MappingProxyType
from typing import Any

import msgspec
from msgspec.structs import replace

from binlogtool.findings import Finding, Severity, make_finding
from binlogtool.format_api.format import FileHead, FormatMatch
from binlogtool.format_api.layout import CRC32C_RAW, FrameLevel, LogFileLayout, RowLevel
from binlogtool.formats.tarantool import codes, schema
from binlogtool.formats.tarantool.codes import FileKind, SpaceNames
from binlogtool.formats.tarantool.rows import rows
from binlogtool.formats.tarantool.schema import (
    HeaderLine,
    HeaderText,
    format_vclock,
    parse_header_lines,
    parse_uuid,
    parse_vclock,
    unpack_zstd,
)
from binlogtool.limits import MIB, Limits

# --- Detection and layout of one file (`docs/spec/tarantool.md#text-header`) ---

VERSIONS = ("0.12", "0.13")
TEMPORARY_PATTERNS = ("*.inprogress",)
"""Patterns of unfinished files, which the server renames when they are complete."""

UNUSABLE_VCLOCK_DIAGNOSES = ("bad_vclock", "vclock_name_mismatch", "unknown_header_key")
"""Diagnoses of a header whose VClock cannot be used."""

_FILE_NAME = re.compile(r"(\d+)\.(xlog|snap|vylog|run|index)(\.inprogress|\.corrupted)?")
_OPENED_NAME = re.compile(r"\d{20}\.(xlog|snap|vylog)")
"""Names of files that a server opens in its data directory, whatever they hold."""
_KINDS_NAMED_BY_VCLOCK = ("xlog", "snap", "vylog")
_HEADER_LINES = re.compile(
    rb"[^\n]{1,9}\n0\.1[23]\n|.{0,200}\n(?:VClock: \{|(?:Instance|Server): [0-9a-f]{8}-)", re.DOTALL
)

FRAME = FrameLevel(
    name="block",
    schema=schema.BLOCK,
    columns=("magic", "header.length", "header.crc32p", "header.crc32c", "header.end", "payload_start", "payload_end"),
    sync=codes.BLOCK_START_PATTERN,
    min_size=codes.FIXHEADER_SIZE,
    max_size=64 * MIB,
    end_mark=codes.END_MARK,
    checksum=CRC32C_RAW,
    stored="header.crc32c",
    covered=("payload_start", "payload_end"),
)

ROWS = RowLevel(
    schema=schema.ROW,
    columns=rows.ROW_COLUMNS,
    start="payload_start",
    end="payload_end",
    selector="magic",
    codecs=MappingProxyType({codes.ZSTD_MAGIC: unpack_zstd}),
    framed=rows.RowFrameConstruct(),
)


class TarantoolContext(msgspec.Struct):
    """Format-specific facts about one file.

    Attributes:
        kind: kind as which the file is validated; if name and first line contradict each other, that of the name.
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
    has_valid_vclock: bool = True
    spaces: SpaceNames = msgspec.field(default_factory=SpaceNames)

    @property
    def signature(self) -> int:
        """Sum of all vclock components; the server names the file after it."""
        return sum(self.vclock.values())

    def add_spaces(self, state: Any) -> None:
        """Add the names of a state (`decode.BlockSplitPoints.export_state`) if it is of the same instance."""
        if state and state["instance"] == self.instance:
            self.spaces.update({int(space): name for space, name in state["names"].items()})

    def cap_severity(self, raw_finding: Finding) -> Finding:
        """Lower the severity of a finding about a file that the server does not read."""
        ceiling = {".inprogress": Severity.NOTE, ".corrupted": Severity.WARNING}.get(self.suffix, Severity.ERROR)
        return raw_finding if raw_finding.severity <= ceiling else raw_finding.with_severity(ceiling)


def fork_context(context: TarantoolContext) -> TarantoolContext:
    """Copy a context: the copy has the same space names, but names that either learns later are not shared."""
    spaces = SpaceNames()
    spaces.update(context.spaces)
    return replace(context, spaces=spaces)


def detect(head: FileHead) -> FormatMatch:
    """Match a file by its text header; a file whose header is lost still matches weakly by its name."""
    first, _, rest = head.data[:64].partition(b"\n")
    if first.decode("latin-1") in FileKind.__members__:
        is_known_version = rest[:5] in (b"0.12\n", b"0.13\n")
        return FormatMatch(
            100 if is_known_version else 95,
            f"starts with {first.decode()!r}" + (f" {rest[:4].decode()}" if is_known_version else ""),
        )
    if _HEADER_LINES.match(head.data[:300]):
        return FormatMatch(60, "has the lines of a Tarantool header, with an unknown type")
    if _FILE_NAME.fullmatch(head.name) or head.name.endswith((".xlog", ".vylog", ".xlog.inprogress")):
        torn = any(kind.encode().startswith(head.data) for kind in FileKind.__members__)
        is_ignored = head.name.endswith(
            (".inprogress", ".corrupted")
        )  # the server did not finish the file, or renamed it as corrupted
        is_log = torn or is_ignored or _OPENED_NAME.fullmatch(head.name)
        return FormatMatch(20 if is_log else 10, f"is named like a Tarantool file ({head.name})")
    return FormatMatch(0, "no Tarantool header")


def get_log_stem(name: str) -> str | None:
    """Return "" for a name made from a signature (all such files of a directory are one log); None for other names."""
    return "" if _FILE_NAME.fullmatch(name) else None


def read_layout(head: FileHead, limits: Limits) -> LogFileLayout:
    """Read the layout of a file from its header. Never raises: errors in the header become findings."""
    text = parse_header_lines(head.data)
    context = _read_context(head.name, text)
    key = f"tarantool.spaces.{context.instance}"  # several servers can be read at once
    if key not in head.shared and head.preceding is not None:
        context.add_spaces(head.preceding.compute_state("tarantool"))
    context.spaces = head.shared.setdefault(key, context.spaces)
    findings = list(_check_header(head, text, context))
    context.has_valid_vclock = not any(
        f.facts.get("diagnosis") in UNUSABLE_VCLOCK_DIAGNOSES and f.severity is Severity.ERROR for f in findings
    )
    first = text.lines[0].value[:9] if text.lines else "empty"
    version = text.lines[1].value[:9] if len(text.lines) > 1 else "?"
    readable = context.kind is not None and text.end is not None and version in VERSIONS
    return LogFileLayout(
        variant=f"{first} {version}" if context.kind else f"unknown ({first!r})",
        frames_at=text.end or 0,
        frame=FRAME,
        header=schema.HEADER,
        rows=ROWS,
        context=context,
        findings=tuple(map(context.cap_severity, findings)) + tuple(_report_unread_file(context)),
        readable=readable,
        final=context.kind is FileKind.XLOG,  # the server reopens a log without rows, and a VYLOG
    )


def _read_context(name: str, text: HeaderText) -> TarantoolContext:
    """Create the context of a file from its name and header lines."""
    kind = text.lines[0].value if text.lines else ""
    context = TarantoolContext(FileKind(kind) if kind in FileKind.__members__ else None, text)
    matched = _FILE_NAME.fullmatch(name)
    if matched:
        context.number, context.suffix = int(matched[1]), matched[3] or ""
        context.kind = context.kind and FileKind(matched[2].upper())
    if text.end is None:
        return context
    instance, context.version = text.get_value("instance"), text.get_value("version")
    context.instance = None if instance is None else parse_uuid(instance) or instance
    for attribute in ("vclock", "prev_vclock"):
        value = text.get_value(attribute)
        if value is not None:
            try:
                setattr(context, attribute, parse_vclock(value))
            except ValueError:
                continue
    return context


def _report_unread_file(context: TarantoolContext) -> Iterator[Finding]:
    """Report a file that the server does not read."""
    if context.suffix == ".inprogress":
        text = "a file that the server did not finish writing; the server ignores it"
        yield make_finding("extra-member", 0, 0, text, diagnosis="inprogress_left")
    elif context.suffix == ".corrupted":
        text = "a file that the server set aside because it could not continue with it"
        yield make_finding("extra-member", 0, 0, text, diagnosis="corrupted_left")


def _check_header(head: FileHead, text: HeaderText, context: TarantoolContext) -> Iterator[Finding]:
    """Report everything that is wrong with a header."""
    yield from _check_type_and_version(head, text, context)
    if text.end is None:
        size = min(len(head.data), 1858)
        message = "the file is empty" if not head.data else "no empty line ends the header"
        yield make_finding("bad-header", 0, size, message, diagnosis="bad_header")
        return
    lost_vclock = text.get_line("vclock") is None and context.kind in (FileKind.XLOG, FileKind.SNAP, FileKind.VYLOG)
    suspects = [line for line in text.lines[2:] if line.key is None or line.name.startswith("unknown")]
    for line in text.lines[2:]:
        yield from _check_line(line, text, lost_vclock)
    if not (lost_vclock and suspects):
        yield from _check_name(head, text, context)


def _check_type_and_version(head: FileHead, text: HeaderText, context: TarantoolContext) -> Iterator[Finding]:
    """Check the first two lines: type and format version."""
    if not text.lines:
        return
    first = text.lines[0]
    if context.kind is None and text.end is not None:
        message = f"type {first.value[:40]!r} is none of {', '.join(FileKind)}"
        yield make_finding("bad-header", 0, first.end, message, diagnosis="bad_header_type")
    if context.kind and first.value != context.kind:
        message = f"a file named .{context.kind.lower()} has the type {first.value}"
        yield make_finding("bad-header", 0, first.end, message, diagnosis="bad_header_type")
    if len(text.lines) > 1 and text.lines[1].value not in VERSIONS and text.end is not None:
        line = text.lines[1]
        message = f"format version {line.value[:40]!r}; supported: {' and '.join(VERSIONS)}"
        yield make_finding(
            "unsupported-version", line.start, line.end - line.start, message, diagnosis="bad_header_version"
        )


def _check_line(line: HeaderLine, text: HeaderText, lost_vclock: bool) -> Iterator[Finding]:
    """Check one `key: value` line."""
    place = (line.start, line.end - line.start)
    if line.key is None:
        yield make_finding("bad-header", *place, f"no colon in {line.value[:60]!r}", diagnosis="bad_header")
    elif line.name == "instance" and parse_uuid(line.value) is None:
        yield make_finding("bad-header", *place, f"{line.value[:60]!r} is no uuid", diagnosis="bad_uuid")
    elif line.name in ("vclock", "prev_vclock"):
        try:
            parse_vclock(line.value)
        except ValueError as error:
            yield make_finding("bad-header", *place, str(error)[:200], diagnosis="bad_vclock")
    elif line.name.startswith("unknown"):
        yield _report_unknown_key(line, text, lost_vclock)


def _report_unknown_key(line: HeaderLine, text: HeaderText, lost_vclock: bool) -> Finding:
    """Report an unknown key: a warning, as newer servers add keys; an error if the VClock line is missing."""
    facts: dict[str, Any] = {
        "diagnosis": "unknown_header_key",
        "key": line.key,
        "value": line.value[:200],
        "line_offset": line.start,
    }
    if lost_vclock:
        message = f"unknown key {line.key!r}, and there is no VClock"
        return make_finding("bad-header", line.start, line.end - line.start, message, **facts)
    message = f"unknown key {line.key!r} in the header (line at {line.start:#x})"
    return make_finding("bad-header", 0, text.end or 0, message, severity=Severity.WARNING, **facts)


def _check_name(head: FileHead, text: HeaderText, context: TarantoolContext) -> Iterator[Finding]:
    """Check the number in a file's name against the sum of its VClock."""
    matched = _FILE_NAME.fullmatch(head.name)
    line = text.get_line("vclock")
    if (
        not matched or matched[2] not in _KINDS_NAMED_BY_VCLOCK or any(_check_line(line, text, False))
        if line
        else not matched
    ):
        return
    assert matched is not None
    if line is None and matched[2] in _KINDS_NAMED_BY_VCLOCK:
        message = f"the header has no VClock, the name says {int(matched[1])}"
        yield make_finding("meta-mismatch", 0, text.end or 0, message, diagnosis="vclock_name_mismatch")
    elif line is not None and int(matched[1]) != context.signature:
        start, end = line.start, line.end
        message = (
            f"the name says {int(matched[1])}, the sum of VClock {format_vclock(context.vclock)} is {context.signature}"
        )
        yield make_finding(
            "meta-mismatch", start, end - start, message, diagnosis="vclock_name_mismatch", signature=context.signature
        )


# --- Layouts with native code ---


def layouts() -> list[LogFileLayout]:
    """Return one layout per kind of file."""
    header_text = HeaderText([], None)
    return [
        LogFileLayout(kind.name, 0, FRAME, rows=ROWS, context=TarantoolContext(kind, header_text)) for kind in FileKind
    ]
