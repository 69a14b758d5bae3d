"""Verdicts on events, and what the applier reports in addition."""

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
    """Record at which the applier gives up, and why."""

    number: int
    offset: int
    why: str


class Lost(NamedTuple):
    """Rows that the applier skips without an error; `offset`: offset of the event, `gtid`: of the open
    transaction.
    """

    at: int
    size: int
    record: int
    gtid: str | None
