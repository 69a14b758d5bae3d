"""Changed rows of one table for notebooks (`notebook.RowSource`): one pass finds the schema, others read rows."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING

import pyarrow as pa

from binlogtool.errors import UsageError
from binlogtool.findings import Finding
from binlogtool.formats.tables import EventRows, RecordTableRows, TableSchema
from binlogtool.log import detect
from binlogtool.log.records import FileFinding, RowBatch
from binlogtool.log.select import Selection
from binlogtool.pipeline.object_columns import check_same_table, read_older_tables
from binlogtool.pipeline.typed.batches import TableBatch
from binlogtool.pipeline.typed.evolution import TableEvolution, TableLayout
from binlogtool.pipeline.typed.gather import TableRouter, describe_missing_table
from binlogtool.pipeline.typed.wishes import TypedRowOptions

if TYPE_CHECKING:
    from binlogtool.pipeline.opened import Log

OnFinding = Callable[[FileFinding], None]


class ChangedRowSource:
    """Yields the changed rows of one table; damage and records that cannot be decoded are not rows."""

    def __init__(self, name: str, options: TypedRowOptions, selection: Selection) -> None:
        self._name, self._options, self._selection = name, options, selection
        self._layout: TableLayout | None = None
        self._known_tables: list[TableSchema] = []
        self._table: TableSchema | None = None

    def read_schema(self, log: Log) -> pa.Schema:
        """Find the schema in one pass over the log; see `notebook.RowSource`.

        Raises:
            UsageError: the log contains no such table.
        """
        self._known_tables = read_older_tables(log.paths, log.limits, log.backend, log.hints)
        self._table = None
        evolution, seen, formats = TableEvolution(), dict[str, TableSchema](), set[str]()
        for part in log.row_batches(self._selection, known_tables=self._known_tables, is_selected=lambda _: False):
            if isinstance(part, FileFinding):
                continue
            formats.add(part.format)
            for content in (part.rows,) if isinstance(part, RowBatch) else filter(None, part.bodies):
                self._add_definitions(content, evolution, seen)
        if not evolution.kinds:
            for table in filter(self._options.is_selected, (*self._known_tables, *seen.values())):
                evolution.add_definition(table)
        if not evolution.kinds:
            raise UsageError(f"{self._name}: {describe_missing_table(seen)}")
        rules = [known() for known in (detect.find_format(name).tables for name in formats) if known is not None]
        operations = any(one.operations for one in rules)
        self._layout = TableLayout(evolution.fields, evolution.key, self._options.image, operations=operations)
        return self._layout.schema

    def _add_definitions(
        self, content: RecordTableRows | EventRows, evolution: TableEvolution, seen: dict[str, TableSchema]
    ) -> None:
        """Take table definitions; a definition is final where it has rows, earlier ones may be incomplete."""
        seen.update({table.name: table for table in content.described})
        rows = () if isinstance(content, EventRows) else content.rows
        for table in {id(row.table): row.table for row in rows}.values() if rows else content.described:
            seen[table.name] = table
            if self._options.is_selected(table):
                check_same_table(self._table or table, table)
                self._table = table
                evolution.add_definition(table)

    def build_batches(self, log: Log, on_finding: OnFinding) -> Iterator[pa.RecordBatch]:
        """Yield the rows of one pass; see `notebook.RowSource`."""
        assert self._layout is not None
        collector = _BatchCollector(on_finding)
        router = TableRouter(self._options, collector, log.limits, keeps_undecoded=False)
        for part in router.read_log(log, self._selection, self._known_tables):
            if isinstance(part, FileFinding):
                router.note_damage(part)
                on_finding(part)
                continue
            if isinstance(part, RowBatch):
                router.add_row_batch(part)
            else:
                router.add_block(part)
            yield from collector.drain(self._layout)
            if router.is_full:
                break
        router.flush()
        yield from collector.drain(self._layout)


class _BatchCollector:
    """`gather.TableRowSink` of one table. on_finding: receives findings."""

    def __init__(self, on_finding: OnFinding) -> None:
        self._on_finding, self._batches = on_finding, deque[TableBatch]()

    def set_table(self, name: str, table: TableSchema, place: str) -> None:
        """Ignore the definition: the layout of the whole log is known."""

    def add_batch(self, name: str, table_batch: TableBatch) -> None:
        """Keep rows; see `TableRowSink`."""
        self._batches.append(table_batch)

    def report_finding(self, file: str, finding: Finding) -> None:
        """Pass a finding on; see `TableRowSink`."""
        self._on_finding(FileFinding(file, finding))

    def drain(self, layout: TableLayout) -> Iterator[pa.RecordBatch]:
        """Yield and remove the collected rows, in this layout."""
        while self._batches:
            yield from layout.to_table(self._batches.popleft()).to_batches()
