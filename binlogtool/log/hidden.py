"""A frame that one flipped bit hides: the bit is in what says where the frame begins or ends."""

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
    """The frame with the bit put right; offset of its byte in the frame, and its number."""

    copy: bytes
    byte: int
    bit: int


def hidden(level: FrameLevel, probe: Scanner, data: bytes) -> Hidden | None:
    """The frame at the start of these bytes, which go up to where a good frame stands, or further ones are lost."""
    found = next((one for end in _borders(level, data) if (one := _by_checksum(level, probe, data[:end]))), None)
    return found or _by_head(level, probe, data)


def _borders(level: FrameLevel, data: bytes) -> Iterator[int]:
    """Where the frame may end: where the bytes do, and where others could begin."""
    yield len(data)
    if level.sync is not None:
        matches = re.compile(level.sync, re.DOTALL).finditer(data, level.min_size)
        yield from (match.start() for match in islice(matches, _BORDERS))


def tried(level: FrameLevel) -> range:
    """The bits of a head that `hidden` tries, each with a look at the frame: those of its length, where one field says
    it (with the right length, the checksum tells of every other bit); else all."""
    if level.declared is None:
        return range(8 * _HEAD)
    place = leading(level.schema, level.declared)
    return range(8 * place.start, 8 * place.end)


def _by_checksum(level: FrameLevel, probe: Scanner, frame: bytes) -> Hidden | None:
    """The checksum at the end of a frame says which bit it is, whatever it means."""
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
    """Bits of the head are tried; another frame must be able to begin where this one then ends."""
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
    """Where the frame at the start ends, if its checksum is right; else 0."""
    table, _ = probe.scan(data, 0, len(data))
    return int(table["end"][0]) if table.count and int(table["checksum"][0]) == _RIGHT else 0
