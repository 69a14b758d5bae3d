"""Find one flipped bit in the magic or version of a log's head, proven by the transactions after it, or in the magic
of
`binlog.meta`, proven by the list after it.

Source: `docs/spec/manticore.md#binlogmeta`, `#log-file`, `#frame-of-versions-2-to-14`.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from itertools import islice

from binlogtool.findings import Finding, Severity
from binlogtool.formats.checksums import CRC32
from binlogtool.formats.detecting import FileHead
from binlogtool.formats.heads import HeaderFlip, correct_head
from binlogtool.formats.manticore import schema
from binlogtool.formats.manticore.layout import META_NAMES, infer_id_size, read_layout, starts_with_transaction
from binlogtool.formats.manticore.payloads.sphinx4 import LAST_LOW_VERSION, read_low_body
from binlogtool.formats.manticore.payloads.walk import read_body
from binlogtool.limits import Limits

_LOG_MAGIC, _META_MAGIC = b"SPBL", b"SPLI"
_MAX_TRANSACTIONS = 16
"""Transactions that are looked at."""
_PROVEN_BY_TRANSACTIONS = "the transactions behind it prove it"
_PROVEN_BY_LIST = "the list behind it proves it"


def find_header_flips(head: FileHead) -> Iterator[HeaderFlip]:
    """Yield the one bit flip with which more transactions, or the list at all, can be read (`formats.heads`)."""
    data = head.data
    if head.name.rpartition("/")[2] in META_NAMES:
        yield from _find_meta_flips(head)
        return
    stored_count = _count_leading_transactions(data, _read_version(data)) if data.startswith(_LOG_MAGIC) else 0
    if len(data) <= schema.HEADER_SIZE or stored_count >= _get_required_count(data, _read_version(data)):
        return
    places = (
        _find_magic_flip(data, _LOG_MAGIC)
        if data[:4] != _LOG_MAGIC
        else [(byte, bit) for byte in range(4, 8) for bit in range(8)]
    )
    stored_count = _count_valid_transactions(data) if data.startswith(_LOG_MAGIC) else 0
    counts = {place: _count_valid_transactions(_flip_bit(data, *place)) for place in places}
    best_count = max(counts.values(), default=0)
    best_places = [place for place, count in counts.items() if count == best_count]
    if best_count > stored_count and len(best_places) == 1:
        yield _create_flip(head, *best_places[0], _PROVEN_BY_TRANSACTIONS)


def _find_meta_flips(head: FileHead) -> Iterator[HeaderFlip]:
    for place in _find_magic_flip(head.data, _META_MAGIC):
        flip = _create_flip(head, *place, _PROVEN_BY_LIST)
        if not read_layout(correct_head(head, flip), Limits()).findings:
            yield flip


def _find_magic_flip(data: bytes, magic: bytes) -> list[tuple[int, int]]:
    """Return the one bit that is wrong in a magic, as a list of (byte, bit); [] if it is not exactly one."""
    differences = [(byte, data[byte] ^ magic[byte]) for byte in range(min(4, len(data))) if data[byte] != magic[byte]]
    return (
        [(differences[0][0], differences[0][1].bit_length() - 1)]
        if len(differences) == 1 and differences[0][1].bit_count() == 1
        else []
    )


def _create_flip(head: FileHead, byte: int, bit: int, proof: str) -> HeaderFlip:
    """Create the flip, with what the findings say about the stored head."""
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


def _get_required_count(data: bytes, version: int) -> int:
    """Return how many valid transactions prove the version: one where the frame stores its length."""
    return 1 if version >= schema.NEW_FRAME_VERSION else _MAX_TRANSACTIONS


def _count_valid_transactions(data: bytes) -> int:
    """Count the valid ones of the first transactions, also after invalid ones, if the version is as the head says.

    A record of another version at the front, copied there from another log, says nothing about those that follow.
    """
    version = _read_version(data)
    if not _is_known_version(version):
        return 0
    marks = islice(re.finditer(re.escape(schema.TXN_PATTERN), data[schema.HEADER_SIZE :]), _MAX_TRANSACTIONS)
    parts = (data[: schema.HEADER_SIZE] + data[schema.HEADER_SIZE + mark.start() :] for mark in marks)
    return sum(_count_leading_transactions(part, version, 1) for part in parts)


def _count_leading_transactions(data: bytes, version: int, max_count: int = _MAX_TRANSACTIONS) -> int:
    """Count the valid transactions (at most `max_count`) that follow each other from the start, if this is the
    version.
    """
    if not _is_known_version(version):
        return 0
    if version >= schema.NEW_FRAME_VERSION:
        return int(starts_with_transaction(data[schema.HEADER_SIZE :], version))
    position, count, out, id_size = schema.HEADER_SIZE, 0, [0, 0, 0], infer_id_size(data, version)
    read = read_low_body if version <= LAST_LOW_VERSION else read_body
    while count < max_count and data[position : position + 4] == schema.TXN_PATTERN and position + 5 < len(data):
        end = read(data, position + 5, len(data), (version, id_size), out, 0)
        if end < 0 or CRC32(data[position + 4 : end]) != int.from_bytes(data[end : end + 4], "little"):
            break
        position, count = end + 4, count + 1
    return count
