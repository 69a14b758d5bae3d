"""Writes InnoDB binlog files from the rules of the specification, for forged and large logs."""

from __future__ import annotations

import struct
from dataclasses import dataclass, field

import crc32c

COMMIT, STATE, OOB, DUMMY, PREPARE, COMPLETE = 1, 2, 3, 4, 5, 6
LAST, CONT = 0x40, 0x80
NONE = (1 << 64) - 1

Place = tuple[int, int]


def cint(value: int) -> bytes:
    """A compressed integer in its shortest form."""
    for size in (1, 2, 3, 4, 5, 6, 7):
        if value < 1 << (8 * size - 3):
            return (value << 3 | size - 1).to_bytes(size, "little")
    return (value << 3 | 7).to_bytes(9, "little")


def cints(*values: int) -> bytes:
    """Several of them."""
    return b"".join(map(cint, values))


def sealed(page: bytes, size: int) -> bytes:
    """A page with its CRC."""
    data = page.ljust(size - 4, b"\0")
    return data + crc32c.crc32c(data).to_bytes(4, "little")


def header(number: int, pages: int, size: int, interval: int, **fields: int) -> bytes:
    """A header page."""
    known = {
        "shift": size.bit_length() - 1,
        "major": 1,
        "minor": 0,
        "lsn": 12288 + number * 1000,
        "oob": number,
        "xa": NONE,
    }
    known |= fields
    head = struct.pack(
        "<IIIIQQQQQQ", 0x010DFEFE, known["shift"], known["major"], known["minor"], fields.get("file_no", number), pages,
        known["lsn"], interval, known["oob"], known["xa"],
    ).ljust(508, b"\0")  # fmt: skip
    head += crc32c.crc32c(head).to_bytes(4, "little")
    return head if size == 512 else sealed(head, size)


def event(code: int, body: bytes, *, time: int = 1_700_000_000, server: int = 11, flags: int = 0) -> bytes:
    """One event without checksum."""
    return struct.pack("<IBIIIH", time, code, server, 19 + len(body), 0, flags) + body


def gtid_event(seq_no: int, domain: int = 0, server: int = 11) -> bytes:
    """A GTID event."""
    return event(162, struct.pack("<QIB6x", seq_no, domain, 0), server=server)


def group(seq_no: int, size: int = 60, domain: int = 0, server: int = 11) -> bytes:
    """GTID, a statement of about `size` bytes, an XID of its own."""
    text, xid = b"i" * size, struct.pack("<Q", (domain << 32) + seq_no & (1 << 64) - 1)
    query = struct.pack("<IIBHH", 7, 0, 2, 0, 0) + b"db\0" + text
    return gtid_event(seq_no, domain, server) + event(2, query, server=server) + event(16, xid, server=server)


@dataclass
class Maker:
    """A log being written. files: by number, whole pages. place: where the next record will begin."""

    page_size: int = 16384
    file_pages: int = 8
    interval: int = 2
    files: dict[int, bytearray] = field(default_factory=dict)
    full: dict[tuple[int, int], int] = field(default_factory=dict)
    changed: dict[tuple[int, int], int] = field(default_factory=dict)
    page: bytearray = field(default_factory=bytearray)
    number: int = 0
    page_no: int = 0
    oob_from: int | None = None
    states: bool = True

    def __post_init__(self) -> None:
        self._begin_file()

    def _begin_file(self) -> None:
        oob = {} if self.oob_from is None else {"oob": self.oob_from}
        self.files[self.number] = bytearray(header(self.number, self.file_pages, self.page_size, self.interval, **oob))
        self.changed = {}
        self.page_no = 1
        self.page = bytearray()
        self._state()

    def _state(self) -> None:
        """A state at the start of a page, where one is due and data can follow it."""
        due = self.page_no == 1 or (self.interval and self.page_no % self.interval == 0)
        known = self.full if self.page_no == 1 else self.changed
        first = self.number == 0 and self.page_no == 1 and list(known.values()) in ([], [1])
        pairs = {} if first else known
        data = cints(len(pairs), 0) + b"".join(cints(*pair, number) for pair, number in pairs.items())
        needed = -(-len(data) // (self.page_size - 4))
        if self.states and due and self.page_no + needed < self.file_pages:
            self._put(STATE, data, nested=True)

    def _turn(self) -> None:
        """The page is full."""
        self.page += b"\xff" * (self.page_size - 4 - len(self.page))
        self.files[self.number] += sealed(bytes(self.page), self.page_size)
        self.page = bytearray()
        self.page_no += 1
        if self.page_no == self.file_pages:
            self.number += 1
            self._begin_file()
        else:
            self._state()

    @property
    def room(self) -> int:
        """Bytes before the CRC of the current page."""
        return self.page_size - 4 - len(self.page)

    def _put(self, kind: int, data: bytes, nested: bool = False) -> Place:
        if self.room < 4:
            self._turn()
        place, flags = (self.number, self.page_no * self.page_size + len(self.page)), 0
        while True:
            piece, data = data[: self.room - 3], data[self.room - 3 :]
            self.page += bytes([kind | flags | (0 if data else LAST)]) + len(piece).to_bytes(2, "little") + piece
            if not data:
                return place
            flags = CONT
            if nested:
                self.page += b"\xff" * self.room
                self.files[self.number] += sealed(bytes(self.page), self.page_size)
                self.page = bytearray()
                self.page_no += 1
            else:
                self._turn()

    def record(self, kind: int, data: bytes) -> Place:
        """Any record."""
        return self._put(kind, data)

    def commit(self, data: bytes, gtid: tuple[int, int, int] | None = None, head: bytes = b"\0") -> Place:
        """A COMMIT record; gtid: domain, server, number, which later states have."""
        if self.room < 4:
            self._turn()
        if gtid is not None:
            self.full[gtid[:2]] = self.changed[gtid[:2]] = gtid[2]
        return self._put(COMMIT, head + data)

    def oob(self, index: int, left: Place, right: Place, data: bytes) -> Place:
        """An OOB_DATA record."""
        return self._put(OOB, cints(index, *left, *right) + data)

    def forest(self, pieces: list[bytes]) -> tuple[Place, Place]:
        """A forest of out-of-band data; returns the places of the first and the last node."""
        roots: list[tuple[Place, int]] = []
        first = last = (0, 0)
        for index, piece in enumerate(pieces):
            if len(roots) > 1 and roots[-1][1] == roots[-2][1]:
                height = roots[-1][1] + 1
                last = self.oob(index, roots[-2][0], roots[-1][0], piece)
                roots[-2:] = [(last, height)]
            else:
                last = self.oob(index, (0, 0), roots[-1][0] if roots else (0, 0), piece)
                roots.append((last, 1))
            first = last if index == 0 else first
        return first, last

    def done(self, reserve: bool = True) -> dict[str, bytes]:
        """The files by name: the last one filled with zeros, and one in reserve."""
        size = self.page_size * self.file_pages
        made = {f"binlog-{number:06d}.ibb": bytes(data) for number, data in self.files.items()}
        last = self.files[self.number] + (sealed(bytes(self.page), self.page_size) if self.page else b"")
        made[f"binlog-{self.number:06d}.ibb"] = bytes(last.ljust(size, b"\0"))
        if reserve:
            made[f"binlog-{self.number + 1:06d}.ibb"] = bytes(size)
        return made
