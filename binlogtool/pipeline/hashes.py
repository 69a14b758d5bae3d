"""Hashes of what was read of files that grow, and whether it is still there."""

from __future__ import annotations

import hashlib

import msgspec

from binlogtool.errors import InputOutputError, RefusedError
from binlogtool.pipeline.commits import Taken

_CHUNK = 1 << 20


class Hashes(msgspec.Struct, frozen=True):
    """Of the bytes of a file up to some place. steady: without those that a server changes later."""

    all: str
    steady: str


def hashed(path: str, end: int, rewritten: tuple[int, int], last: Taken | None) -> Hashes:
    """Those of the first `end` bytes. last: what was known of the same file before; [rewritten): see `Format`.

    Raises:
        RefusedError: its bytes are not there as they were. InputOutputError: the file cannot be read.
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
    """Bytes from `at` on, but for these."""
    first, last = (max(0, place - at) for place in rewritten)
    return data[:first] + data[last:] if first < len(data) else data
