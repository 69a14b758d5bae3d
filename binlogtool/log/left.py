"""Files of a directory that belong to none of its logs."""

from __future__ import annotations

import os
from typing import NamedTuple

from binlogtool import formats

FILE, LINK, COMPRESSED, UNREADABLE = "file", "symbolic link", "compressed file", "unreadable file"


class SkippedFile(NamedTuple):
    """One skipped file, relative to the directory. kind: file, symbolic link, FIFO, compressed file, …"""

    name: str
    kind: str


READABLE_COMPRESSED_SUFFIXES = (".gz", ".zst")
"""Ends of names of compressed files that are unpacked while they are read."""
COMPRESSED_SUFFIXES = (*READABLE_COMPRESSED_SUFFIXES, ".bz2", ".lz4", ".lzma", ".xz", ".Z", ".zip", ".7z")


def is_compressed_log(skipped: SkippedFile) -> bool:
    """Return True for a compressed file that is named like a file of a log, so that a part of the log is not read."""
    end = next((one for one in COMPRESSED_SUFFIXES if skipped.name.endswith(one)), None)
    if skipped.kind != COMPRESSED or end is None:
        return False
    return next(formats.find_by_file_name(os.path.basename(skipped.name)[: -len(end)]), None) is not None
