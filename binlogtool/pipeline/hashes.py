"""Hashes of the bytes that were read of growing files, and the check that these bytes are unchanged."""

from __future__ import annotations

import hashlib

import msgspec

from binlogtool.errors import InputOutputError, RefusedError
from binlogtool.pipeline.commits import Taken

_CHUNK = 1 << 20


class Hashes(msgspec.Struct, frozen=True):
    """SHA-256 hashes of the first bytes of a file. steady: without the bytes that a server rewrites later."""

    all: str
    steady: str


def hashed(path: str, end: int, rewritten: tuple[int, int], last: Taken | None) -> Hashes:
    """Return the hashes of the first `end` bytes of a file.

    Args:
        path: the file.
        end: number of bytes.
        rewritten: byte range [first, last) that servers rewrite, see `Format`.
        last: what was recorded of the same file by the last run.

    Raises:
        RefusedError: the bytes that were read before have changed.
        InputOutputError: the file cannot be read.
    """
    whole, steady, done, before = hashlib.sha256(), hashlib.sha256(), 0, 0 if last is None else last.end
    compares = last is not None and last.steady != "" and before <= end
    try:
        with open(path, "rb") as file:
            while done < end:
                stop = before if compares and done < before else end
                data = file.read(min(stop - done, _CHUNK))
                if not data:
                    break
                whole.update(data)
                steady.update(_without(data, done, rewritten))
                done += len(data)
                if compares and last is not None and done == before and steady.hexdigest() != last.steady:
                    told = f"its first {before:,} bytes are not those that were read before"
                    raise RefusedError(f"{path}: {told}: put the file back as it was, or begin a new output")
    except OSError as error:
        raise InputOutputError(f"{path}: cannot be read: {error.strerror}") from error
    return Hashes(whole.hexdigest(), steady.hexdigest())


def _without(data: bytes, at: int, rewritten: tuple[int, int]) -> bytes:
    """Return `data`, which begins at offset `at`, without the bytes of the range."""
    first, last = (max(0, place - at) for place in rewritten)
    return data[:first] + data[last:] if first < len(data) else data
