"""Record types by the names that users write: case is ignored, and a name can stand for several types."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from difflib import get_close_matches

from binlogtool.errors import UsageError
from binlogtool.formats.base import Output

_UNNAMED = re.compile(r"(?:TYPE_)?\d+\Z")
"""What a type is called that a format does not know."""

_OF_FILES = frozenset({"ENCRYPTED"})
"""The type of records whose key was not given."""


def matching_types(names: Sequence[str], output: Output) -> frozenset[str]:
    """Return the types of a format that these names stand for.

    Raises:
        UsageError: no format has a type of this name.
    """
    own = {name.upper(): frozenset({name}) for name in (*output.types.values(), *_OF_FILES)}
    own |= {name.upper(): types for name, types in output.type_groups.items()}
    found = frozenset[str]()
    for name in names:
        types = own.get(name.upper())
        if types is None and not _UNNAMED.match(name.upper()):
            _demand_known(name, own)
        found |= types or frozenset({name})
    return found


def _demand_known(name: str, own: Iterable[str]) -> None:
    from binlogtool import formats

    outputs = [known.output for known in formats.each()]
    if not any(name.upper() in map(str.upper, (*one.types.values(), *one.type_groups)) for one in outputs):
        raise UsageError(f"--type {name}: there is no such type{near_names(name, own)}; --type list shows them")


def near_names(name: str, known: Iterable[str], most: int = 3) -> str:
    """Return the known names most like `name` as the end of a message; "" = there are none."""
    spelled = {one.casefold(): one for one in sorted(known, reverse=True)}
    found = [spelled[one] for one in get_close_matches(name.casefold(), spelled, most)]
    return f": is it {' or '.join(found)}?" if found else ""
