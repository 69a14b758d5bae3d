"""A format made for tests of the search: `FR`, a length, a checksum, the content; and searches in such bytes."""

from __future__ import annotations

import zlib
from typing import Any

from construct import Bytes, Check, Const, Int8ul, Int16ul, Int32ul, Struct, Tell, this

from binlogtool.core.open_file import BytesSource, Source, Window
from binlogtool.core.resync import Resynchronizer
from binlogtool.format_api.layout import CRC32, FrameLevel, LogFileLayout
from binlogtool.format_api.schema_fields import CrcCheck
from binlogtool.schema import backends

CHECKED = Struct(
    "magic" / Const(b"FR"),
    "size" / Int8ul,
    "stored" / Int32ul,
    "data_start" / Tell,
    "data" / Bytes(this.size),
    "data_end" / Tell,
    "checksum" / CrcCheck(CRC32, stored=this.stored, start=this.data_start, end=this.data_end),
)
PLAIN = Struct("magic" / Const(b"FR"), "size" / Int8ul, Check(this.size > 0), "data" / Bytes(this.size))
SIZED = Struct(
    "whole" / Int16ul,
    "magic" / Const(b"FR"),
    "stored" / Int32ul,
    Check(this.whole >= 8),
    "data_start" / Tell,
    "data" / Bytes(this.whole - 8),
    "data_end" / Tell,
    "checksum" / CrcCheck(CRC32, stored=this.stored, start=this.data_start, end=this.data_end),
)
MARK = b"END."


def level(schema: Any = CHECKED, **more: Any) -> FrameLevel:
    return FrameLevel(schema=schema, columns=("size",), sync=b"FR", min_size=4, max_size=262, **more)


def proved() -> FrameLevel:
    """Without a checksum: a frame is one if its content ends with an exclamation mark."""
    return level(PLAIN, prove=lambda frame, _: frame.endswith(b"!"), end_mark=MARK)


def frame(data: bytes) -> bytes:
    return b"FR" + bytes([len(data)]) + zlib.crc32(data).to_bytes(4, "little") + data


def plain(data: bytes) -> bytes:
    return b"FR" + bytes([len(data)]) + data


def made(
    data: bytes, frames: FrameLevel | None = None, chunk: int = 4096, frames_at: int = 0, longest: int = 262
) -> Resynchronizer:
    """A search in these bytes, of which the first `chunk` are in memory."""
    return searching(window_of(BytesSource("made", data), chunk), frames, frames_at, longest)


def window_of(source: Source, chunk: int, base: int = 0) -> Window:
    """A window with the first `chunk` bytes from `base` on."""
    window = Window(source, chunk)
    window.load_range(base, base + 1)
    return window


def searching(
    window: Window, frames: FrameLevel | None = None, frames_at: int = 0, longest: int = 262
) -> Resynchronizer:
    """A search in this window."""
    return Resynchronizer(
        LogFileLayout("made", frames_at, frames or level()), backends.choose_backend("python"), window, longest
    )


def sized(data: bytes) -> bytes:
    return (len(data) + 8).to_bytes(2, "little") + b"FR" + zlib.crc32(data).to_bytes(4, "little") + data
