"""Report the progress of reading and the skipped files to a `ProgressListener`."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from typing import NamedTuple, Protocol

from binlogtool import formats

# --- Files of a directory that belong to none of its logs ---

FILE, LINK, COMPRESSED, UNREADABLE = "file", "symbolic link", "compressed file", "unreadable file"
DESTROYED_LOG = "file named like a log"
"""Kind of a file that only its name shows to be a log: it has neither header nor record."""
UNFINISHED_COPY = "unfinished copy of a log"
LINK_TO_LOG, UNREADABLE_LOG = "symbolic link named like a log", "unreadable file named like a log"
UNLISTABLE = "directory that cannot be listed"
UNREAD_LOGS = {
    DESTROYED_LOG: (3, "named like a log file, but it has neither header nor record"),
    LINK_TO_LOG: (4, "not checked: symbolic links are not followed; name its target, or the link itself"),
    UNREADABLE_LOG: (4, "not checked: the file cannot be read"),
    UNLISTABLE: (4, "not checked: the directory cannot be listed; check its owner and mode"),
}
"""Kind of a skipped file that is, or was, part of a log -> exit status, and why it was not read."""


class SkippedFile(NamedTuple):
    """One skipped file. name: relative to the directory. kind: file, symbolic link, FIFO, compressed file, …"""

    name: str
    kind: str


READABLE_COMPRESSED_SUFFIXES = (".gz", ".zst", ".xz", ".bz2", ".lz4")
"""Name suffixes of compressed files that are unpacked while they are read; lz4 needs the extra `lz4`."""
COMPRESSED_SUFFIXES = (*READABLE_COMPRESSED_SUFFIXES, ".lzma", ".Z", ".zip", ".7z")


def strip_compressed_suffix(name: str) -> str:
    """Return the name of a compressed file without the suffix of its compression; other names unchanged."""
    suffix = next((one for one in COMPRESSED_SUFFIXES if name.endswith(one)), "")
    return name.removesuffix(suffix)


def is_compressed_log(skipped: SkippedFile) -> bool:
    """Return True for a compressed file with the name of a log file: then a part of the log is not read."""
    name = os.path.basename(skipped.name)
    log_name = strip_compressed_suffix(name)
    if skipped.kind != COMPRESSED or log_name == name:
        return False
    return next(formats.find_by_file_name(log_name), None) is not None


_UNFINISHED_SUFFIXES = (".part", ".partial", ".filepart", ".tmp")
"""Name suffixes that copying programs give to a file until it is complete."""


def is_unfinished_copy(name: str) -> bool:
    """Return True for the name of a log, compressed or not, that a copying program has not completed."""
    base = os.path.basename(name)
    copied = next((base.removesuffix(end) for end in _UNFINISHED_SUFFIXES if base.endswith(end)), None)
    return copied is not None and next(formats.find_by_file_name(strip_compressed_suffix(copied)), None) is not None


# --- Progress listener ---


class ProgressListener(Protocol):
    """Receiver of progress reports. Its methods are called during the work and must return quickly."""

    def start_pass(self, total: int) -> None:
        """Start a pass over the files of a log. total: their size in bytes, 0 = unknown."""

    def advance(self, file: str, end: int, read: int) -> None:
        """Advance by `read` bytes of a file, up to the offset `end`."""

    def skip_files(self, path: str, files: Sequence[SkippedFile]) -> None:
        """Take note of the files of a directory that belong to none of its logs."""

    def note(self, text: str) -> None:
        """Take note of an event that does not change the result."""


_watcher: ContextVar[ProgressListener | None] = ContextVar("watcher", default=None)


@contextmanager
def progress_listener(listener: ProgressListener) -> Iterator[None]:
    """Return a context manager; reads inside it (in this thread) are reported to the listener."""
    token = _watcher.set(listener)
    try:
        yield
    finally:
        _watcher.reset(token)


def report_pass_start(total: int) -> None:
    """Report the start of a pass to the listener."""
    if (listener := _watcher.get()) is not None:
        listener.start_pass(total)


def report_advance(file: str, end: int, read: int) -> None:
    """Report bytes read to the listener."""
    if (listener := _watcher.get()) is not None:
        listener.advance(file, end, read)


def report_skipped_files(path: str, files: Sequence[SkippedFile]) -> None:
    """Report skipped files to the listener."""
    if (listener := _watcher.get()) is not None:
        listener.skip_files(path, files)


def report_note(text: str) -> None:
    """Report a note to the listener, if it accepts notes."""
    if (tell := getattr(_watcher.get(), "note", None)) is not None:
        tell(text)
