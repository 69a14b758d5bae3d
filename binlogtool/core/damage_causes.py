"""Infer the most likely cause of a damaged range from the bytes around it.

Pure functions: bytes in, verdict out. A verdict needs evidence: a checksum that matches again, a sector of zeros with
sharp edges, a sector that also occurs elsewhere in the file, the head of another file, shifted records.
Bounded: at most MAX_REGION_BYTES of a region, MAX_SHIFTED_FRAME of a frame, SEARCH_DISTANCE of the file around it.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from itertools import chain, islice, pairwise, product
from types import MappingProxyType
from typing import Any, Literal, NamedTuple

import msgspec
from msgspec.structs import replace

from binlogtool import formats
from binlogtool.core import unpack_payloads
from binlogtool.core.open_file import CERTAIN_SCORE, HEAD_BYTES, Source, read_range
from binlogtool.findings import Finding
from binlogtool.format_api.format import FileHead
from binlogtool.format_api.layout import (
    FrameLevel,
    advance_crc_register,
    locate_bit_flip,
    undo_zero_bytes_in_crc_register,
)
from binlogtool.limits import KIB, MIB
from binlogtool.schema.frame_scan_loop import Backend, Scanner, StopReason
from binlogtool.schema.lower_frame_schema import find_leading_number

# --- Evidence about damage ---

SECTOR = 512
SEARCH_DISTANCE = 4 * MIB
"""Distance around a region within which copies of its sectors are searched for, in bytes."""


class DamageCause(NamedTuple):
    """The likely cause of damage.

    Args:
        kind: flipped-bit, zeroed-sector, stale-sector, foreign-bytes, inserted-bytes, removed-bytes, torn-write,
            truncated.
        offset, length: the affected bytes of the file.
        words: the cause as a clause of the finding's message.
        more: additional facts.
    """

    kind: str
    offset: int
    length: int
    words: str
    more: Mapping[str, Any] = MappingProxyType({})

    @property
    def facts(self) -> dict[str, Any]:
        """The cause as facts of a finding."""
        return {"cause": self.kind, "cause_offset": self.offset, "cause_length": self.length, **self.more}


class DamagedRegion(NamedTuple):
    """Bytes `[start, end)` without a record, up to a proven record, the end mark, or the end of the file.

    Args:
        declared: where the damaged frame ends by its own length; -1 = unknown.
        before: offset of a good frame before the region; -1 = none.
        tail: True if nothing provable follows.
        flip: byte and bit that explain the checksum of the damaged frame, if known.
        covered: number of bytes that this checksum covers.
    """

    start: int
    end: int
    declared: int = -1
    before: int = -1
    tail: bool = False
    flip: tuple[int, int] | None = None
    covered: int = 0


class DamageEvidence(msgspec.Struct):
    """Access to one file for the search for causes of damage, and the results so far.

    Args:
        read: reads `[offset, offset + size)`, shorter at the end.
        size: bytes of the file.
        proven_size: bytes -> size of the frame at their start, if a checksum proves it; else 0.
        checksum_difference: a frame -> stored xor computed checksum and the covered range; None if it has no checksum.
        poly: polynomial of the checksum (crcmod's convention).
        align: frames start at multiples of it.
        claimed_offset: first bytes of a frame -> the file offset that the writer stored in it.
        foreign_format: bytes of a sector -> name of the log format whose files start like that.
        frame_size: like `proven_size`, for files without checksums.
        regions: number of regions examined so far.
        last_cause: the cause of the last region.
    """

    read: Callable[[int, int], bytes]
    size: int
    proven_size: Callable[[bytes | bytearray], int]
    checksum_difference: Callable[[bytes], tuple[int, int, int] | None]
    poly: int | None = None
    align: int = 1
    claimed_offset: Callable[[bytes], int | None] | None = None
    foreign_format: Callable[[bytes], str | None] = lambda data: None
    frame_size: Callable[[bytes], int] = lambda data: 0
    regions: int = 0
    _sectors: dict[int, list[int]] = msgspec.field(default_factory=dict)
    _indexed_range: tuple[int, int] = (0, 0)
    last_cause: DamageCause | None = None

    def find_sector_copy_offsets(self, sector: bytes, offset: int) -> list[int]:
        """Return the other offsets near `offset` where the same sector occurs; the index is built on first use."""
        low, high = self._indexed_range
        if not low <= offset < high:
            self._build_index(max(0, offset - SEARCH_DISTANCE) // SECTOR * SECTOR, offset + SEARCH_DISTANCE)
        return [at for at in self._sectors.get(hash(sector), ()) if at != offset and self.read(at, SECTOR) == sector]

    def _build_index(self, low: int, high: int) -> None:
        self._sectors, self._indexed_range = {}, (low, high)
        for start in range(low, min(high, self.size), MIB):
            data = self.read(start, MIB)
            for at in range(0, len(data) - SECTOR + 1, SECTOR):
                places = self._sectors.setdefault(hash(data[at : at + SECTOR]), [])
                if len(places) < 4:
                    places.append(start + at)


# --- Causes of a damaged region ---

BLOCK_BYTES = 4096
MAX_REGION_BYTES = 256 * KIB
"""Maximum number of bytes of a region that are examined."""
MAX_SHIFTED_FRAME = 32 * KIB
"""Longest frame in which inserted or removed bytes are searched for, in bytes."""
MAX_FOREIGN_SEARCH = 32 * KIB
"""Number of bytes of a region that are searched for the head of another file."""
MAX_REGIONS, MAX_FLIP_REGIONS = 4, 2
"""Maximum number of regions examined in a file, and of those in which every bit of the frame head is tried."""
MAX_FLIPPED_FRAME = 64 * KIB
"""Longest frame whose head bits are tried, in bytes: each try checks the frame."""

_HEAD_BYTES = 32
_LENGTH_HEAD_SIZES = (8, 13, 20)
"""Sizes of frame heads up to the length field, in the known formats; gaps are searched for after them."""
_MAX_ONE_MISSING_FRAME = 1024
"""Longest frame in which one missing byte is searched for, in bytes; a false match has a probability of 1 in 16,000."""
_SHARP_EDGE, _SHARP_PAGE_EDGE = 16, 4
"""Maximum bytes by which zeros may extend beyond a sector boundary; less for pages, which contain zeros themselves."""
_MAX_OWN_ZEROS = 64
"""Maximum zeros at the end of a file that may belong to a truncated record head and do not prove a torn write."""
_MIN_DISTINCT_BYTES = 8
_MAX_SHIFT = 1 << 20
_MAX_PAGE_SHIFT = 256
"""Maximum shift by which a page is searched for, in bytes."""
_ZEROS = re.compile(rb"\0{%d,}|\0+\Z" % SECTOR)
_MAX_MISSING = SECTOR
"""Maximum number of missing bytes in a record for a verdict."""
_MAX_MISSING_UNCHECKED = 127
"""Maximum number of missing bytes in a record for a verdict, in files without checksums."""
_ORDERS: tuple[Literal["little", "big"], ...] = ("little", "big")
_MAX_END_MARK = 8
"""Longest end mark of a file, in bytes."""
_MAX_RECORDS_CHECKED = 32
"""Maximum number of records after the damage that are checked, up to the next block."""
_FOREIGN_MAGICS: tuple[tuple[bytes, str], ...] = (
    (b"\x7fELF", "ELF program"), (b"SQLite format 3\0", "SQLite database"), (b"\x89PNG\r\n\x1a\n", "PNG image"),
    (b"%PDF-", "PDF document"), (b"PK\x03\x04", "zip archive"), (b"\x1f\x8b\x08", "gzip data"),
)  # fmt: skip


def find_cause(evidence: DamageEvidence, region: DamagedRegion) -> DamageCause | None:
    """Return the likely cause of damage; None without evidence, or if MAX_REGIONS of this file were examined before."""
    evidence.regions += 1
    if evidence.regions > MAX_REGIONS or region.end <= region.start:
        return None
    data = evidence.read(region.start, min(region.end - region.start, MAX_REGION_BYTES))
    if region.flip is not None and region.covered <= MAX_SHIFTED_FRAME:
        return _make_flip_cause(*region.flip)
    if (earlier_cause := _reuse_earlier_cause(evidence, region)) is not None:
        return earlier_cause
    searches = (
        _find_bit_flip_in_frame_head,
        _find_shifted_page,
        _find_stale_sectors,
        _find_zeroed_sectors,
        _find_foreign_head,
        _find_inserted_bytes,
        _find_removed_byte,
        _find_shifted_records,
        _find_removed_bytes,
        _find_removed_bytes_without_checksums,
    )
    result = next((candidate for look in searches if (candidate := look(evidence, region, data)) is not None), None)
    evidence.last_cause = result or evidence.last_cause
    return _make_flip_cause(*region.flip) if result is None and region.flip is not None else result


def find_tail_cause(evidence: DamageEvidence, region: DamagedRegion) -> DamageCause | None:
    """Return the cause of a tail that is an incomplete record.

    The cause is a flipped bit in its length, a write that was interrupted or never happened (old bytes, or bytes of
    another file, are in its place), or truncation.
    """
    evidence.regions += 1
    if evidence.regions > MAX_REGIONS:
        return None
    data = evidence.read(region.start, min(region.end - region.start, MAX_REGION_BYTES))
    searches = (_find_bit_flip_in_frame_head, _find_zeroed_sectors, _find_stale_sectors, _find_foreign_head)
    result = _reuse_earlier_cause(evidence, region) or next(
        (candidate for look in searches if (candidate := look(evidence, region, data)) is not None), None
    )
    if result is not None or not data.rstrip(b"\0"):
        return result
    border = max(region.end // SECTOR * SECTOR - region.start, 0)
    if data.endswith(bytes(_SHARP_EDGE)) or (border and not any(data[border:]) and len(data) > border):
        return None  # a write may have been interrupted there
    if evidence.align > 1 and (
        -evidence.size % evidence.align <= _MAX_PAGE_SHIFT or not _is_page(evidence, region.start - evidence.align)
    ):  # little is missing, or the previous page is not whole either: bytes may be missing anywhere
        return _find_shifted_last_page(evidence, region)
    words = f"the file was truncated, or not written further, at {region.end:#x}"
    return DamageCause(
        "truncated",
        region.end,
        0,
        words,
        {"cause_block": _largest_block_size(region.end)} if _largest_block_size(region.end) else {},
    )


def _reuse_earlier_cause(evidence: DamageEvidence, region: DamagedRegion) -> DamageCause | None:
    """Return the cause of an earlier region if it also covers this one, with records in between; else None."""
    last_cause = evidence.last_cause
    return (
        last_cause
        if last_cause is not None and last_cause.offset < region.start < last_cause.offset + last_cause.length
        else None
    )


def _find_shifted_last_page(evidence: DamageEvidence, region: DamagedRegion) -> DamageCause | None:
    """Find a whole page at the end of a file whose size is no multiple of the page size: earlier bytes are missing."""
    return (
        _make_shift_cause(region, -(-evidence.size % evidence.align))
        if _is_page(evidence, evidence.size - evidence.align)
        else None
    )


def _is_page(evidence: DamageEvidence, offset: int) -> bool:
    """Return True if there is a whole page at this offset, aligned or not."""
    return offset >= 0 and evidence.proven_size(evidence.read(offset, evidence.align)) == evidence.align


def _largest_block_size(offset: int) -> int:
    """Return the largest common block size that divides an offset; 0 = none."""
    return next((size for size in (BLOCK_BYTES, SECTOR) if offset % size == 0), 0)


def _make_flip_cause(byte: int, bit: int) -> DamageCause:
    return DamageCause("flipped-bit", byte, 1, f"bit {bit} of byte {byte:#x} is flipped", {"cause_bit": bit})


def _find_bit_flip_in_frame_head(evidence: DamageEvidence, region: DamagedRegion, data: bytes) -> DamageCause | None:
    """Find one bit of the frame head whose correction makes the frame whole, ending at the next frame."""
    corrected, size = bytearray(data), region.end - region.start
    if evidence.regions > MAX_FLIP_REGIONS or size > MAX_FLIPPED_FRAME:
        return None
    for number in range(8 * min(_HEAD_BYTES, len(data))):
        corrected[number // 8] ^= 1 << number % 8
        end = evidence.proven_size(corrected)
        corrected[number // 8] ^= 1 << number % 8
        if end == size or (region.tail and end):
            return _make_flip_cause(region.start + number // 8, number % 8)
    return None


def _sector_bounds(region: DamagedRegion, data: bytes) -> tuple[int, int]:
    """Return the bounds of the sectors that the examined part of a region overlaps."""
    return region.start // SECTOR * SECTOR, -(-(region.start + len(data)) // SECTOR) * SECTOR


def _find_zeroed_sectors(evidence: DamageEvidence, region: DamagedRegion, data: bytes) -> DamageCause | None:
    """Find zeros from one sector boundary to another."""
    low, high = _sector_bounds(region, data)
    edge = _SHARP_EDGE if evidence.align == 1 else _SHARP_PAGE_EDGE
    base = max(0, low - SECTOR)
    nearby_bytes = evidence.read(base, high + SECTOR - base)
    for run in _ZEROS.finditer(nearby_bytes):
        first, last = base + run.start(), base + run.end()
        start, end = -(-first // SECTOR) * SECTOR, last // SECTOR * SECTOR
        at_end = last == evidence.size
        if at_end and 0 <= region.declared <= first:
            continue  # the record was written, and the rest of the file is filler
        if start - first >= edge or not max(start, region.start) < max(end, last * at_end) or start >= region.end:
            continue
        if at_end and start > region.start and last - start < _MAX_OWN_ZEROS:
            continue
        if at_end and start > region.start:
            if (foreign_cause := _find_foreign_head(evidence, region, data)) is not None:
                return foreign_cause
            words = f"a write stopped at a block boundary, {start:#x}: zeros follow"
            return DamageCause("torn-write", start, last - start, words, {"cause_block": _largest_block_size(start)})
        if last - end < edge and not at_end and start > 0:
            if (foreign_cause := _find_foreign_head(evidence, region, data)) is not None:
                return foreign_cause
            block = min(_largest_block_size(start), _largest_block_size(end)) or SECTOR
            words = f"{end - start:,} bytes from {start:#x} on are zeros, in whole sectors"
            return DamageCause("zeroed-sector", start, end - start, words, {"cause_block": block})
    return None


def _find_stale_sectors(evidence: DamageEvidence, region: DamagedRegion, data: bytes) -> DamageCause | None:
    """Find sectors that also occur elsewhere in the file, while their neighbours do not."""
    low, high = _sector_bounds(region, data)
    nearby_bytes = evidence.read(low, high - low)
    for at in range(0, len(nearby_bytes) - SECTOR + 1, SECTOR):
        sector = nearby_bytes[at : at + SECTOR]
        if len(set(sector)) < _MIN_DISTINCT_BYTES:
            continue
        for copy in evidence.find_sector_copy_offsets(sector, low + at):
            size = _count_equal_sector_bytes(evidence, low + at, copy)
            if size:
                words = f"{size:,} bytes from {low + at:#x} on are a copy of the bytes at {copy:#x}"
                return DamageCause("stale-sector", low + at, size, words, {"cause_copy_of": copy})
    return None


def _count_equal_sector_bytes(evidence: DamageEvidence, first_offset: int, second_offset: int) -> int:
    """Return the length of the equal bytes around two offsets, if it starts and ends at sector boundaries; else 0."""
    back = min(_SHARP_EDGE, first_offset, second_offset)
    before, before_other = evidence.read(first_offset - back, back), evidence.read(second_offset - back, back)
    if back and before == before_other:
        return 0
    size = SECTOR
    while size < MAX_REGION_BYTES:
        left, right = evidence.read(first_offset + size, SECTOR), evidence.read(second_offset + size, SECTOR)
        if len(left) < SECTOR or left != right:
            return 0 if left[:_SHARP_EDGE] == right[:_SHARP_EDGE] and left else size
        size += SECTOR
    return 0


def _find_foreign_head(evidence: DamageEvidence, region: DamagedRegion, data: bytes) -> DamageCause | None:
    """Find the head of another file at a sector boundary."""
    low, high = _sector_bounds(region, data)
    if evidence.poly is None:  # the foreign bytes may have begun where no checksum covers them
        low = max(0, low - BLOCK_BYTES + SECTOR)
    nearby_bytes = evidence.read(low, high - low)
    for at in range(0 if low else SECTOR, min(len(nearby_bytes), MAX_FOREIGN_SEARCH), SECTOR):
        head = nearby_bytes[at : at + BLOCK_BYTES]
        kind = next(
            (name for magic, name in _FOREIGN_MAGICS if head.startswith(magic)), None
        ) or evidence.foreign_format(head)
        if kind is not None:
            words = f"the bytes at {low + at:#x} look like the start of another file ({kind})"
            return DamageCause("foreign-bytes", low + at, max(0, region.end - low - at), words, {"cause_format": kind})
    return None


def _find_inserted_bytes(evidence: DamageEvidence, region: DamagedRegion, data: bytes) -> DamageCause | None:
    """Find inserted bytes without which the frame's checksum matches."""
    count = region.end - region.declared
    if (
        region.declared <= region.start
        or not 0 < count < len(data) <= MAX_SHIFTED_FRAME
        or len(data) < region.end - region.start
    ):
        return None
    for head in _LENGTH_HEAD_SIZES:
        shortened = data[:head] + data[head + count :]
        at = _locate_gap_by_checksum(
            evidence, shortened, head, (a ^ b for a, b in zip(data[head:], data[head + count :], strict=False)), 0
        )
        if at is not None:
            words = f"{count:,} bytes at {region.start + at:#x} were inserted: without them the checksum matches"
            return DamageCause("inserted-bytes", region.start + at, count, words, {"cause_shift": count})
    return None


def _find_removed_byte(evidence: DamageEvidence, region: DamagedRegion, data: bytes) -> DamageCause | None:
    """Find one missing byte with which the frame's checksum matches."""
    if region.declared - region.end != 1 or not len(data) == region.end - region.start <= _MAX_ONE_MISSING_FRAME:
        return None
    for head in _LENGTH_HEAD_SIZES:
        extended = data[:head] + b"\0" + data[head:]
        at = _locate_gap_by_checksum(
            evidence, extended, head, (a ^ b for a, b in pairwise(chain(b"\0", data[head:]))), 0xFF
        )
        if at is not None:
            words = f"one byte is missing at {region.start + at:#x}: with it the checksum matches"
            return DamageCause("removed-bytes", region.start + at, 0, words, {"cause_shift": -1})
    return None


def _find_removed_bytes(evidence: DamageEvidence, region: DamagedRegion, data: bytes) -> DamageCause | None:
    """Find missing bytes: the record's length reaches beyond the start of the next record, which is intact."""
    missing, size = region.declared - region.end, region.end - region.start
    if evidence.claimed_offset is not None or evidence.align > 1 or region.tail or not 0 < missing <= _MAX_MISSING:
        return None
    if (
        len(data) < size
        or size > MAX_FLIPPED_FRAME
        or not _has_records_to_next_block(evidence, region.end)
        or _is_whole_with_reduced_length(evidence, data, missing)
    ):
        return None
    words = f"{missing:,} bytes are missing in this record: the next record begins before its end"
    return DamageCause("removed-bytes", region.start, 0, words, {"cause_shift": -missing})


def _find_removed_bytes_without_checksums(
    evidence: DamageEvidence, region: DamagedRegion, data: bytes
) -> DamageCause | None:
    """Find missing bytes where nothing has a checksum.

    The length of a record reaches beyond the start of the next one, which ends exactly where another begins. A length
    with one or two flipped bits looks the same and gives no verdict.
    """
    low, size = max(region.before + 1, region.start - _MAX_MISSING_UNCHECKED), region.end - region.start
    if (
        evidence.poly is not None
        or evidence.claimed_offset is not None
        or evidence.align > 1
        or region.tail
        or region.before < 0
    ):
        return None
    if evidence.last_cause is not None or region.end - region.before > MAX_FLIPPED_FRAME or len(data) < size:
        return None
    record_bytes = evidence.read(region.before, region.end - region.before)
    starts = [at for at in range(low, region.start) if _reaches_end(evidence, record_bytes, at - region.before)]
    if len(starts) != 1 or _is_explained_by_flips(evidence, record_bytes, region.start - starts[0]):
        return None
    missing = region.start - starts[0]
    words = f"{missing:,} bytes are missing in the previous record: the next record begins before its end"
    return DamageCause("removed-bytes", region.before, 0, words, {"cause_shift": -missing})


def _reaches_end(evidence: DamageEvidence, data: bytes, at: int) -> bool:
    """Return True if one record extends from this offset exactly to the end of the data."""
    return evidence.frame_size(data[at:]) == len(data) - at


def _is_explained_by_flips(evidence: DamageEvidence, data: bytes, missing_bytes: int) -> bool:
    """Return True if records tile the data after one bit of the first head, or two bits of its length, are changed."""
    changes = [bytes([1 << bit]) for bit in range(8)]
    if missing_bytes.bit_count() <= 2:
        changes += [missing_bytes.to_bytes(2, order) for order in _ORDERS]
    for at, change in product(range(min(_HEAD_BYTES, len(data)) - 1), changes):
        changed = bytearray(data)
        for offset, bits in enumerate(change, at):
            changed[offset] ^= bits
        if _is_sequence_of_whole_records(evidence, bytes(changed)):
            return True
    return False


def _is_sequence_of_whole_records(evidence: DamageEvidence, data: bytes) -> bool:
    """Return True if the data is a sequence of whole records without gaps."""
    at = 0
    for _ in range(_MAX_RECORDS_CHECKED):
        size = evidence.frame_size(data[at:])
        at += size
        if not size or at >= len(data):
            return size > 0 and at == len(data)
    return False


def _has_records_to_next_block(evidence: DamageEvidence, at: int) -> bool:
    """Return True if the records from `at` on are whole up to the next block; otherwise they may be stale copies."""
    block = at // BLOCK_BYTES * BLOCK_BYTES + BLOCK_BYTES
    for _ in range(_MAX_RECORDS_CHECKED):
        if at >= min(block, evidence.size):
            return True
        data = evidence.read(at, MAX_FLIPPED_FRAME)
        size = evidence.proven_size(data)
        if not size:
            return len(data) <= _MAX_END_MARK or not any(data)
        at += size
    return True


def _is_whole_with_reduced_length(evidence: DamageEvidence, data: bytes, missing_bytes: int) -> bool:
    """Return True if the record is whole once its length, a number in its head, is reduced by `missing_bytes`."""
    size = len(data)
    for width, order in product((1, 2, 4), _ORDERS):
        for at in range(min(_HEAD_BYTES, size) - width + 1):
            number = int.from_bytes(data[at : at + width], order) - missing_bytes
            if number < 0:
                continue
            changed = data[:at] + number.to_bytes(width, order) + data[at + width :]
            if evidence.proven_size(changed) == size:
                return True
    return False


def _locate_gap_by_checksum(
    evidence: DamageEvidence, frame: bytes, search_start: int, differences: Iterator[int], max_remaining_difference: int
) -> int | None:
    """Return the position of the gap in a frame, from `search_start` on: the first offset where the checksum matches.

    Args:
        differences: for each byte after `search_start`, its xor with the stored byte if the gap comes after it.
        max_remaining_difference: largest remaining difference that one more unknown byte can explain; 0 = no such byte.
    """
    difference_and_range = evidence.checksum_difference(frame) if evidence.poly is not None else None
    if difference_and_range is None or evidence.poly is None:
        return None
    syndrome, start, end = difference_and_range
    if not start <= search_start < end:
        return None
    register = undo_zero_bytes_in_crc_register(evidence.poly, syndrome, end - search_start)
    for at, difference in zip(range(search_start, end), differences, strict=False):
        if register <= max_remaining_difference:
            return at
        register = advance_crc_register(evidence.poly, register, difference)
    return None


def _find_shifted_records(evidence: DamageEvidence, region: DamagedRegion, data: bytes) -> DamageCause | None:
    """Find a shift of the records after the damage, relative to those before it, from the positions stored in them."""
    if evidence.claimed_offset is None or region.tail or region.before < 0:
        return None
    claimed_before, claimed_after = (
        evidence.claimed_offset(evidence.read(at, _HEAD_BYTES)) for at in (region.before, region.end)
    )
    if claimed_before is None or claimed_after is None:
        return None
    shift = (region.end - claimed_after) - (region.before - claimed_before)
    if region.before != claimed_before and not evidence.proven_size(evidence.read(region.before, MAX_FLIPPED_FRAME)):
        return None  # unproven
    if not _is_provable_shifted_record(evidence, region.end, region.end - claimed_after):
        return None
    if shift % SECTOR == 0:  # mixed-up sectors also move records by whole sectors
        return None
    return _make_shift_cause(region, shift) if abs(shift) <= _MAX_SHIFT else None


def _is_provable_shifted_record(evidence: DamageEvidence, offset: int, shift: int) -> bool:
    """Return True for a record with a matching checksum, or followed by a record shifted by the same distance."""
    data = evidence.read(offset, MAX_FLIPPED_FRAME)
    if evidence.proven_size(data):
        return True
    size = evidence.frame_size(data)
    following = (
        evidence.claimed_offset(evidence.read(offset + size, _HEAD_BYTES))
        if size and evidence.claimed_offset is not None
        else None
    )
    return following is not None and offset + size - following == shift


def _find_shifted_page(evidence: DamageEvidence, region: DamagedRegion, data: bytes) -> DamageCause | None:
    """Find the next page, whole but shifted."""
    page = evidence.align
    if page == 1 or not region.tail or region.start + 2 * page > evidence.size:
        return None
    start = region.start + page
    nearby_bytes = evidence.read(start - _MAX_PAGE_SHIFT, page + 2 * _MAX_PAGE_SHIFT)
    for shift in range(-_MAX_PAGE_SHIFT, min(_MAX_PAGE_SHIFT, len(nearby_bytes) - page - _MAX_PAGE_SHIFT) + 1):
        at = _MAX_PAGE_SHIFT + shift
        if shift and evidence.proven_size(nearby_bytes[at : at + page]) == page:
            return _make_shift_cause(region, shift)
    return None


def _make_shift_cause(region: DamagedRegion, shift: int) -> DamageCause:
    kind, comparison = ("inserted-bytes", "more") if shift > 0 else ("removed-bytes", "fewer")
    words = f"{abs(shift):,} bytes {comparison} than were written: the intact data after this place is shifted"
    return DamageCause(kind, region.start, max(shift, 0), words, {"cause_shift": shift})


# --- Evidence of the engine and the resulting finding ---

_CHECKSUM_RIGHT = 1


class CauseFinder:
    """Search for causes of damage in one file; its index of sectors is shared by all findings."""

    def __init__(self, source: Source, format: str, frame: FrameLevel, backend: Backend) -> None:
        assert source.size is not None
        probe = backend.make_scanner(frame.schema, frame.columns, 1)
        foreign = partial(_detect_other_format, format)
        self._evidence = DamageEvidence(
            partial(read_range, source), source.size, partial(_proven_frame_size, probe),
            partial(unpack_payloads.compute_checksum_difference, frame),
            None if frame.checksum is None else frame.checksum.poly, frame.align, frame.claimed_offset, foreign,
            partial(_frame_size, probe),
        )  # fmt: skip

    def add_cause_to_finding(self, finding: Finding, region: DamagedRegion) -> Finding:
        """Return the finding with the cause in its facts, and in one clause of its message."""
        flip = (
            (finding.facts["flipped_byte"], finding.facts["flipped_bit"]) if "flipped_byte" in finding.facts else None
        )
        low, high = finding.facts.get("covered", (0, 0))
        region = region._replace(flip=flip, covered=high - low)
        likely = (find_tail_cause if finding.id == "torn-tail" else find_cause)(self._evidence, region)
        if likely is None or (finding.id == "garbage-tail" and likely.kind == "torn-write"):  # no torn record here
            return finding
        is_in_message = flip is not None and likely.kind == "flipped-bit"
        message = finding.message if is_in_message else f"{finding.message}; likely cause: {likely.words}"
        return replace(finding, message=message, facts=MappingProxyType({**finding.facts, **likely.facts}))


def find_frame_end_past_file(
    scanner: Scanner, frame_start_bytes: memoryview, position: int, min_frame_size: int
) -> int:
    """Return where the frame at `position` would end beyond the file; -1 = unknown.

    Args:
        frame_start_bytes: first bytes of the frame.
        min_frame_size: minimum declared size of the frame.
    """
    if not 0 <= min_frame_size <= MAX_FLIPPED_FRAME:
        return -1
    padded = bytearray(frame_start_bytes).ljust(min_frame_size + HEAD_BYTES, b"\0")
    table, stop = scanner.scan(padded, 0, len(padded), False)
    if table.count:  # a checksum of zero means that there is none
        return position + int(table["end"][0])
    return position + stop.need if stop.reason == StopReason.CHECKSUM else -1


def _proven_frame_size(probe: Scanner, data: bytes | bytearray) -> int:
    table = probe.scan_single_frame(data, 0, len(data))
    return int(table["end"][0]) if table.count and int(table["checksum"][0]) == _CHECKSUM_RIGHT else 0


def _frame_size(probe: Scanner, data: bytes) -> int:
    table = probe.scan_single_frame(data, 0, len(data))
    return int(table["end"][0]) if table.count else 0


def _detect_other_format(own_format: str, first_bytes: bytes) -> str | None:
    """Return the name of another log format whose files start with these bytes, if that is certain."""
    head = FileHead(first_bytes, "", len(first_bytes))
    others = (one for one in formats.iter_formats() if one.name != own_format)
    return next((one.name for one in others if one.reading.detect(head).score >= CERTAIN_SCORE), None)


# --- Frames hidden by one flipped bit ---

MAX_FRAME_BYTES = 64 * KIB
"""Maximum number of bytes that are examined."""
_FLIPPED_HEAD_BYTES = 64
_MAX_ENDS = 64
_CHECKSUM_BYTES = 4


class BitCorrectedFrame(NamedTuple):
    """Frame with the flipped bit corrected, the offset of the bit's byte in the frame, and the bit number."""

    frame: bytes
    byte_offset: int
    bit_number: int


def find_frame_hidden_by_bit_flip(level: FrameLevel, probe: Scanner, data: bytes) -> BitCorrectedFrame | None:
    """Find the frame at the start of these bytes, which may hold more lost frames; None = no single bit explains it."""
    result = next(
        (
            candidate
            for end in _iter_possible_ends(level, data)
            if (candidate := _correct_bit_flip_by_checksum(level, probe, data[:end]))
        ),
        None,
    )
    return result or _correct_bit_flip_in_head(level, probe, data)


def _iter_possible_ends(level: FrameLevel, data: bytes) -> Iterator[int]:
    """Yield the possible ends of the frame: the end of the bytes, and offsets where other frames could begin."""
    yield len(data)
    if level.sync is not None:
        matches = re.compile(level.sync, re.DOTALL).finditer(data, level.min_size)
        yield from (match.start() for match in islice(matches, _MAX_ENDS))


def get_candidate_header_bits(level: FrameLevel) -> range:
    """Return the bits of a head that `find_frame_hidden_by_bit_flip` tries, each with a check of the frame.

    These are the bits of the length field, if there is one (with the right length, the checksum locates every other
    bit); otherwise all bits.
    """
    if level.length_field is None:
        return range(8 * _FLIPPED_HEAD_BYTES)
    field = find_leading_number(level.schema, level.length_field)
    return range(8 * field.start, 8 * field.end)


def _correct_bit_flip_by_checksum(level: FrameLevel, probe: Scanner, frame: bytes) -> BitCorrectedFrame | None:
    """Locate the flipped bit, anywhere in the frame, from the checksum at its end."""
    first, end = level.trailing, len(frame) - _CHECKSUM_BYTES
    if first is None or end <= first:
        return None
    flip = locate_bit_flip(
        level.checksum, int.from_bytes(frame[end:], "little"), level.checksum(frame[first:end]), end - first, often=True
    )
    if flip is None:
        return None
    corrected, byte = bytearray(frame), first + flip.byte if flip.where == "data" else end + flip.byte
    corrected[byte] ^= 1 << flip.bit
    return (
        BitCorrectedFrame(bytes(corrected), byte, flip.bit)
        if measure_proven_frame_size(probe, corrected) == len(frame)
        else None
    )


def _correct_bit_flip_in_head(level: FrameLevel, probe: Scanner, data: bytes) -> BitCorrectedFrame | None:
    """Try each bit of the head; another frame must be able to begin where the corrected frame ends."""
    corrected = bytearray(data)
    for number in get_candidate_header_bits(level):
        if number >= 8 * len(data):
            break
        byte, bit = divmod(number, 8)
        corrected[byte] ^= 1 << bit
        end = measure_proven_frame_size(probe, corrected)
        if end and (end == len(data) or (level.sync and re.compile(level.sync, re.DOTALL).match(data, end))):
            return BitCorrectedFrame(bytes(corrected[:end]), byte, bit)
        corrected[byte] ^= 1 << bit
    return None


def measure_proven_frame_size(probe: Scanner, data: bytes | bytearray) -> int:
    """Return the size of the frame at the start of the data, if its checksum is right; else 0."""
    table, _ = probe.scan(data, 0, len(data))
    return int(table["end"][0]) if table.count and int(table["checksum"][0]) == _CHECKSUM_RIGHT else 0
