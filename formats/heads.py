"""Repair of file headers with one flipped bit, proven by the header's checksum or by the records after it.

A format offers flips only for a damaged header, and only proven ones. The file is then read with that bit corrected,
and a finding in every report says so.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, NamedTuple

from msgspec.structs import replace

from binlogtool.findings import Finding, make_finding
from binlogtool.formats.checksums import Checksum
from binlogtool.formats.syndrome import locate_flip

if TYPE_CHECKING:
    from binlogtool.formats.detecting import FileHead
    from binlogtool.formats.layouts import BufferDecryptor, LogFileLayout, RangeReader


class HeaderFlip(NamedTuple):
    """One flipped bit of a file header.

    Args:
        byte: file offset.
        bit: 0 = least significant.
        proof: what proves the header, as text.
        start, length: the part of the header that is wrong.
        id, diagnosis, more: of the finding.
    """

    byte: int
    bit: int
    proof: str
    start: int
    length: int
    id: str = "bad-header"
    diagnosis: str = "bit-flip-in-head"
    more: Mapping[str, Any] = MappingProxyType({})

    def correct_bytes(self, offset: int, view: memoryview | bytearray) -> None:
        """Flip the bit back in bytes that begin at this file offset."""
        if 0 <= self.byte - offset < len(view):
            view[self.byte - offset] ^= 1 << self.bit


HeaderFlipFinder = Callable[["FileHead"], Iterator[HeaderFlip]]


def correct_head(head: FileHead, flip: HeaderFlip) -> FileHead:
    """Return the head as it was before the bit flipped."""
    data = bytearray(head.data)
    flip.correct_bytes(0, data)
    peek = head.peek
    return replace(head, data=bytes(data), peek=None if peek is None else _make_correcting_reader(peek, flip))


def _make_correcting_reader(read: RangeReader, flip: HeaderFlip) -> RangeReader:
    def patched(offset: int, size: int) -> bytes:
        data = bytearray(read(offset, size))
        flip.correct_bytes(offset, data)
        return bytes(data)

    return patched


def make_correcting_layout(layout: LogFileLayout, flip: HeaderFlip) -> LogFileLayout:
    """Return a layout made of the corrected head, for reading the uncorrected file."""

    def decrypt(read: RangeReader) -> BufferDecryptor:
        return flip.correct_bytes

    return replace(layout, findings=(make_flip_finding(flip), *layout.findings), decrypt=decrypt)


def make_flip_finding(flip: HeaderFlip) -> Finding:
    """Create the finding that every report has about the corrected header."""
    text = f"one flipped bit explains the head: bit {flip.bit} of byte {flip.byte:#x}; read with that bit put right"
    facts: dict[str, Any] = {"flipped_byte": flip.byte, "flipped_bit": flip.bit, "proof": flip.proof}
    facts |= {"cause": "flipped-bit", "cause_offset": flip.byte, "cause_length": 1, "cause_bit": flip.bit}
    facts |= {"diagnosis": flip.diagnosis, **flip.more}
    return make_finding(flip.id, flip.start, flip.length, f"{text} ({flip.proof})", **facts)


def is_header_correction(item: Finding) -> bool:
    """Return True for a finding about a header that is read with a bit corrected."""
    return {"flipped_byte", "proof"} <= item.facts.keys()


def find_flip_by_checksum(checksum: Checksum, data: bytes, stored_at: int, base: int) -> tuple[int, int] | None:
    """Return the flipped bit (file offset of its byte, bit number) that explains a checksum mismatch.

    The little-endian checksum after `data[:stored_at]` covers these bytes. None if it matches, or if no single bit
    explains it.

    Args:
        base: file offset of the data.
    """
    stored = int.from_bytes(data[stored_at : stored_at + 4], "little")
    flip = locate_flip(checksum, stored, checksum(data[:stored_at]), stored_at)
    if flip is None:
        return None
    return base + flip.byte + (stored_at if flip.where == "stored" else 0), flip.bit
