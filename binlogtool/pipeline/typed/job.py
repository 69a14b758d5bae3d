"""Typed tables of a log, in one pass: each row goes to its table, in the log's order; then all are counted again."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import Any

import msgspec
from msgspec.structs import replace

import binlogtool
from binlogtool.errors import InputOutputError, UsageError
from binlogtool.findings import Finding
from binlogtool.formats.base import Hints
from binlogtool.formats.tables import CellRows, Cells, Row, Table, Told
from binlogtool.limits import Limits
from binlogtool.log.bodies import finding_json, findings_text
from binlogtool.log.open import Log
from binlogtool.log.records import Block, Trouble
from binlogtool.log.select import Selection, hints_for
from binlogtool.pipeline import rows
from binlogtool.pipeline.account import Account, OnStep, Step
from binlogtool.pipeline.closing import is_closed, is_damage
from binlogtool.pipeline.described import Field, older, tables_of
from binlogtool.pipeline.images import cells_of
from binlogtool.pipeline.inputs import full_path
from binlogtool.pipeline.manifest import Check, Input, Manifest, Output
from binlogtool.pipeline.output import TABLES
from binlogtool.pipeline.splits import Member
from binlogtool.pipeline.typed.filled import Run, piece_of_cells
from binlogtool.pipeline.typed.pieces import piece_of
from binlogtool.pipeline.typed.target import Target, directory_of
from binlogtool.pipeline.typed.wishes import Wishes, reach
from binlogtool.pipeline.writers.tables import Shape

_BATCH = 8192
_HELD = 8 << 20
_NAMED = 8
_OPS = {1: "DELETE", 2: "INSERT", 3: "UPDATE"}
_MEMORY = 128 << 20
_SCHEMA = "binlogtool/tables/1"


class TypedJob(msgspec.Struct, frozen=True):
    """One conversion into tables (`wishes`)."""

    limits: Limits
    backend: str
    selection: Selection
    hints: Hints | None
    shape: Shape
    wishes: Wishes
    on_step: OnStep | None = None

    def write(self, inputs: list[Input], stage: Path) -> Manifest:
        """Writes a directory at `stage`.

        Raises:
            UsageError: a format has no tables, or none is as asked for. InputOutputError, LimitError.
        """
        stage.mkdir()
        with ThreadPoolExecutor(1) as pool:
            return self._written(_Work(self, inputs, stage, pool), inputs)

    def _written(self, work: _Work, inputs: list[Input]) -> Manifest:
        with self._open(inputs) as log:
            work.read(log)
        if work.account.errors and self.selection.on_damage == "stop":
            return work.manifest(complete=False)
        work.demand_tables()
        work.finish()
        return work.manifest(complete=True)

    def _open(self, inputs: list[Input]) -> Log:
        hints = hints_for(self.selection, self.hints, script=True)
        log = Log([(i.path, i.path, _format(i)) for i in inputs], self.limits, self.backend, hints or Hints())
        log.check()
        return log

    def known(self, inputs: list[Input]) -> list[Table]:
        """What older files say of the tables."""
        found = dict[tuple[str, ...], Table]()
        for path, format_ in reversed(list(older([(i.path, i.format) for i in inputs]))):
            rules = tables_of(path, format_)
            wanted = Selection(types=rules.types, objects=rules.objects) if rules is not None else Selection()
            with binlogtool.open(path, format=format_, limits=self.limits, backend=self.backend) as log:
                for block in log.tables(wanted, known=tuple(found.values())):
                    for told in block.bodies if isinstance(block, Block) else ():
                        found.update({table.ids: table for table in told.described})
        return list(found.values())


def _format(one: Input) -> Any:
    from binlogtool.log import detect

    return detect.by_name(one.format)


class _Pending:
    """Rows of one table that wait to become a piece: one by one, or as cells."""

    def __init__(self, target: Target, limits: Limits) -> None:
        self.target, self._limits = target, limits
        self.filled: CellRows | None = None
        self._start = self._stop = 0
        self._runs: list[Run] = []
        self.fields: tuple[Field, ...] = ()
        self.table: Table | None = None
        self.rows: list[dict[str, Any]] = []
        self.size = 0

    def flush(self) -> None:
        """They become a piece."""
        if self.rows:
            self.target.take(piece_of(self.fields, self.rows))
            self.rows, self.size = [], 0
        if self.filled is not None:
            self.target.take(
                piece_of_cells(self.filled, self._start, self._stop, self._runs, self.fields, self._limits)
            )
            self.filled, self._runs = None, []

    def add_cells(self, cells: Cells, meta: dict[str, Any]) -> bool:
        """More rows. True: those before became a piece."""
        follows = cells.filled is self.filled and cells.start == self._stop and not self.rows
        if not follows:
            self.flush()
            self.filled, self._start = cells.filled, cells.start
        self._stop = cells.start + cells.size
        self._runs.append((cells.size, meta))
        return not follows


class _Work:
    """The state of a job."""

    def __init__(self, job: TypedJob, inputs: list[Input], stage: Path, pool: ThreadPoolExecutor) -> None:
        self.job, self.inputs, self.stage, self.pool = job, inputs, stage, pool
        self.account, self.taken = Account(), Counter[str]()
        self.remarks: list[str] = []
        self._tables: dict[str, _Pending] = {}
        self._last: dict[str, Any] | None = None
        self._seen: dict[str, Table] = {}
        rules = {i.path: tables_of(i.path, i.format) for i in inputs}
        self._operations = any(one is not None and one.operations for one in rules.values())
        self._untold = {path for path, one in rules.items() if one is not None and not one.transactions}
        self._members = [Member(full_path(i.path), i.path, i.format, i.size) for i in inputs]
        self._before = dict(zip((i.path for i in inputs), _sums(inputs), strict=True))

    # -- reading -------------------------------------------------------------------------------------------------------

    def read(self, log: Log) -> None:
        """Takes all rows."""
        known = self.job.known(self.inputs)
        for one in log.tables(reach(self.job.selection), known=known, cells=True):
            if isinstance(one, Trouble):
                self._trouble(one)
            else:
                self._block(one)
        for pending in self._tables.values():
            pending.flush()

    def _block(self, block: Block) -> None:
        for i, told in enumerate(block.bodies):
            if told is not None and told.described:
                self._seen.update({one.name: one for one in told.described})
            if block.findings.get(i) or (told is not None and _says_something(told)):
                self._record(block, i, told)
        if len(block) and self.job.on_step is not None:
            done = self._before[block.file] + int(block.offset[-1]) + int(block.size[-1])
            total = sum(one.size for one in self.inputs)
            self.job.on_step(Step("converting", done, total, self.taken.total()))

    def _record(self, block: Block, i: int, told: Told | None) -> None:
        told = Told() if told is None else told
        found = (*block.findings.get(i, ()), *told.findings)
        meta = _meta(block, i, told, found) | {"commit": None if block.file in self._untold else False}
        if told.remark:
            self.remarks.append(f"{_place(block, i)}: {told.remark}")
        for one in found:
            self.account.add(block.file, finding_json(one), damage=False)
        if found and not told.rows and not told.cells:
            self._nowhere(meta, block.envelope.object[i])
        taken = 0 if told.cells is None else self._cells(told.cells, meta, block, i)
        for n, row in enumerate(told.rows):
            if self.job.wishes.wants(row.table):
                self._row(row, meta | {"row": n}, block, i)
                taken += 1
        self.taken[block.file] += taken
        if told.ends:
            if self._last is not None:
                self._last["commit"] = True
            self._last = None

    def _cells(self, cells: Cells, meta: dict[str, Any], block: Block, i: int) -> int:
        """The rows of a record, made by compiled code: how many are wanted."""
        filled = cells.filled
        if not self.job.wishes.wants(filled.table):
            return 0
        pending = self._pending(filled.table.name)
        self._describe(pending, filled.table, block, i)
        self._last = made = meta | {"op": _OPS[filled.sides]}
        if pending.add_cells(cells, made):
            self._spare()
        return cells.size

    def _describe(self, pending: _Pending, table: Table, block: Block, i: int) -> None:
        """The table of the rows that come."""
        if pending.table is table:
            return
        if pending.table is None or pending.table.columns != table.columns:
            pending.flush()
            pending.fields = tuple(Field(c.name, c.type) for c in table.columns)
        pending.target.describe(table, _place(block, i))
        pending.table = table

    def _row(self, row: Row, meta: dict[str, Any], block: Block, i: int) -> None:
        pending = self._pending(row.table.name)
        self._describe(pending, row.table, block, i)
        if pending.filled is not None or len(pending.rows) >= _BATCH or pending.size >= _HELD:
            pending.flush()
            self._spare()
        made = meta | cells_of(row, pending.fields) | {"op": row.op}
        pending.rows.append(made)
        pending.size += int(block.size[i]) // 8
        self._last = made

    def _pending(self, name: str) -> _Pending:
        if name not in self._tables:
            wishes = self.job.wishes
            folder = self.stage / directory_of(name) if wishes.per_table else self.stage
            target = Target(name, folder, self.job.shape, wishes, self.pool, operations=self._operations)
            self._tables[name] = _Pending(target, self.job.limits)
        return self._tables[name]

    def _spare(self) -> None:
        """Many tables together must not take more memory than one."""
        if sum(one.target.held_bytes for one in self._tables.values()) > _MEMORY:
            for one in self._tables.values():
                one.target.put_aside()
                one.target.rest()

    def _nowhere(self, meta: dict[str, Any], name: str | None) -> None:
        """A record whose rows cannot be told: the last row of its transaction may be one of them."""
        self._last = None
        home = self._tables.get(name) if name is not None else None
        self._told_of(home or self._damaged(), meta)

    def _damaged(self) -> _Pending:
        """Where rows stand that belong to no table: in the table, if there is one only."""
        if not self.job.wishes.per_table:
            (name,) = self.job.wishes.objects
            return self._pending(next(iter(self._tables), name))
        return self._pending(rows.DAMAGE)

    def _told_of(self, pending: _Pending, meta: dict[str, Any]) -> None:
        if pending.filled is not None:
            pending.flush()
        pending.rows.append(meta | {"before": None, "after": None})

    def _trouble(self, one: Trouble) -> None:
        member = next(m for m in self._members if m.name == one.file)
        damaged = is_damage(one.finding, partial(is_closed, member, self._members, self._opened))
        self.account.add(one.file, finding_json(one.finding), damage=damaged)
        if damaged:
            meta = {"op": rows.DAMAGE, "file": rows.file_name(one.file), "offset": one.finding.offset}
            self._told_of(self._damaged(), meta | {"findings": findings_text([one.finding])})

    def _opened(self, member: Member) -> Log:
        job = self.job
        return binlogtool.open(
            member.path, format=member.format, limits=job.limits, backend=job.backend, hints=job.hints
        )

    def demand_tables(self) -> None:
        """Raises where a pattern fits no table of the log.

        Raises:
            UsageError: so it is.
        """
        seen = {**self._seen, **{p.table.name: p.table for p in self._tables.values() if p.table is not None}}
        for pattern in self.job.wishes.objects:
            alone = replace(self.job.wishes, objects=(pattern,), others=())
            if not any(alone.wants(one) for one in seen.values()):
                names = sorted(seen)
                known = (
                    f"it has {', '.join(names[:_NAMED])}{', …' if names[_NAMED:] else ''}" if names else "it has none"
                )
                raise UsageError(f"--object {pattern}: the log tells of no such table; {known}")

    # -- writing -------------------------------------------------------------------------------------------------------

    @property
    def targets(self) -> list[Target]:
        """All tables, in the order in which they were met."""
        return [one.target for one in self._tables.values()]

    def finish(self) -> None:
        """Makes the files.

        Raises:
            InputOutputError: they do not hold what was read.
        """
        for number, target in enumerate(self.targets):
            if self.job.on_step is not None:
                self.job.on_step(Step("writing", number, len(self.targets)))
            target.finish()
        if any(target.text_bytes for target in self.targets):
            raise InputOutputError("the texts of the output are not those that were read: it is not usable")
        if self.job.wishes.per_table:
            text = json.dumps({"schema": _SCHEMA, "tables": list(self._described())}, indent=2)
            (self.stage / TABLES).write_text(text + "\n")
        (self.stage / "_SUCCESS").touch()

    def _described(self) -> Iterator[dict[str, Any]]:
        for target in self.targets:
            home = directory_of(target.name) if self.job.wishes.per_table else "."
            yield {
                "name": target.name,
                "directory": home,
                "rows": target.rows,
                "columns": target.form.types(),
                "key": list(target.grown.key),
                "changes": target.told,
            }

    def manifest(self, *, complete: bool) -> Manifest:
        """The account. complete: was something written?"""
        outputs = [
            replace(one, path=str(target.folder.relative_to(self.stage) / one.path))
            for target in self.targets
            for one in target.outputs
        ]
        made = sum(target.rows for target in self.targets)
        details: dict[str, Any] = {"tables": list(self._described())} if complete else {}
        if self.remarks:
            details["remarks"] = self.remarks
        return Manifest(
            to="",
            output="",
            complete=complete,
            on_damage=self.job.selection.on_damage,
            inputs=tuple(replace(i, records=self.taken[i.path]) for i in self.inputs),
            outputs=tuple(outputs),
            rows=made,
            damage=self.account.damage_rows,
            findings=tuple(self.account.listed),
            finding_counts=dict(self.account.counts),
            checks=tuple(_checks(made, outputs)) if complete else (),
            details=details,
        )


def _checks(made: int, outputs: list[Output]) -> Iterator[Check]:
    found = sum(one.rows for one in outputs)
    yield Check("rows-in-equal-rows-out", f"{made:,} rows made, {found:,} counted in the output")
    yield Check("texts-in-equal-texts-out", "the bytes of all texts that were made, counted in the output")


def _meta(block: Block, i: int, told: Told, found: tuple[Finding, ...]) -> dict[str, Any]:
    e, seq = block.envelope, block.envelope.seq[i]
    return {
        "op": e.type[i],
        "seq": seq if seq is None or seq < 1 << 63 else None,
        "txn": None if e.txn[i] is None else str(e.txn[i]),
        "time": e.time[i] if told.time is None else told.time,
        "server": e.origin[i],
        "file": rows.file_name(block.file),
        "record": int(block.record[i]),
        "offset": int(block.offset[i]),
        "findings": findings_text(found),
    }


def _says_something(told: Told) -> bool:
    return bool(told.rows or told.cells or told.ends or told.findings or told.remark)


def _place(block: Block, i: int) -> str:
    return f"{rows.file_name(block.file)} at {int(block.offset[i]):,}"


def _sums(inputs: list[Input]) -> Iterator[int]:
    before = 0
    for one in inputs:
        yield before
        before += one.size
