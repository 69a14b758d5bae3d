"""A tiny reader of MySQL's and MariaDB's binary log, written from the specification alone (sections 2 to 5, 8 and 12).

It shares nothing with the product: plain loops, zlib and zstandard as libraries.
"""

from __future__ import annotations

import re
import struct
import zlib
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import NamedTuple

import zstandard

from tests.harness.oracle import Field, Frame, Walk, durable_ends

MAGIC = b"\xfebin"
HEADER = struct.Struct("<IBIIIH")
_COMMON = """UNKNOWN START_V3 QUERY STOP ROTATE INTVAR LOAD SLAVE CREATE_FILE APPEND_BLOCK EXEC_LOAD DELETE_FILE
NEW_LOAD RAND USER_VAR FORMAT_DESCRIPTION XID BEGIN_LOAD_QUERY EXECUTE_LOAD_QUERY TABLE_MAP PRE_GA_WRITE PRE_GA_UPDATE
PRE_GA_DELETE WRITE_ROWS_V1 UPDATE_ROWS_V1 DELETE_ROWS_V1 INCIDENT HEARTBEAT IGNORABLE ROWS_QUERY WRITE_ROWS UPDATE_ROWS
DELETE_ROWS GTID_LOG ANONYMOUS_GTID PREVIOUS_GTIDS TRANSACTION_CONTEXT VIEW_CHANGE XA_PREPARE PARTIAL_UPDATE_ROWS
TRANSACTION_PAYLOAD HEARTBEAT_V2 GTID_TAGGED_LOG"""
_MARIADB = """ANNOTATE_ROWS BINLOG_CHECKPOINT GTID GTID_LIST START_ENCRYPTION QUERY_COMPRESSED WRITE_COMPRESSED
UPDATE_COMPRESSED DELETE_COMPRESSED WRITE_COMPRESSED_V2 UPDATE_COMPRESSED_V2 DELETE_COMPRESSED_V2 PARTIAL_ROW_DATA"""
TYPES = dict(enumerate(_COMMON.split())) | dict(enumerate(_MARIADB.split(), 160))
"""Section 5."""

QUERY, DESCRIPTION, XID, TABLE_MAP, XA_PREPARE, PAYLOAD = 2, 15, 16, 19, 38, 40
GTID, SEALING, QUERY_COMPRESSED = 162, 164, 165
GTIDS = {33, 34, 42, GTID}
ROWS = {23, 24, 25, 30, 31, 32, 39, *range(166, 172)}
OUTSIDE = {3, 4, 15, 26, 27, 35, 41, 161, 163, 164}
SESSION = {5, 13, 14}
LISTS = {35, 163}
KNOWN_FLAGS = 0xC3FF
TEN_YEARS = 10 * 366 * 86400
_KNOWN_TYPES = b"".join(re.escape(bytes([code])) for code in TYPES if code)
CANDIDATE = re.compile(
    rb"(?=.{4}[" + _KNOWN_TYPES + rb"].{7}[\0-\x40].{5}[\0-\x03\x40-\x43\x80-\x83\xc0-\xc3])", re.DOTALL
)


class Form(NamedTuple):
    """What a FORMAT_DESCRIPTION says. own: its own event ends with a checksum. crc: the others do."""

    own: bool
    crc: bool
    maria: bool
    lists: bool
    """Does such a server write the list of earlier GTIDs behind it?"""


class Event(NamedTuple):
    """One event. sealed: encrypted, only its place and size are known."""

    time: int
    code: int
    server_id: int
    start: int
    end: int
    end_log_pos: int
    flags: int
    tail: int
    sealed: bool = False


LARGEST_DESCRIPTION = 76 + 255 + 5
"""Bytes of a FORMAT_DESCRIPTION: one for each type of events, and its tail."""


def description(data: bytes, at: int) -> Form | None:
    """The FORMAT_DESCRIPTION at `at` (section 3)."""
    if len(data) < at + 76 or data[at + 4] != DESCRIPTION:
        return None
    size = int.from_bytes(data[at + 9 : at + 13], "little")
    if (
        not 76 <= size <= LARGEST_DESCRIPTION
        or at + size > len(data)
        or data[at + 19 : at + 21] != b"\4\0"
        or data[at + 75] != 19
    ):
        return None
    name = data[at + 21 : at + 71].rstrip(b"\0").decode("latin-1")
    numbers = re.match(r"(\d+)\.?(\d*)\.?(\d*)", name)
    version = tuple(int(part or 0) for part in numbers.groups()) if numbers else (0, 0, 0)
    maria = "MariaDB" in name
    own = version >= ((5, 3, 0) if maria else (5, 6, 1))
    if "a_drop" in name:  # trees of 5.1 and 5.2 that were never released, with other event types
        return None
    return Form(own, own and data[at + size - 5] == 1, maria, version >= ((10, 0, 2) if maria else (5, 6, 5)))


def crc_right(data: bytes, start: int, end: int) -> bool:
    """Section 3: over all but the last 4 bytes, without the in-use flag of a FORMAT_DESCRIPTION."""
    event = bytearray(data[start : end - 4])
    if event[4] == DESCRIPTION:
        event[17] &= 0xFE
    return zlib.crc32(event) == int.from_bytes(data[end - 4 : end], "little")


def event_at(data: bytes, at: int, form: Form) -> Event | None:
    """The event at `at`, if its size is possible and its checksum right (or it has none)."""
    if at + 19 > len(data):
        return None
    time, code, server, size, position, flags = HEADER.unpack_from(data, at)
    own = description(data, at) if code == DESCRIPTION else None
    if code == DESCRIPTION and own is None:
        return None
    checked = own.own if own else form.crc
    strict = own.crc if own else form.crc
    if size < 19 + 4 * checked or size > 1 << 30 or at + size > len(data):
        return None
    if strict and not crc_right(data, at, at + size):
        return None
    found = Event(time, code, server, at, at + size, position, flags, 4 * checked)
    return found if code != PAYLOAD or payload_whole(data[at + 19 : at + size - found.tail]) else None


def sealed_at(data: bytes, at: int) -> Event | None:
    """The encrypted event at `at`: its size is readable (section 9)."""
    size = int.from_bytes(data[at + 9 : at + 13], "little")
    if at + 19 > len(data) or size < 19 or at + size > len(data):
        return None
    return Event(0, 255, 0, at, at + size, 0, 0, 0, True)


def lenenc(data: bytes, at: int) -> tuple[int, int]:
    """A length-encoded integer, and where it ends."""
    first = data[at]
    width = {0xFC: 2, 0xFD: 3, 0xFE: 8}.get(first, 0)
    if first in (0xFB, 0xFF) or at + 1 + width > len(data):
        raise ValueError(first)
    return (int.from_bytes(data[at + 1 : at + 1 + width], "little") if width else first), at + 1 + width


def payload_whole(body: bytes) -> bool:
    """Does a TRANSACTION_PAYLOAD unpack to whole events of the size that it states?"""
    try:
        fields, at = {2: 255, 3: -1}, 0
        while True:
            kind, at = lenenc(body, at)
            if kind == 0:
                break
            length, at = lenenc(body, at)
            fields[kind], _end = lenenc(body[: at + length], at)
            at += length
        packed = body[at : at + fields[1]]
        content = packed if fields[2] else unzstd(packed)
    except (ValueError, IndexError, KeyError, zstandard.ZstdError):
        return False
    at = 0
    while at + 19 <= len(content):
        at += max(19, int.from_bytes(content[at + 9 : at + 13], "little"))
    return len(packed) == fields[1] and at == len(content) and fields[3] in (-1, len(content))


def unzstd(packed: bytes) -> bytes:
    """All frames of a payload."""
    out = b""
    while packed:
        reader = zstandard.ZstdDecompressor().decompressobj()
        out += reader.decompress(packed)
        if not reader.eof:
            raise ValueError("cut")
        packed = reader.unused_data
    return out


# -- the walk ----------------------------------------------------------------------------------------------------------


def mysql_binlog(data: bytes) -> Walk:
    """Events, with a search behind damage."""
    form = description(data, 4)
    if form is None:
        return Walk(None, (), None, False, ())
    reader = Reader(data, form)
    whole = data[:4] == MAGIC and (not form.own or crc_right(data, 4, 4 + int.from_bytes(data[13:17], "little")))
    reader.read()
    return Walk(reader.head, tuple(reader.frames), None, reader.clean and whole, (Field("file magic", 0, 4),))


@dataclass
class Reader:
    """One pass over a file."""

    data: bytes
    form: Form
    head: int = 4
    clean: bool = True
    sealed: bool = False
    frames: list[Frame] = field(default_factory=list)
    servers: set[int] = field(default_factory=set)
    time: int = 0

    def read(self) -> None:
        relay = bool(self.data[21] & 0x40)
        groups, at = Groups(self.data, relay=relay, maria=self.form.maria), 4
        while at < len(self.data):
            event = self.event(at)
            if event is None:
                self.clean = False
                at = self.search(at + 1)
                groups.lost = True
                continue
            if event.code == DESCRIPTION:
                self.form = description(self.data, at) or self.form
                self.head = event.end if at == 4 else self.head
            self.servers.add(event.server_id)
            self.time = event.time or self.time
            steps = BOUNDARY if event.sealed else groups.take(event)
            self.frames.append(Frame(at, event.end, 1, tuple(fields_of(event, self.form)), steps))
            self.sealed = self.sealed or event.code == SEALING
            at = event.end

    def event(self, at: int) -> Event | None:
        return sealed_at(self.data, at) if self.sealed else event_at(self.data, at, self.form)

    def search(self, at: int) -> int:
        """Where the next event stands beyond doubt (section 12)."""
        for match in CANDIDATE.finditer(self.data, at):
            event = None if self.sealed else self.event(match.start())
            if event is not None and (self.form.crc or self.doubtless(event)):
                return match.start()
        return len(self.data)

    def doubtless(self, event: Event) -> bool:
        """Without a checksum: a header like those before it, and another event or the end of the file behind it."""
        if not self.plausible(event):
            return False
        following = event_at(self.data, event.end, self.form)
        return event.end == len(self.data) or (following is not None and self.plausible(following))

    def plausible(self, event: Event) -> bool:
        near = not event.time or not self.time or abs(event.time - self.time) <= TEN_YEARS
        known = event.code in TYPES and event.code and not event.flags & ~KNOWN_FLAGS
        return bool(known and near and event.server_id in self.servers)


def fields_of(event: Event, form: Form) -> Iterator[Field]:
    """The parts of an event, named as the coverage map names them."""
    kind = TYPES.get(event.code, f"type {event.code}")
    bare = not event.tail and not event.sealed
    words = "encrypted: " if event.sealed else "no checksum: " if bare else ""
    described = event.code == DESCRIPTION
    weak = "checksum_alg 0: FORMAT_DESCRIPTION: " if described and event.tail and not form.crc else words
    names = ("timestamp", "type", "server id", "event size", "end_log_pos", "flags")
    at = event.start
    for name, width in zip(names, (4, 1, 4, 4, 4, 2), strict=True):
        label = f"FORMAT_DESCRIPTION: {name}" if described and name == "flags" and weak == words else name
        yield Field(weak + label, at, at + width)
        at += width
    if at < event.end - event.tail:
        label = "body" if event.sealed or weak != words else f"body: {kind}"
        yield Field(weak + label, at, event.end - event.tail)
    if event.tail:
        yield Field(weak + "crc32", event.end - event.tail, event.end)


# -- groups ------------------------------------------------------------------------------------------------------------

Steps = tuple[tuple[int, bool], ...]
BOUNDARY: Steps = ((0, True),)
INSIDE: Steps = ((0, False),)
BROKEN: Steps = ((1, False),)
"""A nesting error: from here on nothing is durable."""


@dataclass
class Groups:
    """Section 8 as a table. open: None, "gtid" (MySQL: what it opens is not known yet), "trx" or "one".

    relay: the file may end inside a group, that of MariaDB also begin. lost: nothing is durable any more.
    """

    data: bytes
    open: str | None = None
    relay: bool = False
    lost: bool = False
    first: bool = True
    maria: bool = False

    def take(self, event: Event) -> Steps:
        """The steps of one event."""
        self.relay = self.relay or (event.code == 4 and event.time == event.end_log_pos == 0)
        body = self.data[event.start + 19 : event.end - event.tail]
        known = (event.code in TYPES and event.code) or event.flags & 0x80
        return self.step(event.code, body) if known and not self.lost else BROKEN

    def step(self, code: int, body: bytes) -> Steps:
        """By type and text."""
        was = self.open
        if code in OUTSIDE:
            return BROKEN if was and not self.relay else BOUNDARY
        carried, self.first = self.first and self.relay and self.maria, False
        if code in GTIDS:
            self.open = "gtid" if code != GTID else "one" if body[12] & 1 else "trx"
            return BROKEN if was else INSIDE
        text = statement(code, body)
        if re.match(rb"(BEGIN|START TRANSACTION|XA START|XA BEGIN)\b", text):
            self.open = "trx"
            return BROKEN if was == "trx" else INSIDE
        self.open = "trx" if carried else was
        return self.ends(BOUNDARY if self.is_end(code, text, body) else INSIDE, code, text)

    def is_end(self, code: int, text: bytes, body: bytes) -> bool:
        """Is the event the last one of the group that is open, or one that stands for itself?"""
        if code in (XID, XA_PREPARE, PAYLOAD) or re.match(rb"(COMMIT|ROLLBACK(?! TO\b)|XA COMMIT|XA ROLLBACK)\b", text):
            return True
        if self.open == "trx":
            return False
        if code in SESSION | {TABLE_MAP, 160, 29}:
            return False
        if code in ROWS:
            return bool(body[6] & 1)
        return True

    def ends(self, step: Steps, code: int, text: bytes) -> Steps:
        closes = code == XID or re.match(rb"(COMMIT|ROLLBACK|SAVEPOINT|RELEASE SAVEPOINT|XA END)\b", text)
        if closes and self.open != "trx" and not self.relay:
            return BROKEN
        if step == BOUNDARY:
            self.open = None
        return step


def statement(code: int, body: bytes) -> bytes:
    """The beginning of a QUERY's text in capitals; empty for other events."""
    if code not in (QUERY, QUERY_COMPRESSED) or len(body) < 13:
        return b""
    text = body[13 + struct.unpack_from("<H", body, 11)[0] + body[8] + 1 :]
    if code == QUERY_COMPRESSED and text:
        try:
            text = zlib.decompressobj().decompress(text[1 + (text[0] & 7) :], 64)
        except zlib.error:
            return b""
    return text[:64].upper()


def durable_end(data: bytes) -> int | None:
    """Where the durable part ends (section 8). None: no cut can repair the file, its head is damaged."""
    walk, form = mysql_binlog(data), description(data, 4)
    if form is None or data[:4] != MAGIC or not walk.frames or walk.frames[0].start != 4:
        return None
    if form.own and not crc_right(data, 4, walk.frames[0].end):
        return None
    return durable_ends(walk)[-1] if walk.clean or repairable(data, walk, len(data)) else None


def repairable(data: bytes, walk: Walk, cut: int) -> bool:
    """Is a file with a damage, or cut here inside an event, fit to be cut? Its head must be whole (section 8).

    The head of a log is FORMAT_DESCRIPTION and, where the server writes it, the list of earlier GTIDs: the damage must
    not stand right behind the first. Behind START_ENCRYPTION nothing can be judged without the key.
    """
    whole = [frame for frame in walk.frames if frame.end <= cut]
    if any(data[frame.start + 4] == SEALING for frame in whole):
        return False
    form = description(data, 4)
    if form is None or not form.lists or (form.maria and data[21] & 0x40) or (whole and whole[-1].end == cut):
        return True
    return len(whole) > 1
