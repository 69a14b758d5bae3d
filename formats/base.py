"""What a format tells the engine: one frozen description, made of declarative schemas and pure functions.

Words used everywhere (half-open ranges, absolute file offsets unless said otherwise):
* *frame*: one link of the outer chain of a file (a Tarantool block, a Drizzle entry, a binlog event, a page).
* *row*: one link of the chain inside a frame's payload, where the format has one (Tarantool rows in a block).
* *record*: what `dump` prints a line for and `verify` counts: the row where there are rows, else the frame.
* *window*: the piece of the file in memory; *arena*: where the rows lie (the window itself, or unpacked payloads).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

import msgspec
from construct import Construct

from binlogtool.findings import Finding
from binlogtool.formats.bodies import Shown
from binlogtool.formats.changes import Changes
from binlogtool.formats.choosing import GtidDemand, GtidRules
from binlogtool.formats.heads import Heads
from binlogtool.formats.repairs import PLAIN, Repair
from binlogtool.formats.replays import Replay
from binlogtool.formats.scripting import Script, Wording
from binlogtool.formats.tables import Tables
from binlogtool.limits import Limits

if TYPE_CHECKING:
    from binlogtool.formats.bundling import Bundler
    from binlogtool.formats.cuts import Cutter

Column = Sequence[int]
"""Signed 64-bit integers, one per frame or row: a list (Python scanner) or memory (native scanner).

Unsigned 64-bit fields keep their bit pattern: `value & U64` gives the number.
"""

U64 = (1 << 64) - 1

Kernel = Callable[..., Any]
"""A plain function over integers and integer arrays (see `fields.kernel`): runs as it is, or as native code."""


class Match(NamedTuple):
    """How well a file's head fits a format: 0 = not at all, 100 = certain, with the reason in words.

    From 50 on a head or a record is proven; from 20 on a server may leave it so, torn in its head.
    """

    score: int
    reason: str

    @property
    def proven(self) -> bool:
        """Is it by its content?"""
        return self.score >= 50


Read = Callable[[int, int], bytes]
"""The bytes `[offset, offset + size)` of a file, shorter at its end."""

Unveil = Callable[[int, memoryview], None]
"""Replaces the raw bytes in a buffer, which stand at this file offset, by the plain ones."""


class Readable(NamedTuple):
    """A file that is read in parts: how, and its size in bytes."""

    read: Read
    size: int


class Hints(msgspec.Struct, frozen=True):
    """What the user knows and the log does not say: contents of files that were named, None = not given.

    keyfile: keys of encrypted logs (a key file or a keyring). keyfile_secret: what the key file itself is encrypted
    with. schema: CREATE TABLE statements, for names and types of columns. level: what is to be a record, by the name
    of one of the format's `levels`. redo: the path of the redo log that recovery would use. objects: records are asked
    for by their object, or as statements, so that, where `level` is not given, they are those that have one. as_stored:
    what the log's statements say of its columns is not applied: a state is the same wherever they were lost or never
    stood.
    """

    keyfile: bytes | None = None
    keyfile_secret: bytes | None = None
    schema: str | None = None
    level: str | None = None
    redo: str | None = None
    objects: bool = False
    as_stored: bool = False


class Head(msgspec.Struct, frozen=True):
    """What `layout` and `detect` may look at: the first bytes of a file (at most 4 KiB), its name and its size.

    `size` is None for a stream. `whole` says that `data` is all there is. `shared` is one dictionary for all files of a
    log, in the log's order: what a format learns in one file and needs in the next (names of spaces, table maps).
    `peek` reads `[offset, offset + size)` anywhere in the file, shorter at its end; None for a stream. It is meant for
    few and small reads. hints: what the user added. beside: name of a file in the same directory -> its bytes, or None
    if there is none (links are not followed); None where the file has no directory. redo: the redo log
    that the user named.
    """

    data: bytes
    name: str
    size: int | None
    shared: dict[str, Any] = msgspec.field(default_factory=dict)
    peek: Callable[[int, int], bytes] | None = None
    hints: Hints = Hints()
    beside: Callable[[str], Read | None] | None = None
    redo: Readable | None = None

    @property
    def whole(self) -> bool:
        """True when the file is not longer than `data`."""
        return self.size is not None and self.size <= len(self.data)


class CodecError(Exception):
    """A payload cannot be unpacked. `finding_id` is compression-error or inflate-limit."""

    def __init__(self, finding_id: str, message: str) -> None:
        super().__init__(message)
        self.finding_id = finding_id


Codec = Callable[[memoryview, Limits], bytes | bytearray]
"""Unpacks one payload; raises `CodecError`. Must stop at `limits.max_inflate` while streaming."""


class FrameLevel(msgspec.Struct, frozen=True):
    """The outer chain.

    schema: one frame, lowerable (see `binlogtool.schema.lower`). Frames follow each other without holes.
    name: what the format calls a frame ("block", "entry"): the first part of every field path.
    columns: the schema's fields that the scanner emits, beside `offset`, `end` and `checksum` (1 right, 2 absent).
    sync: a bytes regular expression whose match can be the start of a frame; None = frames cannot be searched for.
    prove: for frames without a usable checksum: do these bytes (exactly one frame) form a frame beyond doubt?
        Called for every frame whose `checksum` is 2 (not computed by the writer), and by resync also where the schema
        has no checksum at all (0). None = structure alone is no proof.
    witness: told of every run of good frames in file order, with the layout's context: what `prove` compares later
        frames with. Only the scan calls it, so that one file has one proof, whoever reads it.
    end_mark: the bytes that close a file cleanly in place of a frame; None = the format has none.
    align: frames start at multiples of this many bytes behind the header (pages); 1 = anywhere.
    max_size: default ceiling of one frame in bytes (`--max-record` overrides it).
    min_size: no frame is shorter.
    declared: the field that says how many bytes a whole frame takes, where only integers stand before it: resync passes
        over what would be longer than the room there is. None = no single field says it.
    checksum, stored, covered: the algorithm, and the columns that hold the stored value and the covered range's start
        and end: what `dump` shows and the one-bit explanation needs. None where the format has no checksum.
    turn: bytes from a frame on that does not fit (bounded), layout context -> the level that holds from this frame on,
        or None: the frame is damaged. All levels of a file have the same columns and the same `checksum`.
    shown: layout context -> the same schema for the annotated hexdump, with what this file's context knows; None =
        `schema` itself. Made when it is wanted: it is large, and a set has as many as files.
    trailing: a frame ends with its checksum, four little-endian bytes, which covers all before it from this offset on;
        None = it stands elsewhere.
    claims: the first bytes of a frame -> the file offset at which the writer says it stands; None = does not say.
    """

    schema: Construct
    columns: tuple[str, ...]
    sync: bytes | None
    min_size: int
    max_size: int
    name: str = "frame"
    prove: Callable[[bytes, Any], bool] | None = None
    witness: Callable[[Any, Batch], None] | None = None
    end_mark: bytes | None = None
    align: int = 1
    checksum: Any = None
    stored: str | None = None
    covered: tuple[str, str] | None = None
    turn: Callable[[bytes, Any], FrameLevel | None] | None = None
    shown: Callable[[Any], Construct] | None = None
    declared: str | None = None
    claims: Callable[[bytes], int | None] | None = None
    trailing: int | None = None


class InnerLevel(msgspec.Struct, frozen=True):
    """Records inside some records: frames that hold, packed or not, a chain of frames of their own.

    selector, holders: the frame column, and its values that mean such a frame. start, end: the columns with the packed
    bytes; unpack: makes the inner chain of them. frame: how that is laid out; its columns are those of the outer chain,
    so that the format's functions treat both alike. A chain must be tiled exactly.
    """

    frame: FrameLevel
    selector: str
    holders: frozenset[int]
    start: str
    end: str
    unpack: Codec


class RowLevel(msgspec.Struct, frozen=True):
    """The chain inside a frame's payload. Rows tile `[frames[start], frames[end])` (or its unpacked form) exactly.

    selector/codecs: the frame column whose value picks the codec; a value that is not in `codecs` = stored as it is.
    framed: a row of which only the beginning is understood, with the same columns: it tells where a row ends that does
        not fit `schema`, so that those behind it are read; None = the rest of the payload is lost.
    """

    schema: Construct
    columns: tuple[str, ...]
    start: str
    end: str
    selector: str | None = None
    codecs: Mapping[int, Codec] = msgspec.field(default_factory=lambda: MappingProxyType({}))
    framed: Construct | None = None


class Layout(msgspec.Struct, frozen=True):
    """How one file is laid out, read from its head.

    variant: shown in reports, e.g. "XLOG 0.13".
    header: schema of the bytes `[0, frames_at)`; None when frames start at 0.
    context: the parsed header or whatever the format's other functions want back; opaque to the engine.
    findings: about the header. readable: False = the frames cannot be walked (the header is too broken).
    inner: records inside some frames. unveil: for an encrypted file; raw bytes of the file -> a function that turns a
        buffer with the raw bytes from an offset on into the plain ones, in place. All offsets stay those of the file.
    sealed: the frames are encrypted and there is no key: at most where they begin and end can be read. The findings say
        what the user has to give.
    assemble: for records that lie over several frames (pages); makes the one that collects them in one pass, with
        `compile` for its kernels. Not used where only the frames are looked at.
    doubtful: context (`Format.apart`), `compile`, `Doubt` -> the same for frames of which nothing proves some.
    page: bytes of a page, in a file that is made of pages. records: False = the file cannot hold any (a list of files).
    """

    variant: str
    frames_at: int
    frame: FrameLevel
    header: Construct | None = None
    rows: RowLevel | None = None
    context: Any = None
    findings: tuple[Finding, ...] = ()
    readable: bool = True
    inner: InnerLevel | None = None
    unveil: Callable[[Read], Unveil] | None = None
    sealed: bool = False
    assemble: Callable[[Callable[[Kernel], Kernel]], Assembler] | None = None
    doubtful: Callable[[Any, Callable[[Kernel], Kernel], Doubt], Doubtful] | None = None
    page: int | None = None
    records: bool = True


class Table(msgspec.Struct, frozen=True):
    """Columns of `count` entries; a column may be longer than `count` (reused buffers), never shorter."""

    count: int
    columns: Mapping[str, Column]

    def __getitem__(self, name: str) -> Column:
        return self.columns[name]


class Holder(NamedTuple):
    """The frame that an inner batch was taken from: its file offset, size in bytes, and record number."""

    offset: int
    size: int
    record: int


class Batch(msgspec.Struct, frozen=True):
    """A run of good frames (and their rows), valid only until the next one is asked for.

    window: bytes of the file; frame positions count from its start; `base` is the file offset of `window[0]`.
    rows: None for formats without rows. Row columns: `span` = index of the frame, `offset`, `end` = places in `arena`.
    arena: `window` itself, or a buffer of unpacked and copied payloads when any frame of the batch is packed.
    span_starts: where each frame's payload starts in `arena`. packed: per frame, was it unpacked?
    first_record / first_frame: index in the file of the first record / frame of this batch.
    inner: by index of the frame, the batch of the records inside it (`InnerLevel`). holder: of such a batch, the frame
    that it is inside of; its own positions count from the start of the unpacked bytes. places: file offset and size of
    each record, where an `Assembler` put the records together.
    """

    base: int
    window: memoryview
    frames: Table
    arena: memoryview
    rows: Table | None
    span_starts: Column
    packed: Sequence[bool]
    first_record: int
    first_frame: int
    inner: Mapping[int, Batch] = msgspec.field(default_factory=lambda: MappingProxyType({}))
    holder: Holder | None = None
    places: tuple[Column, Column] | None = None

    @property
    def records(self) -> Table:
        """The rows where the format has rows, else the frames."""
        return self.frames if self.rows is None else self.rows

    def record_bytes(self, index: int) -> bytes:
        """The bytes of one record in its own address space."""
        table = self.records
        return bytes(self.arena[table["offset"][index] : table["end"][index]])

    def frame_of(self, index: int) -> int:
        """The index, in this batch, of the frame that holds record `index`."""
        return index if self.rows is None else int(self.rows["span"][index])

    def frame_bytes(self, frame: int) -> bytes:
        """The bytes of one frame as they stand in the file."""
        return bytes(self.window[self.frames["offset"][frame] : self.frames["end"][frame]])


class Assembler(Protocol):
    """Puts records together that lie over several frames. Sees the good frames of one file in order.

    The batches that it makes have the joined bytes of the records as window, one frame per record, and `places` (or a
    `holder`); their columns are what the format's own functions expect. They are valid until the next one is asked for.
    A finding stands for records that cannot be put together although the frames are good.
    """

    @property
    def count(self) -> int:
        """The number of the next record."""

    def feed(self, batch: Batch) -> Iterator[Batch | Finding]:
        """The records that end in these frames. A record number is its place among all that were made."""

    def damage(self, start: int, end: int) -> Iterator[Batch | Finding]:
        """`[start, end)` of the file was skipped: records that go on there are lost. To be used up: those before it
        that wait for the end of such a record."""

    def finish(self) -> Iterator[Batch | Finding]:
        """What is left at the end of the file."""


Doubt = Callable[[bytes, int], tuple[bytes, Finding] | None]
"""A frame with a wrong checksum, and its file offset -> the frame as it would be right, and why it is unproven; None:
more is wrong with it."""

Doubted = tuple[Batch, tuple[Finding, ...]]
"""Records that have a part in unproven frames, all in the same ones, and why."""


class Doubtful(Protocol):
    """An `Assembler` that is also given frames that nothing proves; it gives only the records with a part in them, if
    they are what their type demands."""

    def feed(self, batch: Batch, why: Finding | None = None) -> Iterator[Doubted]:
        """The records that end in these frames. why: they are unproven."""

    def damage(self, start: int, end: int) -> Iterator[Doubted]:
        """See `Assembler`."""

    def finish(self) -> Iterator[Doubted]:
        """See `Assembler`."""


class Noted(NamedTuple):
    """A body that can be shown, with something to say about it."""

    body: Any
    findings: tuple[Finding, ...]


class Described(msgspec.Struct, frozen=True):
    """The envelope of a run of records, one list entry each (cli.md 6.19, "what the shared fields mean").

    time: microseconds since 1970-01-01 UTC. Entries may be None where the format has nothing to say.
    """

    type: list[str]
    seq: list[int | None]
    time: list[int | None]
    object: list[str | None]
    origin: list[int | None]
    txn: list[str | int | None]

    def part(self, start: int, stop: int) -> Described:
        """The records `[start, stop)`."""
        cut = slice(start, stop)
        return Described(
            self.type[cut], self.seq[cut], self.time[cut], self.object[cut], self.origin[cut], self.txn[cut]
        )


Quote = Callable[[Any], bytes]
"""Any JSON value in the words of the general writer."""


class JsonBodies(msgspec.Struct, frozen=True):
    """Bodies that compiled code writes as their schemas say.

    of: values of the column `code`, the most frequent first, each with the body that it stands for. start, end: the
    columns that say where the body lies in the arena. given: names and columns of the numbers that `Shown` asks for.
    """

    of: tuple[tuple[int, Shown], ...]
    code: str
    start: str
    end: str
    given: tuple[tuple[str, str], ...] = ()


class JsonMember(msgspec.Struct, frozen=True):
    """How compiled code writes the value of one member of a line of JSON.

    kernel: `kernel(buf, texts, notes, out, o, z, *columns) -> next`: writes to `out[o:z]`, returns the place behind
        it, or `jsontext.NO_ROOM`, or NOT_MINE (then the general writer does this record, whatever it is made of).
    columns: the record columns (of the batch or `JsonLine.derive`) whose values it gets. buf: the arena. notes: 256
        integers for its own use.
    texts: the table of `jsontext.put_text` (as JSON); names: that of `jsontext.put_name`, which may grow while records
        are described. table: gives a table of the format's own; asked after `derive`, and it must give the same object
        as long as nothing in it has changed. At most one of the three.
    bodies: the kernel gets those records only that are none of these.
    """

    kernel: Kernel
    columns: tuple[str, ...] = ()
    texts: Mapping[int, str] | None = None
    names: Mapping[int, str | None] | None = None
    table: Callable[[Quote], bytes] | None = None
    bodies: JsonBodies | None = None


class JsonLine(msgspec.Struct, frozen=True):
    """How compiled code writes the records that are most frequent, in exactly the words of the general writer.

    The members are those of `Described`, `body` and what `extras` adds; the engine knows all others. A record from
    which `describe` learns something for later ones must be NOT_MINE, unless `derive` learns it too. depth: the deepest
    nesting that is printed.

    narrow: columns of rows, "only rows?" -> a member `body` for questions that speak of no more: it has no other
        columns, and perhaps nothing but rows; a body that cannot be decoded is not its own either.
    derive: batch, `compile` -> more columns, one value per record: what follows from the records before (to which
        transaction, to which table does a record belong?). Asked in file order for each batch that compiled code may
        write of, perhaps twice and after `describe`; the other batches are only described. None = the general writer
        does this batch. The columns are valid until the next batch.
    """

    type: JsonMember
    seq: JsonMember
    time: JsonMember
    object: JsonMember
    origin: JsonMember
    txn: JsonMember
    body: JsonMember
    extras: tuple[tuple[str, JsonMember], ...] = ()
    depth: int = 16
    narrow: Callable[[frozenset[str], bool], JsonMember] | None = None
    derive: Callable[[Batch, Callable[[Kernel], Kernel]], Mapping[str, Column] | None] | None = None


class Verdict(msgspec.Struct, frozen=True):
    """What the judge of one file says at its end.

    transactions: complete ones. durable_end: None = the engine's rule (end of the last good frame before damage).
    record_types: counts by type name. findings: those that only the end of the file can tell.
    facts: handed to `judge_set` (frozen, opaque to the engine). details: extra JSON for the report.
    repairable: False = no durable end exists, for the file's head is damaged. sequences: the first and the last
    sequence number, where `Format.numbers_by_judge` says so.
    """

    transactions: int
    record_types: Mapping[str, int]
    findings: tuple[Finding, ...] = ()
    durable_end: int | None = None
    facts: Any = None
    details: Mapping[str, Any] = msgspec.field(default_factory=lambda: MappingProxyType({}))
    repairable: bool = True
    sequences: tuple[int | None, int | None] = (None, None)


class Judge(Protocol):
    """A fold over the records of one file, in file order: sequences, transactions, cross-references."""

    def feed(self, batch: Batch) -> Sequence[Finding]:
        """Findings of this batch (absolute offsets)."""

    def damage(self, start: int, end: int) -> None:
        """`[start, end)` of the file was skipped: sequences may jump here without a finding of their own."""

    def finish(self, tail: Tail) -> Verdict:
        """The end of the file was reached."""


class Tail(msgspec.Struct, frozen=True):
    """How the file ends: `end` of the last good frame, `size`, and whether the end mark was seen (None = has none).

    damaged: some range before the end was skipped. first_damage: its start, or None.
    """

    end: int
    size: int
    closed: bool | None
    first_damage: int | None
    findings: tuple[Finding, ...] = ()


class Member(msgspec.Struct, frozen=True):
    """One file of a set, as `judge_set` sees it: name relative to the set, layout, verdict and tail (None = unread)."""

    name: str
    layout: Layout | None
    verdict: Verdict | None
    tail: Tail | None


class SetFinding(msgspec.Struct, frozen=True):
    """A finding about a set. `file` = name of the member it is about, also one that does not exist."""

    file: str
    finding: Finding
    withdraws: tuple[str, ...] = ()
    """Ids of this file's own findings that this one replaces (a torn tail that turns out to be lost rows)."""


class Format(msgspec.Struct, frozen=True):
    """One log format. Everything the engine knows about it.

    members: file-name patterns (fnmatch) that files of a log can have; what is in them decides whether they are some.
    detect: head -> how well it fits. layout: head -> layout (never raises on bad bytes: findings).
    judge: layout, `compile` (turns a kernel function into the fastest callable at hand), limits -> Judge.
    describe: layout context, batch, start, stop -> envelope columns of these records.
    bodies: the same arguments plus limits -> one JSON-able body per record (bytes as they are; the report wraps them);
        a body that cannot be decoded is a `Finding` in its place; `Noted` = a body and findings about it.
    extras: the same arguments -> additional JSON members of a record, or None. extra_names: their names.
    judge_set: members in order -> findings about the set. order: names -> the log's own order. home: the directory of
        the log that a member's path belongs to ("" = the top); None = the directory that the file is in. stem: base
        name -> what the names of all files that one server writes there have in common; None = it gives no such name.
    explain_damage: layout, bytes from the damage on (bounded), file offset, what is wrong as the engine sees it -> the
        same finding with the format's own knowledge added (facts such as "payload intact, length wrong").
    types: type code -> name, all that the format knows. json: layout context -> how compiled code writes lines of JSON;
        None = only the general writer does.
    variants: the names that `--format NAME:VARIANT` accepts; `layout` then gets the keyword argument `variant`: the
        one that the user fixed, or None. gtids: how transactions are chosen; None = by their texts only.
    sql: starts the statements of a log. None = its records are nothing that a server takes as statements.
    changes: starts the changes of rows of a log. None = it does not tell any with names and types of columns.
    tables: the tables that its logs have, and how records become rows of them; None = only rows of records are made.
    numbers_by_judge: the first and the last sequence number of a file are in the judge's verdict; else `describe` is
        asked for those of its first and last record.
    repair: what a repair needs to know beyond the durable end. replay: what the server would do; None = nothing replays
        such a log.
    levels: what a record can be (`Hints.level`), the usual one first. event_level: the one whose records are the events
        inside of the usual ones: each has the number of the record that holds it, its place there (`inner`), and an
        object, which the others lack.
    seek: layout context, what is wanted -> the parts `[start, end)` of the file, between frame borders, that can hold
        wanted records, in order; None = all of it.
    bundles: layout, limits -> what takes the bundles of events out of a file, for a log in another container; raises
        `UsageError` where that cannot be. None = the records are no events of a server's binary log.
    cutter: layout -> what finds the places where reading can begin anew (`formats.cuts`), or None: this file is read
        from its start.
    apart: layout context -> one that knows the same, and whose learning does not reach the first; None = nothing is
        learned from records.
    settled: layout -> what the rules of a set and a replay need of it once the file was read, which is kept of each
        file of a directory; None = all of it.
    heads: of a file with a damaged head: which flipped bit explains it, proven (`formats.heads`).
    rewritten: bytes `[start, end)` at the head of a file that a server changes although they are durable; a file is
        told from another one of its name without them.
    """

    name: str
    title: str
    members: tuple[str, ...]
    types: Mapping[int, str]
    detect: Callable[[Head], Match]
    layout: Callable[..., Layout]
    judge: Callable[[Layout, Callable[[Kernel], Kernel], Limits], Judge]
    describe: Callable[[Any, Batch, int, int], Described]
    bodies: Callable[[Any, Batch, int, int, Limits], list[Any]]
    schemas: Mapping[str, Construct]
    extras: Callable[[Any, Batch, int, int], list[Mapping[str, Any] | None]] | None = None
    judge_set: Callable[[Sequence[Member]], Sequence[SetFinding]] | None = None
    order: Callable[[Sequence[str]], list[str]] | None = None
    home: Callable[[str], str] | None = None
    stem: Callable[[str], str | None] = lambda _name: ""
    explain_damage: Callable[[Layout, memoryview, int, Finding], Finding] | None = None
    json: Callable[[Any], JsonLine | None] | None = None
    references: tuple[str, ...] = ()
    variants: tuple[str, ...] = ()
    variant: str | None = None
    numbers_by_judge: bool = False
    gtids: GtidRules | None = None
    sql: Callable[[Wording], Script] | None = None
    changes: Callable[[], Changes] | None = None
    tables: Callable[[], Tables] | None = None
    repair: Repair = PLAIN
    replay: Replay | None = None
    levels: tuple[str, ...] = ()
    event_level: str | None = None
    seek: Callable[[Any, GtidDemand], list[tuple[int, int]] | None] | None = None
    bundles: Callable[[Layout, Limits], Bundler] | None = None
    cutter: Callable[[Layout], Cutter | None] | None = None
    rewritten: tuple[int, int] = (0, 0)
    apart: Callable[[Any], Any] | None = None
    settled: Callable[[Layout], Layout] | None = None
    heads: Heads | None = None
    extra_names: tuple[str, ...] = ()
    passing: tuple[str, ...] = ()

    @property
    def spec(self) -> str:
        """What `--format` would have to be given to get this very description."""
        return self.name if self.variant is None else f"{self.name}:{self.variant}"
