"""Read event groups: the content of a COMMIT record, then its out-of-band data.

See docs/spec/mariadb-innodb-binlog.md#61-commit-type-1-one-event-group.

    group = CommitGroupReader(layout.context).read_group(batch, index)     # of a COMMIT record

`batch` comes from a scan of the file at level "record". For a whole log: each file in its order, each batch of it.
"""

from __future__ import annotations

import msgspec

from binlogtool.findings import Finding, finding
from binlogtool.formats.fields import MalformedError
from binlogtool.formats.layouts import Batch
from binlogtool.formats.mariadb_innodb_binlog.groups.commits import GroupHead, first_event
from binlogtool.formats.mariadb_innodb_binlog.groups.forest import Forest
from binlogtool.formats.mariadb_innodb_binlog.records.context import FileContext
from binlogtool.formats.mariadb_innodb_binlog.records.records import Commit, Gtid, Place, Reference, parse_commit
from binlogtool.formats.mariadb_innodb_binlog.records.store import Store, UnreadableError

FINDINGS = {"oob-too-large": "inflate-limit", "oob-shape": "payload-undecodable"}
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

    place: Place
    size: int
    record: int
    head: GroupHead
    references: tuple[Reference, ...]
    payload: int
    data: bytes
    problem: Finding | None = None

    @property
    def gtid(self) -> Gtid | None:
        """The GTID; None for a FORMAT_DESCRIPTION that a restart wrote."""
        return self.head.gtid


class Groups:
    """Reads the groups of one file; caches a few pages, so use one reader per file."""

    def __init__(self, context: FileContext, store: Store | None = None) -> None:
        self._context = context
        self.store = store or Store(context)

    def at(self, batch: Batch, index: int) -> EventGroup | Finding:
        """Read the group of COMMIT record `index` of a batch."""
        assert batch.places is not None
        offset, size = int(batch.places[0][index]), int(batch.places[1][index])
        record = batch.first_record + index
        low, high = int(batch.frames["offset"][index]), int(batch.frames["end"][index])
        data = batch.window[low:high]
        try:
            commit = parse_commit(data)
        except MalformedError as error:
            text = f"commit-malformed: {error.args[0]}"
            return finding(error.finding_id, offset, size, text, record=record, diagnosis="commit-malformed")
        place = Place(self._context.number or 0, offset)
        head = first_event(data, commit.payload)
        try:
            whole, wrong = self._whole(data, commit, place)
        except UnreadableError as error:
            return unreadable(error, offset, size, record, head)
        problem = None if wrong is None else unreadable(wrong, offset, size, record, head)
        payload = len(data) - commit.payload
        return EventGroup(place, size, record, head, commit.references, payload, whole, problem)

    def _whole(self, data: memoryview, commit: Commit, place: Place) -> tuple[bytes, UnreadableError | None]:
        joined, most = bytearray(data[commit.payload :]), self._context.max_group
        problem = None
        for reference in commit.references:
            forest = Forest(self.store, reference, place, most)
            problem = problem or forest.problem
            for piece in forest.pieces():
                joined += piece
                if len(joined) > most:
                    raise UnreadableError(f"a group of more than {most:,} bytes", "oob-too-large")
        return bytes(joined), problem


def unreadable(error: UnreadableError, offset: int, size: int, record: int, head: GroupHead) -> Finding:
    """Create the finding about a COMMIT record whose out-of-band data cannot be read."""
    id_ = FINDINGS.get(error.diagnosis, "dangling-reference")
    hint = "; --max-inflate raises it" if error.diagnosis == "oob-too-large" else ""
    text = f"{error.diagnosis}: {error}{hint}"
    gtid = None if head.gtid is None else str(head.gtid)
    return finding(id_, offset, size, text, record=record, diagnosis=error.diagnosis, gtid=gtid)
