"""Typed rows of tables as they are after the changes of a log: the last image of each key (`convert --merge`).

All changed rows go to the spool. For each key of a table, memory holds the number of the row with its last image, and
of earlier rows that have columns which later images lack. At the end the rows of the keys that are left are copied.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, NamedTuple

import msgspec
import numpy as np
import pyarrow as pa
from msgspec.structs import replace

from binlogtool.errors import LimitError, UsageError
from binlogtool.export import table_files
from binlogtool.export.manifest import Manifest
from binlogtool.export.output_options import TypedRowOptions
from binlogtool.export.table_files import TableFileSink
from binlogtool.export.table_router import RouterSummary, TableRouter
from binlogtool.export.table_spool import (
    FindingCounter,
    SpooledDefinitions,
    SpooledTable,
    SpoolMemoryLimiter,
    SpoolSettings,
    TableSpool,
)
from binlogtool.export.typed_columns import IMAGES, TableBatch, TableEvolution, TableLayout, table_rules
from binlogtool.export.write_spooled_rows_to_table_files import conform_table
from binlogtool.export.write_typed_tables import SpoolResult, TaskReader, TypedRows
from binlogtool.format_api.encode_json import to_json_text
from binlogtool.format_api.row_output_interfaces import TableColumn, TableSchema, make_database_table, split_table_name
from binlogtool.limits import MIB

_EMPTYING = ("TRUNCATE", "DROP")
_ENTRY_BYTES = 200
"""Memory of a key in addition to its values, in bytes."""
_NO_COLUMNS: frozenset[str] = frozenset()


class RowLink(NamedTuple):
    """A row in the spool by its number, and the columns that its image lacks."""

    row: int
    lacking: frozenset[str]


RowPlace = int | tuple[RowLink, ...]
"""Number of the row in the spool with all columns; otherwise several rows, the newest last."""


def link_partial_row(earlier_place: RowPlace | None, row_number: int, lacking_columns: frozenset[str]) -> RowPlace:
    """Return the place of a key after an image that lacks columns; None = no earlier image is known."""
    links, missing = [RowLink(row_number, lacking_columns)], lacking_columns
    older = (RowLink(earlier_place, _NO_COLUMNS),) if isinstance(earlier_place, int) else earlier_place or ()
    for link in reversed(older):
        if missing - link.lacking:
            links.append(link)
            missing &= link.lacking
    return tuple(reversed(links))


class LastRowTracker:
    """One table: the places of its keys, and the spool with its rows.

    Attributes:
        is_dropped: the table does not exist at this point of the log.
        entry_bytes: approximate memory of a key.
    """

    def __init__(self, spool: TableSpool) -> None:
        self.spool, self.is_dropped, self.entry_bytes = spool, False, _ENTRY_BYTES
        self._places = dict[Any, RowPlace]()
        self._definition: tuple[TableSchema, str] | None = None
        self._field_starts, self._fields = list[int](), list[frozenset[str]]()

    @property
    def key_count(self) -> int:
        """Number of rows of the table at this point of the log."""
        return len(self._places)

    def set_table(self, table: TableSchema, place: str) -> None:
        """Set the definition that is valid from here on.

        Raises:
            UsageError: its key is unknown, or other than that of the rows so far.
        """
        hint = "or leave the table out with --exclude-object"
        if not table.key:
            text = "has no key in what was read, which --merge needs"
            raise UsageError(f"{table.name} {text}; give its CREATE TABLE with --schema FILE.sql, {hint}")
        if self._places and self._definition is not None and self._definition[0].key != table.key:
            keys = " and ".join(f"({', '.join(one)})" for one in (self._definition[0].key, table.key))
            raise UsageError(
                f"{place}: the key of {table.name} changes while it has rows: {keys}; read it from here {hint}"
            )
        if not self._places:  # a new table of the same name
            self.spool.write_pending()
            self.spool.history = SpooledDefinitions()
        self.spool.set_table(table, place)
        self._definition = table, place

    def rename(self, name: str) -> None:
        """Give the table another name."""
        self.spool.name = name
        if self._definition is not None:
            self._definition = replace(self._definition[0], name=name, display_name=""), self._definition[1]
            self.spool.history.evolution.last = self._definition[0]

    def record_last_rows(self, table_batch: TableBatch) -> None:
        """Note which rows of a batch are the last of their keys; the spool receives them afterwards."""
        batch, first, places = table_batch.batch, self.spool.rows, self._places
        fields = frozenset(field.name for field in table_batch.fields)
        if fields and (not self._fields or self._fields[-1] != fields):
            self._field_starts.append(first)
            self._fields.append(fields)
        absent = batch["absent"].to_pylist() if batch["absent"].null_count < len(batch) else None
        for i, (op, old, new) in enumerate(zip(batch["op"].to_pylist(), *self._read_keys(table_batch), strict=True)):
            if new is not None:
                earlier = places.pop(old, None) if old is not None else None
                lacking = (
                    self._find_columns_lacking_in_both(absent[i], has_before_image=old is not None)
                    if absent
                    else _NO_COLUMNS
                )
                places[new] = link_partial_row(earlier, first + i, lacking) if lacking else first + i
                self.is_dropped = False
            elif old is not None:
                places.pop(old, None)
            elif op in _EMPTYING:
                places.clear()
                self.is_dropped = op == "DROP"

    def _read_keys(self, table_batch: TableBatch) -> tuple[Sequence[Any], Sequence[Any]]:
        """Return the keys of the rows before and after their changes; None = the row does not exist there."""
        names, count = [field.name for field in table_batch.fields], len(table_batch.batch)
        if self._definition is None or not set(self._definition[0].key) <= set(names):
            return [None] * count, [None] * count
        indexes = [names.index(name) for name in self._definition[0].key]
        images = [table_batch.image(name) for name in IMAGES]
        columns = [[image.flatten()[i] for i in indexes] for image in images]
        self.entry_bytes = _ENTRY_BYTES + max(sum(one.nbytes for one in side) for side in columns) // max(count, 1)
        cells = [[_to_hashable(column) for column in side] for side in columns]
        keys: list[list[Any]] = [list(zip(*side, strict=True)) if len(side) > 1 else side[0] for side in cells]
        is_known = [image.is_valid().to_pylist() for image in images]
        for image, column_keys, valid in zip(images, keys, is_known, strict=True):
            if image.null_count:
                column_keys[:] = [key if one else None for key, one in zip(column_keys, valid, strict=True)]
        if any(
            column.null_count > image.null_count for image, side in zip(images, columns, strict=True) for column in side
        ):
            self._fill_incomplete_keys(table_batch, keys, cells, is_known)
        return keys[0], keys[1]

    def _fill_incomplete_keys(
        self, table_batch: TableBatch, keys: list[list[Any]], cells: list[list[list[Any]]], has_image: list[list[bool]]
    ) -> None:
        """Set the keys with columns that an image lacks, or whose values do not fit their type."""
        assert self._definition is not None
        unfit, names = table_batch.batch["unfit"].to_pylist(), self._definition[0].key
        for i, text in enumerate(unfit):
            values = _decode(text)
            for side, image in enumerate(IMAGES):
                sides = [one for one in (side, 1 - side) if has_image[side][i] and has_image[one][i]]
                found = [
                    [_first_value(cells[one][n][i], values.get(f"{IMAGES[one]}.{name}")) for one in sides]
                    for n, name in enumerate(names)
                ]
                key = tuple(next((one for one in column if one is not None), None) for column in found)
                if sides and None in key:
                    place = f"record {table_batch.batch['record'][i].as_py():,} of {table_batch.batch['file'][i]}"
                    raise UsageError(f"{place}: the {image} image of a row of {self.spool.name} lacks its key")
                if sides:
                    keys[side][i] = key if names[1:] else key[0]

    def _find_columns_lacking_in_both(
        self, absent_paths: Sequence[str] | None, *, has_before_image: bool
    ) -> frozenset[str]:
        """Return the columns that both images of a row lack. absent_paths: paths."""
        paths = set(absent_paths or ())
        names = {path.removeprefix("after.") for path in paths if path.startswith("after.")}
        return frozenset(name for name in names if not has_before_image or f"before.{name}" in paths)

    # -- the rows that are left ----------------------------------------------------------------------------------------

    def write_last_rows(self, folder: Path, settings: SpoolSettings) -> SpooledTable | None:
        """Write the rows that are left to files; return None if the table was dropped or never had columns."""
        spooled = self.spool.finish()
        if self._definition is None or self.is_dropped:
            return None
        (table, place), kinds = self._definition, self.spool.history.evolution.kinds
        table = replace(table, columns=tuple(TableColumn(one.name, kinds[one.name]) for one in table.columns))
        evolution = TableEvolution()
        evolution.merge_definition_and_describe_changes(table)
        layout = TableLayout(evolution.fields, table.key, "after", operations=False)
        sink = TableFileSink(folder, settings.options, layout.schema, settings.max_memory)
        for batch in self._read_last_rows(spooled, layout):
            sink.add(batch)
        sink.close(keep_empty=True)
        return SpooledTable(
            self.spool.name, len(self._places), ((table, place),), tuple(evolution.kinds.items()), tuple(sink.files),
            settings.options,
        )  # fmt: skip

    def _read_last_rows(self, spooled: SpooledTable, layout: TableLayout) -> Iterator[pa.Table]:
        """Yield the rows that are left, in the order of their last changes."""
        import pyarrow.parquet as parquet

        links = {place[-1].row: place for place in self._places.values() if not isinstance(place, int)}
        wanted = np.sort([one if isinstance(one, int) else one[-1].row for one in self._places.values()]).astype(
            np.int64
        )
        older = np.unique([link.row for place in links.values() for link in place[:-1]]).astype(np.int64)
        kept, first = dict[int, dict[str, Any]](), 0
        fields = self.spool.history.evolution.fields
        spool_layout = TableLayout(fields, (), "after", operations=False)
        spool_names = {field.name: name for field, name in zip(fields, spool_layout.column_names, strict=True)}
        names = {field.name: spool_names[field.name] for field in layout.fields}
        metadata = [one for one in layout.schema if one.name not in layout.column_names]
        order = {
            **dict(zip(layout.column_names, names.values(), strict=True)),
            **{one.name: one.name for one in metadata},
        }
        schema = pa.schema([layout.schema.field(name).with_name(order[name]) for name in layout.schema.names])
        for one in spooled.files:
            with parquet.ParquetFile(one.path) as file:
                for batch in table_files.read_row_groups(file):
                    rows = pa.Table.from_batches([batch])
                    for row in _select_numbers_in_range(older, first, len(batch)):
                        kept[row] = conform_table(rows.slice(row - first, 1), schema).to_pylist()[0]
                    chosen = _select_numbers_in_range(wanted, first, len(batch))
                    if len(chosen):
                        found = conform_table(rows.take(pa.array(chosen - first)), schema)
                        yield self._fill_lacking_columns(found, chosen.tolist(), links, kept, names).rename_columns(
                            layout.schema.names
                        )
                    first += len(batch)

    def _fill_lacking_columns(
        self, rows: pa.Table, row_numbers: Sequence[int], links: Mapping[int, tuple[RowLink, ...]],
        older_rows: Mapping[int, Mapping[str, Any]], spool_column_names: Mapping[str, str],
    ) -> pa.Table:  # fmt: skip
        """Fill the columns that rows lack from earlier rows.

        spool_column_names: columns of the table -> columns of the rows.
        """
        columns = frozenset(spool_column_names)
        is_uniform = all(columns <= fields for fields in self._fields)
        if not any(number in links or not (is_uniform or columns <= self._fields_at(number)) for number in row_numbers):
            absent = rows.schema.get_field_index("absent")
            return rows.set_column(
                absent, rows.schema.field(absent), pa.nulls(len(rows), rows.schema.field(absent).type)
            )
        filled = rows.to_pylist()
        for row, number in zip(filled, row_numbers, strict=True):
            place = links.get(number, (RowLink(number, _NO_COLUMNS),))
            missing, unfit = columns & (place[-1].lacking | (columns - self._fields_at(number))), _decode(row["unfit"])
            for link in reversed(place[:-1]):
                given = missing - link.lacking & self._fields_at(link.row)
                row |= {spool_column_names[name]: older_rows[link.row][spool_column_names[name]] for name in given}
                old_unfit = _decode(older_rows[link.row]["unfit"])
                unfit |= {
                    f"after.{n}": v for n in given for i in IMAGES if (v := old_unfit.get(f"{i}.{n}")) is not None
                }
                missing -= given
            row["unfit"] = to_json_text(unfit) if unfit else None
            row["absent"] = sorted(f"after.{name}" for name in missing) or None
        return pa.Table.from_pylist(filled, schema=rows.schema)

    def _fields_at(self, row: int) -> frozenset[str]:
        """Return the columns that the table had when a row was written."""
        return self._fields[bisect_right(self._field_starts, row) - 1]


def _to_hashable(column: pa.Array) -> list[Any]:
    values: list[Any] = column.to_pylist()
    return [value if value is None else tuple(value) for value in values] if pa.types.is_list(column.type) else values


def _first_value(value: Any, unfit: Any) -> Any:
    return value if value is not None else None if unfit is None else to_json_text(unfit)


def _decode(text: str | None) -> dict[str, Any]:
    return msgspec.json.decode(text, type=dict[str, Any]) if text else {}


def _select_numbers_in_range(numbers: Any, first: int, count: int) -> Any:
    """Return the sorted numbers from `first` on, less than `first + count`."""
    return numbers[np.searchsorted(numbers, first) : np.searchsorted(numbers, first + count)]


# --- All tables ---


class LastRowTables(FindingCounter):
    """Tables that receive typed rows (`table_router.TableRowSink`), of which the last ones of their keys are kept.

    is_selected: tells by its name whether a table is selected. summary: receives remarks.
    """

    def __init__(
        self, folder: Path, settings: SpoolSettings, is_selected: Callable[[str], bool], summary: RouterSummary
    ) -> None:
        super().__init__()
        self._folder, self._settings, self._max_memory = folder, settings, settings.max_memory
        self._is_selected, self._summary = is_selected, summary
        self._tables, self._spool_count = dict[str, LastRowTracker](), 0
        self._memory = SpoolMemoryLimiter(settings.max_memory)

    def __getitem__(self, name: str) -> LastRowTracker:
        """Return a table, which is created."""
        if name not in self._tables:
            spool = TableSpool(name, self._folder / f"{self._spool_count:06}", self._settings)
            self._tables[name] = LastRowTracker(spool)
            self._spool_count += 1
        return self._tables[name]

    def set_table(self, name: str, table: TableSchema, place: str) -> None:
        """Set the definition of a table; see `TableRowSink`."""
        self[name].set_table(table, place)

    def add_batch(self, name: str, table_batch: TableBatch) -> None:
        """Add rows of a table; see `TableRowSink`.

        Raises:
            LimitError: the keys of all tables do not fit into memory.
        """
        table = self[name]
        table.record_last_rows(table_batch)
        self._memory.add_batch(table.spool, table_batch)
        if sum(one.key_count * one.entry_bytes for one in self._tables.values()) > self._max_memory // 2:
            rows, size = sum(one.key_count for one in self._tables.values()), self._max_memory // MIB
            text = f"--merge: the keys of {rows:,} rows need more than half of --max-memory ({size:,} MiB)"
            raise LimitError(f"{text}; raise it, select tables with --object, or merge on Spark (docs/tables.md)")

    def rename_table(self, old: str, new: str) -> None:
        """Apply a rename: the rows of `old` are those of `new` from here on, if that is selected."""
        for lost in (self._tables.pop(new, None), None if self._is_selected(new) else self._tables.pop(old, None)):
            if lost is not None:
                lost.spool.finish()
        self._memory.write_pending()
        if old in self._tables:
            self._tables[new] = self._tables.pop(old)
            self._tables[new].rename(new)
        elif self._is_selected(new) and not self._is_selected(old):
            self._summary.add_remark(
                f"{new} was {old} before, which is not selected: its rows from then are left out", new
            )

    def write_last_rows(self, folder: Path) -> list[SpooledTable]:
        """Return the rows of all tables that are left, in new files."""
        copied = list[SpooledTable]()
        for number, (name, table) in enumerate(self._tables.items()):
            for text in table.spool.history.changes:
                self._summary.add_remark(f"{name}: {text}; columns without a value are in `absent`")
            found = table.write_last_rows(folder / f"{number:06}", self._settings)
            copied += [] if found is None else [found]
        return copied


class CurrentRows(TypedRows, frozen=True):
    """The current rows of tables."""

    @property
    def needs_record_numbers(self) -> bool:
        """Return True: the log cannot be split, because each task needs the rows of the tasks before it."""
        return True

    def spool_rows(self, reader: TaskReader, pool: ThreadPoolExecutor) -> SpoolResult:
        """Read the log, and spool the current rows."""
        request = reader.request

        def is_selected(name: str) -> bool:
            return self.options.is_selected(make_database_table(*split_table_name(name), ()))

        summary = RouterSummary()
        settings = self.make_settings(reader.shape, request, pool)
        tables = LastRowTables(reader.folder, settings, is_selected, summary)
        router = TableRouter(
            self.options, tables, request.limits, keeps_undecoded=False, on_rename=tables.rename_table, summary=summary
        )
        self.route_task_rows(reader, router, tables)
        return SpoolResult(tables.write_last_rows(reader.folder / "current"), tables.finding_tally, summary)

    def complete_manifest(self, manifest: Manifest, result: SpoolResult) -> Manifest:
        """Add the changed rows of each input; rows in the output are fewer."""
        manifest = super().complete_manifest(manifest, result)
        changes = f"{result.outcome.rows_by_file.total():,} changed rows read; current rows "
        checks = (replace(manifest.checks[0], detail=changes + manifest.checks[0].detail), *manifest.checks[1:])
        return replace(manifest, checks=checks) if manifest.complete else manifest


def create_current_row_kind(options: TypedRowOptions, files: Iterable[tuple[str, str]]) -> CurrentRows:
    """Return the kind of rows for these (path, format) pairs.

    Raises:
        UsageError: a format does not say what the current rows are.
    """
    for path, format_ in files:
        rules = table_rules(path, format_)
        if rules is not None and not rules.emptied:
            raise UsageError(f"{path}: --merge is for logs of MySQL and MariaDB, whose rows have keys and images")
    return CurrentRows(options, operations=False)
