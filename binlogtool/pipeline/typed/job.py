"""Write typed tables of a log in one pass: each row goes to its table in the log's order; then the files are
counted.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import Any

import msgspec
from msgspec.structs import replace

import binlogtool
from binlogtool import memory
from binlogtool.findings import Finding
from binlogtool.formats.detecting import Hints
from binlogtool.formats.tables import Table
from binlogtool.limits import Limits
from binlogtool.log import detect
from binlogtool.log.body_json import finding_json
from binlogtool.log.open import Log
from binlogtool.log.records import Crowd, Trouble
from binlogtool.log.select import Selection, hints_for
from binlogtool.pipeline.account import Account, OnStep, Step
from binlogtool.pipeline.atomic_output import TABLES
from binlogtool.pipeline.closing import is_closed, is_damage
from binlogtool.pipeline.inputs import full_path
from binlogtool.pipeline.manifest import Check, Input, Manifest, Output
from binlogtool.pipeline.object_columns import older_tables, tables_of
from binlogtool.pipeline.tasks import Member
from binlogtool.pipeline.typed.batches import Piece
from binlogtool.pipeline.typed.directories import Directories
from binlogtool.pipeline.typed.gather import Gatherer
from binlogtool.pipeline.typed.target import Target, demand_texts
from binlogtool.pipeline.typed.wishes import Wishes, reach
from binlogtool.pipeline.writers.table_form import Shape

_MEMORY_PART = 4
"""Pending rows of all tables use at most this fraction of the memory limit."""
SCHEMA = "binlogtool/tables/1"


class TypedJob(msgspec.Struct, frozen=True):
    """One conversion into typed tables (`wishes`: their options)."""

    limits: Limits
    backend: str
    selection: Selection
    hints: Hints | None
    shape: Shape
    wishes: Wishes
    on_step: OnStep | None = None

    def write(self, inputs: list[Input], stage: Path) -> Manifest:
        """Write a directory at `stage`.

        Raises:
            UsageError: a format has no tables, or no table matches the selection.
            InputOutputError, LimitError.
        """
        memory.keep_resident()
        stage.mkdir()
        with ThreadPoolExecutor(1) as pool:
            return self._written(_Work(self, inputs, stage, pool), inputs)

    def _written(self, work: _Work, inputs: list[Input]) -> Manifest:
        with self._open(inputs) as log:
            work.read(log)
        if work.account.errors and self.selection.on_damage == "stop":
            return work.manifest(complete=False)
        work.gatherer.demand_tables()
        if not work.account.counts:
            work.gatherer.demand_columns()
        work.finish()
        return work.manifest(complete=True)

    def _open(self, inputs: list[Input]) -> Log:
        hints = hints_for(self.selection, self.hints, script=True)
        log = Log(
            [(i.path, i.path, detect.by_name(i.format)) for i in inputs], self.limits, self.backend, hints or Hints()
        )
        log.check()
        return log


class _Work:
    """State of a job; receives its rows (`gather.TableRowSink`)."""

    def __init__(self, job: TypedJob, inputs: list[Input], stage: Path, pool: ThreadPoolExecutor) -> None:
        self.job, self.inputs, self.stage, self.pool = job, inputs, stage, pool
        self.account = Account()
        self._targets: dict[str, Target] = {}
        self._directories = Directories()
        rules = [tables_of(i.path, i.format) for i in inputs]
        self._operations = any(one is not None and one.operations for one in rules)
        self.gatherer = Gatherer(job.wishes, self, job.limits)
        self._members = [Member(full_path(i.path), i.path, i.format, i.size) for i in inputs]
        self._before = dict(zip((i.path for i in inputs), _sums(inputs), strict=True))

    # -- reading -------------------------------------------------------------------------------------------------------

    def read(self, log: Log) -> None:
        """Read all rows."""
        job = self.job
        known = older_tables([(i.path, i.format) for i in self.inputs], job.limits, job.backend, job.hints)
        gatherer = self.gatherer
        for one in gatherer.read(log, reach(job.selection), known):
            if isinstance(one, Trouble):
                gatherer.lost(one)
                self._trouble(one)
            elif isinstance(one, Crowd):
                gatherer.crowd(one)
                self._step(one.file, one.end)
            else:
                gatherer.block(one)
                if len(one):
                    self._step(one.file, int(one.offset[-1]) + int(one.size[-1]))
            if gatherer.full:
                break
        self.gatherer.flush()

    def _step(self, file: str, end: int) -> None:
        if self.job.on_step is not None:
            total = sum(one.size for one in self.inputs)
            self.job.on_step(Step("converting", self._before[file] + end, total, self.gatherer.taken.total()))

    def _trouble(self, one: Trouble) -> None:
        member = next(m for m in self._members if m.name == one.file)
        damaged = is_damage(one.finding, partial(is_closed, member, self._members, self._opened))
        self.account.add(one.file, finding_json(one.finding), damage=damaged)
        if damaged:
            self.gatherer.damage(one)

    def _opened(self, member: Member) -> Log:
        job = self.job
        return binlogtool.open(
            member.path, format=member.format, limits=job.limits, backend=job.backend, hints=job.hints
        )

    def describe(self, name: str, table: Table, place: str) -> None:
        """Set the definition of a table; see `TableRowSink`."""
        self._target(name).describe(table, place)

    def take(self, name: str, piece: Piece) -> None:
        """Add rows of a table; see `TableRowSink`. Many tables together use no more memory than one."""
        self._target(name).take(piece)
        if sum(one.held_bytes for one in self.targets) > self.job.limits.max_memory // _MEMORY_PART:
            for one in self.targets:
                one.put_aside()
                one.rest()

    def found(self, file: str, finding: Finding) -> None:
        """Record a finding; see `TableRowSink`."""
        self.account.add(file, finding_json(finding), damage=False)

    # -- writing -------------------------------------------------------------------------------------------------------

    def _target(self, name: str) -> Target:
        if name not in self._targets:
            job = self.job
            folder = self.stage / self._directories.of(name) if job.wishes.per_table else self.stage
            self._targets[name] = Target(
                name, folder, job.shape, job.wishes, self.pool, job.limits.max_memory, operations=self._operations
            )
        return self._targets[name]

    @property
    def targets(self) -> list[Target]:
        """All tables, in the order in which they appeared."""
        return list(self._targets.values())

    def finish(self) -> None:
        """Write the output files.

        Raises:
            InputOutputError: they do not hold what was read.
        """
        for number, target in enumerate(self.targets):
            if self.job.on_step is not None:
                self.job.on_step(Step("writing", number, len(self.targets)))
            target.finish()
        demand_texts(self.targets)
        if self.job.wishes.per_table:
            text = json.dumps({"schema": SCHEMA, "tables": list(self._described())}, indent=2)
            (self.stage / TABLES).write_text(text + "\n")
        (self.stage / "_SUCCESS").touch()

    def _described(self) -> Iterator[dict[str, Any]]:
        for target in self.targets:
            home = self._directories.of(target.name) if self.job.wishes.per_table else "."
            yield target.described(home)

    def manifest(self, *, complete: bool) -> Manifest:
        """Build the manifest. complete: the output is published."""
        outputs = [
            replace(one, path=str(target.folder.relative_to(self.stage) / one.path))
            for target in self.targets
            for one in target.outputs
        ]
        made = sum(target.rows for target in self.targets)
        details: dict[str, Any] = {"tables": list(self._described())} if complete else {}
        if self.gatherer.remarks:
            details["remarks"] = self.gatherer.remarks
        if self.gatherer.untold:
            details["untold"] = self.gatherer.untold
        return Manifest(
            to="",
            output="",
            complete=complete,
            on_damage=self.job.selection.on_damage,
            inputs=tuple(replace(i, records=self.gatherer.taken[i.path]) for i in self.inputs),
            outputs=tuple(outputs),
            rows=made,
            damage=self.account.damage_rows,
            findings=tuple(self.account.listed),
            finding_counts=dict(self.account.counts),
            checks=tuple(checks(made, outputs)) if complete else (),
            details=details,
        )


def checks(made: int, outputs: Sequence[Output]) -> Iterator[Check]:
    """Yield the checks of an output. made: number of rows."""
    found = sum(one.rows for one in outputs)
    yield Check("rows-in-equal-rows-out", f"{made:,} rows made, {found:,} counted in the output")
    yield Check("texts-in-equal-texts-out", "the bytes of all texts that were made, counted in the output")


def _sums(inputs: list[Input]) -> Iterator[int]:
    before = 0
    for one in inputs:
        yield before
        before += one.size
