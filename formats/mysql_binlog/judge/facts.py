"""Facts about one file that the validation of a log set needs."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

import msgspec

from binlogtool.formats.binlog_events.gtid.bodies import ListedGtid, PreviousGtids


class NumberRange(NamedTuple):
    """The numbers `[start, stop)`."""

    start: int
    stop: int


class RotateEvent(msgspec.Struct, frozen=True):
    """A ROTATE event: the next file and the position in it; `offset`: of the event."""

    name: str
    position: int
    offset: int


class CheckpointEvent(NamedTuple):
    """A BINLOG_CHECKPOINT event: the oldest file that crash recovery needs; `offset`: of the event."""

    name: str
    offset: int


class BinlogFacts(msgspec.Struct, frozen=True):
    """Facts about one log from its validator.

    `previous`: the set in PREVIOUS_GTIDS; `listed`: the entries of GTID_LIST in order; None without such an
    event. `gtids`: the GTIDs of this file by source ("uuid", "uuid:tag", "domain-server"). `last_of_domain`:
    (server, number) of the last GTID of each domain, those of GTID_LIST included. `lost_ranges`: GTIDs that
    must have been in damaged ranges, as (source, first, stop). `rotation`: the ROTATE that closes the file;
    `sources`: names in the ROTATE events of a relay log, in order. `checkpoints`: the BINLOG_CHECKPOINT events
    in order. `open_group`: where an incomplete transaction begins (0: in the preceding file).
    `begins_in_group`: the file, a MariaDB relay log, begins inside of a transaction. `ends_with_stop`: the last
    event is STOP. `is_damaged`: a part was skipped, or an event breaks a rule (`faults` of them). `first_time`,
    `last_time`: seconds since 1970 of the first and last event that has a time, 0 for none. `lacks_key`:
    encrypted without a key; nothing else is known then.
    """

    server_version: str
    is_mariadb: bool
    is_relay: bool
    checksum: str
    in_use: bool
    created: int
    previous: tuple[PreviousGtids, ...] | None
    listed: tuple[ListedGtid, ...] | None
    gtids: Mapping[str, tuple[NumberRange, ...]]
    last_of_domain: Mapping[int, tuple[int, int]]
    lost_ranges: tuple[tuple[str, int, int], ...]
    rotation: RotateEvent | None
    sources: tuple[str, ...]
    checkpoints: tuple[CheckpointEvent, ...]
    open_group: int | None
    ends_with_stop: bool
    is_damaged: bool
    faults: int
    transactions: int
    first_time: int
    last_time: int
    lacks_key: bool = False
    begins_in_group: bool = False
