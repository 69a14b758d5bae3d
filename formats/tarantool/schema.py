"""Schemas of journal files: text header, blocks, compressed payloads. .xlog, .snap, .vylog, .run and .index share them.

The server writes one zstd frame per block, and reads any number of them (`xlog_cursor_decompress`). It stops at the end
of the input and does not notice a truncated frame. Here the blocks of each frame are walked first (RFC 8878, section
3.1.1), so a truncated frame, or other bytes after a frame, are errors.

Source: Tarantool `src/box/xlog.c`, `src/box/xrow.c`, `src/box/iproto_constants.h`, `src/box/vy_log.c`,
`src/box/vy_run.c`; `docs/spec/tarantool.md`.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import cache
from typing import Any, NamedTuple
from uuid import UUID

from construct import Bytes, Check, Construct, Container, If, Int32ub, Struct, Switch, Tell, this

from binlogtool.format_api.layout import CRC32C_RAW
from binlogtool.format_api.schema_fields import (
    CompressedSchema,
    CrcCheck,
    DecompressionError,
    Magic,
    MalformedError,
    NestedSchema,
    TracePart,
)
from binlogtool.formats.tarantool.codes import FIXHEADER_SIZE, MAX_PAYLOAD_SIZE, PLAIN_MAGIC, ZSTD_MAGIC
from binlogtool.formats.tarantool.msgpack.parse import MpFiller, MpUint32, get_buffer_and_position
from binlogtool.formats.tarantool.rows.parse_rows import RowConstruct, RowsConstruct
from binlogtool.limits import Limits

# --- Blocks compressed with zstd ---

FRAME_MAGIC = b"\x28\xb5\x2f\xfd"
MAX_WINDOW_SIZE = 1 << 27
MAX_BLOCK_SIZE = 128 * 1024
_SKIPPABLE_MAGIC = b"\x2a\x4d\x18"
"""Last three bytes of the magic of a skippable zstd frame; the first byte is 0x50 to 0x5f."""
_CHUNK_SIZE = 1 << 20
_RAW_BLOCK, _RLE_BLOCK, _COMPRESSED_BLOCK = 0, 1, 2
_DICTIONARY_SIZES = (0, 1, 2, 4)


def unpack_zstd(payload: memoryview, limits: Limits) -> bytes | bytearray:
    """Unpack whole zstd frames.

    Raises:
        DecompressionError: compression-error (not a frame, truncated, damaged, other bytes after it) or inflate-limit.
    """
    size_bound = compute_max_unpacked_size(payload)
    decompressor = _get_decompressor()
    try:
        if size_bound <= limits.max_inflate:
            unpacked: bytes = decompressor.decompressobj(read_across_frames=True).decompress(payload)
            return unpacked
        return _unpack_in_two_passes(decompressor, payload, limits.max_inflate)
    except _get_zstd_error() as error:
        raise DecompressionError("compression-error", f"zstd: {error}") from None


def _unpack_in_two_passes(decompressor: Any, payload: memoryview, max_unpacked_bytes: int) -> bytearray:
    """Unpack in two passes: the first only counts, so that a frame over the limit uses no memory and a large one is not
    copied.
    """
    size = 0
    with (
        decompressor.stream_reader(payload, read_across_frames=True) as reader,
        memoryview(bytearray(_CHUNK_SIZE)) as chunk,
    ):
        while count := reader.readinto(chunk):
            size += count
            if size > max_unpacked_bytes:
                raise DecompressionError("inflate-limit", f"unpacks to more than {max_unpacked_bytes:,} bytes")
    out = bytearray(size)
    with decompressor.stream_reader(payload, read_across_frames=True) as reader, memoryview(out) as rest:
        done = 0
        while done < size and (count := reader.readinto(rest[done : done + _CHUNK_SIZE])):
            done += count
    return out


def compute_max_unpacked_size(payload: memoryview) -> int:
    """Compute an upper bound of the unpacked size, and prove that the payload consists of whole frames.

    Raises:
        DecompressionError: compression-error.
    """
    total, position = 0, 0
    while position < len(payload):
        if _is_skippable(payload, position):
            position += 8 + int.from_bytes(payload[position + 4 : position + 8], "little")
        else:
            size, position = _find_zstd_frame_size_and_end(payload, position)
            total += size
        if position > len(payload):
            missing = position - len(payload)
            raise DecompressionError("compression-error", f"the zstd frame is cut short: {missing} bytes are missing")
    return total


def _is_skippable(payload: memoryview, start: int) -> bool:
    head = bytes(payload[start : start + 8])
    return len(head) == 8 and head[1:4] == _SKIPPABLE_MAGIC and head[0] >> 4 == 5


def _find_zstd_frame_size_and_end(payload: memoryview, start: int) -> tuple[int, int]:
    """Return an upper bound of the unpacked size of one frame, and where the frame ends."""
    if bytes(payload[start : start + 4]) != FRAME_MAGIC:
        text = f"{len(payload) - start} bytes after the zstd frame"
        raise DecompressionError(
            "compression-error", text if start else "no zstd frame: the magic 28 b5 2f fd is missing"
        )
    position, checksum = _find_first_block_and_checksum_size(payload, start)
    total = 0
    last = False
    while not last:
        if position + 3 > len(payload):
            raise DecompressionError("compression-error", f"the zstd frame is cut short after {position} bytes")
        header = int.from_bytes(payload[position : position + 3], "little")
        last, kind, size = bool(header & 1), header >> 1 & 3, header >> 3
        if kind > _COMPRESSED_BLOCK or size > MAX_BLOCK_SIZE:
            text = f"zstd block header 0x{header:06x} at payload offset {position} is wrong"
            raise DecompressionError("compression-error", text)
        position += 3 + (1 if kind == _RLE_BLOCK else size)
        total += MAX_BLOCK_SIZE if kind == _COMPRESSED_BLOCK else size
    return total, position + checksum


def _find_first_block_and_checksum_size(payload: memoryview, start: int) -> tuple[int, int]:
    """Return the position of the first block and the size of the content checksum."""
    if len(payload) < start + 5:
        raise DecompressionError("compression-error", "the zstd frame is cut short in its header")
    flags = payload[start + 4]
    single = flags >> 5 & 1
    content_size = (single, 2, 4, 8)[flags >> 6]
    return start + 5 + (1 - single) + _DICTIONARY_SIZES[flags & 3] + content_size, 4 * (flags >> 2 & 1)


@cache
def _get_decompressor() -> Any:
    import zstandard

    return zstandard.ZstdDecompressor(max_window_size=MAX_WINDOW_SIZE)


def _get_zstd_error() -> type[Exception]:
    import zstandard

    error: type[Exception] = zstandard.ZstdError
    return error


# --- The text header ---

HEADER_SEARCH_SIZE = 1024 + 834
"""Number of bytes that the server reads before it looks for the end of the header."""

KNOWN_KEYS = {
    "Version": "version",
    "Instance": "instance",
    "Server": "instance",
    "VClock": "vclock",
    "PrevVClock": "prev_vclock",
}
MAX_COMPONENT = 31
MAX_LSN = 2**63 - 1

_PAIR = r"[ \t]*(\d{1,10})[ \t]*:[ \t]*(\d{1,20})[ \t]*"
_VCLOCK = re.compile(rf"[ \t]*\{{[ \t]*(?:{_PAIR}(?:,{_PAIR})*)?\}}")
UUID_LENGTH = 36
_UUID_WIDTHS = (8, 4, 4, 2, 2, 2, 2, 2, 2, 2, 2)
_DASH_BEFORE = frozenset({1, 2, 3, 5})
"""Digits of each number of a UUID, and the indexes of the numbers that follow a dash."""
_HEX_NUMBER = re.compile(r"[+-]?(?:0[xX])?[0-9a-fA-F]+")


class HeaderLine(NamedTuple):
    """One line of a header.

    Attributes:
        start, end: range of its bytes, line feed included.
        key: as written; None for the first two lines, and for a line without a colon.
        value: the text after the colon, or the whole line where there is no key.
        name: the field name of a known key, else `unknown[n]` or `line[n]`.
    """

    start: int
    end: int
    key: str | None
    value: str
    name: str


class HeaderText(NamedTuple):
    """Lines of a header; `end` is the offset after the empty line, None if there is no empty line."""

    lines: list[HeaderLine]
    end: int | None

    def get_value(self, name: str) -> str | None:
        """Return the last value of a known key, or None."""
        return next((line.value for line in reversed(self.lines) if line.name == name), None)

    def get_line(self, name: str) -> HeaderLine | None:
        """Return the last line of a known key, or None."""
        return next((line for line in reversed(self.lines) if line.name == name), None)


def parse_header_lines(data: bytes) -> HeaderText:
    """Split the header at the start of `data` into lines; never fails."""
    blank_line = data.find(b"\n\n", 0, HEADER_SEARCH_SIZE)
    end = blank_line + 2 if blank_line >= 0 else None
    text = data[: blank_line + 1] if end else data[:HEADER_SEARCH_SIZE]
    lines: list[HeaderLine] = []
    start = 0
    while start < len(text):
        feed = text.find(b"\n", start)
        stop = len(text) if feed < 0 else feed + 1
        lines.append(_parse_line(text[start : stop - (feed >= 0)], start, stop, len(lines)))
        start = stop
    return HeaderText(lines, end)


def _parse_line(raw: bytes, start: int, end: int, number: int) -> HeaderLine:
    line_text = raw.decode("utf-8", "backslashreplace")
    if number < 2:
        return HeaderLine(start, end, None, line_text, ("type", "format")[number])
    key, colon, value = line_text.partition(":")
    if not colon:
        return HeaderLine(start, end, None, line_text, f"line[{number}]")
    return HeaderLine(start, end, key, value.lstrip(" \t"), KNOWN_KEYS.get(key, f"unknown[{number}]"))


def parse_vclock(text: str) -> dict[int, int]:
    """Parse the text of a vclock to a dict of replica id -> LSN.

    Raises:
        ValueError: wrong syntax, an id over 31, a number over 2^63-1, or an id that occurs twice.
    """
    if not _VCLOCK.fullmatch(text):
        raise ValueError(f"{text!r} is not a vclock such as {{1: 5, 2: 7}}")
    result: dict[int, int] = {}
    for id_text, lsn_text in re.findall(r"(\d+)[ \t]*:[ \t]*(\d+)", text):
        replica, lsn = int(id_text), int(lsn_text)
        if replica > MAX_COMPONENT or lsn > MAX_LSN:
            raise ValueError(f"component {replica}: {lsn} of a vclock is out of range")
        if result.get(replica, 0) > 0:
            raise ValueError(f"component {replica} occurs twice in a vclock")
        result[replica] = lsn
    return result


def parse_uuid(text: str) -> str | None:
    """Parse a UUID as the server does: upper and lower case, other text after a digit of the last number.

    Source: `tt_uuid_from_string` (sscanf with hexadecimal numbers of a maximum width).

    Returns:
        The UUID in lower case; None if the server cannot parse it.
    """
    if len(text) != UUID_LENGTH:
        return None
    numbers, at = [], 0
    for place, width in enumerate(_UUID_WIDTHS):
        if place in _DASH_BEFORE:
            if text[at : at + 1] != "-":
                return None
            at += 1
        at += len(text) - at - len(text[at:].lstrip(" \t\v\f\r\n"))
        match = _HEX_NUMBER.match(text, at, at + width)
        if match is None:
            return None
        numbers.append(int(match[0], 16) % 16**width)
        at = match.end()
    if numbers[3] >= 0xE0:  # no known variant
        return None
    digits = "".join(f"{number:0{width}x}" for number, width in zip(numbers, _UUID_WIDTHS, strict=True))
    return str(UUID(digits))


def format_vclock(vclock: dict[int, int]) -> str:
    """Format a vclock as the server writes it: ids in ascending order, absent ids omitted."""
    return "{" + ", ".join(f"{replica}: {lsn}" for replica, lsn in sorted(vclock.items())) + "}"


class TextHeader(Construct):  # type: ignore[misc]
    """Construct type of the whole header, including the empty line; the parsed value keeps the raw bytes."""

    def _parse(self, stream: Any, context: Any, path: str) -> Container:
        data, start, end, base = get_buffer_and_position(stream)
        raw = bytes(data[start : min(end, start + HEADER_SEARCH_SIZE)])
        text = parse_header_lines(raw)
        if text.end is None:
            raise MalformedError("no empty line ends the header", path, "bad-header")
        stream.seek(base + start + text.end)
        result = Container({line.name: line.value for line in text.lines})
        result["raw"] = raw[: text.end]
        return result

    def _build(self, obj: Any, stream: Any, context: Any, path: str) -> Any:
        stream.write(obj["raw"])
        return obj

    def trace_rows(self, data: bytes, start: int, end: int, limits: Limits) -> Iterator[TracePart]:
        """Yield one part per line, and one for the empty line."""
        text = parse_header_lines(data[start:end])
        for line in text.lines:
            meaning = "unknown key" if line.name.startswith("unknown") else ""
            yield TracePart(f".{line.name}", 1, start + line.start, start + line.end, line.value, line.key or meaning)
        if text.end is None:
            raise MalformedError("no empty line ends the header", finding_id="bad-header")
        yield TracePart(".end", 1, start + text.end - 1, start + text.end, "", "the empty line")


# --- Tarantool journal files on disk ---

HEADER = Struct("header" / TextHeader())

ROW = RowConstruct()

PAYLOAD = Struct("rows" / RowsConstruct())

BLOCK = Struct(
    "start" / Tell,
    "magic" / Magic(Int32ub, plain=PLAIN_MAGIC, zstd=ZSTD_MAGIC),
    "header"
    / Struct(
        "length" / MpUint32(),
        "crc32p" / MpUint32(),
        "crc32c" / MpUint32(),
        "end" / Tell,
        "padding" / If(this.end < this._.start + FIXHEADER_SIZE, MpFiller()),
    ),
    "payload_start" / Tell,
    Check(this.payload_start == this.start + FIXHEADER_SIZE),
    Check(this.header.length <= MAX_PAYLOAD_SIZE),
    "payload"
    / NestedSchema(
        Bytes(this.header.length),
        Switch(this.magic, {PLAIN_MAGIC: PAYLOAD, ZSTD_MAGIC: CompressedSchema(PAYLOAD, unpack_zstd, "zstd")}),
    ),
    "payload_end" / Tell,
    "checksum" / CrcCheck(CRC32C_RAW, this.header.crc32c, this.payload_start, this.payload_end),
)
