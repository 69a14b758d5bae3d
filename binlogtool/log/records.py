"""Records as values: blocks of records for bulk work, single records for everything else."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import msgspec
from msgspec.structs import replace

from binlogtool.findings import Finding
from binlogtool.formats.described import EnvelopeColumns
from binlogtool.formats.longvalues import LongValue

if TYPE_CHECKING:
    from datetime import datetime

    from binlogtool.formats.tables import EventRows


class RecordChecksum(NamedTuple):
    """The checksum of a record's frame. ok: None = the file stores none here ("not computed")."""

    algorithm: str
    stored: int
    computed: int
    ok: bool | None


class InnerPosition(NamedTuple):
    """Position of a record in its own (unpacked) address space, in bytes."""

    offset: int
    size: int


class FileFinding(NamedTuple):
    """A finding about a file, in order with its records: damage between them."""

    file: str
    finding: Finding


class FollowLoss(NamedTuple):
    """Part of a followed file that can no longer be read. status: exit status of a command for it."""

    file: str
    reason: str
    status: int


class SqlFragment(NamedTuple):
    """Part of a script that is made of these records of a file. offset: of the last one.

    data: valid until the next part is requested.
    """

    file: str
    record: Sequence[int]
    offset: tuple[int]
    data: bytes | memoryview


class RowBatch(NamedTuple):
    """Table rows of many consecutive records.

    Args:
        record: number in the file of the batch's first record.
        base: file offset of the batch's window.
        end: where the last record ends.
    """

    file: str
    format: str
    record: int
    base: int
    end: int
    rows: EventRows


class ScriptSummary(NamedTuple):
    """Content of a finished script. row_changes: None = they are not counted. is_empty: nothing of the log is in it."""

    row_changes: int | None
    is_empty: bool


class ScriptText(NamedTuple):
    """Part of a script of statements that belongs to no record. end: set for the last one."""

    data: bytes
    end: ScriptSummary | None = None


class RecordBlock(msgspec.Struct, frozen=True):
    """Consecutive selected records of one file; all sequences have the same length.

    Args:
        offset, size: bytes of the file (of the container, for records inside a packed frame: then `inner` has the
            position).
        record: index in the file, counting provable records from 0.
        bodies: JSON-able values with bytes left as bytes; in an SQL script, the text for the record.
        findings: index in the block -> findings about that record.
        raw: the record's bytes in its own address space.
    """

    file: str
    format: str
    record: Sequence[int]
    offset: Sequence[int]
    size: Sequence[int]
    inner: Sequence[InnerPosition | None]
    envelope: EnvelopeColumns
    checksum: Sequence[RecordChecksum | None]
    bodies: Sequence[Any]
    extras: Sequence[Mapping[str, Any] | None] | None
    findings: Mapping[int, tuple[Finding, ...]]
    raw: Sequence[bytes] | None = None
    long_values: Mapping[str, LongValue] = {}
    """Values that are not in the bodies, which hold marks in place of them (`log.longvalues`)."""

    def __len__(self) -> int:
        return len(self.record)

    def __iter__(self) -> Iterator[Record]:
        return (self.record_at(i) for i in range(len(self.record)))

    def part(self, start: int, stop: int) -> RecordBlock:
        """Return the records `[start, stop)` of this block as a block of their own."""
        cut = slice(start, stop)
        return replace(
            self,
            record=self.record[cut],
            offset=self.offset[cut],
            size=self.size[cut],
            inner=self.inner[cut],
            envelope=self.envelope.part(start, stop),
            checksum=self.checksum[cut],
            bodies=self.bodies[cut],
            extras=self.extras[cut] if self.extras else None,
            findings={i - start: found for i, found in self.findings.items() if start <= i < stop},
            raw=self.raw[cut] if self.raw else None,
        )

    def record_at(self, i: int) -> Record:
        """Return record number `i` of this block."""
        e = self.envelope
        return Record(
            self.file, self.format, self.record[i], self.offset[i], self.size[i], self.inner[i], e.type[i], e.seq[i],
            e.time[i], e.object[i], e.origin[i], e.txn[i], self.checksum[i], self.bodies[i] if self.bodies else None,
            self.extras[i] if self.extras else None, self.findings.get(i, ()), self.raw[i] if self.raw else None,
        )  # fmt: skip


class Record(msgspec.Struct, frozen=True):
    """One record.

    Args:
        record: index in the file, counting provable records from 0.
        offset, size: bytes of the file (of the container, for records inside a packed frame: then `inner` has the
            position).
        time: microseconds since 1970-01-01 UTC.
        seq, object, origin, txn: sequence number, affected object, server id and transaction, where the format has
            them.
        raw: the record's bytes in its own address space.
    """

    file: str
    format: str
    record: int
    offset: int
    size: int
    inner: InnerPosition | None
    type: str
    seq: int | None
    time: int | None
    object: str | None
    origin: int | None
    txn: str | int | None
    checksum: RecordChecksum | None
    body: Any = None
    extras: Mapping[str, Any] | None = None
    findings: tuple[Finding, ...] = ()
    raw: bytes | None = None

    @property
    def when(self) -> datetime | None:
        """`time` as a datetime in UTC; None also where it is out of range for a `datetime`."""
        from datetime import UTC, datetime, timedelta

        try:
            return None if self.time is None else datetime(1970, 1, 1, tzinfo=UTC) + timedelta(microseconds=self.time)
        except OverflowError:
            return None
