"""Logs of a server with other content, all with right positions and checksums: statements, events, lists, states.

`python -m tests.formats.mysql_binlog.starts SERVER --contents` starts the server with them.
"""

from __future__ import annotations

import random
import struct
import zlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path

MAGIC = b"\xfebin"
HEADER, CHECKSUM = 19, 4
IN_USE, ARTIFICIAL, IGNORABLE = 1, 0x20, 0x80
QUERY, STOP, ROTATE, DESCRIPTION, XID = 2, 3, 4, 15, 16
GTID_LOG, PREVIOUS_GTIDS, XA_PREPARE = 33, 35, 38
CHECKPOINT, GTID, GTID_LIST = 161, 162, 163
_TYPES = (
    1,
    2,
    3,
    4,
    5,
    13,
    14,
    16,
    19,
    23,
    26,
    27,
    29,
    30,
    33,
    35,
    38,
    40,
    42,
    50,
    90,
    160,
    161,
    162,
    163,
    164,
    165,
    172,
    200,
)
_TEXTS = (
    b"BEGIN", b"COMMIT", b"ROLLBACK", b"", b"XA START X'61',X'',1", b"XA END X'61',X'',1", b"XA PREPARE X'61',X'',1",
    b"XA COMMIT X'61',X'',1", b"XA ROLLBACK X'61',X'',1", b"XA COMMIT X'61',X'',1 ONE PHASE", b"XA COMMIT",
    b"XA COMMIT X'6", b"CREATE TABLE d.u (a INT)", b"INSERT INTO d.t VALUES (77, 'x')", b"SAVEPOINT a",
    b"ROLLBACK TO a", b"# Dumm", b"\xff\xfe\0", b"DROP DATABASE d", b"x" * 300, b"SET @a=1", b"commit",
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class Event:
    """An event without its checksum and positions."""

    code: int
    body: bytes
    flags: int = 0
    time: int = 1_795_232_544
    server: int = 1


@dataclass(frozen=True, slots=True)
class Log:
    """The events of one file. mysql: otherwise MariaDB's. has_checksums: of all but the first event, which has one."""

    events: tuple[Event, ...]
    mysql: bool
    has_checksums: bool = True

    @classmethod
    def read(cls, data: bytes) -> Log:
        """Split an intact file whose events have checksums."""
        events, at = [], len(MAGIC)
        while at < len(data):
            time, code, server, size, _, flags = struct.unpack_from("<IBIIIH", data, at)
            events.append(Event(code, data[at + HEADER : at + size - CHECKSUM], flags, time, server))
            at += size
        return cls(tuple(events), b"Maria" not in events[0].body)

    def write(self) -> bytes:
        """Write the file: sizes, positions and checksums are right, the last ones without the in-use flag."""
        out = bytearray(MAGIC)
        for event in self.events:
            checks = self.has_checksums or event.code == DESCRIPTION
            size = HEADER + len(event.body) + CHECKSUM * checks
            end = 0 if event.flags & ARTIFICIAL else len(out) + size
            fixed = event.time, event.code, event.server & 0xFFFFFFFF, size, end
            flags = event.flags & ~IN_USE if event.code == DESCRIPTION else event.flags
            data = struct.pack("<IBIIIH", *fixed, flags) + event.body
            checksum = struct.pack("<I", zlib.crc32(data)) if checks else b""
            out += struct.pack("<IBIIIH", *fixed, event.flags) + event.body + checksum
        return bytes(out)

    def find(self, *codes: int) -> list[int]:
        """The numbers of the events of some types."""
        return [number for number, event in enumerate(self.events) if event.code in codes]

    def with_event(self, number: int, event: Event) -> Log:
        """Another event in the place of one."""
        return replace(self, events=(*self.events[:number], event, *self.events[number + 1 :]))

    def with_body(self, number: int, body: bytes) -> Log:
        """An event with another body."""
        return self.with_event(number, replace(self.events[number], body=body))

    def with_inserted(self, number: int, *events: Event) -> Log:
        """More events before one."""
        return replace(self, events=(*self.events[:number], *events, *self.events[number:]))

    def without(self, number: int, count: int = 1) -> Log:
        """Fewer events."""
        return replace(self, events=(*self.events[:number], *self.events[number + count :]))


Edit = Callable[[random.Random, Log], Log]


def query(text: bytes, database: bytes = b"d", status: bytes = b"") -> bytes:
    """The body of QUERY."""
    return struct.pack("<IIBHH", 7, 0, len(database), 0, len(status)) + status + database + b"\0" + text


def _pick(rng: random.Random, log: Log, *codes: int) -> int:
    """The number of an event of some types; of any but the first, if the log has none of them."""
    return rng.choice(log.find(*codes) or range(1, max(2, len(log.events)))) if len(log.events) > 1 else 0


def _statement(rng: random.Random, log: Log) -> Log:
    status = rng.choice((b"", b"", bytes([0]) + bytes(4), rng.randbytes(rng.randrange(12))))
    number = _pick(rng, log, QUERY)
    made = query(rng.choice(_TEXTS), rng.choice((b"d", b"", b"nobody", b"x" * 70)), status)
    return log.with_event(number, replace(log.events[number], code=QUERY, body=made))


def _more_statement(rng: random.Random, log: Log) -> Log:
    made = Event(QUERY, query(rng.choice(_TEXTS)))
    return log.with_inserted(rng.randrange(1, len(log.events) + 1), made)


def _statement_lengths(rng: random.Random, log: Log) -> Log:
    number = _pick(rng, log, QUERY)
    body = bytearray(log.events[number].body)
    at = rng.choice((8, 11, 12, 13, 14))
    if at < len(body):
        body[at] = rng.choice((0, 1, 5, 17, 64, 200, 255))
    return log.with_body(number, bytes(body))


def _ddl_xid(rng: random.Random, log: Log) -> Log:
    """DDL_LOGGED_WITH_XID (17), at times with a number that the log has."""
    others = [log.events[each].body[:8] for each in log.find(XID)]
    status = b"\x11" + rng.choice([*others, struct.pack("<Q", rng.randrange(1, 90))])
    made = Event(QUERY, query(b"CREATE TABLE d.u (a INT)", status=status))
    return log.with_inserted(rng.randrange(1, len(log.events) + 1), made)


def _xid(rng: random.Random, log: Log) -> Log:
    others = [log.events[each].body[:8] for each in log.find(XID)]
    number = rng.choice([*others, bytes(8), b"\xff" * 8, struct.pack("<Q", rng.randrange(1, 90))])
    if rng.random() < 0.6:
        at = _pick(rng, log, XID)
        return log.with_event(at, replace(log.events[at], code=XID, body=number))
    return log.with_inserted(rng.randrange(1, len(log.events) + 1), Event(XID, number))


def _xa_prepare(rng: random.Random, log: Log) -> Log:
    gtrid, bqual = rng.choice((b"a", b"b", b"", b"x" * 64)), rng.choice((b"", b"q"))
    sizes = rng.choice(((len(gtrid), len(bqual)),) * 3 + ((200, 0), (0xFFFFFFFF, 1)))
    body = struct.pack("<BIII", rng.choice((0, 0, 1)), rng.choice((1, 1, 9)), *sizes) + gtrid + bqual
    return log.with_inserted(rng.randrange(1, len(log.events) + 1), Event(XA_PREPARE, body))


def _gtid(rng: random.Random, log: Log) -> Log:
    number = _pick(rng, log, GTID_LOG, GTID)
    body = bytearray(log.events[number].body)
    seq = rng.choice((0, 1, 3, 14, 15, 16, 99, 1 << 31, 1 << 62, (1 << 63) - 1, (1 << 64) - 1))
    place = 17 if log.mysql else 0
    kind = rng.choice(("number", "number", "domain", "flags"))
    if kind == "number" and len(body) >= place + 8:
        body[place : place + 8] = struct.pack("<Q", seq)
    elif kind == "domain":
        body[1 if log.mysql else 8] = rng.randrange(256)
    elif kind == "flags":
        body[0 if log.mysql else 12] = rng.randrange(256)
    event = replace(log.events[number], body=bytes(body), server=rng.choice((1, 1, 2, 0xFFFFFFFF)))
    return log.with_event(number, event)


def _gtid_list(rng: random.Random, log: Log) -> Log:
    number = _pick(rng, log, PREVIOUS_GTIDS, GTID_LIST)
    return log.with_body(number, _mysql_set(rng) if log.mysql else _mariadb_list(rng))


def _mysql_set(rng: random.Random) -> bytes:
    sources = []
    for _ in range(rng.choice((0, 1, 1, 2, 3))):
        at, intervals = 1, []
        for _ in range(rng.choice((0, 1, 1, 2, 4))):
            start = at + rng.choice((0, 0, 1, 5, -1))
            end = start + rng.choice((1, 3, 9, 0, 1 << 40) if rng.random() < 0.5 else (1, 3, 9))
            intervals.append((start, end))
            at = end + 1
        rng.shuffle(intervals) if rng.random() < 0.1 else None
        count = len(intervals) + rng.choice((0,) * 8 + (1, -1))
        packed = b"".join(struct.pack("<qq", *one) for one in intervals)
        sources.append(rng.choice((b"\x11" * 16, rng.randbytes(16))) + struct.pack("<q", count) + packed)
    count = len(sources) + rng.choice((0,) * 8 + (1, -1, 1 << 20))
    return struct.pack("<q", count) + b"".join(sources) + rng.choice((b"",) * 8 + (b"x", bytes(8)))


def _mariadb_list(rng: random.Random) -> bytes:
    numbers = (0, 1, 3, 14, 15, 99, 1 << 40, (1 << 64) - 1)
    entries = [
        struct.pack("<IIQ", rng.choice((0, 0, 1, 7, 0xFFFFFFFF)), rng.choice((1, 1, 2)), rng.choice(numbers))
        for _ in range(rng.choice((0, 1, 1, 2, 5)))
    ]
    count = len(entries) + rng.choice((0,) * 8 + (1, 2, -1 if entries else 0))
    flags = rng.choice((0, 0, 0, 1, 2, 8))
    return struct.pack("<I", count | flags << 28) + b"".join(entries) + (bytes(2) if not entries else b"")


def _checkpoint(rng: random.Random, log: Log) -> Log:
    name = rng.choice(
        (b"bin.000001", b"bin.000002", b"bin.000003", b"bin.000009", b"", b"./bin.000002", b"x" * 200,
         b"bin.000002\0tail", b"bin.00002", b"other.000001", b"/bin.000001", b"x" * 600)
    )  # fmt: skip
    length = len(name) + rng.choice((0,) * 9 + (1, -1, 1 << 20))
    body = struct.pack("<I", max(length, 0)) + name
    if rng.random() < 0.6 and log.find(CHECKPOINT):
        return log.with_body(_pick(rng, log, CHECKPOINT), body)
    return log.with_inserted(rng.randrange(1, len(log.events) + 1), Event(CHECKPOINT, body))


def _without(rng: random.Random, log: Log) -> Log:
    return log.without(rng.randrange(0 if rng.random() < 0.1 else 1, len(log.events)), rng.choice((1, 1, 1, 2, 5)))


def _twice(rng: random.Random, log: Log) -> Log:
    first = rng.randrange(len(log.events))
    count = rng.choice((1, 1, 3, 5))
    return log.with_inserted(rng.randrange(first, len(log.events) + 1), *log.events[first : first + count])


def _moved(rng: random.Random, log: Log) -> Log:
    first = rng.randrange(1, len(log.events))
    rest = log.without(first)
    return rest.with_inserted(rng.randrange(1, len(rest.events) + 1), log.events[first])


def _other_type(rng: random.Random, log: Log) -> Log:
    number = rng.randrange(0 if rng.random() < 0.1 else 1, len(log.events))
    flags = log.events[number].flags | rng.choice((0, 0, IGNORABLE))
    return log.with_event(number, replace(log.events[number], code=rng.choice(_TYPES), flags=flags))


def _other_head(rng: random.Random, log: Log) -> Log:
    number = rng.randrange(len(log.events))
    event = log.events[number]
    changed = rng.choice(
        (
            replace(event, flags=event.flags ^ (1 << rng.randrange(16))),
            replace(event, time=rng.choice((0, 1, 0xFFFFFFFF))),
            replace(event, server=rng.choice((0, 2, 0xFFFFFFFF))),
        )
    )
    return log.with_event(number, changed)


def _body_bytes(rng: random.Random, log: Log) -> Log:
    number = rng.randrange(0 if rng.random() < 0.2 else 1, len(log.events))
    body = bytearray(log.events[number].body)
    for _ in range(rng.choice((1, 1, 2, 6))):
        if body:
            at = rng.randrange(min(len(body), 20)) if rng.random() < 0.5 else rng.randrange(len(body))
            body[at] = rng.choice((body[at] ^ 1 << rng.randrange(8), 0, 255, rng.randrange(256)))
    return log.with_body(number, bytes(body))


def _body_size(rng: random.Random, log: Log) -> Log:
    number = rng.randrange(0 if rng.random() < 0.1 else 1, len(log.events))
    body = log.events[number].body
    cut = body[: rng.randrange(len(body) + 1)]
    return log.with_body(number, rng.choice((cut, cut, body + rng.randbytes(rng.choice((1, 8, 200))))))


def _description(rng: random.Random, log: Log) -> Log:
    body = bytearray(log.events[0].body)
    kind = rng.choice(("format", "server", "created", "head", "lengths", "checksum", "size"))
    if kind == "format":
        body[0:2] = struct.pack("<H", rng.choice((0, 1, 3, 4, 5, 300)))
    elif kind == "server":
        names = (b"5.5.3", b"10.11.6-MariaDB", b"8.0.33", b"11.9.1-MariaDB-log", b"x", b"", b"5.0.1-alpha", b"4.1.2")
        body[2:52] = rng.choice(names).ljust(50, b"\0")
    elif kind == "created":
        body[52:56] = struct.pack("<I", rng.choice((0, 1, 0xFFFFFFFF)))
    elif kind == "head":
        body[56] = rng.choice((0, 13, 18, 20, 255))
    elif kind == "lengths":
        for _ in range(rng.choice((1, 1, 5))):
            body[rng.randrange(57, len(body) - 1)] = rng.choice((0, 1, 200, 255))
    elif kind == "checksum":
        body[-1] = rng.choice((0, 2, 255))
    else:
        body[-1:] = bytes(rng.choice((1, 5, 40))) if rng.random() < 0.5 else b""
    return log.with_body(0, bytes(body))


def _in_use(rng: random.Random, log: Log) -> Log:
    return log.with_event(0, replace(log.events[0], flags=log.events[0].flags ^ IN_USE))


def _no_checksums(rng: random.Random, log: Log) -> Log:
    body = log.events[0].body[:-1] + b"\0"
    return replace(log.with_body(0, body), has_checksums=rng.random() < 0.2)


def _end(rng: random.Random, log: Log) -> Log:
    rotate = struct.pack("<Q", rng.choice((4, 4, 0, 1 << 40))) + rng.choice((b"bin.000004", b"bin.000001", b"", b"x"))
    event = rng.choice((Event(STOP, b""), Event(ROTATE, rotate), Event(ROTATE, rotate, ARTIFICIAL)))
    return log.with_inserted(rng.choice((len(log.events), rng.randrange(1, len(log.events) + 1))), event)


EDITS: Mapping[str, Edit] = {
    "statement": _statement, "more-statement": _more_statement, "statement-lengths": _statement_lengths,
    "ddl-xid": _ddl_xid, "xid": _xid, "xa-prepare": _xa_prepare, "gtid": _gtid, "gtid-list": _gtid_list,
    "checkpoint": _checkpoint, "without": _without, "twice": _twice, "moved": _moved, "type": _other_type,
    "head": _other_head, "bytes": _body_bytes, "size": _body_size, "description": _description, "in-use": _in_use,
    "no-checksums": _no_checksums, "end": _end,
}  # fmt: skip
LOGS, NEWEST, INDEX, STATE = ("bin.000001", "bin.000002", "bin.000003"), "bin.000003", "bin.index", "bin.state"


def change_content(rng: random.Random, folder: Path) -> str:
    """Write other content into one file of a log, at times into two; says which."""
    words = [_change_log(rng, folder) if rng.random() < 0.8 else _change_text(rng, folder)]
    if rng.random() < 0.15:
        words.append(_change_text(rng, folder))
    return "; ".join(words)


def _change_log(rng: random.Random, folder: Path) -> str:
    name = NEWEST if rng.random() < 0.8 else rng.choice(LOGS[:2])
    log = Log.read((folder / name).read_bytes())
    words = []
    for _ in range(rng.choice((1, 1, 1, 2, 3))):
        kind = rng.choice([*EDITS])
        if len(log.events) > 1 and (kind != "checkpoint" or not log.mysql):
            log = EDITS[kind](rng, log)
            words.append(kind)
    (folder / name).write_bytes(log.write())
    return f"{name} {' '.join(words)}"


def _change_text(rng: random.Random, folder: Path) -> str:
    if (folder / STATE).exists() and rng.random() < 0.5:
        lines = [_state_line(rng) for _ in range(rng.choice((0, 1, 1, 2, 4)))]
        (folder / STATE).write_bytes(b"".join(lines))
        return f"{STATE} {b''.join(lines)!r}"
    names = [b"bin.%06d" % number for number in rng.choice(((1, 2, 3),) * 4 + ((2, 3), (3,), (1, 3), (1, 2, 3, 3)))]
    forms = (b"./%s", b"./%s", b"%s", os_path(folder) + b"/%s", b".//%s", b"./x/../%s")
    one_form = rng.choice(forms)
    lines = [(one_form if rng.random() < 0.8 else rng.choice(forms)) % name for name in names]
    text = b"\n".join(lines) + rng.choice((b"\n",) * 6 + (b"", b"\n\n", b"\r\n"))
    (folder / INDEX).write_bytes(text)
    return f"{INDEX} {text!r}"


def os_path(folder: Path) -> bytes:
    """A folder as an index names it."""
    return str(folder).encode()


def _state_line(rng: random.Random) -> bytes:
    domain, server = rng.choice((0, 0, 0, 1, 7, 4294967295, 4294967296)), rng.choice((1, 1, 2, 4294967295, 4294967296))
    number = rng.choice((0, 1, 14, 15, 99, (1 << 64) - 1, 1 << 64))
    line = f"{domain}-{server}-{number}".encode()
    return rng.choice((b"",) * 8 + (b" ", b"\t", b"+", b"\r")) + line + rng.choice((b"\n",) * 9 + (b"", b" \n", b"x\n"))
