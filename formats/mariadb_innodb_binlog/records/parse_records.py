"""Parse the contents of records, and read pages and records at any position of a log."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Iterator, Mapping
from typing import Any, Final, NamedTuple

import msgspec

from binlogtool.format_api.layout import RangeReader
from binlogtool.format_api.schema_fields import (
    DecompressionError,
    MalformedError,
    get_fixed_field_offset,
    make_unpacker,
)
from binlogtool.formats.binlog_events.transactions.boundaries import XaId
from binlogtool.formats.mariadb_innodb_binlog.schema import (
    CHUNK,
    CHUNK_HEAD_SIZE,
    CONTINUATION_FLAG,
    CRC_SIZE,
    FILLER_BYTE,
    LAST_CHUNK_FLAG,
    NESTABLE_TYPES,
    SHORT_HEADER_SIZE,
    TYPE_MASK,
    XID,
    IbbFileContext,
    IbbFileHeader,
    IbbRecordType,
    compressed_integer_size,
    file_name,
    is_page_crc_right,
    is_short_header_crc_right,
    parse_compressed_integer,
    parse_header,
)
from binlogtool.limits import MIB, Limits

# --- Contents of records (docs/spec/mariadb_innodb_binlog.md#record-contents) ---

RecordBytes = bytes | memoryview

MAX_XID_PART = 64
_XID_HEAD_SIZE = get_fixed_field_offset(XID, "xid")
_unpack_xid_head = make_unpacker(XID, "format_id", "gtrid_length", "bqual_length")


class IbbPosition(NamedTuple):
    """Position of the start of a record; (0, 0) = none. Positions within one log are ordered."""

    file_no: int
    offset: int

    def __bool__(self) -> bool:
        return self != (0, 0)

    def __str__(self) -> str:
        return f"({self.file_no}, {self.offset:#x})"


NO_POSITION = IbbPosition(0, 0)


class OobReference(NamedTuple):
    """Reference to out-of-band data: number of nodes, positions of the first node (index 0) and the last node."""

    nodes: int
    first: IbbPosition
    last: IbbPosition


class IbbGtid(NamedTuple):
    """GTID in MariaDB's form."""

    domain_id: int
    server_id: int
    seq_no: int

    def __str__(self) -> str:
        return f"{self.domain_id}-{self.server_id}-{self.seq_no}"


class CommitRecord(msgspec.Struct, frozen=True):
    """COMMIT record; `payload_at`: offset of the events in it."""

    references: tuple[OobReference, ...]
    payload_at: int


class GtidStateRecord(msgspec.Struct, frozen=True):
    """GTID_STATE record; `rest`: number of bytes after the last GTID (0 in a sound record)."""

    xa_ref_plus_1: int
    gtids: tuple[IbbGtid, ...]
    rest: int = 0


class OobNode(NamedTuple):
    """Header of an OOB_DATA record; `data_at`: offset of its data in the record."""

    node_index: int
    left: IbbPosition
    right: IbbPosition
    data_at: int


class XaPrepareRecord(msgspec.Struct, frozen=True):
    """An XA_PREPARE record."""

    engine_count: int
    xid: XaId
    reference: OobReference


class XaCompleteRecord(msgspec.Struct, frozen=True):
    """An XA_COMPLETE record; `flags`: bit 0 = rollback."""

    flags: int
    xid: XaId

    @property
    def is_rollback(self) -> bool:
        """True if the transaction was rolled back."""
        return bool(self.flags & 1)


def _parse_position(data: RecordBytes, pos: int) -> tuple[IbbPosition, int]:
    file_no, pos = parse_compressed_integer(data, pos)
    offset, pos = parse_compressed_integer(data, pos)
    return IbbPosition(file_no, offset), pos


def _parse_reference(data: RecordBytes, nodes: int, pos: int) -> tuple[OobReference, int]:
    first, pos = _parse_position(data, pos)
    last, pos = _parse_position(data, pos)
    return OobReference(nodes, first, last), pos


def parse_commit_header(data: RecordBytes) -> CommitRecord:
    """Parse the header of a COMMIT record. Raises MalformedError: the header does not fit into the record."""
    nodes, pos = parse_compressed_integer(data, 0)
    if not nodes:
        return CommitRecord((), pos)
    first, pos = _parse_reference(data, nodes, pos)
    nodes, pos = parse_compressed_integer(data, pos)
    if not nodes:
        return CommitRecord((first,), pos)
    second, pos = _parse_reference(data, nodes, pos)
    return CommitRecord((first, second), pos)


def parse_gtid_state(data: RecordBytes) -> GtidStateRecord:
    """Parse a GTID_STATE record.

    Raises:
        MalformedError: a number is truncated or out of range, or there are more GTIDs than bytes.
    """
    count, pos = parse_compressed_integer(data, 0)
    xa_ref, pos = parse_compressed_integer(data, pos)
    if 3 * count > len(data) - pos:
        text = f"{count:,} GTIDs in {len(data) - pos:,} bytes"
        raise MalformedError(text, finding_id="count-out-of-bounds")
    gtids = []
    for _ in range(count):
        domain, pos = parse_compressed_integer(data, pos)
        server, pos = parse_compressed_integer(data, pos)
        seq_no, pos = parse_compressed_integer(data, pos)
        if domain >> 32 or server >> 32:
            raise MalformedError(f"GTID {domain}-{server}-{seq_no}: domain or server over 32 bits")
        gtids.append(IbbGtid(domain, server, seq_no))
    return GtidStateRecord(xa_ref, tuple(gtids), len(data) - pos)


def parse_oob_node_header(data: RecordBytes) -> OobNode:
    """Parse the header of an OOB_DATA record.

    Raises:
        MalformedError: the header does not fit into the record, or no data follows.
    """
    index, pos = parse_compressed_integer(data, 0)
    left, pos = _parse_position(data, pos)
    right, pos = _parse_position(data, pos)
    if pos >= len(data):
        raise MalformedError("an out-of-band node without data")
    return OobNode(index, left, right, pos)


def _parse_xid(data: RecordBytes, pos: int) -> tuple[XaId, int]:
    if len(data) < pos + _XID_HEAD_SIZE:
        raise MalformedError(f"an XID in a record of {len(data)} bytes")
    format_id, gtrid_size, bqual_size = _unpack_xid_head(data, pos)
    if max(gtrid_size, bqual_size) > MAX_XID_PART:
        raise MalformedError(f"an XID of {gtrid_size} + {bqual_size} bytes; each part has at most {MAX_XID_PART}")
    start, end = pos + _XID_HEAD_SIZE, pos + _XID_HEAD_SIZE + gtrid_size + bqual_size
    if end > len(data):
        raise MalformedError(f"an XID of {gtrid_size} + {bqual_size} bytes runs over the end of the record")
    return XaId(format_id, bytes(data[start : start + gtrid_size]), bytes(data[start + gtrid_size : end])), end


def parse_xa_prepare(data: RecordBytes) -> XaPrepareRecord:
    """Parse an XA_PREPARE record.

    Raises:
        MalformedError: the record is truncated, its XID is too long, or bytes are left over.
    """
    xid, pos = _parse_xid(data, 1)
    nodes, pos = parse_compressed_integer(data, pos)
    reference, pos = _parse_reference(data, nodes, pos)
    _check_no_rest(data, pos)
    return XaPrepareRecord(data[0], xid, reference)


def parse_xa_complete(data: RecordBytes) -> XaCompleteRecord:
    """Parse an XA_COMPLETE record.

    Raises:
        MalformedError: the record is truncated, its XID is too long, or bytes are left over.
    """
    xid, pos = _parse_xid(data, 1)
    _check_no_rest(data, pos)
    return XaCompleteRecord(data[0], xid)


def _check_no_rest(data: RecordBytes, pos: int) -> None:
    if pos != len(data):
        raise MalformedError(f"{len(data) - pos} bytes after the last field", finding_id="unmapped-bytes")


def has_shortest_integers(record: CommitRecord | OobNode) -> bool:
    """Return whether all integers of the header are in their shortest form, as the server writes them."""
    if isinstance(record, OobNode):
        numbers, end = [record.node_index, *record.left, *record.right], record.data_at
    else:
        numbers, end = [], record.payload_at
        for reference in record.references:
            numbers += [reference.nodes, *reference.first, *reference.last]
        numbers += [] if len(record.references) == 2 else [0]
    return end == sum(map(compressed_integer_size, numbers))


# -- JSON --------------------------------------------------------------------------------------------------------------


def _position_as_json(position: IbbPosition) -> list[int] | None:
    return list(position) if position else None


def _reference_as_json(reference: OobReference) -> dict[str, Any]:
    return {"nodes": reference.nodes, "first": list(reference.first), "last": list(reference.last)}


def _decode_commit_body(data: RecordBytes) -> dict[str, Any]:
    commit = parse_commit_header(data)
    return {
        "oob": [_reference_as_json(reference) for reference in commit.references],
        "payload_bytes": len(data) - commit.payload_at,
    }


def _decode_state_body(data: RecordBytes) -> dict[str, Any]:
    state = parse_gtid_state(data)
    return {
        "count": len(state.gtids),
        "xa_ref_file_no": state.xa_ref_plus_1 - 1 if state.xa_ref_plus_1 else None,
        "gtids": [str(gtid) for gtid in state.gtids],
    }


def _decode_node_body(data: RecordBytes) -> dict[str, Any]:
    node = parse_oob_node_header(data)
    return {
        "node_index": node.node_index,
        "left": _position_as_json(node.left),
        "right": _position_as_json(node.right),
        "data_bytes": len(data) - node.data_at,
    }


def _decode_xa_prepare_body(data: RecordBytes) -> dict[str, Any]:
    prepared = parse_xa_prepare(data)
    body = {"engine_count": prepared.engine_count, **prepared.xid._asdict()}
    return {**body, "oob": _reference_as_json(prepared.reference)}


def _decode_xa_complete_body(data: RecordBytes) -> dict[str, Any]:
    completed = parse_xa_complete(data)
    return {"result": "rollback" if completed.is_rollback else "commit", **completed.xid._asdict()}


def _decode_dummy_body(data: RecordBytes) -> dict[str, Any]:
    return {"bytes": len(data)}


BODY_READERS: Mapping[int, Callable[[RecordBytes], dict[str, Any]]] = {
    IbbRecordType.COMMIT: _decode_commit_body,
    IbbRecordType.GTID_STATE: _decode_state_body,
    IbbRecordType.OOB_DATA: _decode_node_body,
    IbbRecordType.DUMMY: _decode_dummy_body,
    IbbRecordType.XA_PREPARE: _decode_xa_prepare_body,
    IbbRecordType.XA_COMPLETE: _decode_xa_complete_body,
}
"""Record type -> function that decodes the body for `dump`. These functions raise `MalformedError`."""


# --- Random access to pages and records ---

_unpack_length = make_unpacker(CHUNK, "length")

MAX_CACHED_PAGES: Final = 64
MAX_CACHED_FILES: Final = 64

_MAX_READ_FACTOR: Final = 4
_BASE_ALLOWANCE: Final = 16 * MIB
_VISIT_COST: Final = 128
"""Number of bytes that each read costs in addition to its data. A store may read `_MAX_READ_FACTOR` times the bytes of
its files, plus `_BASE_ALLOWANCE`.
"""


class UnreadableError(Exception):
    """Error: a record cannot be read.

    `missing`: its file does not exist. `diagnosis`: see docs/spec/mariadb_innodb_binlog.md#validation.
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
    """Yield the data pages of the next file, as far as they are accepted.

    Yields nothing if the header of either file contradicts its name, or this file is shorter than its header says.

    Args:
        accept_page: called with (page, file number, page number); returns the page to use, None = not accepted.
    """
    number, size = context.number, context.page_size
    read = None if context.open_sibling is None or number is None else context.open_sibling(file_name(number + 1))
    if (
        read is None
        or number is None
        or not _can_record_continue_in_next_file(context.header, number, context.size, size)
    ):
        return
    head = read(0, SHORT_HEADER_SIZE)
    header = parse_header(head) if is_short_header_crc_right(head) else None
    if header is not None and header.file_no != number + 1:
        return
    offset = size
    while (
        len(page := read(offset, size)) == size
        and (accepted := accept_page(page, number + 1, offset // size)) is not None
    ):
        yield accepted
        offset += size


def iter_sound_pages_of_file(context: IbbFileContext, first_offset: int) -> Iterator[bytes]:
    """Yield the data pages of this file from `first_offset` on; ends with b"" at a page that is not sound.

    `first_offset`: end of the part that was read; 0 = the whole file was read.
    """
    read, size = context.read, context.page_size
    while read is not None and first_offset and context.size is not None and first_offset + size <= context.size:
        page = read(first_offset, size)
        if len(page) < size or not is_page_crc_right(page):
            yield b""
            return
        yield page
        first_offset += size


def _can_record_continue_in_next_file(
    header: IbbFileHeader | None, file_number: int, file_size: int | None, page_size: int
) -> bool:
    """Return whether a record may continue after the end of this file."""
    if header is None:
        return True
    is_whole = file_size is None or file_size >= header.page_count * page_size
    return header.file_no == file_number and is_whole


def is_followed_by_crash_leftovers(context: IbbFileContext) -> bool:
    """Return whether only crash leftovers follow this file: an empty file, or one with a single bad or first page."""
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
    """Reads the files of a log by number; `read_bytes`: number of bytes read from them."""

    def __init__(self, context: IbbFileContext) -> None:
        self._context = context
        self._size = context.page_size
        self._pages: OrderedDict[tuple[int, int], bytes] = OrderedDict()
        self._files: OrderedDict[int, RangeReader | None] = OrderedDict()
        self._allowance = _BASE_ALLOWANCE
        self._counted_files: set[int] = set()
        self.read_bytes = 0

    def get_file_reader(self, file_no: int) -> RangeReader | None:
        """Return the function that reads a file; None if it does not exist or its name cannot be derived."""
        context = self._context
        read: RangeReader | None
        size: int | None
        if file_no == context.number and context.read is not None:
            read, size = context.read, context.size
        elif file_no in self._files:
            return self._files[file_no]
        else:
            read = None if context.open_sibling is None or file_no >> 63 else context.open_sibling(file_name(file_no))
            self._files[file_no] = read
            if len(self._files) > MAX_CACHED_FILES:
                self._files.popitem(last=False)
            size = None
        if read is not None and file_no not in self._counted_files:
            self._counted_files.add(file_no)
            self._allowance += _MAX_READ_FACTOR * (find_file_size(read) if size is None else size)
        return read

    def read_page(self, file_no: int, page_no: int) -> bytes:
        """Read a sound page. Raises UnreadableError: there is no such page."""
        key = (file_no, page_no)
        cached = self._pages.get(key)
        if cached is not None:
            self._pages.move_to_end(key)
            return cached
        read = self.get_file_reader(file_no)
        if read is None:
            raise UnreadableError(f"file {file_no} does not exist", "oob-missing", missing=True)
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
        """Return the page to use instead of one with a wrong CRC; None = there is no replacement."""
        return None

    def iter_record_pieces(self, position: IbbPosition, record_type: IbbRecordType) -> Iterator[memoryview]:
        """Yield the data of the record at a position, chunk by chunk.

        Raises:
            UnreadableError: there is no such record, or it is incomplete.
        """
        file_no, (page_no, page_offset) = position.file_no, divmod(position.offset, self._size)
        if page_no == 0 or page_offset > self._size - CRC_SIZE - CHUNK_HEAD_SIZE - 1:
            raise UnreadableError(f"{position} is not a valid record position", "oob-wrong-type")
        expected_type = int(record_type)
        while True:
            page = self.read_page(file_no, page_no)
            flags, start, end = self._parse_expected_chunk(page, page_offset, expected_type, position)
            # Deduct a read from the allowance: forged references could lead to the same data again and again
            self._allowance -= (end - start) + _VISIT_COST
            if self._allowance < 0:
                raise UnreadableError(
                    "references lead to far more out-of-band data than the files contain", "oob-too-large"
                )
            yield memoryview(page)[start:end]
            if flags & LAST_CHUNK_FLAG:
                return
            file_no, page_no, page_offset = self._find_next_chunk(file_no, page_no, expected_type)
            expected_type = record_type | CONTINUATION_FLAG

    def _parse_expected_chunk(
        self, page: bytes, page_offset: int, expected_type: int, position: IbbPosition
    ) -> tuple[int, int, int]:
        """Return (type byte, start of data, end of data) of the chunk at an offset in a page."""
        byte = page[page_offset] if page_offset < self._size - CRC_SIZE - CHUNK_HEAD_SIZE else 0
        end = page_offset + CHUNK_HEAD_SIZE + _unpack_length(page, page_offset)[0]
        if byte & ~LAST_CHUNK_FLAG != expected_type or not page_offset + CHUNK_HEAD_SIZE < end <= self._size - CRC_SIZE:
            name = IbbRecordType(expected_type & TYPE_MASK).name
            problem = "is not whole" if expected_type & CONTINUATION_FLAG else f"is no {name} record"
            diagnosis = "oob-missing" if expected_type & CONTINUATION_FLAG else "oob-wrong-type"
            raise UnreadableError(f"the record at {position} {problem}", diagnosis)
        return byte, page_offset + CHUNK_HEAD_SIZE, end

    def _find_next_chunk(self, file_no: int, page_no: int, expected_type: int) -> tuple[int, int, int]:
        """Return (file, page, offset) of an open record's next chunk: the next page's first that is not nested."""
        page_no += 1
        is_nested_open = False
        while True:
            try:
                page = self.read_page(file_no, page_no)
            except UnreadableError as error:
                if not error.missing or page_no == 1 or not self._is_page_after_file_end(file_no, page_no):
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

    def _is_page_after_file_end(self, file_no: int, page_no: int) -> bool:
        """Return whether a file ends before this page, according to its header."""
        read = self.get_file_reader(file_no)
        head = b"" if read is None else read(0, SHORT_HEADER_SIZE)
        header = parse_header(head)
        if read is None or header is None:
            return False
        return not is_short_header_crc_right(head) or (header.file_no == file_no and page_no >= header.page_count)

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
    """Codec of the annotated hexdump: for a record's first chunk it returns the whole record, across files."""

    located = True

    def __init__(self, context: IbbFileContext) -> None:
        self._context = context
        self._store: PageStore | None = None

    def __call__(self, payload: memoryview, limits: Limits, offset: int) -> bytes:
        """Return the record whose first chunk has its data at file offset `offset`.

        Raises:
            DecompressionError: the record is incomplete.
        """
        store = self._store = self._store or PageStore(self._context)
        position = IbbPosition(self._context.number or 0, offset - CHUNK_HEAD_SIZE)
        try:
            page_no, page_offset = divmod(position.offset, self._context.page_size)
            record_type = IbbRecordType(store.read_page(position.file_no, page_no)[page_offset] & TYPE_MASK)
            return store.read_record(position, record_type, limits.max_inflate)
        except UnreadableError as error:
            raise DecompressionError("payload-undecodable", str(error)) from None
