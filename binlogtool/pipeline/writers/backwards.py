"""Pieces in the opposite order of their coming, with little memory: what is too much waits in a file without a name."""

from __future__ import annotations

import tempfile
from collections.abc import Iterable, Iterator
from pathlib import Path
from types import TracebackType

_HELD = 4 << 20
_CHUNK = 1 << 20


class Backwards:
    """`with Backwards(folder) as pieces: ...`. folder: where there is room. held: bytes that are kept in memory."""

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
        """Pieces that stand before all that were added so far."""
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
        """All of it, the last piece first."""
        yield b"".join(reversed(self._last))
        for start, size in reversed(self._segments):
            self._file.seek(start)
            for at in range(0, size, _CHUNK):
                yield self._file.read(min(_CHUNK, size - at))
