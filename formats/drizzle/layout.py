"""Detection and layout of a transaction log; the layouts of 2009 are recognized and not read.

Source: `docs/spec/drizzle-transaction-log.md#1-file`.
"""

from __future__ import annotations

import re
from fnmatch import fnmatchcase
from itertools import islice

from binlogtool.findings import finding
from binlogtool.formats.checksums import CRC32
from binlogtool.formats.detecting import Head, Match
from binlogtool.formats.drizzle import MEMBERS
from binlogtool.formats.drizzle.codes import EntryType
from binlogtool.formats.drizzle.damage import SYNC
from binlogtool.formats.drizzle.judge.judge import prove
from binlogtool.formats.drizzle.protobuf.wire import Token, Wire, tokens
from binlogtool.formats.drizzle.schema import ENTRY, ENVELOPE, MAX_LENGTH
from binlogtool.formats.fields import MalformedError
from binlogtool.formats.layouts import FrameLevel, Layout
from binlogtool.limits import MIB, Limits

VARIANT = "transaction log (October 2009 to March 2012)"
OLD_VARIANT = "no entry type: pre-October-2009 layout?"

_HEADER = 8
_MAX_TRIES = 256
_TYPE_BYTES = tuple(int(kind).to_bytes(4, "little")[:size] for kind in EntryType for size in (1, 2, 3, 4))
_ROTATED = re.compile(r"(.+)\.\d+", re.DOTALL)

FRAME = FrameLevel(
    name="entry",
    schema=ENTRY,
    columns=("type", "length", "message_start", "message_end", "crc32"),
    sync=SYNC,
    min_size=ENVELOPE + 1,
    max_size=64 * MIB,
    prove=prove,
    checksum=CRC32,
    stored="crc32",
    covered=("message_start", "message_end"),
)
"""max_size: the server splits transactions at 1 MiB (at most 128 KiB more), but one row is never split."""


def layout(head: Head, limits: Limits) -> Layout:
    """Return the layout: entries from offset 0. The layouts of 2009 are reported and not readable."""
    if not _is_entry_head(head.data) and _is_old(head.data):
        found = finding("unsupported-version", 0, min(len(head.data), _HEADER), OLD_VARIANT, diagnosis=OLD_VARIANT)
        return Layout(OLD_VARIANT, 0, FRAME, findings=(found,), readable=False)
    return Layout(VARIANT, 0, FRAME)


def stem(name: str) -> str:
    """Return the name of a log without the number of a rotated part."""
    older = _ROTATED.fullmatch(name)
    return older[1] if older else name


def detect(head: Head) -> Match:
    """Match a file by its first entry; else by its name, or by any entry that its checksum proves."""
    data = head.data
    base = head.name.rsplit("/", 1)[-1]
    if not data:
        fits = any(fnmatchcase(base, pattern) for pattern in MEMBERS)
        return Match(20 if fits else 0, "empty, and named like a log" if fits else "empty file")
    if _is_entry_head(data):
        return _first_entry(data)
    if _is_old(data):
        return Match(55, OLD_VARIANT)
    if _proven_inside(data):
        return Match(60, "damaged at the start; an entry with the right checksum stands behind")
    if head.whole and len(data) <= ENVELOPE and data[:4] in _TYPE_BYTES:
        return Match(20, "the head of an entry, torn")
    named = base == MEMBERS[0]
    return Match(10 if named else 0, "only the file name fits" if named else "no entry type 1 or 2 at the start")


def _first_entry(data: bytes) -> Match:
    length = _u32(data, 4)
    message = data[_HEADER : _HEADER + length]
    if len(data) >= ENVELOPE + length and _u32(data, _HEADER + length) == CRC32(message):
        return Match(100, "first entry has the right checksum")
    if _u32(data, 0) == EntryType.TRANSACTION and is_transaction_head(message):
        return Match(85, "first entry starts a Transaction message")
    if _proven_inside(data):
        return Match(60, "the first entry is damaged; an entry with the right checksum stands behind")
    return Match(0, "an entry type, but no Transaction message behind it")


def _is_entry_head(data: bytes) -> bool:
    known = len(data) >= _HEADER and _u32(data, 0) in EntryType.__members__.values()
    return known and 0 < _u32(data, 4) <= MAX_LENGTH


def is_transaction_head(message: bytes) -> bool:
    """Check that these bytes, which may be cut off, start with a TransactionContext."""
    try:
        context = next(iter(tokens(message, 0, len(message), 1)), None)
        return context is not None and _is_context(message, context)
    except MalformedError:
        return False


def _is_context(message: bytes, field: Token) -> bool:
    if field.number != 1 or field.wire is not Wire.LENGTH_DELIMITED:
        return False
    inner = list(islice(tokens(message, field.at, field.end, 1), 8))
    return {1, 2, 3, 4} <= {token.number for token in inner if token.wire is Wire.VARINT}


def _is_old(data: bytes) -> bool:
    """Check for a length of 8 or 4 bytes without a type, then a message with a context, and no entry with a right
    checksum.
    """
    for width in (8, 4):
        length = int.from_bytes(data[:width], "little")
        if 0 < length <= MAX_LENGTH and is_transaction_head(data[width : width + length]):
            return not _proven_inside(data)
    return False


def _proven_inside(data: bytes) -> bool:
    for match in islice(re.compile(SYNC).finditer(data), _MAX_TRIES):
        start = match.start() + _HEADER
        stop = start + _u32(data, match.start() + 4)
        if start < stop <= len(data) - 4 and _u32(data, stop) == CRC32(memoryview(data)[start:stop]):
            return True
    return False


def _u32(data: bytes, at: int) -> int:
    return int.from_bytes(data[at : at + 4], "little")
