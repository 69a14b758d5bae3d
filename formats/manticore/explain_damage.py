"""Explain damage in a log, and repair a header with one flipped bit.

Source: `docs/spec/manticore.md#binlogmeta`, `#log-file`, `#frame-of-versions-2-to-14`.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import lru_cache
from itertools import islice
from types import MappingProxyType
from typing import Any

from msgspec.structs import replace

from binlogtool.findings import Finding, Severity
from binlogtool.format_api.format import FileHead, HeaderFlip, correct_head
from binlogtool.format_api.layout import CRC32, U64, LogFileLayout
from binlogtool.format_api.schema_fields import read_varint
from binlogtool.formats.manticore import schema
from binlogtool.formats.manticore.decode import (
    META_NAMES,
    ManticoreLogContext,
    infer_id_size,
    read_layout,
    starts_with_transaction,
)
from binlogtool.formats.manticore.payload_kernels import LAST_LOW_VERSION, read_zint
from binlogtool.formats.manticore.schema import OldOp, Op
from binlogtool.limits import Limits

# --- Explanation of damaged ranges ---

FATAL_MISMATCH_VERSION = 14
"""First version in which a wrong checksum of a transaction to be applied is fatal; version 5 only warns."""

_MAX_POSSIBLE_ENDS = 64
_DIAGNOSES = {
    "checksum-mismatch": "bad CRC",
    "torn-tail": "torn tail",
    "zero-tail": "zero tail",
    "garbage-tail": "garbage tail",
    "length-out-of-bounds": "length past end of file",
    "bad-header": "transaction does not parse",
    "varint-overlong": "transaction does not parse",
    "count-out-of-bounds": "transaction does not parse",
    "payload-undecodable": "ADD_CACHE not proven",
}
_ACTION_TEXTS = {
    "refuse": "the server refuses to start",
    "drop": "the server starts and silently drops the rest of this file",
    "delete": "the server starts and deletes this file",
}


def explain_damage(layout: LogFileLayout, damaged_bytes: memoryview, damage_offset: int, damage: Finding) -> Finding:
    """Add `diagnosis` and `server` (the action of a starting server) to the facts of a finding.

    Source: `docs/spec/manticore.md#replay-of-a-file`.
    """
    context = layout.context
    if not isinstance(context, ManticoreLogContext) or "ceiling" in damage.facts:
        return damage
    if layout.frames_at == 0 and layout.frame.name == "header":
        return _explain_torn_header(damage, context, has_magic=bytes(damaged_bytes[:4]) == b"SPBL")
    facts: dict[str, Any] = {**damage.facts, "diagnosis": _choose_diagnosis(damage, damaged_bytes)}
    facts |= _find_proofs(bytes(damaged_bytes), context, damage_offset, damage)
    severity = Severity.WARNING if damage.id in ("torn-tail", "zero-tail", "garbage-tail") else damage.severity
    if any(at < damage_offset for at in context.actions):  # the server does not reach this place
        return replace(damage, severity=severity, facts=MappingProxyType(facts))
    action = _predict_server_action(context, damaged_bytes, damage_offset, damage)
    context.actions[damage_offset] = action
    message = f"{damage.message}; {_ACTION_TEXTS[action]}"
    if action == "refuse":
        severity = Severity.ERROR
    if action == "refuse" and facts["diagnosis"] == "bad CRC":
        message += " (or, if the table has saved this transaction, drops the rest of the file)"
    return replace(damage, severity=severity, message=message, facts=MappingProxyType({**facts, "server": action}))


def _explain_torn_header(damage: Finding, context: ManticoreLogContext, *, has_magic: bool) -> Finding:
    """Explain a torn file header: without the magic, every version stops; with it, only old versions, which read
    version 0.
    """
    action = context.actions[0] = "delete" if context.has_new_frames and has_magic else "refuse"
    facts = {**damage.facts, "diagnosis": "header torn", "server": action}
    message = f"{damage.message} (the header of the file); {_ACTION_TEXTS[action]}"
    severity = Severity.ERROR if action == "refuse" else Severity.WARNING
    return replace(damage, severity=severity, message=message, facts=MappingProxyType(facts))


def _read_op(data: memoryview) -> int | None:
    return data[4] if bytes(data[:4]) == schema.TXN_PATTERN and len(data) > 4 else None


def _choose_diagnosis(damage: Finding, data: memoryview) -> str:
    if damage.id != "bad-magic":
        return _DIAGNOSES.get(damage.id, damage.id)
    if bytes(data[:4]) == schema.TXN_PATTERN:
        return "unknown op"
    return "zero hole" if not any(data[:16]) else "missing txn magic"


def _predict_server_action(context: ManticoreLogContext, data: memoryview, offset: int, damage: Finding) -> str:
    """Predict the server's action at a damaged range, for a table that is served and has no saved TID.

    Source: `docs/spec/manticore.md#replay-of-a-file`.
    """
    op = _read_op(data)
    if op is None or op not in set(context.ops) or damage.id in ("bad-magic", "zero-tail", "garbage-tail"):
        return "refuse"  # "unexpected entry", also where a power cut left zeros after the magic of a transaction
    if not context.has_new_frames and schema.OP_SINCE_VERSION.get(OldOp(op), 0) > context.version:
        return "refuse"  # "unexpected entry" of a server that does not know this operation yet
    if op == context.ops.ADD_INDEX and not context.has_new_frames:  # the id is checked before the checksum
        return "drop" if _read_table_id(context, data) == max(context.declared, len(context.names)) else "refuse"
    if op == context.ops.ADD_INDEX:
        return "delete" if offset == schema.HEADER_SIZE else "drop"
    if op == context.ops.ADD_CACHE:
        return "drop"
    is_known = _read_table_id(context, data) < max(context.declared, len(context.names))
    return "drop" if is_known and context.version < FATAL_MISMATCH_VERSION else "refuse"


def _read_table_id(context: ManticoreLogContext, data: memoryview) -> int:
    """Read the table id of a transaction."""
    read = read_varint if context.version <= LAST_LOW_VERSION else read_zint
    return read(data, 5, len(data))[0] & U64


# -- proofs ------------------------------------------------------------------------------------------------------------


def _find_proofs(data: bytes, context: ManticoreLogContext, offset: int, damage: Finding) -> dict[str, Any]:
    """Return proofs as facts: a wrong uSize that the checksum reveals, or an unknown op with a right checksum."""
    op = _read_op(memoryview(data))
    if op is None or not context.has_new_frames or damage.id in ("zero-tail", "garbage-tail", "torn-tail"):
        return {}
    if op == Op.ADD_TXN:
        _, position = read_zint(data, 5, len(data))
        if position > 0:
            _, position = read_zint(data, position, len(data))
        size_offset = position if 0 < position <= len(data) - 8 else None
        size = None if size_offset is None else _find_payload_size_by_checksum(data, size_offset)
        is_proven = (
            size is not None
            and size_offset is not None
            and size != int.from_bytes(data[size_offset : size_offset + 4], "little")
        )
        return (
            {"diagnosis": "wrong length", "uSize_should_be": size, "uSize_offset": offset + (size_offset or 0)}
            if is_proven
            else {}
        )
    if op not in Op.__members__.values():
        checksum_right = any(_is_checksum_right(data, border - 4) for border in _find_possible_ends(data))
        return {"op": op, "checksum_right": checksum_right}
    return {}


def _find_possible_ends(data: bytes) -> Iterator[int]:
    """Yield possible ends of the transaction: the next few `TXN!`, and the end of the bytes."""
    for tried, match in enumerate(re.compile(schema.TXN_PATTERN).finditer(data, 10)):
        if tried == _MAX_POSSIBLE_ENDS:
            return
        yield match.start()
    yield len(data)


def _is_checksum_right(data: bytes, end: int, patch: tuple[int, bytes] | None = None) -> bool:
    """Return whether the checksum at `end` is right after applying `patch` (position, bytes)."""
    covered = bytearray(data[4:end])
    if patch is not None:
        covered[patch[0] - 4 : patch[0] - 4 + len(patch[1])] = patch[1]
    return len(data) >= end + 4 and CRC32(covered) == int.from_bytes(data[end : end + 4], "little")


def _find_payload_size_by_checksum(data: bytes, position: int) -> int | None:
    """Return the uSize that makes the checksum right, or None."""
    for border in _find_possible_ends(data):
        size = border - 4 - (position + 4)
        if size > 0 and _is_checksum_right(data, border - 4, (position, size.to_bytes(4, "little"))):
            return size
    return None


# --- One flipped bit in a log's head ---

_LOG_MAGIC, _META_MAGIC = b"SPBL", b"SPLI"
_MAX_TRANSACTIONS = 16
"""Maximum number of transactions that are checked."""
_PROVEN_BY_TRANSACTIONS = "the transactions that follow prove it"
_PROVEN_BY_LIST = "the file list that follows proves it"


def find_header_bit_flips(head: FileHead) -> Iterator[HeaderFlip]:
    """Yield the one bit flip after which more transactions, or the file list, can be read (`format_api.format`)."""
    data = head.data
    if head.name.rpartition("/")[2] in META_NAMES:
        yield from _find_meta_flips(head)
    elif (place := _find_proven_flip(data)) is not None:
        yield _create_flip(head, *place, _PROVEN_BY_TRANSACTIONS)


@lru_cache(maxsize=4)
def _find_proven_flip(data: bytes) -> tuple[int, int] | None:
    """Return the (byte, bit) of a log's head whose correction makes more transactions readable; None = there is none.

    The last answers are kept, because a diagnosis opens a file many times.
    """
    stored_count = _count_leading_transactions(data, _read_version(data)) if data.startswith(_LOG_MAGIC) else 0
    if len(data) <= schema.HEADER_SIZE or stored_count >= _get_required_count(_read_version(data)):
        return None
    places = (
        _find_magic_flip(data, _LOG_MAGIC)
        if data[:4] != _LOG_MAGIC
        else [(byte, bit) for byte in range(4, 8) for bit in range(8)]
    )
    stored_count = _count_valid_transactions(data) if data.startswith(_LOG_MAGIC) else 0
    counts = {place: _count_valid_transactions(_flip_bit(data, *place)) for place in places}
    best_count = max(counts.values(), default=0)
    best_places = [place for place, count in counts.items() if count == best_count]
    return best_places[0] if best_count > stored_count and len(best_places) == 1 else None


def _find_meta_flips(head: FileHead) -> Iterator[HeaderFlip]:
    for place in _find_magic_flip(head.data, _META_MAGIC):
        flip = _create_flip(head, *place, _PROVEN_BY_LIST)
        if not read_layout(correct_head(head, flip), Limits()).findings:
            yield flip


def _find_magic_flip(data: bytes, magic: bytes) -> list[tuple[int, int]]:
    """Return the wrong bit of a magic as a list of (byte, bit); [] unless exactly one bit is wrong."""
    differences = [(byte, data[byte] ^ magic[byte]) for byte in range(min(4, len(data))) if data[byte] != magic[byte]]
    return (
        [(differences[0][0], differences[0][1].bit_length() - 1)]
        if len(differences) == 1 and differences[0][1].bit_count() == 1
        else []
    )


def _create_flip(head: FileHead, byte: int, bit: int, proof: str) -> HeaderFlip:
    """Create the flip, with the findings' text about the stored head."""
    errors: list[Finding] = [one for one in read_layout(head, Limits()).findings if one.severity is Severity.ERROR]
    server_facts = {"server": "refuse", "said_version": _read_version(head.data) if byte >= 4 else None}
    if not errors:
        return HeaderFlip(byte, bit, proof, 4, 4, diagnosis="header version differs from content", more=server_facts)
    error = errors[0]
    return HeaderFlip(
        byte, bit, proof, error.offset or 0, error.length, error.id, str(error.facts["diagnosis"]), server_facts
    )


def _read_version(data: bytes) -> int:
    return int.from_bytes(data[4:8], "little")


def _is_known_version(version: int) -> bool:
    return schema.FIRST_VERSION <= version <= schema.LAST_VERSION


def _flip_bit(data: bytes, byte: int, bit: int) -> bytes:
    return data[:byte] + bytes([data[byte] ^ 1 << bit]) + data[byte + 1 :]


def _get_required_count(version: int) -> int:
    """Return how many valid transactions prove the version: one if the frame stores its length."""
    return 1 if version >= schema.NEW_FRAME_VERSION else _MAX_TRANSACTIONS


def _count_valid_transactions(data: bytes) -> int:
    """Count the valid transactions among the first ones, also after invalid ones, if the head's version is right.

    A record of another version at the front (copied from another log) does not affect the count of later ones.
    """
    version = _read_version(data)
    if not _is_known_version(version):
        return 0
    marks = islice(re.finditer(re.escape(schema.TXN_PATTERN), data[schema.HEADER_SIZE :]), _MAX_TRANSACTIONS)
    parts = (data[: schema.HEADER_SIZE] + data[schema.HEADER_SIZE + mark.start() :] for mark in marks)
    return sum(_count_leading_transactions(part, version, 1) for part in parts)


def _count_leading_transactions(data: bytes, version: int, max_count: int = _MAX_TRANSACTIONS) -> int:
    """Count consecutive valid transactions (at most `max_count`) from the start, read as this version."""
    if not _is_known_version(version):
        return 0
    if version >= schema.NEW_FRAME_VERSION:
        return int(starts_with_transaction(data[schema.HEADER_SIZE :], version))
    position, count, out = schema.HEADER_SIZE, 0, [0, 0, 0]
    kernel = schema.create_v2_to_v14_body_kernel(version, infer_id_size(data, version))
    while count < max_count and data[position : position + 4] == schema.TXN_PATTERN and position + 5 < len(data):
        end = kernel.read(data, position + 5, len(data), kernel.table, out, 0)
        if end < 0 or CRC32(data[position + 4 : end]) != int.from_bytes(data[end : end + 4], "little"):
            break
        position, count = end + 4, count + 1
    return count
