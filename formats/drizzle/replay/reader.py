"""Simulate the server's own reader, transaction_reader, on bytes that are no good entries.

Source:
`docs/spec/drizzle.md#stock-reader`.
"""

from __future__ import annotations

import struct
from typing import NamedTuple

from binlogtool.formats.drizzle.codes import EntryType
from binlogtool.formats.drizzle.protobuf.decoding import UndecodableError, create_transaction_parser
from binlogtool.formats.drizzle.schema import ENVELOPE_SIZE, MAX_MESSAGE_SIZE
from binlogtool.formats.layouts import RangeReader
from binlogtool.limits import MIB

_HEADER = struct.Struct("<II")
_MAX_MESSAGE = 64 * MIB
_MAX_ENTRIES = 10_000


class ReaderPosition(NamedTuple):
    """Position of the reader.

    Attributes:
        why: error with which it ends there, or None.
        entries: entries that it accepted without verifying the checksum (it does so only with `--checksum`, and
            continues after a mismatch).
    """

    offset: int
    why: str | None = None
    entries: int = 0


def simulate_reader(read: RangeReader, start: int, end: int) -> ReaderPosition:
    """Simulate the reader over `[start, end)`, where nothing is provable; entries before and after are good."""
    position = entry_count = 0
    for entry_count in range(_MAX_ENTRIES):
        position = start if not entry_count else position
        if position >= end:
            return ReaderPosition(
                position,
                None if position == end or not read(position, 1) else "the reader is inside an entry",
                entry_count,
            )
        head = read(position, _HEADER.size)
        if len(head) < _HEADER.size:
            return ReaderPosition(position, None, entry_count)  # the reader takes a cut header for the end
        kind, length = _HEADER.unpack(head)
        error = _predict_error(read, position, kind, length)
        if error is not None:
            return ReaderPosition(position, error, entry_count)
        position += ENVELOPE_SIZE + length
    return ReaderPosition(position, "too many entries with wrong checksums to follow", entry_count)


def _predict_error(read: RangeReader, offset: int, kind: int, length: int) -> str | None:
    """Predict the reader's error about an entry; None if it accepts the entry."""
    if kind != EntryType.TRANSACTION:
        return f"a non-transaction message (type {kind})"
    if length > MAX_MESSAGE_SIZE:
        return "a record bigger than INT_MAX"
    message = read(offset + _HEADER.size, min(length, _MAX_MESSAGE))
    if len(message) < length:
        return "the message cannot be read to its end"
    try:
        create_transaction_parser()(message)
    except UndecodableError as error:
        return str(error)
    return None
