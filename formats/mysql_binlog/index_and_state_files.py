"""The files next to a log: index, MariaDB state, relay-log.info, GTID index, and the names of log files.

The text files have no records: the whole file is its header, and its findings follow from its lines. Servers read lines
with `my_b_gets`, which drops a last line without a line feed, and treat an empty line as the end of an index
(`MYSQL_BIN_LOG::find_log_pos`, `Binlog_index::find_log_pos`). New names are appended to the end of the file.

A GTID index is a tree of pages of one size: leaves hold (offset in the log, GTID state there), the pages above them the
first key of each leaf and its page number. A node that needs more than one page continues in the next page. The server
preallocates the file, writes it together with the log, and rebuilds it if it does not trust it, so a damaged GTID index
loses no data. Sources: docs/spec/mysql_binlog.md#file-kinds, #transactions-and-truncation and #mariadb-gtid-index.
"""

from __future__ import annotations

import enum
import os
import re
import struct
import sys
import zlib
from array import array
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from itertools import islice
from types import MappingProxyType
from typing import Any, NamedTuple

import msgspec
from construct import (
    Bytes,
    Check,
    Const,
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
from binlogtool.format_api.format import FileHead, FileLink, FormatMatch
from binlogtool.format_api.layout import CRC32, FrameLevel, LogFileLayout
from binlogtool.format_api.schema_fields import CrcCheck, Magic, TracePart
from binlogtool.formats.binlog_events.wire_format import HEADER_SIZE, MAGIC, EventType
from binlogtool.limits import KIB, MIB, Limits

# --- Names of the files of a log ---

_LOG_NAME = re.compile(r"(?P<base>.+)\.(?P<number>\d{6,18})", re.DOTALL)
INDEX_NAME = re.compile(r"(?!\d+\.index\Z).+\.index", re.DOTALL)
"""Name of an index file. Its base name may be anything except digits only: such an index belongs to another format."""
STATE_NAME = re.compile(r".+\.state", re.DOTALL)
INFO_NAME = re.compile(r"relay-log.*\.info", re.DOTALL)
LEFTOVER_NAME = re.compile(r".+\.(?:index_crash_safe|~rec~)", re.DOTALL)
GTID_INDEX_NAME = re.compile(r"(?P<log>.+\.\d{6,18})\.idx", re.DOTALL)
TEMPORARY_PATTERNS = ("*.index_crash_safe", "*.~rec~")
"""Files that a rotation or purge creates and immediately removes."""


class LogName(NamedTuple):
    """Name of a log file without its folder: `base.000042`."""

    name: str
    base: str
    number: int

    def make_sibling(self, number: int) -> str:
        """Return the name of another file of the same log."""
        return f"{self.base}.{number:06d}"


def parse_log_name(path: bytes | str) -> LogName | None:
    """Return the log file that a path names, on Unix or Windows; None if it is not a log file's name."""
    text = path if isinstance(path, str) else path.decode("utf-8", "surrogateescape")
    name = re.split(r"[/\\]", text)[-1]
    match = _LOG_NAME.fullmatch(name)
    return LogName(name, sys.intern(match["base"]), int(match["number"])) if match else None


def get_log_name_stem(name: str) -> str | None:
    """Return the stem that the logs of a server share with their index and related files; None if there is none."""
    base = re.fullmatch(r"(.+)\.(?:\d{6,18}(?:\.idx)?|index|state|index_crash_safe|~rec~)", name, re.DOTALL)
    return base[1] if base else None


def is_next_file(previous: str, name: str) -> bool:
    """Return whether the second name is the next file of the same log."""
    first, second = parse_log_name(previous), parse_log_name(name)
    return first is not None and second is not None and (first.base, first.number + 1) == (second.base, second.number)


_ROTATE_HEAD = struct.Struct("<4xB4xI")
"""Type and size of an event; the rest of its header is skipped."""


def is_next_file_proven_by_rotate(link: FileLink) -> bool:
    """Return whether a log ends with a ROTATE to the second file; another base name means that both were renamed.

    A ROTATE has the name of the next file after its header and a position of 8 bytes, and a checksum of 4 bytes or none
    at its end.
    """
    after = parse_log_name(link.after)
    if after is None or not is_next_file(link.before, link.after):
        return False
    end, name_at = link.read_end(), HEADER_SIZE + 8
    for size in range(name_at + 1, len(end) + 1):
        start = len(end) - size
        if _ROTATE_HEAD.unpack_from(end, start) != (EventType.ROTATE, size):
            continue
        for stop in (len(end) - 4, len(end)):
            target = parse_log_name(end[start + name_at : stop])
            if target is not None and target.number == after.number:
                return True
    return False


def get_folder(path: bytes) -> bytes:
    """Return the folder of a path, without the last separator."""
    at = max(path.rfind(b"/"), path.rfind(b"\\"))
    return path[:at].rstrip(b"/\\") or path[:1] if at >= 0 else b""


def to_printable(name: bytes | str) -> str:
    """Return at most 200 characters of a name as text that is safe to write anywhere."""
    data = name if isinstance(name, bytes) else name.encode("utf-8", "surrogateescape")
    text = data[:200].decode("utf-8", "backslashreplace")
    return text + "…" if len(data) > 200 else text


def sort_names(names: Sequence[str]) -> list[str]:
    """Return the names sorted: per base name first the files about the logs, then the logs by number."""
    return sorted(names, key=_get_path_sort_key)


def _get_path_sort_key(path: str) -> tuple[str, str, int, int, str]:
    """Return the sort key of a path."""
    folder, name = os.path.split(path)
    matched = GTID_INDEX_NAME.fullmatch(name)
    parsed = parse_log_name(matched["log"] if matched else name)
    if parsed is None:
        return folder, name.rpartition(".")[0], 0, 0, name
    return folder, parsed.base, 1, parsed.number, name


# --- Constructs of the servers' text files ---

MAX_LINE_SIZE = 4 * KIB
"""Longest line that can be a path (the servers' FN_REFLEN is 512)."""

MAX_ANNOTATED_LINES = 1 << 16
"""Maximum number of lines that the annotated hexdump shows one by one."""

GTID_LINE = re.compile(rb"(\d{1,10})-(\d{1,10})-(\d{1,20})")


class TextLines(Construct):  # type: ignore[misc]
    """Construct of all lines up to the end of the file.

    `labels`: names of the first lines; the others have numbers. `explain`: returns the meaning of a line.
    """

    fills_stream = True

    def __init__(self, labels: Sequence[str] = (), explain: Callable[[bytes], str] | None = None) -> None:
        super().__init__()
        self.labels, self.explain = labels, explain

    def _parse(self, stream: Any, context: Any, path: str) -> list[bytes]:
        return [line for line in stream.read().split(b"\n") if line]

    def _build(self, obj: list[bytes], stream: Any, context: Any, path: str) -> Any:
        stream.write(b"".join(line + b"\n" for line in obj))
        return obj

    def trace_rows(self, data: bytes, start: int, end: int, limits: Limits) -> Iterator[TracePart]:
        """Yield one part per line, including its line feed; everything after the first 65,536 lines is one part."""
        at = start
        for number in range(MAX_ANNOTATED_LINES):
            if at >= end:
                return
            line_feed = data.find(b"\n", at, end)
            stop = end if line_feed < 0 else line_feed + 1
            name = f".{self.labels[number]}" if number < len(self.labels) else f"[{number}]"
            text = data[at : stop - (line_feed >= 0)]
            explanation = self.explain(text) if self.explain is not None and len(text) <= MAX_LINE_SIZE else ""
            yield TracePart(name, 1, at, stop, to_printable(text), explanation)
            at = stop
        if at < end:
            yield TracePart(".more", 1, at, end, None, f"{data.count(bytes((10,)), at, end):,} more lines")


def _format_log_number(line: bytes) -> str:
    """Return the number of the log that a line names."""
    parsed = parse_log_name(line)
    return "" if parsed is None else f"log {parsed.number}"


def _explain_gtid_line(line: bytes) -> str:
    """Return domain and server of a GTID line."""
    matched = GTID_LINE.fullmatch(line)
    return f"domain {int(matched[1])}, server {int(matched[2])}" if matched else ""


INFO_LINE_NAMES = ("lines", "relay_log_file", "relay_log_pos", "source_log_file", "source_log_pos", "delay")
"""Meaning of the first lines of relay-log.info. Servers before MySQL 5.6 and MariaDB 10.0 write no number of lines."""

INDEX_FILE = Struct("path" / TextLines(explain=_format_log_number))
STATE_FILE = Struct("gtid" / TextLines(explain=_explain_gtid_line))
INFO_FILE = Struct("info" / TextLines(INFO_LINE_NAMES))
OLD_INFO_FILE = Struct("info" / TextLines(INFO_LINE_NAMES[1:]))


# --- An index as the servers read it ---

_NUMBER = re.compile(rb"\.[0-9]{6,18}")
_MAX_SEARCHED = 4096
"""Maximum number of bytes of a line that are searched for joined names."""


class ServerIndexNames(msgspec.Struct, frozen=True):
    """Names that a server reads, as they are written.

    `unfinished_line`: a last line without a line feed, to which the server appends a name; empty after a blank line, as
    no line after it is read. `ends_blank`: a blank line ends the names.
    """

    names: tuple[bytes, ...]
    unfinished_line: bytes = b""
    ends_blank: bool = False


def read_index_like_server(index_bytes: bytes, *, is_mysql: bool) -> ServerIndexNames:
    """Read an index as MySQL or MariaDB does: MySQL drops a carriage return at the end of a line."""
    *lines, unfinished = index_bytes.split(b"\n")
    ends_blank = b"" in lines
    if ends_blank:
        lines, unfinished = lines[: lines.index(b"")], b""
    if is_mysql:
        lines = [line.removesuffix(b"\r") for line in lines]
    names = [line.partition(b"\0")[0] for line in lines]
    if b"" in names[1:]:
        names = names[: names.index(b"", 1)]
    return ServerIndexNames(tuple(names), unfinished, ends_blank)


def split_joined_names(line: bytes) -> list[bytes]:
    """Return the names in a line: more than one if line feeds between them are missing."""
    names: list[bytes] = []
    rest = line
    while (at := _find_joined_name_start(rest)) is not None:
        names.append(rest[:at])
        rest = rest[at:]
    return [*names, rest]


def _find_joined_name_start(line: bytes) -> int | None:
    """Return where the second of two joined names begins; both have the same base name and a number. Else None."""
    for match in _NUMBER.finditer(line, 0, _MAX_SEARCHED):
        stem, rest = line[: match.start() + 1], line[match.end() :]
        base = stem[stem.rfind(b"/") + 1 :]
        possible_starts = (stem, b"./" + base, base, b"/")
        if rest.startswith(possible_starts) and (second := _NUMBER.search(rest)) is not None:
            name = rest[: second.start() + 1]
            if name[name.rfind(b"/") + 1 :] == base and base != b".":
                return match.end()
    return None


# --- Text files next to a log ---

MAX_INDEX_BYTES = 64 * MIB
"""Maximum size of an index that is read, in bytes: more than a million lines."""

MAX_LINES = 1 << 21
"""Maximum number of lines that are read."""

MAX_OTHER_BYTES = 4 * MIB
"""Maximum number of bytes that are read of the other text files."""

MAX_FINDINGS_PER_KIND = 20
"""Maximum number of faulty lines of one kind that are reported one by one."""

MAX_FOLDERS = 1000
"""Maximum number of folders, or base names, of one index that are checked."""

_CHUNK = MIB
_CONTROL = re.compile(rb"[\x00-\x1f\x7f]")


class TextFileKind(enum.Enum):
    """Kind of a text file, with its name in reports."""

    INDEX = "binlog index"
    LEFTOVER = "binlog index, left over"
    STATE = "GTID state"
    INFO = "relay log info"


class TextLine(NamedTuple):
    """One line: offset, size including the line feed, and its bytes without the line feed."""

    offset: int
    size: int
    text: bytes
    has_line_feed: bool


class IndexListing(msgspec.Struct):
    """Files of one base name that an index lists, by number; `unusual_names`: names not written as servers do."""

    base: str
    numbers: array[int] = msgspec.field(default_factory=partial(array, "q"))
    unusual_names: dict[int, str] = msgspec.field(default_factory=dict)
    seen: set[int] | None = None

    def add_name_and_find_disorder(self, name: LogName) -> str | None:
        """Add the next name. Return "again" for a repeated name, "back" for an older file than before, else None."""
        number, last_number = name.number, self.numbers[-1] if self.numbers else -1
        if number <= last_number or self.seen is not None:
            self.seen = set(self.numbers) if self.seen is None else self.seen
            if number in self.seen:
                return "again"
            self.seen.add(number)
        self.numbers.append(number)
        if name.name != name.make_sibling(number):
            self.unusual_names[number] = name.name
        return "back" if number < last_number else None

    def sorted_numbers(self) -> array[int]:
        """Return the numbers in order."""
        return self.numbers if self.seen is None else array("q", sorted(self.numbers))

    def get_listed_name(self, number: int) -> str:
        """Return the name that is listed for a number."""
        return self.unusual_names.get(number) or LogName("", self.base, number).make_sibling(number)


class TextFileContext(msgspec.Struct):
    """Content of a text file.

    `listings`: the files in an index, by base name. `last_numbers`: the last number of each "domain-server" in a state
    file. `position`: the relay log and the offset in relay-log.info. `sound`: every line was valid.
    """

    kind: TextFileKind
    name: str = ""
    listings: dict[str, IndexListing] = msgspec.field(default_factory=dict)
    last_numbers: dict[str, int] = msgspec.field(default_factory=dict)
    position: tuple[str, int] | None = None
    sound: bool = True


# -- schemas -----------------------------------------------------------------------------------------------------------


EMPTY_LEVEL = FrameLevel(Struct("rest" / Const(MAGIC)), (), None, len(MAGIC), len(MAGIC), name="rest")
"""Frame level of a file without frames."""


# -- detection ---------------------------------------------------------------------------------------------------------


def get_text_file_kind(name: str) -> TextFileKind | None:
    """Return the kind of a text file by its name; None if no kind has this name."""
    kinds = (
        (LEFTOVER_NAME, TextFileKind.LEFTOVER),
        (INDEX_NAME, TextFileKind.INDEX),
        (STATE_NAME, TextFileKind.STATE),
        (INFO_NAME, TextFileKind.INFO),
    )
    return next((kind for pattern, kind in kinds if pattern.fullmatch(name)), None)


def detect_text_file(head: FileHead) -> FormatMatch:
    """Detect a text file by name and content: every complete line must be valid."""
    kind = get_text_file_kind(head.name.rpartition("/")[2])
    if kind is None:
        return FormatMatch(0, "not the name of a text file next to a log")
    lines = head.data.split(b"\n")
    lines = [line.rstrip(b"\r") for line in (lines if head.is_whole else lines[:-1])]
    lines = [line for line in lines if line]
    if not lines:
        return (
            FormatMatch(20, f"the name of a {kind.value}, and empty") if not head.data else FormatMatch(0, "no lines")
        )
    if kind is TextFileKind.INFO:
        matches = sum(parse_log_name(line) is not None for line in lines[:2])
        return (
            FormatMatch(80, "the lines of relay-log.info") if matches else FormatMatch(0, "no lines of relay-log.info")
        )
    valid_count = sum(
        GTID_LINE.fullmatch(line) is not None if kind is TextFileKind.STATE else _is_log_path(line) for line in lines
    )
    if valid_count == len(lines):
        return FormatMatch(80, f"the lines of a {kind.value}")
    return (
        FormatMatch(40, f"some lines of a {kind.value}")
        if valid_count
        else FormatMatch(0, f"no line of a {kind.value}")
    )


def _is_log_path(line: bytes) -> bool:
    """Return whether a line is the path of a log file."""
    return len(line) <= MAX_LINE_SIZE and _CONTROL.search(line) is None and parse_log_name(line) is not None


# -- layout ------------------------------------------------------------------------------------------------------------


def create_text_layout(head: FileHead, kind: TextFileKind) -> LogFileLayout:
    """Return the layout: the whole file is its header, with findings about its lines."""
    context = TextFileContext(kind, head.name)
    ceiling = MAX_INDEX_BYTES if kind in (TextFileKind.INDEX, TextFileKind.LEFTOVER) else MAX_OTHER_BYTES
    read_range = head.peek or (lambda offset, size: head.data[offset : offset + size])
    size = len(head.data) if head.size is None or head.peek is None else head.size
    lines = _iter_lines(read_range, min(size, ceiling))
    readers = {TextFileKind.STATE: _read_state_lines, TextFileKind.INFO: _read_relay_log_info}
    findings = list(readers.get(kind, _read_index_lines)(islice(lines, MAX_LINES), context))
    next_line = None if kind is TextFileKind.INFO else next(lines, None)
    if next_line is not None or size > ceiling or (head.size is None and not head.is_whole):
        context.sound = False
        read_end = min(size, ceiling) if next_line is None else next_line.offset
        text = f"only the first {read_end:,} bytes of the {kind.value} were checked"
        findings.append(make_finding("count-out-of-bounds", read_end, 0, text))
    if kind is TextFileKind.LEFTOVER:
        text = "left by an interrupted rotation or purge; the server checks it when it starts"
        findings = [make_finding("extra-member", 0, size, text, severity=Severity.NOTE)]
    schemas = {TextFileKind.STATE: STATE_FILE, TextFileKind.INFO: INFO_FILE}
    schema = schemas.get(kind, INDEX_FILE)
    if kind is TextFileKind.INFO and not head.data[: head.data.find(b"\n")].strip().isdigit():
        schema = OLD_INFO_FILE
    return LogFileLayout(
        kind.value, size, EMPTY_LEVEL, schema, context=context, findings=tuple(findings), has_records=False
    )


def _iter_lines(read_range: Callable[[int, int], bytes], size: int) -> Iterator[TextLine]:
    """Yield the lines of the first `size` bytes; a line that is too long for a path is split."""
    at, rest = 0, b""
    while at + len(rest) < size:
        start = at + len(rest)
        data = read_range(start, min(_CHUNK, size - start))
        if not data:
            break
        *complete, rest = (rest + data).split(b"\n")
        for text in complete:
            yield TextLine(at, len(text) + 1, text, True)
            at += len(text) + 1
        if len(rest) > MAX_LINE_SIZE:
            yield TextLine(at, len(rest), rest, False)
            at, rest = at + len(rest), b""
    if rest:
        yield TextLine(at, len(rest), rest, False)


class _LineFaults(msgspec.Struct):
    """Faults of one kind: the first few are reported one by one, the others are counted."""

    id: str
    count: int = 0
    findings: list[Finding] = msgspec.field(default_factory=list)
    last: TextLine | None = None

    def add_faulty_line(self, line: TextLine, text: str, **facts: Any) -> None:
        """Add one faulty line."""
        self.count, self.last = self.count + 1, line
        if len(self.findings) < MAX_FINDINGS_PER_KIND:
            self.findings.append(make_finding(self.id, line.offset, line.size, text, **facts))

    def iter_findings(self) -> Iterator[Finding]:
        """Yield the findings, and finally the number of faults that were not reported one by one."""
        yield from self.findings
        if self.count > len(self.findings) and self.last is not None:
            text = f"{self.count - len(self.findings):,} more lines like this"
            yield make_finding(self.id, self.last.offset, self.last.size, text, lines=self.count)


class _IndexLineReader(msgspec.Struct):
    """Reader of the lines of an index.

    `folders`: the first line of each folder and its number of lines. `stem`: the text of the last line before its
    number; most lines repeat it.
    """

    context: TextFileContext
    invalid: _LineFaults = msgspec.field(default_factory=partial(_LineFaults, "bad-header"))
    duplicates: _LineFaults = msgspec.field(default_factory=partial(_LineFaults, "duplicate-sequence"))
    regressions: _LineFaults = msgspec.field(default_factory=partial(_LineFaults, "sequence-regression"))
    folders: dict[bytes, tuple[TextLine, int]] = msgspec.field(default_factory=dict)
    stem: bytes = b"\n"
    folder: bytes = b""
    base: str = ""
    first_blank: TextLine | None = None
    lines_after_blank: int = 0
    first_with_cr: TextLine | None = None
    cr_count: int = 0
    torn_line: TextLine | None = None
    unfinished_line: TextLine | None = None
    joined_lines: _LineFaults = msgspec.field(default_factory=partial(_LineFaults, "bad-header"))

    def read_line(self, line: TextLine) -> None:
        """Add one line."""
        text = line.text
        if text.endswith(b"\r"):
            self.first_with_cr, self.cr_count = self.first_with_cr or line, self.cr_count + 1
            text = text[:-1]
        if not text:
            self.first_blank = self.first_blank or line
        elif not text.startswith(b"#"):
            self.lines_after_blank += self.first_blank is not None
            self._read_path_line(line, text)

    def _read_path_line(self, line: TextLine, text: bytes) -> None:
        """Add a line that is a path, or several joined paths."""
        names = [text] if self._is_previous_name_with_number(text) else split_joined_names(text)
        if len(names) > 1 and parse_log_name(names[-1]) is not None:
            message = f"{len(names)} names on one line: the server reads them as one, {to_printable(text)!r}"
            self.joined_lines.add_faulty_line(line, message, diagnosis="joined-lines")
        else:
            names = [text]
        for name in names:
            self._read_name(line, name)

    def _read_name(self, line: TextLine, text: bytes) -> None:
        """Add one name."""
        parsed = self._parse_index_name(text)
        if parsed is None:
            self.context.sound = False
            if not line.has_line_feed and _CONTROL.search(text) is None:
                self.torn_line = line
            else:
                self.invalid.add_faulty_line(line, f"not the path of a log file: {to_printable(text)!r}")
            return
        if self.folder in self.folders or len(self.folders) < MAX_FOLDERS:
            first, count = self.folders.get(self.folder, (line, 0))
            self.folders[self.folder] = first, count + 1
        self._add_to_listing(line, parsed)
        if not line.has_line_feed:
            self.unfinished_line = line

    def _is_previous_name_with_number(self, text: bytes) -> bool:
        """Return whether a line is the previous name with another number."""
        digits = text[len(self.stem) :]
        return text.startswith(self.stem) and digits.isdigit() and 6 <= len(digits) <= 18

    def _parse_index_name(self, text: bytes) -> LogName | None:
        """Return the file that a line names; None if it is not a log."""
        if self._is_previous_name_with_number(text):
            digits = text[len(self.stem) :]
            return LogName(f"{self.base}.{digits.decode()}", self.base, int(digits))
        parsed = parse_log_name(text) if _is_log_path(text) else None
        if parsed is not None:
            digits = text[text.rfind(b".") + 1 :]
            self.stem, self.folder, self.base = text[: -len(digits)], get_folder(text), parsed.base
        return parsed

    def _add_to_listing(self, line: TextLine, parsed: LogName) -> None:
        """Add a name to its listing."""
        listing = self.context.listings.get(parsed.base)
        if listing is None:
            if len(self.context.listings) >= MAX_FOLDERS:
                self.invalid.add_faulty_line(line, f"more than {MAX_FOLDERS:,} different base names")
                return
            listing = self.context.listings[parsed.base] = IndexListing(parsed.base)
        last_number = listing.numbers[-1] if listing.numbers else 0
        fault = listing.add_name_and_find_disorder(parsed)
        if fault == "again":
            self.duplicates.add_faulty_line(line, f"{to_printable(parsed.name)} is listed twice")
        elif fault == "back":
            self.regressions.add_faulty_line(
                line,
                f"{to_printable(parsed.name)} is listed after {to_printable(listing.get_listed_name(last_number))}",
            )

    def iter_findings(self) -> Iterator[Finding]:
        """Yield findings about the lines."""
        yield from _iter_folder_findings(self.folders)
        for faults in (self.invalid, self.joined_lines, self.duplicates, self.regressions):
            yield from faults.iter_findings()
        if self.torn_line is not None:
            yield make_finding("torn-tail", self.torn_line.offset, self.torn_line.size, "the last line is incomplete")
        if self.unfinished_line is not None:
            text = "the last line has no line feed: servers ignore it, and append the next name to it"
            place = self.unfinished_line.offset, self.unfinished_line.size
            yield make_finding("bad-header", *place, text, severity=Severity.WARNING, diagnosis="line-unfinished")
        if self.first_blank is not None and self.lines_after_blank:
            text = (
                f"an empty line: servers stop reading the list here and miss the {self.lines_after_blank:,} "
                f"lines after it"
            )
            yield make_finding("bad-header", self.first_blank.offset, self.first_blank.size, text)
        if self.first_with_cr is not None:
            text = f"{self.cr_count:,} lines end in CR LF: a server on Unix reads the CR as part of the name"
            yield make_finding(
                "bad-header", self.first_with_cr.offset, self.first_with_cr.size, text, severity=Severity.WARNING
            )


def _read_index_lines(lines: Iterator[TextLine], context: TextFileContext) -> Iterator[Finding]:
    """Read the names of an index and return findings about its lines."""
    reader = _IndexLineReader(context)
    for line in lines:
        reader.read_line(line)
    return reader.iter_findings()


def _iter_folder_findings(folders: dict[bytes, tuple[TextLine, int]]) -> Iterator[Finding]:
    """Yield findings about folders other than that of most lines. Opens no path: files are looked up by name alone."""
    by_folder = {folder: places for folder, places in folders.items() if folder not in (b"", b".")}
    if len(by_folder) < 2:
        return
    main_folder = max(by_folder, key=lambda folder: by_folder[folder][1])
    faults = _LineFaults("path-outside-set")
    for folder, (line, count) in by_folder.items():
        if folder != main_folder:
            text = f"{count:,} {'line names files' if count == 1 else 'lines name files'} in {to_printable(folder)!r}, "
            text += f"the others in {to_printable(main_folder)!r}; not opened, compared by name only"
            faults.add_faulty_line(line, text, folder=to_printable(folder), lines=count)
    yield from faults.iter_findings()


def _read_state_lines(lines: Iterator[TextLine], context: TextFileContext) -> Iterator[Finding]:
    """Read the GTIDs of a state file; the last GTID of a domain is the newest."""
    faults = _LineFaults("bad-header")
    for line in lines:
        matched = GTID_LINE.fullmatch(line.text.rstrip(b"\r"))
        if matched:
            context.last_numbers[f"{int(matched[1])}-{int(matched[2])}"] = int(matched[3])
        elif line.text.strip():
            context.sound = False
            faults.add_faulty_line(line, f"not a GTID (domain-server-number): {to_printable(line.text)!r}")
    yield from faults.iter_findings()


def _read_relay_log_info(lines: Iterator[TextLine], context: TextFileContext) -> Iterator[Finding]:
    """Read the name and offset of the relay log, after the number of lines if the file has it."""
    texts = [line.text.strip() for _, line in zip(range(3), lines, strict=False)]
    if texts and texts[0].isdigit():
        del texts[0]
    parsed = parse_log_name(texts[0]) if texts and _is_log_path(texts[0]) else None
    if parsed is not None and len(texts) > 1 and texts[1].isdigit() and len(texts[1]) < 20:
        context.position = parsed.name, int(texts[1])
        return
    context.sound = False
    if any(texts):
        yield make_finding("bad-header", 0, 0, "the lines do not name a relay log and an offset in it")


# --- MariaDB's GTID index (`NAME.NNNNNN.idx`) ---

GTID_INDEX_MAGIC = b"\xfe\xfe\x0c\x01"
MAGIC_NUMBER = int.from_bytes(GTID_INDEX_MAGIC, "little")
FIRST_PAGE_AT = 12
"""Size of the file header, which is part of the first page."""
MIN_PAGE_SIZE, MAX_PAGE_SIZE = 64, 1 << 24
LEAF_PAGE, CONTINUED_PAGE, LAST_PAGE, ROOT_PAGE = 1, 2, 4, 8

MAX_FILE = 64 * MIB
"""Maximum size of a file whose checksums are verified, in bytes."""
MAX_ANNOTATED = MIB
"""Maximum number of bytes that the annotated hexdump shows page by page (a 1 GiB log has an index of about 400 KiB)."""

_COUNT_SIZE = 4
_KEY_SIZE = 8
_GTID_SIZE = 16
_GTID_PARTS = (("domain_id", 0, 4), ("server_id", 4, 8), ("seq_no", 8, 16))
_FLAGS_SIZE = 4
_CRC_SIZE = 4


class GtidIndexPageRemainder(NamedTuple):
    """Rest of a node that continues on the next page: the number of GTIDs, and whether a page number follows."""

    gtids: int = 0
    child: bool = False


class GtidIndexContext(msgspec.Struct):
    """State of one GTID index.

    `remainders`: for each page offset, the rest of the node that continues there. `has_root`: the last page is a root,
    so the index is complete.
    """

    page_size: int = 0
    pages: int = 0
    has_root: bool = False
    remainders: dict[int, GtidIndexPageRemainder] = msgspec.field(default_factory=dict)


# -- one page ----------------------------------------------------------------------------------------------------------


class GtidIndexPageItem(NamedTuple):
    """One part of the content of a page; `key`: number of the key within the page, -1 if the part belongs to none."""

    kind: str
    start: int
    end: int
    key: int


def iter_gtid_index_page_items(
    data: bytes, start: int, end: int, is_leaf: bool, remainder: GtidIndexPageRemainder
) -> Iterator[GtidIndexPageItem | GtidIndexPageRemainder]:
    """Yield the parts of the page content `data[start:end]`, and last the remainder that continues on the next page."""
    at, key, gtids, has_child = start, -1, remainder.gtids, remainder.child
    while True:
        while gtids and end - at >= _GTID_SIZE:
            yield GtidIndexPageItem("gtid", at, at + _GTID_SIZE, key)
            at, gtids = at + _GTID_SIZE, gtids - 1
        if gtids:
            yield from _iter_unused(at, end)
            yield GtidIndexPageRemainder(gtids, not is_leaf)
            return
        if has_child and end - at < _COUNT_SIZE:
            yield from _iter_unused(at, end)
            yield GtidIndexPageRemainder(0, True)
            return
        if has_child:
            yield GtidIndexPageItem("child", at, at + _COUNT_SIZE, key)
            at, has_child = at + _COUNT_SIZE, False
        count = int.from_bytes(data[at : at + _COUNT_SIZE], "little") if end - at >= _COUNT_SIZE else 0
        if not count or end - at < _KEY_SIZE:
            if end - at >= _COUNT_SIZE and not count:
                yield GtidIndexPageItem("end", at, at + _COUNT_SIZE, -1)
                at += _COUNT_SIZE
            yield from _iter_unused(at, end)
            return
        key += 1
        yield GtidIndexPageItem("count", at, at + _COUNT_SIZE, key)
        yield GtidIndexPageItem("offset", at + _COUNT_SIZE, at + _KEY_SIZE, key)
        at, gtids, has_child = at + _KEY_SIZE, count - 1, not is_leaf


def _iter_unused(at: int, end: int) -> Iterator[GtidIndexPageItem]:
    """Yield the unused bytes at the end of a page."""
    if at < end:
        yield GtidIndexPageItem("unused", at, end, -1)


class GtidIndexPageContent(Construct):  # type: ignore[misc]
    """Construct of the keys of a page.

    `size`: expression for the size of the keys in bytes. `remainders`: by page content offset, the rest of a node.
    """

    def __init__(self, size: Any, remainders: Mapping[int, GtidIndexPageRemainder]) -> None:
        super().__init__()
        self.size, self.remainders = size, remainders

    def _parse(self, stream: Any, context: Any, path: str) -> bytes:
        return bytes(stream_read(stream, evaluate(self.size, context), path))

    def _build(self, obj: bytes, stream: Any, context: Any, path: str) -> Any:
        stream.write(obj)
        return obj

    def trace_rows(self, data: bytes, start: int, end: int, limits: Limits) -> Iterator[TracePart]:
        """Yield the keys with their parts, GTIDs that belong to a key of the previous page, and unused bytes."""
        is_leaf = bool(data[start - _FLAGS_SIZE] & LEAF_PAGE)
        last_key, number = -1, 0
        for item in iter_gtid_index_page_items(
            data, start, end, is_leaf, self.remainders.get(start, GtidIndexPageRemainder())
        ):
            if isinstance(item, GtidIndexPageRemainder):
                return
            if item.key > last_key:
                last_key, number = item.key, 0
                yield TracePart(f".key[{last_key}]", 1, item.start, None)
            parent = f".key[{last_key}]" if item.key >= 0 else ""
            yield from _trace_page_item(item, data, parent, 2 if parent else 1, number)
            number += item.kind == "gtid"


def _trace_page_item(
    page_item: GtidIndexPageItem, data: bytes, parent: str, depth: int, number: int
) -> Iterator[TracePart]:
    """Yield the trace of one part."""
    raw = data[page_item.start : page_item.end]
    if page_item.kind == "gtid":
        path = f"{parent}.gtid[{number}]"
        values = [int.from_bytes(raw[low:high], "little") for _, low, high in _GTID_PARTS]
        yield TracePart(path, depth, page_item.start, None, None, "-".join(map(str, values)))
        for (name, low, high), part in zip(_GTID_PARTS, values, strict=True):
            yield TracePart(f"{path}.{name}", depth + 1, page_item.start + low, page_item.start + high, part)
        return
    value = int.from_bytes(raw, "little")
    if page_item.kind == "count":
        yield TracePart(f"{parent}.count", depth, page_item.start, page_item.end, value, f"{value - 1:,} GTIDs")
    elif page_item.kind == "child":
        yield TracePart(f"{parent}.child", depth, page_item.start, page_item.end, value, "number of a page, from 1")
    elif page_item.kind == "offset":
        yield TracePart(f"{parent}.offset", depth, page_item.start, page_item.end, value, "in the log file")
    elif page_item.kind == "end":
        yield TracePart(".end", 1, page_item.start, page_item.end, value, "no more keys")
    else:
        yield TracePart(".unused", 1, page_item.start, page_item.end, raw)


# -- schema ------------------------------------------------------------------------------------------------------------


def _page_fields(
    size: Any, start: Any, before: int, remainders: Mapping[int, GtidIndexPageRemainder]
) -> list[Construct]:
    """Return the fields of a page; `before`: bytes of the page that precede them."""
    return [
        "flags" / FlagsEnum(Int8ul, leaf=LEAF_PAGE, continued=CONTINUED_PAGE, last=LAST_PAGE, root=ROOT_PAGE),
        "pad" / Bytes(3),
        "content" / GtidIndexPageContent(size - (before + _FLAGS_SIZE + _CRC_SIZE), remainders),
        "covered_end" / Tell,
        "crc32" / Int32ul,
        "checksum" / CrcCheck(CRC32, stored=this.crc32, start=start, end=this.covered_end),
    ]


def create_gtid_index_schema(remainders: Mapping[int, GtidIndexPageRemainder] = MappingProxyType({})) -> Construct:
    """Return the schema of the whole file: header and first page, the other pages, and an incomplete rest."""
    page = Struct("start" / Tell, *_page_fields(this._.page_size, this.start, 0, remainders))
    return Struct(
        "magic" / Magic(Int32ul, GTID_INDEX=MAGIC_NUMBER),
        "major" / Int8ul,
        "minor" / Int8ul,
        "reserved" / Int16ul,
        "page_size" / Int32ul,
        Check(this.page_size >= MIN_PAGE_SIZE),
        Check(this.page_size <= MAX_PAGE_SIZE),
        *_page_fields(this.page_size, 0, FIRST_PAGE_AT, remainders),
        "page" / GreedyRange(page),
    )


GTID_INDEX_FILE = create_gtid_index_schema()
_EMPTY = Struct("rest" / GreedyBytes)


# -- detection and layout ----------------------------------------------------------------------------------------------


def is_gtid_index(head: FileHead) -> bool:
    """Return whether the magic or the name is that of a GTID index."""
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
    """Return the layout: the whole file is its header, and no finding is worse than a warning."""
    context = GtidIndexContext()
    size = len(head.data) if head.size is None else head.size
    if not size:
        text = "empty: the server has not written it yet, and does not need it"
        note = make_finding("unclean-close", 0, 0, text, severity=Severity.NOTE)
        return LogFileLayout("GTID index, empty", 0, EMPTY_LEVEL, context=context, findings=(note,), has_records=False)
    findings = list(_check_gtid_index_header(head.data, context))
    if findings:
        return LogFileLayout(
            "GTID index, not readable", size, EMPTY_LEVEL, _EMPTY, None, context, tuple(findings), has_records=False
        )
    findings = list(_check_gtid_index_pages(head, size, context))
    major, minor = head.data[4], head.data[5]
    schema = create_gtid_index_schema(context.remainders)
    if size > MAX_ANNOTATED:
        schema = Struct("shown" / Bytes(MAX_ANNOTATED), "more" / GreedyBytes)
    return LogFileLayout(
        f"GTID index v{major}.{minor}", size, EMPTY_LEVEL, schema, None, context, tuple(findings), has_records=False
    )


def _check_gtid_index_header(data: bytes, context: GtidIndexContext) -> Iterator[Finding]:
    """Yield findings about the file header."""
    if not data.startswith(GTID_INDEX_MAGIC):
        shown = data[:4].hex(" ")
        text = f"starts with {shown}, expected {GTID_INDEX_MAGIC.hex(' ')}: the server rebuilds the index"
        yield make_finding("bad-magic", 0, min(4, len(data)), text, severity=Severity.WARNING)
        return
    context.page_size = int.from_bytes(data[8:12], "little") if len(data) >= FIRST_PAGE_AT else 0
    if not MIN_PAGE_SIZE <= context.page_size <= MAX_PAGE_SIZE:
        text = f"{context.page_size:,} is not a valid page size: the server rebuilds the index"
        yield make_finding("bad-header", 8, 4, text, severity=Severity.WARNING)
    elif data[4] != 1:
        text = f"version {data[4]}.{data[5]}; 1.0 is known"
        yield make_finding("unsupported-version", 4, 2, text, severity=Severity.WARNING)


def _check_gtid_index_pages(head: FileHead, size: int, context: GtidIndexContext) -> Iterator[Finding]:
    """Yield findings about page checksums and the end of the file, and record which node continues on each page."""
    flags, remainder = 0, GtidIndexPageRemainder()
    page_count = min(size, MAX_FILE) // context.page_size
    wrong_pages: list[Finding] = []
    for number, page in enumerate(_iter_gtid_index_pages(head, context.page_size, page_count)):
        start = number * context.page_size
        if number and not any(page):
            context.pages = number
            text = f"{size - start:,} preallocated zero bytes"
            yield make_finding("preallocated-tail", start, size - start, text, severity=Severity.NOTE)
            break
        stored, computed = int.from_bytes(page[-_CRC_SIZE:], "little"), zlib.crc32(page[:-_CRC_SIZE])
        if stored != computed and len(wrong_pages) < 20:
            wrong_pages.append(_make_page_checksum_finding(number, start, context.page_size, stored, computed))
        flags, remainder = _read_page_flags_and_remainder(
            page, start, FIRST_PAGE_AT if not number else 0, remainder, context
        )
        context.pages = number + 1
    yield from wrong_pages
    context.has_root = bool(flags & ROOT_PAGE)
    rest = size % context.page_size
    if rest and size <= MAX_FILE:
        text = f"the last page is cut off: {rest:,} of {context.page_size:,} bytes; the server rebuilds the index"
        yield make_finding("torn-tail", size - rest, rest, text)
    elif not context.has_root:
        text = "no root page: the index was not completed; the server rebuilds it"
        yield make_finding("unclean-close", size, 0, text, severity=Severity.NOTE)


def _iter_gtid_index_pages(head: FileHead, page_size: int, page_count: int) -> Iterator[bytes]:
    """Yield the complete pages."""
    step = max(1, MIB // page_size)
    for first in range(0, page_count, step):
        count = min(step, page_count - first)
        offset, size = first * page_size, count * page_size
        data = head.data[offset : offset + size] if head.peek is None else head.peek(offset, size)
        for at in range(0, len(data) - page_size + 1, page_size):
            yield data[at : at + page_size]


def _make_page_checksum_finding(number: int, start: int, size: int, stored: int, computed: int) -> Finding:
    """Return the finding about a wrong page checksum."""
    text = f"page {number + 1}: stored {stored:08x}, computed {computed:08x}; the server rebuilds the index"
    return make_finding(
        "checksum-mismatch", start, size, text, severity=Severity.WARNING, stored=f"{stored:08x}",
        computed=f"{computed:08x}",
    )  # fmt: skip


def _read_page_flags_and_remainder(
    page: bytes, start: int, at: int, remainder: GtidIndexPageRemainder, context: GtidIndexContext
) -> tuple[int, GtidIndexPageRemainder]:
    """Read a page; return its flags and the remainder that continues on the next page."""
    flags = page[at]
    content = at + _FLAGS_SIZE
    is_leaf = bool(flags & LEAF_PAGE)
    own_remainder = remainder if flags & CONTINUED_PAGE else GtidIndexPageRemainder(0, not is_leaf)
    if own_remainder != GtidIndexPageRemainder():
        context.remainders[start + content] = own_remainder
    next_remainder = GtidIndexPageRemainder()
    for item in iter_gtid_index_page_items(page, content, len(page) - _CRC_SIZE, is_leaf, own_remainder):
        if isinstance(item, GtidIndexPageRemainder):
            next_remainder = item
    return flags, next_remainder
