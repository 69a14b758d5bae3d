"""Files of a directory that belong to none of its logs."""

from __future__ import annotations

import os
from typing import NamedTuple

from binlogtool import formats

FILE, LINK, PACKED, UNREADABLE = "file", "symbolic link", "compressed file", "unreadable file"


class Left(NamedTuple):
    """One skipped file, relative to the directory. kind: file, symbolic link, FIFO, compressed file, …"""

    name: str
    kind: str


READ_PACKED = (".gz", ".zst")
"""Ends of names of compressed files that are unpacked while they are read."""
PACKED_ENDS = (*READ_PACKED, ".bz2", ".lz4", ".lzma", ".xz", ".Z", ".zip", ".7z")


def is_packed_log(left: Left) -> bool:
    """Return True for a compressed file that is named like a file of a log, so that a part of the log is not read."""
    end = next((one for one in PACKED_ENDS if left.name.endswith(one)), None)
    if left.kind != PACKED or end is None:
        return False
    return next(formats.named_like(os.path.basename(left.name)[: -len(end)]), None) is not None
