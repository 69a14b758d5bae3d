"""Explain damaged ranges: the diagnosis, the server's action, and proofs about the payload."""

from __future__ import annotations

import re
from collections.abc import Iterator
from types import MappingProxyType
from typing import Any

from msgspec.structs import replace

from binlogtool.findings import Finding, Severity
from binlogtool.formats.checksums import CRC32
from binlogtool.formats.layouts import Layout
from binlogtool.formats.manticore import schema
from binlogtool.formats.manticore.layout import LogContext
from binlogtool.formats.manticore.payloads.sphinx4 import LAST_LOWEST_FIRST, read_low
from binlogtool.formats.manticore.payloads.zint import read_zint
from binlogtool.formats.manticore.schema import OldOp, Op

FATAL_MISMATCH = 14
"""From this version on a wrong checksum of a transaction that is to be applied is fatal; version 5 only warns."""

_MAX_BORDERS = 64
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
_WORDS = {
    "refuse": "the server refuses to start",
    "drop": "the server starts and silently drops the rest of this file",
    "delete": "the server starts and deletes this file",
}


def explain_damage(layout: Layout, data: memoryview, offset: int, found: Finding) -> Finding:
    """Add `diagnosis` and `server` (the action of a starting server) to the facts of a finding.

    Source: `docs/spec/manticore-binlog.md#82-replay-of-one-file`.
    """
    context = layout.context
    if not isinstance(context, LogContext) or "ceiling" in found.facts:
        return found
    if layout.frames_at == 0 and layout.frame.name == "header":
        return _header_torn(found, context, magic=bytes(data[:4]) == b"SPBL")
    facts: dict[str, Any] = {**found.facts, "diagnosis": _diagnosis(found, data)}
    facts |= _proofs(bytes(data), context, offset, found)
    severity = Severity.WARNING if found.id in ("torn-tail", "zero-tail", "garbage-tail") else found.severity
    if any(at < offset for at in context.actions):  # the server does not reach this place
        return replace(found, severity=severity, facts=MappingProxyType(facts))
    action = _action(context, data, offset, found)
    context.actions[offset] = action
    message = f"{found.message}; {_WORDS[action]}"
    if action == "refuse":
        severity = Severity.ERROR
    if action == "refuse" and facts["diagnosis"] == "bad CRC":
        message += " (or, if the table has saved this transaction, drops the rest of the file)"
    return replace(found, severity=severity, message=message, facts=MappingProxyType({**facts, "server": action}))


def _header_torn(found: Finding, context: LogContext, *, magic: bool) -> Finding:
    """Explain a torn file header: without the magic every version stops; with it only the old ones, which read
    version
    0.
    """
    action = context.actions[0] = "delete" if context.new and magic else "refuse"
    facts = {**found.facts, "diagnosis": "header torn", "server": action}
    message = f"{found.message} (the header of the file); {_WORDS[action]}"
    severity = Severity.ERROR if action == "refuse" else Severity.WARNING
    return replace(found, severity=severity, message=message, facts=MappingProxyType(facts))


def _op(data: memoryview) -> int | None:
    return data[4] if bytes(data[:4]) == schema.SYNC and len(data) > 4 else None


def _diagnosis(found: Finding, data: memoryview) -> str:
    if found.id != "bad-magic":
        return _DIAGNOSES.get(found.id, found.id)
    if bytes(data[:4]) == schema.SYNC:
        return "unknown op"
    return "zero hole" if not any(data[:16]) else "missing txn magic"


def _action(context: LogContext, data: memoryview, offset: int, found: Finding) -> str:
    """Predict the server's action at a damaged range, for a table that is served and has saved nothing.

    Source: `docs/spec/manticore-binlog.md#82-replay-of-one-file`.
    """
    op = _op(data)
    if op is None or op not in set(context.ops) or found.id in ("bad-magic", "zero-tail", "garbage-tail"):
        return "refuse"  # "unexpected entry", also where a power cut left zeros after the magic of a transaction
    if not context.new and schema.SINCE.get(OldOp(op), 0) > context.version:
        return "refuse"  # "unexpected entry" of a server that does not know the operation yet
    if op == context.ops.ADD_INDEX and not context.new:  # the id is checked before the checksum
        return "drop" if _id(context, data) == max(context.declared, len(context.names)) else "refuse"
    if op == context.ops.ADD_INDEX:
        return "delete" if offset == schema.HEADER_SIZE else "drop"
    if op == context.ops.ADD_CACHE:
        return "drop"
    known = _id(context, data) < max(context.declared, len(context.names))
    return "drop" if known and context.version < FATAL_MISMATCH else "refuse"


def _id(context: LogContext, data: memoryview) -> int:
    """Read the id of the table of a transaction."""
    read = read_low if context.version <= LAST_LOWEST_FIRST else read_zint
    return read(data, 5, len(data))[0]


# -- proofs ------------------------------------------------------------------------------------------------------------


def _proofs(data: bytes, context: LogContext, offset: int, found: Finding) -> dict[str, Any]:
    """Return proofs as facts: a wrong uSize that the checksum reveals; an unknown op whose checksum is right."""
    op = _op(memoryview(data))
    if op is None or not context.new or found.id in ("zero-tail", "garbage-tail", "torn-tail"):
        return {}
    if op == Op.ADD_TXN:
        at = _usize_at(data)
        size = None if at is None else _right_size(data, at)
        known = size is not None and at is not None and size != int.from_bytes(data[at : at + 4], "little")
        return (
            {"diagnosis": "wrong length", "uSize_should_be": size, "uSize_offset": offset + (at or 0)} if known else {}
        )
    if op not in Op.__members__.values():
        right = any(_checks(data, border - 4) for border in _borders(data))
        return {"op": op, "checksum_right": right}
    return {}


def _borders(data: bytes) -> Iterator[int]:
    """Yield the possible ends of the transaction: the next few `TXN!`, and the end of the bytes."""
    for tried, match in enumerate(re.compile(schema.SYNC).finditer(data, 10)):
        if tried == _MAX_BORDERS:
            return
        yield match.start()
    yield len(data)


def _checks(data: bytes, end: int, patch: tuple[int, bytes] | None = None) -> bool:
    """Check the checksum at `end`, with the bytes of `patch` (position, bytes) put in place."""
    covered = bytearray(data[4:end])
    if patch is not None:
        covered[patch[0] - 4 : patch[0] - 4 + len(patch[1])] = patch[1]
    return len(data) >= end + 4 and CRC32(covered) == int.from_bytes(data[end : end + 4], "little")


def _usize_at(data: bytes) -> int | None:
    _, at = read_zint(data, 5, len(data))
    if at > 0:
        _, at = read_zint(data, at, len(data))
    return at if 0 < at <= len(data) - 8 else None


def _right_size(data: bytes, at: int) -> int | None:
    """Find the uSize that makes the checksum right, or None."""
    for border in _borders(data):
        size = border - 4 - (at + 4)
        if size > 0 and _checks(data, border - 4, (at, size.to_bytes(4, "little"))):
            return size
    return None
