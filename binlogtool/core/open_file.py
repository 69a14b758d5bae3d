"""Open one file for reading: bounded access to its bytes, format detection, decryption, layout from its header.

Files are not memory-mapped: if another process truncates a file while it is read, the result is a finding, not a
SIGBUS.
"""

from __future__ import annotations

import contextlib
import importlib
import io
import os
import re
import shutil
import stat
import sys
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from functools import partial
from hashlib import blake2b
from typing import IO, Any, Protocol

import msgspec
from msgspec.structs import replace

from binlogtool import formats
from binlogtool.core import notify_progress_listener
from binlogtool.core.decompress_forward_only import COMPRESSED_HEADS, HEAD_SIZE, CompressedStream, detect_compression
from binlogtool.core.notify_progress_listener import READABLE_COMPRESSED_SUFFIXES, strip_compressed_suffix
from binlogtool.errors import (
    FileVanishedError,
    InputOutputError,
    UnknownFormatError,
    UsageError,
    format_name_suggestions,
)
from binlogtool.findings import Finding, make_finding
from binlogtool.format_api.format import (
    FileHead,
    Format,
    Hints,
    PrecedingFiles,
    ReadableFile,
    correct_head,
    make_layout_with_corrected_header,
)
from binlogtool.format_api.layout import BufferDecryptor, LogFileLayout, RangeReader
from binlogtool.limits import KIB, LONG_VALUE_BYTES, MIB, Limits

# --- Bounded, read-only access to bytes ---

HEAD_BYTES = 4096
_READAHEAD_BYTES = 256 * KIB


class Source(Protocol):
    """Bytes `[0, size)`; size is None for a stream, which can only be read forward."""

    name: str
    size: int | None

    def read_at(self, offset: int, view: memoryview) -> int:
        """Fill `view` with the bytes from `offset` on; return their number."""

    def find_hole_end(self, offset: int) -> int:
        """Return the first offset >= `offset` that may hold anything but zeros (sparse files), else `offset`."""
        return offset

    def find_change_or_cut(self) -> Finding | None:
        """Return a finding if the file changed since it was opened."""
        return None

    def close(self) -> None:
        """Release the descriptor."""
        return


class FileSource(Source):
    """A regular file, opened read-only; its size is that at the time of opening.

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

    def find_hole_end(self, offset: int) -> int:
        """Return the end of a hole at `offset`, according to the file system."""
        assert self.size is not None
        try:
            return min(self.size, os.lseek(self._fd, offset, os.SEEK_DATA))
        except OSError as error:  # ENXIO: only a hole up to the end; EINVAL: not supported here
            return self.size if error.errno == 6 else offset

    def find_change_or_cut(self) -> Finding | None:
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


class StreamSource(Source):
    """Standard input, a pipe, or a decompressing reader: forward only, size unknown.

    underlying: the stream that a decompressing reader reads; it is closed with it.
    """

    def __init__(
        self, name: str, stream: IO[bytes] | CompressedStream, head: bytes = b"", underlying: IO[bytes] | None = None
    ) -> None:
        self.name = name
        self.size: int | None = None
        self._stream = stream
        self._underlying = underlying
        read: Any = getattr(stream, "read1", None) or stream.read  # type: ignore[union-attr]
        self._read: Callable[[int], bytes | None] = read  # returns what is available
        self._head = head
        self._position = 0

    def read_at(self, offset: int, view: memoryview) -> int:
        """Fill `view`; `offset` must be where the last read ended."""
        if offset != self._position:
            raise InputOutputError(f"{self.name}: a stream can only be read in order, not at {offset:#x}")
        done = 0
        while done < len(view):
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
        if self._failure is not None:
            return b""
        try:
            return self._read(min(max_bytes, 1 << 20)) or b""
        except OSError as error:
            raise InputOutputError(f"{self.name}: cannot be read: {error}") from error

    @property
    def is_unpacked(self) -> bool:
        """True if the stream is unpacked while it is read."""
        return isinstance(self._stream, CompressedStream)

    @property
    def _failure(self) -> str | None:
        return self._stream.failure if isinstance(self._stream, CompressedStream) else None

    def find_change_or_cut(self) -> Finding | None:
        """Return a finding if the compressed data is cut or damaged, which ends the input."""
        if self._failure is None or not isinstance(self._stream, CompressedStream):
            return None
        what = "nothing" if not self._position else f"the first {self._position:,} bytes of the log"
        text = f"{self._failure}: {what} could be unpacked; copy the file again from where it was compressed"
        return make_finding("compression-error", self._position, 0, text, packed_size=self._stream.packed_size)

    def close(self) -> None:
        """Close the stream unless it is standard input."""
        for stream in (self._stream, self._underlying):
            if stream is not None and stream is not sys.stdin.buffer:
                stream.close()


def is_unpacked(source: Source) -> bool:
    """Return True if the source unpacks a compressed file while it is read."""
    return isinstance(source, StreamSource) and source.is_unpacked


class TruncatedSource(Source):
    """View of a source that ends at an offset."""

    def __init__(self, source: Source, end: int) -> None:
        self.name = source.name
        self.size: int | None = end if source.size is None else min(end, source.size)
        self._source = source

    def read_at(self, offset: int, view: memoryview) -> int:
        """Fill `view` from `offset`, no further than the end."""
        assert self.size is not None
        return self._source.read_at(offset, view[: max(0, self.size - offset)])

    def find_hole_end(self, offset: int) -> int:
        """Skip a hole, no further than the end."""
        assert self.size is not None
        return min(self.size, self._source.find_hole_end(offset))

    def find_change_or_cut(self) -> Finding | None:
        """Return a finding if the underlying file changed."""
        return self._source.find_change_or_cut()


class BytesSource(Source):
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
    """Create the error with the reason why a file cannot be opened."""
    error_class = FileVanishedError if isinstance(error, FileNotFoundError) else InputOutputError
    return error_class(f"{path}: cannot be opened: {error.strerror}")


def is_url(path: str) -> bool:
    """Return True if a path is the URL of a remote file (`s3://bucket/key`)."""
    return _URL_PATTERN.match(path) is not None


def base_name(path: str) -> str:
    """Return the last part of a path or URL, without the query of a URL (`?region=…`)."""
    return os.path.basename(path.partition("?")[0] if is_url(path) else path)


_URL_PATTERN = re.compile(r"[A-Za-z][A-Za-z0-9+.-]+://")
_REMOTE_MODULE = "binlogtool.core.remote_files"
"""The module for remote files, imported by name at the first URL: its dependencies are optional."""


def _open_url(url: str) -> Source:
    source: Source = importlib.import_module(_REMOTE_MODULE).open_remote(url)
    return _decompress_source_if_compressed(source)


def list_remote_names(url: str) -> list[str] | None:
    """Return the files below a remote directory, relative to it; None = the URL is not a directory.

    Raises:
        InputOutputError: the directory cannot be listed.
        UsageError: the kind of URL is not supported.
    """
    names: list[str] | None = importlib.import_module(_REMOTE_MODULE).list_remote_files(url)
    return names


def open_source(path: str) -> Source:
    """Open a path given by the user; `-` is standard input; compressed content is decompressed on the fly.

    A symbolic link that the user names is followed once, here; its target is then opened without following links.

    Raises:
        InputOutputError: the path cannot be opened or read.
    """
    if path == "-":
        spooled = spooled_input.get()
        if spooled is None:
            return _decompress_stream_if_compressed("-", StreamSource("-", sys.stdin.buffer))
        return _decompress_source_if_compressed(_SpooledSource("-", spooled))
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
        return _decompress_stream_if_compressed(path, StreamSource(path, open(real_path, "rb", buffering=0)))
    source = FileSource(real_path)
    source.name = path
    head = read_head(source)
    if not head and path.endswith(READABLE_COMPRESSED_SUFFIXES):
        source.close()
        raise InputOutputError(f"{path}: the file is empty; copy it again from where it was compressed")
    if head.startswith(COMPRESSED_HEADS):
        source.close()
        return _decompress_stream_if_compressed(path, StreamSource(path, open(real_path, "rb")))
    return source


# --- Standard input that is read several times ---

spooled_input: ContextVar[int | None] = ContextVar("spooled_input", default=None)
"""Descriptor of the temporary file that holds standard input (`spool_standard_input`)."""


def is_stream_path(path: str) -> bool:
    """Return True if what a path names can be read only once."""
    if path == "-":
        return spooled_input.get() is None
    return os.path.exists(path) and not os.path.isfile(path)


class _SpooledSource(FileSource):
    """Standard input, from its temporary file."""

    def find_change_or_cut(self) -> Finding | None:
        """Return None: nothing else has the file."""
        return None


def _decompress_source_if_compressed(source: Source) -> Source:
    """Return the source, or its decompressed content; close it on errors."""
    try:
        is_compressed = read_head(source, HEAD_SIZE).startswith(COMPRESSED_HEADS)
    except BaseException:
        source.close()
        raise
    if not is_compressed:
        return source
    sequential = io.BufferedReader(_SequentialReader(source), _READAHEAD_BYTES)
    return _decompress_stream_if_compressed(source.name, StreamSource(source.name, sequential))


def _has_content(path: str) -> bool:
    """Return True if a file of size 0 has content nevertheless, as files in /proc have."""
    with contextlib.suppress(OSError), open(path, "rb", buffering=0) as file:
        return bool(file.read(1))
    return False


def _decompress_stream_if_compressed(name: str, stream: StreamSource) -> Source:
    view = memoryview(bytearray(HEAD_SIZE))
    start = bytes(view[: stream.read_at(0, view)])
    raw: Any = stream._stream
    if start.startswith(COMPRESSED_HEADS):
        try:
            return StreamSource(name, CompressedStream(start, raw), underlying=raw)
        except ImportError:
            stream.close()
            advice = "unpack it, or install the Python package lz4"
            raise InputOutputError(f"{name}: the file is compressed with lz4, which cannot be read; {advice}") from None
    return StreamSource(name, raw, start)


class _SequentialReader(io.RawIOBase):
    """Stream that reads a source from its beginning to its end."""

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


def read_head(source: Source, size: int = HEAD_BYTES) -> bytes:
    """Return the first bytes of a source that can be read at any offset."""
    view = memoryview(bytearray(size))
    return bytes(view[: source.read_at(0, view)])


def read_range(source: Source, offset: int, size: int) -> bytes:
    """Return the bytes `[offset, offset + size)` of a source that can be read at any offset, fewer at its end."""
    found = bytearray()
    while len(found) < size:  # in pieces: `size` may be a limit far above the size of the file
        view = memoryview(bytearray(min(size - len(found), _PIECE_BYTES)))
        count = source.read_at(offset + len(found), view)
        found += view[:count]
        if count < len(view):
            break
    return bytes(found)


_PIECE_BYTES = 1 << 16


def make_reopening_reader(path: str) -> Callable[[int, int], bytes]:
    """Return a reader that opens the file for each read: a log may have thousands of files."""

    def read(offset: int, size: int) -> bytes:
        source = FileSource(path)
        try:
            return read_range(source, offset, size)
        finally:
            source.close()

    return read


# --- The piece of a source that is in memory ---

_EXTRA_BYTES = 4096
"""Extra space in a large buffer, so that the checksum after a record fits into the same buffer."""


class Window:
    """`buffer[0:length]` holds the source's bytes `[base, base + length)`. `ended`: the source has no more bytes.

    held: file offset from which bytes are kept, as long as they are at most `room` bytes; None = none are kept.
    """

    def __init__(self, source: Source, chunk: int) -> None:
        self._source = source
        self._chunk = chunk
        self.buffer = bytearray(chunk)
        self.base = 0
        self.length = 0
        self.ended = False
        self.kept_from: int | None = None
        self.max_kept_bytes = 0

    @property
    def end(self) -> int:
        """The file offset after the last byte in memory."""
        return self.base + self.length

    @property
    def size(self) -> int | None:
        """The size of the source, if it is known before the end is reached."""
        return self._source.size

    def load_range(self, start: int, min_end: int) -> None:
        """Drop the bytes before `start` and read at least up to the file offset `min_end`, or to the end of the
        source.
        """
        if min_end <= self.end or self.ended:
            return
        if (
            self.kept_from is not None
            and self.base <= self.kept_from < start
            and min_end - self.kept_from <= self.max_kept_bytes
        ):
            start = self.kept_from
        kept_bytes = self.end - start
        size = max(self._chunk, min_end - start)
        target, capacity = self.buffer, len(self.buffer)
        if size > capacity:
            target, capacity = bytearray(size + _EXTRA_BYTES * (size > LONG_VALUE_BYTES)), size
        with memoryview(target) as view:
            if kept_bytes > 0:
                view[:kept_bytes] = memoryview(self.buffer)[start - self.base : self.length]
            self.buffer = target
            self.base, self.length = start, max(kept_bytes, 0)
            read = self._source.read_at(self.end, view[self.length : capacity])
        self.length += read
        notify_progress_listener.report_advance(self._source.name, self.end, read)
        self.ended = self.length < capacity

    def find_hole_end(self, offset: int) -> int:
        """Return the first file offset >= `offset` that may hold anything but zeros (sparse files)."""
        return self._source.find_hole_end(offset)

    def view(self, start: int, end: int) -> memoryview:
        """Return the bytes between two file offsets, as far as they are in memory."""
        low = max(start - self.base, 0)
        return memoryview(self.buffer)[low : max(low, min(end - self.base, self.length))]


class WindowSource(Source):
    """Source of the part of a stream that a window has in memory, to read it again before the window moves."""

    def __init__(self, name: str, window: Window) -> None:
        self.name = name
        self.size: int | None = window.end
        self._window = window

    def read_at(self, offset: int, view: memoryview) -> int:
        """Fill `view` from `offset`, as far as the bytes are in memory; return how many."""
        piece = self._window.view(offset, offset + len(view)) if offset >= self._window.base else memoryview(b"")
        view[: len(piece)] = piece
        return len(piece)


# --- Format detection by content, with reasons ---

CERTAIN_SCORE = 100


def find_format(name: str) -> Format:
    """Return the format called `name`; `NAME:VARIANT` fixes the variant, which `layout` would otherwise detect.

    Raises:
        UsageError: no format or variant has that name.
    """
    base, colon, variant = name.partition(":")
    try:
        format_ = formats.load_format(base)
    except KeyError:
        known_names = ", ".join(formats.list_names())
        suggestion = format_name_suggestions(base, formats.list_names())
        raise UsageError(f"unknown format {name!r}{suggestion or f'; known formats: {known_names}'}") from None
    if not colon:
        return format_
    if variant not in format_.reading.variants:
        known_names = ", ".join(format_.reading.variants) or "none"
        raise UsageError(f"format {base} has no variant {variant!r}; known variants: {known_names}")
    reading = replace(format_.reading, layout=partial(format_.reading.layout, variant=variant))
    return replace(format_, variant=variant, reading=reading)


def detect_format(head: FileHead) -> Format:
    """Return the best matching format. Raises UnknownFormatError: no format matches, or two match equally well."""
    scored = []
    for format_ in _iter_formats_likely_first(base_name(head.name)):
        match = format_.reading.detect(head)
        if match.score >= CERTAIN_SCORE:
            return format_
        scored.append((match, format_))
    best = max(match.score for match, _ in scored)
    fitting = [(match, format_) for match, format_ in scored if match.score == best]
    if best <= 0:
        if not head.data:
            raise UnknownFormatError(f"{head.name}: the file is empty")
        first_bytes = head.data[:16].hex(" ")
        raise UnknownFormatError(
            f"{head.name}: no known log format (starts with {first_bytes}); known: {_list_known_formats()}"
        )
    if len(fitting) > 1:
        reasons = "; ".join(f"{format_.name}: {match.reason}" for match, format_ in fitting)
        raise UnknownFormatError(f"{head.name}: matches more than one format ({reasons}); choose one with --format")
    return fitting[0][1]


def detect_source_format(source: Source, head: FileHead) -> Format:
    """Return the format that fits the first bytes of a source best.

    Raises:
        UnknownFormatError: as `detect_format`.
        InputOutputError: the source is compressed, and too little of it can be unpacked.
    """
    try:
        return detect_format(head)
    except UnknownFormatError as error:
        _refuse_cut_compressed_source(source)
        raise UnknownFormatError(f"{source.name}{str(error).removeprefix(head.name)}") from error


def _refuse_cut_compressed_source(source: Source) -> None:
    """Raise InputOutputError if a compressed source is cut or damaged."""
    if source.size is None and (failure := source.find_change_or_cut()) is not None:
        raise InputOutputError(f"{source.name}: {failure.message}")


def _iter_formats_likely_first(name: str) -> Iterator[Format]:
    """Yield all formats, those that match the file name first, so that usually no other format is imported."""
    likely = set()
    for format_name in formats.find_by_file_name(name):
        likely.add(format_name)
        yield formats.load_format(format_name)
    yield from (other for other in formats.iter_formats() if other.name not in likely)


def _list_known_formats() -> str:
    broken_plugins = (f"; {name} cannot be loaded: {why}" for name, why in formats.find_broken_plugins().items())
    return ", ".join(formats.list_names()) + "".join(broken_plugins)


# --- One file opened for reading ---

_MIB = 1 << 20


class LogFile(msgspec.Struct, frozen=True):
    """One file of a log. `name` is relative to the set's directory (the path itself when there is no set)."""

    path: str
    name: str
    format: Format
    layout: LogFileLayout
    source: Source
    window: Window
    head: bytes = b""
    """The first bytes of the file when it was opened, up to the last byte that its server may change later."""

    def find_change_since_open(self) -> Finding | None:
        """Return a finding if the file changed since it was opened, except by a server that closes it."""
        change = self.source.find_change_or_cut()
        if change is None or not self.head or self.size is None:
            return change
        if change.facts.get("size_before") != change.facts.get("size_after"):
            return change
        first, last = self.format.files.mutable_header
        current_head = read_range(self.source, 0, len(self.head))
        is_same = current_head[:first] + current_head[last:] == self.head[:first] + self.head[last:]
        return None if is_same and current_head != self.head else change

    @property
    def size(self) -> int | None:
        """Size in bytes; None for a stream."""
        return self.source.size


class SiblingFiles(msgspec.Struct, frozen=True):
    """Access to the other files of a log.

    Args:
        shared: a dictionary that all files of the log share (see `FileHead`).
        read_sibling: reader of other files of the directory, if they must not be read from the disk.
        preceding: see `FileHead`.
    """

    shared: dict[str, Any] | None = None
    read_sibling: Callable[[str], RangeReader | None] | None = None
    preceding: PrecedingFiles | None = None


_NO_SIBLINGS = SiblingFiles()


def open_file(
    path: str,
    name: str,
    format_: Format | None,
    limits: Limits,
    source: Source | None = None,
    siblings: SiblingFiles = _NO_SIBLINGS,
    hints: Hints = Hints(),
) -> LogFile:
    """Open one file and read its head.

    Raises:
        InputOutputError, UnknownFormatError.
    """
    source = source or open_source(path)
    try:
        window = Window(source, _MIB)
        window.load_range(0, HEAD_BYTES)
        size = source.size if source.size is not None else (window.end if window.ended else None)
        peek = None if source.size is None else partial(read_range, source)
        data = bytes(window.view(0, HEAD_BYTES))
        read_sibling, shared = siblings.read_sibling, {} if siblings.shared is None else siblings.shared
        if read_sibling is None and source.size is not None and not isinstance(source, BytesSource):
            read_sibling = partial(make_sibling_reader, path)
        redo = None if hints.redo is None else make_readable_file(hints.redo)
        preceding = siblings.preceding
        if preceding is None and hints.earlier is not None:
            state = msgspec.json.decode(hints.earlier)
            preceding = PrecedingFiles(state["name"], lambda _format_name: state.get("carried"))
        head = FileHead(data, _get_log_name(path, source), size, shared, peek, hints, read_sibling, redo, preceding)
        detected = format_ or detect_source_format(source, head)
        if not data:
            _refuse_cut_compressed_source(source)
        _require_level_supported(detected, hints)
        if hints.objects and hints.level is None:
            head = replace(head, hints=replace(hints, level=detected.reading.event_level))
        layout = _make_layout_correcting_header(detected, head, limits)
        if layout.decrypt is not None:
            source = _decrypt_source(source, layout)
            window = Window(source, _MIB)
        return LogFile(path, name, detected, layout, source, window, data[: detected.files.mutable_header[1]])
    except BaseException:
        source.close()
        raise


def _get_log_name(path: str, source: Source) -> str:
    """Return the base name that the log has unpacked: formats read the number of a file from its name."""
    name = base_name(path)
    return strip_compressed_suffix(name) if is_unpacked(source) else name


def _make_layout_correcting_header(format_: Format, head: FileHead, limits: Limits) -> LogFileLayout:
    """Return the layout of the file; if one flipped bit explains a damaged header, use the corrected header."""
    flips = (
        ()
        if format_.reading.find_header_bit_flips is None or head.size is None
        else format_.reading.find_header_bit_flips(head)
    )
    for flip in flips:
        layout = format_.reading.layout(correct_head(head, flip), limits)
        if layout.readable and layout.decrypt is None:
            return make_layout_with_corrected_header(layout, flip)
    return format_.reading.layout(head, limits)


def total_size(paths: Iterable[str]) -> int:
    """Return the total size of these files in bytes; remote files and streams count as 0."""
    return sum(map(_file_size, paths))


def _file_size(path: str) -> int:
    try:
        status = os.stat(path)
    except OSError:  # the file may have vanished meanwhile
        return 0
    return status.st_size if stat.S_ISREG(status.st_mode) else 0


def make_sibling_reader(path: str, name: str) -> RangeReader | None:
    """Return a reader of another file in the directory of `path`; it opens the file for each read."""
    if is_url(path):
        return _make_url_sibling_reader(path, os.path.basename(name))
    sibling_path = os.path.join(os.path.dirname(os.path.realpath(path)), os.path.basename(name))
    return (
        make_reopening_reader(sibling_path)
        if os.path.isfile(sibling_path) and not os.path.islink(sibling_path)
        else None
    )


def _make_url_sibling_reader(url: str, name: str) -> RangeReader | None:
    base, mark, query = url.partition("?")
    sibling_url = f"{os.path.dirname(base)}/{name}{mark}{query}"
    try:
        source = open_source(sibling_url)
    except InputOutputError:
        return None
    return partial(read_range, source)


def make_readable_file(path: str) -> ReadableFile:
    """Return a reader of a file given by the user, which opens it for each read. Raises InputOutputError: it cannot."""
    source = FileSource(path)
    source.close()
    return ReadableFile(make_reopening_reader(path), source.size or 0)


def _require_level_supported(format_: Format, hints: Hints) -> None:
    level = hints.level
    if level is not None and level not in format_.reading.levels:
        known_levels = ", ".join(format_.reading.levels) or "only one"
        raise UsageError(f"--level {level}: {format_.name} has {known_levels}")
    if level is not None and hints.objects and format_.reading.event_level not in (None, level):
        text = f"--level {level}: the records of {format_.name} at this level have no object and are not statements"
        raise UsageError(f"{text}; use --level {format_.reading.event_level}")


def _decrypt_source(source: Source, layout: LogFileLayout) -> Source:
    """Return the decrypted bytes of an encrypted file."""

    if source.size is None:
        raise InputOutputError(f"{source.name}: an encrypted log cannot be read from a stream; name the file")
    assert layout.decrypt is not None
    return DecryptedSource(source, layout.decrypt)


# --- Source of decrypted bytes ---


class DecryptedSource(Source):
    """Source that decrypts an underlying source as it is read (`LogFileLayout.decrypt`).

    The underlying source may be a stream if the decryptor needs no bytes other than those that are read.
    """

    def __init__(self, source: Source, make_decryptor: Callable[[RangeReader], BufferDecryptor]) -> None:
        self.name = source.name
        self.size = source.size
        self._source = source
        self._decrypt = make_decryptor(self._read_encrypted)

    def read_at(self, offset: int, view: memoryview) -> int:
        """Fill `view` with the decrypted bytes from `offset` on; return their number."""
        done = self._source.read_at(offset, view)
        self._decrypt(offset, view[:done])
        return done

    def _read_encrypted(self, offset: int, size: int) -> bytes:
        if self.size is None:
            raise InputOutputError(f"{self.name}: an encrypted log cannot be read from a stream; name the file")
        return read_range(self._source, offset, size)

    def find_change_or_cut(self) -> Finding | None:
        """Return a finding if the file changed since it was opened."""
        return self._source.find_change_or_cut()

    def close(self) -> None:
        """Close the underlying source."""
        self._source.close()


# --- File identity by content ---

IDENTITY_HEAD_SIZE = 128
_TAIL_SIZE = 64


def hash_head_and_bytes_before(file: LogFile, offset: int) -> str:
    """Return a hash of the head of a file and of the bytes before `offset`; "" for offset 0.

    Both were durable when `offset` was reached, so a server never changes them.
    """
    if not offset:
        return ""
    source, (first, last) = file.source, file.format.files.mutable_header
    head = bytearray(read_range(source, 0, min(IDENTITY_HEAD_SIZE, offset)))
    del head[first:last]
    start = max(last, offset - _TAIL_SIZE)
    return blake2b(bytes(head) + read_range(source, start, max(0, offset - start)), digest_size=8).hexdigest()


# --- Keep standard input in a temporary file, for commands that read a log several times ---


@contextmanager
def spool_standard_input() -> Iterator[None]:
    """Copy standard input to an unnamed temporary file; in this context, `-` can be opened as often as needed.

    Raises:
        InputOutputError: standard input cannot be read, or the temporary file cannot be written.
    """
    import tempfile

    with tempfile.TemporaryFile(prefix="binlogtool-stdin-") as file:
        try:
            shutil.copyfileobj(sys.stdin.buffer, file, MIB)
            file.flush()
        except OSError as error:
            text = f"standard input: cannot be stored in {tempfile.gettempdir()}: {error.strerror}"
            raise InputOutputError(f"{text}; name another directory with TMPDIR, or save the log to a file") from error
        token = spooled_input.set(file.fileno())
        try:
            yield
        finally:
            spooled_input.reset(token)


def detect_file_compression(path: str) -> str | None:
    """Return the name of the compression of a local file; None if it is not compressed or cannot be read."""
    try:
        if not os.path.isfile(path):
            return None
        with open(path, "rb") as file:
            return detect_compression(file.read(HEAD_SIZE))
    except OSError:
        return None
