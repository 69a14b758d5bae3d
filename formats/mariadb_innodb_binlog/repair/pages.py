"""The bytes of a repaired file, page by page: what stays, what becomes zero, what the redo log puts in."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import msgspec

from binlogtool.formats.checksums import CRC32C
from binlogtool.formats.layouts import Read
from binlogtool.formats.mariadb_innodb_binlog.codes import CRC_SIZE
from binlogtool.formats.repair_rules import Piece
from binlogtool.limits import MIB


def cut_page(page: bytes, used: int) -> bytes:
    """A page with nothing behind its first `used` bytes. Its CRC must have been right: those bytes are proven by it."""
    end = len(page) - CRC_SIZE
    kept = page[:used].ljust(end, b"\0")
    return kept + CRC32C(kept).to_bytes(CRC_SIZE, "little")


def content(page: bytes) -> int:
    """Bytes of a page up to its last one that is not zero; the CRC does not count."""
    return len(page[:-CRC_SIZE].rstrip(b"\0")) if any(page) else 0


def written_pages(read: Read, first: int, size: int, page_size: int) -> Iterator[tuple[int, bytes]]:
    """The pages from `first` on that are not all zero, with their numbers; the last one may be shorter."""
    step = max(MIB // page_size, 1) * page_size
    for start in range(first * page_size, size, step):
        data = read(start, min(step, size - start))
        if any(data):
            for at in range(0, len(data), page_size):
                page = data[at : at + page_size]
                if any(page):
                    yield (start + at) // page_size, page


class Rebuilt(msgspec.Struct):
    """A file as it is to be. size: in bytes, afterwards. pages: the new ones, by number; None = zeros.

    lost: bytes of content that go. news: bytes that come from elsewhere (the redo log).
    """

    size: int
    lost: int = 0
    news: int = 0
    pages: dict[int, bytes | None] = msgspec.field(default_factory=dict)

    def put(self, number: int, old: bytes, new: bytes) -> None:
        """Another page in place of one, of which the file may have less, or nothing."""
        same = _same(old, new)
        self.pages[number] = new
        self.lost += max(content(old.ljust(len(new), b"\0")) - same, 0)
        self.news += len(new[same:-CRC_SIZE].rstrip(b"\0"))

    def clear(self, read: Read, first: int, size: int, page_size: int) -> None:
        """No content from a page on. size: of the file as it is."""
        for number, page in written_pages(read, first, size, page_size):
            self.pages[number] = None
            self.lost += content(page.ljust(page_size, b"\0"))

    def pieces(self, read: Read, size: int, page_size: int) -> tuple[Piece, ...]:
        """The whole result. size: of the file as it is."""
        return tuple(_joined(_pieces(self.pages, read, size, self.size, page_size)))


def _same(old: bytes, new: bytes) -> int:
    """How many bytes both begin with."""
    low, high = 0, min(len(old), len(new) - CRC_SIZE)
    while low < high:
        middle = (low + high + 1) // 2
        low, high = (middle, high) if old[:middle] == new[:middle] else (low, middle - 1)
    return low


def _pieces(pages: Mapping[int, bytes | None], read: Read, size: int, wanted: int, page_size: int) -> Iterator[Piece]:
    place = 0
    for number in sorted(pages):
        start = number * page_size
        if start >= wanted:
            break
        yield from _old(place, start, size)
        new = pages[number]
        yield from [Piece(zeros=page_size)] if new is None else _page(start, read(start, page_size), new)
        place = start + page_size
    yield from _old(place, wanted, size)


def _old(start: int, end: int, size: int) -> Iterator[Piece]:
    """A range as it is; behind the end of the file, zeros."""
    yield Piece(start, max(start, min(end, size)))
    yield Piece(zeros=max(0, end - max(start, size)))


def _page(start: int, old: bytes, new: bytes) -> Iterator[Piece]:
    """A page: what is the same stays, then new bytes, zeros, and the CRC."""
    same, end = _same(old, new), len(new) - CRC_SIZE
    data = new[same:end].rstrip(b"\0")
    yield Piece(start, start + same)
    yield Piece(data=data)
    yield Piece(zeros=end - same - len(data))
    yield Piece(data=new[end:])


def _joined(pieces: Iterator[Piece]) -> Iterator[Piece]:
    """The same without empty ones; neighbours of one kind are one."""
    last: Piece | None = None
    for piece in pieces:
        if not piece.size:
            continue
        both = None if last is None else _both(last, piece)
        if last is not None and both is None:
            yield last
        last = both or piece
    if last is not None:
        yield last


def _both(one: Piece, two: Piece) -> Piece | None:
    if one.kept and two.kept and one.end == two.start:
        return Piece(one.start, two.end)
    return Piece(zeros=one.zeros + two.zeros) if one.zeros and two.zeros else None
