"""How the files of a format are laid out, and what the engine hands on of them: levels, layouts, batches of columns.

Words used everywhere (half-open ranges, absolute file offsets unless said otherwise):
* *frame*: one link of the outer chain of a file (a Tarantool block, a Drizzle entry, a binlog event, a page).
* *row*: one link of the chain inside a frame's payload, where the format has one (Tarantool rows in a block).
* *record*: what `dump` prints a line for and `verify` counts: the row where there are rows, else the frame.
* *window*: the piece of the file in memory; *arena*: where the rows lie (the window itself, or unpacked payloads).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from types import MappingProxyType
from typing import Any, NamedTuple, Protocol

import msgspec
from construct import Construct
from msgspec.structs import replace

from binlogtool.findings import Finding
from binlogtool.formats.columns import integers
from binlogtool.limits import Limits

Column = Sequence[int]
"""Signed 64-bit integers, one per frame or row: a list (Python scanner) or memory (native scanner).

Unsigned 64-bit fields keep their bit pattern: `value & U64` gives the number.
"""

U64 = (1 << 64) - 1

Kernel = Callable[..., Any]
"""A plain function over integers and integer arrays (see `fields.kernel`): runs as it is, or as native code."""

Read = Callable[[int, int], bytes]
"""The bytes `[offset, offset + size)` of a file, shorter at its end."""

Unveil = Callable[[int, memoryview], None]
"""Replaces the raw bytes in a buffer, which stand at this file offset, by the plain ones."""


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
    final: a server never goes on behind a record and the frame's end mark.
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
    final: bool = False


class Table(msgspec.Struct, frozen=True):
    """Columns of `count` entries; a column may be longer than `count` (reused buffers), never shorter."""

    count: int
    columns: Mapping[str, Column]

    def __getitem__(self, name: str) -> Column:
        return self.columns[name]


class Holder(NamedTuple):
    """The place of a record in the file, or of the frame that it is inside of: offset, size in bytes, record number."""

    offset: int
    size: int
    record: int


class RecordPlaces(NamedTuple):
    """By record: its file offset and size in bytes, where an `Assembler` put the records together.

    record, start: of records that are inside of such ones, whose offset and size these are: the number of that one, and
    where its bytes begin in the window.
    """

    offset: Column
    size: Column
    record: Column | None = None
    start: Column | None = None


class Batch(msgspec.Struct, frozen=True):
    """A run of good frames (and their rows), valid only until the next one is asked for.

    window: bytes of the file; frame positions count from its start; `base` is the file offset of `window[0]`.
    rows: None for formats without rows. Row columns: `span` = index of the frame, `offset`, `end` = places in `arena`.
    arena: `window` itself, or a buffer of unpacked and copied payloads when any frame of the batch is packed.
    span_starts: where each frame's payload starts in `arena`. packed: per frame, was it unpacked?
    first_record / first_frame: index in the file of the first record / frame of this batch.
    inner: by index of the frame, the batch of the records inside it (`InnerLevel`). holder: of such a batch, the frame
    that it is inside of; its own positions count from the start of the unpacked bytes.
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
    places: RecordPlaces | None = None

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

    @property
    def is_inside(self) -> bool:
        """Are the records inside of others?"""
        return self.holder is not None or (self.places is not None and self.places.record is not None)

    def place_of(self, index: int) -> Holder:
        """The place of a record's frame; of one inside of another, of that one."""
        if self.holder is not None:
            return self.holder
        if self.places is not None:
            offset, size, record, _ = self.places
            number = self.first_record + index if record is None else int(record[index])
            return Holder(int(offset[index]), int(size[index]), number)
        frame = self.frame_of(index)
        low, high = int(self.frames["offset"][frame]), int(self.frames["end"][frame])
        return Holder(self.base + low, high - low, self.first_record + index)

    def inner_of(self, index: int) -> int:
        """Where a record begins in the one that it is inside of; -1 = in none."""
        if not self.is_inside:
            return -1
        start = None if self.places is None else self.places.start
        return int(self.records["offset"][index]) - (0 if start is None else int(start[index]))

    def numbers(self, start: int, stop: int) -> Sequence[int]:
        """The numbers in the file of the records `[start, stop)`; of one inside of another, the number of that one."""
        if self.holder is not None:
            return [self.holder.record] * (stop - start)
        if self.places is not None and self.places.record is not None:
            return integers(self.places.record, start, stop)
        return range(self.first_record + start, self.first_record + stop)

    def numbered(self, record: int) -> Batch:
        """The same, with `record` as the number of its first record, or of the one that all are inside of."""
        holder, places = self.holder, self.places
        holder = None if holder is None else holder._replace(record=record)
        if places is not None and places.record is not None:
            places = places._replace(record=[record] * self.records.count)
        return replace(self, first_record=record, holder=holder, places=places)


class Assembler(Protocol):
    """Puts records together that lie over several frames. Sees the good frames of one file in order.

    The batches that it makes have the joined bytes of the records as window, one frame per record, and `places`; their
    columns are what the format's own functions expect. They are valid until the next one is asked for.
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
