"""Validators of vinyl files: .vylog, .run and .index (`docs/spec/tarantool-xlog.md#5-vinyl-files`)."""

from __future__ import annotations

import sys
from array import array
from collections.abc import Iterable, Iterator
from copy import deepcopy
from typing import Any, NamedTuple

import msgspec

from binlogtool.findings import Finding, Severity, finding
from binlogtool.formats.columns import integers
from binlogtool.formats.judging import Tail, Verdict
from binlogtool.formats.layouts import Batch, Layout
from binlogtool.formats.tarantool.codes import (
    BodyKey,
    PageInfoKey,
    RowIndexKey,
    RowType,
    RunInfoKey,
    VylogKey,
    VylogType,
)
from binlogtool.formats.tarantool.judge.common import FileJudge, Place
from binlogtool.formats.tarantool.meaning import body_tree
from binlogtool.formats.tarantool.msgpack.messages import Kind, Mp
from binlogtool.formats.tarantool.msgpack.values import plain
from binlogtool.formats.tarantool.rows.names import TYPE_NAMES, VYLOG_TYPES
from binlogtool.formats.tarantool.spaces.vylog import LsmTree, Run, VylogState
from binlogtool.limits import Limits

STATEMENTS = (RowType.INSERT, RowType.REPLACE, RowType.DELETE, RowType.UPSERT)
MAX_REMEMBERED = 1_000_000
_RUN_INFO = (
    ("min_key", RunInfoKey.MIN_KEY), ("max_key", RunInfoKey.MAX_KEY), ("min_lsn", RunInfoKey.MIN_LSN),
    ("max_lsn", RunInfoKey.MAX_LSN), ("page_count", RunInfoKey.PAGE_COUNT),
)  # fmt: skip
"""Keys that RUNINFO must have, in the order in which the server asks for them (vy_run_info_decode)."""


class Page(msgspec.Struct, frozen=True):
    """One page of a run, as the run contains it or as the index describes it."""

    offset: int
    size: int
    unpacked_size: int
    row_count: int
    row_index_offset: int


class RunFacts(msgspec.Struct, frozen=True):
    """A run as its pages show it. stat: number of statements by type."""

    pages: tuple[Page, ...]
    end: int
    min_lsn: int | None
    max_lsn: int | None
    stat: dict[int, int]
    damaged: bool


class IndexFacts(msgspec.Struct, frozen=True):
    """A run as its index describes it.

    Attributes:
        read: pages that the server reads: those of the first block that RUNINFO counts.
        fault: the server's message if it refuses the index.
        min_key, max_key: of the run.
    """

    pages: tuple[Page, ...]
    page_count: int | None
    min_lsn: int | None
    max_lsn: int | None
    stat: dict[int, int]
    place: Place | None
    damaged: bool
    read: tuple[Page, ...] = ()
    fault: str | None = None
    min_key: tuple[Any, ...] | None = None
    max_key: tuple[Any, ...] | None = None


class VylogFault(NamedTuple):
    """The first record that the server refuses, and its message."""

    offset: int
    text: str


class VylogFacts(msgspec.Struct):
    """State that the metadata log describes.

    Attributes:
        state: after its last record.
        before_damage: after the last record before the first damaged range (the server may take this for the end).
        fault: of the first record that does not fit.
        unneeded: ids of runs that were dropped or never finished; the server removes what is left of them.
        based: ids of the trees that had runs at the checkpoint with which the file begins; None = its end is not
            marked.
    """

    state: VylogState = msgspec.field(default_factory=VylogState)
    before_damage: VylogState | None = None
    fault: VylogFault | None = None
    unneeded: set[int] = msgspec.field(default_factory=set)
    based: frozenset[int] | None = None
    damaged: bool = False

    def spaces(self, trees: Iterable[int]) -> set[tuple[int, int]]:
        """Return (space, index) of trees, by their ids."""
        known = self.state.trees
        return {(known[one].space, known[one].index) for one in trees if one in known}

    def needed_runs(self) -> Iterator[tuple[LsmTree, Run]]:
        """Yield the runs that the server opens, each with its tree."""
        for tree in self.state.trees.values():
            if tree.drop_lsn < 0 and self.state.tree_of(tree.space, tree.index) is tree:
                yield from ((tree, run) for run in self.state.living_runs(tree))


def uint(tree: Mp | None, key: int) -> int | None:
    """Return the unsigned number of a key of a map, or None."""
    found = tree.get(key) if tree is not None and tree.kind is Kind.MAP else None
    return found.value if found is not None and found.kind is Kind.UINT else None


class VylogJudge(FileJudge):
    """Validator of a metadata log: record types are known, each record fits those before it, all lead to existing
    runs.
    """

    def __init__(self, layout: Layout, compile_: Any, limits: Limits) -> None:
        super().__init__(layout, compile_, limits)
        self.facts = VylogFacts()

    def damage(self, start: int, end: int) -> None:
        """Remember the state before the first damaged range: records may be missing here."""
        super().damage(start, end)
        if self.facts.before_damage is None:
            self.facts.before_damage = deepcopy(self.facts.state)

    def rows(self, batch: Batch) -> list[Finding]:
        """Return the findings of a batch."""
        found: list[Finding] = []
        for index, row_type in enumerate(integers(batch.records["type"], 0, batch.records.count)):
            self.types[TYPE_NAMES[row_type]] += 1
            place = self.place(batch, index)
            if row_type != RowType.INSERT:
                found.append(self.wrong_type(batch, index, place, "vylog_row_not_insert"))
                if row_type not in STATEMENTS and row_type != RowType.UPDATE:
                    self._refused(place, "Bad record: failed to decode request")
                continue
            missing = self.check_body(batch, index, place, (BodyKey.TUPLE,))
            if any(one.facts.get("diagnosis") == "missing_body_key" for one in missing):
                self._refused(place, "Bad record: failed to decode request")
            found += missing or self._record(body_tree(batch, index), place)
        return found

    def _refused(self, place: Place, text: str) -> None:
        """Record the first place at which the server stops reading."""
        if self.facts.fault is None:
            self.facts.fault = VylogFault(place.offset, f"Invalid VYLOG file: {text}")

    def _record(self, body: Mp | None, place: Place) -> Iterator[Finding]:
        record = body.get(BodyKey.TUPLE) if body else None
        parts: tuple[Mp, ...] = record.value if record is not None and record.kind is Kind.ARRAY else ()
        if len(parts) != 2 or parts[0].kind is not Kind.UINT or parts[1].kind is not Kind.MAP:
            text = "a record of the vinyl metadata log is not [type, {key: value}]"
            if len(parts) != 2:
                self._refused(place, f"Bad record: wrong array size (expected 2, got {len(parts)})")
            yield self.tell("payload-undecodable", place, text, "vylog_record_malformed")
            return
        kind, keys = parts[0].value, {k.value: plain(v) for k, v in parts[1].value if k.kind is Kind.UINT}
        if kind not in VYLOG_TYPES:
            text = f"record type {kind} of the vinyl metadata log is not known"
            self._refused(place, f"Bad record: unknown record type {kind}")
            yield self.tell("unknown-record-type", place, text, "vylog_record_unknown", severity=Severity.ERROR)
            return
        fault = self._apply(kind, keys)
        if fault is not None and self.facts.fault is None and not self.damages:
            self.facts.fault = VylogFault(place.offset, fault)
            text = f"{VYLOG_TYPES[kind]}: {fault}; the server does not start"
            yield self.tell("dangling-reference", place, text, "vylog_reference")

    def _apply(self, kind: int, keys: dict[int, Any]) -> str | None:
        facts, state = self.facts, self.facts.state
        if kind == VylogType.SNAPSHOT:
            facts.based = frozenset(run.lsm for run in state.runs.values() if not run.dropped)
        fault = state.apply(kind, keys)
        run = keys.get(VylogKey.RUN_ID, 0)
        if kind == VylogType.CREATE_RUN:
            facts.unneeded.discard(run)
        elif kind in (VylogType.DROP_RUN, VylogType.PREPARE_RUN) and len(facts.unneeded) < MAX_REMEMBERED:
            facts.unneeded.add(run)
        return fault

    def end(self, tail: Tail) -> list[Finding]:
        """Report an index with two trees."""
        fault = None if self.damages or self.facts.fault else self.facts.state.duplicate_tree()
        if fault is None:
            return []
        self.facts.fault = VylogFault(tail.end, fault)
        text = f"{fault}; the server does not start"
        return [finding("dangling-reference", tail.end, 0, text, diagnosis="vylog_reference")]

    def verdict(self, tail: Tail, findings: list[Finding]) -> Verdict:
        """Combine counts and the runs that must exist."""
        self.facts.damaged = bool(self.damages)
        return Verdict(sum(self.types.values()), dict(self.types), tuple(findings), facts=self.facts)


class RunJudge(FileJudge):
    """Validator of a run: every block is a page of statements, then the ROWINDEX row with the offset of each of
    them.
    """

    def __init__(self, layout: Layout, compile_: Any, limits: Limits) -> None:
        super().__init__(layout, compile_, limits)
        self._pages: list[Page] = []
        self._stat: dict[int, int] = dict.fromkeys(map(int, STATEMENTS), 0)
        self._lsns: list[int] = []

    def rows(self, batch: Batch) -> list[Finding]:
        """Return the findings of a batch, page by page."""
        table = batch.records
        spans = integers(table["span"], 0, table.count)
        found: list[Finding] = []
        first = 0
        while first < table.count:
            last = first
            while last < table.count and spans[last] == spans[first]:
                last += 1
            found += self._page(batch, first, last)
            first = last
        return found

    def _page(self, batch: Batch, first: int, last: int) -> Iterator[Finding]:
        table = batch.records
        frame = batch.frame_of(first)
        place = self.place(batch, first)
        start = int(batch.span_starts[frame])
        offsets = [at - start for at in integers(table["offset"], first, last)]
        types, lsns = integers(table["type"], first, last), integers(table["lsn"], first, last)
        for row_type in types:
            self.types[TYPE_NAMES[row_type]] += 1
        whole = types[-1] == RowType.ROWINDEX and all(t in STATEMENTS for t in types[:-1])
        if not whole:
            yield from self._strangers(batch, first, types, place)
        yield from self._statements(batch, first, types)
        if types[-1] == RowType.ROWINDEX:
            yield from self._row_index(batch, last - 1, offsets[:-1], place)
        statements = [(t, lsn) for t, lsn in zip(types, lsns, strict=True) if t in self._stat]
        for row_type, _ in statements:
            self._stat[row_type] += 1
        if statements:
            self._lsns = [min(n for _, n in statements), max(n for _, n in statements), *self._lsns]
            self._lsns = [min(self._lsns), max(self._lsns)]
        if len(self._pages) < MAX_REMEMBERED:
            size = int(table["end"][last - 1]) - start
            self._pages.append(Page(place.offset, place.size, size, len(statements), offsets[-1]))

    def _strangers(self, batch: Batch, first: int, types: list[int], place: Place) -> Iterator[Finding]:
        for index, row_type in enumerate(types[:-1]):
            if row_type not in STATEMENTS:
                yield self.wrong_type(batch, first + index, self.place(batch, first + index), "run_row_type")
        if types[-1] != RowType.ROWINDEX:
            text = "the last row of a page is no ROWINDEX"
            yield self.tell("payload-undecodable", place, text, "run_page_without_index")

    def _statements(self, batch: Batch, first: int, types: list[int]) -> Iterator[Finding]:
        keys = integers(batch.records["body_keys"], first, first + len(types))
        either = 1 << BodyKey.TUPLE | 1 << BodyKey.KEY
        for index, (row_type, body) in enumerate(zip(types, keys, strict=True), first):
            if row_type in STATEMENTS and not body & either:
                place = self.place(batch, index)
                text = f"{TYPE_NAMES[row_type]} without tuple or key"
                yield self.tell("payload-undecodable", place, text, "missing_body_key")

    def _row_index(self, batch: Batch, index: int, offsets: list[int], place: Place) -> Iterator[Finding]:
        body = body_tree(batch, index)
        raw = body.get(RowIndexKey.ROW_INDEX) if body else None
        if raw is None or raw.kind is not Kind.BIN or len(raw.value) % 4:
            text = "ROWINDEX holds no table of 32-bit numbers"
            yield self.tell("payload-undecodable", place, text, "row_index_malformed")
            return
        table = array("I", raw.value)
        if sys.byteorder == "little":
            table.byteswap()
        if table.tolist() != offsets:
            text = f"ROWINDEX names {len(table)} statements, and not those that stand in the page ({len(offsets)})"
            yield self.tell("meta-mismatch", place, text, "row_index_mismatch")

    def verdict(self, tail: Tail, findings: list[Finding]) -> Verdict:
        """Combine counts and pages."""
        low, high = (self._lsns[0], self._lsns[-1]) if self._lsns else (None, None)
        facts = RunFacts(tuple(self._pages), tail.end, low, high, dict(self._stat), bool(self.damages))
        return Verdict(sum(self.types.values()), dict(self.types), tuple(findings), facts=facts)


class IndexJudge(FileJudge):
    """Validator of an index: RUNINFO, then one PAGEINFO for each page."""

    def __init__(self, layout: Layout, compile_: Any, limits: Limits) -> None:
        super().__init__(layout, compile_, limits)
        self._pages: list[Page] = []
        self._read: list[Page] = []
        self._fault: str | None = None
        self._info: Mp | None = None
        self._place: Place | None = None

    def rows(self, batch: Batch) -> list[Finding]:
        """Return the findings of a batch."""
        found: list[Finding] = []
        for index, row_type in enumerate(integers(batch.records["type"], 0, batch.records.count)):
            self.types[TYPE_NAMES[row_type]] += 1
            place = self.place(batch, index)
            first = place.record == 0
            wanted = RowType.RUNINFO if first else RowType.PAGEINFO
            if row_type != wanted:
                found.append(self.wrong_type(batch, index, place, "index_row_type"))
                self._refused(place, f"Wrong xrow type (expected {int(wanted)}, got {row_type})")
                continue
            body = body_tree(batch, index)
            if first:
                self._info, self._place = body, place
                missing = [name for name, key in _RUN_INFO if uint(body, key) is None and _lacks(body, key)]
                if missing:
                    self._refused(place, f"Can't decode run info: missing mandatory key {missing[0]}")
            else:
                found += self._page(body, place)
        return found

    def _refused(self, place: Place, text: str) -> None:
        """Record why the server refuses the index, if it reads that far."""
        count = uint(self._info, RunInfoKey.PAGE_COUNT)
        if self._fault is None and place.offset == self.frames_at and (count is None or len(self._read) < count):
            self._fault = text

    def _page(self, body: Mp | None, place: Place) -> Iterator[Finding]:
        keys = (
            PageInfoKey.OFFSET, PageInfoKey.SIZE, PageInfoKey.UNPACKED_SIZE, PageInfoKey.ROW_COUNT,
            PageInfoKey.ROW_INDEX_OFFSET,
        )  # fmt: skip
        values = [uint(body, key) for key in keys]
        if None in values:
            names = " and ".join(key.name.lower() for key, value in zip(keys, values, strict=True) if value is None)
            first = next(key.name.lower() for key, value in zip(keys, values, strict=True) if value is None)
            self._refused(place, f"Can't decode page info: missing mandatory key {first}")
            yield self.tell("payload-undecodable", place, f"PAGEINFO without {names}", "missing_body_key")
        elif len(self._pages) < MAX_REMEMBERED:
            page = Page(*(value for value in values if value is not None))
            self._pages.append(page)
            if place.offset == self.frames_at:
                self._read.append(page)

    def end(self, tail: Tail) -> list[Finding]:
        """Report a missing RUNINFO, or one that counts the pages wrong."""
        if self.damages:
            return []
        if not any(self.types.values()):
            text = "no RUNINFO: the index describes no run"
            return [finding("payload-undecodable", tail.end, 0, text, diagnosis="index_without_run")]
        if self._place is None:
            return []
        count = uint(self._info, RunInfoKey.PAGE_COUNT)
        if count == len(self._pages):
            return []
        text = f"RUNINFO says {count} pages, {len(self._pages)} are described"
        return [self.tell("meta-mismatch", self._place, text, "page_count_mismatch")]

    def verdict(self, tail: Tail, findings: list[Finding]) -> Verdict:
        """Combine counts and the description of the run."""
        info = self._info
        stat = info.get(RunInfoKey.STMT_STAT) if info is not None and info.kind is Kind.MAP else None
        pairs = stat.value if stat is not None and stat.kind is Kind.MAP else ()
        count = uint(info, RunInfoKey.PAGE_COUNT)
        fault = self._fault
        if fault is None and (count is None or len(self._read) < count):
            fault = "Unexpected end of file"
        facts = IndexFacts(
            read=tuple(self._read[:count]),
            fault=fault,
            min_key=_key_of(info, RunInfoKey.MIN_KEY),
            max_key=_key_of(info, RunInfoKey.MAX_KEY),
            pages=tuple(self._pages),
            page_count=count,
            min_lsn=uint(info, RunInfoKey.MIN_LSN),
            max_lsn=uint(info, RunInfoKey.MAX_LSN),
            stat={k.value: v.value for k, v in pairs if k.kind is v.kind is Kind.UINT},
            place=self._place,
            damaged=bool(self.damages) or not tail.closed,
        )
        return Verdict(sum(self.types.values()), dict(self.types), tuple(findings), facts=facts)


def _lacks(body: Mp | None, key: int) -> bool:
    return body is None or body.kind is not Kind.MAP or body.get(key) is None


def _key_of(info: Mp | None, key: int) -> tuple[Any, ...] | None:
    """Decode a key of RUNINFO to its parts; None if it is missing."""
    found = info.get(key) if info is not None and info.kind is Kind.MAP else None
    return tuple(plain(part) for part in found.value) if found is not None and found.kind is Kind.ARRAY else None
