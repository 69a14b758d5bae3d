"""Decompress zstd blocks: whole frames, under a size limit
(`docs/spec/tarantool.md#blocks`).

The server writes one frame and reads any number of them (`xlog_cursor_decompress`). It stops when the input is used up
and does not notice a frame that was cut short. Here the chain of blocks of each frame is walked first (RFC 8878,
section 3.1.1), so a cut frame, or other bytes after a frame, are errors.
"""

from __future__ import annotations

from functools import cache
from typing import Any

from binlogtool.formats.layouts import DecompressionError
from binlogtool.limits import Limits

FRAME_MAGIC = b"\x28\xb5\x2f\xfd"
MAX_WINDOW_SIZE = 1 << 27
MAX_BLOCK_SIZE = 128 * 1024
_SKIPPABLE_MAGIC = b"\x2a\x4d\x18"
"""The last three bytes of the magic of a frame without content; the first is 0x50 to 0x5f."""
_CHUNK_SIZE = 1 << 20
_RAW_BLOCK, _RLE_BLOCK, _COMPRESSED_BLOCK = 0, 1, 2
_DICTIONARY_SIZES = (0, 1, 2, 4)


def unpack_zstd(payload: memoryview, limits: Limits) -> bytes | bytearray:
    """Unpack whole zstd frames.

    Raises:
        CodecError: compression-error (no frame, cut, damaged, other bytes after it) or inflate-limit.
    """
    size_bound = bound_unpacked_size(payload)
    decompressor = _get_decompressor()
    try:
        if size_bound <= limits.max_inflate:
            unpacked: bytes = decompressor.decompressobj(read_across_frames=True).decompress(payload)
            return unpacked
        return _unpack_in_two_passes(decompressor, payload, limits.max_inflate)
    except _get_zstd_error() as error:
        raise DecompressionError("compression-error", f"zstd: {error}") from None


def _unpack_in_two_passes(decompressor: Any, payload: memoryview, limit: int) -> bytearray:
    """Unpack in two passes: the first only counts, so that a frame over the limit costs no memory and a large one no
    copy.
    """
    size = 0
    with (
        decompressor.stream_reader(payload, read_across_frames=True) as reader,
        memoryview(bytearray(_CHUNK_SIZE)) as chunk,
    ):
        while count := reader.readinto(chunk):
            size += count
            if size > limit:
                raise DecompressionError("inflate-limit", f"unpacks to more than {limit:,} bytes")
    out = bytearray(size)
    with decompressor.stream_reader(payload, read_across_frames=True) as reader, memoryview(out) as rest:
        done = 0
        while done < size and (count := reader.readinto(rest[done : done + _CHUNK_SIZE])):
            done += count
    return out


def bound_unpacked_size(payload: memoryview) -> int:
    """Compute an upper bound of the unpacked size, and prove that the payload consists of whole frames.

    Raises:
        CodecError: compression-error.
    """
    total, position = 0, 0
    while position < len(payload):
        if _is_skippable(payload, position):
            position += 8 + int.from_bytes(payload[position + 4 : position + 8], "little")
        else:
            size, position = _walk_frame(payload, position)
            total += size
        if position > len(payload):
            missing = position - len(payload)
            raise DecompressionError("compression-error", f"the zstd frame is cut short: {missing} bytes are missing")
    return total


def _is_skippable(payload: memoryview, start: int) -> bool:
    head = bytes(payload[start : start + 8])
    return len(head) == 8 and head[1:4] == _SKIPPABLE_MAGIC and head[0] >> 4 == 5


def _walk_frame(payload: memoryview, start: int) -> tuple[int, int]:
    """Return an upper bound of the unpacked size of one frame, and where the frame ends."""
    if bytes(payload[start : start + 4]) != FRAME_MAGIC:
        text = f"{len(payload) - start} bytes behind the zstd frame"
        raise DecompressionError(
            "compression-error", text if start else "no zstd frame: its magic 28 b5 2f fd is not there"
        )
    position, checksum = _read_frame_header(payload, start)
    total = 0
    last = False
    while not last:
        if position + 3 > len(payload):
            raise DecompressionError("compression-error", f"the zstd frame is cut short after {position} bytes")
        header = int.from_bytes(payload[position : position + 3], "little")
        last, kind, size = bool(header & 1), header >> 1 & 3, header >> 3
        if kind > _COMPRESSED_BLOCK or size > MAX_BLOCK_SIZE:
            text = f"zstd block header 0x{header:06x} at payload offset {position} is wrong"
            raise DecompressionError("compression-error", text)
        position += 3 + (1 if kind == _RLE_BLOCK else size)
        total += MAX_BLOCK_SIZE if kind == _COMPRESSED_BLOCK else size
    return total, position + checksum


def _read_frame_header(payload: memoryview, start: int) -> tuple[int, int]:
    """Return the position of the first block and the size of the content checksum."""
    if len(payload) < start + 5:
        raise DecompressionError("compression-error", "the zstd frame is cut short in its header")
    flags = payload[start + 4]
    single = flags >> 5 & 1
    content_size = (single, 2, 4, 8)[flags >> 6]
    return start + 5 + (1 - single) + _DICTIONARY_SIZES[flags & 3] + content_size, 4 * (flags >> 2 & 1)


@cache
def _get_decompressor() -> Any:
    import zstandard

    return zstandard.ZstdDecompressor(max_window_size=MAX_WINDOW_SIZE)


def _get_zstd_error() -> type[Exception]:
    import zstandard

    error: type[Exception] = zstandard.ZstdError
    return error
