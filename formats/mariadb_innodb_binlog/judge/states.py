"""GTID states against the commits between them (sections 6.2 and 15)."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import msgspec

from binlogtool.formats.mariadb_innodb_binlog.records.records import Gtid, State

Pair = tuple[int, int]
"""A domain and a server."""

_LISTED = 8


def pairs(state: State) -> dict[Pair, int]:
    """The sequence numbers of a state record."""
    return {(gtid.domain_id, gtid.server_id): gtid.seq_no for gtid in state.gtids}


def differences(stored: Mapping[Pair, int], expected: Mapping[Pair, int]) -> list[tuple[Pair, int | None, int | None]]:
    """(pair, stored number, expected number) where they differ."""
    return [
        (pair, stored.get(pair), expected.get(pair))
        for pair in {**expected, **stored}
        if stored.get(pair) != expected.get(pair)
    ]


def said(differing: list[tuple[Pair, int | None, int | None]]) -> str:
    """The differences in words, the first ones."""
    words = [
        f"{domain}-{server}: {_number(stored)}, expected {_number(known)}"
        for (domain, server), stored, known in differing[:_LISTED]
    ]
    more = len(differing) - len(words)
    return "; ".join(words) + (f"; {more:,} more" if more > 0 else "")


def _number(value: int | None) -> str:
    return "nothing" if value is None else str(value)


class Replay(msgspec.Struct):
    """The state that the commits of a log make. known: False = commits may have been missed, so a state is believed.

    full: the last number of each pair. updated: those that changed since the start of this file. last: the last commit,
    and the numbers that its pair had before in both.
    """

    known: bool = False
    full: dict[Pair, int] = msgspec.field(default_factory=dict)
    updated: dict[Pair, int] = msgspec.field(default_factory=dict)
    last: tuple[Gtid, int | None, int | None] | None = None

    def commit(self, gtid: Gtid) -> int | None:
        """Takes a commit; returns the number that its pair had before."""
        pair = (gtid.domain_id, gtid.server_id)
        before = self.full.get(pair)
        self.last = (gtid, before, self.updated.get(pair))
        self.full[pair] = self.updated[pair] = gtid.seq_no
        return before

    def lose(self) -> None:
        """Commits may have been missed."""
        self.known, self.last = False, None

    def opened(self, state: State, first_file: bool, crossed: bool) -> list[tuple[Pair, int | None, int | None]]:
        """The full state at the start of a file: how it differs from what is known.

        crossed: it stands inside of the last commit, which may be in it or not. A state of another history (other
        pairs) is believed afterwards, one with other numbers is not.
        """
        stored = pairs(state)
        differing = self._differing(stored, self.full, crossed) if self.known else []
        if first_file and not stored and _one_commit(self.full):
            differing = []  # written before the first commit was counted
        elif not self.known or other_history(differing):
            self.full = dict(stored)
        self.updated, self.known, self.last = {}, True, None
        return differing

    def differential(self, state: State, crossed: bool) -> list[tuple[Pair, int | None, int | None]]:
        """A state inside a file: how it differs (crossed: see `opened`). Where commits were missed it is believed."""
        stored = pairs(state)
        if not self.known:
            self.full.update(stored)
            self.updated, self.known, self.last = dict(stored), True, None
            return []
        return self._differing(stored, self.updated, crossed)

    def _differing(
        self, stored: Mapping[Pair, int], expected: Mapping[Pair, int], crossed: bool
    ) -> list[tuple[Pair, int | None, int | None]]:
        """The differences, unless it is only that the commit around the state record is not yet in it."""
        found = differences(stored, expected)
        if crossed and len(found) == 1 and self.last is not None:
            gtid, full, updated = self.last
            before = updated if expected is self.updated else full
            if found[0] == ((gtid.domain_id, gtid.server_id), before, gtid.seq_no):
                return []
        return found


def other_history(differing: list[tuple[Pair, int | None, int | None]]) -> bool:
    """Are there pairs that the other side does not have at all?"""
    return any(stored is None or known is None for _, stored, known in differing)


def _one_commit(full: Mapping[Pair, int]) -> bool:
    return not full or (len(full) == 1 and next(iter(full.values())) == 1)


def texts(full: Mapping[Pair, int]) -> Iterator[str]:
    """The state as GTIDs."""
    return (f"{domain}-{server}-{number}" for (domain, server), number in full.items())
