"""What the rules of a set need to know of one file: `Verdict.facts` of its judge, or made from them by `file_facts`.

A judge may hand over `FileFacts` itself, or `facts.LogFacts`: both are understood, neither has to change for the other.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NamedTuple

from binlogtool.formats.base import Layout
from binlogtool.formats.mysql_binlog.names import log_name
from binlogtool.formats.mysql_binlog.states import GtidState, ListState, SetState, of_list, of_previous


class Named(NamedTuple):
    """An event that names a file of the log, and where it stands."""

    name: str
    offset: int
    size: int
    record: int


@dataclass(frozen=True, slots=True)
class FileFacts:
    """One binary or relay log.

    sealed: encrypted without a key, nothing else is known. in_use: the flag of the FORMAT_DESCRIPTION at `head_at`,
    `head_size`. previous: what PREVIOUS_GTIDS or GTID_LIST says, None without one, at `previous_at`, `previous_size`;
    after: with the complete transactions of this file. rotation: the server's own ROTATE, the last one; stopped: the
    last event is a STOP. checkpoints: the first and the last BINLOG_CHECKPOINT. sources: (relay log) names of source
    files, repetitions left out. open_at: where the group starts that is open at the end; 0 = in a file before this
    one. carried: (relay log of MariaDB) the file begins inside a group. lost: a part of the file was skipped.
    """

    maria: bool
    relay: bool
    sealed: bool = False
    in_use: bool = False
    head_at: int = 4
    head_size: int = 0
    previous: GtidState | None = None
    previous_at: int = 0
    previous_size: int = 0
    after: GtidState | None = None
    rotation: Named | None = None
    stopped: bool = False
    checkpoints: tuple[Named, ...] = ()
    sources: tuple[Named, ...] = ()
    open_at: int | None = None
    carried: bool = False
    lost: bool = False


def file_facts(facts: Any, layout: Layout | None, base: str) -> FileFacts | None:
    """What the rules need, from what a judge handed over. base: base name of the file."""
    if isinstance(facts, FileFacts):
        return facts
    if facts is None or layout is None or not hasattr(facts, "last_of_domain"):
        return None
    head = layout.context.description
    named = [_named(one) for one in facts.sources]
    own = [one for one in named if (known := log_name(one.name)) is not None and known.base == base]
    rotation = facts.rotation and Named(facts.rotation.name, facts.rotation.offset, 0, 0)
    return FileFacts(
        maria=facts.is_mariadb,
        relay=facts.relay,
        sealed=facts.sealed,
        in_use=facts.in_use,
        head_at=layout.frames_at,
        head_size=head.size,
        previous=_before(facts),
        previous_at=layout.frames_at + head.size,
        after=_after(facts),
        rotation=rotation or (own[-1] if own and facts.relay else None),
        stopped=facts.stopped,
        checkpoints=tuple(map(_named, facts.checkpoints)),
        sources=tuple(one for one in named if one not in own),
        open_at=facts.open_group,
        carried=getattr(facts, "carried", False),
        lost=facts.damaged,
    )


def _named(name: str) -> Named:
    return Named(name, 0, 0, 0)


def _before(facts: Any) -> SetState | ListState | None:
    if facts.previous is not None:
        return of_previous(facts.previous)
    return None if facts.listed is None or facts.relay else of_list(facts.listed)


def _after(facts: Any) -> SetState | ListState | None:
    """The state at the end. What was lost in damaged ranges, as the judge says itself, counts as told."""
    state = _before(facts)
    runs = [(source, run[0], run[1]) for source, runs in facts.gtids.items() for run in runs]
    for source, start, stop in (*runs, *facts.lost):
        if state is not None:
            state.extend(source, start, stop)
    return state
