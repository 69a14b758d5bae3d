"""The open transaction of an applier: its records, and those with a verdict of their own."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterator
from typing import NamedTuple

import msgspec

from binlogtool.formats.replay_rules import APPLIED, Ruling

MAX_PARTS = 100_000
"""Parts of one transaction that are told apart."""

RulingVerdict = tuple[str, str]
"""Verb and reason of a `Ruling`."""

_STAYS: RulingVerdict = (APPLIED, "not-transactional")


class TransactionPart(NamedTuple):
    """Records `[first, stop)` of a transaction that have a verdict of their own."""

    first: int
    stop: int
    verdict: RulingVerdict


class ApplierTransaction(msgspec.Struct):
    """Open transaction of an applier.

    `first_record`: number of its first record. `needs_commit`: it needs a commit. `is_standalone`: it is one
    statement. `verdict`: on all of it, decided before its end. `permanent`: records that no rollback undoes.
    """

    first_record: int
    offset: int
    gtid: str | None = None
    needs_commit: bool = False
    is_standalone: bool = False
    verdict: RulingVerdict | None = None
    parts: list[TransactionPart] = msgspec.field(default_factory=list)
    permanent: list[tuple[int, int]] = msgspec.field(default_factory=list)
    savepoints: dict[str, int] = msgspec.field(default_factory=dict)

    def mark_permanent(self, number: int) -> None:
        """Note a record that changes a non-transactional table."""
        if self.permanent and self.permanent[-1][1] == number:
            self.permanent[-1] = self.permanent[-1][0], number + 1
        elif len(self.permanent) < MAX_PARTS:
            self.permanent.append((number, number + 1))

    def roll_back(self, first: int, stop: int, verdict: RulingVerdict) -> None:
        """Mark the records `[first, stop)` as rolled back, except for permanent ones."""
        del self.parts[bisect_left(self.parts, (first,)) :]
        position = first
        for low, high in self.permanent:
            if high > first and low >= position:
                self.parts += [TransactionPart(position, low, verdict), TransactionPart(low, min(high, stop), _STAYS)]
                position = high
        self.parts.append(TransactionPart(position, stop, verdict))

    def iter_rulings(self, stop: int, verdict: RulingVerdict) -> Iterator[Ruling]:
        """Yield the rulings on its records up to `stop`; `verdict` applies where there is no other."""
        position = self.first_record
        for part in self.parts if self.verdict is None else ():
            if part.first > position:
                yield Ruling(position, part.first, *verdict)
            if part.stop > max(part.first, position):
                yield Ruling(max(part.first, position), part.stop, *part.verdict)
            position = max(position, part.stop)
        if stop > position:
            yield Ruling(position, stop, *(self.verdict or verdict))
