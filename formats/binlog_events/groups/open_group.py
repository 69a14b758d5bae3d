"""The transaction that an applier has open: its records, and those among them that do not go its way."""

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
    """The records `[first, stop)` of a transaction, which do not go its way."""

    first: int
    stop: int
    verdict: Verdict


class Open(msgspec.Struct):
    """The transaction that is open. first: number of its first record. begun: it needs a commit; standalone: it is one
    statement. doom: what becomes of all of it, decided before its end. stays: records that no rollback undoes.
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
        """A record changes a table that no rollback reaches."""
        if self.stays and self.stays[-1][1] == number:
            self.stays[-1] = self.stays[-1][0], number + 1
        elif len(self.stays) < MOST_PARTS:
            self.stays.append((number, number + 1))

    def undo(self, first: int, stop: int, verdict: Verdict) -> None:
        """The records `[first, stop)` are rolled back, but for those that stay."""
        del self.parts[bisect_left(self.parts, (first,)) :]
        at = first
        for low, high in self.stays:
            if high > first and low >= at:
                self.parts += [Part(at, low, verdict), Part(low, min(high, stop), _STAYS)]
                at = high
        self.parts.append(Part(at, stop, verdict))

    def rulings(self, stop: int, verdict: Verdict) -> Iterator[Ruling]:
        """What becomes of its records `[first, stop)`; this verdict where there is no other."""
        at = self.first
        for part in self.parts if self.doom is None else ():
            if part.first > at:
                yield Ruling(at, part.first, *verdict)
            if part.stop > max(part.first, at):
                yield Ruling(max(part.first, at), part.stop, *part.verdict)
            at = max(at, part.stop)
        if stop > at:
            yield Ruling(at, stop, *(self.doom or verdict))
