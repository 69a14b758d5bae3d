"""Base of the validators of all five kinds of files: locations of rows, counts, notes about blocks."""

from __future__ import annotations

from array import array
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import msgspec

from binlogtool.findings import Finding, Severity, make_finding
from binlogtool.formats.judging import FileTail, ValidationResult
from binlogtool.formats.layouts import U64, Batch, Kernel, LogFileLayout
from binlogtool.formats.tarantool.codes import COMPRESS_THRESHOLD, FIXHEADER_SIZE, PLAIN_MAGIC, FileKind, RowType
from binlogtool.formats.tarantool.judge import folds
from binlogtool.formats.tarantool.layout.layout import TarantoolContext
from binlogtool.formats.tarantool.meaning import find_too_deep_rows
from binlogtool.formats.tarantool.msgpack.messages import limit_depth
from binlogtool.formats.tarantool.rows.names import TYPE_NAMES
from binlogtool.formats.tarantool.rows.rows import DUPLICATE_KEY, UNKNOWN_KEY
from binlogtool.limits import Limits

SPACE_ID, KEY, TUPLE, OPS = 0x10, 0x20, 0x21, 0x28
REQUIRED_KEYS: Mapping[int, tuple[int, ...]] = {
    RowType.INSERT: (SPACE_ID, TUPLE),
    RowType.REPLACE: (SPACE_ID, TUPLE),
    RowType.UPDATE: (SPACE_ID, KEY, TUPLE),
    RowType.DELETE: (SPACE_ID, KEY),
    RowType.UPSERT: (SPACE_ID, TUPLE, OPS),
    RowType.NOP: (),
    RowType.INSERT_ARROW: (SPACE_ID, 0x36),
    RowType.DELETE_RANGE: (SPACE_ID, 0x37, 0x38),
    RowType.RAFT: (),
    RowType.RAFT_PROMOTE: (2, 3),
    RowType.RAFT_DEMOTE: (2, 3),
    RowType.CONFIRM: (2, 3),
    RowType.ROLLBACK: (2, 3),
}
"""Body keys that a row of a log must have (docs/spec/tarantool.md#row-types)."""


class RowLocation(NamedTuple):
    """Location of a row: offset, size and index of its block, and the row's number in the file."""

    offset: int
    size: int
    frame: int
    record: int


class BlockNote(msgspec.Struct):
    """An unusual property of blocks, reported once per file with the number of blocks that have it."""

    location: RowLocation
    text: str
    id: str
    severity: Severity = Severity.WARNING
    count: int = 1


def create_kernel_state(compile_: Any) -> Any:
    """Create the state of a kernel: a list for the interpreter, an array of 64-bit integers for compiled code."""
    return (
        [0] * folds.STATE_SIZE
        if compile_(folds.skip_ordered_log_rows) is folds.skip_ordered_log_rows
        else array("q", bytes(8 * folds.STATE_SIZE))
    )


def format_range(numbers: Sequence[int]) -> str:
    """Format the first and last number as `5` or `5..9`."""
    return str(numbers[0]) if numbers[0] == numbers[-1] else f"{numbers[0]}..{numbers[-1]}"


class TarantoolValidator:
    """Base of the validators. Each kind of file overrides `check_rows` and `check_end`."""

    def __init__(self, layout: LogFileLayout, compile_: Any, limits: Limits) -> None:
        self.context: TarantoolContext = layout.context
        self.frames_at = layout.frames_at
        self.max_depth = limit_depth(limits)
        self.type_counts: Counter[str] = Counter()
        self.damaged_ranges: list[tuple[int, int]] = []
        self._block_notes: dict[str, BlockNote] = {}
        self._last_block = (-1, -1), 0, 0
        """The last block that a place was asked of, its offset and size: rows of one block follow each other."""
        self._find_odd_block: Kernel = compile_(folds.find_odd_block)

    # -- the protocol of `formats.judging.Validator`
    # ----------------------------------------------------------------------

    def feed(self, batch: Batch) -> Sequence[Finding]:
        """Return the findings of a batch."""
        self._check_blocks(batch)
        findings = [*self.check_rows(batch), *find_too_deep_rows(batch, self.max_depth)]
        return [self.context.cap_severity(one) for one in findings]

    def skip_damage(self, start: int, end: int) -> None:
        """Record that a range of the file was skipped."""
        self.damaged_ranges.append((start, end))

    def finish(self, tail: FileTail) -> ValidationResult:
        """Return the verdict about the whole file."""
        return self.create_verdict(
            tail, [self.context.cap_severity(found) for found in (*self.report_block_notes(), *self.check_end(tail))]
        )

    # -- overridden by each kind ---------------------------------------------------------------------------------------

    def check_rows(self, batch: Batch) -> list[Finding]:
        """Return the findings about the rows of a batch."""
        raise AssertionError("abstract")  # pragma: no cover

    def check_end(self, tail: FileTail) -> list[Finding]:
        """Return the findings that only the end of the file allows."""
        return []

    def create_verdict(self, tail: FileTail, findings: list[Finding]) -> ValidationResult:
        """Combine counts, facts and findings to a verdict."""
        return ValidationResult(sum(self.type_counts.values()), dict(self.type_counts), tuple(findings))

    # -- shared ----------------------------------------------------------------------------------------------------

    def locate_row(self, batch: Batch, index: int) -> RowLocation:
        """Locate row `index` of a batch."""
        return self.locate_block(batch, batch.frame_index(index), batch.first_record + index)

    def locate_block(self, batch: Batch, frame: int, record: int) -> RowLocation:
        """Locate block `frame` of a batch; `record` is the number of the row that is asked for."""
        key = (batch.base, batch.first_frame + frame)
        if self._last_block[0] != key:
            low, high = int(batch.frames["offset"][frame]), int(batch.frames["end"][frame])
            self._last_block = key, batch.base + low, high - low
        _, offset, size = self._last_block
        return RowLocation(offset, size, key[1], record)

    def create_finding(self, id_: str, location: RowLocation, text: str, diagnosis: str, **facts: Any) -> Finding:
        """Create a finding about the block of a row."""
        return make_finding(
            id_, location.offset, location.size, text, record=location.record, diagnosis=diagnosis, **facts
        )

    def check_body(self, batch: Batch, index: int, location: RowLocation, required: Sequence[int]) -> list[Finding]:
        """Report keys that occur twice, and required keys that are missing."""
        table = batch.records
        header, body = int(table["header_keys"][index]), int(table["body_keys"][index])
        findings = []
        if (header | body) & DUPLICATE_KEY:
            findings.append(
                self.create_finding("duplicate-key", location, "a key stands twice in a row", "duplicate_key")
            )
        missing = [f"{key:#04x}" for key in required if not body >> key & 1]
        if missing:
            name = TYPE_NAMES[int(table["type"][index])]
            text = f"{name} without the body key {' and '.join(missing)}"
            findings.append(self.create_finding("payload-undecodable", location, text, "missing_body_key"))
        return findings

    def report_wrong_type(self, batch: Batch, index: int, location: RowLocation, diagnosis: str) -> Finding:
        """Report a row type that this kind of file must not contain: the server refuses it."""
        name = TYPE_NAMES[int(batch.records["type"][index]) & U64]
        text = f"a row of type {name} in a {self.context.kind} file"
        return self.create_finding("unknown-record-type", location, text, diagnosis, severity=Severity.ERROR)

    def note_block(
        self, kind: str, id_: str, location: RowLocation, text: str, severity: Severity = Severity.WARNING
    ) -> None:
        """Note an unusual property of a block; `kind` is its diagnosis."""
        note = self._block_notes.get(kind)
        if note:
            note.count += 1
        else:
            self._block_notes[kind] = BlockNote(location, text, id_, severity)

    def report_block_notes(self) -> list[Finding]:
        """Return one finding for each kind of unusual block."""
        return [
            self.create_finding(
                r.id, r.location, r.text + (f"; {r.count:,} blocks like this" if r.count > 1 else ""), kind,
                severity=r.severity, blocks=r.count,
            )
            for kind, r in self._block_notes.items()
        ]  # fmt: skip

    def _check_blocks(self, batch: Batch) -> None:
        """Note blocks that use unused fields, or are stored plain although they are large."""
        frames = batch.frames
        names = ("magic", "header.length", "header.crc32p", "header.end", "payload_start")
        columns = (*(frames[name] for name in names), batch.window)
        index = 0
        while (index := self._find_odd_block(index, frames.count, *columns)) < frames.count:
            self._note_odd_block(batch, index)
            index += 1

    def _note_odd_block(self, batch: Batch, index: int) -> None:
        table = batch.frames
        location = self.locate_block(batch, index, batch.first_record)
        if int(table["header.crc32p"][index]):
            self.note_block(
                "previous_crc_used", "reserved-bits-set", location, "the unused field `previous crc` is not zero"
            )
        filler = bytes(batch.window[int(table["header.end"][index]) : int(table["payload_start"][index])])
        if (filler[1:].strip(b"\0") or not 0xA0 <= filler[0] <= 0xBF) and self._writes_zero_filler():
            self.note_block(
                "padding_not_zero", "reserved-bits-set", location, "the filler of the block's header is not zero"
            )
        if not int(table["header.length"][index]) and table["magic"][index] == PLAIN_MAGIC:
            text = "a block without rows: the server cannot allocate 0 bytes for them, and does not start"
            self.note_block("empty_block", "length-out-of-bounds", location, text, Severity.ERROR)
        is_large = int(table["header.length"][index]) + FIXHEADER_SIZE >= COMPRESS_THRESHOLD
        if (
            is_large
            and table["magic"][index] == PLAIN_MAGIC
            and self.context.kind is FileKind.XLOG
            and self._writes_zero_filler()
        ):
            text = "a block of 2 KiB or more is not compressed"
            self.note_block("plain_block_large", "length-out-of-bounds", location, text)

    def _writes_zero_filler(self) -> bool:
        """True unless a server up to 1.7 wrote the file: those left garbage in the filler, and did not compress
        everything.
        """
        version = self.context.version or "1."
        return not version.startswith("1.")


__all__ = ["REQUIRED_KEYS", "UNKNOWN_KEY", "RowLocation", "TarantoolValidator", "create_kernel_state", "format_range"]
