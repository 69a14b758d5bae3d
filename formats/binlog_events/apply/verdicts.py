"""What becomes of an event, and what the applier tells beside that."""

from __future__ import annotations

from typing import NamedTuple

from binlogtool.formats.binlog_events.groups.open_group import Verdict
from binlogtool.formats.replay_rules import APPLIED, SKIPPED

COMMITTED: Verdict = (APPLIED, "committed")


STATEMENT: Verdict = (APPLIED, "statement")


CONTROL: Verdict = (SKIPPED, "control")


INCOMPLETE: Verdict = (SKIPPED, "incomplete")


ROLLED_BACK: Verdict = (SKIPPED, "rolled-back")


SAVED: Verdict = (SKIPPED, "rolled-back-to-savepoint")


NO_MAP: Verdict = (SKIPPED, "no-table-map")


class Failure(NamedTuple):
    """Where the applier gives up: number of the record, and its words."""

    number: int
    offset: int
    why: str


class Lost(NamedTuple):
    """Rows that the applier passes over without a word. at: offset of the event; of a transaction that is open."""

    at: int
    size: int
    record: int
    gtid: str | None
