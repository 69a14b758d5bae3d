"""Rebuild damaged fixed headers of blocks whose payload the stored crc proves.

Source: `docs/spec/tarantool.md#resynchronization`.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

import msgspec

from binlogtool.formats.layouts import LogFileLayout
from binlogtool.formats.repair_rules import FrameHeaderFix
from binlogtool.formats.tarantool.codes import FIXHEADER_SIZE, MAGIC_PATTERN, PLAIN_MAGIC, ZSTD_MAGIC
from binlogtool.formats.tarantool.damage.damage import find_intact_payload

_ZSTD_FRAME_MAGIC = bytes.fromhex("28b52ffd")
_MAP_FIRST_BYTES = frozenset((*range(0x81, 0x90), 0xDE, 0xDF))
"""First bytes of a row: its header is a map."""

_MAX_CANDIDATES = 32
"""Places of one damaged range where a block is looked for."""


def rebuild_block_headers(layout: LogFileLayout, data: bytes) -> Iterator[FrameHeaderFix]:
    """Yield the blocks of a damaged range with a rebuilt fixed header: length, magic and filler are new, the crc is
    the
    stored one.
    """
    position = 0
    for _ in range(_MAX_CANDIDATES):
        payload = find_intact_payload(memoryview(data)[position:], ends_here=True)
        header = (
            None
            if payload is None
            else _build_block_header(
                data[position : position + 4], data[position + FIXHEADER_SIZE : position + payload.end], payload.crc
            )
        )
        if payload is not None and header is not None:
            yield FrameHeaderFix(position, header, position + payload.end)
            position += payload.end
            continue
        next_magic = re.compile(MAGIC_PATTERN).search(data, position + 1)
        if next_magic is None:
            return
        position = next_magic.start()


def _build_block_header(magic: bytes, payload: bytes, crc: int) -> bytes | None:
    """Build the fixed header as the server writes it; None if the bytes are no payload."""
    is_compressed = payload.startswith(_ZSTD_FRAME_MAGIC)
    if not is_compressed and payload[:1] not in (bytes([one]) for one in _MAP_FIRST_BYTES):
        return None
    header = (ZSTD_MAGIC if is_compressed else PLAIN_MAGIC).to_bytes(4) + b"".join(
        map(msgspec.msgpack.encode, (len(payload), 0, crc))
    )
    filler_size = FIXHEADER_SIZE - len(header)
    return header + bytes([0xA0 + filler_size - 1]) + bytes(filler_size - 1)
