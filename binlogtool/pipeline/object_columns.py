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
from binlogtool.formats.tables import TUPLE, Table, Tables, Told
from binlogtool.limits import Limits
from binlogtool.log import detect
from binlogtool.log.records import Block
from binlogtool.log.select import Selection
from binlogtool.log.source import base_name, is_url
from binlogtool.pipeline.cells import widened
from binlogtool.pipeline.inputs import files_of, format_of

if TYPE_CHECKING:
    from binlogtool.pipeline.request import Request


class Field(NamedTuple):
    """A column of a table: its name, and its type as Spark writes it."""

    name: str
    kind: str


class Columns:
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
        self._met = False
        self._last: Table | None = None

    @property
    def described(self) -> bool:
        """True if a record described the table."""
        return bool(self._kinds)

    def take(self, told: Told) -> None:
        """Take the table definitions and row changes of a record."""
        for table in told.described:
            if self.name in (*table.names, *self.ids):
                self._learn(table)
        self._met = self._met or any(self.name in row.table.names for row in told.rows)

    def _learn(self, table: Table) -> None:
        """Merge a table definition; a column whose old and new types have no common type becomes text."""
        if table.shown:
            demand_one(self._last or table, table)
        self._last = table
        self.ids |= {*table.names} - {self.name}
        if [c.name for c in table.columns] == [TUPLE] and self._kinds:
            return
        if self._kinds.keys() == {TUPLE}:
            self._kinds.clear()
        for name, kind in [(c.name, (self._widest and c.most) or c.type) for c in table.columns]:
            self._kinds[name] = widened(self._kinds.get(name, kind), kind) or "string"

    @property
    def fields(self) -> list[Field]:
        """Columns in the order in which they appeared.

        Raises:
            UsageError: there is no such table.
        """
        if self._kinds:
            return [Field(name, kind) for name, kind in self._kinds.items()]
        if self._met:
            return [Field(TUPLE, "string")]
        raise UsageError(f"object {self.name!r}: no record describes it, and none is about it")


def demand_one(table: Table, other: Table) -> None:
    """Raise UsageError if rows of two different tables would be mixed."""
    if not table.is_same(other):
        raise two_tables(other.shown or other.name, table.name, other.name)


def two_tables(shown: str, one: str, other: str) -> UsageError:
    """Return the error for two tables, given by their full names, that a log shows by the same name."""
    names = " and ".join(sorted((one, other)))
    return UsageError(f"{shown}: two tables of the log are called so: {names}; name one of them")


def columns_of(request: Request, hints: Hints | None) -> Columns:
    """Collect the columns of the request's table in one pass over its files.

    If these do not describe the table, older files of their directories are read, the latest first.
    """
    assert request.object is not None
    found = Columns(request.object, widest=request.unsigned == "decimal")
    pairs = [(member.path, member.format) for member in request.members]
    for member in request.members:
        _learned(found, member.path, member.format, request, request.hints_of(member, hints))
    for path, format_ in older(pairs) if not found.described else ():
        _learned(found, path, format_, request, hints)
        if found.described:
            break
    return found


def tables_of(path: str, format_: str) -> Tables | None:
    """Return the table rules of a file's format; None if its logs have no tables."""
    try:
        known = detect.by_name(format_of(path, format_)).tables
    except BinlogtoolError:
        return None
    return None if known is None else known()


def _learned(found: Columns, path: str, format_: str, request: Request, hints: Hints | None) -> None:
    """Collect columns in one pass over a file."""
    import binlogtool

    rules = tables_of(path, format_)
    if rules is None:
        return
    wanted = Selection(types=rules.types, objects=(glob.escape(found.name), *rules.objects))
    with (
        contextlib.suppress(BinlogtoolError),
        binlogtool.open(path, format=format_, limits=request.limits, backend=request.backend, hints=hints) as log,
    ):
        for one in log.tables(wanted):
            if isinstance(one, Block):
                for told in filter(None, one.bodies):
                    found.take(told)


def older(files: Sequence[tuple[str, str]]) -> Iterator[tuple[str, str]]:
    """Yield the files before these in their directories that may describe their tables, the latest first.

    Ends with the first file that describes all tables.
    """
    folders = dict[str, set[str]]()
    for path, format_ in files:
        rules = tables_of(path, format_)
        if not is_url(path) and rules is not None and rules.older:
            folders.setdefault(os.path.dirname(os.path.abspath(path)), set()).add(os.path.abspath(path))
    for folder, named in folders.items():
        with contextlib.suppress(BinlogtoolError):
            known = files_of(folder, "auto")
            first = min((n for n, (path, _) in enumerate(known) if os.path.abspath(path) in named), default=0)
            yield from _back(known[:first])


def older_tables(
    files: Sequence[tuple[str, str]], limits: Limits, backend: str, hints: Hints | None = None
) -> list[Table]:
    """Return the tables that older files describe, for given (path, format) pairs."""
    import binlogtool

    found = dict[tuple[str, ...], Table]()
    for path, format_ in reversed(list(older(files))):
        rules = tables_of(path, format_)
        wanted = Selection(types=rules.types, objects=rules.objects) if rules is not None else Selection()
        with binlogtool.open(path, format=format_, limits=limits, backend=backend, hints=hints) as log:
            for block in log.tables(wanted, known=tuple(found.values())):
                for told in block.bodies if isinstance(block, Block) else ():
                    found.update({table.ids: table for table in told.described})
    return list(found.values())


def _back(files: Sequence[tuple[str, str]]) -> Iterator[tuple[str, str]]:
    for path, format_ in reversed(files):
        yield path, format_
        rules = tables_of(path, format_)
        if rules is not None and any(fnmatch.fnmatchcase(base_name(path), one) for one in rules.older):
            return
