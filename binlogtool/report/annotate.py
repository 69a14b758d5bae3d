"""`hexdump-annotate -O json` (binlogtool/annotate/1)."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import msgspec

from binlogtool.findings import Finding
from binlogtool.log.plain import Style, safe_json
from binlogtool.report.json import document, findings_json
from binlogtool.schema.annotation import Annotation, FieldRow

_STYLE = Style()
_FIELDS = b'"fields": []'


def annotate_json(annotation: Annotation) -> dict[str, Any]:
    """Return the whole document. The members `space` (decompressed rows) and `ok` (damaged ones) are additions to the
    shape.
    """
    whole = _around(annotation.file, annotation.size, annotation.findings)
    return {**whole, "fields": list(fields_json(annotation.rows))}


def _around(file: str, size: int, findings: Sequence[Finding]) -> dict[str, Any]:
    return {
        "schema": "binlogtool/annotate/1",
        "file": file,
        "size": size,
        "fields": [],
        "findings": findings_json(findings),
    }


def fields_json(rows: Iterable[FieldRow]) -> Iterator[dict[str, Any]]:
    """Yield one member of `fields` per row, in file order, parents before their children."""
    for row in rows:
        yield {
            "path": row.path,
            "start": row.start,
            "end": row.end,
            "value": _STYLE.plain(row.value),
            "meaning": row.meaning,
            "unit": row.unit,
            "bits": list(row.bits) if row.bits else None,
            **({"space": row.space} if row.space else {}),
            **({} if row.ok else {"ok": False}),
        }


class AnnotateWriter:
    """Writes the same document incrementally, as the rows arrive."""

    def __init__(self, file: str, size: int) -> None:
        self._file, self._size = file, size
        self._before = b""

    def rows(self, rows: Iterable[FieldRow]) -> Iterator[bytes]:
        """Yield the next members of `fields`."""
        for field in fields_json(rows):
            yield (self._before or self._head()) + b"\n    " + member(field)
            self._before = b","

    def _head(self) -> bytes:
        return document(_around(self._file, self._size, ())).partition(_FIELDS)[0] + _FIELDS[:-1]

    def end(self, findings: Sequence[Finding]) -> bytes:
        """Return what follows the rows."""
        whole = document(_around(self._file, self._size, findings))
        return b"\n  ]" + whole.partition(_FIELDS)[2] if self._before else whole


def member(field: dict[str, Any]) -> bytes:
    """Encode a member of an array of a document, indented as `encode_document` does."""
    text = msgspec.json.format(msgspec.json.encode(_STYLE.plain(field)), indent=2)
    return safe_json(text).replace(b"\n", b"\n    ")
