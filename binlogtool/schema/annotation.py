"""Annotated bytes as values (JSON shape binlogtool/annotate/1)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NamedTuple


class FieldRow(NamedTuple):
    """One field. `[start, end)` are absolute: bytes of the file, or of the unpacked space named by `space`.

    path: "block[0].header.crc32c". depth: nesting level, 0 = top. leaf: has no children of its own. meaning: words ("4 = UPDATE", "ok"), or "".
    unit: "file" or "decompressed". space: path of the field whose unpacked bytes these are ("" for the file).
    bits: half-open bit range inside the byte, most significant first, or None. ok: False marks damage.
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


@dataclass(frozen=True, slots=True)
class Space:
    """Bytes that rows point into: the asked range of the file (name "") or an unpacked payload."""

    name: str
    base: int
    data: bytes
