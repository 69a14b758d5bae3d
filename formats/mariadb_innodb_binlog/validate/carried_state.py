"""GTID states, commit marks and open transactions that validators carry from file to file.

No server writes anything else, and classic binary logs cannot hold it: their recovery depends on these marks.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import islice
from typing import NamedTuple

import msgspec

from binlogtool.formats.binlog_events.transactions.boundaries import XaId
from binlogtool.formats.mariadb_innodb_binlog.records.records import (
    GtidStateRecord,
    IbbGtid,
    IbbPosition,
    XaPrepareRecord,
)

# --- GTID states and the commits between them ---

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

    `is_known`: False = commits may have been missed, so the next stored state is trusted. `full`: last number of each
    pair. `updated`: numbers that changed since the start of this file. `last_commit`: the last commit, and the numbers
    that its pair had before in `full` and `updated`.
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

        `inside_commit`: see `check_full_state`.
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


# --- Commit marks ---

MAX_RECENT_XIDS = 4096
"""Number of XIDs that are remembered."""


class CommitAnomaly(NamedTuple):
    """An anomaly of a group: id and diagnosis of the finding, and its text."""

    id: str
    diagnosis: str
    text: str


class CommitMarkChecker(msgspec.Struct):
    """Checks the commit marks of one log, in its order."""

    _recent: dict[int, None] = msgspec.field(default_factory=dict)

    def restart(self) -> None:
        """Forget all XIDs: a server was started and restarts its count."""
        self._recent.clear()

    def check_group(self, xid: int, *, joined: bool) -> Iterator[CommitAnomaly]:
        """Check the next group.

        Args:
            xid: 0 = it has none.
            joined: see `commits.CommitNumbers`.
        """
        if joined:
            text = "the group contains events of another transaction without a GTID event before them"
            yield CommitAnomaly("incomplete-transaction", "no-gtid", text)
        if not xid:
            return
        if xid in self._recent:
            yield CommitAnomaly("duplicate-sequence", "xid-twice", f"XID {xid} was already used by another transaction")
            return
        self._recent[xid] = None
        if len(self._recent) > MAX_RECENT_XIDS:
            del self._recent[next(iter(self._recent))]


# --- Unreferenced out-of-band records ---

MAX_TRACKED_RECORDS = 1 << 17
"""Number of records that are tracked; the oldest are dropped first."""


class UnreferencedOobTracker(msgspec.Struct):
    """Tracks the OOB_DATA records of a log.

    `first_file`: first of the files that were followed without a gap. `forgotten`: number of records that are no longer
    tracked.
    """

    first_file: int | None = None
    forgotten: int = 0
    _sizes: dict[tuple[int, int], int] = msgspec.field(default_factory=dict)

    def add_records(self, places: Sequence[tuple[int, int]], sizes: Sequence[int]) -> None:
        """Add records, in order."""
        self._sizes.update(zip(places, sizes, strict=True))
        too_many = len(self._sizes) - MAX_TRACKED_RECORDS
        if too_many > 0:
            for place in list(islice(self._sizes, too_many)):
                del self._sizes[place]
            self.forgotten += too_many

    def would_know(self, position: IbbPosition) -> bool:
        """Check if a record at this position would be tracked, unless a COMMIT record referred to it."""
        return self.first_file is not None and position.file_no >= self.first_file and not self.forgotten

    def mark_referenced(self, places: Iterable[IbbPosition]) -> IbbPosition | None:
        """Mark the records that a COMMIT record refers to; returns one that was referred to before."""
        shared = None
        for place in places:
            if self._sizes.pop(place, None) is None:
                shared = shared or (place if self.would_know(place) else None)
        return shared

    def restart_at(self, next_file: int) -> None:
        """Record that records before a file may have been missed."""
        self.first_file = next_file

    def count_unreferenced(self) -> tuple[int, int]:
        """Return the number of tracked records that no COMMIT record refers to, and their bytes."""
        return len(self._sizes), sum(self._sizes.values())


# --- State shared by the validators of a log ---


class LogValidationState(msgspec.Struct):
    """Validation state that is carried from file to file of one log.

    `last_file`: of the file validated last. `last_file_intact`: that file had no damage. `commit_span`: file number,
    offset and end of the last commit. `commit_continues`: the last commit was incomplete at the end of its file.
    """

    last_file: int | None = None
    last_file_intact: bool = False
    gtid_state: GtidStateTracker = msgspec.field(default_factory=GtidStateTracker)
    oob_tracker: UnreferencedOobTracker = msgspec.field(default_factory=UnreferencedOobTracker)
    pending: dict[XaId, XaPrepareRecord] = msgspec.field(default_factory=dict)
    commit_span: tuple[int, int, int] = (0, 0, 0)
    commit_continues: bool = False
    marks: CommitMarkChecker = msgspec.field(default_factory=CommitMarkChecker)

    def is_inside_commit(self, position: IbbPosition) -> bool:
        """Check if the record at this position is between the chunks of the last commit."""
        number, first, stop = self.commit_span
        if number == position.file_no:
            return first < position.offset < stop
        return self.commit_continues and number + 1 == position.file_no


class IbbFileFacts(msgspec.Struct, frozen=True):
    """Facts about a file that `validate_log_set` needs.

    `unreached`: number and bytes of out-of-band records that no COMMIT record refers to so far. `pending`: number of
    prepared XA transactions.
    """

    unreached: tuple[int, int] = (0, 0)
    pending: int = 0
    damaged: bool = False
