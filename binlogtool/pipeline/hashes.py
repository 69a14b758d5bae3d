"""Hashes of the bytes that were read of growing files, and the check that these bytes are unchanged."""

from __future__ import annotations

import hashlib

import msgspec

from binlogtool.errors import InputOutputError, RefusedError
from binlogtool.pipeline.commits import CommittedInput

_CHUNK_BYTES = 1 << 20


class ContentHashes(msgspec.Struct, frozen=True):
    """SHA-256 hashes of the first bytes of a file. steady: without the bytes that a server rewrites later."""

    all: str
    steady: str


def hash_prefix(path: str, end: int, rewritten: tuple[int, int], previous: CommittedInput | None) -> ContentHashes:
    """Return the hashes of the first `end` bytes of a file.

    Args:
        path: the file.
        end: number of bytes.
        rewritten: byte range [first, last) that servers rewrite, see `Format`.
        previous: what was recorded of the same file by the last run.

    Raises:
        RefusedError: the bytes that were read before have changed.
        InputOutputError: the file cannot be read.
    """
    whole, steady, position, before = hashlib.sha256(), hashlib.sha256(), 0, 0 if previous is None else previous.end
    compares = previous is not None and previous.steady != "" and before <= end
    try:
        with open(path, "rb") as file:
            while position < end:
                stop = before if compares and position < before else end
                data = file.read(min(stop - position, _CHUNK_BYTES))
                if not data:
                    break
                whole.update(data)
                steady.update(_exclude_range(data, position, rewritten))
                position += len(data)
                if compares and previous is not None and position == before and steady.hexdigest() != previous.steady:
                    reason = f"its first {before:,} bytes are not those that were read before"
                    raise RefusedError(f"{path}: {reason}: put the file back as it was, or begin a new output")
    except OSError as error:
        raise InputOutputError(f"{path}: cannot be read: {error.strerror}") from error
    return ContentHashes(whole.hexdigest(), steady.hexdigest())


def _exclude_range(data: bytes, offset: int, rewritten: tuple[int, int]) -> bytes:
    """Return `data`, which begins at offset `offset`, without the bytes of the range."""
    first, last = (max(0, place - offset) for place in rewritten)
    return data[:first] + data[last:] if first < len(data) else data
