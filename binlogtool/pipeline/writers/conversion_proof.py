"""Digest of the transactions of a conversion, to compare what was read with what was written."""

from __future__ import annotations

import hashlib
from typing import Any

import msgspec

from binlogtool.formats.binlog_events.codes import EventType
from binlogtool.formats.bundling import PortableEventGroup

_MUTABLE_BYTES = slice(9, 17)
_FORMAT_DESCRIPTION = int(EventType.FORMAT_DESCRIPTION)


class GtidRuns(msgspec.Struct):
    """GTIDs in the order of the log, as ranges: domain-server -> [first, last] of each run without gaps."""

    runs: dict[str, list[list[int]]] = msgspec.field(default_factory=dict)
    count: int = 0

    def add(self, gtid: str) -> None:
        """Add the next GTID."""
        source, _, text = gtid.rpartition("-")
        number, runs = int(text), self.runs.setdefault(source, [])
        self.count += 1
        if runs and runs[-1][1] + 1 == number:
            runs[-1][1] = number
        else:
            runs.append([number, number])

    def to_texts(self) -> list[str]:
        """Return a text such as `0-1-5..42` for each run."""
        return [
            f"{source}-{low}" if low == high else f"{source}-{low}..{high}"
            for source, runs in self.runs.items()
            for low, high in runs
        ]


class TransactionDigest(msgspec.Struct):
    """Counts and a hash of what a conversion must preserve: each event without event_size, end_log_pos and checksum."""

    bundles: int = 0
    events: int = 0
    gtids: GtidRuns = msgspec.field(default_factory=GtidRuns)
    _hash: Any = msgspec.field(default_factory=hashlib.sha256)

    def add(self, bundle: PortableEventGroup) -> None:
        """Add the next transaction; FORMAT_DESCRIPTION events belong to the container and are ignored."""
        events = [event for event in bundle.events if event[4] != _FORMAT_DESCRIPTION]
        self.bundles += bool(events)
        self.events += len(events)
        if bundle.txn is not None:
            self.gtids.add(bundle.txn)
        for event in events:
            self._hash.update(event[: _MUTABLE_BYTES.start] + event[_MUTABLE_BYTES.stop :])

    @property
    def sha256(self) -> str:
        """SHA-256 of the events so far."""
        return str(self._hash.hexdigest())

    def __eq__(self, other: object) -> bool:
        return isinstance(other, TransactionDigest) and self._comparison_key == other._comparison_key

    @property
    def _comparison_key(self) -> tuple[Any, ...]:
        return self.bundles, self.events, self.gtids.runs, self.sha256
