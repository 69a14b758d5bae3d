"""Reverse spool: return pieces in reverse order with little memory; the excess goes to an unnamed temporary file."""

from __future__ import annotations

import tempfile
from collections.abc import Iterable, Iterator
from pathlib import Path
from types import TracebackType

_MEMORY_BYTES = 4 << 20
_CHUNK_BYTES = 1 << 20


class ReverseSpool:
    """Context manager that reverses the order of pieces. folder: for the temporary file. memory_bytes: bytes kept
    in memory.
    """

    def __init__(self, folder: Path, memory_bytes: int = _MEMORY_BYTES) -> None:
        self._file = tempfile.TemporaryFile(dir=folder)  # noqa: SIM115 -- closed by __exit__
        self._memory_bytes = memory_bytes
        self._pending: list[bytes] = []
        self._size = 0
        self._segments: list[tuple[int, int]] = []

    def __enter__(self) -> ReverseSpool:
        return self

    def __exit__(self, _type: type[BaseException] | None, _error: object, _trace: TracebackType | None) -> None:
        self._file.close()

    def add(self, pieces: Iterable[bytes]) -> None:
        """Add pieces; each precedes all that were added before it."""
        for piece in pieces:
            self._pending.append(piece)
            self._size += len(piece)
            if self._size >= self._memory_bytes:
                self._spill()

    def _spill(self) -> None:
        start = self._file.tell()
        self._file.writelines(reversed(self._pending))
        self._segments.append((start, self._file.tell() - start))
        self._pending, self._size = [], 0

    def read(self) -> Iterator[bytes]:
        """Yield all bytes, the last piece first."""
        yield b"".join(reversed(self._pending))
        for start, size in reversed(self._segments):
            self._file.seek(start)
            for at in range(0, size, _CHUNK_BYTES):
                yield self._file.read(min(_CHUNK_BYTES, size - at))
