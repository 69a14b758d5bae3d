"""Infer the most likely cause of a damaged region; None if the bytes do not support a verdict.

Pure functions: bytes in, verdict out. A verdict needs evidence: a checksum that matches again, a sector of zeros with
sharp edges, a sector that is also elsewhere in the file, the head of another file, records at another distance.
Bounded: at most MAX_REGION_BYTES of a region, MAX_SHIFTED_FRAME of a frame, SEARCH_DISTANCE of the file around it.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from itertools import chain, pairwise, product
from typing import Literal

from binlogtool.formats.syndrome import shifted_back, stepped
from binlogtool.limits import KIB
from binlogtool.log.clues import SECTOR, Cause, Clues, Region

BLOCK = 4096
SEEN = 256 * KIB
"""Bytes of a region that are looked at."""
SHIFTED = 32 * KIB
"""Longest frame in which inserted or removed bytes are searched for."""
OTHERS = 32 * KIB
"""Bytes of a region in which the head of another file is looked for."""
REGIONS, FLIPS = 4, 2
"""Regions of a file whose cause is looked for; the first of them, in which every bit of the head is tried."""
FLIPPED = 64 * KIB
"""Longest frame for which the bits of its head are tried: a frame is checked for each of them."""

_HEAD = 32
_HEADS = (8, 13, 20)
"""Bytes of a head that hold its length, in the formats that there are: a gap is searched for behind them."""
_ONE_MISSING = 1024
"""Longest frame in which one missing byte is searched for: by chance it would seem to be found in 1 of 16,000."""
_SHARP, _SHARP_PAGE = 16, 4
"""How far zeros may reach beyond the border of a sector; pages have zeros of their own."""
_OWN_ZEROS = 64
"""As many at the end of a file may be those of a record's head that is cut off: they prove no write that broke off."""
_PLAIN = 8
_FARTHEST = 1 << 20
_PAGE_SHIFT = 256
"""How far from its place a page is searched for."""
_ZEROS = re.compile(rb"\0{%d,}|\0+\Z" % SECTOR)
_MISSING = SECTOR
"""Most bytes that are believed to be missing in a record."""
_FEW_MISSING = 127
"""The same where there are no checksums."""
_ORDERS: tuple[Literal["little", "big"], ...] = ("little", "big")
_MARK = 8
"""Bytes at the end of a file that may be its end mark, at most."""
_LOOKED = 32
"""Records behind a damage that are looked at, as far as the next block."""
_FILES: tuple[tuple[bytes, str], ...] = (
    (b"\x7fELF", "ELF program"), (b"SQLite format 3\0", "SQLite database"), (b"\x89PNG\r\n\x1a\n", "PNG image"),
    (b"%PDF-", "PDF document"), (b"PK\x03\x04", "zip archive"), (b"\x1f\x8b\x08", "gzip data"),
)  # fmt: skip


def cause(clues: Clues, region: Region) -> Cause | None:
    """Return the likely cause of damage; None without evidence, or after enough regions of this file were examined."""
    clues.regions += 1
    if clues.regions > REGIONS or region.end <= region.start:
        return None
    data = clues.read(region.start, min(region.end - region.start, SEEN))
    if region.flip is not None and region.covered <= SHIFTED:
        return _flipped(*region.flip)
    if (told := _told(clues, region)) is not None:
        return told
    looks = (_head_flip, _pages_moved, _stale, _zeroed, _foreign, _inserted, _removed_one, _moved, _removed, _overrun)
    found = next((one for look in looks if (one := look(clues, region, data)) is not None), None)
    clues.told = found or clues.told
    return _flipped(*region.flip) if found is None and region.flip is not None else found


def cut_off(clues: Clues, region: Region) -> Cause | None:
    """Return the cause of a tail that is an incomplete record.

    A flipped bit of its length, a write that was interrupted or never happened (old bytes, or those of another file,
    are there), or truncation.
    """
    clues.regions += 1
    if clues.regions > REGIONS:
        return None
    data = clues.read(region.start, min(region.end - region.start, SEEN))
    looks = (_head_flip, _zeroed, _stale, _foreign)
    found = _told(clues, region) or next(
        (one for look in looks if (one := look(clues, region, data)) is not None), None
    )
    if found is not None or not data.rstrip(b"\0"):
        return found
    border = max(region.end // SECTOR * SECTOR - region.start, 0)
    if data.endswith(bytes(_SHARP)) or (border and not any(data[border:]) and len(data) > border):
        return None  # a write may have been interrupted there
    if clues.align > 1 and (
        -clues.size % clues.align <= _PAGE_SHIFT or not _is_page(clues, region.start - clues.align)
    ):  # so little is missing, or the page before is not whole either: bytes may be missing anywhere
        return _last_page(clues, region)
    words = f"the file was cut, or not written on, at {region.end:#x}"
    return Cause("truncated", region.end, 0, words, {"cause_block": _block(region.end)} if _block(region.end) else {})


def _told(clues: Clues, region: Region) -> Cause | None:
    """Return the cause of an earlier region that extends into this one: there were records between."""
    told = clues.told
    return told if told is not None and told.offset < region.start < told.offset + told.length else None


def _last_page(clues: Clues, region: Region) -> Cause | None:
    """Find a whole page at the end of a file whose size is not a multiple of pages: bytes before it are missing."""
    return _shift(region, -(-clues.size % clues.align)) if _is_page(clues, clues.size - clues.align) else None


def _is_page(clues: Clues, offset: int) -> bool:
    """Return True if there is a whole page at this offset, aligned or not."""
    return offset >= 0 and clues.whole(clues.read(offset, clues.align)) == clues.align


def _block(offset: int) -> int:
    """Return the largest common block size that divides an offset; 0 = none."""
    return next((size for size in (BLOCK, SECTOR) if offset % size == 0), 0)


def _flipped(byte: int, bit: int) -> Cause:
    return Cause("flipped-bit", byte, 1, f"bit {bit} of byte {byte:#x} is flipped", {"cause_bit": bit})


def _head_flip(clues: Clues, region: Region, data: bytes) -> Cause | None:
    """Find one bit of the head with which the frame is whole and reaches to the next one."""
    mended, size = bytearray(data), region.end - region.start
    if clues.regions > FLIPS or size > FLIPPED:
        return None
    for number in range(8 * min(_HEAD, len(data))):
        mended[number // 8] ^= 1 << number % 8
        end = clues.whole(mended)
        mended[number // 8] ^= 1 << number % 8
        if end == size or (region.tail and end):
            return _flipped(region.start + number // 8, number % 8)
    return None


def _aligned(region: Region, data: bytes) -> tuple[int, int]:
    """Return the bounds of the sectors that the examined part of a region overlaps."""
    return region.start // SECTOR * SECTOR, -(-(region.start + len(data)) // SECTOR) * SECTOR


def _zeroed(clues: Clues, region: Region, data: bytes) -> Cause | None:
    """Find zeros from one sector boundary to another."""
    low, high = _aligned(region, data)
    sharp = _SHARP if clues.align == 1 else _SHARP_PAGE
    base = max(0, low - SECTOR)
    near = clues.read(base, high + SECTOR - base)
    for run in _ZEROS.finditer(near):
        first, last = base + run.start(), base + run.end()
        start, end = -(-first // SECTOR) * SECTOR, last // SECTOR * SECTOR
        at_end = last == clues.size
        if at_end and 0 <= region.declared <= first:
            continue  # the record was there, and the rest of the file is filler
        if start - first >= sharp or not max(start, region.start) < max(end, last * at_end) or start >= region.end:
            continue
        if at_end and start > region.start and last - start < _OWN_ZEROS:
            continue
        if at_end and start > region.start:
            if (other := _foreign(clues, region, data)) is not None:
                return other
            words = f"a write broke off at the border of a block, {start:#x}: zeros behind it"
            return Cause("torn-write", start, last - start, words, {"cause_block": _block(start)})
        if last - end < sharp and not at_end and start > 0:
            if (other := _foreign(clues, region, data)) is not None:
                return other
            block = min(_block(start), _block(end)) or SECTOR
            words = f"{end - start:,} bytes from {start:#x} on, whole sectors, are zeros"
            return Cause("zeroed-sector", start, end - start, words, {"cause_block": block})
    return None


def _stale(clues: Clues, region: Region, data: bytes) -> Cause | None:
    """Find sectors that are also elsewhere in the file, while their neighbours are not."""
    low, high = _aligned(region, data)
    near = clues.read(low, high - low)
    for at in range(0, len(near) - SECTOR + 1, SECTOR):
        sector = near[at : at + SECTOR]
        if len(set(sector)) < _PLAIN:
            continue
        for copy in clues.copies(sector, low + at):
            size = _common(clues, low + at, copy)
            if size:
                words = f"{size:,} bytes from {low + at:#x} on are a copy of those at {copy:#x}"
                return Cause("stale-sector", low + at, size, words, {"cause_copy_of": copy})
    return None


def _common(clues: Clues, here: int, there: int) -> int:
    """Return how many bytes two places have in common, if that starts and ends at sector boundaries; else 0."""
    back = min(_SHARP, here, there)
    before, other = clues.read(here - back, back), clues.read(there - back, back)
    if back and before == other:
        return 0
    size = SECTOR
    while size < SEEN:
        one, two = clues.read(here + size, SECTOR), clues.read(there + size, SECTOR)
        if len(one) < SECTOR or one != two:
            return 0 if one[:_SHARP] == two[:_SHARP] and one else size
        size += SECTOR
    return 0


def _foreign(clues: Clues, region: Region, data: bytes) -> Cause | None:
    """Find the head of another file at a sector boundary."""
    low, high = _aligned(region, data)
    if clues.poly is None:  # it may have begun where there is no checksum
        low = max(0, low - BLOCK + SECTOR)
    near = clues.read(low, high - low)
    for at in range(0 if low else SECTOR, min(len(near), OTHERS), SECTOR):
        head = near[at : at + BLOCK]
        kind = next((name for magic, name in _FILES if head.startswith(magic)), None) or clues.foreign(head)
        if kind is not None:
            words = f"what stands at {low + at:#x} starts like another file ({kind})"
            return Cause("foreign-bytes", low + at, max(0, region.end - low - at), words, {"cause_format": kind})
    return None


def _inserted(clues: Clues, region: Region, data: bytes) -> Cause | None:
    """Find inserted bytes without which the frame's checksum matches."""
    count = region.end - region.declared
    if region.declared <= region.start or not 0 < count < len(data) <= SHIFTED or len(data) < region.end - region.start:
        return None
    for head in _HEADS:
        left = data[:head] + data[head + count :]
        at = _place(clues, left, head, (a ^ b for a, b in zip(data[head:], data[head + count :], strict=False)), 0)
        if at is not None:
            words = f"{count:,} bytes at {region.start + at:#x} do not belong there: without them the checksum is right"
            return Cause("inserted-bytes", region.start + at, count, words, {"cause_shift": count})
    return None


def _removed_one(clues: Clues, region: Region, data: bytes) -> Cause | None:
    """Find one missing byte with which the frame's checksum matches."""
    if region.declared - region.end != 1 or not len(data) == region.end - region.start <= _ONE_MISSING:
        return None
    for head in _HEADS:
        mended = data[:head] + b"\0" + data[head:]
        at = _place(clues, mended, head, (a ^ b for a, b in pairwise(chain(b"\0", data[head:]))), 0xFF)
        if at is not None:
            words = f"one byte is missing at {region.start + at:#x}: with it the checksum is right"
            return Cause("removed-bytes", region.start + at, 0, words, {"cause_shift": -1})
    return None


def _removed(clues: Clues, region: Region, data: bytes) -> Cause | None:
    """Find missing bytes: by its length the record ends after the start of the next one, which is intact."""
    missing, size = region.declared - region.end, region.end - region.start
    if clues.claims is not None or clues.align > 1 or region.tail or not 0 < missing <= _MISSING:
        return None
    if len(data) < size or size > FLIPPED or not _goes_on(clues, region.end) or _length_lies(clues, data, missing):
        return None
    words = f"{missing:,} bytes are missing in this record: the next one begins before it should end"
    return Cause("removed-bytes", region.start, 0, words, {"cause_shift": -missing})


def _overrun(clues: Clues, region: Region, data: bytes) -> Cause | None:
    """Find missing bytes where nothing has a checksum.

    By its length, the record before ends after the start of one that reaches exactly to the next one. A length with
    one
    or
    two flipped bits looks the same: no verdict then.
    """
    low, size = max(region.before + 1, region.start - _FEW_MISSING), region.end - region.start
    if clues.poly is not None or clues.claims is not None or clues.align > 1 or region.tail or region.before < 0:
        return None
    if clues.told is not None or region.end - region.before > FLIPPED or len(data) < size:
        return None
    front = clues.read(region.before, region.end - region.before)
    found = [at for at in range(low, region.start) if _reach(clues, front, at - region.before)]
    if len(found) != 1 or _bits_lie(clues, front, region.start - found[0]):
        return None
    missing = region.start - found[0]
    words = f"{missing:,} bytes are missing in the record in front: the next one begins before it should end"
    return Cause("removed-bytes", region.before, 0, words, {"cause_shift": -missing})


def _reach(clues: Clues, data: bytes, at: int) -> bool:
    """Return True if one record reaches from this offset to the end."""
    return clues.framed(data[at:]) == len(data) - at


def _bits_lie(clues: Clues, data: bytes, missing: int) -> bool:
    """Return True if records tile the data with one bit of the first head changed, or two that are the length."""
    changes = [bytes([1 << bit]) for bit in range(8)]
    if missing.bit_count() <= 2:
        changes += [missing.to_bytes(2, order) for order in _ORDERS]
    for at, change in product(range(min(_HEAD, len(data)) - 1), changes):
        mended = bytearray(data)
        for place, bits in enumerate(change, at):
            mended[place] ^= bits
        if _tiled(clues, bytes(mended)):
            return True
    return False


def _tiled(clues: Clues, data: bytes) -> bool:
    """Return True if records tile the data."""
    at = 0
    for _ in range(_LOOKED):
        size = clues.framed(data[at:])
        at += size
        if not size or at >= len(data):
            return size > 0 and at == len(data)
    return False


def _goes_on(clues: Clues, at: int) -> bool:
    """Return True if the records from `at` on are whole up to the next block; else they may be copies of others."""
    block = at // BLOCK * BLOCK + BLOCK
    for _ in range(_LOOKED):
        if at >= min(block, clues.size):
            return True
        data = clues.read(at, FLIPPED)
        size = clues.whole(data)
        if not size:
            return len(data) <= _MARK or not any(data)
        at += size
    return True


def _length_lies(clues: Clues, data: bytes, missing: int) -> bool:
    """Return True if the record is whole when a number in its head, its length, is `missing` less."""
    size = len(data)
    for width, order in product((1, 2, 4), _ORDERS):
        for at in range(min(_HEAD, size) - width + 1):
            number = int.from_bytes(data[at : at + width], order) - missing
            if number < 0:
                continue
            mended = data[:at] + number.to_bytes(width, order) + data[at + width :]
            if clues.whole(mended) == size:
                return True
    return False


def _place(clues: Clues, frame: bytes, head: int, differences: Iterator[int], spare: int) -> int | None:
    """Return where in a frame the gap is, if not at `head`: the first offset for which the checksum matches.

    Args:
        differences: for each byte after `head`, the xor if the gap is after it.
        spare: what one more unknown byte can explain.
    """
    known = clues.verified(frame) if clues.poly is not None else None
    if known is None or clues.poly is None:
        return None
    syndrome, start, end = known
    if not start <= head < end:
        return None
    register = shifted_back(clues.poly, syndrome, end - head)
    for at, difference in zip(range(head, end), differences, strict=False):
        if register <= spare:
            return at
        register = stepped(clues.poly, register, difference)
    return None


def _moved(clues: Clues, region: Region, data: bytes) -> Cause | None:
    """Find records after the damage whose distance from their stored position differs from that of those before it."""
    if clues.claims is None or region.tail or region.before < 0:
        return None
    before, behind = (clues.claims(clues.read(at, _HEAD)) for at in (region.before, region.end))
    if before is None or behind is None:
        return None
    shift = (region.end - behind) - (region.before - before)
    if region.before != before and not clues.whole(clues.read(region.before, FLIPPED)):
        return None  # nothing proves it
    if not _stands(clues, region.end, region.end - behind):
        return None
    if shift % SECTOR == 0:  # mixed-up sectors also move records by whole sectors
        return None
    return _shift(region, shift) if abs(shift) <= _FARTHEST else None


def _stands(clues: Clues, at: int, distance: int) -> bool:
    """Return True for a record with a matching checksum, or followed by one at the same distance from its position."""
    data = clues.read(at, FLIPPED)
    if clues.whole(data):
        return True
    size = clues.framed(data)
    following = clues.claims(clues.read(at + size, _HEAD)) if size and clues.claims is not None else None
    return following is not None and at + size - following == distance


def _pages_moved(clues: Clues, region: Region, data: bytes) -> Cause | None:
    """Find the next page, whole, at another distance."""
    page = clues.align
    if page == 1 or not region.tail or region.start + 2 * page > clues.size:
        return None
    start = region.start + page
    near = clues.read(start - _PAGE_SHIFT, page + 2 * _PAGE_SHIFT)
    for shift in range(-_PAGE_SHIFT, min(_PAGE_SHIFT, len(near) - page - _PAGE_SHIFT) + 1):
        at = _PAGE_SHIFT + shift
        if shift and clues.whole(near[at : at + page]) == page:
            return _shift(region, shift)
    return None


def _shift(region: Region, shift: int) -> Cause:
    kind, what = ("inserted-bytes", "more") if shift > 0 else ("removed-bytes", "fewer")
    words = f"{abs(shift):,} bytes {what} than were written: what follows stands whole at another distance"
    return Cause(kind, region.start, max(shift, 0), words, {"cause_shift": shift})
