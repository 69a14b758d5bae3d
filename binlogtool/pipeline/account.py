"""What a conversion counts while it runs: rows, findings, and whether damage stops it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from binlogtool.findings import Severity

MAX_LISTED = 1000


@dataclass(slots=True)
class Account:
    """Findings as JSON objects with their file; all are counted, the first MAX_LISTED are kept."""

    listed: list[Mapping[str, Any]] = field(default_factory=list)
    counts: Counter[str] = field(default_factory=Counter)
    damage_rows: int = 0
    errors: int = 0

    def add(self, file: str, finding: Mapping[str, Any], *, damage: bool) -> None:
        """Books one finding. damage: it stands for bytes that could not be read, not for a record."""
        self.counts[finding["id"]] += 1
        self.damage_rows += damage
        self.errors += damage and finding["severity"] == Severity.ERROR.label
        if len(self.listed) < MAX_LISTED:
            self.listed.append({"file": file, **finding})
