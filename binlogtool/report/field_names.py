"""Check that the body members which `--fields` names occur in any record."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from binlogtool.log.record_types import suggest_names
from binlogtool.log.records import RecordBlock

_BODY = "body"
_MAX_KNOWN_NAMES = 1000


class FieldNameCheck:
    """Compares the fields below `body` with the members that bodies have."""

    def __init__(self, fields: Sequence[str]) -> None:
        self._pending = {field: field.split(".")[1:] for field in fields if field.startswith(_BODY + ".")}
        self._count = len(fields)
        self._records = 0
        self._known = set[str]()

    def check_block(self, block: RecordBlock) -> None:
        """Check the next records."""
        if not self._pending:
            return
        self._records += len(block)
        for body in block.bodies:
            if isinstance(body, Mapping) and self._pending:
                found = [field for field, path in self._pending.items() if _has_member(body, path)]
                for field in found:
                    del self._pending[field]
                if len(self._known) < _MAX_KNOWN_NAMES:
                    self._known.update(map(str, body))

    @property
    def warnings(self) -> list[str]:
        """A warning for each field that no record has."""
        if not self._records or not self._known:
            return []
        known = {f"{_BODY}.{name}" for name in self._known}
        return [f"--fields {field}: no chosen record has it{suggest_names(field, known)}" for field in self._pending]

    @property
    def are_all_unknown(self) -> bool:
        """True if no record has any of the fields."""
        return len(self._pending) == self._count


def _has_member(value: Any, path: Sequence[str]) -> bool:
    """Return True if there is a member at the path; names with dots are found as well, see
    `report.records.find_member`.
    """
    for end in range(1, len(path) + 1):
        name = ".".join(path[:end])
        if isinstance(value, Mapping) and name in value:
            return end == len(path) or _has_member(value[name], path[end:]) or value[name] is None
    return False
