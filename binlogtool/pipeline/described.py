"""What columns a table or space has, as its log says: TABLE_MAP events, rows of `_space`, or nothing at all."""

from __future__ import annotations

import contextlib
import glob
import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from binlogtool.errors import BinlogtoolError, UsageError
from binlogtool.formats.base import Hints
from binlogtool.log.records import Block
from binlogtool.log.select import Selection
from binlogtool.log.source import is_url
from binlogtool.pipeline.cells import mysql_type, tarantool_type
from binlogtool.pipeline.inputs import files_of

if TYPE_CHECKING:
    from binlogtool.pipeline.request import Request

SPACES = "_space"
TUPLE = "tuple"
"""The only column of a space of which nothing is known: each tuple as JSON."""
_MAP = "TABLE_MAP"
_ROWS = ("INSERT", "REPLACE", "UPDATE", "UPSERT", "DELETE")
_ID, _NAME, _FORMAT = 0, 2, 6
"""Fields of `_space`."""


class Field(NamedTuple):
    """A column of the object: its name, and its type as Spark writes it."""

    name: str
    kind: str


class Columns:
    """Collects the columns of one object from the blocks of its files. name: of a space the name, or its number.

    ids: what else the records of the space call it: its number as text, its name.
    """

    def __init__(self, name: str) -> None:
        self.name = name
        self.ids: set[str] = set()
        self._kinds: dict[str, str] = {}
        self._met = False

    @property
    def described(self) -> bool:
        """Has something said what it is?"""
        return bool(self._kinds)

    def take(self, block: Block) -> None:
        """Learns from TABLE_MAP events of the object, and from rows of `_space`."""
        for i, body in enumerate(block.bodies):
            if not isinstance(body, Mapping):
                continue
            if block.envelope.object[i] == SPACES:
                self._space(body)
            if block.envelope.object[i] != self.name:
                continue
            if isinstance(body.get("columns"), list):
                self._learn(Field(c.get("name", f"@{n}"), mysql_type(c)) for n, c in enumerate(body["columns"], 1))
            self._met = self._met or "space_id" in body

    def _space(self, body: Mapping[str, Any]) -> None:
        """A space is made, or altered."""
        row, key = body.get("tuple"), body.get("key")
        if not isinstance(row, list):
            return
        if isinstance(key, list) and key:
            self._altered(str(key[0]), row, body.get("index_base", 0))
        elif len(row) > _NAME and self.name in (str(row[_ID]), row[_NAME]):
            self.ids |= {str(row[_ID]), str(row[_NAME])} - {self.name}
            self._format(row[_FORMAT] if len(row) > _FORMAT else None)

    def _altered(self, number: str, operations: Sequence[Any], base: Any) -> None:
        for one in operations:
            if not isinstance(one, list) or len(one) != 3 or one[0] != "=" or not isinstance(base, int):
                continue
            if one[1] in (_NAME + base, "name") and self.name in (number, one[2]):
                self.ids |= {number, str(one[2])} - {self.name}
            elif one[1] in (_FORMAT + base, "format") and number in (*self.ids, self.name):
                self._format(one[2])

    def _format(self, form: Any) -> None:
        known = [one for one in form if isinstance(one, Mapping)] if isinstance(form, list) else []
        if not known and not self._kinds:
            self._kinds[TUPLE] = "string"
        elif known:
            self._kinds.pop(TUPLE, None)
            fields = enumerate(known, 1)
            self._learn(Field(str(c.get("name", f"@{n}")), tarantool_type(c.get("type"))) for n, c in fields)

    def _learn(self, fields: Iterable[Field]) -> None:
        """A column that had another type before becomes text."""
        for name, kind in fields:
            self._kinds[name] = kind if self._kinds.get(name, kind) == kind else "string"

    @property
    def fields(self) -> list[Field]:
        """In the order in which they were met.

        Raises:
            UsageError: there is no such object.
        """
        if self._kinds:
            return [Field(name, kind) for name, kind in self._kinds.items()]
        if self._met:
            return [Field(TUPLE, "string")]
        raise UsageError(f"object {self.name!r}: no TABLE_MAP event, no row of _space and no record is about it")


def columns_of(request: Request, hints: Hints | None) -> Columns:
    """What the files say of the object of a request: one pass over them. Where they do not describe a space, the older
    files of their directories are asked, the last one first."""
    assert request.object is not None
    found = Columns(request.object)
    pairs = [(member.path, member.format) for member in request.members]
    asked = [pair for pair in pairs if _learned(found, *pair, request, hints)]
    for path, format_ in _older(asked) if not found.described else ():
        _learned(found, path, format_, request, hints)
        if found.described:
            break
    return found


def _learned(found: Columns, path: str, format_: str, request: Request, hints: Hints | None) -> bool:
    """Passes over one file. Has its format spaces, which older files may describe?"""
    import binlogtool

    wanted = Selection(types=(_MAP, *_ROWS), objects=(glob.escape(found.name), SPACES))
    with (
        contextlib.suppress(BinlogtoolError),
        binlogtool.open(path, format=format_, limits=request.limits, backend=request.backend, hints=hints) as log,
    ):
        for one in log.blocks(wanted):
            if isinstance(one, Block):
                found.take(one)
        return _MAP not in log.files[0].format.types.values()
    return False


def _older(files: Sequence[tuple[str, str]]) -> Iterator[tuple[str, str]]:
    """The files that stand before these in their directories, the last one first."""
    folders = dict[str, set[str]]()
    for path, _ in files:
        if not is_url(path):
            folders.setdefault(os.path.dirname(os.path.abspath(path)), set()).add(os.path.abspath(path))
    for folder, named in folders.items():
        with contextlib.suppress(BinlogtoolError):
            known = files_of(folder, "auto")
            first = min((n for n, (path, _) in enumerate(known) if os.path.abspath(path) in named), default=0)
            yield from reversed(known[:first])
