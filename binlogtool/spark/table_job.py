"""Write table outputs through Spark and count them again.

Each is one pass over the bytes, independent of the other; the driver alone would need hours for large inputs.
"""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec
from msgspec.structs import asdict, replace

from binlogtool.core import open_file as open_file_module
from binlogtool.core.open_log import LogReader
from binlogtool.core.record_selection import Selection
from binlogtool.errors import InputOutputError, UsageError
from binlogtool.export import manifest as manifest_module
from binlogtool.export import output_options
from binlogtool.export.manifest import (
    Manifest,
    ManifestCheck,
    ManifestInput,
    Parts,
    ProgressCallback,
    ProgressStep,
    ReadRequest,
    TaskFile,
    WeightedProgress,
    absolute_path,
    can_split,
    find_parts,
    hash_file,
)
from binlogtool.export.output_options import (
    _FORMULA_START,
    NO_TEXT,
    NULL_PARTITION,
    TIME_FORMAT,
    TableFileOptions,
    _text_columns,
    stored_text_columns,
)
from binlogtool.export.spark_master import SparkMaster, describe_paths, describe_work
from binlogtool.format_api.format import Hints
from binlogtool.limits import MIB, Limits
from binlogtool.spark.fleet import SparkJobRunner, run_each
from binlogtool.spark.session import OnProgress, SparkJobSession, open_session, root_cause, use_session

if TYPE_CHECKING:
    from binlogtool.export.parquet_files import OutputCounts
    from binlogtool.spark.write_tables import RowTotals, SmallJobRows

_WRITER_OPTIONS: Mapping[str, Mapping[str, str]] = {
    "csv": {
        "header": "true",
        "escape": '"',
        "ignoreLeadingWhiteSpace": "false",
        "ignoreTrailingWhiteSpace": "false",
        "timestampFormat": TIME_FORMAT,
    },
    "json": {"timestampFormat": TIME_FORMAT, "ignoreNullFields": "false"},
}
"""CSV as in RFC 4180: an empty text is "", null has no quotation marks."""


# --- Scan of the inputs on the executors ---


class FileHash(msgspec.Struct, frozen=True):
    """SHA-256 of a file as hexadecimal text. trouble: why there is none."""

    sha256: str
    trouble: str = ""


class HashTask(msgspec.Struct, frozen=True):
    """Task that hashes a file. lenient: do not raise for a file that cannot be read."""

    member: TaskFile
    lenient: bool = False

    @property
    def size(self) -> int:
        """Number of bytes to read."""
        return self.member.size

    def execute(self) -> FileHash:
        """Return the hash.

        Raises:
            InputOutputError: the file cannot be read.
        """
        if self.member.trouble:
            return FileHash("", self.member.trouble)
        try:
            return FileHash(hash_file(self.member.path))
        except InputOutputError as error:
            if not self.lenient:
                raise
            return FileHash("", str(error))


class SplitOptions(msgspec.Struct, frozen=True):
    """Options for splitting files.

    split_size: files above this many bytes are split; None = none. request: the members' request.
    """

    split_size: int | None
    request: ReadRequest
    hints: Hints | None

    def create_task(self, member: TaskFile) -> SplitTask:
        """Return the task that splits one member."""
        request = self.request
        size = self.split_size or member.size
        return SplitTask(member, size, request.backend, request.limits, request.member_hints(member, self.hints))


class SplitTask(msgspec.Struct, frozen=True):
    """Task that finds the parts of a file."""

    member: TaskFile
    split_size: int
    backend: str
    limits: Limits
    hints: Hints | None

    @property
    def size(self) -> int:
        """Number of bytes to scan."""
        return self.member.size

    def execute(self) -> Parts:
        """Return the parts."""
        return find_parts(self.member, self.split_size, self.backend, self.limits, self.hints)


class InputScan(msgspec.Struct, frozen=True):
    """Per file, in the order of the request: its hash, and its parts (None = it is not split)."""

    hashes: tuple[FileHash, ...]
    cuts: tuple[Parts | None, ...]


def scan_inputs(
    runner: SparkJobRunner, members: Sequence[TaskFile], split_options: SplitOptions, *, lenient: bool = False
) -> InputScan:
    """Hash all files, and find the parts of large ones. lenient: see `HashTask`.

    Raises:
        InputOutputError: a file cannot be read.
    """
    split_indexes = [
        i
        for i, one in enumerate(members)
        if split_options.split_size is not None and one.size > split_options.split_size
    ]
    tasks: list[HashTask | SplitTask] = [HashTask(one, lenient) for one in members]
    tasks += [split_options.create_task(members[i]) for i in split_indexes]
    job = partial(run_each, work=_execute_task, home=os.getcwd())
    results = runner.compute_results("reading headers", tasks, job)
    parts_by_index = dict(zip(split_indexes, results[len(members) :], strict=True))
    return InputScan(tuple(results[: len(members)]), tuple(parts_by_index.get(i) for i in range(len(members))))


def _execute_task(task: HashTask | SplitTask) -> Any:
    return task.execute()


# --- Table outputs ---

_DEFAULT_OPTIONS = TableFileOptions("parquet")
_STAGE_WEIGHTS = {"reading headers": 0.1, "converting": 0.8, "reading back": 0.1}
"""Stages of a job, and the share of its time that each takes."""
_PARTS_PER_FILE = 4
MAX_SPLIT_SIZE = 1024 * MIB
"""Maximum part of a log in a big job."""
MIN_SPLIT_SIZE = 16 * MIB
"""Shorter logs are not split: parts must be small compared with an output file, so that the files have similar sizes.
"""


class TableJob(msgspec.Struct, frozen=True):
    """One conversion of records to a table format. session: a running Spark to use; None = start one at `master`."""

    limits: Limits
    backend: str
    selection: Selection
    master: str | SparkMaster
    session: SparkJobSession | None = None
    on_step: ProgressCallback | None = None
    hints: Hints | None = None
    shape: TableFileOptions = _DEFAULT_OPTIONS

    def write(self, inputs: list[ManifestInput], stage: Path) -> Manifest:
        """Write a directory of files at `stage`.

        Raises:
            UsageError: --skip, --limit or --tail with several files.
            MissingExtraError, InputOutputError, LimitError, KeyboardInterrupt.
        """
        return replace(self, on_step=self._weight_progress(inputs))._write_and_check(inputs, stage)

    def _weight_progress(self, inputs: list[ManifestInput]) -> ProgressCallback | None:
        return (
            None
            if self.on_step is None
            else WeightedProgress(self.on_step, _STAGE_WEIGHTS, sum(i.size for i in inputs))
        )

    def _write_and_check(self, inputs: list[ManifestInput], stage: Path) -> Manifest:
        from binlogtool.spark.write_tables import RowTotals, RowTotalsParam, count_output

        _check_no_counting(inputs, self.selection)
        deadline = None if self.limits.timeout is None else time.monotonic() + self.limits.timeout
        small_rows, inputs = self._build_small_job(inputs, deadline)
        self._report_step("starting Spark", 0, sum(i.size for i in inputs))
        with self._open_session(small_rows, self._describe_work(inputs)) as session:
            runner = SparkJobRunner(
                session=session,
                on_step=self.on_step,
                timeout=_remaining_seconds(deadline),
                in_process=small_rows is not None,
                work=self._describe_work(inputs),
            )
            totals = session.spark.sparkContext.accumulator(RowTotals(), RowTotalsParam())
            if small_rows is None:
                frame, inputs = self._read_on_executors(session, runner, inputs, stage, totals)
            else:
                totals.add(small_rows.row_totals(self.shape))
                frame = session.spark.createDataFrame(small_rows.rows).coalesce(1)
            work = partial(self._write_with_spark, session, frame, stage)
            name = f"{runner.work}: converting"
            session.run(
                work, self._progress_callback(inputs), _remaining_seconds(deadline), name=name, record=runner.record
            )
            runner = replace(runner, timeout=_remaining_seconds(deadline))
            counts = count_output(runner, stage, self.shape, events=self._has_event_rows(inputs))
        manifest_module.collect_notes(stage / manifest_module.FOLDER, counts.finding_tally)
        if small_rows is not None:
            counts.finding_tally.merge(small_rows.note_tally)
        manifest = _build_manifest(inputs, counts, totals.value, self.selection, self.shape)
        if session.executors is None:
            return manifest
        return replace(manifest, details={"spark": {**runner.record.to_dict(), "observed": asdict(totals.value)}})

    def _build_small_job(
        self, inputs: list[ManifestInput], deadline: float | None
    ) -> tuple[SmallJobRows | None, list[ManifestInput]]:
        """Return the rows of a small job, and the inputs with their hashes; no rows (None) if the job is not small."""
        from binlogtool.spark.write_tables import build_small_job_rows, is_small_job

        if (
            self.session is not None
            or not SparkMaster.coerce(self.master).is_local
            or not is_small_job([i.size for i in inputs])
        ):
            return None, inputs
        request, hashed_inputs = self._plan_request(SparkJobRunner(on_step=self.on_step, in_process=True), inputs, 1)
        rows = build_small_job_rows(request, self.hints, deadline)
        return rows, inputs if rows is None else hashed_inputs

    @contextlib.contextmanager
    def _open_session(self, small_rows: SmallJobRows | None, work: str) -> Iterator[SparkJobSession]:
        master = SparkMaster.coerce(self.master).named_for(work)
        with use_session(self.session, master) if small_rows is None else open_session(master, small=True) as session:
            yield session

    def _read_on_executors(
        self, session: SparkJobSession, runner: SparkJobRunner, inputs: list[ManifestInput], stage: Path, totals: Any
    ) -> tuple[Any, list[ManifestInput]]:
        """Return the rows of a job on executors, and the inputs with their hashes. totals: see `ArrowRowMapper`."""
        from binlogtool.spark.data_source import BinlogReader
        from binlogtool.spark.write_tables import ArrowRowMapper

        request, inputs = self._plan_request(runner, inputs, session.count_cores())
        reader = BinlogReader(replace(request, notes=str(stage.absolute() / manifest_module.FOLDER)), self.hints)
        return ArrowRowMapper(reader, self.shape, totals).to_dataframe(session.spark), inputs

    def _describe_work(self, inputs: list[ManifestInput]) -> str:
        return describe_work(f"convert --to {self.shape.to}", [describe_paths([i.path for i in inputs])])

    def _has_event_rows(self, inputs: list[ManifestInput]) -> bool:
        """Return True if records are events that share the number of the record that contains them."""
        level = None if self.hints is None else self.hints.level
        return level is not None and level in {
            open_file_module.find_format(i.format).reading.event_level for i in inputs if i.format
        }

    def _report_step(self, stage: str, done: int, total: int) -> None:
        if self.on_step is not None:
            self.on_step(ProgressStep(stage, done, total))

    def _progress_callback(self, inputs: list[ManifestInput]) -> OnProgress | None:
        """Return a callback that reports Spark tasks as bytes, for groups of similar size; None without `on_step`."""
        if self.on_step is None:
            return None
        total = sum(i.size for i in inputs)
        return lambda p: self._report_step(p.waiting or "converting", total * p.done // max(p.total, 1), total)

    def _plan_request(
        self, runner: SparkJobRunner, inputs: list[ManifestInput], cores: int
    ) -> tuple[ReadRequest, list[ManifestInput]]:
        """Return the request, in tasks that write one file each, and the inputs with their hashes."""
        from binlogtool.export.manifest import ReadRequest
        from binlogtool.spark.read_members import add_histories

        members = self._build_members(inputs)
        size = sum(i.size for i in inputs)
        file_count = self.shape.estimate_file_count(size, cores)
        part_size = min(max(MIN_SPLIT_SIZE, size // (_PARTS_PER_FILE * file_count)), MAX_SPLIT_SIZE)
        limits = replace(self.limits, timeout=None)  # enforced here: a reader that stops early would look complete
        split_size = part_size if can_split(self.selection) else None
        request = add_histories(
            ReadRequest(members, 1, self.backend, limits, self.selection, files=file_count), self.hints
        )
        split_options = SplitOptions(split_size, request, self.hints)
        scan = scan_inputs(runner, request.members, split_options, lenient=self.selection.on_damage != "stop")
        inputs = [replace(i, sha256=h.sha256, trouble=h.trouble) for i, h in zip(inputs, scan.hashes, strict=True)]
        members = tuple(replace(m, trouble=i.trouble) for m, i in zip(request.members, inputs, strict=True))
        return replace(request, members=members, cuts=scan.cuts), inputs

    def _build_members(self, inputs: list[ManifestInput]) -> tuple[TaskFile, ...]:
        """Return the inputs with the part of the selection that applies to each.

        Files after the stop position get none.
        """
        readable = [i for i in inputs if not i.trouble]
        log = LogReader(
            [(i.path, i.path, open_file_module.find_format(i.format)) for i in readable], self.limits, self.backend
        )
        selections = [
            *log.split_selection(self.selection),
            *[replace(self.selection, start=None, stop="0")] * len(readable),
        ]
        log.close()
        selection_by_path = {
            i.path: None if one == self.selection else one for i, one in zip(readable, selections, strict=False)
        }
        return tuple(
            TaskFile(absolute_path(i.path), i.path, i.format, i.size, selection_by_path.get(i.path), i.trouble)
            for i in inputs
        )

    def _write_with_spark(self, session: SparkJobSession, frame: Any, stage: Path) -> None:
        """Run the Spark job that writes the rows."""
        from pyspark.errors import PythonException

        try:
            write_frame(prepare_frame(frame, self.shape), self.shape, stage.absolute().as_uri(), session.spark)
        except PythonException as error:
            if _WRITER_ERROR not in str(error):
                raise RuntimeError(str(error)) from None  # a bug in our reader; its text is lost with the session
            raise InputOutputError(str(error).split(_WRITER_ERROR)[1].splitlines()[0]) from error
        except Exception as error:
            raise InputOutputError(f"Spark could not write the output: {root_cause(error)}") from error


def _check_no_counting(inputs: list[ManifestInput], selection: Selection) -> None:
    """Raise UsageError for selections that count records of several files, which are read in parallel."""
    counted = (selection.skip or None, selection.limit, selection.tail) != (None, None, None)
    if len(inputs) > 1 and counted:
        raise UsageError("--skip, --limit and --tail need ordered records; convert one file, or use --to jsonl")


_WRITER_ERROR = "binlogtool.errors.InputOutputError: "
"""Prefix of an error of our own writer in a worker's traceback."""


def _remaining_seconds(deadline: float | None) -> float | None:
    """Return the seconds until the deadline; None = no deadline."""
    return None if deadline is None else max(deadline - time.monotonic(), 0.1)


def _build_manifest(
    inputs: list[ManifestInput],
    counts: OutputCounts,
    totals: RowTotals,
    selection: Selection,
    file_options: TableFileOptions,
) -> Manifest:
    """Build the manifest from what was read back, after comparing it with what was read.

    Raises:
        InputOutputError: rows or texts are missing, or too many.
    """
    rows_in, text_in = totals.rows, totals.text_bytes
    if counts.rows != rows_in:
        raise InputOutputError(f"{rows_in:,} rows were read and {counts.rows:,} were written; the output is not usable")
    if counts.text_bytes != text_in:
        text = f"rows with {text_in:,} bytes of text were read and {counts.text_bytes:,} written"
        raise InputOutputError(f"{text}: the output is not usable")
    checks = [
        ManifestCheck("rows-in-equal-rows-out", f"{rows_in:,} rows read, {counts.rows:,} counted in the output"),
        ManifestCheck(
            "texts-in-equal-texts-out", f"{text_in:,} bytes read, {counts.text_bytes:,} counted in the output"
        ),
    ]
    if selection == Selection(on_damage=selection.on_damage, live=selection.live):
        checks += counts.check_contiguous(partitioned=bool(file_options.partition_by))
    finding_tally = counts.finding_tally
    from binlogtool.export.record_rows import printable_path

    return Manifest(
        to="",
        output="",
        complete=not (finding_tally.errors and selection.on_damage == "stop"),
        on_damage=selection.on_damage,
        inputs=tuple(
            replace(i, records=counts.records[output_options.to_stored_text(file_options, printable_path(i.path))])
            for i in inputs
        ),
        outputs=tuple(counts.outputs),
        rows=counts.rows,
        damage=finding_tally.damage_rows,
        findings=tuple(finding_tally.listed),
        finding_counts=dict(finding_tally.counts),
        checks=tuple(checks),
    )


def prepare_frame(frame: Any, file_options: TableFileOptions) -> Any:
    """Return the DataFrame with partition columns and safe CSV texts."""
    from pyspark.sql import functions as sql

    if file_options.csv_safe:
        frame = frame.withColumns({name: _neutralize_formulas(name) for name in stored_text_columns(file_options)})
    frame = frame.withColumns(
        {name: _partition_column(name) for name in file_options.partition_by if name in _text_columns()}
    )
    if "date" in file_options.partition_by:
        frame = frame.withColumn("date", sql.date_format("time", "yyyy-MM-dd"))
    if "hour" in file_options.partition_by:
        frame = frame.withColumn("hour", sql.hour("time"))
    return frame


def _partition_column(name: str) -> Any:
    from pyspark.sql import functions as sql

    column = sql.col(name)
    quoted = sql.when(column.isin(NO_TEXT, NULL_PARTITION), sql.concat(sql.lit("%5F"), sql.substring(column, 2, 1000)))
    return sql.when(column.isNull() | (column == ""), NO_TEXT).otherwise(quoted.otherwise(column))


def _neutralize_formulas(name: str) -> Any:
    from pyspark.sql import functions as sql

    column = sql.col(name)
    return sql.when(column.rlike(_FORMULA_START), sql.concat(sql.lit("'"), column)).otherwise(column)


def write_frame(frame: Any, file_options: TableFileOptions, target_uri: str, spark: Any) -> None:
    """Write a DataFrame with Spark. target_uri: URI of a directory that does not exist yet."""
    if file_options.to == "avro":
        from binlogtool.spark.write_tables import AvroDataSource

        spark.dataSource.register(AvroDataSource)
        spark.createDataFrame([], "nothing int")  # makes it this thread's session, where the data source is looked up
        if file_options.partition_by:
            frame = frame.sortWithinPartitions(*file_options.partition_by)
        options = {"partitions": ",".join(file_options.partition_by), "codec": file_options.codec, "place": target_uri}
        frame.write.format(AvroDataSource.name()).options(**options).mode("append").save()
        return
    options = {"compression": file_options.codec, **_WRITER_OPTIONS.get(file_options.to, {})}
    frame.write.format(file_options.to).options(**options).partitionBy(*file_options.partition_by).save(target_uri)
