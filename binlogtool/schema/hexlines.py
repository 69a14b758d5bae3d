"""Write the lines of a hexdump, as a kernel: offset, hex and ASCII of short fields, each with its label."""

from __future__ import annotations

from binlogtool.formats.fields import kernel
from binlogtool.formats.kernel_types import Int64s, MutableUInt8s, UInt8s

LINE_BYTES_SLOT, LINE_SIZE_SLOT, MARK_SLOT, ASCII_SLOT, FIRST_HEX_SLOT = 0, 1, 2, 3, 4
"""Places in `layout`: bytes in a line; bytes of a blank one; where in it the mark of what is wrong and the ASCII stand,
and the hex of each byte."""
OFFSET_DIGITS = 8
"""Digits of an offset, at the start of a line."""


@kernel()
def hex_digit(value: int) -> int:
    """Return the character code of a hexadecimal digit."""
    return value + 48 if value < 10 else value + 87


@kernel(hex_digit)
def put_hexdump_lines(
    buf: UInt8s,
    base: int,
    count: int,
    starts: Int64s,
    ends: Int64s,
    marks: Int64s,
    layout: Int64s,
    blank: Int64s,
    texts: UInt8s,
    out: MutableUInt8s,
) -> int:
    """Write the lines of `count` fields of the bytes `buf`, which begin at offset `base`; return the size of the
    text.

    Args:
        starts, ends: Offsets of the fields.
        marks: 33 ("!") for a field with an error, else a blank.
        layout: See the slots above.
        blank: A line without bytes and label.
        texts: The labels, each ended by a line feed.
    """
    width = layout[0]
    size = layout[1]
    o = 0
    label = 0
    for i in range(count):
        p = starts[i]
        end = ends[i]
        while p < end:
            column = p % width
            place = p - column
            stop = min(place + width, end)
            for k in range(size):
                out[o + k] = blank[k]
            for k in range(8):
                out[o + 7 - k] = hex_digit(place >> 4 * k & 15)
            out[o + layout[2]] = marks[i]
            at = o + layout[3]
            while p < stop:
                byte = buf[p - base] + 0
                h = o + layout[4 + column]
                out[h] = hex_digit(byte >> 4)
                out[h + 1] = hex_digit(byte & 15)
                out[at + column] = byte if byte >= 32 and byte < 127 else 46
                column += 1
                p += 1
            o += size
            if texts[label] != 10:
                out[o] = 32
                o += 1
                while texts[label] != 10:
                    out[o] = texts[label]
                    o += 1
                    label += 1
            out[o] = 10
            o += 1
        label += 1
    return o
