"""What is said of a file, and of a set of them: judges, verdicts, ends."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Any, Protocol

import msgspec

from binlogtool.findings import Finding
from binlogtool.formats.layouts import Batch, Layout


class Verdict(msgspec.Struct, frozen=True):
    """What the judge of one file says at its end.

    transactions: complete ones. durable_end: None = the engine's rule (end of the last good frame before damage).
    record_types: counts by type name. findings: those that only the end of the file can tell.
    facts: handed to `judge_set` (frozen, opaque to the engine). details: extra JSON for the report.
    repairable: False = no durable end exists, for the file's head is damaged. sequences: the first and the last
    sequence number, where `Format.numbers_by_judge` says so.
    """

    transactions: int
    record_types: Mapping[str, int]
    findings: tuple[Finding, ...] = ()
    durable_end: int | None = None
    facts: Any = None
    details: Mapping[str, Any] = msgspec.field(default_factory=lambda: MappingProxyType({}))
    repairable: bool = True
    sequences: tuple[int | None, int | None] = (None, None)


class Judge(Protocol):
    """A fold over the records of one file, in file order: sequences, transactions, cross-references."""

    def feed(self, batch: Batch) -> Sequence[Finding]:
        """Findings of this batch (absolute offsets)."""

    def damage(self, start: int, end: int) -> None:
        """`[start, end)` of the file was skipped: sequences may jump here without a finding of their own."""

    def finish(self, tail: Tail) -> Verdict:
        """The end of the file was reached."""


class Tail(msgspec.Struct, frozen=True):
    """How the file ends: `end` of the last good frame, `size`, and whether the end mark was seen (None = has none).

    damaged: some range before the end was skipped. first_damage: its start, or None.
    """

    end: int
    size: int
    closed: bool | None
    first_damage: int | None
    findings: tuple[Finding, ...] = ()


class Member(msgspec.Struct, frozen=True):
    """One file of a set, as `judge_set` sees it: name relative to the set, layout, verdict and tail (None = unread)."""

    name: str
    layout: Layout | None
    verdict: Verdict | None
    tail: Tail | None


class SetFinding(msgspec.Struct, frozen=True):
    """A finding about a set. `file` = name of the member it is about, also one that does not exist."""

    file: str
    finding: Finding
    withdraws: tuple[str, ...] = ()
    """Ids of this file's own findings that this one replaces (a torn tail that turns out to be lost rows)."""
