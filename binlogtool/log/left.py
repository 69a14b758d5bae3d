"""Files of a directory that take no part in its logs."""

from __future__ import annotations

from typing import NamedTuple

FILE, LINK, PACKED, UNREADABLE = "file", "symbolic link", "compressed file", "unreadable file"


class Left(NamedTuple):
    """One of them, relative to the directory. kind: file, symbolic link, FIFO, compressed file, …"""

    name: str
    kind: str
