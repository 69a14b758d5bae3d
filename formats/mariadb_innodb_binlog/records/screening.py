"""Select the records of a batch that need individual checks: all but sound nodes and fillers, which can be very
many.
"""

from __future__ import annotations

from array import array
from collections.abc import Callable

from binlogtool.formats.fields import kernel
from binlogtool.formats.kernel_types import Int64s, MutableInt64s, UInt8s
from binlogtool.formats.layouts import Batch, Kernel
from binlogtool.formats.mariadb_innodb_binlog.records.integers import read_compr_int


@kernel(read_compr_int)
def is_sound_node(buf: UInt8s, p: int, n: int, number: int, place: int) -> bool:
    """Check the OOB_DATA record `buf[pos:limit]`: sound header, and links that lead to earlier positions.

    Args:
        file_number: of the record's file.
        offset: file offset of the record.
    """
    file_no = 0
    for k in range(5):
        value, after = read_compr_int(buf, p, n)
        if after < 0:
            return False
        size = after - p
        if size == 9 and value >= 0 and value < 9007199254740992:
            return False
        if size > 1 and size < 9 and value < 1 << 8 * size - 11:
            return False
        if k == 1 or k == 3:
            file_no = value
            if file_no < 0 or file_no > number:
                return False
        if (k == 2 or k == 4) and (value < 0 or (file_no == number and value >= place)):
            return False
        p = after
    return p < n


@kernel()
def is_filler(buf: UInt8s, p: int, n: int) -> bool:
    """Check that all bytes are ff."""
    while p < n and buf[p] == 255:
        p += 1
    return p == n


@kernel(is_sound_node, is_filler)
def screen(
    buf: UInt8s, count: int, codes: Int64s, lows: Int64s, highs: Int64s, places: Int64s, number: int, out: MutableInt64s
) -> int:
    """Write the indexes of the records that need individual checks; returns their number."""
    found = 0
    for i in range(count):
        if codes[i] == 3:
            sound = is_sound_node(buf, lows[i], highs[i], number, places[i])
        elif codes[i] == 4:
            sound = is_filler(buf, lows[i], highs[i])
        else:
            sound = False
        if not sound:
            out[found] = i
            found += 1
    return found


class Screen:
    """Runs `select_unsound_records` over batches."""

    def __init__(self, compile_: Callable[[Kernel], Kernel]) -> None:
        self._run = compile_(screen)
        self._out = array("q")

    def __call__(self, batch: Batch, number: int) -> list[int]:
        """List the records of a batch that need individual checks, in order.

        Args:
            file_number: of the batch's file.
        """
        count = batch.frames.count
        if len(self._out) < count:
            self._out = array("q", bytes(8 * count))
        columns = [batch.frames[name] for name in ("type_code", "offset", "end", "place")]
        found = int(self._run(batch.window, count, *columns, min(number, (1 << 62)), self._out))
        return self._out[:found].tolist()
