"""A file for a writer that ends the process when it cannot write: the error waits until it is asked for.

ORC's writer closes its file in a destructor, and an exception there (a disk that is full) is the end of the process.
"""

from __future__ import annotations

import io
from pathlib import Path
from typing import Any


class Patient(io.RawIOBase):
    """A new file that takes everything. Nothing is written behind the first error."""

    def __init__(self, path: Path) -> None:
        self._file = path.open("wb")
        self._error: OSError | None = None

    def writable(self) -> bool:
        """It is."""
        return True

    def write(self, data: Any) -> int:
        """Writes bytes, or keeps what went wrong."""
        size = memoryview(data).nbytes
        if self._error is None:
            try:
                self._file.write(data)
            except OSError as error:
                self._error = error
        return size

    def close(self) -> None:
        """Ends the file."""
        try:
            self._file.close()
        except OSError as error:
            self._error = self._error or error
        super().close()

    def demand_all(self) -> None:
        """Nothing went wrong so far.

        Raises:
            OSError: it did.
        """
        if self._error is not None:
            raise self._error
