"""The piece of a source that is in memory: it only moves forward, and grows only for one large frame."""

from __future__ import annotations

from binlogtool.findings import Finding
from binlogtool.limits import LONG_VALUE_BYTES
from binlogtool.log import watch
from binlogtool.log.source import Source

_EXTRA_BYTES = 4096
"""Bytes more than asked for that a large piece has room for: the checksum behind a record makes no second one."""


class Window:
    """`buffer[0:length]` holds the source's bytes `[base, base + length)`. `ended`: the source has no more bytes.

    held: file offset from which on bytes are kept, while they are no more than `room`; None = none are.
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

    def load(self, start: int, upto: int) -> None:
        """Drop the bytes before `start` and read at least up to the file offset `upto`, if there are so many."""
        if upto <= self.end or self.ended:
            return
        if (
            self.kept_from is not None
            and self.base <= self.kept_from < start
            and upto - self.kept_from <= self.max_kept_bytes
        ):
            start = self.kept_from
        kept_bytes = self.end - start
        size = max(self._chunk, upto - start)
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
        watch.report_advance(self._source.name, self.end, read)
        self.ended = self.length < capacity

    def skip_hole(self, offset: int) -> int:
        """Return the first file offset >= `offset` that may hold anything but zeros (sparse files)."""
        return self._source.skip_hole(offset)

    def view(self, start: int, end: int) -> memoryview:
        """Return the bytes between two file offsets, as far as they are in memory."""
        low = max(start - self.base, 0)
        return memoryview(self.buffer)[low : max(low, min(end - self.base, self.length))]


class WindowSource:
    """The part of a stream that a window has in memory, as a source: to read it again before the window moves."""

    def __init__(self, name: str, window: Window) -> None:
        self.name = name
        self.size: int | None = window.end
        self._window = window

    def read_at(self, offset: int, view: memoryview) -> int:
        """Fill `view` from `offset`, as far as the bytes are in memory; return how many."""
        piece = self._window.view(offset, offset + len(view)) if offset >= self._window.base else memoryview(b"")
        view[: len(piece)] = piece
        return len(piece)

    def skip_hole(self, offset: int) -> int:
        """Return `offset`: nothing is skipped."""
        return offset

    def find_change(self) -> Finding | None:
        """Return None: bytes in memory do not change."""
        return None

    def close(self) -> None:
        """Do nothing: the stream stays open."""
