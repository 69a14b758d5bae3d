"""Explain damaged ranges in the terms of this format: diagnosis, provable length, next entry.

Source: `docs/spec/drizzle-transaction-log.md#1-file`, `#5-verify`, `#6-resync`.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from itertools import islice
from types import MappingProxyType
from typing import Any

from msgspec.structs import replace

from binlogtool.findings import Finding
from binlogtool.formats.checksums import CRC32
from binlogtool.formats.drizzle.codes import EntryType
from binlogtool.formats.drizzle.judge.rules import Fault
from binlogtool.formats.drizzle.protobuf.decoding import UndecodableError, transaction_parser
from binlogtool.formats.drizzle.protobuf.wire import Token, tokens
from binlogtool.formats.drizzle.schema import CATALOG, ENVELOPE, MAX_LENGTH, TRANSACTION
from binlogtool.formats.fields import MalformedError
from binlogtool.formats.layouts import Layout
from binlogtool.limits import KIB, Limits

SYNC = rb"[\x01\x02]\x00\x00\x00"
"""What an entry starts with: a known type."""

CHECKSUM_MISMATCH = "checksum mismatch"
FRAMING_LOST = "framing lost"
ZERO_HOLE = "zero hole / framing lost"
EMPTY = "empty message / framing lost"
BAD_TYPE = "bad entry type"
ABOVE_INT_MAX = "length above INT_MAX"
BEYOND_END = "length beyond end of file"
UNPARSABLE = "message does not parse"
UNPROVEN = "not provable"
TORN_INSIDE = "torn entry inside the log (server restarted after a crash)"

_TAILS: Mapping[str, str] = MappingProxyType(
    {"torn-tail": "torn tail", "zero-tail": "zero tail", "garbage-tail": "garbage tail"}
)
_MESSAGE_IDS = frozenset({"payload-undecodable", "varint-overlong", "nesting-too-deep"})
_HEADER = 8
_MANY_ZEROS = 8
_ROWS_SEARCHED = 100_000
_SEARCHED = 256 * KIB
_MAX_TRIES = 4096
_MAX_BORDERS = 1 << 16
_TRIED_BORDERS = 64


def explain_damage(layout: Layout, data: memoryview, offset: int, found: Finding) -> Finding:
    """Add `diagnosis` to the facts of a finding; also `length_should_be` where the checksum proves a wrong length."""
    if found.id in _TAILS:
        return _with(found, _TAILS[found.id], _torn(data, found) if found.id == "torn-tail" else {})
    head = bytes(data[:_HEADER])
    if found.id == "bad-magic":
        return _with(found, ZERO_HOLE if not any(head) else BAD_TYPE, {})
    if found.id in _MESSAGE_IDS:
        return _message_damage(bytes(data), found)
    if found.id == "length-out-of-bounds":
        return _length_damage(bytes(data), found)
    if found.id == "checksum-mismatch":
        return _checksum_damage(bytes(data), found)
    return found


def _with(found: Finding, diagnosis: str, facts: Mapping[str, Any], message: str | None = None) -> Finding:
    text = found.message if message is None else message
    if diagnosis.replace(" ", "-") != found.id:
        text = f"{diagnosis}: {text}"
    return replace(found, message=text, facts=MappingProxyType({**found.facts, "diagnosis": diagnosis, **facts}))


def _torn(data: memoryview, found: Finding) -> dict[str, Any]:
    """Describe, as facts, which part of the last entry is missing."""
    if len(data) < _HEADER:
        return {"missing": "header"}
    length = _u32(data, 4)
    whole = found.length >= _HEADER + length
    return {"missing": "checksum" if whole else "message", "entry_size": ENVELOPE + length}


def _message_damage(data: bytes, found: Finding) -> Finding:
    message = data[_HEADER : max(_HEADER, len(data) - 4)]
    if message.endswith(bytes(_MANY_ZEROS)):
        return _with(found, ZERO_HOLE, {})
    if len(data) >= _HEADER and _u32(data, 0) == EntryType.BLOB:
        return _with(found, UNPROVEN, {}, "a BLOB entry without checksum is no proof of itself")
    return _with(found, UNPARSABLE, {}, why_undecodable(message) or found.message)


def why_undecodable(message: bytes) -> str | None:
    """Explain where and why the bytes are no Transaction message; None if they are one."""
    path = "message"
    try:
        for part in TRANSACTION.trace_rows(message, 0, len(message), Limits()):
            path = f"message{part.path}"
    except MalformedError as error:
        return f"{path}: {error}"
    try:
        transaction_parser()(message)
    except UndecodableError as error:
        return str(error)
    return None


def _length_damage(data: bytes, found: Finding) -> Finding:
    if "ceiling" in found.facts:
        return found
    length = _u32(data, 4) if len(data) >= _HEADER else 0
    near = data[:_SEARCHED]
    following = _following(near, len(near))
    should_be = _intact_length(near, following)
    facts = {} if should_be is None else {"length_should_be": should_be}
    if length == 0:
        return _with(found, EMPTY, facts)
    if length > MAX_LENGTH:
        return _with(found, ABOVE_INT_MAX, facts)
    if should_be is None and following is not None:
        return _with(found, TORN_INSIDE, {"next_entry": (found.offset or 0) + following})
    return _with(found, BEYOND_END, facts)


def _checksum_damage(data: bytes, found: Finding) -> Finding:
    """Distinguish a flipped bit, a wrong length, a torn entry followed by others, and a hole."""
    end = ENVELOPE + _u32(data, 4)
    near = data[:_SEARCHED]
    following = _following(near, end + _HEADER)
    should_be = _intact_length(near, following)
    if should_be is not None and should_be != end - ENVELOPE:
        return _with(found, FRAMING_LOST, {"length_should_be": should_be})
    if following is not None and following < end:
        return _with(found, TORN_INSIDE, {"next_entry": (found.offset or 0) + following})
    if data[_HEADER : end - 4].endswith(bytes(_MANY_ZEROS)):
        return _with(found, ZERO_HOLE, {})
    lost = not _header_fits(data, end) or (len(data) == end and _goes_on(data[end - 4 :]))
    return _with(found, FRAMING_LOST if lost else CHECKSUM_MISMATCH, {})


def _header_fits(data: bytes, at: int) -> bool:
    """Check that an entry (or the end of the file) can be at `at`; True where the bytes are not available."""
    if len(data) < at + _HEADER:
        return True
    return _u32(data, at) in EntryType.__members__.values() and 0 < _u32(data, at + 4) <= MAX_LENGTH


def _goes_on(checksum: bytes) -> bool:
    """Check that the four bytes of the checksum are members of a Transaction: then the declared length is too small."""
    try:
        return all(_is_member(token) for token in tokens(checksum, 0, len(checksum), 1))
    except MalformedError:
        return False


def _is_member(token: Token) -> bool:
    member = CATALOG.messages["Transaction"].by_number.get(token.number)
    return member is not None and CATALOG.wire_of(member) is token.wire


def _following(data: bytes, end: int) -> int | None:
    """Find the first entry inside `data[1:end]` that its checksum proves, or None."""
    for tries, match in enumerate(re.compile(SYNC).finditer(data, 1, min(end, len(data)))):
        if tries == _MAX_TRIES:
            return None
        at = match.start()
        if len(data) >= at + _HEADER and _checks(data, at + _HEADER, _u32(data, at + 4)):
            return at
    return None


def _intact_length(data: bytes, following: int | None) -> int | None:
    """Find the length that makes the checksum right: up to the next entry, or to the end of a top-level member."""
    if following is not None and _checks(data, _HEADER, following - ENVELOPE):
        return following - ENVELOPE
    borders = _member_borders(data)
    return next((border for border in borders if _checks(data, _HEADER, border)), None)


def _member_borders(data: bytes) -> list[int]:
    """List lengths at which the message could end: after each top-level member of Transaction."""
    message, borders = data[_HEADER:], []
    try:
        for token in tokens(message, 0, len(message), 1):
            if token.number not in CATALOG.messages["Transaction"].by_number:
                break
            borders.append(token.end)
            if len(borders) == _MAX_BORDERS:
                break
    except MalformedError:
        pass
    return borders[-_TRIED_BORDERS:]


def _checks(data: bytes, start: int, length: int) -> bool:
    """Check that a message of this length at `start` is followed by its right checksum (0 proves nothing)."""
    stop = start + length
    if not 0 < length <= len(data) - start - 4:
        return False
    stored = _u32(data, stop)
    return stored != 0 and CRC32(memoryview(data)[start:stop]) == stored


def _u32(data: bytes | memoryview, at: int) -> int:
    return int.from_bytes(data[at : at + 4], "little")


def odd_encoding(message: bytes) -> Fault:
    """Explain why a message is not canonical: a number longer than needed, or a repeated member."""
    path = _first_row(message, "longer than needed")
    if path is not None:
        return Fault("varint-overlong", f"{path} has more bytes than it needs", "overlong number")
    return Fault("duplicate-key", "a member that may stand once stands twice, or its value is cut", "odd encoding")


def unknown_member(message: bytes) -> Fault:
    """Report the first member that the definition lacks; in an entry without a checksum it may be damage."""
    path = _first_row(message, "not in the definition")
    return Fault("unmapped-bytes", f"{path or 'message'} is not in the definition", "unknown member")


def _first_row(message: bytes, meaning: str) -> str | None:
    """Return the path of the first traced part whose meaning contains this text, if it is among the first ones."""
    try:
        for part in islice(TRANSACTION.trace_rows(message, 0, len(message), Limits()), _ROWS_SEARCHED):
            if meaning in part.meaning:
                return f"message{part.path}"
    except MalformedError:
        pass
    return None
