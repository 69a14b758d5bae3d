"""Simulate the server's own reader, transaction_reader, on bytes that are no good entries.

Source:
`docs/spec/drizzle-transaction-log.md#9-stock-reader-behaviour-transaction_reader-installed-as-drizzletrx-for-comparison`.
"""

from __future__ import annotations

import struct
from typing import NamedTuple

from binlogtool.formats.drizzle.codes import EntryType
from binlogtool.formats.drizzle.protobuf.decoding import UndecodableError, transaction_parser
from binlogtool.formats.drizzle.schema import ENVELOPE, MAX_LENGTH
from binlogtool.formats.layouts import Read
from binlogtool.limits import MIB

_HEADER = struct.Struct("<II")
_MAX_MESSAGE = 64 * MIB
_MAX_ENTRIES = 10_000


class Reached(NamedTuple):
    """Position of the reader.

    Attributes:
        why: error with which it ends there, or None.
        entries: entries that it accepted without verifying the checksum (it does so only with `--checksum`, and
            continues after a mismatch).
    """

    offset: int
    why: str | None = None
    entries: int = 0


def reader_goes_on(read: Read, start: int, end: int) -> Reached:
    """Simulate the reader over `[start, end)`, where nothing is provable; entries before and after are good."""
    at = taken = 0
    for taken in range(_MAX_ENTRIES):
        at = start if not taken else at
        if at >= end:
            return Reached(at, None if at == end or not read(at, 1) else "the reader is inside an entry", taken)
        head = read(at, _HEADER.size)
        if len(head) < _HEADER.size:
            return Reached(at, None, taken)  # the reader takes a cut header for the end
        kind, length = _HEADER.unpack(head)
        why = _refused(read, at, kind, length)
        if why is not None:
            return Reached(at, why, taken)
        at += ENVELOPE + length
    return Reached(at, "too many entries with wrong checksums to follow", taken)


def _refused(read: Read, at: int, kind: int, length: int) -> str | None:
    """Predict the reader's error about an entry; None if it accepts the entry."""
    if kind != EntryType.TRANSACTION:
        return f"a non-transaction message (type {kind})"
    if length > MAX_LENGTH:
        return "a record bigger than INT_MAX"
    message = read(at + _HEADER.size, min(length, _MAX_MESSAGE))
    if len(message) < length:
        return "the message cannot be read to its end"
    try:
        transaction_parser()(message)
    except UndecodableError as error:
        return str(error)
    return None
