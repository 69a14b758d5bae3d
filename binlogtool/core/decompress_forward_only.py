"""Decompress a stream while it is read (gzip, xz, bzip2, zstd, lz4); report where its data is cut or damaged."""

from __future__ import annotations

import importlib
import io
from collections.abc import Callable
from typing import IO, Any

from binlogtool.errors import InputOutputError

GZIP = b"\x1f\x8b"
ZSTD = b"\x28\xb5\x2f\xfd"
XZ = b"\xfd7zX"
BZIP2 = b"BZh"
LZ4 = b"\x04\x22\x4d\x18"
COMPRESSED_HEADS = (GZIP, ZSTD, XZ, BZIP2, LZ4)
"""The first bytes of compressed files, which are decompressed while they are read."""
HEAD_SIZE = 4
"""Bytes that `CompressedStream` needs to choose the decompressor."""

_MAX_ZSTD_WINDOW = 1 << 27
_MAX_ZSTD_READ = 1 << 16
"""Bytes unpacked by one call: those of a call that meets damage are lost."""
_MAX_HEADER_READ = 16
"""Largest read of a decompressor that is for a header, which it needs whole."""
_FINE_BYTES = 4 * io.DEFAULT_BUFFER_SIZE
"""Compressed bytes before damage that are unpacked again one by one, so that no unpacked byte before it is lost."""


def detect_compression(head: bytes) -> str | None:
    """Return the name of the compression of a file that begins with these bytes; None if it is not compressed."""
    methods = ((GZIP, "gzip"), (ZSTD, "zstd"), (XZ, "xz"), (BZIP2, "bzip2"), (LZ4, "lz4"))
    return next((method for magic, method in methods if head.startswith(magic)), None)


class CompressedStream:
    """Unpacked bytes of a compressed stream, forward only.

    head: the first bytes of the stream, which were read already. rest: the stream after them.

    Raises:
        ImportError: the stream is compressed with lz4, whose library is not installed.
    """

    def __init__(self, head: bytes, rest: IO[bytes]) -> None:
        self._tracker = ZstdFrameTracker() if head == ZSTD else None
        self.method = detect_compression(head) or ""
        self._head, self._rest = head, rest
        self._origin = rest.tell() if rest.seekable() else None
        self._unpacked_size = 0
        self._is_fine = False
        self._input = _CountingInput(head, rest, self._tracker)
        self._reader = self._open_decompressing_reader(io.BufferedReader(self._input))
        self.failure: str | None = None
        """Why the unpacked bytes end before those of the log; None while nothing is wrong."""

    def _open_decompressing_reader(self, compressed_input: Any) -> Any:
        """Return a reader of the unpacked bytes of a stream."""
        if self.method == "gzip":
            return importlib.import_module("gzip").GzipFile(fileobj=compressed_input)
        if self.method == "zstd":
            decompressor = importlib.import_module("zstandard").ZstdDecompressor(max_window_size=_MAX_ZSTD_WINDOW)
            return decompressor.stream_reader(compressed_input, read_across_frames=True)
        if self.method == "xz":
            return _ConcatenatedStreamsReader(
                compressed_input, importlib.import_module("lzma").LZMADecompressor, padding=b"\0"
            )
        if self.method == "lz4":
            return _ConcatenatedStreamsReader(
                compressed_input, importlib.import_module("lz4.frame").LZ4FrameDecompressor
            )
        return _ConcatenatedStreamsReader(compressed_input, importlib.import_module("bz2").BZ2Decompressor)

    def read1(self, size: int) -> bytes:
        """Return up to `size` bytes; b"" at the end of the stream, or where `failure` says that it is cut or damaged.

        Raises:
            InputOutputError, OSError: the compressed bytes cannot be read.
        """
        try:
            data: bytes = self._reader.read1(size if self._tracker is None else min(size, _MAX_ZSTD_READ))
        except (InputOutputError, MemoryError):
            raise
        except EOFError:
            self.failure = self._describe_cut()
            return b""
        except Exception as error:  # zlib.error, LZMAError, ZstdError, OSError without a number: bad data
            if isinstance(error, OSError) and error.errno is not None:
                raise
            if self._tracker is None and self._origin is not None and not self._is_fine:
                self._reread_byte_by_byte(self._origin)
                return self.read1(size)
            self.failure = f"the {self.method} data is damaged before byte {self.packed_size:,} of the file ({error})"
            return b""
        if not data and self._tracker is not None and not self._tracker.is_between_frames:
            self.failure = self._describe_cut()
        self._unpacked_size += len(data)
        return data

    def _reread_byte_by_byte(self, stream_start: int) -> None:
        """Unpack the stream again up to the bytes already returned, then one compressed byte at a time."""
        self._is_fine = True
        self._rest.seek(stream_start)
        self._input = _CountingInput(self._head, self._rest, None, max(0, self._input.count - _FINE_BYTES))
        self._reader = self._open_decompressing_reader(self._input)
        remaining = self._unpacked_size
        while remaining and (data := self._reader.read1(min(remaining, _MAX_ZSTD_READ))):
            remaining -= len(data)

    def _describe_cut(self) -> str:
        return f"the {self.method} data is cut at byte {self.packed_size:,} of the file"

    @property
    def packed_size(self) -> int:
        """Number of compressed bytes read so far."""
        return self._input.count

    def close(self) -> None:
        """Close the decompressor; not the underlying stream."""
        self._reader.close()


class _ConcatenatedStreamsReader:
    """Unpacked bytes of streams that follow one another (xz, bzip2, lz4), without bytes after them.

    The readers of the libraries ignore such bytes.

    Args:
        padding: Byte that may be repeated after a stream.
    """

    def __init__(self, packed: Any, create_decompressor: Callable[[], Any], padding: bytes = b"") -> None:
        self._packed, self._create_decompressor, self._padding = packed, create_decompressor, padding
        self._decompressor = create_decompressor()
        self._is_at_start = False

    def read1(self, size: int) -> bytes:
        """Return up to `size` bytes; b"" at the end.

        Raises:
            EOFError, Exception: the data is cut or damaged, or other bytes follow it.
        """
        while True:
            data = b""
            if self._decompressor.eof:
                data = self._skip_padding_to_next_stream(self._decompressor.unused_data or b"")
                if not data:
                    return b""
                self._decompressor, self._is_at_start = self._create_decompressor(), True
            elif self._decompressor.needs_input and not (data := self._packed.read(io.DEFAULT_BUFFER_SIZE)):
                raise ValueError(_BYTES_AFTER_END) if self._is_at_start else EOFError
            try:
                unpacked: bytes = self._decompressor.decompress(data, size)
            except Exception as error:
                raise ValueError(_BYTES_AFTER_END) if self._is_at_start else error from None
            if unpacked:
                self._is_at_start = False
                return unpacked

    def _skip_padding_to_next_stream(self, data: bytes) -> bytes:
        """Return the first bytes after a stream and its padding; b"" at the end."""
        while not (data := data.lstrip(self._padding) if self._padding else data):
            if not (data := self._packed.read(io.DEFAULT_BUFFER_SIZE)):
                return b""
        return data

    def close(self) -> None:
        """Release nothing: a decompressor holds no resource."""


_BYTES_AFTER_END = "bytes follow the end of the compressed data"


class _CountingInput(io.RawIOBase):
    """Bytes already read from a stream, then the rest of the stream; counts them.

    fine_from: offset from which each read returns one byte.
    """

    def __init__(
        self, head: bytes, rest: IO[bytes], tracker: ZstdFrameTracker | None, fine_from: int | None = None
    ) -> None:
        self._head, self._rest, self._tracker, self._fine_from = head, rest, tracker, fine_from
        self.count = 0

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        size = len(buffer)
        if self._fine_from is not None and size > _MAX_HEADER_READ:
            size = min(size, max(1, self._fine_from - self.count))
        if self._head:
            data, self._head = self._head[:size], self._head[size:]
        else:
            data = self._rest.read(size) or b""
        buffer[: len(data)] = data
        self.count += len(data)
        if self._tracker is not None:
            self._tracker.track_frame_boundaries(data)
        return len(data)


_ZSTD_MAGIC = int.from_bytes(ZSTD, "little")
_SKIPPABLE_MAGIC = 0x184D2A50
_RLE_BLOCK = 1


class ZstdFrameTracker:
    """Track frames and blocks of a zstd stream: its decompressor does not report that the last frame is cut (RFC 8878).

    Bytes that are no frame are left to the decompressor.
    """

    def __init__(self) -> None:
        self._skip = 0
        self._field = "magic"
        self._needed = 4
        self._bytes = bytearray()
        self._checksum_size = 0

    @property
    def is_between_frames(self) -> bool:
        """True where a stream may end."""
        return self._field == "magic" and not self._bytes and not self._skip

    def track_frame_boundaries(self, data: bytes) -> None:
        """Advance over these bytes to know whether the stream is between two frames."""
        at = 0
        while at < len(data):
            if self._skip:
                step = min(self._skip, len(data) - at)
                self._skip -= step
                at += step
                continue
            piece = data[at : at + self._needed - len(self._bytes)]
            self._bytes += piece
            at += len(piece)
            if len(self._bytes) == self._needed:
                value = int.from_bytes(self._bytes, "little")
                self._bytes.clear()
                self._expect_following_field(value)

    def _expect_following_field(self, field_value: int) -> None:
        """Choose the next field after one with this value."""
        if self._field == "magic":
            if field_value & ~0xF == _SKIPPABLE_MAGIC:
                self._expect("skippable size", 4)
            elif field_value == _ZSTD_MAGIC:
                self._expect("descriptor", 1)
        elif self._field == "skippable size":
            self._expect("magic", 4, skip=field_value)
        elif self._field == "descriptor":
            is_single_segment, size_code = field_value >> 5 & 1, field_value >> 6
            content_size = (is_single_segment, 2, 4, 8)[size_code]
            self._checksum_size = 4 * (field_value >> 2 & 1)
            self._expect("block", 3, skip=1 - is_single_segment + (0, 1, 2, 4)[field_value & 3] + content_size)
        else:
            is_last, block_type, size = field_value & 1, field_value >> 1 & 3, field_value >> 3
            skip = 1 if block_type == _RLE_BLOCK else size
            if is_last:
                self._expect("magic", 4, skip=skip + self._checksum_size)
            else:
                self._expect("block", 3, skip=skip)

    def _expect(self, field: str, size: int, skip: int = 0) -> None:
        self._field, self._needed, self._skip = field, size, skip
