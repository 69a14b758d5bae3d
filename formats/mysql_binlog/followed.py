"""What the rules of a set need to know of one file: the judge hands it over as `Verdict.facts`."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

from binlogtool.formats.mysql_binlog.states import GtidState


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
