"""Validator of a checkpoint (.snap): types, numbering, order of spaces and keys.

Source: `docs/spec/tarantool-xlog.md#4-snapshots`, `#61-verify-invariants`.
"""

from __future__ import annotations

from array import array
from collections.abc import Iterator
from typing import Any

import msgspec

from binlogtool.findings import Finding, Severity, finding
from binlogtool.formats.judging import Tail, Verdict
from binlogtool.formats.layouts import Batch, Layout
from binlogtool.formats.tarantool.codes import LAST_SYSTEM_SPACE, BodyKey, RowType
from binlogtool.formats.tarantool.judge import folds
from binlogtool.formats.tarantool.judge.common import REQUIRED_KEYS, FileJudge, Place, new_state
from binlogtool.formats.tarantool.meaning import SPACE, body_bytes, learn_space, told_once, tree_of
from binlogtool.formats.tarantool.msgpack.values import plain
from binlogtool.formats.tarantool.rows.names import TYPE_NAMES
from binlogtool.limits import Limits

_ALLOWED = (RowType.INSERT, RowType.RAFT, RowType.RAFT_PROMOTE)
_INDEX = 288
_SCHEMA = 272
_INTEGER_KEY, _STRING_KEY = 0, 1
_KINDS = {
    "unsigned": _INTEGER_KEY, "num": _INTEGER_KEY, "uint": _INTEGER_KEY, "integer": _INTEGER_KEY, "int": _INTEGER_KEY,
    "string": _STRING_KEY, "str": _STRING_KEY,
}  # fmt: skip
_BUILT_IN: dict[int, tuple[int, ...]] = {
    272: (0, _STRING_KEY), 276: (0, _INTEGER_KEY), 280: (0, _INTEGER_KEY), 284: (0, _INTEGER_KEY),
    288: (0, _INTEGER_KEY, 1, _INTEGER_KEY),
}  # fmt: skip
"""Primary keys of the system spaces whose rows come before those of `_index`: pairs of field and kind."""

MAX_REMEMBERED = 100_000


class SnapFacts(msgspec.Struct, frozen=True):
    """Facts about a snapshot for the rules of a set: ids of the spaces that it defines, and whether it is complete."""

    defined: frozenset[int]
    whole: bool


class SnapJudge(FileJudge):
    """Validator of the rows of one snapshot."""

    def __init__(self, layout: Layout, compile_: Any, limits: Limits) -> None:
        super().__init__(layout, compile_, limits)
        self._fold = compile_(folds.fold_snapshot)
        self._falling = compile_(folds.falling_key)
        self._compiled = self._fold is not folds.fold_snapshot
        self.state = new_state(compile_)
        self.state[folds.LSN] = self.state[folds.LAST_SPACE] = -1
        self._seen: set[int] = set()
        self._keys: dict[int, Any] = {space: self._parts(parts) for space, parts in _BUILT_IN.items()}
        self._defined: set[int] = set()
        self._last_tuple = b""
        self._reported = -1
        self._gap: tuple[Place, int, int] | None = None
        self._loose = False
        self._rows = 0

    def _parts(self, parts: tuple[int, ...]) -> Any:
        return array("q", parts) if self._compiled else parts

    def damage(self, start: int, end: int) -> None:
        """Allow numbers and spaces to jump here."""
        super().damage(start, end)
        self._loose = True
        self._last_tuple = b""

    def rows(self, batch: Batch) -> list[Finding]:
        """Return the findings of a batch: the kernel skips runs of one space, the rows in between are checked here."""
        table = batch.records
        names = ("type", "replica_id", "lsn", "header_keys", "body_keys", "space_id")
        columns = [table[name] for name in names]
        found: list[Finding] = []
        index = begin = 0
        while True:
            index = self._fold(index, table.count, *columns, self.state)
            found += self._order(batch, begin, index)
            begin = index
            if index >= table.count:
                break
            self._row(batch, index, found)
            index += 1
        self._rows += table.count
        return found

    # -- one row that is not in order -----------------------------------------------------------------------

    def _row(self, batch: Batch, index: int, found: list[Finding]) -> None:
        table = batch.records
        place = self.place(batch, index)
        row_type, space = int(table["type"][index]), int(table["space_id"][index])
        self.types[TYPE_NAMES[row_type]] += 1
        if row_type not in _ALLOWED:
            found.append(self.wrong_type(batch, index, place, "snap_row_not_insert"))
        found += self.check_body(batch, index, place, REQUIRED_KEYS.get(row_type, ()))
        self._number(place, int(table["lsn"][index]), found)
        if row_type in _ALLOWED and space >= 0 and space != self.state[folds.LAST_SPACE]:
            found += self._next_space(place, space)

    def _number(self, place: Place, lsn: int, found: list[Finding]) -> None:
        """Check the number of a row: rows are counted from 0 (from 1 by servers of 1.6)."""
        expected = self.state[folds.LSN] + 1
        if lsn == expected or self._loose or (expected == 0 and lsn == 1):
            self._loose = False
            self.state[folds.LSN] = max(lsn, self.state[folds.LSN])
        elif lsn > expected:
            self._gap = self._gap or (place, expected, lsn - 1)
            self.state[folds.LSN] = lsn
        else:
            self._gap = None
            found += self._unsorted(place, f"row number {lsn} comes after {expected - 1}")

    def _unsorted(self, place: Place, text: str) -> list[Finding]:
        """Report rows that are out of order, once per block."""
        if self._reported == place.frame:
            return []
        self._reported = place.frame
        return [self.tell("sequence-regression", place, text, "snap_not_sorted")]

    def _next_space(self, place: Place, space: int) -> Iterator[Finding]:
        """Check the order of spaces at the first row of another space."""
        before = self.state[folds.LAST_SPACE]
        self.state[folds.LAST_SPACE] = space
        self._last_tuple = b""
        if not self._rows and before < 0 and place.record == 0 and space != _SCHEMA and not self.damages:
            text = f"the first row belongs to space {space}, not to _schema"
            yield self.tell("payload-undecodable", place, text, "snap_without_schema")
        if space in self._seen:
            yield from self._unsorted(place, f"rows of space {space} stand in more than one place")
        elif space <= LAST_SYSTEM_SPACE and before > space:
            yield from self._unsorted(place, f"rows of system space {space} stand behind those of space {before}")
        if len(self._seen) < MAX_REMEMBERED:
            self._seen.add(space)

    def _learn(self, batch: Batch, index: int, space: int) -> None:
        """Learn the space or the primary key that a row of `_space` or `_index` defines."""
        if space == SPACE:
            defined = learn_space(self.context.spaces, batch, index)
            if defined is not None and len(self._defined) < MAX_REMEMBERED:
                self._defined.add(defined)
        if space == _INDEX:
            self._learn_index(batch, index)

    def _learn_index(self, batch: Batch, index: int) -> None:
        """Learn the primary key of a space if it is a tree over plain types."""
        body = body_bytes(batch, index)
        known = None if body is None else _primary_key(body)
        if known is None:
            return
        space, parts = known
        if parts and len(self._keys) < MAX_REMEMBERED:
            self._keys[space] = self._parts(parts)
        else:
            self._keys.pop(space, None)

    # -- the order of keys inside a space --------------------------------------------------------------------------

    def _order(self, batch: Batch, begin: int, end: int) -> list[Finding]:
        """Report rows of `[begin, end)`, all of one space, whose keys fall."""
        table = batch.records
        if begin < end and int(table["space_id"][begin]) != self.state[folds.LAST_SPACE]:
            begin += 1
        if begin >= end:
            return []
        found: list[Finding] = []
        if self.state[folds.LAST_SPACE] in (SPACE, _INDEX):
            for index in range(begin, end):
                self._learn(batch, index, self.state[folds.LAST_SPACE])
        parts = self._keys.get(self.state[folds.LAST_SPACE])
        if parts is None:
            return []
        tuples, ends = table["tuple"], table["end"]
        if self._last_tuple and int(tuples[begin]) >= 0:
            found += self._against_last(batch, begin, parts)
        fallen = self._falling(begin, end, batch.arena, tuples, ends, parts, len(parts) // 2)
        if fallen < end:
            text = f"the key of row {batch.first_record + fallen} is less than the one before it"
            found += self._unsorted(self.place(batch, fallen), f"{text} (space {self.state[folds.LAST_SPACE]})")
        last = int(tuples[end - 1])
        self._last_tuple = bytes(batch.arena[last : int(ends[end - 1])]) if last >= 0 else b""
        return found

    def _against_last(self, batch: Batch, begin: int, parts: Any) -> list[Finding]:
        """Compare the first key of a batch with the last key of the batch before."""
        start, end = int(batch.records["tuple"][begin]), int(batch.records["end"][begin])
        both = self._last_tuple + bytes(batch.arena[start:end])
        size = len(self._last_tuple)
        if folds.falling_key(0, 2, both, (0, size), (size, len(both)), parts, len(parts) // 2) == 2:
            return []
        text = f"the key of row {batch.first_record + begin} is less than the one before it"
        return self._unsorted(self.place(batch, begin), text)

    # -- the end ---------------------------------------------------------------------------------------------------

    def end(self, tail: Tail) -> list[Finding]:
        """Report rows that are missing."""
        found = []
        if self._gap:
            place, first, last = self._gap
            text = f"rows {first} to {last} of the snapshot are missing"
            found.append(self.tell("gap-in-sequence", place, text, "lsn_gap", first=first, last=last))
        if not self._rows and tail.closed and not self.damages:
            found.append(finding("payload-undecodable", tail.end, 0, "no rows at all", diagnosis="snap_without_schema"))
        return found

    def verdict(self, tail: Tail, findings: list[Finding]) -> Verdict:
        """Combine counts and the facts for the rules of a set."""
        types = self.types.copy()
        types[RowType.INSERT.name] += self.state[folds.TYPES + RowType.INSERT]
        whole = bool(tail.closed) and not self.damages and all(f.severity < Severity.ERROR for f in findings)
        return Verdict(
            self._rows,
            {name: count for name, count in types.items() if count},
            tuple(findings),
            facts=SnapFacts(frozenset(self._defined), whole),
        )


@told_once
def _primary_key(body: bytes) -> tuple[int, tuple[int, ...] | None] | None:
    """Decode the body of a row of `_index`.

    Returns:
        The space and the parts of its primary key (None if they are not plain); None if the row is of another index.
    """
    tree = tree_of(body)
    values = tree.get(BodyKey.TUPLE) if tree else None
    row = plain(values) if values else None
    if not isinstance(row, list) or len(row) < 6 or row[1] != 0 or type(row[0]) is not int:
        return None
    return row[0], key_parts(row) if str(row[3]).lower() == "tree" else None


def key_parts(row: list[Any]) -> tuple[int, ...] | None:
    """Decode the parts of an `_index` row to (field, kind, …); None if the order of a part's type is not plain.

    Parts are [[field, type], …], [{"field": …, "type": …, "collation": …}, …], or, before 1.7, the count and then
    field
    and type in turn.
    """
    given = row[5] if isinstance(row[5], list) else [row[i : i + 2] for i in range(6, len(row) - 1, 2)]
    parts: list[int] = []
    for part in given:
        number, kind = _part(part)
        if type(number) is not int or number < 0 or kind not in _KINDS:
            return None
        parts += (number, _KINDS[kind])
    return tuple(parts) or None


def _part(part: Any) -> tuple[Any, str | None]:
    if isinstance(part, dict):
        plain_order = "collation" not in part and part.get("sort_order", "asc") == "asc" and "path" not in part
        return part.get("field"), str(part.get("type")).lower() if plain_order else None
    if isinstance(part, list) and len(part) == 2:
        return part[0], str(part[1]).lower()
    return None, None
