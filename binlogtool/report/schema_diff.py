"""JSON Schema of `hexdump-annotate --diff -O json`, and of a field there and in `hexdump-annotate -O json`."""

from __future__ import annotations

from typing import Any

from binlogtool.report.schema_parts import ANY, BOOL, COUNT, NAME, TEXT, list_of, object_of, or_null, schema_constant

_NUMBER_PAIR: dict[str, Any] = {"type": "array", "items": COUNT, "minItems": 2, "maxItems": 2}
FIELD = object_of(
    {
        "path": TEXT,
        "start": COUNT,
        "end": COUNT,
        "value": ANY,
        "meaning": TEXT,
        "unit": {"enum": ["file", "decompressed"]},
        "bits": or_null(_NUMBER_PAIR),
    },
    space=TEXT,
    ok=BOOL,
)

_PLACE = object_of(
    {"start": COUNT, "end": COUNT},
    kind={"enum": ["header", "frame", "damage", "gap"]},
    record=or_null(COUNT),
    records=COUNT,
    types=list_of(TEXT),
)
_CHANGED = object_of({"a": or_null(FIELD), "b": or_null(FIELD), "bytes": list_of(_NUMBER_PAIR)})

DIFF = object_of(
    {
        "schema": schema_constant("diff"),
        "a": object_of({"file": NAME, "size": COUNT}),
        "b": object_of({"file": NAME, "size": COUNT}),
        "format": TEXT,
        "parts": list_of(
            object_of(
                {
                    "kind": {"enum": ["same", "changed", "only-a", "only-b"]},
                    "a": or_null(_PLACE),
                    "b": or_null(_PLACE),
                },
                records=COUNT,
                fields=list_of({"anyOf": [_CHANGED, FIELD]}),
                fields_same=COUNT,
            )
        ),
        "differences": COUNT,
    }
)
