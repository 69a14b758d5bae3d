"""`convert --append`: add the records that are new since the last run to a growing output.

Rows have one member more than in other conversions: `generation`, the number of earlier files with the same name.
(generation, file, record, offset within the record) is the key of a row.

A run continues where the last commit ends (`export.incremental_positions`), like a streaming query: it reads
whole transactions of files that grow, rotate and are purged. It writes one file, checks it by reading it back, moves it
into place and then writes its commit; a run that is killed earlier has no effect.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import msgspec
from msgspec.structs import asdict, replace

from binlogtool.core.divide_file import FilePart
from binlogtool.core.open_file import HEAD_BYTES, is_url
from binlogtool.core.open_log import LogReader
from binlogtool.core.record_and_selection_types import FileFinding, Selection
from binlogtool.errors import (
    BinlogtoolError,
    FileVanishedError,
    InputOutputError,
    RefusedError,
    UsageError,
    name_os_errors,
)
from binlogtool.export.incremental_positions import (
    AppendCommit,
    CommitStore,
    CommittedInput,
    CommittedOutput,
    GrowingFileFinding,
    IncrementalInput,
    KnownTable,
    PlannedRead,
    ReadBudget,
    ReadPosition,
    ReadPositions,
    build_append_checks,
    file_mark,
    is_damage,
    open_commit_store,
)
from binlogtool.export.manifest import (
    FindingTally,
    Manifest,
    ManifestCheck,
    ManifestInput,
    ManifestOutput,
    ProgressCallback,
    ProgressStep,
    ReadRequest,
    can_select_records_independently,
    check_columns_exist,
    find_broken_links,
)
from binlogtool.export.output_options import (
    COMPRESSIONS,
    EnvelopeOptions,
    TableFileOptions,
    TypedRowOptions,
    typed_selection,
)
from binlogtool.export.write_json_sql_raw import CompiledLines, LineEncoder, StreamJob, summarize_file_content
from binlogtool.findings import ENCRYPTED, HOLE_IDS, Finding, Severity, finding_to_value
from binlogtool.format_api.format import Hints
from binlogtool.format_api.layout import CRC32
from binlogtool.limits import restore_ceiling_of_resident_memory

if TYPE_CHECKING:
    import pyarrow as pa

    from binlogtool.export.table_files import TableFileCounts
    from binlogtool.export.table_spool import TableSpool, TableSpools
    from binlogtool.export.write_spooled_rows_to_table_files import FinishedFile
    from binlogtool.export.write_typed_tables import TypedRows


# --- Hashes of the bytes read of growing files ---

_CHUNK_BYTES = 1 << 20


class ContentHashes(msgspec.Struct, frozen=True):
    """SHA-256 hashes of the first bytes of a file. steady: hash without the bytes that a server rewrites later."""

    all: str
    steady: str


def hash_and_verify_prefix(
    path: str, prefix_size: int, mutable_range: tuple[int, int], previous_input: CommittedInput | None
) -> ContentHashes:
    """Return the SHA-256 hashes of the first `prefix_size` bytes of a file; raise RefusedError if the bytes that the
    last run read have changed.

    Args:
        path: the file.
        prefix_size: number of bytes.
        mutable_range: byte range [first, last) that servers rewrite, see `Format`.
        previous_input: the state of the same file recorded by the last run.

    Raises:
        RefusedError: the bytes that were read before have changed.
        InputOutputError: the file cannot be read.
    """
    whole, steady, position, before = (
        hashlib.sha256(),
        hashlib.sha256(),
        0,
        0 if previous_input is None else previous_input.end,
    )
    compares = previous_input is not None and previous_input.steady != "" and before <= prefix_size
    with name_os_errors(path, "cannot be read"), open(path, "rb") as file:
        while position < prefix_size:
            stop = before if compares and position < before else prefix_size
            data = file.read(min(stop - position, _CHUNK_BYTES))
            if not data:
                break
            whole.update(data)
            steady.update(_exclude_range(data, position, mutable_range))
            position += len(data)
            if (
                compares
                and previous_input is not None
                and position == before
                and steady.hexdigest() != previous_input.steady
            ):
                reason = f"its first {before:,} bytes differ from those that were read before"
                raise RefusedError(f"{path}: {reason}; restore the file, or start a new output")
    return ContentHashes(whole.hexdigest(), steady.hexdigest())


def _exclude_range(data: bytes, offset: int, rewritten: tuple[int, int]) -> bytes:
    """Return `data`, which begins at offset `offset`, without the bytes of the range."""
    first, last = (max(0, place - offset) for place in rewritten)
    return data[:first] + data[last:] if first < len(data) else data


# --- File added by one `--append` run ---

RowKeyTuple = tuple[int, str, int, int]
"""(generation, file, record, offset within the record); offset -1 = the row is the whole record."""


class AppendedFile(NamedTuple):
    """Finished file of a run. target: its path in the output."""

    path: Path
    target: str
    rows: int


class AppendedJsonLinesFile:
    """JSON lines: records as `dump` writes them, or change messages, which have neither generation nor unique key.

    A finding about a file has no line. `RecordRunFiles` and `AppendedTypedTables` have the same methods.

    Attributes:
        finding_tally: findings so far.
        rows: number of rows so far.
    """

    def __init__(self, folder: Path, name: str, job: AppendJob) -> None:
        self.finding_tally, self.rows = FindingTally(), 0
        self._job, self._has_messages = job, job.message_options is not None
        self._path = folder / name
        self._file, self._checksum = self._path.open("xb"), 0

    def write_part(self, log: LogReader, selection: Selection, part: FilePart, generation: int, closed: bool) -> None:
        """Write the records of a part of the log's only file. closed: no bytes will follow the part."""
        job = self._job
        stream = StreamJob(
            "jsonl", replace(job.request, selection=selection), job.lines,
            envelope=job.message_options, compiled_lines=job.compiled_lines,
            is_damage=lambda finding: is_damage(finding, lambda: closed), finding_tally=self.finding_tally,
            generation=None if self._has_messages else generation,
        )  # fmt: skip
        for data in stream.encode_parts(
            stream.count_parts_and_drop_damage(stream.read_parts(log, part), []), self._path.parent
        ):
            self._checksum = CRC32.kernel(data, self._checksum)
            self._file.write(data)
        self.rows += stream.row_count

    def write_finding(self, file: str, format: str, file_finding: Finding, generation: int) -> None:
        """Add a finding to the tally only."""
        self.finding_tally.add(file, finding_to_value(file_finding), damage=False)

    def close(self) -> None:
        """Complete the file."""
        self._file.close()

    def verify_and_summarize_output(self) -> str:
        """Compare the file on the disk with what was written, and return the figures as text.

        Raises:
            InputOutputError: it differs.
        """
        found = summarize_file_content(self._path)
        if (found.checksum, found.lines) != (self._checksum, self.rows):
            raise InputOutputError(f"{self._path}: what was read back differs from what was written")
        unit = "messages" if self._has_messages else "records read"
        return f"{self.rows:,} {unit}, {found.lines:,} lines with sha256 {found.sha256} counted in the output"

    def list_files(self) -> list[AppendedFile]:
        """Return the finished files, except files without rows."""
        return [AppendedFile(self._path, self._path.name, self.rows)] if self.rows else []

    def read_keys(self) -> Iterator[Iterator[RowKeyTuple]]:
        """Yield the keys of all rows of each table, read from the disk. A run begins where the last run ended."""
        if not self._has_messages:
            yield self._read_line_keys()

    def _read_line_keys(self) -> Iterator[RowKeyTuple]:
        decode = msgspec.json.Decoder(_LineKey).decode
        with self._path.open("rb") as file:
            for line in map(decode, file):
                yield line.generation, line.file, line.record, -1 if line.inner is None else line.inner["offset"]


class _LineKey(msgspec.Struct):
    generation: int
    file: str
    record: int
    inner: dict[str, int] | None = None


class TableRunFiles:
    """Files of tables; the base of `RecordRunFiles` and `AppendedTypedTables`.

    Attributes:
        spools: the rows, which `close` makes files of.
    """

    spools: TableSpools[TableSpool]
    key_column = "row"
    """Column with the position of a row within its record."""

    def __init__(self, folder: Path, number: int, job: AppendJob) -> None:
        from concurrent.futures import ThreadPoolExecutor

        self._pool, self._folder, self._number, self._job = ThreadPoolExecutor(1), folder, number, job
        self._max_memory = job.request.limits.max_memory
        self._finished: dict[str, list[FinishedFile]] = {}

    @property
    def rows(self) -> int:
        """Number of rows so far."""
        return self.spools.rows

    @property
    def finding_tally(self) -> FindingTally:
        """Findings so far."""
        return self.spools.finding_tally

    def count_file(self, shape: TableFileOptions, folder: Path, path: Path, schema: pa.Schema) -> TableFileCounts:
        """Read a file back."""
        from binlogtool.export.table_files import read_back_and_count_file

        return read_back_and_count_file(shape, folder, path, schema)

    def close(self) -> None:
        """Complete the files, and read them back."""
        from binlogtool.export.write_spooled_rows_to_table_files import FinishTask, TableFinisher

        finisher = TableFinisher(self._job.shape, str(self._folder), self._max_memory, self.count_file)
        try:
            for number, spool in enumerate(self.spools):
                task = FinishTask(number, spool.finish(), spool.layout.schema)
                self._finished[spool.name] = finisher.execute(task)
        finally:
            self.spools.abandon()
            self._pool.shutdown()

    def get_table_directory(self, name: str) -> str:
        """Return the directory of a table in the output."""
        return "."

    def list_files(self) -> list[AppendedFile]:
        """Return the files; see `AppendedJsonLinesFile`."""
        return [
            AppendedFile(
                Path(one.source),
                str(Path(self.get_table_directory(name), _part_name(self._number, i, self._job.shape))),
                one.output.rows,
            )
            for name, files in self._finished.items()
            for i, one in enumerate(files)
        ]

    def read_keys(self) -> Iterator[Iterator[RowKeyTuple]]:
        """Yield the keys of all rows of each table; see `AppendedJsonLinesFile`."""
        for spool in self.spools:
            paths = [Path(one.source) for one in self._finished[spool.name]]
            yield _read_row_keys(paths, self._job.shape, spool.layout.schema, self.key_column)


class RecordRunFiles(TableRunFiles):
    """Rows of records (`binlogtool.export.records_to_arrow`) in any table format."""

    key_column = "inner_offset"

    def __init__(self, folder: Path, number: int, job: AppendJob) -> None:
        from binlogtool.export.table_spool import GENERATION_FIELD, TableSpools
        from binlogtool.export.write_record_tables import ReadBackCounts, RecordLayout, RecordRows

        super().__init__(folder, number, job)
        self._finding_rows, self._counts = 0, ReadBackCounts()
        self._kind = RecordRows(job.shape, RecordLayout(RecordLayout().schema.append(GENERATION_FIELD)))
        self.spools = TableSpools(folder / "spool", self._kind.make_settings(job.shape, job.request, None))

    def count_file(self, shape: TableFileOptions, folder: Path, path: Path, schema: pa.Schema) -> TableFileCounts:
        """Read a file back, and count its findings."""
        return self._counts.count_file(shape, folder, path, schema)

    def write_part(self, log: LogReader, selection: Selection, part: FilePart, generation: int, closed: bool) -> None:
        """Write the records of a part; see `AppendedJsonLinesFile`."""
        from binlogtool.export import records_to_arrow

        def on_finding(item: FileFinding) -> bool:
            damage = is_damage(item.finding, lambda: closed)
            if not damage:
                self.finding_tally.add(item.file, finding_to_value(item.finding), damage=False)
            return damage

        path = log.files[0].path
        self._add_batches(
            records_to_arrow.DEFAULT_LAYOUT.read_batches(log, path, selection, part, on_finding), generation
        )

    def write_finding(self, file: str, format: str, file_finding: Finding, generation: int) -> None:
        """Write a DAMAGE row for a finding about a file."""
        from binlogtool.export import records_to_arrow

        self._add_batches((records_to_arrow.DEFAULT_LAYOUT.build_damage_batch(file, format, file_finding),), generation)
        self._finding_rows += 1

    def _add_batches(self, batches: Iterable[pa.RecordBatch], generation: int) -> None:
        import pyarrow as pa

        from binlogtool.export.typed_columns import TableBatch

        for batch in batches:
            columns = [*batch.columns, pa.repeat(pa.scalar(generation, pa.int64()), batch.num_rows)]
            rows = pa.RecordBatch.from_arrays(columns, schema=self._kind.layout.schema)
            self.spools.add_batch("", TableBatch((), rows))

    def verify_and_summarize_output(self) -> str:
        """Return the figures; `close` has already compared the files with the written data."""
        self.finding_tally.merge(self._counts.finding_tally)
        self.finding_tally.errors -= self._finding_rows
        files = self._finished.get("", ())
        counted, text_bytes = sum(one.output.rows for one in files), sum(one.text_bytes for one in files)
        return f"{self.rows:,} rows read, {counted:,} counted in the output, {text_bytes:,} bytes of text"


class AppendedTypedTables(TableRunFiles):
    """Typed rows of tables, a directory for each; see `write_typed_tables`. known: tables of earlier runs."""

    def __init__(self, folder: Path, number: int, job: AppendJob, kind: TypedRows, known: Sequence[KnownTable]) -> None:
        from binlogtool.export.table_router import TableRouter
        from binlogtool.export.table_spool import TableSpools
        from binlogtool.export.write_spooled_rows_to_table_files import TableDirectories

        super().__init__(folder, number, job)
        self._kind, self._known = kind, {one.name: one for one in known}
        settings = kind.make_settings(job.shape, job.request, self._pool)
        self.spools = TableSpools(folder / "spool", settings, known, generation=0)
        self._router = TableRouter(kind.options, self.spools, job.request.limits)
        self._directories = TableDirectories()
        for one in known:
            self._directories.get_table_directory(one.name)

    def write_part(self, log: LogReader, selection: Selection, part: FilePart, generation: int, closed: bool) -> None:
        """Write the rows of a part; see `AppendedJsonLinesFile`."""
        from binlogtool.export.typed_columns import read_older_table_definitions

        self.spools.set_generation(generation)
        file, job = log.files[0], self._job
        known_tables = read_older_table_definitions([(file.path, file.format.name)], job.request.read_options())

        def on_finding(item: FileFinding) -> bool:
            return self.spools.count_finding_and_return_damage(item, damage=is_damage(item.finding, lambda: closed))

        for _ in self._router.route_log(log, typed_selection(selection), known_tables, part, on_finding):
            pass
        self._router.flush()

    def write_finding(self, file: str, format: str, file_finding: Finding, generation: int) -> None:
        """Write a DAMAGE row for a finding about a file; it does not stop the run."""
        errors = self.finding_tally.errors
        self.finding_tally.add(file, finding_to_value(file_finding), damage=True)
        self.finding_tally.errors = errors
        self._router.add_damage_row(FileFinding(file, file_finding))
        self._router.flush()

    def check_selected_names_exist(self) -> None:
        """Raise UsageError if a pattern matches no table, or a condition no column."""
        self._router.summary.check_tables_exist(self._kind.options)
        self._router.summary.check_columns_exist(self._kind.options)

    def describe(self) -> dict[str, Any]:
        """Return the details for the manifest, as `write_typed_tables.RowTableJob` makes them."""
        tables = [
            spool.history.describe(
                spool.name, self.get_table_directory(spool.name), spool.rows, spool.layout.column_types()
            )
            for spool in self.spools
        ]
        return {"tables": tables, **self._router.summary.describe()}

    def verify_and_summarize_output(self) -> str:
        """Return the figures; `close` has already compared the files with the written data."""
        counted = sum(one.output.rows for files in self._finished.values() for one in files)
        return f"{self.rows:,} rows decoded, {counted:,} counted in the output, in {len(self._finished):,} tables"

    def get_table_directory(self, name: str) -> str:
        """Return the directory of a table in the output."""
        return self._directories.get_table_directory(name) if self._kind.per_table else "."

    def list_tables_for_next_run(self) -> tuple[KnownTable, ...]:
        """Return the tables for the next run."""
        tables = dict(self._known)
        for spool in self.spools:
            tables[spool.name] = spool.history.to_known(spool.name, self.get_table_directory(spool.name))
        return tuple(tables.values())


def _part_name(number: int, i: int, file_options: TableFileOptions) -> str:
    """Return the name of a file of a run. i: its index in the run, mostly 0."""
    return f"part-{number:08d}{f'-{i}' if i else ''}{_file_suffix(file_options)}"


def _read_row_keys(
    paths: Sequence[Path], file_options: TableFileOptions, schema: pa.Schema, row_column: str
) -> Iterator[RowKeyTuple]:
    """Yield the keys of all rows with a record. row_column: the column with the position within the record."""
    import pyarrow as pa

    from binlogtool.export.table_files import read_tables

    columns = pa.schema([schema.field(name) for name in ("generation", "file", "record", row_column)])
    for path in paths:
        for table in read_tables(file_options.to, path, columns):
            for generation, file, record, row in zip(*(one.to_pylist() for one in table.columns), strict=True):
                if record is not None:
                    yield generation, file, record, -1 if row is None else row


# --- `convert --append` ---

APPEND_TARGETS = ("jsonl", *COMPRESSIONS)
_UNSPLIT_SIZE = 1 << 62
_ROW_NEUTRAL_FIELDS = ("on_damage", "live", "whole", "once")
"""Fields of a selection that do not affect which rows are read."""

AppendedFileWriter = AppendedJsonLinesFile | RecordRunFiles | AppendedTypedTables

LastRowKeys = dict[str, tuple[int, int, int]]
"""File -> (generation, record, index within the record) of its last row."""


class AppendJob(msgspec.Struct, frozen=True):
    """One run of `--append`.

    final: the log is complete; also read the records after the last whole transaction. typed_options,
    message_options: options of typed rows or change messages; None = records are written.
    """

    shape: TableFileOptions
    request: ReadRequest
    lines: LineEncoder | None = None
    compiled_lines: CompiledLines | None = None
    on_step: ProgressCallback | None = None
    final: bool = False
    typed_options: TypedRowOptions | None = None
    message_options: EnvelopeOptions | None = None

    def append_new_records(self, paths: list[str], format: str, output: str | os.PathLike[str]) -> Manifest:
        """Append the new records of the log to `output`.

        Raises:
            UsageError: an option cannot be used with --append, or no file can have records.
            RefusedError: another process writes the output, it was not made by --append or with the same options, or an
                input was replaced meanwhile.
            UnknownFormatError, InputOutputError, LimitError.
        """
        self._check_arguments(paths, os.fspath(output))
        output = Path(output)
        request = replace(self.request, split_size=_UNSPLIT_SIZE)
        source = IncrementalInput(list(map(os.path.abspath, paths)), format, request, final=self.final, strict=True)
        _check_paths_include_log_file(paths, source)
        with open_commit_store(output) as store:
            last_commit = store.read_last()
            _check_same_options(last_commit.options, self._collect_options_affecting_rows(format), output)
            leftovers = store.remove_and_report_uncommitted_files(last_commit)
            manifest = self._append_new_rows(source, store, last_commit, self._collect_options_affecting_rows(format))
        details = {**manifest.details, **({"leftovers": leftovers} if leftovers else {})}
        return replace(manifest, to=self.shape.to, output=str(output), details=details)

    def _check_arguments(self, paths: list[str], output: str) -> None:
        """Raise UsageError or InputOutputError for options and paths that --append does not support."""
        selection = self.request.selection
        if selection.start or selection.stop or selection.whole or selection.tail is not None:
            raise UsageError("--append continues after the last run; it cannot be combined with positions or --tail")
        if not can_select_records_independently(selection):
            raise UsageError("--append cannot be combined with --skip, --limit or a GTID filter")
        if is_url(output) or any(map(is_url, paths)):
            raise UsageError("--append works with local files only, not with URLs")
        if not Path(output).parent.is_dir():
            raise InputOutputError(f"{Path(output).parent}: no such directory")
        if "-" in paths:
            raise UsageError("--append needs regular files: standard input cannot be read again in the next run")
        for path in paths:
            if not os.path.exists(path):
                raise InputOutputError(f"{path}: no such file or directory")

    def _collect_options_affecting_rows(self, format: str) -> dict[str, Any]:
        """Return the options that determine the rows; they must be the same in all runs of an output."""
        hints, defaults = self.request.hints or Hints(), asdict(Selection())
        chosen = {
            n: v for n, v in asdict(self.request.selection).items() if v != defaults[n] and n not in _ROW_NEUTRAL_FIELDS
        }
        schema = None if hints.schema is None else hashlib.sha256(hints.schema.encode()).hexdigest()
        options = {"to": self.shape.to, "compression": self.shape.compression, "format": format, "level": hints.level,
                "schema": schema, **chosen}  # fmt: skip
        if self.message_options is not None:
            options["messages"] = asdict(self.message_options)
        if self.typed_options is not None:
            options |= {"typed": True, "image": self.typed_options.image, "per_table": self.typed_options.per_table}
        json_options: dict[str, Any] = msgspec.json.decode(msgspec.json.encode(options))
        return {name: value for name, value in json_options.items() if value is not None}

    # -- one run -------------------------------------------------------------------------------------------------------

    def _append_new_rows(
        self, source: IncrementalInput, store: CommitStore, last_commit: AppendCommit, options: Mapping[str, Any]
    ) -> Manifest:
        """Write, verify and commit the rows that are new since the last commit; return the manifest of the run."""
        known_inputs = {one.name: one for one in last_commit.inputs}
        before = {one.name: one.end_position for one in last_commit.inputs}
        after = dict(before)
        source.advance_positions_in_place(after, ReadBudget())
        _drop_purged_file_positions(before, after, {name for name, _ in source.list_files()})
        _check_no_input_was_renamed(source, known_inputs, after)
        removed = {name for name in before if name not in after}
        pieces = [one for one in source.list_reads(before, after) if not _is_reported_removal(one, known_inputs)]
        unreadable = [
            {"file": one.file, **finding_to_value(one.finding)} for one in self._find_unreadable_files(source, after)
        ]
        if not pieces and after == {name: one for name, one in before.items() if name not in removed}:
            return self._build_manifest(last_commit, (), (), (), FindingTally(), unreadable)
        holes = self._find_missing_log_files(source, known_inputs, after)
        if holes.stops_conversion(self.request.selection):
            return holes.build_manifest(self.request.selection)
        commit_number = last_commit.number + 1
        with store.open_pending(commit_number) as folder:
            writer = self._create_writer(folder, commit_number, source, last_commit)
            restore_ceiling_of_resident_memory()  # the libraries are loaded by now
            try:
                hashes = self._write_rows_and_hash_inputs(source, pieces, writer, known_inputs)
            except BaseException:
                with contextlib.suppress(Exception):
                    writer.close()
                raise
            writer.close()
            if not (last_commit.number or writer.rows or writer.finding_tally.counts):
                if isinstance(writer, AppendedTypedTables):
                    writer.check_selected_names_exist()
                files = [one.member.path for one in pieces if isinstance(one, PlannedRead)]
                where = self.request.selection.where if self.typed_options is None else None
                check_columns_exist(files, where, self.request.read_options())
            proof = writer.verify_and_summarize_output()
            if writer.finding_tally.stops_conversion(self.request.selection):
                return writer.finding_tally.build_manifest(self.request.selection)
            before_keys = {one.name: (one.generation, *one.last) for one in last_commit.inputs if one.last is not None}
            last_keys, counts = _check_unique_keys(writer.read_keys(), before_keys)
            added = tuple(store.publish_output(*file, commit_number) for file in writer.list_files())
        new_commit = AppendCommit(
            number=commit_number,
            options=options,
            inputs=tuple(_build_inputs(known_inputs, before, after, removed, hashes, last_keys)),
            outputs=(*last_commit.outputs, *added),
            rows=last_commit.rows + writer.rows,
            new=writer.rows,
            findings=(*writer.finding_tally.listed, *holes.listed),
            tables=writer.list_tables_for_next_run() if isinstance(writer, AppendedTypedTables) else (),
        )
        if new_commit.rows != sum(one.rows for one in new_commit.outputs):
            raise InputOutputError(f"{store.output}: {new_commit.rows:,} rows do not match the row counts of its files")
        store.write_commit(last_commit, new_commit)
        checks = build_append_checks(proof, last_commit, new_commit, counts.total())
        read_inputs = [
            ManifestInput(one.name, one.format, one.end, one.sha256, counts[one.name])
            for one in new_commit.inputs
            if one.name in hashes
        ]
        lost = [one for one in pieces if isinstance(one, GrowingFileFinding)]
        manifest = self._build_manifest(
            new_commit, tuple(read_inputs), added, checks, writer.finding_tally, unreadable, len(lost)
        )
        details = writer.describe() if isinstance(writer, AppendedTypedTables) else {}
        return replace(
            manifest,
            findings=(*manifest.findings, *holes.listed),
            finding_counts=dict(Counter(manifest.finding_counts) + holes.counts),
            details={**manifest.details, **details},
        )

    def _find_missing_log_files(
        self, source: IncrementalInput, known_inputs: Mapping[str, CommittedInput], read_positions: ReadPositions
    ) -> FindingTally:
        """Find where files are missing before files that no earlier run has read."""
        tally, names = FindingTally(), [name for name, _ in source.list_files() if name in read_positions]
        if not set(names) <= known_inputs.keys():
            for one in find_broken_links(names, self.request.selection, self.request.read_options()):
                if one.file not in known_inputs and one.finding.id in HOLE_IDS:
                    tally.add(one.file, finding_to_value(one.finding), damage=True)
        return tally

    def _create_writer(
        self, folder: Path, number: int, source: IncrementalInput, last_commit: AppendCommit
    ) -> AppendedFileWriter:
        if self.message_options is not None or self.lines is not None:
            return AppendedJsonLinesFile(folder, f"part-{number:08d}.jsonl", self)
        if self.typed_options is None:
            return RecordRunFiles(folder, number, self)
        from binlogtool.export.write_typed_tables import create_typed_row_kind

        kind = create_typed_row_kind(self.typed_options, source.list_files())
        return AppendedTypedTables(folder, number, self, kind, last_commit.tables)

    def _find_unreadable_files(self, source: IncrementalInput, after: ReadPositions) -> Iterator[GrowingFileFinding]:
        """Yield a finding for each file that cannot be read at all.

        Files that have only just been started are skipped.
        """
        for name, format_ in source.list_files():
            if name in after and after[name].place.offset:
                continue
            with _open_if_present(source, name, format_) as log:
                if log is None:
                    continue
                file = log.files[0]
                if file.size is None:
                    raise UsageError(f"{name}: a compressed file does not grow; convert it without --append")
                for finding in file.layout.findings:
                    if finding.id == ENCRYPTED or (finding.severity is Severity.ERROR and file.size > HEAD_BYTES):
                        yield GrowingFileFinding(name, file.format.name, finding)

    def _write_rows_and_hash_inputs(
        self,
        source: IncrementalInput,
        planned_reads: list[PlannedRead | GrowingFileFinding],
        writer: AppendedFileWriter,
        known_inputs: Mapping[str, CommittedInput],
    ) -> dict[str, ContentHashes]:
        """Write the new rows, and return the hashes of each file's bytes up to the position reached.

        Raises:
            RefusedError: bytes of a file that were read earlier have changed.
        """
        hashes, done_bytes = dict[str, ContentHashes](), 0
        total = sum(one.member.size for one in planned_reads if isinstance(one, PlannedRead))
        for piece in planned_reads:
            if isinstance(piece, GrowingFileFinding):
                writer.write_finding(piece.file, piece.format, piece.finding, 0)
                continue
            if self.on_step is not None:
                self.on_step(ProgressStep("converting", done_bytes, total, writer.rows))
            with source.open_file(piece.member.path, piece.member.format, piece.earlier) as log:
                _check_not_replaced(log, piece)
                writer.write_part(log, self.request.selection, piece.part, piece.reached.born, piece.reached.done)
                previous = known_inputs.get(piece.member.path)
                previous = previous if previous is not None and previous.generation == piece.reached.born else None
                rewritten = log.files[0].format.files.mutable_header
                hashes[piece.member.path] = hash_and_verify_prefix(
                    piece.member.path, piece.reached.place.offset, rewritten, previous
                )
                _check_not_replaced(log, piece)
            done_bytes += piece.member.size
        return hashes

    # -- results --------------------------------------------------------------------------------------------------

    def _build_manifest(
        self, commit: AppendCommit, inputs: tuple[ManifestInput, ...], added_outputs: tuple[CommittedOutput,
        ...], checks: tuple[ManifestCheck, ...],
        finding_tally: FindingTally, unreadable: list[dict[str, Any]], lost_files: int = 0,
    ) -> Manifest:  # fmt: skip
        """Build the manifest of a run.

        Args:
            unreadable: findings about files that cannot be read at all.
            lost_files: number of files that lost records.
        """
        return finding_tally.build_manifest(
            self.request.selection,
            complete=True,
            inputs=inputs,
            outputs=tuple(ManifestOutput(one.path, one.rows, one.size, one.sha256) for one in added_outputs),
            rows=sum(one.rows for one in added_outputs),
            damage=finding_tally.damage_rows,
            findings=(*finding_tally.listed, *unreadable),
            finding_counts=dict(finding_tally.counts + Counter(one["id"] for one in unreadable)),
            checks=checks,
            details={"append": {"commit": commit.number, "rows": commit.rows, "lost": lost_files + len(unreadable)}},
        )


def _check_paths_include_log_file(paths: list[str], source: IncrementalInput) -> None:
    """Raise UsageError if every named file is an index or state file beside a log, which never has new records."""
    if any(map(os.path.isdir, paths)):
        return
    name = kind = ""
    for name, format_ in source.list_files():
        try:
            with source.open_file(name, format_) as log:
                layout = log.files[0].layout
        except BinlogtoolError:
            return
        if layout.has_records:
            return
        kind = layout.variant
    if kind:
        raise UsageError(f"{name} ({kind}) holds no records; name the files of the log, or their directory")


def _file_suffix(file_options: TableFileOptions) -> str:
    """Return the suffix of the output's files, with the dot."""
    if file_options.to not in COMPRESSIONS:
        return f".{file_options.to}"
    from binlogtool.export.table_files import file_suffix

    return file_suffix(file_options)


def _check_same_options(previous: Mapping[str, Any], current: Mapping[str, Any], output: Path) -> None:
    """Raise RefusedError if the options differ from those of earlier runs."""
    if not previous:
        return
    for name in sorted({*previous, *current}):
        if previous.get(name) != current.get(name):
            was, text = (msgspec.json.encode(one.get(name)).decode() for one in (previous, current))
            if previous.get("typed") != current.get("typed"):
                kinds = ("typed rows, with --object or --per-table", "records, without")
                kind = kinds[0] if previous.get("typed") else kinds[1]
                raise RefusedError(f"{output}: was written with other options: it has {kind}")
            if name == "schema":
                raise RefusedError(f"{output}: was written with another --schema file, or without one")
            option = f"--{name.replace('_', '-')}"
            raise RefusedError(f"{output}: was written with other options: {option} was {was}, now {text}")


def _is_reported_removal(piece: PlannedRead | GrowingFileFinding, known_inputs: Mapping[str, CommittedInput]) -> bool:
    """Return True if an earlier run already reported that this file was removed."""
    return isinstance(piece, GrowingFileFinding) and piece.file in known_inputs and known_inputs[piece.file].gone


@contextlib.contextmanager
def _open_if_present(source: IncrementalInput, name: str, format: str) -> Iterator[LogReader | None]:
    """Open a listed file; yield None if the server has removed or renamed it since."""
    try:
        log = source.open_file(name, format)
    except FileVanishedError:
        yield None
        return
    with log:
        yield log


def _drop_purged_file_positions(
    old_positions: ReadPositions, new_positions: ReadPositions, present_files: set[str]
) -> None:
    """Remove purged files from `new_positions`: not on disk, while their directory still has other files.

    A directory without any files may just be unavailable. The last files of a log that was reset also count as removed.
    Files that were not named in this run are left unchanged.
    """
    folders = set(map(os.path.dirname, present_files))
    for name, reached in old_positions.items():
        if os.path.lexists(name):
            new_positions.setdefault(name, reached)
        elif os.path.dirname(name) in folders:
            new_positions.pop(name, None)


def _check_no_input_was_renamed(
    source: IncrementalInput, known_inputs: Mapping[str, CommittedInput], new_positions: ReadPositions
) -> None:
    """Raise RefusedError if a new file was already read under another path: its records would be appended twice."""
    inputs_by_name = dict[str, list[CommittedInput]]()
    for committed in known_inputs.values():
        if committed.last is not None:
            inputs_by_name.setdefault(os.path.basename(committed.name), []).append(committed)
    for name, reached in new_positions.items():
        others = inputs_by_name.get(os.path.basename(name), []) if name not in known_inputs else []
        if not others:
            continue
        with source.open_file(name, reached.format) as log:
            for committed in others:
                if committed.end <= (log.files[0].size or 0) and file_mark(log, committed.end) == committed.mark:
                    message = (
                        f"{name}: is the same file that was read as {committed.name}; its records "
                        f"would be appended twice"
                    )
                    raise RefusedError(
                        f"{message}; restore its old path (a symbolic link is enough), or start a new output"
                    )


def _check_not_replaced(log: LogReader, piece: PlannedRead) -> None:
    """Raise RefusedError if the file was replaced or truncated since it was planned."""
    reached = piece.reached
    if reached.mark and file_mark(log, reached.place.offset) != reached.mark:
        raise RefusedError(f"{piece.member.path} was replaced while it was read; run the command again")


def _check_unique_keys(
    tables: Iterable[Iterator[RowKeyTuple]], before: LastRowKeys
) -> tuple[LastRowKeys, Counter[str]]:
    """Check that row keys are unique; return the last row key and the number of new rows of each file.

    In each table, keys must increase within each file, beginning after those of earlier runs, so no row is repeated.

    Raises:
        InputOutputError: a key is not greater than the previous key.
    """
    counts, last_keys = Counter[str](), dict(before)
    for keys in tables:
        table_keys = dict(before)
        for generation, file, record, row_index in keys:
            key = (generation, record, row_index)
            if file in table_keys and key <= table_keys[file]:
                raise InputOutputError(f"{file}: record {record:,} would be appended twice; the output was not changed")
            table_keys[file] = key
            counts[file] += 1
        for file, key in table_keys.items():
            last_keys[file] = max(key, last_keys.get(file, key))
    return last_keys, counts


def _build_inputs(
    known_inputs: Mapping[str, CommittedInput],
    before: ReadPositions,
    after: ReadPositions,
    removed: set[str],
    hashes: Mapping[str, ContentHashes],
    last_keys: LastRowKeys,
) -> Iterator[CommittedInput]:
    """Yield the state of each input after this run; removed files stay listed, as their names may be used again."""
    for name in {**before, **after}:
        previous = known_inputs.get(name)
        if name in removed and previous is not None:
            yield replace(previous, gone=True, begin=previous.end)
        elif previous is not None and before[name] == after[name]:
            yield replace(previous, gone=False, begin=previous.end)
        else:
            yield _build_input(name, after[name], previous, hashes.get(name), last_keys.get(name))


def _build_input(
    name: str,
    reached: ReadPosition,
    previous: CommittedInput | None,
    hashes: ContentHashes | None,
    last_key: tuple[int, int, int] | None,
) -> CommittedInput:
    """Return the state of one input after the run: the position reached, its hashes and its last row key."""
    is_same_file = previous is not None and previous.generation == reached.born
    place = {key: value for key, value in reached.to_dict().items() if key in ("offset", "record", "frame", "carried")}
    return CommittedInput(
        name=name,
        format=reached.format,
        generation=reached.born,
        mark=reached.mark,
        begin=previous.end if previous is not None and is_same_file else 0,
        end=reached.place.offset,
        sha256=hashes.all if hashes else previous.sha256 if previous is not None and is_same_file else "",
        steady=hashes.steady if hashes else previous.steady if previous is not None and is_same_file else "",
        done=reached.done,
        gone=False,
        place=place,
        last=None if last_key is None or last_key[0] != reached.born else last_key[1:],
    )
