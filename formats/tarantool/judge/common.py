"""Base of the validators of all five kinds of files: locations of rows, counts, notes about blocks."""

from __future__ import annotations

from array import array
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import msgspec

from binlogtool.findings import Finding, Severity, finding
from binlogtool.formats.judging import Tail, Verdict
from binlogtool.formats.layouts import U64, Batch, Kernel, Layout
from binlogtool.formats.tarantool.codes import COMPRESS_FROM, FIXED_SIZE, PLAIN, FileKind, RowType
from binlogtool.formats.tarantool.judge import folds
from binlogtool.formats.tarantool.layout.layout import FileContext
from binlogtool.formats.tarantool.meaning import too_deep_rows
from binlogtool.formats.tarantool.msgpack.messages import bounded
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
"""Body keys that a row of a log must have (specification section 2.3)."""


class Place(NamedTuple):
    """Location of a row: offset, size and index of its block, and the row's number in the file."""

    offset: int
    size: int
    frame: int
    record: int


class Remark(msgspec.Struct):
    """An unusual property of blocks, reported once per file with the number of blocks that have it."""

    place: Place
    text: str
    id: str
    severity: Severity = Severity.WARNING
    count: int = 1


def new_state(compile_: Any) -> Any:
    """Create the state of a kernel: a list for the interpreter, an array of 64-bit integers for compiled code."""
    return [0] * folds.SIZE if compile_(folds.fold_log) is folds.fold_log else array("q", bytes(8 * folds.SIZE))


def ranges(numbers: Sequence[int]) -> str:
    """Format the first and last number as `5` or `5..9`."""
    return str(numbers[0]) if numbers[0] == numbers[-1] else f"{numbers[0]}..{numbers[-1]}"


class FileJudge:
    """Base of the validators. Each kind of file overrides `check_rows` and `check_end`."""

    def __init__(self, layout: Layout, compile_: Any, limits: Limits) -> None:
        self.context: FileContext = layout.context
        self.frames_at = layout.frames_at
        self.depth = bounded(limits)
        self.types: Counter[str] = Counter()
        self.damages: list[tuple[int, int]] = []
        self._remarks: dict[str, Remark] = {}
        self._near = (-1, -1), 0, 0
        """The last block that a place was asked of, its offset and size: rows of one block follow each other."""
        self._odd_frame: Kernel = compile_(folds.odd_frame)

    # -- the protocol of `formats.judging.Judge` ----------------------------------------------------------------------

    def feed(self, batch: Batch) -> Sequence[Finding]:
        """Return the findings of a batch."""
        self._frames(batch)
        found = [*self.rows(batch), *too_deep_rows(batch, self.depth)]
        return [self.context.soften(one) for one in found]

    def damage(self, start: int, end: int) -> None:
        """Record that a range of the file was skipped."""
        self.damages.append((start, end))

    def finish(self, tail: Tail) -> Verdict:
        """Return the verdict about the whole file."""
        return self.verdict(tail, [self.context.soften(found) for found in (*self.remarks(), *self.end(tail))])

    # -- overridden by each kind ---------------------------------------------------------------------------------------

    def rows(self, batch: Batch) -> list[Finding]:
        """Return the findings about the rows of a batch."""
        raise AssertionError("abstract")  # pragma: no cover

    def end(self, tail: Tail) -> list[Finding]:
        """Return the findings that only the end of the file allows."""
        return []

    def verdict(self, tail: Tail, findings: list[Finding]) -> Verdict:
        """Combine counts, facts and findings to a verdict."""
        return Verdict(sum(self.types.values()), dict(self.types), tuple(findings))

    # -- shared ----------------------------------------------------------------------------------------------------

    def place(self, batch: Batch, index: int) -> Place:
        """Locate row `index` of a batch."""
        return self.frame_place(batch, batch.frame_of(index), batch.first_record + index)

    def frame_place(self, batch: Batch, frame: int, record: int) -> Place:
        """Locate block `frame` of a batch; `record` is the number of the row that is asked for."""
        key = (batch.base, batch.first_frame + frame)
        if self._near[0] != key:
            low, high = int(batch.frames["offset"][frame]), int(batch.frames["end"][frame])
            self._near = key, batch.base + low, high - low
        _, offset, size = self._near
        return Place(offset, size, key[1], record)

    def tell(self, id_: str, place: Place, text: str, diagnosis: str, **more: Any) -> Finding:
        """Create a finding about the block of a row."""
        return finding(id_, place.offset, place.size, text, record=place.record, diagnosis=diagnosis, **more)

    def check_body(self, batch: Batch, index: int, place: Place, required: Sequence[int]) -> list[Finding]:
        """Report keys that occur twice, and required keys that are missing."""
        table = batch.records
        header, body = int(table["header_keys"][index]), int(table["body_keys"][index])
        found = []
        if (header | body) & DUPLICATE_KEY:
            found.append(self.tell("duplicate-key", place, "a key stands twice in a row", "duplicate_key"))
        missing = [f"{key:#04x}" for key in required if not body >> key & 1]
        if missing:
            name = TYPE_NAMES[int(table["type"][index])]
            text = f"{name} without the body key {' and '.join(missing)}"
            found.append(self.tell("payload-undecodable", place, text, "missing_body_key"))
        return found

    def wrong_type(self, batch: Batch, index: int, place: Place, diagnosis: str) -> Finding:
        """Report a row type that this kind of file must not contain: the server refuses it."""
        name = TYPE_NAMES[int(batch.records["type"][index]) & U64]
        text = f"a row of type {name} in a {self.context.kind} file"
        return self.tell("unknown-record-type", place, text, diagnosis, severity=Severity.ERROR)

    def remark(self, kind: str, id_: str, place: Place, text: str, severity: Severity = Severity.WARNING) -> None:
        """Note an unusual property of a block; `kind` is its diagnosis."""
        known = self._remarks.get(kind)
        if known:
            known.count += 1
        else:
            self._remarks[kind] = Remark(place, text, id_, severity)

    def remarks(self) -> list[Finding]:
        """Return one finding for each kind of unusual block."""
        return [
            self.tell(
                r.id, r.place, r.text + (f"; {r.count:,} blocks like this" if r.count > 1 else ""), kind,
                severity=r.severity, blocks=r.count,
            )
            for kind, r in self._remarks.items()
        ]  # fmt: skip

    def _frames(self, batch: Batch) -> None:
        """Note blocks that use unused fields, or are stored plain although they are large."""
        t = batch.frames
        names = ("magic", "header.length", "header.crc32p", "header.end", "payload_start")
        columns = (*(t[name] for name in names), batch.window)
        index = 0
        while (index := self._odd_frame(index, t.count, *columns)) < t.count:
            self._remark_frame(batch, index)
            index += 1

    def _remark_frame(self, batch: Batch, index: int) -> None:
        table = batch.frames
        place = self.frame_place(batch, index, batch.first_record)
        if int(table["header.crc32p"][index]):
            self.remark("previous_crc_used", "reserved-bits-set", place, "the unused field `previous crc` is not zero")
        filler = bytes(batch.window[int(table["header.end"][index]) : int(table["payload_start"][index])])
        if (filler[1:].strip(b"\0") or not 0xA0 <= filler[0] <= 0xBF) and self._writes_zeros():
            self.remark("padding_not_zero", "reserved-bits-set", place, "the filler of the block's header is not zero")
        if not int(table["header.length"][index]) and table["magic"][index] == PLAIN:
            text = "a block without rows: the server cannot allocate 0 bytes for them, and does not start"
            self.remark("empty_block", "length-out-of-bounds", place, text, Severity.ERROR)
        large = int(table["header.length"][index]) + FIXED_SIZE >= COMPRESS_FROM
        if large and table["magic"][index] == PLAIN and self.context.kind is FileKind.XLOG and self._writes_zeros():
            text = "a block of 2 KiB or more is not compressed"
            self.remark("plain_block_large", "length-out-of-bounds", place, text)

    def _writes_zeros(self) -> bool:
        """True unless a server up to 1.7 wrote the file: those left garbage in the filler, and did not compress
        everything.
        """
        version = self.context.version or "1."
        return not version.startswith("1.")


__all__ = ["REQUIRED_KEYS", "UNKNOWN_KEY", "FileJudge", "Place", "new_state", "ranges"]
