"""Check commit marks: a transaction has one XID event, at its end, and its XID is unique in one run of the server.

No server writes anything else, and classic binary logs cannot hold it: their recovery depends on these marks.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import msgspec

MAX_RECENT_XIDS = 4096
"""XIDs that are remembered."""


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
            text = "events of another transaction stand in the group, without a GTID event in front of them"
            yield CommitAnomaly("incomplete-transaction", "no-gtid", text)
        if not xid:
            return
        if xid in self._recent:
            yield CommitAnomaly("duplicate-sequence", "xid-twice", f"XID {xid}, which another transaction has already")
            return
        self._recent[xid] = None
        if len(self._recent) > MAX_RECENT_XIDS:
            del self._recent[next(iter(self._recent))]
