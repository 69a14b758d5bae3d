"""Decompress a stream while it is read (gzip, xz, bzip2, zstd, lz4); report where its data is cut or damaged."""

from __future__ import annotations

import importlib
import io
import os
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


def find_method(head: bytes) -> str | None:
    """Return the name of the compression of a file that begins with these bytes; None if it is not compressed."""
    methods = ((GZIP, "gzip"), (ZSTD, "zstd"), (XZ, "xz"), (BZIP2, "bzip2"), (LZ4, "lz4"))
    return next((method for magic, method in methods if head.startswith(magic)), None)


def find_file_method(path: str) -> str | None:
    """Return the name of the compression of a local file; None if it is not compressed or cannot be read."""
    try:
        if not os.path.isfile(path):
            return None
        with open(path, "rb") as file:
            return find_method(file.read(HEAD_SIZE))
    except OSError:
        return None


class CompressedStream:
    """Unpacked bytes of a compressed stream, forward only.

    head: the first bytes of the stream, which were read already. rest: the stream after them.

    Raises:
        ImportError: the stream is compressed with lz4, whose library is not installed.
    """

    def __init__(self, head: bytes, rest: IO[bytes]) -> None:
        self._tracker = ZstdFrameTracker() if head == ZSTD else None
        self._input = _CountingInput(head, rest, self._tracker)
        joined: Any = io.BufferedReader(self._input)
        self.method = find_method(head) or ""
        if self.method == "gzip":
            self._reader: Any = importlib.import_module("gzip").GzipFile(fileobj=joined)
        elif self.method == "zstd":
            decompressor = importlib.import_module("zstandard").ZstdDecompressor(max_window_size=_MAX_ZSTD_WINDOW)
            self._reader = decompressor.stream_reader(joined, read_across_frames=True)
        elif self.method == "xz":
            self._reader = importlib.import_module("lzma").LZMAFile(joined)
        elif self.method == "lz4":
            self._reader = importlib.import_module("lz4.frame").LZ4FrameFile(joined)
        else:
            self._reader = importlib.import_module("bz2").BZ2File(joined)
        self.failure: str | None = None
        """Why the unpacked bytes end before those of the log; None while nothing is wrong."""

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
            self.failure = f"the {self.method} data is damaged before byte {self.packed_size:,} of the file ({error})"
            return b""
        if not data and self._tracker is not None and not self._tracker.is_between_frames:
            self.failure = self._describe_cut()
        return data

    def _describe_cut(self) -> str:
        return f"the {self.method} data is cut at byte {self.packed_size:,} of the file"

    @property
    def packed_size(self) -> int:
        """Number of compressed bytes read so far."""
        return self._input.count

    def close(self) -> None:
        """Close the decompressor; not the underlying stream."""
        self._reader.close()


class _CountingInput(io.RawIOBase):
    """Bytes already read from a stream, then the rest of the stream; counts them."""

    def __init__(self, head: bytes, rest: IO[bytes], tracker: ZstdFrameTracker | None) -> None:
        self._head, self._rest, self._tracker = head, rest, tracker
        self.count = 0

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        if self._head:
            data, self._head = self._head[: len(buffer)], self._head[len(buffer) :]
        else:
            data = self._rest.read(len(buffer)) or b""
        buffer[: len(data)] = data
        self.count += len(data)
        if self._tracker is not None:
            self._tracker.feed(data)
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

    def feed(self, data: bytes) -> None:
        """Follow the next bytes of the stream."""
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
                self._advance(value)

    def _advance(self, value: int) -> None:
        """Choose the next field after one with this value."""
        if self._field == "magic":
            if value & ~0xF == _SKIPPABLE_MAGIC:
                self._expect("skippable size", 4)
            elif value == _ZSTD_MAGIC:
                self._expect("descriptor", 1)
        elif self._field == "skippable size":
            self._expect("magic", 4, skip=value)
        elif self._field == "descriptor":
            is_single_segment, size_code = value >> 5 & 1, value >> 6
            content_size = (is_single_segment, 2, 4, 8)[size_code]
            self._checksum_size = 4 * (value >> 2 & 1)
            self._expect("block", 3, skip=1 - is_single_segment + (0, 1, 2, 4)[value & 3] + content_size)
        else:
            is_last, block_type, size = value & 1, value >> 1 & 3, value >> 3
            skip = 1 if block_type == _RLE_BLOCK else size
            if is_last:
                self._expect("magic", 4, skip=skip + self._checksum_size)
            else:
                self._expect("block", 3, skip=skip)

    def _expect(self, field: str, size: int, skip: int = 0) -> None:
        self._field, self._needed, self._skip = field, size, skip
