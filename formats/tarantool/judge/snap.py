"""Validator of a checkpoint (.snap): types, numbering, order of spaces and keys.

Source: `docs/spec/tarantool.md#snapshots`, `#validation`.
"""

from __future__ import annotations

from array import array
from collections.abc import Iterator
from typing import Any

import msgspec

from binlogtool.findings import Finding, Severity, make_finding
from binlogtool.formats.judging import FileTail, ValidationResult
from binlogtool.formats.layouts import Batch, LogFileLayout
from binlogtool.formats.tarantool.codes import BOX_SYSTEM_ID_MAX, BodyKey, RowType
from binlogtool.formats.tarantool.judge import folds
from binlogtool.formats.tarantool.judge.common import (
    REQUIRED_KEYS,
    RowLocation,
    TarantoolValidator,
    create_kernel_state,
)
from binlogtool.formats.tarantool.meaning import (
    BOX_SPACE_ID,
    cache_by_body,
    decode_tree,
    learn_space_name,
    read_body_bytes,
)
from binlogtool.formats.tarantool.msgpack.values import to_python
from binlogtool.formats.tarantool.rows.names import TYPE_NAMES
from binlogtool.limits import Limits

_ALLOWED_TYPES = (RowType.INSERT, RowType.RAFT, RowType.RAFT_PROMOTE)
_BOX_INDEX_ID = 288
_BOX_SCHEMA_ID = 272
_INTEGER_KEY, _STRING_KEY = 0, 1
_KEY_KINDS = {
    "unsigned": _INTEGER_KEY, "num": _INTEGER_KEY, "uint": _INTEGER_KEY, "integer": _INTEGER_KEY, "int": _INTEGER_KEY,
    "string": _STRING_KEY, "str": _STRING_KEY,
}  # fmt: skip
_SYSTEM_KEYS: dict[int, tuple[int, ...]] = {
    272: (0, _STRING_KEY), 276: (0, _INTEGER_KEY), 280: (0, _INTEGER_KEY), 284: (0, _INTEGER_KEY),
    288: (0, _INTEGER_KEY, 1, _INTEGER_KEY),
}  # fmt: skip
"""Primary keys of the system spaces whose rows come before those of `_index`: pairs of field and kind."""

MAX_REMEMBERED_IN_SNAP = 100_000


class SnapFacts(msgspec.Struct, frozen=True):
    """Facts about a snapshot for the rules of a set: ids of the spaces that it defines, and whether it is complete."""

    defined: frozenset[int]
    whole: bool


class SnapValidator(TarantoolValidator):
    """Validator of the rows of one snapshot."""

    def __init__(self, layout: LogFileLayout, compile_: Any, limits: Limits) -> None:
        super().__init__(layout, compile_, limits)
        self._skip_rows = compile_(folds.skip_ordered_snapshot_rows)
        self._find_falling_key = compile_(folds.find_falling_key)
        self._is_compiled = self._skip_rows is not folds.skip_ordered_snapshot_rows
        self.state = create_kernel_state(compile_)
        self.state[folds.LSN_SLOTS] = self.state[folds.LAST_SPACE] = -1
        self._seen_spaces: set[int] = set()
        self._primary_keys: dict[int, Any] = {space: self._pack_parts(parts) for space, parts in _SYSTEM_KEYS.items()}
        self._defined_spaces: set[int] = set()
        self._last_tuple = b""
        self._last_reported_block = -1
        self._gap: tuple[RowLocation, int, int] | None = None
        self._may_jump = False
        self._row_count = 0

    def _pack_parts(self, parts: tuple[int, ...]) -> Any:
        return array("q", parts) if self._is_compiled else parts

    def skip_damage(self, start: int, end: int) -> None:
        """Allow numbers and spaces to jump here."""
        super().skip_damage(start, end)
        self._may_jump = True
        self._last_tuple = b""

    def check_rows(self, batch: Batch) -> list[Finding]:
        """Return the findings of a batch: the kernel skips runs of one space, the rows in between are checked here."""
        table = batch.records
        names = ("type", "replica_id", "lsn", "header_keys", "body_keys", "space_id")
        columns = [table[name] for name in names]
        findings: list[Finding] = []
        index = run_start = 0
        while True:
            index = self._skip_rows(index, table.count, *columns, self.state)
            findings += self._check_key_order(batch, run_start, index)
            run_start = index
            if index >= table.count:
                break
            self._check_row(batch, index, findings)
            index += 1
        self._row_count += table.count
        return findings

    # -- one row that is not in order -----------------------------------------------------------------------

    def _check_row(self, batch: Batch, index: int, findings: list[Finding]) -> None:
        table = batch.records
        location = self.locate_row(batch, index)
        row_type, space = int(table["type"][index]), int(table["space_id"][index])
        self.type_counts[TYPE_NAMES[row_type]] += 1
        if row_type not in _ALLOWED_TYPES:
            findings.append(self.report_wrong_type(batch, index, location, "snap_row_not_insert"))
        findings += self.check_body(batch, index, location, REQUIRED_KEYS.get(row_type, ()))
        self._check_number(location, int(table["lsn"][index]), findings)
        if row_type in _ALLOWED_TYPES and space >= 0 and space != self.state[folds.LAST_SPACE]:
            findings += self._enter_space(location, space)

    def _check_number(self, location: RowLocation, lsn: int, findings: list[Finding]) -> None:
        """Check the number of a row: rows are counted from 0 (from 1 by servers of 1.6)."""
        expected = self.state[folds.LSN_SLOTS] + 1
        if lsn == expected or self._may_jump or (expected == 0 and lsn == 1):
            self._may_jump = False
            self.state[folds.LSN_SLOTS] = max(lsn, self.state[folds.LSN_SLOTS])
        elif lsn > expected:
            self._gap = self._gap or (location, expected, lsn - 1)
            self.state[folds.LSN_SLOTS] = lsn
        else:
            self._gap = None
            findings += self._report_unsorted(location, f"row number {lsn} comes after {expected - 1}")

    def _report_unsorted(self, location: RowLocation, text: str) -> list[Finding]:
        """Report rows that are out of order, once per block."""
        if self._last_reported_block == location.frame:
            return []
        self._last_reported_block = location.frame
        return [self.create_finding("sequence-regression", location, text, "snap_not_sorted")]

    def _enter_space(self, location: RowLocation, space: int) -> Iterator[Finding]:
        """Check the order of spaces at the first row of another space."""
        before = self.state[folds.LAST_SPACE]
        self.state[folds.LAST_SPACE] = space
        self._last_tuple = b""
        if (
            not self._row_count
            and before < 0
            and location.record == 0
            and space != _BOX_SCHEMA_ID
            and not self.damaged_ranges
        ):
            text = f"the first row belongs to space {space}, not to _schema"
            yield self.create_finding("payload-undecodable", location, text, "snap_without_schema")
        if space in self._seen_spaces:
            yield from self._report_unsorted(location, f"rows of space {space} stand in more than one place")
        elif space <= BOX_SYSTEM_ID_MAX and before > space:
            yield from self._report_unsorted(
                location, f"rows of system space {space} stand behind those of space {before}"
            )
        if len(self._seen_spaces) < MAX_REMEMBERED_IN_SNAP:
            self._seen_spaces.add(space)

    def _learn_definition(self, batch: Batch, index: int, space: int) -> None:
        """Learn the space or the primary key that a row of `_space` or `_index` defines."""
        if space == BOX_SPACE_ID:
            defined = learn_space_name(self.context.spaces, batch, index)
            if defined is not None and len(self._defined_spaces) < MAX_REMEMBERED_IN_SNAP:
                self._defined_spaces.add(defined)
        if space == _BOX_INDEX_ID:
            self._learn_primary_key(batch, index)

    def _learn_primary_key(self, batch: Batch, index: int) -> None:
        """Learn the primary key of a space if it is a tree over plain types."""
        body = read_body_bytes(batch, index)
        definition = None if body is None else _decode_primary_key(body)
        if definition is None:
            return
        space, parts = definition
        if parts and len(self._primary_keys) < MAX_REMEMBERED_IN_SNAP:
            self._primary_keys[space] = self._pack_parts(parts)
        else:
            self._primary_keys.pop(space, None)

    # -- the order of keys inside a space --------------------------------------------------------------------------

    def _check_key_order(self, batch: Batch, begin: int, end: int) -> list[Finding]:
        """Report rows of `[begin, end)`, all of one space, whose keys fall."""
        table = batch.records
        if begin < end and int(table["space_id"][begin]) != self.state[folds.LAST_SPACE]:
            begin += 1
        if begin >= end:
            return []
        findings: list[Finding] = []
        if self.state[folds.LAST_SPACE] in (BOX_SPACE_ID, _BOX_INDEX_ID):
            for index in range(begin, end):
                self._learn_definition(batch, index, self.state[folds.LAST_SPACE])
        parts = self._primary_keys.get(self.state[folds.LAST_SPACE])
        if parts is None:
            return []
        tuples, ends = table["tuple"], table["end"]
        if self._last_tuple and int(tuples[begin]) >= 0:
            findings += self._check_order_across_batches(batch, begin, parts)
        falling_row = self._find_falling_key(begin, end, batch.arena, tuples, ends, parts, len(parts) // 2)
        if falling_row < end:
            text = f"the key of row {batch.first_record + falling_row} is less than the one before it"
            findings += self._report_unsorted(
                self.locate_row(batch, falling_row), f"{text} (space {self.state[folds.LAST_SPACE]})"
            )
        last = int(tuples[end - 1])
        self._last_tuple = bytes(batch.arena[last : int(ends[end - 1])]) if last >= 0 else b""
        return findings

    def _check_order_across_batches(self, batch: Batch, begin: int, parts: Any) -> list[Finding]:
        """Compare the first key of a batch with the last key of the batch before."""
        start, end = int(batch.records["tuple"][begin]), int(batch.records["end"][begin])
        both = self._last_tuple + bytes(batch.arena[start:end])
        size = len(self._last_tuple)
        if folds.find_falling_key(0, 2, both, (0, size), (size, len(both)), parts, len(parts) // 2) == 2:
            return []
        text = f"the key of row {batch.first_record + begin} is less than the one before it"
        return self._report_unsorted(self.locate_row(batch, begin), text)

    # -- the end ---------------------------------------------------------------------------------------------------

    def check_end(self, tail: FileTail) -> list[Finding]:
        """Report rows that are missing."""
        findings = []
        if self._gap:
            location, first, last = self._gap
            text = f"rows {first} to {last} of the snapshot are missing"
            findings.append(self.create_finding("gap-in-sequence", location, text, "lsn_gap", first=first, last=last))
        if not self._row_count and tail.closed and not self.damaged_ranges:
            findings.append(
                make_finding("payload-undecodable", tail.end, 0, "no rows at all", diagnosis="snap_without_schema")
            )
        return findings

    def create_verdict(self, tail: FileTail, findings: list[Finding]) -> ValidationResult:
        """Combine counts and the facts for the rules of a set."""
        types = self.type_counts.copy()
        types[RowType.INSERT.name] += self.state[folds.TYPE_COUNTS + RowType.INSERT]
        is_complete = (
            bool(tail.closed) and not self.damaged_ranges and all(f.severity < Severity.ERROR for f in findings)
        )
        return ValidationResult(
            self._row_count,
            {name: count for name, count in types.items() if count},
            tuple(findings),
            facts=SnapFacts(frozenset(self._defined_spaces), is_complete),
        )


@cache_by_body
def _decode_primary_key(body: bytes) -> tuple[int, tuple[int, ...] | None] | None:
    """Decode the body of a row of `_index`.

    Returns:
        The space and the parts of its primary key (None if they are not plain); None if the row is of another index.
    """
    tree = decode_tree(body)
    values = tree.get(BodyKey.TUPLE) if tree else None
    row = to_python(values) if values else None
    if not isinstance(row, list) or len(row) < 6 or row[1] != 0 or type(row[0]) is not int:
        return None
    return row[0], decode_key_parts(row) if str(row[3]).lower() == "tree" else None


def decode_key_parts(row: list[Any]) -> tuple[int, ...] | None:
    """Decode the parts of an `_index` row to (field, kind, …); None if the order of a part's type is not plain.

    Parts are [[field, type], …], [{"field": …, "type": …, "collation": …}, …], or, before 1.7, the count and then field
    and type in turn.
    """
    stored_parts = row[5] if isinstance(row[5], list) else [row[i : i + 2] for i in range(6, len(row) - 1, 2)]
    parts: list[int] = []
    for part in stored_parts:
        number, kind = _decode_key_part(part)
        if type(number) is not int or number < 0 or kind not in _KEY_KINDS:
            return None
        parts += (number, _KEY_KINDS[kind])
    return tuple(parts) or None


def _decode_key_part(part: Any) -> tuple[Any, str | None]:
    if isinstance(part, dict):
        plain_order = "collation" not in part and part.get("sort_order", "asc") == "asc" and "path" not in part
        return part.get("field"), str(part.get("type")).lower() if plain_order else None
    if isinstance(part, list) and len(part) == 2:
        return part[0], str(part[1]).lower()
    return None, None
