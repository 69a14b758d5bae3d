"""Verdicts on events, and what the applier reports in addition."""

from __future__ import annotations

from typing import NamedTuple

from binlogtool.formats.binlog_events.groups.open_group import RulingVerdict
from binlogtool.formats.replay_rules import APPLIED, SKIPPED

COMMITTED: RulingVerdict = (APPLIED, "committed")


STATEMENT: RulingVerdict = (APPLIED, "statement")


CONTROL: RulingVerdict = (SKIPPED, "control")


INCOMPLETE: RulingVerdict = (SKIPPED, "incomplete")


ROLLED_BACK: RulingVerdict = (SKIPPED, "rolled-back")


ROLLED_BACK_TO_SAVEPOINT: RulingVerdict = (SKIPPED, "rolled-back-to-savepoint")


NO_MAP: RulingVerdict = (SKIPPED, "no-table-map")


class ApplierFailure(NamedTuple):
    """Record at which the applier gives up, and why."""

    number: int
    offset: int
    reason: str


class SkippedRows(NamedTuple):
    """Rows that the applier skips without an error; `offset`: offset of the event, `gtid`: of the open
    transaction.
    """

    offset: int
    size: int
    record: int
    gtid: str | None
