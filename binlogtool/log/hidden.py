"""Frames that one flipped bit hides, because it is in what says where the frame begins or ends."""

from __future__ import annotations

import re
from collections.abc import Iterator
from itertools import islice
from typing import NamedTuple

from binlogtool.formats.layouts import FrameLevel
from binlogtool.formats.syndrome import locate_flip
from binlogtool.limits import KIB
from binlogtool.schema.leading import leading
from binlogtool.schema.scanner import Scanner

LONGEST = 64 * KIB
"""Bytes that are looked at."""
_HEAD = 64
_BORDERS = 64
_RIGHT = 1
_STORED = 4


class Hidden(NamedTuple):
    """The frame with the bit corrected, the offset of its byte in the frame, and the bit number."""

    copy: bytes
    byte: int
    bit: int


def hidden(level: FrameLevel, probe: Scanner, data: bytes) -> Hidden | None:
    """Find the frame at the start of these bytes, which end at a good frame or after further lost ones."""
    found = next((one for end in _borders(level, data) if (one := _by_checksum(level, probe, data[:end]))), None)
    return found or _by_head(level, probe, data)


def _borders(level: FrameLevel, data: bytes) -> Iterator[int]:
    """Yield where the frame may end: at the end of the bytes, and where others could begin."""
    yield len(data)
    if level.sync is not None:
        matches = re.compile(level.sync, re.DOTALL).finditer(data, level.min_size)
        yield from (match.start() for match in islice(matches, _BORDERS))


def tried(level: FrameLevel) -> range:
    """Return the bits of a head that `find_hidden_frame` tries, each with a check of the frame.

    Those of the length, where one field holds it (with the right length, the checksum locates every other bit); else
    all.
    """
    if level.declared is None:
        return range(8 * _HEAD)
    place = leading(level.schema, level.declared)
    return range(8 * place.start, 8 * place.end)


def _by_checksum(level: FrameLevel, probe: Scanner, frame: bytes) -> Hidden | None:
    """Find the bit from the checksum at the end of a frame, whatever the bit means."""
    first, end = level.trailing, len(frame) - _STORED
    if first is None or end <= first:
        return None
    flip = locate_flip(
        level.checksum, int.from_bytes(frame[end:], "little"), level.checksum(frame[first:end]), end - first, often=True
    )
    if flip is None:
        return None
    mended, byte = bytearray(frame), first + flip.byte if flip.where == "data" else end + flip.byte
    mended[byte] ^= 1 << flip.bit
    return Hidden(bytes(mended), byte, flip.bit) if _whole(probe, mended) == len(frame) else None


def _by_head(level: FrameLevel, probe: Scanner, data: bytes) -> Hidden | None:
    """Try the bits of the head; another frame must be able to begin where the frame then ends."""
    mended = bytearray(data)
    for number in tried(level):
        if number >= 8 * len(data):
            break
        byte, bit = divmod(number, 8)
        mended[byte] ^= 1 << bit
        end = _whole(probe, mended)
        if end and (end == len(data) or (level.sync and re.compile(level.sync, re.DOTALL).match(data, end))):
            return Hidden(bytes(mended[:end]), byte, bit)
        mended[byte] ^= 1 << bit
    return None


def _whole(probe: Scanner, data: bytes | bytearray) -> int:
    """Return the size of the frame at the start, if its checksum matches; else 0."""
    table, _ = probe.scan(data, 0, len(data))
    return int(table["end"][0]) if table.count and int(table["checksum"][0]) == _RIGHT else 0
