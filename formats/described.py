"""What `dump` shows of records: their envelopes, and bodies that come with something to say."""

from __future__ import annotations

from typing import Any, NamedTuple

import msgspec

from binlogtool.findings import Finding


class Noted(NamedTuple):
    """A body that can be shown, with something to say about it."""

    body: Any
    findings: tuple[Finding, ...]


class Described(msgspec.Struct, frozen=True):
    """The envelope of a run of records, one list entry each (cli.md 6.19, "what the shared fields mean").

    time: microseconds since 1970-01-01 UTC. Entries may be None where the format has nothing to say.
    """

    type: list[str]
    seq: list[int | None]
    time: list[int | None]
    object: list[str | None]
    origin: list[int | None]
    txn: list[str | int | None]

    def part(self, start: int, stop: int) -> Described:
        """The records `[start, stop)`."""
        cut = slice(start, stop)
        return Described(
            self.type[cut], self.seq[cut], self.time[cut], self.object[cut], self.origin[cut], self.txn[cut]
        )
