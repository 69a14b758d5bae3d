"""Sidecar files of a script: the data of LOAD DATA statements, taken from the log."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import msgspec

from binlogtool.errors import InputOutputError, RefusedError
from binlogtool.formats.scripting import SidecarFiles


class SidecarFolder(msgspec.Struct):
    """`scripting.SidecarFiles` as a directory, created with the first file; an existing non-empty directory is
    refused.
    """

    folder: Path
    is_created: bool = False
    names: set[str] = msgspec.field(default_factory=set)

    def add(self, name: str, data: bytes) -> None:
        """Append bytes to a file.

        Raises:
            RefusedError: the directory exists and is not empty.
            InputOutputError: it cannot be written.
        """
        try:
            if not self.is_created:
                self._create_folder()
            with (self.folder / name).open("ab" if name in self.names else "xb") as file:
                file.write(data)
        except OSError as error:
            raise InputOutputError(f"{self.folder}: {error.strerror}") from None
        self.names.add(name)

    def _create_folder(self) -> None:
        if self.folder.exists() and any(self.folder.iterdir()):
            raise RefusedError(f"{self.folder} is not empty; name another directory for the files of LOAD DATA")
        self.folder.mkdir(exist_ok=True)
        self.is_created = True

    def path(self, name: str) -> str:
        """Return the absolute path of a file."""
        return os.path.abspath(self.folder / name)

    def discard(self) -> None:
        """Remove the directory if it was created here: the script that needs it is not published."""
        if self.is_created:
            import shutil

            shutil.rmtree(self.folder, ignore_errors=True)


@contextmanager
def keep_if_complete(shelf: SidecarFiles | None) -> Iterator[Callable[[bool], None]]:
    """Yield a function that reports if the script is complete; without that, remove its sidecar files at the end."""
    is_complete = False

    def set_complete(is_whole: bool) -> None:
        nonlocal is_complete
        is_complete = is_whole

    try:
        yield set_complete
    finally:
        if isinstance(shelf, SidecarFolder) and not is_complete:
            shelf.discard()
