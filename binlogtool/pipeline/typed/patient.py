"""File for a writer that aborts the process on a write error: the error is kept until it is asked for.

ORC's writer closes its file in a destructor, where an exception (such as a full disk) aborts the process.
"""

from __future__ import annotations

import io
from pathlib import Path
from typing import Any


class DeferredErrorFile(io.RawIOBase):
    """New file that accepts all data; nothing is written after the first error."""

    def __init__(self, path: Path) -> None:
        self._file = path.open("wb")
        self._error: OSError | None = None

    def writable(self) -> bool:
        """Return True."""
        return True

    def write(self, data: Any) -> int:
        """Write bytes, or keep the error."""
        size = memoryview(data).nbytes
        if self._error is None:
            try:
                self._file.write(data)
            except OSError as error:
                self._error = error
        return size

    def close(self) -> None:
        """Close the file, keeping an error."""
        try:
            self._file.close()
        except OSError as error:
            self._error = self._error or error
        super().close()

    def raise_deferred_error(self) -> None:
        """Raise the first error, if there was one.

        Raises:
            OSError: it happened.
        """
        if self._error is not None:
            raise self._error
