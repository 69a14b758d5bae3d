"""Replay rules of a format: the fate of each record when the server starts, and the resulting state.

The engine has already verified all files; the rules receive the findings, and decide for each record whether the server
applies, skips or rejects it, and why.
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
"""Reason for skipped records after the place where the server stops."""

UNTIL = "until"
"""Reason for skipped records at or after `--until`."""

LIMIT = "limit"
"""Reason for skipped records that were not replayed because of a limit."""

POLICIES = ("server", "strict", "force")


class RecordOutcome(NamedTuple):
    """Outcome of the records `[first, stop)`; numbers count all records of the replay from 0, in reading order.

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


DIRECTORY, DANGLING_LINK, FILE_LINK, FIFO = "directory", "dangling link", "link to a file", "FIFO"
UNOPENABLE = "socket or link that cannot be opened"
"""Kinds of entries of a log's directory that are no regular files, symbolic links followed."""


class ExaminedFile(msgspec.Struct, frozen=True):
    """Verified file of the log.

    Args:
        name: relative to the log's directory.
        records: number of provable records.
        layout, verdict, tail: None if the file could not be read at all.
        findings: findings about the file, including those of the set.
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
        is_directory: the files are a whole directory, so missing files do not exist; False = single files were named.
        findings: findings about the set that belong to no file.
        policy: "server", "strict" or "force".
        start_position: the last applied position, in the form of `ReplayOutcome.position`; None = the server has only
            this log.
        read_sibling: name -> reader of another file in the log's directory, or None if it does not exist.
        redo: path of the redo log.
        ended_early: function to call at the end: returns True if `--until` ended the replay before the end of the log.
            Then the log ends, without damage, with the last record that was fed.
        server_version: version of the server that starts, given by the user; None = the one that wrote the files.
        max_memory: bytes that the rules may use for rows.
        other_entries: name of each entry of the directory itself that is no regular file -> its kind (`DIRECTORY`, …).
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
    other_entries: Mapping[str, str] = msgspec.field(default_factory=lambda: MappingProxyType({}))


class ReadPlan(msgspec.Struct, frozen=True):
    """Decisions of the server before it reads records.

    Args:
        read: names of the files whose records the server reads, in its order.
        skipped: name of another file -> reason (of `ReplayRules.reasons`); all its records are skipped.
        refusal: why the server does not even begin to read; `read` is then what it would have read.
        base: the files of `read` that hold a state and no log (snapshots): they are loaded completely or not at all,
            and `--until` cannot be in them.
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
        starts: whether the server starts; None = that does not depend on this log.
        stop: where the server stopped; None = it did not stop.
        position: the last applied position per object or origin, as JSON; the value of `--against`.
        findings: (member name, finding) pairs, mainly losses without an error message of the server (`silent-loss`).
        details: additional JSON for the report.
        unknown: object with rows on the server that no record of the log contains -> the reason as text.
    """

    starts: bool | None
    stop: ReplayStop | None
    position: Mapping[str, Any]
    findings: tuple[tuple[str, Finding], ...] = ()
    details: Mapping[str, Any] = msgspec.field(default_factory=lambda: MappingProxyType({}))
    unknown: Mapping[str, str] = msgspec.field(default_factory=lambda: MappingProxyType({}))


class Replayer(Protocol):
    """Decide what happens to each record of one replay. By its end every record must have an outcome, in any order."""

    def plan_reads(self) -> ReadPlan:
        """Return the plan of the files that the server reads; called first."""

    def decide_records(self, name: str, first: int, records: DecodedRecords) -> Iterable[RecordOutcome]:
        """Decide on the next records of a file; return the outcomes known so far, also of earlier records.

        After the server has stopped, return `SKIPPED, NOT_REACHED`, or leave it to the engine.
        """

    def finish(self) -> tuple[Iterable[RecordOutcome], ReplayOutcome]:
        """Return the remaining record outcomes after the last record, and the outcome of the replay."""


PUT, DELETE, PATCH, DROP, ADD, REMOVE, RENAME = range(7)
"""Kinds of changes of an object: PUT sets the image of a key; DELETE deletes a key; PATCH changes the image of a key;
DROP empties the object (it is created, truncated or dropped: from then on all its rows are known); ADD inserts a row
without a key; REMOVE removes such a row; RENAME gives the object, with its rows, the name in the image, and discards
the object that previously had this name. For `ReplayRules.patch` the image of a key that does not exist is b""."""


class StateChange(NamedTuple):
    """One effect of an applied record. key, image: canonical bytes (`encode_canonical`); b"" = none.

    Rows of objects without a key are kept as a multiset of images (ADD, REMOVE).
    """

    object: str
    kind: int
    key: bytes
    image: bytes


class EffectReader(Protocol):
    """Decoder of the changes of records; it learns definitions (which fields are the key) from the records."""

    def read_changes(self, records: DecodedRecords, index: int) -> Iterable[StateChange]:
        """Return the changes of record `index` of the run; called for applied records only, in order of application."""

    def attach_replayer(self, replayer: Any) -> None:
        """Store the replayer of the same replay; called first."""

    def get_reasons_of_unknown_objects(self) -> Mapping[str, str]:
        """Return object -> reason as text, for objects whose rows on the server are not all known; called last."""
        return {}


class ObjectCount(NamedTuple):
    """Records of one object: their number, and their first and last sequence number."""

    object: str | None
    records: int
    first_seq: int
    last_seq: int


class BatchOutcome(NamedTuple):
    """The same outcome for all records of a batch up to `stop`. object_counts: one per object, by name or id."""

    stop: int
    verb: str
    reason: str
    object_counts: Sequence[ObjectCount]


class CompiledReplay(Protocol):
    """Compiled code for records that need no individual record outcome.

    The `Replayer` and `EffectReader` handle all other records, and share the state with this code.
    """

    def decide_batch(
        self, name: str, context: Any, batch: Batch, start: int, stop: int, compile_kernel: Callable[[Kernel], Kernel]
    ) -> BatchOutcome | None:
        """Rule on the first of the records `[start, stop)` of a file's batch; None = the first record needs its own
        record_outcome.

        Args:
            context: context of the file's layout.
            compile_kernel: see `RowStoreMemory.compile_kernel`.
        """

    def store_changes_until_unsupported(self, row_store: RowStoreMemory, batch: Batch, start: int, stop: int) -> int:
        """Store the changes of the applied records `[start, stop)` of a batch; return the first unsupported one."""

    def decode_changes(self, context: Any, batch: Batch, start: int, stop: int) -> Iterable[StateChange]:
        """Return the changes of unsupported records, as `EffectReader.read_changes` does."""


class ReplayRules(msgspec.Struct, frozen=True):
    """Rules by which the server of a format replays its log.

    Args:
        begin: function that creates the replayer of one replay.
        reasons: reason -> one or two sentences: the rule, with its source (specification section, server symbol).
        effects: function that creates the reader of changes; None = there is no state to digest.
        patch: (image, operation (`StateChange.image` of PATCH)) -> the new image, or None if it cannot be computed;
            None = images are always complete.
        level: which units count as records (`Hints.level`).
        count_records: details of a file's validation -> its number of records at that level.
        parse_state: (name, content) of a server's state file -> the last applied position, or None if it is not a state
            file.
        force: text for the help about the effects of policy `force`.
        decode_extras: the part of `OutputRules.decode_extras` that the rules need, called instead of it; None = all of
            it.
        uses_server_version: The rules depend on the version of the server (`--server-version`).
        starts_without_files: The server starts in an empty directory as with an empty log.
        compiled: (replayer, effect reader (None = not needed), limits) -> the compiled code of one replay.
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
    uses_server_version: bool = False
    starts_without_files: bool = False


@cache
def _encoder() -> Any:
    import msgspec

    return msgspec.msgpack.Encoder(order="deterministic", enc_hook=repr)


def encode_canonical(value: Any) -> bytes:
    """Encode a decoded value as canonical bytes: equal for equal values, whatever the order of a map's keys."""
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


def combine_into_outcomes(verbs: Iterable[tuple[str, str]], first_number: int) -> Iterator[RecordOutcome]:
    """Combine one (verb, reason) per record, from record `first_number` on, into as few record outcomes as possible."""
    start, last = first_number, None
    number = first_number
    for number, outcome in enumerate(verbs, first_number):
        if outcome != last:
            if last is not None:
                yield RecordOutcome(start, number, *last)
            start, last = number, outcome
    if last is not None:
        yield RecordOutcome(start, number + 1, *last)


def join_adjacent_outcomes(record_outcomes: Iterable[RecordOutcome]) -> Iterator[RecordOutcome]:
    """Join adjacent record outcomes that are equal, because recording them in one step is cheaper."""
    last: RecordOutcome | None = None
    for record_outcome in record_outcomes:
        if last is not None and last.stop == record_outcome.first and last[2:] == record_outcome[2:]:
            last = RecordOutcome(last.first, *record_outcome[1:])
            continue
        if last is not None:
            yield last
        last = record_outcome
    if last is not None:
        yield last
