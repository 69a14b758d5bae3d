"""What a format tells the engine about a replay: what its server would do with each record, and what that changes.

A server starts, reads its log in its own order, and does something with each record. The engine has verified all files
before; so the rules know what is wrong where, and say for each record what becomes of it, and why.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import cache
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

import msgspec

from binlogtool.findings import Finding

if TYPE_CHECKING:
    from binlogtool.formats.described import Described
    from binlogtool.formats.judging import Tail, Verdict
    from binlogtool.formats.keeping import Kept
    from binlogtool.formats.layouts import Batch, Kernel, Layout, Read
    from binlogtool.limits import Limits

APPLIED, SKIPPED, REJECTED = "applied", "skipped", "rejected"
VERBS = (APPLIED, SKIPPED, REJECTED)

NOT_REACHED = "not-reached"
"""The reason of records behind the place where the server stops: skipped."""

UNTIL = "until"
"""The reason of records at or behind `--until`: skipped."""

LIMIT = "limit"
"""The reason of records that a limit kept from being replayed: skipped."""

POLICIES = ("server", "strict", "force")


class Records(Protocol):
    """A run of records of one file, decoded; all sequences have the same length (`log.records.Block`)."""

    @property
    def record(self) -> Sequence[int]:
        """Number of the record in its file."""

    @property
    def offset(self) -> Sequence[int]:
        """Byte in the file."""

    @property
    def size(self) -> Sequence[int]:
        """Bytes in the file."""

    @property
    def inner(self) -> Sequence[Any]:
        """Place inside a packed record, or None."""

    @property
    def envelope(self) -> Described:
        """Type, seq, time, object, origin, txn."""

    @property
    def checksum(self) -> Sequence[Any]:
        """What was stored and computed, or None."""

    @property
    def bodies(self) -> Sequence[Any]:
        """As `dump` shows them, bytes left as bytes; None for one that cannot be decoded."""

    @property
    def extras(self) -> Sequence[Mapping[str, Any] | None] | None:
        """More members of `dump`, or None."""

    @property
    def findings(self) -> Mapping[int, tuple[Finding, ...]]:
        """Position in the run -> what is wrong with that record alone."""

    def __len__(self) -> int: ...


class Ruling(NamedTuple):
    """What becomes of the records `[first, stop)`; numbers count all records of the replay from 0, in reading order.

    verb: APPLIED, SKIPPED or REJECTED. reason: one of the format's `Replay.reasons`.
    """

    first: int
    stop: int
    verb: str
    reason: str


class Stop(NamedTuple):
    """Where the server gives up, and what it says. file: name of the member; offset: None = the file as a whole."""

    file: str
    offset: int | None
    why: str


class Examined(msgspec.Struct, frozen=True):
    """A file of the log as verification found it. records: provable ones. name: relative to the log's directory.

    layout, verdict, tail: None where the file could not be read at all. findings: those of the set included.
    """

    name: str
    path: str
    size: int
    records: int
    layout: Layout | None
    verdict: Verdict | None
    tail: Tail | None
    findings: tuple[Finding, ...] = ()


class Situation(msgspec.Struct, frozen=True):
    """What the rules know beforehand.

    files: the members in the log's own order. whole: they are a directory, so what is not there does not exist; False =
    single files were named. findings: about the set, where no file has them. policy: server, strict or force.
    against: the last applied position, in the shape of `Outcome.position`; None = a server that has nothing but this
    log. beside: name -> the bytes of another file in the log's directory, None if there is none. cut: asked at the
    end: did `--until` end the replay before the log? Then the log ends where the feeding did, and that is no damage.
    server_version: of the server that starts, as the user gives it; None = the one that wrote the files.
    max_memory: bytes that rules may keep of rows.
    """

    files: tuple[Examined, ...]
    whole: bool
    policy: str = "server"
    against: Mapping[str, Any] | None = None
    findings: tuple[Finding, ...] = ()
    beside: Callable[[str], Read | None] | None = None
    redo: str | None = None
    cut: Callable[[], bool] = lambda: False
    server_version: str | None = None
    max_memory: int = 1 << 28


class Itinerary(msgspec.Struct, frozen=True):
    """What the server does before it reads records.

    read: names of the files whose records it reads, in its order. passed: the others -> reason (of `Replay.reasons`),
    all of whose records are skipped. refusal: it does not even begin; `read` is then what it had read. base: those of
    `read` that hold a state and no log (snapshots): they are loaded whole or not at all, no `--until` ends there.
    starts: does a server come up that refuses (None = what is refused is not what makes it start)?
    """

    read: tuple[str, ...]
    passed: Mapping[str, str] = msgspec.field(default_factory=lambda: MappingProxyType({}))
    refusal: Stop | None = None
    base: frozenset[str] = frozenset()
    starts: bool | None = False


class Outcome(msgspec.Struct, frozen=True):
    """How the replay ends.

    starts: does the server come up (None = the log is not what makes it start). stop: where it gave up, else None.
    position: the last applied position per object or origin, as JSON; what `--against` takes. findings: (member name,
    finding), above all of losses that the server does not tell (`silent-loss`). details: more JSON for the report.
    unknown: objects of which the server has rows that no record of the log tells, and why (in words).
    """

    starts: bool | None
    stop: Stop | None
    position: Mapping[str, Any]
    findings: tuple[tuple[str, Finding], ...] = ()
    details: Mapping[str, Any] = msgspec.field(default_factory=lambda: MappingProxyType({}))
    unknown: Mapping[str, str] = msgspec.field(default_factory=lambda: MappingProxyType({}))


class Replayer(Protocol):
    """A fold over the records of one replay. Every record must be ruled on by the end, in any order."""

    def itinerary(self) -> Itinerary:
        """Asked first."""

    def feed(self, name: str, first: int, records: Records) -> Iterable[Ruling]:
        """Takes the records `[first, first + len(records))` of the file `name`: what is known now, about any record.

        After the server has given up, rule `SKIPPED, NOT_REACHED`, or leave it to the engine.
        """

    def finish(self) -> tuple[Iterable[Ruling], Outcome]:
        """The last record was read: what was still open."""


PUT, DELETE, PATCH, DROP, ADD, REMOVE, RENAME = range(7)
"""What a change does to an object: set a key to an image; delete a key; change the image of a key; empty the object (it
is created, truncated, dropped: from here on all of it is known); put one more row without a key into it; take one such
row out of it; give it the name that is the image: its rows go along, and what had that name before is gone. The image
of a key that is not there is b"" for `Replay.patch`."""


class Change(NamedTuple):
    """One effect of an applied record. key, image: canonical bytes (`canonical`), b"" where there is none.

    Rows of objects without a key are kept as a multiset of images (ADD, REMOVE).
    """

    object: str
    kind: int
    key: bytes
    image: bytes


class Effects(Protocol):
    """What records change. Learns definitions (which fields are the key?) from the records themselves."""

    def of(self, records: Records, i: int) -> Iterable[Change]:
        """The changes of record `i` of the run; called for applied records only, in the order of their application."""

    def follow(self, replayer: Any) -> None:
        """Called first, with the one that rules on the records of the same replay."""

    def doubts(self) -> Mapping[str, str]:
        """Asked at the end: objects whose rows are not known as the server has them, and why (in words)."""
        return {}


class Counted(NamedTuple):
    """Records of one object: how many, and their first and last sequence number."""

    object: str | None
    records: int
    first_seq: int
    last_seq: int


class Ran(NamedTuple):
    """The records of a batch up to `stop` are ruled on alike; counted: per object, in the order of names or ids."""

    stop: int
    verb: str
    reason: str
    counted: Sequence[Counted]


class Quick(Protocol):
    """Compiled code for the records that need no look one by one; all others go by `Replayer` and `Effects`, which
    know of what was done here."""

    def run(
        self, name: str, context: Any, batch: Batch, start: int, stop: int, compiled: Callable[[Kernel], Kernel]
    ) -> Ran | None:
        """Rules on the first ones of the records `[start, stop)` of a batch of the file `name`, whose layout has this
        context. None: the first one has to be looked at. compiled: see `Kept.compiled`."""

    def keep(self, kept: Kept, batch: Batch, start: int, stop: int) -> int:
        """Takes what applied records `[start, stop)` of a batch change; returns the first one that it does not know."""

    def changes(self, context: Any, batch: Batch, start: int, stop: int) -> Iterable[Change]:
        """The changes of such records, as `Effects.of` tells them."""


class Replay(msgspec.Struct, frozen=True):
    """How the server of a format replays its log.

    begin: the rules for one replay. reasons: reason -> one or two sentences: the rule, with the source (specification
    section, server symbol). effects: makes the one that knows what records change; None = there is no state to digest.
    patch: image, operation (`Change.image` of PATCH) -> the new image, or None where it cannot be told; None =
    images are always whole. level: what is to be a record (`Hints.level`); count: details of a file's verdict ->
    how many it has. state: name and content of a file that says what a server has applied -> the position, or None
    if it is no such file. force: what the policy of this name does, for the help. extras: what the rules want of
    `Format.extras`, in its shape and in its place; None = all. quick: makes compiled code for one replay, of the one
    that rules, the one that knows what records change (None = nobody asks), and the limits.
    """

    begin: Callable[[Situation], Replayer]
    reasons: Mapping[str, str]
    effects: Callable[[], Effects] | None = None
    patch: Callable[[bytes, bytes], bytes | None] | None = None
    level: str | None = None
    count: Callable[[Mapping[str, Any]], int] | None = None
    state: Callable[[str, bytes], Mapping[str, Any] | None] | None = None
    force: str = ""
    extras: Callable[[Any, Batch, int, int], list[Mapping[str, Any] | None] | None] | None = None
    quick: Callable[[Any, Any, Limits], Quick] | None = None


@cache
def _encoder() -> Any:
    import msgspec

    return msgspec.msgpack.Encoder(order="deterministic", enc_hook=repr)


def canonical(value: Any) -> bytes:
    """A decoded value as bytes: equal for equal values, whatever the order of a map's keys."""
    made = bytearray()  # raises MemoryError where it cannot grow; the encoder's own buffer is not looked at
    try:
        _encoder().encode_into(value, made)
        return bytes(made)
    except (OverflowError, TypeError, ValueError):  # numbers beyond 64 bits, keys of several types
        return repr(_sorted(value)).encode(errors="surrogatepass")


def _sorted(value: Any) -> Any:
    if isinstance(value, Mapping):
        return sorted(((repr(_sorted(k)), _sorted(v)) for k, v in value.items()), key=repr)
    if isinstance(value, list | tuple):
        return [_sorted(one) for one in value]
    return value


def runs(verbs: Iterable[tuple[str, str]], first: int) -> Iterator[Ruling]:
    """One (verb, reason) per record, from record `first` on -> as few rulings as possible."""
    start, last = first, None
    at = first
    for at, one in enumerate(verbs, first):
        if one != last:
            if last is not None:
                yield Ruling(start, at, *last)
            start, last = at, one
    if last is not None:
        yield Ruling(start, at + 1, *last)


def joined(rulings: Iterable[Ruling]) -> Iterator[Ruling]:
    """The same in as few as possible: what is booked in one step costs little."""
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
