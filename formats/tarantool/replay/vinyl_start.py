"""Recovery of vinyl indexes: which runs a start opens, what refuses it, and which rows it loses.

An index is recovered when its row of `_index` is applied, from the state that the metadata log describes (vy_lsm.c:
vy_lsm_recover, vy_run.c: vy_run_recover).
"""

from __future__ import annotations

import posixpath
from collections.abc import Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, Any, NamedTuple

import msgspec

from binlogtool.findings import Finding, Severity, make_finding
from binlogtool.formats.tarantool.judge.vinyl import IndexFacts, RunFacts, VylogFacts
from binlogtool.formats.tarantool.replay.server_reader import ServerReadResult
from binlogtool.formats.tarantool.spaces.vylog import LsmTree, VinylRun, VylogState

if TYPE_CHECKING:
    from binlogtool.formats.tarantool.replay.startup import CandidateFile

IndexId = tuple[int, int]
"""Space and index."""
FindingFacts = dict[str, Any]
MAX_LSN = (1 << 63) - 1
MAX_ROWS_PER_SPACE = 1_000_000
"""Rows of one space that are remembered."""


class VinylFault(NamedTuple):
    """Reason why an index cannot be recovered. offset: in `file`."""

    file: str
    offset: int | None
    why: str


class OpenedIndex(msgspec.Struct):
    """An index that the server has.

    Attributes:
        tree: its LSM tree; None = it is new and empty.
        signature: of the state in which it was created.
        is_dropped_later: the metadata log says that it is dropped later.
    """

    tree: LsmTree | None
    signature: int
    is_dropped_later: bool = False


class VinylRecovery(msgspec.Struct):
    """The vinyl indexes of one start.

    Attributes:
        vylog: name of the metadata log.
        state: of the metadata log as the server reads it; None = there is none.
        files: runs and indexes by name.
        read_results: result of the server's reading of damaged indexes.
        leftovers: names of unfinished files.
        previous: state from which the metadata log's checkpoint was made, or None.
        rebuilds: an index file is rebuilt from its run (force_recovery).
        unchecked: why nothing is checked, or None.
        rows_by_space: rows of the logs by space: signature after each, and whether it is a DELETE; None = not
            recorded.
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

    def open_index(self, space: int, index: int, signature: int, *, from_snapshot: bool) -> VinylFault | None:
        """Recover one index; return why that fails."""
        state = self.state
        if self.unchecked:
            return None
        tree = None if state is None else state.find_tree(space, index)
        if from_snapshot:
            if tree is None or tree.create_lsn < 0:
                return VinylFault(self.vylog or "", None, f"Invalid VYLOG file: LSM tree {space}/{index} not found")
            signature = min(signature, tree.create_lsn)
        if state is None or tree is None or (
            tree.prepared is None and 0 <= tree.create_lsn < signature
        ):  # fmt: skip
            self.opened_indexes[space, index] = OpenedIndex(None, signature)
            return None
        if 0 <= tree.create_lsn < signature and tree.prepared is not None:
            tree = state.trees[tree.prepared]
        is_dropped_later = signature < tree.create_lsn or tree.drop_lsn >= 0
        self.opened_indexes[space, index] = OpenedIndex(tree, signature, is_dropped_later)
        return None if is_dropped_later else self._load_runs(tree, state)

    def close_indexes(self, space: int, index: int | None = None) -> None:
        """Close a dropped index, or all indexes of a space."""
        for index_id in [one for one in self.opened_indexes if one[0] == space and index in (None, one[1])]:
            del self.opened_indexes[index_id]

    def list_indexes(self, space: int) -> list[int]:
        """List the indexes that a space has now."""
        return [index for one, index in self.opened_indexes if one == space]

    def _load_runs(self, tree: LsmTree, state: VylogState) -> VinylFault | None:
        for slice_ in state.list_forgotten_slices(tree):
            text = (
                f"the metadata log forgets run {slice_.run}, and range {slice_.range} of LSM tree {tree.id} uses it: "
            )
            self.undetermined = self.undetermined or text + "the server reads freed memory"
        for run in state.list_live_runs(tree):
            if run.id not in self.loaded_runs:  # a run that another tree has loaded is not opened again
                fault = self._check_run(tree, run)
                if fault is not None:
                    return fault
                self.loaded_runs.add(run.id)
        tree_fault = state.check_tree(tree)
        return None if tree_fault is None else VinylFault(self.vylog or "", None, tree_fault)

    # -- files of a run --------------------------------------------------------------------------------------------

    def run_file_name(self, tree: LsmTree, run: VinylRun, suffix: str) -> str:
        """Return the name of a file of a run."""
        return posixpath.join(posixpath.dirname(self.vylog or ""), f"{tree.space}/{tree.index}/{run.id:020d}.{suffix}")

    def _check_run(self, tree: LsmTree, run: VinylRun) -> VinylFault | None:
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
        """Check an index file: only the first block counts, and of that the pages that RUNINFO counts."""
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

    def find_losses(self, names: Mapping[int, str]) -> Iterator[tuple[str, Finding]]:
        """Yield the rows that the server does not have or cannot read at the end of a start.

        Args:
            names: of the spaces.
        """
        if self.state is None or self.unchecked:
            return
        for (space, index), index_state in sorted(self.opened_indexes.items()):
            label = f"space '{names.get(space, space)}', index {index}"
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

    def note_row(self, space: int, signature: int, *, deletes: bool) -> None:
        """Remember a row of the logs."""
        rows = [] if self.rows_by_space is None else self.rows_by_space.setdefault(space, [])
        if len(rows) < MAX_ROWS_PER_SPACE:
            rows.append((signature, deletes))

    def _list_rows_between(self, space: int, after: int, until: int) -> list[bool] | None:
        """Return, for each logged row with signature in `(after, until]`, whether it is a DELETE; None if not
        recorded.
        """
        if after >= until:
            return []
        if self.rows_by_space is None:
            return None
        return [deletes for signature, deletes in self.rows_by_space.get(space, ()) if after < signature <= until]

    def _get_covered_lsn(self, index_state: OpenedIndex) -> int:
        """Return the LSN up to which rows are in the runs of an index, or were written before it existed."""
        if index_state.tree is None or self.state is None:
            return index_state.signature
        runs = list(self.state.list_live_runs(index_state.tree))
        if any(run.incomplete for run in runs):
            return MAX_LSN  # its rows are not recorded
        run_facts = (self._get_run_facts(index_state.tree, run) for run in runs)
        newest = (facts.max_lsn or 0 for facts in run_facts if isinstance(facts, RunFacts))
        return max([index_state.tree.create_lsn, *(run.dump_lsn for run in runs), *newest])

    def _get_run_facts(self, tree: LsmTree, run: VinylRun) -> object:
        """Return the facts of validation about the file of a run; None if there is no file."""
        candidate = self.files.get(self.run_file_name(tree, run, "run"))
        return None if candidate is None else _get_facts(candidate)

    def _was_not_built(self, index_state: OpenedIndex) -> bool:
        """Check that the metadata log has nothing of what the index held when it was created."""
        if index_state.tree is None or self.state is None:
            return True
        return index_state.tree.dump_lsn <= 0 and not any(True for _ in self.state.list_live_runs(index_state.tree))

    def _report_skipped_rows(
        self, space: int, index: int, index_state: OpenedIndex, label: str, facts: FindingFacts
    ) -> Iterator[tuple[str, Finding]]:
        """Report rows of the logs that are skipped because the primary index is said to have them in its runs, and
        that
        the runs do not have (vinyl.c: vy_is_committed).
        """
        primary = self.opened_indexes.get((space, 0))
        if primary is None or primary.tree is None or primary.is_dropped_later or self.state is None:
            return
        dumped, covered = primary.tree.dump_lsn, self._get_covered_lsn(index_state)
        if index == 0:
            rows = self._list_rows_between(space, covered, dumped)
            if rows and not any(rows):  # rows deleted before a dump need no run
                text = f"{label}: {len(rows):,} rows of the logs are passed over, and are in no run"
                yield self._create_loss(text, facts, "vylog_rows_passed_over")
        elif self._was_not_built(index_state) and any(
            run.dump_lsn <= index_state.signature for run in self.state.list_live_runs(primary.tree)
        ):
            text = f"{label}: the metadata log does not have its runs: reads through it miss the rows of before"
            yield self._create_loss(text, facts, "vylog_index_incomplete")
        else:
            if index_state.tree is not None:
                covered = max(covered, index_state.tree.dump_lsn)
            if self._list_rows_between(space, covered, dumped) != []:
                text = f"{label}: its runs do not have all rows of the space: reads through it miss them"
                yield self._create_loss(text, facts, "vylog_index_incomplete")

    def _create_loss(self, text: str, facts: FindingFacts, diagnosis: str) -> tuple[str, Finding]:
        return self.vylog or "", make_finding("silent-loss", None, 0, text, diagnosis=diagnosis, **facts)

    def _report_unread_runs(self, tree: LsmTree, label: str, facts: FindingFacts) -> Iterator[tuple[str, Finding]]:
        """Report runs that no range uses, and slices that the last checkpoint had and that are missing now."""
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
                    text += "before: some rows are not read"
                    yield self._create_loss(text, {**facts, "run": current_run.id}, "vylog_slice_missing")

    def _had_slices(self, run: int) -> bool:
        previous_run = None if self.previous is None else self.previous.runs.get(run)
        return previous_run is not None and bool(previous_run.slices) and not previous_run.dropped

    def _report_removed_runs(self, tree: LsmTree, label: str, facts: FindingFacts) -> Iterator[tuple[str, Finding]]:
        """Report runs that are read now and whose files the server removes: vy_gc at the end of recovery or
        after it.
        """
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
        """Report pages that cannot be read, which a query finds when it reaches them."""
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
    """Return the state of the metadata log as the server reads it, and the record that it refuses (`file` is left
    empty).
    """
    if not isinstance(facts, VylogFacts):
        return None, None
    ends_early = read_result.silent_end is not None and facts.before_damage is not None
    if not force and facts.fault is not None and (read_result.limit is None or facts.fault.offset < read_result.limit):
        return facts.state, VinylFault("", *facts.fault)
    return (facts.before_damage if ends_early else facts.state), None


__all__ = ["OpenedIndex", "VinylFault", "VinylRecovery", "read_vylog_state"]
