"""Envelope columns of records, and bodies with findings."""

from __future__ import annotations

from typing import Any, NamedTuple

import msgspec

from binlogtool.findings import Finding


class BodyWithFindings(NamedTuple):
    """A body that can be shown, with findings about it."""

    body: Any
    findings: tuple[Finding, ...]


class EnvelopeColumns(msgspec.Struct, frozen=True):
    """The envelope fields of consecutive records, one list entry per record.

    time: microseconds since 1970-01-01 UTC. Entries are None where the format has no such value.
    """

    type: list[str]
    seq: list[int | None]
    time: list[int | None]
    object: list[str | None]
    origin: list[int | None]
    txn: list[str | int | None]

    def part(self, start: int, stop: int) -> EnvelopeColumns:
        """Return the envelopes of the records `[start, stop)`."""
        cut = slice(start, stop)
        return EnvelopeColumns(
            self.type[cut], self.seq[cut], self.time[cut], self.object[cut], self.origin[cut], self.txn[cut]
        )
