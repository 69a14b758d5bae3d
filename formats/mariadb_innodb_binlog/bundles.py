"""Convert event groups and GTID states for other log formats.

See docs/spec/mariadb_innodb_binlog.md#payload-events.
"""

from __future__ import annotations

from collections.abc import Iterator

from msgspec.structs import replace

from binlogtool.findings import Finding, make_finding
from binlogtool.formats.binlog_events.codes import EVENT_TYPE_NAMES
from binlogtool.formats.binlog_events.events.writing import split_events
from binlogtool.formats.bundling import PortableEventGroup, PriorGtids
from binlogtool.formats.fields import MalformedError
from binlogtool.formats.layouts import Batch, LogFileLayout
from binlogtool.formats.mariadb_innodb_binlog.codes import IbbRecordType
from binlogtool.formats.mariadb_innodb_binlog.groups.groups import CommitGroupReader, EventGroup
from binlogtool.formats.mariadb_innodb_binlog.records.context import IbbFileContext
from binlogtool.formats.mariadb_innodb_binlog.records.records import parse_state
from binlogtool.limits import Limits

_COMMIT, _STATE = int(IbbRecordType.COMMIT), int(IbbRecordType.GTID_STATE)


class IbbEventGroupReader:
    """`formats.bundling.EventGroupReader` of one file, fed with batches of records."""

    def __init__(self, context: IbbFileContext) -> None:
        self._context = context
        self._groups = CommitGroupReader(context)

    def read_groups(self, batch: Batch) -> Iterator[PortableEventGroup | PriorGtids | Finding]:
        """Iterate over the event groups and states of a batch."""
        codes = batch.frames["type_code"]
        for index in range(batch.frames.count):
            if codes[index] == _COMMIT:
                group = self._groups.read_group(batch, index)
                yield group if isinstance(group, Finding) else _make_portable_group(group)
            elif codes[index] == _STATE:
                yield from self._read_state(batch, index)

    def _read_state(self, batch: Batch, index: int) -> Iterator[PriorGtids]:
        """Yield the GTID state of a state record; the validator reports one that cannot be parsed."""
        assert batch.positions is not None
        try:
            state = parse_state(batch.record_bytes(index))
        except MalformedError:
            return
        yield PriorGtids(state.gtids, int(batch.positions[0][index]) // self._context.page_size == 1)

    def skip_damage(self, start: int, end: int) -> Iterator[PortableEventGroup | Finding]:
        """Yield nothing: a group is in one COMMIT record, so none is open."""
        yield from ()

    def finish(self) -> Iterator[PortableEventGroup | Finding]:
        """Yield nothing: no group is open."""
        yield from ()


def _make_portable_group(group: EventGroup) -> PortableEventGroup | Finding:
    gtid, head = group.gtid, group.head
    if group.problem is not None:
        return group.problem
    try:
        events = split_events(group.data)
    except MalformedError as error:
        return _report_misaligned(group, str(error.args[0]))
    if not events:
        return _report_misaligned(group, "it has no event")
    return PortableEventGroup(
        offset=group.position.offset,
        size=group.size,
        record=group.record,
        type=EVENT_TYPE_NAMES.get(head.type_code or 0, "UNKNOWN"),
        txn=None if gtid is None else str(gtid),
        seq=None if gtid is None else gtid.seq_no,
        time=head.time,
        origin=head.server_id,
        events=tuple(events),
    )


def _report_misaligned(group: EventGroup, reason: str) -> Finding:
    problem = make_finding("payload-undecodable", group.position.offset, group.size, f"event-misaligned: {reason}")
    gtid = None if group.gtid is None else str(group.gtid)
    return replace(problem, record=group.record, facts={"diagnosis": "event-misaligned", "gtid": gtid})


def make_event_group_reader(layout: LogFileLayout, limits: Limits) -> IbbEventGroupReader:
    """See `formats.base.ReadRules.event_groups`."""
    return IbbEventGroupReader(layout.context)
