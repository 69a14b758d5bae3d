"""Files beside a script: the data of LOAD DATA, which stand in the log."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import msgspec

from binlogtool.errors import InputOutputError, RefusedError
from binlogtool.formats.scripting import Shelf


class Folder(msgspec.Struct):
    """`scripting.Shelf`: a directory that is made when the first file comes. What was there before is refused."""

    path_: Path
    made: bool = False
    names: set[str] = msgspec.field(default_factory=set)

    def add(self, name: str, data: bytes) -> None:
        """More bytes of a file.

        Raises:
            RefusedError: the directory is there and not empty. InputOutputError: it cannot be written.
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
        """Where the file is."""
        return os.path.abspath(self.path_ / name)

    def discard(self) -> None:
        """Removes what was made here: the script that needs it is not written."""
        if self.made:
            import shutil

            shutil.rmtree(self.path_, ignore_errors=True)


@contextmanager
def shelved(shelf: Shelf | None) -> Iterator[Callable[[bool], None]]:
    """Removes the files again unless the script that needs them is whole; gives the function that says so."""
    whole = False

    def keep(is_whole: bool) -> None:
        nonlocal whole
        whole = is_whole

    try:
        yield keep
    finally:
        if isinstance(shelf, Folder) and not whole:
            shelf.discard()
