"""Values are structs of msgspec: no module compiles text for them when it is imported, as dataclasses do."""

from __future__ import annotations

import re
from pathlib import Path

from tests.contract.sources import each_folder, modules_of

_CLASS = re.compile(r"^@dataclass\b.*\n(?:@.*\n)*class \w+.*:\n(?P<body>(?:(?:    .*)?\n)*)", re.MULTILINE)
_ONLY_THERE = re.compile(r"\((?:[^()]|\([^()]*\))*\b(?:init|compare|repr)=|cached_property|object\.__setattr__")
"""What structs have not: fields that are no arguments, or take no part in comparing or showing."""
_INHERITS = re.compile(r"^@dataclass\b.*\nclass \w+\([A-Z]", re.MULTILINE)
_MIXED = {"table_map.py", "table_history.py", "script_state.py"}
"""They make maps of tables anew, whose memory of what was derived takes no part in comparing."""


def needless(text: str) -> int:
    """How many of the dataclasses could be structs."""
    slotted = [found for found in _CLASS.finditer(text) if "slots=True" in found[0].split("\n", 1)[0]]
    return sum(not _ONLY_THERE.search(found["body"]) and not _INHERITS.match(found[0]) for found in slotted)


def test_needless_dataclasses_are_found() -> None:
    assert needless("@dataclass(frozen=True, slots=True)\nclass A:\n    one: int = 1\n") == 1
    assert needless("@dataclass(slots=True)\nclass A:\n    one: int = field(init=False)\n") == 0


@each_folder
def test_a_value_is_a_struct_and_changed_as_one(folder: Path) -> None:
    copying = set()
    for path in modules_of(folder):
        text = path.read_text(encoding="utf-8")
        assert needless(text) == 0, f"{path}: a msgspec.Struct is meant"
        if re.search(r"^ *from dataclasses import .*\breplace\b", text, re.MULTILINE):
            copying.add(path.name)
    assert copying <= _MIXED, "replace of msgspec.structs is meant"
