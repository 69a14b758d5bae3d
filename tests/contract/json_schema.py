"""As much of JSON Schema as the shapes of the documents need."""

from __future__ import annotations

from typing import Any

KEYWORDS = {
    "$schema", "$id", "title", "description", "format", "type", "const", "enum", "anyOf", "minimum", "properties",
    "required", "additionalProperties", "items", "minItems", "maxItems",
}  # fmt: skip
TYPES = {
    "object": dict,
    "array": list,
    "string": str,
    "integer": int,
    "number": (int, float),
    "boolean": bool,
    "null": type(None),
}


def errors(value: Any, schema: dict[str, Any], path: str = "$") -> list[str]:
    """What is wrong with a value: the keywords that our schemas use, and no others."""
    assert schema.keys() <= KEYWORDS, schema.keys() - KEYWORDS
    found: list[str] = []
    kinds = schema.get("type")
    if kinds is not None:
        allowed = [TYPES[k] for k in ([kinds] if isinstance(kinds, str) else kinds)]
        boolean = isinstance(value, bool) and bool not in allowed
        if boolean or not any(isinstance(value, k) for k in allowed):
            return [f"{path}: {value!r} is no {kinds}"]
    if "const" in schema and value != schema["const"]:
        found.append(f"{path}: {value!r} is not {schema['const']!r}")
    if "enum" in schema and value not in schema["enum"]:
        found.append(f"{path}: {value!r} is not one of {schema['enum']}")
    if "minimum" in schema and isinstance(value, int) and value < schema["minimum"]:
        found.append(f"{path}: {value} is too small")
    if "anyOf" in schema and all(errors(value, s, path) for s in schema["anyOf"]):
        found += [e for s in schema["anyOf"] for e in errors(value, s, path)]
    if isinstance(value, dict):
        found += [f"{path}: no member {name}" for name in schema.get("required", ()) if name not in value]
        for name, inner in value.items():
            rule = schema.get("properties", {}).get(name, schema.get("additionalProperties", {}))
            found += [f"{path}: member {name}"] if rule is False else errors(inner, rule, f"{path}.{name}")
    if isinstance(value, list):
        if not schema.get("minItems", 0) <= len(value) <= schema.get("maxItems", len(value)):
            found.append(f"{path}: {len(value)} items")
        found += [e for i, v in enumerate(value) for e in errors(v, schema.get("items", {}), f"{path}[{i}]")]
    return found
