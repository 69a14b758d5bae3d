"""Source of decrypted bytes at the same offsets as in the encrypted file."""

from __future__ import annotations

from collections.abc import Callable

from binlogtool.errors import InputOutputError
from binlogtool.findings import Finding
from binlogtool.formats.layouts import BufferDecryptor, RangeReader
from binlogtool.log.source import Source, read_range


class DecryptedSource:
    """The underlying source, decrypted (`LogFileLayout.decrypt`) as it is read.

    A stream works as long as the decryptor needs no bytes other than those that are read.
    """

    def __init__(self, source: Source, make_decryptor: Callable[[RangeReader], BufferDecryptor]) -> None:
        self.name = source.name
        self.size = source.size
        self._source = source
        self._decrypt = make_decryptor(self._read_encrypted)

    def read_at(self, offset: int, view: memoryview) -> int:
        """Fill `view` from `offset` with decrypted bytes, as far as there are bytes; return how many."""
        done = self._source.read_at(offset, view)
        self._decrypt(offset, view[:done])
        return done

    def _read_encrypted(self, offset: int, size: int) -> bytes:
        if self.size is None:
            raise InputOutputError(f"{self.name}: an encrypted log cannot be read from a stream; name the file")
        return read_range(self._source, offset, size)

    def skip_hole(self, offset: int) -> int:
        """Return `offset`: encrypted zeros are not zeros when decrypted."""
        return offset

    def find_change(self) -> Finding | None:
        """Return a finding if the file changed since it was opened."""
        return self._source.find_change()

    def close(self) -> None:
        """Close the underlying source."""
        self._source.close()
