"""Names in a selection that a log does not have, most likely misspelt: objects, types, origins, transactions."""

from __future__ import annotations

import fnmatch
import re
from collections.abc import Iterable, Iterator
from typing import Any

import msgspec
from msgspec.structs import replace

from binlogtool.errors import UsageError
from binlogtool.formats.choosing import TransactionPredicate
from binlogtool.formats.layouts import Batch
from binlogtool.log.blocks import BlockDecoder
from binlogtool.log.filters import RecordFilter, parse_included_sets, split_sets
from binlogtool.log.record_types import resolve_types, suggest_names
from binlogtool.log.records import RecordBlock
from binlogtool.log.select import Selection

_MAX_NAMES = 100_000
_MAX_LISTED = 8


class UnmatchedNames(msgspec.Struct, frozen=True):
    """Names of a selection without a match.

    missing: names that the log does not have, one message each. absent: names that it could have, but nothing was
    selected.
    """

    missing: tuple[str, ...] = ()
    absent: tuple[str, ...] = ()

    def require_none(self) -> None:
        """Check that nothing is missing, for a selection that selected nothing.

        Raises:
            UsageError: something is.
        """
        if self.missing:
            raise UsageError("; ".join(self.missing))


class NameCensus:
    """Collect the names in a log that a selection could refer to."""

    def __init__(self, selection: Selection, schema: str | None = None) -> None:
        """Create an empty census. schema: the user's CREATE TABLE statements; names defined there are not misspelt."""
        self._selection = selection
        self._schema = schema or ""
        self._count = 0
        self._objects, self._types, self._known_types = set[str](), set[str](), set[str]()
        self._type_names, self._formats = dict[str, frozenset[str]](), set[str]()
        self._origins, self._first_last_txn, self._matched_transactions = set[int](), ("", ""), set[str]()

    @property
    def is_needed(self) -> bool:
        """True if the selection names anything."""
        s = self._selection
        return bool(s.objects or s.exclude_objects or s.types or s.origins or s.include_gtids or s.xid is not None)

    def read_batch(
        self, decoder: BlockDecoder, batch: Batch, _record_filter: RecordFilter | None = None
    ) -> Iterator[RecordBlock]:
        """Collect the names of the records of a batch; yields nothing (a splitter of `log.open`)."""
        output = decoder.format.output
        if decoder.format.name not in self._formats:
            self._formats.add(decoder.format.name)
            self._known_types.update(output.types.values(), output.type_groups)
            for name in self._selection.types:
                types = self._type_names.get(name, frozenset()) | resolve_types((name,), output)
                self._type_names[name] = types
        sets = parse_included_sets(self._selection, output.gtid_rules)
        plain_decoder = replace(decoder, decode="frame", raw=False, script=None, row_condition=None, reader=None)
        for block in plain_decoder.decode_batch(batch, RecordFilter(Selection())):
            self._add_envelopes(block.envelope, sets)
        yield from ()

    def _add_envelopes(self, envelope: Any, sets: Iterable[tuple[str, TransactionPredicate]]) -> None:
        self._count += len(envelope.type)
        self._types.update(envelope.type)
        if self._selection.origins:
            self._origins.update(one for one in set(envelope.origin) if one is not None)
        if len(self._objects) < _MAX_NAMES:
            self._objects.update(one for one in set(envelope.object) if one is not None)
        txns = [str(one) for one in dict.fromkeys(envelope.txn) if one is not None] if self._needs_transactions else []
        if txns:
            self._first_last_txn = (self._first_last_txn[0] or txns[0], txns[-1])
        for text, predicate in sets:
            if text not in self._matched_transactions and any(map(predicate, txns)):
                self._matched_transactions.add(text)
        if self._selection.xid in txns:
            self._matched_transactions.add(str(self._selection.xid))

    @property
    def _needs_transactions(self) -> bool:
        return self._selection.include_gtids is not None or self._selection.xid is not None

    def track_batch(self, decoder: BlockDecoder, batch: Batch) -> None:
        """Collect the names of a batch while a stream is read."""
        for _ in self.read_batch(decoder, batch):
            pass

    def find_unmatched(self) -> UnmatchedNames:
        """Return the names that the log does not have."""
        if not self._count:
            return UnmatchedNames()
        s = self._selection
        unknown = [glob for glob in s.objects if not self._is_in_schema(glob)]
        missing = [*self._unmatched_objects("object", unknown), *self._unmatched_transactions()]
        if s.origins and self._origins.isdisjoint(s.origins):
            text = _join_names(map(str, sorted(self._origins)))
            missing.append(f"--origin {s.origins[0]}: no record of the log has this origin; they have {text}")
        absent = [*self._unmatched_objects("exclude-object", s.exclude_objects)]
        absent += self._unmatched_objects("object", [glob for glob in s.objects if self._is_in_schema(glob)])
        for name, types in self._type_names.items():
            if not self._types.isdisjoint(types):
                continue
            if types <= self._known_types:
                listed = _join_names(sorted(self._types))
                absent.append(f"--type {name}: the log has no record of this type; it has {listed}")
            else:
                text = f"--type {name}: {', '.join(sorted(self._formats))} has no such type"
                missing.append(text + suggest_names(name, self._known_types))
        return UnmatchedNames(tuple(missing), tuple(absent))

    def _is_in_schema(self, glob: str) -> bool:
        return bool(re.search(rf"\b{re.escape(glob.rpartition('.')[2])}\b", self._schema))

    def _unmatched_objects(self, option: str, globs: Iterable[str]) -> Iterator[str]:
        for glob in globs:
            if any(fnmatch.fnmatchcase(name, glob) for name in self._objects):
                continue
            candidates, kind = self._objects, "object"
            if glob.endswith(".*"):
                candidates, kind = {name.rpartition(".")[0] + ".*" for name in self._objects if "." in name}, "database"
            text = f"--{option} {glob}: the log has no such {kind}" if kind == "object" else ""
            text = text or f"--{option} {glob} (--database {glob[:-2]}): the log has no such database"
            yield text + (suggest_names(glob, candidates) or _describe_names(candidates))

    def _unmatched_transactions(self) -> Iterator[str]:
        s, (first, last) = self._selection, self._first_last_txn
        listed = f"it has {first} to {last}" if first else "it names no transactions"
        for text in dict.fromkeys(split_sets(s.include_gtids)):
            if text not in self._matched_transactions:
                yield f"--include-gtids {text}: the log has no such transaction; {listed}"
        if s.xid is not None and s.xid not in self._matched_transactions:
            yield f"--xid {s.xid}: the log has no such transaction; {listed}"


def _describe_names(names: Iterable[str]) -> str:
    sorted_names = sorted(names)
    return f"; it has {_join_names(sorted_names)}" if sorted_names else "; its records name none"


def _join_names(names: Iterable[str]) -> str:
    name_list = list(names)
    return ", ".join(name_list[:_MAX_LISTED]) + (", …" if name_list[_MAX_LISTED:] else "")
