"""Rebuild damaged fixed headers of blocks whose payload the stored crc proves.

Source: `docs/spec/tarantool-xlog.md#62-resync-after-damage`.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

import msgspec

from binlogtool.formats.layouts import Layout
from binlogtool.formats.repair_rules import Mending
from binlogtool.formats.tarantool.codes import FIXED_SIZE, PLAIN, SYNC, ZSTD
from binlogtool.formats.tarantool.damage.damage import intact_payload

_ZSTD_FRAME = bytes.fromhex("28b52ffd")
_MAPS = frozenset((*range(0x81, 0x90), 0xDE, 0xDF))
"""First bytes of a row: its header is a map."""

_MOST_TRIES = 32
"""Places of one damaged range where a block is looked for."""


def mend(layout: Layout, data: bytes) -> Iterator[Mending]:
    """Yield the blocks of a damaged range with a rebuilt fixed header: length, magic and filler are new, the crc is
    the
    stored one.
    """
    at = 0
    for _ in range(_MOST_TRIES):
        found = intact_payload(memoryview(data)[at:], ends_here=True)
        head = None if found is None else _head(data[at : at + 4], data[at + FIXED_SIZE : at + found.end], found.crc)
        if found is not None and head is not None:
            yield Mending(at, head, at + found.end)
            at += found.end
            continue
        border = re.compile(SYNC).search(data, at + 1)
        if border is None:
            return
        at = border.start()


def _head(magic: bytes, payload: bytes, crc: int) -> bytes | None:
    """Build the fixed header as the server writes it; None if the bytes are no payload."""
    packed = payload.startswith(_ZSTD_FRAME)
    if not packed and payload[:1] not in (bytes([one]) for one in _MAPS):
        return None
    head = (ZSTD if packed else PLAIN).to_bytes(4) + b"".join(map(msgspec.msgpack.encode, (len(payload), 0, crc)))
    left = FIXED_SIZE - len(head)
    return head + bytes([0xA0 + left - 1]) + bytes(left - 1)
