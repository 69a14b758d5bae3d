"""What a conversion counts while it runs: rows, findings, how far it is, and whether damage stops it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import msgspec

from binlogtool.findings import ENCRYPTED, Severity

MAX_LISTED = 1000


class Step(NamedTuple):
    """How far a conversion is: the stage in words, its bytes that are done and all of them, records (0 = not known)."""

    stage: str
    done: int
    total: int
    records: int = 0


OnStep = Callable[[Step], None]


class Account(msgspec.Struct):
    """Findings as JSON objects with their file; all are counted, the first MAX_LISTED are kept."""

    listed: list[Mapping[str, Any]] = msgspec.field(default_factory=list)
    counts: Counter[str] = msgspec.field(default_factory=Counter)
    damage_rows: int = 0
    errors: int = 0

    def add(self, file: str, finding: Mapping[str, Any], *, damage: bool) -> None:
        """Books one finding. damage: it stands for bytes that could not be read, not for a record."""
        self.counts[finding["id"]] += 1
        self.damage_rows += damage
        self.errors += damage and (finding["severity"] == Severity.ERROR.label or finding["id"] == ENCRYPTED)
        if len(self.listed) < MAX_LISTED:
            self.listed.append({"file": file, **finding})

    def join(self, other: Account) -> None:
        """Takes what another account has."""
        self.counts += other.counts
        self.damage_rows += other.damage_rows
        self.errors += other.errors
        self.listed += other.listed[: MAX_LISTED - len(self.listed)]
