"""Write spooled rows to the final table files with the merged columns, and verify the files by reading them back."""

from __future__ import annotations

import hashlib
import os
import re
from collections.abc import Iterable, Sequence
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
from binlogtool.export.table_files import TableFileSink
from binlogtool.export.table_spool import SpooledTable
from binlogtool.export.task_planning import new_task_folder, require_task_file

# --- Rows in the final columns ---


def conform_table(table: pa.Table, schema: pa.Schema) -> pa.Table:
    """Return rows of an older schema in the final one."""
    columns = [
        _widen_column(table[field.name], field.type)
        if field.name in table.schema.names
        else pa.nulls(len(table), field.type)
        for field in schema
    ]
    return pa.table(columns, schema=schema)


def _widen_column(column: Any, kind: pa.DataType) -> Any:
    if column.type == kind:
        return column
    if not pa.types.is_struct(kind):
        return compute.cast(column, kind)
    structs = column.combine_chunks()
    structs = structs.chunk(0) if isinstance(structs, pa.ChunkedArray) else structs
    members = {field.name: inside for field, inside in zip(structs.type, structs.flatten(), strict=True)}
    inside = [
        _widen_column(members[f.name], f.type) if f.name in members else pa.nulls(len(structs), f.type) for f in kind
    ]
    return pa.StructArray.from_arrays(inside, fields=list(kind), mask=structs.is_null() if structs.null_count else None)


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
                directory = _fit_name("".join(_escape_letter(c) for c in name), name)
            self._names[name] = directory
            self._used_names.add(directory.casefold())
        return self._names[name]


def _quote_name(name: str) -> str:
    return _fit_name(quote(name, safe=_SAFE, errors="surrogatepass"), name)


def _fit_name(directory: str, name: str) -> str:
    """Escape a leading `.` or `_` (readers skip such names), and replace the end of a too long name by a hash."""
    if directory[:1] in ("", ".", "_"):
        directory = f"%{ord(directory[0]):02X}{directory[1:]}" if directory else "%"
    if len(directory) <= _MAX_NAME_BYTES:
        return directory
    head = re.sub(r"%.?\Z", "", directory[: _MAX_NAME_BYTES - 17])
    return f"{head}~{hashlib.sha256(name.encode('utf-8', 'surrogatepass')).hexdigest()[:16]}"


def _escape_letter(letter: str) -> str:
    plain = letter.isascii() and letter.isalpha()
    return f"%{ord(letter):02X}" if plain else quote(letter, safe=_SAFE, errors="surrogatepass")


# --- Files of the output ---


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


class TableFinisher(msgspec.Struct, frozen=True):
    """Carries out finish tasks; one that runs again has the same result. stage: absolute path of the output."""

    file_options: TableFileOptions
    stage: str
    max_memory: int

    def execute(self, task: FinishTask) -> list[FinishedFile]:
        """Write the files of a task, and read them back.

        Raises:
            InputOutputError: they cannot be written, or do not hold what was spooled.
        """
        with name_os_errors(self.stage, "cannot be written", by_file=True):
            return self._write(task, new_task_folder(self.stage, task.number))

    def _write(self, task: FinishTask, folder: Path) -> list[FinishedFile]:
        import pyarrow.parquet as parquet

        files, text_bytes, sink = list[tuple[Path, Path]](), 0, None
        for path in map(Path, task.table.paths):
            require_task_file(path)
            with parquet.ParquetFile(path) as file:
                if self._is_final(file.schema_arrow, task.schema):
                    text_bytes += self._close_sink(sink, files) + self._count_texts(file, task.schema)
                    files.append((path.parent, path))
                    sink = None
                    continue
                if sink is None:
                    sink = TableFileSink(folder / str(len(files)), self.file_options, task.schema, self.max_memory)
                try:
                    for batch in table_files.read_row_groups(file):
                        sink.add(conform_table(pa.Table.from_batches([batch]), task.schema))
                except BaseException:
                    sink.abandon()
                    raise
        text_bytes += self._close_sink(sink, files)
        finished = list[FinishedFile]()
        for parent, path in files:
            counts = table_files.count_file(self.file_options, parent, path, task.schema)
            finished.append(FinishedFile(str(path), counts.output))
            text_bytes -= counts.text_bytes
        written_rows = sum(one.output.rows for one in finished)
        if written_rows != task.table.rows:
            text = f"{task.table.rows:,} rows were converted and {written_rows:,} written"
            raise InputOutputError(f"{task.table.name}: {text}; the output is not usable")
        if text_bytes:
            raise InputOutputError("the texts of the output differ from those that were read; the output is not usable")
        return finished

    def _is_final(self, spooled: pa.Schema, schema: pa.Schema) -> bool:
        """Return True if a file of the spool can be one of the output."""
        return bool(self.file_options.to == "parquet" and not self.file_options.partition_by and spooled.equals(schema))

    def _count_texts(self, file: Any, schema: pa.Schema) -> int:
        columns = table_files.stored_text_columns(self.file_options, schema)
        groups = (file.read_row_group(i, columns=columns) for i in range(file.num_row_groups))
        return sum(table_files.count_text_bytes(texts, columns, self.file_options) for texts in groups)

    def _close_sink(self, sink: TableFileSink | None, files: list[tuple[Path, Path]]) -> int:
        """Complete the files of a sink; return the number of bytes in their texts."""
        if sink is None:
            return 0
        sink.close()
        files.extend((sink.folder, path) for path in sink.paths)
        return sink.text_bytes


def publish_files(files: Iterable[FinishedFile], folder: Path) -> Sequence[ManifestOutput]:
    """Move the files of one table into its directory, numbered in their order; return them relative to it."""
    outputs = list[ManifestOutput]()
    for number, file in enumerate(files):
        relative = Path(file.output.path)
        target = relative.with_name(f"part-{number:05}.{relative.name.partition('.')[2]}")
        (folder / target).parent.mkdir(parents=True, exist_ok=True)
        os.rename(file.source, folder / target)
        outputs.append(replace(file.output, path=str(target)))
    return outputs
