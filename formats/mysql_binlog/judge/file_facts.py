"""Facts about one file for the rules of a log set: GTID states and event offsets."""

from __future__ import annotations

from functools import lru_cache
from typing import NamedTuple

import msgspec

from binlogtool.formats.binlog_events.gtid.states import (
    GtidState,
    MariadbGtidState,
    MysqlGtidState,
    state_of_gtid_list,
    state_of_previous_gtids,
)
from binlogtool.formats.layouts import LogFileLayout
from binlogtool.formats.mysql_binlog.judge.facts import BinlogFacts
from binlogtool.formats.mysql_binlog.members.names import parse_log_name


class FileReference(NamedTuple):
    """Event that names a file of the log; `offset`: where known."""

    name: str
    offset: int = 0


class BinlogFileFacts(msgspec.Struct, frozen=True, eq=False):
    """One binary or relay log.

    `facts`: the validator's facts. `in_use`: the flag of the FORMAT_DESCRIPTION at `head_at` with `head_size`.
    `rotation`: the server's own last ROTATE. `checkpoints`: BINLOG_CHECKPOINT events. `sources`: names of
    source files in a relay log. `open_at`: where the transaction begins that is open at the end.
    `begins_in_group`: the file, a MariaDB relay log, begins inside of a transaction. `is_damaged`: a part of
    the file was skipped, or something in it is wrong.
    """

    facts: BinlogFacts
    is_mariadb: bool
    is_relay: bool
    in_use: bool = False
    head_at: int = 4
    head_size: int = 0
    previous_at: int = 0
    rotation: FileReference | None = None
    checkpoints: tuple[FileReference, ...] = ()
    sources: tuple[FileReference, ...] = ()
    open_at: int | None = None
    begins_in_group: bool = False
    is_damaged: bool = False

    @property
    def state_before(self) -> GtidState | None:
        """GTID state in PREVIOUS_GTIDS or GTID_LIST, None without one; the event is at `previous_at`."""
        return _get_states(self).before

    @property
    def state_after(self) -> GtidState | None:
        """GTID state after the transactions of this file."""
        return _get_states(self).after


class _GtidStates(NamedTuple):
    """GTID states before and after a file."""

    before: GtidState | None
    after: GtidState | None


@lru_cache(maxsize=4)
def _get_states(facts: BinlogFileFacts) -> _GtidStates:
    """Return the GTID states of a file, cached for a few: those of 100,000 files would need much memory."""
    return _GtidStates(_state_before(facts.facts), _state_after(facts.facts))


def make_file_facts(facts: object, layout: LogFileLayout | None, base: str) -> BinlogFileFacts | None:
    """Return the facts that the rules need from those of a validator; None if the file was not read.

    Args:
        base: base name of the file.
    """
    if not isinstance(facts, BinlogFacts) or layout is None:
        return None
    description = layout.context.description
    sources = [FileReference(one) for one in facts.sources]
    own_rotations = [one for one in sources if (parsed := parse_log_name(one.name)) is not None and parsed.base == base]
    rotation = own_rotations[-1] if own_rotations and facts.is_relay else None
    if facts.rotation is not None:
        rotation = FileReference(facts.rotation.name, facts.rotation.offset)
    return BinlogFileFacts(
        facts=facts,
        is_mariadb=facts.is_mariadb,
        is_relay=facts.is_relay,
        in_use=facts.in_use,
        head_at=layout.frames_at,
        head_size=description.size,
        previous_at=layout.frames_at + description.size,
        rotation=rotation,
        checkpoints=tuple(FileReference(mark.name, mark.offset) for mark in facts.checkpoints),
        sources=tuple(one for one in sources if one not in own_rotations),
        open_at=facts.open_group,
        begins_in_group=facts.begins_in_group,
        is_damaged=facts.is_damaged,
    )


def _state_before(facts: BinlogFacts) -> MysqlGtidState | MariadbGtidState | None:
    """Return the GTID state before the file."""
    if facts.previous is not None:
        return state_of_previous_gtids(facts.previous)
    return None if facts.listed is None or facts.is_relay else state_of_gtid_list(facts.listed)


def _state_after(facts: BinlogFacts) -> MysqlGtidState | MariadbGtidState | None:
    """Return the GTID state at the end; GTIDs lost in damaged ranges, as reported by the validator, count as
    present.
    """
    state = _state_before(facts)
    if state is not None:
        for source, ranges in facts.gtids.items():
            state.extend(source, ranges)
        for source, start, stop in facts.lost_ranges:
            state.extend(source, [(start, stop)])
    return state
