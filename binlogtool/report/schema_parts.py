"""What schemas are made of."""

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
    """The same, or null."""
    return {"anyOf": [schema, {"type": "null"}]}


def object_of(required: Mapping[str, Any], **optional: Any) -> dict[str, Any]:
    """An object with these members, and some that may be missing."""
    return {"type": "object", "properties": {**required, **optional}, "required": list(required)}


def list_of(items: Mapping[str, Any]) -> dict[str, Any]:
    """An array of these."""
    return {"type": "array", "items": items}


def counts() -> dict[str, Any]:
    """An object of numbers."""
    return {"type": "object", "additionalProperties": COUNT}


def document(name: str, title: str, body: dict[str, Any]) -> dict[str, Any]:
    """A schema as it is printed."""
    return {"$schema": _DIALECT, "$id": f"binlogtool/{name}/1", "title": title, **body}


def constant(name: str) -> dict[str, Any]:
    """What the member `schema` of a document says."""
    return {"const": f"binlogtool/{name}/1"}
