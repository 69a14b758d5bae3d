"""Facts about one file for the rules of a log set: GTID states and event offsets."""

from __future__ import annotations

from functools import lru_cache
from typing import NamedTuple

import msgspec

from binlogtool.formats.binlog_events.gtid.states import GtidState, ListState, SetState, of_list, of_previous
from binlogtool.formats.layouts import Layout
from binlogtool.formats.mysql_binlog.judge.facts import LogFacts
from binlogtool.formats.mysql_binlog.members.names import log_name


class Named(NamedTuple):
    """Event that names a file of the log; `offset`: where known."""

    name: str
    offset: int = 0


class FileFacts(msgspec.Struct, frozen=True, eq=False):
    """One binary or relay log.

    `facts`: the validator's facts. `in_use`: the flag of the FORMAT_DESCRIPTION at `head_at` with `head_size`.
    `rotation`: the server's own last ROTATE. `checkpoints`: BINLOG_CHECKPOINT events. `sources`: names of
    source files in a relay log. `open_at`: where the transaction begins that is open at the end.
    `begins_in_group`: the file, a MariaDB relay log, begins inside of a transaction. `is_damaged`: a part of
    the file was skipped, or something in it is wrong.
    """

    told: LogFacts
    maria: bool
    relay: bool
    in_use: bool = False
    head_at: int = 4
    head_size: int = 0
    previous_at: int = 0
    rotation: Named | None = None
    checkpoints: tuple[Named, ...] = ()
    sources: tuple[Named, ...] = ()
    open_at: int | None = None
    carried: bool = False
    lost: bool = False

    @property
    def previous(self) -> GtidState | None:
        """GTID state in PREVIOUS_GTIDS or GTID_LIST, None without one; the event is at `previous_at`."""
        return _states(self).before

    @property
    def after(self) -> GtidState | None:
        """GTID state after the transactions of this file."""
        return _states(self).after


class _States(NamedTuple):
    """GTID states before and after a file."""

    before: GtidState | None
    after: GtidState | None


@lru_cache(maxsize=4)
def _states(facts: FileFacts) -> _States:
    """Return the GTID states of a file, cached for a few: those of 100,000 files would need much memory."""
    return _States(_before(facts.told), _after(facts.told))


def file_facts(facts: object, layout: Layout | None, base: str) -> FileFacts | None:
    """Return the facts that the rules need from those of a validator; None if the file was not read.

    Args:
        base: base name of the file.
    """
    if not isinstance(facts, LogFacts) or layout is None:
        return None
    head = layout.context.description
    named = [Named(one) for one in facts.sources]
    own = [one for one in named if (known := log_name(one.name)) is not None and known.base == base]
    rotation = own[-1] if own and facts.relay else None
    if facts.rotation is not None:
        rotation = Named(facts.rotation.name, facts.rotation.offset)
    return FileFacts(
        told=facts,
        maria=facts.is_mariadb,
        relay=facts.relay,
        in_use=facts.in_use,
        head_at=layout.frames_at,
        head_size=head.size,
        previous_at=layout.frames_at + head.size,
        rotation=rotation,
        checkpoints=tuple(Named(mark.name, mark.offset) for mark in facts.checkpoints),
        sources=tuple(one for one in named if one not in own),
        open_at=facts.open_group,
        carried=facts.carried,
        lost=facts.damaged,
    )


def _before(facts: LogFacts) -> SetState | ListState | None:
    """Return the GTID state before the file."""
    if facts.previous is not None:
        return of_previous(facts.previous)
    return None if facts.listed is None or facts.relay else of_list(facts.listed)


def _after(facts: LogFacts) -> SetState | ListState | None:
    """Return the GTID state at the end; GTIDs lost in damaged ranges, as reported by the validator, count as
    present.
    """
    state = _before(facts)
    if state is not None:
        for source, runs in facts.gtids.items():
            state.extend(source, runs)
        for source, start, stop in facts.lost:
            state.extend(source, [(start, stop)])
    return state
