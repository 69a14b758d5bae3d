"""Group records into overwrites and removals.

See docs/spec/eblob.md#data-sort-records and #validation. The kind of a record is not stored. It is derived from its
content and the records before it, never from later ones, so it does not depend on how much of the file is in memory.
Later records are checked by the validator.

The fast path gives the same results as `OverwriteGroupValidator.add_record`, and leaves all unusual records to it.
"""

from __future__ import annotations

import enum
import hashlib
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, NamedTuple

import msgspec

from binlogtool.findings import Finding, Severity, make_finding
from binlogtool.format_api.layout import Batch, Column, to_int_list
from binlogtool.format_api.schema_fields import kernel, make_unpacker
from binlogtool.formats.eblob.schema import (
    CONTROL,
    CONTROL_SIZE,
    FOOTER,
    FOOTER_SIZE,
    HASH_SIZE,
    OVERWRITE_ENDING,
    RECORD,
    RECORD_HEADER_SIZE,
    REMOVE,
    REMOVE_SIZE,
    TARGET_SIZE,
    TARGETED_RECORD,
    TARGETED_RECORD_BE,
    ControlFlag,
)

# --- Kinds of records in dialect b ---

LOOK_BACK = 2
"""Number of preceding records that may belong to the same group: data and footer of an overwrite."""

MAX_SEARCH_BACK = 4096
"""Maximum number of records to search back for the start of a run of apparent footers and control blocks."""


_unpack_target = {
    "little": make_unpacker(TARGETED_RECORD, "key", "target_offset"),
    "big": make_unpacker(TARGETED_RECORD_BE, "key", "target_offset"),
}
_unpack_key = make_unpacker(RECORD, "key")
_unpack_flags = make_unpacker(REMOVE, "flags")
_unpack_record_start = {
    FOOTER_SIZE: make_unpacker(FOOTER, "record_start"),
    CONTROL_SIZE: make_unpacker(CONTROL, "position"),
}


class EblobRecordKind(enum.IntEnum):
    """Kind of a record. RECORD: its metadata is not a target offset, or the record is of another dialect."""

    DATA = 1
    FOOTER = 2
    CONTROL = 3
    REMOVE = 4
    RECORD = 5


class EblobRecord(NamedTuple):
    """One record.

    Attributes:
        start, end: range in the file.
        target: its metadata as an offset in the data file.
        group: number of the first record of its group; None for RECORD.
        record_start: for a footer or control block, start of its record in the data file.
    """

    number: int
    start: int
    end: int
    kind: EblobRecordKind
    key: bytes
    target: int
    data_size: int
    group: int | None
    record_start: int = -1

    @property
    def size(self) -> int:
        """Size of the record in bytes."""
        return self.end - self.start


def iter_classified_records(
    batch: Batch, start: int, stop: int, previous: tuple[EblobRecord, ...], byte_order: Any
) -> Iterator[EblobRecord]:
    """Yield the records `[start, stop)` of a batch.

    Args:
        previous: up to two records that precede them, the nearest last.
        byte_order: byte order, "little" or "big".
    """
    columns = [to_int_list(batch.frames[name], start, stop) for name in ("offset", "end", "meta_size", "data_size")]
    window, base, number, unpack_target = (
        batch.window,
        batch.base,
        batch.first_record + start,
        _unpack_target[byte_order],
    )
    for low, high, meta_size, data_size in zip(*columns, strict=True):
        data = low + RECORD_HEADER_SIZE + meta_size
        if meta_size == TARGET_SIZE:
            key, target = unpack_target(window, low)
            kind, group, record_start = _classify_targeted_record(
                window[data : data + data_size], number, base + low, key, target, previous
            )
        else:
            (key,), kind, group, record_start, target = _unpack_key(window, low), EblobRecordKind.RECORD, None, -1, -1
        record = EblobRecord(number, base + low, base + high, kind, key, target, data_size, group, record_start)
        yield record
        previous = (*previous[-1:], record)
        number += 1


DATA_KIND, FOOTER_KIND, CONTROL_KIND, REMOVE_KIND, RECORD_KIND = map(int, EblobRecordKind)


class PreviousRecord(NamedTuple):
    """The record right before another one; number -1 = no such record. same_key: both have the same key."""

    number: int
    kind: int
    target: int
    record_start: int
    data_size: int
    group: int
    same_key: int


@kernel()
def classify_record_and_group(
    data_size: int,
    has_removal_flags: int,
    record_start: int,
    target: int,
    record_number: int,
    previous: PreviousRecord,
    starts_with_key: int,
) -> tuple[int, int]:
    """Determine the kind of record `record_number`, which has a target and `data_size` bytes of data.

    Args:
        has_removal_flags: its flags are those of a removal.
        record_start: start of its record in the data file, if it is a footer or a control block.
        starts_with_key: the first bytes of the data are the key.

    Returns:
        (kind, number of the first record of its group).
    """
    if data_size == REMOVE_SIZE:
        return (REMOVE_KIND if has_removal_flags else DATA_KIND), record_number
    if data_size == FOOTER_SIZE:  # a footer points to the control block before the last written data
        is_footer = (
            previous.number >= 0
            and previous.kind == DATA_KIND
            and previous.same_key
            and record_start >= 0
            and previous.target == record_start + CONTROL_SIZE
        )
        return (
            (FOOTER_KIND, previous.number)
            if is_footer and target >= previous.target + previous.data_size
            else (DATA_KIND, record_number)
        )
    if data_size == CONTROL_SIZE:
        if previous.number >= 0 and previous.kind == FOOTER_KIND and previous.record_start == target:
            return CONTROL_KIND, previous.group
        if record_start == target and starts_with_key:
            if (
                previous.number >= 0
                and previous.kind == DATA_KIND
                and previous.same_key
                and previous.target >= target + CONTROL_SIZE
            ):
                return CONTROL_KIND, previous.number
            return CONTROL_KIND, record_number
    return DATA_KIND, record_number


def _classify_targeted_record(
    data: memoryview, number: int, start: int, key: bytes, target: int, previous: tuple[EblobRecord, ...]
) -> tuple[EblobRecordKind, int, int]:
    """Return (kind, group, record start) of one record with a target."""
    size = len(data)
    if size not in _SPECIAL_SIZES:
        return EblobRecordKind.DATA, number, -1
    last = previous[-1] if previous and previous[-1].end == start else _NO_RECORD
    is_removal = size == REMOVE_SIZE and _unpack_flags(data, 0)[0] == ControlFlag.REMOVE
    record_start = _unpack_record_start[size](data, 0)[0] if size in _unpack_record_start else -1
    group = -1 if last.group is None else last.group
    kind, first = classify_record_and_group(
        size,
        is_removal,
        record_start,
        target,
        number,
        PreviousRecord(last.number, last.kind, last.target, last.record_start, last.data_size, group, last.key == key),
        data[:HASH_SIZE] == key,
    )
    return EblobRecordKind(kind), first, -1 if kind == DATA_KIND else record_start


_SPECIAL_SIZES = (REMOVE_SIZE, *_unpack_record_start)
_NO_RECORD = EblobRecord(-1, 0, 0, EblobRecordKind.RECORD, b"", -1, 0, None)
"""Placeholder for the record before the first one."""


def find_preceding_records(
    batch: Batch, start: int, last_records: dict[int, tuple[EblobRecord, ...]], byte_order: Any
) -> tuple[EblobRecord, ...]:
    """Return the two records before record `start` of a batch; `last_records` has those of the previous batch."""
    if start == 0:
        return last_records.get(batch.first_record, ())
    first = _find_search_start(batch.frames["data_size"], start)
    previous = last_records.get(batch.first_record, ()) if first == 0 else ()
    batch_records = tuple(iter_classified_records(batch, first, start, previous, byte_order))
    return (*previous, *batch_records)[-LOOK_BACK:]


def _find_search_start(sizes: Column, start: int) -> int:
    """Return the record from which kinds must be determined so that those of the two before `start` are known."""
    first = max(0, start - LOOK_BACK)
    lower_bound = max(0, first - MAX_SEARCH_BACK)
    while first > lower_bound and sizes[first] in (FOOTER_SIZE, CONTROL_SIZE):
        first -= 1
    return first


def remember_last_records(batch: Batch, last_records: dict[int, tuple[EblobRecord, ...]], byte_order: Any) -> None:
    """Keep the last records of a batch in `last_records` for the next batch."""
    count = batch.frames.count
    next_record = batch.first_record + count
    if count and next_record not in last_records:
        last_records[next_record] = find_preceding_records(batch, count, last_records, byte_order)
        while len(last_records) > LOOK_BACK:
            del last_records[min(last_records)]


# --- Validation of overwrites and removals ---

MAX_KEYS = 1 << 17
"""Maximum number of keys whose position in the data file is remembered; records of further keys are not checked."""

MAX_UNFINISHED = 1024
"""Maximum number of unfinished overwrites that are reported one by one."""

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
    """Validates the groups of one file, record by record.

    Attributes:
        complete: number of complete groups.
        hashed: number of data records whose SHA-512 is right.
        unhashed: number of complete overwrites whose footer has no hash.
        interrupted: number of groups that damage interrupted.
        is_data_sort: at least one group proves that a data-sort wrote the log.
        unfinished_records: the first data records without a control block.
        unfinished: number of data records without a control block.
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
        """Add one record; return findings about its group. content: its data, valid until `end_batch`."""
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
        """Compute the values that are needed later from the bytes of the batch, before these become invalid."""
        if self._data is not None and self._data_bytes is not None:
            self._digest, self._data_bytes = hashlib.sha512(self._data_bytes).digest(), None

    def end_unfinished_group(self) -> None:
        """End the current group: its data record, if any, has no control block."""
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
        """Check the control block that ends an overwrite; return findings."""
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
        """Check the SHA-512 in the footer, which covers the data if the overwrite is complete."""
        if self._hash == NO_HASH:
            self.unhashed += 1
            if not control.flags & ControlFlag.NOCSUM:
                yield _make_finding("checksum-absent", data, FLAG_DIFFERS, "the footer is zero", Severity.WARNING)
            return
        digest = self._digest or hashlib.sha512(self._data_bytes or b"").digest()
        is_whole = control.data_size == data.data_size
        if not is_whole and (digest == self._hash or control.data_size < data.data_size):
            text = f"data_size {control.data_size}, and {data.data_size} bytes of data were written from its start"
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
        """True if another unfinished overwrite can be reported individually."""
        return len(self.unfinished_records) < MAX_UNFINISHED

    def remember_extent(self, key: bytes, extent: DataFileExtent) -> None:
        """Remember where the record of a key is in the data file."""
        if len(self.extents) < MAX_KEYS or key in self.extents:
            self.extents[key] = extent

    def drop_group_at_damage(self) -> None:
        """Drop the open group: its end may be lost in damage."""
        if self._data is not None:
            self.interrupted += 1
        self._data = self._footer = self._data_bytes = None

    def report_unfinished_overwrites(self) -> list[Finding]:
        """Return findings about unfinished overwrites; none unless a data-sort wrote the log."""
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


# --- Fast path for the usual groups of a data-sort log ---

_unpack_little_target = make_unpacker(TARGETED_RECORD, "key", "target_offset")
_unpack_ending = make_unpacker(
    OVERWRITE_ENDING, "footer_key", "footer_target_offset", "footer_sha512", "footer_record_start", "control_key",
    "control_target_offset", "own_key", "own_flags", "own_data_size", "own_disk_size", "own_position",
)  # fmt: skip

_REMOVE_BYTES = ControlFlag.REMOVE.to_bytes(REMOVE_SIZE, "little")
_DATA_AT = RECORD_HEADER_SIZE + TARGET_SIZE
_SPECIAL_RECORD_SIZES = frozenset({REMOVE_SIZE, FOOTER_SIZE, CONTROL_SIZE, 0})
_ENDING_SIZES = frozenset({FOOTER_SIZE, CONTROL_SIZE})


class ConsistentGroupReader:
    """Reads runs of usual groups from one batch."""

    def __init__(
        self,
        validator: OverwriteGroupValidator,
        window: memoryview,
        base: int,
        first_record: int,
        columns: Sequence[list[int]],
    ) -> None:
        self.validator, self.window, self.base, self.first_record = validator, window, base, first_record
        self.offsets, self.ends, self.metas, self.sizes = columns
        self.count = len(self.offsets)

    def can_begin_group(self, index: int) -> bool:
        """Return whether record `index` certainly begins a new group."""
        return self.validator.is_idle or self.sizes[index] not in _ENDING_SIZES

    def read_consistent_groups(self, index: int, kind_counts: Counter[str]) -> int:
        """Read usual groups from record `index` on; return the first record that is not part of one.

        No group may be open in the validator.
        """
        meta_sizes, sizes, last = self.metas, self.sizes, self.count - 1
        overwrites = removals = unfinished = 0
        while index < last and meta_sizes[index] == TARGET_SIZE:
            size = sizes[index]
            if size == REMOVE_SIZE and self._is_consistent_removal(index):
                removals += 1
                index += 1
            elif sizes[index + 1] == FOOTER_SIZE and size and size not in _ENDING_SIZES:
                if (
                    index + 2 > last
                    or sizes[index + 2] != CONTROL_SIZE
                    or not self._try_read_consistent_overwrite(index, size)
                ):
                    break
                overwrites += 1
                index += 3
            elif size not in _SPECIAL_RECORD_SIZES and sizes[index + 1] not in _ENDING_SIZES:
                self.validator.unfinished += 1
                self._add_unfinished(index)
                unfinished += 1
                index += 1
            else:
                break
        self.validator.complete += overwrites + removals
        _count_kinds(kind_counts, overwrites, removals, unfinished)
        return index

    def _is_consistent_removal(self, index: int) -> bool:
        """Return whether a record removes a key whose position in the data file is unknown, or is this one."""
        record_at = self.offsets[index]
        if self.window[record_at + _DATA_AT : record_at + _DATA_AT + REMOVE_SIZE] != _REMOVE_BYTES:
            return False
        key, target = _unpack_little_target(self.window, record_at)
        extent = self.validator.extents.get(key)
        return extent is None or target == extent.start + HASH_SIZE

    def _try_read_consistent_overwrite(self, index: int, size: int) -> bool:
        """Read data, footer and control block; return False unless they are all consistent."""
        if self.metas[index + 1] != TARGET_SIZE or self.metas[index + 2] != TARGET_SIZE:
            return False
        record_at, window = self.offsets[index], self.window
        key, target = _unpack_little_target(window, record_at)
        (
            footer_key, footer_target, stored, start, control_key, control_target, own_key, flags, data_size, disk_size,
            position,
        ) = _unpack_ending(window, self.ends[index])  # fmt: skip
        if not (
            key == footer_key == control_key == own_key
            and start == position == control_target == target - CONTROL_SIZE
            and target + size <= footer_target == start + disk_size - FOOTER_SIZE
            and CONTROL_SIZE + data_size <= disk_size - FOOTER_SIZE
        ):
            return False
        validator = self.validator
        extent = validator.extents.get(key)
        if extent is not None and extent.start == start and extent.disk_size != disk_size:
            return False
        if stored == NO_HASH:
            if not flags & ControlFlag.NOCSUM:
                return False
            validator.unhashed += 1
        else:
            if data_size != size:
                return False
            if hashlib.sha512(window[record_at + _DATA_AT : record_at + _DATA_AT + size]).digest() != stored:
                return False
            validator.hashed += 1
            validator.hashed_bytes += size
        validator.is_data_sort = True
        if extent is None or extent.start != start:
            validator.remember_extent(key, DataFileExtent(start, disk_size))
        return True

    def _add_unfinished(self, index: int) -> None:
        """Add a data record without footer and control block."""
        validator = self.validator
        if not validator.can_report_more:
            return
        record_at, number = self.offsets[index], self.first_record + index
        key, target = _unpack_little_target(self.window, record_at)
        start, end = self.base + record_at, self.base + self.ends[index]
        validator.unfinished_records.append(
            EblobRecord(number, start, end, EblobRecordKind.DATA, key, target, self.sizes[index], number)
        )


def _count_kinds(kinds: Counter[str], overwrites: int, removals: int, unfinished: int) -> None:
    for kind, count in (
        (EblobRecordKind.DATA, overwrites + unfinished),
        (EblobRecordKind.FOOTER, overwrites),
        (EblobRecordKind.CONTROL, overwrites),
        (EblobRecordKind.REMOVE, removals),
    ):
        if count:
            kinds[kind.name] += count
