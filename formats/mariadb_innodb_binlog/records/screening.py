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
def is_sound_node(buf: UInt8s, pos: int, limit: int, file_number: int, offset: int) -> bool:
    """Check the OOB_DATA record `buf[pos:limit]`: sound header, and links that lead to earlier positions.

    Args:
        file_number: of the record's file.
        offset: file offset of the record.
    """
    file_no = 0
    for field in range(5):
        value, field_end = read_compr_int(buf, pos, limit)
        if field_end < 0:
            return False
        size = field_end - pos
        if size == 9 and value >= 0 and value < 9007199254740992:
            return False
        if size > 1 and size < 9 and value < 1 << 8 * size - 11:
            return False
        if field == 1 or field == 3:
            file_no = value
            if file_no < 0 or file_no > file_number:
                return False
        if (field == 2 or field == 4) and (value < 0 or (file_no == file_number and value >= offset)):
            return False
        pos = field_end
    return pos < limit


@kernel()
def is_filler(buf: UInt8s, pos: int, limit: int) -> bool:
    """Check that all bytes are ff."""
    while pos < limit and buf[pos] == 255:
        pos += 1
    return pos == limit


@kernel(is_sound_node, is_filler)
def select_unsound_records(
    buf: UInt8s,
    count: int,
    codes: Int64s,
    lows: Int64s,
    highs: Int64s,
    places: Int64s,
    file_number: int,
    out: MutableInt64s,
) -> int:
    """Write the indexes of the records that need individual checks; returns their number."""
    selected = 0
    for i in range(count):
        if codes[i] == 3:
            sound = is_sound_node(buf, lows[i], highs[i], file_number, places[i])
        elif codes[i] == 4:
            sound = is_filler(buf, lows[i], highs[i])
        else:
            sound = False
        if not sound:
            out[selected] = i
            selected += 1
    return selected


class RecordScreener:
    """Runs `select_unsound_records` over batches."""

    def __init__(self, compile_kernel: Callable[[Kernel], Kernel]) -> None:
        self._run = compile_kernel(select_unsound_records)
        self._out = array("q")

    def __call__(self, batch: Batch, file_number: int) -> list[int]:
        """List the records of a batch that need individual checks, in order.

        Args:
            file_number: of the batch's file.
        """
        count = batch.frames.count
        if len(self._out) < count:
            self._out = array("q", bytes(8 * count))
        columns = [batch.frames[name] for name in ("type_code", "offset", "end", "place")]
        selected = int(self._run(batch.window, count, *columns, min(file_number, (1 << 62)), self._out))
        return self._out[:selected].tolist()
