"""Write spooled rows to the final table files with the merged columns, and verify the files by reading them back."""

from __future__ import annotations

import hashlib
import os
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any
from urllib.parse import quote

import msgspec
import pyarrow as pa
import pyarrow.compute as compute
from msgspec.structs import replace

from binlogtool.errors import InputOutputError, name_os_errors
from binlogtool.export import table_files
from binlogtool.export.manifest import ManifestOutput
from binlogtool.export.output_options import TableFileOptions
from binlogtool.export.records_to_arrow import DAMAGE
from binlogtool.export.table_files import TableFileCounts, TableFileSink, WrittenFile
from binlogtool.export.table_spool import SpooledTable
from binlogtool.export.task_planning import new_task_folder, require_task_file

# --- Rows in the final columns ---


def conform_table(table: pa.Table, schema: pa.Schema) -> pa.Table:
    """Return rows of an older schema in the final one."""
    columns = [
        _cast_column_with_missing_members(table[field.name], field.type)
        if field.name in table.schema.names
        else pa.nulls(len(table), field.type)
        for field in schema
    ]
    return pa.table(columns, schema=schema)


def _cast_column_with_missing_members(column: Any, arrow_type: pa.DataType) -> Any:
    if column.type == arrow_type:
        return column
    if not pa.types.is_struct(arrow_type):
        return compute.cast(column, arrow_type)
    structs = column.combine_chunks()
    structs = structs.chunk(0) if isinstance(structs, pa.ChunkedArray) else structs
    members = {field.name: inside for field, inside in zip(structs.type, structs.flatten(), strict=True)}
    inside = [
        _cast_column_with_missing_members(members[f.name], f.type)
        if f.name in members
        else pa.nulls(len(structs), f.type)
        for f in arrow_type
    ]
    return pa.StructArray.from_arrays(
        inside, fields=list(arrow_type), mask=structs.is_null() if structs.null_count else None
    )


# --- Directory names of tables ---

_SAFE = " !#$&'()+,-.;=@[]^_`{}~"
_MAX_NAME_BYTES = 200
"""Maximum bytes of a name; file systems allow 255, and readers append suffixes."""


class TableDirectories:
    """Assigns each table a directory, in the order in which tables appear."""

    def __init__(self) -> None:
        self._names = {DAMAGE: DAMAGE}
        self._used_names = {DAMAGE.casefold()}

    def get_table_directory(self, name: str) -> str:
        """Return the directory of a table; it is always the same for the same name.

        On file systems that ignore case another table may already have the plain name; then letters are escaped.
        """
        if name not in self._names:
            directory = _quote_name(name)
            if directory.casefold() in self._used_names:
                directory = _escape_and_shorten_directory_name("".join(_escape_letter(c) for c in name), name)
            self._names[name] = directory
            self._used_names.add(directory.casefold())
        return self._names[name]


def _quote_name(name: str) -> str:
    return _escape_and_shorten_directory_name(quote(name, safe=_SAFE, errors="surrogatepass"), name)


def _escape_and_shorten_directory_name(directory: str, table_name: str) -> str:
    """Escape a leading `.` or `_` (readers skip such names), and replace the end of a too long name by a hash."""
    if directory[:1] in ("", ".", "_"):
        directory = f"%{ord(directory[0]):02X}{directory[1:]}" if directory else "%"
    if len(directory) <= _MAX_NAME_BYTES:
        return directory
    head = re.sub(r"%.?\Z", "", directory[: _MAX_NAME_BYTES - 17])
    return f"{head}~{hashlib.sha256(table_name.encode('utf-8', 'surrogatepass')).hexdigest()[:16]}"


def _escape_letter(letter: str) -> str:
    plain = letter.isascii() and letter.isalpha()
    return f"%{ord(letter):02X}" if plain else quote(letter, safe=_SAFE, errors="surrogatepass")


# --- Files of the output ---


CountFile = Callable[[TableFileOptions, Path, Path, pa.Schema], TableFileCounts]


class FinishTask(msgspec.Struct, frozen=True):
    """Writes the rows of one table that one task spooled. number: its place among the tasks. schema: of the output."""

    number: int
    table: SpooledTable
    schema: pa.Schema

    @property
    def size(self) -> int:
        """Number of rows."""
        return self.table.rows


class FinishedFile(msgspec.Struct, frozen=True):
    """A file of the output, which is still at `source`. output: its path relative to the directory of its table."""

    source: str
    output: ManifestOutput
    text_bytes: int = 0


class TableFinisher(msgspec.Struct, frozen=True):
    """Carries out finish tasks; one that runs again has the same result.

    stage: absolute path of the output. count_file: reads a file back, as `table_files.read_back_and_count_file`.
    """

    file_options: TableFileOptions
    stage: str
    max_memory: int
    count_file: CountFile = table_files.read_back_and_count_file

    def execute(self, task: FinishTask) -> list[FinishedFile]:
        """Write the files of a task, and read them back.

        Raises:
            InputOutputError: they cannot be written, or do not hold what was spooled.
        """
        with name_os_errors(self.stage, "cannot be written", by_file=True):
            return self.finish_files(task, new_task_folder(self.stage, task.number))

    def finish_files(self, task: FinishTask, folder: Path) -> list[FinishedFile]:
        """Write the files of a task in a directory, and read them back; see `execute`."""
        import pyarrow.parquet as parquet

        files, sinks = list[WrittenFile](), list[TableFileSink]()
        for spooled in task.table.files:
            require_task_file(spooled.path)
            if task.table.options == self.file_options and task.schema.equals(spooled.schema):
                files += [*_close_sinks(sinks), spooled]
                continue
            if not sinks:
                sinks.append(TableFileSink(folder / str(len(files)), self.file_options, task.schema, self.max_memory))
            try:
                with parquet.ParquetFile(spooled.path) as file:
                    for batch in table_files.read_row_groups(file):
                        sinks[0].add(conform_table(pa.Table.from_batches([batch]), task.schema))
            except BaseException:
                sinks[0].abandon()
                raise
        files += _close_sinks(sinks)
        return self._verify(task, files)

    def _verify(self, task: FinishTask, files: Sequence[WrittenFile]) -> list[FinishedFile]:
        """Read the files back, and compare them with what was written."""
        finished = list[FinishedFile]()
        for file in files:
            counts = self.count_file(self.file_options, file.folder, file.path, task.schema)
            finished.append(FinishedFile(str(file.path), counts.output, counts.text_bytes))
        written_rows = sum(one.output.rows for one in finished)
        if written_rows != task.table.rows:
            text = f"{task.table.rows:,} rows were read and {written_rows:,} were written"
            raise InputOutputError(f"{text}; the output is not usable")
        text_bytes, read_bytes = (sum(one.text_bytes for one in group) for group in (files, finished))
        if text_bytes != read_bytes:
            text = f"rows with {text_bytes:,} bytes of text were read and {read_bytes:,} written"
            raise InputOutputError(f"{text}: the output is not usable")
        return finished


def _close_sinks(sinks: list[TableFileSink]) -> Iterator[WrittenFile]:
    """Complete the files of the sinks, and yield them; `sinks` is empty afterwards."""
    while sinks:
        sink = sinks.pop()
        sink.close()
        yield from sink.files


def publish_files(files: Iterable[FinishedFile], folder: Path) -> Sequence[ManifestOutput]:
    """Move the files of one table into its directory, numbered in their order; return them relative to it."""
    outputs = list[ManifestOutput]()
    for number, file in enumerate(files):
        relative = Path(file.output.path)
        target = relative.with_name(f"part-{number:05}.{relative.name.partition('.')[2]}")
        (folder / target).parent.mkdir(parents=True, exist_ok=True)
        require_task_file(file.source)
        os.rename(file.source, folder / target)
        outputs.append(replace(file.output, path=str(target)))
    return outputs
