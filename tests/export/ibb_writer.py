"""Writes an InnoDB binlog as section 2 to 7 of its specification say, for tests: pages, chunks, states, trees."""

from __future__ import annotations

import struct
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import crc32c

PAGE = 16384
COMMIT, STATE, OOB = 1, 2, 3
LAST, CONT = 0x40, 0x80
NOWHERE = (0, 0)

Place = tuple[int, int]
Gtid = tuple[int, int, int]


def cint(value: int) -> bytes:
    """A compressed integer."""
    size = max(1, -(-(value.bit_length() + 3) // 8))
    size = 9 if size > 7 else size
    return (value << 3 | (size - 1 if size < 8 else 7)).to_bytes(size, "little")


def cints(values: Iterable[int]) -> bytes:
    return b"".join(map(cint, values))


class Forest:
    """Out-of-band data of one cache: each piece becomes a leaf, or the parent of the two last trees of one height."""

    def __init__(self, log: IbbWriter) -> None:
        self._log, self._roots, self.count = log, list[tuple[Place, int]](), 0
        self.first = self.last = NOWHERE

    def add(self, data: bytes) -> None:
        """One more piece."""
        roots = self._roots
        if len(roots) > 1 and roots[-1][1] == roots[-2][1]:
            (left, _), (right, height) = roots[-2:]
            del roots[-2:]
        else:
            left, right, height = NOWHERE, roots[-1][0] if roots else NOWHERE, 0
        self.last = self._log.record(OOB, cints((self.count, *left, *right)) + data)
        self.first = self.last if self.count == 0 else self.first
        roots.append((self.last, height + 1))
        self.count += 1

    def reference(self) -> bytes:
        """What a COMMIT record says of it."""
        return cints((self.count, *self.first, *self.last))


@dataclass
class IbbWriter:
    """A log of files of `pages` pages, a state at every `interval` pages."""

    folder: Path
    pages: int = 8
    interval: int = 2
    files: list[bytearray] = field(default_factory=list)
    full: dict[tuple[int, int], int] = field(default_factory=dict)
    updated: dict[tuple[int, int], int] = field(default_factory=dict)
    page: int = 0
    at: int = 0

    def __post_init__(self) -> None:
        self._next_page()

    def group(self, gtid: Gtid, events: Sequence[bytes], piece: int | None = None, first: int = 0) -> None:
        """An event group. piece: bytes of the pieces in which all but the GTID event lies out of band.

        first: how many of the other events are in a forest of their own, the first one.
        """
        payload, forests = b"".join(events), list[Forest]()
        if piece is not None:
            payload = events[0]
            for part in (events[1 : first + 1], events[first + 1 :]):
                data, forest = b"".join(part), Forest(self)
                for at in range(0, len(data), piece):
                    forest.add(data[at : at + piece])
                forests += [forest] if forest.count else []
        head = b"".join(forest.reference() for forest in forests) + (b"" if len(forests) == 2 else cint(0))
        self.record(COMMIT, head + payload, gtid)

    def record(self, kind: int, data: bytes, gtid: Gtid | None = None) -> Place:
        """Writes a record in as many chunks as it needs; where it starts."""
        place, done = NOWHERE, 0
        while done < len(data):
            if self.at > PAGE - 8:
                self._next_page()
            place = place if done else (len(self.files) - 1, self.page * PAGE + self.at)
            if gtid is not None and done == 0:
                self._commit(gtid)
            size = min(len(data) - done, PAGE - 4 - 3 - self.at)
            flags = (CONT if done else 0) | (LAST if done + size == len(data) else 0)
            self._chunk(kind | flags, data[done : done + size])
            done += size
        return place

    def _commit(self, gtid: Gtid) -> None:
        domain, server, number = gtid
        for state in (self.full, self.updated):
            state.pop((domain, server), None)
            state[domain, server] = number

    def _chunk(self, head: int, data: bytes) -> None:
        start = self.page * PAGE + self.at
        self.files[-1][start : start + 3 + len(data)] = bytes([head]) + struct.pack("<H", len(data)) + data
        self.at += 3 + len(data)

    def _next_page(self) -> None:
        if self.files:
            end = self.page * PAGE + PAGE - 4
            self.files[-1][self.page * PAGE + self.at : end] = b"\xff" * (PAGE - 4 - self.at)
        if not self.files or self.page + 1 == self.pages:
            self.files.append(bytearray(self.pages * PAGE))
            self.page, self.updated = 0, {}
        self.page, self.at = self.page + 1, 0
        if self.page == 1 or (self.page % self.interval == 0 and self.page + 1 < self.pages):
            state = self.full if self.page == 1 else self.updated
            listed = (number for (domain, server), seq in state.items() for number in (domain, server, seq))
            self._chunk(STATE | LAST, cints((len(state), 0, *listed)))

    def close(self) -> list[Path]:
        """Writes the files, and an empty one that is held in reserve."""
        self.folder.mkdir()
        for number, data in enumerate(self.files):
            fields = (0x010DFEFE, 14, 1, 0, number, self.pages, 12288 + 1000 * number, self.interval, 0, 2**64 - 1)
            struct.pack_into("<IIIIQQQQQQ", data, 0, *fields)
            struct.pack_into("<I", data, 508, crc32c.crc32c(bytes(data[:508])))
            for page in range(0, len(data), PAGE):
                if any(data[page : page + PAGE]):
                    struct.pack_into("<I", data, page + PAGE - 4, crc32c.crc32c(bytes(data[page : page + PAGE - 4])))
        names = [self.folder / f"binlog-{number:06d}.ibb" for number in range(len(self.files) + 1)]
        for path, content in zip(names, [*self.files, bytes(self.pages * PAGE)], strict=True):
            path.write_bytes(content)
        return names
