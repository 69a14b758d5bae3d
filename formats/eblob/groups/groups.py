"""Validate overwrites and removals: data, footer and control block against each other.

See docs/spec/eblob-binlog.md#metadata-and-data-in-data-sort-logs-all-seen and docs/spec/eblob-binlog.md#8-verify.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator
from typing import NamedTuple

import msgspec

from binlogtool.findings import Finding, Severity, finding
from binlogtool.formats.derived import unpacker_of
from binlogtool.formats.eblob.groups.grouping import Kind, Record
from binlogtool.formats.eblob.schema import CONTROL, CONTROL_SIZE, FOOTER_SIZE, HASH_SIZE, ControlFlag

MAX_KEYS = 1 << 17
"""Keys whose place in the data file is remembered; beyond that the check of their later records is left out."""

MAX_OPEN = 1024
"""Overwrites without an end that are told one by one."""

KEY_DIFFERS = "control block key differs from record key"
DISK_SIZE = "control block disk_size implausible / differs from the other control blocks of the same record"
DATA_SIZE = "control block data_size implausible"
POSITION = "control block position differs from the target offset"
HASH_DIFFERS = "data does not match the checksum in the footer record that follows"
FLAG_DIFFERS = "control block says there is a checksum, and the footer has none"
REMOVE_ELSEWHERE = "removal at another place than the control block of its key"
UNFINISHED = "incomplete group"

NO_HASH = bytes(HASH_SIZE)


class Control(NamedTuple):
    """Members of an eblob_disk_control."""

    key: bytes
    flags: int
    data_size: int
    disk_size: int
    position: int


_control = unpacker_of(CONTROL, *Control._fields)


class Place(NamedTuple):
    """Start and size of a record in the data file."""

    start: int
    disk_size: int


class Groups(msgspec.Struct):
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
    lost: int = 0
    sorted: bool = False
    open: list[Record] = msgspec.field(default_factory=list)
    unfinished: int = 0
    places: dict[bytes, Place] = msgspec.field(default_factory=dict)
    _data: Record | None = None
    _content: memoryview | None = None
    _digest: bytes = b""
    _footer: Record | None = None
    _hash: bytes = b""

    def add(self, record: Record, content: memoryview) -> Iterable[Finding]:
        """Add one record; returns findings about its group.

        Args:
            content: its data, valid until `end_batch`.
        """
        if record.kind is Kind.FOOTER:
            self._footer, self._hash = record, bytes(content[:HASH_SIZE])
            return ()
        if record.kind is Kind.CONTROL:
            return self._close(record, Control(*_control(content)))
        self.leave()
        if record.kind is Kind.DATA:
            self._data, self._content, self._digest = record, content, b""
        elif record.kind is Kind.REMOVE:
            return self._remove(record)
        return ()

    def keep(self) -> None:
        """Compute what is needed later of the batch's bytes, before they become invalid."""
        if self._data is not None and self._content is not None:
            self._digest, self._content = hashlib.sha512(self._content).digest(), None

    def leave(self) -> None:
        """End the current group: its data, if any, has no control block."""
        if self._data is not None:
            self.unfinished += 1
            if self.room:
                self.open.append(self._data)
        self._data = self._footer = self._content = None

    def _remove(self, record: Record) -> Iterator[Finding]:
        self.complete += 1
        place = self.places.get(record.key)
        if place is not None and record.target != place.start + HASH_SIZE:
            text = f"target {record.target}, the control block of the key is at {place.start}"
            yield _fault("dangling-reference", record, REMOVE_ELSEWHERE, text, Severity.WARNING)

    def _close(self, record: Record, control: Control) -> list[Finding]:
        """Check the control block that ends an overwrite."""
        data, footer = self._data, self._footer
        if data is not None and record.group != data.number:  # the data before belongs to another group
            self.leave()
            data = footer = None
        found = [*self._control(record, control, data, footer)]
        if data is not None:
            self.sorted = True
            self.complete += 1
            if footer is not None and not found:  # one cause, one finding
                found += self._hashed(data, control)
        self._data = self._footer = self._content = None
        if control.key == record.key and control.position == record.target and not found:
            self.remember(record.key, Place(control.position, control.disk_size))
        return found

    def _control(
        self, record: Record, control: Control, data: Record | None, footer: Record | None
    ) -> Iterator[Finding]:
        if control.key != record.key or (data is not None and data.key != record.key):
            yield _fault("payload-undecodable", record, KEY_DIFFERS, f"key {control.key.hex()[:16]}…")
        if control.position != record.target:
            text = f"position {control.position}, target {record.target}"
            yield _fault("payload-undecodable", record, POSITION, text)
        least = CONTROL_SIZE + (FOOTER_SIZE if footer is not None else 0)
        place = self.places.get(record.key)
        differs = place is not None and place.start == record.target and place.disk_size != control.disk_size
        wrong_end = footer is not None and footer.target + FOOTER_SIZE != record.target + control.disk_size
        if control.disk_size < least or differs or wrong_end:
            yield _fault("payload-undecodable", record, DISK_SIZE, f"disk_size {control.disk_size}")
        elif control.data_size + least > control.disk_size:
            text = f"data_size {control.data_size} in a record of {control.disk_size} bytes"
            yield _fault("payload-undecodable", record, DATA_SIZE, text)

    def _hashed(self, data: Record, control: Control) -> Iterator[Finding]:
        """Check the SHA-512 of the footer, which covers the data if the overwrite is whole."""
        if self._hash == NO_HASH:
            self.unhashed += 1
            if not control.flags & ControlFlag.NOCSUM:
                yield _fault("checksum-absent", data, FLAG_DIFFERS, "the footer is zero", Severity.WARNING)
            return
        digest = self._digest or hashlib.sha512(self._content or b"").digest()
        whole = control.data_size == data.data_size
        if not whole and (digest == self._hash or control.data_size < data.data_size):
            text = f"data_size {control.data_size}, and {data.data_size} bytes of data were written from its start on"
            yield _fault("payload-undecodable", data, DATA_SIZE, text)
        elif whole and digest == self._hash:
            self.hashed += 1
            self.hashed_bytes += data.data_size
        elif whole:
            text = f"stored {self._hash.hex()[:16]}…, computed {digest.hex()[:16]}…"
            yield _fault("checksum-mismatch", data, HASH_DIFFERS, text, algorithm="sha512")

    @property
    def idle(self) -> bool:
        """True if no overwrite is open."""
        return self._data is None

    @property
    def room(self) -> bool:
        """True if one more unfinished overwrite can be reported individually."""
        return len(self.open) < MAX_OPEN

    def remember(self, key: bytes, place: Place) -> None:
        """Remember where the record of a key is in the data file."""
        if len(self.places) < MAX_KEYS or key in self.places:
            self.places[key] = place

    def damage(self) -> None:
        """Drop the open group: its end may be lost in damage."""
        if self._data is not None:
            self.lost += 1
        self._data = self._footer = self._content = None

    def finish(self) -> list[Finding]:
        """Return findings about unfinished overwrites; none unless the log is of a data-sort."""
        tail, self._data = self._data, None
        if not self.sorted:
            return []
        found = [_unfinished(one, Severity.WARNING, "the next group begins") for one in self.open]
        if self.unfinished > len(self.open):
            text = f"{self.unfinished - len(self.open):,} more overwrites without a control block are not listed"
            found.append(finding("incomplete-transaction", None, 0, text, severity=Severity.WARNING))
        return [*found, _unfinished(tail, Severity.NOTE, "the log ends")] if tail is not None else found


def _unfinished(data: Record, severity: Severity, why: str) -> Finding:
    return _fault("incomplete-transaction", data, UNFINISHED, f"an overwrite has no control block: {why}", severity)


def _fault(
    id_: str, record: Record, diagnosis: str, text: str, severity: Severity | None = None, **facts: str
) -> Finding:
    return finding(
        id_, record.start, record.size, f"{diagnosis}: {text}", record=record.number, severity=severity,
        diagnosis=diagnosis, group=record.group, **facts,
    )  # fmt: skip
