"""Unpack compressed parts of a log: blocks (MariaDB), payloads (MySQL) and column values (MariaDB).

See docs/spec/mysql-mariadb-binlog.md#bodies-after-the-header-without-the-checksum. Declared sizes are not trusted:
memory grows only with the bytes that are really unpacked, and a wrong declared size is an error.
"""

from __future__ import annotations

import zlib
from collections.abc import Iterator
from functools import cache
from typing import Any

import msgspec

from binlogtool.formats.binlog_events.wire.reading import Reader
from binlogtool.formats.fields import MalformedError
from binlogtool.formats.layouts import CodecError
from binlogtool.limits import Limits

ZSTD = 0
STORED = 255
"""compression of a payload: none."""

_BLOCK_MARK = 0x80
_LENGTH_MASK = 0x07
_ALGORITHM_MASK = 0x70
_RAW_DEFLATE = 0x08
_METHOD_MASK = 0xF0
_PIECE = 1 << 20
_FED = 1 << 16
"""Packed bytes that are unpacked at a time."""
_MAX_WINDOW = 1 << 27
_END, _SIZE, _COMPRESSION, _UNCOMPRESSED = 0, 1, 2, 3


def unpack_block(data: bytes | memoryview, limits: Limits) -> bytes:
    """Unpack a compressed block: the text of QUERY_COMPRESSED, the images of a compressed row event.

    Raises:
        CodecError: compression-error (not a block, damaged, truncated, not of the declared size) or inflate-limit.
    """
    packed, declared = _block(data)
    return _inflate(packed, declared, limits.max_inflate, zlib.MAX_WBITS)


def block_pieces(data: bytes | memoryview, limits: Limits) -> Iterator[bytes]:
    """Unpack a compressed block piece by piece.

    Raises:
        CodecError: as `unpack_block`, before the last piece.
    """
    packed, declared = _block(data)
    return _pieces(packed, declared, limits.max_inflate, zlib.MAX_WBITS)


def declared_size(data: bytes | memoryview) -> int:
    """Read the unpacked size that a compressed block declares.

    Raises:
        CodecError: it is not a block.
    """
    return _block(data)[1]


def check_block(data: bytes | memoryview, limits: Limits) -> None:
    """Unpack a compressed block without keeping the result.

    Raises:
        CodecError: as `unpack_block`.
    """
    for _ in block_pieces(data, limits):
        pass


def _block(data: bytes | memoryview) -> tuple[bytes | memoryview, int]:
    """Return (packed bytes of a block, declared size)."""
    head = data[0] if len(data) else 0
    if not head & _BLOCK_MARK or head & _RAW_DEFLATE:
        raise CodecError("compression-error", f"no compressed block: its first byte is 0x{head:02x}")
    if head & _ALGORITHM_MASK:
        raise CodecError("compression-error", f"compression algorithm {head >> 4 & 7} of a block is not known")
    width = head & _LENGTH_MASK
    if not 1 <= width <= 4 or 1 + width > len(data):
        raise CodecError("compression-error", f"a compressed block of {len(data)} bytes with a length of {width} bytes")
    declared = int.from_bytes(data[1 : 1 + width], "big")
    return data[1 + width :], declared


def unpack_column(data: bytes, left: int) -> bytes:
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
        raise CodecError("compression-error", f"a compressed value of {len(data)} bytes starts with 0x{head:02x}")
    declared = int.from_bytes(data[1 : 1 + width], "big")
    bits = -zlib.MAX_WBITS if head & _RAW_DEFLATE else zlib.MAX_WBITS
    return _inflate(data[1 + width :], declared, left, bits)


def _inflate(data: bytes | memoryview, declared: int, limit: int, window_bits: int) -> bytes:
    return b"".join(_pieces(data, declared, limit, window_bits))


def _pieces(data: bytes | memoryview, declared: int, limit: int, window_bits: int) -> Iterator[bytes]:
    """Inflate a zlib stream of exactly `declared` bytes piece by piece; the last piece comes only if all is valid."""
    if declared > limit:
        raise CodecError("inflate-limit", f"declares {declared:,} bytes unpacked, {limit:,} are allowed")
    unpacker, size, at, more = zlib.decompressobj(window_bits), 0, 0, False
    while size <= declared and not unpacker.eof and (more or at < len(data)):
        packed = unpacker.unconsumed_tail
        if not packed and not more:
            packed, at = bytes(data[at : at + _FED]), at + _FED
        try:
            piece = unpacker.decompress(packed, room := min(_PIECE, declared + 1 - size))
        except zlib.error as error:
            raise CodecError("compression-error", f"zlib: {error}") from None
        size += len(piece)
        more = (
            bool(unpacker.unconsumed_tail) or len(piece) == room
        )  # unpacked bytes may be pending without further input
        if size <= declared:
            yield piece
    if size != declared:
        real = f"more than {declared:,}" if size > declared else f"{size:,}"
        raise CodecError("compression-error", f"unpacks to {real} bytes, declared are {declared:,}")
    if not unpacker.eof or unpacker.unused_data or at < len(data):
        problem = "bytes behind the" if unpacker.eof else "the end is missing of the"
        raise CodecError("compression-error", f"{problem} zlib stream")


class Payload(msgspec.Struct, frozen=True):
    """The fields of TRANSACTION_PAYLOAD; None = the field is absent.

    Attributes:
        data_at: offset of the packed bytes in the body.
    """

    at: int
    payload_size: int
    compression: int
    uncompressed_size: int | None


def parse_payload(body: bytes | memoryview) -> Payload:
    """Parse the fields before the packed bytes of a TRANSACTION_PAYLOAD body.

    Raises:
        MalformedError: a field does not fit, or the packed bytes do not end with the body.
    """
    reader = Reader(bytes(body[: 1 << 12]), "TRANSACTION_PAYLOAD")
    fields: dict[int, int] = {}
    while (kind := reader.lenenc()) != _END:
        fields[kind] = reader.part(reader.lenenc(), f"field {kind}").lenenc()
    payload_size = fields.get(_SIZE, len(body) - reader.at)
    if payload_size != len(body) - reader.at:
        text = f"TRANSACTION_PAYLOAD declares {payload_size:,} packed bytes, {len(body) - reader.at:,} follow"
        raise MalformedError(text)
    return Payload(reader.at, payload_size, fields.get(_COMPRESSION, ZSTD), fields.get(_UNCOMPRESSED))


def unpack_payload(body: bytes | memoryview, limits: Limits) -> bytes | bytearray:
    """Unpack the events inside a TRANSACTION_PAYLOAD from its whole body.

    Raises:
        CodecError: compression-error or inflate-limit.
    """
    try:
        payload = parse_payload(body)
    except MalformedError as error:
        raise CodecError("compression-error", str(error)) from None
    packed = body[payload.at :]
    if payload.compression == ZSTD:
        unpacked: bytes | bytearray = _unpack_zstd(packed, payload.uncompressed_size, limits.max_inflate)
    elif payload.compression == STORED:
        unpacked = bytes(packed)
    else:
        raise CodecError("compression-error", f"compression type {payload.compression} of a payload is not known")
    declared = payload.uncompressed_size
    if declared is not None and len(unpacked) != declared:
        raise CodecError("compression-error", f"unpacks to {len(unpacked):,} bytes, declared are {declared:,}")
    return unpacked


def _unpack_zstd(packed: bytes | memoryview, declared: int | None, limit: int) -> bytearray:
    """Unpack consecutive zstd frames, at most one piece more than allowed."""
    if declared is not None and declared > limit:
        raise CodecError("inflate-limit", f"declares {declared:,} bytes unpacked, {limit:,} are allowed")
    ceiling = limit if declared is None else declared
    out, size = bytearray(min(_PIECE, ceiling + 1)), 0
    unpacker, error_of_it = _zstd()
    try:
        with unpacker.stream_reader(packed, read_across_frames=True) as reader:
            while got := reader.readinto(memoryview(out)[size:]):
                size += got
                if size > ceiling:
                    raise _too_long(ceiling, limit)
                if size == len(out):
                    out += bytes(min(_PIECE, ceiling + 1 - size))
    except error_of_it as error:
        raise CodecError("compression-error", f"zstd: {error}") from None
    del out[size:]
    return out


def _too_long(ceiling: int, limit: int) -> CodecError:
    if ceiling == limit:
        return CodecError("inflate-limit", f"unpacks to more than {limit:,} bytes")
    return CodecError("compression-error", f"unpacks to more than the declared {ceiling:,} bytes")


@cache
def _zstd() -> tuple[Any, type[Exception]]:
    """Return (decompressor, its exception class); zstandard is imported on first use."""
    import zstandard

    return zstandard.ZstdDecompressor(max_window_size=_MAX_WINDOW), zstandard.ZstdError
