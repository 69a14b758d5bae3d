"""Changed rows of one table for notebooks (`notebook.RowSource`): one pass finds the schema, others read rows."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING

import pyarrow as pa

from binlogtool.errors import UsageError
from binlogtool.findings import Finding
from binlogtool.formats.tables import Events, Table, Told
from binlogtool.log import detect
from binlogtool.log.records import Crowd, Trouble
from binlogtool.log.select import Selection
from binlogtool.pipeline.object_columns import demand_one, older_tables
from binlogtool.pipeline.typed.batches import Piece
from binlogtool.pipeline.typed.evolution import Form, Grown
from binlogtool.pipeline.typed.gather import Gatherer, no_such_table
from binlogtool.pipeline.typed.wishes import Wishes

if TYPE_CHECKING:
    from binlogtool.pipeline.opened import Log

OnFound = Callable[[Trouble], None]


class ChangedRows:
    """Yields the changed rows of one table; damage and records that cannot be decoded are not rows."""

    def __init__(self, name: str, wishes: Wishes, selection: Selection) -> None:
        self._name, self._wishes, self._selection = name, wishes, selection
        self._form: Form | None = None
        self._known: list[Table] = []
        self._only: Table | None = None

    def schema(self, log: Log) -> pa.Schema:
        """Find the schema in one pass over the log; see `notebook.RowSource`.

        Raises:
            UsageError: the log contains no such table.
        """
        self._known = older_tables(log.paths, log.limits, log.backend, log.hints)
        self._only = None
        grown, seen, formats = Grown(), dict[str, Table](), set[str]()
        for one in log.crowds(self._selection, known=self._known, wants=lambda _: False):
            if isinstance(one, Trouble):
                continue
            formats.add(one.format)
            for told in (one.told,) if isinstance(one, Crowd) else filter(None, one.bodies):
                self._learn(told, grown, seen)
        if not grown.kinds:
            for table in filter(self._wishes.wants, (*self._known, *seen.values())):
                grown.take(table)
        if not grown.kinds:
            raise UsageError(f"{self._name}: {no_such_table(seen)}")
        rules = [known() for known in (detect.by_name(name).tables for name in formats) if known is not None]
        operations = any(one.operations for one in rules)
        self._form = Form(grown.fields, grown.key, self._wishes.image, operations=operations)
        return self._form.schema

    def _learn(self, told: Told | Events, grown: Grown, seen: dict[str, Table]) -> None:
        """Take table definitions; a definition is final where it has rows, earlier ones may be incomplete."""
        seen.update({table.name: table for table in told.described})
        rows = () if isinstance(told, Events) else told.rows
        for table in {id(row.table): row.table for row in rows}.values() if rows else told.described:
            seen[table.name] = table
            if self._wishes.wants(table):
                demand_one(self._only or table, table)
                self._only = table
                grown.take(table)

    def batches(self, log: Log, found: OnFound) -> Iterator[pa.RecordBatch]:
        """Yield the rows of one pass; see `notebook.RowSource`."""
        assert self._form is not None
        home = _Home(found)
        gatherer = Gatherer(self._wishes, home, log.limits, strays=False)
        for one in gatherer.read(log, self._selection, self._known):
            if isinstance(one, Trouble):
                gatherer.lost(one)
                found(one)
                continue
            if isinstance(one, Crowd):
                gatherer.crowd(one)
            else:
                gatherer.block(one)
            yield from home.rows(self._form)
            if gatherer.full:
                break
        gatherer.flush()
        yield from home.rows(self._form)


class _Home:
    """`gather.TableRowSink` of one table. found: receives findings."""

    def __init__(self, found: OnFound) -> None:
        self._found, self._pieces = found, deque[Piece]()

    def describe(self, name: str, table: Table, place: str) -> None:
        """Ignore the definition: the layout of the whole log is known."""

    def take(self, name: str, piece: Piece) -> None:
        """Keep rows; see `TableRowSink`."""
        self._pieces.append(piece)

    def found(self, file: str, finding: Finding) -> None:
        """Pass a finding on; see `TableRowSink`."""
        self._found(Trouble(file, finding))

    def rows(self, form: Form) -> Iterator[pa.RecordBatch]:
        """Yield and remove the collected rows, in this layout."""
        while self._pieces:
            yield from form.table(self._pieces.popleft()).to_batches()
