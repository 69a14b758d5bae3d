"""Record types by the names that users write: case is ignored, and a name can stand for several types."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from difflib import get_close_matches

from binlogtool.errors import UsageError
from binlogtool.formats.base import OutputRules

_UNKNOWN_TYPE = re.compile(r"(?:TYPE_)?\d+\Z")
"""What a type is called that a format does not know."""

_FILE_TYPES = frozenset({"ENCRYPTED"})
"""The type of records whose key was not given."""


def resolve_types(names: Sequence[str], output: OutputRules) -> frozenset[str]:
    """Return the types of a format that these names stand for.

    Raises:
        UsageError: no format has a type of this name.
    """
    types_by_name = {name.upper(): frozenset({name}) for name in (*output.types.values(), *_FILE_TYPES)}
    types_by_name |= {name.upper(): types for name, types in output.type_groups.items()}
    resolved = frozenset[str]()
    for name in names:
        types = types_by_name.get(name.upper())
        if types is None and not _UNKNOWN_TYPE.match(name.upper()):
            _require_known(name, types_by_name)
        resolved |= types or frozenset({name})
    return resolved


def _require_known(name: str, format_names: Iterable[str]) -> None:
    from binlogtool import formats

    outputs = [known.output for known in formats.iter_formats()]
    if not any(name.upper() in map(str.upper, (*one.types.values(), *one.type_groups)) for one in outputs):
        raise UsageError(
            f"--type {name}: there is no such type{suggest_names(name, format_names)}; --type list shows them"
        )


def suggest_names(name: str, known: Iterable[str], max_count: int = 3) -> str:
    """Return the known names most like `name` as the end of a message; "" = there are none."""
    names_by_casefold = {one.casefold(): one for one in sorted(known, reverse=True)}
    found = [names_by_casefold[one] for one in get_close_matches(name.casefold(), names_by_casefold, max_count)]
    return f": is it {' or '.join(found)}?" if found else ""
