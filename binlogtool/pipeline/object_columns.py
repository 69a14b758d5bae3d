"""Columns of a table as its log describes them: through its format's tables (`formats.tables`), or not at all."""

from __future__ import annotations

import contextlib
import fnmatch
import glob
import os
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, NamedTuple

from binlogtool.errors import BinlogtoolError, UsageError
from binlogtool.formats.detecting import Hints
from binlogtool.formats.tables import TUPLE, RecordTableRows, TableSchema, TableSupport
from binlogtool.limits import Limits
from binlogtool.log import detect
from binlogtool.log.how import ReadOptions
from binlogtool.log.open import LogReader, open_log
from binlogtool.log.records import RecordBlock
from binlogtool.log.select import Selection
from binlogtool.log.source import base_name, is_url
from binlogtool.pipeline.cells import widen_type
from binlogtool.pipeline.inputs import list_files, resolve_format

if TYPE_CHECKING:
    from binlogtool.pipeline.request import ReadRequest


class TypedColumn(NamedTuple):
    """A column of a table: its name, and its type as Spark writes it."""

    name: str
    kind: str


class ColumnCollector:
    """Collects the columns of one table from what its log describes.

    Args:
        name: name or number of the table.
        widest: use the types that hold every value that the columns allow.

    Attributes:
        ids: other names by which records refer to the table.
    """

    def __init__(self, name: str, *, widest: bool = False) -> None:
        self.name, self._widest = name, widest
        self.ids: set[str] = set()
        self._kinds: dict[str, str] = {}
        self._has_rows = False
        self._last: TableSchema | None = None

    @property
    def is_described(self) -> bool:
        """True if a record described the table."""
        return bool(self._kinds)

    def add_record(self, content: RecordTableRows) -> None:
        """Take the table definitions and row changes of a record."""
        for table in content.described:
            if self.name in (*table.names, *self.ids):
                self._add_definition(table)
        self._has_rows = self._has_rows or any(self.name in row.table.names for row in content.rows)

    def _add_definition(self, table: TableSchema) -> None:
        """Merge a table definition; a column whose old and new types have no common type becomes text."""
        if table.display_name:
            check_same_table(self._last or table, table)
        self._last = table
        self.ids |= {*table.names} - {self.name}
        if [c.name for c in table.columns] == [TUPLE] and self._kinds:
            return
        if self._kinds.keys() == {TUPLE}:
            self._kinds.clear()
        for name, kind in [(c.name, (self._widest and c.widest_type) or c.type) for c in table.columns]:
            self._kinds[name] = widen_type(self._kinds.get(name, kind), kind) or "string"

    @property
    def fields(self) -> list[TypedColumn]:
        """Columns in the order in which they appeared.

        Raises:
            UsageError: there is no such table.
        """
        if self._kinds:
            return [TypedColumn(name, kind) for name, kind in self._kinds.items()]
        if self._has_rows:
            return [TypedColumn(TUPLE, "string")]
        raise UsageError(f"object {self.name!r}: no record describes it, and none is about it")


def check_same_table(table: TableSchema, other: TableSchema) -> None:
    """Raise UsageError if rows of two different tables would be mixed."""
    if not table.is_same_table(other):
        raise ambiguous_table_error(other.display_name or other.name, table.name, other.name)


def ambiguous_table_error(shown: str, first: str, second: str) -> UsageError:
    """Return the error for two tables, given by their full names, that a log shows by the same name."""
    names = " and ".join(sorted((first, second)))
    return UsageError(f"{shown}: two tables of the log are called so: {names}; name one of them")


def collect_columns(request: ReadRequest, hints: Hints | None) -> ColumnCollector:
    """Collect the columns of the request's table in one pass over its files.

    If these do not describe the table, older files of their directories are read, the latest first.
    """
    assert request.object is not None
    collector = ColumnCollector(request.object, widest=request.unsigned == "decimal")
    pairs = [(member.path, member.format) for member in request.members]
    for member in request.members:
        _collect_from_file(collector, member.path, member.format, request, request.member_hints(member, hints))
    for path, format_ in list_older_files(pairs) if not collector.is_described else ():
        _collect_from_file(collector, path, format_, request, hints)
        if collector.is_described:
            break
    return collector


def table_rules(path: str, format_: str) -> TableSupport | None:
    """Return the table rules of a file's format; None if its logs have no tables."""
    try:
        get_tables = detect.find_format(resolve_format(path, format_)).tables
    except BinlogtoolError:
        return None
    return None if get_tables is None else get_tables()


def _collect_from_file(
    collector: ColumnCollector, path: str, format_: str, request: ReadRequest, hints: Hints | None
) -> None:
    """Collect columns in one pass over a file."""
    rules = table_rules(path, format_)
    if rules is None:
        return
    selection = Selection(types=rules.types, objects=(glob.escape(collector.name), *rules.objects))
    with (
        contextlib.suppress(BinlogtoolError),
        open_log(
            path, ReadOptions(format=format_, limits=request.limits, backend=request.backend, hints=hints), LogReader
        ) as log,
    ):
        for block in log.table_rows(selection):
            if isinstance(block, RecordBlock):
                for content in filter(None, block.bodies):
                    collector.add_record(content)


def list_older_files(files: Sequence[tuple[str, str]]) -> Iterator[tuple[str, str]]:
    """Yield the files before these in their directories that may describe their tables, the latest first.

    Ends with the first file that describes all tables.
    """
    folders = dict[str, set[str]]()
    for path, format_ in files:
        rules = table_rules(path, format_)
        if not is_url(path) and rules is not None and rules.older:
            folders.setdefault(os.path.dirname(os.path.abspath(path)), set()).add(os.path.abspath(path))
    for folder, named_paths in folders.items():
        with contextlib.suppress(BinlogtoolError):
            folder_files = list_files(folder, "auto")
            first = min(
                (n for n, (path, _) in enumerate(folder_files) if os.path.abspath(path) in named_paths), default=0
            )
            yield from _walk_back(folder_files[:first])


def read_older_tables(
    files: Sequence[tuple[str, str]], limits: Limits, backend: str, hints: Hints | None = None
) -> list[TableSchema]:
    """Return the tables that older files describe, for given (path, format) pairs."""
    tables = dict[tuple[str, ...], TableSchema]()
    for path, format_ in reversed(list(list_older_files(files))):
        rules = table_rules(path, format_)
        selection = Selection(types=rules.types, objects=rules.objects) if rules is not None else Selection()
        with open_log(path, ReadOptions(format=format_, limits=limits, backend=backend, hints=hints), LogReader) as log:
            for block in log.table_rows(selection, known_tables=tuple(tables.values())):
                for content in block.bodies if isinstance(block, RecordBlock) else ():
                    tables.update({table.ids: table for table in content.described})
    return list(tables.values())


def _walk_back(files: Sequence[tuple[str, str]]) -> Iterator[tuple[str, str]]:
    for path, format_ in reversed(files):
        yield path, format_
        rules = table_rules(path, format_)
        if rules is not None and any(fnmatch.fnmatchcase(base_name(path), one) for one in rules.older):
            return
