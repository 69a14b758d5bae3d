"""Read pages and records anywhere in a log, to follow references. Caches a few pages; each is checked before use."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Iterator
from typing import Final

from binlogtool.formats.derived import unpacker_of
from binlogtool.formats.layouts import CodecError, Read
from binlogtool.formats.mariadb_innodb_binlog.codes import (
    CHUNK_HEAD,
    CONT,
    CRC_SIZE,
    FILLER,
    KIND,
    LAST,
    NESTED,
    SHORT_HEADER,
    RecordType,
    file_name,
)
from binlogtool.formats.mariadb_innodb_binlog.records.context import (
    FileContext,
    FileHeader,
    page_crc_right,
    parse_header,
    short_crc_right,
)
from binlogtool.formats.mariadb_innodb_binlog.records.records import Place
from binlogtool.formats.mariadb_innodb_binlog.schema import CHUNK
from binlogtool.limits import MIB, Limits

_length = unpacker_of(CHUNK, "length")

KEPT_PAGES: Final = 64
KEPT_FILES: Final = 64

_TIMES: Final = 4
_SLACK: Final = 16 * MIB
_VISIT: Final = 128
"""A store reads at most `_TIMES` the bytes of the files that it opened, and some; each visit counts for some bytes."""


class UnreadableError(Exception):
    """A record cannot be read.

    Attributes:
        missing: its file does not exist.
        diagnosis: see docs/spec/mariadb-innodb-binlog.md#15-invariants-for-verify-and-diagnoses.
    """

    def __init__(self, why: str, diagnosis: str, missing: bool = False) -> None:
        super().__init__(why)
        self.diagnosis = diagnosis
        self.missing = missing


def _sound(page: bytes, _file_no: int, _page_no: int) -> bytes | None:
    return page if page_crc_right(page) else None


def next_pages(context: FileContext, taken: Callable[[bytes, int, int], bytes | None] = _sound) -> Iterator[bytes]:
    """Iterate over the data pages of the next file, as far as they are accepted.

    Nothing if one of the two files is not the one that its name says, or this file is shorter than its header says.

    Args:
        accept_page: returns the page to use for (page, file number, page number); None = not accepted.
    """
    number, size = context.number, context.page_size
    read = None if context.beside is None or number is None else context.beside(file_name(number + 1))
    if read is None or number is None or not _complete(context.header, number, context.size, size):
        return
    head = read(0, SHORT_HEADER)
    header = parse_header(head) if short_crc_right(head) else None
    if header is not None and header.file_no != number + 1:
        return
    at = size
    while len(page := read(at, size)) == size and (counts := taken(page, number + 1, at // size)) is not None:
        yield counts
        at += size


def own_pages(context: FileContext, at: int) -> Iterator[bytes]:
    """Iterate over the data pages of this file from `offset` on; ends with b"" at a page that is not sound.

    Args:
        offset: end of the part that was read; 0 = all was read.
    """
    read, size = context.read, context.page_size
    while read is not None and at and context.size is not None and at + size <= context.size:
        page = read(at, size)
        if len(page) < size or not page_crc_right(page):
            yield b""
            return
        yield page
        at += size


def _complete(header: FileHeader | None, number: int, file_size: int | None, page_size: int) -> bool:
    """Check if a record may continue after the end of this file."""
    if header is None:
        return True
    whole = file_size is None or file_size >= header.page_count * page_size
    return header.file_no == number and whole


def tail_behind(context: FileContext) -> bool:
    """Check that only crash leftovers follow this file: an empty file, or one with a single bad or first page."""
    number, beside = context.number, context.beside
    if number is None or beside is None:
        return True
    for step in (1, 2):
        read = beside(file_name(number + step))
        if read is None:
            return beside(file_name(number + step + 1)) is None
        size = context.page_size
        if not any(read(0, SHORT_HEADER)) and not any(read(size, size)):
            return True
        if step == 1:
            last = _first_stop(read, size)
            if any(read(last + size, size)):
                return False
    return False


def _first_stop(read: Read, size: int) -> int:
    """Return the offset of the first page that is not sound."""
    at = size
    while len(page := read(at, size)) == size and page_crc_right(page):
        at += size
    return at


def size_of(read: Read) -> int:
    """Find the size of a file by reading."""
    high = MIB
    while read(high - 1, 1):
        high *= 2
    low = 0
    while low < high:
        middle = (low + high) // 2
        low, high = (middle + 1, high) if read(middle, 1) else (low, middle)
    return low


class Store:
    """Reads the files of a log, by number.

    Attributes:
        read_bytes: number of bytes read from them.
    """

    def __init__(self, context: FileContext) -> None:
        self._context = context
        self._size = context.page_size
        self._pages: OrderedDict[tuple[int, int], bytes] = OrderedDict()
        self._files: OrderedDict[int, Read | None] = OrderedDict()
        self._allowance = _SLACK
        self._allowed: set[int] = set()
        self.read_bytes = 0

    def file(self, number: int) -> Read | None:
        """Return the function that reads a file; None if it does not exist (or its name cannot be used)."""
        context = self._context
        known: Read | None
        size: int | None
        if number == context.number and context.read is not None:
            known, size = context.read, context.size
        elif number in self._files:
            return self._files[number]
        else:
            known = None if context.beside is None or number >> 63 else context.beside(file_name(number))
            self._files[number] = known
            if len(self._files) > KEPT_FILES:
                self._files.popitem(last=False)
            size = None
        if known is not None and number not in self._allowed:
            self._allowed.add(number)
            self._allowance += _TIMES * (size_of(known) if size is None else size)
        return known

    def _charge(self, size: int) -> None:
        """Deduct a read from the allowance: forged references could lead to the same data without end."""
        self._allowance -= size + _VISIT
        if self._allowance < 0:
            raise UnreadableError("references lead to far more out-of-band data than the files hold", "oob-too-large")

    def page(self, file_no: int, page_no: int) -> bytes:
        """Read a sound page.

        Raises:
            UnreadableError: there is none.
        """
        key = (file_no, page_no)
        known = self._pages.get(key)
        if known is not None:
            self._pages.move_to_end(key)
            return known
        read = self.file(file_no)
        if read is None:
            raise UnreadableError(f"file {file_no} is not there", "oob-missing", missing=True)
        data = read(page_no * self._size, self._size)
        self.read_bytes += len(data)
        if len(data) < self._size:
            raise UnreadableError(f"file {file_no} has no page {page_no}", "oob-missing", missing=True)
        sound = data if page_crc_right(data) else self.unproven(file_no, page_no, data)
        if sound is None:
            raise UnreadableError(f"page {page_no} of file {file_no} is damaged", "oob-missing")
        data = self._pages[key] = sound
        if len(self._pages) > KEPT_PAGES:
            self._pages.popitem(last=False)
        return data

    def unproven(self, file_no: int, page_no: int, data: bytes) -> bytes | None:
        """Return the page to use instead of one with a wrong CRC; None = none."""
        return None

    def pieces(self, place: Place, kind: RecordType) -> Iterator[memoryview]:
        """Iterate over the data of the record at a position, chunk by chunk.

        Raises:
            UnreadableError: there is no such record, or it is incomplete.
        """
        file_no, (page_no, at) = place.file_no, divmod(place.offset, self._size)
        if page_no == 0 or at > self._size - CRC_SIZE - CHUNK_HEAD - 1:
            raise UnreadableError(f"{place} is no place of a record", "oob-wrong-type")
        wanted = int(kind)
        while True:
            page = self.page(file_no, page_no)
            flags, start, end = self._chunk(page, at, wanted, place)
            self._charge(end - start)
            yield memoryview(page)[start:end]
            if flags & LAST:
                return
            file_no, page_no, at = self._next(file_no, page_no, wanted)
            wanted = kind | CONT

    def _chunk(self, page: bytes, at: int, wanted: int, place: Place) -> tuple[int, int, int]:
        """Return (type byte, start of data, end of data) of the chunk at an offset in a page."""
        byte = page[at] if at < self._size - CRC_SIZE - CHUNK_HEAD else 0
        end = at + CHUNK_HEAD + _length(page, at)[0]
        if byte & ~LAST != wanted or not at + CHUNK_HEAD < end <= self._size - CRC_SIZE:
            name = RecordType(wanted & KIND).name
            what = "is not whole" if wanted & CONT else f"is no {name} record"
            diagnosis = "oob-missing" if wanted & CONT else "oob-wrong-type"
            raise UnreadableError(f"what stands at {place} {what}", diagnosis)
        return byte, at + CHUNK_HEAD, end

    def _next(self, file_no: int, page_no: int, wanted: int) -> tuple[int, int, int]:
        """Return the position of an open record's next chunk: the first one of the next page that is not nested."""
        page_no += 1
        inside = False
        while True:
            try:
                page = self.page(file_no, page_no)
            except UnreadableError as error:
                if not error.missing or page_no == 1 or not self._ends(file_no, page_no):
                    raise
                file_no, page_no = file_no + 1, 1
                continue
            at = 0
            while at <= self._size - CRC_SIZE - CHUNK_HEAD - 1 and page[at] not in (0, FILLER):
                byte = page[at]
                nested = byte & KIND in NESTED and (bool(byte & CONT) == inside)
                if not nested or (byte == wanted | (byte & LAST) and byte & CONT and not inside):
                    return file_no, page_no, at
                inside = not byte & LAST
                at += CHUNK_HEAD + _length(page, at)[0]
            if at == 0:
                raise UnreadableError(f"page {page_no} of file {file_no} is empty", "oob-missing")
            page_no += 1

    def _ends(self, file_no: int, page_no: int) -> bool:
        """Check if a file ends before this page according to its header."""
        read = self.file(file_no)
        head = b"" if read is None else read(0, SHORT_HEADER)
        header = parse_header(head)
        if read is None or header is None:
            return False
        return not short_crc_right(head) or (header.file_no == file_no and page_no >= header.page_count)

    def record(self, place: Place, kind: RecordType, most: int) -> bytes:
        """Read the data of the record at a position.

        Raises:
            UnreadableError: there is no such record, it is incomplete, or longer than `max_bytes`.
        """
        joined = bytearray()
        for piece in self.pieces(place, kind):
            joined += piece
            if len(joined) > most:
                raise UnreadableError(f"the record at {place} has more than {most:,} bytes", "record-too-long")
        return bytes(joined)


class Joined:
    """Codec of the annotated hexdump: returns the whole record for its first chunk, from whichever files."""

    located = True

    def __init__(self, context: FileContext) -> None:
        self._context = context
        self._store: Store | None = None

    def __call__(self, payload: memoryview, limits: Limits, offset: int) -> bytes:
        """Return the record whose first chunk has its data at this file offset.

        Raises:
            CodecError: it is incomplete.
        """
        store = self._store = self._store or Store(self._context)
        place = Place(self._context.number or 0, offset - CHUNK_HEAD)
        try:
            page_no, at = divmod(place.offset, self._context.page_size)
            kind = RecordType(store.page(place.file_no, page_no)[at] & KIND)
            return store.record(place, kind, limits.max_inflate)
        except UnreadableError as error:
            raise CodecError("payload-undecodable", str(error)) from None
