"""The open transaction of an applier: its records, and those with a verdict of their own."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterator
from typing import NamedTuple

import msgspec

from binlogtool.formats.replay_rules import APPLIED, Ruling

MOST_PARTS = 100_000
"""Parts of one transaction that are told apart."""

Verdict = tuple[str, str]
"""Verb and reason of a `Ruling`."""

_STAYS: Verdict = (APPLIED, "not-transactional")


class Part(NamedTuple):
    """Records `[first, stop)` of a transaction that have a verdict of their own."""

    first: int
    stop: int
    verdict: Verdict


class Open(msgspec.Struct):
    """Open transaction of an applier.

    `first_record`: number of its first record. `needs_commit`: it needs a commit. `is_standalone`: it is one
    statement. `verdict`: on all of it, decided before its end. `permanent`: records that no rollback undoes.
    """

    first: int
    offset: int
    gtid: str | None = None
    begun: bool = False
    standalone: bool = False
    doom: Verdict | None = None
    parts: list[Part] = msgspec.field(default_factory=list)
    stays: list[tuple[int, int]] = msgspec.field(default_factory=list)
    savepoints: dict[str, int] = msgspec.field(default_factory=dict)

    def keep(self, number: int) -> None:
        """Note a record that changes a non-transactional table."""
        if self.stays and self.stays[-1][1] == number:
            self.stays[-1] = self.stays[-1][0], number + 1
        elif len(self.stays) < MOST_PARTS:
            self.stays.append((number, number + 1))

    def undo(self, first: int, stop: int, verdict: Verdict) -> None:
        """Mark the records `[first, stop)` as rolled back, except for permanent ones."""
        del self.parts[bisect_left(self.parts, (first,)) :]
        at = first
        for low, high in self.stays:
            if high > first and low >= at:
                self.parts += [Part(at, low, verdict), Part(low, min(high, stop), _STAYS)]
                at = high
        self.parts.append(Part(at, stop, verdict))

    def rulings(self, stop: int, verdict: Verdict) -> Iterator[Ruling]:
        """Yield the rulings on its records up to `stop`; `verdict` applies where there is no other."""
        at = self.first
        for part in self.parts if self.doom is None else ():
            if part.first > at:
                yield Ruling(at, part.first, *verdict)
            if part.stop > max(part.first, at):
                yield Ruling(max(part.first, at), part.stop, *part.verdict)
            at = max(at, part.stop)
        if stop > at:
            yield Ruling(at, stop, *(self.doom or verdict))
