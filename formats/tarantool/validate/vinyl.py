"""Validate vinyl files (.vylog, .run, .index), each file and the files against each other."""

from __future__ import annotations

import posixpath
import sys
from array import array
from collections.abc import Iterable, Iterator, Sequence
from copy import deepcopy
from typing import TYPE_CHECKING, Any, NamedTuple

import msgspec

from binlogtool.findings import Finding, Severity, make_finding
from binlogtool.format_api.format import FileTail, SetFinding, ValidationResult
from binlogtool.format_api.layout import Batch, LogFileLayout, to_int_list
from binlogtool.formats.tarantool.codes import (
    TYPE_NAMES,
    VYLOG_TYPES,
    BodyKey,
    FileKind,
    PageInfoKey,
    RowIndexKey,
    RowType,
    RunInfoKey,
    VylogKey,
    VylogType,
)
from binlogtool.formats.tarantool.decode import decode_body_tree
from binlogtool.formats.tarantool.msgpack.decode_values import to_python
from binlogtool.formats.tarantool.msgpack.parse import MpKind, MpNode
from binlogtool.formats.tarantool.spaces.vylog_state import LsmTree, VinylRun, VylogState, get_number_or_zero
from binlogtool.formats.tarantool.validate.base_validator import RowLocation, TarantoolValidator

if TYPE_CHECKING:
    from binlogtool.formats.tarantool.validate.data_directory import TarantoolMember
    from binlogtool.limits import Limits


# --- Validators of vinyl files ---

STATEMENT_TYPES = (RowType.INSERT, RowType.REPLACE, RowType.DELETE, RowType.UPSERT)
MAX_REMEMBERED = 1_000_000
_RUN_INFO_KEYS = (
    ("min_key", RunInfoKey.MIN_KEY), ("max_key", RunInfoKey.MAX_KEY), ("min_lsn", RunInfoKey.MIN_LSN),
    ("max_lsn", RunInfoKey.MAX_LSN), ("page_count", RunInfoKey.PAGE_COUNT),
)  # fmt: skip
"""Keys that RUNINFO must have, in the order in which the server checks them (vy_run_info_decode)."""


class RunPage(msgspec.Struct, frozen=True):
    """Page of a run, as the run contains it or as the index describes it."""

    offset: int
    size: int
    unpacked_size: int
    row_count: int
    row_index_offset: int


class RunFacts(msgspec.Struct, frozen=True):
    """Facts about a run from its pages. stat: number of statements by type."""

    pages: tuple[RunPage, ...]
    end: int
    min_lsn: int | None
    max_lsn: int | None
    stat: dict[int, int]
    damaged: bool


class IndexFacts(msgspec.Struct, frozen=True):
    """Facts about a run from its index.

    Attributes:
        read: pages that the server reads: those in the first block that RUNINFO counts.
        fault: the server's message if it refuses the index.
        min_key, max_key: lowest and highest key of the run.
    """

    pages: tuple[RunPage, ...]
    page_count: int | None
    min_lsn: int | None
    max_lsn: int | None
    stat: dict[int, int]
    place: RowLocation | None
    damaged: bool
    read: tuple[RunPage, ...] = ()
    fault: str | None = None
    min_key: tuple[Any, ...] | None = None
    max_key: tuple[Any, ...] | None = None


class VylogFault(NamedTuple):
    """First record that the server refuses, and its message."""

    offset: int
    text: str


class VylogFacts(msgspec.Struct):
    """State that the metadata log describes.

    Attributes:
        state: state after the last record.
        before_damage: state before the first damaged range (which the server may take for the end).
        fault: fault of the first record that does not fit.
        unneeded: ids of runs that were dropped or never finished; the server removes their remaining files.
        based: ids of the trees that had runs at the checkpoint at the start of the file; None = the end of the
            checkpoint is not marked.
    """

    state: VylogState = msgspec.field(default_factory=VylogState)
    before_damage: VylogState | None = None
    fault: VylogFault | None = None
    unneeded: set[int] = msgspec.field(default_factory=set)
    based: frozenset[int] | None = None
    damaged: bool = False

    def list_tree_indexes(self, trees: Iterable[int]) -> set[tuple[int, int]]:
        """Return (space, index) of these trees."""
        known_trees = self.state.trees
        return {(known_trees[one].space, known_trees[one].index) for one in trees if one in known_trees}

    def find_needed_runs(self) -> Iterator[tuple[LsmTree, VinylRun]]:
        """Yield the runs that the server opens, each with its tree."""
        for tree in self.state.trees.values():
            if tree.drop_lsn < 0 and self.state.find_latest_tree(tree.space, tree.index) is tree:
                yield from ((tree, run) for run in self.state.list_live_runs(tree))


def get_uint(tree: MpNode | None, key: int) -> int | None:
    """Return the unsigned number stored under a key of a map, or None."""
    value = tree.get(key) if tree is not None and tree.kind is MpKind.MAP else None
    return value.value if value is not None and value.kind is MpKind.UINT else None


class VylogValidator(TarantoolValidator):
    """Validator of a metadata log: record types are known, each record fits the earlier ones, all runs exist."""

    def __init__(self, layout: LogFileLayout, compile_: Any, limits: Limits) -> None:
        super().__init__(layout, compile_, limits)
        self.facts = VylogFacts()

    def skip_damage(self, start: int, end: int) -> None:
        """Remember the state before the first damaged range, where records may be missing."""
        super().skip_damage(start, end)
        if self.facts.before_damage is None:
            self.facts.before_damage = deepcopy(self.facts.state)

    def check_rows(self, batch: Batch) -> list[Finding]:
        """Return the findings of a batch."""
        findings: list[Finding] = []
        for index, row_type in enumerate(to_int_list(batch.records["type"], 0, batch.records.count)):
            self.type_counts[TYPE_NAMES[row_type]] += 1
            location = self.locate_row(batch, index)
            if row_type != RowType.INSERT:
                findings.append(self.report_wrong_type(batch, index, location, "vylog_row_not_insert"))
                if row_type not in STATEMENT_TYPES and row_type != RowType.UPDATE:
                    self._record_refusal(location, "Bad record: failed to decode request")
                continue
            missing = self.check_body_keys(batch, index, location, (BodyKey.TUPLE,))
            if any(one.facts.get("diagnosis") == "missing_body_key" for one in missing):
                self._record_refusal(location, "Bad record: failed to decode request")
            findings += missing or self._check_record(decode_body_tree(batch, index), location)
        return findings

    def _record_refusal(self, location: RowLocation, text: str) -> None:
        """Record the first place at which the server stops reading."""
        if self.facts.fault is None:
            self.facts.fault = VylogFault(location.offset, f"Invalid VYLOG file: {text}")

    def _check_record(self, body: MpNode | None, location: RowLocation) -> Iterator[Finding]:
        record = body.get(BodyKey.TUPLE) if body else None
        parts: tuple[MpNode, ...] = record.value if record is not None and record.kind is MpKind.ARRAY else ()
        if len(parts) != 2 or parts[0].kind is not MpKind.UINT or parts[1].kind is not MpKind.MAP:
            text = "a record of the vinyl metadata log is not [type, {key: value}]"
            if len(parts) != 2:
                self._record_refusal(location, f"Bad record: wrong array size (expected 2, got {len(parts)})")
            yield self.create_finding("payload-undecodable", location, text, "vylog_record_malformed")
            return
        kind, keys = parts[0].value, {k.value: to_python(v) for k, v in parts[1].value if k.kind is MpKind.UINT}
        if kind not in VYLOG_TYPES:
            text = f"record type {kind} of the vinyl metadata log is not known"
            self._record_refusal(location, f"Bad record: unknown record type {kind}")
            yield self.create_finding(
                "unknown-record-type", location, text, "vylog_record_unknown", severity=Severity.ERROR
            )
            return
        fault = self._apply_record(kind, keys)
        if fault is not None and self.facts.fault is None and not self.damaged_ranges:
            self.facts.fault = VylogFault(location.offset, fault)
            text = f"{VYLOG_TYPES[kind]}: {fault}; the server does not start"
            yield self.create_finding("dangling-reference", location, text, "vylog_reference")

    def _apply_record(self, kind: int, keys: dict[int, Any]) -> str | None:
        facts, state = self.facts, self.facts.state
        if kind == VylogType.SNAPSHOT:
            facts.based = frozenset(run.lsm for run in state.runs.values() if not run.dropped)
        fault = state.apply_record(kind, keys)
        run = get_number_or_zero(keys, VylogKey.RUN_ID)
        if kind == VylogType.CREATE_RUN:
            facts.unneeded.discard(run)
        elif kind in (VylogType.DROP_RUN, VylogType.PREPARE_RUN) and len(facts.unneeded) < MAX_REMEMBERED:
            facts.unneeded.add(run)
        return fault

    def check_end(self, tail: FileTail) -> list[Finding]:
        """Report an index with two trees."""
        fault = None if self.damaged_ranges or self.facts.fault else self.facts.state.check_duplicate_tree()
        if fault is None:
            return []
        self.facts.fault = VylogFault(tail.end, fault)
        text = f"{fault}; the server does not start"
        return [make_finding("dangling-reference", tail.end, 0, text, diagnosis="vylog_reference")]

    def create_validation_result(self, tail: FileTail, findings: list[Finding]) -> ValidationResult:
        """Combine counts and the runs that must exist into a result."""
        self.facts.damaged = bool(self.damaged_ranges)
        return ValidationResult(
            sum(self.type_counts.values()), dict(self.type_counts), tuple(findings), facts=self.facts
        )


class RunValidator(TarantoolValidator):
    """Validator of a run: each block is a page of statements, followed by a ROWINDEX row with their offsets."""

    def __init__(self, layout: LogFileLayout, compile_: Any, limits: Limits) -> None:
        super().__init__(layout, compile_, limits)
        self._pages: list[RunPage] = []
        self._stat: dict[int, int] = dict.fromkeys(map(int, STATEMENT_TYPES), 0)
        self._lsns: list[int] = []

    def check_rows(self, batch: Batch) -> list[Finding]:
        """Return the findings of a batch, page by page."""
        table = batch.records
        spans = to_int_list(table["span"], 0, table.count)
        findings: list[Finding] = []
        first = 0
        while first < table.count:
            last = first
            while last < table.count and spans[last] == spans[first]:
                last += 1
            findings += self._check_page(batch, first, last)
            first = last
        return findings

    def _check_page(self, batch: Batch, first: int, last: int) -> Iterator[Finding]:
        table = batch.records
        frame = batch.frame_index(first)
        location = self.locate_row(batch, first)
        start = int(batch.span_starts[frame])
        offsets = [at - start for at in to_int_list(table["offset"], first, last)]
        types, lsns = to_int_list(table["type"], first, last), to_int_list(table["lsn"], first, last)
        for row_type in types:
            self.type_counts[TYPE_NAMES[row_type]] += 1
        is_complete = types[-1] == RowType.ROWINDEX and all(t in STATEMENT_TYPES for t in types[:-1])
        if not is_complete:
            yield from self._report_foreign_rows(batch, first, types, location)
        yield from self._report_statements_without_key(batch, first, types)
        if types[-1] == RowType.ROWINDEX:
            yield from self._check_row_index(batch, last - 1, offsets[:-1], location)
        statements = [(t, lsn) for t, lsn in zip(types, lsns, strict=True) if t in self._stat]
        for row_type, _ in statements:
            self._stat[row_type] += 1
        if statements:
            self._lsns = [min(n for _, n in statements), max(n for _, n in statements), *self._lsns]
            self._lsns = [min(self._lsns), max(self._lsns)]
        if len(self._pages) < MAX_REMEMBERED:
            size = int(table["end"][last - 1]) - start
            self._pages.append(RunPage(location.offset, location.size, size, len(statements), offsets[-1]))

    def _report_foreign_rows(
        self, batch: Batch, first: int, types: list[int], location: RowLocation
    ) -> Iterator[Finding]:
        for index, row_type in enumerate(types[:-1]):
            if row_type not in STATEMENT_TYPES:
                yield self.report_wrong_type(
                    batch, first + index, self.locate_row(batch, first + index), "run_row_type"
                )
        if types[-1] != RowType.ROWINDEX:
            text = "the last row of a page is no ROWINDEX"
            yield self.create_finding("payload-undecodable", location, text, "run_page_without_index")

    def _report_statements_without_key(self, batch: Batch, first: int, types: list[int]) -> Iterator[Finding]:
        keys = to_int_list(batch.records["body_keys"], first, first + len(types))
        tuple_or_key = 1 << BodyKey.TUPLE | 1 << BodyKey.KEY
        for index, (row_type, body) in enumerate(zip(types, keys, strict=True), first):
            if row_type in STATEMENT_TYPES and not body & tuple_or_key:
                location = self.locate_row(batch, index)
                text = f"{TYPE_NAMES[row_type]} without tuple or key"
                yield self.create_finding("payload-undecodable", location, text, "missing_body_key")

    def _check_row_index(
        self, batch: Batch, index: int, offsets: list[int], location: RowLocation
    ) -> Iterator[Finding]:
        body = decode_body_tree(batch, index)
        raw = body.get(RowIndexKey.ROW_INDEX) if body else None
        if raw is None or raw.kind is not MpKind.BIN or len(raw.value) % 4:
            text = "ROWINDEX holds no table of 32-bit numbers"
            yield self.create_finding("payload-undecodable", location, text, "row_index_malformed")
            return
        table = array("I", raw.value)
        if sys.byteorder == "little":
            table.byteswap()
        if table.tolist() != offsets:
            text = f"ROWINDEX names {len(table)} statements, and not those in the page ({len(offsets)})"
            yield self.create_finding("meta-mismatch", location, text, "row_index_mismatch")

    def create_validation_result(self, tail: FileTail, findings: list[Finding]) -> ValidationResult:
        """Combine counts and pages into a result."""
        low, high = (self._lsns[0], self._lsns[-1]) if self._lsns else (None, None)
        facts = RunFacts(tuple(self._pages), tail.end, low, high, dict(self._stat), bool(self.damaged_ranges))
        return ValidationResult(sum(self.type_counts.values()), dict(self.type_counts), tuple(findings), facts=facts)


class IndexValidator(TarantoolValidator):
    """Validator of an index: RUNINFO, then one PAGEINFO for each page."""

    def __init__(self, layout: LogFileLayout, compile_: Any, limits: Limits) -> None:
        super().__init__(layout, compile_, limits)
        self._pages: list[RunPage] = []
        self._read_pages: list[RunPage] = []
        self._fault: str | None = None
        self._info: MpNode | None = None
        self._location: RowLocation | None = None

    def check_rows(self, batch: Batch) -> list[Finding]:
        """Return the findings of a batch."""
        findings: list[Finding] = []
        for index, row_type in enumerate(to_int_list(batch.records["type"], 0, batch.records.count)):
            self.type_counts[TYPE_NAMES[row_type]] += 1
            location = self.locate_row(batch, index)
            first = location.record == 0
            expected_type = RowType.RUNINFO if first else RowType.PAGEINFO
            if row_type != expected_type:
                findings.append(self.report_wrong_type(batch, index, location, "index_row_type"))
                self._record_refusal(location, f"Wrong xrow type (expected {int(expected_type)}, got {row_type})")
                continue
            body = decode_body_tree(batch, index)
            if first:
                self._info, self._location = body, location
                missing = [
                    name for name, key in _RUN_INFO_KEYS if get_uint(body, key) is None and _is_key_missing(body, key)
                ]
                if missing:
                    self._record_refusal(location, f"Can't decode run info: missing mandatory key {missing[0]}")
            else:
                findings += self._check_page_info(body, location)
        return findings

    def _record_refusal(self, location: RowLocation, text: str) -> None:
        """Record why the server refuses the index, if it reads that far."""
        count = get_uint(self._info, RunInfoKey.PAGE_COUNT)
        if (
            self._fault is None
            and location.offset == self.frames_at
            and (count is None or len(self._read_pages) < count)
        ):
            self._fault = text

    def _check_page_info(self, body: MpNode | None, location: RowLocation) -> Iterator[Finding]:
        keys = (
            PageInfoKey.OFFSET, PageInfoKey.SIZE, PageInfoKey.UNPACKED_SIZE, PageInfoKey.ROW_COUNT,
            PageInfoKey.ROW_INDEX_OFFSET,
        )  # fmt: skip
        values = [get_uint(body, key) for key in keys]
        if None in values:
            names = " and ".join(key.name.lower() for key, value in zip(keys, values, strict=True) if value is None)
            first = next(key.name.lower() for key, value in zip(keys, values, strict=True) if value is None)
            self._record_refusal(location, f"Can't decode page info: missing mandatory key {first}")
            yield self.create_finding("payload-undecodable", location, f"PAGEINFO without {names}", "missing_body_key")
        elif len(self._pages) < MAX_REMEMBERED:
            page = RunPage(*(value for value in values if value is not None))
            self._pages.append(page)
            if location.offset == self.frames_at:
                self._read_pages.append(page)

    def check_end(self, tail: FileTail) -> list[Finding]:
        """Report a missing RUNINFO, or a RUNINFO with a wrong number of pages."""
        if self.damaged_ranges:
            return []
        if not any(self.type_counts.values()):
            text = "no RUNINFO: the index describes no run"
            return [make_finding("payload-undecodable", tail.end, 0, text, diagnosis="index_without_run")]
        if self._location is None:
            return []
        count = get_uint(self._info, RunInfoKey.PAGE_COUNT)
        if count == len(self._pages):
            return []
        text = f"RUNINFO says {count} pages, {len(self._pages)} are described"
        return [self.create_finding("meta-mismatch", self._location, text, "page_count_mismatch")]

    def create_validation_result(self, tail: FileTail, findings: list[Finding]) -> ValidationResult:
        """Combine counts and the description of the run into a result."""
        info = self._info
        stat = info.get(RunInfoKey.STMT_STAT) if info is not None and info.kind is MpKind.MAP else None
        pairs = stat.value if stat is not None and stat.kind is MpKind.MAP else ()
        count = get_uint(info, RunInfoKey.PAGE_COUNT)
        fault = self._fault
        if fault is None and (count is None or len(self._read_pages) < count):
            fault = "Unexpected end of file"
        facts = IndexFacts(
            read=tuple(self._read_pages[:count]),
            fault=fault,
            min_key=_decode_key(info, RunInfoKey.MIN_KEY),
            max_key=_decode_key(info, RunInfoKey.MAX_KEY),
            pages=tuple(self._pages),
            page_count=count,
            min_lsn=get_uint(info, RunInfoKey.MIN_LSN),
            max_lsn=get_uint(info, RunInfoKey.MAX_LSN),
            stat={k.value: v.value for k, v in pairs if k.kind is v.kind is MpKind.UINT},
            place=self._location,
            damaged=bool(self.damaged_ranges) or not tail.closed,
        )
        return ValidationResult(sum(self.type_counts.values()), dict(self.type_counts), tuple(findings), facts=facts)


def _is_key_missing(body: MpNode | None, key: int) -> bool:
    return body is None or body.kind is not MpKind.MAP or body.get(key) is None


def _decode_key(info: MpNode | None, key: int) -> tuple[Any, ...] | None:
    """Decode a key of RUNINFO to its parts; None if it is missing."""
    stored_key = info.get(key) if info is not None and info.kind is MpKind.MAP else None
    return (
        tuple(to_python(part) for part in stored_key.value)
        if stored_key is not None and stored_key.kind is MpKind.ARRAY
        else None
    )


# --- Checks of runs, indexes and the metadata log (`docs/spec/tarantool.md#vinyl-files`) ---

_PARTNER = {FileKind.RUN: ".index", FileKind.INDEX: ".run"}


def validate_vinyl_files(files: Sequence[TarantoolMember], vylogs: Sequence[TarantoolMember]) -> Iterator[SetFinding]:
    """Yield the findings about the vinyl files of one data directory."""
    by_name = {f.name: f for f in files}
    reported_names: set[str] = set()
    for f in files:
        suffix = _PARTNER.get(f.context.kind) if f.context.kind else None
        partner = f.name.rpartition(".")[0] + suffix if suffix else None
        if partner and partner not in by_name:
            reported_names.add(partner)
            yield SetFinding(partner, _report_half_run(f, vylogs))
        elif partner and f.context.kind is FileKind.INDEX:
            yield from _compare_index_with_run(f, by_name[partner])
    if vylogs:
        yield from _report_missing_runs(vylogs[-1], by_name, reported_names)


def _report_half_run(file: TarantoolMember, vylogs: Sequence[TarantoolMember]) -> Finding:
    """Report a run of which only one of two files exists: a note if the newest metadata log no longer needs it."""
    text = f"{posixpath.basename(file.name)} exists, but the other file of its pair (.run and .index) does not"
    facts = vylogs[-1].facts if vylogs else None
    if not isinstance(facts, VylogFacts) or facts.damaged or file.context.number not in facts.unneeded:
        return make_finding("missing-member", None, 0, text, diagnosis="missing_file")
    text += f": {posixpath.basename(vylogs[-1].name)} does not need the run, and the server removes what is left of it"
    return make_finding("missing-member", None, 0, text, severity=Severity.NOTE, diagnosis="dropped_run")


def _report_missing_runs(
    vylog: TarantoolMember, by_name: dict[str, TarantoolMember], reported_names: set[str]
) -> Iterator[SetFinding]:
    """Report missing runs that the newest metadata log needs.

    A warning if the directory holds no vinyl files at all.
    """
    facts = vylog.facts
    if not isinstance(facts, VylogFacts) or facts.damaged:
        return
    any_run = any(f.context.kind in _PARTNER for f in by_name.values())
    severity = Severity.ERROR if any_run else Severity.WARNING
    for tree, run in facts.find_needed_runs():
        for suffix in ("run", "index"):
            name = posixpath.join(posixpath.dirname(vylog.name), f"{tree.space}/{tree.index}/{run.id:020d}.{suffix}")
            if name not in by_name and name not in reported_names:
                text = f"{posixpath.basename(vylog.name)} knows run {run.id} of space {tree.space}, index {tree.index}"
                found = make_finding("missing-member", None, 0, text, severity=severity, diagnosis="missing_file")
                yield SetFinding(name, found)


def _compare_index_with_run(index: TarantoolMember, run: TarantoolMember) -> Iterator[SetFinding]:
    """Report differences between an index and its run."""
    index_facts, run_facts = index.facts, run.facts
    if (
        not isinstance(index_facts, IndexFacts)
        or not isinstance(run_facts, RunFacts)
        or index_facts.damaged
        or index_facts.place is None
    ):
        return
    differences = list(_compare_pages(index_facts.pages, run_facts, run))
    if not run_facts.damaged:
        differences += _compare_totals(index_facts, run_facts)
    for text in differences:
        found = make_finding(
            "meta-mismatch", index_facts.place.offset, index_facts.place.size, text, diagnosis="run_index_mismatch"
        )
        yield SetFinding(index.name, found)


def _compare_pages(listed_pages: Sequence[RunPage], run_facts: RunFacts, run: TarantoolMember) -> Iterator[str]:
    """Yield differences of pages: their offsets must be contiguous in the run, and each page must be as described."""
    layout = run.member.layout
    assert layout is not None
    expected = layout.frames_at
    pages_by_offset = {page.offset: page for page in run_facts.pages}
    for number, page in enumerate(listed_pages):
        if page.offset != expected:
            yield f"page {number} is listed at {page.offset:#x}, but the page before it ends at {expected:#x}"
            return
        expected = page.offset + page.size
        if page.offset in pages_by_offset and pages_by_offset[page.offset] != page:
            yield (
                f"page {number} is described as {_describe_page(page)}, the run has "
                f"{_describe_page(pages_by_offset[page.offset])}"
            )
        elif page.offset not in pages_by_offset and not run_facts.damaged:
            yield f"page {number} at {page.offset:#x} is not in the run"
    if expected != run_facts.end and not run_facts.damaged:
        yield f"the pages end at {expected:#x}, the run at {run_facts.end:#x}"


def _describe_page(page: RunPage) -> str:
    return (
        f"{page.size} bytes, {page.unpacked_size} unpacked, {page.row_count} rows, ROWINDEX at {page.row_index_offset}"
    )


def _compare_totals(index_facts: IndexFacts, run_facts: RunFacts) -> Iterator[str]:
    for name, listed, actual in (
        ("min_lsn", index_facts.min_lsn, run_facts.min_lsn),
        ("max_lsn", index_facts.max_lsn, run_facts.max_lsn),
    ):
        if listed != actual and actual is not None:
            yield f"{name} in the index is {listed}, the rows of the run have {actual}"
    for row_type, count in index_facts.stat.items():
        if count != run_facts.stat.get(row_type, 0):
            yield (
                f"{count} rows of type {TYPE_NAMES[row_type]} are listed, the run has {run_facts.stat.get(row_type, 0)}"
            )
