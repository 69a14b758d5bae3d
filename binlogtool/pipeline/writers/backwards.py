"""Reverse spool: return pieces in reverse order with little memory; the excess goes to an unnamed temporary file."""

from __future__ import annotations

import tempfile
from collections.abc import Iterable, Iterator
from pathlib import Path
from types import TracebackType

_HELD = 4 << 20
_CHUNK = 1 << 20


class Backwards:
    """Context manager that reverses the order of pieces. folder: for the temporary file. held: bytes kept in memory."""

    def __init__(self, folder: Path, held: int = _HELD) -> None:
        self._file = tempfile.TemporaryFile(dir=folder)  # noqa: SIM115 -- closed by __exit__
        self._held = held
        self._last: list[bytes] = []
        self._size = 0
        self._segments: list[tuple[int, int]] = []

    def __enter__(self) -> Backwards:
        return self

    def __exit__(self, _type: type[BaseException] | None, _error: object, _trace: TracebackType | None) -> None:
        self._file.close()

    def add(self, pieces: Iterable[bytes]) -> None:
        """Add pieces; each precedes all that were added before it."""
        for piece in pieces:
            self._last.append(piece)
            self._size += len(piece)
            if self._size >= self._held:
                self._spill()

    def _spill(self) -> None:
        start = self._file.tell()
        self._file.writelines(reversed(self._last))
        self._segments.append((start, self._file.tell() - start))
        self._last, self._size = [], 0

    def read(self) -> Iterator[bytes]:
        """Yield all bytes, the last piece first."""
        yield b"".join(reversed(self._last))
        for start, size in reversed(self._segments):
            self._file.seek(start)
            for at in range(0, size, _CHUNK):
                yield self._file.read(min(_CHUNK, size - at))
