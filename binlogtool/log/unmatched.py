"""Names in a selection that a log does not have, most likely misspelt: objects, types, origins, transactions."""

from __future__ import annotations

import fnmatch
import re
from collections.abc import Iterable, Iterator
from typing import Any

import msgspec
from msgspec.structs import replace

from binlogtool.errors import UsageError
from binlogtool.formats.choosing import Wanted
from binlogtool.formats.layouts import Batch
from binlogtool.log.blocks import Blocks
from binlogtool.log.filters import Filter, items_of, sets_of
from binlogtool.log.record_types import matching_types, near_names
from binlogtool.log.records import Block
from binlogtool.log.select import Selection

_MOST_NAMES = 100_000
_SHOWN = 8


class Unmatched(msgspec.Struct, frozen=True):
    """Names of a selection without a match.

    missing: names that the log does not have, one message each. absent: names that it could have, but nothing was
    selected.
    """

    missing: tuple[str, ...] = ()
    absent: tuple[str, ...] = ()

    def demand_none(self) -> None:
        """Check that nothing is missing, for a selection that selected nothing.

        Raises:
            UsageError: something is.
        """
        if self.missing:
            raise UsageError("; ".join(self.missing))


class Census:
    """Collect the names in a log that a selection could refer to."""

    def __init__(self, selection: Selection, schema: str | None = None) -> None:
        """Create an empty census. schema: the user's CREATE TABLE statements; names defined there are not misspelt."""
        self._selection = selection
        self._schema = schema or ""
        self._count = 0
        self._objects, self._types, self._known_types = set[str](), set[str](), set[str]()
        self._type_names, self._formats = dict[str, frozenset[str]](), set[str]()
        self._origins, self._txns, self._met = set[int](), ("", ""), set[str]()

    @property
    def is_needed(self) -> bool:
        """True if the selection names anything."""
        s = self._selection
        return bool(s.objects or s.exclude_objects or s.types or s.origins or s.include_gtids or s.xid is not None)

    def of(self, maker: Blocks, batch: Batch, _wanted: Filter | None = None) -> Iterator[Block]:
        """Collect the names of the records of a batch; yields nothing (a splitter of `log.open`)."""
        output = maker.format.output
        if maker.format.name not in self._formats:
            self._formats.add(maker.format.name)
            self._known_types.update(output.types.values(), output.type_groups)
            for name in self._selection.types:
                types = self._type_names.get(name, frozenset()) | matching_types((name,), output)
                self._type_names[name] = types
        sets = sets_of(self._selection, output.gtids)
        plain = replace(maker, decode="frame", raw=False, script=None, choice=None, reader=None)
        for block in plain.of(batch, Filter(Selection())):
            self._take(block.envelope, sets)
        yield from ()

    def _take(self, e: Any, sets: Iterable[tuple[str, Wanted]]) -> None:
        self._count += len(e.type)
        self._types.update(e.type)
        if self._selection.origins:
            self._origins.update(one for one in set(e.origin) if one is not None)
        if len(self._objects) < _MOST_NAMES:
            self._objects.update(one for one in set(e.object) if one is not None)
        txns = [str(one) for one in dict.fromkeys(e.txn) if one is not None] if self._asks_transactions else []
        if txns:
            self._txns = (self._txns[0] or txns[0], txns[-1])
        for text, wanted in sets:
            if text not in self._met and any(map(wanted, txns)):
                self._met.add(text)
        if self._selection.xid in txns:
            self._met.add(str(self._selection.xid))

    @property
    def _asks_transactions(self) -> bool:
        return self._selection.include_gtids is not None or self._selection.xid is not None

    def look(self, maker: Blocks, batch: Batch) -> None:
        """Collect the names of a batch while a stream is read."""
        for _ in self.of(maker, batch):
            pass

    def found(self) -> Unmatched:
        """Return the names that the log does not have."""
        if not self._count:
            return Unmatched()
        s = self._selection
        unknown = [glob for glob in s.objects if not self._is_declared(glob)]
        missing = [*self._no_objects("object", unknown), *self._no_transactions()]
        if s.origins and self._origins.isdisjoint(s.origins):
            text = _listed(map(str, sorted(self._origins)))
            missing.append(f"--origin {s.origins[0]}: no record of the log has this origin; they have {text}")
        absent = [*self._no_objects("exclude-object", s.exclude_objects)]
        absent += self._no_objects("object", [glob for glob in s.objects if self._is_declared(glob)])
        for name, types in self._type_names.items():
            if not self._types.isdisjoint(types):
                continue
            if types <= self._known_types:
                has = _listed(sorted(self._types))
                absent.append(f"--type {name}: the log has no record of this type; it has {has}")
            else:
                text = f"--type {name}: {', '.join(sorted(self._formats))} has no such type"
                missing.append(text + near_names(name, self._known_types))
        return Unmatched(tuple(missing), tuple(absent))

    def _is_declared(self, glob: str) -> bool:
        return bool(re.search(rf"\b{re.escape(glob.rpartition('.')[2])}\b", self._schema))

    def _no_objects(self, option: str, globs: Iterable[str]) -> Iterator[str]:
        for glob in globs:
            if any(fnmatch.fnmatchcase(name, glob) for name in self._objects):
                continue
            known, what = self._objects, "object"
            if glob.endswith(".*"):
                known, what = {name.rpartition(".")[0] + ".*" for name in self._objects if "." in name}, "database"
            text = f"--{option} {glob}: the log has no such {what}" if what == "object" else ""
            text = text or f"--{option} {glob} (--database {glob[:-2]}): the log has no such database"
            yield text + (near_names(glob, known) or _known(known))

    def _no_transactions(self) -> Iterator[str]:
        s, (first, last) = self._selection, self._txns
        has = f"it has {first} to {last}" if first else "it names no transactions"
        for text in dict.fromkeys(items_of(s.include_gtids)):
            if text not in self._met:
                yield f"--include-gtids {text}: the log has no such transaction; {has}"
        if s.xid is not None and s.xid not in self._met:
            yield f"--xid {s.xid}: the log has no such transaction; {has}"


def _known(names: Iterable[str]) -> str:
    found = sorted(names)
    return f"; it has {_listed(found)}" if found else "; its records name none"


def _listed(names: Iterable[str]) -> str:
    found = list(names)
    return ", ".join(found[:_SHOWN]) + (", …" if found[_SHOWN:] else "")
