"""Walk the ring of the redo log: mini-transactions from a checkpoint to the last durable one.

See docs/spec/mariadb_innodb_binlog.md#ring. The log sequence number (LSN) counts bytes of the log since the server was
set up; the file holds the newest `capacity` of them. There is no length or block besides the records themselves: the
end of the log is the first position without a valid mini-transaction of the right round.
"""

from __future__ import annotations

import enum
from collections.abc import Callable, Iterator
from typing import NamedTuple

import msgspec

from binlogtool.formats.checksums import CRC32C
from binlogtool.formats.mariadb_innodb_binlog.redo.codes import CRC_SIZE, MTR_SIZE_MAX, NONCE_SIZE, START_OFFSET
from binlogtool.formats.mariadb_innodb_binlog.redo.records import RedoRecord, decode_redo_records, find_records_end

Read = Callable[[int, int], bytes]
"""`read(offset, size)`: the bytes `[offset, offset + size)` of a file, fewer at its end."""

MAX_MTR_BYTES = MTR_SIZE_MAX + 1 + NONCE_SIZE + CRC_SIZE
"""No mini-transaction takes more bytes."""

_WINDOW_BYTES = 4 * MTR_SIZE_MAX
"""Bytes of the log in memory."""


class RedoRing(msgspec.Struct, frozen=True):
    """Maps LSNs to offsets in the file.

    Attributes:
        first_lsn: the LSN at START_OFFSET in round 0.
        size: of the file, > START_OFFSET.
    """

    read: Read
    first_lsn: int
    size: int

    @property
    def capacity(self) -> int:
        """Bytes of one round."""
        return self.size - START_OFFSET

    def offset_of_lsn(self, lsn: int) -> int:
        """Return the offset of an LSN in the file."""
        return START_OFFSET + (lsn - self.first_lsn) % self.capacity

    def sequence_bit(self, lsn: int) -> int:
        """Return the end byte of a mini-transaction whose end byte is at `lsn`."""
        return 1 - (lsn - self.first_lsn) // self.capacity % 2

    def read_at_lsn(self, lsn: int, size: int) -> bytes:
        """Read at most one round from `lsn` on, across the end of the file; fewer bytes if it cannot be read."""
        size = min(size, self.capacity)
        offset = self.offset_of_lsn(lsn)
        head = self.read(offset, min(size, self.size - offset))
        if len(head) == size or len(head) < self.size - offset:
            return head
        return head + self.read(START_OFFSET, size - len(head))


class RedoEndReason(enum.StrEnum):
    """Why the walk ended. All but the last three are normal ends of a sound log."""

    EMPTY = "no record stands there"
    OLD_ROUND = "the sequence bit is that of an older round"
    CHECKSUM = "the CRC-32C is wrong"
    LENGTH = "a record has no possible length"
    TOO_LONG = "the records do not end within 1 MiB"
    ROUND = "the mini-transaction would reach into the bytes that the walk began with"
    SHORT = "the file cannot be read any further"


class Mtr(NamedTuple):
    """One valid mini-transaction.

    Attributes:
        body: its records, without the end byte and what follows it.
    """

    start_lsn: int
    end_lsn: int
    body: bytes

    def decode_records(self) -> Iterator[RedoRecord]:
        """Decode its records (not for an encrypted log)."""
        return decode_redo_records(self.body, self.start_lsn)


class RedoLogEnd(msgspec.Struct, frozen=True):
    """Where the walk ended.

    Attributes:
        lsn: the last durable LSN.
        mtrs: number of valid mini-transactions before it.
        next_valid: LSN of a valid mini-transaction directly after one that was rejected for its CRC (damage inside
            the
            log rather than its end); None = there is none.
        wraps: the rejected mini-transaction continues at the start of the ring, as far as its lengths can be trusted;
            in a truncated file, that is not where it was.
    """

    lsn: int
    reason: RedoEndReason
    mtrs: int
    next_valid: int | None = None
    wraps: bool = False


class MtrWalk:
    """One pass over the mini-transactions from an LSN on; at most one round.

    Attributes:
        end: set when the pass is over.
    """

    def __init__(self, ring: RedoRing, lsn: int, encrypted: bool) -> None:
        self.end: RedoLogEnd | None = None
        self._ring = ring
        self._lsn = lsn
        self._limit = lsn + ring.capacity
        self._nonce = NONCE_SIZE if encrypted else 0
        self._window = b""
        self._base = lsn

    def __iter__(self) -> Iterator[Mtr]:
        lsn = self._lsn
        count = 0
        while isinstance(result := self._read_mtr(lsn), Mtr):
            count += 1
            yield result
            lsn = result.end_lsn
        reason, rejected_end = result
        next_valid = (
            rejected_end if reason is RedoEndReason.CHECKSUM and isinstance(self._read_mtr(rejected_end), Mtr) else None
        )
        self.end = RedoLogEnd(
            lsn, reason, count, next_valid, reason is not RedoEndReason.EMPTY and self._reaches_file_end(lsn)
        )

    def run_to_end(self) -> RedoLogEnd:
        """Walk to the end; returns it."""
        for _ in self:
            pass
        assert self.end is not None
        return self.end

    def _read_mtr(self, lsn: int) -> Mtr | tuple[RedoEndReason, int]:
        """Return the mini-transaction at `lsn`, or why there is none and where it would have ended."""
        window_at = lsn - self._base
        _, end = find_records_end(self._window, window_at, len(self._window))
        if end < 0 or end + 1 + self._nonce + CRC_SIZE > len(self._window):
            self._refill_window(lsn)
            window_at = lsn - self._base
            _, end = find_records_end(self._window, window_at, len(self._window))
        if end < 0 or end + 1 + self._nonce + CRC_SIZE > len(self._window):
            return self._reason_without_end(window_at, end), lsn
        return self._check_mtr(lsn, window_at, end)

    def _check_mtr(self, lsn: int, window_at: int, end: int) -> Mtr | tuple[RedoEndReason, int]:
        window, stored_at = self._window, end + 1 + self._nonce
        end_lsn = self._base + stored_at + CRC_SIZE
        if window[end] != self._ring.sequence_bit(self._base + end):
            return RedoEndReason.OLD_ROUND, end_lsn
        body = window[window_at:end]
        stored = int.from_bytes(window[stored_at : stored_at + CRC_SIZE], "big")
        if CRC32C(body + window[end + 1 : stored_at] if self._nonce else body) != stored:
            return RedoEndReason.CHECKSUM, end_lsn
        return Mtr(lsn, end_lsn, body)

    def _reason_without_end(self, window_at: int, end: int) -> RedoEndReason:
        """Return why no end byte was found from `window_at` on, in a window of maximum size."""
        bytes_left = len(self._window) - window_at
        if bytes_left and self._window[window_at] <= 1:
            return RedoEndReason.EMPTY
        if end == -2:
            return RedoEndReason.LENGTH if bytes_left < MAX_MTR_BYTES else RedoEndReason.TOO_LONG
        expected = min(MAX_MTR_BYTES, self._limit - self._base - window_at)
        return RedoEndReason.SHORT if bytes_left < expected else RedoEndReason.ROUND

    def _reaches_file_end(self, lsn: int) -> bool:
        """Check if the mini-transaction at `lsn` reaches the end of the file before it ends."""
        bytes_left = self._ring.size - self._ring.offset_of_lsn(lsn)
        if bytes_left > MAX_MTR_BYTES:
            return False
        data = self._ring.read_at_lsn(lsn, bytes_left)
        _, end = find_records_end(data, 0, len(data))
        return end == -1 or end + 1 + self._nonce + CRC_SIZE > bytes_left

    def _refill_window(self, lsn: int) -> None:
        bytes_left = self._base + len(self._window) - lsn
        window_size = min(_WINDOW_BYTES, self._limit - lsn)
        if bytes_left < window_size:
            self._window = self._ring.read_at_lsn(lsn, window_size)
            self._base = lsn
