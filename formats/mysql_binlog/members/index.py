"""Text files next to a log: the index, MariaDB's state, relay-log.info.

They have no records: the whole file is its header, and its findings follow from its lines.
Source: docs/spec/mysql_binlog.md#file-kinds and #transactions-and-truncation.
"""

from __future__ import annotations

import enum
import re
from array import array
from collections.abc import Callable, Iterator
from functools import partial
from itertools import islice
from typing import Any, NamedTuple

import msgspec
from construct import Const, Struct

from binlogtool.findings import Finding, Severity, make_finding
from binlogtool.formats.binlog_events.codes import MAGIC
from binlogtool.formats.detecting import FileHead, FormatMatch
from binlogtool.formats.layouts import FrameLevel, LogFileLayout
from binlogtool.formats.mysql_binlog.members.names import (
    INDEX_NAME,
    INFO_NAME,
    LEFTOVER_NAME,
    STATE_NAME,
    LogName,
    get_folder,
    parse_log_name,
    to_printable,
)
from binlogtool.formats.mysql_binlog.members.server_list import split_joined_names
from binlogtool.formats.mysql_binlog.members.texts import (
    GTID_LINE,
    INDEX_FILE,
    INFO_FILE,
    MAX_LINE_SIZE,
    OLD_INFO_FILE,
    STATE_FILE,
)
from binlogtool.limits import MIB

MAX_INDEX_BYTES = 64 * MIB
"""Bytes of an index that are read: more than a million lines."""

MAX_LINES = 1 << 21
"""Lines that are read."""

MAX_OTHER_BYTES = 4 * MIB
"""Bytes of the other text files that are read."""

MAX_FINDINGS_PER_KIND = 20
"""Lines of one kind of wrong that are told one by one."""

MAX_FOLDERS = 1000
"""Different folders, or base names, of one index that are looked at."""

_CHUNK = MIB
_CONTROL = re.compile(rb"[\x00-\x1f\x7f]")


class TextKind(enum.Enum):
    """Kind of a text file, with its name in reports."""

    INDEX = "binlog index"
    LEFTOVER = "binlog index, left over"
    STATE = "GTID state"
    INFO = "relay log info"


class TextLine(NamedTuple):
    """One line: offset and size with the line feed, its bytes without it."""

    offset: int
    size: int
    text: bytes
    has_line_feed: bool


class IndexListing(msgspec.Struct):
    """Files of one base name that an index lists, by number; `unusual_names`: names that are not written as
    servers do.
    """

    base: str
    numbers: array[int] = msgspec.field(default_factory=partial(array, "q"))
    unusual_names: dict[int, str] = msgspec.field(default_factory=dict)
    seen: set[int] | None = None

    def add(self, name: LogName) -> str | None:
        """Add the next name; return "again" if it is listed twice, "back" if it is listed after a later one."""
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

    def name_of(self, number: int) -> str:
        """Return the name that is listed for a number."""
        return self.unusual_names.get(number) or LogName("", self.base, number).make_sibling(number)


class TextContext(msgspec.Struct):
    """Content of a text file.

    `listings`: of an index, by base name. `last_numbers`: of a state, the last number of each "domain-server".
    `position`: of relay-log.info, the relay log and the offset in it. `sound`: every line was valid.
    """

    kind: TextKind
    name: str = ""
    listings: dict[str, IndexListing] = msgspec.field(default_factory=dict)
    last_numbers: dict[str, int] = msgspec.field(default_factory=dict)
    position: tuple[str, int] | None = None
    sound: bool = True


# -- schemas -----------------------------------------------------------------------------------------------------------


EMPTY_LEVEL = FrameLevel(Struct("rest" / Const(MAGIC)), (), None, len(MAGIC), len(MAGIC), name="rest")
"""The chain of a file that has none."""


# -- detection ---------------------------------------------------------------------------------------------------------


def get_text_kind(name: str) -> TextKind | None:
    """Return the kind of text file by name; None if it is not one."""
    kinds = (
        (LEFTOVER_NAME, TextKind.LEFTOVER),
        (INDEX_NAME, TextKind.INDEX),
        (STATE_NAME, TextKind.STATE),
        (INFO_NAME, TextKind.INFO),
    )
    return next((kind for pattern, kind in kinds if pattern.fullmatch(name)), None)


def detect_text_file(head: FileHead) -> FormatMatch:
    """Detect a text file by name and content: every complete line must be valid."""
    kind = get_text_kind(head.name.rpartition("/")[2])
    if kind is None:
        return FormatMatch(0, "no name of a text file beside a log")
    lines = head.data.split(b"\n")
    lines = [line.rstrip(b"\r") for line in (lines if head.is_whole else lines[:-1])]
    lines = [line for line in lines if line]
    if not lines:
        return (
            FormatMatch(20, f"the name of a {kind.value}, and empty") if not head.data else FormatMatch(0, "no lines")
        )
    if kind is TextKind.INFO:
        matches = sum(parse_log_name(line) is not None for line in lines[:2])
        return (
            FormatMatch(80, "the lines of relay-log.info") if matches else FormatMatch(0, "no lines of relay-log.info")
        )
    valid_count = sum(
        GTID_LINE.fullmatch(line) is not None if kind is TextKind.STATE else _is_log_path(line) for line in lines
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


def create_text_layout(head: FileHead, kind: TextKind) -> LogFileLayout:
    """Return the layout: the whole file is its header, with findings about its lines."""
    context = TextContext(kind, head.name)
    ceiling = MAX_INDEX_BYTES if kind in (TextKind.INDEX, TextKind.LEFTOVER) else MAX_OTHER_BYTES
    read_range = head.peek or _make_reader(head.data)
    size = len(head.data) if head.size is None or head.peek is None else head.size
    lines = _iter_lines(read_range, min(size, ceiling))
    readers = {TextKind.STATE: _read_state, TextKind.INFO: _read_info}
    findings = list(readers.get(kind, _read_index)(islice(lines, MAX_LINES), context))
    next_line = None if kind is TextKind.INFO else next(lines, None)
    if next_line is not None or size > ceiling or (head.size is None and not head.is_whole):
        context.sound = False
        read_end = min(size, ceiling) if next_line is None else next_line.offset
        text = f"only the first {read_end:,} bytes of the {kind.value} were looked at"
        findings.append(make_finding("count-out-of-bounds", read_end, 0, text))
    if kind is TextKind.LEFTOVER:
        text = "left by a rotation or a purge that was interrupted; the server looks at it at its start"
        findings = [make_finding("extra-member", 0, size, text, severity=Severity.NOTE)]
    schemas = {TextKind.STATE: STATE_FILE, TextKind.INFO: INFO_FILE}
    schema = schemas.get(kind, INDEX_FILE)
    if kind is TextKind.INFO and not head.data[: head.data.find(b"\n")].strip().isdigit():
        schema = OLD_INFO_FILE
    return LogFileLayout(
        kind.value, size, EMPTY_LEVEL, schema, context=context, findings=tuple(findings), has_records=False
    )


def _make_reader(data: bytes) -> Callable[[int, int], bytes]:
    """Return a function that reads from bytes."""

    def read(offset: int, size: int) -> bytes:
        return data[offset : offset + size]

    return read


def _iter_lines(read_range: Callable[[int, int], bytes], size: int) -> Iterator[TextLine]:
    """Yield the lines of the first `size` bytes; one that is too long for a path is split."""
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
    """Faults of one kind: the first few one by one, the others counted."""

    id: str
    count: int = 0
    findings: list[Finding] = msgspec.field(default_factory=list)
    last: TextLine | None = None

    def add(self, line: TextLine, text: str, **facts: Any) -> None:
        """Add one faulty line."""
        self.count, self.last = self.count + 1, line
        if len(self.findings) < MAX_FINDINGS_PER_KIND:
            self.findings.append(make_finding(self.id, line.offset, line.size, text, **facts))

    def iter_findings(self) -> Iterator[Finding]:
        """Yield the findings, and how many more there are."""
        yield from self.findings
        if self.count > len(self.findings) and self.last is not None:
            text = f"{self.count - len(self.findings):,} more lines like this"
            yield make_finding(self.id, self.last.offset, self.last.size, text, lines=self.count)


class _IndexLineReader(msgspec.Struct):
    """Reader of the lines of an index.

    `folders`: the first line of each folder and the number of its lines. `stem`: of the last line, what
    precedes its number; most lines repeat it.
    """

    context: TextContext
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

    def add_line(self, line: TextLine) -> None:
        """Add one line."""
        text = line.text
        if text.endswith(b"\r"):
            self.first_with_cr, self.cr_count = self.first_with_cr or line, self.cr_count + 1
            text = text[:-1]
        if not text:
            self.first_blank = self.first_blank or line
        elif not text.startswith(b"#"):
            self.lines_after_blank += self.first_blank is not None
            self._add_path(line, text)

    def _add_path(self, line: TextLine, text: bytes) -> None:
        """Add a line that is a path, or several joined ones."""
        names = [text] if self._is_next_number(text) else split_joined_names(text)
        if len(names) > 1 and parse_log_name(names[-1]) is not None:
            message = f"{len(names)} names on one line: the server takes them for one, {to_printable(text)!r}"
            self.joined_lines.add(line, message, diagnosis="joined-lines")
        else:
            names = [text]
        for name in names:
            self._add_name(line, name)

    def _add_name(self, line: TextLine, text: bytes) -> None:
        """Add one name."""
        parsed = self._parse_name(text)
        if parsed is None:
            self.context.sound = False
            if not line.has_line_feed and _CONTROL.search(text) is None:
                self.torn_line = line
            else:
                self.invalid.add(line, f"no path of a log file: {to_printable(text)!r}")
            return
        if self.folder in self.folders or len(self.folders) < MAX_FOLDERS:
            first, count = self.folders.get(self.folder, (line, 0))
            self.folders[self.folder] = first, count + 1
        self._add_to_listing(line, parsed)
        if not line.has_line_feed:
            self.unfinished_line = line

    def _is_next_number(self, text: bytes) -> bool:
        """Return whether it is the previous name with another number."""
        digits = text[len(self.stem) :]
        return text.startswith(self.stem) and digits.isdigit() and 6 <= len(digits) <= 18

    def _parse_name(self, text: bytes) -> LogName | None:
        """Return the file that a line names; None if it is not a log."""
        if self._is_next_number(text):
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
                self.invalid.add(line, f"more than {MAX_FOLDERS:,} different base names")
                return
            listing = self.context.listings[parsed.base] = IndexListing(parsed.base)
        last_number = listing.numbers[-1] if listing.numbers else 0
        fault = listing.add(parsed)
        if fault == "again":
            self.duplicates.add(line, f"{to_printable(parsed.name)} is listed twice")
        elif fault == "back":
            self.regressions.add(
                line, f"{to_printable(parsed.name)} is listed behind {to_printable(listing.name_of(last_number))}"
            )

    def iter_findings(self) -> Iterator[Finding]:
        """Yield findings about the lines."""
        yield from _check_folders(self.folders)
        for faults in (self.invalid, self.joined_lines, self.duplicates, self.regressions):
            yield from faults.iter_findings()
        if self.torn_line is not None:
            yield make_finding("torn-tail", self.torn_line.offset, self.torn_line.size, "the last line is not complete")
        if self.unfinished_line is not None:
            text = "the last line has no line feed: servers do not read it, and append the next name to it"
            place = self.unfinished_line.offset, self.unfinished_line.size
            yield make_finding("bad-header", *place, text, severity=Severity.WARNING, diagnosis="line-unfinished")
        if self.first_blank is not None and self.lines_after_blank:
            text = (
                f"an empty line: servers read the list up to here and miss the {self.lines_after_blank:,} "
                f"lines behind it"
            )
            yield make_finding("bad-header", self.first_blank.offset, self.first_blank.size, text)
        if self.first_with_cr is not None:
            text = f"{self.cr_count:,} lines end in CR LF: a server on Unix takes the CR for a part of the name"
            yield make_finding(
                "bad-header", self.first_with_cr.offset, self.first_with_cr.size, text, severity=Severity.WARNING
            )


def _read_index(lines: Iterator[TextLine], context: TextContext) -> Iterator[Finding]:
    """Read the names of an index and return findings about its lines."""
    reader = _IndexLineReader(context)
    for line in lines:
        reader.add_line(line)
    return reader.iter_findings()


def _check_folders(folders: dict[bytes, tuple[TextLine, int]]) -> Iterator[Finding]:
    """Yield findings about folders other than that of most lines; no path is opened, files are found by name
    alone.
    """
    by_folder = {folder: places for folder, places in folders.items() if folder not in (b"", b".")}
    if len(by_folder) < 2:
        return
    main_folder = max(by_folder, key=_make_line_count(by_folder))
    faults = _LineFaults("path-outside-set")
    for folder, (line, count) in by_folder.items():
        if folder != main_folder:
            text = f"{count:,} {'line names files' if count == 1 else 'lines name files'} in {to_printable(folder)!r}, "
            text += f"the others in {to_printable(main_folder)!r}; not opened, compared by their names only"
            faults.add(line, text, folder=to_printable(folder), lines=count)
    yield from faults.iter_findings()


def _make_line_count(folders: dict[bytes, tuple[TextLine, int]]) -> Callable[[bytes], int]:
    """Return a function that returns the number of lines of a folder."""

    def count(folder: bytes) -> int:
        return folders[folder][1]

    return count


def _read_state(lines: Iterator[TextLine], context: TextContext) -> Iterator[Finding]:
    """Read the GTIDs of a state file; in a domain the last one is the newest."""
    faults = _LineFaults("bad-header")
    for line in lines:
        matched = GTID_LINE.fullmatch(line.text.rstrip(b"\r"))
        if matched:
            context.last_numbers[f"{int(matched[1])}-{int(matched[2])}"] = int(matched[3])
        elif line.text.strip():
            context.sound = False
            faults.add(line, f"no GTID (domain-server-number): {to_printable(line.text)!r}")
    yield from faults.iter_findings()


def _read_info(lines: Iterator[TextLine], context: TextContext) -> Iterator[Finding]:
    """Read the relay log's name and offset, after the number of lines if that is there."""
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
