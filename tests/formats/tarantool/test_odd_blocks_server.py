"""Blocks and rows of unusual form, with right checksums: what the real server reads of them, and what is predicted."""

from __future__ import annotations

import os
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgpack
import pytest
import zstandard

import binlogtool
from tests.formats.tarantool.contents import base, with_blocks
from tests.formats.tarantool.make import block, checksum
from tests.formats.tarantool.server import program, start
from tests.sampling import take_sample

pytestmark = pytest.mark.server

SPACE, FIRST = 512, 101
SKIPPABLE = bytes.fromhex("502a4d18") + (5).to_bytes(4, "little") + b"abcde"
NO_ROWS = "Failed to allocate 0 bytes in runtime for xlog rows buffer"


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A directory that the server wrote."""
    if program() is None and os.environ.get("BINLOGTOOL_SERVER") != "1":
        pytest.skip("no tarantool is installed; BINLOGTOOL_SERVER=1 demands one")
    return base(tmp_path_factory.mktemp("blocks"))


def replace(lsn: int, header: dict[int, Any] | None = None, more: bytes = b"") -> bytes:
    """A REPLACE. header: its more keys; more: one more pair of its body."""
    head = msgpack.packb({0: 3, 2: 1, 3: lsn, 4: 1.5e9, **(header or {})})
    pairs = msgpack.packb({0x10: SPACE, 0x21: [FIRST, "text", 1]})
    return head + (bytes([pairs[0] + bool(more)]) + pairs[1:] + more)


def packed(*payloads: bytes, after: bytes = b"") -> bytes:
    """A zstd block of several frames."""
    frames = b"".join(map(zstandard.ZstdCompressor(level=3).compress, payloads))
    return bytes.fromhex("d5ba0bba") + block(frames + after)[4:]


def long_length(payload: bytes) -> bytes:
    """A block whose length has 64 bits, of which the upper ones are no part of it."""
    length = b"\xcf" + (2**32 + len(payload)).to_bytes(8, "big")
    return bytes.fromhex("d5ba0bab") + length + b"\x00\xce" + checksum(payload).to_bytes(4, "big") + payload


def text_checksum(payload: bytes) -> bytes:
    """A block with a text where the checksum of the block before it is due."""
    head = bytes.fromhex("d5ba0bab") + b"".join(map(msgpack.packb, (len(payload), "ab", checksum(payload))))
    left = 19 - len(head)
    return head + bytes([0xA0 + left - 1]) + bytes(left - 1) + payload


BLOCKS: dict[str, Callable[[int], bytes]] = {
    "sound": lambda lsn: block(replace(lsn)),
    "no type": lambda lsn: block(replace(lsn).replace(b"\x84\x00\x03", b"\x83", 1)),
    "text key": lambda lsn: block(replace(lsn, more=msgpack.packb("tuple") + b"\x01")),
    "boolean key": lambda lsn: block(replace(lsn, more=b"\xc3\x01")),
    "double key 16.0": lambda lsn: block(replace(lsn, more=msgpack.packb(16.0) + b"\x05")),
    "header key of a body": lambda lsn: block(replace(lsn, {0x10: 1})),
    "header key of a body, wrong type": lambda lsn: block(replace(lsn, {0x10: "x"})),
    "unknown header key": lambda lsn: block(replace(lsn, {0x0C: 1})),
    "body key of another request, wrong type": lambda lsn: block(replace(lsn, more=b"\x22\x01")),
    "unknown body key": lambda lsn: block(replace(lsn, more=b"\x70\x01")),
    "no rows, packed": lambda lsn: packed() + block(replace(lsn)),
    "two frames": lambda lsn: packed(replace(lsn)[:20], replace(lsn)[20:]),
    "skippable frame": lambda lsn: packed(replace(lsn), after=SKIPPABLE),
    "length of 64 bits": lambda lsn: long_length(replace(lsn)),
    "text as the checksum before": lambda lsn: text_checksum(replace(lsn)),
    "no rows": lambda lsn: block(b"") + block(replace(lsn)),
    "bytes after the frame": lambda lsn: packed(replace(lsn), after=b"junkjunk"),
    "two bytes after the frame": lambda lsn: packed(replace(lsn), after=b"ju"),
}


@pytest.mark.parametrize("force", [False, True])
@pytest.mark.parametrize("name", take_sample(BLOCKS, 2))
def test_what_is_predicted_is_what_the_server_does(folder: Path, tmp_path: Path, name: str, *, force: bool) -> None:
    data = with_blocks(folder, lambda lsn: BLOCKS[name](lsn) + block(replace(lsn + 1)), tmp_path / "data")
    started = start(data, force_recovery=force)
    (found,) = binlogtool.replay([data], policy="force" if force else "server")
    assert found.starts is started.started
    if started.started:
        assert {one.name: one.keys for one in found.objects}["a"] == started.counts["a"]
    else:
        assert found.stop is not None
        assert found.stop.why in started.reason


@pytest.mark.parametrize("key", [{0x0C: None}, {0x70: 1}])
def test_header_keys_without_a_meaning_stop_the_start(folder: Path, tmp_path: Path, key: dict[int, Any]) -> None:
    """2.6 refuses a key of 10 to 15 that is no number, and one that it does not know; verify warns of each."""
    data = with_blocks(folder, lambda lsn: block(replace(lsn, key)), tmp_path / "data")
    started = start(data, force_recovery=False)
    (found,) = binlogtool.replay([data])
    assert (started.started, found.starts) == (False, False)
    assert found.stop is not None
    assert re.search(re.escape(found.stop.why) + "$", started.reason)
    assert [one.facts["diagnosis"] for one in binlogtool.verify([data]).findings] == ["row_header_key_unknown"]
