"""Bounded, read-only access to bytes: files, standard input, compressed files, remote files, bytes in memory.

Nothing is mapped: a file that another process truncates while it is read gives a finding, not a SIGBUS.
"""

from __future__ import annotations

import contextlib
import importlib
import io
import os
import re
import stat
import sys
from collections.abc import Callable
from typing import IO, Any, Protocol

from binlogtool.errors import FileVanishedError, InputOutputError
from binlogtool.findings import Finding, make_finding
from binlogtool.limits import KIB

HEAD_BYTES = 4096
GZIP = b"\x1f\x8b"
ZSTD = b"\x28\xb5\x2f\xfd"
_READAHEAD_BYTES = 256 * KIB


class Source(Protocol):
    """Bytes `[0, size)`; size is None for a stream, which can only be read forward."""

    name: str
    size: int | None

    def read_at(self, offset: int, view: memoryview) -> int:
        """Fill `view` from `offset`, as far as there are bytes; return how many."""

    def skip_hole(self, offset: int) -> int:
        """Return the first offset >= `offset` that may hold anything but zeros (sparse files), else `offset`."""

    def find_change(self) -> Finding | None:
        """Return a finding if the file changed since it was opened."""

    def close(self) -> None:
        """Release the descriptor."""


class FileSource:
    """A regular file, opened read-only; its size is the one at opening.

    handle: a descriptor of the file that is already open elsewhere.
    """

    def __init__(self, path: str, handle: int | None = None) -> None:
        self.name = path
        self._fd = _open_read_only(path) if handle is None else os.dup(handle)
        self._stat = os.fstat(self._fd)
        self.size: int | None = self._stat.st_size

    def read_at(self, offset: int, view: memoryview) -> int:
        """Fill `view` from `offset`; short only at the end of the file."""
        assert self.size is not None
        view = view[: max(0, self.size - offset)]
        done = 0
        while done < len(view):
            try:
                got = os.preadv(self._fd, [view[done:]], offset + done)
            except OSError as error:
                raise InputOutputError(
                    f"{self.name}: cannot be read at {offset + done:#x}: {error.strerror}"
                ) from error
            if got == 0:
                break
            done += got
        return done

    def skip_hole(self, offset: int) -> int:
        """Return the end of a hole at `offset`, according to the file system."""
        assert self.size is not None
        try:
            return min(self.size, os.lseek(self._fd, offset, os.SEEK_DATA))
        except OSError as error:  # ENXIO: only a hole up to the end; EINVAL: not supported here
            return self.size if error.errno == 6 else offset

    def find_change(self) -> Finding | None:
        """Compare size, modification time and the name's inode with those at opening."""
        status = os.fstat(self._fd)
        try:
            path_status = os.stat(self.name)
        except OSError:
            return make_finding("changed-while-read", 0, 0, "the file was removed or renamed while it was read")
        if (path_status.st_dev, path_status.st_ino) != (self._stat.st_dev, self._stat.st_ino):
            return make_finding("changed-while-read", 0, 0, "the file was replaced by another one while it was read")
        if status.st_size == self._stat.st_size and status.st_mtime_ns == self._stat.st_mtime_ns:
            return None
        return make_finding(
            "changed-while-read", min(status.st_size, self._stat.st_size), 0, "the file changed while it was read",
            size_before=self._stat.st_size, size_after=status.st_size,
        )  # fmt: skip

    def close(self) -> None:
        """Close the descriptor."""
        os.close(self._fd)


class StreamSource:
    """Standard input, a pipe, or a decompressing reader: forward only, size unknown."""

    def __init__(self, name: str, stream: IO[bytes], head: bytes = b"", underlying: IO[bytes] | None = None) -> None:
        self.name = name
        self.size: int | None = None
        self._stream = stream
        self._underlying = underlying
        self._read: Callable[[int], bytes | None] = getattr(
            stream, "read1", stream.read
        )  # returns what is available, errors afterwards
        self._head = head
        self._position = 0
        self._error: str | None = None

    def read_at(self, offset: int, view: memoryview) -> int:
        """Fill `view`; `offset` must be where the last read ended."""
        if offset != self._position:
            raise InputOutputError(f"{self.name}: a stream cannot be read at {offset:#x}, only in order")
        done = 0
        while done < len(view) and self._error is None:
            got = self._read_some(len(view) - done)
            if not got:
                break
            view[done : done + len(got)] = got
            done += len(got)
        self._position += done
        return done

    def _read_some(self, max_bytes: int) -> bytes:
        if self._head:
            got, self._head = self._head[:max_bytes], self._head[max_bytes:]
            return got
        try:
            return self._read(min(max_bytes, 1 << 20)) or b""
        except (InputOutputError, MemoryError):  # of the underlying source; of this process
            raise
        except Exception as error:  # zlib.error, EOFError, zstandard.ZstdError, OSError: the stream ends here
            if isinstance(error, OSError) and not _is_bad_gzip(error):
                raise InputOutputError(f"{self.name}: cannot be read: {error}") from error
            self._error = f"the compressed input breaks off: {error}"
            return b""

    def skip_hole(self, offset: int) -> int:
        """Return `offset`: streams have no holes."""
        return offset

    def find_change(self) -> Finding | None:
        """Return a finding if decompression failed, which ends the input."""
        if self._error is None:
            return None
        return make_finding("compression-error", self._position, 0, self._error)

    def close(self) -> None:
        """Close the stream unless it is standard input."""
        for stream in (self._stream, self._underlying):
            if stream is not None and stream is not sys.stdin.buffer:
                stream.close()


class TruncatedSource:
    """A source that seems to end at an offset."""

    def __init__(self, source: Source, end: int) -> None:
        self.name = source.name
        self.size: int | None = end if source.size is None else min(end, source.size)
        self._source = source

    def read_at(self, offset: int, view: memoryview) -> int:
        """Fill `view` from `offset`, no further than the end."""
        assert self.size is not None
        return self._source.read_at(offset, view[: max(0, self.size - offset)])

    def skip_hole(self, offset: int) -> int:
        """Skip a hole, no further than the end."""
        assert self.size is not None
        return min(self.size, self._source.skip_hole(offset))

    def find_change(self) -> Finding | None:
        """Return a finding if the underlying file changed."""
        return self._source.find_change()

    def close(self) -> None:
        """Do nothing: the source stays open."""


class BytesSource:
    """Bytes in memory (tests, library users)."""

    def __init__(self, name: str, data: bytes | bytearray | memoryview) -> None:
        self.name = name
        self.size: int | None = len(data)
        self._data = memoryview(data)

    def read_at(self, offset: int, view: memoryview) -> int:
        """Copy from the bytes."""
        piece = self._data[offset : offset + len(view)]
        view[: len(piece)] = piece
        return len(piece)

    def skip_hole(self, offset: int) -> int:
        """Return `offset`: bytes in memory have no holes."""
        return offset

    def find_change(self) -> Finding | None:
        """Return None: bytes in memory do not change."""
        return None

    def close(self) -> None:
        """Do nothing."""


def _is_bad_gzip(error: OSError) -> bool:
    import gzip

    return isinstance(error, gzip.BadGzipFile)


def _open_read_only(path: str) -> int:
    flags = os.O_RDONLY | os.O_CLOEXEC | getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_NONBLOCK", 0)
    try:
        fd = os.open(path, flags)
    except OSError as error:
        raise make_open_error(path, error) from error
    if stat.S_ISDIR(os.fstat(fd).st_mode):
        os.close(fd)
        raise InputOutputError(f"{path}: is a directory")
    return fd


def make_open_error(path: str, error: OSError) -> InputOutputError:
    """Create the error that says why a file cannot be opened."""
    error_class = FileVanishedError if isinstance(error, FileNotFoundError) else InputOutputError
    return error_class(f"{path}: cannot be opened: {error.strerror}")


def is_url(path: str) -> bool:
    """Return True if a path is the URL of a remote file (`s3://bucket/key`)."""
    return _URL_PATTERN.match(path) is not None


def base_name(path: str) -> str:
    """Return the last part of a path or URL, without the query of a URL (`?region=…`)."""
    return os.path.basename(path.partition("?")[0] if is_url(path) else path)


_URL_PATTERN = re.compile(r"[A-Za-z][A-Za-z0-9+.-]+://")
_REMOTE_MODULE = "binlogtool.pipeline.remote"
"""The module for other systems; loaded by name when the first URL comes, as it needs what not everybody installs."""


def _open_url(url: str) -> Source:
    source: Source = importlib.import_module(_REMOTE_MODULE).open_remote(url)
    try:
        is_compressed = read_head(source, 4).startswith((GZIP, ZSTD))
    except BaseException:
        source.close()
        raise
    return (
        _decompress_stream(url, StreamSource(url, io.BufferedReader(_SequentialReader(source), _READAHEAD_BYTES)))
        if is_compressed
        else source
    )


def list_remote_names(url: str) -> list[str] | None:
    """Return the files below a remote directory, relative to it; None = the URL is not a directory.

    Raises:
        InputOutputError: it cannot be listed.
        UsageError: the kind of URL is not supported.
    """
    names: list[str] | None = importlib.import_module(_REMOTE_MODULE).list_remote_files(url)
    return names


def open_source(path: str) -> Source:
    """Open a path that the user named; `-` is standard input; .gz and .zst content is decompressed on the fly.

    A symbolic link that the user names is followed once, here; its target is then opened without following links.

    Raises:
        InputOutputError: it cannot be opened or read.
    """
    if path == "-":
        return _decompress_stream("-", StreamSource("-", sys.stdin.buffer))
    if is_url(path):
        return _open_url(path)
    real_path = os.path.realpath(path)
    try:
        status = os.stat(real_path)
    except OSError as error:
        raise make_open_error(path, error) from error
    is_regular = stat.S_ISREG(status.st_mode)
    if (not is_regular and not stat.S_ISDIR(status.st_mode)) or (
        is_regular and not status.st_size and _has_content(real_path)
    ):
        return _decompress_stream(path, StreamSource(path, open(real_path, "rb", buffering=0)))
    source = FileSource(real_path)
    source.name = path
    head = read_head(source)
    if head.startswith((GZIP, ZSTD)):
        source.close()
        return _decompress_stream(path, StreamSource(path, open(real_path, "rb")))
    return source


def _has_content(path: str) -> bool:
    """Return True if a file of size 0 can be read, as those of /proc."""
    with contextlib.suppress(OSError), open(path, "rb", buffering=0) as file:
        return bool(file.read(1))
    return False


def _decompress_stream(name: str, stream: StreamSource) -> Source:
    view = memoryview(bytearray(4))
    start = bytes(view[: stream.read_at(0, view)])
    raw: Any = stream._stream
    joined = io.BufferedReader(_PrependedStream(start, raw))
    if start.startswith(GZIP):
        import gzip

        return StreamSource(name, gzip.GzipFile(fileobj=joined), underlying=raw)  # type: ignore[arg-type]
    if start == ZSTD:
        import zstandard

        reader = zstandard.ZstdDecompressor(max_window_size=1 << 27).stream_reader(joined, read_across_frames=True)
        return StreamSource(name, reader, underlying=raw)
    return StreamSource(name, raw, start)


class _SequentialReader(io.RawIOBase):
    """Read a source from its beginning to its end."""

    def __init__(self, source: Source) -> None:
        self._source = source
        self._at = 0

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        got = self._source.read_at(self._at, memoryview(buffer))
        self._at += got
        return got

    def close(self) -> None:
        if not self.closed:
            self._source.close()
        super().close()


class _PrependedStream(io.RawIOBase):
    """Bytes already read from a stream, then the rest of the stream."""

    def __init__(self, start: bytes, rest: IO[bytes]) -> None:
        self._start = start
        self._rest = rest

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        data = self._start[: len(buffer)]
        if data:
            self._start = self._start[len(data) :]
        else:
            data = self._rest.read(len(buffer)) or b""
        buffer[: len(data)] = data
        return len(data)


def read_head(source: Source, size: int = HEAD_BYTES) -> bytes:
    """Return the first bytes of a source that can be read at any offset."""
    view = memoryview(bytearray(size))
    return bytes(view[: source.read_at(0, view)])


def read_range(source: Source, offset: int, size: int) -> bytes:
    """Return the bytes `[offset, offset + size)` of a source that can be read at any offset, fewer at its end."""
    view = memoryview(bytearray(size))
    return bytes(view[: source.read_at(offset, view)])


def make_reopening_reader(path: str) -> Callable[[int, int], bytes]:
    """Return a reader that opens the file for each read: a log may have thousands of files."""

    def read(offset: int, size: int) -> bytes:
        source = FileSource(path)
        try:
            return read_range(source, offset, size)
        finally:
            source.close()

    return read
