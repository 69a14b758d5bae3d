"""Heads with one flipped bit: which one a format can prove, and the layout of the file with it put right.

A format offers flips only of a head that is damaged, and only what is proven: by the head's stored checksum, or by the
records that follow it. The file is then read as if the bit were right, and a finding says so in every report.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, NamedTuple

from msgspec.structs import replace

from binlogtool.findings import Finding, finding
from binlogtool.formats.checksums import Checksum
from binlogtool.formats.syndrome import locate_flip

if TYPE_CHECKING:
    from binlogtool.formats.detecting import Head
    from binlogtool.formats.layouts import Layout, Read, Unveil


class HeadFlip(NamedTuple):
    """One flipped bit of a head. byte: file offset. bit: 0 = least significant. proof: what proves the head, in words.

    start, length: the part of the head that is wrong as it stands. id, diagnosis, more: of the finding.
    """

    byte: int
    bit: int
    proof: str
    start: int
    length: int
    id: str = "bad-header"
    diagnosis: str = "bit-flip-in-head"
    more: Mapping[str, Any] = MappingProxyType({})

    def put_right(self, offset: int, view: memoryview | bytearray) -> None:
        """Flips the bit back in bytes that stand at this file offset."""
        if 0 <= self.byte - offset < len(view):
            view[self.byte - offset] ^= 1 << self.bit


Heads = Callable[["Head"], Iterator[HeadFlip]]


def corrected(head: Head, flip: HeadFlip) -> Head:
    """The head as it was before the bit flipped."""
    data = bytearray(head.data)
    flip.put_right(0, data)
    peek = head.peek
    return replace(head, data=bytes(data), peek=None if peek is None else _reading(peek, flip))


def _reading(read: Read, flip: HeadFlip) -> Read:
    def patched(offset: int, size: int) -> bytes:
        data = bytearray(read(offset, size))
        flip.put_right(offset, data)
        return bytes(data)

    return patched


def unveiled(layout: Layout, flip: HeadFlip) -> Layout:
    """A layout that was made of the corrected head, for the file as it is."""

    def unveil(read: Read) -> Unveil:
        return flip.put_right

    return replace(layout, findings=(told(flip), *layout.findings), unveil=unveil)


def told(flip: HeadFlip) -> Finding:
    """What every report says of it."""
    text = f"one flipped bit explains the head: bit {flip.bit} of byte {flip.byte:#x}; read with that bit put right"
    facts: dict[str, Any] = {"flipped_byte": flip.byte, "flipped_bit": flip.bit, "proof": flip.proof}
    facts |= {"cause": "flipped-bit", "cause_offset": flip.byte, "cause_length": 1, "cause_bit": flip.bit}
    facts |= {"diagnosis": flip.diagnosis, **flip.more}
    return finding(flip.id, flip.start, flip.length, f"{text} ({flip.proof})", **facts)


def is_corrected(found: Finding) -> bool:
    """Is it about a head that is read with a bit put right?"""
    return {"flipped_byte", "proof"} <= found.facts.keys()


def by_checksum(checksum: Checksum, data: bytes, stored_at: int, base: int) -> tuple[int, int] | None:
    """The bit (file offset of its byte, its number) that makes `data[:stored_at]` and the little-endian value behind it
    agree; None if they do already, or no single bit does. base: file offset of the data."""
    stored = int.from_bytes(data[stored_at : stored_at + 4], "little")
    flip = locate_flip(checksum, stored, checksum(data[:stored_at]), stored_at)
    if flip is None:
        return None
    return base + flip.byte + (stored_at if flip.where == "stored" else 0), flip.bit
