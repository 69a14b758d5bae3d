"""Read a damaged file as the server's own read loop does.

Verification knows every damaged place, and reads more than the server: it proves where blocks start again. The server
stops at most faults. It takes a length that exceeds the file for the end of the log, and with force_recovery it
continues at the next bytes that look like a block's magic. Only these places are simulated here.
Source: `docs/spec/tarantool.md#reading-and-durable-end`.
"""

from __future__ import annotations

import posixpath
import re
from collections.abc import Iterable, Iterator
from typing import NamedTuple

import msgspec

from binlogtool.format_api.layout import RangeReader
from binlogtool.format_api.replay_rules import ExaminedFile
from binlogtool.format_api.schema_fields import MalformedError
from binlogtool.formats.tarantool.codes import (
    END_MARK,
    FIXHEADER_SIZE,
    KEY_TYPES,
    MAGIC_PATTERN,
    MAX_PAYLOAD_SIZE,
    PLAIN_MAGIC,
    UINT32_MASK,
    ZSTD_MAGIC,
    HeaderKey,
)
from binlogtool.formats.tarantool.decode import TarantoolContext
from binlogtool.formats.tarantool.msgpack.parse import MpKind, MpToken, read_token, skip_value_and_count
from binlogtool.formats.tarantool.rows.parse_rows import (
    ROW_COLUMNS,
    ROW_TABLE,
    parse_row,
    read_row_header_and_skip_body,
)
from binlogtool.formats.tarantool.schema import MAX_WINDOW_SIZE
from binlogtool.limits import MIB

# --- Version of the starting server ---

_VERSION = re.compile(r"(\d{1,4})\.(\d{1,4})")


class ServerVersion(NamedTuple):
    """Major and minor number. 2.6 and 3.9 were tested; rules for versions between them are from the release notes."""

    major: int
    minor: int

    @property
    def is_transactional(self) -> bool:
        """True if the server applies whole transactions instead of row by row (2.8.1, gh-874)."""
        return self >= (2, 8)

    @property
    def is_version_3(self) -> bool:
        """True if the rules of 3.x apply."""
        return self.major >= 3


OLDEST_VERSION = ServerVersion(2, 6)
"""Version whose rules apply to all older servers and to files that do not name their server."""


def parse_version(text: str | None) -> ServerVersion | None:
    """Parse "3.9", "2.6.0-0-g47aa4e01e" or "Tarantool 3.9.0"; None if there is no version."""
    match = None if text is None else _VERSION.search(text)
    return None if match is None else ServerVersion(int(match[1]), int(match[2]))


def choose_server_version(requested: str | None, files: Iterable[ExaminedFile]) -> ServerVersion:
    """Choose the version of the server that starts.

    Args:
        requested: version given by the user (`--server-version`); it takes precedence.
        files: files of the directory; without `requested`, the highest version in their headers is used.
    """
    parsed = parse_version(requested)
    if parsed is not None:
        return parsed
    contexts = (file.layout.context for file in files if file.layout is not None)
    versions = (parse_version(one.text.get_value("version")) for one in contexts if isinstance(one, TarantoolContext))
    return max((one for one in versions if one is not None), default=OLDEST_VERSION)


# --- Read loop of the server at damage (`xlog_cursor_next`) ---

_MAGIC = re.compile(MAGIC_PATTERN)
_CHUNK_SIZE = MIB
_MAX_PAYLOAD_READ = 64 * MIB
_BLOCK_DIAGNOSES = frozenset(("crc_mismatch", "bad_magic", "bad_fixheader", "block_past_end_of_file",
"torn_tail", "zero_tail",
                    "data_after_eof"))  # fmt: skip
_PAYLOAD_DIAGNOSES = frozenset(("bad_msgpack", "bad_zstd", "inflate_limit", "empty_block", "row_header_key_unknown"))
_READABLE_DIAGNOSES = frozenset(("bad_msgpack", "row_header_key_unknown"))
MAX_SERVER_MESSAGES = 1000
_DECOMPRESSION_MESSAGE = "Decompression error"
_EMPTY_BLOCK_MESSAGES = {
    False: "Failed to allocate 0 bytes in runtime for xlog rows buffer",
    True: "Can't allocate 0 bytes",
}
"""The server's message about an uncompressed block without rows, by whether it is 3.x."""
_FATAL_MESSAGES = (_DECOMPRESSION_MESSAGE, *_EMPTY_BLOCK_MESSAGES.values())
"""Errors that force_recovery does not tolerate, because the server does not count them as errors of a log."""


class ServerMessage(NamedTuple):
    """Message of the server about a place in a file."""

    offset: int
    text: str


class ServerReadResult(msgspec.Struct, frozen=True):
    """Result of the server's reading of one file.

    Attributes:
        stop: where the server gives up.
        silent_end: offset that it takes for the end of the log without an error.
        messages: errors that it logs and tolerates (force_recovery).
        dropped: offsets of blocks whose rows are lost without an error.
        partly_applied: (offset, rows) of blocks that cannot be unpacked completely; their first rows are applied.
        closed: it sees the end mark.
    """

    stop: ServerMessage | None = None
    silent_end: int | None = None
    messages: tuple[ServerMessage, ...] = ()
    dropped: tuple[int, ...] = ()
    partly_applied: tuple[tuple[int, int], ...] = ()
    closed: bool = True

    @property
    def limit(self) -> int | None:
        """Offset from which no more rows are read, or None."""
        return self.silent_end if self.stop is None else self.stop.offset


class _DamagedPlace(NamedTuple):
    """Damaged place in a file.

    Attributes:
        next_block: offset of the next block that verification found, or None.
        is_framed: the block itself is complete; only its content is wrong.
        is_unpacked: its payload can be unpacked, and verification gives its good rows.
    """

    next_block: int | None
    is_framed: bool
    is_unpacked: bool = False


def simulate_reading(
    file: ExaminedFile, read_range: RangeReader, version: ServerVersion, *, force_recovery: bool
) -> ServerReadResult:
    """Simulate the server's reading of a file with a valid header.

    force_recovery: the server runs with force_recovery.
    """
    places = _collect_damaged_places(file)
    return _ReadSimulation(file, read_range, version, force_recovery).read_over_damaged_places(places)


def _collect_damaged_places(file: ExaminedFile) -> dict[int, _DamagedPlace]:
    """Return the damaged places of a file by offset, including the end of its good part."""
    assert file.layout is not None
    places: dict[int, _DamagedPlace] = {}
    tail = () if file.tail is None else file.tail.findings
    for item in (*file.findings, *tail):
        diagnosis = item.facts.get("diagnosis")
        if item.offset is None or item.offset < file.layout.frames_at:
            continue
        if diagnosis in _PAYLOAD_DIAGNOSES:
            next_block = item.offset + item.length
            places[item.offset] = _DamagedPlace(
                next_block, is_framed=True, is_unpacked=diagnosis in _READABLE_DIAGNOSES
            )
        elif item.id == "damaged-range":
            places[item.offset] = _DamagedPlace(item.facts.get("next_provable"), is_framed=False)
        elif diagnosis in _BLOCK_DIAGNOSES:
            places.setdefault(item.offset, _DamagedPlace(None, is_framed=False))
    if file.tail is not None:
        places.setdefault(file.tail.end, _DamagedPlace(None, is_framed=False))
    return dict(sorted(places.items()))


class _ReadSimulation:
    """Simulation of the server's reading over the damaged places of a file, in order."""

    def __init__(self, file: ExaminedFile, read: RangeReader, version: ServerVersion, force: bool) -> None:
        self._file, self._is_3 = file, version.is_version_3
        self._read = read
        self._force = force
        self._messages: list[ServerMessage] = []
        self._dropped: list[int] = []
        self._partly_applied: list[tuple[int, int]] = []
        self._position = 0

    def read_over_damaged_places(self, places: dict[int, _DamagedPlace]) -> ServerReadResult:
        """Simulate the reading at each damaged place in order, and return the result for the file; places that the
        server has already passed are skipped.
        """
        for offset, place in places.items():
            if offset < self._position:
                continue
            if place.is_framed:
                message: str | None = self._predict_payload_message(offset, place)
            else:
                message = self._predict_block_message(offset)
                if message is None:
                    closed = self._read_bytes(offset, 4) == END_MARK
                    return self._create_result(ends=None if closed else offset, closed=closed)
            if not message:
                self._dropped.append(offset)
                continue
            if not self._force or message in _FATAL_MESSAGES:
                return self._create_result(stop=ServerMessage(offset, message), closed=False)
            self._add_message(offset, message)
            if not place.is_framed and not self._try_resync_to_block(offset, place.next_block):
                return self._create_result(ends=offset, closed=False)
        return self._create_result(closed=self._file.tail is not None and self._file.tail.closed is True)

    def _create_result(
        self, *, stop: ServerMessage | None = None, ends: int | None = None, closed: bool
    ) -> ServerReadResult:
        messages, dropped, partly = tuple(self._messages), tuple(self._dropped), tuple(self._partly_applied)
        return ServerReadResult(stop, ends, messages, dropped, partly, closed)

    def _add_message(self, offset: int, text: str) -> None:
        if len(self._messages) < MAX_SERVER_MESSAGES:
            self._messages.append(ServerMessage(offset, text))

    def _read_bytes(self, offset: int, size: int) -> bytes:
        return bytes(self._read(offset, max(0, min(size, self._file.size - offset))))

    # -- a damaged block -------------------------------------------------------------------------------------------

    def _predict_block_message(self, offset: int) -> str | None:
        """Predict the server's message about bytes that are not a block; None if the server takes them for the end."""
        data, bytes_left = self._read_bytes(offset, FIXHEADER_SIZE), self._file.size - offset
        if bytes_left < 4 or (data[:4] == END_MARK and bytes_left == 4):
            return None
        if data[:4] == END_MARK:
            return f"./{posixpath.basename(self._file.name)}: has some data after eof marker at {offset}"
        if bytes_left < FIXHEADER_SIZE:
            return None
        if not _MAGIC.match(data):
            return f"invalid magic: 0x{int.from_bytes(data[:4], 'little'):x}"
        try:
            length = _read_fixheader_length(data)
        except MalformedError as error:
            return str(error.args[0])
        return None if length > bytes_left - FIXHEADER_SIZE else "tx checksum mismatch"

    def _try_resync_to_block(self, offset: int, next_block: int | None) -> bool:
        """Search for the next magic as the server does, and log its messages on the way; return whether that leads to
        `next_block`, and move the position there if so.

        True if that leads to the next block.

        Verification has proven that there is no block in between; to the server, bytes whose length exceeds the file
        are the end of the log.
        """
        for candidate in self._find_magics(offset + 1):
            if candidate == next_block:
                self._position = candidate
                return True
            message = self._predict_block_message(candidate)
            if message is None:
                return False
            self._add_message(candidate, message)
        return False

    def _find_magics(self, start: int) -> Iterator[int]:
        while start < self._file.size:
            data = self._read_bytes(start, _CHUNK_SIZE + 3)
            if not data:
                return
            position = 0
            while (match := _MAGIC.search(data, position)) is not None and match.start() < _CHUNK_SIZE:
                yield start + match.start()
                position = match.start() + 1
            start += _CHUNK_SIZE

    # -- a complete block with wrong content --------------------------------------------------------------------------

    def _predict_payload_message(self, offset: int, place: _DamagedPlace) -> str:
        """Predict the server's message about the content of a block whose crc is right.

        "" = no message, but rows are missing.
        """
        size = min((place.next_block or offset) - offset, _MAX_PAYLOAD_READ)
        data = self._read_bytes(offset, size)
        rows = (
            _unpack_truncated_zstd(data[FIXHEADER_SIZE:])
            if data[:4] == ZSTD_MAGIC.to_bytes(4, "big")
            else data[FIXHEADER_SIZE:]
        )
        if rows is None:
            return _DECOMPRESSION_MESSAGE
        if len(data) == FIXHEADER_SIZE and data[:4] == PLAIN_MAGIC.to_bytes(4, "big"):
            return _EMPTY_BLOCK_MESSAGES[self._is_3]
        row_count, messages = _count_rows_and_collect_messages(rows, is_version_3=self._is_3)
        if row_count and not place.is_unpacked:
            self._partly_applied.append((offset, row_count))
        for message in messages[:-1] if self._force else ():
            self._add_message(offset, message)
        return (messages[-1] if self._force else messages[0]) if messages else ""


def _count_rows_and_collect_messages(payload: bytes, *, is_version_3: bool) -> tuple[int, list[str]]:
    """Count the rows that the server reads, and collect its messages about rows that it skips.

    Reading ends at bytes that are not framed as a row.
    """
    position = row_count = 0
    messages: list[str] = []
    while position < len(payload):
        try:
            row, position = parse_row(payload, position, len(payload))
            if any(
                is_refused_header_key(key.value, value.kind, is_version_3=is_version_3)
                for key, value in row.header.value
            ):
                return row_count, [*messages, "can't parse row"]
            row_count += 1
        except MalformedError:
            columns = [0] * len(ROW_COLUMNS)
            position = read_row_header_and_skip_body(payload, position, len(payload), ROW_TABLE, columns, 0)
            if position < 0:
                return row_count, [*messages, "can't parse row"]
            if len(messages) < MAX_SERVER_MESSAGES:
                messages.append("Invalid MsgPack - packet body")
    return row_count, messages


def is_refused_header_key(key: int, kind: MpKind, *, is_version_3: bool) -> bool:
    """Return whether the version's type table refuses an unknown key in a row header (`xrow_header_decode`)."""
    if key <= HeaderKey.THREAD_ID and (is_version_3 or kind is not MpKind.NIL):
        return False
    if is_version_3:
        return key < len(KEY_TYPES) and not KEY_TYPES[key] and kind is not MpKind.NIL
    if key < _KEYS_WITH_TYPES_2_6:
        return not KEY_TYPES[key] and kind is not MpKind.UINT
    return key > _LAST_KEY_2_6 or kind is not MpKind.NIL


_KEYS_WITH_TYPES_2_6, _LAST_KEY_2_6 = 0x2C, 0x52
"""In 2.6 keys from the first one on must be nil, and keys above the second one are not allowed."""


def _read_fixheader_length(data: bytes) -> int:
    """Read the length that a block's fixed header states (`xlog_fixheader_decode`).

    Raises:
        MalformedError: with the server's message about the header.
    """
    position, length = 4, 0
    for field in ("length", "crc32p", "crc32c"):
        token = _read_fixheader_field(data, position)
        if token is None or token.kind is not MpKind.UINT:
            raise MalformedError(f"broken fixheader {field}")
        if field == "length":
            length = token.value & UINT32_MASK
            if length > MAX_PAYLOAD_SIZE:
                raise MalformedError("too large fixheader length")
        position = token.end
    if position < FIXHEADER_SIZE and skip_value_and_count(data, position, FIXHEADER_SIZE)[0] != FIXHEADER_SIZE:
        raise MalformedError("broken fixheader padding")
    return length


def _read_fixheader_field(data: bytes, position: int) -> MpToken | None:
    try:
        return read_token(data, position, FIXHEADER_SIZE)
    except MalformedError:
        return None


def _unpack_truncated_zstd(payload: bytes) -> bytes | None:
    """Unpack zstd frames as the server does, even if the last one is truncated; None if a frame is damaged."""
    import zstandard

    reader = zstandard.ZstdDecompressor(max_window_size=MAX_WINDOW_SIZE).stream_reader(payload, read_across_frames=True)
    try:
        return bytes(reader.read(_MAX_PAYLOAD_READ))
    except zstandard.ZstdError:
        return None
