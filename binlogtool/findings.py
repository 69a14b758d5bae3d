"""What is wrong with the data, as values: stable ids, default severities, and the text behind `explain`."""

from __future__ import annotations

import enum
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from types import MappingProxyType
from typing import Any


class Severity(enum.IntEnum):
    """Ordered: a finding at or above the threshold of `--fail-on` makes the exit status 1."""

    NOTE = 0
    WARNING = 1
    ERROR = 2

    @property
    def label(self) -> str:
        """The word used in every output: note, warning, error."""
        return self.name.lower()


@dataclass(frozen=True, slots=True)
class Finding:
    """One statement about bad data.

    `offset` is absolute in the file, `[offset, offset + length)` covers the record or range that is wrong; None for a
    finding about a whole set. `record` counts provable records from 0. `facts` are JSON values (numbers, strings).
    """

    id: str
    severity: Severity
    offset: int | None
    length: int
    message: str
    record: int | None = None
    facts: Mapping[str, Any] = field(default_factory=lambda: MappingProxyType({}))

    def raised_to(self, severity: Severity) -> Finding:
        """The same finding with another severity."""
        return replace(self, severity=severity)


@dataclass(frozen=True, slots=True)
class Explanation:
    """The text behind one finding id."""

    severity: Severity
    meaning: str
    causes: str
    action: str


_N, _W, _E = Severity.NOTE, Severity.WARNING, Severity.ERROR


def _explain(severity: Severity, meaning: str, causes: str, action: str) -> Explanation:
    return Explanation(severity, meaning, causes, action)


EXPLANATIONS: Mapping[str, Explanation] = MappingProxyType({})


def finding(
    id: str,
    offset: int | None,
    length: int,
    message: str,
    *,
    record: int | None = None,
    severity: Severity | None = None,
    **facts: Any,
) -> Finding:
    """A finding with the default severity of its id unless `severity` says otherwise.

    Raises:
        KeyError: the id is not in the table (a bug, caught by tests).
    """
    chosen = EXPLANATIONS[id].severity if severity is None else severity
    return Finding(id, chosen, offset, length, message, record, MappingProxyType(facts))
