"""Read event groups: the content of a COMMIT record, then its out-of-band data.

See docs/spec/mariadb_innodb_binlog.md#commit.

    group = CommitGroupReader(layout.context).read_group(batch, index)     # of a COMMIT record

`batch` comes from a scan of the file at level "record". For a whole log: each file in its order, each batch of it.
"""

from __future__ import annotations

import msgspec

from binlogtool.findings import Finding, make_finding
from binlogtool.formats.fields import MalformedError
from binlogtool.formats.layouts import Batch
from binlogtool.formats.mariadb_innodb_binlog.groups.commits import GroupHead, read_first_event
from binlogtool.formats.mariadb_innodb_binlog.groups.forest import OobForest
from binlogtool.formats.mariadb_innodb_binlog.records.context import IbbFileContext
from binlogtool.formats.mariadb_innodb_binlog.records.records import (
    CommitRecord,
    IbbGtid,
    IbbPosition,
    OobReference,
    parse_commit,
)
from binlogtool.formats.mariadb_innodb_binlog.records.store import PageStore, UnreadableError

FINDING_IDS = {"oob-too-large": "inflate-limit", "oob-shape": "payload-undecodable"}
"""Finding ids by diagnosis, as far as they are not dangling-reference."""


class EventGroup(msgspec.Struct, frozen=True):
    """One event group.

    Attributes:
        position: position of its COMMIT record.
        size: bytes of the COMMIT record in the file.
        record: number of the COMMIT record in the file.
        head: its first event.
        references: of its out-of-band data.
        payload_size: bytes of `data` that are in the COMMIT record.
        data: all events, consecutive, without checksums.
        problem: what is wrong although all data is present.
    """

    position: IbbPosition
    size: int
    record: int
    head: GroupHead
    references: tuple[OobReference, ...]
    payload_size: int
    data: bytes
    problem: Finding | None = None

    @property
    def gtid(self) -> IbbGtid | None:
        """The GTID; None for a FORMAT_DESCRIPTION that a restart wrote."""
        return self.head.gtid


class CommitGroupReader:
    """Reads the groups of one file; caches a few pages, so use one reader per file."""

    def __init__(self, context: IbbFileContext, store: PageStore | None = None) -> None:
        self._context = context
        self.store = store or PageStore(context)

    def read_group(self, batch: Batch, index: int) -> EventGroup | Finding:
        """Read the group of COMMIT record `index` of a batch."""
        assert batch.positions is not None
        offset, size = int(batch.positions[0][index]), int(batch.positions[1][index])
        record = batch.first_record + index
        low, high = int(batch.frames["offset"][index]), int(batch.frames["end"][index])
        data = batch.window[low:high]
        try:
            commit = parse_commit(data)
        except MalformedError as error:
            text = f"commit-malformed: {error.args[0]}"
            return make_finding(error.finding_id, offset, size, text, record=record, diagnosis="commit-malformed")
        position = IbbPosition(self._context.number or 0, offset)
        head = read_first_event(data, commit.payload_at)
        try:
            all_data, forest_problem = self._join_data(data, commit, position)
        except UnreadableError as error:
            return report_unreadable_group(error, offset, size, record, head)
        problem = (
            None if forest_problem is None else report_unreadable_group(forest_problem, offset, size, record, head)
        )
        payload_size = len(data) - commit.payload_at
        return EventGroup(position, size, record, head, commit.references, payload_size, all_data, problem)

    def _join_data(
        self, data: memoryview, commit: CommitRecord, position: IbbPosition
    ) -> tuple[bytes, UnreadableError | None]:
        joined, max_bytes = bytearray(data[commit.payload_at :]), self._context.max_group
        problem = None
        for reference in commit.references:
            forest = OobForest(self.store, reference, position, max_bytes)
            problem = problem or forest.problem
            for piece in forest.iter_pieces():
                joined += piece
                if len(joined) > max_bytes:
                    raise UnreadableError(f"a group of more than {max_bytes:,} bytes", "oob-too-large")
        return bytes(joined), problem


def report_unreadable_group(error: UnreadableError, offset: int, size: int, record: int, head: GroupHead) -> Finding:
    """Create the finding about a COMMIT record whose out-of-band data cannot be read."""
    finding_id = FINDING_IDS.get(error.diagnosis, "dangling-reference")
    hint = "; --max-inflate raises it" if error.diagnosis == "oob-too-large" else ""
    text = f"{error.diagnosis}: {error}{hint}"
    gtid = None if head.gtid is None else str(head.gtid)
    return make_finding(finding_id, offset, size, text, record=record, diagnosis=error.diagnosis, gtid=gtid)
