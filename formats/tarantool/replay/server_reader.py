"""Simulate the server's read loop at the damaged places of a file (`xlog_cursor_next`).

Verification knows every damaged place, and reads more than the server does: it proves where blocks start again. The
server takes a length that runs past the end of the file for the end of the log, stops at any other fault, and with
force_recovery continues at the next bytes that look like a block's magic. Only these places are simulated here.
Source: `docs/spec/tarantool-xlog.md#6-how-the-server-reads-and-what-durable-end-means`.
"""

from __future__ import annotations

import posixpath
import re
from collections.abc import Iterator
from typing import NamedTuple

import msgspec

from binlogtool.formats.fields import MalformedError
from binlogtool.formats.layouts import Read
from binlogtool.formats.replay_rules import Examined
from binlogtool.formats.tarantool.codes import (
    END_MARK,
    FIXED_SIZE,
    KEY_TYPES,
    MAX_LENGTH,
    PLAIN,
    SYNC,
    U32,
    ZSTD,
    HeaderKey,
)
from binlogtool.formats.tarantool.layout.compression import MAX_WINDOW
from binlogtool.formats.tarantool.msgpack.kernels import skip_value
from binlogtool.formats.tarantool.msgpack.messages import Kind, Token, read_token
from binlogtool.formats.tarantool.replay.server_version import ServerVersion
from binlogtool.formats.tarantool.rows.rows import COLUMNS, TABLE, parse_row, read_framed
from binlogtool.limits import MIB

_MAGIC = re.compile(SYNC)
_PIECE = MIB
_MAX_PAYLOAD = 64 * MIB
_FRAME = frozenset(("crc_mismatch", "bad_magic", "bad_fixheader", "block_past_end_of_file", "torn_tail", "zero_tail",
                    "data_after_eof"))  # fmt: skip
_PAYLOAD = frozenset(("bad_msgpack", "bad_zstd", "inflate_limit", "empty_block", "row_header_key_unknown"))
_READABLE = frozenset(("bad_msgpack", "row_header_key_unknown"))
MAX_COMPLAINTS = 1000
_UNDECODABLE = "Decompression error"
_NO_MEMORY = {False: "Failed to allocate 0 bytes in runtime for xlog rows buffer", True: "Can't allocate 0 bytes"}
"""What servers say about a plain block without rows; True: of 3.x."""
_FATAL = (_UNDECODABLE, *_NO_MEMORY.values())
"""No errors of a log for the server: force_recovery does not pass over them."""


class Complaint(NamedTuple):
    """Message of the server about a place in a file."""

    offset: int
    text: str


class Course(msgspec.Struct, frozen=True):
    """Result of the server's reading of one file.

    Attributes:
        stop: where it gives up.
        silent_end: offset that it takes for the end of the log without an error.
        messages: errors that it logs and tolerates (force_recovery).
        dropped: offsets of blocks whose rows are lost without an error.
        partly_applied: (offset, rows) of blocks that cannot be unpacked completely, of which it applies the first
            rows.
        closed: it sees the end mark.
    """

    stop: Complaint | None = None
    ends: int | None = None
    complaints: tuple[Complaint, ...] = ()
    dropped: tuple[int, ...] = ()
    partly: tuple[tuple[int, int], ...] = ()
    closed: bool = True

    @property
    def limit(self) -> int | None:
        """Offset from which on no row is read, or None."""
        return self.ends if self.stop is None else self.stop.offset


class _Spot(NamedTuple):
    """A damaged place.

    Attributes:
        next_block: offset of the next block that verification found, or None.
        is_framed: the block itself is whole; only its content is wrong.
        is_unpacked: its payload can be unpacked; verification gives its good rows.
    """

    landing: int | None
    payload: bool
    unpacked: bool = False


def course(file: Examined, read: Read, version: ServerVersion, *, force: bool) -> Course:
    """Simulate the server's reading of a file with a valid header.

    Args:
        force: the server runs with force_recovery.
    """
    spots = _spots(file)
    return _Walk(file, read, version, force).through(spots)


def _spots(file: Examined) -> dict[int, _Spot]:
    """Collect the damaged places of a file by offset, and the end of its good part."""
    assert file.layout is not None
    spots: dict[int, _Spot] = {}
    tail = () if file.tail is None else file.tail.findings
    for found in (*file.findings, *tail):
        diagnosis = found.facts.get("diagnosis")
        if found.offset is None or found.offset < file.layout.frames_at:
            continue
        if diagnosis in _PAYLOAD:
            landing = found.offset + found.length
            spots[found.offset] = _Spot(landing, payload=True, unpacked=diagnosis in _READABLE)
        elif found.id == "damaged-range":
            spots[found.offset] = _Spot(found.facts.get("next_provable"), payload=False)
        elif diagnosis in _FRAME:
            spots.setdefault(found.offset, _Spot(None, payload=False))
    if file.tail is not None:
        spots.setdefault(file.tail.end, _Spot(None, payload=False))
    return dict(sorted(spots.items()))


class _Walk:
    """Simulation of the server over the damaged places of a file, in order."""

    def __init__(self, file: Examined, read: Read, version: ServerVersion, force: bool) -> None:
        self._file, self._is_3 = file, version.is_3
        self._read = read
        self._force = force
        self._complaints: list[Complaint] = []
        self._dropped: list[int] = []
        self._partly: list[tuple[int, int]] = []
        self._at = 0

    def through(self, spots: dict[int, _Spot]) -> Course:
        """Simulate place by place; skip places before the one that the server has reached."""
        for offset, spot in spots.items():
            if offset < self._at:
                continue
            if spot.payload:
                fault: str | None = self._payload_fault(offset, spot)
            else:
                fault = self._fault(offset)
                if fault is None:
                    closed = self._bytes(offset, 4) == END_MARK
                    return self._course(ends=None if closed else offset, closed=closed)
            if not fault:
                self._dropped.append(offset)
                continue
            if not self._force or fault in _FATAL:
                return self._course(stop=Complaint(offset, fault), closed=False)
            self._complain(offset, fault)
            if not spot.payload and not self._resynced(offset, spot.landing):
                return self._course(ends=offset, closed=False)
        return self._course(closed=self._file.tail is not None and self._file.tail.closed is True)

    def _course(self, *, stop: Complaint | None = None, ends: int | None = None, closed: bool) -> Course:
        said, dropped, partly = tuple(self._complaints), tuple(self._dropped), tuple(self._partly)
        return Course(stop, ends, said, dropped, partly, closed)

    def _complain(self, offset: int, text: str) -> None:
        if len(self._complaints) < MAX_COMPLAINTS:
            self._complaints.append(Complaint(offset, text))

    def _bytes(self, offset: int, size: int) -> bytes:
        return bytes(self._read(offset, max(0, min(size, self._file.size - offset))))

    # -- a damaged block -------------------------------------------------------------------------------------------

    def _fault(self, offset: int) -> str | None:
        """Predict the server's message about bytes where verification saw no block; None if it takes them for the
        end.
        """
        data, left = self._bytes(offset, FIXED_SIZE), self._file.size - offset
        if left < 4 or (data[:4] == END_MARK and left == 4):
            return None
        if data[:4] == END_MARK:
            return f"./{posixpath.basename(self._file.name)}: has some data after eof marker at {offset}"
        if left < FIXED_SIZE:
            return None
        if not _MAGIC.match(data):
            return f"invalid magic: 0x{int.from_bytes(data[:4], 'little'):x}"
        try:
            length = _fixed_header(data)
        except MalformedError as error:
            return str(error.args[0])
        return None if length > left - FIXED_SIZE else "tx checksum mismatch"

    def _resynced(self, offset: int, landing: int | None) -> bool:
        """Search for a magic from one byte further on (`xlog_cursor_find_tx_magic`); True if that leads to the next
        block.

        Between here and there verification has proven that nothing is a block; bytes whose length runs past the end
        of
        the file are the end for the server.
        """
        for candidate in self._magics(offset + 1):
            if candidate == landing:
                self._at = candidate
                return True
            fault = self._fault(candidate)
            if fault is None:
                return False
            self._complain(candidate, fault)
        return False

    def _magics(self, start: int) -> Iterator[int]:
        while start < self._file.size:
            data = self._bytes(start, _PIECE + 3)
            if not data:
                return
            at = 0
            while (found := _MAGIC.search(data, at)) is not None and found.start() < _PIECE:
                yield start + found.start()
                at = found.start() + 1
            start += _PIECE

    # -- a whole block with wrong content --------------------------------------------------------------------------

    def _payload_fault(self, offset: int, spot: _Spot) -> str:
        """Predict the server's message about the content of a block whose crc is right; "" = none, but rows are
        missing.
        """
        size = min((spot.landing or offset) - offset, _MAX_PAYLOAD)
        data = self._bytes(offset, size)
        rows = _unpacked(data[FIXED_SIZE:]) if data[:4] == ZSTD.to_bytes(4, "big") else data[FIXED_SIZE:]
        if rows is None:
            return _UNDECODABLE
        if len(data) == FIXED_SIZE and data[:4] == PLAIN.to_bytes(4, "big"):
            return _NO_MEMORY[self._is_3]
        whole, faults = _rows_of(rows, is_3=self._is_3)
        if whole and not spot.unpacked:
            self._partly.append((offset, whole))
        for fault in faults[:-1] if self._force else ():
            self._complain(offset, fault)
        return (faults[-1] if self._force else faults[0]) if faults else ""


def _rows_of(rows: bytes, *, is_3: bool) -> tuple[int, list[str]]:
    """Count the rows that the server reads, and collect its messages about rows that it skips.

    Reading ends where no row is framed.
    """
    at = whole = 0
    faults: list[str] = []
    while at < len(rows):
        try:
            row, at = parse_row(rows, at, len(rows))
            if any(is_refused_header_key(key.value, value.kind, is_3=is_3) for key, value in row.header.value):
                return whole, [*faults, "can't parse row"]
            whole += 1
        except MalformedError:
            columns = [0] * len(COLUMNS)
            at = read_framed(rows, at, len(rows), TABLE, columns, 0)
            if at < 0:
                return whole, [*faults, "can't parse row"]
            if len(faults) < MAX_COMPLAINTS:
                faults.append("Invalid MsgPack - packet body")
    return whole, faults


def is_refused_header_key(key: int, kind: Kind, *, is_3: bool) -> bool:
    """Check for an unknown key in a row's header that the version refuses by its table of types
    (`xrow_header_decode`).
    """
    if key <= HeaderKey.THREAD_ID and (is_3 or kind is not Kind.NIL):
        return False
    if is_3:
        return key < len(KEY_TYPES) and not KEY_TYPES[key] and kind is not Kind.NIL
    if key < _KEYS_WITH_TYPES_2_6:
        return not KEY_TYPES[key] and kind is not Kind.UINT
    return key > _LAST_KEY_2_6 or kind is not Kind.NIL


_KEYS_WITH_TYPES_2_6, _LAST_KEY_2_6 = 0x2C, 0x52
"""Keys from the first on must be nil in 2.6, those after the second must not be there."""


def _fixed_header(data: bytes) -> int:
    """Read the length that a block's fixed header states (`xlog_fixheader_decode`).

    Raises:
        MalformedError: with the server's message about the header.
    """
    at, length = 4, 0
    for field in ("length", "crc32p", "crc32c"):
        token = _field(data, at)
        if token is None or token.kind is not Kind.UINT:
            raise MalformedError(f"broken fixheader {field}")
        if field == "length":
            length = token.value & U32
            if length > MAX_LENGTH:
                raise MalformedError("too large fixheader length")
        at = token.end
    if at < FIXED_SIZE and skip_value(data, at, FIXED_SIZE)[0] != FIXED_SIZE:
        raise MalformedError("broken fixheader padding")
    return length


def _field(data: bytes, at: int) -> Token | None:
    try:
        return read_token(data, at, FIXED_SIZE)
    except MalformedError:
        return None


def _unpacked(payload: bytes) -> bytes | None:
    """Unpack zstd frames as the server does, also where the last one is cut short; None if one is damaged."""
    import zstandard

    reader = zstandard.ZstdDecompressor(max_window_size=MAX_WINDOW).stream_reader(payload, read_across_frames=True)
    try:
        return bytes(reader.read(_MAX_PAYLOAD))
    except zstandard.ZstdError:
        return None
