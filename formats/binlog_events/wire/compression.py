"""Unpack compressed parts of a log: blocks (MariaDB), payloads (MySQL) and column values (MariaDB).

See docs/spec/mysql_binlog.md#event-bodies. Declared sizes are not trusted:
memory grows only with the bytes that are really unpacked, and a wrong declared size is an error.
"""

from __future__ import annotations

import zlib
from collections.abc import Iterator
from functools import cache
from typing import Any

import msgspec

from binlogtool.formats.binlog_events.wire.reading import BoundedReader
from binlogtool.formats.fields import MalformedError
from binlogtool.formats.layouts import DecompressionError
from binlogtool.limits import Limits

ZSTD = 0
UNCOMPRESSED = 255
"""compression of a payload: none."""

_BLOCK_MARK = 0x80
_LENGTH_MASK = 0x07
_ALGORITHM_MASK = 0x70
_RAW_DEFLATE = 0x08
_METHOD_MASK = 0xF0
_PIECE_BYTES = 1 << 20
_FEED_BYTES = 1 << 16
"""Packed bytes that are unpacked at a time."""
_MAX_WINDOW = 1 << 27
_END_FIELD, _SIZE_FIELD, _COMPRESSION_FIELD, _UNCOMPRESSED_SIZE_FIELD = 0, 1, 2, 3


def unpack_block(data: bytes | memoryview, limits: Limits) -> bytes:
    """Unpack a compressed block: the text of QUERY_COMPRESSED, the images of a compressed row event.

    Raises:
        CodecError: compression-error (not a block, damaged, truncated, not of the declared size) or inflate-limit.
    """
    packed, declared = _parse_block(data)
    return _inflate(packed, declared, limits.max_inflate, zlib.MAX_WBITS)


def iter_block_pieces(data: bytes | memoryview, limits: Limits) -> Iterator[bytes]:
    """Unpack a compressed block piece by piece.

    Raises:
        CodecError: as `unpack_block`, before the last piece.
    """
    packed, declared = _parse_block(data)
    return _iter_inflated(packed, declared, limits.max_inflate, zlib.MAX_WBITS)


def read_declared_size(data: bytes | memoryview) -> int:
    """Read the unpacked size that a compressed block declares.

    Raises:
        CodecError: it is not a block.
    """
    return _parse_block(data)[1]


def check_block(data: bytes | memoryview, limits: Limits) -> None:
    """Unpack a compressed block without keeping the result.

    Raises:
        CodecError: as `unpack_block`.
    """
    for _ in iter_block_pieces(data, limits):
        pass


def _parse_block(data: bytes | memoryview) -> tuple[bytes | memoryview, int]:
    """Return (packed bytes of a block, declared size)."""
    head = data[0] if len(data) else 0
    if not head & _BLOCK_MARK or head & _RAW_DEFLATE:
        raise DecompressionError("compression-error", f"no compressed block: its first byte is 0x{head:02x}")
    if head & _ALGORITHM_MASK:
        raise DecompressionError("compression-error", f"compression algorithm {head >> 4 & 7} of a block is not known")
    width = head & _LENGTH_MASK
    if not 1 <= width <= 4 or 1 + width > len(data):
        raise DecompressionError(
            "compression-error", f"a compressed block of {len(data)} bytes with a length of {width} bytes"
        )
    declared = int.from_bytes(data[1 : 1 + width], "big")
    return data[1 + width :], declared


def unpack_column(data: bytes, limit: int) -> bytes:
    """Unpack a value of a COMPRESSED column, to at most `limit` bytes.

    Raises:
        CodecError: compression-error or inflate-limit.
    """
    if not data:
        return data
    head = data[0]
    if head == 0:
        return data[1:]
    width = head & _LENGTH_MASK
    if head & _METHOD_MASK != _BLOCK_MARK or not width or 1 + width > len(data):
        raise DecompressionError(
            "compression-error", f"a compressed value of {len(data)} bytes starts with 0x{head:02x}"
        )
    declared = int.from_bytes(data[1 : 1 + width], "big")
    bits = -zlib.MAX_WBITS if head & _RAW_DEFLATE else zlib.MAX_WBITS
    return _inflate(data[1 + width :], declared, limit, bits)


def _inflate(data: bytes | memoryview, declared: int, limit: int, window_bits: int) -> bytes:
    return b"".join(_iter_inflated(data, declared, limit, window_bits))


def _iter_inflated(data: bytes | memoryview, declared: int, limit: int, window_bits: int) -> Iterator[bytes]:
    """Inflate a zlib stream of exactly `declared` bytes piece by piece; the last piece comes only if all is valid."""
    if declared > limit:
        raise DecompressionError("inflate-limit", f"declares {declared:,} bytes unpacked, {limit:,} are allowed")
    unpacker, size, offset, has_pending = zlib.decompressobj(window_bits), 0, 0, False
    while size <= declared and not unpacker.eof and (has_pending or offset < len(data)):
        packed = unpacker.unconsumed_tail
        if not packed and not has_pending:
            packed, offset = bytes(data[offset : offset + _FEED_BYTES]), offset + _FEED_BYTES
        try:
            piece = unpacker.decompress(packed, max_piece := min(_PIECE_BYTES, declared + 1 - size))
        except zlib.error as error:
            raise DecompressionError("compression-error", f"zlib: {error}") from None
        size += len(piece)
        has_pending = (
            bool(unpacker.unconsumed_tail) or len(piece) == max_piece
        )  # unpacked bytes may be pending without further input
        if size <= declared:
            yield piece
    if size != declared:
        actual = f"more than {declared:,}" if size > declared else f"{size:,}"
        raise DecompressionError("compression-error", f"unpacks to {actual} bytes, declared are {declared:,}")
    if not unpacker.eof or unpacker.unused_data or offset < len(data):
        problem = "bytes behind the" if unpacker.eof else "the end is missing of the"
        raise DecompressionError("compression-error", f"{problem} zlib stream")


class PayloadHeader(msgspec.Struct, frozen=True):
    """The fields of TRANSACTION_PAYLOAD; None = the field is absent.

    Attributes:
        data_at: offset of the packed bytes in the body.
    """

    data_at: int
    payload_size: int
    compression: int
    uncompressed_size: int | None


def parse_payload_header(body: bytes | memoryview) -> PayloadHeader:
    """Parse the fields before the packed bytes of a TRANSACTION_PAYLOAD body.

    Raises:
        MalformedError: a field does not fit, or the packed bytes do not end with the body.
    """
    reader = BoundedReader(bytes(body[: 1 << 12]), "TRANSACTION_PAYLOAD")
    fields: dict[int, int] = {}
    while (kind := reader.read_lenenc()) != _END_FIELD:
        fields[kind] = reader.sub_reader(reader.read_lenenc(), f"field {kind}").read_lenenc()
    payload_size = fields.get(_SIZE_FIELD, len(body) - reader.offset)
    if payload_size != len(body) - reader.offset:
        text = f"TRANSACTION_PAYLOAD declares {payload_size:,} packed bytes, {len(body) - reader.offset:,} follow"
        raise MalformedError(text)
    return PayloadHeader(
        reader.offset, payload_size, fields.get(_COMPRESSION_FIELD, ZSTD), fields.get(_UNCOMPRESSED_SIZE_FIELD)
    )


def unpack_payload(body: bytes | memoryview, limits: Limits) -> bytes | bytearray:
    """Unpack the events inside a TRANSACTION_PAYLOAD from its whole body.

    Raises:
        CodecError: compression-error or inflate-limit.
    """
    try:
        payload = parse_payload_header(body)
    except MalformedError as error:
        raise DecompressionError("compression-error", str(error)) from None
    packed = body[payload.data_at :]
    if payload.compression == ZSTD:
        unpacked: bytes | bytearray = _unpack_zstd(packed, payload.uncompressed_size, limits.max_inflate)
    elif payload.compression == UNCOMPRESSED:
        unpacked = bytes(packed)
    else:
        raise DecompressionError(
            "compression-error", f"compression type {payload.compression} of a payload is not known"
        )
    declared = payload.uncompressed_size
    if declared is not None and len(unpacked) != declared:
        raise DecompressionError("compression-error", f"unpacks to {len(unpacked):,} bytes, declared are {declared:,}")
    return unpacked


def _unpack_zstd(packed: bytes | memoryview, declared: int | None, limit: int) -> bytearray:
    """Unpack consecutive zstd frames, at most one piece more than allowed."""
    if declared is not None and declared > limit:
        raise DecompressionError("inflate-limit", f"declares {declared:,} bytes unpacked, {limit:,} are allowed")
    ceiling = limit if declared is None else declared
    out, size = bytearray(min(_PIECE_BYTES, ceiling + 1)), 0
    unpacker, zstd_error = _load_zstd()
    try:
        with unpacker.stream_reader(packed, read_across_frames=True) as reader:
            while read_size := reader.readinto(memoryview(out)[size:]):
                size += read_size
                if size > ceiling:
                    raise _oversize_error(ceiling, limit)
                if size == len(out):
                    out += bytes(min(_PIECE_BYTES, ceiling + 1 - size))
    except zstd_error as error:
        raise DecompressionError("compression-error", f"zstd: {error}") from None
    del out[size:]
    return out


def _oversize_error(ceiling: int, limit: int) -> DecompressionError:
    if ceiling == limit:
        return DecompressionError("inflate-limit", f"unpacks to more than {limit:,} bytes")
    return DecompressionError("compression-error", f"unpacks to more than the declared {ceiling:,} bytes")


@cache
def _load_zstd() -> tuple[Any, type[Exception]]:
    """Return (decompressor, its exception class); zstandard is imported on first use."""
    import zstandard

    return zstandard.ZstdDecompressor(max_window_size=_MAX_WINDOW), zstandard.ZstdError
