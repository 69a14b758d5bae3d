"""Which transactions the log itself says were there, and were not read."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

from binlogtool.findings import Finding, finding
from binlogtool.formats.base import Bundle, Reached

Pair = tuple[int, int]
State = dict[Pair, int]


def book(state: State, domain: int, server: int, number: int) -> None:
    """The newest of a domain goes to the end, as in GTID_LIST."""
    state.pop((domain, server), None)
    state[domain, server] = number


def gtid_numbers(text: str) -> tuple[int, int, int]:
    """(domain, server, number) of a GTID's text."""
    domain, server, number = map(int, text.split("-"))
    return domain, server, number


@dataclass(slots=True)
class Continuity:
    """Follows the states and the transactions. damaged: what is missing now may have stood in damaged bytes."""

    known: State | None = None
    lost: list[str] = field(default_factory=list)
    _last: dict[int, int] = field(default_factory=dict)
    _unsure: bool = False
    _sure_again: set[int] = field(default_factory=set)

    def damage(self) -> None:
        """Bytes were skipped."""
        self._unsure = True
        self._sure_again.clear()

    def unread(self, gtid: str) -> None:
        """A transaction whose identity is known could not be read."""
        self.lost.append(gtid)
        self._take(*gtid_numbers(gtid))

    def bundle(self, bundle: Bundle) -> None:
        """A transaction was read; behind damage, a hole before it is what was lost."""
        if bundle.txn is None:
            return
        domain, server, number = gtid_numbers(bundle.txn)
        if self._unsure and domain not in self._sure_again:
            self._miss(domain, server, number - 1)
            self._sure_again.add(domain)
        self._take(domain, server, number)

    def reached(self, said: Reached, offset: int | None) -> Iterator[Finding]:
        """A state that the log tells: a finding if it knows transactions that were not read."""
        if self.known is None:
            if said.whole:
                for gtid in said.gtids:
                    self._take(*gtid)
            return
        before = len(self.lost)
        for domain, server, number in said.gtids:
            if number > self.known.get((domain, server), 0):
                self._miss(domain, server, number)
                self._take(domain, server, number)
        missed = self.lost[before:]
        if missed and not self._unsure:
            text = f"transactions are not there that the log knows: {', '.join(missed[:8])}"
            yield finding("gap-in-sequence", offset, 0, text + (" …" if len(missed) > 8 else ""), missing=missed[:100])
        if said.whole:
            self._unsure = False

    def _miss(self, domain: int, server: int, number: int) -> None:
        first = self._last.get(domain, 0) + 1
        if first <= number:
            self.lost.append(f"{domain}-{server}-{first}" + (f"..{number}" if number > first else ""))

    def _take(self, domain: int, server: int, number: int) -> None:
        self.known = {} if self.known is None else self.known
        book(self.known, domain, server, number)
        self._last[domain] = number
