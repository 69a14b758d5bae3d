"""A small reader of classic binary logs with CRC-32, for tests: it knows headers, positions and checksums, no more."""

from __future__ import annotations

import struct
import zlib
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

HEADER = struct.Struct("<IBIIIH")
DESCRIPTION, GTID, GTID_LIST, CHECKPOINT, ROTATE, STOP = 15, 162, 163, 161, 4, 3
BETWEEN = {DESCRIPTION, GTID_LIST, CHECKPOINT, ROTATE, STOP}


class Event(NamedTuple):
    """One event with its place; body: without header and checksum."""

    time: int
    code: int
    server_id: int
    size: int
    end: int
    flags: int
    body: bytes
    at: int

    def bare(self) -> bytes:
        """As it stands in a log without positions and checksums."""
        size = HEADER.size + len(self.body)
        return HEADER.pack(self.time, self.code, self.server_id, size, 0, self.flags) + self.body


def events(path: Path, checksum: bool = True, exact: bool = True) -> list[Event]:
    """All events of a file; asserts what is true for each. exact: no position is 0, as newer servers write it."""
    data, at, found = path.read_bytes(), 4, []
    assert data[:4] == b"\xfebin"
    while at < len(data):
        time, code, server, size, end, flags = HEADER.unpack_from(data, at)
        tail = 4 if checksum or code == DESCRIPTION else 0
        event = data[at : at + size]
        if checksum:
            assert len(event) == size and end in ((at + size,) if exact else (0, at + size))
            assert zlib.crc32(event[:-4]) == int.from_bytes(event[-4:], "little")
        found.append(Event(time, code, server, size, end, flags, event[19 : size - tail], at))
        at += size
    return found


class Group(NamedTuple):
    """The events from a GTID event to the next one."""

    gtid: str
    events: Sequence[Event]

    def bare(self) -> bytes:
        """All of them, as they stood in the other container."""
        return b"".join(event.bare() for event in self.events)


def groups(found: Sequence[Event]) -> Iterator[Group]:
    """The groups of a file."""
    open_: list[Event] = []
    for event in found:
        if event.code == GTID or event.code in BETWEEN:
            if open_:
                yield Group(gtid(open_[0]), open_)
            open_ = []
        if event.code not in BETWEEN:
            open_.append(event)
    if open_:
        yield Group(gtid(open_[0]), open_)


def gtid(event: Event) -> str:
    """The identity that a GTID event gives."""
    number, domain = struct.unpack_from("<QI", event.body)
    return f"{domain}-{event.server_id}-{number}"


def listed(event: Event) -> list[str]:
    """The entries of a GTID_LIST event."""
    (count,) = struct.unpack_from("<I", event.body)
    return ["{}-{}-{}".format(*struct.unpack_from("<IIQ", event.body, 4 + 16 * i)) for i in range(count)]
