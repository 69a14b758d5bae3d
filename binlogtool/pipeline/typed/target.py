"""Output of one table: rows are spooled as they arrive; when all are there, files with one schema are written.

The spool is Parquet, with the columns known at that time. If these are the final ones, the format is Parquet, and
there
are no partitions, the spool file becomes the output.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import Any, Protocol
from urllib.parse import quote

import pyarrow as pa
import pyarrow.compute as compute

from binlogtool import memory
from binlogtool.errors import InputOutputError
from binlogtool.formats.tables import Table
from binlogtool.pipeline.account import MAX_LISTED
from binlogtool.pipeline.inputs import sha256
from binlogtool.pipeline.manifest import Output
from binlogtool.pipeline.typed import table_files
from binlogtool.pipeline.typed.batches import Piece
from binlogtool.pipeline.typed.evolution import Form, Grown
from binlogtool.pipeline.typed.table_files import File, Parquet
from binlogtool.pipeline.typed.wishes import Wishes
from binlogtool.pipeline.writers.partitions import NO_TEXT, NULL_PARTITION
from binlogtool.pipeline.writers.table_form import Shape

_GROUP_ROWS, _GROUP_BYTES, _GROUP_PART = 1 << 16, 32 << 20, 16
"""Limits of a group of rows that is written at once: rows, bytes, fraction of the memory limit."""
_WRITE_TIMES, _COPY_TIMES = 2, {"orc": 16}
_OTHER_TIMES = 4
"""Memory for writing a group, as a multiple of its size: to Parquet, and from there to another format. ORC keeps the
longest
values of each level of its statistics."""
_AHEAD = 1
"""Maximum number of groups that wait to be written; none if they are large."""
_ASIDE = ".aside"


class AnyForm(Protocol):
    """Columns of the files of a table (`evolution.TableLayout`)."""

    @property
    def schema(self) -> pa.Schema:
        """Arrow schema of the files."""

    def table(self, piece: Piece) -> pa.Table:
        """Convert a batch to this layout."""

    def types(self) -> list[dict[str, str]]:
        """Return the table's columns with their Spark SQL types."""


class Target:
    """Output of one table.

    folder: where its files go. pool: writes in the background, one group after the other. memory: bytes that the job
      may use.
    """

    def __init__(
        self,
        name: str,
        folder: Path,
        shape: Shape,
        wishes: Wishes,
        pool: ThreadPoolExecutor,
        memory: int,
        *,
        operations: bool,
    ) -> None:
        self.name, self.folder, self.rows, self.text_bytes = name, folder, 0, 0
        self.told: list[str] = []
        self.grown = Grown()
        self._shape, self._wishes, self._operations = shape, wishes, operations
        self._held, self._held_rows, self._held_bytes = list[Piece](), 0, 0
        self._pool, self._written = pool, list[Future[None]]()
        self._most_bytes = min(_GROUP_BYTES, memory // _GROUP_PART)
        self._aside: list[Path] = []
        self._open: tuple[AnyForm, bool, Parquet] | None = None
        self._outputs: list[Output] = []

    @property
    def form(self) -> AnyForm:
        """Layout of the rows, as far as the columns are known now."""
        return Form(self.grown.fields, self.grown.key, self._wishes.image, operations=self._operations)

    def describe(self, table: Table, place: str) -> None:
        """Set the definition that is valid from here on; the first MAX_LISTED_FINDINGS changes are recorded."""
        self.told += [f"{place}: {one}" for one in self.grown.take(table)][: MAX_LISTED - len(self.told)]

    def described(self, home: str) -> dict[str, Any]:
        """Return the description of the table for the manifest. home: its directory."""
        return {
            "name": self.name,
            "directory": home,
            "rows": self.rows,
            "columns": self.form.types(),
            "key": list(self.grown.key),
            "changes": self.told,
        }

    def take(self, piece: Piece) -> None:
        """Add rows."""
        self._held.append(piece)
        self._held_rows += piece.batch.num_rows
        self._held_bytes += piece.batch.nbytes
        self.rows += piece.batch.num_rows
        if self._held_rows >= _GROUP_ROWS or self._held_bytes >= self._most_bytes:
            self.put_aside()

    @property
    def held_bytes(self) -> int:
        """Bytes of the rows in memory."""
        return self._held_bytes

    def put_aside(self) -> None:
        """Write the pending rows to the spool in the background."""
        if not self._held:
            return
        is_large = self._held_bytes >= 2 * self._most_bytes
        self._settle(0 if is_large else _AHEAD)
        self._written.append(self._pool.submit(self._write, self._held, self.form))
        self._held, self._held_rows, self._held_bytes = [], 0, 0
        if is_large:
            self._settle()

    def _settle(self, most: int = 0) -> None:
        """Wait until at most `most` groups are still to be written."""
        while len(self._written) > most:
            self._written.pop(0).result()

    def _write(self, pieces: list[Piece], form: AnyForm) -> None:
        size = sum(piece.batch.nbytes for piece in pieces)
        memory.demand(_WRITE_TIMES * size)
        table, is_large = pa.concat_tables([form.table(piece) for piece in pieces]), size >= 2 * _GROUP_BYTES
        if self._open is None or self._open[:2] != (form, is_large):
            self._close()
            (self.folder / _ASIDE).mkdir(parents=True, exist_ok=True)
            path = self.folder / _ASIDE / f"{len(self._aside)}.parquet"
            self._aside.append(path)
            codec = self._shape.codec if self._shape.to == "parquet" else "zstd"
            self._open = form, is_large, Parquet(path, form.schema, codec, large=is_large)
        self._open[2].write(table)

    def rest(self) -> None:
        """Close the open spool file; further rows go to another one."""
        self._settle()
        self._close()

    def _close(self) -> None:
        if self._open is not None:
            self._open[2].close()
            self._open = None

    # -- the output ----------------------------------------------------------------------------------------------------

    def finish(self) -> None:
        """Write the output files from the spool.

        Raises:
            InputOutputError: they do not hold what was spooled.
        """
        self.put_aside()
        self.rest()
        form, writers = self.form, _Writers(self.folder, self._shape)
        for path in self._aside:
            self._placed(path, form, writers)
        writers.close()
        if self._aside:
            (self.folder / _ASIDE).rmdir()
        self._outputs = [self._counted(path, form) for path in writers.paths]
        found = sum(one.rows for one in self._outputs)
        if found != self.rows:
            text = f"{self.rows:,} rows were made and {found:,} written"
            raise InputOutputError(f"{self.name}: {text}: the output is not usable")

    def _placed(self, path: Path, form: AnyForm, writers: _Writers) -> None:
        import pyarrow.parquet as parquet

        with parquet.ParquetFile(path) as file:
            as_it_is = self._shape.to == "parquet" and not self._shape.partition_by
            if as_it_is and file.schema_arrow.equals(form.schema):
                for i in range(file.num_row_groups):
                    self._measure(file.read_row_group(i, columns=self._texts(form)), form)
                path.rename(writers.path(""))
                return
            for batch in table_files.group_batches(file):
                memory.demand(_COPY_TIMES.get(self._shape.to, _OTHER_TIMES) * batch.nbytes)
                table = grown(pa.Table.from_batches([batch]), form.schema)
                self._measure(table, form)
                writers.write(table)
        path.unlink()

    def _texts(self, form: AnyForm) -> list[str]:
        return [
            field.name
            for field in form.schema
            if pa.types.is_string(field.type) and field.name not in self._shape.partition_by
        ]

    def _measure(self, table: pa.Table, form: AnyForm) -> None:
        if not self._shape.csv_safe:
            self.text_bytes += table_files.text_bytes(table, self._texts(form))

    def _counted(self, path: Path, form: AnyForm) -> Output:
        """Read a file back, and return its manifest entry."""
        found = table_files.counted(self._shape, path, [] if self._shape.csv_safe else self._texts(form))
        self.text_bytes -= found.text_bytes
        return Output(str(path.relative_to(self.folder)), found.rows, path.stat().st_size, sha256(str(path)))

    @property
    def outputs(self) -> Sequence[Output]:
        """Output files, relative to the directory."""
        return self._outputs


def demand_texts(targets: Iterable[Target]) -> None:
    """Raise InputOutputError if the texts in the files of all tables are not those that were written."""
    if any(target.text_bytes for target in targets):
        raise InputOutputError("the texts of the output are not those that were read: it is not usable")


class _Writers:
    """Files of a table, one for each combination of partition values."""

    def __init__(self, folder: Path, shape: Shape) -> None:
        self._folder, self._shape = folder, shape
        self._open: dict[str, File] = {}
        self.paths: list[Path] = []

    def path(self, partition: str) -> Path:
        """Return the path of the next file."""
        place = self._folder / partition
        place.mkdir(parents=True, exist_ok=True)
        self.paths.append(place / f"part-{len(self.paths):05}{table_files.suffix(self._shape)}")
        return self.paths[-1]

    def write(self, table: pa.Table) -> None:
        """Write rows into the files of their partitions."""
        for partition, part in _parted(table, self._shape.partition_by):
            if partition not in self._open:
                if len(self._open) >= 64:
                    self._open.pop(next(iter(self._open))).close()
                self._open[partition] = table_files.opened(self._shape, self.path(partition), part.schema)
            self._open[partition].write(part)

    def close(self) -> None:
        """Complete all files."""
        for file in self._open.values():
            file.close()


def grown(table: pa.Table, schema: pa.Schema) -> pa.Table:
    """Return rows of an older schema in the final one."""
    columns = [
        _wider(table[field.name], field.type) if field.name in table.schema.names else pa.nulls(len(table), field.type)
        for field in schema
    ]
    return pa.table(columns, schema=schema)


def _wider(column: Any, kind: pa.DataType) -> Any:
    if column.type == kind:
        return column
    if not pa.types.is_struct(kind):
        return compute.cast(column, kind)
    given = column.combine_chunks()
    given = given.chunk(0) if isinstance(given, pa.ChunkedArray) else given
    own = {field.name: inside for field, inside in zip(given.type, given.flatten(), strict=True)}
    inside = [_wider(own[f.name], f.type) if f.name in own else pa.nulls(len(given), f.type) for f in kind]
    return pa.StructArray.from_arrays(inside, fields=list(kind), mask=given.is_null() if given.null_count else None)


def _parted(table: pa.Table, names: Sequence[str]) -> Iterator[tuple[str, pa.Table]]:
    """Yield the rows of each partition, without the columns that are in directory names."""
    if not names:
        yield "", table
        return
    values = pa.table([_value(table, name) for name in names], names=list(names))
    stored = table.drop_columns([name for name in names if name in table.schema.names])
    for row in values.group_by(list(names), use_threads=False).aggregate([]).to_pylist():
        mask = pa.array([True] * len(table))
        for name in names:
            own = values[name]
            mask = compute.and_(mask, own.is_null() if row[name] is None else compute.fill_null(
                compute.equal(own, row[name]), False))  # fmt: skip
        yield "/".join(f"{name}={_folder(name, row)}" for name in names), stored.filter(mask)


def _value(table: pa.Table, name: str) -> Any:
    if name == "date":
        return compute.strftime(table["time"].cast(pa.timestamp("s"), safe=False), format="%Y-%m-%d")
    if name == "hour":
        return compute.hour(table["time"].cast(pa.timestamp("us")))
    return table[name]


def _folder(name: str, row: Mapping[str, Any]) -> str:
    value = row[name]
    if value is None or value == "":
        return NO_TEXT if name in ("op", "file") else NULL_PARTITION
    return quote(str(value), safe=" ")
