"""Compare GTID states with the commits between them (docs/spec/mariadb_innodb_binlog.md#gtid_state)."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import msgspec

from binlogtool.formats.mariadb_innodb_binlog.records.records import GtidStateRecord, IbbGtid

DomainServer = tuple[int, int]
"""A domain and a server."""

_MAX_LISTED = 8


def state_numbers(state: GtidStateRecord) -> dict[DomainServer, int]:
    """Return the sequence numbers of a state record by (domain, server)."""
    return {(gtid.domain_id, gtid.server_id): gtid.seq_no for gtid in state.gtids}


def compare_states(
    stored: Mapping[DomainServer, int], expected: Mapping[DomainServer, int]
) -> list[tuple[DomainServer, int | None, int | None]]:
    """Return (pair, stored number, expected number) where two states differ."""
    return [
        (pair, stored.get(pair), expected.get(pair))
        for pair in {**expected, **stored}
        if stored.get(pair) != expected.get(pair)
    ]


def describe_differences(differing: list[tuple[DomainServer, int | None, int | None]]) -> str:
    """Describe the first differences."""
    texts = [
        f"{domain}-{server}: {_describe_number(stored)}, expected {_describe_number(known)}"
        for (domain, server), stored, known in differing[:_MAX_LISTED]
    ]
    omitted = len(differing) - len(texts)
    return "; ".join(texts) + (f"; {omitted:,} more" if omitted > 0 else "")


def _describe_number(value: int | None) -> str:
    return "nothing" if value is None else str(value)


class GtidStateTracker(msgspec.Struct):
    """Follows the GTID state that the commits of a log produce.

    Attributes:
        is_known: False = commits may have been missed, so the next stored state is trusted.
        full: last number of each pair.
        updated: numbers that changed since the start of this file.
        last_commit: the last commit, and the numbers that its pair had before in `full` and `updated`.
    """

    is_known: bool = False
    full: dict[DomainServer, int] = msgspec.field(default_factory=dict)
    updated: dict[DomainServer, int] = msgspec.field(default_factory=dict)
    last_commit: tuple[IbbGtid, int | None, int | None] | None = None

    def add_commit(self, gtid: IbbGtid) -> int | None:
        """Add a commit; returns the number that its pair had before."""
        pair = (gtid.domain_id, gtid.server_id)
        before = self.full.get(pair)
        self.last_commit = (gtid, before, self.updated.get(pair))
        self.full[pair] = self.updated[pair] = gtid.seq_no
        return before

    def add_gap(self) -> None:
        """Record that commits may have been missed."""
        self.is_known, self.last_commit = False, None

    def check_full_state(
        self, state: GtidStateRecord, first_file: bool, inside_commit: bool
    ) -> list[tuple[DomainServer, int | None, int | None]]:
        """Compare the full state at the start of a file with the commits; returns the differences.

        Args:
            inside_commit: it is inside the last commit, which may be in it or not.

        A state of another history (other pairs) is trusted afterwards, one with other numbers is not.
        """
        stored = state_numbers(state)
        differing = self._find_differences(stored, self.full, inside_commit) if self.is_known else []
        if first_file and not stored and _has_at_most_one_commit(self.full):
            differing = []  # written before the first commit was counted
        elif not self.is_known or is_other_history(differing):
            self.full = dict(stored)
        self.updated, self.is_known, self.last_commit = {}, True, None
        return differing

    def check_differential_state(
        self, state: GtidStateRecord, inside_commit: bool
    ) -> list[tuple[DomainServer, int | None, int | None]]:
        """Compare a state inside a file with the commits; returns the differences. It is trusted after a gap.

        Args:
            inside_commit: see `check_full_state`.
        """
        stored = state_numbers(state)
        if not self.is_known:
            self.full.update(stored)
            self.updated, self.is_known, self.last_commit = dict(stored), True, None
            return []
        return self._find_differences(stored, self.updated, inside_commit)

    def _find_differences(
        self, stored: Mapping[DomainServer, int], expected: Mapping[DomainServer, int], inside_commit: bool
    ) -> list[tuple[DomainServer, int | None, int | None]]:
        """Return the differences, unless the only one is that the commit around the state record is not yet in it."""
        differing = compare_states(stored, expected)
        if inside_commit and len(differing) == 1 and self.last_commit is not None:
            gtid, full, updated = self.last_commit
            before = updated if expected is self.updated else full
            if differing[0] == ((gtid.domain_id, gtid.server_id), before, gtid.seq_no):
                return []
        return differing


def is_other_history(differing: list[tuple[DomainServer, int | None, int | None]]) -> bool:
    """Check for pairs that the other side does not have at all."""
    return any(stored is None or known is None for _, stored, known in differing)


def _has_at_most_one_commit(full: Mapping[DomainServer, int]) -> bool:
    return not full or (len(full) == 1 and next(iter(full.values())) == 1)


def iter_gtid_texts(full: Mapping[DomainServer, int]) -> Iterator[str]:
    """Iterate over the GTIDs of a state as text."""
    return (f"{domain}-{server}-{number}" for (domain, server), number in full.items())
