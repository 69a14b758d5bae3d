"""Explain damage in a journal file; repair text headers and fixed headers of blocks.

Only lines without which the rows cannot be read are repaired, and only if there is a single way to do so. The server
still refuses such a file, or skips it with force_recovery: its message about the stored header is kept in the finding
for the replay. Source: `docs/spec/tarantool.md#text-header`, `#resynchronization`.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from heapq import merge
from types import MappingProxyType
from typing import Any, NamedTuple

import msgspec
from msgspec.structs import replace

from binlogtool.findings import Finding, Severity
from binlogtool.format_api.format import TRUNCATION_USELESS, FileHead, FrameHeaderFix, HeaderFlip, correct_head
from binlogtool.format_api.layout import CRC32C_RAW, LogFileLayout
from binlogtool.format_api.schema_fields import MalformedError
from binlogtool.formats.tarantool.codes import (
    BLOCK_START_PATTERN,
    END_MARK,
    FIXHEADER_SIZE,
    MAGIC_PATTERN,
    PLAIN_MAGIC,
    UINT32_MASK,
    ZSTD_MAGIC,
    FileKind,
)
from binlogtool.formats.tarantool.decode import TarantoolContext, read_layout
from binlogtool.formats.tarantool.msgpack.parse import MpKind, read_token, skip_value_and_count
from binlogtool.formats.tarantool.schema import HEADER_SEARCH_SIZE, KNOWN_KEYS
from binlogtool.limits import Limits

# --- Explanation of damaged ranges ---

_DIAGNOSES: Mapping[str, str] = {
    "checksum-mismatch": "crc_mismatch",
    "bad-magic": "bad_magic",
    "bad-header": "bad_fixheader",
    "length-out-of-bounds": "block_past_end_of_file",
    "torn-tail": "torn_tail",
    "zero-tail": "zero_tail",
    "garbage-tail": "bad_magic",
    "unclean-close": "not_closed",
    "payload-undecodable": "bad_msgpack",
    "count-out-of-bounds": "bad_msgpack",
    "nesting-too-deep": "bad_msgpack",
    "compression-error": "bad_zstd",
    "inflate-limit": "inflate_limit",
}
_ATOMIC_KINDS = (FileKind.SNAP, FileKind.RUN, FileKind.INDEX)
"""Kinds of files that are renamed when they are complete: a crash cannot leave such a file without its end."""

_NEXT_BLOCK_OR_END = re.compile(MAGIC_PATTERN + b"|" + re.escape(END_MARK))
_UINT_SIZES = (1, 2, 3, 5, 9)


def explain_damage(layout: LogFileLayout, damaged_bytes: memoryview, damage_offset: int, damage: Finding) -> Finding:
    """Return a finding with its diagnosis, the severity that follows from the server's behaviour, and the proof of an
    intact payload if there is one.

    Args:
        layout: layout of the file.
        damaged_bytes: bytes from the damaged range on (bounded).
        damage_offset: file offset of `damaged_bytes`.
        damage: the damage as the scanner reports it.
    """
    context: TarantoolContext = layout.context
    facts = {
        **damage.facts,
        "diagnosis": damage.facts.get("diagnosis") or _DIAGNOSES.get(damage.id, damage.id),
    }
    damage = replace(damage, facts=MappingProxyType(facts))
    if damage.id in ("bad-magic", "bad-header", "length-out-of-bounds", "checksum-mismatch"):
        damage = _explain_block_damage(damage, damaged_bytes, damage_offset)
    elif damage.id in ("torn-tail", "zero-tail", "garbage-tail", "unclean-close"):
        damage = _explain_tail(damage, layout, context, damaged_bytes)
    return context.cap_severity_for_unread_file(damage)


# -- blocks ------------------------------------------------------------------------------------------------------------


def _explain_block_damage(damage: Finding, data: memoryview, offset: int) -> Finding:
    """Explain a damaged block; prove its payload with the stored crc where possible."""
    facts: dict[str, Any] = dict(damage.facts)
    message = damage.message
    if damage.id == "length-out-of-bounds" and facts.get("field") == "payload_start":
        facts["diagnosis"] = "bad_fixheader"
        message = "broken fixed header: its fields and filler do not end at byte 19"
        damage = replace(damage, id="bad-header")
    elif damage.id == "length-out-of-bounds" and facts.get("field") == "header.length":
        facts["diagnosis"] = "bad_fixheader"
    payload = find_payload_by_crc(data)
    if payload is not None:
        end = payload.end
        facts |= {"payload_intact": True, "payload_start": offset + FIXHEADER_SIZE, "payload_end": offset + end}
        size = end - FIXHEADER_SIZE
        message += f"; the payload is whole: its stored crc is right for the {size} bytes up to {offset + end:#x}"
    return replace(damage, message=message, facts=MappingProxyType(facts))


class IntactPayload(NamedTuple):
    """A payload proven by its stored crc. end: offset of its end from the start of its block. crc: the stored crc."""

    end: int
    crc: int


def find_payload_by_crc(data: memoryview, *, may_end_with_data: bool = False) -> IntactPayload | None:
    """Find the payload of a block whose header is damaged: bytes that match the stored crc, up to a possible end.

    Possible ends are the next magic or end mark, and the end that the header states.

    Args:
        data: bytes from the start of the block on.
        may_end_with_data: the end of `data` is also a possible end.
    """
    stored = set(_read_stored_crcs(data))
    if not stored:
        return None
    crc, position = CRC32C_RAW.start, FIXHEADER_SIZE
    ends = [
        end
        for end in (_read_declared_block_end(data), len(data) if may_end_with_data else 0)
        if FIXHEADER_SIZE < end <= len(data)
    ]
    for end in merge((match.start() for match in _NEXT_BLOCK_OR_END.finditer(data, FIXHEADER_SIZE + 1)), sorted(ends)):
        crc = CRC32C_RAW.kernel(data[position:end], crc)
        position = end
        if crc ^ CRC32C_RAW.final in stored:
            return IntactPayload(end, crc ^ CRC32C_RAW.final)
    return None


def _read_declared_block_end(block_bytes: memoryview) -> int:
    """Read the end of a block from its length field; 0 if the field cannot be read."""
    try:
        length = read_token(block_bytes, 4, min(len(block_bytes), FIXHEADER_SIZE))
    except MalformedError:
        return 0
    return FIXHEADER_SIZE + (length.value & UINT32_MASK) if length.kind is MpKind.UINT else 0


def _read_stored_crcs(data: memoryview) -> Iterator[int]:
    """Yield the possible values of the crc field, one for each width that the length field may have."""
    for size in _UINT_SIZES:
        try:
            previous = read_token(data, 4 + size, min(len(data), FIXHEADER_SIZE))
            crc = read_token(data, previous.end, min(len(data), FIXHEADER_SIZE))
        except MalformedError:
            continue
        filled = (
            crc.end == FIXHEADER_SIZE
            or skip_value_and_count(data, crc.end, min(len(data), FIXHEADER_SIZE))[0] == FIXHEADER_SIZE
        )
        if previous.kind is MpKind.UINT and crc.kind is MpKind.UINT and (filled or crc.code == 0xCE):
            yield crc.value & UINT32_MASK


# -- tails -------------------------------------------------------------------------------------------------------------


def _explain_tail(damage: Finding, layout: LogFileLayout, context: TarantoolContext, data: memoryview) -> Finding:
    """Explain a damaged or missing end of a file."""
    facts: dict[str, Any] = dict(damage.facts)
    severity, message = damage.severity, damage.message
    if damage.id == "garbage-tail":
        severity = Severity.ERROR
        if bytes(data[:4]) == END_MARK:
            facts["diagnosis"] = "data_after_eof"
        message += "; the server refuses to start"
    elif context.kind in _ATOMIC_KINDS:
        is_ignored = context.kind is FileKind.INDEX and damage.id == "unclean-close"
        severity = Severity.WARNING if is_ignored else Severity.ERROR
        message += f"; a .{context.kind.lower()} file must end with the end mark"
        facts[TRUNCATION_USELESS] = True
    elif facts.get("zeros") or damage.id == "zero-tail":
        severity = Severity.ERROR if damage.length >= FIXHEADER_SIZE else damage.severity
        message += "; the server refuses to start" if severity is Severity.ERROR else ""
    elif damage.id == "torn-tail" and damage.offset == layout.frames_at and context.kind is FileKind.XLOG:
        severity = Severity.WARNING
        message += (
            "; the file has no complete block: the server would append after these bytes, and fail at "
            "the start after that"
        )
    return replace(damage, severity=severity, message=message, facts=MappingProxyType(facts))


# --- One flipped bit in a text header ---

_BLOCK_OR_END = re.compile(BLOCK_START_PATTERN + rb"|\xd5\x10\xad\xed")
_VALID_HEADER = re.compile(
    rb"(?:%s)\n(?:[^\n]+\n)?(?:(?:%s):[^\n]*\n)*\n" % ("|".join(FileKind).encode(), "|".join(KNOWN_KEYS).encode())
)
"""Pattern of a header of a known type in which every line has a known key."""
_FIRST_LINES_SIZE = 12
"""Maximum size of the first two lines (type and version) in bytes, line feeds included."""
_MAX_LINE_SIZE = 128
_WHOLE_LINE_DIAGNOSES = ("bad_header", "unknown_header_key")
"""Diagnoses of lines that are wrong as a whole."""

_PROOF = "the lines of the header and the block after it prove it"


def find_header_bit_flips(head: FileHead) -> Iterator[HeaderFlip]:
    """Yield the bit flip that makes a header valid (`format_api.format`); nothing if several flips do so."""
    first_block = _BLOCK_OR_END.search(head.data, 0, HEADER_SEARCH_SIZE)
    stored_layout = read_layout(head, Limits())
    errors = [one for one in stored_layout.findings if one.severity is Severity.ERROR]
    if first_block is None or not errors:
        return
    from binlogtool.formats.tarantool.replay.startup import predict_header_fault  # few heads are damaged

    fault = predict_header_fault(head.name, stored_layout.findings, stored_layout.context)
    if fault is None:
        return
    server_facts = {"server": "refuse", "server_offset": fault[0], "server_says": fault[1]}
    start, size = errors[0].offset or 0, errors[0].length or 1
    places = [
        (byte, bit)
        for byte in sorted(_list_flip_candidate_offsets(stored_layout, errors[0], first_block.start()))
        for bit in range(8)
    ]
    flips = [
        HeaderFlip(*place, _PROOF, start, size, errors[0].id, str(errors[0].facts["diagnosis"]), server_facts)
        for place in places
    ]
    text = bytearray(head.data[: first_block.start()])
    valid_flips = [
        flip
        for flip in flips
        if _is_valid_after_flip(text, flip) and _is_clean_header(correct_head(head, flip), first_block.start())
    ]
    if len(valid_flips) == 1:
        yield valid_flips[0]


def _list_flip_candidate_offsets(stored_layout: LogFileLayout, error: Finding, header_size: int) -> set[int]:
    """List the offsets where the flipped bit can be, in a header of `header_size` bytes."""
    if not stored_layout.readable:
        return {*range(min(_FIRST_LINES_SIZE, header_size)), *range(max(0, header_size - 2), header_size)}
    if error.facts["diagnosis"] not in _WHOLE_LINE_DIAGNOSES or error.offset is None or error.length > _MAX_LINE_SIZE:
        return set()
    return set(range(error.offset, error.offset + error.length))


def _is_valid_after_flip(header_bytes: bytearray, flip: HeaderFlip) -> bool:
    """Return whether the header's lines are valid after a flip. Cheap: rejects most flips without reading a layout."""
    flip.correct_bytes(0, header_bytes)
    is_valid = _VALID_HEADER.fullmatch(header_bytes) is not None
    flip.correct_bytes(0, header_bytes)
    return is_valid


def _is_clean_header(head: FileHead, header_size: int) -> bool:
    """Return whether a header of `header_size` bytes is readable and has no findings."""
    candidate = read_layout(head, Limits())
    return candidate.readable and candidate.frames_at == header_size and not candidate.findings


# --- Rebuilt fixed headers of blocks ---

_ZSTD_FRAME_MAGIC = bytes.fromhex("28b52ffd")
_MAP_FIRST_BYTES = frozenset((*range(0x81, 0x90), 0xDE, 0xDF))
"""Possible first bytes of a row, whose header is a map."""

_MAX_CANDIDATES = 32
"""Maximum number of places in one damaged range that are tried as the start of a block."""


def rebuild_block_headers(layout: LogFileLayout, damaged_bytes: bytes) -> Iterator[FrameHeaderFix]:
    """Yield the blocks of a damaged range, each with a rebuilt fixed header: length, magic and filler are new, the crc
    is the stored one.
    """
    position = 0
    for _ in range(_MAX_CANDIDATES):
        payload = find_payload_by_crc(memoryview(damaged_bytes)[position:], may_end_with_data=True)
        header = (
            None
            if payload is None
            else _build_block_header(damaged_bytes[position + FIXHEADER_SIZE : position + payload.end], payload.crc)
        )
        if payload is not None and header is not None:
            yield FrameHeaderFix(position, header, position + payload.end)
            position += payload.end
            continue
        next_magic = re.compile(MAGIC_PATTERN).search(damaged_bytes, position + 1)
        if next_magic is None:
            return
        position = next_magic.start()


def _build_block_header(payload: bytes, crc: int) -> bytes | None:
    """Build the fixed header as the server writes it; None if the bytes are not a payload."""
    is_compressed = payload.startswith(_ZSTD_FRAME_MAGIC)
    if not is_compressed and payload[:1] not in (bytes([one]) for one in _MAP_FIRST_BYTES):
        return None
    header = (ZSTD_MAGIC if is_compressed else PLAIN_MAGIC).to_bytes(4) + b"".join(
        map(msgspec.msgpack.encode, (len(payload), 0, crc))
    )
    filler_size = FIXHEADER_SIZE - len(header)
    return header + bytes([0xA0 + filler_size - 1]) + bytes(filler_size - 1)
