"""Explain damaged ranges: the diagnosis, the server's reaction, and proof that a payload is intact."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from heapq import merge
from types import MappingProxyType
from typing import Any, NamedTuple

from msgspec.structs import replace

from binlogtool.findings import Finding, Severity
from binlogtool.formats.checksums import CRC32C_RAW
from binlogtool.formats.fields import MalformedError
from binlogtool.formats.layouts import LogFileLayout
from binlogtool.formats.repair_rules import TRUNCATION_USELESS
from binlogtool.formats.tarantool.codes import END_MARK, FIXHEADER_SIZE, MAGIC_PATTERN, UINT32_MASK, FileKind
from binlogtool.formats.tarantool.layout.layout import TarantoolContext
from binlogtool.formats.tarantool.msgpack.kernels import skip_value
from binlogtool.formats.tarantool.msgpack.messages import MpKind, read_token

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
"""Files that are renamed when they are finished: a crash does not leave them without their end."""

_NEXT_BLOCK_OR_END = re.compile(MAGIC_PATTERN + b"|" + re.escape(END_MARK))
_UINT_SIZES = (1, 2, 3, 5, 9)


def explain_damage(layout: LogFileLayout, data: memoryview, offset: int, engine_finding: Finding) -> Finding:
    """Add to a finding its diagnosis, the severity that the server's behaviour calls for, and proof of an intact
    payload.

    Args:
        layout: layout of the file.
        data: bytes from the damaged range on (bounded).
        offset: file offset of `data`.
        engine_finding: the damage as the scanner reports it.
    """
    context: TarantoolContext = layout.context
    facts = {
        **engine_finding.facts,
        "diagnosis": engine_finding.facts.get("diagnosis") or _DIAGNOSES.get(engine_finding.id, engine_finding.id),
    }
    engine_finding = replace(engine_finding, facts=MappingProxyType(facts))
    if engine_finding.id in ("bad-magic", "bad-header", "length-out-of-bounds", "checksum-mismatch"):
        engine_finding = _explain_block_damage(engine_finding, data, offset)
    elif engine_finding.id in ("torn-tail", "zero-tail", "garbage-tail", "unclean-close"):
        engine_finding = _explain_tail(engine_finding, layout, context, data)
    return context.cap_severity(engine_finding)


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
    payload = find_intact_payload(data)
    if payload is not None:
        end = payload.end
        facts |= {"payload_intact": True, "payload_start": offset + FIXHEADER_SIZE, "payload_end": offset + end}
        size = end - FIXHEADER_SIZE
        message += f"; the payload is whole: its stored crc is right for the {size} bytes up to {offset + end:#x}"
    return replace(damage, message=message, facts=MappingProxyType(facts))


class IntactPayload(NamedTuple):
    """A payload that its stored crc proves.

    Attributes:
        end: offset of its end from the start of its block.
        crc: the stored crc.
    """

    end: int
    crc: int


def find_intact_payload(data: memoryview, *, ends_here: bool = False) -> IntactPayload | None:
    """Find the payload of a block whose header is damaged: the bytes up to some border for which the stored crc is
    right.

    Borders are the next magic or end mark, and the end that the header states.

    Args:
        data: bytes from the start of the block on.
        ends_here: the end of `data` is a border too.
    """
    stored = set(_read_stored_crcs(data))
    if not stored:
        return None
    crc, position = CRC32C_RAW.start, FIXHEADER_SIZE
    ends = [
        end for end in (_read_declared_end(data), len(data) if ends_here else 0) if FIXHEADER_SIZE < end <= len(data)
    ]
    for end in merge((match.start() for match in _NEXT_BLOCK_OR_END.finditer(data, FIXHEADER_SIZE + 1)), sorted(ends)):
        crc = CRC32C_RAW.kernel(data[position:end], crc)
        position = end
        if crc ^ CRC32C_RAW.final in stored:
            return IntactPayload(end, crc ^ CRC32C_RAW.final)
    return None


def _read_declared_end(data: memoryview) -> int:
    """Read the end of a block from its length field; 0 if the field cannot be read."""
    try:
        length = read_token(data, 4, min(len(data), FIXHEADER_SIZE))
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
            crc.end == FIXHEADER_SIZE or skip_value(data, crc.end, min(len(data), FIXHEADER_SIZE))[0] == FIXHEADER_SIZE
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
        severity = _grade_zero_tail(damage)
        message += "; the server refuses to start" if severity is Severity.ERROR else ""
    elif damage.id == "torn-tail" and damage.offset == layout.frames_at and context.kind is FileKind.XLOG:
        severity = Severity.WARNING
        message += "; no whole block: the server would append behind these bytes, and refuse the start after that"
    return replace(damage, severity=severity, message=message, facts=MappingProxyType(facts))


def _grade_zero_tail(damage: Finding) -> Severity:
    """Grade zeros at the end: once they could be a block's header the server refuses to start, although nothing is
    lost.
    """
    return Severity.ERROR if damage.length >= FIXHEADER_SIZE else damage.severity
