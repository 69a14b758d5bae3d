"""Frames that one flipped bit hides, because it is in what says where the frame begins or ends."""

from __future__ import annotations

import re
from collections.abc import Iterator
from itertools import islice
from typing import NamedTuple

from binlogtool.formats.layouts import FrameLevel
from binlogtool.formats.syndrome import locate_flip
from binlogtool.limits import KIB
from binlogtool.schema.leading import find_leading_number
from binlogtool.schema.scanner import Scanner

MAX_FRAME_BYTES = 64 * KIB
"""Bytes that are looked at."""
_FLIPPED_HEAD_BYTES = 64
_MAX_ENDS = 64
_CHECKSUM_RIGHT = 1
_CHECKSUM_BYTES = 4


class HiddenFrame(NamedTuple):
    """The frame with the bit corrected, the offset of its byte in the frame, and the bit number."""

    frame: bytes
    byte: int
    bit: int


def find_hidden_frame(level: FrameLevel, probe: Scanner, data: bytes) -> HiddenFrame | None:
    """Find the frame at the start of these bytes, which end at a good frame or after further lost ones."""
    result = next(
        (
            candidate
            for end in _iter_possible_ends(level, data)
            if (candidate := _find_by_checksum(level, probe, data[:end]))
        ),
        None,
    )
    return result or _find_by_head(level, probe, data)


def _iter_possible_ends(level: FrameLevel, data: bytes) -> Iterator[int]:
    """Yield where the frame may end: at the end of the bytes, and where others could begin."""
    yield len(data)
    if level.sync is not None:
        matches = re.compile(level.sync, re.DOTALL).finditer(data, level.min_size)
        yield from (match.start() for match in islice(matches, _MAX_ENDS))


def candidate_bits(level: FrameLevel) -> range:
    """Return the bits of a head that `find_hidden_frame` tries, each with a check of the frame.

    Those of the length, where one field holds it (with the right length, the checksum locates every other bit); else
    all.
    """
    if level.length_field is None:
        return range(8 * _FLIPPED_HEAD_BYTES)
    field = find_leading_number(level.schema, level.length_field)
    return range(8 * field.start, 8 * field.end)


def _find_by_checksum(level: FrameLevel, probe: Scanner, frame: bytes) -> HiddenFrame | None:
    """Find the bit from the checksum at the end of a frame, whatever the bit means."""
    first, end = level.trailing, len(frame) - _CHECKSUM_BYTES
    if first is None or end <= first:
        return None
    flip = locate_flip(
        level.checksum, int.from_bytes(frame[end:], "little"), level.checksum(frame[first:end]), end - first, often=True
    )
    if flip is None:
        return None
    corrected, byte = bytearray(frame), first + flip.byte if flip.where == "data" else end + flip.byte
    corrected[byte] ^= 1 << flip.bit
    return (
        HiddenFrame(bytes(corrected), byte, flip.bit) if _scanned_frame_size(probe, corrected) == len(frame) else None
    )


def _find_by_head(level: FrameLevel, probe: Scanner, data: bytes) -> HiddenFrame | None:
    """Try the bits of the head; another frame must be able to begin where the frame then ends."""
    corrected = bytearray(data)
    for number in candidate_bits(level):
        if number >= 8 * len(data):
            break
        byte, bit = divmod(number, 8)
        corrected[byte] ^= 1 << bit
        end = _scanned_frame_size(probe, corrected)
        if end and (end == len(data) or (level.sync and re.compile(level.sync, re.DOTALL).match(data, end))):
            return HiddenFrame(bytes(corrected[:end]), byte, bit)
        corrected[byte] ^= 1 << bit
    return None


def _scanned_frame_size(probe: Scanner, data: bytes | bytearray) -> int:
    """Return the size of the frame at the start, if its checksum matches; else 0."""
    table, _ = probe.scan(data, 0, len(data))
    return int(table["end"][0]) if table.count and int(table["checksum"][0]) == _CHECKSUM_RIGHT else 0
