"""Typed options of commands: structs filled from click's flat values."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, TypeVar

import msgspec

S = TypeVar("S", bound=msgspec.Struct)


def collect_options(struct: type[S], values: Mapping[str, Any]) -> S:
    """Build an options struct; a field that is itself an options struct is filled from the same values.

    The field of an option that the command lacks keeps its default.
    """
    chosen: dict[str, Any] = {}
    for field in msgspec.structs.fields(struct):
        if isinstance(field.type, type) and issubclass(field.type, msgspec.Struct):
            chosen[field.name] = collect_options(field.type, values)
        elif field.name in values:
            chosen[field.name] = values[field.name]
    return struct(**chosen)
