"""Validate a log: groups, control blocks, footers and their hashes, in file order (docs/spec/eblob.md#validation)."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import msgspec

from binlogtool.findings import Finding, Severity, make_finding
from binlogtool.format_api.format import FileTail, ValidationResult
from binlogtool.format_api.layout import Batch, Kernel, LogFileLayout, to_int_list
from binlogtool.formats.eblob.classify_overwrites_and_removals import (
    ConsistentGroupReader,
    EblobRecord,
    OverwriteGroupValidator,
    find_preceding_records,
    iter_classified_records,
    remember_last_records,
)
from binlogtool.formats.eblob.decode import type_names
from binlogtool.formats.eblob.explain_damage import DamageBoundaryChecker
from binlogtool.formats.eblob.schema import TARGET_SIZE

if TYPE_CHECKING:
    from binlogtool.formats.eblob.decode import EblobDialect, EblobFileContext
    from binlogtool.limits import Limits

_COLUMNS = ("offset", "end", "meta_size", "data_size")
_MAX_GENERAL_RUN = 64

PROVEN_PROPERTIES = (
    "magic, version and flags of the header",
    "the chain of records: type, flags and sizes of each",
    "the end of the log: end of file or zeros",
)
PROVEN_GROUP_PROPERTIES = (
    "control block against key, target and footer of its overwrite",
    "data of a whole overwrite against the SHA-512 in its footer",
)


class AnomalyCounter(msgspec.Struct):
    """Counts anomalies that the library allows but a data-sort does not write; they are reported once per file."""

    other_metadata: int = 0
    other_metadata_at: tuple[int, int] = (0, 0)
    empty: int = 0
    empty_at: tuple[int, int] = (0, 0)

    def make_findings(self, record_count: int, is_data_sort: bool) -> list[Finding]:
        """Create the findings. is_data_sort: a data-sort certainly wrote the log, so anomalies are suspicious."""
        severity = Severity.WARNING if is_data_sort else Severity.NOTE
        explanation = "" if is_data_sort else ": the log was not written by a data-sort"
        findings = []
        if self.other_metadata:
            text = f"metadata of {self.other_metadata:,} of {record_count:,} records is not 8 bytes{explanation}"
            findings.append(
                _report_anomaly(self.other_metadata_at, text, severity, "metadata size is not 8", self.other_metadata)
            )
        if self.empty:
            text = f"{self.empty:,} of {record_count:,} records have no data{explanation}"
            findings.append(_report_anomaly(self.empty_at, text, severity, "record without data", self.empty))
        return findings


def _report_anomaly(byte_range: tuple[int, int], text: str, severity: Severity, diagnosis: str, count: int) -> Finding:
    return make_finding(
        "payload-undecodable", byte_range[0], byte_range[1], text, severity=severity, diagnosis=diagnosis, records=count
    )


class EblobValidator(msgspec.Struct):
    """Validator of one file of any dialect (`format_api.format.Validator`)."""

    context: EblobFileContext
    frames_at: int
    group_validator: OverwriteGroupValidator = msgspec.field(default_factory=OverwriteGroupValidator)
    damage_boundaries: DamageBoundaryChecker = msgspec.field(default_factory=DamageBoundaryChecker)
    anomalies: AnomalyCounter = msgspec.field(default_factory=AnomalyCounter)
    kind_counts: Counter[str] = msgspec.field(default_factory=Counter)
    next_number: int = 0
    records_end: int = 0

    @property
    def dialect(self) -> EblobDialect:
        """The dialect of the file."""
        return self.context.dialect

    def validate_batch(self, batch: Batch) -> Sequence[Finding]:
        """Validate the records of one batch."""
        count = batch.frames.count
        findings = _check_reserved_bytes(batch)
        self.damage_boundaries.add_records(batch, self.dialect)
        if self.dialect.is_grouped:
            findings += self._validate_groups(batch)
        else:
            names = type_names(self.dialect)
            self.kind_counts.update(names[kind] for kind in to_int_list(batch.frames["type"], 0, count))
        self.next_number += count
        self.records_end = batch.base + int(batch.frames["end"][count - 1])
        return findings

    def _validate_groups(self, batch: Batch) -> list[Finding]:
        """Validate usual groups as a whole, and other records one by one; in longer runs if usual groups are rare."""
        columns = [to_int_list(batch.frames[name], 0, batch.frames.count) for name in _COLUMNS]
        usual_groups = ConsistentGroupReader(
            self.group_validator, batch.window, batch.base, batch.first_record, columns
        )
        findings: list[Finding] = []
        index, run_length = 0, 1
        while index < batch.frames.count:
            start = index
            if self.dialect.byte_order == "little" and usual_groups.can_begin_group(index):
                self.group_validator.end_unfinished_group()
                index = usual_groups.read_consistent_groups(index, self.kind_counts)
            run_length = 1 if index > start else min(2 * run_length, _MAX_GENERAL_RUN)
            index = self._validate_records(
                batch, index, min(index + run_length, batch.frames.count), columns[2], findings
            )
        self.group_validator.end_batch()
        remember_last_records(batch, self.context.last_records, self.dialect.byte_order)
        return findings

    def _validate_records(
        self, batch: Batch, start: int, stop: int, meta_sizes: list[int], findings: list[Finding]
    ) -> int:
        """Validate the records `[start, stop)` one by one; return `stop`."""
        if start == stop:
            return stop
        byte_order, base = self.dialect.byte_order, batch.base
        previous = find_preceding_records(batch, start, self.context.last_records, byte_order)
        for record, meta_size in zip(
            iter_classified_records(batch, start, stop, previous, byte_order), meta_sizes[start:stop], strict=True
        ):
            self.kind_counts[record.kind.name] += 1
            if meta_size != TARGET_SIZE or not record.data_size:
                self._count_anomaly(record, meta_size)
            end = record.end - base
            findings += self.group_validator.add_record(record, batch.window[end - record.data_size : end])
        return stop

    def _count_anomaly(self, record: EblobRecord, meta_size: int) -> None:
        anomalies, byte_range = self.anomalies, (record.start, record.size)
        if meta_size != TARGET_SIZE:
            anomalies.other_metadata_at = anomalies.other_metadata_at if anomalies.other_metadata else byte_range
            anomalies.other_metadata += 1
        if not record.data_size:
            anomalies.empty_at = anomalies.empty_at if anomalies.empty else byte_range
            anomalies.empty += 1

    def skip_damage(self, start: int, end: int) -> None:
        """Record that records of any group may be lost in `[start, end)`."""
        self.group_validator.drop_group_at_damage()
        self.damage_boundaries.add_damage(start, end, self.context.unreadable_header)

    def finish(self, tail: FileTail) -> ValidationResult:
        """Return the result at the end of the file."""
        findings = [*self.group_validator.report_unfinished_overwrites(), *self.damage_boundaries.list_findings()]
        if self.dialect.is_grouped:
            findings += self.anomalies.make_findings(self.next_number, self.group_validator.is_data_sort)
        if self.next_number:
            findings.append(self._report_no_checksum())
        return ValidationResult(
            transactions=self.group_validator.complete,
            record_types=dict(self.kind_counts),
            findings=tuple(findings),
            durable_end=self.damage_boundaries.durable_end,
            details={"dialect": self.dialect.name, **self._hash_coverage()},
        )

    def _hash_coverage(self) -> Mapping[str, Any]:
        groups = self.group_validator
        return {
            "groups_complete": groups.complete,
            "overwrites_with_right_hash": groups.hashed,
            "overwrites_without_hash": groups.unhashed,
            "data_bytes_with_right_hash": groups.hashed_bytes,
        }

    def _report_no_checksum(self) -> Finding:
        """Report once per file what checksums do not cover, and what can be proven nevertheless."""
        groups = self.group_validator
        text = "this format has no checksums; changed keys, targets and data, and missing records, cannot be detected"
        if groups.hashed:
            text += (
                f"; the data of {groups.hashed:,} of {self.next_number:,} records "
                f"({groups.hashed_bytes:,} bytes) agrees "
            )
            text += "with the SHA-512 in the footer after it"
        provable = PROVEN_PROPERTIES + (PROVEN_GROUP_PROPERTIES if self.dialect.is_grouped else ())
        size = self.records_end - self.frames_at
        return make_finding(
            "checksum-absent", self.frames_at, size, text, diagnosis="no checksum", provable=list(provable),
            records=self.next_number, records_with_right_hash=groups.hashed,
        )  # fmt: skip


def _check_reserved_bytes(batch: Batch) -> list[Finding]:
    """Report padding of record headers that is not zero: eblob writes 0 and never checks it."""
    column: Any = batch.frames["pad_bits"]
    count = batch.frames.count
    pad_bits = column[:count]
    if not (pad_bits.any() if hasattr(pad_bits, "any") else any(pad_bits)):
        return []
    starts, ends = (to_int_list(batch.frames[name], 0, count) for name in ("offset", "end"))
    return [
        make_finding(
            "reserved-bits-set", batch.base + starts[i], ends[i] - starts[i],
            "reserved bytes of the record header are not zero; eblob ignores them", record=batch.first_record + i,
            diagnosis="reserved record bytes not zero (warning)",
        )
        for i, bits in enumerate(to_int_list(column, 0, count)) if bits
    ]  # fmt: skip


def create_validator(layout: LogFileLayout, compile: Callable[[Kernel], Kernel], limits: Limits) -> EblobValidator:
    """Create the validator of one file; its memory is bounded by `classify_overwrites_and_removals.MAX_KEYS` and
    `explain_damage.MAX_KEPT_BYTES`.
    """
    return EblobValidator(layout.context, layout.frames_at)
