"""Columns in a condition that no table of a log has: most likely misspelt, as they select no row."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from difflib import get_close_matches
from typing import Any

from msgspec.structs import replace

from binlogtool.errors import UsageError
from binlogtool.formats.layouts import Batch
from binlogtool.log.blocks import Blocks
from binlogtool.log.filters import Filter
from binlogtool.log.records import Block
from binlogtool.log.select import Selection
from binlogtool.log.where import where

_NAMED = 8
_NAMELESS = "@1"


class Columns:
    """Compare the columns that a condition names with those that the tables of a log have.

    Only formats whose records have row images describe columns; for others nothing is known.
    """

    def __init__(self, condition: str) -> None:
        self._asked, self._known = where(condition).columns, set[str]()

    @property
    def missing(self) -> frozenset[str]:
        """Columns that no table is known to have."""
        return self._asked - self._known

    def take(self, names: Iterable[str]) -> None:
        """Add the columns of a table."""
        self._known.update(names)

    def of(self, maker: Blocks, batch: Batch, _wanted: Filter | None = None) -> Iterator[Block]:
        """Yield the records of a batch that describe tables, fully decoded (a splitter of `log.open`)."""
        rules = maker.format.tables
        if rules is None or maker.format.output.changes is None or not self.missing:
            return
        plain = replace(maker, decode="full", raw=False, script=None, choice=None, reader=None)
        for block in plain.of(batch, Filter(Selection(types=rules().types))):
            for body in block.bodies:
                self.take(_names(body))
            yield block

    def look(self, maker: Blocks, batch: Batch) -> None:
        """Track the columns of a batch while a stream is read."""
        for _ in self.of(maker, batch):
            pass

    @property
    def unknown(self) -> str | None:
        """The message about a column that no table has; None = there is none, or no table is known."""
        return _said(min(self.missing), self._known) if self.missing and self._known else None

    def demand(self) -> None:
        """Check that some table has each column that the condition names.

        Raises:
            UsageError: no table has one.
        """
        if self.unknown is not None:
            raise UsageError(self.unknown)


def _names(body: Any) -> Iterator[str]:
    columns: Any = body.get("columns") if isinstance(body, dict) else None
    for number, column in enumerate(columns if isinstance(columns, list) else (), 1):
        yield column.get("name") or f"@{number}"


def _said(name: str, known: set[str]) -> str:
    nameless = _NAMELESS in known
    near = get_close_matches(name, sorted(known), 3)
    more = ", …" if len(known) > _NAMED else ""
    told = f"is it {' or '.join(near)}?" if near else f"they have {', '.join(sorted(known)[:_NAMED])}{more}"
    if nameless:
        told += " (some have no names in the log: --schema FILE.sql gives them, or name one by its place: after.`@1`)"
    return f"--where: no table of the log has a column {name}: {told}"
