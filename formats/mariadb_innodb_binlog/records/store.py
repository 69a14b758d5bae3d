"""Read pages and records anywhere in a log, to follow references. Caches a few pages; each is checked before use."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Iterator
from typing import Final

from binlogtool.formats.derived import make_unpacker
from binlogtool.formats.layouts import DecompressionError, RangeReader
from binlogtool.formats.mariadb_innodb_binlog.codes import (
    CHUNK_HEAD_SIZE,
    CONTINUATION_FLAG,
    CRC_SIZE,
    FILLER_BYTE,
    LAST_CHUNK_FLAG,
    NESTABLE_TYPES,
    SHORT_HEADER_SIZE,
    TYPE_MASK,
    IbbRecordType,
    file_name,
)
from binlogtool.formats.mariadb_innodb_binlog.records.context import (
    IbbFileContext,
    IbbFileHeader,
    is_page_crc_right,
    is_short_crc_right,
    parse_header,
)
from binlogtool.formats.mariadb_innodb_binlog.records.records import IbbPosition
from binlogtool.formats.mariadb_innodb_binlog.schema import CHUNK
from binlogtool.limits import MIB, Limits

_unpack_length = make_unpacker(CHUNK, "length")

MAX_CACHED_PAGES: Final = 64
MAX_CACHED_FILES: Final = 64

_MAX_READ_FACTOR: Final = 4
_BASE_ALLOWANCE: Final = 16 * MIB
_VISIT_COST: Final = 128
"""A store reads at most `_TIMES` the bytes of the files that it opened, and some; each visit counts for some bytes."""


class UnreadableError(Exception):
    """A record cannot be read.

    Attributes:
        missing: its file does not exist.
        diagnosis: see docs/spec/mariadb_innodb_binlog.md#validation.
    """

    def __init__(self, reason: str, diagnosis: str, missing: bool = False) -> None:
        super().__init__(reason)
        self.diagnosis = diagnosis
        self.missing = missing


def _accept_sound_page(page: bytes, _file_no: int, _page_no: int) -> bytes | None:
    return page if is_page_crc_right(page) else None


def iter_next_file_pages(
    context: IbbFileContext, accept_page: Callable[[bytes, int, int], bytes | None] = _accept_sound_page
) -> Iterator[bytes]:
    """Iterate over the data pages of the next file, as far as they are accepted.

    Nothing if one of the two files is not the one that its name says, or this file is shorter than its header says.

    Args:
        accept_page: returns the page to use for (page, file number, page number); None = not accepted.
    """
    number, size = context.number, context.page_size
    read = None if context.open_sibling is None or number is None else context.open_sibling(file_name(number + 1))
    if read is None or number is None or not _may_continue(context.header, number, context.size, size):
        return
    head = read(0, SHORT_HEADER_SIZE)
    header = parse_header(head) if is_short_crc_right(head) else None
    if header is not None and header.file_no != number + 1:
        return
    offset = size
    while (
        len(page := read(offset, size)) == size
        and (accepted := accept_page(page, number + 1, offset // size)) is not None
    ):
        yield accepted
        offset += size


def iter_own_pages(context: IbbFileContext, offset: int) -> Iterator[bytes]:
    """Iterate over the data pages of this file from `offset` on; ends with b"" at a page that is not sound.

    Args:
        offset: end of the part that was read; 0 = all was read.
    """
    read, size = context.read, context.page_size
    while read is not None and offset and context.size is not None and offset + size <= context.size:
        page = read(offset, size)
        if len(page) < size or not is_page_crc_right(page):
            yield b""
            return
        yield page
        offset += size


def _may_continue(header: IbbFileHeader | None, file_number: int, file_size: int | None, page_size: int) -> bool:
    """Check if a record may continue after the end of this file."""
    if header is None:
        return True
    is_whole = file_size is None or file_size >= header.page_count * page_size
    return header.file_no == file_number and is_whole


def is_crash_tail(context: IbbFileContext) -> bool:
    """Check that only crash leftovers follow this file: an empty file, or one with a single bad or first page."""
    number, beside = context.number, context.open_sibling
    if number is None or beside is None:
        return True
    for step in (1, 2):
        read = beside(file_name(number + step))
        if read is None:
            return beside(file_name(number + step + 1)) is None
        size = context.page_size
        if not any(read(0, SHORT_HEADER_SIZE)) and not any(read(size, size)):
            return True
        if step == 1:
            last = _first_unsound_page(read, size)
            if any(read(last + size, size)):
                return False
    return False


def _first_unsound_page(read: RangeReader, size: int) -> int:
    """Return the offset of the first page that is not sound."""
    offset = size
    while len(page := read(offset, size)) == size and is_page_crc_right(page):
        offset += size
    return offset


def find_file_size(read: RangeReader) -> int:
    """Find the size of a file by reading."""
    high = MIB
    while read(high - 1, 1):
        high *= 2
    low = 0
    while low < high:
        middle = (low + high) // 2
        low, high = (middle + 1, high) if read(middle, 1) else (low, middle)
    return low


class PageStore:
    """Reads the files of a log, by number.

    Attributes:
        read_bytes: number of bytes read from them.
    """

    def __init__(self, context: IbbFileContext) -> None:
        self._context = context
        self._size = context.page_size
        self._pages: OrderedDict[tuple[int, int], bytes] = OrderedDict()
        self._files: OrderedDict[int, RangeReader | None] = OrderedDict()
        self._allowance = _BASE_ALLOWANCE
        self._counted_files: set[int] = set()
        self.read_bytes = 0

    def open_file(self, number: int) -> RangeReader | None:
        """Return the function that reads a file; None if it does not exist (or its name cannot be used)."""
        context = self._context
        read: RangeReader | None
        size: int | None
        if number == context.number and context.read is not None:
            read, size = context.read, context.size
        elif number in self._files:
            return self._files[number]
        else:
            read = None if context.open_sibling is None or number >> 63 else context.open_sibling(file_name(number))
            self._files[number] = read
            if len(self._files) > MAX_CACHED_FILES:
                self._files.popitem(last=False)
            size = None
        if read is not None and number not in self._counted_files:
            self._counted_files.add(number)
            self._allowance += _MAX_READ_FACTOR * (find_file_size(read) if size is None else size)
        return read

    def _charge_read(self, size: int) -> None:
        """Deduct a read from the allowance: forged references could lead to the same data without end."""
        self._allowance -= size + _VISIT_COST
        if self._allowance < 0:
            raise UnreadableError("references lead to far more out-of-band data than the files hold", "oob-too-large")

    def read_page(self, file_no: int, page_no: int) -> bytes:
        """Read a sound page.

        Raises:
            UnreadableError: there is none.
        """
        key = (file_no, page_no)
        cached = self._pages.get(key)
        if cached is not None:
            self._pages.move_to_end(key)
            return cached
        read = self.open_file(file_no)
        if read is None:
            raise UnreadableError(f"file {file_no} is not there", "oob-missing", missing=True)
        data = read(page_no * self._size, self._size)
        self.read_bytes += len(data)
        if len(data) < self._size:
            raise UnreadableError(f"file {file_no} has no page {page_no}", "oob-missing", missing=True)
        sound = data if is_page_crc_right(data) else self.replace_unproven_page(file_no, page_no, data)
        if sound is None:
            raise UnreadableError(f"page {page_no} of file {file_no} is damaged", "oob-missing")
        data = self._pages[key] = sound
        if len(self._pages) > MAX_CACHED_PAGES:
            self._pages.popitem(last=False)
        return data

    def replace_unproven_page(self, file_no: int, page_no: int, data: bytes) -> bytes | None:
        """Return the page to use instead of one with a wrong CRC; None = none."""
        return None

    def iter_record_pieces(self, position: IbbPosition, record_type: IbbRecordType) -> Iterator[memoryview]:
        """Iterate over the data of the record at a position, chunk by chunk.

        Raises:
            UnreadableError: there is no such record, or it is incomplete.
        """
        file_no, (page_no, page_offset) = position.file_no, divmod(position.offset, self._size)
        if page_no == 0 or page_offset > self._size - CRC_SIZE - CHUNK_HEAD_SIZE - 1:
            raise UnreadableError(f"{position} is no place of a record", "oob-wrong-type")
        expected_type = int(record_type)
        while True:
            page = self.read_page(file_no, page_no)
            flags, start, end = self._find_chunk(page, page_offset, expected_type, position)
            self._charge_read(end - start)
            yield memoryview(page)[start:end]
            if flags & LAST_CHUNK_FLAG:
                return
            file_no, page_no, page_offset = self._find_next_chunk(file_no, page_no, expected_type)
            expected_type = record_type | CONTINUATION_FLAG

    def _find_chunk(
        self, page: bytes, page_offset: int, expected_type: int, position: IbbPosition
    ) -> tuple[int, int, int]:
        """Return (type byte, start of data, end of data) of the chunk at an offset in a page."""
        byte = page[page_offset] if page_offset < self._size - CRC_SIZE - CHUNK_HEAD_SIZE else 0
        end = page_offset + CHUNK_HEAD_SIZE + _unpack_length(page, page_offset)[0]
        if byte & ~LAST_CHUNK_FLAG != expected_type or not page_offset + CHUNK_HEAD_SIZE < end <= self._size - CRC_SIZE:
            name = IbbRecordType(expected_type & TYPE_MASK).name
            problem = "is not whole" if expected_type & CONTINUATION_FLAG else f"is no {name} record"
            diagnosis = "oob-missing" if expected_type & CONTINUATION_FLAG else "oob-wrong-type"
            raise UnreadableError(f"what stands at {position} {problem}", diagnosis)
        return byte, page_offset + CHUNK_HEAD_SIZE, end

    def _find_next_chunk(self, file_no: int, page_no: int, expected_type: int) -> tuple[int, int, int]:
        """Return the position of an open record's next chunk: the first one of the next page that is not nested."""
        page_no += 1
        is_nested_open = False
        while True:
            try:
                page = self.read_page(file_no, page_no)
            except UnreadableError as error:
                if not error.missing or page_no == 1 or not self._ends_before_page(file_no, page_no):
                    raise
                file_no, page_no = file_no + 1, 1
                continue
            page_offset = 0
            while page_offset <= self._size - CRC_SIZE - CHUNK_HEAD_SIZE - 1 and page[page_offset] not in (
                0,
                FILLER_BYTE,
            ):
                byte = page[page_offset]
                is_nested = byte & TYPE_MASK in NESTABLE_TYPES and (bool(byte & CONTINUATION_FLAG) == is_nested_open)
                if not is_nested or (
                    byte == expected_type | (byte & LAST_CHUNK_FLAG) and byte & CONTINUATION_FLAG and not is_nested_open
                ):
                    return file_no, page_no, page_offset
                is_nested_open = not byte & LAST_CHUNK_FLAG
                page_offset += CHUNK_HEAD_SIZE + _unpack_length(page, page_offset)[0]
            if page_offset == 0:
                raise UnreadableError(f"page {page_no} of file {file_no} is empty", "oob-missing")
            page_no += 1

    def _ends_before_page(self, file_no: int, page_no: int) -> bool:
        """Check if a file ends before this page according to its header."""
        read = self.open_file(file_no)
        head = b"" if read is None else read(0, SHORT_HEADER_SIZE)
        header = parse_header(head)
        if read is None or header is None:
            return False
        return not is_short_crc_right(head) or (header.file_no == file_no and page_no >= header.page_count)

    def read_record(self, position: IbbPosition, record_type: IbbRecordType, max_bytes: int) -> bytes:
        """Read the data of the record at a position.

        Raises:
            UnreadableError: there is no such record, it is incomplete, or longer than `max_bytes`.
        """
        joined = bytearray()
        for piece in self.iter_record_pieces(position, record_type):
            joined += piece
            if len(joined) > max_bytes:
                raise UnreadableError(f"the record at {position} has more than {max_bytes:,} bytes", "record-too-long")
        return bytes(joined)


class ChunkJoinCodec:
    """Codec of the annotated hexdump: returns the whole record for its first chunk, from whichever files."""

    located = True

    def __init__(self, context: IbbFileContext) -> None:
        self._context = context
        self._store: PageStore | None = None

    def __call__(self, payload: memoryview, limits: Limits, offset: int) -> bytes:
        """Return the record whose first chunk has its data at this file offset.

        Raises:
            CodecError: it is incomplete.
        """
        store = self._store = self._store or PageStore(self._context)
        position = IbbPosition(self._context.number or 0, offset - CHUNK_HEAD_SIZE)
        try:
            page_no, page_offset = divmod(position.offset, self._context.page_size)
            record_type = IbbRecordType(store.read_page(position.file_no, page_no)[page_offset] & TYPE_MASK)
            return store.read_record(position, record_type, limits.max_inflate)
        except UnreadableError as error:
            raise DecompressionError("payload-undecodable", str(error)) from None
