"""Validate overwrites and removals: data, footer and control block against each other.

See docs/spec/eblob.md#data-sort-records and docs/spec/eblob.md#validation.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator
from typing import NamedTuple

import msgspec

from binlogtool.findings import Finding, Severity, make_finding
from binlogtool.formats.derived import make_unpacker
from binlogtool.formats.eblob.groups.grouping import EblobRecord, EblobRecordKind
from binlogtool.formats.eblob.schema import CONTROL, CONTROL_SIZE, FOOTER_SIZE, HASH_SIZE, ControlFlag

MAX_KEYS = 1 << 17
"""Keys whose place in the data file is remembered; beyond that the check of their later records is left out."""

MAX_UNFINISHED = 1024
"""Overwrites without an end that are told one by one."""

KEY_DIFFERS = "control block key differs from record key"
DISK_SIZE_DIFFERS = "control block disk_size implausible / differs from the other control blocks of the same record"
DATA_SIZE_DIFFERS = "control block data_size implausible"
POSITION_DIFFERS = "control block position differs from the target offset"
HASH_DIFFERS = "data does not match the checksum in the footer record that follows"
FLAG_DIFFERS = "control block says there is a checksum, and the footer has none"
REMOVE_ELSEWHERE = "removal at another place than the control block of its key"
UNFINISHED = "incomplete group"

NO_HASH = bytes(HASH_SIZE)


class DiskControl(NamedTuple):
    """Members of an eblob_disk_control."""

    key: bytes
    flags: int
    data_size: int
    disk_size: int
    position: int


_unpack_control = make_unpacker(CONTROL, *DiskControl._fields)


class DataFileExtent(NamedTuple):
    """Start and size of a record in the data file."""

    start: int
    disk_size: int


class OverwriteGroupValidator(msgspec.Struct):
    """Follows the records of one file.

    Attributes:
        complete: number of complete groups.
        hashed: number of data records whose SHA-512 is right.
        unhashed: number of whole overwrites whose footer has no hash.
        interrupted: number of groups that damage interrupted.
        is_data_sort: at least one group proves that a data-sort wrote the log.
        unfinished_records: data records without a control block.
        unfinished: number of such records.
        extents: key -> extent of its record in the data file.
    """

    complete: int = 0
    hashed: int = 0
    hashed_bytes: int = 0
    unhashed: int = 0
    interrupted: int = 0
    is_data_sort: bool = False
    unfinished_records: list[EblobRecord] = msgspec.field(default_factory=list)
    unfinished: int = 0
    extents: dict[bytes, DataFileExtent] = msgspec.field(default_factory=dict)
    _data: EblobRecord | None = None
    _data_bytes: memoryview | None = None
    _digest: bytes = b""
    _footer: EblobRecord | None = None
    _hash: bytes = b""

    def add_record(self, record: EblobRecord, content: memoryview) -> Iterable[Finding]:
        """Add one record; returns findings about its group.

        Args:
            content: its data, valid until `end_batch`.
        """
        if record.kind is EblobRecordKind.FOOTER:
            self._footer, self._hash = record, bytes(content[:HASH_SIZE])
            return ()
        if record.kind is EblobRecordKind.CONTROL:
            return self._close_overwrite(record, DiskControl(*_unpack_control(content)))
        self.end_unfinished_group()
        if record.kind is EblobRecordKind.DATA:
            self._data, self._data_bytes, self._digest = record, content, b""
        elif record.kind is EblobRecordKind.REMOVE:
            return self._check_removal(record)
        return ()

    def end_batch(self) -> None:
        """Compute what is needed later of the batch's bytes, before they become invalid."""
        if self._data is not None and self._data_bytes is not None:
            self._digest, self._data_bytes = hashlib.sha512(self._data_bytes).digest(), None

    def end_unfinished_group(self) -> None:
        """End the current group: its data, if any, has no control block."""
        if self._data is not None:
            self.unfinished += 1
            if self.can_report_more:
                self.unfinished_records.append(self._data)
        self._data = self._footer = self._data_bytes = None

    def _check_removal(self, record: EblobRecord) -> Iterator[Finding]:
        self.complete += 1
        extent = self.extents.get(record.key)
        if extent is not None and record.target != extent.start + HASH_SIZE:
            text = f"target {record.target}, the control block of the key is at {extent.start}"
            yield _make_finding("dangling-reference", record, REMOVE_ELSEWHERE, text, Severity.WARNING)

    def _close_overwrite(self, record: EblobRecord, control: DiskControl) -> list[Finding]:
        """Check the control block that ends an overwrite."""
        data, footer = self._data, self._footer
        if data is not None and record.group != data.number:  # the data before belongs to another group
            self.end_unfinished_group()
            data = footer = None
        findings = [*self._check_control(record, control, data, footer)]
        if data is not None:
            self.is_data_sort = True
            self.complete += 1
            if footer is not None and not findings:  # one cause, one finding
                findings += self._check_hash(data, control)
        self._data = self._footer = self._data_bytes = None
        if control.key == record.key and control.position == record.target and not findings:
            self.remember_extent(record.key, DataFileExtent(control.position, control.disk_size))
        return findings

    def _check_control(
        self, record: EblobRecord, control: DiskControl, data: EblobRecord | None, footer: EblobRecord | None
    ) -> Iterator[Finding]:
        if control.key != record.key or (data is not None and data.key != record.key):
            yield _make_finding("payload-undecodable", record, KEY_DIFFERS, f"key {control.key.hex()[:16]}…")
        if control.position != record.target:
            text = f"position {control.position}, target {record.target}"
            yield _make_finding("payload-undecodable", record, POSITION_DIFFERS, text)
        min_disk_size = CONTROL_SIZE + (FOOTER_SIZE if footer is not None else 0)
        extent = self.extents.get(record.key)
        differs = extent is not None and extent.start == record.target and extent.disk_size != control.disk_size
        wrong_end = footer is not None and footer.target + FOOTER_SIZE != record.target + control.disk_size
        if control.disk_size < min_disk_size or differs or wrong_end:
            yield _make_finding("payload-undecodable", record, DISK_SIZE_DIFFERS, f"disk_size {control.disk_size}")
        elif control.data_size + min_disk_size > control.disk_size:
            text = f"data_size {control.data_size} in a record of {control.disk_size} bytes"
            yield _make_finding("payload-undecodable", record, DATA_SIZE_DIFFERS, text)

    def _check_hash(self, data: EblobRecord, control: DiskControl) -> Iterator[Finding]:
        """Check the SHA-512 of the footer, which covers the data if the overwrite is whole."""
        if self._hash == NO_HASH:
            self.unhashed += 1
            if not control.flags & ControlFlag.NOCSUM:
                yield _make_finding("checksum-absent", data, FLAG_DIFFERS, "the footer is zero", Severity.WARNING)
            return
        digest = self._digest or hashlib.sha512(self._data_bytes or b"").digest()
        is_whole = control.data_size == data.data_size
        if not is_whole and (digest == self._hash or control.data_size < data.data_size):
            text = f"data_size {control.data_size}, and {data.data_size} bytes of data were written from its start on"
            yield _make_finding("payload-undecodable", data, DATA_SIZE_DIFFERS, text)
        elif is_whole and digest == self._hash:
            self.hashed += 1
            self.hashed_bytes += data.data_size
        elif is_whole:
            text = f"stored {self._hash.hex()[:16]}…, computed {digest.hex()[:16]}…"
            yield _make_finding("checksum-mismatch", data, HASH_DIFFERS, text, algorithm="sha512")

    @property
    def is_idle(self) -> bool:
        """True if no overwrite is open."""
        return self._data is None

    @property
    def can_report_more(self) -> bool:
        """True if one more unfinished overwrite can be reported individually."""
        return len(self.unfinished_records) < MAX_UNFINISHED

    def remember_extent(self, key: bytes, extent: DataFileExtent) -> None:
        """Remember where the record of a key is in the data file."""
        if len(self.extents) < MAX_KEYS or key in self.extents:
            self.extents[key] = extent

    def add_damage(self) -> None:
        """Drop the open group: its end may be lost in damage."""
        if self._data is not None:
            self.interrupted += 1
        self._data = self._footer = self._data_bytes = None

    def finish(self) -> list[Finding]:
        """Return findings about unfinished overwrites; none unless the log is of a data-sort."""
        last_data, self._data = self._data, None
        if not self.is_data_sort:
            return []
        findings = [
            _report_unfinished(one, Severity.WARNING, "the next group begins") for one in self.unfinished_records
        ]
        if self.unfinished > len(self.unfinished_records):
            text = (
                f"{self.unfinished - len(self.unfinished_records):,} more overwrites without a control "
                f"block are not listed"
            )
            findings.append(make_finding("incomplete-transaction", None, 0, text, severity=Severity.WARNING))
        return (
            [*findings, _report_unfinished(last_data, Severity.NOTE, "the log ends")]
            if last_data is not None
            else findings
        )


def _report_unfinished(data: EblobRecord, severity: Severity, reason: str) -> Finding:
    return _make_finding(
        "incomplete-transaction", data, UNFINISHED, f"an overwrite has no control block: {reason}", severity
    )


def _make_finding(
    finding_id: str, record: EblobRecord, diagnosis: str, text: str, severity: Severity | None = None, **facts: str
) -> Finding:
    return make_finding(
        finding_id, record.start, record.size, f"{diagnosis}: {text}", record=record.number, severity=severity,
        diagnosis=diagnosis, group=record.group, **facts,
    )  # fmt: skip
