"""File identity by content: a hash of the first bytes of a file, and of those before an offset in it."""

from __future__ import annotations

from hashlib import blake2b

from binlogtool.log.opened_file import LogFile
from binlogtool.log.source import read_range

HEAD_SIZE = 128
_TAIL_SIZE = 64


def hash_file_identity(file: LogFile, offset: int) -> str:
    """Return a hash of the head of a file and of the bytes before `offset`; "" for offset 0.

    Both were durable when `offset` was reached, so a server never changes them.
    """
    if not offset:
        return ""
    source, (first, last) = file.source, file.format.files.mutable_header
    head = bytearray(read_range(source, 0, min(HEAD_SIZE, offset)))
    del head[first:last]
    start = max(last, offset - _TAIL_SIZE)
    return blake2b(bytes(head) + read_range(source, start, max(0, offset - start)), digest_size=8).hexdigest()
