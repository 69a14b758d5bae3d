"""Table outputs: the rows of all files through Spark into a table format, then counted again in what was written."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec

from binlogtool.errors import InputOutputError
from binlogtool.formats.base import Hints
from binlogtool.limits import Limits
from binlogtool.log.select import Selection
from binlogtool.pipeline.account import Account, OnStep, Step
from binlogtool.pipeline.inputs import full_path
from binlogtool.pipeline.manifest import Check, Input, Manifest, Output
from binlogtool.pipeline.session import OnProgress, Session, cause_of, running
from binlogtool.pipeline.writers import tables
from binlogtool.pipeline.writers.tables import Shape

if TYPE_CHECKING:
    from binlogtool.pipeline.source import Request

_GROUPS_PER_CORE = 4
_PARQUET = Shape("parquet")
_NEEDED = ("file", "record", "type", "findings")


@dataclass(frozen=True, slots=True)
class TableJob:
    """One conversion. session: a running Spark to use instead of starting one at `master`."""

    limits: Limits
    backend: str
    selection: Selection
    master: str
    session: Session | None = None
    on_step: OnStep | None = None
    hints: Hints | None = None
    shape: Shape = _PARQUET

    def write(self, inputs: list[Input], stage: Path) -> Manifest:
        """Writes a directory of files at `stage`.

        Raises:
            MissingExtraError, InputOutputError, LimitError, KeyboardInterrupt.
        """
        self._tell("starting Spark", 0, sum(i.size for i in inputs))
        with running(self.session, self.master) as session:
            taken = session.run(
                lambda: self._spark_write(session, inputs, stage), self._progress(inputs), self.limits.timeout
            )
        written = _Written(stage, self.shape, self._tell)
        return _proven(inputs, written, taken, self.selection)

    def _tell(self, stage: str, done: int, total: int) -> None:
        if self.on_step is not None:
            self.on_step(Step(stage, done, total))

    def _progress(self, inputs: list[Input]) -> OnProgress:
        """Tasks as bytes: their groups of files are about the same size."""
        total = sum(i.size for i in inputs)
        return lambda p: self._tell("converting", total * p.done // max(p.total, 1), total)

    def _request(self, inputs: list[Input]) -> Request:
        from binlogtool.pipeline.source import Member, Request

        members = tuple(Member(full_path(i.path), i.path, i.format, i.size) for i in inputs)
        groups = _GROUPS_PER_CORE * (os.cpu_count() or 1)
        limits = replace(self.limits, timeout=None)  # kept here: a reader that stops early would look complete
        return Request(members, groups, self.backend, limits, self.selection)

    def _spark_write(self, session: Session, inputs: list[Input], stage: Path) -> Mapping[str, int]:
        """Runs the job; returns what Spark measured of the rows that it took from the files."""
        from pyspark.errors import PythonException
        from pyspark.sql import Observation

        from binlogtool.pipeline.source import SECRET, hints_to_json

        read = session.spark.read.format("binlogtool").option("request", self._request(inputs).to_json())
        if self.hints is not None:
            read = read.option(SECRET, hints_to_json(self.hints))
        taken = Observation("rows")
        frame = tables.shaped(read.load(), self.shape).observe(taken, *tables.measures(self.shape))
        try:
            tables.write(frame, self.shape, stage.absolute().as_uri(), session.spark)
        except PythonException as error:
            if _OWN_ERROR not in str(error):
                raise  # a bug in our own reader: bad data is a row, never an exception
            raise InputOutputError(str(error).split(_OWN_ERROR)[1].splitlines()[0]) from error
        except Exception as error:
            raise InputOutputError(f"Spark could not write the output: {cause_of(error)}") from error
        return {name: int(value) for name, value in taken.get.items()}


_OWN_ERROR = "binlogtool.errors.InputOutputError: "
"""How an error of our own writer shows in the traceback of a worker."""


def _proven(inputs: list[Input], written: _Written, taken: Mapping[str, int], selection: Selection) -> Manifest:
    """The manifest of what is on disk, read back from it.

    Raises:
        InputOutputError: rows or texts are missing, or too many.
    """
    rows_in, text_in = taken["rows"], taken["text_bytes"]
    if written.rows != rows_in:
        raise InputOutputError(f"{rows_in:,} rows were read and {written.rows:,} written: the output is not usable")
    if written.text_bytes != text_in:
        text = f"rows with {text_in:,} bytes of text were read and {written.text_bytes:,} written"
        raise InputOutputError(f"{text}: the output is not usable")
    checks = [
        Check("rows-in-equal-rows-out", f"{rows_in:,} rows read, {written.rows:,} counted in the output"),
        Check("texts-in-equal-texts-out", f"{text_in:,} bytes read, {written.text_bytes:,} counted in the output"),
    ]
    if selection == Selection(on_damage=selection.on_damage, live=selection.live):
        written.demand_no_holes()
        checks.append(Check("record-numbers-without-holes", f"{written.records.total():,} records"))
    account = written.account
    from binlogtool.pipeline.rows import file_name

    return Manifest(
        to="",
        output="",
        complete=not (account.errors and selection.on_damage == "stop"),
        on_damage=selection.on_damage,
        inputs=tuple(replace(i, records=written.records[written.name_of(file_name(i.path))]) for i in inputs),
        outputs=tuple(written.outputs),
        rows=written.rows,
        damage=account.damage_rows,
        findings=tuple(account.listed),
        finding_counts=dict(account.counts),
        checks=tuple(checks),
    )


class _Written:
    """The files of one output: rows, records, findings and bytes of text, as other readers find them."""

    def __init__(self, folder: Path, shape: Shape, tell: Callable[[str, int, int], None]) -> None:
        from binlogtool.pipeline.writers import readback

        self.outputs: list[Output] = []
        self.records: Counter[str] = Counter()
        self.account = Account()
        self.text_bytes = 0
        self._shape = shape
        self._last: dict[str, int] = {}
        self._texts = tables.texts(shape)
        wanted = [name for name in shape.stored if name in (*self._texts, *_NEEDED)]
        paths = sorted(folder.rglob("part-*"))
        sizes = [path.stat().st_size for path in paths]
        for i, path in enumerate(paths):
            tell("reading back", sum(sizes[:i]), sum(sizes))
            name, rows = path.relative_to(folder), 0
            fixed = readback.partition_values(name)
            for table in readback.tables(shape.to, path, wanted):
                rows += table.num_rows
                self._take(table, fixed)
            self.outputs.append(Output(str(name), rows, sizes[i]))

    @property
    def rows(self) -> int:
        """All rows."""
        return sum(output.rows for output in self.outputs)

    def name_of(self, file: str) -> str:
        """What a file is called in the output."""
        return f"'{file}" if self._shape.csv_safe and file[:1] in tuple("=+-@\t\r") and file else file

    def _take(self, table: Any, fixed: Mapping[str, str | None]) -> None:
        import pyarrow as pa
        import pyarrow.compute as compute

        for name in self._texts:
            self.text_bytes += compute.sum(compute.binary_length(table[name])).as_py() or 0
        for name in _NEEDED:
            if name in fixed:
                table = table.append_column(name, pa.array([fixed[name]] * table.num_rows, pa.string()))
        self._count(table)
        self._take_findings(table)

    def _count(self, table: Any) -> None:
        wanted = [("record", "count"), ("record", "max")]
        for row in table.group_by("file").aggregate(wanted).to_pylist():
            self.records[row["file"]] += row["record_count"]
            if row["record_max"] is not None:
                self._last[row["file"]] = max(self._last.get(row["file"], -1), row["record_max"])

    def _take_findings(self, table: Any) -> None:
        from binlogtool.pipeline.rows import DAMAGE

        for row in table.filter(table["findings"].is_valid()).to_pylist():
            for found in msgspec.json.decode(row["findings"]):
                self.account.add(row["file"], found, damage=row["type"] == DAMAGE)

    def demand_no_holes(self) -> None:
        """Every record number from 0 to the last one is there once.

        Raises:
            InputOutputError: it is not so.
        """
        for file, last in self._last.items():
            if self.records[file] != last + 1:
                raise InputOutputError(
                    f"{file}: {self.records[file]:,} records in the output, the last one is number {last:,}"
                )
