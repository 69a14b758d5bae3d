"""A tiny reader of MariaDB's InnoDB binlog, written from the specification alone: header page, pages, chunks, records.

A frame is a page. It holds the records that end in it: one that goes on in the next file is none of this file.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from dataclasses import dataclass, field

import crc32c

from tests.harness.oracle import Field, Frame, Walk

HEADER = (
    ("magic", 0, 4), ("page_size_shift", 4, 8), ("version", 8, 16), ("file_no", 16, 24), ("page_count", 24, 32),
    ("start_lsn", 32, 40), ("diff_state_interval", 40, 48), ("oob_ref_file_no", 48, 56), ("xa_ref_file_no", 56, 64),
    ("zero", 64, 508), ("short crc32c", 508, 512),
)  # fmt: skip
LAST, CONT, KIND = 0x40, 0x80, 0x3F
STATE, DUMMY, MOST = 2, 4, 6
UNSEEN = 0
"""A record whose start was not seen may be open: at the start of a file, and behind damage."""


@dataclass
class Open:
    """What is open when a page begins. kind, nested: types of records, None = none; foreign: it began elsewhere."""

    kind: int | None = UNSEEN
    nested: int | None = None
    foreign: bool = False
    ended: bool = False
    sound: bool = True

    def lost(self) -> None:
        """Behind damage anything may go on."""
        self.kind, self.nested, self.foreign, self.sound = UNSEEN, None, False, False


@dataclass
class Seen:
    """Of one page: how many records end in it, and the last place at which none is open."""

    records: int = 0
    end: int | None = None
    fields: list[Field] = field(default_factory=list)


def ibb(data: bytes) -> Walk:
    """The pages behind a header page that is whole (specification sections 2, 3 and 5)."""
    size = page_size(data)
    if size is None:
        return Walk(None, (), None, False, ())
    fields = [Field(f"header: {name}", start, end) for name, start, end in HEADER]
    if size > 512:
        fields += [Field("header: unused", 512, size - 4), Field("header: page crc32c", size - 4, size)]
    frames, open_, clean = [], Open(), right(data[:size])
    for at in range(size, len(data), size):
        frame = page(data, at, size, open_)
        if frame is None:
            clean = False
            open_.lost()
            continue
        frames.append(frame)
    return Walk(size, tuple(frames), None, clean and open_.sound, tuple(fields))


def page_size(data: bytes) -> int | None:
    """Of a file whose header page is right."""
    if len(data) < 512 or data[:4] != b"\xfe\xfe\x0d\x01" or not right(data[:512]):
        return None
    (shift,) = struct.unpack_from("<I", data, 4)
    return 1 << shift if 9 <= shift <= 16 and len(data) >= 1 << shift else None


def right(page: bytes) -> bool:
    """Does it end with its CRC-32C?"""
    return int(crc32c.crc32c(page[:-4])) == int.from_bytes(page[-4:], "little")


def page(data: bytes, at: int, size: int, open_: Open) -> Frame | None:
    """One page, and what it does to the records; None = it is damaged."""
    whole, limit = data[at : at + size], at + size - 4
    if not any(whole) and len(whole) == size:
        open_.ended = True
        return Frame(at, at + size, 0, (Field("never written", at, at + size),), durable=None)
    if len(whole) < size or not right(whole):
        return None
    seen = Seen()
    for place, kind, start, end in chunks(data, at, limit, open_):
        take(kind, end, open_, seen)
        seen.fields += [Field("chunk type", place, place + 1), Field("chunk length", place + 1, start)]
        seen.fields.append(Field("payload", start, end))
    used = seen.fields[-1].end if seen.fields else at
    rest = "zeros behind the end" if open_.ended else "filler"
    seen.fields += [Field(rest, used, limit)] if used < limit else []
    fields = (*seen.fields, Field("page crc32c", limit, at + size))
    return Frame(at, at + size, seen.records, fields, durable=seen.end)


def chunks(data: bytes, at: int, limit: int, open_: Open) -> Iterator[tuple[int, int, int, int]]:
    """Place, type byte, and the range of the data of each chunk of a page; a page that breaks the rules ends."""
    if open_.ended:
        open_.ended = False
        open_.lost()
    while at <= limit - 4:
        kind, length = data[at], int.from_bytes(data[at + 1 : at + 3], "little")
        if kind == 0:
            open_.ended = True
            open_.sound = open_.sound and not any(data[at:limit])
            return
        if not 1 <= kind & KIND <= MOST or not length or at + 3 + length > limit:
            open_.lost()
            return
        yield at, kind, at + 3, at + 3 + length
        at += 3 + length
    rest = data[at:limit]
    open_.ended = rest[:1] == b"\0"
    open_.sound = open_.sound and rest in (bytes(len(rest)), b"\xff" * len(rest))


def take(flags: int, end: int, open_: Open, seen: Seen) -> None:
    """A chunk: does a record end with it?"""
    kind, last, cont = flags & KIND, bool(flags & LAST), bool(flags & CONT)
    if open_.nested is not None:
        if cont and kind == open_.nested:
            open_.nested = None if last else kind
            seen.records += last
            return
        open_.kind = open_.nested = None
        open_.sound = False
    if open_.kind is not None and cont and open_.kind in (UNSEEN, kind):
        whole = open_.kind != UNSEEN and not open_.foreign
        open_.foreign = not whole
        open_.kind = None if last else kind
        seen.records += last and whole
    elif open_.kind is not None and not cont and kind in (STATE, DUMMY):
        open_.nested = None if last else kind
        seen.records += last
    else:
        open_.sound = open_.sound and not cont and open_.kind in (None, UNSEEN)
        open_.kind, open_.foreign = None if last else kind, cont
        seen.records += last and not cont
    if last and (open_.kind is None or (open_.kind == UNSEEN and open_.nested is None)):
        seen.end = end
