"""Find one flipped bit in the magic or version of a log's head, proven by the transactions after it, or in the magic
of
`binlog.meta`, proven by the list after it.

Source: `docs/spec/manticore-binlog.md#3-binlogmeta`, `#4-log-file`, `#10-versions-2---14-the-old-frame`.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from itertools import islice

from binlogtool.findings import Finding, Severity
from binlogtool.formats.checksums import CRC32
from binlogtool.formats.detecting import Head
from binlogtool.formats.heads import HeadFlip, corrected
from binlogtool.formats.manticore import schema
from binlogtool.formats.manticore.layout import META_NAMES, fits, id_bytes, layout
from binlogtool.formats.manticore.payloads.sphinx4 import LAST_LOWEST_FIRST, read_low_body
from binlogtool.formats.manticore.payloads.walk import read_body
from binlogtool.limits import Limits

_LOG, _META = b"SPBL", b"SPLI"
_FIRST = 16
"""Transactions that are looked at."""
_BY_TRANSACTIONS = "the transactions behind it prove it"
_BY_LIST = "the list behind it proves it"


def heads(head: Head) -> Iterator[HeadFlip]:
    """Yield the one bit flip with which more transactions, or the list at all, can be read (`formats.heads`)."""
    data = head.data
    if head.name.rpartition("/")[2] in META_NAMES:
        yield from _meta(head)
        return
    as_it_is = _chained(data, _version(data)) if data.startswith(_LOG) else 0
    if len(data) <= schema.HEADER_SIZE or as_it_is >= _whole(data, _version(data)):
        return
    places = _magic(data, _LOG) if data[:4] != _LOG else [(byte, bit) for byte in range(4, 8) for bit in range(8)]
    as_it_is = _proven(data) if data.startswith(_LOG) else 0
    reached = {place: _proven(_changed(data, *place)) for place in places}
    most = max(reached.values(), default=0)
    best = [place for place, count in reached.items() if count == most]
    if most > as_it_is and len(best) == 1:
        yield _flip(head, *best[0], _BY_TRANSACTIONS)


def _meta(head: Head) -> Iterator[HeadFlip]:
    for place in _magic(head.data, _META):
        flip = _flip(head, *place, _BY_LIST)
        if not layout(corrected(head, flip), Limits()).findings:
            yield flip


def _magic(data: bytes, magic: bytes) -> list[tuple[int, int]]:
    """Return the one bit that is wrong in a magic, as a list of (byte, bit); [] if it is not exactly one."""
    wrong = [(byte, data[byte] ^ magic[byte]) for byte in range(min(4, len(data))) if data[byte] != magic[byte]]
    return [(wrong[0][0], wrong[0][1].bit_length() - 1)] if len(wrong) == 1 and wrong[0][1].bit_count() == 1 else []


def _flip(head: Head, byte: int, bit: int, proof: str) -> HeadFlip:
    """Create the flip, with what the findings say about the stored head."""
    wrong: list[Finding] = [one for one in layout(head, Limits()).findings if one.severity is Severity.ERROR]
    more = {"server": "refuse", "said_version": _version(head.data) if byte >= 4 else None}
    if not wrong:
        return HeadFlip(byte, bit, proof, 4, 4, diagnosis="header version differs from content", more=more)
    told = wrong[0]
    return HeadFlip(byte, bit, proof, told.offset or 0, told.length, told.id, str(told.facts["diagnosis"]), more)


def _version(data: bytes) -> int:
    return int.from_bytes(data[4:8], "little")


def _is_known(version: int) -> bool:
    return schema.FIRST_VERSION <= version <= schema.LAST_VERSION


def _changed(data: bytes, byte: int, bit: int) -> bytes:
    return data[:byte] + bytes([data[byte] ^ 1 << bit]) + data[byte + 1 :]


def _whole(data: bytes, version: int) -> int:
    """Return how many valid transactions prove the version: one where the frame stores its length."""
    return 1 if version >= schema.NEW_FRAME else _FIRST


def _proven(data: bytes) -> int:
    """Count the valid ones of the first transactions, also after invalid ones, if the version is as the head says.

    A record of another version at the front, copied there from another log, says nothing about those that follow.
    """
    version = _version(data)
    if not _is_known(version):
        return 0
    marks = islice(re.finditer(re.escape(schema.SYNC), data[schema.HEADER_SIZE :]), _FIRST)
    parts = (data[: schema.HEADER_SIZE] + data[schema.HEADER_SIZE + mark.start() :] for mark in marks)
    return sum(_chained(part, version, 1) for part in parts)


def _chained(data: bytes, version: int, most: int = _FIRST) -> int:
    """Count the valid transactions (at most `most`) that follow each other from the start, if this is the version."""
    if not _is_known(version):
        return 0
    if version >= schema.NEW_FRAME:
        return int(fits(data[schema.HEADER_SIZE :], version))
    at, count, out, ids = schema.HEADER_SIZE, 0, [0, 0, 0], id_bytes(data, version)
    read = read_low_body if version <= LAST_LOWEST_FIRST else read_body
    while count < most and data[at : at + 4] == schema.SYNC and at + 5 < len(data):
        end = read(data, at + 5, len(data), (version, ids), out, 0)
        if end < 0 or CRC32(data[at + 4 : end]) != int.from_bytes(data[end : end + 4], "little"):
            break
        at, count = end + 4, count + 1
    return count
