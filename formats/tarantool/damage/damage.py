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
from binlogtool.formats.layouts import Layout
from binlogtool.formats.repair_rules import HELPLESS
from binlogtool.formats.tarantool.codes import END_MARK, FIXED_SIZE, SYNC, U32, FileKind
from binlogtool.formats.tarantool.layout.layout import FileContext
from binlogtool.formats.tarantool.msgpack.kernels import skip_value
from binlogtool.formats.tarantool.msgpack.messages import Kind, read_token

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
_WHOLE_OR_NOTHING = (FileKind.SNAP, FileKind.RUN, FileKind.INDEX)
"""Files that are renamed when they are finished: a crash does not leave them without their end."""

_BORDER = re.compile(SYNC + b"|" + re.escape(END_MARK))
_LENGTH_SIZES = (1, 2, 3, 5, 9)


def explain_damage(layout: Layout, data: memoryview, offset: int, found: Finding) -> Finding:
    """Add to a finding its diagnosis, the severity that the server's behaviour calls for, and proof of an intact
    payload.

    Args:
        layout: layout of the file.
        data: bytes from the damaged range on (bounded).
        offset: file offset of `data`.
        engine_finding: the damage as the scanner reports it.
    """
    context: FileContext = layout.context
    facts = {**found.facts, "diagnosis": found.facts.get("diagnosis") or _DIAGNOSES.get(found.id, found.id)}
    found = replace(found, facts=MappingProxyType(facts))
    if found.id in ("bad-magic", "bad-header", "length-out-of-bounds", "checksum-mismatch"):
        found = _block(found, data, offset)
    elif found.id in ("torn-tail", "zero-tail", "garbage-tail", "unclean-close"):
        found = _tail(found, layout, context, data)
    return context.soften(found)


# -- blocks ------------------------------------------------------------------------------------------------------------


def _block(found: Finding, data: memoryview, offset: int) -> Finding:
    """Explain a damaged block; prove its payload with the stored crc where possible."""
    facts: dict[str, Any] = dict(found.facts)
    message = found.message
    if found.id == "length-out-of-bounds" and facts.get("field") == "payload_start":
        facts["diagnosis"] = "bad_fixheader"
        message = "broken fixed header: its fields and filler do not end at byte 19"
        found = replace(found, id="bad-header")
    elif found.id == "length-out-of-bounds" and facts.get("field") == "header.length":
        facts["diagnosis"] = "bad_fixheader"
    proven = intact_payload(data)
    if proven is not None:
        end = proven.end
        facts |= {"payload_intact": True, "payload_start": offset + FIXED_SIZE, "payload_end": offset + end}
        size = end - FIXED_SIZE
        message += f"; the payload is whole: its stored crc is right for the {size} bytes up to {offset + end:#x}"
    return replace(found, message=message, facts=MappingProxyType(facts))


class Intact(NamedTuple):
    """A payload that its stored crc proves.

    Attributes:
        end: offset of its end from the start of its block.
        crc: the stored crc.
    """

    end: int
    crc: int


def intact_payload(data: memoryview, *, ends_here: bool = False) -> Intact | None:
    """Find the payload of a block whose header is damaged: the bytes up to some border for which the stored crc is
    right.

    Borders are the next magic or end mark, and the end that the header states.

    Args:
        data: bytes from the start of the block on.
        ends_here: the end of `data` is a border too.
    """
    stored = set(_stored_crcs(data))
    if not stored:
        return None
    crc, reached = CRC32C_RAW.start, FIXED_SIZE
    ends = [end for end in (_declared_end(data), len(data) if ends_here else 0) if FIXED_SIZE < end <= len(data)]
    for border in merge((match.start() for match in _BORDER.finditer(data, FIXED_SIZE + 1)), sorted(ends)):
        crc = CRC32C_RAW.kernel(data[reached:border], crc)
        reached = border
        if crc ^ CRC32C_RAW.final in stored:
            return Intact(border, crc ^ CRC32C_RAW.final)
    return None


def _declared_end(data: memoryview) -> int:
    """Read the end of a block from its length field; 0 if the field cannot be read."""
    try:
        length = read_token(data, 4, min(len(data), FIXED_SIZE))
    except MalformedError:
        return 0
    return FIXED_SIZE + (length.value & U32) if length.kind is Kind.UINT else 0


def _stored_crcs(data: memoryview) -> Iterator[int]:
    """Yield the possible values of the crc field, one for each width that the length field may have."""
    for size in _LENGTH_SIZES:
        try:
            previous = read_token(data, 4 + size, min(len(data), FIXED_SIZE))
            crc = read_token(data, previous.end, min(len(data), FIXED_SIZE))
        except MalformedError:
            continue
        filled = crc.end == FIXED_SIZE or skip_value(data, crc.end, min(len(data), FIXED_SIZE))[0] == FIXED_SIZE
        if previous.kind is Kind.UINT and crc.kind is Kind.UINT and (filled or crc.code == 0xCE):
            yield crc.value & U32


# -- tails -------------------------------------------------------------------------------------------------------------


def _tail(found: Finding, layout: Layout, context: FileContext, data: memoryview) -> Finding:
    """Explain a damaged or missing end of a file."""
    facts: dict[str, Any] = dict(found.facts)
    severity, message = found.severity, found.message
    if found.id == "garbage-tail":
        severity = Severity.ERROR
        if bytes(data[:4]) == END_MARK:
            facts["diagnosis"] = "data_after_eof"
        message += "; the server refuses to start"
    elif context.kind in _WHOLE_OR_NOTHING:
        silent = context.kind is FileKind.INDEX and found.id == "unclean-close"
        severity = Severity.WARNING if silent else Severity.ERROR
        message += f"; a .{context.kind.lower()} file must end with the end mark"
        facts[HELPLESS] = True
    elif facts.get("zeros") or found.id == "zero-tail":
        severity = _zeros_severity(found)
        message += "; the server refuses to start" if severity is Severity.ERROR else ""
    elif found.id == "torn-tail" and found.offset == layout.frames_at and context.kind is FileKind.XLOG:
        severity = Severity.WARNING
        message += "; no whole block: the server would append behind these bytes, and refuse the start after that"
    return replace(found, severity=severity, message=message, facts=MappingProxyType(facts))


def _zeros_severity(found: Finding) -> Severity:
    """Grade zeros at the end: once they could be a block's header the server refuses to start, although nothing is
    lost.
    """
    return Severity.ERROR if found.length >= FIXED_SIZE else found.severity
