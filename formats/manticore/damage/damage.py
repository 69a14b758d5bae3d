"""Explain damaged ranges: the diagnosis, the server's action, and proofs about the payload."""

from __future__ import annotations

import re
from collections.abc import Iterator
from types import MappingProxyType
from typing import Any

from msgspec.structs import replace

from binlogtool.findings import Finding, Severity
from binlogtool.formats.checksums import CRC32
from binlogtool.formats.layouts import LogFileLayout
from binlogtool.formats.manticore import schema
from binlogtool.formats.manticore.layout import ManticoreLogContext
from binlogtool.formats.manticore.payloads.sphinx4 import LAST_LOW_VERSION, read_low_zint
from binlogtool.formats.manticore.payloads.zint import read_zint
from binlogtool.formats.manticore.schema import OldOp, Op

FATAL_MISMATCH_VERSION = 14
"""From this version on a wrong checksum of a transaction that is to be applied is fatal; version 5 only warns."""

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


def explain_damage(layout: LogFileLayout, data: memoryview, offset: int, engine_finding: Finding) -> Finding:
    """Add `diagnosis` and `server` (the action of a starting server) to the facts of a finding.

    Source: `docs/spec/manticore.md#replay-of-a-file`.
    """
    context = layout.context
    if not isinstance(context, ManticoreLogContext) or "ceiling" in engine_finding.facts:
        return engine_finding
    if layout.frames_at == 0 and layout.frame.name == "header":
        return _explain_torn_header(engine_finding, context, has_magic=bytes(data[:4]) == b"SPBL")
    facts: dict[str, Any] = {**engine_finding.facts, "diagnosis": _choose_diagnosis(engine_finding, data)}
    facts |= _find_proofs(bytes(data), context, offset, engine_finding)
    severity = (
        Severity.WARNING if engine_finding.id in ("torn-tail", "zero-tail", "garbage-tail") else engine_finding.severity
    )
    if any(at < offset for at in context.actions):  # the server does not reach this place
        return replace(engine_finding, severity=severity, facts=MappingProxyType(facts))
    action = _predict_server_action(context, data, offset, engine_finding)
    context.actions[offset] = action
    message = f"{engine_finding.message}; {_ACTION_TEXTS[action]}"
    if action == "refuse":
        severity = Severity.ERROR
    if action == "refuse" and facts["diagnosis"] == "bad CRC":
        message += " (or, if the table has saved this transaction, drops the rest of the file)"
    return replace(
        engine_finding, severity=severity, message=message, facts=MappingProxyType({**facts, "server": action})
    )


def _explain_torn_header(damage: Finding, context: ManticoreLogContext, *, has_magic: bool) -> Finding:
    """Explain a torn file header: without the magic every version stops; with it only the old ones, which read
    version
    0.
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
    """Predict the server's action at a damaged range, for a table that is served and has saved nothing.

    Source: `docs/spec/manticore.md#replay-of-a-file`.
    """
    op = _read_op(data)
    if op is None or op not in set(context.ops) or damage.id in ("bad-magic", "zero-tail", "garbage-tail"):
        return "refuse"  # "unexpected entry", also where a power cut left zeros after the magic of a transaction
    if not context.has_new_frames and schema.OP_SINCE_VERSION.get(OldOp(op), 0) > context.version:
        return "refuse"  # "unexpected entry" of a server that does not know the operation yet
    if op == context.ops.ADD_INDEX and not context.has_new_frames:  # the id is checked before the checksum
        return "drop" if _read_table_id(context, data) == max(context.declared, len(context.names)) else "refuse"
    if op == context.ops.ADD_INDEX:
        return "delete" if offset == schema.HEADER_SIZE else "drop"
    if op == context.ops.ADD_CACHE:
        return "drop"
    is_known = _read_table_id(context, data) < max(context.declared, len(context.names))
    return "drop" if is_known and context.version < FATAL_MISMATCH_VERSION else "refuse"


def _read_table_id(context: ManticoreLogContext, data: memoryview) -> int:
    """Read the id of the table of a transaction."""
    read = read_low_zint if context.version <= LAST_LOW_VERSION else read_zint
    return read(data, 5, len(data))[0]


# -- proofs ------------------------------------------------------------------------------------------------------------


def _find_proofs(data: bytes, context: ManticoreLogContext, offset: int, damage: Finding) -> dict[str, Any]:
    """Return proofs as facts: a wrong uSize that the checksum reveals; an unknown op whose checksum is right."""
    op = _read_op(memoryview(data))
    if op is None or not context.has_new_frames or damage.id in ("zero-tail", "garbage-tail", "torn-tail"):
        return {}
    if op == Op.ADD_TXN:
        size_offset = _find_usize(data)
        size = None if size_offset is None else _find_right_size(data, size_offset)
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
    """Yield the possible ends of the transaction: the next few `TXN!`, and the end of the bytes."""
    for tried, match in enumerate(re.compile(schema.TXN_PATTERN).finditer(data, 10)):
        if tried == _MAX_POSSIBLE_ENDS:
            return
        yield match.start()
    yield len(data)


def _is_checksum_right(data: bytes, end: int, patch: tuple[int, bytes] | None = None) -> bool:
    """Check the checksum at `end`, with the bytes of `patch` (position, bytes) put in place."""
    covered = bytearray(data[4:end])
    if patch is not None:
        covered[patch[0] - 4 : patch[0] - 4 + len(patch[1])] = patch[1]
    return len(data) >= end + 4 and CRC32(covered) == int.from_bytes(data[end : end + 4], "little")


def _find_usize(data: bytes) -> int | None:
    _, position = read_zint(data, 5, len(data))
    if position > 0:
        _, position = read_zint(data, position, len(data))
    return position if 0 < position <= len(data) - 8 else None


def _find_right_size(data: bytes, position: int) -> int | None:
    """Find the uSize that makes the checksum right, or None."""
    for border in _find_possible_ends(data):
        size = border - 4 - (position + 4)
        if size > 0 and _is_checksum_right(data, border - 4, (position, size.to_bytes(4, "little"))):
            return size
    return None
