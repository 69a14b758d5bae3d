"""Convert event groups and GTID states for other log formats.

See docs/spec/mariadb-innodb-binlog.md#67-payload-events.
"""

from __future__ import annotations

from collections.abc import Iterator

from msgspec.structs import replace

from binlogtool.findings import Finding, finding
from binlogtool.formats.binlog_events.codes import TYPES
from binlogtool.formats.binlog_events.events.writing import split_events
from binlogtool.formats.bundling import Bundle, Reached
from binlogtool.formats.fields import MalformedError
from binlogtool.formats.layouts import Batch, Layout
from binlogtool.formats.mariadb_innodb_binlog.codes import RecordType
from binlogtool.formats.mariadb_innodb_binlog.groups.groups import EventGroup, Groups
from binlogtool.formats.mariadb_innodb_binlog.records.context import FileContext
from binlogtool.formats.mariadb_innodb_binlog.records.records import parse_state
from binlogtool.limits import Limits

_COMMIT, _STATE = int(RecordType.COMMIT), int(RecordType.GTID_STATE)


class GroupBundles:
    """`formats.bundling.Bundler` of one file, fed with batches of records."""

    def __init__(self, context: FileContext) -> None:
        self._context = context
        self._groups = Groups(context)

    def of(self, batch: Batch) -> Iterator[Bundle | Reached | Finding]:
        """Iterate over the event groups and states of a batch."""
        codes = batch.frames["type_code"]
        for index in range(batch.frames.count):
            if codes[index] == _COMMIT:
                group = self._groups.at(batch, index)
                yield group if isinstance(group, Finding) else _bundle(group)
            elif codes[index] == _STATE:
                yield from self._state(batch, index)

    def _state(self, batch: Batch, index: int) -> Iterator[Reached]:
        """Yield the GTID state of a state record; the validator reports one that cannot be parsed."""
        assert batch.places is not None
        try:
            state = parse_state(batch.record_bytes(index))
        except MalformedError:
            return
        yield Reached(state.gtids, int(batch.places[0][index]) // self._context.page_size == 1)

    def damage(self, start: int, end: int) -> Iterator[Bundle | Finding]:
        """Yield nothing: a group is in one COMMIT record, so none is open."""
        yield from ()

    def finish(self) -> Iterator[Bundle | Finding]:
        """Yield nothing: no group is open."""
        yield from ()


def _bundle(group: EventGroup) -> Bundle | Finding:
    gtid, head = group.gtid, group.head
    if group.problem is not None:
        return group.problem
    try:
        events = split_events(group.data)
    except MalformedError as error:
        return _misaligned(group, str(error.args[0]))
    if not events:
        return _misaligned(group, "it has no event")
    return Bundle(
        offset=group.place.offset,
        size=group.size,
        record=group.record,
        type=TYPES.get(head.type_code or 0, "UNKNOWN"),
        txn=None if gtid is None else str(gtid),
        seq=None if gtid is None else gtid.seq_no,
        time=head.time,
        origin=head.server_id,
        events=tuple(events),
    )


def _misaligned(group: EventGroup, why: str) -> Finding:
    found = finding("payload-undecodable", group.place.offset, group.size, f"event-misaligned: {why}")
    gtid = None if group.gtid is None else str(group.gtid)
    return replace(found, record=group.record, facts={"diagnosis": "event-misaligned", "gtid": gtid})


def bundles(layout: Layout, limits: Limits) -> GroupBundles:
    """See `formats.base.Reading.bundles`."""
    return GroupBundles(layout.context)
