"""Read the changed rows of one table as Arrow batches, for notebooks and for Spark's data source."""

from __future__ import annotations

import glob
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any

import msgspec
import pyarrow as pa
from msgspec.structs import replace

from binlogtool.core import open_file as open_file_module
from binlogtool.core.divide_file import FilePart
from binlogtool.core.open_log import LogReader
from binlogtool.core.record_and_selection_types import FileFinding, ReadOptions, RowBatch, Selection
from binlogtool.errors import BinlogtoolError, UsageError
from binlogtool.export import records_to_arrow
from binlogtool.export.envelopes.convert_values import quote_name
from binlogtool.export.manifest import ReadRequest
from binlogtool.export.output_options import (
    TypedRowOptions,
    build_typed_options,
    describe_missing_table,
    is_part_selected,
    typed_selection,
)
from binlogtool.export.records_to_arrow import DAMAGE, OnFinding, RecordRowReader, check_column_names, resize_batches
from binlogtool.export.table_router import RouterSummary, TableRouter
from binlogtool.export.typed_columns import (
    IMAGES,
    METADATA_COLUMNS,
    TRAILING_COLUMNS,
    TableBatch,
    TableEvolution,
    TableLayout,
    TypedColumn,
    build_table_batch,
    check_same_table,
    column_type_from_spark_field,
    read_older_table_definitions,
    table_rules,
    to_sql_type,
)
from binlogtool.findings import Finding, Severity, make_finding
from binlogtool.format_api.encode_json import findings_to_json
from binlogtool.format_api.row_output_interfaces import EventRows, TableColumn, TableSchema
from binlogtool.limits import Limits


def build_single_table_options(table: str, selection: Selection, image: str | None) -> TypedRowOptions:
    """Return the options of the rows of one table.

    Raises:
        UsageError: the options contradict each other.
    """
    if selection.objects:
        raise UsageError(
            f"the selection names objects, but the table is already chosen ({table}); remove the objects "
            f"from the selection"
        )
    options = build_typed_options(selection, image, per_table=False)
    return replace(options, objects=(glob.escape(table),), per_table=False)


# --- Columns ---


class TableSearch:
    """Collects the definitions of one table from logs. options: of its rows.

    widest: use types that can hold every value that the columns allow. shared: search for another table in the same
    logs, which reads them.

    Attributes:
        tables: name -> definition, of all tables.
        ids: names and numbers of the table.
    """

    def __init__(
        self, name: str, options: TypedRowOptions, *, widest: bool = False, shared: TableSearch | None = None
    ) -> None:
        self._name, self._options, self._widest = name, options, widest
        self.tables: dict[str, TableSchema] = {} if shared is None else shared.tables
        self._older: list[TableSchema] = [] if shared is None else shared._older
        self._formats: set[str] = set() if shared is None else shared._formats
        self.ids = set[str]()
        self._evolution, self._table = TableEvolution(), TableSchema("", ())

    @property
    def is_found(self) -> bool:
        """True if a record describes the table."""
        return bool(self._evolution.kinds)

    @property
    def known_tables(self) -> list[TableSchema]:
        """Definitions for the logs that follow."""
        return [*self._older, *self.tables.values()]

    def read_older_files(self, files: Sequence[tuple[str, str]], options: ReadOptions) -> None:
        """Read the table definitions in the files before these (path, format) pairs."""
        self._older += read_older_table_definitions(files, options)

    def read_log(self, log: LogReader, selection: Selection) -> None:
        """Read the definitions of the table in a log.

        Raises:
            UsageError: it has two tables of this name.
        """
        for table in filter(self._options.is_selected, self.read_definitions(log, selection)):
            self.add_definition(table)

    def read_definitions(self, log: LogReader, selection: Selection) -> Iterator[TableSchema]:
        """Yield the definitions of all tables in a log; one with rows is final, earlier ones may be incomplete."""
        for part in log.row_batches(selection, known_tables=self.known_tables, is_selected=lambda _: False):
            if not isinstance(part, FileFinding):
                self._formats.add(part.format)
                for content in (part.rows,) if isinstance(part, RowBatch) else filter(None, part.bodies):
                    self.tables.update({table.name: table for table in content.described})
                    rows = () if isinstance(content, EventRows) else content.rows
                    for table in {id(row.table): row.table for row in rows}.values() if rows else content.described:
                        self.tables[table.name] = table
                        yield table

    def add_definition(self, table: TableSchema) -> None:
        """Add a definition of the table.

        Raises:
            UsageError: it is that of another table of this name.
        """
        check_same_table(self._table if self._table.name else table, table)
        self._table = table
        self.ids.update(table.names)
        if self._widest:
            columns = tuple(TableColumn(one.name, one.widest_type or one.type) for one in table.columns)
            table = replace(table, columns=columns)
        self._evolution.merge_definition_and_describe_changes(table)

    def make_layout(self) -> TableLayout:
        """Return the layout of the rows.

        Raises:
            UsageError: the table does not exist.
        """
        if not self._evolution.kinds:
            for table in filter(self._options.is_selected, self.known_tables):
                self.add_definition(table)
        if not self._evolution.kinds:
            raise UsageError(f"{self._name}: {describe_missing_table(self.tables, self._name)}")
        rules = (open_file_module.find_format(name).tables for name in self._formats)
        operations = any(one is not None and one.operations for one in rules)
        return TableLayout(self._evolution.fields, self._evolution.key, self._options.image, operations=operations)


def search_tables(log: LogReader, searches: Mapping[str, TableSearch], selection: Selection) -> None:
    """Read the definitions of many tables in a log, in one pass.

    Args:
        searches: name of a table -> its search; they share the first one.
    """
    first = next(iter(searches.values()))
    for records in (selection, Selection()) if is_part_selected(selection) else (selection,):
        missing = {name: one for name, one in searches.items() if not one.is_found}
        for table in first.read_definitions(log, records) if missing else ():
            if table.name in missing:
                missing[table.name].add_definition(table)


def search_table(request: ReadRequest) -> TableSearch:
    """Search the files of a request for its table; files that cannot be read are left out.

    Raises:
        UsageError: there are two tables of this name, or the options contradict each other.
    """
    assert request.object is not None
    options = build_single_table_options(request.object, request.selection, "both")
    search = TableSearch(request.object, options, widest=request.unsigned == "decimal")
    files = [(member.path, member.format) for member in request.members]
    search.read_older_files(files, request.read_options())
    selected = typed_selection(request.selection)
    for selection in (selected, Selection()) if is_part_selected(selected) else (selected,):
        if search.is_found:
            break
        for member in request.members:
            if table_rules(member.path, member.format) is None:
                continue
            try:
                with request.open_member(member) as log:
                    search.read_log(log, selection)
            except UsageError:
                raise
            except BinlogtoolError:
                continue  # its reader reports the error
    return search


# --- Schema in Spark ---


def build_ddl(layout: TableLayout, names: Sequence[str] = ()) -> str:
    """Return the Spark DDL of the rows of a table. names: columns; () = all.

    Raises:
        UsageError: a column does not exist.
    """
    fields = ", ".join(f"{quote_name(field.name)}: {to_sql_type(field.kind)}" for field in layout.fields)
    kinds = dict((*METADATA_COLUMNS, *((name, f"struct<{fields}>") for name in IMAGES), *TRAILING_COLUMNS))
    check_column_names(names, layout.schema.names)
    return ", ".join(f"`{name}` {kinds[name]}" for name in names or layout.schema.names)


def fields_from_spark(schema: Any) -> tuple[TypedColumn, ...]:
    """Return the table's columns in a schema of Spark; () = it has no row images."""
    images = [name for name in IMAGES if name in schema.names]
    fields = schema[images[-1]].dataType.fields if images else ()
    return tuple(TypedColumn(one.name, column_type_from_spark_field(one)) for one in fields)


# --- Rows ---


def report_unfinished(summary: RouterSummary, on_finding: Callable[[FileFinding], object]) -> None:
    """Report the transactions without end as findings."""
    summary.add_unfinished(summary.open_transaction)
    for text in summary.unfinished:
        file = text.partition(": transaction")[0].rpartition(" at ")[0]
        message = text.removeprefix(f"{file} ")
        found = make_finding("incomplete-transaction", None, 0, message, severity=Severity.WARNING)
        on_finding(FileFinding(file, found))


class TableRowReader(msgspec.Struct, frozen=True):
    """Reads the rows of one table as batches (`records_to_arrow.RecordRowReader`).

    names: columns of the rows; () = all. known_tables: described before what is read. keeps_all: there are also rows
    for damage, for records that cannot be decoded, and for statements that empty the table.
    """

    options: TypedRowOptions
    layout: TableLayout
    limits: Limits
    names: tuple[str, ...] = ()
    known_tables: tuple[TableSchema, ...] = ()
    keeps_all: bool = True

    @property
    def read_schema(self) -> pa.Schema:
        """Arrow schema of the rows."""
        return pa.schema([self.layout.schema.field(name) for name in self.names or self.layout.schema.names])

    def read_batches(
        self, log: LogReader, _: str | None, selection: Selection, part: FilePart, on_finding: OnFinding
    ) -> Iterator[pa.RecordBatch]:
        """Yield the rows of a part of a log; see `RecordRowReader`."""
        return resize_batches(self._read_tables(log, typed_selection(selection), part, on_finding))

    def _read_tables(
        self, log: LogReader, selection: Selection, part: FilePart, on_finding: OnFinding
    ) -> Iterator[pa.RecordBatch]:
        sink = _BatchQueue(on_finding)
        router = TableRouter(
            self.options, sink, self.limits, keeps_undecoded=self.keeps_all, keeps_emptied=self.keeps_all
        )
        for _ in router.route_log(log, selection, self.known_tables, part, on_finding):
            yield from self._build_batches(sink.take_all())
        router.flush()
        yield from self._build_batches(sink.take_all())
        if not self.keeps_all:
            report_unfinished(router.summary, on_finding)

    def build_damage_batch(self, file: str, format: str, damage_finding: Finding) -> pa.RecordBatch:
        """Return the row for bytes that cannot be read."""
        row = {"file": records_to_arrow.printable_path(file), "offset": damage_finding.offset, "op": DAMAGE}
        row |= {"findings": findings_to_json([damage_finding]), **dict.fromkeys(IMAGES)}
        (batch,) = self._build_batches([build_table_batch((), [row])])
        return batch

    def _build_batches(self, batches: Iterable[TableBatch]) -> Iterator[pa.RecordBatch]:
        for table_batch in batches:
            table = self.layout.to_table(table_batch)
            yield from (table.select(self.names) if self.names else table).to_batches()


def make_row_reader(request: ReadRequest, schema: Any) -> RecordRowReader:
    """Return the reader of a request's rows in Spark. schema: of Spark, with the columns of a table.

    Raises:
        UsageError: a column does not exist.
    """
    if request.object is None:
        return records_to_arrow.create_layout(request.columns, request.payload)
    fields = fields_from_spark(schema) or search_table(request).make_layout().fields
    layout = TableLayout(fields, (), "both", operations=True)
    check_column_names(schema.names, layout.schema.names)
    options = build_single_table_options(request.object, request.selection, "both")
    return TableRowReader(options, layout, request.limits, tuple(schema.names))


class _BatchQueue:
    """Batches of one table (`TableRowSink`). on_finding: receives findings."""

    def __init__(self, on_finding: OnFinding) -> None:
        self._on_finding, self._batches = on_finding, deque[TableBatch]()

    def set_table(self, name: str, table: TableSchema, place: str) -> None:
        """Ignore the definition: the layout is known."""

    def add_batch(self, name: str, table_batch: TableBatch) -> None:
        """Keep rows; see `TableRowSink`."""
        self._batches.append(table_batch)

    def report_finding(self, file: str, finding: Finding) -> None:
        """Pass a finding on; see `TableRowSink`."""
        self._on_finding(FileFinding(file, finding))

    def take_all(self) -> Iterator[TableBatch]:
        """Yield and remove the batches."""
        while self._batches:
            yield self._batches.popleft()
