"""Replay rules of a format: what its server would do with each record when it starts, and what that changes.

The engine has verified all files before; the rules know what is wrong where, and decide for each record whether the
server applies, skips or rejects it, and why.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import cache
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

import msgspec

from binlogtool.findings import Finding

if TYPE_CHECKING:
    from binlogtool.format_api.format import DecodedRecords, FileTail, ValidationResult
    from binlogtool.format_api.layout import Batch, Kernel, LogFileLayout, RangeReader
    from binlogtool.format_api.row_store_kernels import RowStoreMemory
    from binlogtool.limits import Limits


APPLIED, SKIPPED, REJECTED = "applied", "skipped", "rejected"
VERBS = (APPLIED, SKIPPED, REJECTED)

NOT_REACHED = "not-reached"
"""Reason for records after the place where the server stops: skipped."""

UNTIL = "until"
"""Reason for records at or after `--until`: skipped."""

LIMIT = "limit"
"""Reason for records that were not replayed because of a limit: skipped."""

POLICIES = ("server", "strict", "force")


class Ruling(NamedTuple):
    """The outcome of the records `[first, stop)`; numbers count all records of the replay from 0, in reading order.

    verb: APPLIED, SKIPPED or REJECTED. reason: one of the format's `ReplayRules.reasons`.
    """

    first: int
    stop: int
    verb: str
    reason: str


class ReplayStop(NamedTuple):
    """Place where the server stops, and its error message. file: name of the member; offset: None = the whole file."""

    file: str
    offset: int | None
    why: str


class ExaminedFile(msgspec.Struct, frozen=True):
    """A file of the log as verification found it.

    Args:
        name: relative to the log's directory.
        records: number of provable records.
        layout, verdict, tail: None where the file could not be read at all.
        findings: those of the set included.
    """

    name: str
    path: str
    size: int
    records: int
    layout: LogFileLayout | None
    verdict: ValidationResult | None
    tail: FileTail | None
    findings: tuple[Finding, ...] = ()


class ReplaySituation(msgspec.Struct, frozen=True):
    """Input of a replay: the files, the server's policy and its start position.

    Args:
        files: the members in the log's own order.
        is_directory: they are a directory, so files that are missing do not exist; False = single files were named.
        findings: about the set, where no file has them.
        policy: "server", "strict" or "force".
        start_position: the last applied position, in the form of `ReplayOutcome.position`; None = a server that has
            nothing but this log.
        read_sibling: name -> reader of another file in the log's directory, None if there is none.
        redo: path of the redo log.
        ended_early: called at the end: returns True if `--until` ended the replay before the end of the log. Then the
            last record that was fed is the end of the log, and that is no damage.
        server_version: of the server that starts, as the user gave it; None = the one that wrote the files.
        max_memory: bytes that the rules may use for rows.
    """

    files: tuple[ExaminedFile, ...]
    is_directory: bool
    policy: str = "server"
    start_position: Mapping[str, Any] | None = None
    findings: tuple[Finding, ...] = ()
    read_sibling: Callable[[str], RangeReader | None] | None = None
    redo: str | None = None
    ended_early: Callable[[], bool] = lambda: False
    server_version: str | None = None
    max_memory: int = 1 << 28


class ReadPlan(msgspec.Struct, frozen=True):
    """Decisions of the server before it reads records.

    Args:
        read: names of the files whose records it reads, in its order.
        skipped: the other files -> reason (of `ReplayRules.reasons`); all their records are skipped.
        refusal: the server does not even begin; `read` is then what it would have read.
        base: those of `read` that hold a state and no log (snapshots): loaded whole or not at all, no `--until` ends
            there.
        starts: the server starts in spite of the refusal; None = its start does not depend on what it refuses.
    """

    read: tuple[str, ...]
    skipped: Mapping[str, str] = msgspec.field(default_factory=lambda: MappingProxyType({}))
    refusal: ReplayStop | None = None
    base: frozenset[str] = frozenset()
    starts: bool | None = False


class ReplayOutcome(msgspec.Struct, frozen=True):
    """End of a replay: whether the server starts, its last position, and the losses.

    Args:
        starts: the server starts; None = that does not depend on this log.
        stop: where it stopped, else None.
        position: the last applied position per object or origin, as JSON; the value of `--against`.
        findings: (member name, finding), above all losses without an error of the server (`silent-loss`).
        details: additional JSON for the report.
        unknown: objects of which the server has rows that no record of the log contains -> the reason as text.
    """

    starts: bool | None
    stop: ReplayStop | None
    position: Mapping[str, Any]
    findings: tuple[tuple[str, Finding], ...] = ()
    details: Mapping[str, Any] = msgspec.field(default_factory=lambda: MappingProxyType({}))
    unknown: Mapping[str, str] = msgspec.field(default_factory=lambda: MappingProxyType({}))


class Replayer(Protocol):
    """Decide the outcome of the records of one replay. By the end every record must have a ruling, in any order."""

    def plan_reads(self) -> ReadPlan:
        """Return which files the server reads; called first."""

    def feed(self, name: str, first: int, records: DecodedRecords) -> Iterable[Ruling]:
        """Take the records `[first, first + len(records))` of a file; return the rulings known now, on any record.

        After the server has stopped, return `SKIPPED, NOT_REACHED`, or leave it to the engine.
        """

    def finish(self) -> tuple[Iterable[Ruling], ReplayOutcome]:
        """Return the remaining rulings after the last record, and the outcome."""


PUT, DELETE, PATCH, DROP, ADD, REMOVE, RENAME = range(7)
"""Kinds of changes of an object: PUT sets the image of a key; DELETE deletes a key; PATCH changes the image of a key;
DROP empties the object (it is created, truncated or dropped: from here on all of it is known); ADD inserts a row
without a key; REMOVE removes one such row; RENAME gives the object the name in the image, with its rows, and discards
the object that had that name before. For `ReplayRules.patch` the image of a key that does not exist is b""."""


class StateChange(NamedTuple):
    """One effect of an applied record. key, image: canonical bytes (`encode_canonical`), b"" where there is none.

    Rows of objects without a key are kept as a multiset of images (ADD, REMOVE).
    """

    object: str
    kind: int
    key: bytes
    image: bytes


class EffectReader(Protocol):
    """Decode what records change; learns definitions (which fields are the key) from the records themselves."""

    def of(self, records: DecodedRecords, index: int) -> Iterable[StateChange]:
        """Return the changes of record `index` of the run; called for applied records only, in order of application."""

    def attach_replayer(self, replayer: Any) -> None:
        """Take the replayer of the same replay; called first."""

    def unknown_objects(self) -> Mapping[str, str]:
        """Return objects whose rows are not known as the server has them -> reason as text; called at the end."""
        return {}


class ObjectCount(NamedTuple):
    """Records of one object: their number, and their first and last sequence number."""

    object: str | None
    records: int
    first_seq: int
    last_seq: int


class BatchRuling(NamedTuple):
    """One ruling for all records of a batch up to `stop`. object_counts: per object, in the order of names or ids."""

    stop: int
    verb: str
    reason: str
    object_counts: Sequence[ObjectCount]


class CompiledReplay(Protocol):
    """Compiled code for records that need no individual ruling.

    The `Replayer` and `EffectReader` handle all others, and know what was done here.
    """

    def rule_on_batch(
        self, name: str, context: Any, batch: Batch, start: int, stop: int, compile_kernel: Callable[[Kernel], Kernel]
    ) -> BatchRuling | None:
        """Rule on the first of the records `[start, stop)` of a batch of a file; None: the first needs its own ruling.

        Args:
            context: of the file's layout.
            compile_kernel: see `RowStoreMemory.compile_kernel`.
        """

    def store_changes(self, row_store: RowStoreMemory, batch: Batch, start: int, stop: int) -> int:
        """Store the changes of the applied records `[start, stop)` of a batch; return the first unsupported one."""

    def decode_changes(self, context: Any, batch: Batch, start: int, stop: int) -> Iterable[StateChange]:
        """Return the changes of such records, as `EffectReader.of` does."""


class ReplayRules(msgspec.Struct, frozen=True):
    """Rules by which the server of a format replays its log.

    Args:
        begin: creates the replayer of one replay.
        reasons: reason -> one or two sentences: the rule, with its source (specification section, server symbol).
        effects: creates the reader of what records change; None = there is no state to digest.
        patch: image, operation (`StateChange.image` of PATCH) -> the new image, or None where it cannot be computed;
            None = images are always whole.
        level: what counts as a record (`Hints.level`).
        count_records: details of a file's validation -> its number of records at that level.
        parse_state: name and content of a file that says what a server has applied -> the position, or None if it is
            not such a file.
        force: what the policy of this name does, for the help.
        decode_extras: the part of `OutputRules.decode_extras` that the rules need, called in its place; None = all of
            it.
        compiled: creates the compiled code of one replay from the replayer, the effect reader (None = not needed), and
            the limits.
    """

    begin: Callable[[ReplaySituation], Replayer]
    reasons: Mapping[str, str]
    effects: Callable[[], EffectReader] | None = None
    patch: Callable[[bytes, bytes], bytes | None] | None = None
    level: str | None = None
    count_records: Callable[[Mapping[str, Any]], int] | None = None
    parse_state: Callable[[str, bytes], Mapping[str, Any] | None] | None = None
    force: str = ""
    decode_extras: Callable[[Any, Batch, int, int], list[Mapping[str, Any] | None] | None] | None = None
    compiled: Callable[[Any, Any, Limits], CompiledReplay] | None = None


@cache
def _encoder() -> Any:
    import msgspec

    return msgspec.msgpack.Encoder(order="deterministic", enc_hook=repr)


def encode_canonical(value: Any) -> bytes:
    """Encode a decoded value as bytes: equal for equal values, whatever the order of a map's keys."""
    buffer = bytearray()  # raises MemoryError where it cannot grow; the encoder's own buffer is not looked at
    try:
        _encoder().encode_into(value, buffer)
        return bytes(buffer)
    except (OverflowError, TypeError, ValueError):  # numbers beyond 64 bits, keys of several types
        return repr(_sort_nested(value)).encode(errors="surrogatepass")


def _sort_nested(value: Any) -> Any:
    if isinstance(value, Mapping):
        return sorted(((repr(_sort_nested(k)), _sort_nested(v)) for k, v in value.items()), key=repr)
    if isinstance(value, list | tuple):
        return [_sort_nested(one) for one in value]
    return value


def make_rulings(verbs: Iterable[tuple[str, str]], first: int) -> Iterator[Ruling]:
    """Combine one (verb, reason) per record, from record `first` on, into as few rulings as possible."""
    start, last = first, None
    number = first
    for number, outcome in enumerate(verbs, first):
        if outcome != last:
            if last is not None:
                yield Ruling(start, number, *last)
            start, last = number, outcome
    if last is not None:
        yield Ruling(start, number + 1, *last)


def join_rulings(rulings: Iterable[Ruling]) -> Iterator[Ruling]:
    """Join adjacent equal rulings: recording them in one step is cheap."""
    last: Ruling | None = None
    for ruling in rulings:
        if last is not None and last.stop == ruling.first and last[2:] == ruling[2:]:
            last = Ruling(last.first, *ruling[1:])
            continue
        if last is not None:
            yield last
        last = ruling
    if last is not None:
        yield last
