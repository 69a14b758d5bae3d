"""What the rules of a set need to know of one file: the judge's facts as GTID states and places in the file."""

from __future__ import annotations

from functools import lru_cache
from typing import NamedTuple

import msgspec

from binlogtool.formats.binlog_events.gtid.states import GtidState, ListState, SetState, of_list, of_previous
from binlogtool.formats.layouts import Layout
from binlogtool.formats.mysql_binlog.judge.facts import LogFacts
from binlogtool.formats.mysql_binlog.members.names import log_name


class Named(NamedTuple):
    """An event that names a file of the log, and where it stands as far as that is known."""

    name: str
    offset: int = 0


class FileFacts(msgspec.Struct, frozen=True, eq=False):
    """One binary or relay log.

    told: the judge's own facts. in_use: the flag of the FORMAT_DESCRIPTION at `head_at`, `head_size`. rotation: the
    server's own ROTATE, the last one. checkpoints: BINLOG_CHECKPOINT events. sources: (relay log) names of source
    files. open_at: where the group starts that is open at the end. carried: (relay log of MariaDB) the file begins
    inside a group. lost: a part of the file was skipped, or something in it is wrong.
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
        """What PREVIOUS_GTIDS or GTID_LIST says, None without one; it stands at `previous_at`."""
        return _states(self).before

    @property
    def after(self) -> GtidState | None:
        """The same with the transactions of this file."""
        return _states(self).after


class _States(NamedTuple):
    before: GtidState | None
    after: GtidState | None


@lru_cache(maxsize=4)
def _states(facts: FileFacts) -> _States:
    """Made where they are asked for: those of 100,000 files would be much. The rules go through the files in order."""
    return _States(_before(facts.told), _after(facts.told))


def file_facts(facts: object, layout: Layout | None, base: str) -> FileFacts | None:
    """What the rules need, from what a judge handed over. base: base name of the file."""
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
    if facts.previous is not None:
        return of_previous(facts.previous)
    return None if facts.listed is None or facts.relay else of_list(facts.listed)


def _after(facts: LogFacts) -> SetState | ListState | None:
    """The state at the end. What was lost in damaged ranges, as the judge says itself, counts as told."""
    state = _before(facts)
    if state is not None:
        for source, runs in facts.gtids.items():
            state.extend(source, runs)
        for source, start, stop in facts.lost:
            state.extend(source, [(start, stop)])
    return state
