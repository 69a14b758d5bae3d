"""`hexdump-annotate --diff OTHER -O json` (binlogtool/diff/1)."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import groupby
from typing import Any

from binlogtool.log.compare import DiffPart, DiffSide, LogComparison, UnitDiff
from binlogtool.log.differing import FieldDiff, diff_sign, join_equal_ranges, match_fields
from binlogtool.report.annotate import encode_member, fields_to_json
from binlogtool.report.json import encode_document
from binlogtool.schema.annotation import AnnotatedPiece, FieldRow

_PARTS = b'"parts": []'
_KINDS = {"~": "changed", "-": "only-a", "+": "only-b"}


class DiffJsonWriter:
    """Writes the document incrementally, as the parts arrive.

    Args:
        whole: Also the fields of what only one side has.
    """

    def __init__(self, compared: LogComparison, *, whole: bool) -> None:
        self._comparison, self._whole = compared, whole
        self.difference_count = 0
        """Places that differ."""

    def encode_parts(self, parts: Iterable[DiffPart]) -> Iterator[bytes]:
        """Yield the whole document."""
        separator = encode_document(self._make_envelope()).partition(_PARTS)[0] + _PARTS[:-1]
        for part in self._iter_members(parts):
            yield separator + b"\n    " + encode_member(part)
            separator = b","
        document_end = encode_document(self._make_envelope()).partition(_PARTS)[2]
        yield b"\n  ]" + document_end if separator == b"," else separator + b"]" + document_end

    def _make_envelope(self) -> dict[str, Any]:
        a, b = self._comparison.a, self._comparison.b
        return {
            "schema": "binlogtool/diff/1",
            "a": {"file": a.path, "size": a.size},
            "b": {"file": b.path, "size": b.size},
            "format": a.format.name,
            "parts": [],
            "differences": self.difference_count,
        }

    def _iter_members(self, parts: Iterable[DiffPart]) -> Iterator[dict[str, Any]]:
        for kind, group in groupby(parts, diff_sign):
            if kind == "=":
                for one in join_equal_ranges(group):
                    other_range = {"start": one.other_start, "end": one.other_start + one.end - one.start}
                    yield {
                        "kind": "same",
                        "a": {"start": one.start, "end": one.end},
                        "b": other_range,
                        "records": one.record_count,
                    }
            else:
                for part in group:
                    assert isinstance(part, UnitDiff)
                    self.difference_count += 1
                    yield {
                        "kind": _KINDS[kind],
                        "a": _side_to_json(part.a),
                        "b": _side_to_json(part.b),
                        **self._fields_member(part),
                    }

    def _fields_member(self, part: UnitDiff) -> dict[str, Any]:
        if part.a is not None and part.b is not None:
            return _changed_fields_to_json(part.a.piece(), part.b.piece())
        side = part.a or part.b
        return {"fields": list(fields_to_json(side.piece().rows))} if self._whole and side is not None else {}


def _side_to_json(side: DiffSide | None) -> dict[str, Any] | None:
    """Return the place of a unit and the records in it."""
    if side is None:
        return None
    unit = side.unit
    return {
        "start": unit.start,
        "end": unit.end,
        "kind": unit.kind,
        "record": unit.record if unit.record_count else None,
        "records": unit.record_count,
        "types": list(dict.fromkeys(type_ for type_, _, _ in unit.content)),
    }


def _changed_fields_to_json(left: AnnotatedPiece, right: AnnotatedPiece) -> dict[str, Any]:
    compared = match_fields(left, right)
    changed = [_field_to_json(one) for one in compared if not one.same]
    return {"fields": changed, "fields_same": len(compared) - len(changed)}


def _field_to_json(field: FieldDiff) -> dict[str, Any]:
    """Return one field of both sides; `bytes` are the differing ranges from its first byte on, none where the sizes
    differ.
    """
    return {"a": _row_to_json(field.a), "b": _row_to_json(field.b), "bytes": [list(some) for some in field.ranges]}


def _row_to_json(row: FieldRow | None) -> dict[str, Any] | None:
    return None if row is None else next(fields_to_json([row]))
