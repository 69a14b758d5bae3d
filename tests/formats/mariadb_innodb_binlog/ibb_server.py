"""How a server finds the end of its log when it starts (specification section 10), written from the text alone."""

from __future__ import annotations

import struct
from pathlib import Path
from typing import NamedTuple

import crc32c

STATE, DUMMY = 2, 4


class End(NamedTuple):
    """Where a server goes on writing: file, offset. open: type of the record that has no end there, 0 = none."""

    file: int
    offset: int
    open: int


def right(page: bytes) -> bool:
    """The CRC, or nothing but zeros."""
    return not any(page) or crc32c.crc32c(page[:-4]) == int.from_bytes(page[-4:], "little")


def header(data: bytes) -> tuple[int, int] | None:
    """log2 of the page size, and pages; None for an empty file."""
    if not any(data[:512]):
        return None
    assert crc32c.crc32c(data[:508]) == int.from_bytes(data[508:512], "little")
    magic, shift, major, _, _, pages = struct.unpack_from("<IIIIQQ", data)
    assert (magic, major) == (0x010DFEFE, 1)
    return shift, pages


def restart(folder: Path) -> End:
    """Scans a directory as a server does, and asserts on the way whatever the server would stop at."""
    files = {int(path.name[7:-4]): path.read_bytes() for path in folder.glob("binlog-*.ibb")}
    assert sorted(files) == list(range(min(files), max(files) + 1))
    full = [number for number in sorted(files) if header(files[number]) is not None]
    assert set(files) - set(full) <= {full[-1] + 1, full[-1] + 2}
    opened = 0
    for number in full:
        opened, end = _file(files[number], opened, last=number == full[-1])
    return End(full[-1], end, opened)


def _file(data: bytes, opened: int, *, last: bool) -> tuple[int, int]:
    """Walks the pages of a file: the record that is open behind them, and the end of data."""
    known = header(data)
    assert known is not None
    size, pages = 1 << known[0], known[1]
    assert len(data) % size == 0
    assert len(data) == size * pages if last else len(data) <= size * pages
    written = [data[at : at + size] for at in range(0, len(data), size)]
    assert all(right(page) for page in written)
    used = [bool(page[0]) for page in written]
    assert used == sorted(used, reverse=True), "a page that is not empty behind one that is"
    assert all(flag or not any(page) for flag, page in zip(used, written, strict=True))
    assert all(used[:1] if last else used)
    count, ends = sum(used), [size]
    for number in range(1, count):
        at, opened = _page(written[number], opened)
        ends.append(number * size + at)
    assert all(place % size > size - 8 for place in ends[1:-1]), "an end of data, and pages after it"
    return opened, ends[-1]


def _page(page: bytes, opened: int) -> tuple[int, int]:
    """The place behind the last chunk of a page, and the record that is open there."""
    at = nested = 0
    while at <= len(page) - 8 and page[at] not in (0, 0xFF):
        kind, goes_on, ends = page[at] & 63, bool(page[at] & 128), bool(page[at] & 64)
        length = int.from_bytes(page[at + 1 : at + 3], "little")
        assert 1 <= kind <= 6 and length and at + 3 + length <= len(page) - 4
        inside = kind in (STATE, DUMMY) and opened and not (goes_on and opened == kind)
        if inside:
            nested = 0 if ends else kind
        else:
            assert goes_on == bool(opened) and (not opened or opened == kind)
            opened = 0 if ends else kind
        at += 3 + length
    if at <= len(page) - 8:
        assert not nested
    # a chunk of filler, whose content is not defined, or zeros
    assert page[at] == 0xFF or not any(page[at:-4]), "bytes behind the end of data"
    return at, opened
