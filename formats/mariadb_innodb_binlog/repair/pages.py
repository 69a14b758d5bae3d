"""Build a repaired file page by page: pages that stay, pages that become zero, pages from the redo log."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import msgspec

from binlogtool.formats.checksums import CRC32C
from binlogtool.formats.layouts import Read
from binlogtool.formats.mariadb_innodb_binlog.codes import CRC_SIZE
from binlogtool.formats.repair_rules import Piece
from binlogtool.limits import MIB


def cut_page(page: bytes, used: int) -> bytes:
    """Return a page with zeros after its first `used` bytes, which must be proven by its old CRC."""
    end = len(page) - CRC_SIZE
    kept = page[:used].ljust(end, b"\0")
    return kept + CRC32C(kept).to_bytes(CRC_SIZE, "little")


def content(page: bytes) -> int:
    """Return the bytes of a page up to the last one that is not zero, without the CRC."""
    return len(page[:-CRC_SIZE].rstrip(b"\0")) if any(page) else 0


def written_pages(read: Read, first: int, size: int, page_size: int) -> Iterator[tuple[int, bytes]]:
    """Iterate over (number, page) of the pages from `first` on that are not all zero; the last one may be shorter."""
    step = max(MIB // page_size, 1) * page_size
    for start in range(first * page_size, size, step):
        data = read(start, min(step, size - start))
        if any(data):
            for at in range(0, len(data), page_size):
                page = data[at : at + page_size]
                if any(page):
                    yield (start + at) // page_size, page


class Rebuilt(msgspec.Struct):
    """A file as it is to become.

    Attributes:
        size: in bytes, afterwards.
        pages: changed pages, by number; None = zeros.
        lost_bytes: bytes of content that are removed.
        new_bytes: bytes that come from elsewhere (the redo log).
    """

    size: int
    lost: int = 0
    news: int = 0
    pages: dict[int, bytes | None] = msgspec.field(default_factory=dict)

    def put(self, number: int, old: bytes, new: bytes) -> None:
        """Replace a page, of which the file may have less, or nothing."""
        same = _same(old, new)
        self.pages[number] = new
        self.lost += max(content(old.ljust(len(new), b"\0")) - same, 0)
        self.news += len(new[same:-CRC_SIZE].rstrip(b"\0"))

    def clear(self, read: Read, first: int, size: int, page_size: int) -> None:
        """Clear all pages from `first` on.

        Args:
            size: current size of the file.
        """
        for number, page in written_pages(read, first, size, page_size):
            self.pages[number] = None
            self.lost += content(page.ljust(page_size, b"\0"))

    def pieces(self, read: Read, size: int, page_size: int) -> tuple[Piece, ...]:
        """Return the whole result as pieces.

        Args:
            size: current size of the file.
        """
        return tuple(_joined(_pieces(self.pages, read, size, self.size, page_size)))


def _same(old: bytes, new: bytes) -> int:
    """Return the number of bytes that both pages start with."""
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
    """Yield an unchanged range; zeros after the end of the file."""
    yield Piece(start, max(start, min(end, size)))
    yield Piece(zeros=max(0, end - max(start, size)))


def _page(start: int, old: bytes, new: bytes) -> Iterator[Piece]:
    """Yield a page: the common prefix stays, then new bytes, zeros, and the CRC."""
    same, end = _same(old, new), len(new) - CRC_SIZE
    data = new[same:end].rstrip(b"\0")
    yield Piece(start, start + same)
    yield Piece(data=data)
    yield Piece(zeros=end - same - len(data))
    yield Piece(data=new[end:])


def _joined(pieces: Iterator[Piece]) -> Iterator[Piece]:
    """Drop empty pieces and merge neighbours of one kind."""
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
