"""Text files next to a log: the index, MariaDB's state, relay-log.info.

They have no records: the whole file is its header, and its findings follow from its lines.
Source: docs/spec/mysql-mariadb-binlog.md#1-file-kinds and #8-transactions-durability-truncation.
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

from binlogtool.findings import Finding, Severity, finding
from binlogtool.formats.binlog_events.codes import MAGIC
from binlogtool.formats.detecting import Head, Match
from binlogtool.formats.layouts import FrameLevel, Layout
from binlogtool.formats.mysql_binlog.members.names import (
    INDEX,
    INFO,
    LEFTOVER,
    STATE,
    LogName,
    folder_of,
    log_name,
    printable,
)
from binlogtool.formats.mysql_binlog.members.server_list import split_joined
from binlogtool.formats.mysql_binlog.members.texts import (
    GTID,
    INDEX_FILE,
    INFO_FILE,
    LONGEST_LINE,
    OLD_INFO_FILE,
    STATE_FILE,
)
from binlogtool.limits import MIB

MAX_TEXT = 64 * MIB
"""Bytes of an index that are read: more than a million lines."""

MAX_LINES = 1 << 21
"""Lines that are read."""

MAX_SMALL = 4 * MIB
"""Bytes of the other text files that are read."""

LISTED = 20
"""Lines of one kind of wrong that are told one by one."""

MOST_FOLDERS = 1000
"""Different folders, or base names, of one index that are looked at."""

_CHUNK = MIB
_CONTROL = re.compile(rb"[\x00-\x1f\x7f]")


class TextKind(enum.Enum):
    """Kind of a text file, with its name in reports."""

    INDEX = "binlog index"
    LEFTOVER = "binlog index, left over"
    STATE = "GTID state"
    INFO = "relay log info"


class Line(NamedTuple):
    """One line: offset and size with the line feed, its bytes without it."""

    offset: int
    size: int
    text: bytes
    ended: bool


class Listing(msgspec.Struct):
    """Files of one base name that an index lists, by number; `unusual_names`: names that are not written as
    servers do.
    """

    base: str
    numbers: array[int] = msgspec.field(default_factory=partial(array, "q"))
    odd: dict[int, str] = msgspec.field(default_factory=dict)
    known: set[int] | None = None

    def add(self, name: LogName) -> str | None:
        """Add the next name; return "again" if it is listed twice, "back" if it is listed after a later one."""
        number, top = name.number, self.numbers[-1] if self.numbers else -1
        if number <= top or self.known is not None:
            self.known = set(self.numbers) if self.known is None else self.known
            if number in self.known:
                return "again"
            self.known.add(number)
        self.numbers.append(number)
        if name.name != name.sibling(number):
            self.odd[number] = name.name
        return "back" if number < top else None

    def ordered(self) -> array[int]:
        """Return the numbers in order."""
        return self.numbers if self.known is None else array("q", sorted(self.numbers))

    def name(self, number: int) -> str:
        """Return the name that is listed for a number."""
        return self.odd.get(number) or LogName("", self.base, number).sibling(number)


class TextContext(msgspec.Struct):
    """Content of a text file.

    `listings`: of an index, by base name. `last_numbers`: of a state, the last number of each "domain-server".
    `position`: of relay-log.info, the relay log and the offset in it. `sound`: every line was valid.
    """

    kind: TextKind
    name: str = ""
    listings: dict[str, Listing] = msgspec.field(default_factory=dict)
    last: dict[str, int] = msgspec.field(default_factory=dict)
    position: tuple[str, int] | None = None
    sound: bool = True


# -- schemas -----------------------------------------------------------------------------------------------------------


NOTHING = FrameLevel(Struct("rest" / Const(MAGIC)), (), None, len(MAGIC), len(MAGIC), name="rest")
"""The chain of a file that has none."""


# -- detection ---------------------------------------------------------------------------------------------------------


def text_kind(name: str) -> TextKind | None:
    """Return the kind of text file by name; None if it is not one."""
    kinds = ((LEFTOVER, TextKind.LEFTOVER), (INDEX, TextKind.INDEX), (STATE, TextKind.STATE), (INFO, TextKind.INFO))
    return next((kind for pattern, kind in kinds if pattern.fullmatch(name)), None)


def detect_text(head: Head) -> Match:
    """Detect a text file by name and content: every complete line must be valid."""
    kind = text_kind(head.name.rpartition("/")[2])
    if kind is None:
        return Match(0, "no name of a text file beside a log")
    lines = head.data.split(b"\n")
    lines = [line.rstrip(b"\r") for line in (lines if head.whole else lines[:-1])]
    lines = [line for line in lines if line]
    if not lines:
        return Match(20, f"the name of a {kind.value}, and empty") if not head.data else Match(0, "no lines")
    if kind is TextKind.INFO:
        fits = sum(log_name(line) is not None for line in lines[:2])
        return Match(80, "the lines of relay-log.info") if fits else Match(0, "no lines of relay-log.info")
    good = sum(GTID.fullmatch(line) is not None if kind is TextKind.STATE else _is_path(line) for line in lines)
    if good == len(lines):
        return Match(80, f"the lines of a {kind.value}")
    return Match(40, f"some lines of a {kind.value}") if good else Match(0, f"no line of a {kind.value}")


def _is_path(line: bytes) -> bool:
    """Return whether a line is the path of a log file."""
    return len(line) <= LONGEST_LINE and _CONTROL.search(line) is None and log_name(line) is not None


# -- layout ------------------------------------------------------------------------------------------------------------


def text_layout(head: Head, kind: TextKind) -> Layout:
    """Return the layout: the whole file is its header, with findings about its lines."""
    context = TextContext(kind, head.name)
    ceiling = MAX_TEXT if kind in (TextKind.INDEX, TextKind.LEFTOVER) else MAX_SMALL
    read = head.peek or _from(head.data)
    size = len(head.data) if head.size is None or head.peek is None else head.size
    lines = _lines(read, min(size, ceiling))
    readers = {TextKind.STATE: _read_state, TextKind.INFO: _read_info}
    found = list(readers.get(kind, _read_index)(islice(lines, MAX_LINES), context))
    behind = None if kind is TextKind.INFO else next(lines, None)
    if behind is not None or size > ceiling or (head.size is None and not head.whole):
        context.sound = False
        reached = min(size, ceiling) if behind is None else behind.offset
        text = f"only the first {reached:,} bytes of the {kind.value} were looked at"
        found.append(finding("count-out-of-bounds", reached, 0, text))
    if kind is TextKind.LEFTOVER:
        text = "left by a rotation or a purge that was interrupted; the server looks at it at its start"
        found = [finding("extra-member", 0, size, text, severity=Severity.NOTE)]
    schemas = {TextKind.STATE: STATE_FILE, TextKind.INFO: INFO_FILE}
    schema = schemas.get(kind, INDEX_FILE)
    if kind is TextKind.INFO and not head.data[: head.data.find(b"\n")].strip().isdigit():
        schema = OLD_INFO_FILE
    return Layout(kind.value, size, NOTHING, schema, context=context, findings=tuple(found), records=False)


def _from(data: bytes) -> Callable[[int, int], bytes]:
    """Return a function that reads from bytes."""

    def read(offset: int, size: int) -> bytes:
        return data[offset : offset + size]

    return read


def _lines(read: Callable[[int, int], bytes], size: int) -> Iterator[Line]:
    """Yield the lines of the first `size` bytes; one that is too long for a path is split."""
    at, rest = 0, b""
    while at + len(rest) < size:
        start = at + len(rest)
        data = read(start, min(_CHUNK, size - start))
        if not data:
            break
        *whole, rest = (rest + data).split(b"\n")
        for text in whole:
            yield Line(at, len(text) + 1, text, True)
            at += len(text) + 1
        if len(rest) > LONGEST_LINE:
            yield Line(at, len(rest), rest, False)
            at, rest = at + len(rest), b""
    if rest:
        yield Line(at, len(rest), rest, False)


class _Faults(msgspec.Struct):
    """Faults of one kind: the first few one by one, the others counted."""

    id: str
    count: int = 0
    kept: list[Finding] = msgspec.field(default_factory=list)
    last: Line | None = None

    def add(self, line: Line, text: str, **facts: Any) -> None:
        """Add one faulty line."""
        self.count, self.last = self.count + 1, line
        if len(self.kept) < LISTED:
            self.kept.append(finding(self.id, line.offset, line.size, text, **facts))

    def all(self) -> Iterator[Finding]:
        """Yield the findings, and how many more there are."""
        yield from self.kept
        if self.count > len(self.kept) and self.last is not None:
            text = f"{self.count - len(self.kept):,} more lines like this"
            yield finding(self.id, self.last.offset, self.last.size, text, lines=self.count)


class _IndexReader(msgspec.Struct):
    """Reader of the lines of an index.

    `folders`: the first line of each folder and the number of its lines. `stem`: of the last line, what
    precedes its number; most lines repeat it.
    """

    context: TextContext
    bad: _Faults = msgspec.field(default_factory=partial(_Faults, "bad-header"))
    double: _Faults = msgspec.field(default_factory=partial(_Faults, "duplicate-sequence"))
    back: _Faults = msgspec.field(default_factory=partial(_Faults, "sequence-regression"))
    folders: dict[bytes, tuple[Line, int]] = msgspec.field(default_factory=dict)
    stem: bytes = b"\n"
    folder: bytes = b""
    base: str = ""
    blank: Line | None = None
    behind: int = 0
    returned: Line | None = None
    returns: int = 0
    torn: Line | None = None
    unfinished: Line | None = None
    joined: _Faults = msgspec.field(default_factory=partial(_Faults, "bad-header"))

    def take(self, line: Line) -> None:
        """Add one line."""
        text = line.text
        if text.endswith(b"\r"):
            self.returned, self.returns = self.returned or line, self.returns + 1
            text = text[:-1]
        if not text:
            self.blank = self.blank or line
        elif not text.startswith(b"#"):
            self.behind += self.blank is not None
            self._path(line, text)

    def _path(self, line: Line, text: bytes) -> None:
        """Add a line that is a path, or several joined ones."""
        names = [text] if self._repeats(text) else split_joined(text)
        if len(names) > 1 and log_name(names[-1]) is not None:
            said = f"{len(names)} names on one line: the server takes them for one, {printable(text)!r}"
            self.joined.add(line, said, diagnosis="joined-lines")
        else:
            names = [text]
        for name in names:
            self._take_name(line, name)

    def _take_name(self, line: Line, text: bytes) -> None:
        """Add one name."""
        known = self._name(text)
        if known is None:
            self.context.sound = False
            if not line.ended and _CONTROL.search(text) is None:
                self.torn = line
            else:
                self.bad.add(line, f"no path of a log file: {printable(text)!r}")
            return
        if self.folder in self.folders or len(self.folders) < MOST_FOLDERS:
            first, count = self.folders.get(self.folder, (line, 0))
            self.folders[self.folder] = first, count + 1
        self._listed(line, known)
        if not line.ended:
            self.unfinished = line

    def _repeats(self, text: bytes) -> bool:
        """Return whether it is the previous name with another number."""
        digits = text[len(self.stem) :]
        return text.startswith(self.stem) and digits.isdigit() and 6 <= len(digits) <= 18

    def _name(self, text: bytes) -> LogName | None:
        """Return the file that a line names; None if it is not a log."""
        if self._repeats(text):
            digits = text[len(self.stem) :]
            return LogName(f"{self.base}.{digits.decode()}", self.base, int(digits))
        known = log_name(text) if _is_path(text) else None
        if known is not None:
            digits = text[text.rfind(b".") + 1 :]
            self.stem, self.folder, self.base = text[: -len(digits)], folder_of(text), known.base
        return known

    def _listed(self, line: Line, known: LogName) -> None:
        """Add a name to its listing."""
        listing = self.context.listings.get(known.base)
        if listing is None:
            if len(self.context.listings) >= MOST_FOLDERS:
                self.bad.add(line, f"more than {MOST_FOLDERS:,} different base names")
                return
            listing = self.context.listings[known.base] = Listing(known.base)
        before = listing.numbers[-1] if listing.numbers else 0
        wrong = listing.add(known)
        if wrong == "again":
            self.double.add(line, f"{printable(known.name)} is listed twice")
        elif wrong == "back":
            self.back.add(line, f"{printable(known.name)} is listed behind {printable(listing.name(before))}")

    def findings(self) -> Iterator[Finding]:
        """Yield findings about the lines."""
        yield from _outside(self.folders)
        for faults in (self.bad, self.joined, self.double, self.back):
            yield from faults.all()
        if self.torn is not None:
            yield finding("torn-tail", self.torn.offset, self.torn.size, "the last line is not complete")
        if self.unfinished is not None:
            text = "the last line has no line feed: servers do not read it, and append the next name to it"
            place = self.unfinished.offset, self.unfinished.size
            yield finding("bad-header", *place, text, severity=Severity.WARNING, diagnosis="line-unfinished")
        if self.blank is not None and self.behind:
            text = f"an empty line: servers read the list up to here and miss the {self.behind:,} lines behind it"
            yield finding("bad-header", self.blank.offset, self.blank.size, text)
        if self.returned is not None:
            text = f"{self.returns:,} lines end in CR LF: a server on Unix takes the CR for a part of the name"
            yield finding("bad-header", self.returned.offset, self.returned.size, text, severity=Severity.WARNING)


def _read_index(lines: Iterator[Line], context: TextContext) -> Iterator[Finding]:
    """Read the names of an index and return findings about its lines."""
    reader = _IndexReader(context)
    for line in lines:
        reader.take(line)
    return reader.findings()


def _outside(folders: dict[bytes, tuple[Line, int]]) -> Iterator[Finding]:
    """Yield findings about folders other than that of most lines; no path is opened, files are found by name
    alone.
    """
    named = {folder: places for folder, places in folders.items() if folder not in (b"", b".")}
    if len(named) < 2:
        return
    own = max(named, key=_lines_in(named))
    faults = _Faults("path-outside-set")
    for folder, (line, count) in named.items():
        if folder != own:
            text = f"{count:,} {'line names files' if count == 1 else 'lines name files'} in {printable(folder)!r}, "
            text += f"the others in {printable(own)!r}; not opened, compared by their names only"
            faults.add(line, text, folder=printable(folder), lines=count)
    yield from faults.all()


def _lines_in(folders: dict[bytes, tuple[Line, int]]) -> Callable[[bytes], int]:
    """Return a function that returns the number of lines of a folder."""

    def count(folder: bytes) -> int:
        return folders[folder][1]

    return count


def _read_state(lines: Iterator[Line], context: TextContext) -> Iterator[Finding]:
    """Read the GTIDs of a state file; in a domain the last one is the newest."""
    bad = _Faults("bad-header")
    for line in lines:
        matched = GTID.fullmatch(line.text.rstrip(b"\r"))
        if matched:
            context.last[f"{int(matched[1])}-{int(matched[2])}"] = int(matched[3])
        elif line.text.strip():
            context.sound = False
            bad.add(line, f"no GTID (domain-server-number): {printable(line.text)!r}")
    yield from bad.all()


def _read_info(lines: Iterator[Line], context: TextContext) -> Iterator[Finding]:
    """Read the relay log's name and offset, after the number of lines if that is there."""
    texts = [line.text.strip() for _, line in zip(range(3), lines, strict=False)]
    if texts and texts[0].isdigit():
        del texts[0]
    known = log_name(texts[0]) if texts and _is_path(texts[0]) else None
    if known is not None and len(texts) > 1 and texts[1].isdigit() and len(texts[1]) < 20:
        context.position = known.name, int(texts[1])
        return
    context.sound = False
    if any(texts):
        yield finding("bad-header", 0, 0, "the lines do not name a relay log and an offset in it")
