"""An encrypted log as plain bytes at the same offsets."""

from __future__ import annotations

from collections.abc import Callable

from binlogtool.errors import InputOutputError
from binlogtool.findings import Finding
from binlogtool.formats.layouts import Read, Unveil
from binlogtool.log.source import Source, read_range


class VeiledSource:
    """The source below, unveiled (`Layout.unveil`) as it is read.

    A stream serves as long as the unveiler asks for no bytes beside those that are read.
    """

    def __init__(self, source: Source, unveil: Callable[[Read], Unveil]) -> None:
        self.name = source.name
        self.size = source.size
        self._source = source
        self._unveil = unveil(self._read)

    def read_at(self, offset: int, view: memoryview) -> int:
        """Fills `view` from `offset` with plain bytes, as far as there are bytes; returns how many."""
        done = self._source.read_at(offset, view)
        self._unveil(offset, view[:done])
        return done

    def _read(self, offset: int, size: int) -> bytes:
        if self.size is None:
            raise InputOutputError(f"{self.name}: an encrypted log cannot be read from a stream; name the file")
        return read_range(self._source, offset, size)

    def skip_hole(self, offset: int) -> int:
        """Never skips: where the encrypted bytes are zeros, the plain ones are not."""
        return offset

    def changed(self) -> Finding | None:
        """Did the file move under us since it was opened?"""
        return self._source.changed()

    def close(self) -> None:
        """Gives the handle back."""
        self._source.close()
