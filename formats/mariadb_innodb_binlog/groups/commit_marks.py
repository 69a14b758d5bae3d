"""Commit marks: a transaction has one XID event, at its end, and no other transaction of the same run has its number.

No server writes anything else, and other containers cannot hold it: there recovery goes by these marks.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import msgspec

RECENT = 4096
"""XIDs that are remembered."""


class Oddity(NamedTuple):
    """What is odd: id and diagnosis of the finding, and the words."""

    id: str
    diagnosis: str
    text: str


class CommitMarks(msgspec.Struct):
    """Those of one log, in its order."""

    _recent: dict[int, None] = msgspec.field(default_factory=dict)

    def restart(self) -> None:
        """A server was started: it counts anew."""
        self._recent.clear()

    def take(self, xid: int, *, joined: bool) -> Iterator[Oddity]:
        """The next group. xid: 0 = it has none. joined: see `commits.CommitNumbers`."""
        if joined:
            text = "events of another transaction stand in the group, without a GTID event in front of them"
            yield Oddity("incomplete-transaction", "no-gtid", text)
        if not xid:
            return
        if xid in self._recent:
            yield Oddity("duplicate-sequence", "xid-twice", f"XID {xid}, which another transaction has already")
            return
        self._recent[xid] = None
        if len(self._recent) > RECENT:
            del self._recent[next(iter(self._recent))]
