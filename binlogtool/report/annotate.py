"""`hexdump-annotate -O json` (binlogtool/annotate/1)."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import msgspec

from binlogtool.findings import Finding
from binlogtool.log.plain import JsonStyle, escape_unsafe
from binlogtool.report.json import encode_document, findings_to_json
from binlogtool.schema.annotation import Annotation, FieldRow

_STYLE = JsonStyle()
_FIELDS = b'"fields": []'


def annotation_to_json(annotation: Annotation) -> dict[str, Any]:
    """Return the whole document. The members `space` (decompressed rows) and `ok` (damaged ones) are additions to the
    shape.
    """
    whole = _make_envelope(annotation.file, annotation.size, annotation.findings)
    return {**whole, "fields": list(fields_to_json(annotation.rows))}


def _make_envelope(file: str, size: int, findings: Sequence[Finding]) -> dict[str, Any]:
    return {
        "schema": "binlogtool/annotate/1",
        "file": file,
        "size": size,
        "fields": [],
        "findings": findings_to_json(findings),
    }


def fields_to_json(rows: Iterable[FieldRow]) -> Iterator[dict[str, Any]]:
    """Yield one member of `fields` per row, in file order, parents before their children."""
    for row in rows:
        yield {
            "path": row.path,
            "start": row.start,
            "end": row.end,
            "value": _STYLE.to_json_value(row.value),
            "meaning": row.meaning,
            "unit": row.unit,
            "bits": list(row.bits) if row.bits else None,
            **({"space": row.space} if row.space else {}),
            **({} if row.ok else {"ok": False}),
        }


class AnnotationJsonWriter:
    """Writes the same document incrementally, as the rows arrive."""

    def __init__(self, file: str, size: int) -> None:
        self._file, self._size = file, size
        self._separator = b""

    def encode_rows(self, rows: Iterable[FieldRow]) -> Iterator[bytes]:
        """Yield the next members of `fields`."""
        for field in fields_to_json(rows):
            yield (self._separator or self._encode_start()) + b"\n    " + encode_member(field)
            self._separator = b","

    def _encode_start(self) -> bytes:
        return encode_document(_make_envelope(self._file, self._size, ())).partition(_FIELDS)[0] + _FIELDS[:-1]

    def finish(self, findings: Sequence[Finding]) -> bytes:
        """Return what follows the rows."""
        whole = encode_document(_make_envelope(self._file, self._size, findings))
        return b"\n  ]" + whole.partition(_FIELDS)[2] if self._separator else whole


def encode_member(field: dict[str, Any]) -> bytes:
    """Encode a member of an array of a document, indented as `encode_document` does."""
    text = msgspec.json.format(msgspec.json.encode(_STYLE.to_json_value(field)), indent=2)
    return escape_unsafe(text).replace(b"\n", b"\n    ")
