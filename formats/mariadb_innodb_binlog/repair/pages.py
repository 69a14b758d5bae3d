"""Build a repaired file page by page: pages that stay, pages that become zero, pages from the redo log."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import msgspec

from binlogtool.formats.checksums import CRC32C
from binlogtool.formats.layouts import RangeReader
from binlogtool.formats.mariadb_innodb_binlog.codes import CRC_SIZE
from binlogtool.formats.repair_rules import ResultPiece
from binlogtool.limits import MIB


def truncate_page(page: bytes, used: int) -> bytes:
    """Return a page with zeros after its first `used` bytes, which must be proven by its old CRC."""
    end = len(page) - CRC_SIZE
    payload = page[:used].ljust(end, b"\0")
    return payload + CRC32C(payload).to_bytes(CRC_SIZE, "little")


def content_size(page: bytes) -> int:
    """Return the bytes of a page up to the last one that is not zero, without the CRC."""
    return len(page[:-CRC_SIZE].rstrip(b"\0")) if any(page) else 0


def iter_nonzero_pages(read: RangeReader, first: int, size: int, page_size: int) -> Iterator[tuple[int, bytes]]:
    """Iterate over (number, page) of the pages from `first` on that are not all zero; the last one may be shorter."""
    step = max(MIB // page_size, 1) * page_size
    for start in range(first * page_size, size, step):
        data = read(start, min(step, size - start))
        if any(data):
            for offset in range(0, len(data), page_size):
                page = data[offset : offset + page_size]
                if any(page):
                    yield (start + offset) // page_size, page


class RebuiltFile(msgspec.Struct):
    """A file as it is to become.

    Attributes:
        size: in bytes, afterwards.
        pages: changed pages, by number; None = zeros.
        lost_bytes: bytes of content that are removed.
        new_bytes: bytes that come from elsewhere (the redo log).
    """

    size: int
    lost_bytes: int = 0
    new_bytes: int = 0
    pages: dict[int, bytes | None] = msgspec.field(default_factory=dict)

    def replace_page(self, number: int, old: bytes, new: bytes) -> None:
        """Replace a page, of which the file may have less, or nothing."""
        common = _common_prefix_size(old, new)
        self.pages[number] = new
        self.lost_bytes += max(content_size(old.ljust(len(new), b"\0")) - common, 0)
        self.new_bytes += len(new[common:-CRC_SIZE].rstrip(b"\0"))

    def clear_pages(self, read: RangeReader, first: int, size: int, page_size: int) -> None:
        """Clear all pages from `first` on.

        Args:
            size: current size of the file.
        """
        for number, page in iter_nonzero_pages(read, first, size, page_size):
            self.pages[number] = None
            self.lost_bytes += content_size(page.ljust(page_size, b"\0"))

    def to_pieces(self, read: RangeReader, size: int, page_size: int) -> tuple[ResultPiece, ...]:
        """Return the whole result as pieces.

        Args:
            size: current size of the file.
        """
        return tuple(_merge_pieces(_iter_pieces(self.pages, read, size, self.size, page_size)))


def _common_prefix_size(old: bytes, new: bytes) -> int:
    """Return the number of bytes that both pages start with."""
    low, high = 0, min(len(old), len(new) - CRC_SIZE)
    while low < high:
        middle = (low + high + 1) // 2
        low, high = (middle, high) if old[:middle] == new[:middle] else (low, middle - 1)
    return low


def _iter_pieces(
    pages: Mapping[int, bytes | None], read: RangeReader, size: int, new_size: int, page_size: int
) -> Iterator[ResultPiece]:
    offset = 0
    for number in sorted(pages):
        start = number * page_size
        if start >= new_size:
            break
        yield from _unchanged_pieces(offset, start, size)
        new = pages[number]
        yield from [ResultPiece(zeros=page_size)] if new is None else _page_pieces(start, read(start, page_size), new)
        offset = start + page_size
    yield from _unchanged_pieces(offset, new_size, size)


def _unchanged_pieces(start: int, end: int, size: int) -> Iterator[ResultPiece]:
    """Yield an unchanged range; zeros after the end of the file."""
    yield ResultPiece(start, max(start, min(end, size)))
    yield ResultPiece(zeros=max(0, end - max(start, size)))


def _page_pieces(start: int, old: bytes, new: bytes) -> Iterator[ResultPiece]:
    """Yield a page: the common prefix stays, then new bytes, zeros, and the CRC."""
    common, end = _common_prefix_size(old, new), len(new) - CRC_SIZE
    data = new[common:end].rstrip(b"\0")
    yield ResultPiece(start, start + common)
    yield ResultPiece(data=data)
    yield ResultPiece(zeros=end - common - len(data))
    yield ResultPiece(data=new[end:])


def _merge_pieces(pieces: Iterator[ResultPiece]) -> Iterator[ResultPiece]:
    """Drop empty pieces and merge neighbours of one kind."""
    last: ResultPiece | None = None
    for piece in pieces:
        if not piece.size:
            continue
        merged = None if last is None else _merge_pair(last, piece)
        if last is not None and merged is None:
            yield last
        last = merged or piece
    if last is not None:
        yield last


def _merge_pair(first: ResultPiece, second: ResultPiece) -> ResultPiece | None:
    if first.is_original and second.is_original and first.end == second.start:
        return ResultPiece(first.start, second.end)
    return ResultPiece(zeros=first.zeros + second.zeros) if first.zeros and second.zeros else None
