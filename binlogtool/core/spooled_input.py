"""Keep standard input in a temporary file, for commands that read a log several times."""

from __future__ import annotations

import shutil
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager

from binlogtool.core.open_file import spooled_input
from binlogtool.errors import InputOutputError
from binlogtool.limits import MIB


@contextmanager
def spool_standard_input() -> Iterator[None]:
    """Copy standard input to an unnamed temporary file; in this context, `-` can be opened as often as needed.

    Raises:
        InputOutputError: standard input cannot be read, or the temporary file cannot be written.
    """
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
