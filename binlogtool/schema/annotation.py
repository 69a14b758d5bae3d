"""Annotated bytes as values (JSON shape binlogtool/annotate/1)."""

from __future__ import annotations

from typing import Any, NamedTuple

import msgspec

from binlogtool.findings import Finding


class FieldRow(NamedTuple):
    """One field of annotated bytes; `[start, end)` are bytes of the file, or of the decompressed space named by
    `space`.

    Attributes:
        path: Such as "block[0].header.crc32c".
        meaning: Words such as "UPDATE" or "ok (crc32c of 0x74..0x9c)", or "".
        unit: "file" or "decompressed".
        space: Path of the field whose decompressed bytes these are; "" for the file.
        bits: Half-open bit range, counted from the most significant bit of the byte at `start`; None = whole bytes.
        depth: Nesting level, 0 = top.
        leaf: It has no children; the leaves of a space tile it.
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
    """A number that is shown in base 16, such as a checksum or a magic."""

    def __repr__(self) -> str:
        width = 16 if self >> 32 else 8
        return f"0x{int(self):0{width}x}"


class AddressSpace(msgspec.Struct, frozen=True):
    """Bytes that rows point into: a range of the file (name "") or a decompressed payload.

    Attributes:
        base: Address of the first byte of `data`.
    """

    name: str
    base: int
    data: bytes

    def slice_bytes(self, start: int, end: int) -> bytes:
        """Return the bytes of the addresses `[start, end)`, as far as this space holds them."""
        return self.data[max(start - self.base, 0) : max(end - self.base, 0)]


class AnnotatedPiece(msgspec.Struct, frozen=True):
    """Rows that cover `[start, end)` of the file: one header, frame, damaged range, or gap.

    Without rows only the findings are known.
    """

    start: int
    end: int
    rows: list[FieldRow]
    spaces: tuple[AddressSpace, ...]
    findings: tuple[Finding, ...] = ()
    damaged: bool = False


class Annotation(msgspec.Struct, frozen=True):
    """What `hexdump-annotate` shows of one file.

    Attributes:
        size: Size of the file in bytes.
        rows: In file order.
        spaces: The selected ranges of the file (name "") and the decompressed payloads that rows point into.
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
