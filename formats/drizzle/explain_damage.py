"""Explain damaged ranges of a Drizzle log: diagnosis, provable length, next entry.

Source: `docs/spec/drizzle.md#file-layout`, `#validation`, `#resynchronization`.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from itertools import islice
from types import MappingProxyType
from typing import Any

from msgspec.structs import replace

from binlogtool.findings import Finding
from binlogtool.format_api.layout import CRC32, LogFileLayout
from binlogtool.format_api.schema_fields import MalformedError
from binlogtool.formats.drizzle.decode import EntryFault, UndecodableError, create_transaction_parser
from binlogtool.formats.drizzle.schema import (
    CATALOG,
    ENVELOPE_SIZE,
    MAX_MESSAGE_SIZE,
    TRANSACTION,
    EntryType,
    FieldToken,
    read_fields,
)
from binlogtool.limits import KIB, Limits

ENTRY_PATTERN = rb"[\x01\x02]\x00\x00\x00"
"""Pattern for the start of an entry: a known type."""

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

_TAIL_DIAGNOSES: Mapping[str, str] = MappingProxyType(
    {"torn-tail": "torn tail", "zero-tail": "zero tail", "garbage-tail": "garbage tail"}
)
_MESSAGE_FINDINGS = frozenset({"payload-undecodable", "varint-overlong", "nesting-too-deep"})
_HEADER_SIZE = 8
_ZERO_HOLE_SIZE = 8
_ROWS_SEARCHED = 100_000
_SEARCH_SIZE = 256 * KIB
_MAX_TRIES = 4096
_MAX_MEMBER_ENDS = 1 << 16
_TRIED_MEMBER_ENDS = 64


def explain_damage(layout: LogFileLayout, damaged_bytes: memoryview, damage_offset: int, damage: Finding) -> Finding:
    """Add `diagnosis` to the facts of a finding, and `length_should_be` if the checksum proves a wrong length."""
    if damage.id in _TAIL_DIAGNOSES:
        return _add_diagnosis(
            damage,
            _TAIL_DIAGNOSES[damage.id],
            _describe_torn_entry(damaged_bytes, damage) if damage.id == "torn-tail" else {},
        )
    head = bytes(damaged_bytes[:_HEADER_SIZE])
    if damage.id == "bad-magic":
        return _add_diagnosis(damage, ZERO_HOLE if not any(head) else BAD_TYPE, {})
    if damage.id in _MESSAGE_FINDINGS:
        return _explain_message_damage(bytes(damaged_bytes), damage)
    if damage.id == "length-out-of-bounds":
        return _explain_length_damage(bytes(damaged_bytes), damage)
    if damage.id == "checksum-mismatch":
        return _explain_checksum_damage(bytes(damaged_bytes), damage)
    return damage


def _add_diagnosis(damage: Finding, diagnosis: str, facts: Mapping[str, Any], message: str | None = None) -> Finding:
    text = damage.message if message is None else message
    if diagnosis.replace(" ", "-") != damage.id:
        text = f"{diagnosis}: {text}"
    return replace(damage, message=text, facts=MappingProxyType({**damage.facts, "diagnosis": diagnosis, **facts}))


def _describe_torn_entry(data: memoryview, damage: Finding) -> dict[str, Any]:
    """Return, as facts, which part of the last entry is missing."""
    if len(data) < _HEADER_SIZE:
        return {"missing": "header"}
    length = _read_u32(data, 4)
    has_message = damage.length >= _HEADER_SIZE + length
    return {"missing": "checksum" if has_message else "message", "entry_size": ENVELOPE_SIZE + length}


def _explain_message_damage(data: bytes, damage: Finding) -> Finding:
    message = data[_HEADER_SIZE : max(_HEADER_SIZE, len(data) - 4)]
    if message.endswith(bytes(_ZERO_HOLE_SIZE)):
        return _add_diagnosis(damage, ZERO_HOLE, {})
    if len(data) >= _HEADER_SIZE and _read_u32(data, 0) == EntryType.BLOB:
        return _add_diagnosis(
            damage, UNPROVEN, {}, "a BLOB entry without a checksum does not prove that it is a record"
        )
    return _add_diagnosis(damage, UNPARSABLE, {}, explain_undecodable(message) or damage.message)


def explain_undecodable(message: bytes) -> str | None:
    """Explain where and why the bytes are not a Transaction message; None if they are one."""
    path = "message"
    try:
        for part in TRANSACTION.trace_rows(message, 0, len(message), Limits()):
            path = f"message{part.path}"
    except MalformedError as error:
        return f"{path}: {error}"
    try:
        create_transaction_parser()(message)
    except UndecodableError as error:
        return str(error)
    return None


def _explain_length_damage(data: bytes, damage: Finding) -> Finding:
    if "ceiling" in damage.facts:
        return damage
    length = _read_u32(data, 4) if len(data) >= _HEADER_SIZE else 0
    window = data[:_SEARCH_SIZE]
    following = _find_next_entry(window, len(window))
    should_be = _find_message_length_by_checksum(window, following)
    facts = {} if should_be is None else {"length_should_be": should_be}
    if length == 0:
        return _add_diagnosis(damage, EMPTY, facts)
    if length > MAX_MESSAGE_SIZE:
        return _add_diagnosis(damage, ABOVE_INT_MAX, facts)
    if should_be is None and following is not None:
        return _add_diagnosis(damage, TORN_INSIDE, {"next_entry": (damage.offset or 0) + following})
    return _add_diagnosis(damage, BEYOND_END, facts)


def _explain_checksum_damage(data: bytes, damage: Finding) -> Finding:
    """Classify a checksum mismatch: a wrong length, a torn entry before others, a hole of zeros, or none."""
    end = ENVELOPE_SIZE + _read_u32(data, 4)
    window = data[:_SEARCH_SIZE]
    following = _find_next_entry(window, end + _HEADER_SIZE)
    should_be = _find_message_length_by_checksum(window, following)
    if should_be is not None and should_be != end - ENVELOPE_SIZE:
        return _add_diagnosis(damage, FRAMING_LOST, {"length_should_be": should_be})
    if following is not None and following < end:
        return _add_diagnosis(damage, TORN_INSIDE, {"next_entry": (damage.offset or 0) + following})
    if data[_HEADER_SIZE : end - 4].endswith(bytes(_ZERO_HOLE_SIZE)):
        return _add_diagnosis(damage, ZERO_HOLE, {})
    is_framing_lost = not _can_entry_start_at(data, end) or (
        len(data) == end and _is_message_continuation(data[end - 4 :])
    )
    return _add_diagnosis(damage, FRAMING_LOST if is_framing_lost else CHECKSUM_MISMATCH, {})


def _can_entry_start_at(data: bytes, at: int) -> bool:
    """Return whether an entry (or the end of the file) can be at `at`; True if the bytes are not available."""
    if len(data) < at + _HEADER_SIZE:
        return True
    return _read_u32(data, at) in EntryType.__members__.values() and 0 < _read_u32(data, at + 4) <= MAX_MESSAGE_SIZE


def _is_message_continuation(checksum: bytes) -> bool:
    """Return whether the checksum's bytes are members of a Transaction, so that the declared length is too small."""
    try:
        return all(_is_transaction_member(token) for token in read_fields(checksum, 0, len(checksum), 1))
    except MalformedError:
        return False


def _is_transaction_member(token: FieldToken) -> bool:
    member = CATALOG.messages["Transaction"].by_number.get(token.number)
    return member is not None and CATALOG.get_wire_type(member) is token.wire


def _find_next_entry(data: bytes, end: int) -> int | None:
    """Return the offset of the first entry in `data[1:end]` that its checksum proves, or None."""
    for tries, match in enumerate(re.compile(ENTRY_PATTERN).finditer(data, 1, min(end, len(data)))):
        if tries == _MAX_TRIES:
            return None
        position = match.start()
        if len(data) >= position + _HEADER_SIZE and _has_right_checksum(
            data, position + _HEADER_SIZE, _read_u32(data, position + 4)
        ):
            return position
    return None


def _find_message_length_by_checksum(data: bytes, following: int | None) -> int | None:
    """Return the length for which the checksum is right: up to the next entry, or to the end of a top-level member."""
    if following is not None and _has_right_checksum(data, _HEADER_SIZE, following - ENVELOPE_SIZE):
        return following - ENVELOPE_SIZE
    member_ends = _list_member_ends(data)
    return next((border for border in member_ends if _has_right_checksum(data, _HEADER_SIZE, border)), None)


def _list_member_ends(data: bytes) -> list[int]:
    """List lengths at which the message could end: after each top-level member of Transaction."""
    message, member_ends = data[_HEADER_SIZE:], []
    try:
        for token in read_fields(message, 0, len(message), 1):
            if token.number not in CATALOG.messages["Transaction"].by_number:
                break
            member_ends.append(token.end)
            if len(member_ends) == _MAX_MEMBER_ENDS:
                break
    except MalformedError:
        pass
    return member_ends[-_TRIED_MEMBER_ENDS:]


def _has_right_checksum(data: bytes, start: int, length: int) -> bool:
    """Return whether the right checksum follows a message of this length at `start` (0 proves nothing)."""
    stop = start + length
    if not 0 < length <= len(data) - start - 4:
        return False
    stored = _read_u32(data, stop)
    return stored != 0 and CRC32(memoryview(data)[start:stop]) == stored


def _read_u32(data: bytes | memoryview, at: int) -> int:
    return int.from_bytes(data[at : at + 4], "little")


def explain_noncanonical_encoding(message: bytes) -> EntryFault:
    """Explain why a message is not canonical: a number longer than needed, or a repeated member."""
    path = _find_traced_path(message, "longer than needed")
    if path is not None:
        return EntryFault("varint-overlong", f"{path} has more bytes than it needs", "overlong number")
    return EntryFault("duplicate-key", "a member that may occur once occurs twice, or its value is cut", "odd encoding")


def report_unknown_member(message: bytes) -> EntryFault:
    """Report the first member that is not in the definition; in an entry without a checksum it may be damage."""
    path = _find_traced_path(message, "not in the definition")
    return EntryFault("unmapped-bytes", f"{path or 'message'} is not in the definition", "unknown member")


def _find_traced_path(message: bytes, meaning: str) -> str | None:
    """Return the path of the first traced part whose meaning contains this text; None if the first parts have none."""
    try:
        for part in islice(TRANSACTION.trace_rows(message, 0, len(message), Limits()), _ROWS_SEARCHED):
            if meaning in part.meaning:
                return f"message{part.path}"
    except MalformedError:
        pass
    return None
