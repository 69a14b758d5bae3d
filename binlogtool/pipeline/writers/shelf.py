"""Sidecar files of a script: the data of LOAD DATA statements, taken from the log."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import msgspec

from binlogtool.errors import InputOutputError, RefusedError
from binlogtool.formats.scripting import Shelf


class Folder(msgspec.Struct):
    """`scripting.Shelf` as a directory, created with the first file; an existing non-empty directory is refused."""

    path_: Path
    made: bool = False
    names: set[str] = msgspec.field(default_factory=set)

    def add(self, name: str, data: bytes) -> None:
        """Append bytes to a file.

        Raises:
            RefusedError: the directory exists and is not empty.
            InputOutputError: it cannot be written.
        """
        try:
            if not self.made:
                self._make()
            with (self.path_ / name).open("ab" if name in self.names else "xb") as file:
                file.write(data)
        except OSError as error:
            raise InputOutputError(f"{self.path_}: {error.strerror}") from None
        self.names.add(name)

    def _make(self) -> None:
        if self.path_.exists() and any(self.path_.iterdir()):
            raise RefusedError(f"{self.path_} is not empty; name another directory for the files of LOAD DATA")
        self.path_.mkdir(exist_ok=True)
        self.made = True

    def path(self, name: str) -> str:
        """Return the absolute path of a file."""
        return os.path.abspath(self.path_ / name)

    def discard(self) -> None:
        """Remove the directory if it was created here: the script that needs it is not published."""
        if self.made:
            import shutil

            shutil.rmtree(self.path_, ignore_errors=True)


@contextmanager
def shelved(shelf: Shelf | None) -> Iterator[Callable[[bool], None]]:
    """Yield a function that reports if the script is complete; without that, remove its sidecar files at the end."""
    whole = False

    def keep(is_whole: bool) -> None:
        nonlocal whole
        whole = is_whole

    try:
        yield keep
    finally:
        if isinstance(shelf, Folder) and not whole:
            shelf.discard()
