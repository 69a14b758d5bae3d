"""Predict what a data-sort does with each record when it applies the log to the sorted copy of its blob.

See docs/spec/eblob.md#library-behaviour. No server reads an existing log: it is truncated when its blob is sorted
again. The prediction covers the records that the library's own reader would pass on, and what the callback of the
data-sort would do with them.
"""

from __future__ import annotations

import posixpath
import struct
from bisect import bisect_left
from collections.abc import Iterable, Mapping
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, NamedTuple

import msgspec

from binlogtool.errors import LimitError, UsageError
from binlogtool.findings import Finding, Severity, make_finding
from binlogtool.format_api.replay_rules import (
    APPLIED,
    NOT_REACHED,
    PUT,
    SKIPPED,
    EffectReader,
    ExaminedFile,
    ReadPlan,
    RecordOutcome,
    ReplayOutcome,
    ReplaySituation,
    ReplayStop,
    StateChange,
    combine_into_outcomes,
    encode_canonical,
)
from binlogtool.formats.eblob.classify_overwrites_and_removals import EblobRecordKind
from binlogtool.formats.eblob.decode import RAW_DATA_TYPE, EblobFileContext
from binlogtool.formats.eblob.explain_damage import STALE
from binlogtool.formats.eblob.schema import CONTROL_SIZE, RECORD_HEADER_SIZE, ControlFlag

if TYPE_CHECKING:
    from binlogtool.format_api.format import DecodedRecords
    from binlogtool.format_api.layout import RangeReader

REASONS: Mapping[str, str] = MappingProxyType(
    {
        "applied": "The record is written to the sorted blob at the position of its target offset. Without "
        "the index of the base (--against) every record is assumed to have a position there.",
        "delivered": "The reader returns this record, but no data-sort wrote it (its metadata is not a target offset); "
        "what the calling program does with it is unknown.",
        "key-not-in-base": "The sorted base does not have the key, for example because it was removed before it was "
        "copied: skipped, and reported as success.",
        "other-incarnation": "The target is outside the record that the base has for the key: it belonged to "
        "another incarnation of the key; skipped, and reported as success.",
        "done": "The record is before the position given with --against.",
        "behind-gap": "For the reader the log ends before this record, at a header that it cannot read; it reports "
        "nothing, and its next append overwrites what follows. Such a record can be older than those before the gap, "
        "and is never replayed.",
        "refused": "The library does not open the file, because of its header.",
        "dialect": (
            "The final library cannot read logs of this dialect, and the library that wrote them did "
            "not replay them completely."
        ),
    }
)
BIG_ENDIAN_DIAGNOSIS = "written by a big-endian machine (version reads as 0x0100)"
_OPEN_ERRORS = {
    "bad magic": "EINVAL",
    "unknown header flags": "EINVAL",
    "unsupported version": "EOPNOTSUPP",
    BIG_ENDIAN_DIAGNOSIS: "EOPNOTSUPP",
    "file shorter than its header": "EINTR",
    "empty file": "EINTR",
}
_RECORD_HEAD = struct.Struct("<QQQQ")
_CONTROL = struct.Struct("<64s4Q")
_UINT64_LIMIT, _INT64_LIMIT = 1 << 64, 1 << 63
_MAX_STEPS = 4096
_BASE_USAGE = '--against: {"base": {KEY: [old start, disk_size, new start]}} is expected, with keys in hexadecimal'


class BaseRecord(NamedTuple):
    """A key's record in the data file: its offset before the sort, its size, and its offset after the sort."""

    start: int
    disk_size: int
    new_start: int


class EblobReadState(msgspec.Struct):
    """State of reading the current file.

    Attributes:
        damage_at: offset of the first bytes that are not a record.
        walk_end: offset where the library's walk over the headers ends; None = it never ends.
        failure: why the library fails at `damage_at`; "" = it does not.
        record_count: number of records before `damage_at` that were seen.
        records_end: end of the last of these records.
    """

    file: ExaminedFile
    damage_at: int | None
    walk_end: int | None
    failure: str = ""
    record_count: int = 0
    records_end: int = 0

    @property
    def delivery_end(self) -> int:
        """Offset from which no record is passed on; 0 = none at all: the walk, which comes first, never ends."""
        return 0 if self.walk_end is None else min(self.walk_end, self.damage_at or self.walk_end)


class DataSortReplayer:
    """Replays one log, or several independent logs (implements `format_api.replay_rules.Replayer`)."""

    def __init__(self, situation: ReplaySituation) -> None:
        self.situation = situation
        self.base_index, self.done_offsets = _parse_start_position(situation.start_position or {})
        self.stop: ReplayStop | None = None
        self.findings: list[tuple[str, Finding]] = []
        self.read_state: EblobReadState | None = None
        self.positions: dict[str, int | None] = {}
        self.opened_files: set[str] = set()

    def plan_reads(self) -> ReadPlan:
        """Return the files that the library opens."""
        skipped = {
            file.name: reason for file in self.situation.files if (reason := self._get_skip_reason(file)) is not None
        }
        read_files = tuple(file.name for file in self.situation.files if file.name not in skipped)
        all_readable_elsewhere = all(
            why == "dialect" or self._is_big_endian_file(name) for name, why in skipped.items()
        )
        starts = (
            None if all_readable_elsewhere else False
        )  # the library that wrote the log reads it, on the same kind of machine
        return ReadPlan(read_files, skipped, self.stop if not read_files else None, starts=starts)

    def _is_big_endian_file(self, name: str) -> bool:
        """Return whether a file is sound but from a machine with another byte order."""
        findings = [one for file in self.situation.files if file.name == name for one in file.findings]
        return any(one.facts.get("diagnosis") == BIG_ENDIAN_DIAGNOSIS for one in findings)

    def _get_skip_reason(self, file: ExaminedFile) -> str | None:
        context = None if file.layout is None else file.layout.context
        for problem in file.findings:
            error = _OPEN_ERRORS.get(problem.facts.get("diagnosis", ""))
            if error is not None:
                self.stop = self.stop or ReplayStop(
                    file.name, problem.offset, f"{problem.message}; open fails with {error}"
                )
                return "refused"
        if not isinstance(context, EblobFileContext):
            return "refused"
        if not context.dialect.is_grouped:
            text = f"a log of dialect {context.dialect.name}: the final library cannot read it"
            self.stop = self.stop or ReplayStop(file.name, None, text)
            return "dialect"
        return None

    # -- reading ---------------------------------------------------------------------------------------------------

    def decide_records(self, name: str, first: int, records: DecodedRecords) -> Iterable[RecordOutcome]:
        """Rule on one run of records."""
        state = self.read_state
        if state is None or state.file.name != name:
            self._close_file()
            state = self.read_state = self._open_file(name)
        delivered = len(records) if state.damage_at is None else bisect_left(records.offset, state.delivery_end)
        state.record_count += delivered
        if delivered:
            state.records_end = records.offset[delivered - 1] + records.size[delivered - 1]
        gap = SKIPPED, NOT_REACHED if state.failure else "behind-gap"
        return [
            *self._decide_run(records, first, delivered),
            *combine_into_outcomes([gap] * (len(records) - delivered), first + delivered),
        ]

    def _decide_run(self, records: DecodedRecords, first: int, delivered: int) -> Iterable[RecordOutcome]:
        done_offset = self.done_offsets.get(self._file_key(self.read_state.file), 0) if self.read_state else 0
        if (
            self.base_index is None
            and not done_offset
            and records.envelope.type.count(EblobRecordKind.RECORD.name) == 0
        ):
            return (RecordOutcome(first, first + delivered, APPLIED, "applied"),) if delivered else ()
        return combine_into_outcomes((self._decide_record(records, i, done_offset) for i in range(delivered)), first)

    def _decide_record(self, records: DecodedRecords, index: int, done_offset: int) -> tuple[str, str]:
        if records.offset[index] < done_offset:
            return SKIPPED, "done"
        if records.envelope.type[index] == EblobRecordKind.RECORD.name:
            return APPLIED, "delivered"
        if self.base_index is None:
            return APPLIED, "applied"
        base_record = self.base_index.get(records.envelope.object[index] or "")
        if base_record is None:
            return SKIPPED, "key-not-in-base"
        target = (records.bodies[index] or {}).get("target_offset", -1)
        is_inside = base_record.start <= target < base_record.start + base_record.disk_size
        return (APPLIED, "applied") if is_inside else (SKIPPED, "other-incarnation")

    # -- end of the log for the library ----------------------------------------------------------------------------

    def _open_file(self, name: str) -> EblobReadState:
        """Simulate the library's walk over the headers, from the first offset that is not a record."""
        file = next(one for one in self.situation.files if one.name == name)
        damage_at = _find_damage(file)
        if damage_at is None:
            return EblobReadState(file, None, file.tail.end if file.tail else file.size)
        if any(found.offset == damage_at and "ceiling" in found.facts for found in file.findings):
            raise LimitError(
                f"{file.path}: a record at {damage_at:#x} is larger than --max record=SIZE; the records after it "
                f"cannot be found"
            )
        open_sibling = self.situation.read_sibling
        read = None if open_sibling is None else open_sibling(name)
        if read is None:
            return EblobReadState(file, damage_at, damage_at)
        walk_end = find_header_walk_end(read, damage_at)
        state = EblobReadState(file, damage_at, walk_end)
        if walk_end is None:
            state.failure = "the sizes of this record lead back to it, so the library's open loops forever"
        elif walk_end > damage_at:
            state.failure = "the body of this record is not in the file, so applying fails with EIO"
        return state

    def _file_key(self, file: ExaminedFile) -> str:
        return file.name if self.situation.is_directory else posixpath.basename(file.name)

    def _close_file(self) -> None:
        """Finish the current file."""
        state, self.read_state = self.read_state, None
        if state is None:
            return
        file, damage_at, key = state.file, state.damage_at, self._file_key(state.file)
        self.opened_files.add(file.name)
        self.positions[key] = state.walk_end
        if damage_at is None or not _has_seen_all_records(state):
            self.positions[key] = state.records_end or state.walk_end
        elif state.failure:
            self.stop = self.stop or ReplayStop(file.name, damage_at, state.failure)
            self.positions[key] = damage_at if state.walk_end else None
        elif (lost_count := file.records - state.record_count) > 0:
            self.findings.append((file.name, _report_lost_records(file, damage_at, lost_count)))

    def finish(self) -> tuple[Iterable[RecordOutcome], ReplayOutcome]:
        """Open files without records too, and return the outcome."""
        self._close_file()
        for file in self.situation.files:
            if file.name not in self.opened_files and not file.records and self._get_skip_reason(file) is None:
                self.read_state = self._open_file(file.name)
                self._close_file()
        position = {"lsn": dict(self.positions)}
        return (), ReplayOutcome(
            None, self.stop, position, tuple(self.findings), {"base_known": self.base_index is not None}
        )


def find_header_walk_end(read_range: RangeReader, start: int) -> int | None:
    """Return where the library's walk over record headers from `start` ends; None = never.

    See docs/spec/eblob.md#library-behaviour: only headers are read.
    """
    offset, visited = start, {start}
    while True:
        head = read_range(offset, RECORD_HEADER_SIZE) if 0 <= offset < _INT64_LIMIT else b""
        if len(head) < RECORD_HEADER_SIZE:
            return offset
        record_type, meta_size, data_size, flags = _RECORD_HEAD.unpack_from(head)
        if record_type != RAW_DATA_TYPE or flags:
            return offset
        offset = (offset + RECORD_HEADER_SIZE + meta_size + data_size) % _UINT64_LIMIT
        if offset in visited or len(visited) > _MAX_STEPS:
            return None if offset in visited else offset
        visited.add(offset)


def _find_damage(file: ExaminedFile) -> int | None:
    """Return the offset of the first bytes that are neither a record nor the zeros of a clean end; None = none."""
    tail = file.tail
    if tail is None:
        return None
    if tail.first_damage is not None:
        return tail.first_damage
    return tail.end if tail.end < tail.size else None


def _has_seen_all_records(state: EblobReadState) -> bool:
    """Return whether all records before the damage were seen (and not only those before `--until`)."""
    record_numbers = [
        found.record for found in state.file.findings if found.offset == state.damage_at and found.record is not None
    ]
    return state.record_count >= min(record_numbers, default=0) or state.delivery_end < (state.damage_at or 0)


def _report_lost_records(file: ExaminedFile, damage_at: int, lost_count: int) -> Finding:
    """Report records after the offset that the library considers the end."""
    is_stale = any(found.facts.get("diagnosis") == STALE for found in file.findings)
    text = f"for the library the log ends here; {lost_count:,} whole records after it are silently not applied"
    text += "; they may be older than those before" if is_stale else ""
    severity = Severity.WARNING if is_stale else Severity.ERROR
    return make_finding(
        "silent-loss",
        damage_at,
        file.size - damage_at,
        text,
        severity=severity,
        lost_records=lost_count,
        stale=is_stale,
    )


def _parse_start_position(position: Mapping[str, Any]) -> tuple[dict[str, BaseRecord] | None, dict[str, int]]:
    """Return (index of the base or None, offset at which the replay of each file begins).

    Raises:
        UsageError: the position is malformed.
    """
    base, offsets = position.get("base"), position.get("lsn", {})
    if not isinstance(offsets, Mapping) or not all(value is None or type(value) is int for value in offsets.values()):
        raise UsageError('--against: {"lsn": {FILE: offset}} is expected')
    known_offsets = {name: value for name, value in offsets.items() if value is not None}
    if base is None:
        return None, known_offsets
    if not isinstance(base, Mapping):
        raise UsageError(_BASE_USAGE)
    for value in base.values():
        if not isinstance(value, list | tuple) or len(value) != 3 or any(type(one) is not int for one in value):
            raise UsageError(_BASE_USAGE)
    return {key.lower(): BaseRecord(*value) for key, value in base.items()}, known_offsets


def parse_blob_index(name: str, data: bytes) -> Mapping[str, Any] | None:
    """Parse the base from an index file of the blob (`data-0.0.index`): consecutive control blocks.

    It gives the current positions of the records; their positions after a sort do not affect what is applied.
    """
    if ".index" not in name or not data or len(data) % CONTROL_SIZE:
        return None
    base = {}
    for key, flags, data_size, disk_size, position in _CONTROL.iter_unpack(data):
        if disk_size < CONTROL_SIZE + data_size or position >= _INT64_LIMIT:
            return None
        if not flags & ControlFlag.REMOVE:
            base[key.hex()] = [position, disk_size, position]
    return {"base": base}


class BlobEffectReader(EffectReader):
    """Reads changes as bytes of the data file, by the offset at which they were written."""

    def read_changes(self, records: DecodedRecords, index: int) -> Iterable[StateChange]:
        """Return the single write of a record."""
        body = records.bodies[index] or {}
        target = body.get("target_offset", body.get("metadata", b""))
        content = {key: value for key, value in body.items() if key not in _FRAMING_MEMBERS}
        return (
            StateChange(records.envelope.object[index] or "", PUT, encode_canonical(target), encode_canonical(content)),
        )


_FRAMING_MEMBERS = ("type", "meta_size", "target_offset", "metadata", "relative_offset")
