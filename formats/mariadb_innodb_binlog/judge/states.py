"""Compare GTID states with the commits between them (docs/spec/mariadb-innodb-binlog.md#62-gtid_state-type-2)."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import msgspec

from binlogtool.formats.mariadb_innodb_binlog.records.records import Gtid, State

Pair = tuple[int, int]
"""A domain and a server."""

_LISTED = 8


def pairs(state: State) -> dict[Pair, int]:
    """Return the sequence numbers of a state record by (domain, server)."""
    return {(gtid.domain_id, gtid.server_id): gtid.seq_no for gtid in state.gtids}


def differences(stored: Mapping[Pair, int], expected: Mapping[Pair, int]) -> list[tuple[Pair, int | None, int | None]]:
    """Return (pair, stored number, expected number) where two states differ."""
    return [
        (pair, stored.get(pair), expected.get(pair))
        for pair in {**expected, **stored}
        if stored.get(pair) != expected.get(pair)
    ]


def said(differing: list[tuple[Pair, int | None, int | None]]) -> str:
    """Describe the first differences."""
    words = [
        f"{domain}-{server}: {_number(stored)}, expected {_number(known)}"
        for (domain, server), stored, known in differing[:_LISTED]
    ]
    more = len(differing) - len(words)
    return "; ".join(words) + (f"; {more:,} more" if more > 0 else "")


def _number(value: int | None) -> str:
    return "nothing" if value is None else str(value)


class Replay(msgspec.Struct):
    """Follows the GTID state that the commits of a log produce.

    Attributes:
        is_known: False = commits may have been missed, so the next stored state is trusted.
        full: last number of each pair.
        updated: numbers that changed since the start of this file.
        last_commit: the last commit, and the numbers that its pair had before in `full` and `updated`.
    """

    known: bool = False
    full: dict[Pair, int] = msgspec.field(default_factory=dict)
    updated: dict[Pair, int] = msgspec.field(default_factory=dict)
    last: tuple[Gtid, int | None, int | None] | None = None

    def commit(self, gtid: Gtid) -> int | None:
        """Add a commit; returns the number that its pair had before."""
        pair = (gtid.domain_id, gtid.server_id)
        before = self.full.get(pair)
        self.last = (gtid, before, self.updated.get(pair))
        self.full[pair] = self.updated[pair] = gtid.seq_no
        return before

    def lose(self) -> None:
        """Record that commits may have been missed."""
        self.known, self.last = False, None

    def opened(self, state: State, first_file: bool, crossed: bool) -> list[tuple[Pair, int | None, int | None]]:
        """Compare the full state at the start of a file with the commits; returns the differences.

        Args:
            inside_commit: it is inside the last commit, which may be in it or not.

        A state of another history (other pairs) is trusted afterwards, one with other numbers is not.
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
        """Compare a state inside a file with the commits; returns the differences. It is trusted after a gap.

        Args:
            inside_commit: see `check_full_state`.
        """
        stored = pairs(state)
        if not self.known:
            self.full.update(stored)
            self.updated, self.known, self.last = dict(stored), True, None
            return []
        return self._differing(stored, self.updated, crossed)

    def _differing(
        self, stored: Mapping[Pair, int], expected: Mapping[Pair, int], crossed: bool
    ) -> list[tuple[Pair, int | None, int | None]]:
        """Return the differences, unless the only one is that the commit around the state record is not yet in it."""
        found = differences(stored, expected)
        if crossed and len(found) == 1 and self.last is not None:
            gtid, full, updated = self.last
            before = updated if expected is self.updated else full
            if found[0] == ((gtid.domain_id, gtid.server_id), before, gtid.seq_no):
                return []
        return found


def other_history(differing: list[tuple[Pair, int | None, int | None]]) -> bool:
    """Check for pairs that the other side does not have at all."""
    return any(stored is None or known is None for _, stored, known in differing)


def _one_commit(full: Mapping[Pair, int]) -> bool:
    return not full or (len(full) == 1 and next(iter(full.values())) == 1)


def texts(full: Mapping[Pair, int]) -> Iterator[str]:
    """Iterate over the GTIDs of a state as text."""
    return (f"{domain}-{server}-{number}" for (domain, server), number in full.items())
