"""Validation: validators, their results, and file ends."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Any, Protocol

import msgspec

from binlogtool.findings import Finding
from binlogtool.formats.layouts import Batch, LogFileLayout


class ValidationResult(msgspec.Struct, frozen=True):
    """The result of the validator of one file.

    Args:
        transactions: number of complete ones.
        record_types: counts by type name.
        findings: those that are only known at the end of the file.
        durable_end: None = the engine's rule (end of the last good frame before damage).
        facts: passed to `validate_set` (frozen, opaque to the engine).
        details: extra JSON for the report.
        repairable: False = there is no durable end, as the file's header is damaged.
        sequences: first and last sequence number, if `ValidationRules.validator_reports_sequences`.
    """

    transactions: int
    record_types: Mapping[str, int]
    findings: tuple[Finding, ...] = ()
    durable_end: int | None = None
    facts: Any = None
    details: Mapping[str, Any] = msgspec.field(default_factory=lambda: MappingProxyType({}))
    repairable: bool = True
    sequences: tuple[int | None, int | None] = (None, None)


class Validator(Protocol):
    """Validate the records of one file, in file order: sequences, transactions, cross-references."""

    def feed(self, batch: Batch) -> Sequence[Finding]:
        """Return the findings of this batch (absolute offsets)."""

    def skip_damage(self, start: int, end: int) -> None:
        """Note that `[start, end)` of the file was skipped: a sequence gap here needs no finding of its own."""

    def finish(self, tail: FileTail) -> ValidationResult:
        """Return the result at the end of the file."""


class FileTail(msgspec.Struct, frozen=True):
    """How a file ends.

    Args:
        end: of the last good frame.
        size: of the file.
        closed: the end mark was seen; None = the format has none.
        first_damage: start of the first skipped range, or None.
    """

    end: int
    size: int
    closed: bool | None
    first_damage: int | None
    findings: tuple[Finding, ...] = ()


class SetMember(msgspec.Struct, frozen=True):
    """One file of a set for `validate_set`: name relative to the set, layout, result and tail (None = not read)."""

    name: str
    layout: LogFileLayout | None
    verdict: ValidationResult | None
    tail: FileTail | None


class SetFinding(msgspec.Struct, frozen=True):
    """A finding about a set. `file`: name of the member that it is about, also one that does not exist."""

    file: str
    finding: Finding
    replaces_ids: tuple[str, ...] = ()
    """Ids of this file's own findings that this one replaces (a torn tail that turns out to be lost rows)."""
