"""The changed rows of one table for notebooks (`notebook.Maker`): the schema by a pass over the log, rows by others."""

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
    """Damage, and records that cannot be decoded, are no rows."""

    def __init__(self, name: str, wishes: Wishes, selection: Selection) -> None:
        self._name, self._wishes, self._selection = name, wishes, selection
        self._form: Form | None = None
        self._known: list[Table] = []
        self._only: Table | None = None

    def schema(self, log: Log) -> pa.Schema:
        """See `notebook.Maker`.

        Raises:
            UsageError: the log tells of no such table.
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
        """A table is as it is where it has rows: what is told of it before may be unfinished."""
        seen.update({table.name: table for table in told.described})
        rows = () if isinstance(told, Events) else told.rows
        for table in {id(row.table): row.table for row in rows}.values() if rows else told.described:
            seen[table.name] = table
            if self._wishes.wants(table):
                demand_one(self._only or table, table)
                self._only = table
                grown.take(table)

    def batches(self, log: Log, found: OnFound) -> Iterator[pa.RecordBatch]:
        """See `notebook.Maker`."""
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
    """`gather.Home` of one table. found: is told what is wrong."""

    def __init__(self, found: OnFound) -> None:
        self._found, self._pieces = found, deque[Piece]()

    def describe(self, name: str, table: Table, place: str) -> None:
        """See `Home`. What it is over the whole log is known."""

    def take(self, name: str, piece: Piece) -> None:
        """See `Home`."""
        self._pieces.append(piece)

    def found(self, file: str, finding: Finding) -> None:
        """See `Home`."""
        self._found(Trouble(file, finding))

    def rows(self, form: Form) -> Iterator[pa.RecordBatch]:
        """What was taken, in this form."""
        while self._pieces:
            yield from form.table(self._pieces.popleft()).to_batches()
