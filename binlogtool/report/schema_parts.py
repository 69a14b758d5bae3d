"""Building blocks of the JSON Schemas."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

_DIALECT = "https://json-schema.org/draft/2020-12/schema"

TEXT: dict[str, Any] = {"type": "string"}
BOOL: dict[str, Any] = {"type": "boolean"}
COUNT: dict[str, Any] = {"type": "integer", "minimum": 0}
ANY: dict[str, Any] = {}
_BYTES: dict[str, Any] = {
    "type": "object", "properties": {"$bytes": TEXT}, "required": ["$bytes"], "additionalProperties": False,
}  # fmt: skip
NAME: dict[str, Any] = {"anyOf": [TEXT, _BYTES], "description": "text; bytes where the name is no text"}


def or_null(schema: Mapping[str, Any]) -> dict[str, Any]:
    """Return the schema, or null."""
    return {"anyOf": [schema, {"type": "null"}]}


def object_of(required: Mapping[str, Any], **optional: Any) -> dict[str, Any]:
    """Return the schema of an object with these members, and optional ones."""
    return {"type": "object", "properties": {**required, **optional}, "required": list(required)}


def list_of(items: Mapping[str, Any]) -> dict[str, Any]:
    """Return the schema of an array of these items."""
    return {"type": "array", "items": items}


def counts_schema() -> dict[str, Any]:
    """Return the schema of an object of numbers."""
    return {"type": "object", "additionalProperties": COUNT}


def schema_document(name: str, title: str, body: dict[str, Any]) -> dict[str, Any]:
    """Return a schema as it is printed."""
    return {"$schema": _DIALECT, "$id": f"binlogtool/{name}/1", "title": title, **body}


def schema_constant(name: str) -> dict[str, Any]:
    """Return the schema of the member `schema` of a document."""
    return {"const": f"binlogtool/{name}/1"}
