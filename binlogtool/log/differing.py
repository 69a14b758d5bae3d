"""Field differences of two logs: runs of parts, and the matching fields of two pieces with their differing bytes."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from difflib import SequenceMatcher

import msgspec

from binlogtool.log.compare import Part, Same
from binlogtool.schema.annotation import FieldRow, Piece

_ROOT = re.compile(r"^(?:(?:damaged|torn_tail)\.)?\w+\[\d+\]\.?")
"""What the path of a field begins with: where its frame stands."""
_MOST = 256
"""Stretches of differing bytes in one field that are told apart; more are one."""

Ranges = tuple[tuple[int, int], ...]


class Field(msgspec.Struct, frozen=True):
    """A field of A and the matching field of B; None = this side has none. ranges: byte ranges in both that differ."""

    a: FieldRow | None
    b: FieldRow | None
    same: bool = False
    ranges: Ranges = ()


def fields(a: Piece, b: Piece) -> list[Field]:
    """Match the leaves of both pieces by name, in file order."""
    one, two = [row for row in a.rows if row.leaf], [row for row in b.rows if row.leaf]
    found: list[Field] = []
    names = SequenceMatcher(None, [bare_path(row) for row in one], [bare_path(row) for row in two], autojunk=False)
    for kind, i, j, k, m in names.get_opcodes():
        if kind == "equal":
            found += (_field(left, a, right, b) for left, right in zip(one[i:j], two[k:m], strict=True))
        else:
            found += (Field(row, None) for row in one[i:j])
            found += (Field(None, row) for row in two[k:m])
    return found


def bare_path(row: FieldRow) -> str:
    """Return the path of a field inside of its record."""
    return _ROOT.sub("", row.path)


def _field(left: FieldRow, a: Piece, right: FieldRow, b: Piece) -> Field:
    here, there = held(left, a), held(right, b)
    whole = len(here) == left.end - left.start and len(there) == right.end - right.start
    alike = here == there and left.end - left.start == right.end - right.start
    if left.bits or right.bits or not whole:
        alike = alike and left.value == right.value if not left.bits else left.value == right.value
    if alike and left.ok == right.ok:
        return Field(left, right, same=True)
    return Field(left, right, ranges=tuple(_ranges(here, there)) if len(here) == len(there) else ())


def held(row: FieldRow, piece: Piece) -> bytes:
    """Return the bytes of a row, as far as the piece has them."""
    for space in piece.spaces:
        if space.name == row.space and space.base <= row.start <= space.base + len(space.data):
            return space.cut(row.start, row.end)
    return b""


def _ranges(here: Sequence[int], there: Sequence[int]) -> Iterator[tuple[int, int]]:
    """Yield the ranges of bytes that differ."""
    other = [i for i, (left, right) in enumerate(zip(here, there, strict=True)) if left != right]
    found: list[tuple[int, int]] = []
    for i in other:
        if found and (found[-1][1] == i or len(found) == _MOST):
            found[-1] = (found[-1][0], i + 1)
        else:
            found.append((i, i + 1))
    return iter(found)


def joined(some: Iterable[Part]) -> list[Same]:
    """Join equal ranges that follow each other in both logs."""
    found: list[Same] = []
    for part in some:
        assert isinstance(part, Same)
        last = found[-1] if found else None
        if last is not None and (last.end, last.end - last.start + last.other) == (part.start, part.other):
            found[-1] = Same(last.start, part.end, last.other, last.records + part.records)
        else:
            found.append(part)
    return found


def kind_of(part: Part) -> str:
    """Return the sign of a part: `=`, `~`, `-` or `+`."""
    if isinstance(part, Same):
        return "="
    return "-" if part.b is None else "+" if part.a is None else "~"
