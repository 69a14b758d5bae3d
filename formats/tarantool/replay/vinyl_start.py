"""Recovery of vinyl indexes: which runs a start opens, what refuses it, and which rows it loses.

An index is recovered when its row of `_index` is applied, from the state that the metadata log describes (vy_lsm.c:
vy_lsm_recover, vy_run.c: vy_run_recover).
"""

from __future__ import annotations

import posixpath
from collections.abc import Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, Any, NamedTuple

import msgspec

from binlogtool.findings import Finding, Severity, finding
from binlogtool.formats.tarantool.judge.vinyl import IndexFacts, RunFacts, VylogFacts
from binlogtool.formats.tarantool.replay.server_reader import Course
from binlogtool.formats.tarantool.spaces.vylog import LsmTree, Run, VylogState

if TYPE_CHECKING:
    from binlogtool.formats.tarantool.replay.startup import Candidate

Place = tuple[int, int]
"""Space and index."""
Facts = dict[str, Any]
MAX_LSN = (1 << 63) - 1
MAX_ROWS = 1_000_000
"""Rows of one space that are remembered."""


class Fault(NamedTuple):
    """Reason why an index cannot be recovered. offset: in `file`."""

    file: str
    offset: int | None
    why: str


class Opened(msgspec.Struct):
    """An index that the server has.

    Attributes:
        tree: its LSM tree; None = it is new and empty.
        signature: of the state in which it was created.
        is_dropped_later: the metadata log says that it is dropped later.
    """

    tree: LsmTree | None
    signature: int
    past: bool = False


class VinylStart(msgspec.Struct):
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
    files: Mapping[str, Candidate]
    courses: Mapping[str, Course]
    leftovers: frozenset[str] = frozenset()
    previous: VylogState | None = None
    rebuilds: bool = False
    unchecked: str | None = None
    undetermined: str | None = None
    opened: dict[Place, Opened] = msgspec.field(default_factory=dict)
    loaded: set[int] = msgspec.field(default_factory=set)
    written: dict[int, list[tuple[int, bool]]] | None = None

    def open(self, space: int, index: int, signature: int, *, from_snapshot: bool) -> Fault | None:
        """Recover one index; return why that fails."""
        state = self.state
        if self.unchecked:
            return None
        tree = None if state is None else state.tree_of(space, index)
        if from_snapshot:
            if tree is None or tree.create_lsn < 0:
                return Fault(self.vylog or "", None, f"Invalid VYLOG file: LSM tree {space}/{index} not found")
            signature = min(signature, tree.create_lsn)
        if state is None or tree is None or (
            tree.prepared is None and 0 <= tree.create_lsn < signature
        ):  # fmt: skip
            self.opened[space, index] = Opened(None, signature)
            return None
        if 0 <= tree.create_lsn < signature and tree.prepared is not None:
            tree = state.trees[tree.prepared]
        past = signature < tree.create_lsn or tree.drop_lsn >= 0
        self.opened[space, index] = Opened(tree, signature, past)
        return None if past else self._load(tree, state)

    def close(self, space: int, index: int | None = None) -> None:
        """Close a dropped index, or all indexes of a space."""
        for place in [one for one in self.opened if one[0] == space and index in (None, one[1])]:
            del self.opened[place]

    def indexes_of(self, space: int) -> list[int]:
        """List the indexes that a space has now."""
        return [index for one, index in self.opened if one == space]

    def _load(self, tree: LsmTree, state: VylogState) -> Fault | None:
        for slice_ in state.forgotten_slices(tree):
            text = (
                f"the metadata log forgets run {slice_.run}, and range {slice_.range} of LSM tree {tree.id} uses it: "
            )
            self.undetermined = self.undetermined or text + "the server reads freed memory"
        for run in state.living_runs(tree):
            if run.id not in self.loaded:  # a run that another tree has loaded is not opened again
                fault = self._run_fault(tree, run)
                if fault is not None:
                    return fault
                self.loaded.add(run.id)
        shape = state.tree_fault(tree)
        return None if shape is None else Fault(self.vylog or "", None, shape)

    # -- files of a run --------------------------------------------------------------------------------------------

    def name(self, tree: LsmTree, run: Run, suffix: str) -> str:
        """Return the name of a file of a run."""
        return posixpath.join(posixpath.dirname(self.vylog or ""), f"{tree.space}/{tree.index}/{run.id:020d}.{suffix}")

    def _run_fault(self, tree: LsmTree, run: Run) -> Fault | None:
        name = self.name(tree, run, "index")
        fault = self._index_fault(name)
        of_run = self._header_fault(self.name(tree, run, "run"))
        if fault is None or not self.rebuilds:
            return fault or of_run
        if of_run is None and f"{name}.inprogress" in self.leftovers:
            return Fault(name, None, f"failed to create file './{name}.inprogress'")
        return of_run or self._page_fault(tree, run)

    def _header_fault(self, name: str) -> Fault | None:
        found = self.files.get(name)
        if found is None:
            return Fault(name, None, f"failed to open './{name}' file")
        return None if found.fault is None else Fault(name, *found.fault)

    def _index_fault(self, name: str) -> Fault | None:
        """Check an index file: only the first block counts, and of that the pages that RUNINFO counts."""
        fault = self._header_fault(name)
        if fault is not None:
            return fault
        found, course = self.files[name], self.courses.get(name, Course())
        assert found.file.layout is not None
        start = found.file.layout.frames_at
        if course.stop is not None and course.stop.offset <= start:
            return Fault(name, *course.stop)
        facts = None if found.file.verdict is None else found.file.verdict.facts
        fault_text = facts.fault if isinstance(facts, IndexFacts) else None
        if course.ends is not None and course.ends <= start:
            fault_text = "Unexpected end of file"
        return None if fault_text is None else Fault(name, start, f"Invalid INDEX file ./{name}: {fault_text}")

    def _page_fault(self, tree: LsmTree, run: Run) -> Fault | None:
        """Check all pages of a run whose index is rebuilt."""
        name = self.name(tree, run, "run")
        facts = _facts(self.files[name])
        if isinstance(facts, RunFacts) and facts.damaged:
            return Fault(name, _first_error(self.files[name].file.findings), "tx checksum mismatch")
        return None

    # -- losses ----------------------------------------------------------------------------------------------

    def losses(self, names: Mapping[int, str]) -> Iterator[tuple[str, Finding]]:
        """Yield the rows that the server does not have or cannot read at the end of a start.

        Args:
            names: of the spaces.
        """
        if self.state is None or self.unchecked:
            return
        for (space, index), opened in sorted(self.opened.items()):
            words = f"space '{names.get(space, space)}', index {index}"
            facts: Facts = {"space": space, "index": index}
            yield from self._passed_over(space, index, opened, words, facts)
            if opened.tree is None:
                continue
            if opened.past:
                text = f"{words}: the metadata log says that it is dropped: the server reads none of its rows"
                yield self._loss(text, facts, "vylog_dropped_tree")
                continue
            yield from self._unread_runs(opened.tree, words, facts)
            yield from self._removed_runs(opened.tree, words, facts)
            for run in self.state.living_runs(opened.tree):
                yield from self._unreadable(opened.tree, run, words, facts)

    def note_row(self, space: int, signature: int, *, deletes: bool) -> None:
        """Remember a row of the logs."""
        rows = [] if self.written is None else self.written.setdefault(space, [])
        if len(rows) < MAX_ROWS:
            rows.append((signature, deletes))

    def _rows_between(self, space: int, after: int, until: int) -> list[bool] | None:
        """Return, for each logged row with signature in `(after, until]`, whether it is a DELETE; None if not
        recorded.
        """
        if after >= until:
            return []
        if self.written is None:
            return None
        return [deletes for signature, deletes in self.written.get(space, ()) if after < signature <= until]

    def _covered(self, opened: Opened) -> int:
        """Return the LSN up to which rows are in the runs of an index, or were written before it existed."""
        if opened.tree is None or self.state is None:
            return opened.signature
        runs = list(self.state.living_runs(opened.tree))
        if any(run.incomplete for run in runs):
            return MAX_LSN  # its rows are not recorded
        written = (self._facts_of(opened.tree, run) for run in runs)
        newest = (facts.max_lsn or 0 for facts in written if isinstance(facts, RunFacts))
        return max([opened.tree.create_lsn, *(run.dump_lsn for run in runs), *newest])

    def _facts_of(self, tree: LsmTree, run: Run) -> object:
        """Return the facts of validation about the file of a run; None if there is no file."""
        found = self.files.get(self.name(tree, run, "run"))
        return None if found is None else _facts(found)

    def _was_not_built(self, opened: Opened) -> bool:
        """Check that the metadata log has nothing of what the index held when it was created."""
        if opened.tree is None or self.state is None:
            return True
        return opened.tree.dump_lsn <= 0 and not any(True for _ in self.state.living_runs(opened.tree))

    def _passed_over(
        self, space: int, index: int, opened: Opened, words: str, facts: Facts
    ) -> Iterator[tuple[str, Finding]]:
        """Report rows of the logs that are skipped because the primary index is said to have them in its runs, and
        that
        the runs do not have (vinyl.c: vy_is_committed).
        """
        primary = self.opened.get((space, 0))
        if primary is None or primary.tree is None or primary.past or self.state is None:
            return
        dumped, covered = primary.tree.dump_lsn, self._covered(opened)
        if index == 0:
            rows = self._rows_between(space, covered, dumped)
            if rows and not any(rows):  # rows deleted before a dump need no run
                text = f"{words}: {len(rows):,} rows of the logs are passed over, and are in no run"
                yield self._loss(text, facts, "vylog_rows_passed_over")
        elif self._was_not_built(opened) and any(
            run.dump_lsn <= opened.signature for run in self.state.living_runs(primary.tree)
        ):
            text = f"{words}: the metadata log does not have its runs: reads through it miss the rows of before"
            yield self._loss(text, facts, "vylog_index_incomplete")
        else:
            if opened.tree is not None:
                covered = max(covered, opened.tree.dump_lsn)
            if self._rows_between(space, covered, dumped) != []:
                text = f"{words}: its runs do not have all rows of the space: reads through it miss them"
                yield self._loss(text, facts, "vylog_index_incomplete")

    def _loss(self, text: str, facts: Facts, diagnosis: str) -> tuple[str, Finding]:
        return self.vylog or "", finding("silent-loss", None, 0, text, diagnosis=diagnosis, **facts)

    def _unread_runs(self, tree: LsmTree, words: str, facts: Facts) -> Iterator[tuple[str, Finding]]:
        """Report runs that no range uses, and slices that the last checkpoint had and that are missing now."""
        state = self.state
        assert state is not None
        for slice_ in state.forgotten_slices(tree):
            text = f"{words}: run {slice_.run} is forgotten: its rows are not read"
            yield self._loss(text, {**facts, "run": slice_.run}, "vylog_run_forgotten")
        used = [run.dump_lsn for run in state.living_runs(tree)]
        swapped = any(run.dropped and run.slices for run in state.runs.values())  # a wrong slice was deleted
        for number in sorted(tree.runs):
            run = state.runs[number]
            if run.dropped or run.incomplete or run.slices or (run.sliced and not swapped):
                continue
            rows = self._rows_of(tree, run)
            if rows is None:
                continue
            if run.sliced or run.appended or run.dump_lsn > max(used, default=-1) or self._had_slices(number):
                text = f"{words}: no range uses run {number}: its {rows} are not read"
                yield self._loss(text, {**facts, "run": number}, "vylog_run_without_slice")
        if self.previous is not None and state.checkpoint is not None:
            for slice_ in self.previous.slices.values():
                of, now = self.previous.ranges[slice_.range], state.runs.get(slice_.run)
                if of.lsm == tree.id and slice_.id not in state.checkpoint and now is not None and now.sliced:
                    text = f"{words}: range {of.id} does not use run {now.id} any more, as it did in the metadata log "
                    text += "before: some rows are not read"
                    yield self._loss(text, {**facts, "run": now.id}, "vylog_slice_missing")

    def _had_slices(self, run: int) -> bool:
        known = None if self.previous is None else self.previous.runs.get(run)
        return known is not None and bool(known.slices) and not known.dropped

    def _removed_runs(self, tree: LsmTree, words: str, facts: Facts) -> Iterator[tuple[str, Finding]]:
        """Report runs that are read now and whose files the server removes: vy_gc at the end of recovery or
        after it.
        """
        assert self.state is not None
        for run in self.state.living_runs(tree):
            if run.lsm != tree.id and self.name(tree, run, "run") not in self.files:
                text = f"{words}: run {run.id} belongs to another index: reads give wrong rows"
                yield self._loss(text, {**facts, "run": run.id}, "vylog_foreign_run")
            elif run.incomplete or run.dropped:
                when = "at this start" if run.incomplete else "when it collects garbage"
                text = f"{words}: run {run.id} is in use and the metadata log says that it is "
                text += f"{'not finished' if run.incomplete else 'dropped'}: the server removes its files {when}"
                yield self._loss(text, {**facts, "run": run.id}, "vylog_run_removed")

    def _rows_of(self, tree: LsmTree, run: Run) -> str | None:
        """Format the number of rows of a run; None if its file does not exist."""
        found = self.files.get(self.name(tree, run, "run"))
        if found is None:
            return None
        facts = _facts(found)
        if not isinstance(facts, RunFacts):
            return "rows"
        count = sum(facts.stat.values())
        return f"{count:,} row{'' if count == 1 else 's'}"

    def _unreadable(self, tree: LsmTree, run: Run, words: str, facts: Facts) -> Iterator[tuple[str, Finding]]:
        """Report pages that cannot be read, which a query finds when it reaches them."""
        index, data = (self.files.get(self.name(tree, run, suffix)) for suffix in ("index", "run"))
        said, seen = (None if one is None else _facts(one) for one in (index, data))
        if data is None or not isinstance(seen, RunFacts) or not isinstance(said, IndexFacts):
            return
        real = {page.offset: page for page in seen.pages}
        pages = said.read if said.fault is None else seen.pages
        bad = [page for page in pages if real.get(page.offset) != page]
        if bad:
            rows = sum(page.row_count for page in bad)
            text = f"{words}: {len(bad)} of {len(pages)} pages cannot be read ({rows:,} rows): queries that reach them "
            text += "fail"
            found = finding(
                "silent-loss", bad[0].offset, bad[0].size, text, diagnosis="run_page_unreadable", records=rows, **facts
            )
            yield data.name, found


def _facts(candidate: Candidate) -> object:
    return None if candidate.file.verdict is None else candidate.file.verdict.facts


def _first_error(findings: Iterable[Finding]) -> int | None:
    return next((one.offset for one in findings if one.severity is Severity.ERROR), None)


def state_read(facts: object, course: Course, *, force: bool) -> tuple[VylogState | None, Fault | None]:
    """Return the state of the metadata log as the server reads it, and the record that it refuses (`file` is left
    empty).
    """
    if not isinstance(facts, VylogFacts):
        return None, None
    ends_early = course.ends is not None and facts.before_damage is not None
    if not force and facts.fault is not None and (course.limit is None or facts.fault.offset < course.limit):
        return facts.state, Fault("", *facts.fault)
    return (facts.before_damage if ends_early else facts.state), None


__all__ = ["Fault", "Opened", "VinylStart", "state_read"]
