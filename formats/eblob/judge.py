"""Validate a log: groups, control blocks, footers and their hashes, in file order
(docs/spec/eblob-binlog.md#8-verify).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import msgspec

from binlogtool.findings import Finding, Severity, finding
from binlogtool.formats.columns import integers
from binlogtool.formats.eblob.damage.borders import Borders
from binlogtool.formats.eblob.groups.grouping import Record, preceding, records, remember
from binlogtool.formats.eblob.groups.groups import Groups
from binlogtool.formats.eblob.groups.shapes import Shapes
from binlogtool.formats.eblob.layout.dialects import Dialect
from binlogtool.formats.eblob.layout.layout import Log
from binlogtool.formats.eblob.meaning import type_names
from binlogtool.formats.eblob.schema import TARGET_SIZE
from binlogtool.formats.judging import Tail, Verdict
from binlogtool.formats.layouts import Batch, Kernel, Layout
from binlogtool.limits import Limits

_COLUMNS = ("offset", "end", "meta_size", "data_size")
_STRETCH = 64

PROVABLE = (
    "magic, version and flags of the header",
    "the chain of records: type, flags and sizes of each",
    "the end of the log: end of file or zeros",
)
PROVABLE_IN_GROUPS = (
    "control block against key, target and footer of its overwrite",
    "data of a whole overwrite against the SHA-512 in its footer",
)


class Oddities(msgspec.Struct):
    """Counts what the library allows but a data-sort does not write; reported once per file."""

    other_metadata: int = 0
    other_metadata_at: tuple[int, int] = (0, 0)
    empty: int = 0
    empty_at: tuple[int, int] = (0, 0)

    def findings(self, records: int, sorted_: bool) -> list[Finding]:
        """Create the findings.

        Args:
            is_data_sort: the log is proven to be of a data-sort, so an anomaly is suspicious.
        """
        severity = Severity.WARNING if sorted_ else Severity.NOTE
        why = "" if sorted_ else ": the log was not written by a data-sort"
        found = []
        if self.other_metadata:
            text = f"metadata of {self.other_metadata:,} of {records:,} records is not 8 bytes{why}"
            found.append(_odd(self.other_metadata_at, text, severity, "metadata size is not 8", self.other_metadata))
        if self.empty:
            text = f"{self.empty:,} of {records:,} records have no data{why}"
            found.append(_odd(self.empty_at, text, severity, "record without data", self.empty))
        return found


def _odd(place: tuple[int, int], text: str, severity: Severity, diagnosis: str, count: int) -> Finding:
    return finding(
        "payload-undecodable", place[0], place[1], text, severity=severity, diagnosis=diagnosis, records=count
    )


class RecordJudge(msgspec.Struct):
    """`formats.judging.Judge` for one file of any dialect."""

    context: Log
    frames_at: int
    groups: Groups = msgspec.field(default_factory=Groups)
    borders: Borders = msgspec.field(default_factory=Borders)
    oddities: Oddities = msgspec.field(default_factory=Oddities)
    kinds: Counter[str] = msgspec.field(default_factory=Counter)
    count: int = 0
    end: int = 0

    @property
    def dialect(self) -> Dialect:
        """The dialect of the file."""
        return self.context.dialect

    def feed(self, batch: Batch) -> Sequence[Finding]:
        """Validate the records of one batch."""
        count = batch.frames.count
        found = _pads(batch)
        self.borders.records(batch, self.dialect)
        if self.dialect.grouped:
            found += self._grouped(batch)
        else:
            names = type_names(self.dialect)
            self.kinds.update(names[kind] for kind in integers(batch.frames["type"], 0, count))
        self.count += count
        self.end = batch.base + int(batch.frames["end"][count - 1])
        return found

    def _grouped(self, batch: Batch) -> list[Finding]:
        """Validate usual groups as a whole, other records one by one, in longer runs if usual groups are rare."""
        columns = [integers(batch.frames[name], 0, batch.frames.count) for name in _COLUMNS]
        shapes = Shapes(self.groups, batch.window, batch.base, batch.first_record, columns)
        found: list[Finding] = []
        i, stretch = 0, 1
        while i < batch.frames.count:
            start = i
            if self.dialect.byte_order == "little" and shapes.can_begin(i):
                self.groups.leave()
                i = shapes.take(i, self.kinds)
            stretch = 1 if i > start else min(2 * stretch, _STRETCH)
            i = self._one_by_one(batch, i, min(i + stretch, batch.frames.count), columns[2], found)
        self.groups.keep()
        remember(batch, self.context.tails, self.dialect.byte_order)
        return found

    def _one_by_one(self, batch: Batch, start: int, stop: int, metadata: list[int], found: list[Finding]) -> int:
        """Validate the records `[start, stop)` one by one; returns `stop`."""
        if start == stop:
            return stop
        order, base = self.dialect.byte_order, batch.base
        before = preceding(batch, start, self.context.tails, order)
        for record, meta_size in zip(records(batch, start, stop, before, order), metadata[start:stop], strict=True):
            self.kinds[record.kind.name] += 1
            if meta_size != TARGET_SIZE or not record.data_size:
                self._odd(record, meta_size)
            end = record.end - base
            found += self.groups.add(record, batch.window[end - record.data_size : end])
        return stop

    def _odd(self, record: Record, meta_size: int) -> None:
        odd, place = self.oddities, (record.start, record.size)
        if meta_size != TARGET_SIZE:
            odd.other_metadata_at = odd.other_metadata_at if odd.other_metadata else place
            odd.other_metadata += 1
        if not record.data_size:
            odd.empty_at = odd.empty_at if odd.empty else place
            odd.empty += 1

    def damage(self, start: int, end: int) -> None:
        """Record that records of any group may be lost in `[start, end)`."""
        self.groups.damage()
        self.borders.damage(start, end, self.context.unread)

    def finish(self, tail: Tail) -> Verdict:
        """Return the verdict at the end of the file."""
        found = [*self.groups.finish(), *self.borders.findings()]
        if self.dialect.grouped:
            found += self.oddities.findings(self.count, self.groups.sorted)
        if self.count:
            found.append(self._no_checksum())
        return Verdict(
            transactions=self.groups.complete,
            record_types=dict(self.kinds),
            findings=tuple(found),
            durable_end=self.borders.durable_end,
            details={"dialect": self.dialect.name, **self._coverage()},
        )

    def _coverage(self) -> Mapping[str, Any]:
        groups = self.groups
        return {
            "groups_complete": groups.complete,
            "overwrites_with_right_hash": groups.hashed,
            "overwrites_without_hash": groups.unhashed,
            "data_bytes_with_right_hash": groups.hashed_bytes,
        }

    def _no_checksum(self) -> Finding:
        """Report once per file what is not covered by checksums, and what can be proven nevertheless."""
        groups = self.groups
        text = "this format has no checksums: changed keys, targets and data go unnoticed, and so do missing records"
        if groups.hashed:
            text += f"; the data of {groups.hashed:,} of {self.count:,} records ({groups.hashed_bytes:,} bytes) agrees "
            text += "with the SHA-512 in the footer behind it"
        provable = PROVABLE + (PROVABLE_IN_GROUPS if self.dialect.grouped else ())
        size = self.end - self.frames_at
        return finding(
            "checksum-absent", self.frames_at, size, text, diagnosis="no checksum", provable=list(provable),
            records=self.count, records_with_right_hash=groups.hashed,
        )  # fmt: skip


def _pads(batch: Batch) -> list[Finding]:
    """Report padding of record headers that is not zero: written as 0, never checked by eblob."""
    column: Any = batch.frames["pad_bits"]
    count = batch.frames.count
    part = column[:count]
    if not (part.any() if hasattr(part, "any") else any(part)):
        return []
    starts, ends = (integers(batch.frames[name], 0, count) for name in ("offset", "end"))
    return [
        finding(
            "reserved-bits-set", batch.base + starts[i], ends[i] - starts[i],
            "reserved bytes of the record header are not zero; eblob ignores them", record=batch.first_record + i,
            diagnosis="reserved record bytes not zero (warning)",
        )
        for i, bits in enumerate(integers(column, 0, count)) if bits
    ]  # fmt: skip


def judge(layout: Layout, compile: Callable[[Kernel], Kernel], limits: Limits) -> RecordJudge:
    """Create the validator of one file; its memory is bounded by `groups.MAX_KEYS` and `borders.MAX_KEPT_BYTES`."""
    return RecordJudge(layout.context, layout.frames_at)
