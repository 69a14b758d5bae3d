"""Find names in a selection that do not occur in the log, and suggest similar names."""

from __future__ import annotations

import fnmatch
import re
from collections.abc import Iterable, Iterator
from difflib import get_close_matches
from typing import TYPE_CHECKING, Any

import msgspec
from msgspec.structs import replace

from binlogtool.core.record_and_selection_types import RecordBlock, Selection, format_time
from binlogtool.core.record_filter import (
    NUMBERED_GTID,
    RecordFilter,
    parse_gtid_source,
    parse_selected_gtid_sets,
    resolve_type_names,
    split_gtid_sets,
    split_position_gtids,
)
from binlogtool.errors import UsageError, format_name_suggestions, join_names

if TYPE_CHECKING:
    from binlogtool.core.decode_batches import BlockDecoder
    from binlogtool.core.open_log import LogReader
    from binlogtool.format_api.format import TransactionPredicate
    from binlogtool.format_api.layout import Batch

_MAX_NAMES = 100_000
_MAX_LISTED = 8
_NAME = r"(?:`[^`]+`|[^\s`.(]+)"
_CREATED_TABLE = re.compile(
    rf"\bCREATE\s+(?:OR\s+REPLACE\s+)?TABLE\s+(?:IF\s+NOT\s+EXISTS\s+)?({_NAME}(?:\s*\.\s*{_NAME})?)", re.IGNORECASE
)


class UnmatchedNames(msgspec.Struct, frozen=True):
    """Names of a selection without a match.

    missing: names that the log does not have, one message each. absent: names that it could have, but nothing was
    selected. transactions: the messages of both that are about the GTIDs that bound the selection.
    """

    missing: tuple[str, ...] = ()
    absent: tuple[str, ...] = ()
    transactions: tuple[str, ...] = ()

    def refuse_unmatched_gtids(self) -> None:
        """Check that the log has the GTIDs that bound the selection, for an output that changes a server.

        Raises:
            UsageError: it lacks one, so more would be written than the user meant.
        """
        if self.transactions:
            raise UsageError("; ".join(self.transactions))

    def refuse_missing_names(self) -> None:
        """Check that nothing is missing, for a selection that selected nothing. Raises UsageError: something is."""
        if self.missing:
            raise UsageError("; ".join(self.missing))


class UnmatchedNameFinder:
    """Collect the names in a log that a selection could refer to."""

    def __init__(self, selection: Selection, schema: str | None = None) -> None:
        """Create an empty finder. schema: the user's CREATE TABLE statements; names defined there are not misspelt."""
        self._selection = selection
        self._schema = schema or ""
        self._count = 0
        self._objects, self._types, self._known_types = set[str](), set[str](), set[str]()
        self._type_names, self._formats = dict[str, frozenset[str]](), set[str]()
        self._origins, self._matched_transactions = set[int](), set[str]()
        self._transactions = TransactionNumberRanges()
        self._first_time: int | None = None
        self._last_time: int | None = None
        self._compared: tuple[tuple[str, str], ...] = ()
        if selection.where is not None:
            from binlogtool.query.parse_where import iter_compared_object_and_type_names

            self._compared = tuple(iter_compared_object_and_type_names(selection.where))

    @property
    def is_needed(self) -> bool:
        """True if the selection names anything."""
        s = self._selection
        has_names = s.objects or s.exclude_objects or s.types or s.origins or self._needs_transactions
        return bool(has_names or self._compared) or self._has_times

    @property
    def _has_times(self) -> bool:
        return (self._selection.start_time, self._selection.stop_time) != (None, None)

    def collect_names_as_batch_reader(
        self, decoder: BlockDecoder, batch: Batch, _record_filter: RecordFilter | None = None
    ) -> Iterator[RecordBlock]:
        """Collect the names of the records of a batch; yields nothing (a `core.open_log.BatchReader`)."""
        output = decoder.format.output
        if decoder.format.name not in self._formats:
            self._formats.add(decoder.format.name)
            self._known_types.update(output.types.values(), output.type_groups)
            for name in self._selection.types:
                types = self._type_names.get(name, frozenset()) | resolve_type_names((name,), output)
                self._type_names[name] = types
        sets = parse_selected_gtid_sets(self._selection, output.gtid_rules)
        plain_decoder = replace(decoder, decode="frame", raw=False, script=None, row_condition=None, reader=None)
        for block in plain_decoder.decode_batch(batch, RecordFilter(Selection())):
            self._collect_envelope_names(block.envelope, sets)
        yield from ()

    def _collect_envelope_names(self, envelope: Any, sets: Iterable[tuple[str, TransactionPredicate]]) -> None:
        self._count += len(envelope.type)
        self._types.update(envelope.type)
        if self._has_times and (times := [one for one in envelope.time if one]):
            first, last = min(times), max(times)
            self._first_time = first if self._first_time is None else min(self._first_time, first)
            self._last_time = last if self._last_time is None else max(self._last_time, last)
        if self._selection.origins:
            self._origins.update(one for one in set(envelope.origin) if one is not None)
        if len(self._objects) < _MAX_NAMES:
            self._objects.update(one for one in set(envelope.object) if one is not None)
        txns = [str(one) for one in dict.fromkeys(envelope.txn) if one is not None] if self._needs_transactions else []
        self._transactions.add_all(txns)
        for text, predicate in sets:
            if text not in self._matched_transactions and any(map(predicate, txns)):
                self._matched_transactions.add(text)
        if self._selection.xid in txns:
            self._matched_transactions.add(str(self._selection.xid))

    @property
    def _needs_transactions(self) -> bool:
        s = self._selection
        return not (s.include_gtids is s.exclude_gtids is s.xid is None) or any(
            split_position_gtids(one) for one in (s.start, s.stop)
        )

    def collect_names_of_batch(self, decoder: BlockDecoder, batch: Batch) -> None:
        """Collect the names of a batch while a stream is read."""
        for _ in self.collect_names_as_batch_reader(decoder, batch):
            pass

    def find_unmatched_names(self, *, is_empty: bool) -> UnmatchedNames:
        """Return the names that the log does not have. is_empty: the selection has no record."""
        if not self._count:
            return UnmatchedNames()
        s = self._selection
        unknown = [glob for glob in s.objects if not self._is_in_schema(glob)]
        exclusions = list(self._describe_unmatched_exclusions())
        missing = [*self._describe_unmatched_objects("object", unknown), *self._describe_unmatched_transactions()]
        if s.origins and self._origins.isdisjoint(s.origins):
            text = join_names(map(str, sorted(self._origins)))
            missing.append(f"--origin {s.origins[0]}: no record of the log has this origin; the log has {text}")
        absent = [*self._describe_unmatched_objects("exclude-object", s.exclude_objects), *exclusions]
        absent += self._describe_unmatched_objects("object", [glob for glob in s.objects if self._is_in_schema(glob)])
        for name, types in self._type_names.items():
            if not self._types.isdisjoint(types):
                continue
            if types <= self._known_types:
                listed = join_names(sorted(self._types))
                absent.append(f"--type {name}: the log has no record of this type; it has {listed}")
            else:
                text = f"--type {name}: {', '.join(sorted(self._formats))} has no such record type"
                missing.append(text + format_name_suggestions(name, self._known_types))
        if is_empty:
            absent += self._describe_unmatched_comparisons()
        if is_empty and not missing and not absent:
            absent += self._describe_times()
        bounds = [*self._describe_unmatched_starts(), *self._describe_unreached_stops(), *exclusions]
        return UnmatchedNames(tuple(missing), tuple(absent), tuple(bounds))

    def _describe_times(self) -> Iterator[str]:
        """Yield from when to when the log goes, for a selection by time."""
        if self._first_time is not None and self._last_time is not None:
            first, last = (format_time(one) for one in (self._first_time, self._last_time))
            yield f"the selection contains no record of the log, which goes from {first} to {last}"

    def _describe_unmatched_comparisons(self) -> Iterator[str]:
        """Yield a message for each object or type of --where that no record has."""
        for member, name in self._compared:
            names = self._objects if member == "object" else self._types
            if name not in names:
                text = f"--where {member} = {name!r}: no record of the log has this {member}"
                yield text + (format_name_suggestions(name, names) or _describe_names(names))

    def _is_in_schema(self, glob: str) -> bool:
        return bool(re.search(rf"\b{re.escape(glob.rpartition('.')[2])}\b", self._schema))

    def _describe_unmatched_objects(self, option: str, globs: Iterable[str]) -> Iterator[str]:
        for glob in globs:
            if any(fnmatch.fnmatchcase(name, glob) for name in self._objects):
                continue
            candidates, kind = self._objects, "object"
            if glob.endswith(".*"):
                candidates, kind = {name.rpartition(".")[0] + ".*" for name in self._objects if "." in name}, "database"
            text = f"--{option} {glob}: the log has no such {kind}" if kind == "object" else ""
            text = text or f"--{option} {glob} (--database {glob[:-2]}): the log has no such database"
            yield text + (format_name_suggestions(glob, candidates) or _describe_names(candidates))

    def _describe_unmatched_transactions(self) -> Iterator[str]:
        s = self._selection
        for text in dict.fromkeys(split_gtid_sets(s.include_gtids)):
            if text not in self._matched_transactions:
                yield (
                    f"--include-gtids {text}: the log has no such "
                    f"transaction{self._transactions.format_suggestion(text)}"
                )
        if s.xid is not None and s.xid not in self._matched_transactions:
            yield f"--xid {s.xid}: the log has no such transaction{self._transactions.format_suggestion(s.xid)}"
        yield from self._describe_starts(self._unknown_sources(s.start))
        yield from self._describe_stops(self._unreached_stops())

    def _unknown_sources(self, position: str | None) -> list[str]:
        return [one for one in split_position_gtids(position) if not self._transactions.has_source(one)]

    def _unreached_stops(self) -> list[str]:
        return [
            one
            for one in split_position_gtids(self._selection.stop)
            if one not in self._matched_transactions and not self._transactions.has_same_or_later_number(one)
        ]

    def _describe_starts(self, texts: Iterable[str]) -> Iterator[str]:
        for text in texts:
            yield (
                f"--start-position gtid:{text}: the log has no such source{self._transactions.format_suggestion(text)}"
            )

    def _describe_stops(self, texts: Iterable[str]) -> Iterator[str]:
        for text in texts:
            yield (
                f"--stop-position gtid:{text}: the log does not contain this "
                f"GTID{self._transactions.format_suggestion(text)}"
            )

    def _describe_unmatched_starts(self) -> Iterator[str]:
        """Yield messages if the log has no source of the start position, so that nothing is left out."""
        unknown = self._unknown_sources(self._selection.start)
        if len(unknown) == len(split_position_gtids(self._selection.start)):
            yield from self._describe_starts(unknown)

    def _describe_unreached_stops(self) -> Iterator[str]:
        """Yield messages about sources that the log has but that do not stop in it; of none, if it has no source."""
        unknown, stop = self._unknown_sources(self._selection.stop), self._selection.stop
        has_source = len(unknown) < len(split_position_gtids(stop))
        yield from self._describe_stops(one for one in self._unreached_stops() if not has_source or one not in unknown)

    def _describe_unmatched_exclusions(self) -> Iterator[str]:
        """Yield a message if the excluded transactions exclude none."""
        texts = split_gtid_sets(self._selection.exclude_gtids)
        if texts and self._matched_transactions.isdisjoint(texts):
            suggestion = self._transactions.format_suggestion(texts[0])
            yield f"--exclude-gtids {', '.join(texts)}: the log has no such transaction{suggestion}"


def describe_unmatched_schema(log: LogReader, schema: str) -> str:
    """Return a message if --schema defines no table of the log, which is read up to the first match; otherwise ""."""
    defined = {_plain_name(match[1]) for match in _CREATED_TABLE.finditer(schema)}
    names = set[str]()
    for block in log.blocks(decode="frame"):
        if isinstance(block, RecordBlock) and len(names) < _MAX_NAMES:
            new_names = {one for one in block.envelope.object if one is not None} - names
            if any(not defined.isdisjoint((name.casefold(), name.casefold().rpartition(".")[2])) for name in new_names):
                return ""
            names |= new_names
    if not names or not defined:
        return ""
    candidates = {spelling.casefold(): name for name in names for spelling in (name, name.rpartition(".")[2])}
    matches = ((one, get_close_matches(one, candidates, 1)) for one in sorted(defined))
    near = next((f"{one}: did you mean {candidates[match[0]]}?" for one, match in matches if match), "")
    text = "its only table is not" if len(defined) == 1 else f"none of its {len(defined):,} tables is"
    near = near or f"it defines {join_names(sorted(defined))}, the log has {join_names(sorted(names))}"
    return f"--schema: {text} in the log; {near}"


def _plain_name(name: str) -> str:
    return re.sub(r"\s*\.\s*", ".", name).replace("`", "").casefold()


class TransactionNumberRanges:
    """The first and last number of the transactions of each source."""

    def __init__(self) -> None:
        self._ranges: dict[str, tuple[int, int]] = {}
        self._unnumbered: dict[str, None] = {}

    def add_all(self, txns: Iterable[str]) -> None:
        """Add transactions by their names."""
        for txn in txns:
            if (match := NUMBERED_GTID.fullmatch(txn)) is None:
                if len(self._unnumbered) <= _MAX_LISTED:
                    self._unnumbered[txn] = None
            elif match[1] in self._ranges or len(self._ranges) < _MAX_NAMES:
                number = int(match[2])
                first, last = self._ranges.get(match[1], (number, number))
                self._ranges[match[1]] = min(first, number), max(last, number)

    def has_source(self, txn: str) -> bool:
        """Return True if the log has transactions of the domain or UUID of this one."""
        match = NUMBERED_GTID.fullmatch(txn)
        return match is None or any(parse_gtid_source(known) == parse_gtid_source(match[1]) for known in self._ranges)

    def has_same_or_later_number(self, txn: str) -> bool:
        """Return True if the log has a transaction of the same domain or UUID with this number or a higher one."""
        match = NUMBERED_GTID.fullmatch(txn)
        return match is not None and any(
            parse_gtid_source(known) == parse_gtid_source(match[1]) and int(match[2]) <= last
            for known, (_, last) in self._ranges.items()
        )

    def format_suggestion(self, txn: str) -> str:
        """Return the transactions that are most like this one, as the end of a message."""
        if not self._ranges:
            return _describe_names(self._unnumbered) if self._unnumbered else "; its records have no transaction ids"
        match = NUMBERED_GTID.fullmatch(txn)
        sources = sorted(self._ranges)
        nearest = "" if match is None else self._suggest_similar_source(match[1], int(match[2]))
        listed = join_names(
            f"{source}{first} to {source}{last}" if first != last else f"{source}{first}"
            for source, (first, last) in ((one, self._ranges[one]) for one in sources)
        )
        return f"; it has {listed}{nearest}"

    def _suggest_similar_source(self, source: str, number: int) -> str:
        """Return a question with the transaction of this number of the most similar source; "" if there is none."""
        if source in self._ranges:
            return ""
        names = [f"{known}{number}" for known, (first, last) in self._ranges.items() if first <= number <= last]
        return format_name_suggestions(f"{source}{number}", names, 1)


def _describe_names(names: Iterable[str]) -> str:
    sorted_names = sorted(names)
    return f"; it has {join_names(sorted_names)}" if sorted_names else "; its records name none"
