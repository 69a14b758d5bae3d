"""Field differences of two logs: runs of parts, and the matching fields of two pieces with their differing bytes."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from difflib import SequenceMatcher

import msgspec

from binlogtool.log.compare import DiffPart, EqualRange
from binlogtool.schema.annotation import AnnotatedPiece, FieldRow

_ROOT = re.compile(r"^(?:(?:damaged|torn_tail)\.)?\w+\[\d+\]\.?")
"""What the path of a field begins with: where its frame stands."""
_MAX_RANGES = 256
"""Stretches of differing bytes in one field that are told apart; more are one."""

Ranges = tuple[tuple[int, int], ...]


class FieldDiff(msgspec.Struct, frozen=True):
    """A field of A and the matching field of B; None = this side has none. ranges: byte ranges in both that differ."""

    a: FieldRow | None
    b: FieldRow | None
    same: bool = False
    ranges: Ranges = ()


def match_fields(a: AnnotatedPiece, b: AnnotatedPiece) -> list[FieldDiff]:
    """Match the leaves of both pieces by name, in file order."""
    left_rows, right_rows = [row for row in a.rows if row.leaf], [row for row in b.rows if row.leaf]
    diffs: list[FieldDiff] = []
    names = SequenceMatcher(
        None, [path_in_record(row) for row in left_rows], [path_in_record(row) for row in right_rows], autojunk=False
    )
    for kind, i, j, k, m in names.get_opcodes():
        if kind == "equal":
            diffs += (
                _compare_field(left, a, right, b) for left, right in zip(left_rows[i:j], right_rows[k:m], strict=True)
            )
        else:
            diffs += (FieldDiff(row, None) for row in left_rows[i:j])
            diffs += (FieldDiff(None, row) for row in right_rows[k:m])
    return diffs


def path_in_record(row: FieldRow) -> str:
    """Return the path of a field inside of its record."""
    return _ROOT.sub("", row.path)


def _compare_field(left: FieldRow, a: AnnotatedPiece, right: FieldRow, b: AnnotatedPiece) -> FieldDiff:
    left_bytes, right_bytes = row_bytes(left, a), row_bytes(right, b)
    is_complete = len(left_bytes) == left.end - left.start and len(right_bytes) == right.end - right.start
    is_equal = left_bytes == right_bytes and left.end - left.start == right.end - right.start
    if left.bits or right.bits or not is_complete:
        is_equal = is_equal and left.value == right.value if not left.bits else left.value == right.value
    if is_equal and left.ok == right.ok:
        return FieldDiff(left, right, same=True)
    return FieldDiff(
        left,
        right,
        ranges=tuple(_find_differing_ranges(left_bytes, right_bytes)) if len(left_bytes) == len(right_bytes) else (),
    )


def row_bytes(row: FieldRow, piece: AnnotatedPiece) -> bytes:
    """Return the bytes of a row, as far as the piece has them."""
    for space in piece.spaces:
        if space.name == row.space and space.base <= row.start <= space.base + len(space.data):
            return space.slice_bytes(row.start, row.end)
    return b""


def _find_differing_ranges(left_bytes: Sequence[int], right_bytes: Sequence[int]) -> Iterator[tuple[int, int]]:
    """Yield the ranges of bytes that differ."""
    differing = [i for i, (left, right) in enumerate(zip(left_bytes, right_bytes, strict=True)) if left != right]
    ranges: list[tuple[int, int]] = []
    for i in differing:
        if ranges and (ranges[-1][1] == i or len(ranges) == _MAX_RANGES):
            ranges[-1] = (ranges[-1][0], i + 1)
        else:
            ranges.append((i, i + 1))
    return iter(ranges)


def join_equal_ranges(parts: Iterable[DiffPart]) -> list[EqualRange]:
    """Join equal ranges that follow each other in both logs."""
    merged: list[EqualRange] = []
    for part in parts:
        assert isinstance(part, EqualRange)
        last = merged[-1] if merged else None
        if last is not None and (last.end, last.end - last.start + last.other_start) == (part.start, part.other_start):
            merged[-1] = EqualRange(last.start, part.end, last.other_start, last.record_count + part.record_count)
        else:
            merged.append(part)
    return merged


def diff_sign(part: DiffPart) -> str:
    """Return the sign of a part: `=`, `~`, `-` or `+`."""
    if isinstance(part, EqualRange):
        return "="
    return "-" if part.b is None else "+" if part.a is None else "~"
