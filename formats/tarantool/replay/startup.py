"""Predict what the server does with the files of a data directory before it reads rows.

A vinyl index is recovered when its row of `_index` is applied, from the state in the metadata log (vy_lsm.c:
vy_lsm_recover, vy_run.c: vy_run_recover).

Source: `xlog_dir_scan`, `memtx_engine_new`, `vy_log_begin_recovery`; `docs/spec/tarantool.md#reading-and-durable-end`.
"""

from __future__ import annotations

import posixpath
import re
from collections.abc import Collection, Iterable, Iterator, Mapping
from typing import Any, NamedTuple

import msgspec
from msgspec.structs import replace

from binlogtool.findings import Finding, Severity, make_finding
from binlogtool.format_api.format import is_header_correction
from binlogtool.format_api.layout import RangeReader
from binlogtool.format_api.replay_rules import (
    DANGLING_LINK,
    DIRECTORY,
    FIFO,
    FILE_LINK,
    ExaminedFile,
    ReadPlan,
    ReplaySituation,
    ReplayStop,
)
from binlogtool.formats.tarantool.codes import FileKind
from binlogtool.formats.tarantool.decode import TarantoolContext
from binlogtool.formats.tarantool.replay.simulated_xlog_reader import (
    OLDEST_VERSION,
    ServerReadResult,
    ServerVersion,
    choose_server_version,
    simulate_reading,
)
from binlogtool.formats.tarantool.schema import HeaderText
from binlogtool.formats.tarantool.spaces.catalog import SpaceCatalog
from binlogtool.formats.tarantool.spaces.vylog_state import LsmTree, VinylRun, VylogState
from binlogtool.formats.tarantool.validate.vinyl import IndexFacts, RunFacts, VylogFacts

__all__ = ["OpenedIndex", "VinylFault", "VinylRecovery", "read_vylog_state"]


# --- Recovery of vinyl indexes ---

IndexId = tuple[int, int]
"""(space id, index id)."""
FindingFacts = dict[str, Any]
MAX_LSN = (1 << 63) - 1
MAX_ROWS_PER_SPACE = 1_000_000
"""Maximum number of rows of one space that are recorded."""


class VinylFault(NamedTuple):
    """Reason why an index cannot be recovered. offset: position in `file`."""

    file: str
    offset: int | None
    why: str


class OpenedIndex(msgspec.Struct):
    """Vinyl index that the server has open.

    Attributes:
        tree: its LSM tree; None = the index is new and empty.
        signature: signature of the vclock at which it was created.
        is_dropped_later: by the metadata log, it is dropped later.
    """

    tree: LsmTree | None
    signature: int
    is_dropped_later: bool = False


class VinylRecovery(msgspec.Struct):
    """Vinyl indexes of one start.

    Attributes:
        vylog: name of the metadata log.
        state: state of the metadata log as the server reads it; None = there is no such log.
        files: runs and index files by name.
        read_results: results of the server's reading of damaged index files.
        leftovers: names of unfinished files.
        previous: state from which the metadata log's checkpoint was made, or None.
        rebuilds: an index file is rebuilt from its run (force_recovery).
        unchecked: why nothing is checked, or None.
        rows_by_space: logged rows by space: (signature after the row, whether it is a DELETE); None = not recorded.
        undetermined: why no rule determines whether the server starts, or None.
    """

    vylog: str | None
    state: VylogState | None
    files: Mapping[str, CandidateFile]
    read_results: Mapping[str, ServerReadResult]
    leftovers: frozenset[str] = frozenset()
    previous: VylogState | None = None
    rebuilds: bool = False
    unchecked: str | None = None
    undetermined: str | None = None
    opened_indexes: dict[IndexId, OpenedIndex] = msgspec.field(default_factory=dict)
    loaded_runs: set[int] = msgspec.field(default_factory=set)
    rows_by_space: dict[int, list[tuple[int, bool]]] | None = None

    def recover_index(self, space: int, index: int, vclock_signature: int, *, from_snapshot: bool) -> VinylFault | None:
        """Recover one index; return why that fails, or None."""
        state = self.state
        if self.unchecked:
            return None
        tree = None if state is None else state.find_latest_tree(space, index)
        if from_snapshot:
            if tree is None or tree.create_lsn < 0:
                return VinylFault(self.vylog or "", None, f"Invalid VYLOG file: LSM tree {space}/{index} not found")
            vclock_signature = min(vclock_signature, tree.create_lsn)
        if state is None or tree is None or (
            tree.prepared is None and 0 <= tree.create_lsn < vclock_signature
        ):  # fmt: skip
            self.opened_indexes[space, index] = OpenedIndex(None, vclock_signature)
            return None
        if 0 <= tree.create_lsn < vclock_signature and tree.prepared is not None:
            tree = state.trees[tree.prepared]
        is_dropped_later = vclock_signature < tree.create_lsn or tree.drop_lsn >= 0
        self.opened_indexes[space, index] = OpenedIndex(tree, vclock_signature, is_dropped_later)
        return None if is_dropped_later else self._load_runs(tree, state)

    def close_indexes(self, space: int, index: int | None = None) -> None:
        """Close a dropped index, or all indexes of a space."""
        for index_id in [one for one in self.opened_indexes if one[0] == space and index in (None, one[1])]:
            del self.opened_indexes[index_id]

    def list_indexes(self, space: int) -> list[int]:
        """List the indexes that a space has now."""
        return [index for one, index in self.opened_indexes if one == space]

    def _load_runs(self, tree: LsmTree, state: VylogState) -> VinylFault | None:
        """Check and mark as loaded all runs of a tree; return the first fault, or None."""
        for slice_ in state.list_forgotten_slices(tree):
            text = (
                f"the metadata log has forget_run for run {slice_.run}, but range {slice_.range} of LSM "
                f"tree {tree.id} still uses it: "
            )
            self.undetermined = self.undetermined or text + "the server reads freed memory"
        for run in state.list_live_runs(tree):
            if run.id not in self.loaded_runs:  # a run that another tree has loaded is not opened again
                fault = self._check_run(tree, run)
                if fault is not None:
                    return fault
                self.loaded_runs.add(run.id)
        tree_fault = state.find_tree_range_error(tree)
        return None if tree_fault is None else VinylFault(self.vylog or "", None, tree_fault)

    # -- files of a run --------------------------------------------------------------------------------------------

    def run_file_name(self, tree: LsmTree, run: VinylRun, suffix: str) -> str:
        """Return the name of a file of a run."""
        return posixpath.join(posixpath.dirname(self.vylog or ""), f"{tree.space}/{tree.index}/{run.id:020d}.{suffix}")

    def _check_run(self, tree: LsmTree, run: VinylRun) -> VinylFault | None:
        """Check the index and the run file of a run; return why the server cannot load it, or None (with
        force_recovery it rebuilds a bad index).
        """
        name = self.run_file_name(tree, run, "index")
        fault = self._check_index(name)
        run_fault = self._check_file_header(self.run_file_name(tree, run, "run"))
        if fault is None or not self.rebuilds:
            return fault or run_fault
        if run_fault is None and f"{name}.inprogress" in self.leftovers:
            return VinylFault(name, None, f"failed to create file './{name}.inprogress'")
        return run_fault or self._check_pages(tree, run)

    def _check_file_header(self, name: str) -> VinylFault | None:
        candidate = self.files.get(name)
        if candidate is None:
            return VinylFault(name, None, f"failed to open './{name}' file")
        return None if candidate.fault is None else VinylFault(name, *candidate.fault)

    def _check_index(self, name: str) -> VinylFault | None:
        """Check an index file: only the pages that RUNINFO counts in its first block are read."""
        fault = self._check_file_header(name)
        if fault is not None:
            return fault
        candidate, read_result = self.files[name], self.read_results.get(name, ServerReadResult())
        assert candidate.file.layout is not None
        start = candidate.file.layout.frames_at
        if read_result.stop is not None and read_result.stop.offset <= start:
            return VinylFault(name, *read_result.stop)
        facts = None if candidate.file.verdict is None else candidate.file.verdict.facts
        fault_text = facts.fault if isinstance(facts, IndexFacts) else None
        if read_result.silent_end is not None and read_result.silent_end <= start:
            fault_text = "Unexpected end of file"
        return None if fault_text is None else VinylFault(name, start, f"Invalid INDEX file ./{name}: {fault_text}")

    def _check_pages(self, tree: LsmTree, run: VinylRun) -> VinylFault | None:
        """Check all pages of a run whose index is rebuilt."""
        name = self.run_file_name(tree, run, "run")
        facts = _get_facts(self.files[name])
        if isinstance(facts, RunFacts) and facts.damaged:
            return VinylFault(name, _find_first_error(self.files[name].file.findings), "tx checksum mismatch")
        return None

    # -- losses ----------------------------------------------------------------------------------------------

    def report_lost_vinyl_rows(self, space_names: Mapping[int, str]) -> Iterator[tuple[str, Finding]]:
        """Yield rows that are lost or unreadable at the end of a start. space_names: names of the spaces."""
        if self.state is None or self.unchecked:
            return
        for (space, index), index_state in sorted(self.opened_indexes.items()):
            label = f"space '{space_names.get(space, space)}', index {index}"
            facts: FindingFacts = {"space": space, "index": index}
            yield from self._report_skipped_rows(space, index, index_state, label, facts)
            if index_state.tree is None:
                continue
            if index_state.is_dropped_later:
                text = f"{label}: the metadata log says that it is dropped: the server reads none of its rows"
                yield self._create_loss(text, facts, "vylog_dropped_tree")
                continue
            yield from self._report_unread_runs(index_state.tree, label, facts)
            yield from self._report_removed_runs(index_state.tree, label, facts)
            for run in self.state.list_live_runs(index_state.tree):
                yield from self._report_unreadable_pages(index_state.tree, run, label, facts)

    def record_row(self, space: int, vclock_signature: int, *, is_delete: bool) -> None:
        """Record a row of the logs."""
        rows = [] if self.rows_by_space is None else self.rows_by_space.setdefault(space, [])
        if len(rows) < MAX_ROWS_PER_SPACE:
            rows.append((vclock_signature, is_delete))

    def _list_delete_flags_between(self, space: int, after_signature: int, until_signature: int) -> list[bool] | None:
        """Return, for each logged row with a signature in `(after, until]`, True for a DELETE; None if not recorded."""
        if after_signature >= until_signature:
            return []
        if self.rows_by_space is None:
            return None
        return [
            deletes
            for signature, deletes in self.rows_by_space.get(space, ())
            if after_signature < signature <= until_signature
        ]

    def _get_covered_lsn(self, index_state: OpenedIndex) -> int:
        """Return the LSN up to which rows are in the runs of an index, or were written before the index existed."""
        if index_state.tree is None or self.state is None:
            return index_state.signature
        runs = list(self.state.list_live_runs(index_state.tree))
        if any(run.incomplete for run in runs):
            return MAX_LSN  # the rows of the run are not recorded
        run_facts = (self._get_run_facts(index_state.tree, run) for run in runs)
        newest = (facts.max_lsn or 0 for facts in run_facts if isinstance(facts, RunFacts))
        return max([index_state.tree.create_lsn, *(run.dump_lsn for run in runs), *newest])

    def _get_run_facts(self, tree: LsmTree, run: VinylRun) -> object:
        """Return the validator's facts about the file of a run; None if there is no file."""
        candidate = self.files.get(self.run_file_name(tree, run, "run"))
        return None if candidate is None else _get_facts(candidate)

    def _has_no_dumped_rows(self, index_state: OpenedIndex) -> bool:
        """Return whether the metadata log has no trace of the rows that the index held when it was created."""
        if index_state.tree is None or self.state is None:
            return True
        return index_state.tree.dump_lsn <= 0 and not any(True for _ in self.state.list_live_runs(index_state.tree))

    def _report_skipped_rows(
        self, space: int, index: int, index_state: OpenedIndex, label: str, facts: FindingFacts
    ) -> Iterator[tuple[str, Finding]]:
        """Report logged rows that are skipped because the primary index should have them in its runs, which it does not
        (vinyl.c: vy_is_committed).
        """
        primary = self.opened_indexes.get((space, 0))
        if primary is None or primary.tree is None or primary.is_dropped_later or self.state is None:
            return
        dumped, covered = primary.tree.dump_lsn, self._get_covered_lsn(index_state)
        if index == 0:
            rows = self._list_delete_flags_between(space, covered, dumped)
            if rows and not any(rows):  # rows that were deleted before a dump need no run
                text = f"{label}: {len(rows):,} rows of the logs are skipped, and are in no run"
                yield self._create_loss(text, facts, "vylog_rows_passed_over")
        elif self._has_no_dumped_rows(index_state) and any(
            run.dump_lsn <= index_state.signature for run in self.state.list_live_runs(primary.tree)
        ):
            text = f"{label}: the metadata log does not have its runs: reads through it miss the older rows"
            yield self._create_loss(text, facts, "vylog_index_incomplete")
        else:
            if index_state.tree is not None:
                covered = max(covered, index_state.tree.dump_lsn)
            if self._list_delete_flags_between(space, covered, dumped) != []:
                text = f"{label}: its runs do not have all rows of the space: reads through it miss them"
                yield self._create_loss(text, facts, "vylog_index_incomplete")

    def _create_loss(self, text: str, facts: FindingFacts, diagnosis: str) -> tuple[str, Finding]:
        return self.vylog or "", make_finding("silent-loss", None, 0, text, diagnosis=diagnosis, **facts)

    def _report_unread_runs(self, tree: LsmTree, label: str, facts: FindingFacts) -> Iterator[tuple[str, Finding]]:
        """Report runs that no range uses, and slices of the last checkpoint that are missing now."""
        state = self.state
        assert state is not None
        for slice_ in state.list_forgotten_slices(tree):
            text = f"{label}: run {slice_.run} is forgotten: its rows are not read"
            yield self._create_loss(text, {**facts, "run": slice_.run}, "vylog_run_forgotten")
        used = [run.dump_lsn for run in state.list_live_runs(tree)]
        swapped = any(run.dropped and run.slices for run in state.runs.values())  # a wrong slice was deleted
        for number in sorted(tree.runs):
            run = state.runs[number]
            if run.dropped or run.incomplete or run.slices or (run.sliced and not swapped):
                continue
            rows = self._format_row_count(tree, run)
            if rows is None:
                continue
            if run.sliced or run.appended or run.dump_lsn > max(used, default=-1) or self._had_slices(number):
                text = f"{label}: no range uses run {number}: its {rows} are not read"
                yield self._create_loss(text, {**facts, "run": number}, "vylog_run_without_slice")
        if self.previous is not None and state.checkpoint is not None:
            for slice_ in self.previous.slices.values():
                slice_range, current_run = self.previous.ranges[slice_.range], state.runs.get(slice_.run)
                if (
                    slice_range.lsm == tree.id
                    and slice_.id not in state.checkpoint
                    and current_run is not None
                    and current_run.sliced
                ):
                    text = (
                        f"{label}: range {slice_range.id} does not use run {current_run.id} any more, as "
                        f"it did in the metadata log "
                    )
                    text += ": some rows are not read"
                    yield self._create_loss(text, {**facts, "run": current_run.id}, "vylog_slice_missing")

    def _had_slices(self, run: int) -> bool:
        previous_run = None if self.previous is None else self.previous.runs.get(run)
        return previous_run is not None and bool(previous_run.slices) and not previous_run.dropped

    def _report_removed_runs(self, tree: LsmTree, label: str, facts: FindingFacts) -> Iterator[tuple[str, Finding]]:
        """Report runs that are read now but whose files the server removes (`vy_gc`, during recovery or at its end)."""
        assert self.state is not None
        for run in self.state.list_live_runs(tree):
            if run.lsm != tree.id and self.run_file_name(tree, run, "run") not in self.files:
                text = f"{label}: run {run.id} belongs to another index: reads give wrong rows"
                yield self._create_loss(text, {**facts, "run": run.id}, "vylog_foreign_run")
            elif run.incomplete or run.dropped:
                removal_time = "at this start" if run.incomplete else "when it collects garbage"
                text = f"{label}: run {run.id} is in use and the metadata log says that it is "
                text += (
                    f"{'not finished' if run.incomplete else 'dropped'}: the server removes its files {removal_time}"
                )
                yield self._create_loss(text, {**facts, "run": run.id}, "vylog_run_removed")

    def _format_row_count(self, tree: LsmTree, run: VinylRun) -> str | None:
        """Format the number of rows of a run; None if its file does not exist."""
        candidate = self.files.get(self.run_file_name(tree, run, "run"))
        if candidate is None:
            return None
        facts = _get_facts(candidate)
        if not isinstance(facts, RunFacts):
            return "rows"
        count = sum(facts.stat.values())
        return f"{count:,} row{'' if count == 1 else 's'}"

    def _report_unreadable_pages(
        self, tree: LsmTree, run: VinylRun, label: str, facts: FindingFacts
    ) -> Iterator[tuple[str, Finding]]:
        """Report unreadable pages, which the server only notices when a query reads them."""
        index, data = (self.files.get(self.run_file_name(tree, run, suffix)) for suffix in ("index", "run"))
        index_facts, run_facts = (None if one is None else _get_facts(one) for one in (index, data))
        if data is None or not isinstance(run_facts, RunFacts) or not isinstance(index_facts, IndexFacts):
            return
        pages_by_offset = {page.offset: page for page in run_facts.pages}
        pages = index_facts.read if index_facts.fault is None else run_facts.pages
        bad_pages = [page for page in pages if pages_by_offset.get(page.offset) != page]
        if bad_pages:
            rows = sum(page.row_count for page in bad_pages)
            text = (
                f"{label}: {len(bad_pages)} of {len(pages)} pages cannot be read ({rows:,} rows): queries "
                f"that reach them "
            )
            text += "fail"
            loss = make_finding(
                "silent-loss",
                bad_pages[0].offset,
                bad_pages[0].size,
                text,
                diagnosis="run_page_unreadable",
                records=rows,
                **facts,
            )
            yield data.name, loss


def _get_facts(candidate: CandidateFile) -> object:
    return None if candidate.file.verdict is None else candidate.file.verdict.facts


def _find_first_error(findings: Iterable[Finding]) -> int | None:
    return next((one.offset for one in findings if one.severity is Severity.ERROR), None)


def read_vylog_state(
    facts: object, read_result: ServerReadResult, *, force: bool
) -> tuple[VylogState | None, VinylFault | None]:
    """Return the state of the metadata log as the server reads it, and the fault of the record that it refuses (with an
    empty `file`).
    """
    if not isinstance(facts, VylogFacts):
        return None, None
    ends_early = read_result.silent_end is not None and facts.before_damage is not None
    if not force and facts.fault is not None and (read_result.limit is None or facts.fault.offset < read_result.limit):
        return facts.state, VinylFault("", *facts.fault)
    return (facts.before_damage if ends_early else facts.state), None


# --- Start of a server ---

Vclock = Mapping[int, int]

_FILE_NAME = re.compile(r"(\d+)\.(snap|xlog|vylog|run|index)")
_META_MESSAGES = {
    "bad_header_version": "unsupported file format version {version}",
    "bad_uuid": "can't parse instance UUID",
    "bad_vclock": "invalid vclock at offset {offset}",
}
_VCLOCK = re.compile(r"[ \t]*\{[ \t]*(?:\d+[ \t]*:[ \t]*\d+[ \t]*(?:,[ \t]*|(?=\})))*\}")
_VCLOCK_PREFIX = re.compile(r"[ \t]*(?:\{[ \t]*(?:\d+[ \t]*:[ \t]*\d+[ \t]*,?[ \t]*)*(?:\d+[ \t]*(?::[ \t]*)?)?)?")
_MAX_WORD_SIZE = 10
"""Buffer size of the server for the type and for the version, in bytes, including the terminating zero."""
_EMPTY_HEADER = HeaderText([], None)
_SKIPPABLE_FAULTS = re.compile("^Invalid xlog type|signature check failed$|invalid instance UUID$|invalid xlog order$")
"""Messages about faults of headers that are nevertheless readable."""
_ENTRY_FAULTS = {
    DIRECTORY: "failed to read '' file",
    FIFO: "{path} is a FIFO: the server waits until a program writes to it",
    FILE_LINK: "not checked: {path} is a symbolic link, which is not followed: the server reads the file that it names",
}
_SIGNATURE_DIAGNOSES = ("vclock_name_mismatch", "unknown_header_key")


class StartRefusedError(Exception):
    """Error: the server gives up at once, at `stop`; starts: None = whether it does was not checked."""

    def __init__(self, stop: ReplayStop, starts: bool | None = False) -> None:
        super().__init__(stop.why)
        self.stop, self.starts = stop, starts


class CandidateFile(NamedTuple):
    """A file that the server finds.

    Attributes:
        number: number in its name.
        fault: (offset, server's message) about its header, or None.
        kind: kind of a directory entry that is no regular file (`ReplaySituation.other_entries`); "" = a file;
            `DANGLING_LINK` also where no file has the name that the server opens.
    """

    file: ExaminedFile
    context: TarantoolContext
    number: int
    fault: tuple[int | None, str] | None
    kind: str = ""

    @property
    def name(self) -> str:
        """Name in the directory."""
        return self.file.name

    @property
    def vclock(self) -> Vclock:
        """VClock of its header."""
        return self.context.vclock


class TarantoolStartup(msgspec.Struct, frozen=True):
    """Plan of one start.

    Attributes:
        snapshot, logs, vylog: files that the server reads.
        start: vclock that it begins with.
        read_results: name -> result of the server's reading.
        vinyl: recovery of the vinyl indexes; None if single files were named.
        bootstraps: the server finds no snapshot, and creates a new, empty instance.
        version: of the server that starts.
    """

    itinerary: ReadPlan
    start: Vclock = msgspec.field(default_factory=dict)
    snapshot: CandidateFile | None = None
    vylog: CandidateFile | None = None
    logs: tuple[CandidateFile, ...] = ()
    read_results: Mapping[str, ServerReadResult] = msgspec.field(default_factory=dict)
    vinyl: VinylRecovery | None = None
    bootstraps: bool = False
    version: ServerVersion = OLDEST_VERSION


def format_path(name: str) -> str:
    """Format a file name as the server prints it."""
    return f"./{posixpath.basename(name)}"


def is_vclock_at_most(a: Vclock, b: Vclock) -> bool:
    """Return whether no component of `a` is above that of `b` (`vclock_compare` <= 0)."""
    return all(lsn <= b.get(replica, 0) for replica, lsn in a.items())


def is_vclock_ordered(a: Vclock, b: Vclock) -> bool:
    """Return whether two vclocks are ordered and not equal (`vclock_compare`)."""
    return is_vclock_at_most(a, b) != is_vclock_at_most(b, a)


def is_same_vclock(a: Vclock, b: Vclock) -> bool:
    """Return whether all components are equal."""
    return is_vclock_at_most(a, b) and is_vclock_at_most(b, a)


def plan_startup(situation: ReplaySituation, start: Vclock | None) -> TarantoolStartup:
    """Plan the start of a server. start: vclock that was already reached (`--against`), or None."""
    return _StartupPlanner(situation, start).create_plan()


class _StartupPlanner:
    """Examines the files as the server does and builds the plan."""

    def __init__(self, situation: ReplaySituation, start: Vclock | None) -> None:
        self._situation = situation
        self._force = situation.policy == "force"
        self._version = choose_server_version(situation.server_version, situation.files)
        self._start_vclock = start
        self._passed: dict[str, str] = {}
        self._read_results: dict[str, ServerReadResult] = {}
        self._files: dict[str, list[CandidateFile]] = {kind.lower(): [] for kind in FileKind}
        self._vinyl: VinylRecovery | None = None
        self._missing_vylog = ""
        for file in situation.files:
            self._add_file(file)
        for name, kind in situation.other_entries.items():
            self._add_other_entry(name, kind)

    def _add_other_entry(self, name: str, kind: str) -> None:
        """Add a directory entry that is named like a file of the server: the server opens it, although it is none."""
        match = _FILE_NAME.fullmatch(name)
        if match is None or match[2] in ("run", "index"):
            return
        file = ExaminedFile(name, name, 0, 0, None, None, None)
        context = TarantoolContext(None, _EMPTY_HEADER)
        text = _ENTRY_FAULTS.get(kind, "failed to open '{path}' file").format(path=format_path(name))
        self._files[match[2]].append(CandidateFile(file, context, int(match[1]), (None, text), kind))

    def _add_file(self, file: ExaminedFile) -> None:
        match = _FILE_NAME.fullmatch(posixpath.basename(file.name))
        if match is None:
            self._passed[file.name] = "ignored-file"
            return
        context = TarantoolContext(None, _EMPTY_HEADER) if file.layout is None else file.layout.context
        candidate = CandidateFile(file, context, int(match[1]), _find_header_fault(file, context))
        self._files[match[2]].append(candidate)

    def create_plan(self) -> TarantoolStartup:
        """Plan the start in the server's order; a refusal ends the plan."""
        for kind in ("run", "index"):
            self._passed |= dict.fromkeys((c.name for c in self._files[kind]), "vinyl-data")
        try:
            startup = self._plan_directory() if self._situation.is_directory else self._plan_single_files()
        except StartRefusedError as refusal:
            startup = TarantoolStartup(ReadPlan((), self._passed, refusal.stop, starts=refusal.starts))
        return replace(startup, version=self._version)

    def _plan_single_files(self) -> TarantoolStartup:
        """Plan a start from single files that the user named: they are read as given."""
        candidates = [c for kind in ("snap", "vylog", "xlog") for c in self._files[kind]]
        for candidate in candidates:
            _require_valid_header(candidate)
        snaps, vylogs, logs = (self._files[kind] for kind in ("snap", "vylog", "xlog"))
        start = self._start_vclock
        if start is None:
            start = logs[0].vclock if logs and not snaps else {}
        return self._create_startup(start, _get_last(snaps), _get_last(vylogs), logs)

    def _plan_directory(self) -> TarantoolStartup:
        """Plan the start from a whole data directory."""
        snaps = self._scan_kind("snap", self._force)
        if self._force and self._version.is_version_3 and self._start_vclock is None:
            self._check_newest_snapshot()
        snapshot = _get_last(snaps) if self._start_vclock is None else None
        self._skip_files(snaps, snapshot, "older-file" if self._start_vclock is None else "already-applied")
        instance = None if snapshot is None else snapshot.context.instance
        logs = self._scan_kind("xlog", self._force, instance)
        if snapshot is None and self._start_vclock is None:
            return self._plan_bootstrap(logs)
        start: Vclock = snapshot.vclock if snapshot is not None else self._start_vclock or {}
        vylog = self._select_vylog(start, instance)
        logs = self._select_logs(logs, start)
        self._vinyl = self._plan_vinyl(vylog)
        return self._create_startup(start, snapshot, vylog, logs)

    def _scan_kind(self, kind: str, force: bool, instance: str | None = None) -> list[CandidateFile]:
        """Return the files of a kind by number (`xlog_dir_scan`): one bad header refuses all, or force skips it.

        A missing metadata log ends the scan without an error (`vy_log_begin_recovery`).
        """
        valid_files: list[CandidateFile] = []
        for listed_file in sorted(self._files[kind], key=lambda c: (c.number, c.name)):
            candidate = self._resolve_listed_file(listed_file, valid_files)
            if candidate.kind == DANGLING_LINK and kind == "vylog":
                self._missing_vylog = listed_file.name
                break
            if instance is not None and candidate.fault is None and candidate.context.instance != instance:
                line = candidate.context.text.get_line("instance")
                fault = (line.start if line else 0, f"{format_path(candidate.name)}: invalid instance UUID")
                candidate = candidate._replace(fault=fault)
            if candidate.fault is None:
                valid_files.append(candidate)
            elif force and candidate.kind not in (FIFO, FILE_LINK):
                self._passed[candidate.name] = "bad-header"
            else:
                _require_valid_header(candidate)
        return sorted(valid_files, key=lambda c: c.context.signature)

    def _check_newest_snapshot(self) -> None:
        """Check the newest snapshot's header: 3.x reads its version before anything else (`get_snapshot_version`)."""
        named = (c for c in self._files["snap"] if len(posixpath.basename(c.name)) == len(f"{0:020d}.snap"))
        newest = max(named, key=lambda c: c.number, default=None)
        if newest is not None and newest.fault is not None and not _SKIPPABLE_FAULTS.search(newest.fault[1]):
            _require_valid_header(newest)

    def _resolve_listed_file(self, listed_file: CandidateFile, before: list[CandidateFile]) -> CandidateFile:
        """Return the file that the server opens for a listed file: it formats the number of the name with 20 digits."""
        directory, kind = posixpath.dirname(listed_file.name), listed_file.name.rpartition(".")[2]
        name = posixpath.join(directory, f"{listed_file.number:020d}.{kind}")
        opened_file = next((c for c in self._files[kind] if c.name == name), None)
        if opened_file is None:
            fault = (None if listed_file.kind else 0, f"failed to open '{format_path(name)}' file")
            return listed_file._replace(fault=fault, kind=DANGLING_LINK)
        if opened_file.fault is None and not all(is_vclock_ordered(opened_file.vclock, c.vclock) for c in before):
            line = opened_file.context.text.get_line("vclock")
            return listed_file._replace(fault=(line.start if line else 0, f"{format_path(name)}: invalid xlog order"))
        return opened_file

    def _plan_bootstrap(self, logs: list[CandidateFile]) -> TarantoolStartup:
        """Plan a start without a snapshot: the server creates a new instance, and reads none of the files, but refuses
        the metadata logs of another one, unless one has the number 0 (observed on 2.6.0, also with force_recovery).
        """
        self._skip_files([*logs, *self._files["vylog"]], None, "no-snapshot")
        vylog = min(self._files["vylog"], key=lambda c: c.number, default=None)
        if vylog is not None and vylog.kind == DANGLING_LINK:  # ends the scan, as no metadata log does
            vylog = None
        if vylog is not None and vylog.number and logs:  # `vy_log_bootstrap`; alone it may lie in another vinyl_dir
            _require_valid_header(vylog)
            line = vylog.context.text.get_line("instance")
            text = f"{format_path(vylog.name)}: invalid instance UUID"
            raise StartRefusedError(ReplayStop(vylog.name, line.start if line else 0, text))
        conflicting_snapshots = [c for c in self._files["snap"] if c.number == 0]
        refusal = (
            ReplayStop(conflicting_snapshots[0].name, None, "failed to create a checkpoint")
            if conflicting_snapshots
            else None
        )
        has_files = bool(self._files["snap"] or logs)
        return TarantoolStartup(ReadPlan((), self._passed, refusal), bootstraps=has_files and refusal is None)

    def _select_vylog(self, start: Vclock, instance: str | None) -> CandidateFile | None:
        """Select the newest metadata log.

        If the snapshot is newer, the server first creates a metadata log with the snapshot's number from it.
        """
        vylogs = self._scan_kind("vylog", False, instance)
        if self._force and self._version.is_version_3:  # the server removes metadata logs newer than the snapshot
            newer = [c for c in vylogs if not is_vclock_at_most(c.vclock, start)]
            self._passed |= dict.fromkeys((c.name for c in newer), "newer-than-snapshot")
            vylogs = [c for c in vylogs if c not in newer]
        newest = _get_last(vylogs)
        unscanned = next((c for c in self._files["vylog"] if c.number == sum(start.values()) and not c.kind), None)
        if newest is None and unscanned is not None:  # opened by its name, whatever the scan found
            _require_valid_header(unscanned)
            newest = unscanned
        self._skip_files((c for c in self._files["vylog"] if c.name not in self._passed), newest, "older-file")
        if newest is not None and not is_vclock_at_most(newest.vclock, start) and self._start_vclock is None:
            raise StartRefusedError(ReplayStop(newest.name, None, "Can't find snapshot"))
        if newest is not None and not is_same_vclock(newest.vclock, start) and self._start_vclock is None:
            name = f"{sum(start.values()):020d}.vylog"
            if unscanned is not None:
                self._refuse_creation(newest, self._missing_vylog, f"file './{name}' already exists")
            leftover = posixpath.join(posixpath.dirname(newest.name), f"{name}.inprogress")
            if leftover in self._passed:
                self._refuse_creation(newest, leftover, f"failed to create file './{name}.inprogress'")
        return newest

    def _refuse_creation(self, vylog: CandidateFile, blocking_file: str, text: str) -> None:
        """Refuse the start if the server creates a metadata log from an older one, and cannot (`xlog_create`)."""
        facts = _get_facts(vylog)
        if isinstance(facts, VylogFacts) and facts.state.trees:
            raise StartRefusedError(ReplayStop(blocking_file, None, text))

    def _select_logs(self, logs: list[CandidateFile], start: Vclock) -> list[CandidateFile]:
        """Return the newest log that begins at or before the start, and all after it; else all (`vclockset_match`)."""
        first = max((i for i, log in enumerate(logs) if is_vclock_at_most(log.vclock, start)), default=0)
        self._passed |= dict.fromkeys((log.name for log in logs[:first]), "older-file")
        return logs[first:]

    def _skip_files(self, files: Iterable[CandidateFile], except_file: CandidateFile | None, reason: str) -> None:
        self._passed |= {c.name: reason for c in files if c is not except_file}

    # -- vinyl -----------------------------------------------------------------------------------------------------

    def _plan_vinyl(self, vylog: CandidateFile | None) -> VinylRecovery:
        """Plan the recovery of vinyl: the state of the metadata log, and the files that it refers to."""
        files = {c.name: c for kind in ("run", "index") for c in self._files[kind]}
        damaged = (c for c in self._files["index"] if c.fault is None and _is_damaged(c.file))
        read_results = {c.name: self._simulate_file(c, force=False) for c in damaged}
        leftovers = frozenset(name for name in self._passed if name.endswith(".inprogress"))
        missing_reason = None if files else "no run of vinyl is in this directory"
        if vylog is None:
            return VinylRecovery(None, None, files, read_results, leftovers, unchecked=missing_reason)
        force = self._force and self._version.is_version_3
        read_result = self._read_results[vylog.name] = self._simulate_file(vylog, force=force)
        state, fault = read_vylog_state(_get_facts(vylog), read_result, force=force)
        if fault is not None:
            raise StartRefusedError(ReplayStop(vylog.name, fault.offset, fault.why))
        return VinylRecovery(
            vylog.name, state, files, read_results, leftovers, self._find_previous_state(vylog), rebuilds=self._force,
            unchecked=missing_reason or (state.unchecked if state is not None else None),
        )  # fmt: skip

    def _find_previous_state(self, vylog: CandidateFile) -> VylogState | None:
        """Return the state from which the checkpoint of a metadata log was made.

        None if its file is missing or damaged.
        """
        older = [c for c in self._files["vylog"] if c.fault is None and c.number < vylog.number]
        before = max(older, key=lambda c: c.number, default=None)
        if before is None or any(before.number < c.number < vylog.number for c in self._files["snap"]):
            return None
        facts = _get_facts(before)
        is_complete = isinstance(facts, VylogFacts) and not facts.damaged and facts.fault is None
        return facts.state if isinstance(facts, VylogFacts) and is_complete else None

    # -- the plan --------------------------------------------------------------------------------------------------

    def _create_startup(
        self, start: Vclock, snapshot: CandidateFile | None, vylog: CandidateFile | None, logs: list[CandidateFile]
    ) -> TarantoolStartup:
        files = [c for c in (vylog, snapshot, *logs) if c is not None]
        for candidate in files:
            if candidate.name not in self._read_results:
                self._read_results[candidate.name] = self._simulate_file(
                    candidate, force=self._force and candidate is not vylog
                )
        refusal = None
        if vylog is not None and (stop := self._read_results[vylog.name].stop) is not None:
            refusal = ReplayStop(vylog.name, *stop)
            files = [vylog]
        base = frozenset(c.name for c in (vylog, snapshot) if c is not None)
        itinerary = ReadPlan(tuple(c.name for c in files), self._passed, refusal, base)
        return TarantoolStartup(itinerary, start, snapshot, vylog, tuple(logs), self._read_results, self._vinyl)

    def _simulate_file(self, candidate: CandidateFile, *, force: bool) -> ServerReadResult:
        return simulate_reading(candidate.file, self._open_reader(candidate.file), self._version, force_recovery=force)

    def _open_reader(self, file: ExaminedFile) -> RangeReader:
        beside = self._situation.read_sibling
        read = (
            None
            if beside is None
            else beside(file.name if self._situation.is_directory else posixpath.basename(file.name))
        )
        return read or (lambda offset, size: b"")


def _get_last(files: list[CandidateFile]) -> CandidateFile | None:
    return files[-1] if files else None


def _require_valid_header(candidate: CandidateFile) -> None:
    if candidate.fault is not None:
        stop = ReplayStop(candidate.name, *candidate.fault)
        raise StartRefusedError(stop, starts=None if candidate.kind == FILE_LINK else False)


def _is_damaged(file: ExaminedFile) -> bool:
    """Return whether verification reports an error or a missing end mark."""
    return any(one.severity is Severity.ERROR for one in file.findings) or file.tail is None or not file.tail.closed


# -- headers -----------------------------------------------------------------------------------------------------------


def _find_header_fault(file: ExaminedFile, context: TarantoolContext) -> tuple[int, str] | None:
    """Return the server's message about the stored header, even if the file is read with a corrected bit."""
    if file.layout is None:
        return 0, f"failed to open '{format_path(file.name)}' file"
    for correction in filter(is_header_correction, file.layout.findings):
        return correction.facts["server_offset"], correction.facts["server_says"]
    return predict_header_fault(file.name, file.layout.findings, context)


def predict_header_fault(name: str, findings: Iterable[Finding], context: TarantoolContext) -> tuple[int, str] | None:
    """Predict (offset, message) of a refused header, in the order of the server's checks (`xlog_cursor_open`)."""
    errors = {f.facts.get("diagnosis"): f for f in findings if f.severity is Severity.ERROR}
    if context.text.end is None:
        return 0, "Unexpected end of file, run with 'force_recovery = true'"
    for line, line_name in zip(context.text.lines, ("type", "version"), strict=False):
        if line.end - line.start > _MAX_WORD_SIZE:
            return line.start, f"failed to parse xlog {line_name} string"
    for diagnosis, template in (("bad_header", "can't extract meta value"), *_META_MESSAGES.items()):
        if diagnosis in errors:
            version = context.text.lines[1].value if len(context.text.lines) > 1 else ""
            return errors[diagnosis].offset or 0, template.format(
                version=version, offset=_find_vclock_error_column(context)
            )
    if "bad_header_type" in errors:
        kind = posixpath.basename(name).rpartition(".")[2].upper()
        return 0, f"Invalid xlog type: expected {kind}, got {context.text.lines[0].value}"
    signature_error = next((errors[diagnosis] for diagnosis in _SIGNATURE_DIAGNOSES if diagnosis in errors), None)
    return (
        None
        if signature_error is None
        else (signature_error.offset or 0, f"{format_path(name)}: signature check failed")
    )


def _find_vclock_error_column(context: TarantoolContext) -> int:
    """Return the column, from 1, at which the server stops reading the vclock (`vclock_from_string`)."""
    lines = (context.text.get_value(name) or "" for name in ("vclock", "prev_vclock"))
    for text in lines:
        prefix = _VCLOCK_PREFIX.match(text)
        if prefix is not None and not _VCLOCK.fullmatch(text):
            return prefix.end() + 1
    return 1


# --- Vinyl spaces whose rows are only in runs (`docs/spec/tarantool.md#vinyl-files`) ---

_PRIMARY_INDEX = 0


def find_spaces_in_runs(catalog: SpaceCatalog, snapshot_vinyl_ids: Collection[int], vylog_facts: Any) -> dict[str, str]:
    """Return the names of vinyl spaces with rows in runs, and why these rows are not known.

    Spaces that were created after the snapshot, or had no run at that checkpoint, have all their rows in the logs.

    Args:
        snapshot_vinyl_ids: ids of the vinyl spaces in the snapshot.
        vylog_facts: `VylogFacts` of the newest metadata log, or None.
    """
    names = {space: catalog.get_name(space) for space in catalog.vinyl.intersection(snapshot_vinyl_ids)}
    if not isinstance(vylog_facts, VylogFacts) or vylog_facts.damaged:
        return dict.fromkeys(names.values(), "rows of vinyl are in runs, and no intact metadata log lists these")
    based = (
        {run.lsm for run in vylog_facts.state.runs.values() if not run.dropped}
        if vylog_facts.based is None
        else vylog_facts.based
    )
    indexes = vylog_facts.list_tree_indexes(based)
    why = "the rows that it had at the checkpoint are in runs of vinyl, which are not logs and are not read"
    return {name: why for space, name in names.items() if (space, _PRIMARY_INDEX) in indexes}
