"""Defects of a binlog directory of versions 2 to 14, made of a healthy one: name -> the files with that defect."""

from __future__ import annotations

import struct
from collections.abc import Callable, Mapping
from functools import partial

from tests.formats.manticore import make

Files = Mapping[str, bytes]
"""File name -> bytes."""
LOG, META = "binlog.001", "binlog.meta"
_HEAD = 8


def transactions(data: bytes) -> list[bytes]:
    """The transactions of a log in which no payload holds the mark."""
    return [b"TXN!" + rest for rest in data[_HEAD:].split(b"TXN!")[1:]]


def log(files: Files, edit: Callable[[bytes], bytes]) -> Files:
    """The log edited as bytes."""
    return {**files, LOG: edit(files[LOG])}


def listed(files: Files, edit: Callable[[list[bytes]], list[bytes]]) -> Files:
    """The log with its list of transactions edited."""
    return log(files, lambda data: data[:_HEAD] + b"".join(edit(transactions(data))))


def meta(files: Files, edit: Callable[[bytes], bytes]) -> Files:
    """The list of logs edited as bytes."""
    return {**files, META: edit(files[META])}


def flipped(at: int, byte: int, txns: list[bytes]) -> list[bytes]:
    """One bit of one transaction flipped."""
    data = bytearray(txns[at])
    data[byte] ^= 4
    return [*txns[:at], bytes(data), *txns[at + 1 :]]


def rewritten(at: int, place: int, value: int, txns: list[bytes]) -> list[bytes]:
    """One byte of the body of one transaction replaced, with a checksum that fits."""
    body = bytearray(txns[at][4:-4])
    body[place] = value
    return [*txns[:at], make.txn(bytes(body)), *txns[at + 1 :]]


def swapped(at: int, txns: list[bytes]) -> list[bytes]:
    """Two neighbours the other way round."""
    return [*txns[:at], txns[at + 1], txns[at], *txns[at + 2 :]]


def inserted(at: int, what: bytes, txns: list[bytes]) -> list[bytes]:
    """Bytes between two transactions."""
    return [*txns[:at], what, *txns[at:]]


def without(at: int, txns: list[bytes]) -> list[bytes]:
    """One transaction left out."""
    return [*txns[:at], *txns[at + 1 :]]


def version(value: int, data: bytes) -> bytes:
    """Another version in the head."""
    return data[:4] + struct.pack("<I", value) + data[8:]


CASES: Mapping[str, Callable[[Files], Files]] = {
    "healthy": lambda files: files,
    "flip-add-index-first": lambda files: listed(files, partial(flipped, 0, 10)),
    "flip-add-index-later": lambda files: listed(files, partial(flipped, 3, 10)),
    "flip-commit": lambda files: listed(files, partial(flipped, 2, 60)),
    "flip-commit-last": lambda files: listed(files, partial(flipped, -1, 60)),
    "flip-checksum": lambda files: listed(files, partial(flipped, 4, -1)),
    "flip-update": lambda files: listed(files, partial(flipped, 6, -6)),
    "flip-pq-add": lambda files: listed(files, partial(flipped, 14, 30)),
    "flip-pq-delete": lambda files: listed(files, partial(flipped, 18, -6)),
    "flip-mark": lambda files: listed(files, partial(flipped, 5, 1)),
    "torn-in-mark": lambda files: log(files, lambda data: data[: -len(transactions(data)[-1]) + 2]),
    "torn-after-mark": lambda files: log(files, lambda data: data[: -len(transactions(data)[-1]) + 4]),
    "torn-middle": lambda files: log(files, lambda data: data[:-40]),
    "torn-last-byte": lambda files: log(files, lambda data: data[:-1]),
    "mark-appended": lambda files: log(files, lambda data: data + b"TXN!"),
    "zeros-appended": lambda files: log(files, lambda data: data + bytes(512)),
    "garbage-appended": lambda files: log(files, lambda data: data + b"\x5a\xa5\x99\x17" * 10),
    "zeros-between": lambda files: listed(files, partial(inserted, 5, bytes(64))),
    "garbage-between": lambda files: listed(files, partial(inserted, 5, b"\x5a\xa5\x99\x17" * 10)),
    "lost-commit": lambda files: listed(files, partial(without, 5)),
    "lost-update": lambda files: listed(files, partial(without, 7)),
    "lost-pq-add": lambda files: listed(files, partial(without, 15)),
    "lost-add-index-first": lambda files: listed(files, partial(without, 0)),
    "lost-add-index-later": lambda files: listed(files, partial(without, 3)),
    "last-twice": lambda files: listed(files, lambda txns: [*txns, txns[-1]]),
    "swapped": lambda files: listed(files, partial(swapped, 6)),
    "swapped-pq": lambda files: listed(files, partial(swapped, 15)),
    "swapped-tables": lambda files: listed(files, partial(swapped, 20)),
    "table-unknown": lambda files: listed(files, partial(rewritten, 8, 1, 9)),
    "operation-unknown": lambda files: listed(files, partial(rewritten, 8, 0, 60)),
    "log-magic": lambda files: log(files, lambda data: b"SPBX" + data[4:]),
    "log-version-6": lambda files: log(files, partial(version, 6)),
    "log-version-8": lambda files: log(files, partial(version, 8)),
    "log-empty": lambda files: log(files, lambda _data: b""),
    "log-short-head": lambda files: log(files, lambda data: data[:6]),
    "log-head-alone": lambda files: log(files, lambda data: data[:8]),
    "log-missing": lambda files: {META: files[META]},
    "log-unlisted": lambda files: {**files, "binlog.002": files[LOG]},
    "meta-magic": lambda files: meta(files, lambda data: b"SPLX" + data[4:]),
    "meta-version-6": lambda files: meta(files, partial(version, 6)),
    "meta-version-8": lambda files: meta(files, partial(version, 8)),
    "meta-empty-list": lambda files: meta(files, lambda data: data[:9] + b"\0"),
    "meta-torn": lambda files: meta(files, lambda data: data[:-1]),
    "meta-missing": lambda files: {LOG: files[LOG]},
}
"""What is done to a directory with one log, whose transactions are those of the sample `v7-mixed`."""
