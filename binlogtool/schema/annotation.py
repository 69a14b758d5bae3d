"""Annotated bytes as values (JSON shape binlogtool/annotate/1)."""

from __future__ import annotations

from typing import Any, NamedTuple

import msgspec

from binlogtool.findings import Finding


class FieldRow(NamedTuple):
    """One field. `[start, end)` are absolute: bytes of the file, or of the unpacked space named by `space`.

    path: "block[0].header.crc32c". depth: nesting level, 0 = top. leaf: has no children of its own; the leaves of a
    space tile it. meaning: words ("UPDATE", "ok (crc32c of 0x74..0x9c)"), or "". unit: "file" or "decompressed".
    space: path of the field whose unpacked bytes these are ("" for the file). bits: half-open bit range counted from
    the most significant bit of the byte at `start`, or None. ok: False marks damage.
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
    """A number that people read in base 16: a checksum, a magic."""

    def __repr__(self) -> str:
        width = 16 if self >> 32 else 8
        return f"0x{int(self):0{width}x}"


class Space(msgspec.Struct, frozen=True):
    """Bytes that rows point into: the asked range of the file (name "") or an unpacked payload."""

    name: str
    base: int
    data: bytes

    def cut(self, start: int, end: int) -> bytes:
        """The bytes `[start, end)` as far as this space holds them (absolute positions)."""
        return self.data[max(start - self.base, 0) : max(end - self.base, 0)]


class Piece(msgspec.Struct, frozen=True):
    """Rows that cover `[start, end)` of the file: one header, frame, damaged range, or gap.

    No rows: what was found there is all that is told.
    """

    start: int
    end: int
    rows: list[FieldRow]
    spaces: tuple[Space, ...]
    findings: tuple[Finding, ...] = ()
    damaged: bool = False


class Annotation(msgspec.Struct, frozen=True):
    """What `hexdump-annotate` shows of one file: `rows` in file order, the bytes they point into, and the findings.

    size: of the file, in bytes. spaces: the asked ranges of the file (name "") and the unpacked payloads.
    """

    file: str
    format: str
    size: int
    rows: tuple[FieldRow, ...]
    spaces: tuple[Space, ...]
    findings: tuple[Finding, ...] = ()

    def as_pieces(self) -> tuple[Piece, ...]:
        """The same as one piece."""
        return (Piece(0, self.size, list(self.rows), self.spaces, self.findings),)
