"""`hexdump-annotate --diff OTHER -O json` (binlogtool/diff/1)."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import groupby
from typing import Any

from binlogtool.log.compare import Compared, Differs, Part, Side
from binlogtool.log.differing import Field, fields, joined, kind_of
from binlogtool.report.annotate import fields_json, member
from binlogtool.report.json import document
from binlogtool.schema.annotation import FieldRow, Piece

_PARTS = b'"parts": []'
_KINDS = {"~": "changed", "-": "only-a", "+": "only-b"}


class DifferencesWriter:
    """Writes the document incrementally, as the parts arrive.

    Args:
        whole: Also the fields of what only one side has.
    """

    def __init__(self, compared: Compared, *, whole: bool) -> None:
        self._about, self._whole = compared, whole
        self.found = 0
        """Places that differ."""

    def parts(self, parts: Iterable[Part]) -> Iterator[bytes]:
        """Yield the whole document."""
        before = document(self._around()).partition(_PARTS)[0] + _PARTS[:-1]
        for part in self._each(parts):
            yield before + b"\n    " + member(part)
            before = b","
        behind = document(self._around()).partition(_PARTS)[2]
        yield b"\n  ]" + behind if before == b"," else before + b"]" + behind

    def _around(self) -> dict[str, Any]:
        a, b = self._about.a, self._about.b
        return {
            "schema": "binlogtool/diff/1",
            "a": {"file": a.path, "size": a.size},
            "b": {"file": b.path, "size": b.size},
            "format": a.format.name,
            "parts": [],
            "differences": self.found,
        }

    def _each(self, parts: Iterable[Part]) -> Iterator[dict[str, Any]]:
        for kind, some in groupby(parts, kind_of):
            if kind == "=":
                for one in joined(some):
                    there = {"start": one.other, "end": one.other + one.end - one.start}
                    yield {
                        "kind": "same",
                        "a": {"start": one.start, "end": one.end},
                        "b": there,
                        "records": one.records,
                    }
            else:
                for part in some:
                    assert isinstance(part, Differs)
                    self.found += 1
                    yield {"kind": _KINDS[kind], "a": _side(part.a), "b": _side(part.b), **self._inside(part)}

    def _inside(self, part: Differs) -> dict[str, Any]:
        if part.a is not None and part.b is not None:
            return _changed(part.a.piece(), part.b.piece())
        side = part.a or part.b
        return {"fields": list(fields_json(side.piece().rows))} if self._whole and side is not None else {}


def _side(side: Side | None) -> dict[str, Any] | None:
    """Return the place of a unit and the records in it."""
    if side is None:
        return None
    unit = side.unit
    return {
        "start": unit.start,
        "end": unit.end,
        "kind": unit.kind,
        "record": unit.record if unit.records else None,
        "records": unit.records,
        "types": list(dict.fromkeys(type_ for type_, _, _ in unit.says)),
    }


def _changed(left: Piece, right: Piece) -> dict[str, Any]:
    told = fields(left, right)
    differ = [_field(one) for one in told if not one.same]
    return {"fields": differ, "fields_same": len(told) - len(differ)}


def _field(one: Field) -> dict[str, Any]:
    """Return one field of both sides; `bytes` are the differing ranges from its first byte on, none where the sizes
    differ.
    """
    return {"a": _row(one.a), "b": _row(one.b), "bytes": [list(some) for some in one.ranges]}


def _row(row: FieldRow | None) -> dict[str, Any] | None:
    return None if row is None else next(fields_json([row]))
