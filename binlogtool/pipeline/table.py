"""Table outputs: the rows of all files through Spark into Parquet, then counted again in what was written."""

from __future__ import annotations

import contextlib
import os
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec

from binlogtool.errors import InputOutputError
from binlogtool.formats.base import Hints
from binlogtool.limits import Limits
from binlogtool.log.select import Selection
from binlogtool.pipeline.account import Account
from binlogtool.pipeline.manifest import Check, Input, Manifest, Output
from binlogtool.pipeline.session import OnProgress, Session, open_session

if TYPE_CHECKING:
    from binlogtool.pipeline.source import Request

_GROUPS_PER_CORE = 4


@dataclass(frozen=True, slots=True)
class TableJob:
    """One conversion. session: a running Spark to use instead of starting one at `master`."""

    limits: Limits
    backend: str
    selection: Selection
    master: str
    session: Session | None = None
    on_progress: OnProgress | None = None
    hints: Hints | None = None

    def write(self, inputs: list[Input], stage: Path) -> Manifest:
        """Writes a directory of Parquet files at `stage`.

        Raises:
            MissingExtraError, InputOutputError, LimitError, KeyboardInterrupt.
        """
        with self._session() as session:
            rows_in = session.run(
                lambda: self._spark_write(session, inputs, stage), self.on_progress, self.limits.timeout
            )
        return _proven(inputs, stage, rows_in, self.selection)

    @contextlib.contextmanager
    def _session(self) -> Iterator[Session]:
        if self.session is not None:
            yield self.session
        else:
            with open_session(self.master) as session:
                yield session

    def _request(self, inputs: list[Input]) -> Request:
        from binlogtool.pipeline.source import Member, Request

        members = tuple(Member(os.path.abspath(i.path), i.path, i.format, i.size) for i in inputs)
        groups = _GROUPS_PER_CORE * (os.cpu_count() or 1)
        limits = replace(self.limits, timeout=None)  # kept here: a reader that stops early would look complete
        return Request(members, groups, self.backend, limits, self.selection)

    def _spark_write(self, session: Session, inputs: list[Input], stage: Path) -> int:
        """Runs the job; returns how many rows Spark took from the files."""
        from pyspark.errors import PythonException
        from pyspark.sql import Observation
        from pyspark.sql import functions as sql

        from binlogtool.pipeline.source import SECRET, hints_to_json

        read = session.spark.read.format("binlogtool").option("request", self._request(inputs).to_json())
        if self.hints is not None:
            read = read.option(SECRET, hints_to_json(self.hints))
        taken = Observation("rows")
        frame = read.load().observe(taken, sql.count(sql.lit(1)).alias("in"))
        try:
            frame.write.option("compression", "zstd").parquet(stage.absolute().as_uri())
        except PythonException:
            raise  # a bug in our own reader: bad data is a row, never an exception
        except Exception as error:
            raise InputOutputError(f"Spark could not write the output: {_cause(error)}") from error
        return int(taken.get["in"])


def _cause(error: Exception) -> str:
    """The innermost cause that Java names, else the first line."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()] or [type(error).__name__]
    causes = [line for line in lines if line.startswith("Caused by:")]
    return causes[-1].removeprefix("Caused by: ") if causes else lines[0]


def _proven(inputs: list[Input], stage: Path, rows_in: int, selection: Selection) -> Manifest:
    """The manifest of what is on disk, read back from it.

    Raises:
        InputOutputError: rows are missing or too many.
    """
    written = _Written(stage)
    if written.rows != rows_in:
        raise InputOutputError(f"{rows_in:,} rows were read and {written.rows:,} written: the output is not usable")
    text = f"{rows_in:,} rows read, {written.rows:,} counted in the metadata of the output"
    checks = [Check("rows-in-equal-rows-out", text)]
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
        inputs=tuple(replace(i, records=written.records[file_name(i.path)]) for i in inputs),
        outputs=tuple(written.outputs),
        rows=written.rows,
        damage=account.damage_rows,
        findings=tuple(account.listed),
        finding_counts=dict(account.counts),
        checks=tuple(checks),
    )


class _Written:
    """The Parquet files of one output: row totals from their metadata, records and findings from their columns."""

    def __init__(self, folder: Path) -> None:
        import pyarrow.parquet as parquet

        self.outputs: list[Output] = []
        self.records: Counter[str] = Counter()
        self.account = Account()
        self._last: dict[str, int] = {}
        for path in sorted(folder.glob("part-*")):
            with parquet.ParquetFile(path) as file:
                self.outputs.append(Output(path.name, file.metadata.num_rows, path.stat().st_size))
                for group in range(file.metadata.num_row_groups):
                    self._count(file.read_row_group(group, columns=["file", "record"]))
                for batch in file.iter_batches(columns=["file", "type", "findings"]):
                    self._take_findings(batch)

    @property
    def rows(self) -> int:
        """All rows, as the files' own metadata says."""
        return sum(output.rows for output in self.outputs)

    def _count(self, table: Any) -> None:
        wanted = [("record", "count"), ("record", "max")]
        for row in table.group_by("file").aggregate(wanted).to_pylist():
            self.records[row["file"]] += row["record_count"]
            if row["record_max"] is not None:
                self._last[row["file"]] = max(self._last.get(row["file"], -1), row["record_max"])

    def _take_findings(self, batch: Any) -> None:
        from binlogtool.pipeline.rows import DAMAGE

        for row in batch.filter(batch["findings"].is_valid()).to_pylist():
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
