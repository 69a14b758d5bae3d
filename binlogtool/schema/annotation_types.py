"""Annotated bytes as values (JSON shape binlogtool/annotate/1), and the kernel that writes their hexdump lines."""

from __future__ import annotations

from typing import Any, NamedTuple

import msgspec

from binlogtool.findings import Finding
from binlogtool.format_api.schema_fields import Int64s, MutableUInt8s, UInt8s, kernel

# --- Annotated bytes as values (JSON shape binlogtool/annotate/1) ---


class FieldRow(NamedTuple):
    """One field of annotated bytes; `[start, end)` are bytes of the file, or of the decompressed space named by
    `space`.

    Attributes:
        path: Path such as "block[0].header.crc32c".
        meaning: Text such as "UPDATE" or "ok (crc32c of 0x74..0x9c)", or "".
        unit: "file" or "decompressed".
        space: Path of the field whose decompressed bytes the row refers to; "" for the file.
        bits: Half-open bit range, counted from the most significant bit of the byte at `start`; None = whole bytes.
        depth: Nesting level, 0 = top.
        leaf: True if it has no children; the leaves of a space tile it.
        ok: False marks damage.
    """

    path: str
    start: int
    end: int
    value: Any
    meaning: str = ""
    unit: str = "file"
    space: str = ""
    bits: tuple[int, int] | None = None
    depth: int = 0
    leaf: bool = True
    ok: bool = True


class HexInt(int):
    """Number that is shown in base 16, such as a checksum or a magic."""

    def __repr__(self) -> str:
        width = 16 if self >> 32 else 8
        return f"0x{int(self):0{width}x}"


class AddressSpace(msgspec.Struct, frozen=True):
    """Bytes that rows refer to: a range of the file (name "") or a decompressed payload.

    Attributes:
        base: Address of the first byte of `data`.
    """

    name: str
    base: int
    data: bytes

    def slice_bytes(self, start: int, end: int) -> bytes:
        """Return the bytes at the addresses `[start, end)`, as far as this space contains them."""
        return self.data[max(start - self.base, 0) : max(end - self.base, 0)]


class AnnotatedPiece(msgspec.Struct, frozen=True):
    """Rows that cover `[start, end)` of the file: one header, frame, damaged range, or gap.

    A piece without rows has only findings.
    """

    start: int
    end: int
    rows: list[FieldRow]
    spaces: tuple[AddressSpace, ...]
    findings: tuple[Finding, ...] = ()
    damaged: bool = False


class Annotation(msgspec.Struct, frozen=True):
    """Rows and findings that `hexdump-annotate` shows for one file.

    Attributes:
        size: Size of the file in bytes.
        rows: Rows in file order.
        spaces: The selected ranges of the file (name "") and the decompressed payloads that rows refer to.
    """

    file: str
    format: str
    size: int
    rows: tuple[FieldRow, ...]
    spaces: tuple[AddressSpace, ...]
    findings: tuple[Finding, ...] = ()

    def as_pieces(self) -> tuple[AnnotatedPiece, ...]:
        """Return the annotation as a single piece."""
        return (AnnotatedPiece(0, self.size, list(self.rows), self.spaces, self.findings),)


# --- Kernel for the lines of a hexdump ---

LINE_BYTES_SLOT, LINE_SIZE_SLOT, MARK_SLOT, ASCII_SLOT, FIRST_HEX_SLOT = 0, 1, 2, 3, 4
"""Slots of `layout`: bytes per line, characters per line, columns of the error mark and of the ASCII text; from the
last slot on, the column of the hex digits of each byte."""
OFFSET_DIGITS = 8
"""Number of hexadecimal digits of the offset at the start of a line."""


@kernel()
def hex_digit(value: int) -> int:
    """Return the character code of a hexadecimal digit."""
    return value + 48 if value < 10 else value + 87


@kernel(hex_digit)
def write_hexdump_lines(
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
    """Write the lines of `count` fields of the bytes `buf`, which begin at offset `base`; return the size of the text.

    Args:
        starts, ends: Offsets of the fields.
        marks: 33 ("!") for a field with an error, else a blank.
        layout: See the slots above.
        blank: A line without bytes and label.
        texts: The labels, each with a line feed at its end.
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
