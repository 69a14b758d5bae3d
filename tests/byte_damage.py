"""Changes of bytes that generators of damaged logs draw from."""

from __future__ import annotations

import random


def change_bytes(content: bytearray, kind: str, at: int, length: int, rng: random.Random) -> None:
    """Change `content` in place.

    kind: cut (drop all from `at`), flip (one bit), zero, random, remove or insert (`length` bytes at `at`),
    zeros-appended or garbage-appended. A flip of an empty file changes nothing.
    """
    if kind == "cut":
        del content[at:]
    elif kind == "flip":
        if content:
            content[at] ^= 1 << rng.randrange(8)
    elif kind == "zero":
        content[at : at + length] = bytes(len(content[at : at + length]))
    elif kind == "random":
        content[at : at + length] = rng.randbytes(len(content[at : at + length]))
    elif kind == "remove":
        del content[at : at + length]
    elif kind == "insert":
        content[at:at] = rng.randbytes(length)
    else:
        content += bytes(length) if kind == "zeros-appended" else rng.randbytes(length)
