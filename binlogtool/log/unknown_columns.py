"""What is said of a condition on a column that no table of a log has: it chooses no row, since it is misspelt."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from difflib import get_close_matches
from typing import Any, Protocol

from binlogtool.errors import BinlogtoolError, UsageError
from binlogtool.formats.tables import Table
from binlogtool.log.records import Block
from binlogtool.log.select import Selection
from binlogtool.log.where import where


class Readable(Protocol):
    """A log that can be read more than once."""

    def blocks(self, selection: Selection, *, decode: str) -> Iterator[Any]:
        """See `log.open.Log`."""

    def tables(self, selection: Selection, *, wants: Callable[[Table], bool] | None) -> Iterator[Any]:
        """See `log.open.Log`."""


_NAMED = 8
_NAMELESS = "@1"


def demand_columns(log: Readable, text: str) -> None:
    """Raises where no table of a log has a column that a condition names. Reads the log once more.

    Raises:
        UsageError: so it is; where the log tells of no images of rows, nothing is known.
    """
    missing, known = set(where(text).columns), set[str]()
    for name in _of_images(log) if missing else ():
        known.add(name)
        missing.discard(name)
        if not missing:
            return
    if missing and known and _NAMELESS not in known:
        known.update(_of_tables(log))  # images may lack some
    missing -= known
    if missing and known:
        raise UsageError(_said(min(missing), known))


def _of_images(log: Readable) -> Iterator[str]:
    """The names of columns as records show them."""
    for block in log.blocks(Selection(), decode="full"):
        for body in block.bodies if isinstance(block, Block) else ():
            rows: Any = body.get("rows") if isinstance(body, dict) else None
            for row in rows if isinstance(rows, list) else ():
                for side in ("before", "after"):
                    yield from (row.get(side) or () if isinstance(row, dict) else ())


def _of_tables(log: Readable) -> Iterator[str]:
    try:
        for block in log.tables(Selection(), wants=lambda _: False):
            for told in block.bodies if isinstance(block, Block) else ():
                for table in () if told is None else told.described:
                    yield from (column.name for column in table.columns)
    except BinlogtoolError:
        return


def _said(name: str, known: set[str]) -> str:
    nameless = _NAMELESS in known
    near = get_close_matches(name, sorted(known), 3)
    more = ", …" if len(known) > _NAMED else ""
    told = f"is it {' or '.join(near)}?" if near else f"they have {', '.join(sorted(known)[:_NAMED])}{more}"
    if nameless:
        told += " (some have no names in the log: --schema FILE.sql gives them, or name one by its place: after.`@1`)"
    return f"--where: no table of the log has a column {name}: {told}"
