"""`hexdump-annotate -O json` (binlogtool/annotate/1)."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

from binlogtool.report.json import findings_json
from binlogtool.report.plain import Style
from binlogtool.schema.annotation import Annotation, FieldRow

_STYLE = Style()


def annotate_json(annotation: Annotation) -> dict[str, Any]:
    """The document. `space` (decompressed rows) and `ok` (damaged ones) are additions to the shape."""
    return {
        "schema": "binlogtool/annotate/1",
        "file": annotation.file,
        "size": annotation.size,
        "fields": list(fields_json(annotation.rows)),
        "findings": findings_json(annotation.findings),
    }


def fields_json(rows: Iterable[FieldRow]) -> Iterator[dict[str, Any]]:
    """One member of `fields` per row, in file order, parents before their children."""
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
